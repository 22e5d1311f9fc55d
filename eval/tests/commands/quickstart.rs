//! The quickstart shows every data set, checks every answer and leaves nothing behind.

#[allow(dead_code)]
use crate::support::{eventually, memory_node_in, run, runs, stderr, stdout};

#[test]
fn the_quickstart_prints_a_table_per_data_set_and_what_to_do_next() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output =
        run(&format!("quickstart --size small --keys 10K --lookups 1K --out {}", folder.path().display()));
    let (text, notes) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{text}\n{notes}");
    for part in [
        "ipv4:10K (shipped)",
        "fb:10K (stand-in)",
        "wiki:10K (stand-in)",
        "fpcache two-stage get",
        "fpcache range multi_get of 32",
        "hashmap get",
        "btreemap get",
        "round trips",
        "bytes read",
        "B/key",
        "zipf:0.99",
        // Three data sets, two distributions, six lines; six budgets, two variants, two passes of a quarter.
        "All 42.0 K checked answers were right",
        "fpcache full",
        "hit rate",
        "bytes used",
        "64 KiB",
        "plot: ",
        "Next:",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    for file in ["plot.svg", "results.json", "results.csv"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    let nodes: Vec<u32> = notes.lines().filter_map(memory_node_in).collect();
    assert_eq!(nodes.len(), 3, "{notes}");
    assert!(eventually(|| !nodes.iter().any(|&pid| runs(pid))), "memory nodes are left over");
}

#[test]
fn help_shows_examples_on_every_level_and_no_inner_commands() {
    for arguments in ["--help", "run --help", "sweep --help", "quickstart --help"] {
        let output = run(arguments);
        let text = stdout(&output);
        assert!(output.status.success() && text.contains("Examples:"), "{arguments}: {text}");
        assert!(!text.contains("memory-node"), "{text}");
    }
}

#[test]
fn bad_sizes_are_refused() {
    for (arguments, remedy) in [
        ("quickstart --size huge", "small"),
        ("quickstart --keys 0", "above 0"),
        ("quickstart --lookups many", "2M"),
        ("tour", "--help"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(remedy), "{arguments}: {}", stderr(&output));
    }
}
