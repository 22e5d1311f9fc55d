//! Queue pairs: batches on their way, in order of their endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use fpcache_fabric::backend::LeasedWord;
use fpcache_fabric::{Access, Batch, Completion, FabricError, Meter, SharedMemory, Ticket};

use crate::process_state::Waiter;

/// A memory as one connection knows it: that of the life it was connected to.
#[derive(Clone, Debug)]
pub(crate) struct SimArea {
    pub(crate) visible: Arc<SharedMemory>,
    /// The memory as the memory node's own loads see it.
    pub(crate) private: Arc<SharedMemory>,
    /// `None`: not registered.
    pub(crate) access: Option<Access>,
}

/// A part of a request that is executed at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPiece {
    pub(crate) instant: u64,
    pub(crate) request: u32,
    /// First byte and length, within the request.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) part: PieceKind,
}

/// The part of its request that a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    /// Bytes, or a change.
    Any,
    /// A record's guard, before the rest of it.
    Guard,
    /// The guard again, after the rest.
    GuardAgain,
}

/// A batch that was run or posted.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: u64,
    pub(crate) batch: Batch,
    /// The process that waits for it; `None`: it is polled.
    pub(crate) waiter: Option<Waiter>,
    /// By instant; those before `next` are done.
    pub(crate) pieces: Vec<RequestPiece>,
    pub(crate) next: usize,
    pub(crate) outcome: Result<(), FabricError>,
}

/// The scheduler's part of an endpoint.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) connection: usize,
    pub(crate) meter: Arc<Meter>,
    /// In order; only the first is being executed.
    pub(crate) flights: VecDeque<Flight>,
    /// Posted batches that are done.
    pub(crate) done: VecDeque<Completion>,
    /// The batch that was run and is done.
    pub(crate) ran: Option<(Batch, Result<(), FabricError>)>,
    pub(crate) next_ticket: u64,
    /// The word of the region that is leased, and what is known of it.
    pub(crate) lease: Option<(u64, LeasedWord)>,
}

impl QueuePair {
    pub(crate) fn new(connection: usize, meter: Arc<Meter>, lease: Option<(u64, LeasedWord)>) -> Self {
        let (flights, done) = (VecDeque::new(), VecDeque::new());
        Self { connection, meter, flights, done, ran: None, next_ticket: 0, lease }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Has a batch that has run already wait to be polled, and returns its ticket.
    pub(crate) fn has_landed(&mut self, batch: Batch, result: Result<(), FabricError>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.done.push_back(Completion { ticket: Ticket(ticket), batch, result });
        ticket
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}
