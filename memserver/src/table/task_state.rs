//! Work that a table is in the middle of, between two steps: a sweep over its directory, a search
//! for room.

use fpcache::key_space::BuildKeys;

/// A sweep over the directory.
#[derive(Debug)]
pub(super) struct Sweep<K: BuildKeys> {
    /// The key from which it goes on.
    pub(super) from: K::Owned,
    pub(super) pass: usize,
}

/// A search for a free extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomSearch {
    /// Bytes of the extent.
    pub(super) len: u64,
    pub(super) stage: SearchStage,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum SearchStage {
    /// Bringing segments together.
    Sweeping,
    /// Waiting for a directory that contains this many changes; then sweeping continues, unless it
    /// was the last sweep.
    FreeingSwept { head: u64, is_last: bool },
    /// Emptying a range: the evacuation under way is the search's.
    Evacuating,
}
