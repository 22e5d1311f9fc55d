//! Changes of a compute node's clients that travel together, as those of the tasks of one
//! `AsyncClient` do (`client/src/asynchronous/changes.rs`): one request is under way to each memory
//! node, and what is asked for meanwhile goes with the next.

use std::collections::VecDeque;

use fpcache::message::WriteKind;

/// Changes of one request, at most.
pub(super) const TOGETHER: usize = 256;

/// A change that a client has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) client: usize,
    pub(super) kind: WriteKind,
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Changes that wait for one memory node.
#[derive(Debug, Default)]
pub(super) struct Queue {
    is_sending: bool,
    waiting: VecDeque<Change>,
}

impl Queue {
    /// Puts a change at the end. Whether its client is to send what waits; else it waits for the
    /// client that does.
    pub(super) fn push(&mut self, change: Change) -> bool {
        self.waiting.push_back(change);
        !std::mem::replace(&mut self.is_sending, true)
    }

    /// What goes with the next request; the first change is its sender's.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let count = self.waiting.len().min(TOGETHER);
        self.waiting.drain(..count).collect()
    }

    /// A request has come back: the client that sends the next one, whose change is the first of
    /// those that wait.
    pub(super) fn next(&mut self) -> Option<usize> {
        let next = self.waiting.front().map(|change| change.client);
        self.is_sending = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(client: usize) -> Change {
        Change { client, kind: WriteKind::Put, key: 7, value: client as u64 }
    }

    fn clients(changes: &[Change]) -> Vec<usize> {
        changes.iter().map(|change| change.client).collect()
    }

    #[test]
    fn what_is_asked_for_while_a_request_is_under_way_goes_with_the_next() {
        let mut queue = Queue::default();
        assert!(queue.push(change(1)), "nobody sends");
        assert_eq!(clients(&queue.take()), [1]);
        assert!(!queue.push(change(2)) && !queue.push(change(3)), "the first one sends");
        assert_eq!(queue.next(), Some(2));
        assert!(!queue.push(change(4)), "the second one is to send");
        assert_eq!(clients(&queue.take()), [2, 3, 4]);
        assert_eq!(queue.next(), None);
        assert!(queue.push(change(5)));
    }

    #[test]
    fn a_request_has_as_many_changes_as_one_of_a_client() {
        let mut queue = Queue::default();
        assert!(queue.push(change(0)));
        (1..TOGETHER + 2).for_each(|client| assert!(!queue.push(change(client))));
        assert_eq!(queue.take().len(), TOGETHER);
        assert_eq!(queue.next(), Some(TOGETHER));
        assert_eq!(clients(&queue.take()), [TOGETHER, TOGETHER + 1]);
    }
}
