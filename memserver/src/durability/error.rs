//! Errors of writing and reading the log, and of its staging ring.

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
        self.no_room().is_some()
    }

    /// How the disk said that it has no room, if that is why.
    pub(crate) fn no_room(&self) -> Option<&DiskError> {
        match self {
            // Network file systems, quotas and delayed allocation tell it by a sync.
            Self::Write { source, .. } | Self::Sync { source, .. } if source.kind == DiskErrorKind::Full => {
                Some(source)
            }
            _ => None,
        }
    }
}

/// A log that cannot be relied on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// A file could not be read, cut or synced.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file is not what was written.
    #[error(
        "log file {file} is damaged at offset {offset}, where record {lsn} should be: {why}; restore it from a copy, or cut \
         it there (truncate -s {offset} {file}) and move the log files after it and notes.fpn away, which rely on the rest, \
         to start with what comes before alone (writes from LSN {lsn} on are lost then)"
    )]
    Damaged {
        /// The file's name.
        file: String,
        /// Offset of the first bad byte's record.
        offset: u64,
        /// The record that should be there.
        lsn: Lsn,
        /// What is wrong.
        why: String,
    },
    /// A file's header is not what was written.
    #[error(
        "log file {file} cannot be used: {why}; restore it from a copy, or move it, the log files after it and notes.fpn \
         away to start from the snapshot and the files before alone (writes from LSN {lsn} on are lost then)"
    )]
    BadFile {
        /// The file's name.
        file: String,
        /// The first record by the file's name.
        lsn: Lsn,
        /// What is wrong.
        why: String,
    },
    /// Files are missing between two.
    #[error(
        "the log's records {from} to {to} are missing before file {file}; restore the missing file, or move {file}, the \
         log files after it and notes.fpn away to start from the snapshot and the files before alone (writes from LSN \
         {from} on are lost then)"
    )]
    Gap {
        /// First missing record.
        from: Lsn,
        /// Last missing record.
        to: Lsn,
        /// The file after the gap.
        file: String,
    },
    /// The files do not hold the record to begin with.
    #[error(
        "record {wanted} of the log is needed, but its files {}; restore the missing log files, or the snapshot that \
         belongs to these", records_held(*first, *last)
    )]
    OutOfReach {
        /// The record asked for.
        wanted: Lsn,
        /// First record of the files.
        first: Lsn,
        /// Last record of the files.
        last: Lsn,
    },
    /// The file belongs to another store.
    #[error(
        "log file {file} belongs to another store (lineage {found:016x}, not {expected:016x}); move it back there"
    )]
    Lineage {
        /// The file's name.
        file: String,
        /// The lineage it names.
        found: u64,
        /// The lineage of the store.
        expected: u64,
    },
}

/// Which records files have, in words: none if `last` comes before `first`.
fn records_held(first: Lsn, last: Lsn) -> String {
    if last < first {
        format!("begin with record {first} and have none yet")
    } else {
        format!("hold {first} to {last}")
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
