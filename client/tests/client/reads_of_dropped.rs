//! Tables that are dropped while they are read: whatever a reader is told of one, in whatever way
//! it reads, was so while the table was there, or is that it is gone.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Directory, TestKeys, load, patient, value_in, wait_until};
use fpcache_client::{
    CacheConfig, ClientConfig, ClientError, CreateOptions, KeyKind, Plan, PlanChoice, TableClient, TableName,
    Tables,
};
use fpcache_fabric::{Serving, shm, tcp};
use fpcache_memserver::{Catalogue, CatalogueConfig};

for_both_kinds_of_keys!(
    readers_over_shared_memory_are_told_nothing_wrong_of_a_table_that_is_dropped,
    readers_over_sockets_are_told_nothing_wrong_of_a_table_that_is_dropped,
);

/// Enough for their memory to go back in several steps.
const KEYS: u64 = 20_000;
const READERS: usize = 3;

/// Ways to read, of which some there are over sockets alone.
fn ways() -> Vec<ClientConfig> {
    let plans = [Plan::TwoStage, Plan::Range, Plan::Speculative, Plan::AtNode].map(PlanChoice::Fixed);
    let base = patient();
    let plain = plans.into_iter().map(|plan| base.clone().with_plan(plan));
    let cached = base.clone().with_cache(Some(CacheConfig::of(1 << 20)));
    plain.chain([base.clone(), cached]).collect()
}

/// Reads until the table is gone, in the way of this number, and counts how often it read.
fn read_until_gone<K: TestKeys>(client: &TableClient<K>, way: usize, all: &AtomicU64) {
    let value = |number| value_in(&K::shape(Some(8)), number, 1);
    let (mut reads, mut state) = (0u64, way as u64 + 1);
    loop {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (state >> 33) % KEYS;
        let read = match reads % 4 {
            0 | 1 => {
                client.get(K::key(number)).map(|found| assert_eq!(found, Some(value(number)), "{number}"))
            }
            2 => {
                let numbers: Vec<u64> = (0..20).map(|i| (number + i * 997) % KEYS).collect();
                let keys: Vec<K::Owned> = numbers.iter().map(|number| K::key(*number)).collect();
                client.multi_get(&keys).map(|found| {
                    let expected: Vec<_> = numbers.iter().map(|number| Some(value(*number))).collect();
                    assert_eq!(found, expected);
                })
            }
            _ => client.scan(K::key(number), 30).map(|found| {
                let numbers = number..(number + 30).min(KEYS);
                let expected: Vec<_> = numbers.map(|number| (K::key(number), value(number))).collect();
                assert!(found == expected, "a scan from {number} has {} records", found.len());
            }),
        };
        match read {
            Ok(()) => {
                reads += 1;
                all.fetch_add(1, Ordering::Relaxed);
            }
            Err(ClientError::NoSuchTable { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn drop_under_readers<K: TestKeys>(url: &str) {
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    let (tables, name): (_, TableName) = (Tables::connect(url).unwrap(), "t".parse().unwrap());
    for way in ways() {
        tables.create(&name, kind, CreateOptions::default()).unwrap();
        let clients: Vec<TableClient<K>> = (0..READERS)
            .map(|_| TableClient::connect_with(url, way.clone().with_table(name)).unwrap())
            .collect();
        load(&clients[0], K::parameters(), 0..KEYS, 1).unwrap();
        let (reads, met) = (AtomicU64::new(0), Barrier::new(READERS + 1));
        thread::scope(|scope| {
            for (number, client) in clients.iter().enumerate() {
                let (reads, met) = (&reads, &met);
                scope.spawn(move || {
                    client.get(K::key(0)).unwrap();
                    met.wait();
                    read_until_gone::<K>(client, number, reads);
                });
            }
            met.wait();
            thread::sleep(Duration::from_millis(20));
            // On a busy machine nobody has read by then.
            wait_until(|| reads.load(Ordering::Relaxed) > 0);
            tables.drop_table(&name).unwrap();
        });
        assert!(reads.into_inner() > 0, "nobody has read before");
    }
}

fn config() -> CatalogueConfig {
    CatalogueConfig::of(64 << 20)
}

fn readers_over_shared_memory_are_told_nothing_wrong_of_a_table_that_is_dropped<K: TestKeys>() {
    let directory = Directory::new();
    let listener = shm::Listener::bind(&directory.address(), shm::ListenOptions::default()).unwrap();
    let _serving: Serving = listener.spawn(Catalogue::open(&config()).unwrap()).unwrap();
    drop_under_readers::<K>(&directory.url());
}

fn readers_over_sockets_are_told_nothing_wrong_of_a_table_that_is_dropped<K: TestKeys>() {
    let options = tcp::ListenOptions { io_threads: 2, ..tcp::ListenOptions::default() };
    let listener = tcp::Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
    let url = listener.addresses()[0].to_string();
    let _serving: Serving = listener.spawn(Catalogue::open(&config()).unwrap()).unwrap();
    drop_under_readers::<K>(&url);
}
