//! An operation of ROLEX under way.

use std::rc::Rc;

use super::models::Model;
use crate::bench::Answer;
use crate::words::{Address, Landed, Next, Trip};

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    pub(super) stage: Stage,
    /// The numbers of the leaves that are wanted, and the model of the last of them.
    pub(super) wanted: Vec<usize>,
    pub(super) model: Option<Rc<Model>>,
    /// Where they lie, by their numbers, as far as that is known.
    pub(super) leaves: Vec<(usize, Address)>,
    pub(super) landed: Vec<Landed>,
    /// The synonym leaves that the leaf's model had before this operation, if it made one.
    pub(super) synonyms: Option<(Rc<Model>, Landed)>,
    /// There was no record to update.
    pub(super) is_absent: bool,
    /// Records that a scan has found, not in order.
    pub(super) records: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Stage {
    #[default]
    Begin,
    /// Part of the leaf table.
    Table {
        chunk: usize,
        landed: Landed,
    },
    Leaves,
    /// Synonym leaves of those that a scan reads.
    Synonyms,
    /// Its turn for the lock of the leaf of this place among those read.
    Turn(usize),
    /// That lock, unless another has handed it over, and the leaf again.
    Lock {
        place: usize,
        lock: Option<Landed>,
        leaf: Landed,
    },
    /// A synonym leaf of the leaf of this place.
    Synonym {
        at: Address,
        place: usize,
        landed: Landed,
    },
    /// The value that an entry points to.
    Value(Landed),
    /// Those that a scan's records point to.
    Values,
    /// The models that replaced the one of this number, and the leaf table's parts for them.
    Models(usize),
    Written,
    /// A memory node has been told to train.
    Told,
}

impl Task {
    /// Ends a scan whose records have pointed to these values.
    pub(super) fn take_values(&mut self, landed: &Trip) -> Next {
        for ((_, value), word) in self.records.iter_mut().zip(&self.landed) {
            *value = landed.word(*word);
        }
        Next::Done(Answer::Records(std::mem::take(&mut self.records)))
    }
}
