//! The memory of a table: free extents, extents in quarantine, and the published directory.

mod checkpoint;
pub(crate) mod directory_reserve;
mod emptying;
mod evacuation;
pub(crate) mod fullness;
mod immovable;
mod limits;
mod publication;

use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{ChangeRecord, SegmentAddress, TableRecord, ValueExtent};
use fpcache_fabric::NodeMemory;
use xxhash_rust::xxh3::xxh3_64;

use super::error::TableError;
use super::segments::Segments;
use super::values::value_at;
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;
use emptying::Emptying;
pub(super) use emptying::Evacuation;
use fullness::Fullness;
pub(super) use fullness::Sparing;
pub(super) use publication::Publication;

/// The memory of a table, in its region.
#[derive(Debug)]
pub(crate) struct Room<K: BuildKeys, M> {
    pub(crate) superblock: SuperblockWriter<K, M>,
    /// The memory node's number, a part of addresses.
    pub(super) node: u16,
    /// As published with the newest checkpoint.
    pub(crate) record: TableRecord,
    pub(crate) space: Space,
    pub(super) publication: Publication<K>,
    pub(super) emptying: Emptying<K>,
    pub(super) fullness: Fullness,
    /// Whether what is under way may use the memory kept for compaction.
    pub(super) is_compacting: bool,
    /// Whether what is under way waits for the lease of readers, as a write does that finds no
    /// memory; if not, it ends with [`TableError::Leased`] and begins anew when that has ended.
    pub(super) waits_for_lease: bool,
    /// Whether something has ended like that.
    pub(super) lacks_leased: bool,
}

/// The share of the available memory that must be in quarantine for a new directory to be written
/// before a request is refused.
const WORTH_A_DIRECTORY: u64 = 256;

impl<K: BuildKeys, M: NodeMemory> Room<K, M> {
    pub(super) fn new(
        superblock: SuperblockWriter<K, M>,
        node: u16,
        record: TableRecord,
        space: Space,
        publication: Publication<K>,
    ) -> Self {
        Self {
            superblock,
            node,
            record,
            space,
            publication,
            emptying: Emptying::default(),
            fullness: Fullness::default(),
            is_compacting: false,
            waits_for_lease: true,
            lacks_leased: false,
        }
    }

    /// How many records the change log has had.
    pub(crate) fn log_head(&self) -> u64 {
        self.superblock.current().log_head
    }

    /// What a change is refused with that finds no memory.
    pub(crate) fn no_room(&self) -> TableError {
        let grant = &self.superblock.grant;
        TableError::NoRoom { capacity: grant.reach(), is_at_limit: grant.is_at_limit() }
    }

    /// Free memory for a segment or a value. Never what the next directory needs, nor what giving
    /// room back needs.
    pub(crate) fn allocate_for_records(
        &mut self,
        segments: &Segments<K, M>,
        len: u64,
    ) -> Result<Extent, TableError> {
        let take = |room: &mut Self| {
            let has_room = room.space.free_bytes() >= len.saturating_add(room.kept_for_compaction());
            (has_room && room.reserve_directory(segments)).then(|| room.space.take(len)).flatten()
        };
        if let Some(extent) = take(self) {
            return Ok(extent);
        }
        while self.reclaim_some()? {
            if let Some(extent) = take(self) {
                return Ok(extent);
            }
        }
        if !self.is_compacting && self.give_up_evacuation() {
            // Bytes that were being emptied are free for records that need them now.
            if let Some(extent) = take(self) {
                return Ok(extent);
            }
        }
        if self.space.quarantined_bytes() < len.min(self.space.end_in_reach() / WORTH_A_DIRECTORY) {
            self.superblock.grant.miss(self.needed_for(len));
            return Err(self.no_room());
        }
        // What was replaced since the last directory can be used again once there is a new one.
        self.finish_checkpoint(segments)?;
        self.reclaim()?;
        take(self).ok_or_else(|| {
            self.superblock.grant.miss(self.needed_for(len));
            self.no_room()
        })
    }

    /// Free memory; what waits for readers is freed if there is none else.
    fn allocate(&mut self, len: u64) -> Result<Extent, TableError> {
        loop {
            if let Some(extent) = self.space.take(len) {
                return Ok(extent);
            }
            if !self.reclaim_some()? {
                return Err(self.no_room());
            }
        }
    }

    /// Frees what readers know to be replaced if their directories contain the newest checkpoint;
    /// `false` if that is nothing.
    pub(crate) fn reclaim(&mut self) -> Result<bool, TableError> {
        self.reclaim_up_to(self.space.newest_tag(self.record.checkpoint))
    }

    /// The same for the oldest of it.
    fn reclaim_some(&mut self) -> Result<bool, TableError> {
        self.reclaim_up_to(self.next_to_reclaim())
    }

    /// The tag up to which memory is freed next: what readers were told of already, else the oldest
    /// that waits, a tenth of a millisecond's: very many short segments may wait.
    fn next_to_reclaim(&self) -> Option<u64> {
        const EXTENTS: usize = 512;
        let raised = self.space.newest_tag(self.superblock.current().reuse_sequence);
        raised.or_else(|| self.space.tag_of_oldest(self.record.checkpoint, EXTENTS))
    }

    fn reclaim_up_to(&mut self, tag: Option<u64>) -> Result<bool, TableError> {
        let Some(tag) = tag else { return Ok(false) };
        self.superblock.set_reuse(tag)?;
        if !self.waits_for_lease && self.superblock.lease_ends_at().is_some() {
            self.lacks_leased = true;
            return Err(TableError::Leased);
        }
        self.superblock.wait_for_lease();
        self.space.release(tag);
        Ok(true)
    }

    /// Frees quarantined memory that has become a considerable part of the memory in use, before a
    /// request has to wait for it; `false` if there is none.
    pub(crate) fn reclaim_early(&mut self) -> Result<bool, TableError> {
        const SHARE: u64 = 32;
        let (waiting, free) = (self.space.quarantined_bytes(), self.space.free_bytes());
        // What is free may belong to others too, and a table does not keep much of what it uses
        // waiting.
        let most = (free / SHARE).min(self.superblock.grant.reach().saturating_sub(free) / SHARE);
        if waiting <= most {
            return Ok(false);
        }
        let Some(tag) = self.next_to_reclaim() else { return Ok(false) };
        self.superblock.set_reuse(tag)?;
        if self.superblock.lease_ends_at().is_some() {
            // There will be a turn after it.
            return Ok(false);
        }
        self.space.release(tag);
        Ok(true)
    }

    /// When memory can be freed that readers were told of, if that is yet to come.
    pub(crate) fn reclaims_at(&mut self) -> Option<Instant> {
        self.space.newest_tag(self.superblock.current().reuse_sequence)?;
        self.superblock.lease_ends_at()
    }

    /// Whether the table has more memory than its limit, which only a restoration can cause. It
    /// then takes no more memory for new records, which go to free slots.
    #[inline]
    pub(crate) fn is_over_limit(&self) -> bool {
        let (end, limit) = (self.superblock.grant.end(), self.superblock.grant.limit());
        // What waits for readers will be free.
        let unused = || self.space.granted_free_bytes() + self.space.quarantined_bytes();
        end > limit && !self.superblock.grant.is_restoring() && end - unused().min(end) > limit
    }

    /// Ends the restoration of a table that no client reads yet.
    pub(crate) fn settle(&mut self, segments: &Segments<K, M>) -> Result<(), TableError> {
        // Readers that begin find nothing of the memory that was used more than once meanwhile.
        self.finish_checkpoint(segments)?;
        let head = self.log_head();
        self.superblock.set_reuse(head)?;
        self.reach_beyond_limit();
        Ok(())
    }

    /// Grants some more memory to a table that starts above its limit.
    pub(crate) fn reach_beyond_limit(&mut self) {
        let (end, limit) = (self.superblock.grant.end(), self.superblock.grant.limit());
        if end > limit {
            // Updates of long values, and segments on their way to fewer bytes, need some room
            // still. Where there is none, they are refused as in a table that is full.
            let _ = self.space.reach(end + (end / 16).max(64 << 10));
        }
    }

    /// Free memory for a value.
    pub(crate) fn allocate_value(
        &mut self,
        segments: &Segments<K, M>,
        bytes: usize,
    ) -> Result<Extent, TableError> {
        let len = ValueExtent::memory_bytes(bytes) as u64;
        if self.is_known_too_long(segments, len) {
            return Err(self.no_room());
        }
        self.emptying.note_value(len);
        let memory = self.allocate_for_records(segments, len)?;
        if SegmentAddress::new(self.node, memory.offset).is_none() {
            self.space.put(memory);
            return Err(self.no_room());
        }
        Ok(memory)
    }

    /// Writes a value that is to be external into free memory.
    pub(crate) fn write_value(
        &mut self,
        segments: &Segments<K, M>,
        value: &[u8],
    ) -> Result<ValueExtent, TableError> {
        let memory = self.allocate_value(segments, value.len())?;
        self.superblock.region.write_bytes(memory.offset, value)?;
        // Values have at most 16 MiB; and the address was looked at.
        let extent = value_at(self.node, memory, value.len() as u32, xxh3_64(value));
        extent.ok_or_else(|| self.no_room())
    }

    /// Gives the memory of a value back that no slot names.
    pub(crate) fn free_value(&mut self, memory: Extent) {
        self.space.put(memory);
    }

    /// Appends a change to the log and stores the log head, which is returned.
    pub(crate) fn append_to_log(&mut self, records: &[ChangeRecord]) -> Result<u64, TableError> {
        for record in records {
            let at = ChangeRecord::offset(self.record.log, self.record.log_records, record.sequence);
            self.superblock.region.write_bytes(at, &record.encode())?;
        }
        let head = self.log_head() + records.len() as u64;
        self.superblock.set_log_head(head)?;
        Ok(head)
    }

    /// Makes sure that the change log has room for `parts` more records without losing one that the
    /// checkpoint lacks.
    pub(crate) fn room_in_log(&mut self, segments: &Segments<K, M>, parts: usize) -> Result<(), TableError> {
        if parts as u64 > self.record.log_records {
            return Err(self.no_room());
        }
        let needed = self.log_head() + parts as u64 - self.record.checkpoint;
        if needed > self.record.log_records {
            self.finish_checkpoint(segments)?;
        }
        Ok(())
    }
}
