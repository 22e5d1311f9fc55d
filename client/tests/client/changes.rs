//! Lookups and scans while records change and segments are rebuilt, against a memory node that
//! makes the changes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{TestKeys, ThreadNode, patient, scattered};
use fpcache_client::{CacheConfig, ClientConfig, CompareAndSet, Plan, PlanChoice};

for_both_kinds_of_keys!(
    a_table_is_what_a_btreemap_is_after_the_same_changes,
    readers_never_go_back_and_scans_list_what_is_there_throughout_once,
);

/// The value of a key in the round in which it was written.
fn v(key: u64, round: u64) -> [u8; 8] {
    (key.rotate_left(32) ^ round).to_le_bytes()
}

fn round_of(key: u64, value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().unwrap()) ^ key.rotate_left(32)
}

/// How each reader reads.
fn configs() -> Vec<ClientConfig> {
    let plans = [Plan::TwoStage, Plan::Range, Plan::Speculative].map(PlanChoice::Fixed);
    let caches = [None, Some(CacheConfig::of(1 << 20)), Some(CacheConfig::of(30_000))];
    let all = plans.iter().flat_map(|plan| caches.map(|cache| (*plan, cache)));
    all.map(|(plan, cache)| patient().with_plan(plan).with_cache(cache)).collect()
}

fn a_table_is_what_a_btreemap_is_after_the_same_changes<K: TestKeys>() {
    // Values of eight bytes, and of any number.
    for value_bytes in [Some(8), None] {
        let node = ThreadNode::<K>::start(16 << 20);
        let clients: Vec<_> = configs().into_iter().map(|config| node.client_with(config)).collect();
        let parameters = K::parameters_of(value_bytes);
        clients[0].create(parameters).unwrap();
        let keys: Vec<K::Owned> = scattered(2000).into_iter().map(K::key).collect();
        let mut model = BTreeMap::new();
        for (i, key) in keys.iter().cycle().step_by(7).take(4000).enumerate() {
            let client = &clients[i % clients.len()];
            let value = crate::common::value_in(&parameters.shape, i as u64, 0);
            match i % 5 {
                0 | 1 => {
                    client.put(key.clone(), &value).unwrap();
                    model.insert(key.clone(), value);
                }
                2 => {
                    let is_new = client.insert(key.clone(), &value).unwrap().is_new();
                    assert_eq!(is_new, !model.contains_key::<K::Owned>(key));
                    model.entry(key.clone()).or_insert(value);
                }
                3 => assert_eq!(client.delete(key.clone()).unwrap(), model.remove::<K::Owned>(key).is_some()),
                _ => match client.get_versioned(key.clone()).unwrap() {
                    None => assert!(!model.contains_key::<K::Owned>(key)),
                    Some((read, token)) => {
                        assert_eq!(Some(&read), model.get::<K::Owned>(key));
                        let done = client.compare_and_set(key.clone(), token, &value).unwrap();
                        assert!(matches!(done, CompareAndSet::Done(_)), "{done:?}");
                        model.insert(key.clone(), value);
                    }
                },
            }
            let asked = &keys[(i * 31) % keys.len()];
            assert_eq!(client.get(asked.clone()).unwrap().as_ref(), model.get::<K::Owned>(asked), "{i}");
        }
        for client in &clients {
            let all = client.scan(K::lowest().to_owned(), usize::MAX >> 1).unwrap();
            assert!(all.iter().map(|(k, v)| (k, v)).eq(&model));
            let group = client.multi_get(&keys).unwrap();
            assert!(group.iter().zip(&keys).all(|(got, key)| got.as_ref() == model.get::<K::Owned>(key)));
        }
    }
}

fn readers_never_go_back_and_scans_list_what_is_there_throughout_once<K: TestKeys>() {
    let node = ThreadNode::<K>::start(32 << 20);
    let keys = scattered(2000);
    let writer = node.client();
    let mut load = writer.load(K::parameters(), 0).unwrap();
    // Every second key stays; the others come and go.
    keys.iter().step_by(2).for_each(|key| load.push(K::key(*key), &v(*key, 0)).unwrap());
    load.finish().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = configs()
            .into_iter()
            .map(|config| {
                let (client, keys, done) = (node.client_with(config.clone()), &keys, &done);
                scope.spawn(move || {
                    let (mut last, mut i) = (vec![0; keys.len()], 0);
                    while !done.load(Ordering::Relaxed) {
                        i += 1;
                        let at = (i * 769) % keys.len();
                        match client.get(K::key(keys[at])).unwrap() {
                            Some(value) => {
                                let round = round_of(keys[at], &value);
                                assert!(
                                    round >= last[at] && round < 1000,
                                    "{config:?}: {round} after {}",
                                    last[at]
                                );
                                last[at] = round;
                            }
                            None => assert!(at % 2 == 1, "{config:?}: key {at} stays"),
                        }
                        if i % 40 == 0 {
                            let found = client.scan(K::key(keys[at]), 300).unwrap();
                            assert!(found.is_sorted_by(|a, b| a.0 < b.0));
                            let Some(end) = found.last().map(|(key, _)| K::number(key.borrow())) else {
                                continue;
                            };
                            let found: Vec<u64> =
                                found.iter().map(|(key, _)| K::number(key.borrow())).collect();
                            let mut stay =
                                keys.iter().step_by(2).filter(|key| **key >= keys[at] && **key <= end);
                            assert!(stay.all(|key| found.binary_search(key).is_ok()), "{config:?}");
                        }
                    }
                    client.counters()
                })
            })
            .collect();
        for round in 1..3 {
            for key in keys.iter().skip(1).step_by(2) {
                writer.put(K::key(*key), &v(*key, round)).unwrap();
            }
            keys.iter()
                .step_by(10)
                .for_each(|key| assert!(writer.update(K::key(*key), &v(*key, round)).unwrap()));
            for key in keys.iter().skip(1).step_by(2) {
                assert!(writer.delete(K::key(*key)).unwrap());
            }
        }
        done.store(true, Ordering::Relaxed);
        let counters: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(counters.iter().any(|c| c.refreshes > 0), "{counters:?}");
    });
    assert!(writer.stats().unwrap().rebuilds > 0);
}
