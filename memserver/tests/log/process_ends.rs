//! The process may end between any two stores to the ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::common::{LINEAGE, RING_BYTES, assert_holds, memory, options, payload, read_all};
use crate::memory_disk::MemoryDisk;
use fpcache_fabric::{AccessError, NodeMemory, SharedMemory};
use fpcache_memserver::durability::{AppendError, Drain, Lsn, Staging, StagingError, SyncPolicy};

#[derive(Debug)]
struct Mortal {
    memory: Arc<SharedMemory>,
    words_left: AtomicU64,
}

impl Mortal {
    /// How many of `words` stores are still made.
    fn stores(&self, words: u64) -> u64 {
        let left = self.words_left.load(Ordering::Relaxed);
        self.words_left.store(left.saturating_sub(words), Ordering::Relaxed);
        left.min(words)
    }

    fn word(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        if self.stores(1) == 0 {
            Err(AccessError::ReadOnly)
        } else {
            self.memory.store_release(offset, value)
        }
    }
}

impl NodeMemory for Mortal {
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        Ok(self.memory.read_bytes(offset, out)?)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let words = bytes.len().div_ceil(8) as u64;
        let made = self.stores(words);
        self.memory.write_bytes(offset, &bytes[..bytes.len().min(made as usize * 8)])?;
        if made < words { Err(AccessError::ReadOnly) } else { Ok(()) }
    }

    fn fill_words(&self, _: u64, _: usize, _: u64) -> Result<(), AccessError> {
        Err(AccessError::ReadOnly)
    }

    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        self.memory.load_relaxed(offset)
    }

    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        self.memory.load_acquire(offset)
    }

    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word(offset, value)
    }

    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word(offset, value)
    }

    fn release(&self) {}
}

/// Appends and drains until memory takes no more stores; returns the last record that was
/// acknowledged.
fn live(mortal: Arc<Mortal>, disk: &MemoryDisk, sync: SyncPolicy) -> Option<Lsn> {
    let mut staging = Staging::create(mortal, 0, RING_BYTES, LINEAGE, 0).ok()?;
    let mut drain = Drain::open(&staging, disk.clone(), options(sync)).ok();
    let now = Instant::now();
    for lsn in 1..=120 {
        match staging.append(&payload(lsn)) {
            Ok(got) => assert_eq!(got, lsn),
            Err(AppendError::Memory(_)) => return Some(lsn - 1),
            Err(e) => panic!("{e}"),
        }
        if lsn % 5 == 0 && drain.as_mut()?.step(now).is_err() {
            return Some(lsn);
        }
    }
    Some(120)
}

#[test]
fn a_process_may_end_between_any_two_stores() {
    for sync in [SyncPolicy::Always, SyncPolicy::Never] {
        for words in 0..1200 {
            let (memory, disk) = (memory(), MemoryDisk::new(words));
            let mortal = Arc::new(Mortal { memory: Arc::clone(&memory), words_left: AtomicU64::new(words) });
            let acknowledged = live(mortal, &disk, sync);
            let mut disk = disk.restart();
            let staging = Staging::open(memory, 0, RING_BYTES);
            let Some(acknowledged) = acknowledged else {
                assert!(
                    matches!(staging, Err(StagingError::Absent)) || staging.is_ok_and(|s| s.last_lsn() == 0)
                );
                continue;
            };
            let staging = staging.unwrap();
            let last = staging.last_lsn();
            assert!(
                last == acknowledged || last == acknowledged + 1,
                "{last} after {acknowledged}, {words} words"
            );
            let mut drain = Drain::open(&staging, disk.clone(), options(sync)).unwrap();
            drain.finish(Instant::now()).unwrap();
            assert_holds(&mut disk, last);
        }
    }
}

/// It ends in the midst of a sync, and the machine before the next process has synced anything:
/// what the first said to be synced is there.
#[test]
fn a_process_that_ends_within_a_sync_leaves_what_it_said_to_be_synced() {
    const ALL: u64 = u64::MAX;
    let (mut unsynced, mut synced) = (0, 0);
    for words in 0..12 {
        for seed in 0..4 {
            let (memory, disk) = (memory(), MemoryDisk::new(seed));
            let mortal = Arc::new(Mortal { memory: Arc::clone(&memory), words_left: AtomicU64::new(ALL) });
            let mut staging = Staging::create(Arc::clone(&mortal), 0, RING_BYTES, LINEAGE, 0).unwrap();
            let mut drain = Drain::open(&staging, disk.clone(), options(SyncPolicy::Always)).unwrap();
            (1..=9).for_each(|lsn| assert_eq!(staging.append(&payload(lsn)), Ok(lsn)));
            mortal.words_left.store(words, Ordering::Relaxed);
            let has_ended = drain.step(Instant::now()).is_err();
            // By what is in memory the serving thread acknowledges.
            let said = staging.synced_lsn().unwrap();
            (unsynced, synced) = (unsynced + u64::from(has_ended), synced + u64::from(said == 9));
            let disk = disk.restart();
            let staging = Staging::open(memory, 0, RING_BYTES).unwrap();
            assert_eq!(staging.last_lsn(), 9);
            let drain = Drain::open(&staging, disk.clone(), options(SyncPolicy::Always)).unwrap();
            drop(drain);
            let (found, _) = read_all(&mut disk.crash()).unwrap();
            assert!(found.len() as Lsn >= said, "{} of {said} are left after {words} words", found.len());
        }
    }
    assert!(unsynced > 0 && synced > 0, "the sync is among the stores");
}
