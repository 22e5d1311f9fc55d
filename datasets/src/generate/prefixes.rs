//! Keys that are prefixes of one another: hard cases for separators, zero padding and truncation.

use super::distinct::distinct;
use crate::bytes::arena::KeyArena;
use crate::progress::Progress;
use crate::random::Random;

const PURPOSE_PREFIXES: u64 = 0x32;

/// What keys are made of: letters, and the least and the greatest byte, so that a key and the next
/// possible one, which is itself and a zero, are both there.
const ALPHABET: [u8; 12] = [0, 0xFF, b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h', b'i', b'j'];
/// Bytes of the first key of a chain, at least and at most.
const FIRST: (u64, u64) = (2, 8);
/// One key in this many ends its chain, on average.
const CHAIN: u64 = 12;
/// A chain ends at this many bytes in any case.
const LONGEST: usize = 64;

/// `count` distinct ascending keys in chains of 12 on average: every key of a chain begins with the
/// whole key before it and has one to three bytes more. `None` without memory for them. About 400
/// ns per key.
pub fn prefixes(count: usize, seed: u64, progress: Option<&dyn Progress>) -> Option<KeyArena> {
    let mut random = Random::new(seed, PURPOSE_PREFIXES);
    let mut chain = Vec::new();
    distinct(count, progress, |key| {
        let more = if chain.is_empty() || chain.len() > LONGEST || random.below(CHAIN) == 0 {
            chain.clear();
            FIRST.0 + random.below(FIRST.1 - FIRST.0 + 1)
        } else {
            1 + random.below(3)
        };
        chain.extend((0..more).map(|_| ALPHABET[random.below(ALPHABET.len() as u64) as usize]));
        key.extend_from_slice(&chain);
    })
}
