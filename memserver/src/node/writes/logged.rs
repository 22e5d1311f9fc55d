//! Mutations written down in the log, with the pieces of their values.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValueExtent};
use fpcache::message::Refusal;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;

use super::refusing::Unable;
use crate::awaiting_sync::Lsns;
use crate::durability::AppendError;
use crate::node::parked::{ValueToLog, WaitFor, WriteInProgress, cost};
use crate::node::serving::internal;
use crate::node::{MemoryNode, NodeState};
use crate::table::segments::decide::SlotMutation;
use crate::wal::WalError;
use crate::wal::entry::WalEntry;

/// Whether a mutation is in the log.
pub(super) enum LogState {
    /// With these entries; and whether it waits for the disk before readers see it.
    Down(Lsns, bool),
    Waits(WaitFor),
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// [`change`](Self::change) in the wrong order: does a decided mutation and then writes it
    /// down.
    #[cold]
    pub(super) fn change_unwritten(
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
                Ok(LogState::Waits(_)) => self.wal.iter_mut().for_each(crate::wal::Wal::wait_a_little),
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
    pub(super) fn log_mutation(
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
}
