//! Violations as text.

use std::fmt;

use super::History;
use super::operation::{Call, NEVER, Operation, Outcome, UNSEEN};
use super::scan::ScanFault;
use super::shrink::Core;
use super::steps::{Condition, Effect, Step};

/// Operations shown of one violation.
const MOST_SHOWN: usize = 40;

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A scan that no store can have given.
    Scan(BadScan),
    /// A key whose operations have no order.
    Key(Disorder),
}

/// An operation as a report shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number in the history.
    pub number: u32,
    /// The operation.
    pub operation: Operation,
    /// What its process is called.
    pub process: String,
    /// What a scan said of the key in question: `None` if the operation is no scan.
    pub saw: Option<Option<u64>>,
}

/// A scan whose keys are wrong by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadScan {
    /// The scan.
    pub scan: Shown,
    /// What is wrong.
    pub fault: ScanFault,
}

/// Operations on a key that have no order within their intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// The key.
    pub key: u64,
    /// Its value at first.
    pub initial: Option<u64>,
    /// The operations that have no order, in the order of invocation; whether or not the others
    /// took effect does not matter.
    pub operations: Vec<Shown>,
    /// The number of the one that cannot have happened by the time it returned.
    pub failing: u32,
    /// All steps on the key.
    pub of: usize,
    /// Whether none of the operations can be spared; else shrinking took too long.
    pub minimal: bool,
    /// Who wrote the values that `operations` saw or expected, as far as they are not among them.
    pub writers: Vec<Shown>,
    /// The value that the failing operation saw and that had never been written to the key, and the
    /// keys it was written to.
    pub unwritten: Option<(u64, Vec<u64>)>,
}

impl Shown {
    fn new(history: &History, number: u32, operation: Operation, saw: Option<Option<u64>>) -> Self {
        Self { number, operation, process: history.name_of(operation.process).to_owned(), saw }
    }
}

impl BadScan {
    pub(super) fn new(history: &History, number: u32, scan: Operation, fault: ScanFault) -> Self {
        Self { scan: Shown::new(history, number, scan, None), fault }
    }
}

impl Disorder {
    pub(super) fn new(history: &History, key: u64, initial: Option<u64>, steps: &[Step], core: Core) -> Self {
        let shown = |number: u32| {
            let step = steps.iter().find(|step| step.operation == number)?;
            let operation = *history.operations().get(number as usize)?;
            let saw = matches!(operation.outcome, Outcome::Scanned(_)).then_some(match step.condition {
                Condition::Exactly(value) => Some(value),
                Condition::Present => Some(UNSEEN),
                _ => None,
            });
            Some(Shown::new(history, number, operation, saw))
        };
        let failing = steps.iter().find(|step| step.operation == core.failing);
        Self {
            key,
            initial,
            operations: core.operations.iter().filter_map(|number| shown(*number)).collect(),
            failing: core.failing,
            of: steps.len(),
            minimal: core.minimal,
            writers: writers(steps, &core.operations).filter_map(shown).collect(),
            unwritten: failing.and_then(|failing| unwritten(history, initial, steps, failing)),
        }
    }
}

/// The operations that wrote what those of `core` saw or expected, and that are not among these.
fn writers<'a>(steps: &'a [Step], core: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let in_core = |step: &Step| core.contains(&step.operation);
    let seen: Vec<u64> = steps
        .iter()
        .filter(|step| in_core(step))
        .filter_map(|step| match step.condition {
            Condition::Exactly(value) | Condition::Unlike(value) => Some(value),
            Condition::Any | Condition::Absent | Condition::Present => None,
        })
        .collect();
    let wrote = move |step: &&Step| matches!(step.effect, Effect::Write(value) if seen.contains(&value));
    steps.iter().filter(move |step| !in_core(step)).filter(wrote).map(|step| step.operation)
}

/// The value that a read saw and that was never written to the key, with the keys it was written
/// to.
fn unwritten(
    history: &History,
    initial: Option<u64>,
    steps: &[Step],
    failing: &Step,
) -> Option<(u64, Vec<u64>)> {
    let Condition::Exactly(value) = failing.condition else { return None };
    if initial == Some(value) || steps.iter().any(|step| step.effect == Effect::Write(value)) {
        return None;
    }
    let writers = history.operations().iter().filter(|operation| operation.call.written() == Some(value));
    let loaded = history.initial().iter().filter(|(_, held)| **held == value).map(|(key, _)| *key);
    Some((value, loaded.chain(writers.map(|operation| operation.key)).take(MOST_SHOWN).collect()))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan(scan) => scan.fmt(f),
            Self::Key(disorder) => disorder.fmt(f),
        }
    }
}

impl fmt::Display for BadScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "a {} from key {} is wrong: {}",
            self.scan.operation.call, self.scan.operation.key, self.fault
        )?;
        self.scan.line(f, self.scan.operation.invoked)
    }
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, of, .. } = self;
        let (begun, count) = (self.operations.first(), self.operations.len());
        let begun = begun.map_or(0, |shown| shown.operation.invoked);
        writeln!(
            f,
            "key {key}: {count} of its {of} operations have no order, whether or not the others took effect{}",
            if self.minimal { "" } else { " (fewer may do; shrinking took too long)" }
        )?;
        match self.initial {
            Some(value) => writeln!(f, "  at first {value}; instants count from {begun}")?,
            None => writeln!(f, "  at first absent; instants count from {begun}")?,
        }
        for shown in self.operations.iter().take(MOST_SHOWN) {
            shown.line(f, begun)?;
            writeln!(f, "{}", if shown.number == self.failing { "  <- not possible by then" } else { "" })?;
        }
        if count > MOST_SHOWN {
            writeln!(f, "  and {} more", count - MOST_SHOWN)?;
        }
        for writer in &self.writers {
            writer.line(f, begun)?;
            writeln!(f, "  (wrote what others saw; may be spared)")?;
        }
        match &self.unwritten {
            Some((value, keys)) if keys.is_empty() => {
                writeln!(f, "  nobody wrote {value}, to this key or another")
            }
            Some((value, keys)) => {
                writeln!(f, "  nobody wrote {value} to this key; it was written to {keys:?}")
            }
            None => Ok(()),
        }
    }
}

impl Shown {
    /// One line without its end; instants count from `begun`.
    fn line(&self, f: &mut fmt::Formatter<'_>, begun: u64) -> fmt::Result {
        let Operation { process, plan, key, call, outcome, invoked, returned } = self.operation;
        let since = |instant: u64| i128::from(instant) - i128::from(begun);
        let end = if returned == NEVER { "...".to_owned() } else { since(returned).to_string() };
        let outcome = match self.saw {
            Some(Some(UNSEEN)) => "returned the key".to_owned(),
            Some(Some(value)) => format!("found {value}"),
            Some(None) => "did not return the key".to_owned(),
            None => outcome.to_string(),
        };
        let call = match call {
            Call::Floor | Call::Ceiling => format!("{call} of {key}"),
            call if call.is_by_order() => format!("{call} from {key}"),
            _ => call.to_string(),
        };
        let plan = plan.map_or(String::new(), |plan| format!(" by {}", plan.name()));
        let interval = format!("[{}, {end}]", since(invoked));
        write!(f, "  {interval:<22} {call:<28} {:<30}", format!("{outcome}{plan}"))?;
        write!(f, " process {process}")?;
        if !self.process.is_empty() {
            write!(f, " ({})", self.process)?;
        }
        write!(f, ", operation {}", self.number)
    }
}
