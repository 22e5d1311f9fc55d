//! The pages that hold entries.

use super::separators::{BLOCK, PAGE};
use std::sync::Arc;

/// Most entries of a leaf. A change writes a new leaf, a plain copy.
pub const LEAF: usize = PAGE;

/// Up to [`LEAF`] entries beside the heads of their separators, as its parent holds them.
///
/// The pivots lie in the parent, so that the search can begin before the entries have arrived. It
/// then reads heads and entry of one block of eight, which arrive together: one wait for the leaf's
/// memory instead of three. There are exactly as many entries as needed: a leaf is written anew
/// when it changes, so that spare room would never be used.
#[derive(Debug)]
pub struct Leaf<Text, T> {
    /// As in [`super::separators::Separators`].
    pub(super) pivots: [u64; BLOCK],
    pub(super) entries: Arc<[(u64, T)]>,
    /// The rest of the separators beside the heads.
    pub(super) text: Text,
}

impl<Text: Clone, T> Clone for Leaf<Text, T> {
    fn clone(&self) -> Self {
        Self { pivots: self.pivots, entries: Arc::clone(&self.entries), text: self.text.clone() }
    }
}

impl<Text, T> Leaf<Text, T> {
    /// The entry at `index`.
    #[inline(always)]
    pub(super) fn entry(&self, index: usize) -> Option<&T> {
        self.entries.get(index).map(|(_, entry)| entry)
    }
}
