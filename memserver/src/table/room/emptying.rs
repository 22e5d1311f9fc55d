//! The evacuation under way, and what is known of earlier ones.

use std::ops::Range;

use fpcache::key_space::BuildKeys;

use super::immovable::Immovables;

/// The evacuation of a range, in the background or of a search for room.
#[derive(Debug)]
pub(crate) struct Evacuation<K: BuildKeys> {
    /// The key up to which the directory has been gone through.
    pub(crate) from: K::Owned,
    /// The log head when all had been moved: memory is free once a directory has as many changes.
    pub(crate) moved: Option<u64>,
    /// Segments replaced so far.
    pub(crate) replaced: u64,
}

/// The evacuation under way, and what is known of earlier ones.
#[derive(Debug)]
pub(crate) struct Emptying<K: BuildKeys> {
    pub(crate) evacuation: Option<Evacuation<K>>,
    /// Free bytes when an evacuation could move nothing.
    pub(super) stuck: Option<u64>,
    /// Free bytes when those at the region's end had been moved.
    pub(super) shrunk: Option<u64>,
    /// Length of the longest free extent that was missed.
    pub(super) hole: u64,
    /// Length of the longest value so far.
    pub(super) longest_value: u64,
    /// A range to empty whatever it holds.
    pub(super) wanted: Option<Range<u64>>,
    /// Where the search for a range that is nearly empty goes on.
    pub(super) look_from: u64,
    /// What no range can be rid of.
    pub(crate) immovables: Immovables<K>,
}

impl<K: BuildKeys> Default for Emptying<K> {
    fn default() -> Self {
        Self {
            evacuation: None,
            stuck: None,
            shrunk: None,
            hole: 0,
            longest_value: 0,
            wanted: None,
            look_from: 0,
            immovables: Immovables::default(),
        }
    }
}

impl<K: BuildKeys> Emptying<K> {
    /// Notes that room for a value of this many bytes is needed, as it may be again.
    pub(crate) fn note_value(&mut self, bytes: u64) {
        self.longest_value = self.longest_value.max(bytes);
    }

    /// Notes that a free extent of this many bytes was missed although there were as many free
    /// ones.
    pub(crate) fn note_missed_extent(&mut self, bytes: u64) {
        self.hole = self.hole.max(bytes);
    }

    /// Has this range emptied once there is nothing else to do.
    pub(crate) fn empty(&mut self, offsets: Range<u64>) {
        self.wanted = Some(offsets);
    }
}
