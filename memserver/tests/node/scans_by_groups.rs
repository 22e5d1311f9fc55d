//! Scans by tables of groups: what they find is in order and all there is, and they read little
//! more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::folders::Folders;
use crate::common::keys::{Integers, Strings, TestKeys};
use crate::common::requests::Writer;
use crate::common::{Fixture, GROUPS, Reader, TWO_STAGE, mix, scattered};
use fpcache::layout::{Grouping, RecordToken, TableParameters};
use fpcache::message::WriteKind;
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;

const PLAIN: Grouping = Grouping::plain(9, 10);
const SEEDED: Grouping = Grouping::seeded(6, 10);
const PILOTS: Grouping = Grouping::pilots(32, 7);

/// Compares scans from and to keys that are there, and beside them, with what a map has; returns
/// how many took one round trip.
fn compare<T: TestKeys>(reader: &mut Reader<T>, expected: &BTreeMap<u64, Vec<u8>>, seed: u64) -> usize {
    let keys: Vec<u64> = expected.keys().copied().collect();
    let random = |n: u64, below: usize| (mix(seed.wrapping_mul(1000) + n) % below.max(1) as u64) as usize;
    (0..60)
        .filter(|n| {
            let start = keys[random(n * 4, keys.len())] ^ (mix(*n) & 1);
            let end = match random(n * 4 + 1, 3) {
                0 => Some(keys[random(n * 4 + 2, keys.len())] ^ (mix(n + 7) & 1)),
                _ => None,
            };
            let limit = 1 + random(n * 4 + 3, 300);
            let (found, cost) = reader.scan_until(start, end, limit).unwrap();
            let end_of_all = end.unwrap_or(u64::MAX);
            let wanted = expected.range(start..end_of_all.max(start)).take(limit);
            let wanted: Vec<(u64, Vec<u8>)> = wanted.map(|(key, value)| (*key, value.clone())).collect();
            assert_eq!(found, wanted, "from {start} to {end:?}, {limit} at most");
            cost.round_trips == 1
        })
        .count()
}

fn scans_find_all_whatever_was_changed<T: TestKeys>(grouping: Grouping) {
    let parameters = TableParameters { epsilon: 8, fill: 0.8, groups: Some(grouping), ..T::parameters(8) };
    let keys = scattered(4000);
    let region = Arc::new(SharedMemory::anonymous(8 << 20).unwrap());
    let mut node = MemoryNode::<T::Space>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let mut writer = Writer::<T>::new(1);
    let value = |key: u64, n: u64| (key ^ n << 56).to_le_bytes().to_vec();
    let mut expected: BTreeMap<u64, Vec<u8>> =
        keys.iter().step_by(2).map(|key| (*key, value(*key, 0))).collect();
    let records: Vec<_> = expected.iter().map(|(key, value)| (T::key(*key), value.clone())).collect();
    node.load_records(parameters, T::encoders(), records.into_iter()).unwrap();
    let mut rest: Vec<u64> = keys.iter().skip(1).step_by(2).copied().collect();
    rest.sort_unstable_by_key(|key| mix(*key));
    for (round, part) in (0..).zip(rest.chunks(300)) {
        let f = Fixture::<T>::over(Arc::clone(&region), Vec::new(), parameters);
        let mut reader = f.reader(GROUPS[0]);
        // The second time tables have come.
        compare(&mut reader, &expected, round);
        let at_once = compare(&mut reader, &expected, round);
        println!("{grouping:?}, {} records: {at_once} of 60 scans in one round trip", expected.len());
        for (n, key) in (1..).zip(part) {
            writer.one(&mut node, WriteKind::Insert, *key, RecordToken::default(), &value(*key, n % 5));
            expected.insert(*key, value(*key, n % 5));
            if n % 5 == 0 {
                let gone = *expected.range(mix(*key)..).next().or(expected.iter().next()).unwrap().0;
                writer.one(&mut node, WriteKind::Delete, gone, RecordToken::default(), &[]);
                expected.remove(&gone);
            }
            if n % 64 == 0 {
                while node.work() == Work::More {}
            }
        }
        node.audit().unwrap();
    }
}

#[test]
fn scans_of_integers_find_all_whatever_was_changed() {
    let short = [Grouping::plain(3, 4), Grouping::seeded(2, 3), Grouping::pilots(8, 3)];
    for grouping in [PLAIN, SEEDED, PILOTS].into_iter().chain(short) {
        scans_find_all_whatever_was_changed::<Integers>(grouping);
    }
}

#[test]
fn scans_of_strings_that_share_coordinates_find_all_whatever_was_changed() {
    // Of which each has several blocks of so few slots.
    for grouping in [Grouping::plain(3, 4), Grouping::seeded(2, 3), Grouping::pilots(8, 3)] {
        scans_find_all_whatever_was_changed::<Folders>(grouping);
    }
}

#[test]
fn scans_of_strings_find_all_whatever_was_changed() {
    for grouping in [PLAIN, SEEDED, PILOTS] {
        scans_find_all_whatever_was_changed::<Strings>(grouping);
    }
}

#[test]
fn a_scan_reads_the_blocks_of_its_records_in_one_round_trip() {
    const RECORDS: usize = 100;
    for (grouping, fill, most) in
        [(PLAIN, 0.8, 1.4), (PLAIN, 0.9, 1.3), (SEEDED, 0.8, 2.1), (PILOTS, 0.8, 1.7)]
    {
        let parameters =
            TableParameters { epsilon: 64, fill, groups: Some(grouping), ..Integers::parameters(8) };
        let f = Fixture::<Integers>::new(scattered(30_000), parameters);
        let mut reader = f.reader(GROUPS[0]);
        let pass = |reader: &mut Reader| {
            let (mut bytes, mut trips, mut count) = (0, 0, 0);
            for at in (0..f.keys.len() - RECORDS).step_by(397) {
                let (records, cost) = reader.scan_until(f.keys[at], None, RECORDS).unwrap();
                assert!(records.iter().map(|(key, _)| key).eq(&f.keys[at..at + RECORDS]));
                (bytes, trips, count) = (bytes + cost.bytes, trips + u64::from(cost.round_trips), count + 1);
            }
            let slots = (count * RECORDS * f.geometry().slot_bytes) as f64;
            (bytes as f64 / slots, trips as f64 / count as f64)
        };
        // Tables come.
        pass(&mut reader);
        let by_groups = pass(&mut reader);
        let by_windows = pass(&mut f.reader(TWO_STAGE[0]));
        println!(
            "{grouping:?}, fill {fill}: times its records' slots, round trips: {by_windows:?} by windows, {by_groups:?} by groups"
        );
        assert!(by_groups.0 < most && by_groups.1 < 1.05, "{grouping:?}: {by_groups:?}");
        assert!(by_groups.0 < by_windows.0 / 1.8, "{grouping:?}: {by_groups:?}, {by_windows:?}");
    }
}

/// A table into which one key of every `one_of` was inserted after the others were loaded.
fn with_late_keys(grouping: Grouping, one_of: u64) -> Fixture<Integers> {
    let parameters =
        TableParameters { epsilon: 64, fill: 0.8, groups: Some(grouping), ..Integers::parameters(8) };
    let keys = scattered(30_000);
    let region = Arc::new(SharedMemory::anonymous(8 << 20).unwrap());
    let mut node =
        MemoryNode::<<Integers as TestKeys>::Space>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let value = |key: u64| key.to_le_bytes().to_vec();
    let is_late = |key: &u64| mix(*key).is_multiple_of(one_of);
    let loaded: Vec<_> = keys.iter().filter(|key| !is_late(key)).map(|key| (*key, value(*key))).collect();
    node.load_records(parameters, (), loaded.into_iter()).unwrap();
    let mut writer = Writer::<Integers>::new(1);
    for key in keys.iter().filter(|key| is_late(key)) {
        writer.one(&mut node, WriteKind::Insert, *key, RecordToken::default(), &value(*key));
    }
    while node.work() == Work::More {}
    Fixture::<Integers>::over(region, keys, parameters)
}

#[test]
fn inserts_that_find_their_slot_taken_make_scans_read_hardly_more() {
    const RECORDS: usize = 50;
    // With pilots three inserts in four do: they lie in their blocks all the same.
    for grouping in [PILOTS, SEEDED, PLAIN] {
        let [before, after] = [u64::MAX, 20].map(|one_of| {
            let f = with_late_keys(grouping, one_of);
            let mut reader = f.reader(GROUPS[0]);
            let pass = |reader: &mut Reader| -> u64 {
                let costs = (0..f.keys.len() - RECORDS).step_by(397).map(|at| {
                    let (records, cost) = reader.scan_until(f.keys[at], None, RECORDS).unwrap();
                    assert!(records.iter().map(|(key, _)| key).eq(&f.keys[at..at + RECORDS]));
                    cost.bytes
                });
                costs.sum()
            };
            // Tables come.
            pass(&mut reader);
            pass(&mut reader) as f64
        });
        println!("{grouping:?}: {:.3} times as many bytes", after / before);
        assert!(after < 1.2 * before, "{grouping:?}: {before} bytes, and {after} after inserts");
    }
}

#[test]
fn a_long_scan_over_marked_groups_costs_what_it_does_by_windows() {
    let f = with_late_keys(PLAIN, 8);
    let keys = &f.keys;
    let cost = |reader: &mut Reader, at: usize| {
        let (found, cost) = reader.scan_until(keys[at], None, usize::MAX).unwrap();
        assert!(found.iter().map(|(key, _)| key).eq(&keys[at..]));
        (u64::from(cost.round_trips), cost.bytes)
    };
    let (mut by_groups, mut by_windows) = (f.reader(GROUPS[0]), f.reader(TWO_STAGE[0]));
    // Tables come.
    (0..keys.len()).step_by(100).for_each(|at| drop(by_groups.scan_until(keys[at], None, 10).unwrap()));
    for at in [0, 333, 4_001] {
        let (groups, windows) = (cost(&mut by_groups, at), cost(&mut by_windows, at));
        assert!(groups.0 <= windows.0 + 1, "round trips from {at}: {groups:?}, {windows:?}");
        assert!(groups.1 as f64 <= windows.1 as f64 * 1.05, "bytes from {at}: {groups:?}, {windows:?}");
    }
}
