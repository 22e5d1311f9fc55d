//! Scans that go down: keys and values in descending order.
//!
//! The mirror image of a scan: a stretch of slots is read from the upper end on, the keys are kept
//! whose whole window does not begin below it, and those are sorted. Whatever lies above a key that
//! is kept is in the stretch.

use std::borrow::Borrow;
use std::ops::Bound;

use fpcache_fabric::Batch;

use crate::key_space::KeySpace;
use crate::read::scan::{Collected, Cover, DirectedScan, ScanPosition, ScanScratch, margin};
use crate::read::segment_search::{LocatedSegment, SegmentSearch};
use crate::read::{Cost, Operation, ReadError, Step};
use crate::table_view::TableView;

/// Reads up to `limit` records in descending order of their keys, from a key down to another. What
/// is promised while records change is what [`Scan`](crate::read::Scan) promises.
#[derive(Debug)]
pub struct ScanBack<'a, K: KeySpace> {
    collected: Collected<'a, K>,
    /// The keys not covered yet lie below; `None` when the scan has ended.
    to: Option<Bound<K::Owned>>,
    /// The least key that is wanted.
    from: K::Owned,
}

impl<'a, K: KeySpace> ScanBack<'a, K> {
    /// A scan of the table as `view` has it, from the greatest key within `to` down to the least
    /// that is not below `from`.
    pub fn new(
        view: &'a TableView<K>,
        scratch: &'a mut ScanScratch<K>,
        to: Bound<&K::Key>,
        from: &K::Key,
        limit: usize,
    ) -> Self {
        let to = match to {
            Bound::Included(key) if key >= from => Some(Bound::Included(key.to_owned())),
            Bound::Excluded(key) if key > from => Some(Bound::Excluded(key.to_owned())),
            Bound::Unbounded => Some(Bound::Included(K::highest().to_owned())),
            Bound::Included(_) | Bound::Excluded(_) => None,
        };
        let collected = Collected::new(view, scratch, limit, true);
        Self { collected, to: to.filter(|_| limit > 0), from: from.to_owned() }
    }

    /// Where another scan goes on if this one ended with an error, or because it has found 16 MiB.
    /// `None` if the records that were wanted, or all there are, have been found.
    pub fn uncovered(&self) -> Option<Bound<K::Owned>> {
        let missing = self.collected.scratch.first_missing(&self.collected.progress);
        missing.map(|key| Bound::Included(key.to_owned())).or_else(|| self.to.clone())
    }

    /// How many records had been found when one was met that is being written, while its slot is
    /// read again; `None` while the scan gets on.
    pub fn stuck_at(&self) -> Option<usize> {
        self.collected.progress.stuck_at()
    }

    /// The cost of the scan so far.
    pub fn cost(&self) -> Cost {
        self.collected.progress.cost
    }

    /// The records found so far, in descending order of their keys.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&K::Key, &[u8])> {
        self.collected.scratch.whole(&self.collected.progress)
    }

    /// The segment that holds the greatest keys that are not covered.
    fn highest_segment(&mut self, to: &Bound<K::Owned>) -> SegmentSearch<K> {
        let Collected { pages, view, .. } = &mut self.collected;
        match to {
            Bound::Included(key) => pages.holding(view, key.borrow()),
            Bound::Excluded(key) => match pages.holding(view, key.borrow()) {
                SegmentSearch::Here(place) if place.start.borrow() == key.borrow() => {
                    pages.before(view, key.borrow())
                }
                found => found,
            },
            Bound::Unbounded => SegmentSearch::Nowhere,
        }
    }

    /// Asks for slots of a segment, of the first one from the window of `to` down. Whether they are
    /// enough.
    fn ask_for(&mut self, place: LocatedSegment<K>, to: &Bound<K::Owned>, budget: &mut u32) -> bool {
        let (view, from) = (self.collected.view, self.from.borrow());
        let is_first = self.collected.scratch.stretches.is_empty();
        let end = match to {
            Bound::Included(key) | Bound::Excluded(key) if is_first && place.start <= *key => {
                place.window(key.borrow(), view).last + 1
            }
            _ => place.cap(),
        };
        let margin = margin(place.segment.model().epsilon.into()) + self.collected.extra;
        let first = end.saturating_sub(budget.saturating_add(margin));
        let least = (place.start.borrow() <= from).then(|| place.window(from, view).first);
        self.collected.reaches_end = least.is_some_and(|least| first <= least);
        let first = first.max(least.unwrap_or(0)).min(end - 1);
        self.collected.ask(place, (first, end), Cover::Windows);
        *budget = budget.saturating_sub(end - first);
        first > 0 || *budget == 0 || self.collected.reaches_end
    }
}

impl<'a, K: KeySpace> DirectedScan<'a, K> for ScanBack<'a, K> {
    fn collected(&mut self) -> &mut Collected<'a, K> {
        &mut self.collected
    }

    fn take(&mut self) -> Result<bool, ReadError> {
        let Some(to) = self.to.clone() else { return Ok(true) };
        let (view, from) = (self.collected.view, self.from.borrow());
        let is_settled = self.collected.gather(|stretch, key| {
            let is_below = match &to {
                Bound::Included(to) => key <= to.borrow(),
                Bound::Excluded(to) => key < to.borrow(),
                Bound::Unbounded => true,
            };
            let first = stretch.first;
            key >= from && is_below && (first == 0 || stretch.place.window(key, view).first >= first)
        })?;
        if is_settled {
            let lowest = self.collected.scratch.stretches.last().filter(|lowest| lowest.first == 0);
            let lowest = lowest.map(|lowest| lowest.place.start.clone());
            match self.collected.keep_found(lowest.is_some()) {
                ScanPosition::Ended => self.to = None,
                ScanPosition::Segments => self.to = lowest.map(Bound::Excluded),
                ScanPosition::Key(last) => self.to = Some(Bound::Excluded(last.to_owned())),
                ScanPosition::Same => {}
            }
        }
        Ok(is_settled)
    }

    fn goes_on(&self) -> bool {
        self.to.is_some()
    }

    fn go_back_to(&mut self, key: Option<K::Owned>) {
        self.to = key.map(Bound::Included);
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted.
    fn read_on(&mut self) -> Step {
        let Some(to) = self.to.clone() else { return Step::Done };
        let mut budget = self.collected.begin_round() as u32;
        let mut found = self.highest_segment(&to);
        loop {
            match found {
                SegmentSearch::Here(place) => {
                    let lo = place.start.clone();
                    if self.ask_for(place, &to, &mut budget) {
                        return Step::Post;
                    }
                    found = self.collected.pages.before(self.collected.view, lo.borrow());
                }
                SegmentSearch::InPage(number) => {
                    self.collected.ask_for_page(number);
                    return Step::Post;
                }
                SegmentSearch::Nowhere if self.collected.scratch.batch.is_empty() => {
                    // There is no segment below.
                    self.to = None;
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

impl<K: KeySpace> Operation for ScanBack<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        self.advance()
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.collected.scratch.batch
    }
}
