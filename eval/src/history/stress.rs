//! Stress runs: many processes on few keys, with the history of every batch checked.

mod error;
mod options;
mod worker;

use std::thread;

use rand::Rng;

use super::History;
use super::checker::{Undecided, check};
use super::operation::{Operation, Outcome};
use super::recorder::Recorder;
use super::report::Violation;
use super::store::Store;
use super::whole::{Whole, check_whole};
pub use error::StressError;
pub use options::{Mix, Queue, StressOptions, StressProcess};
use worker::Worker;

/// What a stress run found.
#[derive(Clone, Debug, Default)]
pub struct StressReport {
    /// Batches that were checked.
    pub batches: usize,
    /// Operations in their histories: each key of a group is one.
    pub operations: u64,
    /// Steps on single keys that were ordered; see [`Checked::steps`](super::Checked::steps).
    pub steps: u64,
    /// Instants that the batches took: nanoseconds with
    /// [`nanoseconds_since`](super::nanoseconds_since).
    pub elapsed: u64,
    /// Rebuilds that the store counted meanwhile, where it counts.
    pub rebuilds: Option<u64>,
    /// Calls whose outcome is unknown.
    pub unknown: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Oldest keys of queues that were deleted.
    pub oldest: u64,
    /// The first failure of a call.
    pub first_failure: Option<String>,
    /// The most explanations that were possible side by side on one key.
    pub widest: usize,
    /// Scans that are wrong by themselves, and keys whose operations have no order; the run ends
    /// with the batch that has some.
    pub violated: usize,
    /// The first of them.
    pub violations: Vec<Violation>,
    /// Keys of batches that were not decided.
    pub undecided: Vec<Undecided>,
    /// Batches in which an order was found of all calls on all keys at once.
    pub whole: usize,
    /// A call of which no such order was found.
    pub disordered: Option<Operation>,
}

impl StressReport {
    /// Whether every history was linearizable beyond doubt.
    pub fn is_linearizable(&self) -> bool {
        self.violated == 0 && self.undecided.is_empty() && self.disordered.is_none()
    }

    /// Operations per second, if instants were nanoseconds.
    pub fn ops_per_s(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed.max(1) as f64
    }
}

/// Runs batches of random calls by all processes at once, a thread each, and checks the history of
/// each batch. Between batches one process reads all keys, which ends one history and begins the
/// next one; writes without an answer go on into it. Values the store begins with must be distinct
/// for each key and below 2^40: greater ones are written here.
///
/// `instants` count up and are the same for all threads.
///
/// # Errors
/// Bad options, or a store that can no longer be read.
pub fn stress<S, R, C>(
    options: &StressOptions,
    processes: Vec<StressProcess<S, R>>,
    instants: C,
) -> Result<StressReport, StressError>
where
    S: Store,
    R: Rng + Send,
    C: Fn() -> u64 + Clone + Send + Sync,
{
    let weights = [false, true].map(|emptying| options.mix.weights(emptying));
    let [filling, emptying] = weights;
    let (filling, emptying) = (filling?, emptying?);
    let count = processes.len();
    let mut workers: Vec<Worker<S, R>> = processes.into_iter().zip(0..).map(Worker::new).collect();
    for (first, worker) in workers.iter_mut().enumerate() {
        worker.queue = options.queue.keys.iter().copied().skip(first).step_by(count).collect();
    }
    if options.keys.is_empty() || workers.is_empty() {
        return Err(StressError::Options("a process or a key is missing".to_owned()));
    }
    let mut report = StressReport::default();
    let rebuilds_before = workers.first_mut().and_then(|worker| worker.process.store.rebuilds());
    let mut begun = Recorder::new(READER, "reader between batches", instants.clone());
    let mut initial = workers[0].read_all(options, &mut begun)?;
    let mut open: Vec<Operation> = Vec::new();
    for batch in 0..options.batches {
        let calls = if batch % 2 == 0 { &filling } else { &emptying };
        let from = instants();
        let mut logs: Vec<Recorder<C>> = thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let log = Recorder::new(worker.number, worker.process.name.clone(), instants.clone());
                    scope.spawn(|| worker.run(options, calls, log))
                })
                .collect();
            // A process that panicked has no log: its panic goes on here.
            let join = |thread: thread::ScopedJoinHandle<'_, Recorder<C>>| match thread.join() {
                Ok(log) => log,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            running.into_iter().map(join).collect()
        });
        report.elapsed += instants().saturating_sub(from);
        let mut reader = Recorder::new(READER, "reader between batches", instants.clone());
        let after = workers[0].read_all(options, &mut reader)?;
        logs.push(reader);
        let history = History::merge(std::mem::replace(&mut initial, after), logs).carry(open);
        report.add(&history)?;
        if options.as_a_whole {
            report.order(&history);
        }
        open = history.undecided_writes();
        if report.violated > 0 || report.disordered.is_some() {
            break;
        }
    }
    report.rebuilds = rebuilds_before
        .zip(workers[0].process.store.rebuilds())
        .map(|(before, after)| after.saturating_sub(before));
    report.oldest = workers.iter().map(|worker| worker.oldest).sum();
    report.first_failure = workers.into_iter().find_map(|worker| worker.first_failure);
    Ok(report)
}

/// The process that reads between batches.
const READER: u32 = u32::MAX;

impl StressReport {
    fn add(&mut self, history: &History) -> Result<(), StressError> {
        let checked = check(history)?;
        let count = |outcome| history.operations().iter().filter(|o| o.outcome == outcome).count() as u64;
        self.unknown += count(Outcome::Unknown);
        self.refused += count(Outcome::Refused);
        self.batches += 1;
        self.operations += checked.operations as u64;
        self.steps += checked.steps as u64;
        self.widest = self.widest.max(checked.widest);
        self.violated += checked.violated;
        self.violations.extend(checked.violations);
        self.undecided.extend(checked.undecided);
        Ok(())
    }

    /// Counts a history in which all calls on all keys have an order.
    fn order(&mut self, history: &History) {
        match check_whole(history) {
            Whole::Ordered { .. } => self.whole += 1,
            Whole::Disordered { operation } => {
                self.disordered = history.operations().get(operation).copied();
            }
            Whole::Undecided => {}
        }
    }
}
