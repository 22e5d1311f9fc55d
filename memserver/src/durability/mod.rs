//! Durability: the write-ahead log, its staging ring, and snapshots. Payloads are the caller's
//! bytes.
//!
//! ```text
//!  writer ── append ─▶ staging ring ── Drain::step ─▶ log-<first LSN>.fpl, log-…   ─┐
//!                      (survives the process)        snapshot-<first LSN>.fps      ─┴─▶ recovery
//! ```
//!
//! Records are numbered 1, 2, 3, …: the *log sequence number*, LSN. A record exists once its bytes
//! are in the [`Staging`] ring and the ring's tail is past them; no failure of the process can lose
//! it then. The [`Drain`] copies records to files, syncs them by [`SyncPolicy`], and frees their
//! room in the ring. Records that are staged during a sync share the next one, which gives group
//! commit.
//!
//! **When the process ends**, [`Staging::open`] finds the ring, and [`Drain::open`] continues in a
//! new file that begins with the ring's first record. A file ends where the next one begins, and
//! anything after that is ignored. So there are neither gaps nor duplicates, and it does not matter
//! which of the last writes reached the old file.
//!
//! **When the machine crashes**, [`SnapshotReader::newest`] and [`LogReader::open`] find what is on
//! the disk. A torn tail of the last file is cut off, and the rest of that file written anew: what
//! is read must be on the disk, and the sync of a file that a process left may lie (see [`Disk`]).
//! Any other damage is an error that says what to do.
//!
//! **When the disk fails**, the error stays until a retry succeeds. A retry never continues the old
//! file: after a failed sync its bytes may be lost even if they can be read (see [`Disk`]). It
//! begins a new file and writes everything that was not synced again, from the ring.

mod continuing;
mod cursor;
mod damage;
pub mod disk;
pub mod drain;
pub mod drain_thread;
pub mod error;
mod frame;
pub mod log;
mod lsn;
#[cfg(test)]
#[path = "../../tests/support/memory_disk.rs"]
pub(crate) mod memory_disk;
mod names;
pub mod policy;
mod rewrite_last_file;
mod ring;
mod signals;
pub mod snapshot;
pub mod snapshot_reader;
mod snapshots;
pub mod staging;

pub(crate) use continuing::has_all_of_files;
pub use disk::{Disk, DiskError, DiskErrorKind, FileDisk};
pub use drain::{Drain, DrainProgress, LogOptions, OpenError};
pub use drain_thread::{DrainThread, LogEvent};
pub use error::{LogError, StagingError};
pub use frame::MAX_PAYLOAD_BYTES;
pub use log::{LogFile, LogReader, LogRecords, RecoveryError, Truncated};
pub(crate) use log::{
    ReadLimit, begins as log_begins, bytes_from as log_bytes_from, damaged_has_after, settle as settle_log,
};
pub use lsn::Lsn;
pub use policy::{BadSyncPolicy, SyncPolicy};
pub(crate) use snapshot::remove_temporary as remove_unfinished;
pub use snapshot::{MAX_RECORD_BYTES, SnapshotError, SnapshotInfo, SnapshotWriter};
pub use snapshot_reader::{BadSnapshot, SnapshotReader};
pub use snapshots::prune;
pub(crate) use snapshots::{
    Expected as ExpectedSnapshot, Newer as NewerSnapshot, has_room as has_room_for_snapshot,
    newer_than as newer_snapshot_than, newest_named as newest_named_snapshot,
    newest_or_warn as newest_snapshot_or_warn, newest_whole as newest_snapshot,
};
pub use staging::{AppendError, StagedRecords, Staging};
