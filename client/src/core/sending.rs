//! Errors of sending a change, and what each implies for its outcome.

use std::fmt::Display;

use fpcache::message::{ErrorCode, MessageError, Refusal, decode_reply};
use fpcache_fabric::{Connection, Deadline, ErrorKind as FabricErrorKind, FabricError};

use crate::error::ClientError;

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

/// Why nobody knows whether a request was executed in a table that is gone.
pub(super) const OTHER_TABLE: &str =
    "its table was dropped before the reply came, and there is another of its name";

/// The error for a request that was sent, and perhaps executed.
pub(super) fn unknown(why: &dyn Display) -> Failed {
    Failed::Call(ClientError::OutcomeUnknown { why: why.to_string() })
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
        match error {
            FabricError::RequestTooLong { .. } | FabricError::DamagedRequest | FabricError::Crowded => {
                Self::Never(error)
            }
            other => Self::Perhaps(other),
        }
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

/// Whether it may go better the next time.
pub(super) fn is_passing(error: &FabricError) -> bool {
    matches!(error.kind(), FabricErrorKind::Retry | FabricErrorKind::Reconnect | FabricErrorKind::Deadline)
}
