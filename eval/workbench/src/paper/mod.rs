//! The FPCache paper, statement by statement: what it says, and what the model gives.

mod claims;
mod filters;
mod hotspots;
mod table_two;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use fpcache_datasets::requests::{Distribution, Growth, InsertOrder, RequestOptions, generate};
use fpcache_datasets::{DatasetError, OpenOptions, ParseSpecError, Progress, Spec};

pub use claims::{Claim, Figure, Keys, Measure, Mix, Says, Setting, all};
pub use filters::{Filtered, filters};
pub use hotspots::Hotspots;
pub use table_two::{Entries, entries};

use crate::BuildError;
use crate::bench::Operation;
use crate::experiment::{Experiment, Run, SystemName};
use crate::nic::{Hosts, NicSpec};
use crate::scatter;

/// Keys that the paper's tables have.
const KEYS: u64 = 60_000_000;

/// How much is done, on what.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Keys of a table; budgets shrink with them.
    pub keys: u64,
    /// The cards.
    pub nic: NicSpec,
    /// Seeds keys and requests.
    pub seed: u64,
}

/// Why the paper cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// No such figure.
    #[error("the FPCache paper has no {0} that is measured here: there are {list}", list = known())]
    Unknown(Figure),
    /// The keys cannot be had.
    #[error(transparent)]
    Keys(#[from] DatasetError),
    /// Nor named.
    #[error(transparent)]
    Spec(#[from] ParseSpecError),
    /// Too large.
    #[error(
        "{system} over {keys} keys takes about {needs} MiB of this machine, which has {has} MiB free: use --scale {fits}"
    )]
    Memory {
        /// What needs most.
        system: &'static str,
        /// Keys.
        keys: u64,
        /// MiB it takes.
        needs: u64,
        /// MiB there are.
        has: u64,
        /// Keys for which there is room.
        fits: u64,
    },
}

/// Those that are made of more than two runs, or of none.
const ELSEWHERE: [Figure; 2] = [Figure::Figure(10), Figure::Table(2)];

/// Figures and tables that are measured here.
fn known() -> String {
    let mut known: Vec<String> = Vec::new();
    for figure in all().iter().map(|claim| claim.figure).chain(ELSEWHERE) {
        let name = figure.to_string();
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known.join(", ")
}

/// A statement, and what was measured of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClaimRow {
    /// Figure or table.
    pub figure: String,
    /// The system and its setting that is put over the other.
    pub this: String,
    /// The other.
    pub that: String,
    /// `throughput`, `p99`, `hit rate`, `bytes` or `requests`.
    pub measure: &'static str,
    /// The paper's ratio.
    pub published: f64,
    /// Whether it is that, or a bound.
    pub says: Says,
    /// Ours with published parameters.
    pub ours: Option<f64>,
    /// Ours with every system at its best.
    pub ours_best: Option<f64>,
    /// Where they differ, what binds here.
    pub note: String,
    /// Runs of both with published parameters.
    pub runs: Vec<Option<Run>>,
    /// The same at their best.
    pub best_runs: Vec<Option<Run>>,
}

impl ClaimRow {
    /// Answers that were wrong in its runs.
    pub fn wrong(&self) -> u64 {
        self.runs.iter().chain(&self.best_runs).flatten().map(|run| run.measured.wrong).sum()
    }
}

/// The statements of one figure, or all.
///
/// # Errors
/// [`PaperError::Unknown`] names those there are.
pub fn of(figure: Option<Figure>) -> Result<Vec<Claim>, PaperError> {
    let Some(figure) = figure else { return Ok(all()) };
    let some: Vec<Claim> = all().into_iter().filter(|claim| claim.figure == figure).collect();
    match some.is_empty() && !ELSEWHERE.contains(&figure) {
        true => Err(PaperError::Unknown(figure)),
        false => Ok(some),
    }
}

/// Whether there is memory for these statements, and so for how many of their runs at a time, up to so many.
///
/// # Errors
/// [`PaperError::Memory`] if not for one.
pub fn check_memory(
    figure: Option<Figure>,
    claims: &[Claim],
    scale: &Scale,
    free: u64,
    threads: usize,
) -> Result<usize, PaperError> {
    // Keys, once more where some are inserted, and where the oracle finds them, besides the system's own.
    const BESIDE: u64 = 8 + 8 + 12;
    /// An operation, what it is drawn from, and what is expected of it.
    const OPERATION: u64 = 16 + 24 + 8;
    let needs = |(system, setting): (SystemName, Setting), beside: u64| {
        (system.host_bytes(setting.sizes) as u64 + beside, system)
    };
    let series = figure.is_none_or(|figure| figure == Figure::Figure(10)).then(|| {
        // Its operations, and the keys they are made of.
        needs((SystemName::FpCache, claims::C), 8 + 40 * hotspots::OPERATIONS_PER_KEY)
    });
    let of_claims = claims.iter().flat_map(|claim| [needs(claim.this, BESIDE), needs(claim.that, BESIDE)]);
    let Some((each, system)) = of_claims.chain(series).max_by_key(|(bytes, _)| *bytes) else {
        return Ok(threads.max(1));
    };
    let operations = OPERATION * MOST as u64 * 3 / 2;
    let all = each * scale.keys + operations.min(OPERATION * scale.keys * 3 / 2);
    match free / all.max(1) {
        0 => Err(PaperError::Memory {
            system: system.name(),
            keys: scale.keys,
            needs: all >> 20,
            has: free >> 20,
            fits: (free.saturating_sub(operations) / each).max(free / (each + OPERATION * 3 / 2)),
        }),
        fit => Ok(threads.clamp(1, usize::try_from(fit).unwrap_or(usize::MAX))),
    }
}

/// What was measured of a system in a setting: with published parameters, and at its best.
type Both = [Result<Run, BuildError>; 2];

/// Runs that were made before, by the scale, the cards and the seed that this one has.
pub trait Journal: Sync {
    /// What a run gave, of its name; `None` if it was not made.
    fn made(&self, name: &str) -> Option<Vec<Result<Run, BuildError>>>;

    /// A run has been made.
    fn keep(&self, name: &str, runs: &[Result<Run, BuildError>]);
}

/// Measures statements; runs that several share are made once.
pub struct Bench<'p> {
    scale: Scale,
    threads: usize,
    progress: Option<&'p dyn Progress>,
    journal: Option<&'p dyn Journal>,
    sets: Vec<(Keys, Arc<Vec<u64>>)>,
    runs: Vec<(SystemName, Setting, Both)>,
}

impl<'p> Bench<'p> {
    /// At this scale, with so many runs at a time: they have nothing in common, so that their number makes no difference to what
    /// they give.
    pub fn new(scale: Scale, threads: usize, progress: Option<&'p dyn Progress>) -> Self {
        let (sets, runs) = (Vec::new(), Vec::new());
        Self { scale, threads: threads.max(1), progress, journal: None, sets, runs }
    }

    /// The same with runs that were made before: they are not made again.
    #[must_use]
    pub fn with_journal(self, journal: Option<&'p dyn Journal>) -> Self {
        Self { journal, ..self }
    }

    /// What a journal has of a run, or what is made of it now.
    fn once(
        &self,
        name: &str,
        make: impl FnOnce() -> Vec<Result<Run, BuildError>>,
    ) -> Vec<Result<Run, BuildError>> {
        if let Some(made) = self.journal.and_then(|journal| journal.made(name)) {
            return made;
        }
        let runs = make();
        if let Some(journal) = self.journal {
            journal.keep(name, &runs);
        }
        runs
    }

    /// Measures statements, in their order.
    ///
    /// # Errors
    /// If their keys cannot be had.
    pub fn measure(&mut self, claims: &[Claim]) -> Result<Vec<ClaimRow>, PaperError> {
        self.prepare(claims)?;
        Ok(claims.iter().filter_map(|claim| self.row(claim)).collect())
    }

    /// What the runs, which have been made, say of a statement.
    fn row(&self, claim: &Claim) -> Option<ClaimRow> {
        let ([this, this_best], [that, that_best]) = (self.both(claim.this)?, self.both(claim.that)?);
        let (published, best) = ([this, that], [this_best, that_best]);
        let (ours, ours_best) = (ratio(claim.measure, published), ratio(claim.measure, best));
        let name = |(system, setting): (SystemName, Setting)| format!("{} ({})", system.name(), setting.name);
        let runs = |of: [&Result<Run, BuildError>; 2]| of.map(|run| run.as_ref().ok().cloned()).into();
        Some(ClaimRow {
            figure: claim.figure.to_string(),
            this: name(claim.this),
            that: name(claim.that),
            measure: claim.measure.name(),
            published: claim.published,
            says: claim.says,
            ours,
            ours_best,
            note: note(claim, ours, published),
            runs: runs(published),
            best_runs: runs(best),
        })
    }

    fn both(&self, (system, setting): (SystemName, Setting)) -> Option<&Both> {
        let found = self.runs.iter().find(|(s, of, _)| (*s, of.unnamed()) == (system, setting.unnamed()));
        found.map(|(.., both)| both)
    }

    /// Makes the runs that statements need and that have not been made yet.
    fn prepare(&mut self, claims: &[Claim]) -> Result<(), PaperError> {
        let mut missing: Vec<(SystemName, Setting, Arc<Vec<u64>>)> = Vec::new();
        for (system, setting) in claims.iter().flat_map(|claim| [claim.this, claim.that]) {
            let is_same = |s: SystemName, of: &Setting| (s, of.unnamed()) == (system, setting.unnamed());
            if self.both((system, setting)).is_none() && !missing.iter().any(|(s, of, _)| is_same(*s, of)) {
                missing.push((system, setting, self.keys(setting.keys)?));
            }
        }
        if let Some(progress) = self.progress {
            progress.begin("measuring", missing.len() as u64);
        }
        let done = AtomicU64::new(0);
        let made = each(self.threads, &missing, |(system, setting, keys)| {
            let both = self.run_both(*system, setting, keys);
            if let Some(progress) = self.progress {
                progress.advance(done.fetch_add(1, Relaxed) + 1);
            }
            (*system, *setting, both)
        });
        self.runs.extend(made);
        if let Some(progress) = self.progress {
            progress.end();
        }
        Ok(())
    }

    fn keys(&mut self, keys: Keys) -> Result<Arc<Vec<u64>>, PaperError> {
        if let Some((_, set)) = self.sets.iter().find(|(of, _)| *of == keys) {
            return Ok(Arc::clone(set));
        }
        let name = match keys {
            Keys::Ycsb => "uniform",
            Keys::Fb => "fb",
            Keys::Wiki => "wiki",
        };
        let spec: Spec = format!("{name}:{}", self.scale.keys).parse()?;
        let options =
            OpenOptions { seed: self.scale.seed, progress: self.progress, ..OpenOptions::default() };
        let set = Arc::new(spec.open(&options)?.into_keys());
        self.sets.push((keys, Arc::clone(&set)));
        Ok(set)
    }

    fn run_both(&self, system: SystemName, setting: &Setting, keys: &Arc<Vec<u64>>) -> Both {
        let make = || {
            let (keys, operations, warm) = operations(keys, setting, self.scale.seed);
            self.experiment(setting, keys, &operations, warm).run_both(system)
        };
        let made = self.once(&format!("{} {:?}", system.name(), setting.unnamed()), || make().into());
        // A journal that has another number has none.
        made.try_into().unwrap_or_else(|_| make())
    }

    fn experiment<'o>(
        &self,
        setting: &Setting,
        keys: Arc<Vec<u64>>,
        operations: &'o [Operation],
        warm: u64,
    ) -> Experiment<'o> {
        let paper = Hosts::paper(self.scale.nic);
        // Fewer threads leave some of their nodes with fewer than others.
        let threads = setting.clients.div_ceil(paper.compute_nodes);
        Experiment {
            sizes: setting.sizes,
            hosts: Hosts { threads, ..paper },
            budget: setting.budget_mb * 1_000_000 * self.scale.keys / KEYS,
            operations,
            warm,
            fixed: setting.fixed,
            window: None,
            keys,
        }
    }
}

/// Does something with each of these, so many at a time: the results, in their order.
fn each<T: Sync, R: Send>(threads: usize, all: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all.len())));
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(one) = all.get(number) else { break };
            let result = make(one);
            made.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(all.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_unstable_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, result)| result).collect()
}

/// Most operations that fill caches.
const MOST: usize = 4_000_000;

/// The keys that are loaded, as many operations as keys to fill caches, up to a bound, and half as many that are measured.
fn operations(keys: &Arc<Vec<u64>>, setting: &Setting, seed: u64) -> (Arc<Vec<u64>>, Vec<Operation>, u64) {
    /// Scans touch fifty records each.
    const MOST_SCANS: usize = MOST / 8;
    /// An update or an insert among so many.
    const EVERY: usize = 20;
    let scans = matches!(setting.mix, Mix::ScansAndUpdates | Mix::ScansAndInserts);
    let warm = keys.len().clamp(10_000, if scans { MOST_SCANS } else { MOST });
    let distribution = setting.theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta });
    let lookups = warm + warm / 2;
    let (loaded, inserts) = match setting.mix {
        Mix::Inserts | Mix::ScansAndInserts => {
            let growth = Growth::split(keys, lookups.div_ceil(EVERY), InsertOrder::Random, seed);
            (Arc::new(growth.loaded), growth.inserts)
        }
        Mix::Reads | Mix::Updates | Mix::ScansAndUpdates => (Arc::clone(keys), Vec::new()),
    };
    let options = RequestOptions { lookups, distribution, negative: 0.0, seed, shift_every: None };
    let of = |(i, key): (usize, &u64)| match setting.mix {
        Mix::Updates | Mix::ScansAndUpdates if i % EVERY == 0 => {
            Operation::Update { key: *key, value: i as u64 }
        }
        Mix::Inserts | Mix::ScansAndInserts if i % EVERY == 0 => match inserts.get(i / EVERY) {
            Some(key) => Operation::Insert { key: *key, value: i as u64 },
            None => Operation::Read { key: *key },
        },
        Mix::ScansAndUpdates | Mix::ScansAndInserts => {
            Operation::Scan { key: *key, count: 1 + (scatter(scatter(i as u64) ^ seed) % 100) as u32 }
        }
        _ => Operation::Read { key: *key },
    };
    let operations = generate(&loaded, &options).keys.iter().enumerate().map(of).collect();
    (loaded, operations, warm as u64)
}

/// One over the other; `None` if either is not there.
fn ratio(measure: Measure, sides: [&Result<Run, BuildError>; 2]) -> Option<f64> {
    let value = |run: &Run| match measure {
        Measure::Throughput => run.measured.per_second,
        Measure::P50 => run.measured.latency_us[0],
        Measure::P99 => run.measured.latency_us[2],
        Measure::P999 => run.measured.latency_us[3],
        Measure::HitRate => run.measured.one_trip,
        Measure::Bytes => run.measured.tally.per_operation(run.measured.tally.bytes_from),
        Measure::Requests => run.measured.tally.per_operation(run.measured.tally.requests()),
    };
    let [Ok(this), Ok(that)] = sides else { return None };
    (value(that) > 0.0).then(|| value(this) / value(that))
}

/// What the model says of a statement, in a sentence.
fn note(claim: &Claim, ours: Option<f64>, sides: [&Result<Run, BuildError>; 2]) -> String {
    let side = |(system, _): (SystemName, Setting), run: &Result<Run, BuildError>| match run {
        Err(error) => format!("{} was not built: {error}", system.name()),
        Ok(Run { measured, .. }) => {
            let tally = &measured.tally;
            format!(
                "{} is bound by {} at {:.2} Mops/s, {:.2} requests and {:.0} bytes an operation",
                system.name(),
                match measured.bound {
                    crate::nic::Bound::Rate => "requests",
                    crate::nic::Bound::Bandwidth => "bytes",
                    crate::nic::Bound::Cpu => "processors",
                    crate::nic::Bound::Latency => "latency",
                },
                measured.per_second / 1e6,
                tally.per_operation(tally.requests()),
                tally.per_operation(tally.bytes_from + tally.bytes_to),
            )
        }
    };
    let agrees = ours.is_some_and(|ours| claim.says.holds(claim.published, ours));
    let verdict = match (agrees, claim.says) {
        (true, Says::About) => "agrees within 10 %",
        (true, _) => "agrees",
        (false, _) => "differs",
    };
    let reason =
        if agrees || claim.because.is_empty() { String::new() } else { format!("; {}", claim.because) };
    format!("{verdict}: {}; {}{reason}", side(claim.this, sides[0]), side(claim.that, sides[1]))
}
