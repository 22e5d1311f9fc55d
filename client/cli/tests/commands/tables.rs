//! Tables are made, listed, dropped, and outlive their memory node.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fpcache::key_space::ByteKeys;
use fpcache_fabric::shm::ShmAddress;
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig};
use serde_json::{Value, json};

use crate::{Node, command, text};

#[test]
fn tables_are_made_listed_and_dropped_by_name() {
    let node = Node::start(32 << 20);
    node.ends_with(0, "load sequential:1K --table numbers --region-bytes 4MiB");
    node.ends_with(0, "load words:1K --table words");
    node.ends_with(0, "create --table empty --keys bytes");
    node.ends_with(0, "create");
    node.ends_with(0, "put 7 70");
    assert_eq!(node.ends_with(0, "get 7 --table numbers").0, "7\n");
    assert_eq!(node.ends_with(0, "get 7").0, "70\n");
    assert_eq!(node.ends_with(0, "--table words scan --limit 2").0.lines().count(), 2);
    let verified = node.ends_with(0, "verify words:1K --table words").0;
    assert!(verified.contains("every value is right"), "{verified}");

    let (out, _) = node.ends_with(0, "tables");
    for part in ["default", "numbers", "words", "empty", "1.00 K", "4.00 MiB", "of 32.0 MiB"] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let list = node.json(0, "tables --json");
    let tables = list[0]["tables"].as_array().unwrap();
    let names: Vec<&str> = tables.iter().map(|table| table["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "empty", "numbers", "words"]);
    assert_eq!((&tables[2]["keys"], &tables[2]["region_bytes"]), (&1000.into(), &(4 << 20).into()));
    assert_eq!((&tables[3]["key_kind"], &tables[2]["key_kind"]), (&"bytes".into(), &"u64".into()));

    for (line, has) in [
        ("create --table empty --region-bytes 8MiB", "32.0 MiB"),
        ("load sequential:1K --table numbers --region-bytes 8MiB", "4.00 MiB"),
        ("load sequential:1K --table numbers --region-bytes 64KiB", "4.00 MiB"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(has) && err.contains("omit --region-bytes"), "{line}: {err}");
    }
    node.ends_with(0, "load sequential:1K --table numbers --region-bytes 4MiB");

    let (_, err) = node.ends_with(2, "drop numbers");
    assert!(err.contains("1000 keys") && err.contains("--yes"), "{err}");
    let dropped = node.json(0, "drop numbers --yes --json");
    assert_eq!((&dropped["dropped"], &dropped["keys"]), (&"numbers".into(), &1000.into()));
    for (line, parts) in [
        (
            "get 7 --table numbers",
            &["no table `numbers`", "`default`, `empty`, `words`", "create --table numbers"][..],
        ),
        ("drop numbers --yes", &["no table `numbers`", "`words`"]),
        ("get 7 --table a/b", &["a/b", "1 to 64 of A-Z"]),
        ("load ipv4 --table words", &["kind bytes, not u64"]),
        ("create --table other --fill 7", &["fill"]),
        ("create --table other --region-bytes 1KiB", &["1.0 KiB", "64.0 KiB"]),
        ("create --table other --region-bytes 1GiB", &["1.0 GiB", "32.0 MiB", "--capacity"]),
    ] {
        let (out, err) = node.ends_with(2, line);
        assert!(out.is_empty() && parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    assert_eq!(node.json(0, "tables --json")[0]["tables"].as_array().unwrap().len(), 3, "nothing half made");
    // The name is free again, for other keys too.
    node.ends_with(0, "load words:100 --table numbers");
    let (_, err) = node.ends_with(2, "drop numbers words");
    assert!(err.contains("`numbers`") && err.contains("--yes"), "{err}");
    let dropped = node.json(0, "drop numbers words --yes --json");
    assert_eq!((&dropped[0]["dropped"], &dropped[1]["dropped"]), (&"numbers".into(), &"words".into()));
    // Those before the one that is not there were dropped, and nothing said so.
    let (out, err) = node.ends_with(2, "drop empty words default --yes --json");
    assert!(out.is_empty() && err.contains("no table `words`"), "{out}{err}");
    assert_eq!(node.json(0, "tables --json")[0]["tables"].as_array().unwrap().len(), 2, "none was dropped");
    let told = node.json(2, "drop empty empty --yes --json");
    assert_eq!(told, json!([{ "dropped": "empty", "keys": 0, "used_bytes": told[0]["used_bytes"] }]));
}

#[test]
fn a_fresh_memory_node_is_read_and_written_at_once() {
    let node = Node::start(8 << 20);
    assert_eq!(node.ends_with(1, "get 1").1, "key 1 is absent\n");
    assert_eq!(node.ends_with(0, "scan").0, "");
    assert_eq!(node.ends_with(0, "count").0, "0\n");
    assert!(node.ends_with(1, "verify sequential:100").0.contains("100 missing"));
    node.ends_with(0, "put 1 10");
    assert_eq!(node.ends_with(0, "get 1").0, "10\n");
    // Made twice, it is there once, and loaded into.
    let node = Node::start(8 << 20);
    node.ends_with(0, "create");
    node.ends_with(0, "create");
    node.ends_with(0, "load sequential:100");
    assert_eq!(node.ends_with(0, "count").0, "100\n");
}

#[test]
fn keys_of_one_length_take_no_field_for_it_unless_others_are_to_come() {
    for (line, key_bytes, slot_bytes) in [
        ("load ycsb:5K --key-bytes 40 --value-bytes 100", Value::from(40), 140),
        ("load binary:5K --key-bytes 9", 9.into(), 17),
        ("load words:5K --key-bytes vary --slot-bytes 500", Value::Null, 500),
        ("load paths:2K --slot-bytes 5000", Value::Null, 5000),
    ] {
        let node = Node::start_for::<ByteKeys>(64 << 20);
        let load = node.json(0, &format!("{line} --json"));
        assert_eq!((&load["key_bytes"], &load["slot_bytes"]), (&key_bytes, &slot_bytes.into()), "{line}");
        let verify = line.replace("load", "verify").replace(" --value-bytes 100", "");
        node.ends_with(0, verify.split(" --slot").next().unwrap());
    }
    let node = Node::start_for::<ByteKeys>(8 << 20);
    for (line, part) in [
        ("load ycsb:100 --key-bytes 12", "23"),
        ("load paths:100 --slot-bytes 20", "or more"),
        ("load words:100 --key-bytes 5", "5"),
        ("load words:100 --value-bytes some", "vary"),
        ("load ipv4 --slot-bytes 5", "omit --slot-bytes"),
        ("load ipv4", "kind bytes, not u64"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(part), "{line}: {err}");
    }
    assert_eq!(node.json(0, "stats --json")["keys"], 0, "nothing half made");
    let (_, err) = Node::start(8 << 20).ends_with(2, "load ipv4 --key-bytes 5");
    assert!(err.contains("omit --key-bytes"), "{err}");
}

const DATA: &str = "FPCACHE_CLI_TEST_DATA";

/// Not a test of its own: the memory node that the next test starts and kills.
#[test]
fn played_by_another_process() {
    let (Ok(folder), Ok(url)) = (std::env::var(DATA), std::env::var("FPCACHE_URL")) else { return };
    let folders = Folders { data: folder.clone().into(), region: folder.into() };
    let config = DaemonConfig {
        capacity: 8 << 20,
        exit_with_parent: Some(std::os::unix::process::parent_id()),
        durable: Some(DurableConfig { folders, sync: SyncPolicy::Always }),
        ..DaemonConfig::at(url.parse().unwrap())
    };
    Daemon::open(&config).unwrap().serve().unwrap();
}

#[test]
fn what_was_put_into_a_durable_memory_node_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let url = ShmAddress::at_path(folder.path().join("node.sock")).unwrap().to_string();
    let start = || {
        let node = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tables::played_by_another_process"])
            .env(DATA, &data)
            .env("FPCACHE_URL", &url)
            .stdout(Stdio::null())
            .spawn();
        let is_there = || command().env("FPCACHE_URL", &url).arg("stats").output().unwrap().status.success();
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not listen");
        }
        node.unwrap()
    };
    let run = |code, line: &str| {
        let output = command().env("FPCACHE_URL", &url).args(line.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        text(&output.stdout)
    };
    let kill = |mut node: std::process::Child| {
        node.kill().unwrap();
        node.wait().unwrap();
    };
    let node = start();
    for (code, line) in
        [(0, "create"), (0, "put 7 41"), (0, "put 7 42"), (0, "insert 8 43"), (1, "insert 8 45")]
    {
        run(code, line);
    }
    run(0, "insert 9 44");
    run(0, "del 9");
    kill(node);
    // With the memory that it left, and without.
    for file in [None, Some("region.fpr"), Some("notes.fpn")] {
        file.into_iter()
            .for_each(|file| std::fs::remove_file(data.join("tables/default").join(file)).unwrap());
        let node = start();
        assert_eq!(run(0, "scan 0"), "7 42\n8 43\n");
        run(1, "get 9");
        kill(node);
    }
}
