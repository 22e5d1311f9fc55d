//! Scans by start, range and prefix list what a `BTreeMap` would, while records come and go between
//! them.
#![cfg(feature = "embedded")]

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::patient;
use fpcache_client::{ByteClient, ByteKeys, RecordShape, Records as FoundRecords, TableParameters};
use proptest::collection::vec;
use proptest::prelude::*;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Strings of few letters, so that many begin alike, among them runs of the greatest byte.
fn string(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let letter = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(254), Just(255)];
    let long = vec(prop_oneof![Just("usr/"), Just("share/documentation/"), Just("\u{ff}")], 0..3)
        .prop_map(|parts| parts.concat().into_bytes());
    (long, vec(letter, len)).prop_map(|(front, back)| [front, back].concat())
}

/// What happens to a table, one after the other.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(usize),
    From(Vec<u8>, usize),
    Range(Vec<u8>, Vec<u8>, usize),
    Prefix(Vec<u8>, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let limit = || prop_oneof![3 => Just(usize::MAX), 1 => 0..20usize];
    prop_oneof![
        6 => (string(1..6), any::<u8>()).prop_map(|(key, len)| Step::Put(key, len)),
        2 => any::<usize>().prop_map(Step::Delete),
        1 => (string(0..6), limit()).prop_map(|(start, limit)| Step::From(start, limit)),
        1 => (string(0..6), string(0..6), limit()).prop_map(|(start, end, limit)| Step::Range(start, end, limit)),
        2 => (string(0..4), limit()).prop_map(|(prefix, limit)| Step::Prefix(prefix, limit)),
    ]
}

fn scanned(scan: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    scan(&mut |key, value| records.push((key.to_vec(), value.to_vec())));
    records
}

fn expected(records: &Records, limit: usize, holds: impl Fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = records.iter().filter(|(key, _)| holds(key));
    inside.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Takes records from one end or the other, by the bits of `turns`.
fn check_both_ends(
    mut found: FoundRecords<'_, ByteKeys>,
    all: &[(Vec<u8>, Vec<u8>)],
    turns: usize,
) -> Result<(), TestCaseError> {
    let mut all = all.iter();
    for turn in 0..=all.len() {
        let (found, expected) = match turns.rotate_right(turn as u32) & 1 {
            0 => (found.next(), all.next()),
            _ => (found.next_back(), all.next_back()),
        };
        let found = found.transpose().unwrap();
        prop_assert_eq!(found.as_ref(), expected);
    }
    prop_assert!(found.next().is_none() && found.next_back().is_none());
    Ok(())
}

fn check(client: &ByteClient, records: &mut Records, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Put(key, len) => {
            let value = vec![*len; usize::from(len % 20)];
            client.put(key, &value).unwrap();
            records.insert(key.clone(), value);
        }
        Step::Delete(at) => {
            if let Some(key) = records.keys().nth(at % records.len().max(1)).cloned() {
                prop_assert!(client.delete(&key).unwrap());
                records.remove(&key);
            }
        }
        Step::From(start, limit) => {
            let found = scanned(|take| _ = client.scan_with(start, *limit, take).unwrap());
            prop_assert_eq!(found, expected(records, *limit, |key| key >= &start[..]));
        }
        Step::Range(start, end, limit) => {
            let found = scanned(|take| _ = client.scan_range(start, end, *limit, take).unwrap());
            prop_assert_eq!(found, expected(records, *limit, |key| key >= &start[..] && key < &end[..]));
            let all = expected(records, usize::MAX, |key| key > &start[..] && key <= &end[..]);
            let bounds = (Bound::Excluded(&start[..]), Bound::Included(&end[..]));
            check_both_ends(client.range::<&[u8]>(bounds), &all, *limit)?;
        }
        Step::Prefix(prefix, limit) => {
            let found = scanned(|take| _ = client.scan_prefix(prefix, *limit, take).unwrap());
            prop_assert_eq!(found, expected(records, *limit, |key| key.starts_with(prefix)));
            let all = expected(records, usize::MAX, |key| key.starts_with(prefix));
            check_both_ends(client.prefix(prefix), &all, *limit)?;
        }
    }
    Ok(())
}

fn table(epsilon: u32, max_slots: u16) -> ByteClient {
    let client = ByteClient::embedded_with(16 << 20, patient()).unwrap();
    let shape = RecordShape { key_bytes: None, value_bytes: None, room: 100 };
    client.create(TableParameters { shape, epsilon, max_slots, ..TableParameters::default() }).unwrap();
    client
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scans_list_what_a_btreemap_would(
        steps in vec(step(), 1..400), epsilon in 1..40u32, max_slots in prop_oneof![Just(16u16), Just(4096)],
    ) {
        let (client, mut records) = (table(epsilon, max_slots), Records::new());
        for step in &steps {
            check(&client, &mut records, step)?;
        }
        check(&client, &mut records, &Step::Prefix(Vec::new(), usize::MAX))?;
    }
}

#[test]
fn what_takes_the_records_of_a_scan_may_use_the_client() {
    let client = table(8, 64);
    for i in 0..300u32 {
        client.put(format!("key {i:03}"), &i.to_le_bytes()).unwrap();
    }
    let mut seen = 0;
    let take = |key: &[u8], value: &[u8]| {
        assert_eq!(client.get(key).unwrap().as_deref(), Some(value));
        assert!(client.delete(key).unwrap() && !client.contains(key).unwrap());
        let mut inside = 0;
        client.scan_back_with("key 299", 2, |_, _| inside += 1).unwrap();
        assert_eq!(inside, 2.min(299 - seen));
        seen += 1;
    };
    client.scan_prefix("key ", usize::MAX, take).unwrap();
    assert_eq!((seen, client.count_prefix("").unwrap()), (300, 0));
}

#[test]
fn prefixes_at_the_end_of_all_strings() {
    let (client, mut records) = (table(8, 64), Records::new());
    for key in [
        &b"a"[..],
        b"a\0",
        b"a\xff",
        b"a\xff\xff",
        b"b",
        b"\xfe\xff",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
        b"\xff\xff\xff",
    ] {
        check(&client, &mut records, &Step::Put(key.to_vec(), 3)).unwrap();
    }
    for (prefix, count) in [
        (&b""[..], 10),
        (b"a", 4),
        (b"a\xff", 2),
        (b"a\xff\xff", 1),
        (b"\xff", 4),
        (b"\xff\xff", 2),
        (b"\xff\xff\xff\xff", 0),
        (b"\xfe\xff", 1),
        (b"c", 0),
    ] {
        let found = scanned(|take| _ = client.scan_prefix(prefix, usize::MAX, take).unwrap());
        assert_eq!(found.len(), count, "{}", prefix.escape_ascii());
        check(&client, &mut records, &Step::Prefix(prefix.to_vec(), usize::MAX)).unwrap();
    }
}

#[test]
fn a_range_that_ends_before_it_begins_is_empty() {
    let (client, mut records) = (table(8, 64), Records::new());
    (0..50).for_each(|i| check(&client, &mut records, &Step::Put(vec![i], i)).unwrap());
    for (start, end) in [(20u8, 20u8), (20, 10), (255, 0)] {
        let found = scanned(|take| _ = client.scan_range([start], [end], 100, take).unwrap());
        assert!(found.is_empty(), "{start} to {end}: {found:?}");
    }
    let numbers = fpcache_client::Client::embedded(1 << 20).unwrap();
    numbers.create(TableParameters::default()).unwrap();
    (0..50u64).for_each(|i| numbers.put(i, &i.to_le_bytes()).unwrap());
    let mut found = Vec::new();
    numbers.scan_range(10, 13, 100, |key, _| found.push(key)).unwrap();
    numbers.scan_range(13, 10, 100, |key, _| found.push(key)).unwrap();
    assert_eq!(found, [10, 11, 12]);
}
