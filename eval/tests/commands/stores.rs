//! Experiments whose memory nodes keep their data: `--store-dir` and `--fsync`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{assert_refused, json_of, memory_node_in, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn rows(options: &str) -> Vec<Value> {
    json_of(&format!("{options} --rounds 1 --calibration-buffer 1MiB"))
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
    let cases = [("--transport local --store-dir /tmp", "omit --transport local")];
    assert_refused("run --dataset ipv4", &cases);
    let nowhere = [("--store-dir /proc/none", "/proc/none")];
    assert_refused("growth --direct --dataset uniform:1K", &nowhere);
    assert_refused("run --system fpcache --dataset uniform:1K --calibration-buffer 1MiB", &nowhere);
}

/// Starts a run that lasts far longer than a signal takes, and waits until its memory node, of which
/// it returns the process id, has made files in a folder.
fn long_run(mut command: Command, folder: &Path) -> (Child, Pid) {
    let options =
        "run --system fpcache --dataset uniform:5K --lookups 1M --rounds 1000 --calibration-buffer 1MiB";
    let mut child = command
        .args(options.split(' '))
        .arg("--store-dir")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let lines = BufReader::new(child.stderr.as_mut().expect("a pipe")).lines();
    let node = lines.map_while(Result::ok).find_map(|line| memory_node_in(&line));
    assert!(!is_empty(folder), "no folder was made");
    (child, Pid::from_raw(node.expect("a memory node") as i32).expect("a process id"))
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("readable").next().is_none()
}

/// Its folder stayed.
#[test]
fn a_signal_leaves_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, _) = long_run(program(), folder.path());
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let status = child.wait().expect("it ended");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    assert!(is_empty(folder.path()));
}

/// It waited for a memory node that did not end, whatever the signal.
#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, node) = long_run(program(), folder.path());
    let told = |signal| kill_process(Pid::from_child(&child), signal).expect("it is waited for below");
    kill_process(node, Signal::STOP).expect("it runs");
    told(Signal::TERM);
    // Those that come at once are the first.
    for _ in 0..10 {
        sleep(Duration::from_millis(100));
        told(Signal::INT);
    }
    let status = child.wait().expect("it ended");
    let _ = kill_process(node, Signal::KILL);
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
}

/// It ended what a script had started in the background.
#[test]
fn ctrl_c_that_is_ignored_stays_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" INT; exec "$0" "$@""#]).arg(program().get_program());
    let (mut child, _) = long_run(shell, folder.path());
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is waited for below");
    let status = child.wait().expect("it ended");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    assert!(is_empty(folder.path()));
}
