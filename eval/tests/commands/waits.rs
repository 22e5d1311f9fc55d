//! `waits` runs every load there is and reports what a put beside it waited.

use crate::support::json_of;

#[test]
fn puts_beside_every_load_are_timed() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = "--keys 20K --seconds 0.05 --every-us 500";
    let rows = json_of(&format!("waits {options} --store-dir {}", folder.path().display()));
    let loads: Vec<&str> = rows.iter().filter_map(|row| row["load"].as_str()).collect();
    let all = ["idle", "full", "churn", "load", "commit", "drop", "get", "value", "idle-synced", "one-key"];
    assert_eq!(loads, all);
    for row in &rows {
        let latency = &row["latency"];
        assert!(latency["max_ns"].as_u64() >= latency["p50_ns"].as_u64(), "{row}");
        assert!(latency["operations"].as_u64() > Some(0) && row["seconds"].as_f64() > Some(0.0), "{row}");
        let is_synced = row["load"] == "idle-synced" || row["load"] == "one-key";
        assert_eq!(row["fsync"] == "always", is_synced, "{row}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "the data are removed");
}
