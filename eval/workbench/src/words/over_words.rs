//! The clients of an index over words.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Index, Memory, Next, Trip, Turn};
use crate::bench::{Answer, Footprint, Operation, Progress, System};
use crate::combining::Combining;
use crate::delegation::{self, Role};
use crate::local_locks::LocalLocks;
use crate::nic::{Background, Hosts, Picos, Request};

/// An index with its memory and its clients.
pub struct OverWords<I: Index> {
    /// The index.
    pub index: I,
    memory: Memory,
    clients: Vec<Client<I::Task>>,
    locks: LocalLocks,
    /// Writes under way, if clients share work.
    combining: Option<Combining>,
    woken: VecDeque<usize>,
    hosts: Hosts,
}

struct Client<T> {
    operation: Option<Operation>,
    state: State,
    task: T,
    landed: Trip,
    next: Trip,
}

/// What a client's operation waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Its own trips.
    Runs,
    /// Another client's write of its key.
    Waits,
    /// Nothing: another's write was its own, too.
    Has(Answer),
}

impl<I: Index> OverWords<I> {
    /// The clients of these machines over an index that lies in this memory.
    pub fn new(index: I, memory: Memory, hosts: &Hosts) -> Self {
        let client = || Client {
            operation: None,
            state: State::Runs,
            task: I::Task::default(),
            landed: Trip::default(),
            next: Trip::default(),
        };
        let clients: Vec<_> = (0..hosts.clients()).map(|_| client()).collect();
        let locks = LocalLocks::new(clients.len(), index.handovers());
        let combining = index.shares_work().then(Combining::default);
        Self { index, memory, clients, locks, combining, woken: VecDeque::new(), hosts: *hosts }
    }

    /// An operation has this answer, which may be that of others, too.
    fn end(&mut self, client: usize, operation: Operation, mut answer: Answer) -> Progress {
        if self.locks.has_turn(client) {
            self.locks.give_up(client);
            answer = Answer::Failed("answered with a lock that is still held".into());
        }
        if let Some(combining) = self.combining.as_mut().filter(|_| operation.written().is_some()) {
            let ended = combining.end(self.hosts.node_of(client), operation);
            for other in ended.shared {
                self.clients[other].state = State::Has(answer.clone());
                self.woken.push_back(other);
            }
            if let Some(next) = ended.next {
                self.clients[next].state = State::Runs;
                self.woken.push_back(next);
            }
        }
        Progress::Done(answer)
    }
}

impl<I: Index> System for OverWords<I> {
    fn begin(&mut self, client: usize, operation: Operation) {
        let compute = self.hosts.node_of(client);
        let combining = self.combining.as_mut().filter(|_| operation.written().is_some());
        let waits = combining.is_some_and(|all| all.ask(client, compute, operation) == Role::Waits);
        let client = &mut self.clients[client];
        client.state = if waits { State::Waits } else { State::Runs };
        client.next.clear();
        client.operation = Some(operation);
        I::clear(&mut client.task);
    }

    fn step(&mut self, client: usize, _: Picos, requests: &mut Vec<Request>) -> Progress {
        let compute = self.hosts.node_of(client);
        let Client { operation: Some(operation), state, task, landed, next } = &mut self.clients[client]
        else {
            return Progress::Done(Answer::Failed("there is nothing to do".into()));
        };
        match std::mem::replace(state, State::Runs) {
            State::Has(answer) => return Progress::Done(answer),
            State::Waits => {
                *state = State::Waits;
                return Progress::Waits;
            }
            State::Runs => {}
        }
        if self.locks.goes_on(client) {
            return Progress::Waits;
        }
        let combining = self.combining.as_mut().filter(|_| operation.written().is_some());
        if let Some(combining) = &combining {
            *operation = combining.newest(compute, *operation);
        }
        std::mem::swap(landed, next);
        next.clear();
        let (memory, locks, operation) = (&mut self.memory, &mut self.locks, *operation);
        let mut turn = Turn { compute, operation, landed, trip: next, memory, client, locks };
        let wanted = self.index.step(task, &mut turn);
        match wanted {
            Next::Waits if next.requests.is_empty() => {
                self.locks.sleeps(client);
                Progress::Waits
            }
            Next::Trip | Next::Waits => {
                if let Some(combining) = combining.filter(|_| next.writes()) {
                    combining.close(compute, operation);
                }
                requests.extend_from_slice(&next.requests);
                next.prefetch(&self.memory);
                Progress::Post
            }
            Next::Done(answer) => self.end(client, operation, answer),
        }
    }

    fn serve(&mut self, client: usize, requests: Range<usize>) -> Picos {
        self.clients[client].next.serve(&mut self.index, &mut self.memory, requests);
        0
    }

    fn next_woken(&mut self) -> Option<usize> {
        self.woken.pop_front().or_else(|| self.locks.next_woken())
    }

    fn next_background(&mut self) -> Option<Background> {
        self.index.next_background().map(|(node, service)| Background { node, core: None, service })
    }

    fn end_background(&mut self, _: u16) {
        self.index.end_background(&mut self.memory);
    }

    fn footprint(&self) -> Footprint {
        let (cached, beside) = self.index.compute_bytes();
        let beside = beside + u64::from(self.index.shares_work()) * delegation::TABLE_BYTES;
        Footprint { cached, beside, memory_nodes: self.memory.bytes() }
    }

    fn delegates(&self) -> bool {
        self.index.shares_work()
    }
}
