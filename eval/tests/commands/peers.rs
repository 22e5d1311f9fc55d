//! `peers` measures the systems that are there, and says how to get those that are not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use crate::support::{eventually, memory_node_in, program, runs, stderr};
use rustix::process::{Pid, Signal, kill_process};
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

/// It went on, with its folder.
#[test]
fn a_signal_ends_a_server_and_leaves_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let [path, temporary, number] = ["bin", "tmp", "number"].map(|name| folder.path().join(name));
    [&path, &temporary].iter().for_each(|folder| fs::create_dir(folder).expect("a folder"));
    // Never answers.
    let version = "[ \"$1\" = --version ] && echo 'v=7.2.0' && exit";
    let script = format!("#!/bin/sh\n{version}\necho $$ > {}\nexec /bin/sleep 60\n", number.display());
    let server = path.join("redis-server");
    fs::write(&server, script).expect("a program");
    fs::set_permissions(&server, Permissions::from_mode(0o755)).expect("a program");
    let mut child = program()
        .env("PATH", &path)
        .env("TMPDIR", &temporary)
        .args(OPTIONS)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built");
    let pid = || fs::read_to_string(&number).ok().and_then(|text| text.trim().parse().ok());
    assert!(eventually(|| pid().is_some_and(runs)), "no server was started");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ended").signal(), Some(Signal::INT.as_raw()));
    assert!(eventually(|| !pid().is_some_and(runs)), "the server goes on");
    assert_eq!(fs::read_dir(&temporary).expect("readable").count(), 0);
}
