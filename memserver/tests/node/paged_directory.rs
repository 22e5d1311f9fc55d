//! Scans give the same answers when directory pages are fetched on demand, within the bytes the
//! models were given.

use std::borrow::Borrow;
use std::thread;

use crate::common::keys::TestKeys;
use crate::common::{Fixture, Reader, WAYS, scattered};
use fpcache::key_space::KeySpace;
use fpcache::layout::TableParameters;
use fpcache::models::PagedModels;
use fpcache::read::{Cost, Scan, ScanScratch, drive};
use fpcache::table_view::{OpenError, TableView};
use proptest::prelude::*;

/// Keys of the tables; pages of byte strings are longer, and so are the tables.
const KEYS: u64 = 4000;

fn keys<T: TestKeys>() -> u64 {
    if T::Space::FIXED_BYTES.is_some() { KEYS } else { 2 * KEYS }
}

/// A table of several directory pages.
fn fixture<T: TestKeys>(max_slots: u16, epsilon: u32) -> Fixture<T> {
    let parameters = TableParameters { epsilon, max_slots, ..T::parameters(8) };
    Fixture::new(scattered(keys::<T>()), parameters)
}

fn open_within<T: TestKeys>(f: &Fixture<T>, bytes: usize) -> Result<TableView<T::Space>, OpenError> {
    TableView::open_within(&mut f.endpoint(), bytes as u64)
}

/// The fewest bytes that do, as those are told who ask for fewer.
fn least_bytes<T: TestKeys>(f: &Fixture<T>) -> usize {
    let mut bytes = 0;
    loop {
        match open_within(f, bytes) {
            Ok(_) => return bytes,
            Err(OpenError::Budget { budget, least }) if budget == bytes as u64 && least > budget => {
                bytes = least as usize;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A paged view with the fewest bytes that do.
fn open_least<T: TestKeys>(f: &Fixture<T>) -> (TableView<T::Space>, usize) {
    let least = least_bytes(f);
    let view = open_within(f, least).unwrap();
    assert!(view.models().paged().is_some(), "too small a table");
    (view, least)
}

/// Bytes of the models themselves.
fn model_bytes<T: TestKeys>(view: &TableView<T::Space>) -> usize {
    view.model_bytes() - T::Space::encoders_bytes(view.encoders())
}

/// What a scan must find.
fn expected<T: TestKeys>(f: &Fixture<T>, start: u64, limit: usize) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let first = f.keys.partition_point(|key| *key < start);
    f.keys[first..].iter().take(limit).map(|key| (*key, f.value(*key, 1)))
}

fn scan_with_cost<T: TestKeys>(
    f: &Fixture<T>,
    view: &TableView<T::Space>,
    start: u64,
    limit: usize,
) -> (Vec<(u64, Vec<u8>)>, Cost) {
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(view, &mut scratch, T::key(start).borrow(), limit);
    drive(&mut f.endpoint(), &mut scan).unwrap();
    (scan.records().map(|(key, value)| (T::number(key), value.to_vec())).collect(), scan.cost())
}

fn a_budget_is_kept_or_refused_with_the_least_that_would_do<T: TestKeys>() {
    let f = fixture::<T>(16, 1);
    let whole = f.open().unwrap();
    let least = least_bytes(&f);
    if T::Space::FIXED_BYTES.is_some() {
        assert_eq!(least, PagedModels::<T::Space>::least_bytes(whole.record().pages));
    }
    assert!(whole.record().pages > 1, "several pages");
    assert!(open_within(&f, least - 1).is_err_and(|error| {
        assert!(error.to_string().contains("raise the cache budget"), "{error}");
        matches!(error, OpenError::Budget { budget, least: l } if budget + 1 == l && l == least as u64)
    }));
    let mut was_paged = true;
    // How many bytes all of it takes is known for certain only when it is here.
    let all = model_bytes::<T>(&whole) * 3 / 2 + whole.record().pages as usize * T::Space::PAGE_BYTES;
    for bytes in (least..all).step_by(997) {
        let view = open_within(&f, bytes).unwrap();
        let is_paged = view.models().paged().is_some();
        assert!(was_paged || !is_paged, "paged again with more bytes");
        assert!(model_bytes::<T>(&view) <= bytes);
        was_paged = is_paged;
    }
    assert!(!was_paged, "never resident");
}

fn a_page_costs_one_read_and_no_round_trip_of_its_own_once_a_scan_goes<T: TestKeys>() {
    let f = fixture::<T>(16, 1);
    let whole = f.open().unwrap();
    let pages = whole.record().pages as u32;
    for limit in [1, 50] {
        let paged = open_least(&f).0;
        let (records, cost) = scan_with_cost(&f, &whole, f.keys[10], limit);
        let (again, cold) = scan_with_cost(&f, &paged, f.keys[10], limit);
        let (_, warm) = scan_with_cost(&f, &paged, f.keys[10], limit);
        assert_eq!(records, again);
        assert_eq!(warm, cost);
        let page = Cost { round_trips: 1, reads: 1, bytes: T::Space::PAGE_BYTES as u64, ..Cost::default() };
        let mut more = cost;
        more += page;
        assert_eq!(cold, more);
    }
    let paged = open_least(&f).0;
    let (records, cost) = scan_with_cost(&f, &whole, 0, usize::MAX);
    let (again, cold) = scan_with_cost(&f, &paged, 0, usize::MAX);
    assert_eq!(records, again);
    // Where a page ends, what is read of the segments may be cut otherwise.
    let more = (cold.bytes as f64 - cost.bytes as f64) / T::Space::PAGE_BYTES as f64;
    assert!((more - f64::from(pages)).abs() < 0.2, "{cold:?} beside {cost:?}");
    assert!(T::Space::FIXED_BYTES.is_none() || cold.reads - cost.reads >= pages, "{cold:?} beside {cost:?}");
    assert!(cold.round_trips <= cost.round_trips + pages, "{cold:?} beside {cost:?}");
}

fn two_threads_share_the_pages_and_stay_within_the_bytes<T: TestKeys>() {
    let f = fixture::<T>(16, 1);
    let (_, least) = open_least(&f);
    for bytes in [least, least + 3000, least * 2, least * 4] {
        let view = open_within(&f, bytes).unwrap();
        thread::scope(|scope| {
            for thread in 0..2usize {
                let (f, view) = (&f, &view);
                scope.spawn(move || {
                    for i in 0..150 {
                        let start = f.keys[(i * 7919 + thread * 1777) % f.keys.len()];
                        let limit = [1, 3, 40, 300][i % 4];
                        let (records, _) = scan_with_cost(f, view, start, limit);
                        assert!(records.into_iter().eq(expected(f, start, limit)), "from {start}, {limit}");
                        assert!(model_bytes::<T>(view) <= bytes);
                    }
                });
            }
        });
    }
}

/// Bytes for models: the least, and a share of what is between that and all.
fn budget<T: TestKeys>(f: &Fixture<T>, whole: &TableView<T::Space>, share: f64) -> usize {
    let least = least_bytes(f);
    least + ((model_bytes::<T>(whole).saturating_sub(least)) as f64 * share) as usize
}

fn scans_do_not_depend_on_what_is_kept<T: TestKeys>() {
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    let scans = prop::collection::vec((0..KEYS as usize, -1..2i64, 0..600usize), 1..20);
    let ends = prop::collection::vec(any::<u64>(), 0..3);
    proptest!(config, |(share in 0.0..1.2f64, max_slots in 16..40u16, epsilon in 1..4u32, scans in scans, ends in ends)| {
        let f = fixture::<T>(max_slots, epsilon);
        let whole = f.open().unwrap();
        let bytes = budget(&f, &whole, share);
        let paged = open_within(&f, bytes).unwrap();
        // A few byte strings may take less than room for a page.
        prop_assert!(share > 1.0 || T::Space::FIXED_BYTES.is_none() || paged.models().paged().is_some());
        let starts = scans.iter().map(|(at, by, limit)| (f.keys[*at].saturating_add_signed(*by), *limit));
        let ends = ends.iter().chain(&[0, u64::MAX]).map(|start| (*start, usize::MAX));
        let mut readers = [whole, paged].map(|view| Reader::<T>::new(f.endpoint(), view, WAYS[0]));
        for (start, limit) in starts.chain(ends) {
            let [resident, paged] = readers.each_mut().map(|reader| reader.scan(start, limit).unwrap());
            prop_assert!(resident.iter().cloned().eq(expected(&f, start, limit)), "from {}, {}", start, limit);
            prop_assert_eq!(&resident, &paged, "from {}, {}", start, limit);
            prop_assert!(model_bytes::<T>(readers[1].table.view()) <= bytes);
        }
    });
}

fn lookups_do_not_depend_on_what_is_kept<T: TestKeys>() {
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    let asked = prop::collection::vec((0..KEYS as usize, -1..2i64), 1..60);
    proptest!(config, |(share in 0.0..0.9f64, max_slots in 16..40u16, asked in asked, size in 1..40usize)| {
        let f = fixture::<T>(max_slots, 2);
        let bytes = budget(&f, &f.open().unwrap(), share);
        let asked: Vec<u64> = asked.iter().map(|(at, by)| f.keys[*at].saturating_add_signed(*by)).collect();
        let expected = |key: &u64| f.keys.binary_search(key).ok().map(|_| (1, f.value(*key, 1)));
        for way in WAYS {
            let mut reader = Reader::<T>::new(f.endpoint(), open_within(&f, bytes).unwrap(), way);
            for key in &asked {
                let (first, answer) = reader.get_with_outcome(*key).unwrap();
                prop_assert_eq!(answer, expected(key), "{:?}", way);
                let (again, answer) = reader.get_with_outcome(*key).unwrap();
                prop_assert_eq!(answer, expected(key), "{:?}", way);
                // A page that was fetched is there the next time, and was one READ more.
                let fetched = (first.cost.reads - again.cost.reads, first.cost.bytes - again.cost.bytes);
                let page = (1, T::Space::PAGE_BYTES as u64);
                prop_assert!(fetched == (0, 0) || fetched == page, "{:?} {:?}", first, again);
                prop_assert_eq!(first.cost.round_trips - again.cost.round_trips, fetched.0);
            }
            for keys in asked.chunks(size) {
                let answers: Vec<_> = keys.iter().map(expected).collect();
                prop_assert_eq!(reader.group(keys).unwrap(), answers, "{:?}", way);
            }
            prop_assert!(model_bytes::<T>(reader.table.view()) <= bytes);
        }
    });
}

for_all_keys!(
    a_budget_is_kept_or_refused_with_the_least_that_would_do,
    a_page_costs_one_read_and_no_round_trip_of_its_own_once_a_scan_goes,
    two_threads_share_the_pages_and_stay_within_the_bytes,
    scans_do_not_depend_on_what_is_kept,
    lookups_do_not_depend_on_what_is_kept,
);
