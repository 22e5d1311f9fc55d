//! Retraining of the encoders that map byte strings to numbers.
//!
//! Encoders are trained on a sample when a table is loaded. A table that began empty, or whose keys
//! have changed, retrains on the keys it holds: at 4,096 records, and whenever it has grown
//! sixteenfold since. If that saves a quarter of the segments, the new encoder is added to the
//! table, and segments built with older ones are replaced in the background, a few neighbours at a
//! time.
//!
//! A reader that meets a descriptor with an unknown encoder reopens the table.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{SlotState, TableRecord};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::SegmentOptions;
use xxhash_rust::xxh3::xxh3_64;

use super::Table;
use super::error::TableError;
use super::rebuilder::gather::{MOST_GATHERED_BYTES, ReplacedRun};
use super::rebuilder::planned::FillGoal;
use super::segments::Segments;
use crate::space::Extent;

/// Keys in a sample.
const SAMPLE: usize = 8192;
/// Runs of neighbouring keys in a sample.
const RUNS: usize = 8;
/// Segments to each run, at least: a run of one could not show that fewer segments would do.
const RUN_SEGMENTS: usize = 8;
/// Slots whose records are replaced at once, about.
const CONVERTED_SLOTS: usize = 2048;
/// Segments looked at in one step.
const LOOKED_AT: usize = 4096;

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Retrains, or replaces some outdated segments; `false` if there is nothing to do.
    pub(super) fn step_retraining(&mut self) -> Result<bool, TableError> {
        if !self.room.is_known_unconverted(&self.segments)
            && let Some(from) = self.rebuilder.retraining.waits_from.clone()
        {
            self.rebuilder.retraining.convert_from(from);
        }
        if let Some(from) = self.rebuilder.retraining.outdated_from.take() {
            let replaced = self.replace_outdated(from.clone());
            let is_leased = matches!(replaced, Err(TableError::Leased));
            self.rebuilder.retraining.outdated_from = if is_leased { Some(from) } else { replaced? };
            return if is_leased { Err(TableError::Leased) } else { Ok(true) };
        }
        if !self.rebuilder.retraining.is_due(self.segments.keys) {
            return Ok(false);
        }
        let runs = self.segments.runs_of_keys()?;
        let options = SegmentOptions {
            epsilon: self.rebuilder.options.cut_epsilon(),
            fill: self.rebuilder.options.fill,
            max_slots: self.rebuilder.options.max_slots,
            ..SegmentOptions::default()
        };
        if let Some(encoders) = K::learn(&self.segments.encoders, &runs, options, self.segments.keys) {
            match self.adopt(encoders) {
                Ok(()) => self.rebuilder.retraining.convert_from(K::lowest().to_owned()),
                // There may be room for them before the table has grown sixteenfold.
                Err(TableError::NoRoom { .. }) => self.rebuilder.retraining.try_again(self.segments.keys),
                Err(error) => {
                    if let TableError::Leased = error {
                        self.rebuilder.retraining.retrain_at(self.segments.keys);
                    }
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Adopts encoders, which include the present ones: from here on segments are built with the
    /// newest.
    fn adopt(&mut self, encoders: K::Encoders) -> Result<(), TableError> {
        let bytes = K::encode_encoders(&encoders);
        let extent = self.room.allocate_for_records(&self.segments, bytes.len() as u64)?;
        self.publish_encoders(extent, &bytes)?;
        self.segments.encoders = encoders;
        Ok(())
    }

    /// Moves the encoders out of the range that is being emptied, if there is room for them
    /// elsewhere.
    pub(super) fn move_encoders(&mut self) -> Result<(), TableError> {
        let old = Extent::new(self.room.record.encoders, self.room.record.encoders_bytes);
        if old.len == 0 || !self.room.space.emptied().is_some_and(|emptied| old.meets(emptied)) {
            return Ok(());
        }
        let bytes = K::encode_encoders(&self.segments.encoders);
        let Some(extent) = self.room.space.take(bytes.len() as u64) else { return Ok(()) };
        self.publish_encoders(extent, &bytes)
    }

    /// Has readers that connect from here on find the encoders in this extent.
    fn publish_encoders(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), TableError> {
        self.segments.region.write_bytes(extent.offset, bytes)?;
        self.segments.region.release();
        let old = Extent::new(self.room.record.encoders, self.room.record.encoders_bytes);
        let record = TableRecord {
            encoders: extent.offset,
            encoders_bytes: bytes.len() as u64,
            encoders_checksum: xxh3_64(bytes),
            ..self.room.record
        };
        self.room.superblock.publish(record)?;
        self.room.record = record;
        if old.len > 0 {
            self.room.space.retire(self.room.log_head(), old);
        }
        Ok(())
    }

    /// Gathers the records of segments; which of these has a damaged record and stays as it is, if
    /// one has.
    fn gather_outdated(
        &mut self,
        starts: &[K::Owned],
        segments: &[Segment<K>],
    ) -> Result<Option<usize>, TableError> {
        self.rebuilder.gathering.clear();
        for (at, (start, segment)) in starts.iter().zip(segments).enumerate() {
            match self.rebuilder.gathering.add_segment(&self.segments, start.borrow(), segment) {
                Err(error) if error.is_local_failure() => {
                    self.note_damage(error);
                    return Ok(Some(at));
                }
                gathered => gathered?,
            }
        }
        Ok(None)
    }

    /// Replaces some of the first outdated segments from `from` on; returns where to continue.
    fn replace_outdated(&mut self, from: K::Owned) -> Result<Option<K::Owned>, TableError> {
        let is_outdated = |tail| K::is_outdated(&self.segments.encoders, tail);
        let mut entries = self
            .segments
            .directory
            .range_from(from.borrow())
            .map(|(start, segment)| (start, *segment))
            .peekable();
        for _ in 0..LOOKED_AT {
            if entries.next_if(|(_, segment)| !is_outdated(segment.tail())).is_none() {
                break;
            }
        }
        let Some((start, first)) = entries.next() else { return Ok(None) };
        if !is_outdated(first.tail()) {
            return Ok(Some(start));
        }
        let (mut segments, mut starts) = (vec![first], vec![start.clone()]);
        let mut slots = usize::from(first.model().cap);
        let most_slots = CONVERTED_SLOTS.min(MOST_GATHERED_BYTES / self.segments.geometry.slot_bytes.max(1));
        while slots < most_slots
            && segments.len() < self.rebuilder.retraining.at_once
            && let Some((start, segment)) = entries.next_if(|(_, segment)| is_outdated(segment.tail()))
        {
            slots += usize::from(segment.model().cap);
            segments.push(segment);
            starts.push(start);
        }
        let end = entries.next().map(|(start, _)| start);
        drop(entries);
        let (end, next) = match self.gather_outdated(&starts, &segments)? {
            None => (end.clone(), end),
            Some(0) => return Ok(starts.get(1).cloned().or(end)),
            // Those before the one with a damaged record are replaced without it.
            Some(at) => {
                segments.truncate(at);
                self.gather_outdated(&starts[..at], &segments)?;
                (starts.get(at).cloned(), starts.get(at + 1).cloned().or(end))
            }
        };
        let old = ReplacedRun { start, end, segments };
        match self.replace(&old, FillGoal::ForWrites) {
            Ok(()) => {
                self.rebuilder.retraining.replaced();
                Ok(next)
            }
            // Replacing this many does not fit the change log or free memory: fewer may.
            Err(TableError::NoRoom { .. }) if old.segments.len() > 1 => {
                self.rebuilder.retraining.at_once = old.segments.len() / 2;
                Ok(Some(old.start))
            }
            // The table keeps what it has until there is more room.
            Err(TableError::NoRoom { .. }) => {
                let len = self.segments.geometry.segment_bytes(first.model().cap) as u64;
                self.room.note_unconverted(&self.segments, len);
                self.rebuilder.retraining.waits_from = Some(old.start);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Neighbouring keys from all over the table, each run in order.
    fn runs_of_keys(&self) -> Result<Vec<Vec<K::Owned>>, TableError> {
        let every = self.directory.len().div_ceil(RUNS).max(RUN_SEGMENTS);
        let most = SAMPLE / self.directory.len().div_ceil(every).max(1);
        let mut runs: Vec<Vec<K::Owned>> = Vec::with_capacity(RUNS);
        let mut body = Vec::new();
        let mut entries = self.directory.iter().enumerate().peekable();
        while let Some((at, (start, segment))) = entries.next() {
            let end = entries.peek().map(|(_, (start, _))| start);
            if at % every == 0 {
                runs.push(Vec::with_capacity(most));
            }
            let Some(run) = runs.last_mut().filter(|run| run.len() < most) else { continue };
            let slots = self.slots(segment);
            let before = run.len();
            // Damaged ones may lie anywhere, and a run is in order.
            let is_inside = |key: &K::Key| key >= start.borrow() && end.is_none_or(|end| key < end.borrow());
            // Keys alone: their values may be a thousand times as long.
            for slot in 0..u32::from(segment.model().cap) {
                if slots.word(slot)?.state() == SlotState::Live {
                    let key = slots.key_in::<K>(slot, &mut body)?.filter(|key| is_inside(key.borrow()));
                    run.extend(key.map(|key| key.borrow().to_owned()));
                }
            }
            run[before..].sort_unstable();
            run.dedup();
            run.truncate(most);
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use fpcache::key_space::ByteKeys;
    use fpcache::layout::{RecordShape, TableParameters};
    use fpcache_fabric::{Service, Work};

    use crate::fixtures::{empty_node, table_of};
    use crate::node::MemoryNode;

    /// A table of keys whose encoders were not trained when it was loaded.
    fn untrained() -> MemoryNode<ByteKeys> {
        let mut node = empty_node(8 << 20);
        let shape = RecordShape { key_bytes: None, value_bytes: Some(8), room: 40 };
        let parameters = TableParameters { shape, epsilon: 32, ..TableParameters::default() };
        let key = |i: u64| format!("user{:019}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).into_bytes();
        let mut keys: Vec<Vec<u8>> = (0..10_000).map(key).collect();
        keys.sort_unstable();
        let records = keys.into_iter().map(|key| (key, [7u8; 8]));
        node.load_records(parameters, Default::default(), records).expect("room");
        node
    }

    #[test]
    fn a_damaged_record_keeps_its_own_segment_alone_from_being_replaced() {
        let mut node = untrained();
        let segments = &table_of(&mut node).segments;
        let (_, segment) =
            segments.directory.iter().nth(segments.directory.len() / 2).expect("there are many");
        let segment = *segment;
        let slots = segments.slots(&segment);
        let region = &segments.region;
        let at = |slot: u32| slots.damaged(slot, "").offset;
        let is_live = |slot: &u32| slots.word(*slot).expect("inside").checksum() != 0;
        let slot = (0..u32::from(segment.model().cap)).find(is_live).expect("a record");
        let mut byte = [0];
        region.read_bytes(at(slot) + 24, &mut byte).expect("inside");
        region.write_bytes(at(slot) + 24, &[byte[0] ^ 1]).expect("inside");
        while node.work() == Work::More {}
        let segments = &table_of(&mut node).segments;
        let outdated = segments
            .directory
            .iter()
            .filter(|(_, segment)| ByteKeys::is_outdated(&segments.encoders, segment.tail()));
        let left: Vec<u64> = outdated.map(|(_, segment)| segment.address().offset()).collect();
        assert_eq!(left, [segment.address().offset()]);
    }

    /// One that sorted after its segment kept the whole table from learning until it had grown
    /// sixteenfold.
    #[test]
    fn a_damaged_key_does_not_keep_a_table_from_learning() {
        let mut node = untrained();
        let segments = &table_of(&mut node).segments;
        let (_, segment) = segments.directory.iter().next().expect("there are many");
        let slots = segments.slots(segment);
        let is_live = |slot: &u32| slots.word(*slot).expect("inside").state() == SlotState::Live;
        let slot = (0..u32::from(segment.model().cap)).find(is_live).expect("a record");
        // Behind the word and the length.
        let first = slots.damaged(slot, "").offset + 8 + 2;
        let mut byte = [0];
        segments.region.read_bytes(first, &mut byte).expect("inside");
        segments.region.write_bytes(first, &[byte[0] ^ 0x80]).expect("inside");
        while node.work() == Work::More {}
        let segments = &table_of(&mut node).segments;
        let outdated =
            segments.directory.iter().filter(|(_, it)| ByteKeys::is_outdated(&segments.encoders, it.tail()));
        assert_eq!((segments.encoders.len(), outdated.count()), (2, 1));
    }

    #[test]
    fn encoders_leave_bytes_that_are_emptied() {
        let mut node = untrained();
        while node.work() == Work::More {}
        let before = table_of(&mut node).room.record;
        let bytes = before.encoders..before.encoders + before.encoders_bytes;
        table_of(&mut node).empty((bytes.start & !4095)..bytes.end.next_multiple_of(4096));
        while node.work() == Work::More {}
        let after = table_of(&mut node).room.record;
        let offset = after.encoders;
        assert!(
            offset + after.encoders_bytes <= bytes.start & !4095 || offset >= bytes.end,
            "{offset} in {bytes:?}"
        );
        let mut moved = vec![0; after.encoders_bytes as usize];
        node.region().read_bytes(offset, &mut moved).expect("inside");
        assert_eq!(xxh3_64(&moved), after.encoders_checksum);
        assert_eq!(node.state.superblock().current().table.map(|record| record.encoders), Some(offset));
        node.audit().expect("every byte is right");
    }

    #[test]
    fn a_table_without_room_for_new_encoders_learns_before_it_has_grown_sixteenfold() {
        let mut node = untrained();
        let (trained, keys) = (node.stats().segments, 10_000);
        let space = &mut table_of(&mut node).room.space;
        let held: Vec<Extent> = std::iter::from_fn(|| space.take(space.longest())).collect();
        while node.work() == Work::More {}
        assert_eq!(node.stats().segments, trained, "there was no room");
        held.into_iter().for_each(|extent| table_of(&mut node).room.space.put(extent));
        let retraining = &mut table_of(&mut node).rebuilder.retraining;
        assert!(!retraining.is_due(keys + 1) && retraining.is_due(keys + keys / 2));
    }

    /// The segments that were left stayed outdated for as long as the process lived.
    #[test]
    fn segments_that_found_no_room_are_converted_when_there_is_some() {
        let mut node = untrained();
        while table_of(&mut node).rebuilder.retraining.outdated_from.is_none() {
            node.work();
        }
        let outdated = |node: &mut MemoryNode<ByteKeys>| {
            let segments = &table_of(node).segments;
            let is_outdated = |tail| ByteKeys::is_outdated(&segments.encoders, tail);
            segments.directory.iter().filter(|(_, segment)| is_outdated(segment.tail())).count()
        };
        let space = &mut table_of(&mut node).room.space;
        let held: Vec<Extent> = std::iter::from_fn(|| space.take(space.longest())).collect();
        while node.work() == Work::More {}
        assert!(outdated(&mut node) > 0, "there was no room");
        held.into_iter().for_each(|extent| table_of(&mut node).room.space.put(extent));
        while node.work() == Work::More {}
        assert_eq!(outdated(&mut node), 0);
    }
}
