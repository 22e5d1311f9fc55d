//! An operation under way, and what it waits for.

use super::scanning::Scanning;
use super::store::{DESCRIPTOR_BYTES, Successors};
use crate::words::{Address, Landed, Next, Turn};

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    pub(super) stage: Stage,
    /// Slots that were READ, with where they lie.
    pub(super) runs: Vec<(Address, Landed)>,
    pub(super) scan: Scanning,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Stage {
    #[default]
    Begin,
    /// Other compute nodes are told of the key.
    Told,
    /// The slot of a hot entry.
    Hot(Landed),
    /// Slots of this segment.
    Slots(Address),
    /// Descriptors of what has replaced this segment.
    Successors(Address, Landed),
    /// Slots of a scan's segments.
    Stretches,
    /// A put, by one that took this segment for the key's.
    Put(Address, Landed),
}

/// Asks for the descriptors of what has replaced a segment.
pub(super) fn ask_successors(
    task: &mut Task,
    segment: Address,
    successors: Successors,
    turn: &mut Turn<'_>,
) -> Next {
    let bytes = DESCRIPTOR_BYTES * successors.count;
    task.stage = Stage::Successors(segment, turn.trip.read(successors.at, successors.words(), bytes));
    Next::Trip
}
