//! How a record lies in a slot.
//!
//! ```text
//! nothing varies      key · value
//! keys vary           0 key bytes u16 · 2 key · value
//! values vary         0 value bytes u32 · 4 key bytes u16 · 6 zero u16 · 8 key · value
//! ```
//!
//! Where both lengths are the table's, a record has no field for either. Whatever lies behind the value is zero.

use super::{put, u16_at, u32_at};
use crate::key_space::KeySpace;

/// Where key and value lie in the records of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// Bytes of every key; `None` if they vary.
    pub key_bytes: Option<u16>,
    /// Bytes of every value; `None` if they vary.
    pub value_bytes: Option<u32>,
    /// Bytes a slot has for key and value together.
    pub room: u32,
}

/// A record's key, in its encoded form, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordParts<'a> {
    /// The encoded key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl RecordShape {
    /// The shape of records whose lengths are all the same.
    pub const fn fixed(key_bytes: u16, value_bytes: u32) -> Self {
        Self {
            key_bytes: Some(key_bytes),
            value_bytes: Some(value_bytes),
            room: key_bytes as u32 + value_bytes,
        }
    }

    /// Bytes before the key.
    #[inline]
    pub const fn head_bytes(&self) -> usize {
        match (self.key_bytes, self.value_bytes) {
            (Some(_), Some(_)) => 0,
            (None, Some(_)) => 2,
            (_, None) => 8,
        }
    }

    /// Bytes of a slot's body, padded to whole words.
    pub const fn body_bytes(&self) -> usize {
        (self.head_bytes() + self.room as usize).next_multiple_of(8)
    }

    /// Whether a record of these lengths fits a slot.
    #[inline]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.key_bytes.is_none_or(|bytes| usize::from(bytes) == key_bytes)
            && self.value_bytes.is_none_or(|bytes| bytes as usize == value_bytes)
            && key_bytes + value_bytes <= self.room as usize
    }

    /// Key and value of the record in `body`; `None` if no record can lie there so.
    #[inline(always)]
    pub fn parts<'a, K: KeySpace>(&self, body: &'a [u8]) -> Option<RecordParts<'a>> {
        let head = self.head_bytes();
        let key_bytes = match (K::FIXED_BYTES, self.key_bytes) {
            (Some(bytes), _) => bytes,
            (None, Some(bytes)) => usize::from(bytes),
            (None, None) => usize::from(u16_at(body, if self.value_bytes.is_none() { 4 } else { 0 })),
        };
        let value_bytes = match self.value_bytes {
            Some(bytes) => bytes as usize,
            None => u32_at(body, 0) as usize,
        };
        let (key, rest) = body.get(head..)?.split_at_checked(key_bytes)?;
        Some(RecordParts { key, value: rest.get(..value_bytes)? })
    }

    /// Bytes of the body that a record of these lengths takes, its head included.
    #[inline]
    pub fn used(&self, key_bytes: usize, value_bytes: usize) -> usize {
        self.head_bytes() + key_bytes + value_bytes
    }

    /// Writes a record that fits into a zeroed body; returns how many bytes of it are used.
    #[inline]
    pub fn fill<K: KeySpace>(&self, body: &mut [u8], key: &K::Key, value: &[u8]) -> usize {
        let (head, key_bytes) = (self.head_bytes(), K::encoded_len(key));
        if self.value_bytes.is_none() {
            put(body, 0, (value.len() as u32).to_le_bytes());
            put(body, 4, (key_bytes as u16).to_le_bytes());
        } else if self.key_bytes.is_none() {
            put(body, 0, (key_bytes as u16).to_le_bytes());
        }
        let (at_key, at_value) = (head, head + key_bytes);
        K::encode(key, &mut body[at_key..at_value]);
        body[at_value..][..value.len()].copy_from_slice(value);
        at_value + value.len()
    }

    /// Where the value begins behind the key, if that is the same for all records.
    #[inline]
    pub fn is_fixed(&self) -> bool {
        self.head_bytes() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};

    fn round_trip<K: KeySpace>(shape: RecordShape, key: &K::Key, value: &[u8]) -> Vec<u8> {
        let mut body = vec![0; shape.body_bytes()];
        assert!(shape.fits(K::encoded_len(key), value.len()));
        let used = shape.fill::<K>(&mut body, key, value);
        assert_eq!(used, shape.used(K::encoded_len(key), value.len()));
        let parts = shape.parts::<K>(&body).expect("own record");
        assert_eq!(K::view(parts.key).as_ref().map(std::borrow::Borrow::borrow), Some(key));
        assert_eq!(parts.value, value);
        body
    }

    #[test]
    fn records_of_fixed_lengths_have_no_field_for_them() {
        assert_eq!(
            round_trip::<U64Keys>(RecordShape::fixed(8, 3), &5, b"abc"),
            [5, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0]
        );
        assert_eq!(round_trip::<ByteKeys>(RecordShape::fixed(3, 5), b"key", b"value"), *b"keyvalue");
    }

    #[test]
    fn lengths_that_vary_come_first() {
        let keys = RecordShape { key_bytes: None, value_bytes: Some(4), room: 10 };
        assert_eq!(round_trip::<ByteKeys>(keys, b"key", b"1234"), *b"\x03\0key1234\0\0\0\0\0\0\0");
        let both = RecordShape { key_bytes: None, value_bytes: None, room: 8 };
        assert_eq!(round_trip::<ByteKeys>(both, b"k", b"ab"), *b"\x02\0\0\0\x01\0\0\0kab\0\0\0\0\0");
        let values = RecordShape { key_bytes: Some(8), value_bytes: None, room: 16 };
        assert_eq!(round_trip::<U64Keys>(values, &7, b"z").len(), 24);
        assert!(!both.fits(4, 5) && both.fits(4, 4) && !values.fits(7, 1));
    }

    #[test]
    fn lengths_that_reach_past_the_body_are_no_record() {
        let shape = RecordShape { key_bytes: None, value_bytes: None, room: 8 };
        assert_eq!(shape.parts::<ByteKeys>(b"\x02\0\0\0\x0f\0\0\0kab\0\0\0\0\0"), None);
        assert_eq!(shape.parts::<ByteKeys>(b"\xff\xff\xff\xff\x01\0\0\0kab\0\0\0\0\0"), None);
        assert_eq!(shape.parts::<ByteKeys>(&[]), None);
    }
}
