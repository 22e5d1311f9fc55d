//! A full check of a table: every byte of every segment, and all external values.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentHeader, SlotWord};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Window;
use zerocopy::IntoBytes;

use super::Table;
use super::error::TableError;
use super::segments::Segments;
use super::segments::copied::{CopiedSlot, why_damaged};
use super::segments::slots::Slots;
use super::values::{ExternalValues, memory_of, read_value};
use crate::space::Extent;

/// What was found in a table whose every byte is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Live records.
    pub keys: u64,
    /// Segments.
    pub segments: u64,
    /// Slots of all segments.
    pub slots: u64,
    /// External values.
    pub external: u64,
}

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Checks every segment: headers and ranges, every record's checksum, window and fingerprint,
    /// every free slot's fingerprint, no key twice, records counted right, and every external
    /// value. About 10 ns per slot.
    pub(crate) fn audit(&self) -> Result<Audit, TableError> {
        let mut audit = Audit::default();
        let mut entries = self.segments.directory.iter().peekable();
        while let Some((start, segment)) = entries.next() {
            let end = entries.peek().map(|(start, _)| start.clone());
            audit.segments += 1;
            audit.slots += u64::from(segment.model().cap);
            audit.keys +=
                self.segments.audit_segment(start.borrow(), end.as_ref().map(Borrow::borrow), segment)?;
        }
        if audit.keys != self.segments.keys {
            let why = format!("it holds {} records and counts {}", audit.keys, self.segments.keys);
            return Err(Corrupt::new("table", 0, why).into());
        }
        audit.external = self.audit_extents()?.values;
        Ok(audit)
    }

    /// Checks every external value: its bytes, and that its memory is not free and no other
    /// value's.
    fn audit_extents(&self) -> Result<ExternalValues, TableError> {
        let (mut external, mut all, mut value) = (ExternalValues::default(), Vec::new(), Vec::new());
        self.segments.each_extent(|extent| {
            value.clear();
            read_value(&*self.segments.region, &extent, &mut value)?;
            external.add(&extent);
            all.push(memory_of(&extent));
            Ok(())
        })?;
        all.sort_unstable();
        let damaged = |extent: &Extent, why: &str| Err(Corrupt::new("value", extent.offset, why).into());
        if let Some(pair) = all.windows(2).find(|pair| pair[0].offset + pair[0].len > pair[1].offset) {
            return damaged(&pair[1], "two slots name its memory");
        }
        if let Some(extent) = all.iter().find(|extent| self.room.space.overlaps(**extent)) {
            return damaged(extent, "its memory counts as free");
        }
        if external != self.values.counted {
            let why = format!("there are {external:?}, and {:?} are counted", self.values.counted);
            return Err(Corrupt::new("value", 0, why).into());
        }
        Ok(external)
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Checks the table of a segment's groups: what goes where readers do not look first is told by
    /// it.
    fn check_groups(&self, segment: &Segment<K>) -> Result<(), TableError> {
        if self.slots(segment).has_whole_table(&mut Vec::new())? {
            return Ok(());
        }
        let at = segment.address().offset() + self.geometry.table_offset(segment.model().cap) as u64;
        Err(Corrupt::new("table of groups", at, "its checksum does not match").into())
    }

    /// Whether a segment's header says what the directory does.
    fn check_header(
        &self,
        (start, end): (&K::Key, Option<&K::Key>),
        segment: &Segment<K>,
    ) -> Result<(), TableError> {
        let (model, at) = (segment.model(), segment.address().offset());
        let mut header = [0; SEGMENT_HEADER_BYTES];
        self.region.read_bytes(at, &mut header)?;
        let header = SegmentHeader::decode(&header, at)?;
        let end = end.map_or(u64::MAX, K::boundary_id);
        let expected = (segment.generation(), model.cap, model.epsilon, K::boundary_id(start), end);
        if (header.generation, header.cap, header.epsilon, header.start, header.end) != expected {
            return Err(Corrupt::new("segment header", at, "it contradicts the directory").into());
        }
        Ok(())
    }

    fn audit_segment(
        &self,
        start: &K::Key,
        end: Option<&K::Key>,
        segment: &Segment<K>,
    ) -> Result<u64, TableError> {
        let (model, at, geometry) = (segment.model(), segment.address().offset(), self.geometry);
        self.check_header((start, end), segment)?;
        let slots = Slots::of(&*self.region, geometry, segment);
        let damaged = |slot: u32, why: &str| TableError::from(slots.damaged(slot, why));
        self.check_groups(segment)?;
        let (mut bytes, mut fingerprints, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        slots.read_all(&mut bytes)?;
        let all = Window { first: 0, last: u32::from(model.cap) - 1 };
        slots.read_fingerprints::<K>(all, &mut Vec::new(), &mut fingerprints)?;
        for (slot, bytes) in (0..).zip(bytes.chunks_exact(geometry.slot_bytes)) {
            let (word, body) = bytes.split_at(SLOT_WORD_BYTES);
            let word = SlotWord::from_bits(word.first_chunk().map_or(0, |w| u64::from_le_bytes(*w)));
            let fingerprint = geometry.width.get(fingerprints.as_bytes(), slot as usize);
            match slots.state_of::<K>(slot, word, body) {
                CopiedSlot::Free if word.is_free() && fingerprint == Some(FingerprintWidth::EMPTY) => {}
                CopiedSlot::Free => {
                    return Err(damaged(slot, "it is free, and its word or its fingerprint is damaged"));
                }
                CopiedSlot::Damaged => return Err(damaged(slot, why_damaged(word))),
                CopiedSlot::Whole(view, _) => {
                    let key = view.borrow();
                    if fingerprint != Some(geometry.width.of_hash(K::hash(key))) {
                        return Err(damaged(slot, "its fingerprint is another key's"));
                    }
                    if key < start || end.is_some_and(|end| key >= end) {
                        return Err(damaged(slot, "its key lies outside the segment's range"));
                    }
                    let x = segment.coordinate(key, K::shared(key, start), &self.encoders);
                    if !model.window(x).contains(slot) {
                        return Err(damaged(slot, "it lies outside its key's window"));
                    }
                    for first in slots.to_mark(&model, (x, K::hash(key)), slot)?.into_iter().flatten() {
                        if !slots.word(first)?.is_marked() {
                            return Err(damaged(
                                slot,
                                "it lies outside its group or block, which is not marked",
                            ));
                        }
                    }
                    keys.push(view);
                }
            }
        }
        keys.sort_unstable();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(Corrupt::new("segment", at, "it holds a key twice").into());
        }
        Ok(keys.len() as u64)
    }
}
