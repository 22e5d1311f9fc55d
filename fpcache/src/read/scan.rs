//! Scans: keys and values in order from a start key.
//!
//! A segment's slots are sorted only to within its windows, so a scan reads a stretch of slots, keeps the keys whose
//! whole window lies inside it, and sorts those. Keys beyond are left for the next stretch, which starts at the window
//! of the first key not yet covered.
//!
//! Where the directory is not whole on the compute node, a page of it that is needed next is asked for in the same
//! doorbell as the stretches before it. A scan holds the page it is in, so that it gets on however few are kept.
//!
//! While records change, a key that is there throughout is found exactly once, in order: its record does not move while its
//! segment lives, a stretch whose segment was replaced is [`ReadError::Stale`], and so is one after which the reuse
//! sequence says that its memory may have been used again. A scan that ends so has kept what it found before, and says
//! where to go on with a newer directory. A key that is removed and made again during a READ may show in two slots; it is
//! listed once.
//!
//! Where a table has groups and the segment's table of these is here, a stretch is of whole [blocks] instead, and covers the
//! keys of these: what it reads beyond them is what the first and the last block have.
//!
//! External values are read after the stretches, of the records that are kept, in order and several with one doorbell.

mod blocks;
mod scratch;
mod stretch;
mod values;

use std::borrow::Borrow;
use std::sync::Arc;

use fpcache_fabric::{Batch, Landing, REGION, RemoteAddr};

pub use scratch::ScanScratch;
pub(super) use scratch::{Found, Place, Progress};
use stretch::{Cover, Cut, Slots, Stretch};
pub(super) use values::Asked;

use super::verify::{Rules, SlotRead, classify};
use super::{Cost, Operation, ReadError, Step};
use crate::group_tables::{GroupTables, SegmentName};
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::models::{Models, Page, PagedModels, Segment};
use crate::table_view::TableView;

/// Most bytes one round of a scan asks for.
pub(super) const ROUND_BYTES: usize = 256 << 10;

/// Times the slots that windows take at both ends of a stretch: as many records are wanted of a long one.
const LONG: usize = 8;

/// Reads up to `limit` records in key order, starting at the least key not below `start`, of all keys or of those below an end.
#[derive(Debug)]
pub struct Scan<'a, K: KeySpace> {
    pub(super) view: &'a TableView<K>,
    pub(super) scratch: &'a mut ScanScratch<K>,
    /// Least key not yet covered; `None` when the scan has ended.
    pub(super) from: Option<K::Owned>,
    pub(super) progress: Progress,
    /// First key after the stretches that were asked for; `None` if they reach the table's end.
    range_end: Option<K::Owned>,
    /// The directory page read last, with its number.
    page: Option<(u32, Arc<Page<K>>)>,
    /// The directory page that was asked for.
    coming: Option<(u32, Landing)>,
    limit: usize,
    /// First key that is not wanted.
    until: Option<K::Owned>,
    /// Whether the stretches that were asked for hold all wanted keys that are not covered.
    reaches_end: bool,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    extra: u32,
    /// Tables of groups, by which stretches are asked for.
    groups: Option<&'a GroupTables>,
    /// The table of groups that was asked for.
    awaited: Option<(SegmentName, Landing)>,
    /// Whether the next stretches are to be of windows all the same: a group is marked, or they are long.
    by_windows: bool,
    /// Where the keys end that the stretches cover, if not with the last one's segment.
    cut: Option<Cut<K>>,
    /// Whether values are wanted, or keys alone.
    wants_values: bool,
    /// Whether the batch has come and the reuse sequence after it is being looked at.
    is_checked: bool,
}

impl<'a, K: KeySpace> Scan<'a, K> {
    /// A scan of the table as `view` has it.
    pub fn new(
        view: &'a TableView<K>,
        scratch: &'a mut ScanScratch<K>,
        start: &K::Key,
        limit: usize,
    ) -> Self {
        scratch.clear();
        let from = (limit > 0).then(|| start.to_owned());
        Self {
            view,
            scratch,
            from,
            progress: Progress::default(),
            range_end: None,
            page: None,
            coming: None,
            limit,
            until: None,
            reaches_end: false,
            extra: 0,
            groups: None,
            awaited: None,
            by_windows: false,
            cut: None,
            wants_values: true,
            is_checked: false,
        }
    }

    /// The same scan, of keys below `end` only; none of the slots that only keys after it can have is read, but those of
    /// their common windows.
    #[must_use]
    pub fn until(mut self, end: &K::Key) -> Self {
        self.from = self.from.filter(|from| from.borrow() < end);
        self.until = Some(end.to_owned());
        self
    }

    /// The same scan, by tables of groups where they are here, which are asked for where they are not: those of the same table as the view.
    #[must_use]
    pub fn with_groups(self, groups: Option<&'a GroupTables>) -> Self {
        Self { groups, ..self }
    }

    /// The least key the scan has not covered: where another one goes on if this one ended with an error, or because it has
    /// found 16 MiB where values are external. `None` if the records that were wanted, or all there are, have been
    /// found.
    pub fn uncovered(&self) -> Option<&K::Key> {
        self.scratch.first_missing(&self.progress).or(self.from.as_ref().map(Borrow::borrow))
    }

    /// The same scan, of keys alone: values are empty, and those outside slots are not READ.
    #[must_use]
    pub fn of_keys(self) -> Self {
        Self { wants_values: false, ..self }
    }

    /// How many records had been found when one was met that is being written, while its slot is
    /// read again; `None` while the scan gets on.
    pub fn stuck_at(&self) -> Option<usize> {
        self.progress.stuck_at()
    }

    /// What the scan has cost so far.
    pub fn cost(&self) -> Cost {
        self.progress.cost
    }

    /// The records found so far, in key order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&K::Key, &[u8])> {
        self.scratch.whole(&self.progress)
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted, and for the directory
    /// page of those after if that is where the segments end that are known.
    fn read_on(&mut self, from: &K::Key) {
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.view.record().parameters.fill).ceil();
        let most = (ROUND_BYTES / self.view.geometry().slot_bytes).max(1);
        let mut budget = (slots as usize).clamp(1, most);
        // Blocks would spare little of a long stretch, and a mark in it costs a round trip.
        self.by_windows |= budget > LONG * margin(self.view.record().parameters.epsilon) as usize;
        self.scratch.batch.clear();
        self.scratch.stretches.clear();
        self.awaited = None;
        self.reaches_end = false;
        match self.view.models() {
            Models::Resident(directory) => {
                self.ask_for_segments(
                    directory.range_from(from).map(|(lo, segment)| (lo, *segment)),
                    from,
                    None,
                    &mut budget,
                );
            }
            Models::Paged(models) => self.read_on_in_pages(models, from, budget),
        }
        self.progress.cost.round_trips += 1;
    }

    fn read_on_in_pages(&mut self, models: &PagedModels<K>, from: &K::Key, mut budget: usize) {
        let mut number = models.page_of(from);
        loop {
            let Some(page) = self.hold(models, number) else { return };
            let range_end = models.first_after(number);
            let segments = page.range_from(from).map(|(lo, segment)| (lo, *segment));
            let enough = self.ask_for_segments(segments, from, range_end, &mut budget);
            if enough || range_end.is_none() {
                return;
            }
            number += 1;
        }
    }

    /// The directory page of this number; if it is not here, asks for it.
    fn hold(&mut self, models: &PagedModels<K>, number: u32) -> Option<Arc<Page<K>>> {
        let held = self.page.take().filter(|(held, _)| *held == number).map(|(_, page)| page);
        let page = held.or_else(|| models.kept(number));
        match &page {
            Some(page) => self.page = Some((number, Arc::clone(page))),
            None => {
                let at = RemoteAddr { area: REGION, offset: models.address(number) };
                self.coming = Some((number, self.scratch.batch.read(at, K::PAGE_BYTES)));
                self.progress.cost.reads += 1;
                self.progress.cost.bytes += K::PAGE_BYTES as u64;
            }
        }
        page
    }

    /// Asks for the slots of these segments, the first one's from the window of `from` on. `true` if they are enough,
    /// `false` if those after the last one, which begin at `range_end`, are wanted too.
    fn ask_for_segments(
        &mut self,
        segments: impl Iterator<Item = (K::Owned, Segment<K>)>,
        from: &K::Key,
        range_end: Option<&K::Owned>,
        budget: &mut usize,
    ) -> bool {
        let geometry = self.view.geometry();
        let mut segments = segments.peekable();
        while let Some((lo, segment)) = segments.next() {
            let model = segment.model();
            let cap = u32::from(model.cap);
            let from = self.scratch.stretches.is_empty().then_some(from);
            self.range_end = segments.peek().map(|(lo, _)| lo).or(range_end).cloned();
            let blocks = self.blocks_to_read(&segment, lo.borrow(), from, *budget);
            let Slots { first, end, before, cover } =
                blocks.unwrap_or_else(|| self.windows_to_read(&segment, lo.borrow(), from, *budget));
            let offset = segment.address().offset() + geometry.slot_offset(model.cap, first) as u64;
            let len = (end - first) as usize * geometry.slot_bytes;
            let from = RemoteAddr { area: REGION, offset };
            let landing = self.view.ask_for_slots(&mut self.scratch.batch, from, len);
            self.scratch.stretches.push(Stretch { segment, lo, first, end, cover, landing });
            self.progress.cost.reads += 1;
            self.progress.cost.bytes += len as u64;
            *budget = budget.saturating_sub((end - first).saturating_sub(before) as usize);
            if end < cap || *budget == 0 || self.reaches_end {
                return true;
            }
        }
        false
    }

    /// The slots whose windows have as many records as are wanted: from the window of the least key on, or all from the first.
    fn windows_to_read(
        &mut self,
        segment: &Segment<K>,
        lo: &K::Key,
        from: Option<&K::Key>,
        wanted: usize,
    ) -> Slots {
        let model = segment.model();
        let first = from.map_or(0, |from| model.window(self.coordinate(segment, lo, from)).first);
        let margin = margin(model.epsilon.into()) + self.extra;
        let end = u32::from(model.cap).min(first.saturating_add(wanted as u32).saturating_add(margin));
        let last = self.last_wanted(segment, lo);
        self.reaches_end = last.is_some_and(|last| last < end);
        let end = last.map_or(end, |last| end.min(last + 1)).max(first + 1);
        Slots { first, end, before: 0, cover: Cover::Windows }
    }

    /// The last slot of the segment that a wanted key can have, where the scan's end lies in its range or is that of it.
    fn last_wanted(&self, segment: &Segment<K>, lo: &K::Key) -> Option<u32> {
        let (until, model) = (self.until.as_ref()?.borrow(), segment.model());
        if self.range_end.as_ref().is_none_or(|range_end| until < range_end.borrow()) {
            return Some(model.window(self.coordinate(segment, lo, until)).last);
        }
        let is_its_end = self.range_end.as_ref().is_some_and(|range_end| until == range_end.borrow());
        is_its_end.then(|| u32::from(model.cap.saturating_sub(1)))
    }

    /// Drops the records from the first one on whose value is missing, to read their slots again.
    fn go_back(&mut self) -> Result<(), ReadError> {
        self.from = self.scratch.first_missing(&self.progress).map(ToOwned::to_owned);
        self.scratch.records.truncate(self.progress.whole);
        self.progress.try_again()
    }

    fn coordinate(&self, segment: &Segment<K>, lo: &K::Key, key: &K::Key) -> u64 {
        segment.coordinate(key, K::shared(key, lo), self.view.encoders())
    }

    /// Takes the directory page that arrived, if the scan goes on.
    fn take_page(&mut self) -> Result<(), Corrupt> {
        if let (Some((number, landing)), Models::Paged(models)) = (self.coming.take(), self.view.models())
            && self.from.is_some()
        {
            let page = models.keep(number, self.scratch.batch.bytes(landing))?;
            self.page = Some((number, page));
        }
        Ok(())
    }

    /// Takes the stretches that arrived: appends the covered records in order. `false` if a slot was being written.
    fn take(&mut self, from: &K::Key) -> Result<bool, ReadError> {
        let Some(complete) = self.gather(from)? else { return Ok(false) };
        let ScanScratch { found, arena, .. } = &mut *self.scratch;
        found.sort_unstable_by(|a, b| K::kept(&a.key, arena).cmp(K::kept(&b.key, arena)));
        found.dedup_by(|a, b| K::kept(&a.key, arena) == K::kept(&b.key, arena));
        if let Some(cut) = self.cut.take() {
            self.drop_uncovered(&cut);
        }
        let ScanScratch { found, records, arena, extents, .. } = &mut *self.scratch;
        let progress = found.last().and_then(|last| K::successor(K::kept(&last.key, arena)));
        let any = !found.is_empty();
        let room = self.limit - records.len();
        records.extend(found.iter().take(room));
        // Extents are those of these stretches: records found before are whole.
        let missing = match extents.is_empty() {
            true => None,
            false => records[self.progress.whole..].iter().position(|found| !found.value.is_here()),
        };
        self.progress.whole = missing.map_or(records.len(), |at| self.progress.whole + at);
        self.from = match (records.len() == self.limit || self.reaches_end, complete) {
            (true, _) => None,
            // All slots of these segments are in: go on after the last one's range.
            (false, true) => self.range_end.take(),
            (false, false) if any => progress,
            // Not one key was covered: read further.
            (false, false) => {
                // Blocks without a key that is covered, or a marked group at the first: by windows, for as long as it takes.
                self.by_windows = true;
                self.extra = self.extra.saturating_mul(2).max(64);
                return Ok(true);
            }
        };
        self.extra = 0;
        Ok(true)
    }

    /// Finds the covered records of the stretches that arrived, and says whether these end with their segments; `None` if a
    /// slot was being written.
    fn gather(&mut self, from: &K::Key) -> Result<Option<bool>, ReadError> {
        let slot_bytes = self.view.geometry().slot_bytes;
        let view = self.view;
        let (rules, encoders) = (Rules::of(view), view.encoders());
        let until: Option<&K::Key> = self.until.as_ref().map(Borrow::borrow);
        let wants_values = self.wants_values;
        let grouping = view.geometry().groups;
        let ScanScratch { batch, stretches, found, arena, extents, .. } = &mut *self.scratch;
        let arena_before = arena.len();
        let mut complete = true;
        found.clear();
        extents.clear();
        self.cut = None;
        let mut is_marked = false;
        for s in stretches.iter() {
            let model = s.segment.model();
            self.cut = s.cut(grouping, slot_bytes, batch.bytes(s.landing));
            let whole = s.end == u32::from(model.cap) && self.cut.is_none();
            let is_of_blocks = s.cover != Cover::Windows;
            complete = whole;
            for slot in batch.bytes(s.landing).chunks_exact(slot_bytes) {
                match classify::<K>(slot, s.segment.generation(), rules) {
                    SlotRead::Live { key, value, .. } => {
                        let Some(key) = K::view(key) else { continue };
                        let key = key.borrow();
                        let end = |key: &K::Key| {
                            let shared = K::shared(key, s.lo.borrow());
                            model.window(s.segment.coordinate(key, shared, encoders)).last
                        };
                        let wanted = key >= from && until.is_none_or(|until| key < until);
                        // Of blocks, those that are covered are found when keys are in order.
                        if wanted && (whole || is_of_blocks || end(key) < s.end) {
                            let key = K::keep(key, arena);
                            let value = match wants_values {
                                true => Place::keep(&value, arena, extents),
                                false => Place::NOT_WANTED,
                            };
                            found.push(Found { key, value });
                        }
                    }
                    SlotRead::Free => {}
                    SlotRead::Frozen if view.passes_frozen() => {}
                    SlotRead::Torn => {
                        arena.truncate(arena_before);
                        return Ok(None);
                    }
                    SlotRead::Frozen => return Err(ReadError::Stale),
                }
            }
            is_marked = self.cut.as_ref().is_some_and(|cut| s.is_marked(cut));
            if is_marked {
                // What lies behind is for later.
                self.reaches_end = false;
                break;
            }
        }
        self.by_windows = is_marked;
        Ok(Some(complete))
    }
}

/// Slots that windows take beyond those of the records wanted: the first key covered may lie two
/// half-widths on, and so may the last one wanted.
fn margin(epsilon: u32) -> u32 {
    epsilon.saturating_mul(4).saturating_add(2)
}

impl<K: KeySpace> Operation for Scan<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        if !self.scratch.landings.is_empty() {
            // Values prove themselves.
            if !self.scratch.take_values(self.view, &mut self.progress) {
                self.go_back()?;
            }
        } else if !self.is_checked && !self.scratch.batch.is_empty() {
            // Nothing is taken of a batch before it is known that it may be believed.
            self.is_checked = true;
            return Ok(Step::Check(self.view.holds_until()));
        }
        self.is_checked = false;
        if !self.scratch.stretches.is_empty()
            && let Some(from) = self.from.clone()
        {
            if !self.take(from.borrow())? {
                self.progress.try_again()?;
            } else if self.progress.whole == self.scratch.records.len() {
                self.progress.attempts = 0;
            }
        }
        self.take_table();
        self.take_page()?;
        if self.progress.whole < self.scratch.records.len() {
            match self.scratch.ask_for_values(self.view, &mut self.progress) {
                Asked::Posted => return Ok(Step::Post),
                Asked::Enough => return Ok(Step::Done),
                Asked::Impossible => self.go_back()?,
            }
        }
        let Some(from) = self.from.clone() else { return Ok(Step::Done) };
        self.read_on(from.borrow());
        Ok(Step::Post)
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }
}
