//! Histories of concurrent operations: recorded, generated, and checked for linearizability.
//!
//! A history is what the callers observed: for each call, an interval and an outcome, which may be
//! *unknown*. It is linearizable if every call can be assigned an instant within its interval so
//! that executing the calls one after another at these instants gives the same outcomes (Herlihy
//! and Wing, "Linearizability: a correctness condition for concurrent objects", TOPLAS 12(3), 1990,
//! §2). Linearizability is local (Theorem 1 there): a history has it if, and only if, the calls on
//! each key have it. So keys are checked one by one.
//!
//! **Scans are checked per key, not as snapshots.** A scan counts as one read of each key of the
//! range it covers, each at its own instant within the scan's interval: a key that existed
//! throughout must be returned, one that was absent throughout must not, and a value must be one
//! that the key had meanwhile. Scans promise no more: the records of one scan need not have existed
//! at the same time. Order, duplicates, bounds and limit are checked too.
//!
//! Descending scans are checked in the same way. A count says of no key whether it was there: it is
//! right if it is no less than the number of keys that must have been there at every instant at
//! which it may have looked, and no more than that of those that may have been there at one.
//!
//! **A process is in order.** Calls of one process that overlap, the changes of one request or the
//! writes of one pipeline, take effect on each key in the order in which they began, as far as they
//! have answers; so does a read of a key after the process's writes of it. A write without an
//! answer may come after later ones, unless [`Recorder::end_unknown_writes`] says that it does not.
//!
//! **Floors and ceilings are of one instant**, over all keys between the one that was asked for and
//! the one that was found. Key by key they are checked like scans; [`check_whole`] looks for an
//! order of all calls on all keys at once, in short histories.
//!
//! | module | holds |
//! |---|---|
//! | [`operation`] | calls, outcomes, intervals |
//! | [`recorder`] | logs of single processes |
//! | [`checker`] | the check of a history, key by key |
//! | [`stress`] | runs of many processes on few keys, checked batch by batch |
//! | [`store`] | what such a run calls |
//! | [`client`] | FPCache's client as such a store |
//! | [`keys`] | keys and values for the numbers that histories speak of |
//! | [`random`] | histories that are right by construction, to test checkers with |
//!
//! ```
//! use fpcache_eval::history::{Call, History, Outcome, Recorder, check};
//! use std::cell::Cell;
//!
//! // Two processes and instants that count up; real ones take them from a clock.
//! let counter = Cell::new(0);
//! let instants = || counter.replace(counter.get() + 1);
//! let (mut writer, mut reader) = (Recorder::new(0, "writer", instants), Recorder::new(1, "reader", instants));
//! writer.record(7, Call::Put(100), || (Outcome::Done, None));
//! reader.record(7, Call::Get, || (Outcome::Absent, None));
//!
//! let checked = check(&History::merge([], [writer, reader])).expect("well formed");
//! assert!(!checked.is_linearizable());
//! println!("{}", checked.violations[0]);
//! ```

pub mod checker;
pub mod client;
mod count;
pub mod keys;
mod linearize;
pub mod operation;
pub mod random;
pub mod recorder;
mod report;
mod scan;
mod shrink;
mod steps;
pub mod store;
pub mod stress;
pub mod tasks;
mod whole;

pub use checker::{Checked, MalformedHistory, Undecided, check};
pub use linearize::Doubt;
pub use operation::{Call, NEVER, Operation, Outcome, Scanned, UNSEEN};
pub use recorder::{Open, Recorder, nanoseconds_since};
pub use report::{BadScan, Disorder, Shown, Violation};
pub use scan::ScanFault;
pub use whole::{Whole, check_whole};

use std::collections::BTreeMap;

/// Operations of all processes, in the order of invocation, and the records that were there before
/// them.
#[derive(Clone, Debug, Default)]
pub struct History {
    initial: BTreeMap<u64, u64>,
    processes: BTreeMap<u32, String>,
    operations: Vec<Operation>,
    records: Vec<(u64, u64)>,
}

impl History {
    /// Puts the logs of all processes together. `initial` are the records there before the first
    /// operation: of several for one key the last counts.
    pub fn merge<C>(
        initial: impl IntoIterator<Item = (u64, u64)>,
        logs: impl IntoIterator<Item = Recorder<C>>,
    ) -> Self {
        let mut history = Self { initial: initial.into_iter().collect(), ..Self::default() };
        for log in logs {
            history.add(log);
        }
        // Each log is in order already, so this only merges runs.
        history.operations.sort_by_key(|operation| operation.invoked);
        history
    }

    /// The same history with writes that an earlier history of the same store left
    /// [undecided](Self::undecided_writes): they were under way when this one began.
    #[must_use]
    pub fn carry(mut self, open: impl IntoIterator<Item = Operation>) -> Self {
        let open = open.into_iter().filter(|operation| operation.outcome == Outcome::Unknown);
        let open = open.map(|operation| Operation { invoked: 0, returned: NEVER, ..operation });
        self.operations.splice(0..0, open);
        self
    }

    fn add<C>(&mut self, log: Recorder<C>) {
        self.processes.insert(log.process(), log.name().to_owned());
        let base = self.records.len() as u64;
        self.records.extend(log.records);
        self.operations.extend(log.operations.into_iter().map(|mut operation| {
            if let Outcome::Scanned(scanned) = &mut operation.outcome {
                scanned.first += base;
            }
            operation
        }));
    }

    /// The records there before the first operation.
    pub fn initial(&self) -> &BTreeMap<u64, u64> {
        &self.initial
    }

    /// All operations, in the order of invocation.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What a scan returned.
    pub fn records(&self, scanned: Scanned) -> &[(u64, u64)] {
        let first = usize::try_from(scanned.first).unwrap_or(usize::MAX);
        let rest = self.records.get(first..).unwrap_or_default();
        rest.get(..scanned.count as usize).unwrap_or_default()
    }

    /// What a process is called.
    pub fn name_of(&self, process: u32) -> &str {
        self.processes.get(&process).map_or("", String::as_str)
    }

    /// The same history with another outcome of one operation: for tests of checkers. Nothing
    /// changes if there is no such operation.
    #[must_use]
    pub fn with_outcome(mut self, operation: usize, outcome: Outcome) -> Self {
        if let Some(operation) = self.operations.get_mut(operation) {
            operation.outcome = outcome;
        }
        self
    }

    /// The same history with another list of records for a scan: for tests of checkers. Nothing
    /// changes if the operation is no scan that returned.
    #[must_use]
    pub fn with_records(mut self, operation: usize, records: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let first = self.records.len();
        if let Some(Operation { outcome: Outcome::Scanned(scanned), .. }) = self.operations.get_mut(operation)
        {
            self.records.extend(records);
            let count = u32::try_from(self.records.len() - first).unwrap_or(u32::MAX);
            *scanned = Scanned { first: first as u64, count };
        }
        self
    }

    /// The writes whose outcome is unknown, that nothing ends, and whose value was never seen: they
    /// may take effect after this history ends, so the next history of the same store begins with
    /// them.
    pub fn undecided_writes(&self) -> Vec<Operation> {
        let unknown = |operation: &&Operation| {
            operation.outcome == Outcome::Unknown && operation.returned == NEVER && operation.call.writes()
        };
        let open: Vec<Operation> = self.operations.iter().filter(unknown).copied().collect();
        if open.is_empty() {
            return open;
        }
        let seen = self.seen_values();
        open.into_iter()
            .filter(|o| o.call.written().is_none_or(|value| !seen.contains(&(o.key, value))))
            .collect()
    }

    /// Values that a get or a scan returned.
    fn seen_values(&self) -> hashbrown::HashSet<(u64, u64)> {
        let mut seen = hashbrown::HashSet::new();
        for operation in &self.operations {
            match operation.outcome {
                Outcome::Found(value) => drop(seen.insert((operation.key, value))),
                Outcome::Scanned(scanned) => seen.extend(self.records(scanned).iter().copied()),
                _ => {}
            }
        }
        seen
    }
}
