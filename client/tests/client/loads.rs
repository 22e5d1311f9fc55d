//! The end of a load, whose answer may be lost, and loads that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::message::{ErrorCode, Refusal, Request, encode_reply};
use fpcache_client::{ClientConfig, ClientError, ErrorKind, Load, TableClient, U64Keys};
use fpcache_fabric::{Handled, Service};
use fpcache_memserver::MemoryNode;

use crate::common::{Meddled, TestKeys, ThreadNode, load, patient};
use crate::proxies::{Towards, stand_before};
use crate::remote::{Node, relay_to};

/// Longer than any request here but the chunk of records.
const SHORT: usize = 512;

/// It was told as a failure that may be repeated, though all records were there.
#[test]
fn a_load_whose_end_is_not_answered_is_of_unknown_outcome() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let (ends, is_silent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (ending, silent) = (Arc::clone(&ends), Arc::clone(&is_silent));
    // Says nothing from the request on that ends the load.
    let url = stand_before(node.url(), move || {
        let (ending, silent) = (Arc::clone(&ending), Arc::clone(&silent));
        move |towards, bytes: &[u8]| {
            if towards == Towards::Node && bytes.len() < SHORT && ending.load(Ordering::SeqCst) {
                silent.store(true, Ordering::SeqCst);
            }
            while towards == Towards::Client && silent.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    let config = patient().with_table("t".parse().unwrap());
    let client = TableClient::<U64Keys>::connect_with(&url, config.with_deadline(Duration::from_secs(3)));
    let client = client.unwrap();
    let mut load = client.load(<U64Keys as TestKeys>::parameters(), 0).unwrap();
    (0..1_000u64).for_each(|key| load.push(key, &key.to_le_bytes()).unwrap());
    ends.store(true, Ordering::SeqCst);
    let error = load.finish().unwrap_err();
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }) && !error.is_retryable(), "{error}");
    assert!(is_silent.load(Ordering::SeqCst), "it was the end that was not answered");
    is_silent.store(false, Ordering::SeqCst);
    ends.store(false, Ordering::SeqCst);
    assert_eq!(node.client::<U64Keys>(0, "t", patient()).stats().unwrap().keys, 1_000);
}

/// It was told as if nothing were there, though all records were.
#[test]
fn a_load_that_did_not_reach_the_disk_is_of_unknown_outcome() {
    let node = ThreadNode::<U64Keys>::serving(4 << 20, |node| {
        Meddled::new(node, |node, client, request, reply| {
            let is_end = matches!(Request::decode::<U64Keys>(0, request), Ok(Request::LoadCommit(_)));
            let handled = node.handle(client, request, reply);
            if is_end {
                assert_eq!(handled, Handled::Now);
                encode_reply(Err(&Refusal::new(ErrorCode::NotDurable, "the disk is full")), reply);
            }
            handled
        })
    });
    let client = node.client();
    let error = load(&client, <U64Keys as TestKeys>::parameters(), 0..100, 1).unwrap_err();
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
    assert!(error.kind() == ErrorKind::Unknown && error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(client.stats().unwrap().keys, 100);
}

/// Has a client make a load that fails, and then another one, of which half is sent.
fn with_a_failed_load_and_another(then: impl FnOnce(&TableClient<U64Keys>, Load<'_>, Load<'_>)) {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let client = node.client::<U64Keys>(0, "t", patient());
    let begin = || client.load(<U64Keys as TestKeys>::parameters_of(None), 0).unwrap();
    let mut failed = begin();
    // Values go ahead of their records, until there is no room for one.
    let error = (0..4u64).find_map(|key| failed.push(key, &vec![7; 15 << 20]).err()).unwrap();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    let mut load = begin();
    // More than a chunk.
    (0..60_000u64).for_each(|key| load.push(key, &key.to_le_bytes()).unwrap());
    then(&client, failed, load);
}

#[test]
fn a_load_that_failed_takes_no_other_load_of_its_client_with_it() {
    with_a_failed_load_and_another(|_, failed, mut load| {
        drop(failed);
        (60_000..120_000u64).for_each(|key| load.push(key, &key.to_le_bytes()).unwrap());
        assert_eq!(load.finish().unwrap().keys, 120_000);
    });
}

#[test]
fn the_end_of_a_load_that_failed_makes_no_other_load_of_its_client_visible() {
    with_a_failed_load_and_another(|client, failed, load| {
        let error = failed.finish().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("does not hold these records") && !error.is_retryable(), "{text}");
        assert_eq!(client.stats().unwrap().keys, 0);
        assert_eq!(load.finish().unwrap().keys, 60_000);
    });
}

/// To clean up had all of the time once more.
#[test]
fn a_load_that_is_not_answered_ends_soon_after_its_deadline() {
    const DEADLINE: Duration = Duration::from_secs(4);
    let node = Node::start();
    node.make::<U64Keys>("t");
    let (url, holds) = relay_to(node.url());
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(DEADLINE);
    let client = TableClient::<U64Keys>::connect_with(&url, config).unwrap();
    holds.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let error = load(&client, <U64Keys as TestKeys>::parameters(), 0..100, 1).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(began.elapsed() < DEADLINE * 7 / 4, "{:?}", began.elapsed());
    holds.store(false, Ordering::Relaxed);
}

/// All records of the chunk were shown, up to a MiB of them.
#[test]
fn a_load_that_is_shown_shows_no_records() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = patient().with_table("t".parse().unwrap());
    let client = TableClient::<U64Keys>::connect_with(node.url(), config).unwrap();
    let mut load = client.load(<U64Keys as TestKeys>::parameters(), 0).unwrap();
    for key in 0..10_000u64 {
        load.push(key, &key.to_le_bytes()).unwrap();
    }
    let shown = format!("{load:?}");
    assert!(shown.len() < 300 && shown.contains("waiting: 10000"), "{shown}");
}

/// A memory node that refuses, once, to do the request after the first `done` ones of a kind.
fn refusing_one(
    is_meant: impl Fn(&Request<'_>) -> bool + Send + 'static,
    done: usize,
) -> ThreadNode<U64Keys> {
    let mut seen = 0;
    ThreadNode::serving(32 << 20, |node: MemoryNode<U64Keys>| {
        Meddled::new(node, move |node, client, request, reply| {
            seen += usize::from(Request::decode::<U64Keys>(0, request).is_ok_and(|it| is_meant(&it)));
            if seen != done + 1 {
                return node.handle(client, request, reply);
            }
            seen += 1;
            encode_reply(Err(&Refusal::new(ErrorCode::Busy, "later")), reply);
            Handled::Now
        })
    })
}

/// Pushes records until there is an error.
fn push_until_error(load: &mut Load<'_>) -> (u64, ClientError) {
    (0..1_000_000u64).find_map(|key| Some((key, load.push(key, &key.to_le_bytes()).err()?))).unwrap()
}

/// The error could be retried, and then records were missing from the load or were there twice.
#[test]
fn a_load_that_failed_takes_no_more_records() {
    let node = refusing_one(|request| matches!(request, Request::LoadChunk(..)), 0);
    let client = node.client();
    let mut load = client.load(<U64Keys as TestKeys>::parameters(), 0).unwrap();
    // One that does not fit is left out.
    let error = load.push(0, b"longer than eight").unwrap_err();
    assert!(matches!(error, ClientError::ValueSize { .. }), "{error}");
    let (key, error) = push_until_error(&mut load);
    // All of the load can be repeated, but nothing of it.
    assert!(error.is_retryable(), "{error}");
    for _ in 0..2 {
        let error = load.push(key, &key.to_le_bytes()).unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains("later"), "{error}");
    }
    let error = load.finish().unwrap_err();
    assert!(!error.is_retryable() && !error.may_have_taken_effect(), "{error}");
    assert_eq!(client.stats().unwrap().keys, 0);
    let again = crate::common::load(&client, <U64Keys as TestKeys>::parameters(), 0..1_000, 1);
    assert_eq!(again.unwrap().keys, 1_000);
}

/// It was told as if the load could be repeated, whose first records were there.
#[test]
fn a_load_that_failed_when_some_records_were_inserted_is_of_unknown_outcome() {
    let node = refusing_one(|request| matches!(request, Request::Write(_)), 1);
    let client = node.client();
    client.create(<U64Keys as TestKeys>::parameters()).unwrap();
    let mut load = client.load(<U64Keys as TestKeys>::parameters(), 0).unwrap();
    let (key, error) = push_until_error(&mut load);
    let there = client.stats().unwrap().keys;
    assert!((1..=key).contains(&there), "{there} of {key}");
    for error in [error, load.push(key, &key.to_le_bytes()).unwrap_err(), load.finish().unwrap_err()] {
        assert!(error.may_have_taken_effect() && !error.is_retryable(), "{error}");
        assert!(error.to_string().contains(&format!("{there} records are loaded, but not all")), "{error}");
    }
    assert_eq!(client.stats().unwrap().keys, there);
}
