//! The short way to a record over memory looked at in place: window, slot, answer.
//!
//! Where a round trip is a cache miss, the fewer instructions a lookup takes, the more of the next
//! one the processor has begun while this one waits for memory. So the common course of a lookup,
//! one fingerprint that matches and a slot that is the key's, is gone in one line, without state
//! that is kept between round trips, and costs are counted when the answer is there. Range and
//! speculative reads go the same way, with another first step. Whatever else shows is left to the
//! engine, which begins anew. What is matched and verified, and how, is the same.

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;
use fpcache_index::Window;
use zerocopy::IntoBytes;

use super::outcome::Outcome;
use super::records::Records;
use super::slot_window::SlotWindow;
use super::verify::{Check, Rules, check, shown_word};
use super::{Cost, ReadError};
use crate::cache::{CacheHandle, CacheProbe, CachedSlot, HotCache};
use crate::key_space::KeySpace;
use crate::layout::{FingerprintSpan, REUSE_OFFSET, SegmentGeometry, Stored};
use crate::matching::{Fingerprints, Kernels};
use crate::plan::Plan;
use crate::table::Table;

/// Keys that are under way together: their windows and slots fit a first-level cache.
pub(super) const TOGETHER: usize = 32;
/// Segments whose directory stays in a second-level cache: 42 bytes each.
pub(super) const CACHED_SEGMENTS: usize = 40_000;

/// How far on either side of the predicted slot others are fetched with it: some lines, which a
/// processor waits for together. Of keys as uneven as fb's, a sixth lie where they are predicted,
/// and two fifths within ten slots of that. Farther gains nothing.
const NEAR_BYTES: usize = 256;
/// The unit in which memory is fetched.
const LINE_BYTES: usize = 64;

/// Lookups of one table by the short way.
pub(super) struct Attempts<'a, K: KeySpace, L, M> {
    pub(super) look: &'a mut L,
    pub(super) table: &'a Table<K>,
    pub(super) kernels: M,
    pub(super) records: &'a mut Records,
    /// Words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// Where a key can be, in addresses of the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) hash: u64,
    /// The whole words of its window's fingerprints: their address, and how many bytes.
    words: u64,
    word_bytes: u32,
    /// Bytes before the window's fingerprints, and of these.
    skip: u32,
    used: u32,
    generation: u32,
    /// Slot 0 of its segment.
    slots: u64,
    pub(super) predicted: u32,
    pub(super) window: Window,
    /// How the key is read.
    pub(super) plan: Plan,
    /// Its slot, as far as it is known.
    pub(super) slot: Slot,
}

/// Where in its window a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// In the only one whose fingerprint matches, or that shows the key.
    At(u32),
    /// Where it was predicted: it has been found there.
    Predicted,
    /// Nowhere.
    Absent,
    /// For the engine to say.
    Rare,
}

/// The state of a slot for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Its own, and its value is here.
    Found,
    /// Another key's.
    Other,
    /// No key's.
    Nothing,
    /// For the engine to say.
    Rare,
}

impl Place {
    /// The place of a key that is left to the engine.
    pub(super) const RARE: Self = {
        let window = Window { first: 0, last: 0 };
        Self {
            hash: 0,
            words: 0,
            word_bytes: 0,
            skip: 0,
            used: 0,
            generation: 0,
            slots: 0,
            predicted: 0,
            window,
            plan: Plan::TwoStage,
            slot: Slot::Rare,
        }
    };

    #[inline(always)]
    fn of<K: KeySpace>(target: &SlotWindow, key: &K::Key, geometry: &SegmentGeometry) -> Self {
        let FingerprintSpan { offset, len, skip, used } = geometry.fingerprint_span(target.window);
        Self {
            hash: K::hash(key),
            words: target.segment + offset as u64,
            // A window has fewer than 2^16 fingerprints of 8 bytes at most.
            word_bytes: len as u32,
            skip: skip as u32,
            used: used as u32,
            generation: target.generation,
            slots: target.segment + geometry.slots_offset(target.cap) as u64,
            predicted: target.predicted,
            window: target.window,
            plan: Plan::TwoStage,
            slot: Slot::Absent,
        }
    }

    /// The slot that was found to be the key's, if its plan has named one.
    #[inline(always)]
    pub(super) fn named_slot(&self) -> Option<u32> {
        match self.slot {
            Slot::At(slot) => Some(slot),
            Slot::Predicted => Some(self.predicted),
            Slot::Absent | Slot::Rare => None,
        }
    }

    /// The probe of the hot cache for the key.
    #[inline(always)]
    pub(super) fn cache_probe<K: KeySpace>(&self, key: &K::Key, geometry: &SegmentGeometry) -> CacheProbe {
        let Self { hash, predicted, window, slots, .. } = *self;
        CacheProbe {
            hash,
            key: K::tag(key),
            predicted,
            window,
            slots,
            slot_bytes: geometry.slot_bytes as u32,
        }
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels> Attempts<'_, K, L, M> {
    /// Where a key can be, if the page of the directory for it is here.
    #[inline(always)]
    pub(super) fn locate(&self, key: &K::Key) -> Option<Place> {
        let view = self.table.view();
        Some(Place::of::<K>(&SlotWindow::of(view, key)?, key, view.geometry()))
    }

    /// Where each of a group of keys can be. In a directory that outgrows the cache, keys wait for
    /// its pages together.
    #[inline(always)]
    pub(super) fn locate_all(&self, keys: &[&K::Key], mut take: impl FnMut(&Self, usize, Place)) {
        let view = self.table.view();
        let large = view.models().resident().filter(|directory| directory.len() > CACHED_SEGMENTS);
        let Some(directory) = large else {
            let all = keys.iter().enumerate();
            return all.for_each(|(at, key)| {
                if let Some(place) = self.locate(key) {
                    take(self, at, place);
                }
            });
        };
        let mut pages = [None; TOGETHER];
        for (page, key) in pages.iter_mut().zip(keys) {
            *page = directory.page_for(key);
        }
        for (page, key) in pages.iter().zip(keys) {
            if let Some(page) = page {
                page.prefetch(key);
            }
        }
        for (at, (page, key)) in pages.iter().zip(keys).enumerate() {
            if let Some((segment, shared)) = page.and_then(|page| page.find_shared(key)) {
                let target = SlotWindow::in_segment(segment, key, shared, view.encoders());
                take(self, at, Place::of::<K>(&target, key, view.geometry()));
            }
        }
    }

    /// Has the lines of a key's window fetched.
    #[inline(always)]
    pub(super) fn prefetch_window(&self, place: &Place) {
        self.look.prefetch(place.words, place.word_bytes as usize);
    }

    /// Has a slot's lines fetched.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, place: &Place, slot: u32) {
        let slot_bytes = self.table.view().geometry().slot_bytes;
        self.look.prefetch(place.slots + u64::from(slot) * slot_bytes as u64, slot_bytes);
    }

    /// Has the slots fetched that lie near the predicted one: where the key is among them, its slot
    /// comes with the fingerprints that name it.
    #[inline(always)]
    pub(super) fn prefetch_near(&self, place: &Place) {
        let slot_bytes = self.table.view().geometry().slot_bytes;
        let predicted = place.slots + u64::from(place.predicted) * slot_bytes as u64;
        // As many whole lines for every key, so that no jump depends on it; some may lie beside the
        // window.
        let first = predicted.saturating_sub(NEAR_BYTES as u64) / LINE_BYTES as u64 * LINE_BYTES as u64;
        self.look.prefetch(first, (2 * NEAR_BYTES + slot_bytes).next_multiple_of(LINE_BYTES));
    }

    /// Matches a key's window.
    #[inline(always)]
    pub(super) fn match_window(&mut self, place: &Place) -> Result<Slot, ReadError> {
        let SegmentGeometry { width, stores_fingerprints, .. } = *self.table.view().geometry();
        if !stores_fingerprints {
            return Ok(Slot::Rare);
        }
        let words = self.look.words(place.words, place.word_bytes as usize)?;
        let window = Fingerprints { words, skip: place.skip as usize, used: place.used as usize, width };
        let hits = self.kernels.hits_in(window, width.of_hash(place.hash), self.copy);
        Ok(match hits.count {
            _ if hits.frozen => Slot::Rare,
            1 => Slot::At(place.window.first + hits.first),
            0 => Slot::Absent,
            _ => Slot::Rare,
        })
    }

    /// Has what a key's plan looks at first fetched.
    #[inline(always)]
    pub(super) fn prefetch_first(&self, place: &Place) {
        match place.plan {
            Plan::Range => {
                let slot_bytes = self.table.view().geometry().slot_bytes;
                let first = place.slots + u64::from(place.window.first) * slot_bytes as u64;
                self.look.prefetch(first, place.window.len() as usize * slot_bytes);
            }
            Plan::Speculative => {
                self.prefetch_slot(place, place.predicted);
                self.prefetch_window(place);
            }
            _ => self.prefetch_window(place),
        }
    }

    /// Looks for a key's slot as its plan has it, which a caller who knows it by itself says.
    #[inline(always)]
    pub(super) fn search(
        &mut self,
        plan: Plan,
        (key, place): (&K::Key, &Place),
        outcome: &mut Outcome,
    ) -> Result<Slot, ReadError> {
        match plan {
            Plan::Range => self.search_slots(key, place),
            Plan::Speculative => match self.slot(key, place, place.predicted, outcome)? {
                Seen::Found => Ok(Slot::Predicted),
                Seen::Rare => Ok(Slot::Rare),
                // What is in the slot if it is not the key, or not yet, is for the fingerprints to
                // say.
                Seen::Other | Seen::Nothing => self.match_window(place),
            },
            _ => self.match_window(place),
        }
    }

    /// Looks for the slot of a window that shows a key.
    #[inline(always)]
    fn search_slots(&mut self, key: &K::Key, place: &Place) -> Result<Slot, ReadError> {
        let view = self.table.view();
        let Some(word) = shown_word(key, view) else { return Ok(Slot::Rare) };
        let slot_bytes = view.geometry().slot_bytes;
        let first = place.slots + u64::from(place.window.first) * slot_bytes as u64;
        let words = self.look.words(first, place.window.len() as usize * slot_bytes)?;
        let hits = self.kernels.key_hits_in(words, view.stride(), word, self.copy);
        Ok(match hits.count {
            _ if hits.frozen => Slot::Rare,
            1 => Slot::At(place.window.first + (hits.word as usize * 8 / slot_bytes) as u32),
            0 => Slot::Absent,
            _ => Slot::Rare,
        })
    }

    /// Whether this is the answer: the slot is the key's and has its value, or the key is nowhere.
    #[inline(always)]
    pub(super) fn verify(
        &mut self,
        plan: Plan,
        (key, place): (&K::Key, &Place),
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        outcome.plan = plan;
        let mut seen = Seen::Nothing;
        match place.slot {
            Slot::At(slot) => {
                // The window was looked at before the slot is.
                fence(Ordering::Acquire);
                seen = self.slot(key, place, slot, outcome)?;
            }
            Slot::Predicted => seen = Seen::Found,
            Slot::Absent | Slot::Rare => {}
        }
        if seen == Seen::Found {
            outcome.cost = self.cost(plan, place, seen);
            return Ok(true);
        }
        let Some(cost) = self.absence(plan, place, seen)? else { return Ok(false) };
        outcome.cost = cost;
        Ok(true)
    }

    /// The cost of seeing that a key is absent. That it is may be believed of a segment whose
    /// memory had no other use yet.
    #[inline(never)]
    fn absence(&mut self, plan: Plan, place: &Place, seen: Seen) -> Result<Option<Cost>, ReadError> {
        match (place.slot, seen) {
            (Slot::Rare, _) | (_, Seen::Rare) => return Ok(None),
            // The remains of a deleted record, which were the only ones to be looked at: others may
            // be frozen.
            (Slot::At(_), _) if plan == Plan::Range => return Ok(None),
            _ => {}
        }
        let is_held = self.look.load_after_reads(REUSE_OFFSET)? <= self.table.view().holds_until();
        Ok(is_held.then(|| self.cost(plan, place, seen)))
    }

    /// The cost of the answer.
    #[inline(always)]
    fn cost(&self, plan: Plan, place: &Place, seen: Seen) -> Cost {
        let slot_bytes = self.table.view().geometry().slot_bytes as u64;
        let (mut reads, mut bytes) = match plan {
            Plan::Range => (1, u64::from(place.window.len()) * slot_bytes),
            Plan::Speculative => (2, u64::from(place.word_bytes) + slot_bytes),
            _ => (1, u64::from(place.word_bytes)),
        };
        let is_second = matches!(place.slot, Slot::At(_)) && plan != Plan::Range;
        if is_second {
            (reads, bytes) = (reads + 1, bytes + slot_bytes);
        }
        let false_candidates = u32::from(seen == Seen::Other);
        Cost { round_trips: 1 + u32::from(is_second), reads, bytes, false_candidates, ..Cost::default() }
    }

    /// Whether this is the answer: the slot that the hot cache names is the key's and has its
    /// value.
    #[inline(always)]
    pub(super) fn cached(
        &mut self,
        key: &K::Key,
        (place, cached): (&Place, CachedSlot),
        handle: &mut CacheHandle,
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        let Seen::Found = self.slot(key, place, cached.slot, outcome)? else { return Ok(false) };
        outcome.plan = Plan::Cached;
        outcome.cost.reads = 1;
        outcome.cost.bytes = self.table.view().geometry().slot_bytes as u64;
        if let Some(cache) = self.table.cache() {
            cache.confirm(&place.cache_probe::<K>(key, self.table.view().geometry()), cached, handle);
        }
        Ok(true)
    }

    /// Tells the hot cache where a key was found that it did not know, and how many bytes that
    /// would have saved.
    #[inline]
    pub(super) fn learn(
        &self,
        cache: &HotCache,
        key: &K::Key,
        (place, slot): (&Place, u32),
        handle: &mut CacheHandle,
    ) {
        let geometry = self.table.view().geometry();
        let slot_bytes = geometry.slot_bytes as u64;
        let saves = match place.plan {
            Plan::Range => u64::from(place.window.len()) * slot_bytes,
            _ => u64::from(place.word_bytes) + slot_bytes,
        };
        let saves = saves.try_into().unwrap_or(u32::MAX);
        cache.learn(&place.cache_probe::<K>(key, geometry), slot, saves, handle);
    }

    /// Looks at a slot. What that costs is not counted here.
    #[inline(always)]
    fn slot(
        &mut self,
        key: &K::Key,
        place: &Place,
        slot: u32,
        outcome: &mut Outcome,
    ) -> Result<Seen, ReadError> {
        let view = self.table.view();
        let slot_bytes = view.geometry().slot_bytes;
        let at = place.slots + u64::from(slot) * slot_bytes as u64;
        let room = self.records.room(slot_bytes / 8);
        // A length that is known makes the copy a few loads.
        match <&mut [u64; 3]>::try_from(&mut *room) {
            Ok(room) if view.guards_slots() => self.look.record(at, room)?,
            _ if view.guards_slots() => self.look.record(at, room)?,
            _ => self.look.copy(at, room)?,
        }
        match check::<K>(room, place.generation, key, Rules::of(view)) {
            Ok(Check::Found { version, value: Stored::Here(value) }) => {
                let from = value.as_ptr() as usize - room.as_bytes().as_ptr() as usize;
                let value = from..from + value.len();
                outcome.version = Some(version);
                outcome.value = self.records.keep(slot_bytes / 8, value);
                Ok(Seen::Found)
            }
            Ok(Check::Other) => Ok(Seen::Other),
            Ok(Check::Nothing) => Ok(Seen::Nothing),
            _ => Ok(Seen::Rare),
        }
    }
}
