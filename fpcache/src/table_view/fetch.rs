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

type WholeDirectory<K> = Directory<<K as KeySpace>::Key, Segment<K>>;

/// The parts of a table beside its records.
pub(super) struct Fetched<K: KeySpace> {
    pub(super) root: Root<K>,
    /// If there is room for it.
    pub(super) directory: Option<WholeDirectory<K>>,
    pub(super) encoders: K::Encoders,
}

/// The directory's top level, and all the rest of it if that fits `bytes` bytes.
pub(super) fn fetch_directory<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    superblock: &Superblock,
    record: &TableRecord,
    bytes: u64,
) -> Result<Fetched<K>, OpenError> {
    let (root, encoders) = read_root(endpoint, batch, record, superblock.region_bytes)?;
    let whole = Models::<K>::resident_bytes_at_most(record.segments, record.pages)
        .saturating_add(K::encoders_bytes(&encoders) as u64);
    let directory = if whole <= bytes { read_pages(endpoint, batch, record, &root, bytes)? } else { None };
    Ok(Fetched { root, directory, encoders })
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
) -> Result<(Root<K>, K::Encoders), OpenError> {
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
    endpoint.run(batch)?;
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

/// The whole directory, or `None` as soon as it takes more than `bytes` bytes: byte strings may
/// take more than was foretold.
fn read_pages<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    batch: &mut Batch,
    record: &TableRecord,
    root: &Root<K>,
    bytes: u64,
) -> Result<Option<WholeDirectory<K>>, OpenError> {
    // Of a page after the other: separators that share kibibytes take a hundred times as much
    // whole.
    let (mut directory, mut descriptors) = (DirectoryBuilder::new(), Vec::new());
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
            for descriptor in descriptors.drain(..) {
                let segment = Segment::from(&descriptor);
                directory.push(descriptor.start, segment).map_err(|e| damaged(e.to_string()))?;
            }
            if directory.heap_bytes() as u64 > bytes {
                return Ok(None);
            }
        }
        if directory.len() as u64 > record.segments {
            break;
        }
    }
    if directory.len() as u64 != record.segments {
        let why = format!("it holds {} segments or more, not {}", directory.len(), record.segments);
        return Err(damaged(why).into());
    }
    Ok(Some(directory.finish()))
}
