//! The commands as a user types them, against a memory node of this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, U64Keys};
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{HugePages, Serving};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig, Daemon, DaemonConfig, DurableConfig};
use serde_json::Value;
use tempfile::TempDir;

struct Node {
    directory: TempDir,
    url: String,
    serving: Option<Serving>,
}

impl Node {
    /// For u64 keys.
    fn start(capacity: u64) -> Self {
        Self::start_for::<U64Keys>(capacity)
    }

    fn start_for<K: BuildKeys>(capacity: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let config = CatalogueConfig { capacity, huge_pages: HugePages::No, durable: None };
        let mut catalogue = Catalogue::open(&config).unwrap();
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
        catalogue.create(TableName::default(), kind, None).unwrap();
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        Self { directory, url: address.to_string(), serving: Some(listener.spawn(catalogue).unwrap()) }
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
    command.env_remove("FPCACHE_DATA").env_remove("FPCACHE_URL").env_remove("FPCACHE_TABLE");
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
    Daemon::open(&config).unwrap().serve().unwrap();
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
        file.into_iter()
            .for_each(|file| std::fs::remove_file(data.join("tables/default").join(file)).unwrap());
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
        ("load uniform:100K", &["64.0 KiB", "--capacity"][..]),
        ("load sosd:/no/such/file_uint64", &["/no/such/file_uint64", "check the path"]),
        ("load fb:16Q", &["fb:16Q", "known data sets"]),
        ("load ipv4 --epsilon 9999", &["epsilon 9999"]),
        ("load ipv4 --fill 2", &["fill 2"]),
        ("load ipv4 --fingerprint-bits 12", &["12", "16, 32"]),
        ("get", &["KEY"]),
        ("get seven", &["seven", "0x2a"]),
        ("get 1 --format octal", &["octal", "hex"]),
        ("stats --deadline 5", &["100ms"]),
        ("--url redis://x:1 stats", &["redis", "shm://fpcache", "tcp://HOST:PORT"]),
        ("--url shm://nobody-here-at-all stats", &["nobody-here-at-all", "start one"]),
        ("fly", &["fly"]),
    ] {
        let (out, err) = node.ends_with(2, line);
        assert_eq!(out, "", "{line}");
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    node.ends_with(0, "load sequential:50 --value-bytes 20");
    let (_, err) = node.ends_with(2, "load sequential:50 --fill 0.5");
    assert!(err.contains("already holds 50 records") && err.contains("drop it"), "{err}");
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
    node.ends_with(0, "create --value-bytes 4");
    for (line, part) in [
        ("put 1 4294967296", "does not fit"),
        ("insert 1 a --format text", "1 byte,"),
        ("update 1 0102 --format hex", "2 bytes"),
        ("put 1 one", "--format text"),
        ("create", "other parameters"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(part), "{line}: {err}");
    }
}

#[test]
fn help_shows_examples() {
    for command_line in [
        "", "create", "load", "get", "put", "insert", "update", "del", "scan", "floor", "ceiling", "first",
        "last", "count", "stats", "verify", "tables", "drop",
    ] {
        let line = format!("{command_line} --help");
        let line = line.trim();
        let output = command().args(line.split(' ')).output().unwrap();
        assert!(output.status.success());
        let out = text(&output.stdout);
        assert!(out.contains("Examples:") && out.contains("\n  fpcache-cli "), "{line}: {out}");
    }
}

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

#[test]
fn byte_strings_are_written_and_shown_as_text_with_escapes() {
    let node = Node::start_for::<ByteKeys>(8 << 20);
    let (_, err) = node.ends_with(2, "create --keys u64");
    assert!(err.contains("keys of the kind bytes, not u64") && err.contains("--table"), "{err}");
    node.ends_with(0, "create");
    let records =
        [("user1", 1), ("user2", 2), (r"a\x20b", 3), (r"a\n", 4), ("grün", 5), (r"\xff\0", 6), ("a", 7)];
    for (key, value) in records {
        node.ends_with(0, &format!("insert {key} {value}"));
    }
    let all = "a 7\na\\n 4\na\\x20b 3\ngrün 5\nuser1 1\nuser2 2\n\\xff\\x00 6\n";
    assert_eq!(node.ends_with(0, "scan").0, all);
    assert_eq!(node.ends_with(0, "scan b --limit 2").0, "grün 5\nuser1 1\n");
    assert_eq!(node.ends_with(0, r"scan --from a\x01 --to user2").0.lines().count(), 4);
    assert_eq!(node.ends_with(0, "scan --prefix user").0, "user1 1\nuser2 2\n");
    assert_eq!(node.ends_with(0, "scan --prefix 757365 --hex --limit 1").0, "7573657231 1\n");
    assert_eq!(node.ends_with(0, "get user2").0, "2\n");
    assert_eq!(node.ends_with(0, r"get user2 a\x20b").0, "user2 2\na\\x20b 3\n");
    assert_eq!(node.ends_with(0, "get ff00 --hex").0, "6\n");
    assert_eq!(node.ends_with(1, "get user3").1, "key user3 is absent\n");
    assert_eq!(node.ends_with(1, "insert user1 9").1, "key user1 is there already\n");
    assert_eq!(node.ends_with(1, "update nobody 9").1, "key nobody is absent\n");
    let token = node.json(0, "get user1 --json")[0]["token"].as_str().unwrap().to_owned();
    node.ends_with(0, &format!("update user1 11 --if-token {token}"));
    node.ends_with(1, &format!("update user1 12 --if-token {token}"));
    let deleted = node.json(1, r"del a a\n a --json");
    assert_eq!(deleted[1]["key"], r"a\n");
    assert_eq!((&deleted[0]["done"], &deleted[2]["done"]), (&true.into(), &false.into()));
    let scan = node.json(0, "scan --prefix user --json");
    assert_eq!((&scan[0]["key"], &scan[0]["value"]), (&"user1".into(), &11.into()));
}

#[test]
fn what_is_no_key_of_a_table_of_byte_strings_is_refused_or_absent() {
    let node = Node::start_for::<ByteKeys>(8 << 20);
    node.ends_with(0, "create --keys bytes");
    for (line, parts) in [
        (r"get a\q", &[r"a\q", r"\xNN"][..]),
        ("get xyz --hex", &["xyz", "two per byte"]),
        ("put key x --format text", &["1 byte,", "8"]),
        ("scan a --prefix b", &["--prefix"]),
        ("create --keys bytes --epsilon 8", &["other parameters"]),
        ("create --keys u64", &["kind bytes, not u64", "drop default"]),
        ("load ipv4", &["kind bytes, not u64", "--table"]),
        ("verify ipv4", &["`bytes`", "`u64`"]),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    let output = node.run(["put", "", "1"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("1 to 4096"), "{output:?}");
    assert_eq!(node.run(["get", ""]).status.code(), Some(1), "no table holds it");
}

#[test]
fn values_of_any_length_are_texts() {
    let node = Node::start_for::<ByteKeys>(4 << 20);
    node.ends_with(0, "create --keys bytes --value-bytes vary --slot-bytes 24");
    for (key, value) in [("short", ""), ("k", "a value of 20 bytes."), ("number", "42")] {
        assert!(node.run(["put", key, value]).status.success());
    }
    assert_eq!(node.ends_with(0, "scan").0, "k a value of 20 bytes.\nnumber 42\nshort \n");
    let output = node.run(["put", "too long", "more than 24 bytes with the key"]);
    assert!(output.status.success(), "outside its slot: {output:?}");
    let output = node.run(["put", "even longer", "more than 24 bytes with the key"]);
    assert!(text(&output.stderr).contains("room for 24"), "{output:?}");
    node.ends_with(0, r"del too\x20long");
    let table = &node.json(0, "stats --json")["table"];
    assert_eq!((&table["key_kind"], &table["slot_bytes"]), (&"bytes".into(), &24.into()));
    assert_eq!((&table["key_bytes"], &table["value_bytes"]), (&Value::Null, &Value::Null));
    let (out, _) = node.ends_with(0, "stats");
    assert!(out.contains("bytes keys of any length, values of any length, together at most 24"), "{out}");
}

#[test]
fn long_values_go_from_files_to_files() {
    let node = Node::start_for::<ByteKeys>(64 << 20);
    node.ends_with(0, "create --keys bytes --value-bytes vary:100");
    assert_eq!(node.json(0, "stats --json")["table"]["slot_bytes"], 164);
    let path = |name: &str| node.directory.path().join(name).into_os_string().into_string().unwrap();
    let (from, to) = (path("from"), path("to"));
    let value: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    std::fs::write(&from, &value).unwrap();
    let put = |kind: &str, path: &str| node.run([kind, "long", "--value-file", path]);
    let output = put("insert", &from);
    assert!(output.status.success(), "{output:?}");
    assert!(put("update", &from).status.success());
    assert!(put("put", &from).status.success());
    assert_eq!(put("insert", &from).status.code(), Some(1), "it is there already");
    assert!(node.run(["put", "short", "a text"]).status.success());
    assert!(node.run(["get", "long", "--output", &to]).status.success());
    assert!(std::fs::read(&to).unwrap() == value);
    let (scanned, _) = node.ends_with(0, "scan --limit 2 --format hex");
    let lines: Vec<&str> = scanned.lines().collect();
    assert_eq!((lines[0].len(), lines[1]), ("long ".len() + 6_000_000, "short 612074657874"));
    let versioned = node.json(0, "get long --json --format hex");
    let token = versioned[0]["token"].as_str().unwrap();
    node.ends_with(0, &format!("update long short --if-token {token}"));
    assert_eq!(node.ends_with(0, "get long").0, "short");

    std::fs::write(&from, vec![0; (16 << 20) + 1]).unwrap();
    for (arguments, part) in [
        (vec!["put", "long", "--value-file", &from], "16 MiB"),
        (vec!["put", "long", "--value-file", "/no/such/file"], "/no/such/file"),
        (vec!["put", "long", "text", "--value-file", &from], "--value-file"),
        (vec!["put", "long"], "VALUE"),
        (vec!["get", "long", "short", "--output", &to], "one key"),
        (vec!["create", "--value-bytes", "vary:some"], "vary:200"),
    ] {
        let output = node.run(&arguments);
        let err = text(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(part), "{arguments:?}: {err}");
    }
    assert_eq!(node.run(["get", "none", "--output", &to]).status.code(), Some(1));
    assert!(std::fs::read(&to).unwrap() == value, "left alone");
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
    let (out, _) = node.ends_with(1, "verify domains:100");
    assert!(out.contains("100 missing"), "{out}");
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
        ("load ipv4 --slot-bytes 5", "leave --slot-bytes away"),
        ("load ipv4", "kind bytes, not u64"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(part), "{line}: {err}");
    }
    assert_eq!(node.json(0, "stats --json")["keys"], 0, "nothing half made");
    let (_, err) = Node::start(8 << 20).ends_with(2, "load ipv4 --key-bytes 5");
    assert!(err.contains("leave --key-bytes away"), "{err}");
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
    let tables = list["tables"].as_array().unwrap();
    let names: Vec<&str> = tables.iter().map(|table| table["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "empty", "numbers", "words"]);
    assert_eq!((&tables[2]["keys"], &tables[2]["region_bytes"]), (&1000.into(), &(4 << 20).into()));
    assert_eq!((&tables[3]["key_kind"], &tables[2]["key_kind"]), (&"bytes".into(), &"u64".into()));

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
    assert_eq!(node.json(0, "tables --json")["tables"].as_array().unwrap().len(), 3, "nothing half made");
    // The name is free again, for other keys too.
    node.ends_with(0, "load words:100 --table numbers");
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
        assert_eq!(tables["tables"].as_array().unwrap().len(), 1, "{line}");
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
fn values_go_to_files_and_pipes_as_they_are() {
    let node = Node::start_for::<ByteKeys>(64 << 20);
    node.ends_with(0, "create --keys bytes --value-bytes vary");
    let value: Vec<u8> = (0..100_000u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    let from = node.directory.path().join("from");
    std::fs::write(&from, &value).unwrap();
    let from = from.to_str().unwrap();
    assert!(node.run(["put", "long", "--value-file", from]).status.success());
    for line in ["get long --output -", "get long"] {
        assert!(node.run(line.split(' ')).stdout == value, "{line}");
    }
    // As text if that was asked for, or beside others: UTF-8 as it is, other bytes with escapes.
    assert!(node.run(["put", "grün", "süß"]).status.success());
    assert_eq!(node.run(["get", "grün", "--format", "text"]).stdout, "süß\n".as_bytes());
    assert!(node.ends_with(0, "get long --format text").0.contains("\\x80"));
    let scanned = node.ends_with(0, "scan --limit 1").0;
    assert_eq!(scanned, "grün süß\n");
    // Integers stay numbers for scripts.
    let node = Node::start(8 << 20);
    node.ends_with(0, "put 7 70");
    assert_eq!(node.ends_with(0, "get 7").0, "70\n");
    assert_eq!(node.run(["get", "7", "--output", "-"]).stdout, 70u64.to_le_bytes());
    assert_eq!(node.json(0, "get 7 --json-strings")[0]["key"], "7");
    assert_eq!(node.json(0, "scan --json-strings")[0]["value"], "70");
    assert_eq!(node.json(0, "last --json-strings")["value"], "70");
}

#[test]
fn what_is_mistyped_is_told_with_what_was_meant() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:100");
    node.ends_with(0, "put 100 0");
    for (line, parts) in [
        ("put 7 hello", &["hello", "--format text"][..]),
        ("load ipv6", &["did you mean `ipv4`"]),
        ("scan --from 9 --to 5", &["from 9 to 5", "before it begins"]),
        ("scan 9 --to 5", &["from 9 to 5"]),
        ("count --from 9 --to 5", &["from 9 to 5"]),
        ("tables --table nosuch", &["no table `nosuch`", "`default`"]),
        ("create --table big --value-bytes 17MiB", &["17825792"]),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    assert_eq!(node.ends_with(0, "count --from 5 --to 5").0, "0\n");
    assert!(node.ends_with(0, "tables --table default").0.contains("default"));
    let only = command().env("FPCACHE_URL", &node.url).env("FPCACHE_TABLE", "nosuch").arg("tables").output();
    assert!(only.unwrap().status.success(), "the environment is for commands about one table");

    // What is there now counts, and the table is named.
    let (out, err) = node.ends_with(0, "verify sequential:100");
    assert!(err.contains("table `default`") && err.contains("holds 101 keys"), "{err}");
    assert!(out.contains("looked up in `default`"), "{out}");
}

#[test]
fn long_keys_are_not_shown_whole_and_one_is_no_plural() {
    let node = Node::start_for::<ByteKeys>(8 << 20);
    node.ends_with(0, "create --keys bytes --slot-bytes 100");
    let long = "k".repeat(4000);
    let (_, absent) = node.ends_with(1, &format!("get {long}"));
    let (_, too_long) = node.ends_with(2, &format!("put {long} 1"));
    let (_, far_too_long) = node.ends_with(2, &format!("put {} 1", "k".repeat(5000)));
    for err in [absent, too_long, far_too_long] {
        assert!(err.len() < 500, "{err}");
    }
    node.ends_with(0, "put one 1");
    let (_, err) = node.ends_with(2, "drop default");
    assert!(err.contains("has 1 key and "), "{err}");
}

#[test]
fn the_version_is_told() {
    let output = command().arg("--version").output().unwrap();
    let version = text(&output.stdout);
    assert!(version.starts_with(&format!("fpcache-cli {}", env!("CARGO_PKG_VERSION"))), "{version}");
}
