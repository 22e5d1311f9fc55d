//! The records of a snapshot, collected segment by segment while the table changes: those that were
//! there when it began.
//!
//! Later writes are in the log from its first entry on, so a snapshot does not need them, and must
//! not have them: a queue that runs for hours would fill it with records that never existed at the
//! same time. Versions cannot tell whether a record is older than the snapshot, because they wrap
//! around. So one bit is kept for every slot written since, in segments that the snapshot has yet
//! to reach: at most an eighth of a byte per slot.

use std::borrow::Borrow;
use std::collections::HashMap;

use fpcache::key_space::BuildKeys;
use fpcache::models::Segment;

use super::rebuilder::gather::{Gathering, INCOMING};
use super::rebuilder::planned::PlannedSegment;
use super::rebuilder::writing::WrittenSegment;

/// How far a snapshot has come.
#[derive(Debug)]
pub(super) struct RecordCollector<K: BuildKeys> {
    /// The least key that may come next.
    pub(super) next: K::Owned,
    /// By the offset of a segment that is in the directory: the slots that were written since the
    /// beginning.
    pub(super) written: HashMap<u64, SlotSet>,
    /// Offset and generation of the segment that was looked at last.
    pub(super) rest_of: Option<(u64, u32)>,
    /// Its slots with records that are still to be taken, the next one last.
    pub(super) rest: Vec<u32>,
}

/// Some slots of a segment, a bit for each.
#[derive(Debug)]
pub(super) struct SlotSet(Vec<u64>);

impl SlotSet {
    fn of_cap(cap: u16) -> Self {
        Self(vec![0; usize::from(cap).div_ceil(64)])
    }

    fn insert(&mut self, slot: usize) {
        if let Some(word) = self.0.get_mut(slot / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub(super) fn contains(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

impl<K: BuildKeys> RecordCollector<K> {
    /// Notes that a slot was written, with a record of this key.
    #[cold]
    pub(super) fn note(&mut self, segment: &Segment<K>, slot: u32, key: &K::Key) {
        if key >= self.next.borrow() {
            let (at, cap) = (segment.address().offset(), segment.model().cap);
            let slots = self.written.entry(at).or_insert_with(|| SlotSet::of_cap(cap));
            slots.insert(slot as usize);
        }
    }

    /// Notes where the records of segments went that were replaced, which were gathered in this
    /// order.
    pub(super) fn follow(
        &mut self,
        old: &[Segment<K>],
        gathering: &Gathering<K>,
        slot_bytes: usize,
        new: &[PlannedSegment<K>],
        written: &[WrittenSegment<K>],
    ) {
        // Of each segment the first slot, counted over all of them.
        let mut before = 0;
        let mut sets: Vec<(usize, Option<SlotSet>)> = Vec::with_capacity(old.len());
        for segment in old {
            sets.push((before, self.written.remove(&segment.address().offset())));
            before += usize::from(segment.model().cap);
        }
        if sets.iter().all(|(_, slots)| slots.is_none()) {
            return;
        }
        let was_written = |slot: usize| {
            let (first, slots) = &sets[sets.partition_point(|(first, _)| *first <= slot) - 1];
            slots.as_ref().is_some_and(|slots| slots.contains(slot - first))
        };
        for (new, written) in new.iter().zip(written) {
            let (at, cap) = (written.extent.offset, new.planned.model.cap);
            let records = &gathering.records[new.planned.keys.clone()];
            for (record, slot) in records.iter().zip(&new.planned.slots) {
                if record.body != INCOMING && was_written(record.body as usize / slot_bytes) {
                    let slots = self.written.entry(at).or_insert_with(|| SlotSet::of_cap(cap));
                    slots.insert(usize::from(*slot));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_slots_has_those_that_were_put_into_it() {
        for cap in [1u16, 63, 64, 65, 4096] {
            let mut slots = SlotSet::of_cap(cap);
            assert_eq!(slots.0.len() * 8, usize::from(cap).div_ceil(64) * 8, "a bit for each");
            let wanted = |slot: usize| slot.is_multiple_of(3) || slot + 1 == usize::from(cap);
            (0..usize::from(cap)).filter(|slot| wanted(*slot)).for_each(|slot| slots.insert(slot));
            assert!((0..usize::from(cap)).all(|slot| slots.contains(slot) == wanted(slot)), "{cap}");
            assert!(!slots.contains(1 << 20));
        }
    }
}
