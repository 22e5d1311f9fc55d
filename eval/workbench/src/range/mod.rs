//! Plain range reads: see the folder's `README.md`.

use crate::segments::{Filter, Options, Segmented};
use crate::words::Memory;
use crate::{BuildError, Sizes};

/// No filter: every record of a key's window is READ.
pub type Range = Segmented<NoFilter>;

/// There is none of these.
#[derive(Clone, Copy, Debug)]
pub enum NoFilter {}

impl Filter for NoFilter {
    fn contains(&self, _: u64) -> bool {
        match *self {}
    }

    fn add(&mut self, _: u64) {
        match *self {}
    }

    fn bytes(&self) -> u64 {
        match *self {}
    }
}

/// Segments of ascending keys with their first values, for so many compute nodes.
///
/// # Errors
/// If an option is out of range, or the directory does not fit the budget.
pub fn build(
    memory: &mut Memory,
    keys: &[u64],
    sizes: Sizes,
    compute_nodes: u16,
    options: &Options,
) -> Result<Range, BuildError> {
    Segmented::new(memory, keys, sizes, compute_nodes, &Options { page: None, ..*options }, None)
}
