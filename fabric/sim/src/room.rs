//! Requests for which a memory node has no room.

use std::collections::VecDeque;
use std::sync::Arc;

use fpcache_fabric::backend::{RoomQueue, RoomTicket};

/// A request that waits for room.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) connection: usize,
    pub(crate) call: u64,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) ticket: Option<RoomTicket>,
}

/// Requests that wait for room at a memory node.
#[derive(Debug, Default)]
pub(crate) struct RoomWaiters {
    pub(crate) queue: RoomQueue,
    pub(crate) waiting: VecDeque<WaitingCall>,
    /// Whether there is no room at all, whatever the service says.
    pub(crate) is_full: bool,
}

impl RoomWaiters {
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }
}
