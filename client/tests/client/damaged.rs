//! Records that are left half written in the region of a memory node over sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::layout::{SlotState, SlotWord};
use fpcache_client::{Client, ClientConfig, TableParameters, U64Keys};
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_fabric::{Export, HugePages, OneRegion, Serving, SharedMemory};
use fpcache_memserver::MemoryNode;

use crate::common::{load, patient, region_name, value_of};
use crate::proxies::slow;

const CAPACITY: usize = 8 << 20;

/// Where the slot of a record lies in a region.
fn slot_of(region: &SharedMemory, key: u64, value: &[u8]) -> u64 {
    let mut bytes = vec![0; CAPACITY];
    region.read_bytes(0, &mut bytes).unwrap();
    let record = [&key.to_le_bytes(), value].concat();
    let word = |at: usize| SlotWord::from_bits(region.load_relaxed(at as u64).unwrap());
    let is_live = |at: &usize| word(*at - 8).state() == SlotState::Live;
    let mut found = (8..CAPACITY - record.len()).step_by(8).filter(|at| bytes[*at..].starts_with(&record));
    found.find(is_live).unwrap() as u64 - 8
}

/// A memory node over TCP whose region can be changed, and where it listens.
fn start() -> (Arc<SharedMemory>, Serving, String) {
    let (region, fd) = SharedMemory::create_memfd("test", CAPACITY, HugePages::No).unwrap();
    let region = Arc::new(region);
    let node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], ListenOptions::default()).unwrap();
    let url = listener.addresses()[0].to_string();
    let serving = listener.spawn(OneRegion::new(region_name(), export, node)).unwrap();
    (region, serving, url)
}

/// Leaves a record half written, and says where, and what its word was.
fn spoil(region: &SharedMemory, key: u64) -> (u64, u64) {
    let slot = slot_of(region, key, &value_of(key, 1, 8));
    let live = region.load_relaxed(slot).unwrap();
    region.store_relaxed(slot, SlotWord::new(SlotState::Busy, 1, 0).to_bits()).unwrap();
    (slot, live)
}

/// Each time its slot was read again they had all of their time once more.
#[test]
fn scans_that_meet_a_record_that_is_not_whole_end_with_their_deadline() {
    let (region, _serving, url) = start();
    let far = slow(&url, Duration::from_millis(20));
    let client = Client::connect_with(&far, patient()).unwrap();
    load(&client, TableParameters::default(), 0..1_000, 1).unwrap();
    assert_eq!(client.scan(400, 100).unwrap().len(), 100);

    let (slot, live) = spoil(&region, 450);
    let hurried = client.with_deadline(Duration::from_millis(200));
    let calls: [(&str, &dyn Fn() -> bool); 3] = [
        ("scan", &|| hurried.scan(400, 100).is_err_and(|error| error.is_retryable())),
        ("scan back", &|| hurried.scan_back(500, 100).is_err_and(|error| error.is_retryable())),
        ("count", &|| hurried.count(400, 500).is_err_and(|error| error.is_retryable())),
    ];
    for (name, fails) in calls {
        let begun = Instant::now();
        assert!(fails(), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} took {:?}", begun.elapsed());
    }
    region.store_release(slot, live).unwrap();
    assert_eq!(client.scan(400, 100).unwrap().len(), 100);
}

/// All calls of its group waited for it and ended with its error, and the worker read nothing
/// meanwhile.
#[cfg(feature = "tokio")]
#[test]
fn a_record_that_cannot_be_read_fails_no_reads_of_other_tasks() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use fpcache_client::AsyncClient;
    use tokio::task::JoinSet;

    let (region, _serving, url) = start();
    let config = ClientConfig::default().with_deadline(Duration::from_secs(4));
    let client = Client::connect_with(&url, config).unwrap();
    load(&client, TableParameters::default(), 0..1_000, 1).unwrap();
    spoil(&region, 450);
    crate::asynchronous::threads(2).block_on(async {
        let (client, is_over) = (AsyncClient::of(client), Arc::new(AtomicBool::new(false)));
        let mut readers = JoinSet::new();
        for reader in 0..16u64 {
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            readers.spawn(async move {
                let mut answered = 0;
                for key in (500 + reader..1_000).cycle() {
                    let (value, nearest) = (client.get(key).await, client.floor(key).await);
                    assert_eq!(value.unwrap(), Some(value_of(key, 1, 8)), "key {key}");
                    assert_eq!(nearest.unwrap().map(|(key, _)| key), Some(key));
                    answered += 1;
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                answered
            });
        }
        // More than there are workers, and more than there are threads for them.
        let mut stuck = JoinSet::new();
        for _ in 0..6 {
            let (one, other) = (client.clone(), client.clone());
            stuck.spawn(async move { one.get(450).await.map(drop) });
            stuck.spawn(async move { other.floor(450).await.map(drop) });
        }
        for ended in stuck.join_all().await {
            let error = ended.unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        is_over.store(true, Ordering::Relaxed);
        let answered = readers.join_all().await;
        assert!(answered.iter().all(|count| *count > 1), "{answered:?}");
    });
}
