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
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command with this input.
    pub(crate) fn fed(&self, line: &str, input: &[u8]) -> Output {
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
    pub(crate) fn fails(&self, line: &str, parts: &[&str]) {
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
fn json_has_values_as_they_are_or_none() {
    let node = Node::start(16 << 20);
    node.ends_with(0, "create --table odd --keys bytes --value-bytes vary");
    node.ends_with(0, "put --table odd a text");
    let bytes = node.file("bytes", b"\xff\xfe\0");
    node.ends_with(0, &format!("put --table odd b --value-file {bytes}"));
    for command in ["scan", "get a b", "floor b c", "last"] {
        let (out, err) = node.ends_with(2, &format!("{command} --table odd --json"));
        assert!(err.contains("value of key b: it is not UTF-8: use --format hex"), "{command}: {err}");
        if !out.is_empty() {
            let shown: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(shown[0]["value"], "text", "{command}: what was printed before is whole");
        }
    }
    let scan = node.ends_with(0, "scan --table odd --json --format hex").0;
    let copied = node.fed("import - --table copy --keys bytes --from jsonl --format hex", scan.as_bytes());
    assert!(copied.status.success(), "{copied:?}");
    let copy = node.path("copy");
    node.ends_with(0, &format!("get --table copy b --output {}", copy.display()));
    assert_eq!(std::fs::read(copy).unwrap(), b"\xff\xfe\0");
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
    // These were lost without a word.
    node.ends_with(0, "load uniform:3K --table odd --value-bytes vary:100 --epsilon 16 --fill 0.7");
    node.ends_with(0, "load uniform:3K --table grouped --groups=pilots:16 --fingerprint-bits none");
    node.ends_with(0, "load uniform:3K --table filled --groups=seeded --fill 0.75 --fingerprint-bits 8");
    node.ends_with(0, "create --table slots --keys bytes --slot-bytes 300 --value-bytes vary");
    // Its values became ones of 8 bytes.
    node.ends_with(0, "create --table words_vary --value-bytes vary:200");
    node.ends_with(0, "put --table words_vary --format int 7 77");
    for (table, options) in [
        ("default", ""),
        ("default", "--hex --separator ;"),
        ("words", "--as jsonl"),
        ("words", "--format hex"),
        ("binary", "--hex"),
        ("binary", "--json-strings --as jsonl"),
        ("texts", ""),
        ("none", ""),
        ("odd", "--format hex"),
        ("grouped", ""),
        ("filled", ""),
        ("slots", ""),
        ("words_vary", "--format int"),
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
            [
                "key_kind",
                "key_bytes",
                "value_bytes",
                "slot_bytes",
                "epsilon",
                "fill",
                "fingerprint_bits",
                "group_form",
            ]
            .map(|field| stats["table"].get(field).unwrap_or_else(|| panic!("{field}: {stats}")).clone())
        };
        assert_eq!(shape("copy"), shape(table), "{import}");
        node.ends_with(0, "drop copy --yes");
    }
    let (out, _) = node.ends_with(0, &format!("export --output {}", node.path("last").display()));
    assert!(
        out.contains("exported    30000 records to ") && out.contains("to import   fpcache-cli "),
        "{out}"
    );
    assert!(!out.contains("--url"), "the environment has it: {out}");
    let file = node.path("last");
    let told =
        command().args(["--url", &node.url, "export", "--output", file.to_str().unwrap()]).output().unwrap();
    assert!(text(&told.stdout).contains(&format!(" --url {} ", node.url)), "{told:?}");
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
        .args(["--url", &node.url, "--deadline", "3s", "export"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than fits the pipe.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout) == lines, "{}", text(&output.stderr));
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

/// The table had seventeen times the bytes, without a word.
#[test]
fn one_key_that_makes_all_slots_long_is_named() {
    let node = Node::start(64 << 20);
    let line = |key: String| format!("{key}\tvalue\n");
    let mut lines: String = (0..1000).map(|i| line(format!("{i:0100}"))).collect();
    let usual = node.file("usual.tsv", &lines);
    lines += &line("z".repeat(2003));
    let long = node.file("long.tsv", &lines);
    let (_, err) = node.ends_with(0, &format!("import {long} --table long --keys bytes"));
    for part in ["long.tsv: line 1001 has", "of 2003 bytes", "at most 100", "2067 bytes instead of 164"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let keys = node.file("keys", lines.replace("\tvalue", ""));
    let (_, err) = node.ends_with(0, &format!("load lines:{keys} --table lines"));
    assert!(err.contains("`zzzz") && err.contains("of 2003 bytes"), "{err}");
    for quiet in [
        format!("import {usual} --table usual --keys bytes"),
        format!("import {long} --table told --keys bytes --slot-bytes 2100"),
        format!("import {long} --table long"),
    ] {
        let (_, err) = node.ends_with(0, &quiet);
        assert!(!err.contains("longest"), "{quiet}: {err}");
    }
}
