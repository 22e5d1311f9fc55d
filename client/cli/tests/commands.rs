//! The commands as a user types them, against a memory node of this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{HugePages, Serving, SharedMemory};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig, MemoryNode};
use serde_json::Value;
use tempfile::TempDir;

struct Node {
    directory: TempDir,
    url: String,
    serving: Option<Serving>,
}

impl Node {
    fn start(capacity: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let (region, fd) = SharedMemory::create_memfd("test", capacity, HugePages::No).unwrap();
        let region = Arc::new(region);
        let node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
        let listener = Listener::bind(&address, region, fd, ListenOptions::default()).unwrap();
        Self { directory, url: address.to_string(), serving: Some(listener.spawn(node).unwrap()) }
    }

    /// Runs a command with this node's URL in the environment.
    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        command().env("FPCACHE_URL", &self.url).args(arguments).output().unwrap()
    }

    /// Runs a command line that must end with this exit code.
    #[track_caller]
    fn ends_with(&self, code: i32, line: &str) -> (String, String) {
        let output = self.run(line.split_whitespace());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
        (out, err)
    }

    #[track_caller]
    fn json(&self, code: i32, line: &str) -> Value {
        let (out, _) = self.ends_with(code, line);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{line} gave {out}: {e}"))
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpcache-cli"));
    command.env_remove("FPCACHE_DATA").env_remove("FPCACHE_URL");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

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
    assert_eq!(node.ends_with(0, "get 65 --format text").0, "A\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\n");
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

const DATA: &str = "FPCACHE_CLI_TEST_DATA";

/// Not a test of its own: the memory node that the next test starts and kills.
#[test]
fn played_by_another_process() {
    let (Ok(folder), Ok(url)) = (std::env::var(DATA), std::env::var("FPCACHE_URL")) else { return };
    let folders = Folders { data: folder.clone().into(), region: folder.into() };
    let config = DaemonConfig {
        capacity: 8 << 20,
        exit_with_parent: true,
        durable: Some(DurableConfig { folders, sync: SyncPolicy::Always }),
        ..DaemonConfig::at(url.parse().unwrap())
    };
    Daemon::start(&config).unwrap().serve().unwrap();
}

#[test]
fn what_was_put_into_a_durable_memory_node_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let url = ShmAddress::at_path(folder.path().join("node.sock")).unwrap().to_string();
    let start = || {
        let node = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "played_by_another_process"])
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
        file.into_iter().for_each(|file| std::fs::remove_file(data.join(file)).unwrap());
        let node = start();
        assert_eq!(run(0, "scan 0"), "7 42\n8 43\n");
        run(1, "get 9");
        kill(node);
    }
}

#[test]
fn an_absent_key_is_said_and_ends_with_one() {
    let node = Node::start(1 << 20);
    node.ends_with(0, "load sequential:100");
    assert_eq!(node.ends_with(1, "get 100"), (String::new(), "key 100 is absent\n".into()));
    let (out, err) = node.ends_with(1, "get 5 100 6");
    assert_eq!((out.as_str(), err.as_str()), ("5 5\n6 6\n", "key 100 is absent\n"));
}

#[test]
fn json_beside_every_output() {
    let node = Node::start(4 << 20);
    let empty = node.json(0, "stats --json");
    assert_eq!((&empty["keys"], &empty["table"]), (&0.into(), &Value::Null));

    let load = node.json(0, "--json load uniform:10K --value-bytes 20 --fill 0.7 --seed 5");
    assert_eq!((&load["dataset"], &load["keys"]), (&"uniform:10K".into(), &10_000.into()));
    assert_eq!((&load["value_bytes"], &load["fill"]), (&20.into(), &0.7.into()));
    assert!(load["bytes_per_key"].as_f64().unwrap() > 20.0 && load["load_s"].as_f64().unwrap() > 0.0);
    assert_eq!(load["dataset_source"], "generated");

    let scan = node.json(0, "scan 0 --limit 3 --json");
    let records = scan.as_array().unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!(records[2]["value"], "0200000000000000020000000000000002000000", "longer than an integer");

    let key = records[1]["key"].as_u64().unwrap();
    let get = node.json(1, &format!("get {key} {} --json", key + 1));
    assert_eq!(
        (&get[0]["key"], &get[0]["version"], &get[0]["value"]),
        (&key.into(), &1.into(), &records[1]["value"])
    );
    assert!(get[0]["round_trips"].as_u64().unwrap() >= 1 && get[0]["bytes"].as_u64().unwrap() > 0);
    assert_eq!((&get[1]["value"], &get[1]["version"]), (&Value::Null, &Value::Null));

    let stats = node.json(0, "stats --json");
    assert_eq!((&stats["keys"], &stats["table"]["value_bytes"]), (&10_000.into(), &20.into()));

    let verify = node.json(0, "verify uniform:10K --seed 5 --json");
    assert_eq!(
        (&verify["missing"], &verify["wrong"], &verify["keys"]),
        (&0.into(), &0.into(), &10_000.into())
    );
    assert_eq!(node.json(0, "scan 18446744073709551615 --json"), Value::Array(Vec::new()));
}

#[test]
fn verify_counts_what_is_missing_and_what_is_wrong() {
    let node = Node::start(4 << 20);
    node.ends_with(0, "load sequential:1000");
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
fn failures_end_with_two_and_name_cause_and_remedy() {
    let mut node = Node::start(64 << 10);
    for (line, parts) in [
        ("get 1", &["no data", "load"][..]),
        ("verify ipv4", &["no data", "load"]),
        ("load uniform:100K", &["64.0 KiB", "--capacity"]),
        ("load sosd:/no/such/file_uint64", &["/no/such/file_uint64", "check the path"]),
        ("load fb:16Q", &["fb:16Q", "known data sets"]),
        ("load ipv4 --epsilon 9999", &["epsilon 9999"]),
        ("load ipv4 --fill 2", &["fill 2"]),
        ("load ipv4 --fingerprint-bits 12", &["12", "16, 32"]),
        ("get", &["KEY"]),
        ("get seven", &["seven", "0x2a"]),
        ("get 1 --format octal", &["octal", "hex"]),
        ("stats --deadline 5", &["100ms"]),
        ("--url tcp://x:1 stats", &["tcp", "shm://fpcache"]),
        ("--url shm://nobody-here-at-all stats", &["nobody-here-at-all", "start one"]),
        ("fly", &["fly"]),
    ] {
        let (out, err) = node.ends_with(2, line);
        assert_eq!(out, "", "{line}");
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    node.ends_with(0, "load sequential:50 --value-bytes 20");
    let (_, err) = node.ends_with(2, "load sequential:50 --fill 0.5");
    assert!(err.contains("already holds a table") && err.contains("restart"), "{err}");
    let (_, err) = node.ends_with(2, "get 5 --format int");
    assert!(err.contains("20 bytes") && err.contains("--format hex"), "{err}");
    drop(node.serving.take());
    let (_, err) = node.ends_with(2, "stats");
    assert!(err.contains("no memory node at") && err.contains("start one"), "{err}");
}

#[test]
fn records_are_made_changed_and_removed() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create");
    assert!(node.ends_with(0, "stats").0.contains("0 keys each"));
    assert_eq!(node.ends_with(1, "get 7").1, "key 7 is absent\n");
    assert_eq!(node.ends_with(0, "insert 7 70"), (String::new(), String::new()));
    assert_eq!(node.ends_with(1, "insert 7 71").1, "key 7 is there already\n");
    assert_eq!(node.ends_with(1, "update 8 80").1, "key 8 is absent\n");
    node.ends_with(0, "put 8 80");
    node.ends_with(0, "put 8 0x51");
    node.ends_with(0, "update 7 c800000000000000 --format hex");
    assert_eq!(node.ends_with(0, "scan 0").0, "7 200\n8 81\n");

    let token = |key| node.json(0, &format!("get {key} --json"))[0]["token"].as_str().unwrap().to_owned();
    let seen = token(7);
    node.ends_with(0, &format!("update 7 201 --if-token {seen}"));
    let (_, err) = node.ends_with(1, &format!("update 7 202 --if-token {seen}"));
    assert_eq!(err, format!("key 7 has changed: its token is {} now\n", token(7)));
    assert_eq!(node.ends_with(1, &format!("update 9 1 --if-token {seen}")).1, "key 9 is absent\n");
    assert_eq!(node.ends_with(0, "get 7").0, "201\n");

    let deleted = node.json(1, "del 7 9 8 --json");
    let done: Vec<bool> = deleted.as_array().unwrap().iter().map(|d| d["done"].as_bool().unwrap()).collect();
    assert_eq!(done, [true, false, true]);
    assert_eq!(node.ends_with(1, "del 7").1, "key 7 is absent\n");
    assert_eq!(node.json(0, "insert 7 7 --json")["done"], true);
    assert_eq!(node.json(1, "insert 7 7 --json")["done"], false);
}

#[test]
fn a_data_set_is_added_to_a_table_that_is_there() {
    let node = Node::start(16 << 20);
    node.ends_with(0, "load sequential:3000 --value-bytes 12");
    let (out, _) = node.ends_with(0, "load sequential:5K");
    assert!(out.contains("5000: 2000 new, 3000 got another value"), "{out}");
    node.ends_with(0, "verify sequential:5K");
    let added = node.json(0, "load uniform:1000 --seed 3 --json");
    assert_eq!(
        (&added["new"], &added["replaced"], &added["value_bytes"]),
        (&1000.into(), &0.into(), &12.into())
    );
    let stats = node.json(0, "stats --json");
    assert_eq!((&stats["keys"], &stats["inserts"]), (&6000.into(), &3000.into()));
}

#[test]
fn values_that_do_not_fit_the_table_are_refused() {
    let node = Node::start(1 << 20);
    let (_, err) = node.ends_with(2, "put 1 1");
    assert!(err.contains("no data") || err.contains("create"), "{err}");
    node.ends_with(0, "create --value-bytes 4");
    for (line, part) in [
        ("put 1 4294967296", "does not fit"),
        ("insert 1 abc --format text", "3 bytes"),
        ("update 1 0102 --format hex", "2 bytes"),
        ("put 1 one", "one"),
        ("create", "already holds"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(part), "{line}: {err}");
    }
}

#[test]
fn help_shows_examples() {
    for command_line in
        ["", "create", "load", "get", "put", "insert", "update", "del", "scan", "stats", "verify"]
    {
        let line = format!("{command_line} --help");
        let line = line.trim();
        let output = command().args(line.split(' ')).output().unwrap();
        assert!(output.status.success());
        let out = text(&output.stdout);
        assert!(out.contains("Examples:") && out.contains("\n  fpcache-cli "), "{line}: {out}");
    }
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
