//! Free memory for segments and directories, and what has to happen before there is some.

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::{Table, TableError};
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

/// The share of what can be had that must wait for a new directory for it to be written before there is no room.
const WORTH_A_DIRECTORY: u64 = 256;

impl<K: BuildKeys> Table<K> {
    /// Free memory for a segment or a value. Never what the next directory needs, nor what giving room back needs.
    pub(super) fn allocate_for_records<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        len: u64,
    ) -> Result<Extent, TableError> {
        let take = |table: &mut Self| {
            let has_room = table.space.free_bytes() >= len.saturating_add(table.kept_for_compaction());
            (has_room && table.set_aside()).then(|| table.space.take(len)).flatten()
        };
        if let Some(extent) = take(self) {
            return Ok(extent);
        }
        while self.reclaim_some(superblock)? {
            if let Some(extent) = take(self) {
                return Ok(extent);
            }
        }
        if !self.giving_back.is_compacting && self.give_up_evacuation() {
            // Bytes that were being emptied are free for records that need them now.
            if let Some(extent) = take(self) {
                return Ok(extent);
            }
        }
        if self.space.quarantined_bytes() < len.min(self.space.end_in_reach() / WORTH_A_DIRECTORY) {
            return Err(self.no_room(superblock));
        }
        // What was replaced since the last directory can be used again once there is a new one.
        self.finish_checkpoint(superblock)?;
        self.reclaim(superblock)?;
        take(self).ok_or_else(|| self.no_room(superblock))
    }

    /// Free memory; what waits for readers is freed if there is none else.
    pub(super) fn allocate<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        len: u64,
    ) -> Result<Extent, TableError> {
        loop {
            if let Some(extent) = self.space.take(len) {
                return Ok(extent);
            }
            if !self.reclaim_some(superblock)? {
                return Err(self.no_room(superblock));
            }
        }
    }

    /// Frees what readers know to be replaced if their directories contain the newest checkpoint; `false` if that is nothing.
    pub(super) fn reclaim<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        self.reclaim_up_to(superblock, self.space.newest_tag(self.record.checkpoint))
    }

    /// The same for the oldest of it, a tenth of a millisecond: very many short segments may wait.
    fn reclaim_some<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        const EXTENTS: usize = 512;
        self.reclaim_up_to(superblock, self.space.tag_of_oldest(self.record.checkpoint, EXTENTS))
    }

    fn reclaim_up_to<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        tag: Option<u64>,
    ) -> Result<bool, TableError> {
        let Some(tag) = tag else { return Ok(false) };
        superblock.set_reuse(tag)?;
        self.space.release(tag);
        Ok(true)
    }

    /// Frees what has become a considerable part of the memory in use, before somebody has to wait for it; `false` if nothing
    /// has.
    pub(super) fn reclaim_early<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        const SHARE: u64 = 32;
        let (waiting, free) = (self.space.quarantined_bytes(), self.space.free_bytes());
        // What is free may be others' too, and a table does not keep much of what it uses waiting.
        let most = (free / SHARE).min(superblock.grant.reach().saturating_sub(free) / SHARE);
        if waiting > most { self.reclaim_some(superblock) } else { Ok(false) }
    }

    /// Whether the table has more than it may, which it can have from a restoration alone: then it takes no more memory for new
    /// records, which go to slots that are free.
    #[inline]
    pub(super) fn is_over_limit<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>) -> bool {
        let (end, limit) = (superblock.grant.end(), superblock.grant.limit());
        // What waits for readers will be free.
        let unused = || self.space.granted_free_bytes() + self.space.quarantined_bytes();
        end > limit && !superblock.grant.is_restoring() && end - unused().min(end) > limit
    }

    /// Ends the restoration of a table that nobody reads yet.
    pub(crate) fn settle<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<(), TableError> {
        // Readers that begin find nothing of the memory that was used more than once meanwhile.
        self.finish_checkpoint(superblock)?;
        let head = superblock.current().log_head;
        superblock.set_reuse(head)?;
        self.reach_beyond_limit(superblock);
        Ok(())
    }

    /// Has a table that begins with more than its limit granted some more yet.
    pub(crate) fn reach_beyond_limit<M: NodeMemory>(&mut self, superblock: &SuperblockWriter<K, M>) {
        let (end, limit) = (superblock.grant.end(), superblock.grant.limit());
        if end > limit {
            // Updates of long values, and segments on their way to fewer bytes, need some room still. Where that cannot be had,
            // they are refused as in a table that is full.
            let _ = self.space.reach(end + (end / 16).max(64 << 10));
        }
    }

    pub(super) fn no_room<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>) -> TableError {
        TableError::NoRoom { capacity: superblock.grant.reach() }
    }
}
