//! Help, JSON, and what is said of mistakes.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Node, command, text};

#[test]
fn json_beside_every_output() {
    let node = Node::start(4 << 20);
    let empty = node.json(0, "stats --json");
    assert_eq!((&empty["keys"], &empty["table"]), (&0.into(), &Value::Null));

    assert_eq!((&empty["name"], &empty["log_errors"]), (&"default".into(), &0.into()));
    assert_eq!(empty["log_writable"], true);

    let load = node.json(0, "--json load uniform:10K --value-bytes 20 --fill 0.7 --seed 5");
    assert_eq!(load["table"], "default");
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
    assert_eq!(node.json(0, "create other --json")["table"], "other");
    let added = node.json(0, "load uniform:10K --value-bytes 20 --seed 5 --json");
    assert_eq!((&added["table"], &added["new"]), (&"default".into(), &0.into()));
    // Of one memory node as of several.
    assert_eq!(node.json(0, "tables --json")[0]["url"], node.url.as_str());
}

#[test]
fn create_and_drop_take_the_table_as_a_word_and_as_an_option() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create one");
    node.ends_with(0, "create --table two");
    node.ends_with(0, "create three --table three");
    let (_, err) = node.ends_with(2, "create four --table five");
    assert!(err.contains("`four`") && err.contains("`five`"), "{err}");
    let mut named = command();
    named.env("FPCACHE_URL", &node.url).env("FPCACHE_TABLE", "else").args(["create", "four"]);
    assert!(named.output().unwrap().status.success());
    node.ends_with(0, "drop --table one --yes");
    node.ends_with(0, "drop two three --yes");
    let (_, err) = node.ends_with(2, "drop four --table default --yes");
    assert!(err.contains("--table names `default`"), "{err}");
    let (_, err) = node.ends_with(2, "drop --yes");
    assert!(err.contains("drop NAME"), "{err}");
    let names = node.ends_with(0, "tables").0;
    assert!(
        names.contains("\nfour ") && names.contains("\ndefault ") && names.lines().count() == 4,
        "{names}"
    );
}

/// They ended with messages that named no variable, or were taken for values.
#[test]
fn variables_that_are_empty_are_none() {
    let node = Node::start(8 << 20);
    let mut command = command();
    command.env("FPCACHE_TABLE", "").env("FPCACHE_DATASETS", "").args(["--url", &node.url]);
    assert!(command.args(["load", "sequential:10"]).output().unwrap().status.success());
    assert_eq!(node.ends_with(0, "count").0, "10\n");
    let output = crate::command().env("FPCACHE_URL", "").arg("ping").output().unwrap();
    let told = text(&[output.stdout, output.stderr].concat());
    assert!(told.contains("shm://fpcache") || told.contains("fpcache.sock"), "{told}");
}

#[test]
fn a_record_that_does_not_fit_names_the_option_that_makes_room() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create texts --keys bytes --slot-bytes 64");
    let (_, err) = node.ends_with(2, &format!("put {} 1 --table texts", "k".repeat(100)));
    assert!(err.contains("create --slot-bytes 108"), "{err}");
}

/// All keys were generated first.
#[test]
fn more_records_than_there_is_room_for_are_refused_before_they_are_generated() {
    let node = Node::start(1 << 20);
    let begun = Instant::now();
    let (_, err) = node.ends_with(2, "load uniform:200M --table new");
    assert!(err.contains("200000000 records take at least") && err.contains("--capacity"), "{err}");
    let (_, err) = node.ends_with(2, "load uniform:200M");
    assert!(err.contains("--capacity"), "{err}");
    let (_, err) = node.ends_with(2, "load uniform:30K --table new --region-bytes 256KiB");
    assert!(err.contains("--region-bytes is 256 KiB"), "{err}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
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
        ("import f --sort-memory lots", &["'lots'", "as in 100, 4KiB or 1MiB"]),
        ("create --region-bytes lots", &["'lots'", "as in 100, 4KiB or 1MiB"]),
        ("load ipv4 --tune auto --tune-budget lots", &["'lots'", "as in 100, 4KiB or 1MiB"]),
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
    let (_, err) = node.ends_with(2, "load sequential:50 --fill 0.5 --value-bytes 20");
    assert!(err.contains("already holds 50 records") && err.contains("omit --fill to add"), "{err}");
    assert!(err.contains("drop it"), "{err}");
    // What the table has may be asked for.
    node.ends_with(0, "load sequential:50 --fill 0.85 --value-bytes 20 --epsilon 32 --fingerprint-bits 16");
    let (_, err) = node.ends_with(2, "get 5 --format int");
    assert!(err.contains("20 bytes") && err.contains("--format hex"), "{err}");
    drop(node.serving.take());
    let (_, err) = node.ends_with(2, "stats");
    assert!(err.contains("no memory node at") && err.contains("start one"), "{err}");
}

#[test]
fn help_shows_examples() {
    for command_line in [
        "", "create", "load", "get", "put", "insert", "update", "del", "scan", "floor", "ceiling", "first",
        "last", "count", "stats", "verify", "tables", "drop", "import", "export", "ping", "metrics", "token",
    ] {
        let line = format!("{command_line} --help");
        let line = line.trim();
        let output = command().args(line.split(' ')).output().unwrap();
        assert!(output.status.success());
        let out = text(&output.stdout);
        assert!(out.contains("Examples:") && out.contains("\n  fpcache-cli "), "{line}: {out}");
        // Options of its own come first, and are not among those of all commands.
        let (own, all) = out.split_once("\nOptions of every command:\n").unwrap();
        assert!(own.contains("\n  -h, --help") && !own.contains("--url <"), "{line}: {own}");
        assert!(all.contains("--url <URL>") && !all.contains("--help"), "{line}: {all}");
    }
}

#[test]
fn what_is_mistyped_is_told_with_what_was_meant() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:100");
    node.ends_with(0, "put 100 0");
    let without_cards = (!cfg!(feature = "rdma")).then_some("this program was built without RDMA");
    for (line, parts) in [
        ("put 7 hello", &["hello", "8 bytes", "--value-bytes vary"][..]),
        ("put 7 18446744073709551616", &["value `18446744073709551616`: it is too large; numbers run"]),
        ("export --output /nonexist/odd.tsv", &["odd.tsv: there is no folder /nonexist; create it"]),
        ("create --epsilon 8", &["`default` at shm://", "is there already", "--table"]),
        (
            "create --table t --nodes shm://a,shm://b --split-at 5,3",
            &["--split-at names 2 keys", "need 1 key"],
        ),
        // It said that no memory node is there, whether there was one or not.
        (
            "--url rdma://127.0.0.1:1 tables",
            &[without_cards.unwrap_or("no memory node at rdma://127.0.0.1:1")],
        ),
        ("--url tcp://127.0.0.1 tables", &["it has no port"]),
        ("load ipv6", &["did you mean `ipv4`"]),
        ("create --groups plain", &["write --groups=plain"]),
        ("load fb:1K --table t --groups none", &["write --groups=none"]),
        ("scan --from 9 --to 5", &["from 9 to 5", "before it begins"]),
        ("scan 9 --to 5", &["from 9 to 5"]),
        ("count --from 9 --to 5", &["from 9 to 5"]),
        ("scan --limit x", &["--limit", "numbers run from 0"]),
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
fn the_version_is_told() {
    let output = command().arg("--version").output().unwrap();
    let version = text(&output.stdout);
    assert!(version.starts_with(&format!("fpcache-cli {}", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn commands_wait_for_a_memory_node_that_starts_later_if_asked() {
    let address = "tcp+unix:///nobody/listens/here";
    let run =
        |line: &str| command().env("FPCACHE_URL", address).args(line.split_whitespace()).output().unwrap();
    let begun = Instant::now();
    let output = run("--wait 200ms tables");
    assert_eq!(output.status.code(), Some(2));
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let error = text(&output.stderr);
    assert!(error.contains("no memory node") && error.contains("after waiting for 200ms"), "{error}");
    let output = run("--wait soon tables");
    assert!(text(&output.stderr).contains("as in 5s, 100ms or 1.5m"), "{}", text(&output.stderr));
}

#[test]
fn a_new_token_is_printed_and_is_another_one_each_time() {
    let make = || {
        let output = command().env("FPCACHE_URL", "shm://nobody").args(["token", "new"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    let (one, other) = (make(), make());
    assert!(one.len() == 65 && one.trim().chars().all(|c| c.is_ascii_hexdigit()) && one != other, "{one}");
    let output = command().args(["token", "new", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["token"].as_str().unwrap().len(), 64, "{told}");
    // A line ended in the middle of a sentence, however wide the terminal was.
    let help = command().args(["token", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("named by --token-file or FPCACHE_TOKEN_FILE"), "{help:?}");
    let refused =
        command().args(["--url", "tcp://127.0.0.1:1", "--token-file", "/", "tables"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("tokens in / cannot be read: it is no regular file"),
        "{refused:?}"
    );
}

#[test]
fn shells_are_told_the_commands_and_no_memory_node_is_asked() {
    let run = |shell: &str| {
        command().env("FPCACHE_URL", "shm://nobody").args(["completions", shell]).output().unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let output = run(shell);
        let script = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for part in ["fpcache-cli", "import", "floor", "json-strings", "sort-memory"] {
            assert!(script.contains(part), "{shell}: {part} is not in it");
        }
    }
    let output = run("csh");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bash"), "{}", text(&output.stderr));
}
