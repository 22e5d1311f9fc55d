//! The *recovery area*: memory that survives the process like the region does, but that no client
//! sees. It holds what a new process needs to continue with the region.
//!
//! ```text
//! 64    applied LSN u64 · 72 next version u64
//! 80    while snapshot and log are read: 0 the last entry that the disk had lost u64 · 8 whether it has what is read of the log u64
//! 96    1 if the process ended with its log on the disk, u64
//! 128   identity: 0 magic "FPNOTES2" · 8 layout version of the region u32 · 12 life u32 · 16 boot id, 16 bytes · 32 lineage u64
//!       40 incarnation u64 · 48 incarnation before u64 · 56 the region's file: device, inode and time it was made, u64 each
//!       80 the recovery area's own file, likewise · 104 bytes of the region that may be used in ordinary life u64
//!       112 XXH3-64 of the 112 bytes before it
//! 512   the same again: the two are written in turn, the greater life counts
//! 256   table record to be published, 192 bytes · 448 its XXH3-64
//! 1024  change in flight: 0 log head after it u64 (0: none) · 8 segments u64 · 16 per segment: offset u64, generation << 32 | cap
//! 2064  what the newest snapshot was written without, see `left_out`
//! 4096  the log's staging ring
//! 4096 + ring   per client: 0 client u64 (0: none) · 8 request << 16 | operations done u64 · 16 a reply of 16 bytes per operation
//! ```
//!
//! The stores are ordered so that the process may end between any two of them; each part says how.

mod identity;

use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{LAYOUT_VERSION, TABLE_RECORD_BYTES, TableRecord};
use fpcache::message::{MAX_OPERATIONS, WriteReply};
use fpcache_fabric::{AccessError, NodeMemory};
use xxhash_rust::xxh3::xxh3_64;

use crate::dedup::MOST_CLIENTS;
use crate::durability::Lsn;
pub(crate) use identity::Identity;
pub use identity::UnreadableIdentity;
use identity::{IDENTITY_BYTES, StoredIdentity};

const IDENTITIES: [u64; 2] = [128, 512];
const APPLIED: u64 = 64;
const NEXT_VERSION: u64 = 72;
const LEFT: u64 = 80;
const ENDED: u64 = 96;
const CHANGE: u64 = 1024;
/// Segments that one change replaces.
pub(crate) const MOST_REPLACED: usize = 64;
/// Where it is noted what the newest snapshot was written without, and the bytes there are for
/// that.
pub(crate) const LEFT_OUT: u64 = CHANGE + 16 + 16 * MOST_REPLACED as u64;
pub(crate) const LEFT_OUT_BYTES: usize = (RING - LEFT_OUT) as usize;
const RECORD: u64 = 256;
const RECORD_CHECKSUM: u64 = RECORD + TABLE_RECORD_BYTES as u64;
const RING: u64 = 4096;
/// Bytes that a recovery area without a ring has.
pub(crate) const BYTES_BEFORE_RING: u64 = RING;
/// Bits of a request's number.
pub(crate) const REQUEST_BITS: u32 = 48;
const CLIENT_BYTES: u64 = 16 + (MAX_OPERATIONS * WriteReply::BYTES) as u64;

/// A segment that is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) offset: u64,
    pub(crate) generation: u32,
    pub(crate) cap: u16,
}

/// What a start has to know of the log's files besides what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreviousLog {
    /// The last entry that the disk lost after the ring had given it back; 0 if it lost none.
    pub(crate) lost: Lsn,
    /// Whether what is read of them is on the disk: all was synced, or the machine has been started
    /// anew since.
    pub(crate) is_on_disk: bool,
}

impl PreviousLog {
    /// Notes it in the recovery area of the process that begins, also for the next, should this one
    /// end before it has read all.
    ///
    /// # Errors
    /// The memory is not there.
    pub fn note<M: NodeMemory>(self, recovery_area: &Arc<M>) -> Result<(), AccessError> {
        RecoveryArea::over(Arc::clone(recovery_area), 0).set_left(self)
    }

    /// Leaves the first [`BYTES_BEFORE_RING`] of a recovery area without an owner, as a start does
    /// that ends before it has read all: with what the disk lost alone.
    pub(crate) fn note_alone<M: NodeMemory>(self, recovery_area: &Arc<M>) -> Result<(), AccessError> {
        let recovery_area = RecoveryArea::over(Arc::clone(recovery_area), 0);
        // What the process that follows brings to the disk is noted nowhere.
        recovery_area.set_left(Self { is_on_disk: false, ..self })?;
        recovery_area.memory.release();
        IDENTITIES.iter().try_for_each(|at| recovery_area.memory.write_bytes(*at, &[0; IDENTITY_BYTES]))
    }
}

/// The recovery area.
#[derive(Debug)]
pub(crate) struct RecoveryArea<M> {
    memory: Arc<M>,
    ring_bytes: u64,
}

impl<M> Clone for RecoveryArea<M> {
    fn clone(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), ring_bytes: self.ring_bytes }
    }
}

/// Bytes of a recovery area with a ring of this many.
pub const fn recovery_area_bytes(ring_bytes: u64) -> u64 {
    RING + ring_bytes + MOST_CLIENTS as u64 * CLIENT_BYTES
}

impl<M: NodeMemory> RecoveryArea<M> {
    pub(crate) fn over(memory: Arc<M>, ring_bytes: u64) -> Self {
        Self { memory, ring_bytes }
    }

    pub(crate) fn memory(&self) -> &Arc<M> {
        &self.memory
    }

    /// Where the ring lies.
    pub(crate) fn ring(&self) -> (u64, u64) {
        (RING, self.ring_bytes)
    }

    /// Makes the recovery area that of a memory node that begins. There are two places for that,
    /// written in turn, so that a process that ends meanwhile leaves the one before.
    pub(crate) fn begin(&self, identity: &Identity) -> Result<(), AccessError> {
        self.memory.store_release(ENDED, 0)?;
        let lives = IDENTITIES.map(|at| self.identity_at(at).map(|found| found.map_or(0, |(life, _)| life)));
        let [first, second] = lives;
        let (first, second) = (first?, second?);
        let (at, life) =
            if first <= second { (IDENTITIES[0], second + 1) } else { (IDENTITIES[1], first + 1) };
        // Torn, it does not count: the checksum tells.
        self.memory.release();
        self.memory.write_bytes(at, &identity.encode(life))?;
        self.memory.release();
        Ok(())
    }

    /// Whose recovery area this is; `None` if it has no owner.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, AccessError> {
        let [first, second] = IDENTITIES.map(|at| self.identity_at(at));
        let newest = first?.into_iter().chain(second?).max_by_key(|(life, _)| *life);
        Ok(newest.map(|(_, identity)| identity))
    }

    /// Why no identity can be read although there is one, and what of it can be told.
    pub(crate) fn unreadable(&self) -> Result<Option<(UnreadableIdentity, Option<Identity>)>, AccessError> {
        let mut why = None;
        for at in IDENTITIES {
            match self.found_at(at)? {
                StoredIdentity::Nothing => {}
                StoredIdentity::Identity(_, LAYOUT_VERSION, _) => return Ok(None),
                StoredIdentity::Identity(_, found, identity) => {
                    why = Some((UnreadableIdentity::Version { found }, Some(identity)));
                }
                StoredIdentity::Damaged => why = why.or(Some((UnreadableIdentity::Damaged, None))),
            }
        }
        Ok(why)
    }

    fn identity_at(&self, at: u64) -> Result<Option<(u32, Identity)>, AccessError> {
        Ok(match self.found_at(at)? {
            StoredIdentity::Identity(life, LAYOUT_VERSION, identity) => Some((life, identity)),
            _ => None,
        })
    }

    fn found_at(&self, at: u64) -> Result<StoredIdentity, AccessError> {
        let mut bytes = [0; IDENTITY_BYTES];
        self.memory.read_bytes(at, &mut bytes)?;
        Ok(StoredIdentity::in_bytes(&bytes))
    }

    /// Notes that the process ends, and the disk has all of its log. Undone by the one that
    /// [begins](Self::begin).
    pub(crate) fn set_ended(&self) -> Result<(), AccessError> {
        self.memory.store_release(ENDED, 1)
    }

    /// Whether the disk had all of the log when the process ended.
    pub(crate) fn has_ended(&self) -> Result<bool, AccessError> {
        Ok(self.memory.load_acquire(ENDED)? == 1)
    }

    /// Notes what a start that reads snapshot and log has to know of them.
    pub(crate) fn set_left(&self, left: PreviousLog) -> Result<(), AccessError> {
        self.memory.store_relaxed(LEFT + 8, u64::from(left.is_on_disk))?;
        self.memory.store_release(LEFT, left.lost)
    }

    pub(crate) fn left(&self) -> Result<PreviousLog, AccessError> {
        let lost = self.memory.load_acquire(LEFT)?;
        Ok(PreviousLog { lost, is_on_disk: self.memory.load_relaxed(LEFT + 8)? != 0 })
    }

    /// Everything up to this LSN is in the region; the version of the next write.
    #[inline]
    pub(crate) fn set_applied(&self, lsn: u64, next_version: u32) -> Result<(), AccessError> {
        self.memory.release();
        self.memory.store_relaxed(NEXT_VERSION, u64::from(next_version))?;
        self.memory.store_release(APPLIED, lsn)
    }

    pub(crate) fn applied(&self) -> Result<(u64, u32), AccessError> {
        Ok((self.memory.load_acquire(APPLIED)?, self.memory.load_relaxed(NEXT_VERSION)? as u32))
    }

    /// Notes which segments are about to be replaced by the change after which the log head is
    /// `head`.
    pub(crate) fn begin_change(&self, head: u64, old: &[Replaced]) -> Result<(), AccessError> {
        debug_assert!(old.len() <= MOST_REPLACED, "a change replaces few segments");
        self.memory.store_release(CHANGE, 0)?;
        self.memory.release();
        self.memory.store_relaxed(CHANGE + 8, old.len() as u64)?;
        for (at, replaced) in (CHANGE + 16..).step_by(16).zip(old) {
            self.memory.store_relaxed(at, replaced.offset)?;
            let rest = u64::from(replaced.generation) << 32 | u64::from(replaced.cap);
            self.memory.store_relaxed(at + 8, rest)?;
        }
        self.memory.release();
        self.memory.store_release(CHANGE, head)
    }

    /// The old segments are frozen.
    pub(crate) fn end_change(&self) -> Result<(), AccessError> {
        self.memory.release();
        self.memory.store_release(CHANGE, 0)
    }

    /// The change that was in flight: the log head after it, and what it replaces.
    pub(crate) fn change(&self) -> Result<Option<(u64, Vec<Replaced>)>, AccessError> {
        let head = self.memory.load_acquire(CHANGE)?;
        let count = self.memory.load_relaxed(CHANGE + 8)? as usize;
        if head == 0 || count > MOST_REPLACED {
            return Ok(None);
        }
        let mut old = Vec::with_capacity(count);
        for at in (CHANGE + 16..).step_by(16).take(count) {
            let rest = self.memory.load_relaxed(at + 8)?;
            let (generation, cap) = ((rest >> 32) as u32, rest as u16);
            old.push(Replaced { offset: self.memory.load_relaxed(at)?, generation, cap });
        }
        Ok(Some((head, old)))
    }

    /// Notes the record that is about to be published, for a process that ends in the midst of
    /// that.
    pub(crate) fn set_record<K: BuildKeys>(&self, record: &TableRecord) -> Result<(), AccessError> {
        let bytes = record.encode::<K>();
        self.memory.store_release(RECORD_CHECKSUM, 0)?;
        self.memory.release();
        self.memory.write_bytes(RECORD, &bytes)?;
        self.memory.release();
        self.memory.store_release(RECORD_CHECKSUM, xxh3_64(&bytes))
    }

    /// As [`set_record`](Self::set_record); without a record, forgets the one there is.
    pub(crate) fn set_or_clear_record<K: BuildKeys>(
        &self,
        record: Option<&TableRecord>,
    ) -> Result<(), AccessError> {
        match record {
            Some(record) => self.set_record::<K>(record),
            None => self.memory.store_release(RECORD_CHECKSUM, 0),
        }
    }

    pub(crate) fn record<K: BuildKeys>(&self) -> Result<Option<TableRecord>, AccessError> {
        let mut bytes = [0; TABLE_RECORD_BYTES];
        self.memory.read_bytes(RECORD, &mut bytes)?;
        let whole = self.memory.load_acquire(RECORD_CHECKSUM)? == xxh3_64(&bytes);
        Ok(if whole { TableRecord::decode::<K>(&bytes, RECORD).ok() } else { None })
    }

    const fn client(&self, index: usize) -> u64 {
        RING + self.ring_bytes + index as u64 * CLIENT_BYTES
    }

    /// Gives a place to a client that begins its first request here, or begins the next request of
    /// the client that has it.
    pub(crate) fn begin_request(&self, index: usize, client: u64, request: u64) -> Result<(), AccessError> {
        let at = self.client(index);
        if self.memory.load_relaxed(at)? != client {
            // Free, until it is wholly this client's.
            self.memory.store_release(at, 0)?;
            self.memory.release();
            self.memory.store_relaxed(at + 8, request << 16)?;
            return self.memory.store_release(at, client);
        }
        self.memory.store_release(at + 8, request << 16)
    }

    /// Keeps the reply to an operation of a client's request; those before it are done.
    #[inline]
    pub(crate) fn set_reply(
        &self,
        index: usize,
        request: u64,
        operation: usize,
        reply: &WriteReply,
    ) -> Result<(), AccessError> {
        self.put_reply(index, operation, reply)?;
        self.memory.store_release(self.client(index) + 8, request << 16 | (operation as u64 + 1))
    }

    /// Keeps the reply to an operation some of whose predecessors are not done yet.
    #[inline]
    pub(crate) fn put_reply(
        &self,
        index: usize,
        operation: usize,
        reply: &WriteReply,
    ) -> Result<(), AccessError> {
        let at = self.client(index) + 16 + (operation * WriteReply::BYTES) as u64;
        self.memory.write_bytes(at, &reply.encode())
    }

    /// The reply that was kept for an operation; only to be looked at if one was.
    pub(crate) fn reply(&self, index: usize, operation: usize) -> Result<Option<WriteReply>, AccessError> {
        let mut bytes = [0; WriteReply::BYTES];
        let at = self.client(index) + 16 + (operation * WriteReply::BYTES) as u64;
        self.memory.read_bytes(at, &mut bytes)?;
        Ok(WriteReply::decode(&bytes))
    }

    /// Whether no client ever had a place; then none had those after it.
    pub(crate) fn is_unused(&self, index: usize) -> Result<bool, AccessError> {
        let at = self.client(index);
        Ok(self.memory.load_acquire(at)? == 0 && self.memory.load_acquire(at + 8)? == 0)
    }

    /// What is noted of the client at a place: client, request, replies.
    pub(crate) fn request_of(
        &self,
        index: usize,
    ) -> Result<Option<(u64, u64, Vec<WriteReply>)>, AccessError> {
        let at = self.client(index);
        let (client, word) = (self.memory.load_acquire(at)?, self.memory.load_acquire(at + 8)?);
        let (request, done) = (word >> 16, (word & 0xffff) as usize);
        if client == 0 || done > MAX_OPERATIONS {
            return Ok(None);
        }
        let mut bytes = vec![0; done * WriteReply::BYTES];
        self.memory.read_bytes(at + 16, &mut bytes)?;
        let replies = bytes.chunks_exact(WriteReply::BYTES).map(WriteReply::decode).collect();
        let replies: Option<Vec<_>> = replies;
        Ok(replies.map(|replies| (client, request, replies)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::U64Keys;
    use fpcache::layout::{RecordToken, TableParameters};
    use fpcache::message::WriteStatus;
    use fpcache_fabric::{FileIdentity, SharedMemory};

    fn recovery_area() -> RecoveryArea<SharedMemory> {
        RecoveryArea::over(
            Arc::new(SharedMemory::anonymous(recovery_area_bytes(4096) as usize).expect("memory")),
            4096,
        )
    }

    #[test]
    fn what_is_noted_comes_back() {
        let recovery_area = recovery_area();
        assert_eq!(recovery_area.identity(), Ok(None));
        let file = |n| FileIdentity { device: n, inode: n + 1, born: n + 2 };
        let files = [file(4), file(7)];
        let identity = Identity { boot: [7; 16], lineage: 1, incarnation: 3, before: 2, files, limit: 10 };
        recovery_area.begin(&identity).expect("inside");
        assert_eq!(recovery_area.identity(), Ok(Some(identity)));
        recovery_area.set_applied(9, 4).expect("inside");
        assert_eq!(recovery_area.applied(), Ok((9, 4)));
        assert_eq!(recovery_area.change(), Ok(None));
        let old = vec![Replaced { offset: 4096, generation: 3, cap: 65 }; 3];
        recovery_area.begin_change(12, &old).expect("inside");
        assert_eq!(recovery_area.change(), Ok(Some((12, old))));
        recovery_area.end_change().expect("inside");
        assert_eq!(recovery_area.change(), Ok(None));
        assert_eq!(recovery_area.record::<U64Keys>(), Ok(None));
        let record = TableRecord {
            parameters: TableParameters::default(),
            keys: 1,
            segments: 2,
            root: 3,
            pages: 4,
            root_checksum: 5,
            used: 6,
            at_home: 7,
            checkpoint: 8,
            log: 9,
            log_records: 16,
            root_bytes: 17,
            encoders: 18,
            encoders_bytes: 19,
            encoders_checksum: 20,
        };
        recovery_area.set_record::<U64Keys>(&record).expect("inside");
        assert_eq!(recovery_area.record::<U64Keys>(), Ok(Some(record)));
    }

    #[test]
    fn a_client_is_known_with_the_replies_that_were_kept() {
        let (recovery_area, last) = (recovery_area(), MOST_CLIENTS - 1);
        assert_eq!(recovery_area.request_of(last), Ok(None));
        recovery_area.begin_request(last, 77, 5).expect("inside");
        let reply = WriteReply { status: WriteStatus::Done, token: Some(RecordToken::of(1, b"x")) };
        for operation in 0..MAX_OPERATIONS {
            recovery_area.set_reply(last, 5, operation, &reply).expect("inside");
        }
        assert_eq!(recovery_area.request_of(last), Ok(Some((77, 5, vec![reply; MAX_OPERATIONS]))));
        recovery_area.begin_request(last, 77, 6).expect("inside");
        assert_eq!(recovery_area.request_of(last), Ok(Some((77, 6, vec![]))));
        recovery_area.begin_request(last, 78, 1).expect("inside");
        assert_eq!(recovery_area.request_of(last), Ok(Some((78, 1, vec![]))));
    }
}
