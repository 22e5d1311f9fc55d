//! No client waits for another's request: what a request does before its reply comes in steps of
//! bounded cost, and the memory node's thread waits for no disk. Costs are counted, not measured.

#[path = "others_wait/bytes_read.rs"]
mod bytes_read;
#[path = "node/common/mod.rs"]
mod common;
#[path = "others_wait/loads.rs"]
mod loads;
#[path = "support/memory_disk.rs"]
mod memory_disk;
#[path = "others_wait/searches.rs"]
mod searches;
#[path = "others_wait/step_costs.rs"]
mod step_costs;
#[path = "support/watched_disk.rs"]
mod watched_disk;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::keys::{Integers, LongValues, TestKeys};
use common::requests::{Writer, batch, call, post, statuses, value};
use common::world::{World, load};
use fpcache::TableName;
use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::layout::TableParameters;
use fpcache::message::keys::put_key;
use fpcache::message::{AskedKeys, ErrorCode, Request, ValuePiece, WriteKind, WriteStatus, decode_reply};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::{Catalogue, CatalogueConfig, MemoryNode};

/// Whose requests are long, and who must not wait for them.
const GREEDY: ClientId = ClientId(10);
const OTHER: ClientId = ClientId(11);

/// Rounds of a serving loop until a client has its reply; the replies that others got meanwhile.
fn rounds_until(node: &mut impl Service, client: ClientId) -> (usize, Vec<u8>, Vec<ClientId>) {
    let mut others = Vec::new();
    for round in 1..10_000 {
        node.work();
        let mut reply = Vec::new();
        while let Some(answered) = node.next_reply(&mut reply) {
            if answered == client {
                return (round, reply, others);
            }
            others.push(answered);
            reply.clear();
        }
    }
    panic!("no reply")
}

#[test]
fn updates_of_one_key_that_each_wait_for_the_disk_keep_nobody_else_waiting() {
    let mut world = World::new(SyncPolicy::Always, 1);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let value = value::<Integers>(50, 1, 8);
    let updates = batch::<Integers>(&[(WriteKind::Update, 50, &value[..]); 500]);
    let syncs = world.disk.syncs();
    let (handled, _) = post::<Integers>(&mut node, GREEDY, &updates.request(7, 1, false));
    assert_eq!((handled, world.disk.syncs()), (Handled::Later, syncs), "nobody waits for the disk here");
    let put = batch::<Integers>(&[(WriteKind::Put, 100, &value[..])]);
    for request in 1..20 {
        assert_eq!(post::<Integers>(&mut node, OTHER, &put.request(8, request, false)).0, Handled::Later);
        let (rounds, reply, others) = rounds_until(&mut node, OTHER);
        assert!(rounds <= 3 && others.is_empty(), "{rounds} rounds for put {request}");
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]));
    }
    let (_, reply, _) = rounds_until(&mut node, GREEDY);
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done; 500]));
    node.audit().expect("whole");
}

#[test]
fn clients_that_update_the_same_key_take_turns() {
    let mut world = World::new(SyncPolicy::Always, 2);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let value = value::<Integers>(50, 1, 8);
    let many = batch::<Integers>(&[(WriteKind::Update, 50, &value[..]); 200]);
    let few = batch::<Integers>(&[(WriteKind::Update, 50, &value[..]); 3]);
    post::<Integers>(&mut node, GREEDY, &many.request(7, 1, false));
    post::<Integers>(&mut node, OTHER, &few.request(8, 1, false));
    let (rounds, reply, others) = rounds_until(&mut node, OTHER);
    assert!(rounds < 40 && others.is_empty(), "{rounds} rounds");
    assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done; 3]));
}

#[test]
fn a_request_that_is_repeated_while_the_first_is_parked_is_done_once() {
    let mut world = World::new(SyncPolicy::Always, 3);
    let (mut node, _) = world.begin::<Integers>();
    load::<Integers>(&mut node, 10);
    let value = value::<Integers>(50, 1, 8);
    let mut writes = vec![(WriteKind::Insert, 51, &value[..]), (WriteKind::Delete, 51, &[][..])];
    writes.extend([(WriteKind::Insert, 51, &value[..]); 2]);
    let once = Ok(vec![WriteStatus::Done, WriteStatus::Done, WriteStatus::Done, WriteStatus::Exists]);
    let writes = batch::<Integers>(&writes);
    assert_eq!(post::<Integers>(&mut node, GREEDY, &writes.request(7, 1, false)).0, Handled::Later);
    node.work();
    assert_eq!(post::<Integers>(&mut node, OTHER, &writes.request(7, 1, true)).0, Handled::Later);
    let (_, reply, _) = rounds_until(&mut node, OTHER);
    assert_eq!((statuses(&reply), node.stats().keys), (once.clone(), 11));
    // The connection of the first breaks amid it.
    let delete = batch::<Integers>(&[(WriteKind::Delete, 51, &[])]);
    let deleted = call::<Integers>(&mut node, &delete.request(9, 1, false));
    assert_eq!(statuses(&deleted), Ok(vec![WriteStatus::Done]));
    assert_eq!(post::<Integers>(&mut node, GREEDY, &writes.request(7, 2, false)).0, Handled::Later);
    node.work();
    assert_eq!(post::<Integers>(&mut node, OTHER, &writes.request(7, 2, true)).0, Handled::Later);
    node.disconnected(GREEDY);
    let (_, reply, others) = rounds_until(&mut node, OTHER);
    assert_eq!((statuses(&reply), others), (once, vec![]));
    assert_eq!(node.stats().keys, 11);
}

#[test]
fn a_value_longer_than_the_staging_ring_is_written_down_without_waiting_for_the_disk() {
    for sync in [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_secs(3600))] {
        let mut world = World::new(sync, 4);
        let (mut node, _) = world.begin::<LongValues>();
        load::<LongValues>(&mut node, 10);
        let long = vec![7; 150_000];
        let writes = batch::<LongValues>(&[(WriteKind::Put, 50, &long)]);
        let syncs = world.disk.syncs();
        let (handled, _) = post::<LongValues>(&mut node, GREEDY, &writes.request(7, 1, false));
        assert_eq!((handled, world.disk.syncs()), (Handled::Later, syncs), "nobody waits for the disk here");
        // Nothing comes between its pieces: a crash amid them, and after, finds what it should.
        let put = batch::<LongValues>(&[(WriteKind::Put, 100, b"short")]);
        assert_eq!(post::<LongValues>(&mut node, OTHER, &put.request(8, 1, false)).0, Handled::Later);
        node.work();
        node.begin_snapshot();
        let (_, reply, _) = rounds_until(&mut node, OTHER);
        assert_eq!(statuses(&reply), Ok(vec![WriteStatus::Done]));
        for _ in 0..200 {
            node.work();
        }
        // One whose client goes away amid its pieces leaves nothing.
        let used = node.stats().used_bytes;
        post::<LongValues>(&mut node, GREEDY, &writes.request(7, 2, false));
        node.work();
        node.disconnected(GREEDY);
        assert_eq!(node.stats().used_bytes, used);
        let reader = Writer::<LongValues>::new(99);
        for life in 0..3 {
            assert_eq!(
                reader.get(&mut node, 50).map(|(found, _)| found),
                Some(long.clone()),
                "{sync:?}, life {life}"
            );
            assert_eq!(reader.get(&mut node, 100).map(|(found, _)| found), Some(b"short".to_vec()));
            node.audit().expect("whole");
            for _ in 0..50 {
                node.work();
            }
            drop(node);
            if life == 1 && sync == SyncPolicy::Always {
                world.disk = world.disk.crash();
                (world.region, world.recovery_area) = {
                    let fresh = World::new(sync, 5);
                    (fresh.region, fresh.recovery_area)
                };
            }
            (node, _) = world.begin::<LongValues>();
        }
    }
}

/// A memory node without a log, and its clock.
fn empty(bytes: usize) -> MemoryNode<U64Keys> {
    let region = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    MemoryNode::new(region, 1, 0, Instant::now()).expect("a region")
}

#[test]
fn lookups_and_writes_of_many_keys_take_several_turns() {
    let mut node = empty(64 << 20);
    let values = [0; 8];
    let keys = 60_000u32;
    node.load(Integers::parameters(8), (0..keys).map(|i| u64::from(i) * 10), |_, out| {
        out.copy_from_slice(&values)
    })
    .expect("room");
    let mut bytes = Vec::new();
    (0..40_000u64).for_each(|i| put_key::<U64Keys>(&(i * 10), &mut bytes));
    let get = Request::Get(AskedKeys { count: 40_000, bytes: &bytes });
    let (handled, _) = post::<Integers>(&mut node, GREEDY, &get);
    assert_eq!(handled, Handled::Later, "all at once");
    let put = batch::<Integers>(&[(WriteKind::Put, 100, &values[..])]);
    let (handled, _) = post::<Integers>(&mut node, OTHER, &put.request(8, 1, false));
    assert_eq!(handled, Handled::Now, "a short request does not wait for it");
    let (rounds, reply, _) = rounds_until(&mut node, GREEDY);
    assert!(rounds >= 10, "{rounds} rounds for a long lookup");
    assert_eq!(decode_reply(&reply).map(<[u8]>::len), Ok(40_000 * 24));
    // More than a reply can hold is refused at once.
    (0..40_000u64).for_each(|i| put_key::<U64Keys>(&i, &mut bytes));
    let get = Request::Get(AskedKeys { count: 80_000, bytes: &bytes });
    let refused = call::<Integers>(&mut node, &get);
    assert_eq!(decode_reply(&refused).map_err(|refusal| refusal.code), Err(ErrorCode::Invalid));
    // Inserts into one place, most of which need a rebuild or two.
    let inserts: Vec<_> =
        (0..1000u64).map(|i| (WriteKind::Insert, 300_000 + i * 7 + 1, &values[..])).collect();
    let inserts = batch::<Integers>(&inserts);
    node.work();
    assert_eq!(post::<Integers>(&mut node, GREEDY, &inserts.request(9, 1, false)).0, Handled::Later);
    let (_, reply, _) = rounds_until(&mut node, GREEDY);
    assert_eq!(statuses(&reply).map(|statuses| statuses.len()), Ok(1000));
    node.audit().expect("whole");
}

#[test]
fn a_table_that_is_rebuilt_all_the_time_starves_no_other() {
    let config = CatalogueConfig::of(64 << 20);
    let mut tables = Catalogue::open(&config).expect("memory");
    let clients = [(ClientId(1), "busy"), (ClientId(2), "busy"), (OTHER, "calm")];
    for (client, table) in clients {
        let name: TableName = table.parse().expect("a name");
        if tables.kind_of(&name).is_none() {
            tables.create(name, KeyKind::U64, None).expect("room");
            let node = tables.node::<U64Keys>(&name).expect("a table");
            let keys = (0..1_000u32).map(|i| u64::from(i) << 40);
            node.load(Integers::parameters(8), keys, |_, out| out.fill(1)).expect("room");
        }
        tables.connected(client, table.as_bytes());
    }
    let creations = ["busy", "calm"].map(|name| tables.export(name.as_bytes()).expect("a table").creation());
    let post = |tables: &mut Catalogue, client, creation, request: &Request<'_>| {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.encode::<U64Keys>(creation, &mut bytes);
        let handled = tables.handle(client, &bytes, &mut reply);
        if handled == Handled::Now {
            assert!(decode_reply(&reply).is_ok());
        }
        handled
    };
    let busy: TableName = "busy".parse().expect("a name");
    let (mut number, mut owed, mut waits) = (0u64, BTreeSet::new(), 0);
    for request in 1..=150 {
        // Longer than a short one, which would not wait in any case.
        let puts: Vec<_> = (0..60).map(|i| (WriteKind::Put, (i * 7) << 40, &[2; 8][..])).collect();
        let puts = batch::<Integers>(&puts);
        let mut handled = post(&mut tables, OTHER, creations[1], &puts.request(OTHER.0, request, false));
        for round in 0.. {
            for client in [ClientId(1), ClientId(2)] {
                if owed.contains(&client) {
                    continue;
                }
                // Inserts all over the key space leave segments crowded, which is background work.
                let key = || {
                    number += 1;
                    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                };
                let keys: Vec<u64> = std::iter::repeat_with(key).take(200).collect();
                let puts: Vec<_> = keys.iter().map(|key| (WriteKind::Put, *key, &[1; 8][..])).collect();
                let puts = batch::<Integers>(&puts);
                let puts = puts.request(client.0, number, false);
                if post(&mut tables, client, creations[0], &puts) == Handled::Later {
                    owed.insert(client);
                }
            }
            if handled == Handled::Now {
                break;
            }
            waits += 1;
            assert!(round < 3, "put {request} still waits after {round} rounds");
            tables.work();
            let mut reply = Vec::new();
            while let Some(client) = tables.next_reply(&mut reply) {
                if client == OTHER {
                    handled = Handled::Now;
                }
                owed.remove(&client);
                reply.clear();
            }
        }
        tables.work();
        let mut reply = Vec::new();
        while let Some(client) = tables.next_reply(&mut reply) {
            owed.remove(&client);
            reply.clear();
        }
    }
    let node = tables.node::<U64Keys>(&busy).expect("a table");
    assert!(node.stats().rebuilds > 10, "{waits} rounds waited, {:?}", node.stats());
}

/// Rounds that a lookup of 5,000 keys takes beside `clients` clients that each send 20 short
/// operations whenever they are owed nothing; and how many segments these have replaced.
fn rounds_of_a_long_lookup(parameters: TableParameters, clients: u64, kind: WriteKind) -> (u64, u64) {
    const LOADED: u64 = 60_000;
    let mut node = empty(64 << 20);
    let values = [0; 8];
    node.load(parameters, (0..LOADED as u32).map(|i| u64::from(i) * 1000), |_, out| {
        out.copy_from_slice(&values)
    })
    .expect("room");
    let mut bytes = Vec::new();
    (0..5_000u64).for_each(|i| put_key::<U64Keys>(&(i * 1000), &mut bytes));
    let get = Request::Get(AskedKeys { count: 5_000, bytes: &bytes });
    assert_eq!(post::<Integers>(&mut node, GREEDY, &get).0, Handled::Later);
    let (mut number, before) = (0u64, node.stats().rebuilds);
    // Clients whose replies are still to come: one that is owed sends nothing.
    let mut owed = BTreeSet::new();
    for round in 1..3_000 {
        for client in (100..100 + clients).map(ClientId) {
            if owed.contains(&client) {
                continue;
            }
            let key = || {
                number += 1;
                let place = number.wrapping_mul(0x9e37_79b9) % (LOADED * 1000);
                if kind == WriteKind::Insert { place | 1 } else { place / 1000 * 1000 }
            };
            let keys: Vec<u64> = std::iter::repeat_with(key).take(20).collect();
            let writes: Vec<_> = keys.iter().map(|key| (kind, *key, &values[..])).collect();
            let writes = batch::<Integers>(&writes);
            if post::<Integers>(&mut node, client, &writes.request(client.0, round, false)).0
                == Handled::Later
            {
                owed.insert(client);
            }
        }
        node.work();
        let mut reply = Vec::new();
        while let Some(answered) = node.next_reply(&mut reply) {
            if answered == GREEDY {
                return (round, node.stats().rebuilds - before);
            }
            owed.remove(&answered);
            reply.clear();
        }
    }
    panic!("5,000 keys are not looked up in 3,000 rounds beside {clients} clients");
}

/// Short requests are served at once, as one of each client is in every round, and owe nothing
/// while they are as cheap as they are short: however many there are, a long one has its turns. One
/// that replaces segments is as long as any other: then clients have turns one after the other, and
/// each its share.
#[test]
fn short_requests_leave_a_long_one_its_turns() {
    const CLIENTS: u64 = 40;
    let usual = Integers::parameters(8);
    let small = TableParameters { epsilon: 4, max_slots: 256, ..usual };
    let (alone, _) = rounds_of_a_long_lookup(usual, 0, WriteKind::Update);
    assert!(alone > 5, "{alone} rounds alone");
    let (beside_cheap, _) = rounds_of_a_long_lookup(usual, 100, WriteKind::Update);
    assert!(beside_cheap <= 2 * alone, "{beside_cheap} rounds beside cheap requests, {alone} alone");
    // Each segment of thousands of records takes more than a turn, and many clients owe one: the
    // long request has half a turn.
    let long = TableParameters { max_slots: 4096, ..usual };
    let (beside_some, rebuilds) = rounds_of_a_long_lookup(long, 12, WriteKind::Insert);
    assert!(
        beside_some <= 3 * alone && rebuilds > alone,
        "{beside_some} rounds beside requests that replaced {rebuilds} long segments, {alone} alone"
    );
    let (beside_dear, rebuilds) = rounds_of_a_long_lookup(small, CLIENTS, WriteKind::Insert);
    assert!(
        beside_dear <= (CLIENTS + 1) * alone && rebuilds > beside_dear,
        "{beside_dear} rounds beside requests that replaced {rebuilds} segments, {alone} alone"
    );
}
