//! A table learns from the keys it holds, and everything stays as it is but the number of its
//! segments.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::keys::Strings;
use crate::common::requests::{Readable, Writer};
use crate::common::world::{Mortal, REGION, RING, World};
use fpcache::key_space::ByteKeys;
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache::plan::PlanChoice;
use fpcache::read::{Lookup, LookupScratch, drive};
use fpcache::table::{Table, TableOptions};
use fpcache::{Refresh, matching::Matcher};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, NodeMemory, Service, SharedMemory, Work};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::recovery_area_bytes;
use fpcache_memserver::{MemoryNode, Origin};

fn parameters(epsilon: u32) -> TableParameters {
    let shape = RecordShape { key_bytes: None, value_bytes: Some(8), room: 40 };
    TableParameters { shape, epsilon, ..TableParameters::default() }
}

/// Keys as YCSB makes them, in no order.
fn key(i: u64) -> Vec<u8> {
    format!("user{:019}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).into_bytes()
}

fn insert<M: NodeMemory>(node: &mut MemoryNode<ByteKeys, M>, writer: &mut Writer<Strings>, i: u64) {
    let done = writer.one_of(node, WriteKind::Insert, &key(i), RecordToken::default(), &i.to_le_bytes());
    assert_eq!(done.status, WriteStatus::Done, "key {i}");
    if i.is_multiple_of(32) {
        while node.work() == Work::More {}
    }
}

fn check<M: NodeMemory>(node: &mut MemoryNode<ByteKeys, M>, writer: &Writer<Strings>, keys: u64) {
    let audit = node.audit().expect("every byte is right").expect("a table");
    assert_eq!(audit.keys, keys);
    for i in 0..keys {
        let found = writer.get_of(node, &key(i)).map(|(value, _)| value);
        assert_eq!(found, Some(i.to_le_bytes().to_vec()), "key {i}");
    }
}

fn empty(capacity: usize) -> (MemoryNode<ByteKeys>, Arc<SharedMemory>) {
    let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
    let mut node = MemoryNode::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
    let none: [(Vec<u8>, [u8; 8]); 0] = [];
    node.load_records(parameters(32), Default::default(), none.into_iter()).expect("room");
    (node, region)
}

#[test]
fn a_table_that_began_empty_has_a_fraction_of_the_segments_once_it_has_learned() {
    const KEYS: u64 = 30_000;
    let segments = |learns: bool| {
        let (mut node, _) = empty(16 << 20);
        if !learns {
            node.retrain_at(u64::MAX);
        }
        let mut writer = Writer::<Strings>::new(1);
        (0..KEYS).for_each(|i| insert(&mut node, &mut writer, i));
        while node.work() == Work::More {}
        check(&mut node, &writer, KEYS);
        node.stats().segments
    };
    let (with, without) = (segments(true), segments(false));
    assert!(with * 3 < without, "{with} segments, {without} without learning");
}

#[test]
fn a_loaded_table_whose_coder_was_not_trained_learns_too() {
    let (mut records, capacity) = (BTreeMap::<Vec<u8>, [u8; 8]>::new(), 8 << 20);
    records.extend((0..10_000u64).map(|i| (key(i), i.to_le_bytes())));
    let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
    let mut node = MemoryNode::<ByteKeys>::new(region, 1, 0, Instant::now()).expect("a region");
    node.load_records(parameters(32), Default::default(), records.into_iter()).expect("room");
    let before = node.stats().segments;
    while node.work() == Work::More {}
    let after = node.stats().segments;
    assert!(after * 2 < before, "{after} segments, {before} before");
    check(&mut node, &Writer::new(1), 10_000);
}

#[test]
fn readers_go_on_while_a_table_learns() {
    let (mut node, region) = empty(16 << 20);
    node.retrain_at(3000);
    let hub = Hub::new(region, LocalOptions::default()).expect("a hub");
    let mut endpoint = hub.connect().expect("a connection").endpoint();
    let mut writer = Writer::<Strings>::new(1);
    (0..2900).for_each(|i| insert(&mut node, &mut writer, i));
    let options = TableOptions::plan(PlanChoice::Auto);
    let mut table = Table::<ByteKeys>::open(&mut endpoint, &options).expect("a table");
    let mut scratch = LookupScratch::new(Matcher::detect());
    for i in 2900..9000 {
        insert(&mut node, &mut writer, i);
        let wanted = [key(i), key(i / 2), key(1 << 40)];
        loop {
            let mut lookup = Lookup::new(&table, &mut scratch, wanted.iter().map(Borrow::borrow));
            if drive(&mut endpoint, &mut lookup).is_ok() {
                break;
            }
            match table.refreshed(&mut endpoint).expect("a table") {
                Refresh::Newer(newer) => table = newer,
                Refresh::Current | Refresh::Lost => panic!("it is as new as it gets, and out of date"),
            }
        }
        let found: Vec<_> = scratch.outcomes().map(|(_, value)| value.map(<[u8]>::to_vec)).collect();
        let value = |i: u64| Some(i.to_le_bytes().to_vec());
        assert_eq!(found, [value(i), value(i / 2), None]);
    }
    assert_eq!(
        table.view().encoders().len(),
        2,
        "it fetched the new encoder when it met a segment that has it"
    );
}

#[test]
fn the_process_and_the_machine_may_end_while_a_table_learns() {
    let small = TableParameters { epsilon: 4, max_slots: 64, ..parameters(4) };
    let (mut learned, mut stores) = (0, 1);
    while stores < 20_000 {
        for sync in [SyncPolicy::Interval(Duration::ZERO), SyncPolicy::Always] {
            let mut world = World::new(sync, stores);
            let (mut node, _) = world.begin::<Strings>();
            let mut records: Vec<_> = (0..600u64).map(|i| (key(i), i.to_le_bytes())).collect();
            records.sort();
            node.load_records(small, Default::default(), records.into_iter()).expect("room");
            let writer = Writer::<Strings>::new(5);
            node.retrain_at(100);
            world.left.store(stores, Ordering::Relaxed);
            while world.left.load(Ordering::Relaxed) > 0 && node.work() == Work::More {}
            drop(node);
            let (mut node, recovery) = world.begin::<Strings>();
            assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
            check(&mut node, &writer, 600);
            // What was begun is gone on with.
            while node.work() == Work::More {}
            check(&mut node, &writer, 600);
            let encoders = |node: &MemoryNode<ByteKeys, Mortal>| node.read(0, 512)[64 + 136];
            learned += u64::from(encoders(&node) > 0);
            drop(node);
            world.disk = world.disk.crash();
            world.region = Mortal::new(REGION, &world.left);
            world.recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &world.left);
            let (mut node, _) = world.begin::<Strings>();
            check(&mut node, &writer, 600);
        }
        stores += 1 + stores / 6;
    }
    assert!(learned > 10, "{learned}");
}
