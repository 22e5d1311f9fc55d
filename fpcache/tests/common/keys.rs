//! Keys by number, so that tests over integers run over byte strings in the same words.
#![allow(dead_code, reason = "each test uses its share")]

use fpcache::key_space::{ByteKeys, ByteTail, KeySpace, U64Keys};
use fpcache::layout::RecordShape;
use fpcache_index::{Line, SegmentModel};

/// A key space whose keys stand for numbers, in their order.
pub trait Numbered: KeySpace {
    /// The key of a number.
    fn key(number: u64) -> Self::Owned;

    /// The number of a key.
    fn number(key: &Self::Key) -> u64;

    /// Whether the range below the first key has a segment of its own, since the first key's begins
    /// with what it skips.
    const FRONT: bool;

    /// What a segment says about coordinates whose keys count from this number.
    fn tail(first: u64) -> Self::Tail;

    /// A model that predicts the slot `n` for the number `first + n`.
    fn model(first: u64, cap: u16, epsilon: u16) -> SegmentModel;

    /// Records with values of `value_bytes` bytes and a few more.
    fn shape(value_bytes: u32) -> RecordShape;

    /// Bytes of the value for this number, no fewer than the usual ones.
    fn value_bytes(value: u64, usual: u32) -> usize;
}

impl Numbered for U64Keys {
    const FRONT: bool = false;

    fn key(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }

    fn tail(_: u64) {}

    fn model(first: u64, cap: u16, epsilon: u16) -> SegmentModel {
        SegmentModel { origin: first, line: Line::from_bits(1), cap, epsilon }
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape::fixed(8, value_bytes)
    }

    fn value_bytes(_: u64, usual: u32) -> usize {
        usual as usize
    }
}

/// What keys begin with, up to the number from which on they begin with something else; so segments
/// from below that on hold keys that lack what they skip.
const PREFIX: &[u8] = b"\0/a/prefix\0/that is/longer than/the encoder codes/";
const OTHER_PREFIX: &[u8] = b"\0/a/prefix\0/that is/not the/same/";
pub const OTHERS_FROM: u64 = 47;

impl Numbered for ByteKeys {
    const FRONT: bool = true;

    /// A prefix, two digits to the base 256, and zero bytes: keys of three lengths.
    fn key(number: u64) -> Vec<u8> {
        let prefix = if number < OTHERS_FROM { PREFIX } else { OTHER_PREFIX };
        match u16::try_from(number) {
            Ok(digits) => [prefix, &digits.to_be_bytes(), &[0, 0][..usize::from(digits % 3)]].concat(),
            Err(_) => [OTHER_PREFIX, &[0xff; 2], &number.to_be_bytes()].concat(),
        }
    }

    fn number(key: &[u8]) -> u64 {
        let digits = key.strip_prefix(PREFIX).or_else(|| key.strip_prefix(OTHER_PREFIX));
        let digits = digits.and_then(|digits| digits.first_chunk()).expect("a key with a number");
        u16::from_be_bytes(*digits).into()
    }

    fn tail(first: u64) -> ByteTail {
        let prefix = if first < OTHERS_FROM { PREFIX } else { OTHER_PREFIX };
        ByteTail { skip: prefix.len() as u16, encoder: 0 }
    }

    fn model(first: u64, cap: u16, epsilon: u16) -> SegmentModel {
        let (tail, encoders) = (Self::tail(first), Self::Encoders::default());
        let prefix = &Self::key(first)[..tail.skip.into()];
        let x = |number: u64| {
            let key = [prefix, &(number as u16).to_be_bytes()].concat();
            Self::coordinate(&key, prefix.len(), tail, &encoders)
        };
        // Digits are nearly evenly spaced: a slot per digit, and a quarter of one for what "nearly"
        // says.
        const SHIFT: u64 = 46;
        let mantissa = (1u64 << SHIFT).div_ceil((x(250) - x(0)) / 250);
        let line = Line::from_bits(64 << 40 | SHIFT << 32 | mantissa);
        SegmentModel { origin: x(first), line, cap, epsilon }
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape { key_bytes: None, value_bytes: None, room: 60 + value_bytes + 6 }
    }

    fn value_bytes(value: u64, usual: u32) -> usize {
        usual as usize + (value % 7) as usize
    }
}

/// Makes of every test over `K` one for each key space.
#[allow(unused_macros, reason = "each test uses its share")]
macro_rules! over_both_key_spaces {
    ($($name:ident)*) => {
        mod u64_keys {
            $(#[test] fn $name() { super::$name::<fpcache::key_space::U64Keys>(); })*
        }
        mod byte_keys {
            $(#[test] fn $name() { super::$name::<fpcache::key_space::ByteKeys>(); })*
        }
    };
}
