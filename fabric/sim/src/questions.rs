//! Questions about a region, answered by threads of the memory node.
//!
//! The process that asks does the answering, in the time between its question's arrival and its
//! answer's departure: so there are as many such threads as processes that ask, and every look that
//! one takes at memory is an event among all others. It looks over a connection inside the memory
//! node, which ends when the memory node's life does, however late that is noticed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpcache_fabric::backend::{land_reply, landing, question};
use fpcache_fabric::{Answered, Answers, Batch, FabricError, RegionReader, ThreadMemory};

use crate::anchor::Anchor;
use crate::baton::Shared;
use crate::endpoint::SimEndpoint;
use crate::state::State;
use crate::trace::TraceKind;

/// The region of one life of a simulated memory node, for threads of its own that read it. Clones
/// are the same.
#[derive(Clone)]
pub struct SimRegion {
    anchor: Arc<Anchor>,
    offered: Arc<Mutex<Option<Arc<dyn Answers>>>>,
}

impl fmt::Debug for SimRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRegion").field("connection", &self.anchor.connection).finish_non_exhaustive()
    }
}

impl SimRegion {
    pub(crate) fn new(shared: Arc<Shared>, connection: usize) -> Self {
        let anchor = Anchor { shared, connection, is_local: true };
        Self { anchor: Arc::new(anchor), offered: Arc::default() }
    }

    /// An endpoint that reads the region, for a process of the world: what the memory node's life
    /// begins with, and its service, must not use one.
    #[must_use]
    pub fn reader(&self) -> RegionReader<SimEndpoint> {
        SimEndpoint::new(&self.anchor).into()
    }

    /// Has questions about the region answered in this life, from its beginning on. To be called by
    /// what begins it; the last call counts.
    pub fn answer_by(&self, answers: Arc<dyn Answers>) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(answers);
    }

    /// The answerer offered, which this does not keep: that one may well hold this.
    pub(crate) fn take_offered(&self) -> Option<Arc<dyn Answers>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl State {
    /// The code that answers questions that come over a connection; `None` if the memory node's
    /// life is over, or if questions are not answered.
    fn answers_of(&mut self, connection: usize) -> Option<(Arc<dyn Answers>, ThreadMemory)> {
        if !self.reaches(connection) {
            return None;
        }
        let node = &mut self.nodes[self.links[connection].node];
        let answers = Arc::clone(node.answers.as_ref()?);
        Some((answers, node.thread_memories.pop().unwrap_or_default()))
    }
}

impl SimEndpoint {
    /// Has a batch's question answered, and waits for it.
    pub(crate) fn ask(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        let mut state = self.begin()?;
        while !state.pairs[self.number].is_idle() {
            // What was posted before comes first.
            let after = state.random.between(50, 500);
            state = self.shared().sleep_in(state, after);
        }
        let there = state.way();
        let mut state = self.shared().sleep_in(state, there);
        let cut = state.faults.cut;
        if state.random.happens(cut) {
            state.hang_up(self.connection());
        }
        let Some((answers, mut memory)) = state.answers_of(self.connection()) else {
            return Err(self.gone(state));
        };
        drop(state);
        let mut reply = vec![u64::MAX; landing(batch, 0).len()];
        let question = question(batch).unwrap_or_default();
        let asked = question.len() as u64;
        let Answered { words, .. } = answers.answer(&mut memory, question, &mut reply);
        drop(answers);
        let words = words.min(reply.len());
        let mut state = self.shared().lock();
        if !state.reaches(self.connection()) {
            return Err(self.gone(state));
        }
        let node = state.links[self.connection()].node;
        state.nodes[node].thread_memories.push(memory);
        state.note(TraceKind::Answered, self.number, words as u64, asked);
        let back = state.way();
        let state = self.shared().sleep_in(state, back);
        if !state.links[self.connection()].is_alive() {
            return Err(self.gone(state));
        }
        drop(state);
        land_reply(batch, &reply[..words]);
        self.record(batch.tally());
        Ok(())
    }

    /// The other side has gone, which is noticed by asking it.
    fn gone(&self, mut state: MutexGuard<'_, State>) -> FabricError {
        state.cut(self.connection());
        state.links[self.connection()].disconnected()
    }
}
