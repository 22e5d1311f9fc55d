//! Background work between requests is also done under writes that never cease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::keys::{Integers, TestKeys};
use crate::common::requests::{batch, post};
use crate::memory_disk::MemoryDisk;
use crate::watched_disk::{BeforeChange, WatchedDisk};
use fpcache::key_space::U64Keys;
use fpcache::message::{NodeStats, WriteKind};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Waker, Work};
use fpcache_memserver::MemoryNode;
use fpcache_memserver::durability::{DiskError, SyncPolicy};
use fpcache_memserver::store::{Background, Memories, Startup, recovery_area_bytes, restore};

fn random(n: u64) -> u64 {
    let mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Clients that have a request each in hand all the time.
struct Clients {
    owed: BTreeSet<u64>,
    requests: [u64; 8],
    inserted: u64,
}

impl Clients {
    fn new() -> Self {
        Self { owed: BTreeSet::new(), requests: [0; 8], inserted: 0 }
    }

    /// A request of each that has none in hand, one turn of the memory node, and its replies.
    fn round(&mut self, node: &mut MemoryNode<U64Keys>, operations: u64, below: u64) {
        for client in 1..=self.requests.len() as u64 {
            if self.owed.contains(&client) {
                continue;
            }
            let keys: Vec<u64> = (0..operations).map(|n| random(self.inserted + n) % below).collect();
            let writes: Vec<_> = keys.iter().map(|key| (WriteKind::Put, *key, &[2u8; 8][..])).collect();
            self.inserted += operations;
            let number = &mut self.requests[client as usize - 1];
            *number += 1;
            let request = batch::<Integers>(&writes);
            let request = request.request(client, *number, false);
            if post::<Integers>(node, ClientId(client), &request).0 == Handled::Later {
                self.owed.insert(client);
            }
        }
        let _: Work = node.work();
        let mut reply = Vec::new();
        while let Some(client) = node.next_reply(&mut reply) {
            self.owed.remove(&client.0);
            reply.clear();
        }
    }
}

#[test]
fn replaced_memory_comes_free_while_inserts_go_on() {
    const KEYS: u64 = 50_000;
    let region = Arc::new(SharedMemory::anonymous(256 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).expect("a region");
    let keys = (0..KEYS as u32).map(|n| u64::from(n) << 30);
    node.load(Integers::parameters(8), keys, |_, value| value.fill(1)).expect("room");
    let mut clients = Clients::new();
    let mut most = 0.0f64;
    while clients.inserted < 2 * KEYS {
        clients.round(&mut node, 200, KEYS << 30);
        let NodeStats { used_bytes, quarantined_bytes, .. } = node.stats();
        most = most.max(quarantined_bytes as f64 / (used_bytes - quarantined_bytes) as f64);
    }
    assert!(most < 0.125, "as much as {most:.2} of the rest waits for readers");
}

/// What makes a disk slow.
#[derive(Clone, Debug)]
struct Slow(Duration);

impl BeforeChange for Slow {
    fn before_change(&self, _: &str) -> Result<(), DiskError> {
        std::thread::sleep(self.0);
        Ok(())
    }
}

/// A memory node with a hundred records whose writes wait for a disk that a thread of its own
/// writes to.
fn durable_node() -> MemoryNode<U64Keys> {
    const RING: u64 = 16 << 20;
    let memory = |bytes| Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
    let memories = Memories::new(memory(64 << 20), memory(recovery_area_bytes(RING) as usize));
    let (sync, boot, now) = (SyncPolicy::Always, [3; 16], Instant::now());
    let startup = Startup { sync, ring_bytes: RING, boot, incarnation: 1, lineage: 77, node: 0, now };
    let disk = WatchedDisk { disk: MemoryDisk::new(1), before: Slow(Duration::from_micros(100)) };
    let threads = Background::Threads(Waker::new().expect("a waker"));
    let (mut node, _) = restore(memories, disk, &startup, threads, None).expect("a new store");
    node.load(Integers::parameters(8), (0..100u32).map(u64::from), |_, value| value.fill(1)).expect("room");
    node
}

#[test]
fn a_queue_whose_writes_always_wait_for_the_disk_takes_no_more_memory_with_time() {
    const CLIENTS: u64 = 32;
    const LIVE: u64 = 4000;
    let mut node = durable_node();
    let key = |n: u64| 1000 + n * 16;
    let (mut next, mut owed, mut requests) = (0, BTreeSet::new(), [0u64; CLIENTS as usize]);
    let mut most = 0;
    for round in 0.. {
        if next > 100_000 {
            break;
        }
        for client in 1..=CLIENTS {
            // Not all at once, so that some write waits at any time.
            if !random(round * CLIENTS + client).is_multiple_of(3) || owed.contains(&client) {
                continue;
            }
            let mut writes: Vec<(WriteKind, u64, &[u8])> = Vec::new();
            for _ in 0..8 {
                next += 1;
                writes.push((WriteKind::Put, key(next), &[2; 8]));
                if next > LIVE {
                    writes.push((WriteKind::Delete, key(next - LIVE), &[]));
                }
            }
            let number = &mut requests[client as usize - 1];
            *number += 1;
            let request = batch::<Integers>(&writes);
            let request = request.request(client, *number, false);
            if post::<Integers>(&mut node, ClientId(client), &request).0 == Handled::Later {
                owed.insert(client);
            }
        }
        node.work();
        let mut reply = Vec::new();
        while let Some(client) = node.next_reply(&mut reply) {
            owed.remove(&client.0);
            reply.clear();
        }
        let stats = node.stats();
        most = most.max(stats.used_bytes - stats.quarantined_bytes);
    }
    assert!(most < 2_300_000, "{most} bytes for {LIVE} records");
}
