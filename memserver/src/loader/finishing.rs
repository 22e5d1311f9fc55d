//! The end of a load: the directory while it is being written, and the result.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RootEntry, TableRecord};
use fpcache::models::Segment;
use fpcache_index::Directory;

use crate::space::Extent;
use crate::table::room::directory_reserve::SeparatorBytes;
use crate::table::values::ExternalValues;

/// The directory of a load, being written.
#[derive(Debug)]
pub(super) struct Finishing<K: BuildKeys> {
    pub(super) root: Vec<RootEntry<K>>,
    pub(super) published: Vec<Extent>,
    /// The next descriptor.
    pub(super) next: usize,
    /// The same directory as the memory node will have it.
    pub(super) directory: Directory<K::Key, Segment<K>>,
    pub(super) separators: SeparatorBytes,
    pub(super) segment_bytes: u64,
}

impl<K: BuildKeys> Default for Finishing<K> {
    fn default() -> Self {
        let (root, published, separators) = (Vec::new(), Vec::new(), SeparatorBytes::default());
        let directory = Directory::from_sorted(Vec::new()).expect("nothing is out of order");
        Self { root, published, next: 0, directory, separators, segment_bytes: 0 }
    }
}

/// The result of a finished load.
#[derive(Debug)]
pub(crate) struct Finished<K: BuildKeys> {
    pub(crate) record: TableRecord,
    pub(crate) directory: Directory<K::Key, Segment<K>>,
    pub(crate) separators: SeparatorBytes,
    pub(crate) segment_bytes: u64,
    pub(crate) encoders: K::Encoders,
    /// Where the directory lies.
    pub(crate) published: Vec<Extent>,
    /// End of the bytes in use.
    pub(crate) used: u64,
    /// What is free before that.
    pub(crate) unused: Vec<Extent>,
    pub(crate) next_generation: u32,
    pub(crate) external: ExternalValues,
}
