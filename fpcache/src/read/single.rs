//! Looking up one key, the short way.
//!
//! A [`Lookup`] of one key gives the same answer with the same READs. This way there is no batch to fill and no state to
//! keep between rounds, which matters where a round trip is a cache miss: the fewer instructions a lookup takes, the
//! more of the next lookup the processor has begun while this one waits for memory. For the same reason nothing here
//! branches on where in its window a key is. A slot that is being written is left to the general way.

use fpcache_fabric::{Endpoint, WordRead};
use zerocopy::IntoBytes;

use super::lookup::Lookup;
use super::outcome::Outcome;
use super::outside::{Wanted, fetch};
use super::scratch::{LookupScratch, SLOT_WORDS, SingleScratch, Words};
use super::target::Target;
use super::verify::{
    Candidates, Check, InWindow, Rules, check, look_through, match_fingerprints, shown_word,
};
use super::{Cost, Plan, ReadError, check_reuse, drive};
use crate::cache::{HotCache, Spot, Visitor};
use crate::key_space::KeySpace;
use crate::layout::{SLOT_WORD_BYTES, Stored, ValueExtent};
use crate::snapshot::Snapshot;
use crate::table::Table;

/// Looks up one key and hands the answer, with its value if the key is there, to `take`.
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
/// value outside its slot, which is not READ.
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

#[inline(always)]
fn look_for<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (key, wanted): (&K::Key, Wanted),
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    let snapshot = table.snapshot();
    let Some(target) = Target::of(snapshot, key) else {
        return general(endpoint, table, scratch, (key, wanted), None, take);
    };
    let (rule, slots) = (table.planner().single(), target.window.len());
    let LookupScratch { single, visitor, .. } = scratch;
    let hot = match table.cache() {
        Some(cache) if rule.asks(slots) => Some((cache, target.spot::<K>(key, snapshot.geometry()))),
        _ => None,
    };
    let hash = hot.as_ref().map(|(_, spot)| spot.hash);
    let mut read = Read { endpoint, snapshot, target, key, hash, outcome: Outcome::begun(Plan::Cached) };
    let found = match hot {
        None => read.by(rule.choose(slots), single)?,
        Some((cache, spot)) => match read.cached(cache, &spot, single, visitor)? {
            Tried::Hit(Stored::Here(value)) => return Ok(take(&read.outcome, Some(value))),
            Tried::Hit(Stored::Outside(extent)) => Found::Outside(extent),
            Tried::Unsettled => Found::Unsettled,
            Tried::TooLong => return general(read.endpoint, table, scratch, (key, wanted), None, take),
            Tried::Miss => read.and_learn(rule.choose(slots), cache, &spot, single, visitor)?,
            Tried::Conflict => {
                read.outcome.cost.round_trips += 1;
                let plan = table.planner().after_conflict(rule, slots);
                read.and_learn(plan, cache, &spot, single, visitor)?
            }
        },
    };
    let Read { endpoint, mut outcome, .. } = read;
    match found {
        Found::Absent => {
            check_reuse(endpoint, snapshot.holds_until())?;
            Ok(take(&outcome, None))
        }
        Found::Record { value: Stored::Here(value), .. } => Ok(take(&outcome, Some(value))),
        Found::Record { value: Stored::Outside(extent), .. } | Found::Outside(extent) => {
            let buffer = &mut scratch.single.outside;
            match fetch(endpoint, snapshot, extent, (wanted, &mut outcome), buffer)? {
                Some(value) => Ok(take(&outcome, Some(value))),
                None => read_again(endpoint, table, scratch, (key, wanted), outcome, take),
            }
        }
        Found::Unsettled => read_again(endpoint, table, scratch, (key, wanted), outcome, take),
        Found::TooLong => {
            // The trip that was to be is the general way's first.
            outcome.cost.round_trips -= 1;
            let before = Some((outcome.plan, outcome.cost));
            general(endpoint, table, scratch, (key, wanted), before, take)
        }
    }
}

/// Goes on the general way with a record that could not be judged.
#[cold]
fn read_again<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    of: (&K::Key, Wanted),
    mut outcome: Outcome,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    // What never settles may be no slot of this segment any more.
    check_reuse(endpoint, table.snapshot().holds_until())?;
    outcome.cost.fallbacks += 1;
    general(endpoint, table, scratch, of, Some((Plan::Range, outcome.cost)), take)
}

/// The general way; where something was done before, by that plan, and at that cost so far.
#[cold]
fn general<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (key, wanted): (&K::Key, Wanted),
    before: Option<(Plan, Cost)>,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    let mut lookup = Lookup::new(table, scratch, [key]).of(wanted);
    let mut spent = Cost::default();
    if let Some((plan, cost)) = before {
        lookup = lookup.go_on_by(plan);
        spent = cost;
    }
    drive(endpoint, &mut lookup)?;
    let (outcome, value) = scratch.outcomes().next().ok_or(ReadError::Stale)?;
    let mut outcome = outcome.clone();
    outcome.cost += spent;
    Ok(take(&outcome, value))
}

/// What an entry of the hot cache was good for.
enum Tried<'s> {
    Hit(Stored<'s>),
    /// There is no entry.
    Miss,
    /// Not begun: slots do not fit the buffer.
    TooLong,
    /// It led to another key's record, or none.
    Conflict,
    /// The slot is being written.
    Unsettled,
}

/// How a plan ended.
enum Found<'s> {
    Absent,
    /// The record, and the slot it lies in.
    Record {
        value: Stored<'s>,
        slot: u32,
    },
    /// The record, of whose slot the hot cache knew; its value lies here.
    Outside(ValueExtent),
    /// The record is being written.
    Unsettled,
    /// Not begun: window or slot do not fit the buffers, or slots do not begin with a key of one word.
    TooLong,
}

/// A lookup under way. What it finds lies in buffers outside.
struct Read<'a, K: KeySpace, E: Endpoint> {
    endpoint: &'a mut E,
    snapshot: &'a Snapshot<K>,
    target: Target,
    key: &'a K::Key,
    /// The key's hash, if it was needed already.
    hash: Option<u64>,
    outcome: Outcome,
}

impl<K: KeySpace, E: Endpoint> Read<'_, K, E> {
    /// The slot that the hot cache names: one READ.
    #[inline(always)]
    fn cached<'s>(
        &mut self,
        cache: &HotCache,
        spot: &Spot,
        single: &'s mut SingleScratch,
        visitor: &mut Visitor,
    ) -> Result<Tried<'s>, ReadError> {
        let slot_words = spot.slot_bytes as usize / 8;
        let Some(slot) = single.words.slot.get_mut(..slot_words) else { return Ok(Tried::TooLong) };
        let Some(hint) = cache.probe(spot) else { return Ok(Tried::Miss) };
        let offset = self.snapshot.geometry().slot_offset(self.target.cap, hint.slot);
        self.slots(offset, slot, slot_words)?;
        Ok(match self.check(slot.as_bytes())? {
            Check::Found { version, value } => {
                self.outcome.version = Some(version);
                cache.confirm(spot, hint, visitor);
                Tried::Hit(value)
            }
            Check::Unsettled => Tried::Unsettled,
            Check::Other | Check::Nothing => {
                cache.forget(spot, hint, visitor);
                self.outcome.cost.conflicts += 1;
                Tried::Conflict
            }
        })
    }

    /// Reads by a plan, and tells the hot cache where the key was.
    #[inline(always)]
    fn and_learn<'s>(
        &mut self,
        plan: Plan,
        cache: &HotCache,
        spot: &Spot,
        single: &'s mut SingleScratch,
        visitor: &mut Visitor,
    ) -> Result<Found<'s>, ReadError> {
        let found = self.by(plan, single)?;
        if let Found::Record { slot, .. } = found {
            let saves = self.target.bytes_by(plan, self.snapshot.geometry());
            cache.learn(spot, slot, saves, visitor);
        }
        Ok(found)
    }

    /// Reads by a plan.
    #[inline(always)]
    fn by<'s>(&mut self, plan: Plan, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        self.outcome.plan = plan;
        match plan {
            Plan::Range => self.range(single),
            Plan::TwoStage | Plan::Cached | Plan::Offloaded => self.two_stage(single),
            Plan::Speculative => self.speculative(single),
        }
    }

    /// Fingerprints, then the slots of those that match: nearly always one.
    #[inline(always)]
    fn two_stage<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let span = geometry.fingerprint_span(self.target.window);
        let window = single.words.window.get_mut(..span.len / 8);
        let (Some(window), true) = (window, geometry.slot_bytes / 8 <= SLOT_WORDS) else {
            return Ok(Found::TooLong);
        };
        self.words(span.offset, window)?;
        self.match_fingerprints(single)
    }

    /// Fingerprints and the predicted slot; the slots of those that match only if the guess was wrong.
    #[inline(always)]
    fn speculative<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let span = geometry.fingerprint_span(self.target.window);
        let Words { window, slot } = &mut *single.words;
        let (Some(window), Some(slot)) =
            (window.get_mut(..span.len / 8), slot.get_mut(..geometry.slot_bytes / 8))
        else {
            return Ok(Found::TooLong);
        };
        let home = geometry.slot_offset(self.target.cap, self.target.predicted);
        self.outcome.cost.reads += 2;
        self.outcome.cost.bytes += (size_of_val(window) + size_of_val(slot)) as u64;
        self.endpoint.read_all_words([
            WordRead { from: self.target.at(home), out: &mut *slot, guarded: self.snapshot.guards_slots() },
            WordRead { from: self.target.at(span.offset), out: window, guarded: false },
        ])?;
        // What is in the slot if it is not the key, or not yet, is for the fingerprints to say.
        let Check::Found { version, .. } = self.check(slot.as_bytes())? else {
            return self.match_fingerprints(single);
        };
        self.outcome.version = Some(version);
        let slot = single.words.slot[..geometry.slot_bytes / 8].as_bytes();
        // The same bytes: what they hold was found in them before.
        let parts = geometry.shape.parts::<K>(&slot[SLOT_WORD_BYTES..]);
        let value = parts.map_or(Stored::Here(&[]), |parts| parts.value);
        Ok(Found::Record { value, slot: self.target.predicted })
    }

    /// Matches the fingerprints that were read, and reads the slots of those that agree.
    #[inline(always)]
    fn match_fingerprints<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let SingleScratch { matcher, words, slots, .. } = &mut *single;
        let (geometry, fingerprints) = (self.snapshot.geometry(), words.window.as_bytes());
        let hash = self.hash.unwrap_or_else(|| K::hash(self.key));
        let window = self.target.window;
        let index = match match_fingerprints(fingerprints, hash, window, geometry, matcher, slots)? {
            Candidates::None => return Ok(Found::Absent),
            Candidates::One(index) => index,
            Candidates::Several => return self.several_candidates(single),
            Candidates::TooMany => return Ok(Found::Unsettled),
        };
        self.outcome.cost.round_trips += 1;
        let slot_words = geometry.slot_bytes / 8;
        let slot = &mut words.slot[..slot_words];
        self.slots(geometry.slot_offset(self.target.cap, index), slot, slot_words)?;
        let slot = single.words.slot[..geometry.slot_bytes / 8].as_bytes();
        Ok(match self.check(slot)? {
            Check::Found { version, value } => {
                self.outcome.version = Some(version);
                Found::Record { value, slot: index }
            }
            Check::Other => {
                self.outcome.cost.false_candidates += 1;
                Found::Absent
            }
            Check::Nothing => Found::Absent,
            Check::Unsettled => Found::Unsettled,
        })
    }

    /// The slots of several matching fingerprints, in one doorbell batch.
    #[cold]
    fn several_candidates<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let SingleScratch { slots, landings, batch, .. } = single;
        batch.clear();
        landings.clear();
        landings.extend(slots.iter().map(|slot| {
            let from = self.target.at(geometry.slot_offset(self.target.cap, *slot));
            self.snapshot.ask_for_slots(batch, from, geometry.slot_bytes)
        }));
        let cost = &mut self.outcome.cost;
        cost.round_trips += 1;
        cost.reads += slots.len() as u32;
        cost.bytes += (slots.len() * geometry.slot_bytes) as u64;
        self.endpoint.run(batch)?;
        let mut found = Found::Absent;
        for (slot, landing) in slots.iter().zip(landings) {
            match self.check(batch.bytes(*landing))? {
                Check::Found { version, value } => {
                    self.outcome.version = Some(version);
                    found = Found::Record { value, slot: *slot };
                }
                Check::Other => self.outcome.cost.false_candidates += 1,
                Check::Unsettled if matches!(found, Found::Absent) => found = Found::Unsettled,
                Check::Nothing | Check::Unsettled => {}
            }
        }
        Ok(found)
    }

    /// All slots of the window, and the only one that shows the key.
    #[inline(always)]
    fn range<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let words = self.target.window.len() as usize * geometry.slot_bytes / 8;
        let window = single.words.window.get_mut(..words);
        let (Some(window), Some(_)) = (window, shown_word(self.key, self.snapshot)) else {
            return Ok(Found::TooLong);
        };
        let first = geometry.slot_offset(self.target.cap, self.target.window.first);
        self.slots(first, window, geometry.slot_bytes / 8)?;
        Ok(match look_through(window, &self.target, self.key, self.snapshot, &single.matcher)? {
            InWindow::Absent => Found::Absent,
            InWindow::Found { slot, version, value } => {
                self.outcome.version = Some(version);
                Found::Record { value, slot }
            }
            InWindow::Unsettled => Found::Unsettled,
        })
    }

    #[inline(always)]
    fn words(&mut self, offset: usize, out: &mut [u64]) -> Result<(), ReadError> {
        self.outcome.cost.reads += 1;
        self.outcome.cost.bytes += size_of_val(out) as u64;
        self.endpoint.read_words(self.target.at(offset), out)?;
        Ok(())
    }

    /// READs slots of so many words, each whole or showing that it is being written.
    #[inline(always)]
    fn slots(&mut self, offset: usize, out: &mut [u64], slot_words: usize) -> Result<(), ReadError> {
        if !self.snapshot.guards_slots() {
            return self.words(offset, out);
        }
        self.outcome.cost.reads += 1;
        self.outcome.cost.bytes += size_of_val(out) as u64;
        self.endpoint.read_records(self.target.at(offset), out, slot_words)?;
        Ok(())
    }

    #[inline(always)]
    fn check<'s>(&self, slot: &'s [u8]) -> Result<Check<'s>, ReadError> {
        check::<K>(slot, &self.target, self.key, Rules::of(self.snapshot))
    }
}
