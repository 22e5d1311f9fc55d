//! The link to a memory node: whether it is still there.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::error::FabricError;
use crate::memory::{ForkFlag, MemoryError};

/// Whether the memory node still serves a connection, and what it is called. To a forked child
/// every connection of its parent is cut: ring and socket are the parent's.
#[derive(Debug)]
pub(crate) struct Link {
    alive: ForkFlag,
    peer: Arc<str>,
}

impl Link {
    /// # Errors
    /// If the operating system has no page of memory.
    pub(crate) fn new(peer: &str) -> Result<Self, MemoryError> {
        Ok(Self { alive: ForkFlag::raised()?, peer: peer.into() })
    }

    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.is_raised()
    }

    /// Whether the memory node is gone. Loads after this see all that it wrote before.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        let has_ended = !self.is_alive();
        if has_ended {
            fence(Ordering::Acquire);
        }
        has_ended
    }

    /// Whether it is that of the process from which this one was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.alive.is_inherited()
    }

    pub(crate) fn cut(&self) {
        fence(Ordering::Release);
        self.alive.lower();
    }

    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    #[cold]
    pub(crate) fn disconnected(&self) -> FabricError {
        FabricError::Disconnected { peer: Arc::clone(&self.peer) }
    }
}
