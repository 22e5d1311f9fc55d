//! A memory node that may have few files open: clients and tables share what its log and its
//! snapshots do not need.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Directory, PATIENCE, TestKeys, value_of};
use fpcache_client::{
    ClientConfig, ClientError, CreateOptions, KeyKind, TableClient, TableName, Tables, U64Keys,
};
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, connect};
use fpcache_fabric::{Connection, FabricError};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Daemon, DaemonConfig, DurableConfig};

const DATA: &str = "FPCACHE_DESCRIPTORS_TEST_DATA";
const URL: &str = "FPCACHE_DESCRIPTORS_TEST_URL";
/// Descriptors that the memory node may have.
const LIMIT: usize = 180;

/// Not a test of its own: the memory node that the others start.
#[test]
fn played_by_another_process() {
    let (Ok(data), Ok(url)) = (std::env::var(DATA), std::env::var(URL)) else { return };
    let folders = Folders { data: data.clone().into(), region: data.into() };
    let config = DaemonConfig {
        capacity: 64 << 20,
        exit_with_parent: Some(std::os::unix::process::parent_id()),
        durable: Some(DurableConfig { folders, sync: SyncPolicy::Always }),
        ..DaemonConfig::at(url.parse().unwrap())
    };
    Daemon::open(&config).unwrap().serve().unwrap();
}

struct Node {
    child: Child,
    directory: Directory,
    data: PathBuf,
}

impl Node {
    /// Starts a memory node that may have [`LIMIT`] files open, and waits until it listens.
    fn start() -> Self {
        let directory = Directory::new();
        let data = directory.socket().parent().unwrap().join("data");
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {LIMIT}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "played_by_another_process", "--nocapture"])
            .env(DATA, &data)
            .env(URL, directory.url())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while let Err(error) = Tables::connect(&directory.url()) {
            assert!(error.is_retryable() && begun.elapsed() < PATIENCE, "{error}");
            assert!(child.try_wait().unwrap().is_none(), "the memory node ended at once");
            thread::sleep(Duration::from_millis(2));
        }
        Self { child, directory, data }
    }

    fn open(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn logs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data.join("tables/default")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut logs: Vec<String> = names.filter(|name| name.ends_with(".fpl")).collect();
        logs.sort();
        logs
    }

    fn client(&self) -> TableClient<U64Keys> {
        let config = ClientConfig::default().with_deadline(PATIENCE);
        TableClient::connect_with(&self.directory.url(), config).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As many idle connections as there can be, and the refusal of the next.
fn idle_clients(node: &Node) -> (Vec<impl Connection>, FabricError) {
    let address: ShmAddress = node.directory.url().parse().unwrap();
    let mut idle = Vec::new();
    loop {
        match connect(&address, ConnectOptions::default()) {
            Ok(connection) => idle.push(connection),
            Err(error) => return (idle, error),
        }
    }
}

#[test]
fn idle_clients_take_nothing_from_the_log() {
    let node = Node::start();
    let client = node.client();
    client.create(U64Keys::parameters_of(None)).unwrap();
    client.put(0, b"before").unwrap();
    let (idle, refusal) = idle_clients(&node);
    assert!(
        matches!(refusal, FabricError::TooManyClients { max, .. } if max as usize > idle.len()),
        "{refusal}"
    );
    assert!(refusal.to_string().contains("ulimit -n"), "{refusal}");
    assert!(idle.len() > 40 && node.open() < LIMIT, "{} clients", idle.len());
    // No new client gets in, but every write is as durable as before, over changes of the log's
    // file and a snapshot.
    let first = node.logs();
    for i in 0..84_u64 {
        client.put(i % 4, &value_of(i, 1, 1 << 20)).unwrap();
    }
    assert_ne!(node.logs(), first, "the log has begun its next file");
    assert_eq!(client.get(3).unwrap().unwrap(), value_of(83, 1, 1 << 20));
    // Clients that leave make room.
    let left = idle.len();
    drop(idle);
    let begun = Instant::now();
    while node.open() + left > LIMIT {
        assert!(begun.elapsed() < PATIENCE, "descriptors of clients that have gone are closed");
        thread::sleep(Duration::from_millis(2));
    }
    Tables::connect(&node.directory.url()).unwrap();
}

#[test]
fn tables_leave_descriptors_for_the_log_and_for_clients() {
    let node = Node::start();
    let client = node.client();
    client.create(U64Keys::parameters()).unwrap();
    let tables = Tables::connect(&node.directory.url()).unwrap();
    let name = |i: usize| -> TableName { format!("t{i}").parse().unwrap() };
    let mut made = 0;
    let refusal = loop {
        match tables.create(&name(made), KeyKind::U64, CreateOptions::default()) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        assert!(made < LIMIT, "a table takes descriptors");
    };
    let ClientError::Refused(_) = &refusal else { panic!("{refusal}") };
    for part in ["descriptors", "drop other tables", "ulimit -n"] {
        assert!(refusal.to_string().contains(part), "{part} in {refusal}");
    }
    assert!(made >= 4, "{made}");
    // Each has its memory and its log, and the next client gets in all the same.
    for i in 0..made {
        let table = ClientConfig::default().with_table(name(i)).with_deadline(PATIENCE);
        let table: TableClient<U64Keys> = TableClient::connect_with(&node.directory.url(), table).unwrap();
        table.create(U64Keys::parameters()).unwrap();
        (0..10_u64).for_each(|key| table.put(key, &key.to_le_bytes()).unwrap());
    }
    assert!(node.open() < LIMIT);
    let (idle, refusal) = idle_clients(&node);
    assert!(idle.len() >= 10 && matches!(refusal, FabricError::TooManyClients { .. }), "{refusal}");
    for i in 0..200_u64 {
        client.put(i, &i.to_le_bytes()).unwrap();
    }
    // A table that is dropped makes room for another one.
    drop(idle);
    tables.drop_table(&name(0)).unwrap();
    let begun = Instant::now();
    while let Err(error) = tables.create(&name(made), KeyKind::U64, CreateOptions::default()) {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        thread::sleep(Duration::from_millis(2));
    }
}
