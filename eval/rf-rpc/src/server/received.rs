//! Requests as a server hands them over.

use fpcache_fabric::ClientId;

use crate::layout::{Entry, take_entry};
use crate::mode::Mode;

/// Names a request batch that was received, for its results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId {
    pub(super) channel: usize,
    /// Which of the clients that had the channel.
    pub(super) opened: u64,
    pub(super) slot: u16,
    pub(super) sequence: u32,
}

/// A request batch.
#[derive(Debug)]
pub struct Received {
    /// For [`Server::send`](super::Server::send).
    pub id: CallId,
    /// Whose it is.
    pub client: ClientId,
    /// Which RPC it calls.
    pub rpc: u16,
    /// Whether its client waits for a server reply.
    pub mode: Mode,
    pub(super) payload: Vec<u8>,
}

impl Received {
    /// The requests, in order. Of a batch whose entries are not what its length says, those up to
    /// the fault.
    pub fn requests(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.payload[..];
        std::iter::from_fn(move || match take_entry(&mut rest)? {
            Entry::Short(entry) => Some(entry),
            Entry::Long(_) => None,
        })
    }
}
