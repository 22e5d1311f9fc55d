//! Segments and values that could not be moved out of a range that was to be emptied: segments with
//! a damaged record, and values that are damaged themselves. As long as they stand there, ranges
//! without them are emptied.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValueExtent};
use fpcache_fabric::NodeMemory;

use super::super::error::TableError;
use super::super::segments::Segments;
use super::super::segments::copied::{LiveRecord, live_records};
use super::super::values::memory_of;
use crate::space::{Extent, Obstacles};

/// Most that are remembered: all of them are read whenever a range is looked for.
const MOST: usize = 16;

/// What cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Immovable<K: BuildKeys> {
    /// A key that the segment owns.
    key: K::Owned,
    /// The value that is damaged; `None` if a record of the segment is, which nothing of it can
    /// leave.
    value: Option<ValueExtent>,
}

/// What was found so, and still is as far as is known.
#[derive(Debug)]
pub(crate) struct Immovables<K: BuildKeys> {
    known: Vec<Immovable<K>>,
    /// Whether one of them was found in the range that is being emptied.
    found_obstacle: bool,
}

impl<K: BuildKeys> Default for Immovables<K> {
    fn default() -> Self {
        Self { known: Vec::new(), found_obstacle: false }
    }
}

impl<K: BuildKeys> Immovables<K> {
    /// Notes a segment with a damaged record, by a key of its own.
    pub(crate) fn note_segment(&mut self, key: K::Owned) {
        self.note(Immovable { key, value: None });
    }

    /// Notes a damaged value of the record of a key.
    pub(crate) fn note_value(&mut self, key: K::Owned, value: ValueExtent) {
        self.note(Immovable { key, value: Some(value) });
    }

    fn note(&mut self, found: Immovable<K>) {
        if self.known.len() < MOST && !self.known.contains(&found) {
            self.known.push(found);
            self.found_obstacle = true;
        }
    }

    /// Whether something new was found in the range whose emptying has ended: another range may be
    /// the better one.
    pub(super) fn found_obstacle(&mut self) -> bool {
        std::mem::take(&mut self.found_obstacle)
    }

    /// Forgets what was written anew, deleted or replaced since; returns where the rest lies.
    pub(super) fn obstacles<M: NodeMemory>(
        &mut self,
        segments: &Segments<K, M>,
    ) -> Result<Obstacles, TableError> {
        self.found_obstacle = false;
        let mut extents = Vec::new();
        let mut still = Vec::new();
        for found in self.known.drain(..) {
            let before = extents.len();
            segments.add_immovable_memory(&found, &mut extents)?;
            if extents.len() > before {
                still.push(found);
            }
        }
        self.known = still;
        Ok(Obstacles::of(extents))
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Adds the memory that cannot be moved because of this: none if it is no longer so.
    fn add_immovable_memory(
        &self,
        found: &Immovable<K>,
        extents: &mut Vec<Extent>,
    ) -> Result<(), TableError> {
        let Some(segment) = self.directory.find(found.key.borrow()) else { return Ok(()) };
        let slots = self.slots(segment);
        let mut bytes = Vec::new();
        slots.read_all(&mut bytes)?;
        let external = |record: LiveRecord<'_>| match record.parts.value {
            Stored::External(extent) => Some(extent),
            Stored::Here(_) => None,
        };
        let mut values = live_records::<K>(&self.geometry, &bytes).filter_map(external);
        if let Some(value) = found.value {
            extents.extend(values.find(|other| *other == value).as_ref().map(memory_of));
        } else if slots.whole_records::<K>(&bytes).any(|record| record.is_err()) {
            extents.push(Extent::new(slots.offset(), slots.bytes()));
            extents.extend(values.map(|value| memory_of(&value)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use fpcache::key_space::U64Keys;
    use fpcache::layout::{RecordShape, SegmentAddress, TableParameters};

    use crate::fixtures::{empty_node, table_of};

    #[test]
    fn what_cannot_be_moved_is_known_as_long_as_it_stands_there() {
        let mut node = empty_node::<U64Keys>(1 << 20);
        let region = Arc::clone(node.region());
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        let parameters = TableParameters { shape, max_slots: 64, ..TableParameters::default() };
        let values = (0..1000u32).map(|key| (u64::from(key), vec![1; if key == 500 { 4096 } else { 8 }]));
        node.load_records(parameters, (), values).expect("room");
        let table = table_of(&mut node);
        let segments = &table.segments;
        let located = segments.directory.locate(&500).expect("a segment");
        let slots = segments.slots(located.entry);
        let (at, len) = (slots.offset(), slots.bytes());
        let mut value = None;
        let note = |extent| {
            value = Some(extent);
            Ok(())
        };
        segments.each_extent(note).expect("it can be read");
        let value = value.expect("one is external");
        let memory = memory_of(&value);

        let mut known = Immovables::<U64Keys>::default();
        let meets = |known: &mut Immovables<U64Keys>, extent: Extent| {
            let obstacles = known.obstacles(segments).expect("it can be read");
            obstacles.meet(&(extent.offset..extent.offset + 1))
        };
        known.note_segment(500);
        let word = |slot| slots.word(slot).expect("inside").state();
        let slot = (0..64).find(|slot| word(*slot) == fpcache::layout::SlotState::Live).expect("a record");
        let record = at
            + segments.geometry.slots_offset(located.entry.model().cap) as u64
            + u64::from(slot) * segments.geometry.slot_bytes as u64;
        let flip = || {
            let bits = region.load_relaxed(record).expect("inside");
            region.store_relaxed(record, bits ^ 1).expect("inside");
        };
        flip();
        // Nor can the values be moved that the segment's other records name.
        assert!(known.found_obstacle());
        assert!(meets(&mut known, Extent { offset: at, len }) && meets(&mut known, memory));
        flip();
        assert!(!meets(&mut known, Extent { offset: at, len }) && known.known.is_empty());

        known.note_value(500, value);
        assert!(meets(&mut known, memory) && !meets(&mut known, Extent { offset: at, len }));
        known.note_value(500, value);
        assert_eq!((known.found_obstacle(), known.known.len()), (false, 1), "it was known");
        // Another value is the key's by now.
        let address = SegmentAddress::new(0, memory.offset + 8).expect("inside");
        known.known[0].value = Some(ValueExtent { address, ..value });
        assert!(!meets(&mut known, memory) && known.known.is_empty());
    }
}
