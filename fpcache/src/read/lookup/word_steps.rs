//! The steps of a lookup in a table of words, over memory looked at in place: place, search,
//! verify.
//!
//! A round trip is a cache miss here, and instructions decide how many lookups wait for memory at a
//! time. Most of what the usual way takes is for what does not come up: other plans, a hot cache,
//! records of other lengths. So keys of tables of which none of that is true ([`Table::has_words`])
//! go by these steps first, in registers. What is matched and verified, and how, is the same;
//! whatever else shows ends the attempt, and the usual way begins anew.

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::InPlace;

use crate::key_space::KeySpace;
use crate::layout::{FingerprintSpan, REUSE_OFFSET, SlotState, SlotWord};
use crate::matching::{Fingerprints, Kernels};
use crate::models::Segment;
use crate::plan::{Plan, Rule};
use crate::read::Cost;
use crate::read::slot_window::SlotWindow;
use crate::read::verify::Rules;
use crate::table::{Table, WORD_SLOT_BYTES};

/// The state that the steps of any key need.
pub(super) struct WordSteps<'a, K: KeySpace, L, M> {
    pub(super) look: &'a mut L,
    pub(super) table: &'a Table<K>,
    pub(super) kernels: M,
    /// For words that were copied from where others may change them.
    pub(super) copy: &'a mut Vec<u64>,
}

/// Where a key can be, in addresses of the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordPlace {
    /// Slot 0 of its segment.
    slots: u64,
    /// The words that are searched for its slot: the whole words of its window's fingerprints, or
    /// its window's slots.
    searched: u64,
    searched_bytes: u32,
    /// Bytes before the window's fingerprints, and of these.
    skip: u32,
    used: u32,
    /// The window's first slot.
    first: u32,
    generation: u32,
    /// In two stages, or by range.
    pub(super) plan: Plan,
}

/// Where in its window a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordSlot {
    /// In the only one whose fingerprint matches, or that shows the key.
    At(u32),
    /// Nowhere.
    Absent,
    /// For the usual way to say.
    Rare,
}

impl WordPlace {
    /// The place of a key that is left to the usual way.
    pub(super) const RARE: Self = Self {
        slots: 0,
        searched: 0,
        searched_bytes: 0,
        skip: 0,
        used: 0,
        first: 0,
        generation: 0,
        plan: Plan::TwoStage,
    };

    /// The place of a key of this segment, of which it shares `shared` bytes with the first key,
    /// and the predicted slot's address.
    #[inline(always)]
    pub(super) fn of<K: KeySpace>(
        table: &Table<K>,
        (segment, shared): (&Segment<K>, usize),
        key: &K::Key,
        rule: &Rule,
    ) -> (Self, u64) {
        let view = table.view();
        let target = SlotWindow::in_segment(segment, key, shared, view.encoders());
        let slots = target.segment + view.geometry().slots_offset(target.cap) as u64;
        let (first, len) = (target.window.first, target.window.len());
        let place = match rule.choose(len) {
            Plan::Range => Self {
                slots,
                searched: slots + u64::from(first) * WORD_SLOT_BYTES,
                // Windows that are searched so are short.
                searched_bytes: len * WORD_SLOT_BYTES as u32,
                skip: 0,
                used: 0,
                first,
                generation: target.generation,
                plan: Plan::Range,
            },
            _ => {
                let FingerprintSpan { offset, len, skip, used } =
                    view.geometry().fingerprint_span(target.window);
                Self {
                    slots,
                    searched: target.segment + offset as u64,
                    // A window has fewer than 2^16 fingerprints of 8 bytes at most.
                    searched_bytes: len as u32,
                    skip: skip as u32,
                    used: used as u32,
                    first,
                    generation: target.generation,
                    plan: Plan::TwoStage,
                }
            }
        };
        (place, slots + u64::from(target.predicted) * WORD_SLOT_BYTES)
    }

    /// Whether it is a key's for these steps: there is something to be searched.
    #[inline(always)]
    pub(super) fn is_known(&self) -> bool {
        self.searched_bytes > 0
    }

    /// The cost of its answer.
    #[inline(always)]
    pub(super) fn cost(&self, is_there: bool) -> WordCost {
        WordCost { plan: self.plan, searched: self.searched_bytes, is_there }
    }
}

/// The cost of an answer, in a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordCost {
    /// In two stages, or by range.
    pub(super) plan: Plan,
    /// Bytes of what was searched.
    pub(super) searched: u32,
    pub(super) is_there: bool,
}

impl From<WordCost> for Cost {
    #[inline(always)]
    fn from(cost: WordCost) -> Self {
        let is_second = cost.is_there && cost.plan == Plan::TwoStage;
        let trips = 1 + u32::from(is_second);
        let bytes = u64::from(cost.searched) + if is_second { WORD_SLOT_BYTES } else { 0 };
        Self { round_trips: trips, reads: trips, bytes, ..Self::default() }
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels> WordSteps<'_, K, L, M> {
    /// Has what is searched for a key's slot fetched.
    #[inline(always)]
    pub(super) fn prefetch_searched(&self, place: &WordPlace) {
        self.look.prefetch(place.searched, place.searched_bytes as usize);
    }

    /// Has a slot fetched.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, place: &WordPlace, slot: u32) {
        self.look.prefetch(place.slots + u64::from(slot) * WORD_SLOT_BYTES, WORD_SLOT_BYTES as usize);
    }

    /// Looks for the slot of a key, which as a word is `word`.
    #[inline(always)]
    pub(super) fn search(&mut self, place: &WordPlace, key: &K::Key, word: u64) -> WordSlot {
        let geometry = self.table.view().geometry();
        let Ok(words) = self.look.words(place.searched, place.searched_bytes as usize) else {
            return WordSlot::Rare;
        };
        let (count, frozen, slot) = if place.plan == Plan::Range {
            let hits = self.kernels.key_hits_in(words, self.table.view().stride(), word, self.copy);
            (hits.count, hits.frozen, hits.word / (WORD_SLOT_BYTES / 8) as u32)
        } else {
            let (skip, used) = (place.skip as usize, place.used as usize);
            let window = Fingerprints { words, skip, used, width: geometry.width };
            let wanted = geometry.width.of_hash(K::hash(key));
            let hits = self.kernels.hits_in(window, wanted, self.copy);
            (hits.count, hits.frozen, hits.first)
        };
        match count {
            _ if frozen => WordSlot::Rare,
            0 => WordSlot::Absent,
            1 => WordSlot::At(place.first.wrapping_add(slot)),
            _ => WordSlot::Rare,
        }
    }

    /// The word and the value of a slot, if it is this key's. What named the slot was looked at
    /// before.
    #[inline(always)]
    pub(super) fn verify(&mut self, place: &WordPlace, slot: u32, key: u64) -> Option<(SlotWord, u64)> {
        let mut record = [0; 3];
        self.look.record(place.slots + u64::from(slot) * WORD_SLOT_BYTES, &mut record).ok()?;
        let [word, shown, value] = record;
        let word = SlotWord::from_bits(word);
        let is_answer = shown == key
            && word.state() == SlotState::Live
            && Rules::of(self.table.view()).vouched_pair(word, place.generation, &record);
        is_answer.then_some((word, value))
    }

    /// Whether it may be believed that a key is absent whose window was looked at: no memory had
    /// another use yet.
    #[inline(always)]
    pub(super) fn is_held(&mut self) -> bool {
        self.look
            .load_after_reads(REUSE_OFFSET)
            .is_ok_and(|sequence| sequence <= self.table.view().holds_until())
    }
}

/// Orders the search before all looks from here on.
#[inline(always)]
pub(super) fn searched() {
    fence(Ordering::Acquire);
}
