//! Figure 10: throughput while the keys that are asked for most change.

use fpcache_datasets::requests::{Distribution, RequestOptions, generate};

use super::bench::{Bench, KEYS, each};
use super::claims::{C, Figure};
use super::error::PaperError;
use super::stage::{Stage, fewer};
use crate::BuildError;
use crate::bench::Operation;
use crate::experiment::{Experiment, Parameters, Run, SystemName};

/// What a change of the popular keys does to a system.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Hotspots {
    /// The system.
    pub system: &'static str,
    /// Published parameters or the best.
    pub parameters: Parameters,
    /// The parameters for people.
    pub described: String,
    /// Operations per second before a change: of the last quarter of a phase.
    pub before: f64,
    /// Of the slowest second after a change, as a share of that.
    pub slowest: f64,
    /// The paper's: a drop of 17 %.
    pub published_slowest: Option<f64>,
    /// Seconds until there are 95 % again, of a table of 60 M keys; none if it took longer than a
    /// phase.
    pub recovers_in: Option<f64>,
    /// The paper's: within 6 s.
    pub published_recovers_in: Option<f64>,
    /// Throughput of each second, of a table of 60 M keys, as a share of that before the change:
    /// from the change on.
    pub seconds: Vec<f64>,
    /// Where the keys come from: published, stand-in, file or generated.
    pub dataset_source: String,
    /// Answers that were wrong.
    pub wrong: u64,
}

/// Operations of a window, per key: at 30 M operations a second those of a second of 60 M keys.
/// What a cache has to learn grows with the keys, and so does the time it takes.
const WINDOW: f64 = 0.5;
/// Windows of a phase, in which the same keys are popular, and phases. The first fills the cache.
const WINDOWS: usize = 12;
const PHASES: usize = 2;
/// At this share of its former throughput a system has recovered.
const RECOVERED: f64 = 0.95;
/// Windows of which most have to have that share, the first of them too: one alone may be luck.
const CONFIRMED_BY: usize = 3;
/// It is measured over fewer keys than this, since its operations grow with them: a table's size
/// makes little difference to what is said in shares and in seconds of 60 M keys.
pub(super) const MOST_KEYS: u64 = 1_000_000;
/// Operations in all.
pub(super) const OPERATIONS_PER_KEY: u64 = (WINDOWS * PHASES) as u64 / 2;

impl Bench<'_> {
    /// Measures how systems get over a change of the popular keys, in workload C.
    ///
    /// # Errors
    /// If the keys cannot be had.
    pub fn hotspots(&mut self) -> Result<Vec<Result<Hotspots, BuildError>>, PaperError> {
        use SystemName::{Chime, DmTree, FpCache, Rolex, Smart};
        let (keys, source) = (self.keys(C.keys)?, self.source(C.keys));
        let few = self.few(&C, &keys);
        let keys = fewer(&keys, MOST_KEYS as usize / 2).unwrap_or(keys);
        let window = ((keys.len() as f64 * WINDOW) as usize).max(1_000);
        let lookups = window * WINDOWS * PHASES;
        let theta = C.theta.unwrap_or(0.99);
        let options = RequestOptions {
            lookups,
            distribution: Distribution::Zipf { theta },
            negative: 0.0,
            seed: self.scale.seed,
            shift_every: Some((window * WINDOWS) as u64),
        };
        let drawn = generate(&keys, &options).keys;
        let operations: Vec<_> = drawn.into_iter().map(|key| Operation::Read { key }).collect();
        let stage = Stage { keys: keys.len() as u64, loaded: keys, operations, warm: 0 };
        let of = |system: &SystemName| {
            let name = format!("{} {}, {source} keys", system.name(), Figure::Figure(10));
            let runs = self.once(&name, || {
                let search = few.as_ref().map(|stage| self.experiment(&C, stage, None).shortened());
                let experiment = self.experiment(&C, &stage, search.as_ref());
                Experiment { window: Some(window as u64), ..experiment }.run_both(*system).into()
            });
            let both = [Parameters::Published, Parameters::Best].into_iter().zip(runs);
            let judged = both.map(|(parameters, run)| {
                Ok(Hotspots { dataset_source: source.clone(), ..judge(*system, parameters, &run?) })
            });
            judged.collect::<Vec<_>>()
        };
        Ok(each(self.threads, &[FpCache, Smart, Chime, DmTree, Rolex], of).concat())
    }
}

/// What a series says.
fn judge(system: SystemName, parameters: Parameters, run: &Run) -> Hotspots {
    let Run { parameters: described, measured } = run;
    let phases: Vec<&[f64]> = measured.windows.chunks(WINDOWS).collect();
    let quarter = |phase: &[f64]| {
        let last = &phase[phase.len() - phase.len().div_ceil(4)..];
        last.iter().sum::<f64>() / last.len().max(1) as f64
    };
    let before = phases.first().map_or(0.0, |first| quarter(first));
    let after = phases.get(1).copied().unwrap_or_default();
    let seconds: Vec<f64> = after.iter().map(|rate| rate / before.max(1.0)).collect();
    let slowest = seconds.iter().copied().fold(1.0, f64::min);
    // Seconds of the paper's table: windows before the first one that is fast again, each with its
    // own length.
    let is_back = |share: &f64| *share >= RECOVERED;
    let recovered = (0..seconds.len()).find(|&at| {
        let next = &seconds[at..seconds.len().min(at + CONFIRMED_BY)];
        is_back(&seconds[at]) && 2 * next.iter().filter(|share| is_back(share)).count() > next.len()
    });
    let lasts = |rate: &f64| WINDOW * KEYS as f64 / rate.max(1.0);
    let is_published = parameters == Parameters::Published && system == SystemName::FpCache;
    Hotspots {
        system: system.name(),
        parameters,
        described: described.clone(),
        before,
        slowest,
        published_slowest: is_published.then_some(0.83),
        recovers_in: recovered
            .map(|windows| after[..windows].iter().map(lasts).fold(0.0, |sum, lasts| sum + lasts)),
        published_recovers_in: is_published.then_some(6.0),
        seconds,
        dataset_source: String::new(),
        wrong: measured.wrong,
    }
}
