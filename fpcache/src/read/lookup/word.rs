//! One key of a table of words, over memory looked at in place: the common course of the lookup
//! that most programs make, in as few instructions as it takes.
//!
//! A round trip is a cache miss here, and a `get` waits for two. What it takes beside these is
//! instructions, and most of the usual way's are for what does not come up: other plans, a hot
//! cache, records of other lengths. So keys of tables of which none of that is true
//! ([`Table::has_words`]) are looked up here first, in registers. What is matched and verified, and
//! how, is the same; whatever else shows ends the attempt, and the usual way begins anew.

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;

use crate::key_space::KeySpace;
use crate::layout::{FingerprintSpan, REUSE_OFFSET, RecordShape, SlotState, SlotWord};
use crate::matching::{Fingerprints, Kernels, WithKernels};
use crate::plan::Plan;
use crate::read::Cost;
use crate::read::outcome::Outcome;
use crate::read::slot_window::SlotWindow;
use crate::read::verify::Rules;
use crate::table::{Table, WORD_SLOT_BYTES};

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
    fn new(searched: &Searched, value: Option<(SlotWord, u64)>) -> Self {
        let plan = if searched.plan == Plan::Range { Self::BY_RANGE } else { 0 };
        let head = Self::IS_ANSWER | plan | u64::from(searched.bytes) << Self::BYTES;
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
        let searched = Searched { plan, bytes: (self.head >> Self::BYTES) as u32 & 0xff_ffff };
        Outcome {
            version: is_there.then_some(self.head as u32),
            cost: searched.cost(is_there),
            ..Outcome::begun(plan)
        }
    }
}

/// What was searched for a key's slot.
struct Searched {
    /// In two stages, or by range.
    plan: Plan,
    bytes: u32,
}

impl Searched {
    /// What the answer cost.
    #[inline(always)]
    fn cost(&self, is_there: bool) -> Cost {
        let is_second = is_there && self.plan == Plan::TwoStage;
        let trips = 1 + u32::from(is_second);
        let bytes = u64::from(self.bytes) + if is_second { WORD_SLOT_BYTES } else { 0 };
        Cost { round_trips: trips, reads: trips, bytes, ..Cost::default() }
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
    fn answer<M: Kernels>(mut self, kernels: M) -> Option<WordAnswer> {
        let view = self.table.view();
        let key = K::word(self.key)?;
        let (segment, shared) = view.models().resident()?.find_shared(self.key)?;
        let target = SlotWindow::in_segment(segment, self.key, shared, view.encoders());
        let slots = target.segment + view.geometry().slots_offset(target.cap) as u64;
        let (searched, slot) = match self.table.planner().single().choose(target.window.len()) {
            Plan::Range => self.search_slots(&target, slots, key, kernels)?,
            _ => self.search_fingerprints(&target, slots, kernels)?,
        };
        // What was searched was looked at before the slot, and the reuse sequence, are.
        fence(Ordering::Acquire);
        let Some(slot) = slot else {
            let is_held = self.look.load_after_reads(REUSE_OFFSET).ok()? <= view.holds_until();
            return is_held.then(|| self.counted(&searched, None))?;
        };
        let mut record = [0; 3];
        self.look.record(slots + u64::from(slot) * WORD_SLOT_BYTES, &mut record).ok()?;
        let [word, shown, value] = record;
        let word = SlotWord::from_bits(word);
        let is_answer = shown == key
            && word.state() == SlotState::Live
            && Rules::of(view).vouched_pair(word, target.generation, &record);
        is_answer.then(|| self.counted(&searched, Some((word, value))))?
    }

    /// The answer, when what it took has been counted.
    #[inline(always)]
    fn counted(&mut self, searched: &Searched, value: Option<(SlotWord, u64)>) -> Option<WordAnswer> {
        let Cost { round_trips, reads, bytes, .. } = searched.cost(value.is_some());
        self.look.count(round_trips, reads, bytes).ok()?;
        Some(WordAnswer::new(searched, value))
    }

    /// The only slot of the window whose fingerprint is the key's, if there is one; its record is
    /// likely to lie near the predicted slot.
    #[inline(always)]
    fn search_fingerprints<M: Kernels>(
        &mut self,
        target: &SlotWindow,
        slots: u64,
        kernels: M,
    ) -> Option<(Searched, Option<u32>)> {
        let geometry = self.table.view().geometry();
        self.look.prefetch_around(slots + u64::from(target.predicted) * WORD_SLOT_BYTES);
        let FingerprintSpan { offset, len, skip, used } = geometry.fingerprint_span(target.window);
        let words = self.look.words(target.segment + offset as u64, len).ok()?;
        let window = Fingerprints { words, skip, used, width: geometry.width };
        let wanted = geometry.width.of_hash(K::hash(self.key));
        let hits = kernels.hits_in(window, wanted, self.copy);
        if hits.frozen || hits.count > 1 {
            return None;
        }
        // A window has fewer than 2^16 fingerprints of 8 bytes at most.
        let searched = Searched { plan: Plan::TwoStage, bytes: len as u32 };
        Some((searched, (hits.count == 1).then(|| target.window.first + hits.first)))
    }

    /// The only slot of the window that shows the key, if there is one.
    #[inline(always)]
    fn search_slots<M: Kernels>(
        &mut self,
        target: &SlotWindow,
        slots: u64,
        key: u64,
        kernels: M,
    ) -> Option<(Searched, Option<u32>)> {
        let bytes = target.window.len() as usize * WORD_SLOT_BYTES as usize;
        let first = slots + u64::from(target.window.first) * WORD_SLOT_BYTES;
        self.look.prefetch(first, bytes);
        let words = self.look.words(first, bytes).ok()?;
        let hits = kernels.key_hits_in(words, self.table.view().stride(), key, self.copy);
        if hits.frozen || hits.count > 1 {
            return None;
        }
        // Windows that are searched so are short.
        let searched = Searched { plan: Plan::Range, bytes: bytes as u32 };
        let slot = || target.window.first + hits.word / (WORD_SLOT_BYTES / 8) as u32;
        Some((searched, (hits.count == 1).then(slot)))
    }
}
