//! The search for a key among slots at a fixed stride of words, of which the second is the key.

use super::hits::Hits;
use crate::layout::{SlotState, SlotWord};

/// Words of a 64-byte vector.
pub(super) const VECTOR_WORDS: usize = 8;

/// Where slots of one size begin in a run of them, as masks over vectors of eight words.
#[derive(Clone, Debug)]
pub struct SlotStride {
    slot_words: usize,
    /// For each vector until the pattern repeats: which of its words are slots' first, and which
    /// their second.
    masks: Box<[(u8, u8)]>,
}

impl SlotStride {
    /// The pattern of slots of this many words, at least two.
    pub fn new(slot_words: usize) -> Self {
        let slot_words = slot_words.max(2);
        let mask = |vector: usize, at: usize| {
            let starts = |lane: &usize| (vector * VECTOR_WORDS + lane) % slot_words == at;
            (0..VECTOR_WORDS).filter(starts).fold(0, |mask, lane| mask | 1 << lane)
        };
        let masks = (0..slot_words).map(|vector| (mask(vector, 0), mask(vector, 1))).collect();
        Self { slot_words, masks }
    }

    /// Bytes allocated: two per word of a slot.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.masks)
    }

    /// The masks of the vectors from the first on, for ever.
    #[inline]
    pub(super) fn masks(&self) -> impl Iterator<Item = &(u8, u8)> {
        self.masks.iter().cycle()
    }
}

/// See [`Kernels::key_hits_in`](super::Kernels::key_hits_in).
pub(super) fn portable(window: &[u64], stride: &SlotStride, key: u64) -> Hits {
    let (mut count, mut first) = (0, 0);
    for (i, slot) in window.chunks_exact(stride.slot_words).enumerate().rev() {
        let shows = slot[1] == key;
        count += u32::from(shows);
        first = if shows { (i * stride.slot_words) as u32 } else { first };
    }
    let frozen = |slot: &[u64]| SlotWord::from_bits(slot[0]).state() == SlotState::Frozen;
    let any_frozen = count == 0 && window.chunks_exact(stride.slot_words).any(frozen);
    Hits::new(count, first, any_frozen)
}
