//! One I/O thread, which serves sockets.
//!
//! Connections that were used lately are *hot*: the thread looks at them again and again without
//! asking the kernel which of them has something, and asks for the others now and then. When none
//! is hot it sleeps in epoll_wait(2), level-triggered, so that nothing that arrives between the
//! last look and the sleep is missed.

mod accepting;
mod ending;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::areas::Output;
use super::counters::{HangUp, WaitCounts};
use super::frame::HEAD_BYTES;
use super::mailbox::Mailbox;
use super::node::{CloseReason, Listening, ServingState, ToService, ToThread};
use super::options::LIMITS;
use super::peer::{Peer, PeerBuffers, Progressed};
use crate::bell::timespec;
use crate::error::FabricError;
use crate::region_questions::ThreadMemory;
use crate::spin::Spin;

/// The most bytes that one look at a socket brings.
const RECEIVE: usize = 128 << 10;
/// Looks at hot connections between two at all, and the time between two: a look that finds much
/// takes long.
const LOOKS: usize = 64;
const LOOK_PAUSE: Duration = Duration::from_micros(50);
/// How soon memory for requests is asked for again.
const STARVED: Duration = Duration::from_millis(1);
/// Words of output that a thread keeps.
const KEEP_WORDS: usize = 64 << 10;

/// The key of events of the mailbox, which no connection has.
const MAILBOX: u64 = u64::MAX;
const LISTENING: u64 = u64::MAX - 1024;

/// A serving thread's state.
#[derive(Debug)]
pub(super) struct IoThread {
    index: usize,
    buffers: PeerBuffers,
    epoll: OwnedFd,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    hot: Vec<usize>,
    starved: Vec<u64>,
    /// When these last asked for memory.
    pumped_at: Instant,
    /// Connections that have not greeted, in the order in which they came.
    greeting: Vec<u64>,
    spin: Spin,
    /// Whether something was found since the last sleep.
    is_spinning: bool,
    /// Whether the last look found nothing.
    is_waiting: bool,
    /// When something was found last.
    last_event: Instant,
    /// No connection ends before this.
    ends_at: Option<Instant>,
    /// The listening sockets; empty but in the first thread.
    listening: Arc<[Listening]>,
    /// No connection is accepted before this.
    paused_until: Option<Instant>,
    /// When listening sockets are tried again that could not be watched after a pause.
    resumes_at: Option<Instant>,
    next_thread: usize,
    next_key: u64,
}

impl IoThread {
    pub(super) fn new(
        index: usize,
        shared: Arc<ServingState>,
        listening: Arc<[Listening]>,
    ) -> Result<Self, FabricError> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(FabricError::io("creating an epoll descriptor"))?;
        let watch = |source, data| {
            epoll::add(&epoll, source, EventData::new_u64(data), EventFlags::IN)
                .map_err(FabricError::io("watching a descriptor"))
        };
        watch(rustix::fd::AsFd::as_fd(&shared.threads[index]), MAILBOX)?;
        for (data, listening) in (LISTENING..).zip(listening.iter()) {
            watch(rustix::fd::AsFd::as_fd(&listening.socket), data)?;
        }
        let input = vec![0; HEAD_BYTES + LIMITS.batch_bytes as usize + RECEIVE].into_boxed_slice();
        let spin = Spin::new(shared.options.spin);
        Ok(Self {
            index,
            buffers: PeerBuffers {
                shared,
                input,
                out: Output::default(),
                memory: ThreadMemory::default(),
                now: Instant::now(),
            },
            epoll,
            peers: Vec::new(),
            free: Vec::new(),
            hot: Vec::new(),
            starved: Vec::new(),
            pumped_at: Instant::now(),
            greeting: Vec::new(),
            spin,
            is_spinning: false,
            is_waiting: false,
            last_event: Instant::now(),
            ends_at: None,
            listening,
            paused_until: None,
            resumes_at: None,
            next_thread: 0,
            next_key: 0,
        })
    }

    fn mailbox(&self) -> &Mailbox<ToThread> {
        &self.buffers.shared.threads[self.index]
    }

    /// Serves until the node stops.
    pub(super) fn run(mut self) -> Result<(), FabricError> {
        let mut events = Vec::with_capacity(256);
        let mut looked = 0;
        let mut last_look = Instant::now();
        while !self.buffers.shared.stopped.load(Ordering::Acquire) {
            self.buffers.now = Instant::now();
            let mut found = self.take_messages();
            found |= self.pump_hot();
            self.pump_starved();
            looked += self.hot.len();
            if found {
                self.note_found();
            }
            self.is_waiting = !found;
            let is_idle = self.hot.is_empty()
                && self.buffers.now.saturating_duration_since(self.last_event) >= self.spin.budget();
            if is_idle {
                self.stop_spinning();
                self.sleep(&mut events)?;
                self.buffers.out.shrink_to(KEEP_WORDS);
                last_look = self.buffers.now;
            } else if self.hot.is_empty()
                || looked >= LOOKS
                || self.buffers.now.saturating_duration_since(last_look) >= LOOK_PAUSE
            {
                looked = 0;
                self.look(&mut events, Some(Duration::ZERO))?;
                last_look = self.buffers.now;
            } else if !found {
                std::hint::spin_loop();
            }
            self.close_due();
        }
        // Answers to what was executed, before their connections close.
        self.buffers.now = Instant::now();
        self.take_messages();
        self.drain(&mut events)
    }

    fn waits(&self) -> &WaitCounts {
        &self.buffers.shared.waits[self.index]
    }

    /// Something was found, while the thread looked for it or by being woken.
    fn note_found(&mut self) {
        if self.is_spinning {
            self.spin.note_success();
            if self.is_waiting {
                self.waits().count_found(self.buffers.now.saturating_duration_since(self.last_event));
            }
        }
        (self.is_spinning, self.last_event) = (true, self.buffers.now);
    }

    /// The thread goes to sleep.
    fn stop_spinning(&mut self) {
        if std::mem::take(&mut self.is_spinning) {
            self.spin.note_failure();
            self.waits().count_sleep(self.buffers.now.saturating_duration_since(self.last_event));
        }
    }

    fn sleep(&mut self, events: &mut Vec<Event>) -> Result<(), FabricError> {
        let may_sleep = self.mailbox().begin_sleep();
        let soon = (!self.starved.is_empty()).then(|| self.buffers.now + STARVED);
        let until = [self.ends_at, soon, self.paused_until.or(self.resumes_at)].into_iter().flatten().min();
        let timeout = match until {
            _ if !may_sleep || self.buffers.shared.stopped.load(Ordering::Acquire) => Some(Duration::ZERO),
            Some(until) => Some(until.saturating_duration_since(Instant::now())),
            None => None,
        };
        let outcome = self.look(events, timeout);
        self.mailbox().end_sleep(false);
        outcome
    }

    /// Asks the kernel what there is, and does something about it.
    fn look(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<(), FabricError> {
        let timeout: Option<Timespec> = timeout.map(timespec);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(FabricError::io("waiting for sockets")(errno)),
        }
        self.buffers.now = Instant::now();
        for event in events.drain(..) {
            let flags = event.flags;
            match event.data.u64() {
                MAILBOX => self.mailbox().end_sleep(true),
                data if data >= LISTENING => self.accept((data - LISTENING) as usize),
                key => self.handle_event(key, flags),
            }
        }
        Ok(())
    }

    /// The place of a connection that is still there.
    fn find(&self, key: u64) -> Option<usize> {
        // The low half of a key is its place.
        let at = (key & u64::from(u32::MAX)) as usize;
        self.peers.get(at)?.as_ref().filter(|peer| peer.key.key == key).map(|_| at)
    }

    /// Handles what the operating system says of a connection.
    fn handle_event(&mut self, key: u64, flags: EventFlags) {
        let Some(at) = self.find(key) else { return };
        let Some(peer) = &mut self.peers[at] else { return };
        let has_gone = match peer.awaits_node() {
            true => EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP,
            false => EventFlags::HUP | EventFlags::ERR,
        };
        if peer.is_held() && flags.intersects(has_gone) {
            return self.close(at, CloseReason::Left);
        }
        if peer.is_hot && !flags.contains(EventFlags::OUT) {
            return self.watch(at, true);
        }
        if !peer.is_hot {
            peer.is_hot = true;
            peer.last_active = self.buffers.now;
            self.hot.push(at);
            self.note_found();
        }
        self.pump(at);
        self.watch(at, true);
    }

    /// Asks the kernel to tell what the connection waits for. What it does not wait for is only
    /// taken back once it was told.
    fn watch(&mut self, at: usize, was_told: bool) {
        let Some(peer) = &mut self.peers[at] else { return };
        let wanted = match (peer.is_unsent(), peer.is_held()) {
            (true, _) => EventFlags::OUT,
            (false, true) if was_told && peer.awaits_node() => EventFlags::RDHUP,
            (false, true) if was_told => EventFlags::empty(),
            (false, true) => return,
            (false, false) => EventFlags::IN,
        };
        if wanted != peer.interest {
            peer.interest = wanted;
            let data = EventData::new_u64(peer.key.key);
            if epoll::modify(&self.epoll, &peer.stream, data, wanted).is_err() {
                self.close(at, CloseReason::Left);
            }
        }
    }

    /// Moves what can be moved, and says whether that was something.
    fn pump(&mut self, at: usize) -> bool {
        let Some(peer) = &mut self.peers[at] else { return false };
        let was_greeting = peer.is_greeting();
        let progressed = peer.pump(&mut self.buffers);
        if was_greeting && !peer.is_greeting() {
            let key = peer.key.key;
            self.greeting.retain(|other| *other != key);
        }
        match progressed {
            Progressed::Closed(end) => {
                self.close(at, end);
                return true;
            }
            Progressed::Idle => {}
            Progressed::Active | Progressed::Paused => {
                peer.last_active = self.buffers.now;
                if !peer.is_hot {
                    peer.is_hot = true;
                    self.hot.push(at);
                }
            }
            Progressed::Starved => {
                let key = peer.key.key;
                if !self.starved.contains(&key) {
                    self.starved.push(key);
                }
            }
        }
        self.expect_end(at);
        if self.peers[at].as_ref().is_some_and(|peer| peer.is_unsent() || peer.interest != EventFlags::IN) {
            self.watch(at, false);
        }
        matches!(progressed, Progressed::Active | Progressed::Paused)
    }

    fn pump_hot(&mut self) -> bool {
        let budget = self.spin.budget();
        let (mut found, mut index) = (false, 0);
        while index < self.hot.len() {
            let at = self.hot[index];
            found |= self.pump(at);
            let now = self.buffers.now;
            let stays = self.peers[at].as_mut().is_some_and(|peer| {
                let stays =
                    now.saturating_duration_since(peer.last_active) < budget || peer.last_active == now;
                peer.is_hot = stays;
                stays
            });
            // A connection that was closed has left the list.
            if stays {
                index += 1;
            } else if self.hot.get(index) == Some(&at) {
                self.hot.swap_remove(index);
            }
        }
        found
    }

    fn pump_starved(&mut self) {
        if self.starved.is_empty() || self.buffers.now.saturating_duration_since(self.pumped_at) < STARVED {
            return;
        }
        self.pumped_at = self.buffers.now;
        for key in std::mem::take(&mut self.starved) {
            if let Some(at) = self.find(key) {
                self.pump(at);
            }
        }
    }

    fn take_messages(&mut self) -> bool {
        let (mut found, mut parted) = (false, Vec::new());
        for _ in 0..self.mailbox().len() {
            let Some(message) = self.mailbox().take() else { break };
            found = true;
            match message {
                ToThread::Take(arrival) => self.take(arrival),
                ToThread::Admit { key, client, admission } => match self.find(key) {
                    Some(at) => {
                        let Some(peer) = &mut self.peers[at] else { continue };
                        if let Err(end) = peer.open(client, true, admission, &mut self.buffers) {
                            self.close(at, end);
                        } else {
                            self.go_on(at);
                        }
                    }
                    None => self.buffers.shared.service_side.post(ToService::Gone(client.id())),
                },
                ToThread::Refuse { key, welcome, error, admission } => {
                    self.buffers.shared.report(HangUp::of_refusal(&error), *error);
                    if let Some(at) = self.find(key) {
                        if let Some(peer) = &mut self.peers[at] {
                            peer.refuse(&welcome);
                        }
                        self.close(at, CloseReason::Parted);
                    }
                    drop(admission);
                }
                ToThread::Reply { key, len, bytes } => {
                    let Some(at) = self.find(key) else { continue };
                    let Some(peer) = &mut self.peers[at] else { continue };
                    match peer.answer(len, &bytes, &mut self.buffers) {
                        Ok(()) => self.go_on(at),
                        Err(end) => self.close(at, end),
                    }
                }
                ToThread::Crowded(number) => {
                    let is_it = |peer: &Peer| peer.place.as_ref().is_some_and(|place| place.number == number);
                    let mut places = self.greeting.iter().filter_map(|key| self.find(*key));
                    let place = places.find(|at| self.peers[*at].as_ref().is_some_and(is_it));
                    if let Some(at) = place {
                        self.close(at, CloseReason::CROWDED);
                    }
                }
                ToThread::Part(client) => parted.push(client),
            }
        }
        // After all that was to be said to them.
        if !parted.is_empty() {
            self.close_clients(parted);
        }
        found
    }

    /// Looks after a connection for which something has come that it waited for.
    fn go_on(&mut self, at: usize) {
        self.pump(at);
        self.watch(at, false);
    }

    fn expect_end(&mut self, at: usize) {
        let end = self.peers[at].as_ref().and_then(|peer| peer.ends_at(&self.buffers.shared));
        if let Some((end, _)) = end {
            self.ends_at = Some(self.ends_at.map_or(end, |known| known.min(end)));
        }
    }

    /// Closes connections whose time is over.
    fn close_due(&mut self) {
        if self.paused_until.or(self.resumes_at).is_some_and(|at| self.buffers.now >= at) {
            self.resume_listening();
        }
        if self.ends_at.is_none_or(|at| self.buffers.now < at) {
            return;
        }
        self.ends_at = None;
        for at in 0..self.peers.len() {
            let end = self.peers[at].as_ref().and_then(|peer| peer.ends_at(&self.buffers.shared));
            match end {
                Some((when, end)) if when <= self.buffers.now => self.close(at, end),
                _ => self.expect_end(at),
            }
        }
    }
}
