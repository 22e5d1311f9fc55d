//! Looking keys up: one or many, over memory looked at in place or in doorbell batches.
//!
//! Keys of a batch share their round trips. Where memory is mapped, a round trip is a wait for
//! memory, and keys share it by being taken in turns: all of a group are located, then all windows
//! are matched, then all slots are verified, each step with the next one's lines on their way.

use fpcache_fabric::{Batch, Endpoint, InPlace, REGION};

use super::attempt::{Attempts, Place, Slot, TOGETHER};
use super::engine::{Doubt, Engine, Probe};
use super::external::clear;
use super::outcome::{Outcome, Outcomes};
use super::planner::Rule;
use super::scratch::{GroupScratch, LookupScratch};
use super::source::{Landed, Mapped, Source};
use super::{MAX_ATTEMPTS, Operation, Plan, ReadError, Step, Wanted, drive};
use crate::cache::CacheHandle;
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, REUSE_OFFSET};
use crate::matching::{Kernels, Matcher, WithKernels};
use crate::table::Table;

/// Looks up one key and hands the answer, with its value if the key is there, to `take`.
///
/// # Errors
/// [`ReadError`].
#[inline]
pub fn look_up<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    look_for(endpoint, table, scratch, (key, Wanted::Value), take)
}

/// Whether one key is there, as the outcome that `take` gets has it. Costs what [`look_up`] does, in round trips and bytes, but for a
/// external value, which is not READ.
///
/// # Errors
/// As for [`look_up`].
#[inline]
pub fn contains<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: &K::Key,
    take: impl FnOnce(&Outcome) -> R,
) -> Result<R, ReadError> {
    look_for(endpoint, table, scratch, (key, Wanted::Presence), |outcome, _| take(outcome))
}

/// Looks up a group of keys, of any number; their answers are [`LookupScratch::outcomes`], in their order.
///
/// In a batch a group costs as many dependent round trips as its slowest key, two with two-stage reads.
/// External values share theirs, up to 64 MiB of them.
///
/// # Errors
/// As for [`look_up`]; there are no answers then.
#[inline]
pub fn look_up_all<'k, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    keys: impl IntoIterator<Item = &'k K::Key>,
    wanted: Wanted,
) -> Result<(), ReadError> {
    if let Some(look) = endpoint.in_place(REGION)? {
        let matcher = scratch.matcher;
        return matcher.run(Group { look, table, scratch, keys: keys.into_iter(), wanted });
    }
    drive(endpoint, &mut Lookup::new(table, scratch, keys).of(wanted))
}

#[inline(always)]
fn look_for<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (key, wanted): (&K::Key, Wanted),
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    if let Some(look) = endpoint.in_place(REGION)? {
        let matcher = scratch.matcher;
        return matcher.run(Single { look, table, scratch, key, wanted, take });
    }
    drive(endpoint, &mut Lookup::new(table, scratch, [key]).of(wanted))?;
    let (outcome, value) = scratch.outcomes().next().ok_or(ReadError::Stale)?;
    Ok(take(outcome, value))
}

/// One key over memory looked at in place.
struct Single<'a, K: KeySpace, L, F> {
    look: L,
    table: &'a Table<K>,
    scratch: &'a mut LookupScratch<K>,
    key: &'a K::Key,
    wanted: Wanted,
    take: F,
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
        if attempts.single(key, rule, handle, &mut outcome)? {
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
        engine.check_absence()?;
        let value = outcome.version.map(|_| engine.records.bytes(outcome.value.clone()));
        Ok(take(&outcome, value))
    }
}

/// A group of keys over memory looked at in place.
struct Group<'a, K: KeySpace, L, I> {
    look: L,
    table: &'a Table<K>,
    scratch: &'a mut LookupScratch<K>,
    keys: I,
    wanted: Wanted,
}

impl<'k, K: KeySpace, L: InPlace, I: Iterator<Item = &'k K::Key>> WithKernels for Group<'_, K, L, I> {
    type Output = Result<(), ReadError>;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> Self::Output {
        let Self { mut look, table, scratch, mut keys, wanted } = self;
        let LookupScratch { lists, handle, group, .. } = scratch;
        let Outcomes { outcomes, records } = &mut group.answers;
        outcomes.clear();
        records.clear();
        let rule = table.planner().group(TOGETHER.min(keys.size_hint().0));
        let mut some = [K::lowest(); TOGETHER];
        loop {
            let mut count = 0;
            for (place, key) in some.iter_mut().zip(keys.by_ref()) {
                *place = key;
                count += 1;
            }
            let (some, first) = (&some[..count], outcomes.len());
            outcomes.resize(first + count, Outcome::begun(Plan::TwoStage));
            let outcomes = &mut outcomes[first..];
            let (look_at, copy) = (&mut look, &mut lists.copy);
            let mut attempts = Attempts { look: look_at, table, kernels, records: &mut *records, copy };
            if !attempts.group(some, &rule, outcomes)? {
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
                engine.look_up_rest(some, outcomes)?;
            }
            if count < TOGETHER {
                return Ok(());
            }
        }
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
        if rule.choose(slots) != Plan::TwoStage {
            return Ok(false);
        }
        self.prefetch_slot(&place, place.predicted);
        place.slot = self.match_window(&place)?;
        let is_answer = self.verify(key, &place, outcome)?;
        // As the engine does: what the cache did not know, or is not asked about, it is told if it keeps such windows.
        if let (true, Some(cache), Slot::At(slot)) = (is_answer, self.table.cache(), place.slot)
            && outcome.version.is_some()
            && rule.keeps(slots)
        {
            self.learn(cache, key, (&place, slot), handle);
        }
        Ok(is_answer)
    }

    /// The answers of those keys whom the short way leads there; whether these are all. Others have no reads in their costs.
    #[inline(always)]
    fn group(&mut self, keys: &[&K::Key], rule: &Rule, outcomes: &mut [Outcome]) -> Result<bool, ReadError> {
        let has_cache = self.table.cache().is_some();
        let is_short = |slots| rule.choose(slots) == Plan::TwoStage && !(has_cache && rule.asks(slots));
        let mut places = [Place::RARE; TOGETHER];
        self.locate_all(keys, |this, at, place| {
            if is_short(place.window.len()) {
                places[at] = place;
                this.prefetch_window(&place);
            }
        });
        for place in &mut places[..keys.len()] {
            if place.slot != Slot::Rare {
                place.slot = self.match_window(place)?;
            }
            if let Slot::At(slot) = place.slot {
                self.prefetch_slot(place, slot);
            }
        }
        let (mut are_all, mut trips, mut reads, mut bytes) = (true, 0, 0, 0);
        for ((key, place), outcome) in keys.iter().zip(&places).zip(outcomes) {
            if self.verify(key, place, outcome)? {
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
    /// Looks up those keys of a group for which nothing has been read yet.
    #[inline(never)]
    fn look_up_rest(&mut self, keys: &[&K::Key], outcomes: &mut [Outcome]) -> Result<(), ReadError> {
        let mut probes = [Probe::DONE; TOGETHER];
        self.look_up_some(keys, &mut probes[..keys.len()], outcomes)
    }

    /// Looks up keys in turns.
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
                self.take_in_place(key, probe, outcome)?;
                goes_on |= !probe.is_done();
            }
        }
        self.check_absence()
    }

    /// Lets a round trip pass. What is read again because it could not be told may be no slot any more.
    #[inline(always)]
    fn end_trip(&mut self, trips: &mut u32) -> Result<(), ReadError> {
        self.source.end_trip()?;
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

/// Looks up a group of keys in doorbell batches: as a state machine, for fabrics with real latency.
///
/// Every round posts what all unfinished keys need as one batch. [`look_up_all`] drives it where memory
/// cannot be looked at in place.
#[derive(Debug)]
pub struct Lookup<'a, K: KeySpace> {
    table: &'a Table<K>,
    wanted: Wanted,
    scratch: &'a mut LookupScratch<K>,
    rounds: u32,
    doubt: Doubt,
    /// What comes after a check of the reuse sequence.
    after_check: Option<Then>,
}

/// What an operation does once it knows that what it read may be believed.
#[derive(Debug)]
enum Then {
    Post,
    End,
    Fail(Corrupt),
}

impl<'a, K: KeySpace> Lookup<'a, K> {
    /// A lookup of `keys`, with the cheapest plan for each or the one that was fixed.
    #[inline]
    pub fn new<'k>(
        table: &'a Table<K>,
        scratch: &'a mut LookupScratch<K>,
        keys: impl IntoIterator<Item = &'k K::Key>,
    ) -> Self {
        let GroupScratch { keys: kept, arena, probes, answers, trips } = &mut scratch.group;
        kept.clear();
        arena.clear();
        kept.extend(keys.into_iter().map(|key| K::keep(key, arena)));
        probes.clear();
        probes.resize(kept.len(), Probe::DONE);
        answers.clear();
        answers.outcomes.resize(kept.len(), Outcome::begun(Plan::TwoStage));
        trips.iter_mut().for_each(|batch| clear_after(batch, scratch.lists.had_values()));
        scratch.lists.clear();
        let (wanted, doubt) = (Wanted::Value, Doubt::default());
        Self { table, wanted, scratch, rounds: 0, doubt, after_check: None }
    }

    /// The same lookup, of no more than this.
    #[must_use]
    pub fn of(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }

    /// Has the reuse sequence looked at before going on.
    fn check_first(&mut self, then: Then) -> Step {
        self.doubt = Doubt::default();
        self.after_check = Some(then);
        Step::Check(self.table.view().holds_until())
    }

    fn post(&mut self) -> Step {
        self.rounds += 1;
        Step::Post
    }
}

impl<K: KeySpace> Operation for Lookup<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        match self.after_check.take() {
            None => {}
            Some(Then::Post) if self.rounds >= MAX_ATTEMPTS => {
                return Err(ReadError::Contended { attempts: self.rounds });
            }
            Some(Then::Post) => return Ok(self.post()),
            Some(Then::End) => return Ok(Step::Done),
            Some(Then::Fail(corrupt)) => return Err(corrupt.into()),
        }
        let LookupScratch { matcher, lists, handle, group, .. } = &mut *self.scratch;
        let GroupScratch { keys, arena, probes, answers, trips } = group;
        let [even, odd] = trips;
        let (landed, next) = if self.rounds.is_multiple_of(2) { (&*odd, even) } else { (&*even, odd) };
        clear_after(next, lists.had_values());
        let mut engine = Engine {
            table: self.table,
            rule: self.table.planner().group(keys.len()),
            wanted: self.wanted,
            kernels: *matcher,
            source: Landed { landed, next, guards: self.table.view().guards_slots() },
            handle,
            lists,
            records: &mut answers.records,
            doubt: self.doubt,
            value_bytes: 0,
        };
        let all = keys.iter().zip(probes.iter_mut()).zip(&mut answers.outcomes);
        let is_first = self.rounds == 0;
        let taken = engine.take_all(is_first, all.map(|((key, p), o)| (K::kept(key, arena), p, o)));
        let is_idle = engine.source.next.is_empty();
        self.doubt = engine.doubt;
        match taken {
            Ok(()) => {}
            // Damaged, or no page of this directory any more.
            Err(ReadError::Corrupt(corrupt)) => return Ok(self.check_first(Then::Fail(corrupt))),
            Err(error) => return Err(error),
        }
        Ok(match is_idle {
            true if self.doubt.absent => self.check_first(Then::End),
            true => Step::Done,
            false if self.doubt.torn => self.check_first(Then::Post),
            false => self.post(),
        })
    }

    #[inline]
    fn batch(&mut self) -> &mut Batch {
        // A step that posts has counted its round.
        &mut self.scratch.group.trips[usize::from(self.rounds.is_multiple_of(2))]
    }
}

impl<K: KeySpace, S: Source> Engine<'_, K, S, Matcher> {
    /// Takes what one batch brought for all keys, or begins them.
    fn take_all<'k>(
        &mut self,
        is_first: bool,
        all: impl Iterator<Item = (&'k K::Key, &'k mut Probe, &'k mut Outcome)>,
    ) -> Result<(), ReadError> {
        for (key, probe, outcome) in all {
            match is_first {
                true => *probe = self.begin(key, outcome),
                false => self.take(key, probe, outcome)?,
            }
        }
        Ok(())
    }
}

/// Clears a batch, without keeping room for long values if there were any.
fn clear_after(batch: &mut Batch, had_values: bool) {
    match had_values {
        true => clear(batch),
        false => batch.clear(),
    }
}
