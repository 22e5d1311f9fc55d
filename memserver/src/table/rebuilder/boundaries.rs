//! Boundaries between the ranges of planned segments.

use std::borrow::Borrow;

use fpcache::key_space::{Boundary, BoundaryRequest, BuildKeys};

use super::planned::PlannedSegment;
use crate::rebuild::plan::Planned;

/// Parts the planned segments of a division from one another.
pub(super) struct Parting<'a, K: BuildKeys> {
    /// The division's keys, and their coordinates.
    pub(super) keys: &'a [&'a K::Key],
    pub(super) xs: &'a [u64],
    /// Where its range ends.
    pub(super) end: Option<&'a K::Key>,
    pub(super) tail: K::Tail,
    pub(super) encoders: &'a K::Encoders,
}

impl<K: BuildKeys> Parting<'_, K> {
    /// Adds the next segment, whose range begins with `begin` if it is the first of the division,
    /// to those before. The division's first key is the `first` of all.
    pub(super) fn add(
        &self,
        begin: Option<K::Owned>,
        mut planned: Planned,
        first: usize,
        new: &mut Vec<PlannedSegment<K>>,
    ) {
        let start = match begin {
            Some(begin) => begin,
            None => match self.boundary(&planned, new) {
                Some(start) => start,
                // Slots kept for keys to come that no boundary parts from other keys.
                None if planned.keys.is_empty() => return,
                // The segment before has its place, and no keys.
                None => match new.pop() {
                    Some(before) => before.start,
                    None => return,
                },
            },
        };
        planned.keys = first + planned.keys.start..first + planned.keys.end;
        new.push(PlannedSegment { start, tail: self.tail, planned, groups: None });
    }

    /// Where the range of a segment begins that is not the first of its division.
    fn boundary(&self, planned: &Planned, new: &[PlannedSegment<K>]) -> Option<K::Owned> {
        let before = new.last()?;
        let (at, start) = (planned.keys.start, before.start.borrow());
        let next = self.keys.get(at).copied();
        let previous = at.checked_sub(1);
        // That range may begin after the key, where slots were kept free.
        let below = previous.map_or(start, |previous| self.keys[previous].max(start));
        let wanted = if before.planned.keys.is_empty() || planned.keys.is_empty() {
            Boundary::AtCoordinate
        } else if previous.is_some_and(|previous| {
            let (x, next_x) = (self.xs[previous], self.xs[at]);
            x.checked_add(1) == Some(planned.first_x) && next_x != planned.first_x && next_x != x
        }) {
            Boundary::RightAfter
        } else {
            Boundary::Anywhere
        };
        let Self { end, tail, encoders, .. } = *self;
        K::boundary(&BoundaryRequest { x: planned.first_x, below, next, end, wanted, tail }, encoders)
    }
}
