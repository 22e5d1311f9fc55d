//! The tables of the rounds and their keys.

use std::time::Duration;

use fpcache_client::{ClientConfig, TableClient, TableName};
use fpcache_eval::history::keys::NumberedKeys;

pub(super) const CAPACITY: u64 = 16 << 20;
/// Callers at once.
pub(super) const THREADS: u32 = 4;
pub(super) const KEYS: u64 = 400;
/// Places of the keys that are the queue of one caller, and how many of them it has there at a
/// time.
pub(super) const QUEUE: u64 = 60;
pub(super) const LIVE: u64 = 6;

pub(super) fn key(place: u64) -> u64 {
    place * 1_000
}

/// The keys of a caller's queue, after all others.
pub(super) fn queue(caller: u32) -> impl Iterator<Item = u64> {
    let first = KEYS + u64::from(caller) * QUEUE;
    (first..first + QUEUE).map(key)
}

/// The first table is the one that there is anyway.
pub(super) fn table_name(table: usize) -> TableName {
    match table {
        0 => TableName::default(),
        other => format!("table-{other}").parse().unwrap(),
    }
}

pub(super) fn connect<K: NumberedKeys>(url: &str, config: ClientConfig) -> TableClient<K> {
    TableClient::connect_with(url, config).unwrap()
}

pub(super) fn patient() -> ClientConfig {
    ClientConfig::default().with_deadline(Duration::from_secs(20))
}
