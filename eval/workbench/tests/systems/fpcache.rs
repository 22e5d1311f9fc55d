//! FPCache's own lookups in the model.

use std::sync::Arc;

use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::plan::{Plan, PlanChoice};
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::fpcache::{FpCache, Numbered, Options};
use fpcache_workbench::nic::{Bound, Hosts};
use fpcache_workbench::oracle::Oracle;

use super::{absent, hosts, inserts, is_near, keys, operations};

const SMALL: Sizes = Sizes { key: 8, value: 8 };
const LARGE: Sizes = Sizes { key: 128, value: 128 };

fn run<K: Numbered>(sizes: Sizes, budget: u64, updates: usize) -> Measured {
    let keys = keys(20_000);
    let operations = operations(&keys, 60_000, updates, Some(0.99));
    run_in::<K>(&hosts(), &keys, &operations, (sizes, &Options::published(budget, sizes)))
}

fn run_in<K: Numbered>(
    hosts: &Hosts,
    keys: &[u64],
    operations: &[Operation],
    (sizes, options): (Sizes, &Options),
) -> Measured {
    let inserts = operations.iter().filter(|o| matches!(o, Operation::Insert { .. })).count();
    let system = FpCache::<K>::new(keys, sizes, options, hosts, inserts).expect("a table");
    let oracle = Oracle::new(Arc::new(keys.to_vec()));
    Bench::new(system, hosts, operations, oracle).run(*hosts, operations.len() as u64 / 2)
}

#[test]
fn every_answer_is_right_and_two_round_trips_are_the_most_a_lookup_takes() {
    for measured in [run::<U64Keys>(SMALL, 64 << 10, 0), run::<ByteKeys>(LARGE, 256 << 10, 0)] {
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
    let measured = run::<U64Keys>(SMALL, 64 << 10, 5);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    assert!(measured.tally.calls > 5_000);
}

#[test]
fn two_runs_are_the_same() {
    let read = || format!("{:?}", run::<U64Keys>(SMALL, 64 << 10, 7));
    assert_eq!(read(), read());
    let grow = || format!("{:?}", grows::<U64Keys>(&hosts(), SMALL, &Options::published(256 << 10, SMALL)));
    assert_eq!(grow(), grow());
}

/// Half of the keys are loaded, the others come while both are read: through tables that are out of
/// date, and models in pages.
fn grows<K: Numbered>(hosts: &Hosts, sizes: Sizes, options: &Options) -> Measured {
    let (loaded, operations) = inserts::mixed(&keys(30_000), 3);
    let measured = run_in::<K>(hosts, &loaded, &operations, (sizes, options));
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    assert_eq!(measured.tally.operations, operations.len() as u64 / 2 - hosts.clients() as u64);
    measured
}

#[test]
fn answers_are_right_while_segments_are_replaced() {
    let published = |budget, sizes| Options::published(budget, sizes);
    for (budget, fill) in [(256 << 10, 0.85), (1 << 20, 1.0), (64 << 10, 0.85)] {
        let options = Options { fill, ..published(budget, SMALL) };
        let measured = grows::<U64Keys>(&hosts(), SMALL, &options);
        assert!(measured.footprint.cached <= budget, "{:?}", measured.footprint);
    }
    grows::<ByteKeys>(&hosts(), LARGE, &published(512 << 10, LARGE));
    let (near, wide) = (published(256 << 10, SMALL), published(256 << 10, SMALL));
    grows::<U64Keys>(&hosts(), SMALL, &Options { epsilon: 4, plan: PlanChoice::Fixed(Plan::Range), ..near });
    grows::<U64Keys>(&hosts(), SMALL, &Options { epsilon: 64, plan: PlanChoice::Auto, ..wide });
}

#[test]
fn changes_that_travel_together_are_as_right_and_take_a_core_less_than_half_as_long() {
    let alone = Options::published(256 << 10, SMALL);
    let together = Options { together: true, ..alone };
    grows::<U64Keys>(&hosts(), SMALL, &together);
    grows::<U64Keys>(&Hosts { memory_nodes: 3, ..hosts() }, SMALL, &together);
    let keys = keys(20_000);
    let hosts = Hosts { threads: 16, ..hosts() };
    let update = |(i, key): (usize, &u64)| Operation::Update { key: *key, value: i as u64, reads: false };
    let updates: Vec<_> = keys.iter().enumerate().map(update).collect();
    let [alone, together] =
        [alone, together].map(|options| run_in::<U64Keys>(&hosts, &keys, &updates, (SMALL, &options)));
    assert_eq!((alone.wrong, together.wrong), (0, 0), "{:?}", together.first_wrong);
    assert!(together.per_second > 2.0 * alone.per_second, "{together:?} beside {alone:?}");
    assert!(2 * together.tally.calls < alone.tally.calls, "{:?} beside {:?}", together.tally, alone.tally);
}

#[test]
fn models_in_pages_that_fall_behind_are_made_up_for_by_the_memory_node() {
    let measured = grows::<U64Keys>(&hosts(), SMALL, &Options::published(8 << 10, SMALL));
    assert!(measured.footprint.cached <= 8 << 10, "{:?}", measured.footprint);
}

#[test]
fn a_table_over_several_memory_nodes_gives_the_same_answers() {
    let hosts = Hosts { memory_nodes: 3, ..hosts() };
    grows::<U64Keys>(&hosts, SMALL, &Options::published(256 << 10, SMALL));
    grows::<ByteKeys>(&hosts, LARGE, &Options::published(512 << 10, LARGE));
}

#[test]
fn each_core_of_a_memory_node_makes_the_changes_of_a_range() {
    let (loaded, operations) = inserts::inserts(&keys(40_000));
    let options = Options::published(1 << 20, SMALL);
    let [one, four] = [1, 4].map(|cores| {
        let hosts = Hosts { cores, ..hosts() };
        grows::<U64Keys>(&hosts, SMALL, &options);
        run_in::<U64Keys>(&hosts, &loaded, &operations, (SMALL, &options))
    });
    assert_eq!((one.wrong, four.wrong), (0, 0), "{:?}", four.first_wrong);
    assert!(four.per_second > 2.0 * one.per_second, "{four:?} beside {one:?}");
}

#[test]
fn a_table_of_few_keys_has_a_key_for_each_core_or_is_refused() {
    let options = Options::published(1 << 20, SMALL);
    let hosts = Hosts { cores: 8, ..hosts() };
    let few = keys(5);
    let Err(refused) = FpCache::<U64Keys>::new(&few, SMALL, &options, &hosts, 0) else {
        panic!("five keys in eight ranges")
    };
    assert!(refused.to_string().contains("fewer cores"), "{refused}");
    for count in [8, 9, 15] {
        let keys = keys(count);
        let measured =
            run_in::<U64Keys>(&hosts, &keys, &operations(&keys, 2_000, 5, None), (SMALL, &options));
        assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    }
}

#[test]
fn what_is_not_there_takes_one_round_trip_while_the_reuse_sequence_is_leased() {
    let (all, options) = (keys(20_000), Options::published(1 << 20, LARGE));
    let tally = run_in::<ByteKeys>(&hosts(), &all, &absent(20_000, 20_000), (LARGE, &options)).tally;
    // Fingerprints of 64 bits, none of which is the key's. Every half of a lease, one READ more
    // renews it.
    assert_eq!(tally.round_trips, tally.operations, "{tally:?}");
    assert!(tally.reads > tally.operations, "never renewed: {tally:?}");
    assert!(is_near(tally.per_operation(tally.reads), 1.0), "{tally:?}");
}

#[test]
fn an_insert_is_one_round_trip_and_replaced_segments_take_the_core_time() {
    let (loaded, operations) = inserts::inserts(&keys(40_000));
    let options = Options::published(1 << 20, SMALL);
    let measured = run_in::<U64Keys>(&hosts(), &loaded, &operations, (SMALL, &options));
    let tally = measured.tally;
    assert_eq!((measured.wrong, tally.round_trips, tally.calls), (0, tally.operations, tally.operations));
    // Somewhat less than one over a put, by the records that move.
    let most = 1e12 / Options::PUT as f64;
    assert!(measured.per_second > 0.4 * most && measured.per_second < 0.95 * most, "{measured:?}");
    assert_eq!(measured.bound, Bound::Cpu);
}
