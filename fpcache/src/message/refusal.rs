//! Replies of success, or of refusal with a reason.

use super::header::MessageError;
use crate::cursor::{Cursor, CutShort};

/// Coarse reasons for which a memory node refuses a request; in replies numbered from 1, in this
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request makes no sense: a bug in the client.
    Invalid,
    /// The request's data cannot be accepted: wrong order, wrong sizes.
    BadData,
    /// The region has no room.
    Full,
    /// The node already holds a table.
    NotEmpty,
    /// Another client is loading.
    Busy,
    /// The other side is of another version.
    Version,
    /// The memory node failed inside.
    Internal,
    /// A repeated request whose first outcome the memory node no longer knows.
    Forgotten,
    /// The memory node holds no table.
    NoTable,
    /// The request cannot be made durable.
    NotDurable,
    /// There is a table of this name already.
    TableExists,
    /// There is no table of this name.
    NoSuchTable,
    /// No table can be called so.
    BadName,
    /// The memory node has no memory left for a table.
    NoMemory,
    /// The request was meant for a table that was there before under the same name; nothing of it
    /// was done.
    OtherTable,
    /// The client may read and change nothing.
    ReadOnly,
    /// The range of this memory node does not have the request's keys, or it has a later map;
    /// nothing of it was done.
    WrongRange {
        /// The version of the map that the memory node goes by: a client needs one that is at least
        /// as new.
        version: u32,
    },
    /// The load is not under way over this connection: it ended with its own, by an error, or in
    /// favour of another one.
    NoSuchLoad,
}

impl ErrorCode {
    pub(super) const ALL: [Self; 18] = [
        Self::Invalid,
        Self::BadData,
        Self::Full,
        Self::NotEmpty,
        Self::Busy,
        Self::Version,
        Self::Internal,
        Self::Forgotten,
        Self::NoTable,
        Self::NotDurable,
        Self::TableExists,
        Self::NoSuchTable,
        Self::BadName,
        Self::NoMemory,
        Self::OtherTable,
        Self::ReadOnly,
        Self::WrongRange { version: 0 },
        Self::NoSuchLoad,
    ];

    /// The first word of a reply: the number of the reason, and in the upper half the version of a
    /// map.
    fn to_status(self) -> u64 {
        let version = match self {
            Self::WrongRange { version } => version,
            _ => 0,
        };
        let is_same = |other: &Self| std::mem::discriminant(other) == std::mem::discriminant(&self);
        (1 + Self::ALL.iter().position(is_same).unwrap_or(0) as u64) | (u64::from(version) << 32)
    }

    fn from_status(status: u64) -> Self {
        let index = usize::from((status as u16).wrapping_sub(1));
        match Self::ALL.get(index).copied().unwrap_or(Self::Internal) {
            Self::WrongRange { .. } => Self::WrongRange { version: (status >> 32) as u32 },
            code => code,
        }
    }
}

/// A memory node's refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The coarse reason.
    pub code: ErrorCode,
    /// Cause and remedy, for people.
    pub message: String,
}

impl Refusal {
    /// A refusal for this reason.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        let code = match &error {
            MessageError::Version(_) => ErrorCode::Version,
            MessageError::OtherTable { .. } => ErrorCode::OtherTable,
            MessageError::Malformed(_) => ErrorCode::Invalid,
        };
        Self::new(code, error.to_string())
    }
}

/// Writes a reply into `out`, replacing what it held.
pub fn encode_reply(result: Result<&[u8], &Refusal>, out: &mut Vec<u8>) {
    let (status, body) = match result {
        Ok(body) => (0, body),
        Err(refusal) => (refusal.code.to_status(), refusal.message.as_bytes()),
    };
    out.clear();
    out.extend(status.to_le_bytes());
    out.extend_from_slice(body);
}

/// Reads a reply's body, or the refusal it carries.
pub fn decode_reply(reply: &[u8]) -> Result<&[u8], Refusal> {
    let mut body = Cursor::new(reply);
    match body.u64() {
        Ok(0) => Ok(body.rest()),
        Ok(status) => Err(Refusal::new(ErrorCode::from_status(status), String::from_utf8_lossy(body.rest()))),
        Err(CutShort) => Err(Refusal::new(ErrorCode::Internal, "the memory node's reply is cut short")),
    }
}
