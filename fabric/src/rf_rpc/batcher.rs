//! Requests collected into batches, several of which are under way at once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{Client, Results, RfError, Sent};
use super::tune::Tuner;
use crate::clock::{Clock, Deadline};
use crate::connection::Connection;

/// When a batch is sent.
#[derive(Clone, Debug)]
pub struct BatcherOptions {
    /// N: with so many requests.
    pub entries: u16,
    /// L: before it exceeds so many bytes, lengths of entries included. Default 2048.
    pub bytes: usize,
    /// T: when its first request has waited for so long. Default 5 ms.
    pub wait: Duration,
    /// Batches under way at most; no more than the channel has slots.
    pub in_flight: u16,
    /// Tunes N to a bound on latency, if there is one; then `entries` is of no account.
    pub tuner: Option<Tuner>,
}

impl Default for BatcherOptions {
    fn default() -> Self {
        let wait = Duration::from_millis(5);
        Self { entries: 16, bytes: 2048, wait, in_flight: 2, tuner: None }
    }
}

/// The results of a batch of requests.
#[derive(Debug)]
pub struct Answer {
    /// The number of the first request; the others follow.
    pub first: u64,
    /// The results, in order.
    pub results: Results,
}

#[derive(Debug)]
struct Flight {
    sent: Sent,
    first: u64,
    /// When each of its requests was pushed.
    since: Vec<Instant>,
}

/// Collects requests of one RPC into batches (RF-RPC, section 4.1). Dropped, it gives up what is under way.
pub struct Batcher<'c, C: Connection> {
    client: &'c mut Client<C>,
    clock: Arc<dyn Clock>,
    rpc: u16,
    options: BatcherOptions,
    requests: Vec<Vec<u8>>,
    bytes: usize,
    since: Vec<Instant>,
    flights: VecDeque<Flight>,
    next: u64,
    deadline: Deadline,
}

impl<C: Connection> fmt::Debug for Batcher<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rpc, options, flights, .. } = self;
        f.debug_struct("Batcher")
            .field("rpc", rpc)
            .field("options", options)
            .field("in_flight", &flights.len())
            .finish_non_exhaustive()
    }
}

impl<C: Connection> Drop for Batcher<'_, C> {
    fn drop(&mut self) {
        for flight in self.flights.drain(..) {
            self.client.give_up(flight.sent);
        }
    }
}

impl<'c, C: Connection> Batcher<'c, C> {
    /// A batcher of an RPC's requests, whose batches are sent by `deadline`.
    pub fn new(
        client: &'c mut Client<C>,
        clock: Arc<dyn Clock>,
        rpc: u16,
        options: BatcherOptions,
        deadline: Deadline,
    ) -> Self {
        let in_flight = options.in_flight.clamp(1, client.depth());
        let options = BatcherOptions { in_flight, ..options };
        let (requests, since, flights) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { client, clock, rpc, options, requests, bytes: 0, since, flights, next: 0, deadline }
    }

    fn most(&self) -> usize {
        usize::from(self.options.tuner.as_ref().map_or(self.options.entries, Tuner::size).max(1))
    }

    /// The batch size now, which a tuner may have changed.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.most()
    }

    /// Takes a request, which gets a number, counted from 0. Sends a batch when N or L is reached; when as many batches are under way as
    /// may be, receives the oldest first, into the answers.
    ///
    /// # Errors
    /// Those of sending and receiving; the batch concerned is dropped.
    pub fn push(&mut self, request: &[u8], answers: &mut Vec<Answer>) -> Result<u64, RfError> {
        if !self.requests.is_empty() && self.bytes + request.len() + 4 > self.options.bytes {
            self.flush(answers)?;
        }
        let number = self.next;
        self.next += 1;
        self.requests.push(request.to_vec());
        self.bytes += request.len() + 4;
        self.since.push(self.clock.now());
        if self.requests.len() >= self.most() || self.bytes >= self.options.bytes {
            self.flush(answers)?;
        }
        Ok(number)
    }

    /// Sends what has waited for longer than T. For whoever has nothing to push at present.
    ///
    /// # Errors
    /// Those of sending and receiving.
    pub fn tick(&mut self, answers: &mut Vec<Answer>) -> Result<(), RfError> {
        let waits = |since: &Instant| self.clock.now().saturating_duration_since(*since) >= self.options.wait;
        if self.since.first().is_some_and(waits) { self.flush(answers) } else { Ok(()) }
    }

    /// Sends what there is.
    ///
    /// # Errors
    /// Those of sending and receiving.
    pub fn flush(&mut self, answers: &mut Vec<Answer>) -> Result<(), RfError> {
        if self.requests.is_empty() {
            return Ok(());
        }
        if self.flights.len() >= usize::from(self.options.in_flight) {
            answers.extend(self.receive()?);
        }
        // Of a tuned size or the options'.
        self.client.set_batch_size(self.most() as u16);
        let (requests, since) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.since));
        self.bytes = 0;
        let first = self.next - requests.len() as u64;
        let sent = self.client.send(self.rpc, &requests, self.deadline)?;
        self.flights.push_back(Flight { sent, first, since });
        Ok(())
    }

    /// Receives the oldest batch under way: `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Client::recv`].
    pub fn receive(&mut self) -> Result<Option<Answer>, RfError> {
        let Some(Flight { sent, first, since }) = self.flights.pop_front() else { return Ok(None) };
        let mut results = Results::new();
        self.client.recv(sent, &mut results, self.deadline)?;
        if let Some(tuner) = &mut self.options.tuner {
            let now = self.clock.now();
            since.iter().for_each(|since| tuner.took(now.saturating_duration_since(*since)));
        }
        Ok(Some(Answer { first, results }))
    }

    /// Sends what there is and receives all.
    ///
    /// # Errors
    /// Those of sending and receiving; what is left then is dropped with the batcher.
    pub fn finish(mut self, answers: &mut Vec<Answer>) -> Result<(), RfError> {
        self.flush(answers)?;
        while let Some(answer) = self.receive()? {
            answers.push(answer);
        }
        Ok(())
    }
}
