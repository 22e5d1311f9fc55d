//! Models of a table that exceed their bytes: pages of descriptors, fetched when they are needed.

use std::sync::Arc;

use super::root::Root;
use super::shard::{Shard, Split};
use super::{Models, Page};
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, TableRecord};

/// The top level of a table's directory, and as many of its pages as there is room for, the least recently used the first
/// to go.
///
/// A page that is not kept takes one more READ, of [`KeySpace::PAGE_BYTES`]. Pages are checked whenever they arrive. A table's pages
/// stay where they are while it is published, so that a page fetched late belongs to the same directory.
///
/// A reader that holds a page goes on with it after it has given way to others. It then counts as that reader's, like
/// the buffers in which pages arrive, and no longer as kept.
#[derive(Debug)]
pub struct PagedModels<K: KeySpace> {
    root: Root<K>,
    shards: Box<[Shard<K>]>,
}

impl<K: KeySpace> PagedModels<K> {
    /// Models that take no more than `bytes`, of which there must be [`Self::least_bytes`].
    pub(crate) fn new(root: Root<K>, record: &TableRecord, bytes: usize) -> Self {
        let pages = root.pages();
        let average = record.segments.div_ceil(pages.max(1) as u64);
        let rest = bytes.saturating_sub(size_of::<Models<K>>() + root.size_in_bytes());
        let split = Split::new::<K>(rest, pages, usize::try_from(average).unwrap_or(usize::MAX));
        Self { root, shards: (0..split.shards).map(|_| Shard::new(split)).collect() }
    }

    /// Number of the page for `key`, whether kept or not. A binary search among the pages.
    #[inline]
    pub fn page_of(&self, key: &K::Key) -> u32 {
        self.root.page_of(key)
    }

    /// Pages of the directory, kept or not; their numbers count from 0.
    pub fn pages(&self) -> u32 {
        // Fits, as the root was checked.
        self.root.pages() as u32
    }

    /// Offset in the region of a page's 4096 bytes.
    #[inline]
    pub fn address(&self, page: u32) -> u64 {
        self.root.address(page)
    }

    /// The page, if it is kept; it becomes the most recently used. One lock, which other threads take for pages of the
    /// same shard, and one search in a hash table.
    #[inline]
    pub fn kept(&self, page: u32) -> Option<Arc<Page<K>>> {
        self.shard(page).get(page)
    }

    /// Decodes and checks the bytes of a page that was fetched, and keeps it in the place of the least recently used ones.
    /// The page is returned even if there is no room to keep it.
    ///
    /// # Errors
    /// [`Corrupt`] if the page does not fit the directory's root, the region or itself; nothing has changed then.
    pub fn keep(&self, page: u32, bytes: &[u8]) -> Result<Arc<Page<K>>, Corrupt> {
        let mut descriptors = Vec::new();
        self.root.decode(page, bytes, &mut descriptors)?;
        Ok(self.shard(page).keep(page, Page::new(&descriptors)))
    }

    /// First key of the next page; `None` after the last.
    #[inline]
    pub fn first_after(&self, page: u32) -> Option<&K::Owned> {
        self.root.first_after(page)
    }

    /// Pages that are kept.
    pub fn pages_kept(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// Bytes of everything: top level, containers with their room for entries, locks, and the pages that are kept with
    /// their reference counts. Without the allocator's own. At no moment more than the models were given.
    pub fn size_in_bytes(&self) -> usize {
        self.size_with(self.shards.iter().map(Shard::size_in_bytes).sum())
    }

    /// The bytes they never exceed, whatever is fetched: no more than they were given.
    pub(crate) fn most_bytes(&self) -> usize {
        self.size_with(self.shards.iter().map(Shard::most_bytes).sum())
    }

    fn size_with(&self, shards: usize) -> usize {
        size_of::<Models<K>>() + self.root.size_in_bytes() + shards
    }

    /// The fewest bytes with which a directory of so many pages can be used: its top level, the containers, and room for
    /// one page. Without what separators have on the heap, which is known when the top level is here.
    pub const fn least_bytes(pages: u64) -> usize {
        let pages = if pages > u32::MAX as u64 { u32::MAX as usize } else { pages as usize };
        Self::top_bytes(pages).saturating_add(Shard::<K>::LEAST_BYTES)
    }

    /// The same, once the top level is here.
    pub(crate) fn least_bytes_with(root: &Root<K>) -> usize {
        size_of::<Models<K>>() + root.size_in_bytes() + Shard::<K>::LEAST_BYTES
    }

    const fn top_bytes(pages: usize) -> usize {
        size_of::<Models<K>>().saturating_add(Root::<K>::heap_bytes(pages))
    }

    #[inline]
    fn shard(&self, page: u32) -> &Shard<K> {
        // Inside: there is a power of two of shards.
        &self.shards[page as usize & (self.shards.len() - 1)]
    }
}
