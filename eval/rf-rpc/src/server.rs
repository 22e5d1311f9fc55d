//! The server's side: which requests have come, and where their results go.

mod batches;
mod received;
mod slot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::{AccessError, AreaId, ClientId, Clock, FabricError, Handled, MemoryError, NodeMemory};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::layout::{DAMAGED, ENTRY_MAX, Head, SERVED, Shape, TOO_LONG, first_sequence, is_newer};
use crate::messages::{FETCH, FORGOTTEN, FULL, HERE, Message, NO_SUCH_BATCH, Place, UNKNOWN};
use crate::mode::Mode;
use batches::{Sealed, read_request};
pub use received::{CallId, Received};
use slot::{Slot, kept};

/// How often a request whose checksum does not hold is looked at before it counts as damaged.
const LOOKS: u32 = 4096;
/// Replies up to this many bytes are kept until the slot's next request, in case the request comes
/// twice.
const KEEP: usize = 16 << 10;
/// The unit of response times.
pub(super) const TIME_UNIT: Duration = Duration::from_nanos(256);

/// How a server is set up.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// The sizes of each client's channel.
    pub shape: Shape,
    /// Clients at once. What they take of the memory is [`Shape::channel_bytes`] each.
    pub clients: u16,
    /// The area in which clients find the memory.
    pub area: AreaId,
    /// Where in the memory the channels begin; a multiple of 64.
    pub offset: u64,
    /// Where the channels' keys come from: a number that no one else knows.
    pub seed: u64,
    /// Most bytes of one batch's results together.
    pub max_results: usize,
}

impl Default for ServerOptions {
    /// Four batches in flight per client, two result batches each, 16 clients, in area 2.
    fn default() -> Self {
        let capacity = (ENTRY_MAX + 2048) as u32;
        Self {
            shape: Shape { slots: 4, parts: 2, capacity },
            clients: 16,
            area: AreaId(2),
            offset: 0,
            seed: 0,
            max_results: (1 << 20) - 64,
        }
    }
}

#[derive(Debug)]
struct Channel {
    client: ClientId,
    opened: u64,
    key: u64,
    slots: Vec<Slot>,
}

/// The server's side of RF-RPC: its [`Service`](fpcache_fabric::Service) hands over the messages of
/// clients ([`handle`](Self::handle)) and their ends, [receives](Self::recv) what they ask for, and
/// [sends](Self::send) results.
///
/// A server is one thread's. Several, over different stretches of memory, serve several threads.
#[derive(Debug)]
pub struct Server<M> {
    memory: Arc<M>,
    options: ServerOptions,
    clock: Arc<dyn Clock>,
    channels: Vec<Option<Channel>>,
    opened: u64,
    /// Requests that came by message.
    called: VecDeque<Received>,
    replies: VecDeque<(ClientId, Vec<u8>)>,
    cursor: usize,
}

impl<M: NodeMemory> Server<M> {
    /// A server over `memory`, which the memory node offers its clients for writing as the area of
    /// the options.
    ///
    /// # Errors
    /// If the sizes are impossible or the memory is too short for all clients.
    pub fn new(memory: Arc<M>, options: ServerOptions, clock: Arc<dyn Clock>) -> Result<Self, FabricError> {
        let bytes = options.shape.channel_bytes().checked_mul(u64::from(options.clients));
        let end = bytes.and_then(|bytes| bytes.checked_add(options.offset));
        let fits = end.is_some_and(|end| end <= memory.len()) && options.offset.is_multiple_of(64);
        if !options.shape.is_possible() || !fits || options.clients == 0 {
            return Err(MemoryError::BadLength { len: end.unwrap_or(u64::MAX) as usize }.into());
        }
        let channels = (0..options.clients).map(|_| None).collect();
        let (called, replies) = (VecDeque::new(), VecDeque::new());
        Ok(Self { memory, options, clock, channels, opened: 0, called, replies, cursor: 0 })
    }

    /// Clients that have a channel.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.channels.iter().flatten().count()
    }

    fn base(&self, channel: usize) -> u64 {
        self.options.offset + channel as u64 * self.options.shape.channel_bytes()
    }

    /// A client has gone: what it was owed is forgotten.
    pub fn disconnected(&mut self, client: ClientId) {
        for channel in
            self.channels.iter_mut().filter(|channel| channel.as_ref().is_some_and(|c| c.client == client))
        {
            *channel = None;
        }
        self.replies.retain(|(to, _)| *to != client);
        self.called.retain(|received| received.client != client);
    }

    /// A reply to a message that was to be answered later, for
    /// [`Service::next_reply`](fpcache_fabric::Service::next_reply).
    pub fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let (client, bytes) = self.replies.pop_front()?;
        reply.extend_from_slice(&bytes);
        Some(client)
    }

    /// A message of a client: `None` if it is not one of RF-RPC.
    pub fn handle(&mut self, client: ClientId, message: &[u8], reply: &mut Vec<u8>) -> Option<Handled> {
        if !message.starts_with(b"RF") {
            return None;
        }
        let outcome = match Message::decode(message) {
            None => Err(UNKNOWN),
            Some(Message::Open) => self.open(client, reply).map(|()| Handled::Now),
            Some(message) => self.handle_batch(client, message, reply),
        };
        Some(outcome.unwrap_or_else(|code| {
            reply.clear();
            reply.push(code);
            Handled::Now
        }))
    }

    fn open(&mut self, client: ClientId, reply: &mut Vec<u8>) -> Result<(), u8> {
        let shape = self.options.shape;
        let open = self.channels.iter().enumerate().find_map(|(index, channel)| {
            channel.as_ref().filter(|channel| channel.client == client).map(|channel| (index, channel.key))
        });
        if let Some((index, key)) = open {
            // The message has come twice, perhaps after others: the channel is in use.
            reply.push(HERE);
            Place { area: self.options.area.0, shape, offset: self.base(index), key }.encode(reply);
            return Ok(());
        }
        let index = self.channels.iter().position(Option::is_none).ok_or(FULL)?;
        self.opened += 1;
        let key = xxh3_64_with_seed(&self.opened.to_le_bytes(), self.options.seed);
        let base = self.base(index);
        for slot in 0..shape.slots {
            // What the last client left is not looked at, nor taken for an answer.
            let mut words = vec![shape.acknowledgement(slot), shape.request(slot)];
            words.extend((0..u32::from(shape.parts)).map(|part| shape.result(slot, part)));
            for word in words {
                self.memory.store_relaxed(base + word, 0).map_err(|_| FULL)?;
            }
        }
        self.memory.release();
        let (taken, now) = (first_sequence(key), self.clock.now());
        let slots = (0..shape.slots).map(|_| Slot::new(taken, now)).collect();
        self.channels[index] = Some(Channel { client, opened: self.opened, key, slots });
        reply.push(HERE);
        Place { area: self.options.area.0, shape, offset: base, key }.encode(reply);
        Ok(())
    }

    fn handle_batch(
        &mut self,
        client: ClientId,
        message: Message<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Handled, u8> {
        let of_client = |c: &Option<Channel>| c.as_ref().is_some_and(|c| c.client == client);
        let index = self.channels.iter().position(of_client).ok_or(NO_SUCH_BATCH)?;
        let slot = match message {
            Message::Open => return Err(UNKNOWN),
            Message::Call { slot, .. } | Message::Await { slot, .. } | Message::Long { slot, .. } => slot,
        };
        if let Message::Await { sequence, .. } = message
            && self.slot(index, slot).is_some_and(|slot| slot.taken != sequence && slot.in_hand.is_none())
        {
            // It was written before this came.
            let received = self.look(index, slot, self.clock.now());
            self.called.extend(received);
        }
        let Some(Channel { opened, key, slots, .. }) = &mut self.channels[index] else {
            return Err(NO_SUCH_BATCH);
        };
        let (opened, key) = (*opened, *key);
        let state = slots.get_mut(usize::from(slot)).ok_or(NO_SUCH_BATCH)?;
        match message {
            Message::Open => Err(UNKNOWN),
            Message::Call { batch, .. } => {
                let (head, payload) = Head::decode(key, batch).ok_or(UNKNOWN)?;
                if !is_newer(head.sequence, state.taken) {
                    // It has come before, and perhaps others since.
                    return kept(state, head.sequence, reply).ok_or(FORGOTTEN);
                }
                let id = CallId { channel: index, opened, slot, sequence: head.sequence };
                let (rpc, payload) = (head.number, payload.to_vec());
                let received = Received { id, client, rpc, mode: Mode::Reply, payload };
                if state.in_hand.is_some() {
                    state.next = Some(received);
                } else {
                    state.begin(head.sequence, Mode::Reply, true);
                    self.called.push_back(received);
                }
                Ok(Handled::Later)
            }
            Message::Await { sequence, .. } => {
                if let Some(in_hand) = state.in_hand.as_mut().filter(|in_hand| in_hand.sequence == sequence) {
                    (in_hand.awaited, in_hand.mode) = (true, Mode::Reply);
                    return Ok(Handled::Later);
                }
                if state.answered == Some(sequence) {
                    return Err(FETCH);
                }
                kept(state, sequence, reply).ok_or(NO_SUCH_BATCH)
            }
            Message::Long { sequence, entry, .. } => {
                let found = state
                    .long
                    .iter()
                    .find(|(number, _)| *number == entry && state.answered == Some(sequence));
                let (_, bytes) = found.ok_or(NO_SUCH_BATCH)?;
                reply.push(HERE);
                reply.extend_from_slice(bytes);
                Ok(Handled::Now)
            }
        }
    }

    fn slot(&mut self, channel: usize, slot: u16) -> Option<&mut Slot> {
        self.channels.get_mut(channel)?.as_mut()?.slots.get_mut(usize::from(slot))
    }

    /// A request batch that has come, if there is one: `server_recv`. Looks at each slot once, one
    /// load each, beginning after the one that it took last.
    pub fn recv(&mut self) -> Option<Received> {
        if let Some(received) = self.called.pop_front() {
            return Some(received);
        }
        let (slots, now) = (usize::from(self.options.shape.slots), self.clock.now());
        for _ in 0..self.channels.len() * slots {
            self.cursor = (self.cursor + 1) % (self.channels.len() * slots);
            let (channel, slot) = (self.cursor / slots, (self.cursor % slots) as u16);
            if self.channels[channel].is_some()
                && let Some(received) = self.look(channel, slot, now)
            {
                return Some(received);
            }
        }
        None
    }

    /// Looks at a slot of a client.
    fn look(&mut self, channel: usize, number: u16, now: Instant) -> Option<Received> {
        let (shape, base) = (self.options.shape, self.base(channel));
        let Channel { client, opened, key, slots } = self.channels[channel].as_mut()?;
        let slot = slots.get_mut(usize::from(number))?;
        if !slot.rest.is_empty() {
            let acknowledged = self.memory.load_acquire(base + shape.acknowledgement(number)).ok()?;
            slot.go_on(&*self.memory, shape, base, number, acknowledged).ok()?;
        }
        if slot.in_hand.is_some() {
            slot.looked = now;
            return None;
        }
        let at = base + shape.request(number);
        let first = self.memory.load_acquire(at).ok()?;
        let sequence = (first >> 32) as u32;
        if first == 0 || !is_newer(sequence, slot.taken) {
            slot.looked = now;
            return None;
        }
        if slot.seen != first {
            (slot.seen, slot.looks) = (first, 0);
        }
        let Some((head, payload)) = read_request(&*self.memory, at, shape, *key, first) else {
            slot.looks += 1;
            if slot.looks > LOOKS {
                slot.begin(sequence, Mode::Fetch, false);
                slot.in_hand = None;
                let kind = Head::of_result(true, DAMAGED);
                let head = Head { bytes: 0, sequence, auxiliary: 0, entries: 0, number: 0, kind };
                let mut batch = Vec::new();
                head.encode(*key, &[], &mut batch);
                slot.put(&*self.memory, shape, base, number, vec![batch], sequence).ok()?;
            }
            return None;
        };
        let mode = if head.kind == 0 { Mode::Fetch } else { Mode::Reply };
        slot.begin(sequence, mode, false);
        let id = CallId { channel, opened: *opened, slot: number, sequence };
        Some(Received { id, client: *client, rpc: head.number, mode, payload })
    }

    /// The results of a batch, in the order of its requests: `server_send`. They are left for the
    /// client to fetch, split over as many result batches as they take, or sent, if the client
    /// waits for that. Of a client that has gone, and of a batch that was answered, nothing
    /// happens.
    ///
    /// # Errors
    /// If the memory cannot be written.
    pub fn send(&mut self, id: CallId, results: &[impl AsRef<[u8]>]) -> Result<(), AccessError> {
        let (shape, base, now) = (self.options.shape, self.base(id.channel), self.clock.now());
        let most = self.options.max_results;
        let Some(Some(Channel { client, opened, key, slots })) = self.channels.get_mut(id.channel) else {
            return Ok(());
        };
        let Some(slot) = slots.get_mut(usize::from(id.slot)).filter(|_| *opened == id.opened) else {
            return Ok(());
        };
        let Some(in_hand) = slot.in_hand.take_if(|in_hand| in_hand.sequence == id.sequence) else {
            return Ok(());
        };
        let units = now.saturating_duration_since(in_hand.since).as_nanos() / TIME_UNIT.as_nanos();
        let time = u16::try_from(units).unwrap_or(u16::MAX);
        let total: usize = results.iter().map(|result| result.as_ref().len() + 4).sum();
        let results: Vec<&[u8]> = results.iter().map(AsRef::as_ref).collect();
        let fits = total <= most && results.len() <= usize::from(u16::MAX);
        let (results, outcome) = if fits { (&results[..], SERVED) } else { (&[][..], TOO_LONG) };
        let sealed = Sealed { key: *key, sequence: id.sequence, time, outcome };
        let short = total <= KEEP;
        if in_hand.awaited || (in_hand.mode == Mode::Reply && short) {
            let mut bytes = vec![HERE];
            sealed.whole(results, &mut bytes);
            slot.kept = short.then(|| (id.sequence, bytes[1..].to_vec()));
            if in_hand.awaited {
                self.replies.push_back((*client, bytes));
            }
        } else {
            let (batches, long) = sealed.parts(results, shape.capacity());
            slot.long = long;
            slot.put(&*self.memory, shape, base, id.slot, batches, id.sequence)?;
        }
        if let Some(next) = slot.next.take() {
            slot.looked = now;
            slot.begin(next.id.sequence, Mode::Reply, true);
            self.called.push_back(next);
        }
        Ok(())
    }
}
