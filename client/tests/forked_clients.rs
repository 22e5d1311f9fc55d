//! A client that is used on both sides of a fork: no write of a child is lost or taken for
//! another's, the parent's connection stays as it is, and a memory node that stayed in the parent
//! is told by an error.
//!
//! Each test plays in a process of its own, which has no threads but the client's: the test's
//! executable once more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Directory, ProcessNode, TestKeys, value_in};
use fpcache_client::{
    ByteKeys, CacheConfig, Client, ClientConfig, ClientError, RecordShape, TableClient, Tables, U64Keys,
};
use fpcache_fabric::FabricError;
use rustix::process::{Pid, WaitOptions, waitpid};

const CHILDREN: u64 = 8;
const LOADED: u64 = 2_000;

/// A process that was forked from this one.
struct Forked(Pid);

impl Forked {
    /// Has a child do `work`, which fails by panicking. The child ends after it, without the test
    /// harness's end.
    fn child(work: impl FnOnce()) -> Self {
        // SAFETY: of this process's threads none but this one and those of clients, which only
        // sleep in poll(2), is there: the child finds no lock taken, neither the allocator's nor
        // another. It ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no process");
        let Some(child) = Pid::from_raw(child) else {
            let ended = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends the process, without running what the parent has registered for its end.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        };
        Self(child)
    }

    /// Waits for its end, not for ever, and says whether its work succeeded.
    fn succeeds(self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < common::PATIENCE {
            if let Some((_, status)) = waitpid(Some(self.0), WaitOptions::NOHANG).unwrap() {
                return status.exit_status() == Some(0);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::KILL);
        panic!("a child hangs");
    }
}

const PART: &str = "FPCACHE_CLIENT_TEST_FORK";

/// The part that this process is to play, if it was started for one.
fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Runs the test `name` of this file in another process, where `part` says what it is to do.
fn in_another_process(name: &str, part: &str) {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .output()
        .unwrap();
    let (said, text) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("1 passed"), "{said}{text}");
}

/// The memory node, in a process of its own.
#[test]
fn played_by_another_process() {
    common::be_a_memory_node();
}

fn value<K: TestKeys>(number: u64, edition: u64) -> Vec<u8> {
    let shape: RecordShape = K::shape(Some(8));
    value_in(&shape, number, edition)
}

/// What each child does with the client of its parent: `own` numbers no one else has.
fn live_on<K: TestKeys>(client: &TableClient<K>, own: u64) {
    // As python's children do, with the first write at once; and with the first read.
    if own.is_multiple_of(2) {
        assert_eq!(client.get(K::key(1)).unwrap(), Some(value::<K>(1, 1)));
    }
    client.put(K::key(own), &value::<K>(own, 2)).unwrap();
    assert_eq!(client.get(K::key(own)).unwrap(), Some(value::<K>(own, 2)));
    assert!(client.insert(K::key(own + 1), &value::<K>(own + 1, 2)).unwrap().is_new());
    let mut pipeline = client.pipeline(2).unwrap();
    for number in own + 2..own + 10 {
        pipeline.put(K::key(number), &value::<K>(number, 2)).unwrap();
    }
    assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));
    assert_eq!(client.scan(K::key(own), 10).unwrap().len(), 10);
    assert!(client.stats().unwrap().keys >= LOADED);
}

fn children_write_for_themselves<K: TestKeys>(url: &str) {
    let config = ClientConfig::default().with_cache(CacheConfig::of(1 << 20));
    let client = TableClient::<K>::connect_with(url, config).unwrap();
    let tables = Tables::connect(url).unwrap();
    common::load(&client, K::parameters(), (0..LOADED).map(|number| number << 20 | 1), 1).unwrap();
    client.put(K::key(1), &value::<K>(1, 1)).unwrap();
    assert_eq!(client.get(K::key(1)).unwrap(), Some(value::<K>(1, 1)));
    let mut reader = client.reader();
    assert_eq!(reader.get(K::key(1)).unwrap(), Some(value::<K>(1, 1)));
    // Lanes that children find, and a write that is under way while they are made.
    let mut pipeline = client.pipeline(2).unwrap();
    pipeline.put(K::key(2), &value::<K>(2, 1)).unwrap();
    let own = |child: u64| (1 << 40) + (child << 8);
    let children: Vec<Forked> = (0..CHILDREN)
        .map(|child| {
            Forked::child(|| {
                if child == 0 {
                    // One that does nothing but end, and drops everything.
                    return;
                }
                if child == 1 {
                    let error = pipeline.next().unwrap().outcome.unwrap_err();
                    assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
                    pipeline.put(K::key(own(child) + 20), &value::<K>(3, 3)).unwrap();
                    assert!(pipeline.next().unwrap().outcome.is_ok());
                }
                if child == 2 {
                    // One whose first call is by the parent's reader.
                    assert_eq!(reader.get(K::key(1)).unwrap(), Some(value::<K>(1, 1)));
                }
                live_on(&client, own(child));
                assert_eq!(reader.get(K::key(own(child))).unwrap(), Some(value::<K>(own(child), 2)));
                assert_eq!(reader.scan(K::key(own(child)), 10).unwrap().len(), 10);
                assert_eq!(tables.list().unwrap().tables.len(), 1);
                // And their children.
                let grandchild = Forked::child(|| live_on(&client, own(child + 100)));
                client.put(K::key(own(child) + 10), &value::<K>(7, 7)).unwrap();
                assert!(grandchild.succeeds());
            })
        })
        .collect();
    // The parent goes on.
    for number in 10..200 {
        client.put(K::key(number), &value::<K>(number, 3)).unwrap();
        assert_eq!(client.get(K::key(number)).unwrap(), Some(value::<K>(number, 3)));
        assert_eq!(reader.get(K::key(number)).unwrap(), Some(value::<K>(number, 3)));
    }
    let all = children.into_iter().map(Forked::succeeds).collect::<Vec<_>>();
    assert_eq!(all, [true; CHILDREN as usize]);
    assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));
    for writer in (1..CHILDREN).flat_map(|child| [child, child + 100]) {
        for number in own(writer)..own(writer) + 10 {
            let found = client.get(K::key(number)).unwrap();
            assert_eq!(found, Some(value::<K>(number, 2)), "record {number:x} of {writer}");
        }
    }
    client.put(K::key(3), &value::<K>(3, 4)).unwrap();
    assert_eq!(tables.list().unwrap().tables.len(), 1);
    assert_eq!(client.counters().reconnects, 0, "nobody has hung up on the parent");
    // Children that have ended leave no connections behind: the lanes', the tables' and the
    // client's are left.
    let begun = Instant::now();
    while client.stats().unwrap().clients > 3 {
        assert!(begun.elapsed() < common::PATIENCE, "{} clients", client.stats().unwrap().clients);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn forked<K: TestKeys>(name: &str) {
    match part() {
        Some(url) => children_write_for_themselves::<K>(&url),
        None => {
            let directory = Directory::new();
            let node = ProcessNode::start::<K>(&directory, 32 << 20);
            in_another_process(name, &directory.url());
            drop(node);
        }
    }
}

#[test]
fn of_forked_children_each_write_is_made_and_the_parent_keeps_its_connection() {
    forked::<U64Keys>("of_forked_children_each_write_is_made_and_the_parent_keeps_its_connection");
}

#[test]
fn so_it_is_with_keys_that_are_byte_strings() {
    forked::<ByteKeys>("so_it_is_with_keys_that_are_byte_strings");
}

#[test]
fn a_memory_node_that_stayed_in_the_parent_is_told_by_an_error() {
    if part().is_none() {
        let name = "a_memory_node_that_stayed_in_the_parent_is_told_by_an_error";
        return in_another_process(name, "embedded");
    }
    let client = Client::embedded(16 << 20).unwrap();
    common::load(&client, U64Keys::parameters(), 0..LOADED, 1).unwrap();
    let mut reader = client.reader();
    assert!(reader.contains(1).unwrap());
    let child = Forked::child(|| {
        let begun = Instant::now();
        let left_behind = |error: ClientError| {
            assert!(matches!(error, ClientError::Fabric(FabricError::LeftBehind { .. })), "{error}");
            assert!(!error.is_retryable() && error.to_string().contains("forked"), "{error}");
        };
        left_behind(client.get(1).unwrap_err());
        left_behind(reader.get(1).unwrap_err());
        left_behind(reader.multi_get_u64(&[1], &mut [0], &mut [false]).unwrap_err());
        left_behind(client.put(1, &[1; 8]).unwrap_err());
        left_behind(client.stats().unwrap_err());
        left_behind(client.pipeline(2).map(drop).unwrap_err());
        assert!(begun.elapsed() < Duration::from_secs(15));
        drop(client.clone());
    });
    assert!(child.succeeds());
    let ending = client.clone();
    assert!(Forked::child(move || drop(ending)).succeeds(), "one that drops its handle");
    client.put(1, &[7; 8]).unwrap();
    assert_eq!(reader.get(1).unwrap(), Some(vec![7; 8]));
    assert_eq!(client.get(1).unwrap(), Some(vec![7; 8]));
    assert_eq!(client.counters().reconnects, 0);
}
