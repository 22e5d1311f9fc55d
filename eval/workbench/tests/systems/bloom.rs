//! Range reads behind a Bloom filter.

use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Measured, Operation};
use fpcache_workbench::bloom::{Options, build};
use fpcache_workbench::words::Memory;

use super::range::{wide, window};
use super::{absent, is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };
const SLOT: f64 = 24.0;
const KEYS: u64 = 50_000;

fn options(page: Option<u32>) -> Options {
    let published = Options::published(64 << 20);
    Options { segments: fpcache_workbench::segments::Options { page, ..wide(64 << 20) }, ..published }
}

fn measured(operations: &[Operation], page: Option<u32>) -> Measured {
    let build = |memory: &mut Memory, keys: &[u64]| build(memory, keys, SMALL, NODES, &options(page));
    run(&keys(KEYS), operations, |memory, keys| build(memory, keys).expect("a filter"))
}

/// Slots of a window: of the compute node's bytes a filter's 1.2 per key are not the directory's.
fn slots(measured: &Measured) -> f64 {
    window(KEYS as usize, (measured.footprint.cached as f64 - 1.2 * KEYS as f64) / 42.0)
}

/// Share of others that pass seven hashes into 9.6 bits a key.
fn passes() -> f64 {
    (1.0 - (-7.0f64 / 9.6).exp()).powi(7)
}

#[test]
fn keys_that_are_there_are_read_as_ranges_and_few_that_are_not() {
    let present = measured(&operations(&keys(KEYS), 60_000, 0, None), None);
    let tally = &present.tally;
    assert_eq!((tally.round_trips, tally.reads), (tally.operations, tally.operations));
    assert!(is_near(tally.per_operation(tally.bytes_from), slots(&present) * SLOT), "{tally:?}");
    let absent = measured(&absent(KEYS, 2_000_000), None);
    let tally = &absent.tally;
    assert!(is_near(tally.per_operation(tally.reads), passes()), "{tally:?} beside {}", passes());
    assert!(is_near(tally.per_operation(tally.bytes_from), passes() * slots(&absent) * SLOT), "{tally:?}");
    assert_eq!(tally.delegated, 0);
}

#[test]
fn the_filter_takes_its_bytes_beside_the_directory_and_rings_beside_the_budget() {
    let with = measured(&operations(&keys(KEYS), 20_000, 0, None), None).footprint;
    let without = run(&keys(KEYS), &operations(&keys(KEYS), 20_000, 0, None), |memory, keys| {
        fpcache_workbench::range::build(memory, keys, SMALL, NODES, &wide(64 << 20)).expect("a directory")
    });
    assert!(is_near((with.cached - without.footprint.cached) as f64, 1.2 * KEYS as f64), "{with:?}");
    assert_eq!(with.beside, 5 * 64 * 16);
    let refused = build(&mut Memory::new(1), &keys(KEYS), SMALL, NODES, &Options::published(50_000));
    assert!(refused.is_err_and(|error| error.to_string().contains("the filter 60000")));
}

#[test]
fn with_a_page_for_each_slot_a_lookup_is_the_record_and_few_others() {
    let measured = measured(&operations(&keys(KEYS), 60_000, 0, None), Some(1));
    let (tally, slots, passes) = (&measured.tally, slots(&measured), passes());
    // One key in a hundred seems to have been inserted. Of others' slots two are neighbours, READ with the key's.
    let others = (slots - 1.0) * passes;
    let requests = (1.0 - passes) * (1.0 + others - 2.0 * passes) + passes;
    assert!(is_near(tally.per_operation(tally.reads), requests), "{tally:?} beside {requests}");
    let records = (1.0 - passes) * (1.0 + others) + passes * slots;
    assert!(is_near(tally.per_operation(tally.bytes_from), records * SLOT), "{tally:?} beside {records}");
    assert_eq!(tally.round_trips, tally.operations);
}

#[test]
fn an_insert_tells_the_other_compute_nodes_and_then_calls() {
    // Segments with room for all of them, so that none is replaced.
    let all = keys(20_000);
    let (loaded, new): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(i, _)| i % 16 != 0);
    let strip = |pairs: Vec<(usize, &u64)>| pairs.into_iter().map(|(_, key)| *key).collect::<Vec<_>>();
    let (loaded, new) = (strip(loaded), strip(new));
    let inserts: Vec<_> =
        new.iter().enumerate().map(|(i, key)| Operation::Insert { key: *key, value: i as u64 }).collect();
    let mut options = options(None);
    options.segments.fill = 0.3;
    let measured =
        run(&loaded, &inserts, |memory, keys| build(memory, keys, SMALL, NODES, &options).expect("a filter"));
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 2.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 5.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.calls), 1.0), "{tally:?}");
}
