//! Connections as the scheduler knows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::queue_pair::SimArea;
use super::slot::Waiter;
use crate::error::FabricError;
use crate::service::ClientId;

/// The scheduler's part of a connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: usize,
    /// The life of the memory node it leads to.
    pub(super) life: u64,
    pub(super) client: ClientId,
    pub(super) areas: Arc<[SimArea]>,
    pub(super) alive: Arc<AtomicBool>,
    pub(super) peer: Arc<str>,
    /// The call that was to be answered later.
    pub(super) in_hand: Option<u64>,
    /// Requests that came while one was in hand.
    pub(super) held: VecDeque<(u64, Arc<[u8]>)>,
    /// Who waits for the connection to be made.
    pub(super) opener: Option<Waiter>,
    /// Whether the memory node has been told of its end.
    pub(super) closed: bool,
    pub(super) calls: u64,
    /// The call under way.
    pub(super) calling: Option<Calling>,
    /// Whether a thread has its turn, and who waits for theirs.
    pub(super) taken: bool,
    pub(super) turns: VecDeque<Waiter>,
    /// Whether the caller has a deadline: else a message must not be lost.
    pub(super) may_lose: bool,
    /// Whether it is one inside the memory node, of its own threads.
    pub(super) is_local: bool,
    /// Whether questions are answered.
    pub(super) answers: bool,
}

/// A request that was posted and whose reply was not taken yet.
#[derive(Debug)]
pub(super) struct Calling {
    pub(super) call: u64,
    /// Who waits for the reply, if anybody does yet.
    pub(super) waiter: Option<Waiter>,
    pub(super) reply: Option<Vec<u8>>,
}

impl Link {
    pub(super) fn disconnected(&self) -> FabricError {
        FabricError::Disconnected { peer: Arc::clone(&self.peer) }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}
