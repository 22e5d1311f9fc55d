//! A table is dropped and made anew under its name, again and again, while clients of both kinds of
//! keys go on writing to it: no change takes effect in two tables, and what readers are told has an
//! order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::message::{Request, TablesRequest, Write, WriteReply, WriteStatus, decode_reply};
use fpcache_client::{
    AsKey, ByteKeys, Changes, ClientConfig, ClientError, CreateOptions, ErrorKind, KeyKind, RefusalCode,
    TableClient, TableName, Tables, U64Keys,
};
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, History, Outcome, Recorder, check, nanoseconds_since};
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{ClientId, Export, Handled, HugePages, Service, Serving, Waker, Work};
use fpcache_memserver::{Catalogue, CatalogueConfig};

/// Inserts of which each is made once: the value is its number, writer and count.
const WRITERS: usize = 5;
/// One write in so many keeps its reply until its table is dropped, or long enough to be sent
/// again.
const HELD: u64 = 401;

/// In which life of the table each insert took effect, by its number; 0: in none.
#[derive(Default)]
struct Ledger {
    lives: [Vec<u32>; WRITERS],
    faults: Vec<String>,
}

impl Ledger {
    fn note(&mut self, number: u64, life: u32) {
        let (writer, count) = ((number >> 40) as usize, (number & ((1 << 40) - 1)) as usize);
        let Some(lives) = self.lives.get_mut(writer).filter(|_| count < 1 << 32) else {
            return self.faults.push(format!("{number:x} was inserted, which nobody asked for"));
        };
        lives.resize(lives.len().max(count + 1), 0);
        match lives[count] {
            0 => lives[count] = life,
            before if before == life => {}
            before => self.faults.push(format!("{number:x} took effect in the lives {before} and {life}")),
        }
    }

    fn life_of(&self, writer: usize, count: u64) -> u32 {
        self.lives[writer].get(count as usize).copied().unwrap_or(0)
    }
}

/// A catalogue that is watched at its requests: what it does, and to which life of the table,
/// whatever the requests say of that.
struct Watched {
    catalogue: Catalogue,
    ledger: Arc<Mutex<Ledger>>,
    life: u32,
    kind: KeyKind,
    writes: u64,
    /// Requests whose replies come later, with the life of the table that has them.
    owed: HashMap<ClientId, (u32, Vec<u8>)>,
    /// The reply that is held, whose it is, and until when.
    held: Option<(ClientId, Vec<u8>, Instant)>,
}

impl Watched {
    /// Notes what a write that was answered so has done in this life of the table.
    fn note(&self, life: u32, request: &[u8], reply: &[u8]) {
        match self.kind {
            KeyKind::U64 => self.note_in::<U64Keys>(life, request, reply),
            KeyKind::Bytes => self.note_in::<ByteKeys>(life, request, reply),
        }
    }

    fn note_in<K: NumberedKeys>(&self, life: u32, request: &[u8], reply: &[u8]) {
        let (Ok(replies), Some(Ok(write))) = (decode_reply(reply), write_in::<K>(request)) else { return };
        let mut ledger = lock(&self.ledger);
        let replies = replies.chunks_exact(WriteReply::BYTES).map(|reply| WriteReply::decode(reply).unwrap());
        for (operation, reply) in write.operations::<K>().zip(replies) {
            let Ok(operation) = operation else { return };
            let value = operation.value.bytes().first_chunk().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
            let is_ours = K::number(operation.key.borrow()) == value;
            match reply.status {
                WriteStatus::Done if is_ours => ledger.note(value, life),
                WriteStatus::Done => ledger.faults.push(format!("{:?}", operation.value)),
                _ => {}
            }
        }
    }
}

/// The write that a request is, whatever table it is meant for.
fn write_in<K: NumberedKeys>(request: &[u8]) -> Option<Result<Write<'_>, ()>> {
    let creation = u64::from_le_bytes(*request.get(8..)?.first_chunk()?);
    match Request::decode::<K>(creation, request) {
        Ok(Request::Write(write)) => Some(Ok(write)),
        Ok(_) => None,
        Err(_) => Some(Err(())),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service for Watched {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.catalogue.export(name)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        let tables = TablesRequest::is_one(request).then(|| TablesRequest::decode(request).unwrap());
        let handled = self.catalogue.handle(client, request, reply);
        match tables {
            // Its one caller drops a table that is there. What was held or owed is lost with the
            // connections.
            Some(TablesRequest::Drop { .. }) => {
                (self.held, self.life) = (None, self.life + 1);
                self.owed.clear();
            }
            Some(TablesRequest::Create { kind, .. }) => self.kind = kind,
            Some(_) => {}
            None if handled == Handled::Later => {
                self.owed.insert(client, (self.life, request.to_vec()));
            }
            None => {
                self.note(self.life, request, reply);
                self.writes += 1;
                if self.writes.is_multiple_of(HELD) && self.held.is_none() {
                    let until = Instant::now() + Duration::from_millis(5);
                    self.held = Some((client, std::mem::take(reply), until));
                    return Handled::Later;
                }
            }
        }
        handled
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        if let Some((client, held, _)) = self.held.take_if(|(.., until)| Instant::now() >= *until) {
            *reply = held;
            return Some(client);
        }
        let client = self.catalogue.next_reply(reply)?;
        if let Some((life, request)) = self.owed.remove(&client) {
            self.note(life, &request, reply);
        }
        Some(client)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.catalogue.next_farewell()
    }

    fn work(&mut self) -> Work {
        match (self.catalogue.work(), &self.held) {
            (Work::Nothing, Some((.., until))) => Work::At(*until),
            (work, _) => work,
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.catalogue.waker()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.catalogue.connected(client, region);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.catalogue.disconnected(client);
    }
}

/// A memory node on a thread of this process.
struct Node {
    url: String,
    ledger: Arc<Mutex<Ledger>>,
    _serving: Serving,
    _directory: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let config = CatalogueConfig { capacity: 64 << 20, huge_pages: HugePages::No, durable: None };
        let ledger = Arc::<Mutex<Ledger>>::default();
        let watched = Watched {
            catalogue: Catalogue::open(&config).unwrap(),
            ledger: Arc::clone(&ledger),
            life: 1,
            kind: KeyKind::U64,
            writes: 0,
            owed: HashMap::new(),
            held: None,
        };
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        let serving = listener.spawn(watched).unwrap();
        Self { url: address.to_string(), ledger, _serving: serving, _directory: directory }
    }

    fn tables(&self) -> Tables {
        Tables::connect(&self.url).unwrap()
    }

    /// A client of the table, whichever there is at present.
    fn client<K: NumberedKeys>(&self) -> TableClient<K> {
        let config = ClientConfig::default().with_table(name()).with_deadline(DEADLINE);
        until_there(|| TableClient::connect_with(&self.url, config))
    }
}

/// Of calls; less than a held reply takes is enough for some requests to be sent again.
const DEADLINE: Duration = Duration::from_millis(400);

fn name() -> TableName {
    "t".parse().unwrap()
}

fn until_there<R>(mut call: impl FnMut() -> Result<R, ClientError>) -> R {
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert!(is_between_tables(&error), "{error}"),
        }
        thread::sleep(Duration::from_micros(200));
    }
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

/// The bytes of a number as a value.
fn bytes_of<K: NumberedKeys>(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientStore::<K>::encode(number, &mut bytes);
    bytes
}

/// What a writer was told.
#[derive(Default)]
struct Told {
    /// The numbers of the inserts that were made.
    made: Vec<u64>,
    asked: u64,
    unknown: u64,
}

/// Ends all threads with one that panics.
struct OverOnPanic<'o>(&'o AtomicBool);

impl Drop for OverOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// How a writer sends its inserts.
#[derive(Clone, Copy)]
enum Way {
    Single,
    Batch(u64),
    Pipeline(usize),
}

/// Inserts numbers until it is over.
fn insert<K: NumberedKeys<Owned: AsKey<K>>>(
    node: &Node,
    writer: usize,
    way: Way,
    is_over: &AtomicBool,
    all: &AtomicU64,
) -> Told {
    let _ending = OverOnPanic(is_over);
    let client = node.client::<K>();
    let (mut told, mut replies) = (Told::default(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let (first, made) = (told.asked, told.made.len());
        let number = |count: u64| (writer as u64) << 40 | count;
        let insert = |count| (K::key(number(count)), bytes_of::<K>(number(count)));
        let mut note = |count: u64, ended: Result<bool, ClientError>| match ended {
            Ok(true) => told.made.push(count),
            Ok(false) => panic!("{count} was there before it was inserted"),
            Err(ClientError::OutcomeUnknown { .. }) => told.unknown += 1,
            Err(error) => {
                assert!(is_between_tables(&error), "{error}");
                thread::sleep(Duration::from_micros(100));
            }
        };
        match way {
            Way::Single => {
                let (key, value) = insert(first);
                note(first, client.insert(key, &value));
                told.asked += 1;
            }
            Way::Batch(count) => {
                let mut changes = Changes::<K>::default();
                for (key, value) in (first..first + count).map(insert) {
                    changes.insert(key, &value);
                }
                let applied = client.apply(&changes, &mut replies);
                for (count, reply) in (first..).zip(&replies) {
                    assert_eq!(reply.status, WriteStatus::Done, "{count}");
                    note(count, Ok(true));
                }
                if let Err(error) = applied {
                    note(first, Err(error));
                }
                told.asked += count;
            }
            Way::Pipeline(depth) => {
                let mut pipeline = until_there(|| client.pipeline(depth));
                let mut counts = Vec::new();
                for count in first..first + 500 {
                    let (key, value) = insert(count);
                    match pipeline.insert(key, &value) {
                        Ok(ticket) => counts.push((ticket, count)),
                        Err(error) => note(count, Err(error)),
                    }
                }
                for ended in pipeline.finish() {
                    let (_, count) = counts.iter().find(|(ticket, _)| *ticket == ended.ticket).unwrap();
                    note(*count, ended.outcome.map(|reply| reply.status == WriteStatus::Done));
                }
                told.asked += 500;
            }
        }
        all.fetch_add((told.made.len() - made) as u64, Ordering::Relaxed);
    }
    told
}

/// Has writers of both kinds insert so many records while the table is dropped and made anew, and
/// looks at what became of each.
fn no_insert_is_made_in_two_tables(inserts: u64) {
    let node = Node::start();
    let tables = node.tables();
    let (is_over, all) = (AtomicBool::new(false), AtomicU64::new(0));
    let (told, drops) = thread::scope(|scope| {
        let (node, is_over, all) = (&node, &is_over, &all);
        let dropper = scope.spawn(move || {
            let mut drops = 0;
            while !is_over.load(Ordering::Relaxed) && (all.load(Ordering::Relaxed) < inserts || drops < 12) {
                // Tables of either kind in a row, and the other kind under the same name.
                let is_u64 = drops % 4 < 2;
                let kind = if is_u64 { KeyKind::U64 } else { KeyKind::Bytes };
                tables.create(&name(), kind, CreateOptions::default()).unwrap();
                let created = match is_u64 {
                    true => node.client::<U64Keys>().create(U64Keys::small_segments()),
                    false => node.client::<ByteKeys>().create(ByteKeys::small_segments()),
                };
                // A writer's first record may have been faster, and has given the table usual
                // parameters then.
                if let Err(error) = created {
                    let is_made = |code| matches!(code, RefusalCode::NotEmpty | RefusalCode::Busy);
                    let was_faster = match &error {
                        ClientError::Refused(refusal) => is_made(refusal.code),
                        error => matches!(error, ClientError::OtherParameters { .. }),
                    };
                    assert!(was_faster, "{error}");
                }
                let (before, begun) = (all.load(Ordering::Relaxed), Instant::now());
                let enough = inserts / 1_000 + drops % 7 * 50;
                while all.load(Ordering::Relaxed) < before + enough
                    && begun.elapsed() < Duration::from_millis(200)
                {
                    thread::sleep(Duration::from_micros(300));
                }
                tables.drop_table(&name()).unwrap();
                drops += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            drops
        });
        let writers = [
            scope.spawn(move || insert::<U64Keys>(node, 0, Way::Single, is_over, all)),
            scope.spawn(move || insert::<U64Keys>(node, 1, Way::Batch(50), is_over, all)),
            scope.spawn(move || insert::<U64Keys>(node, 2, Way::Pipeline(3), is_over, all)),
            scope.spawn(move || insert::<ByteKeys>(node, 3, Way::Batch(50), is_over, all)),
            scope.spawn(move || insert::<ByteKeys>(node, 4, Way::Pipeline(3), is_over, all)),
        ];
        // The writers end when the dropper does, also when that fails.
        let drops = dropper.join();
        is_over.store(true, Ordering::Relaxed);
        let told = writers.map(|writer| writer.join().unwrap());
        (told, drops.unwrap())
    });
    let ledger = lock(&node.ledger);
    assert!(ledger.faults.is_empty(), "{} faults, {:?}", ledger.faults.len(), &ledger.faults[..1]);
    let mut unknown = 0;
    for (writer, told) in told.iter().enumerate() {
        assert!(!told.made.is_empty(), "writer {writer} inserted nothing");
        let lost = told.made.iter().filter(|count| ledger.life_of(writer, **count) == 0).count();
        assert_eq!(lost, 0, "inserts of writer {writer} that were acknowledged and not made");
        unknown += told.unknown;
    }
    let made: usize = told.iter().map(|told| told.made.len()).sum();
    println!("{made} inserts made, {unknown} requests with an unknown outcome, {drops} drops");
    assert!(unknown > 0, "no request met a drop");
}

#[test]
fn no_insert_takes_effect_in_two_tables_of_a_name() {
    no_insert_is_made_in_two_tables(30_000);
}

/// The long form: ten million inserts that are made, and however many more are asked for.
#[test]
#[ignore = "minutes"]
fn of_ten_million_inserts_none_takes_effect_in_two_tables_of_a_name() {
    no_insert_is_made_in_two_tables(10_000_000);
}

/// Puts and gets of few keys while the table is dropped, made anew and loaded. To a key, drop and
/// creation together are a delete, since the new table can be read at once, and the load is a put.
fn histories_have_an_order<K: NumberedKeys<Owned: AsKey<K>>>(kind: KeyKind, rounds: u64) {
    const KEYS: u64 = 6;
    const LIVES: u64 = 6;
    let node = Node::start();
    let tables = node.tables();
    let instants = nanoseconds_since(Instant::now());
    let values = AtomicU64::new(1);
    let fresh = || (0..KEYS).map(|key| (key, values.fetch_add(1, Ordering::Relaxed))).collect::<Vec<_>>();
    let create = || tables.create(&name(), kind, CreateOptions::default()).unwrap();
    let load = |records: &[(u64, u64)]| {
        let client = node.client::<K>();
        let mut load = match client.load(K::small_segments(), 0) {
            Ok(load) => load,
            // A writer's first record may have been faster: the others follow it one by one.
            Err(ClientError::Refused(refusal))
                if matches!(refusal.code, RefusalCode::NotEmpty | RefusalCode::Busy) =>
            {
                let put = |(key, value): &(u64, u64)| client.put(K::key(*key), &bytes_of::<K>(*value));
                return records.iter().for_each(|record| put(record).unwrap());
            }
            Err(error) => panic!("{error}"),
        };
        records.iter().for_each(|(key, value)| load.push(K::key(*key), &bytes_of::<K>(*value)).unwrap());
        load.finish().unwrap();
    };
    let mut initial = fresh();
    create();
    load(&initial);
    for round in 0..rounds {
        let is_over = AtomicBool::new(false);
        let logs = thread::scope(|scope| {
            let (node, is_over, values, instants) = (&node, &is_over, &values, &instants);
            let (tables, fresh, create, load) = (&tables, &fresh, &create, &load);
            let callers: Vec<_> = (1..=4u32)
                .map(|process| {
                    scope.spawn(move || {
                        let client = node.client::<K>();
                        let mut log = Recorder::new(process, "client", instants.clone());
                        for step in u64::from(process).. {
                            if is_over.load(Ordering::Relaxed) {
                                return log;
                            }
                            let key = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                            let key = key % KEYS;
                            if process % 2 == 0 {
                                log.record(key, Call::Get, || match client.get(K::key(key)) {
                                    Ok(Some(value)) => {
                                        (Outcome::Found(ClientStore::<K>::decode(&value)), None)
                                    }
                                    Ok(None) => (Outcome::Absent, None),
                                    Err(error) => {
                                        assert!(is_between_tables(&error), "{error}");
                                        (Outcome::Refused, None)
                                    }
                                });
                            } else {
                                let value = values.fetch_add(1, Ordering::Relaxed);
                                log.record(key, Call::Put(value), || {
                                    match client.put(K::key(key), &bytes_of::<K>(value)) {
                                        Ok(()) => (Outcome::Done, None),
                                        // Of a table that is gone it is not told what was made in
                                        // it.
                                        Err(_) => (Outcome::Unknown, None),
                                    }
                                });
                            }
                            thread::sleep(Duration::from_micros(20));
                        }
                        log
                    })
                })
                .collect();
            let dropper = scope.spawn(move || {
                let mut log = Recorder::new(0, "drop", instants.clone());
                for life in 0..LIVES {
                    thread::sleep(Duration::from_millis(2 + (round + life) % 5));
                    let records = fresh();
                    let deletes: Vec<_> = (0..KEYS).map(|key| log.invoke(key, Call::Delete)).collect();
                    tables.drop_table(&name()).unwrap();
                    create();
                    deletes.into_iter().for_each(|delete| log.returned(delete, Outcome::Done, None));
                    let puts = records.iter().map(|(key, value)| log.invoke(*key, Call::Put(*value)));
                    let puts: Vec<_> = puts.collect();
                    load(&records);
                    puts.into_iter().for_each(|put| log.returned(put, Outcome::Done, None));
                }
                log
            });
            let dropped = dropper.join();
            is_over.store(true, Ordering::Relaxed);
            let mut logs: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
            logs.push(dropped.unwrap());
            logs
        });
        let history = History::merge(initial, logs);
        let checked = check(&history).unwrap();
        assert!(checked.is_linearizable(), "{kind:?}, round {round}: {checked:#?}");
        initial = fresh();
        tables.drop_table(&name()).unwrap();
        create();
        load(&initial);
    }
}

#[test]
fn what_clients_of_dropped_tables_are_told_has_an_order() {
    histories_have_an_order::<U64Keys>(KeyKind::U64, 4);
    histories_have_an_order::<ByteKeys>(KeyKind::Bytes, 4);
}
