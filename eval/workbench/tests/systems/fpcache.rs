//! FPCache's own lookups in the model.

use std::sync::Arc;

use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Bench, Measured};
use fpcache_workbench::fpcache::{FpCache, Loaded, Numbered, Options};
use fpcache_workbench::oracle::Oracle;

use super::{hosts, keys, operations};

fn run<K: Numbered>(sizes: Sizes, budget: u64, updates: usize) -> Measured {
    let hosts = hosts();
    let keys = keys(20_000);
    let operations = operations(&keys, 60_000, updates, Some(0.99));
    let mut loaded =
        Loaded::<K>::new(&keys, sizes, &Options::published(budget, sizes), &hosts).expect("a table");
    let mut scratches = loaded.scratches(&hosts);
    let system = FpCache::new(&mut loaded, &mut scratches, &hosts).expect("clients");
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
        // Where several fingerprints of 8 bits match, the slots are READ with one doorbell.
        let reads = measured.tally.reads as f64 / measured.tally.round_trips as f64;
        assert!((1.0..1.1).contains(&reads), "{reads}");
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
