//! The state of a scan: what it has found, and which stretches of slots it has asked for.

use super::store::{LIVE, SLOT_WORDS, Segment};
use crate::bench::Operation;
use crate::words::Landed;

/// A scan under way.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// The least key that is not covered yet.
    pub(super) from: u64,
    pub(super) wanted: usize,
    pub(super) records: Vec<(u64, u64)>,
    pub(super) stretches: Vec<Stretch>,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    pub(super) extra: u32,
}

/// Slots of a segment that were asked for.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The segment's range; `None` if it has no end.
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) segment: Segment,
    /// One past the last slot.
    pub(super) end_slot: u32,
    pub(super) landed: Landed,
}

impl Scanning {
    /// Begins, if the operation is a scan.
    pub fn begin(&mut self, operation: Operation) {
        if let Operation::Scan { key, count } = operation {
            (self.from, self.wanted, self.extra) = (key, count as usize, 0);
            self.records.clear();
        }
    }

    /// The key that an operation is about: of a scan that has begun, the least that is not covered
    /// yet.
    pub fn key_of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Scan { .. } if self.wanted > 0 => self.from,
            _ => operation.key(),
        }
    }

    /// Takes the wanted records of a stretch, and says whether the scan goes on with the segment
    /// after it.
    pub(super) fn take(&mut self, stretch: &Stretch, slots: &[[u64; SLOT_WORDS]]) -> bool {
        let model = stretch.segment.model;
        let (from, before, is_whole) =
            (self.from, self.records.len(), stretch.end_slot == u32::from(model.cap));
        let covered = |key: u64| key >= from && (is_whole || model.window(key).last < stretch.end_slot);
        let live = slots.iter().filter(|[what, key, _]| *what == LIVE && covered(*key));
        self.records.extend(live.map(|[_, key, value]| (*key, *value)));
        self.records[before..].sort_unstable();
        let last = self.records[before..].last().map(|(last, _)| *last);
        self.records.truncate(self.wanted);
        match (is_whole, stretch.end, last) {
            (true, Some(end), _) => self.from = end,
            (true, None, _) => self.wanted = self.records.len(),
            (false, _, Some(last)) => self.from = last.saturating_add(1),
            // Not one key was covered: read further.
            (false, _, None) => {
                self.extra = self.extra.saturating_mul(2).max(64);
                return false;
            }
        }
        self.extra = 0;
        is_whole
    }
}
