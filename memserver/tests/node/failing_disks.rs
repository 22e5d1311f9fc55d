//! Starts on disks that are full, fail, or failed before: nothing that was acknowledged may be lost
//! by them.

use std::time::Duration;

use crate::common::keys::TestKeys;
use crate::common::requests::{Writer, batch, post, value};
use crate::common::world::{Mortal, Node, REGION, World, load, lost};
use fpcache::layout::RecordToken;
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Service};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::UNKNOWN_BOOT;
use fpcache_memserver::{Origin, RecoverError};

const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));

fn put<T: TestKeys>(writer: &mut Writer<T>, node: &mut Node<T>, key: u64) -> WriteStatus {
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &value::<T>(key, 7, 8)).status
}

/// Which of these keys are there.
fn there<T: TestKeys>(node: &mut Node<T>, keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let reader = Writer::<T>::new(9);
    keys.into_iter().filter(|key| reader.get(node, *key).is_some()).collect()
}

/// A world with ten keys, 0, 50, …, and a node in it.
fn loaded<T: TestKeys>(sync: SyncPolicy, seed: u64) -> (World, Node<T>) {
    let mut world = World::new(sync, seed);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    (world, node)
}

fn put_all<T: TestKeys>(node: &mut Node<T>, client: u64, keys: impl IntoIterator<Item = u64>) {
    let mut writer = Writer::<T>::new(client);
    keys.into_iter().for_each(|key| assert_eq!(put::<T>(&mut writer, node, key), WriteStatus::Done, "{key}"));
}

/// Puts a key until that is acknowledged.
fn put_at_last<T: TestKeys>(node: &mut Node<T>, client: u64, key: u64) {
    let mut writer = Writer::<T>::new(client);
    let acknowledged = (0..1000).any(|_| {
        node.work();
        put::<T>(&mut writer, node, key) == WriteStatus::Done
    });
    assert!(acknowledged, "{key}");
}

fn bring_all_to_disk<T: TestKeys>(node: &mut Node<T>) {
    while node.stats().synced < node.stats().logged {
        node.work();
    }
}

fn lose_region(world: &mut World) {
    world.region = Mortal::new(REGION, &world.left);
}

fn crash(world: &mut World) {
    world.disk = world.disk.crash();
    (world.region, world.recovery_area) = lost(&world.left);
}

/// The region is gone, and what only the recovery area has does not get to the disk: the start made
/// a new recovery area in its place.
fn a_start_that_cannot_bring_the_rings_entries_to_the_disk_leaves_them_there<T: TestKeys>() {
    for is_full in [true, false] {
        let (mut world, mut node) = loaded::<T>(HOURLY, 1);
        put_all::<T>(&mut node, 5, 1..6);
        drop(node);
        lose_region(&mut world);
        for _ in 0..2 {
            if is_full {
                world.disk.fill_up_after(0);
            } else {
                world.disk.fail_syncs(1);
            }
            let Err(error) = world.try_begin::<T>() else { panic!("the disk takes nothing") };
            assert!(matches!(&error, RecoverError::OnlyInRing { first: 1, last: 5.., .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("notes.fpn") && text.contains("make room"), "{text}");
        }
        world.disk.fill_up_after(u64::MAX);
        let (mut node, recovery) = world.begin::<T>();
        assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
        assert_eq!(there::<T>(&mut node, 1..6), [1, 2, 3, 4, 5], "{recovery}");
    }
}

fn a_start_on_a_full_disk_that_has_all_of_the_ring_reads_it<T: TestKeys>() {
    for sync in [SyncPolicy::Always, HOURLY] {
        let (mut world, mut node) = loaded::<T>(sync, 1);
        put_all::<T>(&mut node, 5, 1..6);
        // With an interval they are in the file, and not synced.
        node.work();
        drop(node);
        lose_region(&mut world);
        world.disk.fill_up_after(0);
        let (mut node, recovery) = world.begin::<T>();
        assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
        assert_eq!(there::<T>(&mut node, 1..6), [1, 2, 3, 4, 5], "{sync}");
    }
}

/// The machine's starts are not told apart, so that only the disk counts. A write's sync fails, the
/// process ends before it tries again, and the next one reads the write: the disk would say that it
/// has it, and be wrong.
fn a_file_whose_sync_failed_is_not_trusted_by_a_start_without_the_ring<T: TestKeys>() {
    for (seed, is_full) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(SyncPolicy::Always, seed);
        world.boot = UNKNOWN_BOOT;
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 10);
        put_all::<T>(&mut node, 5, 1..6);
        world.disk.fail_syncs(1);
        let write = batch::<T>(&[(WriteKind::Put, 6, &value::<T>(6, 7, 8))]);
        post::<T>(&mut node, ClientId(1), &write.request(77, 1, false));
        node.work();
        assert_eq!(node.stats().log_fails, 1);
        drop(node);
        if is_full {
            // For a copy of the file there is no room.
            world.disk.fill_up_after(0);
        }
        let (mut node, _) = world.begin::<T>();
        assert_eq!(there::<T>(&mut node, 1..6), [1, 2, 3, 4, 5]);
        let seen = there::<T>(&mut node, 6..7);
        world.disk.fill_up_after(u64::MAX);
        (7..12).for_each(|key| put_at_last::<T>(&mut node, 100 + key, key));
        bring_all_to_disk::<T>(&mut node);
        drop(node);
        crash(&mut world);
        let (mut node, recovery) = world.begin::<T>();
        assert_eq!(
            there::<T>(&mut node, 7..12),
            [7, 8, 9, 10, 11],
            "seed {seed}, full {is_full}: {recovery}"
        );
        assert_eq!(there::<T>(&mut node, 6..7), seen, "seed {seed}, full {is_full}: {recovery}");
    }
}

/// What a policy lost that promises nothing is a gap in the log. That outlives the recovery area it
/// was noted in, also where the start that replaces that area fails.
fn a_gap_in_the_log_is_known_to_a_start_without_the_region<T: TestKeys>() {
    for (seed, fails) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (mut world, mut node) = loaded::<T>(SyncPolicy::Never, seed);
        put_all::<T>(&mut node, 5, 1..6);
        node.work();
        // A snapshot has the log synced.
        world.disk.fail_syncs(1);
        node.begin_snapshot();
        let mut writer = Writer::<T>::new(6);
        while put::<T>(&mut writer, &mut node, 6) == WriteStatus::Done {
            node.work();
        }
        drop(node);
        lose_region(&mut world);
        world.sync = SyncPolicy::Always;
        if fails {
            // What only the ring has gets to the disk with two syncs of files, and one of the
            // folder.
            world.disk.fail_syncs_after(3, 1);
            assert!(world.try_begin::<T>().is_err(), "seed {seed}");
        }
        let (mut node, recovery) = world.begin::<T>();
        let acknowledged = put::<T>(&mut Writer::<T>::new(7), &mut node, 7);
        assert_eq!(acknowledged, WriteStatus::NotDurable, "seed {seed}: it would follow a gap: {recovery}");
        put_at_last::<T>(&mut node, 8, 8);
        bring_all_to_disk::<T>(&mut node);
        drop(node);
        crash(&mut world);
        let (mut node, recovery) = world.begin::<T>();
        assert_eq!(there::<T>(&mut node, [1, 2, 3, 4, 5, 8]), [1, 2, 3, 4, 5, 8], "seed {seed}: {recovery}");
    }
}

/// A file system that went away and came back in the same start of the machine: files are as they
/// were when it last wrote them, and nothing in the region tells.
fn memory_that_is_older_than_the_log_is_not_gone_on_with<T: TestKeys>() {
    let (mut world, mut node) = loaded::<T>(SyncPolicy::Always, 1);
    put_all::<T>(&mut node, 5, 1..6);
    let (region, recovery_area) = (world.region.heir(), world.recovery_area.heir());
    put_all::<T>(&mut node, 6, 6..12);
    drop(node);
    (world.region, world.recovery_area) = (region, recovery_area);
    let (mut node, recovery) = world.begin::<T>();
    assert!(recovery.to_string().contains("older than they are"), "{recovery}");
    assert_eq!(there::<T>(&mut node, 1..12), (1..12).collect::<Vec<_>>(), "{recovery}");
    put_all::<T>(&mut node, 7, 12..13);
    drop(node);
    // Memory that is not older is gone on with.
    let (mut node, recovery) = world.begin::<T>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(there::<T>(&mut node, 1..13).len(), 12);
}

/// It had all entries that the log's files have, but not given back those before an empty last file,
/// and the start was refused: files were said to be missing.
fn memory_that_is_older_than_an_empty_file_of_the_log_is_not_gone_on_with<T: TestKeys>() {
    let (mut world, mut node) = loaded::<T>(HOURLY, 1);
    put_all::<T>(&mut node, 5, 1..6);
    let (region, recovery_area) = (world.region.heir(), world.recovery_area.heir());
    drop(node);
    // The first start brings the entries to the disk, and the second one begins an empty file.
    world.sync = SyncPolicy::Always;
    let (mut node, _) = world.begin::<T>();
    bring_all_to_disk::<T>(&mut node);
    drop(node);
    drop(world.begin::<T>());
    (world.region, world.recovery_area) = (region, recovery_area);
    let (mut node, recovery) = world.begin::<T>();
    assert!(recovery.to_string().contains("older than they are"), "{recovery}");
    assert_eq!(there::<T>(&mut node, 1..6), [1, 2, 3, 4, 5], "{recovery}");
    put_all::<T>(&mut node, 7, 6..7);
}

/// Network file systems, quotas and delayed allocation tell so late that there is no room.
fn a_sync_that_says_that_the_disk_is_full_closes_no_table<T: TestKeys>() {
    for (sync, succeed) in
        [HOURLY, SyncPolicy::Never].into_iter().flat_map(|sync| [0, 1, 2, 3].map(|n| (sync, n)))
    {
        let (mut world, mut node) = loaded::<T>(sync, succeed);
        put_all::<T>(&mut node, 5, 1..6);
        if sync == SyncPolicy::Never {
            // Written, and given back.
            node.work();
            put_all::<T>(&mut node, 6, 6..8);
        }
        drop(node);
        world.disk.fill_up_at_sync(succeed as u32, 100);
        let (mut node, recovery) = world.begin::<T>();
        assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
        assert_eq!(there::<T>(&mut node, 1..6), [1, 2, 3, 4, 5], "{sync} {succeed}");
        world.disk.fail_syncs(0);
        put_at_last::<T>(&mut node, 7, 9);
        node.begin_snapshot();
        (0..50).for_each(|_| _ = node.work());
        bring_all_to_disk::<T>(&mut node);
        drop(node);
        crash(&mut world);
        let (mut node, recovery) = world.begin::<T>();
        assert_eq!(
            there::<T>(&mut node, [1, 2, 3, 4, 5, 9]),
            [1, 2, 3, 4, 5, 9],
            "{sync} {succeed}: {recovery}"
        );
    }
}

for_all_keys_and_long_values!(
    a_start_that_cannot_bring_the_rings_entries_to_the_disk_leaves_them_there,
    a_start_on_a_full_disk_that_has_all_of_the_ring_reads_it,
    a_file_whose_sync_failed_is_not_trusted_by_a_start_without_the_ring,
    a_gap_in_the_log_is_known_to_a_start_without_the_region,
    memory_that_is_older_than_the_log_is_not_gone_on_with,
    memory_that_is_older_than_an_empty_file_of_the_log_is_not_gone_on_with,
    a_sync_that_says_that_the_disk_is_full_closes_no_table,
);
