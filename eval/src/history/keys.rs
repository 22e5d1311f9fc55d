//! Keys and values for histories, which use numbers only.

use std::ops::Range;

use fpcache_client::{BuildKeys, ByteKeys, RecordShape, TableParameters, U64Keys};

/// A key space with a key for every number, in the same order, so that what a checker decides of
/// numbers holds of keys.
pub trait NumberedKeys: BuildKeys {
    /// The key of a number.
    fn key(number: u64) -> Self::Owned;

    /// The number of a key, [`NOBODYS`] if it is the key of none.
    fn number(key: &Self::Key) -> u64;

    /// Prefixes that the key of a number shares, each with the keys of a range of numbers and with
    /// no others; none where keys have no prefixes.
    fn prefixes(number: u64) -> Vec<(Vec<u8>, Range<u64>)> {
        let _ = number;
        Vec::new()
    }

    /// Bytes of a value, at least 8 for it to fit.
    fn value_bytes(value: u64) -> usize;

    /// Bytes that a value takes outside its slot, on average over all values.
    const OUTSIDE_BYTES: usize;

    /// Parameters of a table of such records whose segments are so small that inserts replace them
    /// all the time.
    fn small_segments() -> TableParameters;
}

/// What a key counts as that is not the key of any number: no process writes it.
pub const NOBODYS: u64 = u64::MAX;

/// Bytes of the longest values that all keys have room for beside them: most slots lie on two
/// lines.
const MOST_VALUE_BYTES: usize = 24;
/// Bytes of the longest of those that most keys have no room for: about six times that of key and
/// value together.
const MOST_OUTSIDE_BYTES: usize = 280;
/// One value in this many is one of these.
const OUTSIDE: u64 = 4;

fn small(shape: RecordShape) -> TableParameters {
    TableParameters { shape, epsilon: 2, max_slots: 16, ..TableParameters::default() }
}

impl NumberedKeys for U64Keys {
    fn key(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }

    fn value_bytes(_: u64) -> usize {
        MOST_VALUE_BYTES
    }

    const OUTSIDE_BYTES: usize = 0;

    fn small_segments() -> TableParameters {
        small(RecordShape::fixed(8, MOST_VALUE_BYTES as u32))
    }
}

/// In front of every key.
const HEAD: u8 = b'k';
/// Keys of one group, which differ after a prefix that they share.
const DIGITS: [u8; 8] = [0x00, 0x01, b'0', b'a', b'z', 0x80, 0xfe, 0xff];
/// Each key is a prefix of those that go on with one of these.
const ENDS: [&[u8]; 4] = [b"", b"\0", b"\0\xff\0", b"\xff\xffx"];
/// Stands between a group's number and the digit, in a length of the group's own.
const FILLER: &[u8] = b"/a/deep/";
/// Bytes of the longest key.
const MOST_KEY_BYTES: usize = 1 + 9 + FILLER.len() + 1 + 3;

/// Strings of many lengths, in groups that share long prefixes, and within these prefixes of one
/// another: the number's upper bits, as many bytes as they have and these in big-endian, then a
/// filler, a digit and an end. Lengths, values' too, vary, and some values are external.
impl NumberedKeys for ByteKeys {
    fn key(number: u64) -> Vec<u8> {
        let (group, digit, end) = parts(number);
        let mut key = group_prefix(group);
        key.push(DIGITS[digit]);
        key.extend_from_slice(ENDS[end]);
        key
    }

    fn number(key: &[u8]) -> u64 {
        number_of(key).unwrap_or(NOBODYS)
    }

    /// That of all keys, that of the number's group, and the key without its end.
    fn prefixes(number: u64) -> Vec<(Vec<u8>, Range<u64>)> {
        let (group, stem) = (number >> 5, number & !3);
        let ends = |first: u64, count| first..first.saturating_add(count);
        vec![
            (vec![HEAD], 0..u64::MAX),
            (group_prefix(group), ends(group << 5, 32)),
            (Self::key(stem), ends(stem, 4)),
        ]
    }

    fn value_bytes(value: u64) -> usize {
        const LEAST: usize = 8;
        let mixed = mix(value);
        let (least, most) = match mixed % OUTSIDE {
            0 => (MOST_VALUE_BYTES, MOST_OUTSIDE_BYTES),
            _ => (LEAST, MOST_VALUE_BYTES),
        };
        least + (mixed / OUTSIDE % (most - least + 1) as u64) as usize
    }

    const OUTSIDE_BYTES: usize = (MOST_VALUE_BYTES + MOST_OUTSIDE_BYTES) / 2 / OUTSIDE as usize;

    fn small_segments() -> TableParameters {
        let room = (MOST_KEY_BYTES + MOST_VALUE_BYTES) as u32;
        small(RecordShape { key_bytes: None, value_bytes: None, room })
    }
}

/// A number's group, its digit and its end.
fn parts(number: u64) -> (u64, usize, usize) {
    (number >> 5, (number >> 2) as usize % DIGITS.len(), number as usize % ENDS.len())
}

fn group_prefix(group: u64) -> Vec<u8> {
    let bytes = group.to_be_bytes();
    let significant = &bytes[group.leading_zeros() as usize / 8..];
    let mut prefix = vec![HEAD, significant.len() as u8];
    prefix.extend_from_slice(significant);
    prefix.extend_from_slice(&FILLER[..(mix(group) % (FILLER.len() as u64 + 1)) as usize]);
    prefix
}

fn number_of(key: &[u8]) -> Option<u64> {
    let (head, rest) = key.split_first_chunk::<2>()?;
    let significant = rest.get(..usize::from(head[1]))?;
    let group = significant.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let prefix = group_prefix(group);
    let (digit, end) = key.strip_prefix(&prefix[..])?.split_first()?;
    let digit = DIGITS.iter().position(|other| other == digit)? as u64;
    let end = ENDS.iter().position(|other| other == &end)? as u64;
    let number = group << 5 | digit << 2 | end;
    (group >> 59 == 0).then_some(number)
}

/// Some bits of every bit (the finaliser of MurmurHash3, by Appleby).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_are_shared_with_the_range_and_with_no_others() {
        let numbers = || (0..400).chain((1 << 32)..(1 << 32) + 100);
        for number in numbers().step_by(7) {
            for (prefix, range) in ByteKeys::prefixes(number) {
                assert!(range.contains(&number));
                let shares = |other| ByteKeys::key(other).starts_with(&prefix);
                assert!(numbers().all(|other| shares(other) == range.contains(&other)), "{prefix:?}");
            }
        }
    }

    #[test]
    fn neighbours_are_prefixes_of_one_another_and_share_long_ones() {
        let keys: Vec<Vec<u8>> = (0..4_000).map(ByteKeys::key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        let continued = keys.windows(2).filter(|pair| pair[1].starts_with(&pair[0])).count();
        assert!(continued > keys.len() / 3, "{continued}");
        let lengths: std::collections::BTreeSet<usize> = keys.iter().map(Vec::len).collect();
        assert!(lengths.len() > 9, "{lengths:?}");
        let longest = ByteKeys::key(u64::MAX);
        assert!(longest.len() <= MOST_KEY_BYTES && keys.iter().all(|key| key.len() <= MOST_KEY_BYTES));
    }

    #[test]
    fn foreign_keys_are_nobodys() {
        for key in [&b""[..], b"k", b"k\0", b"k\0zz", b"k\x09aaaaaaaaa0", b"k\x01", b"x\0a"] {
            assert_eq!(ByteKeys::number(key), NOBODYS, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn keys_have_the_order_of_their_numbers_and_give_them_back(
            a: u64, shift in 0u32..64, step in 0u64..200, others in prop::collection::vec(0u8..4, 0..6),
        ) {
            let a = a >> shift;
            let b = a.saturating_add(step);
            let (first, second) = (ByteKeys::key(a), ByteKeys::key(b));
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
            prop_assert_eq!(ByteKeys::number(&first), a);
            prop_assert!(first.len() <= MOST_KEY_BYTES && (8..=280).contains(&ByteKeys::value_bytes(a)));
            // Whatever has a number is its key.
            let changed = [&first[..], &others].concat();
            let number = ByteKeys::number(&changed);
            prop_assert!(number == NOBODYS || ByteKeys::key(number) == changed);
        }
    }
}
