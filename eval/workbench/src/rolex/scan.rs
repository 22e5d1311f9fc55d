//! Scans: the leaves in which so many records from a key on may be, and their synonym leaves after them.

use super::{Rolex, Stage, Task, records};
use crate::bench::{Answer, Operation};
use crate::words::{Next, Turn};

impl Rolex {
    /// The first and the last leaf that so many records from a key on may be in, as they were loaded.
    pub(super) fn leaves_of_scan(&self, key: u64, count: u32) -> (usize, usize) {
        let (first, _) = self.leaves_of(key);
        let mut number = self.firsts.partition_point(|first| *first <= key).saturating_sub(1);
        let Some(model) = self.models.get(number) else { return (first, first) };
        // The place of the last one, in this model's leaves or in those of the ones after it.
        let mut place =
            model.model.predict(key) as usize + (self.options.epsilon + count.max(1) - 1) as usize;
        while let [model, _, ..] = &self.models[number..]
            && place >= usize::from(model.model.cap)
        {
            place -= usize::from(model.model.cap);
            number += 1;
        }
        let last = self.models[number].first_leaf + place / self.options.leaf_slots;
        (first, last.min(self.leaves - 1).max(first))
    }

    /// The answer where there is not one leaf.
    pub(super) fn nothing(&self, operation: Operation) -> Answer {
        match operation {
            Operation::Scan { .. } => Answer::Records(Vec::new()),
            _ => Answer::Value(None),
        }
    }

    /// Takes leaves from the one on that the least wanted key belongs to, until they have as many records as are wanted; then
    /// theirs may be those of their synonyms.
    pub(super) fn take_scan(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Operation::Scan { key, count } = turn.operation else { return Next::Trip };
        let (landed, wanted) = (turn.landed, count as usize);
        // Leaves never lose their least record: the key's is the last one that begins before it.
        let begins = |leaf: &[u64]| records(leaf).first().is_some_and(|[first, _]| *first <= key);
        let place = task.landed.iter().rposition(|leaf| begins(landed.words(*leaf))).unwrap_or(0);
        let mut synonyms = Vec::new();
        let mut taken = 0;
        for leaf in &task.landed[place..] {
            let leaf = landed.words(*leaf);
            task.records.extend(from(key, leaf));
            synonyms.extend(Some(leaf[1]).filter(|synonym| *synonym != 0));
            taken += 1;
            if task.records.len() >= wanted {
                break;
            }
        }
        // Where a scan goes on that has not got enough.
        task.wanted.1 = task.wanted.0 + place + taken - 1;
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
        for leaf in &task.landed {
            let leaf = turn.landed.words(*leaf);
            task.records.extend(from(turn.operation.key(), leaf));
            next.extend(Some(leaf[1]).filter(|synonym| *synonym != 0));
        }
        self.ask_synonyms(task, &next, turn)
    }

    /// Ends with enough records, or all there are; else asks for the leaves after those that were taken.
    fn end_or_go_on(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Operation::Scan { count, .. } = turn.operation else { return Next::Trip };
        let (wanted, (_, last)) = (count as usize, task.wanted);
        if task.records.len() >= wanted || last + 1 >= self.leaves {
            task.records.sort_unstable();
            task.records.truncate(wanted);
            return Next::Done(Answer::Records(std::mem::take(&mut task.records)));
        }
        let more = (wanted - task.records.len()).div_ceil(self.options.leaf_slots);
        task.wanted = (last + 1, (last + more).min(self.leaves - 1));
        self.ask(task, turn)
    }
}

/// Records of a leaf that a scan from a key on wants.
fn from(key: u64, leaf: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    records(leaf).iter().map(|[key, value]| (*key, *value)).filter(move |(found, _)| *found >= key)
}
