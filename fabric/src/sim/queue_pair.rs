//! Queue pairs: batches on their way, in order of their endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use super::slot::Waiter;
use crate::endpoint::{Completion, Ticket};
use crate::error::FabricError;
use crate::lease::LeasedWord;
use crate::memory::{Access, SharedMemory};
use crate::meter::Meter;
use crate::verbs::Batch;

/// A memory as one connection knows it: that of the life it was connected to.
#[derive(Clone, Debug)]
pub(super) struct SimArea {
    pub(super) visible: Arc<SharedMemory>,
    /// What the memory node's own loads see.
    pub(super) private: Arc<SharedMemory>,
    /// `None`: not registered.
    pub(super) access: Option<Access>,
}

/// A part of a request that is executed at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) instant: u64,
    pub(super) request: u32,
    /// First byte and length, within the request.
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) part: Part,
}

/// What a piece is of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes, or a change.
    Any,
    /// A record's guard, before the rest of it.
    Guard,
    /// The guard again, after the rest.
    GuardAgain,
}

/// A batch that was run or posted.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) ticket: u64,
    pub(super) batch: Batch,
    /// Who waits for it; `None`: it is polled.
    pub(super) waiter: Option<Waiter>,
    /// By instant; those before `next` are done.
    pub(super) pieces: Vec<Piece>,
    pub(super) next: usize,
    pub(super) outcome: Result<(), FabricError>,
}

/// The scheduler's part of an endpoint.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) connection: usize,
    pub(super) meter: Arc<Meter>,
    /// In order; only the first is being executed.
    pub(super) flights: VecDeque<Flight>,
    /// Posted batches that are done.
    pub(super) done: VecDeque<Completion>,
    /// The batch that was run and is done.
    pub(super) ran: Option<(Batch, Result<(), FabricError>)>,
    pub(super) next_ticket: u64,
    /// The word of the region that is leased, and what is known of it.
    pub(super) lease: Option<(u64, LeasedWord)>,
}

impl QueuePair {
    pub(super) fn new(connection: usize, meter: Arc<Meter>, lease: Option<(u64, LeasedWord)>) -> Self {
        let (flights, done) = (VecDeque::new(), VecDeque::new());
        Self { connection, meter, flights, done, ran: None, next_ticket: 0, lease }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Has a batch that has run already wait to be polled, and returns its ticket.
    pub(super) fn has_landed(&mut self, batch: Batch, result: Result<(), FabricError>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.done.push_back(Completion { ticket: Ticket(ticket), batch, result });
        ticket
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }
}
