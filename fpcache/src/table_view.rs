//! The compute node's view of a table.

use bytesize::ByteSize;
use fpcache_fabric::{Batch, Endpoint, FabricError, Landing, REGION, RemoteAddr};
use fpcache_index::Directory;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::cache::NoCache;
use crate::changes::{ChangeLog, Failed, Refresh};
use crate::key_space::KeySpace;
use crate::layout::{
    Corrupt, REUSE_OFFSET, RecordShape, SEQUENCE_OFFSET, SUPERBLOCK_BYTES, SegmentGeometry, Superblock,
    SuperblockError, TableRecord, decode_root,
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
    /// The directory was replaced each time before it was fetched.
    #[error(
        "the table's directory changed faster than it could be fetched, {attempts} times in a row: try again"
    )]
    Moving {
        /// How often it was tried.
        attempts: u32,
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
/// How often a directory that is replaced while it is fetched is fetched again before giving up.
const OPEN_ATTEMPTS: u32 = 16;
/// Directory pages fetched with one doorbell.
const PAGES_PER_BATCH: usize = 64;

/// Everything a compute node needs to look keys of one table up: parameters and models, as of one sequence.
///
/// The sequence is a number of records of the change log: the models contain all below it and none from it on. Answers
/// that rest on a key's absence hold as long as the region's reuse sequence does not exceed it.
#[derive(Debug)]
pub struct TableView<K: KeySpace> {
    superblock: Superblock,
    record: TableRecord,
    geometry: SegmentGeometry,
    stride: SlotStride,
    models: Models<K>,
    encoders: K::Encoders,
    sequence: u64,
    #[cfg(feature = "sabotage")]
    sabotage: Option<crate::sabotage::Sabotage>,
}

/// Why a directory that was being fetched is fetched again, and what to say if it was the last time.
enum Again {
    /// It was replaced meanwhile.
    Moved,
    /// What the change log says does not fit it, perhaps because it was being overwritten.
    Unusable(Corrupt),
    /// It will not get better.
    Failed(OpenError),
}

impl<T: Into<OpenError>> From<T> for Again {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failed> for Again {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Unusable(corrupt) => Self::Unusable(corrupt),
            Failed::Fabric(error) => Self::Failed(error.into()),
        }
    }
}

impl<K: KeySpace> TableView<K> {
    /// Fetches a table with all its models: one round trip for the superblock, one for the directory's root, one per 64
    /// directory pages, one for the log's head and one per 256 changes since the directory was written. For integer keys 40 bytes cross the
    /// fabric per segment.
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
    /// A directory that is read in pages is that of the memory node's last checkpoint, and has its sequence.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Budget`] if `bytes` are too few for the top level and a page.
    pub fn open_within<E: Endpoint>(endpoint: &mut E, bytes: u64) -> Result<Self, OpenError> {
        Self::open_beside(endpoint, |_| bytes)
    }

    /// As [`open_within`](Self::open_within), with the bytes for models decided when it is known how many a view
    /// allocates beside them.
    pub(crate) fn open_beside<E: Endpoint>(
        endpoint: &mut E,
        mut bytes: impl FnMut(usize) -> u64,
    ) -> Result<Self, OpenError> {
        let mut last = OpenError::Moving { attempts: OPEN_ATTEMPTS };
        for _ in 0..OPEN_ATTEMPTS {
            match Self::open_once(endpoint, &mut bytes) {
                Ok(view) => return Ok(view),
                Err(Again::Failed(error)) => return Err(error),
                Err(Again::Moved) => last = OpenError::Moving { attempts: OPEN_ATTEMPTS },
                Err(Again::Unusable(corrupt)) => last = corrupt.into(),
            }
        }
        Err(last)
    }

    fn open_once<E: Endpoint>(endpoint: &mut E, bytes: &mut impl FnMut(usize) -> u64) -> Result<Self, Again> {
        let mut batch = Batch::new();
        let superblock = read_superblock::<K, E>(endpoint, &mut batch)?;
        let record = superblock.table.ok_or(OpenError::Empty)?;
        check_lies_inside("directory root", record.root, record.root_bytes, superblock.region_bytes)?;
        check_lies_inside("encoders", record.encoders, record.encoders_bytes, superblock.region_bytes)?;
        let log = ChangeLog::of(&record, superblock.region_bytes)?;
        let geometry = record.parameters.geometry();
        let stride = SlotStride::new(geometry.slot_bytes / 8);
        let bytes = bytes(stride.heap_bytes());
        // What byte strings take shows when their top level and their encoders are here.
        if K::FIXED_BYTES.is_some() {
            let paged = PagedModels::<K>::least_bytes(record.pages) as u64;
            let least = Models::<K>::resident_bytes_at_most(record.segments, record.pages).min(paged);
            if bytes < least {
                return Err(OpenError::Budget { budget: bytes, least }.into());
            }
        }
        let fetched = fetch_directory(endpoint, &mut batch, &superblock, &record, bytes);
        let Fetched { root, directory, encoders } = match fetched {
            Err(OpenError::Corrupt(_)) if has_moved(endpoint, &superblock, &record)? => {
                return Err(Again::Moved);
            }
            other => other?,
        };
        if reuse_behind(endpoint)? > record.checkpoint {
            return Err(Again::Moved);
        }
        let paged = PagedModels::least_bytes_with(&root) as u64;
        let (given, shared) = (bytes, K::encoders_bytes(&encoders) as u64);
        let bytes = given.saturating_sub(shared);
        let (mut resident, mut sequence) = (None, record.checkpoint);
        if let Some(mut directory) = directory {
            let head = ChangeLog::head(endpoint)?;
            log.apply::<K, E>(endpoint, sequence, head, &mut directory, &encoders)?;
            let models = Models::Resident(directory);
            // The changes may have been many.
            if models.most_bytes() as u64 <= bytes {
                (resident, sequence) = (Some(models), head);
            }
        }
        if resident.is_none() && bytes < paged {
            return Err(OpenError::Budget { budget: given, least: paged.saturating_add(shared) }.into());
        }
        let models = resident.unwrap_or_else(|| {
            // Fits: the directory that does not is larger.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Models::Paged(PagedModels::new(root, &record, bytes))
        });
        debug_assert!(models.most_bytes() as u64 <= bytes, "both kinds were foretold to fit");
        Ok(Self {
            superblock,
            record,
            geometry,
            stride,
            models,
            encoders,
            sequence,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        })
    }

    /// The table as it is now, if this is not it: one round trip for the log's head, and one per 256 changes. The models of
    /// both share what has not changed: beside the old ones, the new ones take about a KiB per change.
    ///
    /// Models that are fetched in pages know nothing of single changes: they are [`Refresh::Lost`] once the memory node has
    /// written a newer directory, and [`Refresh::Current`] before.
    ///
    /// # Errors
    /// If the fabric fails, or for pages, if the superblock cannot be taken.
    pub fn refresh<E: Endpoint>(&self, endpoint: &mut E) -> Result<Refresh<Self>, OpenError> {
        let Models::Resident(directory) = &self.models else {
            let superblock = read_superblock::<K, E>(endpoint, &mut Batch::new())?;
            let same = superblock.table.is_some_and(|table| table.checkpoint == self.record.checkpoint);
            return Ok(if same { Refresh::Current } else { Refresh::Lost });
        };
        let head = ChangeLog::head(endpoint)?;
        if head == self.sequence {
            return Ok(Refresh::Current);
        }
        let mut directory = directory.clone();
        let log = ChangeLog::of(&self.record, self.superblock.region_bytes)?;
        match log.apply::<K, E>(endpoint, self.sequence, head, &mut directory, &self.encoders) {
            Ok(()) => {}
            Err(Failed::Unusable(_)) => return Ok(Refresh::Lost),
            Err(Failed::Fabric(error)) => return Err(error.into()),
        }
        Ok(Refresh::Newer(Self {
            superblock: Superblock { log_head: head, ..self.superblock },
            record: self.record,
            geometry: self.geometry,
            stride: self.stride.clone(),
            models: Models::Resident(directory),
            encoders: self.encoders.clone(),
            sequence: head,
            #[cfg(feature = "sabotage")]
            sabotage: self.sabotage,
        }))
    }

    /// How many records of the change log the models contain.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The greatest reuse sequence with which absence may still be concluded from these models.
    #[inline]
    pub(crate) fn holds_until(&self) -> u64 {
        #[cfg(feature = "sabotage")]
        if self.sabotage == Some(crate::sabotage::Sabotage::NoReuseCheck) {
            return u64::MAX;
        }
        self.sequence
    }

    /// Whether live slots are taken unseen.
    #[cfg(feature = "sabotage")]
    #[inline]
    pub(crate) fn skips_checksums(&self) -> bool {
        use crate::sabotage::Sabotage::{NoChecksum, Unguarded};
        matches!(self.sabotage, Some(NoChecksum | Unguarded))
    }

    /// Whether external values are taken unseen.
    #[cfg(feature = "sabotage")]
    pub(crate) fn believes_extents(&self) -> bool {
        self.sabotage == Some(crate::sabotage::Sabotage::UnprovenExtents)
    }

    /// Whether nearest keys are taken unproven.
    #[inline]
    pub(crate) fn believes_neighbours(&self) -> bool {
        #[cfg(feature = "sabotage")]
        return self.sabotage == Some(crate::sabotage::Sabotage::UnprovenNeighbours);
        #[cfg(not(feature = "sabotage"))]
        false
    }

    /// Whether scans take frozen slots for free ones.
    #[inline]
    pub(crate) fn passes_frozen(&self) -> bool {
        #[cfg(feature = "sabotage")]
        return self.sabotage == Some(crate::sabotage::Sabotage::ScansPassFrozen);
        #[cfg(not(feature = "sabotage"))]
        false
    }

    /// Reads in a way that is broken on purpose.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotage(&mut self, sabotage: Option<crate::sabotage::Sabotage>) {
        self.sabotage = sabotage;
    }

    /// The superblock this view was taken from.
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

    /// Whether slots are READ with their words as guards.
    #[inline(always)]
    pub(crate) fn guards_slots(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if self.sabotage == Some(crate::sabotage::Sabotage::Unguarded) {
            return false;
        }
        true
    }

    /// Asks for slots: each lands as it was at one moment, or with a busy word, where the fabric can tell.
    #[inline]
    pub(crate) fn ask_for_slots(&self, batch: &mut Batch, from: RemoteAddr, len: usize) -> Landing {
        match self.guards_slots() {
            true => batch.read_records(from, len, self.geometry().slot_bytes),
            false => batch.read(from, len),
        }
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

    /// What the segments share to compute coordinates.
    #[inline]
    pub fn encoders(&self) -> &K::Encoders {
        &self.encoders
    }

    /// Segments of the table, as of this view.
    pub(crate) fn segments(&self) -> u64 {
        self.models.resident().map_or(self.record.segments, |directory| directory.len() as u64)
    }

    /// About how many keys the table has: what it had when its directory was written, grown as its segments have, and no more
    /// than the region has room for.
    pub(crate) fn keys(&self) -> u64 {
        let (keys, before) = (u128::from(self.record.keys), u128::from(self.record.segments.max(1)));
        let grown = keys * u128::from(self.segments()).max(before) / before;
        let room = self.superblock.region_bytes / (self.geometry.slot_bytes as u64).max(1);
        u64::try_from(grown).unwrap_or(u64::MAX).min(room)
    }

    /// Bytes this compute node spends on models: what it keeps of the directory, with everything around it, and what the
    /// segments share.
    pub fn model_bytes(&self) -> usize {
        self.models.size_in_bytes() + K::encoders_bytes(&self.encoders)
    }

    /// The bytes they never exceed, whatever is fetched.
    pub(crate) fn most_model_bytes(&self) -> usize {
        self.models.most_bytes() + K::encoders_bytes(&self.encoders)
    }
}

/// How records lie in a table's slots: one round trip, and nothing that must be kept.
///
/// # Errors
/// [`OpenError`], but not for want of bytes.
pub fn read_shape<K: KeySpace, E: Endpoint>(endpoint: &mut E) -> Result<RecordShape, OpenError> {
    let superblock = read_superblock::<K, E>(endpoint, &mut Batch::new())?;
    Ok(superblock.table.ok_or(OpenError::Empty)?.parameters.shape)
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

/// The reuse sequence after everything that was read so far.
#[inline(always)]
pub(crate) fn reuse_behind<E: Endpoint>(endpoint: &mut E) -> Result<u64, FabricError> {
    endpoint.load_after_reads(RemoteAddr::region(REUSE_OFFSET))
}

/// Whether the directory of this superblock was replaced since, so that its memory may hold something else.
fn has_moved<E: Endpoint>(
    endpoint: &mut E,
    superblock: &Superblock,
    record: &TableRecord,
) -> Result<bool, FabricError> {
    let mut sequence = [0];
    endpoint.read_words(RemoteAddr::region(SEQUENCE_OFFSET), &mut sequence)?;
    Ok(sequence[0] != superblock.sequence || reuse_behind(endpoint)? > record.checkpoint)
}

/// What there is of a table beside its records.
struct Fetched<K: KeySpace> {
    root: Root<K>,
    /// If there is room for it.
    directory: Option<Directory<K::Key, Segment<K>>>,
    encoders: K::Encoders,
}

/// The directory's top level, and all the rest of it if that fits so many bytes.
fn fetch_directory<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    superblock: &Superblock,
    record: &TableRecord,
    bytes: u64,
) -> Result<Fetched<K>, OpenError> {
    let (root, encoders) = read_root(endpoint, batch, record, superblock.region_bytes)?;
    let whole = Models::<K>::resident_bytes_at_most(record.segments, record.pages)
        .saturating_add(K::encoders_bytes(&encoders) as u64);
    let directory = if whole <= bytes { Some(read_pages(endpoint, batch, record, &root)?) } else { None };
    Ok(Fetched { root, directory, encoders })
}

fn check_lies_inside(what: &'static str, offset: u64, bytes: u64, region_bytes: u64) -> Result<(), Corrupt> {
    match offset.checked_add(bytes) {
        Some(end) if end <= region_bytes && offset.is_multiple_of(8) => Ok(()),
        _ => Err(Corrupt::new(what, offset, "it reaches past the region's end")),
    }
}

/// The directory's top level, and what its segments share.
fn read_root<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    region_bytes: u64,
) -> Result<(Root<K>, K::Encoders), OpenError> {
    batch.clear();
    // Both fit, as they lie inside the region.
    let root = batch.read(RemoteAddr::region(record.root), record.root_bytes as usize);
    let encoders = (record.encoders_bytes > 0)
        .then(|| batch.read(RemoteAddr::region(record.encoders), record.encoders_bytes as usize));
    endpoint.run(batch)?;
    let root = batch.bytes(root);
    let encoders = encoders.map_or(&[][..], |landing| batch.bytes(landing));
    if xxh3_64_with_seed(root, record.checkpoint) != record.root_checksum {
        return Err(Corrupt::new("directory root", record.root, "its checksum does not match").into());
    }
    if !encoders.is_empty() && xxh3_64(encoders) != record.encoders_checksum {
        return Err(Corrupt::new("encoders", record.encoders, "their checksum does not match").into());
    }
    let encoders =
        K::decode_encoders(encoders).map_err(|why| Corrupt::new("encoders", record.encoders, why))?;
    let entries = decode_root(root)
        .ok_or_else(|| Corrupt::new("directory root", record.root, "an entry is cut short"))?;
    Ok((Root::new(record, entries, &encoders, region_bytes)?, encoders))
}

/// The whole directory.
fn read_pages<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    root: &Root<K>,
) -> Result<Directory<K::Key, Segment<K>>, OpenError> {
    let (mut entries, mut descriptors) = (Vec::new(), Vec::new());
    let damaged = |why: String| Corrupt::new("directory", record.root, why);
    let mut pages = root.numbers();
    loop {
        batch.clear();
        let landings: Vec<_> = pages
            .by_ref()
            .take(PAGES_PER_BATCH)
            .map(|page| {
                (page, batch.read(RemoteAddr { area: REGION, offset: root.address(page) }, K::PAGE_BYTES))
            })
            .collect();
        if landings.is_empty() {
            break;
        }
        endpoint.run(batch)?;
        for (page, landing) in landings {
            root.decode(page, batch.bytes(landing), &mut descriptors)?;
            entries.extend(descriptors.iter().map(|d| (d.lo.clone(), Segment::from(d))));
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
