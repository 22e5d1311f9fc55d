//! Options that ROLEX is set up with.

use crate::Sizes;

/// How ROLEX is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep: models, and of leaf tables what is left.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Entries of a leaf.
    pub leaf_slots: usize,
    /// Whether leaves have pointers to values, as in its paper if values are longer, or the values
    /// themselves.
    pub behind_pointers: bool,
    /// Whether clients of a compute node that want one key at a time have one of them look it up,
    /// or write it, for all: as in one of the public sources, not as in its paper.
    pub shares_work: bool,
}

/// Bytes of a pointer to a value.
pub const POINTER_BYTES: usize = 8;

impl Options {
    /// The published ones: an error bound of 16 and leaves of 16; values in the leaves, as the
    /// FPCache paper's comparison reads of it (README.md).
    pub fn published(budget: u64) -> Self {
        Self { budget, epsilon: 16, leaf_slots: 16, behind_pointers: false, shares_work: false }
    }

    /// Bytes of a leaf's entry.
    pub(super) fn record_bytes(&self, sizes: Sizes) -> usize {
        sizes.key + if self.behind_pointers { POINTER_BYTES } else { sizes.value }
    }

    /// Bytes of a leaf: its entries.
    pub(super) fn leaf_bytes(&self, sizes: Sizes) -> usize {
        self.leaf_slots * self.record_bytes(sizes)
    }
}
