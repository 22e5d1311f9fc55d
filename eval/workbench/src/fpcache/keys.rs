//! Keys and values of every length, from the numbers that stand for them.

use fpcache::key_space::{BuildKeys, ByteKeys, KeyEncoders, U64Keys};
use fpcache_index::strings::{KeyEncoder, Training};

/// A key space whose keys numbers can stand for, in their order.
pub trait Numbered: BuildKeys {
    /// The key of a number, of `bytes` bytes.
    fn of_number(number: u64, bytes: usize) -> Self::Owned;

    /// The number that stands for a key.
    fn number_of(key: &Self::Key) -> u64;

    /// What the segments of these keys share, from a sample in ascending order.
    fn encoders(sample: &[Self::Owned]) -> Self::Encoders;
}

impl Numbered for U64Keys {
    fn of_number(number: u64, _: usize) -> u64 {
        number
    }

    fn number_of(key: &u64) -> u64 {
        *key
    }

    fn encoders(_: &[u64]) {}
}

impl Numbered for ByteKeys {
    /// The number, and after it bytes that differ from key to key as those of real keys do.
    fn of_number(number: u64, bytes: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(bytes);
        key.extend_from_slice(&number.to_be_bytes());
        let mut filling = number;
        while key.len() < bytes {
            filling = crate::oracle::first_value(filling);
            let left = (bytes - key.len()).min(8);
            key.extend_from_slice(&filling.to_le_bytes()[..left]);
        }
        key
    }

    fn number_of(key: &[u8]) -> u64 {
        key.first_chunk().map_or(0, |number| u64::from_be_bytes(*number))
    }

    fn encoders(sample: &[Vec<u8>]) -> KeyEncoders {
        KeyEncoders::of(KeyEncoder::train(sample.iter().map(Vec::as_slice), &Training::default()))
    }
}

/// A value of `bytes` bytes that begins with this number.
pub(super) fn put_value(number: u64, bytes: usize, out: &mut Vec<u8>) {
    let number = number.to_le_bytes();
    out.resize(bytes, 0);
    out.chunks_mut(number.len()).for_each(|chunk| chunk.copy_from_slice(&number[..chunk.len()]));
}
