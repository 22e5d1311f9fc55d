//! One handle serves many threads; each call keeps to its deadline.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{ThreadNode, scattered, value_of};
use fpcache::key_space::U64Keys;
use fpcache::layout::{SlotState, SlotWord};
use fpcache::snapshot::Snapshot;
use fpcache_client::{Answers, Client, ErrorKind, TableParameters};
use fpcache_fabric::Connection;
use fpcache_fabric::shm::{ConnectOptions, connect};

const EDITION: u64 = 3;

fn loaded_node(keys: &[u64]) -> ThreadNode {
    let node = ThreadNode::start(4 << 20);
    common::load(&node.client(), TableParameters::default(), keys.iter().copied(), EDITION).unwrap();
    node
}

fn value(key: u64) -> Vec<u8> {
    value_of(key, EDITION, 8)
}

/// Looks keys up in every way there is, starting at the `first`-th one.
fn look_up_everything(client: &Client, keys: &[u64], first: usize) {
    let mut answers = Answers::new();
    for i in (first..keys.len()).step_by(8) {
        let key = keys[i];
        assert_eq!(client.get(key).unwrap(), Some(value(key)));
        assert!(client.contains(key).unwrap());
        assert!(!client.contains(key ^ 1).unwrap());
        if i % 64 == first {
            let group: Vec<u64> = keys[i..].iter().copied().take(20).chain([key ^ 1]).collect();
            client.multi_get_into(&group, &mut answers).unwrap();
            assert_eq!(answers.len(), group.len());
            let (absent, present) = group.split_last().unwrap();
            assert_eq!(answers.value(present.len()), None, "{absent}");
            present.iter().zip(answers.values()).for_each(|(k, v)| assert_eq!(v, Some(&value(*k)[..])));
            let scanned = client.scan(key, 20).unwrap();
            assert!(scanned.iter().map(|(k, _)| *k).eq(keys[i..].iter().copied().take(20)));
        }
    }
}

#[test]
fn eight_threads_share_one_handle() {
    let keys = scattered(4000);
    let node = loaded_node(&keys);
    let client = node.client();
    thread::scope(|scope| {
        for first in 0..8 {
            let (client, keys) = (&client, &keys);
            scope.spawn(move || look_up_everything(client, keys, first));
        }
    });
}

#[test]
fn a_clone_serves_a_thread_that_outlives_the_handle() {
    let keys = scattered(500);
    let node = loaded_node(&keys);
    let client = node.client();
    let clone = client.clone();
    let asking = thread::spawn(move || look_up_everything(&clone, &keys, 0));
    drop(client);
    asking.join().unwrap();
}

/// Where the slot and the fingerprint of `key` lie in the region.
fn place_of(node: &ThreadNode, key: u64) -> (u64, u64) {
    let connection = connect(&node.directory.address(), ConnectOptions::default()).unwrap();
    let snapshot = Snapshot::<U64Keys>::open(&mut connection.endpoint()).unwrap();
    let segment = snapshot.models().resident().unwrap().locate(&key).unwrap().entry;
    let (model, geometry) = (segment.model(), snapshot.geometry());
    let window = model.window(key);
    for index in window.first..=window.last {
        let slot = segment.address().offset() + geometry.slot_offset(model.cap, index) as u64;
        let mut stored = [0; 8];
        node.region.read_bytes(slot + 8, &mut stored).unwrap();
        if stored == key.to_le_bytes() && node.region.load_relaxed(slot).unwrap() & 3 == 2 {
            return (slot, segment.address().offset() + 32 + 8 * u64::from(index));
        }
    }
    panic!("key {key} lies outside its window")
}

#[test]
fn a_record_that_stays_busy_fails_within_the_deadline_and_alone() {
    let keys = scattered(2000);
    let node = loaded_node(&keys);
    let client = node.client();
    let (slot, _) = place_of(&node, keys[1000]);
    let live = node.region.load_relaxed(slot).unwrap();
    node.region.store_relaxed(slot, SlotWord::new(SlotState::Busy, 1, 0).to_bits()).unwrap();

    let short = Duration::from_millis(100);
    let hurried = client.with_deadline(short);
    let calls: [(&str, &dyn Fn() -> bool); 4] = [
        ("get", &|| hurried.get(keys[1000]).is_err_and(|e| e.kind() == ErrorKind::Retry)),
        ("contains", &|| hurried.contains(keys[1000]).is_err_and(|e| e.is_retryable())),
        ("multi_get", &|| hurried.multi_get(&keys[999..1002]).is_err_and(|e| e.is_retryable())),
        ("scan", &|| hurried.scan(keys[990], 20).is_err_and(|e| e.to_string().contains("being written"))),
    ];
    for (name, fails) in calls {
        let begun = Instant::now();
        assert!(fails(), "{name}");
        let took = begun.elapsed();
        assert!(took >= short && took < Duration::from_secs(10), "{name} took {took:?}");
    }
    assert_eq!(hurried.get(keys[0]).unwrap(), Some(value(keys[0])));
    assert_eq!(hurried.get(keys[1999]).unwrap(), Some(value(keys[1999])));

    // It settles while a patient caller waits.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get(keys[1000]));
        thread::sleep(Duration::from_millis(20));
        node.region.store_release(slot, live).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), Some(value(keys[1000])));
    });
}

#[test]
fn a_directory_that_one_thread_keeps_renewing_costs_the_others_no_answer() {
    let keys = scattered(20_000);
    let node = loaded_node(&keys);
    let client = node.client();
    // A record that sends whoever reads it to the directory, again and again.
    let stale = keys[19_990];
    let (slot, fingerprint) = place_of(&node, stale);
    node.region.store_relaxed(fingerprint, u64::MAX).unwrap();
    node.region.store_relaxed(slot, SlotWord::new(SlotState::Frozen, 1, 0).to_bits()).unwrap();

    let renewing = AtomicBool::new(true);
    thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|first| {
                let (client, keys) = (&client, &keys);
                // Far from the stale segment.
                scope.spawn(move || look_up_everything(client, &keys[..4000], first))
            })
            .collect();
        scope.spawn(|| {
            let hurried = client.with_deadline(Duration::from_millis(5));
            while renewing.load(Ordering::Relaxed) {
                // The segment stays frozen: at last the memory node's processor is asked, whatever it says.
                let _ = hurried.get(stale);
            }
            assert!(client.counters().retries > 0);
        });
        let answers: Vec<_> = asking.into_iter().map(|thread| thread.join()).collect();
        renewing.store(false, Ordering::Relaxed);
        answers.into_iter().for_each(|answer| answer.expect("right answers"));
    });
}
