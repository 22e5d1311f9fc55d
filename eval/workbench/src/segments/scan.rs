//! Scans: stretches of slots from a key's window on, over as many segments as hold what is wanted by their models.
//!
//! Slots are in order only to within windows: the keys of a stretch count whose whole windows lie in it, as in FPCache.

use super::store::{LIVE, SLOT_WORDS, Segment, Successors};
use super::{Filter, Segmented, Stage, Task, ask_successors};
use crate::bench::{Answer, Operation};
use crate::words::{Landed, Next, Turn};

/// A scan under way.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    /// The least key that is not covered yet.
    from: u64,
    wanted: usize,
    records: Vec<(u64, u64)>,
    stretches: Vec<Stretch>,
    /// Slots to read beyond the estimate, doubled while a stretch covers no key.
    extra: u32,
}

/// Slots of a segment that were asked for.
#[derive(Debug)]
struct Stretch {
    /// Where the segment's range begins, and that of the one after it.
    lo: u64,
    next: Option<u64>,
    segment: Segment,
    /// One past the last slot.
    end: u32,
    landed: Landed,
}

impl Scanning {
    /// Begins, if the operation is a scan.
    pub fn begin(&mut self, operation: Operation) {
        if let Operation::Scan { key, count } = operation {
            (self.from, self.wanted, self.extra) = (key, count as usize, 0);
            self.records.clear();
        }
    }

    /// The key that an operation is about: of a scan that has begun, the least that is not covered yet.
    pub fn key_of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Scan { .. } if self.wanted > 0 => self.from,
            _ => operation.key(),
        }
    }

    /// Takes the wanted records of a stretch, and says whether the scan goes on with the segment after it.
    fn take(&mut self, stretch: &Stretch, slots: &[[u64; SLOT_WORDS]]) -> bool {
        let model = stretch.segment.model;
        let (from, before, is_whole) = (self.from, self.records.len(), stretch.end == u32::from(model.cap));
        let covered = |key: u64| key >= from && (is_whole || model.window(key).last < stretch.end);
        let live = slots.iter().filter(|[what, key, _]| *what == LIVE && covered(*key));
        self.records.extend(live.map(|[_, key, value]| (*key, *value)));
        self.records[before..].sort_unstable();
        let last = self.records[before..].last().map(|(last, _)| *last);
        self.records.truncate(self.wanted);
        match (is_whole, stretch.next, last) {
            (true, Some(next), _) => self.from = next,
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

impl<F: Filter> Segmented<F> {
    /// Asks for enough slots to hold the records that are still wanted.
    pub(super) fn ask_scan(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let scan = &mut task.scan;
        let missing = (scan.wanted - scan.records.len()) as f64;
        let mut budget = (missing / self.options.fill).ceil() as u32;
        scan.stretches.clear();
        let mut segments =
            self.nodes[turn.compute].directory.range_from(&scan.from).map(|(lo, segment)| (lo, *segment));
        let mut now = segments.next();
        while let Some((lo, segment)) = now.take().filter(|_| budget > 0) {
            let (model, is_first) = (segment.model, scan.stretches.is_empty());
            let first = if is_first { model.window(scan.from).first } else { 0 };
            // The first key covered may lie two half-widths on, and so may the last one wanted.
            let margin = 4 * u32::from(model.epsilon) + 2 + scan.extra;
            let cap = u32::from(model.cap);
            let end = cap.min(first + budget + margin);
            let slots = (end - first) as usize;
            let landed =
                turn.trip.read(segment.slot(first), SLOT_WORDS * slots, slots * self.store.slot_bytes);
            now = segments.next().filter(|_| end == cap);
            let next = now.map(|(lo, _)| lo);
            scan.stretches.push(Stretch { lo, next, segment, end, landed });
            budget = budget.saturating_sub(end - first);
        }
        if scan.stretches.is_empty() {
            return Next::Done(Answer::Records(std::mem::take(&mut scan.records)));
        }
        task.stage = Stage::Stretches;
        Next::Trip
    }

    /// Takes the stretches that have landed, up to one whose segment was replaced.
    pub(super) fn take_scan(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let landed = turn.landed;
        for stretch in std::mem::take(&mut task.scan.stretches) {
            let slots = landed.words(stretch.landed);
            if let Some(successors) = Successors::in_slots(slots) {
                task.scan.from = task.scan.from.max(stretch.lo);
                return ask_successors(task, stretch.segment.at, successors, turn);
            }
            if !task.scan.take(&stretch, slots.as_chunks().0) {
                break;
            }
        }
        match task.scan.records.len() == task.scan.wanted {
            true => Next::Done(Answer::Records(std::mem::take(&mut task.scan.records))),
            false => self.ask_scan(task, turn),
        }
    }
}
