//! Corners of recovery and durability in which writes were once lost, doubled or answered wrongly.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::requests::{Writer, batch, call, post, statuses, value};
use common::world::{Mortal, Node, REGION, RING, World, beginning, load, parameters};
use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Work};
use fpcache_memserver::durability::{Disk, MemoryDisk, SyncPolicy};
use fpcache_memserver::store::{Background, Memories, notes_bytes, restore, resume};
use fpcache_memserver::{MemoryNode, Recovery};

const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));

fn put(writer: &mut Writer, node: &mut impl Service, key: u64) -> WriteStatus {
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &[7; 8]).status
}

#[test]
fn an_operation_that_changes_nothing_behind_one_that_waits_is_not_decided_again() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin();
    load(&mut node, 10);
    let writes =
        [(WriteKind::Update, 0, [1; 8]), (WriteKind::Update, 3, [2; 8]), (WriteKind::Update, 100, [3; 8])];
    let batch = batch(&writes);
    assert_eq!(post(&mut node, ClientId(1), &batch.request(5, 1, false)).0, Handled::Later);
    drop(node);
    let (mut node, _) = world.begin();
    // Somebody else changes what the request had changed, before it is sent again.
    put(&mut Writer::new(6, 8), &mut node, 100);
    let done = Ok(vec![WriteStatus::Done, WriteStatus::Absent, WriteStatus::Done]);
    assert_eq!(statuses(&call(&mut node, &batch.request(5, 1, true))), done);
    let reader = Writer::new(9, 8);
    assert_eq!(reader.get(&mut node, 100).map(|(value, _)| value), Some(vec![7; 8]), "not done twice");
    drop(node);
    let (mut node, _) = world.begin();
    assert_eq!(statuses(&call(&mut node, &batch.request(5, 1, true))), done);
}

#[test]
fn a_client_whose_write_waits_for_the_disk_is_not_forgotten() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin();
    load(&mut node, 10);
    let write = batch(&[(WriteKind::Put, 3, [1; 8])]);
    assert_eq!(post(&mut node, ClientId(1), &write.request(5, 7, false)).0, Handled::Later);
    let nothing = batch(&[(WriteKind::Delete, 1, [0; 8])]);
    for client in 1000..2024 {
        let reply = call(&mut node, &nothing.request(client, 1, false));
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Absent]), "client {client}");
    }
    drop(node);
    let (mut node, _) = world.begin();
    let new = batch(&[(WriteKind::Put, 4, [4; 8])]);
    for client in 1000..2024 {
        let reply = call(&mut node, &new.request(client, 2, false));
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]), "client {client}");
    }
}

#[test]
fn a_beginning_that_ends_at_any_store_leaves_everything_for_the_next() {
    for stores in 0..60 {
        let mut world = World::new(HOURLY, 1);
        let (mut node, _) = world.begin();
        load(&mut node, 10);
        let mut writer = Writer::new(5, 8);
        assert_eq!(put(&mut writer, &mut node, 3), WriteStatus::Done);
        drop(node);
        world.lives += 1;
        (world.region, world.notes) = (world.region.heir(), world.notes.heir());
        world.disk = world.disk.restart();
        world.left.store(stores, Ordering::Relaxed);
        let beginning = beginning(world.sync, world.lives);
        let begun: Result<(Node, Recovery), _> =
            resume(world.memories(), world.disk.clone(), &beginning, Background::Inline);
        drop(begun);
        let (mut node, recovery) = world.begin();
        let found = writer.get(&mut node, 3).map(|(value, _)| value);
        assert_eq!(found, Some(vec![7; 8]), "after {stores} stores: {recovery}");
    }
}

#[test]
fn a_snapshot_counts_only_when_the_log_up_to_its_end_is_on_the_disk() {
    for seed in 0..6 {
        let mut world = World::new(HOURLY, seed);
        let (mut node, _) = world.begin();
        load(&mut node, 10);
        let mut writer = Writer::new(5, 8);
        (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
        drop(node);
        // Without a snapshot one is written at once, while more comes.
        world.disk = world.disk.restart();
        for name in world.disk.list().expect("a folder").iter().filter(|name| name.starts_with("snapshot")) {
            world.disk.clone().remove(name).expect("a file");
        }
        let (mut node, _) = world.begin();
        let snapshots = |world: &World| {
            let names = world.disk.list().expect("a folder");
            names.iter().filter(|name| name.starts_with("snapshot") && name.ends_with(".fps")).count()
        };
        while snapshots(&world) == 0 {
            node.work();
        }
        drop(node);
        world.disk = world.disk.crash();
        world.region = Mortal::new(REGION, &world.left);
        world.notes = Mortal::new(notes_bytes(RING) as usize, &world.left);
        let (mut node, _) = world.begin();
        assert!(writer.get(&mut node, 4).is_some(), "seed {seed}");
    }
}

#[test]
fn nothing_is_acknowledged_while_no_snapshot_can_complete_the_log() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin();
    world.disk.fill_up_after(0);
    let fill = |i: usize, out: &mut [u8]| out.copy_from_slice(&value(i as u64, 0, out.len()));
    let loaded = node.load(parameters(), (0..40u64).collect::<Vec<_>>().into_iter(), fill);
    assert!(loaded.is_err_and(|refusal| refusal.message.contains("space")));
    let mut writer = Writer::new(5, 8);
    assert_eq!(put(&mut writer, &mut node, 3), WriteStatus::NotDurable);
    world.disk.fill_up_after(u64::MAX);
    while put(&mut writer, &mut node, 3) == WriteStatus::NotDurable {
        node.work();
    }
    drop(node);
    world.disk = world.disk.crash();
    world.region = Mortal::new(REGION, &world.left);
    world.notes = Mortal::new(notes_bytes(RING) as usize, &world.left);
    let (mut node, _) = world.begin();
    assert_eq!(writer.get(&mut node, 3).map(|(value, _)| value), Some(vec![7; 8]));
}

#[test]
fn scans_go_on_while_an_insert_waits_for_a_full_disk() {
    use fpcache::read::{Scan, ScanScratch, drive};
    use fpcache_fabric::Connection;
    use fpcache_fabric::local::{Hub, LocalOptions};
    let region = Arc::new(SharedMemory::anonymous(REGION).expect("memory"));
    let notes = Arc::new(SharedMemory::anonymous(notes_bytes(RING) as usize).expect("memory"));
    let disk = MemoryDisk::new(3);
    let memories = Memories { region: Arc::clone(&region), notes };
    let beginning = beginning(SyncPolicy::Always, 1);
    let (mut node, _): (MemoryNode<U64Keys>, _) =
        restore(memories, disk.clone(), &beginning, Background::Inline, None).expect("an empty store");
    let fill = |i: usize, out: &mut [u8]| out.copy_from_slice(&value(i as u64, 0, out.len()));
    node.load(parameters(), (0..40u64).map(|i| i * 50).collect::<Vec<_>>().into_iter(), fill).expect("room");
    let hub = Hub::new(region, LocalOptions::default()).expect("a hub");
    let mut endpoint = hub.connect().expect("a connection").endpoint();
    disk.fill_up_after(0);
    let insert = batch(&[(WriteKind::Insert, 77, [1; 8])]);
    assert_eq!(post(&mut node, ClientId(1), &insert.request(5, 1, false)).0, Handled::Later);
    let snapshot = fpcache::snapshot::Snapshot::<U64Keys>::open(&mut endpoint).expect("a table");
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(&snapshot, &mut scratch, 0, 1000);
    drive(&mut endpoint, &mut scan).expect("reads go on");
    assert_eq!(scan.records().len(), 40);
}

#[test]
fn a_region_that_was_full_takes_records_again_after_deletes_and_after_another_beginning() {
    for seed in 1..7u64 {
        let mut world = World::new(SyncPolicy::Never, seed);
        let (mut node, _) = world.begin();
        let value_bytes = if seed.is_multiple_of(2) { 8 } else { 100 };
        let parameters =
            TableParameters { epsilon: 4, max_slots: 64, value_bytes, ..TableParameters::default() };
        node.load(parameters, Vec::new().into_iter(), |_, _| {}).expect("room");
        let mut writer = Writer::new(5, value_bytes);
        let value = vec![7; value_bytes as usize];
        let (mut x, mut full, mut keys) = (seed, 0, Vec::new());
        while full < 600 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match writer.one(&mut node, WriteKind::Insert, x >> 20, RecordToken::default(), &value).status {
                WriteStatus::NoRoom => full += 1,
                _ => keys.push(x >> 20),
            }
            if x.is_multiple_of(7) {
                while node.work() == Work::More {}
            }
        }
        drop(node);
        let (mut node, recovery) = world.begin();
        assert_eq!(recovery.keys, keys.len() as u64, "seed {seed}: {recovery}");
        for key in &keys {
            let gone = writer.one(&mut node, WriteKind::Delete, *key, RecordToken::default(), &[]);
            assert_eq!(gone.status, WriteStatus::Done);
        }
        let refused = keys.iter().step_by(2).filter(|key| {
            while node.work() == Work::More {}
            let again = writer.one(&mut node, WriteKind::Insert, **key, RecordToken::default(), &value);
            again.status != WriteStatus::Done
        });
        // Emptied segments keep their memory until they are rebuilt: now and then there is no room for that.
        assert!(refused.count() * 100 <= keys.len(), "seed {seed}");
        node.audit().expect("every byte is right");
    }
}
