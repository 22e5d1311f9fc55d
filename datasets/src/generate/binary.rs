//! Random bytes.

use super::distinct::distinct;
use crate::bytes::arena::KeyArena;
use crate::progress::Progress;
use crate::random::Random;

const PURPOSE_BINARY: u64 = 0x31;

/// Lengths where none is asked for, each equally likely.
const LENGTHS: std::ops::RangeInclusive<u64> = 4..=32;
/// One byte in this many is zero by intent, besides those that are by chance.
const ZERO_OF: u64 = 8;
/// At most one in this many of the keys possible at a length is used, so that draws find new ones.
const SPARE: u64 = 16;

/// How many keys of `bytes` bytes [`binary`] gives at most: a sixteenth of all there are.
pub fn most_keys(bytes: usize) -> u64 {
    match u32::try_from(bytes * 8) {
        Ok(bits) if bits < 64 => (1u64 << bits) / SPARE,
        _ => u64::MAX,
    }
}

/// `count` distinct ascending keys of random bytes, one in eight of them a zero: of `bytes` bytes
/// each, or of 4 to 32 where that is `None`. `None` without memory for them.
///
/// `count` must not exceed [`most_keys`], else the last keys take long to find, or for ever. About
/// 300 ns per key.
pub fn binary(
    count: usize,
    bytes: Option<usize>,
    seed: u64,
    progress: Option<&dyn Progress>,
) -> Option<KeyArena> {
    let mut random = Random::new(seed, PURPOSE_BINARY);
    distinct(count, progress, |key| {
        let length = bytes.unwrap_or_else(|| {
            let lengths = LENGTHS.end() - LENGTHS.start() + 1;
            (LENGTHS.start() + random.below(lengths)) as usize
        });
        while key.len() < length {
            // Eight bytes and, for each, three bits that make it a zero.
            let (bytes, zeros) = (random.bits().to_le_bytes(), random.bits());
            let take = bytes.len().min(length - key.len());
            key.extend(bytes[..take].iter().enumerate().map(|(i, &byte)| {
                let is_zero = (zeros >> (8 * i)).is_multiple_of(ZERO_OF);
                if is_zero { 0 } else { byte }
            }));
        }
    })
}
