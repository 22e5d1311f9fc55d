//! Scans, ranges and counts of tasks: the answers of a map, from either end, in whatever parts they
//! come.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fpcache_client::{
    AsyncByteClient, AsyncClient, AsyncConfig, AsyncTableClient, ByteKeys, Changes, ClientConfig,
    ClientError, RecordShape, RecordStream, ScanStream, TableParameters, U64Keys,
};

use crate::asynchronous::{one_thread, over_sockets, poll_and_drop};
use crate::common::{PATIENCE, TestKeys, ThreadNode, value_of};
use crate::over_nodes::{Node, config, make};
use crate::remote::random;
use crate::scans_in_parts::{BYTES_OF_PART, PART_END, WHOLE_PARTS, cut_short};

for_both_kinds_of_keys!(
    scans_over_sockets_are_those_of_a_map_from_either_end,
    scans_over_shared_memory_are_those_of_a_map_from_either_end,
    scans_over_three_memory_nodes_are_those_of_a_map_from_either_end,
    nothing_is_found_in_an_empty_table_from_either_end,
    ends_that_are_dropped_while_they_wait_lose_nothing,
);

/// Numbers lie this far apart.
const APART: u64 = 1 << 30;
/// More records than the longest part has.
const RECORDS: u64 = 3_000;

type Map = BTreeMap<u64, Vec<u8>>;

fn scans_over_sockets_are_those_of_a_map_from_either_end<K: TestKeys>() {
    one_thread().block_on(async {
        let (_node, client) = over_sockets::<K>([], AsyncConfig::default()).await;
        scans_are_those_of_a_map(&client).await;
    });
}

fn scans_over_shared_memory_are_those_of_a_map_from_either_end<K: TestKeys>() {
    let node = ThreadNode::<K>::start(8 << 20);
    one_thread().block_on(async {
        node.client().create(K::parameters()).unwrap();
        scans_are_those_of_a_map(&AsyncTableClient::of(node.client())).await;
    });
}

/// One range has few records, one none, and some lie right at an end.
fn scans_over_three_memory_nodes_are_those_of_a_map_from_either_end<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp(), Node::shm()];
    make::<K>(&nodes, &[700 * APART, 710 * APART, 710 * APART + 1], Some(8));
    one_thread().block_on(async {
        let client = AsyncTableClient::<K>::connect_with(&nodes[2].url, config()).await.unwrap();
        scans_are_those_of_a_map(&client).await;
    });
}

fn nothing_is_found_in_an_empty_table_from_either_end<K: TestKeys>() {
    let node = ThreadNode::<K>::start(1 << 20);
    one_thread().block_on(async {
        let client = AsyncTableClient::of(node.client());
        assert!(client.iter().next().await.is_none() && client.iter().next_back().await.is_none());
        assert!(client.scan_back(K::key(5), 5).next().await.is_none());
        assert_eq!(client.count_from(K::key(0)).await.unwrap(), 0);
    });
}

async fn filled<K: TestKeys>(client: &AsyncTableClient<K>) -> Map {
    let mut changes = Changes::default();
    let map: Map = (0..RECORDS).map(|n| (n * APART, value_of(n, 0, 8))).collect();
    map.iter().for_each(|(number, value)| _ = changes.put(K::key(*number), value));
    client.client().apply(&changes, &mut Vec::new()).unwrap();
    map
}

fn own<K: TestKeys>(record: Result<(K::Owned, Vec<u8>), ClientError>) -> (u64, Vec<u8>) {
    let (key, value) = record.unwrap();
    (K::number(key.borrow()), value)
}

async fn scanned<K: TestKeys>(mut records: ScanStream<K>) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(record) = records.next().await {
        all.push(own::<K>(record));
    }
    assert!(records.next().await.is_none());
    all
}

async fn ranged<K: TestKeys>(mut records: RecordStream<K>) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(record) = records.next().await {
        all.push(own::<K>(record));
    }
    assert!(records.next().await.is_none() && records.next_back().await.is_none());
    all
}

fn records<'m>(of: impl Iterator<Item = (&'m u64, &'m Vec<u8>)>, limit: usize) -> Vec<(u64, Vec<u8>)> {
    of.take(limit).map(|(number, value)| (*number, value.clone())).collect()
}

/// All scans of spans of every length, and those of which one end is open.
async fn scans_are_those_of_a_map<K: TestKeys>(client: &AsyncTableClient<K>) {
    let map = filled(client).await;
    let mut state = 7;
    for step in 0..60 {
        let number = |state: &mut u64| random(state) % (RECORDS * 2) * (APART / 2);
        let (low, high) = (number(&mut state), number(&mut state));
        let (low, high) =
            if step % 10 == 0 { (high.max(low), low.min(high)) } else { (low.min(high), low.max(high)) };
        let limit = if step % 3 == 0 { usize::MAX } else { (random(&mut state) % 1_500) as usize };
        let key = K::key;
        let within = if low <= high { map.range(low..high) } else { map.range(0..0) };
        let count = within.clone().count() as u64;
        assert_eq!(
            scanned(client.scan_range(key(low), key(high), limit)).await,
            records(within.clone(), limit)
        );
        let down = records(within.clone().rev(), limit);
        assert_eq!(scanned(client.scan_range_back(key(low), key(high), limit)).await, down);
        assert_eq!(ranged(client.range(key(low)..key(high))).await, records(within.clone(), usize::MAX));
        let down = records(within.rev(), usize::MAX);
        assert_eq!(ranged(client.range(key(low)..key(high)).rev()).await, down);
        assert_eq!(client.count(key(low), key(high)).await.unwrap(), count);
        assert_eq!(client.count_from(key(low)).await.unwrap(), map.range(low..).count() as u64);
        let down = records(map.range(..=high).rev(), limit);
        assert_eq!(scanned(client.scan_back(key(high), limit)).await, down);
        let down = records(map.range(low..).rev(), limit);
        assert_eq!(scanned(client.scan_back_to(key(low), limit)).await, down);
        keys_are_those_of_a_map(client, &map, (low, high), limit).await;
    }
    for (from, to) in [(Bound::Excluded(700), Bound::Included(710)), (Bound::Included(5), Bound::Excluded(5))]
    {
        let number = |bound: Bound<u64>| bound.map(|number| number * APART);
        let expected = match (from, to) {
            (Bound::Excluded(_), _) => records(map.range((number(from), number(to))), usize::MAX),
            _ => Vec::new(),
        };
        let found = client.range::<K::Owned>((number(from).map(K::key), number(to).map(K::key)));
        assert_eq!(ranged(found).await, expected);
    }
    both_ends_meet(client, &map, state).await;
}

/// Keys without values, in either direction.
async fn keys_are_those_of_a_map<K: TestKeys>(
    client: &AsyncTableClient<K>,
    map: &Map,
    (low, high): (u64, u64),
    limit: usize,
) {
    let numbers = |keys: Vec<K::Owned>| keys.iter().map(|key| K::number(key.borrow())).collect::<Vec<_>>();
    let up = map.keys().copied().filter(|number| *number >= low);
    let down = map.keys().rev().copied().filter(|number| *number >= low && *number < high);
    let keys = client.scan_keys(K::key(low), limit).await.unwrap();
    assert_eq!(numbers(keys), up.take(limit).collect::<Vec<_>>());
    let keys = client.scan_keys_back(K::key(low)..K::key(high), limit).await.unwrap();
    assert_eq!(numbers(keys), down.take(limit).collect::<Vec<_>>());
    let keys = client.scan_keys_back(K::key(low).., limit).await.unwrap();
    assert!(numbers(keys).into_iter().eq(map.range(low..).rev().map(|(number, _)| *number).take(limit)));
}

/// Takes records from both ends, at random.
async fn both_ends_meet<K: TestKeys>(client: &AsyncTableClient<K>, map: &Map, mut state: u64) {
    for from_end in [1, 5, 9] {
        let (mut found, mut expected) = (client.iter(), map.iter());
        loop {
            let (record, expected) = match random(&mut state) % 10 < from_end {
                true => (found.next_back().await, expected.next_back()),
                false => (found.next().await, expected.next()),
            };
            assert_eq!(record.map(own::<K>), expected.map(|(n, v)| (*n, v.clone())));
            if expected.is_none() {
                break;
            }
        }
    }
}

/// A part that comes may have been asked for from the other end.
fn ends_that_are_dropped_while_they_wait_lose_nothing<K: TestKeys>() {
    one_thread().block_on(async {
        let (_node, client) = over_sockets::<K>([], AsyncConfig::default()).await;
        let map = filled(&client).await;
        let mut state = 3;
        for is_reversed in [false, true] {
            let (mut found, mut front, mut back) = (client.iter(), Vec::new(), Vec::new());
            if is_reversed {
                found = found.rev();
            }
            loop {
                let polls = (random(&mut state) % 4) as usize;
                let from_end = random(&mut state).is_multiple_of(2);
                let record = match from_end {
                    true => poll_and_drop(found.next_back(), polls).await,
                    false => poll_and_drop(found.next(), polls).await,
                };
                match record {
                    Some(Some(record)) => {
                        if from_end { &mut back } else { &mut front }.push(own::<K>(record))
                    }
                    Some(None) => break,
                    None => {}
                }
            }
            front.extend(back.into_iter().rev());
            if is_reversed {
                front.reverse();
            }
            assert_eq!(front, records(map.iter(), usize::MAX));
        }
    });
}

/// No other key is as great.
#[test]
fn the_greatest_key_is_found_from_the_end() {
    let node = ThreadNode::<U64Keys>::start(1 << 20);
    one_thread().block_on(async {
        let client = AsyncClient::of(node.client());
        for key in [0, 7, u64::MAX - 1, u64::MAX] {
            client.put(key, &key.to_le_bytes()).await.unwrap();
        }
        let keys = |records: Vec<(u64, Vec<u8>)>| records.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        let down = [u64::MAX, u64::MAX - 1, 7, 0];
        assert_eq!(keys(scanned(client.scan_back(u64::MAX, 9)).await), down);
        assert_eq!(keys(scanned(client.scan_back(u64::MAX - 1, 9)).await), down[1..]);
        assert_eq!(keys(scanned(client.scan_back_to(1, 9)).await), down[..3]);
        assert_eq!(keys(scanned(client.scan_back(0, 9)).await), [0]);
        assert_eq!(keys(ranged(client.range(..=u64::MAX).rev()).await), down);
        let after = (Bound::Excluded(u64::MAX), Bound::Unbounded);
        assert_eq!(keys(ranged(client.range::<u64>(after)).await), []);
        assert_eq!(client.count_from(u64::MAX).await.unwrap(), 1);
        assert_eq!(client.scan_keys(8, 9).await.unwrap(), [u64::MAX - 1, u64::MAX]);
        assert_eq!(client.scan_keys_back(..=u64::MAX, 9).await.unwrap(), down);
        assert_eq!(client.scan_keys_back::<u64>(after, 9).await.unwrap(), []);
        assert_eq!(client.stats().await.unwrap().keys, 4);
        assert!(client.ping().await.unwrap() < PATIENCE);
    });
}

async fn prefixes_are_found(client: &AsyncByteClient) {
    let own: [&[u8]; 7] = [b"a", b"a/1", b"a/2", b"a0", b"b", b"\xff\xff", b"\xff\xff\x01"];
    for key in own {
        client.put(key, &[1; 8]).await.unwrap();
    }
    for prefix in [&b""[..], b"a", b"a/", b"a/1", b"b", b"c", b"\xff", b"\xff\xff"] {
        let expected: Vec<&[u8]> = own.into_iter().filter(|key| key.starts_with(prefix)).collect();
        let down: Vec<&[u8]> = expected.iter().rev().copied().collect();
        let mut found = client.prefix(prefix);
        let mut up = Vec::new();
        while let Some(record) = found.next().await {
            up.push(record.unwrap().0);
        }
        assert_eq!(up, expected);
        for (mut scan, expected) in
            [(client.scan_prefix(prefix, 9), &expected), (client.scan_prefix_back(prefix, 9), &down)]
        {
            let mut all = Vec::new();
            while let Some(record) = scan.next().await {
                all.push(record.unwrap().0);
            }
            assert_eq!(all, *expected);
        }
        let greatest = client.scan_prefix_back(prefix, 1).next().await.map(|record| record.unwrap().0);
        assert_eq!(greatest.as_deref(), down.first().copied());
        assert_eq!(client.count_prefix(prefix).await.unwrap(), expected.len() as u64);
    }
}

#[test]
fn keys_that_begin_with_a_prefix_are_scanned_and_counted() {
    let node = ThreadNode::<ByteKeys>::start(1 << 20);
    let nodes = [Node::tcp(), Node::shm()];
    one_thread().block_on(async {
        node.client().create(ByteKeys::parameters()).unwrap();
        prefixes_are_found(&AsyncByteClient::of(node.client())).await;
        make::<ByteKeys>(&nodes, &[0], Some(8));
        prefixes_are_found(&AsyncByteClient::connect_with(&nodes[0].url, config()).await.unwrap()).await;
    });
}

/// Values that lie outside their slots are taken before there are more than 16 MiB of them.
#[test]
fn a_part_that_stops_at_long_values_is_gone_on_with_from_either_end() {
    const VALUES: u64 = 40;
    let node = ThreadNode::<U64Keys>::start(64 << 20);
    let client = node.client();
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
    client.create(TableParameters { shape, ..TableParameters::default() }).unwrap();
    for key in 0..VALUES {
        client.put(key, &vec![key as u8; 1 << 20]).unwrap();
    }
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let mut up = client.iter();
        let mut down = client.scan_back(VALUES, usize::MAX);
        for key in 0..VALUES {
            assert_eq!(up.next().await.unwrap().unwrap(), (key, vec![key as u8; 1 << 20]));
            let greatest = VALUES - 1 - key;
            assert_eq!(down.next().await.unwrap().unwrap(), (greatest, vec![greatest as u8; 1 << 20]));
        }
        assert!(up.next().await.is_none() && down.next().await.is_none());
    });
}

/// With a memory node that is away a stream ends with its error, from either end.
#[test]
fn an_error_ends_a_stream() {
    let node = crate::remote::Node::start();
    node.make::<U64Keys>("tasks");
    let config = ClientConfig::default().with_deadline(PATIENCE);
    let client = node.client::<U64Keys>(0, "tasks", config);
    (0..1_000u64).for_each(|key| client.put(key, &[0; 8]).unwrap());
    one_thread().block_on(async {
        let client = AsyncClient::of(client).with_deadline(Duration::from_secs(3));
        let mut records = client.iter();
        assert!(records.next().await.unwrap().is_ok() && records.next_back().await.unwrap().is_ok());
        drop(node);
        let mut seen = 0;
        while let Some(record) = records.next_back().await {
            seen += 1;
            if record.is_err() {
                break;
            }
        }
        assert!(seen < 200, "{seen}");
        assert!(records.next().await.is_none() && records.next_back().await.is_none());
    });
}

/// They were lost with the rest of their part, and so was a part that took longer than its deadline.
#[test]
fn streams_hand_over_what_they_found_before_their_deadline() {
    one_thread().block_on(async {
        let of_one = async |is_down: bool| {
            let (_node, client, left) = cut_short(Duration::from_secs(2));
            let client = AsyncClient::of(client);
            let mut records = if is_down { client.iter().rev() } else { client.iter() };
            let mut found = 0;
            let error = loop {
                if found == WHOLE_PARTS {
                    left.store(BYTES_OF_PART, Ordering::SeqCst);
                }
                match records.next().await.expect("an error comes first") {
                    Ok((key, _)) => assert_eq!(key, if is_down { 599 - found } else { found }),
                    Err(error) => break error,
                }
                found += 1;
            };
            assert!(error.is_retryable(), "{error}");
            assert!(found > WHOLE_PARTS && found < PART_END, "{found}");
            left.store(usize::MAX, Ordering::SeqCst);
            assert!(records.next().await.is_none() && records.next_back().await.is_none());
        };
        tokio::join!(of_one(false), of_one(true));
    });
}
