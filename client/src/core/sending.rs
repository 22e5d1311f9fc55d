//! The sender of changes and its deadline, and what errors of sending one imply for its outcome.

use std::fmt::Display;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::message::{ErrorCode, MessageError, Refusal, WriteBatch, WriteReply, decode_reply};
use fpcache_fabric::{Clock, Connection, Deadline, ErrorKind as FabricErrorKind, FabricError};

use crate::error::ClientError;

/// How much of a call's time one sending of a request waits for its reply, and at least how long.
const PART: (u32, Duration) = (4, Duration::from_millis(1));

/// The table that the changes of a call are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MeantTable {
    /// For each request whichever has the name.
    Any,
    /// Whichever has the name at the first request, and for the later ones that alone.
    One,
    /// The one with this creation number.
    Created(u64),
}

impl MeantTable {
    /// Says whether the changes are for the table with this creation number.
    pub(super) fn check(self, creation: u64) -> Result<(), ClientError> {
        match self {
            Self::Created(meant) if meant != creation => Err(is_another_table()),
            _ => Ok(()),
        }
    }

    /// The table that is meant once a request was made in the one with this creation number.
    pub(super) fn after_one_in(self, creation: u64) -> Self {
        if let Self::One = self { Self::Created(creation) } else { self }
    }
}

/// Says that something was not done, because another table has the name of the one it is for.
pub(crate) fn is_another_table() -> ClientError {
    let why = "the table was dropped meanwhile, and another one has its name: begin anew";
    Refusal::new(ErrorCode::OtherTable, why).into()
}

/// Who sends changes, as the memory node knows it: a thread, or a lane of writes in flight. It has
/// one request in flight, so that a request with a higher number says that the ones before are no
/// longer waited for.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) identity: u64,
    /// The number of the process that created it. To the memory node, every process is a different
    /// client.
    pub(super) process: u64,
    /// The number of the last request.
    pub(super) requests: u64,
    /// The creation number of the table for which the batch was put together: its shape, and where
    /// the hot cache believes records to lie.
    pub(super) creation: u64,
    pub(super) meant: MeantTable,
    pub(super) batch: WriteBatch,
    pub(super) request: Vec<u8>,
    pub(super) reply: Vec<u8>,
    /// For changes made one at a time.
    pub(super) replies: Vec<WriteReply>,
}

impl Writer {
    pub(super) fn new(identity: u64, process: u64) -> Self {
        let (request, reply, replies) = (Vec::new(), Vec::new(), Vec::new());
        let batch = WriteBatch::default();
        Self {
            identity,
            process,
            requests: 0,
            creation: 0,
            meant: MeantTable::Any,
            batch,
            request,
            reply,
            replies,
        }
    }

    /// The bytes of the batch as a request that perhaps was sent before.
    pub(super) fn encode<K: BuildKeys>(&mut self, sent_before: bool) -> &[u8] {
        let request = self.batch.request(self.identity, self.requests, sent_before);
        request.encode::<K>(self.creation, &mut self.request);
        &self.request
    }

    /// The batch is a request of its own from here on.
    pub(super) fn next_request(&mut self) {
        self.requests += 1;
    }
}

/// Until when a request may be sent again, and how long each sending of it may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendLimits {
    pub(super) within: Duration,
    pub(super) deadline: Deadline,
}

impl SendLimits {
    pub(super) fn new(within: Duration, clock: &dyn Clock) -> Self {
        Self { within, deadline: Deadline::after_on(clock, within) }
    }

    /// What is left of the call's time.
    pub(super) fn left(&self, clock: &dyn Clock) -> Duration {
        self.deadline.remaining(clock.now()).unwrap_or(self.within)
    }

    /// By when a sending that begins now must be answered.
    pub(super) fn part(&self, clock: &dyn Clock) -> Deadline {
        Deadline::after_on(clock, (self.within / PART.0).max(PART.1)).earlier(self.deadline)
    }
}

/// Whether a request whose sending failed has arrived.
#[derive(Debug)]
pub(super) enum Sending {
    /// It has not.
    Never(FabricError),
    /// It has not, because of what goes ahead of it.
    NotYet(FabricError),
    /// It has not, because the memory node does not take what goes ahead of it.
    Refused(Refusal),
    /// It has not, because there is another table than the one it is for.
    OtherTable,
    /// It has, but the connection's table was dropped before it came.
    Dropped(Refusal),
    /// Perhaps, or it yet may.
    Perhaps(FabricError),
}

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not executed: there is another table than the one it was put together for.
    OtherTable,
    /// For a reason that ends the call.
    Call(ClientError),
}

impl<E: Into<ClientError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Call(error.into())
    }
}

/// Why it is unknown whether a request was executed in a table that is gone.
pub(super) const OTHER_TABLE: &str =
    "its table was dropped before the reply came, and there is another of its name";

/// The error for a request that was sent, and perhaps executed.
pub(super) fn unknown(why: &dyn Display) -> Failed {
    Failed::Call(ClientError::OutcomeUnknown { why: why.to_string() })
}

/// The same for one after whose sending the connection failed, or could not be made anew.
pub(super) fn unknown_after(error: &FabricError) -> Failed {
    match error {
        // What it says to do is for a caller who has asked for another table than there is.
        FabricError::NoSuchRegion { address, name } => unknown(&format_args!(
            "the table `{name}` is no longer at {address}: it was dropped, or lost with the end of the memory node"
        )),
        error => unknown(error),
    }
}

/// Sends a request that may be sent again, and waits for its reply until the end of the `part` of
/// the call that begins with the sending. Its turn among the threads that share the connection is
/// waited for until the call's deadline: nothing has been sent by then.
pub(super) fn send_for(
    connection: &impl Connection,
    request: &[u8],
    reply: &mut Vec<u8>,
    deadline: Deadline,
    part: impl FnOnce() -> Deadline,
) -> Result<(), FabricError> {
    reply.clear();
    let posted = connection.post(request, deadline)?;
    connection.wait(posted, reply, part())
}

/// A reply that does not say how its one change ended.
pub(crate) fn no_reply() -> ClientError {
    MessageError::Malformed("no reply to a change".into()).into()
}

/// Whether a request was answered by the table it was for.
pub(super) fn of_its_table(reply: &[u8]) -> Result<(), Sending> {
    match decode_reply(reply) {
        Err(refusal) if matches!(refusal.code, ErrorCode::OtherTable | ErrorCode::NoSuchTable) => {
            Err(Sending::of_refusal(refusal))
        }
        _ => Ok(()),
    }
}

impl Sending {
    /// What the failure of a sending says.
    pub(super) fn of(error: FabricError) -> Self {
        if was_never_sent(&error) { Self::Never(error) } else { Self::Perhaps(error) }
    }

    /// What a refusal says of the request, or of one that was to follow.
    pub(super) fn of_refusal(refusal: Refusal) -> Self {
        match refusal.code {
            ErrorCode::OtherTable => Self::OtherTable,
            ErrorCode::NoSuchTable => Self::Dropped(refusal),
            _ => Self::Refused(refusal),
        }
    }

    /// What the failure of a sending says of the request that was to follow.
    pub(super) fn of_ahead(error: FabricError) -> Self {
        match Self::of(error) {
            Self::Perhaps(error) => Self::NotYet(error),
            other => other,
        }
    }
}

/// Takes the reply to the last request, which may have been sent before.
pub(super) fn take_replies(
    writer: &Writer,
    sent: bool,
    replies: &mut Vec<WriteReply>,
) -> Result<(), ClientError> {
    let body = decode_reply(&writer.reply).map_err(|refusal| match refusal.code {
        // It is this copy that was refused: an earlier one may have been executed, or may yet
        // arrive.
        _ if sent => ClientError::OutcomeUnknown { why: refusal.to_string() },
        // What was logged may take effect later.
        ErrorCode::NotDurable | ErrorCode::Internal => {
            ClientError::OutcomeUnknown { why: refusal.to_string() }
        }
        _ => refusal.into(),
    })?;
    let before = replies.len();
    replies.extend(body.chunks_exact(WriteReply::BYTES).map_while(WriteReply::decode));
    if replies.len() - before == writer.batch.len() && body.len() == writer.batch.len() * WriteReply::BYTES {
        return Ok(());
    }
    replies.truncate(before);
    let got = body.len();
    // It does not say what was made.
    let why = format!("the reply to {} changes has {got} bytes or an unknown status", writer.batch.len());
    Err(ClientError::OutcomeUnknown { why })
}

/// Whether the request of this error was certainly not executed, and never will be.
pub(crate) fn was_never_sent(error: &FabricError) -> bool {
    matches!(error, FabricError::RequestTooLong { .. } | FabricError::DamagedRequest | FabricError::Crowded)
}

/// Whether it may go better the next time.
pub(super) fn is_passing(error: &FabricError) -> bool {
    matches!(error.kind(), FabricErrorKind::Retry | FabricErrorKind::Reconnect | FabricErrorKind::Deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It said to ask for another region.
    #[test]
    fn a_write_whose_table_was_lost_meanwhile_is_told_of_the_table() {
        let error = FabricError::NoSuchRegion { address: "shm://x".into(), name: "sessions".into() };
        let Failed::Call(error) = unknown_after(&error) else { panic!("it was sent") };
        assert!(error.may_have_taken_effect());
        let text = error.to_string();
        assert!(text.contains("`sessions` is no longer at shm://x") && !text.contains("region"), "{text}");
    }
}
