//! The segments of a table: its directory, and the slots of its records.

pub(crate) mod copied;
pub(crate) mod decide;
mod find;
pub(crate) mod slots;

use std::collections::HashSet;
use std::sync::Arc;

use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{SegmentGeometry, SlotWord, TableParameters, TableRecord, ValueExtent};
use fpcache::matching::Matcher;
use fpcache::models::Segment;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::NodeMemory;
use fpcache_index::{Directory, Window};
use zerocopy::IntoBytes;

use super::error::TableError;
use crate::rebuild::plan::Facts;
use crate::superblock_writer::SuperblockWriter;
use crate::versions::{FIRST_VERSION, age};
use copied::extents_in;
use slots::Slots;

/// The directory, whole and current, and what is counted of the segments in it.
#[derive(Debug)]
pub(crate) struct Segments<K: BuildKeys, M> {
    pub(crate) region: Arc<M>,
    pub(super) parameters: TableParameters,
    pub(crate) geometry: SegmentGeometry,
    /// What the segments share to compute coordinates.
    pub(crate) encoders: K::Encoders,
    pub(crate) directory: Directory<K::Key, Segment<K>>,
    /// Bytes of all segments.
    pub(super) bytes: u64,
    pub(super) next_generation: u32,
    pub(crate) next_version: u32,
    /// Live records.
    pub(crate) keys: u64,
    /// Records in the slot that the model predicts.
    pub(super) at_home: u64,
    pub(super) search: WindowSearch,
    /// What is broken on purpose.
    pub(crate) sabotage: Option<Sabotage>,
}

/// What a load or a recovery counted of the segments it found or made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Bytes of all segments.
    pub(crate) bytes: u64,
    pub(crate) next_generation: u32,
    pub(crate) next_version: u32,
    /// Live records.
    pub(crate) keys: u64,
}

/// What searches a key's window, and the buffers of one operation.
#[derive(Debug)]
pub(super) struct WindowSearch {
    matcher: Matcher,
    /// Slots of records that wait for the disk: the segment's offset, and the slot.
    pub(super) reserved: HashSet<(u64, u32)>,
    fingerprints: Vec<u64>,
    slots: Vec<u32>,
    pub(super) body: Vec<u8>,
}

/// The only place where a key can be.
#[derive(Clone, Copy)]
struct KeyWindow<K: KeySpace> {
    segment: Segment<K>,
    x: u64,
    predicted: u32,
    window: Window,
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    pub(super) fn new(
        superblock: &SuperblockWriter<K, M>,
        record: &TableRecord,
        encoders: K::Encoders,
        directory: Directory<K::Key, Segment<K>>,
        counts: Counts,
    ) -> Self {
        Self {
            region: Arc::clone(&superblock.region),
            parameters: record.parameters,
            geometry: record.parameters.geometry(),
            encoders,
            directory,
            bytes: counts.bytes,
            next_generation: counts.next_generation,
            next_version: counts.next_version,
            keys: counts.keys,
            at_home: record.at_home,
            search: WindowSearch {
                matcher: Matcher::detect(),
                reserved: HashSet::new(),
                fingerprints: Vec::new(),
                slots: Vec::new(),
                body: Vec::new(),
            },
            sabotage: superblock.sabotage,
        }
    }

    /// The slots of a segment.
    #[inline]
    pub(crate) fn slots(&self, segment: &Segment<K>) -> Slots<'_, M> {
        Slots::of(&*self.region, self.geometry, segment)
    }

    /// Whether this is what is broken on purpose.
    #[inline(always)]
    pub(super) fn breaks(&self, what: Sabotage) -> bool {
        what.is(self.sabotage)
    }

    /// Continues after the versions that an earlier memory node used.
    pub(crate) fn go_on_from(&mut self, next_version: u32) {
        self.next_version = next_version.max(self.next_version);
    }

    /// Goes on counting versions from here.
    pub(crate) fn count_versions_from(&mut self, version: u32) {
        self.next_version = (version % SlotWord::VERSIONS).max(FIRST_VERSION + 1);
    }

    fn place(&self, key: &K::Key) -> Option<KeyWindow<K>> {
        let (segment, shared) = self.directory.find_shared(key)?;
        let (segment, model) = (*segment, segment.model());
        let x = segment.coordinate(key, shared, &self.encoders);
        let predicted = model.predict(x);
        Some(KeyWindow { segment, x, predicted, window: model.window_around(predicted) })
    }

    /// Live records of a segment; and, where there are few for its slots, how long ago it was last
    /// written to. The fingerprints tell the first, a few microseconds for the longest segments.
    pub(crate) fn usage(&mut self, segment: &Segment<K>) -> Result<Facts, TableError> {
        let cap = segment.model().cap;
        let mut facts = Facts { keys: self.live(segment)?, cap, idle: u32::MAX };
        if facts.has_shrunk() {
            let slots = self.slots(segment);
            for slot in 0..u32::from(cap) {
                facts.idle = facts.idle.min(age(slots.word(slot)?.version(), self.next_version));
            }
        }
        Ok(facts)
    }

    /// Records of a segment, by its fingerprints, or by its words where it has none: damaged ones,
    /// too.
    pub(crate) fn live(&mut self, segment: &Segment<K>) -> Result<usize, TableError> {
        let slots = Slots::of(&*self.region, self.geometry, segment);
        let cap = segment.model().cap;
        if !self.geometry.stores_fingerprints {
            return (0..u32::from(cap))
                .try_fold(0, |records, slot| Ok(records + usize::from(slots.word(slot)?.checksum() != 0)));
        }
        let all = Window { first: 0, last: u32::from(cap).saturating_sub(1) };
        let WindowSearch { fingerprints, body, .. } = &mut self.search;
        slots.read_fingerprints::<K>(all, body, fingerprints)?;
        let free = self.geometry.width.count_free(fingerprints.as_bytes(), cap.into());
        Ok(usize::from(cap).saturating_sub(free))
    }

    /// Records of a segment, by their words: damaged ones, too.
    pub(crate) fn count(&self, segment: &Segment<K>) -> Result<u64, TableError> {
        let slots = self.slots(segment);
        let mut body = Vec::new();
        (0..u32::from(segment.model().cap))
            .try_fold(0, |records, slot| Ok(records + u64::from(!slots.is_free::<K>(slot, &mut body)?)))
    }

    /// Calls `each` with the value of every live record that has it outside its slot.
    pub(crate) fn each_extent(
        &self,
        mut each: impl FnMut(ValueExtent) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if self.geometry.shape.value_bytes.is_some() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (_, segment) in &self.directory {
            self.slots(segment).read_all(&mut bytes)?;
            let mut extents = extents_in::<K>(&self.geometry, segment.generation(), &bytes);
            extents.try_for_each(|(_, extent)| each(extent))?;
        }
        Ok(())
    }

    /// About how many bytes segments have that are freshly loaded with the records.
    pub(crate) fn loaded_bytes(&self) -> f64 {
        let parameters = &self.parameters;
        let segments = self.directory.len() as f64;
        let of_groups = segments * parameters.group_bytes_per_segment(self.keys as f64 / segments.max(1.0));
        self.keys as f64 * parameters.bytes_per_slot() / parameters.fill.max(0.01) + of_groups
    }
}
