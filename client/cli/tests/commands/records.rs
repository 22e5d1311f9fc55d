//! Records are written, shown and removed, whatever their keys and values.

use fpcache::key_space::ByteKeys;
use serde_json::Value;

use crate::{Node, text};

#[test]
fn an_absent_key_is_said_and_ends_with_one() {
    let node = Node::start(1 << 20);
    node.ends_with(0, "load sequential:100");
    assert_eq!(node.ends_with(1, "get 100"), (String::new(), "key 100 is absent\n".into()));
    let (out, err) = node.ends_with(1, "get 5 100 6");
    assert_eq!((out.as_str(), err.as_str()), ("5 5\n6 6\n", "key 100 is absent\n"));
}

#[test]
fn records_are_made_changed_and_removed() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create");
    assert!(node.ends_with(0, "stats").0.contains("keys        0\nsegments    1\n"));
    assert_eq!(node.ends_with(1, "get 7").1, "key 7 is absent\n");
    assert_eq!(node.ends_with(0, "insert 7 70"), (String::new(), String::new()));
    assert_eq!(node.ends_with(1, "insert 7 71").1, "key 7 exists already\n");
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
    for name in ["del", "delete"] {
        assert_eq!(node.ends_with(1, &format!("{name} 7")).1, "key 7 is absent\n");
    }
    assert_eq!(node.json(0, "insert 7 7 --json")["done"], true);
    assert_eq!(node.json(1, "insert 7 7 --json")["done"], false);
}

#[test]
fn values_that_do_not_fit_the_table_are_refused() {
    let node = Node::start(1 << 20);
    node.ends_with(0, "create --value-bytes 4");
    for (line, part) in [
        ("put 1 4294967296", "does not fit"),
        ("insert 1 a --format text", "1 byte,"),
        ("update 1 0102 --format hex", "2 bytes"),
        ("put 1 one", "--value-bytes vary"),
        ("create", "other parameters"),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(err.contains(part), "{line}: {err}");
    }
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
        (vec!["get", "long", "--output", &to, "--json"], "--json"),
        (vec!["--json-strings", "get", "long", "--output", &to], "--json-strings"),
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
    assert_eq!(node.ends_with(1, "insert user1 9").1, "key user1 exists already\n");
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
        ("get xyz --hex", &["xyz", "two digits per byte"]),
        ("put key x --format text", &["1 byte,", "8"]),
        ("scan a --prefix b", &["--prefix"]),
        ("create --keys bytes --epsilon 8", &["other parameters than requested: epsilon 32, not 8; use"]),
        ("create --keys u64", &["kind bytes, not u64", "drop default"]),
        ("load ipv4", &["kind bytes, not u64", "--table"]),
        ("verify ipv4", &["kind bytes", "of the kind u64", "--table"]),
        ("verify ipv4 --table none", &["no table `none`"]),
    ] {
        let (_, err) = node.ends_with(2, line);
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
    let output = node.run(["put", "", "1"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("1 to 4096"), "{output:?}");
    assert_eq!(node.run(["get", ""]).status.code(), Some(1), "no table holds it");
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
