//! Compaction: neighbouring segments with few records, after deletes or at the end of a run of
//! inserts, become one segment with fewer slots.
//!
//! Deletes keep no counts. When all segments together take too much memory for the records they
//! hold, a sweep over the directory finds sparse ones by their fingerprints, those first that free
//! the most slots per record copied.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::SlotState;
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;

use super::Table;
use super::error::TableError;
use super::rebuilder::gather::{MOST_GATHERED_BYTES, ReplacedRun};
use super::rebuilder::planned::FillGoal;
use super::room::Sparing;
use super::segments::Segments;
use super::task_state::Sweep;
use crate::rebuild::gather::{RUN_ENDED, SMALL};
use crate::recovery_area::MOST_REPLACED;
use crate::versions::age;

/// Slots that must come free for a record that is copied, one pass over the directory after the
/// other.
const PASSES: [f64; 4] = [4.0, 1.0, 0.25, 0.05];
/// The pass that spares nothing.
const LAST: usize = PASSES.len() - 1;
/// Segments whose fingerprints are looked at in one step, and about how many slots they have; and
/// how many where words are looked at, a cache line each, because there are no fingerprints.
const LOOKED_AT: usize = 256;
const LOOKED_AT_SLOTS: usize = 1 << 16;
const LOOKED_AT_WORDS: usize = 1 << 12;
/// Most records that are copied in one step, but for those of a single segment, and about how many
/// slots are freed.
const MOST_COPIED: usize = 2048;
const MOST_FREED: usize = 1 << 14;
/// Segments without a record that were built as lately as this may be slots kept for a run.
const LATELY: u32 = 1024;

/// Neighbouring segments that may be brought together.
#[derive(Debug)]
struct MergeRun<K: BuildKeys> {
    segments: Vec<(K::Owned, Segment<K>, usize)>,
    keys: usize,
    slots: usize,
    /// Most slots, but for those of a single segment.
    most_slots: usize,
}

impl<K: BuildKeys> MergeRun<K> {
    fn new(slot_bytes: usize) -> Self {
        let most_slots = MOST_FREED.min(MOST_GATHERED_BYTES / slot_bytes.max(1));
        Self { segments: Vec::new(), keys: 0, slots: 0, most_slots }
    }

    fn add(&mut self, start: K::Owned, segment: Segment<K>, live: usize) {
        self.keys += live;
        self.slots += usize::from(segment.model().cap);
        self.segments.push((start, segment, live));
    }

    /// Leaves those out from one on, and says where that begins.
    fn cut_at(&mut self, at: usize) -> Option<K::Owned> {
        let start = self.segments.drain(at..).next().map(|(start, ..)| start);
        self.keys = self.segments.iter().map(|(_, _, live)| live).sum();
        self.slots = self.segments.iter().map(|(_, segment, _)| usize::from(segment.model().cap)).sum();
        start
    }

    fn has_room_for(&self, segment: &Segment<K>, live: usize) -> bool {
        self.segments.len() < MOST_REPLACED
            && self.keys + live <= MOST_COPIED
            && self.slots + usize::from(segment.model().cap) <= self.most_slots
    }
}

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Reclaims a little memory; `false` if there is nothing to do.
    pub(super) fn give_back(&mut self) -> Result<bool, TableError> {
        self.room.is_compacting = true;
        let stepped = match self.step_sweep() {
            Ok(false) => self.step_evacuation(),
            other => other,
        };
        self.room.is_compacting = false;
        stepped
    }

    /// Examines some segments, and compacts some; `false` if there is nothing to do.
    pub(super) fn step_sweep(&mut self) -> Result<bool, TableError> {
        let sweep = match self.sweep.take() {
            Some(_) if self.room.is_swept(&self.segments) => return Ok(true),
            Some(sweep) => sweep,
            None => match self.room.due_sweep(&self.segments) {
                Some(Sparing::Runs) => Sweep { from: K::lowest().to_owned(), pass: 0 },
                Some(Sparing::Nothing) => Sweep { from: K::lowest().to_owned(), pass: LAST },
                None => return Ok(false),
            },
        };
        let (run, mut next) = self.next_run(sweep.from.borrow(), sweep.pass)?;
        if !run.segments.is_empty() {
            match self.merge_run(run, sweep.pass, &mut next) {
                Err(TableError::Leased) => {
                    self.sweep = Some(sweep);
                    return Err(TableError::Leased);
                }
                Err(error) if !error.is_local_failure() => return Err(error),
                Err(error) => self.note_damage(error),
                Ok(()) => {}
            }
        }
        self.sweep = match next {
            Some(from) => Some(Sweep { from, ..sweep }),
            None if sweep.pass + 1 < LAST => {
                Some(Sweep { from: K::lowest().to_owned(), pass: sweep.pass + 1 })
            }
            None => {
                let now = Some((self.segments.bytes, self.segments.keys));
                if sweep.pass == LAST {
                    self.room.fullness.swept_all = now;
                } else {
                    self.room.fullness.swept = now;
                }
                None
            }
        };
        Ok(true)
    }

    /// The next neighbours from `from` on that are worth compacting, if any are close by, and where
    /// to continue.
    fn next_run(
        &mut self,
        from: &K::Key,
        pass: usize,
    ) -> Result<(MergeRun<K>, Option<K::Owned>), TableError> {
        let entries: Vec<(K::Owned, Segment<K>)> = self
            .segments
            .directory
            .range_from(from)
            .take(LOOKED_AT)
            .map(|(start, segment)| (start, *segment))
            .collect();
        let end = entries.last().and_then(|(start, _)| self.segments.directory.locate(start.borrow())?.end);
        let geometry = self.segments.geometry;
        let most_looked_at = if geometry.stores_fingerprints { LOOKED_AT_SLOTS } else { LOOKED_AT_WORDS };
        let mut run = MergeRun::new(geometry.slot_bytes);
        let mut looked_at = 0;
        for (start, segment) in entries {
            if looked_at > most_looked_at && run.segments.is_empty() {
                return Ok((run, Some(start)));
            }
            looked_at += usize::from(segment.model().cap);
            let live = self.segments.live(&segment)?;
            let joins = self.begins_run(&segment, live, pass)?
                || !run.segments.is_empty() && self.joins_run(&run, &segment, live, pass);
            if joins && (run.segments.is_empty() || run.has_room_for(&segment, live)) {
                run.add(start, segment, live);
            } else if self.is_worth_it(&run, pass) {
                return Ok((run, Some(start)));
            } else {
                run = MergeRun::new(geometry.slot_bytes);
                if joins {
                    run.add(start, segment, live);
                }
            }
        }
        if !self.is_worth_it(&run, pass) {
            run.segments.clear();
        }
        Ok((run, end))
    }

    /// Whether a segment alone is worth it, or small enough to be worth it with a neighbour; and
    /// not kept for a run.
    fn begins_run(&self, segment: &Segment<K>, live: usize, pass: usize) -> Result<bool, TableError> {
        let cap = usize::from(segment.model().cap);
        // Those that replaced what was emptied become one with their neighbours of that kind: a
        // queue leaves one after the other, and no run gains by so few slots.
        if live == 0 && cap <= usize::from(self.rebuilder.options.least_slots) {
            return Ok(true);
        }
        let is_candidate = self.frees_enough(live, cap, pass) || pass > 1 && live < SMALL && cap < 2 * SMALL;
        Ok(is_candidate && (pass == LAST || live * 4 >= cap || !self.segments.is_reserve(segment)?))
    }

    /// Whether a segment that is not worth it joins the neighbours before it because either is
    /// small.
    fn joins_run(&self, run: &MergeRun<K>, segment: &Segment<K>, live: usize, pass: usize) -> bool {
        let cap = usize::from(segment.model().cap);
        let is_small = live < SMALL && cap < 2 * SMALL;
        is_small || run.keys < SMALL && pass > 0 && live * 4 >= cap
    }

    /// Whether compacting this many records in this many slots frees enough.
    fn frees_enough(&self, keys: usize, slots: usize, pass: usize) -> bool {
        let needed = (keys as f64 / self.rebuilder.options.compact_fill())
            .max(f64::from(self.rebuilder.options.least_slots));
        let freed = slots as f64 - needed.ceil();
        freed >= 1.0 && freed >= keys as f64 * PASSES[pass]
    }

    fn is_worth_it(&self, run: &MergeRun<K>, pass: usize) -> bool {
        !run.segments.is_empty() && self.frees_enough(run.keys, run.slots, pass)
    }

    /// Replaces the segments of a run, up to `next`; only those before one with a damaged record,
    /// if there is such a one and these free enough: `next` is then what comes after it.
    fn merge_run(
        &mut self,
        mut run: MergeRun<K>,
        pass: usize,
        next: &mut Option<K::Owned>,
    ) -> Result<(), TableError> {
        let mut end = next.clone();
        while let Err((at, error)) = self.gather_run(&run) {
            let TableError::Damaged(_) = error else { return Err(error) };
            self.note_damage(error);
            if let Some((after, ..)) = run.segments.get(at + 1) {
                *next = Some(after.clone());
            }
            end = run.cut_at(at);
            if !self.is_worth_it(&run, pass) {
                return Ok(());
            }
        }
        let Some((start, ..)) = run.segments.first() else { return Ok(()) };
        let old = ReplacedRun {
            start: start.clone(),
            end,
            segments: run.segments.iter().map(|(_, segment, _)| *segment).collect(),
        };
        self.replace(&old, FillGoal::Compact)
    }

    /// Gathers the records of a run; which segment was in the way, if one was.
    fn gather_run(&mut self, run: &MergeRun<K>) -> Result<(), (usize, TableError)> {
        self.rebuilder.gathering.clear();
        // Also those without a record by their fingerprints, which may be what is damaged.
        for (at, (start, segment, _)) in run.segments.iter().enumerate() {
            let gathering = &mut self.rebuilder.gathering;
            let gathered = gathering.add_segment(&self.segments, start.borrow(), segment);
            gathered.map_err(|error| (at, error))?;
        }
        Ok(())
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Whether most free slots were never written to, and a run may be about to fill them.
    fn is_reserve(&self, segment: &Segment<K>) -> Result<bool, TableError> {
        let slots = self.slots(segment);
        let (mut emptied, mut free, mut idle) = (0, 0, u32::MAX);
        for slot in 0..u32::from(segment.model().cap) {
            let word = slots.word(slot)?;
            idle = idle.min(age(word.version(), self.next_version));
            if word.state() == SlotState::Free {
                free += 1;
                emptied += u32::from(word.version() != 0);
            }
        }
        let built = self.next_generation.wrapping_sub(segment.generation());
        let is_new = if idle == u32::MAX { built < LATELY } else { idle <= RUN_ENDED };
        Ok(is_new && emptied * 2 < free)
    }
}

#[cfg(test)]
mod tests {
    use fpcache::fingerprint::FingerprintWidth;
    use fpcache::key_space::U64Keys;
    use fpcache::layout::{Descriptor, SEGMENT_HEADER_BYTES, SegmentAddress, TableParameters};
    use fpcache_fabric::Service;
    use fpcache_index::{Line, SegmentModel};

    use super::*;
    use crate::fixtures::{empty_node, table_of};
    use crate::node::MemoryNode;

    #[test]
    fn a_step_gathers_as_many_bytes_at_most_however_long_slots_are() {
        let most = |slot_bytes| MergeRun::<U64Keys>::new(slot_bytes).most_slots;
        assert_eq!(most(24), MOST_FREED);
        for slot_bytes in [264, 4_112, 61_456, 4 << 20] {
            assert!(most(slot_bytes) * slot_bytes <= MOST_GATHERED_BYTES, "{slot_bytes}");
        }
    }

    #[test]
    fn what_a_run_frees_is_what_its_segments_do_that_are_left() {
        let mut run = MergeRun::<U64Keys>::new(24);
        for (start, live) in [(0, 60), (100, 0), (200, 10)] {
            let model = SegmentModel { origin: start, line: Line::from_bits(1), cap: 64, epsilon: 4 };
            let address = SegmentAddress::from_bits(0);
            let descriptor = Descriptor::<U64Keys> { start, tail: (), model, address, generation: 1 };
            run.add(start, Segment::from(&descriptor), live);
        }
        assert_eq!((run.keys, run.slots), (70, 192));
        assert_eq!(run.cut_at(1), Some(100));
        assert_eq!((run.segments.len(), run.keys, run.slots), (1, 60, 64));
    }

    /// A table of one kind of keys, and the slot of one of them, whose fingerprint is damaged to
    /// that of a free slot.
    fn with_lost_fingerprint(key: u64) -> MemoryNode<U64Keys> {
        let mut node = empty_node::<U64Keys>(8 << 20);
        let parameters = TableParameters { epsilon: 4, max_slots: 64, ..TableParameters::default() };
        node.load(parameters, (0..1000u32).map(|i| u64::from(i) * 50), |_, value| value.fill(7))
            .expect("room");
        let table = table_of(&mut node);
        let segment = table.segments.directory.find(&key).expect("all keys have one");
        let geometry = table.segments.geometry;
        let slots = table.segments.slots(segment);
        let holds = |slot: &u32| slots.holds::<U64Keys>(*slot, &key, &mut Vec::new()).expect("inside");
        let slot = (0..u32::from(segment.model().cap)).find(holds).expect("it is there");
        let at = SEGMENT_HEADER_BYTES + geometry.fingerprint_bytes(slot as usize);
        let empty = FingerprintWidth::EMPTY.to_le_bytes();
        let bytes = &empty[..geometry.fingerprint_bytes(1)];
        table.segments.region.write_bytes(segment.address().offset() + at as u64, bytes).expect("inside");
        node
    }

    fn has(node: &mut MemoryNode<U64Keys>, key: u64) -> bool {
        let table = table_of(node);
        table.segments.get(&key).expect("nothing is damaged").is_some()
    }

    /// Writes a key, or removes it, as a start from the disk does.
    fn write(node: &mut MemoryNode<U64Keys>, key: u64, value: Option<&[u8]>) {
        let table = table_of(node);
        let version = table.segments.next_version;
        table.put_back(&key, version, value).expect("room");
    }

    #[test]
    fn a_record_whose_fingerprint_is_a_free_slots_is_not_compacted_away() {
        const KEY: u64 = 25_000;
        let mut node = with_lost_fingerprint(KEY);
        node.give_back_from(0);
        (0..1000).map(|i| i * 50).filter(|key| *key != KEY).for_each(|key| write(&mut node, key, None));
        (0..2000).for_each(|_| _ = node.work());
        assert!(node.stats().segments < 8, "nothing was compacted: {:?}", node.stats());
        assert!(has(&mut node, KEY), "it was lost");
        node.audit().expect("every byte is right");
    }

    #[test]
    fn a_slot_with_a_record_is_given_to_no_other_whatever_its_fingerprint_says() {
        const KEY: u64 = 25_000;
        let mut node = with_lost_fingerprint(KEY);
        (KEY + 1..KEY + 300).filter(|key| key % 50 != 0).for_each(|key| write(&mut node, key, Some(&[8; 8])));
        assert!(has(&mut node, KEY), "it was lost");
        node.audit().expect("every byte is right");
    }
}
