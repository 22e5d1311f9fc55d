//! A thread's own reader answers as its client does, wherever that goes: to newer directories, to a
//! memory node that was started anew, to a table that was dropped and made again.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, ProcessNode, TestKeys, ThreadNode, scattered, value_in, value_of};
use fpcache_client::{
    Answers, CacheConfig, Client, ClientConfig, ClientError, CreateOptions, ErrorKind, KeyKind, Reader,
    RecordShape, TableClient, TableName, TableParameters, Tables, U64Keys,
};

for_both_kinds_of_keys!(
    a_reader_answers_every_call_as_its_client_does,
    readers_of_one_thread_and_of_many_keep_out_of_each_others_way,
    a_reader_goes_on_while_the_table_is_rebuilt_under_it,
    a_reader_of_a_killed_memory_node_reads_from_its_successor,
    a_reader_of_a_dropped_table_says_so_and_reads_the_next_one_of_its_name,
);

fn loaded<K: TestKeys>(keys: &[u64], value_bytes: Option<u32>) -> ThreadNode<K> {
    let node = ThreadNode::start(16 << 20);
    let parameters = K::parameters_of(value_bytes);
    crate::common::load(&node.client(), parameters, keys.iter().copied(), 1).unwrap();
    node
}

/// Looks some of the keys up in every way a reader has.
fn look_up_everything<K: TestKeys>(reader: &mut Reader<K>, keys: &[u64], shape: &RecordShape) {
    let value = |number: u64| value_in(shape, number, 1);
    let (mut answers, mut into) = (Answers::new(), Vec::new());
    for (at, &number) in keys.iter().enumerate().step_by(37) {
        let (key, absent) = (K::key(number), K::key(number ^ 1));
        assert_eq!(reader.get(key.clone()).unwrap(), Some(value(number)));
        assert_eq!(reader.get(absent.clone()).unwrap(), None);
        assert!(reader.get_into(key.clone(), &mut into).unwrap().version.is_some());
        assert_eq!(into, value(number));
        assert!(reader.get_into(absent.clone(), &mut into).unwrap().version.is_none() && into.is_empty());
        assert_eq!(reader.get_with(key.clone(), <[u8]>::len).unwrap(), Some(value(number).len()));
        assert_eq!(reader.get_with(absent.clone(), |_| panic!("it is absent")).unwrap(), None::<()>);
        assert!(reader.contains(key.clone()).unwrap() && !reader.contains(absent).unwrap());

        let numbers: Vec<u64> = keys[at..].iter().take(70).flat_map(|number| [*number, number ^ 1]).collect();
        let group: Vec<K::Owned> = numbers.iter().copied().map(K::key).collect();
        let expected: Vec<Option<Vec<u8>>> =
            (0..group.len()).map(|i| (i % 2 == 0).then(|| value(numbers[i]))).collect();
        assert_eq!(reader.multi_get(&group).unwrap(), expected);
        reader.multi_get_into(&group, &mut answers).unwrap();
        assert!(answers.values().eq(expected.iter().map(Option::as_deref)));
        let mut found = vec![true; group.len()];
        assert_eq!(reader.multi_contains_into(&group, &mut found).unwrap(), group.len() / 2);
        assert!(found.iter().eq(expected.iter().map(Option::is_some).collect::<Vec<_>>().iter()));

        let next: Vec<(K::Owned, Vec<u8>)> =
            keys[at..].iter().take(9).map(|n| (K::key(*n), value(*n))).collect();
        assert_eq!(reader.scan(key.clone(), 9).unwrap(), next);
        let (mut count, end) = (0, K::key(keys[(at + 4).min(keys.len() - 1)]));
        reader.scan_range(key, end, 100, |_, _| count += 1).unwrap();
        assert_eq!(count, 4.min(keys.len() - 1 - at));
    }
}

fn a_reader_answers_every_call_as_its_client_does<K: TestKeys>() {
    let keys: Vec<u64> = scattered(3000).into_iter().map(|key| key & !1).collect();
    for value_bytes in [Some(8), None] {
        let node = loaded::<K>(&keys, value_bytes);
        for cache in [None, Some(CacheConfig::of(1 << 20))] {
            let client = node.client_with(ClientConfig::default().with_cache(cache));
            look_up_everything(&mut client.reader(), &keys, &K::shape(value_bytes));
        }
    }
}

fn readers_of_one_thread_and_of_many_keep_out_of_each_others_way<K: TestKeys>() {
    let keys: Vec<u64> = scattered(1000).into_iter().map(|key| key & !1).collect();
    let node = loaded::<K>(&keys, Some(8));
    let client = node.client();
    let (mut first, mut second) = (client.reader(), client.reader());
    look_up_everything(&mut first, &keys, &K::shape(Some(8)));
    assert_eq!(client.get(K::key(keys[1])).unwrap(), second.get(K::key(keys[1])).unwrap());
    // From within the other's answer.
    let nested =
        first.get_with(K::key(keys[2]), |value| (value.to_vec(), second.get(K::key(keys[3])).unwrap()));
    let nested = nested.unwrap().unwrap();
    assert_eq!(nested, (value_of(keys[2], 1, 8), Some(value_of(keys[3], 1, 8))));
    thread::scope(|scope| {
        for mut reader in [first, second, client.reader(), client.reader()] {
            let keys = &keys;
            // Those that were used here are used elsewhere.
            scope.spawn(move || look_up_everything(&mut reader, keys, &K::shape(Some(8))));
        }
    });
    let mut last = client.reader();
    drop(client);
    look_up_everything(&mut last, &keys, &K::shape(Some(8)));
}

fn a_reader_goes_on_while_the_table_is_rebuilt_under_it<K: TestKeys>() {
    let numbers: Vec<u64> = (0..2000).map(|number| number << 20).collect();
    let node = loaded::<K>(&numbers, Some(8));
    let (client, writer) = (node.client(), node.client());
    let mut reader = client.reader();
    let value = |number: u64| Some(value_of(number, 1, 8));
    assert_eq!(reader.get(K::key(0)).unwrap(), value(0));
    let (done, mut made) = (AtomicBool::new(false), BTreeMap::new());
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let (mut rounds, mut answers) = (0, Answers::new());
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                for group in numbers.chunks(50) {
                    assert_eq!(reader.get(K::key(group[0])).unwrap(), value(group[0]));
                    let keys: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
                    reader.multi_get_into(&keys, &mut answers).unwrap();
                    assert!(answers.values().zip(group).all(|(found, n)| found == value(*n).as_deref()));
                }
                rounds += 1;
            }
            reader
        });
        // Enough between two neighbours for their segments to be replaced, again and again.
        for number in (0..12_000).map(|i: u64| ((i % 40) << 20) + 1 + i / 40) {
            writer.put(K::key(number), &value_of(number, 1, 8)).unwrap();
            made.insert(number, ());
        }
        done.store(true, Ordering::Relaxed);
        let mut reader = looking.join().unwrap();
        for number in made.keys() {
            assert_eq!(reader.get(K::key(*number)).unwrap(), value(*number));
        }
    });
    assert!(client.counters().refreshes + client.counters().reopens > 0, "{:?}", client.counters());
}

/// Calls until the reader has heard that its memory node is gone.
fn until_noticed<K: TestKeys>(reader: &mut Reader<K>, key: u64) -> ClientError {
    let begun = Instant::now();
    loop {
        match reader.get(K::key(key)) {
            Ok(value) => assert_eq!(value, Some(value_of(key, 1, 8))),
            Err(error) => return error,
        }
        assert!(begun.elapsed() < PATIENCE, "still answering");
    }
}

fn a_reader_of_a_killed_memory_node_reads_from_its_successor<K: TestKeys>() {
    let (directory, keys) = (Directory::new(), scattered(2000));
    let mut node = ProcessNode::start::<K>(&directory, 4 << 20);
    let client = TableClient::<K>::connect_with(&directory.url(), ClientConfig::default()).unwrap();
    crate::common::load(&client, K::parameters(), keys.iter().copied(), 1).unwrap();
    let (mut reader, mut idle) = (client.reader(), client.reader());
    assert_eq!(reader.get(K::key(keys[5])).unwrap(), Some(value_of(keys[5], 1, 8)));
    assert_eq!(idle.get(K::key(keys[5])).unwrap(), Some(value_of(keys[5], 1, 8)));
    node.kill();
    assert!(until_noticed(&mut reader, keys[5]).is_retryable());
    reader.set_deadline(Duration::from_millis(50));
    let mut found = [false; 2];
    assert!(reader.multi_contains_into(&[K::key(1), K::key(2)], &mut found).unwrap_err().is_retryable());
    reader.set_deadline(PATIENCE);
    node = ProcessNode::start::<K>(&directory, 4 << 20);
    let other = TableClient::<K>::connect_with(&directory.url(), ClientConfig::default()).unwrap();
    let left: Vec<u64> = keys.iter().copied().step_by(2).collect();
    let tried = client.counters().reconnects;
    crate::common::load(&other, K::parameters(), left.iter().copied(), 2).unwrap();
    for reader in [&mut reader, &mut idle] {
        assert_eq!(reader.get(K::key(keys[4])).unwrap(), Some(value_of(keys[4], 2, 8)));
        assert_eq!(reader.get(K::key(keys[5])).unwrap(), None);
        let first: Vec<u64> =
            reader.scan(K::key(0), 3).unwrap().iter().map(|(key, _)| K::number(key.borrow())).collect();
        assert_eq!(first, left[..3]);
    }
    assert_eq!(client.counters().reconnects, tried + 1, "once for both");
    drop(node);
}

fn a_reader_of_a_dropped_table_says_so_and_reads_the_next_one_of_its_name<K: TestKeys>() {
    let directory = Directory::new();
    let _node = ProcessNode::start::<K>(&directory, 16 << 20);
    let (tables, table) =
        (Tables::connect(&directory.url()).unwrap(), TableName::from_bytes(b"brief").unwrap());
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    tables.create(&table, kind, CreateOptions::default()).unwrap();
    let config = ClientConfig::default().with_table(table).with_deadline(PATIENCE);
    let client = TableClient::<K>::connect_with(&directory.url(), config).unwrap();
    crate::common::load(&client, K::parameters_of(Some(8)), [5], 1).unwrap();
    client.put(K::key(1), &[1; 8]).unwrap();
    let mut reader = client.reader();
    assert_eq!(reader.get(K::key(1)).unwrap(), Some(vec![1; 8]));
    tables.drop_table(&table).unwrap();
    let error = reader.get(K::key(1)).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
    // Of another shape.
    tables.create(&table, kind, CreateOptions::default()).unwrap();
    crate::common::load(&client, K::parameters_of(Some(24)), [5], 1).unwrap();
    client.put(K::key(2), &[2; 24]).unwrap();
    assert_eq!(reader.get(K::key(1)).unwrap(), None);
    assert_eq!(reader.get(K::key(2)).unwrap(), Some(vec![2; 24]));
}

#[test]
fn arrays_get_what_a_map_of_words_holds() {
    let keys: Vec<u64> = scattered(2000).into_iter().map(|key| key & !1).collect();
    let node = loaded::<U64Keys>(&keys, Some(8));
    let word = |key: u64| u64::from_le_bytes(value_of(key, 1, 8).try_into().unwrap());
    let mut reader = node.client().reader();
    for count in [0, 1, 31, 32, 33, 1000, 4000] {
        let asked: Vec<u64> = keys.iter().flat_map(|key| [*key, key ^ 1]).take(count).collect();
        let (mut values, mut found) = (vec![7; count], vec![true; count]);
        let there = reader.multi_get_u64(&asked, &mut values, &mut found).unwrap();
        assert_eq!(there, count.div_ceil(2));
        for (i, key) in asked.iter().enumerate() {
            let expected = if i % 2 == 0 { (word(*key), true) } else { (0, false) };
            assert_eq!((values[i], found[i]), expected, "key {i} of {count}");
        }
    }
}

#[test]
fn arrays_get_the_words_of_a_table_that_was_made_anew_with_such() {
    let directory = Directory::new();
    let _node = ProcessNode::start::<U64Keys>(&directory, 16 << 20);
    let (tables, table) =
        (Tables::connect(&directory.url()).unwrap(), TableName::from_bytes(b"brief").unwrap());
    let config = ClientConfig::default().with_table(table).with_deadline(PATIENCE);
    tables.create(&table, KeyKind::U64, CreateOptions::default()).unwrap();
    let client = TableClient::<U64Keys>::connect_with(&directory.url(), config.clone()).unwrap();
    crate::common::load(&client, U64Keys::parameters_of(Some(16)), [5], 1).unwrap();
    let (mut reader, mut found) = (client.reader(), [false]);
    let refused = reader.multi_get_u64(&[5], &mut [0], &mut found).unwrap_err();
    assert!(matches!(refused, ClientError::NotWords { .. }), "{refused}");
    tables.drop_table(&table).unwrap();
    tables.create(&table, KeyKind::U64, CreateOptions::default()).unwrap();
    let other = TableClient::<U64Keys>::connect_with(&directory.url(), config).unwrap();
    crate::common::load(&other, U64Keys::parameters_of(Some(8)), [5], 1).unwrap();
    assert_eq!(reader.multi_get_u64(&[5], &mut [0], &mut found).unwrap(), 1);
}

#[test]
fn arrays_that_do_not_fit_keys_or_values_are_refused_with_a_remedy() {
    let node = loaded::<U64Keys>(&[1, 2, 3], Some(8));
    let mut reader = node.client().reader();
    let (mut two, mut three) = ([0; 2], [0; 3]);
    let errors = [
        reader.multi_get_u64(&[1, 2, 3], &mut two, &mut [false; 3]).unwrap_err(),
        reader.multi_get_u64(&[1, 2, 3], &mut three, &mut [false; 2]).unwrap_err(),
        reader.multi_contains_into(&[1, 2, 3], &mut [false; 2]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("3 keys, and arrays for 2"), "{error}");
    }
    for (value_bytes, says) in [(Some(16), "have 16 bytes"), (None, "vary in length")] {
        let parameters = TableParameters { shape: U64Keys::shape(value_bytes), ..TableParameters::default() };
        let client = Client::embedded(16 << 20).unwrap();
        crate::common::load(&client, parameters, 0..100, 1).unwrap();
        let error = client.reader().multi_get_u64(&[500], &mut [0], &mut [false]).unwrap_err();
        assert!(matches!(error, ClientError::NotWords { .. }) && error.kind() == ErrorKind::Invalid);
        assert!(error.to_string().contains(says) && error.to_string().contains("multi_get_into"), "{error}");
    }
}

#[test]
fn a_table_that_fills_comes_to_lie_in_huge_pages_while_it_is_read() {
    use fpcache_fabric::{HugePages, SharedMemory};
    let probe = SharedMemory::create_memfd("probe", 2 << 20, HugePages::Merged).unwrap().0;
    // Of nothing but holes there is nothing to merge.
    probe.write_words(0, &[1]).unwrap();
    if !probe.merge_pages(0) {
        // This kernel cannot, or has no huge page left.
        return;
    }
    let directory = Directory::new();
    let _node = ProcessNode::start::<U64Keys>(&directory, 64 << 20);
    let client = Client::connect(&directory.url()).unwrap();
    let keys = scattered(200_000);
    crate::common::load(&client, U64Keys::parameters(), keys.iter().copied(), 1).unwrap();
    let mut reader = client.reader();
    let (mut values, mut found) = (vec![0; keys.len()], vec![false; keys.len()]);
    let begun = Instant::now();
    while client.huge_bytes().is_some_and(|bytes| bytes < SharedMemory::HUGE_PAGE_BYTES) {
        assert_eq!(reader.multi_get_u64(&keys, &mut values, &mut found).unwrap(), keys.len());
        let is_right = |(key, value): (&u64, &u64)| value.to_le_bytes() == value_of(*key, 1, 8)[..];
        assert!(keys.iter().zip(&values).all(is_right));
        assert!(begun.elapsed() < PATIENCE, "no huge pages");
    }
}

#[test]
fn a_reader_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Reader<U64Keys>>();
    is_send::<fpcache_client::ByteReader>();
}
