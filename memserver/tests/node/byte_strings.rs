//! Keys of any length where tables of byte strings are strained most: keys that lack what their
//! segment skips, more keys of one coordinate than a window has slots, separators as long as keys
//! can be, every key a prefix of the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Strings, TestKeys};
use crate::common::requests::Writer;
use crate::common::world::World;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyEncoders};
use fpcache::layout::{MAX_VALUE_BYTES, RecordShape, RecordToken, TableParameters};
use fpcache::message::{Sent, WriteKind, WriteOperation, WriteStatus};
use fpcache_fabric::{NodeMemory, Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::durability::SyncPolicy;

/// A table for keys of up to `key_bytes` bytes with short values.
fn parameters(key_bytes: u32, epsilon: u32) -> TableParameters {
    let shape = RecordShape { key_bytes: None, value_bytes: None, room: key_bytes + 8 };
    TableParameters { shape, epsilon, max_slots: 512, ..TableParameters::default() }
}

/// A memory node and what it is to hold.
struct Checked<M: NodeMemory> {
    node: MemoryNode<ByteKeys, M>,
    writer: Writer<Strings>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Checked<SharedMemory> {
    fn new(capacity: usize, parameters: TableParameters, encoders: KeyEncoders, keys: &[Vec<u8>]) -> Self {
        let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
        let node = MemoryNode::new(region, 1, 0, Instant::now()).expect("a region");
        Checked::over(node, parameters, encoders, keys)
    }
}

impl<M: NodeMemory> Checked<M> {
    fn over(
        mut node: MemoryNode<ByteKeys, M>,
        parameters: TableParameters,
        encoders: KeyEncoders,
        keys: &[Vec<u8>],
    ) -> Self {
        let mut keys = keys.to_vec();
        keys.sort();
        let model: BTreeMap<_, _> = keys.into_iter().map(|key| (key, b"loaded".to_vec())).collect();
        let records = model.iter().map(|(key, value)| (key.clone(), value));
        node.load_records(parameters, encoders, records).expect("room");
        Self { node, writer: Writer::new(1), model }
    }

    #[track_caller]
    fn insert(&mut self, key: &[u8]) {
        let value = key[key.len() - key.len().min(8)..].to_vec();
        let reply =
            self.writer.one_of(&mut self.node, WriteKind::Insert, key, RecordToken::default(), &value);
        let wanted = if self.model.contains_key(key) { WriteStatus::Exists } else { WriteStatus::Done };
        assert_eq!(reply.status, wanted, "\"{}\"", key.escape_ascii());
        self.model.entry(key.to_vec()).or_insert(value);
        if self.model.len().is_multiple_of(32) {
            while self.node.work() == Work::More {}
        }
    }

    #[track_caller]
    fn check(&mut self) {
        let audit = self.node.audit().expect("every byte is right").expect("a table");
        assert_eq!(audit.keys, self.model.len() as u64);
        for (key, value) in &self.model {
            let found = self.writer.get_of(&mut self.node, key).map(|(value, _)| value);
            assert_eq!(found.as_ref(), Some(value), "\"{}\"", key.escape_ascii());
        }
    }
}

fn keys(count: u64, key: impl Fn(u64) -> String) -> Vec<Vec<u8>> {
    (0..count).map(|i| key(i).into_bytes()).collect()
}

fn trained(keys: &[Vec<u8>]) -> KeyEncoders {
    ByteKeys::train(keys.iter().map(Vec::as_slice), 0)
}

#[test]
fn keys_without_the_prefix_that_their_segment_skips_find_room_above_it_and_below() {
    let loaded = keys(500, |i| format!("https://example.org/catalogue/of/things/{i:06}"));
    for encoders in [KeyEncoders::default(), trained(&loaded)] {
        let mut table = Checked::new(4 << 20, parameters(64, 4), encoders, &loaded);
        for i in 0..300 {
            // Above all that have the prefix, below them, and in their midst but for the end of the
            // prefix.
            table.insert(format!("https://example.org/d{i:04}").as_bytes());
            table.insert(format!("https://example.net/{i:04}").as_bytes());
            table.insert(format!("https://example.org/catalogue/of/thingz/{i:04}").as_bytes());
            table.insert(format!("https://example.org/catalogue/of/things{i:04}").as_bytes());
            table.insert(format!("z{i}").as_bytes());
            table.insert(format!("{i}").as_bytes());
        }
        table.check();
    }
}

#[test]
fn more_keys_of_one_coordinate_than_a_window_holds_are_told_apart() {
    let loaded = keys(300, |i| format!("{:08x}", i.wrapping_mul(0x9e37_79b9)));
    for encoders in [KeyEncoders::default(), trained(&loaded)] {
        for epsilon in [0, 1, 2, 8, 32] {
            let mut table = Checked::new(4 << 20, parameters(96, epsilon), encoders.clone(), &loaded);
            for i in 0..400u64 {
                let mixed = i.wrapping_mul(7919) % 400;
                // Every encoder has given up long before these differ.
                table.insert(format!("7777{}{mixed:03}", "deep".repeat(20)).as_bytes());
                // And once more deeper still, within the first.
                table.insert(format!("7777{}1{}{mixed:03}", "deep".repeat(16), "er".repeat(8)).as_bytes());
            }
            table.check();
        }
    }
}

#[test]
fn a_segment_of_many_groups_of_equal_keys_is_replaced_in_a_short_log() {
    // A load has them in one segment. A rebuild would give each group one of its own, as many keys
    // are to be equal in none, and the separators of all these are longer than the change log.
    let key = |group: u8, rest: [u8; 2]| [&[3 + 6 * group][..], &[b'x'; 3999], &rest].concat();
    let loaded: Vec<Vec<u8>> =
        (0..37).flat_map(|group| (0..6).map(move |i| key(group, [b'k', 20 * i]))).collect();
    let mut table = Checked::new(8 << 20, parameters(4002, 8), KeyEncoders::default(), &loaded);
    for i in 0..60 {
        table.insert(&key(17, [b'k' + i % 2, 2 * i + 1]));
    }
    table.check();
}

#[test]
fn every_key_may_be_a_prefix_of_the_next() {
    for byte in [0, b'a', 255] {
        for order in 0..3 {
            let mut table = Checked::new(8 << 20, parameters(600, 4), KeyEncoders::default(), &[]);
            for i in 1..=600usize {
                let len = [i, 601 - i, 1 + i * 7 % 601][order];
                table.insert(&vec![byte; len.min(600)]);
            }
            table.check();
        }
    }
}

#[test]
fn keys_of_four_kibibytes_are_inserted_into_a_small_region_until_it_is_full() {
    let long = |i: u64| {
        let mut key = vec![b'x'; 4096];
        // They differ at the end, in the middle, or at the beginning.
        let at = [4088, 2000, 3][i as usize % 3];
        key[at..at + 8].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        key
    };
    let mut table = Checked::new(1 << 20, parameters(4096, 4), KeyEncoders::default(), &[]);
    let mut full = 0;
    for i in 0..1000 {
        let (key, token) = (long(i), RecordToken::default());
        let reply = table.writer.one_of(&mut table.node, WriteKind::Insert, &key, token, b"v");
        match reply.status {
            WriteStatus::Done => drop(table.model.insert(key, b"v".to_vec())),
            WriteStatus::NoRoom => full += 1,
            other => panic!("{other:?}"),
        }
        while table.node.work() == Work::More {}
        if full == 10 {
            break;
        }
    }
    table.check();
    assert!(full == 10 && table.model.len() > 135, "{} keys of 4 KiB in 1 MiB", table.model.len());
    // Half of them go, and as many come again.
    let gone: Vec<Vec<u8>> = table.model.keys().step_by(2).cloned().collect();
    for key in &gone {
        let token = RecordToken::default();
        table.writer.one_of(&mut table.node, WriteKind::Delete, key, token, b"");
        table.model.remove(key);
    }
    let again = gone.iter().filter(|key| {
        while table.node.work() == Work::More {}
        let token = RecordToken::default();
        let reply = table.writer.one_of(&mut table.node, WriteKind::Insert, key, token, b"w");
        if reply.status == WriteStatus::Done {
            table.model.insert(key.to_vec(), b"w".to_vec());
        }
        reply.status == WriteStatus::Done
    });
    assert!(again.count() * 4 > gone.len() * 3);
    table.check();
}

#[test]
fn a_table_that_began_empty_fills_its_region_with_records() {
    let parameters = parameters(24, 8);
    let mut table = Checked::new(4 << 20, parameters, KeyEncoders::default(), &[]);
    let slot = parameters.geometry().slot_bytes + parameters.width.bytes();
    let mut inserted = 0;
    for i in 0..u64::MAX {
        let key = format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let token = RecordToken::default();
        let reply = table.writer.one_of(&mut table.node, WriteKind::Insert, key.as_bytes(), token, b"v");
        if reply.status != WriteStatus::Done {
            break;
        }
        inserted += 1;
        if i.is_multiple_of(16) {
            while table.node.work() == Work::More {}
        }
    }
    let full = (4 << 20) / slot;
    assert!(inserted * 5 > full * 3, "{inserted} records, where {full} slots fill the region");
    table.node.audit().expect("every byte is right");
}

#[test]
fn keys_and_values_of_lengths_that_no_record_has_are_refused_and_change_nothing() {
    let mut table = Checked::new(4 << 20, parameters(4098, 8), KeyEncoders::default(), &[b"k".to_vec()]);
    let (writer, node) = (&mut table.writer, &mut table.node);
    let no_records = [
        (vec![], vec![]),
        (vec![1; 4097], vec![]),
        // Neither beside its key nor outside: there is no room for an address.
        (vec![1; 4096], vec![0; 11]),
        (vec![1; 4091], vec![0; MAX_VALUE_BYTES]),
        (vec![1; 10], vec![0; MAX_VALUE_BYTES + 1]),
    ];
    for (key, value) in no_records {
        let (requests, batch) = (1, {
            let mut batch = fpcache::message::WriteBatch::default();
            batch.push::<ByteKeys>(&WriteOperation {
                kind: WriteKind::Put,
                key: key.as_slice(),
                hint: None,
                expected: RecordToken::default(),
                value: Sent::Here(&value),
            });
            batch
        });
        let reply = crate::common::requests::call::<Strings>(node, &batch.request(77, requests, false));
        let refusal = fpcache::message::decode_reply(&reply).expect_err("no record");
        assert!(refusal.message.contains("bytes"), "{refusal}");
    }
    assert_eq!(writer.get_of(node, b""), None);
    assert_eq!(node.stats().keys, 1);
    table.check();
}

/// Encoders lie in the region like segments: a process that goes on must not take their memory for
/// free.
#[test]
fn encoders_survive_every_end_and_are_not_written_over() {
    let sample = keys(400, |i| format!("{}/{i:05}", crate::common::keys::Paths::key(i).escape_ascii()));
    let (encoders, loaded) = (trained(&sample), &sample[..40]);
    let mut world = World::new(SyncPolicy::Always, 3);
    let (node, _) = world.begin::<Strings>();
    let parameters = TableParameters { epsilon: 4, max_slots: 64, ..parameters(100, 4) };
    let mut table = Checked::over(node, parameters, encoders, loaded);
    for life in 0..6usize {
        for key in sample.iter().skip(40 + life * 60).take(60) {
            table.insert(key);
        }
        table.check();
        let Checked { node, model, .. } = table;
        drop(node);
        if life % 3 == 2 {
            // The machine ends, and all there is is on the disk.
            world.disk = world.disk.crash();
            world.region = crate::common::world::Mortal::new(crate::common::world::REGION, &world.left);
            let recovery_area =
                fpcache_memserver::store::recovery_area_bytes(crate::common::world::RING) as usize;
            world.recovery_area = crate::common::world::Mortal::new(recovery_area, &world.left);
        }
        let (node, recovery) = world.begin::<Strings>();
        assert_eq!(recovery.keys, model.len() as u64, "{recovery}");
        table = Checked { node, writer: Writer::new(100 + life as u64), model };
        table.check();
    }
}
