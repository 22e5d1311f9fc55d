//! Lookups in tables of words: of records of a word of key and one of value at most, without a hot
//! cache, by two-stage and range reads (see [`Table::has_words`]).
//!
//! They go the [short way](super::attempt), and their answers stay in registers to the end. A round
//! trip is a cache miss here, and instructions decide how many lookups wait for memory at a time.

use fpcache_fabric::InPlace;

use super::attempt::{Attempt, Attempts, Seen, Slot, searched};
use crate::key_space::KeySpace;
use crate::layout::{RecordShape, SlotState, SlotWord};
use crate::matching::{Kernels, WithKernels};
use crate::plan::Plan;
use crate::read::outcome::Outcome;
use crate::read::records::Records;
use crate::read::verify::Rules;
use crate::read::{Cost, ReadError};
use crate::table::{Table, WORD_SLOT_BYTES};

/// A lookup that may be all there is to it.
pub(super) struct WordLookup<'a, K: KeySpace, L> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) key: &'a K::Key,
    /// Not used: records stay in registers.
    pub(super) records: &'a mut Records,
    /// For words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// Where the common course led, in two registers: to an answer, unless something rare showed.
#[derive(Clone, Copy, Debug)]
pub struct WordAnswer {
    /// Bits 0–31 the version, 32–55 the bytes that were read, then the flags.
    head: u64,
    value: u64,
}

impl WordAnswer {
    /// No answer: the lookup is for the short way of other records, or the engine.
    pub const NONE: Self = Self { head: 0, value: 0 };
    const IS_ANSWER: u64 = 1 << 63;
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

    /// Whether it is one.
    #[inline(always)]
    pub fn is_answer(self) -> bool {
        self.head & Self::IS_ANSWER != 0
    }

    /// Passes the value to `take`, if the key is there; records of the table have this shape.
    #[inline(always)]
    pub fn value_in<R>(self, shape: &RecordShape, take: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let value = self.value.to_le_bytes();
        let bytes = shape.value_bytes.unwrap_or(0).min(8) as usize;
        let is_there = self.head & Self::IS_THERE != 0;
        take(is_there.then_some(&value[..bytes]))
    }

    /// The answer with what it cost.
    #[inline(always)]
    pub fn outcome(self) -> Outcome {
        let is_there = self.head & Self::IS_THERE != 0;
        let plan = if self.head & Self::BY_RANGE == 0 { Plan::TwoStage } else { Plan::Range };
        let trips = 1 + u32::from(is_there && plan == Plan::TwoStage);
        let bytes = self.head >> Self::BYTES & 0xff_ffff;
        let cost = Cost { round_trips: trips, reads: trips, bytes, ..Cost::default() };
        Outcome { version: is_there.then_some(self.head as u32), cost, ..Outcome::begun(plan) }
    }
}

impl<K: KeySpace, L: InPlace> WithKernels for WordLookup<'_, K, L> {
    type Output = WordAnswer;

    #[inline(always)]
    fn run<M: Kernels>(self, kernels: M) -> WordAnswer {
        self.answer(kernels).unwrap_or(WordAnswer::NONE)
    }
}

impl<K: KeySpace, L: InPlace> WordLookup<'_, K, L> {
    #[inline(always)]
    fn answer<M: Kernels>(self, kernels: M) -> Option<WordAnswer> {
        let Self { mut look, table, key, records, copy } = self;
        let found = table.view().models().resident()?.find_shared(key)?;
        let mut steps = Attempts::<_, _, _, true> { look: &mut look, table, kernels, records, copy };
        let mut attempt = steps.locate_in(found, key, table.planner().single());
        let plan = Attempts::<K, L, M, true>::plan_of(&attempt);
        attempt.slot = if plan == Plan::Range {
            steps.prefetch_first(&attempt);
            steps.search_slots(key, &attempt).ok()?
        } else {
            // The record is likely to lie near the predicted slot.
            steps.prefetch_near(&attempt);
            steps.match_window((key, &attempt)).ok()?
        };
        searched();
        let (seen, value) = match attempt.slot {
            Slot::At(slot) => (Seen::Found, Some(steps.word_at(key, &attempt, slot)?)),
            Slot::Absent if steps.is_held().ok()? => (Seen::Nothing, None),
            _ => return None,
        };
        let cost = steps.cost(plan, &attempt, seen);
        look.count(cost.round_trips, cost.reads, cost.bytes).ok()?;
        Some(WordAnswer::new(plan, cost, value))
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels, const WORDS: bool> Attempts<'_, K, L, M, WORDS> {
    /// Whether this is the answer in a table of words.
    #[inline(always)]
    pub(super) fn verify_word(
        &mut self,
        plan: Plan,
        (key, attempt): (&K::Key, &Attempt),
        outcome: &mut Outcome,
    ) -> Result<bool, ReadError> {
        let seen = match attempt.slot {
            Slot::At(slot) => {
                let Some((word, value)) = self.word_at(key, attempt, slot) else { return Ok(false) };
                let value_bytes = self.table.view().geometry().shape.value_bytes.unwrap_or(0).min(8);
                outcome.version = Some(word.version());
                outcome.value = self.records.keep_word(value, value_bytes as usize);
                Seen::Found
            }
            Slot::Absent if self.is_held()? => Seen::Nothing,
            _ => return Ok(false),
        };
        (outcome.plan, outcome.cost) = (plan, self.cost(plan, attempt, seen));
        Ok(true)
    }

    /// The word and the value of a slot, if it is this key's. What named the slot was looked at
    /// before.
    #[inline(always)]
    fn word_at(&mut self, key: &K::Key, attempt: &Attempt, slot: u32) -> Option<(SlotWord, u64)> {
        let mut record = [0; 3];
        self.look.record(attempt.slot_address(slot, WORD_SLOT_BYTES as usize), &mut record).ok()?;
        let [word, shown, value] = record;
        let word = SlotWord::from_bits(word);
        let is_answer = Some(shown) == K::word(key)
            && word.state() == SlotState::Live
            && Rules::of(self.table.view()).is_pair_proven(word, attempt.generation, &record);
        is_answer.then_some((word, value))
    }
}
