//! The live records of the segments that are to be replaced, in key order.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::BuildKeys;
use fpcache::layout::{SLOT_WORD_BYTES, SlotState, SlotWord};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Window;

use super::slots::Slots;
use super::{Table, TableError};
use crate::loader::FIRST_VERSION;
use crate::rebuild::plan::{Facts, neighbours};
use crate::superblock_writer::SuperblockWriter;

/// The live records of the segments that are to be replaced.
#[derive(Debug)]
pub(crate) struct Gathering<K: BuildKeys> {
    /// In key order.
    pub(super) records: Vec<GatheredRecord<K>>,
    /// The bytes of keys that have any.
    pub(super) keys: Vec<u8>,
    /// The segments' slots, one segment after the other.
    pub(super) slots: Vec<u8>,
    order: Order<K>,
    pub(super) xs: Vec<u64>,
    pub(super) ages: Vec<u32>,
    /// Records in the slot their prediction names.
    pub(super) at_home: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GatheredRecord<K: BuildKeys> {
    pub(super) key: K::Kept,
    pub(super) version: u32,
    /// Where its body begins in the slots; [`INCOMING`] for a record that is still to come.
    pub(super) body: u32,
}

/// No body begins there: a segment's are far below 4 GiB.
pub(super) const INCOMING: u32 = u32::MAX;

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
pub(super) struct Old<K: BuildKeys> {
    pub(super) lo: K::Owned,
    /// First key after them; `None` at the table's end.
    pub(super) behind: Option<K::Owned>,
    pub(super) segments: Vec<Segment<K>>,
}

impl<K: BuildKeys> Table<K> {
    /// Reads the live records of the segment that owns `key`, and of neighbours that are worth merging with it.
    pub(super) fn gather<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        key: &K::Key,
    ) -> Result<Old<K>, TableError> {
        let Some(located) = self.directory.locate(key) else { return Err(self.no_room(superblock)) };
        let (mut lo, mut behind, centre) = (located.lo, located.hi, *located.entry);
        let left = self.directory.before(lo.borrow()).map(|(lo, segment)| (lo, *segment));
        let right = behind.as_ref().and_then(|key| {
            let right = self.directory.locate(key.borrow())?;
            Some((right.hi, *right.entry))
        });
        let mut facts = |segment: &Segment<K>| self.facts(superblock, segment);
        let (left_facts, right_facts) = (
            left.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
            right.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
        );
        let merge = neighbours(facts(&centre)?, left_facts, right_facts);
        self.rebuilder.gathering.clear();
        let mut segments = Vec::with_capacity(3);
        if let Some((first, segment)) = left.filter(|_| merge.left) {
            self.gather_segment(superblock, first.borrow(), &segment)?;
            segments.push(segment);
            self.gather_segment(superblock, lo.borrow(), &centre)?;
            lo = first;
        } else {
            self.gather_segment(superblock, lo.borrow(), &centre)?;
        }
        segments.push(centre);
        if let (Some((end, segment)), Some(its_lo)) = (right.filter(|_| merge.right), &behind) {
            self.gather_segment(superblock, its_lo.borrow(), &segment)?;
            segments.push(segment);
            behind = end;
        }
        Ok(Old { lo, behind, segments })
    }

    /// Live records of a segment; and, where there are few for its slots, how long ago it was last written to. The
    /// fingerprints tell the first, a few microseconds for the longest segments.
    fn facts<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        segment: &Segment<K>,
    ) -> Result<Facts, TableError> {
        let slots = Slots::of(&*superblock.region, self.geometry, segment);
        let cap = segment.model().cap;
        let mut facts = Facts { keys: self.live(superblock, segment)?, cap, idle: u32::MAX };
        if facts.has_shrunk() {
            for slot in 0..u32::from(cap) {
                facts.idle = facts.idle.min(age(slots.word(slot)?.version(), self.next_version));
            }
        }
        Ok(facts)
    }

    /// Live records of a segment, by its fingerprints.
    pub(super) fn live<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        segment: &Segment<K>,
    ) -> Result<usize, TableError> {
        let slots = Slots::of(&*superblock.region, self.geometry, segment);
        let cap = segment.model().cap;
        let all = Window { first: 0, last: u32::from(cap).saturating_sub(1) };
        let fingerprints = &mut self.scratch.fingerprints;
        slots.read_fingerprints(all, fingerprints)?;
        let empty = self.matcher.hits(self.geometry.width, fingerprints, FingerprintWidth::EMPTY).count;
        Ok(usize::from(cap).saturating_sub(empty as usize))
    }

    /// Live records of a segment, by their words.
    pub(super) fn count<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        segment: &Segment<K>,
    ) -> Result<u64, TableError> {
        let slots = Slots::of(&*superblock.region, self.geometry, segment);
        let mut live = 0;
        for slot in 0..u32::from(segment.model().cap) {
            live += u64::from(slots.word(slot)?.state() == SlotState::Live);
        }
        Ok(live)
    }

    pub(super) fn gather_segment<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        lo: &K::Key,
        segment: &Segment<K>,
    ) -> Result<(), TableError> {
        let slots = Slots::of(&*superblock.region, self.geometry, segment);
        let Gathering { records, keys, slots: bytes, order, at_home, .. } = &mut self.rebuilder.gathering;
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
            let predicted = model.predict(segment.coordinate(key, K::shared(key, lo), &self.encoders));
            *at_home += u64::from(predicted == slot);
            // All slots of a few segments are far below 4 GiB.
            let body = (at + SLOT_WORD_BYTES) as u32;
            let record = GatheredRecord { key: K::keep(key, keys), version: word.version(), body };
            order.add(predicted, record);
        }
        order.append_to(records, keys);
        Ok(())
    }
}

/// How many writes ago a version was given out; the greatest number there is for records that were loaded, and for slots
/// that never had one.
pub(super) fn age(version: u32, now: u32) -> u32 {
    if version <= FIRST_VERSION { u32::MAX } else { now.wrapping_sub(version) % SlotWord::VERSIONS }
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
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
        self.slots.clear();
        self.at_home = 0;
    }

    /// Adds a record that is still to come, unless there is one of its key.
    pub(super) fn add_incoming(&mut self, key: &K::Key) {
        let keys = &self.keys;
        if let Err(at) = self.records.binary_search_by(|record| K::kept(&record.key, keys).cmp(key)) {
            let key = K::keep(key, &mut self.keys);
            self.records.insert(at, GatheredRecord { key, version: 0, body: INCOMING });
        }
    }
}
