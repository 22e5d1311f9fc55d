//! The drain, which copies records from the staging ring to the log's files.

use std::sync::Arc;
use std::time::Instant;

use fpcache::sabotage::Sabotage;
use fpcache_fabric::{AccessError, NodeMemory};

pub use super::continuing::OpenError;
use super::continuing::{files_despite, files_for, sync_given_back};
use super::disk::{Disk, DiskError};
use super::error::{LogError, StagingError};
use super::frame::{self, FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, encode_mark};
use super::log::{LogFile, RecoveryError};
use super::lsn::Lsn;
use super::names::log_name;
use super::policy::SyncPolicy;
use super::rewrite_last_file::write_anew;
use super::ring::{Ring, Word};
use super::signals::Signals;
use super::staging::Staging;

/// Bytes copied to a file at once; no frame is longer.
const CHUNK_BYTES: usize = 1 << 20;

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// When it is synced.
    pub sync: SyncPolicy,
    /// The length in bytes from which on a file is followed by a new one. Files are up to 1 MiB
    /// longer.
    pub file_bytes: u64,
}

impl Default for LogOptions {
    /// Synced every 10 ms, in files of 64 MiB.
    fn default() -> Self {
        Self { sync: SyncPolicy::default(), file_bytes: 64 << 20 }
    }
}

impl From<AccessError> for LogError {
    fn from(error: AccessError) -> Self {
        Self::Staging(error.into())
    }
}

/// How far the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainProgress {
    /// LSN of the last record in files.
    pub drained: Lsn,
    /// LSN of the last record that a machine crash does not take.
    pub synced: Lsn,
    /// When the next sync is due; `None` if all is synced, or nothing will be for the policy's
    /// sake.
    pub due: Option<Instant>,
}

/// Writes what is staged to files, and syncs them.
///
/// Stepped by hand, or by a [`DrainThread`](super::DrainThread). It is the only one that writes the
/// log's files.
pub struct Drain<M, D> {
    pub(super) ring: Ring<M>,
    pub(super) signals: Arc<Signals>,
    disk: D,
    options: LogOptions,
    /// The last file of the processes before, if its end may not be on the disk.
    unsure: Option<LogFile>,
    /// The first record of the files that could be used when the log was gone on with.
    begins: Lsn,
    file: String,
    file_bytes: u64,
    /// Bytes ever written to files, and the LSN of the last record among them.
    pub(super) drained: u64,
    drained_lsn: Lsn,
    synced_lsn: Lsn,
    /// Bytes ever given back to the writer, and the LSN of the last record among them: where a
    /// retry begins.
    freed: u64,
    freed_lsn: Lsn,
    unsynced_since: Option<Instant>,
    /// A mark goes before the next record: something was synced since the last.
    mark_due: bool,
    failure: Option<LogError>,
    /// What is broken on purpose.
    pub(crate) sabotage: Option<Sabotage>,
    buffer: Vec<u8>,
}

impl<M: NodeMemory, D: Disk> Drain<M, D> {
    /// Goes on with the log on `disk` where `staging` says: in a new file, with all records that
    /// the ring still holds. So anything that an ended process left after them in files, written
    /// twice, half or not at all, is replaced.
    ///
    /// # Errors
    /// If the files do not reach the ring, are another log's, are damaged before it, or the new
    /// file cannot be made.
    pub fn open(staging: &Staging<M>, disk: D, options: LogOptions) -> Result<Self, OpenError> {
        Self::open_after(staging, disk, options, 0)
    }

    /// As [`open`](Self::open), where memory has what records up to `applied` did: if these are all
    /// that are needed of a last file that is damaged or cannot be read, and it can be told that it
    /// had none that memory lacks, it counts as lost.
    pub(crate) fn open_after(
        staging: &Staging<M>,
        mut disk: D,
        options: LogOptions,
        applied: Lsn,
    ) -> Result<Self, OpenError> {
        let (ring, signals) = staging.shared();
        let chunk_bytes = CHUNK_BYTES.min(usize::try_from(ring.capacity).unwrap_or(CHUNK_BYTES));
        let word = |word| ring.load(word).map_err(LogError::from);
        let (freed, freed_lsn) = (word(Word::Freed)?, word(Word::FreedLsn)?);
        let report = match files_for(&ring, &disk, freed_lsn) {
            Err(OpenError::Recovery(why @ (RecoveryError::Damaged { .. } | RecoveryError::Disk(_))))
                if applied >= freed_lsn =>
            {
                files_despite(why, &ring, &disk, freed_lsn..=staging.last_lsn())?
            }
            found => found?,
        };
        if word(Word::SyncedLsn)? < freed_lsn {
            sync_given_back(&ring, &mut disk, &report, freed_lsn)?;
        }
        let lost = word(Word::LostLsn)?;
        let unsure = report.files.last().filter(|_| lost > 0 && lost == freed_lsn).cloned();
        let synced_lsn = match unsure {
            Some(_) => word(Word::SyncedLsn)?.min(freed_lsn),
            None => freed_lsn,
        };
        // The ring has, or will have, what it was made for; none of the others was ever in it.
        if let Some(half_made) = &report.half_made {
            disk.remove(&half_made.name).map_err(RecoveryError::from)?;
        }
        let begins = report.files.first().map_or(freed_lsn + 1, |file| file.first);
        let mut drain = Self {
            ring,
            signals,
            disk,
            options,
            unsure,
            begins,
            file: String::new(),
            file_bytes: 0,
            drained: freed,
            drained_lsn: freed_lsn,
            synced_lsn,
            freed,
            freed_lsn,
            unsynced_since: None,
            mark_due: false,
            failure: None,
            sabotage: None,
            buffer: vec![0; FRAME_HEADER_BYTES + chunk_bytes],
        };
        drain.signals.set_lost(lost);
        match drain.begin_file(freed_lsn + 1) {
            // A disk that is full now may have room later; until then the ring keeps what it has.
            Err(error) if error.is_full() => {
                drain.fail(error);
            }
            begun => begun?,
        }
        drain.ring.store(Word::SyncedLsn, drain.synced_lsn).map_err(LogError::from)?;
        Ok(drain)
    }

    /// Copies what was staged before the call to files, and syncs them if that is due at `now`,
    /// wanted, or the ring is half full of unsynced records.
    ///
    /// # Errors
    /// If the disk refuses; every later step gives the same error until [`retry`](Self::retry)
    /// succeeds. The ring keeps what is not synced, the writer keeps staging until it is full.
    pub fn step(&mut self, now: Instant) -> Result<DrainProgress, LogError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.try_step(now, false).map_err(|e| self.give_up(e))
    }

    /// A [`step`](Self::step) that syncs whatever the policy says: the last one of a process that
    /// ends well.
    ///
    /// # Errors
    /// As of `step`.
    pub fn finish(&mut self, now: Instant) -> Result<DrainProgress, LogError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.try_step(now, true).map_err(|e| self.give_up(e))
    }

    /// After an error: begins a new file and has the next step write all records to it that the
    /// ring holds.
    ///
    /// # Errors
    /// If the disk still refuses, or the ring is damaged.
    pub fn retry(&mut self) -> Result<(), LogError> {
        match &self.failure {
            None => return Ok(()),
            Some(failure @ LogError::Staging(_)) => return Err(failure.clone()),
            Some(LogError::Sync { .. }) if Sabotage::FailedSyncTrusted.is(self.sabotage) => {
                self.failure = None;
                self.signals.set_failure(None);
                return Ok(());
            }
            Some(_) => {}
        }
        self.begin_file(self.freed_lsn + 1).map_err(|e| self.fail(e))?;
        self.drained = self.freed;
        self.drained_lsn = self.freed_lsn;
        self.unsynced_since = None;
        self.failure = None;
        self.signals.set_failure(None);
        Ok(())
    }

    /// How far the log is, and when the next sync is due.
    #[must_use]
    pub fn progress(&self) -> DrainProgress {
        let due = match self.options.sync {
            SyncPolicy::Always => self.unsynced_since,
            SyncPolicy::Interval(interval) => {
                self.unsynced_since.and_then(|since| since.checked_add(interval))
            }
            SyncPolicy::Never => None,
        };
        DrainProgress { drained: self.drained_lsn, synced: self.synced_lsn, due }
    }

    /// The first record that can be read, by the headers of all files and without a look at what
    /// follows them.
    pub(crate) fn begins(&self) -> Lsn {
        self.begins
    }

    /// Why it fails, until a retry succeeds.
    #[must_use]
    pub fn failure(&self) -> Option<&LogError> {
        self.failure.as_ref()
    }

    /// Whether more is staged than is written.
    pub(super) fn has_staged(&self) -> bool {
        self.ring.load(Word::Tail).is_ok_and(|tail| tail != self.drained)
    }

    /// Whether a sync is wanted, or the ring half full.
    pub(super) fn is_urgent(&self) -> bool {
        let held = self.ring.load(Word::Tail).map_or(0, |tail| tail.saturating_sub(self.freed));
        self.signals.wanted() > self.synced_lsn && self.has_unsynced() || held > self.ring.capacity / 2
    }

    fn has_unsynced(&self) -> bool {
        self.has_staged() || self.drained_lsn > self.synced_lsn
    }

    /// Syncs what was written before an error of writing: a disk that stays full keeps the later
    /// records in the ring, and these need not wait with them.
    fn give_up(&mut self, error: LogError) -> LogError {
        let error = match error {
            LogError::Write { source, .. } if self.drained_lsn > self.synced_lsn && !self.file.is_empty() => {
                match self.sync() {
                    Ok(()) => LogError::Write { from: self.synced_lsn + 1, source },
                    Err(error) => error,
                }
            }
            other => other,
        };
        self.fail(error)
    }

    fn fail(&mut self, error: LogError) -> LogError {
        self.failure = Some(error.clone());
        self.signals.set_failure(Some(error.clone()));
        error
    }

    fn try_step(&mut self, now: Instant, must_sync: bool) -> Result<DrainProgress, LogError> {
        let tail = self.ring.load(Word::Tail)?;
        while self.drained < tail {
            if self.file_bytes >= self.options.file_bytes {
                self.roll()?;
            }
            self.copy_chunk(tail)?;
            self.unsynced_since.get_or_insert(now);
        }
        let is_due = self.progress().due.is_some_and(|due| due <= now);
        let is_wanted = self.signals.wanted() > self.synced_lsn;
        let holds_much = self.drained - self.freed > self.ring.capacity / 2;
        if self.drained_lsn > self.synced_lsn && (must_sync || is_due || is_wanted || holds_much) {
            self.sync()?;
        }
        Ok(self.progress())
    }

    /// Copies as many whole records as one write takes, up to `tail`.
    fn copy_chunk(&mut self, tail: u64) -> Result<(), LogError> {
        let room = self.buffer.len() - FRAME_HEADER_BYTES;
        let len = (tail - self.drained).min(room as u64) as usize;
        let staged = &mut self.buffer[FRAME_HEADER_BYTES..][..len];
        self.ring.read(self.drained, staged)?;
        let (bytes, last) = whole_frames(staged, self.drained_lsn)?;
        let mut start = FRAME_HEADER_BYTES;
        if self.mark_due {
            start = 0;
            self.buffer[..FRAME_HEADER_BYTES]
                .copy_from_slice(&encode_mark(self.ring.lineage, self.synced_lsn));
        }
        let written = &self.buffer[start..FRAME_HEADER_BYTES + bytes];
        self.ring.store(Word::FileLast, last)?;
        self.ring.store(Word::FileBytes, self.file_bytes + written.len() as u64)?;
        self.disk
            .append(&self.file, written)
            .map_err(|source| LogError::Write { from: self.synced_lsn + 1, source })?;
        self.mark_due = false;
        self.file_bytes += written.len() as u64;
        self.drained += bytes as u64;
        self.drained_lsn = last;
        if self.options.sync == SyncPolicy::Never {
            self.free()?;
        }
        Ok(())
    }

    /// Gives what is drained back to the writer. The LSN goes first: a process that ends between
    /// the two stores leaves records in the ring that tell their LSN themselves.
    fn free(&mut self) -> Result<(), AccessError> {
        self.freed = self.drained;
        self.freed_lsn = self.drained_lsn;
        self.ring.store(Word::FreedLsn, self.freed_lsn)?;
        self.ring.store(Word::Freed, self.freed)
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.sync_file()?;
        self.synced_lsn = self.drained_lsn;
        // Before writes may be acknowledged: a process that goes on where nothing is given back
        // replaces this file, and until that is synced too the records are on no disk.
        self.free()?;
        self.ring.store(Word::SyncedLsn, self.synced_lsn)?;
        self.unsynced_since = None;
        self.mark_due = true;
        Ok(())
    }

    /// Syncs the file, and notes if that may have lost records which the ring has no more: at once,
    /// for a process that ends before a retry must not leave a gap that nobody knows of.
    fn sync_file(&mut self) -> Result<(), LogError> {
        let synced = self.disk.sync(&self.file);
        if synced.is_err() && self.synced_lsn < self.freed_lsn {
            self.ring.store(Word::LostLsn, self.freed_lsn)?;
            self.signals.set_lost(self.freed_lsn);
        }
        synced.map_err(|source| LogError::Sync { from: self.synced_lsn + 1, source })
    }

    /// Begins the next file. The one before is synced first, also with `SyncPolicy::Never`: else a
    /// machine crash could keep the later file and not the earlier, which would be a hole.
    fn roll(&mut self) -> Result<(), LogError> {
        self.sync()?;
        self.begin_file(self.drained_lsn + 1)
    }

    /// Makes the file whose first record is `first`, durably, in place of one that a failure or the
    /// end of a process left: none of its records was given back by the ring.
    fn begin_file(&mut self, first: Lsn) -> Result<(), LogError> {
        // A file after what may not be on the disk would make a gap of it.
        if let Some(last) = &self.unsure {
            write_anew(&mut self.disk, &last.name, last.bytes)
                .map_err(|source| LogError::Write { from: self.synced_lsn + 1, source })?;
            self.unsure = None;
            // Only now: else the next start would take what the end of the machine took for damage.
            self.synced_lsn = self.freed_lsn;
            self.ring.store(Word::SyncedLsn, self.synced_lsn)?;
        }
        let name = log_name(first);
        let header = FileHeader { lineage: self.ring.lineage, first }.encode();
        let old = std::mem::take(&mut self.file);
        self.disk.close(&old);
        self.ring.note_file(first, header.len() as u64)?;
        let disk = &mut self.disk;
        let mut make = || -> Result<(), DiskError> {
            disk.remove_if_there(&name)?;
            disk.create(&name)?;
            disk.append(&name, &header)?;
            disk.sync(&name)?;
            disk.sync_dir()
        };
        make().map_err(|source| LogError::Write { from: self.synced_lsn + 1, source })?;
        self.file = name;
        self.file_bytes = FILE_HEADER_BYTES as u64;
        self.mark_due = false;
        Ok(())
    }
}

/// How many bytes of `staged` are whole frames, and the LSN of the last, if they continue after
/// `before`. The records' checksums are not looked at: they are checked when the ring is opened and
/// when the log is read.
fn whole_frames(staged: &[u8], before: Lsn) -> Result<(usize, Lsn), StagingError> {
    let mut done = 0;
    let mut last = before;
    while staged.len() - done >= FRAME_HEADER_BYTES {
        let (bytes, lsn) = frame::claimed(&staged[done..])
            .map_err(|fault| StagingError::Damaged { lsn: last, why: fault.text() })?;
        if lsn != last + 1 {
            return Err(StagingError::Damaged { lsn: last, why: "a record is out of order" });
        }
        if bytes > staged.len() - done {
            break;
        }
        done += bytes;
        last = lsn;
    }
    if done == 0 {
        return Err(StagingError::Damaged { lsn: before, why: "a record is not whole" });
    }
    Ok((done, last))
}
