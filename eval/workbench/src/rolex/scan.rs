//! Scans: the leaves in which the records wanted from a key on may be, and their synonym leaves
//! after them.

use std::rc::Rc;

use super::Rolex;
use super::leaf::{records, replaced};
use super::models::Model;
use super::task::{Stage, Task};
use crate::bench::{Answer, Operation};
use crate::words::{Next, Turn};

impl Rolex {
    /// Wants the leaves that `count` records from a key on may be in, as they were loaded, from a
    /// model's on.
    pub(super) fn want_scan(
        &self,
        task: &mut Task,
        mut model: Rc<Model>,
        (key, count): (u64, u32),
        compute: usize,
    ) {
        let (mut first, _) = model.leaves_of(key, &self.options);
        // The place of the last one, in this model's leaves or in those of the ones after it.
        let mut place = model.last_place(key, count, &self.options);
        while place >= model.places()
            && let Some(next) = self.after(&model, compute)
        {
            task.wanted.extend(first..=model.last_leaf());
            place -= model.places();
            first = next.first_leaf;
            model = next;
        }
        let last = (model.first_leaf + place / self.options.leaf_slots).clamp(first, model.last_leaf());
        task.wanted.extend(first..=last);
        task.model = Some(model);
    }

    /// The model of the keys after a model's, as a compute node knows it.
    fn after(&self, model: &Model, compute: usize) -> Option<Rc<Model>> {
        self.known[compute].of(model.end?).map(Rc::clone)
    }

    /// Wants `leaves` leaves after those that were wanted; `false` if there are none.
    fn want_more(&self, task: &mut Task, mut leaves: usize, compute: usize) -> bool {
        let (Some(mut model), Some(last)) = (task.model.take(), task.wanted.last().copied()) else {
            return false;
        };
        let mut next = last + 1;
        task.wanted.clear();
        while leaves > 0 {
            if next > model.last_leaf() {
                let Some(after) = self.after(&model, compute) else { break };
                (next, model) = (after.first_leaf, after);
            }
            task.wanted.push(next);
            (next, leaves) = (next + 1, leaves - 1);
        }
        task.model = Some(model);
        !task.wanted.is_empty()
    }

    /// Takes leaves from the one on that the least wanted key belongs to, until they have as many
    /// records as are wanted; then theirs may be those of their synonyms.
    pub(super) fn take_scan(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Operation::Scan { key, count } = turn.operation else { return Next::Trip };
        let (landed, wanted) = (turn.landed, count as usize);
        if let Some(old) = task.landed.iter().find_map(|leaf| replaced(landed.words(*leaf))) {
            return self.ask_models(task, old, turn);
        }
        // Leaves never lose their least record: the key's is the last one that begins before it.
        let begins = |leaf: &[u64]| records(leaf).first().is_some_and(|[first, _]| *first <= key);
        let place = task.landed.iter().rposition(|leaf| begins(landed.words(*leaf))).unwrap_or(0);
        let mut synonyms = Vec::new();
        for leaf in &task.landed[place..] {
            let leaf = landed.words(*leaf);
            task.records.extend(from(key, leaf));
            synonyms.extend(Some(leaf[1]).filter(|synonym| *synonym != 0));
            if task.records.len() >= wanted {
                break;
            }
        }
        self.ask_synonyms(task, &synonyms, turn)
    }

    fn ask_synonyms(&mut self, task: &mut Task, synonyms: &[u64], turn: &mut Turn<'_>) -> Next {
        if synonyms.is_empty() {
            return self.end_or_go_on(task, turn);
        }
        task.landed.clear();
        for synonym in synonyms {
            task.landed.push(self.read_leaf(*synonym, turn));
        }
        task.stage = Stage::Synonyms;
        Next::Trip
    }

    pub(super) fn take_synonyms(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let mut next = Vec::new();
        let mut landed = task.landed.iter().map(|leaf| turn.landed.words(*leaf));
        if let Some(old) = landed.find_map(replaced) {
            return self.ask_models(task, old, turn);
        }
        for leaf in &task.landed {
            let leaf = turn.landed.words(*leaf);
            task.records.extend(from(turn.operation.key(), leaf));
            next.extend(Some(leaf[1]).filter(|synonym| *synonym != 0));
        }
        self.ask_synonyms(task, &next, turn)
    }

    /// Ends with enough records, or all there are; else asks for the leaves after those that were
    /// taken.
    fn end_or_go_on(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Operation::Scan { count, .. } = turn.operation else { return Next::Trip };
        let missing = (count as usize).saturating_sub(task.records.len());
        if missing > 0 && self.want_more(task, missing.div_ceil(self.options.leaf_slots), turn.compute) {
            return self.ask(task, turn);
        }
        task.records.sort_unstable();
        task.records.truncate(count as usize);
        if !self.options.behind_pointers || task.records.is_empty() {
            return Next::Done(Answer::Records(std::mem::take(&mut task.records)));
        }
        task.landed.clear();
        for (_, at) in &task.records {
            task.landed.push(turn.trip.read(*at, 1, self.sizes.value));
        }
        task.stage = Stage::Values;
        Next::Trip
    }
}

/// Records of a leaf that a scan from a key on wants.
fn from(key: u64, leaf: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    records(leaf).iter().map(|[key, value]| (*key, *value)).filter(move |(found, _)| *found >= key)
}
