//! The anchor that keeps a connection open.

use std::sync::Arc;

use crate::baton::Shared;

/// Held by a connection and its endpoints together: the memory node is told when the last of them
/// has gone.
pub(crate) struct Anchor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: usize,
    /// Whether it is one inside the memory node, of which no one is told: it ends where a life
    /// does, under the world's lock.
    pub(crate) is_local: bool,
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if !self.is_local {
            self.shared.lock().hang_up(self.connection);
        }
    }
}
