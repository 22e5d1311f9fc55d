//! Tables of groups that are damaged in memory, and inserts beside them.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fpcache::key_space::U64Keys;
use fpcache::layout::{Grouping, RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache::read::ReadError;
use fpcache_fabric::{NodeMemory, Service, SharedMemory};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::{MemoryNode, Origin};

use crate::common::damage::KEY;
use crate::common::keys::{Integers, TestKeys};
use crate::common::requests::{Writer, value};
use crate::common::world::{Mortal, World, load_with, loaded, parameters};
use crate::common::{Fixture, GROUPS, scattered};

/// Readers keep tables as they were: what is inserted by one that has been damaged since would lie
/// where they do not look.
#[test]
fn what_is_inserted_beside_a_damaged_table_is_found_by_readers_who_have_it_whole() {
    let mut inserted = 0;
    for (grouping, bit) in [Grouping::plain(4, 5), Grouping::seeded(2, 5), Grouping::pilots(8, 3)]
        .into_iter()
        .flat_map(|grouping| (0..64).map(move |bit| (grouping, bit)))
    {
        let parameters = TableParameters { epsilon: 4, groups: Some(grouping), ..TableParameters::default() };
        let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
        let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
        let keys = scattered(120);
        node.load_records(parameters, (), keys.iter().map(|key| (*key, key.to_le_bytes()))).unwrap();
        let f = Fixture::<Integers>::over(region, keys, parameters);
        let mut reader = f.reader(GROUPS[0]);
        f.keys.iter().for_each(|key| assert!(reader.get(*key).unwrap().is_some()));
        let view = f.open().unwrap();
        let (_, segment) = view.models().resident().unwrap().iter().next().unwrap();
        let (geometry, cap) = (f.geometry(), segment.model().cap);
        let offset = segment.address().offset() + geometry.table_offset(cap) as u64;
        let len = geometry.table_bytes(cap);
        // Of separators, seeds and pilots.
        let at = offset + 8 + bit / 8 % (len as u64 - 8);
        f.region.write_bytes(at, &[f.bytes(at, 1)[0] ^ 1 << (bit % 8)]).unwrap();
        let mut writer = Writer::<Integers>::new(1);
        for key in f.keys.windows(2).take(40).map(|pair| pair[0] + 1).filter(|key| !f.keys.contains(key)) {
            let value = key.to_le_bytes();
            let reply = writer.one(&mut node, WriteKind::Insert, key, RecordToken::default(), &value);
            assert_eq!(reply.status, WriteStatus::Done);
            inserted += 1;
            let found = reader.get(key);
            // Who reads of a segment that was replaced opens the table anew.
            let is_right = matches!(found, Err(ReadError::Stale) | Ok(Some(_)));
            assert!(is_right, "{grouping:?}, bit {bit}, key {key}: {found:?}");
        }
        node.audit().expect("the segment was replaced");
    }
    assert!(inserted > 5000);
}

/// The records are whole, and a new segment has a new table.
#[test]
fn a_memory_node_starts_beside_a_damaged_table_and_replaces_the_segment() {
    let groupings = [Grouping::plain(4, 5), Grouping::seeded(2, 5), Grouping::pilots(8, 3)];
    for (grouping, byte) in
        groupings.into_iter().flat_map(|grouping| [0, 1, 8, 11].map(|byte| (grouping, byte)))
    {
        let mut world = World::new(SyncPolicy::Always, 1);
        let (mut node, _) = world.begin::<Integers>();
        let parameters = TableParameters { groups: Some(grouping), ..parameters::<Integers>() };
        load_with::<Integers>(&mut node, 1000, parameters);
        let at = node.segment_of(Integers::key(KEY).borrow()).expect("it was loaded").table.start + byte;
        let mut damaged = [0];
        node.region().read_bytes(at, &mut damaged).expect("inside");
        node.region().write_bytes(at, &[damaged[0] ^ 1]).expect("inside");
        drop(node);
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(recovery.keys, 1000, "{grouping:?}, byte {byte}");
        (0..100).for_each(|_| _ = node.work());
        node.audit().expect("the segment was replaced");
        let writer = Writer::<Integers>::new(1);
        for key in loaded::<Integers>(1000).into_keys() {
            let found = writer.get(&mut node, key).map(|(value, _)| value);
            assert_eq!(found, Some(value::<Integers>(key, 0, 8)), "{grouping:?}, byte {byte}, key {key}");
        }
    }
}

/// Its slot was chosen by the table as it was, by which readers go who have it.
#[test]
fn what_a_start_redoes_beside_a_damaged_table_is_found_by_readers_who_have_it_whole() {
    let mut world = World::new(SyncPolicy::Never, 1);
    let (mut node, _) = world.begin::<Integers>();
    let parameters = TableParameters { groups: Some(Grouping::pilots(8, 3)), ..parameters::<Integers>() };
    load_with::<Integers>(&mut node, 100, parameters);
    let (mut redone, mut writer) = (0, Writer::<Integers>::new(1));
    for n in 0..400 {
        let key = 2_000 + 50 * (n % 12) + n / 12 + 1;
        (0..100).for_each(|_| _ = node.work());
        let table = node.segment_of(&key).expect("it was loaded").table;
        world.left.store(n % 40, Ordering::Relaxed);
        let value = value::<Integers>(key, 0, 8);
        writer.one(&mut node, WriteKind::Put, key, RecordToken::default(), &value);
        drop(node);
        world.left.store(u64::MAX, Ordering::Relaxed);
        world.region = world.region.heir();
        let flip = |region: &Mortal| {
            let mut pilots = vec![0; (table.end - table.start - 8) as usize];
            region.read_bytes(table.start + 8, &mut pilots).expect("inside");
            pilots.iter_mut().for_each(|byte| *byte ^= 0x55);
            region.write_bytes(table.start + 8, &pilots).expect("inside");
        };
        flip(&world.region);
        let recovery;
        (node, recovery) = world.begin::<Integers>();
        let Origin::Memory { redone: now, .. } = recovery.origin else { panic!("only its process ended") };
        redone += now;
        // The slots that are marked have to be so by the table as it was.
        flip(&world.region);
        node.audit().expect("every byte is right");
    }
    assert!(redone > 30, "{redone}");
}
