//! Segments replaced by segments.
//!
//! 1. The new segments are written, whole, into free memory.
//! 2. Their records are appended to the change log, and the log head is stored: that commits the change.
//! 3. The old segments are frozen.
//! 4. Only then are writes accepted to the range: until then old and new hold the same, so that a reader of either is right.
//! 5. The old memory waits until no reader can take what it holds for what it held.

use std::borrow::Borrow;
use std::time::Instant;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{Between, Boundary, BuildKeys};
use fpcache::layout::{
    Change, ChangeRecord, Descriptor, SLOT_WORD_BYTES, SegmentAddress, SegmentHeader, SlotState, SlotWord,
};
use fpcache::models::Segment;
use fpcache::put_into;
#[cfg(feature = "sabotage")]
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;
use fpcache_index::Window;

use super::slots::Slots;
use super::{Table, TableError};
use crate::front::Front;
use crate::loader::FIRST_VERSION;
use crate::notes::Replaced;
use crate::rebuild::plan::{Facts, Gathered, Planned, neighbours, plan};
use crate::space::Extent;

/// The live records of the segments that are to be replaced.
#[derive(Debug)]
pub(crate) struct Gathering<K: BuildKeys> {
    /// In key order.
    records: Vec<GatheredRecord<K>>,
    /// The bytes of keys that have any.
    keys: Vec<u8>,
    /// The segments' slots, one segment after the other.
    slots: Vec<u8>,
    order: Order<K>,
    xs: Vec<u64>,
    ages: Vec<u32>,
    /// Records in the slot their prediction names.
    at_home: u64,
}

#[derive(Clone, Copy, Debug)]
struct GatheredRecord<K: BuildKeys> {
    key: K::Kept,
    version: u32,
    /// Where its body begins in the slots; [`INCOMING`] for a record that is still to come.
    body: u32,
}

/// No body begins there: a segment's are far below 4 GiB.
const INCOMING: u32 = u32::MAX;

/// Buffers for bringing the records of a segment into key order.
#[derive(Debug)]
struct Order<K: BuildKeys> {
    /// In slot order, with the slot that the model predicts.
    found: Vec<(u32, GatheredRecord<K>)>,
    /// By prediction: how many have it, and then where the next one of them goes.
    places: Vec<usize>,
}

/// Neighbouring segments that are to be replaced together, and the range they own.
#[derive(Debug)]
struct Old<K: BuildKeys> {
    lo: K::Owned,
    /// First key behind them; `None` at the table's end.
    behind: Option<K::Owned>,
    segments: Vec<Segment<K>>,
}

/// A segment that is to take their place.
#[derive(Debug)]
struct New<K: BuildKeys> {
    lo: K::Owned,
    tail: K::Tail,
    /// Its keys are places among the gathered records.
    planned: Planned,
}

/// A new segment that was written and is not yet known to anybody.
#[derive(Debug)]
struct Written<K: BuildKeys> {
    descriptor: Descriptor<K>,
    extent: Extent,
    /// Records in the slot their prediction names.
    at_home: u64,
}

impl<K: BuildKeys> Table<K> {
    /// Replaces the segment that owns `key`, and small neighbours with it; leaves a free slot for `incoming`.
    pub(super) fn replace_segment<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        key: &K::Key,
        incoming: Option<&K::Key>,
    ) -> Result<(), TableError> {
        let began = Instant::now();
        let old = self.gather(front, key)?;
        let copies = self.gathering.records.len() as u64;
        if let Some(key) = incoming {
            self.gathering.add_incoming(key);
        }
        let new = self.plan_for(&old);
        self.room_in_log(front, log_records(&old, &new))?;
        let written = self.write_all(front, &new, old.behind.as_ref())?;
        self.commit(front, &old, &written)?;
        let at_home: u64 = written.iter().map(|segment| segment.at_home).sum();
        self.at_home = (self.at_home + at_home).saturating_sub(self.gathering.at_home);
        self.counters.rebuilt(copies, began.elapsed());
        Ok(())
    }

    /// Reads the live records of the segment that owns `key`, and of neighbours that are worth merging with it.
    fn gather<M: NodeMemory>(&mut self, front: &Front<K, M>, key: &K::Key) -> Result<Old<K>, TableError> {
        let Some(located) = self.directory.locate(key) else { return Err(self.no_room(front)) };
        let (mut lo, mut behind, centre) = (located.lo, located.hi, *located.entry);
        let left = self.directory.before(lo.borrow()).map(|(lo, segment)| (lo, *segment));
        let right = behind.as_ref().and_then(|key| {
            let right = self.directory.locate(key.borrow())?;
            Some((right.hi, *right.entry))
        });
        let mut facts = |segment: &Segment<K>| self.facts(front, segment);
        let (left_facts, right_facts) = (
            left.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
            right.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
        );
        let merge = neighbours(facts(&centre)?, left_facts, right_facts);
        self.gathering.clear();
        let mut segments = Vec::with_capacity(3);
        if let Some((first, segment)) = left.filter(|_| merge.left) {
            self.gather_segment(front, first.borrow(), &segment)?;
            segments.push(segment);
            self.gather_segment(front, lo.borrow(), &centre)?;
            lo = first;
        } else {
            self.gather_segment(front, lo.borrow(), &centre)?;
        }
        segments.push(centre);
        if let (Some((end, segment)), Some(its_lo)) = (right.filter(|_| merge.right), &behind) {
            self.gather_segment(front, its_lo.borrow(), &segment)?;
            segments.push(segment);
            behind = end;
        }
        Ok(Old { lo, behind, segments })
    }

    /// Live records of a segment; and, where there are few for its slots, how long ago it was last written to. The
    /// fingerprints tell the first, a few microseconds for the longest segments.
    fn facts<M: NodeMemory>(
        &mut self,
        front: &Front<K, M>,
        segment: &Segment<K>,
    ) -> Result<Facts, TableError> {
        let slots = Slots::of(&*front.region, self.geometry, segment);
        let cap = segment.model().cap;
        let all = Window { first: 0, last: u32::from(cap).saturating_sub(1) };
        let fingerprints = &mut self.scratch.fingerprints;
        slots.read_fingerprints(all, fingerprints)?;
        let empty = self.matcher.hits(self.geometry.width, fingerprints, FingerprintWidth::EMPTY).count;
        let mut facts = Facts { keys: usize::from(cap).saturating_sub(empty as usize), cap, idle: u32::MAX };
        if facts.has_shrunk() {
            for slot in 0..u32::from(cap) {
                facts.idle = facts.idle.min(age(slots.word(slot)?.version(), self.next_version));
            }
        }
        Ok(facts)
    }

    /// Live records of a segment, by their words.
    pub(super) fn count<M: NodeMemory>(
        &self,
        front: &Front<K, M>,
        segment: &Segment<K>,
    ) -> Result<u64, TableError> {
        let slots = Slots::of(&*front.region, self.geometry, segment);
        let mut live = 0;
        for slot in 0..u32::from(segment.model().cap) {
            live += u64::from(slots.word(slot)?.state() == SlotState::Live);
        }
        Ok(live)
    }

    fn gather_segment<M: NodeMemory>(
        &mut self,
        front: &Front<K, M>,
        lo: &K::Key,
        segment: &Segment<K>,
    ) -> Result<(), TableError> {
        let slots = Slots::of(&*front.region, self.geometry, segment);
        let Gathering { records, keys, slots: bytes, order, at_home, .. } = &mut self.gathering;
        let before = bytes.len();
        slots.append_all(bytes)?;
        let model = segment.model();
        order.begin(model.cap);
        let each = bytes[before..].chunks_exact(self.geometry.slot_bytes);
        for ((slot, bytes), at) in (0..).zip(each).zip((before..).step_by(self.geometry.slot_bytes)) {
            let Some((word, body)) = bytes.split_first_chunk::<SLOT_WORD_BYTES>() else { continue };
            let word = SlotWord::from_bits(u64::from_le_bytes(*word));
            if word.state() != SlotState::Live {
                continue;
            }
            let parts = self.geometry.shape.parts::<K>(body);
            let Some(key) = parts.and_then(|parts| K::view(parts.key)) else { continue };
            let key = key.borrow();
            let predicted = model.predict(segment.coordinate(key, K::shared(key, lo), &self.coders));
            *at_home += u64::from(predicted == slot);
            // All slots of a few segments are far below 4 GiB.
            let body = (at + SLOT_WORD_BYTES) as u32;
            let record = GatheredRecord { key: K::keep(key, keys), version: word.version(), body };
            order.add(predicted, record);
        }
        order.append_to(records, keys);
        Ok(())
    }

    /// Plans new segments for what was gathered.
    fn plan_for(&mut self, old: &Old<K>) -> Vec<New<K>> {
        let now = self.next_version;
        let Gathering { records, keys: arena, xs, ages, .. } = &mut self.gathering;
        let age_of = |record: &GatheredRecord<K>| match record.body {
            INCOMING => 0,
            _ => age(record.version, now),
        };
        ages.clear();
        ages.extend(records.iter().map(age_of));
        let keys: Vec<&K::Key> = records.iter().map(|record| K::kept(&record.key, arena)).collect();
        let divisions = K::divide(&keys, old.lo.borrow(), &self.coders, self.rebuild.cut_epsilon());
        let mut new: Vec<New<K>> = Vec::with_capacity(2);
        let mut divisions = divisions.into_iter().peekable();
        while let Some(division) = divisions.next() {
            let (tail, range) = (division.tail, division.keys);
            xs.clear();
            let coordinate = |key: &&K::Key| K::coordinate(key, usize::MAX, tail, &self.coders);
            xs.extend(keys[range.clone()].iter().map(coordinate));
            let behind = divisions.peek().map(|next| &next.lo).or(old.behind.as_ref()).map(Borrow::borrow);
            let (lo, hi) = K::coordinates_of(division.lo.borrow(), behind, tail, &self.coders);
            let gathered = Gathered { lo, hi, xs, ages: &ages[range.clone()] };
            let keys = &keys[range.clone()];
            let parting = Parting { keys, xs, end: behind, tail, coders: &self.coders };
            let mut begin = Some(division.lo);
            for planned in plan(&gathered, &self.rebuild) {
                parting.add(begin.take(), planned, range.start, &mut new);
            }
        }
        new
    }

    /// Writes all planned segments into free memory, or none.
    fn write_all<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        new: &[New<K>],
        behind: Option<&K::Owned>,
    ) -> Result<Vec<Written<K>>, TableError> {
        let mut written: Vec<Written<K>> = Vec::with_capacity(new.len());
        for (at, segment) in new.iter().enumerate() {
            let behind = new.get(at + 1).map(|next| &next.lo).or(behind);
            match self.write_segment(front, segment, behind) {
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
        front: &mut Front<K, M>,
        new: &New<K>,
        behind: Option<&K::Owned>,
    ) -> Result<Written<K>, TableError> {
        let New { lo, tail, planned } = new;
        let model = planned.model;
        let extent = self.allocate_segment(front, self.geometry.segment_bytes(model.cap) as u64)?;
        let Some(address) = SegmentAddress::new(self.node, extent.offset) else {
            self.space.put(extent);
            return Err(self.no_room(front));
        };
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let Gathering { records, slots: bytes, keys, .. } = &self.gathering;
        let records = &records[planned.keys.clone()];
        let live = records.iter().filter(|record| record.body != INCOMING).count() as u32;
        let header = SegmentHeader {
            generation,
            cap: model.cap,
            epsilon: model.epsilon,
            lo: K::mark(lo.borrow()),
            behind: behind.map_or(u64::MAX, |key| K::mark(key.borrow())),
            live,
        };
        self.image.begin(&header);
        let body_bytes = self.geometry.slot_bytes - SLOT_WORD_BYTES;
        let mut at_home = 0;
        for (record, slot) in records.iter().zip(&planned.slots) {
            // The one to come has a place and is not there yet.
            if record.body == INCOMING {
                continue;
            }
            let body = &bytes[record.body as usize..][..body_bytes];
            let key = K::kept(&record.key, keys);
            let x = K::coordinate(key, usize::MAX, *tail, &self.coders);
            at_home += u64::from(model.predict(x) == u32::from(*slot));
            self.image.put(*slot, K::hash(key), record.version, |out| out.copy_from_slice(body));
        }
        front.region.write_bytes(extent.offset, self.image.bytes())?;
        let descriptor = Descriptor { lo: lo.clone(), tail: *tail, model, address, generation };
        Ok(Written { descriptor, extent, at_home })
    }

    /// Makes a change: from here on the new segments are the ones that count.
    fn commit<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        old: &Old<K>,
        new: &[Written<K>],
    ) -> Result<(), TableError> {
        let replaced = old.segments.iter().map(|segment| Replaced {
            offset: segment.address().offset(),
            generation: segment.generation(),
            cap: segment.model().cap,
        });
        let change = Change {
            with: new.iter().map(|segment| segment.descriptor.clone()).collect(),
            behind: old.behind.clone(),
        };
        let records = change.records(front.superblock().log_head);
        front.begin_change(front.superblock().log_head + records.len() as u64, replaced)?;
        #[cfg(feature = "sabotage")]
        if front.breaks(Sabotage::FreezeBeforeLog) {
            for segment in &old.segments {
                Slots::of(&*front.region, self.geometry, segment).freeze()?;
            }
            front.region.release();
        }
        let head = self.append_to_log(front, &records)?;
        for segment in &old.segments {
            let slots = Slots::of(&*front.region, self.geometry, segment);
            let extent = Extent::new(segment.address().offset(), slots.bytes());
            slots.freeze()?;
            #[cfg(feature = "sabotage")]
            if front.breaks(Sabotage::ReuseAtOnce) {
                self.space.put(extent);
                continue;
            }
            self.space.retire(head, extent);
        }
        // Whoever sees a write to the new segments sees the old ones frozen.
        #[cfg(feature = "sabotage")]
        if !front.breaks(Sabotage::NoFenceAfterFreeze) {
            front.region.release();
        }
        #[cfg(not(feature = "sabotage"))]
        front.region.release();
        front.end_change()?;
        if K::FIXED_BYTES.is_none() {
            self.note_separators(&change, old.segments.len());
        }
        let replaced = put_into(&change, &mut self.directory);
        debug_assert_eq!(replaced, Ok(()), "plans cover the range they were asked for, in order");
        Ok(())
    }

    /// Keeps count of what separators take, before the change of so many segments is in the directory.
    fn note_separators(&mut self, change: &Change<K>, replaced: usize) {
        let Some(first) = change.with.first() else { return };
        let before = self.directory.before(first.lo.borrow()).map(|(lo, _)| lo);
        let old = self.directory.range_from(first.lo.borrow()).take(replaced + 1).map(|(lo, _)| lo);
        let new = change.with.iter().map(|d| d.lo.clone()).chain(change.behind.clone());
        self.separators.replace::<K>(before, old, new);
    }

    /// Appends a change to the log and stores the log head, which is returned.
    fn append_to_log<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        records: &[ChangeRecord],
    ) -> Result<u64, TableError> {
        for record in records {
            let at = ChangeRecord::offset(self.record.log, self.record.log_records, record.sequence);
            front.region.write_bytes(at, &record.encode())?;
        }
        let head = front.superblock().log_head + records.len() as u64;
        front.set_log_head(head)?;
        Ok(head)
    }

    /// Makes sure that the log has room for so many `parts` more without losing one that the checkpoint lacks.
    fn room_in_log<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        parts: usize,
    ) -> Result<(), TableError> {
        let needed = front.superblock().log_head + parts as u64 - self.record.checkpoint;
        if needed > self.record.log_records {
            self.finish_checkpoint(front)?;
            if parts as u64 > self.record.log_records {
                return Err(self.no_room(front));
            }
        }
        Ok(())
    }

    /// Free memory for a segment. Never what the next directory needs.
    fn allocate_segment<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        len: u64,
    ) -> Result<Extent, TableError> {
        let take = |table: &mut Self| table.set_aside().then(|| table.space.take(len)).flatten();
        if let Some(extent) = take(self) {
            return Ok(extent);
        }
        self.reclaim(front)?;
        if let Some(extent) = take(self) {
            return Ok(extent);
        }
        // What was replaced since the last directory can be used again once there is a new one.
        self.finish_checkpoint(front)?;
        self.reclaim(front)?;
        take(self).ok_or_else(|| self.no_room(front))
    }

    /// Free memory; what waits for readers is freed if there is none else.
    pub(super) fn allocate<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        len: u64,
    ) -> Result<Extent, TableError> {
        if let Some(extent) = self.space.take(len) {
            return Ok(extent);
        }
        self.reclaim(front)?;
        self.space.take(len).ok_or_else(|| self.no_room(front))
    }

    /// Frees what readers know to be replaced if their directories contain the newest checkpoint.
    pub(super) fn reclaim<M: NodeMemory>(&mut self, front: &mut Front<K, M>) -> Result<(), TableError> {
        if let Some(tag) = self.space.newest_tag(self.record.checkpoint) {
            front.set_reuse(tag)?;
            self.space.release(tag);
        }
        Ok(())
    }

    /// Frees what has become a considerable part of the memory in use, before somebody has to wait for it.
    pub(super) fn reclaim_early<M: NodeMemory>(&mut self, front: &mut Front<K, M>) -> Result<(), TableError> {
        const SHARE: u64 = 16;
        let waiting = self.space.quarantined_bytes();
        if waiting > self.space.free_bytes() / SHARE { self.reclaim(front) } else { Ok(()) }
    }

    pub(super) fn no_room<M: NodeMemory>(&self, front: &Front<K, M>) -> TableError {
        TableError::NoRoom { capacity: front.superblock().region_bytes }
    }
}

/// How many writes ago a version was given out; the greatest number there is for records that were loaded, and for slots
/// that never had one.
fn age(version: u32, now: u32) -> u32 {
    if version <= FIRST_VERSION { u32::MAX } else { now.wrapping_sub(version) % SlotWord::VERSIONS }
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
    Change { with: new.iter().map(descriptor).collect(), behind: old.behind.clone() }.records(0).len()
}

/// Parts the planned segments of a division from one another.
struct Parting<'a, K: BuildKeys> {
    /// The division's keys, and their coordinates.
    keys: &'a [&'a K::Key],
    xs: &'a [u64],
    /// Where its range ends.
    end: Option<&'a K::Key>,
    tail: K::Tail,
    coders: &'a K::Coders,
}

impl<K: BuildKeys> Parting<'_, K> {
    /// Adds the next segment, whose range begins with `begin` if it is the first of the division, to those before. The
    /// division's first key is the `first` of all.
    fn add(&self, begin: Option<K::Owned>, mut planned: Planned, first: usize, new: &mut Vec<New<K>>) {
        let lo = match begin {
            Some(begin) => begin,
            None => match self.boundary(&planned, new) {
                Some(lo) => lo,
                // Slots kept for keys to come that no boundary parts from other keys.
                None if planned.keys.is_empty() => return,
                // The segment before has its place, and no keys.
                None => match new.pop() {
                    Some(before) => before.lo,
                    None => return,
                },
            },
        };
        planned.keys = first + planned.keys.start..first + planned.keys.end;
        new.push(New { lo, tail: self.tail, planned });
    }

    /// Where the range of a segment begins that is not the first of its division.
    fn boundary(&self, planned: &Planned, new: &[New<K>]) -> Option<K::Owned> {
        let before = new.last()?;
        let (at, lo) = (planned.keys.start, before.lo.borrow());
        let next = self.keys.get(at).copied();
        let previous = at.checked_sub(1);
        // That range may begin behind the key, where slots were kept free.
        let below = previous.map_or(lo, |previous| self.keys[previous].max(lo));
        let wanted = if before.planned.keys.is_empty() || planned.keys.is_empty() {
            Boundary::AtCoordinate
        } else if previous.is_some_and(|previous| {
            let (x, behind) = (self.xs[previous], self.xs[at]);
            x.checked_add(1) == Some(planned.lo) && behind != planned.lo && behind != x
        }) {
            Boundary::RightBehind
        } else {
            Boundary::Anywhere
        };
        let Self { end, tail, coders, .. } = *self;
        K::boundary(&Between { x: planned.lo, below, next, end, wanted, tail }, coders)
    }
}

impl<K: BuildKeys> Order<K> {
    /// Begins a segment of `cap` slots.
    fn begin(&mut self, cap: u16) {
        self.found.clear();
        self.places.clear();
        self.places.resize(usize::from(cap), 0);
    }

    fn add(&mut self, predicted: u32, record: GatheredRecord<K>) {
        self.places[predicted as usize] += 1;
        self.found.push((predicted, record));
    }

    /// Appends the records in key order. Predictions do not fall as keys rise, so that only records of one prediction,
    /// mostly one or two, are left to be sorted.
    fn append_to(&mut self, records: &mut Vec<GatheredRecord<K>>, keys: &[u8]) {
        let Some(&(_, any)) = self.found.first() else { return };
        let first = records.len();
        let mut next = first;
        for place in &mut self.places {
            next += std::mem::replace(place, next);
        }
        records.resize(next, any);
        for (predicted, record) in &self.found {
            let place = &mut self.places[*predicted as usize];
            records[*place] = *record;
            *place += 1;
        }
        let mut begin = first;
        for &end in &self.places {
            if end - begin > 1 {
                records[begin..end].sort_unstable_by(|a, b| K::kept(&a.key, keys).cmp(K::kept(&b.key, keys)));
            }
            begin = end;
        }
    }
}

impl<K: BuildKeys> Default for Gathering<K> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            keys: Vec::new(),
            slots: Vec::new(),
            order: Order { found: Vec::new(), places: Vec::new() },
            xs: Vec::new(),
            ages: Vec::new(),
            at_home: 0,
        }
    }
}

impl<K: BuildKeys> Gathering<K> {
    fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
        self.slots.clear();
        self.at_home = 0;
    }

    /// Adds a record that is still to come, unless there is one of its key.
    fn add_incoming(&mut self, key: &K::Key) {
        let keys = &self.keys;
        if let Err(at) = self.records.binary_search_by(|record| K::kept(&record.key, keys).cmp(key)) {
            let key = K::keep(key, &mut self.keys);
            self.records.insert(at, GatheredRecord { key, version: 0, body: INCOMING });
        }
    }
}
