//! The requests of a search.

use std::borrow::Borrow;

use fpcache_fabric::Batch;

use super::{AwaitedBytes, Doorbell, SearchContext, SearchStep, Seek, SlotRange};
use crate::key_space::KeySpace;
use crate::read::Cost;
use crate::read::external::{Extents, GROUP_BYTES};
use crate::read::ordered::Side;
use crate::read::scan::ROUND_BYTES;
use crate::read::segment_search::{LocatedSegment, SegmentSearch};

/// Slots that are read beyond a window at first. Most keys' neighbours have a window that does not
/// reach further.
const BEYOND: u32 = 8;
/// The fewest slots that are read where nothing was found.
const FURTHER: u32 = 64;
/// Words of a collection or a slot, and stretches, that a search keeps room for until the next one:
/// as many as most searches need. They take 4 KiB.
const KEPT_WORDS: usize = 1 << 7;
const KEPT_STRETCHES: usize = 4;

impl<K: KeySpace> Seek<K> {
    /// Forgets the search before, and what it held.
    pub(in crate::read::ordered) fn clear(&mut self) {
        self.end();
        self.forget_record();
        (self.next, self.awaited, self.is_at_end) = (SearchStep::Begin, None, false);
        (self.attempts, self.cost) = (0, Cost::default());
        self.collect_again();
    }

    pub(super) fn collect_again(&mut self) {
        self.words.clear();
        (self.nearest, self.has_busy) = (None, false);
    }

    /// Ends the search: of all that was read, the record that was found is kept.
    pub(in crate::read::ordered) fn end(&mut self) {
        self.next = SearchStep::Nothing;
        self.pages.clear();
        for words in [&mut self.words, &mut self.before] {
            words.clear();
            words.shrink_to(KEPT_WORDS);
        }
        self.stretches.clear();
        self.stretches.shrink_to(KEPT_STRETCHES);
    }

    /// Forgets the record that was found.
    pub(in crate::read::ordered) fn forget_record(&mut self) {
        self.slot.clear();
        self.slot.shrink_to(KEPT_WORDS);
    }

    /// Bytes that it keeps of what it has read, but for two pages of the directory.
    pub(in crate::read::ordered) fn kept(&self) -> u64 {
        let words = self.words.len() + self.before.len() + self.slot.len();
        (words * size_of::<u64>() + size_of_val(&*self.stretches)) as u64
    }

    /// Whether it has to wait for others of its group, which hold enough already. The first that
    /// asks never has to.
    fn must_wait(&self, doorbell: &Doorbell<'_, K>) -> bool {
        !doorbell.batch.is_empty() && doorbell.held() > GROUP_BYTES
    }

    fn ask_for_page(&mut self, number: u32, rule: &SearchContext<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let Doorbell { batch, coming, .. } = doorbell;
        self.pages.ask(number, rule.view, (batch, coming), &mut self.cost);
    }

    /// Asks for what is needed next; later if more than [`GROUP_BYTES`] would be under way.
    pub(in crate::read::ordered) fn ask(
        &mut self,
        key: &K::Key,
        rule: &SearchContext<'_, K>,
        doorbell: &mut Doorbell<'_, K>,
    ) {
        if self.must_wait(doorbell) {
            return;
        }
        let asked_before = doorbell.batch.len();
        self.awaited = match self.next {
            SearchStep::Nothing => None,
            SearchStep::Fetch(version, extent) => {
                // Looked at when the record was found.
                let Some((from, bytes)) = Extents::of(rule.view).place(extent) else { return };
                if !doorbell.batch.is_empty() && doorbell.held() + bytes as u64 > GROUP_BYTES {
                    return;
                }
                self.cost.reads += 1;
                self.cost.bytes += bytes as u64;
                Some(AwaitedBytes::Value(version, extent, doorbell.batch.read(from, bytes)))
            }
            SearchStep::Begin => {
                self.begin(key, rule, doorbell);
                Some(self.ask_for_stretches(0, rule, doorbell.batch))
            }
            SearchStep::Extend => {
                let from = self.stretches.len();
                self.extend(key, rule, doorbell);
                Some(self.ask_for_stretches(from, rule, doorbell.batch))
            }
            SearchStep::Collect(from) => Some(self.ask_for_stretches(from, rule, doorbell.batch)),
        };
        self.cost.round_trips += u32::from(doorbell.batch.len() > asked_before);
    }

    /// The first stretch, and one of the neighbour beside it where the window lies at its segment's
    /// end.
    #[inline]
    fn begin(&mut self, key: &K::Key, rule: &SearchContext<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let place = match self.pages.holding(rule.view, key) {
            SegmentSearch::Here(place) => place,
            SegmentSearch::Nowhere => return self.is_at_end = true,
            SegmentSearch::InPage(number) => return self.ask_for_page(number, rule, doorbell),
        };
        let (window, cap) = (place.window(key, rule.view), place.cap());
        let epsilon = u32::from(place.segment.model().epsilon);
        let (first, end, is_at_edge) = match rule.side {
            Side::Floor => {
                let first = window.first.saturating_sub(BEYOND);
                (first, window.last + 1, window.last < epsilon + BEYOND / 2)
            }
            Side::Ceiling => {
                let end = (window.last + 1 + BEYOND).min(cap);
                (window.first, end, window.first + epsilon + BEYOND / 2 >= cap)
            }
        };
        self.push(place, first, end);
        if is_at_edge && self.reaches_edge(rule.side) {
            self.go_on_in_neighbour(BEYOND, rule, doorbell);
        }
    }

    fn push(&mut self, place: LocatedSegment<K>, first: u32, end: u32) {
        let words = self.stretches.last().map_or(0, |last| last.words + (last.end - last.first) as usize);
        self.stretches.push(SlotRange { place, first, end, words, landing: None });
    }

    /// Whether the last stretch ends with its segment.
    pub(super) fn reaches_edge(&self, side: Side) -> bool {
        self.stretches.last().is_some_and(|last| match side {
            Side::Floor => last.first == 0,
            Side::Ceiling => last.end == last.place.cap(),
        })
    }

    /// A stretch of the segment beside the last one, as long as its windows and `more` slots.
    /// `false` without such a segment, or its page of the directory has to come first.
    fn go_on_in_neighbour(
        &mut self,
        more: u32,
        rule: &SearchContext<'_, K>,
        doorbell: &mut Doorbell<'_, K>,
    ) -> bool {
        let Some(last) = self.stretches.last() else { return false };
        let lo = last.place.start.borrow();
        let found = match rule.side {
            Side::Floor => self.pages.before(rule.view, lo),
            Side::Ceiling => self.pages.after(rule.view, lo),
        };
        match found {
            SegmentSearch::Here(place) => {
                let cap = place.cap();
                let len = (u32::from(place.segment.model().epsilon) + more).min(cap);
                let (first, end) = match rule.side {
                    Side::Floor => (cap - len, cap),
                    Side::Ceiling => (0, len),
                };
                self.push(place, first, end);
                true
            }
            SegmentSearch::Nowhere => {
                self.is_at_end = true;
                false
            }
            SegmentSearch::InPage(number) => {
                self.ask_for_page(number, rule, doorbell);
                false
            }
        }
    }

    /// Stretches further out: up to the end of the window of the record that was found, or the same
    /// number of slots again.
    fn extend(&mut self, key: &K::Key, rule: &SearchContext<'_, K>, doorbell: &mut Doorbell<'_, K>) {
        let Some(last) = self.stretches.last() else { return self.begin(key, rule, doorbell) };
        let (place, first, end) = (last.place.clone(), last.first, last.end);
        if let Some(edge) = self.edge(rule) {
            return match rule.side {
                Side::Floor => self.push(place, edge, first),
                Side::Ceiling => self.push(place, end, edge),
            };
        }
        let read = self.words.len() as u32;
        let most = (ROUND_BYTES / rule.view.geometry().slot_bytes).max(1) as u32;
        let mut more = read.saturating_mul(2).clamp(FURTHER, most.max(FURTHER));
        if !self.reaches_edge(rule.side) {
            match rule.side {
                Side::Floor => self.push(place, first.saturating_sub(more), first),
                Side::Ceiling => {
                    let cap = place.cap();
                    self.push(place, end, end.saturating_add(more).min(cap));
                }
            }
            more = more.saturating_sub(self.last_len());
        }
        while self.reaches_edge(rule.side) && more > 0 && self.go_on_in_neighbour(more, rule, doorbell) {
            more = more.saturating_sub(self.last_len());
        }
    }

    fn last_len(&self) -> u32 {
        self.stretches.last().map_or(0, |last| last.end - last.first)
    }

    /// Asks for stretches from one on, for as many as fit a doorbell.
    fn ask_for_stretches(
        &mut self,
        from: usize,
        rule: &SearchContext<'_, K>,
        batch: &mut Batch,
    ) -> AwaitedBytes {
        let (mut asked, mut to) = (0, from);
        for stretch in &mut self.stretches[from..] {
            let bytes = (stretch.end - stretch.first) as usize * rule.view.geometry().slot_bytes;
            if asked > 0 && asked + bytes > ROUND_BYTES {
                break;
            }
            let slots = (stretch.first, stretch.end);
            stretch.landing = Some(stretch.place.ask(slots, rule.view, batch, &mut self.cost));
            (asked, to) = (asked + bytes, to + 1);
        }
        if to > from { AwaitedBytes::Stretches(from, to) } else { AwaitedBytes::Page }
    }
}
