//! The READs that open a table: superblock, directory, encoders.

use fpcache_fabric::{Batch, Endpoint, FabricError, REGION, RemoteAddr};
use fpcache_index::{Directory, DirectoryBuilder};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::OpenError;
use crate::key_space::KeySpace;
use crate::layout::{
    Corrupt, REUSE_OFFSET, SUPERBLOCK_BYTES, Superblock, SuperblockError, TableParameters, TableRecord,
    decode_root,
};
use crate::models::{Models, Root, Segment};

/// How often a superblock that is being changed is read again before giving up.
const SUPERBLOCK_ATTEMPTS: usize = 10_000;
/// How many of these follow each other at once.
const SUPERBLOCK_SPINS: usize = 100;
/// Directory pages fetched with one doorbell.
const PAGES_PER_BATCH: usize = 64;

/// The parameters of a table, as they are stored: one round trip, and nothing that must be kept.
///
/// # Errors
/// [`OpenError`], but not for want of bytes.
pub fn read_parameters<K: KeySpace, E: Endpoint>(endpoint: &mut E) -> Result<TableParameters, OpenError> {
    let superblock = read_superblock::<K, E>(endpoint, &mut Batch::new())?;
    Ok(superblock.table.ok_or(OpenError::Empty)?.parameters)
}

/// The end of the bytes that a table uses, as the superblock has it now, and no more than its
/// region has: one round trip.
///
/// # Errors
/// As for [`read_parameters`]: [`OpenError::Superblock`] if the table was dropped.
pub fn read_used<K: KeySpace, E: Endpoint>(endpoint: &mut E) -> Result<u64, OpenError> {
    let superblock = read_superblock::<K, E>(endpoint, &mut Batch::new())?;
    let used = superblock.table.ok_or(OpenError::Empty)?.used;
    Ok(endpoint.area(REGION).map_or(used, |area| used.min(area.len)))
}

pub(super) fn read_superblock<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
) -> Result<Superblock, OpenError> {
    for attempt in 0..SUPERBLOCK_ATTEMPTS {
        batch.clear();
        let landing = batch.read(RemoteAddr { area: REGION, offset: 0 }, SUPERBLOCK_BYTES);
        endpoint.run(batch)?;
        match Superblock::decode::<K>(batch.bytes(landing)) {
            Err(SuperblockError::Changing) if attempt < SUPERBLOCK_SPINS => std::hint::spin_loop(),
            // Its writer may wait for this processor.
            Err(SuperblockError::Changing) => std::thread::yield_now(),
            other => return Ok(other?),
        }
    }
    // No change takes so long.
    let why = format!("its checksum did not match in {SUPERBLOCK_ATTEMPTS} reads");
    Err(Corrupt::new("superblock", 0, why).into())
}

/// The reuse sequence after everything that was read so far.
#[inline(always)]
pub(crate) fn reuse_sequence<E: Endpoint>(endpoint: &mut E) -> Result<u64, FabricError> {
    endpoint.load_after_reads(RemoteAddr::region(REUSE_OFFSET))
}

/// Whether the parts of the table that this superblock names were replaced since, so that their
/// memory may hold something else. Its sequence alone does not tell: the line that holds it may
/// have been fetched after the others, from a superblock that was being written.
pub(super) fn has_moved<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    superblock: &Superblock,
    record: &TableRecord,
) -> Result<bool, OpenError> {
    let now = read_superblock::<K, E>(endpoint, batch)?;
    let is_same = now.sequence == superblock.sequence && now.table == superblock.table;
    Ok(!is_same || reuse_sequence(endpoint)? > record.checkpoint)
}

/// Why a directory that was being fetched is fetched again, and what to say if it was the last
/// time.
pub(super) enum RefetchReason {
    /// It was replaced meanwhile.
    Moved,
    /// The change log does not fit it, perhaps because it was being overwritten.
    Unusable(Corrupt),
    /// It will not get better.
    Failed(OpenError),
}

impl<T: Into<OpenError>> From<T> for RefetchReason {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

/// The parts of a table beside its records.
pub(super) struct Fetched<K: KeySpace> {
    pub(super) root: Root<K>,
    /// If there is room for it.
    pub(super) directory: Option<Directory<K::Key, Segment<K>>>,
    pub(super) encoders: K::Encoders,
}

/// What has been fetched of a table: where a call's time is over before all of it is here, the next
/// one goes on with the rest. All that it holds is of one checkpoint, whose memory had no other use
/// yet when it was read: the endpoint that has read a part was asked for the reuse sequence after
/// it. Of use with endpoints of one connection only, as a [`TableView`](super::TableView) is.
#[derive(Debug)]
pub struct Opening<K: KeySpace> {
    superblock: Option<Superblock>,
    top: Option<(Root<K>, K::Encoders)>,
    /// The entries of the first pages, and how many pages these are.
    entries: DirectoryBuilder<K::Key, Segment<K>>,
    pages: u32,
}

impl<K: KeySpace> Default for Opening<K> {
    fn default() -> Self {
        Self { superblock: None, top: None, entries: DirectoryBuilder::new(), pages: 0 }
    }
}

impl<K: KeySpace> Opening<K> {
    pub(super) fn superblock<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        batch: &mut Batch,
    ) -> Result<Superblock, OpenError> {
        match self.superblock {
            Some(superblock) => Ok(superblock),
            None => Ok(*self.superblock.insert(read_superblock::<K, E>(endpoint, batch)?)),
        }
    }

    /// The directory's top level, and all the rest of it if that fits `bytes` bytes; nothing of it
    /// stays here.
    pub(super) fn directory<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        batch: &mut Batch,
        superblock: &Superblock,
        record: &TableRecord,
        bytes: u64,
    ) -> Result<Fetched<K>, RefetchReason> {
        let (root, encoders) = match self.top.take() {
            Some(top) => top,
            None => read_root(endpoint, batch, record, superblock.region_bytes)?,
        };
        let whole = Models::<K>::resident_bytes_at_most(record.segments, record.pages)
            .saturating_add(K::encoders_bytes(&encoders) as u64);
        let is_whole = whole <= bytes
            && match self.read_pages(endpoint, batch, record, &root, bytes) {
                Ok(is_whole) => is_whole,
                Err(reason) => {
                    self.top = Some((root, encoders));
                    return Err(reason);
                }
            };
        let entries = std::mem::take(self).entries;
        Ok(Fetched { root, directory: is_whole.then(|| entries.finish()), encoders })
    }

    /// Reads the rest of the pages; `false` as soon as they take more than `bytes` bytes: byte
    /// strings may take more than was foretold.
    fn read_pages<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        batch: &mut Batch,
        record: &TableRecord,
        root: &Root<K>,
        bytes: u64,
    ) -> Result<bool, RefetchReason> {
        // Of a page after the other: separators that share kibibytes take a hundred times as much
        // whole.
        let mut descriptors = Vec::new();
        let damaged = |why: String| Corrupt::new("directory", record.root, why);
        loop {
            batch.clear();
            let landings: Vec<_> = root
                .numbers()
                .skip(self.pages as usize)
                .take(PAGES_PER_BATCH)
                .map(|page| (page, batch.read(RemoteAddr::region(root.address(page)), K::PAGE_BYTES)))
                .collect();
            if landings.is_empty() {
                break;
            }
            run_unmoved(endpoint, batch, record)?;
            for (page, landing) in landings {
                root.decode(page, batch.bytes(landing), &mut descriptors)?;
                for descriptor in descriptors.drain(..) {
                    let segment = Segment::from(&descriptor);
                    self.entries.push(descriptor.start, segment).map_err(|e| damaged(e.to_string()))?;
                }
                self.pages = page + 1;
                if self.entries.heap_bytes() as u64 > bytes {
                    return Ok(false);
                }
            }
            if self.entries.len() as u64 > record.segments {
                break;
            }
        }
        if self.entries.len() as u64 != record.segments {
            let why = format!("it holds {} segments or more, not {}", self.entries.len(), record.segments);
            return Err(damaged(why).into());
        }
        Ok(true)
    }
}

/// Reads parts of the directory of that record, unless their memory may have another use by then.
/// The endpoint that has read them is the one that tells: what another knows may be older.
fn run_unmoved<E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
) -> Result<(), RefetchReason> {
    endpoint.run(batch)?;
    match reuse_sequence(endpoint)? > record.checkpoint {
        true => Err(RefetchReason::Moved),
        false => Ok(()),
    }
}

pub(super) fn check_lies_inside(
    what: &'static str,
    offset: u64,
    bytes: u64,
    region_bytes: u64,
) -> Result<(), Corrupt> {
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
) -> Result<(Root<K>, K::Encoders), RefetchReason> {
    let damaged = |why| Corrupt::new("directory root", record.root, why);
    // Of pages that lie in the region, as this limits what its separators take.
    if record.pages.saturating_mul(K::PAGE_BYTES as u64) > region_bytes {
        return Err(damaged("the region does not hold its pages").into());
    }
    batch.clear();
    // Both fit, as they lie inside the region.
    let root = batch.read(RemoteAddr::region(record.root), record.root_bytes as usize);
    let encoders = (record.encoders_bytes > 0)
        .then(|| batch.read(RemoteAddr::region(record.encoders), record.encoders_bytes as usize));
    run_unmoved(endpoint, batch, record)?;
    let root = batch.bytes(root);
    let encoders = encoders.map_or(&[][..], |landing| batch.bytes(landing));
    if xxh3_64_with_seed(root, record.checkpoint) != record.root_checksum {
        return Err(damaged("its checksum does not match").into());
    }
    if !encoders.is_empty() && xxh3_64(encoders) != record.encoders_checksum {
        return Err(Corrupt::new("encoders", record.encoders, "their checksum does not match").into());
    }
    let encoders =
        K::decode_encoders(encoders).map_err(|why| Corrupt::new("encoders", record.encoders, why))?;
    let entries = decode_root(root, record.pages)
        .ok_or_else(|| damaged("an entry is cut short, or there are more than the table has pages"))?;
    Ok((Root::new(record, entries, &encoders, region_bytes)?, encoders))
}
