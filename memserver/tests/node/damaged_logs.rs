//! A last log file that is damaged: what is kept of it, and which memory is gone on with.

use crate::common::keys::Integers;
use crate::common::requests::Writer;
use crate::common::world::{World, lost};
use crate::logs_with_gaps::{HOURLY, loaded, put, put_all, there};
use crate::memory_disk::MemoryDisk;
use fpcache::message::WriteStatus;
use fpcache_fabric::Service;
use fpcache_memserver::durability::{Disk, OpenError, RecoveryError, SyncPolicy};
use fpcache_memserver::{Origin, RecoverError};

/// The notes went on to say that the disk had more, and the next start failed by that.
#[test]
fn what_comes_before_the_damage_of_a_log_file_is_kept_by_what_its_error_says() {
    for has_crashed in [true, false] {
        let (mut world, mut node) = loaded(SyncPolicy::Always, 1, true);
        put_all(&mut node, 5, 1..10);
        drop(node);
        if has_crashed {
            world.crash_keeping_notes();
        }
        // With a last record that is whole, memory that has everything would be gone on with.
        let (log, len) = last_log(&world.disk.restart());
        for at in [len * 2 / 3, len - 1] {
            world.disk.flip(&log, at, 1).expect("a byte");
        }
        let Err(error) = world.try_begin::<Integers>() else { panic!("a byte is wrong") };
        let text = error.to_string();
        let (RecoverError::Log(damage) | RecoverError::Open(OpenError::Recovery(damage))) = error else {
            panic!("{text}")
        };
        let RecoveryError::Damaged { file, offset, lsn, .. } = damage else { panic!("{text}") };
        assert!(lsn > 2 && text.contains("the log files after it and notes.fpn away"), "{text}");
        world.disk = world.disk.restart();
        world.disk.truncate(&file, offset).and_then(|()| world.disk.sync(&file)).expect("a disk");
        assert!(world.try_begin::<Integers>().is_err(), "what the notes rely on is not there");
        (_, world.recovery_area) = lost(&world.left);
        let (mut node, recovery) = world.begin::<Integers>();
        // Each entry wrote the key of its number.
        assert_eq!(there(&mut node, 1..10), Vec::from_iter(1..lsn), "{recovery}");
    }
}

/// The last file of the log, and its length.
pub(crate) fn last_log(disk: &MemoryDisk) -> (String, usize) {
    let names = disk.list().expect("a folder");
    let log = names.into_iter().rfind(|name| name.starts_with("log-")).expect("a log");
    let len = disk.len(&log).expect("a file") as usize;
    (log, len)
}

/// The table was closed, and the operator told how to discard writes that memory had.
#[test]
fn memory_that_has_all_that_a_damaged_last_log_file_had_is_gone_on_with() {
    for sync in [SyncPolicy::Always, SyncPolicy::Never] {
        let (mut world, mut node) = loaded(sync, 1, true);
        put_all(&mut node, 5, 1..10);
        (0..9).for_each(|_| _ = node.work());
        drop(node);
        let (log, len) = last_log(&world.disk.restart());
        world.disk.flip(&log, len * 2 / 3, 1).expect("a byte");
        // As often as it likes, without a word to the disk between.
        drop(world.begin::<Integers>());
        let (mut node, recovery) = world.begin::<Integers>();
        assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
        assert_eq!(there(&mut node, 1..10), Vec::from_iter(1..10), "{recovery}");
        let early = put(&mut Writer::<Integers>::new(50), &mut node, 20);
        assert_eq!(early, WriteStatus::NotDurable, "no start after the machine's end would reach it");
        (0..60).for_each(|_| _ = node.work());
        put_all(&mut node, 51, 21..24);
        node.begin_snapshot();
        (0..60).for_each(|_| _ = node.work());
        drop(node);
        world.disk = world.disk.restart().crash();
        (world.region, world.recovery_area) = lost(&world.left);
        let (mut node, recovery) = world.begin::<Integers>();
        let all: Vec<_> = (1..10).chain(21..24).collect();
        assert_eq!(there(&mut node, all.clone()), all, "{recovery}");
    }
}

/// A start on a full disk had left a file without a header, and every later one was refused.
#[test]
fn a_start_that_finds_no_room_for_a_file_after_a_damaged_one_hinders_none_after_it() {
    let (mut world, mut node) = loaded(HOURLY, 1, true);
    put_all(&mut node, 5, 1..6);
    // A snapshot has the log synced; what comes then is in the file, and still in the ring.
    node.begin_snapshot();
    (0..60).for_each(|_| _ = node.work());
    let (log, given_back) = last_log(&world.disk);
    put_all(&mut node, 6, 6..10);
    (0..9).for_each(|_| _ = node.work());
    drop(node);
    assert!(last_log(&world.disk.restart()).1 > given_back, "there is more");
    world.disk.flip(&log, given_back * 2 / 3, 1).expect("a byte");
    world.disk.fill_up_after(0);
    drop(world.begin::<Integers>());
    assert_eq!(last_log(&world.disk.restart()).1, 0, "no header");
    let (mut node, recovery) = world.begin::<Integers>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    assert_eq!(there(&mut node, 1..10), Vec::from_iter(1..10), "{recovery}");
}

/// Of memory that is older than the log, as a file system that went away leaves it, nothing is gone
/// on with, wherever the file is damaged: what it lacks had been acknowledged.
#[test]
fn memory_that_lacks_what_a_damaged_last_log_file_may_have_had_is_not_gone_on_with() {
    for (sync, seed) in [(SyncPolicy::Always, 1), (HOURLY, 2)] {
        let (world, mut node) = loaded(sync, seed, true);
        put_all(&mut node, 5, 1..6);
        (0..9).for_each(|_| _ = node.work());
        let older = (world.region.heir(), world.recovery_area.heir());
        put_all(&mut node, 6, 6..10);
        (0..9).for_each(|_| _ = node.work());
        drop(node);
        let (log, len) = last_log(&world.disk.restart());
        for at in (64..len).step_by(5) {
            let mut world = World { disk: world.disk.deep_clone(), ..world.clone() };
            world.disk.flip(&log, at, 1).expect("a byte");
            (world.region, world.recovery_area) = (older.0.heir(), older.1.heir());
            if let Ok((mut node, recovery)) = world.try_begin::<Integers>() {
                // A last record that is damaged alone is a torn tail.
                let all = there(&mut node, 1..10);
                assert!(matches!(recovery.origin, Origin::Disk { .. }) && all.len() >= 8, "{at}: {recovery}");
            }
        }
    }
}
