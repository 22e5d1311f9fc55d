//! Experiments whose memory nodes keep their data: `--store-dir` and `--fsync`.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::support::{eventually, program, run, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
#[allow(dead_code)]
use serde_json::Value;

fn rows(options: &str) -> Vec<Value> {
    let output = run(&format!("{options} --rounds 1 --calibration-buffer 1MiB --json -"));
    assert!(output.status.success(), "{options}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON alone")
}

#[test]
fn workloads_and_lookups_are_right_with_a_log_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display();
    for (options, fsync) in [
        ("ycsb --workload A --dataset uniform:5K --ops 2K --threads 2 --fsync always", "always"),
        ("ycsb --workload F --dataset uniform:5K --ops 4K", "10ms"),
        ("growth --dataset uniform:5K --lookups 2K --fsync never", "never"),
        ("run --system fpcache --dataset uniform:5K --lookups 2K --fsync 1s", "1s"),
    ] {
        let rows = rows(&format!("{options} --store-dir {place}"));
        assert_eq!(rows[0]["mismatches"], 0, "{options}");
        // `growth` has no such field.
        assert!(rows[0]["fsync"] == fsync || options.starts_with("growth"), "{options}: {}", rows[0]);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_memory_node_without_clients_writes_a_log_too() {
    let folder = tempfile::tempdir().expect("a folder");
    for fsync in ["always", "10ms", "never"] {
        let rows = rows(&format!(
            "growth --direct --dataset uniform:10K --lookups 1K --store-dir {} --fsync {fsync}",
            folder.path().display()
        ));
        assert_eq!((&rows[0]["fsync"], &rows[0]["inserts"]), (&fsync.into(), &5_000.into()));
        for field in ["updates_per_s", "updates_per_s_unhinted", "inserts_per_s"] {
            assert!(rows[0][field].as_f64() > Some(0.0), "{field}: {}", rows[0]);
        }
    }
    let rows = rows("growth --direct --dataset uniform:10K --lookups 1K");
    assert_eq!(rows[0]["fsync"], Value::Null);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}

#[test]
fn a_store_needs_a_memory_node_in_a_second_process() {
    for (options, remedy) in [
        ("run --dataset ipv4 --transport local --store-dir /tmp", "omit --transport local"),
        ("run --dataset ipv4 --fsync always", "--store-dir"),
        ("growth --direct --dataset uniform:1K --store-dir /proc/none", "/proc/none"),
        (
            "run --system fpcache --dataset uniform:1K --store-dir /proc/none --lookups 1K --calibration-buffer 1MiB",
            "/proc/none",
        ),
    ] {
        let output = run(options);
        assert_eq!(output.status.code(), Some(2), "{options}: {}", stdout(&output));
        assert!(stderr(&output).contains(remedy), "{options}: {}", stderr(&output));
    }
}

/// Its folder stayed.
#[test]
fn a_signal_leaves_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().display();
    let options = format!(
        "run --system fpcache --dataset uniform:5K --lookups 1M --calibration-buffer 1MiB --store-dir {store}"
    );
    let mut child = program()
        .args(options.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built");
    let is_empty = || std::fs::read_dir(folder.path()).expect("readable").next().is_none();
    assert!(eventually(|| !is_empty()), "no folder was made");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let status = child.wait().expect("it ended");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    assert!(is_empty());
}
