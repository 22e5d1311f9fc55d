//! Stretches of slots, and the keys that they cover.

use fpcache_fabric::Landing;

use crate::key_space::KeySpace;
use crate::read::segment_search::LocatedSegment;

/// The keys that a stretch has all of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cover {
    /// Those whose windows lie in it.
    Windows,
    /// Those of the blocks up to this one, as long as none of them is marked.
    Blocks(u16),
}

/// Slots to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoveredSlots {
    /// The first.
    pub(super) first: u32,
    /// One past the last.
    pub(super) end: u32,
    /// About how many of them have records below those that are wanted.
    pub(super) before: u32,
    pub(super) cover: Cover,
}

/// A stretch of one segment's slots that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Stretch<K: KeySpace> {
    pub(super) place: LocatedSegment<K>,
    /// The first slot, and one past the last.
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) cover: Cover,
    pub(super) landing: Landing,
}

impl<K: KeySpace> Stretch<K> {
    /// Whether the segment has no slots after it.
    pub(super) fn is_to_end(&self) -> bool {
        self.end == self.place.cap()
    }
}

/// The stretch whose segment has more keys than were covered.
#[derive(Clone, Debug)]
pub(super) struct Cut<K: KeySpace> {
    pub(super) place: LocatedSegment<K>,
    /// First block that is not covered.
    pub(super) end: u16,
}
