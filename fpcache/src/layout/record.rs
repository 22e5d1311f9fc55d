//! The layout of a record in a slot.
//!
//! ```text
//! nothing varies      key · value
//! keys vary           0 key bytes u16 · 2 key · value
//! values vary         0 value bytes u32 · 4 key bytes u16 · 6 place u16: 0 · 8 key · value
//!                     0 value bytes u32 · 4 key bytes u16 · 6 place u16: 1 · 8 key · XXH3-64 of the value u64 · its address u64
//! ```
//!
//! Where both lengths are the table's, a record has no field for either. A value that does not fit
//! beside its key lies elsewhere in the region, in an *extent*: [`ValueExtent`]. Whatever lies
//! after is zero.

use xxhash_rust::xxh3::xxh3_64;

use super::{SegmentAddress, put, u16_at, u32_at, u64_at};
use crate::key_space::KeySpace;

/// Bytes of the longest value.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

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
    /// The value, or where it lies.
    pub value: Stored<'a>,
}

/// A record's value as its slot has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The value itself.
    Here(&'a [u8]),
    /// Where it lies.
    External(ValueExtent),
}

/// An external value, and what proves it.
///
/// The checksum is in the slot, whose own checksum vouches for it: bytes that have it are the
/// value, whatever became of the memory since. So an extent needs no header, is neither moved nor
/// touched when its record's segment is rebuilt, and its memory can have another use as soon as no
/// slot names it: its reader then reads the slot again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueExtent {
    /// Where it begins; takes whole words.
    pub address: SegmentAddress,
    /// Bytes of the value, at most [`MAX_VALUE_BYTES`].
    pub bytes: u32,
    /// XXH3-64 of the value.
    pub checksum: u64,
}

impl ValueExtent {
    /// Bytes that a slot has for an extent after the key.
    pub const REFERENCE_BYTES: usize = 16;

    /// Bytes of memory that a value takes: whole words.
    pub const fn memory_bytes(value_bytes: usize) -> usize {
        value_bytes.next_multiple_of(8)
    }

    /// Whether these bytes are the value. About 0.1 ns a byte.
    pub fn is_proof_of(&self, value: &[u8]) -> bool {
        value.len() == self.bytes as usize && xxh3_64(value) == self.checksum
    }
}

/// Where a record's value is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In its slot.
    Here,
    /// In an extent.
    External,
}

impl RecordShape {
    /// The shape of records whose lengths are all the same.
    #[must_use]
    pub const fn fixed(key_bytes: u16, value_bytes: u32) -> Self {
        Self {
            key_bytes: Some(key_bytes),
            value_bytes: Some(value_bytes),
            room: key_bytes as u32 + value_bytes,
        }
    }

    /// The shape of records whose keys and values vary, in slots with this much room for both. For
    /// integer keys say `with_key_bytes(8)` of it.
    ///
    /// ```
    /// # use fpcache::layout::RecordShape;
    /// let texts_by_number = RecordShape::varying(108).with_key_bytes(8); // texts up to 100 bytes in slots
    /// assert_eq!((texts_by_number.key_bytes, texts_by_number.value_bytes), (Some(8), None));
    /// ```
    #[must_use]
    pub const fn varying(room: u32) -> Self {
        Self { key_bytes: None, value_bytes: None, room }
    }

    /// The same, but all keys have this many bytes.
    #[must_use]
    pub const fn with_key_bytes(self, bytes: u16) -> Self {
        Self { key_bytes: Some(bytes), ..self }
    }

    /// The same, but all values have this many bytes.
    #[must_use]
    pub const fn with_value_bytes(self, bytes: u32) -> Self {
        Self { value_bytes: Some(bytes), ..self }
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

    /// Whether a record can have these lengths.
    #[inline]
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.place(key_bytes, value_bytes).is_some()
    }

    /// Where the value of a record of these lengths lies; `None` if the table can have no such
    /// record.
    #[inline]
    pub fn place(&self, key_bytes: usize, value_bytes: usize) -> Option<ValuePlace> {
        let fits = self.key_bytes.is_none_or(|bytes| usize::from(bytes) == key_bytes)
            && self.value_bytes.is_none_or(|bytes| bytes as usize == value_bytes);
        let room = self.room as usize;
        match fits {
            true if key_bytes + value_bytes <= room => Some(ValuePlace::Here),
            true => {
                let may_be_external = self.value_bytes.is_none()
                    && value_bytes <= MAX_VALUE_BYTES
                    && key_bytes + ValueExtent::REFERENCE_BYTES <= room;
                may_be_external.then_some(ValuePlace::External)
            }
            false => None,
        }
    }

    /// Whether the first word of a record's body says that its value lies in its slot, and has
    /// lengths that can lie there: by one bit that flips, it does not come to say so of an external
    /// value, which is too long for that.
    #[inline]
    pub fn names_value_here(&self, head: u64) -> bool {
        let [value_bytes, key_bytes] = [head & u64::from(u32::MAX), u64::from((head >> 32) as u16)];
        let place = (head >> 48) as u16;
        self.value_bytes.is_none() && place == HERE && key_bytes + value_bytes <= u64::from(self.room)
    }

    /// Key and value of the record in `body`; `None` if no record can lie there so.
    #[inline(always)]
    pub fn parts<'a, K: KeySpace>(&self, body: &'a [u8]) -> Option<RecordParts<'a>> {
        let (key, rest) = self.key_and_rest::<K>(body)?;
        let value = match self.value_bytes {
            Some(bytes) => Stored::Here(rest.get(..bytes as usize)?),
            None => stored(u32_at(body, 0), u16_at(body, 6), rest)?,
        };
        Some(RecordParts { key, value })
    }

    /// The encoded key of the record in `body`, whatever is said there of its value; `None` if no
    /// key can lie there so.
    #[inline(always)]
    pub fn key<'a, K: KeySpace>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        self.key_and_rest::<K>(body).map(|(key, _)| key)
    }

    #[inline(always)]
    fn key_and_rest<'a, K: KeySpace>(&self, body: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let head = self.head_bytes();
        let key_bytes = match (K::FIXED_BYTES, self.key_bytes) {
            (Some(bytes), _) => bytes,
            (None, Some(bytes)) => usize::from(bytes),
            (None, None) => usize::from(u16_at(body, if self.value_bytes.is_none() { 4 } else { 0 })),
        };
        body.get(head..)?.split_at_checked(key_bytes)
    }

    /// Bytes of the body that [identify](super::RecordToken) a record with such a key and value:
    /// all it takes, but for an extent's address, which differs when the record is made again from
    /// a log.
    #[inline]
    pub fn used(&self, key_bytes: usize, value: &Stored<'_>) -> usize {
        let value_bytes = match value {
            Stored::Here(value) => value.len(),
            Stored::External(_) => 8,
        };
        self.head_bytes() + key_bytes + value_bytes
    }

    /// Writes a record that fits into a zeroed body; returns how many bytes of it
    /// [identify](Self::used) it.
    #[inline]
    pub fn fill<K: KeySpace>(&self, body: &mut [u8], key: &K::Key, value: &Stored<'_>) -> usize {
        let (head, key_bytes) = (self.head_bytes(), K::encoded_len(key));
        if self.value_bytes.is_none() {
            let (value_bytes, place) = match value {
                Stored::Here(value) => (value.len() as u32, HERE),
                Stored::External(extent) => (extent.bytes, EXTERNAL),
            };
            put(body, 0, value_bytes.to_le_bytes());
            put(body, 4, (key_bytes as u16).to_le_bytes());
            put(body, 6, place.to_le_bytes());
        } else if self.key_bytes.is_none() {
            put(body, 0, (key_bytes as u16).to_le_bytes());
        }
        let (at_key, at_value) = (head, head + key_bytes);
        K::encode(key, &mut body[at_key..at_value]);
        match value {
            Stored::Here(value) => body[at_value..][..value.len()].copy_from_slice(value),
            Stored::External(extent) => {
                put(body, at_value, extent.checksum.to_le_bytes());
                put(body, at_value + 8, extent.address.to_bits().to_le_bytes());
            }
        }
        self.used(key_bytes, value)
    }

    /// The [token](super::RecordToken) that identifies the record of a key and a value, wherever
    /// its value lies; one that lies outside is hashed, about 0.1 ns a byte.
    pub fn identity<K: KeySpace>(&self, key: &K::Key, value: &[u8]) -> Vec<u8> {
        let stored = match self.place(K::encoded_len(key), value.len()) {
            Some(ValuePlace::External) => {
                let address = SegmentAddress::from_bits(0);
                Stored::External(ValueExtent { address, bytes: value.len() as u32, checksum: xxh3_64(value) })
            }
            _ => Stored::Here(value),
        };
        let mut record = vec![0; self.body_bytes().max(self.used(K::encoded_len(key), &stored))];
        let used = self.fill::<K>(&mut record, key, &stored);
        record.truncate(used);
        record
    }

    /// Where the value begins after the key, if that is the same for all records.
    #[inline]
    pub fn is_fixed(&self) -> bool {
        self.head_bytes() == 0
    }
}

/// Where the value is, in the head of a record whose value's length varies.
const HERE: u16 = 0;
const EXTERNAL: u16 = 1;

/// The value of a record with such a head, in what lies after the key.
#[inline]
fn stored(bytes: u32, place: u16, rest: &[u8]) -> Option<Stored<'_>> {
    match place {
        HERE => rest.get(..bytes as usize).map(Stored::Here),
        EXTERNAL if bytes as usize <= MAX_VALUE_BYTES && rest.len() >= ValueExtent::REFERENCE_BYTES => {
            let address = SegmentAddress::from_bits(u64_at(rest, 8));
            Some(Stored::External(ValueExtent { address, bytes, checksum: u64_at(rest, 0) }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};

    fn round_trip<K: KeySpace>(shape: RecordShape, key: &K::Key, value: &[u8]) -> Vec<u8> {
        let mut body = vec![0; shape.body_bytes()];
        assert!(shape.fits(K::encoded_len(key), value.len()));
        let used = shape.fill::<K>(&mut body, key, &Stored::Here(value));
        assert_eq!(used, shape.used(K::encoded_len(key), &Stored::Here(value)));
        assert_eq!(body[..used], shape.identity::<K>(key, value));
        let parts = shape.parts::<K>(&body).expect("own record");
        assert_eq!(K::view(parts.key).as_ref().map(std::borrow::Borrow::borrow), Some(key));
        assert_eq!(parts.value, Stored::Here(value));
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
    fn a_value_that_does_not_fit_beside_its_key_lies_outside() {
        let shape = RecordShape { key_bytes: None, value_bytes: None, room: 20 };
        let places = [(3, 17), (3, 18), (4, MAX_VALUE_BYTES), (4, MAX_VALUE_BYTES + 1), (5, 15), (5, 16)];
        let place = |(key, value)| shape.place(key, value);
        use ValuePlace::{External, Here};
        assert_eq!(places.map(place), [Some(Here), Some(External), Some(External), None, Some(Here), None]);
        assert_eq!(RecordShape::fixed(8, 4).place(8, 5), None, "values all have one length");

        let value = [7; 300];
        let extent = ValueExtent {
            address: SegmentAddress::from_bits(0x0102_0304_0506_0708),
            bytes: 300,
            checksum: xxh3_64(&value),
        };
        assert!(
            extent.is_proof_of(&value) && !extent.is_proof_of(&value[1..]) && !extent.is_proof_of(&[8; 300])
        );
        let mut body = vec![0; shape.body_bytes()];
        let used = shape.fill::<ByteKeys>(&mut body, b"key", &Stored::External(extent));
        assert_eq!(body[..11], *b"\x2c\x01\0\0\x03\0\x01\0key");
        assert_eq!(body[11..19], extent.checksum.to_le_bytes());
        assert_eq!(body[19..27], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(body[..used], shape.identity::<ByteKeys>(b"key", &value), "the address does not count");
        let parts = shape.parts::<ByteKeys>(&body).expect("own record");
        assert_eq!((parts.key, parts.value), (&b"key"[..], Stored::External(extent)));
        body[6] = 2;
        assert_eq!(shape.parts::<ByteKeys>(&body), None, "no place at all");
        body[6] = 1;
        body[3] = 9;
        assert_eq!(shape.parts::<ByteKeys>(&body), None, "longer than values can be");
    }

    #[test]
    fn lengths_that_reach_past_the_body_are_no_record() {
        let shape = RecordShape { key_bytes: None, value_bytes: None, room: 8 };
        assert_eq!(shape.parts::<ByteKeys>(b"\x02\0\0\0\x0f\0\0\0kab\0\0\0\0\0"), None);
        assert_eq!(shape.parts::<ByteKeys>(b"\xff\xff\xff\xff\x01\0\0\0kab\0\0\0\0\0"), None);
        assert_eq!(shape.parts::<ByteKeys>(&[]), None);
    }
}
