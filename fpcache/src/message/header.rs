//! The header of all requests, and the errors of those that do not decode.

use crate::cursor::{Cursor, CutShort};

/// Version of the messages; a memory node refuses any other.
pub const PROTOCOL_VERSION: u16 = 10;

/// Bytes of a request to a table before its body.
pub(super) const HEADER_BYTES: usize = 16;

/// A request that does not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The other side speaks another version.
    #[error(
        "the client speaks protocol version {0}, this memory node version {own}: run the same release on both sides",
        own = PROTOCOL_VERSION
    )]
    Version(u16),
    /// It was meant for another table.
    #[error(
        "the request was meant for the table with the creation number {requested:016x}; the one of its name now has {there:016x}: it \
         was dropped and made anew, or its data ended with its memory node"
    )]
    OtherTable {
        /// The creation number in the request.
        requested: u64,
        /// That of the table.
        there: u64,
    },
    /// The bytes make no request.
    #[error("malformed request: {0}")]
    Malformed(String),
}

/// Writes what all requests begin with into `out`, replacing what it held.
pub(super) fn begin(operation: u16, out: &mut Vec<u8>) {
    out.clear();
    out.extend(operation.to_le_bytes());
    out.extend(PROTOCOL_VERSION.to_le_bytes());
    out.extend([0; 4]);
}

/// The operation of a request, whatever else it holds.
#[inline]
pub(super) fn operation_of(request: &[u8]) -> Option<u16> {
    Cursor::new(request).u16().ok()
}

/// The operation of a request, and what lies after its version.
///
/// # Errors
/// If it is of another version.
pub(super) fn split(bytes: &[u8]) -> Result<(u16, Cursor<'_>), MessageError> {
    let mut rest = Cursor::new(bytes);
    let (operation, version, _zero) = (rest.u16()?, rest.u16()?, rest.u32()?);
    if version != PROTOCOL_VERSION {
        return Err(MessageError::Version(version));
    }
    Ok((operation, rest))
}

/// Bytes of a part of a request, as the request has them.
pub(super) fn length_of(bytes: &[u8]) -> u32 {
    // No request is so long; one that were would be refused.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Checks that a message ends here.
pub(super) fn end(rest: Cursor<'_>) -> Result<(), MessageError> {
    if rest.rest().is_empty() { Ok(()) } else { Err(malformed("it is longer than it says")) }
}

impl From<CutShort> for MessageError {
    fn from(_: CutShort) -> Self {
        malformed("it is cut short")
    }
}

pub(super) fn malformed(why: impl Into<String>) -> MessageError {
    MessageError::Malformed(why.into())
}
