//! The short way to the record nearest to a key, over memory looked at in place.
//!
//! For keys that are a word each, in records of one length: of all slots of the window and a few
//! beyond it the keys are loaded, then the words; the nearest key's slot is copied and proves
//! itself. Nothing is kept between round trips, and whatever else shows (nothing found, a slot that
//! is being written or changes, a value outside its slot, a neighbour that is wanted) is left to
//! the search over doorbell batches, which begins anew. What is proven is the same, see `seek`:
//!
//! - Keys are loaded before the words of their slots, with a fence between. A word of version 0 or
//!   1 then says that its slot's record was never changed before the key was loaded: a change makes
//!   the word another one first.
//! - Where a word is of another version, the words are loaded, then the keys, then the words again,
//!   with fences between; the words must be the same both times, and none busy.
//! - The word of the slot that is copied in the end must still be the one that was part of the
//!   proof.
//!
//! The keys of slots without a record are what happens to lie there. In slots that were never
//! changed they are taken for records: should one be the nearest, its slot says that it is none.

use std::borrow::Borrow;
use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;
use fpcache_index::Window;
use zerocopy::IntoBytes;

use super::Side;
use crate::key_space::KeySpace;
use crate::layout::{REUSE_OFFSET, SlotState, SlotWord, Stored};
use crate::models::{Models, Segment};
use crate::read::verify::{Check, Rules, check};
use crate::read::{Cost, ReadError};
use crate::sabotage::Sabotage;
use crate::table_view::TableView;

/// Slots beyond the window that are looked at at once. Fewer than where a round trip is dear: what
/// is missing costs a few instructions.
const BEYOND: u32 = 4;
/// How often the words of slots that were changed are loaded in pairs.
const PAIRS: u32 = 4;

/// Buffers of short ways.
#[derive(Debug, Default)]
pub(super) struct ShortScratch {
    /// The words of slots as they were first.
    words: Vec<u64>,
    /// The slot of the record that was found.
    slot: Vec<u64>,
}

/// Short ways over one table.
#[derive(Debug)]
pub(super) struct DirectSearch<'a, K: KeySpace, L> {
    pub(super) look: L,
    pub(super) view: &'a TableView<K>,
    pub(super) side: Side,
    pub(super) scratch: &'a mut ShortScratch,
}

/// Where a key's neighbours lie first of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearestWindow<K: KeySpace> {
    segment: Segment<K>,
    window: Window,
    /// The key.
    wanted: u64,
}

/// A record that was found.
#[derive(Clone, Debug)]
pub(super) struct NearestRecord {
    pub(super) version: u32,
    /// Where in its slot the key lies, and the value.
    key: Range<usize>,
    value: Range<usize>,
    pub(super) cost: Cost,
}

/// The nearest of some keys.
#[derive(Clone, Copy, Debug)]
struct NearestSlot {
    /// How far from the wanted key, and in which slot.
    distance: u64,
    slot: u32,
}

impl NearestSlot {
    const NONE: Self = Self { distance: u64::MAX, slot: 0 };

    /// Whether none was found, or one so far off that it is told from none in another way.
    #[inline(always)]
    fn is_none(self) -> bool {
        self.distance == u64::MAX
    }

    #[inline(always)]
    fn take(&mut self, distance: u64, slot: u32) {
        // No branch: which of a window's keys is the nearest cannot be foretold.
        let is_nearer = distance < self.distance;
        self.distance = select_unpredictable(is_nearer, distance, self.distance);
        self.slot = select_unpredictable(is_nearer, slot, self.slot);
    }
}

impl Side {
    /// How far a key lies off. Of keys on the other side more than of any on this one.
    #[inline(always)]
    fn distance(self, wanted: u64, key: u64) -> u64 {
        match self {
            Self::Floor => wanted.wrapping_sub(key),
            Self::Ceiling => key.wrapping_sub(wanted),
        }
    }

    /// The key so far off, if there is one.
    #[inline(always)]
    fn key_at(self, wanted: u64, distance: u64) -> Option<u64> {
        match self {
            Self::Floor => wanted.checked_sub(distance),
            Self::Ceiling => wanted.checked_add(distance),
        }
    }
}

/// Whether there is a short way at all.
#[inline(always)]
pub(super) fn is_there<K: KeySpace>(view: &TableView<K>) -> bool {
    K::word(K::lowest()).is_some() && view.geometry().shape.is_fixed()
}

impl<'a, K: KeySpace, L: InPlace> DirectSearch<'a, K, L> {
    /// Where to look for the neighbours of a key, if the page of the directory for it is here.
    #[inline(always)]
    pub(super) fn locate(&self, key: &K::Key) -> Option<NearestWindow<K>> {
        let wanted = K::word(key)?;
        let (segment, shared) = match self.view.models() {
            Models::Resident(directory) => {
                let (segment, shared) = directory.find_shared(key)?;
                (*segment, shared)
            }
            Models::Paged(models) => {
                let page = models.kept(models.page_of(key))?;
                let (segment, shared) = page.find_shared(key);
                (*segment, shared)
            }
        };
        let window = segment.model().window(segment.coordinate(key, shared, self.view.encoders()));
        Some(NearestWindow { segment, window, wanted })
    }

    /// Has the lines fetched that are looked at first.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: &NearestWindow<K>) {
        let (offset, bytes) = self.stretch(place, self.slots(place));
        self.look.prefetch(offset, bytes);
    }

    /// The slots that are looked at first.
    #[inline(always)]
    fn slots(&self, place: &NearestWindow<K>) -> Range<u32> {
        let (window, cap) = (place.window, u32::from(place.segment.model().cap));
        match self.side {
            Side::Floor => window.first.saturating_sub(BEYOND)..window.last + 1,
            Side::Ceiling => window.first..(window.last + 1 + BEYOND).min(cap),
        }
    }

    /// Where these slots lie, and how many bytes.
    #[inline(always)]
    fn stretch(&self, place: &NearestWindow<K>, slots: Range<u32>) -> (u64, usize) {
        let geometry = self.view.geometry();
        let offset = geometry.slot_offset(place.segment.model().cap, slots.start) as u64;
        (place.segment.address().offset() + offset, slots.len() * geometry.slot_bytes)
    }

    /// The record nearest to a key; `None` if it is to be looked for in another way.
    #[inline(always)]
    pub(super) fn find(&mut self, place: &NearestWindow<K>) -> Result<Option<NearestRecord>, ReadError> {
        let mut slots = self.slots(place);
        let (mut nearest, mut is_changed) = (NearestSlot::NONE, false);
        self.look_at(place, slots.clone(), &mut nearest, &mut is_changed)?;
        if nearest.is_none() {
            return Ok(None);
        }
        let mut cost = Cost { round_trips: 1, reads: 1, ..Cost::default() };
        if let Some(missing) = self.missing(place, &slots, nearest) {
            // What is nearer than what was found, if anything, lies in its window.
            self.look_at(place, missing.clone(), &mut nearest, &mut is_changed)?;
            slots = slots.start.min(missing.start)..slots.end.max(missing.end);
            cost.reads += 1;
        }
        cost.bytes = self.stretch(place, slots.clone()).1 as u64;
        if is_changed {
            cost = cost_of_pairs(cost);
            match self.settle(place, slots.clone())? {
                Some(settled) if !settled.is_none() && self.missing(place, &slots, settled).is_none() => {
                    nearest = settled;
                }
                _ => return Ok(None),
            }
        }
        let first_word = is_changed.then_some(slots.start);
        self.verify(place, nearest, first_word, cost)
    }

    /// Looks for the nearest key in these slots, and whether one of them was changed since its
    /// segment was loaded.
    #[inline(always)]
    fn look_at(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
        nearest: &mut NearestSlot,
        is_changed: &mut bool,
    ) -> Result<(), ReadError> {
        let (offset, bytes) = self.stretch(place, slots.clone());
        let (stride, side, wanted) = (self.view.geometry().slot_bytes / 8, self.side, place.wanted);
        let (mut best, mut slot, count) = (*nearest, slots.start, slots.len());
        let mut keys = self.look.words(offset, bytes)?.every(1, stride, count);
        while let Some(four) = keys.next_four() {
            for key in four {
                best.take(side.distance(wanted, key), slot);
                slot += 1;
            }
        }
        for key in keys {
            best.take(side.distance(wanted, key), slot);
            slot += 1;
        }
        *nearest = best;
        // Each key before its slot's word.
        fence(Ordering::Acquire);
        let mut all = self.look.words(offset, bytes)?.every(0, stride, count);
        let mut words = 0;
        while let Some([a, b, c, d]) = all.next_four() {
            words |= a | b | c | d;
        }
        let words = all.fold(words, |all, word| all | word);
        fence(Ordering::Acquire);
        *is_changed |= SlotWord::is_one_changed(words);
        Ok(())
    }

    /// The slots that have to be looked at besides, for what was found to be the nearest.
    #[inline(always)]
    fn missing(
        &self,
        place: &NearestWindow<K>,
        slots: &Range<u32>,
        nearest: NearestSlot,
    ) -> Option<Range<u32>> {
        let found = self.side.key_at(place.wanted, nearest.distance)?.to_le_bytes();
        let key = K::view(&found)?;
        // Coordinates of keys that are a word depend on nothing that they share with others.
        let coordinate = place.segment.coordinate(key.borrow(), 0, self.view.encoders());
        let window = place.segment.model().window(coordinate);
        match self.side {
            Side::Floor => (window.first < slots.start).then_some(window.first..slots.start),
            Side::Ceiling => (window.last >= slots.end).then_some(slots.end..window.last + 1),
        }
    }

    /// The nearest key of slots that are all as they are at one instant.
    #[inline(never)]
    fn settle(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
    ) -> Result<Option<NearestSlot>, ReadError> {
        let (offset, bytes) = self.stretch(place, slots.clone());
        let (stride, side, wanted) = (self.view.geometry().slot_bytes / 8, self.side, place.wanted);
        let count = slots.len();
        for _ in 0..PAIRS {
            let words = &mut self.scratch.words;
            words.clear();
            words.extend(self.look.words(offset, bytes)?.every(0, stride, count));
            fence(Ordering::Acquire);
            let (mut nearest, mut at) = (NearestSlot::NONE, 0);
            self.look.words(offset, bytes)?.every(1, stride, count).for_each(|key| {
                if SlotWord::from_bits(words[at]).state() == SlotState::Live {
                    nearest.take(side.distance(wanted, key), slots.start + at as u32);
                }
                at += 1;
            });
            fence(Ordering::Acquire);
            let is_same = self.look.words(offset, bytes)?.every(0, stride, count).eq(words.iter().copied());
            fence(Ordering::Acquire);
            // A free state with a checksum is a damaged record, which may be the nearest.
            let is_settled = |word: &u64| {
                let word = SlotWord::from_bits(*word);
                word.is_free() || word.state() == SlotState::Live
            };
            if !words.iter().all(is_settled) {
                return Ok(None);
            }
            if is_same || self.view.breaks(Sabotage::UnprovenNeighbours) {
                return Ok(Some(nearest));
            }
        }
        Ok(None)
    }

    /// The record in the slot of the nearest key, if that is what was found there. `first` is the
    /// slot of the first word that was kept, if the slots were changed.
    #[inline(always)]
    fn verify(
        &mut self,
        place: &NearestWindow<K>,
        nearest: NearestSlot,
        first: Option<u32>,
        cost: Cost,
    ) -> Result<Option<NearestRecord>, ReadError> {
        let Some(found) = self.side.key_at(place.wanted, nearest.distance) else { return Ok(None) };
        let (found, words) = (found.to_le_bytes(), self.view.geometry().slot_bytes / 8);
        let Some(key) = K::view(&found) else { return Ok(None) };
        let (offset, _) = self.stretch(place, nearest.slot..nearest.slot + 1);
        let ShortScratch { words: kept, slot } = &mut *self.scratch;
        slot.resize(words, 0);
        match (self.view.guards_slots(), <&mut [u64; 3]>::try_from(&mut slot[..])) {
            // A length that is known makes the copy a few loads.
            (true, Ok(slot)) => self.look.record(offset, slot)?,
            (true, Err(_)) => self.look.record(offset, slot)?,
            (false, _) => self.look.copy(offset, slot)?,
        }
        if self.look.load_after_reads(REUSE_OFFSET)? > self.view.holds_until() {
            return Err(ReadError::Stale);
        }
        let is_as_it_was = match first {
            Some(first) => kept.get((nearest.slot - first) as usize) == slot.first(),
            None => !SlotWord::is_one_changed(slot[0]),
        };
        let start = slot.as_ptr() as usize;
        match check::<K>(slot, place.segment.generation(), key.borrow(), Rules::of(self.view)) {
            Ok(Check::Found { version, value: Stored::Here(value) }) if is_as_it_was => {
                let value_at = value.as_ptr() as usize - start;
                let value = value_at..value_at + value.len();
                Ok(Some(NearestRecord { version, key: 8..16, value, cost }))
            }
            _ => Ok(None),
        }
    }

    /// The bytes of the record that was found last: its key and its value.
    #[inline(always)]
    pub(super) fn record(&self, found: &NearestRecord) -> Option<(K::View<'_>, &[u8])> {
        let slot = self.scratch.slot.as_bytes();
        Some((K::view(&slot[found.key.clone()])?, &slot[found.value.clone()]))
    }
}

/// The cost of looking at all slots again.
#[inline]
fn cost_of_pairs(cost: Cost) -> Cost {
    Cost { round_trips: 2, reads: cost.reads + 1, bytes: 2 * cost.bytes, ..cost }
}
