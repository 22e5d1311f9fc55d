//! The quickstart shows every data set, checks every answer and leaves nothing behind.

use crate::support::{assert_refused, done, eventually, memory_node_in, program, run, runs, stderr, stdout};

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
        "First steps",
        "round trip",
        "deleted again",
        "two-stage get",
        "range, 32 keys",
        "hashmap get",
        "btreemap get",
        "round trips",
        "bytes read",
        "B/key",
        "zipf:0.99",
        // Three data sets, six lines; six budgets, two variants, two passes of a quarter.
        "All 24.0 K checked answers were right",
        "fpcache full",
        "hit rate",
        "not the point",
        "× map: how many times as long",
        "64 KiB",
        "plot: ",
        "page: ",
        "Next:",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    let paths = [folder.path().to_str().expect("UTF-8"), "plot: ", "figures: "];
    assert!(wide.iter().all(|line| paths.iter().any(|path| line.contains(path))), "{wide:#?}");
    let steps = text.find("First steps").expect("they are there");
    assert!(steps < text.find("lookups by").expect("tables"), "first steps come before tables");
    for file in ["plot.svg", "results.json", "results.csv", "quickstart.json", "report.html"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    let nodes: Vec<u32> = notes.lines().filter_map(memory_node_in).collect();
    assert_eq!(nodes.len(), 3, "{notes}");
    assert!(eventually(|| !nodes.iter().any(|&pid| runs(pid))), "memory nodes are left over");
}

#[test]
fn the_quickstart_leaves_nothing_in_the_temporary_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = program()
        .args("quickstart --size small --keys 2K --lookups 200".split(' '))
        .env("TMPDIR", folder.path())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let page = text.lines().find_map(|line| line.strip_prefix("page: ")).expect("a page");
    let target =
        std::path::Path::new(env!("CARGO_BIN_EXE_fpcache-eval")).ancestors().nth(2).expect("it was built");
    assert!(std::path::Path::new(page).starts_with(target) && std::path::Path::new(page).is_file(), "{page}");
    let left: Vec<_> = folder.path().read_dir().expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn help_shows_examples_on_every_level_and_no_inner_commands() {
    for arguments in ["--help", "run --help", "sweep --help", "quickstart --help", "report --help"] {
        let text = stdout(&done(arguments));
        assert!(text.contains("Examples:"), "{arguments}: {text}");
        assert!(!text.contains("memory-node "), "{text}");
    }
}

#[test]
fn bad_sizes_are_refused() {
    assert_refused(
        "quickstart",
        &[("--size huge", "small"), ("--keys 0", "above 0"), ("--lookups many", "2M")],
    );
    assert_refused("tour", &[("", "--help")]);
}
