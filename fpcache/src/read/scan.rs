//! Scans: keys and values in order from a start key, or in descending order from an end.
//!
//! A segment's slots are sorted only to within its windows, so a scan reads a stretch of slots,
//! keeps the keys whose whole window lies inside it, and sorts those. Keys beyond are left for the
//! next stretch, which starts at the window of the first key not yet covered, and at most 2ε slots
//! before the end of this one: however few keys were found, those that it does not cover lie there
//! or farther on. So scans by windows read slots that were emptied twice at most.
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
mod down;
mod scratch;
mod stretch;
mod values;

use std::borrow::Borrow;
use std::cmp::Ordering;

use fpcache_fabric::{Batch, Landing};

pub(super) use collected::ROUND_BYTES;
use collected::{Collected, ScanPosition, margin};
pub use scratch::ScanScratch;
use stretch::{Cover, CoveredSlots};
use values::ValuesRequest;

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
/// keys or of those below an end; or the same records from the greatest key down.
#[derive(Debug)]
pub struct Scan<'a, K: KeySpace> {
    collected: Collected<'a, K>,
    /// The least key not yet covered, or for a scan that goes down the least that is wanted.
    start: K::Owned,
    /// The first key that is not wanted, or for a scan that goes down the first that is covered.
    end: Option<K::Owned>,
    /// Whether all keys are covered that are wanted.
    is_over: bool,
    /// First key after the stretches that were asked for; `None` if they reach the table's end.
    covered_to: Option<K::Owned>,
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
            collected: Collected::new(view, scratch, limit),
            start: start.to_owned(),
            end: None,
            is_over: limit == 0,
            covered_to: None,
            groups: None,
            awaited: None,
            by_windows: false,
        }
    }

    /// The same scan, of keys below `end` only; none of the slots that only keys after it can have
    /// is read, but those of their common windows.
    #[must_use]
    pub fn until(mut self, end: &K::Key) -> Self {
        self.is_over |= self.start.borrow() >= end;
        self.end = Some(end.to_owned());
        self
    }

    /// The same scan from its end on, in descending order of keys, and by windows alone.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.collected.is_down = true;
        self
    }

    /// The same scan, by tables of groups where they are here, which are asked for where they are
    /// not: those of the same table as the view.
    #[must_use]
    pub fn with_groups(self, groups: Option<&'a GroupTables>) -> Self {
        Self { groups, ..self }
    }

    /// The keys the scan has not covered, from one up to an end: where another one goes on if this
    /// one ended with an error, or because it has found 16 MiB. `None` if the records that were
    /// wanted, or all there are, have been found.
    pub fn uncovered(&self) -> Option<(K::Owned, Option<K::Owned>)> {
        let Collected { scratch, progress, is_down, .. } = &self.collected;
        match scratch.first_missing(progress) {
            Some(missing) if *is_down => Some((self.start.clone(), K::successor(missing))),
            Some(missing) => Some((missing.to_owned(), self.end.clone())),
            None => (!self.is_over).then(|| (self.start.clone(), self.end.clone())),
        }
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

    /// The records found so far, in the scan's order.
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
        let first = from.map_or(0, |from| {
            self.collected.beyond_reached(place, place.window(from, self.collected.view).first)
        });
        let margin = margin(place.segment.model().epsilon.into());
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

    /// Takes the stretches that arrived: appends the covered records in order. `false` if a slot
    /// was being written.
    fn take(&mut self) -> Result<bool, ReadError> {
        if self.is_over {
            return Ok(true);
        }
        if self.collected.is_down {
            return self.take_down();
        }
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
        let (start, end) = (self.start.borrow(), self.end.as_ref().map(Borrow::borrow));
        let is_settled = self.collected.gather(|stretch, key| {
            // Of blocks, those that are covered are found when keys are in order.
            let has_all = stretch.cover != Cover::Windows || stretch.is_to_end();
            key >= start
                && end.is_none_or(|end| key < end)
                && (has_all || stretch.place.window(key, view).last < stretch.end)
        })?;
        if is_settled {
            self.by_windows = is_marked;
            if let Some(cut) = cut {
                self.drop_uncovered(&cut);
            }
            // All keys before the last of several stretches' segments are covered.
            let in_last = match &self.collected.scratch.stretches[..] {
                [.., _, last] => Some(last.place.start.clone()),
                _ => None,
            };
            let next = match self.collected.keep_found(is_whole) {
                ScanPosition::Ended => None,
                ScanPosition::Segments => self.covered_to.take(),
                ScanPosition::Key(last) => {
                    K::successor(last).map(|next| in_last.filter(|start| *start > next).unwrap_or(next))
                }
                ScanPosition::Same => {
                    // Blocks without a key that is covered, or a marked group at the first: by
                    // windows, for as long as it takes.
                    self.by_windows = true;
                    in_last.max(Some(self.start.clone()))
                }
            };
            match next {
                Some(next) => self.start = next,
                None => self.is_over = true,
            }
        }
        self.take_table();
        Ok(is_settled)
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted,
    /// and for the directory page of those after if that is where the segments end that are known.
    fn read_on(&mut self) -> Step {
        if self.is_over {
            return Step::Done;
        }
        if self.collected.is_down {
            return self.read_on_down();
        }
        let (view, from) = (self.collected.view, self.start.clone());
        let from = from.borrow();
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

    /// Drops the records from the first one on whose value is missing, to read their slots again.
    fn go_back(&mut self) -> Result<(), ReadError> {
        if let Some(uncovered) = self.uncovered() {
            ((self.start, self.end), self.is_over) = (uncovered, false);
        }
        self.collected.forget_reached();
        let Collected { scratch, progress, .. } = &mut self.collected;
        scratch.records.truncate(progress.whole);
        progress.try_again()
    }
}

impl<K: KeySpace> Operation for Scan<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        let all = &mut self.collected;
        if !all.scratch.landings.is_empty() {
            // Values prove themselves.
            if !all.scratch.take_values(all.view, &mut all.progress) {
                self.go_back()?;
            }
        } else if !all.is_checked && !all.scratch.batch.is_empty() {
            // Nothing is taken of a batch before it is known that it may be believed.
            all.is_checked = true;
            return Ok(Step::Check(all.view.holds_until()));
        }
        self.collected.is_checked = false;
        if !self.collected.scratch.stretches.is_empty() {
            let is_settled = self.take()?;
            let Collected { scratch, progress, .. } = &mut self.collected;
            if !is_settled {
                progress.try_again()?;
            } else if progress.whole == scratch.records.len() {
                progress.attempts = 0;
            }
        }
        let all = &mut self.collected;
        if !self.is_over {
            all.pages.take(all.view, (&all.scratch.batch, &mut all.pending_pages))?;
        }
        // A page that was asked for in advance, and is not needed, may be what it likes.
        all.pending_pages.clear();
        if all.progress.whole < all.scratch.records.len() {
            match all.scratch.ask_for_values(all.view, &mut all.progress) {
                ValuesRequest::Posted => return Ok(Step::Post),
                ValuesRequest::Enough => return Ok(Step::Done),
                ValuesRequest::Impossible => self.go_back()?,
            }
        }
        let all = &mut self.collected;
        // Without a whole record the caller would begin again at the same key, and never learn that
        // it cannot be read.
        if !self.is_over && all.progress.whole > 0 && all.scratch.is_enough() {
            return Ok(Step::Done);
        }
        let step = self.read_on();
        self.collected.progress.cost.round_trips += u32::from(step == Step::Post);
        Ok(step)
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.collected.scratch.batch
    }
}
