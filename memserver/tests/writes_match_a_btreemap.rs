//! Whatever is written, in whatever order and with whatever rebuilds in between, the memory node holds what a `BTreeMap`
//! holds, and every byte of its table is as the protocol wants it.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use common::requests::{Writer, value};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;
use proptest::prelude::*;

fn node(capacity: usize, parameters: TableParameters, keys: &[u64]) -> MemoryNode<U64Keys> {
    let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
    let mut node = MemoryNode::new(region, 1, 0, Instant::now()).expect("a region");
    let fill = |i: usize, out: &mut [u8]| out.copy_from_slice(&value(keys[i], 0, out.len()));
    node.load(parameters, keys.iter().copied(), fill).expect("room");
    node
}

#[derive(Clone, Debug)]
enum Step {
    Write(WriteKind, u64),
    Work,
}

fn steps(keys: impl Strategy<Value = u64> + Clone, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let kinds = [
        WriteKind::Insert,
        WriteKind::Insert,
        WriteKind::Put,
        WriteKind::Update,
        WriteKind::Delete,
        WriteKind::CompareAndSet,
    ];
    let write = (prop::sample::select(kinds.to_vec()), keys).prop_map(|(kind, key)| Step::Write(kind, key));
    prop::collection::vec(prop_oneof![9 => write, 1 => Just(Step::Work)], 1..most)
}

fn any_key() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0u64..200, 1_000_000u64..1_000_200, any::<u64>(), Just(0), Just(u64::MAX)]
}

fn parameters() -> impl Strategy<Value = TableParameters> {
    (prop::sample::select(&FingerprintWidth::ALL[..]), 0u32..12, 16u16..200, 0u32..20).prop_map(
        |(width, epsilon, max_slots, value_bytes)| TableParameters {
            width,
            epsilon,
            max_slots,
            value_bytes,
            fill: 0.85,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..Default::default() })]

    #[test]
    fn every_write_ends_as_in_a_btreemap(
        parameters in parameters(),
        loaded in prop::collection::btree_set(any_key(), 0..200),
        steps in steps(any_key(), 600),
    ) {
        let keys: Vec<u64> = loaded.into_iter().collect();
        let mut node = node(1 << 20, parameters, &keys);
        let mut writer = Writer::new(1, parameters.value_bytes);
        let bytes = parameters.value_bytes as usize;
        let mut model: BTreeMap<u64, (Vec<u8>, Option<RecordToken>)> =
            keys.iter().map(|key| (*key, (value(*key, 0, bytes), None))).collect();
        for (i, step) in steps.into_iter().enumerate() {
            let Step::Write(kind, key) = step else {
                while node.work() == Work::More {}
                continue;
            };
            let new = value(key, i as u64 + 1, bytes);
            let known = model.get(&key).cloned();
            let expected = match &known {
                // Every other compare-and-set expects something else.
                Some((_, Some(token))) if i % 2 == 0 => *token,
                _ => RecordToken::from_bits(i as u64),
            };
            let reply = writer.one(&mut node, kind, key, expected, &new);
            let wanted = match (kind, &known) {
                (WriteKind::Insert, Some(_)) => WriteStatus::Exists,
                (WriteKind::Update | WriteKind::Delete | WriteKind::CompareAndSet, None) => WriteStatus::Absent,
                (WriteKind::CompareAndSet, Some((_, token))) if *token != Some(expected) => WriteStatus::Differs,
                _ => WriteStatus::Done,
            };
            prop_assert_eq!(reply.status, wanted, "{:?} {}", kind, key);
            if wanted == WriteStatus::Done {
                if kind == WriteKind::Delete {
                    model.remove(&key);
                    prop_assert_eq!(reply.token, None);
                } else {
                    prop_assert_eq!(reply.token.is_some(), true);
                    model.insert(key, (new, reply.token));
                }
            }
        }
        node.audit().expect("every byte is right");
        for (key, (wanted, token)) in &model {
            let (found, now) = writer.get(&mut node, *key).expect("it was put there");
            prop_assert_eq!(&found, wanted);
            prop_assert!(token.is_none_or(|token| token == now));
        }
        prop_assert_eq!(node.stats().keys, model.len() as u64);
        for absent in [5, 77, 1_000_100, u64::MAX - 3].into_iter().filter(|key| !model.contains_key(key)) {
            prop_assert_eq!(writer.get(&mut node, absent), None);
        }
    }
}

/// From a number to the key that is inserted then.
type Order = fn(u64) -> u64;

#[test]
fn a_store_grows_from_nothing_in_every_order_and_shrinks_to_nothing() {
    let orders: [(&str, Order); 4] = [
        ("ascending", |i| i * 10),
        ("descending", |i| u64::MAX - i * 10),
        ("scattered", |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ("two runs", |i| (i & 1) << 40 | i),
    ];
    for (name, key) in orders {
        let mut node = node(4 << 20, TableParameters::default(), &[]);
        let mut writer = Writer::new(1, 8);
        for i in 0..20_000 {
            let done =
                writer.one(&mut node, WriteKind::Insert, key(i), RecordToken::default(), &i.to_le_bytes());
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

#[test]
fn a_full_region_refuses_inserts_and_goes_on_with_everything_else() {
    let mut node = node(256 << 10, TableParameters::default(), &[1, 2, 3]);
    let mut writer = Writer::new(1, 8);
    let put = |writer: &mut Writer, node: &mut MemoryNode<U64Keys>, kind, key| {
        writer.one(node, kind, key, RecordToken::default(), &[7; 8]).status
    };
    let mut keys = (0..u64::MAX).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let full = keys.find(|key| put(&mut writer, &mut node, WriteKind::Insert, *key) == WriteStatus::NoRoom);
    assert!(full.is_some());
    node.audit().expect("every byte is right");
    assert!(node.stats().keys > 3000, "{} keys in 256 KiB", node.stats().keys);
    assert_eq!(put(&mut writer, &mut node, WriteKind::Update, 2), WriteStatus::Done);
    assert_eq!(put(&mut writer, &mut node, WriteKind::Delete, 1), WriteStatus::Done);
    assert_eq!(writer.get(&mut node, 2).map(|(value, _)| value), Some(vec![7; 8]));
    let freed: Vec<u64> = (0..2000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for key in &freed {
        put(&mut writer, &mut node, WriteKind::Delete, *key);
    }
    let again =
        freed.iter().filter(|key| put(&mut writer, &mut node, WriteKind::Insert, **key) == WriteStatus::Done);
    assert!(again.count() > 1500, "deleted records make room");
    node.audit().expect("every byte is right");
}

#[test]
fn a_repeated_request_is_answered_and_not_applied_again() {
    let mut node = node(1 << 20, TableParameters::default(), &[]);
    let mut writer = Writer::new(9, 8);
    let first = writer.one(&mut node, WriteKind::Insert, 5, RecordToken::default(), &[1; 8]);
    let mut other = Writer::new(10, 8);
    other.one(&mut node, WriteKind::Delete, 5, RecordToken::default(), &[]);
    let again = writer.again(&mut node, WriteKind::Insert, 5, RecordToken::default(), &[1; 8]);
    assert_eq!(again, Ok(first), "the first outcome, though the record is gone");
    assert_eq!(writer.get(&mut node, 5), None);
    // Nobody was ever forgotten: a request that is not known has never been executed.
    let reply = Writer::new(11, 8).again(&mut node, WriteKind::Insert, 5, RecordToken::default(), &[1; 8]);
    assert_eq!(reply.map(|reply| reply.status), Ok(WriteStatus::Done));
    for client in 100..1200 {
        Writer::new(client, 8).one(&mut node, WriteKind::Update, 6, RecordToken::default(), &[1; 8]);
    }
    let refusal = Writer::new(12, 8).again(&mut node, WriteKind::Insert, 7, RecordToken::default(), &[1; 8]);
    assert!(refusal.is_err_and(|e| e.message.contains("sent before")));
}
