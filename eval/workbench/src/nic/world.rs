//! The events: clients that step, batches that arrive.

use std::ops::Range;

use super::Picos;
use super::card::Card;
use super::events::Events;
use super::held::{Held, Reply};
use super::hosts::Hosts;
use super::server::{Server, period};

/// What a request does to a node's memory or processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Bytes come back.
    Read,
    /// Bytes go there.
    Write,
    /// A compare-and-swap, masked or not, or a fetch-and-add.
    Atomic,
    /// The same of a word in the memory of the node's card, which does not cross the bus.
    AtomicOnChip,
    /// A message to the node's processor, which works on it for this long; `bytes` go there, these
    /// come back.
    Call {
        /// Time of a core.
        service: Picos,
        /// Payload of the reply.
        reply: u32,
        /// Which of its cores; the one that is free first, if it is all the same.
        core: Option<u16>,
    },
}

/// A node that serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A memory node, by number.
    Memory(u16),
    /// A compute node, by number: some systems READ each other's caches.
    Compute(u16),
}

/// One request of a doorbell batch, as far as cards see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it goes.
    pub to: Target,
    /// What it is.
    pub verb: Verb,
    /// Payload in bytes.
    pub bytes: u32,
}

/// What a client wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The requests that were put into the list.
    Post,
    /// Nothing: an operation has ended, and the next one may begin.
    Ended,
    /// To be [woken](Clients::next_woken) by what another client of its compute node does.
    Waits,
    /// Nothing for good.
    Stopped,
}

/// Work of a memory node's processor besides calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// The memory node.
    pub node: u16,
    /// Which of its cores; the one that is free first, if it is all the same.
    pub core: Option<u16>,
    /// Time of the core.
    pub service: Picos,
}

/// Who runs on the compute nodes, and what their requests do.
pub trait Clients {
    /// Takes what the client's last batch brought, or begins its next operation; puts the requests
    /// to post into `requests`, which is empty.
    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step;

    /// These requests of the client's batch take effect. Returns a core's time that calls among
    /// them take besides what they say: the work may show only when they are done.
    fn serve(&mut self, client: usize, requests: Range<usize>) -> Picos;

    /// A client that waits no longer. Asked after every step until there is none.
    fn next_woken(&mut self) -> Option<usize> {
        None
    }

    /// What a memory node's processor begins to do besides calls. Asked after all that requests do,
    /// and after the end of such work, until there is none.
    fn next_background(&mut self) -> Option<Background> {
        None
    }

    /// Such work of a memory node has ended.
    fn end_background(&mut self, node: u16) {
        let _ = node;
    }
}

/// The times a card's stages take, worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periods {
    pub(super) issue: Picos,
    serve: Picos,
    write: Picos,
    atomic: Picos,
    atomic_on_chip: Picos,
    /// Time on the link of a message without payload, and of an atomic's operands.
    pub(super) header: Picos,
    atomic_bytes: Picos,
}

/// A client's batch under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub(super) requests: Vec<Request>,
    runs: Vec<Run>,
    /// Requests whose replies are not back yet.
    pub(super) left: usize,
    /// When the last reply so far is back.
    pub(super) back: Picos,
    /// Its thread's time for what came back and ended before the client waited for another: the
    /// next batch leaves after it.
    owed: Picos,
}

/// Requests of a batch to one node, which go there together.
#[derive(Clone, Debug)]
struct Run {
    to: Target,
    requests: Range<usize>,
    /// When the last of them has left.
    left_at: Picos,
}

/// Nodes, their cards, and the events to come.
#[derive(Debug)]
pub struct World {
    pub(super) hosts: Hosts,
    pub(super) periods: Periods,
    pub(super) now: Picos,
    /// Of clients, or nodes, and what happens: of each compute node what leaves it has a lane, and
    /// what comes back another; of each memory node what its cores have done, and replies on their
    /// way; of compute nodes together those of theirs.
    pub(super) events: Events,
    pub(super) memory: Vec<Card>,
    pub(super) compute: Vec<Card>,
    pub(super) cores: Vec<Vec<Server>>,
    pub(super) threads: Vec<Server>,
    pub(super) flights: Vec<Flight>,
    /// Replies that memory nodes, and after them compute nodes, send later than others.
    pub(super) held: Vec<Held>,
    /// Whether all replies come from one port, which sends them in the order in which they arrive.
    pub(super) one_source: bool,
}

/// The event of a client that steps; others are the arrivals of its runs.
const READY: u32 = u32::MAX;
/// The end of work that a memory node's processor does besides calls; the client is the node.
const WORKED: u32 = u32::MAX - 1;
/// A client's batch is at its card.
const POSTED: u32 = u32::MAX - 3;
/// A reply that is held may leave; the client is the node, by its [place](World::place_of).
pub(super) const REPLIES: u32 = u32::MAX - 2;
/// The reply to a request is at its client's node, with the request's number.
pub(super) const RETURNS: u32 = 1 << 31;

impl World {
    /// At time 0, with every client about to begin.
    pub fn new(hosts: Hosts) -> Self {
        let nic = &hosts.nic;
        let periods = Periods {
            issue: period(nic.issued_per_second),
            serve: period(nic.served_per_second),
            write: period(nic.writes_per_second),
            atomic: period(nic.atomics_per_second),
            atomic_on_chip: period(nic.atomics_on_chip_per_second),
            header: nic.bytes(0),
            atomic_bytes: nic.bytes(16),
        };
        let cards = |nodes: u16| vec![Card::default(); usize::from(nodes)];
        let cores = vec![vec![Server::default(); hosts.cores.max(1).into()]; hosts.memory_nodes.into()];
        let mut world = Self {
            hosts,
            periods,
            now: 0,
            events: Events::new(2 * (usize::from(hosts.compute_nodes) + usize::from(hosts.memory_nodes) + 1)),
            memory: cards(hosts.memory_nodes),
            compute: cards(hosts.compute_nodes),
            cores,
            threads: vec![Server::default(); hosts.all_threads()],
            flights: vec![Flight::default(); hosts.clients()],
            held: vec![Held::new(); usize::from(hosts.memory_nodes) + usize::from(hosts.compute_nodes)],
            one_source: hosts.memory_nodes <= 1,
        };
        (0..hosts.clients() as u32).for_each(|client| world.ready(0, client));
        world
    }

    /// The time.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// A client will step.
    #[inline]
    pub(super) fn ready(&mut self, at: Picos, client: u32) {
        self.events.push(2 * self.hosts.node_of(client as usize), at, (client, READY));
    }

    /// Lets events happen until `operations` more have ended or all clients have stopped: how many
    /// have ended.
    pub fn run<C: Clients>(&mut self, clients: &mut C, operations: u64) -> u64 {
        let mut ended = 0;
        while ended < operations {
            let Some((time, (client, what))) = self.events.pop() else { break };
            self.now = time;
            match what {
                READY => ended += self.step(clients, client),
                WORKED => {
                    clients.end_background(client as u16);
                    self.begin_background(clients);
                }
                REPLIES => self.send_held(client as usize, self.now),
                POSTED => self.issue(client),
                returns if returns & RETURNS != 0 => self.return_to(client, returns & !RETURNS),
                run => self.arrive(clients, client, run),
            }
        }
        ended
    }

    /// Steps a client until it waits, and says how many operations it has ended.
    fn step<C: Clients>(&mut self, clients: &mut C, client: u32) -> u64 {
        let index = client as usize;
        let flight = &mut self.flights[index];
        // One request of a doorbell signals completion, whatever their number.
        let completion = if flight.requests.is_empty() { 0 } else { self.hosts.nic.completion };
        let mut cpu = std::mem::take(&mut flight.owed) + completion;
        let mut ended = 0;
        flight.requests.clear();
        let posts = loop {
            match clients.step(index, self.now, &mut flight.requests) {
                Step::Post => break true,
                Step::Stopped => break false,
                Step::Waits => {
                    flight.owed = cpu;
                    break false;
                }
                Step::Ended => {
                    ended += 1;
                    cpu += self.hosts.operation;
                }
            }
        };
        while let Some(woken) = clients.next_woken() {
            self.ready(self.now, woken as u32);
        }
        if posts {
            self.post(client, cpu);
        }
        ended
    }

    /// Has a client's thread post its batch.
    fn post(&mut self, client: u32, cpu: Picos) {
        let nic = &self.hosts.nic;
        let flight = &mut self.flights[client as usize];
        let cpu = cpu + nic.doorbell + flight.requests.len() as Picos * nic.request;
        let posted = self.threads[self.hosts.thread_of(client as usize)].take(self.now, cpu);
        flight.back = posted;
        flight.left = flight.requests.len();
        match flight.left {
            0 => self.ready(posted, client),
            _ => self.events.push(2 * self.hosts.node_of(client as usize), posted, (client, POSTED)),
        }
    }

    /// Sends a batch that has been posted on its way. Batches of a card's threads are issued as
    /// they come, however long those take to post them.
    fn issue(&mut self, client: u32) {
        let nic = &self.hosts.nic;
        let (flight, posted) = (&mut self.flights[client as usize], self.now);
        let card = &mut self.compute[self.hosts.node_of(client as usize)];
        flight.runs.clear();
        for (i, request) in flight.requests.iter().enumerate() {
            let bytes = match request.verb {
                Verb::Read => self.periods.header,
                Verb::Atomic | Verb::AtomicOnChip => self.periods.atomic_bytes,
                Verb::Write | Verb::Call { .. } => nic.bytes(request.bytes),
            };
            let issued = card.issue.take(posted, self.periods.issue);
            let left_at = card.transmit.take(issued, bytes);
            match flight.runs.last_mut() {
                Some(run) if run.to == request.to => {
                    run.requests.end = i + 1;
                    run.left_at = left_at;
                }
                _ => flight.runs.push(Run { to: request.to, requests: i..i + 1, left_at }),
            }
        }
        self.one_source &= flight.runs.iter().all(|run| matches!(run.to, Target::Memory(_)));
        let lane = 2 * self.hosts.node_of(client as usize) + 1;
        for run in 0..flight.runs.len() {
            let arrives = self.flights[client as usize].runs[run].left_at + self.hosts.nic.one_way;
            self.events.push(lane, arrives, (client, run as u32));
        }
    }

    /// Has cores do the work there is besides calls.
    #[inline]
    fn begin_background<C: Clients>(&mut self, clients: &mut C) {
        while let Some(Background { node, core, service }) = clients.next_background() {
            let done = self.work_on((node, core), self.now, service);
            self.events.push(self.lane_of_replies(Target::Memory(node)), done, (node.into(), WORKED));
        }
    }

    /// A memory node's core, or the one that is free first, works for so long: when it is done.
    fn work_on(&mut self, (node, core): (u16, Option<u16>), at: Picos, service: Picos) -> Picos {
        let cores = &mut self.cores[usize::from(node)];
        let core = match core {
            Some(core) => cores.get_mut(usize::from(core)),
            None => cores.iter_mut().min_by_key(|core| core.free_at()),
        };
        core.map_or(at, |core| core.take(at, service))
    }

    /// A run of requests is at its node's card.
    fn arrive<C: Clients>(&mut self, clients: &mut C, client: u32, run: u32) {
        let index = client as usize;
        let Run { to, requests, .. } = self.flights[index].runs[run as usize].clone();
        let mut besides = clients.serve(index, requests.clone());
        self.begin_background(clients);
        for i in requests {
            let request = self.flights[index].requests[i];
            let ready = self.serve(to, &request, &mut besides);
            let is_message = matches!(request.verb, Verb::Call { .. });
            self.reply(to, Reply { ready, client, request: i as u32, is_message });
        }
    }

    /// When a request that has arrived now will have been served, reply not yet sent. A call takes
    /// the time `besides`.
    fn serve(&mut self, to: Target, request: &Request, besides: &mut Picos) -> Picos {
        let bytes = match request.verb {
            Verb::Read | Verb::Atomic | Verb::AtomicOnChip => self.periods.header,
            Verb::Write | Verb::Call { .. } => self.hosts.nic.bytes(request.bytes),
        };
        let (now, service) = (
            self.now,
            match request.verb {
                Verb::Atomic => self.periods.atomic,
                Verb::AtomicOnChip => self.periods.atomic_on_chip,
                Verb::Write => self.periods.write,
                Verb::Read | Verb::Call { .. } => self.periods.serve,
            },
        );
        let card = self.card(to);
        let received = card.receive.take(now, bytes);
        let served = card.serve.take(received, service);
        match (request.verb, to) {
            (Verb::Call { service, core, .. }, Target::Memory(node)) => {
                self.work_on((node, core), served, service + std::mem::take(besides))
            }
            _ => served,
        }
    }

    pub(super) fn card(&mut self, of: Target) -> &mut Card {
        match of {
            Target::Memory(node) => &mut self.memory[usize::from(node)],
            Target::Compute(node) => &mut self.compute[usize::from(node)],
        }
    }

    /// A node's place among all: memory nodes are the first.
    pub(super) fn place_of(&self, node: Target) -> usize {
        match node {
            Target::Memory(node) => node.into(),
            Target::Compute(node) => usize::from(self.hosts.memory_nodes) + usize::from(node),
        }
    }

    /// The lane of what a node's cores have done: compute nodes share one.
    pub(super) fn lane_of_replies(&self, of: Target) -> usize {
        2 * usize::from(self.hosts.compute_nodes) + self.place_of(of).min(self.hosts.memory_nodes.into())
    }

    /// The lane of a node's replies on their way.
    pub(super) fn lane_of_returns(&self, of: Target) -> usize {
        self.lane_of_replies(of) + usize::from(self.hosts.memory_nodes) + 1
    }
}
