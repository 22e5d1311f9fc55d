//! Damaged records that are in the way of what copies or moves others: snapshots, compaction, and
//! the emptying of ranges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::fingerprint::WidthChoice;
use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{NodeMemory, Service, SharedMemory};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::durability::SyncPolicy;
use xxhash_rust::xxh3::xxh3_64;

use crate::common::damage::{
    APART, Flip, KEY, flips, flips_of, place_of, put, record_of, snapshots, take_snapshot,
};
use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, value};
use crate::common::world::{Node, World, load, load_with, parameters};

fn a_snapshot_of_a_table_with_a_damaged_record_does_not_count<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 1000);
    // The next one is another file.
    assert_eq!(put(&mut Writer::<T>::new(5), &mut node, 1), WriteStatus::Done);
    let before = snapshots(&world);
    let region = node.region().clone();
    let mut take_one = || {
        take_snapshot::<T>(&mut node);
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
    let widths = [WidthChoice::Auto, WidthChoice::None];
    for (width, which) in widths.into_iter().flat_map(|width| [1, 2, 3].map(|which| (width, which))) {
        let (mut node, _) = World::new(SyncPolicy::Always, 1).begin::<Integers>();
        load_with::<Integers>(&mut node, 1000, parameters::<Integers>().with_width(width));
        node.give_back_from(0);
        let mut writer = Writer::<Integers>::new(5);
        let region = node.region().clone();
        let flip = &flips::<Integers>(&region)[which];
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
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_done(&mut node) {
        assert!(Instant::now() < patience, "no write is acknowledged any more");
        node.work();
    }
    // That one is without the record, and so are those after it, also of the next process.
    for key in 1..4 {
        let before = snapshots(&world);
        assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done);
        take_snapshot::<Integers>(&mut node);
        assert_ne!(snapshots(&world), before, "the log would grow for ever");
        drop(node);
        (node, _) = world.begin::<Integers>();
    }
    // But of a record that is damaged after that the disk has all.
    let region = node.region().clone();
    let other = Flip {
        what: "another value",
        at: place_of::<Integers>(&region, &record_of::<Integers>(KEY + APART, 0)) + 8,
        mask: 1,
        has_key: true,
    };
    other.apply(&region);
    let before = snapshots(&world);
    take_snapshot::<Integers>(&mut node);
    assert_eq!(snapshots(&world), before, "it would be without the record");
    other.apply(&region);
    assert_eq!(put(&mut writer, &mut node, KEY), WriteStatus::Done);
    node.audit().expect("every byte is right");
    std::thread::sleep(Duration::from_millis(10));
    take_snapshot::<Integers>(&mut node);
    assert_ne!(snapshots(&world), before);
    // From here on the disk has that one, too.
    flips_of::<Integers>(&region, KEY, 1)[0].apply(&region);
    let before = snapshots(&world);
    assert_eq!(put(&mut writer, &mut node, 1), WriteStatus::Done);
    take_snapshot::<Integers>(&mut node);
    assert_eq!(snapshots(&world), before, "it would be without the record");
}

/// Flips a bit wherever the region has these bytes, some of whose places are of no meaning any
/// more.
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

/// Bytes of the region are emptied for a long value, those with the fewest in use: the ones with
/// the damage, if that were not passed over for the next best.
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

for_all_keys!(a_snapshot_of_a_table_with_a_damaged_record_does_not_count);
