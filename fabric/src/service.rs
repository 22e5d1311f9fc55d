//! The interface of a memory node's service.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::FabricError;
use crate::region::Export;

/// Names a client of a memory node; never used again while the memory node lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Whether a request was answered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// The reply is there.
    Now,
    /// The reply comes with [`Service::next_reply`]; until then the client sends nothing more.
    Later,
}

/// What a memory node has to do between requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing until a request comes or its [`Waker`] is used.
    Nothing,
    /// More, as soon as there is time.
    More,
    /// Nothing before this instant.
    At(Instant),
}

/// Wakes a serving loop that sleeps, from any thread: [`Service::work`] is called soon after.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<Event>,
    /// Whether this one was used, or a clone of it.
    used: Arc<AtomicBool>,
}

/// The state that wakers of one loop share.
#[derive(Debug)]
struct Event {
    fd: OwnedFd,
    used: AtomicBool,
}

impl Waker {
    /// A waker without a listener yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> Result<Self, FabricError> {
        use rustix::event::{EventfdFlags, eventfd};
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(FabricError::io("creating an event descriptor"))?;
        Ok(Self { event: Arc::new(Event { fd, used: AtomicBool::new(false) }), used: Arc::default() })
    }

    /// A waker of the same loop that can be told from this one by [`was_used`](Self::was_used).
    #[must_use]
    pub fn beside(&self) -> Self {
        Self { event: Arc::clone(&self.event), used: Arc::default() }
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        // In this order: a thread that finds that some waker was used finds out which.
        self.used.store(true, Ordering::Release);
        self.event.used.store(true, Ordering::Release);
        // A full counter is readable, which is all that matters.
        let _ = rustix::io::write(&self.event.fd, &1u64.to_le_bytes());
    }

    /// Whether this one, or a clone of it, was used since this was asked last.
    pub fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Acquire)
    }

    /// Whether this one or any beside it was used since this was asked last.
    pub fn was_any_used(&self) -> bool {
        self.event.used.load(Ordering::Relaxed) && self.event.used.swap(false, Ordering::Acquire)
    }

    /// Takes back what woke the loop.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.event.fd, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.fd.as_fd()
    }
}

/// Requests and replies of at most this many bytes are short: each connection may have some under
/// way, whatever others have.
pub const SHORT_BODY: usize = 16 << 10;

/// What a memory node does for its clients. Called by one thread, one request at a time.
pub trait Service: Send {
    /// The region of a name that a client asks for; `None` if there is no such region, and the
    /// client is turned away. Asked where clients ask for regions by name, over shared memory
    /// between processes; the other backends have one region.
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        let _ = name;
        None
    }

    /// Whether it has room for a request of `request_bytes` bytes of this client, more than
    /// [`SHORT_BODY`], should that have to be kept. One for which it has none is not taken over
    /// from the client: it is asked about again every round, and other long ones for the same
    /// [room](Self::room_of) wait after it. What there is room for must not depend on what clients
    /// do.
    fn has_room(&self, client: ClientId, request_bytes: usize) -> bool {
        let _ = (client, request_bytes);
        true
    }

    /// Which room the long requests of this client need, by any number. Those that wait for one
    /// room are taken in the order in which they came, over whatever connections; none waits for a
    /// request for another room.
    fn room_of(&self, client: ClientId) -> u64 {
        let _ = client;
        0
    }

    /// Answers a request; `reply` comes empty. The request's bytes arrived whole, but may be
    /// anything.
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled;

    /// A reply to a request that was to be answered later: writes it into `reply`, which comes
    /// empty. Asked after every round of requests and of work until it returns `None`.
    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let _ = reply;
        None
    }

    /// A client that is to be hung up on, because its region is gone. Asked after the replies of
    /// every round until it returns `None`.
    fn next_farewell(&mut self) -> Option<ClientId> {
        None
    }

    /// Does a little of what can be done between requests: called after every round of requests and
    /// whenever the loop has nothing else to do. A call should take well under a millisecond,
    /// because clients wait for it.
    fn work(&mut self) -> Work {
        Work::Nothing
    }

    /// The waker that wakes the loop, besides clients. Asked once, when serving begins.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// A client has connected and has the region of this name: what [`export`](Self::export) gave
    /// just before. The name is empty where there is one region.
    fn connected(&mut self, client: ClientId, region: &[u8]) {
        let _ = (client, region);
    }

    /// A client that has just [connected](Self::connected) may read and change nothing. Whether the
    /// service sees to that: it refuses those requests of this client that change something. If
    /// not, as unless told, the client is hung up on with its first request. Its WRITEs and atomics
    /// are refused by the fabric.
    fn may_only_read(&mut self, client: ClientId) -> bool {
        let _ = client;
        false
    }

    /// A client has gone; it sends nothing more.
    fn disconnected(&mut self, client: ClientId) {
        let _ = client;
    }

    /// A client was not let in: another version, a user not admitted, no such region, too many
    /// clients.
    fn rejected(&mut self, error: &FabricError) {
        let _ = error;
    }
}
