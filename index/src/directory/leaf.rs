//! The pages that hold entries.

use super::key::{DirectoryKey, Kind};
use super::node::{Node, counted_bytes};
use super::separators::{BLOCK, PAGE};
use std::alloc::Layout;
use std::sync::Arc;

/// Most entries of a leaf. A change writes a new leaf, a plain copy.
pub const LEAF: usize = PAGE;

/// Entries of a leaf of a new directory. The room to grow before it splits takes no memory.
const NEW_LEAF: usize = LEAF - LEAF / 8;

/// Up to [`LEAF`] entries beside the heads of their separators, as its parent holds them.
///
/// The pivots lie in the parent, so that the search can begin before the entries have arrived. It then reads heads and
/// entry of one block of eight, which arrive together: one wait for the leaf's memory instead of three. There are exactly
/// as many entries as needed: a leaf is written anew when it changes, so that spare room would never be used.
#[derive(Debug)]
pub struct Leaf<K: Kind + ?Sized, T> {
    /// As in [`super::separators::Separators`].
    pub(super) pivots: [u64; BLOCK],
    pub(super) entries: Arc<[(u64, T)]>,
    /// What the heads do not say of the separators.
    pub(super) text: K::Text,
}

impl<K: Kind + ?Sized, T> Clone for Leaf<K, T> {
    fn clone(&self) -> Self {
        Self { pivots: self.pivots, entries: Arc::clone(&self.entries), text: self.text.clone() }
    }
}

impl<K: DirectoryKey + ?Sized, T> Leaf<K, T> {
    /// Bytes outside the parent.
    pub(super) fn heap_bytes(&self) -> usize {
        counted_bytes(Layout::for_value(&*self.entries)) + K::text_bytes(&self.text)
    }

    /// The entry at `index`.
    #[inline(always)]
    pub(super) fn entry(&self, index: usize) -> Option<&T> {
        self.entries.get(index).map(|(_, entry)| entry)
    }

    /// The separator of the entry at `index`, if there is one.
    #[inline(always)]
    pub(super) fn separator(&self, index: usize) -> Option<K::Owned> {
        if index >= self.entries.len() {
            return None;
        }
        let mut cursor = K::Cursor::default();
        K::seek(self, index, &mut cursor);
        Some(K::current(&cursor).to_owned())
    }
}

/// Leaves of a new directory.
pub(super) fn cut_new<K: DirectoryKey + ?Sized, T: Clone>(entries: Vec<(K::Owned, T)>) -> Vec<Leaf<K, T>> {
    K::leaves(entries, NEW_LEAF)
}

impl<K: DirectoryKey + ?Sized, T: Clone> Node<K, T> for Leaf<K, T> {
    const MOST: usize = LEAF;

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn count_entries(&self) -> usize {
        self.entries.len()
    }

    fn splice(
        &mut self,
        lo: Option<&K>,
        hi: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self> {
        let (count, leaves) = K::splice(self, lo, hi, with);
        *removed += count;
        leaves
    }

    fn join(self, right: Self) -> Vec<Self> {
        K::join(&self, &right)
    }
}
