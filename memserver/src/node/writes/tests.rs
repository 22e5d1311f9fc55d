use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{ErrorCode, Sent, WriteBatch, WriteKind, WriteOperation, WriteReply, decode_reply};
use fpcache_fabric::{ClientId, Handled, SHORT_BODY, Service, SharedMemory, Work};

use crate::awaiting_sync::PendingOperation;
use crate::durability::SyncPolicy;
use crate::durability::memory_disk::MemoryDisk;
use crate::node::MemoryNode;
use crate::node::parked::{QUANTUM, SHORT_REQUEST, cost};
use crate::store::{Background, Memories, Startup, recovery_area_bytes, restore};

/// A memory node with a thousand records, whose writes wait for a disk that gets on in
/// [`Service::work`] only.
fn durable_node() -> MemoryNode<U64Keys, SharedMemory> {
    const RING: u64 = 1 << 20;
    let memory = |bytes| Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    let memories = Memories::new(memory(4 << 20), memory(recovery_area_bytes(RING) as usize));
    let (sync, boot, now) = (SyncPolicy::Always, [3; 16], Instant::now());
    let startup = Startup { sync, ring_bytes: RING, boot, incarnation: 1, lineage: 77, node: 0, now };
    let disk = MemoryDisk::new(1);
    let (mut node, _) = restore(memories, disk, &startup, Background::Inline, None).expect("a new store");
    let records = (0..1000u32).map(|key| (u64::from(key), u64::from(key).to_le_bytes()));
    node.load_records(TableParameters::default(), (), records).expect("room");
    node
}

#[test]
fn operations_of_short_requests_that_wait_for_a_slow_disk_take_bounded_memory_and_all_are_done() {
    const CLIENTS: u64 = 400;
    const DELETES: u64 = 900;
    let mut node = durable_node();
    let expected = RecordToken::default();
    for client in 1..=CLIENTS {
        let mut batch = WriteBatch::default();
        let (kind, value) = (WriteKind::Put, Sent::Here(&[7; 8]));
        batch.push::<U64Keys>(&WriteOperation { kind, key: client, hint: None, expected, value });
        for key in (1 << 50)..(1 << 50) + DELETES {
            let (kind, value) = (WriteKind::Delete, Sent::Here(&[]));
            batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
        }
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        batch.request(client, 1, false).encode::<U64Keys>(0, &mut request);
        assert!(request.len() <= SHORT_BODY);
        // Turn after turn, in which the disk gets nothing done.
        node.renew_allowance();
        assert_eq!(node.handle(ClientId(client), &request, &mut reply), Handled::Later);
        let bytes = node.pending.added() as usize * size_of::<PendingOperation<U64Keys>>();
        assert!(bytes <= 8 << 20, "{bytes} bytes of {client} requests");
    }
    let (mut waiting, mut reply) = ((1..=CLIENTS).map(ClientId).collect::<HashSet<_>>(), Vec::new());
    for _ in 0..10_000 {
        node.work();
        while let Some(client) = node.next_reply(&mut reply) {
            let replies = decode_reply(&reply).expect("done");
            assert_eq!(replies.len() as u64, (1 + DELETES) * WriteReply::BYTES as u64);
            assert!(waiting.remove(&client));
            reply.clear();
        }
        if waiting.is_empty() {
            break;
        }
    }
    assert!(waiting.is_empty(), "{} have no reply", waiting.len());
    assert!(node.pending.is_empty());
}

/// A request of a client for operations of this kind on some keys.
fn request(kind: WriteKind, client: u64, keys: std::ops::Range<u64>) -> Vec<u8> {
    let (mut batch, mut request) = (WriteBatch::default(), Vec::new());
    let value = Sent::Here(if kind == WriteKind::Delete { &[] } else { &[7; 8] });
    for key in keys {
        let expected = RecordToken::default();
        batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
    }
    batch.request(client, 1, false).encode::<U64Keys>(0, &mut request);
    request
}

/// It was noted without its upper bits, so that a process after this one would do it again.
#[test]
fn requests_whose_numbers_cannot_be_noted_are_refused() {
    let mut node = durable_node();
    let mut batch = WriteBatch::default();
    let (expected, value) = (RecordToken::default(), Sent::Here(&[7; 8]));
    batch.push::<U64Keys>(&WriteOperation {
        kind: WriteKind::Insert,
        key: 5000,
        hint: None,
        expected,
        value,
    });
    for (client, number, is_refused) in [(1, (1 << 48) - 1, false), (2, 1 << 48, true), (3, u64::MAX, true)] {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        batch.request(client, number, false).encode::<U64Keys>(0, &mut request);
        let handled = node.handle(ClientId(client), &request, &mut reply);
        let code = (handled == Handled::Now).then(|| decode_reply(&reply).expect_err("it is refused").code);
        assert_eq!(code, is_refused.then_some(ErrorCode::Invalid), "{number}");
    }
}

#[test]
fn what_one_sync_brought_to_the_disk_is_published_turn_by_turn_and_parked_requests_get_on() {
    const UPDATES: u64 = 25;
    let mut node = durable_node();
    let mut reply = Vec::new();
    for first in (0..1000).step_by(UPDATES as usize) {
        node.renew_allowance();
        let updates = request(WriteKind::Update, 1 + first, first..first + UPDATES);
        assert_eq!(node.handle(ClientId(1 + first), &updates, &mut reply), Handled::Later);
    }
    assert_eq!(node.pending.added(), 1000);
    node.allowance = 0;
    let deletes = request(WriteKind::Delete, 5000, 1 << 50..(1 << 50) + 300);
    assert!(deletes.len() > SHORT_REQUEST);
    assert_eq!(node.handle(ClientId(5000), &deletes, &mut reply), Handled::Later);

    if let Some((last, wal)) = node.pending.last().zip(node.wal.as_mut()) {
        wal.staging.want_sync(last);
    }
    let most = (QUANTUM / cost::PUBLISHED + 1) as u64;
    let (mut turns, mut replies) = (0, 0);
    while !node.pending.is_empty() {
        let before = node.stats().writes;
        let work = node.work();
        let published = node.stats().writes - before;
        assert!(published <= most, "{published} in a turn");
        assert!(node.parked.is_empty(), "the parked request has had its turn");
        assert!(work == Work::More || node.pending.is_empty(), "there is more to publish");
        while node.next_reply(&mut reply).is_some() {
            replies += 1;
            reply.clear();
        }
        turns += 1;
    }
    assert_eq!(replies, 1000 / UPDATES + 1);
    assert!(turns >= 2, "all in {turns} turns");
}
