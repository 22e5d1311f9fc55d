//! Planned segments.

use fpcache::key_space::BuildKeys;
use fpcache::layout::Grouping;

use crate::grouping::{Groups, group};
use crate::rebuild::plan::Planned;

/// What segments are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FillGoal {
    /// Writes to come: with free slots where they are expected.
    ForWrites,
    /// Taking little room.
    Compact,
}

/// A planned segment.
#[derive(Debug)]
pub(crate) struct PlannedSegment<K: BuildKeys> {
    pub(crate) start: K::Owned,
    pub(crate) tail: K::Tail,
    /// Its keys are places among the gathered records.
    pub(crate) planned: Planned,
    /// Its groups, if its keys are in groups.
    pub(crate) groups: Option<Groups>,
}

impl<K: BuildKeys> PlannedSegment<K> {
    /// Puts its keys, which have these coordinates and hashes, into groups if possible. Not with a
    /// reserve: equal groups would leave no slots where the run of inserts continues.
    pub(super) fn group(&mut self, grouping: Grouping, epsilon: u32, xs: &[u64], hashes: &[u64]) {
        let planned = &mut self.planned;
        if xs.is_empty() || planned.has_reserve {
            return;
        }
        if let Some(grouped) = group(grouping, epsilon, (planned.model, xs.len()), xs, hashes) {
            (planned.model, planned.slots) = (grouped.model, grouped.slots);
            self.groups = Some(grouped.groups);
        }
    }
}
