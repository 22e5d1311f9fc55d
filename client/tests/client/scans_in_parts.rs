//! Scans of more records than are kept at a time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fpcache_client::{
    Client, ClientConfig, CreateOptions, KeyKind, RecordShape, TableParameters, Tables, U64Keys,
};

use crate::common::{PATIENCE, load, value_in};
use crate::over_nodes::Node;
use crate::proxies::{Towards, so_many_bytes, stand_before};

const RECORDS: u64 = 10_000;
const SHAPE: RecordShape = RecordShape { key_bytes: Some(8), value_bytes: Some(4_000), room: 4_008 };

/// A client of a table of long records, and the bytes that have come from its memory node.
fn table_of_long_records() -> (Node, Client, Arc<AtomicUsize>) {
    let node = Node::of(128 << 20, true);
    let passed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&passed);
    let address = stand_before(&node.url, move || {
        let passed = Arc::clone(&counted);
        move |towards, bytes: &[u8]| {
            if towards == Towards::Client {
                passed.fetch_add(bytes.len(), Ordering::SeqCst);
            }
            true
        }
    });
    let table = "long".parse().unwrap();
    Tables::connect(&address).unwrap().create(&table, KeyKind::U64, CreateOptions::default()).unwrap();
    let config = ClientConfig::default().with_table(table).with_deadline(PATIENCE);
    let client = Client::connect_with(&address, config).unwrap();
    let parameters = TableParameters { shape: SHAPE, ..TableParameters::default() };
    load::<U64Keys>(&client, parameters, 0..RECORDS, 0).unwrap();
    (node, client, passed)
}

/// They were read to their end, whatever the code that took the records wanted.
#[test]
fn a_scan_that_is_told_to_stop_reads_no_more() {
    let (_node, client, passed) = table_of_long_records();
    client.get(0).unwrap();
    for way in ["up", "down"] {
        passed.store(0, Ordering::SeqCst);
        let mut found = 0;
        let take = |_: u64, _: &[u8]| {
            found += 1;
            if found < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match way {
            "up" => client.scan_with(0, usize::MAX, take).unwrap(),
            _ => client.scan_back_with(u64::MAX, usize::MAX, take).unwrap(),
        };
        let bytes = passed.load(Ordering::SeqCst);
        assert!(found == 100 && bytes < 24 << 20, "{way}: {found} records of {bytes} bytes");
    }
}

/// All records were kept until the last one had been found.
#[test]
fn the_first_records_are_handed_over_before_all_are_read() {
    let (_node, client, passed) = table_of_long_records();
    let mut reader = client.reader();
    for way in ["up", "of a range", "down", "by a reader"] {
        let (mut at_first, mut keys) = (0, Vec::new());
        passed.store(0, Ordering::SeqCst);
        let take = |key: u64, value: &[u8]| {
            if keys.is_empty() {
                at_first = passed.load(Ordering::SeqCst);
            }
            assert!(value == value_in(&SHAPE, key, 0), "{way}: {key}");
            keys.push(key);
        };
        match way {
            "up" => client.scan_with(0, usize::MAX, take).unwrap(),
            "of a range" => client.scan_range(0, RECORDS, usize::MAX, take).unwrap(),
            "down" => client.scan_back_with(u64::MAX, usize::MAX, take).unwrap(),
            _ => reader.scan_with(0, RECORDS as usize, take).unwrap(),
        };
        if way == "down" {
            keys.reverse();
        }
        assert!(keys.into_iter().eq(0..RECORDS), "{way}");
        let all = passed.load(Ordering::SeqCst);
        assert!(at_first < 24 << 20 && all > 40 << 20, "{way}: {at_first} of {all}");
    }
    assert_eq!(client.count_from(0).unwrap(), RECORDS);
    assert_eq!(client.iter().count() as u64, RECORDS);
}

/// What was read after the pause had the time that was left before it.
#[test]
fn a_scan_whose_records_are_taken_slowly_is_not_out_of_time() {
    let (_node, client, _) = table_of_long_records();
    let deadline = Duration::from_secs(4);
    let client = client.with_deadline(deadline);
    let is_in_time = |way: &str| {
        let mut found = 0;
        let take = |_: u64, _: &[u8]| {
            found += 1;
            if found == 1 {
                thread::sleep(deadline + deadline / 8);
            }
        };
        let scanned = match way {
            "up" => client.scan_with(0, usize::MAX, take),
            _ => client.scan_back_with(u64::MAX, usize::MAX, take),
        };
        scanned.unwrap_or_else(|error| panic!("{way}: {error}"));
        assert_eq!(found, RECORDS, "{way}");
    };
    thread::scope(|scope| {
        scope.spawn(|| is_in_time("up"));
        scope.spawn(|| is_in_time("down"));
    });
}

/// A client of a table of 600 long records over sockets, and how many bytes are left of what its
/// memory node says.
pub fn cut_short(deadline: Duration) -> (Node, Client, Arc<AtomicUsize>) {
    let node = Node::of(16 << 20, true);
    let (address, left) = so_many_bytes(&node.url);
    let table = "long".parse().unwrap();
    Tables::connect(&address).unwrap().create(&table, KeyKind::U64, CreateOptions::default()).unwrap();
    let config = ClientConfig::default().with_table(table).with_deadline(PATIENCE);
    let client = Client::connect_with(&address, config).unwrap();
    let parameters = TableParameters { shape: SHAPE, ..TableParameters::default() };
    load::<U64Keys>(&client, parameters, 0..600, 0).unwrap();
    client.get(0).unwrap();
    (node, client.with_deadline(deadline), left)
}

/// Records of the first parts, after which a memory node falls silent in the next one, which would
/// end at [`PART_END`].
pub const WHOLE_PARTS: u64 = 64 + 128;
pub const PART_END: u64 = WHOLE_PARTS + 256;
/// What it says of that part: as much as several round trips fetch, and less than all.
pub const BYTES_OF_PART: usize = 700 << 10;

/// They were lost with the rest of their part.
#[test]
fn iterators_hand_over_what_they_found_before_a_memory_node_fell_silent() {
    thread::scope(|scope| {
        for is_down in [false, true] {
            scope.spawn(move || {
                let (_node, client, left) = cut_short(Duration::from_secs(2));
                let mut records = client.iter();
                let mut next = || if is_down { records.next_back() } else { records.next() };
                let mut found = 0;
                let error = loop {
                    if found == WHOLE_PARTS {
                        left.store(BYTES_OF_PART, Ordering::SeqCst);
                    }
                    match next().expect("an error comes first") {
                        Ok((key, _)) => assert_eq!(key, if is_down { 599 - found } else { found }),
                        Err(error) => break error,
                    }
                    found += 1;
                };
                assert!(error.is_retryable(), "{error}");
                assert!(found > WHOLE_PARTS && found < PART_END, "{found}");
                left.store(usize::MAX, Ordering::SeqCst);
                assert!(next().is_none());
            });
        }
    });
}
