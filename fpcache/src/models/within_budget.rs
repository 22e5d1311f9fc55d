//! Models in pages within a number of bytes, those of [`Models`] itself included.

use super::Models;
use super::paged::PagedModels;
use super::root::Root;
use crate::key_space::KeySpace;
use crate::layout::TableRecord;

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
