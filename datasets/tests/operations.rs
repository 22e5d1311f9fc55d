//! Streams of operations follow their workload, and ask only for what is there.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::collections::BTreeSet;

use fpcache_datasets::requests::{
    Distribution, Growth, InsertOrder, Mix, Operation, OperationKind, Operations, Workload,
};
use proptest::prelude::*;

fn loaded(count: u64) -> Vec<u64> {
    (0..count).map(|i| 1_000 + 7 * i).collect()
}

#[test]
fn operations_come_in_their_workloads_proportions() {
    const COUNT: usize = 40_000;
    let growth = Growth::split(&loaded(50_000), 10_000, InsertOrder::Random, 3);
    for name in Workload::NAMES {
        let workload = Workload::named(name).unwrap();
        let operations = Operations::generate(&growth.loaded, &workload, COUNT, 1, 0);
        let mut counts = [0u32; OperationKind::ALL.len()];
        for operation in operations.play(&growth.loaded, &growth.inserts, 0).take(COUNT) {
            counts[operation.kind().index()] += 1;
        }
        assert_eq!(counts.iter().sum::<u32>(), COUNT as u32, "{name}");
        for kind in OperationKind::ALL {
            let expected = workload.mix.share(kind) * COUNT as f64;
            // Five standard deviations.
            let room = 5.0 * (expected * (1.0 - workload.mix.share(kind))).sqrt();
            let seen = f64::from(counts[kind.index()]);
            assert!((seen - expected).abs() <= room, "{name}: {} {seen} times, not {expected}", kind.name());
        }
    }
}

#[test]
fn ranks_count_the_newer_keys_that_a_thread_of_its_own_would_have() {
    let growth = Growth::split(&loaded(5_000), 1_000, InsertOrder::Random, 3);
    for name in ["A", "D"] {
        let operations = Operations::generate(&growth.loaded, &Workload::named(name).unwrap(), 10_000, 1, 0);
        let play = || operations.play(&growth.loaded, &growth.inserts, 0).take(10_000);
        let ranked = operations.play(&growth.loaded, &growth.inserts, 0).by_rank();
        let mut oldest_first = growth.loaded.clone();
        for (named, ranked) in play().zip(ranked) {
            match (named, ranked) {
                (Operation::Read(key), Operation::Read(newer)) if name == "D" => {
                    assert_eq!(key, oldest_first[oldest_first.len() - 1 - newer as usize]);
                }
                (named, ranked) => assert_eq!(named, ranked),
            }
            if let Operation::Insert(key) = named {
                oldest_first.push(key);
            }
        }
    }
}

#[test]
fn scans_ask_for_every_length_up_to_the_longest() {
    let keys = loaded(100);
    let workload = Workload::named("E").unwrap();
    let operations = Operations::generate(&keys, &workload, 20_000, 5, 0);
    let length = |operation| if let Operation::Scan(_, length) = operation { Some(length) } else { None };
    let inserts: Vec<u64> = (0..20_000).collect();
    let lengths: BTreeSet<u8> = operations.play(&keys, &inserts, 0).take(20_000).filter_map(length).collect();
    assert!(lengths.into_iter().eq(1..=100));
}

#[test]
fn threads_share_the_popular_keys_and_draw_by_themselves() {
    let keys = loaded(10_000);
    let workload = Workload::named("C").unwrap();
    let most_popular = |stream| {
        let operations = Operations::generate(&keys, &workload, 20_000, 9, stream);
        let drawn: Vec<u64> = operations.play(&keys, &[], 0).take(20_000).map(|o| o.key()).collect();
        let mut counts = std::collections::BTreeMap::<u64, u32>::new();
        drawn.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
        let (key, _) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
        (key, drawn)
    };
    let (first, drawn) = most_popular(0);
    let (second, others) = most_popular(1);
    assert_eq!(first, second);
    assert_ne!(drawn, others);
    assert_eq!(most_popular(0).1, drawn);
}

#[test]
fn latest_follows_the_inserts() {
    let keys = loaded(10_000);
    let inserts: Vec<u64> = (0..1_000).map(|i| 3 + 7 * i).collect();
    let workload = Workload::named("D").unwrap();
    let operations = Operations::generate(&keys, &workload, 20_000, 2, 0);
    let mut present: BTreeSet<u64> = keys.iter().copied().collect();
    let (mut newest, mut hits, mut reads) = (*keys.last().unwrap(), 0, 0);
    for operation in operations.play(&keys, &inserts, 0).take(20_000) {
        match operation {
            Operation::Insert(key) => {
                assert!(present.insert(key));
                newest = key;
            }
            other => {
                assert!(present.contains(&other.key()), "{other:?}");
                reads += 1;
                hits += u32::from(other.key() == newest);
            }
        }
    }
    // The first rank of 10,000 takes one in 9.8 at θ 0.99.
    let share = f64::from(hits) / f64::from(reads);
    assert!((0.09..0.115).contains(&share), "{share}");
}

#[test]
fn a_stream_begins_again_and_ends_without_keys_to_insert() {
    let keys = loaded(10);
    let reads = Operations::generate(&keys, &Workload::named("C").unwrap(), 5, 1, 0);
    let played: Vec<Operation> = reads.play(&keys, &[], 0).take(12).collect();
    assert_eq!((&played[..5], &played[5..10]), (&played[5..10], &played[..5]));
    let inserts = Workload::custom(Mix::new(&[(OperationKind::Insert, 1.0)]));
    let operations = Operations::generate(&keys, &inserts, 5, 1, 0);
    let mut play = operations.play(&keys, &[1, 2, 3], 1);
    assert!(play.by_ref().eq([Operation::Insert(2), Operation::Insert(3)]));
    assert_eq!((play.next(), play.inserted()), (None, 3));
    assert_eq!(Operations::generate(&keys, &inserts, 0, 1, 0).play(&keys, &[1], 0).next(), None);
    // Nothing but inserts can be asked of an empty store.
    let empty = Operations::generate(&[], &Workload::named("D").unwrap(), 5, 1, 0);
    assert!(empty.play(&[], &[4, 5], 0).eq([Operation::Insert(4), Operation::Insert(5)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn only_present_keys_are_asked_for_and_only_absent_ones_inserted(
        count in 2u64..200,
        inserts in 0usize..100,
        order in prop::sample::select(&InsertOrder::ALL[..]),
        form in prop::sample::select(vec!["uniform", "zipf:0.99", "latest", "ycsb-zipf", "hotset:0.1:0.9", "sosd"]),
        seed in any::<u64>(),
    ) {
        let growth = Growth::split(&loaded(count), inserts, order, seed);
        let mix: Mix = "read=0.2,update=0.2,insert=0.2,scan=0.2,rmw=0.2".parse().unwrap();
        let distribution: Distribution = form.parse().unwrap();
        let workload = Workload { distribution, ..Workload::custom(mix) };
        let mut present: BTreeSet<u64> = growth.loaded.iter().copied().collect();
        let shares = [growth.share(0, 2), growth.share(1, 2)];
        let streams = [0, 1].map(|stream| Operations::generate(&growth.loaded, &workload, 100, seed, stream));
        let mut plays: Vec<_> =
            streams.iter().zip(&shares).map(|(s, share)| s.play(&growth.loaded, share, 0)).collect();
        for turn in 0..400 {
            match plays[turn % 2].next() {
                Some(Operation::Insert(key)) => prop_assert!(present.insert(key)),
                Some(other) => prop_assert!(present.contains(&other.key())),
                None => {}
            }
        }
    }
}
