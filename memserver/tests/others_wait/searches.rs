//! Values that find no room: the search for some goes in steps.

use super::*;

use fpcache::layout::RecordToken;
use fpcache::message::{Sent, WriteBatch, WriteOperation};

/// A memory node with much room, none of it in one piece.
fn fragmented() -> MemoryNode<U64Keys> {
    let mut node = empty(64 << 20);
    let parameters = TableParameters { epsilon: 4, max_slots: 64, ..LongValues::parameters(8) };
    let records = (0..100_000u32).map(|i| (u64::from(i) * 10, vec![1; 600]));
    node.load_records(parameters, (), records).expect("room");
    for (first, request) in (0..100_000).step_by(1000).zip(1..) {
        let deletes: Vec<_> =
            (first..first + 1000).step_by(2).map(|i| (WriteKind::Delete, i * 10, &[][..])).collect();
        let deletes = batch::<LongValues>(&deletes);
        decode_reply(&call::<LongValues>(&mut node, &deletes.request(6, request, false))).expect("deleted");
    }
    node
}

#[test]
fn a_value_without_room_has_the_table_gone_over_in_steps() {
    let mut node = fragmented();
    let put = |key: u64, value: &[u8]| batch::<LongValues>(&[(WriteKind::Put, key, value)]);
    let (long, short) = (put(1, &[7; 3_000_000]), put(3, b"short"));
    let mut key = Vec::new();
    put_key::<U64Keys>(&10, &mut key);
    let get = Request::Get(AskedKeys { count: 1, bytes: &key });

    let search = |node: &mut MemoryNode<U64Keys>, put: &Request<'_>| {
        let (handled, reply) = post::<LongValues>(node, GREEDY, put);
        assert_eq!(handled, Handled::Later, "all at once: {:?}", statuses(&reply));
        for _ in 0..3 {
            node.work();
        }
        assert_eq!(node.next_reply(&mut Vec::new()), None, "all at once");
    };
    search(&mut node, &long.request(7, 1, false));
    let (handled, reply) = post::<LongValues>(&mut node, OTHER, &get);
    assert_eq!((handled, decode_reply(&reply).is_ok()), (Handled::Now, true), "lookups go on");
    let (handled, _) = post::<LongValues>(&mut node, OTHER, &short.request(8, 1, false));
    assert_eq!(handled, Handled::Later, "another write would take what is made room of");
    let (rounds, reply, others) = rounds_until(&mut node, OTHER);
    assert_eq!(others, [GREEDY], "{rounds} rounds");
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]));
    let reader = Writer::<LongValues>::new(99);
    assert!(reader.get(&mut node, 1).is_some_and(|(value, _)| value == vec![7; 3_000_000]), "it found room");
    node.audit().expect("whole");

    // One whose client goes away keeps no other client waiting, and nothing from being used.
    let mut node = fragmented();
    search(&mut node, &long.request(7, 1, false));
    let (handled, _) = post::<LongValues>(&mut node, OTHER, &short.request(8, 1, false));
    assert_eq!(handled, Handled::Later);
    node.disconnected(GREEDY);
    let (rounds, reply, others) = rounds_until(&mut node, OTHER);
    assert!(rounds <= 3 && others.is_empty(), "{rounds} rounds, {others:?}");
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]));
    node.audit().expect("whole");
    assert_eq!(post::<LongValues>(&mut node, GREEDY, &long.request(9, 1, false)).0, Handled::Later);
    let (_, reply, _) = rounds_until(&mut node, GREEDY);
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]), "what was emptied is used");
    node.audit().expect("whole");
}

/// A piece of a value of `value_bytes` bytes, whose memory has to be found.
fn first_piece(client: u64, value_bytes: u32) -> Request<'static> {
    Request::Value(ValuePiece { client, request: 1, operation: 0, value_bytes, offset: 0, bytes: &[9; 100] })
}

/// Has a long value put into a table whose room is in pieces; the rounds until it is there, before
/// each of which something happens.
fn rounds_of_a_search(mut meanwhile: impl FnMut(&mut MemoryNode<U64Keys>)) -> usize {
    let mut node = fragmented();
    let long = batch::<LongValues>(&[(WriteKind::Put, 1, &[7; 3_000_000])]);
    assert_eq!(post::<LongValues>(&mut node, GREEDY, &long.request(7, 1, false)).0, Handled::Later);
    for round in 1..2_000 {
        meanwhile(&mut node);
        node.work();
        let mut reply = Vec::new();
        while let Some(client) = node.next_reply(&mut reply) {
            if client == GREEDY {
                assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]), "after {round} rounds");
                node.audit().expect("whole");
                return round;
            }
            reply.clear();
        }
    }
    panic!("no reply")
}

#[test]
fn waiters_that_hang_up_do_not_have_the_search_of_another_begin_anew() {
    let alone = rounds_of_a_search(|_| {});
    let piece = first_piece(8, 2_000_000);
    let beside = rounds_of_a_search(|node| {
        assert_eq!(post::<LongValues>(node, OTHER, &piece).0, Handled::Later);
        node.disconnected(OTHER);
    });
    assert!(beside <= alone + 3, "{beside} rounds, {alone} alone");
}

#[test]
fn readers_that_want_a_directory_have_none_written_amid_a_search() {
    let directories = |wanted: bool| {
        let mut key = Vec::new();
        put_key::<U64Keys>(&10, &mut key);
        let get = Request::Get(AskedKeys { count: 1, bytes: &key });
        let mut seen = BTreeSet::new();
        rounds_of_a_search(|node| {
            if wanted {
                post::<LongValues>(node, OTHER, &get);
            }
            seen.insert(node.stats().checkpoint);
        });
        seen.len()
    };
    assert_eq!(directories(true), directories(false));
}

#[test]
fn a_value_that_finds_no_room_does_not_search_while_another_write_is_first() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_secs(3600))] {
        let mut world = World::new(sync, 8);
        let (mut node, _) = world.begin::<LongValues>();
        load::<LongValues>(&mut node, 100);
        // The first is on its way to the log for a while; there is room for both.
        let writes = [(WriteKind::Put, 50, &[7; 150_000][..]), (WriteKind::Put, 100, &[8; 5_000])];
        let writes = batch::<LongValues>(&writes);
        assert_eq!(post::<LongValues>(&mut node, GREEDY, &writes.request(7, 1, false)).0, Handled::Later);
        // There is no room for this, whatever is moved.
        assert_eq!(post::<LongValues>(&mut node, OTHER, &first_piece(8, 400_000)).0, Handled::Later);
        let (_, reply, others) = rounds_until(&mut node, GREEDY);
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done; 2]), "{sync:?}");
        if others.is_empty() {
            rounds_until(&mut node, OTHER);
        }
        node.audit().expect("whole");
    }
}

/// The search for room that an insert had begun made a slot of its key free, and the insert was
/// refused because the search was still under way.
#[test]
fn an_insert_is_done_whose_search_for_room_has_made_a_slot_free() {
    const LOADED: u64 = 40_000;
    let mut node = empty(4 << 20);
    let records = (0..LOADED as u32).map(|i| (u64::from(i) * 10, [1; 8]));
    node.load_records(LongValues::parameters(8), (), records).expect("room");
    let (handled, reply) = post::<LongValues>(&mut node, GREEDY, &first_piece(GREEDY.0, 100));
    assert!(handled == Handled::Now && decode_reply(&reply).is_ok());
    let mut request = 0;
    let mut write = |node: &mut MemoryNode<U64Keys>, client, writes: &[(WriteKind, u64, &[u8])]| {
        request += 1;
        let writes = batch::<LongValues>(writes);
        let (handled, reply) = post::<LongValues>(node, client, &writes.request(client.0, request, false));
        let reply = if handled == Handled::Now { reply } else { rounds_until(node, client).1 };
        (handled, statuses(&reply).expect("a reply"))
    };
    // No memory is left.
    let mut last = LOADED;
    for value in [&[2; 600][..], &[2; 40]] {
        let mut status = WriteStatus::Done;
        while status == WriteStatus::Done {
            last -= 1;
            status = write(&mut node, OTHER, &[(WriteKind::Update, last * 10, value)]).1[0];
        }
        assert_eq!(status, WriteStatus::NoRoom);
    }
    // A lookup uses the turn up: nothing is compacted while short requests are served.
    let mut bytes = Vec::new();
    (0..5_000).for_each(|i| put_key::<U64Keys>(&i, &mut bytes));
    let get = Request::Get(AskedKeys { count: 5_000, bytes: &bytes });
    assert_eq!(post::<LongValues>(&mut node, ClientId(12), &get).0, Handled::Later);
    // Few records of the first segment are left, and half of those of the others.
    for i in (20..last).filter(|i| *i < 1_700 || i % 2 == 1) {
        let deleted = write(&mut node, OTHER, &[(WriteKind::Delete, i * 10, &[])]);
        assert_eq!(deleted, (Handled::Now, vec![WriteStatus::Done]), "{i}");
    }
    let rebuilds = node.stats().rebuilds;
    let mut insert = WriteBatch::default();
    let (kind, expected, value) = (WriteKind::Insert, RecordToken::default(), Sent::Ahead(100));
    insert.push::<U64Keys>(&WriteOperation { kind, key: 1, hint: None, expected, value });
    let (handled, _) = post::<LongValues>(&mut node, GREEDY, &insert.request(GREEDY.0, 1, false));
    assert_eq!(handled, Handled::Later, "its window is full");
    let (_, reply, _) = rounds_until(&mut node, GREEDY);
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]));
    assert!(node.stats().rebuilds > rebuilds);
    node.audit().expect("whole");
}
