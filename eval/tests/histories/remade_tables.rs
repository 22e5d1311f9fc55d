//! A table of few keys that is dropped, made anew and loaded, again and again, while clients of
//! both kinds of keys put and get: some order of the operations explains what every client was
//! told, in which no put takes effect in two tables.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::message::WriteStatus;
use fpcache_client::{
    AsKey, ByteKeys, Changes, ClientConfig, ClientError, CreateOptions, ErrorKind, KeyKind, RefusalCode,
    TableClient, TableName, Tables, U64Keys,
};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, History, Outcome, Recorder, check, nanoseconds_since};
use fpcache_fabric::Serving;
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_memserver::{Catalogue, CatalogueConfig};

/// Keys of the table.
const KEYS: u64 = 6;
/// How often it is made anew in a history.
const LIVES: u64 = 6;
/// Of calls: short, so that some requests are given up while there is no table.
const DEADLINE: Duration = Duration::from_millis(400);

fn name() -> TableName {
    "t".parse().unwrap()
}

/// Whether an error says no more than that the table is not there at present, or not yet, or
/// another.
fn is_between_tables(error: &ClientError) -> bool {
    // A reader gives a superblock up that has been changing for ten thousand reads, as one is whose
    // memory node was put to rest in the midst of it, on a machine with more threads than
    // processors.
    matches!(error, ClientError::NoSuchTable { .. } | ClientError::OtherKeys { .. } | ClientError::Open(_))
        || error.kind() == ErrorKind::Retry
}

/// Whether a table is not empty any more, or has the usual parameters: a writer's first record may
/// be faster than a load, and gives the table those before it is there.
fn writer_was_faster(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refusal) => matches!(refusal.code, RefusalCode::NotEmpty | RefusalCode::Busy),
        error => matches!(error, ClientError::OtherParameters { .. }),
    }
}

/// How a caller puts.
#[derive(Clone, Copy)]
enum Way {
    Single,
    Batch,
    Pipeline,
}

/// The table, and what its keys are given: every value once.
struct Remade {
    url: String,
    tables: Tables,
    kind: KeyKind,
    values: AtomicU64,
    _serving: Serving,
    _directory: tempfile::TempDir,
}

impl Remade {
    fn start(kind: KeyKind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let catalogue = Catalogue::open(&CatalogueConfig::of(64 << 20)).unwrap();
        let serving = Listener::bind(&address, ListenOptions::default()).unwrap().spawn(catalogue).unwrap();
        let url = address.to_string();
        let tables = Tables::connect(&url).unwrap();
        Self { url, tables, kind, values: AtomicU64::new(1), _serving: serving, _directory: directory }
    }

    /// A client of the table, whichever there is at present.
    fn client<K: NumberedKeys>(&self) -> TableClient<K> {
        let config = ClientConfig::default().with_table(name()).with_deadline(DEADLINE);
        loop {
            match TableClient::connect_with(&self.url, config.clone()) {
                Ok(client) => return client,
                Err(error) => assert!(is_between_tables(&error), "{error}"),
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn create(&self) {
        self.tables.create(&name(), self.kind, CreateOptions::default()).unwrap();
    }

    fn drop_table(&self) {
        self.tables.drop_table(&name()).unwrap();
    }

    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    /// A value for every key.
    fn records(&self) -> Vec<(u64, u64)> {
        (0..KEYS).map(|key| (key, self.value())).collect()
    }

    fn load<K: NumberedKeys<Owned: AsKey<K>>>(&self, records: &[(u64, u64)]) {
        let client = self.client::<K>();
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

    /// Three callers that put and two that get, while the table is made anew: what each was told.
    fn logs<K: NumberedKeys<Owned: AsKey<K>>, C: Fn() -> u64 + Clone + Send + Sync>(
        &self,
        round: u64,
        instants: C,
    ) -> Vec<Recorder<C>> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (is_over, instants) = (&is_over, &instants);
            let ways = [None, Some(Way::Single), None, Some(Way::Batch), Some(Way::Pipeline)];
            let callers: Vec<_> = (1..)
                .zip(ways)
                .map(|(process, way)| {
                    let log = Recorder::new(process, "client", instants.clone());
                    scope.spawn(move || match way {
                        None => self.get::<K, C>(log, is_over),
                        Some(way) => self.put::<K, C>(log, way, is_over),
                    })
                })
                .collect();
            let log = Recorder::new(0, "drop", instants.clone());
            let dropped = scope.spawn(move || self.make_anew::<K, C>(log, round)).join();
            is_over.store(true, Ordering::Relaxed);
            let mut logs: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            logs.push(dropped.unwrap());
            logs
        })
    }

    fn get<K: NumberedKeys<Owned: AsKey<K>>, C: Fn() -> u64>(
        &self,
        mut log: Recorder<C>,
        is_over: &AtomicBool,
    ) -> Recorder<C> {
        let client = self.client::<K>();
        let process = u64::from(log.process());
        for step in (process..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            let key = some_key(step);
            log.record(key, Call::Get, || match client.get(K::key(key)) {
                Ok(Some(value)) => (Outcome::Found(ClientStore::<K>::decode(&value)), None),
                Ok(None) => (Outcome::Absent, None),
                Err(error) => {
                    assert!(is_between_tables(&error), "{error}");
                    (Outcome::Refused, None)
                }
            });
            thread::sleep(Duration::from_micros(20));
        }
        log
    }

    /// Puts a few keys in one way. Of a table that is gone it is not told what was made in it.
    fn put<K: NumberedKeys<Owned: AsKey<K>>, C: Fn() -> u64>(
        &self,
        mut log: Recorder<C>,
        way: Way,
        is_over: &AtomicBool,
    ) -> Recorder<C> {
        let client = self.client::<K>();
        let mut replies = Vec::new();
        let process = u64::from(log.process());
        for step in (process..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            let (first, count) = (some_key(step), if matches!(way, Way::Single) { 1 } else { 3 });
            let records: Vec<(u64, u64)> = (0..count).map(|i| ((first + i) % KEYS, self.value())).collect();
            let calls: Vec<_> =
                records.iter().map(|(key, value)| log.invoke(*key, Call::Put(*value))).collect();
            let records = records.into_iter().map(|(key, value)| (K::key(key), bytes_of::<K>(value)));
            let is_done: Vec<bool> = match way {
                Way::Single => records.map(|(key, value)| client.put(key, &value).is_ok()).collect(),
                Way::Batch => {
                    let mut changes = Changes::<K>::default();
                    for (key, value) in records {
                        changes.put(key, &value);
                    }
                    let _ = client.apply(&changes, &mut replies);
                    assert!(replies.iter().all(|reply| reply.status == WriteStatus::Done), "{replies:?}");
                    (0..calls.len()).map(|at| at < replies.len()).collect()
                }
                Way::Pipeline => match client.pipeline(2) {
                    Err(_) => vec![false; calls.len()],
                    Ok(mut pipeline) => {
                        let tickets: Vec<_> =
                            records.map(|(key, value)| pipeline.put(key, &value).ok()).collect();
                        let ended = pipeline.finish();
                        let is_done = |ticket| {
                            ended.iter().any(|put| Some(put.ticket) == ticket && put.outcome.is_ok())
                        };
                        tickets.into_iter().map(is_done).collect()
                    }
                },
            };
            for (call, is_done) in calls.into_iter().zip(is_done) {
                log.returned(call, if is_done { Outcome::Done } else { Outcome::Unknown }, None);
            }
            thread::sleep(Duration::from_micros(20));
        }
        log
    }

    /// Drops the table, makes it anew and loads it, again and again. To a key, drop and creation
    /// together are a delete, since the new table can be read at once, and the load is a put.
    fn make_anew<K: NumberedKeys<Owned: AsKey<K>>, C: Fn() -> u64>(
        &self,
        mut log: Recorder<C>,
        round: u64,
    ) -> Recorder<C> {
        for life in 0..LIVES {
            thread::sleep(Duration::from_millis(2 + (round + life) % 5));
            let records = self.records();
            let deletes: Vec<_> = (0..KEYS).map(|key| log.invoke(key, Call::Delete)).collect();
            self.drop_table();
            self.create();
            deletes.into_iter().for_each(|delete| log.returned(delete, Outcome::Done, None));
            let puts = records.iter().map(|(key, value)| log.invoke(*key, Call::Put(*value)));
            let puts: Vec<_> = puts.collect();
            self.load::<K>(&records);
            puts.into_iter().for_each(|put| log.returned(put, Outcome::Done, None));
        }
        log
    }
}

fn some_key(step: u64) -> u64 {
    (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % KEYS
}

/// The bytes of a number as a value.
fn bytes_of<K: NumberedKeys>(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientStore::<K>::encode(number, &mut bytes);
    bytes
}

fn histories_have_an_order<K: NumberedKeys<Owned: AsKey<K>>>(kind: KeyKind, rounds: u64) {
    let table = Remade::start(kind);
    let instants = nanoseconds_since(Instant::now());
    table.create();
    for round in 0..rounds {
        let initial = table.records();
        table.load::<K>(&initial);
        let history = History::merge(initial, table.logs::<K, _>(round, instants.clone()));
        let checked = check(&history).unwrap();
        assert!(checked.is_linearizable(), "{kind:?}, round {round}: {checked:#?}");
        table.drop_table();
        table.create();
    }
}

#[test]
fn what_clients_of_dropped_tables_are_told_has_an_order() {
    histories_have_an_order::<U64Keys>(KeyKind::U64, 8);
    histories_have_an_order::<ByteKeys>(KeyKind::Bytes, 8);
}
