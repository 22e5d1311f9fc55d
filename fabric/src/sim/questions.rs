//! Questions about a region, which threads of the memory node's own answer.
//!
//! The process that asks does the answering, in the time between its question's arrival and its answer's departure: so there are
//! as many such threads as processes that ask, and every look that one takes at memory is an event among the others'. It looks over a
//! connection inside the memory node, which ends where the memory node's life does, whoever notices that how late.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::anchor::Anchor;
use super::baton::Shared;
use super::endpoint::SimEndpoint;
use super::state::State;
use super::trace::What;
use crate::answers::{Answered, Answers, ThreadMemory};
use crate::error::FabricError;
use crate::region_reader::RegionReader;
use crate::verbs::{Batch, Landing};

/// The region of one life of a simulated memory node, for threads of its own that read it. Clones are the same.
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
    pub(super) fn new(shared: Arc<Shared>, connection: usize) -> Self {
        let anchor = Anchor { shared, connection, is_local: true };
        Self { anchor: Arc::new(anchor), offered: Arc::default() }
    }

    /// An endpoint that reads the region, for a process of the world: what the memory node's life begins with, and its service,
    /// must not use one.
    #[must_use]
    pub fn reader(&self) -> RegionReader<SimEndpoint> {
        SimEndpoint::new(&self.anchor).into()
    }

    /// Has questions about the region answered in this life, from its beginning on. To be called by what begins it; the last
    /// call counts.
    pub fn answer_by(&self, answers: Arc<dyn Answers>) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(answers);
    }

    /// What was offered, which this does not keep: it may well have this.
    pub(super) fn take_offered(&self) -> Option<Arc<dyn Answers>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl State {
    /// What answers questions that come over a connection; `None` if the memory node's life is over, or nobody does.
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
    pub(super) fn ask(&mut self, batch: &mut Batch, question: Landing) -> Result<(), FabricError> {
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
        let mut reply = vec![u64::MAX; batch.requests.first().map_or(0, |posted| posted.len as usize / 8)];
        let Answered { words, .. } = answers.answer(&mut memory, batch.bytes(question), &mut reply);
        drop(answers);
        let words = words.min(reply.len());
        let mut state = self.shared().lock();
        if !state.reaches(self.connection()) {
            return Err(self.gone(state));
        }
        let node = state.links[self.connection()].node;
        state.nodes[node].thread_memories.push(memory);
        state.note(What::Answered, self.number, words as u64, question.len() as u64);
        let back = state.way();
        let state = self.shared().sleep_in(state, back);
        if !state.links[self.connection()].is_alive() {
            return Err(self.gone(state));
        }
        drop(state);
        reply[words..].fill(0);
        batch.tally.bytes_from = words as u64 * 8;
        if let Some(posted) = batch.requests.first() {
            batch.buffer[posted.word as usize..][..reply.len()].copy_from_slice(&reply);
        }
        self.record(&batch.tally);
        Ok(())
    }

    /// The other side has gone, which whoever asks it notices.
    fn gone(&self, mut state: MutexGuard<'_, State>) -> FabricError {
        state.cut(self.connection());
        state.links[self.connection()].disconnected()
    }
}
