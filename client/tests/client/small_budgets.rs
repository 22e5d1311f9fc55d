//! A budget below the directory's top level keeps no client from writing: changes are made by the
//! memory node.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, TestKeys, ThreadNode, load, patient, scattered, value_in};
use crate::over_nodes;
use crate::proxies::{ALL, so_many_answers};
use crate::remote::Node;
use fpcache::table_view::OpenError;
use fpcache_client::{
    CacheConfig, Changes, Client, ClientConfig, ClientError, CompareAndSet, TableClient, U64Keys,
};

for_both_kinds_of_keys!(
    writes_go_on_where_lookups_say_that_the_budget_is_too_small,
    a_budget_that_a_table_outgrows_keeps_nobody_from_writing,
    scans_alone_get_a_newer_directory_where_models_are_in_pages,
);

/// That reads say what is wrong, and how much would do.
fn assert_too_small<T: std::fmt::Debug>(result: Result<T, ClientError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, ClientError::Open(OpenError::Budget { .. })), "{error:?}");
    assert!(error.to_string().contains("raise the cache budget"), "{error}");
}

fn with_budget<K: TestKeys>(node: &ThreadNode<K>, bytes: u64) -> TableClient<K> {
    node.client_with(patient().with_cache(CacheConfig::of(bytes)))
}

fn writes_go_on_where_lookups_say_that_the_budget_is_too_small<K: TestKeys>() {
    let node = ThreadNode::<K>::start(16 << 20);
    let (rich, poor) = (node.client(), with_budget(&node, 1 << 10));
    let parameters = K::parameters_of(None);
    rich.create(parameters).unwrap();
    let keys: Vec<K::Owned> = scattered(600).into_iter().map(K::key).collect();
    let value = |number: usize, edition| value_in(&parameters.shape, number as u64, edition);
    for (i, key) in keys.iter().enumerate() {
        assert!(poor.insert(key.clone(), &value(i, 0)).unwrap().is_new());
        assert!(!poor.insert(key.clone(), &value(i, 1)).unwrap().is_new());
    }
    assert_too_small(poor.get(keys[0].clone()));
    poor.put(keys[0].clone(), &value(0, 2)).unwrap();
    assert!(poor.update(keys[1].clone(), &value(1, 2)).unwrap());
    assert!(poor.delete(keys[2].clone()).unwrap());
    let (_, token) = rich.get_versioned(keys[3].clone()).unwrap().unwrap();
    let set = poor.compare_and_set(keys[3].clone(), token, &value(3, 2)).unwrap();
    assert!(matches!(set, CompareAndSet::Done(_)), "{set:?}");
    let mut changes = Changes::<K>::default();
    changes.put(keys[4].clone(), &value(4, 2));
    changes.delete(keys[5].clone());
    poor.apply(&changes, &mut Vec::new()).unwrap();
    let mut pipeline = poor.pipeline(2).unwrap();
    pipeline.put(keys[6].clone(), &value(6, 2)).unwrap();
    while let Some(ended) = pipeline.next() {
        ended.outcome.unwrap();
    }
    drop(pipeline);
    for (i, key) in keys.iter().enumerate() {
        let expected = match i {
            2 | 5 => None,
            0 | 1 | 3 | 4 | 6 => Some(value(i, 2)),
            _ => Some(value(i, 0)),
        };
        assert_eq!(rich.get(key.clone()).unwrap(), expected, "{i}");
    }
    // What does not fit its slot is refused here as ever.
    let too_long = vec![0; (16 << 20) + 1];
    assert_eq!(poor.put(keys[0].clone(), &too_long).unwrap_err().kind(), fpcache_client::ErrorKind::Invalid);
    assert_too_small(poor.get(keys[0].clone()));
    assert_too_small(poor.multi_get(&keys[..2]));
    assert_too_small(poor.scan(keys[0].clone(), 3));
}

/// At first the models fit, then some of their pages, and in the end perhaps nothing.
fn a_budget_that_a_table_outgrows_keeps_nobody_from_writing<K: TestKeys>() {
    let node = ThreadNode::<K>::start(64 << 20);
    let (rich, poor) = (node.client(), with_budget(&node, 3 * K::PAGE_BYTES as u64));
    let parameters = fpcache_client::TableParameters { max_slots: 16, epsilon: 2, ..K::parameters() };
    rich.create(parameters).unwrap();
    let keys: Vec<K::Owned> = scattered(6_000).into_iter().map(K::key).collect();
    let (mut found, mut changes) = (0, Changes::<K>::default());
    for (i, some) in keys.chunks(200).enumerate() {
        changes.clear();
        for key in some {
            changes.put(key.clone(), &value_in(&parameters.shape, i as u64, 0));
        }
        poor.apply(&changes, &mut Vec::new()).unwrap();
        assert!(poor.update(some[0].clone(), &value_in(&parameters.shape, i as u64, 1)).unwrap());
        match poor.get(some[0].clone()) {
            Ok(value) => found += usize::from(value.is_some()),
            Err(error) => assert_too_small(Err::<(), _>(error)),
        }
    }
    assert!(found > 0, "at first the models fit");
    for (i, some) in keys.chunks(200).enumerate() {
        assert_eq!(rich.get(some[0].clone()).unwrap(), Some(value_in(&parameters.shape, i as u64, 1)));
    }
}

/// Nothing but what goes from key to key, which the memory node does for no client: it is told that
/// its directory is out of date.
fn scans_alone_get_a_newer_directory_where_models_are_in_pages<K: TestKeys>() {
    let node = ThreadNode::<K>::start(64 << 20);
    let rich = node.client();
    let parameters = fpcache_client::TableParameters { max_slots: 16, epsilon: 2, ..K::parameters() };
    let mut all: Vec<u64> = (0..20_000).map(|i| i * 1_000).collect();
    load(&rich, parameters, all.iter().copied(), 0).unwrap();
    let poor = with_budget(&node, 5 * K::PAGE_BYTES as u64).with_deadline(Duration::from_secs(20));
    for round in 1..8u64 {
        // So few that the log of changes is far from half used.
        let new = (0..40).map(|i| i * 1_000 + round);
        for number in new.clone() {
            rich.put(K::key(number), &value_in(&parameters.shape, number, 0)).unwrap();
        }
        all.extend(new);
        all.sort_unstable();
        let expected: Vec<K::Owned> = all[..100].iter().map(|number| K::key(*number)).collect();
        let (first, after) = (K::key(0), K::key(all[100]));
        match round % 3 {
            0 => {
                let found = poor.scan(first, 100).unwrap();
                assert!(found.iter().map(|(key, _)| key).eq(&expected), "{round}");
            }
            1 => assert_eq!(poor.count(first, after).unwrap(), 100, "{round}"),
            _ => {
                let floor = poor.floor(after).unwrap().map(|(key, _)| key);
                assert_eq!(floor, Some(K::key(all[100])), "{round}");
            }
        }
    }
    assert!(poor.cache_stats().unwrap().unwrap().paged, "the models are too many for the budget");
}

/// It had the time after which a memory node counts as lost, and cut off everybody else's calls
/// with its own.
#[test]
fn the_first_write_to_a_table_that_does_not_fit_ends_with_its_deadline() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let (address, left) = so_many_answers(node.url(), Duration::ZERO);
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(PATIENCE);
    let rich = Client::connect_with(&address, config.clone()).unwrap();
    load(&rich, U64Keys::parameters(), 0..20_000, 1).unwrap();
    let poor = Client::connect_with(&address, config.with_cache(CacheConfig::of(1 << 10))).unwrap();
    assert_too_small(poor.get(7));
    // It is the shape that does not come.
    left.store(0, Ordering::SeqCst);
    let (begun, hurried) = (Instant::now(), poor.with_deadline(Duration::from_secs(2)));
    let error = hurried.put(7, &[7; 8]).unwrap_err();
    assert!(error.is_retryable() && begun.elapsed() < PATIENCE / 4, "{:?}, {error}", begun.elapsed());
    left.store(ALL, Ordering::SeqCst);
    poor.put(7, &[7; 8]).unwrap();
    assert_eq!(rich.get(7).unwrap(), Some(vec![7; 8]));
    assert_eq!(poor.counters().reconnects, 0);
}

/// The message told the share of one range, so that who raised the budget to it was told the same
/// again.
#[test]
fn a_budget_that_is_too_small_for_a_range_is_told_for_all_of_them() {
    let nodes = [(); 3].map(|()| over_nodes::Node::shm());
    over_nodes::make::<U64Keys>(&nodes, &[1000, 2000], Some(8));
    let with = |bytes| {
        let config = over_nodes::config().with_cache(CacheConfig::of(bytes));
        Client::connect_with(&nodes[0].url, config).unwrap()
    };
    let ClientError::RangesBudget { ranges, budget, least } = with(3 << 9).get(5).unwrap_err() else {
        panic!("another error");
    };
    assert_eq!((ranges, budget), (3, 3 << 9));
    assert_eq!(with(least).get(5).unwrap(), None);
}
