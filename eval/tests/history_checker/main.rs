//! The checker calls right histories right and wrong ones wrong, and its reports show why.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod brute;
mod by_hand;
mod order;
mod properties;

use std::cell::Cell;
use std::collections::BTreeMap;

use fpcache_eval::history::{Call, Checked, History, Outcome, Recorder, check};

/// Processes of single calls count from here.
const OWN: u32 = 1_000;

/// Calls with the instants before and after them, each by a process of its own unless it says whose
/// it is.
#[derive(Debug, Default)]
pub struct Script {
    initial: Vec<(u64, u64)>,
    calls: Vec<(u64, Call, Answer, u64, u64)>,
    /// Whose calls they are that have no process of their own.
    processes: BTreeMap<usize, u32>,
    /// Writes without an answer end, as those of pipelines do.
    pipelined: bool,
}

#[derive(Clone, Debug)]
enum Answer {
    One(Outcome),
    Records(Vec<(u64, u64)>),
}

impl Script {
    /// No calls yet, on a store that holds these records.
    pub fn from(initial: &[(u64, u64)]) -> Self {
        Self { initial: initial.to_vec(), ..Self::default() }
    }

    /// Adds a call.
    pub fn call(mut self, key: u64, call: Call, outcome: Outcome, from: u64, to: u64) -> Self {
        self.calls.push((key, call, Answer::One(outcome), from, to));
        self
    }

    /// The last call is one of this process.
    pub fn by(mut self, process: u32) -> Self {
        self.processes.insert(self.calls.len() - 1, process);
        self
    }

    /// All calls of a process are of a pipeline.
    pub fn pipelined(self) -> Self {
        Self { pipelined: true, ..self }
    }

    /// Adds a scan.
    pub fn scan(mut self, start: u64, limit: u32, records: &[(u64, u64)], from: u64, to: u64) -> Self {
        self.calls.push((start, Call::Scan { limit }, Answer::Records(records.to_vec()), from, to));
        self
    }

    /// Adds a scan that goes down.
    pub fn scan_back(mut self, start: u64, limit: u32, records: &[(u64, u64)], from: u64, to: u64) -> Self {
        self.calls.push((start, Call::ScanBack { limit }, Answer::Records(records.to_vec()), from, to));
        self
    }

    /// Adds a call that returned these records: a scan of a range, for example.
    pub fn records(mut self, key: u64, call: Call, records: &[(u64, u64)], from: u64, to: u64) -> Self {
        self.calls.push((key, call, Answer::Records(records.to_vec()), from, to));
        self
    }

    /// Adds a floor or a ceiling.
    pub fn nearest(mut self, key: u64, call: Call, found: Option<(u64, u64)>, from: u64, to: u64) -> Self {
        self.calls.push((key, call, Answer::Records(found.into_iter().collect()), from, to));
        self
    }

    /// What the callers saw.
    pub fn history(&self) -> History {
        let instant = Cell::new(0);
        let mut logs: BTreeMap<u32, Recorder<_>> = BTreeMap::new();
        for (at, (key, call, answer, from, to)) in self.calls.iter().enumerate() {
            let process = self.processes.get(&at).copied().unwrap_or(OWN + at as u32);
            let log =
                logs.entry(process).or_insert_with(|| Recorder::new(process, "by hand", || instant.get()));
            instant.set(*from);
            let open = log.invoke(*key, *call);
            instant.set(*to);
            match answer {
                Answer::One(outcome) => log.returned(open, *outcome, None),
                Answer::Records(records) => log.scanned(open, records.iter().copied(), None),
            }
        }
        if self.pipelined {
            logs.values_mut().for_each(Recorder::end_unknown_writes);
        }
        History::merge(self.initial.iter().copied(), logs.into_values())
    }

    /// What the checker says.
    pub fn check(&self) -> Checked {
        check(&self.history()).unwrap()
    }
}
