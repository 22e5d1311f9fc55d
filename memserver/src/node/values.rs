//! Values on their way to their records: those sent ahead of their requests, and those to be stored
//! externally.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValuePlace};
use fpcache::message::{ErrorCode, Refusal, Sent, ValuePiece, Write, WriteKind, WriteOperation};
use fpcache_fabric::{ClientId, NodeMemory};

use crate::dedup::DedupSession;
use crate::node::long_work::LoadId;
use crate::node::parked::{RequestState, WaitFor, cost};
use crate::node::serving::{Dispatched, internal};
use crate::node::writes::Unable;
use crate::node::{MemoryNode, NodeState};
use crate::space::Extent;
use crate::table::Table;
use crate::table::error::TableError;
use crate::table::values::memory_of;
use crate::uploads::{self, Upload};

/// The client of pieces that belong to a load.
const LOADS: u64 = 0;

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Takes a piece of a value that comes ahead of a write, or of a load's record.
    pub(crate) fn take_piece(
        &mut self,
        client: ClientId,
        piece: &ValuePiece<'_>,
    ) -> Result<Dispatched, Refusal> {
        let region = Arc::clone(self.region());
        self.charge(cost::OPERATION + cost::bytes(piece.bytes.len()));
        if piece.client == LOADS {
            let id = LoadId { client, number: piece.request };
            return self.take_piece_of_load(id, &*region, piece).map(|()| Dispatched::Now);
        }
        let most = uploads::most_ahead(self.state.superblock().grant.reach());
        let Self { state: NodeState::Serving(table), uploads, transit, .. } = self else {
            return Err(Self::no_table());
        };
        uploads::check(piece, &table.segments.geometry.shape)?;
        let mut freed = Vec::new();
        let begun = match uploads.place(client, piece, (most, &*transit), &mut freed) {
            Ok(Some(upload)) => Ok(Some(upload.add(&*region, piece).map_err(internal)?)),
            Ok(None) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        freed.into_iter().for_each(|memory| table.room.free_value(memory));
        let added = match begun? {
            Some(added) => added,
            None => {
                let memory = match self.memory_for(piece)? {
                    Ok(memory) => memory,
                    Err(until) => return Ok(Dispatched::Waits(RequestState::New, until)),
                };
                let mut upload = Upload::begin(memory, piece.value_bytes, self.transit.hold_value());
                let added = upload.add(&*region, piece).map_err(internal)?;
                self.uploads.keep(client, piece, upload);
                added
            }
        };
        if added { Ok(Dispatched::Now) } else { Err(uploads::out_of_order()) }
    }

    /// Takes a piece of the value of a record that a load has yet to send.
    fn take_piece_of_load(&mut self, id: LoadId, region: &M, piece: &ValuePiece<'_>) -> Result<(), Refusal> {
        let transit = self.transit.clone();
        let loader = self.loader(id)?;
        uploads::check(piece, &loader.shape())?;
        if piece.offset == 0 && !transit.has_room_for_value() {
            return Err(uploads::too_many());
        }
        let taken = loader.take_piece(region, piece, &transit);
        match taken {
            Ok(true) => Ok(()),
            Ok(false) => Err(uploads::out_of_order()),
            Err(error) => {
                self.abort(id);
                Err(error.refusal())
            }
        }
    }

    /// Memory for a value whose first piece has come; `None` if there is no room for it, as its
    /// operation will say. Else what must be waited for.
    fn memory_for(&mut self, piece: &ValuePiece<'_>) -> Result<Result<Option<Extent>, WaitFor>, Refusal> {
        let (bytes, mut has_tried) = (piece.value_bytes as usize, false);
        if self.is_searching() && self.parked.holds_writes() {
            // For another request, which what is free now is kept for.
            return Ok(Err(WaitFor::Room));
        }
        loop {
            let NodeState::Serving(table) = &mut self.state else {
                return Err(Self::no_table());
            };
            let found = match table.is_searching() {
                true => None,
                false => match table.room.allocate_value(&table.segments, bytes) {
                    Ok(memory) => Some(memory),
                    Err(TableError::NoRoom { .. }) => None,
                    Err(error) => return Err(Refusal::new(ErrorCode::Internal, error.to_string())),
                },
            };
            match found {
                Some(memory) => return Ok(Ok(Some(memory))),
                // The write that others wait for has the table to itself: this one would search in
                // its way.
                None if self.parked.holds_writes() => return Ok(Err(WaitFor::Room)),
                None if has_tried => return Ok(Ok(None)),
                None => match self.make_room_for_value(bytes)? {
                    Ok(true) => has_tried = true,
                    Ok(false) => return Ok(Err(WaitFor::Room)),
                    Err(Unable::NotQuiet) if !self.log_fails() => return Ok(Err(WaitFor::Quiet)),
                    Err(_) => return Ok(Ok(None)),
                },
            }
        }
    }

    /// Makes room for a value of this many bytes, as long as the allowance lasts; `false` if there
    /// is more to do.
    pub(crate) fn make_room_for_value(&mut self, bytes: usize) -> Result<Result<bool, Unable>, Refusal> {
        let missed = self.state.table().and_then(|table| table.refused_for_value(bytes));
        if let Err(unable) = self.may_search(missed) {
            return Ok(Err(unable));
        }
        loop {
            let NodeState::Serving(table) = &mut self.state else {
                return Err(Self::no_table());
            };
            let before = table.counters.copies;
            let made = table.make_room_for_value(bytes);
            let moved = table.counters.copies.saturating_sub(before) as i64;
            self.charge(cost::STEP + cost::RECORD_MOVED * moved);
            match made.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))? {
                Some(false) => return Ok(Err(Unable::NoRoom)),
                None if !self.is_spent() => {}
                made => return Ok(Ok(made.is_some())),
            }
        }
    }

    /// Whether a write has room searched for.
    pub(crate) fn is_searching(&self) -> bool {
        self.state.table().is_some_and(Table::is_searching)
    }

    /// Whether all values are there that are to have come ahead of a request's operations, `done`
    /// of which are.
    pub(crate) fn check_uploads(
        &self,
        write: &Write<'_>,
        operations: &[WriteOperation<'_, K::View<'_>>],
        done: usize,
    ) -> Result<(), Refusal> {
        for (at, operation) in operations.iter().enumerate().skip(done) {
            let Sent::Ahead(bytes) = operation.value else { continue };
            let upload = self.uploads.get(write.client, write.request, at);
            if !upload.is_some_and(|upload| upload.is_whole(bytes)) {
                return Err(not_ahead());
            }
        }
        Ok(())
    }

    /// The value of an operation that changes a record as its slot will have it: written to free
    /// memory if it is to be external.
    #[inline]
    pub(crate) fn put_in_place<'v>(
        &mut self,
        session: &DedupSession,
        operation: usize,
        wanted: &WriteOperation<'v, K::View<'_>>,
    ) -> Result<Result<Stored<'v>, Unable>, Refusal> {
        let NodeState::Serving(table) = &mut self.state else {
            return Err(Self::no_table());
        };
        let place =
            table.segments.geometry.shape.place(K::encoded_len(wanted.key.borrow()), wanted.value.len());
        match (wanted.value, place) {
            _ if wanted.kind == WriteKind::Delete => Ok(Ok(Stored::Here(&[]))),
            (Sent::Here(value), Some(ValuePlace::External)) => {
                match table.room.write_value(&table.segments, value) {
                    Ok(extent) => Ok(Ok(Stored::External(extent))),
                    Err(TableError::NoRoom { .. }) => Ok(Err(Unable::NoRoom)),
                    Err(error) => Ok(Err(Unable::Broken(error.to_string()))),
                }
            }
            (Sent::Here(value), _) => Ok(Ok(Stored::Here(value))),
            (Sent::Ahead(bytes), _) => {
                // It was there before the first operation; since then its client may have begun to
                // send it again.
                let upload = self.uploads.get(session.client, session.request, operation);
                if !upload.is_some_and(|upload| upload.is_whole(bytes)) {
                    return Err(not_ahead());
                }
                let upload = self.uploads.take(session.client, session.request, operation);
                let extent = upload.and_then(|upload| upload.finish(self.node));
                Ok(extent.map(Stored::External).ok_or(Unable::NoRoom))
            }
        }
    }

    /// Frees the memory of a value that no slot will refer to.
    pub(crate) fn take_back(&mut self, value: &Stored<'_>) {
        if let (Stored::External(extent), Some(table)) = (value, self.state.table_mut()) {
            table.room.free_value(memory_of(extent));
        }
    }

    /// Notes that the pieces of a value that was not logged completely are useless: they must not
    /// keep the log after them.
    pub(crate) fn skip_orphans(&mut self, value: &Stored<'_>) -> Result<(), Refusal> {
        let (Stored::External(_), true) = (value, self.pending.is_empty()) else { return Ok(()) };
        let (Some(wal), Some(table)) = (&self.wal, self.state.table()) else { return Ok(()) };
        // Everything before them is done.
        wal.recovery_area.set_applied(wal.staging.last_lsn(), table.segments.next_version).map_err(internal)
    }

    /// Drops the values that came ahead of a request that has been executed.
    pub(crate) fn drop_uploads(&mut self, client: u64, request: u64) {
        if let (false, Some(table)) = (self.uploads.is_empty(), self.state.table_mut()) {
            let unused = self.uploads.drop_up_to(client, request);
            unused.into_iter().for_each(|memory| table.room.free_value(memory));
        }
    }

    /// Drops the values that came over a connection.
    pub(crate) fn drop_uploads_of(&mut self, connection: ClientId) {
        if let (false, Some(table)) = (self.uploads.is_empty(), self.state.table_mut()) {
            let unused = self.uploads.disconnected(connection);
            unused.into_iter().for_each(|memory| table.room.free_value(memory));
        }
    }
}

/// The refusal of a request without its values.
fn not_ahead() -> Refusal {
    let why = "the value of an operation was to come ahead of it, and did not, or not all of it";
    Refusal::new(ErrorCode::Invalid, why)
}
