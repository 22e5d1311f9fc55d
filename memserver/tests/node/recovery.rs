//! The end of the process at any store, and the end of the machine at any moment, undo nothing that
//! was acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::keys::TestKeys;
use crate::common::requests::{Writer, value};
use crate::common::world::{
    Mortal, Node, REGION, RING, World, contents, load, load_with, loaded, lost, parameters, startup,
};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::{RecordToken, SEQUENCE_OFFSET, TableParameters};
use fpcache::message::{ErrorCode, WriteKind, WriteStatus};
use fpcache_fabric::{NodeMemory, Service, Work};
use fpcache_memserver::durability::{Disk, SyncPolicy};
use fpcache_memserver::store::{
    Background, Startup, UNKNOWN_BOOT, recovery_area_bytes, restore, resume, why_unusable,
};
use fpcache_memserver::{Origin, Recovery};

/// A write and how it is to end, drawn from a number.
fn draw<T: TestKeys>(n: u64) -> (WriteKind, u64, Vec<u8>) {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let kind = [WriteKind::Put, WriteKind::Insert, WriteKind::Put, WriteKind::Delete][mixed as usize % 4];
    // Most in one narrow range, which fills up.
    let key = if mixed.is_multiple_of(5) { mixed % 5000 } else { 700 + mixed % 90 };
    (kind, key, value::<T>(key, n, 8))
}

fn apply(model: &mut BTreeMap<u64, Vec<u8>>, kind: WriteKind, key: u64, value: Vec<u8>) -> WriteStatus {
    match kind {
        WriteKind::Insert if model.contains_key(&key) => WriteStatus::Exists,
        WriteKind::Delete => model.remove(&key).map_or(WriteStatus::Absent, |_| WriteStatus::Done),
        _ => {
            model.insert(key, value);
            WriteStatus::Done
        }
    }
}

/// The write in hand when the process ended, and all there was before it.
type InHand = (BTreeMap<u64, Vec<u8>>, WriteKind, u64, Vec<u8>);

/// Writes, and works between writes, until memory takes no more stores.
fn write_until_the_end<T: TestKeys>(
    world: &World,
    node: &mut Node<T>,
    writer: &mut Writer<T>,
    model: &mut BTreeMap<u64, Vec<u8>>,
) -> Option<InHand> {
    let has_ended = || world.left.load(Ordering::Relaxed) == 0;
    for n in 0.. {
        let (kind, key, new) = draw::<T>(n);
        let old = model.get(&key).cloned();
        let wanted = apply(model, kind, key, new.clone());
        let reply = writer.try_one(node, kind, key, RecordToken::default(), &new);
        if has_ended() {
            let mut before = model.clone();
            before.remove(&key);
            before.extend(old.map(|value| (key, value)));
            return Some((before, kind, key, new));
        }
        assert_eq!(reply.map(|reply| reply.status), Ok(wanted));
        if n % 3 == 0 {
            while node.work() == Work::More {}
        }
        if has_ended() {
            break;
        }
    }
    None
}

/// The next process ends as well, at any of its first stores, where the one before ended within a
/// rewrite of the superblock: the table's record is in the recovery area alone then.
fn the_next_may_end_at_its_first_stores<T: TestKeys>(
    world: &World,
    writer: &Writer<T>,
    is_right: impl Fn(&BTreeMap<u64, Vec<u8>>) -> bool,
) {
    for stores in 0..60 {
        let mut world = world.clone();
        world.begin_and_end_after::<T>(stores);
        let (mut node, recovery) = world.begin::<T>();
        let found = contents::<T>(&mut node, writer);
        assert!(is_right(&found), "{} after {stores} stores of the second: {recovery}", world.sync);
    }
}

fn the_process_may_end_at_any_store<T: TestKeys>() {
    for sync in [SyncPolicy::Interval(Duration::ZERO), SyncPolicy::Always, SyncPolicy::Never] {
        let (mut ends, mut redone, mut finished, mut rewritten) = (0, 0, 0, false);
        let mut stores = 1;
        // Each round ends some stores later than the one before: a few thousand ends, in every part
        // of what a node does.
        while stores < 6_000 {
            let mut world = World::new(sync, stores);
            let (mut node, _) = world.begin::<T>();
            // Wide fingerprints take more stores to freeze, so that more ends fall amid a change.
            let parameters = TableParameters { width: FingerprintWidth::Bits64, ..parameters::<T>() };
            load_with::<T>(&mut node, 40, parameters);
            let mut model = loaded::<T>(40);
            let mut writer = Writer::<T>::new(5);
            world.left.store(stores, Ordering::Relaxed);
            let last = write_until_the_end(&world, &mut node, &mut writer, &mut model);
            drop(node);
            let sequence = world.region.heir().load_relaxed(SEQUENCE_OFFSET).expect("inside");
            // The first of them will do: it takes sixty starts.
            if !rewritten && !sequence.is_multiple_of(2) {
                rewritten = true;
                the_next_may_end_at_its_first_stores::<T>(&world, &writer, |found| {
                    *found == model || last.as_ref().is_some_and(|(before, ..)| found == before)
                });
            }
            let (mut node, recovery) = world.begin::<T>();
            let Origin::Memory { redone: more, finished_change } = recovery.origin else {
                panic!("the memory was there: {recovery}");
            };
            ends += 1;
            redone += u64::from(more > 0);
            finished += u64::from(finished_change);
            node.audit().unwrap_or_else(|e| panic!("{sync} after {stores} stores: {e}"));
            let found = contents::<T>(&mut node, &writer);
            if let Some((before, kind, key, new)) = last {
                // The one in hand was done or not, and sent again it is not done twice.
                assert!(found == before || found == model, "{sync} after {stores} stores: {kind:?} {key}");
                match writer.again(&mut node, kind, key, RecordToken::default(), &new) {
                    Ok(_) => {
                        assert_eq!(contents::<T>(&mut node, &writer), model, "{sync} after {stores} stores")
                    }
                    Err(refusal) => assert!(refusal.message.contains("sent before"), "{refusal}"),
                }
            } else {
                assert!(found == model, "{sync} after {stores} stores");
            }
            // And it serves on.
            writer.one(&mut node, WriteKind::Put, 4999, RecordToken::default(), &value::<T>(4999, 9, 8));
            node.audit().expect("every byte is right");
            stores += 1 + stores / (2 * T::ENDS);
        }
        assert!(
            ends > 100 && redone > 10 && finished > 2 && rewritten,
            "{sync}: {ends} ends, {redone} redone, {finished} finished, within a rewrite: {rewritten}"
        );
    }
}

/// A memory node with segments that deletions emptied, and free memory in many pieces.
fn churned<T: TestKeys>(world: &mut World, writer: &mut Writer<T>) -> (Node<T>, BTreeMap<u64, Vec<u8>>) {
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 40);
    // They are left as they are for now.
    node.give_back_from(1 << 40);
    let mut model = loaded::<T>(40);
    for n in 0..300 {
        let key = n * 15;
        let kind = if n % 3 == 0 { WriteKind::Put } else { WriteKind::Insert };
        let wanted = apply(&mut model, kind, key, value::<T>(key, n, 8));
        let reply = writer.one(&mut node, kind, key, RecordToken::default(), &value::<T>(key, n, 8));
        assert_eq!(reply.status, wanted);
    }
    for n in (0..300).filter(|n| n % 6 != 0) {
        apply(&mut model, WriteKind::Delete, n * 15, Vec::new());
        writer.one(&mut node, WriteKind::Delete, n * 15, RecordToken::default(), &[]);
    }
    while node.work() == Work::More {}
    (node, model)
}

/// Brings segments together, and empties some of the region.
fn give_back<T: TestKeys>(node: &mut Node<T>) {
    node.give_back_from(0);
    while node.work() == Work::More {}
    node.empty(4096..200 << 10);
    while node.work() == Work::More {}
}

fn the_process_may_end_at_any_store_of_giving_room_back<T: TestKeys>() {
    for sync in [SyncPolicy::Interval(Duration::ZERO), SyncPolicy::Always] {
        // How many stores it takes, and that it does something.
        const PLENTY: u64 = 1 << 40;
        let (mut world, mut writer) = (World::new(sync, 1), Writer::<T>::new(5));
        let (mut node, _) = churned::<T>(&mut world, &mut writer);
        let before = node.stats();
        world.left.store(PLENTY, Ordering::Relaxed);
        give_back::<T>(&mut node);
        let after = node.stats();
        assert!(after.log_head > before.log_head, "nothing was replaced: {before:?} {after:?}");
        let stores = PLENTY - world.left.load(Ordering::Relaxed);
        let (mut finished, mut ends) = (0, (1..stores).step_by(1 + stores as usize / 25).collect::<Vec<_>>());
        // Where few of the stores belong to a change, some more.
        let more: Vec<u64> = (2..stores).step_by(1 + stores as usize / 300).collect();
        ends.extend(more);
        for (at, end) in ends.into_iter().enumerate() {
            if at >= 25 && finished > 0 {
                break;
            }
            let (mut world, mut writer) = (World::new(sync, end), Writer::<T>::new(5));
            let (mut node, model) = churned::<T>(&mut world, &mut writer);
            world.left.store(end, Ordering::Relaxed);
            give_back::<T>(&mut node);
            drop(node);
            let (mut node, recovery) = world.begin::<T>();
            let Origin::Memory { finished_change, .. } = recovery.origin else {
                panic!("the memory was there: {recovery}");
            };
            finished += u64::from(finished_change);
            node.audit().unwrap_or_else(|e| panic!("{sync} after {end} of {stores} stores: {e}"));
            assert!(contents::<T>(&mut node, &writer) == model, "{sync} after {end} of {stores} stores");
            give_back::<T>(&mut node);
            writer.one(&mut node, WriteKind::Put, 4999, RecordToken::default(), &value::<T>(4999, 9, 8));
            node.audit().expect("every byte is right");
        }
        assert!(finished > 0, "{sync}: no change was left half done in {stores} stores");
    }
}

fn the_end_of_the_machine_undoes_nothing_that_was_synced<T: TestKeys>() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_secs(3600)), SyncPolicy::Never] {
        for seed in 0..12 {
            let mut world = World::new(sync, seed);
            let (mut node, _) = world.begin::<T>();
            load::<T>(&mut node, 40);
            let mut model = loaded::<T>(40);
            let mut states = vec![model.clone()];
            let mut writer = Writer::<T>::new(5);
            for n in 0..seed * 20 {
                let (kind, key, new) = draw::<T>(n ^ seed << 32);
                let wanted = apply(&mut model, kind, key, new.clone());
                let reply = writer.one(&mut node, kind, key, RecordToken::default(), &new);
                assert_eq!(reply.status, wanted);
                states.push(model.clone());
                if n % 7 == 0 {
                    while node.work() == Work::More {}
                }
            }
            drop(node);
            world.disk = world.disk.crash();
            world.region = Mortal::new(REGION, &world.left);
            world.recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &world.left);
            let (mut node, recovery) = world.begin::<T>();
            assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
            node.audit().expect("every byte is right");
            let found = contents::<T>(&mut node, &writer);
            let newest = states.iter().rposition(|state| *state == found);
            let newest =
                newest.unwrap_or_else(|| panic!("{sync}, seed {seed}: no state there ever was: {recovery}"));
            if sync == SyncPolicy::Always {
                assert_eq!(states[newest], model, "seed {seed}: {recovery}");
            }
            // Numbers of entries go on: a second end finds what the first one's successor wrote.
            writer.one(&mut node, WriteKind::Put, 4999, RecordToken::default(), &value::<T>(4999, 9, 8));
            drop(node);
            let (mut node, _) = world.begin::<T>();
            assert_eq!(writer.get(&mut node, 4999).map(|(value, _)| value), Some(value::<T>(4999, 9, 8)));
        }
    }
}

fn memory_of_another_start_of_the_machine_is_not_gone_on_with<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, recovery) = world.begin::<T>();
    assert_eq!(recovery.origin, Origin::Nothing);
    load::<T>(&mut node, 10);
    drop(node);
    let other = Startup { boot: [4; 16], ..startup(SyncPolicy::Always, 9) };
    let why_not = |startup| why_unusable(&world.memories(), &world.disk, startup).expect("a disk");
    assert!(why_not(&other).is_some_and(|why| why.contains("started anew")));
    assert_eq!(why_not(&startup(SyncPolicy::Always, 9)), None);
}

/// It was the same one as soon as two processes could not read it.
fn memory_of_an_unknown_start_of_the_machine_is_not_gone_on_with<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let unknown = |life| Startup { boot: UNKNOWN_BOOT, ..startup(SyncPolicy::Always, life) };
    let begun = restore(world.memories(), world.disk.clone(), &unknown(1), Background::Inline, None);
    let (mut node, _): (Node<T>, Recovery) = begun.expect("an empty store");
    load::<T>(&mut node, 10);
    let (mut writer, new) = (Writer::<T>::new(5), value::<T>(3, 7, 8));
    assert_eq!(
        writer.one(&mut node, WriteKind::Put, 3, RecordToken::default(), &new).status,
        WriteStatus::Done
    );
    drop(node);
    let known = startup(SyncPolicy::Always, 2);
    let why_not = |startup| why_unusable(&world.memories(), &world.disk, startup).expect("a disk");
    let before = why_not(&known);
    let why = why_not(&unknown(2)).expect("it may be another start");
    assert!(why.contains("boot_id") && why.contains("ProcSubset=all"), "{why}");
    assert!(before.is_some_and(|why| why.contains("the previous process could not read")));
    // What was acknowledged is on the disk, and the start says why it took that.
    (world.region, world.recovery_area) = lost(&world.left);
    world.disk = world.disk.crash();
    let begun = restore(world.memories(), world.disk.clone(), &unknown(2), Background::Inline, Some(why));
    let (mut node, recovery): (Node<T>, Recovery) = begun.expect("a snapshot and the log");
    assert_eq!(node.stats().keys, 11);
    assert_eq!(writer.get(&mut node, 3).map(|(value, _)| value), Some(new));
    assert!(recovery.to_string().contains("ProcSubset=all"), "{recovery}");
}

fn a_full_disk_refuses_writes_with_a_reason_and_reads_go_on<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    let mut writer = Writer::<T>::new(5);
    world.disk.fill_up_after(0);
    let refusal = writer.try_one(&mut node, WriteKind::Put, 3, RecordToken::default(), &value::<T>(3, 1, 8));
    let refusal = refusal.expect_err("a full disk");
    assert_eq!(refusal.code, ErrorCode::NotDurable, "{refusal}");
    assert!(refusal.message.contains("space"), "{refusal}");
    let mut other = Writer::<T>::new(6);
    let reply = other.one(&mut node, WriteKind::Put, 4, RecordToken::default(), &value::<T>(4, 1, 8));
    assert_eq!(reply.status, WriteStatus::NotDurable);
    assert!(node.stats().log_fails == 1 && node.stats().log_errors > 0, "{:?}", node.stats());
    assert_eq!(writer.get(&mut node, 50).map(|(value, _)| value), Some(value::<T>(50, 0, 8)));
    assert_eq!(writer.get(&mut node, 3), None, "not durable, not visible");
    world.disk.fill_up_after(u64::MAX);
    while node.stats().synced < node.stats().logged {
        node.work();
    }
    assert!(node.stats().log_fails == 0 && node.stats().log_errors > 0, "{:?}", node.stats());
    assert_eq!(
        writer.get(&mut node, 3).map(|(value, _)| value),
        Some(value::<T>(3, 1, 8)),
        "written down, and done at last"
    );
    let reply = other.one(&mut node, WriteKind::Put, 4, RecordToken::default(), &value::<T>(4, 1, 8));
    assert_eq!(reply.status, WriteStatus::Done);
}

/// Every write was refused, and the statistics said that the log took them: it does, but not before
/// there is a snapshot that it follows.
fn writes_that_are_refused_for_lack_of_a_snapshot_are_told_of<T: TestKeys>() {
    let mut world = World::new(SyncPolicy::Never, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    drop(node);
    for name in world.disk.list().expect("a folder") {
        if name.ends_with(".fps") {
            world.disk.remove(&name).expect("a file");
        }
    }
    world.disk.fill_up_after(0);
    let (mut node, recovery) = world.begin::<T>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    let mut writer = Writer::<T>::new(5);
    let put = |writer: &mut Writer<T>, node: &mut Node<T>| {
        let value = value::<T>(3, 1, 8);
        writer.try_one(node, WriteKind::Put, 3, RecordToken::default(), &value).map(|reply| reply.status)
    };
    (0..20).for_each(|_| {
        node.work();
    });
    let refused = put(&mut writer, &mut node);
    assert!(!matches!(refused, Ok(WriteStatus::Done)), "{refused:?}");
    assert_eq!(node.stats().log_fails, 1);
}

/// A write was staged that the full disk did not take. Done again at the next start, it was there
/// to be read, and the end of the machine undid it.
fn what_is_read_after_a_restart_on_a_full_disk_is_on_the_disk<T: TestKeys>() {
    let put = |writer: &mut Writer<T>, node: &mut Node<T>, n| {
        let value = value::<T>(3, n, 8);
        writer.try_one(node, WriteKind::Put, 3, RecordToken::default(), &value).map(|reply| reply.status)
    };
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 10);
    let mut writer = Writer::<T>::new(5);
    assert_eq!(put(&mut writer, &mut node, 1).ok(), Some(WriteStatus::Done));
    world.disk.fill_up_after(0);
    assert!(put(&mut writer, &mut node, 2).is_err(), "the disk is full");
    drop(node);
    // The table is not served, however often that is tried; or by a policy that promises less.
    for sync in [SyncPolicy::Always, SyncPolicy::Always, SyncPolicy::Interval(Duration::from_secs(3600))] {
        let mut tried = world.clone();
        (tried.region, tried.recovery_area) = (world.region.heir(), world.recovery_area.heir());
        world.disk = world.disk.restart();
        let startup = startup(sync, 2);
        assert_eq!(why_unusable(&tried.memories(), &world.disk, &startup).expect("a disk"), None);
        let begun = resume(tried.memories(), world.disk.clone(), &startup, Background::Inline);
        let begun: Result<(Node<T>, Recovery), _> = begun;
        (world.region, world.recovery_area) = (tried.region.heir(), tried.recovery_area.heir());
        match begun {
            Ok((mut node, _)) => {
                assert_ne!(sync, SyncPolicy::Always);
                assert_eq!(writer.get(&mut node, 3).map(|found| found.0), Some(value::<T>(3, 2, 8)));
            }
            Err(why) => {
                assert_eq!(sync, SyncPolicy::Always, "{why}");
                assert!(why.to_string().contains("make room there"), "{why}");
            }
        }
    }
    world.disk.fill_up_after(u64::MAX);
    let (mut node, recovery) = world.begin::<T>();
    assert!(matches!(recovery.origin, Origin::Memory { .. }), "{recovery}");
    let seen = writer.get(&mut node, 3).map(|found| found.0);
    assert_eq!(seen, Some(value::<T>(3, 2, 8)), "written down, and done at last");
    drop(node);
    world.disk = world.disk.crash();
    (world.region, world.recovery_area) = lost(&world.left);
    let (mut node, _) = world.begin::<T>();
    assert_eq!(writer.get(&mut node, 3).map(|found| found.0), seen);
}

for_all_keys_and_long_values!(
    the_process_may_end_at_any_store,
    the_process_may_end_at_any_store_of_giving_room_back,
    the_end_of_the_machine_undoes_nothing_that_was_synced,
    memory_of_another_start_of_the_machine_is_not_gone_on_with,
    memory_of_an_unknown_start_of_the_machine_is_not_gone_on_with,
    a_full_disk_refuses_writes_with_a_reason_and_reads_go_on,
    writes_that_are_refused_for_lack_of_a_snapshot_are_told_of,
    what_is_read_after_a_restart_on_a_full_disk_is_on_the_disk,
);
