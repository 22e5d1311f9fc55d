//! What keeps a connection open.

use std::sync::Arc;

use super::baton::Shared;

/// What a connection and its endpoints hold together: the memory node is told when the last of them has gone.
pub(super) struct Anchor {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: usize,
    /// Whether it is one inside the memory node, of which nobody is told: it ends where a life does, under the world's lock.
    pub(super) is_local: bool,
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if !self.is_local {
            self.shared.lock().hang_up(self.connection);
        }
    }
}
