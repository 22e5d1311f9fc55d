//! The directory in the region: what is published of it, and what is being written.

use fpcache::key_space::BuildKeys;
use fpcache::layout::RootEntry;
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Directory;

use super::super::segments::Segments;
use super::directory_reserve::{DirectoryReserve, SeparatorBytes};
use crate::space::Extent;

/// The directory in the region: the one that is published, and the next.
#[derive(Debug)]
pub(crate) struct Publication<K: BuildKeys> {
    /// Memory of the directory that is published.
    pub(super) published: Vec<Extent>,
    pub(super) checkpoint: Option<Checkpoint<K>>,
    /// Whether it has found no room since the last one was published.
    pub(super) lacks_room: bool,
    /// Memory for the next directory.
    pub(super) aside: DirectoryReserve,
    pub(crate) separators: SeparatorBytes,
    /// How many changes the directory that was asked for has at least: any new one will do for
    /// readers.
    pub(crate) wanted: Option<u64>,
}

impl<K: BuildKeys> Publication<K> {
    pub(crate) fn new(published: Vec<Extent>, separators: SeparatorBytes) -> Self {
        let aside = DirectoryReserve::default();
        Self { published, checkpoint: None, lacks_room: false, aside, separators, wanted: None }
    }
}

/// A directory that is being written.
#[derive(Debug)]
pub(super) struct Checkpoint<K: BuildKeys> {
    pub(super) directory: Directory<K::Key, Segment<K>>,
    /// The log head when the directory was this.
    pub(super) sequence: u64,
    pub(super) keys: u64,
    pub(super) at_home: u64,
    /// First key of the segments that are still to be written; `None` if all are.
    pub(super) next: Option<K::Owned>,
    pub(super) root: Vec<RootEntry<K>>,
    pub(super) extents: Vec<Extent>,
}

impl<K: BuildKeys> Checkpoint<K> {
    /// A directory of the segments as they are now.
    pub(super) fn begin<M: NodeMemory>(sequence: u64, segments: &Segments<K, M>) -> Self {
        Self {
            directory: segments.directory.clone(),
            sequence,
            keys: segments.keys,
            at_home: segments.at_home,
            next: segments.directory.iter().next().map(|(start, _)| start),
            root: Vec::new(),
            extents: Vec::new(),
        }
    }
}
