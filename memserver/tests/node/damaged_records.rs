//! Records that are damaged in memory: nothing makes them valid again but a write of their key, and
//! nothing loses them.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, call, statuses, value};
use crate::common::world::{Mortal, Node, REGION, World, load, load_with, lost, parameters};
use fpcache::fingerprint::WidthChoice;
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{RecordToken, SLOT_WORD_BYTES, TableParameters};
use fpcache::message::keys::put_key;
use fpcache::message::{AskedKeys, ErrorCode, Request, WriteKind, WriteStatus, decode_reply};
use fpcache_fabric::{NodeMemory, Service, SharedMemory};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::durability::{Disk, SyncPolicy};
use xxhash_rust::xxh3::xxh3_64;

/// The key whose record is damaged: one that is loaded, in the middle of the table.
const KEY: u64 = 25_000;
/// Keys are loaded so far apart.
const APART: u64 = 50;

/// Bits that are flipped: twice, and the record is whole again.
struct Flip {
    what: &'static str,
    at: u64,
    mask: u8,
}

impl Flip {
    fn apply(&self, region: &Mortal) {
        let mut byte = [0];
        region.read_bytes(self.at, &mut byte).expect("inside");
        region.write_bytes(self.at, &[byte[0] ^ self.mask]).expect("inside");
    }
}

/// What of the key's record is damaged, one after the other.
fn flips<T: TestKeys>(region: &Mortal) -> Vec<Flip> {
    let mut all = vec![0; REGION];
    region.read_bytes(0, &mut all).expect("all of it");
    let key = T::key(KEY);
    let mut record = vec![0; T::Space::encoded_len(key.borrow())];
    T::Space::encode(key.borrow(), &mut record);
    record.extend(value::<T>(KEY, 0, 8));
    let at = all.windows(record.len()).position(|window| *window == record).expect("it lies somewhere");
    let end = (at + record.len()) as u64;
    let has_lengths = T::Space::FIXED_BYTES.is_none();
    let body = at as u64 - if has_lengths { 8 } else { 0 };
    let mut flips = vec![
        Flip { what: "the value", at: end - 1, mask: 0xff },
        Flip { what: "the slot's state", at: body - SLOT_WORD_BYTES as u64, mask: 1 },
    ];
    if has_lengths {
        flips.push(Flip { what: "the key's length", at: body + 5, mask: 0x40 });
        flips.push(Flip { what: "the value's length", at: body + 3, mask: 0x40 });
    }
    flips
}

fn put<T: TestKeys>(writer: &mut Writer<T>, node: &mut Node<T>, key: u64) -> WriteStatus {
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &value::<T>(key, 1, 8)).status
}

/// Keys that belong beside the damaged one's, and are not loaded.
fn around() -> impl Iterator<Item = u64> {
    (KEY - 300..KEY + 300).filter(|key| key % APART != 0)
}

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
        if flip.what == "the value" {
            assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done, "the key has its slot");
        } else {
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
            let mut key = Vec::new();
            put_key::<T::Space>(T::key(KEY).borrow(), &mut key);
            let reply = call::<T>(&mut node, &Request::Get(AskedKeys { count: 1, bytes: &key }));
            let refused = decode_reply(&reply).map(<[u8]>::to_vec).expect_err(flip.what);
            assert_eq!(refused.code, ErrorCode::Damaged, "{}", flip.what);
            assert_eq!(node.stats().damaged_lookups, number, "{}", flip.what);
            let other = Writer::<T>::new(5).get(&mut node, KEY + APART);
            assert_eq!(other.map(|(value, _)| value), Some(value::<T>(KEY + APART, 0, 8)), "{}", flip.what);
            flip.apply(&region);
        }
    }
}

/// Without fingerprints nothing but the key says whose a record is.
#[test]
fn a_record_whose_key_becomes_another_by_damage_is_not_taken_for_that_one() {
    const OTHER: u64 = KEY + 1;
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
    load_with::<Integers>(&mut node, 1000, parameters::<Integers>().with_width(WidthChoice::None));
    let region = node.region().clone();
    let mut writer = Writer::<Integers>::new(5);
    for key in around() {
        assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done);
    }
    let at = node.place_of(&KEY).expect("it was loaded").slot.start + SLOT_WORD_BYTES as u64;
    let flip = Flip { what: "the key", at, mask: (KEY ^ OTHER) as u8 };
    assert_eq!(KEY ^ u64::from(flip.mask), OTHER);
    flip.apply(&region);
    let new = value::<Integers>(OTHER, 2, 8);
    let reply = writer.one(&mut node, WriteKind::Put, OTHER, RecordToken::default(), &new);
    assert_eq!(reply.status, WriteStatus::Done);
    flip.apply(&region);
    for (key, n) in [(KEY, 0), (OTHER, 2)] {
        let found = writer.get(&mut node, key).map(|(value, _)| value);
        assert_eq!(found, Some(value::<Integers>(key, n, 8)), "{key}");
    }
    node.audit().expect("every byte is right");
}

/// Stores these bytes as the fingerprint of the key's record; returns what was there.
fn set_fingerprint(region: &Mortal, at: &Range<u64>, bytes: &[u8]) -> Vec<u8> {
    let mut before = vec![0; (at.end - at.start) as usize];
    region.read_bytes(at.start, &mut before).expect("inside");
    region.write_bytes(at.start, &bytes[..before.len()]).expect("inside");
    before
}

/// A key that is not found for its fingerprint is written anew: what was there before is of no key any
/// more, in new segments and in snapshots.
fn of_two_records_of_a_key_the_newer_one_counts<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 1000);
    let region = node.region().clone();
    let at = node.place_of(T::key(KEY).borrow()).expect("it was loaded").fingerprint;
    let before = set_fingerprint(&region, &at, &[0x5a; 8]);
    assert_ne!(before, vec![0x5a; before.len()]);
    let mut writer = Writer::<T>::new(5);
    assert_eq!(writer.get(&mut node, KEY), None);
    assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done);
    let is_new = |node: &mut Node<T>| {
        let found = Writer::<T>::new(6).get(node, KEY).map(|(value, _)| value);
        assert_eq!(found, Some(value::<T>(KEY, 1, 8)));
    };
    is_new(&mut node);
    let taken = snapshots(&world);
    node.begin_snapshot();
    (0..1000).for_each(|_| _ = node.work());
    assert_ne!(snapshots(&world), taken, "nothing keeps it from being taken");
    let rebuilds = node.stats().rebuilds;
    for key in around() {
        assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done);
    }
    assert!(node.stats().rebuilds > rebuilds);
    is_new(&mut node);
    assert_eq!(node.stats().keys, 1000 + around().count() as u64);
    node.audit().expect("every record has its fingerprint");
    drop(node);
    // The machine ends.
    (world.region, world.recovery_area) = lost(&world.left);
    world.disk = world.disk.crash();
    let (mut node, _) = world.begin::<T>();
    is_new(&mut node);
    node.audit().expect("every byte is right");
}

fn a_record_without_a_fingerprint_keeps_its_slot<T: TestKeys>() {
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<T>();
    load::<T>(&mut node, 1000);
    let region = node.region().clone();
    let place = node.place_of(T::key(KEY).borrow()).expect("it was loaded");
    let before = set_fingerprint(&region, &place.fingerprint, &[0; 8]);
    let mut record = vec![0; (place.slot.end - place.slot.start) as usize];
    region.read_bytes(place.slot.start, &mut record).expect("inside");
    let rebuilds = node.stats().rebuilds;
    let mut writer = Writer::<T>::new(5);
    let mut keys = (1..APART).flat_map(|apart| [KEY + apart, KEY - apart]);
    while node.stats().rebuilds == rebuilds {
        let mut now = record.clone();
        region.read_bytes(place.slot.start, &mut now).expect("inside");
        assert_eq!(now, record, "another record lies in its slot");
        assert_eq!(put(&mut writer, &mut node, keys.next().expect("few fit")), WriteStatus::Done);
    }
    assert!(before.iter().any(|byte| *byte != 0) && writer.get(&mut node, KEY).is_some(), "it was lost");
    node.audit().expect("its fingerprint is right again");
}

fn snapshots(world: &World) -> Vec<String> {
    let names = world.disk.list().expect("a disk");
    names.into_iter().filter(|name| name.ends_with(".fps")).collect()
}

fn a_snapshot_of_a_table_with_a_damaged_record_does_not_count<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 1000);
    // The next one is another file.
    assert_eq!(put(&mut Writer::<T>::new(5), &mut node, 1), WriteStatus::Done);
    let before = snapshots(&world);
    let region = node.region().clone();
    let mut take_one = || {
        node.begin_snapshot();
        for _ in 0..1000 {
            node.work();
        }
        (snapshots(&world), node.stats().damaged_copies)
    };
    for (flip, number) in flips::<T>(&region).into_iter().zip(1..) {
        flip.apply(&region);
        let (now, met) = take_one();
        assert_eq!(now, before, "{}: it would be without the record, or hold the damage", flip.what);
        assert_eq!(met, number, "{}: it is counted", flip.what);
        flip.apply(&region);
    }
    assert_ne!(take_one().0, before);
}

#[test]
fn a_damaged_neighbour_keeps_no_whole_segment_from_being_replaced() {
    let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
    load::<Integers>(&mut node, 1000);
    let mut writer = Writer::<Integers>::new(5);
    let region = node.region().clone();
    flips::<Integers>(&region)[0].apply(&region);
    // Such short segments are merged with their neighbours when they are replaced.
    let mut all: Vec<u64> = (KEY - 6000..KEY + 6000).filter(|key| key % 10 == 1).collect();
    // In any order.
    all.sort_unstable_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    all.retain(|key| put(&mut writer, &mut node, *key) != WriteStatus::Done);
    let (first, last) = all.iter().fold((KEY, KEY), |(first, last), key| (first.min(*key), last.max(*key)));
    assert!(!all.is_empty(), "no segment needed a rebuild");
    // All of one segment.
    assert!(last - first < u64::from(parameters::<Integers>().max_slots) * APART, "{first} to {last}");
}

/// Whatever says how many records a segment has, what is damaged is one.
#[test]
fn compaction_passes_by_a_segment_whose_only_record_is_damaged() {
    for width in [WidthChoice::Auto, WidthChoice::None] {
        let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
        load_with::<Integers>(&mut node, 1000, parameters::<Integers>().with_width(width));
        node.give_back_from(0);
        let mut writer = Writer::<Integers>::new(5);
        let region = node.region().clone();
        let flip = &flips::<Integers>(&region)[1];
        flip.apply(&region);
        for key in (0..1000).map(|i| i * APART).filter(|key| *key != KEY) {
            writer.one(&mut node, WriteKind::Delete, key, RecordToken::default(), &[]);
        }
        (0..2000).for_each(|_| _ = node.work());
        assert!(node.stats().segments < 8, "{width:?}: nothing was compacted: {:?}", node.stats());
        node.audit().expect_err("its record is damaged");
        assert!(node.stats().damaged_passed_by > 0, "{width:?}: it is counted");
        flip.apply(&region);
        assert!(writer.get(&mut node, KEY).is_some(), "{width:?}: it was lost");
    }
}

/// The log has lost entries, so that nothing is durable before the next snapshot: what is damaged
/// is left out of it, or no write would ever be acknowledged again.
#[test]
fn a_table_with_a_damaged_record_gets_over_a_log_that_lost_entries() {
    let mut world = World::new(SyncPolicy::Never, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 1000);
    let mut writer = Writer::<Integers>::new(5);
    (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
    node.work();
    let region = node.region().clone();
    flips::<Integers>(&region)[0].apply(&region);
    // A snapshot has the log synced.
    world.disk.fail_syncs(1);
    node.begin_snapshot();
    let mut is_done = |node: &mut Node<Integers>| {
        let value = value::<Integers>(1, 1, 8);
        let written = writer.try_one(node, WriteKind::Put, 1, RecordToken::default(), &value);
        written.is_ok_and(|reply| reply.status == WriteStatus::Done)
    };
    while is_done(&mut node) {
        node.work();
    }
    let patience = Instant::now() + Duration::from_secs(10);
    while !is_done(&mut node) {
        assert!(Instant::now() < patience, "no write is acknowledged any more");
        node.work();
    }
    assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done);
    node.audit().expect("every byte is right");
}

/// Flips a bit wherever the region has these bytes, some of whose places are of no meaning any more.
fn flip_all(region: &SharedMemory, wanted: &[u8]) {
    let mut all = vec![0; region.len()];
    NodeMemory::read_bytes(region, 0, &mut all).expect("all of it");
    let places = (0..all.len()).step_by(8).filter(|at| all[*at..].starts_with(wanted));
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty(), "they lie somewhere");
    for at in places {
        NodeMemory::write_bytes(region, at as u64, &[wanted[0] ^ 1]).expect("inside");
    }
}

/// Bytes of the region are emptied for a long value, those with the fewest in use: the ones with the
/// damage, if that were not passed over for the next best.
#[test]
fn what_is_damaged_keeps_no_long_value_from_other_bytes_that_can_be_emptied() {
    const ALONE: u64 = 231;
    let short = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(2_500);
    for is_value in [false, true] {
        let region = Arc::new(SharedMemory::anonymous(12 << 20).expect("memory"));
        let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
        let parameters = TableParameters { max_slots: 64, ..LongValues::parameters(24) };
        let none: [(u64, Vec<u8>); 0] = [];
        node.load_records(parameters, (), none.into_iter()).expect("room");
        let mut writer = Writer::<LongValues>::new(1);
        let mut write = |node: &mut MemoryNode<U64Keys>, kind, key, value: &[u8]| {
            writer.one(node, kind, key, RecordToken::default(), value).status
        };
        for key in 0..500 {
            assert_eq!(write(&mut node, WriteKind::Put, key, &short(key)), WriteStatus::Done);
        }
        // What is left at the end.
        let long = vec![1; 1 << 20];
        let mut key = 1_000;
        while write(&mut node, WriteKind::Put, key, &long) == WriteStatus::Done {
            key += 1;
        }
        // The emptiest bytes have one value in use, others every second one.
        let gone = (0..500).filter(|key| key % 2 == 0 || (200..260).contains(key));
        for key in gone.filter(|key| *key != ALONE) {
            write(&mut node, WriteKind::Delete, key, &[]);
        }
        let region = Arc::clone(node.region());
        // The record has a checksum of it.
        let mut bytes = if is_value { short(ALONE) } else { xxh3_64(&short(ALONE)).to_le_bytes().to_vec() };
        flip_all(&region, &bytes);
        bytes[0] ^= 1;
        let put = write(&mut node, WriteKind::Put, key, &long);
        assert_eq!(put, WriteStatus::Done, "other bytes could be emptied: {is_value}");
        flip_all(&region, &bytes);
        node.audit().expect("every byte is right");
    }
}

for_all_keys!(
    a_rebuild_neither_loses_a_damaged_record_nor_makes_it_valid,
    the_memory_nodes_processor_neither_answers_with_what_is_damaged_nor_misses_it,
    of_two_records_of_a_key_the_newer_one_counts,
    a_record_without_a_fingerprint_keeps_its_slot,
    a_snapshot_of_a_table_with_a_damaged_record_does_not_count,
);
