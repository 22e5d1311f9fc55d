//! The world's state and its events. One lock guards it; whoever's turn it is executes events until somebody can go on.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::baton::Parker;
use super::event::{Event, Scheduled};
use super::flight::QueuePair;
use super::link::Link;
use super::node::Node;
use super::options::{Faults, Pace, SimOptions};
use super::random::Random;
use super::trace::{Trace, What};

/// The slot of whoever uses the world from outside [`run`](super::World::run), one at a time.
pub(super) const OUTSIDE: usize = 0;

/// Virtual time.
#[derive(Debug)]
pub(super) struct Time {
    /// Nanoseconds since `base`.
    now: AtomicU64,
    pub(super) base: Instant,
    /// Whether a memory node's code runs: it may look at the clock but nobody else can have a turn meanwhile.
    pub(super) in_service: AtomicBool,
}

impl Time {
    pub(super) fn new(base: Instant) -> Self {
        Self { now: AtomicU64::new(0), base, in_service: AtomicBool::new(false) }
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Lets time pass and returns the new time.
    pub(super) fn pass(&self, nanos: u64) -> u64 {
        self.now.fetch_add(nanos, Ordering::Relaxed).saturating_add(nanos)
    }

    fn reach(&self, at: u64) {
        self.now.fetch_max(at, Ordering::Relaxed);
    }

    /// The virtual time of an instant.
    pub(super) fn nanos(&self, instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(self.base))
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A wait of a slot: void once the slot waits for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) slot: usize,
    pub(super) epoch: u64,
}

/// What a process waits for, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Wait {
    #[error("its start")]
    Start,
    #[error("batch {ticket} of endpoint {endpoint}")]
    Batch { endpoint: usize, ticket: u64 },
    #[error("time to pass")]
    Sleep,
    #[error("the word at {offset} of area {area} of node {node} to change from {seen:#x}")]
    Word { node: usize, area: u16, offset: u64, seen: u64 },
    #[error("other calls of connection {connection}")]
    Turn { connection: usize },
    #[error("the reply to call {call} of connection {connection}")]
    Reply { connection: usize, call: u64 },
    #[error("connection {connection} to be made")]
    Connect { connection: usize },
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done,
    Word(u64),
    TimedOut,
    Cut,
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Waiting,
    Ready,
    Running,
    Ended,
}

/// A process, or whoever is outside.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: Arc<str>,
    /// Which processes die with it.
    pub(super) compute_node: usize,
    pub(super) status: Status,
    pub(super) wait: Wait,
    pub(super) outcome: Outcome,
    pub(super) killed: bool,
    /// Fabric calls so far.
    pub(super) steps: u64,
    /// Dies at this fabric call.
    pub(super) dies_at: Option<u64>,
    pub(super) parker: Arc<Parker>,
    epoch: u64,
}

impl Slot {
    pub(super) fn new(name: &str, compute_node: usize) -> Self {
        Self {
            name: name.into(),
            compute_node,
            status: Status::Waiting,
            wait: Wait::Start,
            outcome: Outcome::Done,
            killed: false,
            steps: 0,
            dies_at: None,
            parker: Arc::default(),
            epoch: 0,
        }
    }
}

/// Somebody who waits for a word to change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) waiter: Waiter,
    pub(super) endpoint: usize,
    pub(super) node: usize,
}

/// Why a world stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Deadlock,
    Circles,
    Stuck(usize),
    Panicked(usize, String),
    NodePanicked(usize, String),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) time: Arc<Time>,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) pace: Pace,
    pub(super) trace: Trace,
    pub(super) slots: Vec<Slot>,
    pub(super) running: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) pairs: Vec<QueuePair>,
    pub(super) watches: Vec<Watch>,
    pub(super) events: u64,
    pub(super) switches: u64,
    pub(super) stop: Option<Stop>,
    /// How things stood when the world stopped, and the last events before; then everybody dies.
    pub(super) last_words: Option<(String, String)>,
    pub(super) deaths: u64,
    pub(super) waits: u64,
    /// Looks at a leased word that its lease answered.
    pub(super) leased: u64,
    max_events: u64,
    ready: Vec<usize>,
    heap: BinaryHeap<Scheduled>,
    order: u64,
}

impl State {
    pub(super) fn new(options: &SimOptions, time: Arc<Time>) -> Self {
        let mut random = Random::new(options.seed);
        let faults = if options.swarm { options.faults.swarm(&mut random) } else { options.faults };
        let pace = Pace::draw(&mut random);
        Self {
            time,
            random,
            faults,
            pace,
            trace: Trace::new(options.trace),
            slots: vec![Slot::new("outside", OUTSIDE)],
            running: OUTSIDE,
            nodes: Vec::new(),
            links: Vec::new(),
            pairs: Vec::new(),
            watches: Vec::new(),
            events: 0,
            switches: 0,
            stop: None,
            last_words: None,
            deaths: 0,
            waits: 0,
            leased: 0,
            max_events: options.max_events,
            ready: Vec::new(),
            heap: BinaryHeap::new(),
            order: 0,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(super) fn note(&mut self, what: What, who: usize, one: u64, two: u64) {
        self.trace.note(self.time.now(), what, who, one, two);
    }

    pub(super) fn schedule(&mut self, after: u64, event: Event) {
        self.schedule_at(self.now().saturating_add(after), event);
    }

    pub(super) fn schedule_at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Scheduled { at, order: self.order, event });
    }

    /// The time of one way between a compute node and a memory node.
    pub(super) fn way(&mut self) -> u64 {
        let (low, high) = self.pace.way;
        let way = self.random.between(low, high);
        if self.random.happens(self.faults.delay) { way * self.random.between(2, 100) } else { way }
    }

    /// The time of one way over a connection: next to none inside a memory node, unless its thread does not run.
    pub(super) fn way_of(&mut self, connection: usize) -> u64 {
        if self.links[connection].is_local && !self.random.happens(self.faults.delay) {
            self.random.between(1, 60)
        } else {
            self.way()
        }
    }

    /// Whether the process that runs is dead and has only its destructors to run.
    pub(super) fn is_dead(&self) -> bool {
        self.slots[self.running].killed
    }

    /// The wait that the running slot is about to begin.
    pub(super) fn waiter(&self) -> Waiter {
        Waiter { slot: self.running, epoch: self.slots[self.running].epoch + 1 }
    }

    pub(super) fn begin_wait(&mut self, wait: Wait, deadline: Option<u64>) {
        let waiter = self.waiter();
        let slot = &mut self.slots[waiter.slot];
        slot.epoch = waiter.epoch;
        slot.wait = wait;
        slot.status = Status::Waiting;
        if let Some(at) = deadline {
            self.schedule_at(at, Event::Timeout(waiter));
        }
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        let slot = &self.slots[waiter.slot];
        slot.epoch == waiter.epoch && slot.status == Status::Waiting
    }

    /// Ends a wait, if it is still that one.
    pub(super) fn wake(&mut self, waiter: Waiter, outcome: Outcome) {
        if !self.is_waiting(waiter) {
            return;
        }
        let slot = &mut self.slots[waiter.slot];
        slot.status = Status::Ready;
        slot.outcome = outcome;
        self.ready.push(waiter.slot);
    }

    /// The compute node of `slot` dies with all its processes, each where it is.
    pub(super) fn kill(&mut self, slot: usize) {
        let compute_node = self.slots[slot].compute_node;
        for index in 0..self.slots.len() {
            let victim = &mut self.slots[index];
            if victim.compute_node != compute_node || victim.killed || victim.status == Status::Ended {
                continue;
            }
            victim.killed = true;
            let waiter = Waiter { slot: index, epoch: victim.epoch };
            self.note(What::Killed, index, 0, 0);
            self.wake(waiter, Outcome::Killed);
        }
    }

    /// Counts a fabric call of the running process, and kills it if its time has come.
    pub(super) fn step(&mut self) {
        let running = self.running;
        let slot = &mut self.slots[running];
        slot.steps += 1;
        let is_time = slot.dies_at.is_some_and(|at| slot.steps >= at);
        if running != OUTSIDE && (is_time || self.random.happens(self.faults.crash_client)) {
            self.kill(running);
        }
    }

    /// Executes events until somebody can go on, and says who. `None`: the world has stopped.
    pub(super) fn advance(&mut self) -> Option<usize> {
        loop {
            if self.stop.is_some() {
                self.remember_stop();
                return None;
            }
            if !self.ready.is_empty() {
                let index = self.random.below(self.ready.len() as u64) as usize;
                let slot = self.ready.swap_remove(index);
                self.slots[slot].status = Status::Running;
                self.switches += u64::from(self.running != slot);
                self.running = slot;
                self.note(What::Resumed, slot, self.slots[slot].steps, 0);
                return Some(slot);
            }
            if !self.happen() {
                self.stop = Some(Stop::Deadlock);
            }
        }
    }

    /// Executes the next event; false if there is none.
    pub(super) fn happen(&mut self) -> bool {
        while let Some(Scheduled { at, event, .. }) = self.heap.pop() {
            // An event that has become void must not move time: most deadlines never pass.
            let is_void = match event {
                Event::Timeout(waiter) | Event::Wake(waiter) | Event::Look { waiter, .. } => {
                    !self.is_waiting(waiter)
                }
                _ => false,
            };
            if is_void {
                continue;
            }
            self.time.reach(at);
            self.events += 1;
            if self.events >= self.max_events {
                self.stop = Some(Stop::Circles);
            }
            self.execute(event);
            return true;
        }
        false
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Timeout(waiter) => {
                self.note(What::TimedOut, waiter.slot, 0, 0);
                self.wake(waiter, Outcome::TimedOut);
            }
            Event::Wake(waiter) => self.wake(waiter, Outcome::Done),
            Event::Fetch { endpoint, ticket } => self.fetch(endpoint, ticket),
            Event::Land { endpoint, ticket } => self.land(endpoint, ticket),
            Event::Look { waiter, endpoint } => self.look(waiter, endpoint),
            Event::Drain { node, life } => self.drain(node, life),
            Event::Turn { node, life } => self.turn(node, life),
            Event::Work { node, life } => self.work_is_due(node, life),
            Event::Restart { node } => self.start_node(node),
            Event::Notice { node, life } => self.notice(node, life),
            Event::Open { connection } => self.open(connection),
            Event::Opened { connection } => self.opened(connection),
            Event::Deliver { connection, call, bytes } => self.deliver(connection, call, &bytes),
            Event::Reply { connection, call, bytes } => self.replied(connection, call, bytes),
            Event::Close { connection } => self.close(connection),
        }
    }
}
