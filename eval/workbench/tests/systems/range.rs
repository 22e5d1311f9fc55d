//! Plain range reads.

use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Measured, Operation};
use fpcache_workbench::range::Range;
use fpcache_workbench::segments::Options;
use fpcache_workbench::words::Memory;

use super::{absent, is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };
/// Bytes of the directory for each segment, and of slots of 8/8 and 128/128: a word before the key.
const SEGMENT: f64 = 42.0;
const SLOT: f64 = 24.0;
const LARGE_SLOT: f64 = 264.0;

/// Windows of the error bound, whatever keys need.
pub fn wide(budget: u64) -> Options {
    Options { least_epsilon: 16, ..Options::published(budget) }
}

/// Slots of a window on average: 33, less what the segments' two ends cut, each 16 · 17 / 2 slots
/// of all predictions together.
pub fn window(keys: usize, segments: f64) -> f64 {
    33.0 - 16.0 * 17.0 / (keys as f64 / 0.85 / segments)
}

fn measured(sizes: Sizes, keys: &[u64], operations: &[Operation], options: &Options) -> Measured {
    run(keys, operations, |memory, keys| {
        Range::new(memory, keys, sizes, NODES, options).expect("a directory")
    })
}

#[test]
fn a_lookup_is_one_read_of_a_windows_records_whether_the_key_is_there_or_not() {
    let keys = keys(50_000);
    let reads = operations(&keys, 60_000, 0, None);
    for (sizes, slot) in [(SMALL, SLOT), (Sizes { key: 128, value: 128 }, LARGE_SLOT)] {
        for operations in [&reads, &absent(50_000, 60_000)] {
            let measured = measured(sizes, &keys, operations, &wide(64 << 20));
            let tally = &measured.tally;
            assert_eq!((tally.round_trips, tally.reads), (tally.operations, tally.operations));
            let slots = window(keys.len(), measured.footprint.cached as f64 / SEGMENT);
            assert!(is_near(tally.per_operation(tally.bytes_from), slots * slot), "{slots} {tally:?}");
        }
    }
}

#[test]
fn windows_are_no_wider_than_the_keys_need_and_the_directory_is_all_that_is_kept() {
    let keys = keys(50_000);
    let operations = operations(&keys, 20_000, 0, None);
    let options = Options { epsilon: 64, ..Options::published(64 << 20) };
    let needed = measured(SMALL, &keys, &operations, &options);
    let full = measured(SMALL, &keys, &operations, &Options { least_epsilon: 64, ..options });
    assert!(needed.tally.bytes_from * 2 < full.tally.bytes_from);
    // One line serves as many keys as fill 85 % of the most slots that a segment has.
    let most = f64::from(fpcache::layout::TableParameters::default().max_slots) * 0.85;
    let bytes = SEGMENT * (50_000.0 / most).ceil();
    assert!(is_near(needed.footprint.cached as f64, bytes), "{:?}", needed.footprint);
    assert_eq!(needed.footprint.beside, 0);
    // A slot for each key at 85 %, and little else.
    assert!(is_near(needed.footprint.memory_nodes as f64, 50_000.0 / 0.85 * SLOT), "{:?}", needed.footprint);
}

#[test]
fn a_hot_entry_is_one_record() {
    let keys = keys(2_000);
    let operations = operations(&keys, 200_000, 0, None);
    let options = Options { keeps_hot: true, ..wide(64 << 20) };
    let measured = measured(SMALL, &keys, &operations, &options);
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.bytes_from), SLOT), "{tally:?}");
    // Sixteen bytes for each key.
    assert!(measured.footprint.cached >= 16 * 2_000 && measured.footprint.cached < 17 * 2_000);
}

#[test]
fn hot_entries_and_the_directory_keep_to_the_budget() {
    let keys = keys(5_000);
    let operations = operations(&keys, 50_000, 0, Some(0.99));
    let options = Options { keeps_hot: true, ..Options::published(8 << 10) };
    let measured = measured(SMALL, &keys, &operations, &options);
    assert!((7 << 10..=8 << 10).contains(&measured.footprint.cached), "{:?}", measured.footprint);
}

#[test]
fn updates_are_one_call_and_are_seen() {
    let keys = keys(20_000);
    let updates = operations(&keys, 60_000, 1, None);
    let tally = measured(SMALL, &keys, &updates, &Options::published(64 << 20)).tally;
    assert_eq!((tally.round_trips, tally.calls, tally.reads), (tally.operations, tally.operations, 0));
    assert!(is_near(tally.per_operation(tally.bytes_from), 32.0), "{tally:?}");
    let mixed = operations(&keys, 60_000, 2, Some(1.2));
    let options = Options { keeps_hot: true, ..Options::published(16 << 10) };
    measured(SMALL, &keys, &mixed, &options);
}

#[test]
fn an_update_of_a_key_that_is_not_there_writes_nothing() {
    let loaded = keys(1_000);
    let key = loaded[0] + 1;
    let each = |i: u64| [Operation::Update { key, value: 1 + i, reads: false }, Operation::Read { key }];
    let operations: Vec<_> = (0..2_000).flat_map(each).collect();
    // Were it told to have been written, the reads after it would be wrong.
    measured(SMALL, &loaded, &operations, &Options::published(64 << 20));
}

#[test]
fn a_directory_beyond_the_budget_is_refused() {
    let refused = Range::new(&mut Memory::new(1), &keys(50_000), SMALL, NODES, &Options::published(100));
    assert!(refused.is_err_and(|error| error.to_string().contains("budget of 100")));
}
