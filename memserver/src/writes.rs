//! Requests that change records, from their arrival to the reply.
//!
//! Each operation is *decided*, *written down* if there is a log, and *done*. With `--fsync always` the last waits for the
//! disk, and so does the reply.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, Stored, ValuePlace};
use fpcache::message::{
    ErrorCode, Refusal, Sent, Write, WriteKind, WriteOperation, WriteReply, WriteStatus, encode_reply,
};
#[cfg(feature = "sabotage")]
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{ClientId, Handled, NodeMemory};

use crate::clients::{Known, Writer};
use crate::durability::Lsn;
use crate::journal::entry::Entry as LogEntry;
use crate::loader::describe;
use crate::node::{MemoryNode, internal};
use crate::pending::{Entry, Lsns, Outcome};
use crate::table::TableError;
use crate::table::write::{Decision, Effect};

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Applies a batch of operations, each by itself, in order; what was applied when it came before is not applied again.
    pub(crate) fn write(
        &mut self,
        client: ClientId,
        write: &Write<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Handled, Refusal> {
        let Some(table) = &self.table else { return Err(Self::no_table()) };
        let operations: Result<Vec<_>, _> = write.operations::<K>().collect();
        let operations = operations.map_err(|e| Refusal::new(ErrorCode::Invalid, e.to_string()))?;
        operations.iter().try_for_each(|operation| check_fits::<K>(&table.shape(), operation))?;
        let (writer, done) = self.recognise(write)?;
        // What was done has its reply, and its values are where they belong.
        self.check_uploads(write, &operations, done)?;
        self.apply_all(&writer, done, &operations)?;
        self.drop_uploads(write.client, write.request);
        if self.pending.holds_up(&writer) {
            self.pending.wait(client, writer);
            return Ok(Handled::Later);
        }
        self.writers.replies(writer.client).iter().for_each(|reply| body.extend(reply.encode()));
        Ok(Handled::Now)
    }

    /// Whose request it is, and how many of its operations are done.
    fn recognise(&mut self, write: &Write<'_>) -> Result<(Writer, usize), Refusal> {
        if self.pending.has_request_of(write.client) {
            // It came over another connection, while the first one's reply waits for the disk.
            self.publish_all().map_err(|status| status.refusal())?;
        }
        match self.writers.look_up(write.client, write.request, write.sent_before) {
            Known::New => {
                if self.writers.would_forget(write.client) {
                    // Not one whose operations wait for the disk.
                    self.publish_all().map_err(|status| status.refusal())?;
                }
                let writer = self.writers.begin(write.client, write.request);
                if let Some(journal) = &self.journal {
                    let noted = journal.notes.begin_request(writer.place, writer.client, writer.request);
                    noted.map_err(internal)?;
                }
                Ok((writer, 0))
            }
            Known::Repeated(writer, done) => Ok((writer, done)),
            Known::Outdated => {
                let why = "this request is older than the last one of its client, which has given it up";
                Err(Refusal::new(ErrorCode::Invalid, why))
            }
            Known::Forgotten => {
                let why = "this request was sent before, and the memory node does not remember whether it was executed: \
                           read the records to find out";
                Err(Refusal::new(ErrorCode::Forgotten, why))
            }
        }
    }

    fn apply_all(
        &mut self,
        writer: &Writer,
        done: usize,
        operations: &[WriteOperation<'_, K::View<'_>>],
    ) -> Result<(), Refusal> {
        /// Operations that are prefetched ahead of the one in hand.
        const AHEAD: usize = 8;
        for (i, operation) in operations.iter().enumerate().skip(done) {
            if let (Some(ahead), Some(table)) = (operations.get(i + AHEAD), &self.table) {
                table.prefetch(&self.front, ahead.key.borrow(), ahead.hint);
            }
            self.apply(writer, i, operation)?;
        }
        Ok(())
    }

    /// Applies one operation, or has it wait for the disk.
    fn apply(
        &mut self,
        writer: &Writer,
        operation: usize,
        wanted: &WriteOperation<'_, K::View<'_>>,
    ) -> Result<(), Refusal> {
        if self.pending.concerns(wanted.key.borrow())
            && let Err(unable) = self.publish_all()
        {
            return self.reply(writer, operation, unable.reply()?);
        }
        loop {
            let Self { front, table: Some(table), .. } = self else { return Err(Self::no_table()) };
            match table.decide(front, wanted).map_err(internal)? {
                Decision::Reply(reply) => return self.reply(writer, operation, reply),
                Decision::Change(effect) => {
                    let unable = match self.put_in_place(writer, operation, wanted)? {
                        Ok(value) => return self.change(writer, operation, &effect, &value),
                        // What waits for the disk gives the memory of old values back.
                        Err(Unable::NoRoom) if !self.pending.is_empty() => match self.publish_all() {
                            Ok(()) => continue,
                            Err(unable) => unable,
                        },
                        Err(unable) => unable,
                    };
                    return self.reply(writer, operation, unable.reply()?);
                }
                Decision::Full => {
                    if let Err(unable) = self.make_room(wanted.key.borrow()) {
                        return self.reply(writer, operation, unable.reply()?);
                    }
                }
            }
        }
    }

    fn make_room(&mut self, key: &K::Key) -> Result<(), Unable> {
        // No record may move that waits for the disk.
        self.publish_all()?;
        let Self { front, table: Some(table), .. } = self else { return Ok(()) };
        table.make_room(front, key).map_err(|error| match error {
            TableError::NoRoom { .. } => Unable::NoRoom,
            other => Unable::Broken(other.to_string()),
        })
    }

    /// Writes a decided effect down and does it, or has it wait for the disk.
    fn change(
        &mut self,
        writer: &Writer,
        operation: usize,
        effect: &Effect<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<(), Refusal> {
        #[cfg(feature = "sabotage")]
        if self.front.breaks(Sabotage::ApplyBeforeStaging) {
            return self.change_unwritten(writer, operation, effect, value);
        }
        let (lsns, waits) = match self.write_down(writer, operation, effect, value) {
            Ok(written) => written,
            Err(unable) => {
                self.take_back(value);
                self.skip_orphans(value)?;
                return self.reply(writer, operation, unable.reply()?);
            }
        };
        let Some(table) = &mut self.table else { return Err(Self::no_table()) };
        table.accept(effect);
        if waits {
            table.reserve(effect);
            let outcome = Outcome::Effect { lsns, effect: effect.to_owned(), value: value.into() };
            self.pending.add(Entry { writer: *writer, operation, outcome });
            return Ok(());
        }
        self.perform(writer, operation, lsns.last, effect, value)
    }

    /// [`change`](Self::change) in the wrong order: does a decided effect and then writes it down.
    #[cfg(feature = "sabotage")]
    fn change_unwritten(
        &mut self,
        writer: &Writer,
        operation: usize,
        effect: &Effect<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<(), Refusal> {
        let Self { front, table: Some(table), .. } = self else { return Err(Self::no_table()) };
        table.accept(effect);
        let reply = table.perform(front, effect, value).map_err(internal)?;
        let next_version = table.next_version();
        front.region.release();
        let (lsns, _) = match self.write_down(writer, operation, effect, value) {
            Ok(written) => written,
            Err(unable) => return self.reply(writer, operation, unable.reply()?),
        };
        self.keep_reply(writer, operation, reply)?;
        match &self.journal {
            Some(journal) => journal.notes.set_applied(lsns.last, next_version).map_err(internal),
            None => Ok(()),
        }
    }

    /// Writes an effect down, if there is a log: its numbers, and whether the effect must wait for the disk.
    fn write_down(
        &mut self,
        writer: &Writer,
        operation: usize,
        effect: &Effect<K, K::View<'_>>,
        value: &Stored<'_>,
    ) -> Result<(Lsns, bool), Unable> {
        let Some(journal) = &mut self.journal else { return Ok((Lsns { first: 0, last: 0 }, false)) };
        if !self.has_snapshot {
            return Err(Unable::NotDurable);
        }
        let entry = LogEntry {
            kind: effect.kind,
            // Below a segment's cap.
            slot: effect.slot as u16,
            generation: effect.segment.generation(),
            segment: effect.segment.address().offset(),
            version: effect.version,
            // Below the limit of a request.
            operation: operation as u16,
            client: writer.client,
            request: writer.request,
            key: effect.key,
            value: *value,
        };
        match journal.append::<K>(&*self.front.region, &entry) {
            #[cfg(feature = "sabotage")]
            Ok(lsns) if self.front.breaks(Sabotage::AckBeforeLog) => Ok((lsns, false)),
            Ok(lsns) => Ok((lsns, journal.syncs_first())),
            Err(_) => Err(Unable::NotDurable),
        }
    }

    fn perform<Q: Borrow<K::Key> + Clone>(
        &mut self,
        writer: &Writer,
        operation: usize,
        lsn: Lsn,
        effect: &Effect<K, Q>,
        value: &Stored<'_>,
    ) -> Result<(), Refusal> {
        let Self { front, table: Some(table), .. } = self else { return Err(Self::no_table()) };
        let reply = table.perform(front, effect, value).map_err(internal)?;
        let next_version = table.next_version();
        self.keep_reply(writer, operation, reply)?;
        match &self.journal {
            Some(journal) => journal.notes.set_applied(lsn, next_version).map_err(internal),
            None => Ok(()),
        }
    }

    /// Replies to an operation that changes nothing, after those before it.
    fn reply(&mut self, writer: &Writer, operation: usize, reply: WriteReply) -> Result<(), Refusal> {
        if !self.pending.holds_up(writer) {
            return self.keep_reply(writer, operation, reply);
        }
        if let Some(journal) = &self.journal {
            // Should the process end now, the effect before it is done again, and this is not decided anew.
            journal.notes.put_reply(writer.place, operation, &reply).map_err(internal)?;
        }
        self.pending.add(Entry { writer: *writer, operation, outcome: Outcome::Reply(reply) });
        Ok(())
    }

    // Inlined for the reason that `Table::perform` is.
    #[inline(always)]
    fn keep_reply(&mut self, writer: &Writer, operation: usize, reply: WriteReply) -> Result<(), Refusal> {
        self.writers.done(writer, operation, reply);
        if let Some(journal) = &self.journal {
            journal.notes.set_reply(writer.place, writer.request, operation, &reply).map_err(internal)?;
        }
        Ok(())
    }

    /// Publishes what has reached the disk.
    pub(crate) fn publish_synced(&mut self) -> Result<(), Refusal> {
        let synced = self.journal.as_ref().map_or(0, |journal| journal.synced());
        while let Some(Entry { writer, operation, outcome }) = self.pending.next(synced) {
            match outcome {
                Outcome::Reply(reply) => self.keep_reply(&writer, operation, reply)?,
                Outcome::Effect { lsns, effect, value } => {
                    debug_assert!(
                        self.table.as_ref().is_some_and(|table| table.still_owns(&effect)),
                        "no segment is replaced while slots of it are spoken for"
                    );
                    self.perform(&writer, operation, lsns.last, &effect, &value.as_stored())?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the disk, and publishes everything that waits for it.
    pub(crate) fn publish_all(&mut self) -> Result<(), Unable> {
        if let (Some(last), Some(journal)) = (self.pending.last(), &mut self.journal) {
            journal.wait_synced(last).map_err(|_| Unable::NotDurable)?;
        }
        self.publish_synced().map_err(|refusal| Unable::Broken(refusal.message))
    }

    /// The reply to a request whose operations have waited for the disk.
    pub(crate) fn next_written(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let Some((client, writer)) = self.pending.next_answered() else { return self.next_failed(reply) };
        let replies = self.writers.replies(writer.client);
        let body: Vec<u8> = replies.iter().flat_map(WriteReply::encode).collect();
        encode_reply(Ok(&body), reply);
        Some(client)
    }

    /// While the log cannot be written nobody waits for it: what was written down may be done later.
    fn next_failed(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let failure = self.journal.as_ref()?.failure()?;
        let client = self.pending.give_up_next()?;
        let why = format!("the log cannot be written, the outcome is open until it can: {failure}");
        encode_reply(Err(&Refusal::new(ErrorCode::NotDurable, why)), reply);
        Some(client)
    }
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
        (Sent::Here(_), Some(_)) | (Sent::Ahead(_), Some(ValuePlace::Outside)) => return Ok(()),
        (Sent::Ahead(_), Some(ValuePlace::Here)) => {
            return Err(bad(format!("a value of {value_bytes} bytes came ahead that fits its slot")));
        }
        (_, None) => {}
    }
    Err(bad(format!(
        "a key of {key_bytes} bytes with a value of {value_bytes} bytes, but the table has {}",
        describe(shape)
    )))
}

/// Why an operation is not done.
#[derive(Debug)]
pub(crate) enum Unable {
    NoRoom,
    NotDurable,
    /// The region contradicts itself.
    Broken(String),
}

impl Unable {
    fn reply(self) -> Result<WriteReply, Refusal> {
        let status = match self {
            Self::NoRoom => WriteStatus::NoRoom,
            Self::NotDurable => WriteStatus::NotDurable,
            Self::Broken(_) => return Err(self.refusal()),
        };
        Ok(WriteReply { status, token: None })
    }

    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Self::NoRoom => Refusal::new(ErrorCode::Full, "the region has no room"),
            Self::NotDurable => Refusal::new(
                ErrorCode::NotDurable,
                "the log cannot be written: see the memory node's messages",
            ),
            Self::Broken(why) => Refusal::new(ErrorCode::Internal, why),
        }
    }
}
