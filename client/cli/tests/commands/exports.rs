//! Exports whose table changes meanwhile, or has nothing yet.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use fpcache::key_space::ByteKeys;

use crate::{Node, command};

/// It held records of both, and ended well.
#[test]
fn an_export_of_a_table_that_is_made_anew_meanwhile_fails() {
    let node = Node::start(256 << 20);
    // More than the pipe to this process and what a scan reads at once have room for.
    node.ends_with(0, "load sequential:20000 --value-bytes 2000");
    let mut child = command()
        .env("FPCACHE_URL", &node.url)
        .arg("export")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert!(first.starts_with("0\t"), "{first}");
    node.ends_with(0, "drop default --yes");
    node.ends_with(0, "load sequential:19000 --value-bytes 2000");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("dropped") && err.contains("again"), "{err}");
}

/// It was complete, and ended as a failure.
#[test]
fn a_table_without_parameters_is_exported_to_a_file() {
    for (node, keys) in [(Node::start(4 << 20), ""), (Node::start_for::<ByteKeys>(4 << 20), " --keys bytes")]
    {
        let file = node.path("none.tsv");
        let (out, _) = node.ends_with(0, &format!("export --output {}", file.display()));
        assert!(out.contains("exported    0 records"), "{out}");
        assert!(out.contains(&format!("--table default{keys}")), "{out}");
        assert!(std::fs::read(&file).unwrap().is_empty());
    }
}
