//! The memory node's side: one thread that serves all rings, spinning after work and sleeping when
//! idle.
//!
//! A round is a *sweep* over the rings, one request of each at most, then one [`Service::work`],
//! then the replies that have become ready, and hanging up on clients whose region is gone.
//! Requests and work therefore wait for each other at most one round, however much there is of
//! either. A long request stays in its ring while the service has no room for it.

mod long_bodies;

use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::bell::{Bell, HUNG_UP, timespec};
use crate::descriptors::TakenDescriptors;
use crate::error::FabricError;
use crate::memory::{AccessError, SharedMemory};
use crate::region::RegionName;
use crate::ring::{
    BODIES, CLIENT_SLEEPS, DAMAGED, REPLY_CHECKSUM, REPLY_STATUS, REPLY_TAG, REPLY_TOO_LONG,
    REQUEST_CHECKSUM, REQUEST_TAG, RingLayout, SERVED, SERVER_SLEEPS, checksum, len_of, sequence_of, tag,
};
use crate::service::{ClientId, Handled, SHORT_BODY, Service, Waker, Work};
use crate::serving::StopHandle;
use crate::spin::Spin;
use crate::tcp::ServiceSide;
use long_bodies::{LongBodies, RingPages};

/// How long the loop spins after the last request or reply before it sleeps, while that pays off.
const SPIN: Duration = Duration::from_micros(50);
/// How often sockets are looked at while rings keep the loop busy.
const ATTEND: Duration = Duration::from_millis(1);
/// Buffers above this size are given back after a request; a rare long one must not hold memory for
/// ever.
const KEEP_BUFFER: usize = 4 << 20;
/// How long the loop sleeps at most while a request waits for room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(2);

/// A client's ring at the memory node.
#[derive(Debug)]
pub(crate) struct RingSession {
    id: ClientId,
    ring: SharedMemory,
    layout: RingLayout,
    bell: Bell,
    /// The last request tag that was taken out of the ring.
    taken: u64,
    /// Its sequence, while the service owes the reply. The ring's next request, if the client has
    /// given up on this one, waits until then: a reply names only its client, so there can be one
    /// at a time.
    owed: Option<u32>,
    pages: RingPages,
    /// Its socket among the process's descriptors, where those are counted.
    _descriptor: Option<TakenDescriptors>,
}

/// Where new clients come from.
pub(crate) trait Acceptor {
    /// Adds the descriptors that become readable when [`advance`](Self::advance) has something to
    /// do.
    fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>);
    /// When `advance` must be called though no descriptor is readable.
    fn next_deadline(&self) -> Option<Instant>;
    /// Does what can be done without waiting, and returns clients that have been let in, each with
    /// the name of its region; `open` are served already.
    fn advance(&mut self, open: usize, service: &mut dyn Service) -> Vec<(RingSession, RegionName)>;
}

/// Where no clients with rings come from.
pub(crate) struct NoRings;

impl Acceptor for NoRings {
    fn watch<'a>(&'a self, _: &mut Vec<PollFd<'a>>) {}

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn advance(&mut self, _: usize, _: &mut dyn Service) -> Vec<(RingSession, RegionName)> {
        Vec::new()
    }
}

/// What a look at the rings, or at the service's replies, found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    Nothing,
    Something,
}

#[derive(Default)]
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl RingSession {
    pub(crate) fn new(id: ClientId, ring: SharedMemory, layout: RingLayout, bell: Bell) -> Self {
        let pages = RingPages::default();
        Self { id, ring, layout, bell, taken: 0, owed: None, pages, _descriptor: None }
    }

    /// The same, whose socket is this one of the process's descriptors.
    pub(crate) fn counted(self, descriptor: TakenDescriptors) -> Self {
        Self { _descriptor: Some(descriptor), ..self }
    }

    /// Serves the ring's request, if there is a new one: the quantum of a ring is one request per
    /// sweep.
    fn serve<S: Service>(
        &mut self,
        service: &mut S,
        buffers: &mut Buffers,
        bodies: &mut LongBodies,
    ) -> Result<Polled, AccessError> {
        let asked = self.ring.load_acquire(REQUEST_TAG)?;
        let (len, is_new) = (len_of(asked), asked != self.taken && self.owed.is_none());
        let is_possible = len <= self.layout.request_capacity();
        if is_new && is_possible && len > SHORT_BODY && !bodies.admits(&mut self.pages, self.id, len, service)
        {
            return Ok(Polled::Nothing);
        }
        if self.pages.waits() {
            bodies.stop_waiting(&mut self.pages);
        }
        if !is_new {
            return Ok(Polled::Nothing);
        }
        self.taken = asked;
        self.pages.begin(&self.ring, &self.layout)?;
        let Buffers { request, reply } = buffers;
        reply.clear();
        let mut status = DAMAGED;
        if is_possible {
            request.resize(len, 0);
            self.ring.read_bytes(BODIES, request)?;
            if self.ring.load_relaxed(REQUEST_CHECKSUM)? == checksum(asked, request) {
                status = SERVED;
                if service.handle(self.id, request, reply) == Handled::Later {
                    self.owed = Some(sequence_of(asked));
                }
            }
        }
        if self.owed.is_none() {
            self.answer(sequence_of(asked), status, reply)?;
        }
        if request.len() > SHORT_BODY || reply.len() > SHORT_BODY {
            bodies.passed(&mut self.pages, &self.ring, request.len(), reply.len());
        }
        request.shrink_to(KEEP_BUFFER);
        reply.shrink_to(KEEP_BUFFER);
        Ok(Polled::Something)
    }

    /// Sends the reply that is owed; one that is not is dropped.
    fn settle(&mut self, reply: &[u8], bodies: &mut LongBodies) -> Result<(), AccessError> {
        if let Some(sequence) = self.owed.take() {
            self.answer(sequence, SERVED, reply)?;
            if reply.len() > SHORT_BODY {
                bodies.passed(&mut self.pages, &self.ring, 0, reply.len());
            }
        }
        Ok(())
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
        // The client stores its sleep word before it looks at the tag; we stored the tag before we
        // look at the word.
        fence(Ordering::SeqCst);
        if self.ring.load_relaxed(CLIENT_SLEEPS)? != 0 {
            self.bell.ring();
        }
        Ok(())
    }

    /// Whether there is a request that could be taken; one that waits for room does not count.
    fn has_request(&self) -> bool {
        !self.pages.waits()
            && self.owed.is_none()
            && self.ring.load_acquire(REQUEST_TAG).is_ok_and(|asked| asked != self.taken)
    }

    fn set_sleeping(&self, value: u64) {
        // Cannot fail: the word lies inside every ring, and rings are mapped writable.
        let _ = self.ring.store_relaxed(SERVER_SLEEPS, value);
    }
}

/// All clients of a memory node, being served.
struct Sessions<'s, S: Service> {
    service: &'s mut S,
    /// Wakes the loop, besides clients.
    waker: Option<Waker>,
    /// In the order of their ids, so that a reply finds its client.
    open: Vec<RingSession>,
    bodies: LongBodies,
    /// The clients over sockets, if there may be any.
    service_side: Option<&'s mut ServiceSide>,
}

impl<S: Service> Sessions<'_, S> {
    fn sweep(&mut self, buffers: &mut Buffers) -> Polled {
        let mut found = Polled::Nothing;
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].serve(self.service, buffers, &mut self.bodies) {
                Ok(Polled::Nothing) => index += 1,
                Ok(Polled::Something) => {
                    found = Polled::Something;
                    index += 1;
                }
                // The ring is not what was set up; its client cannot be served.
                Err(_) => self.close(index),
            }
        }
        if let Some(service_side) = &mut self.service_side
            && service_side.sweep(self.service, &mut self.bodies.queue)
        {
            found = Polled::Something;
        }
        found
    }

    /// Sends the replies that have become ready.
    fn deliver(&mut self, buffers: &mut Buffers) -> Polled {
        let mut found = Polled::Nothing;
        loop {
            buffers.reply.clear();
            let Some(client) = self.service.next_reply(&mut buffers.reply) else { break };
            found = Polled::Something;
            // A client that has gone is not among them.
            match self.open.binary_search_by_key(&client, |session| session.id) {
                Ok(index) if self.open[index].settle(&buffers.reply, &mut self.bodies).is_err() => {
                    self.close(index)
                }
                Ok(_) => {}
                Err(_) => {
                    if let Some(service_side) = &mut self.service_side {
                        service_side.settle(client, &mut buffers.reply);
                    }
                }
            }
        }
        buffers.reply.shrink_to(KEEP_BUFFER);
        found
    }

    /// Hangs up on clients whose region is gone, after their last replies.
    fn hang_up_on_dropped(&mut self) {
        while let Some(client) = self.service.next_farewell() {
            match (self.open.binary_search_by_key(&client, |session| session.id), &mut self.service_side) {
                (Ok(index), _) => self.close(index),
                (Err(_), Some(service_side)) => {
                    service_side.hang_up_on(client, self.service, &mut self.bodies.queue)
                }
                (Err(_), None) => {}
            }
        }
    }

    fn close(&mut self, index: usize) {
        let mut session = self.open.remove(index);
        self.bodies.closed(&mut session.pages);
        session.bell.hang_up();
        self.service.disconnected(session.id);
    }

    /// Looks at the sockets, waiting at most `timeout`: lets clients in and drops those that have
    /// gone.
    fn poll_sockets<A: Acceptor>(
        &mut self,
        acceptor: &mut A,
        stop: &StopHandle,
        timeout: Option<Duration>,
    ) -> Result<(), FabricError> {
        let mut fds = Vec::with_capacity(self.open.len() + 4);
        let interest = PollFlags::IN | PollFlags::RDHUP;
        fds.extend(self.open.iter().map(|session| PollFd::from_borrowed_fd(session.bell.as_fd(), interest)));
        let first_other = fds.len();
        fds.push(PollFd::new(stop, PollFlags::IN));
        fds.extend(self.waker.as_ref().map(|waker| PollFd::new(waker, PollFlags::IN)));
        let desk_at = fds.len();
        fds.extend(self.service_side.as_deref().map(|service_side| PollFd::new(service_side, PollFlags::IN)));
        acceptor.watch(&mut fds);
        match poll(&mut fds, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(FabricError::io("waiting for clients")(errno)),
        }
        let states: Vec<PollFlags> = fds[..first_other].iter().map(PollFd::revents).collect();
        // After the stop handle. Drained before the service is asked what it has, so that no use of
        // it is missed.
        let woken = self.waker.is_some() && fds[first_other + 1].revents().contains(PollFlags::IN);
        let has_message = self.service_side.is_some() && fds[desk_at].revents().contains(PollFlags::IN);
        drop(fds);
        if let Some(service_side) = self.service_side.as_deref() {
            service_side.end_sleep(has_message);
        }
        if let Some(waker) = self.waker.as_ref().filter(|_| woken) {
            waker.drain();
        }
        // Backwards, because closing moves the sessions after.
        for (index, state) in states.into_iter().enumerate().rev() {
            if state.intersects(HUNG_UP) {
                self.close(index);
            } else if state.intersects(PollFlags::IN) {
                self.open[index].bell.drain();
            }
        }
        for (session, region) in acceptor.advance(self.open.len(), self.service) {
            self.service.connected(session.id, region.as_bytes());
            let place = self.open.partition_point(|other| other.id < session.id);
            self.open.insert(place, session);
        }
        Ok(())
    }

    /// Sleeps until something happens, or until the service has work.
    fn sleep<A: Acceptor>(
        &mut self,
        acceptor: &mut A,
        stop: &StopHandle,
        work_at: Option<Instant>,
    ) -> Result<(), FabricError> {
        for session in &self.open {
            session.set_sleeping(1);
        }
        // A client stores its tag before it looks at our word; we stored the word before we look at
        // the tags.
        fence(Ordering::SeqCst);
        let has_message =
            self.service_side.as_deref().is_some_and(|service_side| !service_side.begin_sleep());
        let awake = stop.is_stopped() || has_message || self.open.iter().any(RingSession::has_request);
        let room_at = self.bodies.queue.is_awaited().then(|| Instant::now() + LOOK_FOR_ROOM);
        let timeout = match acceptor.next_deadline().into_iter().chain(work_at).chain(room_at).min() {
            _ if awake => Some(Duration::ZERO),
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => None,
        };
        let outcome = self.poll_sockets(acceptor, stop, timeout);
        for session in &self.open {
            session.set_sleeping(0);
        }
        outcome
    }
}

impl<S: Service> Drop for Sessions<'_, S> {
    fn drop(&mut self) {
        while !self.open.is_empty() {
            let session = self.open.remove(self.open.len() - 1);
            session.bell.hang_up();
            // After a panic of the service it is not called again.
            if !std::thread::panicking() {
                self.service.disconnected(session.id);
            }
        }
        if let Some(service_side) = self.service_side.as_deref_mut().filter(|_| !std::thread::panicking()) {
            service_side.hang_up_on_all(self.service, &mut self.bodies.queue);
        }
    }
}

/// Serves until stopped. The thread spins up to 50 µs after a request or a reply, if that has paid
/// off lately, does not sleep while the service has work, and sleeps in poll(2) otherwise.
///
/// # Errors
/// If the operating system cannot wait for descriptors.
pub(crate) fn serve<S: Service, A: Acceptor>(
    acceptor: &mut A,
    service_side: Option<&mut ServiceSide>,
    service: &mut S,
    stop: &StopHandle,
) -> Result<(), FabricError> {
    let waker = service.waker();
    let mut sessions =
        Sessions { service, waker, open: Vec::new(), bodies: LongBodies::default(), service_side };
    let mut buffers = Buffers::default();
    let mut last_found = Instant::now();
    let mut last_attended = last_found;
    let mut spin = Spin::new(SPIN);
    // Whether something was found since the last sleep, so that the loop is spinning for more.
    let mut is_spinning = false;
    while !stop.is_stopped() {
        let swept = sessions.sweep(&mut buffers);
        let work = sessions.service.work();
        let delivered = sessions.deliver(&mut buffers);
        sessions.hang_up_on_dropped();
        let now = Instant::now();
        let idle = now.saturating_duration_since(last_found) >= spin.budget();
        match work {
            _ if swept == Polled::Something || delivered == Polled::Something => {
                if is_spinning {
                    spin.note_success();
                }
                (is_spinning, last_found) = (true, now);
            }
            Work::More => {}
            Work::Nothing | Work::At(_) if !idle => std::hint::spin_loop(),
            Work::Nothing | Work::At(_) => {
                if std::mem::take(&mut is_spinning) {
                    spin.note_failure();
                }
                let work_at = if let Work::At(at) = work { Some(at) } else { None };
                sessions.sleep(acceptor, stop, work_at)?;
                last_attended = Instant::now();
                continue;
            }
        }
        if now.duration_since(last_attended) >= ATTEND {
            sessions.poll_sockets(acceptor, stop, Some(Duration::ZERO))?;
            last_attended = now;
        }
    }
    Ok(())
}
