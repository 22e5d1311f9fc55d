//! The check of a history, key by key.

use hashbrown::HashMap;

use super::History;
use super::count;
use super::linearize::{Doubt, Verdict, linearize};
use super::operation::{Call, Operation, Outcome};
use super::report::{BadScan, Disorder, Violation};
use super::scan::{ScanFault, Section};
use super::shrink::shrink;
use super::steps::{Entry, Step};

/// Violations that are reported in full; shrinking each takes time.
const MOST_REPORTED: usize = 8;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Operations in the history.
    pub operations: usize,
    /// Keys that operations or records name.
    pub keys: usize,
    /// Steps on single keys that were ordered: operations, and the keys that scans covered.
    pub steps: usize,
    /// The most explanations that were possible side by side on one key.
    pub widest: usize,
    /// Scans that are wrong by themselves, and keys whose operations have no order.
    pub violated: usize,
    /// The first of them, as text with `Display`.
    pub violations: Vec<Violation>,
    /// Keys that were not decided.
    pub undecided: Vec<Undecided>,
}

/// A key that was not decided, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The key.
    pub key: u64,
    /// Why.
    pub doubt: Doubt,
}

impl Checked {
    /// Whether the history is linearizable beyond doubt.
    pub fn is_linearizable(&self) -> bool {
        self.violated == 0 && self.undecided.is_empty()
    }
}

/// A history that cannot be checked, because no caller can have seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedHistory {
    /// An outcome or an interval that such a call cannot have.
    #[error(
        "operation {0} has an outcome that such a call cannot have, or returned before it began: see what records it, \
         and that all processes take their instants from one clock"
    )]
    Operation(usize),
    /// More operations than can be numbered.
    #[error("{0} operations are too many for one check: check in batches of at most 4,294,967,293")]
    TooLong(usize),
}

/// Checks a history: whether the operations on each key can have happened one after the other, and
/// whether scans are in order. A write without an answer may have happened at any time after its
/// invocation, or never.
///
/// Near linear in operations, with 8 bytes for each and for each key that a scan covers, as long as
/// few writes of one key are under way at once; see the source of `linearize` for the algorithm.
///
/// # Errors
/// Operations that no caller can have seen.
pub fn check(history: &History) -> Result<Checked, MalformedHistory> {
    let operations = history.operations.len();
    // The two greatest numbers mean something else.
    if operations > u32::MAX as usize - 2 {
        return Err(MalformedHistory::TooLong(operations));
    }
    if let Some(bad) = history.operations.iter().position(|operation| !operation.is_well_formed()) {
        return Err(MalformedHistory::Operation(bad));
    }
    let keys = Keys::of(history);
    let mut checked = Checked { operations, keys: keys.sorted.len(), ..Checked::default() };
    let mut entries: Vec<Vec<Entry>> = vec![Vec::new(); keys.sorted.len()];
    for (number, operation) in history.operations.iter().enumerate() {
        // Checked above.
        split(history, &keys, number as u32, operation, &mut entries, &mut checked);
    }
    for (key, entries) in keys.sorted.iter().zip(&entries) {
        check_key(history, *key, entries, &mut checked);
    }
    for (number, operation) in history.operations.iter().enumerate() {
        check_count(history, &keys, (number as u32, operation), &entries, &mut checked);
    }
    Ok(checked)
}

/// All keys that operations or records name, in order and by number.
struct Keys {
    sorted: Vec<u64>,
    number: HashMap<u64, u32>,
}

impl Keys {
    fn of(history: &History) -> Self {
        let mut number: HashMap<u64, u32> = HashMap::new();
        let mut add = |key| {
            number.insert(key, 0);
        };
        history.initial.keys().copied().for_each(&mut add);
        for operation in &history.operations {
            match operation.outcome {
                // A scan from a key says nothing that makes the key one.
                Outcome::Scanned(scanned) => {
                    history.records(scanned).iter().for_each(|(key, _)| add(*key));
                }
                _ if operation.call.is_by_order() => {}
                _ => add(operation.key),
            }
        }
        let mut sorted: Vec<u64> = number.keys().copied().collect();
        sorted.sort_unstable();
        for (i, key) in sorted.iter().enumerate() {
            // No more keys than operations, records and initial records that fit into memory.
            number.insert(*key, i as u32);
        }
        Self { sorted, number }
    }
}

/// Tells every key that an operation concerns.
fn split(
    history: &History,
    keys: &Keys,
    number: u32,
    operation: &Operation,
    entries: &mut [Vec<Entry>],
    checked: &mut Checked,
) {
    if !operation.call.is_by_order() {
        if let Some(key) = keys.number.get(&operation.key) {
            entries[*key as usize].push(Entry::own(number));
        }
        return;
    }
    let Outcome::Scanned(scanned) = operation.outcome else { return };
    let records = history.records(scanned);
    let Some(section) = Section::of(operation.key, operation.call) else { return };
    if let Some(fault) = section.fault(records) {
        checked.add(|| Violation::Scan(BadScan::new(history, number, *operation, fault)));
        return;
    }
    let is_down = section.is_down;
    let Some(covered) = section.covered(records) else { return };
    let first = keys.sorted.partition_point(|key| key < covered.start());
    let mut met = 0;
    for (key, entries) in keys.sorted[first..].iter().zip(&mut entries[first..]) {
        if key > covered.end() {
            break;
        }
        // Keys ascend, records do in one direction, and every returned key is one of the keys.
        let place = if is_down { records.len().wrapping_sub(1 + met) } else { met };
        let place = records.get(place).filter(|record| record.0 == *key).map(|_| place as u32);
        met += usize::from(place.is_some());
        entries.push(Entry::scanned(number, place));
    }
}

/// Whether a count can have been so.
fn check_count(
    history: &History,
    keys: &Keys,
    (number, operation): (u32, &Operation),
    entries: &[Vec<Entry>],
    checked: &mut Checked,
) {
    let (Call::Count { end }, Outcome::Counted(count)) = (operation.call, operation.outcome) else { return };
    let first = keys.sorted.partition_point(|key| *key < operation.key);
    let after = keys.sorted.partition_point(|key| *key < end).max(first);
    let (mut least, mut most) = (0, 0);
    for (key, entries) in keys.sorted[first..after].iter().zip(&entries[first..after]) {
        let steps = entries.iter().filter_map(|entry| entry.step(history));
        let initial = history.initial.get(key).copied();
        let (there, absent) = count::may_be((operation, number), initial, steps);
        least += u64::from(!absent);
        most += u64::from(there);
    }
    if !(least..=most).contains(&count) {
        let fault = ScanFault::Miscounted { least, most, count };
        checked.add(|| Violation::Scan(BadScan::new(history, number, *operation, fault)));
    }
}

fn check_key(history: &History, key: u64, entries: &[Entry], checked: &mut Checked) {
    checked.steps += entries.len();
    let initial = history.initial.get(&key).copied();
    let steps = entries.iter().filter_map(|entry| entry.step(history));
    match linearize(initial, steps.clone()) {
        Verdict::Ordered { widest } => checked.widest = checked.widest.max(widest),
        Verdict::Disordered { failing } => checked.add(|| {
            let steps: Vec<Step> = steps.collect();
            let core = shrink(initial, &steps, failing);
            Violation::Key(Disorder::new(history, key, initial, &steps, core))
        }),
        Verdict::Unknown(doubt) => checked.undecided.push(Undecided { key, doubt }),
    }
}

impl Checked {
    fn add(&mut self, violation: impl FnOnce() -> Violation) {
        if self.violations.len() < MOST_REPORTED {
            self.violations.push(violation());
        }
        self.violated += 1;
    }
}
