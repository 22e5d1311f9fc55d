//! The FPCache paper, statement by statement: what it says, and what the model gives.

mod claims;
mod filters;
mod table_two;

use std::sync::Arc;

use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
use fpcache_datasets::{DatasetError, OpenOptions, ParseSpecError, Progress, Spec};

pub use claims::{Claim, Figure, Keys, Measure, Says, Setting, all};
pub use filters::{Filtered, filters};
pub use table_two::{Entries, entries};

use crate::BuildError;
use crate::bench::Operation;
use crate::experiment::{Experiment, Parameters, Run, SystemName};
use crate::nic::{Hosts, NicSpec};

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

/// Figures and tables that are measured here.
fn known() -> String {
    let mut known: Vec<String> = Vec::new();
    for figure in all().iter().map(|claim| claim.figure).chain([Figure::Table(2)]) {
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
    match some.is_empty() && figure != Figure::Table(2) {
        true => Err(PaperError::Unknown(figure)),
        false => Ok(some),
    }
}

/// Whether there is memory for these statements.
///
/// # Errors
/// [`PaperError::Memory`].
pub fn check_memory(claims: &[Claim], scale: &Scale, free: u64) -> Result<(), PaperError> {
    // Keys, operations and what the oracle has, besides the system's own.
    const BESIDE: u64 = 8 + 2 * (16 + 24);
    let needs =
        |(system, setting): (SystemName, Setting)| (system.host_bytes(setting.sizes) as u64 + BESIDE, system);
    let most = claims
        .iter()
        .flat_map(|claim| [needs(claim.this), needs(claim.that)])
        .max_by_key(|(bytes, _)| *bytes);
    let Some((each, system)) = most else { return Ok(()) };
    if each * scale.keys <= free {
        return Ok(());
    }
    Err(PaperError::Memory {
        system: system.name(),
        keys: scale.keys,
        needs: (each * scale.keys) >> 20,
        has: free >> 20,
        fits: free / each,
    })
}

/// Measures statements; runs that several share are made once.
pub struct Bench<'p> {
    scale: Scale,
    progress: Option<&'p dyn Progress>,
    sets: Vec<(Keys, Arc<Vec<u64>>)>,
    runs: Vec<(SystemName, Setting, Parameters, Result<Run, BuildError>)>,
}

impl<'p> Bench<'p> {
    /// At this scale.
    pub fn new(scale: Scale, progress: Option<&'p dyn Progress>) -> Self {
        Self { scale, progress, sets: Vec::new(), runs: Vec::new() }
    }

    /// Measures one statement.
    ///
    /// # Errors
    /// If its keys cannot be had.
    pub fn measure(&mut self, claim: &Claim) -> Result<ClaimRow, PaperError> {
        let mut sides = |parameters| -> Result<_, PaperError> {
            Ok([self.run(claim.this, parameters)?, self.run(claim.that, parameters)?])
        };
        let (published, best) = (sides(Parameters::Published)?, sides(Parameters::Best)?);
        let (ours, ours_best) = (ratio(claim.measure, &published), ratio(claim.measure, &best));
        let name = |(system, setting): (SystemName, Setting)| format!("{} ({})", system.name(), setting.name);
        Ok(ClaimRow {
            figure: claim.figure.to_string(),
            this: name(claim.this),
            that: name(claim.that),
            measure: claim.measure.name(),
            published: claim.published,
            says: claim.says,
            ours,
            ours_best,
            note: note(claim, ours, &published),
            runs: published.map(Result::ok).into(),
            best_runs: best.map(Result::ok).into(),
        })
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

    fn run(
        &mut self,
        (system, setting): (SystemName, Setting),
        parameters: Parameters,
    ) -> Result<Result<Run, BuildError>, PaperError> {
        let same = |(s, of, p, _): &&(SystemName, Setting, Parameters, _)| {
            // What a figure calls it makes no difference.
            (*s, Setting { name: "", ..*of }, *p) == (system, Setting { name: "", ..setting }, parameters)
        };
        if let Some((.., run)) = self.runs.iter().find(same) {
            return Ok(run.clone());
        }
        let keys = self.keys(setting.keys)?;
        let (operations, warm) = operations(&keys, &setting, self.scale.seed);
        let experiment = Experiment {
            sizes: setting.sizes,
            hosts: Hosts::paper(self.scale.nic),
            budget: setting.budget_mb * 1_000_000 * keys.len() as u64 / KEYS,
            operations: &operations,
            warm,
            fixed: setting.fixed,
            keys,
        };
        if let Some(progress) = self.progress {
            progress.begin(&format!("{}, {}", system.name(), setting.name), 1);
        }
        let run = experiment.run(system, parameters);
        if let Some(progress) = self.progress {
            progress.end();
        }
        self.runs.push((system, setting, parameters, run.clone()));
        Ok(run)
    }
}

/// As many operations as keys to fill caches, up to a bound, and half as many that are measured.
fn operations(keys: &[u64], setting: &Setting, seed: u64) -> (Vec<Operation>, u64) {
    const MOST: usize = 4_000_000;
    let warm = keys.len().clamp(10_000, MOST);
    let distribution = setting.theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta });
    let lookups = warm + warm / 2;
    let options = RequestOptions { lookups, distribution, negative: 0.0, seed, shift_every: None };
    let of = |(i, key): (usize, &u64)| match setting.updates > 0 && i % setting.updates == 0 {
        true => Operation::Update { key: *key, value: i as u64 },
        false => Operation::Read { key: *key },
    };
    (generate(keys, &options).keys.iter().enumerate().map(of).collect(), warm as u64)
}

/// One over the other; `None` if either is not there.
fn ratio(measure: Measure, sides: &[Result<Run, BuildError>; 2]) -> Option<f64> {
    let value = |run: &Run| match measure {
        Measure::Throughput => run.measured.per_second,
        Measure::P99 => run.measured.latency_us[2],
        Measure::HitRate => run.measured.one_trip,
        Measure::Bytes => run.measured.tally.per_operation(run.measured.tally.bytes_from),
        Measure::Requests => run.measured.tally.per_operation(run.measured.tally.requests()),
    };
    let [Ok(this), Ok(that)] = sides else { return None };
    (value(that) > 0.0).then(|| value(this) / value(that))
}

/// What the model says of a statement, in a sentence.
fn note(claim: &Claim, ours: Option<f64>, sides: &[Result<Run, BuildError>; 2]) -> String {
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
    format!("{verdict}: {}; {}{reason}", side(claim.this, &sides[0]), side(claim.that, &sides[1]))
}
