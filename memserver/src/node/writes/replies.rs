//! Replies to operations, kept for repeated requests, and publication of mutations that are on the
//! disk.

use fpcache::key_space::BuildKeys;
use fpcache::layout::Stored;
use fpcache::message::{ErrorCode, Refusal, WriteReply, encode_reply};
use fpcache_fabric::{ClientId, NodeMemory};

use crate::awaiting_sync::{PendingOperation, PendingOutcome};
use crate::dedup::DedupSession;
use crate::durability::Lsn;
use crate::node::MemoryNode;
use crate::node::parked::{WaitFor, WriteInProgress, cost};
use crate::node::serving::internal;

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Replies to an operation that changes nothing, after those before it: there is nothing to wait
    /// for.
    pub(super) fn reply(
        &mut self,
        going: &mut WriteInProgress,
        operation: usize,
        reply: WriteReply,
    ) -> Result<Option<WaitFor>, Refusal> {
        let session = going.session;
        if self.pending.has_published(going.entries) {
            return self.keep_reply(&session, operation, reply).map(|()| None);
        }
        if let Some(wal) = &self.wal {
            // If the process ends now, the mutation before it is performed again, and this one is
            // not decided again.
            wal.recovery_area.put_reply(session.place, operation, &reply).map_err(internal)?;
        }
        let outcome = PendingOutcome::Reply(reply);
        self.pending.add(PendingOperation { session, operation, outcome }, &self.transit);
        going.entries = self.pending.added();
        Ok(None)
    }

    // Inlined for the reason that `Table::perform` is.
    #[inline(always)]
    pub(super) fn keep_reply(
        &mut self,
        session: &DedupSession,
        operation: usize,
        reply: WriteReply,
    ) -> Result<(), Refusal> {
        self.sessions.done(session, operation, reply);
        if let Some(wal) = &self.wal {
            wal.recovery_area
                .set_reply(session.place, session.request, operation, &reply)
                .map_err(internal)?;
        }
        Ok(())
    }

    /// Publishes what has reached the disk, as long as the allowance lasts: half of it, if requests
    /// are parked, which are to get on too.
    pub(crate) fn publish_synced(&mut self) -> Result<(), Refusal> {
        let kept = if self.parked.is_empty() { 0 } else { self.allowance.max(0) / 2 };
        let synced = self.synced();
        while self.allowance > kept
            && let Some(PendingOperation { session, operation, outcome }) = self.pending.next(synced)
        {
            self.charge(cost::PUBLISHED);
            match outcome {
                PendingOutcome::Reply(reply) => self.keep_reply(&session, operation, reply)?,
                PendingOutcome::SlotMutation { lsns, mutation, value } => {
                    debug_assert!(
                        self.state.table().is_some_and(|table| table.segments.still_owns(&mutation)),
                        "no segment is replaced while slots of it are spoken for"
                    );
                    let value = value.as_stored();
                    if let Stored::Here(value) = value {
                        self.charge(cost::bytes(value.len()));
                    }
                    self.perform(&session, operation, lsns.last, &mutation, &value)?;
                }
            }
        }
        Ok(())
    }

    /// Whether something that has reached the disk waits for another turn to be published.
    pub(crate) fn has_more_to_publish(&self) -> bool {
        self.pending.has_next(self.synced())
    }

    fn synced(&self) -> Lsn {
        self.wal.as_ref().map_or(0, |wal| wal.synced())
    }

    /// The reply to a request whose operations have waited for the disk.
    pub(crate) fn next_written(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        if let Some((client, answer)) = self.parked.next_reply() {
            *reply = answer;
            return Some(client);
        }
        let Some((client, session)) = self.pending.next_answered() else { return self.next_failed(reply) };
        let replies = self.sessions.replies(session.client);
        let body: Vec<u8> = replies.iter().flat_map(WriteReply::encode).collect();
        encode_reply(Ok(&body), reply);
        Some(client)
    }

    /// While the log cannot be written no request waits for it: what was staged may take effect
    /// later. What had reached the disk before is published first.
    fn next_failed(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let failure = self.wal.as_ref()?.staging.failure()?;
        if self.has_more_to_publish() {
            return None;
        }
        let client = self.pending.give_up_next()?;
        let why = format!("the log cannot be written, and the outcome is unknown until it can: {failure}");
        encode_reply(Err(&Refusal::new(ErrorCode::NotDurable, why)), reply);
        Some(client)
    }
}
