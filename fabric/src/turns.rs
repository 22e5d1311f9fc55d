//! Turns of a connection's threads at its one way of calling the memory node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Deadline;
use crate::connection::Posted;
use crate::error::FabricError;
use crate::lock::lock;

/// Sends requests over one way, one at a time.
pub(crate) trait Calls {
    /// Sends a request and returns its number; one that was sent before is given up.
    fn post(&mut self, request: &[u8]) -> Result<u32, FabricError>;
    /// Takes the reply to the last request if it is there.
    fn poll(&mut self, reply: &mut Vec<u8>) -> Result<bool, FabricError>;
    /// Waits for the reply to the last request and takes it.
    fn wait(&mut self, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError>;
    /// Moves what can be moved of requests that were given up, and says whether more is under way.
    fn clear_up(&mut self) -> bool {
        false
    }
}

/// A way of calling that the threads of a connection take turns with: a turn lasts from a request
/// to its reply. Waiting for one's turn ends with the deadline, which a plain mutex could not do.
#[derive(Debug)]
pub(crate) struct SharedCaller<C> {
    state: Mutex<CallerState<C>>,
    freed: Condvar,
    /// Whether requests that were given up are under way.
    is_left: AtomicBool,
}

#[derive(Debug)]
struct CallerState<C> {
    /// `None` while a thread waits for its reply.
    caller: Option<Box<C>>,
    /// The request whose poster has not taken the reply yet.
    posted: Option<u32>,
    /// Threads that wait for their turn; without one no wake-up is sent, which is a system call.
    waiting: usize,
}

impl<C: Calls> SharedCaller<C> {
    pub(crate) fn new(caller: C) -> Self {
        let shared = CallerState { caller: Some(Box::new(caller)), posted: None, waiting: 0 };
        Self { state: Mutex::new(shared), freed: Condvar::new(), is_left: AtomicBool::new(false) }
    }

    /// Sends a request; its turn lasts until [`wait`](Self::wait) or [`give_up`](Self::give_up).
    pub(crate) fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError> {
        let mut state = lock(&self.state);
        loop {
            if let CallerState { caller: Some(caller), posted: posted @ None, .. } = &mut *state {
                // Sending does not wait, so the lock may be held.
                return match caller.post(request) {
                    Ok(number) => {
                        *posted = Some(number);
                        Ok(Posted::new(u64::from(number)))
                    }
                    // No turn was taken, and the next waiter may have been passed over for it.
                    Err(error) => {
                        self.end(state);
                        Err(error)
                    }
                };
            }
            state = self.sleep(state, deadline)?;
        }
    }

    /// Takes the reply to a posted request, which ends its turn, or gives the request back.
    pub(crate) fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        let mut state = lock(&self.state);
        let CallerState { caller: Some(caller), posted: Some(number), .. } = &mut *state else {
            return Err(FabricError::NotPosted);
        };
        if !posted.is(*number) {
            return Err(FabricError::NotPosted);
        }
        let polled = caller.poll(reply);
        if matches!(polled, Ok(false)) {
            return Ok(Some(posted));
        }
        self.end(state);
        polled.map(|_| None)
    }

    /// Waits for the reply to a request that was posted; its turn ends, however that goes.
    pub(crate) fn wait(
        &self,
        posted: Posted,
        reply: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<(), FabricError> {
        let mut turn = self.resume(&posted)?;
        match &mut turn.caller {
            Some(caller) => caller.wait(reply, deadline),
            // `resume` returns only with a caller.
            None => Err(FabricError::Crowded),
        }
    }

    /// Ends the turn of a request that was posted.
    pub(crate) fn give_up(&self, posted: &Posted) {
        drop(self.resume(posted));
    }

    /// Moves what is under way of requests that were given up, unless a thread has its turn. The
    /// memory node hangs up on a client that takes no reply, though it may never call again. Costs
    /// a load if there is nothing.
    #[inline]
    pub(crate) fn clear_up(&self) {
        if self.is_left.load(Ordering::Relaxed) {
            self.move_left();
        }
    }

    #[cold]
    fn move_left(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if let CallerState { caller: Some(caller), posted: None, .. } = &mut *state {
            self.is_left.store(caller.clear_up(), Ordering::Relaxed);
        }
    }

    /// Takes the caller out for the poster of the request.
    fn resume(&self, posted: &Posted) -> Result<Turn<'_, C>, FabricError> {
        let mut state = lock(&self.state);
        if !state.posted.is_some_and(|number| posted.is(number)) {
            return Err(FabricError::NotPosted);
        }
        // Put back by the turn's end, also after a panic.
        Ok(Turn { shared: self, caller: state.caller.take() })
    }

    /// Waits until a turn ends.
    fn sleep<'s>(
        &self,
        mut state: MutexGuard<'s, CallerState<C>>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'s, CallerState<C>>, FabricError> {
        let left = deadline.remaining(Instant::now());
        if left == Some(Duration::ZERO) {
            return Err(FabricError::Crowded);
        }
        // An hour is as good as for ever: the caller looks again.
        let left = left.unwrap_or(Duration::from_secs(3600));
        state.waiting += 1;
        state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        Ok(state)
    }

    /// Ends the turn of what was posted.
    fn end(&self, mut state: MutexGuard<'_, CallerState<C>>) {
        state.posted = None;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.freed.notify_one();
        }
    }
}

/// The end of one thread's turn; gives the caller back when dropped, also by a panic: a call that
/// was cut short leaves at worst an unanswered sequence, which the next call ignores.
struct Turn<'s, C: Calls> {
    shared: &'s SharedCaller<C>,
    caller: Option<Box<C>>,
}

impl<C: Calls> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        // Stored before another turn can begin.
        let is_left = self.caller.as_mut().is_some_and(|caller| caller.clear_up());
        self.shared.is_left.store(is_left, Ordering::Relaxed);
        let mut state = lock(&self.shared.state);
        state.caller = self.caller.take();
        self.shared.end(state);
    }
}
