//! Tables over three memory nodes, of which one or another ends and is started again meanwhile:
//! some order of the operations explains what every client was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncTableClient, ByteKeys, ClientConfig, CreateOptions, KeyKind, Nodes, TableClient, TableName, Tables,
    U64Keys,
};
use fpcache_eval::history::client::{ClientStore, every_way};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::nanoseconds_since;
use fpcache_eval::history::stress::{StressOptions, StressProcess, stress};
use fpcache_eval::history::tasks::TaskStore;
use fpcache_fabric::Serving;
use fpcache_fabric::tcp::{ListenOptions, Listener, TcpAddress};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

#[cfg(feature = "rdma")]
use super::linearizability::CARDS;
use super::linearizability::lease_at;

/// A memory node on threads of this process, whose tables outlive it.
struct Node {
    folder: tempfile::TempDir,
    address: TcpAddress,
    serving: Option<Serving>,
}

const SOCKETS: &str = "tcp://127.0.0.1:0";

impl Node {
    fn new(address: &str) -> Self {
        let (folder, address) = (tempfile::tempdir().unwrap(), address.parse().unwrap());
        let mut node = Self { folder, address, serving: None };
        node.start();
        node
    }

    fn start(&mut self) {
        let data = self.folder.path().to_owned();
        let folders = Folders { region: data.join("region"), data };
        let durable = Some((folders, SyncPolicy::Never));
        let lease = lease_at(&self.address.to_string());
        let config = CatalogueConfig { durable, lease, ..CatalogueConfig::of(16 << 20) };
        let options = ListenOptions { io_threads: 1, ..ListenOptions::default() };
        let listener = Listener::bind(std::slice::from_ref(&self.address), options).unwrap();
        self.address = listener.addresses()[0].clone();
        self.serving = Some(listener.spawn(Catalogue::open(&config).unwrap()).unwrap());
    }

    fn stop(&mut self) {
        drop(self.serving.take());
    }
}

/// Batches of a history: a few unless told otherwise.
fn batches() -> usize {
    std::env::var("FPCACHE_NODES_BATCHES").map_or(4, |text| text.parse().unwrap())
}

fn over_three<K: NumberedKeys>(address: &str, restarts: bool, seed: u64) {
    let mut nodes = [(); 3].map(|()| Node::new(address));
    let urls = nodes.each_ref().map(|node| node.address.to_string());
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let name: TableName = "t".parse().unwrap();
    let split_at = [700, 1400].map(K::key);
    let table = Nodes::at(&urls.join(",")).unwrap();
    let begun = table.begin::<K>(&name, &split_at, CreateOptions::default()).unwrap();
    ClientStore::create_table(begun.client(), &keys).unwrap();
    begun.finish().unwrap();
    let deadline = Duration::from_secs(if restarts { 2 } else { 20 });
    let base = ClientConfig::default().with_table(name).with_deadline(deadline);
    // Each has a third of what is kept.
    let all = every_way(base, 256 << 10);
    let processes: Vec<_> = (0..4)
        .map(|i| {
            let (name, config) = &all[(i * 3 + seed as usize) % all.len()];
            let client = TableClient::<K>::connect_with(&urls[i % 3], *config).unwrap();
            let (random, store) =
                (Xoshiro256PlusPlus::seed_from_u64(seed + i as u64), ClientStore::new(client));
            let store = if i % 2 == 0 { store } else { store.with_reader() };
            StressProcess { name: name.clone(), store, random }
        })
        .collect();
    // A memory node that is away refuses at once: as many as fill the time until it is back.
    let options = StressOptions {
        keys,
        batches: batches(),
        calls: 600,
        attempts: 1_000_000,
        ..StressOptions::default()
    };
    let is_over = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let nodes = &mut nodes;
        let is_over = &is_over;
        scope.spawn(move || {
            for which in (0..3).cycle() {
                thread::sleep(Duration::from_millis(150));
                if !restarts || is_over.load(Ordering::Relaxed) {
                    return;
                }
                nodes[which].stop();
                thread::sleep(Duration::from_millis(20));
                nodes[which].start();
            }
        });
        let report = stress(&options, processes, nanoseconds_since(Instant::now()));
        is_over.store(true, Ordering::Relaxed);
        report.unwrap()
    });
    assert!(report.is_linearizable(), "{} keys, seed {seed}: {report:#?}", K::NAME);
    assert!(report.operations > 1_000, "{report:#?}");
    if !restarts {
        assert_eq!((report.unknown, report.refused), (0, 0), "{report:#?}");
    }
}

/// Where tasks find a table: in their process, or on memory nodes that listen at such an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    SharedMemory,
    OneNode(&'static str),
    ThreeNodes(&'static str),
}

/// Tasks of one client, whose reads share groups and whose changes share requests.
fn by_tasks<K: NumberedKeys>(over: Over, seed: u64) {
    let nodes: Vec<Node> = match over {
        Over::SharedMemory => Vec::new(),
        Over::OneNode(address) => vec![Node::new(address)],
        Over::ThreeNodes(address) => (0..3).map(|_| Node::new(address)).collect(),
    };
    let urls: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let config = ClientConfig::default().with_deadline(Duration::from_secs(20));
    let kind = if KeyKind::U64.is::<K>() { KeyKind::U64 } else { KeyKind::Bytes };
    let name: TableName = "t".parse().unwrap();
    let client = match over {
        Over::SharedMemory => TableClient::<K>::embedded_with(8 << 20, config).unwrap(),
        Over::OneNode(_) => {
            let tables = Tables::connect(&urls[0]).unwrap();
            tables.create(&name, kind, CreateOptions::default()).unwrap();
            TableClient::connect_with(&urls[0], config.with_table(name)).unwrap()
        }
        Over::ThreeNodes(_) => {
            let all = Nodes::at(&urls.join(",")).unwrap();
            let split_at = [700, 1400].map(K::key);
            all.begin::<K>(&name, &split_at, CreateOptions::default()).unwrap().finish().unwrap()
        }
    };
    ClientStore::create_table(&client, &keys).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = Arc::new(runtime.unwrap());
    let client = runtime.block_on(async { AsyncTableClient::of(client) });
    let process = |i: u64| StressProcess {
        name: "tasks".to_owned(),
        store: TaskStore::new(Arc::clone(&runtime), client.clone()),
        random: Xoshiro256PlusPlus::seed_from_u64(seed + i),
    };
    let options = StressOptions { keys, batches: batches(), calls: 600, ..StressOptions::default() };
    let report = stress(&options, (0..4).map(process).collect(), nanoseconds_since(Instant::now())).unwrap();
    assert!(report.is_linearizable(), "{} keys, seed {seed}: {report:#?}", K::NAME);
    assert_eq!((report.unknown, report.refused), (0, 0), "{report:#?}");
}

#[test]
fn tasks_of_one_client_agree_on_an_order() {
    for over in [Over::SharedMemory, Over::OneNode(SOCKETS), Over::ThreeNodes(SOCKETS)] {
        by_tasks::<U64Keys>(over, 5);
        by_tasks::<ByteKeys>(over, 6);
    }
}

#[test]
fn clients_of_three_memory_nodes_agree_on_an_order() {
    over_three::<U64Keys>(SOCKETS, false, 1);
    over_three::<ByteKeys>(SOCKETS, false, 2);
}

#[test]
fn so_they_do_while_one_or_another_of_the_three_is_started_again() {
    over_three::<U64Keys>(SOCKETS, true, 3);
    over_three::<ByteKeys>(SOCKETS, true, 4);
}

#[cfg(feature = "rdma")]
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_tasks_and_threads_over_three_memory_nodes_agree_on_an_order() {
    by_tasks::<U64Keys>(Over::OneNode(CARDS), 5);
    by_tasks::<ByteKeys>(Over::ThreeNodes(CARDS), 6);
    over_three::<ByteKeys>(CARDS, false, 2);
    // Each at a port of its own, which it keeps.
    over_three::<U64Keys>(CARDS, true, 3);
}
