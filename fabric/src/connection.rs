//! What a compute node holds of a memory node, and what a memory node serves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::clock::Deadline;
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::memory::ForkFlag;
use crate::meter::MeterSnapshot;
use crate::region::Export;
use crate::verbs::AreaId;

/// A request that was posted, until its reply has been waited for or it was given up. Nobody else's request goes over its
/// connection meanwhile.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "its connection takes no other request until this one was waited for or given up"]
pub struct Posted(u64);

impl Posted {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Whether it is the connection's request of this number.
    pub(crate) fn is(&self, number: impl Into<u64>) -> bool {
        self.0 == number.into()
    }
}

/// A connection to one memory node, shared by the threads of a compute node.
pub trait Connection: Send + Sync {
    /// The kind of queue pair it gives.
    type Endpoint: Endpoint + Send;

    /// A new queue pair with its own meter. Cheap: one per thread. It outlives the connection value, but keeps the
    /// memory node's areas mapped.
    fn endpoint(&self) -> Self::Endpoint;

    /// Sends a request to the memory node's [`Service`] and returns without waiting for its reply. One at a time per
    /// connection: until the reply was [waited](Self::wait) for, or the request [given up](Self::give_up), others wait their
    /// turn. Whoever wants several requests under way has several connections.
    ///
    /// The deadline is that of the turn; [`wait`](Self::wait) has one of its own.
    ///
    /// # Errors
    /// [`RequestTooLong`](FabricError::RequestTooLong) and [`Crowded`](FabricError::Crowded): nothing was sent.
    /// [`Disconnected`](FabricError::Disconnected): the request may have been executed or may yet be.
    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError>;

    /// Takes the reply to a request that was posted here, if it is there: `None` then, and else the request, whose turn goes
    /// on. A look at a few words, to be taken between other work; whoever has nothing else to do waits.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), except that no deadline passes.
    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError>;

    /// Waits for the reply to a request that was posted here, which replaces the contents of `reply`. A reply that is there
    /// is taken also when the deadline has passed. The request's turn ends, however this does.
    ///
    /// # Errors
    /// [`ReplyTooLong`](FabricError::ReplyTooLong), [`DeadlinePassed`](FabricError::DeadlinePassed) and
    /// [`Disconnected`](FabricError::Disconnected). After one of the last two the request may have been executed or may
    /// yet be. [`NotPosted`](FabricError::NotPosted) if it was posted to another connection.
    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError>;

    /// Ends the turn of a request without its reply: it may have been executed or may yet be.
    fn give_up(&self, posted: Posted);

    /// Sends a request and waits for its reply, which replaces the contents of `reply`: [`post`](Self::post) and
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of the two.
    fn call(&self, request: &[u8], reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        reply.clear();
        let posted = self.post(request, deadline)?;
        self.wait(posted, reply, deadline)
    }

    /// Longest request in bytes.
    fn max_request(&self) -> usize;

    /// Longest reply in bytes.
    fn max_reply(&self) -> usize;

    /// Whether the memory node still serves this connection: one relaxed load, false soon after it ended.
    fn is_alive(&self) -> bool;

    /// A hint that `len` bytes at `offset` of an area will be read at random before long. Mapped memory maps their pages
    /// now, a tenth of a microsecond each, instead of faulting on each at its first READ.
    fn will_read(&self, area: AreaId, offset: u64, len: u64) {
        let _ = (area, offset, len);
    }

    /// Which life of the memory node this is; a restarted one has another.
    fn incarnation(&self) -> u64;

    /// Which of the regions that have had its name this is: the number that the service gave it. Unlike the incarnation it
    /// stays when the memory node starts anew and goes on with the region.
    fn creation(&self) -> u64;

    /// What requests have cost so far.
    fn call_meter(&self) -> MeterSnapshot;
}

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

/// What a waker and those beside it use.
#[derive(Debug)]
struct Event {
    fd: OwnedFd,
    used: AtomicBool,
}

impl Waker {
    /// A waker that nobody listens to yet.
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
        // In this order: whoever finds that some waker was used finds out which.
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

/// Requests and replies of at most this many bytes are short: each connection may have some under way, whatever others have.
pub const SHORT_BODY: usize = 16 << 10;

/// What a memory node does for its clients. Called by one thread, one request at a time.
pub trait Service: Send {
    /// The region of a name that a client asks for; `None` if there is none, and the client is turned away. Asked where
    /// clients ask for regions by name, over shared memory between processes; the other backends have one region.
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        let _ = name;
        None
    }

    /// Whether it has room for a request of so many bytes of this client, more than [`SHORT_BODY`], should that have to be
    /// kept. One for which it has none is not taken over from the client: it is asked about again every round, and other long
    /// ones for the same [room](Self::room_of) wait after it. What there is room for must not depend on what clients do.
    fn has_room(&self, client: ClientId, request_bytes: usize) -> bool {
        let _ = (client, request_bytes);
        true
    }

    /// Which room the long requests of this client need, by any number. Those that wait for one room are taken in the order in
    /// which they came, over whatever connections; nobody waits for those that wait for another.
    fn room_of(&self, client: ClientId) -> u64 {
        let _ = client;
        0
    }

    /// Answers a request; `reply` comes empty. The request's bytes arrived whole, but may be anything.
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled;

    /// A reply to a request that was to be answered later: writes it into `reply`, which comes empty. Asked after every
    /// round of requests and of work until there is none.
    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let _ = reply;
        None
    }

    /// A client that is to be hung up on, because its region is gone. Asked after the replies of every round until there is
    /// none.
    fn next_farewell(&mut self) -> Option<ClientId> {
        None
    }

    /// Does a little of what can be done between requests: called after every round of requests and whenever the loop has
    /// nothing else to do. A call should take well under a millisecond, because clients wait for it.
    fn work(&mut self) -> Work {
        Work::Nothing
    }

    /// What wakes the loop besides clients. Asked once, when serving begins.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// A client has connected and has the region of this name: what [`export`](Self::export) gave just before. The name is
    /// empty where there is one region.
    fn connected(&mut self, client: ClientId, region: &[u8]) {
        let _ = (client, region);
    }

    /// A client that has just [connected](Self::connected) may read and change nothing. Whether the service sees to that: it
    /// refuses those requests of this client that change something. If not, as unless told, the client is hung up on with its
    /// first request. Its WRITEs and atomics are refused by the fabric.
    fn may_only_read(&mut self, client: ClientId) -> bool {
        let _ = client;
        false
    }

    /// A client has gone; it sends nothing more.
    fn disconnected(&mut self, client: ClientId) {
        let _ = client;
    }

    /// Somebody was not let in: another version, a user not admitted, no such region, too many clients.
    fn rejected(&mut self, error: &FabricError) {
        let _ = error;
    }
}

/// Ends a serving loop from any thread, at once also when it is parked.
#[derive(Clone, Debug)]
pub struct StopHandle {
    inner: Arc<StopInner>,
}

#[derive(Debug)]
struct StopInner {
    stopped: AtomicBool,
    wake: OwnedFd,
}

impl StopHandle {
    /// A handle that has not been used.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> Result<Self, FabricError> {
        use rustix::event::{EventfdFlags, eventfd};
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(FabricError::io("creating an event descriptor"))?;
        Ok(Self { inner: Arc::new(StopInner { stopped: AtomicBool::new(false), wake }) })
    }

    /// Ends the loop after the request in hand.
    pub fn stop(&self) {
        self.inner.stopped.store(true, Ordering::Release);
        // A full counter is readable, which is all that matters.
        let _ = rustix::io::write(&self.inner.wake, &1u64.to_le_bytes());
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::Acquire)
    }
}

impl AsFd for StopHandle {
    /// Becomes readable when the handle is used, for loops that wait in `poll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.wake.as_fd()
    }
}

/// A serving loop on its own thread; dropping it ends the loop, but not in a process that was forked from the thread's.
#[derive(Debug)]
pub struct Serving {
    stop: StopHandle,
    thread: Option<JoinHandle<Result<(), FabricError>>>,
    /// Whose thread it is.
    here: ForkFlag,
}

impl Serving {
    pub(crate) fn spawn(
        name: &str,
        body: impl FnOnce(&StopHandle) -> Result<(), FabricError> + Send + 'static,
    ) -> Result<Self, FabricError> {
        let (stop, here) = (StopHandle::new()?, ForkFlag::raised()?);
        let seen = stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&seen))
            .map_err(|source| FabricError::os("starting the serving thread", source))?;
        Ok(Self { stop, thread: Some(thread), here })
    }

    /// Tells the thread to end, and gives it. In a process that was forked from the thread's there is none to end.
    fn end(&mut self) -> Option<JoinHandle<Result<(), FabricError>>> {
        if self.here.is_inherited() {
            std::mem::forget(self.thread.take());
            return None;
        }
        self.stop.stop();
        self.thread.take()
    }

    /// The handle that ends it.
    #[must_use]
    pub fn stop_handle(&self) -> &StopHandle {
        &self.stop
    }

    /// Ends the loop and says how it ended.
    ///
    /// # Errors
    /// What the loop returned.
    ///
    /// # Panics
    /// With the service's panic, if it did.
    pub fn stop(mut self) -> Result<(), FabricError> {
        match self.end().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(thread) = self.end() {
            // Its error has nobody left to go to; `stop` is for those who want it.
            let _ = thread.join();
        }
    }
}
