//! What a simulated endpoint can do.

use super::calls::until;
use super::endpoint::SimEndpoint;
use super::event::Event;
use super::in_place::SimInPlace;
use super::slot::{Outcome, Wait, Waiter, Watch};
use super::state::State;
use crate::clock::Deadline;
use crate::endpoint::{AreaInfo, Completion, Endpoint, Rejected, Ticket, WordRead};
use crate::error::FabricError;
use crate::meter::Meter;
use crate::verbs::{AreaId, Batch, Landing, RemoteAddr, Tally};

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;

impl SimEndpoint {
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
            return Err(state.links[self.connection()].disconnected());
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
        let node = state.links[self.connection()].node;
        let wait = Wait::Word { node, area: at.area.0, offset: at.offset, seen };
        let until = until(&self.shared().time, deadline);
        let (state, outcome) = self.shared().wait(state, wait, until);
        match outcome {
            Outcome::Word(value) => Ok(value),
            Outcome::TimedOut => {
                Err(FabricError::DeadlinePassed { waiting_for: "a word of the memory node to change" })
            }
            _ => Err(state.links[self.connection()].disconnected()),
        }
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let state = self.shared().lock();
        let area = state.links[self.connection()].areas.get(usize::from(area.0))?;
        Some(AreaInfo { len: area.visible.len() as u64, access: area.access? })
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}
