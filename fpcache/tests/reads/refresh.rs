//! A reader whose directory is out of date notices, and catches up with the change log, whatever the log holds.

use std::borrow::Borrow;
use std::cell::RefCell;

use crate::keys::Numbered;
use crate::node::{CAP, EPSILON, Interrupted, Node};
use fpcache::Refresh;
use fpcache::cache::CacheConfig;
use fpcache::key_space::{ByteKeys, ByteTail, U64Keys};
use fpcache::layout::{ChangeRecord, Descriptor, SegmentAddress, SegmentReplacement};
use fpcache::matching::Matcher;
use fpcache::message::keys::put_key;
use fpcache::read::{
    Lookup, LookupScratch, Operation, Outcome, Plan, PlanChoice, ReadError, Scan, ScanScratch, Step, Wanted,
    answer, drive, look_up, look_up_all,
};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use fpcache_fabric::{Endpoint, RegionReader};
use fpcache_index::{Line, SegmentModel};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const PLANS: [Plan; 3] = [Plan::TwoStage, Plan::Range, Plan::Speculative];

over_both_key_spaces! {
    a_snapshot_that_is_refreshed_is_the_one_that_is_opened
    a_refresh_costs_a_round_trip_for_the_head_and_one_for_the_news
    a_reader_that_fell_behind_the_log_opens_anew_and_keeps_its_hot_cache
    hot_entries_of_before_are_right_after_a_refresh
    absence_rests_on_the_reuse_sequence_and_presence_does_not
    a_replaced_segment_sends_every_plan_for_a_newer_directory
    a_replaced_segment_leaves_only_its_own_keys_without_an_answer
    questions_about_long_slots_are_short
    a_scan_that_meets_a_change_goes_on_where_it_was
    a_scan_lists_a_key_once_though_it_shows_in_two_slots
    pages_of_another_directory_are_stale_and_damaged_ones_corrupt
    models_in_pages_wait_for_the_next_checkpoint
    logs_that_make_no_sense_are_errors
    heads_and_logs_that_cannot_be_are_errors
    counts_of_segments_that_cannot_be_are_errors
}

/// Records the change log has room for.
const LOG: u64 = 64;

/// Five segments of ten keys each, 0, 10, 20, …, with every even key, whose value is itself.
fn node<K: Numbered>() -> Node<K> {
    node_with_log(LOG)
}

fn node_with_log<K: Numbered>(log: u64) -> Node<K> {
    let records: Vec<(u64, u64)> = (0..25).map(|i| (2 * i, 2 * i)).collect();
    Node::new(&[0, 10, 20, 30, 40], &records, log, 8)
}

fn entries<K: Numbered>(view: &TableView<K>) -> Vec<(K::Owned, u64, u32)> {
    let directory = view.models().resident().unwrap();
    directory.iter().map(|(lo, s)| (lo, s.address().offset(), s.generation())).collect()
}

fn open<K: Numbered>(node: &Node<K>) -> TableView<K> {
    TableView::open(&mut node.endpoint()).unwrap()
}

/// The fewest bytes with which the table's models can be used.
fn least_bytes<K: Numbered>(node: &Node<K>) -> u64 {
    match TableView::<K>::open_within(&mut node.endpoint(), 1) {
        Err(OpenError::Budget { least, .. }) => least,
        other => panic!("{other:?}"),
    }
}

/// A view that fetches pages.
fn open_paged<K: Numbered>(node: &Node<K>) -> TableView<K> {
    let view = TableView::open_within(&mut node.endpoint(), least_bytes(node)).unwrap();
    assert!(view.models().paged().is_some());
    view
}

fn newer<T: std::fmt::Debug>(refreshed: Result<Refresh<T>, OpenError>) -> T {
    match refreshed.unwrap() {
        Refresh::Newer(newer) => newer,
        other => panic!("{other:?}"),
    }
}

fn by<K: Numbered>(view: TableView<K>, plan: Plan) -> Table<K> {
    Table::over(view, &TableOptions::plan(PlanChoice::Fixed(plan))).unwrap()
}

/// Looks a key up on its own, in a group and in doorbell batches, which must agree.
fn get<K: Numbered, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    key: u64,
) -> Result<Option<u64>, ReadError> {
    let (mut scratch, key) = (LookupScratch::new(Matcher::detect()), K::key(key));
    let single = look_up(endpoint, table, &mut scratch, key.borrow(), |_: &Outcome, value| {
        value.map(Node::<K>::number)
    });
    let grouped = drive(endpoint, &mut Lookup::new(table, &mut scratch, [key.borrow()]))
        .map(|()| scratch.outcomes().next().unwrap().1.map(Node::<K>::number));
    assert_eq!(format!("{single:?}"), format!("{grouped:?}"));
    let in_place = look_up_all(endpoint, table, &mut scratch, [key.borrow()], Wanted::Value)
        .map(|()| scratch.outcomes().next().unwrap().1.map(Node::<K>::number));
    assert_eq!(format!("{single:?}"), format!("{in_place:?}"));
    single
}

fn is_stale<T>(result: &Result<T, ReadError>) -> bool {
    matches!(result, Err(ReadError::Stale))
}

fn a_snapshot_that_is_refreshed_is_the_one_that_is_opened<K: Numbered>() {
    let mut node = node::<K>();
    let first = open(&node);
    assert_eq!(first.sequence(), 0);
    assert!(matches!(first.refresh(&mut node.endpoint()).unwrap(), Refresh::Current));
    node.replace(10, Some(30), &[10, 15, 20]);
    let second = newer(first.refresh(&mut node.endpoint()));
    assert_eq!((second.sequence(), first.sequence()), (node.head, 0));
    assert_eq!(entries(&second), entries(&open(&node)));
    node.replace(40, None, &[40]);
    node.replace(0, Some(15), &[0]);
    let third = newer(second.refresh(&mut node.endpoint()));
    assert_eq!(entries(&third), entries(&open(&node)));
    let firsts: Vec<K::Owned> = third.models().resident().unwrap().iter().map(|(lo, _)| lo).collect();
    let front = K::FRONT.then(K::Owned::default);
    assert_eq!(firsts, front.into_iter().chain([0, 15, 20, 30, 40].map(K::key)).collect::<Vec<_>>());
    // Of a newer checkpoint, without any change after it.
    node.checkpoint();
    assert_eq!((entries(&open(&node)), open(&node).sequence()), (entries(&third), node.head));
}

fn a_refresh_costs_a_round_trip_for_the_head_and_one_for_the_news<K: Numbered>() {
    let mut node = node::<K>();
    let view = open(&node);
    node.replace(10, Some(20), &[10]);
    let mut endpoint = node.endpoint();
    let _ = newer(view.refresh(&mut endpoint));
    assert_eq!(endpoint.meter().snapshot().round_trips, 2);
}

fn a_reader_that_fell_behind_the_log_opens_anew_and_keeps_its_hot_cache<K: Numbered>() {
    let mut node = node::<K>();
    let options =
        TableOptions { cache: Some(CacheConfig::of(1 << 18)), ..TableOptions::plan(PlanChoice::Auto) };
    let mut endpoint = node.endpoint();
    let table = Table::<K>::open(&mut endpoint, &options).unwrap();
    for _ in 0..LOG {
        node.replace(10, Some(20), &[10]);
        node.checkpoint();
    }
    assert!(matches!(table.view().refresh(&mut endpoint).unwrap(), Refresh::Lost));
    let refreshed = newer(table.refreshed(&mut endpoint));
    assert!(node.head > LOG);
    assert_eq!(refreshed.view().sequence(), node.head);
    assert!(std::ptr::eq(table.cache().unwrap(), refreshed.cache().unwrap()));
    assert_eq!(get(&mut endpoint, &refreshed, 12).unwrap(), Some(12));
}

fn hot_entries_of_before_are_right_after_a_refresh<K: Numbered>() {
    let mut node = node::<K>();
    let options = TableOptions {
        cache: Some(CacheConfig::of(1 << 18)),
        ..TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage))
    };
    let mut endpoint = node.endpoint();
    let table = Table::<K>::open(&mut endpoint, &options).unwrap();
    let mut scratch =
        LookupScratch::new(Matcher::detect()).with_cache_handle(table.cache().unwrap().handle(1));
    let mut ask = |table: &Table<K>, key| {
        let take = |o: &Outcome, v: Option<&[u8]>| (o.plan, v.map(Node::<K>::number));
        look_up(&mut node.endpoint(), table, &mut scratch, K::key(key).borrow(), take).unwrap()
    };
    (0..50).step_by(2).for_each(|key| _ = ask(&table, key));
    assert_eq!(ask(&table, 12), (Plan::Cached, Some(12)));
    // Everything in another place.
    let table = {
        node.records.extend((0..50).map(|key| (key, 1000 + key)));
        node.replace(0, Some(40), &[0, 5, 8, 10, 17, 20, 30]);
        newer(table.refreshed(&mut endpoint))
    };
    let mut ask = |key| {
        let take = |_: &Outcome, v: Option<&[u8]>| v.map(Node::<K>::number);
        look_up(&mut endpoint, &table, &mut scratch, K::key(key).borrow(), take).unwrap()
    };
    for key in (0..40).rev().chain(0..40) {
        assert_eq!(ask(key), Some(1000 + key));
    }
}

fn absence_rests_on_the_reuse_sequence_and_presence_does_not<K: Numbered>() {
    let mut node = node::<K>();
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
        let scanned = drive(&mut endpoint, &mut Scan::new(table.view(), &mut scratch, K::lowest(), 10));
        assert!(is_stale(&scanned));
        // A table of that sequence.
        node.checkpoint();
        let table = by(open(&node), plan);
        assert_eq!(get(&mut endpoint, &table, 13).unwrap(), None);
    }
}

fn a_replaced_segment_sends_every_plan_for_a_newer_directory<K: Numbered>() {
    let mut node = node::<K>();
    for plan in PLANS {
        let table = by(open(&node), plan);
        let mut endpoint = node.endpoint();
        let value = node.head + 500;
        node.records.insert(12, value);
        node.replace(10, Some(20), &[10]);
        assert!(is_stale(&get(&mut endpoint, &table, 12)) && is_stale(&get(&mut endpoint, &table, 13)));
        assert_eq!(get(&mut endpoint, &table, 22).unwrap(), Some(22));
        let table = newer(table.refreshed(&mut endpoint));
        assert_eq!(get(&mut endpoint, &table, 12).unwrap(), Some(value));
        assert_eq!(get(&mut endpoint, &table, 13).unwrap(), None);
    }
}

/// What the memory node's threads read by.
fn reader<K: Numbered>(node: &Node<K>) -> RegionReader {
    node.endpoint().into()
}

/// The bytes of a question for the values of these keys.
fn question<K: Numbered>(keys: &[u64]) -> Vec<u8> {
    let mut question = [&[1u8, 0, 0, 0][..], &(keys.len() as u32).to_le_bytes()].concat();
    keys.iter().for_each(|key| put_key::<K>(K::key(*key).borrow(), &mut question));
    question
}

/// One of the keys had the whole question left unanswered.
fn a_replaced_segment_leaves_only_its_own_keys_without_an_answer<K: Numbered>() {
    let mut node = node::<K>();
    let table = by(open(&node), Plan::TwoStage);
    let (mut endpoint, mut scratch) = (reader(&node), LookupScratch::new(Matcher::detect()));
    let mut ask = |keys: &[u64]| {
        let mut reply = [7; 64];
        let replied = answer(&mut endpoint, &table, &mut scratch, &question::<K>(keys), &mut reply);
        let (mut statuses, mut at) = (Vec::new(), 0);
        while at < replied.words {
            let bytes = (reply[at] >> 8 & 0xff_ffff) as usize;
            statuses.push(reply[at] & 0xff);
            at += 1 + bytes.div_ceil(8);
        }
        (statuses, replied.is_outdated)
    };
    assert_eq!(ask(&[2, 12, 22, 23]), (vec![1, 1, 1, 2], false));
    node.replace(10, Some(20), &[10]);
    assert_eq!(ask(&[2, 12, 22]), (vec![1, 0, 1], true));
    assert_eq!(ask(&[12, 14]), (vec![0, 0], true));
    assert_eq!(ask(&[12]), (vec![], true));
    assert_eq!(ask(&[22]), (vec![1], false));
}

/// 64 times one key of a table with slots of 66 KiB had 4.3 MiB copied for 528 bytes.
fn questions_about_long_slots_are_short<K: Numbered>() {
    let node = Node::<K>::new(&[0], &[(0, 0), (2, 2)], LOG, 3000);
    let table = by(open(&node), Plan::TwoStage);
    let (mut endpoint, mut scratch) = (reader(&node), LookupScratch::new(Matcher::detect()));
    let mut reply = vec![0; 32 << 10];
    let mut ask = |count| {
        let (before, question) = (endpoint.meter().snapshot(), question::<K>(&vec![2; count]));
        let replied = answer(&mut endpoint, &table, &mut scratch, &question, &mut reply);
        let read = (endpoint.meter().snapshot() - before).bytes_from;
        assert!(read <= replied.bytes as u64, "{count} keys: {read} bytes of {replied:?}");
        replied.words > 0
    };
    assert!(ask(1) && ask(16));
    assert!(!ask(32) && !ask(64));
}

fn a_scan_that_meets_a_change_goes_on_where_it_was<K: Numbered>() {
    // Slots so long that a round has room for a segment or two.
    let records: Vec<(u64, u64)> = (0..300).map(|i| (2 * i, i)).collect();
    let firsts: Vec<u64> = (0..60).map(|i| 10 * i).collect();
    let mut node = Node::<K>::new(&firsts, &records, LOG, 2000);
    let mut table = by(open(&node), Plan::TwoStage);
    let (mut endpoint, mut scratch) = (node.endpoint(), ScanScratch::default());
    let (mut seen, mut from, mut refreshes) = (Vec::new(), Some(K::lowest().to_owned()), 0);
    while let Some(next) = from {
        let mut scan = Scan::new(table.view(), &mut scratch, next.borrow(), usize::MAX >> 1);
        let mut rounds = 0;
        let ended = loop {
            match scan.step() {
                Ok(Step::Post) => {
                    rounds += 1;
                    if rounds == 2 && refreshes < 5 {
                        // Segments ahead are merged and cut otherwise.
                        let lo = 100 * (refreshes + 1);
                        node.replace(lo, node.end_after(lo + 10), &[lo, lo + 7, lo + 14]);
                        node.replace(lo + 50, node.end_after(lo + 50), &[lo + 50]);
                    }
                    endpoint.run(scan.batch()).unwrap();
                }
                Ok(Step::Check(until)) => {
                    assert_eq!(until, table.view().sequence());
                }
                Ok(Step::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        seen.extend(scan.records().map(|(key, value)| (K::number(key), Node::<K>::number(value))));
        from = scan.uncovered().map(ToOwned::to_owned);
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

fn a_scan_lists_a_key_once_though_it_shows_in_two_slots<K: Numbered>() {
    let node = node::<K>();
    let segment = node.segments[&10].clone();
    let start = K::key(10);
    // Removed from slot 2, which the READ saw before, and made again in slot 3.
    node.put(node.slot_at(&segment, 3), &node.slot(&segment, 9, 12, 77));
    let (table, mut scratch) = (by(open(&node), Plan::TwoStage), ScanScratch::default());
    let mut scan = Scan::new(table.view(), &mut scratch, start.borrow(), 4);
    drive(&mut node.endpoint(), &mut scan).unwrap();
    assert_eq!(scan.records().map(|(key, _)| K::number(key)).collect::<Vec<_>>(), [10, 12, 14, 16]);
}

fn pages_of_another_directory_are_stale_and_damaged_ones_corrupt<K: Numbered>() {
    for moved in [false, true] {
        let mut node = node::<K>();
        let table = by(open_paged(&node), Plan::TwoStage);
        let models = table.view().models().paged().unwrap();
        let page = models.address(models.page_of(K::key(2).borrow()));
        node.put(page + 20, &[0xa5; 8]);
        if moved {
            node.set_head(1);
            node.reuse(1);
        }
        let (answer, mut scratch) = (get(&mut node.endpoint(), &table, 2), ScanScratch::default());
        let scanned = drive(&mut node.endpoint(), &mut Scan::new(table.view(), &mut scratch, K::lowest(), 3));
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

fn models_in_pages_wait_for_the_next_checkpoint<K: Numbered>() {
    let mut node = node::<K>();
    let table = by(open_paged(&node), Plan::Range);
    let mut endpoint = node.endpoint();
    node.replace(10, Some(20), &[10]);
    assert!(is_stale(&get(&mut endpoint, &table, 12)));
    assert!(matches!(table.view().refresh(&mut endpoint).unwrap(), Refresh::Current));
    node.checkpoint();
    assert!(matches!(table.view().refresh(&mut endpoint).unwrap(), Refresh::Lost));
    let table = by(open_paged(&node), Plan::Range);
    assert_eq!((get(&mut endpoint, &table, 12).unwrap(), table.view().sequence()), (Some(12), node.head));
}

fn logs_that_make_no_sense_are_errors<K: Numbered>() {
    let segment = |lo: u64, cap: u16, offset: u64| Descriptor::<K> {
        lo: K::key(lo),
        tail: K::tail(lo),
        model: K::model(lo, cap, EPSILON),
        address: SegmentAddress::from_bits(offset),
        generation: 7,
    };
    let changed = |with: &[Descriptor<K>], end: Option<u64>| {
        SegmentReplacement { with: with.to_vec(), end: end.map(K::key) }.records(0)
    };
    let (good, second) = (segment(10, CAP, 8192), segment(15, CAP, 8192));
    let whole = changed(&[good.clone(), second.clone()], Some(20));
    assert!(whole.len() > 1);
    let last = whole.len() - 1;
    let one = std::slice::from_ref(&good);
    let other_count: Vec<_> =
        whole.iter().map(|r| ChangeRecord { parts: r.parts + u16::from(r.part > 0), ..*r }).collect();
    let garbage: Vec<_> = whole.iter().map(|r| ChangeRecord { share: [0xff; 48], ..*r }).collect();
    let beyond = node::<K>().region_bytes();
    for (records, why) in [
        (whole.clone(), ""),
        (whole[1..].to_vec(), "begins within a change"),
        (whole[..last].to_vec(), "ends within a change"),
        ([&whole[..last], &whole[..]].concat(), "a change within a change"),
        (other_count, "counts disagree"),
        (garbage, "no change"),
        (changed(&[], Some(20)), "no segments"),
        (changed(&[segment(11, CAP, 8192)], Some(20)), "begins inside a segment"),
        (changed(one, Some(19)), "ends inside a segment"),
        (changed(one, Some(10)), "ends where it begins"),
        (changed(one, Some(0)), "ends before it begins"),
        (changed(&[segment(10, 0, 8192)], Some(20)), "no slots"),
        (changed(&[segment(10, CAP, beyond)], Some(20)), "outside the region"),
        (changed(&[segment(10, CAP, 8193)], Some(20)), "not aligned"),
        (changed(&[good.clone(), good.clone()], Some(20)), "out of order"),
        (changed(&[good.clone(), segment(20, CAP, 8192)], Some(20)), "outside the range"),
    ] {
        assert_refused_unless_sound::<K>(&records, why);
    }
}

/// A log of these records is taken if there is nothing to say against it.
fn assert_refused_unless_sound<K: Numbered>(records: &[ChangeRecord], why: &str) {
    let mut node = node::<K>();
    let view = open(&node);
    for (sequence, record) in (0..).zip(records) {
        node.log_record(&ChangeRecord { sequence, ..*record });
    }
    node.set_head(records.len() as u64);
    let opened = TableView::<K>::open(&mut node.endpoint());
    let refreshed = view.refresh(&mut node.endpoint()).unwrap();
    match why {
        "" => assert!(opened.is_ok() && matches!(refreshed, Refresh::Newer(_))),
        why => {
            let error = opened.expect_err(why);
            assert!(matches!(&error, OpenError::Corrupt(c) if c.what == "change log"), "{why}: {error}");
            assert!(matches!(refreshed, Refresh::Lost), "{why}");
        }
    }
}

#[test]
fn a_change_to_a_coder_that_the_reader_lacks_is_refused() {
    for (encoder, why) in [(0, ""), (1, "no such encoder")] {
        let good = Descriptor::<ByteKeys> {
            lo: ByteKeys::key(10),
            tail: ByteTail { encoder, ..ByteKeys::tail(10) },
            model: ByteKeys::model(10, CAP, EPSILON),
            address: SegmentAddress::from_bits(8192),
            generation: 7,
        };
        let change = SegmentReplacement { with: vec![good], end: Some(ByteKeys::key(20)) };
        assert_refused_unless_sound::<ByteKeys>(&change.records(0), why);
    }
}

/// Whoever has no budget takes room for as many as the root says, before it has read them.
fn counts_of_segments_that_cannot_be_are_errors<K: Numbered>() {
    for segments in [0, 7, 1 << 40, 1 << 60, u64::MAX] {
        let mut node = node::<K>();
        node.claim_segments(segments);
        let opened = TableView::<K>::open(&mut node.endpoint());
        let told = opened.map(drop);
        assert!(matches!(told, Err(OpenError::Corrupt(_))), "{segments}: {told:?}");
    }
}

fn heads_and_logs_that_cannot_be_are_errors<K: Numbered>() {
    for head in [LOG + 1, 1 << 20, u64::MAX] {
        let mut node = node::<K>();
        let view = open(&node);
        node.set_head(head);
        assert!(matches!(view.refresh(&mut node.endpoint()).unwrap(), Refresh::Lost));
        let error = TableView::<K>::open(&mut node.endpoint()).unwrap_err();
        assert!(error.to_string().contains("change log") && error.to_string().contains("records"), "{error}");
    }
    // Below the checkpoint.
    let mut node = node::<K>();
    node.replace(10, Some(20), &[10]);
    node.checkpoint();
    node.set_head(0);
    assert!(matches!(TableView::<K>::open(&mut node.endpoint()), Err(OpenError::Corrupt(_))));
    let end = node.region_bytes();
    for (log, records) in [(8192, 3), (8196, 8), (end, 8), (8192, 1 << 63), (u64::MAX - 7, 1 << 58)] {
        let mut node = self::node::<K>();
        (node.log, node.log_records) = (log, records);
        node.checkpoint();
        let error = TableView::<K>::open(&mut node.endpoint()).unwrap_err();
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

impl<K: Numbered> Node<K> {
    fn do_it(&mut self, act: Act, number: u64) {
        if self.head + 12 > self.checkpoint_sequence() + self.log_records {
            self.checkpoint();
        }
        let firsts: Vec<u64> = self.segments.keys().copied().collect();
        let at = |n: u8| firsts[usize::from(n) % firsts.len()];
        // After the last key there may be of a segment.
        let last = |node: &Self, lo| node.end_after(lo).unwrap_or(51).min(51);
        match act {
            Act::Nothing => {}
            Act::Rebuild(n) => _ = self.replace(at(n), self.end_after(at(n)), &[at(n)]),
            Act::Cut(n) if last(self, at(n)) > at(n) + 2 => {
                let (lo, end) = (at(n), self.end_after(at(n)));
                self.replace(lo, end, &[lo, lo + 1 + u64::from(n) % (last(self, lo) - 1 - lo)]);
            }
            Act::Cut(_) => {}
            Act::Merge(n) => {
                let lo = at(n);
                // As many keys as there are slots.
                if let Some(next) = self.end_after(lo)
                    && last(self, next) - 1 - lo < u64::from(CAP)
                {
                    self.replace(lo, self.end_after(next), &[lo]);
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
                self.replace(lo, self.end_after(lo), &[lo]);
            }
            Act::Checkpoint => self.checkpoint(),
            Act::Reuse => self.reuse(self.checkpoint_sequence()),
        }
    }
}

/// Each segment's memory is left as it was frozen, so that every answer is right or stale; and keeping up is possible.
fn assert_answers_were_true_meanwhile<K: Numbered>(
    acts: Vec<Act>,
    keys: Vec<u64>,
    (pages, in_place, plan): (bool, bool, Plan),
) -> Result<(), TestCaseError> {
    let node = RefCell::new(node_with_log::<K>(16));
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
    let mut endpoint = Interrupted { inner, before, in_place };
    // Enough for the top level of a larger directory.
    let bytes = if pages { least_bytes(&node.borrow()) + 27 * 100 } else { u64::MAX };
    let open = |endpoint: &mut Interrupted<'_>| {
        let mut opened = TableView::<K>::open_within(endpoint, bytes);
        while matches!(opened, Err(OpenError::Moving { .. } | OpenError::Corrupt(_))) {
            opened = TableView::<K>::open_within(endpoint, bytes);
        }
        by(opened.unwrap(), plan)
    };
    let mut table = open(&mut endpoint);
    let mut scratch = LookupScratch::new(Matcher::detect());
    for key in keys {
        let mut attempts = 0;
        loop {
            seen.borrow_mut().iter_mut().for_each(Vec::clear);
            note(&mut seen.borrow_mut());
            let number = |_: &Outcome, v: Option<&[u8]>| v.map(Node::<K>::number);
            match look_up(&mut endpoint, &table, &mut scratch, K::key(key).borrow(), number) {
                Ok(answer) => {
                    let seen = &seen.borrow()[key as usize];
                    prop_assert!(seen.contains(&answer), "{key}: {answer:?} {seen:?}");
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
    Ok(())
}

/// What a forged change says of a segment: number of its first key, slots, and an address that is also its line.
type Forged = (u64, u16, u64);

fn assert_no_panic<K: Numbered>(
    drawn: &[(Vec<Forged>, Option<u64>)],
    torn: &[u8],
) -> Result<(), TestCaseError> {
    let mut node = node::<K>();
    let view = open(&node);
    let mut head = 0;
    for (segments, end) in drawn {
        let forged = |(lo, cap, address): &Forged| Descriptor::<K> {
            lo: K::key(*lo),
            tail: K::tail(*lo),
            model: SegmentModel {
                origin: *lo,
                line: Line::from_bits(*address),
                cap: *cap,
                epsilon: u16::MAX,
            },
            address: SegmentAddress::from_bits((address % (5 << 20)) & !7),
            generation: 1,
        };
        let change = SegmentReplacement { with: segments.iter().map(forged).collect(), end: end.map(K::key) };
        for record in change.records(head) {
            node.log_record(&record);
            head += 1;
        }
    }
    node.put(node.log + 64 * 5, torn);
    node.set_head(head);
    let _ = view.refresh(&mut node.endpoint()).unwrap();
    if let Ok(view) = TableView::<K>::open(&mut node.endpoint()) {
        let table = by(view, Plan::Range);
        for key in [0, 10, 33, u64::MAX] {
            let mut scratch = LookupScratch::new(Matcher::detect());
            let key = K::key(key);
            let _ = look_up(&mut node.endpoint(), &table, &mut scratch, key.borrow(), |_: &Outcome, _| ());
            let mut scratch = ScanScratch::default();
            let _ = drive(&mut node.endpoint(), &mut Scan::new(table.view(), &mut scratch, key.borrow(), 5));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_that_keep_up_answer_what_was_true_meanwhile(
        acts in prop::collection::vec(act(), 1..120),
        keys in prop::collection::vec(0u64..50, 1..20),
        pages: bool,
        in_place: bool,
        plan in prop::sample::select(vec![Plan::TwoStage, Plan::Range, Plan::Speculative]),
    ) {
        let way = (pages, in_place, plan);
        assert_answers_were_true_meanwhile::<U64Keys>(acts.clone(), keys.clone(), way)?;
        assert_answers_were_true_meanwhile::<ByteKeys>(acts, keys, way)?;
    }

    #[test]
    fn hostile_changes_end_in_an_error_or_a_directory_but_never_in_a_panic(
        drawn in prop::collection::vec(
            (
                prop::collection::vec((0u64..60, 0u16..20, any::<u64>()), 0..4),
                prop::option::of(0u64..60),
            ),
            1..5,
        ),
        sound in prop::collection::vec((0u64..5, 1u16..20, any::<u64>()), 0..3),
        torn in prop::option::of(prop::collection::vec(any::<u8>(), 0..64)),
    ) {
        // Some that fit the directory come first, so that what they say is used.
        let sound = sound.into_iter().map(|(lo, cap, bits)| (vec![(10 * lo, cap, bits)], (lo < 4).then_some(10 * lo + 10)));
        let drawn: Vec<_> = sound.chain(drawn).collect();
        assert_no_panic::<U64Keys>(&drawn, torn.as_deref().unwrap_or_default())?;
        assert_no_panic::<ByteKeys>(&drawn, torn.as_deref().unwrap_or_default())?;
    }
}
