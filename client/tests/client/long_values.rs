//! Values that do not fit beside their keys, up to the longest there are, are written and read like
//! any others.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{PATIENCE, TestKeys, ThreadNode, patient, value_of};
use fpcache_client::{
    Answers, ByteClient, ByteKeys, Changes, ClientConfig, ClientError, CompareAndSet, ErrorKind, Inserted,
    KeyRef, PlanChoice, RecordShape, TableClient, TableParameters, U64Keys, WriteStatus,
};
use proptest::prelude::*;

for_both_kinds_of_keys!(
    every_way_to_write_takes_every_length,
    a_load_takes_every_length,
    a_pipeline_sends_long_values_and_reads_them_back,
    changes_that_are_too_long_together_go_in_several_requests,
    a_token_is_that_of_the_value_wherever_it_lies,
    memory_of_values_that_were_replaced_is_used_again,
    a_value_for_which_there_is_no_room_changes_nothing,
    a_memory_node_in_another_thread_takes_them_too,
    readers_see_whole_values_while_others_replace_them,
);

const MIB: usize = 1 << 20;
/// The longest value, and what a value needs beside its key if it lies elsewhere.
const LONGEST: usize = 16 * MIB;

fn embedded<K: TestKeys>(capacity: usize) -> TableClient<K> {
    TableClient::embedded_with(capacity, ClientConfig::default().with_deadline(PATIENCE)).unwrap()
}

fn created<K: TestKeys>(capacity: usize) -> TableClient<K> {
    let client = embedded::<K>(capacity);
    client.create(K::parameters_of(None)).unwrap();
    client
}

/// Lengths at which something changes for records of this shape: where the value lies, how many
/// words it takes, whether it fits a request beside its key, how many pieces it takes.
fn lengths<K: TestKeys>(number: u64) -> [usize; 15] {
    let room = K::shape(None).room as usize - K::encoded_len(K::key(number).borrow());
    [
        0,
        1,
        room - 16,
        room - 1,
        room,
        room + 1,
        room.next_multiple_of(8) + 8,
        4000,
        65_536,
        MIB - 200,
        MIB - 72,
        MIB,
        MIB + 1,
        3 * MIB + 5,
        LONGEST,
    ]
}

/// A key's number for each of them.
fn of_each_length<K: TestKeys>() -> impl Iterator<Item = (u64, usize)> {
    (0..15).map(|i| (i << 56 | 1, lengths::<K>(i << 56 | 1)[i as usize]))
}

/// Every way to read finds exactly these records.
fn assert_holds<K: TestKeys>(client: &TableClient<K>, expected: &BTreeMap<u64, Vec<u8>>) {
    let numbers: Vec<u64> = expected.keys().flat_map(|number| [*number, number ^ 1 << 20]).collect();
    let keys: Vec<K::Owned> = numbers.iter().map(|number| K::key(*number)).collect();
    let mut answers = Answers::new();
    client.multi_get_into(&keys, &mut answers).unwrap();
    for (i, (key, number)) in keys.iter().zip(&numbers).enumerate() {
        let value = expected.get(number).map(Vec::as_slice);
        assert!(answers.value(i) == value, "{number} in a group");
        assert!(client.get(KeyRef::<K>(key.borrow())).unwrap().as_deref() == value, "{number} alone");
        assert_eq!(client.contains(KeyRef::<K>(key.borrow())).unwrap(), value.is_some());
        let versioned = client.get_versioned(KeyRef::<K>(key.borrow())).unwrap();
        assert!(versioned.map(|(value, _)| value).as_deref() == value, "{number} with its token");
    }
    let mut left = expected.iter();
    let first = expected.keys().next().map_or(K::lowest().to_owned(), |number| K::key(*number));
    client
        .scan_with(first, usize::MAX >> 1, |key, value| {
            let (number, expected) = left.next().expect("no more than there are");
            assert!(K::number(key.borrow()) == *number && value == expected, "{number} in a scan");
        })
        .unwrap();
    assert_eq!(left.len(), 0, "the scan ended early");
    if let Some((number, value)) = expected.iter().next_back() {
        let (key, found) = client.scan(K::key(*number), 1).unwrap().remove(0);
        assert!(K::number(key.borrow()) == *number && found == *value);
    }
}

fn every_way_to_write_takes_every_length<K: TestKeys>() {
    let client = created::<K>(256 * MIB);
    let mut expected = BTreeMap::new();
    for (i, (number, bytes)) in of_each_length::<K>().enumerate() {
        let key = || K::key(number);
        let value = value_of(number, 1, bytes);
        assert!(!client.update(key(), &value).unwrap(), "there is none");
        assert_eq!(client.insert(key(), &value).unwrap(), Inserted::New);
        assert_eq!(client.insert(key(), b"other").unwrap(), Inserted::Exists);
        assert!(client.get(key()).unwrap().as_ref() == Some(&value), "{bytes} bytes inserted");
        // Another length of the list, so that values get longer and shorter, and move in and out.
        let other = lengths::<K>(number)[(i * 7 + 3) % 13];
        assert!(client.update(key(), &value_of(number, 2, other)).unwrap());
        assert!(
            client.get(key()).unwrap() == Some(value_of(number, 2, other)),
            "updated from {bytes} to {other}"
        );
        client.put(key(), &value_of(number, 3, bytes)).unwrap();
        let (found, token) = client.get_versioned(key()).unwrap().unwrap();
        assert!(found == value_of(number, 3, bytes), "{bytes} bytes put");
        let value = value_of(number, 4, bytes);
        let CompareAndSet::Done(token) = client.compare_and_set(key(), token, &value).unwrap() else {
            panic!("{bytes} bytes: it has not changed")
        };
        assert_eq!(client.get_versioned(key()).unwrap().unwrap().1, token, "{bytes} bytes set");
        if i % 4 == 3 {
            assert!(client.delete(key()).unwrap() && !client.contains(key()).unwrap());
        } else {
            expected.insert(number, value);
        }
    }
    assert_holds(&client, &expected);
}

fn a_load_takes_every_length<K: TestKeys>() {
    let client = embedded::<K>(256 * MIB);
    let mut expected: BTreeMap<u64, Vec<u8>> =
        of_each_length::<K>().map(|(number, bytes)| (number, value_of(number, 1, bytes))).collect();
    // Many records of lengths that lie outside and yet share requests.
    expected.extend((0..3000u64).map(|i| (200 << 56 | i << 8 | 1, value_of(i, 2, (i * i % 900) as usize))));
    let mut load = client.load(K::parameters_of(None), expected.len() as u64).unwrap();
    for (number, value) in &expected {
        load.push(K::key(*number), value).unwrap();
    }
    assert_eq!(load.finish().unwrap().keys, expected.len() as u64);
    assert_holds(&client, &expected);
}

fn a_pipeline_sends_long_values_and_reads_them_back<K: TestKeys>() {
    let client = created::<K>(256 * MIB);
    let mut pipeline = client.pipeline(3).unwrap();
    let mut expected = BTreeMap::new();
    for round in 0..3 {
        for (i, (number, bytes)) in of_each_length::<K>().enumerate() {
            let number = number % (9 << 56);
            let value = value_of(number, round, bytes);
            pipeline.put(K::key(number), &value).unwrap();
            if i % 5 == 0 {
                assert!(pipeline.get(K::key(number)).unwrap().as_ref() == Some(&value));
            }
            expected.insert(number, value);
        }
    }
    for completed in pipeline.finish() {
        assert_eq!(completed.outcome.unwrap().status, WriteStatus::Done);
    }
    assert_holds(&client, &expected);
}

fn changes_that_are_too_long_together_go_in_several_requests<K: TestKeys>() {
    let client = created::<K>(256 * MIB);
    let (mut changes, mut replies, mut expected) = (Changes::<K>::default(), Vec::new(), BTreeMap::new());
    for number in 0..6u64 {
        let value = value_of(number, 1, LONGEST - number as usize);
        changes.put(K::key(number << 56 | 1), &value);
        changes.insert(K::key(number << 56 | 2), b"short");
        expected.insert(number << 56 | 1, value);
        expected.insert(number << 56 | 2, b"short".to_vec());
    }
    client.apply(&changes, &mut replies).unwrap();
    assert_eq!(replies.len(), 12);
    assert!(replies.iter().all(|reply| reply.status == WriteStatus::Done));
    assert_holds(&client, &expected);
}

fn a_token_is_that_of_the_value_wherever_it_lies<K: TestKeys>() {
    let client = created::<K>(64 * MIB);
    let key = || K::key(7);
    client.put(key(), &value_of(7, 1, 5000)).unwrap();
    let (_, first) = client.get_versioned(key()).unwrap().unwrap();
    client.put(key(), b"short").unwrap();
    let (_, second) = client.get_versioned(key()).unwrap().unwrap();
    assert_eq!(client.compare_and_set(key(), first, b"other").unwrap(), CompareAndSet::Differs(second));
    let CompareAndSet::Done(third) = client.compare_and_set(key(), second, &value_of(7, 2, 2 * MIB)).unwrap()
    else {
        panic!("it has not changed")
    };
    // The same value again is another version.
    client.put(key(), &value_of(7, 2, 2 * MIB)).unwrap();
    let CompareAndSet::Differs(fourth) = client.compare_and_set(key(), third, b"other").unwrap() else {
        panic!("it was written since")
    };
    assert_eq!(client.get_versioned(key()).unwrap().unwrap(), (value_of(7, 2, 2 * MIB), fourth));
    assert!(client.delete(key()).unwrap());
    assert_eq!(client.compare_and_set(key(), fourth, b"other").unwrap(), CompareAndSet::Absent);
}

fn memory_of_values_that_were_replaced_is_used_again<K: TestKeys>() {
    // Room for two of the longest values, but not for three.
    let client = created::<K>(40 * MIB);
    for round in 0..8 {
        let value = value_of(round, 1, LONGEST);
        client.put(K::key(5), &value).unwrap();
        assert!(client.get(K::key(5)).unwrap() == Some(value), "{round}");
    }
    assert!(client.delete(K::key(5)).unwrap());
    // Together three times the room there is.
    for round in 0..160 {
        client.put(K::key(round % 20), &value_of(round, 1, 700_000 + round as usize * 100)).unwrap();
    }
}

fn a_value_for_which_there_is_no_room_changes_nothing<K: TestKeys>() {
    let client = created::<K>(8 * MIB);
    let (key, value) = (|| K::key(5), value_of(5, 1, 3 * MIB));
    client.put(key(), &value).unwrap();
    for bytes in [LONGEST, 7 * MIB] {
        for error in
            [client.put(key(), &value_of(5, 2, bytes)), client.put(K::key(6), &value_of(5, 2, bytes))]
        {
            assert!(matches!(error, Err(ClientError::NoRoom { .. })), "{error:?}");
        }
    }
    assert_holds(&client, &BTreeMap::from([(5, value)]));
    client.put(key(), &value_of(5, 3, 2 * MIB)).unwrap();
}

fn a_memory_node_in_another_thread_takes_them_too<K: TestKeys>() {
    let node = ThreadNode::<K>::start(64 * MIB);
    let client = node.client_with(ClientConfig::default().with_deadline(PATIENCE));
    client.create(K::parameters_of(None)).unwrap();
    let expected: BTreeMap<u64, Vec<u8>> =
        of_each_length::<K>().map(|(number, bytes)| (number, value_of(number, 1, bytes))).collect();
    for (number, value) in &expected {
        client.put(K::key(*number), value).unwrap();
    }
    assert_holds(&client, &expected);
}

/// A value that says by its bytes which it is and how long.
fn telling(seed: u64, bytes: usize) -> Vec<u8> {
    let head = [seed.to_le_bytes(), (bytes as u64).to_le_bytes()].concat();
    [&head[..], &value_of(seed, bytes as u64, bytes)].concat()
}

fn assert_tells(value: &[u8]) {
    let word = |at: usize| u64::from_le_bytes(*value[at..].first_chunk().unwrap());
    assert!(value == telling(word(0), word(8) as usize), "{} bytes of more than one value", value.len());
}

fn readers_see_whole_values_while_others_replace_them<K: TestKeys>() {
    let client = created::<K>(64 * MIB);
    let lengths = [10, 120, 700, 5000, 40_000];
    (0..4).for_each(|number| client.put(K::key(number), &telling(number, 700)).unwrap());
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..3000u64 {
                let value = telling(round, lengths[round as usize * 7 % lengths.len()]);
                client.put(K::key(round % 4), &value).unwrap();
            }
            ended.store(true, Ordering::Release);
        });
        for plan in ["auto", "two-stage", "range"] {
            let plan: PlanChoice = plan.parse().unwrap();
            let (client, ended) = (client.beside(patient().with_plan(plan)).unwrap(), &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    let keys = [0, 1, 2, 3].map(K::key);
                    client.multi_get(&keys).unwrap().iter().flatten().for_each(|value| assert_tells(value));
                    assert_tells(&client.get(K::key(1)).unwrap().unwrap());
                    let mut found = 0;
                    let take = |_: K::View<'_>, value: &[u8]| {
                        assert_tells(value);
                        found += 1;
                    };
                    client.scan_with(K::key(0), 10, take).unwrap();
                    assert_eq!(found, 4);
                }
            });
        }
        writer.join().unwrap();
    });
}

#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T, ClientError>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "`{text}` lacks `{part}`"));
}

#[test]
fn values_that_cannot_be_say_what_could() {
    let client = created::<U64Keys>(32 * MIB);
    let too_long = vec![0; LONGEST + 1];
    let parts = ["key 7", "16777217 bytes", "at most 16777216", "several records"];
    says(client.put(7, &too_long), &parts);
    says(client.pipeline(1).unwrap().put(7, &too_long), &parts);
    let mut changes = Changes::new();
    changes.put(6, b"short").put(7, &too_long);
    says(client.apply(&changes, &mut Vec::new()), &parts);
    assert_eq!(client.get(6).unwrap(), None, "nothing was sent");

    let client = ByteClient::embedded_with(16 * MIB, patient()).unwrap();
    let shape = RecordShape { key_bytes: None, value_bytes: None, room: 20 };
    client.create(TableParameters { shape, ..TableParameters::default() }).unwrap();
    client.put("four", &[7; 5000]).unwrap();
    client.put("sixteen bytes!!!", b"four").unwrap();
    says(client.put("fives", &[7; 5000]), &["fives", "room for 20", "room for 21 or more"]);
    says(client.put("sixteen bytes!!!", b"fives"), &["room for 20", "room for 21 or more"]);
    assert_eq!(client.get("four").unwrap(), Some(vec![7; 5000]));
}

#[test]
fn values_of_one_length_are_as_long_as_slots() {
    let client = embedded::<U64Keys>(16 * MIB);
    client
        .create(TableParameters { shape: RecordShape::fixed(8, 24), ..TableParameters::default() })
        .unwrap();
    says(client.put(1, &[0; 25]), &["25 bytes", "24"]);
}

#[test]
fn a_load_refuses_values_that_cannot_be_and_leaves_nothing() {
    let client = embedded::<ByteKeys>(32 * MIB);
    let mut load = client.load(ByteKeys::parameters_of(None), 0).unwrap();
    load.push("a", &vec![1; 3 * MIB]).unwrap();
    says(load.push("b", &vec![1; LONGEST + 1]), &["several records"]);
    drop(load);
    // What went ahead of records that never came is of no consequence.
    let mut load = client.load(ByteKeys::parameters_of(None), 0).unwrap();
    load.push("a", &vec![2; 2 * MIB]).unwrap();
    load.finish().unwrap();
    assert_eq!(client.get("a").unwrap(), Some(vec![2; 2 * MIB]));
}

#[derive(Clone, Debug)]
enum Act {
    Insert(u8, usize),
    Put(u8, usize),
    Update(u8, usize),
    Set(u8, usize),
    Delete(u8),
    Read(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = || {
        prop_oneof![
            4 => 0usize..200,
            3 => 0usize..3000,
            1 => prop::sample::select(vec![70_000, MIB - 60, MIB + 9]),
        ]
    };
    let key = 0u8..12;
    prop_oneof![
        (key.clone(), bytes()).prop_map(|(key, bytes)| Act::Insert(key, bytes)),
        (key.clone(), bytes()).prop_map(|(key, bytes)| Act::Put(key, bytes)),
        (key.clone(), bytes()).prop_map(|(key, bytes)| Act::Update(key, bytes)),
        (key.clone(), bytes()).prop_map(|(key, bytes)| Act::Set(key, bytes)),
        key.clone().prop_map(Act::Delete),
        key.prop_map(Act::Read),
    ]
}

fn assert_acts_agree<K: TestKeys>(acts: &[Act]) {
    let client = created::<K>(48 * MIB);
    let mut expected: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (number, act) in (0..).zip(acts) {
        let at = |key: &u8| u64::from(*key) << 58 | 3;
        let value = |bytes: &usize| value_of(number, 9, *bytes);
        match act {
            Act::Insert(key, bytes) => {
                let new = !expected.contains_key(&at(key));
                assert_eq!(client.insert(K::key(at(key)), &value(bytes)).unwrap().is_new(), new);
                expected.entry(at(key)).or_insert_with(|| value(bytes));
            }
            Act::Put(key, bytes) => {
                client.put(K::key(at(key)), &value(bytes)).unwrap();
                expected.insert(at(key), value(bytes));
            }
            Act::Update(key, bytes) => {
                let done = client.update(K::key(at(key)), &value(bytes)).unwrap();
                assert_eq!(done, expected.contains_key(&at(key)));
                expected.entry(at(key)).and_modify(|old| *old = value(bytes));
            }
            Act::Set(key, bytes) => {
                if let Some((_, token)) = client.get_versioned(K::key(at(key))).unwrap() {
                    let set = client.compare_and_set(K::key(at(key)), token, &value(bytes)).unwrap();
                    assert!(matches!(set, CompareAndSet::Done(_)), "{set:?}");
                    expected.insert(at(key), value(bytes));
                }
            }
            Act::Delete(key) => {
                assert_eq!(client.delete(K::key(at(key))).unwrap(), expected.remove(&at(key)).is_some());
            }
            Act::Read(key) => {
                assert!(client.get(K::key(at(key))).unwrap().as_ref() == expected.get(&at(key)));
            }
        }
    }
    assert_holds(&client, &expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn writes_and_reads_agree_with_a_map(acts in prop::collection::vec(act(), 1..60)) {
        assert_acts_agree::<U64Keys>(&acts);
        assert_acts_agree::<ByteKeys>(&acts);
    }
}

#[test]
fn a_long_value_within_a_deadline_that_is_too_short_is_no_answer_and_no_harm() {
    let client = created::<U64Keys>(64 * MIB);
    client.put(1, b"before").unwrap();
    let hasty = client.with_deadline(Duration::from_micros(1));
    let outcome = hasty.put(1, &value_of(1, 1, LONGEST));
    let found = client.get(1).unwrap().unwrap();
    match outcome {
        Ok(()) => assert!(found == value_of(1, 1, LONGEST)),
        Err(ClientError::OutcomeUnknown { .. }) => {}
        Err(error) => assert!(error.is_retryable() && found == b"before", "{error}"),
    }
    client.put(1, b"after").unwrap();
    assert_eq!(client.get(1).unwrap().unwrap(), b"after");
}
