//! Records that are damaged in memory: nothing makes them valid again but a write of their key, and
//! nothing loses them.

use std::borrow::Borrow;

use fpcache::fingerprint::WidthChoice;
use fpcache::key_space::U64Keys;
use fpcache::layout::RecordToken;
use fpcache::message::keys::put_key;
use fpcache::message::{
    AskedKeys, Request, Sent, WriteBatch, WriteKind, WriteOperation, WriteStatus, decode_reply,
};
use fpcache_fabric::{NodeMemory, Service};
use fpcache_memserver::durability::SyncPolicy;

use crate::common::damage::{APART, Flip, KEY, around, flips, put, snapshots, take_snapshot};
use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, call, statuses, value};
use crate::common::world::{Mortal, REGION, World, load, load_with, lost, parameters};

fn a_rebuild_neither_loses_a_damaged_record_nor_makes_it_valid<T: TestKeys>() {
    let damages = {
        let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<T>();
        load::<T>(&mut node, 1000);
        flips::<T>(node.region()).len()
    };
    for which in 0..damages {
        let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<T>();
        load::<T>(&mut node, 1000);
        let region = node.region().clone();
        let flip = &flips::<T>(&region)[which];
        flip.apply(&region);
        let mut writer = Writer::<T>::new(5);
        let refused: Vec<u64> =
            around().filter(|key| put(&mut writer, &mut node, *key) != WriteStatus::Done).collect();
        assert!(!refused.is_empty(), "{}: no segment needed a rebuild", flip.what);
        assert_eq!(node.stats().damaged_writes, refused.len() as u64, "{}", flip.what);
        assert_eq!(put(&mut writer, &mut node, refused[0]), WriteStatus::Damaged, "{}", flip.what);
        node.audit().expect_err(flip.what);
        // What is refused keeps nothing else from being done, in the same request either.
        let values = [refused[0], 1].map(|key| value::<T>(key, 1, 8));
        let both = [(WriteKind::Put, refused[0], &values[0][..]), (WriteKind::Put, 1, &values[1])];
        let said = statuses(&call::<T>(&mut node, &batch::<T>(&both).request(6, 1, false)));
        assert_eq!(said, Ok(vec![WriteStatus::Damaged, WriteStatus::Done]), "{}", flip.what);
        for key in (2..1000).filter(|key| key % APART != 0) {
            assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done, "other segments are rebuilt");
        }
        if flip.has_key {
            assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done, "{}: it has its slot", flip.what);
        } else {
            assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Damaged, "{}", flip.what);
            flip.apply(&region);
        }
        for key in around() {
            assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done, "the record is whole");
        }
        assert!(writer.get(&mut node, KEY).is_some(), "{}: it was lost", flip.what);
        node.audit().expect("every byte is right");
    }
}

/// A damaged record is no answer, and neither is that there is none.
fn the_memory_nodes_processor_neither_answers_with_what_is_damaged_nor_misses_it<T: TestKeys>() {
    for width in [WidthChoice::Auto, WidthChoice::None] {
        let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<T>();
        load_with::<T>(&mut node, 1000, parameters::<T>().with_width(width));
        let region = node.region().clone();
        for (flip, number) in flips::<T>(&region).into_iter().zip(1..) {
            flip.apply(&region);
            // The other keys of a request are answered.
            let mut keys = Vec::new();
            [KEY, 0].iter().for_each(|key| put_key::<T::Space>(T::key(*key).borrow(), &mut keys));
            let reply = call::<T>(&mut node, &Request::Get(AskedKeys { count: 2, bytes: &keys }));
            let answers = decode_reply(&reply).expect("a reply");
            assert_eq!((answers[0], answers[16]), (3, 0), "{}", flip.what);
            assert!(answers.ends_with(&value::<T>(0, 0, 8)), "{}", flip.what);
            assert_eq!(node.stats().damaged_lookups, number, "{}", flip.what);
            flip.apply(&region);
        }
    }
}

/// A write of the key, and what it leaves.
fn written<T: TestKeys>(kind: WriteKind) -> Option<Vec<u8>> {
    (kind != WriteKind::Delete).then(|| value::<T>(KEY, 1, 8))
}

fn nobody_is_told_that_a_damaged_record_is_absent<T: TestKeys>() {
    let kinds = [WriteKind::Put, WriteKind::Update, WriteKind::Delete];
    let widths = [WidthChoice::Auto, WidthChoice::None];
    for (width, kind) in widths.into_iter().flat_map(|width| kinds.map(|kind| (width, kind))) {
        for which in 0.. {
            let mut world = World::new(SyncPolicy::Always, 1);
            let (mut node, _) = world.begin::<T>();
            load_with::<T>(&mut node, 1000, parameters::<T>().with_width(width));
            let region = node.region().clone();
            let mut writer = Writer::<T>::new(5);
            let (before, token) = writer.get(&mut node, KEY).expect("it is loaded");
            let flips = flips::<T>(&region);
            let Some(flip) = flips.get(which) else { break };
            let what = format!("{}, {kind:?}, {width:?}", flip.what);
            flip.apply(&region);
            assert!(writer.finds_damage(&mut node, KEY), "{what}");
            let new = value::<T>(KEY, 1, 8);
            for (kind, expected) in
                [(WriteKind::Insert, RecordToken::default()), (WriteKind::CompareAndSet, token)]
            {
                let reply = writer.one(&mut node, kind, KEY, expected, &new);
                assert_eq!((reply.status, reply.token), (WriteStatus::Damaged, None), "{what}");
            }
            let status = writer.one(&mut node, kind, KEY, RecordToken::default(), &new).status;
            if flip.has_key {
                assert_eq!(status, WriteStatus::Done, "{what}");
                assert_eq!(writer.get(&mut node, KEY).map(|(value, _)| value), written::<T>(kind), "{what}");
                node.audit().expect(&what);
            } else {
                assert_eq!(status, WriteStatus::Damaged, "{what}");
                flip.apply(&region);
                assert_eq!(writer.get(&mut node, KEY), Some((before.clone(), token)), "{what}");
                node.audit().expect(&what);
                flip.apply(&region);
            }
            // The disk has what was said, too.
            drop(node);
            (world.region, world.recovery_area) = lost(&world.left);
            let (mut node, _) = world.begin::<T>();
            let expected = if flip.has_key { written::<T>(kind) } else { Some(before) };
            assert_eq!(writer.get(&mut node, KEY).map(|(value, _)| value), expected, "{what}");
        }
    }
}

/// A free slot in the segment of the key, by the offset of its word.
fn free_slot(region: &Mortal) -> u64 {
    let slot_bytes = (parameters::<Integers>().geometry().slot_bytes) as u64;
    let word = flips::<Integers>(region)[1].at;
    let word_at = |at: &u64| region.load_relaxed(*at).expect("inside");
    (1..20).map(|n| word + n * slot_bytes).find(|at| word_at(at) == 0).expect("segments are not full")
}

#[test]
fn a_free_slot_whose_word_is_damaged_is_free() {
    // Its state, and its checksum.
    let flips = [(0, 1), (0, 2), (0, 3), (4, 1), (7, 0x80)];
    for (width, (byte, mask)) in
        [WidthChoice::Auto, WidthChoice::None].into_iter().flat_map(|width| flips.map(|flip| (width, flip)))
    {
        let mut world = World::new(SyncPolicy::Always, 1);
        let (mut node, _) = world.begin::<Integers>();
        load_with::<Integers>(&mut node, 1000, parameters::<Integers>().with_width(width));
        let mut writer = Writer::<Integers>::new(5);
        assert_eq!(put(&mut writer, &mut node, 1), WriteStatus::Done);
        let region = node.region().clone();
        let flip = Flip { what: "a free slot", at: free_slot(&region) + byte, mask, has_key: false };
        flip.apply(&region);
        let before = snapshots(&world);
        take_snapshot::<Integers>(&mut node);
        assert_ne!(snapshots(&world), before, "{width:?}, {byte}, {mask}");
        // It is not counted either.
        drop(node);
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(recovery.keys, 1001, "{width:?}, {byte}, {mask}");
        for key in around() {
            assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done, "{width:?}, {byte}, {mask}");
        }
        node.audit().expect("every byte is right");
    }
}

/// A key whose value lies outside, and its slot: word, lengths and place, key, checksum and
/// address.
fn of_value_outside(region: &Mortal) -> (u64, u64) {
    let mut all = vec![0; REGION];
    region.read_bytes(0, &mut all).expect("all of it");
    let slot_of = |key: u64| {
        let rest = [&[8, 0, 1, 0][..], &key.to_le_bytes()].concat();
        all.windows(rest.len()).position(|window| *window == rest).map(|at| (key, at as u64 - 12))
    };
    (0..300).find_map(|i| slot_of(APART * i)).expect("most are too long")
}

/// A start takes the memory that such a slot names for free; it must not be freed once more, when
/// others have it.
#[test]
fn memory_that_a_slot_in_a_damaged_state_names_is_not_freed_twice() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<LongValues>();
    load::<LongValues>(&mut node, 300);
    let (key, slot) = of_value_outside(node.region());
    Flip { what: "a live slot's state", at: slot, mask: 2, has_key: true }.apply(node.region());
    drop(node);
    let (mut node, _) = world.begin::<LongValues>();
    let mut writer = Writer::<LongValues>::new(5);
    let mut write = |node: &mut _, kind, key| {
        let value = value::<LongValues>(key, 1, 8);
        let reply = writer.one(node, kind, key, RecordToken::default(), &value);
        assert_eq!(reply.status, WriteStatus::Done, "key {key}");
    };
    let others = |from: u64, to: u64| (from..to).map(|i| APART * i).filter(|other| *other != key);
    others(0, 100).for_each(|other| write(&mut node, WriteKind::Put, other));
    write(&mut node, WriteKind::Delete, key);
    others(100, 200).for_each(|other| write(&mut node, WriteKind::Put, other));
    for other in others(0, 200) {
        let got = writer.get(&mut node, other).map(|(got, _)| got);
        assert_eq!(got, Some(value::<LongValues>(other, 1, 8)), "key {other}");
    }
    drop(node);
    world.begin::<LongValues>().0.audit().expect("every byte is right");
}

/// Its slot still has the key of the record that was deleted.
#[test]
fn an_update_by_an_old_hint_does_not_go_to_a_free_slot_whose_state_is_damaged() {
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
    load::<Integers>(&mut node, 1000);
    let word = flips::<Integers>(node.region())[1].at;
    let mut writer = Writer::<Integers>::new(5);
    let value = value::<Integers>(KEY, 1, 8);
    let none = RecordToken::default();
    assert_eq!(writer.one(&mut node, WriteKind::Delete, KEY, none, &[]).status, WriteStatus::Done);
    Flip { what: "a free slot's state", at: word, mask: 2, has_key: true }.apply(node.region());
    for hint in 0..1000 {
        let mut writes = WriteBatch::default();
        writes.push::<U64Keys>(&WriteOperation {
            kind: WriteKind::Update,
            key: KEY,
            hint: Some(hint),
            expected: none,
            value: Sent::Here(&value),
        });
        let said = statuses(&call::<Integers>(&mut node, &writes.request(6, u64::from(hint) + 1, false)));
        assert_eq!(said, Ok(vec![WriteStatus::Absent]), "slot {hint}");
    }
}

/// Whatever of a slot is damaged that names a value outside: when its key is written or deleted,
/// what is counted is right, and once memory is taken up anew, so is what is free.
#[test]
fn damaged_records_with_values_outside_are_replaced_and_counted() {
    // Its state, the value's length and place, its checksum and address.
    let flips = [(0, 2), (8, 0x40), (14, 1), (14, 0x40), (24, 0x40), (39, 0x40)];
    for ((at, mask), kind) in
        flips.into_iter().flat_map(|flip| [WriteKind::Put, WriteKind::Delete].map(|kind| (flip, kind)))
    {
        let mut world = World::new(SyncPolicy::Always, 1);
        let (mut node, _) = world.begin::<LongValues>();
        load::<LongValues>(&mut node, 300);
        let region = node.region().clone();
        let (key, slot) = of_value_outside(&region);
        let mut writer = Writer::<LongValues>::new(5);
        let used = node.stats().used_bytes;
        Flip { what: "a slot", at: slot + at, mask, has_key: true }.apply(&region);
        let reply = writer.one(&mut node, kind, key, RecordToken::default(), &value::<LongValues>(key, 0, 8));
        assert_eq!(reply.status, WriteStatus::Done, "byte {at}");
        (0..1000).for_each(|_| _ = node.work());
        node.audit().expect("every byte is right");
        drop(node);
        let (node, _) = world.begin::<LongValues>();
        node.audit().expect("every byte is right");
        assert!(node.stats().used_bytes <= used, "byte {at}: memory was lost");
    }
}

for_all_keys!(
    nobody_is_told_that_a_damaged_record_is_absent,
    a_rebuild_neither_loses_a_damaged_record_nor_makes_it_valid,
    the_memory_nodes_processor_neither_answers_with_what_is_damaged_nor_misses_it,
);
