//! Lookups in tables of words: of records of a word of key and one of value at most, without a hot
//! cache, by two-stage and range reads (see [`Table::word_width`]).
//!
//! They go the [short way](super::attempt), and their answers stay in registers to the end. A round
//! trip is a cache miss here, and instructions decide how many lookups wait for memory at a time.

use std::num::NonZeroU64;

use fpcache_fabric::InPlace;

use super::attempt::{Attempt, Attempts, Seen, Slot, searched};
use super::line::PredictedLine;
use crate::key_space::KeySpace;
use crate::layout::{RecordShape, SlotState, SlotWord};
use crate::matching::{CallWithKernels, Kernels, LINE_BYTES, Shown};
use crate::models::Segment;
use crate::plan::Plan;
use crate::read::engine::Lists;
use crate::read::outcome::Outcome;
use crate::read::records::Records;
use crate::read::verify::Rules;
use crate::read::{Cost, ReadError};
use crate::table::Table;

/// A lookup that may be all there is to it: of a key of a table, with room for words that are copied
/// from where others may change them. `WIDTH` is that of its fingerprints, in bytes.
pub(super) struct WordLookup<const WIDTH: usize>;

/// Where the common course led, in two registers.
#[derive(Clone, Copy, Debug)]
pub struct WordAnswer {
    /// Bits 0–31 the version, 32–55 the bytes that were read, then the flags.
    head: NonZeroU64,
    value: u64,
}

impl WordAnswer {
    const IS_ANSWER: NonZeroU64 = NonZeroU64::new(1 << 63).expect("a bit is set");
    const IS_THERE: u64 = 1 << 62;
    /// The window's slots were searched, not its fingerprints.
    const BY_RANGE: u64 = 1 << 61;
    const BYTES: u32 = 32;

    #[inline(always)]
    fn new(plan: Plan, cost: Cost, value: Option<(SlotWord, u64)>) -> Self {
        let plan = if plan == Plan::Range { Self::BY_RANGE } else { 0 };
        // A window has fewer than 2^16 slots or fingerprints, of 24 bytes at most.
        let head = Self::IS_ANSWER | plan | cost.bytes << Self::BYTES;
        match value {
            Some((word, value)) => Self { head: head | Self::IS_THERE | u64::from(word.version()), value },
            None => Self { head, value: 0 },
        }
    }

    /// Passes the value to `take`, if the key is there; records of the table have this shape.
    #[inline(always)]
    pub fn value_in<R>(self, shape: &RecordShape, take: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let value = self.value.to_le_bytes();
        let bytes = shape.value_bytes.unwrap_or(0).min(8) as usize;
        let is_there = self.head.get() & Self::IS_THERE != 0;
        take(is_there.then_some(&value[..bytes]))
    }

    /// The answer with what it cost.
    #[inline(always)]
    pub fn outcome(self) -> Outcome {
        let head = self.head.get();
        let is_there = head & Self::IS_THERE != 0;
        let plan = if head & Self::BY_RANGE == 0 { Plan::TwoStage } else { Plan::Range };
        let trips = 1 + u32::from(is_there && plan == Plan::TwoStage);
        let bytes = head >> Self::BYTES & 0xff_ffff;
        let cost = Cost { round_trips: trips, reads: trips, bytes, ..Cost::default() };
        Outcome { version: is_there.then_some(head as u32), cost, ..Outcome::begun(plan) }
    }
}

/// No answer. A call, so that the compiler knows what is rare.
#[cold]
#[inline(never)]
fn rare() -> Option<WordAnswer> {
    None
}

impl<'a, K: KeySpace, L: InPlace, const WIDTH: usize>
    CallWithKernels<L, (&'a Table<K>, &'a K::Key), &'a mut Lists<K>> for WordLookup<WIDTH>
{
    type Output = Option<WordAnswer>;

    #[inline(always)]
    fn call<M: Kernels>(
        kernels: M,
        mut look: L,
        of: (&Table<K>, &K::Key),
        lists: &mut Lists<K>,
    ) -> Option<WordAnswer> {
        answer::<K, L, M, WIDTH>(kernels, &mut look, of, lists)
    }
}

#[inline(always)]
fn answer<K: KeySpace, L: InPlace, M: Kernels, const WIDTH: usize>(
    kernels: M,
    look: &mut L,
    (table, key): (&Table<K>, &K::Key),
    Lists { copy, line_first, .. }: &mut Lists<K>,
) -> Option<WordAnswer> {
    // Not used: records stay in registers.
    let records = &mut Records::default();
    let Some(directory) = table.view().models().resident() else { return rare() };
    let Some(found) = directory.find_shared_by(key, kernels) else { return rare() };
    let mut steps = Attempts::<_, _, _, WIDTH> { look, table, kernels, records, copy };
    if Attempts::<K, L, M, WIDTH>::HAS_LINES {
        if line_first.is_worth_it() {
            if let Some(found) = steps.found_by_line(key, found) {
                line_first.note(1, 0);
                return Some(found);
            }
            line_first.note(0, 1);
        } else {
            line_first.pass(1);
        }
    }
    let target = steps.target_in(found, key);
    // What waits for memory is asked for before anything else is computed. Fingerprints first: they
    // are waited for first. The record is likely to lie near the predicted slot.
    steps.prefetch_predicted(&target);
    let mut attempt = steps.attempt(&target, key, table.planner().single());
    // The code to the end is one plan's.
    if attempt.plan == Plan::Range {
        steps.prefetch_first(&attempt);
        attempt.slot = steps.search_slots(key, &attempt).ok()?;
        return match attempt.slot {
            Slot::At(_) => steps.found(Plan::Range, key, &attempt),
            Slot::Absent => steps.absent(Plan::Range, &attempt),
            _ => rare(),
        };
    }
    match steps.window_hits((key, &attempt)).ok()?.shown() {
        Shown::One(first) => {
            attempt.slot = Slot::At(attempt.window.first.wrapping_add(first));
            steps.found(Plan::TwoStage, key, &attempt)
        }
        Shown::Nothing => steps.absent(Plan::TwoStage, &attempt),
        Shown::Rare => rare(),
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels, const WIDTH: usize> Attempts<'_, K, L, M, WIDTH> {
    /// The answer of a key that shows in its line.
    #[inline(always)]
    fn found_by_line(&mut self, key: &K::Key, (segment, shared): (&Segment<K>, usize)) -> Option<WordAnswer> {
        let coordinate = segment.coordinate(key, shared, self.table.view().encoders());
        let line = PredictedLine::in_segment(segment, coordinate);
        self.prefetch_line(line);
        self.prefetch_predicted_slot(line);
        let slot = self.slot_in_line(key, line)?;
        searched();
        let geometry = self.geometry();
        let found = self.word_at(key, line.slot_address(&geometry, slot), segment.generation())?;
        let bytes = (LINE_BYTES + geometry.slot_bytes) as u64;
        let cost = Cost { round_trips: 2, reads: 2, bytes, ..Cost::default() };
        self.look.count(cost.round_trips, cost.reads, cost.bytes).ok()?;
        Some(WordAnswer::new(Plan::TwoStage, cost, Some(found)))
    }

    /// The answer of a key that has a slot.
    #[inline(always)]
    fn found(&mut self, plan: Plan, key: &K::Key, attempt: &Attempt) -> Option<WordAnswer> {
        searched();
        let Slot::At(slot) = attempt.slot else { return None };
        let at = attempt.slot_address(slot, self.slot_bytes());
        let found = self.word_at(key, at, attempt.generation)?;
        self.answered(plan, (attempt, Seen::Found), Some(found))
    }

    /// The answer of a key whose window shows nothing.
    #[inline(always)]
    fn absent(&mut self, plan: Plan, attempt: &Attempt) -> Option<WordAnswer> {
        // The search comes before this look.
        if !self.is_held().ok()? {
            return None;
        }
        self.answered(plan, (attempt, Seen::Nothing), None)
    }

    #[inline(always)]
    fn answered(
        &mut self,
        plan: Plan,
        (attempt, seen): (&Attempt, Seen),
        found: Option<(SlotWord, u64)>,
    ) -> Option<WordAnswer> {
        let cost = self.cost(plan, attempt, seen);
        self.look.count(cost.round_trips, cost.reads, cost.bytes).ok()?;
        Some(WordAnswer::new(plan, cost, found))
    }

    /// Whether this is the answer in a table of words, whose value is put into this word.
    #[inline(always)]
    pub(super) fn verify_word(
        &mut self,
        plan: Plan,
        (key, attempt): (&K::Key, &Attempt),
        outcome: &mut Outcome,
        place: usize,
    ) -> Result<bool, ReadError> {
        let seen = match attempt.slot {
            Slot::At(slot) => {
                let at = attempt.slot_address(slot, self.slot_bytes());
                let Some((word, value)) = self.word_at(key, at, attempt.generation) else { return Ok(false) };
                let value_bytes = self.table.view().geometry().shape.value_bytes.unwrap_or(0).min(8);
                outcome.version = Some(word.version());
                outcome.value = self.records.put(place, value, value_bytes as usize);
                Seen::Found
            }
            Slot::Absent if self.is_held()? => Seen::Nothing,
            _ => return Ok(false),
        };
        (outcome.plan, outcome.cost) = (plan, self.cost(plan, attempt, seen));
        Ok(true)
    }

    /// The word and the value of the slot at this address, if it is this key's. What named it was
    /// looked at before.
    #[inline(always)]
    fn word_at(&mut self, key: &K::Key, at: u64, generation: u32) -> Option<(SlotWord, u64)> {
        let record = self.look.record_of(at).ok()?;
        let [word, shown, value] = record;
        let word = SlotWord::from_bits(word);
        let is_answer = Some(shown) == K::word(key)
            && word.state() == SlotState::Live
            && Rules::of(self.table.view()).is_pair_proven(word, generation, &record);
        is_answer.then_some((word, value))
    }
}
