//! ROLEX.

use std::sync::Arc;

use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::nic::Hosts;
use fpcache_workbench::oracle::Oracle;
use fpcache_workbench::rolex::{Options, Rolex};
use fpcache_workbench::words::{Memory, OverWords};
use fpcache_workbench::{Sizes, scatter};

use super::{hosts, inserts, is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };

#[test]
fn a_lookup_is_a_doorbell_of_three_leaves() {
    for sizes in [SMALL, Sizes { key: 128, value: 128 }] {
        let keys = keys(50_000);
        let operations = operations(&keys, 60_000, 0, None);
        let options = Options::published(64 << 20);
        let built =
            |memory: &mut _, keys: &_| Rolex::new(memory, keys, sizes, NODES, &options).expect("models fit");
        let measured = run(&keys, &operations, built);
        let tally = &measured.tally;
        assert!(is_near(tally.per_operation(tally.round_trips), 1.0), "{tally:?}");
        assert!(is_near(tally.per_operation(tally.reads), 3.0), "{tally:?}");
        let paper = 3.0 * 16.0 * (sizes.key + sizes.value) as f64;
        assert!(is_near(tally.per_operation(tally.bytes_from), paper), "{tally:?}");
        let per_key = measured.footprint.cached as f64 / keys.len() as f64;
        assert!(is_near(per_key, 1.0 + 16.0 / 1465.0) || per_key > 1.0 && per_key < 1.08, "{per_key}");
    }
}

#[test]
fn values_behind_pointers_are_one_read_more_and_leave_leaves_short() {
    let sizes = Sizes { key: 128, value: 128 };
    let keys = keys(50_000);
    let options = Options { behind_pointers: true, ..Options::published(64 << 20) };
    let built =
        |memory: &mut _, keys: &_| Rolex::new(memory, keys, sizes, NODES, &options).expect("models fit");
    let tally = run(&keys, &operations(&keys, 60_000, 0, None), built).tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 2.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.reads), 4.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 3.0 * 16.0 * 136.0 + 128.0), "{tally:?}");
    // An update finds the pointer with the lock, and needs no other round trip.
    let tally = run(&keys, &operations(&keys, 60_000, 1, None), built).tally;
    assert!((3.0..3.2).contains(&tally.per_operation(tally.round_trips)), "{tally:?}");
    // Inserts, models that are trained anew and scans among them: every answer is held against what
    // was written.
    let all: Vec<u64> = (1..=60_000).map(|i| i * 3).collect();
    let (loaded, mut operations) = inserts::mixed(&all, 12);
    for (i, operation) in operations.iter_mut().enumerate() {
        if let Operation::Read { key } = *operation
            && i % 5 == 0
        {
            *operation = Operation::Scan { key, count: i as u32 % 60 };
        }
    }
    let tally = whole(&loaded, &operations, &options, 2).tally;
    assert!(tally.background > 0, "{tally:?}");
}

#[test]
fn wider_error_bounds_take_the_leaves_that_are_said_of_them() {
    let said = include_str!("../../src/rolex/README.md");
    assert!(said.contains(" 2ε / 16 + 1 = 3 leaves"), "another formula is said");
    let keys = keys(50_000);
    let operations = operations(&keys, 20_000, 0, None);
    for epsilon in [8, 64, 128] {
        let options = Options { epsilon, ..Options::published(64 << 20) };
        let built =
            |memory: &mut _, keys: &_| Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit");
        let tally = run(&keys, &operations, built).tally;
        let leaves = f64::from(2 * epsilon) / 16.0 + 1.0;
        assert!(is_near(tally.per_operation(tally.reads), leaves), "{epsilon}: {tally:?}");
    }
}

#[test]
fn without_the_leaf_table_it_is_fetched_first() {
    let keys = keys(50_000);
    let operations = operations(&keys, 20_000, 0, None);
    // The models, and next to nothing else.
    let options = Options::published(3_000);
    let built =
        |memory: &mut _, keys: &_| Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit");
    let measured = run(&keys, &operations, built);
    let trips = measured.tally.per_operation(measured.tally.round_trips);
    assert!((1.9..2.1).contains(&trips), "{trips}");
}

#[test]
fn models_beyond_the_budget_are_refused() {
    let keys = keys(50_000);
    let refused = Rolex::new(&mut Memory::new(1), &keys, SMALL, NODES, &Options::published(1));
    assert!(refused.is_err_and(|error| error.to_string().contains("budget")));
}

#[test]
fn updates_take_three_round_trips_and_are_seen() {
    let keys = keys(20_000);
    let options = Options::published(64 << 20);
    let built =
        |memory: &mut _, keys: &_| Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit");
    let updates = operations(&keys, 60_000, 1, None);
    let measured = run(&keys, &updates, built);
    let tally = &measured.tally;
    assert!((3.0..3.2).contains(&tally.per_operation(tally.round_trips)), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 2.0), "{tally:?}");
    let measured = run(&keys, &operations(&keys, 60_000, 2, Some(1.2)), built);
    assert!(measured.tally.atomics > measured.tally.writes / 2, "locks were contended");
}

/// Runs all operations, none of which is left out of what is measured, on `memory_nodes` memory
/// nodes.
fn whole(loaded: &[u64], operations: &[Operation], options: &Options, memory_nodes: u16) -> Measured {
    let hosts = Hosts { memory_nodes, ..hosts() };
    let mut memory = Memory::new(memory_nodes);
    let index = Rolex::new(&mut memory, loaded, SMALL, NODES, options).expect("models fit");
    let system = OverWords::new(index, memory, &hosts);
    let oracle = Oracle::new(Arc::new(loaded.to_vec()));
    let measured = Bench::new(system, &hosts, operations, oracle).run(hosts, 0);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    measured
}

#[test]
fn models_with_many_synonym_leaves_are_trained_anew_while_clients_go_on() {
    // Enough reads between the inserts that a core keeps up with them.
    let all: Vec<u64> = (1..=60_000).map(|i| i * 3).collect();
    let (loaded, operations) = inserts::mixed(&all, 12);
    let measured = whole(&loaded, &operations, &Options::published(64 << 20), 1);
    let tally = measured.tally;
    // Dense keys have few models, and each of these many leaves: nearly every insert makes a
    // synonym leaf at first.
    assert!(tally.background >= 10, "{tally:?}");
    assert!(measured.usage.cores > 0.05, "training is a core's work: {:?}", measured.usage);
    // No client asks a processor and waits for it.
    assert_eq!(tally.calls, 0, "{tally:?}");
}

#[test]
fn lookups_take_fewer_round_trips_where_models_were_trained_anew() {
    let all = keys(60_000);
    let (loaded, mut operations) = inserts::inserts(&all);
    let inserted = operations.len() as u64;
    operations.extend((0..200_000).map(|i| Operation::Read { key: all[(scatter(i) % 60_000) as usize] }));
    let measured = {
        let mut memory = Memory::new(1);
        let index = Rolex::new(&mut memory, &loaded, SMALL, NODES, &Options::published(64 << 20))
            .expect("models fit");
        let system = OverWords::new(index, memory, &hosts());
        // The first reads are those that fetch the new models.
        Bench::new(system, &hosts(), &operations, Oracle::new(Arc::new(loaded)))
            .run(hosts(), inserted + 150_000)
    };
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    // With synonym leaves everywhere half of the lookups would take two round trips; of new models
    // only those take them whose leaf has got a synonym since.
    let tally = measured.tally;
    assert!(tally.per_operation(tally.round_trips) < 1.4, "{tally:?}");
}

#[test]
fn training_loses_nothing_however_little_is_kept_and_on_several_nodes() {
    for all in [keys(30_000), (1..=30_000).map(|i| i * 3).collect()] {
        let (loaded, mut operations) = inserts::mixed(&all, 4);
        for (i, operation) in operations.iter_mut().enumerate() {
            if let Operation::Read { key } = *operation
                && i % 5 == 0
            {
                *operation = Operation::Scan { key, count: i as u32 % 60 };
            }
        }
        for (budget, memory_nodes) in [(64 << 20, 1), (4_000, 1), (64 << 20, 3)] {
            let tally = whole(&loaded, &operations, &Options::published(budget), memory_nodes).tally;
            assert!(tally.background > 0, "{tally:?}");
        }
    }
}
