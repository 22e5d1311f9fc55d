//! One entry of the log: what becomes of one slot.
//!
//! ```text
//! 0 kind u8 (1 insert, 2 update, 3 remove) · 1 zero u8 · 2 slot u16 · 4 generation u32 · 8 offset of the segment u64
//! 16 version u32 · 20 operation of its request u16 · 22 zero u16 · 24 client u64 · 32 request u64 · 40 key, as in a request · value
//! ```
//!
//! An entry is an effect, not a request: it can be applied again to the slot it names, or, to another table of the same
//! records, by its key.

use std::borrow::Borrow;

use fpcache::key_space::KeySpace;
use fpcache::layout::RecordShape;
use fpcache::message::keys::{put_key, take_key};

use crate::table::write::EffectKind;

const HEADER_BYTES: usize = 40;

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a, Q> {
    pub(crate) kind: EffectKind,
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
    pub(crate) value: &'a [u8],
}

impl<Q> Entry<'_, Q> {
    pub(crate) fn encode<K: KeySpace>(&self, out: &mut Vec<u8>)
    where
        Q: Borrow<K::Key>,
    {
        out.clear();
        let kind = match self.kind {
            EffectKind::Insert => 1u8,
            EffectKind::Update => 2,
            EffectKind::Remove => 3,
        };
        out.extend([kind, 0]);
        out.extend(self.slot.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.segment.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.operation.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.client.to_le_bytes());
        out.extend(self.request.to_le_bytes());
        put_key::<K>(self.key.borrow(), out);
        out.extend_from_slice(self.value);
    }
}

/// Reads an entry of a table whose records lie in slots like this; `None` if it cannot be one.
pub(crate) fn decode<'a, K: KeySpace>(
    bytes: &'a [u8],
    shape: &RecordShape,
) -> Option<Entry<'a, K::View<'a>>> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let kind = match head[0] {
        1 => EffectKind::Insert,
        2 => EffectKind::Update,
        3 => EffectKind::Remove,
        _ => return None,
    };
    let (key, value) = take_key::<K>(rest)?;
    let fits = match kind {
        EffectKind::Remove => value.is_empty(),
        _ => shape.fits(K::encoded_len(key.borrow()), value.len()),
    };
    fits.then_some(())?;
    Some(Entry {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::U64Keys;

    #[test]
    fn entries_round_trip_in_the_drawn_order_and_cut_ones_are_refused() {
        let entry = Entry {
            kind: EffectKind::Insert,
            slot: 0x0102,
            generation: 0x0304_0506,
            segment: 0x0708_090a_0b0c_0d0e,
            version: 0x1112_1314,
            operation: 0x1516,
            client: 0x1718_191a_1b1c_1d1e,
            request: 0x2122_2324_2526_2728,
            key: 5u64,
            value: &[9; 3],
        };
        let mut bytes = Vec::new();
        entry.encode::<U64Keys>(&mut bytes);
        assert_eq!(bytes[..8], [1, 0, 2, 1, 6, 5, 4, 3]);
        assert_eq!(bytes[8..24], [14, 13, 12, 11, 10, 9, 8, 7, 20, 19, 18, 17, 22, 21, 0, 0]);
        assert_eq!((bytes[24], bytes[31], bytes[32], bytes[39]), (0x1e, 0x17, 0x28, 0x21));
        assert_eq!(decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 3)), Some(entry));
        for len in 0..bytes.len() {
            assert_eq!(decode::<U64Keys>(&bytes[..len], &RecordShape::fixed(8, 3)), None, "{len} bytes");
        }
        let removal = Entry { kind: EffectKind::Remove, value: &[], ..entry };
        removal.encode::<U64Keys>(&mut bytes);
        assert_eq!(decode::<U64Keys>(&bytes, &RecordShape::fixed(8, 3)), Some(removal));
    }
}
