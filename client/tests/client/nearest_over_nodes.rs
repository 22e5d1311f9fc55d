//! Groups of keys whose nearest records are searched over several memory nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use fpcache_client::{AsyncClient, AsyncTableClient};
use fpcache_client::{Changes, Client, ClientError, CreateOptions, Nodes, TableClient, U64Keys};
use fpcache_fabric::FabricError;

#[cfg(feature = "tokio")]
use crate::asynchronous::one_thread;
use crate::common::{PATIENCE, TestKeys, value_in};
use crate::over_nodes::{Node, config, make, name};
use crate::proxies::slow;

for_both_kinds_of_keys!(nearest_records_of_a_group_are_those_of_a_map_whichever_ranges_are_empty);

fn nearest_records_of_a_group_are_those_of_a_map_whichever_ranges_are_empty<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp(), Node::tcp()];
    make::<K>(&nodes, &[100, 200, 300], Some(8));
    let client = TableClient::<K>::connect_with(&nodes[0].url, config()).unwrap();
    #[cfg(feature = "tokio")]
    let runtime = one_thread();
    #[cfg(feature = "tokio")]
    let tasks = runtime.block_on(async { AsyncTableClient::of(client.clone()) });
    let keys: Vec<K::Owned> = (0..41).rev().chain([3, 17, 17]).map(|at| K::key(at * 10 + 5)).collect();
    // The ranges that have records, by their bits.
    for filled in 0..16u64 {
        let mut map = BTreeMap::new();
        for number in (0..400).step_by(20) {
            if filled & (1 << (number / 100)) == 0 {
                client.delete(K::key(number)).unwrap();
                continue;
            }
            let value = value_in(&K::shape(Some(8)), number, filled);
            client.put(K::key(number), &value).unwrap();
            map.insert(K::key(number), value);
        }
        let own = |(key, value): (&K::Owned, &Vec<u8>)| (key.clone(), value.clone());
        let floors = keys.iter().map(|key| map.iter().rev().find(|(own, _)| *own <= key).map(own));
        assert!(floors.clone().eq(client.multi_floor(&keys).unwrap()), "{filled:04b}");
        let ceilings = keys.iter().map(|key| map.iter().find(|(own, _)| *own >= key).map(own));
        assert!(ceilings.clone().eq(client.multi_ceiling(&keys).unwrap()), "{filled:04b}");
        #[cfg(feature = "tokio")]
        runtime.block_on(async {
            assert!(floors.eq(tasks.multi_floor(&keys).await.unwrap()), "{filled:04b}");
            assert!(ceilings.eq(tasks.multi_ceiling(&keys).await.unwrap()), "{filled:04b}");
        });
    }
    assert_eq!(client.multi_floor(&keys[..0]).unwrap(), []);
}

/// Each key was searched by itself, one after the other.
#[test]
fn keys_of_one_memory_node_share_the_round_trips_of_a_search_also_over_several() {
    const DELAY: Duration = Duration::from_millis(20);
    const KEYS: u32 = 100;
    let nodes = [Node::tcp(), Node::tcp()];
    let addresses: Vec<String> = nodes.iter().map(|node| slow(&node.url, DELAY)).collect();
    let all = Nodes::at(&addresses.join(",")).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&addresses[0], config().with_deadline(PATIENCE)).unwrap();
    let keys: Vec<u64> = (0..u64::from(KEYS)).map(|at| at * 20).collect();
    let mut changes = Changes::new();
    keys.iter().for_each(|key| _ = changes.put(*key, &key.to_le_bytes()));
    client.apply(&changes, &mut Vec::new()).unwrap();
    // Fetches the models.
    assert_eq!(client.multi_floor(&[0, 1_000]).unwrap().len(), 2);
    let searched = (0..5).map(|_| {
        let begun = Instant::now();
        let found = client.multi_floor(&keys).unwrap();
        assert!(found.into_iter().map(|found| found.unwrap().0).eq(keys.iter().copied()));
        begun.elapsed()
    });
    let fastest = searched.min().unwrap();
    assert!(fastest < DELAY * KEYS / 2, "{fastest:?}");
}

/// It was said of the next memory node, which had been asked with no time left.
#[test]
fn a_group_whose_time_is_over_says_so_of_no_memory_node() {
    let nodes = [Node::shm(), Node::tcp()];
    let address = slow(&nodes[1].url, Duration::from_millis(5));
    let all = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &[100], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    for key in [0, 150] {
        client.put(key, &[7; 8]).unwrap();
    }
    assert_eq!(client.multi_ceiling(&[0, 150]).unwrap().len(), 2);
    // Enough where memory is mapped.
    let hurried = client.with_deadline(Duration::from_nanos(1));
    let error = hurried.multi_ceiling(&[0, 150]).unwrap_err();
    let is_deadline = matches!(error, ClientError::Fabric(FabricError::DeadlinePassed { .. }));
    assert!(is_deadline && error.is_retryable() && !error.to_string().contains("://"), "{error}");
    assert_eq!(client.multi_ceiling(&[0, 150]).unwrap().len(), 2);
}

/// They were searched one after the other, each in its own range once more.
#[cfg(feature = "tokio")]
#[test]
fn keys_of_tasks_that_lie_in_an_empty_range_share_the_round_trips_to_the_next_one() {
    const DELAY: Duration = Duration::from_millis(5);
    let nodes = [(); 3].map(|()| Node::tcp());
    let addresses: Vec<String> = nodes.iter().map(|node| slow(&node.url, DELAY)).collect();
    let all = Nodes::at(&addresses.join(",")).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1_000, 2_000], CreateOptions::default()).unwrap();
    let client = Client::connect_with(&addresses[0], config().with_deadline(PATIENCE)).unwrap();
    for key in [10, 2_010] {
        client.put(key, &[7; 8]).unwrap();
    }
    let keys: Vec<u64> = (1_000..1_500).chain([5, 3_000]).collect();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        // Connects all ranges.
        assert_eq!(client.multi_floor(&[20, 1_000, 2_020]).await.unwrap().len(), 3);
        for (side, nearest) in [("floor", 10), ("ceiling", 2_010)] {
            let before = client.async_counters().doorbells;
            let (found, edges) = match side {
                "floor" => (client.multi_floor(&keys).await.unwrap(), [None, Some(2_010)]),
                _ => (client.multi_ceiling(&keys).await.unwrap(), [Some(10), None]),
            };
            let expected = keys.iter().take(500).map(|_| Some(nearest)).chain(edges);
            assert!(found.into_iter().map(|found| found.map(|(key, _)| key)).eq(expected), "{side}");
            let doorbells = client.async_counters().doorbells - before;
            assert!(doorbells < 20, "{side}: {doorbells}");
        }
    });
}
