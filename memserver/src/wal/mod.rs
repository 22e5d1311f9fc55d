//! The write-ahead log of a table: every mutation is logged before its slot changes, so that no
//! crash undoes what was acknowledged. Writes append to it; `durability` brings it to the disk.

pub(crate) mod background;
pub(crate) mod entry;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::KeySpace;
use fpcache::layout::ValueExtent;
use fpcache_fabric::{AccessError, Clock, NodeMemory, SystemClock};

use crate::durability::{AppendError, LogError, Lsn, Staging, SyncPolicy};
use crate::recovery_area::RecoveryArea;
use background::{Draining, Snapshots};
use entry::{PIECE_HEADER_BYTES, WalEntry, encode_piece};

/// Why a mutation was not logged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The staging ring does not take the entry.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Entries were lost that no snapshot makes up for yet.
    #[error(
        "the disk lost entries of the log: nothing can be appended after the gap until a snapshot is written"
    )]
    Lost,
    /// A value cannot be read from the region: a bug.
    #[error(transparent)]
    Region(#[from] AccessError),
}

/// What the disk lacks of a log that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MissingLog {
    /// Entries that are in the staging ring alone.
    InNotes {
        /// How many.
        entries: u64,
        /// Why.
        why: String,
    },
    /// Entries that it lost, and that no snapshot makes up for.
    Lost {
        /// The last of them.
        last: Lsn,
    },
    /// No entries, but a snapshot that they follow: a load is in that alone.
    Snapshot,
}

/// Bytes of an entry with a piece of a value.
const PIECE_BYTES: usize = 256 << 10;

/// A memory node's log: staging ring, recovery area, and the drain that brings them to the disk.
pub(crate) struct Wal<M> {
    pub(crate) recovery_area: RecoveryArea<M>,
    pub(crate) staging: Staging<M>,
    policy: SyncPolicy,
    pub(crate) clock: Arc<dyn Clock>,
    draining: Box<dyn Draining>,
    pub(crate) snapshots: Box<dyn Snapshots>,
    bytes: Vec<u8>,
    /// Bytes appended since the last snapshot began.
    pub(crate) since_snapshot: u64,
    /// The first entry that the newest snapshot lacks; 0 without one.
    covered: Lsn,
}

impl<M> fmt::Debug for Wal<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<M: NodeMemory> Wal<M> {
    pub(crate) fn new(
        recovery_area: RecoveryArea<M>,
        staging: Staging<M>,
        policy: SyncPolicy,
        draining: Box<dyn Draining>,
        snapshots: Box<dyn Snapshots>,
    ) -> Self {
        let clock = Arc::new(SystemClock);
        Self {
            recovery_area,
            staging,
            policy,
            clock,
            draining,
            snapshots,
            bytes: Vec::new(),
            since_snapshot: 0,
            covered: 0,
        }
    }

    /// The same after the newest snapshot, which begins with this entry, and this many bytes of the
    /// log since.
    pub(crate) fn going_on_from(self, newest: Option<Lsn>, since_snapshot: u64) -> Self {
        Self { covered: newest.unwrap_or(0), since_snapshot, ..self }
    }

    /// There is a snapshot that begins with this entry.
    pub(crate) fn covered_before(&mut self, first: Lsn) {
        self.covered = self.covered.max(first);
    }

    /// Whether mutations wait for the disk before readers see them.
    pub(crate) fn syncs_first(&self) -> bool {
        self.policy == SyncPolicy::Always
    }

    /// Writes a mutation down, directly after the pieces of the external value that it gives a
    /// record. From here on the end of the process does not undo it. The memory node's thread does
    /// not wait for the disk: [`has_room`](Self::has_room) says when one that found the staging
    /// ring full can be appended.
    pub(crate) fn append<K: KeySpace>(
        &mut self,
        entry: &WalEntry<'_, impl Borrow<K::Key>>,
    ) -> Result<Lsn, WalError> {
        entry.encode::<K>(&mut self.bytes);
        self.append_bytes()
    }

    /// Writes a piece of an external value down, from `offset` on; returns its number, and how many
    /// bytes of the value it has.
    pub(crate) fn append_piece(
        &mut self,
        region: &M,
        value: &ValueExtent,
        offset: u32,
    ) -> Result<(Lsn, u32), WalError> {
        let most =
            self.staging.max_payload_bytes().min(PIECE_BYTES).saturating_sub(PIECE_HEADER_BYTES).max(1);
        let len = most.min((value.bytes - offset) as usize);
        encode_piece(offset, &mut self.bytes);
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        region.read_bytes(value.address.offset() + u64::from(offset), &mut self.bytes[at..])?;
        Ok((self.append_bytes()?, len as u32))
    }

    /// Appends an entry.
    fn append_bytes(&mut self) -> Result<Lsn, WalError> {
        if let Some(failure) = self.staging.failure() {
            return Err(failure.into());
        }
        if self.has_lost() {
            return Err(WalError::Lost);
        }
        let lsn = self.staging.append(&self.bytes)?;
        self.since_snapshot += self.bytes.len() as u64;
        Ok(lsn)
    }

    /// Whether there is room in the log for the entry that was to be appended last.
    pub(crate) fn has_room(&mut self) -> bool {
        self.staging.has_room(1, self.bytes.len())
    }

    /// Lets the disk get on. What it does not take stays with the ring.
    pub(crate) fn wait_a_little(&mut self) {
        self.staging.want_sync(self.staging.last_lsn());
        let _ = self.draining.step(self.clock.now());
        std::thread::yield_now();
    }

    /// Whether entries were lost from the log that no snapshot makes up for.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        let lost = self.staging.lost_lsn();
        lost > 0 && lost >= self.covered
    }

    /// The last entry that a crash of the machine does not undo.
    pub(crate) fn synced(&self) -> Lsn {
        self.staging.synced_lsn().unwrap_or(0)
    }

    /// Brings the log to the disk for good: nothing is appended any more. Notes it if the disk has
    /// all then, for a start from a copy of the files; else says what it lacks.
    /// `lacks_snapshot`: the table has none that this log follows.
    pub(crate) fn end(&mut self, lacks_snapshot: bool) -> Option<MissingLog> {
        self.draining.end(self.clock.now());
        // Of those that the disk lost the ring has none any more.
        let elsewhere = self.staging.readable_lsn().unwrap_or(0);
        let entries = self.staging.last_lsn().saturating_sub(elsewhere);
        if entries > 0 {
            let why = self.staging.failure().map_or_else(String::new, |error| error.to_string());
            return Some(MissingLog::InNotes { entries, why });
        }
        if self.has_lost() {
            return Some(MissingLog::Lost { last: self.staging.lost_lsn() });
        }
        if lacks_snapshot {
            return Some(MissingLog::Snapshot);
        }
        // Where that cannot be noted a copy is taken for one of a process that was killed.
        let _ = self.recovery_area.set_ended();
        None
    }

    /// Breaks it on purpose.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage(&mut self, sabotage: Option<fpcache::sabotage::Sabotage>) {
        self.draining.sabotage(sabotage);
    }

    /// Does in the background what no thread does; says when there is more to do.
    pub(crate) fn work(&mut self) -> Option<Instant> {
        // An error stays with the ring until it is overcome, and writers are told.
        self.draining.step(self.clock.now()).unwrap_or(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::memory_disk::MemoryDisk;
    use crate::durability::{Drain, LogOptions};
    use crate::recovery_area::recovery_area_bytes;
    use crate::wal::background::{InlineDrain, InlineSnapshots};
    use fpcache_fabric::SharedMemory;

    /// The log of a process that begins after five entries on a full disk, which may have lost
    /// them.
    fn after_five_lost_entries() -> Wal<SharedMemory> {
        const RING: u64 = 4096;
        let memory = SharedMemory::anonymous(recovery_area_bytes(RING) as usize).expect("memory");
        let recovery_area = RecoveryArea::over(Arc::new(memory), RING);
        let disk = MemoryDisk::new(1);
        let (ring, len) = recovery_area.ring();
        let create = |last| Staging::create(Arc::clone(recovery_area.memory()), ring, len, 1, last);
        let mut before = create(0).expect("a ring");
        let mut drain = Drain::open(&before, disk.clone(), LogOptions::default()).expect("a disk");
        (0..5).for_each(|_| _ = before.append(b"an entry").expect("room"));
        drain.finish(Instant::now()).expect("a disk");
        drop(drain);
        let staging = create(5).expect("a ring");
        staging.note_lost(5).expect("memory");
        disk.fill_up_after(0);
        let drain = Drain::open(&staging, disk.clone(), LogOptions::default()).expect("it has room later");
        let drain = Box::new(InlineDrain::new(drain));
        Wal::new(recovery_area, staging, SyncPolicy::Always, drain, Box::new(InlineSnapshots::new(disk)))
    }

    /// Operators were told to look for them where they are not.
    #[test]
    fn entries_that_the_disk_lost_are_not_said_to_be_in_the_notes() {
        assert_eq!(after_five_lost_entries().end(false), Some(MissingLog::Lost { last: 5 }));
    }

    #[test]
    fn entries_after_those_that_the_disk_lost_are_in_the_notes() {
        let mut wal = after_five_lost_entries();
        wal.staging.append(b"an entry").expect("room");
        let lacking = wal.end(false);
        assert!(matches!(lacking, Some(MissingLog::InNotes { entries: 1, .. })), "{lacking:?}");
    }
}
