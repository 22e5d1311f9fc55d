//! The queue of tables with work or replies, from which the catalogue takes the next one in each
//! round.
//!
//! An idle table returns to the queue when it gets a request, when it is woken, or at the time that
//! it named. So the cost of a round depends on the tables in use, not on how many there are.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

/// Tables, by number, that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Those that may have work, each once: the longest waiting first.
    queue: VecDeque<usize>,
    timed: BTreeSet<(Instant, usize)>,
    /// Those that may have replies, each once.
    replies: Vec<usize>,
    /// What is known of each.
    states: Vec<TableTurn>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TableTurn {
    is_queued: bool,
    may_reply: bool,
    at: Option<Instant>,
}

impl WorkQueue {
    /// A table that may have work and replies: it got a request, or was woken.
    #[inline]
    pub(crate) fn touch(&mut self, table: usize) {
        let state = self.state(table);
        let was = std::mem::replace(state, TableTurn { is_queued: true, may_reply: true, ..*state });
        if !was.is_queued {
            self.queue.push_back(table);
        }
        if !was.may_reply {
            self.replies.push(table);
        }
    }

    /// A table that has more work: after the others.
    pub(crate) fn queue(&mut self, table: usize) {
        let state = self.state(table);
        if !std::mem::replace(&mut state.is_queued, true) {
            self.queue.push_back(table);
        }
    }

    /// A table that has nothing to do before this instant.
    pub(crate) fn queue_at(&mut self, table: usize, at: Instant) {
        if let Some(before) = self.state(table).at.replace(at) {
            self.timed.remove(&(before, table));
        }
        self.timed.insert((at, table));
    }

    /// The next table that may have work.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        let table = self.queue.pop_front()?;
        let state = self.state(table);
        state.is_queued = false;
        // Whatever it was waiting for, it says again.
        if let Some(at) = state.at.take() {
            self.timed.remove(&(at, table));
        }
        Some(table)
    }

    /// Whether some table waits for an instant.
    pub(crate) fn has_timed(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Queues the tables whose time has come.
    pub(crate) fn queue_due(&mut self, now: Instant) {
        while let Some(&(at, table)) = self.timed.first().filter(|(at, _)| *at <= now) {
            self.timed.remove(&(at, table));
            self.state(table).at = None;
            self.queue(table);
        }
    }

    /// Whether a table waits for its turn.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The earliest instant that a table waits for.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// A table that may have replies.
    pub(crate) fn expect_replies(&mut self, table: usize) {
        let state = self.state(table);
        if !std::mem::replace(&mut state.may_reply, true) {
            self.replies.push(table);
        }
    }

    /// A table that may have replies, until it [has none](Self::no_more_replies).
    pub(crate) fn replying(&self) -> Option<usize> {
        self.replies.last().copied()
    }

    /// The table that was named last has no more replies.
    pub(crate) fn no_more_replies(&mut self) {
        if let Some(table) = self.replies.pop() {
            self.state(table).may_reply = false;
        }
    }

    /// Forgets a table: another may get its number.
    pub(crate) fn forget(&mut self, table: usize) {
        self.queue.retain(|other| *other != table);
        self.timed.retain(|(_, other)| *other != table);
        self.replies.retain(|other| *other != table);
        *self.state(table) = TableTurn::default();
    }

    #[inline]
    fn state(&mut self, table: usize) -> &mut TableTurn {
        if table >= self.states.len() {
            self.states.resize(table + 1, TableTurn::default());
        }
        &mut self.states[table]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn tables_take_turns_and_wait_once() {
        let mut work_queue = WorkQueue::default();
        for table in [3, 1, 3, 2] {
            work_queue.touch(table);
        }
        assert_eq!(work_queue.next(), Some(3));
        work_queue.queue(3);
        assert_eq!(
            [work_queue.next(), work_queue.next(), work_queue.next(), work_queue.next()],
            [Some(1), Some(2), Some(3), None]
        );
        let mut replying = Vec::new();
        while let Some(table) = work_queue.replying() {
            replying.push(table);
            work_queue.no_more_replies();
        }
        assert_eq!(replying, [2, 1, 3]);
    }

    #[test]
    fn a_table_that_named_a_time_waits_for_it_unless_it_is_touched() {
        let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        work_queue.queue_at(0, at(5));
        work_queue.queue_at(1, at(9));
        work_queue.queue_at(0, at(7));
        assert_eq!((work_queue.earliest(), work_queue.has_queued()), (Some(at(7)), false));
        work_queue.touch(1);
        assert_eq!(
            (work_queue.next(), work_queue.earliest()),
            (Some(1), Some(at(7))),
            "it says its time anew"
        );
        work_queue.queue_due(at(6));
        assert_eq!(work_queue.next(), None);
        work_queue.queue_due(at(7));
        assert_eq!(
            (work_queue.next(), work_queue.earliest(), work_queue.has_timed()),
            (Some(0), None, false)
        );
    }

    #[test]
    fn a_table_that_is_forgotten_has_no_turn() {
        let (mut work_queue, now) = (WorkQueue::default(), Instant::now());
        work_queue.touch(0);
        work_queue.touch(1);
        work_queue.queue_at(0, now);
        work_queue.forget(0);
        assert_eq!(
            (work_queue.next(), work_queue.next(), work_queue.earliest(), work_queue.replying()),
            (Some(1), None, None, Some(1))
        );
        work_queue.touch(0);
        assert_eq!((work_queue.next(), work_queue.replying()), (Some(0), Some(0)));
    }
}
