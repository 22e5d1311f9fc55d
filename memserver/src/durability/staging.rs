//! The staging ring: records on their way to the log, in memory that survives the process.

use std::sync::Arc;

use fpcache_fabric::{AccessError, NodeMemory};

use super::error::{LogError, StagingError};
use super::frame::{self, Fault, Frame, encode_record, frame_bytes};
use super::lsn::{Lsn, MAX_LSN};
use super::ring::{Ring, Word};
use super::signals::Signals;

/// The writer's end of the log.
///
/// [`append`](Self::append) copies a record into the ring and is done: the end of the process takes
/// nothing from it. The [`Drain`](super::Drain) writes what is staged to files and gives the room
/// back once it is synced (with [`SyncPolicy::Never`](super::SyncPolicy::Never), once it is
/// written), so after a failed sync the ring still has all that may be lost.
pub struct Staging<M> {
    ring: Ring<M>,
    signals: Arc<Signals>,
    frame: Vec<u8>,
    /// Bytes ever staged, and where the next lies in the ring.
    tail: u64,
    place: u64,
    last: Lsn,
    /// The bytes given back, as far as the writer has looked.
    freed: u64,
    max_payload: usize,
}

/// What a ring's header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingHeader {
    /// The log's random number.
    pub(crate) lineage: u64,
    /// The last record staged; there may be one more, not yet announced.
    pub(crate) last: Lsn,
    /// The last record that the drain had brought to the disk.
    pub(crate) synced: Lsn,
    /// The last record that the disk lost after it was given back; 0 if none.
    pub(crate) lost: Lsn,
}

/// A record that was not staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The ring has no room until the drain has synced.
    #[error(
        "the log's staging ring is full; wait for the disk (`Staging::failure` tells whether it fails), or enlarge the ring"
    )]
    Full,
    /// The record is longer than the ring takes.
    #[error("a log record of {len} bytes exceeds the limit of {max}; split it, or enlarge the staging ring")]
    TooLong {
        /// Bytes of the payload.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The memory does not take the ring's bytes.
    #[error("the log's staging ring cannot be written: {0}")]
    Memory(#[from] AccessError),
}

impl<M: NodeMemory> Staging<M> {
    /// Makes an empty ring in `len` bytes of `memory` from the 8-aligned `offset` on. Its next
    /// record is the one after `last`; `lineage` is the log's random number.
    ///
    /// # Errors
    /// If the place is not in the memory, not aligned, or smaller than 1.2 KB.
    pub fn create(
        memory: Arc<M>,
        offset: u64,
        len: u64,
        lineage: u64,
        last: Lsn,
    ) -> Result<Self, StagingError> {
        let ring = Ring::create(memory, offset, len, lineage, last)?;
        Ok(Self::at(ring, 0, 0, last))
    }

    /// Takes up the ring of a process that has ended, at any instant: exactly the records it staged
    /// whole are there. Checks every record that the ring holds.
    ///
    /// # Errors
    /// If there is none, or its bytes are not what a writer leaves.
    pub fn open(memory: Arc<M>, offset: u64, len: u64) -> Result<Self, StagingError> {
        let ring = Ring::open(memory, offset, len)?;
        let (tail, freed, freed_lsn) =
            (ring.load(Word::Tail)?, ring.load(Word::Freed)?, ring.load(Word::FreedLsn)?);
        if freed > tail
            || tail - freed > ring.capacity
            || !(tail | freed).is_multiple_of(8)
            || freed_lsn > MAX_LSN
        {
            return Err(StagingError::Damaged { lsn: freed_lsn, why: "its bounds are impossible" });
        }
        let mut staging = Self::at(ring, tail, freed, freed_lsn);
        let last = staging.check()?;
        staging.last = last;
        staging.ring.store(Word::LastLsn, last)?;
        Ok(staging)
    }

    fn at(ring: Ring<M>, tail: u64, freed: u64, last: Lsn) -> Self {
        let (place, max_payload) = (ring.place(tail), ring.max_payload());
        Self { ring, signals: Arc::default(), frame: Vec::new(), tail, place, last, freed, max_payload }
    }

    /// Checks what the ring holds and returns the LSN of its last record. Makes the LSN of the last
    /// record given back agree with the bytes given back: the process may have ended between its
    /// two stores.
    fn check(&self) -> Result<Lsn, StagingError> {
        let freed_lsn = self.ring.load(Word::FreedLsn)?;
        let mut records = StagedRecords::new(self.ring.clone(), self.freed, self.tail, None);
        let mut last = freed_lsn;
        let mut is_first = true;
        while let Some((lsn, _)) = records.next_record()? {
            if is_first {
                if lsn == 0 || lsn > freed_lsn.saturating_add(1) {
                    return Err(StagingError::Damaged { lsn: freed_lsn, why: "records are missing" });
                }
                self.ring.store(Word::FreedLsn, lsn - 1)?;
                is_first = false;
            }
            last = lsn;
        }
        Ok(last)
    }

    /// Stages a record and returns its LSN. Wakes the drain's thread if that waits for work or the
    /// ring is half full; once in a very long while it notices a millisecond late,
    /// [`want_sync`](Self::want_sync) makes sure.
    ///
    /// # Errors
    /// If the ring has no room, the record is too long or the memory refuses. Nothing was staged
    /// then.
    #[inline]
    pub fn append(&mut self, payload: &[u8]) -> Result<Lsn, AppendError> {
        if payload.len() > self.max_payload {
            return Err(AppendError::TooLong { len: payload.len(), max: self.max_payload });
        }
        let bytes = frame_bytes(payload.len()) as u64;
        let tail = self.tail + bytes;
        let mut is_half_full = false;
        if tail.saturating_sub(self.freed) > self.ring.capacity / 2 {
            self.freed = self.ring.load(Word::Freed)?;
            let held = tail.saturating_sub(self.freed);
            is_half_full = held > self.ring.capacity / 2;
            if held > self.ring.capacity {
                self.signals.nudge(true);
                return Err(AppendError::Full);
            }
        }
        let lsn = self.last + 1;
        encode_record(&mut self.frame, self.ring.lineage, lsn, payload);
        self.ring.write(self.place, &self.frame)?;
        self.ring.store(Word::Tail, tail)?;
        self.ring.store(Word::LastLsn, lsn)?;
        self.tail = tail;
        self.last = lsn;
        self.place += bytes;
        if self.place >= self.ring.capacity {
            self.place -= self.ring.capacity;
        }
        self.signals.nudge(is_half_full);
        Ok(lsn)
    }

    /// Whether `records` records of `payload` bytes each would fit now.
    #[inline]
    pub fn has_room(&mut self, records: usize, payload: usize) -> bool {
        let bytes = (records as u64).saturating_mul(frame_bytes(payload) as u64);
        let fits = |freed: u64| bytes <= self.ring.capacity.saturating_sub(self.tail.saturating_sub(freed));
        if !fits(self.freed) {
            self.freed = self.ring.load(Word::Freed).unwrap_or(self.freed);
        }
        payload <= self.max_payload && fits(self.freed)
    }

    /// Asks the drain to sync as far as `lsn`, whatever its policy, and wakes it.
    pub fn want_sync(&self, lsn: Lsn) {
        self.signals.want(lsn);
    }

    /// LSN of the last record staged; 0 if there was never one.
    #[inline]
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        self.last
    }

    /// LSN of the last record that a machine crash does not take.
    ///
    /// # Errors
    /// If the memory is not there.
    #[inline]
    pub fn synced_lsn(&self) -> Result<Lsn, StagingError> {
        Ok(self.ring.load(Word::SyncedLsn)?)
    }

    /// LSN of the last record that need not be brought to the disk before it is read: it is there,
    /// or a process before found that the disk may have lost it.
    pub(crate) fn readable_lsn(&self) -> Result<Lsn, StagingError> {
        Ok(self.synced_lsn()?.max(self.ring.load(Word::LostLsn)?))
    }

    /// LSN of the last record that the ring has given back.
    pub(crate) fn freed_lsn(&self) -> Result<Lsn, StagingError> {
        Ok(self.ring.load(Word::FreedLsn)?)
    }

    /// What the header of the ring in `len` bytes of `memory` from `offset` on says, whatever else
    /// the ring holds.
    pub(crate) fn noted_in(memory: Arc<M>, offset: u64, len: u64) -> Result<RingHeader, StagingError> {
        let ring = Ring::open(memory, offset, len)?;
        Ok(RingHeader {
            lineage: ring.lineage,
            last: ring.load(Word::LastLsn)?,
            synced: ring.load(Word::SyncedLsn)?,
            lost: ring.load(Word::LostLsn)?,
        })
    }

    /// Notes that the disk may have lost records up to this one, which the ring does not have. To
    /// be called before there is a drain.
    pub(crate) fn note_lost(&self, last: Lsn) -> Result<(), StagingError> {
        if last > 0 && last == self.last {
            // Then nothing says that the disk has any of them, until the drain has brought them
            // there.
            self.ring.store(Word::SyncedLsn, 0)?;
        }
        Ok(self.ring.store(Word::LostLsn, last)?)
    }

    /// The log's random number.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.ring.lineage
    }

    /// The longest payload a record may have, in bytes.
    #[must_use]
    pub fn max_payload_bytes(&self) -> usize {
        self.max_payload
    }

    /// The last record that the disk lost after the ring had given it back, in this life or one
    /// before; 0 if it lost none. Until a snapshot begins after it, the end of the machine may
    /// leave a gap there.
    #[inline]
    #[must_use]
    pub fn lost_lsn(&self) -> Lsn {
        self.signals.lost()
    }

    /// Why the drain fails, until it has recovered. One load while it does not.
    #[inline]
    #[must_use]
    pub fn failure(&self) -> Option<LogError> {
        self.signals.failure()
    }

    /// How often the drain has failed in this process, retries included.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.signals.failures()
    }

    /// The records after LSN `from - 1` that the ring still holds, in order.
    ///
    /// # Errors
    /// If the ring has given back the record `from` already: the log's files have it.
    pub fn records(&self, from: Lsn) -> Result<StagedRecords<M>, StagingError> {
        let (freed, freed_lsn) = (self.ring.load(Word::Freed)?, self.ring.load(Word::FreedLsn)?);
        if from <= freed_lsn {
            return Err(StagingError::Damaged {
                lsn: freed_lsn,
                why: "it no longer holds the records asked for",
            });
        }
        let mut records =
            StagedRecords::new(self.ring.clone(), freed, self.tail, Some(freed_lsn.saturating_add(1)));
        while records.next_lsn().is_some_and(|lsn| lsn < from) && records.next_record()?.is_some() {}
        Ok(records)
    }

    pub(super) fn shared(&self) -> (Ring<M>, Arc<Signals>) {
        (self.ring.clone(), Arc::clone(&self.signals))
    }
}

/// Records of a staging ring, in order. They are copied out one by one; the drain must not run
/// meanwhile.
pub struct StagedRecords<M> {
    ring: Ring<M>,
    position: u64,
    end: u64,
    expected: Option<Lsn>,
    buffer: Vec<u8>,
}

impl<M: NodeMemory> StagedRecords<M> {
    fn new(ring: Ring<M>, position: u64, end: u64, expected: Option<Lsn>) -> Self {
        Self { ring, position, end, expected, buffer: Vec::new() }
    }

    fn next_lsn(&self) -> Option<Lsn> {
        self.expected
    }

    /// The next record: its LSN and payload.
    ///
    /// # Errors
    /// If the ring's bytes are not what a writer leaves.
    pub fn next_record(&mut self) -> Result<Option<(Lsn, &[u8])>, StagingError> {
        if self.position == self.end {
            return Ok(None);
        }
        let before = self.expected.map_or(0, |lsn| lsn.saturating_sub(1));
        let damaged = |fault: Fault| StagingError::Damaged { lsn: before, why: fault.text() };
        let left = (self.end - self.position) as usize;
        self.buffer.resize(frame::FRAME_HEADER_BYTES.min(left), 0);
        self.ring.read(self.position, &mut self.buffer)?;
        let (bytes, _) = frame::claimed(&self.buffer).map_err(damaged)?;
        if bytes > left {
            return Err(damaged(Fault::Short));
        }
        self.buffer.resize(bytes, 0);
        self.ring.read(self.position, &mut self.buffer)?;
        match frame::decode(&self.buffer, self.ring.lineage).map_err(damaged)? {
            Frame::Record { lsn, len } if self.expected.is_none_or(|expected| lsn == expected) => {
                self.position += bytes as u64;
                self.expected = Some(lsn.saturating_add(1));
                Ok(Some((lsn, &self.buffer[frame::FRAME_HEADER_BYTES..][..len])))
            }
            _ => Err(StagingError::Damaged { lsn: before, why: "a record is out of order" }),
        }
    }
}
