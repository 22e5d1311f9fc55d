//! Connections and calls: how requests and replies travel, get lost, come twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::baton::Shared;
use super::connection::Anchor;
use super::flight::SimArea;
use super::memory::Reply;
use super::node::Item;
use super::state::{Event, Outcome, State, Time, Wait, Waiter};
use super::trace::What;
use crate::clock::Deadline;
use crate::connection::{ClientId, Posted};
use crate::error::FabricError;
use crate::meter::Meter;
use crate::verbs::Tally;

/// How often a connecting process looks whether the memory node is there.
const KNOCK: u64 = 20_000;

/// The scheduler's part of a connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: usize,
    /// The life of the memory node it leads to.
    pub(super) life: u64,
    pub(super) client: ClientId,
    pub(super) areas: Arc<[SimArea]>,
    pub(super) alive: Arc<AtomicBool>,
    pub(super) peer: Arc<str>,
    pub(super) max_request: usize,
    pub(super) max_reply: usize,
    /// The call that was to be answered later.
    pub(super) in_hand: Option<u64>,
    /// Requests that came while one was in hand.
    pub(super) held: VecDeque<(u64, Arc<[u8]>)>,
    /// Who waits for the connection to be made.
    opener: Option<Waiter>,
    /// Whether the memory node has been told of its end.
    closed: bool,
    calls: u64,
    /// The call under way.
    calling: Option<Calling>,
    /// Whether a thread has its turn, and who waits for theirs.
    taken: bool,
    turns: VecDeque<Waiter>,
    /// Whether the caller has a deadline: else a message must not be lost.
    may_lose: bool,
    /// Whether it is one inside the memory node, of its own threads.
    pub(super) is_local: bool,
    /// Whether questions are answered.
    pub(super) answers: bool,
}

/// A request that was posted and whose reply was not taken yet.
#[derive(Debug)]
struct Calling {
    call: u64,
    /// Who waits for the reply, if anybody does yet.
    waiter: Option<Waiter>,
    reply: Option<Vec<u8>>,
}

impl Link {
    pub(super) fn disconnected(&self) -> FabricError {
        FabricError::Disconnected { peer: Arc::clone(&self.peer) }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

impl State {
    /// A new connection to what is at present the memory node's life; it is of use once it was opened.
    fn add_link(&mut self, node: usize, opener: Waiter) -> usize {
        let connection = self.make_link(node, Some(opener));
        let after = self.way();
        self.schedule(after, Event::Open { connection });
        connection
    }

    /// A connection inside a memory node, of use at once, of which its service is not told.
    pub(super) fn add_local_link(&mut self, node: usize) -> usize {
        let connection = self.make_link(node, None);
        let link = &mut self.links[connection];
        (link.is_local, link.closed) = (true, true);
        connection
    }

    fn make_link(&mut self, node: usize, opener: Option<Waiter>) -> usize {
        let connection = self.links.len();
        let of = &self.nodes[node];
        self.links.push(Link {
            node,
            life: of.life(),
            client: ClientId(connection as u64 + 1),
            areas: Arc::clone(&of.areas),
            alive: Arc::new(AtomicBool::new(true)),
            peer: Arc::clone(&of.name),
            max_request: of.options.max_request,
            max_reply: of.options.max_reply,
            in_hand: None,
            held: VecDeque::new(),
            opener,
            closed: false,
            calls: 0,
            calling: None,
            taken: false,
            turns: VecDeque::new(),
            may_lose: false,
            is_local: false,
            answers: of.answers.is_some(),
        });
        connection
    }

    /// Whether the life a connection leads to still goes on.
    pub(super) fn reaches(&self, connection: usize) -> bool {
        let link = &self.links[connection];
        let node = &self.nodes[link.node];
        node.is_up() && node.life() == link.life
    }

    pub(super) fn open(&mut self, connection: usize) {
        if self.reaches(connection) {
            let node = self.links[connection].node;
            self.nodes[node].inbox.push_back(Item::Connect(connection));
            self.poke(node);
        } else {
            self.cut(connection);
        }
    }

    pub(super) fn opened(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        let (node, opener) = (link.node, link.opener.take());
        if !link.is_alive() {
            return;
        }
        self.note(What::Connected, connection, node as u64, 0);
        if let Some(opener) = opener {
            self.wake(opener, Outcome::Done);
        }
    }

    /// The client's side of a connection ends: everything that waits on it fails.
    pub(super) fn cut(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        if !link.alive.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut waiting: Vec<Waiter> = link.turns.drain(..).collect();
        waiting.extend(link.calling.take().and_then(|calling| calling.waiter));
        waiting.extend(link.opener.take());
        let pairs = &self.pairs;
        self.watches.retain(|watch| {
            let stays = pairs[watch.endpoint].connection != connection;
            if !stays {
                waiting.push(watch.waiter);
            }
            stays
        });
        self.note(What::Cut, connection, 0, 0);
        for waiter in waiting {
            self.wake(waiter, Outcome::Cut);
        }
        self.fail_flights(connection);
    }

    /// The client has gone: the memory node will learn it.
    pub(super) fn hang_up(&mut self, connection: usize) {
        self.cut(connection);
        let after = self.way();
        self.schedule(after, Event::Close { connection });
    }

    pub(super) fn close(&mut self, connection: usize) {
        if std::mem::replace(&mut self.links[connection].closed, true) || !self.reaches(connection) {
            return;
        }
        let link = &mut self.links[connection];
        link.in_hand = None;
        link.held.clear();
        let node = link.node;
        self.nodes[node].inbox.push_back(Item::Disconnect(connection));
        self.poke(node);
    }

    /// Sends a request on its way, and perhaps a second time, or never.
    fn send(&mut self, connection: usize, call: u64, request: &[u8]) {
        let bytes: Arc<[u8]> = request.into();
        let faults = self.faults;
        if self.links[connection].may_lose && self.random.happens(faults.drop) {
            self.note(What::Lost, connection, call, 0);
            return;
        }
        if self.random.happens(faults.duplicate) {
            self.note(What::Doubled, connection, call, 0);
            let after = self.way() * self.random.between(1, 20);
            self.schedule(after, Event::Deliver { connection, call, bytes: Arc::clone(&bytes) });
        }
        let after = self.way();
        self.schedule(after, Event::Deliver { connection, call, bytes });
    }

    pub(super) fn deliver(&mut self, connection: usize, call: u64, bytes: &Arc<[u8]>) {
        if self.links[connection].closed || !self.reaches(connection) {
            return;
        }
        self.note(What::Delivered, connection, call, bytes.len() as u64);
        let bytes = Arc::clone(bytes);
        let link = &mut self.links[connection];
        if link.in_hand.is_some() {
            link.held.push_back((call, bytes));
            return;
        }
        let node = link.node;
        self.nodes[node].inbox.push_back(Item::Request { connection, call, bytes });
        self.poke(node);
    }

    pub(super) fn send_reply(&mut self, reply: Reply) {
        let Reply { connection, call, bytes } = reply;
        if self.links[connection].may_lose && self.random.happens(self.faults.drop) {
            self.note(What::Lost, connection, call, 1);
            return;
        }
        let after = self.way();
        self.schedule(after, Event::Reply { connection, call, bytes });
    }

    pub(super) fn replied(&mut self, connection: usize, call: u64, bytes: Vec<u8>) {
        self.note(What::Replied, connection, call, bytes.len() as u64);
        let link = &mut self.links[connection];
        // A late reply, or the second to a request that came twice, is nobody's.
        if let Some(calling) = link.calling.as_mut().filter(|calling| calling.call == call)
            && calling.reply.is_none()
        {
            calling.reply = Some(bytes);
            if let Some(waiter) = calling.waiter.take() {
                self.wake(waiter, Outcome::Done);
            }
        }
    }
}

/// Until when, in virtual time.
pub(super) fn until(time: &Time, deadline: Deadline) -> Option<u64> {
    deadline.instant().map(|instant| time.nanos(instant))
}

/// How long a reply is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// It is there or not.
    None,
    /// Until then.
    Until(Deadline),
}

/// A look at one word.
const LOOK: Tally =
    Tally { reads: 1, writes: 0, compare_swaps: 0, fetch_adds: 0, bytes_to: 0, bytes_from: 8 };

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
    pub(super) fn connect(self: &Arc<Self>, node: usize, deadline: Deadline) -> Result<Anchor, FabricError> {
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
    pub(super) fn post(
        &self,
        connection: usize,
        request: &[u8],
        deadline: Deadline,
        meter: &Meter,
    ) -> Result<Posted, FabricError> {
        let until = until(&self.time, deadline);
        let Some(state) = self.begin() else { return Err(self.lock().links[connection].disconnected()) };
        let max = state.links[connection].max_request;
        if request.len() > max {
            return Err(FabricError::RequestTooLong { len: request.len() as u64, max: max as u64 });
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
        // What a ring costs whose both sides spin: the request in one doorbell, and a look whether the memory node sleeps.
        let write = Tally { writes: 3, bytes_to: request.len() as u64 + 16, ..Tally::default() };
        [write, LOOK].iter().for_each(|tally| meter.record(tally));
        Ok(Posted::new(call))
    }

    /// Takes the reply to a request that was posted, which ends its turn; `false` if it is not there and nobody waits for it.
    pub(super) fn wait_for_reply(
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
    pub(super) fn give_up(&self, connection: usize, posted: &Posted) {
        drop(self.resume_turn(connection, posted));
    }

    /// The turn of a request that was posted, to be ended.
    fn resume_turn(&self, connection: usize, posted: &Posted) -> Result<Turn<'_>, FabricError> {
        let state = self.lock();
        let link = &state.links[connection];
        // A connection that was cut has forgotten its call.
        let is_its = link.taken && posted.is(link.calls);
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

    /// Takes a reply. Without `waits` nobody waits for it; else until the time there, if there is one.
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
                let (len, max) = (bytes.len() as u64, link.max_reply as u64);
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
                Outcome::Cut | Outcome::Word(_) | Outcome::Killed => {
                    return Err(state.links[connection].disconnected());
                }
            }
        }
    }
}
