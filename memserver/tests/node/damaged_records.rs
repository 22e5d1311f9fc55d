//! Records that are damaged in memory: nothing makes them valid again but a write of their key.

use crate::common::keys::Integers;
use crate::common::requests::{Writer, value};
use crate::common::world::{Mortal, Node, REGION, World, load};
use fpcache::layout::RecordToken;
use fpcache::message::WriteKind;
use fpcache_fabric::{NodeMemory, Service};
use fpcache_memserver::durability::{Disk, SyncPolicy};

/// The key whose record is damaged: one that is loaded, in the middle of the table.
const KEY: u64 = 25_000;

/// Flips the bits of a byte of the record's value; twice, and it is whole again.
fn flip(region: &Mortal, at: u64) {
    let mut byte = [0];
    region.read_bytes(at, &mut byte).expect("inside");
    region.write_bytes(at, &[!byte[0]]).expect("inside");
}

/// Where the record's value is.
fn place_of_value(region: &Mortal) -> u64 {
    let mut all = vec![0; REGION];
    region.read_bytes(0, &mut all).expect("all of it");
    let record =
        [KEY.to_le_bytes(), *value::<Integers>(KEY, 0, 8).first_chunk().expect("eight bytes")].concat();
    all.windows(16).position(|window| *window == record).expect("it lies somewhere") as u64 + 8
}

fn put(writer: &mut Writer<Integers>, node: &mut Node<Integers>, key: u64) -> Result<(), String> {
    let written =
        writer.try_one(node, WriteKind::Put, key, RecordToken::default(), &value::<Integers>(key, 1, 8));
    written.map(drop).map_err(|refusal| refusal.message)
}

#[test]
fn a_rebuild_does_not_make_a_damaged_record_valid() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 1000);
    let region = node.region().clone();
    flip(&region, place_of_value(&region));
    let mut writer = Writer::<Integers>::new(5);
    let around = || (KEY - 500..KEY + 500).filter(|key| key % 50 != 0);
    let refused: Vec<String> = around().filter_map(|key| put(&mut writer, &mut node, key).err()).collect();
    assert!(!refused.is_empty(), "no segment needed a rebuild");
    for why in refused {
        assert!(why.contains("slot") && why.contains("checksum"), "{why}");
    }
    let damage = node.audit().expect_err("a record is damaged").to_string();
    assert!(damage.contains("checksum"), "{damage}");
    for key in (1..2000).filter(|key| key % 50 != 0) {
        put(&mut writer, &mut node, key).expect("other segments are rebuilt");
    }
    put(&mut writer, &mut node, KEY).expect("the key has its slot");
    for key in around() {
        put(&mut writer, &mut node, key).expect("the record is whole");
    }
    node.audit().expect("every byte is right");
}

#[test]
fn a_snapshot_of_a_table_with_a_damaged_record_does_not_count() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 1000);
    // The next one is another file.
    put(&mut Writer::new(5), &mut node, 1).expect("room");
    let snapshots = |world: &World| {
        let names = world.disk.list().expect("a disk");
        names.into_iter().filter(|name| name.ends_with(".fps")).collect::<Vec<_>>()
    };
    let before = snapshots(&world);
    let region = node.region().clone();
    let at = place_of_value(&region);
    flip(&region, at);
    let mut take_one = || {
        node.begin_snapshot();
        for _ in 0..1000 {
            node.work();
        }
        snapshots(&world)
    };
    assert_eq!(take_one(), before, "it would hold the damage as if it had been written");
    flip(&region, at);
    assert_ne!(take_one(), before);
}
