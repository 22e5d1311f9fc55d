//! The memory node's process ends with the program, however that ends; a running one can be used; a
//! dead one is named.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::{eventually, json_of, memory_node_in, program, refusal, run, runs, stderr};
use serde_json::Value;

/// Starts a run that lasts until it is disturbed, and waits until it has its memory node.
fn long_run() -> LongRun {
    let arguments =
        "run --dataset uniform:20K --system fpcache --lookups 200K --rounds 1000 --calibration-buffer 1MiB";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = program()
        .args(arguments.split(' '))
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the program was built");
    let mut notes = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while memory_node_in(&line).is_none() {
        line.clear();
        assert!(notes.read_line(&mut line).expect("readable") > 0, "ended without a memory node");
    }
    let node = memory_node_in(&line).expect("found above");
    LongRun { child, node, notes, folder }
}

struct LongRun {
    child: Child,
    node: u32,
    notes: BufReader<ChildStderr>,
    /// A node that is killed leaves its address behind: in here.
    folder: tempfile::TempDir,
}

/// Addresses of memory nodes in a folder for such files.
fn addresses_in(folder: &tempfile::TempDir) -> usize {
    std::fs::read_dir(folder.path().join("fpcache")).expect("made").count()
}

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill is there");
    assert!(status.success());
}

/// A memory node of the test's own, which ends with the test.
struct OwnNode(Child);

impl Drop for OwnNode {
    fn drop(&mut self) {
        signal(self.0.id(), "-TERM");
        self.0.wait().expect("it ended");
    }
}

#[test]
fn killing_the_program_ends_its_memory_node() {
    let LongRun { mut child, node, notes: _notes, folder } = long_run();
    assert!(runs(node));
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(eventually(|| !runs(node)), "the memory node {node} outlives its parent");
    assert_eq!(addresses_in(&folder), 0);
}

/// The memory node had the terminal's signal, or the program's own, and that of the program's end,
/// of which the second ended it at once.
#[test]
fn an_interrupted_program_leaves_no_address_of_its_memory_node_behind() {
    let LongRun { mut child, node, notes: _notes, folder } = long_run();
    assert!(addresses_in(&folder) > 0);
    // It finds both signals when it goes on.
    signal(node, "-STOP");
    let group = format!("-{}", child.id());
    let status = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill is there");
    assert!(status.success());
    child.wait().expect("it ended");
    signal(node, "-CONT");
    assert!(eventually(|| !runs(node)), "the memory node {node} outlives its parent");
    assert_eq!(addresses_in(&folder), 0);
}

#[test]
fn a_memory_node_that_dies_is_named_in_the_error() {
    let LongRun { mut child, node, mut notes, folder: _folder } = long_run();
    signal(node, "-KILL");
    let mut text = String::new();
    notes.read_to_string(&mut text).expect("readable");
    assert_eq!(child.wait().expect("it ended").code(), Some(2), "{text}");
    assert!(text.contains(&format!("the memory node (process {node}) ended during the run")), "{text}");
}

/// A memory node at this address, ready, whose standard error goes there.
fn own_node(url: &str, stderr: Stdio) -> OwnNode {
    let pid = std::process::id().to_string();
    let node = program()
        .args(["memory-node", "--listen", url, "--capacity", "16000000", "--exit-with-parent", &pid])
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .expect("the program was built");
    let mut node = OwnNode(node);
    let mut line = String::new();
    BufReader::new(node.0.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
    assert_eq!(line, "ready\n");
    node
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

#[test]
fn a_running_memory_node_is_loaded_by_ycsb_and_looked_up_in_by_run_over_its_own_transport() {
    let url = format!("tcp://{}", free_address());
    let _node = own_node(&url, Stdio::inherit());
    let options = format!("--dataset uniform:5K --calibration-buffer 1MiB --url {url}");
    let of_ycsb = json_of(&format!("ycsb --workload C --ops 1K --epsilon 12 --value-bytes 16 {options}"));
    assert_eq!((&of_ycsb[0]["epsilon"], &of_ycsb[0]["value_bytes"]), (&12.into(), &16.into()));
    // Its values are those of `ycsb`, so that `run` finds other ones than it looks for.
    let output = run(&format!("run --system fpcache --lookups 1K {options} --json -"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let of_run: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    for row in of_ycsb.iter().chain(&of_run) {
        let nodes = row.get("memory_nodes").expect("a field");
        assert_eq!((&row["transport"], nodes), (&"tcp".into(), &Value::Null));
    }
}

#[test]
fn a_memory_node_that_runs_already_is_used_as_it_is() {
    // Its own capacity and table, as another user would have made them.
    let url = format!("shm://eval-test-{}", std::process::id());
    let _node = own_node(&url, Stdio::inherit());

    let options = format!("--lookups 1K --calibration-buffer 1MiB --url {url}");
    let empty = refusal(&format!("run --dataset uniform:5K {options}"));
    assert!(empty.contains("load"), "{empty}");

    let client = fpcache_client::Client::connect(&url).expect("it listens");
    let dataset = "uniform:5K".parse::<fpcache_datasets::Spec>().expect("a spec");
    let dataset = dataset.open(&Default::default()).expect("generated");
    let shape = fpcache_client::RecordShape::fixed(8, 24);
    let parameters = fpcache_client::TableParameters { shape, epsilon: 12, ..Default::default() };
    let mut load = client.load(parameters, 0).expect("empty");
    for (i, &key) in dataset.keys().iter().enumerate() {
        let mut value = [0; 24];
        fpcache_datasets::write_value(i as u64, &mut value);
        load.push(key, &value).expect("in order");
    }
    load.finish().expect("fits");

    let rows = json_of(&format!("run --dataset uniform:5K {options}"));
    assert_eq!((&rows[0]["epsilon"], &rows[0]["load_s"]), (&12.into(), &Value::Null));
    assert!(rows.iter().all(|row| row["value_bytes"] == 24 && row["mismatches"] == 0));

    // Another data set of the same size is noticed by its answers, one of another size before.
    let other = run(&format!("run --dataset uniform:5K --seed 7 {options}"));
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("WRONG"), "{}", stderr(&other));
    let smaller = refusal(&format!("run --dataset uniform:4K {options}"));
    assert!(smaller.contains("holds 5000 keys"), "{smaller}");
}

#[test]
fn a_memory_node_of_this_program_says_what_it_refuses() {
    let address = free_address();
    let mut node = own_node(&format!("tcp://{address}"), Stdio::piped());
    let mut stranger = TcpStream::connect(address).expect("it listens");
    stranger.write_all(&[b'x'; 256]).expect("connected");
    let lines = BufReader::new(node.0.stderr.take().expect("piped")).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("fpcache-memserver: warning: "));
    assert!(line.is_some(), "it says nothing of a client that it refuses");
}
