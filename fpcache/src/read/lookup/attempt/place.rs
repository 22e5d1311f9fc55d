//! Where the key of an attempt can be, and having what is looked at there fetched.

use fpcache_fabric::InPlace;
use fpcache_index::Window;

use super::{Attempts, TOGETHER};
use crate::cache::CacheProbe;
use crate::key_space::KeySpace;
use crate::layout::{FingerprintSpan, SEGMENT_HEADER_BYTES, SegmentGeometry};
use crate::matching::{Hits, Kernels, Shown};
use crate::models::Segment;
use crate::plan::{Plan, Rule};
use crate::read::lookup::line::PredictedLine;
use crate::read::slot_window::SlotWindow;

/// Segments whose directory stays in a second-level cache: 42 bytes each.
const CACHED_SEGMENTS: usize = 40_000;

/// Cache lines on either side of the predicted slot's that are fetched for a record: where slots
/// are three words, which is what it was measured with, and where they are longer.
const NEAR_LINES_OF_WORDS: usize = 3;
const NEAR_LINES: usize = 4;

/// One key's attempt: where it can be, in addresses of the region, and where it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::read::lookup) struct Attempt {
    /// The key's, unless its table has words.
    pub(super) hash: u64,
    /// The whole words of its window's fingerprints: their address, and how many bytes.
    pub(super) words: u64,
    pub(super) word_bytes: u32,
    /// Bytes before the window's fingerprints, and of these.
    pub(super) skip: u32,
    pub(super) used: u32,
    pub(in crate::read::lookup) generation: u32,
    /// Slot 0 of its segment.
    slots: u64,
    pub(super) line: PredictedLine,
    pub(super) predicted: u32,
    pub(in crate::read::lookup) window: Window,
    /// How the key is read, unless the hot cache knows it.
    pub(in crate::read::lookup) plan: Plan,
    /// Its slot, as far as it is known.
    pub(in crate::read::lookup) slot: Slot,
}

/// Where in its window a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read::lookup) enum Slot {
    /// In the only one whose fingerprint matches, or that shows the key.
    At(u32),
    /// Where it was predicted: it has been found there.
    Predicted,
    /// Nowhere.
    Absent,
    /// For the engine to say.
    Rare,
}

impl Attempt {
    /// Of a key that is left to the engine.
    pub(super) const RARE: Self = {
        let window = Window { first: 0, last: 0 };
        Self {
            hash: 0,
            words: 0,
            word_bytes: 0,
            skip: 0,
            used: 0,
            generation: 0,
            slots: 0,
            line: PredictedLine::RARE,
            predicted: 0,
            window,
            plan: Plan::TwoStage,
            slot: Slot::Rare,
        }
    };

    #[inline(always)]
    fn of(target: &SlotWindow, (plan, hash): (Plan, u64), geometry: &SegmentGeometry) -> Self {
        // Fingerprints are not looked at where slots are read by range.
        let span = match plan {
            Plan::Range => FingerprintSpan { offset: 0, len: 0, skip: 0, used: 0 },
            _ => geometry.fingerprint_span(target.window),
        };
        Self {
            hash,
            words: target.segment + span.offset as u64,
            // A window has fewer than 2^16 fingerprints of 8 bytes at most.
            word_bytes: span.len as u32,
            skip: span.skip as u32,
            used: span.used as u32,
            generation: target.generation,
            slots: target.segment + geometry.slots_offset(target.cap) as u64,
            line: PredictedLine::of(target),
            predicted: target.predicted,
            window: target.window,
            plan,
            slot: Slot::Absent,
        }
    }

    /// The address of a slot of its segment.
    #[inline(always)]
    pub(in crate::read::lookup) fn slot_address(&self, slot: u32, slot_bytes: usize) -> u64 {
        self.slots + u64::from(slot) * slot_bytes as u64
    }

    /// Where the key can be after a search of its window. `slots` makes of the first hit how many
    /// slots it lies after the window's first.
    #[inline(always)]
    pub(super) fn slot_of(&self, hits: Hits, slots: impl FnOnce(u32) -> u32) -> Slot {
        match hits.shown() {
            Shown::Nothing => Slot::Absent,
            Shown::One(first) => Slot::At(self.window.first.wrapping_add(slots(first))),
            Shown::Rare => Slot::Rare,
        }
    }

    /// The slot that was found to be the key's, if its plan has named one.
    #[inline(always)]
    pub(super) fn named_slot(&self) -> Option<u32> {
        match self.slot {
            Slot::At(slot) => Some(slot),
            Slot::Predicted => Some(self.predicted),
            Slot::Absent | Slot::Rare => None,
        }
    }

    /// The probe of the hot cache for the key.
    #[inline(always)]
    pub(super) fn cache_probe<K: KeySpace>(&self, key: &K::Key, slot_bytes: usize) -> CacheProbe {
        let Self { hash, predicted, window, slots, .. } = *self;
        CacheProbe { hash, key: K::tag(key), predicted, window, slots, slot_bytes: slot_bytes as u32 }
    }
}

impl<K: KeySpace, L: InPlace, M: Kernels, const WIDTH: usize> Attempts<'_, K, L, M, WIDTH> {
    /// Where a key can be, if the page of the directory for it is here.
    #[inline(always)]
    pub(super) fn locate(&self, key: &K::Key, rule: &Rule) -> Option<Attempt> {
        Some(self.attempt(&SlotWindow::of(self.table.view(), key)?, key, rule))
    }

    /// Where a key of this segment can be, whose first key shares this many bytes with it.
    #[inline(always)]
    pub(in crate::read::lookup) fn target_in(
        &self,
        (segment, shared): (&Segment<K>, usize),
        key: &K::Key,
    ) -> SlotWindow {
        SlotWindow::in_segment(segment, key, shared, self.table.view().encoders())
    }

    /// Has the lines fetched of the fingerprints around the predicted slot's, in a table of words:
    /// all of the window's, if ε is 32 or less; and of the slots around it.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_predicted(&self, target: &SlotWindow) {
        let geometry = self.geometry();
        let fingerprint = geometry.width.bytes_of(target.predicted as usize);
        let middle = target.segment + (SEGMENT_HEADER_BYTES + fingerprint) as u64;
        self.look.prefetch_around(middle, Self::MIDDLE_LINES);
        let slots = target.segment + geometry.slots_offset(target.cap) as u64;
        let slot = slots + u64::from(target.predicted) * geometry.slot_bytes as u64;
        self.look.prefetch_around(slot, NEAR_LINES_OF_WORDS);
    }

    #[inline(always)]
    pub(in crate::read::lookup) fn attempt(&self, target: &SlotWindow, key: &K::Key, rule: &Rule) -> Attempt {
        let hash = if Self::WORDS { 0 } else { K::hash(key) };
        let plan = match rule.reads_range(target.window.len()) {
            true => Plan::Range,
            // Words are read by no other.
            false if Self::WORDS => Plan::TwoStage,
            false => rule.otherwise(),
        };
        Attempt::of(target, (plan, hash), &self.geometry())
    }

    /// Where each of a group of keys can be. In a directory that outgrows the cache, keys wait for
    /// its pages together.
    #[inline(always)]
    pub(super) fn locate_all(
        &self,
        keys: &[&K::Key],
        rule: &Rule,
        mut take: impl FnMut(&Self, usize, Attempt),
    ) {
        let resident = self.table.view().models().resident();
        let large = resident.filter(|directory| directory.len() > CACHED_SEGMENTS);
        let mut pages = [None; TOGETHER];
        if let Some(directory) = large {
            for (page, key) in pages.iter_mut().zip(keys) {
                *page = directory.page_for(key, self.kernels);
            }
            for (page, key) in pages.iter().zip(keys) {
                if let Some(page) = page {
                    page.prefetch(key, self.kernels);
                }
            }
        }
        for (at, (page, key)) in pages.iter().zip(keys).enumerate() {
            let attempt = match resident {
                Some(directory) => {
                    let found = match large {
                        Some(_) => page.and_then(|page| page.find_shared(key, self.kernels)),
                        None => directory.find_shared_by(key, self.kernels),
                    };
                    found.map(|found| self.attempt(&self.target_in(found, key), key, rule))
                }
                None if Self::WORDS => None,
                None => self.locate(key, rule),
            };
            if let Some(attempt) = attempt {
                take(self, at, attempt);
            }
        }
    }

    /// Has the lines of a key's window fetched.
    #[inline(always)]
    pub(super) fn prefetch_window(&self, attempt: &Attempt) {
        self.look.prefetch(attempt.words, attempt.word_bytes as usize);
    }

    /// Has a slot's lines fetched.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, attempt: &Attempt, slot: u32) {
        let at = attempt.slot_address(slot, self.slot_bytes());
        match Self::WORDS {
            true => self.look.prefetch_short(at, self.slot_bytes()),
            false => self.look.prefetch(at, self.slot_bytes()),
        }
    }

    /// Has the slots fetched that lie near the predicted one, some of which may lie beside the
    /// window: where the key is among them, its slot comes with the fingerprints that name it. Of
    /// keys as uneven as fb's, a sixth lie where they are predicted, and two fifths within
    /// eight slots of that. Farther gains nothing, and costs even keys a twentieth.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_near(&self, attempt: &Attempt) {
        let lines = if Self::WORDS { NEAR_LINES_OF_WORDS } else { NEAR_LINES };
        self.look.prefetch_around(attempt.slot_address(attempt.predicted, self.slot_bytes()), lines);
    }

    /// Has the lines around the middle of a window fetched, in a table of words: all of it, if ε is
    /// 32 or less.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_middle(&self, attempt: &Attempt) {
        let middle = attempt.words + u64::from(attempt.word_bytes / 2);
        self.look.prefetch_around(middle, Self::MIDDLE_LINES);
    }

    /// Cache lines on either side of a window's middle.
    const MIDDLE_LINES: usize = WIDTH / 2;

    /// Has what a key's plan looks at first fetched.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_first(&self, attempt: &Attempt) {
        match attempt.plan {
            Plan::Range => {
                let first = attempt.slot_address(attempt.window.first, self.slot_bytes());
                self.look.prefetch(first, attempt.window.len() as usize * self.slot_bytes());
            }
            Plan::Speculative => {
                self.prefetch_slot(attempt, attempt.predicted);
                self.prefetch_window(attempt);
            }
            Plan::TwoStage | Plan::Cached | Plan::Groups | Plan::AtNode | Plan::ServerSide => {
                let has_middle = attempt.word_bytes as usize <= 64 * (2 * Self::MIDDLE_LINES + 1);
                if Self::WORDS && has_middle {
                    self.prefetch_middle(attempt);
                } else {
                    self.prefetch_window(attempt);
                }
            }
        }
    }
}
