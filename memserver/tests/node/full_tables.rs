//! What tables without room leave to others.

use std::collections::BTreeMap;

use crate::common::keys::{LongValues, TestKeys};
use crate::common::requests::{batch, statuses};
use fpcache::TableName;
use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Handled, Service, Work};
use fpcache_memserver::{Catalogue, CatalogueConfig};

const KIB: usize = 1 << 10;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Tables that share a budget, and a client of each.
struct Tables {
    catalogue: Catalogue,
    names: Vec<TableName>,
    creations: Vec<u64>,
    requests: u64,
}

impl Tables {
    fn new(capacity: usize, names: &[&str]) -> Self {
        let mut catalogue = Catalogue::open(&CatalogueConfig::of(capacity as u64)).expect("memory");
        let names: Vec<TableName> = names.iter().map(|name| name.parse().expect("a name")).collect();
        let mut creations = Vec::new();
        for (i, name) in names.iter().enumerate() {
            catalogue.create(*name, KeyKind::U64, None).expect("room");
            let node = catalogue.node::<U64Keys>(name).expect("a table");
            let none: [(u64, Vec<u8>); 0] = [];
            node.load_records(LongValues::parameters(24), (), none.into_iter()).expect("room");
            catalogue.connected(ClientId(i as u64), name.as_str().as_bytes());
            creations.push(catalogue.export(name.as_str().as_bytes()).expect("a table").creation());
        }
        Self { catalogue, names, creations, requests: 0 }
    }

    fn write(&mut self, table: usize, kind: WriteKind, key: u64, value: &[u8]) -> WriteStatus {
        self.requests += 1;
        let (client, mut bytes, mut reply) = (ClientId(table as u64), Vec::new(), Vec::new());
        let request = batch::<LongValues>(&[(kind, key, value)]);
        request.request(client.0, self.requests, false).encode::<U64Keys>(self.creations[table], &mut bytes);
        if self.catalogue.handle(client, &bytes, &mut reply) == Handled::Later {
            while self.catalogue.next_reply(&mut reply).is_none() {
                self.catalogue.work();
            }
        }
        statuses(&reply).expect("a reply")[0]
    }

    /// Puts values of so many bytes until one is refused; how many there was room for.
    fn fill(&mut self, table: usize, first: u64, len: usize) -> u64 {
        let is_done =
            |key: &u64| self.write(table, WriteKind::Put, *key, &bytes(*key, len)) == WriteStatus::Done;
        (first..).take_while(is_done).count() as u64
    }

    /// Has the tables do what they do between requests.
    fn rest(&mut self) {
        let steps = (0..1_000_000).take_while(|_| self.catalogue.work() == Work::More).count();
        assert!(steps < 1_000_000, "there is always more to do");
    }
}

/// Less than half of it was free, so that the table kept it, and others were refused as long as it did.
#[test]
fn what_a_table_does_not_use_is_others_once_they_are_refused() {
    const CAPACITY: usize = 24 << 20;
    let mut tables = Tables::new(CAPACITY, &["a", "b"]);
    let records = tables.fill(0, 0, 8 * KIB);
    for key in (0..records).filter(|key| key % 3 == 0) {
        assert_eq!(tables.write(0, WriteKind::Delete, key, &[]), WriteStatus::Done);
    }
    tables.rest();
    let used = |tables: &mut Tables| {
        let nodes = tables.names.clone();
        nodes
            .iter()
            .map(|name| tables.catalogue.node::<U64Keys>(name).expect("a table").stats().used_bytes)
            .sum::<u64>()
    };
    let mut first = 1 << 32;
    let mut filled = BTreeMap::new();
    for round in 0..4 {
        let put = tables.fill(1, first, 40 * KIB);
        first += put;
        tables.rest();
        filled.insert(round, (put, used(&mut tables) >> 10));
    }
    let used = used(&mut tables);
    assert!(used * 5 / 4 + (1 << 20) > CAPACITY as u64, "{used} of {CAPACITY} are in use: {filled:?}");
    for name in &tables.names {
        tables.catalogue.node::<U64Keys>(name).expect("a table").audit().expect("every byte is right");
    }
}
