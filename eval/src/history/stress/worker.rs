//! One process of a stress run.

use std::collections::{BTreeMap, HashMap};

use fpcache_client::ClientError;
use rand::Rng;
use rand::distr::weighted::WeightedIndex;
use rand::prelude::Distribution;

use super::error::StressError;
use super::options::{Mix, StressOptions, StressProcess};
use crate::history::operation::{Call, Outcome};
use crate::history::recorder::Recorder;
use crate::history::store::{Answer, Store, outcome_of};

/// Kinds of calls, in the order of [`Mix::weights`].
#[derive(Clone, Copy)]
enum Kind {
    Get,
    MultiGet,
    GetVersioned,
    Scan,
    ScanBack,
    Count,
    Nearest,
    Insert,
    Put,
    Update,
    Delete,
    CompareAndSet,
    Queue,
}

const KINDS: [Kind; 13] = [
    Kind::Get,
    Kind::MultiGet,
    Kind::GetVersioned,
    Kind::Scan,
    Kind::ScanBack,
    Kind::Count,
    Kind::Nearest,
    Kind::Insert,
    Kind::Put,
    Kind::Update,
    Kind::Delete,
    Kind::CompareAndSet,
    Kind::Queue,
];

impl Mix {
    pub(super) fn weights(&self, emptying: bool) -> Result<WeightedIndex<f64>, StressError> {
        let (insert, delete) = if emptying { (self.delete, self.insert) } else { (self.insert, self.delete) };
        let Self { get, multi_get, get_versioned, scan, scan_back, count, put, .. } = *self;
        let Self { nearest, update, compare_and_set, queue, .. } = *self;
        WeightedIndex::new([
            get,
            multi_get,
            get_versioned,
            scan,
            scan_back,
            count,
            nearest,
            insert,
            put,
            update,
            delete,
            compare_and_set,
            queue,
        ])
        .map_err(|error| StressError::Options(error.to_string()))
    }
}

/// A process of a run, and what it has seen and written.
pub(super) struct Worker<S: Store, R> {
    pub(super) process: StressProcess<S, R>,
    pub(super) number: u32,
    /// Values written so far.
    written: u64,
    /// Values with their tokens, as last seen.
    tokens: HashMap<u64, (u64, S::Token)>,
    /// Keys of its queue, how many of them it inserted, and how many it deleted; and of these, how
    /// many were there.
    pub(super) queue: Vec<u64>,
    inserted: usize,
    deleted: usize,
    pub(super) oldest: u64,
    pub(super) first_failure: Option<String>,
}

impl<S: Store, R: Rng> Worker<S, R> {
    pub(super) fn new((process, number): (StressProcess<S, R>, u32)) -> Self {
        let (tokens, queue) = (HashMap::new(), Vec::new());
        Self {
            process,
            number,
            written: 0,
            tokens,
            queue,
            inserted: 0,
            deleted: 0,
            oldest: 0,
            first_failure: None,
        }
    }

    pub(super) fn run<C: Fn() -> u64>(
        &mut self,
        options: &StressOptions,
        calls: &WeightedIndex<f64>,
        mut log: Recorder<C>,
    ) -> Recorder<C> {
        for _ in 0..options.calls {
            let kind = KINDS[calls.sample(&mut self.process.random)];
            match kind {
                Kind::MultiGet => self.multi_get(options, &mut log),
                Kind::Scan | Kind::ScanBack => self.scan(options, matches!(kind, Kind::ScanBack), &mut log),
                Kind::Count => self.count(options, &mut log),
                Kind::Nearest => self.nearest(options, &mut log),
                Kind::Queue => self.queue(options.queue.live, &mut log),
                _ => {
                    let key = self.key(options);
                    self.one(kind, key, &mut log);
                }
            }
        }
        log
    }

    fn key(&mut self, options: &StressOptions) -> u64 {
        // There is one at least.
        options.keys[self.process.random.random_range(0..options.keys.len())]
    }

    /// A value that was never written.
    fn value(&mut self) -> u64 {
        self.written += 1;
        (u64::from(self.number) + 1) << 40 | self.written
    }

    /// Inserts the next key of the queue, and deletes the oldest if there are enough, or half of
    /// them if there is no room.
    fn queue<C: Fn() -> u64>(&mut self, live: usize, log: &mut Recorder<C>) {
        let keys = self.queue.len();
        if keys == 0 {
            return;
        }
        let is_refused = self.one(Kind::Insert, self.queue[self.inserted % keys], log) == Outcome::Refused;
        self.inserted += 1;
        let there = self.inserted - self.deleted;
        let surplus = match is_refused {
            true => there.div_ceil(2),
            false => usize::from(there >= live.min(keys)),
        };
        for _ in 0..surplus {
            let deleted = self.one(Kind::Delete, self.queue[self.deleted % keys], log);
            self.oldest += u64::from(deleted == Outcome::Done);
            self.deleted += 1;
        }
    }

    fn one<C: Fn() -> u64>(&mut self, kind: Kind, key: u64, log: &mut Recorder<C>) -> Outcome {
        let token = self.tokens.get(&key).copied();
        let call = match kind {
            Kind::Insert => Call::Insert(self.value()),
            Kind::Put => Call::Put(self.value()),
            Kind::Update => Call::Update(self.value()),
            Kind::Delete => Call::Delete,
            Kind::CompareAndSet => match token {
                Some((expected, _)) => Call::CompareAndSet { expected, value: self.value() },
                None => Call::Get,
            },
            Kind::Get if self.asks_for_presence() => Call::Contains,
            _ => Call::Get,
        };
        let store = &mut self.process.store;
        let done_or = |answer: Answer<bool>, otherwise| {
            answer.map(|(done, plan)| (if done { Outcome::Done } else { otherwise }, plan))
        };
        let mut seen = None;
        let open = log.invoke(key, call);
        let answer = match (call, token) {
            (Call::Insert(value), _) => done_or(store.insert(key, value), Outcome::Exists),
            (Call::Put(value), _) => store.put(key, value).map(|((), plan)| (Outcome::Done, plan)),
            (Call::Update(value), _) => done_or(store.update(key, value), Outcome::Absent),
            (Call::Delete, _) => done_or(store.delete(key), Outcome::Absent),
            (Call::CompareAndSet { value, .. }, Some((_, token))) => store.compare_and_set(key, token, value),
            (Call::Contains, _) => store.contains(key).map(|(is_there, plan)| (presence(is_there), plan)),
            _ if matches!(kind, Kind::Get) => store.get(key).map(|(value, plan)| (found(value), plan)),
            _ => store.get_versioned(key).map(|(record, plan)| {
                seen = record;
                (found(record.map(|(value, _)| value)), plan)
            }),
        };
        let (outcome, plan) = answer.unwrap_or_else(|error| (self.failed(&error), None));
        log.returned(open, outcome, plan);
        if let Some(seen) = seen {
            self.tokens.insert(key, seen);
        }
        outcome
    }

    /// One read in four asks whether keys are there, and not for their values.
    fn asks_for_presence(&mut self) -> bool {
        self.process.random.random_ratio(1, 4)
    }

    fn multi_get<C: Fn() -> u64>(&mut self, options: &StressOptions, log: &mut Recorder<C>) {
        let count = self.process.random.random_range(1..=options.group.max(1));
        let keys: Vec<u64> = (0..count).map(|_| self.key(options)).collect();
        let call = if self.asks_for_presence() { Call::Contains } else { Call::Get };
        let open: Vec<_> = keys.iter().map(|key| log.invoke(*key, call)).collect();
        let store = &mut self.process.store;
        let answer: Answer<Vec<Outcome>> = match call {
            Call::Contains => store
                .multi_contains(&keys)
                .map(|(are_there, plan)| (are_there.into_iter().map(presence).collect(), plan)),
            _ => store.multi_get(&keys).map(|(values, plan)| (values.into_iter().map(found).collect(), plan)),
        };
        match answer {
            Ok((outcomes, plan)) => {
                for (open, outcome) in open.into_iter().zip(outcomes) {
                    log.returned(open, outcome, plan);
                }
            }
            Err(error) => {
                // A read without an answer says nothing: it stays open.
                self.failed(&error);
            }
        }
    }

    fn scan<C: Fn() -> u64>(&mut self, options: &StressOptions, down: bool, log: &mut Recorder<C>) {
        let key = self.key(options);
        let limit = self.process.random.random_range(1..=options.scan_limit.max(1));
        let open = log.invoke(key, if down { Call::ScanBack { limit } } else { Call::Scan { limit } });
        let store = &mut self.process.store;
        match if down { store.scan_back(key, limit) } else { store.scan(key, limit) } {
            Ok((records, plan)) => log.scanned(open, records, plan),
            Err(error) => {
                let outcome = self.failed(&error);
                log.returned(open, outcome, None);
            }
        }
    }

    fn count<C: Fn() -> u64>(&mut self, options: &StressOptions, log: &mut Recorder<C>) {
        let first = self.process.random.random_range(0..options.keys.len());
        let most = self.process.random.random_range(0..=options.scan_limit as usize);
        let (key, end) = (options.keys[first], options.keys[(first + most).min(options.keys.len() - 1)]);
        let open = log.invoke(key, Call::Count { end });
        let counted = self.process.store.count(key, end);
        let counted = counted.map(|(count, plan)| (Outcome::Counted(count), plan));
        let (outcome, plan) = counted.unwrap_or_else(|error| (self.failed(&error), None));
        log.returned(open, outcome, plan);
    }

    fn nearest<C: Fn() -> u64>(&mut self, options: &StressOptions, log: &mut Recorder<C>) {
        let below = self.process.random.random_ratio(1, 2);
        let is_of_all = self.process.random.random_ratio(1, 8);
        let most = if self.process.random.random_ratio(1, 3) { options.group.max(1) } else { 1 };
        let count = if is_of_all { 1 } else { self.process.random.random_range(1..=most) };
        // Beside the keys that there are as often as on them.
        let keys: Vec<u64> = (0..count)
            .map(|_| match (self.key(options), self.process.random.random_ratio(1, 2)) {
                _ if is_of_all => {
                    if below {
                        u64::MAX
                    } else {
                        0
                    }
                }
                (key, true) if below => key + 1,
                (key, true) => key.saturating_sub(1),
                (key, false) => key,
            })
            .collect();
        let call = if below { Call::Floor } else { Call::Ceiling };
        let open: Vec<_> = keys.iter().map(|key| log.invoke(*key, call)).collect();
        match self.process.store.nearest(&keys, below) {
            Ok((found, plan)) => {
                open.into_iter().zip(found).for_each(|(open, record)| log.scanned(open, record, plan));
            }
            // As of a group of gets.
            Err(error) => drop(self.failed(&error)),
        }
    }

    fn failed(&mut self, error: &ClientError) -> Outcome {
        if self.first_failure.is_none() {
            self.first_failure = Some(error.to_string());
        }
        outcome_of(error)
    }

    /// Reads every key, and records that.
    pub(super) fn read_all<C: Fn() -> u64>(
        &mut self,
        options: &StressOptions,
        log: &mut Recorder<C>,
    ) -> Result<BTreeMap<u64, u64>, StressError> {
        let mut all = BTreeMap::new();
        for &key in options.keys.iter().chain(&options.queue.keys) {
            let mut attempt = 1;
            let value = loop {
                let open = log.invoke(key, Call::Get);
                match self.process.store.get(key) {
                    Ok((value, plan)) => {
                        log.returned(open, value.map_or(Outcome::Absent, Outcome::Found), plan);
                        break value;
                    }
                    Err(last) if attempt >= options.attempts => {
                        let last = last.to_string();
                        return Err(StressError::Unreadable { key, attempts: attempt, last });
                    }
                    Err(_) => attempt += 1,
                }
            };
            all.extend(value.map(|value| (key, value)));
        }
        Ok(all)
    }
}

fn found(value: Option<u64>) -> Outcome {
    value.map_or(Outcome::Absent, Outcome::Found)
}

fn presence(is_there: bool) -> Outcome {
    if is_there { Outcome::Exists } else { Outcome::Absent }
}
