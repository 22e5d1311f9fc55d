//! Encodings of integers, floats, text and tuples as byte strings of the same order.
//!
//! A composite key is encoded part by part. The encoding of its first parts is therefore a prefix
//! of the whole, and [`scan_prefix`](crate::ByteClient::scan_prefix) finds all keys that share
//! them:
//!
//! ```
//! # #[cfg(feature = "embedded")] {
//! use fpcache_client::{ByteClient, RecordShape, TableParameters, decode, encode};
//!
//! # fn main() -> Result<(), fpcache_client::ClientError> {
//! let client = ByteClient::embedded(16 << 20)?;
//! let shape = RecordShape::varying(64).with_value_bytes(8);
//! client.create(TableParameters::default().with_shape(shape))?;
//!
//! // Who (tenant: u32), what (name: &str), when (time: i64).
//! for (tenant, name, time) in [(7u32, "load", 30i64), (7, "load", -5), (7, "loading", 1), (8, "load", 2)] {
//!     client.put(encode(&(tenant, name, time)), &time.to_le_bytes())?;
//! }
//!
//! // One tenant, in the order of names and times.
//! let mut found = Vec::new();
//! client.scan_prefix(encode(&7u32), 100, |key, _| found.extend(decode::<(u32, String, i64)>(key)))?;
//! let expected = [(7, "load", -5), (7, "load", 30), (7, "loading", 1)];
//! assert_eq!(found, expected.map(|(tenant, name, time)| (tenant, name.to_owned(), time)));
//!
//! // One tenant and one name.
//! let mut times = Vec::new();
//! client.scan_prefix(encode(&(7u32, "load")), 100, |_, value| times.push(value.to_vec()))?;
//! assert_eq!(times.len(), 2);
//! # Ok(()) }
//! # main().unwrap();
//! # }
//! ```
//!
//! # Bytes
//!
//! | type | bytes | order |
//! |---|---|---|
//! | `u8` to `u128` | its own, greatest first | numeric |
//! | `i8` to `i128` | its own, greatest first, the sign bit flipped | numeric |
//! | `bool` | `00` or `01` | `false` first |
//! | `char` | 4, as the `u32` of its code point | by code point |
//! | `f32`, `f64` | those of the IEEE pattern, greatest first: negative ones with all bits turned round, the others with the sign bit | `total_cmp`: −NaN, −∞, …, −0, +0, …, ∞, NaN |
//! | `str`, `String`, `[u8]`, `Vec<u8>` | the string with `00 01` for every `00`, then `00 00` | lexicographic by bytes, prefixes first |
//! | `[u8; N]` | the `N` bytes | lexicographic |
//! | `Option` | `00`, or `01` and the value | `None` first |
//! | tuples of 1 to 6 | their parts, one after the other | by the first part that differs |
//!
//! No encoding is a prefix of another one of the same type, which is why parts can follow each
//! other without their lengths. The bytes are the same on every machine and stay as they are: they
//! lie in tables. A key that is one string and nothing else needs none of this: its own bytes sort
//! as it does.
//!
//! The escaping of strings is the customary one for composite keys; the turning of sign bits is
//! that of radix sorts over signed numbers and floats.

/// A value that can be a key, or a part of one: its encoding sorts as it does, see the
/// [module](self#bytes).
pub trait OrderedKey {
    /// Appends the encoding.
    fn encode_into(&self, out: &mut Vec<u8>);
}

/// An [`OrderedKey`] that can be read from its encoding.
pub trait DecodeKey: OrderedKey + Sized {
    /// Reads a value from the front of `bytes`, and returns what lies after it; `None` if no value
    /// is encoded so.
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

/// The encoding of a key: bytes that sort as the keys do. Tables take up to
/// [`ByteKeys::MAX_KEY_BYTES`](crate::ByteKeys::MAX_KEY_BYTES) of them.
pub fn encode<T: OrderedKey + ?Sized>(key: &T) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode_into(&mut out);
    out
}

/// The key with this encoding; `None` if there is none of the type, or if something lies after it.
pub fn decode<T: DecodeKey>(bytes: &[u8]) -> Option<T> {
    match T::decode_from(bytes)? {
        (key, []) => Some(key),
        _ => None,
    }
}

impl<T: OrderedKey + ?Sized> OrderedKey for &T {
    fn encode_into(&self, out: &mut Vec<u8>) {
        (**self).encode_into(out);
    }
}

/// Numbers whose pattern, greatest byte first, sorts as they do once it was turned.
macro_rules! numbers {
    ($($number:ty: $pattern:ty, $turned:expr, $turned_back:expr;)*) => {$(
        impl OrderedKey for $number {
            fn encode_into(&self, out: &mut Vec<u8>) {
                let turned: fn($number) -> $pattern = $turned;
                out.extend(turned(*self).to_be_bytes());
            }
        }

        impl DecodeKey for $number {
            fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let turned_back: fn($pattern) -> $number = $turned_back;
                let (pattern, after) = bytes.split_first_chunk()?;
                Some((turned_back(<$pattern>::from_be_bytes(*pattern)), after))
            }
        }
    )*};
}

numbers! {
    u8: u8, |n| n, |n| n;
    u16: u16, |n| n, |n| n;
    u32: u32, |n| n, |n| n;
    u64: u64, |n| n, |n| n;
    u128: u128, |n| n, |n| n;
    i8: u8, |n| n as u8 ^ (1 << 7), |n| (n ^ (1 << 7)) as i8;
    i16: u16, |n| n as u16 ^ (1 << 15), |n| (n ^ (1 << 15)) as i16;
    i32: u32, |n| n as u32 ^ (1 << 31), |n| (n ^ (1 << 31)) as i32;
    i64: u64, |n| n as u64 ^ (1 << 63), |n| (n ^ (1 << 63)) as i64;
    i128: u128, |n| n as u128 ^ (1 << 127), |n| (n ^ (1 << 127)) as i128;
    // All bits of a negative float are turned, the sign bit of another one: the patterns of IEEE
    // 754 are magnitudes after a sign.
    f32: u32,
        |n| n.to_bits() ^ ((n.to_bits() as i32 >> 31) as u32 | 1 << 31),
        |n| f32::from_bits(n ^ ((!n as i32 >> 31) as u32 | 1 << 31));
    f64: u64,
        |n| n.to_bits() ^ ((n.to_bits() as i64 >> 63) as u64 | 1 << 63),
        |n| f64::from_bits(n ^ ((!n as i64 >> 63) as u64 | 1 << 63));
}

impl OrderedKey for bool {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl DecodeKey for bool {
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes {
            [flag @ 0..=1, after @ ..] => Some((*flag == 1, after)),
            _ => None,
        }
    }
}

impl OrderedKey for char {
    fn encode_into(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode_into(out);
    }
}

impl DecodeKey for char {
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (code, after) = u32::decode_from(bytes)?;
        Some((char::from_u32(code)?, after))
    }
}

/// What stands after a zero byte: that it is one, or that the string ends.
const ZERO: u8 = 1;
const END: u8 = 0;

impl OrderedKey for [u8] {
    fn encode_into(&self, out: &mut Vec<u8>) {
        for (i, part) in self.split(|byte| *byte == 0).enumerate() {
            if i > 0 {
                out.extend([0, ZERO]);
            }
            out.extend_from_slice(part);
        }
        out.extend([0, END]);
    }
}

impl OrderedKey for Vec<u8> {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.as_slice().encode_into(out);
    }
}

impl DecodeKey for Vec<u8> {
    fn decode_from(mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut string = Self::new();
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0)?;
            string.extend_from_slice(&bytes[..zero]);
            let (what, after) = bytes[zero + 1..].split_first()?;
            match *what {
                ZERO => string.push(0),
                END => return Some((string, after)),
                _ => return None,
            }
            bytes = after;
        }
    }
}

impl OrderedKey for str {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_into(out);
    }
}

impl OrderedKey for String {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_into(out);
    }
}

impl DecodeKey for String {
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (string, after) = Vec::decode_from(bytes)?;
        Some((Self::from_utf8(string).ok()?, after))
    }
}

impl<const N: usize> OrderedKey for [u8; N] {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> DecodeKey for [u8; N] {
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (array, after) = bytes.split_first_chunk()?;
        Some((*array, after))
    }
}

impl<T: OrderedKey> OrderedKey for Option<T> {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.is_some().encode_into(out);
        if let Some(value) = self {
            value.encode_into(out);
        }
    }
}

impl<T: DecodeKey> DecodeKey for Option<T> {
    fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (is_some, after) = bool::decode_from(bytes)?;
        if !is_some {
            return Some((None, after));
        }
        let (value, after) = T::decode_from(after)?;
        Some((Some(value), after))
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt),+);)*) => {$(
        impl<$($part: OrderedKey),+> OrderedKey for ($($part,)+) {
            fn encode_into(&self, out: &mut Vec<u8>) {
                $(self.$at.encode_into(out);)+
            }
        }

        impl<$($part: DecodeKey),+> DecodeKey for ($($part,)+) {
            fn decode_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let mut rest = bytes;
                let key = ($({
                    let (part, after) = $part::decode_from(rest)?;
                    rest = after;
                    part
                },)+);
                Some((key, rest))
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

#[cfg(test)]
mod tests;
