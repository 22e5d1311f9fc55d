//! Requests that change records, from arrival to reply.
//!
//! Each operation is *decided*, *logged* if there is a log, and *performed*. With `--fsync always`
//! performing it and replying wait for the disk.

mod logged;
mod refusing;
mod replies;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cell::OnceCell;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, Stored, ValuePlace};
use fpcache::message::{ErrorCode, Refusal, Sent, Write, WriteKind, WriteOperation};
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{ClientId, NodeMemory};

use logged::LogState;
pub(crate) use refusing::Unable;

use crate::awaiting_sync::{PendingOperation, PendingOutcome};
use crate::dedup::{DedupSession, DedupVerdict};
use crate::durability::Lsn;
use crate::loader::describe;
use crate::node::parked::{RequestState, WaitFor, WriteInProgress, cost};
use crate::node::serving::{Dispatched, internal};
use crate::node::{MemoryNode, NodeState};
use crate::recovery_area::REQUEST_BITS;
use crate::table::segments::decide::{Decision, SlotHint, SlotMutation};
use crate::wal::Wal;

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Applies a batch of operations, each by itself, in order; what was applied when it came
    /// before is not applied again.
    pub(crate) fn write(
        &mut self,
        client: ClientId,
        write: &Write<'_>,
        going: Option<WriteInProgress>,
        body: &mut Vec<u8>,
    ) -> Result<Dispatched, Refusal> {
        if self.state.table().is_none() {
            return Err(Self::no_table());
        }
        let operations: Result<Vec<_>, _> = write.operations::<K>().collect();
        let operations = operations.map_err(|e| Refusal::new(ErrorCode::Invalid, e.to_string()))?;
        let mut going = match going {
            Some(going) => going,
            None if self.holds_writes() => return Ok(Dispatched::Waits(RequestState::New, WaitFor::Turn)),
            None if self.is_in_hand(write.client) => {
                // It came over another connection, while the first one waits.
                if self.log_fails() {
                    return Err(log_fails());
                }
                return Ok(Dispatched::Waits(RequestState::New, WaitFor::Answered(write.client)));
            }
            None => self.begin_write(write, &operations)?,
        };
        match self.apply_all(&mut going, &operations) {
            Ok(None) => {}
            Ok(Some(until)) => return Ok(Dispatched::Waits(RequestState::Write(going), until)),
            Err(refusal) => {
                if let Some(put) = going.put {
                    self.give_up_value(&put);
                }
                return Err(refusal);
            }
        }
        self.drop_uploads(write.client, write.request);
        let WriteInProgress { session, entries, .. } = going;
        if !self.pending.has_published(entries) {
            self.pending.wait(client, session, entries);
            return Ok(Dispatched::Later);
        }
        self.sessions.replies(session.client).iter().for_each(|reply| body.extend(reply.encode()));
        Ok(Dispatched::Now)
    }

    /// Begins a write whose client has no other in hand.
    fn begin_write(
        &mut self,
        write: &Write<'_>,
        operations: &[WriteOperation<'_, K::View<'_>>],
    ) -> Result<WriteInProgress, Refusal> {
        let Some(table) = self.state.table() else { return Err(Self::no_table()) };
        if write.request >> REQUEST_BITS != 0 {
            // Noted without its upper bits, it would be another one to the next process.
            let why = format!("a request has the number {}, of more than {REQUEST_BITS} bits", write.request);
            return Err(Refusal::new(ErrorCode::Invalid, why));
        }
        operations
            .iter()
            .try_for_each(|operation| check_fits::<K>(&table.segments.geometry.shape, operation))?;
        if self.owned.is_some() {
            operations.iter().try_for_each(|operation| self.check_owned(operation.key.borrow()))?;
        }
        let (session, done) = self.recognise(write, operations.len())?;
        // What was done has its reply, and its values are where they belong.
        self.check_uploads(write, operations, done)?;
        Ok(WriteInProgress { session, next: done, entries: 0, put: None })
    }

    /// Whose request it is, and how many of its operations are done.
    fn recognise(&mut self, write: &Write<'_>, operations: usize) -> Result<(DedupSession, usize), Refusal> {
        match self.sessions.look_up(write.client, write.request, write.sent_before) {
            DedupVerdict::New => {
                if self.sessions.must_evict() {
                    self.evict_replies(u64::MAX);
                }
                let Self { sessions, pending, parked, .. } = self;
                // All that have begun, looked for only if another client is to be forgotten.
                let begun = OnceCell::new();
                let is_in_hand = |place, client| {
                    pending.has_request_at(place) || begun.get_or_init(|| parked.begun()).contains(&client)
                };
                let begun = sessions.begin(write.client, write.request, operations, is_in_hand);
                let Some(session) = begun else {
                    let why = "too many clients have requests in hand: send this one again";
                    return Err(Refusal::new(ErrorCode::Busy, why));
                };
                if let Some(wal) = &self.wal {
                    let noted =
                        wal.recovery_area.begin_request(session.place, session.client, session.request);
                    noted.map_err(internal)?;
                }
                Ok((session, 0))
            }
            DedupVerdict::Evicted(session) => {
                let noted = match &self.wal {
                    Some(wal) => wal.recovery_area.request_of(session.place).map_err(internal)?,
                    None => None,
                };
                match noted {
                    Some((client, request, replies))
                        if (client, request) == (session.client, session.request) =>
                    {
                        self.sessions.restore_replies(&session, replies);
                        self.recognise(write, operations)
                    }
                    _ => Err(forgotten()),
                }
            }
            DedupVerdict::Repeated(session, done) => {
                self.sessions.reserve(session.place, operations);
                let is_on_disk = |wal: &Wal<M>| !wal.syncs_first() || wal.synced() >= self.redone;
                // What the process before was to do, and this one has done again, may still wait
                // for a full disk.
                if self.wal.as_ref().is_some_and(|wal| !is_on_disk(wal)) {
                    let why = "the log cannot be written, the outcome is open until it can";
                    return Err(Refusal::new(ErrorCode::NotDurable, why));
                }
                Ok((session, done))
            }
            DedupVerdict::Outdated => {
                let why = "this request is older than the last one of its client, which has given it up";
                Err(Refusal::new(ErrorCode::Invalid, why))
            }
            DedupVerdict::Forgotten => Err(forgotten()),
        }
    }

    /// Applies the operations from the next one on, as long as the allowance lasts. Returns what
    /// must be waited for before the rest, if anything.
    fn apply_all(
        &mut self,
        going: &mut WriteInProgress,
        operations: &[WriteOperation<'_, K::View<'_>>],
    ) -> Result<Option<WaitFor>, Refusal> {
        /// Operations that are prefetched ahead of the one in hand.
        const AHEAD: usize = 8;
        // Where keys can be, by their operations' numbers.
        let mut places = [None; AHEAD];
        for (i, operation) in operations.iter().enumerate().skip(going.next) {
            going.next = i;
            if self.is_spent() && going.put.is_none() {
                return Ok(Some(WaitFor::Turn));
            }
            let place = places[i % AHEAD].take();
            if let (Some(ahead), Some(table)) = (operations.get(i + AHEAD), self.state.table()) {
                places[i % AHEAD] = table.segments.prefetch(ahead.key.borrow(), ahead.hint);
            }
            if let Some(until) = self.apply(going, i, operation, place.as_ref())? {
                return Ok(Some(until));
            }
            self.charge(cost::OPERATION + cost::bytes(operation.value.bytes().len()));
        }
        Ok(None)
    }

    /// Applies one operation, or has it wait for the disk. Returns what must be waited for before
    /// that, if anything.
    fn apply(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        wanted: &WriteOperation<'_, K::View<'_>>,
        place: Option<&SlotHint<K>>,
    ) -> Result<Option<WaitFor>, Refusal> {
        if self.pending.is_key_waiting(wanted.key.borrow()) {
            if self.log_fails() {
                return self.reply(going, operation, Unable::NotDurable.reply()?);
            }
            return Ok(Some(WaitFor::Published(self.pending.added())));
        }
        // A value whose pieces are in the log is not kept waiting: all other writes wait for its
        // mutation.
        if !self.pending.is_empty() && going.put.is_none() && !self.transit.has_room_for_operation() {
            if self.log_fails() {
                // No request waits, and nothing more is kept.
                return Err(log_fails());
            }
            return Ok(Some(WaitFor::OperationRoom));
        }
        let mut has_tried = false;
        loop {
            let NodeState::Serving(table) = &mut self.state else {
                return Err(Self::no_table());
            };
            match table.decide(wanted, place).map_err(internal)? {
                Decision::Reply(reply) => {
                    if let Some(put) = going.put.take() {
                        self.give_up_value(&put);
                    }
                    return self.reply(going, operation, reply);
                }
                Decision::Mutate(mutation) => {
                    let placed = match going.put {
                        Some(put) => Ok(Stored::External(put.extent)),
                        // Nothing is taken of what is being made room of.
                        None if table.still_searches_for(wanted) => Err(Unable::NoRoom),
                        None => self.put_in_place(&going.session, operation, wanted)?,
                    };
                    return match placed {
                        Ok(value) => self.change(going, operation, &mutation, &value),
                        // One that came ahead was looked for room for when its first piece came.
                        Err(Unable::NoRoom) if matches!(wanted.value, Sent::Here(_)) && !has_tried => {
                            has_tried = true;
                            match self.make_room_for_value(wanted.value.len())? {
                                Ok(true) => continue,
                                Ok(false) => Ok(Some(WaitFor::Room)),
                                Err(unable) => self.unable(going, operation, unable),
                            }
                        }
                        Err(unable) => self.unable(going, operation, unable),
                    };
                }
                Decision::Damaged(segment, slot) => {
                    table.counters.damaged_writes += 1;
                    let damaged = table.segments.damage(&segment, slot).map_err(internal)?;
                    self.tell_refused(&damaged);
                    return self.unable(going, operation, Unable::Damaged);
                }
                Decision::Full => match self.make_room(wanted.key.borrow()) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Some(WaitFor::Room)),
                    Err(unable) => return self.unable(going, operation, unable),
                },
            }
        }
    }

    /// Writes a decided mutation down and does it, or has it wait for the disk. Returns what must be
    /// waited for before it can be written down, if anything.
    fn change(
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

    fn perform<Q: Borrow<K::Key> + Clone>(
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

/// The refusal of a request that may have been done, and of which not enough is remembered to
/// answer it.
fn forgotten() -> Refusal {
    let why = "this request was sent before, and the memory node does not remember whether it was executed: read the \
               records to find out";
    Refusal::new(ErrorCode::Forgotten, why)
}

/// Whether key and value of an operation can be the table's.
fn check_fits<K: BuildKeys>(
    shape: &RecordShape,
    operation: &WriteOperation<'_, K::View<'_>>,
) -> Result<(), Refusal> {
    let bad = |why: String| Refusal::new(ErrorCode::BadData, why);
    let key = operation.key.borrow();
    K::check(key).map_err(&bad)?;
    let (key_bytes, value_bytes) = (K::encoded_len(key), operation.value.len());
    match (operation.value, shape.place(key_bytes, value_bytes)) {
        _ if operation.kind == WriteKind::Delete => return Ok(()),
        (Sent::Here(_), Some(_)) | (Sent::Ahead(_), Some(ValuePlace::External)) => return Ok(()),
        (Sent::Ahead(_), Some(ValuePlace::Here)) => {
            return Err(bad(format!(
                "a value of {value_bytes} bytes was sent ahead although it fits its slot"
            )));
        }
        (_, None) => {}
    }
    Err(bad(format!(
        "a key of {key_bytes} bytes with a value of {value_bytes} bytes does not fit the table, which has {}",
        describe(shape)
    )))
}

/// The refusal of a request that would wait for a log that cannot be written.
fn log_fails() -> Refusal {
    Refusal::new(ErrorCode::NotDurable, "the log cannot be written: see the memory node's standard error")
}
