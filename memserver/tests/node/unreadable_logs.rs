//! Starts whose disk does not read the log's last file, over memory that has all of it or is older.

use crate::common::keys::Integers;
use crate::common::requests::Writer;
use crate::common::world::{Mortal, Node, World, lost};
use crate::damaged_logs::last_log;
use crate::logs_with_gaps::{HOURLY, loaded, put, put_all, there};
use crate::memory_disk::MemoryDisk;
use fpcache::message::WriteStatus;
use fpcache_fabric::{NodeMemory, Service};
use fpcache_memserver::durability::{Disk, SyncPolicy};
use fpcache_memserver::{Origin, RecoverError};

/// The files that a world's log had when its memory had the keys 1 to 5, and all of 1 to 11 later.
fn older(sync: SyncPolicy, seed: u64) -> World {
    older_after(sync, seed, |_| {})
}

/// The same after one more step.
fn older_after(sync: SyncPolicy, seed: u64, step: impl FnOnce(&mut Node<Integers>)) -> World {
    let (mut world, mut node) = loaded(sync, seed, true);
    put_all(&mut node, 5, 1..6);
    (0..9).for_each(|_| _ = node.work());
    let older = (world.region.heir(), world.recovery_area.heir());
    put_all(&mut node, 6, 6..12);
    (0..9).for_each(|_| _ = node.work());
    step(&mut node);
    drop(node);
    (world.region, world.recovery_area) = older;
    world
}

/// The same files and memory once more.
fn again(world: &World) -> World {
    let (region, recovery_area) = (world.region.heir(), world.recovery_area.heir());
    World { disk: world.disk.deep_clone(), region, recovery_area, ..world.clone() }
}

/// It was gone on with, in a file that replaced what the log had beyond it.
#[test]
fn memory_that_is_older_than_a_log_that_cannot_be_read_is_not_gone_on_with() {
    for (sync, seed) in [(SyncPolicy::Always, 1), (HOURLY, 2)] {
        let world = older(sync, seed);
        let mut refused = 0;
        for (good, bad) in (0..12).flat_map(|good| [1, 2, 3, 1000].map(|bad| (good, bad))) {
            let mut world = again(&world);
            world.disk.fail_reads_after(good, bad);
            let (mut node, recovery) = world.try_begin::<Integers>().unwrap_or_else(|_| {
                refused += 1;
                world.disk.fail_reads_after(0, 0);
                world.begin::<Integers>()
            });
            let all = there(&mut node, 1..12);
            assert_eq!(all.len(), 11, "{sync}, {good} and {bad}: {all:?}: {recovery}");
        }
        assert!(refused > 0, "reads fail");
    }
}

#[test]
fn a_start_that_cannot_tell_whether_memory_is_older_says_so_and_what_helps() {
    let world = older(SyncPolicy::Always, 1);
    let (log, _) = last_log(&world.disk.restart());
    let mut refused = again(&world);
    refused.disk.fail_reads_of(&log);
    for _ in 0..2 {
        let Err(error) = refused.try_begin::<Integers>() else { panic!("it cannot be told") };
        assert!(matches!(error, RecoverError::LogUnread { last: 5, .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&log) && text.contains("restore it") && text.contains("LSN 5"), "{text}");
    }
    // With the files away it is gone on with, as it says.
    let mut disk = refused.disk.restart();
    disk.remove(&log).expect("it is there");
    refused.disk = disk;
    let (mut node, recovery) = refused.begin::<Integers>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(there(&mut node, 1..12), [1, 2, 3, 4, 5]);
}

/// The log alone was compared with memory: with its files away it was gone on with, as the error had
/// said, although a snapshot was younger, and what was acknowledged then was gone with the machine.
#[test]
fn memory_that_is_older_than_a_snapshot_is_not_gone_on_with() {
    for (sync, seed) in [(SyncPolicy::Always, 1), (HOURLY, 2), (SyncPolicy::Never, 3)] {
        let mut world = older_after(sync, seed, |node| {
            node.begin_snapshot();
            (0..60).for_each(|_| _ = node.work());
        });
        let (log, _) = last_log(&world.disk.restart());
        world.disk.fail_reads_of(&log);
        let Err(error) = world.try_begin::<Integers>() else { panic!("{sync}: memory is older") };
        let text = error.to_string();
        assert!(matches!(error, RecoverError::LogUnread { last: 5, snapshot: Some(12), .. }), "{text}");
        assert!(text.contains("from LSN 12 on") && !text.contains("that memory alone"), "{text}");
        let mut disk = world.disk.restart();
        let logs: Vec<_> = disk.list().expect("a folder");
        logs.iter().filter(|n| n.starts_with("log-")).for_each(|log| disk.remove(log).expect("it is there"));
        // Another file may get the name.
        disk.fail_reads_of("");
        world.disk = disk;
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(there(&mut node, 1..12).len(), 11, "{sync}: {recovery}");
        (0..60).for_each(|_| _ = node.work());
        put_all(&mut node, 7, 12..30);
        node.begin_snapshot();
        (0..60).for_each(|_| _ = node.work());
        drop(node);
        world.disk = world.disk.restart().crash();
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(there(&mut node, 1..30).len(), 29, "{sync}: {recovery}");
    }
}

/// How a snapshot becomes unusable.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Unread,
    Header,
    Body,
}

impl Fault {
    fn befall(self, disk: &mut MemoryDisk, snapshot: &str) {
        let bytes = disk.len(snapshot).expect("it is there") as usize;
        match self {
            Self::Unread => disk.fail_reads_of(snapshot),
            Self::Header => disk.flip(snapshot, 20, 1).expect("a byte"),
            // Before the footer.
            Self::Body => disk.flip(snapshot, bytes - 48, 1).expect("a byte"),
        }
    }
}

/// Memory that is older than its newest snapshot, whose name is returned, and the log's files.
fn older_than_a_snapshot(sync: SyncPolicy) -> (World, Vec<String>, String) {
    let mut world = older_after(sync, 1, |node| {
        node.begin_snapshot();
        (0..60).for_each(|_| _ = node.work());
    });
    world.disk = world.disk.restart();
    let files = world.disk.list().expect("a folder").into_iter();
    let (logs, mut snapshots): (Vec<_>, Vec<_>) = files.partition(|name| name.starts_with("log-"));
    let newest = snapshots.pop().filter(|_| snapshots.len() == 1).expect("two snapshots");
    (world, logs, newest)
}

/// It counted as absent, or as usable where its body was damaged, and what was acknowledged since
/// was missing without a word.
#[test]
fn what_a_snapshot_that_cannot_be_used_has_is_missed_where_log_and_memory_lack_it() {
    let faults = [Fault::Unread, Fault::Header, Fault::Body];
    for (sync, fault) in [SyncPolicy::Always, HOURLY].into_iter().flat_map(|sync| faults.map(|f| (sync, f))) {
        let (mut world, logs, newest) = older_than_a_snapshot(sync);
        logs.iter().for_each(|log| world.disk.remove(log).expect("it is there"));
        fault.befall(&mut world.disk, &newest);
        let over_memory = again(&world).try_begin::<Integers>().map(|(_, recovery)| recovery);
        let mut from_disk = again(&world);
        (from_disk.region, from_disk.recovery_area) = lost(&world.left);
        let from_disk = from_disk.try_begin::<Integers>().map(|(_, recovery)| recovery);
        for (begun, kept) in [(over_memory, 5), (from_disk, 0)] {
            let Err(error) = begun else { panic!("{sync}, {fault:?}: {begun:?}") };
            let text = error.to_string();
            let RecoverError::SnapshotUnusable { name, needed: 11, last, .. } = error else {
                panic!("{text}")
            };
            assert_eq!((&name, last), (&newest, kept), "{text}");
            assert!(text.contains(&format!("LSN {} on", kept + 1)), "{text}");
        }
        // With it away memory is gone on with, of which nothing was given up.
        world.disk.remove(&newest).expect("it is there");
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(there(&mut node, 1..12), [1, 2, 3, 4, 5], "{sync}, {fault:?}: {recovery}");
    }
}

/// The error said to move the log's files away and to start with a snapshot that cannot be used.
#[test]
fn a_log_is_not_to_be_moved_away_for_a_snapshot_that_cannot_be_used() {
    for fault in [Fault::Header, Fault::Body] {
        let (mut world, _, newest) = older_than_a_snapshot(SyncPolicy::Always);
        fault.befall(&mut world.disk, &newest);
        world.disk.fail_reads_of(&last_log(&world.disk).0);
        let Err(error) = world.try_begin::<Integers>() else { panic!("{fault:?}: memory is older") };
        let text = error.to_string();
        assert!(matches!(error, RecoverError::LogUnread { last: 5, snapshot: Some(12), .. }), "{text}");
        assert!(text.contains("damaged") && !text.contains("away"), "{text}");
    }
}

/// A file system that goes away may have written back a page of which one part was older: memory that
/// lacked entries was gone on with.
#[test]
fn a_note_that_is_younger_than_the_last_record_beside_it_proves_nothing() {
    const NOTES: [u64; 3] = [4096 + 136, 4096 + 176, 4096 + 184];
    let (mut world, mut node) = loaded(HOURLY, 1, true);
    put_all(&mut node, 5, 1..6);
    (0..9).for_each(|_| _ = node.work());
    let older = (world.region.heir(), world.recovery_area.heir());
    put_all(&mut node, 6, 6..12);
    (0..9).for_each(|_| _ = node.work());
    drop(node);
    let younger = world.recovery_area.heir();
    (world.region, world.recovery_area) = older;
    for at in NOTES {
        world.recovery_area.store_release(at, younger.load_acquire(at).expect("inside")).expect("inside");
    }
    let (log, _) = last_log(&world.disk.restart());
    world.disk.fail_reads_of(&log);
    let begun = world.try_begin::<Integers>().map(|(_, recovery)| recovery);
    assert!(matches!(begun, Err(RecoverError::LogUnread { last: 5, .. })), "{begun:?}");
}

/// The start was refused, although memory has everything and its notes prove it.
#[test]
fn memory_that_has_all_of_a_log_that_cannot_be_read_is_gone_on_with() {
    for (sync, seed) in [(SyncPolicy::Always, 1), (HOURLY, 2), (SyncPolicy::Never, 3)] {
        let (mut world, mut node) = loaded(sync, seed, true);
        put_all(&mut node, 5, 1..6);
        (0..9).for_each(|_| _ = node.work());
        drop(node);
        let (log, _) = last_log(&world.disk.restart());
        world.disk.fail_reads_of(&log);
        let (mut node, recovery) = world.begin::<Integers>();
        assert!(matches!(recovery.origin, Origin::Memory { .. }), "{sync}: {recovery}");
        assert_eq!(there(&mut node, 1..6), [1, 2, 3, 4, 5], "{sync}: {recovery}");
        is_durable_after_a_snapshot(&mut node);
        drop(node);
        world.disk = world.disk.restart().crash();
        (world.region, world.recovery_area) = lost(&world.left);
        if last_log(&world.disk).0 == log {
            // It was written anew, elsewhere on the disk.
            world.disk.fail_reads_of("");
        }
        let (mut node, recovery) = world.begin::<Integers>();
        assert_eq!(there(&mut node, 1..13).len(), 6, "{sync}: {recovery}");
    }
}

/// What is acknowledged is on a disk whose log cannot be read, once a snapshot makes up for it.
fn is_durable_after_a_snapshot(node: &mut Node<Integers>) {
    (0..60).for_each(|_| _ = node.work());
    assert_eq!(put(&mut Writer::<Integers>::new(7), node, 12), WriteStatus::Done);
    node.begin_snapshot();
    (0..60).for_each(|_| _ = node.work());
}

/// A ring that has noted no file.
fn forget_the_file(recovery_area: &Mortal) {
    const RING: u64 = 4096;
    (176..192).step_by(8).for_each(|at| recovery_area.store_relaxed(RING + at, 0).expect("inside"));
}

/// Memory as an end leaves it between a sync and what that allows to be performed: the ring has given
/// the last entry back. It was said to be gone on with, or that its ring is damaged and to be moved
/// away, which would have lost all since the snapshot.
#[test]
fn entries_that_the_log_alone_has_are_not_given_up_when_it_cannot_be_read_or_is_missing() {
    const APPLIED: u64 = 64;
    let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
    put_all(&mut node, 5, 1..6);
    (0..9).for_each(|_| _ = node.work());
    drop(node);
    (world.region, world.recovery_area) = (world.region.heir(), world.recovery_area.heir());
    assert_eq!(world.recovery_area.load_acquire(APPLIED), Ok(5));
    world.recovery_area.store_release(APPLIED, 4).expect("inside");
    let (log, _) = last_log(&world.disk.restart());

    let unread = again(&world);
    unread.disk.fail_reads_of(&log);
    let mut missing = again(&world);
    missing.disk = missing.disk.restart();
    missing.disk.remove(&log).expect("it is there");
    for (mut world, is_read) in [(unread, false), (missing, true)] {
        let Err(error) = world.try_begin::<Integers>() else { panic!("entry 5 is gone") };
        let text = error.to_string();
        let RecoverError::OnlyInLog { first: 5, last: 5, source } = error else { panic!("{text}") };
        assert_eq!(source.is_none(), is_read, "{text}");
        assert!(text.contains("restore them") && !text.contains("away"), "{text}");
    }
}

#[test]
fn without_a_note_of_the_file_nothing_proves_that_memory_has_all_of_it() {
    let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
    put_all(&mut node, 5, 1..6);
    drop(node);
    world.recovery_area = world.recovery_area.heir();
    forget_the_file(&world.recovery_area);
    let (log, _) = last_log(&world.disk.restart());
    let mut unread = again(&world);
    unread.disk.fail_reads_of(&log);
    let refused = unread.try_begin::<Integers>().err();
    assert!(matches!(refused, Some(RecoverError::LogUnread { last: 5, .. })), "{refused:?}");
    // A file that can be read says it itself.
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(there(&mut node, 1..6), [1, 2, 3, 4, 5]);
}

/// What it gave was taken for all that the file has: the rest was cut off as a torn tail, or was
/// not in the copy that took the file's place.
#[test]
fn a_read_that_ends_early_cuts_nothing_off_the_log() {
    let mut world = older(SyncPolicy::Always, 1);
    world.disk = world.disk.restart().crash();
    (world.region, world.recovery_area) = lost(&world.left);
    let mut told = 0;
    for (good, bad) in (0..16).flat_map(|good| [1, 1000].map(|bad| (good, bad))) {
        let mut world = again(&world);
        world.disk.cut_reads_after(good, bad);
        let (mut node, recovery) = world.try_begin::<Integers>().unwrap_or_else(|error| {
            told += u32::from(error.to_string().contains("the disk gives"));
            world.disk.cut_reads_after(0, 0);
            world.begin::<Integers>()
        });
        assert_eq!(there(&mut node, 1..12).len(), 11, "{good} and {bad}: {recovery}");
    }
    assert!(told > 0, "reads end early");
}
