//! The kinds of keys that the suites run over. Each names a key by a number, greater keys by
//! greater numbers.

pub mod folders;

use std::borrow::Borrow;
use std::fmt::Debug;

use fpcache::key_space::{BuildKeys, ByteKeys, ByteTail, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, TableParameters};
use proptest::prelude::*;

/// A key as it is held on its own.
pub type Key<T> = <<T as TestKeys>::Space as KeySpace>::Owned;

/// A key by reference, as a key space takes it.
pub type KeyRef<T> = <<T as TestKeys>::Space as KeySpace>::Key;

/// A kind of keys.
pub trait TestKeys: Copy + Debug + Send + Sync + 'static {
    type Space: BuildKeys;

    /// The key of this number.
    fn key(number: u64) -> Key<Self>;

    /// The number of a key.
    fn number(key: &KeyRef<Self>) -> u64;

    /// Records of such keys and of values of at most `value_bytes` bytes.
    fn shape(value_bytes: u32) -> RecordShape;

    /// Bytes of the longest value in records of this shape.
    fn value_bytes(shape: &RecordShape) -> usize;

    /// How long the value of a key is after its `n`-th write, at most `most`, unless values may be
    /// external.
    fn value_len(number: u64, n: u64, most: usize) -> usize;

    /// How fine the instants are apart at which a process is ended: an entry of several stores is
    /// less often cut off by one.
    const ENDS: u64 = if Self::Space::FIXED_BYTES.is_some() { 30 } else { 20 };

    /// Bytes of the longest value beside a key of `key_bytes` bytes.
    fn longest_value(shape: &RecordShape, key_bytes: usize) -> usize {
        shape.room as usize - key_bytes
    }

    /// What tables of such keys are built with.
    fn encoders() -> <Self::Space as KeySpace>::Encoders {
        Default::default()
    }

    /// Keys of every kind there is, some close together, some of no number.
    fn any_key() -> BoxedStrategy<Key<Self>>;

    /// Shapes of records of such keys.
    fn any_shape() -> BoxedStrategy<RecordShape>;

    /// Any tail that a segment can have whose range begins at `start`.
    fn tail_of(bits: u32, start: &KeyRef<Self>) -> <Self::Space as KeySpace>::Tail;

    /// The number of the least key with a number at or above `key`, or a number near it.
    fn number_at_or_above(key: &KeyRef<Self>) -> u64;

    /// Parameters for values of at most `value_bytes` bytes.
    fn parameters(value_bytes: u32) -> TableParameters {
        TableParameters { shape: Self::shape(value_bytes), ..TableParameters::default() }
    }
}

/// Integers, with values of one length.
#[derive(Clone, Copy, Debug)]
pub struct Integers;

impl TestKeys for Integers {
    type Space = U64Keys;

    fn key(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape::fixed(8, value_bytes)
    }

    fn value_bytes(shape: &RecordShape) -> usize {
        shape.value_bytes.expect("of one length") as usize
    }

    fn value_len(_: u64, _: u64, most: usize) -> usize {
        most
    }

    fn any_key() -> BoxedStrategy<u64> {
        numbers().boxed()
    }

    fn any_shape() -> BoxedStrategy<RecordShape> {
        let varied = |room| RecordShape { key_bytes: Some(8), value_bytes: None, room };
        prop_oneof![4 => (0u32..20).prop_map(|v| RecordShape::fixed(8, v)), 1 => (8u32..40).prop_map(varied)]
            .boxed()
    }

    fn tail_of(_: u32, _: &u64) {}

    fn number_at_or_above(key: &u64) -> u64 {
        *key
    }
}

/// Integers, with values most of which are too long for their slots.
#[derive(Clone, Copy, Debug)]
pub struct LongValues;

impl TestKeys for LongValues {
    type Space = U64Keys;
    const ENDS: u64 = 50;

    fn key(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }

    fn shape(_: u32) -> RecordShape {
        RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 }
    }

    fn value_bytes(_: &RecordShape) -> usize {
        16
    }

    fn value_len(number: u64, n: u64, most: usize) -> usize {
        varied(number, n, 8 * most)
    }

    fn longest_value(_: &RecordShape, _: usize) -> usize {
        600
    }

    fn any_key() -> BoxedStrategy<u64> {
        numbers().boxed()
    }

    fn any_shape() -> BoxedStrategy<RecordShape> {
        let shape = |room| RecordShape { key_bytes: Some(8), value_bytes: None, room };
        (24u32..60).prop_map(shape).boxed()
    }

    fn tail_of(_: u32, _: &u64) {}

    fn number_at_or_above(key: &u64) -> u64 {
        *key
    }
}

/// Byte strings of one to nine bytes, many of them zero, many of them prefixes of others, with
/// values of any length.
#[derive(Clone, Copy, Debug)]
pub struct Strings;

impl TestKeys for Strings {
    type Space = ByteKeys;

    /// A letter, and the number's bytes, the greatest first, but for the zeros they end with.
    fn key(number: u64) -> Vec<u8> {
        let bytes = 8 - number.trailing_zeros().min(64) as usize / 8;
        [b"k", &number.to_be_bytes()[..bytes]].concat()
    }

    fn number(key: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        bytes[..key.len() - 1].copy_from_slice(&key[1..]);
        u64::from_be_bytes(bytes)
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape { key_bytes: None, value_bytes: None, room: 9 + value_bytes }
    }

    fn value_bytes(shape: &RecordShape) -> usize {
        shape.room as usize - 9
    }

    fn value_len(number: u64, n: u64, most: usize) -> usize {
        varied(number, n, most)
    }

    fn any_key() -> BoxedStrategy<Vec<u8>> {
        let bytes = |bytes: &'static [u8], len| prop::collection::vec(prop::sample::select(bytes), len);
        let deep = (0..3usize, 0..40usize, prop::collection::vec(any::<u8>(), 0..4));
        let deep = deep.prop_map(|(which, shared, rest)| {
            [
                &[b"shared prefixes of many bytes, all of them", &[0; 42][..], &[255; 42]][which][..=shared],
                &rest,
            ]
            .concat()
        });
        prop_oneof![
            3 => bytes(&[0, 1, b'a', b'b', 255], 1..8),
            2 => numbers().prop_map(Self::key),
            4 => deep,
            1 => prop::collection::vec(any::<u8>(), 1..45),
        ]
        .boxed()
    }

    fn any_shape() -> BoxedStrategy<RecordShape> {
        let lengths = (prop::option::of(0u32..20), 0u32..20);
        lengths
            .prop_map(|(value_bytes, more)| RecordShape { key_bytes: None, value_bytes, room: 65 + more })
            .boxed()
    }

    fn tail_of(bits: u32, start: &[u8]) -> ByteTail {
        any_tail(bits, start)
    }

    fn number_at_or_above(key: &[u8]) -> u64 {
        at_or_above::<Self>(key)
    }
}

/// Long byte strings of one length that share many bytes, with values of any length, under an
/// encoder trained for them.
#[derive(Clone, Copy, Debug)]
pub struct Paths;

/// Long enough that no encoder has room for it.
const ROOT: &str = "/srv/archive/of/the/house/with/a/long/name";
const PATH_BYTES: usize = ROOT.len() + 7 * 4;

impl TestKeys for Paths {
    type Space = ByteKeys;

    /// The number's digits, in threes.
    fn key(number: u64) -> Vec<u8> {
        let mut path = vec![b'/'; PATH_BYTES];
        path[..ROOT.len()].copy_from_slice(ROOT.as_bytes());
        let (mut rest, mut at) = (number, PATH_BYTES);
        while at > ROOT.len() {
            for digit in path[at - 3..at].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            at -= 4;
        }
        path
    }

    fn number(key: &[u8]) -> u64 {
        let digits = key[ROOT.len()..].iter().filter(|byte| **byte != b'/');
        digits.fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
    }

    fn shape(value_bytes: u32) -> RecordShape {
        let key_bytes = PATH_BYTES as u16;
        RecordShape {
            key_bytes: Some(key_bytes),
            value_bytes: None,
            room: u32::from(key_bytes) + value_bytes,
        }
    }

    fn value_bytes(shape: &RecordShape) -> usize {
        shape.room as usize - PATH_BYTES
    }

    fn value_len(number: u64, n: u64, most: usize) -> usize {
        varied(number, n, most)
    }

    fn any_key() -> BoxedStrategy<Vec<u8>> {
        numbers().prop_map(Self::key).boxed()
    }

    fn any_shape() -> BoxedStrategy<RecordShape> {
        let key_bytes = Some(PATH_BYTES as u16);
        let shape = move |(value_bytes, more): (Option<u32>, u32)| {
            let room = PATH_BYTES as u32 + value_bytes.unwrap_or(more);
            RecordShape { key_bytes, value_bytes, room }
        };
        (prop::option::of(0u32..20), 0u32..20).prop_map(shape).boxed()
    }

    fn encoders() -> <ByteKeys as KeySpace>::Encoders {
        let sample: Vec<Vec<u8>> =
            (0..400u64).map(|i| Self::key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 60))).collect();
        ByteKeys::train(sample.iter().map(Borrow::borrow), 0)
    }

    fn tail_of(bits: u32, start: &[u8]) -> ByteTail {
        any_tail(bits, start)
    }

    fn number_at_or_above(key: &[u8]) -> u64 {
        at_or_above::<Self>(key)
    }
}

/// Numbers, many of them close together.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..200, 1_000_000u64..1_000_200, any::<u64>(), Just(0), Just(u64::MAX)]
}

/// At least half of `most`.
fn varied(number: u64, n: u64, most: usize) -> usize {
    let mixed = (number ^ n.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    most - mixed as usize % (most / 2 + 1)
}

fn any_tail(bits: u32, start: &[u8]) -> ByteTail {
    // Most have the encoder that is there.
    ByteTail { skip: (bits as u16) % (start.len() as u16 + 1), encoder: (bits >> 24) as u8 / 200 }
}

/// By bisection.
fn at_or_above<T: TestKeys<Space = ByteKeys>>(key: &[u8]) -> u64 {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if T::key(middle).as_slice() < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// Runs generic tests over every kind of keys, and over external values.
#[macro_export]
macro_rules! for_all_keys_and_long_values {
    ($($(#[$attribute:meta])* $test:ident),+ $(,)?) => {
        $crate::for_all_keys!($($(#[$attribute])* $test),+);
        mod long_values { $($(#[$attribute])* #[test] fn $test() { super::$test::<$crate::common::keys::LongValues>() })+ }
    };
}

/// Runs generic tests over every kind of keys.
#[macro_export]
macro_rules! for_all_keys {
    ($($(#[$attribute:meta])* $test:ident),+ $(,)?) => {
        mod integers { $($(#[$attribute])* #[test] fn $test() { super::$test::<$crate::common::keys::Integers>() })+ }
        mod strings { $($(#[$attribute])* #[test] fn $test() { super::$test::<$crate::common::keys::Strings>() })+ }
        mod paths { $($(#[$attribute])* #[test] fn $test() { super::$test::<$crate::common::keys::Paths>() })+ }
    };
}
