//! What calls of tasks over sockets came to, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What calls of tasks over sockets came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncCounters {
    /// Reads that tasks asked for.
    pub calls: u64,
    /// Groups in which they were answered, each at the cost of one call.
    pub groups: u64,
    /// Doorbell batches of these groups that were waited for.
    pub doorbells: u64,
    /// Groups that took a blocking thread: the first of each socket, and those for which something had to be got over.
    pub handed_over: u64,
}

/// What all queues of a client count, those too that are gone with their map.
#[derive(Default)]
pub(super) struct Counts {
    calls: AtomicU64,
    groups: AtomicU64,
    doorbells: AtomicU64,
    handed_over: AtomicU64,
}

impl Counts {
    pub(super) fn counters(&self) -> AsyncCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AsyncCounters {
            calls: of(&self.calls),
            groups: of(&self.groups),
            doorbells: of(&self.doorbells),
            handed_over: of(&self.handed_over),
        }
    }

    /// Counts a group that answers so many calls.
    pub(super) fn count_group(&self, calls: usize) {
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_handed_over(&self) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
    }
}
