//! The common part of scans in both directions: records are collected from stretches of slots,
//! external values come after them, and what could not be told is read again.

use std::borrow::Borrow;

use super::scratch::{Progress, ScanScratch, ScannedRecord, ScannedValue};
use super::stretch::{Cover, Stretch};
use super::values::ValuesRequest;
use crate::key_space::KeySpace;
use crate::read::segment_search::{LocatedSegment, PendingPages, RecentPages};
use crate::read::verify::{Rules, SlotRead, classify};
use crate::read::{ReadError, Step};
use crate::sabotage::Sabotage;
use crate::table_view::TableView;

/// Most bytes one round of a scan asks for.
pub(in crate::read) const ROUND_BYTES: usize = 256 << 10;

/// The records that a scan has found, and its state.
#[derive(Debug)]
pub(in crate::read) struct Collected<'a, K: KeySpace> {
    pub(in crate::read) view: &'a TableView<K>,
    pub(in crate::read) scratch: &'a mut ScanScratch<K>,
    pub(in crate::read) progress: Progress,
    pub(in crate::read) pages: RecentPages<K>,
    pending_pages: PendingPages<K>,
    limit: usize,
    /// Whether keys descend.
    is_down: bool,
    /// Whether values are wanted, or keys alone.
    pub(super) wants_values: bool,
    /// Whether the stretches that were asked for hold all wanted keys that are not covered.
    pub(in crate::read) reaches_end: bool,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    pub(in crate::read) extra: u32,
    /// Whether the batch has come and the reuse sequence after it is being looked at.
    is_checked: bool,
}

/// Where a scan goes on.
pub(in crate::read) enum ScanPosition<'k, K: KeySpace> {
    /// Nowhere: all records are found that are wanted.
    Ended,
    /// After the segments whose slots it has.
    Segments,
    /// After this key.
    Key(&'k K::Key),
    /// Where it was, with more slots: not one key was covered.
    Same,
}

/// Slots that windows take beyond those of the records wanted: the first key covered may lie two
/// half-widths on, and so may the last one wanted.
pub(in crate::read) fn margin(epsilon: u32) -> u32 {
    epsilon.saturating_mul(4).saturating_add(2)
}

/// A scan that goes one way.
pub(in crate::read) trait DirectedScan<'a, K: KeySpace + 'a> {
    fn collected(&mut self) -> &mut Collected<'a, K>;

    /// Takes the stretches that arrived: appends the covered records in order. `false` if a slot
    /// was being written.
    fn take(&mut self) -> Result<bool, ReadError>;

    /// Whether there is more to be read: not all that is wanted was found, and the table goes on.
    fn goes_on(&self) -> bool;

    /// Goes on from a key that was covered, if there is one.
    fn go_back_to(&mut self, key: Option<K::Owned>);

    /// Asks for what comes next, if the scan goes on.
    fn read_on(&mut self) -> Step;

    /// Drops the records from the first one on whose value is missing, to read their slots again.
    fn go_back(&mut self) -> Result<(), ReadError> {
        let Collected { scratch, progress, .. } = self.collected();
        let missing = scratch.first_missing(progress).map(ToOwned::to_owned);
        scratch.records.truncate(progress.whole);
        let goes_on = progress.try_again();
        self.go_back_to(missing);
        goes_on
    }

    /// See [`Operation::step`](crate::read::Operation::step).
    fn advance(&mut self) -> Result<Step, ReadError> {
        let all = self.collected();
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
        self.collected().is_checked = false;
        if !self.collected().scratch.stretches.is_empty() {
            let is_settled = self.take()?;
            let Collected { scratch, progress, .. } = self.collected();
            if !is_settled {
                progress.try_again()?;
            } else if progress.whole == scratch.records.len() {
                progress.attempts = 0;
            }
        }
        let goes_on = self.goes_on();
        let all = self.collected();
        if goes_on {
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
        let all = self.collected();
        // Without a whole record the caller would begin again at the same key, and never learn that
        // it cannot be read.
        if goes_on && all.progress.whole > 0 && all.scratch.is_enough() {
            return Ok(Step::Done);
        }
        let step = self.read_on();
        self.collected().progress.cost.round_trips += u32::from(step == Step::Post);
        Ok(step)
    }
}

impl<'a, K: KeySpace> Collected<'a, K> {
    pub(in crate::read) fn new(
        view: &'a TableView<K>,
        scratch: &'a mut ScanScratch<K>,
        limit: usize,
        is_down: bool,
    ) -> Self {
        scratch.clear();
        Self {
            view,
            scratch,
            progress: Progress::default(),
            pages: RecentPages::default(),
            pending_pages: PendingPages::default(),
            limit,
            is_down,
            wants_values: true,
            reaches_end: false,
            extra: 0,
            is_checked: false,
        }
    }

    /// Begins another round, and says how many slots hold about as many records as are still
    /// wanted, or as a round may have.
    pub(in crate::read) fn begin_round(&mut self) -> usize {
        self.scratch.batch.clear();
        self.scratch.stretches.clear();
        self.reaches_end = false;
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.view.record().parameters.fill).ceil();
        let most = (ROUND_BYTES / self.view.geometry().slot_bytes).max(1);
        (slots as usize).clamp(1, most)
    }

    /// Asks for slots of a segment.
    pub(in crate::read) fn ask(&mut self, place: LocatedSegment<K>, (first, end): (u32, u32), cover: Cover) {
        let ScanScratch { batch, stretches, .. } = &mut *self.scratch;
        let landing = place.ask((first, end), self.view, batch, &mut self.progress.cost);
        stretches.push(Stretch { place, first, end, cover, landing });
    }

    /// Asks for a page of the directory.
    pub(in crate::read) fn ask_for_page(&mut self, number: u32) {
        let doorbell = (&mut self.scratch.batch, &mut self.pending_pages);
        self.pages.ask(number, self.view, doorbell, &mut self.progress.cost);
    }

    /// Finds the records of the stretches that arrived whose keys are covered, each once and in
    /// order. `false` if a slot was being written.
    pub(in crate::read) fn gather(
        &mut self,
        is_covered: impl Fn(&Stretch<K>, &K::Key) -> bool,
    ) -> Result<bool, ReadError> {
        let (view, rules, wants_values) = (self.view, Rules::of(self.view), self.wants_values);
        let ScanScratch { batch, stretches, found, arena, extents, .. } = &mut *self.scratch;
        let arena_before = arena.len();
        found.clear();
        extents.clear();
        for stretch in stretches.iter() {
            for slot in batch.bytes(stretch.landing).chunks_exact(view.geometry().slot_bytes) {
                match classify::<K>(slot, stretch.place.segment.generation(), rules) {
                    SlotRead::Live { key, value, .. } => {
                        let Some(key) = K::view(key) else { continue };
                        let key = key.borrow();
                        if is_covered(stretch, key) {
                            let key = K::keep(key, arena);
                            let value = match wants_values {
                                true => ScannedValue::keep(&value, arena, extents),
                                false => ScannedValue::NOT_WANTED,
                            };
                            found.push(ScannedRecord { key, value });
                        }
                    }
                    SlotRead::Free => {}
                    SlotRead::Frozen if view.breaks(Sabotage::ScansPassFrozen) => {}
                    SlotRead::Torn => {
                        arena.truncate(arena_before);
                        return Ok(false);
                    }
                    SlotRead::Frozen => return Err(ReadError::Stale),
                }
            }
        }
        let arena = arena.as_slice();
        match self.is_down {
            true => found.sort_unstable_by(|a, b| b.key(arena).cmp(a.key(arena))),
            false => found.sort_unstable_by(|a, b| a.key(arena).cmp(b.key(arena))),
        }
        found.dedup_by(|a, b| a.key(arena) == b.key(arena));
        Ok(true)
    }

    /// Appends the records that were found, as far as they are wanted. Whether they are all of the
    /// stretches' segments says where the scan goes on.
    pub(in crate::read) fn keep_found(&mut self, is_whole: bool) -> ScanPosition<'_, K> {
        let ScanScratch { found, records, arena, extents, .. } = &mut *self.scratch;
        let room = self.limit - records.len();
        records.extend(found.iter().take(room));
        // Extents are those of these stretches: records found before are whole.
        let missing = match extents.is_empty() {
            true => None,
            false => records[self.progress.whole..].iter().position(|found| !found.value.is_here()),
        };
        self.progress.whole = missing.map_or(records.len(), |at| self.progress.whole + at);
        let extra = std::mem::take(&mut self.extra);
        match (records.len() == self.limit || self.reaches_end, is_whole, found.last()) {
            (true, ..) => ScanPosition::Ended,
            (false, true, _) => ScanPosition::Segments,
            (false, false, Some(last)) => ScanPosition::Key(last.key(arena)),
            (false, false, None) => {
                self.extra = extra.saturating_mul(2).max(64);
                ScanPosition::Same
            }
        }
    }
}
