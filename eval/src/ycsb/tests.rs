//! Passes over a map, as a store with optional faults.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fpcache_datasets::requests::{Distribution, Growth, InsertOrder, OperationKind, Workload};

use super::check::everything;
use super::done::{Done, hit_rate};
use super::ledger::Ledger;
use super::pass::{self, Course, End, Hand, Progressing, Timing};
use super::schedule::Arrivals;
use super::store::{Change, Session, Store};
use super::value;

/// What the map does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// One update in a hundred is acknowledged and not made.
    LosesUpdates,
    /// An update puts only the first half of its value.
    TearsUpdates,
    /// Inserted records are not found.
    LosesInserts,
    /// Scans leave out their second record.
    SkipsInScans,
    /// A read takes a fifth of a millisecond.
    IsSlow,
    /// Fails after this many changes.
    FailsAfter(u64),
}

struct Map {
    records: Mutex<(BTreeMap<u64, Vec<u8>>, u64)>,
    /// As a hot cache: keys that were read, and reads of such keys.
    cached: Mutex<(HashSet<u64>, u64)>,
    /// Keys that it has room for.
    room: usize,
    fault: Fault,
    /// Sessions that were opened, and keys that were read.
    sessions: AtomicU64,
    reads: AtomicU64,
}

impl Map {
    fn with<R>(&self, act: impl FnOnce(&mut BTreeMap<u64, Vec<u8>>, &mut u64) -> R) -> R {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let (map, count) = &mut *records;
        act(map, count)
    }
}

impl Store for Map {
    type Session<'a> = &'a Map;
    fn session(&self, _: usize) -> anyhow::Result<&Map> {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(self)
    }

    fn hits(&self) -> anyhow::Result<Option<u64>> {
        Ok(Some(self.cached.lock().unwrap_or_else(PoisonError::into_inner).1))
    }
}

impl Session for &Map {
    fn read(&mut self, keys: &[u64], mut take: impl FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        self.reads.fetch_add(keys.len() as u64, Ordering::Relaxed);
        for (i, key) in keys.iter().enumerate() {
            if self.fault == Fault::IsSlow {
                std::thread::sleep(Duration::from_micros(200));
            }
            let value = self.with(|map, _| map.get(key).cloned());
            let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            cached.1 += u64::from(!cached.0.insert(*key));
            let is_full = cached.0.len() > self.room;
            let victim = cached.0.iter().copied().find(|other| is_full && other != key);
            victim.map(|victim| cached.0.remove(&victim));
            drop(cached);
            take(i, value.as_deref());
        }
        Ok(())
    }

    fn scan(&mut self, start: u64, limit: usize, mut take: impl FnMut(u64, &[u8])) -> anyhow::Result<()> {
        let is_skipped = |i: usize| self.fault == Fault::SkipsInScans && i == 1;
        self.with(|map, _| {
            let records = map.range(start..).enumerate().filter(|(i, _)| !is_skipped(*i));
            records.take(limit).for_each(|(_, (key, value))| take(*key, value));
        });
        Ok(())
    }

    fn change(&mut self, changes: &[(Change, u64)], values: &[u8]) -> anyhow::Result<u64> {
        let mut refused = 0;
        for (&(change, key), value) in changes.iter().zip(values.chunks(values.len() / changes.len())) {
            let count = self.with(|_, count| {
                *count += 1;
                *count
            });
            if let Fault::FailsAfter(most) = self.fault {
                anyhow::ensure!(count <= most, "the disk is full");
            }
            let is_there = self.with(|map, _| map.contains_key(&key));
            if is_there != (change == Change::Update) {
                refused += 1;
                continue;
            }
            match (self.fault, change) {
                (Fault::LosesUpdates, Change::Update) if count.is_multiple_of(100) => {}
                (Fault::LosesInserts, Change::Insert) => {}
                (Fault::TearsUpdates, Change::Update) => {
                    let half = value.len() / 2;
                    self.with(|map, _| {
                        if let Some(record) = map.get_mut(&key) {
                            record[..half].copy_from_slice(&value[..half]);
                        }
                    });
                }
                _ => {
                    self.with(|map, _| map.insert(key, value.to_vec()));
                }
            }
        }
        Ok(refused)
    }

    fn finish(&mut self) -> anyhow::Result<u64> {
        Ok(0)
    }
}

struct Setup {
    group: usize,
    threads: usize,
    value_bytes: usize,
    end: End,
    timing: Timing,
    drawn: u64,
    room: usize,
}

const SCHEDULED: Timing = Timing::Scheduled(2e4, Arrivals::Poisson);
const SETUP: Setup = Setup {
    group: 1,
    threads: 2,
    value_bytes: 16,
    end: End::Operations(4_001),
    timing: Timing::Whole,
    drawn: 1_000,
    room: usize::MAX,
};

/// Runs two passes of each workload, and returns what they found, what was wrong in the end, and
/// the map.
fn run(setup: &Setup, workloads: &[&str], fault: Fault) -> anyhow::Result<(Vec<Done>, u64, Map)> {
    let keys: Vec<u64> = (1..=5_000).map(|i| i * 3).collect();
    let growth = Growth::split(&keys, 2_000, InsertOrder::Random, 3);
    let value = |key| {
        let mut value = vec![0; setup.value_bytes];
        value::write(key, 0, &mut value);
        value
    };
    let records = growth.loaded.iter().map(|&key| (key, value(key))).collect();
    let map = Map {
        records: Mutex::new((records, 0)),
        cached: Mutex::default(),
        room: setup.room,
        fault,
        sessions: AtomicU64::default(),
        reads: AtomicU64::default(),
    };
    let hand = |thread| Hand { inserts: growth.share(thread, setup.threads), inserted: 0 };
    let mut state = Progressing { hands: (0..setup.threads).map(hand).collect(), base: 0, stretches: 0 };
    let course = Course {
        loaded: &growth.loaded,
        value_bytes: setup.value_bytes,
        group: setup.group,
        in_flight: 1,
        end: setup.end,
        drawn: setup.drawn,
        seed: 5,
    };
    let mut ledger = Ledger::default();
    let mut all = Vec::new();
    for _ in 0..2 {
        for name in workloads {
            let custom = |mix: &str| Workload::custom(mix.parse().unwrap());
            let workload = match *name {
                "uniform" => Workload { distribution: Distribution::Uniform, ..custom("read=1") },
                name => name.parse().unwrap_or_else(|_| custom(name)),
            };
            let mut done = pass::run(&map, &workload, &course, setup.timing, &mut state)?;
            ledger.add(std::mem::take(&mut done.writes));
            all.push(done);
        }
    }
    let mut wrong = everything(&map, &growth.loaded, &ledger, setup.value_bytes)?.wrong;
    for hand in &state.hands {
        let mut inserted = hand.inserts[..hand.inserted].to_vec();
        inserted.sort_unstable();
        wrong += everything(&map, &inserted, &ledger, setup.value_bytes)?.wrong;
    }
    let inserted: usize = state.hands.iter().map(|hand| hand.inserted).sum();
    if fault == Fault::None {
        assert_eq!(map.with(|map, _| map.len()), growth.loaded.len() + inserted);
    }
    Ok((all, wrong, map))
}

#[test]
fn every_workload_runs_without_a_wrong_answer_in_any_grouping() {
    for (group, threads, value_bytes) in [(1, 1, 8), (2, 3, 16), (32, 2, 100)] {
        let setup = Setup { group, threads, value_bytes, ..SETUP };
        let (all, wrong, _) = run(&setup, &Workload::NAMES, Fault::None).unwrap();
        assert_eq!(wrong, 0, "{group} {threads} {value_bytes}");
        for done in &all {
            assert_eq!((done.checks.wrong, done.checks.first.as_deref()), (0, None));
            assert_eq!((done.operations, done.ran_out), (4_001, false));
            assert_eq!(done.counts.iter().sum::<u64>(), 4_001);
            assert!(done.ops_per_s > 0.0 && done.latencies.is_empty());
        }
    }
}

#[test]
fn mixtures_of_everything_end_right() {
    let setup = Setup { group: 16, threads: 3, ..SETUP };
    let mix = "read=0.2,update=0.3,insert=0.05,scan=0.05,rmw=0.4";
    let (all, wrong, _) = run(&setup, &[mix, "F", mix], Fault::None).unwrap();
    assert_eq!((wrong, all.iter().map(|done| done.checks.wrong).sum::<u64>()), (0, 0));
}

#[test]
fn every_fault_is_noticed() {
    let wrong = |workload, fault| {
        let (all, in_the_end, _) = run(&Setup { threads: 1, ..SETUP }, &[workload], fault).unwrap();
        (all.iter().map(|done| done.checks.wrong).sum::<u64>(), in_the_end)
    };
    // A lost update leaves an older value, which is right in itself: only the end shows it.
    let (during, in_the_end) = wrong("A", Fault::LosesUpdates);
    assert!(during == 0 && in_the_end > 0, "{during} {in_the_end}");
    assert!(wrong("A", Fault::TearsUpdates).0 > 0);
    assert!(wrong("F", Fault::TearsUpdates).0 > 0);
    let (during, in_the_end) = wrong("D", Fault::LosesInserts);
    assert!(during > 0 && in_the_end > 0, "{during} {in_the_end}");
    assert!(wrong("E", Fault::SkipsInScans).0 > 0);
}

#[test]
fn a_failing_store_ends_all_threads_with_its_error() {
    let error = run(&SETUP, &["A"], Fault::FailsAfter(10)).err().map(|error| format!("{error:#}"));
    assert_eq!(error.as_deref(), Some("running workload A: the disk is full"));
}

#[test]
fn latencies_are_of_each_kind_and_count_every_operation() {
    for (group, timing) in [
        (1, Timing::Each),
        (8, Timing::Each),
        (1, Timing::Scheduled(1e6, Arrivals::Poisson)),
        (8, Timing::Scheduled(1e6, Arrivals::Fixed)),
    ] {
        let (all, wrong, _) = run(&Setup { group, timing, ..SETUP }, &["B"], Fault::None).unwrap();
        assert_eq!(wrong, 0);
        for done in all {
            let timed: Vec<u64> = done.latencies.iter().map(|histogram| histogram.len()).collect();
            assert_eq!(timed, done.counts);
            assert!(done.latencies[OperationKind::Read.index()].min() > 0);
        }
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_shows_what_waits() {
    // 500 operations at 5,000 per second take a tenth of a second, whatever the store could do.
    let setup = Setup { end: End::Operations(500), timing: Timing::Scheduled(5e3, Arrivals::Fixed), ..SETUP };
    let (all, ..) = run(&setup, &["C"], Fault::None).unwrap();
    assert!(all[0].elapsed >= Duration::from_millis(95), "{:?}", all[0].elapsed);
    // Far too fast: the last operations wait for nearly the whole pass.
    let setup = Setup { threads: 1, timing: Timing::Scheduled(1e9, Arrivals::Fixed), ..SETUP };
    let mut seen = Vec::new();
    let shows = (0..5).any(|_| {
        let (all, ..) = run(&setup, &["C"], Fault::None).unwrap();
        let reads = &all[0].latencies[OperationKind::Read.index()];
        let (median, most) = (reads.value_at_quantile(0.5), reads.max());
        let pass = all[0].elapsed.as_nanos() as u64;
        seen.push((median, most, pass));
        // A machine that stops for long near the end makes the waits of the others seem short.
        most > pass / 2 && median > pass / 8
    });
    assert!(shows, "{seen:?}");
}

#[test]
fn operations_that_were_due_and_never_begun_are_counted() {
    let end = End::After(Duration::from_millis(50));
    let timing = Timing::Scheduled(1e5, Arrivals::Fixed);
    for group in [1, 4] {
        let setup = Setup { threads: 1, group, end, timing, ..SETUP };
        let (all, ..) = run(&setup, &["C"], Fault::IsSlow).unwrap();
        for done in &all {
            let reads = &done.latencies[OperationKind::Read.index()];
            assert!((1..=1_000).contains(&done.operations), "{}", done.operations);
            assert_eq!((done.operations + done.not_begun, reads.len()), (5_000, 5_000));
        }
        // One that keeps up has begun all that was due.
        let timing = Timing::Scheduled(200.0, Arrivals::Fixed);
        let (all, ..) = run(&Setup { group: 1, timing, ..setup }, &["C"], Fault::None).unwrap();
        assert!(all.iter().all(|done| done.operations + done.not_begun == 10), "{all:?}");
    }
}

/// The last group, which is not full before the end, was never begun, and its operations were told
/// to be overdue.
#[test]
fn a_store_that_keeps_up_with_groups_has_begun_all_that_was_due() {
    let end = End::After(Duration::from_millis(1_000));
    let timing = Timing::Scheduled(100.0, Arrivals::Fixed);
    // One group of 64 operations at 630 ms, and one of the 36 that are left at 990 ms.
    let setup = Setup { threads: 1, group: 64, end, timing, ..SETUP };
    // Once at least, where others use this machine.
    let keeps_up = (0..5).any(|_| {
        let (all, ..) = run(&setup, &["C"], Fault::None).unwrap();
        for done in &all {
            assert_eq!(done.operations + done.not_begun, 100);
            let reads = &done.latencies[OperationKind::Read.index()];
            assert_eq!(reads.len(), 100);
            assert!(done.elapsed >= Duration::from_millis(1_000), "{:?}", done.elapsed);
        }
        all.iter().all(|done| done.not_begun == 0)
    });
    assert!(keeps_up, "the last group was never begun");
}

#[test]
fn passes_end_after_their_time_and_without_keys_to_insert() {
    let setup = Setup { end: End::After(Duration::from_millis(30)), ..SETUP };
    let (all, wrong, _) = run(&setup, &["A"], Fault::None).unwrap();
    assert_eq!(wrong, 0);
    assert!(all.iter().all(|done| done.elapsed >= Duration::from_millis(30) && done.operations > 0));
    let (all, wrong, _) = run(&SETUP, &["insert=1"], Fault::None).unwrap();
    assert_eq!((wrong, all[0].operations, all[0].ran_out), (0, 2_000, true));
    assert_eq!((all[1].operations, all[1].ran_out), (0, true));
}

/// Its few operations were replayed until the time was over, by when the cache had all their keys.
#[test]
fn a_pass_that_ends_by_time_does_not_ask_for_the_same_keys_again() {
    for timing in [Timing::Whole, Timing::Each, SCHEDULED] {
        let end = End::After(Duration::from_millis(1_500));
        let setup = Setup { end, timing, drawn: 100, room: 300, ..SETUP };
        let (all, ..) = run(&setup, &["uniform"], Fault::None).unwrap();
        let (rate, operations) = (hit_rate(&all[1..]).unwrap(), all[1].operations);
        assert!(operations > 2_000, "{timing:?}: {operations}");
        assert!((0.05..0.2).contains(&rate), "{timing:?}: {rate} of 300 of 3,000 keys");
    }
}

/// It stopped after each of the few operations that were drawn at a time, warmed up again, and half
/// of what the hot cache saw was not counted.
#[test]
fn a_pass_that_ends_by_time_stops_seldom_and_warms_up_once() {
    let end = End::After(Duration::from_millis(1_500));
    for timing in [Timing::Whole, Timing::Each] {
        let setup = Setup { end, timing, drawn: 100, room: 300, ..SETUP };
        let (all, _, map) = run(&setup, &["uniform"], Fault::None).unwrap();
        let counted: u64 = all.iter().map(|done| done.operations).sum();
        // In the end all 3,000 keys were read.
        let uncounted = map.reads.into_inner() - counted - 3_000;
        assert!(counted > 2_000 && uncounted <= 2 * setup.drawn, "{timing:?}: {uncounted} of {counted}");
        let sessions = map.sessions.into_inner();
        assert!(sessions < 400, "{timing:?}: {sessions} in two passes of two threads");
    }
}

#[test]
fn a_pass_warms_up_with_other_operations_than_its_own() {
    let setup = Setup { end: End::Operations(1_000), ..SETUP };
    let (all, ..) = run(&setup, &["C"], Fault::None).unwrap();
    // Of zipf 0.99 many keys were read before, and many were not. With the pass's own operations
    // all would have been. Hits of the warm-up, which are half of all, are not counted.
    let first = hit_rate(&all[..1]).unwrap();
    assert!((0.4..0.95).contains(&first), "{first}");
    let both = hit_rate(&all).unwrap();
    assert!(both > first && both < 1.0, "{both}");
    let (all, ..) = run(&setup, &["update=1"], Fault::None).unwrap();
    assert_eq!(hit_rate(&all), None);
}

#[test]
fn slow_operations_end_with_their_time() {
    let end = End::After(Duration::from_millis(500));
    for (rate, group) in [(20.0, 1), (0.1, 1), (20.0, 4)] {
        let timing = Timing::Scheduled(rate, Arrivals::Fixed);
        let (all, ..) = run(&Setup { threads: 1, group, end, timing, ..SETUP }, &["C"], Fault::None).unwrap();
        for done in &all {
            let elapsed = done.elapsed.as_secs_f64();
            // The next that is due at the lowest rate would be in ten seconds.
            assert!((0.5..5.0).contains(&elapsed), "{rate} a second in groups of {group} took {elapsed} s");
            assert!(done.operations <= 10 && done.ops_per_s * elapsed <= done.operations as f64 + 1e-6);
        }
    }
}
