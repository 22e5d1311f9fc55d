//! Groups of keys: each answer stays when it is there, whatever becomes of other keys.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{TestKeys, ThreadNode, load, patient, value_in};
use crate::proxies::slow;
use crate::remote::{Node, random};
use fpcache_client::{
    CacheConfig, Changes, ClientConfig, Plan, PlanChoice, TableClient, TableParameters, U64Keys,
};

for_both_kinds_of_keys!(
    the_memory_node_is_asked_for_no_more_than_the_keys_of_replaced_segments,
    it_is_asked_for_no_more_over_sockets_either,
);

const SMALL: u64 = 20_000;

/// Some of whose segments are replaced under a client that keeps pages, and sees no change before
/// the next checkpoint.
fn assert_few_are_asked_for<K: TestKeys>(rich: &TableClient<K>, poor: &TableClient<K>) {
    let parameters = TableParameters { max_slots: 16, epsilon: 2, ..K::parameters() };
    load(rich, parameters, (0..SMALL).map(|i| i * 1_000), 0).unwrap();
    // Every other key is absent.
    let numbers: Vec<u64> = (0..200).map(|i| i * SMALL * 5 + i % 2).collect();
    let keys: Vec<K::Owned> = numbers.iter().map(|number| K::key(*number)).collect();
    let expected: Vec<Option<Vec<u8>>> = numbers
        .iter()
        .map(|number| (number % 1_000 == 0).then(|| value_in(&parameters.shape, *number, 0)))
        .collect();
    assert_eq!(poor.multi_get(&keys).unwrap(), expected);
    assert!(poor.cache_stats().unwrap().unwrap().paged, "the models are too many for the budget");
    let before = poor.counters().server_side;
    // So few that the log of changes is far from half used: around two of the keys.
    for number in [70, 131].map(|at| numbers[at]).into_iter().flat_map(|by| (1..8).map(move |i| by + 2 * i)) {
        rich.put(K::key(number), &value_in(&parameters.shape, number, 0)).unwrap();
    }
    for round in 1..4 {
        assert_eq!(poor.multi_get(&keys).unwrap(), expected);
        let there = poor.multi_contains(&keys).unwrap();
        assert!(there.iter().zip(&expected).all(|(there, value)| *there == value.is_some()));
        let asked = poor.counters().server_side - before;
        assert!(
            (1..=4 * round).contains(&asked),
            "{asked} keys by the memory node in {round} rounds: {:?}",
            poor.counters()
        );
    }
}

fn small<K: TestKeys>() -> ClientConfig {
    patient()
        .with_cache(CacheConfig::of(5 * K::PAGE_BYTES as u64))
        .with_plan(PlanChoice::Fixed(Plan::TwoStage))
}

fn the_memory_node_is_asked_for_no_more_than_the_keys_of_replaced_segments<K: TestKeys>() {
    let node = ThreadNode::<K>::start(64 << 20);
    assert_few_are_asked_for(&node.client(), &node.client_with(small::<K>()));
}

fn it_is_asked_for_no_more_over_sockets_either<K: TestKeys>() {
    let node = Node::start();
    node.make::<K>("t");
    let rich = node.client::<K>(0, "t", patient());
    assert_few_are_asked_for(&rich, &node.client::<K>(1, "t", small::<K>()));
}

/// Their segments are replaced all the time. Groups began anew with each that was met, until the
/// deadline.
#[test]
fn long_groups_end_beside_a_writer() {
    const KEYS: u64 = 200_000;
    let node = ThreadNode::<U64Keys>::start(64 << 20);
    let (client, writer) = (node.client(), node.client());
    let parameters = TableParameters { max_slots: 512, ..<U64Keys as TestKeys>::parameters() };
    let key = |i: u64| i << 40;
    load(&client, parameters, (0..KEYS).map(key), 0).unwrap();
    let (is_over, mut state) = (AtomicBool::new(false), 7);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut state, mut changes) = (9, Changes::<U64Keys>::default());
            while !is_over.load(Ordering::Relaxed) {
                changes.clear();
                // Between the keys that are looked up, and not beside these.
                for _ in 0..64 {
                    changes.put((random(&mut state) % (KEYS << 40)) | (1 << 20), &[1; 8]);
                }
                writer.apply(&changes, &mut Vec::new()).unwrap();
            }
        });
        // Whatever fails, the writer is told to end.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                let numbers: Vec<u64> = (0..20_000).map(|_| key(random(&mut state) % KEYS)).collect();
                let found = client.multi_floor(&numbers).unwrap();
                assert!(found.iter().zip(&numbers).all(|(found, key)| found.as_ref().unwrap().0 == *key));
                let found = client.multi_ceiling(&numbers).unwrap();
                assert!(found.iter().zip(&numbers).all(|(found, key)| found.as_ref().unwrap().0 == *key));
                let found = client.multi_get(&numbers).unwrap();
                let value = |number: u64| value_in(&parameters.shape, number, 0);
                assert!(found.iter().zip(&numbers).all(|(found, key)| found.as_ref() == Some(&value(*key))));
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let counters = client.counters();
    assert!(counters.refreshes > 0, "nothing was replaced: {counters:?}");
    assert!(counters.server_side < 1_000, "{counters:?}");
}

/// 32 keys shared a round trip, as many as wait for memory together.
#[test]
fn arrays_of_answers_over_sockets_take_few_round_trips() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let slow = slow(node.url(), Duration::from_millis(5));
    let config = patient().with_table("t".parse().unwrap());
    let client = TableClient::<U64Keys>::connect_with(&slow, config).unwrap();
    load(&client, <U64Keys as TestKeys>::parameters(), 0..4_000, 1).unwrap();
    let keys: Vec<u64> = (0..5_000).collect();
    let (mut values, mut found) = (vec![0; keys.len()], vec![false; keys.len()]);
    let mut reader = client.reader();
    assert_eq!(reader.multi_get_u64(&keys[..1], &mut values[..1], &mut found[..1]).unwrap(), 1);
    // Two groups each: some tens of milliseconds. Groups of 32 took three seconds.
    let soon =
        |began: Instant| assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(reader.multi_get_u64(&keys, &mut values, &mut found).unwrap(), 4_000);
    soon(began);
    let began = Instant::now();
    assert_eq!(reader.multi_contains_into(&keys, &mut found).unwrap(), 4_000);
    soon(began);
    assert!(found.iter().zip(&keys).all(|(found, key)| *found == (*key < 4_000)));
    let value = |key: u64| value_in(&<U64Keys as TestKeys>::shape(Some(8)), key, 1);
    assert!(keys[..4_000].iter().zip(&values).all(|(key, found)| found.to_le_bytes()[..] == value(*key)[..]));
}
