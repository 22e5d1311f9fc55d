//! What is done between requests is done also under writes that never cease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Integers, TestKeys};
use crate::common::requests::{batch, post};
use fpcache::key_space::U64Keys;
use fpcache::message::{NodeStats, WriteKind};
use fpcache_fabric::{ClientId, Handled, Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;

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
