//! Requests to the memory node's service over the socket that a connection came with.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::{
    CALL_BYTES, DAMAGED, HEAD_BYTES, Kind, Limits, REPLY_TOO_LONG, ReplyHead, RequestHead, SERVED, checksum,
    padding,
};
use super::silence::SilenceTimer;
use super::socket::{Moved, Ready, wait};
use super::stream::Stream;
use crate::bell::Bell;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::mapped::Link;
use crate::meter::Meter;
use crate::spin::Spin;
use crate::turns::Calls;
use crate::verbs::Tally;

/// Bytes that are received at once.
const INPUT: usize = 16 << 10;
/// How often something is received before the clock is looked at.
const READS: usize = 4;
/// Buffers above this size are given back after a reply.
const KEEP: usize = 4 << 20;

/// The part of its patience that a wait lasts before it notes that nothing has come.
const NOTED_AFTER: u32 = 4;
/// How many times as long as its patience a call waits where other sockets hear of the memory node:
/// one whose disk stands still answers no writes, and READs all the same.
const ALONE: u32 = 6;

/// Sends requests, one at a time, and takes their replies. The memory node answers in order:
/// replies to requests that were given up come first and are dropped.
#[derive(Debug)]
pub(super) struct Caller {
    stream: Stream<Bell>,
    link: Arc<Link>,
    silence: Arc<SilenceTimer>,
    /// How long requests were waited for since something came over this socket, and when that was
    /// last looked at.
    waited: (Duration, Instant),
    limits: Limits,
    spin: Spin,
    meter: Arc<Meter>,
    /// Where bytes land; those of the range are to be looked at.
    landing: Box<[u8]>,
    landed: Range<usize>,
    body: Vec<u8>,
    /// Whether the last look ended before all was received that was there.
    is_cut_short: bool,
    /// The reply whose body is arriving, and bytes of it and of its padding that are to come.
    arriving: Option<(ReplyHead, usize)>,
    /// Requests sent, and replies that have come.
    posted: u32,
    answered: u32,
}

impl Caller {
    pub(super) fn new(
        (stream, link, silence): (Stream<Bell>, Arc<Link>, Arc<SilenceTimer>),
        limits: Limits,
        spin: Duration,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            stream,
            link,
            silence,
            waited: (Duration::ZERO, Instant::now()),
            limits,
            spin: Spin::new(spin),
            meter,
            landing: vec![0; INPUT].into_boxed_slice(),
            landed: 0..0,
            body: Vec::new(),
            is_cut_short: false,
            arriving: None,
            posted: 0,
            answered: 0,
        }
    }

    #[cold]
    fn lose(&self) -> FabricError {
        self.link.cut();
        self.link.disconnected()
    }

    /// When a wait that begins now is to be noted.
    fn noted_at(&self) -> Deadline {
        Deadline::after(self.silence.patience() / NOTED_AFTER)
    }

    /// Notes a wait in vain, and says whether the memory node counts as gone.
    fn note_silence(&mut self, from: Instant) -> bool {
        let now = Instant::now();
        let (waited, looked_at) = self.waited;
        // Bytes may have come while a wait went on.
        let from = from.max(looked_at);
        let waited = waited + now.saturating_duration_since(from);
        self.waited = (waited, now);
        self.silence.waited(from, now) || waited >= self.silence.patience().saturating_mul(ALONE)
    }

    /// What was given up fills the socket, so that nothing more is sent over it, nor waited for.
    #[cold]
    fn crowded(&mut self) -> FabricError {
        let (_, looked_at) = self.waited;
        let now = Instant::now();
        let longest = self.silence.patience() / NOTED_AFTER;
        let from = now.checked_sub(longest).map_or(looked_at, |earliest| earliest.max(looked_at));
        if self.note_silence(from) { self.lose() } else { FabricError::Crowded }
    }

    fn push_out(&mut self) -> Result<(), FabricError> {
        if self.stream.push_out() == Moved::Gone {
            return Err(self.lose());
        }
        self.stream.shrink_queue(KEEP);
        Ok(())
    }

    /// Receives what is there, or some of it if it is much, and gives the head of the last
    /// request's reply once all of it is. A memory node that has hung up may have answered before:
    /// what it sent is still there.
    fn advance(&mut self) -> Result<Option<ReplyHead>, FabricError> {
        if self.link.is_inherited() {
            return Err(self.link.disconnected());
        }
        let is_lost = !self.link.is_alive() || self.push_out().is_err();
        // Only replies that were asked for come, so that much is not for ever.
        let reads = if is_lost { usize::MAX } else { READS };
        match self.receive(reads)? {
            None if is_lost => Err(self.lose()),
            received => Ok(received),
        }
    }

    /// As [`advance`](Self::advance), of bytes that have come.
    fn receive(&mut self, mut reads: usize) -> Result<Option<ReplyHead>, FabricError> {
        self.is_cut_short = false;
        loop {
            while let Some(head) = self.digest()? {
                self.answered = self.answered.wrapping_add(1);
                if self.answered == self.posted {
                    return Ok(Some(head));
                }
            }
            if reads == 0 {
                self.is_cut_short = true;
                return Ok(None);
            }
            reads -= 1;
            // A part of a head at most: it is to be in one piece.
            self.landing.copy_within(self.landed.clone(), 0);
            self.landed = 0..self.landed.len();
            match self.stream.receive(&mut self.landing[self.landed.end..]) {
                Moved::Bytes(bytes) => {
                    self.landed.end += bytes;
                    self.waited = (Duration::ZERO, Instant::now());
                    self.silence.note_received();
                }
                Moved::Nothing => return Ok(None),
                Moved::Gone => return Err(self.lose()),
            }
        }
    }

    /// Takes what has been received; the head of a reply that is complete.
    fn digest(&mut self) -> Result<Option<ReplyHead>, FabricError> {
        if self.arriving.is_none() {
            let landed = &self.landing[self.landed.clone()];
            let Some(head) = landed.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let head = ReplyHead::decode(head);
            let is_asked_for = self.answered != self.posted && head.tag == self.answered as u16;
            if !is_asked_for || head.bytes > self.limits.call_reply {
                return Err(self.damaged());
            }
            self.landed.start += HEAD_BYTES;
            self.body.clear();
            let bytes = head.bytes as usize;
            self.arriving = Some((head, bytes + padding(bytes)));
        }
        let Some((head, left)) = &mut self.arriving else { return Ok(None) };
        let more = (*left).min(self.landed.len());
        self.body.extend_from_slice(&self.landing[self.landed.start..][..more]);
        self.landed.start += more;
        *left -= more;
        if *left > 0 {
            return Ok(None);
        }
        let head = *head;
        self.arriving = None;
        self.body.truncate(head.bytes as usize);
        Ok(Some(head))
    }

    #[cold]
    fn damaged(&self) -> FabricError {
        // What follows cannot be told apart any more.
        self.link.cut();
        FabricError::DamagedReply { peer: Arc::clone(self.link.peer()) }
    }

    /// Hands over a reply that has come.
    fn take(&mut self, head: ReplyHead, reply: &mut Vec<u8>) -> Result<(), FabricError> {
        self.meter.record(&Tally { reads: 1, bytes_from: head.bytes.into(), ..Tally::default() });
        match head.status {
            SERVED if checksum(&self.body) == head.word => {
                std::mem::swap(reply, &mut self.body);
                self.body.clear();
                self.body.shrink_to(KEEP);
                Ok(())
            }
            REPLY_TOO_LONG => {
                Err(FabricError::ReplyTooLong { len: head.word, max: self.limits.call_reply.into() })
            }
            DAMAGED => Err(FabricError::DamagedRequest),
            _ => Err(self.damaged()),
        }
    }
}

impl Calls for Caller {
    fn post(&mut self, request: &[u8]) -> Result<u32, FabricError> {
        if request.len() > self.limits.call_request as usize {
            let (len, max) = (request.len() as u64, self.limits.call_request.into());
            return Err(FabricError::RequestTooLong { len, max });
        }
        if !self.link.is_alive() {
            return Err(self.link.disconnected());
        }
        self.push_out()?;
        if self.stream.queued() > self.limits.call_request as usize {
            // The memory node has not yet taken what was given up.
            return Err(self.crowded());
        }
        // Within the limit, which leaves room.
        let bytes = (request.len() + CALL_BYTES) as u32;
        let head = RequestHead { bytes, entries: 0, tag: self.posted as u16, kind: Kind::Call };
        let queue = self.stream.queue();
        queue.extend_from_slice(&head.encode());
        queue.extend_from_slice(&checksum(request).to_le_bytes());
        queue.extend_from_slice(request);
        self.posted = self.posted.wrapping_add(1);
        self.meter.record(&Tally { writes: 1, bytes_to: request.len() as u64, ..Tally::default() });
        self.push_out()?;
        Ok(self.posted)
    }

    fn poll(&mut self, reply: &mut Vec<u8>) -> Result<bool, FabricError> {
        reply.clear();
        match self.advance()? {
            Some(head) => self.take(head, reply).map(|()| true),
            None => Ok(false),
        }
    }

    fn clear_up(&mut self) -> bool {
        let is_left = |caller: &Self| caller.answered != caller.posted || caller.stream.is_unsent();
        // A fault has cut the link, and then nothing is left. A reply that is complete had a poster
        // who has gone.
        is_left(self) && self.advance().is_ok() && is_left(self)
    }

    fn wait(&mut self, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        if self.poll(reply)? {
            return Ok(());
        }
        let spin = Deadline::after(self.spin.budget()).earlier(deadline);
        while !spin.has_passed(Instant::now()) {
            if self.poll(reply)? {
                self.spin.note_success();
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.spin.note_failure();
        let mut from = Instant::now();
        loop {
            let until = self.noted_at().earlier(deadline);
            // What was decrypted and not taken is not announced.
            let ready = match self.is_cut_short {
                true => Ready::Try,
                false => wait(&self.stream, self.stream.is_unsent(), until),
            };
            if self.poll(reply)? {
                return Ok(());
            }
            let now = Instant::now();
            let mut is_lost = false;
            if ready == Ready::TimedOut {
                is_lost = self.note_silence(from);
                from = now;
            }
            let lost = is_lost.then(|| self.lose());
            // Also of a memory node from which more and more comes.
            if deadline.has_passed(now) {
                return Err(FabricError::DeadlinePassed { waiting_for: "the memory node's reply" });
            }
            lost.map_or(Ok(()), Err)?;
        }
    }
}

#[cfg(test)]
mod tests;
