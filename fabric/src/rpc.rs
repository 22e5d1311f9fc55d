//! The client's side of the request ring, over verbs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bell::{Bell, Woken};
use crate::clock::{Clock, Deadline};
use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::mapped::{self, Link};
use crate::ring::{
    BODIES, CLIENT_SLEEPS, DAMAGED, REPLY_CHECKSUM, REPLY_TAG, REPLY_TOO_LONG, REQUEST_CHECKSUM, REQUEST_TAG,
    RingLayout, SERVED, SERVER_SLEEPS, at, checksum, len_of, sequence_of, tag,
};
use crate::spin::Spin;
use crate::verbs::Batch;

/// How long a caller spins for its reply before it sleeps, while that pays off: a quick service answers within. No longer than
/// `wait_changed` spins, whose naps take several times what they are asked for.
const SPIN: Duration = mapped::SPIN;

/// Sends requests through one ring, one at a time.
#[derive(Debug)]
pub(crate) struct Caller<E> {
    endpoint: E,
    bell: Bell,
    link: Arc<Link>,
    layout: RingLayout,
    clock: Arc<dyn Clock>,
    batch: Batch,
    sequence: u32,
    seen: u64,
    spin: Spin,
}

impl<E: Endpoint> Caller<E> {
    pub(crate) fn new(
        endpoint: E,
        bell: Bell,
        link: Arc<Link>,
        layout: RingLayout,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (batch, spin) = (Batch::new(), Spin::new(SPIN));
        Self { endpoint, bell, link, layout, clock, batch, sequence: 0, seen: 0, spin }
    }

    pub(crate) fn call(
        &mut self,
        request: &[u8],
        reply: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), FabricError> {
        reply.clear();
        if request.len() > self.layout.request_capacity() {
            let (len, max) = (request.len() as u64, self.layout.request_capacity() as u64);
            return Err(FabricError::RequestTooLong { len, max });
        }
        self.send(request)?;
        let answered = self.await_reply(deadline)?;
        self.fetch(answered, reply)
    }

    fn send(&mut self, request: &[u8]) -> Result<(), FabricError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let tag = tag(self.sequence, request.len());
        self.batch.clear();
        if !request.is_empty() {
            self.batch.write(at(BODIES), request);
        }
        self.batch.write(at(REQUEST_CHECKSUM), &checksum(tag, request).to_le_bytes());
        self.batch.write(at(REQUEST_TAG), &tag.to_le_bytes());
        self.endpoint.run(&mut self.batch)?;
        let mut sleeps = [0];
        self.endpoint.read_words(at(SERVER_SLEEPS), &mut sleeps)?;
        if sleeps != [0] {
            self.bell.ring();
        }
        Ok(())
    }

    /// Spins for the reply's tag, then sleeps for it.
    fn await_reply(&mut self, deadline: Deadline) -> Result<u64, FabricError> {
        let spin = Deadline::after_on(&*self.clock, self.spin.budget()).earlier(deadline);
        loop {
            match self.endpoint.wait_changed(at(REPLY_TAG), self.seen, spin) {
                Ok(tag) => {
                    self.seen = tag;
                    if sequence_of(tag) == self.sequence {
                        self.spin.paid_off();
                        return Ok(tag);
                    }
                }
                Err(FabricError::DeadlinePassed { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.spin.was_in_vain();
        self.set_sleeping(1)?;
        let outcome = self.sleep_for_reply(deadline);
        // Also after an error: a word left at 1 would cost the memory node a system call per reply.
        let cleared = self.set_sleeping(0);
        let tag = outcome?;
        cleared?;
        Ok(tag)
    }

    fn sleep_for_reply(&mut self, deadline: Deadline) -> Result<u64, FabricError> {
        loop {
            self.batch.clear();
            let landing = self.batch.read(at(REPLY_TAG), 8);
            self.endpoint.run(&mut self.batch)?;
            let tag = self.batch.u64(landing);
            self.seen = tag;
            if sequence_of(tag) == self.sequence {
                return Ok(tag);
            }
            match self.bell.wait(deadline) {
                Woken::Rung => {}
                Woken::HungUp => {
                    self.link.cut();
                    return Err(self.link.disconnected());
                }
                Woken::TimedOut => {
                    return Err(FabricError::DeadlinePassed { waiting_for: "the memory node's reply" });
                }
            }
        }
    }

    fn set_sleeping(&mut self, value: u64) -> Result<(), FabricError> {
        self.batch.clear();
        self.batch.write(at(CLIENT_SLEEPS), &value.to_le_bytes());
        self.endpoint.run(&mut self.batch)
    }

    fn fetch(&mut self, tag: u64, reply: &mut Vec<u8>) -> Result<(), FabricError> {
        let (len, max) = (len_of(tag), self.layout.reply_capacity());
        self.batch.clear();
        let head = self.batch.read(at(REPLY_CHECKSUM), 16);
        let body = self.batch.read(at(self.layout.reply_body()), len.min(max));
        self.endpoint.run(&mut self.batch)?;
        let &[sum, status] = self.batch.words(head) else {
            return Err(self.damaged());
        };
        match status {
            SERVED if len <= max => {}
            DAMAGED => return Err(FabricError::DamagedRequest),
            REPLY_TOO_LONG => return Err(FabricError::ReplyTooLong { len: len as u64, max: max as u64 }),
            _ => return Err(self.damaged()),
        }
        let bytes = self.batch.bytes(body);
        if checksum(tag, bytes) != sum {
            return Err(self.damaged());
        }
        reply.extend_from_slice(bytes);
        Ok(())
    }

    fn damaged(&self) -> FabricError {
        FabricError::DamagedReply { peer: Arc::clone(self.link.peer()) }
    }
}

/// A [`Caller`] that the threads of a connection take turns with. Waiting for one's turn ends with the deadline, which
/// a plain mutex could not do.
#[derive(Debug)]
pub(crate) struct SharedCaller<E> {
    free: Mutex<Option<Caller<E>>>,
    freed: Condvar,
}

impl<E: Endpoint> SharedCaller<E> {
    pub(crate) fn new(caller: Caller<E>) -> Self {
        Self { free: Mutex::new(Some(caller)), freed: Condvar::new() }
    }

    pub(crate) fn call(
        &self,
        request: &[u8],
        reply: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), FabricError> {
        let mut turn = self.take(deadline)?;
        match &mut turn.caller {
            Some(caller) => caller.call(request, reply, deadline),
            // `take` returns only with a caller.
            None => Err(FabricError::Crowded),
        }
    }

    fn take(&self, deadline: Deadline) -> Result<Turn<'_, E>, FabricError> {
        let mut free = self.lock();
        loop {
            if let Some(caller) = free.take() {
                return Ok(Turn { shared: self, caller: Some(caller) });
            }
            let left = deadline.remaining(Instant::now());
            if left == Some(Duration::ZERO) {
                return Err(FabricError::Crowded);
            }
            // An hour is as good as for ever: the loop looks again.
            let left = left.unwrap_or(Duration::from_secs(3600));
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Caller<E>>> {
        // The lock is only held to take the caller out or put it back.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's turn; gives the caller back when dropped, also by a panic: a call that was cut short left at worst an
/// unanswered sequence behind, which the next call ignores.
struct Turn<'s, E: Endpoint> {
    shared: &'s SharedCaller<E>,
    caller: Option<Caller<E>>,
}

impl<E: Endpoint> Drop for Turn<'_, E> {
    fn drop(&mut self) {
        *self.shared.lock() = self.caller.take();
        self.shared.freed.notify_one();
    }
}
