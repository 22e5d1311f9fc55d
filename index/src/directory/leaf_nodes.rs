//! Leaves as nodes of a directory for one kind of key.

use super::key::{DirectoryKey, LeafOf};
use super::leaf::LEAF;
use super::node::{TreeNode, counted_bytes};
use std::alloc::Layout;

/// Entries of a leaf of a new directory. The room to grow before it splits takes no memory.
pub(super) const NEW_LEAF: usize = LEAF - LEAF / 8;

/// Leaves of a new directory.
pub(super) fn cut_new<K: DirectoryKey + ?Sized, T: Clone>(entries: Vec<(K::Owned, T)>) -> Vec<LeafOf<K, T>> {
    K::leaves(entries, NEW_LEAF)
}

/// The separator of the entry at `index`, if there is one.
#[inline(always)]
pub(super) fn separator<K: DirectoryKey + ?Sized, T>(leaf: &LeafOf<K, T>, index: usize) -> Option<K::Owned> {
    if index >= leaf.entries.len() {
        return None;
    }
    let mut cursor = K::Cursor::default();
    K::seek(leaf, index, &mut cursor);
    Some(K::current(&cursor).to_owned())
}

/// Bytes of a leaf outside its parent.
pub(super) fn heap_bytes<K: DirectoryKey + ?Sized, T>(leaf: &LeafOf<K, T>) -> usize {
    counted_bytes(Layout::for_value(&*leaf.entries)) + K::text_bytes(&leaf.text)
}

impl<K: DirectoryKey + ?Sized, T: Clone> TreeNode<K, T> for LeafOf<K, T> {
    const MOST: usize = LEAF;

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn count_entries(&self) -> usize {
        self.entries.len()
    }

    fn splice(
        &mut self,
        start: Option<&K>,
        end: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self> {
        let (count, leaves) = K::splice(self, start, end, with);
        *removed += count;
        leaves
    }

    fn join(self, right: Self) -> Vec<Self> {
        K::join(&self, &right)
    }
}
