//! Scans: stretches of slots from a key's window on, over as many segments as hold what is wanted
//! by their models.
//!
//! Slots are in order only to within windows: the keys of a stretch count whose whole windows lie
//! in it, as in FPCache.

use super::scanning::Stretch;
use super::store::{SLOT_WORDS, Successors};
use super::task::{Stage, Task, ask_successors};
use super::{Filter, Segmented};
use crate::bench::Answer;
use crate::words::{Next, Turn};

impl<F: Filter> Segmented<F> {
    /// Asks for enough slots to hold the records that are still wanted.
    pub(super) fn ask_scan(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let scan = &mut task.scan;
        let missing = (scan.wanted - scan.records.len()) as f64;
        let mut budget = (missing / self.options.fill).ceil() as u32;
        scan.stretches.clear();
        let mut segments = self.nodes[turn.compute]
            .directory
            .range_from(&scan.from)
            .map(|(start, segment)| (start, *segment));
        let mut now = segments.next();
        while let Some((start, segment)) = now.take().filter(|_| budget > 0) {
            let (model, is_first) = (segment.model, scan.stretches.is_empty());
            let first = if is_first { model.window(scan.from).first } else { 0 };
            // The first key covered may lie two half-widths on, and so may the last one wanted.
            let margin = 4 * u32::from(model.epsilon) + 2 + scan.extra;
            let cap = u32::from(model.cap);
            let end_slot = cap.min(first + budget + margin);
            let slots = (end_slot - first) as usize;
            let landed =
                turn.trip.read(segment.slot(first), SLOT_WORDS * slots, slots * self.store.slot_bytes);
            now = segments.next().filter(|_| end_slot == cap);
            let end = now.map(|(start, _)| start);
            scan.stretches.push(Stretch { start, end, segment, end_slot, landed });
            budget = budget.saturating_sub(end_slot - first);
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
                task.scan.from = task.scan.from.max(stretch.start);
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
