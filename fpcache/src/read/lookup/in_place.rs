//! Lookups over memory looked at in place: the short way first, and the engine for what it leaves.

use std::slice::{from_mut, from_ref};

use fpcache_fabric::InPlace;

use super::word_steps::WordSteps;
use crate::cache::CacheHandle;
use crate::key_space::KeySpace;
use crate::layout::REUSE_OFFSET;
use crate::matching::{Kernels, WithKernels};
use crate::plan::Plan;
use crate::plan::Rule;
use crate::read::attempt::{Attempts, Place, Slot, TOGETHER};
use crate::read::engine::{Doubt, Engine, Probe};
use crate::read::outcome::{Outcome, Outcomes};
use crate::read::scratch::{GroupScratch, LookupScratch, fail};
use crate::read::source::Mapped;
use crate::read::{MAX_ATTEMPTS, ReadError, Wanted};
use crate::table::Table;

/// One key over memory looked at in place.
pub(super) struct Single<'a, K: KeySpace, L, F> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) scratch: &'a mut LookupScratch<K>,
    pub(super) key: &'a K::Key,
    pub(super) wanted: Wanted,
    pub(super) take: F,
}

impl<K: KeySpace, L: InPlace, R, F: FnOnce(&Outcome, Option<&[u8]>) -> R> WithKernels
    for Single<'_, K, L, F>
{
    type Output = Result<R, ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { mut look, table, scratch, key, wanted, take } = self;
        let LookupScratch { lists, record, handle, .. } = scratch;
        record.clear();
        let rule = table.planner().single();
        let (look_at, copy) = (&mut look, &mut lists.copy);
        let mut attempts = Attempts { look: look_at, table, kernels, records: &mut *record, copy };
        // Of its own, not the engine's: it can stay in registers.
        let mut outcome = Outcome::begun(Plan::TwoStage);
        // Groups are the engine's.
        if !rule.uses_groups() && attempts.single(key, rule, handle, &mut outcome)? {
            look.count(outcome.cost.round_trips, outcome.cost.reads, outcome.cost.bytes)?;
            let value = outcome.version.map(|_| record.bytes(outcome.value.clone()));
            return Ok(take(&outcome, value));
        }
        lists.clear();
        let mut outcome = Outcome::begun(Plan::TwoStage);
        let mut engine = Engine {
            table,
            rule: *rule,
            wanted,
            kernels,
            source: Mapped::new(look, table.view().guards_slots()),
            handle,
            lists,
            records: record,
            doubt: Doubt::default(),
            value_bytes: 0,
        };
        let mut probe = engine.begin(key, &mut outcome);
        let mut trips = 0;
        while !probe.is_done() {
            engine.end_trip(&mut trips)?;
            engine.take_in_place(key, &mut probe, &mut outcome)?;
        }
        engine.check_all_seen()?;
        let value = outcome.version.map(|_| engine.records.bytes(outcome.value.clone()));
        Ok(take(&outcome, value))
    }
}

/// A group of keys over memory looked at in place.
pub(super) struct Group<'a, K: KeySpace, L, I> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) scratch: &'a mut LookupScratch<K>,
    pub(super) keys: I,
    pub(super) wanted: Wanted,
}

impl<'k, K: KeySpace, L: InPlace, I: Iterator<Item = &'k K::Key>> WithKernels for Group<'_, K, L, I> {
    type Output = Result<(), ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { mut look, table, scratch, mut keys, wanted } = self;
        let LookupScratch { lists, handle, group, .. } = scratch;
        let GroupScratch { first: begins, probes, answers: Outcomes { outcomes: all, records }, .. } = group;
        let mut is_stale = false;
        let rule = table.planner().group(TOGETHER.min(keys.size_hint().0));
        let by_words = table.has_words() && rule.is_two_stage();
        let (mut some, mut count) = ([K::lowest(); TOGETHER], TOGETHER);
        while count == TOGETHER {
            count = 0;
            for (place, key) in some.iter_mut().zip(keys.by_ref()) {
                *place = key;
                count += 1;
            }
            if count == 0 {
                break;
            }
            let (some, first) = (&some[..count], all.len());
            all.resize(first + count, Outcome::begun(Plan::TwoStage));
            let outcomes = &mut all[first..];
            let (look_at, copy) = (&mut look, &mut lists.copy);
            let are_all = if by_words {
                let mut steps = WordSteps { look: look_at, table, kernels, copy };
                steps.group(some, &rule, outcomes, records)
            } else {
                let mut attempts = Attempts { look: look_at, table, kernels, records: &mut *records, copy };
                if rule.uses_groups() { Ok(false) } else { attempts.group(some, &rule, outcomes) }
            };
            if !matches!(are_all, Ok(true)) {
                let mut engine = Engine {
                    table,
                    rule,
                    wanted,
                    kernels,
                    source: Mapped::new(&mut look, table.view().guards_slots()),
                    handle: &mut *handle,
                    lists: &mut *lists,
                    records: &mut *records,
                    doubt: Doubt::default(),
                    value_bytes: 0,
                };
                let before = first - *begins;
                let fail_at = |at| {
                    is_stale = true;
                    fail(probes, before + at);
                };
                match are_all.and_then(|_| engine.look_up_rest(some, outcomes, fail_at)) {
                    Ok(()) => {}
                    Err(ReadError::Stale) => {
                        engine.look_up_each(some, outcomes, |at| {
                            is_stale = true;
                            fail(probes, before + at);
                        });
                    }
                    Err(error) => {
                        all.truncate(first);
                        return Err(if is_stale { ReadError::Stale } else { error });
                    }
                }
            }
        }
        if is_stale { Err(ReadError::Stale) } else { Ok(()) }
    }
}

/// The short way, where that is the plan.
impl<K: KeySpace, L: InPlace, M: Kernels> Attempts<'_, K, L, M> {
    /// Whether the short way led to the answer of one key; if not, the outcome may hold anything.
    #[inline(always)]
    fn single(
        &mut self,
        key: &K::Key,
        rule: &Rule,
        handle: &mut CacheHandle,
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        let Some(mut place) = self.locate(key) else { return Ok(false) };
        let slots = place.window.len();
        let cache = self.table.cache().filter(|_| rule.asks(slots));
        if let Some(cache) = cache {
            let cache_probe = place.cache_probe::<K>(key, self.table.view().geometry());
            if let Some(cached) = cache.probe(&cache_probe) {
                return self.cached(key, (&place, cached), handle, outcome);
            }
        }
        place.plan = rule.choose(slots);
        let is_answer = if place.plan == Plan::TwoStage {
            // Fingerprints first: they are waited for first.
            self.prefetch_window(&place);
            self.prefetch_near(&place);
            place.slot = self.search(Plan::TwoStage, (key, &place), outcome)?;
            self.verify(Plan::TwoStage, (key, &place), outcome)?
        } else {
            self.prefetch_first(&place);
            place.slot = self.search(place.plan, (key, &place), outcome)?;
            self.verify(place.plan, (key, &place), outcome)?
        };
        // As the engine does: what the cache did not know, or is not asked about, it is told if it
        // keeps such windows.
        if let (true, Some(cache), Some(slot)) = (is_answer, self.table.cache(), place.named_slot())
            && outcome.version.is_some()
            && rule.keeps(slots)
        {
            self.learn(cache, key, (&place, slot), handle);
        }
        Ok(is_answer)
    }

    /// The answers of those keys whom the short way leads there; whether these are all. Others have
    /// no reads in their costs.
    #[inline(always)]
    fn group(&mut self, keys: &[&K::Key], rule: &Rule, outcomes: &mut [Outcome]) -> Result<bool, ReadError> {
        let has_cache = self.table.cache().is_some();
        let mut places = [Place::RARE; TOGETHER];
        let mut are_two_stage = true;
        self.locate_all(keys, |this, at, mut place| {
            let slots = place.window.len();
            if !(has_cache && rule.asks(slots)) {
                place.plan = rule.choose(slots);
                are_two_stage &= place.plan == Plan::TwoStage;
                places[at] = place;
                this.prefetch_first(&place);
            }
        });
        let places = &mut places[..keys.len()];
        // Where it is one plan's, the code is that plan's.
        match are_two_stage {
            true => self.finish(keys, places, outcomes, |_| Plan::TwoStage),
            false => self.finish(keys, places, outcomes, |place| place.plan),
        }
    }

    /// Goes on with keys that have been located, by these plans.
    #[inline(always)]
    fn finish(
        &mut self,
        keys: &[&K::Key],
        places: &mut [Place],
        outcomes: &mut [Outcome],
        plan: impl Fn(&Place) -> Plan,
    ) -> Result<bool, ReadError> {
        for ((key, place), outcome) in keys.iter().zip(places.iter_mut()).zip(outcomes.iter_mut()) {
            if place.slot != Slot::Rare {
                place.slot = self.search(plan(place), (key, place), outcome)?;
            }
            if let Slot::At(slot) = place.slot {
                self.prefetch_slot(place, slot);
            }
        }
        let (mut are_all, mut trips, mut reads, mut bytes) = (true, 0, 0, 0);
        for ((key, place), outcome) in keys.iter().zip(places.iter()).zip(outcomes) {
            if self.verify(plan(place), (key, place), outcome)? {
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
}

/// Driving over memory looked at in place.
impl<K: KeySpace, L: InPlace, M: Kernels> Engine<'_, K, Mapped<L>, M> {
    /// Looks up those keys of a group for which nothing has been read yet. Those that lie in
    /// segments that were replaced are passed to `fail`; after an error no key has an answer.
    #[inline(never)]
    fn look_up_rest(
        &mut self,
        keys: &[&K::Key],
        outcomes: &mut [Outcome],
        fail: impl FnMut(usize),
    ) -> Result<(), ReadError> {
        let mut probes = [Probe::DONE; TOGETHER];
        let probes = &mut probes[..keys.len()];
        self.look_up_some(keys, probes, outcomes)?;
        let failed = probes.iter().enumerate().filter(|(_, probe)| !probe.has_answer());
        failed.map(|(at, _)| at).for_each(fail);
        Ok(())
    }

    /// Looks up keys of which it is not known which lie in segments that were replaced: each by
    /// itself, so that the others have their answers. Those that have none are passed to `fail`.
    #[cold]
    fn look_up_each(&mut self, keys: &[&K::Key], outcomes: &mut [Outcome], mut fail: impl FnMut(usize)) {
        for (at, (key, outcome)) in keys.iter().zip(outcomes).enumerate() {
            *outcome = Outcome::begun(Plan::TwoStage);
            self.doubt = Doubt::default();
            let mut is_failed = false;
            let looked = self.look_up_rest(from_ref(key), from_mut(outcome), |_| is_failed = true);
            if is_failed || looked.is_err() {
                fail(at);
            }
        }
    }

    /// Looks up keys in turns. Those that lie in segments that were replaced end without an answer.
    #[inline(always)]
    fn look_up_some(
        &mut self,
        keys: &[&K::Key],
        probes: &mut [Probe],
        outcomes: &mut [Outcome],
    ) -> Result<(), ReadError> {
        self.lists.clear();
        for ((key, probe), outcome) in keys.iter().zip(probes.iter_mut()).zip(outcomes.iter_mut()) {
            if outcome.cost.reads == 0 {
                *probe = self.begin(key, outcome);
            }
        }
        let mut trips = 0;
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            self.end_trip(&mut trips)?;
            for ((key, probe), outcome) in keys.iter().zip(probes.iter_mut()).zip(outcomes.iter_mut()) {
                match self.take_in_place(key, probe, outcome) {
                    Ok(()) => goes_on |= !probe.is_done(),
                    Err(ReadError::Stale) => *probe = Probe::FAILED,
                    Err(error) => return Err(error),
                }
            }
        }
        self.check_all_seen()
    }

    /// Lets a round trip pass. What is read again because it could not be told may be no slot any
    /// more.
    #[inline(always)]
    fn end_trip(&mut self, trips: &mut u32) -> Result<(), ReadError> {
        self.source.end_trip()?;
        self.take_tables()?;
        self.value_bytes = 0;
        *trips += 1;
        if self.doubt.torn {
            self.doubt.torn = false;
            self.check_reuse()?;
            if *trips > MAX_ATTEMPTS {
                return Err(ReadError::Contended { attempts: MAX_ATTEMPTS });
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn take_in_place(
        &mut self,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        match self.take(key, probe, outcome) {
            Err(error @ ReadError::Corrupt(_)) => {
                // Damaged, or no page of this directory any more.
                self.check_reuse()?;
                Err(error)
            }
            taken => taken,
        }
    }

    /// That what was looked at holds.
    #[inline(always)]
    fn check_all_seen(&mut self) -> Result<(), ReadError> {
        self.check_absence()?;
        Ok(self.source.check_alive()?)
    }

    /// That a key is absent may be believed of segments whose memory had no other use yet.
    #[inline(always)]
    fn check_absence(&mut self) -> Result<(), ReadError> {
        match std::mem::take(&mut self.doubt).absent {
            true => self.check_reuse(),
            false => Ok(()),
        }
    }

    #[inline(always)]
    fn check_reuse(&mut self) -> Result<(), ReadError> {
        match self.source.load_after_reads(REUSE_OFFSET)? > self.table.view().holds_until() {
            true => Err(ReadError::Stale),
            false => Ok(()),
        }
    }
}
