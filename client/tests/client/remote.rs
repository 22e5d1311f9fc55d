//! Tables that are read over sockets: the same answers, whatever is asked, while they are made,
//! changed and dropped.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, TestKeys, load, patient, value_in};
use crate::proxies::slow;
use fpcache::layout::{GroupForm, Grouping};
use fpcache_client::{
    Answers, CacheConfig, Client, ClientConfig, ClientError, CreateOptions, Plan, PlanChoice, TableClient,
    TableName, Tables,
};
use fpcache_client::{ByteKeys, KeyKind, U64Keys};
use fpcache_fabric::Serving;
use fpcache_fabric::tcp::{ListenOptions, Listener, TcpAddress};
use fpcache_memserver::{Catalogue, CatalogueConfig};

for_both_kinds_of_keys!(
    answers_are_those_of_a_map,
    threads_read_while_others_write,
    a_table_that_is_dropped_is_gone_for_its_clients,
    a_lookup_by_the_memory_node_is_one_trip,
);

/// How long is waited for what a memory node does by itself, once it gets to it.
const LONG: Duration = Duration::from_secs(60);

/// A memory node that listens at sockets alone, on threads of this process.
pub(crate) struct Node {
    urls: [String; 2],
    _directory: Directory,
    _serving: Serving,
}

impl Node {
    pub(crate) fn start() -> Self {
        let directory = Directory::new();
        let config = CatalogueConfig::of(32 << 20);
        let unix = TcpAddress::at_path(directory.socket()).unwrap();
        let options = ListenOptions { io_threads: 2, greeting_time: PATIENCE, ..ListenOptions::default() };
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap(), unix], options).unwrap();
        let urls = [0, 1].map(|which| listener.addresses()[which].to_string());
        let mut catalogue = Catalogue::open(&config).unwrap();
        catalogue.count_sockets(listener.counters());
        let serving = listener.spawn(catalogue).unwrap();
        Self { urls, _directory: directory, _serving: serving }
    }

    /// Over TCP.
    pub(crate) fn url(&self) -> &str {
        &self.urls[0]
    }

    fn tables(&self) -> Tables {
        Tables::connect(&self.urls[0]).unwrap()
    }

    pub(crate) fn make<K: TestKeys>(&self, table: &str) {
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
        self.tables().create(&table.parse().unwrap(), kind, CreateOptions::default()).unwrap();
    }

    pub(crate) fn client<K: TestKeys>(
        &self,
        which: usize,
        table: &str,
        config: ClientConfig,
    ) -> TableClient<K> {
        let table: TableName = table.parse().unwrap();
        TableClient::connect_with(&self.urls[which], config.with_table(table)).unwrap()
    }
}

/// Numbers in no order (xorshift).
pub(crate) fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn answers_are_those_of_a_map<K: TestKeys>() {
    let node = Node::start();
    let cache = Some(CacheConfig::of(2 << 20));
    let plan = |plan| patient().with_plan(PlanChoice::Fixed(plan));
    let configs = [
        (0, patient()),
        (1, plan(Plan::TwoStage)),
        (0, plan(Plan::Range)),
        (1, patient().with_cache(cache)),
        (0, plan(Plan::AtNode)),
        (1, plan(Plan::AtNode).with_cache(cache)),
    ];
    for (round, (which, config)) in configs.into_iter().enumerate() {
        let table = format!("t{round}");
        node.make::<K>(&table);
        let client = node.client::<K>(which, &table, config);
        let parameters = K::parameters_of(if round % 4 == 0 { None } else { Some(8) });
        let value = |number, edition| value_in(&parameters.shape, number, edition);
        let numbers = (0..4_000u64).map(|n| n << 30);
        load(&client, parameters, numbers.clone(), 0).unwrap();
        let mut map: BTreeMap<u64, Vec<u8>> = numbers.map(|n| (n, value(n, 0))).collect();
        let mut state = 77 + round as u64;
        for step in 0..400u64 {
            let number = (random(&mut state) % 8_000) << 29;
            let key = K::key(number);
            match random(&mut state) % 6 {
                0 => {
                    client.put(K::key(number), &value(number, step)).unwrap();
                    map.insert(number, value(number, step));
                }
                1 => {
                    let is_there = client.delete(K::key(number)).unwrap();
                    assert_eq!(is_there, map.remove(&number).is_some());
                }
                2 => assert_eq!(client.get(key).unwrap(), map.get(&number).cloned()),
                3 => {
                    let group: Vec<u64> = (0..64).map(|i| number + (i << 29)).collect();
                    let keys: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
                    let expected: Vec<_> = group.iter().map(|number| map.get(number).cloned()).collect();
                    assert_eq!(client.multi_get(&keys).unwrap(), expected);
                    let there: Vec<bool> = expected.iter().map(Option::is_some).collect();
                    assert_eq!(client.multi_contains(&keys).unwrap(), there);
                }
                4 => {
                    let found = client.scan(K::key(number), 50).unwrap();
                    let found: Vec<_> = found.into_iter().map(|(k, v)| (K::number(k.borrow()), v)).collect();
                    let expected: Vec<_> =
                        map.range(number..).take(50).map(|(n, v)| (*n, v.clone())).collect();
                    assert_eq!(found, expected);
                }
                _ => {
                    let floor = client.floor(K::key(number)).unwrap();
                    let floor = floor.map(|(k, v)| (K::number(k.borrow()), v));
                    assert_eq!(floor, map.range(..=number).next_back().map(|(n, v)| (*n, v.clone())));
                    assert_eq!(client.contains(key).unwrap(), map.contains_key(&number));
                }
            }
        }
        let all = client.scan(K::key(0), usize::MAX).unwrap();
        assert!(all.iter().map(|(k, v)| (K::number(k.borrow()), v)).eq(map.iter().map(|(n, v)| (*n, v))));
        assert_eq!(client.stats().unwrap().keys, map.len() as u64);
    }
}

fn threads_read_while_others_write<K: TestKeys>() {
    const KEYS: u64 = 500;
    let node = Node::start();
    node.make::<K>("shared");
    let writer = node.client::<K>(0, "shared", patient());
    let shape = K::shape(Some(8));
    load(&writer, K::parameters(), (0..KEYS).map(|n| n << 20), 0).unwrap();
    thread::scope(|scope| {
        for which in 0..4 {
            let plan = if which < 2 { PlanChoice::Auto } else { PlanChoice::Fixed(Plan::AtNode) };
            let client = node.client::<K>(which % 2, "shared", patient().with_plan(plan));
            scope.spawn(move || {
                let mut seen = vec![0; KEYS as usize];
                for round in 0..15u64 {
                    for n in (round % 3..KEYS).step_by(7) {
                        let value = client.get(K::key(n << 20)).unwrap().expect("it is never deleted");
                        let edition = (seen[n as usize]..=15)
                            .find(|edition| value == value_in(&shape, n << 20, *edition));
                        seen[n as usize] = edition.expect("no older than what was seen before");
                    }
                }
            });
        }
        for edition in 1..=15 {
            for n in 0..KEYS {
                writer.update(K::key(n << 20), &value_in(&shape, n << 20, edition)).unwrap();
            }
            // Segments fill up, and are replaced under the readers.
            for n in 0..10 {
                writer.put(K::key((n << 20) + edition), &value_in(&shape, 1, 1)).unwrap();
            }
        }
    });
}

fn a_table_that_is_dropped_is_gone_for_its_clients<K: TestKeys>() {
    let node = Node::start();
    node.make::<K>("t");
    let client = node.client::<K>(0, "t", patient());
    load(&client, K::parameters(), 0..100, 1).unwrap();
    assert!(client.get(K::key(5)).unwrap().is_some());
    let name: TableName = "t".parse().unwrap();
    node.tables().drop_table(&name).unwrap();
    let error = client.get(K::key(5)).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
    node.make::<K>("t");
    load(&client, K::parameters(), 0..50, 2).unwrap();
    let value = client.get(K::key(5)).unwrap();
    assert_eq!(value, Some(value_in(&K::shape(Some(8)), 5, 2)));
    assert_eq!(client.get(K::key(70)).unwrap(), None);
}

fn a_lookup_by_the_memory_node_is_one_trip<K: TestKeys>() {
    let node = Node::start();
    node.make::<K>("t");
    let plan = PlanChoice::Fixed(Plan::AtNode);
    let client = node.client::<K>(0, "t", patient().with_plan(plan));
    load(&client, K::parameters(), (0..2_000).map(|n| n << 20), 1).unwrap();
    let value = |n: u64| value_in(&K::shape(Some(8)), n << 20, 1);
    let mut found = Vec::new();
    // It has no models of the table at first, and has them fetched when it is asked.
    let by_node = |found: &mut Vec<u8>| client.get_into(K::key(5 << 20), found).unwrap().plan == Plan::AtNode;
    let begun = Instant::now();
    while !by_node(&mut found) {
        assert!(begun.elapsed() < LONG, "the memory node answers nothing");
    }
    for n in 0..2_100u64 {
        let answer = client.get_into(K::key(n << 20), &mut found).unwrap();
        assert_eq!((answer.plan, answer.cost.round_trips, answer.cost.reads), (Plan::AtNode, 1, 0), "{n}");
        assert_eq!(answer.version.map(|_| found.clone()), (n < 2_000).then(|| value(n)));
    }
    let keys: Vec<K::Owned> = (0..65).map(|n| K::key(n << 20)).collect();
    let mut answers = Answers::new();
    for count in [2, 64, 65] {
        client.multi_get_into(&keys[..count], &mut answers).unwrap();
        for (n, value_of_n) in (0..count).map(|n| (n, value(n as u64))) {
            let answer = answers.found(n).unwrap();
            let is_by_node = answer.plan == Plan::AtNode;
            assert_eq!((is_by_node, answers.value(n)), (count <= 64, Some(&value_of_n[..])));
        }
    }
    // What was changed is what it tells, at once.
    client.delete(K::key(7 << 20)).unwrap();
    assert_eq!(client.get(K::key(7 << 20)).unwrap(), None);
    client.put(K::key(7 << 20), &value(8)).unwrap();
    assert_eq!(client.get(K::key(7 << 20)).unwrap(), Some(value(8)));
    // A table made anew in the place of a dropped one is another one for it too.
    let name: TableName = "t".parse().unwrap();
    node.tables().drop_table(&name).unwrap();
    client.get(K::key(5 << 20)).unwrap_err();
    node.make::<K>("t");
    load(&client, K::parameters(), (0..50).map(|n| n << 20), 2).unwrap();
    let begun = Instant::now();
    while !by_node(&mut found) {
        assert!(begun.elapsed() < LONG, "the memory node answers nothing");
    }
    assert_eq!(found, value_in(&K::shape(Some(8)), 5 << 20, 2));
    assert_eq!(client.get(K::key(70 << 20)).unwrap(), None);
}

/// With what is added to each way, the plan that is chosen for single keys is the one of fewer
/// trips; the same for groups where a round trip is long.
#[test]
fn auto_chooses_by_the_round_trip_that_it_measures() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = patient().with_table("t".parse().unwrap());
    let loader = TableClient::<U64Keys>::connect_with(&node.urls[0], config.clone()).unwrap();
    // Keys that no line predicts well, so that two-stage reads take two trips.
    let mut all: Vec<u64> =
        (0..5_000u64).map(|n| n.wrapping_mul(n).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    all.sort_unstable();
    load(&loader, <U64Keys as TestKeys>::parameters(), all.iter().copied(), 1).unwrap();
    let keys: Vec<u64> = all.iter().copied().step_by(70).take(64).collect();
    for added in [Duration::from_micros(50), Duration::from_millis(1)] {
        let url = slow(&node.urls[0], added / 2);
        let client =
            |plan| TableClient::<U64Keys>::connect_with(&url, config.clone().with_plan(plan)).unwrap();
        let plans = [PlanChoice::Auto, PlanChoice::Fixed(Plan::TwoStage), PlanChoice::Fixed(Plan::AtNode)];
        let clients = plans.map(client);
        let [auto, two_stage, at_node] = &clients;
        let (mut value, mut answers) = (Vec::new(), Answers::new());
        let begun = Instant::now();
        // The memory node has no models at first, and this client has measured little.
        while [auto, at_node].iter().any(|it| it.get_into(keys[5], &mut value).unwrap().plan != Plan::AtNode)
        {
            assert!(begun.elapsed() < LONG, "added {added:?}: not asked, or no answer");
        }
        let mut trips = [0; 3];
        for key in keys.iter().cycle().take(40) {
            for (which, client) in clients.iter().enumerate() {
                let found = client.get_into(*key, &mut value).unwrap();
                trips[which] += found.cost.round_trips;
            }
        }
        assert_eq!(trips, [40, 80, 40], "added {added:?}");
        let expected = auto.expected(1).unwrap();
        assert!(expected.is_measured && expected.plan == Plan::AtNode, "{expected:?}");
        assert!(expected.round_trip >= added.as_nanos() as f64, "{expected:?}");
        assert!(two_stage.expected(1).unwrap().plan == Plan::TwoStage);
        if added >= Duration::from_millis(1) {
            auto.multi_get_into(&keys, &mut answers).unwrap();
            let found = answers.found(0).unwrap();
            assert_eq!((found.plan, found.cost.round_trips), (Plan::AtNode, 1));
            assert_eq!(auto.expected(64).unwrap().plan, Plan::AtNode);
        }
    }
    // No memory node is asked about more keys than a question has, nor where groups bring a key
    // with one READ.
    assert!(loader.expected(65).unwrap().at_node.is_none());
    node.make::<U64Keys>("g");
    let grouped = node.client::<U64Keys>(0, "g", patient());
    let mut parameters = <U64Keys as TestKeys>::parameters();
    parameters.groups = Grouping::for_slots(GroupForm::Plain, parameters.geometry().slot_bytes);
    assert!(parameters.groups.is_some());
    load(&grouped, parameters, all.iter().copied(), 1).unwrap();
    grouped.get(all[2_500]).unwrap();
    assert_eq!(grouped.get_into(all[2_501], &mut Vec::new()).unwrap().plan, Plan::Groups);
}

/// Passes on what goes to and from an address, until it is told to hold it back.
pub(crate) fn relay_to(url: &str) -> (String, Arc<AtomicBool>) {
    let to = url.strip_prefix("tcp://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, holds) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let is_held = Arc::clone(&holds);
    // Ends with the process; of each connection, with that.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let node = TcpStream::connect(&to).unwrap();
            let ends = [(client.try_clone().unwrap(), node.try_clone().unwrap()), (node, client)];
            for (mut from, mut to) in ends {
                let is_held = Arc::clone(&is_held);
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        while is_held.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(1));
                        }
                        let _ = to.write_all(&bytes[..len]);
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (format!("tcp://{address}"), holds)
}

#[test]
fn a_lookup_over_a_memory_node_that_is_silent_ends_at_its_deadline() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let (url, holds) = relay_to(&node.urls[0]);
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(LONG);
    let client = TableClient::<U64Keys>::connect_with(&url, config).unwrap();
    load(&client, <U64Keys as TestKeys>::parameters(), 0..100, 1).unwrap();
    assert!(client.get(5).unwrap().is_some());
    holds.store(true, Ordering::Relaxed);
    let hurried = client.with_deadline(Duration::from_millis(50));
    let (began, error) = (Instant::now(), hurried.get(5).unwrap_err());
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // Another thread has to get a socket first.
    let error = thread::scope(|scope| scope.spawn(|| hurried.get(5).unwrap_err()).join().unwrap());
    assert!(error.is_retryable(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    holds.store(false, Ordering::Relaxed);
    assert!(client.get(5).unwrap().is_some());
    assert_eq!(client.counters().reconnects, 0, "the connection was not given up");
}

#[test]
fn scans_and_counts_over_sockets_take_longer_than_the_deadline_as_long_as_they_get_on() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = ClientConfig::default().with_table("t".parse().unwrap()).with_deadline(PATIENCE);
    let loader = TableClient::<U64Keys>::connect_with(node.url(), config.clone()).unwrap();
    let parameters = <U64Keys as TestKeys>::parameters_of(Some(64));
    let keys = 20_000;
    load(&loader, parameters, 0..keys, 1).unwrap();
    let far = slow(node.url(), Duration::from_millis(100));
    let client = TableClient::<U64Keys>::connect_with(&far, config).unwrap();
    let limit = Duration::from_secs(2);
    let hurried = client.with_deadline(limit);
    let timed = |what: &str, read: &dyn Fn() -> usize| {
        // Connects this thread.
        assert!(client.get(7).unwrap().is_some());
        let began = Instant::now();
        assert_eq!(read(), keys as usize, "{what}");
        assert!(began.elapsed() > limit, "{what} was too short to show anything: {:?}", began.elapsed());
    };
    thread::scope(|scope| {
        scope.spawn(|| timed("count", &|| hurried.count_from(0).unwrap() as usize));
        scope.spawn(|| timed("scan", &|| hurried.scan(0, usize::MAX).unwrap().len()));
        scope.spawn(|| timed("scan back", &|| hurried.scan_back(u64::MAX, usize::MAX).unwrap().len()));
    });
    assert_eq!(client.counters().reconnects, 0);
}

#[test]
fn what_is_not_there_is_told_over_sockets_too() {
    let node = Node::start();
    node.make::<ByteKeys>("words");
    let table = |name: &str| patient().with_table(name.parse().unwrap());
    let error = TableClient::<U64Keys>::connect_with(&node.urls[0], table("none"))
        .expect_err("no such table")
        .to_string();
    assert!(error.contains("no table `none` at tcp://127.0.0.1") && error.contains("`words`"), "{error}");
    let error = TableClient::<U64Keys>::connect_with(&node.urls[0], table("words")).expect_err("other keys");
    assert!(matches!(error, ClientError::OtherKeys { .. }), "{error}");
    let error = Client::connect("tcp://127.0.0.1:1").expect_err("nobody listens").to_string();
    assert!(error.contains("no memory node at tcp://127.0.0.1:1"), "{error}");
    let error = Client::connect("tcp://127.0.0.1").expect_err("no port").to_string();
    assert!(error.contains("tcp://127.0.0.1:7400"), "{error}");
}

/// A client that asks for a table's counters is told those of the memory node's sockets, with the
/// reasons of hang-ups.
#[test]
fn hang_ups_are_told_by_reason_and_waits_by_how_they_ended() {
    let node = Node::start();
    node.make::<U64Keys>("t");
    let config = patient().with_spin(Duration::ZERO);
    let client: Client = node.client(0, "t", config);
    client.put(7, &7u64.to_le_bytes()).unwrap();
    assert!(client.get(7).unwrap().is_some());
    let before = client.sockets().unwrap().unwrap();
    assert_eq!((before.io_threads, before.hang_ups().map(|(_, count)| count).sum()), (2, 0));
    assert!(before.connections >= 1, "{before:?}");

    let mut stranger = TcpStream::connect(node.url().trim_start_matches("tcp://")).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(stranger.read(&mut [0; 64]).unwrap_or(0), 0, "it is hung up on");
    let other = "no-such-table".parse().unwrap();
    Client::connect_with(node.url(), patient().with_table(other)).unwrap_err();
    let patience = Instant::now() + LONG;
    loop {
        let after = client.sockets().unwrap().unwrap();
        if after.other_protocol == 1 && after.no_region >= 1 {
            assert!(after.waits_slept > 0, "{after:?}");
            break;
        }
        assert!(Instant::now() < patience, "{after:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
