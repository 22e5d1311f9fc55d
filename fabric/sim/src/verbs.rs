//! The verbs of a simulated endpoint.

use fpcache_fabric::backend::question;
use fpcache_fabric::{
    AreaId, AreaInfo, Batch, Completion, Endpoint, FabricError, Meter, Rejected, RemoteAddr, Ticket,
};

use crate::endpoint::SimEndpoint;
use crate::in_place::SimInPlace;
use crate::process_state::Wait;

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;

impl SimEndpoint {
    /// READs words through the batch that is kept for it, or records of `stride` words.
    fn read_kept(
        &mut self,
        from: RemoteAddr,
        out: &mut [u64],
        stride: Option<usize>,
    ) -> Result<(), FabricError> {
        let mut batch = std::mem::take(&mut self.words);
        batch.clear();
        let landing = match stride {
            Some(stride) => batch.read_records(from, size_of_val(out), stride * 8),
            None => batch.read(from, size_of_val(out)),
        };
        let outcome = self.run(&mut batch);
        if outcome.is_ok() {
            out.copy_from_slice(batch.words(landing));
        }
        self.words = batch;
        outcome
    }
}

impl Endpoint for SimEndpoint {
    type InPlace<'a> = SimInPlace<'a>;

    fn in_place(&mut self, area: AreaId) -> Result<Option<SimInPlace<'_>>, FabricError> {
        Ok(self.maps.then(|| SimInPlace { endpoint: self, area, seen: Vec::new() }))
    }

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        if question(batch).is_some() && self.answers() {
            return self.ask(batch);
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
        self.read_kept(from, out, None)
    }

    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        self.read_kept(from, out, Some(stride))
    }

    fn guards(&self) -> bool {
        true
    }

    fn answers(&self) -> bool {
        self.shared().lock().links[self.connection()].answers
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
        if question(&batch).is_some() && self.answers() {
            let result = self.ask(&mut batch);
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

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let state = self.shared().lock();
        let area = state.links[self.connection()].areas.get(usize::from(area.0))?;
        Some(AreaInfo { len: area.visible.len() as u64, access: area.access? })
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}
