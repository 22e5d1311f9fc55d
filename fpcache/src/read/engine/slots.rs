//! The slots that have come for a key, and what they say of it.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::{Engine, Lists, Probe, Requested, Source, Stage};
use crate::cache::CachedSlot;
use crate::key_space::KeySpace;
use crate::layout::{Stored, ValueExtent};
use crate::matching::{Fingerprints, Kernels};
use crate::read::ReadError;
use crate::read::outcome::Outcome;
use crate::read::verify::{Check, Rules, check, shown_word, shows};

impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Asks for the slots of several matching fingerprints, or for the window if they are more than
    /// half of it.
    #[cold]
    pub(super) fn ask_several(
        &mut self,
        count: u32,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let (geometry, target) = (self.geometry(), probe.target);
        if count * 2 > target.window.len() {
            self.fall_back(probe, outcome);
            return Ok(());
        }
        let span = geometry.fingerprint_span(target.window);
        let words = self.source.words(&probe.asked)?;
        let window = Fingerprints { words, skip: span.skip, used: span.used, width: geometry.width };
        let Lists { slots, copy, .. } = &mut *self.lists;
        slots.clear();
        let wanted = geometry.width.of_hash(probe.hash);
        if self.kernels.find_in(window, wanted, target.window.first, slots, copy) {
            return Err(ReadError::Stale);
        }
        // Looked at in place they may be others by now, or none: one moment or the other will do.
        let (first, count) = (self.lists.candidates.len() as u32, self.lists.slots.len() as u32);
        for at in 0..self.lists.slots.len() {
            let slot = self.lists.slots[at];
            let asked = self.ask_slots(&target, (slot, 1), outcome);
            self.lists.candidates.push((slot, asked));
        }
        outcome.cost.round_trips += 1;
        probe.stage = Stage::Slots(first, count);
        Ok(())
    }

    /// Takes the slot whose fingerprint matched.
    #[inline(always)]
    pub(super) fn take_slot(
        &mut self,
        slot: u32,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        probe.stage = Stage::Done;
        match self.check(&asked, 0, key, probe)? {
            SlotAnswer::Found(found) => {
                self.found(found, probe, outcome);
                self.learn(slot, key, probe, outcome);
            }
            SlotAnswer::Other => {
                self.unconfirmed.absent = true;
                outcome.cost.false_candidates += 1;
            }
            SlotAnswer::Nothing => self.unconfirmed.absent = true,
            SlotAnswer::Torn => self.fall_back(probe, outcome),
        }
        Ok(())
    }

    /// Takes the slots whose fingerprints matched. One that could not be told may be the key.
    #[cold]
    pub(super) fn take_slots(
        &mut self,
        (first, count): (u32, u32),
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        probe.stage = Stage::Done;
        let (mut is_found, mut is_torn) = (false, false);
        for at in first..first + count {
            let (slot, asked) = self.lists.candidates[at as usize];
            match self.check(&asked, 0, key, probe)? {
                SlotAnswer::Found(found) => {
                    is_found = true;
                    self.found(found, probe, outcome);
                    self.learn(slot, key, probe, outcome);
                }
                SlotAnswer::Other => outcome.cost.false_candidates += 1,
                SlotAnswer::Nothing => {}
                SlotAnswer::Torn => is_torn = true,
            }
        }
        match is_torn {
            _ if is_found => {}
            true => self.fall_back(probe, outcome),
            false => self.unconfirmed.absent = true,
        }
        Ok(())
    }

    /// Takes the slot that the hot cache named; if it is not the key's, the entry goes.
    #[inline(always)]
    pub(super) fn take_cached(
        &mut self,
        cached: CachedSlot,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        probe.stage = Stage::Done;
        match self.check(&asked, 0, key, probe)? {
            SlotAnswer::Found(found) => {
                self.found(found, probe, outcome);
                if let Some(cache) = self.table.cache() {
                    cache.confirm(&self.cache_probe(probe, key), cached, self.handle);
                }
            }
            SlotAnswer::Torn => self.fall_back(probe, outcome),
            SlotAnswer::Other | SlotAnswer::Nothing => self.take_conflict(cached, key, probe, outcome),
        }
        Ok(())
    }

    #[cold]
    fn take_conflict(&mut self, cached: CachedSlot, key: &K::Key, probe: &mut Probe, outcome: &mut Outcome) {
        if let Some(cache) = self.table.cache() {
            cache.forget(&self.cache_probe(probe, key), cached, self.handle);
        }
        outcome.cost.conflicts += 1;
        outcome.cost.round_trips += 1;
        let plan = self.table.planner().after_conflict(&self.rule, probe.target.window.len());
        self.ask(plan, probe, outcome);
    }

    /// Takes a predicted slot; if it is not the key's, its fingerprints have come as well.
    #[inline(always)]
    pub(super) fn take_predicted(
        &mut self,
        fingerprints: Requested,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let asked = probe.asked;
        if let SlotAnswer::Found(found) = self.check(&asked, 0, key, probe)? {
            probe.stage = Stage::Done;
            self.found(found, probe, outcome);
            self.learn(probe.target.predicted, key, probe, outcome);
            return Ok(());
        }
        // What is in the slot if it is not the key, or not yet, is for the fingerprints to say.
        probe.asked = fingerprints;
        self.take_fingerprints(probe, outcome)
    }

    /// Looks for the key in its window's slots.
    #[inline(always)]
    pub(super) fn take_window(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let (view, asked) = (self.view(), probe.asked);
        let Some(word) = shown_word(key, view) else { return self.take_each(key, probe, outcome) };
        let words = self.source.words(&asked)?;
        let hits = self.kernels.key_hits_in(words, view.stride(), word, &mut self.lists.copy);
        if hits.frozen() {
            return Err(ReadError::Stale);
        }
        probe.stage = Stage::Done;
        match hits.count() {
            0 => self.unconfirmed.absent = true,
            1 => match self.check(&asked, hits.first() as usize * 8, key, probe)? {
                SlotAnswer::Found(found) => {
                    let slot = hits.first() as usize * 8 / self.geometry().slot_bytes;
                    self.found(found, probe, outcome);
                    self.learn(probe.target.window.first + slot as u32, key, probe, outcome);
                }
                SlotAnswer::Torn => self.fall_back(probe, outcome),
                // The remains of a deleted record, which were the only ones to be looked at: others
                // may be frozen.
                SlotAnswer::Other | SlotAnswer::Nothing => return self.take_each(key, probe, outcome),
            },
            // The remains of deleted records, perhaps beside a live one.
            _ => return self.take_each(key, probe, outcome),
        }
        Ok(())
    }

    /// The same, slot by slot.
    #[cold]
    fn take_each(&mut self, key: &K::Key, probe: &mut Probe, outcome: &mut Outcome) -> Result<(), ReadError> {
        let (window, slot_bytes) = (probe.target.window, self.geometry().slot_bytes);
        let (asked, rules) = (probe.asked, Rules::of(self.view()));
        probe.stage = Stage::Done;
        let mut is_torn = false;
        for at in 0..window.len() {
            let room = self.records.room(slot_bytes / 8);
            self.source.slot(&asked, at as usize * slot_bytes, room)?;
            if !shows::<K>(room.as_bytes(), key, rules.shape) {
                continue;
            }
            match self.check(&asked, at as usize * slot_bytes, key, probe)? {
                SlotAnswer::Found(found) => {
                    self.found(found, probe, outcome);
                    self.learn(window.first + at, key, probe, outcome);
                    return Ok(());
                }
                SlotAnswer::Torn => is_torn = true,
                SlotAnswer::Other | SlotAnswer::Nothing => {}
            }
        }
        match is_torn {
            true => self.fall_back(probe, outcome),
            false => self.unconfirmed.absent = true,
        }
        Ok(())
    }

    /// Copies a slot that was asked for, or that lies `at` bytes after the beginning of it, and
    /// says what it is.
    #[inline(always)]
    pub(super) fn check(
        &mut self,
        asked: &Requested,
        at: usize,
        key: &K::Key,
        probe: &Probe,
    ) -> Result<SlotAnswer, ReadError> {
        let words = self.geometry().slot_bytes / 8;
        let room = self.records.room(words);
        self.source.slot(asked, at, room)?;
        let start = room.as_ptr() as usize;
        let slot = match check::<K>(room, probe.target.generation, key, Rules::of(self.table.view()))? {
            Check::Other => SlotAnswer::Other,
            Check::Nothing => SlotAnswer::Nothing,
            Check::Torn => SlotAnswer::Torn,
            Check::Found { version, value: Stored::Here(value) } => {
                let from = value.as_ptr() as usize - start;
                let value = from..from + value.len();
                SlotAnswer::Found(SlotRecord { version, value: RecordValue::Here(value) })
            }
            Check::Found { version, value: Stored::External(extent) } => {
                SlotAnswer::Found(SlotRecord { version, value: RecordValue::External(extent) })
            }
        };
        Ok(slot)
    }

    /// Keeps an answer, or asks for the value that it lacks.
    #[inline(always)]
    pub(super) fn found(&mut self, found: SlotRecord, probe: &mut Probe, outcome: &mut Outcome) {
        outcome.version = Some(found.version);
        match found.value {
            RecordValue::Here(value) => {
                probe.stage = Stage::Done;
                outcome.value = self.records.keep(self.geometry().slot_bytes / 8, value);
            }
            RecordValue::External(extent) => self.ask_value(found.version, extent, probe, outcome),
        }
    }

    /// Tells the hot cache where a key was found that it did not know.
    #[inline(always)]
    fn learn(&mut self, slot: u32, key: &K::Key, probe: &Probe, outcome: &Outcome) {
        if let Some(cache) = self.table.cache()
            && self.rule.serves_window(probe.target.window.len())
        {
            let saves = probe.target.bytes_by(outcome.plan, self.geometry());
            cache.learn(&self.cache_probe(probe, key), slot, saves, self.handle);
        }
    }

    /// The probe of the hot cache for the key.
    #[inline(always)]
    pub(super) fn cache_probe(&self, probe: &Probe, key: &K::Key) -> crate::cache::CacheProbe {
        probe.target.cache_probe::<K>((key, probe.hash), self.geometry())
    }
}

/// The state of a slot for a key.
pub(super) enum SlotAnswer {
    Found(SlotRecord),
    Other,
    Nothing,
    Torn,
}

/// A record that was found.
pub(super) struct SlotRecord {
    version: u32,
    value: RecordValue,
}

enum RecordValue {
    /// Bytes of the slot that was copied last.
    Here(Range<usize>),
    External(ValueExtent),
}
