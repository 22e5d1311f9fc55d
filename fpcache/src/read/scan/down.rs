//! Scans that go down.
//!
//! The mirror image of one that goes up: a stretch of slots is read from the upper end on, the keys
//! are kept whose whole window does not begin below it, and those are sorted. Whatever lies above a
//! key that is kept is in the stretch.

use std::borrow::Borrow;

use super::Scan;
use super::collected::{Collected, ScanPosition, margin};
use super::stretch::Cover;
use crate::key_space::KeySpace;
use crate::read::segment_search::{LocatedSegment, SegmentSearch};
use crate::read::{ReadError, Step};

impl<K: KeySpace> Scan<'_, K> {
    /// The segment that holds the greatest keys that are not covered.
    fn highest_segment(&mut self) -> SegmentSearch<K> {
        let Collected { pages, view, .. } = &mut self.collected;
        let Some(end) = self.end.as_ref().map(Borrow::borrow) else {
            return pages.holding(view, K::highest());
        };
        match pages.holding(view, end) {
            SegmentSearch::Here(place) if place.start.borrow() == end => pages.before(view, end),
            found => found,
        }
    }

    /// Asks for slots of a segment, of the first one from the window of the scan's end down. Whether
    /// they are enough.
    fn ask_down(&mut self, place: LocatedSegment<K>, budget: &mut u32) -> bool {
        let (view, start) = (self.collected.view, self.start.borrow());
        let highest = self.end.as_ref().map_or(K::highest(), Borrow::borrow);
        let end = match self.collected.scratch.stretches.is_empty() {
            true => self.collected.beyond_reached(&place, place.window(highest, view).last + 1),
            false => place.cap(),
        };
        let margin = margin(place.segment.model().epsilon.into());
        let first = end.saturating_sub(budget.saturating_add(margin));
        let least = (place.start.borrow() <= start).then(|| place.window(start, view).first);
        self.collected.reaches_end = least.is_some_and(|least| first <= least);
        let first = first.max(least.unwrap_or(0)).min(end - 1);
        self.collected.ask(place, (first, end), Cover::Windows);
        *budget = budget.saturating_sub(end - first);
        first > 0 || *budget == 0 || self.collected.reaches_end
    }

    /// See [`take`](Self::take).
    pub(super) fn take_down(&mut self) -> Result<bool, ReadError> {
        let view = self.collected.view;
        let (start, end) = (self.start.borrow(), self.end.as_ref().map(Borrow::borrow));
        let is_settled = self.collected.gather(|stretch, key| {
            let first = stretch.first;
            key >= start
                && end.is_none_or(|end| key < end)
                && (first == 0 || stretch.place.window(key, view).first >= first)
        })?;
        if is_settled {
            let stretches = &self.collected.scratch.stretches;
            // The first key after which all are covered: those of the segments that it has whole.
            let is_whole = stretches.last().is_some_and(|lowest| lowest.first == 0);
            let mut whole = stretches.iter().rev().skip(usize::from(!is_whole));
            let covered_from = whole.next().map(|lowest| lowest.place.start.clone());
            match self.collected.keep_found(is_whole) {
                ScanPosition::Ended => self.is_over = true,
                ScanPosition::Segments => self.end = covered_from,
                ScanPosition::Key(last) => {
                    let last = last.to_owned();
                    self.end = Some(covered_from.map_or(last.clone(), |covered| covered.min(last)));
                }
                ScanPosition::Same => self.end = covered_from.or(self.end.take()),
            }
        }
        Ok(is_settled)
    }

    /// See [`read_on`](Self::read_on).
    pub(super) fn read_on_down(&mut self) -> Step {
        let mut budget = self.collected.begin_round() as u32;
        let mut found = self.highest_segment();
        loop {
            match found {
                SegmentSearch::Here(place) => {
                    let start = place.start.clone();
                    if self.ask_down(place, &mut budget) {
                        return Step::Post;
                    }
                    found = self.collected.pages.before(self.collected.view, start.borrow());
                }
                SegmentSearch::InPage(number) => {
                    self.collected.ask_for_page(number);
                    return Step::Post;
                }
                SegmentSearch::Nowhere if self.collected.scratch.batch.is_empty() => {
                    // There is no segment below.
                    self.is_over = true;
                    return Step::Done;
                }
                SegmentSearch::Nowhere => {
                    self.collected.reaches_end = true;
                    return Step::Post;
                }
            }
        }
    }
}
