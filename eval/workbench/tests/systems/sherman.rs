//! Sherman.

use fpcache_workbench::Sizes;
use fpcache_workbench::inner_nodes::Inner;
use fpcache_workbench::sherman::{Options, Sherman};

use super::{is_near, keys, operations, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };

#[test]
fn a_lookup_is_one_page_of_a_kilobyte_and_pages_take_the_published_bytes() {
    // As many keys as fill whole pages.
    let keys = keys(37 * 42 * 50);
    let operations = operations(&keys, 100_000, 0, None);
    let options = Options::published(64 << 20);
    let measured = run(&keys, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 1.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 1024.0), "{tally:?}");
    let paper = 1024.0 / (37.0 * 42.0);
    assert!(is_near(measured.footprint.cached as f64 / keys.len() as f64, paper), "{:?}", measured.footprint);
}

#[test]
fn without_copies_every_level_is_a_page() {
    let keys = keys(37 * 42 * 30);
    let operations = operations(&keys, 20_000, 0, None);
    let options = Options::published(0);
    let measured = run(&keys, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    assert!(is_near(tally.per_operation(tally.round_trips), 3.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 3.0 * 1024.0), "{tally:?}");
}

#[test]
fn narrow_pages_of_long_keys_are_short_and_kept_ones_of_the_highest_levels_spare_round_trips() {
    let sizes = Sizes { key: 128, value: 128 };
    let leaf_slots = Options::slots_of_page(sizes);
    assert_eq!((leaf_slots, Options::slots_of_page(SMALL)), (3, 54));
    let keys = keys(60_000);
    let operations = operations(&keys, 60_000, 0, None);
    let of = |all_levels: bool| {
        // Of 30,000 leaves those below some 1,500 of 6,000 lowest pages.
        let inner = Inner { span: 8, all_levels };
        let options = Options { leaf_slots, inner, ..Options::published(1_700_000) };
        run(&keys, &operations, |memory, keys| Sherman::new(memory, keys, sizes, NODES, &options)).tally
    };
    let (lowest, all) = (of(false), of(true));
    let bytes = lowest.per_operation(lowest.bytes_from) - (52.0 + 3.0 * 258.0);
    let pages = lowest.per_operation(lowest.round_trips) - 1.0;
    assert!(is_near(bytes / pages, 48.0 + 8.0 * 136.0), "{lowest:?}");
    assert!(all.round_trips * 3 < lowest.round_trips * 2, "{all:?} beside {lowest:?}");
}

#[test]
fn updates_take_three_round_trips_and_are_seen() {
    let keys = keys(20_000);
    let options = Options::published(64 << 20);
    let updates = operations(&keys, 100_000, 1, None);
    let measured = run(&keys, &updates, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    let tally = &measured.tally;
    assert!((3.0..3.2).contains(&tally.per_operation(tally.round_trips)), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.writes), 2.0), "{tally:?}");
    let mixed = operations(&keys, 100_000, 2, Some(1.2));
    let options = Options::published(16 << 10);
    let measured = run(&keys, &mixed, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    assert!(measured.tally.atomics > measured.tally.writes / 2, "locks were contended");
}
