//! The fixture that a backend provides for the suite.

use fpcache_fabric::{AreaId, Connection, SharedMemory};

/// A memory node that serves a [`TestService`](super::TestService), and one client of it.
///
/// The region must be read-only to the client, all zero and at least 1 MiB long; the ring at least
/// 1 MiB each way.
pub trait Fixture: Sized {
    /// Round trips of loading the watched word, which lies at the region's begin, after READs.
    const LOAD_AFTER_READS: u64 = 0;

    /// The backend's connection.
    type Connection: Connection;

    /// Starts a fresh memory node and connects.
    fn start() -> Self;

    /// The client.
    fn connection(&self) -> &Self::Connection;

    /// The region as the memory node writes it.
    fn region(&self) -> &SharedMemory;

    /// 64 KiB that the client may change, 64-byte aligned: the area and the first offset. Calls may
    /// overwrite them.
    fn scratch(&self) -> (AreaId, u64);

    /// Ends the memory node, as its process's end would.
    fn stop_memory_node(&mut self);
}
