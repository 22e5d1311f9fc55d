//! Tables that are opened, and created where they do not exist, by many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fpcache_client::{
    ByteClient, Client, ClientError, CreateOptions, ErrorKind, KeyKind, Nodes, RecordShape, TableParameters,
    Tables, U64Keys,
};

use crate::common::{PATIENCE, TestKeys, patient};
use crate::over_nodes::{Node, config, make, name, urls};
use crate::proxies::{Towards, stand_before};

fn any() -> CreateOptions {
    CreateOptions::default()
}

fn parameters() -> TableParameters {
    let shape = RecordShape { key_bytes: None, value_bytes: None, room: 200 };
    TableParameters { shape, epsilon: 16, ..TableParameters::default() }
}

/// It took four steps, and all but one of several processes that began together failed.
#[test]
fn all_who_begin_at_once_have_one_table_with_its_parameters() {
    for node in [Node::shm(), Node::tcp()] {
        thread::scope(|scope| {
            for number in 0..8u8 {
                let url = &node.url;
                scope.spawn(move || {
                    let client = ByteClient::open_or_create(url, config(), parameters(), any()).unwrap();
                    client.put([number], &[number; 150]).unwrap();
                });
            }
        });
        let client = ByteClient::open_or_create(&node.url, config(), parameters(), any()).unwrap();
        assert!((0..8u8).all(|number| client.get([number]).unwrap() == Some(vec![number; 150])));
        assert_eq!(client.table().unwrap().record.parameters, parameters().as_stored());
        assert_eq!(Tables::connect(&node.url).unwrap().list().unwrap().tables.len(), 1);
    }
}

#[test]
fn a_table_that_is_there_is_opened_as_it_is() {
    let node = Node::shm();
    let tables = Tables::connect(&node.url).unwrap();
    // Of one that has no parameters yet, as after a crash between the two steps, they are set.
    assert!(tables.create_if_missing(&name(), KeyKind::Bytes, any()).unwrap());
    assert!(!tables.create_if_missing(&name(), KeyKind::Bytes, any()).unwrap());
    let first = ByteClient::open_or_create(&node.url, config(), parameters(), any()).unwrap();
    first.put("oslo", b"Norway").unwrap();
    let others = TableParameters { epsilon: 8, ..parameters() };
    let client = ByteClient::open_or_create(&node.url, config(), others, any()).unwrap();
    assert_eq!(client.get("oslo").unwrap(), Some(b"Norway".to_vec()));
    assert_eq!(client.table().unwrap().record.parameters, parameters().as_stored());
    assert_eq!(client.table_name(), &name());
    assert!(format!("{client:?}").contains("orders"), "{client:?}");
}

#[test]
fn what_cannot_be_opened_is_told() {
    let node = Node::tcp();
    let tables = Tables::connect(&node.url).unwrap();
    tables.create(&name(), KeyKind::Bytes, any()).unwrap();
    let other = Client::open_or_create(&node.url, config(), TableParameters::default(), any()).unwrap_err();
    assert!(matches!(other, ClientError::OtherKeys { .. }), "{other}");
    let other = tables.create_if_missing(&name(), KeyKind::U64, any()).unwrap_err();
    assert!(matches!(other, ClientError::OtherKeys { theirs: KeyKind::Bytes, .. }), "{other}");
    let unfit = TableParameters { epsilon: u32::MAX, ..parameters() };
    let another = patient().with_table("another".parse().unwrap());
    let error = ByteClient::open_or_create(&node.url, another, unfit, any()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(tables.list().unwrap().tables.len(), 1, "nothing is created");
}

#[test]
fn one_over_several_memory_nodes_is_opened() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[100], Some(8));
    let client = Client::open_or_create(&urls(&nodes), config(), TableParameters::default(), any()).unwrap();
    client.put(1, &[1; 8]).unwrap();
    client.put(200, &[1; 8]).unwrap();
    assert_eq!(client.count(0, u64::MAX).unwrap(), 2);
    let tables = Tables::connect(&nodes[0].url).unwrap();
    let error = tables.create_if_missing(&name(), KeyKind::U64, any()).unwrap_err();
    assert!(matches!(error, ClientError::TableExists { .. }), "{error}");
}

/// The first memory node made a second, empty one, which hid the records of the other.
#[test]
fn no_second_table_is_made_while_a_memory_node_that_has_it_is_away() {
    for is_divided in [false, true] {
        let mut nodes = [Node::tcp(), Node::tcp(), Node::shm()];
        if is_divided {
            make::<U64Keys>(&nodes[1..], &[100], Some(8));
        }
        let open = |urls: &str| Client::open_or_create(urls, config(), TableParameters::default(), any());
        open(&nodes[1].url).unwrap().put(1, &[1; 8]).unwrap();
        let all = urls(&nodes[..2]);
        assert_eq!(open(&all).unwrap().get(1).unwrap(), Some(vec![1; 8]));
        nodes[1].end();
        let error = open(&all).unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(&nodes[1].url), "{error}");
        assert!(Client::connect_with(&all, config()).unwrap_err().is_retryable());
        assert_eq!(Tables::connect(&nodes[0].url).unwrap().list().unwrap().tables, []);
    }
    let nodes = [Node::tcp(), Node::shm()];
    let error = Client::connect_with(&urls(&nodes), config()).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchTable { .. }), "both have said so: {error}");
    Client::open_or_create(&urls(&nodes), config(), TableParameters::default(), any()).unwrap();
    let made = nodes.each_ref().map(|node| Tables::connect(&node.url).unwrap().list().unwrap().tables.len());
    assert_eq!(made, [1, 0], "at the first");
}

/// The first memory node made a second, empty one, which hid the records of the one being loaded.
#[test]
fn no_second_table_is_made_while_one_over_other_memory_nodes_is_being_made() {
    let nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    let all = Nodes::at(&urls(&nodes[1..])).unwrap();
    let table = all.begin::<U64Keys>(&name(), &[100], any()).unwrap();
    let open = || Client::open_or_create(&urls(&nodes[..2]), config(), TableParameters::default(), any());
    let error = open().unwrap_err();
    assert!(matches!(error, ClientError::TableNotWhole { .. }) && error.is_retryable(), "{error:?}");
    assert_eq!(Tables::connect(&nodes[0].url).unwrap().list().unwrap().tables, []);
    crate::common::load(table.client(), <U64Keys as TestKeys>::parameters(), 0..200, 1).unwrap();
    table.finish().unwrap();
    assert_eq!(open().unwrap().count(0, u64::MAX).unwrap(), 200);
}

/// What is left of a making that was broken off was told, and the second memory node not asked.
#[test]
fn a_table_that_is_not_whole_yet_hides_no_whole_one_of_its_name() {
    let nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    let over = |at: [usize; 2]| at.map(|at| nodes[at].url.as_str()).join(",");
    drop(Nodes::at(&over([0, 2])).unwrap().begin::<U64Keys>(&name(), &[100], any()).unwrap());
    let open = || Client::open_or_create(&over([0, 1]), config(), TableParameters::default(), any());
    let error = open().unwrap_err();
    assert!(matches!(error, ClientError::TableNotWhole { .. }), "{error:?}");
    let tables = Tables::connect(&nodes[1].url).unwrap();
    assert_eq!(tables.list().unwrap().tables, [], "no second one is made");
    tables.create(&name(), KeyKind::U64, any()).unwrap();
    Client::connect_with(&nodes[1].url, config()).unwrap().put(1, &[1; 8]).unwrap();
    for urls in [over([0, 1]), over([1, 0])] {
        assert_eq!(Client::connect_with(&urls, config()).unwrap().get(1).unwrap(), Some(vec![1; 8]));
    }
    assert_eq!(open().unwrap().get(1).unwrap(), Some(vec![1; 8]));
}

/// It had answered that it has no plain table, and that its maps were not read counted for nothing.
#[test]
fn no_second_table_is_made_while_the_maps_of_a_memory_node_cannot_be_read() {
    let nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes[1..], &[100], Some(8));
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    // Answers who connects, and then no more.
    let late = stand_before(&nodes[1].url, move || {
        let (sent, silent) = (AtomicUsize::new(0), Arc::clone(&silent));
        move |towards, _: &[u8]| {
            let is_first = towards == Towards::Client || sent.fetch_add(1, Ordering::SeqCst) == 0;
            while !is_first && silent.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    let urls = format!("{},{late}", nodes[0].url);
    let open = |deadline| {
        let config = config().with_deadline(deadline);
        Client::open_or_create(&urls, config, TableParameters::default(), any())
    };
    let error = open(Duration::from_millis(500)).unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(Tables::connect(&nodes[0].url).unwrap().list().unwrap().tables, []);
    is_silent.store(false, Ordering::SeqCst);
    open(PATIENCE).unwrap().put(1, &[1; 8]).unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_open_or_create_tables() {
    let node = Node::tcp();
    crate::asynchronous::one_thread().block_on(async {
        let open =
            || fpcache_client::AsyncByteClient::open_or_create(&node.url, config(), parameters(), any());
        let (first, second) = tokio::join!(open(), open());
        first.unwrap().put("oslo", b"Norway").await.unwrap();
        assert_eq!(second.unwrap().get("oslo").await.unwrap(), Some(b"Norway".to_vec()));
    });
}
