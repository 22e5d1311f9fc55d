//! The layout of the staging ring.
//!
//! | offset | |
//! |---|---|
//! | 0 | magic u64, stored last when the ring is made |
//! | 8 | lineage u64 |
//! | 16 | capacity of the ring in bytes u64 |
//! | 24 | XXH3-64 of bytes 0–23 |
//! | 64 | tail: bytes ever staged |
//! | 72 | LSN of the last record staged: a hint, it may be one after the tail |
//! | 136 | the last record that the file at 176 can have, stored before its bytes |
//! | 144 | synced LSN: records up to it were on the disk |
//! | 152 | freed: bytes ever given back |
//! | 160 | LSN of the last record given back, stored before the bytes |
//! | 168 | LSN of the last record that the disk lost after it was given back; 0 if none |
//! | 176 | the file that the drain appends to: its first LSN |
//! | 184 | the most bytes that file can have, stored before they are appended; 0 while another begins |
//! | 192 | the ring; byte n ever staged lies at n mod capacity |
//!
//! The writer stores the words from 64 on, the drain those from 128 on; each has its own cache
//! lines.

use std::sync::Arc;

use fpcache_fabric::{AccessError, NodeMemory};
use xxhash_rust::xxh3::xxh3_64;

use super::error::StagingError;
use super::frame::MAX_PAYLOAD_BYTES;
use super::lsn::Lsn;

const MAGIC: u64 = u64::from_le_bytes(*b"FPCSTAG1");
const RING: u64 = 192;
/// The least capacity in bytes: the longest record, a quarter of it, is still of use.
const MIN_CAPACITY: u64 = 1024;

/// Words of the ring's header.
#[derive(Clone, Copy)]
pub(super) enum Word {
    Tail = 64,
    LastLsn = 72,
    FileLast = 136,
    SyncedLsn = 144,
    Freed = 152,
    FreedLsn = 160,
    LostLsn = 168,
    File = 176,
    FileBytes = 184,
}

/// A ring in memory, as the writer or the drain sees it.
pub(super) struct Ring<M> {
    memory: Arc<M>,
    base: u64,
    pub(super) capacity: u64,
    pub(super) lineage: u64,
}

impl<M> Clone for Ring<M> {
    fn clone(&self) -> Self {
        Self {
            memory: Arc::clone(&self.memory),
            base: self.base,
            capacity: self.capacity,
            lineage: self.lineage,
        }
    }
}

impl<M: NodeMemory> Ring<M> {
    /// Makes an empty ring whose next record is the one after `last`.
    pub(super) fn create(
        memory: Arc<M>,
        base: u64,
        len: u64,
        lineage: u64,
        last: Lsn,
    ) -> Result<Self, StagingError> {
        let capacity = capacity(base, len)?;
        let ring = Self { memory, base, capacity, lineage };
        ring.memory.store_release(base, 0)?;
        for word in [Word::Tail, Word::FileLast, Word::Freed, Word::LostLsn, Word::File, Word::FileBytes] {
            ring.store(word, 0)?;
        }
        for word in [Word::LastLsn, Word::SyncedLsn, Word::FreedLsn] {
            ring.store(word, last)?;
        }
        ring.memory.store_relaxed(base + 8, lineage)?;
        ring.memory.store_relaxed(base + 16, capacity)?;
        ring.memory.store_relaxed(base + 24, header_checksum(lineage, capacity))?;
        ring.memory.store_release(base, MAGIC)?;
        Ok(ring)
    }

    /// The ring that is there.
    pub(super) fn open(memory: Arc<M>, base: u64, len: u64) -> Result<Self, StagingError> {
        let expected = capacity(base, len)?;
        let word = |offset| memory.load_acquire(base + offset);
        let (magic, lineage, capacity, checksum) = (word(0)?, word(8)?, word(16)?, word(24)?);
        if magic == 0 {
            return Err(StagingError::Absent);
        }
        if magic != MAGIC || checksum != header_checksum(lineage, capacity) || capacity != expected {
            return Err(StagingError::Damaged {
                lsn: 0,
                why: "its header is not that of a ring of this size",
            });
        }
        Ok(Self { memory, base, capacity, lineage })
    }

    /// The longest payload that fits: a quarter of the ring, so that one record never fills it.
    pub(super) fn max_payload(&self) -> usize {
        MAX_PAYLOAD_BYTES.min((self.capacity / 4) as usize - 16) & !7
    }

    #[inline]
    pub(super) fn load(&self, word: Word) -> Result<u64, AccessError> {
        self.memory.load_acquire(self.base + word as u64)
    }

    #[inline]
    pub(super) fn store(&self, word: Word, value: u64) -> Result<(), AccessError> {
        self.memory.store_release(self.base + word as u64, value)
    }

    /// Notes which file is about to be begun, and the bytes that it can have before more are noted.
    /// A process that ends between the stores leaves a note of an empty file.
    pub(super) fn note_file(&self, first: Lsn, bytes: u64) -> Result<(), AccessError> {
        self.store(Word::FileBytes, 0)?;
        self.store(Word::File, first)?;
        self.store(Word::FileBytes, bytes)
    }

    /// Where byte `position` ever staged lies in the ring.
    #[inline]
    pub(super) fn place(&self, position: u64) -> u64 {
        position % self.capacity
    }

    /// Copies `bytes` to the ring from `place` on, around its end.
    #[inline]
    pub(super) fn write(&self, place: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let first = ((self.capacity - place) as usize).min(bytes.len());
        self.memory.write_bytes(self.base + RING + place, &bytes[..first])?;
        if first < bytes.len() {
            self.memory.write_bytes(self.base + RING, &bytes[first..])?;
        }
        Ok(())
    }

    /// Copies bytes out of the ring from `position` on, around its end.
    #[inline]
    pub(super) fn read(&self, position: u64, out: &mut [u8]) -> Result<(), AccessError> {
        let place = self.place(position);
        let first = ((self.capacity - place) as usize).min(out.len());
        self.memory.read_bytes(self.base + RING + place, &mut out[..first])?;
        if first < out.len() {
            self.memory.read_bytes(self.base + RING, &mut out[first..])?;
        }
        Ok(())
    }
}

fn header_checksum(lineage: u64, capacity: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&lineage.to_le_bytes());
    bytes[16..].copy_from_slice(&capacity.to_le_bytes());
    xxh3_64(&bytes)
}

fn capacity(base: u64, len: u64) -> Result<u64, StagingError> {
    if !base.is_multiple_of(8) {
        return Err(AccessError::Misaligned { offset: base }.into());
    }
    let capacity = len.saturating_sub(RING) & !7;
    if capacity < MIN_CAPACITY {
        Err(StagingError::TooSmall { len, min: RING + MIN_CAPACITY })
    } else {
        Ok(capacity)
    }
}
