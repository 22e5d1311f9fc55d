//! A client of the rounds: what it asks, and what it is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fpcache_client::RecordToken;
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::store::{Answer, Store, outcome_of};
use fpcache_eval::history::{Call, Outcome, Recorder};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::tables::{KEYS, LIVE, QUEUE, THREADS, key, queue};

/// A thread that calls.
pub(super) struct Caller<K: NumberedKeys> {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) store: ClientStore<K>,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) written: u64,
    pub(super) tokens: HashMap<u64, (u64, RecordToken)>,
    /// The place of the table it uses.
    pub(super) table: usize,
    /// How many keys of its queue it has inserted, and how many deleted.
    pub(super) inserted: u64,
    pub(super) deleted: u64,
    pub(super) first_failure: Option<String>,
}

pub(super) fn found(value: Option<u64>) -> Outcome {
    value.map_or(Outcome::Absent, Outcome::Found)
}

impl<K: NumberedKeys> Caller<K> {
    /// Random calls until the round is over. Once the threads have `met`, the memory node knows
    /// each of them, and so can say of every request whether it was executed.
    pub(super) fn run<C: Fn() -> u64>(
        &mut self,
        met: &Barrier,
        is_over: &AtomicBool,
        mut log: Recorder<C>,
    ) -> Recorder<C> {
        self.written += 1;
        let (key, value) = (key(u64::from(self.number)), self.value());
        log.record(key, Call::Put(value), || match self.store.put(key, value) {
            Ok(((), plan)) => (Outcome::Done, plan),
            Err(error) => panic!("{error}"),
        });
        met.wait();
        while !is_over.load(Ordering::Relaxed) {
            self.call(&mut log);
        }
        log
    }

    /// No other client writes it.
    pub(super) fn value(&self) -> u64 {
        (u64::from(self.number) + 1) << 40 | self.written
    }

    pub(super) fn call<C: Fn() -> u64>(&mut self, log: &mut Recorder<C>) {
        self.written += 1;
        let value = self.value();
        let number = self.random.random_range(0..KEYS);
        let (key, end) = (key(number), key(number + 20));
        let token = self.tokens.get(&key).copied();
        let (call, kind) = match (self.random.random_range(0..100), token) {
            (0..10, _) => return self.queue(log),
            (10..25, _) => (Call::Insert(value), 0),
            (25..40, _) => (Call::Put(value), 1),
            (40..50, _) => (Call::Update(value), 2),
            (50..70, _) => (Call::Delete, 3),
            (70..80, Some((expected, _))) => (Call::CompareAndSet { expected, value }, 4),
            (80..83, _) => (Call::Scan { limit: 20 }, 5),
            (83..85, _) => (Call::ScanBack { limit: 20 }, 6),
            (85..87, _) => (Call::Count { end }, 7),
            (87..89, _) => (Call::Contains, 10),
            (89..93, _) => (Call::Get, 8),
            _ => (Call::Get, 9),
        };
        let open = log.invoke(key, call);
        let done_or = |answer: Answer<bool>, otherwise| {
            answer.map(|(done, plan)| (if done { Outcome::Done } else { otherwise }, plan))
        };
        let store = &mut self.store;
        let mut seen = None;
        let answer = match kind {
            0 => done_or(store.insert(key, value), Outcome::Exists),
            1 => store.put(key, value).map(|((), plan)| (Outcome::Done, plan)),
            2 => done_or(store.update(key, value), Outcome::Absent),
            3 => done_or(store.delete(key), Outcome::Absent),
            4 => store.compare_and_set(key, token.unwrap().1, value),
            5 => match store.scan(key, 20) {
                Ok((records, plan)) => return log.scanned(open, records, plan),
                Err(error) => Err(error),
            },
            6 => match store.scan_back(key, 20) {
                Ok((records, plan)) => return log.scanned(open, records, plan),
                Err(error) => Err(error),
            },
            7 => store.count(key, end).map(|(count, plan)| (Outcome::Counted(count), plan)),
            8 => store.get(key).map(|(value, plan)| (found(value), plan)),
            10 => store
                .contains(key)
                .map(|(is_there, plan)| (if is_there { Outcome::Exists } else { Outcome::Absent }, plan)),
            _ => store.get_versioned(key).map(|(record, plan)| {
                seen = record;
                (found(record.map(|(value, _)| value)), plan)
            }),
        };
        let (outcome, plan) = answer.unwrap_or_else(|error| {
            if call.writes() && error.may_have_taken_effect() {
                self.first_failure.get_or_insert_with(|| error.to_string());
            }
            // No process listens: as a service would, not at once again.
            thread::sleep(Duration::from_millis(2));
            (outcome_of(&error), None)
        });
        log.returned(open, outcome, plan);
        self.tokens.extend(seen.map(|seen| (key, seen)));
    }

    /// Inserts the next key of its queue, after all that are there, and deletes the oldest if there
    /// are enough.
    pub(super) fn queue<C: Fn() -> u64>(&mut self, log: &mut Recorder<C>) {
        let key_at = |at: u64| key(KEYS + u64::from(self.number) * QUEUE + at % QUEUE);
        let (newest, oldest, value) = (key_at(self.inserted), key_at(self.deleted), self.value());
        let store = &mut self.store;
        let outcome = |answer: Answer<bool>, otherwise: Outcome| match answer {
            Ok((done, plan)) => (if done { Outcome::Done } else { otherwise }, plan),
            Err(error) => (outcome_of(&error), None),
        };
        log.record(newest, Call::Insert(value), || outcome(store.insert(newest, value), Outcome::Exists));
        self.inserted += 1;
        if self.inserted - self.deleted >= LIVE {
            log.record(oldest, Call::Delete, || outcome(store.delete(oldest), Outcome::Absent));
            self.deleted += 1;
        }
    }

    pub(super) fn read_all<C: Fn() -> u64>(&mut self, log: &mut Recorder<C>) -> BTreeMap<u64, u64> {
        let mut all = BTreeMap::new();
        for key in (0..KEYS).map(key).chain((0..THREADS).flat_map(queue)) {
            let open = log.invoke(key, Call::Get);
            let (value, plan) = self.store.get(key).unwrap();
            log.returned(open, found(value), plan);
            all.extend(value.map(|value| (key, value)));
        }
        all
    }
}
