//! Steps between requests read about as many bytes of tables whose slots are long as of others.

use std::sync::atomic::{AtomicU64, Ordering};

use fpcache::key_space::{BuildKeys, ByteKeys};
use fpcache::layout::RecordShape;
use fpcache_fabric::{AccessError, NodeMemory, Work};
use fpcache_memserver::store::{Background, Memories, recovery_area_bytes, restore};

use super::common::mix;
use super::common::world::{RING, startup};
use super::memory_disk::MemoryDisk;
use super::*;

/// Most bytes that a step reads: of two whole segments, and what is copied for new ones.
const MOST: u64 = 4 << 20;

/// Memory that counts the bytes that its owner reads.
#[derive(Debug)]
struct Counted {
    memory: SharedMemory,
    read: AtomicU64,
}

impl Counted {
    fn new(len: usize) -> Arc<Self> {
        Arc::new(Self { memory: SharedMemory::anonymous(len).expect("memory"), read: AtomicU64::new(0) })
    }

    fn count(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were read since the last time.
    fn take(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

impl NodeMemory for Counted {
    fn len(&self) -> u64 {
        NodeMemory::len(&self.memory)
    }

    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        self.count(out.len());
        NodeMemory::read_bytes(&self.memory, offset, out)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        NodeMemory::write_bytes(&self.memory, offset, bytes)
    }

    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        NodeMemory::fill_words(&self.memory, offset, count, value)
    }

    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        self.count(8);
        NodeMemory::load_relaxed(&self.memory, offset)
    }

    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        self.count(8);
        NodeMemory::load_acquire(&self.memory, offset)
    }

    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        NodeMemory::store_relaxed(&self.memory, offset, value)
    }

    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        NodeMemory::store_release(&self.memory, offset, value)
    }

    fn release(&self) {
        NodeMemory::release(&self.memory);
    }
}

/// A memory node over counted memory of this many bytes, without a log.
fn counted<K: BuildKeys>(bytes: usize) -> (MemoryNode<K, Counted>, Arc<Counted>) {
    let memory = Counted::new(bytes);
    (MemoryNode::new(Arc::clone(&memory), 1, 0, Instant::now()).expect("a region"), memory)
}

/// The most bytes that a step reads until there is nothing more to do.
fn most_read(memory: &Counted, node: &mut impl Service) -> u64 {
    memory.take();
    let mut most = 0;
    while node.work() == Work::More {
        most = most.max(memory.take());
    }
    most
}

#[test]
fn a_table_of_long_values_retrains_on_its_keys_alone() {
    let (mut node, memory) = counted::<ByteKeys>(128 << 20);
    let shape = RecordShape { key_bytes: None, value_bytes: Some(8 << 10), room: (8 << 10) + 200 };
    let parameters = TableParameters { shape, epsilon: 8, ..TableParameters::default() };
    // Most as long as keys usually are.
    let key = |i: u64| {
        format!("user{:0>1$}", mix(i) >> 1, if i.is_multiple_of(10) { 150 } else { 19 }).into_bytes()
    };
    let mut keys: Vec<Vec<u8>> = (0..5_000).map(key).collect();
    keys.sort_unstable();
    let value = vec![7; 8 << 10];
    node.load_records(parameters, Default::default(), keys.into_iter().map(|key| (key, &value)))
        .expect("room");
    let before = node.stats().segments;
    let most = most_read(&memory, &mut node);
    assert!(node.stats().segments < before, "it did not retrain: {before} segments");
    assert!(most < MOST, "{most} bytes in a step");
    node.audit().expect("whole");
}

#[test]
fn segments_of_long_slots_are_searched_for_values_a_few_in_a_step() {
    let (mut node, memory) = counted::<U64Keys>(96 << 20);
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 16 << 10 };
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let value = |i: u32| vec![7; if i == 0 { 20 << 10 } else { 8 }];
    node.load_records(parameters, (), (0..2_000u32).map(|i| (u64::from(i) * 1000, value(i)))).expect("room");
    while node.work() == Work::More {}
    node.empty(64 << 20..96 << 20);
    let most = most_read(&memory, &mut node);
    assert!(most < MOST, "{most} bytes in a step");
    node.audit().expect("whole");
}

#[test]
fn a_snapshot_reads_long_values_without_their_segment_again_and_again() {
    const VALUE: usize = 128 << 10;
    let memory = Counted::new(32 << 20);
    let recovery_area = Counted::new(recovery_area_bytes(RING) as usize);
    let memories = Memories::new(Arc::clone(&memory), recovery_area).limited(32 << 20);
    let startup = startup(SyncPolicy::Never, 1);
    let begun = restore(memories, MemoryDisk::new(1), &startup, Background::Inline, None);
    let (mut node, _): (MemoryNode<U64Keys, Counted>, _) = begun.expect("nothing is damaged");
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 4 << 10 };
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let records = (0..150u32).map(|i| (u64::from(i) * 1000, vec![i as u8; VALUE]));
    node.load_records(parameters, (), records).expect("room");
    // What a load leaves, and the snapshot that it began.
    (0..1_000).for_each(|_| _ = node.work());
    assert_eq!(node.stats().segments, 1);
    memory.take();
    node.begin_snapshot();
    (0..1_000).for_each(|_| _ = node.work());
    let (read, values) = (memory.take(), 150 * VALUE as u64);
    assert!((values..values + MOST).contains(&read), "{read} bytes of {values} of values");
}
