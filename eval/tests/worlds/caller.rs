//! A client process: random calls, each recorded.

mod lookups;
mod mix;
mod ordered;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fpcache::message::{ErrorCode, WriteStatus};
use fpcache_client::KeyRef;
use fpcache_client::{
    Changes, ClientConfig, ClientError, CompareAndSet, ErrorKind, Plan, Reader, RecordToken, TableClient,
};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::store::outcome_of;
use fpcache_eval::history::{Call, Outcome, Recorder};
use fpcache_sim::{NodeId, Process};

pub use mix::{Mix, Part, Queue};

/// The log of one process, which outlives it.
pub type Log<C> = Arc<Mutex<Recorder<C>>>;

pub(crate) fn lock<C>(log: &Log<C>) -> MutexGuard<'_, Recorder<C>> {
    // Nothing that may end a process runs while it is held.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client process at work.
pub struct Caller<K: NumberedKeys, C> {
    pub(crate) process: Process,
    pub(crate) client: TableClient<K>,
    /// Reads what readers read, if there is one.
    reader: Option<Reader<K>>,
    pub(crate) log: Log<C>,
    pub(crate) part: Part,
    written: u64,
    number: u64,
    tokens: HashMap<u64, (u64, RecordToken)>,
    /// How many keys of the queue were inserted, and how many of these were deleted.
    inserted: usize,
    deleted: usize,
}

/// Connects, however often the memory node dies meanwhile.
pub fn connect<K: NumberedKeys>(process: &Process, node: NodeId, config: ClientConfig) -> TableClient<K> {
    for _ in 0..100 {
        match TableClient::simulated(&process.sim, node, config.clone()) {
            Ok(client) => return client,
            Err(error) => tolerate(&error),
        }
        process.sleep(Duration::from_micros(20));
    }
    panic!("the memory node lets nobody in");
}

/// An error that the faults of a world explain; any other ends the world.
pub(crate) fn tolerate(error: &ClientError) {
    let kind = error.kind();
    // A request that came again over another connection may be refused as older than the last one.
    let refused = matches!(error, ClientError::Refused(refusal) if refusal.code == ErrorCode::Internal);
    assert!(!refused && kind != ErrorKind::Internal && kind != ErrorKind::Invalid, "{error}");
    assert!(!matches!(error, ClientError::Deadline { .. }), "a reader gets no answer: {error}");
}

pub(crate) fn found(value: Option<u64>) -> Outcome {
    value.map_or(Outcome::Absent, Outcome::Found)
}

impl<K: NumberedKeys, C: Fn() -> u64> Caller<K, C> {
    pub fn new(
        process: Process,
        node: NodeId,
        log: Log<C>,
        (number, has_reader): (u64, bool),
        part: Part,
    ) -> Self {
        let client = connect(&process, node, part.config.clone());
        let reader = has_reader.then(|| client.reader());
        Self {
            process,
            client,
            reader,
            log,
            part,
            written: 0,
            number,
            tokens: HashMap::new(),
            inserted: 0,
            deleted: 0,
        }
    }

    /// Makes all its calls.
    pub fn run(&mut self) {
        if self.part.in_flight > 1 {
            return self.run_in_flight();
        }
        let weights = self.part.mix.weights();
        let sum = weights.iter().sum();
        for _ in 0..self.part.calls {
            self.rest();
            let mut drawn = self.process.random.below(sum);
            let kind = weights.iter().position(|weight| {
                let here = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                here
            });
            match kind {
                Some(0) => self.get(),
                Some(1) => self.multi_get(),
                Some(2) => self.get_versioned(),
                Some(3) => self.scan(false),
                Some(8) => self.compare_and_set(),
                Some(9) => self.batch(),
                Some(10) => self.queue(),
                Some(11) => self.nearest(),
                Some(12) => self.scan(true),
                Some(13) => self.count(),
                Some(kind) => self.change(kind),
                None => {}
            }
        }
    }

    /// Rests now and then.
    pub(crate) fn rest(&mut self) {
        let (rest, often) = self.part.rest;
        if often > 0 && self.process.random.below(often) == 0 {
            let nanos = self.process.random.below(rest.as_nanos() as u64);
            self.process.sleep(Duration::from_nanos(nanos));
        }
    }

    /// Reads every key in two ways.
    pub fn read_all(&mut self) {
        for key in self.part.keys.clone() {
            self.get_key(key);
        }
        self.scan_all();
    }

    pub(crate) fn key(&mut self) -> u64 {
        let at = self.process.random.below(self.part.keys.len() as u64);
        self.part.keys[at as usize]
    }

    pub(crate) fn value(&mut self) -> u64 {
        self.written += 1;
        (self.number + 1) << 40 | self.written
    }

    pub(crate) fn bytes(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        ClientStore::<K>::encode(value, &mut bytes);
        bytes
    }

    /// Makes a call and records it.
    fn call(
        &self,
        key: u64,
        call: Call,
        make: impl FnOnce(&TableClient<K>, KeyRef<'_, K>) -> Result<(Outcome, Option<Plan>), ClientError>,
    ) {
        let open = lock(&self.log).invoke(key, call);
        let owned = K::key(key);
        let made = make(&self.client, KeyRef(owned.borrow()));
        let (outcome, plan) = made.unwrap_or_else(|error| (failed(&error), None));
        lock(&self.log).returned(open, outcome, plan);
    }

    /// Puts a key; the error, if there was one.
    pub fn put_key(&mut self, key: u64) -> Result<(), ClientError> {
        let value = self.value();
        let mut done = Ok(());
        self.call(key, Call::Put(value), |client, key| {
            done = client.put(key, &Self::bytes(value)).map(drop);
            done.clone().map(|()| (Outcome::Done, None))
        });
        done
    }

    fn change(&mut self, kind: usize) {
        let (key, value) = (self.key(), self.value());
        let bytes = Self::bytes(value);
        let outcome = |done, otherwise| if done { Outcome::Done } else { otherwise };
        match kind {
            4 => self.call(key, Call::Insert(value), |client, key| {
                Ok((outcome(client.insert(key, &bytes)?.is_new(), Outcome::Exists), None))
            }),
            5 => self.call(key, Call::Put(value), |client, key| {
                client.put(key, &bytes)?;
                Ok((Outcome::Done, None))
            }),
            6 => self.call(key, Call::Update(value), |client, key| {
                Ok((outcome(client.update(key, &bytes)?, Outcome::Absent), None))
            }),
            _ => self.call(key, Call::Delete, |client, key| {
                Ok((outcome(client.delete(key)?, Outcome::Absent), None))
            }),
        }
    }

    fn compare_and_set(&mut self) {
        let (key, value) = (self.key(), self.value());
        let Some((expected, token)) = self.tokens.get(&key).copied() else { return self.get_versioned() };
        let bytes = Self::bytes(value);
        self.call(key, Call::CompareAndSet { expected, value }, |client, key| {
            let outcome = match client.compare_and_set(key, token, &bytes)? {
                CompareAndSet::Done(_) => Outcome::Done,
                CompareAndSet::Differs(_) => Outcome::Differs,
                CompareAndSet::Absent => Outcome::Absent,
            };
            Ok((outcome, None))
        });
    }

    fn batch(&mut self) {
        let calls: Vec<(u64, Call)> = (0..self.process.random.between(2, 6))
            .map(|_| {
                let (key, value) = (self.key(), self.value());
                let calls = [Call::Insert(value), Call::Put(value), Call::Update(value), Call::Delete];
                (key, calls[self.process.random.below(4) as usize])
            })
            .collect();
        self.apply(&calls);
    }

    /// Inserts the queue's next key and deletes the oldest one if there are enough of them.
    fn queue(&mut self) {
        let (keys, live) = (self.part.queue.keys.len(), self.part.queue.live);
        if keys == 0 {
            return;
        }
        let is_full = |caller: &Self| caller.inserted - caller.deleted >= live;
        if !self.part.queue.fills() {
            let call = Call::Insert(self.value());
            self.apply(&[(self.part.queue.keys[self.inserted % keys], call)]);
            self.inserted += 1;
            if is_full(self) {
                self.delete_oldest(1);
            }
            return;
        }
        let count = self.process.random.between(4, 16) as usize;
        let mut calls = Vec::new();
        while calls.len() < count && !is_full(self) {
            calls.push((self.part.queue.keys[self.inserted % keys], Call::Insert(self.value())));
            self.inserted += 1;
        }
        if !self.apply(&calls) || is_full(self) {
            let half = (self.inserted - self.deleted).div_ceil(2);
            self.delete_oldest(half);
        }
    }

    fn delete_oldest(&mut self, count: usize) {
        let queue = &self.part.queue.keys;
        let oldest = (self.deleted..self.deleted + count).map(|at| (queue[at % queue.len()], Call::Delete));
        let oldest: Vec<_> = oldest.collect();
        for calls in oldest.chunks(8) {
            self.apply(calls);
        }
        self.deleted += count;
    }

    /// Several changes in one request; whether there was room for all of them.
    fn apply(&mut self, calls: &[(u64, Call)]) -> bool {
        let mut changes = Changes::<K>::default();
        let mut open = Vec::new();
        for (key, call) in calls {
            let owned = K::key(*key);
            let named = KeyRef::<K>(owned.borrow());
            let bytes = Self::bytes(call.written().unwrap_or(0));
            match call {
                Call::Insert(_) => changes.insert(named, &bytes),
                Call::Put(_) => changes.put(named, &bytes),
                Call::Update(_) => changes.update(named, &bytes),
                _ => changes.delete(named),
            };
            open.push(lock(&self.log).invoke(*key, *call));
        }
        let mut found_room = true;
        let mut replies = Vec::new();
        // Of what was refused replies tell.
        let applied = self.client.apply(&changes, &mut replies);
        match applied.or_else(|error| if error.is_of_refused_change() { Ok(()) } else { Err(error) }) {
            Ok(()) => {
                for (open, reply) in open.into_iter().zip(replies) {
                    let outcome = match reply.status {
                        WriteStatus::Done => Outcome::Done,
                        WriteStatus::Exists => Outcome::Exists,
                        WriteStatus::Absent => Outcome::Absent,
                        WriteStatus::Differs => Outcome::Differs,
                        WriteStatus::NoRoom | WriteStatus::DiskFull | WriteStatus::NotDurable => {
                            Outcome::Refused
                        }
                        refused => panic!("nothing is damaged, but there was {refused:?}"),
                    };
                    found_room &= outcome != Outcome::Refused;
                    lock(&self.log).returned(open, outcome, None);
                }
            }
            Err(error) => drop(failed(&error)),
        }
        found_room
    }
}

/// What a call without an answer is in a history: clients are held to it where they say that
/// nothing happened.
pub(crate) fn failed(error: &ClientError) -> Outcome {
    if !matches!(error, ClientError::NoRoom { .. } | ClientError::NotDurable { .. }) {
        tolerate(error);
    }
    outcome_of(error)
}
