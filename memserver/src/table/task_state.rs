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
#[derive(Debug)]
pub(super) struct RoomSearch<K: BuildKeys> {
    /// Bytes of the extent.
    pub(super) len: u64,
    pub(super) stage: SearchStage<K>,
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum SearchStage<K: BuildKeys> {
    /// Bringing segments together.
    Sweeping,
    /// Waiting for a directory that contains this many changes; then sweeping continues, unless it
    /// was the last sweep.
    FreeingSwept { head: u64, is_last: bool },
    /// Emptying a range, up to this key so far, with this many segments replaced.
    Emptying { from: K::Owned, replaced: u64 },
    /// Waiting for a directory that contains this many changes.
    FreeingEmptied { head: u64, replaced: u64 },
}
