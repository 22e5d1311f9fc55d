//! One pass of a workload over a store, in several threads.
//!
//! Operations are executed singly or in groups. In a group, inserts and updates come first, then
//! reads and the reads of read-modify-writes, then the writes of these, then scans, so that a
//! thread finds its own inserts. Single changes may be in flight while the thread continues; a read
//! of the same key waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use fpcache_datasets::requests::{Operation, OperationKind, Operations, Play, Workload};
use hdrhistogram::Histogram;
use stats_alloc::INSTRUMENTED_SYSTEM;

use super::check::Checks;
use super::done::{Done, Part, together};
use super::ledger::{last_writes, sequence};
use super::schedule::{Arrivals, Schedule, wait_until};
use super::store::{Session, Store};
use super::thread::Thread;
use crate::run::measure::new_histogram;
use crate::run::threads::WARM_UP;

/// When a pass ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After this many operations, all threads together.
    Operations(u64),
    /// After this time.
    After(Duration),
}

/// How operations are timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// Not at all: the pass is timed as a whole.
    Whole,
    /// Each one, from its start.
    Each,
    /// Each one from the instant it was due, at this rate per second of all threads.
    Scheduled(f64, Arrivals),
}

/// What all passes of an experiment share.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// The loaded keys, ascending.
    pub loaded: &'a [u64],
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations per call.
    pub group: usize,
    /// Writes that a thread may have under way in a pass that is timed as a whole; in others it
    /// waits for each.
    pub in_flight: usize,
    /// When a pass ends.
    pub end: End,
    /// Operations drawn first for a pass that ends by time. When a thread is through with its share
    /// the clock stops until others are drawn: a hot cache would have an entry for each of them by
    /// then. They are as many as the rest of the time needs at the rate so far, at least this
    /// number and otherwise at most 16 M. The memory node may catch up with its rebuilds in these
    /// pauses, in which writes are sorted, too. Where instants are due, all that are due are drawn
    /// at once.
    pub drawn: u64,
    /// Seeds the operations.
    pub seed: u64,
}

/// What a thread keeps from pass to pass.
#[derive(Clone, Debug)]
pub struct Hand {
    /// The keys it inserts, in this order.
    pub inserts: Vec<u64>,
    /// How many of them it has inserted.
    pub inserted: usize,
}

/// What passes change.
#[derive(Clone, Debug)]
pub struct Progressing {
    /// Each thread's part.
    pub hands: Vec<Hand>,
    /// Operations of each thread so far, at most.
    pub base: u64,
    /// Stretches of operations so far.
    pub stretches: u32,
}

/// Runs a pass.
///
/// # Errors
/// If the store fails in a thread.
pub fn run<S: Store>(
    store: &S,
    workload: &Workload,
    course: &Course<'_>,
    timing: Timing,
    state: &mut Progressing,
) -> anyhow::Result<Done> {
    let mut done = stretch(store, workload, course, timing, WARM_UP, state)?;
    if let (End::After(time), Timing::Whole | Timing::Each) = (course.end, timing) {
        let mut more = done.operations;
        while more > 0 && !done.ran_out && done.elapsed < time {
            let left = time - done.elapsed;
            let drawn = drawn_next(course.drawn, done.ops_per_s * left.as_secs_f64());
            let rest = Course { end: End::After(left), drawn, ..*course };
            // Another warm-up would fill a hot cache with lookups that are not counted.
            let next = stretch(store, workload, &rest, timing, 0, state)?;
            more = next.operations;
            done.go_on(next)?;
        }
    }
    Ok(done)
}

/// The most operations to draw for a pass that has instants, of 16 bytes each.
pub const MOST_DUE: u64 = 1 << 25;

/// Operations to draw for a pass of this time that has instants at this rate per second. Arrivals
/// at random are a few more than their rate says, or fewer.
pub fn drawn_at(rate: f64, time: Duration) -> u64 {
    ((rate * time.as_secs_f64() * 1.1) as u64).saturating_add(1_000)
}

/// Operations to draw for a stretch, all threads together.
fn drawn(course: &Course<'_>, timing: Timing) -> u64 {
    match (course.end, timing) {
        (End::Operations(all), _) => all,
        (End::After(time), Timing::Scheduled(rate, _)) => drawn_at(rate, time),
        (End::After(_), _) => course.drawn,
    }
}

/// Operations to draw for the rest of a pass that ends by time, of which these are expected.
fn drawn_next(least: u64, expected: f64) -> u64 {
    /// Of 16 bytes each.
    const MOST: u64 = 1 << 24;
    // The first thread that is through with its share ends the stretch, and threads are not
    // equally fast.
    ((expected * 1.25) as u64).min(MOST).max(least)
}

/// Runs operations that are drawn before: those of the pass, or until a thread is through with its
/// share. The threads start together, each after up to `warm_up` lookups that bring its models into
/// the caches again.
fn stretch<S: Store>(
    store: &S,
    workload: &Workload,
    course: &Course<'_>,
    timing: Timing,
    warm_up: usize,
    state: &mut Progressing,
) -> anyhow::Result<Done> {
    let threads = state.hands.len().max(1);
    let start = Start {
        barrier: Barrier::new(state.hands.len()),
        hits: Mutex::new(Ok(None)),
        is_over: AtomicBool::new(false),
    };
    let (base, stretches) = (state.base, state.stretches);
    let runners = state.hands.iter().enumerate().map(|(thread, hand)| Runner {
        course,
        workload,
        timing,
        warm_up,
        thread,
        threads,
        base,
        stream: stretches * threads as u32 + thread as u32,
        hand,
    });
    let results: Vec<anyhow::Result<Part>> = thread::scope(|scope| {
        let spawned: Vec<_> = runners
            .map(|runner| {
                let start = &start;
                scope.spawn(move || runner.run(store, start))
            })
            .collect();
        let panicked = || anyhow::anyhow!("a measuring thread panicked: please report it");
        spawned.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let parts: Vec<Part> = results
        .into_iter()
        .collect::<anyhow::Result<_>>()
        .with_context(|| format!("running workload {}", workload.name))?;
    state.stretches += 1;
    state.base += parts.iter().map(|part| part.operations).max().unwrap_or(0);
    for (hand, part) in state.hands.iter_mut().zip(&parts) {
        hand.inserted = part.inserted;
    }
    let hits_before = start.hits.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let mut done = together(parts)?;
    done.hits = store.hits()?.zip(hits_before).map(|(after, before)| after.saturating_sub(before));
    Ok(done)
}

/// Where the threads meet before they start.
struct Start {
    barrier: Barrier,
    /// Hits of the hot cache when all had warmed up.
    hits: Mutex<anyhow::Result<Option<u64>>>,
    /// Whether a thread is through with what was drawn for it, of a pass that ends by time.
    is_over: AtomicBool,
}

impl Start {
    /// Waits for the others, and until one of them has read the hits.
    fn meet(&self, store: &impl Store) {
        if self.barrier.wait().is_leader() {
            *self.hits.lock().unwrap_or_else(PoisonError::into_inner) = store.hits();
        }
        self.barrier.wait();
    }
}

/// One thread's pass.
struct Runner<'a> {
    course: &'a Course<'a>,
    workload: &'a Workload,
    timing: Timing,
    warm_up: usize,
    thread: usize,
    threads: usize,
    base: u64,
    /// Tells its operations from those of other threads and passes.
    stream: u32,
    hand: &'a Hand,
}

impl Runner<'_> {
    fn run<S: Store>(&self, store: &S, start: &Start) -> anyhow::Result<Part> {
        /// Sets the operations of warm-ups apart from all that are measured.
        const WARMING_UP: u32 = 1 << 31;
        let drawn = self.share_of(drawn(self.course, self.timing));
        let (drawn, limit) = match (self.course.end, self.timing) {
            (End::After(_), Timing::Scheduled(..)) => (drawn, u64::MAX),
            (End::After(_), _) => (drawn.max(1), drawn.max(1)),
            (End::Operations(_), _) => (drawn, drawn),
        };
        let Course { loaded, seed, value_bytes, .. } = *self.course;
        let draw = |count, stream| Operations::generate(loaded, self.workload, count, seed, stream);
        let operations = draw(drawn as usize, self.stream);
        let play = || operations.play(loaded, &self.hand.inserts, self.hand.inserted);
        let in_flight = if self.timing == Timing::Whole { self.course.in_flight } else { 1 };
        let warmed = store.session(in_flight).and_then(|session| {
            let mut thread = Thread::new(session, in_flight, value_bytes, loaded);
            // Not the pass's own operations: a hot cache would have an entry for each of them.
            let others = draw(self.warm_up.min(operations.len()), self.stream | WARMING_UP);
            let play = others.play(loaded, &self.hand.inserts, self.hand.inserted);
            thread.warm_up(play, others.len())?;
            Ok(thread)
        });
        let latencies = match self.timing {
            Timing::Whole => Ok(Vec::new()),
            _ => OperationKind::ALL.iter().map(|_| new_histogram()).collect(),
        };
        // A thread that failed meets the others all the same: they would wait for it for ever.
        start.meet(store);
        let mut thread = warmed?;
        let mut part = self.timed(&mut thread, play(), (limit, start), latencies?)?;
        part.checks = thread.checks;
        let number = |at| sequence(self.base, at, self.thread, self.threads);
        part.writes = last_writes(play(), part.operations, self.course.group, number);
        Ok(part)
    }

    fn share_of(&self, all: u64) -> u64 {
        let (thread, threads) = (self.thread as u64, self.threads as u64);
        all / threads + u64::from(thread < all % threads)
    }

    fn timed<S: Session>(
        &self,
        thread: &mut Thread<'_, S>,
        mut play: Play<'_>,
        (limit, begin): (u64, &Start),
        mut latencies: Vec<Histogram<u64>>,
    ) -> anyhow::Result<Part> {
        let Course { group, end, seed, .. } = *self.course;
        let mut schedule = match self.timing {
            Timing::Scheduled(rate, arrivals) => {
                Some(Schedule::new(arrivals, rate, self.thread, self.threads, seed))
            }
            _ => None,
        };
        let mut counts = [0; OperationKind::ALL.len()];
        let mut operations: Vec<Operation> = Vec::with_capacity(group);
        let mut starts: Vec<Instant> = Vec::with_capacity(group);
        let (mut done, mut ran_out) = (0, false);
        let allocations = INSTRUMENTED_SYSTEM.stats().allocations;
        let start = Instant::now();
        let mut watch = Watch::new(start, end, self.timing, &begin.is_over);
        while !ran_out && done < limit && !watch.is_over(done) {
            let mut room = (limit - done).min(group as u64) as usize;
            starts.clear();
            if let Some(schedule) = &mut schedule {
                // The last group has those that are due before the end.
                starts.extend(std::iter::from_fn(|| watch.next_before_end(schedule)).take(room));
                room = starts.len();
                if !watch.wait_for(starts.last()) {
                    break;
                }
            }
            operations.clear();
            operations.extend(play.by_ref().take(room));
            ran_out = operations.len() < room;
            match &schedule {
                Some(_) => starts.truncate(operations.len()),
                None if !latencies.is_empty() => starts.resize(operations.len(), Instant::now()),
                None => {}
            }
            thread.sequence = sequence(self.base, done, self.thread, self.threads);
            thread.execute(&operations, self.threads as u64)?;
            done += operations.len() as u64;
            operations.iter().for_each(|operation| counts[operation.kind().index()] += 1);
            if !starts.is_empty() {
                record_ended(&mut latencies, &operations, &starts);
            }
        }
        begin.is_over.fetch_or(done == limit, Ordering::Relaxed);
        thread.finish()?;
        let finished = Instant::now();
        let overdue = schedule.zip(watch.end).filter(|_| !ran_out);
        let not_begun = overdue.map_or(0, |(schedule, end)| {
            let shares = OperationKind::ALL.map(|kind| self.workload.mix.share(kind));
            schedule.record_overdue(end.saturating_duration_since(start), latencies.iter_mut().zip(shares))
        });
        Ok(Part {
            start,
            end: finished,
            operations: done,
            counts,
            allocations: (INSTRUMENTED_SYSTEM.stats().allocations - allocations) as u64,
            inserted: play.inserted(),
            ran_out,
            not_begun,
            checks: Checks::default(),
            latencies,
            writes: Vec::new(),
        })
    }
}

/// Records operations that end now, each from its start.
#[inline]
fn record_ended(latencies: &mut [Histogram<u64>], operations: &[Operation], starts: &[Instant]) {
    let now = Instant::now();
    for (operation, &start) in operations.iter().zip(starts) {
        let ns = now.saturating_duration_since(start).as_nanos() as u64;
        latencies[operation.kind().index()].saturating_record(ns.max(1));
    }
}

/// Tells when a pass that ends by time is over.
struct Watch<'a> {
    start: Instant,
    end: Option<Instant>,
    /// Set when a thread is through with what was drawn for it.
    is_over: &'a AtomicBool,
    /// Operations after which the clock is looked at.
    step: u64,
    looked_at: u64,
}

impl<'a> Watch<'a> {
    fn new(start: Instant, end: End, timing: Timing, is_over: &'a AtomicBool) -> Self {
        let end = match end {
            End::Operations(_) => None,
            End::After(time) => Some(start + time),
        };
        // A reading costs as much as a part of a lookup; operations that are timed have readings
        // anyway.
        let step = if timing == Timing::Whole { 64 } else { 1 };
        Self { start, end, is_over, step, looked_at: 0 }
    }

    /// Whether the time is over, or the stretch, after `done` operations.
    #[inline]
    fn is_over(&mut self, done: u64) -> bool {
        let Some(end) = self.end else { return false };
        if done - self.looked_at < self.step {
            return false;
        }
        self.looked_at = done;
        self.is_over.load(Ordering::Relaxed) || Instant::now() >= end
    }

    /// When the next operation is due; `None`, and it stays the next one, if that is not before the
    /// end.
    fn next_before_end(&self, schedule: &mut Schedule) -> Option<Instant> {
        let mut upcoming = *schedule;
        let due = self.start + Duration::from_nanos(upcoming.next());
        let is_before = self.end.is_none_or(|end| due < end);
        is_before.then(|| *schedule = upcoming).map(|()| due)
    }

    /// Waits until an operation is due; for the end, if there is none before it: then it is false.
    fn wait_for(&self, due: Option<&Instant>) -> bool {
        due.copied().or(self.end).into_iter().for_each(wait_until);
        due.is_some()
    }
}
