//! Snapshots of the table, written while it changes.
//!
//! A snapshot is taken segment by segment, between requests; what changes meanwhile may or may not be in it. The log
//! from the entry at which it began makes up for that: entries are effects, and applying one that is contained already
//! changes nothing.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache_fabric::NodeMemory;

use crate::durability::{Lsn, SnapshotError, SnapshotInfo};
use crate::journal::background::SnapshotStart;
use crate::node::MemoryNode;
use crate::table::TableError;

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct Snapshotting<K: BuildKeys> {
    /// First key of the segment that comes next; `None` behind the last.
    next: Option<K::Owned>,
    /// Records on their way to the disk.
    records: Vec<u8>,
    /// The last entry of the log that may be contained, once all records are on their way.
    last: Option<Lsn>,
    is_finished: bool,
}

/// Records handed on at once, in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// What a step of a snapshot came to.
#[derive(Clone, Debug)]
pub(crate) enum Step {
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
    /// Begins a snapshot, unless one is under way, there is no log to complete it, or the disk is still busy with one that was
    /// given up.
    pub fn begin_snapshot(&mut self) {
        let (Some(journal), Some(table)) = (&mut self.journal, &self.table) else { return };
        if self.snapshotting.is_some() {
            return;
        }
        let mut header = vec![0; TableParameters::ENCODED_BYTES];
        table.record().parameters.encode::<K>(&mut header);
        header.extend(table.next_version().to_le_bytes());
        header.extend(K::encode_coders(table.coders()));
        // What waits for the disk is not in the table yet.
        let first = self.pending.first().unwrap_or(journal.last() + 1);
        if !journal.snapshots.begin(SnapshotStart { lineage: journal.lineage(), header, first }) {
            return;
        }
        journal.since_snapshot = 0;
        let next = Some(K::lowest().to_owned());
        self.snapshotting = Some(Snapshotting { next, records: Vec::new(), last: None, is_finished: false });
    }

    /// Takes some more of the snapshot under way.
    pub(crate) fn step_snapshot(&mut self) -> Result<Step, TableError> {
        let Self { front, table: Some(table), journal: Some(journal), snapshotting, .. } = self else {
            return Ok(Step::Idle);
        };
        let Some(taking) = snapshotting else { return Ok(Step::Idle) };
        if taking.is_finished {
            let Some(outcome) = journal.snapshots.outcome() else { return Ok(Step::Waits) };
            *snapshotting = None;
            self.has_snapshot |= outcome.is_ok();
            return Ok(Step::Ended(outcome));
        }
        if taking.records.len() < BLOCK_BYTES
            && let Some(from) = taking.next.take()
        {
            match table.records_from(front, from.borrow(), BLOCK_BYTES, &mut taking.records) {
                Ok(next) => taking.next = next,
                // Without these records it must not count.
                Err(error) => {
                    *snapshotting = None;
                    return Ok(Step::Ended(Err(SnapshotError::Table(error.to_string()))));
                }
            }
            return Ok(Step::More);
        }
        if !taking.records.is_empty() {
            let records = std::mem::take(&mut taking.records);
            if let Some(back) = journal.snapshots.push(records) {
                taking.records = back;
                return Ok(Step::Waits);
            }
            return Ok(Step::More);
        }
        // It counts only with the log up to there: that must be on the disk first.
        let last = *taking.last.get_or_insert(journal.last());
        if journal.synced() < last {
            journal.want_synced(last);
            return Ok(Step::Waits);
        }
        taking.is_finished = journal.snapshots.finish(last);
        Ok(if taking.is_finished { Step::More } else { Step::Waits })
    }

    /// Takes a whole snapshot while nothing else goes on. Without a log there is nothing to do.
    pub(crate) fn snapshot_now(&mut self) -> Result<(), String> {
        loop {
            // One that began earlier is finished first: it lacks nothing that the log has not.
            self.begin_snapshot();
            match self.step_snapshot().map_err(|error| error.to_string())? {
                Step::More => {}
                Step::Idle if self.journal.is_none() || self.table.is_none() => return Ok(()),
                Step::Idle | Step::Waits => {
                    if let Some(journal) = &mut self.journal
                        && let Some(failure) = journal.wait_a_little()
                    {
                        self.snapshotting = None;
                        return Err(failure);
                    }
                }
                Step::Ended(outcome) => return outcome.map(|_| ()).map_err(|error| error.to_string()),
            }
        }
    }

    /// Whether the log has become so long that another snapshot is worth its writing.
    pub(crate) fn wants_snapshot(&self) -> bool {
        /// Log entries for which no snapshot is written, in bytes.
        const LEAST: u64 = 64 << 20;
        let (Some(table), Some(journal)) = (&self.table, &self.journal) else { return false };
        let whole = LEAST.max(table.records_bytes());
        self.snapshotting.is_none() && (!self.has_snapshot || journal.since_snapshot > whole)
    }
}
