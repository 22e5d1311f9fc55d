//! New segments, written into free memory before anything refers to them.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Descriptor, SLOT_WORD_BYTES, SegmentAddress, SegmentHeader};
use fpcache_fabric::NodeMemory;

use super::super::error::TableError;
use super::super::room::Room;
use super::super::segments::Segments;
use super::gather::{Gathering, INCOMING};
use super::planned::PlannedSegment;
use crate::segment_image::SegmentImage;
use crate::space::Extent;

/// A new segment that was written and that nothing refers to yet.
#[derive(Debug)]
pub(crate) struct WrittenSegment<K: BuildKeys> {
    pub(crate) descriptor: Descriptor<K>,
    pub(crate) extent: Extent,
    /// Records in the slot their prediction names.
    pub(crate) at_home: u64,
}

/// Writes planned segments, with the records that were gathered for them.
#[derive(Debug)]
pub(super) struct SegmentWriter<'a, K: BuildKeys> {
    pub(super) image: &'a mut SegmentImage,
    pub(super) gathering: &'a Gathering<K>,
}

impl<K: BuildKeys> SegmentWriter<'_, K> {
    /// Writes all planned segments into free memory, or none.
    pub(crate) fn write_all<M: NodeMemory>(
        &mut self,
        segments: &mut Segments<K, M>,
        room: &mut Room<K, M>,
        new: &[PlannedSegment<K>],
        end: Option<&K::Owned>,
    ) -> Result<Vec<WrittenSegment<K>>, TableError> {
        let mut written: Vec<WrittenSegment<K>> = Vec::with_capacity(new.len());
        for (at, segment) in new.iter().enumerate() {
            let end = new.get(at + 1).map(|next| &next.start).or(end);
            match self.write_segment(segments, room, segment, end) {
                Ok(segment) => written.push(segment),
                Err(error) => {
                    written.iter().for_each(|segment| room.space.put(segment.extent));
                    return Err(error);
                }
            }
        }
        Ok(written)
    }

    fn write_segment<M: NodeMemory>(
        &mut self,
        segments: &mut Segments<K, M>,
        room: &mut Room<K, M>,
        new: &PlannedSegment<K>,
        end: Option<&K::Owned>,
    ) -> Result<WrittenSegment<K>, TableError> {
        let PlannedSegment { start, tail, planned, groups } = new;
        let model = planned.model;
        let extent =
            room.allocate_for_records(segments, segments.geometry.segment_bytes(model.cap) as u64)?;
        let Some(address) = SegmentAddress::new(room.node, extent.offset) else {
            room.space.put(extent);
            return Err(room.no_room());
        };
        let generation = segments.next_generation;
        segments.next_generation = generation.wrapping_add(1);
        let Gathering { records, slots: bytes, keys, .. } = self.gathering;
        let records = &records[planned.keys.clone()];
        let live = records.iter().filter(|record| record.body != INCOMING).count() as u32;
        let header = SegmentHeader {
            generation,
            cap: model.cap,
            epsilon: model.epsilon,
            start: K::boundary_id(start.borrow()),
            end: end.map_or(u64::MAX, |key| K::boundary_id(key.borrow())),
            live,
        };
        let image = &mut *self.image;
        image.begin(&header, groups.as_ref().map(|groups| &groups.table));
        let body_bytes = segments.geometry.slot_bytes - SLOT_WORD_BYTES;
        let mut at_home = 0;
        for (record, slot) in records.iter().zip(&planned.slots) {
            // The one to come has a place and is not there yet.
            if record.body == INCOMING {
                continue;
            }
            let body = &bytes[record.body as usize..][..body_bytes];
            let key = K::kept(&record.key, keys);
            let x = K::coordinate(key, usize::MAX, *tail, &segments.encoders);
            at_home += u64::from(model.predict(x) == u32::from(*slot));
            image.put(*slot, K::hash(key), record.version, |out| out.copy_from_slice(body));
        }
        if let Some(groups) = groups {
            image.mark(&groups.marked);
        }
        segments.region.write_bytes(extent.offset, image.bytes())?;
        let descriptor = Descriptor { start: start.clone(), tail: *tail, model, address, generation };
        Ok(WrittenSegment { descriptor, extent, at_home })
    }
}
