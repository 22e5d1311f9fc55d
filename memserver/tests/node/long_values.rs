//! External values: their memory, and how they come ahead of the requests they belong to.

use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{LongValues, Strings, TestKeys};
use crate::common::requests::{Writer, batch, call, call_from, statuses};
use crate::common::world::{REGION, World, load};
use fpcache::key_space::U64Keys;
use fpcache::layout::{MAX_VALUE_BYTES, RecordShape, RecordToken, TableParameters};
use fpcache::message::keys::put_record;
use fpcache::message::{
    ErrorCode, MAX_AHEAD_BYTES, RecordChunk, Refusal, Request, Sent, ValuePiece, WriteBatch, WriteKind,
    WriteOperation, WriteStatus, decode_reply,
};
use fpcache_fabric::{ClientId, NodeMemory, Service, SharedMemory};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::durability::{Disk, SyncPolicy};

const CLIENT: ClientId = ClientId(1);

fn empty<T: TestKeys>(capacity: usize) -> MemoryNode<T::Space> {
    let region = Arc::new(SharedMemory::anonymous(capacity).expect("memory"));
    let mut node = MemoryNode::new(region, 1, 0, Instant::now()).expect("a region");
    let none: [(u64, Vec<u8>); 0] = [];
    let records = none.into_iter().map(|(key, value)| (T::key(key), value));
    node.load_records(T::parameters(24), T::encoders(), records).expect("room");
    node
}

/// Bytes in use without any external value, once the memory for the next directory is set aside.
fn used_without<T: TestKeys>(node: &mut MemoryNode<T::Space>) -> u64 {
    let mut writer = Writer::<T>::new(1000);
    writer.one(node, WriteKind::Put, 0, RecordToken::default(), &[1; 100]);
    writer.one(node, WriteKind::Delete, 0, RecordToken::default(), &[]);
    node.stats().used_bytes
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn audit<T: TestKeys>(node: &MemoryNode<T::Space>) -> u64 {
    node.audit().expect("every byte is right").expect("a table").external
}

/// Sends a request whose reply has no body.
fn send(node: &mut impl Service, client: ClientId, request: &Request<'_>) -> Result<(), Refusal> {
    decode_reply(&call_from::<LongValues>(node, client, request)).map(drop)
}

/// Sends a value ahead in pieces of a given size.
fn send_ahead(
    node: &mut impl Service,
    client: ClientId,
    what: (u64, u64, u32),
    value: &[u8],
    most: usize,
) -> Result<(), Refusal> {
    ValuePiece::all(what, value, most).try_for_each(|piece| send(node, client, &Request::Value(piece)))
}

/// Puts records whose values came ahead, each of a given size.
fn put_ahead(
    node: &mut impl Service,
    (client, request): (u64, u64),
    keys: &[(u64, usize)],
) -> Result<Vec<WriteStatus>, Refusal> {
    let mut batch = WriteBatch::default();
    for (key, bytes) in keys {
        batch.push::<U64Keys>(&WriteOperation {
            kind: WriteKind::Put,
            key: *key,
            hint: None,
            expected: RecordToken::default(),
            value: Sent::Ahead(*bytes as u32),
        });
    }
    statuses(&call_from::<LongValues>(node, CLIENT, &batch.request(client, request, false)))
}

#[test]
fn the_memory_of_a_value_is_free_once_no_slot_names_it() {
    fn check<T: TestKeys>() {
        let mut node = empty::<T>(2 << 20);
        let mut writer = Writer::<T>::new(1);
        let put = |writer: &mut Writer<T>, node: &mut MemoryNode<T::Space>, key, value: &[u8]| {
            writer.one(node, WriteKind::Put, key, RecordToken::default(), value).status
        };
        let before = used_without::<T>(&mut node);
        // A hundred times what the region holds.
        for n in 0..2000 {
            let value = bytes(n, 100_000 + n as usize);
            assert_eq!(put(&mut writer, &mut node, n % 3, &value), WriteStatus::Done, "{n}");
            if n % 100 == 0 {
                assert_eq!(writer.get(&mut node, n % 3).map(|(found, _)| found), Some(value));
            }
        }
        assert_eq!(audit::<T>(&node), 3);
        let stats = node.stats();
        assert_eq!((stats.external_values, stats.external_bytes), (3, 3 * 100_000 + 1997 + 1998 + 1999));
        // Short, gone, and not made at all.
        assert_eq!(put(&mut writer, &mut node, 0, b"short"), WriteStatus::Done);
        let gone = writer.one(&mut node, WriteKind::Delete, 1, RecordToken::default(), &[]);
        let there = writer.one(&mut node, WriteKind::Insert, 2, RecordToken::default(), &bytes(0, 100_000));
        let absent = writer.one(&mut node, WriteKind::Update, 1, RecordToken::default(), &bytes(0, 100_000));
        let differs =
            writer.one(&mut node, WriteKind::CompareAndSet, 2, RecordToken::default(), &bytes(0, 99));
        let statuses = [gone, there, absent, differs].map(|reply| reply.status);
        let wanted = [WriteStatus::Done, WriteStatus::Exists, WriteStatus::Absent, WriteStatus::Differs];
        assert_eq!(statuses, wanted);
        assert_eq!(audit::<T>(&node), 1);
        writer.one(&mut node, WriteKind::Delete, 2, RecordToken::default(), &[]);
        assert_eq!(node.stats().used_bytes, before, "all memory is back");
    }
    check::<LongValues>();
    check::<Strings>();
}

#[test]
fn a_value_for_which_there_is_no_room_is_refused_and_leaves_nothing() {
    let mut node = empty::<LongValues>(1 << 20);
    let mut writer = Writer::<LongValues>::new(1);
    let value = bytes(1, 200_000);
    let mut put = |node: &mut MemoryNode<U64Keys>, key| {
        writer.one(node, WriteKind::Put, key, RecordToken::default(), &value).status
    };
    let full = (0..10).find(|key| put(&mut node, *key) == WriteStatus::NoRoom).expect("no region is endless");
    assert!((3..6).contains(&full), "{full} values of 200 kB in a MiB");
    let used = node.stats().used_bytes;
    assert_eq!(put(&mut node, 20), WriteStatus::NoRoom);
    // The old value must stay until the new one is there.
    assert_eq!(put(&mut node, 0), WriteStatus::NoRoom);
    send_ahead(&mut node, CLIENT, (7, 1, 0), &value, 70_000).expect("the operation says so");
    assert_eq!(put_ahead(&mut node, (7, 1), &[(30, value.len())]), Ok(vec![WriteStatus::NoRoom]));
    assert_eq!((node.stats().used_bytes, audit::<LongValues>(&node)), (used, full));
    let reader = Writer::<LongValues>::new(1);
    assert_eq!(reader.get(&mut node, 0).map(|(found, _)| found), Some(value));
}

#[test]
fn values_come_ahead_in_pieces() {
    let mut node = empty::<LongValues>(64 << 20);
    let reader = Writer::<LongValues>::new(99);
    let (long, longest) = (bytes(5, 100_001), bytes(6, MAX_VALUE_BYTES));
    send_ahead(&mut node, CLIENT, (7, 3, 0), &long, 1000).expect("in order");
    send_ahead(&mut node, CLIENT, (7, 3, 1), &longest, 1 << 20).expect("in order");
    let done = put_ahead(&mut node, (7, 3), &[(1, long.len()), (2, longest.len())]);
    assert_eq!(done, Ok(vec![WriteStatus::Done; 2]));
    assert!(reader.get(&mut node, 1).is_some_and(|(found, _)| found == long));
    assert!(reader.get(&mut node, 2).is_some_and(|(found, _)| found == longest));
    // Sent again, with all its pieces, it is not done again and leaves nothing behind.
    let used = node.stats().used_bytes;
    send_ahead(&mut node, CLIENT, (7, 3, 0), &long, 1000).expect("in order");
    send_ahead(&mut node, CLIENT, (7, 3, 1), &longest, 1 << 20).expect("in order");
    let token = reader.get(&mut node, 1).map(|(_, token)| token);
    let again = put_ahead(&mut node, (7, 3), &[(1, long.len()), (2, longest.len())]);
    assert_eq!(again, Ok(vec![WriteStatus::Done; 2]));
    assert_eq!(reader.get(&mut node, 1).map(|(_, token)| token), token, "not a second time");
    assert_eq!((node.stats().used_bytes, audit::<LongValues>(&node)), (used, 2));
    // A request that comes twice finds no pieces the second time, and needs none.
    let twice = put_ahead(&mut node, (7, 3), &[(1, long.len()), (2, longest.len())]);
    assert_eq!(twice, Ok(vec![WriteStatus::Done; 2]));
    // The token is the same as if it had come with the request.
    let mut writer = Writer::<LongValues>::new(8);
    let changed =
        writer.one(&mut node, WriteKind::CompareAndSet, 1, token.expect("there"), &bytes(7, 90_000));
    assert_eq!(changed.status, WriteStatus::Done);
}

#[test]
fn pieces_that_do_not_make_up_a_value_are_refused() {
    let mut node = empty::<LongValues>(4 << 20);
    let used = used_without::<LongValues>(&mut node);
    let value = bytes(1, 5000);
    let piece = |operation, offset: usize, end: usize| ValuePiece {
        client: 7,
        request: 1,
        operation,
        value_bytes: 5000,
        offset: offset as u32,
        bytes: &value[offset..end],
    };
    let mut take = |piece| send(&mut node, CLIENT, &Request::Value(piece)).map_err(|refusal| refusal.code);
    let refused = Err(ErrorCode::Invalid);
    assert_eq!(take(piece(0, 1000, 2000)), refused, "the first one is missing");
    assert_eq!(take(piece(0, 0, 1000)), Ok(()));
    assert_eq!(take(piece(0, 2000, 3000)), refused, "one is missing");
    assert_eq!(take(piece(0, 1000, 1000)), refused, "empty");
    assert_eq!(take(ValuePiece { value_bytes: 4000, ..piece(0, 1000, 2000) }), refused, "of another value");
    assert_eq!(take(ValuePiece { value_bytes: 1500, ..piece(0, 1000, 2000) }), refused, "past the end");
    assert_eq!(
        take(ValuePiece { value_bytes: u32::MAX, ..piece(1, 0, 10) }),
        Err(ErrorCode::BadData),
        "too long"
    );
    let much = (MAX_AHEAD_BYTES / MAX_VALUE_BYTES) as u32;
    for operation in 0..much {
        let taken =
            take(ValuePiece { client: 8, value_bytes: MAX_VALUE_BYTES as u32, ..piece(operation, 0, 10) });
        assert_eq!(taken, Ok(()), "room or not");
    }
    let again = ValuePiece { client: 8, value_bytes: 17, ..piece(0, 0, 10) };
    assert_eq!(take(again), Ok(()), "a short one in its place");
    let begun_anew = ValuePiece { client: 8, value_bytes: MAX_VALUE_BYTES as u32, ..piece(0, 0, 10) };
    assert_eq!(take(begun_anew), Ok(()), "and a long one again");
    let last = ValuePiece { client: 8, value_bytes: 17, ..piece(1023, 0, 10) };
    assert_eq!(take(last), Err(ErrorCode::BadData), "there is no room beside the others");
    assert_eq!(
        take(ValuePiece { client: 9, ..piece(1024, 0, 10) }),
        refused,
        "no request has so many operations"
    );
    assert_eq!(
        take(ValuePiece { client: 9, value_bytes: 16, ..piece(0, 0, 10) }),
        Err(ErrorCode::BadData),
        "it fits"
    );
    let more = ValuePiece { client: 8, value_bytes: MAX_VALUE_BYTES as u32, ..piece(much, 0, 10) };
    assert_eq!(take(more), Err(ErrorCode::BadData), "too many");

    let code = |outcome: Result<_, Refusal>| outcome.map_err(|refusal: Refusal| refusal.code);
    assert_eq!(
        code(put_ahead(&mut node, (7, 1), &[(1, 5000)])),
        Err(ErrorCode::Invalid),
        "not all of it came"
    );
    send_ahead(&mut node, CLIENT, (7, 2, 0), &value, 1000).expect("in order");
    assert_eq!(
        code(put_ahead(&mut node, (7, 2), &[(1, 4999)])),
        Err(ErrorCode::Invalid),
        "of another length"
    );
    assert_eq!(
        code(put_ahead(&mut node, (7, 2), &[(1, 5000), (2, 5000)])),
        Err(ErrorCode::Invalid),
        "only one came"
    );
    assert_eq!(code(put_ahead(&mut node, (7, 2), &[(1, 16)])), Err(ErrorCode::BadData), "it fits its slot");
    let older = send(&mut node, CLIENT, &Request::Value(piece(0, 0, 1000))).expect_err("an older request");
    assert!(older.message.contains("older"), "{older}");

    // What is of no use any more goes with the next request, and with the connection.
    send_ahead(&mut node, ClientId(2), (9, 1, 0), &value, 1000).expect("in order");
    assert_eq!(put_ahead(&mut node, (7, 2), &[(1, 5000)]), Ok(vec![WriteStatus::Done]));
    node.disconnected(ClientId(2));
    node.disconnected(CLIENT);
    assert_eq!(
        code(put_ahead(&mut node, (7, 3), &[(1, 5000)])),
        Err(ErrorCode::Invalid),
        "it was for another request"
    );
    let left = node.stats().used_bytes - used;
    assert_eq!((left, audit::<LongValues>(&node)), (5000, 1));
}

#[test]
fn a_load_takes_values_of_any_length() {
    let region = Arc::new(SharedMemory::anonymous(8 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    send(&mut node, CLIENT, &begin).expect("an empty memory node");
    let values: Vec<Vec<u8>> = [0, 16, 17, 400, 300_000, 8, 200_000].map(|len| bytes(len as u64, len)).into();
    let mut records = Vec::new();
    for (key, value) in values.iter().enumerate() {
        let is_long = value.len() > 100_000;
        if is_long {
            send_ahead(&mut node, CLIENT, (0, 1, key as u32), value, 70_000).expect("in order");
        }
        let sent = if is_long { Sent::Ahead(value.len() as u32) } else { Sent::Here(value) };
        put_record::<U64Keys>(&shape, &(key as u64), &sent, &mut records);
    }
    let chunk = RecordChunk { first: 0, count: values.len() as u32, records: &records };
    send(&mut node, CLIENT, &Request::LoadChunk(1, chunk)).expect("good records");
    send(&mut node, CLIENT, &Request::LoadCommit(1)).expect("good records");
    assert_eq!(audit::<LongValues>(&node), 4);
    let reader = Writer::<LongValues>::new(1);
    for (key, value) in values.iter().enumerate() {
        assert!(reader.get(&mut node, key as u64).is_some_and(|(found, _)| found == *value), "{key}");
    }
}

/// Bytes in use after a load of one record, before which these values came ahead for it or others.
fn used_after_a_load(ahead: &[(u32, usize)]) -> u64 {
    let region = Arc::new(SharedMemory::anonymous(8 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    send(&mut node, CLIENT, &begin).expect("an empty memory node");
    for (record, len) in ahead {
        send_ahead(&mut node, CLIENT, (0, 1, *record), &bytes(1, *len), 70_000).expect("in order");
    }
    let mut records = Vec::new();
    put_record::<U64Keys>(&shape, &1, &Sent::Ahead(300_000), &mut records);
    send(&mut node, CLIENT, &Request::LoadChunk(1, RecordChunk { first: 0, count: 1, records: &records }))
        .unwrap();
    send(&mut node, CLIENT, &Request::LoadCommit(1)).expect("good records");
    assert_eq!(audit::<LongValues>(&node), 1);
    node.stats().used_bytes
}

#[test]
fn values_that_no_record_of_a_load_has_leave_nothing_behind() {
    let least = used_after_a_load(&[(0, 300_000)]);
    let begun_anew = used_after_a_load(&[(0, 100_000), (0, 300_000)]);
    let begun_anew_shorter = used_after_a_load(&[(0, 500_000), (0, 300_000)]);
    let without_record = used_after_a_load(&[(0, 300_000), (7, 500_000)]);
    assert_eq!((begun_anew, begun_anew_shorter, without_record), (least, least, least));
}

#[test]
fn a_load_whose_value_did_not_come_is_refused() {
    let region = Arc::new(SharedMemory::anonymous(1 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let begin = Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] };
    send(&mut node, CLIENT, &begin).expect("an empty memory node");
    let mut records = Vec::new();
    put_record::<U64Keys>(&shape, &1, &Sent::Ahead(500), &mut records);
    let chunk = Request::LoadChunk(1, RecordChunk { first: 0, count: 1, records: &records });
    let refusal = send(&mut node, CLIENT, &chunk).expect_err("it did not come");
    assert_eq!(refusal.code, ErrorCode::BadData);
    assert!(refusal.message.contains("record 0") && refusal.message.contains("500 bytes"), "{refusal}");
    send(&mut node, CLIENT, &begin).expect("the load is over");
    let long = bytes(1, 2 << 20);
    let refusal = send_ahead(&mut node, CLIENT, (0, 1, 0), &long, 1 << 16).expect_err("no room");
    assert_eq!(refusal.code, ErrorCode::Full, "{refusal}");
    send(&mut node, CLIENT, &begin).expect("the load is over");
}

/// With what waits for the disk done, there is room for what replaces it.
#[test]
fn values_that_wait_for_the_disk_make_way_for_others() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<LongValues>();
    load::<LongValues>(&mut node, 2);
    let mut other = Writer::<LongValues>::new(5);
    let value = |n: u64| bytes(n, 60_000);
    for key in 0..4 {
        let done = other.one(&mut node, WriteKind::Put, key, RecordToken::default(), &value(key));
        assert_eq!(done.status, WriteStatus::Done);
    }
    // A region of 512 KiB has no room for all of these beside those they replace.
    let first = batch::<LongValues>(&[
        (WriteKind::Put, 0, &value(10)),
        (WriteKind::Put, 1, &value(11)),
        (WriteKind::Put, 2, &value(12)),
        (WriteKind::Put, 3, &value(13)),
        (WriteKind::Put, 0, &value(20)),
        (WriteKind::Put, 1, &value(21)),
    ]);
    let reply = call::<LongValues>(&mut node, &first.request(6, 1, false));
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done; 6]));
    for (key, n) in [(0, 20), (1, 21), (2, 12), (3, 13)] {
        assert_eq!(other.get(&mut node, key).map(|(found, _)| found), Some(value(n)));
    }
    node.audit().expect("every byte is right");
}

#[test]
fn a_snapshot_of_a_table_with_a_damaged_value_does_not_count() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<LongValues>();
    load::<LongValues>(&mut node, 20);
    let mut writer = Writer::<LongValues>::new(5);
    let value = bytes(3, 5000);
    writer.one(&mut node, WriteKind::Put, 500, RecordToken::default(), &value);
    let snapshots = |world: &World| {
        let names = world.disk.list().expect("a disk");
        names.into_iter().filter(|name| name.ends_with(".fps")).collect::<Vec<_>>()
    };
    let before = snapshots(&world);
    let region = node.region().clone();
    let mut all = vec![0; REGION];
    region.read_bytes(0, &mut all).expect("all of it");
    let at = all.windows(64).position(|window| *window == value[..64]).expect("it lies somewhere");
    region.write_bytes(at as u64 + 100, &[!value[100]]).expect("inside");
    node.begin_snapshot();
    for _ in 0..1000 {
        node.work();
    }
    assert_eq!(snapshots(&world), before, "it would lack the records after the damage");
    region.write_bytes(at as u64 + 100, &value[100..101]).expect("inside");
    node.begin_snapshot();
    for _ in 0..1000 {
        node.work();
    }
    assert_ne!(snapshots(&world), before);
}
