//! Data sets and files are loaded, added and verified.

use std::process::Stdio;

use fpcache::key_space::ByteKeys;
use serde_json::Value;

use crate::{Node, command};

#[test]
fn a_data_set_is_loaded_read_and_verified() {
    let node = Node::start(8 << 20);
    let (out, err) = node.ends_with(0, "load sequential:20K --epsilon 16 --fingerprint-bits 16");
    for part in ["sequential:20K (generated)", "20000", "keys each", "bytes per key", " s"] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert_eq!(err, "", "no progress outside a terminal");

    assert_eq!(node.ends_with(0, "get 12345").0, "12345\n");
    assert_eq!(node.ends_with(0, "get 0x10 17").0, "16 16\n17 17\n");
    assert_eq!(node.ends_with(0, "get 258 --format hex").0, "0201000000000000\n");
    assert_eq!(node.ends_with(0, "get 65 --format text").0, "A\\x00\\x00\\x00\\x00\\x00\\x00\\x00\n");
    assert_eq!(node.ends_with(0, "scan 19998 --limit 5").0, "19998 19998\n19999 19999\n");
    assert_eq!(node.ends_with(0, "scan 7").0.lines().count(), 10);
    assert_eq!(node.ends_with(0, "scan 0 --limit 0").0, "");
    // More than one page of a scan.
    assert_eq!(node.ends_with(0, "scan 0 --limit 15000").0.lines().last(), Some("14999 14999"));

    let (out, _) = node.ends_with(0, "stats");
    for part in [&node.url, "20000 (20.0 K)", "fingerprints of 16 bits, epsilon 16", "8 bytes", "in use"] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let (out, _) = node.ends_with(0, "verify sequential:20K");
    assert!(out.contains("20000 keys of sequential:20K (generated)") && out.contains("every value is right"));
}

/// Only after the first 1,024 it was said that some of them are.
#[test]
fn records_that_find_no_room_from_the_first_group_on_may_be_there() {
    let node = Node::start(4 << 20);
    node.ends_with(0, "load uniform:10K");
    let (_, err) = node.ends_with(2, "load uniform:1M --seed 7");
    assert!(err.contains("the first ") && err.contains(" records are there"), "{err}");
    let (_, err) = node.ends_with(2, "load uniform:1M --seed 8");
    assert!(err.contains("no room") && err.contains("; some of the records may be there"), "{err}");
}

#[test]
fn verify_counts_what_is_missing_and_what_is_wrong() {
    let node = Node::start(4 << 20);
    node.ends_with(0, "load sequential:1000");
    let (out, _) = node.ends_with(0, "load sequential:3 --table few");
    assert!(!out.contains("per key"), "{out}");
    // It was `3 (3)`, and `3, 94378.7 bytes each`.
    let (out, _) = node.ends_with(0, "stats --table few");
    assert!(out.contains("keys        3\n"), "{out}");
    // Twice as many keys: the second half is missing.
    let (out, err) = node.ends_with(1, "verify sequential:2K");
    assert!(out.contains("1000 missing, 0 with a wrong value"), "{out}");
    assert!(err.contains("key 1000 is missing") && err.contains("holds 1000 keys"), "{err}");
    assert_eq!(err.lines().count(), 7, "a note, five keys, and that there are more: {err}");

    // A file whose positions differ.
    let file = node.directory.path().join("odd_uint64");
    let keys: Vec<u64> = vec![1, 3, 5, 2000];
    let bytes: Vec<u8> = [4].iter().chain(&keys).flat_map(|n: &u64| n.to_le_bytes()).collect();
    std::fs::write(&file, bytes).unwrap();
    let verify = node.json(1, &format!("verify sosd:{} --json", file.display()));
    assert_eq!((&verify["missing"], &verify["wrong"]), (&1.into(), &3.into()));
}

#[test]
fn duplicates_are_refused_unless_told_what_they_mean() {
    let node = Node::start(4 << 20);
    let file = node.directory.path().join("twice_uint64");
    let bytes: Vec<u8> = [4u64, 7, 7, 7, 9].iter().flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(&file, bytes).unwrap();
    let spec = format!("sosd:{}", file.display());
    let (_, err) = node.ends_with(2, &format!("load {spec}"));
    assert!(err.contains("twice_uint64") && err.contains("--duplicates first"), "{err}");
    assert_eq!(node.json(0, "stats --json")["keys"], 0, "nothing half made");
    let (_, err) = node.ends_with(0, &format!("load {spec} --duplicates last"));
    assert!(err.contains("note: ") && err.contains("2 of 4 keys"), "{err}");
    assert_eq!(node.ends_with(0, "scan 0").0, "7 2\n9 3\n");
    node.ends_with(0, &format!("verify {spec} --duplicates last"));
    node.ends_with(1, &format!("verify {spec} --duplicates first"));
}

#[test]
fn a_data_set_is_added_to_a_table_that_is_there() {
    let node = Node::start(16 << 20);
    node.ends_with(0, "load sequential:3000 --value-bytes 12");
    let (out, _) = node.ends_with(0, "load sequential:5K");
    assert!(out.contains("5000: 2000 new, 3000 updated"), "{out}");
    node.ends_with(0, "verify sequential:5K");
    let added = node.json(0, "load uniform:1000 --seed 3 --json");
    assert_eq!(
        (&added["new"], &added["replaced"], &added["value_bytes"]),
        (&1000.into(), &0.into(), &12.into())
    );
    let stats = node.json(0, "stats --json");
    let lookups = stats["lookups"].as_array().unwrap();
    assert_eq!((&lookups[0]["keys"], &lookups[1]["keys"]), (&1.into(), &64.into()));
    assert!(lookups.iter().all(|of| of["plan"] == of["by_reads"] && of["at_node_us"].is_null()), "{stats}");
    assert!(stats["round_trip_us"].is_null(), "memory that is mapped has none");
    assert_eq!((&stats["keys"], &stats["inserts"]), (&6000.into(), &3000.into()));
}

#[test]
fn data_sets_of_byte_strings_are_loaded_scanned_and_verified() {
    let node = Node::start_for::<ByteKeys>(32 << 20);
    let load = node.json(0, "load words:20K --json");
    assert_eq!((&load["keys"], &load["key_kind"]), (&20_000.into(), &"bytes".into()));
    assert_eq!(load["key_bytes"], Value::Null);
    let (out, _) = node.ends_with(0, "verify words:20K");
    assert!(out.contains("20000 keys of words:20K") && out.contains("every value is right"), "{out}");
    assert_eq!(node.ends_with(0, "scan --limit 15000").0.lines().count(), 15_000, "more than a page");
    let first = node.ends_with(0, "scan --limit 1").0;
    let (key, value) = first.split_once(' ').unwrap();
    assert_eq!(node.ends_with(0, &format!("get {key}")).0, value);
    // Added to a table that is there; and what its slots have no room for is refused.
    let (out, _) = node.ends_with(0, "load binary:500 --key-bytes 9");
    assert!(out.contains("500 new"), "{out}");
    node.ends_with(0, "verify binary:500 --key-bytes 9");
    let (_, err) = node.ends_with(2, "load ycsb:10 --key-bytes 128");
    assert!(err.contains("room for") && err.contains("user"), "{err}");
    // None of them is added, although others would fit.
    let count = node.ends_with(0, "count").0;
    let keys = (0..3000).map(|i| format!("short{i:04}\n")).chain(["z".repeat(300)]).collect::<String>();
    let file = node.directory.path().join("one_long.txt");
    std::fs::write(&file, keys).unwrap();
    let (_, err) = node.ends_with(2, &format!("load lines:{}", file.display()));
    assert!(err.contains("300 bytes") && err.contains("key zzz"), "{err}");
    assert_eq!(node.ends_with(0, "count").0, count);
    node.ends_with(0, "load binary:500 --key-bytes 9 --table nine");
    let (_, err) = node.ends_with(2, "load binary:10 --key-bytes 8 --table nine");
    assert!(err.contains("the key has 8 bytes, but all keys of this table have 9"), "{err}");
    let (out, _) = node.ends_with(1, "verify domains:100");
    assert!(out.contains("100 missing"), "{out}");
}

#[test]
fn a_file_of_lines_is_a_data_set_whatever_its_bytes() {
    let node = Node::start_for::<ByteKeys>(8 << 20);
    let file = node.directory.path().join("lines.txt");
    // Out of order, no UTF-8, no newline at the end.
    std::fs::write(&file, b"zebra\napple pie\n\xff\xfe\nant").unwrap();
    let spec = format!("lines:{}", file.display());
    let (_, err) = node.ends_with(2, &format!("load {spec} --unsorted refuse"));
    assert!(err.contains("lines.txt"), "{err}");
    node.ends_with(0, &format!("load {spec}"));
    assert_eq!(node.ends_with(0, "scan").0, "ant 0\napple\\x20pie 1\nzebra 2\n\\xff\\xfe 3\n");
    node.ends_with(0, &format!("verify {spec}"));
    std::fs::write(&file, b"a\n\nb\n").unwrap();
    let (_, err) = node.ends_with(2, &format!("verify {spec}"));
    assert!(err.contains("lines.txt") && err.contains('2'), "an empty line has no key: {err}");
}

#[test]
fn a_failed_load_leaves_no_table() {
    let node = Node::start(8 << 20);
    let lines = node.directory.path().join("empty_line.txt");
    std::fs::write(&lines, b"a\n\nb\n").unwrap();
    for line in [
        "load sosd:/no/such/file_uint64 --table t".to_owned(),
        format!("load lines:{} --table t", lines.display()),
        "load ycsb:100 --key-bytes 12 --table t".to_owned(),
        "load uniform:1M --table t".to_owned(),
        "load words --slot-bytes 9 --table t".to_owned(),
        "create --value-bytes 17MiB --table t".to_owned(),
    ] {
        node.ends_with(2, &line);
        let tables = node.json(0, "tables --json");
        assert_eq!(tables[0]["tables"].as_array().unwrap().len(), 1, "{line}");
    }
}

#[test]
fn lines_are_loaded_from_standard_input() {
    use std::io::Write;
    let node = Node::start_for::<ByteKeys>(8 << 20);
    let mut child = command()
        .args(["--url", &node.url, "load", "lines:-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"pear\napple\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(node.ends_with(0, "scan").0, "apple 0\npear 1\n");
    let xz = node.directory.path().join("lines.xz");
    std::fs::write(&xz, b"\xfd7zXZ\0").unwrap();
    let (_, err) = node.ends_with(2, &format!("load lines:{}", xz.display()));
    assert!(err.contains("xz -dc") && err.contains("lines:-"), "{err}");
}

#[test]
fn groups_of_every_form_are_made_and_told() {
    let node = Node::start(64 << 20);
    let groups = [("plain", "plain groups of 10 slots"), ("seeded", "seeded groups of 10 slots")];
    let pilots = [("pilots", 32), ("pilots:16", 16), ("pilots:64", 64)];
    let pilots = pilots.map(|(form, slots)| {
        (form, format!("pilots that lead to one slot a READ, in blocks of {slots} slots"))
    });
    for (form, told) in groups.map(|(form, told)| (form, told.to_owned())).into_iter().chain(pilots) {
        let table = form.replace(':', "-");
        node.ends_with(0, &format!("load uniform:5K --table {table} --groups={form}"));
        let (stats, _) = node.ends_with(0, &format!("stats --table {table}"));
        assert!(stats.contains(&told), "{stats}");
        let (json, _) = node.ends_with(0, &format!("--json stats --table {table}"));
        let stats: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(stats["table"]["group_form"], form, "{stats}");
        node.ends_with(0, &format!("verify uniform:5K --table {table}"));
    }
    node.ends_with(0, "load uniform:5K --table long --value-bytes 128 --groups");
    let (json, _) = node.ends_with(0, "--json stats --table long");
    let stats: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(stats["table"]["group_form"], "pilots", "what suits long slots: {stats}");
    let (_, error) = node.ends_with(2, "load uniform:5K --table other --value-bytes 128 --groups=plain");
    assert!(error.contains("--groups=pilots"), "{error}");
    let (_, error) = node.ends_with(2, "load uniform:5K --table other --groups=trees");
    assert!(error.contains("pilots:SLOTS with 8 to 64 slots to a block, or none"), "{error}");
}

#[test]
fn parameters_are_found_for_keys_fabric_and_budget_and_said_why() {
    let node = Node::start(64 << 20);
    let load = |options: &str| {
        let (json, _) = node.ends_with(0, &format!("--json load {options}"));
        serde_json::from_str::<Value>(&json).unwrap()
    };
    let tuned = load("fb:20K --table rdma --tune auto --tune-for rdma");
    let chosen = &tuned["tuned"]["chosen"];
    for field in ["group_form", "epsilon", "fill", "fingerprint_bits"] {
        assert_eq!(tuned[field], chosen[field], "{field}: {tuned}");
    }
    assert!(chosen["group_form"].is_string() && chosen["round_trips"].as_f64().unwrap() < 1.1, "{chosen}");
    assert!(tuned["tuned"]["considered"].as_array().unwrap().len() > 10, "{tuned}");
    let (stats, _) = node.ends_with(0, "stats --table rdma");
    let why = [
        "chosen      for round trips of 2 us and 0.08 ns a byte, 0.1 inserts a key,\n",
        "            no bound on a compute node's memory\n            a lookup takes 1.0",
        " would take ",
    ];
    assert!(why.iter().all(|line| stats.contains(line)), "{stats}");
    let (stats, _) = node.ends_with(0, "--json stats --table rdma");
    let stats = serde_json::from_str::<Value>(&stats).unwrap();
    let why = &stats["table"]["chosen_for"];
    assert_eq!((&why["round_trip_us"], &why["budget_bytes"]), (&2.0.into(), &Value::Null), "{why}");
    let times = ["round_trips", "bytes"].map(|field| why[field].as_f64().unwrap());
    assert!(times[0] < 1.1 && times[1] > 0.0 && why["best_other"]["times"].as_f64().unwrap() > 0.9, "{why}");
    node.ends_with(0, "verify fb:20K --table rdma");
    // Memory of this machine, which is what the URL names.
    let tuned = load("fb:20K --table shm --tune auto");
    assert!(tuned["group_form"].is_null(), "{tuned}");
    let tuned = load("fb:20K --table forced --tune auto --tune-for rdma --groups=seeded --epsilon 64");
    assert_eq!((&tuned["group_form"], &tuned["epsilon"]), (&"seeded".into(), &64.into()), "{tuned}");
    let (out, _) = node.ends_with(0, "load words:2K --table words --tune auto --tune-for tcp");
    assert!(out.contains("tuned") && out.contains("round trips"), "{out}");
    let (out, _) = node.ends_with(0, "create --table like --tune auto --tune-for rdma --like fb:20K");
    let rows: Vec<&str> = out.lines().collect();
    assert!(rows[0].starts_with("tuned       groups ") && rows.len() > 5, "{out}");
    let is_short =
        |row: &&str| row.len() <= 92 && (row.starts_with("tuned ") || row.starts_with("            "));
    assert!(rows.iter().all(is_short), "{out}");
    assert!(
        out.contains("            a compute node keeps ") && out.contains(" times the bytes kept"),
        "{out}"
    );
    for (line, remedy) in [
        ("load fb:20K --table none --tune auto --tune-budget 10", "give it more"),
        ("load fb:20K --table none --tune auto --tune-growth=-1", "such as 0.1"),
        ("load fb:20K --table none --tune-budget 10MiB", "--tune"),
        ("load fb:20K --table rdma --tune auto", "--tune"),
        ("create --table none --tune auto", "--like fb:1M"),
        ("create --table none --tune auto --like words", "keys"),
        ("load fb:20K --table none --value-bytes 100 --groups=plain --tune auto", "64 bytes"),
    ] {
        let (_, error) = node.ends_with(2, line);
        assert!(error.contains(remedy), "{line}: {error}");
    }
    node.ends_with(2, "stats --table none");
}
