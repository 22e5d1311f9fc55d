//! `density` measures groups as they can be built, and as a memory node has them.

use crate::support::{assert_refused, done, json_of, number, stdout};
use serde_json::Value;

fn rows(options: &str) -> Vec<Value> {
    json_of(&format!("density {options} --lookups 4K"))
}

#[test]
fn every_form_has_a_row_and_a_memory_node_one_for_each_share_of_inserts() {
    let rows = rows("--dataset uniform:20K --epsilon 32 --inserted 0,0.1,1");
    let of: Vec<(&str, f64)> =
        rows.iter().filter_map(|row| Some((row["form"].as_str()?, number(row, "inserted")))).collect();
    let alone = ["line", "cut"].map(|form| (form, 0.0));
    let built = ["plain", "seeded", "pilots"];
    let built = built.into_iter().flat_map(|form| [0.0, 0.1, 1.0].map(|share| (form, share)));
    assert_eq!(of, alone.into_iter().chain(built).collect::<Vec<_>>());
    for row in &rows {
        assert_eq!((row["dataset"].as_str(), number(row, "keys")), (Some("uniform:20K"), 20_000.0), "{row}");
        let fill = if row["form"] == "line" || row["form"] == "cut" { 0.85 } else { 0.8 };
        assert_eq!((number(row, "epsilon"), number(row, "fill")), (32.0, fill), "{row}");
        assert_eq!(number(row, "misplaced"), 0.0, "{row}");
        assert_eq!((number(row, "slot_bytes"), number(row, "seed")), (24.0, 42.0), "{row}");
        assert_eq!(row["lookups"].as_u64(), if fill == 0.8 { Some(4_000) } else { None }, "{row}");
        for share in ["present_one_read", "absent_one_read"] {
            assert!((0.0..=1.0).contains(&number(row, share)), "{share}: {row}");
        }
        assert!(number(row, "bytes_read") > 0.0 && number(row, "build_ns") >= 0.0, "{row}");
        assert!(number(row, "bytes_per_key") >= number(row, "directory_bytes_per_key"), "{row}");
    }
    for row in &rows[2..] {
        // Inserts find the one slot that a pilot gives them taken.
        let with_inserts = if row["form"] == "pilots" { 0.8 } else { 0.9 };
        let least = if number(row, "inserted") == 0.0 { 0.999 } else { with_inserts };
        assert!(number(row, "present_one_read") >= least, "{row}");
        let parts = ["directory", "separator", "name", "index", "room"]
            .map(|part| number(row, &format!("{part}_bytes_per_key")));
        let (parts, all) = (parts.iter().sum::<f64>(), number(row, "bytes_per_key"));
        // What is beside models and tables is the same however many keys there are.
        assert!(parts <= all && all - parts < 2048.0 / 20_000.0, "{parts} of {all}: {row}");
    }
    assert_eq!(rows[4]["inserted_keys"], 10_000);
    assert!(rows[2]["copies_per_insert"].is_null() && number(&rows[4], "copies_per_insert") > 0.0);
    let separators = |row: &Value| number(row, "separator_bytes_per_key");
    assert!(separators(&rows[5]) < separators(&rows[2]) / 2.0, "{} and {}", rows[2], rows[5]);
    assert!(number(&rows[8], "bytes_read") < 25.0, "pilots name the slot: {}", rows[8]);
}

#[test]
fn others_stand_beside_it_with_what_they_publish() {
    let text = stdout(&done("density --dataset uniform:2K --form groups --epsilon 16 --inserted 0"));
    for part in ["plain", "SMART", "CHIME", "Sherman", "ROLEX", "DMTree", "Outback", "8.4", "0.43", "0.65"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_plot_has_a_line_for_each_form_and_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("density.svg");
    let options = "--dataset uniform:2K --epsilon 16,32 --inserted 0,0.5 --form cut,plain";
    rows(&format!("{options} --plot {}", plot.display()));
    let text = std::fs::read_to_string(&plot).expect("a plot");
    let lines = ["cut, alone", "plain, +0 %: present", "plain, +50 %: absent", "SMART", "CHIME", "Sherman"];
    for part in
        lines.into_iter().chain(["bytes per key", "99.9 %", "uniform:2K", "epsilon 16, 32, fill 0.8, 0.85"])
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let options = "--dataset uniform:2K,sequential:4K --epsilon 16 --form line";
    rows(&format!("{options} --plot {}", plot.display()));
    let text = std::fs::read_to_string(&plot).expect("a plot");
    let both =
        "uniform:2K (generated), 2.00 K keys, sequential:4K (generated), 4.00 K keys; epsilon 16, fill 0.85";
    assert!(text.contains(both), "{text}");
}

#[test]
fn bad_options_end_with_their_remedy() {
    let cases = [
        ("--form plain --slot-bytes 264", "--form pilots"),
        ("--plot /no/such/folder/x.svg", "in a folder that is there"),
        ("--json /no/such/folder/x.json", "/no/such/folder/x.json"),
    ];
    assert_refused("density", &cases);
}
