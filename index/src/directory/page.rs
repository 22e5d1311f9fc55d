//! Pages, and lookups in stages.

use super::key::{DirectoryKey, LeafOf};
use super::root_tree::Top;
use super::separators::{BLOCK, Steps};
use crate::prefetch;
use std::fmt;
use std::slice;

/// A page of a [`super::Directory`], found for a key: [`super::Directory::page_for`].
///
/// Its pivots have been asked for when it is returned, its entries have not. A lookup among others
/// does something else, asks for the entries with [`PageRef::prefetch`], does something else again,
/// and reads them with [`PageRef::find_shared`]. Without the middle stage the answer is the same.
pub struct PageRef<'a, K: DirectoryKey + ?Sized, T> {
    leaf: &'a LeafOf<K, T>,
    /// How the key compares with the page's first separator, or `Err` if it lies below all
    /// separators.
    trail: Result<K::Trail, usize>,
}

impl<K: DirectoryKey + ?Sized, T> Clone for PageRef<'_, K, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: DirectoryKey + ?Sized, T> Copy for PageRef<'_, K, T> {}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for PageRef<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageRef").finish_non_exhaustive()
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> PageRef<'a, K, T> {
    #[inline]
    pub(super) fn find(top: &'a Top<K, T>, key: &K, steps: impl Steps) -> Option<Self> {
        let mut trail = top.enter(key);
        let leaf = match &mut trail {
            Ok(trail) => top.leaf(key, trail, steps)?,
            Err(_) => top.first_leaf()?,
        };
        prefetch(slice::from_ref(leaf));
        Some(Self { leaf, trail })
    }

    /// Asks for the entries among which `key` is, the key for which the page was found, without
    /// waiting for them. Reads the page's pivots.
    #[inline]
    pub fn prefetch(&self, key: &K, steps: impl Steps) {
        let start = self.trail.map_or(0, |trail| K::block_of_leaf(self.leaf, key, trail, steps));
        let entries = self.leaf.entries.get(start..).unwrap_or_default();
        prefetch(entries.first_chunk::<BLOCK>().map_or(entries, |block| block));
    }

    /// As [`super::Directory::find_shared`], for the key for which the page was found; for others
    /// it is some entry of the page.
    #[inline]
    pub fn find_shared(&self, key: &K, steps: impl Steps) -> Option<(&'a T, usize)> {
        match self.trail {
            Ok(mut trail) => {
                let at = K::search_leaf(self.leaf, key, &mut trail, steps);
                Some((self.leaf.entry(at)?, K::shared(trail)))
            }
            Err(shared) => Some((self.leaf.entry(0)?, shared)),
        }
    }
}
