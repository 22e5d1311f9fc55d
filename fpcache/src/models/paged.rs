//! Models of a table that exceed their bytes: pages of descriptors, fetched when they are needed.

use std::sync::Arc;

use super::page::Page;
use super::root::Root;
use super::shard::{Shard, ShardSizes};
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, TableRecord};

/// The top level of a table's directory, and as many of its pages as there is room for, the least
/// recently used the first to go.
///
/// A page that is not kept takes one more READ, of [`KeySpace::PAGE_BYTES`]. Pages are checked
/// whenever they arrive. A table's pages stay where they are while it is published, so that a page
/// fetched late belongs to the same directory.
///
/// A reader that holds a page goes on with it after it has given way to others. It then counts as
/// that reader's, like the buffers in which pages arrive, and no longer as kept.
#[derive(Debug)]
pub struct PagedModels<K: KeySpace> {
    root: Root<K>,
    shards: Box<[Shard<K>]>,
}

impl<K: KeySpace> PagedModels<K> {
    /// Models that take no more than `bytes` of the heap, of which there must be
    /// [`Self::least_heap_bytes`].
    pub(super) fn within_heap(root: Root<K>, record: &TableRecord, bytes: usize) -> Self {
        let pages = root.pages();
        let average = record.segments.div_ceil(pages.max(1) as u64);
        let rest = bytes.saturating_sub(root.size_in_bytes());
        let split = ShardSizes::new::<K>(rest, pages, usize::try_from(average).unwrap_or(usize::MAX));
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

    /// Offset in the region of a page's [`KeySpace::PAGE_BYTES`].
    #[inline]
    pub fn address(&self, page: u32) -> u64 {
        self.root.address(page)
    }

    /// The page, if it is kept; it becomes the most recently used. One lock, which other threads
    /// take for pages of the same shard, and one search in a hash table.
    #[inline]
    pub fn kept(&self, page: u32) -> Option<Arc<Page<K>>> {
        self.shard(page).get(page)
    }

    /// Decodes and checks the bytes of a page that was fetched, and keeps it in the place of the
    /// least recently used ones. The page is returned even if there is no room to keep it.
    ///
    /// # Errors
    /// [`Corrupt`] if the page does not fit the directory's root, the region or itself; nothing has
    /// changed then.
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

    /// Bytes of the heap that they take: see [`PagedModels::size_in_bytes`].
    pub(super) fn heap_bytes(&self) -> usize {
        self.root.size_in_bytes() + self.shards.iter().map(Shard::size_in_bytes).sum::<usize>()
    }

    /// The bytes of the heap that they never exceed.
    pub(super) fn most_heap_bytes(&self) -> usize {
        self.root.size_in_bytes() + self.shards.iter().map(Shard::most_bytes).sum::<usize>()
    }

    /// The fewest bytes of the heap for `pages` pages: see [`PagedModels::least_bytes`].
    pub(super) const fn least_heap_bytes(pages: usize) -> usize {
        Root::<K>::heap_bytes(pages).saturating_add(Shard::<K>::LEAST_BYTES)
    }

    /// The same, once the top level is here.
    pub(super) fn least_heap_bytes_with(root: &Root<K>) -> usize {
        root.size_in_bytes() + Shard::<K>::LEAST_BYTES
    }

    #[inline]
    fn shard(&self, page: u32) -> &Shard<K> {
        // Inside: there is a power of two of shards.
        &self.shards[page as usize & (self.shards.len() - 1)]
    }
}
