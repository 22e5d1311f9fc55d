//! A table of few keys that is dropped, made anew and loaded while others put and get: what the histories are of.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fpcache_client::{AsKey, CreateOptions, KeyKind, Tables};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, Outcome, Recorder};

use super::watched::Node;
use super::{bytes_of, is_between_tables, name, writer_was_faster};

/// Keys of the table.
const KEYS: u64 = 6;
/// How often it is made anew in a history.
const LIVES: u64 = 6;

/// The table, and what its keys are given: every value once.
pub(super) struct Remade<'n, K> {
    node: &'n Node,
    tables: Tables,
    kind: KeyKind,
    values: AtomicU64,
    keys: PhantomData<fn() -> K>,
}

impl<'n, K: NumberedKeys<Owned: AsKey<K>>> Remade<'n, K> {
    pub(super) fn of(node: &'n Node, kind: KeyKind) -> Self {
        Self { node, tables: node.tables(), kind, values: AtomicU64::new(1), keys: PhantomData }
    }

    pub(super) fn create(&self) {
        self.tables.create(&name(), self.kind, CreateOptions::default()).unwrap();
    }

    pub(super) fn drop_table(&self) {
        self.tables.drop_table(&name()).unwrap();
    }

    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    /// A value for every key.
    pub(super) fn records(&self) -> Vec<(u64, u64)> {
        (0..KEYS).map(|key| (key, self.value())).collect()
    }

    pub(super) fn load(&self, records: &[(u64, u64)]) {
        let client = self.node.client::<K>();
        let mut load = match client.load(K::small_segments(), 0) {
            Ok(load) => load,
            // The other records follow the writer's one by one.
            Err(error) if writer_was_faster(&error) => {
                let put = |(key, value): &(u64, u64)| client.put(K::key(*key), &bytes_of::<K>(*value));
                return records.iter().for_each(|record| put(record).unwrap());
            }
            Err(error) => panic!("{error}"),
        };
        records.iter().for_each(|(key, value)| load.push(K::key(*key), &bytes_of::<K>(*value)).unwrap());
        load.finish().unwrap();
    }

    /// Four callers, of whom two put and two get, while the table is made anew: what each was told.
    pub(super) fn logs<C: Fn() -> u64 + Clone + Send + Sync>(
        &self,
        round: u64,
        instants: C,
    ) -> Vec<Recorder<C>> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (is_over, instants) = (&is_over, &instants);
            let callers: Vec<_> = (1..=4)
                .map(|process| {
                    let log = Recorder::new(process, "client", instants.clone());
                    scope.spawn(move || self.call(log, is_over))
                })
                .collect();
            let log = Recorder::new(0, "drop", instants.clone());
            let dropped = scope.spawn(move || self.make_anew(log, round)).join();
            is_over.store(true, Ordering::Relaxed);
            let mut logs: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            logs.push(dropped.unwrap());
            logs
        })
    }

    /// Puts, or gets, until it is over.
    fn call<C: Fn() -> u64>(&self, mut log: Recorder<C>, is_over: &AtomicBool) -> Recorder<C> {
        let client = self.node.client::<K>();
        let process = u64::from(log.process());
        for step in (process..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            let key = (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % KEYS;
            if process.is_multiple_of(2) {
                log.record(key, Call::Get, || match client.get(K::key(key)) {
                    Ok(Some(value)) => (Outcome::Found(ClientStore::<K>::decode(&value)), None),
                    Ok(None) => (Outcome::Absent, None),
                    Err(error) => {
                        assert!(is_between_tables(&error), "{error}");
                        (Outcome::Refused, None)
                    }
                });
            } else {
                let value = self.value();
                log.record(key, Call::Put(value), || match client.put(K::key(key), &bytes_of::<K>(value)) {
                    Ok(()) => (Outcome::Done, None),
                    // Of a table that is gone it is not told what was made in it.
                    Err(_) => (Outcome::Unknown, None),
                });
            }
            thread::sleep(Duration::from_micros(20));
        }
        log
    }

    /// Drops the table, makes it anew and loads it, again and again. To a key, drop and creation together are a delete, since the new
    /// table can be read at once, and the load is a put.
    fn make_anew<C: Fn() -> u64>(&self, mut log: Recorder<C>, round: u64) -> Recorder<C> {
        for life in 0..LIVES {
            thread::sleep(Duration::from_millis(2 + (round + life) % 5));
            let records = self.records();
            let deletes: Vec<_> = (0..KEYS).map(|key| log.invoke(key, Call::Delete)).collect();
            self.drop_table();
            self.create();
            deletes.into_iter().for_each(|delete| log.returned(delete, Outcome::Done, None));
            let puts = records.iter().map(|(key, value)| log.invoke(*key, Call::Put(*value)));
            let puts: Vec<_> = puts.collect();
            self.load(&records);
            puts.into_iter().for_each(|put| log.returned(put, Outcome::Done, None));
        }
        log
    }
}
