//! Batches on their way: cut into pieces, fetched at several instants, in order of their endpoint.

use std::sync::Arc;

use fpcache_fabric::backend::{landing, request};
use fpcache_fabric::{Access, Batch, CHANGED, Completion, FabricError, RemoteAddr, Request, Ticket};
use zerocopy::IntoBytes;

use crate::event::Event;
use crate::options::Tear;
use crate::process_state::{Outcome, Waiter};
use crate::queue_pair::{Flight, PieceKind, RequestPiece, SimArea};
use crate::state::State;
use crate::trace::{TraceKind, mix};

/// At how many instants the pieces of one batch are fetched at most.
const MAX_INSTANTS: u64 = 6;

impl State {
    /// Puts a batch in an endpoint's queue.
    pub(crate) fn submit(&mut self, endpoint: usize, batch: Batch, waiter: Option<Waiter>) -> u64 {
        self.renew_lease(endpoint);
        let pair = &mut self.pairs[endpoint];
        let ticket = pair.next_ticket;
        pair.next_ticket += 1;
        let flight = Flight { ticket, batch, waiter, pieces: Vec::new(), next: 0, outcome: Ok(()) };
        pair.flights.push_back(flight);
        if pair.flights.len() == 1 {
            self.begin_batch(endpoint);
        }
        ticket
    }

    /// Begins executing the first batch of a queue: cuts it up and draws when each piece is
    /// fetched.
    fn begin_batch(&mut self, endpoint: usize) {
        let connection = self.pairs[endpoint].connection;
        let departure = self.way_of(connection) + self.now();
        let link = &self.links[connection];
        let areas = Arc::clone(&link.areas);
        let Some(flight) = self.pairs[endpoint].flights.front_mut() else { return };
        let ticket = flight.ticket;
        let bad = flight.batch.requests().enumerate().find_map(|(i, r)| Some((i, refusal(&areas, &r)?)));
        let count = bad.as_ref().map_or(flight.batch.len(), |(index, _)| *index);
        flight.pieces.clear();
        cut(flight.batch.requests().take(count), self.faults.tear, &mut flight.pieces);
        if let Some((_, error)) = bad {
            flight.outcome = Err(error);
        }
        if let Some(len) = flight.batch.oversize() {
            flight.outcome = Err(FabricError::oversize(len));
            flight.pieces.clear();
        }
        if self.faults.tear == Tear::Never || flight.pieces.len() < 2 {
            flight.pieces.iter_mut().for_each(|piece| piece.instant = departure);
        } else {
            let mut instants = [departure; MAX_INSTANTS as usize];
            let several = self.random.between(1, MAX_INSTANTS.min(flight.pieces.len() as u64));
            for instant in &mut instants[1..several as usize] {
                *instant += self.random.below(self.pace.spread);
            }
            let mut change_not_before = 0;
            let (mut guard_at, mut latest) = (0, 0);
            for piece in &mut flight.pieces {
                piece.instant = instants[self.random.below(several) as usize];
                let request = request(&flight.batch, piece.request as usize);
                if piece.part == PieceKind::Guard {
                    (guard_at, latest) = (piece.instant, piece.instant);
                } else if matches!(request, Request::Read { stride: 1.., .. }) {
                    // After the guard, and the guard again after all the rest.
                    let first = if piece.part == PieceKind::GuardAgain { latest } else { guard_at };
                    piece.instant = piece.instant.max(first);
                    latest = latest.max(piece.instant);
                }
                if !is_read(&request) {
                    // Changes take effect in posting order.
                    change_not_before = change_not_before.max(piece.instant);
                    piece.instant = change_not_before;
                }
            }
            // Stable: changes of one instant stay in order, and so do guards and what they guard.
            flight.pieces.sort_by_key(|piece| piece.instant);
        }
        let first = flight.pieces.first().map_or(departure, |piece| piece.instant);
        self.schedule_at(first, Event::Fetch { endpoint, ticket });
    }

    /// Executes the pieces of one instant.
    pub(crate) fn fetch(&mut self, endpoint: usize, ticket: u64) {
        let areas = Arc::clone(&self.links[self.pairs[endpoint].connection].areas);
        let pair = &mut self.pairs[endpoint];
        let Some(flight) = pair.flights.front_mut().filter(|flight| flight.ticket == ticket) else { return };
        let Flight { batch, pieces, next, .. } = flight;
        let instant = pieces.get(*next).map_or(0, |piece| piece.instant);
        let (mut seen, first) = (0, *next);
        while let Some(piece) = pieces.get(*next).filter(|piece| piece.instant == instant) {
            seen = execute(&areas, batch, piece).map_or(seen, |read| mix(seen, read));
            *next += 1;
        }
        let executed = (*next - first) as u64;
        let following = pieces.get(*next).map(|piece| piece.instant);
        if following.is_none() && batch.oversize().is_none() {
            pair.meter.record(batch.tally());
        }
        self.trace.hash = mix(self.trace.hash, seen);
        self.note(TraceKind::Fetched, endpoint, executed, ticket);
        match following {
            Some(at) => self.schedule_at(at, Event::Fetch { endpoint, ticket }),
            None => {
                let back = self.way_of(self.pairs[endpoint].connection);
                self.schedule(back, Event::Land { endpoint, ticket });
            }
        }
    }

    /// A batch's completion arrives.
    pub(crate) fn land(&mut self, endpoint: usize, ticket: u64) {
        let pair = &mut self.pairs[endpoint];
        if pair.flights.front().is_none_or(|flight| flight.ticket != ticket) {
            return;
        }
        self.note(TraceKind::Landed, endpoint, ticket, 0);
        self.complete(endpoint, None);
        if !self.pairs[endpoint].flights.is_empty() {
            self.begin_batch(endpoint);
        }
    }

    /// Ends the first batch of a queue, with an error of its connection if there is one.
    fn complete(&mut self, endpoint: usize, error: Option<FabricError>) {
        let pair = &mut self.pairs[endpoint];
        let Some(flight) = pair.flights.pop_front() else { return };
        let result = error.map_or(flight.outcome, Err);
        match flight.waiter {
            None => {
                let ticket = Ticket(flight.ticket);
                pair.done.push_back(Completion { ticket, batch: flight.batch, result });
            }
            Some(waiter) => {
                pair.ran = Some((flight.batch, result));
                self.wake(waiter, Outcome::Done);
            }
        }
    }

    /// Fails all that is in flight on a connection that broke.
    pub(crate) fn fail_flights(&mut self, connection: usize) {
        for endpoint in 0..self.pairs.len() {
            while self.pairs[endpoint].connection == connection
                && let Some(first) = self.pairs[endpoint].flights.front()
            {
                let ticket = first.ticket;
                self.note(TraceKind::Failed, endpoint, ticket, 0);
                self.complete(endpoint, Some(self.links[connection].disconnected()));
            }
        }
    }
}

fn is_read(request: &Request<'_>) -> bool {
    matches!(request, Request::Read { .. })
}

/// Where a request goes, and how many bytes of memory it is for.
fn place(request: &Request<'_>) -> (RemoteAddr, usize) {
    match *request {
        Request::Read { from, len, .. } => (from, len),
        Request::Write { to, bytes } => (to, bytes.len()),
        Request::CompareSwap { at, .. } => (at, 8),
    }
}

/// Why a request cannot be executed.
fn refusal(areas: &[SimArea], request: &Request<'_>) -> Option<FabricError> {
    let (RemoteAddr { area: id, offset }, len) = place(request);
    let area = areas.get(usize::from(id.0));
    let Some((area, access)) = area.and_then(|area| Some((area, area.access?))) else {
        return Some(FabricError::NoSuchArea { area: id });
    };
    let (len, area_len) = (len as u64, area.visible.len() as u64);
    if !is_read(request) && access == Access::ReadOnly {
        return Some(FabricError::AccessDenied { area: id });
    }
    if matches!(request, Request::CompareSwap { .. }) && !offset.is_multiple_of(8) {
        return Some(FabricError::Misaligned { area: id, offset });
    }
    if offset > area_len || len > area_len - offset {
        return Some(FabricError::OutOfBounds { area: id, offset, len, area_len });
    }
    None
}

/// Cuts READs at the lines or words of their area; changes stay whole.
fn cut<'b>(requests: impl Iterator<Item = Request<'b>>, tear: Tear, pieces: &mut Vec<RequestPiece>) {
    let line = match tear {
        Tear::Never => u64::MAX,
        Tear::Lines => 64,
        Tear::Words => 8,
    };
    for (number, request) in (0u32..).zip(requests) {
        let (at, len) = place(&request);
        // MAX_REQUEST_BYTES fits 32 bits.
        let len = len as u32;
        let Request::Read { stride, .. } = request else {
            pieces.push(RequestPiece { instant: 0, request: number, start: 0, len, part: PieceKind::Any });
            continue;
        };
        let lines = |mut start: u32, end: u32, pieces: &mut Vec<RequestPiece>| {
            while start < end {
                let to_next_line = line - (at.offset + u64::from(start)) % line;
                // What is cut off is no longer than what is left, which fits 32 bits.
                let len = u64::from(end - start).min(to_next_line) as u32;
                pieces.push(RequestPiece { instant: 0, request: number, start, len, part: PieceKind::Any });
                start += len;
            }
        };
        if stride == 0 {
            lines(0, len, pieces);
            continue;
        }
        for start in (0..len).step_by(stride) {
            let guard = |part| RequestPiece { instant: 0, request: number, start, len: 8, part };
            pieces.push(guard(PieceKind::Guard));
            lines(start + 8, (start + stride as u32).min(len), pieces);
            pieces.push(guard(PieceKind::GuardAgain));
        }
    }
}

/// Executes a piece of a batch; of a READ it returns a number that depends on what was read.
fn execute(areas: &[SimArea], batch: &mut Batch, piece: &RequestPiece) -> Option<u64> {
    let number = piece.request as usize;
    let area_of = |at: RemoteAddr| &areas[usize::from(at.area.0)];
    // None of these fails: the request was checked when its batch took off.
    match request(batch, number) {
        Request::Read { from, .. } => Some(read(area_of(from), from.offset, piece, landing(batch, number))),
        Request::Write { to, bytes } => {
            let area = area_of(to);
            let _ = area.visible.write_bytes(to.offset, bytes);
            let _ = area.private.write_bytes(to.offset, bytes);
            None
        }
        Request::CompareSwap { at, expected, new } => {
            let area = area_of(at);
            if let Ok(old) = area.visible.compare_exchange(at.offset, expected, new) {
                if old == expected {
                    let _ = area.private.store_relaxed(at.offset, new);
                }
                landing(batch, number)[0] = old;
            }
            None
        }
    }
}

/// Copies a piece of a READ from `offset` on, and returns a number that depends on what was copied.
fn read(area: &SimArea, offset: u64, piece: &RequestPiece, landing: &mut [u64]) -> u64 {
    let (from, first) = (offset + u64::from(piece.start), piece.start as usize);
    if piece.part == PieceKind::GuardAgain {
        let guard = &mut landing[first / 8];
        let now = area.visible.load_acquire(from);
        if now.ok() != Some(*guard) {
            *guard = CHANGED;
        }
        return *guard;
    }
    let bytes = &mut landing.as_mut_bytes()[first..first + piece.len as usize];
    // In bounds: the request was checked when its batch took off.
    let _ = area.visible.read_bytes(from, bytes);
    bytes.chunks(8).fold(0, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u64::from_le_bytes(word))
    })
}
