//! Many tables of one memory node: each answers for itself, is made and dropped while others go on,
//! and what they may use together is theirs together.

mod empty;
mod sharing;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, TestKeys, patient, value_in};
use crate::remote;
use fpcache::message::PROTOCOL_VERSION;
use fpcache_client::{
    ByteKeys, Changes, Client, ClientConfig, ClientError, CreateOptions, ErrorKind, FingerprintWidth,
    KeyKind, RecordShape, RefusalCode, TableClient, TableName, TableParameters, Tables, U64Keys,
};
use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, connect};
use fpcache_fabric::{Connection, Deadline, Serving};
use fpcache_memserver::{Catalogue, CatalogueConfig};

/// A memory node without tables, on a thread of this process.
struct Node {
    directory: Directory,
    _serving: Serving,
}

impl Node {
    fn start(capacity: u64) -> Self {
        let directory = Directory::new();
        let config = CatalogueConfig::of(capacity);
        let listener = Listener::bind(&directory.address(), ListenOptions::default()).unwrap();
        let serving = listener.spawn(Catalogue::open(&config).unwrap()).unwrap();
        Self { directory, _serving: serving }
    }

    fn tables(&self) -> Tables {
        Tables::connect(&self.directory.url()).unwrap()
    }

    fn try_client<K: TestKeys>(&self, table: &str) -> Result<TableClient<K>, ClientError> {
        let config = patient().with_table(name(table));
        TableClient::connect_with(&self.directory.url(), config)
    }

    fn client<K: TestKeys>(&self, table: &str) -> TableClient<K> {
        self.try_client(table).unwrap()
    }
}

fn name(name: &str) -> TableName {
    name.parse().unwrap()
}

fn kind<K: TestKeys>() -> KeyKind {
    KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap()
}

fn any() -> CreateOptions {
    CreateOptions::default()
}

/// Numbers in no order (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Loads a table and changes it at random, comparing every answer with a map.
fn against_a_map<K: TestKeys>(node: &Node, table: &str, seed: u64) {
    const NUMBERS: u64 = 3_000;
    let client = node.client::<K>(table);
    let parameters = K::parameters();
    let value = |number, edition| value_in(&parameters.shape, number, edition);
    let mut records: BTreeMap<u64, Vec<u8>> =
        (0..NUMBERS).step_by(2).map(|n| (n << 40, value(n, seed))).collect();
    let mut load = client.load(parameters, 0).unwrap();
    records.iter().for_each(|(number, value)| load.push(K::key(*number), value).unwrap());
    load.finish().unwrap();
    let mut state = seed | 1;
    for step in 0..3_000 {
        let number = (random(&mut state) % NUMBERS) << 40;
        match random(&mut state) % 4 {
            0 => {
                let value = value(step, seed);
                client.put(K::key(number), &value).unwrap();
                records.insert(number, value);
            }
            1 => assert_eq!(client.delete(K::key(number)).unwrap(), records.remove(&number).is_some()),
            _ => assert_eq!(client.get(K::key(number)).unwrap().as_ref(), records.get(&number), "{table}"),
        }
    }
    let all: Vec<_> = records.into_iter().map(|(number, value)| (K::key(number), value)).collect();
    assert!(client.scan(K::key(0), usize::MAX).unwrap() == all, "{table}");
}

#[test]
fn tables_of_both_kinds_answer_for_themselves_under_concurrent_clients() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    for i in 0..3 {
        tables.create(&name(&format!("numbers-{i}")), KeyKind::U64, any()).unwrap();
        tables.create(&name(&format!("texts-{i}")), KeyKind::Bytes, any()).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Tables come and go meanwhile.
        let comings = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) || rounds < 5 {
                tables.create(&name("passing"), KeyKind::U64, any()).unwrap();
                crate::common::load::<U64Keys>(&node.client("passing"), U64Keys::parameters(), 0..500, 1)
                    .unwrap();
                tables.drop_table(&name("passing")).unwrap();
                rounds += 1;
            }
        });
        let node = &node;
        let workers: Vec<_> = (0..6u64)
            .map(|i| {
                scope.spawn(move || match i % 2 {
                    0 => against_a_map::<U64Keys>(node, &format!("numbers-{}", i / 2), 100 + i),
                    _ => against_a_map::<ByteKeys>(node, &format!("texts-{}", i / 2), 100 + i),
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        comings.join().unwrap();
        ended.into_iter().for_each(|worker| worker.unwrap());
    });
    let list = node.tables().list().unwrap();
    let names: Vec<_> = list.tables.iter().map(|table| table.name.to_string()).collect();
    assert_eq!(names, ["numbers-0", "numbers-1", "numbers-2", "texts-0", "texts-1", "texts-2"]);
    assert!(list.tables.iter().all(|table| table.keys > 1_000 && table.used_bytes <= list.granted_bytes));
    assert_eq!(list.capacity_bytes, 64 << 20);
}

#[test]
fn what_is_refused_is_refused_with_cause_and_remedy() {
    let node = Node::start(4 << 20);
    let tables = node.tables();
    tables.create(&name("texts"), KeyKind::Bytes, any()).unwrap();
    tables
        .create(&name("numbers"), KeyKind::U64, CreateOptions::default().with_region_bytes(1 << 20))
        .unwrap();
    let refused = |made: Result<(), ClientError>, code, parts: &[&str]| match made.unwrap_err() {
        ClientError::Refused(refusal) => {
            assert_eq!(refusal.code, code, "{refusal}");
            assert!(parts.iter().all(|part| refusal.to_string().contains(part)), "{parts:?} in {refusal}");
        }
        other => panic!("{other}"),
    };
    for kind in KeyKind::ALL {
        let parts = ["table `texts` exists already", "kind bytes", "another name"];
        let error = tables.create(&name("texts"), kind, any()).unwrap_err();
        assert!(matches!(error, ClientError::TableExists { .. }) && error.kind() == ErrorKind::Invalid);
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    let sized =
        |bytes| tables.create(&name("x"), KeyKind::U64, CreateOptions::default().with_region_bytes(bytes));
    refused(sized(1_000), RefusalCode::Invalid, &["too small", "64.0 KiB"]);
    refused(sized(1 << 30), RefusalCode::NoMemory, &["1.0 GiB", "4.0 MiB", "--capacity"]);
    let gone = |failed: Result<(), ClientError>, parts: &[&str]| {
        let error = failed.unwrap_err();
        assert!(
            matches!(error, ClientError::NoSuchTable { .. }) && error.kind() == ErrorKind::Setup,
            "{error}"
        );
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{parts:?} in {error}");
    };
    let there = ["no table `orders`", "`numbers`, `texts`"];
    gone(tables.drop_table(&name("orders")), &there);
    let url = node.directory.url();
    let parts = [&there[..], &["create --table orders", &url]].concat();
    gone(node.try_client::<U64Keys>("orders").map(drop), &parts);
    gone(node.try_client::<U64Keys>("default").map(drop), &["`default`"]);

    // What no client of this release sends.
    let connection = connect(&node.directory.address(), ConnectOptions::default()).unwrap();
    let says = |request: &[u8], parts: &[&str]| {
        let mut reply = Vec::new();
        connection.call(request, &mut reply, Deadline::after(PATIENCE)).unwrap();
        assert_ne!(reply[0], 0, "it is refused");
        let text = String::from_utf8(reply[8..].to_vec()).unwrap();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
    };
    let [low, high] = PROTOCOL_VERSION.to_le_bytes();
    let own = format!("version {PROTOCOL_VERSION}");
    let head = |operation: u8| [operation, 0, low, high, 0, 0, 0, 0];
    says(
        &[&head(10)[..], &[7, 0, 0, 0, 0, 0, 0, 0], b"../data"].concat(),
        &["`../data` is no name of a table", "dot"],
    );
    says(&[&head(8)[..], &[1, 0, 0, 0, 3, 0, 0, 0], &[0; 8], b"a b"].concat(), &["`a b`", "1 to 64"]);
    says(&[&head(8)[..], &[9, 0, 0, 0, 1, 0, 0, 0], &[0; 8], b"a"].concat(), &["kind 9"]);
    says(&[8, 0, 3, 0, 0, 0, 0, 0], &["version 3", &own]);
    says(&[1, 0, 3, 0, 0, 0, 0, 0], &["version 3", &own]);
    says(&[head(4), [0; 8]].concat(), &["leads to no table"]);
    assert_eq!(tables.list().unwrap().tables.len(), 2, "nothing was made or dropped");
}

fn a_dropped_table_is_told_and_one_of_its_name_is_another<K: TestKeys, Other: TestKeys>() {
    let node = Node::start(16 << 20);
    let tables = node.tables();
    let table = name("t");
    let numbers = || (0..2_000u64).map(|n| n << 40);
    tables.create(&table, kind::<K>(), any()).unwrap();
    let (idle, busy) = (node.client::<K>("t"), node.client::<K>("t"));
    crate::common::load(&busy, K::parameters(), numbers(), 1).unwrap();
    let shape = K::parameters().shape;
    assert_eq!(idle.get(K::key(0)).unwrap(), Some(value_in(&shape, 0, 1)));
    let mut pipeline = busy.pipeline(2).unwrap();
    pipeline.put(K::key(0), &value_in(&shape, 0, 2)).unwrap();
    assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));

    tables.drop_table(&table).unwrap();
    let gone = |what: &str, error: ClientError| {
        assert!(matches!(error, ClientError::NoSuchTable { .. }), "{what}: {error}");
        assert!(error.to_string().contains("`t`"), "{error}");
    };
    gone("get", idle.get(K::key(0)).unwrap_err());
    gone("put", busy.put(K::key(0), &value_in(&shape, 0, 3)).unwrap_err());
    gone("multi_get", idle.multi_get(&[K::key(0)]).unwrap_err());
    gone("scan", busy.scan(K::key(0), 10).unwrap_err());
    gone("stats", idle.stats().unwrap_err());
    gone("key_kind", idle.key_kind().unwrap_err());
    gone("load", busy.load(K::parameters(), 0).map(drop).unwrap_err());

    // Other keys under the same name.
    tables.create(&table, kind::<Other>(), any()).unwrap();
    crate::common::load(&node.client::<Other>("t"), Other::parameters(), numbers(), 5).unwrap();
    for client in [&idle, &busy] {
        let error = client.get(K::key(0)).unwrap_err();
        assert!(matches!(error, ClientError::OtherKeys { .. }), "{error}");
    }
    tables.drop_table(&table).unwrap();

    // Its like again: the same handles go on.
    tables.create(&table, kind::<K>(), any()).unwrap();
    crate::common::load(&idle, K::parameters(), numbers(), 7).unwrap();
    assert_eq!(busy.get(K::key(1 << 40)).unwrap(), Some(value_in(&shape, 1 << 40, 7)));
    busy.put(K::key(1), &value_in(&shape, 1, 8)).unwrap();
    assert_eq!(idle.get(K::key(1)).unwrap(), Some(value_in(&shape, 1, 8)));
    let mut pipeline = busy.pipeline(2).unwrap();
    pipeline.put(K::key(2), &value_in(&shape, 2, 9)).unwrap();
    assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));
}

#[test]
fn a_dropped_table_of_integers_is_told_and_one_of_its_name_is_another() {
    a_dropped_table_is_told_and_one_of_its_name_is_another::<U64Keys, ByteKeys>();
}

#[test]
fn a_dropped_table_of_byte_strings_is_told_and_one_of_its_name_is_another() {
    a_dropped_table_is_told_and_one_of_its_name_is_another::<ByteKeys, U64Keys>();
}

#[test]
fn once_a_drop_is_acknowledged_nobody_gets_an_answer() {
    let node = Node::start(16 << 20);
    let tables = node.tables();
    for round in 0..10u64 {
        tables.create(&name("t"), KeyKind::U64, any()).unwrap();
        crate::common::load(&node.client::<U64Keys>("t"), U64Keys::parameters(), 0..1_000, round).unwrap();
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..3u64 {
                let (client, is_gone) = (node.client::<U64Keys>("t"), &is_gone);
                scope.spawn(move || {
                    for step in 0.. {
                        let was_gone = is_gone.load(Ordering::SeqCst);
                        // Keys that are there, and some that are not.
                        let key = (step * 7 + reader) % 1_100;
                        let answer = match reader {
                            0 => client.get(key),
                            1 => client.multi_get(&[key]).map(|mut values| values.remove(0)),
                            _ => client.scan(key, 1).map(|mut records| records.pop().map(|(_, value)| value)),
                        };
                        match answer {
                            Ok(_) if was_gone => panic!("an answer from a table that is gone"),
                            Ok(None) if key < 1_000 => panic!("key {key} was absent before the drop"),
                            Ok(_) => {}
                            Err(ClientError::NoSuchTable { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(3 + round));
            tables.drop_table(&name("t")).unwrap();
            is_gone.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn more_tables_than_one_reply_has_are_listed_all() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    let small = CreateOptions::default().with_region_bytes(64 << 10);
    let mut names: Vec<TableName> = (0..530).map(|i| name(&format!("t{i}"))).collect();
    names.iter().for_each(|name| tables.create(name, KeyKind::U64, small).unwrap());
    names.sort_unstable();
    let listed: Vec<TableName> = tables.list().unwrap().tables.iter().map(|table| table.name).collect();
    assert_eq!(listed, names);
    let last = *names.last().unwrap();
    crate::common::load(&node.client::<U64Keys>(last.as_str()), U64Keys::parameters(), 0..100, 1).unwrap();
    names.iter().for_each(|name| tables.drop_table(name).unwrap());
    let list = tables.list().unwrap();
    assert_eq!((list.tables.len(), list.granted_bytes), (0, 0));
}

#[test]
fn a_table_that_is_rebuilt_all_the_time_starves_no_other() {
    let node = Node::start(64 << 20);
    let tables = node.tables();
    for table in ["busy", "calm"] {
        tables.create(&name(table), KeyKind::U64, any()).unwrap();
        crate::common::load(&node.client::<U64Keys>(table), U64Keys::parameters(), 0..1_000, 1).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..3u64 {
            let (client, is_over) = (node.client::<U64Keys>("busy"), &is_over);
            scope.spawn(move || {
                // Inserts all over the key space leave segments crowded, which is background work.
                let (mut state, mut changes, mut replies) = (seed, Changes::<U64Keys>::default(), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    changes.clear();
                    (0..200).for_each(|_| _ = changes.put(random(&mut state), &[1; 8]));
                    client.apply(&changes, &mut replies).unwrap();
                }
            });
        }
        let (calm, busy) = (node.client::<U64Keys>("calm"), node.client::<U64Keys>("busy"));
        let (begun, mut written) = (Instant::now(), 0);
        // For how many turns a put waits is counted in `memserver/tests/others_wait.rs`: here its
        // time would be the machine's.
        let rebuilds = loop {
            let put = (written..written + 10).try_for_each(|n| calm.put(n % 1_000, &[2; 8]).map(drop));
            let rebuilds = put.and_then(|()| busy.stats()).map(|stats| stats.rebuilds);
            written += 10;
            let is_enough = rebuilds.as_ref().is_ok_and(|rebuilds| written >= 100 && *rebuilds > 10);
            if is_enough || rebuilds.is_err() || begun.elapsed() > PATIENCE {
                break rebuilds;
            }
        };
        // Before anything fails: the others are waited for.
        is_over.store(true, Ordering::Relaxed);
        let rebuilds = rebuilds.unwrap();
        assert!(written >= 100 && rebuilds > 10, "{written} writes beside {rebuilds} segments replaced");
    });
}

#[test]
fn a_client_for_other_keys_is_told_so_when_it_is_opened() {
    let node = Node::start(64 << 20);
    node.tables().create(&name("numbers"), KeyKind::U64, any()).unwrap();
    node.tables().create(&name("default"), KeyKind::Bytes, any()).unwrap();
    let refused = |error: ClientError| assert!(matches!(error, ClientError::OtherKeys { .. }), "{error}");
    for _ in ["empty", "with a record"] {
        refused(node.try_client::<ByteKeys>("numbers").unwrap_err());
        refused(Client::connect(&node.directory.url()).unwrap_err());
        node.client::<U64Keys>("numbers").put(1, &[0; 8]).unwrap();
        node.client::<ByteKeys>("default").put("one", b"1").unwrap();
    }
}

/// It was told as a failure after which the request may be repeated: a second drop is of a table
/// that another program has made meanwhile.
#[test]
fn a_request_about_a_table_that_is_not_answered_is_of_unknown_outcome() {
    type Ask = fn(&Tables) -> Result<(), ClientError>;
    let node = remote::Node::start();
    let told = |ask: Ask| {
        let (url, holds) = remote::relay_to(node.url());
        let config = ClientConfig::default().with_deadline(Duration::from_secs(4));
        let tables = Tables::connect_with(&url, config).unwrap();
        holds.store(true, Ordering::Relaxed);
        let error = ask(&tables).unwrap_err();
        holds.store(false, Ordering::Relaxed);
        // Its end would keep the memory node from what has yet to arrive.
        (error, tables)
    };
    let tables = Tables::connect(node.url()).unwrap();
    let is_there = |table: &str| tables.find(&name(table)).unwrap().is_some();
    let comes_to_be = |table: &str, there| crate::common::wait_until(|| is_there(table) == there);
    tables.create(&name("early"), KeyKind::U64, any()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (error, _asked) = told(|tables| tables.create(&name("late"), KeyKind::U64, any()));
            assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
            assert_eq!(error.kind(), ErrorKind::Unknown);
            comes_to_be("late", true);
            assert!(is_there("late"));
        });
        scope.spawn(|| {
            let (error, _asked) = told(|tables| tables.drop_table(&name("early")));
            assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
            assert!(error.to_string().contains("`early`"), "{error}");
            comes_to_be("early", false);
            assert!(!is_there("early"));
        });
        // What may be repeated, and what was not sent.
        let repeatable: [Ask; 2] = [
            |tables| tables.create_if_missing(&name("other"), KeyKind::U64, any()).map(drop),
            |tables| tables.list().map(drop),
        ];
        for ask in repeatable {
            scope.spawn(move || {
                let (error, _asked) = told(ask);
                assert!(error.is_retryable(), "{error}");
            });
        }
    });
}
