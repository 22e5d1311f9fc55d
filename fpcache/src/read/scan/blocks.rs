//! Stretches of whole blocks, where a segment's table of groups is at hand.
//!
//! All keys of a block lie in its slots unless certain ones are marked; so a stretch of blocks
//! covers the keys of these up to the first block that is marked, and needs no windows at its ends.
//! From there on the scan goes by windows, until it has found another key.

use std::borrow::Borrow;
use std::cmp::Ordering;

use fpcache_fabric::{REGION, RemoteAddr};
use fpcache_index::groups::{BlockRun, finest};

use super::Scan;
use super::scratch::{ScanScratch, ScannedRecord};
use super::stretch::{Cover, CoveredSlots, Cut, Stretch};
use crate::group_tables::{GroupTables, Known};
use crate::key_space::KeySpace;
use crate::layout::{Grouping, SlotWord};
use crate::read::segment_search::LocatedSegment;

/// By how much the place of a key in its block may be farther on than where it would be if keys lay
/// evenly: a share of the block's slots, and slots.
const SLACK: (f64, f64) = (1.0 / 8.0, 2.0);

impl<K: KeySpace> Scan<'_, K> {
    /// The blocks that a key of a segment may belong to, if its table is here.
    fn blocks_of(&self, place: &LocatedSegment<K>, key: &K::Key) -> Known<BlockRun> {
        self.blocks_at(place, self.finest(place, key))
    }

    /// The same by the line's value at the key.
    fn blocks_at(&self, place: &LocatedSegment<K>, finest: i64) -> Known<BlockRun> {
        self.groups.map_or(Known::Nothing, |tables| tables.blocks(&place.name(), finest))
    }

    /// The value of a segment's line at a key, as tables of groups are asked for it.
    fn finest(&self, place: &LocatedSegment<K>, key: &K::Key) -> i64 {
        finest(&place.segment.model(), place.coordinate(key, self.collected.view))
    }

    /// The slots of the blocks that have as many records as are wanted: of the least key's block
    /// on, or all from the first. Asks for the segment's table if that is not here.
    pub(super) fn blocks_to_read(
        &mut self,
        place: &LocatedSegment<K>,
        from: Option<&K::Key>,
        wanted: usize,
    ) -> Option<CoveredSlots> {
        let grouping =
            self.collected.view.geometry().groups.filter(|_| self.groups.is_some() && !self.by_windows)?;
        let finest = self.finest(place, from.unwrap_or(place.start.borrow()));
        let least = match self.blocks_at(place, finest) {
            Known::Here(blocks) => blocks,
            Known::NotHere => {
                self.ask_for_table(place);
                return None;
            }
            Known::Nothing => return None,
        };
        let cap = place.segment.model().cap;
        let (size, count) = (u32::from(grouping.block()), grouping.count(cap));
        let first_block = from.map_or(0, |_| least.first);
        let first = u32::from(first_block) * size;
        if first >= u32::from(cap) {
            return None;
        }
        let slots = (wanted as f64 * self.sparseness()).ceil() as u32;
        let before = from.map_or(0, |_| self.slots_before(place, finest, least, size));
        let slots = slots.saturating_add(before);
        let enough = u32::from(first_block).saturating_add(slots.div_ceil(size).max(1));
        let mut end_block = u16::try_from(enough).unwrap_or(u16::MAX).min(count);
        if let Some(last) = self.last_block(place) {
            self.collected.reaches_end = last < end_block || (last == u16::MAX && end_block == count);
            end_block = end_block.min(last.saturating_add(1)).max(first_block + 1);
        }
        let end = if end_block == count { u32::from(cap) } else { end_of(grouping, end_block, cap) };
        Some(CoveredSlots { first, end, before, cover: Cover::Blocks(end_block) })
    }

    /// About how many slots the records below a key take, from its first block on: as if keys lay
    /// evenly in blocks, and a little more, as one record that is missing costs a round trip.
    fn slots_before(&self, place: &LocatedSegment<K>, finest: i64, blocks: BlockRun, size: u32) -> u32 {
        // In a run of blocks it may be after all of them.
        let share = match blocks.last - blocks.first {
            0 => self.groups.and_then(|tables| tables.share_below(&place.name(), blocks.first, finest)),
            _ => None,
        };
        let slots = (share.unwrap_or(1.0) + SLACK.0) * f64::from(size) + SLACK.1;
        size * u32::from(blocks.last - blocks.first) + (slots as u32).min(size)
    }

    /// How many times as many slots have a number of records as when the table was loaded: segments
    /// that were replaced are less full. Too few cost a round trip more, which is dearer than many
    /// slots.
    fn sparseness(&self) -> f64 {
        let loaded = self.collected.view.record().parameters.fill;
        let fill = self.groups.and_then(GroupTables::fill).unwrap_or(loaded);
        (loaded / fill).clamp(1.0, 2.0)
    }

    /// The last block that a wanted key can be of, where the scan's end lies in the segment's
    /// range; all ones where it is that of the range.
    fn last_block(&self, place: &LocatedSegment<K>) -> Option<u16> {
        let end = self.end.as_ref()?.borrow();
        match self.covered_to.as_ref().map(|covered_to| end.cmp(covered_to.borrow())) {
            None | Some(Ordering::Less) => match self.blocks_of(place, end) {
                Known::Here(blocks) => Some(blocks.last),
                Known::NotHere | Known::Nothing => None,
            },
            Some(Ordering::Equal) => Some(u16::MAX),
            Some(Ordering::Greater) => None,
        }
    }

    /// Asks for a segment's table in the same doorbell as its slots, for scans and lookups to come.
    fn ask_for_table(&mut self, place: &LocatedSegment<K>) {
        let wanted = self.groups.is_some_and(|tables| self.awaited.is_none() && tables.wants_table());
        if !wanted {
            return;
        }
        let (geometry, name) = (self.collected.view.geometry(), place.name());
        let len = geometry.table_bytes(name.cap);
        let at = RemoteAddr { area: REGION, offset: name.address + geometry.table_offset(name.cap) as u64 };
        self.awaited = Some((name, self.collected.scratch.batch.read(at, len)));
        self.collected.progress.cost.reads += 1;
        self.collected.progress.cost.bytes += len as u64;
    }

    /// Keeps the table that has come.
    pub(super) fn take_table(&mut self) {
        if let (Some((name, landing)), Some(tables)) = (self.awaited.take(), self.groups) {
            let len = self.collected.view.geometry().table_bytes(name.cap);
            tables.keep(&name, self.collected.scratch.batch.bytes(landing).get(..len).unwrap_or_default());
        }
    }

    /// Drops of the records found, which are in order of their keys, those of blocks that were not
    /// covered; all of the segment that was cut if its table is gone.
    pub(super) fn drop_uncovered(&mut self, cut: &Cut<K>) {
        let ScanScratch { found, arena, .. } = &*self.collected.scratch;
        let start = cut.place.start.borrow();
        let before = found.partition_point(|found| found.key(arena) < start);
        let mut is_known = true;
        let is_covered = |found: &ScannedRecord<K>| match self.blocks_of(&cut.place, found.key(arena)) {
            Known::Here(blocks) => blocks.last < cut.end,
            Known::NotHere | Known::Nothing => {
                is_known = false;
                false
            }
        };
        let covered = before + found[before..].partition_point(is_covered);
        if !is_known {
            (self.by_windows, self.collected.reaches_end) = (true, false);
        }
        self.collected.scratch.found.truncate(if is_known { covered } else { before });
    }
}

/// One past the last slot of the blocks before this one, and of those that their last group's READ
/// has.
fn end_of(grouping: Grouping, block: u16, cap: u16) -> u32 {
    let shared = u32::from(grouping.reach - grouping.stride);
    (u32::from(block) * u32::from(grouping.block()) + shared).min(cap.into())
}

impl<K: KeySpace> Stretch<K> {
    /// Where the keys that the stretch covers end in its segment, if not with it: a stretch of
    /// blocks before the first one that is marked, which its bytes show; one of windows as it was
    /// asked for.
    pub(super) fn cut(&self, grouping: Option<Grouping>, slot_bytes: usize, bytes: &[u8]) -> Option<Cut<K>> {
        let (Cover::Blocks(end), Some(grouping)) = (self.cover, grouping) else { return None };
        let is_last = self.is_to_end();
        // All slots of the segment.
        if is_last && self.first == 0 {
            return None;
        }
        let size = grouping.block();
        // A stretch begins with a block.
        let mut blocks =
            (self.first / u32::from(size)..end.into()).zip(bytes.chunks(usize::from(size) * slot_bytes));
        let marked = blocks.find(|(_, bytes)| {
            let slots = bytes.len() / slot_bytes;
            let is_marked = |slot: u32| {
                let word = bytes.get(slot as usize * slot_bytes..).and_then(<[u8]>::first_chunk);
                word.is_some_and(|word| SlotWord::from_bits(u64::from_le_bytes(*word)).is_marked())
            };
            grouping.marks_of_block((0, slots as u32)).into_iter().all(is_marked)
        });
        let end = match marked {
            // Below a block that is a u16.
            Some((block, _)) => block as u16,
            None if is_last => return None,
            None => end,
        };
        Some(Cut { place: self.place.clone(), end })
    }

    /// Whether blocks that were asked for are not covered.
    pub(super) fn is_marked(&self, cut: &Cut<K>) -> bool {
        self.cover != Cover::Blocks(cut.end)
    }
}
