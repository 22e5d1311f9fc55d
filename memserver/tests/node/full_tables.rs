//! Tables without room: what they refuse, when they take more again, and what they leave to others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, post, statuses, value};
use crate::common::world::{Node, REGION, World, load, load_with};
use fpcache::TableName;
use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::layout::RecordToken;
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Work};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::{Catalogue, CatalogueConfig, MemoryNode};

const KIB: usize = 1 << 10;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// The length was known to find no room, and only a deletion of more than came since had it tried
/// again.
#[test]
fn a_value_is_not_refused_for_an_earlier_one_when_an_extent_is_free() {
    let region = Arc::new(SharedMemory::anonymous(8 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
    let none: [(u64, Vec<u8>); 0] = [];
    node.load_records(LongValues::parameters(24), (), none.into_iter()).expect("room");
    let mut writer = Writer::<LongValues>::new(1);
    let mut write = |node: &mut MemoryNode<U64Keys>, kind, key, len| {
        writer.one(node, kind, key, RecordToken::default(), &bytes(key, len)).status
    };
    let mut put =
        |node: &mut MemoryNode<U64Keys>, key, len| write(node, WriteKind::Put, key, len) == WriteStatus::Done;
    for (key, kib) in [(900_000, 40), (1_000_000, 96), (900_001, 40)] {
        assert!(put(&mut node, key, kib * KIB));
    }
    let mut pairs = 0;
    while put(&mut node, 2 * pairs, 8 * KIB) && put(&mut node, 2 * pairs + 1, 40 * KIB) {
        pairs += 1;
    }
    let mut deleter = Writer::<LongValues>::new(2);
    let mut delete = |node: &mut MemoryNode<U64Keys>, key| {
        let deleted = deleter.one(node, WriteKind::Delete, key, RecordToken::default(), &[]);
        assert_eq!(deleted.status, WriteStatus::Done);
    };
    // Many bytes come free in short pieces, and are not enough to have longer ones moved together.
    (5..65).for_each(|pair| delete(&mut node, 2 * pair));
    assert!((2_000_000..2_000_100).any(|key| !put(&mut node, key, 64 * KIB)));
    // As many records and fewer free bytes than then, but some of them in one piece.
    delete(&mut node, 1_000_000);
    assert!((3_000_000..3_000_012).all(|key| put(&mut node, key, 8 * KIB)));
    assert!(put(&mut node, 4_000_000, 64 * KIB), "{:?}", node.stats());
    node.audit().expect("every byte is right");
}

/// Whether a write is answered at once, as one is that waits neither for the disk nor for others.
fn is_at_once<T: TestKeys>(
    node: &mut Node<T>,
    client: u64,
    write: (WriteKind, u64, &[u8]),
) -> Option<WriteStatus> {
    let request = batch::<T>(&[write]);
    match post::<T>(node, ClientId(client), &request.request(client, 1, false)) {
        (Handled::Now, reply) => Some(statuses(&reply).expect("a reply")[0]),
        (Handled::Later, _) => None,
    }
}

/// Who is answered once the disk has all, and how.
fn answered<T: TestKeys>(node: &mut Node<T>) -> Vec<(u64, WriteStatus)> {
    (0..20).for_each(|_| _ = node.work());
    let mut answered = Vec::new();
    let mut reply = Vec::new();
    while let Some(client) = node.next_reply(&mut reply) {
        answered.push((client.0, statuses(&reply).expect("a reply")[0]));
    }
    answered.sort_unstable_by_key(|(client, _)| *client);
    answered
}

/// It waited for the disk first, and the table's other writers for it.
#[test]
fn an_insert_into_a_full_table_is_refused_without_waiting_for_the_disk() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let mut writer = Writer::<Integers>::new(1);
    let eight = value::<Integers>(1, 1, 8);
    let refused = (0..REGION as u64)
        .map(|n| 1_000 + n * 7)
        .find(|key| {
            let put = writer.one(&mut node, WriteKind::Put, *key, RecordToken::default(), &eight);
            put.status == WriteStatus::NoRoom
        })
        .expect("no region is endless");
    assert_eq!(answered::<Integers>(&mut node), []);
    assert_eq!(
        is_at_once::<Integers>(&mut node, 10, (WriteKind::Put, 50, &eight)),
        None,
        "it waits for the disk"
    );
    let insert = (WriteKind::Insert, refused, &eight[..]);
    assert_eq!(is_at_once::<Integers>(&mut node, 11, insert), Some(WriteStatus::NoRoom));
    assert_eq!(answered::<Integers>(&mut node), [(10, WriteStatus::Done)]);
    // A record that is being deleted may be what lies in the way.
    assert_eq!(is_at_once::<Integers>(&mut node, 12, (WriteKind::Delete, 50, &[])), None);
    assert_eq!(is_at_once::<Integers>(&mut node, 13, insert), None);
    assert!(matches!(answered::<Integers>(&mut node)[..], [(12, WriteStatus::Done), (13, _)]));
}

#[test]
fn a_value_for_a_full_table_is_refused_without_waiting_for_the_disk() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<LongValues>();
    load_with::<LongValues>(&mut node, 10, LongValues::parameters(24));
    let mut writer = Writer::<LongValues>::new(1);
    let long = bytes(1, 20 * KIB);
    let refused = (1_000..1_100).find(|key| {
        let put = writer.one(&mut node, WriteKind::Put, *key, RecordToken::default(), &long);
        put.status == WriteStatus::NoRoom
    });
    let refused = refused.expect("no region is endless");
    assert_eq!(is_at_once::<LongValues>(&mut node, 10, (WriteKind::Insert, 51, b"short")), None);
    let insert = (WriteKind::Insert, refused, &long[..]);
    assert_eq!(is_at_once::<LongValues>(&mut node, 11, insert), Some(WriteStatus::NoRoom));
    assert_eq!(answered::<LongValues>(&mut node), [(10, WriteStatus::Done)]);
    // The value before that of an update comes free.
    assert_eq!(is_at_once::<LongValues>(&mut node, 12, (WriteKind::Put, 1_000, b"short")), None);
    assert_eq!(is_at_once::<LongValues>(&mut node, 13, (WriteKind::Put, 1_001, b"short")), None);
    assert_eq!(is_at_once::<LongValues>(&mut node, 14, insert), None);
    let done = [12, 13, 14].map(|client| (client, WriteStatus::Done));
    assert_eq!(answered::<LongValues>(&mut node), done, "{:?}", node.stats());
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

    /// Puts values of `len` bytes until one is refused; returns how many there was room for.
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

/// Less than half of it was free, so that the table kept it, and others were refused as long as it
/// did.
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
