//! The user's own records go into tables and come out again.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use fpcache::key_space::ByteKeys;
use serde_json::Value;

use crate::{Node, command, text};

impl Node {
    /// A file of this content, by its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command with this input.
    fn fed(&self, line: &str, input: &[u8]) -> Output {
        let mut child = command()
            .env("FPCACHE_URL", &self.url)
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that needs no more closes it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    fn fails(&self, line: &str, parts: &[&str]) {
        let (_, err) = self.ends_with(2, line);
        assert!(parts.iter().all(|part| err.contains(part)), "{line}: {err}");
    }
}

#[test]
fn records_of_a_file_are_in_a_table_that_is_made_for_them() {
    let node = Node::start(32 << 20);
    let cities = node.file("cities.tsv", "rome\tItaly\noslo\tNorway\nnew\\x20york\tU S\tA\nbern\t\n");
    let (out, err) = node.ends_with(0, &format!("import {cities} --table cities --keys bytes"));
    assert!(out.starts_with("loaded      ") && out.contains("cities.tsv (file)\nkeys        4\n"), "{out}");
    assert!(out.contains(" s for the file"), "{out}");
    assert!(err.contains("cities.tsv: 3 lines out of key order; sorted in memory"), "{err}");
    let scan = node.ends_with(0, "scan --table cities").0;
    assert_eq!(scan, "bern \nnew\\x20york U S\\tA\noslo Norway\nrome Italy\n");
    // Others may come, of other lengths.
    node.ends_with(0, "put --table cities constantinople Byzantium");
    assert_eq!(node.json(0, "stats --table cities --json")["table"]["value_bytes"], Value::Null);

    let numbers = node.file("numbers.csv", "7,70\n0x10,255\n1,0\n");
    let line = format!("import {numbers} --table numbers --separator , --format int --json");
    let summary = node.json(0, &line);
    for (field, value) in [
        ("keys", Value::from(3)),
        ("dataset_source", "file".into()),
        ("key_kind", "u64".into()),
        ("key_bytes", 8.into()),
        ("value_bytes", 8.into()),
    ] {
        assert_eq!(summary[field], value, "{field}: {summary}");
    }
    assert_eq!(node.ends_with(0, "scan --table numbers").0, "1 0\n7 70\n16 255\n");
    // Integers with texts, as they are read unless told otherwise.
    node.ends_with(0, &format!("import {numbers} --table texts --separator ,"));
    assert_eq!(node.ends_with(0, "get --table texts 16").0, "255");
    let line =
        format!("import {numbers} --table short --separator , --value-bytes 1 --epsilon 16 --fill 0.5");
    assert_eq!(node.json(0, &format!("{line} --json"))["slot_bytes"], 9);
}

#[test]
fn records_of_json_lines_and_of_a_scan_are_imported() {
    let node = Node::start(32 << 20);
    let lines = "{\"key\":\"a\\\\x20b\",\"value\":\"one\\ntwo\"}\n\n {\"value\":\"\",\"key\":\"ü\",\"more\":[1]} \r\n";
    let file = node.file("users.jsonl", lines);
    node.ends_with(0, &format!("import {file} --table users --keys bytes --from jsonl"));
    assert_eq!(node.ends_with(0, "scan --table users").0, "a\\x20b one\\ntwo\nü \n");
    node.ends_with(0, "load sequential:100");
    for strings in ["--json", "--json-strings"] {
        let scan = node.ends_with(0, &format!("scan --limit 1000 {strings}")).0;
        let table = &strings[2..];
        let output =
            node.fed(&format!("import - --table {table} --from jsonl --format int"), scan.as_bytes());
        assert!(output.status.success(), "{output:?}");
        node.ends_with(0, &format!("verify sequential:100 --table {table}"));
    }
    for (line, parts) in [
        ("{\"key\":7,\"value\":70}", &["line 1", "70 is a number", "--format int"][..]),
        ("{\"key\":7}", &["line 1", "\"value\""]),
        ("{\"value\":\"\"}", &["\"key\""]),
        ("{\"key\":7.5,\"value\":\"\"}", &["`7.5`"]),
        ("{\"key\":null,\"value\":\"\"}", &["neither a string nor a number"]),
        ("{\"key\":7,\"value\":null}", &["value is neither"]),
        ("7\tseven", &["line 1", "\"key\":\"zebra\""]),
        ("{\"key\":7,", &["line 1"]),
        ("{\"key\":\"seven\",\"value\":\"\"}", &["`seven`", "--keys bytes"]),
    ] {
        let file = node.file("bad.jsonl", line);
        node.fails(&format!("import {file} --table bad --from jsonl"), parts);
        node.ends_with(2, "stats --table bad");
    }
}

#[test]
fn a_line_that_is_no_record_is_told_by_its_number_and_leaves_no_table() {
    let node = Node::start(16 << 20);
    for (content, options, parts) in [
        (&b"1\ta\n2 b\n"[..], "", &["bad.tsv: line 2", "`\\t`", "--separator"][..]),
        (b"1\ta\n\n2\tb\n", "", &["line 2"]),
        (b"1\ta\nrome\tb\n", "", &["line 2", "`rome` is not a key", "--keys bytes"]),
        (b"{\"key\":1,\"value\":2}\n", "", &["line 1", "--from jsonl"]),
        (b"1\ta\n2\t\xff\n", "", &["line 2", "value is not UTF-8", "--format hex"]),
        (b"1\ta\n\xff\tb\n", "--keys bytes", &["line 2", "key is not UTF-8", "--hex"]),
        (b"1\ta\na\\q\tb\n", "--keys bytes", &["line 2", "a\\q", "\\xNN"]),
        (b"1\ta\n\tb\n", "--keys bytes", &["line 2", "0 bytes", "1 to 4096"]),
        (b"ab\tcd\nabc\tde\n", "--key-bytes 2", &["line 2", "3 bytes", "have 2"]),
        (b"1\t7\n2\tseven\n", "--format int", &["line 2", "`seven` is not a number", "--value-bytes vary"]),
        (b"1\tabc\n2\tab\n", "--value-bytes 3 --format text", &["line 2", "2 bytes", "have 3"]),
        (b"1\t0a\n2\t0\n", "--format hex", &["line 2", "two digits per byte"]),
        (b"9\ta\n1\tb\n9\tc\n", "", &["lines 1 and 3", "--duplicates first or last"]),
        (b"1\ta\n", "--separator x", &["--separator", "without letters"]),
        (b"1\ta\n", "--value-bytes 17MiB", &["17825792"]),
    ] {
        let file = node.file("bad.tsv", content);
        node.fails(&format!("import {file} --table bad {options}"), parts);
        node.ends_with(2, "stats --table bad");
    }
    node.fails("import /no/such/file --table bad", &["/no/such/file", "check the path"]);
    let xz = node.file("records.xz", b"\xfd7zXZ\0");
    node.fails(&format!("import {xz} --table bad"), &["xz -dc FILE | fpcache-cli import -"]);
    let long = node.file("bad.tsv", format!("{}\tlong\n", "k".repeat(5000)));
    node.fails(&format!("import {long} --table bad --keys bytes"), &["line 1", "5000 bytes"]);
    node.fails(&format!("import {long} --keys bytes"), &["kind u64, not bytes", "--table"]);
    node.fails(&format!("import {long}"), &["integers for keys", "--table NAME --keys bytes"]);
}

#[test]
fn records_are_added_to_a_table_that_has_some() {
    let node = Node::start(32 << 20);
    node.ends_with(0, "load sequential:3000");
    let lines: String = (0..5000u64).rev().map(|key| format!("{key}\t{}\n", key * 2)).collect();
    let file = node.file("more.tsv", &lines);
    let (out, _) = node.ends_with(0, &format!("import {file}"));
    assert!(out.contains("added ") && out.contains("5000: 2000 new, 3000 updated"), "{out}");
    assert_eq!(node.ends_with(0, "get 0 2999 4999").0, "0 0\n2999 5998\n4999 9998\n");
    let summary = node.json(0, &format!("import {file} --json"));
    assert_eq!((&summary["new"], &summary["replaced"]), (&0.into(), &5000.into()));
    node.fails(&format!("import {file} --fill 0.5"), &["already holds 5000 records"]);
    // Of a table that was made empty its shape counts.
    node.ends_with(0, "create --table made --value-bytes 2");
    node.ends_with(0, &format!("import {file} --table made"));
    assert_eq!(node.ends_with(0, "last --table made").0, "4999 9998\n");
    // Long values go in groups of few.
    node.ends_with(0, "create --table long --value-bytes vary");
    let value = "v".repeat(300_000);
    let lines: String = (0..12).map(|key| format!("{key}\t{value}\n")).collect();
    let file = node.file("long.tsv", &lines);
    node.ends_with(0, &format!("import {file} --table long"));
    assert_eq!(node.ends_with(0, "export --table long").0, lines);
}

#[test]
fn a_record_that_the_table_has_no_room_for_is_told_by_its_line_before_any_is_added() {
    let node = Node::start_for::<ByteKeys>(64 << 20);
    node.ends_with(0, "create --value-bytes vary --slot-bytes 36");
    node.ends_with(0, "put k00100 before");
    // Of slots with 36 bytes a value's place takes 16.
    let fit = |i: u32| format!("k{i:05}\tvalue of {i}\n");
    let (below, above): (String, String) = ((0..1500).map(fit).collect(), (1501..3000).map(fit).collect());
    let records = |line: String| format!("{below}{line}{above}");
    let long_key = records(format!("k01500{}\tlong\n", "k".repeat(194)));
    let large = records(format!("k01500\t{}\n", "v".repeat((16 << 20) + 1)));
    let key = ["line 1501", "200 bytes of key", "need 204 of a slot", "room for 36"];
    for (content, parts) in [(&long_key, &key[..]), (&large, &["line 1501", "16777217", "16777216"])] {
        let file = node.file("unfit.tsv", content);
        node.fails(&format!("import {file}"), parts);
        assert_eq!(node.ends_with(0, "scan").0, "k00100 before\n");
    }
    // The first such line, whatever the order of keys.
    let value = "v".repeat(25);
    let file =
        node.file("unfit.tsv", format!("z\t\n{}\t{value}\n{}\t{value}\n", "y".repeat(21), "x".repeat(22)));
    node.fails(
        &format!("import {file}"),
        &["line 2: 21 bytes of key and 25 bytes of value need 37 of a slot"],
    );
    assert_eq!(node.ends_with(0, "scan").0, "k00100 before\n");
    // Of more than the memory for sorting, what came before the line is there, or no new table.
    let file = node.file("unfit.tsv", &long_key);
    node.fails(&format!("import {file} --sort-memory 10KiB"), &key);
    let new = format!("import {file} --sort-memory 10KiB --table new --keys bytes --slot-bytes 36");
    node.fails(&new, &key);
    node.ends_with(2, "stats --table new");
    // What fits exactly is taken; and a new table's slots take the longest key there is.
    let file = node.file("fit.tsv", format!("{}\t{}\n", "z".repeat(20), "v".repeat(50)));
    node.ends_with(0, &format!("import {file}"));
    let file = node.file("unfit.tsv", &long_key);
    assert!(node.ends_with(0, &format!("import {file} --table new --keys bytes")).0.contains("3000"));
}

#[test]
fn of_records_with_one_key_the_first_or_the_last_counts_if_asked() {
    let node = Node::start(16 << 20);
    let file = node.file("twice.tsv", "9\ta\n1\tb\n9\tc\n9\td\n");
    for (which, scan) in [("first", "1 b\n9 a\n"), ("last", "1 b\n9 d\n")] {
        let (_, err) = node.ends_with(0, &format!("import {file} --table {which} --duplicates {which}"));
        assert!(err.contains("2 records left out") && err.contains(&format!("the {which} counts")), "{err}");
        assert_eq!(node.ends_with(0, &format!("scan --table {which}")).0, scan);
    }
}

#[test]
fn more_records_than_memory_for_them_are_imported_if_they_ascend() {
    let node = Node::start(64 << 20);
    let line = |key: u64| format!("{key}\tvalue of {key}\n");
    let sorted: String = (0..20_000).map(line).collect();
    let import = |file: &str, table: &str| {
        format!("import {file} --table {table} --sort-memory 100KiB --duplicates last")
    };
    let file = node.file("sorted.tsv", &sorted);
    assert!(node.ends_with(0, &import(&file, "sorted")).0.contains("keys        20000\n"));
    assert!(node.ends_with(0, "export --table sorted").0 == sorted);
    // Into a table with records too.
    assert!(node.ends_with(0, &import(&file, "sorted")).0.contains("20000: 0 new, 20000 updated"));
    let twice = node.file("twice.tsv", format!("{sorted}{}", "19999\tagain\n".repeat(2)));
    assert!(node.ends_with(0, &import(&twice, "twice")).1.contains("2 records left out"));
    assert_eq!(node.ends_with(0, "last --table twice").0, "19999 again\n");
    node.fails(&import(&twice, "no").replace("last", "refuse"), &["lines 20000 and 20001", "--duplicates"]);
    let late = node.file("late.tsv", format!("{sorted}5\tlate\n"));
    node.fails(&import(&late, "no"), &["line 20001", "below the one before", "--sort-memory"]);
    let early = node.file("early.tsv", format!("5\tearly\n{sorted}"));
    node.fails(&import(&early, "no"), &["100.0 KiB", "line 2", "sort -n", "in parts"]);
    node.ends_with(2, "stats --table no");
}

#[test]
fn what_is_exported_is_imported_as_the_same_table() {
    let node = Node::start_for::<ByteKeys>(128 << 20);
    node.ends_with(0, "create --value-bytes vary:20 --slot-bytes 300");
    let all: Vec<u8> = (0..=255).collect();
    let awkward: [&[u8]; 14] = [
        b"a",
        b"a b",
        b"a\tb",
        b"a\nb",
        b"a\r\nb\r",
        b"a,b",
        b"\\n",
        b"\"a\"'b'",
        b"{\"key\":1}",
        b"\xff\xfe",
        b"\0",
        "grün \u{2028}\u{85}".as_bytes(),
        b"\xef\xbb\xbfbom",
        &all,
    ];
    // Each as a key, with each as its value, and an empty one.
    for (i, key) in awkward.iter().enumerate() {
        let value = node.file("value", awkward.get(i + 1).unwrap_or(&&b""[..]));
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        node.ends_with(0, &format!("put {key} --hex --value-file {value}"));
    }
    let seen = node.ends_with(0, "scan --limit 100 --format hex").0;
    let copy = |number: usize, export: &str, import: &str| {
        let file = node.path(&format!("{number}")).to_str().unwrap().to_owned();
        node.ends_with(0, &format!("export {export} --output {file}"));
        node.ends_with(0, &format!("import {file} --table t{number} --keys bytes {import}"));
        let copied = node.ends_with(0, &format!("scan --table t{number} --limit 100 --format hex")).0;
        assert_eq!(copied, seen, "{export}");
    };
    copy(1, "--format hex", "--format hex");
    copy(2, "--format hex --hex", "--format hex --hex");
    copy(3, "--format hex --separator ,", "--format hex --separator ,");
    copy(4, "--format hex --as jsonl", "--format hex --from jsonl");
    copy(5, "--format hex --as jsonl --hex --separator ::", "--format hex --from jsonl --hex");
    // What text has no form for is refused, and what does have one is told.
    let file = node.path("refused").to_str().unwrap().to_owned();
    node.fails(&format!("export --output {file}"), &["value of key", "--as jsonl, or --format hex"]);
    node.fails(&format!("export --as jsonl --output {file}"), &["is not UTF-8: use --format hex"]);
    node.fails(&format!("export --format int --output {file}"), &["an integer", "--format text or hex"]);
    assert!(!node.path("refused").exists(), "it is not complete");
    node.ends_with(0, r"del a\tb a\nb {\x22key\x22:1} \xff\xfe \x00 \xef\xbb\xbfbom");
    let seen = node.ends_with(0, "scan --limit 100 --format hex").0;
    for separator in ["\\t", ",", " ", "'", "::"] {
        let file = node.path("texts");
        let run = |arguments: &[&str]| assert!(node.run(arguments).status.success(), "{arguments:?}");
        run(&["export", "--output", file.to_str().unwrap(), "--separator", separator]);
        run(&[
            "import",
            file.to_str().unwrap(),
            "--separator",
            separator,
            "--table",
            "texts",
            "--keys",
            "bytes",
        ]);
        assert_eq!(node.ends_with(0, "scan --table texts --limit 100 --format hex").0, seen, "{separator}");
        node.ends_with(0, "drop texts --yes");
    }
}

#[test]
fn the_command_that_an_export_names_makes_the_same_table() {
    let node = Node::start(256 << 20);
    node.ends_with(0, "load uniform:30K");
    node.ends_with(0, "load words:30K --table words --value-bytes 20");
    node.ends_with(0, "load binary:3K --table binary --key-bytes 9 --value-bytes 3");
    node.ends_with(0, "create --table texts --value-bytes vary");
    node.ends_with(0, "put --table texts 7 seven");
    node.ends_with(0, "create --table none --keys bytes --value-bytes vary");
    for (table, options) in [
        ("default", ""),
        ("default", "--hex --separator ;"),
        ("words", "--as jsonl"),
        ("words", "--format hex"),
        ("binary", "--hex"),
        ("binary", "--json-strings --as jsonl"),
        ("texts", ""),
        ("none", ""),
    ] {
        let file = node.path("records.txt").to_str().unwrap().to_owned();
        let export = node.json(0, &format!("export --table {table} {options} --output {file} --json"));
        let import = export["import"].as_str().unwrap().replace("'", "");
        let (_, import) = import.split_once(' ').unwrap();
        node.ends_with(0, &import.replace(&format!("--table {table}"), "--table copy"));
        let all = |table| node.ends_with(0, &format!("export --format hex --table {table}")).0;
        assert!(all("copy") == all(table), "{import}");
        let shape = |table: &str| {
            let stats = node.json(0, &format!("stats --table {table} --json"));
            ["key_kind", "key_bytes", "value_bytes"].map(|field| stats["table"][field].clone())
        };
        assert_eq!(shape("copy"), shape(table), "{import}");
        node.ends_with(0, "drop copy --yes");
    }
    let (out, _) = node.ends_with(0, &format!("export --output {}", node.path("last").display()));
    assert!(
        out.contains("exported    30000 records to ") && out.contains("to import   fpcache-cli "),
        "{out}"
    );
}

#[test]
fn an_export_is_of_a_range_and_ends_with_its_reader() {
    let node = Node::start(16 << 20);
    node.ends_with(0, "load sequential:50K");
    assert_eq!(node.ends_with(0, "export --from 5 --to 0x7").0, "5\t5\n6\t6\n");
    assert_eq!(node.ends_with(0, "export --to 2 --hex --separator :").0, "0x0:0\n0x1:1\n");
    assert_eq!(node.ends_with(0, "export --to 1 --json").0, "{\"key\":0,\"value\":0}\n");
    assert_eq!(
        node.ends_with(0, "export --to 1 --as jsonl --json-strings").0,
        "{\"key\":\"0\",\"value\":\"0\"}\n"
    );
    assert_eq!(node.ends_with(0, "export").0.lines().count(), 50_000);
    assert_eq!(node.ends_with(0, "export --to 1 --output /dev/stderr").1, "0\t0\n");
    // A file that is private stays so, and a link leads to it.
    let (file, link) = (node.file("private", "old"), node.path("link"));
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    node.ends_with(0, &format!("export --to 1 --output {}", link.display()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "0\t0\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(link.is_symlink());
    node.fails("export --prefix 1", &["prefixes"]);
    node.fails("export --output /no/such/folder/file", &["/no/such/folder/file"]);
    let mut child = command()
        .args(["--url", &node.url, "export"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn an_export_waits_for_its_reader_longer_than_a_call_may_take() {
    let node = Node::start(32 << 20);
    node.ends_with(0, "create --value-bytes vary");
    let lines: String = (0..40u64).map(|key| format!("{key}\t{}\n", "v".repeat(100_000))).collect();
    assert!(node.fed("import -", lines.as_bytes()).status.success());
    let child = command()
        .args(["--url", &node.url, "--deadline", "50ms", "export"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than fits the pipe.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout) == lines, "{}", text(&output.stderr));
}

#[test]
fn files_may_be_compressed_or_end_their_lines_as_windows_does() {
    let node = Node::start(16 << 20);
    let file = node.file("windows.tsv", "1\tone\r\n2\ttwo\r\n");
    let (_, err) = node.ends_with(0, &format!("import {file} --table windows"));
    assert!(err.contains("2 lines ended in a carriage return"), "{err}");
    assert_eq!(node.ends_with(0, "export --table windows").0, "1\tone\n2\ttwo\n");
    for (name, content, options) in [
        ("marked", "\u{feff}1\tone\n2\ttwo\n", ""),
        (
            "marked_json",
            "\u{feff}{\"key\":1,\"value\":\"one\"}\n{\"key\":2,\"value\":\"two\"}",
            "--from jsonl",
        ),
    ] {
        let file = node.file(name, content);
        let (_, err) = node.ends_with(0, &format!("import {file} --table {name} {options}"));
        assert!(err.contains("byte order mark"), "{err}");
        assert_eq!(node.ends_with(0, &format!("export --table {name}")).0, "1\tone\n2\ttwo\n");
    }
    // "1\tone\n" by gzip, without compression: a stored block.
    let stored = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x06\0\xf9\xff1\tone\n";
    let whole = [&stored[..], &crc32(b"1\tone\n").to_le_bytes(), &6u32.to_le_bytes()].concat();
    let gz = node.file("records.gz", &whole);
    node.ends_with(0, &format!("import {gz} --table gz"));
    assert_eq!(node.ends_with(0, "export --table gz").0, "1\tone\n");
    let output = node.fed("import - --table piped", &whole);
    assert!(output.status.success() && text(&output.stdout).contains("standard input (file)"), "{output:?}");
    let damaged = node.file("damaged.gz", &whole[..whole.len() - 8]);
    node.fails(&format!("import {damaged} --table damaged"), &["damaged.gz", "gzip"]);
    let empty = node.file("empty.tsv", "");
    let (out, _) = node.ends_with(0, &format!("import {empty} --table empty"));
    assert!(out.contains("keys        0\nsegments    1\nmemory") && !out.contains("per key"), "{out}");
    let (out, _) = node.ends_with(0, "stats --table empty");
    assert!(out.contains("keys        0\nsegments    1\nrecords"), "{out}");
    let told = node.json(0, &format!("import {empty} --table none --json"));
    assert!(told["bytes_per_key"].is_null() && told["keys_per_segment"].is_null(), "{told}");
    assert_eq!(node.ends_with(0, "export --table empty").0, "");
}

#[test]
fn parameters_are_found_for_the_keys_of_a_file() {
    let node = Node::start(64 << 20);
    node.ends_with(0, "load fb:20K --table fb");
    let file = node.path("fb.tsv").to_str().unwrap().to_owned();
    node.ends_with(0, &format!("export --table fb --output {file}"));
    let import = format!("import {file} --value-bytes 8 --tune auto --tune-for rdma");
    let tuned = node.json(0, &format!("{import} --table tuned --json"));
    assert!(tuned["group_form"].is_string() && tuned["tuned"]["considered"].is_array(), "{tuned}");
    node.ends_with(0, "verify fb:20K --table tuned");
    let (out, _) = node.ends_with(0, &format!("{import} --table forced --groups=seeded --epsilon 64"));
    assert!(out.contains("tuned") && out.contains("seeded"), "{out}");
    node.fails(&format!("import {file} --table no --tune-budget 10MiB"), &["--tune"]);
}

/// As gzip has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_scan_that_was_cut_at_its_default_says_so() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "load sequential:11");
    let (out, err) = node.ends_with(0, "scan");
    assert_eq!(out.lines().count(), 10);
    assert_eq!(err, "10 records shown; --limit N for more, or `fpcache-cli export`\n");
    assert_eq!(node.ends_with(0, "scan --reverse").1.lines().count(), 1);
    for line in ["scan 1", "scan --limit 10", "scan --limit 11", "scan --json"] {
        assert_eq!(node.ends_with(0, line).1, "", "{line}");
    }
    assert_eq!(node.json(0, "scan --json").as_array().unwrap().len(), 10);
}
