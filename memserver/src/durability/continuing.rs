//! The log's files as a staging ring finds them that goes on with the log.

use std::ops::RangeInclusive;

use fpcache_fabric::NodeMemory;
use tracing::warn;

use super::disk::{Disk, DiskErrorKind};
use super::error::LogError;
use super::log::{LogReader, ReadLimit, RecoveryError, damaged_ends_with};
use super::lsn::Lsn;
use super::names::list_logs;
use super::ring::{Ring, Word};
use super::staging::Staging;

/// Why a log cannot be continued.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The files are damaged, or cannot be read.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The ring and the files are not of one log.
    #[error(
        "the staging ring continues after LSN {ring}, but the log's files hold LSN {first} to {last}; they do not belong to one \
         store, or files are missing: restore them, or move the recovery area's file away to recover from snapshot and log alone"
    )]
    Apart {
        /// The LSN up to which the ring relies on the files.
        ring: Lsn,
        /// First LSN of the files.
        first: Lsn,
        /// Last LSN of the files.
        last: Lsn,
    },
    /// The first file could not be begun.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The files before a ring that has given back what is before `freed + 1`.
pub(super) fn files_for<M: NodeMemory>(
    ring: &Ring<M>,
    disk: &impl Disk,
    freed: Lsn,
) -> Result<LogReader, OpenError> {
    let log = LogReader::look(disk, Some(ring.lineage), ReadLimit::Below(freed + 1))?;
    continues(&log, freed)?;
    Ok(log)
}

/// Whether the ring had everything that the log's files have, by their names and lengths alone: the
/// last is the one that the ring notes, and no longer than it can have been then.
pub(crate) fn has_all_of_files<M: NodeMemory>(staging: &Staging<M>, disk: &impl Disk) -> bool {
    has_all(&staging.shared().0, staging.last_lsn(), disk)
}

/// The ring's last record lies in another cache line than the note, and may be older.
fn has_all<M: NodeMemory>(ring: &Ring<M>, last: Lsn, disk: &impl Disk) -> bool {
    let [Ok(noted), Ok(most), Ok(noted_last)] =
        [Word::File, Word::FileBytes, Word::FileLast].map(|word| ring.load(word))
    else {
        return false;
    };
    if noted_last > last {
        return false;
    }
    // What cannot be examined proves nothing.
    let last = list_logs(disk).ok().and_then(|mut logs| logs.pop());
    last.is_some_and(|(first, name)| first == noted && disk.len(&name).is_ok_and(|bytes| bytes <= most))
}

/// As [`files_for`], where the last file is damaged or cannot be read, and memory has what all
/// records did that the ring has given back. Of `records`, from the last of these to the last that
/// memory can have, a damaged file must end with one: if it has others after them, memory is older.
/// What cannot be read must be no longer than the ring notes. The file counts as if it had been
/// lost, so that a snapshot is to make up for it.
pub(super) fn files_despite<M: NodeMemory>(
    why: RecoveryError,
    ring: &Ring<M>,
    disk: &impl Disk,
    records: RangeInclusive<Lsn>,
) -> Result<LogReader, OpenError> {
    let freed = *records.start();
    let (half_made, what) = match &why {
        RecoveryError::Damaged { file, offset, lsn, why: fault } => {
            let found = LogReader::look(disk, Some(ring.lineage), ReadLimit::Whole)?;
            // A last file that begins later was not this ring's, and what goes on after `freed`
            // would come before it.
            let reaches = found.files.last().is_some_and(|last| last.first <= freed + 1);
            if !reaches || !damaged_ends_with(disk, &found, records).map_err(RecoveryError::from)? {
                return Err(why.into());
            }
            let what = format!(
                "log file {file} is damaged at offset {offset}, where record {lsn} should be ({fault})"
            );
            (found.half_made, what)
        }
        // The noted file begins with a record that the ring has or gave back, or with its next.
        RecoveryError::Disk(error) if has_all(ring, *records.end(), disk) => (None, error.to_string()),
        _ => return Err(why.into()),
    };
    warn!(
        "{what}; memory has all that it had, and a snapshot is written at once, before which nothing is acknowledged"
    );
    ring.store(Word::LostLsn, freed).map_err(LogError::from)?;
    Ok(LogReader { half_made, ..LogReader::default() })
}

/// Syncs the file with the last records that the ring has given back unsynced: the next file relies
/// on it. Notes at once if that fails, as it may have lost them, and a later sync that succeeds
/// says nothing about it.
pub(super) fn sync_given_back<M: NodeMemory>(
    ring: &Ring<M>,
    disk: &mut impl Disk,
    log: &LogReader,
    freed: Lsn,
) -> Result<(), OpenError> {
    let Some(last) = log.files.last() else { return Ok(()) };
    let synced = disk.sync(&last.name);
    disk.close(&last.name);
    let Err(error) = synced else { return Ok(()) };
    ring.store(Word::LostLsn, freed).map_err(LogError::from)?;
    // A full disk may have room later; until a snapshot makes up for them nothing is acknowledged.
    if error.kind == DiskErrorKind::Full { Ok(()) } else { Err(RecoveryError::from(error).into()) }
}

/// Whether the files have what a ring relies on that has given back what is before `freed + 1`.
fn continues(log: &LogReader, freed: Lsn) -> Result<(), OpenError> {
    let begins = log.files.last().or(log.half_made.as_ref()).map_or(0, |file| file.first);
    if let Some(error) = log.unusable.as_ref().filter(|_| begins > freed + 1) {
        return Err(error.clone().into());
    }
    let is_short = !log.files.is_empty() && log.last < freed;
    if is_short || begins > freed + 1 {
        return Err(OpenError::Apart { ring: freed, first: log.first, last: log.last });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use fpcache_fabric::SharedMemory;

    use super::super::drain::{Drain, LogOptions};
    use super::super::memory_disk::MemoryDisk;
    use super::*;

    /// A ring from which the records up to `freed` were given back, with those up to `last`.
    fn ring(freed: Lsn, last: Lsn) -> Staging<SharedMemory> {
        const BYTES: usize = 16 << 10;
        let memory = Arc::new(SharedMemory::anonymous(BYTES).expect("memory"));
        let mut staging = Staging::create(memory, 0, BYTES as u64, 7, freed).expect("a ring");
        (freed..last).for_each(|_| _ = staging.append(&[5; 48]).expect("room"));
        staging
    }

    /// Its records went to a file before the last one, and when that was pruned acknowledged writes
    /// were gone.
    #[test]
    fn a_ring_that_ends_before_a_damaged_last_file_begins_is_refused() {
        const LAST: Lsn = 100;
        let disk = MemoryDisk::new(1);
        let options = LogOptions { file_bytes: 2048, ..LogOptions::default() };
        let mut staging = ring(0, 0);
        let mut drain = Drain::open(&staging, disk.clone(), options).expect("a disk");
        for _ in 0..LAST {
            staging.append(&[5; 48]).expect("room");
            drain.finish(Instant::now()).expect("a disk");
        }
        let log = LogReader::look(&disk, Some(7), ReadLimit::Whole).expect("whole");
        let last = log.files.last().expect("a file");
        disk.flip(&last.name, last.bytes as usize / 2, 1).expect("a byte");
        for freed in [last.first - 1, last.first - 2, last.first / 2] {
            let disk = disk.deep_clone();
            let opened = Drain::open_after(&ring(freed, LAST), disk, options, freed);
            assert_eq!(opened.is_ok(), freed + 1 == last.first, "{freed}, {last:?}");
        }
    }
}
