//! A slot of a client: the request in hand, and the results that lie there or are kept.

use std::collections::VecDeque;
use std::time::Instant;

use fpcache_fabric::{AccessError, Handled, NodeMemory};

use super::received::Received;
use crate::layout::{HEAD, Shape};
use crate::messages::HERE;
use crate::mode::Mode;

/// A request that was taken and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct InHand {
    pub(super) sequence: u32,
    pub(super) since: Instant,
    /// Whether a client waits for the reply to a message.
    pub(super) awaited: bool,
    pub(super) mode: Mode,
}

/// A result that is too long for the buffers, with the number of its entry.
pub(super) type LongResult = (u16, Vec<u8>);

#[derive(Debug)]
pub(super) struct Slot {
    /// When it was last seen that no new request lies here.
    pub(super) looked: Instant,
    /// The last first word that was looked at, and how often.
    pub(super) seen: u64,
    pub(super) looks: u32,
    pub(super) taken: u32,
    pub(super) in_hand: Option<InHand>,
    /// A request that came while one was in hand.
    pub(super) next: Option<Received>,
    /// The sequence whose results lie in the buffers.
    pub(super) answered: Option<u32>,
    /// Its further result batches, and how many are out.
    pub(super) rest: VecDeque<Vec<u8>>,
    pub(super) out: u32,
    /// Its results that are too long for the buffers, by entry.
    pub(super) long: Vec<LongResult>,
    /// The last results that went by message.
    pub(super) kept: Option<(u32, Vec<u8>)>,
}

impl Slot {
    /// One whose next request has a newer sequence than `taken`.
    pub(super) fn new(taken: u32, now: Instant) -> Self {
        Self {
            looked: now,
            seen: 0,
            looks: 0,
            taken,
            in_hand: None,
            next: None,
            answered: None,
            rest: VecDeque::new(),
            out: 0,
            long: Vec::new(),
            kept: None,
        }
    }

    /// A request was taken: what is left of the one before is of no use. Its response time counts
    /// from the last look that did not find it, because a client that fetches waits for the look as
    /// well; of a message it is what a WRITE in its place would have waited.
    pub(super) fn begin(&mut self, sequence: u32, mode: Mode, awaited: bool) {
        (self.taken, self.answered, self.kept) = (sequence, None, None);
        self.rest.clear();
        self.long = Vec::new();
        self.in_hand = Some(InHand { sequence, since: self.looked, awaited, mode });
    }

    /// Leaves result batches to be fetched, as many as there are buffers for.
    pub(super) fn put<M: NodeMemory>(
        &mut self,
        memory: &M,
        shape: Shape,
        base: u64,
        number: u16,
        batches: Vec<Vec<u8>>,
        sequence: u32,
    ) -> Result<(), AccessError> {
        (self.answered, self.out, self.rest) = (Some(sequence), 0, batches.into());
        self.go_on(memory, shape, base, number, 0)
    }

    /// Stores the batches for which there are buffers, `acknowledged` being what the client says
    /// that it has fetched.
    pub(super) fn go_on<M: NodeMemory>(
        &mut self,
        memory: &M,
        shape: Shape,
        base: u64,
        number: u16,
        acknowledged: u64,
    ) -> Result<(), AccessError> {
        let is_ours = self.answered == Some((acknowledged >> 32) as u32);
        // No more than are out can have been fetched.
        let fetched = if is_ours { (acknowledged as u32).min(self.out) } else { 0 };
        while self.out - fetched < u32::from(shape.parts)
            && let Some(batch) = self.rest.pop_front()
        {
            let at = base + shape.result(number, self.out);
            let (head, payload) = batch.split_at(HEAD);
            memory.write_bytes(at + HEAD as u64, payload)?;
            memory.write_bytes(at + 8, &head[8..])?;
            let mut first = [0; 8];
            first.copy_from_slice(&head[..8]);
            memory.store_release(at, u64::from_le_bytes(first))?;
            self.out += 1;
        }
        Ok(())
    }
}

/// The reply that a batch had before.
pub(super) fn kept(slot: &Slot, sequence: u32, reply: &mut Vec<u8>) -> Option<Handled> {
    let (_, bytes) = slot.kept.as_ref().filter(|(of, _)| *of == sequence)?;
    reply.push(HERE);
    reply.extend_from_slice(bytes);
    Some(Handled::Now)
}
