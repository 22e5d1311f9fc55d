//! Batches that a network card runs, and READs of words.

use super::{TcpEndpoint, left};
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::tcp::card_reads::ByCard;
use crate::verbs::{Batch, RemoteAddr};

impl TcpEndpoint {
    /// Runs a batch by the network card, if there is one and it can.
    #[inline]
    pub(super) fn execute_by_card(&mut self, batch: &mut Batch) -> Option<Result<(), FabricError>> {
        let by_card = self.by_card.as_mut()?;
        if !self.session.link.is_alive() {
            return Some(Err(self.lose()));
        }
        self.session.caller.clear_up();
        // What is under way over the socket comes first.
        let is_busy = self.channel.as_ref().is_some_and(|channel| !channel.is_idle());
        if is_busy || batch.oversize().is_some() || batch.question.is_some() {
            return None;
        }
        let fault = self.session.fault_of(batch);
        let ran = by_card.run(&self.session, batch, fault, left(self.until));
        let words = by_card.take_uncounted();
        if words > 0 {
            self.meter.record_reads(0, words, u64::from(words) * 8);
        }
        match ran {
            ByCard::Ended(outcome) => Some(outcome),
            ByCard::BySocket => None,
            ByCard::Gone => Some(Err(self.lose())),
        }
    }

    /// READs words through the batch that is kept for it, or records of `stride` words.
    pub(super) fn read_kept(
        &mut self,
        from: RemoteAddr,
        out: &mut [u64],
        stride: Option<usize>,
        is_counted: bool,
    ) -> Result<(), FabricError> {
        let mut batch = std::mem::take(&mut *self.words);
        batch.clear();
        let landing = match stride {
            Some(stride) => batch.read_records(from, size_of_val(out), stride * 8),
            None => batch.read(from, size_of_val(out)),
        };
        let outcome = if is_counted { self.run(&mut batch) } else { self.execute(&mut batch) };
        if outcome.is_ok() {
            out.copy_from_slice(batch.words(landing));
        }
        *self.words = batch;
        outcome
    }

    /// Looks at a word, without counting it.
    pub(super) fn look(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.session.check_word(at)?;
        self.begin_in_time()?;
        let mut word = [0];
        self.read_kept(at, &mut word, None, false)?;
        Ok(word[0])
    }
}
