//! Entries of the log: the mutation of one slot, or a piece of an external value.
//!
//! ```text
//! mutation  0 kind u8 (1 insert, 2 update, 3 remove) · 1 place of the value u8 (0 here, 1 external) · 2 slot u16 · 4 generation u32
//!         8 offset of the segment u64 · 16 version u32 · 20 operation of its request u16 · 22 zero u16 · 24 client u64
//!         32 request u64 · 40 key, as in a request · then the value, or 0 its bytes u32 · 4 zero u32 · 8 XXH3-64 u64 · 16 address u64
//! piece   0 kind u8 = 4 · 1 zero · 4 offset in the value u32 · 8 bytes
//! ```
//!
//! A mutation can be applied again to the slot it names or, in another table of the same records,
//! by its key. The pieces of a value are contiguous, in order, and directly before the mutation
//! that refers to it. Pieces without such a mutation belong to one that could not be written.

use std::borrow::Borrow;

use fpcache::key_space::KeySpace;
use fpcache::layout::{RecordShape, SegmentAddress, Stored, ValueExtent, ValuePlace};
use fpcache::message::keys::{put_key, take_key};

use crate::table::segments::decide::MutationKind;

const HEADER_BYTES: usize = 40;
/// Bytes of a value's length, checksum and address.
const EXTENT_BYTES: usize = 24;
/// Bytes of a piece before the value's.
pub(crate) const PIECE_HEADER_BYTES: usize = 8;
const PIECE: u8 = 4;

/// A log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged<'a, Q> {
    /// What becomes of a slot.
    SlotMutation(WalEntry<'a, Q>),
    /// A piece of the value of the next mutation.
    Piece {
        /// Where in the value it lies.
        offset: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
}

/// Begins a piece of a value in `out`: its bytes follow.
pub(crate) fn encode_piece(offset: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend([PIECE, 0, 0, 0]);
    out.extend(offset.to_le_bytes());
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalEntry<'a, Q> {
    pub(crate) kind: MutationKind,
    pub(crate) slot: u16,
    pub(crate) generation: u32,
    /// Offset of the segment.
    pub(crate) segment: u64,
    pub(crate) version: u32,
    /// Which operation of its request it is.
    pub(crate) operation: u16,
    /// Whose request.
    pub(crate) client: u64,
    pub(crate) request: u64,
    pub(crate) key: Q,
    /// Of a removal, nothing.
    pub(crate) value: Stored<'a>,
}

impl<Q> WalEntry<'_, Q> {
    pub(crate) fn encode<K: KeySpace>(&self, out: &mut Vec<u8>)
    where
        Q: Borrow<K::Key>,
    {
        out.clear();
        let kind = match self.kind {
            MutationKind::Insert => 1u8,
            MutationKind::Update => 2,
            MutationKind::Remove => 3,
        };
        out.extend([kind, u8::from(matches!(self.value, Stored::External(_)))]);
        out.extend(self.slot.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.segment.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.operation.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.client.to_le_bytes());
        out.extend(self.request.to_le_bytes());
        put_key::<K>(self.key.borrow(), out);
        match self.value {
            Stored::Here(value) => out.extend_from_slice(value),
            Stored::External(extent) => {
                out.extend(u64::from(extent.bytes).to_le_bytes());
                out.extend(extent.checksum.to_le_bytes());
                out.extend(extent.address.to_bits().to_le_bytes());
            }
        }
    }
}

/// Reads an entry of a table whose records lie in slots like this; `None` if it cannot be one.
pub(crate) fn decode<'a, K: KeySpace>(
    bytes: &'a [u8],
    shape: &RecordShape,
) -> Option<Logged<'a, K::View<'a>>> {
    if let [PIECE, _, _, _, offset @ ..] = bytes {
        let (offset, bytes) = offset.split_first_chunk()?;
        return Some(Logged::Piece { offset: u32::from_le_bytes(*offset), bytes });
    }
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let kind = match head[0] {
        1 => MutationKind::Insert,
        2 => MutationKind::Update,
        3 => MutationKind::Remove,
        _ => return None,
    };
    let (key, rest) = take_key::<K>(rest)?;
    let place = |value_bytes| shape.place(K::encoded_len(key.borrow()), value_bytes);
    let (value, fits) = match (kind, head[1]) {
        (MutationKind::Remove, 0) => (Stored::Here(rest), rest.is_empty()),
        (_, 0) => (Stored::Here(rest), place(rest.len()) == Some(ValuePlace::Here)),
        (_, 1) => {
            let extent = decode_extent(rest)?;
            (Stored::External(extent), place(extent.bytes as usize) == Some(ValuePlace::External))
        }
        _ => return None,
    };
    fits.then_some(())?;
    Some(Logged::SlotMutation(WalEntry {
        kind,
        slot: u16_at(2),
        generation: u32_at(4),
        segment: u64_at(8),
        version: u32_at(16),
        operation: u16_at(20),
        client: u64_at(24),
        request: u64_at(32),
        key,
        value,
    }))
}

fn decode_extent(bytes: &[u8]) -> Option<ValueExtent> {
    let fields: &[u8; EXTENT_BYTES] = bytes.try_into().ok()?;
    let [len, checksum, address] = *fields.as_chunks::<8>().0 else { return None };
    Some(ValueExtent {
        address: SegmentAddress::from_bits(u64::from_le_bytes(address)),
        bytes: u32::try_from(u64::from_le_bytes(len)).ok()?,
        checksum: u64::from_le_bytes(checksum),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::{ByteKeys, U64Keys};
    use proptest::prelude::*;

    proptest! {
        /// As they are, and after the kind and the place of a value that there are.
        #[test]
        fn any_bytes_are_some_entry_or_none(
            bytes in prop::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..200),
            (kind, place) in (0..6u8, 0..3u8),
        ) {
            let varies = RecordShape { key_bytes: None, value_bytes: None, room: 24 };
            for bytes in [bytes.clone(), [&[kind, place][..], &bytes].concat()] {
                let _ = decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 8));
                let _ = decode::<ByteKeys>(&bytes, &varies);
            }
        }
    }

    #[test]
    fn entries_round_trip_in_the_drawn_order_and_cut_ones_are_refused() {
        let entry = WalEntry {
            kind: MutationKind::Insert,
            slot: 0x0102,
            generation: 0x0304_0506,
            segment: 0x0708_090a_0b0c_0d0e,
            version: 0x1112_1314,
            operation: 0x1516,
            client: 0x1718_191a_1b1c_1d1e,
            request: 0x2122_2324_2526_2728,
            key: 5u64,
            value: Stored::Here(&[9; 3]),
        };
        let mut bytes = Vec::new();
        entry.encode::<U64Keys>(&mut bytes);
        assert_eq!(bytes[..8], [1, 0, 2, 1, 6, 5, 4, 3]);
        assert_eq!(bytes[8..24], [14, 13, 12, 11, 10, 9, 8, 7, 20, 19, 18, 17, 22, 21, 0, 0]);
        assert_eq!((bytes[24], bytes[31], bytes[32], bytes[39]), (0x1e, 0x17, 0x28, 0x21));
        assert_eq!(decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 3)), Some(Logged::SlotMutation(entry)));
        for len in 0..bytes.len() {
            assert_eq!(decode::<U64Keys>(&bytes[..len], &RecordShape::fixed(8, 3)), None, "{len} bytes");
        }
        let removal = WalEntry { kind: MutationKind::Remove, value: Stored::Here(&[]), ..entry };
        removal.encode::<U64Keys>(&mut bytes);
        assert_eq!(decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 3)), Some(Logged::SlotMutation(removal)));

        let extent = ValueExtent { address: SegmentAddress::from_bits(0x0102), bytes: 300, checksum: 0x0304 };
        let external = WalEntry { kind: MutationKind::Update, value: Stored::External(extent), ..entry };
        external.encode::<U64Keys>(&mut bytes);
        assert_eq!((bytes[..2].to_vec(), bytes.len()), (vec![2, 1], 72));
        assert_eq!(bytes[48..], *b"\x2c\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0");
        let varies = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        assert_eq!(decode::<U64Keys>(&bytes, &varies), Some(Logged::SlotMutation(external)));
        assert_eq!(decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 3)), None, "no value lies outside");
        assert_eq!(decode::<U64Keys>(&bytes[..71], &varies), None);
    }

    #[test]
    fn pieces_of_values_are_in_the_drawn_order() {
        let mut bytes = Vec::new();
        encode_piece(0x0102, &mut bytes);
        bytes.extend(b"piece");
        assert_eq!(bytes, *b"\x04\0\0\0\x02\x01\0\0piece");
        let shape = RecordShape::fixed(8, 3);
        assert_eq!(
            decode::<U64Keys>(&bytes, &shape),
            Some(Logged::Piece { offset: 0x0102, bytes: b"piece" })
        );
        assert_eq!(decode::<U64Keys>(&bytes[..7], &shape), None);
    }
}
