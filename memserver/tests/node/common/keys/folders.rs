//! Byte strings of which many have one coordinate.

use fpcache::key_space::{ByteKeys, ByteTail};
use fpcache::layout::RecordShape;
use proptest::prelude::*;

use super::{TestKeys, any_tail, at_or_above, numbers, varied};

/// Names in 256 folders: they differ only beyond the bytes that coordinates are made of.
#[derive(Clone, Copy, Debug)]
pub struct Folders;

const BETWEEN: &[u8] = b"/a-folder/";
const BYTES: usize = 8 + BETWEEN.len();

impl TestKeys for Folders {
    type Space = ByteKeys;

    /// The number's bytes, the greatest first, and the folder's name after the first of them.
    fn key(number: u64) -> Vec<u8> {
        let bytes = number.to_be_bytes();
        [&bytes[..1], BETWEEN, &bytes[1..]].concat()
    }

    fn number(key: &[u8]) -> u64 {
        let mut bytes = [key[0]; 8];
        bytes[1..].copy_from_slice(&key[1 + BETWEEN.len()..]);
        u64::from_be_bytes(bytes)
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape { key_bytes: Some(BYTES as u16), value_bytes: None, room: BYTES as u32 + value_bytes }
    }

    fn value_bytes(shape: &RecordShape) -> usize {
        shape.room as usize - BYTES
    }

    fn value_len(number: u64, n: u64, most: usize) -> usize {
        varied(number, n, most)
    }

    fn any_key() -> BoxedStrategy<Vec<u8>> {
        numbers().prop_map(Self::key).boxed()
    }

    fn any_shape() -> BoxedStrategy<RecordShape> {
        (0u32..40).prop_map(Self::shape).boxed()
    }

    fn tail_of(bits: u32, start: &[u8]) -> ByteTail {
        any_tail(bits, start)
    }

    fn number_at_or_above(key: &[u8]) -> u64 {
        at_or_above::<Self>(key)
    }
}
