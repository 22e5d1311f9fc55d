//! Threads that go on reading while their writes are under way: some order of all operations
//! explains what each was told.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::KeyRef;
use fpcache_client::{ByteKeys, ClientConfig, Pipeline, TableClient, U64Keys, WriteStatus, WriteTicket};
use fpcache_eval::history::client::{ClientStore, every_way};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, History, Open, Outcome, Recorder, check, nanoseconds_since};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// A thread whose writes are in flight, all of them recorded from their posting to their end.
struct Worker<K: NumberedKeys, C> {
    pipeline: Pipeline<K>,
    log: Recorder<C>,
    open: HashMap<WriteTicket, Open>,
    random: Xoshiro256PlusPlus,
    written: u64,
    /// The most writes it had in flight.
    widest: usize,
}

impl<K: NumberedKeys, C: Fn() -> u64> Worker<K, C> {
    fn call(&mut self, keys: &[u64]) {
        let key = keys[self.random.random_range(0..keys.len())];
        self.written += 1;
        let value = (u64::from(self.log.process()) + 1) << 40 | self.written;
        let mut bytes = Vec::new();
        ClientStore::<K>::encode(value, &mut bytes);
        let kind = self.random.random_range(0..10);
        let call = match kind {
            0 | 1 => Call::Insert(value),
            2 => Call::Put(value),
            3 => Call::Update(value),
            4 | 5 => Call::Delete,
            _ => Call::Get,
        };
        let open = self.log.invoke(key, call);
        let key = K::key(key);
        let key = KeyRef::<K>(key.borrow());
        let ticket = match call {
            Call::Insert(_) => self.pipeline.insert(key, &bytes),
            Call::Put(_) => self.pipeline.put(key, &bytes),
            Call::Update(_) => self.pipeline.update(key, &bytes),
            Call::Delete => self.pipeline.delete(key),
            _ => {
                let found = self.pipeline.get_into(key, &mut bytes).unwrap();
                let outcome = found
                    .version
                    .map_or(Outcome::Absent, |_| Outcome::Found(ClientStore::<K>::decode(&bytes)));
                self.log.returned(open, outcome, Some(found.plan));
                return self.take_ended();
            }
        };
        self.open.insert(ticket.unwrap(), open);
        self.widest = self.widest.max(self.pipeline.in_flight());
        self.take_ended();
    }

    fn take_ended(&mut self) {
        while let Some(ended) = self.pipeline.poll() {
            let outcome = match ended.outcome.unwrap().status {
                WriteStatus::Done => Outcome::Done,
                WriteStatus::Exists => Outcome::Exists,
                WriteStatus::Absent => Outcome::Absent,
                other => panic!("{other:?}"),
            };
            let open = self.open.remove(&ended.ticket).unwrap();
            self.log.returned(open, outcome, None);
        }
    }

    fn finish(mut self) -> Recorder<C> {
        self.pipeline.settle_all();
        self.take_ended();
        assert!(self.open.is_empty(), "every write ended");
        self.log
    }
}

fn run<K: NumberedKeys>(ways: [usize; 3], keys: &[u64], calls: usize, seed: u64) -> usize {
    let config = ClientConfig::default().with_deadline(Duration::from_secs(20));
    let first = TableClient::<K>::embedded_with(8 << 20, config.clone()).unwrap();
    ClientStore::create_table(&first, keys).unwrap();
    run_over(&first, config, ways, (keys, calls, seed))
}

/// Threads that go on so, each with a client beside the first, whose table there is.
fn run_over<K: NumberedKeys>(
    first: &TableClient<K>,
    config: ClientConfig,
    ways: [usize; 3],
    (keys, calls, seed): (&[u64], usize, u64),
) -> usize {
    let all = every_way(config, 64 << 10);
    let instants = nanoseconds_since(Instant::now());
    let logs: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(ways)
            .map(|(number, way)| {
                let (name, config) = &all[way];
                let (client, instants) = (first.beside(config.clone()).unwrap(), instants.clone());
                scope.spawn(move || {
                    let mut worker = Worker {
                        pipeline: client.pipeline(4).unwrap(),
                        log: Recorder::new(number, name.clone(), instants),
                        open: HashMap::new(),
                        random: Xoshiro256PlusPlus::seed_from_u64(seed << 8 | u64::from(number)),
                        written: 0,
                        widest: 0,
                    };
                    (0..calls).for_each(|_| worker.call(keys));
                    assert!(worker.widest > 1, "writes overlap");
                    worker.finish()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut last = Recorder::new(9, "last reader", instants);
    for key in keys {
        last.record(*key, Call::Get, || match first.get(KeyRef::<K>(K::key(*key).borrow())).unwrap() {
            Some(bytes) => (Outcome::Found(ClientStore::<K>::decode(&bytes)), None),
            None => (Outcome::Absent, None),
        });
    }
    let history = History::merge(BTreeMap::new(), logs.into_iter().chain([last]));
    let checked = check(&history).unwrap();
    assert!(checked.is_linearizable(), "seed {seed}: {:#?}", checked.violations);
    assert!(first.stats().unwrap().rebuilds > 10, "segments were replaced");
    checked.operations
}

#[test]
fn reads_beside_writes_in_flight_have_an_order() {
    let keys: Vec<u64> = (0..200).map(|i| i * 7).collect();
    let mut operations = 0;
    for (seed, ways) in (0..).zip([[0, 1, 2], [3, 4, 5], [6, 7, 0]]) {
        operations += run::<U64Keys>(ways, &keys, 6_000, seed);
        operations += run::<ByteKeys>(ways, &keys, 6_000, seed);
    }
    assert!(operations > 100_000, "{operations}");
}

#[test]
fn few_keys_that_every_thread_has_in_flight_are_in_order_too() {
    let keys: Vec<u64> = (0..64).map(|i| i * 1_000).collect();
    run::<U64Keys>([1, 2, 6], &keys, 8_000, 7);
    run::<ByteKeys>([0, 3, 4], &keys, 8_000, 8);
}

#[cfg(feature = "rdma")]
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_reads_by_cards_beside_writes_in_flight_have_an_order() {
    use super::linearizability::{CARDS, listening};

    fn by_cards<K: NumberedKeys>(ways: [usize; 3], seed: u64) {
        let keys: Vec<u64> = (0..200).map(|i| i * 7).collect();
        let (_serving, url, config) = listening::<K>(CARDS, K::small_segments(), &keys);
        let first = TableClient::<K>::connect_with(&url, config.clone()).unwrap();
        run_over(&first, config, ways, (&keys, 1_000, seed));
    }
    by_cards::<U64Keys>([0, 1, 2], 1);
    by_cards::<ByteKeys>([3, 4, 5], 2);
}
