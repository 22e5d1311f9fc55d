//! Changes, sent as requests that take effect once however often they are sent.

use std::cell::{RefCell, RefMut};
use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::KeySpace;
use fpcache::message::{
    ErrorCode, MessageError, WriteBatch, WriteKind, WriteOperation, WriteReply, decode_reply,
};
use fpcache::read::spot_of;
use fpcache::table::Table;
use fpcache_fabric::{Connection, Deadline, ErrorKind as FabricErrorKind, FabricError};

use super::recover::Retry;
use super::{Connector, Core};
use crate::error::ClientError;

/// How much of a call's time one sending of a request waits for its reply, and at least how long.
const PART: (u32, Duration) = (4, Duration::from_millis(1));

/// Who a thread is to the memory node when it changes records. One thread has one request in flight, so that a request
/// with a higher number says that the ones before are no longer waited for.
#[derive(Debug)]
pub(super) struct Writer {
    identity: u64,
    /// The number of the last request.
    requests: u64,
    batch: WriteBatch,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Writer {
    fn new(identity: u64) -> Self {
        Self { identity, requests: 0, batch: WriteBatch::new(0), request: Vec::new(), reply: Vec::new() }
    }
}

impl<K: KeySpace + 'static, T: Connector> Core<K, T> {
    /// Makes changes, in as few requests as they fit, each of which may take `within`, and appends how each ended.
    pub(crate) fn write<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, K::Key>> + Clone,
        within: Duration,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        let value_bytes = self.value_bytes(within)?;
        for WriteOperation { kind, key, value, .. } in operations.clone() {
            if kind != WriteKind::Delete && value.len() != value_bytes as usize {
                let (got, expected) = (value.len(), value_bytes as usize);
                return Err(ClientError::ValueSize { key: K::coordinate(&key), got, expected });
            }
        }
        let mut writer = self.writer();
        writer.batch = WriteBatch::new(value_bytes);
        let mut rest = operations;
        // Not after the last request: the table may be gone by then, but its changes were made.
        while rest.clone().next().is_some() {
            let count = self.fill(&mut writer.batch, rest.clone(), within)?;
            self.send(&mut writer, within, replies)?;
            let done = rest.clone().take(count);
            done.filter(|o| o.kind == WriteKind::Delete).for_each(|o| self.forget(&o.key));
            rest.by_ref().take(count).for_each(drop);
        }
        Ok(())
    }

    /// Bytes of the table's values.
    pub(super) fn value_bytes(&self, within: Duration) -> Result<u32, ClientError> {
        self.with_table(within, |_, table| Ok(table.snapshot().record().parameters.value_bytes))
    }

    fn writer(&self) -> RefMut<'_, Writer> {
        // Nothing that runs while it is borrowed calls back into this client.
        self.writers.get_or(|| RefCell::new(Writer::new(self.connector.identity()))).borrow_mut()
    }

    /// Fills a request with the first operations, and says with how many.
    fn fill<'v>(
        &self,
        batch: &mut WriteBatch,
        operations: impl Iterator<Item = WriteOperation<'v, K::Key>> + Clone,
        within: Duration,
    ) -> Result<usize, ClientError> {
        let connection = Arc::clone(&self.session().connection);
        let most = connection.max_reply().saturating_sub(8) / WriteReply::BYTES;
        let max_request = connection.max_request();
        self.with_table(within, |_, table| {
            batch.clear();
            for operation in operations.clone() {
                // A request that is too long for one operation is the fabric's to refuse.
                if !batch.is_empty() && (batch.len() >= most || !batch.has_room::<K>(max_request)) {
                    break;
                }
                let hint = hint(table, operation.key);
                batch.push::<K>(&WriteOperation { hint, ..operation });
            }
            Ok(batch.len())
        })
    }

    /// Sends a request until it is answered.
    fn send(
        &self,
        writer: &mut Writer,
        within: Duration,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        writer.requests += 1;
        let deadline = Deadline::after_on(&*self.clock, within);
        let (mut retry, mut sent) = (Retry::new(within), false);
        let unknown = |last: FabricError| ClientError::OutcomeUnknown { why: last.to_string() };
        loop {
            let error = match self.send_once(writer, within, deadline, sent) {
                Ok(()) => return take_replies(writer, sent, replies),
                Err(Sending::Never(error)) if !sent && !matches!(error, FabricError::DamagedRequest) => {
                    return Err(error.into());
                }
                Err(Sending::Never(error)) => error,
                Err(Sending::Perhaps(error)) => {
                    sent = true;
                    error
                }
            };
            if deadline.has_passed(self.clock.now()) {
                return Err(if sent { unknown(error) } else { error.into() });
            }
            if !is_passing(&error) {
                return Err(unknown(error));
            }
            self.tally.resent.add(1);
            if !matches!(error, FabricError::DeadlinePassed { .. }) {
                retry.pause(&*self.clock);
            }
        }
    }

    /// Sends a request once, over a connection that is alive, and waits part of the time for its reply.
    fn send_once(
        &self,
        writer: &mut Writer,
        within: Duration,
        deadline: Deadline,
        sent_before: bool,
    ) -> Result<(), Sending> {
        self.reconnect(self.number(), deadline).map_err(Sending::Never)?;
        let connection = Arc::clone(&self.session().connection);
        let part = Deadline::after_on(&*self.clock, (within / PART.0).max(PART.1)).earlier(deadline);
        let request = writer.batch.request(writer.identity, writer.requests, sent_before);
        request.encode::<K>(&mut writer.request);
        connection.call(&writer.request, &mut writer.reply, part).map_err(|error| match error {
            FabricError::RequestTooLong { .. } | FabricError::DamagedRequest | FabricError::Crowded => {
                Sending::Never(error)
            }
            other => Sending::Perhaps(other),
        })
    }

    /// Has the hot cache forget where a key was that is gone.
    fn forget(&self, key: &K::Key) {
        // Without a context there is nothing to forget; and a stale entry does no harm.
        if let Some(table) = self.session().fetched()
            && let Some(cache) = table.cache()
            && let Some(spot) = spot_of(table.snapshot(), *key)
            && let Some(hint) = cache.probe(&spot)
        {
            cache.remove(&spot, hint);
        }
    }
}

/// Whether a request whose sending failed has arrived.
enum Sending {
    /// It has not.
    Never(FabricError),
    /// Perhaps, or it yet may.
    Perhaps(FabricError),
}

/// Whether it may go better the next time.
fn is_passing(error: &FabricError) -> bool {
    matches!(error.kind(), FabricErrorKind::Retry | FabricErrorKind::Reconnect | FabricErrorKind::Deadline)
}

/// Where the hot cache believes the record to lie.
fn hint<K: KeySpace>(table: &Table<K>, key: K::Key) -> Option<u16> {
    let hint = table.cache()?.probe(&spot_of(table.snapshot(), key)?)?;
    u16::try_from(hint.slot).ok()
}

/// Takes the reply to the last request.
fn take_replies(writer: &Writer, sent: bool, replies: &mut Vec<WriteReply>) -> Result<(), ClientError> {
    let body = decode_reply(&writer.reply).map_err(|refusal| match refusal.code {
        ErrorCode::Forgotten if sent => ClientError::OutcomeUnknown { why: refusal.to_string() },
        // What was written down may be done later.
        ErrorCode::NotDurable | ErrorCode::Internal => {
            ClientError::OutcomeUnknown { why: refusal.to_string() }
        }
        _ => refusal.into(),
    })?;
    let before = replies.len();
    replies.extend(body.chunks_exact(WriteReply::BYTES).map_while(WriteReply::decode));
    if replies.len() - before == writer.batch.len() {
        return Ok(());
    }
    replies.truncate(before);
    let got = body.len();
    let why = format!("the reply to {} changes has {got} bytes or an unknown status", writer.batch.len());
    Err(MessageError::Malformed(why).into())
}
