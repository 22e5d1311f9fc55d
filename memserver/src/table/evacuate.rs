//! Bytes of the region emptied of the segments and values in them, so that free memory is in one piece: for what is longer
//! than any free extent, or for others, who get back what is free at the region's end.
//!
//! Every segment that lies among these bytes, or has a value there, is replaced by one that does not, as ever: the new one
//! is committed before memory of the old one is given another use, and names the values where they have been copied to. So a
//! process that ends in between leaves either all or nothing of it.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordParts, SLOT_WORD_BYTES, SegmentAddress, Stored, ValueExtent};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;

use super::extents::memory_of;
use super::gather::{INCOMING, Old};
use super::replacement::Making;
use super::slots::{LiveRecord, Slots, live_records};
use super::{Table, TableError};
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

/// Segments that are looked at in one step; and slots, where these may name values.
const LOOKED_AT: usize = 1024;
const LOOKED_AT_SLOTS: usize = 1 << 13;
/// Bytes of values that are copied in one step, about.
const MOST_COPIED: u64 = 1 << 20;

/// Bytes that are being emptied.
#[derive(Debug)]
pub(super) struct Evacuation<K: BuildKeys> {
    stage: Stage<K>,
    /// Segments replaced so far.
    replaced: u64,
}

#[derive(Debug)]
enum Stage<K: BuildKeys> {
    /// Going through the directory; so far up to here.
    Moving(K::Owned),
    /// Until a directory that contains so many changes is there.
    Freeing(u64),
}

impl<K: BuildKeys> Table<K> {
    /// Empties some more of what is to be emptied; `false` if there is nothing to do now.
    pub(super) fn step_evacuation<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        let stepped = self.go_on_emptying(superblock);
        if stepped.is_err() {
            self.give_up_evacuation();
        }
        stepped
    }

    fn go_on_emptying<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        let Some(evacuation) = self.giving_back.evacuation.take() else {
            let Some(window) = self.wants_emptied(superblock) else { return Ok(false) };
            self.begin_evacuation(window);
            return Ok(true);
        };
        let Evacuation { stage, mut replaced } = evacuation;
        let stage = match stage {
            Stage::Moving(from) => match self.move_some(superblock, from.borrow(), &mut replaced)? {
                Some(next) => Stage::Moving(next),
                None => {
                    self.leave_emptied();
                    self.publication.wanted = true;
                    Stage::Freeing(superblock.current().log_head)
                }
            },
            Stage::Freeing(head) if self.record.checkpoint >= head => {
                self.reclaim(superblock)?;
                self.end_evacuation(replaced);
                return Ok(true);
            }
            waits => {
                // Without a change since the last directory there will be none.
                self.giving_back.evacuation = Some(Evacuation { stage: waits, replaced });
                return Ok(false);
            }
        };
        self.giving_back.evacuation = Some(Evacuation { stage, replaced });
        Ok(true)
    }

    fn begin_evacuation(&mut self, window: Range<u64>) {
        self.space.set_emptied(Some(window));
        let stage = Stage::Moving(K::lowest().to_owned());
        self.giving_back.evacuation = Some(Evacuation { stage, replaced: 0 });
    }

    /// What the next directory was to have of these bytes it will have elsewhere.
    pub(super) fn leave_emptied(&mut self) {
        if let Some(emptied) = self.space.emptied().cloned() {
            self.publication.aside.leave(&emptied, &mut self.space);
        }
    }

    pub(super) fn end_evacuation(&mut self, replaced: u64) {
        let was_end = self.space.emptied().is_some_and(|emptied| emptied.end == u64::MAX);
        self.space.set_emptied(None);
        self.space.shrink();
        let free = self.space.remaining_free_bytes();
        if replaced == 0 {
            self.giving_back.stuck = Some(free);
        }
        if was_end {
            // What is left cannot be had by moving what lies after it.
            self.giving_back.shrunk = Some(free);
        }
    }

    /// Lets bytes that were being emptied be used again; `false` if none were.
    pub(super) fn give_up_evacuation(&mut self) -> bool {
        let was_under_way = self.giving_back.evacuation.take().is_some();
        if was_under_way {
            // Else they are those that a search for room empties, if there are any.
            self.space.set_emptied(None);
        }
        was_under_way
    }

    /// The bytes to empty for an extent of `len` bytes: those with the fewest in use, if these find room elsewhere.
    pub(super) fn window_for<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        len: u64,
    ) -> Option<Range<u64>> {
        /// What is emptied beyond that: a share of the region, and so many bytes at most.
        const SHARE: u64 = 16;
        const MOST: u64 = 16 << 20;
        /// The share of what can be had that must be free: with less, as much would be copied for every record that comes.
        const LEAST_FREE: u64 = 8;
        if self.space.free_bytes() < self.space.end_in_reach() / LEAST_FREE {
            return None;
        }
        let free = self.space.granted_free_bytes();
        let wanted = (superblock.grant.end() / SHARE).min(MOST);
        let mut bytes = (len + len / 8).max(wanted).min(free).next_multiple_of(8);
        loop {
            let (window, used) = self.space.emptiest(bytes, superblock.grant.end())?;
            let free_inside = (window.end - window.start).saturating_sub(used);
            if used + used / 4 <= free.saturating_sub(free_inside) {
                return Some(window);
            }
            bytes = (bytes / 2) & !7;
            if bytes < len {
                return None;
            }
        }
    }

    /// Replaces the next segment from `from` on that is among the bytes to empty, or has values there; returns where to go on.
    pub(super) fn move_some<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        from: &K::Key,
        replaced: &mut u64,
    ) -> Result<Option<K::Owned>, TableError> {
        let Some(window) = self.space.emptied().cloned() else { return Ok(None) };
        let has_values = self.geometry.shape.value_bytes.is_none() && self.external().values > 0;
        let mut slots = 0;
        let mut entries = self.directory.range_from(from).map(|(lo, segment)| (lo, *segment));
        let mut found = None;
        for _ in 0..LOOKED_AT {
            let Some((lo, segment)) = entries.next() else { return Ok(None) };
            let len = self.geometry.segment_bytes(segment.model().cap) as u64;
            let lies_there = Extent::new(segment.address().offset(), len).meets(&window);
            if lies_there || has_values && self.has_values_in(superblock, &segment, &window)? {
                found = Some((lo, segment));
                break;
            }
            slots += usize::from(segment.model().cap);
            if has_values && slots > LOOKED_AT_SLOTS {
                break;
            }
        }
        let behind = entries.next().map(|(lo, _)| lo);
        drop(entries);
        let Some((lo, segment)) = found else { return Ok(behind) };
        self.rebuilder.gathering.clear();
        self.gather_segment(superblock, lo.borrow(), &segment)?;
        let (moved, left) = self.move_values(superblock, &window)?;
        let old = Old { lo: lo.clone(), behind: behind.clone(), segments: vec![segment] };
        match self.replace(superblock, &old, Making::Compact) {
            Ok(()) => {
                *replaced += 1;
                // Nothing names them any more, and readers who come for them find other bytes than their checksums say.
                moved.iter().for_each(|(old, _)| self.space.put(*old));
                Ok(if left && !moved.is_empty() { Some(lo) } else { behind })
            }
            Err(error) => {
                moved.iter().for_each(|(_, new)| self.space.put(*new));
                // Those that come may find room.
                if matches!(error, TableError::NoRoom { .. }) { Ok(behind) } else { Err(error) }
            }
        }
    }

    /// Whether a live slot of a segment names a value that lies among these bytes.
    fn has_values_in<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        segment: &Segment<K>,
        window: &Range<u64>,
    ) -> Result<bool, TableError> {
        let mut bytes = Vec::new();
        Slots::of(&*superblock.region, self.geometry, segment).read_all(&mut bytes)?;
        let is_there = |record: LiveRecord<'_>| match record.parts.value {
            Stored::External(extent) => memory_of(&extent).meets(window),
            Stored::Here(_) => false,
        };
        Ok(live_records::<K>(&self.geometry, &bytes).any(is_there))
    }

    /// Copies values of gathered records away from these bytes, and has the records name the copies: their memory before and
    /// now, and whether some are left for another time.
    fn move_values<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        window: &Range<u64>,
    ) -> Result<(Vec<(Extent, Extent)>, bool), TableError> {
        let shape = self.geometry.shape;
        let (mut moved, mut copied, mut value) = (Vec::new(), 0, Vec::new());
        if shape.value_bytes.is_some() {
            return Ok((moved, false));
        }
        for at in 0..self.rebuilder.gathering.records.len() {
            let record = self.rebuilder.gathering.records[at];
            if record.body == INCOMING {
                continue;
            }
            let body =
                record.body as usize..record.body as usize + self.geometry.slot_bytes - SLOT_WORD_BYTES;
            let parts = shape.parts::<K>(&self.rebuilder.gathering.slots[body.clone()]);
            let Some(RecordParts { value: Stored::External(extent), .. }) = parts else { continue };
            let old = memory_of(&extent);
            if !old.meets(window) {
                continue;
            }
            if copied > MOST_COPIED {
                return Ok((moved, true));
            }
            let Some(new) = self.space.take(old.len) else { continue };
            value.clear();
            let address = SegmentAddress::new(self.node, new.offset);
            let copy = match (address, self.read_value(superblock, &extent, &mut value)) {
                (Some(address), Ok(())) => ValueExtent { address, ..extent },
                // What is damaged stays as it is.
                _ => {
                    self.space.put(new);
                    continue;
                }
            };
            superblock.region.write_bytes(new.offset, &value)?;
            let gathering = &mut self.rebuilder.gathering;
            let key = K::kept(&record.key, &gathering.keys);
            let body = &mut gathering.slots[body];
            shape.fill::<K>(body, key, &Stored::External(copy));
            copied += old.len;
            moved.push((old, new));
        }
        Ok((moved, false))
    }
}
