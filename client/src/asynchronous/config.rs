//! Settings of clients for tasks.

/// How tasks' calls get to a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncConfig {
    /// Sockets to a memory node that reads go over, each with a group of them under way at most;
    /// where memory is mapped none is needed. Default 4.
    pub sockets: usize,
    /// Keys that may wait to be read from a memory node, and calls whose changes may wait to be
    /// sent, up to 64 MiB of them; beyond, calls wait before they ask, and must be polled to go on.
    /// Default 4096.
    pub waiting: usize,
}

impl Default for AsyncConfig {
    fn default() -> Self {
        Self { sockets: 4, waiting: 4096 }
    }
}

impl AsyncConfig {
    /// The same with this many sockets, one at least.
    #[must_use]
    pub fn with_sockets(self, sockets: usize) -> Self {
        Self { sockets, ..self }
    }

    /// The same with room for this many keys and changes that wait, one at least.
    #[must_use]
    pub fn with_waiting(self, waiting: usize) -> Self {
        Self { waiting, ..self }
    }
}
