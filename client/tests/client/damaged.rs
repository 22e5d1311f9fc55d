//! Records that are left half written in the region of a memory node over sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::layout::{SlotState, SlotWord};
use fpcache_client::{Client, ClientConfig, TableParameters, U64Keys};
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_fabric::{Export, HugePages, OneRegion, SharedMemory};
use fpcache_memserver::MemoryNode;

use crate::common::{load, region_name, value_of};
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

/// Each time its slot was read again they had all of their time once more.
#[test]
fn scans_that_meet_a_record_that_is_not_whole_end_with_their_deadline() {
    let (region, fd) = SharedMemory::create_memfd("test", CAPACITY, HugePages::No).unwrap();
    let region = Arc::new(region);
    let node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], ListenOptions::default()).unwrap();
    let url = listener.addresses()[0].to_string();
    let _serving = listener.spawn(OneRegion::new(region_name(), export, node)).unwrap();
    let far = slow(&url, Duration::from_millis(20));
    let client = Client::connect_with(&far, ClientConfig::default()).unwrap();
    load(&client, TableParameters::default(), 0..1_000, 1).unwrap();
    assert_eq!(client.scan(400, 100).unwrap().len(), 100);

    let slot = slot_of(&region, 450, &value_of(450, 1, 8));
    let live = region.load_relaxed(slot).unwrap();
    region.store_relaxed(slot, SlotWord::new(SlotState::Busy, 1, 0).to_bits()).unwrap();
    let hurried = client.with_deadline(Duration::from_millis(200));
    let calls: [(&str, &dyn Fn() -> bool); 3] = [
        ("scan", &|| hurried.scan(400, 100).is_err_and(|error| error.is_retryable())),
        ("scan back", &|| hurried.scan_back(500, 100).is_err_and(|error| error.is_retryable())),
        ("count", &|| hurried.count(400, 500).is_err_and(|error| error.is_retryable())),
    ];
    for (name, fails) in calls {
        let begun = Instant::now();
        assert!(fails(), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{name} took {:?}", begun.elapsed());
    }
    region.store_release(slot, live).unwrap();
    assert_eq!(hurried.scan(400, 100).unwrap().len(), 100);
}
