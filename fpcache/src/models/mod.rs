//! The models of a table on a compute node: all of them, or those that fit its bytes.
//!
//! A model, an address and a first key take 42 bytes per segment of integer keys; of byte strings
//! about as much as that and what front coding leaves of a separator. Where a compute node has
//! fewer, it keeps the directory's top level, for integers 16 bytes per page of up to 102 segments,
//! and fetches pages as it needs them.

mod page;
mod paged;
mod root;
mod segment;
mod shard;

use fpcache_index::Directory;
pub use page::Page;
pub use paged::PagedModels;
pub(crate) use root::Root;
pub use segment::Segment;

use crate::key_space::KeySpace;
use crate::layout::TableRecord;

/// The part of a table's directory that a compute node keeps.
#[derive(Debug)]
pub enum Models<K: KeySpace> {
    /// All of it. Nothing on the way to a segment takes a lock.
    Resident(Directory<K::Key, Segment<K>>),
    /// The top level, and pages as they are needed.
    Paged(PagedModels<K>),
}

impl<K: KeySpace> Models<K> {
    /// The whole directory, if it is here.
    #[inline]
    pub fn resident(&self) -> Option<&Directory<K::Key, Segment<K>>> {
        match self {
            Self::Resident(directory) => Some(directory),
            Self::Paged(_) => None,
        }
    }

    /// The part of the directory that is here, if it is a part.
    #[inline]
    pub fn paged(&self) -> Option<&PagedModels<K>> {
        match self {
            Self::Resident(_) => None,
            Self::Paged(models) => Some(models),
        }
    }

    /// Passes the segment whose range holds a key to `take`, with how many bytes the key shares
    /// with its first one; `None` if the page of the directory for it is not here.
    #[inline(always)]
    pub(crate) fn with_segment<R>(
        &self,
        key: &K::Key,
        take: impl FnOnce(&Segment<K>, usize) -> R,
    ) -> Option<R> {
        match self {
            Self::Resident(directory) => {
                let (segment, shared) = directory.find_shared(key)?;
                Some(take(segment, shared))
            }
            Self::Paged(models) => {
                let page = models.kept(models.page_of(key))?;
                let (segment, shared) = page.find_shared(key);
                Some(take(segment, shared))
            }
        }
    }

    /// Bytes of the models with everything around them. O(number of pages) for a resident
    /// directory.
    pub fn size_in_bytes(&self) -> usize {
        match self {
            Self::Resident(d) => size_of::<Self>() + (d.size_in_bytes() - size_of_val(d)),
            Self::Paged(models) => size_of::<Self>() + models.heap_bytes(),
        }
    }

    /// The bytes they never exceed, whatever is fetched.
    pub(crate) fn most_bytes(&self) -> usize {
        match self {
            Self::Resident(_) => self.size_in_bytes(),
            Self::Paged(models) => size_of::<Self>() + models.most_heap_bytes(),
        }
    }

    /// Bytes that a resident directory of `segments` segments, in `pages` pages, does not exceed: a
    /// few per cent above what it takes, which is known only when it is there. Of byte strings an
    /// estimate: those that share little with their neighbours may take twice as much.
    pub(crate) fn resident_bytes_at_most(segments: u64, pages: u64) -> u64 {
        /// What lies above the pages begins with as much, and the last group of pages may be nearly
        /// empty.
        const ABOVE_PAGES: u64 = 5 << 10;
        let entries = match K::FIXED_BYTES {
            Some(bytes) => segments.saturating_mul((bytes + size_of::<Segment<K>>()) as u64),
            // Pages hold separators cut much like the directory does, which has every eighth nearly
            // whole.
            None => pages.saturating_mul(K::PAGE_BYTES as u64).saturating_add(segments.saturating_mul(16)),
        };
        entries.saturating_add(entries / 15).saturating_add(ABOVE_PAGES)
    }
}

/// Within a number of bytes, those of [`Models`] itself included.
impl<K: KeySpace> PagedModels<K> {
    /// Models that take no more than `bytes`, of which there must be [`Self::least_bytes`].
    pub(crate) fn new(root: Root<K>, record: &TableRecord, bytes: usize) -> Self {
        Self::within_heap(root, record, bytes.saturating_sub(size_of::<Models<K>>()))
    }

    /// Bytes of everything: top level, containers with their room for entries, locks, and the pages
    /// that are kept with their reference counts. Without the allocator's own. At no moment more
    /// than the models were given.
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Models<K>>() + self.heap_bytes()
    }

    /// The fewest bytes with which a directory of `pages` pages can be used: its top level, the
    /// containers, and room for one page. Without what separators have on the heap, which is known
    /// when the top level is here.
    pub const fn least_bytes(pages: u64) -> usize {
        let pages = if pages > u32::MAX as u64 { u32::MAX as usize } else { pages as usize };
        size_of::<Models<K>>().saturating_add(Self::least_heap_bytes(pages))
    }

    /// The same, once the top level is here.
    pub(crate) fn least_bytes_with(root: &Root<K>) -> usize {
        size_of::<Models<K>>() + Self::least_heap_bytes_with(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;
    use crate::layout::Descriptor;

    #[test]
    fn a_resident_directory_takes_no_more_than_was_foretold_and_little_less() {
        let segment = Segment::from(&Descriptor::<U64Keys>::example(0, 0, ()));
        let counts = (1..2000).chain((11..17).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
        for segments in counts.chain([56 * 32 * 32, 56 * 32 * 32 + 1]) {
            let entries = (0..segments).map(|start| (start, segment)).collect();
            let models = Models::<U64Keys>::Resident(Directory::from_sorted(entries).unwrap());
            let (true_size, foretold) =
                (models.size_in_bytes() as u64, Models::<U64Keys>::resident_bytes_at_most(segments, 1));
            assert!(true_size <= foretold, "{segments} segments: {true_size} bytes, not {foretold}");
            assert!(
                foretold <= true_size * 106 / 100 + 5300,
                "{segments} segments: {true_size} bytes, not {foretold}"
            );
        }
    }
}
