//! The memory node's side: one thread that serves all rings, spinning after work and sleeping when idle.

use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::bell::{Bell, HUNG_UP, timespec};
use crate::connection::{ClientId, Service, StopHandle};
use crate::error::FabricError;
use crate::memory::{AccessError, SharedMemory};
use crate::ring::{
    BODIES, CLIENT_SLEEPS, DAMAGED, REPLY_CHECKSUM, REPLY_STATUS, REPLY_TAG, REPLY_TOO_LONG,
    REQUEST_CHECKSUM, REQUEST_TAG, RingLayout, SERVED, SERVER_SLEEPS, checksum, len_of, sequence_of, tag,
};

/// How long the loop spins after the last request before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How often sockets are looked at while rings keep the loop busy.
const ATTEND: Duration = Duration::from_millis(1);
/// Buffers above this size are given back after a request; a rare long one must not hold memory for ever.
const KEEP_BUFFER: usize = 4 << 20;

/// A client's ring at the memory node.
#[derive(Debug)]
pub(crate) struct Session {
    id: ClientId,
    ring: SharedMemory,
    layout: RingLayout,
    bell: Bell,
    /// The last request tag that was answered.
    answered: u64,
}

/// Where new clients come from.
pub(crate) trait Acceptor {
    /// Adds the descriptors that become readable when [`advance`](Self::advance) has something to do.
    fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>);
    /// When `advance` must be called though no descriptor is readable.
    fn next_deadline(&self) -> Option<Instant>;
    /// Does what can be done without waiting, and returns clients that have been let in; `open` are served already.
    fn advance(&mut self, open: usize, rejected: &mut dyn FnMut(&FabricError)) -> Vec<Session>;
}

/// What a look at a ring found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Request,
}

#[derive(Default)]
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Session {
    pub(crate) fn new(id: ClientId, ring: SharedMemory, layout: RingLayout, bell: Bell) -> Self {
        Self { id, ring, layout, bell, answered: 0 }
    }

    /// Serves the ring's request, if there is a new one: the quantum of a ring is one request per sweep.
    fn serve<S: Service>(&mut self, service: &mut S, buffers: &mut Buffers) -> Result<Found, AccessError> {
        let asked = self.ring.load_acquire(REQUEST_TAG)?;
        if asked == self.answered {
            return Ok(Found::Nothing);
        }
        self.answered = asked;
        let Buffers { request, reply } = buffers;
        reply.clear();
        let mut status = DAMAGED;
        let len = len_of(asked);
        if len <= self.layout.request_capacity() {
            request.resize(len, 0);
            self.ring.read_bytes(BODIES, request)?;
            if self.ring.load_relaxed(REQUEST_CHECKSUM)? == checksum(asked, request) {
                status = SERVED;
                service.handle(self.id, request, reply);
            }
        }
        self.answer(sequence_of(asked), status, reply)?;
        request.shrink_to(KEEP_BUFFER);
        reply.shrink_to(KEEP_BUFFER);
        Ok(Found::Request)
    }

    fn answer(&self, sequence: u32, mut status: u64, mut reply: &[u8]) -> Result<(), AccessError> {
        let tag = tag(sequence, reply.len());
        if reply.len() > self.layout.reply_capacity() {
            status = REPLY_TOO_LONG;
            reply = &[];
        }
        self.ring.write_bytes(self.layout.reply_body(), reply)?;
        self.ring.store_relaxed(REPLY_CHECKSUM, checksum(tag, reply))?;
        self.ring.store_relaxed(REPLY_STATUS, status)?;
        self.ring.store_release(REPLY_TAG, tag)?;
        // The client stores its sleep word before it looks at the tag; we stored the tag before we look at the word.
        fence(Ordering::SeqCst);
        if self.ring.load_relaxed(CLIENT_SLEEPS)? != 0 {
            self.bell.ring();
        }
        Ok(())
    }

    fn has_request(&self) -> bool {
        self.ring.load_acquire(REQUEST_TAG).is_ok_and(|asked| asked != self.answered)
    }

    fn set_sleeping(&self, value: u64) {
        // Cannot fail: the word lies inside every ring, and rings are mapped writable.
        let _ = self.ring.store_relaxed(SERVER_SLEEPS, value);
    }
}

/// All clients of a memory node, being served.
struct Sessions<'s, S: Service> {
    service: &'s mut S,
    open: Vec<Session>,
}

impl<S: Service> Sessions<'_, S> {
    fn sweep(&mut self, buffers: &mut Buffers) -> Found {
        let mut found = Found::Nothing;
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].serve(self.service, buffers) {
                Ok(Found::Nothing) => index += 1,
                Ok(Found::Request) => {
                    found = Found::Request;
                    index += 1;
                }
                // The ring is not what was set up; its client cannot be served.
                Err(_) => self.close(index),
            }
        }
        found
    }

    fn close(&mut self, index: usize) {
        let session = self.open.swap_remove(index);
        session.bell.hang_up();
        self.service.disconnected(session.id);
    }

    /// Looks at the sockets, waiting at most `timeout`: lets clients in and drops those that have gone.
    fn attend<A: Acceptor>(
        &mut self,
        acceptor: &mut A,
        stop: &StopHandle,
        timeout: Option<Duration>,
    ) -> Result<(), FabricError> {
        let mut fds = Vec::with_capacity(self.open.len() + 4);
        let interest = PollFlags::IN | PollFlags::RDHUP;
        fds.extend(self.open.iter().map(|session| PollFd::from_borrowed_fd(session.bell.as_fd(), interest)));
        fds.push(PollFd::new(stop, PollFlags::IN));
        acceptor.watch(&mut fds);
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(FabricError::io("waiting for clients")(errno)),
        }
        let states: Vec<PollFlags> = fds[..self.open.len()].iter().map(PollFd::revents).collect();
        drop(fds);
        // Backwards, because closing moves the last session into the gap.
        for (index, state) in states.into_iter().enumerate().rev() {
            if state.intersects(HUNG_UP) {
                self.close(index);
            } else if state.intersects(PollFlags::IN) {
                self.open[index].bell.drain();
            }
        }
        for session in acceptor.advance(self.open.len(), &mut |error| self.service.rejected(error)) {
            self.service.connected(session.id);
            self.open.push(session);
        }
        Ok(())
    }

    /// Sleeps until something happens.
    fn sleep<A: Acceptor>(&mut self, acceptor: &mut A, stop: &StopHandle) -> Result<(), FabricError> {
        for session in &self.open {
            session.set_sleeping(1);
        }
        // A client stores its tag before it looks at our word; we stored the word before we look at the tags.
        fence(Ordering::SeqCst);
        let awake = stop.is_stopped() || self.open.iter().any(Session::has_request);
        let timeout = match acceptor.next_deadline() {
            _ if awake => Some(Duration::ZERO),
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => None,
        };
        let outcome = self.attend(acceptor, stop, timeout);
        for session in &self.open {
            session.set_sleeping(0);
        }
        outcome
    }
}

impl<S: Service> Drop for Sessions<'_, S> {
    fn drop(&mut self) {
        while !self.open.is_empty() {
            let session = self.open.swap_remove(self.open.len() - 1);
            session.bell.hang_up();
            // After a panic of the service it is not called again.
            if !std::thread::panicking() {
                self.service.disconnected(session.id);
            }
        }
    }
}

/// Serves until stopped. The thread spins up to 50 µs after a request and sleeps in poll(2) otherwise.
///
/// # Errors
/// If the operating system cannot wait for descriptors.
pub(crate) fn serve<S: Service, A: Acceptor>(
    acceptor: &mut A,
    service: &mut S,
    stop: &StopHandle,
) -> Result<(), FabricError> {
    let mut sessions = Sessions { service, open: Vec::new() };
    let mut buffers = Buffers::default();
    let mut last_work = Instant::now();
    let mut last_attended = last_work;
    while !stop.is_stopped() {
        let found = sessions.sweep(&mut buffers);
        let now = Instant::now();
        if found == Found::Request {
            last_work = now;
        } else if now.duration_since(last_work) >= SPIN {
            sessions.sleep(acceptor, stop)?;
            last_attended = Instant::now();
            continue;
        } else {
            std::hint::spin_loop();
        }
        if now.duration_since(last_attended) >= ATTEND {
            sessions.attend(acceptor, stop, Some(Duration::ZERO))?;
            last_attended = now;
        }
    }
    Ok(())
}
