//! A snapshot that is taken while writes go on has nothing but what was there when it began, and
//! with the log makes the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, post, value};
use crate::common::world::{Mortal, Node, REGION, RING, World, load, startup};
use crate::memory_disk::MemoryDisk;
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{RecordToken, Stored, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Work};
use fpcache_memserver::durability::{Disk, SnapshotReader, SyncPolicy};
use fpcache_memserver::store::{Background, Memories, Startup, recovery_area_bytes, restore, resume};

/// Numbers below a bound, one after the other.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// By key: version and value.
type Records = BTreeMap<u64, (u32, Vec<u8>)>;

fn table<T: TestKeys>(node: &mut Node<T>, writer: &Writer<T>, keys: impl Iterator<Item = u64>) -> Records {
    let found: Records = keys
        .filter_map(|key| writer.get(node, key).map(|(value, token)| (key, (token.version(), value))))
        .collect();
    assert_eq!(found.len() as u64, node.stats().keys, "there are other keys");
    found
}

fn snapshots(disk: &impl Disk) -> Vec<String> {
    let mut names = disk.list().expect("a folder");
    names.retain(|name| name.starts_with("snapshot-") && name.ends_with(".fps"));
    names.sort();
    names
}

/// What the newest snapshot holds, and its length.
fn snapshot<T: TestKeys>(world: &World) -> (Records, u64) {
    let mut disk = world.disk.clone();
    let (reader, skipped) = SnapshotReader::newest(&mut disk, None).expect("a folder");
    assert!(skipped.is_empty());
    let mut reader = reader.expect("a snapshot");
    let shape = TableParameters::decode::<T::Space>(reader.table_header()).expect("a table's header").shape;
    let mut records = Records::new();
    while let Some(record) = reader.next_record(&disk).expect("whole") {
        let (version, rest) = record.split_first_chunk().expect("a version");
        let parts = shape.parts::<T::Space>(rest).expect("a record");
        let view = T::Space::view(parts.key).expect("a key");
        let key = T::number(std::borrow::Borrow::borrow(&view));
        let Stored::Here(value) = parts.value else { panic!("values are in place") };
        assert!(records.insert(key, (u32::from_le_bytes(*version), value.to_vec())).is_none());
    }
    (records, reader.info().bytes)
}

/// A cold start after the end of the machine.
fn machine_ends<T: TestKeys>(world: &mut World) -> Node<T> {
    world.disk = world.disk.crash();
    world.region = Mortal::new(REGION, &world.left);
    world.recovery_area = Mortal::new(recovery_area_bytes(RING) as usize, &world.left);
    world.begin::<T>().0
}

fn a_snapshot_has_nothing_but_what_was_there_when_it_began<T: TestKeys>() {
    let (mut replaced, mut left_out) = (0, 0);
    for seed in 0..4 {
        let mut random = Random(seed);
        let sync = if seed % 2 == 0 { SyncPolicy::Always } else { SyncPolicy::Never };
        let mut world = World::new(sync, seed);
        let (mut node, _) = world.begin::<T>();
        load::<T>(&mut node, 300);
        let keys = || (0..15_000).filter(|n| n % 50 == 0 || n % 10 == 3);
        let mut writer = Writer::<T>::new(5);
        let mut write = |random: &mut Random, node: &mut Node<T>, n: u64| {
            let key = random.below(1500) * 10 + 3;
            // Many in a narrow range, so that segments are replaced.
            let key = if n.is_multiple_of(3) { key } else { key % 600 + n / 60 % 3 * 6000 };
            let kind = [WriteKind::Put, WriteKind::Put, WriteKind::Delete][random.below(3) as usize];
            writer.one(node, kind, key, RecordToken::default(), &value::<T>(key, n, 8)).status
        };
        for round in 0..3 {
            for n in 0..150 {
                write(&mut random, &mut node, n);
            }
            node.work();
            let before = snapshots(&world.disk);
            // What waits for the disk is not there yet.
            let puts = [17u64, 1017, 3017].map(|key| value::<T>(key / 50 * 50, 99 + round, 8));
            let waiting = batch::<T>(&[
                (WriteKind::Put, 0, &puts[0]),
                (WriteKind::Put, 1000, &puts[1]),
                (WriteKind::Delete, 3000, &[]),
            ]);
            let (handled, _) = post::<T>(&mut node, ClientId(7), &waiting.request(77, round + 1, false));
            assert_eq!(handled == Handled::Later, sync == SyncPolicy::Always);
            let reader = Writer::<T>::new(9);
            let there = table(&mut node, &reader, keys());
            node.begin_snapshot();
            while handled == Handled::Later && node.next_reply(&mut Vec::new()).is_none() {
                node.work();
            }
            let (mut n, mut rebuilds) = (10_000 * (round + 1), node.stats().rebuilds);
            while snapshots(&world.disk) == before {
                for _ in 0..random.below(6) {
                    n += 1;
                    write(&mut random, &mut node, n);
                }
                node.work();
                assert!(n < 10_000 * (round + 2), "the snapshot does not end");
            }
            rebuilds = node.stats().rebuilds - rebuilds;
            replaced += rebuilds;
            assert!(n % 10_000 > 10, "{n} writes meanwhile");
            let (taken, _) = snapshot::<T>(&world);
            for (key, record) in &taken {
                assert_eq!(there.get(key), Some(record), "seed {seed}: {key} was not there so");
            }
            let now = table(&mut node, &reader, keys());
            for (key, record) in there.iter().filter(|(key, record)| now.get(key) == Some(record)) {
                assert_eq!(taken.get(key), Some(record), "seed {seed}: {key} is in neither");
            }
            left_out += there.len() - taken.len();
        }
        while node.work() == Work::More {}
        let reader = Writer::<T>::new(9);
        let there = table(&mut node, &reader, keys());
        // With a policy that does not sync, the log is on the disk when a snapshot is.
        let before = snapshots(&world.disk);
        node.begin_snapshot();
        while snapshots(&world.disk) == before {
            node.work();
        }
        drop(node);
        let mut node = machine_ends::<T>(&mut world);
        assert_eq!(table(&mut node, &reader, keys()), there, "seed {seed}");
        node.audit().expect("every byte is right");
    }
    assert!(replaced > 8 && left_out > 40, "{replaced} segments replaced, {left_out} records left out");
}

fn a_queue_does_not_fill_the_snapshots_that_are_taken_of_it<T: TestKeys>() {
    const WAITING: u64 = 60;
    let mut world = World::new(SyncPolicy::Always, 3);
    let (mut node, _) = world.begin::<T>();
    load::<T>(&mut node, 0);
    let mut writer = Writer::<T>::new(5);
    let of = |n: u64| value::<T>(n, 1, 8);
    let mut put = |node: &mut Node<T>, n: u64| {
        let put = writer.one(node, WriteKind::Put, n, RecordToken::default(), &of(n));
        assert_eq!(put.status, WriteStatus::Done);
        if n >= WAITING {
            let gone = writer.one(node, WriteKind::Delete, n - WAITING, RecordToken::default(), &[]);
            assert_eq!(gone.status, WriteStatus::Done);
        }
    };
    (0..WAITING).for_each(|n| put(&mut node, n));
    let mut head = WAITING;
    for _ in 0..4 {
        node.work();
        let before = snapshots(&world.disk);
        node.begin_snapshot();
        while snapshots(&world.disk) == before {
            // Far faster than the snapshot goes on.
            for _ in 0..20 {
                put(&mut node, head);
                head += 1;
            }
            node.work();
        }
        let (taken, bytes) = snapshot::<T>(&world);
        let most: usize = (head - WAITING..head).map(|n| of(n).len() + 100).sum();
        assert!(taken.len() <= WAITING as usize && bytes < 4096 + most as u64, "{} in {bytes}", taken.len());
    }
    drop(node);
    let mut node = machine_ends::<T>(&mut world);
    let reader = Writer::<T>::new(9);
    let there = table(&mut node, &reader, 0..head);
    assert!(there.keys().copied().eq(head - WAITING..head), "{head}");
}

/// One is due after 64 MiB of the log, and each life writes two elevenths of that.
#[test]
fn lives_too_short_for_a_snapshot_come_to_one_together() {
    const VALUE: usize = 400_000;
    const PUTS: u64 = (64 << 20) * 2 / 11 / VALUE as u64 + 1;
    const RING_BYTES: u64 = 1 << 20;
    let memory = |bytes| Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    let (region, recovery_area) = (memory(8 << 20), memory(recovery_area_bytes(RING_BYTES) as usize));
    let memories = || Memories::new(Arc::clone(&region), Arc::clone(&recovery_area));
    let mut disk = MemoryDisk::new(1);
    let (mut writer, mut taken_in) = (Writer::<LongValues>::new(5), Vec::new());
    for life in 1..=8 {
        let startup = Startup { ring_bytes: RING_BYTES, ..startup(SyncPolicy::Never, life) };
        disk = disk.restart();
        let (there, inline) = (disk.clone(), Background::Inline);
        let (mut node, _) = if life == 1 {
            restore::<U64Keys, _, _>(memories(), there, &startup, inline, None).expect("a beginning")
        } else {
            resume::<U64Keys, _, _>(memories(), there, &startup, inline).expect("the memory is whole")
        };
        if life == 1 {
            let none: [(u64, Vec<u8>); 0] = [];
            node.load_records(LongValues::parameters(8), (), none.into_iter()).expect("room");
        }
        let before = snapshots(&disk);
        for key in 0..PUTS {
            let put = writer.one(
                &mut node,
                WriteKind::Put,
                key % 3,
                RecordToken::default(),
                &vec![life as u8; VALUE],
            );
            assert_eq!(put.status, WriteStatus::Done);
            while matches!(node.work(), Work::More) {}
        }
        if snapshots(&disk) != before {
            taken_in.push(life);
        }
    }
    assert_eq!(taken_in, [6]);
}

/// The slot of a deleted record was taken by one of a key that had been passed, which was then
/// taken, too: no start could read that snapshot.
#[test]
fn the_keys_of_a_snapshot_ascend_whatever_takes_the_slots_of_deleted_records() {
    const VALUE: u32 = 8 << 10;
    const RING_BYTES: u64 = 1 << 20;
    let memory = |bytes| Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    let value = |n: u64| vec![n as u8; VALUE as usize];
    for seed in 0..60 {
        let mut disk = MemoryDisk::new(seed);
        let begin = |disk: &MemoryDisk, life| {
            let memories = Memories::new(memory(6 << 20), memory(recovery_area_bytes(RING_BYTES) as usize));
            let startup = Startup { ring_bytes: RING_BYTES, ..startup(SyncPolicy::Never, life) };
            restore::<U64Keys, _, _>(memories, disk.clone(), &startup, Background::Inline, None)
        };
        let (mut node, _) = begin(&disk, 1).expect("a beginning");
        let records = (0..120u32).map(|n| (u64::from(2 * n), value(n.into())));
        node.load_records(Integers::parameters(VALUE), (), records).expect("room");
        let (mut writer, mut random) = (Writer::<Integers>::new(5), Random(seed));
        // Snapshots are named by the entry that they begin with: not the load's again.
        writer.one(&mut node, WriteKind::Put, 1, RecordToken::default(), &value(1));
        let before = snapshots(&disk);
        node.begin_snapshot();
        while snapshots(&disk) == before {
            // Wherever the snapshot has got to, some of these lie on both sides of it.
            let middle = random.below(180);
            for key in (middle + 30..middle + 60).filter(|key| key % 2 == 0) {
                writer.one(&mut node, WriteKind::Delete, key, RecordToken::default(), &[]);
            }
            for key in (middle..middle + 30).filter(|key| key % 2 == 1) {
                writer.one(&mut node, WriteKind::Put, key, RecordToken::default(), &value(key));
            }
            node.work();
        }
        let (reader, _) = SnapshotReader::newest(&mut disk, None).expect("a folder");
        let (mut reader, mut last) = (reader.expect("a snapshot"), None);
        while let Some(record) = reader.next_record(&disk).expect("whole") {
            let key = record.get(4..).and_then(|rest| rest.first_chunk()).map(|key| u64::from_le_bytes(*key));
            assert!(last < key, "seed {seed}: {key:?} after {last:?}");
            last = key;
        }
        begin(&disk.crash(), 2).expect("the snapshot is read");
    }
}

for_all_keys_and_long_values!(
    a_snapshot_has_nothing_but_what_was_there_when_it_began,
    a_queue_does_not_fill_the_snapshots_that_are_taken_of_it,
);
