//! Scans: keys and values in order from a start key.
//!
//! A segment's slots are sorted only to within its windows, so a scan reads a stretch of slots,
//! keeps the keys whose whole window lies inside it, and sorts those. Keys beyond are left for the
//! next stretch, which starts at the window of the first key not yet covered.
//!
//! Where the directory is not whole on the compute node, a page of it that is needed next is asked
//! for in the same doorbell as the stretches before it. A scan holds the page it is in, so that it
//! gets on however few are kept.
//!
//! While records change, a key that is there throughout is found exactly once, in order: its record
//! does not move while its segment lives, a stretch whose segment was replaced is
//! [`ReadError::Stale`], and so is one after which the reuse sequence says that its memory may have
//! been used again. A scan that ends so has kept what it found before, and says where to go on with
//! a newer directory. A key that is removed and made again during a READ may show in two slots; it
//! is listed once.
//!
//! Where a table has groups and the segment's table of these is here, a stretch is of whole
//! [blocks] instead, and covers the keys of these: what it reads beyond them is what the first and
//! the last block have.
//!
//! A scan stops once it has found 16 MiB, so that the caller takes them before there are more.
//!
//! External values are read after the stretches, of the records that are kept, in order and several
//! with one doorbell.

mod blocks;
mod collected;
mod scratch;
mod stretch;
mod values;

use std::borrow::Borrow;
use std::cmp::Ordering;

use fpcache_fabric::{Batch, Landing};

pub(super) use collected::{Collected, DirectedScan, ROUND_BYTES, ScanPosition, margin};
pub use scratch::ScanScratch;
pub(super) use stretch::Cover;
use stretch::CoveredSlots;

use super::segment_search::LocatedSegment;
use super::{Cost, Operation, ReadError, Step};
use crate::group_tables::{GroupTables, SegmentName};
use crate::key_space::KeySpace;
use crate::models::{Models, PagedModels};
use crate::table_view::TableView;

/// A stretch is long if the records wanted of it are this many times the slots that windows take at
/// both its ends.
const LONG: usize = 8;

/// Reads up to `limit` records in key order, starting at the least key not below `start`, of all
/// keys or of those below an end.
#[derive(Debug)]
pub struct Scan<'a, K: KeySpace> {
    collected: Collected<'a, K>,
    /// Least key not yet covered; `None` when the scan has ended.
    from: Option<K::Owned>,
    /// First key after the stretches that were asked for; `None` if they reach the table's end.
    covered_to: Option<K::Owned>,
    /// First key that is not wanted.
    end: Option<K::Owned>,
    /// Tables of groups, by which stretches are asked for.
    groups: Option<&'a GroupTables>,
    /// The table of groups that was asked for.
    awaited: Option<(SegmentName, Landing)>,
    /// Whether the next stretches are to be of windows all the same: a group is marked, or they are
    /// long.
    by_windows: bool,
}

impl<'a, K: KeySpace> Scan<'a, K> {
    /// A scan of the table as `view` has it.
    pub fn new(
        view: &'a TableView<K>,
        scratch: &'a mut ScanScratch<K>,
        start: &K::Key,
        limit: usize,
    ) -> Self {
        Self {
            collected: Collected::new(view, scratch, limit, false),
            from: (limit > 0).then(|| start.to_owned()),
            covered_to: None,
            end: None,
            groups: None,
            awaited: None,
            by_windows: false,
        }
    }

    /// The same scan, of keys below `end` only; none of the slots that only keys after it can have
    /// is read, but those of their common windows.
    #[must_use]
    pub fn until(mut self, end: &K::Key) -> Self {
        self.from = self.from.filter(|from| from.borrow() < end);
        self.end = Some(end.to_owned());
        self
    }

    /// The same scan, by tables of groups where they are here, which are asked for where they are
    /// not: those of the same table as the view.
    #[must_use]
    pub fn with_groups(self, groups: Option<&'a GroupTables>) -> Self {
        Self { groups, ..self }
    }

    /// The least key the scan has not covered: where another one goes on if this one ended with an
    /// error, or because it has found 16 MiB. `None` if the records that were wanted, or all there
    /// are, have been found.
    pub fn uncovered(&self) -> Option<&K::Key> {
        let Collected { scratch, progress, .. } = &self.collected;
        scratch.first_missing(progress).or(self.from.as_ref().map(Borrow::borrow))
    }

    /// The same scan, of keys alone: values are empty, and those outside slots are not READ.
    #[must_use]
    pub fn of_keys(mut self) -> Self {
        self.collected.wants_values = false;
        self
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

    /// The records found so far, in key order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&K::Key, &[u8])> {
        self.collected.scratch.whole(&self.collected.progress)
    }

    fn read_on_in_pages(&mut self, models: &PagedModels<K>, from: &K::Key, mut budget: usize) {
        let mut number = models.page_of(from);
        loop {
            let Some(page) = self.collected.pages.page(models, number) else {
                return self.collected.ask_for_page(number);
            };
            let range_end = models.first_after(number);
            let enough = self.ask_for_segments(
                page.range_from(from).map(LocatedSegment::of),
                from,
                range_end,
                &mut budget,
            );
            if enough || range_end.is_none() {
                return;
            }
            number += 1;
        }
    }

    /// Asks for the slots of these segments, the first one's from the window of `from` on. `true`
    /// if they are enough, `false` if those after the last one, which begin at `range_end`, are
    /// wanted too.
    fn ask_for_segments(
        &mut self,
        segments: impl Iterator<Item = LocatedSegment<K>>,
        from: &K::Key,
        range_end: Option<&K::Owned>,
        budget: &mut usize,
    ) -> bool {
        let mut segments = segments.peekable();
        while let Some(place) = segments.next() {
            let cap = place.cap();
            let from = self.collected.scratch.stretches.is_empty().then_some(from);
            self.covered_to = segments.peek().map(|next| &next.start).or(range_end).cloned();
            let blocks = self.blocks_to_read(&place, from, *budget);
            let CoveredSlots { first, end, before, cover } =
                blocks.unwrap_or_else(|| self.windows_to_read(&place, from, *budget));
            self.collected.ask(place, (first, end), cover);
            *budget = budget.saturating_sub((end - first).saturating_sub(before) as usize);
            if end < cap || *budget == 0 || self.collected.reaches_end {
                return true;
            }
        }
        false
    }

    /// The slots whose windows have as many records as are wanted: from the window of the least key
    /// on, or all from the first.
    fn windows_to_read(
        &mut self,
        place: &LocatedSegment<K>,
        from: Option<&K::Key>,
        wanted: usize,
    ) -> CoveredSlots {
        let first = from.map_or(0, |from| place.window(from, self.collected.view).first);
        let margin = margin(place.segment.model().epsilon.into()) + self.collected.extra;
        let end = place.cap().min(first.saturating_add(wanted as u32).saturating_add(margin));
        let last = self.last_wanted(place);
        self.collected.reaches_end = last.is_some_and(|last| last < end);
        let end = last.map_or(end, |last| end.min(last + 1)).max(first + 1);
        CoveredSlots { first, end, before: 0, cover: Cover::Windows }
    }

    /// The last slot of the segment that a wanted key can have, where the scan's end lies in its
    /// range or is that of it.
    fn last_wanted(&self, place: &LocatedSegment<K>) -> Option<u32> {
        let end = self.end.as_ref()?.borrow();
        match self.covered_to.as_ref().map(|covered_to| end.cmp(covered_to.borrow())) {
            None | Some(Ordering::Less) => Some(place.window(end, self.collected.view).last),
            Some(Ordering::Equal) => Some(place.cap().saturating_sub(1)),
            Some(Ordering::Greater) => None,
        }
    }
}

impl<'a, K: KeySpace> DirectedScan<'a, K> for Scan<'a, K> {
    fn collected(&mut self) -> &mut Collected<'a, K> {
        &mut self.collected
    }

    fn take(&mut self) -> Result<bool, ReadError> {
        let Some(from) = self.from.clone() else { return Ok(true) };
        let from: &K::Key = from.borrow();
        let (view, geometry) = (self.collected.view, self.collected.view.geometry());
        let ScanScratch { batch, stretches, .. } = &mut *self.collected.scratch;
        // Where keys end that are covered, if not with the last stretch's segment.
        let (mut cut, mut is_marked, mut is_whole) = (None, false, true);
        for at in 0..stretches.len() {
            let stretch = &stretches[at];
            cut = stretch.cut(geometry.groups, geometry.slot_bytes, batch.bytes(stretch.landing));
            is_marked = cut.as_ref().is_some_and(|cut| stretch.is_marked(cut));
            is_whole = stretch.is_to_end() && cut.is_none();
            if is_marked {
                // What lies after it is for later.
                self.collected.reaches_end = false;
                stretches.truncate(at + 1);
                break;
            }
        }
        let end: Option<&K::Key> = self.end.as_ref().map(Borrow::borrow);
        let is_settled = self.collected.gather(|stretch, key| {
            // Of blocks, those that are covered are found when keys are in order.
            let has_all = stretch.cover != Cover::Windows || stretch.is_to_end();
            key >= from
                && end.is_none_or(|end| key < end)
                && (has_all || stretch.place.window(key, view).last < stretch.end)
        })?;
        if is_settled {
            self.by_windows = is_marked;
            if let Some(cut) = cut {
                self.drop_uncovered(&cut);
            }
            match self.collected.keep_found(is_whole) {
                ScanPosition::Ended => self.from = None,
                ScanPosition::Segments => self.from = self.covered_to.take(),
                ScanPosition::Key(last) => self.from = K::successor(last),
                // Blocks without a key that is covered, or a marked group at the first: by windows,
                // for as long as it takes.
                ScanPosition::Same => self.by_windows = true,
            }
        }
        self.take_table();
        Ok(is_settled)
    }

    fn goes_on(&self) -> bool {
        self.from.is_some()
    }

    fn go_back_to(&mut self, key: Option<K::Owned>) {
        self.from = key;
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted,
    /// and for the directory page of those after if that is where the segments end that are known.
    fn read_on(&mut self) -> Step {
        let Some(from) = self.from.clone() else { return Step::Done };
        let (view, from) = (self.collected.view, from.borrow());
        let mut budget = self.collected.begin_round();
        // Blocks would spare little of a long stretch, and a mark in it costs a round trip.
        self.by_windows |= budget > LONG * margin(view.record().parameters.epsilon) as usize;
        match view.models() {
            Models::Resident(directory) => {
                self.ask_for_segments(
                    directory.range_from(from).map(LocatedSegment::of),
                    from,
                    None,
                    &mut budget,
                );
            }
            Models::Paged(models) => self.read_on_in_pages(models, from, budget),
        }
        Step::Post
    }
}

impl<K: KeySpace> Operation for Scan<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        self.advance()
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.collected.scratch.batch
    }
}
