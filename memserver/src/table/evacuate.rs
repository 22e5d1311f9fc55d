//! Evacuation: a range of the region is emptied of segments and values, so that free memory is in
//! one piece. That makes room for an extent longer than any free one, or for other regions, which
//! get the free memory at this one's end.
//!
//! Every segment in the range, or with a value there, is replaced as in a rebuild: the new segment,
//! which refers to copies of the values, is committed before memory of the old one is reused. So a
//! crash in between leaves either all of the replacement or nothing.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordParts, SLOT_WORD_BYTES, SegmentAddress, Stored, ValueExtent};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::rebuilder::gather::{INCOMING, MOST_GATHERED_BYTES, ReplacedRun};
use super::rebuilder::planned::FillGoal;
use super::room::Evacuation;
use super::segments::Segments;
use super::segments::copied::{LiveRecord, live_records};
use super::values::{memory_of, read_value};
use crate::space::Extent;

/// Segments examined in one step; and slots, if they may refer to values and are not long.
const LOOKED_AT: usize = 1024;
const LOOKED_AT_SLOTS: usize = 1 << 13;
/// Bytes of values that are copied in one step, about.
const MOST_COPIED: u64 = 1 << 20;

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Continues the evacuation; `false` if there is nothing to do now.
    pub(super) fn step_evacuation(&mut self) -> Result<bool, TableError> {
        let Some(evacuation) = &self.room.emptying.evacuation else {
            let Some(window) = self.room.wants_emptied(&self.segments)? else { return Ok(false) };
            self.room.begin_evacuation(window);
            return Ok(true);
        };
        let stepped = match evacuation.moved {
            None => self.step_moving().map(|is_moved| {
                if is_moved {
                    self.room.publication.wanted = Some(self.room.log_head());
                }
            }),
            Some(head) if self.room.record.checkpoint >= head => self.room.reclaim().map(|_| {
                self.room.end_evacuation();
            }),
            // Without a change since the last directory there will be none.
            Some(_) => return Ok(false),
        };
        if stepped.as_ref().is_err_and(|error| !matches!(error, TableError::Leased)) {
            self.room.give_up_evacuation();
        }
        stepped.map(|()| true)
    }

    /// Moves some more out of the range of the evacuation under way; `true` if that was the last.
    pub(super) fn step_moving(&mut self) -> Result<bool, TableError> {
        let next = self.move_some()?;
        if next.is_none() {
            self.move_encoders()?;
        }
        // With the change that this step made, if it made one.
        let head = self.room.log_head();
        let Some(evacuation) = &mut self.room.emptying.evacuation else { return Ok(true) };
        match next {
            Some(next) => evacuation.from = next,
            None => evacuation.moved = Some(head),
        }
        Ok(evacuation.moved.is_some())
    }

    /// Replaces the next segment that is in the range to empty, or has values there; returns where
    /// to continue.
    pub(super) fn move_some(&mut self) -> Result<Option<K::Owned>, TableError> {
        let Some(window) = self.room.space.emptied().cloned() else { return Ok(None) };
        let Some(Evacuation { from, .. }) = &self.room.emptying.evacuation else { return Ok(None) };
        let has_values = self.segments.geometry.shape.value_bytes.is_none() && self.values.counted.values > 0;
        let most_slots = LOOKED_AT_SLOTS.min(MOST_GATHERED_BYTES / self.segments.geometry.slot_bytes);
        let mut slots = 0;
        let mut entries =
            self.segments.directory.range_from(from.borrow()).map(|(start, segment)| (start, *segment));
        let mut found = None;
        for _ in 0..LOOKED_AT {
            let Some((start, segment)) = entries.next() else { return Ok(None) };
            let len = self.segments.geometry.segment_bytes(segment.model().cap) as u64;
            let lies_there = Extent::new(segment.address().offset(), len).meets(&window);
            if lies_there || has_values && self.segments.has_values_in(&segment, &window)? {
                found = Some((start, segment));
                break;
            }
            slots += usize::from(segment.model().cap);
            if has_values && slots > most_slots {
                break;
            }
        }
        let end = entries.next().map(|(start, _)| start);
        drop(entries);
        let Some((start, segment)) = found else { return Ok(end) };
        self.rebuilder.gathering.clear();
        match self.rebuilder.gathering.add_segment(&self.segments, start.borrow(), &segment) {
            Err(error) if error.is_local_failure() => {
                if let TableError::Damaged(_) = error {
                    self.room.emptying.immovables.note_segment(start);
                    self.note_damage(error);
                }
                return Ok(end);
            }
            gathered => gathered?,
        }
        let (moved, left) = self.move_values(&window)?;
        let old = ReplacedRun { start: start.clone(), end: end.clone(), segments: vec![segment] };
        match self.replace(&old, FillGoal::Compact) {
            Ok(()) => {
                self.room.emptying.evacuation.iter_mut().for_each(|evacuation| evacuation.replaced += 1);
                // No slot refers to them any more, and readers that still do find a checksum
                // mismatch.
                moved.iter().for_each(|(old, _)| self.room.space.put(*old));
                Ok(if left && !moved.is_empty() { Some(start) } else { end })
            }
            Err(error) => {
                moved.iter().for_each(|(_, new)| self.room.space.put(*new));
                if error.is_local_failure() { Ok(end) } else { Err(error) }
            }
        }
    }

    /// Copies values of gathered records out of the range, and has the records refer to the copies;
    /// returns their old and new memory, and whether some are left for another step.
    fn move_values(&mut self, window: &Range<u64>) -> Result<(Vec<(Extent, Extent)>, bool), TableError> {
        let shape = self.segments.geometry.shape;
        let (mut moved, mut copied, mut value) = (Vec::new(), 0, Vec::new());
        if shape.value_bytes.is_some() {
            return Ok((moved, false));
        }
        for at in 0..self.rebuilder.gathering.records.len() {
            let record = self.rebuilder.gathering.records[at];
            if record.body == INCOMING {
                continue;
            }
            let body = record.body as usize
                ..record.body as usize + self.segments.geometry.slot_bytes - SLOT_WORD_BYTES;
            let parts = shape.parts::<K>(&self.rebuilder.gathering.slots[body.clone()]);
            let Some(RecordParts { value: Stored::External(extent), .. }) = parts else { continue };
            let old = memory_of(&extent);
            if !old.meets(window) {
                continue;
            }
            if copied > MOST_COPIED {
                return Ok((moved, true));
            }
            let Some(new) = self.room.space.take(old.len) else { continue };
            value.clear();
            let address = SegmentAddress::new(self.room.node, new.offset);
            let copy = match (address, read_value(&*self.segments.region, &extent, &mut value)) {
                (Some(address), Ok(())) => ValueExtent { address, ..extent },
                (_, read) => {
                    self.room.space.put(new);
                    if read.is_err() {
                        // What is damaged stays as it is.
                        let key = K::kept(&record.key, &self.rebuilder.gathering.keys).to_owned();
                        self.room.emptying.immovables.note_value(key, extent);
                    }
                    continue;
                }
            };
            self.segments.region.write_bytes(new.offset, &value)?;
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

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Whether a live slot of a segment refers to a value in the range.
    fn has_values_in(&self, segment: &Segment<K>, window: &Range<u64>) -> Result<bool, TableError> {
        let mut bytes = Vec::new();
        self.slots(segment).read_all(&mut bytes)?;
        let is_there = |record: LiveRecord<'_>| match record.parts.value {
            Stored::External(extent) => memory_of(&extent).meets(window),
            Stored::Here(_) => false,
        };
        Ok(live_records::<K>(&self.geometry, &bytes).any(is_there))
    }
}
