//! `run` measures what it is asked for, checks every answer and writes every figure.

mod refusals;
mod sockets;

use crate::support::{assert_refused, done, json_in, json_of, number, refusal, run, stderr, stdout};
use serde_json::Value;

/// Every field a row must have.
const FIELDS: &str = "system dataset dataset_source dist negative shift_every keys key_space key_bytes key_bytes_min \
     key_bytes_max key_bytes_mean value_bytes value_bytes_max inline_bytes slot_bytes lookups batch \
     threads rounds transport memory_nodes spin_us pages fsync seed epsilon fingerprint_bits fill groups \
     plan cached_share two_stage_share range_share speculative_share groups_share at_node_share \
     cache_bytes_budget cache_bytes_used cache_bytes_per_entry cache_entries cache_capacity hit_rate \
     policy variant on_conflict cold model_bytes model_bytes_per_key memory_node_bytes_per_key \
     process_bytes_per_key segments rtts_per_op reads_per_op bytes_per_op false_candidates_per_op \
     fallbacks_per_op mismatches ops_per_s ops_per_s_min ops_per_s_max ops_per_s_passes latency_of p50_ns \
     p95_ns p99_ns p999_ns p9999_ns max_ns timeline shifts build_s load_s machine commit version \
     calibration sweep";
/// Fields without a value unless a folder for data, a budget, a moving hotspot, a timeline or a
/// sweep is asked for.
const FIELDS_ON_DEMAND: &str = "shift_every inline_bytes spin_us fsync groups cache_bytes_budget cache_bytes_used \
     cache_bytes_per_entry cache_entries cache_capacity hit_rate policy variant on_conflict cold timeline \
     shifts sweep";
/// Fields without a value for a map.
const MEMORY_NODE_FIELDS: &str = "transport memory_nodes epsilon fingerprint_bits fill plan cached_share two_stage_share range_share \
     speculative_share groups_share at_node_share slot_bytes model_bytes model_bytes_per_key \
     memory_node_bytes_per_key segments rtts_per_op reads_per_op bytes_per_op false_candidates_per_op \
     fallbacks_per_op load_s";

/// Runs an experiment on 20 K keys and gives its rows.
fn rows(options: &str) -> Vec<Value> {
    rows_of("uniform:20K", options)
}

fn rows_of(data: &str, options: &str) -> Vec<Value> {
    let lookups = if options.contains("--lookups") { "" } else { "--lookups 5K" };
    json_of(&format!("run --data {data} {lookups} --calibration-buffer 1MiB --rounds 2 {options}"))
}

#[test]
fn every_field_is_there_and_applies_where_it_should() {
    let rows = rows("");
    let systems: Vec<&str> = rows.iter().filter_map(|row| row["system"].as_str()).collect();
    assert_eq!(systems, ["fpcache", "hashmap", "btreemap"]);
    for row in &rows {
        let among = |fields: &str, field: &str| fields.split(' ').any(|other| other == field);
        for field in FIELDS.split(' ') {
            let value = row.get(field).unwrap_or_else(|| panic!("{field} is missing in {row}"));
            let is_map = row["system"] != "fpcache";
            let absent = (is_map && among(MEMORY_NODE_FIELDS, field)) || among(FIELDS_ON_DEMAND, field);
            // Only a build outside a clone knows no commit.
            assert!(value.is_null() == absent || field == "commit", "{field} is {value} in {row}");
        }
        assert_eq!(row["mismatches"], 0);
        assert_eq!(row["allocations_per_op"], 0.0, "{row}");
        assert_eq!((&row["keys"], &row["key_bytes"]), (&Value::from(20_000), &Value::from(8)));
        assert_eq!(row["dataset_source"], "generated");
        assert!(number(row, "p50_ns") <= number(row, "p9999_ns"));
        assert!(number(row, "ops_per_s_min") <= number(row, "ops_per_s"));
        assert!(number(row, "ops_per_s") <= number(row, "ops_per_s_max"));
        let passes = row["ops_per_s_passes"].as_array().expect("passes");
        assert_eq!(Some(passes.len() as u64), row["rounds"].as_u64(), "{row}");
        assert!(passes.contains(&row["ops_per_s"]), "{row}");
        assert!(number(&row["calibration"], "random_read_ns") > 0.0);
        assert!(number(&row["machine"], "cores") >= 1.0);
    }
    assert!(rows.iter().all(|row| row["pages"] == "huge"));
    // A map cannot hold 16-byte pairs in less.
    assert!(rows[1..].iter().all(|row| number(row, "process_bytes_per_key") >= 16.0));
}

#[test]
fn both_transports_plans_and_batches_give_right_answers_at_the_known_costs() {
    for transport in ["shm", "local"] {
        for batch in [1, 32] {
            for (plan, round_trips) in [("two-stage", 2.0), ("range", 1.0)] {
                let rows = rows(&format!(
                    "--system fpcache --transport {transport} --batch {batch} --plan {plan} --fingerprint-bits 16"
                ));
                let row = &rows[0];
                assert_eq!(row["transport"], transport);
                assert_eq!(row["mismatches"], 0);
                assert_eq!(number(row, "rtts_per_op"), round_trips, "{row}");
                let call = if batch == 1 { "get" } else { "multi_get of 32" };
                assert_eq!(row["latency_of"], call);
                assert_eq!(number(row, "allocations_per_op"), 0.0, "{row}");
            }
        }
    }
}

#[test]
fn tables_of_groups_are_counted_where_lookups_use_them() {
    for (transport, uses_them) in [("tcp", true), ("shm", false)] {
        let rows = rows(&format!("--system fpcache,fpcache-client --transport {transport} --groups"));
        assert_eq!(rows.len(), 2);
        for row in &rows {
            let (all, models) = (number(row, "process_bytes_per_key"), number(row, "model_bytes_per_key"));
            // A separator of two bytes for nine slots, of which most hold a key.
            assert_eq!(all > models + 0.2, uses_them, "{row}");
            assert_eq!(number(row, "groups_share") > 0.9, uses_them, "{row}");
            assert_eq!(row["groups"], "plain");
        }
    }
}

#[test]
fn a_table_over_several_memory_nodes_gives_the_same_answers() {
    for transport in ["shm", "tcp"] {
        for batch in [1, 32] {
            let rows = rows(&format!(
                "--system fpcache --transport {transport} --nodes 3 --batch {batch} --plan range"
            ));
            assert_eq!(
                (&rows[0]["memory_nodes"], &rows[0]["mismatches"]),
                (&Value::from(3), &Value::from(0))
            );
            assert_eq!(number(&rows[0], "rtts_per_op"), 1.0, "{}", rows[0]);
        }
    }
}

#[test]
fn readers_and_the_handle_that_threads_share_are_measured_side_by_side() {
    for options in ["", "--batch 32 --threads 2", "--cache 1MiB --transport local"] {
        let rows = rows(&format!("--system fpcache,fpcache-client {options}"));
        let systems: Vec<&str> = rows.iter().filter_map(|row| row["system"].as_str()).collect();
        assert_eq!(systems, ["fpcache", "fpcache-client"]);
        for field in ["mismatches", "rtts_per_op", "reads_per_op", "bytes_per_op"] {
            assert_eq!(rows[0][field], rows[1][field], "{field} with {options}");
        }
        for row in &rows {
            assert_eq!(row["mismatches"], 0, "{row}");
            // Of several threads each may make one of its own, if it is the first time that it
            // meets something rare.
            let threads = number(row, "threads");
            let most = if threads > 1.0 { threads / number(row, "lookups") } else { 0.0 };
            assert!(number(row, "allocations_per_op") <= most, "{row}");
        }
    }
}

#[test]
fn a_budget_is_reported_and_kept() {
    for options in ["", "--cold", "--batch 16 --threads 2", "--variant full --policy lru --on-conflict range"]
    {
        let rows = rows(&format!("--cache 1MiB --dist zipf:0.99 --negative 0.1 {options}"));
        let row = &rows[0];
        assert!(rows.iter().all(|row| row["mismatches"] == 0), "{options}");
        assert_eq!(row["cache_bytes_budget"], 1 << 20);
        let choices = match options.contains("lru") {
            true => ["full", "lru", "range"],
            false => ["fd", "heat", "cheapest"],
        };
        assert_eq!(
            ["variant", "policy", "on_conflict"].map(|field| row[field].as_str().expect("text")),
            choices
        );
        assert_eq!(row["cold"], options.contains("cold"));
        assert!(rows[1..].iter().all(|row| row["cache_bytes_budget"].is_null() && row["cold"].is_null()));
        let shares = ["cached_share", "two_stage_share", "range_share", "speculative_share", "groups_share"];
        let sum: f64 = shares.iter().map(|share| number(row, share)).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{row}");
        assert!(number(row, "cache_bytes_used") <= number(row, "cache_bytes_budget"), "{row}");
        assert!(number(row, "cache_entries") > 0.0, "{row}");
        assert!(number(row, "cache_entries") <= number(row, "cache_capacity"), "{row}");
        // Popular keys come again and again: hits there must be, and they cost one round trip.
        assert!((0.1..=1.0).contains(&number(row, "hit_rate")), "{row}");
        assert!(number(row, "cached_share") > 0.1 && number(row, "rtts_per_op") < 1.7, "{row}");
        let per_key = number(row, "cache_bytes_used") / number(row, "keys");
        assert!((number(row, "process_bytes_per_key") - per_key).abs() < 1e-9, "{row}");
    }
}

#[test]
fn a_timeline_has_all_its_points_and_tells_what_shifts_did() {
    let options = "--dist zipf:0.99 --timeline 500 --shift-every 2K";
    for threads in [1, 3] {
        let rows = rows(&format!("--cache 1MiB --threads {threads} {options}"));
        for row in &rows {
            let points = row["timeline"].as_array().expect("an array");
            assert_eq!(points.len(), 10, "{row}");
            assert_eq!(points.last().expect("ten")["lookups"], 5_000);
            assert!(points.iter().all(|point| number(point, "ops_per_s") > 0.0));
            let shifts = row["shifts"].as_array().expect("an array");
            assert_eq!(shifts.iter().map(|shift| &shift["at"]).collect::<Vec<_>>(), [2_000, 4_000], "{row}");
            assert_eq!(row["shift_every"], 2_000);
        }
        if threads == 1 {
            let points = rows[0]["timeline"].as_array().expect("an array");
            let (before, after) = (number(&points[3], "hit_rate"), number(&points[4], "hit_rate"));
            assert!(after < before, "popular keys that have moved are new: {before}, then {after}");
        }
    }
    let text =
        stdout(&done(&format!("run --dataset uniform:20K --lookups 5K --calibration-buffer 1MiB {options}")));
    for part in ["10 points along 5.00 K", "popular keys moved at 2.00 K", "popular keys move every 2.00 K"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

/// What must hold of any run over byte strings.
fn assert_right_over_bytes(data: &str, options: &str, rows: &[Value]) {
    for row in rows {
        assert_eq!((&row["mismatches"], &row["key_space"]), (&0.into(), &"bytes".into()), "{data} {options}");
        // The counter is one for the whole process; and without a warm-up buffers grow while it
        // counts.
        let is_exact = !options.contains("--threads") && !options.contains("--cold");
        assert!(!is_exact || row["allocations_per_op"] == 0.0, "{row}");
        let [least, mean, most] =
            ["key_bytes_min", "key_bytes_mean", "key_bytes_max"].map(|field| number(row, field));
        assert!(least >= 1.0 && least <= mean && mean <= most, "{row}");
        assert_eq!(row["key_bytes"].as_f64(), (least == most).then_some(least), "{row}");
    }
    let per_key = number(&rows[0], "model_bytes") / number(&rows[0], "keys");
    assert!((number(&rows[0], "model_bytes_per_key") - per_key).abs() < 1e-9);
}

#[test]
fn byte_strings_of_every_kind_are_looked_up_like_integers() {
    for (data, options) in [
        ("words:5K", "--value-bytes vary --negative 0.3"),
        ("domains:5K", "--dist zipf:0.99 --batch 32 --threads 2"),
        ("paths:5K", "--value-bytes vary:300 --transport local --batch 7"),
        ("ycsb:20K", "--key-bytes 24 --plan two-stage --negative 0.5"),
        ("ycsb:5K", "--value-bytes 100 --fingerprint-bits 16"),
        ("binary:5K", "--key-bytes 16 --plan range"),
        ("binary:5K", "--epsilon 4 --fill 1"),
        ("prefixes:5K", "--plan speculative --negative 0.2"),
    ] {
        assert_right_over_bytes(data, options, &rows_of(data, options));
    }
}

#[test]
fn a_budget_holds_for_byte_strings_too() {
    for options in ["", "--cold --batch 8", "--variant full --policy lru --threads 2"] {
        let options = format!("--cache 2MiB --dist zipf:0.99 --value-bytes vary {options}");
        let rows = rows_of("words:20K", &options);
        assert_right_over_bytes("words:20K", &options, &rows);
        assert!(number(&rows[0], "cache_bytes_used") <= number(&rows[0], "cache_bytes_budget"));
        assert!(number(&rows[0], "hit_rate") > 0.1 && number(&rows[0], "cached_share") > 0.1, "{}", rows[0]);
    }
}

#[test]
fn two_stages_read_the_record_alone_whatever_its_length() {
    // Fingerprints of a window take at most 65 times 8 bytes; the slot has a word, the lengths, and
    // room for key and value.
    for (data, options, slot) in [
        ("ycsb:20K", "--key-bytes 24 --value-bytes 8", 40),
        ("ycsb:20K", "--key-bytes 24 --value-bytes 1000", 1032),
        ("ycsb:20K", "--key-bytes 128 --value-bytes 8", 144),
        ("ycsb:20K", "--key-bytes 128 --value-bytes vary:64", 208),
    ] {
        let row = &rows_of(data, &format!("--system fpcache --plan two-stage {options}"))[0];
        assert_eq!((&row["slot_bytes"], number(row, "rtts_per_op")), (&slot.into(), 2.0), "{row}");
        let fingerprints = number(row, "bytes_per_op") - f64::from(slot);
        assert!((1.0..=66.0 * 8.0).contains(&fingerprints), "{row}");
    }
}

#[test]
fn absent_keys_cost_one_round_trip_of_two() {
    for batch in [1, 32] {
        let rows = rows(&format!("--negative 0.5 --plan two-stage --batch {batch}"));
        assert!(rows.iter().all(|row| row["mismatches"] == 0));
        let per_lookup = number(&rows[0], "rtts_per_op");
        if batch == 1 {
            assert!((1.45..1.55).contains(&per_lookup), "{per_lookup}");
        } else {
            assert!((1.45..=2.0).contains(&per_lookup), "{per_lookup}");
        }
    }
}

#[test]
fn values_of_any_size_and_several_threads_are_right() {
    for options in [
        "--value-bytes 1 --threads 3",
        "--value-bytes 64 --batch 7 --threads 2 --dist zipf:0.99",
        "--value-bytes 100 --fingerprint-bits 8 --epsilon 8 --fill 0.7",
        "--value-bytes vary:100 --batch 16",
    ] {
        assert!(rows(options).iter().all(|row| row["mismatches"] == 0), "{options}");
    }
}

#[test]
fn the_table_goes_to_standard_output_and_figures_to_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("figures.json");
    let options = "--dataset ipv4:5K --lookups 1K --calibration-buffer 1MiB";
    let text = stdout(&done(&format!("run {options} --json {}", path.display())));
    for part in ["ipv4:5K (shipped)", "hashmap", "p99.99", "round trips", "every answer was right"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert_eq!(json_in(&path).len(), 3);
    assert_refused("run --dataset ipv4", &[("--json /no/such/folder/figures.json", "/no/such/folder")]);
}

#[test]
fn a_memory_node_is_read_over_sockets_as_over_shared_memory() {
    for over in ["tcp", "unix"] {
        let options = "--system fpcache --lookups 2K --batch 32";
        let rows = rows_of("ipv4", &format!("{options} --transport {over}"));
        assert_eq!((&rows[0]["transport"], &rows[0]["mismatches"]), (&over.into(), &0.into()), "{}", rows[0]);
        assert!(rows[0]["rtts_per_op"].as_f64() >= Some(1.0), "{}", rows[0]);
    }
}
