//! Requests that change records, from their arrival to the reply.
//!
//! Each operation is *decided*, *written down* if there is a log, and *done*. With `--fsync always` the last waits for the
//! disk, and so does the reply.

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, Stored, ValuePlace};
use fpcache::message::{
    ErrorCode, Piece, Refusal, Sent, Write, WriteKind, WriteOperation, WriteReply, WriteStatus, encode_reply,
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
use crate::space::Extent;
use crate::table::TableError;
use crate::table::extents::memory_of;
use crate::table::write::{Decision, Effect};
use crate::uploads::{self, Upload};

/// The client of pieces that belong to a load.
const LOADS: u64 = 0;

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

    /// Whether all values are there that are to have come ahead of a request's operations, `done` of which are.
    fn check_uploads(
        &self,
        write: &Write<'_>,
        operations: &[WriteOperation<'_, K::View<'_>>],
        done: usize,
    ) -> Result<(), Refusal> {
        for (at, operation) in operations.iter().enumerate().skip(done) {
            let Sent::Ahead(bytes) = operation.value else { continue };
            let upload = self.uploads.get(write.client, write.request, at);
            if !upload.is_some_and(|upload| upload.is_whole(bytes)) {
                let why = "the value of an operation was to come ahead of it, and did not, or not all of it";
                return Err(Refusal::new(ErrorCode::Invalid, why));
            }
        }
        Ok(())
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

    /// The value of an operation that changes a record as its slot will have it: written to free memory if it is to lie outside.
    #[inline]
    fn put_in_place<'v>(
        &mut self,
        writer: &Writer,
        operation: usize,
        wanted: &WriteOperation<'v, K::View<'_>>,
    ) -> Result<Result<Stored<'v>, Unable>, Refusal> {
        let Self { front, table: Some(table), .. } = self else { return Err(Self::no_table()) };
        let place = table.shape().place(K::encoded_len(wanted.key.borrow()), wanted.value.len());
        match (wanted.value, place) {
            _ if wanted.kind == WriteKind::Delete => Ok(Ok(Stored::Here(&[]))),
            (Sent::Here(value), Some(ValuePlace::Outside)) => match table.write_value(front, value) {
                Ok(extent) => Ok(Ok(Stored::Outside(extent))),
                Err(TableError::NoRoom { .. }) => Ok(Err(Unable::NoRoom)),
                Err(error) => Ok(Err(Unable::Broken(error.to_string()))),
            },
            (Sent::Here(value), _) => Ok(Ok(Stored::Here(value))),
            (Sent::Ahead(_), _) => {
                // That it is there, whole, was looked at before the first operation.
                let upload = self.uploads.take(writer.client, writer.request, operation);
                let extent = upload.and_then(|upload| upload.finish(self.node));
                Ok(extent.map(Stored::Outside).ok_or(Unable::NoRoom))
            }
        }
    }

    /// Gives the memory of a value back that comes to no slot.
    fn take_back(&mut self, value: &Stored<'_>) {
        if let (Stored::Outside(extent), Some(table)) = (value, &mut self.table) {
            table.free_value(memory_of(extent));
        }
    }

    /// Notes that pieces of a value which was not written down to its end are of no use: they must not keep the log behind
    /// them.
    fn skip_orphans(&mut self, value: &Stored<'_>) -> Result<(), Refusal> {
        let (Stored::Outside(_), true) = (value, self.pending.is_empty()) else { return Ok(()) };
        let (Some(journal), Some(table)) = (&self.journal, &self.table) else { return Ok(()) };
        // Everything before them is done.
        journal.notes.set_applied(journal.last(), table.next_version()).map_err(internal)
    }

    /// Takes a piece of a value that comes ahead of a write, or of a load's record.
    pub(crate) fn take_piece(&mut self, client: ClientId, piece: &Piece<'_>) -> Result<(), Refusal> {
        let region = Arc::clone(&self.front.region);
        if piece.client == LOADS {
            return self.take_piece_of_load(client, &*region, piece);
        }
        let Self { table: Some(table), uploads, .. } = self else { return Err(Self::no_table()) };
        uploads::check(piece, &table.shape())?;
        let mut freed = Vec::new();
        let begun = match uploads.place(client, piece, &mut freed) {
            Ok(Some(upload)) => Ok(Some(upload.add(&*region, piece).map_err(internal)?)),
            Ok(None) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        freed.into_iter().for_each(|memory| table.free_value(memory));
        let added = match begun? {
            Some(added) => added,
            None => {
                let mut upload = Upload::begin(self.memory_for(piece)?, piece.value_bytes);
                let added = upload.add(&*region, piece).map_err(internal)?;
                self.uploads.keep(piece, upload);
                added
            }
        };
        if added { Ok(()) } else { Err(uploads::out_of_order()) }
    }

    /// Memory for a value whose first piece has come; `None` if there is no room for it, as its operation will say.
    fn memory_for(&mut self, piece: &Piece<'_>) -> Result<Option<Extent>, Refusal> {
        loop {
            let Self { front, table: Some(table), .. } = self else { return Err(Self::no_table()) };
            match table.allocate_value(front, piece.value_bytes as usize) {
                Ok(memory) => return Ok(Some(memory)),
                // What waits for the disk gives the memory of old values back.
                Err(TableError::NoRoom { .. }) if !self.pending.is_empty() => {
                    self.publish_all().map_err(Unable::refusal)?;
                }
                Err(TableError::NoRoom { .. }) => return Ok(None),
                Err(error) => return Err(Refusal::new(ErrorCode::Internal, error.to_string())),
            }
        }
    }

    /// Drops the values that came ahead of a request that has been executed.
    fn drop_uploads(&mut self, client: u64, request: u64) {
        if let (false, Some(table)) = (self.uploads.is_empty(), &mut self.table) {
            let unused = self.uploads.drop_up_to(client, request);
            unused.into_iter().for_each(|memory| table.free_value(memory));
        }
    }

    /// Drops the values that came over a connection.
    pub(crate) fn drop_uploads_of(&mut self, connection: ClientId) {
        if let (false, Some(table)) = (self.uploads.is_empty(), &mut self.table) {
            let unused = self.uploads.disconnected(connection);
            unused.into_iter().for_each(|memory| table.free_value(memory));
        }
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

/// Why an operation is not done.
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

    fn refusal(self) -> Refusal {
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
