//! The client's end of a socket that batches go over.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use zerocopy::IntoBytes;

use super::encode::{Encoded, Encoder};
use super::frame::{DAMAGED, HEAD_BYTES, Limits, NOT_ANSWERED, ReplyHead, SERVED, checksum};
use super::socket::Moved;
use super::stream::Stream;
use crate::endpoint::Ticket;
use crate::error::FabricError;
use crate::verbs::{Batch, Verb};

/// Bytes that are received at once, unless they can go where they land.
const INPUT: usize = 64 << 10;
/// If this many bytes or more are still to come, they are received where they land.
const DIRECT: usize = 16 << 10;

/// When a batch was put on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendTime {
    pub(super) at: Instant,
    /// Whether it takes as long as a round trip: it is short and waited for, and nothing was under
    /// way before it. Others take no less.
    pub(super) is_trip: bool,
}

/// A batch under way.
#[derive(Debug)]
struct Flight {
    /// `None` of one that is waited for.
    ticket: Option<Ticket>,
    batch: Batch,
    sent: SendTime,
    /// Replies that are still to come.
    frames: u32,
    /// Words that have landed, and that are to.
    words: usize,
    total: usize,
    /// Where they land if the batch changes memory, until all are there.
    gathered: Option<Vec<u64>>,
    /// Requests that were sent, and why the next one was not.
    requests: usize,
    error: Option<FabricError>,
    /// The checksum of the answer, if the batch is a question and has one.
    sum: Option<u64>,
}

/// A batch that is back.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) ticket: Option<Ticket>,
    pub(super) batch: Batch,
    pub(super) sent: SendTime,
    pub(super) result: Result<(), FabricError>,
}

/// The memory node broke the protocol or is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// A socket and what is under way over it.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Stream,
    encoder: Encoder,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    flights: VecDeque<Flight>,
    /// Words of the present reply that are still to come.
    left: Option<usize>,
    /// The tag of the next reply.
    tag: u16,
    /// Whether the last look ended before all was received that was there.
    pub(super) is_cut_short: bool,
    /// The watched word, by the newest reply.
    pub(super) watched: Option<u64>,
    /// Whether a reply has said that questions are not answered.
    pub(super) is_unanswered: bool,
}

impl Channel {
    pub(super) fn new(stream: Stream, limits: Limits) -> Self {
        Self {
            stream,
            encoder: Encoder::new(limits),
            input: vec![0; INPUT].into_boxed_slice(),
            start: 0,
            end: 0,
            flights: VecDeque::new(),
            left: None,
            tag: 0,
            is_cut_short: false,
            watched: None,
            is_unanswered: false,
        }
    }

    /// Whether nothing is under way, so that another endpoint can go on with it.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && !self.is_unsent() && self.start == self.end
    }

    /// Batches under way.
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn is_unsent(&self) -> bool {
        self.stream.is_unsent()
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Puts a batch on its way. `error` says which request cannot be executed, and why: those
    /// before it are sent.
    pub(super) fn submit(
        &mut self,
        ticket: Option<Ticket>,
        batch: Batch,
        error: Option<(usize, FabricError)>,
        sent: SendTime,
    ) {
        let requests = error.as_ref().map_or(batch.len(), |(at, _)| *at);
        let Encoded { frames, words } = match requests {
            0 if error.is_some() => Encoded { frames: 0, words: 0 },
            _ => self.encoder.encode(&batch, requests, self.stream.queue()),
        };
        let gathered = (batch.tally.changes() > 0).then(Vec::new);
        let error = error.map(|(_, error)| error);
        self.flights.push_back(Flight {
            ticket,
            batch,
            sent,
            frames,
            words: 0,
            total: words,
            gathered,
            requests,
            error,
            sum: None,
        });
    }

    /// Moves what can be moved, but receives so often at most; hands over what has come back, and
    /// says whether anything moved.
    pub(super) fn progress(
        &mut self,
        mut reads: usize,
        landed: &mut impl FnMut(Landed),
    ) -> Result<bool, Broken> {
        let mut moved = self.push_out()?;
        self.land_whole(landed)?;
        self.is_cut_short = false;
        while !self.flights.is_empty() {
            if reads == 0 {
                self.is_cut_short = true;
                break;
            }
            reads -= 1;
            let (received, is_direct) = match direct(self.left, self.start == self.end, &mut self.flights) {
                Some(place) => (self.stream.receive(place), true),
                None => {
                    self.make_room();
                    (self.stream.receive(&mut self.input[self.end..]), false)
                }
            };
            match received {
                Moved::Nothing => break,
                Moved::Gone => return Err(Broken),
                Moved::Bytes(bytes) if is_direct => {
                    self.landed_directly(bytes)?;
                    moved = true;
                }
                Moved::Bytes(bytes) => {
                    self.end += bytes;
                    moved = true;
                }
            }
            let was_full = is_direct || self.end == self.input.len();
            self.digest()?;
            self.land_whole(landed)?;
            if !was_full {
                break;
            }
        }
        // What came may have been what the socket's other direction waited for.
        Ok(self.push_out()? || moved)
    }

    /// Everything that is under way, which will not come back.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = (Option<Ticket>, Batch)> {
        self.flights.drain(..).map(|flight| (flight.ticket, flight.batch))
    }

    fn push_out(&mut self) -> Result<bool, Broken> {
        match self.stream.push_out() {
            Moved::Gone => Err(Broken),
            pushed => Ok(pushed != Moved::Nothing),
        }
    }

    fn make_room(&mut self) {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// Counts bytes that were received where they land. The last ones, if they are no whole word,
    /// go through the input.
    fn landed_directly(&mut self, bytes: usize) -> Result<(), Broken> {
        let (words, odd) = (bytes / 8, bytes % 8);
        let flight = self.flights.front_mut().ok_or(Broken)?;
        let left = self.left.ok_or(Broken)?;
        if odd > 0 {
            let place = flight.place(left).ok_or(Broken)?;
            let tail = &place.as_bytes()[words * 8..words * 8 + odd];
            self.input[..odd].copy_from_slice(tail);
            (self.start, self.end) = (0, odd);
        }
        flight.words += words;
        self.left = Some(left - words);
        Ok(())
    }

    /// Takes what has been received: heads, and words to where they land.
    fn digest(&mut self) -> Result<(), Broken> {
        loop {
            if let Some(left) = self.left {
                let flight = self.flights.front_mut().ok_or(Broken)?;
                let words = left.min((self.end - self.start) / 8);
                if words > 0 {
                    let place = flight.place(left).ok_or(Broken)?;
                    let bytes = words * 8;
                    place.as_mut_bytes()[..bytes]
                        .copy_from_slice(&self.input[self.start..self.start + bytes]);
                    self.start += bytes;
                    flight.words += words;
                }
                if words < left {
                    self.left = Some(left - words);
                    return Ok(());
                }
                self.left = None;
                flight.frames -= 1;
                if flight.frames > 0 {
                    continue;
                }
                // Handed over by the caller, so that the next reply finds its batch.
                return Ok(());
            }
            if self.flights.front().is_none_or(|flight| flight.frames == 0) {
                return Ok(());
            }
            let Some(head) = self.input[self.start..self.end].first_chunk::<HEAD_BYTES>() else {
                return Ok(());
            };
            let head = ReplyHead::decode(head);
            let (flight, words) = (self.flights.front().ok_or(Broken)?, head.bytes as usize / 8);
            let fits = head.bytes.is_multiple_of(8) && words <= flight.total - flight.words;
            let is_question = flight.batch.question.is_some();
            let is_refusal = is_question && matches!(head.status, NOT_ANSWERED | DAMAGED) && words == 0;
            if head.tag != self.tag || !fits || (head.status != SERVED && !is_refusal) {
                return Err(Broken);
            }
            self.start += HEAD_BYTES;
            self.tag = self.tag.wrapping_add(1);
            if is_question {
                self.is_unanswered |= head.status == NOT_ANSWERED;
                if let Some(flight) = self.flights.front_mut() {
                    (flight.total, flight.sum) = (words, (head.status == SERVED).then_some(head.word));
                }
            } else {
                self.watched = Some(head.word);
            }
            self.left = Some(words);
        }
    }

    /// Hands over batches that are back, and digests what lies after them.
    fn land_whole(&mut self, landed: &mut impl FnMut(Landed)) -> Result<(), Broken> {
        while self.flights.front().is_some_and(|flight| flight.frames == 0) {
            let Some(flight) = self.flights.pop_front() else { break };
            landed(flight.land()?);
            self.digest()?;
        }
        if self.flights.is_empty() && (self.start != self.end || self.left.is_some()) {
            // Nothing was asked for that this could be.
            return Err(Broken);
        }
        Ok(())
    }
}

/// Where the rest of a reply may go straight; `None` if it is short, or part of it was received
/// otherwise.
fn direct(left: Option<usize>, is_empty: bool, flights: &mut VecDeque<Flight>) -> Option<&mut [u8]> {
    let left = left.filter(|left| is_empty && left * 8 >= DIRECT)?;
    Some(flights.front_mut()?.place(left)?.as_mut_bytes())
}

impl Flight {
    /// Where the next `words` words land.
    fn place(&mut self, words: usize) -> Option<&mut [u64]> {
        let end = self.words.checked_add(words).filter(|end| *end <= self.total)?;
        let buffer = match &mut self.gathered {
            None => &mut self.batch.buffer,
            Some(gathered) => {
                if gathered.len() < self.total {
                    gathered.resize(self.total, 0);
                }
                gathered
            }
        };
        buffer.get_mut(self.words..end)
    }

    /// The batch with what landed.
    fn land(mut self) -> Result<Landed, Broken> {
        if self.words != self.total {
            return Err(Broken);
        }
        let Batch { requests, buffer, tally, question, .. } = &mut self.batch;
        // A batch that was refused comes back as it was.
        if question.is_some() && self.requests > 0 {
            tally.bytes_from = self.words as u64 * 8;
            let (reply, rest) = buffer.split_at_mut(self.words);
            // A damaged one is none: its checksum is not that of the connection, which is weak.
            if self.sum != Some(checksum(reply.as_bytes())) {
                reply.fill(0);
            }
            // A batch that is run again has what landed before.
            let room = requests.first().map_or(0, |posted| posted.len as usize / 8);
            rest[..room.saturating_sub(self.words)].fill(0);
        }
        let mut words = self.gathered.iter().flatten().copied();
        for posted in requests.iter().take(self.requests).filter(|_| self.gathered.is_some()) {
            let count = match posted.verb {
                Verb::Read => (posted.len as usize).div_ceil(8),
                Verb::Write => 0,
                Verb::CompareSwap => 1,
            };
            let start = posted.word as usize;
            for (out, word) in buffer[start..start + count].iter_mut().zip(&mut words) {
                *out = word;
            }
        }
        let result = self.error.map_or(Ok(()), Err);
        Ok(Landed { ticket: self.ticket, batch: self.batch, sent: self.sent, result })
    }
}
