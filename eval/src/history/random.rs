//! Histories that are correct by construction, to test checkers and their speed.
//!
//! Processes take turns at random. A turn begins a call, applies it to a `BTreeMap`, or returns its
//! outcome, so every call takes effect within its interval. A scan takes one turn per record. A
//! call without an answer takes effect at some later turn, or never.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use rand::Rng;

use super::History;
use super::operation::{Call, Outcome};
use super::recorder::{Open, Recorder};

/// How a random history looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Processes, at least one.
    pub processes: u32,
    /// Keys, at least one, from 0; about half of them are there at first.
    pub keys: u64,
    /// Calls that begin.
    pub operations: usize,
    /// Share of calls that are gets, one in four of whether the key is there.
    pub gets: f64,
    /// Share of calls that are scans.
    pub scans: f64,
    /// The most records a scan asks for, at least one.
    pub scan_limit: u32,
    /// Share of calls without an answer.
    pub unknown: f64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { processes: 4, keys: 8, operations: 100, gets: 0.4, scans: 0.05, scan_limit: 8, unknown: 0.0 }
    }
}

/// Does a call that is no scan to a map, and says how it ends: what memory nodes have to do, one
/// call at a time.
pub fn apply(model: &mut BTreeMap<u64, u64>, key: u64, call: Call) -> Outcome {
    let now = model.get(&key).copied();
    let (after, outcome) = match (call, now) {
        (Call::Get, Some(value)) => return Outcome::Found(value),
        (Call::Contains | Call::Insert(_), Some(_)) => return Outcome::Exists,
        (Call::CompareAndSet { expected, .. }, Some(value)) if value != expected => return Outcome::Differs,
        (Call::Get | Call::Contains | Call::Update(_) | Call::Delete | Call::CompareAndSet { .. }, None) => {
            return Outcome::Absent;
        }
        (call, _) if call.is_by_order() => return Outcome::Refused,
        (call, _) => (call.written(), Outcome::Done),
    };
    match after {
        Some(value) => model.insert(key, value),
        None => model.remove(&key),
    };
    outcome
}

/// A random history that is linearizable.
pub fn generate(shape: &Shape, random: &mut impl Rng) -> History {
    let instant = Cell::new(0);
    let instants = || instant.replace(instant.get() + 1);
    let mut model = BTreeMap::new();
    let mut values = 0..;
    let mut value = || values.next().unwrap_or(u64::MAX);
    for key in 0..shape.keys {
        if random.random() {
            model.insert(key, value());
        }
    }
    let initial = model.clone();
    let mut store = Store { model, lost: Vec::new(), seen: initial.clone() };
    let mut processes: Vec<_> = (0..shape.processes)
        .map(|process| Process { log: Recorder::new(process, "", instants), doing: Doing::Nothing })
        .collect();
    let mut left = shape.operations;
    let mut busy = 0;
    while left > 0 || busy > 0 {
        let process = random.random_range(0..processes.len());
        let Some(process) = processes.get_mut(process) else { break };
        if matches!(process.doing, Doing::Nothing) {
            if left > 0 {
                process.begin(shape, &store, &mut value, random);
                left -= 1;
                busy += 1;
            }
            continue;
        }
        process.go_on(shape, &mut store, random);
        busy -= usize::from(matches!(process.doing, Doing::Nothing));
        store.do_a_lost_call(random);
    }
    History::merge(initial, processes.into_iter().map(|process| process.log))
}

/// What the processes share.
struct Store {
    model: BTreeMap<u64, u64>,
    /// Calls that are no longer waited for.
    lost: Vec<(u64, Call)>,
    /// A value that each key has or had.
    seen: BTreeMap<u64, u64>,
}

impl Store {
    fn apply(&mut self, key: u64, call: Call) -> Outcome {
        let outcome = apply(&mut self.model, key, call);
        if let Some(value) = call.written().filter(|_| outcome == Outcome::Done) {
            self.seen.insert(key, value);
        }
        outcome
    }

    fn do_a_lost_call(&mut self, random: &mut impl Rng) {
        if !self.lost.is_empty() && random.random_bool(0.05) {
            let (key, call) = self.lost.swap_remove(random.random_range(0..self.lost.len()));
            if random.random() {
                self.apply(key, call);
            }
        }
    }
}

enum Doing {
    Nothing,
    Call(Open, u64, Call),
    Scan { open: Open, from: Bound<u64>, limit: usize, found: Vec<(u64, u64)> },
    Return(Open, Outcome),
}

struct Process<C> {
    log: Recorder<C>,
    doing: Doing,
}

impl<C: Fn() -> u64> Process<C> {
    fn begin(
        &mut self,
        shape: &Shape,
        store: &Store,
        value: &mut impl FnMut() -> u64,
        random: &mut impl Rng,
    ) {
        let key = random.random_range(0..shape.keys.max(1));
        let sort: f64 = random.random();
        if sort < shape.scans {
            let limit = random.random_range(1..=shape.scan_limit.max(1));
            let open = self.log.invoke(key, Call::Scan { limit });
            let from = Bound::Included(key);
            self.doing = Doing::Scan { open, from, limit: limit as usize, found: Vec::new() };
            return;
        }
        let call = match random.random_range(0..5) {
            _ if sort < shape.scans + shape.gets / 4.0 => Call::Contains,
            _ if sort < shape.scans + shape.gets => Call::Get,
            0 => Call::Insert(value()),
            1 => Call::Put(value()),
            2 => Call::Update(value()),
            3 => Call::Delete,
            _ => match store.seen.get(&key) {
                Some(&expected) => Call::CompareAndSet { expected, value: value() },
                None => Call::Insert(value()),
            },
        };
        self.doing = Doing::Call(self.log.invoke(key, call), key, call);
    }

    fn go_on(&mut self, shape: &Shape, store: &mut Store, random: &mut impl Rng) {
        self.doing = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => Doing::Nothing,
            Doing::Call(_, key, call) if random.random_bool(shape.unknown) => {
                store.lost.push((key, call));
                Doing::Nothing
            }
            Doing::Call(open, key, call) => {
                let outcome = store.apply(key, call);
                // Done, but the answer gets lost.
                let lost = random.random_bool(shape.unknown);
                Doing::Return(open, if lost { Outcome::Unknown } else { outcome })
            }
            Doing::Scan { open, from, limit, mut found } => {
                match store.model.range((from, Bound::Unbounded)).next().filter(|_| found.len() < limit) {
                    Some((&key, &value)) => {
                        found.push((key, value));
                        Doing::Scan { open, from: Bound::Excluded(key), limit, found }
                    }
                    None => {
                        self.log.scanned(open, found, None);
                        Doing::Nothing
                    }
                }
            }
            Doing::Return(open, outcome) => {
                self.log.returned(open, outcome, None);
                Doing::Nothing
            }
        };
    }
}
