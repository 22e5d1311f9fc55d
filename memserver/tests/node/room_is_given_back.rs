//! Memory that records no longer need is given back: whatever was written and deleted, a memory
//! node takes at most half as much again as one that was loaded with the same records, and a
//! mebibyte; and it has room for more unless it has so much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::keys::{Integers, LongValues, TestKeys};
use crate::common::requests::{Writer, batch, call, statuses, value};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;

/// Operations of a request.
const BATCH: usize = 64;

/// How many times as much the suites do: once, or as often as the environment says.
fn times() -> u64 {
    std::env::var("FPCACHE_ROOM_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// A table that is written to, and what it is to hold.
struct Churned<T: TestKeys> {
    node: MemoryNode<T::Space>,
    capacity: usize,
    /// The number of the write that gave each key its value, and the value's length.
    model: BTreeMap<u64, (u64, usize)>,
    waiting: Vec<(WriteKind, u64, Vec<u8>)>,
    /// Which keys to, with the value of which write.
    writes: u64,
    requests: u64,
    refused: u64,
    /// What the longest request took, with the work between it and the next.
    longest: Duration,
    parameters: fpcache::layout::TableParameters,
}

/// A value of `len` bytes, or, if that is 0, of as many as the keys' suite gives values.
fn value_of<T: TestKeys>(key: u64, n: u64, len: usize) -> Vec<u8> {
    if len == 0 {
        return value::<T>(key, n, 8);
    }
    let word = (key ^ n.wrapping_mul(0x5851_f42d_4c95_7f2d)).to_le_bytes();
    word.into_iter().cycle().take(len).collect()
}

fn random(n: u64) -> u64 {
    let mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl<T: TestKeys> Churned<T> {
    /// A table without records in a region of `capacity` bytes.
    fn new(capacity: usize) -> Self {
        let parameters = T::parameters(8);
        let node = Self::loaded(capacity, parameters, &BTreeMap::new());
        let model = BTreeMap::new();
        let (waiting, longest) = (Vec::new(), Duration::ZERO);
        Self { node, capacity, model, waiting, writes: 0, requests: 0, refused: 0, longest, parameters }
    }

    /// A memory node that was loaded with these records.
    fn loaded(
        capacity: usize,
        parameters: fpcache::layout::TableParameters,
        model: &BTreeMap<u64, (u64, usize)>,
    ) -> MemoryNode<T::Space> {
        let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
        let mut node = MemoryNode::new(region, 1, 0, Instant::now()).expect("a region");
        let records: Vec<_> =
            model.iter().map(|(key, (n, len))| (T::key(*key), value_of::<T>(*key, *n, *len))).collect();
        node.load_records(parameters, T::encoders(), records.into_iter()).expect("room");
        node
    }

    fn put(&mut self, key: u64, len: usize) {
        self.writes += 1;
        let value = value_of::<T>(key, self.writes, len);
        self.model.insert(key, (self.writes, len));
        self.push(WriteKind::Put, key, value);
    }

    fn delete(&mut self, key: u64) {
        self.model.remove(&key);
        self.push(WriteKind::Delete, key, Vec::new());
    }

    fn push(&mut self, kind: WriteKind, key: u64, value: Vec<u8>) {
        self.waiting.push((kind, key, value));
        if self.waiting.len() == BATCH {
            self.send();
        }
    }

    /// Sends what waits, and has the memory node do what it does between requests.
    fn send(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let writes: Vec<_> = waiting.iter().map(|(kind, key, value)| (*kind, *key, &value[..])).collect();
        self.requests += 1;
        let began = Instant::now();
        let reply = call::<T>(&mut self.node, &batch::<T>(&writes).request(1, self.requests, false));
        for ((kind, key, _), status) in writes.iter().zip(statuses(&reply).expect("a reply")) {
            match status {
                WriteStatus::Done => {}
                WriteStatus::NoRoom => {
                    self.refused += 1;
                    self.check_refusal();
                    // It keeps what it had, which is not known any more.
                    self.model.remove(key);
                    self.waiting.push((WriteKind::Delete, *key, Vec::new()));
                }
                WriteStatus::Absent if *kind == WriteKind::Delete => {}
                status => panic!("{status:?} to {kind:?} of {key}"),
            }
        }
        let _ = self.node.work();
        self.longest = self.longest.max(began.elapsed());
    }

    /// There may be no room only if a memory node of as many bytes could not be expected to hold so
    /// much.
    fn check_refusal(&self) {
        let bound = self.bound();
        assert!(
            bound > self.capacity as u64,
            "no room in {}, though {} records are to take {bound} at most: {:?}",
            self.capacity,
            self.model.len(),
            self.node.stats()
        );
    }

    /// Bytes that these records are to take at most.
    fn bound(&self) -> u64 {
        let fresh = Self::loaded(2 * self.capacity, self.parameters, &self.model);
        fresh.stats().used_bytes * 3 / 2 + (1 << 20)
    }

    /// Has the memory node do what it does in the background until nothing is left, and looks at
    /// what it takes.
    fn settle(&mut self, when: &str) {
        while !self.waiting.is_empty() {
            self.send();
        }
        let mut steps = 0;
        while self.node.work() == Work::More {
            steps += 1;
            assert!(steps < 1_000_000, "{when}: the background never rests: {:?}", self.node.stats());
        }
        let stats = self.node.stats();
        let audit = self.node.audit().expect("every byte is right").expect("a table");
        assert_eq!(audit.keys, self.model.len() as u64, "{when}");
        let bound = self.bound();
        println!(
            "{when}: {} keys, {} bytes, {bound} at most, {} copies, {} inserts, {} rebuilds, {} refused",
            stats.keys, stats.used_bytes, stats.copies, stats.inserts, stats.rebuilds, self.refused
        );
        assert!(stats.used_bytes <= bound, "{when}: more than {bound} bytes: {stats:?}");
        let writer = Writer::<T>::new(9);
        for (key, (n, len)) in self.model.iter().step_by(1 + self.model.len() / 300) {
            let found = writer.get(&mut self.node, *key).map(|(value, _)| value);
            assert!(found == Some(value_of::<T>(*key, *n, *len)), "{when}: key {key}");
        }
    }
}

/// The numbers of a queue's keys: far enough apart for all kinds of keys.
fn queue<T: TestKeys>(capacity: usize, live: u64, puts: u64, key: impl Fn(u64) -> u64) {
    let mut churned = Churned::<T>::new(capacity);
    for n in 0..puts {
        churned.put(key(n), 0);
        if n >= live {
            churned.delete(key(n - live));
        }
    }
    assert_eq!(churned.refused, 0);
    churned.settle("a queue");
    for n in puts - live..puts {
        churned.delete(key(n));
    }
    churned.settle("an empty queue");
}

fn a_queue_of_ascending_keys_needs_room_for_what_it_holds<T: TestKeys>() {
    queue::<T>(2 << 20, 2_000, 20_000 * times(), |n| n * 8);
}

fn a_queue_of_descending_keys_needs_room_for_what_it_holds<T: TestKeys>() {
    queue::<T>(2 << 20, 2_000, 20_000 * times(), |n| (1 << 40) - n * 8);
}

fn records_that_come_and_go_at_random_need_room_for_what_is_there<T: TestKeys>() {
    const LIVE: u64 = 4_000;
    let mut churned = Churned::<T>::new(4 << 20);
    let key = |n| random(n) >> 20;
    for n in 0..LIVE * 5 * times() {
        churned.put(key(n), 0);
        if n >= LIVE {
            // Any of the last ones, once.
            churned.delete(key(n - LIVE));
        }
    }
    assert_eq!(churned.refused, 0);
    churned.settle("random");
}

fn what_has_grown_and_was_deleted_is_given_back<T: TestKeys>() {
    let mut churned = Churned::<T>::new((8 << 20) * times() as usize);
    let keys: Vec<u64> = (0..12_000 * times()).map(|n| random(n) >> 20).collect();
    for &key in &keys {
        churned.put(key, 0);
    }
    churned.settle("grown");
    for key in keys.iter().step_by(2) {
        churned.delete(*key);
    }
    churned.settle("every second deleted");
    for key in &keys {
        churned.delete(*key);
    }
    churned.settle("all deleted");
    assert!(churned.node.stats().segments < 64, "{:?}", churned.node.stats());
    for &key in &keys {
        churned.put(key, 0);
    }
    churned.settle("grown again");
}

fn hot_ranges_that_move_leave_no_room_behind<T: TestKeys>() {
    let mut churned = Churned::<T>::new(8 << 20);
    let mut old: Vec<u64> = Vec::new();
    for range in 0..10 * times() {
        let begin = random(range) >> 24;
        let keys: Vec<u64> = (0..1_500).map(|n| begin + (random(n ^ range << 32) % 100_000)).collect();
        for key in &keys {
            churned.put(*key, 0);
        }
        for key in old.drain(..) {
            churned.delete(key);
        }
        old = keys;
    }
    assert_eq!(churned.refused, 0);
    churned.settle("hot ranges");
}

for_all_keys_and_long_values!(
    a_queue_of_ascending_keys_needs_room_for_what_it_holds,
    a_queue_of_descending_keys_needs_room_for_what_it_holds,
    records_that_come_and_go_at_random_need_room_for_what_is_there,
    what_has_grown_and_was_deleted_is_given_back,
    hot_ranges_that_move_leave_no_room_behind,
);

/// Updates with values of these lengths in turns, at random, in a region that they nearly fill.
fn values_of_changing_lengths(lengths: &[usize], keys: u64, puts: u64, capacity: usize) {
    let mut churned = Churned::<LongValues>::new(capacity);
    for n in 0..puts {
        let key = random(n) % keys;
        churned.put(key, lengths[random(n ^ 1 << 40) as usize % lengths.len()]);
    }
    churned.settle("lengths");
}

#[test]
fn values_of_changing_lengths_find_room_up_to_the_bound() {
    values_of_changing_lengths(&[100, 1_000, 10_000, 65_536], 400, 1_500 * times(), 12 << 20);
    values_of_changing_lengths(&[100, 5_000, 65_536, 1 << 20], 100, 500 * times(), 40 << 20);
}

#[test]
fn short_values_are_moved_out_of_the_way_of_long_ones() {
    const SHORT: usize = 20_000;
    let mut churned = Churned::<LongValues>::new(16 << 20);
    let most = 500;
    for key in 0..most {
        churned.put(key, SHORT);
    }
    churned.send();
    assert_eq!(churned.refused, 0);
    // No two neighbours are deleted: not one free extent is longer than a short value.
    for key in (0..most).step_by(2) {
        churned.delete(key);
    }
    churned.send();
    for key in 0..5 {
        churned.put(1_000_000 + key, 1 << 20);
        churned.send();
    }
    assert_eq!(churned.refused, 0);
    churned.settle("long among short");
}

#[test]
fn values_longer_than_every_hole_between_such_find_room() {
    let mut churned = Churned::<LongValues>::new(16 << 20);
    // The free extents that are left are shorter than the values between them.
    let mut key = 0;
    while churned.refused == 0 && key < 200 {
        churned.put(2 * key, 64 << 10);
        churned.put(2 * key + 1, 40 << 10);
        churned.send();
        key += 1;
        if churned.node.stats().used_bytes > 13 << 20 {
            break;
        }
    }
    for key in 0..key {
        churned.delete(2 * key + 1);
    }
    churned.send();
    for key in 0..2 {
        churned.put(1_000_000 + key, 300 << 10);
        churned.send();
    }
    assert_eq!(churned.refused, 0);
    churned.settle("longer than holes");
}

#[test]
fn a_refused_insert_costs_next_to_nothing_and_a_deletion_lifts_the_refusal() {
    let mut churned = Churned::<Integers>::new(1 << 20);
    let mut writer = Writer::<Integers>::new(4);
    let insert = |churned: &mut Churned<Integers>, writer: &mut Writer<Integers>, key: u64| {
        writer
            .one(&mut churned.node, WriteKind::Put, key, Default::default(), &value::<Integers>(key, 0, 8))
            .status
    };
    let key = |n: u64| random(n) >> 10;
    let mut n = 0;
    while insert(&mut churned, &mut writer, key(n)) == WriteStatus::Done {
        n += 1;
    }
    // Windows with a free slot take keys still.
    let mut refused = 0;
    while refused < 2_000 {
        n += 1;
        refused += u64::from(insert(&mut churned, &mut writer, key(n)) == WriteStatus::NoRoom);
    }
    while churned.node.work() == Work::More {}
    let before = churned.node.stats();
    let mut refused = 0;
    while refused < 1_000 {
        n += 1;
        refused += u64::from(insert(&mut churned, &mut writer, key(n)) == WriteStatus::NoRoom);
        assert!(n < 1_000_000);
    }
    let after = churned.node.stats();
    assert_eq!(
        (before.copies, before.log_head, before.checkpoint),
        (after.copies, after.log_head, after.checkpoint)
    );
    // A value that is there already is replaced all the same.
    assert_eq!(insert(&mut churned, &mut writer, key(0)), WriteStatus::Done);
    for key in (0..n / 2).map(key) {
        let reply = writer.one(&mut churned.node, WriteKind::Delete, key, Default::default(), &[]);
        assert!(matches!(reply.status, WriteStatus::Done | WriteStatus::Absent));
    }
    let more = after.keys / 4;
    for key in (n + 1..).map(key).take(more as usize) {
        assert_eq!(insert(&mut churned, &mut writer, key), WriteStatus::Done, "{:?}", churned.node.stats());
    }
    churned.node.audit().expect("every byte is right");
}

/// They take few bytes each, but all writes to the table look for their segments among them.
#[test]
fn segments_that_a_queue_has_emptied_do_not_pile_up() {
    const LIVE: u64 = 2_000;
    let key = |n: u64| n * 16 + random(n) % 16;
    let mut churned = Churned::<Integers>::new(4 << 20);
    let short = fpcache::layout::TableParameters { max_slots: 512, ..churned.parameters };
    churned.node = Churned::<Integers>::loaded(4 << 20, short, &BTreeMap::new());
    churned.node.give_back_from(64 << 10);
    let mut most = 0;
    for n in 0..100_000 {
        churned.push(WriteKind::Insert, key(n), n.to_le_bytes().to_vec());
        if n >= LIVE {
            churned.push(WriteKind::Delete, key(n - LIVE), Vec::new());
        }
        if n > 20 * LIVE {
            most = most.max(churned.node.stats().segments);
        }
    }
    assert!(most < 24, "{most} segments for {LIVE} records");
}

/// `cargo test --release -p fpcache-memserver --test node -- --ignored --nocapture long_queue`.
#[test]
#[ignore = "twenty million inserts: half a minute in release"]
fn a_long_queue_is_as_fast_as_plain_inserts() {
    const LIVE: u64 = 100_000;
    const ROUNDS: u64 = 5;
    /// Inserts of a round of either kind.
    const INSERTS: u64 = 4_000_000;
    let key = |n: u64| n * 16 + random(n) % 16;
    let rate = |began: Instant| INSERTS as f64 / began.elapsed().as_secs_f64() / 1e6;
    for capacity in [64 << 20, 16 << 20] {
        let mut queue = Churned::<Integers>::new(capacity);
        let mut ratios = Vec::new();
        for round in 0..ROUNDS {
            // In turns, so that what else the machine does slows both down.
            let mut plain = Churned::<Integers>::new(512 << 20);
            let began = Instant::now();
            for n in 0..INSERTS {
                plain.push(WriteKind::Insert, key(n), n.to_le_bytes().to_vec());
            }
            let plain = rate(began);
            let began = Instant::now();
            for n in round * INSERTS..(round + 1) * INSERTS {
                queue.push(WriteKind::Insert, key(n), n.to_le_bytes().to_vec());
                if n >= LIVE {
                    queue.push(WriteKind::Delete, key(n - LIVE), Vec::new());
                }
            }
            let queued = rate(began);
            println!("plain {plain:.2} M inserts/s, queue {queued:.2} M and as many deletions");
            ratios.push(queued / plain);
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let (stats, longest, median) = (queue.node.stats(), queue.longest, ratios[ratios.len() / 2]);
        println!(
            "{} MiB: {median:.2} x the rate of inserts alone (median of {ratios:.2?}); longest request {longest:?}; {stats:?}",
            capacity >> 20,
        );
        // With more memory than the records take; the less there is, the more is merged.
        if capacity == 64 << 20 && !cfg!(debug_assertions) {
            assert!(median >= 0.7, "{median:.2} x the rate of inserts alone");
        }
        assert_eq!((queue.refused, stats.keys), (0, LIVE));
        queue.node.audit().expect("every byte is right");
        assert!(stats.used_bytes < 8 << 20, "{stats:?}");
    }
}
