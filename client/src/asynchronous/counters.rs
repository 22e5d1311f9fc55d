//! Counters of calls of tasks over sockets.

use crate::counters::Count;

/// Counters of calls of tasks over sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncCounters {
    /// Reads that tasks asked for.
    pub calls: u64,
    /// Groups in which they were answered, each at the cost of one call.
    pub groups: u64,
    /// Doorbell batches of these groups that were waited for.
    pub doorbells: u64,
    /// Groups that took a blocking thread: the first of each socket, and those for which something
    /// had to be got over; and calls that took one each, because their record could not be read
    /// with the others.
    pub handed_over: u64,
}

/// What all queues of a client count, those too that are gone with their map.
#[derive(Default)]
pub(super) struct Counts {
    calls: Count,
    groups: Count,
    pub(super) doorbells: Count,
    pub(super) handed_over: Count,
}

impl Counts {
    pub(super) fn counters(&self) -> AsyncCounters {
        AsyncCounters {
            calls: self.calls.get(),
            groups: self.groups.get(),
            doorbells: self.doorbells.get(),
            handed_over: self.handed_over.get(),
        }
    }

    /// Counts a group that answers `calls` calls.
    pub(super) fn count_group(&self, calls: usize) {
        self.calls.add(calls as u64);
        self.groups.add(1);
    }
}
