//! The end of the process at any store, and the end of the machine at any moment, undo nothing that was acknowledged.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::requests::{Writer, value};
use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{ErrorCode, WriteKind, WriteStatus};
use fpcache_fabric::{AccessError, NodeMemory, Service, SharedMemory, Work};
use fpcache_memserver::durability::{MemoryDisk, SyncPolicy};
use fpcache_memserver::store::{Background, Beginning, Memories, can_resume, notes_bytes, restore, resume};
use fpcache_memserver::{MemoryNode, Origin, Recovery};

const RING: u64 = 64 << 10;
const REGION: usize = 512 << 10;

/// Memory whose owner ends after a number of stores: it goes on without noticing, but what it stores then has never been.
#[derive(Clone, Debug)]
struct Mortal {
    /// As the owner sees it.
    own: Arc<SharedMemory>,
    /// As it is left behind.
    left_behind: Arc<SharedMemory>,
    left: Arc<AtomicU64>,
}

impl Mortal {
    fn new(len: usize, left: &Arc<AtomicU64>) -> Arc<Self> {
        let memory = || Arc::new(SharedMemory::anonymous(len).expect("memory"));
        Arc::new(Self { own: memory(), left_behind: memory(), left: Arc::clone(left) })
    }

    /// The memory that the owner left behind.
    fn heir(&self) -> Arc<Self> {
        let mut bytes = vec![0; SharedMemory::len(&self.own)];
        self.left_behind.read_bytes(0, &mut bytes).expect("inside");
        let heir = Self::new(bytes.len(), &self.left);
        heir.own.write_bytes(0, &bytes).expect("inside");
        heir.left_behind.write_bytes(0, &bytes).expect("inside");
        heir
    }

    fn lives(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl NodeMemory for Mortal {
    fn len(&self) -> u64 {
        NodeMemory::len(&*self.own)
    }

    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        NodeMemory::read_bytes(&*self.own, offset, out)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.own.write_bytes(offset, bytes)?;
        // Word by word, each of which may be the last.
        let mut at = 0;
        while at < bytes.len() {
            let end = ((offset as usize + at) / 8 * 8 + 8 - offset as usize).min(bytes.len());
            if self.lives() {
                self.left_behind.write_bytes(offset + at as u64, &bytes[at..end])?;
            }
            at = end;
        }
        Ok(())
    }

    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        (0..count as u64).try_for_each(|i| self.store_relaxed(offset + 8 * i, value))
    }

    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        self.own.load_relaxed(offset)
    }

    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        self.own.load_acquire(offset)
    }

    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.own.store_relaxed(offset, value)?;
        if self.lives() { self.left_behind.store_relaxed(offset, value) } else { Ok(()) }
    }

    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.store_relaxed(offset, value)
    }

    fn release(&self) {}
}

type Node = MemoryNode<U64Keys, Mortal>;

fn beginning(sync: SyncPolicy, incarnation: u64) -> Beginning {
    let (boot, node, now) = ([3; 16], 0, Instant::now());
    Beginning { sync, ring_bytes: RING, boot, incarnation, lineage: 77, node, now }
}

struct World {
    left: Arc<AtomicU64>,
    region: Arc<Mortal>,
    notes: Arc<Mortal>,
    disk: MemoryDisk,
    sync: SyncPolicy,
    lives: u64,
}

impl World {
    fn new(sync: SyncPolicy, seed: u64) -> Self {
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let region = Mortal::new(REGION, &left);
        let notes = Mortal::new(notes_bytes(RING) as usize, &left);
        Self { left, region, notes, disk: MemoryDisk::new(seed), sync, lives: 0 }
    }

    fn memories(&self) -> Memories<Mortal> {
        Memories { region: Arc::clone(&self.region), notes: Arc::clone(&self.notes) }
    }

    /// A memory node that goes on in whatever way it can.
    fn begin(&mut self) -> (Node, Recovery) {
        self.left.store(u64::MAX, Ordering::Relaxed);
        self.lives += 1;
        (self.region, self.notes) = (self.region.heir(), self.notes.heir());
        self.disk = self.disk.restart();
        let beginning = beginning(self.sync, self.lives);
        match can_resume(&self.memories(), &beginning) {
            Ok(()) => resume(self.memories(), self.disk.clone(), &beginning, Background::Inline),
            Err(why) => {
                self.region = Mortal::new(REGION, &self.left);
                self.notes = Mortal::new(notes_bytes(RING) as usize, &self.left);
                restore(self.memories(), self.disk.clone(), &beginning, Background::Inline, Some(why))
            }
        }
        .unwrap_or_else(|error| panic!("nothing is damaged: {error}"))
    }
}

fn parameters() -> TableParameters {
    TableParameters { epsilon: 4, max_slots: 64, ..TableParameters::default() }
}

fn load(node: &mut Node, keys: u64) {
    let fill = |i: usize, out: &mut [u8]| out.copy_from_slice(&value(i as u64 * 50, 0, out.len()));
    node.load(parameters(), (0..keys).map(|i| i * 50).collect::<Vec<_>>().into_iter(), fill).expect("room");
}

/// A write and how it is to end, drawn from a number.
fn draw(n: u64) -> (WriteKind, u64, Vec<u8>) {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let kind = [WriteKind::Put, WriteKind::Insert, WriteKind::Put, WriteKind::Delete][mixed as usize % 4];
    // Most in one narrow range, which fills up.
    let key = if mixed.is_multiple_of(5) { mixed % 5000 } else { 700 + mixed % 90 };
    (kind, key, value(key, n, 8))
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

fn contents(node: &mut Node, writer: &Writer) -> BTreeMap<u64, Vec<u8>> {
    (0..5000).filter_map(|key| writer.get(node, key).map(|(value, _)| (key, value))).collect()
}

fn loaded(keys: u64) -> BTreeMap<u64, Vec<u8>> {
    (0..keys).map(|i| (i * 50, value(i * 50, 0, 8))).collect()
}

#[test]
fn the_process_may_end_at_any_store() {
    for sync in [SyncPolicy::Interval(Duration::ZERO), SyncPolicy::Always, SyncPolicy::Never] {
        let (mut ends, mut redone, mut finished) = (0, 0, 0);
        let mut stores = 1;
        // Each round ends some stores later than the one before: a few thousand ends, in every part of what a node does.
        while stores < 6_000 {
            let mut world = World::new(sync, stores);
            let (mut node, _) = world.begin();
            load(&mut node, 40);
            let mut model = loaded(40);
            let mut writer = Writer::new(5, 8);
            world.left.store(stores, Ordering::Relaxed);
            let mut last = None;
            for n in 0.. {
                let (kind, key, new) = draw(n);
                let before = model.clone();
                let wanted = apply(&mut model, kind, key, new.clone());
                let reply = writer.try_one(&mut node, kind, key, RecordToken::default(), &new);
                if world.left.load(Ordering::Relaxed) == 0 {
                    last = Some((before, kind, key, new));
                    break;
                }
                assert_eq!(reply.map(|reply| reply.status), Ok(wanted));
                if n % 3 == 0 {
                    while node.work() == Work::More {}
                }
                if world.left.load(Ordering::Relaxed) == 0 {
                    break;
                }
            }
            drop(node);
            let (mut node, recovery) = world.begin();
            let Origin::Memory { redone: more, finished_change } = recovery.origin else {
                panic!("the memory was there: {recovery}");
            };
            ends += 1;
            redone += u64::from(more > 0);
            finished += u64::from(finished_change);
            node.audit().unwrap_or_else(|e| panic!("{sync} after {stores} stores: {e}"));
            let found = contents(&mut node, &writer);
            if let Some((before, kind, key, new)) = last {
                // The one in hand was done or not, and sent again it is not done twice.
                assert!(found == before || found == model, "{sync} after {stores} stores: {kind:?} {key}");
                match writer.again(&mut node, kind, key, RecordToken::default(), &new) {
                    Ok(_) => assert_eq!(contents(&mut node, &writer), model, "{sync} after {stores} stores"),
                    Err(refusal) => assert!(refusal.message.contains("sent before"), "{refusal}"),
                }
            } else {
                assert!(found == model, "{sync} after {stores} stores");
            }
            // And it serves on.
            writer.one(&mut node, WriteKind::Put, 4999, RecordToken::default(), &[9; 8]);
            node.audit().expect("every byte is right");
            stores += 1 + stores / 30;
        }
        assert!(
            ends > 100 && redone > 10 && finished > 3,
            "{sync}: {ends} ends, {redone} redone, {finished} finished"
        );
    }
}

#[test]
fn the_end_of_the_machine_undoes_nothing_that_was_synced() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_secs(3600)), SyncPolicy::Never] {
        for seed in 0..12 {
            let mut world = World::new(sync, seed);
            let (mut node, _) = world.begin();
            load(&mut node, 40);
            let mut model = loaded(40);
            let mut states = vec![model.clone()];
            let mut writer = Writer::new(5, 8);
            for n in 0..seed * 20 {
                let (kind, key, new) = draw(n ^ seed << 32);
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
            world.notes = Mortal::new(notes_bytes(RING) as usize, &world.left);
            let (mut node, recovery) = world.begin();
            assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
            node.audit().expect("every byte is right");
            let found = contents(&mut node, &writer);
            let newest = states.iter().rposition(|state| *state == found);
            let newest =
                newest.unwrap_or_else(|| panic!("{sync}, seed {seed}: no state there ever was: {recovery}"));
            if sync == SyncPolicy::Always {
                assert_eq!(states[newest], model, "seed {seed}: {recovery}");
            }
            // Numbers of entries go on: a second end finds what the first one's successor wrote.
            writer.one(&mut node, WriteKind::Put, 4999, RecordToken::default(), &[9; 8]);
            drop(node);
            let (mut node, _) = world.begin();
            assert_eq!(writer.get(&mut node, 4999).map(|(value, _)| value), Some(vec![9; 8]));
        }
    }
}

#[test]
fn memory_of_another_start_of_the_machine_is_not_gone_on_with() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, recovery) = world.begin();
    assert_eq!(recovery.origin, Origin::Nothing);
    load(&mut node, 10);
    drop(node);
    let other = Beginning { boot: [4; 16], ..beginning(SyncPolicy::Always, 9) };
    assert!(can_resume(&world.memories(), &other).is_err_and(|why| why.contains("started anew")));
    assert_eq!(can_resume(&world.memories(), &beginning(SyncPolicy::Always, 9)), Ok(()));
}

#[test]
fn a_full_disk_refuses_writes_with_a_reason_and_reads_go_on() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin();
    load(&mut node, 10);
    let mut writer = Writer::new(5, 8);
    world.disk.fill_up_after(0);
    let refusal = writer.try_one(&mut node, WriteKind::Put, 3, RecordToken::default(), &[1; 8]);
    let refusal = refusal.expect_err("a full disk");
    assert_eq!(refusal.code, ErrorCode::NotDurable, "{refusal}");
    assert!(refusal.message.contains("space"), "{refusal}");
    let mut other = Writer::new(6, 8);
    let reply = other.one(&mut node, WriteKind::Put, 4, RecordToken::default(), &[1; 8]);
    assert_eq!(reply.status, WriteStatus::NotDurable);
    assert_eq!(writer.get(&mut node, 50).map(|(value, _)| value), Some(value(50, 0, 8)));
    assert_eq!(writer.get(&mut node, 3), None, "not durable, not visible");
    world.disk.fill_up_after(u64::MAX);
    while node.stats().synced < node.stats().logged {
        node.work();
    }
    assert_eq!(
        writer.get(&mut node, 3).map(|(value, _)| value),
        Some(vec![1; 8]),
        "written down, and done at last"
    );
    let reply = other.one(&mut node, WriteKind::Put, 4, RecordToken::default(), &[1; 8]);
    assert_eq!(reply.status, WriteStatus::Done);
}
