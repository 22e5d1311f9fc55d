//! The short way to a record over memory looked at in place: window, slot, answer.
//!
//! Where a round trip is a cache miss, the fewer instructions a lookup takes, the more of the next
//! one the processor has begun while this one waits for memory. So the common course of a lookup,
//! one fingerprint that matches and a slot that is the key's, is gone in one line, in registers,
//! and costs are counted when the answer is there. Range and speculative reads go the same way,
//! with another first step; records of a word each of key and value, which most tables have, with
//! another [last one](super::word). Whatever else shows is left to the engine, which begins anew.
//! What is matched and verified, and how, is the same.

mod lines;
mod place;

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;
use zerocopy::IntoBytes;

use super::line::LineFirst;
use crate::cache::{CacheHandle, CachedSlot, HotCache};
use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::layout::{REUSE_OFFSET, SegmentGeometry, Stored};
use crate::matching::{Fingerprints, Hits, Kernels};
use crate::plan::{Plan, Rule};
use crate::read::outcome::Outcome;
use crate::read::records::Records;
use crate::read::verify::{Check, Rules, check, copy_slot, shown_word};
use crate::read::{Cost, ReadError};
use crate::table::{Table, WORD_SLOT_BYTES};
pub(super) use place::{Attempt, Slot};

/// Keys that are under way together: their windows and slots fit a first-level cache.
pub(in crate::read) const TOGETHER: usize = 32;

/// Lookups of one table by the short way. `WIDTH` is that of its fingerprints, in bytes, if it is
/// one [of words](Table::word_width), and 0 if not: it lets the compiler leave out what words never
/// need.
pub(super) struct Attempts<'a, K: KeySpace, L, M, const WIDTH: usize> {
    pub(super) look: &'a mut L,
    pub(super) table: &'a Table<K>,
    pub(super) kernels: M,
    pub(super) records: &'a mut Records,
    /// Words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// The state of a slot for a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its own, and its value is here.
    Found,
    /// Another key's.
    Other,
    /// No key's.
    Nothing,
    /// For the engine to say.
    Rare,
}

impl<K: KeySpace, L: InPlace, M: Kernels, const WIDTH: usize> Attempts<'_, K, L, M, WIDTH> {
    /// Whether the table has words.
    const WORDS: bool = WIDTH > 0;

    /// Whether the short way led to the answer of one key; if not, the outcome may hold anything.
    #[inline(always)]
    pub(super) fn single(
        &mut self,
        key: &K::Key,
        rule: &Rule,
        handle: &mut CacheHandle,
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        let Some(mut attempt) = self.locate(key, rule) else { return Ok(false) };
        let slots = attempt.window.len();
        let cache = self.table.cache().filter(|_| rule.asks(slots));
        if let Some(cache) = cache {
            let cache_probe = attempt.cache_probe::<K>(key, self.slot_bytes());
            if let Some(cached) = cache.probe(&cache_probe) {
                return self.cached(key, (&attempt, cached), handle, outcome);
            }
        }
        let is_answer = if attempt.plan == Plan::TwoStage {
            // Fingerprints first: they are waited for first.
            self.prefetch_window(&attempt);
            self.prefetch_near(&attempt);
            attempt.slot = self.search(Plan::TwoStage, (key, &attempt), outcome)?;
            searched();
            self.verify(Plan::TwoStage, (key, &attempt), outcome)?
        } else {
            self.prefetch_first(&attempt);
            attempt.slot = self.search(attempt.plan, (key, &attempt), outcome)?;
            searched();
            self.verify(attempt.plan, (key, &attempt), outcome)?
        };
        // As the engine does: what the cache did not know, or is not asked about, it is told if it
        // keeps such windows.
        if let (true, Some(cache), Some(slot)) = (is_answer, self.table.cache(), attempt.named_slot())
            && outcome.version.is_some()
            && rule.serves_window(slots)
        {
            self.learn(cache, key, (&attempt, slot), handle);
        }
        Ok(is_answer)
    }

    /// The answers of those keys whom the short way leads there; whether these are all. Others have
    /// no reads in their costs. At most [`TOGETHER`] keys.
    #[inline(always)]
    pub(super) fn group(
        &mut self,
        keys: &[&K::Key],
        rule: &Rule,
        outcomes: &mut [Outcome],
        line_first: &mut LineFirst,
    ) -> Result<bool, ReadError> {
        let has_cache = !Self::WORDS && self.table.cache().is_some();
        let by_lines = self.has_long_windows() && line_first.is_worth_it();
        let mut attempts = [Attempt::RARE; TOGETHER];
        let mut are_two_stage = true;
        self.locate_all(keys, rule, |this, at, attempt| {
            if !(has_cache && rule.asks(attempt.window.len())) {
                are_two_stage &= attempt.plan == Plan::TwoStage;
                attempts[at] = attempt;
                match by_lines && attempt.plan == Plan::TwoStage {
                    true => this.prefetch_line(attempt.line),
                    false => this.prefetch_first(&attempt),
                }
            }
        });
        let attempts = &mut attempts[..keys.len()];
        if by_lines && are_two_stage {
            let missed = self.search_lines(keys, attempts)?;
            line_first.note(keys.len() - missed, missed);
            return self.verify_all(keys, attempts, outcomes, |_| Plan::TwoStage);
        }
        line_first.pass(keys.len());
        // Where it is one plan's, the code is that plan's.
        match are_two_stage {
            true => self.finish(keys, attempts, outcomes, |_| Plan::TwoStage),
            false => self.finish(keys, attempts, outcomes, |attempt| attempt.plan),
        }
    }

    /// Goes on with keys that have been located, by these plans.
    #[inline(always)]
    fn finish(
        &mut self,
        keys: &[&K::Key],
        attempts: &mut [Attempt],
        outcomes: &mut [Outcome],
        plan: impl Fn(&Attempt) -> Plan,
    ) -> Result<bool, ReadError> {
        for ((key, attempt), outcome) in keys.iter().zip(attempts.iter_mut()).zip(outcomes.iter_mut()) {
            if attempt.slot != Slot::Rare {
                attempt.slot = self.search(plan(attempt), (key, attempt), outcome)?;
            }
            if let Slot::At(slot) = attempt.slot {
                self.prefetch_slot(attempt, slot);
            }
        }
        self.verify_all(keys, attempts, outcomes, plan)
    }

    /// The answers of keys whose slots have been looked for; whether these are all.
    #[inline(always)]
    fn verify_all(
        &mut self,
        keys: &[&K::Key],
        attempts: &[Attempt],
        outcomes: &mut [Outcome],
        plan: impl Fn(&Attempt) -> Plan,
    ) -> Result<bool, ReadError> {
        searched();
        let (mut are_all, mut trips, mut reads, mut bytes) = (true, 0, 0, 0);
        let values = if Self::WORDS { self.records.keep_words(keys.len()) } else { 0 };
        for (((key, attempt), outcome), word) in keys.iter().zip(attempts.iter()).zip(outcomes).zip(values..)
        {
            let is_answer = match Self::WORDS {
                true => self.verify_word(plan(attempt), (key, attempt), outcome, word)?,
                false => self.verify(plan(attempt), (key, attempt), outcome)?,
            };
            if is_answer {
                trips = outcome.cost.round_trips.max(trips);
                reads += outcome.cost.reads;
                bytes += outcome.cost.bytes;
            } else {
                are_all = false;
            }
        }
        self.look.count(trips, reads, bytes)?;
        Ok(are_all)
    }

    /// The hash of a key, which is kept where it may take long to compute.
    #[inline(always)]
    fn hash(&self, key: &K::Key, attempt: &Attempt) -> u64 {
        if Self::WORDS { K::hash(key) } else { attempt.hash }
    }

    /// The table's geometry, of which constants are what `WIDTH` tells.
    #[inline(always)]
    pub(super) fn geometry(&self) -> SegmentGeometry {
        let geometry = *self.table.view().geometry();
        let slot_bytes = WORD_SLOT_BYTES as usize;
        match FingerprintWidth::of_bytes(WIDTH) {
            Some(width) => SegmentGeometry { width, stores_fingerprints: true, slot_bytes, ..geometry },
            None => geometry,
        }
    }

    /// Bytes of a slot.
    #[inline(always)]
    pub(super) fn slot_bytes(&self) -> usize {
        self.geometry().slot_bytes
    }

    /// Looks for a key's slot by the fingerprints of its window.
    #[inline(always)]
    pub(super) fn match_window(&mut self, (key, attempt): (&K::Key, &Attempt)) -> Result<Slot, ReadError> {
        if !self.geometry().stores_fingerprints {
            return Ok(Slot::Rare);
        }
        let hits = self.window_hits((key, attempt))?;
        Ok(attempt.slot_of(hits, |first| first))
    }

    /// The fingerprints of a window that are the key's, in a table that has fingerprints.
    #[inline(always)]
    pub(super) fn window_hits(&mut self, (key, attempt): (&K::Key, &Attempt)) -> Result<Hits, ReadError> {
        let width = self.geometry().width;
        let wanted = width.of_hash(self.hash(key, attempt));
        let words = self.look.words(attempt.words, attempt.word_bytes as usize)?;
        let (skip, used) = (attempt.skip as usize, attempt.used as usize);
        let window = Fingerprints { words, skip, used, width };
        Ok(self.kernels.hits_in(window, wanted, self.copy))
    }

    /// Looks for a key's slot as its plan has it, which a caller who knows it by itself says.
    #[inline(always)]
    pub(super) fn search(
        &mut self,
        plan: Plan,
        (key, attempt): (&K::Key, &Attempt),
        outcome: &mut Outcome,
    ) -> Result<Slot, ReadError> {
        match plan {
            Plan::Range => self.search_slots(key, attempt),
            Plan::Speculative => match self.slot(key, attempt, attempt.predicted, outcome)? {
                Seen::Found => Ok(Slot::Predicted),
                Seen::Rare => Ok(Slot::Rare),
                // What is in the slot if it is not the key, or not yet, is for the fingerprints to
                // say.
                Seen::Other | Seen::Nothing => self.match_window((key, attempt)),
            },
            // Groups are the engine's, and the others are not for a lookup by windows to decide.
            Plan::TwoStage | Plan::Cached | Plan::Groups | Plan::AtNode | Plan::ServerSide => {
                self.match_window((key, attempt))
            }
        }
    }

    /// Looks for the slot of a window that shows a key.
    #[inline(always)]
    pub(super) fn search_slots(&mut self, key: &K::Key, attempt: &Attempt) -> Result<Slot, ReadError> {
        let view = self.table.view();
        let Some(word) = shown_word(key, view) else { return Ok(Slot::Rare) };
        let slot_bytes = self.slot_bytes();
        let first = attempt.slot_address(attempt.window.first, slot_bytes);
        let words = self.look.words(first, attempt.window.len() as usize * slot_bytes)?;
        let hits = self.kernels.key_hits_in(words, view.stride(), word, self.copy);
        Ok(attempt.slot_of(hits, |first| (first as usize * 8 / slot_bytes) as u32))
    }

    /// Whether this is the answer: the slot is the key's and has its value, or the key is nowhere.
    #[inline(always)]
    fn verify(
        &mut self,
        plan: Plan,
        (key, attempt): (&K::Key, &Attempt),
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        outcome.plan = plan;
        let seen = match attempt.slot {
            Slot::At(slot) => self.slot(key, attempt, slot, outcome)?,
            Slot::Predicted => Seen::Found,
            Slot::Absent => Seen::Nothing,
            Slot::Rare => Seen::Rare,
        };
        let is_answer = seen == Seen::Found || self.is_absent(plan, attempt, seen)?;
        if is_answer {
            outcome.cost = self.cost(plan, attempt, seen);
        }
        Ok(is_answer)
    }

    /// Whether it was seen that a key is absent.
    #[inline(never)]
    fn is_absent(&mut self, plan: Plan, attempt: &Attempt, seen: Seen) -> Result<bool, ReadError> {
        match (attempt.slot, seen) {
            (_, Seen::Rare) => Ok(false),
            // The remains of a deleted record, which were the only ones to be looked at: others may
            // be frozen.
            (Slot::At(_), _) if plan == Plan::Range => Ok(false),
            _ => self.is_held(),
        }
    }

    /// Whether it may be believed that a key is absent whose window was looked at: no memory had
    /// another use yet.
    #[inline(always)]
    pub(super) fn is_held(&mut self) -> Result<bool, ReadError> {
        Ok(self.look.load_after_reads(REUSE_OFFSET)? <= self.table.view().holds_until())
    }

    /// The cost of the answer.
    #[inline(always)]
    pub(super) fn cost(&self, plan: Plan, attempt: &Attempt, seen: Seen) -> Cost {
        let slot_bytes = self.slot_bytes() as u64;
        let (mut reads, mut bytes) = match plan {
            Plan::Range => (1, u64::from(attempt.window.len()) * slot_bytes),
            Plan::Speculative => (2, u64::from(attempt.word_bytes) + slot_bytes),
            Plan::TwoStage | Plan::Cached | Plan::Groups | Plan::AtNode | Plan::ServerSide => {
                (1, u64::from(attempt.word_bytes))
            }
        };
        let is_second = matches!(attempt.slot, Slot::At(_)) && plan != Plan::Range;
        if is_second {
            (reads, bytes) = (reads + 1, bytes + slot_bytes);
        }
        let false_candidates = u32::from(seen == Seen::Other);
        Cost { round_trips: 1 + u32::from(is_second), reads, bytes, false_candidates, ..Cost::default() }
    }

    /// Whether this is the answer: the slot that the hot cache names is the key's and has its
    /// value.
    #[inline(always)]
    fn cached(
        &mut self,
        key: &K::Key,
        (attempt, cached): (&Attempt, CachedSlot),
        handle: &mut CacheHandle,
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        let Seen::Found = self.slot(key, attempt, cached.slot, outcome)? else { return Ok(false) };
        outcome.plan = Plan::Cached;
        outcome.cost.reads = 1;
        outcome.cost.bytes = self.slot_bytes() as u64;
        if let Some(cache) = self.table.cache() {
            cache.confirm(&attempt.cache_probe::<K>(key, self.slot_bytes()), cached, handle);
        }
        Ok(true)
    }

    /// Tells the hot cache where a key was found that it did not know, and how many bytes that
    /// would have saved.
    #[inline]
    fn learn(
        &self,
        cache: &HotCache,
        key: &K::Key,
        (attempt, slot): (&Attempt, u32),
        handle: &mut CacheHandle,
    ) {
        let slot_bytes = self.slot_bytes() as u64;
        let saves = match attempt.plan {
            Plan::Range => u64::from(attempt.window.len()) * slot_bytes,
            Plan::TwoStage
            | Plan::Cached
            | Plan::Speculative
            | Plan::Groups
            | Plan::AtNode
            | Plan::ServerSide => u64::from(attempt.word_bytes) + slot_bytes,
        };
        let saves = saves.try_into().unwrap_or(u32::MAX);
        cache.learn(&attempt.cache_probe::<K>(key, self.slot_bytes()), slot, saves, handle);
    }

    /// Looks at a slot. What that costs is not counted here.
    #[inline(always)]
    fn slot(
        &mut self,
        key: &K::Key,
        attempt: &Attempt,
        slot: u32,
        outcome: &mut Outcome,
    ) -> Result<Seen, ReadError> {
        let view = self.table.view();
        let at = attempt.slot_address(slot, self.slot_bytes());
        let room = self.records.room(self.slot_bytes() / 8);
        copy_slot(&mut *self.look, view, at, room)?;
        match check::<K>(room, attempt.generation, key, Rules::of(view)) {
            Ok(Check::Found { version, value: Stored::Here(value) }) => {
                let from = value.as_ptr() as usize - room.as_bytes().as_ptr() as usize;
                let value = from..from + value.len();
                outcome.version = Some(version);
                outcome.value = self.records.keep(self.slot_bytes() / 8, value);
                Ok(Seen::Found)
            }
            Ok(Check::Other) => Ok(Seen::Other),
            Ok(Check::Nothing) => Ok(Seen::Nothing),
            _ => Ok(Seen::Rare),
        }
    }
}

/// Orders the search before all looks from here on.
#[inline(always)]
pub(super) fn searched() {
    fence(Ordering::Acquire);
}
