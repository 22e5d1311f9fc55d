//! Stress runs pass over a store that is right, and find the faults of stores that are not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fpcache_client::ClientError;
use fpcache_eval::history::random::apply;
use fpcache_eval::history::store::{Answer, Store};
use fpcache_eval::history::stress::{StressError, StressOptions, StressProcess, StressReport, stress};
use fpcache_eval::history::{Call, Outcome, nanoseconds_since};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Every thousandth write gets no answer; half of these take effect.
    Lossy,
    /// Reads now and then come from a copy that a process made earlier.
    Stale,
    /// A scan now and then misses a record.
    Misses,
    /// A count now and then is too high.
    Miscounts,
    /// A floor or a ceiling now and then passes the nearest record over.
    PassesOver,
    /// A compare-and-set does not compare.
    Blind,
}

/// A map after a lock.
struct Model {
    records: Arc<Mutex<BTreeMap<u64, u64>>>,
    old: BTreeMap<u64, u64>,
    calls: u64,
    fault: Fault,
}

impl Model {
    fn call(&mut self, key: u64, call: Call) -> Answer<Outcome> {
        self.calls += 1;
        let mut records = self.records.lock().unwrap();
        if self.fault == Fault::Lossy && call.writes() && self.calls.is_multiple_of(500) {
            if self.calls.is_multiple_of(1_000) {
                apply(&mut records, key, call);
            }
            return Err(ClientError::OutcomeUnknown { why: "lost".to_owned() });
        }
        if self.calls % 512 == 1 {
            self.old = records.clone();
        }
        if self.fault == Fault::Stale && call == Call::Get && self.calls.is_multiple_of(64) {
            return Ok((apply(&mut self.old, key, call), None));
        }
        Ok((apply(&mut records, key, call), None))
    }

    fn value(&mut self, key: u64) -> Answer<Option<u64>> {
        self.call(key, Call::Get).map(|(outcome, plan)| match outcome {
            Outcome::Found(value) => (Some(value), plan),
            _ => (None, plan),
        })
    }

    fn done(&mut self, key: u64, call: Call) -> Answer<bool> {
        self.call(key, call).map(|(outcome, plan)| (outcome == Outcome::Done, plan))
    }
}

impl Store for Model {
    type Token = u64;

    fn get(&mut self, key: u64) -> Answer<Option<u64>> {
        self.value(key)
    }

    fn multi_get(&mut self, keys: &[u64]) -> Answer<Vec<Option<u64>>> {
        let values: Result<Vec<_>, _> = keys.iter().map(|key| self.value(*key)).collect();
        Ok((values?.into_iter().map(|(value, _)| value).collect(), None))
    }

    fn get_versioned(&mut self, key: u64) -> Answer<Option<(u64, u64)>> {
        self.value(key).map(|(value, plan)| (value.map(|value| (value, value)), plan))
    }

    fn scan(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        self.calls += 1;
        let records = self.records.lock().unwrap();
        let mut found: Vec<_> =
            records.range(start..).take(limit as usize).map(|(key, value)| (*key, *value)).collect();
        if self.fault == Fault::Misses && self.calls.is_multiple_of(16) && found.len() > 2 {
            found.remove(1);
        }
        Ok((found, None))
    }

    fn scan_back(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let records = self.records.lock().unwrap();
        let down = records.range(..=start).rev().take(limit as usize);
        Ok((down.map(|(key, value)| (*key, *value)).collect(), None))
    }

    fn count(&mut self, start: u64, end: u64) -> Answer<u64> {
        self.calls += 1;
        let count = self.records.lock().unwrap().range(start..end.max(start)).count() as u64;
        let miscounts = self.fault == Fault::Miscounts && self.calls.is_multiple_of(16);
        Ok((count + u64::from(miscounts) * 8, None))
    }

    fn nearest(&mut self, keys: &[u64], below: bool) -> Answer<Vec<Option<(u64, u64)>>> {
        self.calls += 1;
        let passes_over = self.fault == Fault::PassesOver && self.calls.is_multiple_of(16);
        let records = self.records.lock().unwrap();
        let nearest = |key: &u64| match below {
            true => records.range(..=key).rev().nth(usize::from(passes_over)),
            false => records.range(key..).nth(usize::from(passes_over)),
        };
        let found = keys.iter().map(|key| nearest(key).map(|(key, value)| (*key, *value)));
        Ok((found.collect(), None))
    }

    fn insert(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.done(key, Call::Insert(value))
    }

    fn put(&mut self, key: u64, value: u64) -> Answer<()> {
        self.call(key, Call::Put(value)).map(|(_, plan)| ((), plan))
    }

    fn update(&mut self, key: u64, value: u64) -> Answer<bool> {
        self.done(key, Call::Update(value))
    }

    fn delete(&mut self, key: u64) -> Answer<bool> {
        self.done(key, Call::Delete)
    }

    fn compare_and_set(&mut self, key: u64, expected: u64, value: u64) -> Answer<Outcome> {
        match self.fault {
            Fault::Blind => self.call(key, Call::Update(value)),
            _ => self.call(key, Call::CompareAndSet { expected, value }),
        }
    }
}

fn run(fault: Fault, options: &StressOptions) -> Result<StressReport, StressError> {
    let initial: BTreeMap<u64, u64> = options.keys.iter().step_by(2).map(|key| (*key, *key)).collect();
    let records = Arc::new(Mutex::new(initial));
    let process = |number: u64| StressProcess {
        name: format!("model {number}"),
        store: Model { records: Arc::clone(&records), old: BTreeMap::new(), calls: 0, fault },
        random: Xoshiro256PlusPlus::seed_from_u64(number),
    };
    stress(options, (0..4).map(process).collect(), nanoseconds_since(Instant::now()))
}

fn options() -> StressOptions {
    StressOptions {
        keys: (0..60).map(|key| key * 10).collect(),
        batches: 3,
        calls: 4_000,
        ..Default::default()
    }
}

#[test]
fn a_store_that_is_right_passes() {
    let report = run(Fault::None, &options()).unwrap();
    assert!(report.is_linearizable(), "{report:?}");
    assert_eq!((report.batches, report.unknown, report.refused, report.rebuilds), (3, 0, 0, None));
    assert!(report.operations > 48_000 && report.steps > report.operations && report.ops_per_s() > 0.0);
}

#[test]
fn lost_answers_go_on_into_the_next_batch() {
    let report = run(Fault::Lossy, &options()).unwrap();
    assert!(report.is_linearizable(), "{report:?}");
    assert!(report.unknown > 20, "{report:?}");
    let lost = ClientError::OutcomeUnknown { why: "lost".to_owned() };
    assert_eq!(report.first_failure, Some(lost.to_string()));
}

#[test]
fn faults_are_found_and_end_the_run() {
    for fault in [Fault::Stale, Fault::Misses, Fault::Miscounts, Fault::PassesOver, Fault::Blind] {
        let report = run(fault, &options()).unwrap();
        assert!(report.violated > 0 && report.batches == 1, "{fault:?}: {report:?}");
        let text = report.violations[0].to_string();
        let what = if fault == Fault::Miscounts { "were there throughout" } else { "have no order" };
        assert!(text.contains(what) && text.contains("(model "), "{text}");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let none = StressOptions { keys: Vec::new(), ..options() };
    assert!(matches!(run(Fault::None, &none), Err(StressError::Options(_))));
    let mut mix = options();
    mix.mix.get = -1.0;
    let error = run(Fault::None, &mix).unwrap_err();
    assert!(error.to_string().contains("give at least one process"), "{error}");
}
