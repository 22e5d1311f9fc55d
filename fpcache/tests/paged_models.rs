//! Pages on demand lead to the segments that the whole directory leads to, whatever is kept.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::thread;

use common::{Region, first_key, generation};
use fpcache::key_space::U64Keys;
use fpcache::layout::PAGE_BYTES;
use fpcache::models::{Page, PagedModels};
use fpcache::snapshot::Snapshot;
use proptest::prelude::*;

/// A snapshot of the region with room for about so many full pages.
fn open(region: &Region, pages: usize) -> Snapshot<U64Keys> {
    let least = PagedModels::<U64Keys>::least_bytes(region.pages.len() as u64);
    let bytes = least + (pages - 1) * (PAGE_BYTES + 150);
    let snapshot = Snapshot::open_within(&mut region.endpoint(), bytes as u64).unwrap();
    assert!(snapshot.models().paged().is_some());
    snapshot
}

/// The page, fetched unless it is kept.
fn fetch(region: &Region, models: &PagedModels<U64Keys>, number: u32) -> Arc<Page<U64Keys>> {
    models.kept(number).unwrap_or_else(|| {
        let mut bytes = [0; PAGE_BYTES];
        region.page(number, &mut bytes);
        models.keep(number, &bytes).unwrap()
    })
}

#[test]
fn the_least_recently_used_page_gives_way() {
    let region = Region::new(&[102; 8]);
    let snapshot = open(&region, 3);
    let models = snapshot.models().paged().unwrap();
    for number in [0, 1, 2] {
        fetch(&region, models, number);
    }
    assert_eq!(models.pages_kept(), 3);
    assert!(models.kept(0).is_some());
    fetch(&region, models, 5);
    let kept: Vec<_> = (0..8).filter(|number| models.kept(*number).is_some()).collect();
    assert_eq!(kept, [0, 2, 5]);
}

#[test]
fn a_page_that_gave_way_serves_whoever_holds_it() {
    let region = Region::new(&[102; 8]);
    let snapshot = open(&region, 1);
    let models = snapshot.models().paged().unwrap();
    let held = fetch(&region, models, 1);
    fetch(&region, models, 2);
    assert!(models.kept(1).is_none() && models.pages_kept() == 1);
    assert_eq!(held.locate(&first_key(110)).generation(), generation(110));
}

#[test]
fn a_page_fetched_twice_is_kept_once() {
    let region = Region::new(&[102; 8]);
    let snapshot = open(&region, 2);
    let models = snapshot.models().paged().unwrap();
    let mut bytes = [0; PAGE_BYTES];
    region.page(3, &mut bytes);
    let (first, second) = (models.keep(3, &bytes).unwrap(), models.keep(3, &bytes).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    let size = models.size_in_bytes();
    bytes[20] ^= 1;
    assert!(models.keep(4, &bytes).is_err() && models.keep(99, &bytes).is_err());
    assert_eq!((models.size_in_bytes(), models.pages_kept()), (size, 1));
}

#[test]
fn threads_that_crowd_each_other_out_stay_within_the_bytes() {
    let region = Region::new(&[102; 40]);
    for pages in [1, 3, 12, 33] {
        let snapshot = open(&region, pages);
        let models = snapshot.models().paged().unwrap();
        let bytes = PagedModels::<U64Keys>::least_bytes(40) + (pages - 1) * (PAGE_BYTES + 150);
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let region = &region;
                scope.spawn(move || {
                    for i in 0..2000 {
                        let segment = (i * 977 + thread * 31 * i) % (40 * 102);
                        let key = first_key(segment) + i % 10;
                        let page = fetch(region, models, models.page_of(&key));
                        assert_eq!(page.locate(&key).generation(), generation(segment));
                        assert!(models.size_in_bytes() <= bytes);
                    }
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_lead_to_the_same_segments_as_in_the_whole_directory(
        counts in prop::collection::vec(1..=102usize, 40..60),
        keys in prop::collection::vec(0..60_000u64, 1..60),
        pages in 1..12usize,
    ) {
        let region = Region::new(&counts);
        let whole = Snapshot::<U64Keys>::open(&mut region.endpoint()).unwrap();
        let directory = whole.models().resident().unwrap();
        let snapshot = open(&region, pages);
        let models = snapshot.models().paged().unwrap();
        for key in keys.into_iter().chain([0, u64::MAX]) {
            let number = models.page_of(&key);
            let page = fetch(&region, models, number);
            prop_assert_eq!(page.locate(&key), directory.locate(&key).unwrap().entry);
            let behind = models.first_behind(number).copied();
            let in_page = directory.range_from(&key).take_while(|(lo, _)| behind.is_none_or(|b| **lo < b));
            prop_assert!(page.range_from(&key).eq(in_page));
        }
    }
}
