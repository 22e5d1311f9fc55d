//! One handle serves many threads; each call keeps to its deadline.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{TestKeys, ThreadNode, scattered, value_of};
use fpcache::layout::{SEGMENT_HEADER_BYTES, SlotState, SlotWord, Stored};
use fpcache::read::cache_probe;
use fpcache::table_view::TableView;
use fpcache_client::{Answers, ErrorKind, TableClient};
use fpcache_fabric::Connection;
use fpcache_fabric::shm::connect;

for_both_kinds_of_keys!(
    eight_threads_share_one_handle,
    a_clone_serves_a_thread_that_outlives_the_handle,
    a_record_that_stays_busy_fails_within_the_deadline_and_alone,
    a_directory_that_one_thread_keeps_renewing_costs_the_others_no_answer,
);

const EDITION: u64 = 3;

fn loaded_node<K: TestKeys>(keys: &[u64]) -> ThreadNode<K> {
    let node = ThreadNode::start(8 << 20);
    crate::common::load(&node.client(), K::parameters(), keys.iter().copied(), EDITION).unwrap();
    node
}

fn value(key: u64) -> Vec<u8> {
    value_of(key, EDITION, 8)
}

/// Looks keys up in every way there is, starting at the `first`-th one.
fn look_up_everything<K: TestKeys>(client: &TableClient<K>, keys: &[u64], first: usize) {
    let mut answers = Answers::new();
    for i in (first..keys.len()).step_by(8) {
        let key = keys[i];
        assert_eq!(client.get(K::key(key)).unwrap(), Some(value(key)));
        assert!(client.contains(K::key(key)).unwrap());
        assert!(!client.contains(K::key(key ^ 1)).unwrap());
        if i % 64 == first {
            let group: Vec<u64> = keys[i..].iter().copied().take(20).chain([key ^ 1]).collect();
            let asked: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
            client.multi_get_into(&asked, &mut answers).unwrap();
            assert_eq!(answers.len(), group.len());
            let (absent, present) = group.split_last().unwrap();
            assert_eq!(answers.value(present.len()), None, "{absent}");
            present.iter().zip(answers.values()).for_each(|(k, v)| assert_eq!(v, Some(&value(*k)[..])));
            let scanned = client.scan(K::key(key), 20).unwrap();
            assert!(
                scanned.iter().map(|(k, _)| k.clone()).eq(keys[i..].iter().copied().take(20).map(K::key))
            );
        }
    }
}

fn eight_threads_share_one_handle<K: TestKeys>() {
    let keys = scattered(4000);
    let node = loaded_node::<K>(&keys);
    let client = node.client();
    thread::scope(|scope| {
        for first in 0..8 {
            let (client, keys) = (&client, &keys);
            scope.spawn(move || look_up_everything(client, keys, first));
        }
    });
}

fn a_clone_serves_a_thread_that_outlives_the_handle<K: TestKeys>() {
    let keys = scattered(500);
    let node = loaded_node::<K>(&keys);
    let client = node.client();
    let clone = client.clone();
    let asking = thread::spawn(move || look_up_everything(&clone, &keys, 0));
    drop(client);
    asking.join().unwrap();
}

/// Where the slot and the fingerprint of a key lie in the region.
fn place_of<K: TestKeys>(node: &ThreadNode<K>, number: u64) -> (u64, u64) {
    let connection = connect(&node.directory.address(), crate::common::options()).unwrap();
    let view = TableView::<K>::open(&mut connection.endpoint()).unwrap();
    let key = K::key(number);
    let probe = cache_probe(&view, key.borrow()).unwrap();
    let segment = view.models().resident().unwrap().locate(key.borrow()).unwrap().entry;
    let geometry = view.geometry();
    let mut expected = vec![0; geometry.shape.body_bytes()];
    geometry.shape.fill::<K>(&mut expected, key.borrow(), &Stored::Here(&value(number)));
    for index in probe.window.first..=probe.window.last {
        let slot = probe.slots + u64::from(index) * geometry.slot_bytes as u64;
        let mut stored = vec![0; expected.len()];
        node.region.read_bytes(slot + 8, &mut stored).unwrap();
        if stored == expected && node.region.load_relaxed(slot).unwrap() & 3 == 2 {
            let fingerprints = segment.address().offset() + SEGMENT_HEADER_BYTES as u64;
            return (slot, fingerprints + 8 * u64::from(index));
        }
    }
    panic!("key {key:?} lies outside its window")
}

fn a_record_that_stays_busy_fails_within_the_deadline_and_alone<K: TestKeys>() {
    let keys = scattered(2000);
    let node = loaded_node::<K>(&keys);
    let client = node.client();
    let (slot, _) = place_of(&node, keys[1000]);
    let busy = K::key(keys[1000]);
    let group: Vec<K::Owned> = keys[999..1002].iter().copied().map(K::key).collect();
    let live = node.region.load_relaxed(slot).unwrap();
    node.region.store_relaxed(slot, SlotWord::new(SlotState::Busy, 1, 0).to_bits()).unwrap();

    let short = Duration::from_millis(100);
    let hurried = client.with_deadline(short);
    let calls: [(&str, &dyn Fn() -> bool); 4] = [
        ("get", &|| hurried.get(busy.clone()).is_err_and(|e| e.kind() == ErrorKind::Retry)),
        ("contains", &|| hurried.contains(busy.clone()).is_err_and(|e| e.is_retryable())),
        ("multi_get", &|| hurried.multi_get(&group).is_err_and(|e| e.is_retryable())),
        ("scan", &|| {
            hurried.scan(K::key(keys[990]), 20).is_err_and(|e| e.to_string().contains("being written"))
        }),
    ];
    for (name, fails) in calls {
        let begun = Instant::now();
        assert!(fails(), "{name}");
        let took = begun.elapsed();
        assert!(took >= short && took < Duration::from_secs(10), "{name} took {took:?}");
    }
    assert_eq!(hurried.get(K::key(keys[0])).unwrap(), Some(value(keys[0])));
    assert_eq!(hurried.get(K::key(keys[1999])).unwrap(), Some(value(keys[1999])));

    // It settles while a patient caller waits.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get(busy.clone()));
        thread::sleep(Duration::from_millis(20));
        node.region.store_release(slot, live).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), Some(value(keys[1000])));
    });
}

fn a_directory_that_one_thread_keeps_renewing_costs_the_others_no_answer<K: TestKeys>() {
    let keys = scattered(20_000);
    let node = loaded_node::<K>(&keys);
    let client = node.client();
    // A record that sends its readers to the directory, again and again.
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
            // Once at least, however late this thread begins.
            loop {
                // The segment stays frozen: at last the memory node's processor is asked, whatever
                // it says.
                let _ = hurried.get(K::key(stale));
                if !renewing.load(Ordering::Relaxed) {
                    break;
                }
            }
            assert!(client.counters().retries > 0);
        });
        let answers: Vec<_> = asking.into_iter().map(|thread| thread.join()).collect();
        renewing.store(false, Ordering::Relaxed);
        answers.into_iter().for_each(|answer| answer.expect("right answers"));
    });
}
