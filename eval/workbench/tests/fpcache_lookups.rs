//! FPCache's own lookups in the model.

use std::sync::Arc;

use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::fpcache::{FpCache, Loaded, Numbered, Options};
use fpcache_workbench::nic::{Hosts, NicSpec};
use fpcache_workbench::oracle::Oracle;

fn keys(count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (1..=count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    keys.sort_unstable();
    keys
}

fn operations(keys: &[u64], count: usize, updates: usize) -> Vec<Operation> {
    let distribution = Distribution::Zipf { theta: 0.99 };
    let options = RequestOptions { lookups: count, distribution, negative: 0.0, seed: 1, shift_every: None };
    let of = |(i, key): (usize, &u64)| match updates > 0 && i % updates == 0 {
        true => Operation::Update { key: *key, value: i as u64 },
        false => Operation::Read { key: *key },
    };
    generate(keys, &options).keys.iter().enumerate().map(of).collect()
}

fn run<K: Numbered>(sizes: Sizes, budget: u64, updates: usize) -> Measured {
    let hosts = Hosts { threads: 8, ..Hosts::paper(NicSpec::CX6_100G) };
    let keys = keys(20_000);
    let operations = operations(&keys, 60_000, updates);
    let mut loaded = Loaded::<K>::new(&keys, sizes, &Options::published(budget, sizes), &hosts).unwrap();
    let mut scratches = loaded.scratches(&hosts);
    let system = FpCache::new(&mut loaded, &mut scratches, &hosts).unwrap();
    Bench::new(system, &hosts, &operations, Oracle::new(Arc::new(keys))).run(hosts, 30_000)
}

#[test]
fn every_answer_is_right_and_two_round_trips_are_the_most_a_lookup_takes() {
    for measured in [
        run::<U64Keys>(Sizes { key: 8, value: 8 }, 64 << 10, 0),
        run::<ByteKeys>(Sizes { key: 128, value: 128 }, 256 << 10, 0),
    ] {
        assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
        let trips = measured.tally.per_operation(measured.tally.round_trips);
        assert!(trips > 1.0 && trips <= 2.01, "{trips}");
        assert_eq!(measured.tally.round_trips, measured.tally.reads, "a batch of one READ each");
        assert!(measured.footprint.cached <= 256 << 10);
    }
}

#[test]
fn reads_between_updates_see_what_was_written() {
    let measured = run::<U64Keys>(Sizes { key: 8, value: 8 }, 64 << 10, 5);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    assert!(measured.tally.calls > 5_000);
}

#[test]
fn two_runs_are_the_same() {
    let run = || format!("{:?}", run::<U64Keys>(Sizes { key: 8, value: 8 }, 64 << 10, 7));
    assert_eq!(run(), run());
}
