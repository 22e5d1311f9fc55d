//! A slot: one record and the word that says whether it may be believed.
//!
//! ```text
//! 0                8                                  padded to a multiple of 8
//! ┌────────────────┬────────────────────────────────┬──┐
//! │ word           │ record, see [`RecordShape`]    │0 │
//! └────────────────┴────────────────────────────────┴──┘
//! word:  bits 0–1 state · bits 2–30 version · bit 31 mark · bits 32–63 checksum
//! ```
//!
//! The mark is no part of the record: on the first slot of a group it says that a record of that
//! group lies, or lay, elsewhere, and on [certain slots](super::Grouping::marks_of_block) of a
//! block that a record of that block does. It stays until the segment's end, whatever becomes of
//! the slot.
//!
//! The checksum is the low half of XXH3-64 over the record and its padding, seeded with
//! `generation << 32 | version`, of the segment and of the record. A reader accepts a slot only if
//! state, checksum and full key agree, so a torn read, a reused piece of memory, or an older
//! generation's bytes are never taken for a record.

use xxhash_rust::xxh3::xxh3_64_with_seed;

#[cfg(doc)]
use super::RecordShape;

/// Bytes of a slot's word.
pub const SLOT_WORD_BYTES: usize = 8;

const _: () = assert!(
    matches!(SlotWord::from_bits(fpcache_fabric::CHANGED).state(), SlotState::Busy),
    "a slot that changed while it was READ is read again"
);

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// No record.
    Free,
    /// A record is being written: read again.
    Busy,
    /// A record.
    Live,
    /// The segment was replaced: fetch the directory anew.
    Frozen,
}

/// The first eight bytes of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotWord(u64);

impl SlotWord {
    const VERSION_BITS: u32 = 29;
    const MARK: u64 = 1 << 31;
    /// Versions count modulo this.
    pub const VERSIONS: u32 = 1 << Self::VERSION_BITS;

    /// A word of these parts; `version` is taken modulo [`Self::VERSIONS`].
    #[inline]
    pub const fn new(state: SlotState, version: u32, checksum: u32) -> Self {
        let state = match state {
            SlotState::Free => 0,
            SlotState::Busy => 1,
            SlotState::Live => 2,
            SlotState::Frozen => 3,
        };
        Self(state | ((version % Self::VERSIONS) as u64) << 2 | (checksum as u64) << 32)
    }

    /// The word of a live record whose body (record and padding) is `body`.
    #[inline]
    pub fn live(generation: u32, version: u32, body: &[u8]) -> Self {
        Self::new(SlotState::Live, version, checksum(generation, version % Self::VERSIONS, body))
    }

    /// From the encoded form; every pattern is a word.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The encoded form.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The state.
    #[inline]
    pub const fn state(self) -> SlotState {
        match self.0 & 3 {
            0 => SlotState::Free,
            1 => SlotState::Busy,
            2 => SlotState::Live,
            _ => SlotState::Frozen,
        }
    }

    /// Whether the slot has no record: the word of a free slot has no checksum either. One that has
    /// a checksum was a record's, and its state is damaged.
    #[inline(always)]
    pub const fn is_free(self) -> bool {
        const STATE_AND_CHECKSUM: u64 = 3 | (u32::MAX as u64) << 32;
        self.0 & STATE_AND_CHECKSUM == 0
    }

    /// The record's version.
    #[inline]
    pub const fn version(self) -> u32 {
        (self.0 as u32 >> 2) % Self::VERSIONS
    }

    /// Whether the slot is marked.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
    }

    /// The same word, marked.
    #[inline]
    #[must_use]
    pub const fn marked(self) -> Self {
        Self(self.0 | Self::MARK)
    }

    /// The same word, not marked, as no protocol has it.
    #[doc(hidden)]
    #[must_use]
    pub const fn unmarked(self) -> Self {
        Self(self.0 & !Self::MARK)
    }

    /// The same word, marked if the one was that it takes the place of.
    #[inline]
    #[must_use]
    pub const fn in_place_of(self, before: Self) -> Self {
        Self(self.0 | before.0 & Self::MARK)
    }

    /// The checksum.
    #[inline]
    pub const fn checksum(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The bits of which none is set in words that segments are loaded with: some are in all words
    /// of a version above 1, busy or frozen.
    pub(crate) const CHANGED: u64 = 1 | (Self::VERSIONS as u64 - 2) << 2;

    /// Whether the word is not as its segment was loaded with it.
    #[inline(always)]
    pub(crate) const fn is_changed(self) -> bool {
        self.0 & Self::CHANGED != 0
    }

    /// Whether `body` is the record this word was written for, in a segment of this generation.
    #[inline]
    pub fn is_proof_of(self, generation: u32, body: &[u8]) -> bool {
        self.checksum() == checksum(generation, self.version(), body)
    }

    /// The same for a record of two words, in fewer instructions.
    #[inline(always)]
    pub fn is_proof_of_pair(self, generation: u32, body: [u64; 2]) -> bool {
        self.checksum() == checksum_of_pair(generation, self.version(), body)
    }
}

/// Identifies what a record held when it was read, for compare-and-set.
///
/// The record's version and the low half of XXH3-64 of its key and value, seeded with the version.
/// Unlike the slot's word it stays the same when the record's segment is rebuilt; and where
/// versions have wrapped around, two records of one key share it only if they hold the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordToken(u64);

impl RecordToken {
    /// The token of a record: its version, and what it takes of its slot's body, without padding.
    #[inline]
    pub fn of(version: u32, key_and_value: &[u8]) -> Self {
        let content = xxh3_64_with_seed(key_and_value, u64::from(version)) as u32;
        Self(u64::from(version) | u64::from(content) << 32)
    }

    /// From the encoded form.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The encoded form.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The record's version.
    pub const fn version(self) -> u32 {
        self.0 as u32
    }
}

/// Checksum of a slot's body.
#[inline]
pub fn checksum(generation: u32, version: u32, body: &[u8]) -> u32 {
    xxh3_64_with_seed(body, u64::from(generation) << 32 | u64::from(version)) as u32
}

/// [`checksum`] of a record of two words: XXH3-64 (xxHash specification, "XXH3 algorithm overview",
/// inputs of 9 to 16 bytes) for the one length that lookups of short records compute over and over.
#[inline(always)]
fn checksum_of_pair(generation: u32, version: u32, [first, second]: [u64; 2]) -> u32 {
    /// Bytes 24 to 56 of the default secret, as little-endian words, combined as the algorithm
    /// does.
    const FLIP_FIRST: u64 = 0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb;
    const FLIP_SECOND: u64 = 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8;
    let seed = u64::from(generation) << 32 | u64::from(version);
    let first = first ^ FLIP_FIRST.wrapping_add(seed);
    let second = second ^ FLIP_SECOND.wrapping_sub(seed);
    let product = u128::from(first) * u128::from(second);
    let mixed = 16u64
        .wrapping_add(first.swap_bytes())
        .wrapping_add(second)
        .wrapping_add(product as u64 ^ (product >> 64) as u64);
    let mixed = (mixed ^ mixed >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    (mixed ^ mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_word_of_a_live_record() {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&7u64.to_le_bytes());
        body[8..].copy_from_slice(&9u64.to_le_bytes());
        let word = SlotWord::live(3, 5, &body);
        // State 2, version 5, and the low half of XXH3-64 with seed 3 << 32 | 5 as the reference
        // library computes it.
        assert_eq!(word.to_bits(), 0x6ca8_fb34_0000_0016);
    }

    proptest! {
        #[test]
        fn the_checksum_of_two_words_is_that_of_their_bytes(generation: u32, version: u32, first: u64, second: u64) {
            let body = [first.to_le_bytes(), second.to_le_bytes()].concat();
            let pair = checksum_of_pair(generation, version, [first, second]);
            prop_assert_eq!(pair, checksum(generation, version, &body));
        }

        #[test]
        fn parts_come_back(version: u32, checksum: u32) {
            for state in [SlotState::Free, SlotState::Busy, SlotState::Live, SlotState::Frozen] {
                let w = SlotWord::new(state, version, checksum);
                let parts = (state, version % SlotWord::VERSIONS, checksum);
                prop_assert_eq!((w.state(), w.version(), w.checksum()), parts);
                prop_assert_eq!(w.is_free(), state == SlotState::Free && checksum == 0);
                let m = w.marked();
                prop_assert_eq!((m.state(), m.version(), m.checksum()), parts);
                prop_assert!(m.is_marked() && !w.is_marked() && m.in_place_of(w) == m && w.in_place_of(m) == m);
                prop_assert_eq!(m.is_changed(), w.is_changed());
            }
        }

        #[test]
        fn a_changed_body_generation_or_version_is_not_proven(
            generation: u32, version: u32, body: [u8; 24], at in 0usize..24, flip in 1u8..,
        ) {
            let word = SlotWord::live(generation, version, &body);
            prop_assert!(word.is_proof_of(generation, &body));
            let mut other = body;
            other[at] ^= flip;
            prop_assert!(!word.is_proof_of(generation, &other));
            prop_assert!(!word.is_proof_of(generation.wrapping_add(1), &body));
            let next = SlotWord::from_bits(word.to_bits() ^ 1 << 2);
            prop_assert!(!next.is_proof_of(generation, &body));
        }
    }
}
