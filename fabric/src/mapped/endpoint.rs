//! The endpoint of every backend whose areas are mapped into this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::in_place::MappedInPlace;
use crate::clock::{Clock, Deadline};
use crate::endpoint::{Another, AreaInfo, Completion, Endpoint, Rejected, Ticket, WordRead};
use crate::error::FabricError;
use crate::memory::{Access, AccessError, ForkFlag, MemoryError, SharedMemory};
use crate::meter::Meter;
use crate::verbs::{AreaId, Batch, MAX_BATCH_BYTES, MAX_REQUEST_BYTES, Posted, RemoteAddr, Tally, Verb};

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;
/// How many READs prefetches run ahead of copies: what they fetch must stay in a first-level cache of 32 KiB or more.
const READS_AHEAD: usize = 32;
/// Of one READ at most this much is prefetched; after that the processor's own prefetcher has caught on.
pub(super) const PREFETCH_PER_READ: usize = 1024;
/// How long `wait_changed` spins before it naps.
pub(crate) const SPIN: Duration = Duration::from_micros(20);
/// The longest nap: how late `wait_changed` may be when nothing happened for long.
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// How a request ended. The error is boxed because moving a large one costs more than a READ, even when there is none.
type Outcome = Result<(), Box<FabricError>>;

/// Whether the memory node still serves a connection, and what it is called. To a forked child every connection of its parent is
/// cut: ring and socket are the parent's.
#[derive(Debug)]
pub(crate) struct Link {
    alive: ForkFlag,
    peer: Arc<str>,
}

impl Link {
    /// # Errors
    /// If the operating system has no page of memory.
    pub(crate) fn new(peer: &str) -> Result<Self, MemoryError> {
        Ok(Self { alive: ForkFlag::raised()?, peer: peer.into() })
    }

    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.is_raised()
    }

    /// Whether it is that of the process from which this one was forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.alive.is_inherited()
    }

    pub(crate) fn cut(&self) {
        self.alive.lower();
    }

    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    #[cold]
    pub(crate) fn disconnected(&self) -> FabricError {
        FabricError::Disconnected { peer: Arc::clone(&self.peer) }
    }
}

/// A mapped area and this endpoint's rights to it.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) access: Access,
}

impl Area {
    pub(crate) fn new(memory: Arc<SharedMemory>, granted: Access) -> Self {
        let access = if memory.access() == Access::ReadOnly { Access::ReadOnly } else { granted };
        Self { memory, access }
    }
}

/// A queue pair over mapped areas: verbs are loads and stores of this processor.
///
/// `run` executes inline. `post` executes a batch that changes memory at once; a batch of READs it only prefetches,
/// and copies when it is polled, so that many posted batches wait for memory at the same time.
#[derive(Debug)]
pub struct MappedEndpoint {
    pub(super) areas: Arc<[Area]>,
    pub(super) link: Arc<Link>,
    pub(super) meter: Arc<Meter>,
    clock: Arc<dyn Clock>,
    /// What else must live as long as this endpoint: the connection's socket and watcher.
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
        clock: Arc<dyn Clock>,
        anchor: Option<Arc<dyn Send + Sync + Anchor>>,
    ) -> Self {
        let meter = Arc::new(Meter::new());
        let (pending, done) = (VecDeque::new(), VecDeque::new());
        Self { areas, link, meter, clock, _anchor: anchor, next_ticket: 0, pending, done }
    }

    /// The counts, to be read by other threads.
    #[must_use]
    pub fn shared_meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    #[inline]
    fn execute(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.execute_boxed(batch).map_err(|error| *error)
    }

    #[inline]
    fn execute_boxed(&mut self, batch: &mut Batch) -> Outcome {
        if !self.link.is_alive() {
            return Err(Box::new(self.link.disconnected()));
        }
        if batch.oversize.is_some() {
            return Err(too_long(batch.oversize));
        }
        let Batch { requests, buffer, tally, .. } = batch;
        let outcome = match requests.as_slice() {
            [only] if only.verb == Verb::Read => read(&self.areas, only, buffer),
            many => execute_many(&self.areas, many, buffer, tally),
        };
        if tally.changes() == 0 {
            // What these READs saw happens before whatever this thread does next.
            fence(Ordering::Acquire);
        } else {
            // The next batch's READs must not be older than this batch's WRITEs: a store-load order, which only the
            // strongest fence gives. Parking handshakes rest on it.
            fence(Ordering::SeqCst);
        }
        self.meter.record(tally);
        outcome
    }

    /// What must be done and known before words are copied past the queue.
    #[inline(always)]
    fn before_words(&mut self) -> Result<(), FabricError> {
        if !self.pending.is_empty() {
            self.settle();
        }
        if self.link.is_alive() { Ok(()) } else { Err(self.link.disconnected()) }
    }

    /// Copies words of an area and says how many bytes.
    #[inline(always)]
    fn copy_words(&self, from: RemoteAddr, out: &mut [u64]) -> Result<u64, FabricError> {
        let Some(area) = self.areas.get(usize::from(from.area.0)) else {
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
        let Some(area) = self.areas.get(usize::from(from.area.0)) else {
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

    fn look(&self, at: RemoteAddr) -> Result<u64, FabricError> {
        let look = |area: &Area| area.memory.load_acquire(at.offset).map_err(|error| fault(at.area, error));
        area(&self.areas, at.area).and_then(look).map_err(|error| *error)
    }
}

impl Another for MappedEndpoint {
    fn another(&self) -> Self {
        let anchor = self._anchor.clone();
        Self::new(Arc::clone(&self.areas), Arc::clone(&self.link), Arc::clone(&self.clock), anchor)
    }
}

impl Endpoint for MappedEndpoint {
    type InPlace<'a> = MappedInPlace<'a>;

    #[inline(always)]
    fn in_place(&mut self, id: AreaId) -> Result<Option<MappedInPlace<'_>>, FabricError> {
        self.before_words()?;
        let Some(area) = self.areas.get(usize::from(id.0)) else { return Err(*no_such_area(id)) };
        Ok(Some(MappedInPlace { area, endpoint: self }))
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
        // As in `execute`: what this READ saw happens before whatever this thread does next.
        fence(Ordering::Acquire);
        self.meter.record_read(bytes);
        Ok(())
    }

    #[inline(always)]
    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        self.before_words()?;
        let bytes = self.copy_records(from, out, stride)?;
        fence(Ordering::Acquire);
        self.meter.record_read(bytes);
        Ok(())
    }

    fn guards(&self) -> bool {
        true
    }

    #[inline(always)]
    fn read_all_words<const N: usize>(&mut self, reads: [WordRead<'_>; N]) -> Result<(), FabricError> {
        self.before_words()?;
        // The first is about to be copied; the others' memory may be waited for at the same time.
        for read in reads.iter().skip(1) {
            if let Some(area) = self.areas.get(usize::from(read.from.area.0)) {
                area.memory.prefetch(read.from.offset, size_of_val(read.out).min(PREFETCH_PER_READ));
            }
        }
        let mut bytes_from = 0;
        for read in reads {
            bytes_from += match read.guarded {
                true => self.copy_records(read.from, read.out, read.out.len())?,
                false => self.copy_words(read.from, read.out)?,
            };
        }
        fence(Ordering::Acquire);
        self.meter.record(&Tally { reads: N as u32, bytes_from, ..Tally::default() });
        Ok(())
    }

    #[inline]
    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        // Every READ before ended in an acquire fence; this load stands after it.
        fence(Ordering::Acquire);
        self.look(at)
    }

    fn post(&mut self, mut batch: Batch) -> Result<Ticket, Rejected> {
        if !self.link.is_alive() {
            return Err(Rejected { batch, error: self.link.disconnected() });
        }
        let in_flight = self.pending.len() + self.done.len();
        if in_flight >= MAX_IN_FLIGHT {
            return Err(Rejected { batch, error: FabricError::QueueFull { in_flight } });
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if batch.tally.changes() == 0 {
            for request in &batch.requests {
                prefetch(&self.areas, request);
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

    fn wait_changed(&mut self, at: RemoteAddr, seen: u64, deadline: Deadline) -> Result<u64, FabricError> {
        self.settle();
        self.meter.record(&Tally { reads: 1, bytes_from: 8, ..Tally::default() });
        let started = self.clock.now();
        let mut nap = Duration::from_micros(50);
        loop {
            for _ in 0..16 {
                let value = self.look(at)?;
                if value != seen {
                    return Ok(value);
                }
                std::hint::spin_loop();
            }
            if !self.link.is_alive() {
                return Err(self.link.disconnected());
            }
            let now = self.clock.now();
            if deadline.has_passed(now) {
                return Err(FabricError::DeadlinePassed {
                    waiting_for: "a word of the memory node to change",
                });
            }
            if now.saturating_duration_since(started) >= SPIN {
                self.clock.sleep(deadline.remaining(now).map_or(nap, |left| nap.min(left)));
                nap = (nap * 2).min(LONGEST_NAP);
            }
        }
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let area = self.areas.get(usize::from(area.0))?;
        Some(AreaInfo { len: area.memory.len() as u64, access: area.access })
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

#[inline]
fn area(areas: &[Area], id: AreaId) -> Result<&Area, Box<FabricError>> {
    areas.get(usize::from(id.0)).ok_or_else(|| no_such_area(id))
}

/// Maps the pages of a part of an area; out of bounds it is cut short, as befits a hint.
pub(crate) fn will_read(areas: &[Area], area: AreaId, offset: u64, len: u64) {
    if let Some(area) = areas.get(usize::from(area.0)) {
        area.memory.populate(offset, usize::try_from(len).unwrap_or(usize::MAX));
    }
}

#[cold]
fn no_such_area(area: AreaId) -> Box<FabricError> {
    Box::new(FabricError::NoSuchArea { area })
}

#[inline(always)]
fn read(areas: &[Area], request: &Posted, buffer: &mut [u64]) -> Outcome {
    use zerocopy::IntoBytes;
    let area = area(areas, request.area)?;
    let (word, len) = (request.word as usize, request.len as usize);
    let landing = &mut buffer[word..word + len.div_ceil(8)];
    let outcome = match len % 8 {
        0 if request.stride > 0 => area.memory.read_records(request.offset, landing, request.stride as usize),
        0 => area.memory.read_words(request.offset, landing),
        _ => area.memory.read_bytes(request.offset, &mut landing.as_mut_bytes()[..len]),
    };
    outcome.map_err(|error| fault(request.area, error.into()))
}

/// Executes requests in order. Prefetches run a fixed number of READs ahead of the copies, so that the waits overlap.
fn execute_many(areas: &[Area], requests: &[Posted], buffer: &mut [u64], tally: &Tally) -> Outcome {
    if tally.changes() > 0 {
        return requests.iter().try_for_each(|request| match request.verb {
            Verb::Read => read(areas, request, buffer),
            _ => change(areas, request, buffer),
        });
    }
    let mut upcoming = requests.iter();
    for request in upcoming.by_ref().take(READS_AHEAD) {
        prefetch(areas, request);
    }
    for request in requests {
        if let Some(next) = upcoming.next() {
            prefetch(areas, next);
        }
        read(areas, request, buffer)?;
    }
    Ok(())
}

#[inline]
fn prefetch(areas: &[Area], request: &Posted) {
    if request.verb == Verb::Read
        && let Some(area) = areas.get(usize::from(request.area.0))
    {
        area.memory.prefetch(request.offset, (request.len as usize).min(PREFETCH_PER_READ));
    }
}

/// Executes a WRITE or an atomic.
fn change(areas: &[Area], request: &Posted, buffer: &mut [u64]) -> Outcome {
    use zerocopy::IntoBytes;
    let area = area(areas, request.area)?;
    let (memory, word, offset) = (&area.memory, request.word as usize, request.offset);
    if area.access == Access::ReadOnly {
        return Err(fault(request.area, AccessError::ReadOnly));
    }
    let outcome = match request.verb {
        Verb::Read => Ok(()),
        Verb::Write => {
            // Changes take effect in posting order: whoever sees this one sees those before.
            fence(Ordering::Release);
            let len = request.len as usize;
            let bytes = &buffer[word..word + len.div_ceil(8)].as_bytes()[..len];
            memory.write_bytes(offset, bytes)
        }
        Verb::CompareSwap => {
            memory.compare_exchange(offset, buffer[word + 1], buffer[word + 2]).map(|old| buffer[word] = old)
        }
        Verb::FetchAdd => memory.fetch_add(offset, buffer[word + 1]).map(|old| buffer[word] = old),
    };
    outcome.map_err(|error| fault(request.area, error))
}

#[cold]
pub(super) fn fault(area: AreaId, error: AccessError) -> Box<FabricError> {
    Box::new(match error {
        AccessError::OutOfBounds(at) => {
            FabricError::OutOfBounds { area, offset: at.offset, len: at.len, area_len: at.memory_len }
        }
        AccessError::Misaligned { offset } => FabricError::Misaligned { area, offset },
        AccessError::ReadOnly => FabricError::AccessDenied { area },
    })
}

#[cold]
fn too_long(oversize: Option<u64>) -> Box<FabricError> {
    let len = oversize.unwrap_or(0);
    let max = if len > MAX_BATCH_BYTES { MAX_BATCH_BYTES } else { MAX_REQUEST_BYTES as u64 };
    Box::new(FabricError::TooLong { len, max })
}
