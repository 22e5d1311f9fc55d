//! The endpoint of every backend whose areas are mapped into this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::areas::{Area, Outcome, Reach, area, execute_many, fault, no_such_area, prefetch, read};
use super::in_place::MappedInPlace;
use super::link::Link;
use crate::endpoint::{Another, AreaInfo, Completion, Endpoint, Rejected, Ticket};
use crate::error::FabricError;
use crate::memory::PREFETCH_PER_READ;
use crate::meter::Meter;
use crate::verbs::{AreaId, Batch, RemoteAddr, Verb};

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;

/// A queue pair over mapped areas: verbs are loads and stores of this processor.
///
/// `run` executes inline. `post` executes a batch that changes memory at once; a batch of READs it
/// only prefetches, and copies when it is polled, so that many posted batches wait for memory at
/// the same time.
#[derive(Debug)]
pub struct MappedEndpoint {
    reach: Reach,
    /// Whether memory is read and written that a memory node which is gone has left.
    outlives: bool,
    /// Lives as long as this endpoint: the connection's socket and watcher.
    _anchor: Option<Arc<dyn Send + Sync + Anchor>>,
    next_ticket: u64,
    pending: VecDeque<(Ticket, Batch)>,
    done: VecDeque<Completion>,
}

/// Something an endpoint keeps alive.
pub(crate) trait Anchor: std::fmt::Debug {}

impl MappedEndpoint {
    /// An endpoint over `areas`, which are numbered in order.
    pub(crate) fn new(
        areas: Arc<[Area]>,
        link: Arc<Link>,
        anchor: Option<Arc<dyn Send + Sync + Anchor>>,
    ) -> Self {
        let reach = Reach { areas, link, meter: Arc::new(Meter::new()) };
        let (pending, done) = (VecDeque::new(), VecDeque::new());
        Self { reach, outlives: false, _anchor: anchor, next_ticket: 0, pending, done }
    }

    /// The same, which reads and writes the areas of a memory node that is gone as well: they are
    /// mapped here. Not in a process that has inherited them.
    pub(crate) fn outliving(self) -> Self {
        Self { outlives: true, ..self }
    }

    #[inline(always)]
    fn is_usable(&self) -> bool {
        self.reach.link.is_alive() || (self.outlives && !self.reach.link.is_inherited())
    }

    /// The counts, to be read by other threads.
    pub(crate) fn shared_meter(&self) -> Arc<Meter> {
        Arc::clone(&self.reach.meter)
    }

    #[inline]
    fn execute(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.execute_boxed(batch).map_err(|error| *error)
    }

    #[inline]
    fn execute_boxed(&mut self, batch: &mut Batch) -> Outcome {
        if !self.is_usable() {
            return Err(Box::new(self.reach.link.disconnected()));
        }
        if let Some(len) = batch.oversize {
            return Err(oversize(len));
        }
        let Batch { requests, buffer, tally, .. } = batch;
        let outcome = match requests.as_slice() {
            [only] if only.verb == Verb::Read => read(&self.reach.areas, only, buffer),
            many => execute_many(&self.reach.areas, many, buffer, tally),
        };
        if tally.changes() == 0 {
            // What these READs saw happens before whatever this thread does next.
            fence(Ordering::Acquire);
            if !self.is_usable() {
                // A successor may have newer records than what the READs saw last.
                return Err(Box::new(self.reach.link.disconnected()));
            }
        } else {
            // The next batch's READs must not be older than this batch's WRITEs: a store-load
            // order, which only the strongest fence gives. Parking handshakes rest on it.
            fence(Ordering::SeqCst);
        }
        self.reach.meter.record(tally);
        outcome
    }

    /// The checks and steps before words are copied past the queue.
    #[inline(always)]
    fn before_words(&mut self) -> Result<(), FabricError> {
        if !self.pending.is_empty() {
            self.settle();
        }
        if self.is_usable() { Ok(()) } else { Err(self.reach.link.disconnected()) }
    }

    /// The checks and steps, as in `execute`, after words were copied past the queue.
    #[inline(always)]
    fn after_words(&mut self, bytes: u64) -> Result<(), FabricError> {
        fence(Ordering::Acquire);
        self.reach.meter.record_read(bytes);
        if self.is_usable() { Ok(()) } else { Err(self.reach.link.disconnected()) }
    }

    /// Copies words of an area and says how many bytes.
    #[inline(always)]
    fn copy_words(&self, from: RemoteAddr, out: &mut [u64]) -> Result<u64, FabricError> {
        let Some(area) = self.reach.areas.get(usize::from(from.area.0)) else {
            return Err(*no_such_area(from.area));
        };
        match area.memory.read_words(from.offset, out) {
            Ok(()) => Ok(size_of_val(out) as u64),
            Err(error) => Err(*fault(from.area, error.into())),
        }
    }

    /// As [`copy_words`](Self::copy_words), of guarded records.
    #[inline(always)]
    fn copy_records(&self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<u64, FabricError> {
        let Some(area) = self.reach.areas.get(usize::from(from.area.0)) else {
            return Err(*no_such_area(from.area));
        };
        match area.memory.read_records(from.offset, out, stride) {
            Ok(()) => Ok(size_of_val(out) as u64),
            Err(error) => Err(*fault(from.area, error.into())),
        }
    }

    /// Executes what `post` has put off, in order.
    #[cold]
    fn settle(&mut self) {
        while let Some((ticket, mut batch)) = self.pending.pop_front() {
            let result = self.execute(&mut batch);
            self.done.push_back(Completion { ticket, batch, result });
        }
    }

    /// READs words from two places with one doorbell, neither before the other.
    #[inline(always)]
    pub(crate) fn read_both(
        &mut self,
        (from, out): (RemoteAddr, &mut [u64]),
        (other_from, other): (RemoteAddr, &mut [u64]),
    ) -> Result<(), FabricError> {
        self.before_words()?;
        // The first is about to be copied; the other's memory may be waited for at the same time.
        if let Some(area) = self.reach.areas.get(usize::from(other_from.area.0)) {
            area.memory.prefetch(other_from.offset, size_of_val(other).min(PREFETCH_PER_READ));
        }
        let bytes = self.copy_words(from, out)? + self.copy_words(other_from, other)?;
        fence(Ordering::Acquire);
        self.reach.meter.record_reads(1, 2, bytes);
        Ok(())
    }

    /// Loads a word, without counting it.
    pub(crate) fn look(&self, at: RemoteAddr) -> Result<u64, FabricError> {
        let look = |area: &Area| area.memory.load_acquire(at.offset).map_err(|error| fault(at.area, error));
        area(&self.reach.areas, at.area).and_then(look).map_err(|error| *error)
    }
}

impl Another for MappedEndpoint {
    fn another(&self) -> Self {
        Self::new(Arc::clone(&self.reach.areas), Arc::clone(&self.reach.link), self._anchor.clone())
    }
}

impl Endpoint for MappedEndpoint {
    type InPlace<'a> = MappedInPlace<'a>;

    #[inline(always)]
    fn in_place(&mut self, id: AreaId) -> Result<Option<MappedInPlace<'_>>, FabricError> {
        if !self.pending.is_empty() {
            self.settle();
        }
        // Whether the memory node is there is for what was looked at to say, when it was.
        let Some(area) = self.reach.areas.get(usize::from(id.0)) else { return Err(*no_such_area(id)) };
        Ok(Some(MappedInPlace { area, reach: &self.reach }))
    }

    #[inline]
    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        if !self.pending.is_empty() {
            self.settle();
        }
        self.execute(batch)
    }

    #[inline(always)]
    fn read_words(&mut self, from: RemoteAddr, out: &mut [u64]) -> Result<(), FabricError> {
        self.before_words()?;
        let bytes = self.copy_words(from, out)?;
        self.after_words(bytes)
    }

    #[inline(always)]
    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        self.before_words()?;
        let bytes = self.copy_records(from, out, stride)?;
        self.after_words(bytes)
    }

    fn guards(&self) -> bool {
        true
    }

    #[inline]
    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        // Every READ before ended in an acquire fence; this load stands after it.
        fence(Ordering::Acquire);
        self.look(at)
    }

    fn post(&mut self, mut batch: Batch) -> Result<Ticket, Rejected> {
        if !self.reach.link.is_alive() {
            return Err(Rejected { batch, error: self.reach.link.disconnected() });
        }
        let in_flight = self.pending.len() + self.done.len();
        if in_flight >= MAX_IN_FLIGHT {
            return Err(Rejected { batch, error: FabricError::QueueFull { in_flight } });
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if batch.tally.changes() == 0 {
            for request in &batch.requests {
                prefetch(&self.reach.areas, request);
            }
            self.pending.push_back((ticket, batch));
        } else {
            self.settle();
            let result = self.execute(&mut batch);
            self.done.push_back(Completion { ticket, batch, result });
        }
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.done.pop_front() {
            return Some(completion);
        }
        let (ticket, mut batch) = self.pending.pop_front()?;
        let result = self.execute(&mut batch);
        Some(Completion { ticket, batch, result })
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let area = self.reach.areas.get(usize::from(area.0))?;
        Some(AreaInfo { len: area.memory.len() as u64, access: area.access })
    }

    fn meter(&self) -> &Meter {
        &self.reach.meter
    }
}

#[cold]
fn oversize(len: u64) -> Box<FabricError> {
    Box::new(FabricError::oversize(len))
}
