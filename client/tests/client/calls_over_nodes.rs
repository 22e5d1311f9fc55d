//! The use that calls of a client over several memory nodes, or of one that is told several, make
//! of their time.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    Changes, Client, ClientError, CreateOptions, KeyKind, Nodes, RecordShape, TableParameters, Tables,
    U64Keys,
};
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_memserver::{Catalogue, CatalogueConfig};

use crate::common::{PATIENCE, ThreadNode, free_port};
use crate::over_nodes::{Node, config, make, name, urls};
use crate::proxies::{MARK, Towards, slow_while, stand_at, stand_before};

/// The wait went by at the first one, and nothing of the deadline was left for the second.
#[test]
fn of_a_list_of_memory_nodes_one_that_is_away_keeps_nobody_waiting() {
    let node = Node::tcp();
    Tables::connect(&node.url).unwrap().create(&name(), KeyKind::U64, CreateOptions::default()).unwrap();
    let (_reserved, port) = free_port();
    let urls = format!("tcp://127.0.0.1:{port},{}", node.url);
    let config = config().with_wait(PATIENCE).with_deadline(Duration::from_secs(2));
    let begun = Instant::now();
    Client::connect_with(&urls, config).unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

/// As above, where all of them are away at first.
#[test]
fn memory_nodes_of_one_table_that_come_up_after_the_deadline_are_waited_for() {
    let nodes = [Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1_000], Some(8));
    let ports = [free_port(), free_port()];
    let urls = format!("tcp://127.0.0.1:{},tcp://127.0.0.1:{}", ports[0].1, ports[1].1);
    let deadline = Duration::from_secs(1);
    let config = config().with_wait(PATIENCE).with_deadline(deadline);
    thread::scope(|scope| {
        let opening = scope.spawn(|| Client::connect_with(&urls, config));
        thread::sleep(deadline * 3 / 2);
        for ((_, port), node) in ports.iter().zip(&nodes) {
            let listener = TcpListener::bind(("127.0.0.1", *port)).unwrap();
            stand_at(listener, &node.url, || |_, _: &[u8]| true);
        }
        let client = opening.join().unwrap().unwrap().with_deadline(PATIENCE);
        client.put(1, &[1; 8]).unwrap();
        client.put(2_000, &[2; 8]).unwrap();
        assert_eq!(client.get(2_000).unwrap(), Some(vec![2; 8]));
    });
}

/// All requests of a call had one deadline.
#[test]
fn each_request_of_a_call_has_the_deadline_for_itself_over_several_memory_nodes() {
    const LATE: Duration = Duration::from_millis(250);
    const DEADLINE: Duration = Duration::from_secs(3);
    let nodes = [Node::of(64 << 20, true), Node::of(64 << 20, true)];
    let is_late = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_late);
    let address = stand_before(&nodes[0].url, move || {
        let is_late = Arc::clone(&told);
        move |towards, _: &[u8]| {
            if towards == Towards::Client && is_late.load(Ordering::SeqCst) {
                thread::sleep(LATE);
            }
            true
        }
    });
    let urls = format!("{address},{}", nodes[1].url);
    let all = Nodes::at(&urls).unwrap();
    all.create::<U64Keys>(&name(), of_long_values(), &[1_000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&urls, config().with_deadline(DEADLINE)).unwrap();
    client.put(1, &[1]).unwrap();
    client.put(1_001, &[1]).unwrap();
    // A request has one of them.
    let mut changes = Changes::new();
    (0..15u64).for_each(|key| _ = changes.put(key, &vec![7; 600 << 10]));
    changes.put(1_002, &[9]);
    is_late.store(true, Ordering::SeqCst);
    let (mut replies, begun) = (Vec::new(), Instant::now());
    client.apply(&changes, &mut replies).unwrap();
    assert!(replies.len() == 16 && begun.elapsed() > DEADLINE, "{:?}", begun.elapsed());
    is_late.store(false, Ordering::SeqCst);
}

/// Parameters of a table with values of any length.
fn of_long_values() -> TableParameters {
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
    TableParameters { shape, ..TableParameters::default() }
}

/// They had what connecting had left of the call's time.
#[test]
fn later_requests_to_a_range_have_the_deadline_for_themselves_though_connecting_took_long() {
    const DEADLINE: Duration = Duration::from_secs(7);
    let nodes = [Node::of(64 << 20, true), Node::of(64 << 20, true)];
    let late = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&late);
    // Lets in late who connects, if it is to be late twice, and is late once with what has the
    // mark.
    let address = stand_before(&nodes[1].url, move || {
        let late = Arc::clone(&told);
        move |towards, bytes: &[u8]| {
            let before = match towards {
                Towards::Client => 2,
                Towards::Node if bytes.windows(MARK.len()).any(|part| part == MARK) => 1,
                Towards::Node => return true,
            };
            if late.compare_exchange(before, before - 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                thread::sleep(DEADLINE * 11 / 20);
            }
            true
        }
    });
    let all = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
    all.create::<U64Keys>(&name(), of_long_values(), &[100], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&nodes[0].url, config().with_deadline(DEADLINE)).unwrap();
    late.store(2, Ordering::SeqCst);
    let mut changes = Changes::new();
    changes.put(200, &vec![7; 600 << 10]).put(201, &vec![MARK[0]; 600 << 10]);
    let (mut replies, begun) = (Vec::new(), Instant::now());
    client.apply(&changes, &mut replies).unwrap();
    assert!(replies.len() == 2 && begun.elapsed() > DEADLINE, "{:?}", begun.elapsed());
}

/// Each step of asking the first one had all of its share: it took that of the others.
#[test]
fn a_memory_node_that_is_slow_to_say_what_it_has_leaves_the_others_their_time() {
    const DEADLINE: Duration = Duration::from_secs(8);
    let nodes = [Node::tcp(), Node::tcp()];
    Tables::connect(&nodes[1].url).unwrap().create(&name(), KeyKind::U64, CreateOptions::default()).unwrap();
    // Less than its share, which is half.
    let slow = stand_before(&nodes[0].url, || {
        |towards, _: &[u8]| {
            if towards == Towards::Client {
                thread::sleep(DEADLINE * 2 / 5);
            }
            true
        }
    });
    let begun = Instant::now();
    let urls = format!("{slow},{}", nodes[1].url);
    let client = Client::connect_with(&urls, config().with_deadline(DEADLINE)).unwrap();
    assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
    assert_eq!(client.with_deadline(PATIENCE).get(1).unwrap(), None);
}

/// They had their time twice: to connect to the range, and then for what they wanted of it.
#[test]
fn calls_that_connect_to_a_range_have_their_deadline_once() {
    const DEADLINE: Duration = Duration::from_secs(5);
    let nodes = [Node::tcp(), Node::tcp()];
    let is_slow = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_slow);
    // Lets in late who connects, and says no more.
    let address = stand_before(&nodes[1].url, move || {
        let (is_slow, said) = (Arc::clone(&told), AtomicUsize::new(0));
        move |towards, _: &[u8]| {
            if towards == Towards::Client && is_slow.load(Ordering::SeqCst) {
                let is_first = said.fetch_add(1, Ordering::SeqCst) == 0;
                thread::sleep(if is_first { DEADLINE * 4 / 5 } else { PATIENCE });
            }
            true
        }
    });
    let all = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
    all.create::<U64Keys>(&name(), TableParameters::default(), &[100], CreateOptions::default()).unwrap();
    let clients = [(); 7].map(|()| {
        let config = config().with_deadline(DEADLINE);
        Client::connect_with(&nodes[0].url, config).unwrap()
    });
    is_slow.store(true, Ordering::SeqCst);
    let calls: [fn(&Client) -> Option<ClientError>; 7] = [
        |client| client.get(200).err(),
        |client| client.multi_get(&[1, 200]).err(),
        |client| client.floor(200).err(),
        |client| client.put(200, &[1; 8]).err(),
        |client| client.apply(Changes::new().put(200, &[1; 8]), &mut Vec::new()).err(),
        |client| {
            let mut pipeline = client.pipeline(1).unwrap();
            pipeline.put(200, &[1; 8]).err().or_else(|| pipeline.finish().pop()?.outcome.err())
        },
        |client| client.stats().err(),
    ];
    thread::scope(|scope| {
        for (number, (client, call)) in clients.iter().zip(calls).enumerate() {
            scope.spawn(move || {
                let begun = Instant::now();
                let ended = call(client);
                let took = begun.elapsed();
                assert!(ended.is_some() && took < DEADLINE * 3 / 2, "{number}: {ended:?} after {took:?}");
            });
        }
    });
}

/// Each range had the whole deadline.
#[test]
fn all_ranges_share_the_time_of_a_search_for_the_nearest_record() {
    const RANGES: u64 = 5;
    const LATE: Duration = Duration::from_millis(60);
    let nodes: Vec<Node> = (0..RANGES).map(|_| Node::of(4 << 20, true)).collect();
    let is_slow = Arc::new(AtomicBool::new(false));
    let before: Vec<String> = nodes.iter().map(|node| slow_while(&node.url, LATE, &is_slow)).collect();
    let split_at: Vec<u64> = (1..RANGES).map(|range| range * 100).collect();
    let all = Nodes::at(&before.join(",")).unwrap();
    let parameters = TableParameters::default();
    all.create::<U64Keys>(&name(), parameters, &split_at, CreateOptions::default()).unwrap();
    let client = Client::connect_with(&before.join(","), config()).unwrap();
    for range in 0..RANGES {
        client.put(range * 100, &[1; 8]).unwrap();
        assert!(client.floor(range * 100).unwrap().is_some());
        client.delete(range * 100).unwrap();
    }
    assert_eq!(client.last().unwrap(), None);
    is_slow.store(true, Ordering::SeqCst);
    // Enough for each of them, and for no more than three.
    let hurried = client.with_deadline(LATE * 7);
    for error in [hurried.floor(u64::MAX).unwrap_err(), hurried.first().unwrap_err()] {
        assert!(error.is_retryable(), "{error}");
    }
    is_slow.store(false, Ordering::SeqCst);
    assert_eq!(client.last().unwrap(), None);
}

/// It was refused as soon as there was one record.
#[test]
fn a_table_over_several_memory_nodes_is_made_once_however_often_it_is_asked_for() {
    let nodes = [Node::tcp(), Node::shm()];
    let create = |epsilon| {
        let parameters = TableParameters { epsilon, ..TableParameters::default() };
        let all = Nodes::at(&urls(&nodes)).unwrap();
        all.create::<U64Keys>(&name(), parameters, &[1_000], CreateOptions::default())
    };
    create(16).unwrap();
    create(16).unwrap();
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    client.put(1, &[1; 8]).unwrap();
    create(16).unwrap();
    assert_eq!(client.get(1).unwrap(), Some(vec![1; 8]));
    // What was asked for is not there.
    create(8).unwrap_err();
    client.delete(1).unwrap();
    create(16).unwrap();
    client.put(2_000, &[2; 8]).unwrap();
    let other = Client::connect_with(&nodes[1].url, config()).unwrap();
    assert_eq!(other.count_from(0).unwrap(), 1);
}

/// Readers had no `floor` but with a closure, no `count` and no way down.
#[test]
fn a_reader_has_the_ordered_queries_of_its_client() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[1_000], Some(8));
    let over_two = Client::connect_with(&nodes[0].url, config()).unwrap();
    let here = ThreadNode::<U64Keys>::start(8 << 20);
    for client in [over_two, here.client()] {
        (0..200u64).for_each(|key| client.put(key * 10, &key.to_le_bytes()).unwrap());
        let mut reader = client.reader();
        for key in [0, 5, 990, 995, 1_000, 1_990, 5_000] {
            assert_eq!(reader.floor(key).unwrap(), client.floor(key).unwrap());
            assert_eq!(reader.ceiling(key).unwrap(), client.ceiling(key).unwrap());
            assert_eq!(reader.count(key, 1_500).unwrap(), client.count(key, 1_500).unwrap());
            assert_eq!(reader.scan_back(key, 120).unwrap(), client.scan_back(key, 120).unwrap());
        }
        assert_eq!(reader.count(5, 1_995).unwrap(), 199);
        assert_eq!(reader.scan_back(1_500, 100).unwrap().len(), 100);
    }
}

/// Each call asked the memory node for all of its tables, over one connection more.
#[test]
fn calls_to_a_range_that_is_lost_do_not_all_ask_for_the_tables_of_its_memory_node() {
    let mut nodes = [Node::shm(), Node::tcp()];
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let address = stand_before(&nodes[1].url, move || {
        counted.fetch_add(1, Ordering::SeqCst);
        |_, _: &[u8]| true
    });
    let urls = format!("{},{address}", nodes[0].url);
    let (all, parameters) = (Nodes::at(&urls).unwrap(), TableParameters::default());
    all.create::<U64Keys>(&name(), parameters, &[1_000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&urls, config()).unwrap();
    client.put(1_000, &[1; 8]).unwrap();
    // It is started anew at its address, and keeps nothing.
    nodes[1].end();
    let listener = Listener::bind(&[nodes[1].url.parse().unwrap()], ListenOptions::default()).unwrap();
    let _serving = listener.spawn(Catalogue::open(&CatalogueConfig::of(16 << 20)).unwrap()).unwrap();
    let begun = Instant::now();
    connections.store(0, Ordering::SeqCst);
    let calls = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                while begun.elapsed() < Duration::from_secs(1) {
                    let error = client.get(1_000).unwrap_err();
                    assert!(error.to_string().contains("has lost its range"), "{error}");
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    let (calls, connections) = (calls.into_inner(), connections.load(Ordering::SeqCst));
    // Each call tries to reach the range, and a few times a second one asks about it.
    assert!(connections < calls + calls / 2 + 40, "{connections} for {calls} calls");
}
