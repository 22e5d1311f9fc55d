//! Tables over three memory nodes that are processes of their own, one or another of which is
//! killed at any instant, or told to end, and started again on its folder: some order of the
//! operations explains what tasks, and threads, were told.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{AsyncTableClient, ByteKeys, ClientConfig, CreateOptions, Nodes, TableClient, U64Keys};
use fpcache_eval::history::client::{ClientStore, every_way_over_sockets};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::nanoseconds_since;
use fpcache_eval::history::store::Store;
use fpcache_eval::history::stress::{StressOptions, StressProcess, stress};
use fpcache_eval::history::tasks::TaskStore;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::process::{Pid, Signal, kill_process};

use crate::support;

/// A memory node's process, which is killed if the test fails, and what it goes on with.
struct Node {
    folder: tempfile::TempDir,
    url: String,
    sync: &'static str,
    process: Option<Child>,
}

/// How memory nodes are reached.
#[derive(Clone, Copy)]
enum Reached {
    Sockets,
    #[cfg(feature = "rdma")]
    Cards,
}

impl Reached {
    /// Calls of a thread: over cards in a guest they take ten times as long.
    fn calls(self) -> usize {
        match self {
            Self::Sockets => 600,
            #[cfg(feature = "rdma")]
            Self::Cards => 150,
        }
    }
}

impl Node {
    fn new(reached: Reached, sync: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match reached {
            Reached::Sockets => format!("tcp+unix://{}", folder.path().join("node.sock").display()),
            #[cfg(feature = "rdma")]
            Reached::Cards => {
                let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
                format!("rdma://{}", free.unwrap())
            }
        };
        let mut node = Self { folder, url, sync, process: None };
        node.start();
        node
    }

    /// Starts it and waits until it listens.
    fn start(&mut self) {
        let mut command = support::program();
        command.args(["memory-node", "--exit-with-parent", &std::process::id().to_string(), "--store-dir"]);
        command.arg(self.folder.path().join("data"));
        command.args(["--listen", &self.url, "--capacity", "16777216", "--fsync", self.sync]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let is_last = |line: &String| line == "ready" || line.starts_with("  next ");
        let is_ready = output.lines().map_while(Result::ok).any(|line| is_last(&line));
        assert!(is_ready, "the memory node ended: {:?}", child.wait());
        self.process = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Tells it to end, and waits until it has.
    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        assert!(process.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills one after another, or now and then ends it, and starts it again, until it is over; counts
/// both.
fn end_over_and_over(nodes: &mut [Node], seed: u64, is_over: &AtomicBool, ends: &AtomicUsize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let nap = |most: u64, random: &mut Xoshiro256PlusPlus| {
        thread::sleep(Duration::from_micros(random.random_range(0..most)));
    };
    while !is_over.load(Ordering::Relaxed) {
        nap(200_000, &mut random);
        let which = random.random_range(0..nodes.len());
        match ends.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => nodes[which].end(),
            _ => nodes[which].kill(),
        }
        nap(30_000, &mut random);
        nodes[which].start();
    }
}

/// Kills while these stores' calls are judged.
fn survives<K: NumberedKeys, S: Store>(
    reached: Reached,
    sync: &'static str,
    seed: u64,
    stores: impl FnOnce(&[String; 3], ClientConfig, TableClient<K>) -> Vec<(String, S)>,
) {
    let mut nodes = [(); 3].map(|()| Node::new(reached, sync));
    let urls = nodes.each_ref().map(|node| node.url.clone());
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let config = ClientConfig::default().with_deadline(Duration::from_secs(2));
    let config = config.with_table("t".parse().unwrap());
    let all = Nodes::at(&urls.join(",")).unwrap();
    let split_at = [700, 1400].map(K::key);
    let begun = all.begin::<K>(&config.table, &split_at, CreateOptions::default()).unwrap();
    ClientStore::create_table(begun.client(), &keys).unwrap();
    begun.finish().unwrap();
    let client = TableClient::<K>::connect_with(&urls[0], config.clone()).unwrap();
    let processes = (0u64..).zip(stores(&urls, config, client)).map(|(i, (name, store))| StressProcess {
        name,
        store,
        random: Xoshiro256PlusPlus::seed_from_u64(seed << 8 | i),
    });
    let options = StressOptions {
        keys,
        batches: std::env::var("FPCACHE_KILLS").map_or(4, |text| text.parse().unwrap()),
        calls: reached.calls(),
        // A memory node that is away refuses at once: as many as fill the time until it is back.
        attempts: 1_000_000,
        ..StressOptions::default()
    };
    let (is_over, ends) = (AtomicBool::new(false), AtomicUsize::new(0));
    let report = thread::scope(|scope| {
        let killer = scope.spawn(|| end_over_and_over(&mut nodes, seed, &is_over, &ends));
        let report = stress(&options, processes.collect(), nanoseconds_since(Instant::now()));
        is_over.store(true, Ordering::Relaxed);
        killer.join().unwrap();
        report.unwrap()
    });
    let ends = ends.into_inner();
    eprintln!(
        "{} keys, --fsync {sync}: {ends} kills and ends, {} operations, {} open, {} refused",
        K::NAME,
        report.operations,
        report.unknown,
        report.refused
    );
    assert!(report.is_linearizable(), "{} keys, --fsync {sync}, seed {seed}: {report:#?}", K::NAME);
    assert!(report.operations > 1_000 && ends > 1, "{ends} kills and ends: {report:#?}");
}

/// Tasks of one client, whose reads share groups and whose changes share requests.
fn tasks_survive<K: NumberedKeys>(reached: Reached, sync: &'static str, seed: u64) {
    survives::<K, _>(reached, sync, seed, |_, _, client| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = Arc::new(runtime.unwrap());
        let client = runtime.block_on(async { AsyncTableClient::of(client) });
        let store = || TaskStore::new(Arc::clone(&runtime), client.clone());
        (0..4).map(|_| ("tasks".to_owned(), store())).collect()
    });
}

/// Threads with a client each, which read in every way that there is over sockets.
fn threads_survive<K: NumberedKeys>(reached: Reached, sync: &'static str, seed: u64) {
    survives::<K, _>(reached, sync, seed, |urls, config, _| {
        let ways = every_way_over_sockets(config, 256 << 10);
        let store = |i: usize| {
            let (name, config) = &ways[(i * 3 + seed as usize) % ways.len()];
            let store =
                ClientStore::new(TableClient::<K>::connect_with(&urls[i % 3], config.clone()).unwrap());
            (name.clone(), if i.is_multiple_of(2) { store } else { store.with_reader() })
        };
        // Each is told of the whole table by another memory node.
        (0..4).map(store).collect()
    });
}

#[test]
fn what_tasks_were_told_outlives_kills_of_any_of_three_memory_nodes() {
    tasks_survive::<U64Keys>(Reached::Sockets, "never", 1);
    tasks_survive::<ByteKeys>(Reached::Sockets, "always", 2);
}

#[test]
fn what_threads_were_told_outlives_kills_of_any_of_three_memory_nodes() {
    threads_survive::<U64Keys>(Reached::Sockets, "10ms", 3);
    threads_survive::<ByteKeys>(Reached::Sockets, "never", 4);
}

#[cfg(feature = "rdma")]
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_what_was_told_outlives_kills_of_any_of_three_memory_nodes() {
    tasks_survive::<ByteKeys>(Reached::Cards, "never", 1);
    threads_survive::<U64Keys>(Reached::Cards, "10ms", 3);
}
