//! A memory node: its loop, and how its lives begin.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::baton::Shared;
use super::clock::SimClock;
use super::event::Event;
use super::flight::SimArea;
use super::memory::{Entry, Reply, SimMemory, Stores, lock};
use super::options::NodeOptions;
use super::questions::SimRegion;
use super::room::Room;
use super::state::{State, Stop};
use super::trace::What;
use crate::answers::{Answers, ThreadMemory};
use crate::memory::{MemoryError, SharedMemory};
use crate::service::{ClientId, Handled, Service, Work};

/// How far a memory node's stores may lie behind when it goes on all the same.
const RUN_AHEAD: usize = 256;

/// What a life of a memory node begins with.
#[derive(Debug)]
pub struct NodeStart {
    /// Its memories, in the order of [`NodeOptions::memories`], holding what survived.
    pub memories: Vec<Arc<SimMemory>>,
    /// Which life it is, from 1: its incarnation.
    pub life: u64,
    /// The world's clock.
    pub clock: SimClock,
    /// The region, as threads of the memory node's own read it, and where it is said who answers questions about it.
    pub region: SimRegion,
}

/// The death of a memory node, for what it had outside simulated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDeath {
    /// Which life ended.
    pub life: u64,
    /// Stores that became visible, over all lives.
    pub stores: u64,
}

/// Makes the service of each life.
pub(super) type Start = Box<dyn FnMut(NodeStart) -> Box<dyn Service> + Send>;
/// Is told of each death, after the service was dropped.
pub(super) type OnDeath = Box<dyn FnMut(NodeDeath) + Send>;

/// What waits for the memory node's loop.
#[derive(Debug)]
pub(super) enum Item {
    Connect(usize),
    Request { connection: usize, call: u64, bytes: Arc<[u8]> },
    Disconnect(usize),
}

pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) options: NodeOptions,
    pub(super) stores: Arc<Mutex<Stores>>,
    pub(super) inbox: VecDeque<Item>,
    pub(super) areas: Arc<[SimArea]>,
    pub(super) start: Option<Start>,
    pub(super) on_death: Option<OnDeath>,
    /// Dies when so many stores have become visible, over all lives.
    pub(super) dies_at: Option<u64>,
    pub(super) shared: Option<std::sync::Weak<Shared>>,
    /// Who waits for the service to have room.
    pub(super) room: Room,
    /// What answers questions in this life, and what the threads that do so have kept.
    pub(super) answers: Option<Arc<dyn Answers>>,
    pub(super) thread_memories: Vec<ThreadMemory>,
    pub(super) service: Option<Box<dyn Service>>,
    pub(super) draining: bool,
    pub(super) turning: bool,
    /// The loop waits for the stores to be visible.
    pub(super) held_up: bool,
    /// `work` must be called before the loop may rest.
    pub(super) work_due: bool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("up", &self.service.is_some()).finish()
    }
}

impl Node {
    pub(super) fn new(options: NodeOptions, start: Start) -> Result<Self, MemoryError> {
        let visible: Result<Vec<_>, _> = options.memories.iter().map(|m| blank(m.bytes)).collect();
        Ok(Self {
            name: options.name.as_str().into(),
            options,
            stores: Arc::new(Mutex::new(Stores::new(visible?))),
            inbox: VecDeque::new(),
            areas: [].into(),
            start: Some(start),
            on_death: None,
            dies_at: None,
            shared: None,
            room: Room::default(),
            answers: None,
            thread_memories: Vec::new(),
            service: None,
            draining: false,
            turning: false,
            held_up: false,
            work_due: false,
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.service.is_some()
    }

    /// Whether everything it was asked is done and everything it stored can be seen.
    pub(super) fn is_settled(&self) -> bool {
        let is_asked = !self.inbox.is_empty() || self.room.is_awaited();
        self.is_up() && !is_asked && lock(&self.stores).is_empty() && !self.work_due
    }

    pub(super) fn life(&self) -> u64 {
        lock(&self.stores).life
    }
}

/// Zeroed memory of whole words.
pub(super) fn blank(bytes: usize) -> Result<Arc<SharedMemory>, MemoryError> {
    SharedMemory::anonymous(bytes.saturating_add(7) / 8 * 8).map(Arc::new)
}

/// Runs code of a memory node; its panic becomes a message.
pub(super) fn guarded<R>(state: &State, code: impl FnOnce() -> R) -> Result<R, String> {
    let in_service = &state.time.in_service;
    in_service.store(true, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(code));
    in_service.store(false, Ordering::Relaxed);
    outcome.map_err(|payload| super::world::message(&*payload))
}

impl State {
    /// Begins a life of a memory node.
    pub(super) fn start_node(&mut self, node: usize) {
        match self.try_start(node) {
            Ok(()) => {}
            Err(message) => self.stop = Some(Stop::NodePanicked(node, message)),
        }
    }

    fn try_start(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        if node.is_up() {
            return Ok(());
        }
        let count = node.options.memories.len();
        let memories: Result<Vec<_>, _> = (0..count)
            // `add_node` takes no more than 256.
            .map(|memory| SimMemory::inherit(&node.stores, memory as u8).map(Arc::new))
            .collect();
        let memories = memories.map_err(|error| error.to_string())?;
        {
            let stores = lock(&node.stores);
            let areas = node.options.memories.iter().zip(&memories).zip(&stores.visible);
            node.areas = areas
                .map(|((options, memory), visible)| SimArea {
                    visible: Arc::clone(visible),
                    private: Arc::clone(memory.private()),
                    access: options.offered,
                })
                .collect();
        }
        let life = node.life();
        let shared = node.shared.as_ref().and_then(std::sync::Weak::upgrade).ok_or("the world has ended")?;
        let mut make = node.start.take().ok_or("its start is under way already")?;
        let region = SimRegion::new(Arc::clone(&shared), self.add_local_link(index));
        let start =
            NodeStart { memories, life: life + 1, clock: SimClock { shared }, region: region.clone() };
        let service = guarded(self, || make(start));
        let node = &mut self.nodes[index];
        node.start = Some(make);
        node.service = Some(service?);
        (node.answers, node.thread_memories) = (region.take_offered(), Vec::new());
        (node.draining, node.turning, node.held_up, node.work_due) = (false, false, false, true);
        self.note(What::Started, index, life + 1, 0);
        self.begin_draining(index);
        self.poke(index);
        Ok(())
    }

    /// Has the memory node's loop come round soon.
    pub(super) fn poke(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.is_up() && !node.turning {
            node.turning = true;
            let life = node.life();
            let after = self.random.between(50, 400);
            self.schedule(after, Event::Turn { node: index, life });
        }
    }

    /// One step of the memory node's loop: a request, or work and the replies that came of it.
    pub(super) fn turn(&mut self, index: usize, life: u64) {
        let node = &mut self.nodes[index];
        let queued = lock(&node.stores).len();
        if node.life() != life || !node.is_up() {
            return;
        }
        node.turning = false;
        let run_ahead = self.faults.run_ahead && queued < RUN_AHEAD && self.random.below(4) == 0;
        // Who is let in must see a memory node that is ready: that is a system call, after which all stores are visible.
        let connects = matches!(node.inbox.front(), Some(Item::Connect(_)));
        if queued > 0 && (connects || !run_ahead) {
            node.held_up = true;
            return;
        }
        if self.random.happens(self.faults.crash_node) {
            self.kill_node(index);
            return;
        }
        let asked = !node.inbox.is_empty();
        let outcome = if asked && !(node.work_due && self.random.below(2) == 0) {
            self.take_item(index)
        } else {
            self.do_work(index)
        };
        if let Err(message) = outcome {
            self.stop = Some(Stop::NodePanicked(index, message));
            return;
        }
        self.begin_draining(index);
        let node = &self.nodes[index];
        if !node.inbox.is_empty() || node.work_due {
            self.poke(index);
        }
    }

    fn take_item(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let (Some(item), Some(mut service)) = (node.inbox.pop_front(), node.service.take()) else {
            return Ok(());
        };
        node.work_due = true;
        let outcome = match item {
            Item::Connect(connection) => {
                let client = self.links[connection].client;
                let after = self.way();
                self.schedule(after, Event::Opened { connection });
                guarded(self, || service.connected(client, &[]))
            }
            Item::Disconnect(connection) => {
                let client = self.links[connection].client;
                self.note(What::Closed, connection, index as u64, 0);
                self.leave_room(index, connection);
                guarded(self, || service.disconnected(client))
            }
            Item::Request { connection, call, bytes } if self.links[connection].in_hand.is_some() => {
                self.links[connection].held.push_back((call, bytes));
                Ok(())
            }
            Item::Request { connection, call, bytes }
                if !self.admit(index, &mut *service, connection, call, &bytes) =>
            {
                Ok(())
            }
            Item::Request { connection, call, bytes } => {
                self.handle(index, &mut *service, connection, call, &bytes)
            }
        };
        self.nodes[index].service = Some(service);
        outcome
    }

    pub(super) fn handle(
        &mut self,
        index: usize,
        service: &mut dyn Service,
        connection: usize,
        call: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        let client = self.links[connection].client;
        let mut reply = Vec::new();
        let handled = guarded(self, || service.handle(client, bytes, &mut reply))?;
        self.note(What::Handled, index, connection as u64, call);
        match handled {
            Handled::Now => self.queue_reply(index, connection, call, reply),
            Handled::Later => self.links[connection].in_hand = Some(call),
        }
        Ok(())
    }

    fn do_work(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let Some(mut service) = node.service.take() else { return Ok(()) };
        let outcome = self.do_work_of(index, &mut *service);
        self.nodes[index].service = Some(service);
        outcome
    }

    fn do_work_of(&mut self, index: usize, service: &mut dyn Service) -> Result<(), String> {
        self.admit_waiting(index, service)?;
        let work = guarded(self, || service.work())?;
        self.nodes[index].work_due = work == Work::More || self.nodes[index].room.is_awaited();
        if let Work::At(instant) = work {
            let (at, life) = (self.time.nanos(instant), self.nodes[index].life());
            self.schedule_at(at, Event::Work { node: index, life });
        }
        let queued = lock(&self.nodes[index].stores).len() as u64;
        self.note(What::Worked, index, queued, 0);
        loop {
            let mut reply = Vec::new();
            let Some(client) = guarded(self, || service.next_reply(&mut reply))? else { return Ok(()) };
            self.late_reply(index, client, reply);
        }
    }

    /// A reply to a request that was to be answered later.
    fn late_reply(&mut self, index: usize, client: ClientId, reply: Vec<u8>) {
        // A client that has gone, or has asked nothing, gets no reply.
        let Some(connection) = self.links.iter().position(|link| link.client == client) else { return };
        let Some(call) = self.links[connection].in_hand.take() else { return };
        self.queue_reply(index, connection, call, reply);
        self.take_held(index, connection);
    }

    /// Has a client's next request come, if it has one and nothing is in hand.
    pub(super) fn take_held(&mut self, index: usize, connection: usize) {
        let link = &mut self.links[connection];
        if link.in_hand.is_none()
            && let Some((call, bytes)) = link.held.pop_front()
        {
            self.nodes[index].inbox.push_back(Item::Request { connection, call, bytes });
        }
    }

    fn queue_reply(&mut self, index: usize, connection: usize, call: u64, bytes: Vec<u8>) {
        lock(&self.nodes[index].stores).push(Entry::Reply(Reply { connection, call, bytes }));
    }

    pub(super) fn work_is_due(&mut self, index: usize, life: u64) {
        if self.nodes[index].life() == life {
            self.nodes[index].work_due = true;
            self.poke(index);
        }
    }
}
