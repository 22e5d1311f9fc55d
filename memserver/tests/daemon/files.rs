//! The daemon and its folder: what it says, what it refuses, and what it has again after any end.

mod damage;
mod full_disk;
mod kept;
mod killed;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache::layout::RecordToken;
use fpcache::message::{
    AskedKeys, Request, Sent, WriteBatch, WriteKind, WriteOperation, WriteReply, WriteStatus, decode_reply,
};
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, ShmConnection, connect};
use fpcache_fabric::{Connection, Deadline, RegionName};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A folder for a memory node's data, beside its socket.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn address(&self) -> ShmAddress {
        ShmAddress::at_path(self.0.path().join("node.sock")).unwrap()
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// The folder of the table that there is.
    fn table(&self) -> PathBuf {
        self.data().join("tables/default")
    }

    /// The program with this folder and options separated by spaces, which win.
    fn command(&self, options: &str) -> Command {
        let mut command = crate::program();
        command.arg("--exit-with-parent");
        if !options.contains("--listen") {
            command.arg("--listen").arg(self.address().to_string());
        }
        if !options.contains("--data-dir") {
            command.arg("--data-dir").arg(self.data());
        }
        if !options.contains("--capacity") {
            command.args(["--capacity", "8MiB"]);
        }
        command.args(options.split_whitespace());
        command
    }

    /// Starts it and waits until it listens.
    #[track_caller]
    fn start(&self, options: &str) -> Daemon {
        started(&mut self.command(options))
    }

    /// Starts it where it must refuse, and returns what it says.
    #[track_caller]
    fn refused(&self, options: &str) -> String {
        let Output { status, stdout, stderr } = self.command(options).output().unwrap();
        let (out, error) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!((status.code(), out.as_str()), (Some(2), ""), "{error}");
        error
    }

    /// What a restart of the machine takes.
    fn lose_memory(&self) {
        fs::remove_file(self.table().join("region.fpr")).unwrap();
        fs::remove_file(self.table().join("notes.fpn")).unwrap();
    }

    /// The log's files, in order.
    fn logs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.table()).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "fpl")).collect();
        logs.sort();
        logs
    }

    fn client(&self) -> Client {
        let region = RegionName::new("default").unwrap();
        let connection = connect(&self.address(), ConnectOptions { region, ..Default::default() }).unwrap();
        // A client of its own, as far as the memory node can tell.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let identity = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Client { connection, identity, requests: 0 }
    }
}

/// Starts a daemon and waits until it listens.
#[track_caller]
fn started(command: &mut Command) -> Daemon {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut greeting = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        greeting.extend([line.as_str(), "\n"]);
        if line.starts_with("  next ") {
            return Daemon { child, greeting };
        }
    }
    let ended = child.wait_with_output().unwrap();
    panic!("it ended: {greeting}{}", String::from_utf8_lossy(&ended.stderr));
}

struct Daemon {
    child: Child,
    greeting: String,
}

impl Daemon {
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as a service manager does.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    #[track_caller]
    fn says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.greeting.contains(part), "{part} in {}", self.greeting);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client without the client library, which is built upon this package.
struct Client {
    connection: ShmConnection,
    identity: u64,
    requests: u64,
}

impl Client {
    fn call(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.encode::<U64Keys>(self.connection.creation(), &mut bytes);
        self.connection.call(&bytes, &mut reply, Deadline::after(Duration::from_secs(20))).ok()?;
        Some(decode_reply(&reply).unwrap().to_vec())
    }

    /// Sets a key's value; `None` if the memory node is gone.
    fn put(&mut self, key: u64, value: u64) -> Option<()> {
        self.put_status(key, value).map(|status| assert_eq!(status, WriteStatus::Done))
    }

    /// Asks for a key's value to be set; how that ended, or `None` if the memory node is gone.
    fn put_status(&mut self, key: u64, value: u64) -> Option<WriteStatus> {
        self.requests += 1;
        let mut batch = WriteBatch::default();
        let (kind, expected, value) = (WriteKind::Put, RecordToken::default(), value.to_le_bytes());
        let value = Sent::Here(&value);
        batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
        let body = self.call(&batch.request(self.identity, self.requests, false))?;
        Some(WriteReply::decode(&body).unwrap().status)
    }

    fn get(&self, key: u64) -> Option<u64> {
        let body = self.call(&Request::Get(AskedKeys { count: 1, bytes: &key.to_le_bytes() })).unwrap();
        (body[0] == 0).then(|| u64::from_le_bytes(body[16..24].try_into().unwrap()))
    }
}

/// Keys that are not in the data set `sequential:100`.
const NEW: u64 = 1_000;

/// A store with a data set and some changes, ended cleanly.
fn written(place: &Place) {
    let node = place.start("--load sequential:100");
    node.says(&["found      an empty store", "holds      100 keys"]);
    let mut client = place.client();
    (0..50).for_each(|i| client.put(NEW + i, i).unwrap());
    drop(client);
    node.end();
}

#[track_caller]
fn is_whole(place: &Place) {
    let client = place.client();
    assert!((0..100).all(|key| client.get(key) == Some(key)));
    assert!((0..50).all(|i| client.get(NEW + i) == Some(i)));
}

#[test]
fn a_killed_daemon_goes_on_with_its_memory() {
    for sync in ["always", "10ms", "never"] {
        let place = Place::new();
        let node = place.start(&format!("--load sequential:100 --fsync {sync}"));
        let mut client = place.client();
        (0..50).for_each(|i| client.put(NEW + i, i).unwrap());
        node.kill();
        let node = place.start("");
        node.says(&["found      150 keys in the memory of the previous process", "holds      150 keys"]);
        is_whole(&place);
        node.end();
    }
}

#[test]
fn a_copied_store_is_not_taken_for_the_memory_of_its_process() {
    let place = Place::new();
    let node = place.start("--load sequential:100 --fsync always");
    let mut client = place.client();
    (0..50).for_each(|i| client.put(NEW + i, i).unwrap());
    let copy = Place::new();
    let copied = Command::new("cp").arg("-r").arg(place.data()).arg(copy.data()).status().unwrap();
    assert!(copied.success());
    let second = copy.start("");
    second.says(&["found      150 keys from snapshot-", " and 50 entries", "its files are copies"]);
    is_whole(&copy);
    // Nor is a copy that has taken the place of its original.
    drop(client);
    node.kill();
    second.kill();
    fs::remove_dir_all(place.data()).unwrap();
    let copied = Command::new("cp").arg("-r").arg(copy.data()).arg(place.data()).status().unwrap();
    assert!(copied.success());
    let node = place.start("");
    node.says(&["found      150 keys from snapshot-"]);
    is_whole(&place);
    // But what was moved is the very memory.
    let moved = Place::new();
    fs::rename(copy.data(), moved.data()).unwrap();
    let second = moved.start("");
    second.says(&["found      150 keys in the memory of the previous process"]);
    is_whole(&moved);
}

#[test]
fn kills_at_random_instants_undo_nothing_that_was_acknowledged() {
    let place = Place::new();
    place.start("--load sequential:100").end();
    let (mut acknowledged, mut random) = (0, 88_172_645_463_325_252_u64);
    for round in 0..6 {
        let node = place.start(["--fsync always", "--fsync 10ms", "--fsync never"][round % 3]);
        let mut client = place.client();
        let now = client.get(NEW).unwrap_or(0);
        assert!((acknowledged..=acknowledged + 1).contains(&now), "{now}, {acknowledged} acknowledged");
        // Xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(random % 60_000));
            node.kill();
        });
        acknowledged = now;
        while client.put(NEW, acknowledged + 1).is_some() {
            acknowledged += 1;
        }
        killer.join().unwrap();
    }
}

#[test]
fn a_daemon_that_is_ended_has_its_log_on_the_disk() {
    let place = Place::new();
    let node = place.start("--load sequential:100 --fsync 1000s");
    let mut client = place.client();
    (0..50).for_each(|i| client.put(NEW + i, i).unwrap());
    node.end();
    place.lose_memory();
    let node = place.start("");
    node.says(&["found      150 keys from snapshot-", " and 50 entries of the log"]);
    is_whole(&place);
}

#[test]
fn a_region_keeps_its_size_and_a_new_one_takes_what_is_asked_for() {
    let place = Place::new();
    written(&place);
    let node = place.start("--capacity 16MiB");
    node.says(&[
        "capacity   16.0 MiB\n",
        "region     of default: 8.0 MiB; to change its size",
        "move its region.fpr away",
    ]);
    is_whole(&place);
    node.end();
    fs::remove_file(place.table().join("region.fpr")).unwrap();
    let node = place.start("--capacity 16MiB");
    node.says(&["capacity   16.0 MiB\n", "found      150 keys from snapshot-", "region.fpr is missing"]);
    is_whole(&place);
    node.end();
    // What recovery wrote is as good as what it replaced.
    let node = place.start("--capacity 16MiB");
    node.says(&["found      150 keys in the memory of the previous process"]);
}

#[test]
fn a_region_elsewhere_comes_back_as_well() {
    let shm = Path::new("/dev/shm");
    let within = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let (place, region) = (Place::new(), tempfile::tempdir_in(within).unwrap());
    let options = format!("--region-dir {}", region.path().display());
    place.start(&format!("{options} --load sequential:100")).kill();
    assert!(!place.table().join("region.fpr").exists());
    place.start(&options).says(&["found      100 keys in the memory"]);
}

#[test]
fn a_store_that_is_there_is_not_loaded_again() {
    let place = Place::new();
    written(&place);
    let mut node = place.start("--load sequential:200");
    node.says(&["holds      150 keys"]);
    kill_process(Pid::from_child(&node.child), Signal::TERM).unwrap();
    let mut error = String::new();
    node.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(error.contains("skipping --load sequential:200") && error.contains("150 keys"), "{error}");
}

#[test]
fn every_table_comes_back_with_its_own() {
    let place = Place::new();
    let node = place.start("--load sequential:100 --table numbers");
    node.says(&["table      numbers", "holds      100 keys, u64", "--table numbers scan"]);
    node.end();
    let node = place.start("--load words:50 --table texts");
    node.says(&[
        "table      numbers: 100 keys, u64",
        "table      texts: 50 keys, bytes",
        "found an empty store",
    ]);
    node.kill();
    let node = place.start("");
    node.says(&[
        "numbers: 100 keys, u64",
        "found 100 keys in the memory",
        "texts: 50 keys, bytes",
        "found 50 keys in",
    ]);
    assert!(!place.table().exists(), "there is no need of a default");
    node.kill();
    // One of them that is damaged is named, and the other served.
    let descriptor = place.data().join("tables/texts/table.fpt");
    let whole = fs::read(&descriptor).unwrap();
    fs::write(&descriptor, &whole[..40]).unwrap();
    let node = place.start("");
    node.says(&["table      numbers", "found      100 keys in the memory"]);
    node.says(&["closed     texts: ", "table.fpt", "40 bytes", "move the table's folder away"]);
    // Its records are whole.
    assert!(!node.greeting.contains("drop texts"), "{}", node.greeting);
    node.kill();
    let error = place.refused("--load words:50 --table texts");
    for part in ["the table `texts` exists", "closed", "table.fpt", "restart the memory node"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // So it is where all there are are damaged, and none is made in their place.
    fs::rename(place.data().join("tables/numbers"), place.0.path().join("away")).unwrap();
    for options in ["", "--table texts"] {
        let node = place.start(options);
        node.says(&["closed     texts: ", "table.fpt", "40 bytes", "move the table's folder away"]);
        node.says(&[" tables\n"]);
        assert!(!node.greeting.contains("\n  table "), "{}", node.greeting);
        node.end();
    }
    fs::rename(place.0.path().join("away"), place.data().join("tables/numbers")).unwrap();
    fs::write(&descriptor, &whole).unwrap();
    let node = place.start("");
    node.says(&["texts: 50 keys, bytes", "found 50 keys in"]);
    assert!(!node.greeting.contains("closed"));
}

#[test]
fn tables_that_are_there_keep_what_they_have_where_the_capacity_has_become_less() {
    let place = Place::new();
    place.start("--load sequential:20K").end();
    let node = place.start("--capacity 256KiB");
    node.says(&["capacity   256.0 KiB, of which existing tables use", "holds      20000 keys"]);
    assert_eq!(place.client().get(19_999), Some(19_999));
}

#[test]
fn a_second_start_takes_no_longer_than_the_first() {
    let place = Place::new();
    place.start("--load sequential:50K").kill();
    let begun = Instant::now();
    place.start("").says(&["found      50000 keys in the memory"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn the_greeting_says_for_how_many_there_is_room_by_whichever_limit_is_reached_first() {
    let place = Place::new();
    let tcp = "--listen tcp://127.0.0.1:0";
    let node = place.start(&format!("{tcp} --max-connections 2"));
    node.says(&["room       2 connections over sockets (--max-connections), or "]);
    node.says(&["tokens     not required at tcp://127.0.0.1:", "(--require-token)"]);
    node.end();
    let node = place.start(&format!("--listen {} {tcp}", place.address()));
    node.says(&[" clients by shared memory and ", " connections over sockets", "open files, ulimit -n"]);
    node.end();
}

#[test]
fn a_daemon_raises_its_own_limit_of_open_files_and_says_what_it_leaves_room_for() {
    let place = Place::new();
    let limited = |limit: &str| {
        let daemon = place.command("");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        command
    };
    let node = started(&mut limited("-S -n 40"));
    node.says(&["room  ", "clients, or", "more tables", "open files, ulimit -n"]);
    node.end();
    let Output { status, stderr, .. } = limited("-n 100").output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert!(
        status.code() == Some(2) && error.contains("100 files") && error.contains("LimitNOFILE="),
        "{error}"
    );
}

#[test]
fn a_daemon_that_lets_others_in_says_where_they_find_it() {
    let place = Place::new();
    let name = format!("shm://test-others-{}", std::process::id());
    let node = place.start(&format!("--listen {name} --allow-user 65534"));
    let user = rustix::process::geteuid().as_raw();
    node.says(&[&format!("address    {name}\n"), &format!("others     {name}@{user}, for the users")]);
    node.end();
}
