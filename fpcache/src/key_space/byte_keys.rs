//! Byte-string keys of 1 B to 4 KiB, in lexicographic order.

use std::sync::Arc;

use fpcache_index::strings::{KeyEncoder, common_prefix};
use xxhash_rust::xxh3::xxh3_64;

use super::{FrontCoded, KeySpace};

/// Byte strings in lexicographic order; the encoded form is the string itself.
///
/// The keys of a segment share a prefix, the first `skip` bytes of the separator its range begins
/// with. The coordinate of a key that has the prefix is what the segment's [`KeyEncoder`] makes of
/// the bytes after it; a key of the range that lacks it lies above all that have it, and has the
/// greatest coordinate there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteKeys;

impl ByteKeys {
    /// Longest key.
    pub const MAX_KEY_BYTES: usize = 4096;
    /// Longest separator: the successor of a longest key.
    pub const MAX_SEPARATOR_BYTES: usize = Self::MAX_KEY_BYTES + 1;
}

/// A segment's data for the coordinates of byte strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteTail {
    /// Leading bytes that the keys the segment was built from share with its separator.
    pub skip: u16,
    /// Which of the table's encoders makes numbers of the bytes after them.
    pub encoder: u8,
}

/// The encoders of a table: few, and never changed once segments refer to them.
#[derive(Clone, Debug)]
pub struct KeyEncoders(Arc<[Arc<KeyEncoder>]>);

impl KeyEncoders {
    /// Most encoders of a table.
    pub const MOST: usize = 8;

    /// One encoder.
    pub fn of(encoder: KeyEncoder) -> Self {
        Self([Arc::new(encoder)].into())
    }

    /// KeyEncoder of this number, if there is one.
    #[inline]
    pub fn get(&self, number: u8) -> Option<&Arc<KeyEncoder>> {
        self.0.get(usize::from(number))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of the newest one.
    pub fn newest(&self) -> u8 {
        // There are few.
        self.0.len().saturating_sub(1) as u8
    }

    /// These and another one, if there is room for it.
    #[must_use]
    pub fn and(&self, encoder: KeyEncoder) -> Option<Self> {
        (self.len() < Self::MOST).then(|| Self(self.0.iter().cloned().chain([Arc::new(encoder)]).collect()))
    }
}

impl Default for KeyEncoders {
    fn default() -> Self {
        Self::of(KeyEncoder::plain())
    }
}

impl KeySpace for ByteKeys {
    type Key = [u8];
    type Owned = Vec<u8>;
    type View<'a> = &'a [u8];
    type Kept = (usize, usize);
    type Tail = ByteTail;
    type Separators = FrontCoded;
    type Encoders = KeyEncoders;

    const ID: u32 = 2;
    const NAME: &'static str = "bytes";
    const FIXED_BYTES: Option<usize> = None;
    const PAGE_BYTES: usize = 16 << 10;

    fn lowest() -> &'static [u8] {
        &[]
    }

    fn highest() -> &'static [u8] {
        // Longer than all of which it could be a prefix.
        &[u8::MAX; Self::MAX_SEPARATOR_BYTES + 1]
    }

    fn successor(key: &[u8]) -> Option<Vec<u8>> {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        Some(next)
    }

    #[inline]
    fn coordinate(key: &[u8], shared: usize, tail: ByteTail, encoders: &KeyEncoders) -> u64 {
        let skip = usize::from(tail.skip);
        match encoders.get(tail.encoder) {
            Some(encoder) if shared >= skip => encoder.code(key, skip),
            _ => u64::MAX,
        }
    }

    #[inline]
    fn shared(a: &[u8], b: &[u8]) -> usize {
        common_prefix(a, b)
    }

    #[inline]
    fn hash(key: &[u8]) -> u64 {
        cityhasher::hash::<u64>(key)
    }

    #[inline]
    fn tag(key: &[u8]) -> u64 {
        xxh3_64(key)
    }

    #[inline]
    fn word(_: &[u8]) -> Option<u64> {
        None
    }

    #[inline]
    fn encoded_len(key: &[u8]) -> usize {
        key.len()
    }

    #[inline]
    fn encode(key: &[u8], out: &mut [u8]) {
        out.copy_from_slice(key);
    }

    #[inline]
    fn view(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }

    #[inline]
    fn as_view(key: &[u8]) -> &[u8] {
        key
    }

    #[inline]
    fn keep(key: &[u8], arena: &mut Vec<u8>) -> (usize, usize) {
        let at = arena.len();
        arena.extend_from_slice(key);
        (at, key.len())
    }

    #[inline]
    fn kept<'a>(&(at, len): &'a (usize, usize), arena: &'a [u8]) -> &'a [u8] {
        // Inside: it was appended to this arena.
        &arena[at..at + len]
    }

    fn boundary_id(key: &[u8]) -> u64 {
        xxh3_64(key)
    }

    fn show(key: &[u8]) -> String {
        /// Bytes of a key that messages show.
        const SHOWN: usize = 80;
        match key.get(..SHOWN) {
            Some(start) if key.len() > SHOWN => {
                format!("\"{}...\" of {} bytes", start.escape_ascii(), key.len())
            }
            _ => format!("\"{}\"", key.escape_ascii()),
        }
    }

    fn heap_bytes(key: &Vec<u8>) -> usize {
        key.capacity()
    }

    fn put_separator(start: &[u8], tail: ByteTail, before: Option<&[u8]>, out: &mut Vec<u8>) {
        let shared = before.map_or(0, |before| common_prefix(before, start));
        let rest = &start[shared..];
        out.extend(tail.skip.to_le_bytes());
        out.extend([tail.encoder, 0]);
        // Separators are no longer than keys.
        out.extend((shared as u16).to_le_bytes());
        out.extend((rest.len() as u16).to_le_bytes());
        out.extend_from_slice(rest);
    }

    fn take_separator<'b>(before: Option<&[u8]>, bytes: &'b [u8]) -> Option<(Vec<u8>, ByteTail, &'b [u8])> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let tail = ByteTail { skip: u16_at(0), encoder: head[2] };
        let (rest, after) = rest.split_at_checked(usize::from(u16_at(6)))?;
        let shared = before.unwrap_or_default().get(..usize::from(u16_at(4)))?;
        let len = shared.len() + rest.len();
        // Else a few bytes of each that came next could stand for ever more.
        if len > Self::MAX_SEPARATOR_BYTES || usize::from(tail.skip) > len {
            return None;
        }
        let mut start = Vec::with_capacity(len);
        start.extend_from_slice(shared);
        start.extend_from_slice(rest);
        Some((start, tail, after))
    }

    fn encode_encoders(encoders: &KeyEncoders) -> Vec<u8> {
        let mut out = Vec::new();
        for encoder in encoders.0.iter() {
            let bytes = encoder.encode();
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        out
    }

    fn decode_encoders(mut bytes: &[u8]) -> Result<KeyEncoders, String> {
        let mut encoders = Vec::new();
        while let Some((len, rest)) = bytes.split_first_chunk() {
            // Before it is decoded: a request has room for thousands.
            if encoders.len() == KeyEncoders::MOST {
                return Err(format!("more than {} encoders", KeyEncoders::MOST));
            }
            let (encoder, after) =
                rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or("an encoder is cut short")?;
            encoders.push(Arc::new(KeyEncoder::decode(encoder).map_err(|error| error.to_string())?));
            bytes = after;
        }
        match encoders.len() {
            1.. if bytes.is_empty() => Ok(KeyEncoders(encoders.into())),
            count => Err(format!("{count} encoders and {} bytes", bytes.len())),
        }
    }

    fn encoders_bytes(encoders: &KeyEncoders) -> usize {
        let counts = 2 * size_of::<usize>();
        let one = |encoder: &Arc<KeyEncoder>| size_of::<Arc<KeyEncoder>>() + counts + encoder.size_in_bytes();
        encoders.0.iter().map(one).sum::<usize>() + counts
    }

    fn knows(encoders: &KeyEncoders, tail: ByteTail) -> bool {
        usize::from(tail.encoder) < encoders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hashes_are_cityhash64_of_the_bytes() {
        // Golden, from Google's CityHash v1.1 through another language's binding: 8 bytes hash as
        // the number does.
        assert_eq!(ByteKeys::hash(&0x0123_4567_89ab_cdef_u64.to_le_bytes()), 0x5756_e430_0150_a3d1);
    }

    #[test]
    fn separators_are_cut_by_what_the_one_before_has() {
        let mut out = Vec::new();
        let tail = ByteTail { skip: 3, encoder: 1 };
        ByteKeys::put_separator(b"/usr/lib", tail, Some(b"/usr/bin"), &mut out);
        assert_eq!(out, [3, 0, 1, 0, 5, 0, 3, 0, b'l', b'i', b'b']);
        let back = ByteKeys::take_separator(Some(b"/usr/bin"), &out);
        assert_eq!(back, Some((b"/usr/lib".to_vec(), tail, &[][..])));
        assert_eq!(ByteKeys::take_separator(Some(b"/usr"), &out), None, "less than it shares");
        assert_eq!(ByteKeys::take_separator(Some(b"/usr/bin"), &out[..10]), None, "cut short");
        out[0] = 9;
        assert_eq!(ByteKeys::take_separator(Some(b"/usr/bin"), &out), None, "skips more than there is");
    }

    #[test]
    fn separators_are_no_longer_than_a_key_and_its_successor() {
        let longest = vec![7; ByteKeys::MAX_SEPARATOR_BYTES];
        let (mut out, tail) = (Vec::new(), ByteTail::default());
        ByteKeys::put_separator(&longest, tail, Some(&longest[..4000]), &mut out);
        let (start, ..) = ByteKeys::take_separator(Some(&longest), &out).expect("as long as they may be");
        assert_eq!(
            (start.capacity(), &start),
            (longest.len(), &longest),
            "and takes no more memory than that"
        );
        // Each shares all of the one before and adds a byte.
        let more = [0, 0, 0, 0, 1, 16, 1, 0, 9];
        assert_eq!(ByteKeys::take_separator(Some(&longest), &more), None);
    }

    #[test]
    fn encoders_round_trip_and_damage_is_refused() {
        let bytes = ByteKeys::encode_encoders(&KeyEncoders::default());
        assert_eq!(ByteKeys::decode_encoders(&bytes).map(|encoders| encoders.len()), Ok(1));
        assert!(ByteKeys::decode_encoders(&bytes[..bytes.len() - 1]).is_err());
        assert!(ByteKeys::decode_encoders(&[]).is_err());
    }

    #[test]
    fn no_more_encoders_are_decoded_than_a_table_has() {
        let one = ByteKeys::encode_encoders(&KeyEncoders::default());
        let most = one.repeat(KeyEncoders::MOST);
        assert_eq!(
            ByteKeys::decode_encoders(&most).map(|encoders| encoders.len()).ok(),
            Some(KeyEncoders::MOST)
        );
        // The one after them is damaged, which is not looked at.
        let more = [&most[..], &[0, 0, 0, 0]].concat();
        let why = ByteKeys::decode_encoders(&more).map(|encoders| encoders.len()).expect_err("too many");
        assert_eq!(why, "more than 8 encoders");
    }

    proptest! {
        #[test]
        fn coordinates_never_decrease_within_a_range(
            start in prop::collection::vec(0u8..4, 0..5), skip in 0u16..5,
            mut keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..7), 1..50),
        ) {
            let tail = ByteTail { skip: skip.min(start.len() as u16), encoder: 0 };
            keys.retain(|key| *key >= start);
            keys.sort();
            let encoders = KeyEncoders::default();
            let xs = keys
                .iter()
                .map(|key| ByteKeys::coordinate(key, common_prefix(key, &start), tail, &encoders));
            prop_assert!(xs.is_sorted());
        }

        #[test]
        fn hostile_separators_are_refused_or_read_and_never_panic(before: Vec<u8>, bytes in prop::collection::vec(0u8..8, 0..40)) {
            if let Some((start, tail, _)) = ByteKeys::take_separator(Some(&before), &bytes) {
                prop_assert!(usize::from(tail.skip) <= start.len());
                prop_assert!(start.len() <= ByteKeys::MAX_SEPARATOR_BYTES);
            }
        }
    }
}
