//! Errors by which a table cannot be served.

use std::io;
use std::path::PathBuf;

use bytesize::ByteSize;
use fpcache::TableName;
use fpcache_fabric::shm::ListenError;
use fpcache_fabric::{AccessError, FabricError, MemoryError};

use crate::budget::Denied;
use crate::durability::DiskError;
use crate::folder::FolderError;
use crate::recovery::RecoverError;

/// Why a table cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableOpenError {
    /// Its region cannot be allocated.
    #[error("the region of {capacity} cannot be allocated: {source}", capacity = ByteSize(*.capacity).display().iec())]
    Region {
        /// Bytes asked for.
        capacity: u64,
        /// Why not.
        source: MemoryError,
    },
    /// The disk has no room for what a durable table keeps beside its region.
    #[error(
        "the {bytes} that each table takes in --data-dir beside its region cannot be allocated: {}",
        notes_remedy(source), bytes = ByteSize(*.bytes).display().iec()
    )]
    RecoveryArea {
        /// Bytes asked for.
        bytes: u64,
        /// Why not.
        source: MemoryError,
    },
    /// The process may not open enough files.
    #[error(
        "a table needs {needed} file descriptors, but the memory node has {left} left for tables: drop other tables, close \
         clients, or start the memory node with a higher limit of open files (ulimit -n)"
    )]
    Descriptors {
        /// Descriptors that a table needs.
        needed: usize,
        /// Descriptors left.
        left: usize,
    },
    /// The memory node has no memory left for it.
    #[error("the memory node has no memory for it: {0}")]
    Denied(#[from] Denied),
    /// Region or recovery area of the previous process cannot be used.
    #[error("{}", memory_remedy(.0))]
    Memory(MemoryError),
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its descriptor cannot be read.
    #[error(
        "{path} cannot be read: {why}; restore that file, or move the table's folder away to start without the table",
        path = .path.display()
    )]
    Descriptor {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// It has the name of a range, but its map has no such range, or keys of another kind.
    #[error(
        "its map does not have the range `{name}`: restore its map.fpm, or move the table's folder away to start without the table"
    )]
    Map {
        /// What it is called.
        name: TableName,
    },
    /// It was to be dropped, and the disk refused.
    #[error("dropping it failed: {why}")]
    NotDropped {
        /// Why not.
        why: String,
    },
    /// The region cannot be written.
    #[error("the region cannot be written: {0}")]
    Access(#[from] AccessError),
    /// Its data cannot be recovered.
    #[error("the store in {folder} cannot be recovered: {source}", folder = .folder.display())]
    Recover {
        /// Where it lies.
        folder: PathBuf,
        /// Why not.
        source: Box<RecoverError>,
    },
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The region cannot be handed out.
    #[error(transparent)]
    Export(#[from] ListenError),
    /// There is no thread that makes and drops tables.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
    /// The process has no descriptor left.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Why the memory of the previous process cannot be used: perhaps it is none, but that of one which
/// runs.
fn memory_remedy(error: &MemoryError) -> String {
    match error {
        MemoryError::FileInUse { .. } => {
            format!("{error}, or give this one a --region-dir and --data-dir of its own")
        }
        other => format!("the memory of the previous process cannot be used: {other}"),
    }
}

impl TableOpenError {
    /// Whether records are lost, or may be, that no restart brings back. Else the cause may pass,
    /// or is outside of the table's records: then dropping them is not to be suggested.
    pub(super) fn loses_records(&self) -> bool {
        match self {
            Self::NotDropped { .. } => true,
            Self::Recover { source, .. } => source.loses_records(),
            _ => false,
        }
    }

    /// How many entries of its log its notes alone have, if that is why it is closed.
    pub(super) fn entries_in_notes(&self) -> Option<u64> {
        match self {
            Self::Recover { source, .. } => source.entries_in_notes(),
            _ => None,
        }
    }
}

/// Why a recovery area cannot be allocated, and what helps: it has one size whatever that of the
/// region is.
fn notes_remedy(error: &MemoryError) -> String {
    match error {
        MemoryError::NoSpace { path, source, .. } => format!(
            "no room for {path} ({source}); free some on that disk, or have fewer tables: a smaller region takes no less of it"
        ),
        other => other.to_string(),
    }
}
