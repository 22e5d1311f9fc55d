//! Tables fit a terminal of 80 columns, with every figure that they have in one piece.

use std::collections::BTreeSet;

use crate::support::{program, stderr, stdout};

/// Commands with tables that are wider.
const WIDE: [&str; 5] = [
    "run --dataset uniform:2K --lookups 2K --rounds 1 --calibration-buffer 1MiB",
    "ycsb --workload C,D --dataset uniform:2K --ops 1K --rounds 1 --calibration-buffer 1MiB",
    "explain --dataset uniform:2K --epsilon 8,16",
    "peers --keys 1K --seconds 0.01 --rounds 1 --system fpcache,hashmap",
    "sweep --over cache --values 64KiB,128KiB --dataset uniform:2K --lookups 2K --rounds 1 --calibration-buffer 1MiB",
];

/// The lines of tables, and the names in their first lines.
fn tables(command: &str, columns: Option<&str>) -> (Vec<String>, BTreeSet<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = program();
    if let Some(columns) = columns {
        program.env("COLUMNS", columns);
    }
    let output = program.current_dir(folder.path()).args(command.split(' ')).output().expect("it was built");
    assert!(output.status.success(), "{command}: {}", stderr(&output));
    let is_drawn = |line: &&str| line.starts_with(['┌', '│', '╞', '└']);
    let lines: Vec<String> = stdout(&output).lines().filter(is_drawn).map(str::to_owned).collect();
    let heads = lines.windows(2).filter(|pair| pair[0].starts_with('┌')).map(|pair| pair[1].clone());
    let names = heads.flat_map(|head| {
        let names = head.trim_matches('│').split("  ").map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
    });
    let names = names.collect();
    (lines, names)
}

#[test]
fn tables_fit_a_narrow_terminal_and_leave_no_column_out() {
    let width = |lines: &[String]| lines.iter().map(|line| line.chars().count()).max();
    for command in WIDE {
        let (whole, all) = tables(command, None);
        assert!(width(&whole) > Some(80), "{command}: {whole:#?}");
        let (narrow, names) = tables(command, Some("80"));
        assert!(width(&narrow) <= Some(80), "{command}: {narrow:#?}");
        assert_eq!(names, all, "{command}: {narrow:#?}");
    }
}
