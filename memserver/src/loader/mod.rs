//! The loader, which builds a table from records in key order.
//!
//! A cutter decides where one model's segment ends, and which slots its records get; each segment
//! is written to the region in one piece. Readers see nothing until the table's record is
//! published, so a failed load leaves no trace.

mod error;
mod finish;
mod finishing;
mod values;

use std::borrow::Borrow;
use std::collections::HashMap;

use fpcache::key_space::{BuildKeys, ByteKeys, CutSegment};
use fpcache::layout::{
    CHANGE_RECORD_BYTES, Descriptor, DirectoryPage, MAX_VALUE_BYTES, RecordShape, SegmentAddress,
    SegmentGeometry, SegmentHeader, Stored, TableParameters, ValueExtent,
};
use fpcache::message::keys::take_record;
use fpcache::message::{RecordChunk, Sent};
use fpcache_fabric::NodeMemory;
use fpcache_index::{Line, PlacedSegment, SegmentModel, SegmentOptions};

use crate::allocator::{Allocator, Exhausted};
use crate::grouping::group;
use crate::segment_image::SegmentImage;
use crate::space::Extent;
use crate::table::room::fullness::kept_for_compaction_of;
use crate::table::values::ExternalValues;
use crate::uploads::Upload;
use crate::versions::FIRST_VERSION;

pub use error::LoadError;
pub(crate) use finishing::Finished;
use finishing::Finishing;

/// A record that is in no segment yet.
#[derive(Clone, Copy, Debug)]
struct OpenRecord {
    hash: u64,
    version: u32,
    /// Bytes of what its slot will hold, without padding.
    used: u32,
}

/// How far a chunk has been taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkPlace {
    /// Bytes of its records that were.
    pub(crate) at: usize,
    /// Records that were not.
    pub(crate) left: u32,
}

/// Most bytes of a segment's slots, where as many slots as there may be would take more: as many as
/// a rebuild puts into one. What a load holds of records that are in no segment yet is bounded by
/// it, however long the slots are.
const MOST_SEGMENT_BYTES: usize = 1 << 20;

/// Most slots of a segment of a load with these parameters.
fn max_slots(parameters: &TableParameters) -> u16 {
    /// Segments this long have few slots beside their windows.
    const LEAST: usize = 16;
    let geometry = parameters.geometry();
    let in_bytes = MOST_SEGMENT_BYTES / (geometry.slot_bytes + geometry.fingerprint_bytes(1));
    // At least one key must fit: the fill was looked at.
    let for_a_key = (1.0 / parameters.fill).ceil() as usize + 1;
    in_bytes.max(LEAST).max(for_a_key).min(usize::from(parameters.max_slots)) as u16
}

/// A load in progress.
#[derive(Debug)]
pub struct Loader<K: BuildKeys> {
    parameters: TableParameters,
    geometry: SegmentGeometry,
    encoders: K::Encoders,
    /// Where their bytes are to lie.
    encoders_at: u64,
    /// Where the change log lies, and how many records it has room for.
    log: u64,
    log_records: u64,
    cutter: K::Cutter,
    /// Segments that were cut: all but the last are complete, whose range ends where the next one's
    /// begins.
    cut: Vec<CutSegment<K>>,
    allocator: Allocator,
    expected_keys: u64,
    keys: u64,
    /// Records that are in no segment yet, and what their slots will hold, without padding.
    open: Vec<OpenRecord>,
    bodies: Vec<u8>,
    /// What one slot will hold.
    body: Vec<u8>,
    finishing: Option<Finishing<K>>,
    descriptors: Vec<Descriptor<K>>,
    node: u16,
    next_generation: u32,
    /// Records in the slot their prediction names.
    at_home: u64,
    /// Values of records to come, by the records' numbers modulo 2³².
    ahead: HashMap<u32, Upload>,
    /// Bytes of these.
    ahead_bytes: u64,
    /// Memory of values that no record has.
    unused: Vec<Extent>,
    external: ExternalValues,
    image: SegmentImage,
}

/// What a load begins with.
#[derive(Debug)]
pub(crate) struct Begin<K: BuildKeys> {
    pub(crate) parameters: TableParameters,
    /// 0 if unknown; otherwise a load that cannot fit is refused at once.
    pub(crate) expected_keys: u64,
    /// What the segments are to share.
    pub(crate) encoders: K::Encoders,
}

impl<K: BuildKeys> Loader<K> {
    /// A load into the free bytes of a region.
    pub(crate) fn new(
        begin: Begin<K>,
        allocator: Allocator,
        node: u16,
        next_generation: u32,
    ) -> Result<Self, LoadError> {
        let Begin { parameters, expected_keys, encoders } = begin;
        parameters.validate::<K>()?;
        let options = SegmentOptions {
            epsilon: parameters.epsilon,
            fill: parameters.fill,
            max_slots: max_slots(&parameters),
            ..SegmentOptions::default()
        };
        // Even with the longest segments there are, this much is needed.
        let least = parameters.estimated_bytes(expected_keys, f64::from(parameters.max_slots));
        let reach = allocator.grant().reach();
        if least > reach.saturating_sub(allocator.used()) {
            let needed = allocator.used().saturating_add(least).saturating_add(least / 20);
            let remedy = allocator.grant().remedy(needed);
            return Err(LoadError::Full {
                capacity: reach,
                is_disk_full: false,
                loaded: None,
                needed,
                remedy,
            });
        }
        let geometry = parameters.geometry();
        // What stays where it is comes first, so that what is after it can be given back.
        let mut allocator = allocator;
        let encoders_bytes = K::encode_encoders(&encoders);
        let log_records = log_records::<K>(allocator.grant().expected_bytes(), &geometry.shape);
        let log_bytes = log_records as usize * CHANGE_RECORD_BYTES;
        let first =
            allocator.allocate(encoders_bytes.len()).and_then(|at| Ok((at, allocator.allocate(log_bytes)?)));
        let Ok((encoders_at, log)) = first else {
            let needed = allocator.used() + least + (encoders_bytes.len() + log_bytes) as u64;
            let (remedy, is_disk_full) = (allocator.grant().remedy(needed), allocator.grant().is_disk_full());
            return Err(LoadError::Full { capacity: reach, is_disk_full, loaded: None, needed, remedy });
        };
        Ok(Self {
            parameters,
            geometry,
            cutter: K::cutter(options, &encoders)?,
            encoders,
            encoders_at,
            log,
            log_records,
            cut: Vec::new(),
            allocator,
            expected_keys,
            keys: 0,
            open: Vec::new(),
            bodies: Vec::new(),
            body: Vec::new(),
            finishing: None,
            descriptors: Vec::new(),
            node,
            next_generation,
            at_home: 0,
            ahead: HashMap::new(),
            ahead_bytes: 0,
            unused: Vec::new(),
            external: ExternalValues::default(),
            image: SegmentImage::new(geometry),
        })
    }

    /// Where a chunk begins, which must be the next one.
    pub(crate) fn begin_chunk(&self, chunk: &RecordChunk<'_>) -> Result<ChunkPlace, LoadError> {
        if chunk.first != self.keys {
            return Err(LoadError::Gap { expected: self.keys, got: chunk.first });
        }
        Ok(ChunkPlace { at: 0, left: chunk.count })
    }

    /// Adds the next records of a chunk, `most` of them at most.
    pub(crate) fn push_chunk(
        &mut self,
        region: &impl NodeMemory,
        chunk: &RecordChunk<'_>,
        place: &mut ChunkPlace,
        most: u32,
    ) -> Result<(), LoadError> {
        let short = || LoadError::Short { first: chunk.first };
        let mut rest = chunk.records.get(place.at..).ok_or_else(short)?;
        for _ in 0..most.min(place.left) {
            let ((key, value), after) = take_record::<K>(&self.geometry.shape, rest).ok_or_else(short)?;
            self.push_sent(region, key.borrow(), &value, FIRST_VERSION)?;
            rest = after;
            place.left -= 1;
        }
        place.at = chunk.records.len() - rest.len();
        if place.left > 0 || rest.is_empty() { Ok(()) } else { Err(short()) }
    }

    /// Adds one record.
    pub fn push(
        &mut self,
        region: &impl NodeMemory,
        key: &K::Key,
        value: &[u8],
        version: u32,
    ) -> Result<(), LoadError> {
        self.push_sent(region, key, &Sent::Here(value), version)
    }

    fn push_sent(
        &mut self,
        region: &impl NodeMemory,
        key: &K::Key,
        value: &Sent<'_>,
        version: u32,
    ) -> Result<(), LoadError> {
        let (shape, key_bytes) = (self.geometry.shape, K::encoded_len(key));
        let Some(place) = shape.place(key_bytes, value.len()) else {
            let fits = describe(&shape);
            return Err(LoadError::Misfit { number: self.keys, key: key_bytes, value: value.len(), fits });
        };
        let value = self.put_in_place(region, place, value)?;
        K::push(&mut self.cutter, key, &mut self.cut)?;
        if self.cut.len() > 1 {
            self.write_cut(region, false)?;
        }
        let at = self.bodies.len();
        self.bodies.resize(at + shape.body_bytes(), 0);
        let mut used = shape.fill::<K>(&mut self.bodies[at..], key, &value);
        if matches!(value, Stored::External(_)) {
            // Its address, which does not identify it.
            used += size_of::<u64>();
        }
        self.bodies.truncate(at + used);
        self.open.push(OpenRecord { hash: K::hash(key), version, used: used as u32 });
        self.keys += 1;
        Ok(())
    }

    /// Writes the segments that were cut: `all`, or all but the last, whose range ends where one
    /// begins that is still to come.
    fn write_cut(&mut self, region: &impl NodeMemory, all: bool) -> Result<(), LoadError> {
        let (mut first, mut bytes) = (0, 0);
        let mut cut = std::mem::take(&mut self.cut).into_iter().peekable();
        while let Some(segment) = cut.next() {
            let end = cut.peek().map(|next| K::boundary_id(next.start.borrow()));
            if end.is_none() && !all {
                self.cut.push(segment);
                break;
            }
            let keys = segment.placed.keys;
            bytes += self.write_segment(region, segment, (first, bytes), end.unwrap_or(u64::MAX))?;
            first += keys;
        }
        self.open.drain(..first);
        self.bodies.drain(..bytes);
        Ok(())
    }

    /// Writes a segment of the open records from `first` on, a place among them and among their
    /// bytes, whose range ends before the key with boundary number `end`; returns their bytes.
    fn write_segment(
        &mut self,
        region: &impl NodeMemory,
        cut: CutSegment<K>,
        (first, first_byte): (usize, usize),
        end: u64,
    ) -> Result<usize, LoadError> {
        let CutSegment { start, tail, mut placed } = cut;
        let mut groups = None;
        if let Some(grouping) = self.geometry.groups {
            let xs = self.coordinates(&placed, tail, (first, first_byte));
            let epsilon = self.parameters.epsilon;
            let hashes: Vec<u64> =
                self.open[first..].iter().take(placed.keys).map(|record| record.hash).collect();
            if let Some(grouped) = group(grouping, epsilon, (placed.model, placed.keys), &xs, &hashes) {
                (placed.model, placed.slots) = (grouped.model, grouped.slots);
                groups = Some(grouped.groups);
            }
        }
        let model = placed.model;
        let generation = self.next_generation;
        let bytes = self.geometry.segment_bytes(model.cap);
        let offset = self.allocator.allocate(bytes).map_err(|Exhausted| self.full())?;
        let address = SegmentAddress::new(self.node, offset).ok_or_else(|| self.full())?;

        let (live, epsilon) = (placed.keys as u32, model.epsilon);
        let header = SegmentHeader {
            generation,
            cap: model.cap,
            epsilon,
            start: K::boundary_id(start.borrow()),
            end,
            live,
        };
        self.image.begin(&header, groups.as_ref().map(|groups| &groups.table));
        let mut byte = first_byte;
        for (at, slot) in (first..).zip(&placed.slots) {
            let OpenRecord { hash, version, used } = self.open[at];
            self.body.clear();
            self.body.extend_from_slice(&self.bodies[byte..][..used as usize]);
            self.body.resize(self.geometry.shape.body_bytes(), 0);
            byte += used as usize;
            let body = &self.body;
            let x = self.geometry.shape.parts::<K>(body).and_then(|parts| K::view(parts.key)).map(|key| {
                // The keys a segment was built from share all that it skips.
                K::coordinate(key.borrow(), usize::MAX, tail, &self.encoders)
            });
            self.at_home += u64::from(x.is_some_and(|x| model.predict(x) == u32::from(*slot)));
            self.image.put(*slot, hash, version, |out| out.copy_from_slice(body));
        }
        if let Some(groups) = groups {
            self.image.mark(&groups.marked);
        }
        region.write_bytes(offset, self.image.bytes())?;
        self.descriptors.push(Descriptor { start, tail, model, address, generation });
        self.next_generation = self.next_generation.wrapping_add(1);
        Ok(byte - first_byte)
    }

    /// The coordinates of a segment's keys, which are those of the open records from a place on.
    fn coordinates(
        &self,
        placed: &PlacedSegment,
        tail: K::Tail,
        (first, first_byte): (usize, usize),
    ) -> Vec<u64> {
        let mut byte = first_byte;
        let mut body = Vec::with_capacity(self.geometry.shape.body_bytes());
        let coordinate = |record: &OpenRecord| {
            body.clear();
            body.extend_from_slice(&self.bodies[byte..][..record.used as usize]);
            body.resize(self.geometry.shape.body_bytes(), 0);
            byte += record.used as usize;
            let key = self.geometry.shape.parts::<K>(&body).and_then(|parts| K::view(parts.key))?;
            Some(K::coordinate(key.borrow(), usize::MAX, tail, &self.encoders))
        };
        // Open records have keys. Without one the segment would keep the order it has.
        self.open[first..][..placed.keys].iter().map_while(coordinate).collect()
    }

    /// The one segment of a table without records: every key is absent in it.
    fn empty_segment() -> CutSegment<K> {
        const SLOTS: u16 = 16;
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: SLOTS, epsilon: SLOTS };
        let placed = PlacedSegment { model, keys: 0, slots: Vec::new() };
        CutSegment { start: K::lowest().to_owned(), tail: K::Tail::default(), placed }
    }

    /// The error for a region without room, with an estimate from what was written so far: its
    /// segments, the descriptors that are still to be written for them, and what must be left free.
    fn full(&self) -> LoadError {
        let directory_bytes = K::PAGE_BYTES as f64 / DirectoryPage::most_descriptors::<K>() as f64 + 1.0;
        let written = self.keys.saturating_sub(self.open.len() as u64);
        // This directory and the next one, which may be of a quarter more.
        let directories = self.descriptors.len() as f64 * directory_bytes * 2.25;
        let bytes = self.allocator.used() as f64 + directories;
        let keys = self.expected_keys.max(self.keys);
        let needed = bytes / written.max(1) as f64 * keys as f64 * 1.05 + 8.0 * K::PAGE_BYTES as f64;
        let needed = needed + kept_for_compaction_of(needed as u64) as f64;
        let (capacity, is_disk_full) =
            (self.allocator.grant().reach(), self.allocator.grant().is_disk_full());
        // Too little was written to tell, or only the directory did not fit.
        let least = if is_disk_full { self.allocator.used() } else { capacity };
        let needed = (needed as u64).max(least + least / 4);
        let remedy = self.allocator.grant().remedy(needed);
        LoadError::Full { capacity, is_disk_full, loaded: Some(written), needed, remedy }
    }

    /// How the table's records lie in slots.
    pub(crate) fn shape(&self) -> RecordShape {
        self.geometry.shape
    }

    /// Records so far.
    pub fn keys(&self) -> u64 {
        self.keys
    }
}

/// Records of the change log of a table of at most `capacity` bytes: up to a sixty-fourth of these,
/// at most 4 MiB; and however few they are, as many as it takes to say that a few segments replace
/// others whose separators are as long as keys can be.
fn log_records<K: BuildKeys>(capacity: u64, shape: &RecordShape) -> u64 {
    /// Segments of a change of a small table, its end included.
    const SEGMENTS: usize = 8;
    /// A record's share of a change, and what a descriptor has beside a separator that varies, at
    /// most.
    const SHARE: usize = CHANGE_RECORD_BYTES - 16;
    const DESCRIPTOR: usize = 48;
    let least = match K::FIXED_BYTES {
        Some(_) => 16,
        None => (SEGMENTS * (DESCRIPTOR + longest_separator(shape))).div_ceil(SHARE) as u64,
    };
    let most = capacity / 64 / CHANGE_RECORD_BYTES as u64;
    let records = most.clamp(16, 1 << 16).max(least.next_power_of_two());
    1 << records.ilog2()
}

/// Bytes of the longest separator between keys of records like these: a key, and a byte that puts
/// it right after one.
fn longest_separator(shape: &RecordShape) -> usize {
    shape.key_bytes.map_or(shape.room as usize, usize::from).min(ByteKeys::MAX_KEY_BYTES) + 1
}

/// What fits a table, in words.
pub(crate) fn describe(shape: &RecordShape) -> String {
    let RecordShape { key_bytes, value_bytes, room } = *shape;
    let keys = key_bytes.map_or("keys".into(), |bytes| format!("keys of {bytes} bytes"));
    match value_bytes {
        Some(bytes) if shape.is_fixed() => format!("{keys} and values of {bytes} bytes"),
        Some(bytes) => format!("{keys} and values of {bytes} bytes, together at most {room}"),
        None => format!(
            "{keys} and values that together have at most {room} bytes, or keys of at most {} bytes and values of at most {}",
            room.saturating_sub(ValueExtent::REFERENCE_BYTES as u32),
            bytesize::ByteSize(MAX_VALUE_BYTES as u64).display().iec()
        ),
    }
}
