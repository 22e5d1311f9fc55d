//! Scans: whole leaves.

use super::layout::{LEAF, leaf_bytes};
use super::{Chime, Stage, Task, records};
use crate::inner_nodes::{Leaf, Scanned};
use crate::words::{Next, Turn};

impl Chime {
    /// Asks for the leaves of a scan.
    pub(super) fn ask_leaves(&self, task: &mut Task, turn: &mut Turn<'_>) {
        task.scan.ask(|leaf| turn.trip.read(leaf, LEAF, leaf_bytes(self.sizes)));
        task.stage = Stage::Leaves;
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

/// A leaf as a scan sees it.
fn look(leaf: &[u64]) -> Leaf<impl Iterator<Item = (u64, u64)>> {
    Leaf { high: leaf[2], next: leaf[1], records: records(leaf).map(|[_, key, value]| (key, value)) }
}
