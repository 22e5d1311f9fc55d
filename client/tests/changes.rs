//! Lookups and scans while records change and segments are rebuilt, against a memory node that makes the changes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{ThreadNode, scattered};
use fpcache_client::{CacheConfig, ClientConfig, CompareAndSet, Plan, PlanChoice, TableParameters};

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
    all.map(|(plan, cache)| ClientConfig { plan, cache, ..ClientConfig::default() }).collect()
}

#[test]
fn a_table_is_what_a_btreemap_is_after_the_same_changes() {
    let node = ThreadNode::start(16 << 20);
    let clients: Vec<_> = configs().into_iter().map(|config| node.client_with(config)).collect();
    clients[0].create(TableParameters::default()).unwrap();
    let (keys, mut model) = (scattered(2000), BTreeMap::new());
    for (i, key) in keys.iter().cycle().step_by(7).take(4000).enumerate() {
        let client = &clients[i % clients.len()];
        let value = v(*key, i as u64);
        match i % 5 {
            0 | 1 => {
                client.put(*key, &value).unwrap();
                model.insert(*key, value);
            }
            2 => {
                let is_new = client.insert(*key, &value).unwrap();
                assert_eq!(is_new, !model.contains_key(key));
                model.entry(*key).or_insert(value);
            }
            3 => assert_eq!(client.delete(*key).unwrap(), model.remove(key).is_some()),
            _ => match client.get_versioned(*key).unwrap() {
                None => assert!(!model.contains_key(key)),
                Some((read, token)) => {
                    assert_eq!(read, model[key]);
                    let done = client.compare_and_set(*key, token, &value).unwrap();
                    assert!(matches!(done, CompareAndSet::Done(_)), "{done:?}");
                    model.insert(*key, value);
                }
            },
        }
        let asked = keys[(i * 31) % keys.len()];
        assert_eq!(client.get(asked).unwrap().as_deref(), model.get(&asked).map(|v| &v[..]), "{i}");
    }
    for client in &clients {
        let all = client.scan(0, usize::MAX >> 1).unwrap();
        assert!(all.iter().map(|(k, v)| (*k, &v[..])).eq(model.iter().map(|(k, v)| (*k, &v[..]))));
        let group = client.multi_get(&keys).unwrap();
        assert!(group.iter().zip(&keys).all(|(got, key)| got.as_deref() == model.get(key).map(|v| &v[..])));
    }
}

#[test]
fn readers_never_go_back_and_scans_list_what_is_there_throughout_once() {
    let node = ThreadNode::start(32 << 20);
    let keys = scattered(2000);
    let writer = node.client();
    let mut load = writer.load(TableParameters::default(), 0).unwrap();
    // Every second key stays; the others come and go.
    keys.iter().step_by(2).for_each(|key| load.push(*key, &v(*key, 0)).unwrap());
    load.finish().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = configs()
            .into_iter()
            .map(|config| {
                let (client, keys, done) = (node.client_with(config), &keys, &done);
                scope.spawn(move || {
                    let (mut last, mut i) = (vec![0; keys.len()], 0);
                    while !done.load(Ordering::Relaxed) {
                        i += 1;
                        let at = (i * 769) % keys.len();
                        match client.get(keys[at]).unwrap() {
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
                            let found = client.scan(keys[at], 300).unwrap();
                            assert!(found.is_sorted_by(|a, b| a.0 < b.0));
                            let Some((end, _)) = found.last() else { continue };
                            let stay = keys.iter().step_by(2).filter(|key| **key >= keys[at] && *key <= end);
                            assert!(
                                stay.into_iter().all(|key| found.binary_search_by_key(key, |f| f.0).is_ok()),
                                "{config:?}"
                            );
                        }
                    }
                    client.counters()
                })
            })
            .collect();
        for round in 1..3 {
            for key in keys.iter().skip(1).step_by(2) {
                writer.put(*key, &v(*key, round)).unwrap();
            }
            keys.iter().step_by(10).for_each(|key| assert!(writer.update(*key, &v(*key, round)).unwrap()));
            for key in keys.iter().skip(1).step_by(2) {
                assert!(writer.delete(*key).unwrap());
            }
        }
        done.store(true, Ordering::Relaxed);
        let counters: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(counters.iter().any(|c| c.refreshes > 0), "{counters:?}");
    });
    assert!(writer.stats().unwrap().rebuilds > 0);
}
