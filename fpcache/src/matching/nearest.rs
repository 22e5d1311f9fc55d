//! The search for the key nearest to another among slots at a fixed stride of words, of which the
//! second is the key.

use std::hint::select_unpredictable;

use fpcache_fabric::Words;

use crate::layout::SlotWord;

/// Words of the slots whose keys kernels look for.
pub(crate) const SLOT_WORDS: usize = 3;
/// How many such slots kernels look at together: they are handed a multiple of it.
pub(crate) const EIGHT: usize = 8;

/// A key, and on which side of it others are measured. Keys on the other side are farther than all
/// on this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearestQuery {
    /// The key, with the bits of `flip` flipped.
    pub(super) wanted: u64,
    /// All bits where keys above are wanted: flipped, these are the keys below.
    pub(super) flip: u64,
}

/// The nearest of some slots' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NearestSlot {
    /// How far from the wanted key.
    pub(crate) distance: u64,
    /// Which of the slots shows it; one of them if several do.
    pub(crate) slot: u32,
}

impl NearestQuery {
    #[inline(always)]
    pub(crate) const fn at_or_below(key: u64) -> Self {
        Self { wanted: key, flip: 0 }
    }

    #[inline(always)]
    pub(crate) const fn at_or_above(key: u64) -> Self {
        Self { wanted: !key, flip: u64::MAX }
    }

    /// A slot that has this key.
    #[inline(always)]
    pub(crate) fn slot_of(self, key: u64, slot: u32) -> NearestSlot {
        NearestSlot { distance: self.wanted.wrapping_sub(key ^ self.flip), slot }
    }

    /// The key so far off, if there is one.
    #[inline(always)]
    pub(crate) fn key_at(self, distance: u64) -> Option<u64> {
        self.wanted.checked_sub(distance).map(|key| key ^ self.flip)
    }
}

impl NearestSlot {
    pub(crate) const NONE: Self = Self { distance: u64::MAX, slot: 0 };

    /// Whether none was found, or one so far off that it is told from none in another way.
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.distance == u64::MAX
    }

    /// The nearer of two.
    #[inline(always)]
    pub(crate) fn or_nearer(self, other: Self) -> Self {
        // No branch: which of a window's keys is the nearest cannot be foretold.
        let is_nearer = other.distance < self.distance;
        let distance = select_unpredictable(is_nearer, other.distance, self.distance);
        Self { distance, slot: select_unpredictable(is_nearer, other.slot, self.slot) }
    }
}

/// What [`Kernels::nearest_in`](super::Kernels::nearest_in) finds, of any number of slots of any
/// size.
#[inline]
pub(crate) fn nearest(slots: Words<'_>, stride: usize, query: NearestQuery) -> NearestSlot {
    let count = slots.len() / stride;
    let (mut nearest, mut slot) = (NearestSlot::NONE, 0);
    let mut take = |key| {
        nearest = nearest.or_nearer(query.slot_of(key, slot));
        slot += 1;
    };
    let mut keys = slots.every(1, stride, count);
    while let Some(four) = keys.next_four() {
        four.into_iter().for_each(&mut take);
    }
    keys.for_each(take);
    nearest
}

/// What [`Kernels::is_changed_in`](super::Kernels::is_changed_in) finds, likewise.
#[inline]
pub(crate) fn is_changed(slots: Words<'_>, stride: usize) -> bool {
    let (mut words, mut all) = (slots.every(0, stride, slots.len() / stride), 0);
    while let Some([a, b, c, d]) = words.next_four() {
        all |= a | b | c | d;
    }
    SlotWord::from_bits(words.fold(all, |all, word| all | word)).is_changed()
}
