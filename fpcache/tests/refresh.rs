//! A reader whose directory is out of date notices, and catches up with the change log, whatever the log holds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/node.rs"]
mod node;

use std::cell::RefCell;

use fpcache::Refresh;
use fpcache::cache::CacheConfig;
use fpcache::key_space::U64Keys;
use fpcache::layout::{ChangeRecord, Descriptor, SegmentAddress};
use fpcache::matching::Matcher;
use fpcache::models::PagedModels;
use fpcache::read::{
    Lookup, LookupScratch, Operation, Outcome, Plan, PlanChoice, ReadError, Scan, ScanScratch, Step, drive,
    look_up,
};
use fpcache::snapshot::{OpenError, Snapshot};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::Endpoint;
use fpcache_index::{Line, SegmentModel};
use node::{CAP, EPSILON, Interrupted, Node};
use proptest::prelude::*;

const PLANS: [Plan; 3] = [Plan::TwoStage, Plan::Range, Plan::Speculative];

/// Five segments of ten keys each, 0, 10, 20, …, with every even key, whose value is itself.
fn node() -> Node {
    let records: Vec<(u64, u64)> = (0..25).map(|i| (2 * i, 2 * i)).collect();
    Node::new(&[0, 10, 20, 30, 40], &records, 8, 8)
}

fn entries(snapshot: &Snapshot<U64Keys>) -> Vec<(u64, u64, u32)> {
    let directory = snapshot.models().resident().unwrap();
    directory.iter().map(|(lo, s)| (*lo, s.address().offset(), s.generation())).collect()
}

fn open(node: &Node) -> Snapshot<U64Keys> {
    Snapshot::open(&mut node.endpoint()).unwrap()
}

/// A snapshot that fetches pages.
fn open_paged(node: &Node) -> Snapshot<U64Keys> {
    let bytes = PagedModels::<U64Keys>::least_bytes(3) as u64;
    let snapshot = Snapshot::open_within(&mut node.endpoint(), bytes).unwrap();
    assert!(snapshot.models().paged().is_some());
    snapshot
}

fn newer<T: std::fmt::Debug>(refreshed: Result<Refresh<T>, OpenError>) -> T {
    match refreshed.unwrap() {
        Refresh::Newer(newer) => newer,
        other => panic!("{other:?}"),
    }
}

fn by(snapshot: Snapshot<U64Keys>, plan: Plan) -> Table<U64Keys> {
    Table::over(snapshot, &TableOptions::plan(PlanChoice::Fixed(plan))).unwrap()
}

/// Looks a key up on its own and in a group, which must agree.
fn get<E: Endpoint>(endpoint: &mut E, table: &Table<U64Keys>, key: u64) -> Result<Option<u64>, ReadError> {
    let mut scratch = LookupScratch::new(Matcher::detect());
    let number = |value: Option<&[u8]>| value.map(|v| u64::from_le_bytes(*v.first_chunk().unwrap()));
    let single = look_up(endpoint, table, &mut scratch, key, |_: &Outcome, value| number(value));
    let grouped = drive(endpoint, &mut Lookup::new(table, &mut scratch, [key]))
        .map(|()| number(scratch.outcomes().next().unwrap().1));
    assert_eq!(format!("{single:?}"), format!("{grouped:?}"));
    single
}

fn is_stale<T>(result: &Result<T, ReadError>) -> bool {
    matches!(result, Err(ReadError::Stale))
}

#[test]
fn a_snapshot_that_is_refreshed_is_the_one_that_is_opened() {
    let mut node = node();
    let first = open(&node);
    assert_eq!(first.sequence(), 0);
    assert!(matches!(first.refresh(&mut node.endpoint()).unwrap(), Refresh::Current));
    node.replace(10, 29, &[10, 15, 20]);
    let second = newer(first.refresh(&mut node.endpoint()));
    assert_eq!((second.sequence(), first.sequence()), (3, 0));
    assert_eq!(entries(&second), entries(&open(&node)));
    node.replace(40, u64::MAX, &[40]);
    node.replace(0, 14, &[0]);
    let third = newer(second.refresh(&mut node.endpoint()));
    assert_eq!(entries(&third), entries(&open(&node)));
    assert_eq!(
        third.models().resident().unwrap().iter().map(|(lo, _)| *lo).collect::<Vec<_>>(),
        [0, 15, 20, 30, 40]
    );
    // Of a newer checkpoint, without any change after it.
    node.checkpoint();
    assert_eq!((entries(&open(&node)), open(&node).sequence()), (entries(&third), 5));
}

#[test]
fn a_refresh_costs_a_round_trip_for_the_head_and_one_for_the_news() {
    let mut node = node();
    let snapshot = open(&node);
    node.replace(10, 19, &[10]);
    let mut endpoint = node.endpoint();
    let _ = newer(snapshot.refresh(&mut endpoint));
    assert_eq!(endpoint.meter().snapshot().round_trips, 2);
}

#[test]
fn a_reader_that_fell_behind_the_log_opens_anew_and_keeps_its_hot_cache() {
    let mut node = node();
    let options =
        TableOptions { cache: Some(CacheConfig::of(1 << 16)), ..TableOptions::plan(PlanChoice::Auto) };
    let mut endpoint = node.endpoint();
    let table = Table::<U64Keys>::open(&mut endpoint, &options).unwrap();
    for _ in 0..9 {
        node.replace(10, 19, &[10]);
        node.checkpoint();
    }
    assert!(matches!(table.snapshot().refresh(&mut endpoint).unwrap(), Refresh::Lost));
    let refreshed = newer(table.refreshed(&mut endpoint));
    assert_eq!(refreshed.snapshot().sequence(), 9);
    assert!(std::ptr::eq(table.cache().unwrap(), refreshed.cache().unwrap()));
    assert_eq!(get(&mut endpoint, &refreshed, 12).unwrap(), Some(12));
}

#[test]
fn hot_entries_of_before_are_right_after_a_refresh() {
    let mut node = node();
    let options = TableOptions {
        cache: Some(CacheConfig::of(1 << 16)),
        ..TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage))
    };
    let mut endpoint = node.endpoint();
    let table = Table::<U64Keys>::open(&mut endpoint, &options).unwrap();
    let mut scratch = LookupScratch::new(Matcher::detect()).with_visitor(table.cache().unwrap().visitor(1));
    let mut ask = |table: &Table<U64Keys>, key| {
        let take = |o: &Outcome, v: Option<&[u8]>| {
            (o.plan, v.map(|v| u64::from_le_bytes(*v.first_chunk().unwrap())))
        };
        look_up(&mut node.endpoint(), table, &mut scratch, key, take).unwrap()
    };
    (0..50).step_by(2).for_each(|key| _ = ask(&table, key));
    assert_eq!(ask(&table, 12), (Plan::Cached, Some(12)));
    // Everything in another place.
    let table = {
        let firsts = [5, 8, 10, 17, 20, 30, 40];
        node.records.extend((0..50).map(|key| (key, 1000 + key)));
        node.replace(0, 39, &[0, 5, 8, 10, 17, 20, 30]);
        assert_eq!(firsts.len(), 7);
        newer(table.refreshed(&mut endpoint))
    };
    let mut ask = |key| {
        let take = |_: &Outcome, v: Option<&[u8]>| v.map(|v| u64::from_le_bytes(*v.first_chunk().unwrap()));
        look_up(&mut endpoint, &table, &mut scratch, key, take).unwrap()
    };
    for key in (0..40).rev().chain(0..40) {
        assert_eq!(ask(key), Some(1000 + key));
    }
}

#[test]
fn absence_rests_on_the_reuse_sequence_and_presence_does_not() {
    let mut node = node();
    for plan in PLANS {
        let table = by(open(&node), plan);
        let mut endpoint = node.endpoint();
        node.set_head(node.head + 1);
        node.reuse(node.head - 1);
        assert_eq!(
            get(&mut endpoint, &table, 13).unwrap(),
            None,
            "memory given up before is nothing to this reader"
        );
        node.reuse(node.head);
        assert!(is_stale(&get(&mut endpoint, &table, 13)), "{plan:?}");
        assert_eq!(get(&mut endpoint, &table, 12).unwrap(), Some(12), "{plan:?}");
        let mut scratch = ScanScratch::default();
        let scanned = drive(&mut endpoint, &mut Scan::new(table.snapshot(), &mut scratch, 0, 10));
        assert!(is_stale(&scanned));
        // A table of that sequence.
        node.checkpoint();
        let table = by(open(&node), plan);
        assert_eq!(get(&mut endpoint, &table, 13).unwrap(), None);
    }
}

#[test]
fn a_replaced_segment_sends_every_plan_for_a_newer_directory() {
    let mut node = node();
    for plan in PLANS {
        let table = by(open(&node), plan);
        let mut endpoint = node.endpoint();
        let value = node.head + 500;
        node.records.insert(12, value);
        node.replace(10, 19, &[10]);
        assert!(is_stale(&get(&mut endpoint, &table, 12)) && is_stale(&get(&mut endpoint, &table, 13)));
        assert_eq!(get(&mut endpoint, &table, 22).unwrap(), Some(22));
        let table = newer(table.refreshed(&mut endpoint));
        assert_eq!(get(&mut endpoint, &table, 12).unwrap(), Some(value));
        assert_eq!(get(&mut endpoint, &table, 13).unwrap(), None);
    }
}

#[test]
fn a_scan_that_meets_a_change_goes_on_where_it_was() {
    // Slots so long that a round has room for a segment or two.
    let records: Vec<(u64, u64)> = (0..300).map(|i| (2 * i, i)).collect();
    let firsts: Vec<u64> = (0..60).map(|i| 10 * i).collect();
    let mut node = Node::new(&firsts, &records, 64, 2000);
    let mut table = by(open(&node), Plan::TwoStage);
    let (mut endpoint, mut scratch) = (node.endpoint(), ScanScratch::default());
    let (mut seen, mut from, mut refreshes) = (Vec::new(), Some(0), 0);
    while let Some(next) = from {
        let mut scan = Scan::new(table.snapshot(), &mut scratch, next, usize::MAX >> 1);
        let mut rounds = 0;
        let ended = loop {
            match scan.step() {
                Ok(Step::Post) => {
                    rounds += 1;
                    if rounds == 2 && refreshes < 5 {
                        // Segments ahead are merged and cut otherwise.
                        let lo = 100 * (refreshes + 1);
                        node.replace(lo, node.end_of(lo + 10), &[lo, lo + 7, lo + 14]);
                        node.replace(lo + 50, node.end_of(lo + 50), &[lo + 50]);
                    }
                    endpoint.run(scan.batch()).unwrap();
                }
                Ok(Step::Check(until)) => {
                    assert_eq!(until, table.snapshot().sequence());
                }
                Ok(Step::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        seen.extend(
            scan.records().map(|(key, value)| (key, u64::from_le_bytes(*value.first_chunk().unwrap()))),
        );
        from = scan.uncovered();
        match ended {
            Ok(()) => break,
            Err(ReadError::Stale) => {
                refreshes += 1;
                table = newer(table.refreshed(&mut endpoint));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refreshes > 2, "{refreshes}");
    assert_eq!(seen, records);
}

#[test]
fn a_scan_lists_a_key_once_though_it_shows_in_two_slots() {
    let node = node();
    let segment = node.segments[&10];
    // Removed from slot 2, which the READ saw before, and made again in slot 3.
    node.put(node.slot_at(&segment, 3), &node.slot(&segment, 9, 12, 77));
    let (table, mut scratch) = (by(open(&node), Plan::TwoStage), ScanScratch::default());
    let mut scan = Scan::new(table.snapshot(), &mut scratch, 10, 4);
    drive(&mut node.endpoint(), &mut scan).unwrap();
    assert_eq!(scan.records().map(|(key, _)| key).collect::<Vec<_>>(), [10, 12, 14, 16]);
}

#[test]
fn pages_of_another_directory_are_stale_and_damaged_ones_corrupt() {
    for moved in [false, true] {
        let mut node = node();
        let table = by(open_paged(&node), Plan::TwoStage);
        let page = table.snapshot().models().paged().unwrap().address(0);
        node.put(page + 20, &[0xa5; 8]);
        if moved {
            node.set_head(1);
            node.reuse(1);
        }
        let (answer, mut scratch) = (get(&mut node.endpoint(), &table, 2), ScanScratch::default());
        let scanned = drive(&mut node.endpoint(), &mut Scan::new(table.snapshot(), &mut scratch, 0, 3));
        match moved {
            true => assert!(is_stale(&answer) && is_stale(&scanned)),
            false => {
                assert!(
                    matches!(answer, Err(ReadError::Corrupt(_)))
                        && matches!(scanned, Err(ReadError::Corrupt(_)))
                );
            }
        }
    }
}

#[test]
fn models_in_pages_wait_for_the_next_checkpoint() {
    let mut node = node();
    let table = by(open_paged(&node), Plan::Range);
    let mut endpoint = node.endpoint();
    node.replace(10, 19, &[10]);
    assert!(is_stale(&get(&mut endpoint, &table, 12)));
    assert!(matches!(table.snapshot().refresh(&mut endpoint).unwrap(), Refresh::Current));
    node.checkpoint();
    assert!(matches!(table.snapshot().refresh(&mut endpoint).unwrap(), Refresh::Lost));
    let table = by(open_paged(&node), Plan::Range);
    assert_eq!((get(&mut endpoint, &table, 12).unwrap(), table.snapshot().sequence()), (Some(12), 1));
}

#[test]
fn logs_that_make_no_sense_are_errors() {
    let segment = |lo: u64, cap: u16, offset: u64| Descriptor {
        lo,
        model: SegmentModel { origin: lo, line: Line::from_bits(1), cap, epsilon: EPSILON },
        address: SegmentAddress::from_bits(offset),
        generation: 7,
    };
    let record = |part, parts, hi, descriptor| ChangeRecord { sequence: 0, part, parts, hi, descriptor };
    let good = segment(10, CAP, 8192);
    for (records, why) in [
        (vec![record(0, 1, 19, good)], ""),
        (vec![record(1, 2, 19, good)], "begins within a change"),
        (vec![record(0, 2, 19, good)], "ends within a change"),
        (vec![record(0, 2, 19, good), record(1, 3, 19, segment(15, CAP, 8192))], "parts disagree"),
        (vec![record(0, 2, 19, good), record(1, 2, 29, segment(15, CAP, 8192))], "ends disagree"),
        (vec![record(0, 1, 19, segment(11, CAP, 8192))], "begins inside a segment"),
        (vec![record(0, 1, 18, good)], "ends inside a segment"),
        (vec![record(0, 1, 9, good)], "ends before it begins"),
        (vec![record(0, 1, 19, segment(10, 0, 8192))], "no slots"),
        (vec![record(0, 1, 19, segment(10, CAP, 4 << 20))], "outside the region"),
        (vec![record(0, 1, 19, segment(10, CAP, 8193))], "not aligned"),
        (vec![record(0, 2, 19, good), record(1, 2, 19, good)], "out of order"),
        (vec![record(0, 2, 19, good), record(1, 2, 19, segment(20, CAP, 8192))], "outside the range"),
    ] {
        let mut node = node();
        let snapshot = open(&node);
        for (sequence, record) in (0..).zip(&records) {
            node.log_record(&ChangeRecord { sequence, ..*record });
        }
        node.set_head(records.len() as u64);
        let opened = Snapshot::<U64Keys>::open(&mut node.endpoint());
        let refreshed = snapshot.refresh(&mut node.endpoint()).unwrap();
        match why {
            "" => assert!(opened.is_ok() && matches!(refreshed, Refresh::Newer(_))),
            why => {
                let error = opened.expect_err(why);
                assert!(matches!(&error, OpenError::Corrupt(c) if c.what == "change log"), "{why}: {error}");
                assert!(matches!(refreshed, Refresh::Lost), "{why}");
            }
        }
    }
}

#[test]
fn heads_and_logs_that_cannot_be_are_errors() {
    for head in [9, 1 << 20, u64::MAX] {
        let mut node = node();
        let snapshot = open(&node);
        node.set_head(head);
        assert!(matches!(snapshot.refresh(&mut node.endpoint()).unwrap(), Refresh::Lost));
        let error = Snapshot::<U64Keys>::open(&mut node.endpoint()).unwrap_err();
        assert!(error.to_string().contains("change log") && error.to_string().contains("records"), "{error}");
    }
    // Below the checkpoint.
    let mut node = node();
    node.replace(10, 19, &[10]);
    node.checkpoint();
    node.set_head(0);
    assert!(matches!(Snapshot::<U64Keys>::open(&mut node.endpoint()), Err(OpenError::Corrupt(_))));
    for (log, records) in [(8192, 3), (8196, 8), (4 << 20, 8), (8192, 1 << 63), (u64::MAX - 7, 1 << 58)] {
        let mut node = self::node();
        (node.log, node.log_records) = (log, records);
        node.checkpoint();
        let error = Snapshot::<U64Keys>::open(&mut node.endpoint()).unwrap_err();
        assert!(error.to_string().contains("no log of"), "{error}");
    }
}

/// What a memory node does between two READs of a reader.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Rebuild(u8),
    Cut(u8),
    Merge(u8),
    Put(u8),
    Checkpoint,
    Reuse,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Nothing),
        1 => any::<u8>().prop_map(Act::Rebuild),
        2 => any::<u8>().prop_map(Act::Cut),
        2 => any::<u8>().prop_map(Act::Merge),
        4 => any::<u8>().prop_map(Act::Put),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reuse),
    ]
}

impl Node {
    fn do_it(&mut self, act: Act, number: u64) {
        if self.head + 4 > self.checkpoint_sequence() + self.log_records {
            self.checkpoint();
        }
        let firsts: Vec<u64> = self.segments.keys().copied().collect();
        let at = |n: u8| firsts[usize::from(n) % firsts.len()];
        match act {
            Act::Nothing => {}
            Act::Rebuild(n) => _ = self.replace(at(n), self.end_of(at(n)), &[at(n)]),
            Act::Cut(n) if self.end_of(at(n)).min(50) > at(n) + 1 => {
                let (lo, hi) = (at(n), self.end_of(at(n)));
                self.replace(lo, hi, &[lo, lo + 1 + u64::from(n) % (hi.min(50) - lo)]);
            }
            Act::Cut(_) => {}
            Act::Merge(n) => {
                let (lo, hi) = (at(n), self.end_of(at(n)));
                // As many keys as there are slots.
                if hi < 50 && self.end_of(hi + 1).min(50) - lo < u64::from(CAP) {
                    self.replace(lo, self.end_of(hi + 1), &[lo]);
                }
            }
            // A change of a record that the node makes by replacing its segment.
            Act::Put(n) => {
                let key = u64::from(n) % 50;
                match n % 3 {
                    0 => _ = self.records.remove(&key),
                    _ => _ = self.records.insert(key, 1000 * number + key),
                }
                let lo = *self.segments.range(..=key).next_back().unwrap().0;
                self.replace(lo, self.end_of(lo), &[lo]);
            }
            Act::Checkpoint => self.checkpoint(),
            Act::Reuse => self.reuse(self.checkpoint_sequence()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each segment's memory is left as it was frozen, so that every answer is right or stale; and keeping up is possible.
    #[test]
    fn readers_that_keep_up_answer_what_was_true_meanwhile(
        acts in prop::collection::vec(act(), 1..120),
        keys in prop::collection::vec(0u64..50, 1..20),
        pages: bool,
    ) {
        let node = RefCell::new(node());
        let mut acts = acts.into_iter();
        let number = RefCell::new(0);
        // What every key was at some time since the lookup began.
        let seen: RefCell<Vec<Vec<Option<u64>>>> = RefCell::new(vec![Vec::new(); 50]);
        let note = |all: &mut Vec<Vec<Option<u64>>>| {
            (0..50).for_each(|key| all[key as usize].push(node.borrow().records.get(&key).copied()));
        };
        let inner = node.borrow().endpoint();
        let before = Box::new(|| {
            *number.borrow_mut() += 1;
            node.borrow_mut().do_it(acts.next().unwrap_or(Act::Nothing), *number.borrow());
            note(&mut seen.borrow_mut());
        });
        let mut endpoint = Interrupted { inner, before };
        let open = |endpoint: &mut Interrupted<'_>| {
            let bytes = if pages { PagedModels::<U64Keys>::least_bytes(30) as u64 } else { u64::MAX };
            let mut opened = Snapshot::<U64Keys>::open_within(endpoint, bytes);
            while matches!(opened, Err(OpenError::Moving { .. } | OpenError::Corrupt(_))) {
                opened = Snapshot::<U64Keys>::open_within(endpoint, bytes);
            }
            by(opened.unwrap(), Plan::TwoStage)
        };
        let mut table = open(&mut endpoint);
        let mut scratch = LookupScratch::new(Matcher::detect());
        for key in keys {
            let mut attempts = 0;
            loop {
                seen.borrow_mut().iter_mut().for_each(Vec::clear);
                note(&mut seen.borrow_mut());
                let number = |_: &Outcome, v: Option<&[u8]>| v.map(|v| u64::from_le_bytes(*v.first_chunk().unwrap()));
                match look_up(&mut endpoint, &table, &mut scratch, key, number) {
                    Ok(answer) => {
                        prop_assert!(seen.borrow()[key as usize].contains(&answer), "{key}: {answer:?} {:?}", seen.borrow()[key as usize]);
                        break;
                    }
                    Err(ReadError::Stale) => match table.refreshed(&mut endpoint).unwrap() {
                        Refresh::Newer(newer) => table = newer,
                        Refresh::Current if pages => node.borrow_mut().checkpoint(),
                        Refresh::Current => prop_assert!(false, "stale and nothing new"),
                        Refresh::Lost => table = open(&mut endpoint),
                    },
                    Err(error) => prop_assert!(false, "{error}"),
                }
                attempts += 1;
                prop_assert!(attempts < 300, "it never catches up");
            }
        }
    }

    #[test]
    fn hostile_records_end_in_an_error_or_a_directory_but_never_in_a_panic(
        drawn in prop::collection::vec((0u16..3, 0u16..4, 0u64..60, 0u64..60, 0u16..20, any::<u64>()), 1..8),
        forged in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut node = node();
        for (sequence, (part, parts, lo, hi, cap, address)) in (0..).zip(&drawn) {
            let descriptor = Descriptor {
                lo: *lo,
                model: SegmentModel { origin: *lo, line: Line::from_bits(*address), cap: *cap, epsilon: u16::MAX },
                address: SegmentAddress::from_bits((address % (5 << 20)) & !7),
                generation: 1,
            };
            node.log_record(&ChangeRecord { sequence, part: *part, parts: *parts, hi: *hi, descriptor });
        }
        node.put(node.log + 64, &forged);
        let snapshot = open(&node);
        node.set_head(drawn.len() as u64);
        let _ = snapshot.refresh(&mut node.endpoint()).unwrap();
        if let Ok(snapshot) = Snapshot::<U64Keys>::open(&mut node.endpoint()) {
            let table = by(snapshot, Plan::Range);
            for key in [0, 10, 33, u64::MAX] {
                let mut scratch = LookupScratch::new(Matcher::detect());
                let _ = look_up(&mut node.endpoint(), &table, &mut scratch, key, |_: &Outcome, _| ());
            }
        }
    }
}
