//! Processes as the scheduler knows them: what each waits for, and how that ended.

use std::sync::Arc;

use crate::parker::Parker;

/// The slot of the user of the world from outside [`run`](crate::World::run), one at a time.
pub(crate) const OUTSIDE: usize = 0;

/// A wait of a slot: void once the slot waits for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) slot: usize,
    pub(crate) epoch: u64,
}

/// What a process waits for, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Wait {
    #[error("its start")]
    Start,
    #[error("batch {ticket} of endpoint {endpoint}")]
    Batch { endpoint: usize, ticket: u64 },
    #[error("time to pass")]
    Sleep,
    #[error("other calls of connection {connection}")]
    Turn { connection: usize },
    #[error("the reply to call {call} of connection {connection}")]
    Reply { connection: usize, call: u64 },
    #[error("connection {connection} to be made")]
    Connect { connection: usize },
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    TimedOut,
    Cut,
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Waiting,
    Ready,
    Running,
    Ended,
}

/// A process, or the user outside.
#[derive(Debug)]
pub(crate) struct ProcessSlot {
    pub(crate) name: Arc<str>,
    /// Which processes die with it.
    pub(crate) compute_node: usize,
    pub(crate) status: Status,
    pub(crate) wait: Wait,
    pub(crate) outcome: Outcome,
    pub(crate) killed: bool,
    /// Fabric calls so far.
    pub(crate) steps: u64,
    /// Dies at this fabric call.
    pub(crate) dies_at: Option<u64>,
    pub(crate) parker: Arc<Parker>,
    pub(crate) epoch: u64,
}

impl ProcessSlot {
    pub(crate) fn new(name: &str, compute_node: usize) -> Self {
        Self {
            name: name.into(),
            compute_node,
            status: Status::Waiting,
            wait: Wait::Start,
            outcome: Outcome::Done,
            killed: false,
            steps: 0,
            dies_at: None,
            parker: Arc::default(),
            epoch: 0,
        }
    }
}

/// Why a world stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Deadlock,
    Circles,
    Stuck(usize),
    Panicked(usize, String),
    NodePanicked(usize, String),
}
