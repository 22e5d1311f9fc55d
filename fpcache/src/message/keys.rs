//! Keys and records in requests.
//!
//! ```text
//! key      u64 keys: 8 bytes     byte strings: 0 its bytes u16 · 2 these
//! record   key · where values vary: bytes of the value u32 (bit 31: it came ahead) · value
//! ```

use super::value::Sent;
use crate::key_space::KeySpace;
use crate::layout::RecordShape;

/// Appends a key.
pub fn put_key<K: KeySpace>(key: &K::Key, out: &mut Vec<u8>) {
    let len = K::encoded_len(key);
    if K::FIXED_BYTES.is_none() {
        // No longer than keys can be: the caller has checked.
        out.extend((len as u16).to_le_bytes());
    }
    let at = out.len();
    out.resize(at + len, 0);
    K::encode(key, &mut out[at..]);
}

/// Reads a key, and returns what lies after it; `None` if it is cut short.
pub fn take_key<K: KeySpace>(bytes: &[u8]) -> Option<(K::View<'_>, &[u8])> {
    let (len, rest) = match K::FIXED_BYTES {
        Some(len) => (len, bytes),
        None => {
            let (len, rest) = bytes.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
    };
    let (key, rest) = rest.split_at_checked(len)?;
    Some((K::view(key)?, rest))
}

/// Bytes of a key in a request.
pub fn key_bytes<K: KeySpace>(key: &K::Key) -> usize {
    K::encoded_len(key) + if K::FIXED_BYTES.is_none() { 2 } else { 0 }
}

/// Appends a record of a table of this shape, which it fits.
pub fn put_record<K: KeySpace>(shape: &RecordShape, key: &K::Key, value: &Sent<'_>, out: &mut Vec<u8>) {
    put_key::<K>(key, out);
    if shape.value_bytes.is_none() {
        out.extend(value.length_field().to_le_bytes());
    }
    out.extend_from_slice(value.bytes());
}

/// Reads a record, and returns what lies after it; `None` if it is cut short.
#[allow(clippy::type_complexity, reason = "a record and the rest")]
pub fn take_record<'a, K: KeySpace>(
    shape: &RecordShape,
    bytes: &'a [u8],
) -> Option<((K::View<'a>, Sent<'a>), &'a [u8])> {
    let (key, rest) = take_key::<K>(bytes)?;
    let (value, rest) = match shape.value_bytes {
        Some(len) => {
            let (value, rest) = rest.split_at_checked(len as usize)?;
            (Sent::Here(value), rest)
        }
        None => {
            let (len, after) = rest.split_first_chunk()?;
            Sent::take(u32::from_le_bytes(*len), after)?
        }
    };
    Some(((key, value), rest))
}

/// Bytes of a record in a request.
pub fn record_bytes<K: KeySpace>(shape: &RecordShape, key: &K::Key, value: &Sent<'_>) -> usize {
    key_bytes::<K>(key) + if shape.value_bytes.is_none() { 4 } else { 0 } + value.bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};
    use proptest::prelude::*;
    use std::borrow::Borrow;

    fn assert_round_trips<K: KeySpace>(shape: &RecordShape, key: &K::Key, value: Sent<'_>) {
        let mut bytes = Vec::new();
        put_record::<K>(shape, key, &value, &mut bytes);
        assert_eq!(bytes.len(), record_bytes::<K>(shape, key, &value));
        for cut in 0..bytes.len() {
            assert_eq!(take_record::<K>(shape, &bytes[..cut]), None, "cut short");
        }
        bytes.extend(b"more");
        let ((back, read), rest) = take_record::<K>(shape, &bytes).expect("own record");
        assert_eq!((back.borrow(), read, rest), (key, value, &b"more"[..]));
    }

    #[test]
    fn a_key_is_in_the_drawn_order() {
        let mut bytes = Vec::new();
        put_key::<ByteKeys>(b"key", &mut bytes);
        put_key::<U64Keys>(&7, &mut bytes);
        assert_eq!(bytes, *b"\x03\0key\x07\0\0\0\0\0\0\0");
    }

    proptest! {
        #[test]
        fn records_round_trip(number: u64, key in prop::collection::vec(any::<u8>(), 0..50), value in prop::collection::vec(any::<u8>(), 0..50)) {
            let fixed = RecordShape::fixed(8, value.len() as u32);
            let varies = RecordShape { value_bytes: None, ..fixed };
            for shape in [fixed, varies] {
                assert_round_trips::<U64Keys>(&shape, &number, Sent::Here(&value));
                assert_round_trips::<ByteKeys>(&RecordShape { key_bytes: None, ..shape }, &key, Sent::Here(&value));
            }
            assert_round_trips::<U64Keys>(&varies, &number, Sent::Ahead(number as u32 >> 1));
        }
    }
}
