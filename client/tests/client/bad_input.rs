//! Bad input gets an error that names cause and remedy, and leaves nothing half made.

use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, scattered, value_of};
use fpcache_client::{
    Client, ClientConfig, ClientError, ErrorKind, FingerprintWidth, Loaded, RecordShape, TableParameters,
    U64Keys,
};

type ThreadNode = crate::common::ThreadNode<U64Keys>;

/// Smallest region of these tests.
const SMALL: usize = 64 << 10;

/// Checks that the memory node holds nothing and that a table can be loaded and read.
fn assert_empty_and_usable(client: &Client) {
    let stats = client.stats().unwrap();
    assert_eq!((stats.keys, stats.segments, stats.used_bytes), (0, 0, 4096), "nothing is left of it");
    assert_eq!(client.get(1).unwrap(), None);
    let loaded = crate::common::load(client, TableParameters::default(), [3, 5, 9], 7).unwrap();
    assert_eq!(loaded.keys, 3);
    assert_eq!(client.get(5).unwrap(), Some(value_of(5, 7, 8)));
    assert_eq!(client.get(6).unwrap(), None);
}

#[track_caller]
fn assert_says(error: &ClientError, kind: ErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

#[test]
fn no_memory_node() {
    let directory = Directory::new();
    let error = Client::connect(&directory.url()).unwrap_err();
    assert_says(&error, ErrorKind::Retry, &[&directory.url(), "no memory node", "start one"]);
    let error = Client::connect("shm://nobody-listens-here").unwrap_err();
    assert_says(
        &error,
        ErrorKind::Retry,
        &["shm://nobody-listens-here", "nobody-listens-here.sock", "start one"],
    );
}

#[test]
fn addresses_that_name_nothing() {
    for url in ["", "fpcache", "tcp://host", "shm://", "shm://a/b", "shm://a b", "http://x"] {
        let error = Client::connect(url).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &[url, "shm://fpcache"]);
    }
    let long = format!("shm://{}", "n".repeat(200));
    let error = Client::connect(&long).unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn lookups_on_an_empty_node() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    assert!(!client.contains(1).unwrap());
    assert_eq!(client.multi_get(&[1, 2]).unwrap(), [None, None]);
    assert!(client.scan(0, 5).unwrap().is_empty());
    // There are no parameters to tell.
    assert_says(&client.table().unwrap_err(), ErrorKind::Retry, &["no data", "load"]);
    assert_empty_and_usable(&client);
}

/// The argument of `--capacity` in an error's remedy, in bytes.
fn advised_capacity(error: &ClientError) -> usize {
    let text = error.to_string();
    let (_, rest) = text.split_once("--capacity ").expect("the error names what is needed");
    let size = rest.split_whitespace().next().expect("a size");
    let split = size.find(|c: char| c.is_ascii_alphabetic()).expect("a unit");
    let unit = match &size[split..] {
        "GiB" => 1 << 30,
        "MiB" => 1 << 20,
        "KiB" => 1 << 10,
        "B" => 1,
        other => panic!("{other} in {text}"),
    };
    size[..split].parse::<usize>().expect("a number") * unit
}

#[test]
fn a_region_that_does_not_fit_names_the_capacity_that_does() {
    let keys = scattered(20_000);
    let defaults = TableParameters::default();
    for parameters in [
        defaults,
        TableParameters { width: FingerprintWidth::Bits8, shape: RecordShape::fixed(8, 0), ..defaults },
        TableParameters { epsilon: 0, ..defaults },
        TableParameters { epsilon: 2, fill: 1.0, max_slots: 16, ..defaults },
        TableParameters { shape: RecordShape::fixed(8, 100), fill: 0.3, ..defaults },
    ] {
        // Told beforehand how many keys come, and not.
        for expected in [keys.len() as u64, 0] {
            let node = ThreadNode::start(SMALL);
            let client = node.client();
            let error = try_load(&client, parameters, &keys, expected).unwrap_err();
            assert_says(&error, ErrorKind::Setup, &["64.0 KiB", "--capacity"]);
            assert_empty_and_usable(&client);
            if expected == 0 {
                continue;
            }
            // What a whole load would take can only be guessed before it, but not after a part of
            // it.
            follow_the_advice(error, &mut |capacity| {
                try_load(&ThreadNode::start(capacity).client(), parameters, &keys, expected)
            });
        }
    }
}

/// Does as the errors of a full region say until the load succeeds.
fn follow_the_advice(mut error: ClientError, load: &mut dyn FnMut(usize) -> Result<Loaded, ClientError>) {
    const ROUNDS: usize = 3;
    let mut advice = vec![error.to_string()];
    while let Err(next) = load(advised_capacity(&error)) {
        advice.push(next.to_string());
        error = next;
        assert!(advice.len() < ROUNDS, "{}", advice.join("\nthen: "));
    }
}

fn try_load(
    client: &Client,
    parameters: TableParameters,
    keys: &[u64],
    expected: u64,
) -> Result<Loaded, ClientError> {
    let mut load = client.load(parameters, expected)?;
    for key in keys {
        load.push(*key, &crate::common::value_in(&parameters.shape, *key, 0))?;
    }
    load.finish()
}

#[test]
fn more_keys_than_any_memory_holds() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    for expected in [u64::MAX, u64::MAX / 2, u64::MAX / 40, 1 << 40] {
        let error = client.load(TableParameters::default(), expected).unwrap_err();
        assert_says(&error, ErrorKind::Setup, &["--capacity"]);
    }
    assert_empty_and_usable(&client);
}

#[test]
fn keys_out_of_order_or_twice() {
    for keys in [[5, 3, 9], [3, 3, 9], [3, 9, 9], [0, 1, 0]] {
        let node = ThreadNode::start(SMALL);
        let client = node.client();
        let error = crate::common::load(&client, TableParameters::default(), keys, 0).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &["sort", "position"]);
        assert_empty_and_usable(&client);
    }
}

#[test]
fn disorder_far_into_a_load() {
    let node = ThreadNode::start(16 << 20);
    let client = node.client();
    let keys = (0..150_000).chain([149_999]);
    let error = crate::common::load(&client, TableParameters::default(), keys, 0).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["149999", "150000"]);
    assert_empty_and_usable(&client);
}

#[test]
fn values_of_another_size() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    let mut load = client.load(TableParameters::default(), 2).unwrap();
    load.push(1, &[0; 8]).unwrap();
    for value in [&[0; 7][..], &[0; 9], &[]] {
        let error = load.push(2, value).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &["key 2", &format!("{} bytes", value.len()), "8"]);
    }
    drop(load);
    assert_empty_and_usable(&client);
}

#[test]
fn a_load_without_records_makes_an_empty_table() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    assert_eq!(crate::common::load(&client, TableParameters::default(), [], 0).unwrap().keys, 0);
    assert_eq!((client.get(5).unwrap(), client.scan(0, 10).unwrap()), (None, Vec::new()));
    assert!(client.insert(5, &[7; 8]).unwrap().is_new());
    assert_eq!(client.get(5).unwrap().unwrap(), [7; 8]);
    let error = client.create(TableParameters::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn parameters_out_of_range() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    let ok = TableParameters::default();
    for (bad, part) in [
        (TableParameters { epsilon: 5000, ..ok }, "epsilon 5000"),
        (TableParameters { fill: 0.0, ..ok }, "fill 0"),
        (TableParameters { fill: f64::NAN, ..ok }, "fill"),
        (TableParameters { fill: 1.5, ..ok }, "fill 1.5"),
        (TableParameters { shape: RecordShape::fixed(8, 1 << 20), ..ok }, "1048576"),
        (TableParameters { max_slots: 3, ..ok }, "16 slots"),
        (TableParameters { max_slots: 16, fill: 0.02, ..ok }, "fill"),
    ] {
        let error = client.load(bad, 1).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &[part]);
    }
    assert_empty_and_usable(&client);
}

#[test]
fn a_second_load_is_refused_and_the_first_goes_on_answering() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    crate::common::load(&client, TableParameters::default(), [3, 5, 9], 1).unwrap();
    for client in [client.clone(), node.client()] {
        let error = client.load(TableParameters::default(), 1).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &["already holds 3 keys", "another name"]);
        assert_eq!(client.get(5).unwrap(), Some(value_of(5, 1, 8)));
    }
}

#[test]
fn two_clients_loading_at_once() {
    let node = ThreadNode::start(SMALL);
    let (first, second) = (node.client(), node.client());
    let mut load = first.load(TableParameters::default(), 0).unwrap();
    load.push(1, &[1; 8]).unwrap();
    let error = second.load(TableParameters::default(), 0).unwrap_err();
    assert_says(&error, ErrorKind::Retry, &["another load", "wait"]);
    load.finish().unwrap();
    assert_eq!(second.get(1).unwrap(), Some(vec![1; 8]));
}

/// Sends more than one chunk, so that segments lie in the region already, and does not finish.
fn half_a_load(client: &Client) -> fpcache_client::Load<'_> {
    let mut load = client.load(TableParameters::default(), 0).unwrap();
    for key in 0..100_000u64 {
        load.push(key * 3, &key.to_le_bytes()).unwrap();
    }
    load
}

#[test]
fn two_loads_through_one_handle_do_not_mix() {
    let node = ThreadNode::start(SMALL);
    let client = node.client();
    let mut first = client.load(TableParameters::default(), 0).unwrap();
    assert_says(&client.load(TableParameters::default(), 0).unwrap_err(), ErrorKind::Retry, &["in progress"]);
    first.push(1, &[1; 8]).unwrap();
    assert_eq!(first.finish().unwrap().keys, 1);
    assert_eq!(client.get(1).unwrap(), Some(vec![1; 8]));
}

#[test]
fn a_load_that_is_dropped_leaves_nothing() {
    let node = ThreadNode::start(16 << 20);
    let client = node.client();
    drop(half_a_load(&client));
    assert_empty_and_usable(&client);
}

#[test]
fn a_client_that_vanishes_in_a_load_leaves_nothing() {
    let node = ThreadNode::start(16 << 20);
    let vanishing = node.client();
    // Gone without a word: nothing is sent but the end of the connection.
    std::mem::forget(half_a_load(&vanishing));
    drop(vanishing);
    let client = node.client();
    let begun = Instant::now();
    while let Err(error) = client.load(TableParameters::default(), 0) {
        assert_says(&error, ErrorKind::Retry, &["another client is loading"]);
        assert!(begun.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_empty_and_usable(&client);
}

#[test]
fn a_node_that_does_not_answer() {
    let directory = Directory::new();
    // A peer that listens, but never says a word.
    let _silent = std::os::unix::net::UnixListener::bind(directory.socket()).unwrap();
    let begun = Instant::now();
    let config = ClientConfig::default().with_deadline(Duration::from_millis(100));
    let error = Client::connect_with(&directory.url(), config).unwrap_err();
    assert_says(&error, ErrorKind::Retry, &["deadline", "welcome"]);
    assert!(begun.elapsed() < Duration::from_secs(5));
}
