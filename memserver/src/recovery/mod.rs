//! Recovery of a memory node after its process ended.
//!
//! *Warm*: the memory survived. Region and recovery area are as the process left them, in the order
//! of its stores. Logged operations that were not performed are performed; a committed change is
//! completed; a change that was not committed never happened.
//!
//! *Cold*: the memory is lost, or the machine crashed. The newest whole snapshot is loaded, then
//! the log is applied from the snapshot's first entry on. What only the recovery area has of the
//! log, as where the region alone is lost, is brought to the disk before.

pub(crate) mod cold;
pub(crate) mod previous_log;
pub(crate) mod warm;

use std::fmt;
use std::time::Duration;

use fpcache::layout::Corrupt;
use fpcache_fabric::AccessError;

use crate::durability::{self, BadSnapshot, StagingError};
use crate::loader::LoadError;
use crate::recovery_area::UnreadableIdentity;
use crate::table::error::TableError;

/// Why a memory node cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The log's files are not whole.
    #[error(transparent)]
    Log(#[from] durability::RecoveryError),
    /// The log cannot be continued.
    #[error(transparent)]
    Open(#[from] durability::OpenError),
    /// The staging ring is not whole.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// A snapshot is damaged.
    #[error(transparent)]
    Snapshot(#[from] BadSnapshot),
    /// The disk fails.
    #[error(transparent)]
    Disk(#[from] durability::DiskError),
    /// There was a snapshot that can no longer be read, or there is a log without one before it.
    #[error(
        "{}{skipped}: restore the snapshot's file, or move the files of log and snapshots away to start with an empty \
         store", without_snapshot(*first, *last)
    )]
    NoSnapshot {
        /// First entry of the log; 0 if it has no files.
        first: u64,
        /// Last entry of the log; less than `first`, or 0, if it has none.
        last: u64,
        /// Damaged snapshots, and what is wrong with them.
        skipped: String,
    },
    /// The log ends before the snapshot does.
    #[error(
        "the snapshot {name} may contain entries of the log up to {needed}, but the log ends with {last}: restore the missing \
         log files, or move the snapshot away to start with an older one"
    )]
    LogTooShort {
        /// The snapshot's file.
        name: String,
        /// The LSN that the log must reach.
        needed: u64,
        /// The LSN that it reaches.
        last: u64,
    },
    /// A snapshot cannot be used, and neither log nor memory has all that came before it.
    #[error(
        "the snapshot {name} cannot be used ({}), and neither the log nor the memory of the previous process has what came \
         before it (entries up to {needed}): restore it or the log's files{}, or move it away to go on without (writes from LSN {} \
         on are lost then)",
        why.reason(),
        if matches!(why, BadSnapshot::Version { .. }) { ", start the release that wrote it" } else { "" },
        last + 1
    )]
    SnapshotUnusable {
        /// The snapshot's file.
        name: String,
        /// The last entry before it.
        needed: u64,
        /// The last entry there is.
        last: u64,
        /// Why it cannot be used.
        why: BadSnapshot,
    },
    /// The log ends before entries that had been on the disk.
    #[error(
        "the recovery area says that entries up to {synced} of the log were on the disk, but its files end with {last}: restore \
         the missing log files, or move the recovery area's file (notes.fpn) away to start with what there is (writes from LSN \
         {} on are lost then)", last + 1
    )]
    SyncedMissing {
        /// The last entry there is.
        last: u64,
        /// The last entry that had been on the disk.
        synced: u64,
    },
    /// The log's last file cannot be read, and nothing else tells whether memory has all of it, or
    /// a snapshot tells that memory does not.
    #[error("{source}; {}", with_log_unread(*last, *snapshot, unusable.as_deref()))]
    LogUnread {
        /// The last entry in memory.
        last: u64,
        /// First entry after a snapshot that memory is older than.
        snapshot: Option<u64>,
        /// Why that snapshot cannot be used, if it cannot.
        unusable: Option<String>,
        /// Why the file cannot be read.
        source: durability::DiskError,
    },
    /// Entries that were not performed were in the log's files alone, and are missing or cannot be
    /// read.
    #[error(
        "{}entries {first} to {last} of the log are not in the memory of the previous process yet, and the log's files (log-*.fpl) \
         alone had them: make these readable or restore them, and restart the memory node; neither that memory nor notes.fpn \
         makes up for them", cause(source.as_ref())
    )]
    OnlyInLog {
        /// The first such entry.
        first: u64,
        /// The last entry.
        last: u64,
        /// Why the files cannot be read; `None` if they are missing.
        source: Option<durability::DiskError>,
    },
    /// An entry of the log or a record of a snapshot cannot be decoded.
    #[error("{what} cannot be decoded: it was written by another release, or this is a bug")]
    Undecodable {
        /// Which one.
        what: String,
    },
    /// An entry that was not performed refers to a segment that does not exist.
    #[error(
        "entry {lsn} of the log was not performed and does not fit the region: move the recovery area's file away to recover from \
         snapshot and log"
    )]
    Misfit {
        /// The entry.
        lsn: u64,
    },
    /// Entries are in memory alone, with a policy by which no client sees such.
    #[error(
        "{source}; with --fsync always nobody may read what entries {first} to {last} of the log wrote before they are on the \
         disk: make room there and restart the memory node, or restart it with --fsync 10ms, which serves them as they are"
    )]
    NotOnDisk {
        /// The first such entry.
        first: u64,
        /// The last entry.
        last: u64,
        /// Why they are not on the disk.
        source: durability::LogError,
    },
    /// Entries are in a recovery area alone that a start from the disk would replace.
    #[error(
        "{source}; the recovery area (notes.fpn) alone has what entries {first} to {last} of the log wrote, and this start, which \
         reads snapshot and log, would replace it: see to it that the disk takes them (make room, if it is full) and restart the \
         memory node"
    )]
    OnlyInRing {
        /// The first such entry.
        first: u64,
        /// The last entry.
        last: u64,
        /// Why they are not on the disk.
        source: durability::OpenError,
    },
    /// Entries are in a recovery area alone whose identity cannot be read.
    #[error(
        "the recovery area (notes.fpn) alone has entries {first} to {last} of the log, and cannot be used: {source}; start the \
         release that wrote it and stop it by SIGTERM, restore that file, or move it away to start from snapshot and log \
         alone (writes from LSN {first} on are lost then)"
    )]
    UnreadableNotes {
        /// The first such entry.
        first: u64,
        /// The last entry.
        last: u64,
        /// Why it cannot be used.
        source: UnreadableIdentity,
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

impl RecoverError {
    /// How many entries of the log are in the recovery area alone, if that is what is wrong.
    pub(crate) fn entries_in_notes(&self) -> Option<u64> {
        match self {
            Self::NotOnDisk { first, last, .. }
            | Self::OnlyInRing { first, last, .. }
            | Self::UnreadableNotes { first, last, .. } => Some((last + 1).saturating_sub(*first)),
            _ => None,
        }
    }

    /// Whether what is on the disk or in memory is not whole, and not merely out of reach or of
    /// another release.
    pub(crate) fn loses_records(&self) -> bool {
        use durability::{OpenError, RecoveryError};
        let is_damage = |log: &RecoveryError| {
            matches!(
                log,
                RecoveryError::Damaged { .. } | RecoveryError::Gap { .. } | RecoveryError::OutOfReach { .. }
            )
        };
        match self {
            Self::Log(log) | Self::Open(OpenError::Recovery(log)) => is_damage(log),
            Self::Open(OpenError::Apart { .. })
            | Self::Staging(StagingError::Damaged { .. })
            | Self::NoSnapshot { .. }
            | Self::LogTooShort { .. }
            | Self::SnapshotUnusable { why: BadSnapshot::Damaged { .. }, .. }
            | Self::SyncedMissing { .. }
            | Self::OnlyInLog { source: None, .. }
            | Self::Misfit { .. }
            | Self::Table(_) => true,
            _ => false,
        }
    }
}

/// What the log holds where there is no snapshot, in words.
fn without_snapshot(first: u64, last: u64) -> String {
    if last == 0 || last < first {
        "the log holds no entries, and there is no intact snapshot".into()
    } else {
        format!("the log holds entries {first} to {last}, but there is no intact snapshot before them")
    }
}

fn with_log_unread(last: u64, snapshot: Option<u64>, unusable: Option<&str>) -> String {
    let Some(first) = snapshot else {
        return format!(
            "whether it has entries after {last}, the last in the memory of the previous process, cannot be told, and to go on from \
             there would replace them: make the file readable or restore it from a copy, and restart the memory node; or move \
             the log's files (log-*.fpl) away to go on with that memory alone (writes after LSN {last} are lost then, if there \
             were any)"
        );
    };
    let rest = match unusable {
        Some(why) => {
            format!("; that snapshot cannot be used ({why}), so without the file it has to be restored, too")
        }
        None => format!(
            "; or move the log's files (log-*.fpl) away to start with the snapshot alone (writes from LSN {first} on are lost \
             then, if there were any)"
        ),
    };
    format!(
        "the memory of the previous process ends with entry {last}, so it is older than the newest snapshot, which the log goes on \
         from with entry {first}: make the file readable or restore it from a copy, and restart the memory node{rest}"
    )
}

fn cause(source: Option<&durability::DiskError>) -> String {
    source.map_or_else(String::new, |source| format!("{source}; "))
}

impl From<Corrupt> for RecoverError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Table(corrupt.into())
    }
}

/// What a memory node recovered from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nothing: the store was empty.
    Nothing,
    /// Region and recovery area of a process that ended.
    Memory {
        /// Logged entries that had not been performed.
        redone: u64,
        /// Whether a change of the directory was completed.
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
        /// Damaged snapshots, in words.
        skipped: Vec<String>,
        /// Why the memory could not be used, in words.
        why: Option<String>,
    },
}

/// What a memory node found when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// What it recovered from.
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
                write!(f, "{keys} keys in the memory of the previous process, after {took:.1?}")?;
                if *redone > 0 {
                    write!(f, "; {redone} logged writes were performed")?;
                }
                if *finished_change {
                    write!(f, "; a change of the directory was completed")?;
                }
                Ok(())
            }
            Origin::Disk { snapshot, replayed, truncated, skipped, why } => {
                write!(f, "{keys} keys from {snapshot} and {replayed} entries of the log, after {took:.1?}")?;
                if let Some(why) = why {
                    write!(f, "; the memory of the previous process was not used: {why}")?;
                }
                if let Some(truncated) = truncated {
                    write!(f, "; {truncated}")?;
                }
                skipped.iter().try_for_each(|skipped| write!(f, "; {skipped}"))
            }
        }
    }
}
