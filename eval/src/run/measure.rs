//! The passes of an experiment.
//!
//! Verification compares every answer with what it must be and adds up the costs. Throughput is timed over whole
//! passes without looking at the clock in between; latency is recorded in a pass of its own, one clock reading before
//! and one after each call. Throughput passes of different systems take turns, so that a disturbance of the machine
//! meets them all and ratios within one run hold.

use std::hint::black_box;
use std::ops::AddAssign;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_client::{Found, Plan};
use fpcache_datasets::requests::{ABSENT, Requests};
use fpcache_datasets::{Dataset, Progress, write_value};
use hdrhistogram::Histogram;
use stats_alloc::INSTRUMENTED_SYSTEM;

use crate::progress::Bar;
use crate::systems::{Facts, Reader, System};

/// Lookups a thread does before each timed pass: they bring models and upper levels into the caches again, which
/// another system has used since.
const WARM_UP: usize = 100_000;
/// Longest latency that is told apart from longer ones.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// What is looked up, and how.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// The data.
    pub dataset: &'a Dataset,
    /// The lookups and what each must find.
    pub requests: &'a Requests,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys per call.
    pub batch: usize,
    /// Threads that look up at once, each its own part of the lookups.
    pub threads: usize,
}

/// A system on which the passes can be run, whatever its type.
pub trait Measurable {
    /// As reports spell it.
    fn name(&self) -> &str;

    /// What it is made of.
    fn facts(&self) -> Facts;

    /// Looks everything up in one thread and compares every answer.
    fn verify(&self, workload: &Workload<'_>, bar: &Bar) -> anyhow::Result<Verified>;

    /// Looks everything up in all threads, timed as a whole.
    fn throughput(&self, workload: &Workload<'_>) -> anyhow::Result<Pass>;

    /// Looks everything up in all threads, each call timed, in nanoseconds.
    fn latency(&self, workload: &Workload<'_>) -> anyhow::Result<Histogram<u64>>;
}

impl<S: System> Measurable for S {
    fn name(&self) -> &str {
        System::name(self)
    }

    fn facts(&self) -> Facts {
        System::facts(self)
    }

    fn verify(&self, workload: &Workload<'_>, bar: &Bar) -> anyhow::Result<Verified> {
        let phase = format!("verifying {}", self.name());
        bar.during(&phase, workload.requests.len() as u64, || verify(self, workload, bar))
            .with_context(|| format!("looking up in {}", self.name()))
    }

    fn throughput(&self, workload: &Workload<'_>) -> anyhow::Result<Pass> {
        let parts = in_threads(self, workload, |reader, keys| {
            let allocations = INSTRUMENTED_SYSTEM.stats().allocations;
            let start = Instant::now();
            look_up(reader, keys, workload.batch)?;
            let end = Instant::now();
            let allocations = INSTRUMENTED_SYSTEM.stats().allocations - allocations;
            Ok((start, end, allocations as u64))
        })?;
        let start = parts.iter().map(|(start, ..)| *start).min();
        let end = parts.iter().map(|(_, end, _)| *end).max();
        let elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
        // The counter is one for all threads, so the largest count covers the others.
        let allocations = parts.iter().map(|(.., allocations)| *allocations).max().unwrap_or(0);
        Ok(Pass { elapsed, allocations })
    }

    fn latency(&self, workload: &Workload<'_>) -> anyhow::Result<Histogram<u64>> {
        let parts = in_threads(self, workload, |reader, keys| {
            let mut histogram = new_histogram()?;
            record(reader, keys, workload.batch, &mut histogram)?;
            Ok(histogram)
        })?;
        let mut all = new_histogram()?;
        for part in &parts {
            all.add(part)?;
        }
        Ok(all)
    }
}

fn new_histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)?)
}

/// A throughput pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Allocations in that time, in the whole process.
    pub allocations: u64,
}

impl Pass {
    /// Lookups per second.
    pub fn ops_per_s(&self, lookups: usize) -> f64 {
        lookups as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The measured loop: nothing but lookups.
#[inline]
fn look_up<R: Reader>(reader: &mut R, keys: &[u64], batch: usize) -> anyhow::Result<()> {
    if batch == 1 {
        for &key in keys {
            black_box(reader.get(key)?);
        }
    } else {
        for group in keys.chunks(batch) {
            reader.get_many(group)?;
            for i in 0..group.len() {
                black_box(reader.answer(i));
            }
        }
    }
    Ok(())
}

/// The same with a clock reading on either side of each call.
#[inline]
fn record<R: Reader>(
    reader: &mut R,
    keys: &[u64],
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

/// Runs `work` in every thread on its part of the lookups, all starting together after a warm-up.
fn in_threads<S: System, T: Send>(
    system: &S,
    workload: &Workload<'_>,
    work: impl Fn(&mut S::Reader<'_>, &[u64]) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let keys = &workload.requests.keys;
    let part = keys.len().div_ceil(workload.threads.max(1)).max(1);
    let parts: Vec<&[u64]> = keys.chunks(part).collect();
    let barrier = Barrier::new(parts.len());
    let run = |keys: &[u64]| {
        let mut reader = system.reader();
        let warm_up = keys.len().min(WARM_UP);
        // A thread that failed meets the others all the same: they would wait for it for ever.
        let warmed = look_up(&mut reader, &keys[..warm_up], workload.batch);
        barrier.wait();
        warmed?;
        work(&mut reader, keys)
    };
    let results: Vec<anyhow::Result<T>> = thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| run(part))).collect();
        let panicked = || anyhow::anyhow!("a measuring thread panicked: please report it");
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let in_system = || format!("looking up in {}", System::name(system));
    results.into_iter().map(|result| result.with_context(in_system)).collect()
}

/// What verification found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Answers that were compared.
    pub lookups: u64,
    /// Answers that were wrong.
    pub mismatches: u64,
    /// The first wrong one, in words.
    pub first_mismatch: Option<String>,
    /// Costs of all lookups, for systems that read from a memory node.
    pub costs: Option<Costs>,
}

/// Costs added up over lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Lookups by the two-stage plan; all others were range reads.
    pub two_stage: u64,
    /// Dependent round trips each lookup waited for; keys of one group wait for the same ones, each counts them.
    pub round_trips: u64,
    /// READ requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Slots fetched for a fingerprint that was another key's.
    pub false_candidates: u64,
    /// Times a plan was given up.
    pub fallbacks: u64,
}

impl AddAssign<Found> for Costs {
    fn add_assign(&mut self, found: Found) {
        self.two_stage += u64::from(found.plan == Plan::TwoStage);
        self.round_trips += u64::from(found.cost.round_trips);
        self.reads += u64::from(found.cost.reads);
        self.bytes += found.cost.bytes;
        self.false_candidates += u64::from(found.cost.false_candidates);
        self.fallbacks += u64::from(found.cost.fallbacks);
    }
}

fn verify<S: System>(system: &S, workload: &Workload<'_>, bar: &Bar) -> anyhow::Result<Verified> {
    const STEP: u64 = 1 << 16;
    let Workload { dataset, requests, batch, .. } = *workload;
    let mut reader = system.reader();
    let mut value = vec![0; workload.value_bytes];
    let mut verified = Verified::default();
    let (mut done, mut reported) = (0, 0);
    for (keys, indices) in requests.keys.chunks(batch).zip(requests.expected.chunks(batch)) {
        if batch == 1 {
            let (answer, found) = reader.get_with_cost(keys[0])?;
            verified.check(dataset, keys[0], indices[0], answer, &mut value);
            verified.add(found);
        } else {
            reader.get_many(keys)?;
            for (i, (&key, &index)) in keys.iter().zip(indices).enumerate() {
                verified.check(dataset, key, index, reader.answer(i), &mut value);
                verified.add(reader.cost(i));
            }
        }
        done += keys.len() as u64;
        if done >= reported + STEP {
            reported = done;
            bar.advance(done);
        }
    }
    Ok(verified)
}

impl Verified {
    fn add(&mut self, found: Option<Found>) {
        if let Some(found) = found {
            *self.costs.get_or_insert_default() += found;
        }
    }

    /// Compares an answer with the value at `index` of the data set; `value` is room for that.
    fn check(&mut self, dataset: &Dataset, key: u64, index: u64, answer: Option<&[u8]>, value: &mut [u8]) {
        self.lookups += 1;
        let expected = if index == ABSENT {
            None
        } else {
            write_value(dataset.value(index as usize), value);
            Some(&*value)
        };
        if answer != expected {
            self.mismatches += 1;
            self.first_mismatch.get_or_insert_with(|| {
                format!("key {key}: expected {}, got {}", describe(expected), describe(answer))
            });
        }
    }
}

fn describe(value: Option<&[u8]>) -> String {
    const SHOWN: usize = 16;
    match value {
        None => "no value".to_owned(),
        Some(value) => {
            let dots = if value.len() > SHOWN { ".." } else { "" };
            let hex: String = value.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots} ({} bytes)", value.len())
        }
    }
}

/// Throughput passes of several systems, which take turns; the passes of each, in order.
pub fn rounds(
    systems: &[&dyn Measurable],
    workload: &Workload<'_>,
    rounds: usize,
    bar: &Bar,
) -> anyhow::Result<Vec<Vec<Pass>>> {
    let mut passes = vec![Vec::with_capacity(rounds); systems.len()];
    bar.during("measuring throughput", (rounds * systems.len()) as u64, || {
        for round in 0..rounds {
            for turn in 0..systems.len() {
                // Each round begins with another system: none always follows the same one.
                let which = (round + turn) % systems.len();
                passes[which].push(systems[which].throughput(workload)?);
                bar.advance((round * systems.len() + turn + 1) as u64);
            }
        }
        Ok(passes)
    })
}

/// The median pass by time, the lower one of two.
pub fn median(passes: &[Pass]) -> Option<Pass> {
    let mut sorted = passes.to_vec();
    sorted.sort_by_key(|pass| pass.elapsed);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
    use fpcache_datasets::{OpenOptions, Spec};

    /// Answers each key of `sequential` with itself, wrongly for multiples of `wrong`, failing at `fails`.
    struct Echo {
        wrong: u64,
        fails: Option<u64>,
        asked: AtomicUsize,
    }

    struct EchoReader<'a>(&'a Echo, Vec<Option<[u8; 8]>>, [u8; 8]);

    impl System for Echo {
        type Reader<'a> = EchoReader<'a>;
        fn name(&self) -> &str {
            "echo"
        }
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn reader(&self) -> EchoReader<'_> {
            EchoReader(self, Vec::new(), [0; 8])
        }
    }

    impl EchoReader<'_> {
        fn answer_to(&self, key: u64) -> anyhow::Result<Option<[u8; 8]>> {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(self.0.fails != Some(key), "the memory node is gone");
            let answer = if key.is_multiple_of(self.0.wrong) { key + 1 } else { key };
            Ok((key < 1_000).then_some(answer.to_le_bytes()))
        }
    }

    impl Reader for EchoReader<'_> {
        fn get(&mut self, key: u64) -> anyhow::Result<Option<&[u8]>> {
            Ok(self.get_with_cost(key)?.0)
        }
        fn get_with_cost(&mut self, key: u64) -> anyhow::Result<(Option<&[u8]>, Option<Found>)> {
            let Some(value) = self.answer_to(key)? else { return Ok((None, None)) };
            self.2 = value;
            Ok((Some(&self.2), None))
        }
        fn get_many(&mut self, keys: &[u64]) -> anyhow::Result<()> {
            self.1 = keys.iter().map(|&key| self.answer_to(key)).collect::<anyhow::Result<_>>()?;
            Ok(())
        }
        fn answer(&self, index: usize) -> Option<&[u8]> {
            self.1.get(index)?.as_ref().map(<[u8; 8]>::as_slice)
        }
        fn cost(&self, _: usize) -> Option<Found> {
            None
        }
    }

    fn echo(wrong: u64, fails: Option<u64>) -> Echo {
        Echo { wrong, fails, asked: AtomicUsize::new(0) }
    }

    fn with_workload(batch: usize, threads: usize, test: impl Fn(&Workload<'_>)) {
        let dataset = "sequential:1K".parse::<Spec>().unwrap().open(&OpenOptions::default()).unwrap();
        let options =
            RequestOptions { lookups: 5_001, distribution: Distribution::Uniform, negative: 0.2, seed: 7, shift_every: None };
        let requests = generate(dataset.keys(), &options);
        test(&Workload { dataset: &dataset, requests: &requests, value_bytes: 8, batch, threads });
    }

    #[test]
    fn every_wrong_answer_is_counted() {
        for batch in [1, 32] {
            with_workload(batch, 1, |workload| {
                let bar = Bar::default();
                let right = Measurable::verify(&echo(5_000, None), workload, &bar).unwrap();
                // Key 0 is a multiple of anything.
                let zeros = workload.requests.keys.iter().filter(|&&key| key == 0).count() as u64;
                assert_eq!(right.mismatches, zeros);
                let wrong = Measurable::verify(&echo(3, None), workload, &bar).unwrap();
                let multiples =
                    workload.requests.keys.iter().filter(|&&k| k < 1_000 && k.is_multiple_of(3)).count();
                assert_eq!(wrong.mismatches, multiples as u64);
                assert!(wrong.first_mismatch.unwrap().contains("expected"));
            });
        }
    }

    #[test]
    fn a_value_where_none_belongs_and_none_where_one_belongs_are_wrong() {
        with_workload(1, 1, |workload| {
            let mut verified = Verified::default();
            let mut value = vec![0; 8];
            verified.check(workload.dataset, 5_000, ABSENT, Some(&[0; 8]), &mut value);
            verified.check(workload.dataset, 1, 1, None, &mut value);
            verified.check(workload.dataset, 1, 1, Some(&[1, 0, 0, 0, 0, 0, 0]), &mut value);
            assert_eq!(verified.mismatches, 3);
            verified.check(workload.dataset, 5_000, ABSENT, None, &mut value);
            assert_eq!(verified.mismatches, 3);
        });
    }

    #[test]
    fn every_pass_asks_for_every_key_in_any_number_of_threads() {
        for (batch, threads) in [(1, 1), (1, 3), (32, 4), (7, 40)] {
            with_workload(batch, threads, |workload| {
                let system = echo(u64::MAX, None);
                let pass = system.throughput(workload).unwrap();
                assert!(pass.elapsed > Duration::ZERO);
                // Once to warm up, once in earnest.
                assert_eq!(system.asked.swap(0, Ordering::Relaxed), 2 * 5_001);
                let histogram = system.latency(workload).unwrap();
                let part = 5_001usize.div_ceil(threads);
                let calls: usize =
                    workload.requests.keys.chunks(part).map(|part| part.len().div_ceil(batch)).sum();
                assert_eq!(histogram.len(), calls as u64);
            });
        }
    }

    #[test]
    fn a_failing_system_ends_every_pass_with_its_name() {
        with_workload(1, 2, |workload| {
            let system = echo(u64::MAX, Some(workload.requests.keys[5_000]));
            for error in [
                Measurable::verify(&system, workload, &Bar::default()).unwrap_err(),
                system.throughput(workload).unwrap_err(),
                system.latency(workload).unwrap_err(),
            ] {
                assert!(format!("{error:#}").contains("echo: the memory node is gone"), "{error:#}");
            }
        });
    }

    #[test]
    fn systems_take_turns_and_the_median_pass_counts() {
        with_workload(1, 1, |workload| {
            let systems: [&dyn Measurable; 2] = [&echo(2, None), &echo(3, None)];
            let passes = rounds(&systems, workload, 3, &Bar::default()).unwrap();
            assert_eq!(passes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        });
        let pass = |ms| Pass { elapsed: Duration::from_millis(ms), allocations: 0 };
        assert_eq!(median(&[pass(30), pass(10), pass(20)]).unwrap().elapsed.as_millis(), 20);
        assert!(median(&[]).is_none());
    }
}
