//! A memory node in a second process is killed, stopped, ended and replaced: no answer is ever
//! wrong.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, ProcessNode, TestKeys, scattered, value_of};
use fpcache_client::{Client, ClientConfig, ClientError, ErrorKind, TableClient, U64Keys};
use rustix::process::Signal;

const CAPACITY: usize = 4 << 20;

for_both_kinds_of_keys!(
    a_memory_node_killed_in_the_midst_of_lookups,
    the_next_call_after_a_restart_answers_from_the_new_node,
    lookups_need_nothing_of_the_memory_nodes_processor,
    a_client_that_accepts_what_a_kill_has_lost_goes_on_with_an_empty_table_and_no_other_does,
);

/// Keys of both editions, and one of each that the other lacks.
struct Editions {
    keys: Vec<u64>,
}

impl Editions {
    fn new() -> Self {
        Self { keys: scattered(3000) }
    }

    /// In no edition but this one.
    fn own_key(&self, edition: u64) -> u64 {
        self.keys[100] + edition
    }

    fn load<K: TestKeys>(&self, client: &TableClient<K>, edition: u64) {
        let mut keys = self.keys.clone();
        keys.push(self.own_key(edition));
        keys.sort_unstable();
        crate::common::load(client, K::parameters(), keys, edition).unwrap();
    }
}

/// What the threads of a test know of the memory node's lives.
struct Watch {
    /// The edition that calls must answer from if it was there before they began.
    loaded: AtomicU64,
    done: AtomicBool,
    answers: AtomicU64,
    errors: AtomicU64,
}

impl Watch {
    /// Makes one call: an answer must come from an edition not older than the one that was there
    /// when it began, an error must say that it is worth another try.
    fn check<R>(&self, call: impl FnOnce() -> Result<R, ClientError>, is_right: impl Fn(&R, u64) -> bool) {
        let before = self.loaded.load(Ordering::SeqCst);
        match call() {
            Ok(answer) => {
                assert!(
                    (before..=2).any(|edition| is_right(&answer, edition)),
                    "an answer of edition {before} or later"
                );
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn look_up<K: TestKeys>(&self, client: &TableClient<K>, editions: &Editions, first: usize) {
        let keys = &editions.keys;
        let mut i = first;
        while !self.done.load(Ordering::Relaxed) {
            i = (i + 7) % (keys.len() - 20);
            let (key, group) = (keys[i], &keys[i..i + 20]);
            let asked: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
            self.check(|| client.get(K::key(key)), |value, e| *value == Some(value_of(key, e, 8)));
            self.check(|| client.contains(K::key(key)), |found, _| *found);
            self.check(|| client.contains(K::key(editions.own_key(1))), |found, e| *found == (e == 1));
            let values = |e| group.iter().map(|k| Some(value_of(*k, e, 8))).collect::<Vec<_>>();
            self.check(|| client.multi_get(&asked), |answers, e| *answers == values(e));
            self.check(
                || client.scan(K::key(key), 5),
                |records, e| {
                    let is_right = |(k, v): &(K::Owned, Vec<u8>)| {
                        let number = K::number(k.borrow());
                        number != editions.own_key(3 - e) && *v == value_of(number, e, 8)
                    };
                    records.len() == 5 && records.iter().all(is_right)
                },
            );
        }
    }

    fn wait_for(&self, counter: &AtomicU64, more: u64) {
        let (begun, before) = (Instant::now(), counter.load(Ordering::Relaxed));
        while counter.load(Ordering::Relaxed) < before + more {
            assert!(begun.elapsed() < PATIENCE, "threads have stopped");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn client_of<K: TestKeys>(directory: &Directory) -> TableClient<K> {
    TableClient::connect_with(&directory.url(), ClientConfig::default()).unwrap()
}

fn a_memory_node_killed_in_the_midst_of_lookups<K: TestKeys>() {
    let directory = Directory::new();
    let editions = Editions::new();
    let mut node = ProcessNode::start::<K>(&directory, CAPACITY);
    let client = client_of::<K>(&directory);
    editions.load(&client, 1);
    let watch = Watch {
        loaded: AtomicU64::new(1),
        done: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let (watch, client, editions) = (&watch, &client, &editions);
                scope.spawn(move || watch.look_up(client, editions, i * 500))
            })
            .collect();
        let guide = || {
            watch.wait_for(&watch.answers, 200);
            node.kill();
            assert!(directory.socket().exists(), "nobody was left to remove it");
            watch.wait_for(&watch.errors, 20);
            // Replaces the stale socket.
            node = ProcessNode::start::<K>(&directory, CAPACITY);
            watch.wait_for(&watch.errors, 20);
            editions.load(&client, 2);
            watch.loaded.store(2, Ordering::SeqCst);
            watch.wait_for(&watch.answers, 200);
        };
        let guided = std::panic::catch_unwind(std::panic::AssertUnwindSafe(guide));
        watch.done.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        guided.unwrap();
    });
    let (own, other) = (editions.own_key(2), editions.own_key(1));
    assert_eq!(client.get(K::key(own)).unwrap(), Some(value_of(own, 2, 8)));
    assert_eq!(client.get(K::key(other)).unwrap(), None);
}

/// Calls until the client has heard that its memory node is gone, and returns what it says then.
/// The operating system tells it within moments; until then it reads what the memory node left
/// behind.
fn until_noticed<K: TestKeys>(client: &TableClient<K>, key: u64, edition: u64) -> ClientError {
    let begun = Instant::now();
    loop {
        match client.get(K::key(key)) {
            Ok(value) => assert_eq!(value, Some(value_of(key, edition, 8))),
            Err(error) => return error,
        }
        assert!(begun.elapsed() < PATIENCE, "still answering");
    }
}

fn the_next_call_after_a_restart_answers_from_the_new_node<K: TestKeys>() {
    let directory = Directory::new();
    let editions = Editions::new();
    let mut node = ProcessNode::start::<K>(&directory, CAPACITY);
    let client = client_of::<K>(&directory);
    editions.load(&client, 1);
    let key = editions.keys[5];
    assert_eq!(client.get(K::key(key)).unwrap(), Some(value_of(key, 1, 8)));
    let first_life = client.stats().unwrap().incarnation;

    node.kill();
    assert!(until_noticed(&client, key, 1).is_retryable());
    node = ProcessNode::start::<K>(&directory, CAPACITY);
    editions.load(&client_of::<K>(&directory), 2);
    assert_eq!(client.get(K::key(key)).unwrap(), Some(value_of(key, 2, 8)));
    assert_eq!(client.get(K::key(editions.own_key(1))).unwrap(), None);
    assert_ne!(client.stats().unwrap().incarnation, first_life);

    // A first call that is a request reconnects as well.
    node.kill();
    assert!(until_noticed(&client, key, 2).is_retryable());
    node = ProcessNode::start::<K>(&directory, CAPACITY);
    assert_eq!(client.stats().unwrap().keys, 0);
    let error = client.get(K::key(key)).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("load"), "{error}");
    drop(node);
}

#[test]
fn a_memory_node_told_to_end_ends_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = Directory::new();
        let mut node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
        let client = Client::connect(&directory.url()).unwrap();
        let editions = Editions::new();
        editions.load(&client, 1);
        assert!(directory.socket().exists());
        node.signal(signal);
        let status = node.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(!directory.socket().exists(), "it leaves no socket behind");
        let error = until_noticed(&client, editions.keys[0], 1);
        assert!(error.is_retryable() && error.to_string().contains("start one"), "{error}");
    }
}

fn lookups_need_nothing_of_the_memory_nodes_processor<K: TestKeys>() {
    let directory = Directory::new();
    let editions = Editions::new();
    let node = ProcessNode::start::<K>(&directory, CAPACITY);
    let client = client_of::<K>(&directory);
    editions.load(&client, 1);
    node.pause();
    for key in editions.keys.iter().step_by(10) {
        assert_eq!(client.get(K::key(*key)).unwrap(), Some(value_of(*key, 1, 8)));
    }
    assert_eq!(client.scan(K::key(0), 100).unwrap().len(), 100);
    // Requests do, and give up in time.
    let begun = Instant::now();
    let error = client.with_deadline(Duration::from_millis(50)).stats().unwrap_err();
    assert!(error.is_retryable() && begun.elapsed() < Duration::from_secs(5), "{error}");
    node.signal(Signal::CONT);
    assert_eq!(client.stats().unwrap().keys, 3001);
}

#[test]
fn an_address_in_use_is_refused_with_who_uses_it() {
    use fpcache_memserver::{Daemon, DaemonConfig};
    let directory = Directory::new();
    let node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
    let config = DaemonConfig { capacity: 1 << 20, ..DaemonConfig::at(directory.address()) };
    let error = Daemon::open(&config).unwrap_err().to_string();
    assert!(error.contains(&node.child.id().to_string()) && error.contains("another address"), "{error}");
    Client::connect(&directory.url()).expect("the first one is unharmed");
}

#[test]
fn opening_waits_for_a_memory_node_that_starts_later_if_asked() {
    let directory = Directory::new();
    let config = ClientConfig::default();
    let begun = Instant::now();
    let error = Client::connect_with(&directory.url(), config.clone().with_wait(Duration::from_millis(100)))
        .unwrap_err();
    assert!(error.is_retryable() && begun.elapsed() >= Duration::from_millis(100), "{error}");
    let begun = Instant::now();
    let error = Client::connect_with("shm://no?name", config.clone().with_wait(PATIENCE)).unwrap_err();
    assert!(!error.is_retryable() && begun.elapsed() < PATIENCE / 2, "waiting does not mend that: {error}");
    thread::scope(|scope| {
        let open = scope.spawn(|| Client::connect_with(&directory.url(), config.with_wait(PATIENCE)));
        let wait = scope.spawn(|| fpcache_client::wait_for_node(&directory.url(), PATIENCE));
        thread::sleep(Duration::from_millis(30));
        let _node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
        wait.join().unwrap().unwrap();
        assert_eq!(open.join().unwrap().unwrap().get(5).unwrap(), None);
    });
}

/// A write that was on its way waits for a successor, which knows its outcome, until its deadline;
/// all others do not.
#[test]
fn writes_to_a_memory_node_that_was_killed_fail_at_once_but_for_the_one_under_way() {
    let directory = Directory::new();
    let mut node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
    let deadline = Duration::from_secs(2);
    let client =
        Client::connect_with(&directory.url(), ClientConfig::default().with_deadline(deadline)).unwrap();
    Editions::new().load(&client, 1);
    node.child.kill().unwrap();
    let begun = Instant::now();
    let error = client.put(5, &[5; 8]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Retry), "{error}");
    assert!(begun.elapsed() < deadline * 2, "{error}");
    let begun = Instant::now();
    for _ in 0..20 {
        let error = client.put(6, &[6; 8]).unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    assert!(begun.elapsed() < deadline * 5, "{:?}", begun.elapsed());
    node.child.wait().unwrap();
}

fn a_client_that_accepts_what_a_kill_has_lost_goes_on_with_an_empty_table_and_no_other_does<K: TestKeys>() {
    let directory = Directory::new();
    let over_sockets = format!("tcp+unix://{}", directory.other_socket().display());
    for url in [directory.url(), over_sockets] {
        let mut node = ProcessNode::start::<K>(&directory, CAPACITY);
        let connect = || TableClient::<K>::connect_with(&url, ClientConfig::default()).unwrap();
        let (accepting, other) = (connect(), connect());
        let key = || K::key(7);
        crate::common::load(&accepting, K::parameters(), [7], 1).unwrap();
        assert_eq!(other.get(key()).unwrap(), Some(value_of(7, 1, 8)));
        node.kill();
        node = ProcessNode::start::<K>(&directory, CAPACITY);
        for client in [&accepting, &other] {
            let begun = Instant::now();
            while !matches!(client.get(key()), Err(ClientError::Emptied)) {
                assert!(begun.elapsed() < PATIENCE, "it is told of the loss, not {:?}", client.get(key()));
            }
        }
        accepting.accept_loss();
        assert_eq!(accepting.get(key()).unwrap(), None);
        assert!(matches!(other.put(key(), &[1; 8]), Err(ClientError::Emptied)), "it has accepted nothing");
        accepting.put(key(), &value_of(7, 2, 8)).unwrap();
        assert_eq!(other.get(key()).unwrap(), Some(value_of(7, 2, 8)));
        node.kill();
    }
}
