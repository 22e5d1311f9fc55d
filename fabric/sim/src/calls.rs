//! Calls over connections: turns, requests, and waiting for replies.

use std::sync::Arc;

use fpcache_fabric::backend::{is_request, posted};
use fpcache_fabric::verbs::Tally;
use fpcache_fabric::{Deadline, FabricError, Meter, Posted};

use crate::anchor::Anchor;
use crate::baton::Shared;
use crate::link::Calling;
use crate::process_state::{Outcome, Wait};
use crate::state::State;
use crate::time::Time;

/// The longest request and reply in bytes.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;

/// How often a connecting process looks whether the memory node is there.
const KNOCK: u64 = 20_000;

/// Until when, in virtual time.
fn until(time: &Time, deadline: Deadline) -> Option<u64> {
    deadline.instant().map(|instant| time.nanos(instant))
}

/// How long a reply is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// It is there or not.
    None,
    /// Until then.
    Until(Deadline),
}

/// A look at one word.
const LOOK: Tally = Tally { reads: 1, writes: 0, compare_swaps: 0, bytes_to: 0, bytes_from: 8 };

/// A thread's turn to call; ends when dropped, also when its process dies.
struct Turn<'s> {
    shared: &'s Shared,
    connection: usize,
}

impl Turn<'_> {
    /// It ends with the reply to what was posted.
    fn goes_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let link = &mut state.links[self.connection];
        link.taken = false;
        link.calling = None;
        // Those whose wait is over no longer count; `wake` tells.
        let next = std::mem::take(&mut link.turns);
        for waiter in next {
            state.wake(waiter, Outcome::Done);
        }
    }
}

impl Shared {
    /// Connects, waiting for a memory node that is down.
    pub(crate) fn connect(self: &Arc<Self>, node: usize, deadline: Deadline) -> Result<Anchor, FabricError> {
        let until = until(&self.time, deadline);
        let gone = |state: &State| {
            let name = &state.nodes[node].name;
            FabricError::NoMemoryNode { address: format!("sim://{name}"), path: name.to_string() }
        };
        loop {
            let Some(mut state) = self.begin() else { return Err(gone(&self.lock())) };
            if until.is_some_and(|at| at <= state.now()) {
                return Err(gone(&state));
            }
            if !state.nodes[node].is_up() {
                let left = until.map_or(KNOCK, |at| KNOCK.min(at - state.now()));
                drop(self.sleep_in(state, left));
                continue;
            }
            let waiter = state.waiter();
            let connection = state.add_link(node, waiter);
            let anchor = Anchor { shared: Arc::clone(self), connection, is_local: false };
            let (state, outcome) = self.wait(state, Wait::Connect { connection }, until);
            drop(state);
            if outcome == Outcome::Done {
                return Ok(anchor);
            }
            // Too late, or it died while we knocked: look again.
        }
    }

    /// Sends a request; its turn goes on.
    pub(crate) fn post(
        &self,
        connection: usize,
        request: &[u8],
        deadline: Deadline,
        meter: &Meter,
    ) -> Result<Posted, FabricError> {
        let until = until(&self.time, deadline);
        let Some(state) = self.begin() else { return Err(self.lock().links[connection].disconnected()) };
        let (len, max) = (request.len() as u64, MAX_MESSAGE as u64);
        if len > max {
            return Err(FabricError::RequestTooLong { len, max });
        }
        drop(state);
        let turn = self.take_turn(connection, until)?;
        let mut state = self.lock();
        let link = &mut state.links[connection];
        link.calls += 1;
        let call = link.calls;
        link.calling = Some(Calling { call, waiter: None, reply: None });
        link.may_lose = until.is_some();
        state.send(connection, call, request);
        let cut = state.faults.cut;
        if state.random.happens(cut) {
            // Both sides live on, and whether the request arrives is open.
            state.hang_up(connection);
            let error = state.links[connection].disconnected();
            drop(state);
            return Err(error);
        }
        drop(state);
        turn.goes_on();
        // What a ring costs whose both sides spin: the request in one doorbell, and a look whether
        // the memory node sleeps.
        let write = Tally { writes: 3, bytes_to: request.len() as u64 + 16, ..Tally::default() };
        [write, LOOK].iter().for_each(|tally| meter.record(tally));
        Ok(posted(call))
    }

    /// Takes the reply to a request that was posted, which ends its turn; `false` if it is not
    /// there and not waited for.
    pub(crate) fn wait_for_reply(
        &self,
        connection: usize,
        posted: &Posted,
        reply: &mut Vec<u8>,
        patience: Patience,
        meter: &Meter,
    ) -> Result<bool, FabricError> {
        reply.clear();
        let turn = self.resume_turn(connection, posted)?;
        let waits = match patience {
            Patience::None => None,
            Patience::Until(deadline) => Some(until(&self.time, deadline)),
        };
        meter.record(&LOOK);
        if !self.take_reply(connection, reply, waits)? {
            turn.goes_on();
            return Ok(false);
        }
        let fetch = Tally { reads: 2, bytes_from: 16 + reply.len() as u64, ..Tally::default() };
        meter.record(&fetch);
        Ok(true)
    }

    /// Ends the turn of a request that was posted.
    pub(crate) fn give_up(&self, connection: usize, posted: &Posted) {
        drop(self.resume_turn(connection, posted));
    }

    /// The turn of a request that was posted, to be ended.
    fn resume_turn(&self, connection: usize, posted: &Posted) -> Result<Turn<'_>, FabricError> {
        let state = self.lock();
        let link = &state.links[connection];
        // A connection that was cut has forgotten its call.
        let is_its = link.taken && is_request(posted, link.calls);
        if is_its { Ok(Turn { shared: self, connection }) } else { Err(FabricError::NotPosted) }
    }

    /// Waits for this thread's turn with a connection.
    fn take_turn(&self, connection: usize, until: Option<u64>) -> Result<Turn<'_>, FabricError> {
        let mut state = self.lock();
        loop {
            let link = &state.links[connection];
            if !link.is_alive() {
                return Err(link.disconnected());
            }
            if until.is_some_and(|at| at <= state.now()) {
                return Err(FabricError::Crowded);
            }
            if !link.taken {
                state.links[connection].taken = true;
                return Ok(Turn { shared: self, connection });
            }
            let waiter = state.waiter();
            state.links[connection].turns.push_back(waiter);
            (state, _) = self.wait(state, Wait::Turn { connection }, until);
        }
    }

    /// Takes a reply. Without `waits` it is not waited for; else until the time there, if there is
    /// one.
    fn take_reply(
        &self,
        connection: usize,
        reply: &mut Vec<u8>,
        waits: Option<Option<u64>>,
    ) -> Result<bool, FabricError> {
        // No fabric call of its own: the second part of the one that posted the request.
        let mut state = self.lock();
        if state.is_dead() {
            return Err(state.links[connection].disconnected());
        }
        loop {
            let link = &mut state.links[connection];
            let Some(calling) = &mut link.calling else { return Err(link.disconnected()) };
            if let Some(bytes) = calling.reply.take() {
                let (len, max) = (bytes.len() as u64, MAX_MESSAGE as u64);
                if len > max {
                    return Err(FabricError::ReplyTooLong { len, max });
                }
                *reply = bytes;
                return Ok(true);
            }
            let Some(until) = waits else { return Ok(false) };
            let call = calling.call;
            let late = FabricError::DeadlinePassed { waiting_for: "the memory node's reply" };
            if until.is_some_and(|at| at <= state.now()) {
                return Err(late);
            }
            let waiter = state.waiter();
            if let Some(calling) = &mut state.links[connection].calling {
                calling.waiter = Some(waiter);
            }
            let outcome;
            (state, outcome) = self.wait(state, Wait::Reply { connection, call }, until);
            match outcome {
                Outcome::Done => {}
                Outcome::TimedOut => return Err(late),
                Outcome::Cut | Outcome::Killed => {
                    return Err(state.links[connection].disconnected());
                }
            }
        }
    }
}
