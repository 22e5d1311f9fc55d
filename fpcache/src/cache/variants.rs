//! The packing of entries into the words of a bucket, by variant.
//!
//! An entry is some bits of one word and, in the variants that hold full keys, a word for the key:
//!
//! | variant | entries | bits | high to low | words |
//! |---|---|---|---|---|
//! | `fd`   | 16 | 32 bits | level 4 · delta d · tag 28−d | two entries a word |
//! | `f`    |  8 | 64 bits | level 4 · address/8 45 · tag 15 | one entry a word |
//! | `d`    |  6 | 20 bits | level 4 · live 1 · delta 15 | keys in words 0–5, three entries' bits each in words 6 and 7 |
//! | `full` |  4 | 64 bits | level 4 · live 1 · unused 11 · address 48 | key in the even word, bits in the odd |
//!
//! A delta is slot − predicted slot, biased by epsilon so that it is never negative; d is just wide
//! enough for 2·epsilon + 1 of them. A tag is never 0 and a live bit is set in every entry that
//! means something, so a word of zeros holds nothing. The bucket comes from a hash's high bits, the
//! tag from its low ones. No variant has room for one entry more: five `full` ones would take 565
//! bits of 512, seven `d` ones 525 at epsilon 32, nine `f` ones leave 8 bits of tag.

use super::bucket::WORDS;
use super::packing::Packing;
use super::probe::CacheProbe;

/// Deltas of a table: how far slots lie from where the model puts them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deltas {
    bias: u32,
    bits: u32,
}

impl Deltas {
    /// Farther slots are not cached: as many bits as `d` has for a delta, and more than a table's
    /// greatest ε needs, groups included.
    const FARTHEST: u32 = (1 << 14) - 1;

    /// For windows of at most 2·`epsilon` + 1 slots.
    pub(super) fn new(epsilon: u32) -> Self {
        let bias = epsilon.min(Self::FARTHEST);
        Self { bias, bits: u32::BITS - (2 * bias).leading_zeros() }
    }

    #[inline]
    fn encode(self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        // A segment has fewer than 2^16 slots; for callers who say otherwise this is what `decode`
        // takes back.
        let delta = slot.wrapping_add(self.bias).wrapping_sub(probe.predicted);
        (delta <= 2 * self.bias).then_some(u64::from(delta))
    }

    #[inline]
    fn decode(self, probe: &CacheProbe, delta: u64) -> Option<u32> {
        // At most 15 bits of delta beside a predicted slot: a segment has fewer than 2^16, and
        // hostile callers wrap.
        let slot = probe.predicted.wrapping_add(delta as u32).wrapping_sub(self.bias);
        probe.window.contains(slot).then_some(slot)
    }
}

/// Offset in the region of `slot`.
#[inline]
fn address(probe: &CacheProbe, slot: u32) -> Option<u64> {
    let address = probe.slots.checked_add(u64::from(slot) * u64::from(probe.slot_bytes))?;
    (address < 1 << 48).then_some(address)
}

/// The slot of the key's window at offset `address` of the region.
#[inline]
fn slot_at(probe: &CacheProbe, address: u64) -> Option<u32> {
    let bytes = u32::try_from(address.checked_sub(probe.slots)?).ok()?;
    let slot = bytes.checked_div(probe.slot_bytes)?;
    (slot * probe.slot_bytes == bytes && probe.window.contains(slot)).then_some(slot)
}

/// Fingerprint and offset from the predicted slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fd(pub(super) Deltas);

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

/// Fingerprint and full address.
#[derive(Clone, Copy, Debug)]
pub(super) struct F;

impl F {
    const TAG_BITS: u32 = 15;
}

impl Packing for F {
    const ENTRIES: usize = 8;
    const BITS: u32 = 64;

    #[inline]
    fn word(entry: usize) -> usize {
        entry
    }

    #[inline]
    fn shift(_: usize) -> u32 {
        0
    }

    #[inline]
    fn key_word(_: usize) -> Option<usize> {
        None
    }

    #[inline]
    fn mask(&self) -> u64 {
        (1 << Self::TAG_BITS) - 1
    }

    #[inline]
    fn wanted(&self, probe: &CacheProbe) -> u64 {
        (probe.hash & self.mask()).max(1)
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        // Slots lie at multiples of eight.
        let address = address(probe, slot).filter(|address| address.is_multiple_of(8))?;
        Some(((address / 8) << Self::TAG_BITS) | self.wanted(probe))
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        slot_at(probe, (Self::without_level(entry_bits) >> Self::TAG_BITS) * 8)
    }
}

/// Full key and offset from the predicted slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct D(pub(super) Deltas);

impl D {
    const LIVE: u64 = 1 << 15;
}

impl Packing for D {
    const ENTRIES: usize = 6;
    const BITS: u32 = 20;

    #[inline]
    fn word(entry: usize) -> usize {
        6 + entry / 3
    }

    #[inline]
    fn shift(entry: usize) -> u32 {
        entry as u32 % 3 * 20
    }

    #[inline]
    fn key_word(entry: usize) -> Option<usize> {
        Some(entry)
    }

    #[inline]
    fn mask(&self) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn wanted(&self, _: &CacheProbe) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        Some(self.0.encode(probe, slot)? | Self::LIVE)
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        self.0.decode(probe, entry_bits & (Self::LIVE - 1))
    }
}

/// Full key and full address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

impl Full {
    const LIVE: u64 = 1 << 59;
}

impl Packing for Full {
    const ENTRIES: usize = 4;
    const BITS: u32 = 64;

    #[inline]
    fn word(entry: usize) -> usize {
        2 * entry + 1
    }

    #[inline]
    fn shift(_: usize) -> u32 {
        0
    }

    #[inline]
    fn key_word(entry: usize) -> Option<usize> {
        Some(2 * entry)
    }

    #[inline]
    fn mask(&self) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn wanted(&self, _: &CacheProbe) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        Some(address(probe, slot)? | Self::LIVE)
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        slot_at(probe, entry_bits & ((1 << 48) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_index::Window;
    use proptest::prelude::*;

    fn cache_probe(hash: u64, key: u64) -> CacheProbe {
        let window = Window { first: 0, last: 9_000 };
        CacheProbe { hash, key, predicted: 4_500, window, slots: 1 << 40, slot_bytes: 264 }
    }

    /// Words among which `probe` finds itself now and then: random ones, and its own entry bits in
    /// random places.
    fn words<P: Packing>(packing: P, probe: &CacheProbe, random: [u64; WORDS], own: u16) -> [u64; WORDS] {
        let mut words = random;
        for entry in (0..P::ENTRIES).filter(|entry| own >> entry & 1 == 1) {
            let slot = 4_500 + entry as u32 - 5;
            let entry_bits = packing.encode_slot(probe, slot).expect("inside the window");
            words[P::word(entry)] =
                P::put(words[P::word(entry)], entry, P::at_level(entry_bits, entry as u32));
            if let Some(word) = P::key_word(entry) {
                words[word] = probe.key;
            }
        }
        words
    }

    fn holds_for<P: Packing>(packing: P, probe: &CacheProbe, random: [u64; WORDS], own: u16) {
        let words = words(packing, probe, random, own);
        // One entry at a time, by the definition of a match.
        let mut by_definition = 0;
        for entry in 0..P::ENTRIES {
            let same_tag = P::get(&words, entry) & packing.mask() == packing.wanted(probe);
            let same_key = P::key_word(entry).is_none_or(|word| words[word] == probe.key);
            by_definition |= u32::from(same_tag && same_key) << entry;
        }
        assert_eq!(packing.matches(&words, probe), by_definition);
        for entry in (0..P::ENTRIES).filter(|entry| own >> entry & 1 == 1) {
            assert!(by_definition >> entry & 1 == 1);
            let entry_bits = P::get(&words, entry);
            assert_eq!(
                (P::level(entry_bits), packing.slot(probe, entry_bits)),
                (entry as u32, Some(4_495 + entry as u32))
            );
        }
        let lowered = std::array::from_fn(|word| P::lowered(&words, word));
        for entry in 0..P::ENTRIES {
            let (before, after) = (P::get(&words, entry), P::get(&lowered, entry));
            assert_eq!(P::without_level(before), P::without_level(after));
            assert_eq!(P::level(before).saturating_sub(1), P::level(after));
            assert!(P::key_word(entry).is_none_or(|word| lowered[word] == words[word]));
        }
    }

    #[test]
    fn marks_at_either_end_of_the_slot_numbers_neither_overflow_nor_lie() {
        const ENDS: [u32; 8] = [0, 1, 4_095, 4_096, 1 << 31, u32::MAX - 4_096, u32::MAX - 1, u32::MAX];
        fn recalled<P: Packing>(packing: P, probe: &CacheProbe, slot: u32) -> Option<u32> {
            packing.slot(probe, packing.encode_slot(probe, slot)?)
        }
        let windows = [(0, u32::MAX), (0, 0), (u32::MAX, u32::MAX), (u32::MAX - 5_000, u32::MAX)];
        for (predicted, slot) in ENDS.into_iter().flat_map(|at| ENDS.map(|slot| (at, slot))) {
            for (first, last) in windows {
                for (slots, slot_bytes) in [(0, 0), (4096, 24), (u64::MAX, u32::MAX)] {
                    let window = Window { first, last };
                    let probe = CacheProbe { predicted, window, slots, slot_bytes, ..cache_probe(1, 2) };
                    for deltas in [0, 32, 4_096, 8_448, u32::MAX].map(Deltas::new) {
                        let near = slot.wrapping_sub(predicted).wrapping_add(deltas.bias) <= 2 * deltas.bias;
                        let expected = (near && window.contains(slot)).then_some(slot);
                        assert_eq!(recalled(Fd(deltas), &probe, slot), expected, "{slot} of {probe:?}");
                        assert_eq!(recalled(D(deltas), &probe, slot), expected, "{slot} of {probe:?}");
                    }
                    // Addresses 4 GiB after the segment's first slot are not taken back.
                    for back in
                        [recalled(F, &probe, slot), recalled(Full, &probe, slot)].into_iter().flatten()
                    {
                        assert!(back == slot && window.contains(slot), "{slot} of {probe:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn entries_are_found_and_lowered_by_their_definition(
            random in prop_oneof![Just([0; WORDS]), Just([u64::MAX; WORDS]), any::<[u64; WORDS]>()],
            own: u16,
            hash in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
            key: u64,
            epsilon in 16u32..=8448,
        ) {
            let (probe, deltas) = (cache_probe(hash, key), Deltas::new(epsilon));
            holds_for(Fd(deltas), &probe, random, own);
            holds_for(F, &probe, random, own);
            holds_for(D(deltas), &probe, random, own);
            holds_for(Full, &probe, random, own);
        }
    }
}
