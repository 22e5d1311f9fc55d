//! A client process whose writes are under way while it goes on.

use std::borrow::Borrow;
use std::collections::HashMap;

use fpcache::message::WriteStatus;
use fpcache_client::KeyRef;
use fpcache_client::{Completed, Pipeline, WriteTicket};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, Open, Outcome};

use crate::caller::{Caller, Log, failed, found, lock, tolerate};

/// Writes in flight, and where they are recorded.
struct Flights<K: NumberedKeys, C> {
    pipeline: Pipeline<K>,
    open: HashMap<WriteTicket, Open>,
    log: Log<C>,
}

impl<K: NumberedKeys, C: Fn() -> u64> Flights<K, C> {
    fn ended(&mut self, Completed { ticket, outcome, .. }: Completed<K>) {
        let outcome = match outcome {
            Ok(reply) => match reply.status {
                WriteStatus::Done => Outcome::Done,
                WriteStatus::Exists => Outcome::Exists,
                WriteStatus::Absent => Outcome::Absent,
                WriteStatus::Differs => Outcome::Differs,
                WriteStatus::NoRoom | WriteStatus::DiskFull | WriteStatus::NotDurable => Outcome::Refused,
                refused => panic!("nothing is damaged, but there was {refused:?}"),
            },
            Err(error) => failed(&error),
        };
        let open = self.open.remove(&ticket).expect("every write ends once");
        lock(&self.log).returned(open, outcome, None);
    }

    fn take_ended(&mut self) {
        while let Some(ended) = self.pipeline.poll() {
            self.ended(ended);
        }
    }

    fn change(&mut self, kind: u64, key: u64, value: u64, bytes: &[u8]) {
        let call = [Call::Insert(value), Call::Put(value), Call::Update(value), Call::Delete][kind as usize];
        let open = lock(&self.log).invoke(key, call);
        let key = K::key(key);
        let key = KeyRef::<K>(key.borrow());
        let posted = match call {
            Call::Insert(_) => self.pipeline.insert(key, bytes),
            Call::Put(_) => self.pipeline.put(key, bytes),
            Call::Update(_) => self.pipeline.update(key, bytes),
            _ => self.pipeline.delete(key),
        };
        match posted {
            Ok(ticket) => drop(self.open.insert(ticket, open)),
            Err(error) => {
                tolerate(&error);
                // It was not sent.
                lock(&self.log).returned(open, Outcome::Refused, None);
            }
        }
    }

    fn get(&mut self, key: u64) {
        let open = lock(&self.log).invoke(key, Call::Get);
        let mut bytes = Vec::new();
        match self.pipeline.get_into(KeyRef::<K>(K::key(key).borrow()), &mut bytes) {
            Ok(answer) => {
                let value = answer.version.map(|_| ClientStore::<K>::decode(&bytes));
                lock(&self.log).returned(open, found(value), Some(answer.plan));
            }
            Err(error) => drop(failed(&error)),
        }
    }
}

impl<K: NumberedKeys, C: Fn() -> u64> Caller<K, C> {
    /// Makes all its calls, single reads and writes, without waiting for the writes.
    pub(crate) fn run_in_flight(&mut self) {
        let pipeline = match self.client.pipeline(self.part.in_flight) {
            Ok(pipeline) => pipeline,
            Err(error) => return tolerate(&error),
        };
        let mut flights = Flights { pipeline, open: HashMap::new(), log: self.log.clone() };
        for _ in 0..self.part.calls {
            self.rest();
            let (key, value) = (self.key(), self.value());
            match self.process.random.below(8) {
                kind @ 0..4 => flights.change(kind, key, value, &Self::bytes(value)),
                _ => flights.get(key),
            }
            flights.take_ended();
        }
        while let Some(ended) = flights.pipeline.next() {
            flights.ended(ended);
        }
        assert!(flights.open.is_empty(), "every write ended");
        lock(&self.log).end_unknown_writes();
    }
}
