//! The passes of an experiment, each over a part of the stream of lookups.
//!
//! Throughput is timed over whole passes without reading the clock in between. Latency is recorded
//! in a separate pass, with a clock reading before and after each call, and so is the timeline,
//! with a reading per point. Throughput passes of different systems alternate, so that a
//! disturbance of the machine affects them all and ratios within one run hold. Their order is in
//! [`passes`](mod@crate::run::passes).

use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::CacheStats;
use fpcache_datasets::{Bar, Progress};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::INSTRUMENTED_SYSTEM;

use crate::data::DataKeys;
use crate::pages::MemoryPages;
use crate::run::threads::{Threads, in_threads, look_up};
use crate::run::timeline::{Seen, TimelinePoint, together};
use crate::run::verify::{Verified, verify};
use crate::run::workload::Workload;
use crate::systems::{Facts, Reader, System};

/// Longest latency that is told apart from longer ones.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// A system on which the passes can be run, whatever its type.
pub trait Measurable<K: DataKeys> {
    /// As reports spell it.
    fn name(&self) -> &str;

    /// What it is made of.
    fn facts(&self) -> Facts;

    /// What its compute node keeps and how far that helped, if it keeps anything within a budget.
    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>>;

    /// Looks everything up in one thread and compares every answer.
    fn verify(&self, workload: &Workload<'_, '_, K>, bar: &Bar) -> anyhow::Result<Verified>;

    /// Looks everything up in all threads, timed as a whole.
    fn throughput(&self, workload: &Workload<'_, '_, K>) -> anyhow::Result<Pass>;

    /// Looks everything up in all threads, each call timed, in nanoseconds.
    fn latency(&self, workload: &Workload<'_, '_, K>) -> anyhow::Result<Histogram<u64>>;

    /// Looks everything up in all threads, timed point by point: a point is a stretch of the
    /// workload.
    fn timeline(&self, workload: &Workload<'_, '_, K>) -> anyhow::Result<Vec<TimelinePoint>>;
}

impl<S: System> Measurable<S::Keys> for S {
    fn name(&self) -> &str {
        System::name(self)
    }

    fn facts(&self) -> Facts {
        System::facts(self)
    }

    fn cache_stats(&self) -> anyhow::Result<Option<CacheStats>> {
        System::cache_stats(self)
    }

    fn verify(&self, workload: &Workload<'_, '_, S::Keys>, bar: &Bar) -> anyhow::Result<Verified> {
        if workload.cold {
            self.clear_cache();
        }
        let phase = format!("verifying {}", self.name());
        bar.during(&phase, workload.lookups.len() as u64, || verify(self, workload, bar))
            .with_context(|| format!("looking up in {}", self.name()))
    }

    fn throughput(&self, workload: &Workload<'_, '_, S::Keys>) -> anyhow::Result<Pass> {
        let Threads { hits_before, parts } = in_threads(self, workload, |reader, stretches, _| {
            let cpu = self.server_cpu();
            let (process, allocations) = (process_cpu(), INSTRUMENTED_SYSTEM.stats().allocations);
            let start = Instant::now();
            for keys in stretches {
                look_up(reader, keys, workload.batch)?;
            }
            let end = Instant::now();
            let allocations = INSTRUMENTED_SYSTEM.stats().allocations - allocations;
            let process = process_cpu().saturating_sub(process);
            let cpu = self.server_cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before));
            Ok((start, end, Counted { allocations: allocations as u64, process, server: cpu }))
        })?;
        let hits = System::cache_stats(self)?.map(|stats| stats.hits);
        let hits = hits.zip(hits_before).map(|(after, before)| after.saturating_sub(before));
        Ok(Pass::of(&parts, hits))
    }

    fn latency(&self, workload: &Workload<'_, '_, S::Keys>) -> anyhow::Result<Histogram<u64>> {
        let Threads { parts, .. } = in_threads(self, workload, |reader, stretches, _| {
            let mut histogram = new_histogram()?;
            for keys in stretches {
                record(reader, keys, workload.batch, &mut histogram)?;
            }
            Ok(histogram)
        })?;
        all_of(&parts)
    }

    fn timeline(&self, workload: &Workload<'_, '_, S::Keys>) -> anyhow::Result<Vec<TimelinePoint>> {
        let Threads { hits_before, parts } = in_threads(self, workload, |reader, stretches, is_first| {
            let mut seen = Vec::with_capacity(stretches.len());
            for keys in stretches {
                let start = Instant::now();
                look_up(reader, keys, workload.batch)?;
                let end = Instant::now();
                let stats = if is_first { System::cache_stats(self)? } else { None };
                seen.push(Seen {
                    lookups: keys.len() as u64,
                    start,
                    end,
                    hits: stats.map(|stats| stats.hits),
                });
            }
            Ok(seen)
        })?;
        Ok(together(&parts, hits_before))
    }
}

/// A histogram of nanoseconds.
pub fn new_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)?)
}

/// One histogram of what several have.
fn all_of(parts: &[Histogram<u64>]) -> anyhow::Result<Histogram<u64>> {
    let mut all = new_histogram()?;
    for part in parts {
        all.add(part)?;
    }
    Ok(all)
}

/// A throughput pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Allocations in that time, in the whole process.
    pub allocations: u64,
    /// Lookups that the hot cache answered, if there is one.
    pub hits: Option<u64>,
    /// Processor time of this process in that time.
    pub client_cpu: Duration,
    /// The same of the process that serves, where that is another one.
    pub server_cpu: Option<Duration>,
}

/// What the passes found of one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Wrong answers, and costs.
    pub verified: Verified,
    /// Throughput passes; never empty.
    pub passes: Vec<Pass>,
    /// What the compute node kept after them, if it has a budget.
    pub cache: Option<CacheStats>,
    /// Latencies of calls, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Throughput along the stream.
    pub timeline: Option<Vec<TimelinePoint>>,
}

/// What a thread of a pass saw of counters that all share.
struct Counted {
    allocations: u64,
    process: Duration,
    server: Option<Duration>,
}

/// Processor time of this process so far.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

impl Pass {
    /// A pass of threads that began and ended at these instants.
    fn of(threads: &[(Instant, Instant, Counted)], hits: Option<u64>) -> Self {
        let start = threads.iter().map(|(start, ..)| *start).min();
        let end = threads.iter().map(|(_, end, _)| *end).max();
        let elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
        // The counters are one for all threads, so the largest count covers the others.
        let allocations = threads.iter().map(|(.., counted)| counted.allocations).max().unwrap_or(0);
        let client_cpu = threads.iter().map(|(.., counted)| counted.process).max().unwrap_or_default();
        let server_cpu = threads.iter().filter_map(|(.., counted)| counted.server).max();
        Self { elapsed, allocations, hits, client_cpu, server_cpu }
    }

    /// Lookups per second.
    pub fn ops_per_s(&self, lookups: usize) -> f64 {
        lookups as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Looks everything up with a clock reading on either side of each call.
#[inline]
fn record<K: DataKeys>(
    reader: &mut impl Reader<K>,
    keys: &[K::View<'_>],
    batch: usize,
    histogram: &mut Histogram<u64>,
) -> anyhow::Result<()> {
    for group in keys.chunks(batch) {
        let start = Instant::now();
        look_up(reader, group, batch)?;
        let elapsed = start.elapsed();
        histogram.saturating_record((elapsed.as_nanos() as u64).max(1));
    }
    Ok(())
}

/// Throughput passes of several systems, which take turns; the passes of each, in order. `workload`
/// is that of a round. Before them what this process holds is brought into such `pages`: maps would
/// otherwise be measured in other ones than the memory node's regions.
pub fn rounds<'a, 'k, K: DataKeys>(
    systems: &[&dyn Measurable<K>],
    workload: impl Fn(usize) -> Workload<'a, 'k, K>,
    rounds: usize,
    (pages, bar): (MemoryPages, &Bar),
) -> anyhow::Result<Vec<Vec<Pass>>>
where
    K::View<'k>: 'a,
{
    bar.during("merging pages", 1, || pages.apply());
    let mut passes = vec![Vec::with_capacity(rounds); systems.len()];
    bar.during("measuring throughput", (rounds * systems.len()) as u64, || {
        for round in 0..rounds {
            let workload = workload(round);
            for turn in 0..systems.len() {
                // Each round begins with another system: none always follows the same one.
                let which = (round + turn) % systems.len();
                passes[which].push(systems[which].throughput(&workload)?);
                bar.advance((round * systems.len() + turn + 1) as u64);
            }
        }
        Ok(passes)
    })
}

/// The median pass by time, the longer of two in the middle: throughput is not flattered.
pub fn median(passes: &[Pass]) -> Option<Pass> {
    let mut sorted = passes.to_vec();
    sorted.sort_by_key(|pass| pass.elapsed);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests;
