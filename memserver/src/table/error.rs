//! Errors of changing a table.

use fpcache::layout::Corrupt;
use fpcache_fabric::AccessError;

use crate::files::REGION_FILE;

/// A record in a slot whose bytes contradict each other: it cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}; write or delete that key; where that is no remedy, and the table has a snapshot from before the damage (of one that is \
     written without the record you are told here), stop the memory node and move the table's file `{REGION_FILE}` away, so that it \
     starts from snapshot and log (without a data directory: load the table again)",
    self.what()
)]
pub struct DamagedRecord {
    /// The key as the slot has it, if it has one: it may be what is damaged.
    pub(crate) key: Option<String>,
    /// Which slot of its segment.
    pub(crate) slot: u32,
    /// Where the slot lies, in bytes from the start of the region.
    pub(crate) offset: u64,
    /// Differs from that of any other damage: its place, and what is there that a write of the
    /// record changes.
    pub(crate) identity: (u64, u64),
    pub(crate) why: String,
}

impl DamagedRecord {
    /// Which record is damaged, and how.
    pub(crate) fn what(&self) -> String {
        let Self { key, offset, why, .. } = self;
        let key = key.as_deref().unwrap_or("an unknown key");
        format!("the record of {key} in the slot at region offset {offset} is damaged: {why}")
    }
}

/// Why a table could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The region is full.
    #[error(
        "the region of {} has no room for more records: delete some, {}",
        bytesize::ByteSize(*.capacity).display().iec(),
        remedy(*.is_at_limit)
    )]
    NoRoom {
        /// Bytes that the region can have.
        capacity: u64,
        /// Whether it ends before the memory node's capacity does.
        is_at_limit: bool,
    },
    /// Memory comes free when the lease of all readers has ended, for which work between requests
    /// does not wait.
    #[error("the memory that comes free next waits for the lease of readers")]
    Leased,
    /// The region could not be written: a bug.
    #[error("writing the region failed: {0}")]
    Region(#[from] AccessError),
    /// The region's own bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A record contradicts itself: what would move or copy it is not done.
    #[error(transparent)]
    Damaged(#[from] DamagedRecord),
}

impl TableError {
    /// Whether what failed for some segments may be done for others: there was no room, or a record
    /// of these is damaged.
    pub(super) fn is_local_failure(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::Corrupt(_) | Self::Damaged(_))
    }
}

/// What helps a table without room, beside fewer records.
fn remedy(is_at_limit: bool) -> String {
    match is_at_limit {
        true => format!(
            "or export them and import them into a table that is created with a larger --region-bytes (one that was created \
             without: stop the memory node and move the table's {REGION_FILE} away, and it is as long as --capacity)"
        ),
        false => format!(
            "drop other tables, or restart the memory node with a larger --capacity (with --data-dir, move the table's \
             {REGION_FILE} away first: regions that are there keep their size)"
        ),
    }
}
