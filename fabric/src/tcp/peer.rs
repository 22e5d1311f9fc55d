//! One connection at the memory node.

mod entering;
mod requests;
mod stage;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::areas::Output;
use super::frame::{REPLY_TOO_LONG, ReplyHead, SERVED, checksum};
use super::node::{Admission, Arrival, Client, CloseReason, PeerKey, ReadsByCard, ServingState};
use super::request_memory::Charge;
use super::socket::{Moved, Origin};
use super::stream::Stream;
use super::unauthenticated::NewcomerGuard;
use crate::rdma::PeerQueuePair;
use crate::region_questions::ThreadMemory;
use crate::service::SHORT_BODY;
use stage::Stage;

/// Buffers of a connection above this size are given back when they are empty.
const KEEP: usize = 4 << 10;

/// Buffers that the connections of a thread use in turn.
#[derive(Debug)]
pub(super) struct PeerBuffers {
    pub(super) shared: Arc<ServingState>,
    /// Room for the longest batch that was cut off, and for what is received.
    pub(super) input: Box<[u8]>,
    pub(super) out: Output,
    /// The memory of answers to questions.
    pub(super) memory: ThreadMemory,
    pub(super) now: Instant,
}

/// The result of looking after a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Progressed {
    /// Nothing to do.
    Idle,
    /// Something was done, and more may follow.
    Active,
    /// Something was done, and there is more to do that nothing will announce.
    Paused,
    /// It waits for memory that other requests have.
    Starved,
    /// It is to be closed.
    Closed(CloseReason),
}

/// A call whose bytes are arriving.
#[derive(Debug)]
struct Arriving {
    tag: u16,
    len: usize,
    checksum: u64,
    bytes: Vec<u8>,
    charge: Charge,
}

impl Arriving {
    /// Bytes that are still to come.
    fn missing(&self) -> usize {
        self.len - self.bytes.len()
    }

    /// Whether there is memory for `more` bytes. A request of which nothing has come waits for no
    /// memory: it may never come.
    fn has_memory_for(&mut self, more: usize) -> bool {
        let lacks = (self.bytes.len() + more).saturating_sub(self.charge.bytes());
        lacks == 0 || self.len <= SHORT_BODY || self.charge.grow(lacks)
    }

    /// Whether there is no memory for the `came` bytes that have come.
    fn is_starved(&mut self, came: usize) -> bool {
        let more = self.missing().min(came);
        !self.has_memory_for(more)
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) stream: Stream,
    pub(super) key: PeerKey,
    pub(super) origin: Origin,
    needs_token: bool,
    pub(super) interest: EventFlags,
    pub(super) is_hot: bool,
    pub(super) last_active: Instant,
    since: Instant,
    stage: Stage,
    /// Input that is no whole frame yet, or could not be answered yet.
    rest: Vec<u8>,
    /// Whether `rest` may hold whole frames.
    is_unparsed: bool,
    arriving: Option<Arriving>,
    /// The tag of the call that the service has.
    asked: Option<u16>,
    partial_since: Option<Instant>,
    stuck_since: Option<Instant>,
    /// The node's end of its network card's queue pair.
    queue_pair: Option<PeerQueuePair>,
    /// As long as there is one.
    reads_by_card: Option<ReadsByCard>,
    /// Until it is let in.
    pub(super) place: Option<NewcomerGuard>,
    /// From then on. While it waits for the service, that has it.
    admission: Option<Admission>,
}

impl Peer {
    pub(super) fn new(arrival: Arrival, key: PeerKey, now: Instant) -> Self {
        let Arrival { stream, origin, needs_token, place } = arrival;
        Self {
            stream,
            key,
            origin,
            needs_token,
            interest: EventFlags::IN,
            is_hot: false,
            last_active: now,
            since: now,
            stage: Stage::Greeting,
            rest: Vec::new(),
            is_unparsed: false,
            arriving: None,
            asked: None,
            partial_since: None,
            stuck_since: None,
            queue_pair: None,
            reads_by_card: None,
            place: Some(place),
            admission: None,
        }
    }

    /// The client that it belongs to.
    pub(super) fn client(&self) -> Option<&Arc<Client>> {
        match &self.stage {
            Stage::Open { client, .. } => Some(client),
            _ => None,
        }
    }

    /// The client that came with it and leaves with it.
    pub(super) fn first_of(&self) -> Option<&Arc<Client>> {
        match &self.stage {
            Stage::Open { client, is_first: true } => Some(client),
            _ => None,
        }
    }

    pub(super) fn is_greeting(&self) -> bool {
        matches!(self.stage, Stage::Greeting | Stage::Challenged(_) | Stage::Held(_))
    }

    /// Whether it waits for something else than its peer's bytes.
    pub(super) fn is_held(&self) -> bool {
        let waits = matches!(self.stage, Stage::Waiting(_) | Stage::Held(_));
        waits || self.asked.is_some() || self.is_unparsed || self.is_unsent()
    }

    /// Whether it waits for the node alone, so that its peer can only have gone.
    pub(super) fn awaits_node(&self) -> bool {
        let waits = matches!(self.stage, Stage::Waiting(_) | Stage::Held(_));
        waits || self.asked.is_some() || self.is_starved()
    }

    /// Whether it waits for memory for a request.
    fn is_starved(&self) -> bool {
        self.is_unparsed && self.arriving.is_some()
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.stream.is_unsent()
    }

    /// Receives nothing more of its peer, which is to leave. Whether something is to be sent
    /// before: it is closed then, or when that takes too long.
    pub(super) fn stop_receiving(&mut self) -> bool {
        let Stage::Open { client, .. } = &self.stage else { return false };
        client.is_open.store(false, Ordering::Release);
        (self.asked, self.arriving, self.partial_since) = (None, None, None);
        // A client that has no right to the region any more is to READ no more of it, in any way.
        (self.queue_pair, self.reads_by_card) = (None, None);
        self.is_unsent()
    }

    /// When it is to be closed unless something happens, and why.
    pub(super) fn ends_at(&self, shared: &ServingState) -> Option<(Instant, CloseReason)> {
        let options = &shared.options;
        // A time that never comes ends nothing.
        let after = |since: Instant, time, end| Some((since.checked_add(time)?, end));
        let greeting = match self.stage {
            Stage::Greeting | Stage::Challenged(_) => {
                after(self.since, options.greeting_time, CloseReason::SILENT)
            }
            // It was told of already.
            Stage::Held(held) => Some((held.until, CloseReason::Parted)),
            _ => None,
        };
        let partial =
            self.partial_since.and_then(|since| after(since, options.frame_time, CloseReason::DRIBBLES));
        let stuck = self.stuck_since.and_then(|since| after(since, options.read_time, CloseReason::STUCK));
        let idle = options.idle_time.zip(self.first_of()).and_then(|(time, client)| {
            let active = match client.by_card.load(Ordering::Relaxed) {
                0 => shared.began.checked_add(Duration::from_secs(client.active.load(Ordering::Relaxed)))?,
                _ => Instant::now(),
            };
            after(active, time, CloseReason::IDLE)
        });
        [greeting, partial, stuck, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Why nothing comes any more.
    pub(super) fn lost(&self) -> CloseReason {
        match self.stream.fault() {
            Some(fault) => CloseReason::Tls(fault.why.clone()),
            None => CloseReason::Left,
        }
    }

    /// Appends the answer to the call that the service had.
    pub(super) fn answer(
        &mut self,
        len: usize,
        bytes: &[u8],
        buffers: &mut PeerBuffers,
    ) -> Result<(), CloseReason> {
        let Some(tag) = self.asked.take() else { return Ok(()) };
        buffers.out.clear();
        let (status, word) = match bytes.len() == len {
            true => (SERVED, checksum(bytes)),
            false => (REPLY_TOO_LONG, len as u64),
        };
        // Not longer than the limit, which is 32 bits.
        buffers.out.push(ReplyHead { bytes: bytes.len() as u32, tag, status, word }, bytes);
        self.flush(buffers).map(drop)
    }

    /// Sends the thread's output; what the socket does not take is kept. Whether all was sent.
    fn flush(&mut self, buffers: &mut PeerBuffers) -> Result<bool, CloseReason> {
        if !self.stream.put(buffers.out.bytes()) {
            return Err(CloseReason::Left);
        }
        if self.is_unsent() {
            self.stuck_since.get_or_insert(buffers.now);
        }
        buffers.out.clear();
        Ok(!self.is_unsent())
    }

    /// Sends what an earlier flush could not; whether all of it.
    fn send_rest(&mut self) -> Result<bool, CloseReason> {
        if self.stream.push_out() == Moved::Gone {
            return Err(self.lost());
        }
        if self.stream.is_unsent() {
            return Ok(false);
        }
        self.stream.shrink_queue(KEEP);
        self.stuck_since = None;
        Ok(true)
    }
}
