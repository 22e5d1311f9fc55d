//! The real client in simulated worlds: READs that tear and come late change no answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Instant;

use common::TestKeys;
use fpcache_client::{BuildKeys, ClientConfig, TableClient};
use fpcache_fabric::{ClientId, Handled, NodeMemory, Service, SharedMemory};
use fpcache_memserver::MemoryNode;
use fpcache_sim::{MemoryOptions, NodeOptions, NodeStart, SimOptions, Verdict, World, explore};

const BYTES: usize = 512 << 10;
const KEYS: u64 = 2_000;

/// A memory node that was loaded elsewhere and serves a copy of its region.
struct Loaded<K: BuildKeys>(MemoryNode<K>);

impl<K: BuildKeys> Service for Loaded<K> {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.0.handle(client, request, reply)
    }
}

fn serve<K: TestKeys>(start: &NodeStart) -> Loaded<K> {
    let region = Arc::new(SharedMemory::anonymous(BYTES).unwrap());
    let mut node = MemoryNode::<K>::new(Arc::clone(&region), start.life, 0, Instant::now()).unwrap();
    let keys = (0..KEYS).map(|key| K::key(key * 3)).collect::<Vec<_>>().into_iter();
    node.load(K::parameters(), keys, |i, out| {
        out.copy_from_slice(&(i as u64).to_le_bytes());
    })
    .unwrap();
    let mut bytes = vec![0; BYTES];
    region.read_bytes(0, &mut bytes).unwrap();
    start.memories[0].write_bytes(0, &bytes).unwrap();
    Loaded(node)
}

fn lookups_are_right<K: TestKeys>(world: &mut World) -> Verdict {
    let node = world.add_node(NodeOptions::new(vec![MemoryOptions::region(BYTES)]), |start| {
        Box::new(serve::<K>(&start))
    })?;
    for _ in 0..3 {
        world.spawn("client", move |mut process| {
            let client = TableClient::<K>::simulated(&process.sim, node, ClientConfig::default()).unwrap();
            for _ in 0..50 {
                let key = process.random.below(3 * KEYS);
                let expected = key.is_multiple_of(3).then(|| (key / 3).to_le_bytes().to_vec());
                assert_eq!(client.get(K::key(key)).unwrap(), expected);
            }
            let scanned = client.scan(K::key(2_999), 10).unwrap();
            assert_eq!(scanned[0], (K::key(3_000), 1_000u64.to_le_bytes().to_vec()));
            client.stats().unwrap();
        });
    }
    world.run()?;
    Ok(())
}

for_both_kinds_of_keys!(
    lookups_and_scans_are_right_in_every_world,
    a_client_does_the_same_again_from_the_same_seed
);

fn lookups_and_scans_are_right_in_every_world<K: TestKeys>() {
    explore(0..20, &SimOptions::default(), lookups_are_right::<K>);
}

fn a_client_does_the_same_again_from_the_same_seed<K: TestKeys>() {
    let run = |seed| {
        let mut world = World::new(SimOptions::default().with_seed(seed));
        lookups_are_right::<K>(&mut world).unwrap();
        world.report()
    };
    for seed in 100..103 {
        assert_eq!(run(seed), run(seed));
    }
}
