//! Times of steps of each kind, in the thread's own time, and the longest: figures to compare with
//! the costs that the memory node counts (`memserver/src/node/parked.rs`).
//!
//! `cargo test --release -p fpcache-memserver --test others_wait -- --ignored --nocapture
//! what_steps_take`

use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache::layout::TableParameters;
use fpcache::message::keys::{put_key, put_record};
use fpcache::message::{AskedKeys, RecordChunk, Request, Sent, WriteKind, decode_reply};
use fpcache_fabric::{Handled, Service, Work};
use fpcache_memserver::{MemoryNode, cost};
use rustix::time::{ClockId, clock_gettime};

use super::common::keys::{Integers, LongValues, TestKeys};
use super::common::requests::{batch, post};
use super::{GREEDY, empty};

/// What this thread has run.
fn ran() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn random(n: u64) -> u64 {
    let mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// What steps took.
#[derive(Default)]
struct Steps {
    each: Vec<Duration>,
}

impl Steps {
    fn time<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let began = ran();
        let result = step();
        self.each.push(ran() - began);
        result
    }

    /// Has a memory node work until it has no more to do.
    fn work_of(&mut self, node: &mut MemoryNode<U64Keys>) {
        while self.time(|| node.work()) == Work::More {}
    }

    /// Sends a request, and has the memory node work until it has answered.
    fn request(&mut self, node: &mut MemoryNode<U64Keys>, request: &Request<'_>) -> Vec<u8> {
        let (handled, mut reply) = self.time(|| post::<Integers>(node, GREEDY, request));
        if handled == Handled::Later {
            reply.clear();
            while node.next_reply(&mut reply).is_none() {
                self.time(|| node.work());
            }
        }
        reply
    }

    fn done(&mut self, node: &mut MemoryNode<U64Keys>, request: &Request<'_>) {
        decode_reply(&self.request(node, request)).map(drop).unwrap_or_else(|refusal| panic!("{refusal}"));
    }

    /// What a unit took, and is charged if it is charged for by units.
    fn tell(mut self, what: &str, units: u64, charged: impl Into<Option<i64>>) {
        self.each.sort_unstable();
        let all: Duration = self.each.iter().sum();
        let at = |share: f64| self.each[((self.each.len() - 1) as f64 * share) as usize].as_micros();
        let long = self.each.iter().filter(|step| step.as_micros() > 500).count();
        let charged = charged.into().map_or(String::new(), |charged| format!(", {charged} charged"));
        println!(
            "{what}: {:.0} ns a unit{charged}; {} steps, us: median {}, p99 {}, longest {}; {long} over 500",
            all.as_nanos() as f64 / units.max(1) as f64,
            self.each.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

const KEYS: u64 = 2_000_000;

fn loaded(bytes: usize, parameters: TableParameters) -> MemoryNode<U64Keys> {
    let mut node = empty(bytes);
    node.load(parameters, (0..KEYS as u32).map(|n| u64::from(n) << 32), |_, value| value.fill(3))
        .expect("room");
    while node.work() == Work::More {}
    node
}

/// Writes of 64 operations each, with the work between them.
fn writes(node: &mut MemoryNode<U64Keys>, kind: WriteKind, count: u64, key: impl Fn(u64) -> u64) -> Steps {
    let (mut steps, bytes) = (Steps::default(), [7; 8]);
    let client = random(node.stats().requests);
    for first in (0..count).step_by(64) {
        let value = if kind == WriteKind::Delete { &[][..] } else { &bytes };
        let each: Vec<_> = (first..first + 64).map(|n| (kind, key(n), value)).collect();
        steps.done(node, &batch::<Integers>(&each).request(client, 1 + first / 64, false));
        steps.time(|| node.work());
    }
    steps
}

#[test]
#[ignore = "figures for constants: a minute in release"]
fn what_steps_take() {
    let usual = Integers::parameters(8);
    let existing = |n: u64| (random(n) % KEYS) << 32;
    let mut node = loaded(1 << 30, usual);
    writes(&mut node, WriteKind::Update, 640_000, existing).tell(
        "updates at random, by operation",
        640_000,
        cost::OPERATION + cost::bytes(8),
    );

    let mut steps = Steps::default();
    let mut keys = Vec::new();
    (0..40_000).for_each(|n| put_key::<U64Keys>(&existing(n), &mut keys));
    for _ in 0..5 {
        steps.request(&mut node, &Request::Get(AskedKeys { count: 40_000, bytes: &keys }));
    }
    steps.tell("gets of 40,000 keys, by key", 200_000, cost::LOOKED_UP + cost::bytes(24));

    for (what, key) in [
        ("inserts at random", (|n| random(n)) as fn(u64) -> u64),
        ("inserts in ascending order", |n| (KEYS << 32) + n * 16),
        ("inserts at random among a few", |n| (77 << 32) + random(n) % (1 << 24)),
    ] {
        let before = node.stats();
        let steps = writes(&mut node, WriteKind::Insert, 1_000_000, key);
        let after = node.stats();
        steps.tell(&format!("{what}, with all work, by insert"), 1_000_000, None);
        let copies = after.copies - before.copies;
        let took = after.rebuild_ns - before.rebuild_ns;
        let rebuilds = after.rebuilds - before.rebuilds;
        let charged = cost::REBUILD * rebuilds as i64 + cost::RECORD_MOVED * copies as i64;
        // By the clock: on a busy machine more than the thread has run.
        println!(
            "  of which rebuilds {} ns a record moved, {} charged; {} ns a rebuild of {} records",
            took / copies.max(1),
            charged / copies.max(1) as i64,
            took / rebuilds.max(1),
            copies / rebuilds.max(1)
        );
    }
    let mut steps = Steps::default();
    steps.work_of(&mut node);
    let count = steps.each.len() as u64;
    steps.tell("what is left in the background, by step", count, cost::STEP);

    let before = node.stats().copies;
    writes(&mut node, WriteKind::Delete, KEYS, |n| n << 32).tell(
        "deletions, by operation",
        KEYS,
        cost::OPERATION,
    );
    let mut steps = Steps::default();
    steps.work_of(&mut node);
    let count = steps.each.len() as u64;
    steps.tell("sweep and evacuation after these, by step", count, cost::STEP);
    println!("  {} records moved", node.stats().copies - before);
    node.empty(0..512 << 20);
    let (mut steps, before) = (Steps::default(), node.stats().copies);
    steps.work_of(&mut node);
    let moved = node.stats().copies - before;
    steps.tell("emptying half of the region, by record moved", moved, None);

    // Loads: chunks, the end of one of many segments, and one that is given up.
    for (what, epsilon, max_slots) in [("", 32, usual.max_slots), (" in segments of 16 slots", 4, 16)] {
        let parameters = TableParameters { epsilon, max_slots, ..usual };
        let mut node = empty(1 << 30);
        let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
        for is_kept in [false, true] {
            let mut steps = Steps::default();
            steps.done(&mut node, &begin);
            for first in (0..KEYS).step_by(8000) {
                let mut records = Vec::new();
                for n in first..first + 8000 {
                    put_record::<U64Keys>(
                        &parameters.shape,
                        &(n * 1000 + random(n) % 900),
                        &Sent::Here(&[3; 8]),
                        &mut records,
                    );
                }
                let chunk = Request::LoadChunk(1, RecordChunk { first, count: 8000, records: &records });
                steps.done(&mut node, &chunk);
            }
            steps.tell(&format!("chunks of a load{what}, by record"), KEYS, cost::LOADED + cost::bytes(16));
            let mut steps = Steps::default();
            if is_kept {
                steps.done(&mut node, &Request::LoadCommit(1));
                steps.tell(&format!("the end of a load{what}, by record"), KEYS, None);
                let mut steps = Steps::default();
                steps.work_of(&mut node);
                let count = steps.each.len() as u64;
                steps.tell("what it leaves, by step", count, cost::STEP);
                let mut steps = Steps::default();
                steps.time(|| drop(std::mem::replace(&mut node, empty(1 << 20))));
                steps.tell("its table dropped in one go, as the thread does it that drops tables", 1, None);
            } else {
                steps.time(|| node.disconnected(GREEDY));
                steps.work_of(&mut node);
                let count = steps.each.len() as u64;
                steps.tell(&format!("a load{what} that is given up, by step"), count, cost::STEP);
            }
        }
    }

    // Values outside of slots, and a table that becomes full of them.
    let mut node = empty(256 << 20);
    let none: [(u64, Vec<u8>); 0] = [];
    node.load_records(LongValues::parameters(8), (), none.into_iter()).expect("room");
    let (mut steps, value) = (Steps::default(), vec![5; 60_000]);
    let mut refused = 0;
    for n in 0..8_000u64 {
        let put = batch::<Integers>(&[(
            WriteKind::Put,
            random(n % 6_000),
            &value[..20_000 + 10 * (n as usize % 4_000)],
        )]);
        refused += u64::from(steps.request(&mut node, &put.request(5, n + 1, false)).ends_with(&[5]));
        steps.time(|| node.work());
    }
    steps.tell("puts of 40 KB on average, with all work, by byte times 1,000", 8 * 40_000, None);
    println!("  {refused} refused; {:?}", node.stats());
    let began = Instant::now();
    node.audit().expect("whole");
    println!("  looked at in {:?}", began.elapsed());
}
