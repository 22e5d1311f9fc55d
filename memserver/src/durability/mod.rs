//! Durability: the write-ahead log, its staging ring, and snapshots. Payloads are the caller's bytes.
//!
//! ```text
//!  writer ── append ─▶ staging ring ── Drain::step ─▶ log-<first LSN>.fpl, log-…   ─┐
//!                      (survives the process)        snapshot-<first LSN>.fps      ─┴─▶ recovery
//! ```
//!
//! Records are numbered 1, 2, 3, …: the *log sequence number*, LSN. A record exists once its bytes are in the [`Staging`]
//! ring and the ring's tail after them; nothing the process does or suffers afterwards takes it away. The [`Drain`]
//! copies records to files, syncs them by [`SyncPolicy`], and gives their room in the ring back. While it syncs, more
//! are staged, and share the next sync: group commit needs no further machinery.
//!
//! **A process ends**: [`Staging::open`] finds the ring, and [`Drain::open`] goes on in a new file that begins with the
//! ring's first record. A file ends where the next begins, whatever more it holds; so there is neither a hole nor a
//! duplicate, and nothing depends on what of the last writes got into the old file.
//!
//! **A machine stops**: [`SnapshotReader::newest`] and [`LogReader::open`] find what is on the disk. The last file's
//! tail may be torn and is cut off; anything else that is not as written is refused, and the error says what to do.
//!
//! **A disk refuses**: the error stays until a retry succeeds. A retry never goes on in the old file: after a failed
//! sync its bytes may be lost although they can be read (see [`Disk`]). It begins a new file and writes all that was
//! not synced again, from the ring.
//!
//! | module | holds |
//! |---|---|
//! | [`disk`], [`memory_disk`] | files, real ones and ones that fail on purpose |
//! | [`policy`] | when to sync |
//! | `frame` | the bytes of the log's files |
//! | [`staging`], `ring` | the writer's end |
//! | [`drain`], [`drain_thread`], `signals` | from the ring to files |
//! | [`log`], `cursor`, `damage` | reading the log back, and what to make of its end |
//! | [`snapshot`], [`snapshot_reader`] | all records at once |

mod cursor;
mod damage;
pub mod disk;
pub mod drain;
pub mod drain_thread;
mod frame;
pub mod log;
pub mod memory_disk;
pub mod policy;
mod ring;
mod signals;
pub mod snapshot;
pub mod snapshot_reader;
pub mod staging;

pub use disk::{Disk, DiskError, DiskErrorKind, FileDisk};
pub use drain::{Drain, LogError, LogOptions, OpenError, Progress};
pub use drain_thread::{DrainThread, LogEvent};
pub use frame::MAX_PAYLOAD_BYTES;
pub(crate) use log::bytes_from as log_bytes_from;
pub use log::{LogFile, LogReader, LogRecords, RecoveryError, Report, Truncated};
pub use memory_disk::MemoryDisk;
pub use policy::{BadSyncPolicy, SyncPolicy};
pub use snapshot::{MAX_RECORD_BYTES, Pruned, SnapshotError, SnapshotInfo, SnapshotWriter, prune};
pub(crate) use snapshot::{newest as newest_snapshot, remove_temporary as remove_unfinished};
pub use snapshot_reader::{BadSnapshot, SnapshotReader, SnapshotReport};
pub use staging::{AppendError, StagedRecords, Staging, StagingError};

/// A log sequence number: records count 1, 2, 3, …; 0 stands before the first.
pub type Lsn = u64;

/// No log gets so far; a greater number was not written by one.
const MAX_LSN: Lsn = 1 << 62;
