//! DMTree.

use fpcache_workbench::Sizes;
use fpcache_workbench::dmtree::{DmTree, Options};

use super::{is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };

#[test]
fn a_lookup_is_one_record_for_each_fingerprint_that_matches() {
    for sizes in [SMALL, Sizes { key: 128, value: 128 }] {
        let keys = keys(5_000);
        let operations = operations(&keys, 150_000, 0, None);
        let options = Options::published(64 << 20);
        let measured =
            run(&keys, &operations, |memory, keys| DmTree::new(memory, keys, sizes, NODES, &options));
        let tally = &measured.tally;
        // Of 21 others in a leaf half come first on average, and one in 255 matches.
        let reads = 1.0 + 21.0 / 2.0 / 255.0;
        assert!(is_near(tally.per_operation(tally.reads), reads), "{tally:?}");
        let bytes = reads * (8 + sizes.key + sizes.value) as f64;
        assert!(is_near(tally.per_operation(tally.bytes_from), bytes), "{tally:?}");
    }
}

#[test]
fn inner_nodes_and_copies_take_the_published_bytes() {
    let keys = keys(22 * 32 * 20);
    let operations = operations(&keys, 300_000, 0, None);
    let options = Options::published(64 << 20);
    let measured = run(&keys, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    // (28 + K) for the leaf's record, and 56 for copies of the five sixths that others own.
    let paper = (36.0 + 56.0 * 5.0 / 6.0) / 22.0;
    assert!(is_near(measured.footprint.cached as f64 / keys.len() as f64, paper), "{:?}", measured.footprint);
    let beside = measured.footprint.beside - fpcache_workbench::delegation::TABLE_BYTES;
    assert!(is_near(beside as f64, 20.0 * 32.0 / 6.0 * 56.0), "{:?}", measured.footprint);
}

#[test]
fn without_copies_of_fingerprints_their_owner_is_read() {
    let keys = keys(20_000);
    let operations = operations(&keys, 60_000, 0, None);
    let options = Options { fingerprint_share: 0.0, ..Options::published(64 << 20) };
    let measured = run(&keys, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    let reads = 1.0 + 21.0 / 2.0 / 255.0;
    assert!(is_near(tally.per_operation(tally.reads), reads + 5.0 / 6.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), reads * 24.0 + 56.0 * 5.0 / 6.0), "{tally:?}");
}

#[test]
fn updates_take_five_round_trips_and_are_seen() {
    let keys = keys(20_000);
    let options = Options::published(64 << 20);
    let updates = operations(&keys, 60_000, 1, None);
    let measured = run(&keys, &updates, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    assert!((5.0..5.3).contains(&tally.per_operation(tally.round_trips)), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 2.0), "{tally:?}");
    let mixed = operations(&keys, 60_000, 2, Some(1.2));
    let options = Options::published(16 << 10);
    let measured = run(&keys, &mixed, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    assert!(measured.tally.atomics > measured.tally.writes / 2, "locks were contended");
}
