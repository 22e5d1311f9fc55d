//! Checks of a batch before it is sent.

use crate::error::FabricError;
use crate::tcp::areas::SCRATCH;
use crate::tcp::channel::SendTime;
use crate::tcp::client::session::Session;
use crate::tcp::frame::{MAX_QUESTION_BYTES, MAX_STRIDE, QUESTION_SUM_BYTES};
use crate::verbs::{ANSWERS, AreaId, Batch, PostedVerb, REGION, RemoteAddr, Verb};

/// Batches of no more requests and bytes are short: their time is that of a round trip.
const SHORT_REQUESTS: usize = 4;
const SHORT_BYTES: u64 = 1 << 10;

/// Whether the time of a batch is that of its round trip: little is asked for, and little comes.
pub(super) fn is_short(batch: &Batch) -> bool {
    let asked = batch.requests.iter().map(|posted| u64::from(posted.len)).sum::<u64>();
    batch.tally.changes() == 0 && batch.requests.len() <= SHORT_REQUESTS && asked <= SHORT_BYTES
}

/// Requests that the memory node would hang up for are found here, as where memory is mapped.
impl Session {
    /// Takes the time of a batch that has come back now, for what a round trip takes.
    pub(super) fn took(&self, sent: SendTime) {
        let took = sent.at.elapsed();
        if sent.is_trip { self.round_trip.record(took) } else { self.round_trip.record_at_most(took) }
    }

    /// Bytes of an area, if there is one.
    pub(in crate::tcp) fn area_len(&self, area: AreaId) -> Option<u64> {
        match area.0 {
            0 => Some(self.region_len),
            id if id == u16::from(SCRATCH) && self.scratch_len > 0 => Some(self.scratch_len),
            _ => None,
        }
    }

    /// The first request of a batch that cannot be executed, and why.
    pub(super) fn fault_of(&self, batch: &Batch) -> Option<(usize, FabricError)> {
        if let Some(question) = batch.question {
            let checked = match batch.requests.as_slice() {
                [only] => self.check_question(question.len(), only),
                // A frame has a question or requests, never both.
                _ => Err(FabricError::NoSuchArea { area: ANSWERS }),
            };
            return checked.err().map(|error| (0, error));
        }
        let checked = batch.requests.iter().enumerate();
        checked.filter_map(|(at, posted)| Some((at, self.check(posted).err()?))).next()
    }

    fn check_question(&self, bytes: usize, posted: &PostedVerb) -> Result<(), FabricError> {
        let max = MAX_QUESTION_BYTES.min(self.limits.batch_bytes as usize - QUESTION_SUM_BYTES);
        for (len, max) in [(bytes as u64, max as u64), (posted.len.into(), self.limits.reply_bytes.into())] {
            if len > max {
                return Err(FabricError::TooLong { len, max });
            }
        }
        Ok(())
    }

    fn check(&self, posted: &PostedVerb) -> Result<(), FabricError> {
        let PostedVerb { offset, len, area, verb, stride, .. } = *posted;
        let area_len = self.area_len(area).ok_or(FabricError::NoSuchArea { area })?;
        if verb != Verb::Read && area == REGION {
            return Err(FabricError::AccessDenied { area });
        }
        if verb == Verb::CompareSwap && !offset.is_multiple_of(8) {
            return Err(FabricError::Misaligned { area, offset });
        }
        if offset > area_len || u64::from(len) > area_len - offset {
            return Err(FabricError::OutOfBounds { area, offset, len: len.into(), area_len });
        }
        let (longest, max) = (u64::from(stride) * 8, u64::from(self.limits.reply_bytes));
        if stride > MAX_STRIDE || longest > max {
            return Err(FabricError::TooLong { len: longest, max });
        }
        Ok(())
    }

    /// Whether a word can be looked at.
    pub(super) fn check_word(&self, at: RemoteAddr) -> Result<(), FabricError> {
        let RemoteAddr { area, offset } = at;
        let area_len = self.area_len(area).ok_or(FabricError::NoSuchArea { area })?;
        if !offset.is_multiple_of(8) {
            return Err(FabricError::Misaligned { area, offset });
        }
        if offset > area_len || area_len - offset < 8 {
            return Err(FabricError::OutOfBounds { area, offset, len: 8, area_len });
        }
        Ok(())
    }
}
