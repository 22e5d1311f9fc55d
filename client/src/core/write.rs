//! Changes, sent as requests that take effect at most once.

use std::borrow::Borrow;
use std::cell::{RefCell, RefMut};
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{DROPPED, REUSE_OFFSET, RecordShape, TableParameters};
use fpcache::message::{ErrorCode, Refusal, Sent, WriteKind, WriteOperation, WriteReply};
use fpcache::read::cache_probe;
use fpcache::table::Table;
use fpcache::table_view::OpenError;
use fpcache_fabric::{Connection, Deadline, Endpoint, FabricError, RemoteAddr};

use super::change_checks::{misfit, sent};
use super::creating::is_of_another_attempt;
use super::recover::Retry;
use super::sending::{
    Failed, MeantTable, OTHER_TABLE, SendLimits, Sending, Writer, is_passing, no_reply, of_its_table,
    take_replies, unknown, unknown_after,
};
use super::values_ahead::ValuesAhead;
use super::{Connector, Core};
use crate::empty_tables::first_parameters;
use crate::error::ClientError;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Makes changes to the table that is meant, in as few requests as possible, each of which may
    /// take `within`, and appends the outcome of each.
    pub(crate) fn write<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        meant: MeantTable,
        within: Duration,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        self.write_begun(operations, meant, (within, within), replies)
    }

    /// As [`write`](Self::write), of a call that began with something else and has only `left` for
    /// the first request.
    pub(crate) fn write_begun<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        meant: MeantTable,
        (mut left, within): (Duration, Duration),
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        let mut writer = self.writer()?;
        writer.meant = meant;
        let mut rest = operations;
        let mut is_first = true;
        // Not after the last request: the table may be gone by then, but its changes were made.
        while rest.clone().next().is_some() {
            let count = self.fill_and_send(&mut writer, rest.clone(), is_first, left, replies)?;
            let done = rest.clone().take(count);
            done.filter(|o| o.kind == WriteKind::Delete).for_each(|o| self.forget(o.key));
            rest.by_ref().take(count).for_each(drop);
            (is_first, left) = (false, within);
            writer.meant = meant.after_one_in(writer.creation);
        }
        Ok(())
    }

    /// Makes the first changes, as many as fit a request, and says how many.
    fn fill_and_send<'v>(
        &self,
        writer: &mut Writer,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        mut is_first: bool,
        within: Duration,
        replies: &mut Vec<WriteReply>,
    ) -> Result<usize, ClientError> {
        let limits = SendLimits::new(within, &*self.clock);
        let (mut left, mut retry) = (within, Retry::new(within));
        loop {
            let ahead = self.fill_for(writer, operations.clone(), is_first, left, (limits, &mut retry))?;
            match self.send(writer, &ahead, limits, replies) {
                Ok(()) => return Ok(writer.batch.len()),
                Err(Failed::Call(error)) => return Err(error),
                Err(Failed::OtherTable) => self.before_refilling(writer.creation, limits, &mut retry)?,
            }
            // By the shape of the other table.
            (is_first, left) = (true, limits.left(&*self.clock));
        }
    }

    /// Does what comes before the first of several requests for changes, for callers that have
    /// these sent one by one: all of them are looked at, and an empty table gets parameters that
    /// suit them.
    #[cfg(feature = "tokio")]
    pub(crate) fn prepare<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        within: Duration,
    ) -> Result<(), ClientError> {
        let mut writer = self.writer()?;
        writer.meant = MeantTable::Any;
        let (limits, mut retry) = (SendLimits::new(within, &*self.clock), Retry::new(within));
        self.fill_for(&mut writer, operations, true, within, (limits, &mut retry)).map(drop)
    }

    /// Lets threads and lanes learn that there is another table than the one with the creation
    /// number `gone`, before a request for it is put together.
    pub(super) fn before_refilling(
        &self,
        gone: u64,
        limits: SendLimits,
        retry: &mut Retry,
    ) -> Result<(), ClientError> {
        self.pause_before_refilling(limits, retry)?;
        // Putting a request together reads nothing, so that it does not notice a lost connection, or
        // that the table was dropped, by itself.
        let (connection, number) = self.connected();
        match connection.creation() == gone {
            true => Ok(self.leave_dropped(number, limits.deadline)?),
            false => Ok(self.reconnect(number, limits.deadline)?),
        }
    }

    fn pause_before_refilling(&self, limits: SendLimits, retry: &mut Retry) -> Result<(), FabricError> {
        if limits.deadline.has_passed(self.clock.now()) {
            return Err(FabricError::DeadlinePassed { waiting_for: "a connection to the recreated table" });
        }
        self.tally.resent.add(1);
        retry.pause(&*self.clock);
        Ok(())
    }

    /// Makes one change.
    pub(crate) fn write_one(
        &self,
        operation: WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<WriteReply, ClientError> {
        let mut replies = std::mem::take(&mut self.writer()?.replies);
        replies.clear();
        let written = self.write(std::iter::once(operation), MeantTable::Any, within, &mut replies);
        let reply = replies.pop();
        self.writer()?.replies = replies;
        written?;
        reply.ok_or_else(no_reply)
    }

    fn writer(&self) -> Result<RefMut<'_, Writer>, ClientError> {
        let writer = self.writers.get_or_try(|| self.new_writer().map(RefCell::new))?;
        // Nothing that runs while it is borrowed calls back into this client.
        let mut writer = writer.borrow_mut();
        if writer.process != self.process() {
            *writer = self.new_writer()?;
        }
        Ok(writer)
    }

    /// As [`fill`](Self::fill), but what does not fit a table that was dropped is looked at anew:
    /// nothing else may ever show that, and another table may have the name.
    pub(super) fn fill_for<'v>(
        &self,
        writer: &mut Writer,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        is_first: bool,
        mut left: Duration,
        (limits, retry): (SendLimits, &mut Retry),
    ) -> Result<ValuesAhead<'v>, ClientError> {
        loop {
            // The shape is of the table with this number, or of a later one.
            let seen = self.number();
            match self.fill(writer, operations.clone(), is_first, left) {
                Err(error) if error.is_misfit() && self.was_dropped(seen, retry) => {
                    self.pause_before_refilling(limits, retry)?;
                    self.leave_dropped(seen, limits.deadline)?;
                    left = limits.left(&*self.clock);
                }
                filled => return filled,
            }
        }
    }

    /// Fills a request with the first operations, and says what goes ahead of it. All values are
    /// looked at before the first one.
    pub(super) fn fill<'v>(
        &self,
        writer: &mut Writer,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        is_first: bool,
        within: Duration,
    ) -> Result<ValuesAhead<'v>, ClientError> {
        let (most, max_request) = {
            let session = self.session();
            let most = session.connection.max_reply().saturating_sub(8) / WriteReply::BYTES;
            (most, session.connection.max_request())
        };
        let fits = |shape: &RecordShape| misfit::<K>(operations.clone(), shape).map_or(Ok(()), Err);
        let meant = writer.meant;
        let first = || {
            let with_values = operations.clone().filter(|operation| operation.kind != WriteKind::Delete);
            let parameters = first_parameters::<K>(with_values.map(|operation| operation.value.len()));
            fits(&parameters.shape).map(|()| parameters)
        };
        self.with_shape(within, first, |creation, shape, table| {
            meant.check(creation)?;
            writer.creation = creation;
            if is_first {
                fits(shape)?;
            }
            let (batch, mut ahead) = (&mut writer.batch, ValuesAhead::default());
            batch.clear();
            for operation in operations.clone() {
                let value = sent::<K>(&operation, shape, max_request);
                let goes_ahead = matches!(value, Sent::Ahead(_));
                // A request that is too long for one operation is the fabric's to refuse.
                let has_room = batch.has_room::<K>(operation.key, &value, max_request)
                    && (!goes_ahead || ahead.has_room(value.len()));
                if !batch.is_empty() && (batch.len() >= most || !has_room) {
                    break;
                }
                if goes_ahead {
                    ahead.push(batch.len(), operation.value.bytes());
                }
                let hint = table.and_then(|table| hint(table, operation.key));
                batch.push::<K>(&WriteOperation { hint, value, ..operation });
            }
            Ok(ahead)
        })
    }

    /// Gives the table these parameters, unless it has some by now.
    pub(crate) fn ensure_parameters(
        &self,
        parameters: TableParameters,
        within: Duration,
    ) -> Result<(), ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        self.with_shape(within, || Ok(parameters), |_, _, _| Ok(()))?;
        // The table comes with the opening, not with the first lookup, whose time may be shorter;
        // if it does not come now, that is the lookup's to tell. This thread may make no more calls,
        // with which it would let go of it.
        let left = deadline.remaining(self.clock.now()).unwrap_or(within);
        let _ = self.shape_by(&mut None, left);
        Ok(())
    }

    /// Runs `fill` with what a change must know of the table, its creation number and its shape,
    /// and with the table for what it may know. A table that does not fit the cache's budget is no
    /// hindrance, nor one that is not here yet and is far: changes are made by the memory node. One
    /// without parameters gets the `first` ones.
    fn with_shape<R>(
        &self,
        within: Duration,
        first: impl Fn() -> Result<TableParameters, ClientError>,
        mut fill: impl FnMut(u64, &RecordShape, Option<&Table<K>>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        // Over mapped memory a thread takes its own: to count who has the session's would write
        // beside what lookups load. One that has read lets go of an older session's table: the next
        // one may be fetched by others, and takes the whole budget.
        let takes_sessions = T::IS_FAR
            && self.here(|held| {
                held.take_if(|context| !self.is_current(context) && context.session != self.session().id);
                held.is_none()
            });
        let (creation, table, alone) = {
            let session = self.session();
            let table = if T::IS_FAR { session.fetched() } else { None };
            (session.connection.creation(), table, session.shape_alone())
        };
        let waits_for_table = !T::IS_FAR || table.is_some();
        if let Some(table) = table.filter(|_| takes_sessions) {
            return fill(creation, &table.view().geometry().shape, Some(&table));
        }
        if let Some(shape) = alone {
            return fill(creation, &shape, None);
        }
        let left = || deadline.remaining(self.clock.now()).unwrap_or(within);
        let mut try_to_fill = |left| {
            if !waits_for_table {
                return self.read_shape(left).map(|(creation, shape)| fill(creation, &shape, None));
            }
            self.here(|held| {
                self.with_table(held, left, |buffers, table| {
                    Ok(fill(buffers.creation, &table.view().geometry().shape, Some(table)))
                })
            })
        };
        let mut filled = try_to_fill(within);
        if filled.as_ref().is_err_and(ClientError::is_of_empty_table) {
            let parameters = first()?;
            let mut retry = Retry::new(within);
            loop {
                let created = self.create_for_write(parameters, left());
                filled = try_to_fill(left());
                let is_empty = filled.as_ref().is_err_and(ClientError::is_of_empty_table);
                match created {
                    // Another client is setting them, or has given that up: then there are none.
                    Err(error) if is_empty && is_of_another_attempt(&error) => {
                        if deadline.has_passed(self.clock.now()) {
                            return Err(error);
                        }
                        retry.pause(&*self.clock);
                    }
                    Err(error) if is_empty => return Err(error),
                    _ if is_empty && !deadline.has_passed(self.clock.now()) => retry.pause(&*self.clock),
                    _ => break,
                }
            }
        }
        match filled {
            Err(ClientError::Open(OpenError::Budget { .. })) => {
                let (creation, shape) = self.read_shape(left())?;
                fill(creation, &shape, None)
            }
            filled => filled?,
        }
    }

    /// Puts the one change of a request, which was not made, together again for the table that has
    /// the name now.
    pub(super) fn refill(
        &self,
        writer: &mut Writer,
        ahead: &mut ValuesAhead<'static>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let batch = std::mem::take(&mut writer.batch);
        let operation = batch.operations::<K>().next().ok_or_else(no_reply)?;
        let value = match operation.value {
            Sent::Ahead(_) => Sent::Here(ahead.first_value().unwrap_or_default()),
            here => here,
        };
        let WriteOperation { kind, expected, .. } = operation;
        let operation = WriteOperation { kind, key: operation.key.borrow(), hint: None, expected, value };
        *ahead = self.fill(writer, std::iter::once(operation), true, within)?.into_owned();
        writer.next_request();
        Ok(())
    }

    /// Sends a request until it is answered.
    fn send(
        &self,
        writer: &mut Writer,
        ahead: &ValuesAhead<'_>,
        limits: SendLimits,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), Failed> {
        writer.next_request();
        let mut used = self.number();
        self.send_until_answered(writer, limits, replies, |writer, sent_before, is_dropped| {
            if is_dropped {
                self.leave_dropped(used, limits.deadline).map_err(Sending::Never)?;
            }
            let (connection, number) = self.living_connection(limits.deadline).map_err(Sending::Never)?;
            used = number;
            if !sent_before && self.is_known_dropped() {
                let why = "the table of this connection was dropped";
                return Err(Sending::Dropped(Refusal::new(ErrorCode::NoSuchTable, why)));
            }
            let posted = writer.post::<K>(ahead, &*connection, sent_before, limits, &*self.clock)?;
            connection.wait(posted, &mut writer.reply, limits.part(&*self.clock)).map_err(Sending::of)
        })
    }

    /// Has a request sent until it is answered or its time is over, and takes the replies. An
    /// attempt is told whether the request may have been sent before, and whether the last one came
    /// over a connection whose table was dropped.
    pub(super) fn send_until_answered(
        &self,
        writer: &mut Writer,
        limits: SendLimits,
        replies: &mut Vec<WriteReply>,
        mut attempt: impl FnMut(&mut Writer, bool, bool) -> Result<(), Sending>,
    ) -> Result<(), Failed> {
        // Whether the request may have arrived; and whether it, or something ahead of it, was sent.
        let (mut sent, mut begun, mut is_dropped) = (false, false, false);
        let mut retry = Retry::new(limits.within);
        loop {
            let attempted = attempt(writer, sent, std::mem::take(&mut is_dropped));
            let error = match attempted.and_then(|()| of_its_table(&writer.reply)) {
                Ok(()) => return Ok(take_replies(writer, sent, replies)?),
                Err(Sending::Never(error)) if !begun && !matches!(error, FabricError::DamagedRequest) => {
                    return Err(error.into());
                }
                Err(Sending::OtherTable) if !sent => return Err(Failed::OtherTable),
                Err(Sending::OtherTable) => return Err(unknown(&OTHER_TABLE)),
                Err(Sending::Refused(refusal)) if !sent => return Err(refusal.into()),
                Err(Sending::Refused(refusal)) => return Err(unknown(&refusal)),
                Err(Sending::Dropped(refusal)) => {
                    if limits.deadline.has_passed(self.clock.now()) {
                        return Err(if sent { unknown(&refusal) } else { refusal.into() });
                    }
                    // Another connection shows what is there.
                    is_dropped = true;
                    retry.pause(&*self.clock);
                    continue;
                }
                Err(Sending::Never(error)) => error,
                Err(Sending::NotYet(error)) => {
                    begun = true;
                    error
                }
                Err(Sending::Perhaps(error)) => {
                    (sent, begun) = (true, true);
                    error
                }
            };
            if limits.deadline.has_passed(self.clock.now()) || !is_passing(&error) {
                // Also where the table is gone or closed by now: it was there when the request was
                // sent.
                return Err(if sent { unknown_after(&error) } else { error.into() });
            }
            self.tally.resent.add(1);
            if !matches!(error, FabricError::DeadlinePassed { .. }) {
                retry.pause(&*self.clock);
            }
        }
    }

    /// Whether the table was dropped, where a look at that costs nothing: its memory node executes
    /// no more requests, and hangs up without a reply to those that come before that is noticed.
    fn is_known_dropped(&self) -> bool {
        T::IS_MAPPED
            && self.here(|held| {
                held.as_mut().filter(|context| self.is_current(context)).is_some_and(|context| {
                    let at = RemoteAddr::region(REUSE_OFFSET);
                    context.buffers.endpoint.load_after_reads(at).is_ok_and(|word| word == DROPPED)
                })
            })
    }

    /// Has the hot cache forget where a key was that is gone.
    pub(super) fn forget(&self, key: &K::Key) {
        // Without a context there is nothing to forget; and a stale entry does no harm.
        if let Some(table) = self.session().fetched()
            && let Some(cache) = table.cache()
            && let Some(probe) = cache_probe(table.view(), key)
            && let Some(hint) = cache.probe(&probe)
        {
            cache.remove(&probe, hint);
        }
    }
}

/// Where the hot cache believes the record to lie.
fn hint<K: BuildKeys>(table: &Table<K>, key: &K::Key) -> Option<u16> {
    let hint = table.cache()?.probe(&cache_probe(table.view(), key)?)?;
    u16::try_from(hint.slot).ok()
}
