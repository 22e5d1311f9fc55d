//! Scans that go down: keys and values in descending order.
//!
//! The mirror image of a scan: a stretch of slots is read from the upper end on, the keys are kept whose whole window does not
//! begin below it, and those are sorted. Whatever lies above a key that is kept is in the stretch.

use std::borrow::Borrow;
use std::ops::Bound;

use fpcache_fabric::{Batch, Landing};

use super::place::{Coming, Found, Pages, Place};
use crate::key_space::KeySpace;
use crate::read::scan::{Asked, Found as Kept, Place as ValuePlace, Progress, ROUND_BYTES, ScanScratch};
use crate::read::verify::{Rules, SlotRead, classify};
use crate::read::{Cost, Operation, ReadError, Step};
use crate::table_view::TableView;

/// Slots of one segment that were asked for: `first..end`.
#[derive(Debug)]
struct Stretch<K: KeySpace> {
    place: Place<K>,
    first: u32,
    landing: Landing,
}

/// Reads up to `limit` records in descending order of their keys, from a key down to another. What is promised while records
/// change is what [`Scan`](crate::read::Scan) promises.
#[derive(Debug)]
pub struct ScanBack<'a, K: KeySpace> {
    view: &'a TableView<K>,
    scratch: &'a mut ScanScratch<K>,
    stretches: Vec<Stretch<K>>,
    pages: Pages<K>,
    coming: Coming<K>,
    /// What is not covered yet lies below; `None` when the scan has ended.
    to: Option<Bound<K::Owned>>,
    /// The least key that is wanted.
    from: K::Owned,
    limit: usize,
    progress: Progress,
    /// Whether the stretches that were asked for hold all wanted keys that are not covered.
    reaches_end: bool,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    extra: u32,
    is_checked: bool,
}

impl<'a, K: KeySpace> ScanBack<'a, K> {
    /// A scan of the table as `view` has it, from the greatest key within `to` down to the least that is not below `from`.
    pub fn new(
        view: &'a TableView<K>,
        scratch: &'a mut ScanScratch<K>,
        to: Bound<&K::Key>,
        from: &K::Key,
        limit: usize,
    ) -> Self {
        scratch.clear();
        let to = match to {
            Bound::Included(key) if key >= from => Some(Bound::Included(key.to_owned())),
            Bound::Excluded(key) if key > from => Some(Bound::Excluded(key.to_owned())),
            Bound::Unbounded => Some(Bound::Included(K::highest().to_owned())),
            Bound::Included(_) | Bound::Excluded(_) => None,
        };
        Self {
            view,
            scratch,
            stretches: Vec::new(),
            pages: Pages::default(),
            coming: Coming::default(),
            to: to.filter(|_| limit > 0),
            from: from.to_owned(),
            limit,
            progress: Progress::default(),
            reaches_end: false,
            extra: 0,
            is_checked: false,
        }
    }

    /// Where another scan goes on if this one ended with an error, or because it has found 16 MiB where values lie outside their
    /// slots. `None` if the records that were wanted, or all there are, have been found.
    pub fn uncovered(&self) -> Option<Bound<K::Owned>> {
        let missing = self.scratch.first_missing(&self.progress);
        missing.map(|key| Bound::Included(key.to_owned())).or_else(|| self.to.clone())
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

    /// The records found so far, in descending order of their keys.
    pub fn records(&self) -> impl ExactSizeIterator<Item = (&K::Key, &[u8])> {
        self.scratch.whole(&self.progress)
    }

    /// Asks for enough slots, over as many segments as it takes, to hold the records still wanted.
    fn read_on(&mut self, to: &Bound<K::Owned>) {
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.view.record().parameters.fill).ceil();
        let most = (ROUND_BYTES / self.view.geometry().slot_bytes).max(1);
        let mut budget = (slots as usize).clamp(1, most) as u32;
        self.scratch.batch.clear();
        self.stretches.clear();
        self.reaches_end = false;
        let mut found = self.highest_segment(to);
        loop {
            let place = match found {
                Found::Here(place) => place,
                Found::Nowhere => {
                    self.reaches_end = true;
                    return;
                }
                Found::InPage(number) => {
                    let doorbell = (&mut self.scratch.batch, &mut self.coming);
                    return self.pages.ask(number, self.view, doorbell, &mut self.progress.cost);
                }
            };
            let lo = place.lo.clone();
            if self.ask_for(place, to, &mut budget) {
                return;
            }
            found = self.pages.before(self.view, lo.borrow());
        }
    }

    /// The segment that holds the greatest keys that are not covered.
    fn highest_segment(&mut self, to: &Bound<K::Owned>) -> Found<K> {
        match to {
            Bound::Included(key) => self.pages.holding(self.view, key.borrow()),
            Bound::Excluded(key) => match self.pages.holding(self.view, key.borrow()) {
                Found::Here(place) if place.lo.borrow() == key.borrow() => {
                    self.pages.before(self.view, key.borrow())
                }
                found => found,
            },
            Bound::Unbounded => Found::Nowhere,
        }
    }

    /// Asks for slots of a segment, of the first one from the window of `to` down. Whether they are enough.
    fn ask_for(&mut self, place: Place<K>, to: &Bound<K::Owned>, budget: &mut u32) -> bool {
        let (cap, from) = (place.cap(), self.from.borrow());
        let end = match to {
            Bound::Included(key) | Bound::Excluded(key) if self.stretches.is_empty() && place.lo <= *key => {
                place.window(key.borrow(), self.view).last + 1
            }
            _ => cap,
        };
        // The first key covered may lie two half-widths on, and so may the last one wanted.
        let margin = 4 * u32::from(place.segment.model().epsilon) + 2 + self.extra;
        let first = end.saturating_sub(budget.saturating_add(margin));
        let least = match place.lo.borrow() <= from {
            true => Some(place.window(from, self.view).first),
            false => None,
        };
        self.reaches_end = least.is_some_and(|least| first <= least);
        let first = first.max(least.unwrap_or(0)).min(end - 1);
        let ScanScratch { batch, .. } = &mut *self.scratch;
        let landing = place.ask((first, end), self.view, batch, &mut self.progress.cost);
        *budget = budget.saturating_sub(end - first);
        self.stretches.push(Stretch { place, first, landing });
        first > 0 || *budget == 0 || self.reaches_end
    }

    /// Takes the stretches that arrived: appends the covered records. `false` if a slot was being written.
    fn take(&mut self, to: &Bound<K::Owned>) -> Result<bool, ReadError> {
        let is_settled = self.gather(to)?;
        if !is_settled {
            return Ok(false);
        }
        let ScanScratch { found, records, arena, extents, .. } = &mut *self.scratch;
        found.sort_unstable_by(|a, b| K::kept(&b.key, arena).cmp(K::kept(&a.key, arena)));
        found.dedup_by(|a, b| K::kept(&a.key, arena) == K::kept(&b.key, arena));
        let progress = found.last().map(|last| K::kept(&last.key, arena).to_owned());
        let room = self.limit - records.len();
        records.extend(found.iter().take(room));
        // Extents are those of these stretches: records found before are whole.
        let missing = match extents.is_empty() {
            true => None,
            false => records[self.progress.whole..].iter().position(|found| !found.value.is_here()),
        };
        self.progress.whole = missing.map_or(records.len(), |at| self.progress.whole + at);
        let lowest = self.stretches.last().filter(|lowest| lowest.first == 0);
        self.to = match (records.len() == self.limit || self.reaches_end, lowest) {
            (true, _) => None,
            // All of the lowest segment is in: go on below its range.
            (false, Some(lowest)) => Some(Bound::Excluded(lowest.place.lo.clone())),
            (false, None) => match progress {
                Some(key) => Some(Bound::Excluded(key)),
                // Not one key was covered: read further.
                None => {
                    self.extra = self.extra.saturating_mul(2).max(64);
                    return Ok(true);
                }
            },
        };
        self.extra = 0;
        Ok(true)
    }

    /// Finds the covered records of the stretches that arrived; `false` if a slot was being written.
    fn gather(&mut self, to: &Bound<K::Owned>) -> Result<bool, ReadError> {
        let (view, rules) = (self.view, Rules::of(self.view));
        let from: &K::Key = self.from.borrow();
        let ScanScratch { batch, found, arena, extents, .. } = &mut *self.scratch;
        let arena_before = arena.len();
        found.clear();
        extents.clear();
        let is_wanted = |key: &K::Key| {
            key >= from
                && match to {
                    Bound::Included(to) => key <= to.borrow(),
                    Bound::Excluded(to) => key < to.borrow(),
                    Bound::Unbounded => true,
                }
        };
        for Stretch { place, first, landing } in &self.stretches {
            for slot in batch.bytes(*landing).chunks_exact(view.geometry().slot_bytes) {
                match classify::<K>(slot, place.segment.generation(), rules) {
                    SlotRead::Live { key, value, .. } => {
                        let Some(key) = K::view(key) else { continue };
                        let key = key.borrow();
                        if is_wanted(key) && (*first == 0 || place.window(key, view).first >= *first) {
                            let key = K::keep(key, arena);
                            found.push(Kept { key, value: ValuePlace::keep(&value, arena, extents) });
                        }
                    }
                    SlotRead::Free => {}
                    SlotRead::Frozen if view.passes_frozen() => {}
                    SlotRead::Torn => {
                        arena.truncate(arena_before);
                        return Ok(false);
                    }
                    SlotRead::Frozen => return Err(ReadError::Stale),
                }
            }
        }
        Ok(true)
    }

    /// Drops the records from the first one on whose value is missing, to read their slots again.
    fn go_back(&mut self) -> Result<(), ReadError> {
        let missing = self.scratch.first_missing(&self.progress);
        self.to = missing.map(|key| Bound::Included(key.to_owned()));
        self.scratch.records.truncate(self.progress.whole);
        self.progress.try_again()
    }
}

impl<K: KeySpace> Operation for ScanBack<'_, K> {
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
        if !self.stretches.is_empty()
            && let Some(to) = self.to.clone()
        {
            if !self.take(&to)? {
                self.progress.try_again()?;
            } else if self.progress.whole == self.scratch.records.len() {
                self.progress.attempts = 0;
            }
            self.stretches.clear();
        }
        self.pages.take(self.view, (&self.scratch.batch, &mut self.coming))?;
        self.coming.clear();
        if self.progress.whole < self.scratch.records.len() {
            match self.scratch.ask_for_values(self.view, &mut self.progress) {
                Asked::Posted => return Ok(Step::Post),
                Asked::Enough => return Ok(Step::Done),
                Asked::Impossible => self.go_back()?,
            }
        }
        let Some(to) = self.to.clone() else { return Ok(Step::Done) };
        self.read_on(&to);
        if self.scratch.batch.is_empty() {
            // There is no segment below.
            self.to = None;
            return Ok(Step::Done);
        }
        self.progress.cost.round_trips += 1;
        Ok(Step::Post)
    }

    fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }
}
