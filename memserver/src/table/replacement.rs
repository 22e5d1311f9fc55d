//! Replacement of segments.
//!
//! 1. The new segments are written, whole, into free memory.
//! 2. The change is appended to the change log, and the log head is stored: that commits it.
//! 3. The old segments are frozen.
//! 4. Only then are writes accepted in the range. Until then old and new segments have the same
//!    records, so readers of either are right.
//! 5. The old memory is reused only when no reader can mistake its new contents for the old.

use std::borrow::Borrow;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::SegmentReplacement;
use fpcache::put_into;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::rebuilder::gather::{INCOMING, ReplacedRun};
use super::rebuilder::planned::FillGoal;
use super::rebuilder::writing::WrittenSegment;
use crate::recovery_area::Replaced;
use crate::space::Extent;

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Replaces the segment that owns `key`, and small neighbours with it; leaves a free slot for
    /// `incoming`.
    pub(super) fn replace_segment(
        &mut self,
        key: &K::Key,
        incoming: Option<&K::Key>,
    ) -> Result<(), TableError> {
        let (old, left_out) = self.rebuilder.gather(&mut self.segments, &self.room, key)?;
        if let Some(damaged) = left_out {
            self.note_damage(damaged);
        }
        if let Some(key) = incoming {
            self.rebuilder.gathering.add_incoming(key);
        }
        self.replace(&old, FillGoal::ForWrites)
    }

    /// Replaces segments whose records have been gathered.
    pub(super) fn replace(&mut self, old: &ReplacedRun<K>, making: FillGoal) -> Result<(), TableError> {
        let began = Instant::now();
        let copies =
            self.rebuilder.gathering.records.iter().filter(|record| record.body != INCOMING).count() as u64;
        let (new, written) =
            self.rebuilder.plan_and_write(&mut self.segments, &mut self.room, old, making)?;
        self.commit(old, &written)?;
        if let Some(taking) = &mut self.taking {
            taking.follow(
                &old.segments,
                &self.rebuilder.gathering,
                self.segments.geometry.slot_bytes,
                &new,
                &written,
            );
        }
        let at_home: u64 = written.iter().map(|segment| segment.at_home).sum();
        self.segments.at_home =
            (self.segments.at_home + at_home).saturating_sub(self.rebuilder.gathering.at_home);
        let outdated = self.rebuilder.gathering.outdated;
        self.segments.keys = self.segments.keys.saturating_sub(outdated);
        if outdated > 0 && self.segments.geometry.shape.value_bytes.is_none() {
            // Values that they had outside no longer count.
            self.values.count_again();
        }
        self.counters.rebuilt(copies, began.elapsed());
        Ok(())
    }

    /// Commits a change: from here on the new segments count.
    fn commit(&mut self, old: &ReplacedRun<K>, new: &[WrittenSegment<K>]) -> Result<(), TableError> {
        let replaced = old.segments.iter().map(|segment| Replaced {
            offset: segment.address().offset(),
            generation: segment.generation(),
            cap: segment.model().cap,
        });
        let change = SegmentReplacement {
            with: new.iter().map(|segment| segment.descriptor.clone()).collect(),
            end: old.end.clone(),
        };
        let head = self.room.log_head();
        let records = change.records(head);
        self.room.superblock.begin_change(head + records.len() as u64, replaced)?;
        if self.segments.breaks(Sabotage::FreezeBeforeLog) {
            for segment in &old.segments {
                self.segments.slots(segment).freeze()?;
            }
            self.segments.region.release();
        }
        let head = self.room.append_to_log(&records)?;
        for segment in &old.segments {
            let slots = self.segments.slots(segment);
            let extent = Extent::new(segment.address().offset(), slots.bytes());
            slots.freeze()?;
            if self.segments.breaks(Sabotage::ReuseAtOnce) {
                self.room.space.put(extent);
                continue;
            }
            self.room.space.retire(head, extent);
        }
        let bytes = |cap| self.segments.geometry.segment_bytes(cap) as u64;
        self.segments.bytes += new.iter().map(|new| bytes(new.descriptor.model.cap)).sum::<u64>();
        self.segments.bytes -= old.segments.iter().map(|old| bytes(old.model().cap)).sum::<u64>();
        // A reader that sees a write to the new segments sees the old ones frozen.
        if !self.segments.breaks(Sabotage::NoFenceAfterFreeze) {
            self.segments.region.release();
        }
        self.room.superblock.end_change()?;
        if K::FIXED_BYTES.is_none() {
            self.note_separators(&change, old.segments.len());
        }
        let replaced = put_into(&change, &mut self.segments.directory);
        debug_assert_eq!(replaced, Ok(()), "plans cover the range they were asked for, in order");
        Ok(())
    }

    /// Updates the count of what separators take, before the change is in the directory.
    fn note_separators(&mut self, change: &SegmentReplacement<K>, replaced: usize) {
        let Some(first) = change.with.first() else { return };
        let before = self.segments.directory.before(first.start.borrow()).map(|(start, _)| start);
        let old = self
            .segments
            .directory
            .range_from(first.start.borrow())
            .take(replaced + 1)
            .map(|(start, _)| start);
        let new = change.with.iter().map(|d| d.start.clone()).chain(change.end.clone());
        self.room.publication.separators.replace::<K>(before, old, new);
    }
}
