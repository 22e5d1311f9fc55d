//! ROLEX.

use fpcache_workbench::Sizes;
use fpcache_workbench::rolex::{Options, Rolex};

use super::{is_near, keys, operations, run};

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
    let refused = Rolex::new(
        &mut fpcache_workbench::words::Memory::new(1),
        &keys,
        SMALL,
        NODES,
        &Options::published(1),
    );
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
