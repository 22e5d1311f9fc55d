//! Changes along lanes, each of which has its own connection and identity: a change is posted
//! without waiting for its reply, and settled later.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{WriteKind, WriteOperation, WriteReply};
use fpcache_fabric::{Connection, Deadline, FabricError, Posted};

use super::recover::Retry;
use super::sending::{Failed, SendLimits, Sending, Writer, no_reply};
use super::values_ahead::ValuesAhead;
use super::{Connector, Core};
use crate::error::ClientError;

/// Lanes that are kept while they are not used: those of one pipeline.
const MOST_LANES: usize = 64;

/// Why a process does not know how a change ended.
const PARENTS: &str = "it was posted by the process that this one was forked from, which learns how it ended";

/// A way for one change at a time: what is sent along different lanes is under way together.
pub(crate) struct Lane<K: BuildKeys, T: Connector> {
    pub(super) connection: T::Connection,
    pub(super) writer: Writer,
    pub(super) flight: Option<ChangeInFlight<K::Owned>>,
    pub(super) replies: Vec<WriteReply>,
}

/// A change under way.
pub(super) struct ChangeInFlight<Key> {
    pub(super) key: Key,
    pub(super) kind: WriteKind,
    /// Goes ahead of the request, however often it is sent.
    pub(super) ahead: ValuesAhead<'static>,
    pub(super) limits: SendLimits,
    pub(super) first: Option<First>,
}

/// The result of a change's first sending.
pub(super) enum First {
    Posted(Posted),
    /// The reply is the writer's.
    Answered,
    Failed(Sending),
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// A lane that another one has left, or a new one.
    pub(crate) fn open_lane(&self, within: Duration) -> Result<Lane<K, T>, ClientError> {
        if let Some(lane) = self.lanes().pop() {
            return Ok(lane);
        }
        let connection = self.connector.connect(Deadline::after_on(&*self.clock, within))?;
        let writer = self.new_writer()?;
        Ok(Lane { connection, writer, flight: None, replies: Vec::with_capacity(1) })
    }

    /// Keeps a lane for the next one who wants some; not one that has something under way, nor more
    /// than a pipeline needs: each is a connection.
    pub(crate) fn leave_lane(&self, lane: Lane<K, T>) {
        let mut lanes = self.lanes();
        if lane.flight.is_none() && lanes.len() < MOST_LANES {
            lanes.push(lane);
        }
    }

    /// Sends a change along a lane that has none under way. After an error it was not sent; what
    /// goes wrong with the sending is told by [`settle`](Self::settle), which may send it once
    /// more.
    pub(crate) fn post(
        &self,
        lane: &mut Lane<K, T>,
        operation: &WriteOperation<'_, &K::Key>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let Lane { connection, writer, flight, .. } = lane;
        if writer.process != self.process() {
            *writer = self.new_writer()?;
        }
        let limits = SendLimits::new(within, &*self.clock);
        let (mut left, mut retry, mut is_dropped) = (within, Retry::new(within), false);
        let (ahead, first) = loop {
            let only = std::iter::once(*operation);
            let ahead = self.fill_for(writer, only, true, left, (limits, &mut retry))?;
            self.reconnect_lane(connection, writer.creation, is_dropped, limits.deadline)?;
            writer.next_request();
            match writer.post::<K>(&ahead, connection, false, limits, &*self.clock) {
                Ok(posted) => break (ahead, First::Posted(posted)),
                Err(Sending::Never(error)) => return Err(error.into()),
                Err(Sending::Refused(refusal)) => return Err(refusal.into()),
                // The session, whose shape it is, or the memory node has not noticed yet that the
                // table was dropped.
                Err(failed @ (Sending::OtherTable | Sending::Dropped(_))) => {
                    is_dropped = matches!(failed, Sending::Dropped(_));
                    let gone = if is_dropped { connection.creation() } else { writer.creation };
                    self.before_refilling(gone, limits, &mut retry)?;
                    left = limits.left(&*self.clock);
                }
                Err(failed) => break (ahead, First::Failed(failed)),
            }
        };
        let key = operation.key.to_owned();
        let (kind, ahead) = (operation.kind, ahead.into_owned());
        *flight = Some(ChangeInFlight { key, kind, ahead, limits, first: Some(first) });
        Ok(())
    }

    /// How the change under way on a lane ended: waits for its reply, and sends it once more if
    /// there is none.
    pub(crate) fn settle(&self, lane: &mut Lane<K, T>) -> Result<WriteReply, ClientError> {
        let Lane { connection, writer, flight, replies } = lane;
        // The caller has posted one.
        let ChangeInFlight { key, kind, mut ahead, limits, mut first } =
            flight.take().ok_or_else(no_reply)?;
        if writer.process != self.process() {
            // Its identity is the parent's, who may be waiting for the same reply.
            return Err(ClientError::OutcomeUnknown { why: PARENTS.to_owned() });
        }
        replies.clear();
        let mut retry = Retry::new(limits.within);
        let ended = loop {
            let ended =
                self.send_until_answered(writer, limits, replies, |writer, sent_before, is_dropped| {
                    let posted = match first.take() {
                        Some(First::Posted(posted)) => posted,
                        Some(First::Answered) => return Ok(()),
                        Some(First::Failed(failed)) => return Err(failed),
                        None => {
                            self.reconnect_lane(connection, writer.creation, is_dropped, limits.deadline)
                                .map_err(Sending::Never)?;
                            writer.post::<K>(&ahead, connection, sent_before, limits, &*self.clock)?
                        }
                    };
                    let part = limits.part(&*self.clock);
                    connection.wait(posted, &mut writer.reply, part).map_err(Sending::of)
                });
            let refilled = match ended {
                Ok(()) => break Ok(()),
                Err(Failed::Call(error)) => break Err(error),
                Err(Failed::OtherTable) => self
                    .before_refilling(writer.creation, limits, &mut retry)
                    .and_then(|()| self.refill(writer, &mut ahead, limits.left(&*self.clock))),
            };
            if let Err(error) = refilled {
                break Err(error);
            }
        };
        ended?;
        if kind == WriteKind::Delete {
            self.forget(key.borrow());
        }
        replies.pop().ok_or_else(no_reply)
    }

    /// As [`settle`](Self::settle), if the reply is there or the change's time is over; else
    /// `None`, and the change stays in flight.
    pub(crate) fn settle_if_answered(
        &self,
        lane: &mut Lane<K, T>,
    ) -> Option<Result<WriteReply, ClientError>> {
        let Lane { connection, writer, flight, .. } = lane;
        let ChangeInFlight { first, limits, .. } = flight.as_mut()?;
        if let Some(First::Posted(posted)) = first.take_if(|first| matches!(first, First::Posted(_))) {
            *first = Some(match connection.poll(posted, &mut writer.reply) {
                Ok(None) => First::Answered,
                Ok(Some(posted)) => First::Posted(posted),
                Err(error) => First::Failed(Sending::of(error)),
            });
            // Of a memory node that is silent no poll ever tells an end.
            if matches!(first, Some(First::Posted(_))) && !limits.deadline.has_passed(self.clock.now()) {
                return None;
            }
        }
        Some(self.settle(lane))
    }

    /// Reconnects a lane that has lost its memory node, or whose table is known to be dropped or is
    /// not the one with this `creation` number, for which a request was put together: if the table
    /// is another one after that, too, it is the session's that is older.
    fn reconnect_lane(
        &self,
        connection: &mut T::Connection,
        creation: u64,
        is_dropped: bool,
        deadline: Deadline,
    ) -> Result<(), FabricError> {
        if is_dropped || connection.creation() != creation || !connection.is_alive() {
            self.tally.reconnects.add(1);
            *connection = self.connector.connect(deadline)?;
        }
        Ok(())
    }
}
