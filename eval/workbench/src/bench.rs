//! Clients of one system: operations from a stream, every answer checked, everything counted.

mod measured;
mod operation;
mod recency;
mod tally;

use std::ops::Range;

use hdrhistogram::Histogram;
pub use measured::{Footprint, HotCache, Measured};
pub use operation::{Answer, Operation};
pub use tally::Tally;

use self::recency::Recency;
use crate::delegation::{Delegation, Role};
use crate::nic::{Background, Clients, Hosts, Picos, Request, Step, World};
use crate::oracle::Oracle;

/// What an operation wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The requests that were put into the list.
    Post,
    /// To be [woken](System::next_woken) by what another client of its compute node does.
    Waits,
    /// Nothing: here is the answer.
    Done(Answer),
}

/// An index over disaggregated memory, with its clients' state.
pub trait System {
    /// Begins an operation of a client, which has none.
    fn begin(&mut self, client: usize, operation: Operation);

    /// Takes what the last batch brought and puts the next one's requests into `requests`, which is
    /// empty.
    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Progress;

    /// These requests of the client's batch take effect. Returns a core's time that calls among
    /// them take besides what they say.
    fn serve(&mut self, client: usize, requests: Range<usize>) -> Picos;

    /// A client that waits no longer. Asked after every step until there is none.
    fn next_woken(&mut self) -> Option<usize> {
        None
    }

    /// What a memory node's processor begins to do besides calls.
    fn next_background(&mut self) -> Option<Background> {
        None
    }

    /// Such work of a memory node has ended.
    fn end_background(&mut self, node: u16) {
        let _ = node;
    }

    /// Bytes it takes now.
    fn footprint(&self) -> Footprint;

    /// Its hot caches, if it has any.
    fn hot_cache(&self) -> Option<HotCache> {
        None
    }

    /// Whether clients of a compute node that want one key at a time have one of them look it up
    /// for all.
    fn delegates(&self) -> bool {
        false
    }
}

/// A client's operation under way.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    operation: Operation,
    /// When it began.
    begun: Picos,
    /// When the client began the whole of which this is a part, and what it is to do after it.
    asked: Picos,
    then: Option<Operation>,
    /// Doorbell batches so far.
    round_trips: u32,
    state: State,
}

/// What a client's operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The system's next step.
    Runs,
    /// Another client's lookup of its key.
    Waits,
    /// Its own beginning, for clients that wait as well.
    Leads,
    /// Nothing: another's lookup had this answer.
    Has(Option<u64>),
}

/// Clients of one system that share a stream of operations.
pub struct Bench<'o, S> {
    /// Of each compute node, where the system delegates.
    delegation: Vec<Delegation>,
    woken: Vec<usize>,
    hosts: Hosts,
    system: S,
    operations: &'o [Operation],
    next: usize,
    in_flight: Vec<Option<InFlight>>,
    oracle: Oracle,
    /// Where operations' keys are ranks by age.
    recency: Option<Recency>,
    tally: Tally,
    latency: Histogram<u64>,
    wrong: u64,
    first_wrong: Option<String>,
}

/// Latencies are kept in nanoseconds, to three digits, up to ten seconds: longer ones count as
/// that.
const DIGITS: u8 = 3;
const LONGEST: u64 = 10_000_000_000;

impl<'o, S: System> Bench<'o, S> {
    /// Clients that take these operations in their order, over what the oracle knows.
    pub fn new(system: S, hosts: &Hosts, operations: &'o [Operation], oracle: Oracle) -> Self {
        #[allow(
            clippy::unwrap_used,
            reason = "three digits are within one to five, and ten seconds are more than two nanoseconds"
        )]
        let latency = Histogram::new_with_max(LONGEST, DIGITS).unwrap();
        let in_flight = vec![None; hosts.clients()];
        let (tally, wrong, first_wrong) = (Tally::default(), 0, None);
        let nodes = if system.delegates() { hosts.compute_nodes } else { 0 };
        Self {
            delegation: (0..nodes).map(|_| Delegation::default()).collect(),
            woken: Vec::new(),
            hosts: *hosts,
            system,
            operations,
            next: 0,
            in_flight,
            oracle,
            recency: None,
            tally,
            latency,
            wrong,
            first_wrong,
        }
    }

    /// The same with operations whose keys, but those of inserts, say how many newer keys there are
    /// when they begin. Loaded ones are the older, the lower they are.
    #[must_use]
    pub fn by_recency(self) -> Self {
        let recency = Some(Recency::new(self.oracle.loaded_keys()));
        Self { recency, ..self }
    }

    /// Runs the stream in these machines: `warm` operations that fill caches, then the measured
    /// ones. Those that the last ones leave under way are dropped.
    pub fn run(self, hosts: Hosts, warm: u64) -> Measured {
        self.run_in_windows(hosts, warm, u64::MAX)
    }

    /// The same, with the throughput of each `window` of the measured operations.
    pub fn run_in_windows(mut self, hosts: Hosts, warm: u64, window: u64) -> Measured {
        let mut world = World::new(hosts);
        world.run(&mut self, warm);
        self.tally = Tally::default();
        self.latency.reset();
        let cached_before = self.system.footprint().cached;
        let (before, cache_before) = (world.work(), self.system.hot_cache().unwrap_or_default());
        // Clients that have nothing to do any more would idle what is measured.
        let clients = hosts.clients() as u64;
        let mut left = (self.operations.len() as u64).saturating_sub(warm + clients);
        let mut windows = Vec::new();
        while left >= window {
            let begun = world.now();
            world.run(&mut self, window);
            left -= window;
            windows.push(window as f64 / ((world.now() - begun).max(1) as f64 * 1e-12));
        }
        world.run(&mut self, left);
        let usage = world.usage_since(&before);
        let seconds = (world.now() - before.now()).max(1) as f64 * 1e-12;
        Measured {
            per_second: self.tally.operations as f64 / seconds,
            tally: self.tally,
            latency_us: [50.0, 95.0, 99.0, 99.9].map(|p| self.latency.value_at_percentile(p) as f64 / 1e3),
            usage,
            bound: usage.bound(),
            one_trip: self.tally.per_operation(self.tally.single_trips),
            footprint: self.system.footprint(),
            cached_before,
            hot_cache: self.system.hot_cache().map(|cache| cache.since(cache_before)),
            wrong: self.wrong,
            first_wrong: self.first_wrong,
            windows,
        }
    }

    /// Counts an operation that has ended with this part of it.
    fn end(&mut self, flight: InFlight, now: Picos) {
        self.tally.operations += 1;
        self.tally.single_trips += u64::from(flight.round_trips == 1);
        self.latency.saturating_record((now - flight.asked) / 1000);
    }

    /// Holds an answer against what the oracle knows.
    fn judge(&mut self, flight: InFlight, now: Picos, answer: &Answer) {
        self.tally.delegated += u64::from(matches!(flight.state, State::Has(_)));
        let oldest = || self.in_flight.iter().flatten().map(|flight| flight.begun).min().unwrap_or(now);
        let judged = match (flight.operation, answer) {
            (Operation::Read { key }, Answer::Value(value)) => {
                self.tally.lookups += 1;
                self.tally.absent += u64::from(value.is_none());
                self.oracle.is_right(key, *value, (flight.begun, now))
            }
            (Operation::Update { key, value, .. } | Operation::Insert { key, value }, Answer::Written) => {
                self.oracle.end_write(key, value, now, oldest());
                if let (Operation::Insert { key, .. }, Some(recency)) = (flight.operation, &mut self.recency)
                {
                    recency.inserted(key);
                }
                true
            }
            // Its insert may be under way.
            (Operation::Update { key, value, .. }, Answer::Absent) => {
                self.oracle.withdraw_write(key, value);
                self.oracle.is_right(key, None, (flight.begun, now))
            }
            (Operation::Scan { key, count }, Answer::Records(records)) => {
                self.oracle.is_right_scan((key, count as usize), records, (flight.begun, now))
            }
            _ => false,
        };
        if !judged {
            self.wrong += 1;
            self.first_wrong.get_or_insert_with(|| format!("{:?} was answered {answer:?}", flight.operation));
        }
    }
}

impl<S: System> Bench<'_, S> {
    /// A client's next operation begins; `false` if there is none.
    fn begin(&mut self, client: usize, now: Picos) -> bool {
        let Some(operation) = self.operations.get(self.next).copied() else { return false };
        self.next += 1;
        let operation = self.recency.as_ref().map_or(operation, |recency| recency.resolve(operation));
        // Operations take hundreds of events, and the oracle's memory is far away.
        self.oracle.prefetch(operation.key());
        let (operation, then) = operation.parts();
        let state = State::Runs;
        self.begin_part(client, InFlight { operation, begun: now, asked: now, then, round_trips: 0, state });
        true
    }

    /// A part of a client's operation begins, or all of it.
    fn begin_part(&mut self, client: usize, flight: InFlight) {
        let mut state = State::Runs;
        match flight.operation {
            Operation::Update { key, value, .. } | Operation::Insert { key, value } => {
                self.oracle.begin_write(key, value, flight.begun);
            }
            Operation::Read { key } => {
                let delegation = self.delegation.get_mut(self.hosts.node_of(client));
                if delegation.is_some_and(|delegation| delegation.ask(client, key) == Role::Waits) {
                    state = State::Waits;
                }
            }
            Operation::Scan { .. } => {}
        }
        if state == State::Runs {
            self.system.begin(client, flight.operation);
        }
        self.in_flight[client] = Some(InFlight { state, ..flight });
    }

    /// Goes on with what a client has under way: its answer, or what else there is to be done.
    fn go_on(
        &mut self,
        client: usize,
        flight: InFlight,
        now: Picos,
        requests: &mut Vec<Request>,
    ) -> Result<Answer, Step> {
        match flight.state {
            State::Runs => {}
            State::Waits => return Err(Step::Waits),
            State::Leads => {
                self.system.begin(client, flight.operation);
                if let Some(flight) = &mut self.in_flight[client] {
                    flight.state = State::Runs;
                }
            }
            State::Has(value) => return Ok(Answer::Value(value)),
        }
        match self.system.step(client, now, requests) {
            Progress::Post => {
                if let Some(flight) = &mut self.in_flight[client] {
                    flight.round_trips += 1;
                }
                self.tally.count(requests);
                Err(Step::Post)
            }
            Progress::Waits => Err(Step::Waits),
            Progress::Done(answer) => {
                self.share(client, flight.operation, &answer);
                Ok(answer)
            }
        }
    }

    /// Tells those who wait for a lookup that it has ended.
    fn share(&mut self, client: usize, operation: Operation, answer: &Answer) {
        let (Operation::Read { key }, Answer::Value(value)) = (operation, answer) else { return };
        let Some(delegation) = self.delegation.get_mut(self.hosts.node_of(client)) else { return };
        let ended = delegation.end(key);
        let states = ended.shared.iter().map(|other| (*other, State::Has(*value)));
        for (other, state) in states.chain(ended.next.map(|other| (other, State::Leads))) {
            if let Some(flight) = &mut self.in_flight[other] {
                flight.state = state;
                self.woken.push(other);
            }
        }
    }
}

impl<S: System> Clients for Bench<'_, S> {
    fn step(&mut self, client: usize, now: Picos, requests: &mut Vec<Request>) -> Step {
        if self.in_flight[client].is_none() && !self.begin(client, now) {
            return Step::Stopped;
        }
        while let Some(flight) = self.in_flight[client] {
            let answer = match self.go_on(client, flight, now, requests) {
                Ok(answer) => answer,
                Err(step) => return step,
            };
            self.in_flight[client] = None;
            self.judge(flight, now, &answer);
            match flight.then {
                Some(operation) => {
                    self.begin_part(client, InFlight { operation, begun: now, then: None, ..flight });
                }
                None => self.end(flight, now),
            }
        }
        Step::Ended
    }

    fn serve(&mut self, client: usize, requests: Range<usize>) -> Picos {
        self.system.serve(client, requests)
    }

    fn next_woken(&mut self) -> Option<usize> {
        self.woken.pop().or_else(|| self.system.next_woken())
    }

    fn next_background(&mut self) -> Option<Background> {
        self.system.next_background()
    }

    fn end_background(&mut self, node: u16) {
        self.tally.background += 1;
        self.system.end_background(node);
    }
}
