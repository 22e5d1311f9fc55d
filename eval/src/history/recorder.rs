//! Recording of histories, with one log per process.

use std::time::Instant;

use fpcache_client::Plan;
use hashbrown::HashMap;

use super::operation::{Call, NEVER, Operation, Outcome, Scanned};

/// Nanoseconds since `start`, as a source of instants for threads of one machine: its clock is the
/// same on all cores. Unlike a counter that all threads add to, it puts no fence and no shared
/// cache line around the calls, which could hide the very faults that are looked for. Calls that
/// end and begin in the same nanosecond count as concurrent.
pub fn nanoseconds_since(start: Instant) -> impl Fn() -> u64 + Clone + Send + Sync {
    move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(NEVER - 1)
}

/// The log of one process: a thread, or whatever else makes calls. Nothing is shared with other
/// logs but the source of instants `C`, which must never run backwards from one process to another.
#[derive(Clone, Debug)]
pub struct Recorder<C> {
    process: u32,
    name: String,
    instants: C,
    pub(super) operations: Vec<Operation>,
    pub(super) records: Vec<(u64, u64)>,
}

/// A call that has not returned.
#[must_use = "a call whose return is not recorded has an unknown outcome"]
#[derive(Debug)]
pub struct Open(usize);

impl<C> Recorder<C> {
    /// Who calls.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// What reports call the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was recorded, in the order of invocation.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Forgets what was recorded and keeps the room for more. No call may be open.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.records.clear();
    }
}

impl<C: Fn() -> u64> Recorder<C> {
    /// An empty log. `name` says in reports how this process does its calls: plan, cache, kind of
    /// client.
    pub fn new(process: u32, name: impl Into<String>, instants: C) -> Self {
        Self { process, name: name.into(), instants, operations: Vec::new(), records: Vec::new() }
    }

    /// Notes that a call begins. Until its return is recorded its outcome is unknown, whatever
    /// becomes of the process.
    ///
    /// Several calls may be open at once: the keys of a group, or writes in flight. Then those that
    /// write a key must take effect in the order in which they begin, and before a read of the key
    /// that begins later, unless they have no answer: the check holds the store to that. Callers
    /// without such an order need logs, and processes, of their own.
    pub fn invoke(&mut self, key: u64, call: Call) -> Open {
        let invoked = (self.instants)();
        self.operations.push(Operation {
            process: self.process,
            plan: None,
            key,
            call,
            outcome: Outcome::Unknown,
            invoked,
            returned: NEVER,
        });
        Open(self.operations.len() - 1)
    }

    /// Notes how a call ended, and the plan that gave the answer. [`Outcome::Unknown`] leaves it as
    /// it is.
    pub fn returned(&mut self, open: Open, outcome: Outcome, plan: Option<Plan>) {
        let now = (self.instants)();
        let Some(operation) = self.operations.get_mut(open.0) else { return };
        operation.plan = plan;
        if outcome != Outcome::Unknown {
            operation.outcome = outcome;
            operation.returned = now;
        }
    }

    /// Notes that writes without an answer came before the next write of the same key that has one,
    /// as a pipeline promises; a refused one is none, since it may not have been sent.
    pub fn end_unknown_writes(&mut self) {
        let mut ends = HashMap::new();
        for operation in self.operations.iter_mut().rev().filter(|operation| operation.call.writes()) {
            match operation.outcome {
                Outcome::Refused => {}
                Outcome::Unknown => {
                    operation.returned = ends.get(&operation.key).copied().unwrap_or(operation.returned);
                }
                _ => drop(ends.insert(operation.key, operation.returned)),
            }
        }
    }

    /// Notes what a scan returned, in the order in which it did.
    pub fn scanned(&mut self, open: Open, records: impl IntoIterator<Item = (u64, u64)>, plan: Option<Plan>) {
        let first = self.records.len();
        self.records.extend(records);
        // Not before: the records may be a scan that is still going on.
        let now = (self.instants)();
        let count = u32::try_from(self.records.len() - first).unwrap_or(u32::MAX);
        let Some(operation) = self.operations.get_mut(open.0) else { return };
        operation.plan = plan;
        operation.outcome = Outcome::Scanned(Scanned { first: first as u64, count });
        operation.returned = now;
    }

    /// Records a call that touches one key.
    pub fn record(&mut self, key: u64, call: Call, run: impl FnOnce() -> (Outcome, Option<Plan>)) -> Outcome {
        let open = self.invoke(key, call);
        let (outcome, plan) = run();
        self.returned(open, outcome, plan);
        outcome
    }
}
