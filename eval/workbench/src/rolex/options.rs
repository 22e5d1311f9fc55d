//! What ROLEX is set up with.

/// How ROLEX is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep: models, and of leaf tables what is left.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Entries of a leaf.
    pub leaf_slots: usize,
}

impl Options {
    /// The published ones: an error bound of 16 and leaves of 16.
    pub fn published(budget: u64) -> Self {
        Self { budget, epsilon: 16, leaf_slots: 16 }
    }
}
