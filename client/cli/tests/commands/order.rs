//! Keys in order: neighbours, ends, ranges, counts.

use std::process::Stdio;

use serde_json::Value;

use crate::{Node, command, text};

#[test]
fn ranges_are_asked_for_their_neighbours_ends_and_counts() {
    let node = Node::start(8 << 20);
    assert_eq!(node.ends_with(1, "floor 1").1, "there is no key at or below 1\n");
    node.ends_with(0, "create");
    assert_eq!(node.ends_with(1, "first").1, "the table is empty\n");
    assert_eq!(node.ends_with(1, "floor 7").1, "there is no key at or below 7\n");
    for key in [10, 20, 30, 40] {
        node.ends_with(0, &format!("insert {key} {}", key * 2));
    }
    assert_eq!(node.ends_with(0, "floor 25").0, "20 40\n");
    assert_eq!(node.ends_with(0, "floor 20").0, "20 40\n");
    assert_eq!(node.ends_with(0, "ceiling 0x15").0, "30 60\n");
    assert_eq!(
        node.ends_with(0, "floor 18446744073709551615 10").0,
        "18446744073709551615 40 80\n10 10 20\n"
    );
    let (out, err) = node.ends_with(1, "ceiling 41 40");
    assert_eq!((&out[..], &err[..]), ("40 40 80\n", "there is no key at or above 41\n"));
    assert_eq!(node.ends_with(0, "first").0, "10 20\n");
    assert_eq!(node.ends_with(0, "last").0, "40 80\n");
    assert_eq!(node.ends_with(0, "count").0, "4\n");
    assert_eq!(node.ends_with(0, "count --from 10 --to 40").0, "3\n");
    assert_eq!(node.ends_with(0, "scan --reverse --limit 2").0, "40 80\n30 60\n");
    assert_eq!(node.ends_with(0, "scan 30 --reverse --limit 2").0, "30 60\n20 40\n");
    assert_eq!(node.ends_with(0, "scan --from 10 --to 30 --reverse").0, "20 40\n10 20\n");
    assert_eq!(node.ends_with(0, "scan --keys-only --from 20 --to 40").0, "20\n30\n");
    assert_eq!(node.ends_with(0, "scan --keys-only --from 20 --limit 1").0, "20\n");
    assert_eq!(node.ends_with(0, "scan --keys-only --reverse --limit 2").0, "40\n30\n");
    assert_eq!(node.json(0, "scan --keys-only --json 40"), serde_json::json!([{ "key": 40 }]));
    assert!(node.ends_with(2, "scan 30 --to 40 --reverse").1.contains("--from and --to"));
    let floors = node.json(1, "floor 5 25 --json");
    assert_eq!((&floors[0]["asked"], &floors[0]["key"]), (&5.into(), &Value::Null));
    assert_eq!((&floors[1]["key"], &floors[1]["value"]), (&20.into(), &40.into()));
    assert_eq!(node.json(0, "last --json")["key"], 40);
    let count = node.json(0, "count --to 40 --json");
    assert_eq!((&count["count"], &count["round_trips"]), (&3.into(), &1.into()));
}

#[test]
fn the_range_of_an_address_is_one_floor_away() {
    let node = Node::start(32 << 20);
    node.ends_with(0, "load ipv4");
    // 1.1.1.1 lies in the range that begins at 1.1.1.0.
    let floor = node.json(0, "floor 0x01010101 --hex --json");
    assert_eq!((&floor[0]["key"], &floor[0]["round_trips"]), (&"0x1010100".into(), &1.into()));
    assert_eq!(node.ends_with(0, "count").0, "385602\n");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:50K");
    let mut child = command()
        .args(["--url", &node.url, "scan", "0", "--limit", "50000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Whether the reader of a pipe has seen enough, or nothing, the outcome is the same.
#[test]
fn a_closed_pipe_changes_no_exit_code() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:50K");
    let many = (0..20_000).map(|key| key.to_string()).collect::<Vec<_>>().join(" ");
    for (code, line) in [
        (0, "get 5 6"),
        (1, "get 5 50000"),
        (1, "insert 5 5 --json"),
        (0, &format!("get {many}")),
        (1, &format!("get {many} 50000")),
        (1, "del 5 50000 --json"),
        (2, "get nothing"),
        (0, "token new"),
        (0, "token new --json"),
    ] {
        let mut child = command()
            .args(["--url", &node.url])
            .args(line.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{}", &line[..line.len().min(40)]);
    }
}

#[test]
fn output_that_cannot_be_written_is_said_to_be_that() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:50");
    for line in ["get 5", "export", "stats", "completions bash"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command()
            .args(["--url", &node.url])
            .args(line.split(' '))
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {err}");
        assert!(err.starts_with("error: writing the standard output: No space left"), "{line}: {err}");
    }
}

#[test]
fn u64_tables_take_ranges_and_values_of_any_length_too() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create --value-bytes vary --slot-bytes 20");
    node.ends_with(0, "put 7 seven");
    node.ends_with(0, "put 0x10 sixteen");
    assert_eq!(node.ends_with(0, "scan --from 1 --to 16").0, "7 seven\n");
    assert_eq!(node.ends_with(0, "scan --hex").0, "0x7 seven\n0x10 sixteen\n");
    assert_eq!(node.ends_with(0, "get 10 --hex").0, "sixteen");
    for (line, parts) in [
        ("scan --prefix 1", &["prefixes", "--from"][..]),
        ("get seven", &["seven", "0x2a"]),
        ("load words", &["kind u64, not bytes", "--table"]),
        ("put 1 thirteen_bytes", &["room for 20"]),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
}
