//! Snapshots of the table, written while it changes.
//!
//! A snapshot is taken segment by segment, between requests. It has the records that were there
//! when it began, except those that were changed or removed before it reached them; the log has
//! these changes, from the entry at which the snapshot began. So a snapshot is never larger than
//! the table was, and applying the log to it reproduces states that the table had.

use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache_fabric::{NodeMemory, Work};
use tracing::error;

use crate::damaged_records::LeftOut;
use crate::durability::{ExpectedSnapshot, LogError, Lsn, SnapshotError, SnapshotInfo};
use crate::node::long_work::Snapshotting;
use crate::node::{MemoryNode, NodeState};
use crate::table::error::{DamagedRecord, TableError};
use crate::wal::Wal;
use crate::wal::background::SnapshotStart;

/// Records handed on at once, in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// How long to wait after a snapshot that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How much longer after one that a damaged record ended.
const RETRY_DAMAGED_AFTER: Duration = Duration::from_secs(60);

/// How much longer after one for which the disk had no room, and how much where nothing can be
/// written before there is one. Each takes the room that the log needs.
const RETRY_FULL_AFTER: Duration = Duration::from_secs(120);
const RETRY_FULL_SOON: Duration = Duration::from_secs(4);

/// How long to wait for a disk that has not got so far.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The result of a step of a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum SnapshotStep {
    /// There is more to do at once.
    More,
    /// The disk has not yet got so far.
    Waits,
    /// Nothing to do.
    Idle,
    /// It has ended.
    Ended(Result<SnapshotInfo, SnapshotError>),
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Begins a snapshot, unless one is under way, there is no log to complete it, or the disk is
    /// still busy with one that was given up.
    pub fn begin_snapshot(&mut self) {
        let (Some(wal), Some(table)) = (&mut self.wal, self.state.table_mut()) else { return };
        if self.snapshotting.is_some() || !wal.snapshots.is_idle() {
            return;
        }
        let mut header = vec![0; TableParameters::ENCODED_BYTES];
        table.room.record.parameters.encode::<K>(&mut header);
        header.extend(table.segments.next_version.to_le_bytes());
        header.extend(K::encode_encoders(&table.segments.encoders));
        // What waits for the disk is not in the table yet. It comes there as what is written later
        // does; and the pieces of a value are of no use without the first.
        let first = self.pending.first().or(self.parked.first_piece()).unwrap_or(wal.staging.last_lsn() + 1);
        let lineage = wal.staging.lineage();
        // Without a snapshot that counts nothing is appended to the log, which needs no room
        // meanwhile; and every write is refused until there is one.
        let expected = match self.has_snapshot {
            true => ExpectedSnapshot::About { records: table.segments.keys, bytes: table.records_bytes() },
            false => ExpectedSnapshot::AtLeast(table.least_records_bytes()),
        };
        wal.snapshots.begin(SnapshotStart { lineage, header, first, expected });
        let logged_before = std::mem::take(&mut wal.since_snapshot);
        table.begin_taking();
        let begun = self.clock.now();
        self.snapshotting = Some(Snapshotting {
            begun,
            logged_before,
            records: Vec::new(),
            last: None,
            log_failures: None,
            is_finished: false,
            left_out: LeftOut::default(),
        });
    }

    /// Takes some more of the snapshot under way.
    pub(crate) fn step_snapshot(&mut self) -> Result<SnapshotStep, TableError> {
        let Self { state: NodeState::Serving(table), wal: Some(wal), snapshotting, left_out, .. } = self
        else {
            return Ok(SnapshotStep::Idle);
        };
        let Some(taking) = snapshotting else { return Ok(SnapshotStep::Idle) };
        match wal.snapshots.outcome() {
            Some(outcome) => return self.end_snapshot(outcome),
            None if taking.is_finished => return Ok(SnapshotStep::Waits),
            None => {}
        }
        if taking.records.len() < BLOCK_BYTES && table.is_taking() {
            let (has_snapshot, lacks) = (self.has_snapshot, &mut taking.left_out);
            let mut met = 0;
            let leaves_out = |damaged: DamagedRecord, is_new: bool| {
                let is_on_disk = has_snapshot && !left_out.has(&damaged);
                met += u64::from(is_new || is_on_disk);
                if is_on_disk {
                    // The disk has it whole: a snapshot without it must not take the place of that.
                    return Err(damaged.into());
                }
                // Nothing written from now on would be durable without a snapshot; or the last one
                // was without it too.
                lacks.add(&damaged);
                if is_new {
                    let what = damaged.what();
                    error!(
                        "{what}; a snapshot is written without it, so that the disk does not have it whole: write that key again, or \
                         delete it"
                    );
                }
                Ok(())
            };
            let taken = table.take_records(BLOCK_BYTES, leaves_out, &mut taking.records);
            table.counters.damaged_copies += met;
            if let Err(error) = taken {
                self.give_up_snapshot();
                // Little changes that by itself, and the snapshot may be long.
                self.retry_at = self.retry_at.map(|at| at + RETRY_DAMAGED_AFTER);
                return Ok(SnapshotStep::Ended(Err(SnapshotError::Table(error.to_string()))));
            }
            return Ok(SnapshotStep::More);
        }
        if !taking.records.is_empty() {
            let records = std::mem::take(&mut taking.records);
            let Some(back) = wal.snapshots.push(records) else { return Ok(SnapshotStep::More) };
            taking.records = back;
            return Ok(SnapshotStep::Waits);
        }
        // It counts only with the log up to there: that must be on the disk first.
        let last = *taking.last.get_or_insert(wal.staging.last_lsn());
        if wal.synced() < last {
            return self.wait_for_log(last);
        }
        if !taking.left_out.is_empty() {
            // Before it counts: else a start in between would take the disk for whole.
            left_out.add_all(&taking.left_out);
            left_out.note(wal.recovery_area.memory())?;
        }
        wal.snapshots.finish(last);
        taking.is_finished = true;
        Ok(SnapshotStep::More)
    }

    /// Waits for the log to be on the disk up to `last`.
    fn wait_for_log(&mut self, last: Lsn) -> Result<SnapshotStep, TableError> {
        let (Some(wal), Some(taking)) = (&mut self.wal, &mut self.snapshotting) else {
            return Ok(SnapshotStep::Idle);
        };
        wal.staging.want_sync(last);
        let failures = wal.staging.failures();
        // The log may wait for room, which this snapshot may have, and this one for the log. But
        // there may be room by now: that it is refused again says that there is none.
        match wal.staging.failure().as_ref().and_then(LogError::no_room) {
            Some(full) if failures > *taking.log_failures.get_or_insert(failures) => {
                self.end_snapshot(Err(full.clone().into()))
            }
            _ => Ok(SnapshotStep::Waits),
        }
    }

    /// Takes up how the snapshot under way has ended.
    fn end_snapshot(
        &mut self,
        outcome: Result<SnapshotInfo, SnapshotError>,
    ) -> Result<SnapshotStep, TableError> {
        match &outcome {
            Ok(info) => {
                let taken = self.snapshotting.take();
                let Some(wal) = &mut self.wal else { return Ok(SnapshotStep::Idle) };
                let now = taken.map(|taken| taken.left_out).unwrap_or_default();
                if now != self.left_out {
                    self.left_out = now;
                    self.left_out.note(wal.recovery_area.memory())?;
                }
                wal.covered_before(info.first_lsn);
                // One that began before entries were lost does not make up for them.
                self.has_snapshot = !wal.has_lost();
            }
            Err(error) => {
                let longer = match (error.is_full(), self.has_snapshot) {
                    (true, true) => RETRY_FULL_AFTER,
                    (true, false) => RETRY_FULL_SOON,
                    _ => Duration::ZERO,
                };
                self.give_up_snapshot();
                self.retry_at = self.retry_at.map(|at| at + longer);
            }
        }
        Ok(SnapshotStep::Ended(outcome))
    }

    /// Begins a snapshot if it is time, or gets on with the one under way; says when there is more
    /// to do, which the log has at `due`.
    pub(crate) fn work_on_snapshot(&mut self, due: Option<Instant>) -> Work {
        if self.wal.is_none() {
            return Work::Nothing;
        }
        let now = self.clock.now();
        if self.wal.as_ref().is_some_and(Wal::has_lost) && std::mem::take(&mut self.has_snapshot) {
            // One is more urgent now than when the last one failed.
            self.retry_at = None;
        }
        if self.wants_snapshot() && self.retry_at.is_none_or(|at| at <= now) {
            self.begin_snapshot();
            if self.snapshotting.is_none() {
                return Work::At(now + PAUSE);
            }
        }
        match self.step_snapshot() {
            Ok(SnapshotStep::More) => Work::More,
            Ok(SnapshotStep::Waits) => Work::At(due.map_or(now + PAUSE, |due| due.min(now + PAUSE))),
            Ok(SnapshotStep::Ended(Err(error))) => {
                error!("no snapshot was written: {error}");
                Work::At(self.retry_at.unwrap_or(now + RETRY_AFTER))
            }
            _ => due.map_or(Work::Nothing, Work::At),
        }
    }

    /// Brings the records of a load to the disk, before anything else is done between requests.
    pub(crate) fn step_durable(&mut self) -> Work {
        self.begin_snapshot();
        let ended = match self.step_snapshot() {
            Ok(SnapshotStep::More) => return Work::More,
            Ok(SnapshotStep::Waits | SnapshotStep::Idle) => {
                let Some(wal) = &mut self.wal else { return Work::Nothing };
                // One that finds no room tries again first, and a step of the snapshot says how
                // that ended.
                let Some(failure) = wal.staging.failure().filter(|failure| !failure.is_full()) else {
                    wal.staging.want_sync(wal.staging.last_lsn());
                    return Work::At(self.clock.now() + PAUSE);
                };
                self.give_up_snapshot();
                Err(failure.to_string())
            }
            Ok(SnapshotStep::Ended(outcome)) => outcome.map(|_| ()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.durable = Some(ended);
        Work::More
    }

    /// Takes a whole snapshot at once. Without a log there is nothing to do.
    pub(crate) fn snapshot_now(&mut self) -> Result<(), String> {
        // Of an earlier one, for which nobody waits any more.
        self.durable = None;
        while self.state.table().is_some() && self.wal.is_some() {
            // One that began earlier is finished first: it lacks nothing that the log has not.
            let work = self.step_durable();
            if let Some(ended) = self.durable.take() {
                return ended;
            }
            if let (Work::At(_), Some(wal)) = (work, &mut self.wal) {
                wal.wait_a_little();
            }
        }
        Ok(())
    }

    /// Gives up the snapshot under way, if there is one.
    fn give_up_snapshot(&mut self) {
        let Some(Snapshotting { begun, logged_before, .. }) = self.snapshotting.take() else { return };
        if let Some(wal) = &mut self.wal {
            wal.since_snapshot += logged_before;
            wal.snapshots.give_up();
        }
        // One that takes long is not tried again and again at once.
        let now = self.clock.now();
        self.retry_at = Some(now + RETRY_AFTER.max(now.saturating_duration_since(begun)));
        if let Some(table) = self.state.table_mut() {
            table.end_taking();
        }
    }

    /// Whether the log has become so long that another snapshot is worth its writing.
    pub(crate) fn wants_snapshot(&self) -> bool {
        /// Log entries for which no snapshot is written, in bytes.
        const LEAST: u64 = 64 << 20;
        let (Some(table), Some(wal)) = (self.state.table(), &self.wal) else { return false };
        let whole = LEAST.max(table.records_bytes());
        self.snapshotting.is_none() && (!self.has_snapshot || wal.since_snapshot > whole)
    }
}
