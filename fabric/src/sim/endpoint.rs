//! A queue pair to a simulated memory node.

use std::fmt;
use std::sync::Arc;
use std::sync::MutexGuard;

use super::baton::Shared;
use super::calls::until;
use super::connection::Anchor;
use super::event::Event;
use super::flight::{QueuePair, fault};
use super::in_place::SimInPlace;
use super::state::{Outcome, State, Wait, Waiter, Watch};
use crate::clock::Deadline;
use crate::endpoint::{Another, AreaInfo, Completion, Endpoint, Rejected, Ticket, WordRead};
use crate::error::FabricError;
use crate::meter::Meter;
use crate::verbs::{AreaId, Batch, Landing, RemoteAddr, Tally};

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;

/// A queue pair to one life of a simulated memory node.
pub struct SimEndpoint {
    anchor: Arc<Anchor>,
    pub(super) number: usize,
    meter: Arc<Meter>,
    /// Whether areas can be looked at in place.
    maps: bool,
    /// For READs of words: kept so that they do not allocate.
    words: Batch,
}

impl fmt::Debug for SimEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimEndpoint").field("number", &self.number).finish_non_exhaustive()
    }
}

impl SimEndpoint {
    pub(super) fn new(anchor: &Arc<Anchor>) -> Self {
        let meter = Arc::new(Meter::new());
        let mut state = anchor.shared.lock();
        let number = state.pairs.len();
        let lease = state.lease_of(anchor.connection);
        state.pairs.push(QueuePair::new(anchor.connection, Arc::clone(&meter), lease));
        // Half of them, so that both ways of reading meet every fault.
        let maps =
            state.links[anchor.connection].is_local || state.faults.in_place && state.random.below(2) == 0;
        drop(state);
        Self { anchor: Arc::clone(anchor), number, meter, maps, words: Batch::new() }
    }

    /// Begins a verb on a connection that is alive.
    pub(super) fn begin(&self) -> Result<MutexGuard<'_, State>, FabricError> {
        let Anchor { shared, connection, .. } = &*self.anchor;
        let state = shared.begin().ok_or_else(|| shared.lock().links[*connection].disconnected())?;
        if state.links[*connection].is_alive() {
            Ok(state)
        } else {
            Err(state.links[*connection].disconnected())
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.anchor.shared
    }

    pub(super) fn connection(&self) -> usize {
        self.anchor.connection
    }

    pub(super) fn record(&self, tally: &Tally) {
        self.meter.record(tally);
    }

    /// The word at `at` as it is visible now.
    fn word(&self, state: &State, at: RemoteAddr) -> Result<u64, FabricError> {
        let areas = &state.links[self.anchor.connection].areas;
        let area = areas.get(usize::from(at.area.0)).filter(|area| area.access.is_some());
        let area = area.ok_or(FabricError::NoSuchArea { area: at.area })?;
        area.visible.load_acquire(at.offset).map_err(|error| fault(at.area, error))
    }

    /// READs words through the batch that is kept for it.
    fn read_landings<const N: usize>(&mut self, reads: [WordRead<'_>; N]) -> Result<(), FabricError> {
        let mut batch = std::mem::take(&mut self.words);
        batch.clear();
        let landings: [Landing; N] = reads.each_ref().map(|read| read.ask(&mut batch));
        let outcome = self.run(&mut batch);
        if outcome.is_ok() {
            for (read, landing) in reads.into_iter().zip(landings) {
                read.out.copy_from_slice(batch.words(landing));
            }
        }
        self.words = batch;
        outcome
    }
}

impl State {
    /// Somebody who was told that a word changed looks at it, and waits on if it has changed back.
    pub(super) fn look(&mut self, waiter: Waiter, endpoint: usize) {
        let Wait::Word { node, area, offset, seen } = self.slots[waiter.slot].wait else { return };
        let areas = &self.links[self.pairs[endpoint].connection].areas;
        // The word was looked at when the wait began: area and offset are good.
        let value = areas.get(usize::from(area)).and_then(|area| area.visible.load_acquire(offset).ok());
        match value {
            Some(value) if value != seen => self.wake(waiter, Outcome::Word(value)),
            _ => self.watches.push(Watch { waiter, endpoint, node }),
        }
    }
}

impl Another for SimEndpoint {
    fn another(&self) -> Self {
        Self::new(&self.anchor)
    }
}

impl Endpoint for SimEndpoint {
    type InPlace<'a> = SimInPlace<'a>;

    fn in_place(&mut self, area: AreaId) -> Result<Option<SimInPlace<'_>>, FabricError> {
        Ok(self.maps.then(|| SimInPlace { endpoint: self, area, seen: Vec::new() }))
    }

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        if let Some(question) = batch.question.filter(|_| self.answers()) {
            return self.ask(batch, question);
        }
        let mut state = self.begin()?;
        let waiter = state.waiter();
        let ticket = state.submit(self.number, std::mem::take(batch), Some(waiter));
        let wait = Wait::Batch { endpoint: self.number, ticket };
        let (mut state, _) = self.shared().wait(state, wait, None);
        let ran = state.pairs[self.number].ran.take();
        let Some((back, result)) = ran else {
            return Err(state.links[self.anchor.connection].disconnected());
        };
        *batch = back;
        result
    }

    fn read_words(&mut self, from: RemoteAddr, out: &mut [u64]) -> Result<(), FabricError> {
        self.read_landings([WordRead { from, out, guarded: false }])
    }

    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        let mut batch = std::mem::take(&mut self.words);
        batch.clear();
        let landing = batch.read_records(from, size_of_val(out), stride * 8);
        let outcome = self.run(&mut batch);
        if outcome.is_ok() {
            out.copy_from_slice(batch.words(landing));
        }
        self.words = batch;
        outcome
    }

    fn guards(&self) -> bool {
        true
    }

    fn answers(&self) -> bool {
        self.shared().lock().links[self.connection()].answers
    }

    fn read_all_words<const N: usize>(&mut self, reads: [WordRead<'_>; N]) -> Result<(), FabricError> {
        self.read_landings(reads)
    }

    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        let mut state = self.begin()?;
        if let Some(word) = state.leased_word(self.number, at) {
            return Ok(word);
        }
        // Stores may become visible between a READ and this.
        let after = state.random.between(20, 300);
        let state = self.shared().sleep_in(state, after);
        self.word(&state, at)
    }

    /// A question is waited for.
    fn post(&mut self, mut batch: Batch) -> Result<Ticket, Rejected> {
        if let Some(question) = batch.question.filter(|_| self.answers()) {
            let result = self.ask(&mut batch, question);
            return Ok(Ticket(self.shared().lock().pairs[self.number].has_landed(batch, result)));
        }
        let mut state = match self.begin() {
            Ok(state) => state,
            Err(error) => return Err(Rejected { batch, error }),
        };
        let in_flight = state.pairs[self.number].in_flight();
        if in_flight >= MAX_IN_FLIGHT {
            return Err(Rejected { batch, error: FabricError::QueueFull { in_flight } });
        }
        Ok(Ticket(state.submit(self.number, batch, None)))
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut state = self.shared().begin()?;
        let pair = &mut state.pairs[self.number];
        if pair.done.is_empty() && !pair.is_idle() {
            // A loop that polls must let time pass.
            let after = state.random.between(50, 500);
            state = self.shared().sleep_in(state, after);
        }
        state.pairs[self.number].done.pop_front()
    }

    fn wait_changed(&mut self, at: RemoteAddr, seen: u64, deadline: Deadline) -> Result<u64, FabricError> {
        let mut state = self.begin()?;
        state.pairs[self.number].meter().record(&Tally { reads: 1, bytes_from: 8, ..Tally::default() });
        self.word(&state, at)?;
        let waiter = state.waiter();
        let after = state.way();
        state.schedule(after, Event::Look { waiter, endpoint: self.number });
        let node = state.links[self.anchor.connection].node;
        let wait = Wait::Word { node, area: at.area.0, offset: at.offset, seen };
        let until = until(&self.shared().time, deadline);
        let (state, outcome) = self.shared().wait(state, wait, until);
        match outcome {
            Outcome::Word(value) => Ok(value),
            Outcome::TimedOut => {
                Err(FabricError::DeadlinePassed { waiting_for: "a word of the memory node to change" })
            }
            _ => Err(state.links[self.anchor.connection].disconnected()),
        }
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let state = self.shared().lock();
        let area = state.links[self.anchor.connection].areas.get(usize::from(area.0))?;
        Some(AreaInfo { len: area.visible.len() as u64, access: area.access? })
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}
