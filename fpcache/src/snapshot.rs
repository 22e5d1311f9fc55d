//! The compute node's view of a table.

use bytesize::ByteSize;
use fpcache_fabric::{Batch, Endpoint, FabricError, REGION, RemoteAddr};
use fpcache_index::Directory;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cache::NoCache;
use crate::key_space::KeySpace;
use crate::layout::{
    Corrupt, PAGE_BYTES, ROOT_ENTRY_BYTES, SUPERBLOCK_BYTES, SegmentGeometry, Superblock, SuperblockError,
    TableRecord, decode_root,
};
use crate::matching::SlotStride;
pub use crate::models::Segment;
use crate::models::{Models, PagedModels, Root};

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
    /// The models have too few bytes even for the directory's top level.
    #[error(
        "a cache of {} cannot hold the top level of this table's directory: at least {}; raise the cache budget",
        ByteSize(*.budget).display().iec(),
        rounded_up(*.least).display().iec()
    )]
    Budget {
        /// Bytes they may take.
        budget: u64,
        /// The fewest that would do.
        least: u64,
    },
    /// The hot cache's memory cannot be had.
    #[error(transparent)]
    Memory(NoCache),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// A size rounded up to the tenth of a unit that is shown, so that whoever asks for what is shown gets enough.
fn rounded_up(bytes: u64) -> ByteSize {
    let unit = 1u128 << (bytes.max(1).ilog2() / 10 * 10);
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    ByteSize(u64::try_from(tenths * unit / 10).unwrap_or(u64::MAX))
}

/// How often a superblock that is being changed is read again before giving up.
const SUPERBLOCK_ATTEMPTS: usize = 10_000;
/// Directory pages fetched with one doorbell.
const PAGES_PER_BATCH: usize = 64;

/// Everything a compute node needs to look keys of one table up: parameters and models, as of one sequence.
#[derive(Debug)]
pub struct Snapshot<K: KeySpace> {
    superblock: Superblock,
    record: TableRecord,
    geometry: SegmentGeometry,
    stride: SlotStride,
    models: Models<K>,
}

impl<K: KeySpace> Snapshot<K> {
    /// Fetches a table with all its models: one round trip for the superblock, one for the directory's root, and one per
    /// 64 directory pages. 40 bytes cross the fabric per segment.
    ///
    /// # Errors
    /// [`OpenError`], but not for want of bytes.
    pub fn open<E: Endpoint>(endpoint: &mut E) -> Result<Self, OpenError> {
        Self::open_within(endpoint, u64::MAX)
    }

    /// Fetches a table, and of its models what fits `bytes`: all of them as [`open`](Self::open) does, or the directory's
    /// top level, in two round trips, and pages when they are needed. Which of them is decided before pages are fetched,
    /// from the number of segments; while the whole directory is being built it takes twice its size.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Budget`] if `bytes` are too few for the top level and a page.
    pub fn open_within<E: Endpoint>(endpoint: &mut E, bytes: u64) -> Result<Self, OpenError> {
        Self::open_beside(endpoint, |_| bytes)
    }

    /// As [`open_within`](Self::open_within), with the bytes for models decided when it is known how many a snapshot
    /// allocates beside them.
    pub(crate) fn open_beside<E: Endpoint>(
        endpoint: &mut E,
        bytes: impl FnOnce(usize) -> u64,
    ) -> Result<Self, OpenError> {
        let mut batch = Batch::new();
        let superblock = read_superblock::<K, E>(endpoint, &mut batch)?;
        let record = superblock.table.ok_or(OpenError::Empty)?;
        let root_bytes = check_root_lies_inside(&record, superblock.region_bytes)?;
        let geometry = record.parameters.geometry::<K>();
        let stride = SlotStride::new(geometry.slot_bytes / 8);
        let bytes = bytes(stride.heap_bytes());
        let (all, paged) = (
            Models::<K>::resident_bytes_at_most(record.segments),
            PagedModels::<K>::least_bytes(record.pages) as u64,
        );
        if bytes < all.min(paged) {
            return Err(OpenError::Budget { budget: bytes, least: all.min(paged) });
        }
        let root = read_root(endpoint, &mut batch, &record, root_bytes, superblock.region_bytes)?;
        let models = if all <= bytes {
            Models::Resident(read_pages(endpoint, &mut batch, &record, &root)?)
        } else {
            // Fits: the directory that does not is larger.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Models::Paged(PagedModels::new(root, &record, bytes))
        };
        debug_assert!(models.most_bytes() as u64 <= bytes, "both kinds were foretold to fit");
        Ok(Self { superblock, record, geometry, stride, models })
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

    /// The models: what this compute node keeps of the directory.
    #[inline]
    pub fn models(&self) -> &Models<K> {
        &self.models
    }

    /// Keys of the table, as far as they can be believed: no more than the region has room for.
    pub(crate) fn keys(&self) -> u64 {
        self.record.keys.min(self.superblock.region_bytes / (self.geometry.slot_bytes as u64).max(1))
    }

    /// Bytes this compute node spends on models: what it keeps of the directory, with everything around it.
    pub fn model_bytes(&self) -> usize {
        self.models.size_in_bytes()
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

/// The root's length in bytes.
fn check_root_lies_inside(record: &TableRecord, region_bytes: u64) -> Result<usize, Corrupt> {
    let bytes = record.pages.saturating_mul(ROOT_ENTRY_BYTES as u64);
    match usize::try_from(bytes) {
        Ok(bytes) if record.root.saturating_add(bytes as u64) <= region_bytes => Ok(bytes),
        _ => Err(Corrupt::new("directory root", record.root, "it reaches past the region's end")),
    }
}

/// The directory's top level.
fn read_root<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    bytes: usize,
    region_bytes: u64,
) -> Result<Root<K>, OpenError> {
    batch.clear();
    let landing = batch.read(RemoteAddr { area: REGION, offset: record.root }, bytes);
    endpoint.run(batch)?;
    let root = batch.bytes(landing);
    if xxh3_64_with_seed(root, record.checkpoint) != record.root_checksum {
        return Err(Corrupt::new("directory root", record.root, "its checksum does not match").into());
    }
    Ok(Root::new(record, &decode_root(root), region_bytes)?)
}

/// The whole directory.
fn read_pages<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    root: &Root<K>,
) -> Result<Directory<K::Key, Segment>, OpenError> {
    let (mut entries, mut descriptors) = (Vec::new(), Vec::new());
    let damaged = |why: String| Corrupt::new("directory", record.root, why);
    let mut pages = root.numbers();
    loop {
        batch.clear();
        let landings: Vec<_> = pages
            .by_ref()
            .take(PAGES_PER_BATCH)
            .map(|page| {
                (page, batch.read(RemoteAddr { area: REGION, offset: root.address(page) }, PAGE_BYTES))
            })
            .collect();
        if landings.is_empty() {
            break;
        }
        endpoint.run(batch)?;
        for (page, landing) in landings {
            root.decode(page, batch.bytes(landing), &mut descriptors)?;
            entries.extend(descriptors.iter().map(|d| (K::from_coordinate(d.lo), Segment::from(d))));
        }
        if entries.len() as u64 > record.segments {
            break;
        }
    }
    if entries.len() as u64 != record.segments {
        let why = format!("it holds {} segments or more, not {}", entries.len(), record.segments);
        return Err(damaged(why).into());
    }
    Ok(Directory::from_sorted(entries).map_err(|e| damaged(e.to_string()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_too_small_is_refused_with_one_that_would_do() {
        let error = OpenError::Budget { budget: 4096, least: 17_613 };
        let text = "a cache of 4.0 KiB cannot hold the top level of this table's directory: at least 17.3 KiB; \
                    raise the cache budget";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn sizes_are_rounded_up_to_what_is_shown() {
        let sizes = (0..64)
            .flat_map(|bits| [1u64 << bits, (1 << bits) + 1, (1u64 << bits).wrapping_mul(1001) / 1000]);
        for bytes in sizes.chain([0, 1, 1023, 17_613, u64::MAX - (1 << 60)]) {
            let shown = rounded_up(bytes);
            assert!(shown.as_u64() >= bytes, "{bytes}");
            let read: ByteSize = shown.display().iec().to_string().parse().unwrap();
            assert!(read.as_u64() >= bytes, "{bytes}: {shown}");
            assert!(read.as_u64() as f64 <= bytes as f64 * 1.101 + 1.0, "{bytes}: {shown}");
        }
    }
}
