//! Messages that go by the backend's own requests and replies.

use crate::layout::{Shape, VERSION};

pub(super) const OPEN: u8 = 1;
pub(super) const CALL: u8 = 2;
pub(super) const AWAIT: u8 = 3;
pub(super) const LONG: u8 = 4;

/// What follows is what was asked for.
pub(super) const HERE: u8 = 0;
/// The result lies in the result buffer.
pub(super) const FETCH: u8 = 1;
pub(super) const FULL: u8 = 2;
pub(super) const UNKNOWN: u8 = 3;
pub(super) const NO_SUCH_BATCH: u8 = 4;
pub(super) const FORGOTTEN: u8 = 5;

/// The head of a message of `kind`.
pub(super) fn head(kind: u8) -> [u8; 4] {
    [b'R', b'F', VERSION, kind]
}

/// A message as the server sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message<'a> {
    Open,
    Call { slot: u16, batch: &'a [u8] },
    Await { slot: u16, sequence: u32 },
    Long { slot: u16, sequence: u32, entry: u16 },
}

impl<'a> Message<'a> {
    /// A message by its bytes, if they are one of this version.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let [b'R', b'F', VERSION, kind, rest @ ..] = bytes else { return None };
        match (*kind, rest) {
            (OPEN, []) => Some(Self::Open),
            (CALL, [a, b, batch @ ..]) => Some(Self::Call { slot: u16::from_le_bytes([*a, *b]), batch }),
            (AWAIT, &[a, b, c, d, e, f]) => Some(Self::Await {
                slot: u16::from_le_bytes([a, b]),
                sequence: u32::from_le_bytes([c, d, e, f]),
            }),
            (LONG, &[a, b, c, d, e, f, g, h]) => Some(Self::Long {
                slot: u16::from_le_bytes([a, b]),
                sequence: u32::from_le_bytes([c, d, e, f]),
                entry: u16::from_le_bytes([g, h]),
            }),
            _ => None,
        }
    }

    /// Appends its bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Open => out.extend_from_slice(&head(OPEN)),
            Self::Call { slot, batch } => {
                out.extend_from_slice(&head(CALL));
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(batch);
            }
            Self::Await { slot, sequence } => {
                out.extend_from_slice(&head(AWAIT));
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&sequence.to_le_bytes());
            }
            Self::Long { slot, sequence, entry } => {
                out.extend_from_slice(&head(LONG));
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&sequence.to_le_bytes());
                out.extend_from_slice(&entry.to_le_bytes());
            }
        }
    }
}

/// What a client is told of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) area: u16,
    pub(super) shape: Shape,
    pub(super) offset: u64,
    pub(super) key: u64,
}

impl Place {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for half in [self.area, self.shape.slots, self.shape.parts, 0] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        out.extend_from_slice(&u64::from(self.shape.capacity).to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.key.to_le_bytes());
    }

    /// A place of a possible shape.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| crate::layout::u64_at(bytes, at);
        let capacity = u32::try_from(word(8)?).ok()?;
        let shape = Shape { slots: half(2), parts: half(4), capacity };
        let is_possible = shape.is_possible() && half(6) == 0;
        is_possible.then_some(Self { area: half(0), shape, offset: word(16)?, key: word(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_messages_are_the_documented_ones() {
        let bytes = |message: Message<'_>| {
            let mut out = Vec::new();
            message.encode(&mut out);
            assert_eq!(Message::decode(&out), Some(message));
            out
        };
        assert_eq!(bytes(Message::Open), *b"RF\x01\x01");
        assert_eq!(bytes(Message::Call { slot: 0x0201, batch: b"x" }), *b"RF\x01\x02\x01\x02x");
        let sequence = 0x0403_0201;
        assert_eq!(bytes(Message::Await { slot: 1, sequence }), *b"RF\x01\x03\x01\0\x01\x02\x03\x04");
        let long = Message::Long { slot: 1, sequence, entry: 5 };
        assert_eq!(bytes(long), *b"RF\x01\x04\x01\0\x01\x02\x03\x04\x05\0");
        let shape = Shape { slots: 2, parts: 3, capacity: 0x2008 };
        let place = Place { area: 1, shape, offset: 4, key: 5 };
        let mut out = Vec::new();
        place.encode(&mut out);
        let golden = b"\x01\0\x02\0\x03\0\0\0\x08\x20\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0";
        assert_eq!(out, golden);
        assert_eq!(Place::decode(golden), Some(place));
        assert_eq!(Place::decode(&golden[..31]), None);
        assert_eq!(Place::decode(&[0; 32]), None, "an impossible shape");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(mut bytes in prop::collection::vec(any::<u8>(), 0..20), kind in 0u8..6) {
            let _ = Message::decode(&bytes);
            bytes.splice(..0, head(kind));
            if let Some(message) = Message::decode(&bytes) {
                let mut out = Vec::new();
                message.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
