//! The short way to the record nearest to a key, over memory looked at in place.
//!
//! For keys that are a word each, in records of one length: of all slots of the window and a few
//! beyond it the keys are loaded, then the words, by [kernels](crate::matching) where slots are of
//! three words; the nearest key's slot is copied and proves itself. Nothing is kept between round
//! trips, and whatever else shows (nothing found, a slot that is being written or changes, a value
//! outside its slot, a neighbour that is wanted) is left to the search over doorbell batches, which
//! begins anew. What is proven is the same, see `seek`, unless the key's own record is found: then
//! that it was there when it was copied is enough.
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
//! They are zeros there, so key 0 is then looked for among live slots, as where a word is of
//! another version.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;
use fpcache_index::Window;
use zerocopy::IntoBytes;

use super::Side;
use crate::key_space::KeySpace;
use crate::layout::{REUSE_OFFSET, SlotState, SlotWord, Stored};
use crate::matching::{EIGHT, Kernels, NearestQuery, NearestSlot, SLOT_WORDS, is_changed, nearest};
use crate::models::Segment;
use crate::read::verify::{Check, Rules, check, copy_slot};
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
pub(super) struct DirectSearch<'a, K: KeySpace, L, M> {
    pub(super) look: L,
    pub(super) view: &'a TableView<K>,
    pub(super) side: Side,
    pub(super) kernels: M,
}

/// Where a key's neighbours lie first of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearestWindow<K: KeySpace> {
    segment: Segment<K>,
    window: Window,
    query: NearestQuery,
}

/// A record that was found.
#[derive(Clone, Debug)]
pub(super) struct NearestRecord {
    pub(super) version: u32,
    /// Where in its slot the value lies.
    value: Range<usize>,
    pub(super) cost: Cost,
}

impl ShortScratch {
    /// The bytes of the record that was found last: its key and its value.
    #[inline(always)]
    pub(super) fn record<K: KeySpace>(&self, found: &NearestRecord) -> Option<(K::View<'_>, &[u8])> {
        let slot = self.slot.as_bytes();
        Some((K::view(slot.get(8..16)?)?, slot.get(found.value.clone())?))
    }
}

/// Whether there is a short way at all.
#[inline(always)]
pub(super) fn is_there<K: KeySpace>(view: &TableView<K>) -> bool {
    K::word(K::lowest()).is_some() && view.geometry().shape.is_fixed()
}

impl<K: KeySpace, L: InPlace, M: Kernels> DirectSearch<'_, K, L, M> {
    /// Where to look for the neighbours of a key, if the page of the directory for it is here.
    #[inline(always)]
    pub(super) fn locate(&self, key: &K::Key) -> Option<NearestWindow<K>> {
        let wanted = K::word(key)?;
        let query = match self.side {
            Side::Floor => NearestQuery::at_or_below(wanted),
            Side::Ceiling => NearestQuery::at_or_above(wanted),
        };
        self.view.models().with_segment(key, |segment, shared| {
            let window = segment.model().window(segment.coordinate(key, shared, self.view.encoders()));
            NearestWindow { segment: *segment, window, query }
        })
    }

    /// Has the lines fetched that are looked at first.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: &NearestWindow<K>) {
        let (offset, bytes) = self.stretch(place, self.slots(place));
        self.look.prefetch(offset, bytes);
    }

    /// The slots that are looked at first: the window and a few more, by eights.
    #[inline(always)]
    fn slots(&self, place: &NearestWindow<K>) -> Range<u32> {
        let (window, cap) = (place.window, u32::from(place.segment.model().cap));
        let count = (window.len() + BEYOND).next_multiple_of(EIGHT as u32);
        let start = match self.side {
            Side::Floor => (window.last + 1).saturating_sub(count),
            Side::Ceiling => window.first.min(cap.saturating_sub(count)),
        };
        start..(start + count).min(cap)
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
    pub(super) fn find(
        &mut self,
        place: &NearestWindow<K>,
        scratch: &mut ShortScratch,
    ) -> Result<Option<NearestRecord>, ReadError> {
        let (mut slots, mut reads) = (self.slots(place), 1);
        let (mut nearest, mut is_changed) = self.look_at(place, slots.clone())?;
        if nearest.is_none() {
            return Ok(None);
        }
        // Nothing is nearer to a key than its own record.
        let is_own = nearest.distance == 0;
        if !is_own && let Some(missing) = self.missing(place, &slots, nearest) {
            // What is nearer than what was found, if anything, lies in its window.
            let (other, is_one_changed) = self.look_at_any(place, missing.clone())?;
            (nearest, is_changed) = (nearest.or_nearer(other), is_changed | is_one_changed);
            slots = slots.start.min(missing.start)..slots.end.max(missing.end);
            reads = 2;
        }
        let bytes = self.stretch(place, slots.clone()).1 as u64;
        let cost = Cost { round_trips: 1, reads, bytes, ..Cost::default() };
        if (is_own || !is_changed)
            && let Some((version, value)) = self.verify(place, nearest, None, scratch)?
        {
            return Ok(Some(NearestRecord { version, value, cost }));
        }
        // Free slots that were never changed show key 0, perhaps before the one that has it.
        let is_zero = place.query.key_at(nearest.distance) == Some(0);
        if is_changed || is_zero { self.find_by_pairs(place, slots, cost, scratch) } else { Ok(None) }
    }

    /// The same by states of slots, where some were changed or may hide the nearest: `slots` are
    /// those that were looked at once, at this cost.
    #[inline(never)]
    fn find_by_pairs(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
        once: Cost,
        scratch: &mut ShortScratch,
    ) -> Result<Option<NearestRecord>, ReadError> {
        let settled = self.settle(place, slots.clone(), &mut scratch.words)?.filter(|found| !found.is_none());
        let Some(nearest) = settled.filter(|found| self.missing(place, &slots, *found).is_none()) else {
            return Ok(None);
        };
        let cost = Cost { round_trips: 2, reads: once.reads + 1, bytes: 2 * once.bytes, ..once };
        let record = self.verify(place, nearest, Some(slots.start), scratch)?;
        Ok(record.map(|(version, value)| NearestRecord { version, value, cost }))
    }

    /// The nearest key of these slots, and whether one of them was changed since its segment was
    /// loaded.
    #[inline(always)]
    fn look_at(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
    ) -> Result<(NearestSlot, bool), ReadError> {
        if self.view.geometry().slot_bytes != 8 * SLOT_WORDS || !slots.len().is_multiple_of(EIGHT) {
            return self.look_at_any(place, slots);
        }
        let (offset, bytes) = self.stretch(place, slots.clone());
        let mut nearest = self.kernels.nearest_in(self.look.words(offset, bytes)?, place.query);
        nearest.slot += slots.start;
        // Each key before its slot's word.
        fence(Ordering::Acquire);
        let is_changed = self.kernels.is_changed_in(self.look.words(offset, bytes)?);
        fence(Ordering::Acquire);
        Ok((nearest, is_changed))
    }

    /// The same, of slots of any length and number.
    #[inline(never)]
    fn look_at_any(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
    ) -> Result<(NearestSlot, bool), ReadError> {
        let (offset, bytes) = self.stretch(place, slots.clone());
        let stride = self.view.geometry().slot_bytes / 8;
        let mut nearest = nearest(self.look.words(offset, bytes)?, stride, place.query);
        nearest.slot += slots.start;
        fence(Ordering::Acquire);
        let is_changed = is_changed(self.look.words(offset, bytes)?, stride);
        fence(Ordering::Acquire);
        Ok((nearest, is_changed))
    }

    /// The slots that have to be looked at besides, for what was found to be the nearest.
    #[inline(always)]
    fn missing(
        &self,
        place: &NearestWindow<K>,
        slots: &Range<u32>,
        nearest: NearestSlot,
    ) -> Option<Range<u32>> {
        let found = place.query.key_at(nearest.distance)?.to_le_bytes();
        let key = K::view(&found)?;
        // Coordinates of keys that are a word depend on nothing that they share with others.
        let coordinate = place.segment.coordinate(key.borrow(), 0, self.view.encoders());
        let window = place.segment.model().window(coordinate);
        match self.side {
            Side::Floor => (window.first < slots.start).then_some(window.first..slots.start),
            Side::Ceiling => (window.last >= slots.end).then_some(slots.end..window.last + 1),
        }
    }

    /// The nearest key of slots that are all as they are at one instant, whose words are kept.
    #[inline(never)]
    fn settle(
        &mut self,
        place: &NearestWindow<K>,
        slots: Range<u32>,
        words: &mut Vec<u64>,
    ) -> Result<Option<NearestSlot>, ReadError> {
        let (offset, bytes) = self.stretch(place, slots.clone());
        let (stride, count) = (self.view.geometry().slot_bytes / 8, slots.len());
        for _ in 0..PAIRS {
            words.clear();
            words.extend(self.look.words(offset, bytes)?.every(0, stride, count));
            fence(Ordering::Acquire);
            let keys = self.look.words(offset, bytes)?.every(1, stride, count);
            let mut nearest = NearestSlot::NONE;
            for ((word, key), slot) in words.iter().zip(keys).zip(slots.clone()) {
                if SlotWord::from_bits(*word).state() == SlotState::Live {
                    nearest = nearest.or_nearer(place.query.slot_of(key, slot));
                }
            }
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

    /// The version of the record in the slot of the nearest key, if that is what was found there,
    /// and where in the slot its value lies. `first` is the slot of the first word that was kept,
    /// if the slots were changed.
    #[inline(always)]
    fn verify(
        &mut self,
        place: &NearestWindow<K>,
        nearest: NearestSlot,
        first: Option<u32>,
        scratch: &mut ShortScratch,
    ) -> Result<Option<(u32, Range<usize>)>, ReadError> {
        let Some(found) = place.query.key_at(nearest.distance) else { return Ok(None) };
        let found = found.to_le_bytes();
        let Some(key) = K::view(&found) else { return Ok(None) };
        let (offset, bytes) = self.stretch(place, nearest.slot..nearest.slot + 1);
        let ShortScratch { words, slot } = scratch;
        if slot.len() != bytes / 8 {
            slot.resize(bytes / 8, 0);
        }
        copy_slot(&mut self.look, self.view, offset, slot)?;
        if self.look.load_after_reads(REUSE_OFFSET)? > self.view.holds_until() {
            return Err(ReadError::Stale);
        }
        let is_as_it_was = match first {
            Some(first) => words.get((nearest.slot - first) as usize) == slot.first(),
            None => nearest.distance == 0 || !SlotWord::from_bits(slot[0]).is_changed(),
        };
        match check::<K>(slot, place.segment.generation(), key.borrow(), Rules::of(self.view)) {
            Ok(Check::Found { version, value: Stored::Here(value) }) if is_as_it_was => {
                let value_at = value.as_ptr() as usize - slot.as_ptr() as usize;
                Ok(Some((version, value_at..value_at + value.len())))
            }
            _ => Ok(None),
        }
    }
}
