//! CHIME.

use fpcache_workbench::Sizes;
use fpcache_workbench::chime::{Chime, Options};
use fpcache_workbench::inner_nodes::Inner;

use super::{is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };
const LARGE: Sizes = Sizes { key: 128, value: 128 };

#[test]
fn a_lookup_is_one_neighbourhood_without_hot_entries() {
    // 8 (3 + K + V) + 12 and the versions of cache lines, as comparisons of the source's constants
    // have it.
    for (sizes, bytes) in [(SMALL, 164.5), (LARGE, 2115.0)] {
        let keys = keys(20_000);
        let operations = operations(&keys, 100_000, 0, None);
        let options = Options { hot_share: 0.0, ..Options::published(64 << 20) };
        let measured =
            run(&keys, &operations, |memory, keys| Chime::new(memory, keys, sizes, NODES, &options));
        let tally = &measured.tally;
        assert!(is_near(tally.per_operation(tally.round_trips), 1.0), "{tally:?}");
        assert!(is_near(tally.per_operation(tally.reads), 1.0 + 7.0 / 64.0), "{tally:?}");
        assert!(is_near(tally.per_operation(tally.bytes_from), bytes), "{tally:?}");
    }
}

#[test]
fn a_hot_entry_is_read_alone() {
    for (sizes, bytes) in [(SMALL, 20.6), (LARGE, 264.0)] {
        // Every key is hot: there is room for all entries, and each has been found before.
        let keys = keys(1_000);
        let operations = operations(&keys, 150_000, 0, None);
        let options = Options { hot_share: 0.5, ..Options::published(8 << 20) };
        let measured =
            run(&keys, &operations, |memory, keys| Chime::new(memory, keys, sizes, NODES, &options));
        let tally = &measured.tally;
        assert!(is_near(tally.per_operation(tally.reads), 1.0), "{tally:?}");
        assert!(is_near(tally.per_operation(tally.bytes_from), bytes), "{tally:?}");
    }
}

#[test]
fn inner_nodes_take_the_published_bytes_of_cache() {
    // A few leaves fewer than 64 full nodes have: here and there a leaf takes one key less.
    let keys = keys(41 * (64 * 64 - 20));
    let operations = operations(&keys, 100_000, 0, None);
    let options = Options { hot_share: 0.0, ..Options::published(64 << 20) };
    let measured = run(&keys, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    // (K + 9 + (35 + 2K + 16) / 64) per leaf, and a 64th for the level above.
    let per_leaf = 17.0 + 67.0 / 64.0;
    let paper = per_leaf / 41.0 * (1.0 + 1.0 / 64.0);
    assert!(is_near(measured.footprint.cached as f64 / keys.len() as f64, paper), "{:?}", measured.footprint);
}

#[test]
fn tables_of_the_source_are_reported_beside_the_budget() {
    let keys = keys(20_000);
    let operations = operations(&keys, 20_000, 0, None);
    let beside = |hot_share| {
        let options = Options { hot_share, ..Options::published(8 << 20) };
        run(&keys, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options))
            .footprint
            .beside
    };
    // That for delegation, 4 M entries of 208 bytes, and that for hot entries, 128 MB for 30 MB of
    // them.
    let delegation = (4 << 20) * 208;
    assert_eq!(beside(0.0), delegation);
    let hot = (beside(0.5) - delegation) as f64;
    assert!(is_near(hot, 0.5 * f64::from(8 << 20) * 128.0 / 30.0), "{hot}");
}

#[test]
fn without_copies_every_level_is_read() {
    let keys = keys(100_000);
    let operations = operations(&keys, 20_000, 0, None);
    let options = Options { hot_share: 0.0, ..Options::published(0) };
    let measured = run(&keys, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    // 100,000 keys are 2,440 leaves under 39 nodes under a root.
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 4.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 8.0 + 2.0 * 1148.0 + 164.5), "{tally:?}");
}

#[test]
fn narrow_inner_nodes_of_long_keys_are_short() {
    let keys = keys(100_000);
    let operations = operations(&keys, 20_000, 0, None);
    let inner = Inner { span: 16, all_levels: true };
    let options = Options { hot_share: 0.0, inner, ..Options::published(0) };
    let tally =
        run(&keys, &operations, |memory, keys| Chime::new(memory, keys, LARGE, NODES, &options)).tally;
    // 2,440 leaves are under 153 nodes, these under 10, and these under a root.
    assert!(is_near(tally.per_operation(tally.round_trips), 5.0), "{tally:?}");
    let nodes = 3.0 * (16.0 * 137.0 + 60.0);
    assert!(is_near(tally.per_operation(tally.bytes_from), 8.0 + nodes + 2115.0), "{tally:?}");
}

#[test]
fn updates_take_three_round_trips_and_are_seen() {
    let keys = keys(20_000);
    let updates = operations(&keys, 100_000, 1, Some(0.5));
    let options = Options::published(64 << 20);
    let measured = run(&keys, &updates, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    // A few more where others hold the lock of a leaf.
    let trips = tally.per_operation(tally.round_trips);
    assert!((3.0..3.2).contains(&trips), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 2.0), "{tally:?}");
    let mixed = operations(&keys, 100_000, 2, Some(1.2));
    let options = Options::published(16 << 10);
    let measured = run(&keys, &mixed, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    assert!(measured.tally.atomics > measured.tally.writes / 2, "locks were contended");
}
