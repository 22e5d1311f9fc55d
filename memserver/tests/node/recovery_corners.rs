//! Corners of recovery and durability in which writes were once lost, doubled or answered wrongly.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::keys::{Integers, Key, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, call, post, statuses, value};
use crate::common::world::{Mortal, Node, REGION, RING, World, load, lost, parameters, startup};
use crate::memory_disk::MemoryDisk;
use fpcache::key_space::KeySpace;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus, decode_reply};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Work};
use fpcache_memserver::durability::{Disk, SyncPolicy};
use fpcache_memserver::store::{Background, Memories, recovery_area_bytes, restore};
use fpcache_memserver::{MemoryNode, Origin, Recovery};

const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));

/// What [`put`] puts.
fn seven<T: TestKeys>(key: u64) -> Vec<u8> {
    value::<T>(key, 7, 8)
}

fn put<T: TestKeys>(writer: &mut Writer<T>, node: &mut impl Service, key: u64) -> WriteStatus {
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &seven::<T>(key)).status
}

/// Records of forty keys, so far apart.
fn records<T: TestKeys>(apart: u64) -> Vec<(Key<T>, Vec<u8>)> {
    (0..40).map(|i| (T::key(i * apart), value::<T>(i * apart, 0, 8))).collect()
}

fn an_operation_that_changes_nothing_after_one_that_waits_is_not_decided_again<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    let values = [0, 3, 100].map(|key| value::<T>(key, 1, 8));
    let batch = batch::<T>(&[
        (WriteKind::Update, 0, &values[0]),
        (WriteKind::Update, 3, &values[1]),
        (WriteKind::Update, 100, &values[2]),
    ]);
    assert_eq!(post::<T>(&mut node, ClientId(1), &batch.request(5, 1, false)).0, Handled::Later);
    drop(node);
    let (mut node, _) = world.begin::<T>();
    // Another client changes what the request had changed, before it is sent again.
    put(&mut Writer::<T>::new(6), &mut node, 100);
    let done = Ok(vec![WriteStatus::Done, WriteStatus::Absent, WriteStatus::Done]);
    assert_eq!(statuses(&call::<T>(&mut node, &batch.request(5, 1, true))), done);
    let reader = Writer::<T>::new(9);
    assert_eq!(reader.get(&mut node, 100).map(|(value, _)| value), Some(seven::<T>(100)), "not done twice");
    drop(node);
    let (mut node, _) = world.begin::<T>();
    assert_eq!(statuses(&call::<T>(&mut node, &batch.request(5, 1, true))), done);
}

fn a_client_whose_write_waits_for_the_disk_is_not_forgotten<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    let write = batch::<T>(&[(WriteKind::Put, 3, &value::<T>(3, 1, 8))]);
    assert_eq!(post::<T>(&mut node, ClientId(1), &write.request(5, 7, false)).0, Handled::Later);
    let nothing = batch::<T>(&[(WriteKind::Delete, 1, &[])]);
    for client in 1000..2024 {
        let reply = call::<T>(&mut node, &nothing.request(client, 1, false));
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Absent]), "client {client}");
    }
    drop(node);
    let (mut node, _) = world.begin::<T>();
    let new = batch::<T>(&[(WriteKind::Put, 4, &value::<T>(4, 4, 8))]);
    for client in 1000..2024 {
        let reply = call::<T>(&mut node, &new.request(client, 2, false));
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]), "client {client}");
    }
}

fn a_beginning_that_ends_at_any_store_leaves_everything_for_the_next<T: TestKeys>() {
    for stores in 0..60 {
        let mut world = World::new(HOURLY, 1);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        let mut writer = Writer::<T>::new(5);
        assert_eq!(put(&mut writer, &mut node, 3), WriteStatus::Done);
        drop(node);
        world.begin_and_end_after::<T>(stores);
        let (mut node, recovery) = world.begin::<T>();
        let found = writer.get(&mut node, 3).map(|(value, _)| value);
        assert_eq!(found, Some(seven::<T>(3)), "after {stores} stores: {recovery}");
    }
}

fn a_snapshot_counts_only_when_the_log_up_to_its_end_is_on_the_disk<T: TestKeys>() {
    for seed in 0..6 {
        let mut world = World::new(HOURLY, seed);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        let mut writer = Writer::<T>::new(5);
        (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
        drop(node);
        // Without a snapshot one is written at once, while more comes.
        world.disk = world.disk.restart();
        for name in world.disk.list().expect("a folder").iter().filter(|name| name.starts_with("snapshot")) {
            world.disk.clone().remove(name).expect("a file");
        }
        let (mut node, _) = world.begin::<T>();
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
        world.recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &world.left);
        let (mut node, _) = world.begin::<T>();
        assert!(writer.get(&mut node, 4).is_some(), "seed {seed}");
    }
}

fn nothing_is_acknowledged_while_no_snapshot_can_complete_the_log<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    world.disk.fill_up_after(0);
    let loaded = node.load_records(parameters::<T>(), T::encoders(), records::<T>(1).into_iter());
    assert!(loaded.is_err_and(|refusal| refusal.message.contains("space")));
    let mut writer = Writer::<T>::new(5);
    assert_eq!(put(&mut writer, &mut node, 3), WriteStatus::NotDurable);
    world.disk.fill_up_after(u64::MAX);
    while put(&mut writer, &mut node, 3) == WriteStatus::NotDurable {
        node.work();
    }
    drop(node);
    world.disk = world.disk.crash();
    world.region = Mortal::new(REGION, &world.left);
    world.recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &world.left);
    let (mut node, _) = world.begin::<T>();
    assert_eq!(writer.get(&mut node, 3).map(|(value, _)| value), Some(seven::<T>(3)));
}

fn scans_go_on_while_an_insert_waits_for_a_full_disk<T: TestKeys>() {
    use fpcache::read::{Scan, ScanScratch, drive};
    use fpcache_fabric::Connection;
    use fpcache_fabric::local::{Hub, LocalOptions};
    let region = Arc::new(SharedMemory::anonymous(REGION).expect("memory"));
    let recovery_area =
        Arc::new(SharedMemory::anonymous(recovery_area_bytes(RING) as usize).expect("memory"));
    let disk = MemoryDisk::new(3);
    let memories = Memories::new(Arc::clone(&region), recovery_area);
    let startup = startup(SyncPolicy::Always, 1);
    let (mut node, _): (MemoryNode<T::Space>, _) =
        restore(memories, disk.clone(), &startup, Background::Inline, None).expect("an empty store");
    node.load_records(parameters::<T>(), T::encoders(), records::<T>(50).into_iter()).expect("room");
    let hub = Hub::new(region, LocalOptions::default()).expect("a hub");
    let mut endpoint = hub.connect().expect("a connection").endpoint();
    disk.fill_up_after(0);
    let insert = batch::<T>(&[(WriteKind::Insert, 77, &value::<T>(77, 1, 8))]);
    assert_eq!(post::<T>(&mut node, ClientId(1), &insert.request(5, 1, false)).0, Handled::Later);
    let snapshot = fpcache::table_view::TableView::<T::Space>::open(&mut endpoint).expect("a table");
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(&snapshot, &mut scratch, T::Space::lowest(), 1000);
    drive(&mut endpoint, &mut scan).expect("reads go on");
    assert_eq!(scan.records().len(), 40);
}

fn a_region_that_was_full_takes_records_again_after_deletes_and_after_another_beginning<T: TestKeys>() {
    for seed in 1..7u64 {
        let mut world = World::new(SyncPolicy::Never, seed);
        let (mut node, _) = world.begin::<T>();
        let value_bytes = if seed.is_multiple_of(2) { 8 } else { 100 };
        let parameters = TableParameters { epsilon: 4, max_slots: 64, ..T::parameters(value_bytes) };
        let none: [(Key<T>, Vec<u8>); 0] = [];
        node.load_records(parameters, T::encoders(), none.into_iter()).expect("room");
        let mut writer = Writer::<T>::new(5);
        let value = |key| value::<T>(key, 7, value_bytes as usize);
        let (mut x, mut full, mut keys) = (seed, 0, Vec::new());
        while full < 600 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let inserted =
                writer.one(&mut node, WriteKind::Insert, x >> 20, RecordToken::default(), &value(x >> 20));
            match inserted.status {
                WriteStatus::NoRoom => full += 1,
                _ => keys.push(x >> 20),
            }
            if x.is_multiple_of(7) {
                while node.work() == Work::More {}
            }
        }
        drop(node);
        let (mut node, recovery) = world.begin::<T>();
        assert_eq!(recovery.keys, keys.len() as u64, "seed {seed}: {recovery}");
        for key in &keys {
            let gone = writer.one(&mut node, WriteKind::Delete, *key, RecordToken::default(), &[]);
            assert_eq!(gone.status, WriteStatus::Done);
        }
        let refused = keys.iter().step_by(2).filter(|key| {
            while node.work() == Work::More {}
            let again =
                writer.one(&mut node, WriteKind::Insert, **key, RecordToken::default(), &value(**key));
            again.status != WriteStatus::Done
        });
        // Emptied segments keep their memory until they are rebuilt: now and then there is no room
        // for that.
        assert!(refused.count() * 100 <= keys.len(), "seed {seed}");
        node.audit().expect("every byte is right");
    }
}

/// The memory is gone, the machine goes on: the log's last file is read from the operating system's
/// memory. The sync that fails loses it for the disk, and the next one would say that all is well.
fn a_start_whose_sync_of_the_log_fails_is_known_to_the_next<T: TestKeys>() {
    for seed in 0..5 {
        let mut world = World::new(HOURLY, seed);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        let mut writer = Writer::<T>::new(5);
        (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
        node.work();
        drop(node);
        world.disk = world.disk.restart();
        (world.region, world.recovery_area) = lost(&world.left);
        world.disk.fail_syncs(1);
        let begun =
            restore(world.memories(), world.disk.clone(), &startup(HOURLY, 9), Background::Inline, None);
        let begun: Result<(Node<T>, Recovery), _> = begun;
        assert!(begun.is_err_and(|why| why.to_string().contains("syncing")), "seed {seed}");
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, _) = world.begin::<T>();
        let seen = [0, 1, 2, 3, 4].map(|key| writer.get(&mut node, key).is_some());
        assert_eq!(seen, [true; 5], "seed {seed}");
        drop(node);
        world.disk = world.disk.crash();
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, _) = world.begin::<T>();
        let left = [0, 1, 2, 3, 4].map(|key| writer.get(&mut node, key).is_some());
        assert_eq!(left, seen, "seed {seed}: what was there to be read was on the disk");
    }
}

/// The memory of the process before is half gone, as when the folder for regions is another: what
/// was acknowledged is in the recovery area, and not yet on the disk.
fn what_only_the_ring_has_outlives_the_region<T: TestKeys>() {
    for seed in 0..5 {
        let mut world = World::new(HOURLY, seed);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        let mut writer = Writer::<T>::new(5);
        (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
        drop(node);
        world.region = Mortal::new(REGION, &world.left);
        let (mut node, recovery) = world.begin::<T>();
        let found = [0, 1, 2, 3, 4].map(|key| writer.get(&mut node, key).map(|(value, _)| value));
        assert_eq!(found, [0, 1, 2, 3, 4].map(|key| Some(seven::<T>(key))), "seed {seed}: {recovery}");
    }
}

fn work(node: &mut impl Service, rounds: usize) {
    for _ in 0..rounds {
        node.work();
    }
}

fn a_restart_on_a_full_disk_serves_reads<T: TestKeys>() {
    for machine_ends in [false, true] {
        let mut world = World::new(SyncPolicy::Always, 1);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        let mut writer = Writer::<T>::new(5);
        assert_eq!(put(&mut writer, &mut node, 3), WriteStatus::Done);
        drop(node);
        if machine_ends {
            world.disk = world.disk.crash();
            world.boot = [4; 16];
        }
        world.disk.fill_up_after(0);
        let (mut node, recovery) = world.begin::<T>();
        assert_eq!(matches!(recovery.origin, Origin::Disk { .. }), machine_ends, "{recovery}");
        assert_eq!(writer.get(&mut node, 3).map(|(value, _)| value), Some(seven::<T>(3)));
        assert_eq!(put(&mut writer, &mut node, 4), WriteStatus::NotDurable);
        work(&mut node, 10);
        assert_eq!(writer.get(&mut node, 4), None);
        world.disk.fill_up_after(u64::MAX);
        work(&mut node, 10);
        assert_eq!(put(&mut writer, &mut node, 4), WriteStatus::Done);
        drop(node);
        world.disk = world.disk.crash();
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, _) = world.begin::<T>();
        assert_eq!([3, 4].map(|key| writer.get(&mut node, key).is_some()), [true; 2]);
    }
}

fn entries_that_the_disk_lost_are_made_up_for_by_the_next_process<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Never, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    let mut writer = Writer::<T>::new(5);
    (0..5).for_each(|key| assert_eq!(put(&mut writer, &mut node, key), WriteStatus::Done));
    node.work();
    // A snapshot has the log synced.
    world.disk.fail_syncs(1);
    node.begin_snapshot();
    while put(&mut writer, &mut node, 6) == WriteStatus::Done {
        node.work();
    }
    // The log goes on after what was lost; the process ends before there is another snapshot.
    world.disk.fill_up_after(400);
    work(&mut node, 3);
    drop(node);
    world.disk.fill_up_after(u64::MAX);
    let (mut node, recovery) = world.begin::<T>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(put(&mut writer, &mut node, 7), WriteStatus::NotDurable, "it would follow a gap");
    while put(&mut writer, &mut node, 7) == WriteStatus::NotDurable {
        node.work();
    }
    while node.stats().synced < node.stats().logged {
        node.begin_snapshot();
        node.work();
    }
    drop(node);
    world.disk = world.disk.crash();
    (world.region, world.recovery_area) = lost(&world.left);
    let (mut node, recovery) = world.begin::<T>();
    let there = [0, 1, 2, 3, 4, 7].map(|key| writer.get(&mut node, key).is_some());
    assert_eq!(there, [true; 6], "{recovery}");
}

fn what_an_unfinished_snapshot_left_is_removed_at_every_start<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    drop(node);
    let left = "snapshot-0000000000000042.fps.tmp";
    world.disk = world.disk.restart();
    world.disk.clone().create(left).expect("a folder");
    let (_node, recovery) = world.begin::<T>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert!(world.disk.list().expect("a folder").iter().all(|name| name != left));
}

/// Of a long value the pieces are written down before its mutation. Those whose mutation never was
/// stayed to be done: after some such ends, snapshots had taken the files away that have them, and
/// no process could go on with the memory any more.
#[test]
fn processes_that_end_within_values_leave_nothing_to_be_done_for_ever() {
    // The first end is just after the piece; the others are tried.
    for stores in (200..420).step_by(8) {
        let mut world = World::new(SyncPolicy::Always, 1);
        let (mut node, _) = world.begin::<LongValues>();
        load::<LongValues>(&mut node, 10);
        for life in 0..5 {
            let write = batch::<LongValues>(&[(WriteKind::Put, 4, &[7; 1000])]);
            world.left.store(if life == 0 { 380 } else { stores }, Ordering::Relaxed);
            post::<LongValues>(&mut node, ClientId(1), &write.request(life, 1, false));
            drop(node);
            node = world.begin::<LongValues>().0;
            node.begin_snapshot();
            work(&mut node, 40);
        }
        assert!(Writer::<LongValues>::new(8).get(&mut node, 450).is_some(), "after {stores} stores");
    }
}

/// What was loaded and not written to afterwards is in the snapshot alone.
fn a_load_whose_snapshot_cannot_be_read_does_not_come_back_empty<T: TestKeys>() {
    const SNAPSHOT: &str = "snapshot-0000000000000001.fps";
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    drop(node);
    world.disk = world.disk.crash();
    let middle = world.disk.len(SNAPSHOT).expect("the load's snapshot") as usize / 2;
    let start = |world: &mut World| {
        world.disk = world.disk.restart();
        (world.region, world.recovery_area) = lost(&world.left);
        let startup = startup(world.sync, 9);
        restore(world.memories(), world.disk.clone(), &startup, Background::Inline, None)
            .map(|(node, _): (Node<T>, Recovery)| node)
            .map_err(|error| error.to_string())
    };
    world.disk.flip(SNAPSHOT, middle, 1).expect("a byte");
    let error = start(&mut world).map(|node| node.stats().keys).expect_err("ten keys are missing");
    for part in [SNAPSHOT, "damaged at offset", "restore", "the log holds no entries"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    world.disk.flip(SNAPSHOT, middle, 1).expect("a byte");
    assert_eq!(start(&mut world).map(|node| node.stats().keys), Ok(10));
    // Without any file of it, the log tells that there was one: it does not begin with entry 1.
    let mut node = start(&mut world).expect("ten keys");
    assert_eq!(put(&mut Writer::<T>::new(5), &mut node, 3), WriteStatus::Done);
    drop(node);
    let mut node = start(&mut world).expect("eleven keys");
    node.begin_snapshot();
    work(&mut node, 40);
    drop(node);
    world.disk = world.disk.restart();
    for name in world.disk.list().expect("a folder") {
        let is_later = name != "log-0000000000000001.fpl" && name.starts_with("log-");
        if !is_later {
            world.disk.remove(&name).expect("a file");
        }
    }
    let error = start(&mut world).map(|node| node.stats().keys).expect_err("all keys are missing");
    assert!(error.contains("no intact snapshot"), "{error}");
}

for_all_keys_and_long_values!(
    a_load_whose_snapshot_cannot_be_read_does_not_come_back_empty,
    a_restart_on_a_full_disk_serves_reads,
    a_start_whose_sync_of_the_log_fails_is_known_to_the_next,
    what_only_the_ring_has_outlives_the_region,
    entries_that_the_disk_lost_are_made_up_for_by_the_next_process,
    what_an_unfinished_snapshot_left_is_removed_at_every_start,
    an_operation_that_changes_nothing_after_one_that_waits_is_not_decided_again,
    a_client_whose_write_waits_for_the_disk_is_not_forgotten,
    a_beginning_that_ends_at_any_store_leaves_everything_for_the_next,
    a_snapshot_counts_only_when_the_log_up_to_its_end_is_on_the_disk,
    nothing_is_acknowledged_while_no_snapshot_can_complete_the_log,
    scans_go_on_while_an_insert_waits_for_a_full_disk,
    a_region_that_was_full_takes_records_again_after_deletes_and_after_another_beginning,
);

/// The replies of a thousand operations each are too many to be kept of all clients; the recovery
/// area has them.
#[test]
fn a_durable_table_answers_what_comes_again_though_it_has_let_the_replies_go() {
    let mut world = World::new(HOURLY, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let seven = seven::<Integers>(3);
    let insert = batch::<Integers>(&[(WriteKind::Insert, 3, &seven)]);
    let deletes = batch::<Integers>(&[(WriteKind::Delete, 7, &[][..]); 1024]);
    let done = Ok(vec![WriteStatus::Done]);
    assert_eq!(statuses(&call::<Integers>(&mut node, &insert.request(5, 1, false))), done);
    for client in 100..300 {
        decode_reply(&call::<Integers>(&mut node, &deletes.request(client, 1, false))).expect("answered");
    }
    assert_eq!(statuses(&call::<Integers>(&mut node, &insert.request(5, 1, true))), done, "not `Exists`");
    drop(node);
    let (mut node, _) = world.begin::<Integers>();
    assert_eq!(statuses(&call::<Integers>(&mut node, &insert.request(5, 1, true))), done, "nor afterwards");
    let again = call::<Integers>(&mut node, &deletes.request(100, 1, true));
    assert_eq!(statuses(&again), Ok(vec![WriteStatus::Absent; 1024]));
}
