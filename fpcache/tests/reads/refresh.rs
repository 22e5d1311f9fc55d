//! A reader whose directory is out of date notices, and catches up with the change log, whatever
//! the log holds.

mod damaged;
mod meanwhile;
mod outgrown;
mod short_calls;

use std::borrow::Borrow;
use std::cell::RefCell;

use crate::keys::Numbered;
use crate::node::{CAP, EPSILON, Interrupted, Node};
use fpcache::Refresh;
use fpcache::cache::CacheConfig;
use fpcache::key_space::{ByteKeys, ByteTail, U64Keys};
use fpcache::layout::{
    ChangeRecord, DROPPED, Descriptor, REUSE_OFFSET, SEQUENCE_OFFSET, SUPERBLOCK_BYTES, SegmentAddress,
    SegmentReplacement,
};
use fpcache::matching::Matcher;
use fpcache::message::keys::put_key;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Lookup, LookupScratch, Operation, Outcome, ReadError, Scan, ScanScratch, Step, Wanted, answer, drive,
    look_up, look_up_all,
};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView, read_used};
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
    a_record_with_the_sequence_of_the_next_is_of_a_table_that_has_moved
    a_damaged_page_that_was_asked_for_in_advance_ends_no_scan_that_has_all_it_wants
    models_in_pages_wait_for_the_next_checkpoint
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
    directory.iter().map(|(start, s)| (start, s.address().offset(), s.generation())).collect()
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
    let firsts: Vec<K::Owned> = third.models().resident().unwrap().iter().map(|(start, _)| start).collect();
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
                        let start = 100 * (refreshes + 1);
                        node.replace(start, node.end_after(start + 10), &[start, start + 7, start + 14]);
                        node.replace(start + 50, node.end_after(start + 50), &[start + 50]);
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
        from = scan.uncovered().map(|(from, _)| from);
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

/// The lines of a superblock that is being written come in any order by a card: here the first one
/// last.
fn a_record_with_the_sequence_of_the_next_is_of_a_table_that_has_moved<K: Numbered>() {
    let mut node = node::<K>();
    let root = open(&node).record().root;
    let superblock = |node: &Node<K>| {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        node.memory.read_bytes(0, &mut bytes).unwrap();
        bytes
    };
    let mut mixed = superblock(&node);
    node.checkpoint();
    let newer = superblock(&node);
    let sequence = SEQUENCE_OFFSET as usize..SEQUENCE_OFFSET as usize + 8;
    mixed[sequence.clone()].copy_from_slice(&newer[sequence]);
    node.put(0, &mixed);
    node.put(root, &[0xa5; 8]);
    let mut number = 0;
    let before = Box::new(|| {
        number += 1;
        if number == 2 {
            node.put(0, &newer);
        }
    });
    let mut endpoint = Interrupted { inner: node.endpoint(), before, in_place: false };
    assert_ne!(TableView::<K>::open(&mut endpoint).unwrap().record().root, root);
}

fn a_damaged_page_that_was_asked_for_in_advance_ends_no_scan_that_has_all_it_wants<K: Numbered>() {
    // As many records as slots, so that more slots are asked for than are needed.
    let records: Vec<(u64, u64)> = (0..80).map(|i| (i, i)).collect();
    let node = Node::<K>::new(&[0, 16, 32, 48, 64], &records, LOG, 8);
    let table = by(open_paged(&node), Plan::TwoStage);
    let models = table.view().models().paged().unwrap();
    let mut endpoint = node.endpoint();
    let mut scratch = ScanScratch::default();
    node.put(models.address(models.page_of(K::key(64).borrow())) + 20, &[0xa5; 8]);
    let mut up = Scan::new(table.view(), &mut scratch, K::key(48).borrow(), 14);
    drive(&mut endpoint, &mut up).unwrap();
    assert!(up.records().map(|(key, _)| K::number(key)).eq(48..62));
    node.put(models.address(models.page_of(K::key(16).borrow())) + 20, &[0xa5; 8]);
    let down = Scan::new(table.view(), &mut scratch, K::lowest(), 14);
    let mut down = down.until(K::key(48).borrow()).descending();
    drive(&mut endpoint, &mut down).unwrap();
    assert!(down.records().map(|(key, _)| K::number(key)).eq((34..48).rev()));
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
