//! The client's side: sending request batches, fetching result batches, or waiting for them.

mod error;
mod fetching;
mod results;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fpcache_fabric::{
    AreaId, Batch, Clock, Connection, Deadline, Endpoint, FabricError, MeterSnapshot, Posted, Spin,
};

use crate::layout::{
    ENTRY_MAX, HEAD, Head, Shape, encode_request, first_sequence, next_sequence, push_entry,
};
use crate::messages::{FULL, HERE, Message, Place};
use crate::mode::{Mode, Modes};

pub use error::RfError;
pub use results::Results;

/// The longest time for which fetches leave no turn to others: of what a connection does.
const SPIN: Duration = Duration::from_micros(50);

/// How a client calls.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// R: after more failed fetches in two calls in a row results come by server reply. Default 5,
    /// the paper's; where memory is mapped a fetch is so short that more pay.
    pub retries: u32,
    /// F: bytes of the first READ of a result, its head of 24 among them. Default 256.
    pub fetch_bytes: usize,
    /// The only mode, if there is to be only one.
    pub fixed: Option<Mode>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { retries: 5, fetch_bytes: 256, fixed: None }
    }
}

/// What a client's calls have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches sent.
    pub batches: u64,
    /// READs that found no result yet.
    pub failed: u64,
    /// Second READs, of results longer than F.
    pub second: u64,
    /// Batches whose results came by server reply.
    pub replied: u64,
    /// Changes of mode.
    pub switches: u64,
}

/// A batch under way.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "its slot is taken until its results were received"]
pub struct Sent {
    slot: u16,
    sequence: u32,
}

#[derive(Debug)]
enum Way {
    /// The slot is free.
    Free,
    /// The request lies at the server, which was told to leave its results there or to send them.
    Written(Mode),
    /// It was posted to the connection.
    Posted(Posted),
    /// Its reply has come meanwhile.
    Arrived(Result<Vec<u8>, FabricError>),
}

#[derive(Debug)]
struct Slot {
    way: Way,
    sequence: u32,
    rpc: u16,
    entries: u16,
}

/// A client's channel to a server, over one connection that is used for nothing else. One thread's
/// at a time.
pub struct Client<C: Connection> {
    connection: C,
    endpoint: C::Endpoint,
    clock: Arc<dyn Clock>,
    options: ClientOptions,
    area: AreaId,
    offset: u64,
    key: u64,
    shape: Shape,
    slots: Vec<Slot>,
    modes: Modes,
    batch: Batch,
    payload: Vec<u8>,
    message: Vec<u8>,
    reply: Vec<u8>,
    /// How long it fetches again and again before others have their turn between two fetches.
    spin: Spin,
    /// What a fetch takes, a moving average.
    fetch_time: Duration,
    counts: Counts,
}

impl<C: Connection> fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, shape, counts, .. } = self;
        f.debug_struct("Client")
            .field("options", options)
            .field("shape", shape)
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

impl<C: Connection> Client<C> {
    /// Opens a channel, which lasts as long as the connection: a call and a READ.
    ///
    /// # Errors
    /// [`Full`](RfError::Full), [`NotServed`](RfError::NotServed) and
    /// [`NoBuffers`](RfError::NoBuffers), or the fabric's.
    pub fn open(
        connection: C,
        options: ClientOptions,
        clock: Arc<dyn Clock>,
        deadline: Deadline,
    ) -> Result<Self, RfError> {
        let (mut message, mut reply) = (Vec::new(), Vec::new());
        Message::Open.encode(&mut message);
        connection.call(&message, &mut reply, deadline)?;
        let Place { area, shape, offset, key } = match reply.split_first() {
            Some((&HERE, place)) => Place::decode(place).ok_or(RfError::Malformed("its place"))?,
            Some((&FULL, _)) => return Err(RfError::Full),
            _ => return Err(RfError::NotServed),
        };
        let area = AreaId(area);
        let endpoint = connection.endpoint();
        let info = endpoint.area(area).ok_or(RfError::NoBuffers)?;
        let end = offset.checked_add(shape.channel_bytes());
        if info.access != fpcache_fabric::Access::ReadWrite
            || end.is_none_or(|end| end > info.len)
            || offset % 64 != 0
        {
            return Err(RfError::NoBuffers);
        }
        let sequence = first_sequence(key);
        let slot = |_| Slot { way: Way::Free, sequence, rpc: 0, entries: 0 };
        let slots = (0..shape.slots).map(slot).collect();
        let modes = Modes::new(options.retries, options.fixed);
        let mut client = Self {
            connection,
            endpoint,
            clock,
            options,
            area,
            offset,
            key,
            shape,
            slots,
            modes,
            batch: Batch::new(),
            payload: Vec::new(),
            message,
            reply,
            spin: Spin::new(SPIN),
            fetch_time: Duration::ZERO,
            counts: Counts::default(),
        };
        let began = client.clock.now();
        client.read(client.shape.result(0, 0), HEAD)?;
        client.fetch_time = client.clock.now().saturating_duration_since(began);
        Ok(client)
    }

    /// The connection.
    pub fn connection(&self) -> &C {
        &self.connection
    }

    /// How results of an RPC come at present.
    #[must_use]
    pub fn mode(&self, rpc: u16) -> Mode {
        self.modes.of(rpc)
    }

    /// What calls have cost.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { switches: self.modes.switches(), ..self.counts }
    }

    /// READs and WRITEs of the buffers, and those of server replies.
    #[must_use]
    pub fn meter(&self) -> MeterSnapshot {
        self.endpoint.meter().snapshot() + self.connection.call_meter()
    }

    /// Calls an RPC with one request and waits for its result, which replaces the contents of
    /// `result`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and [`recv`](Self::recv).
    pub fn call(
        &mut self,
        rpc: u16,
        request: &[u8],
        result: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), RfError> {
        let sent = self.send(rpc, &[request], deadline)?;
        let mut results = Results::over(std::mem::take(result));
        let received = self.recv(sent, &mut results, deadline);
        *result = results.into_only();
        received
    }

    /// Sends a batch of requests of one RPC: `client_send`. One WRITE, or a request to the service
    /// where results come by server reply or an entry is longer than [`ENTRY_MAX`].
    ///
    /// # Errors
    /// [`InFlight`](RfError::InFlight) and [`TooLong`](RfError::TooLong): nothing was sent. The
    /// fabric's: the batch may have been executed or may yet be.
    pub fn send(
        &mut self,
        rpc: u16,
        requests: &[impl AsRef<[u8]>],
        deadline: Deadline,
    ) -> Result<Sent, RfError> {
        let free = self.slots.iter().position(|slot| matches!(slot.way, Way::Free));
        let number = free.ok_or(RfError::InFlight(self.shape.slots))?;
        self.payload.clear();
        let mut longest = 0;
        let mut total = 0u64;
        for request in requests {
            longest = longest.max(request.as_ref().len());
            total += request.as_ref().len() as u64 + 4;
        }
        let by_message = longest > ENTRY_MAX || total > u64::from(self.shape.capacity);
        let max = self.connection.max_request().saturating_sub(HEAD + 6) as u64;
        let max = if longest > ENTRY_MAX { max } else { max.min(u64::from(self.shape.capacity)) };
        if total > max || requests.len() > usize::from(u16::MAX) {
            return Err(RfError::TooLong { len: total, entries: requests.len(), max });
        }
        requests.iter().for_each(|request| push_entry(&mut self.payload, request.as_ref()));
        let mode = self.modes.of(rpc);
        let slot = &mut self.slots[number];
        slot.sequence = next_sequence(slot.sequence);
        (slot.rpc, slot.entries) = (rpc, requests.len() as u16);
        let head = Head {
            bytes: total as u32,
            sequence: slot.sequence,
            auxiliary: 0,
            entries: slot.entries,
            number: rpc,
            kind: u8::from(mode == Mode::Reply),
        };
        let sent = Sent { slot: number as u16, sequence: slot.sequence };
        self.message.clear();
        self.counts.batches += 1;
        let is_posted = self.slots.iter().any(|slot| matches!(slot.way, Way::Posted(_)));
        if by_message {
            self.settle(deadline);
        }
        if by_message || (mode == Mode::Reply && !is_posted) {
            let mut batch = Vec::new();
            head.encode(self.key, &self.payload, &mut batch);
            Message::Call { slot: sent.slot, batch: &batch }.encode(&mut self.message);
            let posted = self.connection.post(&self.message, deadline)?;
            self.slots[number].way = Way::Posted(posted);
        } else {
            encode_request(&head, self.key, &self.payload, &mut self.message);
            self.batch.clear();
            self.batch.write(self.at(self.shape.request(sent.slot)), &self.message);
            self.endpoint.run(&mut self.batch)?;
            self.slots[number].way = Way::Written(mode);
        }
        Ok(sent)
    }

    /// Receives the results of a batch, in the order of its requests: `client_recv`. By one READ of
    /// F bytes if they are there and fit, and by a second one of the rest if they do not.
    ///
    /// # Errors
    /// [`DeadlinePassed`](FabricError::DeadlinePassed) and other errors of the fabric,
    /// [`Lost`](RfError::Lost): the batch may have been executed or may yet be.
    /// [`Damaged`](RfError::Damaged): it was not. [`ResultsTooLong`](RfError::ResultsTooLong): it
    /// was. Its slot is free in any case.
    pub fn recv(&mut self, sent: Sent, results: &mut Results, deadline: Deadline) -> Result<(), RfError> {
        let Sent { slot: number, sequence } = sent;
        results.clear();
        let slot = self.slots.get_mut(usize::from(number)).filter(|slot| slot.sequence == sequence);
        let slot = slot.ok_or(RfError::NotSent)?;
        let (rpc, entries) = (slot.rpc, slot.entries);
        match std::mem::replace(&mut slot.way, Way::Free) {
            Way::Free => return Err(RfError::NotSent),
            // One that was told to send them has not left them, also if the mode has changed since.
            Way::Written(mode) if mode == Mode::Reply || self.modes.of(rpc) == Mode::Reply => {
                self.have_sent(number, sequence, rpc, results, deadline)?;
            }
            Way::Written(_) => self.fetch(number, sequence, rpc, results, deadline)?,
            Way::Posted(posted) => {
                let mut reply = std::mem::take(&mut self.reply);
                let outcome = self.connection.wait(posted, &mut reply, deadline);
                let taken = outcome
                    .map_err(RfError::from)
                    .and_then(|()| self.replied(rpc, sequence, &reply, results));
                self.reply = reply;
                taken?;
            }
            Way::Arrived(reply) => self.replied(rpc, sequence, &reply?, results)?,
        }
        if results.len() == usize::from(entries) {
            Ok(())
        } else {
            Err(RfError::Malformed("its number of results"))
        }
    }
}
