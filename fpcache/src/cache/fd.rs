//! The packing of entries of fingerprint and offset: sixteen to a bucket, two to a word.
//!
//! ```text
//! entry   32 bits, high to low: level 4 · delta d · tag 28−d
//! ```
//!
//! A delta is slot − predicted slot, biased by epsilon so that it is never negative; d is just wide
//! enough for 2·epsilon + 1 of them. A tag is never 0, so a word of zeros holds nothing. The bucket
//! comes from a hash's high bits, the tag from its low ones.

use super::bucket::WORDS;
use super::deltas::Deltas;
use super::packing::Packing;
use super::probe::CacheProbe;

/// Fingerprint and offset from the predicted slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fd(Deltas);

impl From<Deltas> for Fd {
    #[inline]
    fn from(deltas: Deltas) -> Self {
        Self(deltas)
    }
}

impl Packing for Fd {
    const ENTRIES: usize = 16;
    const BITS: u32 = 32;

    #[inline]
    fn word(entry: usize) -> usize {
        entry / 2
    }

    #[inline]
    fn shift(entry: usize) -> u32 {
        entry as u32 % 2 * 32
    }

    #[inline]
    fn key_word(_: usize) -> Option<usize> {
        None
    }

    #[inline]
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - 28 + self.0.bits)
    }

    #[inline]
    fn wanted(&self, probe: &CacheProbe) -> u64 {
        (probe.hash & self.mask()).max(1)
    }

    /// Two entries at a time: where tags agree the difference is 0, and adding all ones below the
    /// level does not carry.
    #[inline]
    fn matches(&self, words: &[u64; WORDS], probe: &CacheProbe) -> u32 {
        const BOTH: u64 = 1 << 32 | 1;
        const CARRY: u64 = BOTH << 28;
        let (mask, wanted) = (self.mask() * BOTH, self.wanted(probe) * BOTH);
        let mut found = 0;
        for (word, pair) in words.iter().enumerate() {
            let same = !(((pair ^ wanted) & mask) + (CARRY - BOTH)) & CARRY;
            found |= same >> (28 - 2 * word);
        }
        // Bits 0, 2, … for the low entries of the words, 32, 34, … for the high ones.
        (found | found >> 31) as u32 & 0xffff
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        Some(self.0.encode(probe, slot)? << (28 - self.0.bits) | self.wanted(probe))
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        self.0.decode(probe, Self::without_level(entry_bits) >> (28 - self.0.bits))
    }
}
