//! Clients whose calls have less time than it takes to fetch the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{Client, ClientError, TableClient, U64Keys};

use crate::common::{PATIENCE, TestKeys, load, patient, value_in};
use crate::proxies::stand_before;
use crate::remote::Node;

/// What is added to each way.
const ADDED: Duration = Duration::from_millis(20);
/// Four round trips and a half: time to connect and to look a key up. What it takes to fetch the
/// table are five, after that of the socket.
const DEADLINE: Duration = Duration::from_millis(180);
const KEYS: u64 = 4_000;

/// A memory node that is far away, and how often connections to it were cut.
struct Far {
    node: Node,
    url: String,
    cuts: Arc<AtomicUsize>,
}

impl Far {
    fn start() -> Self {
        let node = Node::start();
        node.make::<U64Keys>("t");
        let near = node.client::<U64Keys>(0, "t", patient());
        load(&near, <U64Keys as TestKeys>::parameters(), (0..KEYS).map(|n| n << 20), 1).unwrap();
        let cuts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&cuts);
        let url = stand_before(node.url(), move || {
            let (counted, begun) = (Arc::clone(&counted), counted.load(Ordering::SeqCst));
            move |_, _: &[u8]| {
                thread::sleep(ADDED);
                counted.load(Ordering::SeqCst) == begun
            }
        });
        let far = Self { node, url, cuts };
        // Its log has something to read.
        far.split(0, 1);
        far
    }

    fn near(&self) -> TableClient<U64Keys> {
        self.node.client(0, "t", patient())
    }

    /// A client whose calls are short once it is connected.
    fn client(&self) -> Client {
        let config = patient().with_table("t".parse().unwrap());
        Client::connect_with(&self.url, config).unwrap().with_deadline(DEADLINE)
    }

    /// Has the segments of those keys replaced.
    fn split(&self, from: u64, keys: u64) {
        let near = self.near();
        for key in (from..from + keys).flat_map(|n| (1..64).map(move |m| (n << 20) + m)) {
            near.put(key, &value(key)).unwrap();
        }
    }
}

fn value(key: u64) -> Vec<u8> {
    value_in(&U64Keys::shape(Some(8)), key, 1)
}

/// Calls until one succeeds, which may take some more of them where other work keeps the processors.
fn in_the_end<R>(mut call: impl FnMut() -> Result<R, ClientError>) -> R {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(answer) => return answer,
            // The writes here may be repeated.
            Err(error) => assert!(
                (error.is_retryable() || error.may_have_taken_effect()) && begun.elapsed() < PATIENCE,
                "{error}"
            ),
        }
    }
}

/// Each call began to fetch the table anew, and none came to its end.
#[test]
fn reads_of_a_client_with_short_deadlines_succeed_in_the_end() {
    let far = Far::start();
    let client = far.client();
    assert!(client.get(1 << 20).is_err(), "the deadline is shorter than the fetch");
    assert_eq!(in_the_end(|| client.get(1 << 20)), Some(value(1 << 20)));
    assert_eq!(in_the_end(|| client.scan(1 << 20, 1)), [(1 << 20, value(1 << 20))]);
    // As after a restart of the memory node.
    far.cuts.fetch_add(1, Ordering::SeqCst);
    assert_eq!(in_the_end(|| client.get(2 << 20)), Some(value(2 << 20)));
    assert!(client.counters().reconnects > 0);
}

#[test]
fn so_do_writes_which_do_not_wait_for_the_table() {
    let far = Far::start();
    let client = far.client();
    for key in [7, 8] {
        in_the_end(|| client.put(key, &[key as u8; 8]));
        far.cuts.fetch_add(1, Ordering::SeqCst);
    }
    assert_eq!(far.near().multi_get(&[7, 8]).unwrap(), [Some(vec![7; 8]), Some(vec![8; 8])]);
}

#[test]
fn so_do_reads_of_one_that_fell_behind_the_whole_change_log() {
    let far = Far::start();
    let client = far.client();
    in_the_end(|| client.get(1 << 20));
    let table = in_the_end(|| client.table());
    let near = far.near();
    let mut keys = 0;
    while near.stats().unwrap().log_head < 2 * table.record.log_records + table.record.checkpoint {
        far.split(keys, 20);
        keys += 20;
    }
    assert_eq!(in_the_end(|| client.get(1 << 20)), Some(value(1 << 20)));
    assert_eq!(in_the_end(|| client.get(5)), Some(value(5)));
}
