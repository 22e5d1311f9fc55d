//! Whatever is written, in whatever order and with whatever rebuilds in between, the memory node
//! holds what a `BTreeMap` holds, and every byte of its table is as the protocol wants it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Key, KeyRef, TestKeys};
use crate::common::requests::{Writer, value};
use fpcache::fingerprint::{FingerprintWidth, WidthChoice};
use fpcache::key_space::KeySpace;
use fpcache::layout::{Grouping, RecordShape, RecordToken, TableParameters};
use fpcache::message::{Refusal, WriteKind, WriteStatus};
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;
use proptest::prelude::*;

fn node<T: TestKeys>(
    capacity: usize,
    parameters: TableParameters,
    records: &BTreeMap<Key<T>, Vec<u8>>,
) -> MemoryNode<T::Space> {
    try_node::<T>(capacity, parameters, records).expect("room")
}

fn try_node<T: TestKeys>(
    capacity: usize,
    parameters: TableParameters,
    records: &BTreeMap<Key<T>, Vec<u8>>,
) -> Result<MemoryNode<T::Space>, Refusal> {
    let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
    let mut node = MemoryNode::new(region, 1, 0, Instant::now()).expect("a region");
    let records = records.iter().map(|(key, value)| (key.clone(), value));
    node.load_records(parameters, T::encoders(), records).map(|_| node)
}

#[derive(Clone, Debug)]
enum Step<Q> {
    Write(WriteKind, Q),
    Work,
}

fn steps<T: TestKeys>(most: usize) -> impl Strategy<Value = Vec<Step<Key<T>>>> {
    let kinds = [
        WriteKind::Insert,
        WriteKind::Insert,
        WriteKind::Put,
        WriteKind::Update,
        WriteKind::Delete,
        WriteKind::CompareAndSet,
    ];
    let write =
        (prop::sample::select(kinds.to_vec()), T::any_key()).prop_map(|(kind, key)| Step::Write(kind, key));
    prop::collection::vec(prop_oneof![9 => write, 1 => Just(Step::Work)], 1..most)
}

fn parameters<T: TestKeys>() -> impl Strategy<Value = TableParameters> {
    let plain = [(9, 10), (1, 2), (4, 5)].map(|(stride, reach)| Grouping::plain(stride, reach));
    let seeded = [(6, 10), (2, 3), (1, 4)].map(|(groups, reach)| Grouping::seeded(groups, reach));
    let pilots = [(64, 14), (8, 3), (3, 2)].map(|(slots, pilots)| Grouping::pilots(slots, pilots));
    let some = plain.into_iter().chain(seeded).chain(pilots).map(Some);
    let groups = prop::sample::select([None].into_iter().chain(some).collect::<Vec<_>>());
    let widths = FingerprintWidth::ALL.map(WidthChoice::Fixed).into_iter().chain([WidthChoice::None]);
    let width = prop::sample::select(widths.collect::<Vec<_>>());
    (width, 0u32..12, 16u16..200, T::any_shape(), groups).prop_map(
        |(width, epsilon, max_slots, shape, groups)| {
            let default = TableParameters::default();
            TableParameters { shape, epsilon, max_slots, groups, ..default }.with_width(width)
        },
    )
}

/// The value of a key after its `n`-th write, as long as may be.
fn value_of<T: TestKeys>(shape: &RecordShape, key: &KeyRef<T>, n: u64) -> Vec<u8> {
    let word = (T::Space::hash(key) ^ n.wrapping_mul(0x5851_f42d_4c95_7f2d)).to_le_bytes();
    let longest = T::longest_value(shape, T::Space::encoded_len(key));
    let any = usize::from(u16::from_le_bytes([word[0], word[1]])) % (longest + 1);
    let len = shape.value_bytes.map_or(any, |bytes| bytes as usize);
    word.into_iter().cycle().take(len).collect()
}

fn every_write_ends_as_in_a_btreemap<T: TestKeys>() {
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() };
    let loaded = prop::collection::btree_set(T::any_key(), 0..200);
    let absent = prop::collection::vec(T::any_key(), 5);
    proptest!(config, |(parameters in parameters::<T>(), loaded in loaded, steps in steps::<T>(600), absent in absent)| {
        check_steps::<T>(parameters, loaded, steps, absent)?;
    });
}

fn check_steps<T: TestKeys>(
    parameters: TableParameters,
    loaded: BTreeSet<Key<T>>,
    steps: Vec<Step<Key<T>>>,
    absent: Vec<Key<T>>,
) -> Result<(), TestCaseError> {
    fn of<T: TestKeys>(key: &Key<T>) -> &KeyRef<T> {
        key.borrow()
    }
    let value = |key: &Key<T>, n| value_of::<T>(&parameters.shape, of::<T>(key), n);
    let records = loaded.into_iter().map(|key| (key.clone(), value(&key, 0))).collect();
    let mut node = node::<T>(2 << 20, parameters, &records);
    let mut writer = Writer::<T>::new(1);
    let mut model: BTreeMap<Key<T>, (Vec<u8>, Option<RecordToken>)> =
        records.into_iter().map(|(key, value)| (key, (value, None))).collect();
    for (i, step) in steps.into_iter().enumerate() {
        let Step::Write(kind, key) = step else {
            while node.work() == Work::More {}
            continue;
        };
        let new = value(&key, i as u64 + 1);
        let known = model.get::<Key<T>>(&key).cloned();
        let expected = match &known {
            // Every other compare-and-set expects something else.
            Some((_, Some(token))) if i % 2 == 0 => *token,
            _ => RecordToken::from_bits(i as u64),
        };
        let reply = writer.one_of(&mut node, kind, of::<T>(&key), expected, &new);
        let wanted = match (kind, &known) {
            (WriteKind::Insert, Some(_)) => WriteStatus::Exists,
            (WriteKind::Update | WriteKind::Delete | WriteKind::CompareAndSet, None) => WriteStatus::Absent,
            (WriteKind::CompareAndSet, Some((_, token))) if *token != Some(expected) => WriteStatus::Differs,
            _ => WriteStatus::Done,
        };
        prop_assert_eq!(reply.status, wanted, "{:?} {:?}", kind, key);
        if wanted == WriteStatus::Done {
            if kind == WriteKind::Delete {
                model.remove::<Key<T>>(&key);
                prop_assert_eq!(reply.token, None);
            } else {
                prop_assert_eq!(reply.token.is_some(), true);
                model.insert(key, (new, reply.token));
            }
        }
    }
    node.audit().expect("every byte is right");
    for (key, (wanted, token)) in &model {
        let (found, now) = writer.get_of(&mut node, of::<T>(key)).expect("it was put there");
        prop_assert_eq!(&found, wanted);
        prop_assert!(token.is_none_or(|token| token == now));
    }
    prop_assert_eq!(node.stats().keys, model.len() as u64);
    for absent in absent.iter().filter(|key| !model.contains_key::<Key<T>>(key)) {
        prop_assert_eq!(writer.get_of(&mut node, of::<T>(absent)), None);
    }
    Ok(())
}

/// From a number to the key that is inserted then.
type Order = fn(u64) -> u64;

fn a_store_grows_from_nothing_in_every_order_and_shrinks_to_nothing<T: TestKeys>() {
    let orders: [(&str, Order); 4] = [
        ("ascending", |i| i * 10),
        ("descending", |i| u64::MAX - i * 10),
        ("scattered", |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ("two runs", |i| (i & 1) << 40 | i),
    ];
    for (name, key) in orders {
        let mut node = node::<T>(16 << 20, T::parameters(8), &BTreeMap::new());
        let mut writer = Writer::<T>::new(1);
        for i in 0..20_000 {
            let value = value::<T>(key(i), i, 8);
            let done = writer.one(&mut node, WriteKind::Insert, key(i), RecordToken::default(), &value);
            assert_eq!(done.status, WriteStatus::Done, "{name}: key {i}");
            if i % 64 == 0 {
                while node.work() == Work::More {}
            }
        }
        let audit = node.audit().expect("every byte is right").expect("a table");
        assert_eq!(audit.keys, 20_000, "{name}");
        for i in 0..20_000 {
            let done = writer.one(&mut node, WriteKind::Delete, key(i), RecordToken::default(), &[]);
            assert_eq!(done.status, WriteStatus::Done, "{name}: key {i}");
        }
        assert_eq!(node.audit().expect("every byte is right").expect("a table").keys, 0, "{name}");
    }
}

/// Records of the keys of these numbers.
fn records<T: TestKeys>(numbers: &[u64]) -> BTreeMap<Key<T>, Vec<u8>> {
    numbers.iter().map(|number| (T::key(*number), value::<T>(*number, 0, 8))).collect()
}

fn a_full_region_refuses_inserts_and_goes_on_with_everything_else<T: TestKeys>() {
    let slot = T::shape(8).body_bytes() + 16;
    let mut node = node::<T>(8192 * slot, T::parameters(8), &records::<T>(&[1, 2, 3]));
    let mut writer = Writer::<T>::new(1);
    let put = |writer: &mut Writer<T>, node: &mut MemoryNode<T::Space>, kind, key| {
        writer.one(node, kind, key, RecordToken::default(), &value::<T>(key, 7, 8)).status
    };
    let mut keys = (0..u64::MAX).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let full = keys.find(|key| put(&mut writer, &mut node, WriteKind::Insert, *key) == WriteStatus::NoRoom);
    assert!(full.is_some());
    node.audit().expect("every byte is right");
    let stats = node.stats();
    let held = stats.keys * slot as u64 + stats.external_bytes;
    assert!(held > 3000 * slot as u64, "{} keys in {} bytes", stats.keys, stats.region_bytes);
    assert_eq!(put(&mut writer, &mut node, WriteKind::Update, 2), WriteStatus::Done);
    assert_eq!(put(&mut writer, &mut node, WriteKind::Delete, 1), WriteStatus::Done);
    assert_eq!(writer.get(&mut node, 2).map(|(value, _)| value), Some(value::<T>(2, 7, 8)));
    let freed: Vec<u64> = (0..2000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for key in &freed {
        put(&mut writer, &mut node, WriteKind::Delete, *key);
    }
    let again =
        freed.iter().filter(|key| put(&mut writer, &mut node, WriteKind::Insert, **key) == WriteStatus::Done);
    assert!(again.count() > 1500, "deleted records make room");
    node.audit().expect("every byte is right");
}

/// Loaded into the smallest region that takes it: what replaces segments later must have been left
/// room.
fn a_table_that_was_loaded_to_the_brim_takes_other_records_for_deleted_ones<T: TestKeys>() {
    let loaded: Vec<u64> = (0..4000).collect();
    let records = records::<T>(&loaded);
    let load = |capacity| try_node::<T>(capacity, T::parameters(8), &records);
    let (mut too_small, mut enough) = (32 << 10, 16 << 20);
    while too_small + 4096 < enough {
        let middle = (too_small + (enough - too_small) / 2) & !4095;
        *(if load(middle).is_ok() { &mut enough } else { &mut too_small }) = middle;
    }
    let mut node = load(enough).expect("room");
    let mut writer = Writer::<T>::new(1);
    let mut put = |node: &mut MemoryNode<T::Space>, kind, key: u64| {
        writer.one(node, kind, key, RecordToken::default(), &value::<T>(key, 7, 8)).status
    };
    for key in &loaded[..3500] {
        assert_eq!(put(&mut node, WriteKind::Delete, *key), WriteStatus::Done);
    }
    // All go to where few were deleted.
    let taken = (10_000..12_000).filter(|key| {
        while node.work() == Work::More {}
        put(&mut node, WriteKind::Insert, *key) == WriteStatus::Done
    });
    let taken = taken.count();
    assert!(taken > 1500, "{taken} of 2000 in a region of {enough} bytes");
    node.audit().expect("every byte is right");
}

fn a_repeated_request_is_answered_and_not_applied_again<T: TestKeys>() {
    let mut node = node::<T>(1 << 20, T::parameters(8), &BTreeMap::new());
    let new = value::<T>(5, 1, 8);
    let mut writer = Writer::<T>::new(9);
    let first = writer.one(&mut node, WriteKind::Insert, 5, RecordToken::default(), &new);
    let mut other = Writer::<T>::new(10);
    other.one(&mut node, WriteKind::Delete, 5, RecordToken::default(), &[]);
    let again = writer.again(&mut node, WriteKind::Insert, 5, RecordToken::default(), &new);
    assert_eq!(again, Ok(first), "the first outcome, though the record is gone");
    assert_eq!(writer.get(&mut node, 5), None);
    // No client was ever forgotten: a request that is not known has never been executed.
    let reply = Writer::<T>::new(11).again(&mut node, WriteKind::Insert, 5, RecordToken::default(), &new);
    assert_eq!(reply.map(|reply| reply.status), Ok(WriteStatus::Done));
    for client in 100..1200 {
        Writer::<T>::new(client).one(&mut node, WriteKind::Update, 6, RecordToken::default(), &new);
    }
    let refusal = Writer::<T>::new(12).again(&mut node, WriteKind::Insert, 7, RecordToken::default(), &new);
    assert!(refusal.is_err_and(|e| e.message.contains("sent before")));
}

for_all_keys_and_long_values!(
    every_write_ends_as_in_a_btreemap,
    a_store_grows_from_nothing_in_every_order_and_shrinks_to_nothing,
    a_full_region_refuses_inserts_and_goes_on_with_everything_else,
    a_table_that_was_loaded_to_the_brim_takes_other_records_for_deleted_ones,
    a_repeated_request_is_answered_and_not_applied_again,
);
