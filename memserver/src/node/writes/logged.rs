//! Mutations that are logged before they are performed: at once, or when they are on the disk.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValueExtent};
use fpcache::message::Refusal;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;

use super::Unable;
use crate::awaiting_sync::{Lsns, PendingOperation, PendingOutcome};
use crate::dedup::DedupSession;
use crate::durability::{AppendError, Lsn};
use crate::node::parked::{ValueToLog, WaitFor, WriteInProgress, cost};
use crate::node::serving::internal;
use crate::node::{MemoryNode, NodeState};
use crate::table::segments::decide::SlotMutation;
use crate::wal::WalError;
use crate::wal::entry::WalEntry;

/// Whether a mutation is in the log.
enum LogState {
    /// With these entries; and whether it waits for the disk before readers see it.
    Down(Lsns, bool),
    Waits(WaitFor),
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Writes a decided mutation down and does it, or has it wait for the disk. Returns what must be
    /// waited for before it can be written down, if anything.
    pub(super) fn change(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        mutation: &SlotMutation<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<Option<WaitFor>, Refusal> {
        if self.state.superblock().breaks(Sabotage::ApplyBeforeStaging) {
            return self.change_unwritten(going, operation, mutation, value);
        }
        let (lsns, waits) = match self.log_mutation(going, operation, mutation, value) {
            Ok(LogState::Down(lsns, waits)) => (lsns, waits),
            Ok(LogState::Waits(until)) => return Ok(Some(until)),
            Err(unable) => {
                going.put = None;
                self.take_back(value);
                self.skip_orphans(value)?;
                return self.reply(going, operation, unable.reply()?);
            }
        };
        let Some(table) = self.state.table_mut() else { return Err(Self::no_table()) };
        table.accept(mutation);
        if waits {
            table.segments.reserve(mutation);
            let outcome =
                PendingOutcome::SlotMutation { lsns, mutation: mutation.to_owned(), value: value.into() };
            self.pending.add(PendingOperation { session: going.session, operation, outcome }, &self.transit);
            going.entries = self.pending.added();
            return Ok(None);
        }
        self.perform(&going.session, operation, lsns.last, mutation, value).map(|()| None)
    }

    /// [`change`](Self::change) in the wrong order: does a decided mutation and then writes it
    /// down.
    #[cold]
    fn change_unwritten(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        mutation: &SlotMutation<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<Option<WaitFor>, Refusal> {
        let NodeState::Serving(table) = &mut self.state else {
            return Err(Self::no_table());
        };
        table.accept(mutation);
        let reply = table.perform(mutation, value).map_err(internal)?;
        let next_version = table.segments.next_version;
        table.segments.region.release();
        let lsns = loop {
            match self.log_mutation(going, operation, mutation, value) {
                Ok(LogState::Down(lsns, _)) => break lsns,
                Ok(LogState::Waits(_)) => self.wal.as_mut().and_then(crate::wal::Wal::wait_a_little),
                Err(unable) => return self.reply(going, operation, unable.reply()?),
            };
        };
        self.keep_reply(&going.session, operation, reply)?;
        if let Some(wal) = &self.wal {
            wal.recovery_area.set_applied(lsns.last, next_version).map_err(internal)?;
        }
        Ok(None)
    }

    /// Writes a mutation down, if there is a log, after the pieces of its value. What has been
    /// written of a value when it must wait for its turn or for room in the log is kept.
    fn log_mutation(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        mutation: &SlotMutation<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<LogState, Unable> {
        if self.wal.is_none() {
            return Ok(LogState::Down(Lsns { first: 0, last: 0 }, false));
        }
        if !self.has_snapshot {
            return Err(Unable::NotDurable);
        }
        if let Stored::External(extent) = value
            && let Some(until) = self.write_pieces(going, extent)?
        {
            return Ok(LogState::Waits(until));
        }
        let Some(wal) = &mut self.wal else { return Err(Unable::NotDurable) };
        let entry = WalEntry {
            kind: mutation.kind,
            // Below a segment's cap.
            slot: mutation.slot as u16,
            generation: mutation.segment.generation(),
            segment: mutation.segment.address().offset(),
            version: mutation.version,
            // Below the limit of a request.
            operation: operation as u16,
            client: going.session.client,
            request: going.session.request,
            key: mutation.key,
            value: *value,
        };
        let last = match wal.append::<K>(&entry) {
            Ok(last) => last,
            Err(WalError::Append(AppendError::Full)) => return Ok(LogState::Waits(WaitFor::LogRoom)),
            Err(_) => return Err(Unable::NotDurable),
        };
        let first = going.put.take().and_then(|put| put.first).unwrap_or(last);
        let lsns = Lsns { first, last };
        let waits = wal.syncs_first() && !self.state.superblock().breaks(Sabotage::AckBeforeLog);
        Ok(LogState::Down(lsns, waits))
    }

    /// Writes the pieces of a value down that are still to be; what must be waited for, if
    /// anything.
    #[cold]
    fn write_pieces(
        &mut self,
        going: &mut WriteInProgress,
        extent: &ValueExtent,
    ) -> Result<Option<WaitFor>, Unable> {
        let mut put = going.put.unwrap_or(ValueToLog { extent: *extent, first: None, written: 0 });
        let until = loop {
            if put.written == extent.bytes {
                break None;
            }
            if self.is_spent() && put.first.is_some() {
                break Some(WaitFor::NextPiece);
            }
            let Self { wal: Some(wal), state, .. } = self else { return Err(Unable::NotDurable) };
            match wal.append_piece(&state.superblock().region, extent, put.written) {
                Ok((lsn, bytes)) => {
                    put.first.get_or_insert(lsn);
                    put.written += bytes;
                    self.charge(cost::bytes(bytes as usize));
                }
                Err(WalError::Append(AppendError::Full)) => break Some(WaitFor::LogRoom),
                Err(_) => return Err(Unable::NotDurable),
            }
        };
        going.put = Some(put);
        Ok(until)
    }

    pub(super) fn perform<Q: Borrow<K::Key> + Clone>(
        &mut self,
        session: &DedupSession,
        operation: usize,
        lsn: Lsn,
        mutation: &SlotMutation<K, Q>,
        value: &Stored<'_>,
    ) -> Result<(), Refusal> {
        let NodeState::Serving(table) = &mut self.state else {
            return Err(Self::no_table());
        };
        let reply = table.perform(mutation, value).map_err(internal)?;
        let next_version = table.segments.next_version;
        self.keep_reply(session, operation, reply)?;
        match &self.wal {
            Some(wal) => wal.recovery_area.set_applied(lsn, next_version).map_err(internal),
            None => Ok(()),
        }
    }
}
