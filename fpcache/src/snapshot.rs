//! The compute node's copy of a table's directory.

use fpcache_fabric::{Batch, Endpoint, FabricError, REGION, RemoteAddr};
use fpcache_index::{Directory, Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64;

use crate::key_space::KeySpace;
use crate::layout::{
    Corrupt, Descriptor, DirectoryPage, PAGE_BYTES, ROOT_ENTRY_BYTES, SUPERBLOCK_BYTES, SegmentAddress,
    SegmentGeometry, Superblock, SuperblockError, TableRecord, decode_root,
};
use crate::matching::SlotStride;

/// One segment as a compute node holds it: 32 bytes, beside its first key in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    origin: u64,
    line: Line,
    address: SegmentAddress,
    generation: u32,
    cap: u16,
    epsilon: u16,
}

impl Segment {
    /// Key to window.
    #[inline]
    pub fn model(&self) -> SegmentModel {
        SegmentModel { origin: self.origin, line: self.line, cap: self.cap, epsilon: self.epsilon }
    }

    /// Where it lies.
    #[inline]
    pub fn address(&self) -> SegmentAddress {
        self.address
    }

    /// Seed of its slots' checksums.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl From<&Descriptor> for Segment {
    fn from(d: &Descriptor) -> Self {
        Self {
            origin: d.model.origin,
            line: d.model.line,
            address: d.address,
            generation: d.generation,
            cap: d.model.cap,
            epsilon: d.model.epsilon,
        }
    }
}

/// Why a table could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The memory node holds no table yet.
    #[error("the memory node holds no data yet: load a data set first, for example `fpcache-cli load ipv4`")]
    Empty,
    /// The superblock could not be taken.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The directory's bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// How often a superblock that is being changed is read again before giving up.
const SUPERBLOCK_ATTEMPTS: usize = 10_000;
/// Directory pages fetched with one doorbell.
const PAGES_PER_BATCH: usize = 64;

/// Everything a compute node needs to look keys of one table up: parameters and directory, as of one sequence.
#[derive(Clone, Debug)]
pub struct Snapshot<K: KeySpace> {
    superblock: Superblock,
    record: TableRecord,
    geometry: SegmentGeometry,
    stride: SlotStride,
    directory: Directory<K::Key, Segment>,
}

impl<K: KeySpace> Snapshot<K> {
    /// Fetches a table: one round trip for the superblock, one for the directory's root, and one per
    /// 64 directory pages. 40 bytes cross the fabric per segment.
    pub fn open<E: Endpoint>(endpoint: &mut E) -> Result<Self, OpenError> {
        let mut batch = Batch::new();
        let superblock = read_superblock::<K, E>(endpoint, &mut batch)?;
        let record = superblock.table.ok_or(OpenError::Empty)?;
        let pages = read_root(endpoint, &mut batch, &record, superblock.region_bytes)?;
        let mut descriptors = Vec::new();
        for group in pages.chunks(PAGES_PER_BATCH) {
            batch.clear();
            let landings: Vec<_> = group
                .iter()
                .map(|page| batch.read(RemoteAddr { area: REGION, offset: *page }, PAGE_BYTES))
                .collect();
            endpoint.run(&mut batch)?;
            for (page, landing) in group.iter().zip(landings) {
                DirectoryPage::decode(batch.bytes(landing), *page, &mut descriptors)?;
            }
        }
        Self::from_descriptors(superblock, record, &descriptors)
    }

    /// Checks the descriptors of a table against its record and the region, and builds the directory.
    fn from_descriptors(
        superblock: Superblock,
        record: TableRecord,
        descriptors: &[Descriptor],
    ) -> Result<Self, OpenError> {
        let damaged = |why: String| Corrupt::new("directory", record.root, why);
        let geometry = record.parameters.geometry::<K>();
        if descriptors.is_empty() {
            return Err(damaged("it holds no segments".into()).into());
        }
        if descriptors.len() as u64 != record.segments {
            let why = format!("it holds {} segments, not {}", descriptors.len(), record.segments);
            return Err(damaged(why).into());
        }
        for d in descriptors {
            let end = d.address.offset().saturating_add(geometry.segment_bytes(d.model.cap) as u64);
            let aligned = d.address.offset().is_multiple_of(8);
            if d.model.cap == 0 || end > superblock.region_bytes || !aligned {
                return Err(damaged(format!("the segment at {} cannot lie there", d.address)).into());
            }
        }
        let entries = descriptors.iter().map(|d| (K::from_coordinate(d.lo), Segment::from(d))).collect();
        let directory = Directory::from_sorted(entries).map_err(|e| damaged(e.to_string()))?;
        let stride = SlotStride::new(geometry.slot_bytes / 8);
        Ok(Self { superblock, record, geometry, stride, directory })
    }

    /// The superblock this snapshot was taken from.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The table's record.
    pub fn record(&self) -> &TableRecord {
        &self.record
    }

    /// Sizes and offsets inside the table's segments.
    #[inline]
    pub fn geometry(&self) -> &SegmentGeometry {
        &self.geometry
    }

    /// Where slots begin in a window of them.
    #[inline]
    pub fn stride(&self) -> &SlotStride {
        &self.stride
    }

    /// The segments, by first key.
    #[inline]
    pub fn directory(&self) -> &Directory<K::Key, Segment> {
        &self.directory
    }

    /// Bytes this compute node spends on models: the directory with everything in it.
    pub fn model_bytes(&self) -> usize {
        self.directory.size_in_bytes()
    }
}

fn read_superblock<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
) -> Result<Superblock, OpenError> {
    for _ in 0..SUPERBLOCK_ATTEMPTS {
        batch.clear();
        let landing = batch.read(RemoteAddr { area: REGION, offset: 0 }, SUPERBLOCK_BYTES);
        endpoint.run(batch)?;
        match Superblock::decode::<K>(batch.bytes(landing)) {
            Err(SuperblockError::Changing) => std::hint::spin_loop(),
            other => return Ok(other?),
        }
    }
    // No change takes so long.
    let why = format!("its checksum did not match in {SUPERBLOCK_ATTEMPTS} reads");
    Err(Corrupt::new("superblock", 0, why).into())
}

/// The offsets of the directory's pages.
fn read_root<E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    region_bytes: u64,
) -> Result<Vec<u64>, OpenError> {
    let damaged = |why: &str| Corrupt::new("directory root", record.root, why);
    let bytes = record.pages.saturating_mul(ROOT_ENTRY_BYTES as u64);
    if record.root.saturating_add(bytes) > region_bytes {
        return Err(damaged("it reaches past the region's end").into());
    }
    batch.clear();
    let landing = batch.read(RemoteAddr { area: REGION, offset: record.root }, bytes as usize);
    endpoint.run(batch)?;
    let root = batch.bytes(landing);
    if xxh3_64(root) != record.root_checksum {
        return Err(damaged("its checksum does not match").into());
    }
    Ok(decode_root(root).into_iter().map(|entry| entry.page).collect())
}
