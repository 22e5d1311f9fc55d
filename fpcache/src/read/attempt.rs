//! The short way to a record over memory looked at in place: window, slot, answer.
//!
//! Where a round trip is a cache miss, the fewer instructions a lookup takes, the more of the next
//! one the processor has begun while this one waits for memory. So the common course of a lookup,
//! one fingerprint that matches and a slot that is the key's, is gone in one line, without state
//! that is kept between round trips, and costs are counted when the answer is there. Whatever else
//! shows is left to the engine, which begins anew. What is matched and verified, and how, is the same.

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;
use zerocopy::IntoBytes;

use super::outcome::Outcome;
use super::records::Records;
use super::target::Target;
use super::verify::{Check, Rules, check, match_window};
use super::{Cost, Plan, ReadError};
use crate::cache::{Hint, Visitor};
use crate::key_space::KeySpace;
use crate::layout::{FingerprintSpan, REUSE_OFFSET, Stored};
use crate::matching::Kernels;
use crate::table::Table;

/// Keys that are under way together: their windows and slots fit a first-level cache.
pub(super) const TOGETHER: usize = 32;
/// Segments whose directory stays in a second-level cache: 42 bytes each.
const CACHED_SEGMENTS: usize = 40_000;

/// Lookups of one table by the short way.
pub(super) struct Attempts<'a, K: KeySpace, L, M> {
    pub(super) look: &'a mut L,
    pub(super) table: &'a Table<K>,
    pub(super) kernels: M,
    pub(super) records: &'a mut Records,
    /// Words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// A key's place, and what else of a key is needed from here on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) target: Target,
    pub(super) hash: u64,
    /// Where its window's fingerprints lie.
    pub(super) span: FingerprintSpan,
    /// What is known of its slot.
    pub(super) slot: Slot,
}

/// Where in its window a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// In the only one whose fingerprint matches.
    At(u32),
    /// Nowhere.
    Absent,
    /// For the engine to say.
    Rare,
}

impl Place {
    /// Of a key that the engine looks up.
    pub(super) const RARE: Self = {
        let span = FingerprintSpan { offset: 0, len: 0, skip: 0, used: 0 };
        Self { target: Target::UNKNOWN, hash: 0, span, slot: Slot::Rare }
    };
}

impl<K: KeySpace, L: InPlace, M: Kernels> Attempts<'_, K, L, M> {
    /// Where a key can be, if the page of the directory for it is here.
    #[inline(always)]
    pub(super) fn locate(&self, key: &K::Key) -> Option<Place> {
        Some(self.place(Target::of(self.table.snapshot(), key)?, key))
    }

    /// Where each of a group of keys can be. In a directory that outgrows the cache, keys wait for its pages together.
    #[inline(always)]
    pub(super) fn locate_all(&self, keys: &[&K::Key], mut take: impl FnMut(&Self, usize, Place)) {
        let snapshot = self.table.snapshot();
        let large = snapshot.models().resident().filter(|directory| directory.len() > CACHED_SEGMENTS);
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
                let target = Target::in_segment(segment, key, shared, snapshot.coders());
                take(self, at, self.place(target, key));
            }
        }
    }

    #[inline(always)]
    fn place(&self, target: Target, key: &K::Key) -> Place {
        let span = self.table.snapshot().geometry().fingerprint_span(target.window);
        Place { target, hash: K::hash(key), span, slot: Slot::Absent }
    }

    /// Has the lines of a key's window fetched, and that of the slot its prediction names.
    #[inline(always)]
    pub(super) fn prefetch_window(&self, Place { target, span, .. }: &Place) {
        self.look.prefetch(target.segment + span.offset as u64, span.len);
    }

    /// Has a slot's lines fetched.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, target: &Target, slot: u32) {
        let geometry = self.table.snapshot().geometry();
        let at = target.segment + geometry.slot_offset(target.cap, slot) as u64;
        self.look.prefetch(at, geometry.slot_bytes);
    }

    /// Matches a key's window.
    #[inline(always)]
    pub(super) fn match_window(&mut self, place: &Place) -> Result<Slot, ReadError> {
        let (Place { target, span, .. }, geometry) = (place, self.table.snapshot().geometry());
        let words = self.look.words(target.segment + span.offset as u64, span.len)?;
        let hits = match_window((words, *span), geometry, place.hash, self.kernels, self.copy);
        Ok(match hits.count {
            _ if hits.frozen => Slot::Rare,
            1 => Slot::At(target.window.first + hits.first),
            0 => Slot::Absent,
            _ => Slot::Rare,
        })
    }

    /// The answer, if the slot is the key's and has its value, or if the key is nowhere.
    #[inline(always)]
    pub(super) fn verify(&mut self, key: &K::Key, place: &Place) -> Result<Option<Outcome>, ReadError> {
        let snapshot = self.table.snapshot();
        let cost = Cost { round_trips: 1, reads: 1, bytes: place.span.len as u64, ..Cost::default() };
        let absent = Outcome { version: None, plan: Plan::TwoStage, cost, value: 0..0 };
        match place.slot {
            Slot::Rare => Ok(None),
            Slot::Absent => {
                // That it is absent may be believed of a segment whose memory had no other use yet.
                let is_held = self.look.load_behind(REUSE_OFFSET)? <= snapshot.holds_until();
                Ok(is_held.then_some(absent))
            }
            Slot::At(slot) => {
                // The window was looked at before the slot is.
                fence(Ordering::Acquire);
                let found = self.slot(key, &place.target, slot)?;
                Ok(found.map(|mut outcome| {
                    outcome.plan = Plan::TwoStage;
                    outcome.cost.round_trips += cost.round_trips;
                    outcome.cost.reads += cost.reads;
                    outcome.cost.bytes += cost.bytes;
                    outcome
                }))
            }
        }
    }

    /// The answer, if the slot that the hot cache names is the key's and has its value.
    #[inline(always)]
    pub(super) fn cached(
        &mut self,
        key: &K::Key,
        place: &Place,
        hint: Hint,
        visitor: &mut Visitor,
    ) -> Result<Option<Outcome>, ReadError> {
        let found = self.slot(key, &place.target, hint.slot)?;
        if let (Some(_), Some(cache)) = (&found, self.table.cache()) {
            let geometry = self.table.snapshot().geometry();
            cache.confirm(&place.target.spot::<K>((key, place.hash), geometry), hint, visitor);
        }
        Ok(found)
    }

    #[inline(always)]
    fn slot(&mut self, key: &K::Key, target: &Target, slot: u32) -> Result<Option<Outcome>, ReadError> {
        let geometry = self.table.snapshot().geometry();
        let at = target.segment + geometry.slot_offset(target.cap, slot) as u64;
        let words = geometry.slot_bytes / 8;
        let room = self.records.room(words);
        // A length that is known makes the copy a few loads.
        match <&mut [u64; 3]>::try_from(&mut *room) {
            Ok(room) if self.table.snapshot().guards_slots() => self.look.record(at, room)?,
            _ if self.table.snapshot().guards_slots() => self.look.record(at, room)?,
            _ => self.look.copy(at, room)?,
        }
        let rules = Rules::of(self.table.snapshot());
        match check::<K>(room, target, key, rules) {
            Ok(Check::Found { version, value: Stored::Here(value) }) => {
                let from = value.as_ptr() as usize - room.as_bytes().as_ptr() as usize;
                let value = from..from + value.len();
                let bytes = geometry.slot_bytes as u64;
                let cost = Cost { round_trips: 1, reads: 1, bytes, ..Cost::default() };
                let value = self.records.keep(words, value);
                Ok(Some(Outcome { version: Some(version), plan: Plan::Cached, cost, value }))
            }
            _ => Ok(None),
        }
    }
}
