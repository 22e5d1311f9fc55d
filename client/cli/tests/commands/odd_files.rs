//! Files of records that are wrong, or otherwise than usual.

use fpcache::key_space::ByteKeys;

use crate::{Node, text};

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

/// As gzip has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Its slots had room for the longest key of its first part, and nothing said so.
#[test]
fn a_file_of_more_byte_strings_than_memory_for_them_is_told_what_its_slots_have_room_for() {
    let node = Node::start(64 << 20);
    let mut lines: String = (0..20_000).map(|i| format!("{i:08}\t7\n")).collect();
    let file = node.file("keys.tsv", &lines);
    let import = |file: &str, options: &str| {
        format!("import {file} --table t --keys bytes --sort-memory 100KiB --value-bytes 1 {options}")
    };
    let (_, err) = node.ends_with(0, &import(&file, ""));
    for part in ["keys.tsv", "of 8 bytes", "--slot-bytes"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    node.ends_with(0, "drop t --yes");
    lines += &format!("{}\t7\n", "9".repeat(40));
    let longer = node.file("longer.tsv", &lines);
    node.fails(&import(&longer, ""), &["line 20001", "--slot-bytes 41"]);
    assert!(!node.ends_with(0, &import(&longer, "--slot-bytes 41")).1.contains("--slot-bytes"));
}
