//! Tables over several memory nodes: the same answers as of one, whatever is asked and wherever a
//! range ends.

mod failures;
pub mod one_slow;
mod starting;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, TestKeys, free_port, load, patient, value_in};
use crate::proxies::{MARK, Silent, Together};
use fpcache_client::{
    ByteKeys, CacheConfig, Changes, Client, ClientConfig, ClientError, CreateOptions, Inserted, KeyKind,
    KeyRef, Nodes, Record, RefusalCode, TableClient, TableName, Tables, U64Keys, WriteStatus,
};
use fpcache_fabric::Serving;
use fpcache_fabric::shm::ListenOptions as ShmListenOptions;
use fpcache_fabric::shm::Listener as ShmListener;
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_memserver::{Catalogue, CatalogueConfig};

for_both_kinds_of_keys!(
    answers_are_those_of_a_map,
    scans_go_on_over_the_ends_of_ranges,
    a_table_that_is_made_anew_with_other_ranges_is_found_and_gives_no_old_answer,
);

/// A memory node on threads of this process.
pub struct Node {
    pub url: String,
    _directory: Directory,
    /// Keeps its port from others once it has ended.
    _port: Option<OwnedFd>,
    serving: Option<Serving>,
}

impl Node {
    /// Ends it.
    pub fn end(&mut self) {
        drop(self.serving.take());
    }

    pub fn of(capacity: u64, over_tcp: bool) -> Self {
        Self::with(capacity, over_tcp, ListenOptions::default().idle_time)
    }

    fn with(capacity: u64, over_tcp: bool, idle_time: Option<Duration>) -> Self {
        let directory = Directory::new();
        let config = CatalogueConfig::of(capacity);
        let catalogue = Catalogue::open(&config).unwrap();
        let (url, port, serving) = if over_tcp {
            let options = ListenOptions {
                io_threads: 1,
                idle_time,
                greeting_time: PATIENCE,
                ..ListenOptions::default()
            };
            let (reserved, port) = free_port();
            let url = format!("tcp://127.0.0.1:{port}");
            let listener = Listener::bind(&[url.parse().unwrap()], options).unwrap();
            (url, Some(reserved), listener.spawn(catalogue).unwrap())
        } else {
            let listener = ShmListener::bind(&directory.address(), ShmListenOptions::default()).unwrap();
            (directory.url(), None, listener.spawn(catalogue).unwrap())
        };
        Self { url, _directory: directory, _port: port, serving: Some(serving) }
    }

    pub fn tcp() -> Self {
        Self::of(16 << 20, true)
    }

    pub fn shm() -> Self {
        Self::of(16 << 20, false)
    }
}

pub fn urls(nodes: &[Node]) -> String {
    nodes.iter().map(|node| node.url.as_str()).collect::<Vec<_>>().join(",")
}

pub fn name() -> TableName {
    "orders".parse().unwrap()
}

pub fn config() -> ClientConfig {
    patient().with_table(name())
}

pub fn make<K: TestKeys>(nodes: &[Node], split_at: &[u64], value_bytes: Option<u32>) {
    let split_at: Vec<K::Owned> = split_at.iter().map(|number| K::key(*number)).collect();
    let parameters = K::parameters_of(value_bytes);
    let nodes = Nodes::at(&urls(nodes)).unwrap();
    nodes.create::<K>(&name(), parameters, &split_at, CreateOptions::default()).unwrap();
}

fn by<K: TestKeys>(key: &K::Owned) -> KeyRef<'_, K> {
    KeyRef(key.borrow())
}

/// Numbers in no order (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn answers_are_those_of_a_map<K: TestKeys>() {
    let kinds: [[fn() -> Node; 3]; 3] = [
        [Node::tcp, Node::tcp, Node::tcp],
        [Node::shm, Node::shm, Node::shm],
        [Node::tcp, Node::shm, Node::tcp],
    ];
    for (round, kinds) in kinds.into_iter().enumerate() {
        let nodes = kinds.map(|start| start());
        let value_bytes = if round == 0 { None } else { Some(8) };
        make::<K>(&nodes, &[1_000 << 29, 5_000 << 29], value_bytes);
        // One URL is enough, whichever.
        let cache = (round == 2).then(|| CacheConfig::of(6 << 20));
        let client = TableClient::<K>::connect_with(&nodes[round].url, config().with_cache(cache)).unwrap();
        let mut reader = client.reader();
        let shape = K::shape(value_bytes);
        let value = |number, edition| value_in(&shape, number, edition);
        let numbers = (0..1_500u64).map(|n| n << 31);
        load(&client, K::parameters_of(value_bytes), numbers.clone(), 0).unwrap();
        let mut map: BTreeMap<u64, Vec<u8>> = numbers.map(|n| (n, value(n, 0))).collect();
        assert_eq!(client.stats().unwrap().keys, 1_500);
        let mut state = 99 + round as u64;
        for step in 0..300u64 {
            let number = (random(&mut state) % 7_000) << 29;
            let key = K::key(number);
            let as_number = |(key, value): (K::Owned, Vec<u8>)| (K::number(key.borrow()), value);
            match random(&mut state) % 9 {
                0 => {
                    client.put(by::<K>(&key), &value(number, step)).unwrap();
                    map.insert(number, value(number, step));
                }
                1 => assert_eq!(client.delete(by::<K>(&key)).unwrap(), map.remove(&number).is_some()),
                2 => assert_eq!(client.get(by::<K>(&key)).unwrap(), map.get(&number).cloned()),
                3 => {
                    let group: Vec<u64> = (0..64).map(|_| (random(&mut state) % 7_000) << 29).collect();
                    let keys: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
                    let expected: Vec<_> = group.iter().map(|number| map.get(number).cloned()).collect();
                    assert_eq!(client.multi_get(&keys).unwrap(), expected);
                    assert_eq!(reader.multi_get(&keys).unwrap(), expected);
                    let there: Vec<bool> = expected.iter().map(Option::is_some).collect();
                    assert_eq!(client.multi_contains(&keys).unwrap(), there);
                    let floors = reader.multi_floor(&keys).unwrap();
                    for (number, floor) in group.iter().zip(floors) {
                        let expected = map.range(..=number).next_back().map(|(n, v)| (*n, v.clone()));
                        assert_eq!(floor.map(as_number), expected);
                    }
                }
                4 => {
                    let limit = (random(&mut state) % 2_000) as usize;
                    let found: Vec<_> =
                        client.scan(by::<K>(&key), limit).unwrap().into_iter().map(as_number).collect();
                    let expected: Vec<_> =
                        map.range(number..).take(limit).map(|(n, v)| (*n, v.clone())).collect();
                    assert_eq!(found, expected);
                    let found = reader.scan_back(by::<K>(&key), limit).unwrap();
                    let found: Vec<_> = found.into_iter().map(as_number).collect();
                    let expected: Vec<_> =
                        map.range(..=number).rev().take(limit).map(|(n, v)| (*n, v.clone())).collect();
                    assert_eq!(found, expected);
                }
                5 => {
                    let above = number + ((random(&mut state) % 7_000) << 29);
                    let expected = map.range(number..above).count() as u64;
                    assert_eq!(reader.count(by::<K>(&key), K::key(above)).unwrap(), expected);
                }
                6 => {
                    let ceiling = client.ceiling(by::<K>(&key)).unwrap().map(as_number);
                    assert_eq!(ceiling, map.range(number..).next().map(|(n, v)| (*n, v.clone())));
                    let last = reader.last().unwrap().map(as_number);
                    assert_eq!(last, map.last_key_value().map(|(n, v)| (*n, v.clone())));
                    let first = client.first().unwrap().map(as_number);
                    assert_eq!(first, map.first_key_value().map(|(n, v)| (*n, v.clone())));
                }
                7 => {
                    let (mut changes, mut replies) = (Changes::<K>::default(), Vec::new());
                    let group: Vec<u64> = (0..20).map(|_| (random(&mut state) % 7_000) << 29).collect();
                    for number in &group {
                        changes.insert(K::key(*number), &value(*number, step));
                    }
                    client.apply(&changes, &mut replies).unwrap();
                    assert_eq!(replies.len(), group.len());
                    for (number, reply) in group.iter().zip(&replies) {
                        let is_new = !map.contains_key(number);
                        assert_eq!(reply.status == WriteStatus::Done, is_new);
                        map.entry(*number).or_insert_with(|| value(*number, step));
                    }
                }
                _ => {
                    let mut pipeline = client.pipeline(4).unwrap();
                    for i in 0..12 {
                        let number = (random(&mut state) % 7_000) << 29;
                        pipeline.put(K::key(number), &value(number, i)).unwrap();
                        map.insert(number, value(number, i));
                        assert_eq!(pipeline.get(K::key(number)).unwrap(), map.get(&number).cloned());
                    }
                    assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));
                }
            }
        }
        let all = client.scan(K::lowest_key(), usize::MAX).unwrap();
        assert_eq!(all.len(), map.len());
    }
}

/// The least key there is, as an own one.
trait Lowest: TestKeys {
    fn lowest_key() -> Self::Owned {
        Self::lowest().to_owned()
    }
}

impl<K: TestKeys> Lowest for K {}

fn scans_go_on_over_the_ends_of_ranges<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp(), Node::shm()];
    // One range is empty, and records lie at both sides of each end.
    make::<K>(&nodes, &[100 << 32, 200 << 32, 300 << 32], Some(8));
    let client = TableClient::<K>::connect_with(&urls(&nodes[2..]), config()).unwrap();
    let value = |number| value_in(&K::shape(Some(8)), number, 0);
    let numbers: Vec<u64> = [0, 99, 100, 101, 199, 300, 301, 400].map(|n| n << 32).into();
    for number in &numbers {
        client.put(K::key(*number), &value(*number)).unwrap();
    }
    let bounds: Vec<u64> = (0..9).flat_map(|n| [n * 50, n * 50 + 1]).map(|n| n << 32).collect();
    for from in &bounds {
        for to in &bounds {
            let expected: Vec<u64> = numbers.iter().copied().filter(|n| (from..to).contains(&n)).collect();
            let mut up = Vec::new();
            let (low, high) = (K::key(*from), K::key(*to));
            client
                .scan_range(by::<K>(&low), by::<K>(&high), 100, |key, _| up.push(K::number(key.borrow())))
                .unwrap();
            assert_eq!(up, expected);
            let mut down = Vec::new();
            client
                .scan_range_back(by::<K>(&low), by::<K>(&high), 100, |key, _| {
                    down.push(K::number(key.borrow()))
                })
                .unwrap();
            down.reverse();
            assert_eq!(down, expected);
            let number = |record: Result<Record<K>, ClientError>| K::number(record.unwrap().0.borrow());
            let range = || client.range(by::<K>(&low)..by::<K>(&high));
            assert_eq!(range().map(number).collect::<Vec<_>>(), expected);
            down.reverse();
            assert_eq!(range().rev().map(number).collect::<Vec<_>>(), down);
            assert_eq!(client.count(by::<K>(&low), by::<K>(&high)).unwrap(), expected.len() as u64);
        }
    }
    for limit in 0..=numbers.len() {
        let found = client.scan(K::lowest_key(), limit).unwrap();
        let found: Vec<u64> = found.iter().map(|(key, _)| K::number(key.borrow())).collect();
        assert_eq!(found, numbers[..limit]);
        let keys = client.scan_keys(K::lowest_key(), limit).unwrap();
        assert!(keys.iter().map(|key| K::number(key.borrow())).eq(numbers[..limit].iter().copied()));
    }
    assert!(client.ping().unwrap() < PATIENCE);
    for most in 1..=numbers.len() {
        let mut found = Vec::new();
        let mut take = |key: K::View<'_>, _: &[u8]| {
            found.push(K::number(key.borrow()));
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        client.scan_with(K::lowest_key(), usize::MAX, &mut take).unwrap();
        assert_eq!(found, numbers[..most]);
        found.clear();
        let down = |key: K::View<'_>, _: &[u8]| {
            found.push(K::number(key.borrow()));
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        client.scan_back_to(K::lowest_key(), usize::MAX, down).unwrap();
        assert!(found.iter().eq(numbers.iter().rev().take(most)));
    }
    // What takes the records uses the same client, also of other ranges.
    let take = |key: K::View<'_>, found: &[u8]| {
        assert!(client.delete(KeyRef::<K>(key.borrow())).unwrap());
        assert_eq!(client.get(KeyRef::<K>(key.borrow())).unwrap(), None);
        let last = client.get(by::<K>(&K::key(401 << 32))).unwrap();
        assert!(last.is_none() && found.len() == 8);
    };
    client.scan_with(K::lowest_key(), 100, take).unwrap();
    assert_eq!(client.scan(K::lowest_key(), 100).unwrap(), []);
}

#[test]
fn a_load_outlasts_the_idle_time_of_memory_nodes_that_take_none_of_its_records() {
    const CHUNK: u64 = 50_000;
    let nodes = [(); 3].map(|()| Node::with(64 << 20, true, Some(Duration::from_secs(6))));
    make::<U64Keys>(&nodes, &[1 << 40, 2 << 40], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mut load = client.load(U64Keys::parameters_of(Some(8)), 0).unwrap();
    load.push(0, &[0; 8]).unwrap();
    let begun = Instant::now();
    let mut keys = 1..;
    while begun.elapsed() < Duration::from_secs(9) {
        for key in keys.by_ref().take(CHUNK as usize) {
            load.push(key, &[0; 8]).unwrap();
        }
        thread::sleep(Duration::from_secs(1));
    }
    load.push((1 << 40) + 5, &[1; 8]).unwrap();
    load.push((2 << 40) + 5, &[2; 8]).unwrap();
    let loaded = load.finish().unwrap();
    assert_eq!(loaded.keys, keys.start + 2);
    assert_eq!(client.get((2 << 40) + 5).unwrap(), Some(vec![2; 8]));
}

fn a_table_that_is_made_anew_with_other_ranges_is_found_and_gives_no_old_answer<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    make::<K>(&nodes, &[100, 200], Some(8));
    let client = TableClient::<K>::connect_with(&nodes[0].url, config()).unwrap();
    let value = |number, edition| value_in(&K::shape(Some(8)), number, edition);
    for edition in 0..4u64 {
        // Keys of which some go to another memory node each time.
        for number in 0..300 {
            client.put(K::key(number), &value(number, edition)).unwrap();
        }
        let mut reader = client.reader();
        for number in 0..300 {
            assert_eq!(reader.get(K::key(number)).unwrap(), Some(value(number, edition)));
        }
        all.drop_table(&name()).unwrap();
        let error = client.get(K::key(7)).unwrap_err();
        assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
        make::<K>(&nodes, &[20 + 30 * edition, 150 + 20 * edition], Some(8));
        assert_eq!(reader.get(K::key(110)).unwrap(), None);
        assert_eq!(client.scan(K::lowest_key(), 10).unwrap(), []);
        let keys: Vec<K::Owned> = (0..300).map(K::key).collect();
        assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_none));
    }
}

#[test]
fn a_key_of_another_range_is_refused_with_the_maps_version() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[1000], Some(8));
    for (node, own, foreign) in [(&nodes[0], 999, 1000), (&nodes[1], 1000, 999)] {
        let tables = Tables::connect(&node.url).unwrap().list().unwrap().tables;
        let range = tables.iter().find(|table| table.name.as_range().is_some()).unwrap().name;
        let client = Client::connect_with(&node.url, config().with_table(range)).unwrap();
        client.put(own, &[1; 8]).unwrap();
        let refused = |ended: Result<bool, ClientError>| match ended {
            Err(error @ ClientError::Refused(_)) => {
                assert!(error.is_retryable());
                let ClientError::Refused(refusal) = error else { unreachable!() };
                assert_eq!(refusal.code, RefusalCode::WrongRange { version: 3 }, "{refusal}");
                assert!(refusal.message.contains("version 3"), "{refusal}");
            }
            ended => panic!("{ended:?}"),
        };
        refused(client.insert(foreign, &[1; 8]).map(Inserted::is_new));
        refused(client.delete(foreign));
        // Nothing of a request is done that has one such key.
        let (mut changes, mut replies) = (Changes::new(), Vec::new());
        changes.put(own, &[2; 8]).put(foreign, &[2; 8]);
        refused(client.apply(&changes, &mut replies).map(|()| true));
        assert_eq!(client.get(own).unwrap(), Some(vec![1; 8]));
        assert_eq!(client.get(foreign).unwrap(), None);
    }
}

#[test]
fn tables_of_several_and_of_one_memory_node_do_not_share_a_name() {
    let nodes = [Node::tcp(), Node::shm()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let tables = Tables::connect(&nodes[1].url).unwrap();
    tables.create(&name(), KeyKind::U64, CreateOptions::default()).unwrap();
    let create = || all.create::<U64Keys>(&name(), U64Keys::parameters(), &[9], CreateOptions::default());
    let error = create().unwrap_err().to_string();
    assert!(error.contains(&nodes[1].url) && error.contains("alone"), "{error}");
    // What was made at the first one is gone again.
    assert_eq!(Tables::connect(&nodes[0].url).unwrap().list().unwrap().tables, []);
    tables.drop_table(&name()).unwrap();
    create().unwrap();
    create().unwrap();
    let error = tables.create(&name(), KeyKind::U64, CreateOptions::default()).unwrap_err().to_string();
    assert!(error.contains("over several memory nodes"), "{error}");
    let range = tables.list().unwrap().tables[0].name;
    let error = tables.create(&range, KeyKind::U64, CreateOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--nodes"), "{error}");
    let other = all.create::<U64Keys>(&name(), U64Keys::parameters(), &[10], CreateOptions::default());
    assert!(other.unwrap_err().to_string().contains("other keys"));
}

#[test]
fn a_client_of_a_table_that_is_being_made_changes_no_other_of_its_name() {
    let nodes = [Node::tcp(), Node::shm()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let begun = all.begin::<U64Keys>(&name(), &[1000], CreateOptions::default()).unwrap();
    begun.client().create(U64Keys::parameters()).unwrap();
    begun.client().put(5, &[1; 8]).unwrap();
    // Another client takes it for left over, and makes it with other ranges.
    make::<U64Keys>(&nodes, &[2000], Some(8));
    let ended = begun.client().put(5, &[2; 8]);
    assert!(ended.is_err(), "{ended:?}");
    let error = begun.finish().unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("another command"), "{error}");
    let client = Client::connect_with(&nodes[1].url, config()).unwrap();
    assert_eq!(client.scan(0, 10).unwrap(), []);
    client.put(1500, &[3; 8]).unwrap();
}

#[test]
fn addresses_of_one_machine_and_of_another_are_not_mixed() {
    let node = Node::shm();
    let nodes = Nodes::at(&format!("{},tcp://192.0.2.1:7400", node.url)).unwrap();
    let created = nodes.create::<U64Keys>(&name(), U64Keys::parameters(), &[9], CreateOptions::default());
    let error = created.unwrap_err().to_string();
    assert!(error.contains(&node.url) && error.contains("192.0.2.1"), "{error}");
}

#[test]
fn a_group_is_posted_to_all_memory_nodes_before_one_of_them_has_answered() {
    let nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    let together = Together::before(nodes.iter().map(|node| &*node.url));
    let all = Nodes::at(&together.addresses.join(",")).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000, 2000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&together.addresses[0], config()).unwrap();
    let keys: Vec<u64> = (0..64).map(|i| i * 3000 / 64).collect();
    let mut changes = Changes::new();
    for key in &keys {
        changes.put(*key, &key.to_le_bytes());
    }
    client.apply(&changes, &mut Vec::new()).unwrap();
    let expected: Vec<_> = keys.iter().map(|key| Some(key.to_le_bytes().to_vec())).collect();
    // The first ones fetch the models.
    (0..3).for_each(|_| assert_eq!(client.multi_get(&keys).unwrap(), expected));
    together.count.is_armed.store(true, Ordering::SeqCst);
    assert_eq!(client.multi_get(&keys).unwrap(), expected);
    together.count.is_armed.store(false, Ordering::SeqCst);
    let sent: Vec<usize> = together.count.sent.iter().map(|sent| sent.load(Ordering::SeqCst)).collect();
    assert!(!together.count.was_alone.load(Ordering::SeqCst), "{sent:?} messages, one after another");
    assert_eq!(sent, [sent[0]; 3]);
    assert!((1..=2).contains(&sent[0]), "{sent:?} messages");
}
