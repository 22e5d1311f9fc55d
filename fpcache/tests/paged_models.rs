//! Pages on demand lead to the segments that the whole directory leads to, whatever is kept.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/impatient.rs"]
mod impatient;
#[macro_use]
#[path = "common/keys.rs"]
mod keys;

use std::borrow::Borrow;
use std::sync::Arc;
use std::thread;

use common::{Firsts, Region, first_key, generation, least_bytes};
use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::models::{Page, PagedModels};
use fpcache::plan::PlanChoice;
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, Opening, TableView};
use fpcache_fabric::Endpoint;
use impatient::Impatient;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn bytes_for<K: Firsts>(region: &Region<K>, pages: usize) -> u64 {
    least_bytes(region) + ((pages - 1) * K::kept_bytes()) as u64
}

/// A view of the region with room for about `pages` full pages.
fn open<K: Firsts>(region: &Region<K>, pages: usize) -> TableView<K> {
    let view = TableView::open_within(&mut region.endpoint(), bytes_for(region, pages)).unwrap();
    assert!(view.models().paged().is_some());
    view
}

/// The page, fetched unless it is kept.
fn fetch<K: Firsts>(region: &Region<K>, models: &PagedModels<K>, number: u32) -> Arc<Page<K>> {
    models.kept(number).unwrap_or_else(|| {
        let mut bytes = vec![0; K::PAGE_BYTES];
        region.page(number, &mut bytes);
        models.keep(number, &bytes).unwrap()
    })
}

over_both_key_spaces! {
    the_least_recently_used_page_gives_way
    a_page_that_gave_way_serves_whoever_holds_it
    a_page_fetched_twice_is_kept_once
    threads_that_crowd_each_other_out_stay_within_the_bytes
    pages_that_came_before_a_call_was_over_are_not_fetched_again
}

/// A call that did not get to the last page left nothing to the next one.
fn pages_that_came_before_a_call_was_over_are_not_fetched_again<K: Firsts>() {
    let region = Region::<K>::new(&[2; 300]);
    let (mut endpoint, mut opening, mut calls) = (region.endpoint(), Opening::default(), 1);
    let options = TableOptions::plan(PlanChoice::Auto);
    let table = loop {
        let mut short = Impatient { inner: &mut endpoint, left: 2 };
        match Table::<K>::open_on(&mut short, &mut opening, &options) {
            Ok(table) => break table,
            Err(error) => assert!(matches!(error, OpenError::Fabric(_)), "{error}"),
        }
        calls += 1;
    };
    // Superblock, root, five batches of pages, and the head of the log.
    assert_eq!((calls, endpoint.meter().snapshot().round_trips), (4, 8));
    let generations = table.view().models().resident().unwrap().iter().map(|(_, s)| s.generation());
    assert!(generations.eq((0..600).map(generation)));
}

#[test]
fn a_directory_that_takes_more_than_was_foretold_is_not_fetched_to_its_end() {
    // Long strings that share nothing after every 60 of them: the directory has one of each eight
    // whole, a page hardly more than one of 60.
    let first = |i: u64| format!("{:06}{}{:03}", i / 60, "x".repeat(994), i % 60).into_bytes();
    let (pages, of_page) = (400, 200);
    let region = Region::<ByteKeys>::with_firsts(&vec![of_page; pages], 8, first);
    let read = |bytes: u64| {
        let mut endpoint = region.endpoint();
        let view = TableView::<ByteKeys>::open_within(&mut endpoint, bytes).unwrap();
        (view, endpoint.meter().snapshot().bytes_from)
    };
    let foretold = pages as u64 * 17_500 + (pages * of_page) as u64 * 18 + 8000;
    let ((whole, of_all), (view, of_some)) = (read(u64::MAX), read(foretold));
    assert!(whole.model_bytes() as u64 > foretold / 2 * 3, "{} of {foretold}", whole.model_bytes());
    assert!(view.models().paged().is_some());
    // What it takes by then is little more than it may, however large the directory is.
    assert!(of_some < of_all / 4 * 3, "{of_some} of {of_all} bytes are READ");
}

fn the_least_recently_used_page_gives_way<K: Firsts>() {
    let region = Region::<K>::new(&[K::full(); 20]);
    let view = open(&region, 3);
    let models = view.models().paged().unwrap();
    for number in [0, 1, 2] {
        fetch(&region, models, number);
    }
    assert_eq!(models.pages_kept(), 3);
    assert!(models.kept(0).is_some());
    // Pages are of different sizes.
    let came = (3..20).find(|number| {
        let before = models.pages_kept();
        fetch(&region, models, *number);
        models.pages_kept() <= before
    });
    let came = came.expect("no room for all");
    assert!(models.kept(1).is_none() && models.kept(0).is_some() && models.kept(came).is_some(), "{came}");
    assert!(K::FIXED_BYTES.is_none() || (came == 3 && models.kept(2).is_some()));
}

fn a_page_that_gave_way_serves_whoever_holds_it<K: Firsts>() {
    let region = Region::<K>::new(&[K::full(); 20]);
    let view = open(&region, 1);
    let models = view.models().paged().unwrap();
    let held = fetch(&region, models, 1);
    fetch(&region, models, 2);
    assert!(models.kept(1).is_none() && models.pages_kept() == 1);
    let segment = K::full() as u64 + 8;
    let (found, shared) = held.find_shared(first_key::<K>(segment).borrow());
    assert_eq!(found.generation(), generation(segment));
    assert_eq!(shared, K::shared(first_key::<K>(segment).borrow(), first_key::<K>(segment).borrow()));
}

fn a_page_fetched_twice_is_kept_once<K: Firsts>() {
    let region = Region::<K>::new(&[K::full(); 20]);
    let view = open(&region, 2);
    let models = view.models().paged().unwrap();
    let mut bytes = vec![0; K::PAGE_BYTES];
    region.page(3, &mut bytes);
    let (first, second) = (models.keep(3, &bytes).unwrap(), models.keep(3, &bytes).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    let size = models.size_in_bytes();
    bytes[20] ^= 1;
    assert!(models.keep(4, &bytes).is_err() && models.keep(99, &bytes).is_err());
    assert_eq!((models.size_in_bytes(), models.pages_kept()), (size, 1));
}

fn threads_that_crowd_each_other_out_stay_within_the_bytes<K: Firsts>() {
    let region = Region::<K>::new(&[K::full(); 40]);
    for pages in [1, 3, 12, 33] {
        let view = open(&region, pages);
        let models = view.models().paged().unwrap();
        let bytes = bytes_for(&region, pages) as usize;
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let (region, view) = (&region, &view);
                scope.spawn(move || {
                    for i in 0..2000 {
                        let segment = (i * 977 + thread * 31 * i) % (40 * K::full() as u64);
                        let key = K::key(segment * 10 + 5 + i % 10);
                        let page = fetch(region, models, models.page_of(key.borrow()));
                        assert_eq!(page.find_shared(key.borrow()).0.generation(), generation(segment));
                        assert!(view.model_bytes() <= bytes);
                    }
                });
            }
        });
    }
}

#[test]
fn pages_of_keys_that_share_kibibytes_are_kept() {
    const SEGMENTS: u64 = 280;
    const PAGES: usize = 450;
    let first = |i: u64| [&[b'x'; 4000][..], format!("{i:08}").as_bytes()].concat();
    let region = Region::<ByteKeys>::with_firsts(&[SEGMENTS as usize; PAGES], 8, first);
    // The models' share of 8 MiB.
    let view = TableView::open_within(&mut region.endpoint(), 7 << 20).unwrap();
    let models = view.models().paged().expect("all of them take more");
    for i in [0, 100_000, 7 * SEGMENTS, 40_000] {
        let (key, number) = (first(i), models.page_of(first(i).as_slice()));
        fetch(&region, models, number);
        let page = models.kept(number).expect("a second lookup costs no READ of the page");
        assert_eq!(page.find_shared(&key).0.generation(), generation(i));
        assert_eq!(page.locate(&key).map(|(start, _)| start), Some(key));
    }
    assert_eq!(models.pages_kept(), 4);
    (0..PAGES as u32).for_each(|number| drop(fetch(&region, models, number)));
    assert!(models.pages_kept() > 100 && view.model_bytes() <= 7 << 20, "{}", models.pages_kept());
}

fn assert_the_same_segments<K: Firsts>(
    counts: &[usize],
    keys: &[u64],
    pages: usize,
) -> Result<(), TestCaseError> {
    let region = Region::<K>::new(counts);
    let whole = TableView::<K>::open(&mut region.endpoint()).unwrap();
    let directory = whole.models().resident().unwrap();
    let view = open(&region, pages);
    let models = view.models().paged().unwrap();
    for key in keys.iter().chain([&0, &u64::MAX]) {
        let key = K::key(*key);
        let key = key.borrow();
        let number = models.page_of(key);
        let page = fetch(&region, models, number);
        prop_assert_eq!(Some(page.find_shared(key)), directory.find_shared(key));
        let end = models.first_after(number);
        let in_page = directory.range_from(key).take_while(|(start, _)| end.is_none_or(|b| start < b));
        prop_assert!(page.range_from(key).eq(in_page));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_lead_to_the_same_segments_as_in_the_whole_directory(
        counts in prop::collection::vec(1..=102usize, 40..60),
        keys in prop::collection::vec(0..60_000u64, 1..60),
        pages in 1..12usize,
    ) {
        assert_the_same_segments::<U64Keys>(&counts, &keys, pages)?;
        assert_the_same_segments::<ByteKeys>(&counts, &keys, pages)?;
    }
}
