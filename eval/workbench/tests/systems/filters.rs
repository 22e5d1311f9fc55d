//! Range reads behind a Bloom filter, and behind a cuckoo filter.

use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Measured, Operation};
use fpcache_workbench::bloom::Bloom;
use fpcache_workbench::cuckoo::Cuckoo;
use fpcache_workbench::range::NoFilter;
use fpcache_workbench::segments::{Filter, Options, Segmented};
use fpcache_workbench::words::Memory;

use super::range::{wide, window};
use super::{absent, is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };
const SLOT: f64 = 24.0;
const KEYS: u64 = 50_000;

fn options(page: Option<u32>) -> Options {
    Options { page, ..wide(64 << 20) }
}

fn run_over<F: Filter>(loaded: &[u64], operations: &[Operation], options: &Options) -> Measured {
    let build = |memory: &mut Memory, keys: &[u64]| Segmented::<F>::new(memory, keys, SMALL, NODES, options);
    run(loaded, operations, |memory, keys| build(memory, keys).expect("a filter"))
}

fn measured<F: Filter>(operations: &[Operation], page: Option<u32>) -> Measured {
    run_over::<F>(&keys(KEYS), operations, &options(page))
}

/// Slots of a window: of the compute node's bytes a filter's are not the directory's.
fn slots<F: Filter>(measured: &Measured) -> f64 {
    let of_filter = F::PUBLISHED_BITS / 8.0 * KEYS as f64;
    window(KEYS as usize, (measured.footprint.cached as f64 - of_filter) / 42.0)
}

/// Share of others that pass seven hashes into 9.6 bits a key.
fn passes_bloom() -> f64 {
    (1.0 - (-7.0f64 / 9.6).exp()).powi(7)
}

/// Share of others that have one of eight fingerprints of 11 bits, of which 11 in 12 are there.
fn passes_cuckoo() -> f64 {
    1.0 - (1.0 - 1.0 / 2047.0f64).powf(8.0 * 11.0 / 12.0)
}

#[test]
fn keys_that_are_there_are_read_as_ranges_and_few_that_are_not() {
    reads_ranges::<Bloom>(passes_bloom());
    reads_ranges::<Cuckoo>(passes_cuckoo());
}

fn reads_ranges<F: Filter>(passes: f64) {
    let present = measured::<F>(&operations(&keys(KEYS), 60_000, 0, None), None);
    let tally = &present.tally;
    assert_eq!((tally.round_trips, tally.reads), (tally.operations, tally.operations));
    assert!(is_near(tally.per_operation(tally.bytes_from), slots::<F>(&present) * SLOT), "{tally:?}");
    // As many pass of both.
    let absent = measured::<F>(&absent(KEYS, (15_000.0 / passes) as u64), None);
    let tally = &absent.tally;
    assert!(is_near(tally.per_operation(tally.reads), passes), "{tally:?} beside {passes}");
    assert!(is_near(tally.per_operation(tally.bytes_from), passes * slots::<F>(&absent) * SLOT), "{tally:?}");
    assert_eq!(tally.delegated, 0);
}

#[test]
fn the_filter_takes_its_bytes_beside_the_directory_and_rings_beside_the_budget() {
    takes_bytes::<Bloom>(1.2, "the filter 60000");
    takes_bytes::<Cuckoo>(1.5, "the filter 7500");
}

fn takes_bytes<F: Filter>(per_key: f64, refusal: &str) {
    let with = measured::<F>(&operations(&keys(KEYS), 20_000, 0, None), None).footprint;
    let without = measured::<NoFilter>(&operations(&keys(KEYS), 20_000, 0, None), None).footprint;
    assert!(is_near((with.cached - without.cached) as f64, per_key * KEYS as f64), "{with:?}");
    assert_eq!(with.beside, 5 * 64 * 16);
    let refused =
        Segmented::<F>::new(&mut Memory::new(1), &keys(KEYS), SMALL, NODES, &Options::published(50_000));
    assert!(refused.is_err_and(|error| error.to_string().contains(refusal)));
}

#[test]
fn with_a_page_for_each_slot_a_lookup_is_the_record_and_few_others() {
    reads_records::<Bloom>(passes_bloom());
    reads_records::<Cuckoo>(passes_cuckoo());
}

fn reads_records<F: Filter>(passes: f64) {
    let measured = measured::<F>(&operations(&keys(KEYS), 60_000, 0, None), Some(1));
    let (tally, slots) = (&measured.tally, slots::<F>(&measured));
    // Few keys seem to have been inserted. Two of the other slots are neighbours, READ with the
    // key's.
    let others = (slots - 1.0) * passes;
    let requests = (1.0 - passes) * (1.0 + others - 2.0 * passes) + passes;
    assert!(is_near(tally.per_operation(tally.reads), requests), "{tally:?} beside {requests}");
    let records = (1.0 - passes) * (1.0 + others) + passes * slots;
    assert!(is_near(tally.per_operation(tally.bytes_from), records * SLOT), "{tally:?} beside {records}");
    assert_eq!(tally.round_trips, tally.operations);
}

#[test]
fn an_insert_tells_the_other_compute_nodes_and_then_calls() {
    tells::<Bloom>();
    tells::<Cuckoo>();
}

fn tells<F: Filter>() {
    // Segments with room for all of them, so that none is replaced.
    let all = keys(20_000);
    let (loaded, new): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(i, _)| i % 16 != 0);
    let strip = |pairs: Vec<(usize, &u64)>| pairs.into_iter().map(|(_, key)| *key).collect::<Vec<_>>();
    let (loaded, new) = (strip(loaded), strip(new));
    let inserts: Vec<_> =
        new.iter().enumerate().map(|(i, key)| Operation::Insert { key: *key, value: i as u64 }).collect();
    let measured = run_over::<F>(&loaded, &inserts, &Options { fill: 0.3, ..options(None) });
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 2.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 5.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.calls), 1.0), "{tally:?}");
}
