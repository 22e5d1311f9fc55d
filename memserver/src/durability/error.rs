//! Errors of writing the log and of its staging ring.

use fpcache_fabric::AccessError;

use super::disk::{DiskError, DiskErrorKind};
use super::lsn::Lsn;

/// Why the log is not written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Bytes could not be written; the disk may be full.
    #[error("{source}; the log's records from LSN {from} on stay in memory until a retry succeeds")]
    Write {
        /// The first record that is not durable.
        from: Lsn,
        /// What failed.
        source: DiskError,
    },
    /// Bytes may have been lost on their way to the disk.
    #[error(
        "{source}; the log's records from LSN {from} on may not be durable; a retry writes them to a new file"
    )]
    Sync {
        /// The first record that may not be durable.
        from: Lsn,
        /// What failed.
        source: DiskError,
    },
    /// The staging ring's bytes are not those of a log. Retrying does not help.
    #[error(transparent)]
    Staging(#[from] StagingError),
}

impl LogError {
    /// Whether the disk has no room, which may pass.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind == DiskErrorKind::Full)
    }
}

/// A staging ring that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StagingError {
    /// None was ever created there, or its creation did not finish.
    #[error("there is no staging ring; create one that continues after the log's last record")]
    Absent,
    /// The place is too small.
    #[error("{len} bytes are too few for a staging ring; give it {min} or more")]
    TooSmall {
        /// Bytes given.
        len: u64,
        /// Bytes needed.
        min: u64,
    },
    /// Its bytes are not what a writer leaves.
    #[error(
        "the log's staging ring is damaged after LSN {lsn} ({why}); move the recovery area's file away to recover from snapshot and log"
    )]
    Damaged {
        /// The last good record's LSN, or 0.
        lsn: Lsn,
        /// What is wrong.
        why: &'static str,
    },
    /// The memory cannot be accessed there.
    #[error("the log's staging ring cannot be accessed: {0}")]
    Memory(#[from] AccessError),
}
