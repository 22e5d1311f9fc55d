//! One-sided READs by an RDMA network card, for clients that came by [`tcp`](crate::tcp).
//!
//! An address `rdma://HOST[:PORT][?dev=NAME&gid=INDEX&port=NUMBER&…]` means the listener over TCP
//! at that host and port, and reading by network cards. A client connects as over TCP, and its
//! requests go over that socket. Each of its endpoints opens another socket, over which both sides
//! exchange what their cards must know ([`wire`]), and reads from then on by a reliable connected
//! queue pair of its own, without a processor of the memory node. What cannot be read so, because
//! it was not registered with the card yet, or because the queue pair broke, is read as over TCP.
//!
//! | | |
//! |---|---|
//! | [`CardChoice`] | which device, port and address of the card are used |
//! | `devices` (feature `rdma`) | which there are |
//! | [`RdmaError`] | what can go wrong, and what helps |
//!
//! The feature `rdma` needs libibverbs; without it, addresses are understood and refused with a
//! word on how to build it.
//!
//! **Who is trusted.** What identifies registered memory to a card, the *rkey*, crosses the network
//! unencrypted, and so does what is READ. A party that sees it, or guesses it and a queue pair's
//! numbers, can read the region. It gives no right to write.

#![cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "cards that are not built ask for nothing"))]

#[cfg(not(feature = "rdma"))]
mod absent;
mod card;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod completion;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod device;
pub(crate) mod error;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod events;
#[cfg(feature = "rdma")]
mod listing;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod memory_region;
#[cfg(feature = "rdma")]
mod node;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod port;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod queue_pair;
#[cfg(feature = "rdma")]
mod reader;
#[cfg(feature = "rdma")]
mod registered;
#[cfg(feature = "rdma")]
mod registration_plan;
#[cfg(all(test, feature = "rdma"))]
mod tests;
pub mod wire;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(not(feature = "rdma"))]
pub(crate) use absent::{ClientCard, NodeCard, PeerQueuePair, Reader};
pub use card::{CardChoice, DEFAULT_PORT};
pub use error::RdmaError;
#[cfg(feature = "rdma")]
pub use listing::{DeviceInfo, GidInfo, PortInfo, devices};
#[cfg(feature = "rdma")]
pub(crate) use {device::Device as ClientCard, node::NodeCard, node::PeerQueuePair, reader::Reader};

use crate::clock::Deadline;
use crate::error::FabricError;
use crate::mapped::Link;
use crate::memory::SharedMemory;

/// The full choice for one that leaves something open, with device, port and address.
///
/// # Errors
/// Those of connecting: there is no such device, port or address, or this was built without cards.
pub fn resolve(choice: &CardChoice) -> Result<CardChoice, RdmaError> {
    ClientCard::open(choice).map(|card| card.choice())
}

/// The memory that a memory node lets a client's card address.
#[derive(Debug)]
pub(crate) struct ServedAreas<'a> {
    /// Area 0, for reading, as it is mapped for cards ([`Export::map_for_card`](crate::Export)).
    pub(crate) region: &'a Arc<SharedMemory>,
    /// From where on its bytes hold nothing.
    pub(crate) backed_end: &'a Arc<AtomicU64>,
    /// How long its watched word is leased for; zero: it is not.
    pub(crate) lease: Duration,
    /// Area 2, which clients may change.
    pub(crate) scratch: Option<&'a Arc<SharedMemory>>,
}

/// The answer to a client, and the news for its memory node.
#[derive(Debug)]
pub(crate) struct CardAnswer {
    pub(crate) bytes: Vec<u8>,
    /// Why some memory could not be registered, the first time that it is so.
    pub(crate) trouble: Option<RdmaError>,
}

/// The way over which cards are introduced to each other.
pub(crate) trait Introduction: Debug + Send {
    /// Asks the memory node's card something.
    fn exchange(&mut self, request: &[u8], deadline: Deadline) -> Result<Vec<u8>, FabricError>;
}

/// For how long a reader waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit<'a> {
    /// The memory node's being there.
    pub(crate) link: &'a Link,
    /// For completions.
    pub(crate) patience: Duration,
}

/// Why a batch was not read by a card.
#[derive(Debug)]
pub(crate) enum CardFailure {
    /// It reaches where nothing is registered.
    NotRegistered,
    /// The queue pair is of no use any more; the cards may have changed memory if the batch asked
    /// for it.
    Broken(FabricError),
    /// No completion came in time. The queue pair is of no use any more.
    Silent,
    /// The memory node has gone meanwhile.
    Gone,
}

/// Counters of a connection's endpoints' use of cards.
#[derive(Debug, Default)]
pub(crate) struct CardCounters {
    doorbells: AtomicU64,
    work_requests: AtomicU64,
    by_socket: AtomicU64,
    broken: AtomicU64,
    unusable: AtomicU64,
}

impl CardCounters {
    pub(crate) fn count_doorbell(&self, work_requests: usize) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        self.work_requests.fetch_add(work_requests as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_socket_read(&self) {
        self.by_socket.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_broken(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_unusable(&self) {
        self.unusable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CardCounts {
        CardCounts {
            doorbells: self.doorbells.load(Ordering::Relaxed),
            work_requests: self.work_requests.load(Ordering::Relaxed),
            by_socket: self.by_socket.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            unusable: self.unusable.load(Ordering::Relaxed),
        }
    }
}

/// Counts of a connection's endpoints' use of cards so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CardCounts {
    /// Lists of work requests that were handed to the card.
    pub doorbells: u64,
    /// Work requests of these lists.
    pub work_requests: u64,
    /// Batches that went over a socket instead.
    pub by_socket: u64,
    /// Queue pairs that broke.
    pub broken: u64,
    /// 1 if the connection began without a card, because none could be used.
    pub unusable: u64,
}
