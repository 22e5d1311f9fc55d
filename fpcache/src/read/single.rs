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
use super::scratch::{LookupScratch, SLOT_WORDS, SingleScratch, Words};
use super::target::{Target, too_many};
use super::verify::{Verdict, judge, shows};
use super::{Cost, Plan, ReadError, drive};
use crate::cache::{HotCache, Spot, Visitor};
use crate::key_space::KeySpace;
use crate::layout::SLOT_WORD_BYTES;
use crate::snapshot::Snapshot;
use crate::table::Table;

/// Looks up one key and hands the answer, with its value if the key is there, to `take`.
#[inline]
pub fn look_up<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: K::Key,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    let snapshot = table.snapshot();
    let Some(target) = Target::of(snapshot, key) else {
        return general(endpoint, table, scratch, key, None, take);
    };
    let (rule, slots) = (table.planner().single(), target.window.len());
    let LookupScratch { single, visitor, .. } = scratch;
    let mut read = Read { endpoint, snapshot, target, outcome: Outcome::begun(Plan::Cached) };
    let hot = table.cache().filter(|_| rule.asks_cache(slots)).zip(target.spot(snapshot.geometry()));
    let found = match hot {
        None => read.by(rule.choose(slots), single)?,
        Some((cache, spot)) => match read.cached(cache, &spot, single, visitor)? {
            Tried::Hit(value) => return Ok(take(&read.outcome, Some(value))),
            Tried::Unsettled => Found::Unsettled,
            Tried::Miss => read.and_learn(rule.choose(slots), cache, &spot, single, visitor)?,
            Tried::Conflict => {
                let plan = table.planner().after_conflict(rule, slots);
                read.outcome.cost.round_trips += 1;
                read.and_learn(plan, cache, &spot, single, visitor)?
            }
        },
    };
    let outcome = read.outcome;
    match found {
        Found::Absent => Ok(take(&outcome, None)),
        Found::Record { value, .. } => Ok(take(&outcome, Some(value))),
        Found::Unsettled => {
            let spent = Cost { fallbacks: outcome.cost.fallbacks + 1, ..outcome.cost };
            general(endpoint, table, scratch, key, Some(spent), take)
        }
        Found::TooLong => general(endpoint, table, scratch, key, None, take),
    }
}

/// The general way; with a range read if something was `spent` before.
#[cold]
fn general<K: KeySpace, E: Endpoint, R>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    key: K::Key,
    spent: Option<Cost>,
    take: impl FnOnce(&Outcome, Option<&[u8]>) -> R,
) -> Result<R, ReadError> {
    let mut lookup = match spent {
        None => Lookup::new(table, scratch, [key]),
        Some(_) => Lookup::new(table, scratch, [key]).by_range(),
    };
    drive(endpoint, &mut lookup)?;
    let (outcome, value) = scratch.outcomes().next().ok_or(ReadError::Stale)?;
    let mut outcome = outcome.clone();
    outcome.cost += spent.unwrap_or_default();
    Ok(take(&outcome, value))
}

/// What an entry of the hot cache was good for.
enum Tried<'s> {
    Hit(&'s [u8]),
    /// There is no entry, or the slot does not fit the buffer.
    Miss,
    /// It led to another key's record, or none.
    Conflict,
    /// The slot is being written.
    Unsettled,
}

/// How a plan ended.
enum Found<'s> {
    Absent,
    /// The record, `at` bytes behind its segment's first slot.
    Record {
        value: &'s [u8],
        at: usize,
    },
    /// The record is being written.
    Unsettled,
    /// Not begun: window or slot do not fit the buffers, or a key is longer than a word.
    TooLong,
}

/// What a slot says about the target.
enum Check<'s> {
    Found(&'s [u8]),
    /// Another key's record.
    Other,
    Nothing,
    Unsettled,
}

/// A lookup under way. What it finds lies in buffers outside.
struct Read<'a, K: KeySpace, E: Endpoint> {
    endpoint: &'a mut E,
    snapshot: &'a Snapshot<K>,
    target: Target<K>,
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
        let Some(slot) = single.words.slot.get_mut(..slot_words) else { return Ok(Tried::Miss) };
        let Some(hint) = cache.probe(spot) else { return Ok(Tried::Miss) };
        let offset = self.snapshot.geometry().slot_offset(self.target.cap, hint.slot);
        self.words(offset, slot)?;
        Ok(match self.check(slot.as_bytes())? {
            Check::Found(value) => {
                cache.confirm(spot, hint, visitor);
                Tried::Hit(value)
            }
            Check::Unsettled => Tried::Unsettled,
            Check::Other | Check::Nothing => {
                cache.forget(hint, visitor);
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
        if let Found::Record { at, .. } = found {
            cache.learn(spot, at as u32 / spot.slot_bytes, self.outcome.cost.bytes as u32, visitor);
        }
        Ok(found)
    }

    /// Reads by a plan.
    #[inline(always)]
    fn by<'s>(&mut self, plan: Plan, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        self.outcome.plan = plan;
        match plan {
            Plan::Range => self.range(single),
            Plan::TwoStage | Plan::Cached => self.two_stage(single),
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
            WordRead { from: self.target.at(home), out: &mut *slot },
            WordRead { from: self.target.at(span.offset), out: window },
        ])?;
        // What is in the slot if it is not the key, or not yet, is for the fingerprints to say.
        let guessed = matches!(self.check(slot.as_bytes())?, Check::Found(_));
        if !guessed {
            return self.match_fingerprints(single);
        }
        let slot = single.words.slot[..geometry.slot_bytes / 8].as_bytes();
        let value = &slot[SLOT_WORD_BYTES + K::KEY_BYTES..][..self.value_bytes()];
        Ok(Found::Record { value, at: home - geometry.slots_offset(self.target.cap) })
    }

    /// Matches the fingerprints that were read, and reads the slots of those that agree.
    #[inline(always)]
    fn match_fingerprints<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let span = geometry.fingerprint_span(self.target.window);
        let fingerprints = &single.words.window.as_bytes()[span.skip..][..span.used];
        let fingerprint = geometry.width.of_hash(K::hash(&self.target.key));
        let hits = single.matcher.hits(geometry.width, fingerprints, fingerprint);
        if hits.frozen {
            return Err(ReadError::Stale);
        }
        match hits.count {
            0 => return Ok(Found::Absent),
            1 => {}
            _ => return self.several_candidates(fingerprint, single),
        }
        self.outcome.cost.round_trips += 1;
        let slot = &mut single.words.slot[..geometry.slot_bytes / 8];
        let index = self.target.window.first + hits.first;
        self.words(geometry.slot_offset(self.target.cap, index), slot)?;
        let at = index as usize * geometry.slot_bytes;
        let check = self.check(slot.as_bytes())?;
        self.outcome.cost.false_candidates += u32::from(matches!(check, Check::Other));
        Ok(check.found_at(at))
    }

    /// The slots of several matching fingerprints, in one doorbell batch.
    #[cold]
    fn several_candidates<'s>(
        &mut self,
        fingerprint: u64,
        single: &'s mut SingleScratch,
    ) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let span = geometry.fingerprint_span(self.target.window);
        let SingleScratch { matcher, words, slots, landings, batch } = single;
        let fingerprints = &words.window.as_bytes()[span.skip..][..span.used];
        slots.clear();
        matcher.find(geometry.width, fingerprints, fingerprint, self.target.window.first, slots);
        if too_many(slots.len(), self.target.window) {
            return Ok(Found::Unsettled);
        }
        batch.clear();
        landings.clear();
        landings.extend(slots.iter().map(|slot| {
            batch.read(self.target.at(geometry.slot_offset(self.target.cap, *slot)), geometry.slot_bytes)
        }));
        let cost = &mut self.outcome.cost;
        cost.round_trips += 1;
        cost.reads += slots.len() as u32;
        cost.bytes += (slots.len() * geometry.slot_bytes) as u64;
        self.endpoint.run(batch)?;
        let (mut found, mut unsettled) = (None, false);
        for (slot, landing) in slots.iter().zip(landings) {
            match self.check(batch.bytes(*landing))? {
                Check::Found(value) => found = Some((value, *slot as usize * geometry.slot_bytes)),
                Check::Other => self.outcome.cost.false_candidates += 1,
                Check::Nothing => {}
                Check::Unsettled => unsettled = true,
            }
        }
        Ok(match found {
            Some((value, at)) => Found::Record { value, at },
            None if unsettled => Found::Unsettled,
            None => Found::Absent,
        })
    }

    /// All slots of the window, and the only one that shows the key.
    #[inline(always)]
    fn range<'s>(&mut self, single: &'s mut SingleScratch) -> Result<Found<'s>, ReadError> {
        let geometry = self.snapshot.geometry();
        let words = self.target.window.len() as usize * geometry.slot_bytes / 8;
        let window = single.words.window.get_mut(..words);
        let (Some(window), Some(key)) = (window, K::word(&self.target.key)) else {
            return Ok(Found::TooLong);
        };
        self.words(geometry.slot_offset(self.target.cap, self.target.window.first), window)?;
        let hits = single.matcher.key_hits(window, self.snapshot.stride(), key);
        if hits.frozen {
            return Err(ReadError::Stale);
        }
        let start = match hits.count {
            0 => return Ok(Found::Absent),
            1 => hits.word as usize * 8,
            _ => return self.several_slots(window.as_bytes()),
        };
        let check = self.check(&window.as_bytes()[start..][..geometry.slot_bytes])?;
        Ok(check.found_at(self.target.window.first as usize * geometry.slot_bytes + start))
    }

    /// A window in which several slots show the key: the remains of deleted records beside a live one.
    #[cold]
    fn several_slots<'s>(&mut self, window: &'s [u8]) -> Result<Found<'s>, ReadError> {
        let slot_bytes = self.snapshot.geometry().slot_bytes;
        let mut unsettled = false;
        for (slot, index) in window.chunks_exact(slot_bytes).zip(self.target.window.first as usize..) {
            if !shows::<K>(slot, self.target.key) {
                continue;
            }
            match self.check(slot)? {
                Check::Found(value) => return Ok(Found::Record { value, at: index * slot_bytes }),
                Check::Other | Check::Nothing => {}
                Check::Unsettled => unsettled = true,
            }
        }
        Ok(if unsettled { Found::Unsettled } else { Found::Absent })
    }

    #[inline(always)]
    fn words(&mut self, offset: usize, out: &mut [u64]) -> Result<(), ReadError> {
        self.outcome.cost.reads += 1;
        self.outcome.cost.bytes += size_of_val(out) as u64;
        self.endpoint.read_words(self.target.at(offset), out)?;
        Ok(())
    }

    #[inline(always)]
    fn value_bytes(&self) -> usize {
        self.snapshot.record().parameters.value_bytes as usize
    }

    #[inline(always)]
    fn check<'s>(&mut self, slot: &'s [u8]) -> Result<Check<'s>, ReadError> {
        match judge::<K>(slot, self.target.generation, self.value_bytes()) {
            Verdict::Record { key, version, value } if key == self.target.key => {
                self.outcome.version = Some(version);
                Ok(Check::Found(value))
            }
            Verdict::Record { .. } => Ok(Check::Other),
            Verdict::Free => Ok(Check::Nothing),
            Verdict::Unsettled => Ok(Check::Unsettled),
            Verdict::Frozen => Err(ReadError::Stale),
        }
    }
}

impl<'s> Check<'s> {
    /// How the lookup ended if this was the only slot to look at, `at` bytes behind the segment's first.
    #[inline(always)]
    fn found_at(self, at: usize) -> Found<'s> {
        match self {
            Self::Found(value) => Found::Record { value, at },
            Self::Other | Self::Nothing => Found::Absent,
            Self::Unsettled => Found::Unsettled,
        }
    }
}
