//! A table is dropped and made anew under its name, again and again, while clients of both kinds of
//! keys go on writing to it: no change takes effect in two tables, and what readers are told has an
//! order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "drop_and_create/watched.rs"]
mod watched;

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
use fpcache_fabric::{ClientId, Export, Handled, Service, Serving, Waker, Work};
use fpcache_memserver::{Catalogue, CatalogueConfig};
use watched::{Node, lock};

/// Inserts of which each is made once: the value is its number, writer and count.
const WRITERS: usize = 5;
/// One write in so many keeps its reply until its table is dropped, or long enough to be sent
/// again.
const HELD: u64 = 401;

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

/// Whether a table is not empty any more, or has the usual parameters: a writer's first record may be faster than a load, and
/// gives the table those before it is there.
fn writer_was_faster(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refusal) => matches!(refusal.code, RefusalCode::NotEmpty | RefusalCode::Busy),
        error => matches!(error, ClientError::OtherParameters { .. }),
    }
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
                if let Err(error) = created {
                    assert!(writer_was_faster(&error), "{error}");
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
            // The other records follow the writer's one by one.
            Err(error) if writer_was_faster(&error) => {
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
