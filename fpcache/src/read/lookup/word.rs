//! One key of a table of words, by the [steps](super::word_steps) that most lookups take.

use fpcache_fabric::InPlace;

use super::word_steps::{WordCost, WordPlace, WordSlot, WordSteps, searched};
use crate::key_space::KeySpace;
use crate::layout::{RecordShape, SlotWord};
use crate::matching::{Kernels, WithKernels};
use crate::plan::Plan;
use crate::read::Cost;
use crate::read::outcome::Outcome;
use crate::table::Table;

/// A lookup that may be all there is to it.
pub(super) struct WordLookup<'a, K: KeySpace, L> {
    pub(super) look: L,
    pub(super) table: &'a Table<K>,
    pub(super) key: &'a K::Key,
    /// For words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// Where the common course led, in two registers: to an answer, unless something rare showed.
#[derive(Clone, Copy, Debug)]
pub struct WordAnswer {
    /// Bits 0–31 the version, 32–55 bytes of what was searched, then the flags.
    head: u64,
    value: u64,
}

impl WordAnswer {
    /// No answer: the usual way has to be gone.
    pub const NONE: Self = Self { head: 0, value: 0 };
    const IS_ANSWER: u64 = 1 << 63;
    const IS_THERE: u64 = 1 << 62;
    /// The window's slots were searched, not its fingerprints.
    const BY_RANGE: u64 = 1 << 61;
    const BYTES: u32 = 32;

    #[inline(always)]
    fn new(cost: WordCost, value: Option<(SlotWord, u64)>) -> Self {
        let plan = if cost.plan == Plan::Range { Self::BY_RANGE } else { 0 };
        let head = Self::IS_ANSWER | plan | u64::from(cost.searched) << Self::BYTES;
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
        let cost = WordCost { plan, searched: (self.head >> Self::BYTES) as u32 & 0xff_ffff, is_there };
        Outcome { version: is_there.then_some(self.head as u32), cost: cost.into(), ..Outcome::begun(plan) }
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
        let Self { mut look, table, key, copy } = self;
        let word = K::word(key)?;
        let segment = table.view().models().resident()?.find_shared(key)?;
        let (place, predicted) = WordPlace::of(table, segment, key, table.planner().single());
        let mut steps = WordSteps { look: &mut look, table, kernels, copy };
        if place.plan == Plan::Range {
            steps.prefetch_searched(&place);
        } else {
            // The record is likely to lie near the predicted slot.
            steps.look.prefetch_around(predicted);
        }
        let slot = steps.search(&place, key, word);
        searched();
        let value = match slot {
            WordSlot::At(slot) => Some(steps.verify(&place, slot, word)?),
            WordSlot::Absent if steps.is_held() => None,
            WordSlot::Absent | WordSlot::Rare => return None,
        };
        let cost = place.cost(value.is_some());
        let Cost { round_trips, reads, bytes, .. } = cost.into();
        look.count(round_trips, reads, bytes).ok()?;
        Some(WordAnswer::new(cost, value))
    }
}
