//! Logs and snapshots of which the disk lacks a part: what is acknowledged then, and what stays as
//! it is.

use std::time::Duration;

use crate::common::keys::Integers;
use crate::common::requests::{Writer, value};
use crate::common::world::{Mortal, Node, RING, World, load, lost, startup};
use crate::memory_disk::MemoryDisk;
use fpcache::layout::RecordToken;
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{FileIdentity, Service, Waker};
use fpcache_memserver::durability::{Disk, SyncPolicy};
use fpcache_memserver::store::{
    Background, Memories, UNKNOWN_BOOT, recovery_area_bytes, restore, sync_previous_log,
};
use fpcache_memserver::{Origin, RecoverError};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const HOURLY: SyncPolicy = SyncPolicy::Interval(Duration::from_secs(3600));

pub(crate) fn put(writer: &mut Writer<Integers>, node: &mut Node<Integers>, key: u64) -> WriteStatus {
    let value = value::<Integers>(key, 7, 8);
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &value).status
}

pub(crate) fn put_all(node: &mut Node<Integers>, client: u64, keys: impl IntoIterator<Item = u64>) {
    let mut writer = Writer::<Integers>::new(client);
    keys.into_iter().for_each(|key| assert_eq!(put(&mut writer, node, key), WriteStatus::Done, "{key}"));
}

/// Which of these keys are there.
pub(crate) fn there(node: &mut Node<Integers>, keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let reader = Writer::<Integers>::new(9);
    keys.into_iter().filter(|key| reader.get(node, *key).is_some()).collect()
}

/// A world whose machine starts so, with ten keys, 0, 50, …, and a node in it.
pub(crate) fn loaded(sync: SyncPolicy, seed: u64, is_boot_known: bool) -> (World, Node<Integers>) {
    let mut world = World::new(sync, seed);
    if !is_boot_known {
        world.boot = UNKNOWN_BOOT;
    }
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    (world, node)
}

/// The names of the files, and what they hold.
fn files(world: &mut World) -> Vec<(String, Vec<u8>)> {
    world.disk = world.disk.restart();
    let disk = &world.disk;
    let read = |name: String| {
        let mut bytes = vec![0; disk.len(&name).expect("a file") as usize];
        disk.read(&name, 0, &mut bytes).expect("a file");
        (name, bytes)
    };
    disk.list().expect("a folder").into_iter().map(read).collect()
}

fn is_synced(node: &Node<Integers>) -> bool {
    node.stats().synced >= node.stats().logged
}

/// A process that ended with entries of which the disk has nothing, and then the disk is full:
/// where the machine's starts can be told apart, the next start goes on with its memory, and syncs
/// tell that there is no room; else it reads the disk, and a sync that succeeds after one that
/// failed tells nothing.
fn ended_before_a_full_disk(seed: u64, is_boot_known: bool) -> World {
    let sync = if is_boot_known { SyncPolicy::Never } else { HOURLY };
    let (world, mut node) = loaded(sync, seed, is_boot_known);
    put_all(&mut node, 5, 1..4);
    node.work();
    if is_boot_known {
        world.disk.fill_up_at_sync(0, 1000);
    } else {
        // A snapshot has the log synced.
        world.disk.fail_syncs(1);
        node.begin_snapshot();
        (0..10).find(|_| {
            node.work();
            node.stats().log_fails > 0
        });
        world.disk.fill_up_after(0);
    }
    world
}

fn make_room(world: &World) {
    world.disk.fail_syncs(0);
    world.disk.fill_up_after(u64::MAX);
}

/// What the ring had given back was never synced, and the start that was to make up for that found
/// no room: notes that say that it is on the disk would close the table after the end of the
/// machine.
#[test]
fn notes_do_not_say_of_entries_that_they_are_on_a_disk_without_room_for_them() {
    for (seed, is_boot_known) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = ended_before_a_full_disk(seed, is_boot_known);
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(matches!(recovery.origin, Origin::Memory { .. }), is_boot_known, "{recovery}");
        assert_eq!(there(&mut node, 1..4), [1, 2, 3], "{recovery}");
        assert!(!is_synced(&node), "seed {seed}: {recovery}");
        drop(node);
        make_room(&world);
        world.crash_keeping_notes();
        if let Err(error) = world.try_begin::<Integers>() {
            panic!("seed {seed}: a table that promised nothing more is closed: {error}");
        }
    }
}

/// They are synced once there is room, and the notes say so then.
#[test]
fn entries_that_a_full_disk_did_not_take_are_synced_when_it_has_room() {
    for is_boot_known in [false, true] {
        let mut world = ended_before_a_full_disk(1, is_boot_known);
        let (mut node, _) = world.begin::<Integers>();
        make_room(&world);
        (0..100).for_each(|_| _ = node.work());
        assert!(is_synced(&node));
        drop(node);
        world.crash_keeping_notes();
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(there(&mut node, 1..4), [1, 2, 3], "{recovery}");
    }
}

/// With `always`, what a start has read all the same is read by the next one too, while the disk is
/// full.
#[test]
fn a_full_disk_keeps_no_start_from_serving_what_the_one_before_served() {
    let (mut world, mut node) = loaded(SyncPolicy::Always, 1, false);
    put_all(&mut node, 5, 1..4);
    drop(node);
    world.disk.fill_up_after(0);
    let (node, recovery) = world.begin::<Integers>();
    assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
    drop(node);
    // From here on the machine's starts can be told apart, and memory is gone on with.
    world.boot = [3; 16];
    let (node, _) = world.begin::<Integers>();
    drop(node);
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(there(&mut node, 1..4), [1, 2, 3], "{recovery}");
}

/// Removes or damages files so that the log follows no snapshot.
fn take_away(world: &mut World, what: u32) {
    if [2, 3].contains(&what) {
        // Another life's log file goes on after the first one, which goes, or cannot be used.
        drop(world.begin::<Integers>());
    }
    let all = files(world);
    let first = |of: &str| all.iter().find(|(name, _)| name.starts_with(of)).expect("a file");
    let ((log, _), (snapshot, bytes)) = (first("log-"), first("snapshot-"));
    let disk = &mut world.disk;
    let mut rewrite = |bytes: &[u8]| {
        disk.remove(snapshot).and_then(|()| disk.create(snapshot)).expect("a disk");
        disk.append(snapshot, bytes).and_then(|()| disk.sync(snapshot)).expect("a disk");
    };
    match what {
        0 => {
            let logs = all.iter().filter(|(name, _)| name.starts_with("log-"));
            logs.for_each(|(name, _)| disk.remove(name).expect("a file"));
        }
        1 => rewrite(&bytes[..bytes.len() / 2]),
        2 => disk.remove(log).expect("a file"),
        3 => disk.flip(log, 16, 1).expect("a byte"),
        _ => {
            // Whole, and of another layout.
            let mut bytes = bytes.clone();
            bytes[8] += 1;
            let table_header = usize::from(bytes[12]) | usize::from(bytes[13]) << 8;
            let summed = [&bytes[..32], &bytes[40..40 + table_header]].concat();
            bytes[32..40].copy_from_slice(&xxh3_64(&summed).to_le_bytes());
            rewrite(&bytes);
        }
    }
    world.disk.sync_dir().expect("a disk");
}

#[test]
fn memory_is_gone_on_with_without_files_and_nothing_acknowledged_that_only_these_would_keep() {
    for what in 0..5 {
        let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
        put_all(&mut node, 5, 1..6);
        drop(node);
        take_away(&mut world, what);
        let (mut node, recovery) = world.begin::<Integers>();
        assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
        let mut writer = Writer::<Integers>::new(50);
        let acknowledged: Vec<_> =
            (10..14).filter(|key| put(&mut writer, &mut node, *key) == WriteStatus::Done).collect();
        // The machine ends before there is a snapshot.
        let mut early = world.clone();
        early.disk = early.disk.deep_clone().crash();
        (early.region, early.recovery_area) = lost(&early.left);
        match early.try_begin::<Integers>() {
            Ok((mut node, recovery)) => {
                assert_eq!(there(&mut node, 10..14), acknowledged, "{what}: {recovery}");
            }
            Err(error) => assert!(acknowledged.is_empty(), "{what}: {acknowledged:?}, then {error}"),
        }
        world.left.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
        // A snapshot is written at once, and makes up for what is missing.
        (0..60).for_each(|_| _ = node.work());
        put_all(&mut node, 51, 20..24);
        drop(node);
        world.disk = world.disk.restart().crash();
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, recovery) = world.begin::<Integers>();
        let all: Vec<_> = (1..6).chain(20..24).collect();
        assert_eq!(there(&mut node, all.clone()), all, "{what}: {recovery}");
    }
}

#[test]
fn a_start_that_closes_a_table_leaves_its_files_as_they_are() {
    let (mut world, mut node) = loaded(HOURLY, 1, true);
    put_all(&mut node, 5, 1..6);
    node.work();
    // A snapshot that begins with an entry and needs those up to a later one.
    node.begin_snapshot();
    put_all(&mut node, 6, 6..10);
    (0..60).for_each(|_| _ = node.work());
    drop(node);
    let before = files(&mut world);
    let (name, bytes) = before.iter().rfind(|(name, _)| name.starts_with("log-")).expect("a log");
    world.disk.flip(name, bytes.len() - 8, 1).expect("a byte");
    (world.region, world.recovery_area) = lost(&world.left);
    let before = files(&mut world);
    let Err(error) = world.try_begin::<Integers>() else { panic!("the log is too short") };
    assert!(matches!(error, RecoverError::LogTooShort { .. }), "{error}");
    assert!(files(&mut world) == before, "{error}");
}

/// Half of it would take the room that the log needs.
#[test]
fn a_snapshot_that_does_not_fit_is_not_begun() {
    let (world, mut node) = loaded(SyncPolicy::Always, 1, true);
    put_all(&mut node, 5, 1..4);
    // As much as the log needs for some writes, and less than another snapshot.
    world.disk.fill_up_after(400);
    for client in 6..9 {
        node.begin_snapshot();
        (0..20).for_each(|_| _ = node.work());
        put_all(&mut node, client, client..client + 1);
    }
}

/// One that seemed not to fit was not begun, and without one no write was ever acknowledged again.
#[test]
fn a_table_without_a_snapshot_that_counts_tries_one_whatever_room_there_is() {
    let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
    put_all(&mut node, 5, 1..4);
    drop(node);
    take_away(&mut world, 0);
    let (mut node, _) = world.begin::<Integers>();
    world.disk.fill_up_after(4 << 10);
    (0..60).for_each(|_| _ = node.work());
    put_all(&mut node, 6, 6..9);
}

/// All of the snapshot was read to word a warning, and then once more.
#[test]
fn what_a_copy_lacks_is_told_by_the_header_of_its_snapshot() {
    let mut world = World::new(HOURLY, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 2000);
    world.disk.fill_up_after(0);
    put_all(&mut node, 5, 1..2);
    drop(node);
    let disk = world.disk.restart();
    let before = disk.bytes_read();
    let copy = FileIdentity { device: 1, inode: 2, born: 3 };
    sync_previous_log(&world.recovery_area, copy, &disk, &startup(HOURLY, 9)).expect("a warning");
    let read = disk.bytes_read() - before;
    assert!(read < 4096, "{read} bytes were read");
}

/// It was given up by a refusal from before there was room, and the next began two minutes later.
#[test]
fn a_snapshot_waits_for_a_log_that_finds_room_when_it_tries_again() {
    let (world, mut node) = loaded(HOURLY, 1, true);
    let snapshots = || {
        let names = world.disk.list().expect("a folder");
        names.iter().filter(|name| name.ends_with(".fps")).count()
    };
    let before = snapshots();
    put_all(&mut node, 5, 1..4);
    world.disk.fill_up_at_sync(0, 1);
    node.begin_snapshot();
    (0..60).for_each(|_| _ = node.work());
    assert_eq!((node.stats().log_errors, snapshots()), (1, before + 1));
}

/// It failed by a refusal from before there was room, although it needed nothing of the log.
#[test]
fn a_load_into_a_table_whose_log_began_on_a_full_disk_succeeds_once_there_is_room() {
    let left = World::new(HOURLY, 1).left;
    let disk = MemoryDisk::new(1);
    let (region, recovery_area) = lost(&left);
    let memories = Memories::new(region, recovery_area);
    disk.fill_up_after(0);
    let threads = Background::Threads(Waker::new().expect("a waker"));
    let begun = restore(memories, disk.clone(), &startup(HOURLY, 1), threads, None);
    let (mut node, _): (Node<Integers>, _) = begun.expect("a table may begin on a full disk");
    disk.fill_up_after(u64::MAX);
    load::<Integers>(&mut node, 10);
}

/// Snapshot and log waited for each other, and writes for both, until somebody made room.
#[test]
fn a_snapshot_makes_room_for_the_log_that_it_waits_for() {
    let left = World::new(HOURLY, 1).left;
    let disk = MemoryDisk::new(1);
    let memory = |bytes: u64| Mortal::new(bytes as usize, &left);
    let memories = Memories::new(memory(8 << 20), memory(recovery_area_bytes(RING)));
    let begun = restore(memories, disk.clone(), &startup(HOURLY, 1), Background::Inline, None);
    let (mut node, _): (Node<Integers>, _) = begun.expect("an empty store");
    load::<Integers>(&mut node, 60_000);
    let room = || disk.room().expect("a folder").expect("it can be told");
    disk.fill_up_after(4 << 20);
    node.begin_snapshot();
    // The first of its blocks is written.
    while room() > 3 << 20 {
        node.work();
    }
    disk.fill_up_after(0);
    put_all(&mut node, 5, 1..2);
    // Segment by segment, the rest is taken.
    let fails = (0..5000).map(|_| {
        node.work();
        node.stats().log_fails
    });
    assert!(fails.max() > Some(0), "there was no room for the first key");
    put_all(&mut node, 6, 2..3);
    assert!(room() > 0 && disk.list().expect("a folder").iter().all(|name| !name.ends_with(".tmp")));
}

/// It took the room of others again and again, whose writes were refused meanwhile.
#[test]
fn a_snapshot_that_cannot_fit_takes_no_room() {
    /// Keys, their values, versions and lengths.
    const LEAST: u64 = 13 * 24;
    let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
    put_all(&mut node, 5, 1..4);
    drop(node);
    take_away(&mut world, 0);
    let (mut node, _) = world.begin::<Integers>();
    world.disk.fill_up_after(LEAST - 1);
    let early = put(&mut Writer::<Integers>::new(6), &mut node, 4);
    assert_eq!(early, WriteStatus::NotDurable, "no snapshot counts");
    for _ in 0..60 {
        node.work();
        assert_eq!(world.disk.room().ok(), Some(Some(LEAST - 1)));
    }
}
