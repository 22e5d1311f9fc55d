//! `growth` grows a store and compares it with a fresh one; `scale` measures several sizes.

use crate::support::{assert_refused, json_in, json_of, refusal, run, stderr, stdout};
use serde_json::Value;

fn rows(options: &str) -> Vec<Value> {
    json_of(&format!("{options} --lookups 4K --rounds 2 --calibration-buffer 1MiB"))
}

#[test]
fn scale_measures_every_size_and_draws_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("scale.svg");
    let rows = rows(&format!(
        "scale --dataset uniform --keys 8K,2K --system fpcache,hashmap --plot {}",
        plot.display()
    ));
    let keys: Vec<u64> = rows.iter().filter_map(|row| row["keys"].as_u64()).collect();
    assert_eq!(keys, [2_000, 2_000, 8_000, 8_000]);
    for row in &rows {
        assert_eq!(row["mismatches"], 0);
        assert!(row["calibration"]["random_read_ns"].as_f64() > Some(0.0), "{row}");
    }
    let text = std::fs::read_to_string(&plot).expect("a plot");
    assert!(text.contains("uniform: a lookup over the number of keys"), "of all points, not of the first");
    for part in ["fpcache lookup", "hashmap lookup", "random read", "nanoseconds", "2 K", "8 K"] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn points_that_were_measured_are_there_when_a_later_one_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plot, json] = ["scale.svg", "scale.json"].map(|name| folder.path().join(name));
    // A region for the first point, in which the second has no room.
    let output = run(&format!(
        "scale --dataset uniform --keys 2K,2M --lookups 1K --rounds 1 --capacity 4MiB --plot {} --json {}",
        plot.display(),
        json.display()
    ));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--capacity"), "{}", stderr(&output));
    let keys: Vec<u64> = json_in(&json).iter().filter_map(|row| row["keys"].as_u64()).collect();
    assert_eq!(keys, [2_000]);
    let text = stdout(&output);
    assert!(text.contains("2.00 K") && text.contains("read : first") && plot.exists(), "{text}");
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_before_any_work_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("scale.json");
    let options = "--dataset uniform --keys 1K --plot /no/such/folder/x.svg";
    let said = refusal(&format!("scale {options} --json {}", json.display()));
    assert!(!said.contains("point 1") && said.contains("--plot /no/such/folder/x.svg"), "{said}");
    refusal(&format!("growth --dataset sequential:100 --order fresh --json {}", json.display()));
    assert!(!json.exists(), "a file without figures");
}

#[test]
fn bad_options_end_with_their_remedy() {
    assert_refused("scale", &[("--dataset uniform:1M", "name alone")]);
    let cases = [
        ("--dataset ipv4 --factor 0.5", "above 1"),
        ("--dataset sequential:100 --order fresh", "no key to insert"),
        ("--direct --dataset words:10K", "omit it"),
    ];
    assert_refused("growth --lookups 1K --calibration-buffer 1MiB", &cases);
}

#[test]
fn every_order_doubles_the_store_and_ends_right() {
    let rows = rows(
        "growth --dataset uniform:20K --order random,append,descending,middle,hotspot-moves,fresh --threads 2",
    );
    assert_eq!(rows.len(), 6);
    for row in &rows {
        assert_eq!(row["mismatches"], 0, "{row}");
        let expected = if row["order"] == "fresh" { (20_000, 20_000) } else { (10_000, 10_000) };
        assert_eq!((row["loaded"].as_u64(), row["inserted"].as_u64()), (Some(expected.0), Some(expected.1)));
        for field in ["inserts_per_s", "copies_per_insert", "after_to_fresh", "bytes_per_key_after"] {
            assert!(row[field].as_f64() > Some(0.0), "{field}: {row}");
        }
    }
}

#[test]
fn rows_of_growth_have_all_that_decides_them() {
    let rows = rows(
        "growth --dataset uniform:4K --transport tcp --spin 20us --groups=plain --cache 1MiB --variant full \
         --fingerprint-bits 32",
    );
    let row = &rows[0];
    for (field, value) in [
        ("transport", Value::from("tcp")),
        ("memory_nodes", 1.into()),
        ("spin_us", 20.0.into()),
        ("fsync", Value::Null),
        ("groups", "plain".into()),
        ("fingerprint_bits", 32.into()),
        ("rounds", 2.into()),
        ("cache_bytes_budget", (1 << 20).into()),
        ("variant", "full".into()),
    ] {
        assert_eq!(row.get(field), Some(&value), "{field}: {row}");
    }
    for field in ["hit_rate_before", "hit_rate_after", "hit_rate_fresh"] {
        assert!(row[field].as_f64().is_some_and(|rate| (0.0..=1.0).contains(&rate)), "{field}: {row}");
    }
}

#[test]
fn a_memory_node_without_clients_takes_updates_and_inserts() {
    let rows = rows("growth --direct --dataset uniform:20K --order random,append --seed 9 --epsilon 48");
    for row in &rows {
        let of = |field: &str| row[field].clone();
        assert_eq!(
            ["dataset_source", "seed", "epsilon"].map(of),
            [Value::from("generated"), 9.into(), 48.into()]
        );
        assert_eq!(["fill", "value_bytes"].map(of), [Value::from(0.85), 8.into()]);
        assert!(row["made"]["machine"]["cores"].as_u64() > Some(0) && row.get("commit").is_none(), "{row}");
        for field in ["updates_per_s", "updates_per_s_unhinted", "inserts_per_s"] {
            assert!(row[field].as_f64() > Some(0.0), "{field}: {row}");
        }
        assert_eq!(row["inserts"], 10_000);
    }
}

#[test]
fn byte_strings_grow_a_store_too() {
    for row in rows("growth --dataset words:10K --order random,append") {
        assert_eq!((&row["mismatches"], &row["key_space"]), (&0.into(), &"bytes".into()), "{row}");
        assert_eq!((&row["loaded"], &row["inserted"]), (&5_000.into(), &5_000.into()));
    }
}
