//! The records of a scan, collected from stretches of slots, in either direction.

use std::borrow::Borrow;

use super::scratch::{Progress, ScanScratch, ScannedRecord, ScannedValue};
use super::stretch::{Cover, Stretch};
use crate::key_space::KeySpace;
use crate::layout::SegmentAddress;
use crate::read::ReadError;
use crate::read::segment_search::{LocatedSegment, PendingPages, RecentPages};
use crate::read::verify::{Rules, SlotRead, classify};
use crate::sabotage::Sabotage;
use crate::table_view::TableView;

/// Most bytes one round of a scan asks for.
pub(in crate::read) const ROUND_BYTES: usize = 256 << 10;
/// The fewest slots that are read beyond the estimate after a round that found nothing.
const FURTHER: usize = 64;

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
    /// Slots to read beyond the estimate, doubled while rounds find nothing, so that it takes few of
    /// them to pass many slots that were emptied.
    extra: usize,
    /// A segment that was read in part, and the slot from which it is read on, or up to which where
    /// keys descend: no key that is not covered lies before it, or after.
    reached: Option<(SegmentAddress, u32)>,
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
    /// Where it was, after the slots that it has: not one key was covered.
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
            reached: None,
            is_checked: false,
        }
    }

    /// Begins another round, and says how many slots hold about as many records as are still
    /// wanted, or as a round may have; more of them after rounds that found nothing.
    pub(super) fn begin_round(&mut self) -> usize {
        self.scratch.batch.clear();
        self.scratch.stretches.clear();
        self.reaches_end = false;
        let wanted = (self.limit - self.scratch.records.len()) as f64;
        let slots = (wanted / self.view.record().parameters.fill).ceil();
        (slots as usize).saturating_add(self.extra).clamp(1, self.most_slots())
    }

    /// Slots that a round may have, but for those of windows at both ends.
    fn most_slots(&self) -> usize {
        (ROUND_BYTES / self.view.geometry().slot_bytes).max(1)
    }

    /// The slot from which, or up to which, a segment is to be read on, if a key says `slot`.
    pub(super) fn beyond_reached(&self, place: &LocatedSegment<K>, slot: u32) -> u32 {
        match self.reached {
            Some((segment, reached)) if segment == place.segment.address() => match self.is_down {
                true => slot.min(reached),
                false => slot.max(reached),
            },
            _ => slot,
        }
    }

    /// Has the slots that were passed read again, where what was found in them is dropped.
    pub(super) fn forget_reached(&mut self) {
        self.reached = None;
    }

    /// Notes how far the last stretch has come in its segment, if it is one of windows. The window
    /// of a key that it does not cover reaches beyond it, and is 2ε + 1 slots long.
    fn note_reached(&mut self) {
        let last = self.scratch.stretches.last().filter(|last| last.cover == Cover::Windows);
        self.reached = last.map(|last| {
            let shared = 2 * u32::from(last.place.segment.model().epsilon);
            let slot = match self.is_down {
                true => last.first + shared,
                false => last.end.saturating_sub(shared),
            };
            (last.place.segment.address(), slot)
        });
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
                        // It may lie beyond what is wanted.
                        self.extra = 0;
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
        self.note_reached();
        let most = self.most_slots();
        let ScanScratch { found, records, arena, extents, .. } = &mut *self.scratch;
        let room = self.limit - records.len();
        records.extend(found.iter().take(room));
        // Extents are those of these stretches: records found before are whole.
        let missing = match extents.is_empty() {
            true => None,
            false => records[self.progress.whole..].iter().position(|found| !found.value.is_here()),
        };
        self.progress.whole = missing.map_or(records.len(), |at| self.progress.whole + at);
        self.extra = match found.is_empty() {
            true => (2 * self.extra).clamp(FURTHER, most.max(FURTHER)),
            false => 0,
        };
        match (records.len() == self.limit || self.reaches_end, is_whole, found.last()) {
            (true, ..) => ScanPosition::Ended,
            (false, true, _) => ScanPosition::Segments,
            (false, false, Some(last)) => ScanPosition::Key(last.key(arena)),
            (false, false, None) => ScanPosition::Same,
        }
    }
}
