//! The world's state: its parts, what is scheduled, and which processes wait. One lock guards it.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::event::{Event, Scheduled};
use crate::link::Link;
use crate::node::Node;
use crate::options::{Faults, Pace, SimOptions};
use crate::process_state::{OUTSIDE, Outcome, ProcessSlot, Status, Stop, Wait, Waiter};
use crate::queue_pair::QueuePair;
use crate::random::Random;
use crate::time::Time;
use crate::trace::{Trace, TraceKind};

/// Memory nodes, connections, endpoints and processes, by number.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) time: Arc<Time>,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) pace: Pace,
    pub(crate) trace: Trace,
    pub(crate) slots: Vec<ProcessSlot>,
    pub(crate) running: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) pairs: Vec<QueuePair>,
    pub(crate) events: u64,
    pub(crate) switches: u64,
    pub(crate) stop: Option<Stop>,
    /// How things stood when the world stopped, and the last events before; then all processes die.
    pub(crate) last_words: Option<(String, String)>,
    pub(crate) deaths: u64,
    pub(crate) waits: u64,
    /// Looks at a leased word that its lease answered.
    pub(crate) leased: u64,
    pub(crate) max_events: u64,
    pub(crate) ready: Vec<usize>,
    pub(crate) heap: BinaryHeap<Scheduled>,
    order: u64,
}

impl State {
    pub(crate) fn new(options: &SimOptions, time: Arc<Time>) -> Self {
        let mut random = Random::new(options.seed);
        let faults = if options.swarm { options.faults.swarm(&mut random) } else { options.faults };
        let pace = Pace::draw(&mut random);
        Self {
            time,
            random,
            faults,
            pace,
            trace: Trace::new(options.trace),
            slots: vec![ProcessSlot::new("outside", OUTSIDE)],
            running: OUTSIDE,
            nodes: Vec::new(),
            links: Vec::new(),
            pairs: Vec::new(),
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

    pub(crate) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(crate) fn note(&mut self, what: TraceKind, who: usize, one: u64, two: u64) {
        self.trace.note(self.time.now(), what, who, one, two);
    }

    pub(crate) fn schedule(&mut self, after: u64, event: Event) {
        self.schedule_at(self.now().saturating_add(after), event);
    }

    pub(crate) fn schedule_at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Scheduled { at, order: self.order, event });
    }

    /// The time of one way between a compute node and a memory node.
    pub(crate) fn way(&mut self) -> u64 {
        let (low, high) = self.pace.way;
        let way = self.random.between(low, high);
        if self.random.happens(self.faults.delay) { way * self.random.between(2, 100) } else { way }
    }

    /// The time of one way over a connection: next to none inside a memory node, unless its thread
    /// does not run.
    pub(crate) fn way_of(&mut self, connection: usize) -> u64 {
        if self.links[connection].is_local && !self.random.happens(self.faults.delay) {
            self.random.between(1, 60)
        } else {
            self.way()
        }
    }

    /// Whether the process that runs is dead and has only its destructors to run.
    pub(crate) fn is_dead(&self) -> bool {
        self.slots[self.running].killed
    }

    /// The wait that the running slot is about to begin.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { slot: self.running, epoch: self.slots[self.running].epoch + 1 }
    }

    pub(crate) fn begin_wait(&mut self, wait: Wait, deadline: Option<u64>) {
        let waiter = self.waiter();
        let slot = &mut self.slots[waiter.slot];
        slot.epoch = waiter.epoch;
        slot.wait = wait;
        slot.status = Status::Waiting;
        if let Some(at) = deadline {
            self.schedule_at(at, Event::Timeout(waiter));
        }
    }

    pub(crate) fn is_waiting(&self, waiter: Waiter) -> bool {
        let slot = &self.slots[waiter.slot];
        slot.epoch == waiter.epoch && slot.status == Status::Waiting
    }

    /// Ends a wait, if it is still that one.
    pub(crate) fn wake(&mut self, waiter: Waiter, outcome: Outcome) {
        if !self.is_waiting(waiter) {
            return;
        }
        let slot = &mut self.slots[waiter.slot];
        slot.status = Status::Ready;
        slot.outcome = outcome;
        self.ready.push(waiter.slot);
    }

    /// The compute node of `slot` dies with all its processes, each where it is.
    pub(crate) fn kill(&mut self, slot: usize) {
        let compute_node = self.slots[slot].compute_node;
        for index in 0..self.slots.len() {
            let victim = &mut self.slots[index];
            if victim.compute_node != compute_node || victim.killed || victim.status == Status::Ended {
                continue;
            }
            victim.killed = true;
            let waiter = Waiter { slot: index, epoch: victim.epoch };
            self.note(TraceKind::Killed, index, 0, 0);
            self.wake(waiter, Outcome::Killed);
        }
    }

    /// Counts a fabric call of the running process, and kills it if its time has come.
    pub(crate) fn step(&mut self) {
        let running = self.running;
        let slot = &mut self.slots[running];
        slot.steps += 1;
        let is_time = slot.dies_at.is_some_and(|at| slot.steps >= at);
        if running != OUTSIDE && (is_time || self.random.happens(self.faults.crash_client)) {
            self.kill(running);
        }
    }
}
