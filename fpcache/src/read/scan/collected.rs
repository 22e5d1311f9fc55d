//! The records of a scan, collected from stretches of slots, in either direction.

use std::borrow::Borrow;

use super::scratch::{Progress, ScanScratch, ScannedRecord, ScannedValue};
use super::stretch::{Cover, Stretch};
use crate::key_space::KeySpace;
use crate::read::ReadError;
use crate::read::segment_search::{LocatedSegment, PendingPages, RecentPages};
use crate::read::verify::{Rules, SlotRead, classify};
use crate::sabotage::Sabotage;
use crate::table_view::TableView;

/// Most bytes one round of a scan asks for.
pub(in crate::read) const ROUND_BYTES: usize = 256 << 10;

/// The records that a scan has found, and its state.
#[derive(Debug)]
pub(super) struct Collected<'a, K: KeySpace> {
    pub(super) view: &'a TableView<K>,
    pub(super) scratch: &'a mut ScanScratch<K>,
    pub(super) progress: Progress,
    pub(super) pages: RecentPages<K>,
    pub(super) pending_pages: PendingPages<K>,
    limit: usize,
    /// Whether keys descend.
    pub(super) is_down: bool,
    /// Whether values are wanted, or keys alone.
    pub(super) wants_values: bool,
    /// Whether the stretches that were asked for hold all wanted keys that are not covered.
    pub(super) reaches_end: bool,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    pub(super) extra: u32,
    /// Whether the batch has come and the reuse sequence after it is being looked at.
    pub(super) is_checked: bool,
}

/// Where a scan goes on.
pub(super) enum ScanPosition<'k, K: KeySpace> {
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
pub(super) fn margin(epsilon: u32) -> u32 {
    epsilon.saturating_mul(4).saturating_add(2)
}

impl<'a, K: KeySpace> Collected<'a, K> {
    pub(super) fn new(view: &'a TableView<K>, scratch: &'a mut ScanScratch<K>, limit: usize) -> Self {
        scratch.clear();
        Self {
            view,
            scratch,
            progress: Progress::default(),
            pages: RecentPages::default(),
            pending_pages: PendingPages::default(),
            limit,
            is_down: false,
            wants_values: true,
            reaches_end: false,
            extra: 0,
            is_checked: false,
        }
    }

    /// Begins another round, and says how many slots hold about as many records as are still
    /// wanted, or as a round may have.
    pub(super) fn begin_round(&mut self) -> usize {
        self.scratch.batch.clear();
        self.scratch.stretches.clear();
        self.reaches_end = false;
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.view.record().parameters.fill).ceil();
        let most = (ROUND_BYTES / self.view.geometry().slot_bytes).max(1);
        (slots as usize).clamp(1, most)
    }

    /// Asks for slots of a segment.
    pub(super) fn ask(&mut self, place: LocatedSegment<K>, (first, end): (u32, u32), cover: Cover) {
        let ScanScratch { batch, stretches, .. } = &mut *self.scratch;
        let landing = place.ask((first, end), self.view, batch, &mut self.progress.cost);
        stretches.push(Stretch { place, first, end, cover, landing });
    }

    /// Asks for a page of the directory.
    pub(super) fn ask_for_page(&mut self, number: u32) {
        let doorbell = (&mut self.scratch.batch, &mut self.pending_pages);
        self.pages.ask(number, self.view, doorbell, &mut self.progress.cost);
    }

    /// Finds the records of the stretches that arrived whose keys are covered, each once and in
    /// order. `false` if a slot was being written.
    pub(super) fn gather(
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
    pub(super) fn keep_found(&mut self, is_whole: bool) -> ScanPosition<'_, K> {
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
