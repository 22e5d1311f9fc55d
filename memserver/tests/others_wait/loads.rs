//! Loads: their records, their end, and what is left of one that is given up, take turns with
//! everything else.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::message::keys::put_record;
use fpcache::message::{
    ErrorCode, RecordChunk, Refusal, Request, Sent, WriteKind, WriteStatus, decode_reply,
};
use fpcache_fabric::{Clock, Handled, HugePages, Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::budget::{Budget, Grant};
use fpcache_memserver::durability::SyncPolicy;

use super::common::keys::{Integers, TestKeys};
use super::common::requests::{Writer, batch, call_from, post, statuses};
use super::common::world::{World, parameters};
use super::{GREEDY, OTHER, empty, rounds_until};

fn chunk(first: u64, count: u64, shape: &RecordShape) -> Vec<u8> {
    let mut records = Vec::new();
    for key in first..first + count {
        put_record::<U64Keys>(shape, &key, &Sent::Here(&[3; 8]), &mut records);
    }
    records
}

#[test]
fn a_load_takes_several_turns_and_its_end_does_not_wait_for_the_disk() {
    let mut world = World::new(SyncPolicy::Always, 6);
    let (mut node, _) = world.begin::<Integers>();
    let parameters = parameters::<Integers>();
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 8000, encoders: &[] };
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &begin)).expect("begun");
    let records = chunk(0, 8000, &parameters.shape);
    let records = Request::LoadChunk(1, RecordChunk { first: 0, count: 8000, records: &records });
    assert_eq!(post::<Integers>(&mut node, GREEDY, &records).0, Handled::Later, "all at once");
    let (rounds, reply, _) = rounds_until(&mut node, GREEDY);
    decode_reply(&reply).expect("taken");
    assert!(rounds >= 3, "{rounds} rounds");
    let syncs = world.disk.syncs();
    assert_eq!(post::<Integers>(&mut node, GREEDY, &Request::LoadCommit(1)).0, Handled::Later);
    assert_eq!(world.disk.syncs(), syncs, "nobody waits for the disk here");
    // A write to it waits, and is not refused.
    let put = batch::<Integers>(&[(WriteKind::Put, 100, &[1; 8])]);
    assert_eq!(post::<Integers>(&mut node, OTHER, &put.request(8, 1, false)).0, Handled::Later);
    let (_, reply, before) = rounds_until(&mut node, OTHER);
    assert_eq!((statuses(&reply), before), (Ok(vec![WriteStatus::Done]), vec![GREEDY]));
    assert_eq!(node.stats().keys, 8000);
    drop(node);
    world.disk = world.disk.crash();
    let fresh = World::new(SyncPolicy::Always, 7);
    (world.region, world.recovery_area) = (fresh.region, fresh.recovery_area);
    let (node, _) = world.begin::<Integers>();
    assert_eq!(node.stats().keys, 8000, "what was acknowledged is on the disk");
}

#[test]
fn short_chunks_and_loads_that_begin_use_up_a_turn_like_all_else() {
    // Each is done with its first step, so nothing is left of it for another turn.
    let begin = |encoders| Request::LoadBegin {
        load: 1,
        parameters: parameters::<Integers>(),
        expected_keys: 0,
        encoders,
    };
    let mut node = empty(4 << 20);
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &begin(&[]))).expect("begun");
    let waits = (0..100).any(|chunk_number| {
        let records = chunk(64 * chunk_number, 64, &parameters::<Integers>().shape);
        let records =
            Request::LoadChunk(1, RecordChunk { first: 64 * chunk_number, count: 64, records: &records });
        post::<Integers>(&mut node, GREEDY, &records).0 == Handled::Later
    });
    assert!(waits, "6,400 records in one turn");
    let mut node = empty(4 << 20);
    let damaged = [0; 2000];
    let waits = (0..100).any(|_| post::<Integers>(&mut node, GREEDY, &begin(&damaged)).0 == Handled::Later);
    assert!(waits, "100 loads have begun in one turn");
}

#[test]
fn a_load_that_cannot_begin_has_no_encoders_decoded() {
    let begin = |encoders| Request::LoadBegin {
        load: 1,
        parameters: parameters::<Integers>(),
        expected_keys: 0,
        encoders,
    };
    let mut node = empty(4 << 20);
    let mut refusal = |client| {
        let reply = call_from::<Integers>(&mut node, client, &begin(&[1]));
        let code = decode_reply(&reply).map(drop).map_err(|refusal| refusal.code);
        decode_reply(&call_from::<Integers>(&mut node, GREEDY, &begin(&[]))).map(drop).unwrap_or_default();
        code
    };
    assert_eq!(refusal(GREEDY), Err(ErrorCode::Invalid), "the keys have no encoders");
    assert_eq!(refusal(OTHER), Err(ErrorCode::Busy), "there is a load");
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &Request::LoadCommit(1))).expect("done");
    let reply = call_from::<Integers>(&mut node, OTHER, &begin(&[1]));
    assert_eq!(decode_reply(&reply).map(drop).map_err(|refusal| refusal.code), Err(ErrorCode::NotEmpty));
}

/// A clock that a test moves.
#[derive(Debug)]
struct Hands(Mutex<Instant>);

impl Clock for Hands {
    fn now(&self) -> Instant {
        *self.0.lock().expect("no panic while it was held")
    }

    fn sleep(&self, _: Duration) {}
}

#[test]
fn a_load_whose_client_has_stopped_makes_way_for_another() {
    let hands = Arc::new(Hands(Mutex::new(Instant::now())));
    let mut node = empty(4 << 20).with_clock(hands.clone());
    let parameters = TableParameters { shape: Integers::shape(8), ..TableParameters::default() };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    let pass = |seconds| *hands.0.lock().expect("free") += Duration::from_secs(seconds);
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &begin)).expect("begun");
    pass(59);
    let records = chunk(0, 10, &parameters.shape);
    let records = |first| Request::LoadChunk(1, RecordChunk { first, count: 10, records: &records });
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &records(0))).expect("taken");
    pass(59);
    let refusal =
        decode_reply(&call_from::<Integers>(&mut node, OTHER, &begin)).map(drop).expect_err("it lasts");
    assert!(refusal.code == ErrorCode::Busy && refusal.message.contains("2 s from now"), "{refusal}");
    pass(1);
    decode_reply(&call_from::<Integers>(&mut node, OTHER, &begin)).expect("its time is over");
    let refusal = decode_reply(&call_from::<Integers>(&mut node, GREEDY, &records(10)))
        .map(drop)
        .expect_err("given up");
    assert_eq!(refusal.code, ErrorCode::NoSuchLoad);
    decode_reply(&call_from::<Integers>(&mut node, OTHER, &records(0))).expect("taken");
    decode_reply(&call_from::<Integers>(&mut node, OTHER, &Request::LoadCommit(1))).expect("done");
    assert_eq!(node.stats().keys, 10);
    assert!((0..10).any(|_| node.work() == Work::Nothing), "what loads left is gone in the end");
}

#[test]
fn a_load_that_is_given_up_gives_its_memory_back_a_little_at_a_time() {
    const MIB: u64 = 1 << 20;
    let budget = Budget::new(64 * MIB);
    let memory = SharedMemory::create_memfd("test", 64 << 20, HugePages::No).expect("memory").0;
    let memory = Arc::new(memory);
    let grant = Grant::of(&budget, &memory, u64::MAX).expect("room");
    let mut node = MemoryNode::<U64Keys>::within(memory, grant, 1, 0, Instant::now()).expect("a region");
    let at_first = budget.granted();
    let shape = RecordShape::fixed(8, 8000);
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    let load = |node: &mut MemoryNode<U64Keys>, chunks: u64| {
        decode_reply(&call_from::<Integers>(node, GREEDY, &begin)).expect("begun");
        for first in (0..chunks * 100).step_by(100) {
            let mut records = Vec::new();
            for key in first..first + 100 {
                put_record::<U64Keys>(&shape, &key, &Sent::Here(&[3; 8000]), &mut records);
            }
            let chunk = Request::LoadChunk(1, RecordChunk { first, count: 100, records: &records });
            decode_reply(&call_from::<Integers>(node, GREEDY, &chunk)).expect("taken");
        }
    };
    load(&mut node, 30);
    let loaded = budget.granted();
    assert!(loaded > 20 * MIB);
    node.disconnected(GREEDY);
    assert_eq!(budget.granted(), loaded, "not in one go");
    let give_back = |node: &mut MemoryNode<U64Keys>, most_rounds: usize| {
        for round in 0..most_rounds {
            let before = budget.granted();
            let work = node.work();
            assert!(before - budget.granted() <= 2 * MIB, "{} bytes in one go", before - budget.granted());
            if work == Work::Nothing {
                return round;
            }
        }
        most_rounds
    };
    // Another load begins amid it, and finds what it needs.
    assert_eq!(give_back(&mut node, 5), 5);
    load(&mut node, 20);
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &Request::LoadAbort(1))).expect("given up");
    let rounds = give_back(&mut node, 100);
    assert!((8..60).contains(&rounds), "{rounds} rounds");
    assert!(budget.granted() <= at_first, "{} bytes, {at_first} at first", budget.granted());
}

#[test]
fn a_load_that_is_retried_at_once_has_the_memory_of_the_one_that_was_given_up() {
    let budget = Budget::new(32 << 20);
    let shape = RecordShape::fixed(8, 8000);
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let empty = || {
        let memory = SharedMemory::create_memfd("test", 32 << 20, HugePages::No).expect("memory").0;
        let memory = Arc::new(memory);
        let grant = Grant::of(&budget, &memory, u64::MAX).expect("room");
        MemoryNode::<U64Keys>::within(memory, grant, 1, 0, Instant::now()).expect("a region")
    };
    // All at once: nothing is done between requests.
    let load = |node: &mut MemoryNode<U64Keys>, expected_keys: u64| {
        let begin = Request::LoadBegin { load: 1, parameters, expected_keys, encoders: &[] };
        decode_reply(&call_from::<Integers>(node, GREEDY, &begin)).map(drop)?;
        for first in (0..2_500).step_by(100) {
            let mut records = Vec::new();
            for key in first..first + 100 {
                put_record::<U64Keys>(&shape, &key, &Sent::Here(&[3; 8000]), &mut records);
            }
            let chunk = Request::LoadChunk(1, RecordChunk { first, count: 100, records: &records });
            decode_reply(&call_from::<Integers>(node, GREEDY, &chunk)).map(drop)?;
        }
        Ok::<_, Refusal>(())
    };
    let (mut first, mut second) = (empty(), empty());
    load(&mut first, 0).expect("room");
    let refusal = load(&mut second, 2_500).expect_err("the first load has it");
    assert_eq!(refusal.code, ErrorCode::Full, "{refusal}");
    first.disconnected(GREEDY);
    // With the number of its records, which is looked at when it begins, and without.
    for expected_keys in [2_500, 0] {
        load(&mut second, expected_keys).expect("nobody has what the first had");
        decode_reply(&call_from::<Integers>(&mut second, GREEDY, &Request::LoadAbort(1))).expect("given up");
        load(&mut first, expected_keys).expect("nobody has what the second had");
        first.disconnected(GREEDY);
    }
    for node in [&mut first, &mut second] {
        assert!((0..100).any(|_| node.work() == Work::Nothing), "what loads left is gone in the end");
    }
    assert!(budget.granted() < 1 << 20, "{} bytes", budget.granted());
}

#[test]
fn the_end_of_a_load_of_many_segments_takes_turns() {
    let mut node = empty(64 << 20);
    let parameters = TableParameters { epsilon: 4, max_slots: 16, ..Integers::parameters(8) };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    decode_reply(&call_from::<Integers>(&mut node, GREEDY, &begin)).expect("begun");
    for first in (0..120_000).step_by(8000) {
        let records = chunk(first, 8000, &parameters.shape);
        let records = Request::LoadChunk(1, RecordChunk { first, count: 8000, records: &records });
        decode_reply(&call_from::<Integers>(&mut node, GREEDY, &records)).expect("taken");
    }
    assert_eq!(post::<Integers>(&mut node, GREEDY, &Request::LoadCommit(1)).0, Handled::Later, "all at once");
    let (rounds, reply, _) = rounds_until(&mut node, GREEDY);
    decode_reply(&reply).expect("done");
    assert!(node.stats().segments > 7_000 && rounds >= 2, "{rounds} rounds");
    node.audit().expect("whole");
    let reader = Writer::<Integers>::new(99);
    for number in (0..120_000).step_by(97) {
        assert!(reader.get(&mut node, number).is_some(), "{number}");
    }
    assert!((0..100).any(|_| node.work() == Work::Nothing), "what the load left is gone in the end");
}
