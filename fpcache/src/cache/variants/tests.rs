//! Every packing finds and lowers entries by their definition.

use fpcache_index::Window;
use proptest::prelude::*;

use super::packings::{D, F, Full};
use crate::cache::bucket::WORDS;
use crate::cache::deltas::Deltas;
use crate::cache::fd::Fd;
use crate::cache::packing::Packing;
use crate::cache::probe::CacheProbe;

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
        words[P::word(entry)] = P::put(words[P::word(entry)], entry, P::at_level(entry_bits, entry as u32));
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
                    assert_eq!(recalled(Fd::from(deltas), &probe, slot), expected, "{slot} of {probe:?}");
                    assert_eq!(recalled(D::from(deltas), &probe, slot), expected, "{slot} of {probe:?}");
                }
                // Addresses 4 GiB after the segment's first slot are not taken back.
                for back in [recalled(F, &probe, slot), recalled(Full, &probe, slot)].into_iter().flatten() {
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
        holds_for(Fd::from(deltas), &probe, random, own);
        holds_for(F, &probe, random, own);
        holds_for(D::from(deltas), &probe, random, own);
        holds_for(Full, &probe, random, own);
    }
}
