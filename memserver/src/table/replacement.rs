//! Segments replaced by segments.
//!
//! 1. The new segments are written, whole, into free memory.
//! 2. Their records are appended to the change log, and the log head is stored: that commits the change.
//! 3. The old segments are frozen.
//! 4. Only then are writes accepted to the range: until then old and new hold the same, so that a reader of either is right.
//! 5. The old memory waits until no reader can take what it holds for what it held.

use std::borrow::Borrow;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{
    ChangeRecord, Descriptor, Grouping, SLOT_WORD_BYTES, SegmentAddress, SegmentHeader, SegmentReplacement,
};
use fpcache::put_into;
#[cfg(feature = "sabotage")]
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;

use super::gather::{GatheredRecord, Gathering, INCOMING, Old, age};
use super::parting::Parting;
use super::slots::Slots;
use super::{Table, TableError};
use crate::grouping::{Groups, group};
use crate::rebuild::plan::{Gathered, Planned, RebuildOptions, plan};
use crate::recovery_area::Replaced;
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

/// What segments are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Making {
    /// Writes to come: with free slots where they are expected.
    ForWrites,
    /// Taking little room.
    Compact,
}

/// A segment that is to take their place.
#[derive(Debug)]
pub(super) struct New<K: BuildKeys> {
    pub(super) lo: K::Owned,
    pub(super) tail: K::Tail,
    /// Its keys are places among the gathered records.
    pub(super) planned: Planned,
    /// Its groups, if its keys are in groups.
    pub(super) groups: Option<Groups>,
}

impl<K: BuildKeys> New<K> {
    /// Puts its keys, which have these coordinates and hashes, into groups, if they can be. As many keys for each group would leave no slots where
    /// a run of inserts is to go on.
    fn group(&mut self, grouping: Grouping, epsilon: u32, xs: &[u64], hashes: &[u64]) {
        let planned = &mut self.planned;
        if xs.is_empty() || planned.has_reserve {
            return;
        }
        if let Some(grouped) = group(grouping, epsilon, (planned.model, xs.len()), xs, hashes) {
            (planned.model, planned.slots) = (grouped.model, grouped.slots);
            self.groups = Some(grouped.groups);
        }
    }
}

/// A new segment that was written and is not yet known to anybody.
#[derive(Debug)]
pub(super) struct Written<K: BuildKeys> {
    descriptor: Descriptor<K>,
    pub(super) extent: Extent,
    /// Records in the slot their prediction names.
    at_home: u64,
}

/// Segments as they were planned, and as they were written.
type Made<K> = (Vec<New<K>>, Vec<Written<K>>);

impl<K: BuildKeys> Table<K> {
    /// Replaces the segment that owns `key`, and small neighbours with it; leaves a free slot for `incoming`.
    pub(super) fn replace_segment<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        key: &K::Key,
        incoming: Option<&K::Key>,
    ) -> Result<(), TableError> {
        let old = self.gather(superblock, key)?;
        if let Some(key) = incoming {
            self.rebuilder.gathering.add_incoming(key);
        }
        self.replace(superblock, &old, Making::ForWrites)
    }

    /// Replaces segments whose records have been gathered.
    pub(super) fn replace<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        old: &Old<K>,
        making: Making,
    ) -> Result<(), TableError> {
        let began = Instant::now();
        let copies =
            self.rebuilder.gathering.records.iter().filter(|record| record.body != INCOMING).count() as u64;
        let (new, written) = self.plan_and_write(superblock, old, making)?;
        self.commit(superblock, old, &written)?;
        if let Some(taking) = &mut self.taking {
            taking.follow(&old.segments, &self.rebuilder.gathering, self.geometry.slot_bytes, &new, &written);
        }
        let at_home: u64 = written.iter().map(|segment| segment.at_home).sum();
        self.at_home = (self.at_home + at_home).saturating_sub(self.rebuilder.gathering.at_home);
        self.counters.rebuilt(copies, began.elapsed());
        Ok(())
    }

    /// Plans new segments and writes them; shorter ones if no free extent has room for those that would be best.
    fn plan_and_write<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        old: &Old<K>,
        making: Making,
    ) -> Result<Made<K>, TableError> {
        let mut options = match making {
            Making::ForWrites => self.rebuilder.options,
            Making::Compact => self.rebuilder.options.compact(),
        };
        loop {
            let new = self.plan_for(old, &options, making);
            self.room_in_log(superblock, log_records(old, &new))?;
            match self.write_all(superblock, &new, old.behind.as_ref()) {
                Err(TableError::NoRoom { .. }) if self.shorten(&mut options, &new) => {}
                written => return Ok((new, written?)),
            }
        }
    }

    /// Has segments planned that free extents have room for; `false` if that cannot be, or would make too short ones.
    fn shorten(&mut self, options: &mut RebuildOptions, new: &[New<K>]) -> bool {
        /// Slots of the shortest that are worth it.
        const LEAST: usize = 64;
        let bytes = |new: &New<K>| self.geometry.segment_bytes(new.planned.model.cap) as u64;
        let (total, longest) = (new.iter().map(bytes).sum::<u64>(), new.iter().map(bytes).max().unwrap_or(0));
        if self.space.free_bytes() < total + self.kept_for_compaction() {
            return false;
        }
        self.giving_back.want_hole(longest);
        // Shorter with each time: keys that share their coordinates may keep a segment longer than it was to be.
        let longest = longest.min(options.max_segment_bytes as u64);
        let half = usize::try_from(longest.min(self.space.longest() + longest / 2)).unwrap_or(0) / 2;
        options.max_segment_bytes = half;
        half >= LEAST * options.slot_bytes
    }

    /// Plans new segments for what was gathered.
    fn plan_for(&mut self, old: &Old<K>, options: &RebuildOptions, making: Making) -> Vec<New<K>> {
        let now = self.next_version;
        let Gathering { records, keys: arena, xs, ages, .. } = &mut self.rebuilder.gathering;
        let age_of = |record: &GatheredRecord<K>| match record.body {
            INCOMING => 0,
            _ => age(record.version, now),
        };
        ages.clear();
        if making == Making::ForWrites {
            ages.extend(records.iter().map(age_of));
        }
        let keys: Vec<&K::Key> = records.iter().map(|record| K::kept(&record.key, arena)).collect();
        let divisions = K::divide(&keys, old.lo.borrow(), &self.encoders, options.cut_epsilon());
        let mut new: Vec<New<K>> = Vec::with_capacity(2);
        let mut divisions = divisions.into_iter().peekable();
        while let Some(division) = divisions.next() {
            let (tail, range) = (division.tail, division.keys);
            xs.clear();
            let coordinate = |key: &&K::Key| K::coordinate(key, usize::MAX, tail, &self.encoders);
            xs.extend(keys[range.clone()].iter().map(coordinate));
            let behind = divisions.peek().map(|next| &next.lo).or(old.behind.as_ref()).map(Borrow::borrow);
            let (lo, hi) = K::coordinates_of(division.lo.borrow(), behind, tail, &self.encoders);
            // Without ages no run is met, and no slots are kept for one.
            let ages = if making == Making::ForWrites { &ages[range.clone()] } else { &[] };
            let gathered = Gathered { lo, hi, xs, ages };
            let keys = &keys[range.clone()];
            let parting = Parting { keys, xs, end: behind, tail, encoders: &self.encoders };
            let mut begin = Some(division.lo);
            for planned in plan(&gathered, options) {
                parting.add(begin.take(), planned, range.start, &mut new);
            }
        }
        if let Some(grouping) = self.geometry.groups {
            for segment in &mut new {
                let coordinate = |key: &&K::Key| K::coordinate(key, usize::MAX, segment.tail, &self.encoders);
                let keys = &keys[segment.planned.keys.clone()];
                xs.clear();
                xs.extend(keys.iter().map(coordinate));
                let hashes: Vec<u64> = keys.iter().map(|key| K::hash(key)).collect();
                segment.group(grouping, self.record.parameters.epsilon, xs, &hashes);
            }
        }
        new
    }

    /// Writes all planned segments into free memory, or none.
    fn write_all<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        new: &[New<K>],
        behind: Option<&K::Owned>,
    ) -> Result<Vec<Written<K>>, TableError> {
        let mut written: Vec<Written<K>> = Vec::with_capacity(new.len());
        for (at, segment) in new.iter().enumerate() {
            let behind = new.get(at + 1).map(|next| &next.lo).or(behind);
            match self.write_segment(superblock, segment, behind) {
                Ok(segment) => written.push(segment),
                Err(error) => {
                    written.iter().for_each(|segment| self.space.put(segment.extent));
                    return Err(error);
                }
            }
        }
        Ok(written)
    }

    fn write_segment<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        new: &New<K>,
        behind: Option<&K::Owned>,
    ) -> Result<Written<K>, TableError> {
        let New { lo, tail, planned, groups } = new;
        let model = planned.model;
        let extent = self.allocate_for_records(superblock, self.geometry.segment_bytes(model.cap) as u64)?;
        let Some(address) = SegmentAddress::new(self.node, extent.offset) else {
            self.space.put(extent);
            return Err(self.no_room(superblock));
        };
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let Gathering { records, slots: bytes, keys, .. } = &self.rebuilder.gathering;
        let records = &records[planned.keys.clone()];
        let live = records.iter().filter(|record| record.body != INCOMING).count() as u32;
        let header = SegmentHeader {
            generation,
            cap: model.cap,
            epsilon: model.epsilon,
            lo: K::boundary_id(lo.borrow()),
            end: behind.map_or(u64::MAX, |key| K::boundary_id(key.borrow())),
            live,
        };
        let image = &mut self.rebuilder.image;
        image.begin(&header, groups.as_ref().map(|groups| &groups.table));
        let body_bytes = self.geometry.slot_bytes - SLOT_WORD_BYTES;
        let mut at_home = 0;
        for (record, slot) in records.iter().zip(&planned.slots) {
            // The one to come has a place and is not there yet.
            if record.body == INCOMING {
                continue;
            }
            let body = &bytes[record.body as usize..][..body_bytes];
            let key = K::kept(&record.key, keys);
            let x = K::coordinate(key, usize::MAX, *tail, &self.encoders);
            at_home += u64::from(model.predict(x) == u32::from(*slot));
            image.put(*slot, K::hash(key), record.version, |out| out.copy_from_slice(body));
        }
        if let Some(groups) = groups {
            image.mark(&groups.marked);
        }
        superblock.region.write_bytes(extent.offset, image.bytes())?;
        let descriptor = Descriptor { lo: lo.clone(), tail: *tail, model, address, generation };
        Ok(Written { descriptor, extent, at_home })
    }

    /// Makes a change: from here on the new segments are the ones that count.
    fn commit<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        old: &Old<K>,
        new: &[Written<K>],
    ) -> Result<(), TableError> {
        let replaced = old.segments.iter().map(|segment| Replaced {
            offset: segment.address().offset(),
            generation: segment.generation(),
            cap: segment.model().cap,
        });
        let change = SegmentReplacement {
            with: new.iter().map(|segment| segment.descriptor.clone()).collect(),
            end: old.behind.clone(),
        };
        let records = change.records(superblock.current().log_head);
        superblock.begin_change(superblock.current().log_head + records.len() as u64, replaced)?;
        #[cfg(feature = "sabotage")]
        if superblock.breaks(Sabotage::FreezeBeforeLog) {
            for segment in &old.segments {
                Slots::of(&*superblock.region, self.geometry, segment).freeze()?;
            }
            superblock.region.release();
        }
        let head = self.append_to_log(superblock, &records)?;
        for segment in &old.segments {
            let slots = Slots::of(&*superblock.region, self.geometry, segment);
            let extent = Extent::new(segment.address().offset(), slots.bytes());
            slots.freeze()?;
            #[cfg(feature = "sabotage")]
            if superblock.breaks(Sabotage::ReuseAtOnce) {
                self.space.put(extent);
                continue;
            }
            self.space.retire(head, extent);
        }
        let bytes = |cap| self.geometry.segment_bytes(cap) as u64;
        self.segment_bytes += new.iter().map(|new| bytes(new.descriptor.model.cap)).sum::<u64>();
        self.segment_bytes -= old.segments.iter().map(|old| bytes(old.model().cap)).sum::<u64>();
        // Whoever sees a write to the new segments sees the old ones frozen.
        #[cfg(feature = "sabotage")]
        if !superblock.breaks(Sabotage::NoFenceAfterFreeze) {
            superblock.region.release();
        }
        #[cfg(not(feature = "sabotage"))]
        superblock.region.release();
        superblock.end_change()?;
        if K::FIXED_BYTES.is_none() {
            self.note_separators(&change, old.segments.len());
        }
        let replaced = put_into(&change, &mut self.directory);
        debug_assert_eq!(replaced, Ok(()), "plans cover the range they were asked for, in order");
        Ok(())
    }

    /// Keeps count of what separators take, before the change of so many segments is in the directory.
    fn note_separators(&mut self, change: &SegmentReplacement<K>, replaced: usize) {
        let Some(first) = change.with.first() else { return };
        let before = self.directory.before(first.lo.borrow()).map(|(lo, _)| lo);
        let old = self.directory.range_from(first.lo.borrow()).take(replaced + 1).map(|(lo, _)| lo);
        let new = change.with.iter().map(|d| d.lo.clone()).chain(change.end.clone());
        self.publication.separators.replace::<K>(before, old, new);
    }

    /// Appends a change to the log and stores the log head, which is returned.
    fn append_to_log<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        records: &[ChangeRecord],
    ) -> Result<u64, TableError> {
        for record in records {
            let at = ChangeRecord::offset(self.record.log, self.record.log_records, record.sequence);
            superblock.region.write_bytes(at, &record.encode())?;
        }
        let head = superblock.current().log_head + records.len() as u64;
        superblock.set_log_head(head)?;
        Ok(head)
    }

    /// Makes sure that the log has room for so many `parts` more without losing one that the checkpoint lacks.
    fn room_in_log<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        parts: usize,
    ) -> Result<(), TableError> {
        let needed = superblock.current().log_head + parts as u64 - self.record.checkpoint;
        if needed > self.record.log_records {
            self.finish_checkpoint(superblock)?;
            if parts as u64 > self.record.log_records {
                return Err(self.no_room(superblock));
            }
        }
        Ok(())
    }
}

/// Records of the change log that say so.
fn log_records<K: BuildKeys>(old: &Old<K>, new: &[New<K>]) -> usize {
    let descriptor = |new: &New<K>| Descriptor::<K> {
        lo: new.lo.clone(),
        tail: new.tail,
        model: new.planned.model,
        address: SegmentAddress::from_bits(0),
        generation: 0,
    };
    SegmentReplacement { with: new.iter().map(descriptor).collect(), end: old.behind.clone() }
        .records(0)
        .len()
}
