//! The in-process backend: memory node and compute node share one address space.
//!
//! The endpoint is the same as that of [`crate::shm`]; only meeting each other differs.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::bell::Bell;
use crate::error::FabricError;
use crate::lock::lock;
use crate::mapped::{Area, Link, MappedConnection, Parts};
use crate::memory::{Access, SharedMemory};
use crate::region::RegionName;
use crate::ring::RingLayout;
use crate::server::{self, Acceptor, RingSession};
use crate::service::{ClientId, Service};
use crate::serving::{Serving, StopHandle};

/// What errors call the memory node.
const NAME: &str = "in this process";

/// How an in-process memory node is set up.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// What clients may do with the region. Default: read only, as across processes.
    pub region_access: Access,
    /// Which life of the memory node this is.
    pub incarnation: u64,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { region_access: Access::ReadOnly, incarnation: 1 }
    }
}

/// Where the clients of an in-process memory node meet it. Clones are the same hub.
///
/// Clients may connect and READ before and while the hub is served; calls wait for the serving
/// loop. When the loop ends the hub is closed for good: its clients are disconnected and none can
/// connect. One that the service parts with earlier learns that by its next call.
#[derive(Clone, Debug)]
pub struct Hub {
    inner: Arc<HubInner>,
}

struct HubInner {
    region: Arc<SharedMemory>,
    options: LocalOptions,
    /// The hub's own.
    link: Arc<Link>,
    wake: OwnedFd,
    clients: Mutex<Clients>,
    next_client: AtomicU64,
    served: AtomicBool,
}

#[derive(Default)]
struct Clients {
    /// Those that the loop has not seen.
    waiting: Vec<RingSession>,
    /// Of all that there are, to be cut when the hub closes: each has its own, for one may have to
    /// leave before.
    links: Vec<Weak<Link>>,
}

impl fmt::Debug for HubInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("region", &self.region).field("options", &self.options).finish()
    }
}

impl Hub {
    /// A hub over `region`, which the memory node goes on writing through its own handle.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(region: Arc<SharedMemory>, options: LocalOptions) -> Result<Self, FabricError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(FabricError::io("creating an event descriptor"))?;
        let link = Arc::new(Link::new(NAME)?);
        let (clients, next_client) = (Mutex::default(), AtomicU64::new(1));
        let served = AtomicBool::new(false);
        let inner = HubInner { region, options, link, wake, clients, next_client, served };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A new client.
    ///
    /// # Errors
    /// [`Disconnected`](FabricError::Disconnected) if the hub is closed,
    /// [`LeftBehind`](FabricError::LeftBehind) in a process that was forked from the hub's;
    /// otherwise for want of memory or descriptors.
    pub fn connect(&self) -> Result<LocalConnection, FabricError> {
        let hub = &self.inner;
        // Before its locks, which a thread of the parent may have.
        if hub.link.is_inherited() {
            return Err(FabricError::LeftBehind { peer: Arc::clone(hub.link.peer()) });
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(FabricError::io("creating a socket pair"))?;
        let layout = RingLayout::OURS;
        // Client and memory node each own a mapping of the ring, so that either may go first.
        let (ring, ring_fd) =
            SharedMemory::create_memfd("fpcache-ring", layout.len(), crate::memory::HugePages::No)?;
        let node_ring = SharedMemory::map(&ring_fd, layout.len(), Access::ReadWrite)?;
        let id = ClientId(hub.next_client.fetch_add(1, Ordering::Relaxed));
        let areas: Arc<[Area]> = [
            Area::new(Arc::clone(&hub.region), hub.options.region_access),
            Area::new(Arc::new(ring), Access::ReadWrite),
        ]
        .into();
        let link = Arc::new(Link::new(NAME)?);
        {
            let mut clients = lock(&hub.clients);
            if !hub.link.is_alive() {
                return Err(hub.link.disconnected());
            }
            clients.waiting.push(RingSession::new(id, node_ring, layout, Bell::new(theirs)));
            clients.links.retain(|link| link.strong_count() > 0);
            clients.links.push(Arc::downgrade(&link));
        }
        // A full counter is readable, which is all that matters.
        let _ = rustix::io::write(&hub.wake, &1u64.to_le_bytes());
        Ok(MappedConnection::new(Parts {
            areas,
            link,
            layout,
            bell: Bell::new(ours),
            incarnation: hub.options.incarnation,
            creation: 0,
            node_process: None,
            anchor: None,
        }))
    }

    /// Serves clients on this thread until stopped; idle, it sleeps.
    ///
    /// # Errors
    /// [`Disconnected`](FabricError::Disconnected) if the hub is or was served already, otherwise
    /// if the operating system cannot wait for descriptors.
    pub fn serve<S: Service>(&self, service: &mut S, stop: &StopHandle) -> Result<(), FabricError> {
        if self.inner.served.swap(true, Ordering::AcqRel) {
            return Err(self.inner.link.disconnected());
        }
        // Also when the service panics.
        let _closing = CloseOnDrop(&self.inner);
        server::serve(&mut Queue(&self.inner), None, service, stop)
    }

    /// Serves clients on a new thread.
    ///
    /// # Errors
    /// If no thread or descriptor can be had.
    pub fn spawn<S: Service + 'static>(&self, mut service: S) -> Result<Serving, FabricError> {
        let hub = self.clone();
        Serving::spawn("fpcache-serve", move |stop| hub.serve(&mut service, stop))
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Arc<SharedMemory> {
        &self.inner.region
    }
}

impl HubInner {
    fn close(&self) {
        if self.link.is_inherited() {
            return;
        }
        let mut clients = lock(&self.clients);
        self.link.cut();
        clients.links.drain(..).filter_map(|link| link.upgrade()).for_each(|link| link.cut());
        clients.waiting.clear();
    }
}

impl Drop for HubInner {
    fn drop(&mut self) {
        self.close();
    }
}

struct CloseOnDrop<'h>(&'h HubInner);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// New clients of the hub.
struct Queue<'h>(&'h HubInner);

impl Acceptor for Queue<'_> {
    fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::from_borrowed_fd(self.0.wake.as_fd(), PollFlags::IN));
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn advance(&mut self, _open: usize, _service: &mut dyn Service) -> Vec<(RingSession, RegionName)> {
        let _ = rustix::io::read(&self.0.wake, &mut [0u8; 8]);
        let arrived = std::mem::take(&mut lock(&self.0.clients).waiting);
        arrived.into_iter().map(|session| (session, RegionName::default())).collect()
    }
}

/// A client's connection to a [`Hub`].
pub type LocalConnection = MappedConnection;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Deadline;
    use crate::connection::Connection;
    use crate::service::Handled;

    /// Parts with the client whose number it is sent.
    #[derive(Default)]
    struct Parting(Option<ClientId>);

    impl Service for Parting {
        fn handle(&mut self, _: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
            self.0 = request.first().map(|number| ClientId(u64::from(*number)));
            Handled::Now
        }

        fn next_farewell(&mut self) -> Option<ClientId> {
            self.0.take()
        }
    }

    /// All clients, and those to come, shared its end.
    #[test]
    fn a_client_that_is_parted_with_leaves_the_others_their_hub() {
        let region = Arc::new(SharedMemory::anonymous(4096).unwrap());
        let hub = Hub::new(region, LocalOptions::default()).unwrap();
        let serving = hub.spawn(Parting::default()).unwrap();
        let (first, second) = (hub.connect().unwrap(), hub.connect().unwrap());
        let call = |client: &LocalConnection, request: &[u8]| {
            client.call(request, &mut Vec::new(), Deadline::after(Duration::from_secs(20)))
        };
        call(&first, &[]).unwrap();
        call(&second, &[1]).unwrap();
        let error = call(&first, &[]).unwrap_err();
        assert!(matches!(error, FabricError::Disconnected { .. }) && !first.is_alive(), "{error}");
        let third = hub.connect().unwrap();
        for client in [&second, &third] {
            call(client, &[]).unwrap();
            assert!(client.is_alive());
        }
        // The hub's own end is still everybody's.
        serving.stop().unwrap();
        assert!(!second.is_alive() && !third.is_alive());
    }
}
