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
//! segment lives, a stretch whose segment was replaced is [`ReadError::Stale`], and so is one behind which the reuse
//! sequence says that its memory may have been used again. A scan that ends so has kept what it found before, and says
//! where to go on with a newer directory. A key that is removed and made again during a READ may show in two slots; it is
//! listed once.

use std::sync::Arc;

use fpcache_fabric::{Batch, Landing, REGION, RemoteAddr};

use super::verify::{Rules, Verdict, judge};
use super::{Cost, MAX_ATTEMPTS, Operation, ReadError, Step};
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, PAGE_BYTES};
use crate::models::{Models, Page, PagedModels, Segment};
use crate::snapshot::Snapshot;

/// Most bytes one round of a scan asks for.
const ROUND_BYTES: usize = 256 << 10;

/// A stretch of one segment's slots that was asked for.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    segment: Segment,
    /// One past the last slot.
    end: u32,
    landing: Landing,
}

/// Buffers of scans, kept between calls.
#[derive(Debug)]
pub struct ScanScratch<K: KeySpace> {
    batch: Batch,
    stretches: Vec<Stretch>,
    found: Vec<Found<K::Key>>,
    records: Vec<(K::Key, usize)>,
    values: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Found<Key> {
    key: Key,
    /// Start of its value in the round's values.
    value: usize,
}

impl<K: KeySpace> Default for ScanScratch<K> {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            stretches: Vec::new(),
            found: Vec::new(),
            records: Vec::new(),
            values: Vec::new(),
        }
    }
}

/// Reads up to `limit` records in key order, starting at the least key not below `start`.
#[derive(Debug)]
pub struct Scan<'a, K: KeySpace> {
    snapshot: &'a Snapshot<K>,
    scratch: &'a mut ScanScratch<K>,
    /// Least key not yet covered; `None` when the scan has ended.
    from: Option<K::Key>,
    /// First key behind the stretches that were asked for; `None` if they reach the table's end.
    behind: Option<K::Key>,
    /// The directory page read last, with its number.
    page: Option<(u32, Arc<Page<K>>)>,
    /// The directory page that was asked for.
    coming: Option<(u32, Landing)>,
    limit: usize,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    extra: u32,
    attempts: u32,
    cost: Cost,
    /// Whether the batch has come and the reuse sequence behind it is being looked at.
    is_checked: bool,
}

impl<'a, K: KeySpace> Scan<'a, K> {
    /// A scan of the table as `snapshot` has it.
    pub fn new(
        snapshot: &'a Snapshot<K>,
        scratch: &'a mut ScanScratch<K>,
        start: K::Key,
        limit: usize,
    ) -> Self {
        scratch.records.clear();
        scratch.values.clear();
        scratch.stretches.clear();
        scratch.batch.clear();
        let from = (limit > 0).then_some(start);
        Self {
            snapshot,
            scratch,
            from,
            behind: None,
            page: None,
            coming: None,
            limit,
            extra: 0,
            attempts: 0,
            cost: Cost::default(),
            is_checked: false,
        }
    }

    /// The least key the scan has not covered: where another one goes on if this one ended with an error. `None` if the
    /// records that were wanted, or all there are, have been found.
    pub fn uncovered(&self) -> Option<K::Key> {
        self.from
    }

    /// What the scan has cost so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The records found so far, in key order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (K::Key, &[u8])> {
        let bytes = self.snapshot.record().parameters.value_bytes as usize;
        self.scratch.records.iter().map(move |(key, at)| (*key, &self.scratch.values[*at..*at + bytes]))
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted, and for the directory
    /// page of those behind if that is where the segments end that are known.
    fn read_on(&mut self, from: K::Key) {
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.snapshot.record().parameters.fill).ceil();
        let most = (ROUND_BYTES / self.snapshot.geometry().slot_bytes).max(1);
        let mut budget = (slots as usize).clamp(1, most);
        self.scratch.batch.clear();
        self.scratch.stretches.clear();
        match self.snapshot.models() {
            Models::Resident(directory) => {
                self.ask_for_segments(directory.range_from(&from), from, None, &mut budget);
            }
            Models::Paged(models) => self.read_on_in_pages(models, from, budget),
        }
        self.cost.round_trips += 1;
    }

    fn read_on_in_pages(&mut self, models: &PagedModels<K>, from: K::Key, mut budget: usize) {
        let mut number = models.page_of(&from);
        loop {
            let Some(page) = self.hold(models, number) else { return };
            let behind = models.first_behind(number);
            let enough = self.ask_for_segments(page.range_from(&from), from, behind, &mut budget);
            if enough || behind.is_none() {
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
                self.coming = Some((number, self.scratch.batch.read(at, PAGE_BYTES)));
                self.cost.reads += 1;
                self.cost.bytes += PAGE_BYTES as u64;
            }
        }
        page
    }

    /// Asks for the slots of these segments, the first one's from the window of `from` on. `true` if they are enough,
    /// `false` if those behind the last one, which begin at `behind`, are wanted too.
    fn ask_for_segments<'s>(
        &mut self,
        segments: impl Iterator<Item = (&'s K::Key, &'s Segment)>,
        from: K::Key,
        behind: Option<&K::Key>,
        budget: &mut usize,
    ) -> bool {
        let geometry = self.snapshot.geometry();
        let mut segments = segments.peekable();
        while let Some((_, segment)) = segments.next() {
            let model = segment.model();
            let cap = u32::from(model.cap);
            let is_first = self.scratch.stretches.is_empty();
            let first = if is_first { model.window(K::coordinate(&from)).first } else { 0 };
            // The first key covered may lie two half-widths on, and so may the last one wanted.
            let margin = 4 * u32::from(model.epsilon) + 2 + self.extra;
            let end = cap.min(first.saturating_add(*budget as u32).saturating_add(margin));
            let offset = segment.address().offset() + geometry.slot_offset(model.cap, first) as u64;
            let len = (end - first) as usize * geometry.slot_bytes;
            let landing = self.scratch.batch.read(RemoteAddr { area: REGION, offset }, len);
            self.scratch.stretches.push(Stretch { segment: *segment, end, landing });
            self.cost.reads += 1;
            self.cost.bytes += len as u64;
            *budget = budget.saturating_sub((end - first) as usize);
            self.behind = segments.peek().map(|(lo, _)| *lo).or(behind).copied();
            if end < cap || *budget == 0 {
                return true;
            }
        }
        false
    }

    /// Takes the directory page that arrived, if the scan goes on.
    fn take_page(&mut self) -> Result<(), Corrupt> {
        if let (Some((number, landing)), Models::Paged(models)) = (self.coming.take(), self.snapshot.models())
            && self.from.is_some()
        {
            let page = models.keep(number, self.scratch.batch.bytes(landing))?;
            self.page = Some((number, page));
        }
        Ok(())
    }

    /// Takes the stretches that arrived: appends the covered records in order. `false` if a slot was being written.
    fn take(&mut self, from: K::Key) -> Result<bool, ReadError> {
        let slot_bytes = self.snapshot.geometry().slot_bytes;
        let rules = Rules::of(self.snapshot);
        let ScanScratch { batch, stretches, found, records, values } = &mut *self.scratch;
        let values_before = values.len();
        let mut complete = true;
        found.clear();
        for s in stretches.iter() {
            let model = s.segment.model();
            let whole = s.end == u32::from(model.cap);
            complete = whole;
            for slot in batch.bytes(s.landing).chunks_exact(slot_bytes) {
                match judge::<K>(slot, s.segment.generation(), rules) {
                    Verdict::Record { key, value, .. } => {
                        let covered = whole || model.window(K::coordinate(&key)).last < s.end;
                        if key >= from && covered {
                            found.push(Found { key, value: values.len() });
                            values.extend_from_slice(value);
                        }
                    }
                    Verdict::Free => {}
                    Verdict::Unsettled => {
                        values.truncate(values_before);
                        return Ok(false);
                    }
                    Verdict::Frozen => return Err(ReadError::Stale),
                }
            }
        }
        found.sort_unstable_by_key(|f| f.key);
        found.dedup_by_key(|f| f.key);
        let progress = found.last().map(|f| f.key);
        let room = self.limit - records.len();
        records.extend(found.iter().take(room).map(|f| (f.key, f.value)));
        self.from = match (records.len() == self.limit, complete, progress) {
            (true, _, _) => None,
            // All slots of these segments are in: go on behind the last one's range.
            (false, true, _) => self.behind,
            (false, false, Some(last)) => K::successor(&last),
            // Not one key was covered: read further.
            (false, false, None) => {
                self.extra = self.extra.saturating_mul(2).max(64);
                return Ok(true);
            }
        };
        self.extra = 0;
        Ok(true)
    }
}

impl<K: KeySpace> Operation for Scan<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        // Nothing is taken of a batch before it is known that it may be believed.
        if !self.is_checked && !self.scratch.batch.is_empty() {
            self.is_checked = true;
            return Ok(Step::Check(self.snapshot.holds_until()));
        }
        self.is_checked = false;
        if let Some(from) = self.from
            && !self.scratch.stretches.is_empty()
        {
            self.attempts = if self.take(from)? { 0 } else { self.attempts + 1 };
            if self.attempts >= MAX_ATTEMPTS {
                return Err(ReadError::Contended { attempts: self.attempts });
            }
        }
        self.take_page()?;
        let Some(from) = self.from else { return Ok(Step::Done) };
        self.read_on(from);
        Ok(Step::Post)
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }
}
