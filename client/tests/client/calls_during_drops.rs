//! Calls to a table while it is being dropped: they are told that it is gone, or go on in another of
//! its name, before the memory node hangs up.

use std::sync::atomic::Ordering;

#[cfg(feature = "tokio")]
use crate::asynchronous::one_thread;
use crate::common::{PATIENCE, TestKeys, value_in};
use crate::drop_and_create::{Executed, Node, Over, STATS, make, name};
#[cfg(feature = "tokio")]
use fpcache_client::AsyncTableClient;
use fpcache_client::{Changes, ClientError, TableClient};

for_both_kinds_of_keys!(
    changes_of_a_table_that_is_being_dropped_are_refused_at_once,
    calls_of_a_table_that_was_dropped_are_told_so_at_once_or_go_on_in_another,
    a_lane_of_a_table_that_was_dropped_does_not_end_the_session_in_another,
    a_load_that_looked_at_one_table_does_not_insert_into_another,
);

/// A call, by what it is.
type Call<K> = (&'static str, fn(&TableClient<K>) -> Result<(), ClientError>);

fn record<K: TestKeys>() -> (K::Owned, Vec<u8>) {
    (K::key(5), value_in(&K::shape(Some(8)), 5, 2))
}

fn reads<K: TestKeys>() -> Vec<Call<K>> {
    vec![
        ("get", |client| client.get(K::key(7)).map(drop)),
        ("stats", |client| client.stats().map(drop)),
        ("multi_get", |client| client.multi_get(&[K::key(7), K::key(8)]).map(drop)),
        ("scan", |client| client.scan(K::key(0), 10).map(drop)),
        #[cfg(feature = "tokio")]
        ("an awaited get", |client| {
            let client = client.clone();
            one_thread().block_on(async { AsyncTableClient::of(client).get(K::key(7)).await.map(drop) })
        }),
    ]
}

fn changes<K: TestKeys>() -> Vec<Call<K>> {
    vec![
        ("put", |client| {
            let (key, value) = record::<K>();
            client.put(key, &value)
        }),
        ("apply", |client| {
            let ((key, value), mut changes) = (record::<K>(), Changes::default());
            changes.put(key, &value);
            client.apply(&changes, &mut Vec::new())
        }),
        ("pipeline", |client| {
            let ((key, value), mut pipeline) = (record::<K>(), client.pipeline(2)?);
            pipeline.put(key, &value)?;
            pipeline.finish().pop().unwrap().outcome.map(drop)
        }),
        #[cfg(feature = "tokio")]
        ("an awaited put", |client| {
            let ((key, value), client) = (record::<K>(), client.clone());
            one_thread().block_on(async { AsyncTableClient::of(client).put(key, &value).await })
        }),
    ]
}

/// Makes each call with a client of its own, one that has made it before, and expects to be told
/// that there is no such table; `stops` is what becomes of the table in between.
fn are_told_at_once<K: TestKeys>(node: &Node, calls: &[Call<K>], stops: impl FnOnce()) {
    let client = || node.client::<K>().with_deadline(PATIENCE);
    let clients: Vec<_> = calls.iter().map(|_| client()).collect();
    calls.iter().zip(&clients).for_each(|((_, call), client)| call(client).unwrap());
    stops();
    let mut otherwise = Vec::new();
    for ((what, call), client) in calls.iter().zip(&clients) {
        // What the first one finds does not keep the second one from finding it.
        for _ in 0..2 {
            let ended = call(client);
            if !matches!(ended, Err(ClientError::NoSuchTable { .. })) {
                otherwise.push((what, ended));
            }
        }
    }
    assert!(otherwise.is_empty(), "{otherwise:?}");
}

/// They waited for the end of the drop, and were told of their deadline if that came first.
fn changes_of_a_table_that_is_being_dropped_are_refused_at_once<K: TestKeys>() {
    for over in [Over::SharedMemory, Over::Sockets] {
        let node = Node::start_over::<K>(over, K::parameters());
        are_told_at_once(&node, &changes::<K>(), || node.halts.refuses.store(true, Ordering::Relaxed));
    }
}

/// They waited to be hung up on.
fn calls_of_a_table_that_was_dropped_are_told_so_at_once_or_go_on_in_another<K: TestKeys>() {
    for over in [Over::SharedMemory, Over::Sockets] {
        let node = Node::start_over::<K>(over, K::parameters());
        let calls = [reads::<K>(), changes::<K>()].concat();
        let clients: Vec<_> = calls.iter().map(|_| node.client::<K>().with_deadline(PATIENCE)).collect();
        calls.iter().zip(&clients).for_each(|((_, call), client)| call(client).unwrap());
        are_told_at_once(&node, &calls, || {
            node.halts.keeps_clients.store(true, Ordering::Relaxed);
            node.tables.drop_table(&name()).unwrap();
        });
        node.make_anew::<K>(3);
        for ((what, call), client) in calls.iter().zip(&clients) {
            call(client).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = client.get(K::key(7)).unwrap();
            assert_eq!(found, Some(value_in(&K::shape(Some(8)), 7, 3)), "{what}");
        }
        assert_eq!(node.client::<K>().get(K::key(5)).unwrap(), Some(record::<K>().1));
    }
}

/// The change was put together for the other table, again and again, each time over a new session
/// and for the connection of the one that was dropped.
fn a_lane_of_a_table_that_was_dropped_does_not_end_the_session_in_another<K: TestKeys>() {
    for over in [Over::SharedMemory, Over::Sockets] {
        let node = Node::start_over::<K>(over, K::parameters());
        let client = node.client::<K>().with_deadline(PATIENCE);
        let put = || {
            let ((key, value), mut pipeline) = (record::<K>(), client.pipeline(2).unwrap());
            pipeline.put(key, &value).unwrap();
            pipeline.finish().pop().unwrap().outcome
        };
        put().unwrap();
        node.halts.keeps_clients.store(true, Ordering::Relaxed);
        node.tables.drop_table(&name()).unwrap();
        node.make_anew::<K>(3);
        assert_eq!(client.get(K::key(7)).unwrap(), Some(value_in(&K::shape(Some(8)), 7, 3)));
        let before = client.counters().reconnects;
        put().unwrap();
        // The lane's.
        assert_eq!(client.counters().reconnects, before + 1);
        assert_eq!(client.get(K::key(5)).unwrap(), Some(record::<K>().1));
    }
}

/// The former table had no records, and those of the load were inserted among the other one's.
fn a_load_that_looked_at_one_table_does_not_insert_into_another<K: TestKeys>() {
    for over in [Over::SharedMemory, Over::Sockets] {
        let node = Node::start_over::<K>(over, K::parameters());
        node.client::<K>().delete(K::key(7)).unwrap();
        let client = node.client::<K>().with_deadline(PATIENCE);
        let renew = |catalogue: &mut _| make::<K>(catalogue, K::parameters());
        let ended = node.renew_during((STATS, Executed::Answered), renew, || {
            let ((key, value), mut load) = (record::<K>(), client.load(K::parameters(), 1)?);
            load.push(key, &value)?;
            load.finish()
        });
        let error = ended.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(node.client::<K>().stats().unwrap().keys, 1);
    }
}
