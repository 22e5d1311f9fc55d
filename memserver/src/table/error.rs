//! Errors of changing a table.

use fpcache::key_space::BuildKeys;
use fpcache::layout::Corrupt;
use fpcache_fabric::{AccessError, NodeMemory};

use crate::superblock_writer::SuperblockWriter;

/// Why a table could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The region is full.
    #[error(
        "the region of {} has no room for more records: delete some, drop other tables, or restart the memory node with \
         a larger --capacity",
        bytesize::ByteSize(*.capacity).display().iec()
    )]
    NoRoom {
        /// Bytes that the region can have.
        capacity: u64,
    },
    /// The region could not be written: a bug.
    #[error("writing the region failed: {0}")]
    Region(#[from] AccessError),
    /// The region's own bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl TableError {
    /// Whether what failed for some segments may be done for others: there was no room, or a record of these is damaged.
    pub(super) fn spares_others(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::Corrupt(_))
    }

    pub(super) fn no_room<K: BuildKeys, M: NodeMemory>(superblock: &SuperblockWriter<K, M>) -> Self {
        Self::NoRoom { capacity: superblock.grant.reach() }
    }
}
