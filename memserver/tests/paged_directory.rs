//! Scans give the same answers when directory pages are fetched on demand, within the bytes the models were given.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::thread;

use common::{Fixture, Reader, WAYS, scattered};
use fpcache::key_space::U64Keys;
use fpcache::layout::{PAGE_BYTES, TableParameters};
use fpcache::models::PagedModels;
use fpcache::read::{Cost, Scan, ScanScratch, drive};
use fpcache::snapshot::{OpenError, Snapshot};
use proptest::prelude::*;

const KEYS: u64 = 4000;

/// A table of several directory pages.
fn fixture(max_slots: u16, epsilon: u32) -> Fixture {
    let parameters = TableParameters { epsilon, max_slots, ..TableParameters::default() };
    Fixture::new(scattered(KEYS), parameters)
}

fn open_within(f: &Fixture, bytes: usize) -> Result<Snapshot<U64Keys>, OpenError> {
    Snapshot::open_within(&mut f.endpoint(), bytes as u64)
}

/// A paged snapshot with the fewest bytes that do.
fn open_least(f: &Fixture) -> (Snapshot<U64Keys>, usize) {
    let least = PagedModels::<U64Keys>::least_bytes(f.open().unwrap().record().pages);
    let snapshot = open_within(f, least).unwrap();
    assert!(snapshot.models().paged().is_some());
    (snapshot, least)
}

/// What a scan must find.
fn expected(f: &Fixture, start: u64, limit: usize) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let first = f.keys.partition_point(|key| *key < start);
    f.keys[first..].iter().take(limit).map(|key| (*key, f.value(*key, 1)))
}

fn scan_with_cost(
    f: &Fixture,
    snapshot: &Snapshot<U64Keys>,
    start: u64,
    limit: usize,
) -> (Vec<(u64, Vec<u8>)>, Cost) {
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(snapshot, &mut scratch, start, limit);
    drive(&mut f.endpoint(), &mut scan).unwrap();
    (scan.records().map(|(key, value)| (key, value.to_vec())).collect(), scan.cost())
}

#[test]
fn a_budget_is_kept_or_refused_with_the_least_that_would_do() {
    let f = fixture(16, 1);
    let whole = f.open().unwrap();
    let least = PagedModels::<U64Keys>::least_bytes(whole.record().pages);
    assert!(whole.record().pages > 4, "several pages");
    assert!(open_within(&f, least - 1).is_err_and(|error| {
        assert!(error.to_string().contains("raise the cache budget"), "{error}");
        matches!(error, OpenError::Budget { budget, least: l } if budget + 1 == l && l == least as u64)
    }));
    let mut was_paged = true;
    for bytes in (least..whole.model_bytes() * 3 / 2).step_by(997) {
        let snapshot = open_within(&f, bytes).unwrap();
        let is_paged = snapshot.models().paged().is_some();
        assert!(was_paged || !is_paged, "paged again with more bytes");
        assert!(snapshot.model_bytes() <= bytes);
        was_paged = is_paged;
    }
    assert!(!was_paged, "never resident");
}

#[test]
fn a_page_costs_one_read_and_no_round_trip_of_its_own_once_a_scan_goes() {
    let f = fixture(16, 1);
    let (whole, (paged, _)) = (f.open().unwrap(), open_least(&f));
    let pages = whole.record().pages as u32;
    for limit in [1, 50] {
        let (records, cost) = scan_with_cost(&f, &whole, f.keys[10], limit);
        let (again, cold) = scan_with_cost(&f, &paged, f.keys[10], limit);
        let (_, warm) = scan_with_cost(&f, &paged, f.keys[10], limit);
        assert_eq!(records, again);
        assert_eq!(warm, cost);
        let page = Cost { round_trips: 1, reads: 1, bytes: PAGE_BYTES as u64, ..Cost::default() };
        let mut more = cost;
        more += page;
        assert_eq!(cold, more);
        // Another page, so that the first one is not kept.
        scan_with_cost(&f, &paged, u64::MAX - 1, 1);
    }
    let (records, cost) = scan_with_cost(&f, &whole, 0, usize::MAX);
    let (again, cold) = scan_with_cost(&f, &paged, 0, usize::MAX);
    assert_eq!(records, again);
    assert_eq!((cold.reads - cost.reads) / pages, 1, "{cold:?} beside {cost:?}");
    assert!(cold.round_trips <= cost.round_trips + pages, "{cold:?} beside {cost:?}");
}

#[test]
fn two_threads_share_the_pages_and_stay_within_the_bytes() {
    let f = fixture(16, 1);
    let (_, least) = open_least(&f);
    for bytes in [least, least + 3000, least * 2, least * 4] {
        let snapshot = open_within(&f, bytes).unwrap();
        thread::scope(|scope| {
            for thread in 0..2usize {
                let (f, snapshot) = (&f, &snapshot);
                scope.spawn(move || {
                    for i in 0..150 {
                        let start = f.keys[(i * 7919 + thread * 1777) % f.keys.len()];
                        let limit = [1, 3, 40, 300][i % 4];
                        let (records, _) = scan_with_cost(f, snapshot, start, limit);
                        assert!(records.into_iter().eq(expected(f, start, limit)), "from {start}, {limit}");
                        assert!(snapshot.model_bytes() <= bytes);
                    }
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scans_do_not_depend_on_what_is_kept(
        share in 0.0..1.2f64,
        max_slots in 16..40u16,
        epsilon in 1..4u32,
        scans in prop::collection::vec((0..KEYS as usize, -1..2i64, 0..600usize), 1..20),
        ends in prop::collection::vec(any::<u64>(), 0..3),
    ) {
        let f = fixture(max_slots, epsilon);
        let whole = f.open().unwrap();
        let least = PagedModels::<U64Keys>::least_bytes(whole.record().pages);
        let bytes = least + ((whole.model_bytes().saturating_sub(least)) as f64 * share) as usize;
        let paged = open_within(&f, bytes).unwrap();
        prop_assert!(share > 1.0 || paged.models().paged().is_some());
        let starts = scans.iter().map(|(at, by, limit)| (f.keys[*at].saturating_add_signed(*by), *limit));
        let ends = ends.iter().chain(&[0, u64::MAX]).map(|start| (*start, usize::MAX));
        let mut readers = [whole, paged].map(|snapshot| Reader::new(f.endpoint(), snapshot, WAYS[0]));
        for (start, limit) in starts.chain(ends) {
            let [resident, paged] = readers.each_mut().map(|reader| reader.scan(start, limit).unwrap());
            prop_assert!(resident.iter().cloned().eq(expected(&f, start, limit)), "from {}, {}", start, limit);
            prop_assert_eq!(&resident, &paged, "from {}, {}", start, limit);
            prop_assert!(readers[1].table.snapshot().model_bytes() <= bytes);
        }
    }

    #[test]
    fn lookups_do_not_depend_on_what_is_kept(
        share in 0.0..0.9f64,
        max_slots in 16..40u16,
        asked in prop::collection::vec((0..KEYS as usize, -1..2i64), 1..60),
        size in 1..40usize,
    ) {
        let f = fixture(max_slots, 2);
        let whole = f.open().unwrap();
        let least = PagedModels::<U64Keys>::least_bytes(whole.record().pages);
        let bytes = least + ((whole.model_bytes().saturating_sub(least)) as f64 * share) as usize;
        let asked: Vec<u64> = asked.iter().map(|(at, by)| f.keys[*at].saturating_add_signed(*by)).collect();
        let expected = |key: &u64| f.keys.binary_search(key).ok().map(|_| (1, f.value(*key, 1)));
        for way in WAYS {
            let mut reader = Reader::new(f.endpoint(), open_within(&f, bytes).unwrap(), way);
            for key in &asked {
                let (first, answer) = reader.get_with_outcome(*key).unwrap();
                prop_assert_eq!(answer, expected(key), "{:?}", way);
                let (again, answer) = reader.get_with_outcome(*key).unwrap();
                prop_assert_eq!(answer, expected(key), "{:?}", way);
                // A page that was fetched is there the next time, and was one READ more.
                let fetched = (first.cost.reads - again.cost.reads, first.cost.bytes - again.cost.bytes);
                prop_assert!(fetched == (0, 0) || fetched == (1, 4096), "{:?} {:?}", first, again);
                prop_assert_eq!(first.cost.round_trips - again.cost.round_trips, fetched.0);
            }
            for keys in asked.chunks(size) {
                let answers: Vec<_> = keys.iter().map(expected).collect();
                prop_assert_eq!(reader.group(keys).unwrap(), answers, "{:?}", way);
            }
            prop_assert!(reader.table.snapshot().model_bytes() <= bytes);
        }
    }
}
