//! What a pass found: of one thread, of all, and of stretches one after the other.

use std::time::{Duration, Instant};

use fpcache_datasets::requests::OperationKind;
use hdrhistogram::Histogram;

use super::check::Checks;
use super::ledger::{Ledger, Written};
use crate::latency::Latency;

/// What a pass found.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// Operations of each kind.
    pub counts: [u64; OperationKind::ALL.len()],
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Operations per second of that time, all threads together. The threads' own rates do not add
    /// up to it: with more threads than cores some do their part while others wait for a core.
    pub ops_per_s: f64,
    /// Reads that the hot cache answered in that time, if there is one; those of read-modify-writes
    /// count too.
    pub hits: Option<u64>,
    /// Allocations in that time, in the whole process.
    pub allocations: u64,
    /// What was wrong.
    pub checks: Checks,
    /// Whether a thread ended early for want of keys to insert.
    pub ran_out: bool,
    /// Operations that were due before the pass's end and that no thread had begun by then.
    pub not_begun: u64,
    /// Nanoseconds of each kind's operations, if they were timed. Those that were not begun are
    /// among them, as if they had ended with the pass.
    pub latencies: Vec<Histogram<u64>>,
    /// The last writes.
    pub writes: Ledger,
}

impl Done {
    /// The pass goes on with another stretch of operations, which were drawn between the two.
    ///
    /// # Errors
    /// If histograms differ in their bounds.
    pub(super) fn go_on(&mut self, next: Self) -> anyhow::Result<()> {
        self.operations += next.operations;
        self.counts.iter_mut().zip(next.counts).for_each(|(sum, count)| *sum += count);
        self.elapsed += next.elapsed;
        self.ops_per_s = self.rate();
        self.hits = self.hits.zip(next.hits).map(|(sum, hits)| sum + hits);
        self.allocations += next.allocations;
        self.checks.add(next.checks);
        self.ran_out |= next.ran_out;
        self.not_begun += next.not_begun;
        self.writes.add(next.writes);
        add_latencies(&mut self.latencies, next.latencies)
    }

    /// Latencies of a kind's operations; `None` if none was timed.
    pub fn latency_of(&self, kind: OperationKind) -> Option<Latency> {
        self.latencies.get(kind.index()).filter(|histogram| !histogram.is_empty()).map(Latency::of)
    }

    fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Lookups of keys: reads, and those of read-modify-writes.
    fn lookups(&self) -> u64 {
        self.counts[OperationKind::Read.index()] + self.counts[OperationKind::ReadModifyWrite.index()]
    }
}

/// Share of the passes' lookups that the hot cache answered, if there is one and there were
/// lookups.
pub fn hit_rate(passes: &[Done]) -> Option<f64> {
    let hits: u64 = passes.iter().map(|done| done.hits).sum::<Option<u64>>()?;
    let lookups: u64 = passes.iter().map(Done::lookups).sum();
    (lookups > 0).then(|| hits as f64 / lookups as f64)
}

/// What one thread did.
pub(super) struct Part {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) operations: u64,
    pub(super) counts: [u64; OperationKind::ALL.len()],
    pub(super) allocations: u64,
    pub(super) inserted: usize,
    pub(super) ran_out: bool,
    pub(super) not_begun: u64,
    pub(super) checks: Checks,
    pub(super) latencies: Vec<Histogram<u64>>,
    pub(super) writes: Vec<Written>,
}

/// What threads did together, from the first one's start to the last one's end.
///
/// # Errors
/// If histograms differ in their bounds.
pub(super) fn together(parts: Vec<Part>) -> anyhow::Result<Done> {
    let (mut done, mut writes) = (Done::default(), Vec::new());
    let start = parts.iter().map(|part| part.start).min();
    let end = parts.iter().map(|part| part.end).max();
    done.elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    for part in parts {
        done.operations += part.operations;
        // The counter is one for all threads, so the largest count covers the others.
        done.allocations = done.allocations.max(part.allocations);
        done.counts.iter_mut().zip(part.counts).for_each(|(sum, count)| *sum += count);
        done.ran_out |= part.ran_out;
        done.not_begun += part.not_begun;
        done.checks.add(part.checks);
        writes.push(part.writes);
        add_latencies(&mut done.latencies, part.latencies)?;
    }
    done.writes = Ledger::of_pass(writes);
    done.ops_per_s = done.rate();
    Ok(done)
}

/// Adds histograms of the same kinds, of which there may be none yet.
fn add_latencies(all: &mut Vec<Histogram<u64>>, more: Vec<Histogram<u64>>) -> anyhow::Result<()> {
    if all.is_empty() {
        *all = more;
        return Ok(());
    }
    Ok(all.iter_mut().zip(&more).try_for_each(|(all, own)| all.add(own))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::measure::new_histogram;

    #[test]
    fn a_kind_of_which_there_was_no_operation_has_no_latency() {
        let histograms = OperationKind::ALL.iter().map(|_| new_histogram());
        let mut done = Done { latencies: histograms.collect::<Result<_, _>>().unwrap(), ..Done::default() };
        done.latencies[OperationKind::Read.index()].record(70).unwrap();
        assert_eq!(done.latency_of(OperationKind::Read).map(|latency| latency.p50_ns), Some(70));
        assert_eq!(done.latency_of(OperationKind::Insert), None);
    }

    #[test]
    fn throughput_is_of_the_time_from_the_first_start_to_the_last_end() {
        let begin = Instant::now();
        let part = |from: u64, to: u64| Part {
            start: begin + Duration::from_secs(from),
            end: begin + Duration::from_secs(to),
            operations: 500,
            counts: Default::default(),
            allocations: 0,
            inserted: 0,
            ran_out: false,
            not_begun: 0,
            checks: Checks::default(),
            latencies: Vec::new(),
            writes: Vec::new(),
        };
        // On one core one after the other: each alone does 500 a second, and so do both together.
        let done = together(vec![part(0, 1), part(1, 2)]).unwrap();
        assert_eq!((done.operations, done.elapsed, done.ops_per_s), (1_000, Duration::from_secs(2), 500.0));
        let done = together(vec![part(0, 1), part(0, 1)]).unwrap();
        assert_eq!(done.ops_per_s, 1_000.0);
        assert_eq!(together(Vec::new()).unwrap().ops_per_s, 0.0);
    }
}
