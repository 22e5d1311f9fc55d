//! Values in requests: in the operation or record they belong to, or ahead of it.
//!
//! ```text
//! value   0 client u64 · 8 request u64 · 16 operation u32 · 20 bytes of the whole value u32 · 24 offset u32
//!         28 bytes of this piece u32 · 32 these                                                reply empty
//! ```
//!
//! A value that does not fit a request beside its key is sent in *pieces*, in order, each a request
//! of its own; then the write whose operation it belongs to, or for client 0 the load's chunk with
//! the record of that number, says only how long it is. The first piece of a value begins it anew.
//! The memory node drops what it has of a client's values when a piece or a write of a later
//! request comes, and when the connection ends over which they came.

use super::header::{HEADER_BYTES, MessageError, end, length_of};
use crate::cursor::Cursor;

/// Most bytes of values that may come ahead of one request.
pub const MAX_AHEAD_BYTES: usize = 64 << 20;

/// Bytes of a piece before the value's.
pub(super) const PIECE_HEADER_BYTES: usize = 32;

/// The bit of a value's length that says that the value came ahead.
const AHEAD: u32 = 1 << 31;

/// A value in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent<'a> {
    /// The value.
    Here(&'a [u8]),
    /// A value of this many bytes that came ahead, in pieces.
    Ahead(u32),
}

impl<'a> From<&'a [u8]> for Sent<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Here(value)
    }
}

impl<'a> Sent<'a> {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match self {
            Self::Here(value) => value.len(),
            Self::Ahead(bytes) => *bytes as usize,
        }
    }

    /// Whether the value has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that are in the request.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Here(value) => value,
            Self::Ahead(_) => &[],
        }
    }

    /// The length as requests have it.
    pub(super) fn length_field(&self) -> u32 {
        match self {
            // No request is so long that this bit could be set.
            Self::Here(value) => value.len() as u32 & !AHEAD,
            Self::Ahead(bytes) => bytes | AHEAD,
        }
    }

    /// Reads the value with this length, and returns what lies after it; `None` if it is cut short.
    pub(super) fn take(length: u32, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        if length & AHEAD != 0 {
            return Some((Self::Ahead(length & !AHEAD), bytes));
        }
        let (value, rest) = bytes.split_at_checked(length as usize)?;
        Some((Self::Here(value), rest))
    }
}

/// A piece of a value that comes ahead of what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePiece<'a> {
    /// The client as its writes name it; 0 for a load of this connection.
    pub client: u64,
    /// The number of the write request, or of the load, that it belongs to.
    pub request: u64,
    /// Which of the request's operations; of a load, which record, modulo 2³².
    pub operation: u32,
    /// Bytes of the whole value.
    pub value_bytes: u32,
    /// Where in the value these bytes lie.
    pub offset: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> ValuePiece<'a> {
    /// Most bytes of a piece, also where requests may be longer: a memory node's thread takes it in
    /// a quarter of a millisecond, for which the clients of other tables wait.
    pub const MOST_BYTES: usize = 512 << 10;

    /// The pieces of a value, in requests of at most `max_request` bytes.
    pub fn all(
        (client, request, operation): (u64, u64, u32),
        value: &'a [u8],
        max_request: usize,
    ) -> impl Iterator<Item = Self> {
        let most = max_request.saturating_sub(HEADER_BYTES + PIECE_HEADER_BYTES);
        let most = most.clamp(1, Self::MOST_BYTES);
        // Values have at most 16 MiB.
        let value_bytes = value.len() as u32;
        value.chunks(most).enumerate().map(move |(i, bytes)| {
            let offset = (i * most) as u32;
            Self { client, request, operation, value_bytes, offset, bytes }
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.client.to_le_bytes());
        out.extend(self.request.to_le_bytes());
        out.extend(self.operation.to_le_bytes());
        out.extend(self.value_bytes.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(length_of(self.bytes).to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    pub(super) fn decode(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Cursor::new(body);
        let (client, request, operation) = (body.u64()?, body.u64()?, body.u32()?);
        let (value_bytes, offset, bytes) = (body.u32()?, body.u32()?, body.u32()?);
        let bytes = body.bytes(bytes as usize)?;
        end(body)?;
        Ok(Self { client, request, operation, value_bytes, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;
    use crate::key_space::U64Keys;
    use proptest::prelude::*;

    #[test]
    fn a_piece_is_in_the_drawn_order() {
        let piece =
            ValuePiece { client: 1, request: 2, operation: 3, value_bytes: 4, offset: 5, bytes: b"v" };
        let mut bytes = Vec::new();
        piece.encode(&mut bytes);
        let fields = [
            1u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0,
        ];
        assert_eq!(bytes[..32], fields);
        assert_eq!(bytes[32..], *b"v");
        for len in 0..PIECE_HEADER_BYTES {
            assert!(ValuePiece::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn pieces_make_up_their_value_and_fit_their_requests(
            value in prop::collection::vec(any::<u8>(), 1..500), max_request in 0usize..200,
        ) {
            let (mut whole, mut encoded) = (Vec::new(), Vec::new());
            for piece in ValuePiece::all((7, 8, 9), &value, max_request) {
                Request::Value(piece).encode::<U64Keys>(3, &mut encoded);
                prop_assert!(encoded.len() <= max_request.max(49));
                prop_assert_eq!(Request::decode::<U64Keys>(3, &encoded), Ok(Request::Value(piece)));
                prop_assert_eq!((piece.offset as usize, piece.value_bytes as usize), (whole.len(), value.len()));
                whole.extend_from_slice(piece.bytes);
            }
            prop_assert_eq!(whole, value);
        }
    }
}
