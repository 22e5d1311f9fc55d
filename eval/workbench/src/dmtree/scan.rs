//! Scans: leaves, and before them the fingerprints that say where these lie, of leaves whose place
//! is not known.

use super::{DmTree, LEAF, RECORD, SPAN, Stage, TABLE, TABLE_BYTES, Task, USED};
use crate::inner_nodes::{Leaf, Scanned};
use crate::nic::Target;
use crate::words::{Address, Memory, Next, Turn};

impl DmTree {
    /// Where a leaf lies whose fingerprints are these, if this compute node knows.
    fn leaf_of(&mut self, table: Address, turn: &Turn<'_>) -> Option<Address> {
        match Memory::node_of(table) == Target::Compute(turn.compute as u16) {
            true => Some(turn.memory.words(table, TABLE)[1]),
            false => self.copies[turn.compute].get(table).map(|copy| copy[1]),
        }
    }

    /// Asks for the leaves of a scan, or for the fingerprints that say where some of them lie.
    pub(super) fn ask_leaves(&mut self, task: &mut Task, turn: &mut Turn<'_>) {
        let before = std::mem::take(&mut task.asked);
        let mut leaves = Vec::with_capacity(task.scan.leaves.len());
        for (table, _) in &task.scan.leaves {
            let came =
                before.iter().find(|(at, _)| at == table).map(|(_, words)| turn.landed.words(*words)[1]);
            match came.or_else(|| self.leaf_of(*table, turn)) {
                Some(leaf) => leaves.push(leaf),
                None => task.asked.push((*table, turn.trip.read(*table, TABLE, TABLE_BYTES))),
            }
        }
        if task.asked.is_empty() {
            let (mut leaves, bytes) = (leaves.into_iter(), self.leaf_bytes());
            task.scan.ask(|_| turn.trip.read(leaves.next().unwrap_or(0), LEAF, bytes));
            task.stage = Stage::Leaves;
        } else {
            task.stage = Stage::Tables;
        }
    }

    /// Keeps the fingerprints that a scan has asked for.
    pub(super) fn take_tables(&mut self, task: &mut Task, turn: &mut Turn<'_>) {
        for (table, words) in &task.asked {
            if let Some(words) = turn.landed.words(*words).first_chunk::<TABLE>() {
                self.copies[turn.compute].keep(*table, *words);
            }
        }
        self.ask_leaves(task, turn);
    }

    pub(super) fn take_leaves(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        match self.inner.take_leaves(&mut task.scan, (self.per_leaf, look), turn) {
            Scanned::Whole => return task.scan.answer(),
            Scanned::Named => self.ask_leaves(task, turn),
            Scanned::Seek(seek) => return self.go_on(task, seek, turn),
        }
        Next::Trip
    }
}

/// A leaf as a scan sees it; the one after it by where its fingerprints lie.
fn look(leaf: &[u64]) -> Leaf<impl Iterator<Item = (u64, u64)>> {
    let (records, fence) = leaf.split_at(SPAN * RECORD);
    let used = records.as_chunks::<RECORD>().0.iter().filter(|[.., used]| *used == USED);
    Leaf { high: fence[0], next: fence[1], records: used.map(|[key, value, _]| (*key, *value)) }
}
