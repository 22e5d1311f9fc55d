//! A memory node that goes on where another ended.
//!
//! *Warm*: the process ended, its memory did not. Region and recovery area are as it left them, in the order of its stores: what
//! was written down and not done is done, a committed change is finished, one that was not committed never was.
//! *Cold*: the memory is gone, or the machine was. The newest whole snapshot, then the log from its first entry on.

pub(crate) mod cold;
pub(crate) mod warm;

use std::fmt;
use std::time::Duration;

use fpcache::layout::Corrupt;
use fpcache_fabric::AccessError;

use crate::durability::{self, SnapshotError, StagingError};
use crate::loader::LoadError;
use crate::table::TableError;

/// Why a memory node cannot go on from what is there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The log's files are not whole.
    #[error(transparent)]
    Log(#[from] durability::RecoveryError),
    /// The log cannot be gone on with.
    #[error(transparent)]
    Open(#[from] durability::OpenError),
    /// The staging ring is not whole.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A snapshot is not whole.
    #[error(transparent)]
    Snapshot(#[from] durability::snapshot_reader::BadSnapshot),
    /// A snapshot cannot be written.
    #[error(transparent)]
    WriteSnapshot(#[from] SnapshotError),
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] durability::DiskError),
    /// There is a log and no snapshot to begin with.
    #[error(
        "the log holds entries {first} to {last}, but there is no whole snapshot that they follow{skipped}: restore the \
         snapshot's file, or move the log's files away to begin with an empty store"
    )]
    NoSnapshot {
        /// First entry of the log.
        first: u64,
        /// Last entry of the log.
        last: u64,
        /// Snapshots that are not whole, and why.
        skipped: String,
    },
    /// The log ends before the snapshot does.
    #[error(
        "the snapshot {name} may contain entries of the log up to {needed}, but the log ends with {last}: files of the log \
         are missing; restore them, or move the snapshot away to begin with an older one"
    )]
    LogTooShort {
        /// The snapshot's file.
        name: String,
        /// What the log must reach.
        needed: u64,
        /// What it reaches.
        last: u64,
    },
    /// An entry of the log or a record of a snapshot makes no sense.
    #[error("{what} does not decode: it was written by another release, or this is a bug")]
    Undecodable {
        /// Which one.
        what: String,
    },
    /// An entry that was not done refers to a segment that is not there.
    #[error(
        "entry {lsn} of the log was not done and does not fit the region: move the recovery area's file away to recover from \
         snapshot and log"
    )]
    Misfit {
        /// The entry.
        lsn: u64,
    },
    /// The region's bytes contradict themselves.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Records cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The memory cannot be accessed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A thread cannot be started.
    #[error("starting a thread failed: {0}")]
    Thread(std::io::Error),
}

impl From<Corrupt> for RecoverError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Table(corrupt.into())
    }
}

/// What a memory node went on from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nothing was there.
    Nothing,
    /// Region and recovery area of a process that ended.
    Memory {
        /// Entries of the log that were written down and not done.
        redone: u64,
        /// Whether a change of the directory was finished.
        finished_change: bool,
    },
    /// A snapshot and the log.
    Disk {
        /// The snapshot's file.
        snapshot: String,
        /// Entries of the log after it.
        replayed: u64,
        /// What was cut off the log's end, in words.
        truncated: Option<String>,
        /// Snapshots that were not whole, in words.
        skipped: Vec<String>,
        /// Why the memory could not be gone on with, in words.
        why: Option<String>,
    },
}

/// What a memory node found when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// What it went on from.
    pub origin: Origin,
    /// Records.
    pub keys: u64,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, took) = (self.keys, self.took);
        match &self.origin {
            Origin::Nothing => write!(f, "an empty store"),
            Origin::Memory { redone, finished_change } => {
                write!(f, "{keys} keys in the memory of the process before, after {took:.1?}")?;
                if *redone > 0 {
                    write!(f, "; {redone} writes that were written down were done")?;
                }
                if *finished_change {
                    write!(f, "; a change of the directory was finished")?;
                }
                Ok(())
            }
            Origin::Disk { snapshot, replayed, truncated, skipped, why } => {
                write!(f, "{keys} keys from {snapshot} and {replayed} entries of the log, after {took:.1?}")?;
                if let Some(why) = why {
                    write!(f, "; the memory of the process before was not used: {why}")?;
                }
                if let Some(truncated) = truncated {
                    write!(f, "; {truncated}")?;
                }
                skipped.iter().try_for_each(|skipped| write!(f, "; {skipped}"))
            }
        }
    }
}
