//! A table that lived within its region has room when it is restored, however full it was, and all
//! that was acknowledged.

use std::collections::BTreeMap;

use crate::common::keys::{Key, TestKeys};
use crate::common::requests::{Writer, value};
use crate::common::world::{Node, World, lost};
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::Service;
use fpcache_memserver::Origin;
use fpcache_memserver::durability::SyncPolicy;

/// Cold starts of each kind of keys; many more with `FPCACHE_COLD_STARTS`.
fn cold_starts() -> u64 {
    std::env::var("FPCACHE_COLD_STARTS").ok().and_then(|count| count.parse().ok()).unwrap_or(6)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What writes a table, and what it holds by the replies.
struct Life<T: TestKeys> {
    random: Random,
    writer: Writer<T>,
    most: usize,
    there: BTreeMap<u64, Vec<u8>>,
    writes: u64,
    /// Keys ascend, and the oldest go.
    is_queue: bool,
    head: u64,
}

impl<T: TestKeys> Life<T> {
    fn write(&mut self, node: &mut Node<T>, kind: WriteKind, key: u64) -> WriteStatus {
        self.writes += 1;
        let new = value::<T>(key, self.writes, self.most);
        let sent = if kind == WriteKind::Delete { &[][..] } else { &new };
        let status = self.writer.one(node, kind, key, RecordToken::default(), sent).status;
        match (status, kind) {
            (WriteStatus::Done, WriteKind::Delete) => assert!(self.there.remove(&key).is_some()),
            (WriteStatus::Done, _) => drop(self.there.insert(key, new)),
            (WriteStatus::NoRoom, _) => assert_ne!(kind, WriteKind::Delete),
            (other, _) => panic!("{kind:?} of {key}: {other:?}"),
        }
        status
    }

    fn insert(&mut self, node: &mut Node<T>) -> WriteStatus {
        self.head += 1;
        let key = if self.is_queue { self.head } else { self.random.below(1 << 40) << 12 | self.head };
        self.write(node, WriteKind::Insert, key)
    }

    fn delete(&mut self, node: &mut Node<T>) {
        let from = if self.is_queue { 0 } else { self.random.below(1 << 52) };
        let oldest = self.there.range(from..).chain(&self.there).next().map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.write(node, WriteKind::Delete, key);
        }
    }

    fn update(&mut self, node: &mut Node<T>) -> WriteStatus {
        let from =
            if self.is_queue { self.head - self.random.below(200) } else { self.random.below(1 << 52) };
        let some = self.there.range(from..).chain(&self.there).next().map(|(key, _)| *key);
        some.map_or(WriteStatus::NoRoom, |key| self.write(node, WriteKind::Update, key))
    }

    fn check(&self, node: &mut Node<T>, why: &str) {
        for (key, value) in &self.there {
            let found = self.writer.get(node, *key).map(|(value, _)| value);
            assert!(
                found.as_ref() == Some(value),
                "{key} of {} keys is not what was put: {why}",
                self.there.len()
            );
        }
        assert_eq!(node.stats().keys, self.there.len() as u64, "{why}");
        node.audit().unwrap_or_else(|error| panic!("{why}: {error}"));
    }
}

fn a_table_that_was_full_is_restored_with_all_that_was_acknowledged<T: TestKeys>() {
    let mut beyond = 0;
    for seed in 0..cold_starts() {
        let mut world = World::new(SyncPolicy::Never, seed);
        let (mut node, _) = world.begin::<T>();
        let most = if T::ENDS == 50 { [60, 300, 1000][seed as usize % 3] } else { 100 };
        let parameters = TableParameters { epsilon: 4, max_slots: 64, ..T::parameters(most as u32) };
        let none: [(Key<T>, Vec<u8>); 0] = [];
        node.load_records(parameters, T::encoders(), none.into_iter()).expect("room");
        let (writer, there) = (Writer::<T>::new(5), BTreeMap::new());
        // Records of all kinds of lives: in a queue, anywhere, and put wherever there is room left,
        // until nearly none is.
        let (random, is_queue, is_packed) = (Random(seed), seed % 3 == 0, seed % 3 == 1);
        let mut life = Life { random, writer, most, there, writes: 0, is_queue, head: 1000 };
        for lives in 0..2 {
            // Full, and then kept so.
            let mut full = 0;
            for _ in 0..12_000 {
                if full > 0 && !is_packed && life.random.below(3) == 0 {
                    life.delete(&mut node);
                } else if full > 0 && !is_packed && life.random.below(4) == 0 {
                    life.update(&mut node);
                } else if life.insert(&mut node) == WriteStatus::NoRoom {
                    full += 1;
                    if full > if is_packed { 1500 } else { 150 } {
                        break;
                    }
                    if !is_packed {
                        life.delete(&mut node);
                    }
                }
                if life.random.below(3) == 0 {
                    node.work();
                }
                if life.random.below(300) == 0 {
                    node.begin_snapshot();
                }
            }
            assert!(full > 0, "seed {seed}: the table did not become full");
            while node.stats().synced < node.stats().logged {
                node.begin_snapshot();
                node.work();
            }
            drop(node);
            world.disk = world.disk.crash();
            (world.region, world.recovery_area) = lost(&world.left);
            let recovery;
            (node, recovery) = world.begin::<T>();
            assert!(matches!(recovery.origin, Origin::Disk { .. }), "{recovery}");
            let why = format!("seed {seed}, life {lives}: {recovery}");
            life.check(&mut node, &why);
            let stats = node.stats();
            if stats.used_bytes > stats.region_bytes {
                beyond += 1;
                for _ in 0..300 {
                    life.insert(&mut node);
                    assert_eq!(life.update(&mut node), WriteStatus::Done, "{why}");
                    node.work();
                }
                assert!(node.stats().used_bytes <= stats.used_bytes, "{why}: it has taken more memory");
            }
            let key = *life.there.keys().next().expect("it was full");
            life.write(&mut node, WriteKind::Delete, key);
            // It takes records again when some were deleted.
            let mut deleted = 0;
            while life.insert(&mut node) == WriteStatus::NoRoom {
                life.delete(&mut node);
                node.work();
                deleted += 1;
                assert!(!life.there.is_empty(), "{why}: {deleted} deleted");
            }
            life.check(&mut node, &why);
        }
    }
    println!("{beyond} of {} cold starts went beyond the limit", 2 * cold_starts());
}

for_all_keys_and_long_values!(a_table_that_was_full_is_restored_with_all_that_was_acknowledged,);
