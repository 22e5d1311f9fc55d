//! Connections as the scheduler knows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpcache_fabric::{ClientId, FabricError};

use crate::process_state::Waiter;
use crate::queue_pair::SimArea;

/// The scheduler's part of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: usize,
    /// The life of the memory node it leads to.
    pub(crate) life: u64,
    pub(crate) client: ClientId,
    pub(crate) areas: Arc<[SimArea]>,
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) peer: Arc<str>,
    /// The call that was to be answered later.
    pub(crate) in_hand: Option<u64>,
    /// Requests that came while one was in hand.
    pub(crate) held: VecDeque<(u64, Arc<[u8]>)>,
    /// The process that waits for the connection to be made.
    pub(crate) opener: Option<Waiter>,
    /// Whether the memory node has been told of its end.
    pub(crate) closed: bool,
    pub(crate) calls: u64,
    /// The call under way.
    pub(crate) calling: Option<Calling>,
    /// Whether a thread has its turn, and which others wait for theirs.
    pub(crate) taken: bool,
    pub(crate) turns: VecDeque<Waiter>,
    /// Whether the caller has a deadline: else a message must not be lost.
    pub(crate) may_lose: bool,
    /// Whether it is one inside the memory node, of its own threads.
    pub(crate) is_local: bool,
    /// Whether questions are answered.
    pub(crate) answers: bool,
}

/// A request that was posted and whose reply was not taken yet.
#[derive(Debug)]
pub(crate) struct Calling {
    pub(crate) call: u64,
    /// The process that waits for the reply, if one does yet.
    pub(crate) waiter: Option<Waiter>,
    pub(crate) reply: Option<Vec<u8>>,
}

impl Link {
    pub(crate) fn disconnected(&self) -> FabricError {
        FabricError::Disconnected { peer: Arc::clone(&self.peer) }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}
