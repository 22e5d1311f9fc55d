//! The measurements of a statement.

use super::claims::{Claim, Measure, Says, Setting};
use crate::BuildError;
use crate::experiment::{Run, SystemName};
use crate::nic::Bound;

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
    /// Whether it is that ratio, or a bound.
    pub says: Says,
    /// Ours with published parameters.
    pub ours: Option<f64>,
    /// Ours with every system at its best.
    pub ours_best: Option<f64>,
    /// Where the keys come from: published, stand-in, file or generated; both, where the sides
    /// differ.
    pub dataset_source: String,
    /// Where they differ, what binds here.
    pub note: String,
    /// Runs of both with published parameters.
    pub runs: Vec<Option<Run>>,
    /// The same at their best.
    pub best_runs: Vec<Option<Run>>,
}

impl ClaimRow {
    /// What both sides gave with published parameters, and at their best.
    pub(super) fn new(
        claim: &Claim,
        published: [&Result<Run, BuildError>; 2],
        best: [&Result<Run, BuildError>; 2],
        dataset_source: String,
    ) -> Self {
        let (ours, ours_best) = (ratio(claim.measure, published), ratio(claim.measure, best));
        let name = |(system, setting): (SystemName, Setting)| format!("{} ({})", system.name(), setting.name);
        let runs = |of: [&Result<Run, BuildError>; 2]| of.map(|run| run.as_ref().ok().cloned()).into();
        Self {
            figure: claim.figure.to_string(),
            this: name(claim.this),
            that: name(claim.that),
            measure: claim.measure.name(),
            published: claim.published,
            says: claim.says,
            ours,
            ours_best,
            dataset_source,
            note: note(claim, ours, published),
            runs: runs(published),
            best_runs: runs(best),
        }
    }

    /// Answers that were wrong in its runs.
    pub fn wrong(&self) -> u64 {
        self.runs.iter().chain(&self.best_runs).flatten().map(|run| run.measured.wrong).sum()
    }
}

/// One over the other; `None` if either is not there.
fn ratio(measure: Measure, sides: [&Result<Run, BuildError>; 2]) -> Option<f64> {
    let value = |run: &Run| {
        let measured = &run.measured;
        match measure {
            Measure::Throughput => Some(measured.per_second),
            Measure::P50 => Some(measured.latency_us[0]),
            Measure::P99 => Some(measured.latency_us[2]),
            Measure::P999 => Some(measured.latency_us[3]),
            Measure::HitRate => measured.hot_cache.and_then(|cache| cache.hit_rate()),
            Measure::Bytes => Some(measured.tally.per_operation(measured.tally.bytes_from)),
            Measure::Requests => Some(measured.tally.per_operation(measured.tally.requests())),
        }
    };
    let [Ok(this), Ok(that)] = sides else { return None };
    let (this, that) = (value(this)?, value(that)?);
    (that > 0.0).then(|| this / that)
}

/// What the model says of a statement, in a sentence.
fn note(claim: &Claim, ours: Option<f64>, sides: [&Result<Run, BuildError>; 2]) -> String {
    let side = |(system, _): (SystemName, Setting), run: &Result<Run, BuildError>| match run {
        Err(error) => format!("{} was not built: {error}", system.name()),
        Ok(Run { measured, .. }) => {
            let tally = &measured.tally;
            let filling = if measured.is_filling() { ", its caches still filling" } else { "" };
            format!(
                "{} is bound by {} at {:.2} Mops/s, {:.2} requests and {:.0} bytes an operation{filling}",
                system.name(),
                match measured.bound {
                    Bound::Rate => "requests",
                    Bound::Bandwidth => "bytes",
                    Bound::Cpu => "processors",
                    Bound::Latency => "latency",
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
