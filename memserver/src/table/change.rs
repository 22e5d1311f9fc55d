//! Segments replaced by segments.
//!
//! 1. The new segments are written, whole, into free memory.
//! 2. Their records are appended to the change log, and the log head is stored: that commits the change.
//! 3. The old segments are frozen.
//! 4. Only then are writes accepted to the range: until then old and new hold the same, so that a reader of either is right.
//! 5. The old memory waits until no reader can take what it holds for what it held.

use std::time::Instant;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    ChangeRecord, Descriptor, SLOT_WORD_BYTES, SegmentAddress, SegmentHeader, SlotState, SlotWord,
};
use fpcache::models::Segment;
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
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// In key order: coordinate, version, and where the body begins in `bodies`.
    records: Vec<GatheredRecord>,
    bodies: Vec<u8>,
    slots: Vec<u8>,
    xs: Vec<u64>,
    ages: Vec<u32>,
    /// Records in the slot their prediction names.
    at_home: u64,
}

#[derive(Clone, Copy, Debug)]
struct GatheredRecord {
    x: u64,
    version: u32,
    body: u32,
}

/// Neighbouring segments that are to be replaced together, and the range they own.
#[derive(Debug)]
struct Old<K: KeySpace> {
    lo: K::Key,
    /// First key behind them; `None` at the table's end.
    behind: Option<K::Key>,
    segments: Vec<Segment>,
}

/// A new segment that was written and is not yet known to anybody.
#[derive(Debug)]
struct Written {
    descriptor: Descriptor,
    extent: Extent,
    /// Records in the slot their prediction names.
    at_home: u64,
}

impl<K: KeySpace> Table<K> {
    /// Replaces the segment that owns `key`, and small neighbours with it; leaves a free slot for `incoming`.
    pub(super) fn replace_segment<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        key: &K::Key,
        incoming: Option<&K::Key>,
    ) -> Result<(), TableError> {
        let began = Instant::now();
        let old = self.gather(front, key)?;
        let (planned, incoming) = self.plan_for(&old, incoming);
        self.room_in_log(front, planned.len())?;
        let copies = self.gathering.records.len() as u64;
        let written = self.write_all(front, &planned, incoming)?;
        self.commit(front, &old, &written)?;
        let at_home: u64 = written.iter().map(|segment| segment.at_home).sum();
        self.at_home = (self.at_home + at_home).saturating_sub(self.gathering.at_home);
        self.counters.rebuilt(copies, began.elapsed());
        Ok(())
    }

    /// Reads the live records of the segment that owns `key`, and of neighbours that are worth merging with it.
    fn gather<M: NodeMemory>(&mut self, front: &Front<K, M>, key: &K::Key) -> Result<Old<K>, TableError> {
        let Some(centre) = self.directory.locate(key) else { return Err(self.no_room(front)) };
        let (mut lo, mut behind, segment) = (*centre.lo, centre.hi.copied(), *centre.entry);
        let left = K::coordinate(&lo).checked_sub(1).and_then(|x| {
            let left = self.directory.locate(&K::from_coordinate(x))?;
            (*left.lo < lo).then_some((*left.lo, *left.entry))
        });
        let right = behind.and_then(|key| {
            let right = self.directory.locate(&key)?;
            Some((right.hi.copied(), *right.entry))
        });
        let mut facts = |segment: &Segment| self.facts(front, segment);
        let (left_facts, right_facts) = (
            left.map(|(_, segment)| facts(&segment)).transpose()?,
            right.map(|(_, segment)| facts(&segment)).transpose()?,
        );
        let merge = neighbours(facts(&segment)?, left_facts, right_facts);
        let mut segments = vec![segment];
        if let Some((first, segment)) = left.filter(|_| merge.left) {
            lo = first;
            segments.insert(0, segment);
        }
        if let Some((end, segment)) = right.filter(|_| merge.right) {
            behind = end;
            segments.push(segment);
        }
        self.gathering.clear();
        for segment in &segments {
            self.gather_segment(front, segment)?;
        }
        Ok(Old { lo, behind, segments })
    }

    /// Live records of a segment; and, where there are few for its slots, how long ago it was last written to. The
    /// fingerprints tell the first, a few microseconds for the longest segments.
    fn facts<M: NodeMemory>(&mut self, front: &Front<K, M>, segment: &Segment) -> Result<Facts, TableError> {
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
        segment: &Segment,
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
        segment: &Segment,
    ) -> Result<(), TableError> {
        let slots = Slots::of(&*front.region, self.geometry, segment);
        let Gathering { records, bodies, slots: bytes, at_home, .. } = &mut self.gathering;
        slots.read_all(bytes)?;
        let (model, first) = (segment.model(), records.len());
        for (slot, bytes) in (0..).zip(bytes.chunks_exact(self.geometry.slot_bytes)) {
            let Some((word, body)) = bytes.split_first_chunk::<SLOT_WORD_BYTES>() else { continue };
            let word = SlotWord::from_bits(u64::from_le_bytes(*word));
            let (SlotState::Live, Some(key)) = (word.state(), K::decode(body)) else { continue };
            let x = K::coordinate(&key);
            *at_home += u64::from(model.predict(x) == slot);
            records.push(GatheredRecord { x, version: word.version(), body: bodies.len() as u32 });
            bodies.extend_from_slice(body);
        }
        records[first..].sort_unstable_by_key(|record| record.x);
        Ok(())
    }

    /// Plans new segments for what was gathered, and says which of the planned keys is the one to come.
    fn plan_for(&mut self, old: &Old<K>, incoming: Option<&K::Key>) -> (Vec<Planned>, Option<usize>) {
        let now = self.next_version;
        let Gathering { records, xs, ages, .. } = &mut self.gathering;
        xs.clear();
        ages.clear();
        xs.extend(records.iter().map(|record| record.x));
        ages.extend(records.iter().map(|record| age(record.version, now)));
        let incoming = incoming.and_then(|key| {
            let x = K::coordinate(key);
            let at = xs.binary_search(&x).err()?;
            xs.insert(at, x);
            ages.insert(at, 0);
            Some(at)
        });
        let hi = old.behind.as_ref().map_or(u64::MAX, |key| K::coordinate(key) - 1);
        let gathered = Gathered { lo: K::coordinate(&old.lo), hi, xs, ages };
        (plan(&gathered, &self.rebuild), incoming)
    }

    /// Writes all planned segments into free memory, or none.
    fn write_all<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        planned: &[Planned],
        incoming: Option<usize>,
    ) -> Result<Vec<Written>, TableError> {
        let mut written: Vec<Written> = Vec::with_capacity(planned.len());
        for segment in planned {
            match self.write_segment(front, segment, incoming) {
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
        planned: &Planned,
        incoming: Option<usize>,
    ) -> Result<Written, TableError> {
        let model = planned.model;
        let extent = self.allocate_segment(front, self.geometry.segment_bytes(model.cap) as u64)?;
        let Some(address) = SegmentAddress::new(self.node, extent.offset) else {
            self.space.put(extent);
            return Err(self.no_room(front));
        };
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let live = planned.keys.len() as u32
            - u32::from(incoming.is_some_and(|incoming| planned.keys.contains(&incoming)));
        let header = SegmentHeader {
            generation,
            cap: model.cap,
            epsilon: model.epsilon,
            lo: planned.lo,
            hi: planned.hi,
            live,
        };
        self.image.begin(&header);
        let body_bytes = self.geometry.slot_bytes - SLOT_WORD_BYTES;
        let mut at_home = 0;
        for (at, slot) in planned.keys.clone().zip(&planned.slots) {
            // The key to come has a place among the planned ones and none among the gathered.
            let at = match incoming {
                Some(incoming) if at == incoming => continue,
                Some(incoming) if at > incoming => at - 1,
                _ => at,
            };
            let record = self.gathering.records[at];
            let body = &self.gathering.bodies[record.body as usize..][..body_bytes];
            let hash = K::decode(body).map_or(0, |key| K::hash(&key));
            at_home += u64::from(model.predict(record.x) == u32::from(*slot));
            self.image.put(*slot, hash, record.version, |out| out.copy_from_slice(body));
        }
        front.region.write_bytes(extent.offset, self.image.bytes())?;
        Ok(Written { descriptor: Descriptor { lo: planned.lo, model, address, generation }, extent, at_home })
    }

    /// Makes a change: from here on the new segments are the ones that count.
    fn commit<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        old: &Old<K>,
        new: &[Written],
    ) -> Result<(), TableError> {
        let replaced = old.segments.iter().map(|segment| Replaced {
            offset: segment.address().offset(),
            generation: segment.generation(),
            cap: segment.model().cap,
        });
        front.begin_change(front.superblock().log_head + new.len() as u64, replaced)?;
        #[cfg(feature = "sabotage")]
        if front.breaks(Sabotage::FreezeBeforeLog) {
            for segment in &old.segments {
                Slots::of(&*front.region, self.geometry, segment).freeze()?;
            }
            front.region.release();
        }
        let head = self.append_to_log(front, old, new)?;
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
        let with: Vec<_> = new
            .iter()
            .map(|segment| (K::from_coordinate(segment.descriptor.lo), Segment::from(&segment.descriptor)))
            .collect();
        let replaced = self.directory.replace(&old.lo, old.behind.as_ref(), &with);
        debug_assert!(replaced.is_ok(), "plans cover the range they were asked for, in order");
        Ok(())
    }

    /// Appends a change to the log and stores the log head, which is returned.
    fn append_to_log<M: NodeMemory>(
        &mut self,
        front: &mut Front<K, M>,
        old: &Old<K>,
        new: &[Written],
    ) -> Result<u64, TableError> {
        let first = front.superblock().log_head;
        let hi = old.behind.as_ref().map_or(u64::MAX, |key| K::coordinate(key) - 1);
        for (part, segment) in (0u16..).zip(new) {
            let sequence = first + u64::from(part);
            let descriptor = segment.descriptor;
            let record = ChangeRecord { sequence, part, parts: new.len() as u16, hi, descriptor };
            let at = ChangeRecord::offset(self.record.log, self.record.log_records, sequence);
            front.region.write_bytes(at, &record.encode())?;
        }
        let head = first + new.len() as u64;
        front.set_log_head(head)?;
        Ok(head)
    }

    /// Makes sure that the log has room for `parts` more records without losing one that the checkpoint lacks.
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

impl Gathering {
    fn clear(&mut self) {
        self.records.clear();
        self.bodies.clear();
        self.at_home = 0;
    }
}
