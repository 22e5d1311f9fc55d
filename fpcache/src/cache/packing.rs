//! The words of a bucket: entries and their bits, whatever the variant.

use super::bucket::WORDS;
use super::deltas::Deltas;
use super::probe::CacheProbe;

/// Where in a bucket entries lie and what their bits mean: one type per [`Variant`](super::Variant). Every function is
/// total: words may hold anything.
pub(super) trait Packing: Copy + From<Deltas> {
    /// Entries of a bucket.
    const ENTRIES: usize;
    /// Bits of an entry, its key apart.
    const BITS: u32;

    /// The word that holds entry `entry`.
    fn word(entry: usize) -> usize;

    /// How far up in its word that entry begins.
    fn shift(entry: usize) -> u32;

    /// The word that holds the key of entry `entry`, if entries hold keys.
    fn key_word(entry: usize) -> Option<usize>;

    /// The bits of an entry that tell whether it is the key's, or with [`wanted`](Self::wanted) out
    /// of account, whether it is live: not all of them are zero.
    fn mask(&self) -> u64;

    /// The value of those bits for this key.
    fn wanted(&self, probe: &CacheProbe) -> u64;

    /// The entry bits of a key in `slot`, level 0; `None` where the packing cannot express it.
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64>;

    /// The slot that entry bits name for this key; `None` outside the key's window.
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32>;

    /// The bits of entry `entry`.
    #[inline]
    fn get(words: &[u64; WORDS], entry: usize) -> u64 {
        words[Self::word(entry)] >> Self::shift(entry) & Self::field()
    }

    /// The word with other bits in place of entry `entry`'s.
    #[inline]
    fn put(word: u64, entry: usize, entry_bits: u64) -> u64 {
        word & !(Self::field() << Self::shift(entry)) | entry_bits << Self::shift(entry)
    }

    /// All bits of an entry.
    #[inline]
    fn field() -> u64 {
        u64::MAX >> (64 - Self::BITS)
    }

    /// The level of an entry.
    #[inline]
    fn level(entry_bits: u64) -> u32 {
        (entry_bits >> (Self::BITS - 4)) as u32
    }

    /// An entry's bits without its level.
    #[inline]
    fn without_level(entry_bits: u64) -> u64 {
        entry_bits & Self::field() >> 4
    }

    /// An entry's bits at another level.
    #[inline]
    fn at_level(entry_bits: u64, level: u32) -> u64 {
        Self::without_level(entry_bits) | u64::from(level) << (Self::BITS - 4)
    }

    /// The entries that may be this key's, as bits.
    #[inline]
    fn matches(&self, words: &[u64; WORDS], probe: &CacheProbe) -> u32 {
        let (mask, wanted) = (self.mask(), self.wanted(probe));
        let mut found = 0;
        // No branch on the words: which entry is the key's cannot be foretold.
        for entry in 0..Self::ENTRIES {
            let same_key = Self::key_word(entry).is_none_or(|word| words[word] == probe.key);
            found |= u32::from(Self::get(words, entry) & mask == wanted && same_key) << entry;
        }
        found
    }

    /// The first entry that may be this key's and names a slot of its window: entry, bits and slot.
    #[inline]
    fn find(&self, words: &[u64; WORDS], probe: &CacheProbe) -> Option<(usize, u64, u32)> {
        let mut found = self.matches(words, probe);
        while found != 0 {
            let entry = found.trailing_zeros() as usize;
            let entry_bits = Self::get(words, entry);
            if let Some(slot) = self.slot(probe, entry_bits) {
                return Some((entry, entry_bits, slot));
            }
            found &= found - 1;
        }
        None
    }

    /// The word `word` of a bucket with every level lowered by one, 0 staying 0.
    #[inline]
    fn lowered(words: &[u64; WORDS], word: usize) -> u64 {
        let mut lowered = words[word];
        for entry in (0..Self::ENTRIES).filter(|entry| Self::word(*entry) == word) {
            let level_above_0 = Self::level(Self::get(words, entry)) > 0;
            lowered -= u64::from(level_above_0) << (Self::BITS - 4) << Self::shift(entry);
        }
        lowered
    }
}
