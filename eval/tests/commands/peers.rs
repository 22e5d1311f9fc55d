//! `peers` measures the systems that are there, and says how to get those that are not.

use std::path::Path;

use crate::support::{memory_node_in, program, runs, stderr};
use serde_json::Value;

const OPTIONS: [&str; 9] = ["peers", "--keys", "2K", "--seconds", "0.02", "--rounds", "1", "--json", "-"];

fn rows(path: Option<&Path>) -> Vec<Value> {
    let mut command = program();
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.args(OPTIONS).output().expect("the program was built");
    assert!(output.status.success(), "{}", stderr(&output));
    let memory_node = stderr(&output).lines().find_map(memory_node_in).expect("a memory node was started");
    assert!(!runs(memory_node), "it ends with the comparison");
    serde_json::from_slice(&output.stdout).expect("standard output is JSON alone")
}

fn of<'r>(rows: &'r [Value], system: &'r str) -> impl Iterator<Item = &'r Value> {
    rows.iter().filter(move |row| row["system"] == system)
}

#[test]
fn what_is_there_is_measured_in_every_way_it_can_be_asked_and_answers_are_compared() {
    let rows = rows(None);
    for row in &rows {
        if row["not_measured"].is_null() {
            assert_eq!(row["mismatches"], 0, "{row}");
            assert!(row["keys_per_s"].as_f64() > Some(0.0), "{row}");
            assert!(row["client_cpu_s_per_million"].as_f64() > Some(0.0), "{row}");
            let is_here = row["transport"].is_null();
            assert_eq!(row["server_cpu_s_per_million"].is_null(), is_here, "{row}");
        }
    }
    assert_eq!(
        of(&rows, "fpcache").count(),
        12,
        "three ways there, and three memory nodes; one key, several, and one by each of many tasks"
    );
    assert_eq!(of(&rows, "hashmap").chain(of(&rows, "btreemap")).count(), 2);
    // Two ways there, and one key, a pipeline, one request for several; or one row that names a
    // package.
    let stores = of(&rows, "redis").chain(of(&rows, "valkey")).count();
    assert!(stores == 6 || of(&rows, "redis").all(|row| row["not_measured"].is_string()), "{stores}");
}

#[test]
fn what_is_not_installed_is_named_with_its_package() {
    let nothing = tempfile::tempdir().expect("a folder");
    let rows = rows(Some(nothing.path()));
    for (system, package) in [("redis", "redis-server or valkey-server"), ("memcached", "memcached")] {
        let row = of(&rows, system).next().expect("a row");
        let why = row["not_measured"].as_str().unwrap_or_default();
        assert!(why.contains("not installed") && why.contains(package), "{row}");
    }
    assert!(of(&rows, "fpcache").all(|row| row["keys_per_s"].as_f64() > Some(0.0)));
}
