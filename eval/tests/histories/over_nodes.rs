//! Tables over three memory nodes: some order of the operations explains what every client was
//! told.

use std::sync::Arc;
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
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_memserver::{Catalogue, CatalogueConfig};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

#[cfg(feature = "rdma")]
use super::linearizability::CARDS;
use super::linearizability::lease_at;

/// A memory node on threads of this process.
struct Node {
    url: String,
    _serving: Serving,
}

const SOCKETS: &str = "tcp://127.0.0.1:0";

impl Node {
    fn new(address: &str) -> Self {
        let config = CatalogueConfig { lease: lease_at(address), ..CatalogueConfig::of(16 << 20) };
        let options = ListenOptions { io_threads: 1, ..ListenOptions::default() };
        let listener = Listener::bind(&[address.parse().unwrap()], options).unwrap();
        let url = listener.addresses()[0].to_string();
        Self { url, _serving: listener.spawn(Catalogue::open(&config).unwrap()).unwrap() }
    }
}

/// Batches of a history: a few unless told otherwise.
fn batches() -> usize {
    std::env::var("FPCACHE_NODES_BATCHES").map_or(4, |text| text.parse().unwrap())
}

fn over_three<K: NumberedKeys>(address: &str, seed: u64) {
    let nodes = [(); 3].map(|()| Node::new(address));
    let urls = nodes.each_ref().map(|node| node.url.clone());
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let name: TableName = "t".parse().unwrap();
    let split_at = [700, 1400].map(K::key);
    let table = Nodes::at(&urls.join(",")).unwrap();
    let begun = table.begin::<K>(&name, &split_at, CreateOptions::default()).unwrap();
    ClientStore::create_table(begun.client(), &keys).unwrap();
    begun.finish().unwrap();
    let base = ClientConfig::default().with_table(name).with_deadline(Duration::from_secs(20));
    // Each has a third of what is kept.
    let all = every_way(base, 256 << 10);
    let processes: Vec<_> = (0..4)
        .map(|i| {
            let (name, config) = &all[(i * 3 + seed as usize) % all.len()];
            let client = TableClient::<K>::connect_with(&urls[i % 3], config.clone()).unwrap();
            let (random, store) =
                (Xoshiro256PlusPlus::seed_from_u64(seed + i as u64), ClientStore::new(client));
            let store = if i % 2 == 0 { store } else { store.with_reader() };
            StressProcess { name: name.clone(), store, random }
        })
        .collect();
    let options = StressOptions { keys, batches: batches(), calls: 600, ..StressOptions::default() };
    let report = stress(&options, processes, nanoseconds_since(Instant::now())).unwrap();
    assert!(report.is_linearizable(), "{} keys, seed {seed}: {report:#?}", K::NAME);
    assert!(report.operations > 1_000, "{report:#?}");
    assert_eq!((report.unknown, report.refused), (0, 0), "{report:#?}");
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
    let urls: Vec<String> = nodes.iter().map(|node| node.url.clone()).collect();
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
    // Neighbours are of one instant within one memory node.
    let as_a_whole = !matches!(over, Over::ThreeNodes(_));
    let options =
        StressOptions { keys, batches: batches(), calls: 600, as_a_whole, ..StressOptions::default() };
    let report = stress(&options, (0..4).map(process).collect(), nanoseconds_since(Instant::now())).unwrap();
    assert!(report.is_linearizable(), "{} keys, seed {seed}: {report:#?}", K::NAME);
    assert!(report.whole > 0 || !as_a_whole, "a batch is decided as a whole: {report:#?}");
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
    over_three::<U64Keys>(SOCKETS, 1);
    over_three::<ByteKeys>(SOCKETS, 2);
}

#[cfg(feature = "rdma")]
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_tasks_and_threads_over_three_memory_nodes_agree_on_an_order() {
    by_tasks::<U64Keys>(Over::OneNode(CARDS), 5);
    by_tasks::<ByteKeys>(Over::ThreeNodes(CARDS), 6);
    over_three::<ByteKeys>(CARDS, 2);
}
