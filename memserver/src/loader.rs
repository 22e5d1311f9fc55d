//! Building a table from records in key order.
//!
//! Records arrive one by one. The segmenter says where one model's reach ends; the records up to there are placed into
//! slots, and the segment is written to the region in one piece. Nothing is visible to readers until the table's
//! record is published, so a load that fails leaves no trace.

use fpcache::key_space::KeySpace;
use fpcache::layout::{
    CHANGE_RECORD_BYTES, Corrupt, DESCRIPTORS_PER_PAGE, Descriptor, DirectoryPage, PAGE_BYTES,
    ParameterError, RootEntry, SegmentAddress, SegmentGeometry, SegmentHeader, TableParameters, TableRecord,
    encode_root,
};
use fpcache::message::{ErrorCode, Refusal};
use fpcache_fabric::{AccessError, NodeMemory};
use fpcache_index::{
    Line, NotAscending, OptionsError, Piece, PlacedSegment, SegmentModel, SegmentOptions, Segmenter,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::allocator::{Allocator, Exhausted};
use crate::image::SegmentImage;
use crate::space::Extent;

/// Why a load ended without a table.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A parameter is out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A parameter is out of range for the models.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Keys out of order, or twice the same one.
    #[error(transparent)]
    Order(#[from] NotAscending),
    /// The records do not have the size the table was begun with.
    #[error("records {first} and following: {got} bytes of values for {keys} keys, {expected} expected")]
    ValueSize {
        /// Index of the first record of the chunk.
        first: u64,
        /// Bytes that came.
        got: usize,
        /// Keys that came.
        keys: usize,
        /// Bytes that should have come.
        expected: usize,
    },
    /// A chunk is missing or came twice.
    #[error("records from {got} on arrived where {expected} was next: start the load anew")]
    Gap {
        /// Records so far.
        expected: u64,
        /// Index of the chunk's first record.
        got: u64,
    },
    /// The region is too small.
    #[error(
        "the region of {capacity} does not hold these records{after}: about {needed} are needed; start the memory \
         node with --capacity {needed} or more, or use a higher fill, narrower fingerprints or fewer keys",
        capacity = bytesize::ByteSize(*.capacity).display().iec(),
        after = .loaded.map(|n| format!(" (full after {n})")).unwrap_or_default(),
        needed = round_up(*.needed),
    )]
    Full {
        /// Bytes of the region.
        capacity: u64,
        /// Records it held when it was full, if any were written.
        loaded: Option<u64>,
        /// Estimate of the bytes that would do.
        needed: u64,
    },
    /// The region could not be written: a bug.
    #[error("writing the region failed: {0}")]
    Region(#[from] AccessError),
    /// The region's own bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// The next whole number of a binary unit, so that the printed remedy is always enough.
fn round_up(bytes: u64) -> String {
    for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= 4 * unit {
            return format!("{}{name}", bytes.div_ceil(unit));
        }
    }
    format!("{bytes}B")
}

impl LoadError {
    /// The refusal a client gets.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::Parameter(_) | Self::Options(_) => ErrorCode::Invalid,
            Self::Order(_) | Self::ValueSize { .. } | Self::Gap { .. } => ErrorCode::BadData,
            Self::Full { .. } => ErrorCode::Full,
            Self::Region(_) | Self::Corrupt(_) => ErrorCode::Internal,
        };
        Refusal::new(code, self.to_string())
    }
}

/// A load in progress.
#[derive(Debug)]
pub struct Loader<K: KeySpace> {
    parameters: TableParameters,
    geometry: SegmentGeometry,
    options: SegmentOptions,
    segmenter: Segmenter,
    allocator: Allocator,
    capacity: u64,
    expected_keys: u64,
    keys: u64,
    /// Keys of the open segment, their coordinates, values and versions.
    open: Vec<K::Key>,
    coordinates: Vec<u64>,
    values: Vec<u8>,
    versions: Vec<u32>,
    descriptors: Vec<Descriptor>,
    node: u16,
    next_generation: u32,
    /// Records in the slot their prediction names.
    at_home: u64,
    image: SegmentImage,
}

impl<K: KeySpace> Loader<K> {
    /// A load into the free bytes of a region. `expected_keys` is 0 if unknown; otherwise a load that cannot fit is
    /// refused at once.
    pub(crate) fn new(
        parameters: TableParameters,
        expected_keys: u64,
        allocator: Allocator,
        capacity: u64,
        node: u16,
        next_generation: u32,
    ) -> Result<Self, LoadError> {
        parameters.validate()?;
        let options = SegmentOptions {
            epsilon: parameters.epsilon,
            fill: parameters.fill,
            max_slots: parameters.max_slots,
            ..SegmentOptions::default()
        };
        // Even with the longest segments there are, this much is needed.
        let least = parameters.estimated_bytes::<K>(expected_keys, f64::from(parameters.max_slots));
        if least > capacity.saturating_sub(allocator.used()) {
            let needed = allocator.used().saturating_add(least).saturating_add(least / 20);
            return Err(LoadError::Full { capacity, loaded: None, needed });
        }
        Ok(Self {
            parameters,
            geometry: parameters.geometry::<K>(),
            options,
            segmenter: Segmenter::new(options)?,
            allocator,
            capacity,
            expected_keys,
            keys: 0,
            open: Vec::new(),
            coordinates: Vec::new(),
            values: Vec::new(),
            versions: Vec::new(),
            descriptors: Vec::new(),
            node,
            next_generation,
            at_home: 0,
            image: SegmentImage::new(parameters.geometry::<K>()),
        })
    }

    /// Adds records: encoded keys and values in two arrays.
    pub fn push_chunk(
        &mut self,
        region: &impl NodeMemory,
        first: u64,
        keys: &[u8],
        values: &[u8],
    ) -> Result<(), LoadError> {
        if first != self.keys {
            return Err(LoadError::Gap { expected: self.keys, got: first });
        }
        let (count, v) = (keys.len() / K::KEY_BYTES, self.parameters.value_bytes as usize);
        if values.len() != count * v {
            return Err(LoadError::ValueSize { first, got: values.len(), keys: count, expected: count * v });
        }
        for (i, key) in keys.chunks_exact(K::KEY_BYTES).filter_map(K::decode).enumerate() {
            self.push(region, key, &values[i * v..(i + 1) * v], FIRST_VERSION)?;
        }
        Ok(())
    }

    /// Adds one record; `value` has the table's value size.
    pub fn push(
        &mut self,
        region: &impl NodeMemory,
        key: K::Key,
        value: &[u8],
        version: u32,
    ) -> Result<(), LoadError> {
        let x = K::coordinate(&key);
        if let Some(piece) = self.segmenter.push(x)? {
            self.close(region, &piece, x - 1)?;
        }
        self.open.push(key);
        self.coordinates.push(x);
        self.values.extend_from_slice(value);
        self.versions.push(version);
        self.keys += 1;
        Ok(())
    }

    /// Places and writes the records of a closed piece, whose range ends at `hi`.
    fn close(&mut self, region: &impl NodeMemory, piece: &Piece, hi: u64) -> Result<(), LoadError> {
        let placed = piece.place(&self.coordinates, &self.options);
        let mut first = 0;
        for segment in &placed {
            let end = first + segment.keys;
            let hi = self.coordinates.get(end).map_or(hi, |next| next - 1);
            self.write_segment(region, segment, first, hi)?;
            first = end;
        }
        self.open.clear();
        self.coordinates.clear();
        self.values.clear();
        self.versions.clear();
        Ok(())
    }

    fn write_segment(
        &mut self,
        region: &impl NodeMemory,
        placed: &PlacedSegment,
        first: usize,
        hi: u64,
    ) -> Result<(), LoadError> {
        let model = placed.model;
        // The first segment owns every key below its own, too.
        let lo = if self.descriptors.is_empty() { 0 } else { self.coordinates[first] };
        let generation = self.next_generation;
        let bytes = self.geometry.segment_bytes(model.cap);
        let offset = self.allocator.allocate(bytes).map_err(|Exhausted| self.full())?;
        let address = SegmentAddress::new(self.node, offset).ok_or_else(|| self.full())?;

        let live = placed.keys as u32;
        let header = SegmentHeader { generation, cap: model.cap, epsilon: model.epsilon, lo, hi, live };
        self.image.begin(&header);
        let v = self.parameters.value_bytes as usize;
        for (i, slot) in (first..).zip(&placed.slots) {
            self.at_home += u64::from(model.predict(self.coordinates[i]) == u32::from(*slot));
            let (key, value) = (&self.open[i], &self.values[i * v..][..v]);
            self.image.put(*slot, K::hash(key), self.versions[i], |body| {
                K::encode(key, &mut body[..K::KEY_BYTES]);
                body[K::KEY_BYTES..][..v].copy_from_slice(value);
            });
        }
        region.write_bytes(offset, self.image.bytes())?;
        self.descriptors.push(Descriptor { lo, model, address, generation });
        self.next_generation = self.next_generation.wrapping_add(1);
        Ok(())
    }

    /// Writes the one segment of a table without records: every key is absent in it.
    fn write_empty_segment(&mut self, region: &impl NodeMemory) -> Result<(), LoadError> {
        const SLOTS: u16 = 16;
        let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: SLOTS, epsilon: SLOTS };
        let placed = PlacedSegment { model, keys: 0, slots: Vec::new() };
        self.write_segment(region, &placed, 0, u64::MAX)
    }

    /// The error for a region without room, with an estimate from what was written so far: its segments, and the
    /// descriptors that are still to be written for them.
    fn full(&self) -> LoadError {
        const DIRECTORY_BYTES: f64 = PAGE_BYTES as f64 / DESCRIPTORS_PER_PAGE as f64 + 1.0;
        let written = self.keys.saturating_sub(self.open.len() as u64);
        let bytes = self.allocator.used() as f64 + self.descriptors.len() as f64 * DIRECTORY_BYTES;
        let keys = self.expected_keys.max(self.keys);
        let needed = bytes / written.max(1) as f64 * keys as f64 * 1.05 + 4.0 * PAGE_BYTES as f64;
        LoadError::Full {
            capacity: self.capacity,
            loaded: Some(written),
            // Too little was written to tell, or only the directory did not fit.
            needed: (needed as u64).max(self.capacity + self.capacity / 4),
        }
    }

    /// Ends the load: writes the last segments and the directory, and returns the record to publish, the allocator
    /// behind it, and the next unused generation.
    pub(crate) fn finish(mut self, region: &impl NodeMemory) -> Result<Finished, LoadError> {
        if let Some(piece) = self.segmenter.finish() {
            self.close(region, &piece, u64::MAX)?;
        }
        if self.descriptors.is_empty() {
            self.write_empty_segment(region)?;
        }
        let pages: Vec<_> = self.descriptors.chunks(DESCRIPTORS_PER_PAGE).collect();
        let (mut root, mut published) = (Vec::with_capacity(pages.len()), Vec::new());
        for page in &pages {
            let offset = self.allocator.allocate(PAGE_BYTES).map_err(|Exhausted| self.full())?;
            published.push(Extent::new(offset, PAGE_BYTES as u64));
            region.write_bytes(offset, &DirectoryPage::encode(page, 0))?;
            root.push(RootEntry { lo: page.first().map_or(0, |d| d.lo), page: offset });
        }
        let bytes = encode_root(&root);
        let offset = self.allocator.allocate(bytes.len()).map_err(|Exhausted| self.full())?;
        region.write_bytes(offset, &bytes)?;
        published.push(Extent::new(offset, bytes.len() as u64));
        let log_records = log_records(self.capacity);
        let log_bytes = log_records as usize * CHANGE_RECORD_BYTES;
        let log = self.allocator.allocate(log_bytes).map_err(|Exhausted| self.full())?;
        let record = TableRecord {
            parameters: self.parameters,
            keys: self.keys,
            segments: self.descriptors.len() as u64,
            root: offset,
            pages: root.len() as u64,
            root_checksum: xxh3_64(&bytes),
            used: self.allocator.used(),
            at_home: self.at_home,
            checkpoint: 0,
            log,
            log_records,
        };
        Ok(Finished {
            record,
            descriptors: self.descriptors,
            published,
            used: self.allocator.used(),
            next_generation: self.next_generation,
        })
    }

    /// Records so far.
    pub fn keys(&self) -> u64 {
        self.keys
    }
}

/// Records of the change log in a region of `capacity` bytes: up to a sixty-fourth of it, at most 4 MiB.
const fn log_records(capacity: u64) -> u64 {
    let most = capacity / 64 / CHANGE_RECORD_BYTES as u64;
    let records = if most > 1 << 16 {
        1 << 16
    } else if most < 16 {
        16
    } else {
        most
    };
    1 << records.ilog2()
}

/// The version of loaded records.
pub(crate) const FIRST_VERSION: u32 = 1;

/// What a finished load leaves behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) record: TableRecord,
    pub(crate) descriptors: Vec<Descriptor>,
    /// Where the directory lies.
    pub(crate) published: Vec<Extent>,
    /// End of the bytes in use.
    pub(crate) used: u64,
    pub(crate) next_generation: u32,
}
