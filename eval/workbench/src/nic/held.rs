//! Replies that are held.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Picos;

/// A reply that may leave its node from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reply {
    pub(super) ready: Picos,
    pub(super) client: u32,
    /// The request, by its place in the client's batch.
    pub(super) request: u32,
    /// Whether its node's card has to issue it as a message of the processor's: what a card answers
    /// by itself is none.
    pub(super) is_message: bool,
}

/// Replies that reach their node's port later than those of requests that arrive after theirs may:
/// the first of them is the next.
pub(super) type Held = BinaryHeap<Reverse<Reply>>;
