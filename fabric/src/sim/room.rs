//! Requests for which a memory node has no room.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::room_queue::{RoomQueue, Ticket};

/// A request that waits for room.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) connection: usize,
    pub(super) call: u64,
    pub(super) bytes: Arc<[u8]>,
    pub(super) ticket: Option<Ticket>,
}

/// Requests that wait for room at a memory node.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) queue: RoomQueue,
    pub(super) waiting: VecDeque<Waiting>,
    /// Whether there is none for anybody, whatever the service says.
    pub(super) is_full: bool,
}

impl Room {
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }
}
