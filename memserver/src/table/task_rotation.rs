//! The tasks that a table has between requests, and whose turn it is.

/// What there may be to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// Replacing segments that inserts will soon have filled up.
    Relieve,
    /// Counting external values again.
    Recount,
    /// Writing a new directory.
    Checkpoint,
    Retrain,
    /// Bringing sparse segments together, and emptying ranges of memory.
    GiveBack,
    /// Freeing what readers know to be replaced.
    Reclaim,
    /// Giving memory back to those that share the budget.
    Shrink,
}

impl Task {
    pub(super) const ALL: [Self; 7] = [
        Self::Relieve,
        Self::Recount,
        Self::Checkpoint,
        Self::Retrain,
        Self::GiveBack,
        Self::Reclaim,
        Self::Shrink,
    ];

    pub(super) fn replaces_segments(self) -> bool {
        matches!(self, Self::Relieve | Self::Retrain | Self::GiveBack)
    }
}

/// Whose turn is next.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: usize,
}

impl Turns {
    pub(super) fn next(&mut self) -> Task {
        let task = Task::ALL[self.next];
        self.next = (self.next + 1) % Task::ALL.len();
        task
    }
}
