//! A network that is slow for a moment, while a client connects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncConfig, AsyncTableClient, CacheConfig, Plan, TableClient, TableParameters, U64Keys,
};

use crate::asynchronous::one_thread;
use crate::common::{PATIENCE, TestKeys, load, patient};
use crate::proxies::slow_while;
use crate::remote::Node;

/// What is added to each way while the network is slow.
const ADDED: Duration = Duration::from_millis(5);
/// Calls, and the keys of each.
const CALLS: usize = 100;
const GROUP: usize = 64;

/// A client that took the network for slow, which it no longer is, and the keys of its table.
fn slow_once() -> (Node, TableClient<U64Keys>, Vec<u64>) {
    let node = Node::start();
    node.make::<U64Keys>("t");
    // Keys that no line predicts well, so that windows are long.
    let mut keys: Vec<u64> =
        (0..20_000u64).map(|n| n.wrapping_mul(n).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    keys.sort_unstable();
    keys.dedup();
    let parameters = <U64Keys as TestKeys>::parameters_of(Some(112));
    let parameters = TableParameters { epsilon: 32, ..parameters };
    load(&node.client::<U64Keys>(0, "t", patient()), parameters, keys.iter().copied(), 1).unwrap();
    let is_slow = Arc::new(AtomicBool::new(true));
    let url = slow_while(node.url(), ADDED, &is_slow);
    // Beside a hot cache the memory node is not asked to look keys up.
    let config = patient().with_table("t".parse().unwrap());
    let config = config.with_cache(Some(CacheConfig::of(200_000)));
    let client = TableClient::<U64Keys>::connect_with(&url, config).unwrap();
    client.get(keys[0]).unwrap();
    let expected = client.expected(GROUP).unwrap();
    assert!(expected.round_trip >= 2.0 * ADDED.as_nanos() as f64, "{expected:?}");
    assert_eq!(expected.plan, Plan::Range, "{expected:?}");
    is_slow.store(false, Ordering::SeqCst);
    (node, client, keys)
}

/// The keys of some call, which are seldom those of another.
fn group(keys: &[u64], call: usize) -> Vec<u64> {
    (0..GROUP).map(|at| keys[(call * GROUP + at) * 7919 % keys.len()]).collect()
}

/// Whether the client knows that the network is no longer slow, and reads fewer bytes again: while
/// other work keeps the processors, round trips are not short, and it is right not to.
fn has_noticed(client: &TableClient<U64Keys>, begun: Instant) -> bool {
    let expected = client.expected(GROUP).unwrap();
    assert!(begun.elapsed() < PATIENCE, "{expected:?}");
    let is_fast = expected.is_measured && expected.round_trip < ADDED.as_nanos() as f64;
    is_fast && expected.plan != Plan::Range
}

#[test]
fn a_client_of_long_batches_notices_that_the_network_is_fast_again() {
    let (_node, client, keys) = slow_once();
    let (begun, mut calls) = (Instant::now(), 0..);
    while calls.start < CALLS || !has_noticed(&client, begun) {
        for call in calls.by_ref().take(CALLS) {
            assert!(client.multi_get(&group(&keys, call)).unwrap().iter().all(Option::is_some));
        }
    }
}

#[test]
fn so_does_an_asynchronous_client() {
    one_thread().block_on(async {
        let (_node, client, keys) = slow_once();
        let client = AsyncTableClient::of_with(client, AsyncConfig::default());
        let (begun, mut calls) = (Instant::now(), 0..);
        while calls.start < CALLS || !has_noticed(client.client(), begun) {
            for call in calls.by_ref().take(CALLS) {
                assert!(client.multi_get(&group(&keys, call)).await.unwrap().iter().all(Option::is_some));
            }
        }
    });
}
