//! Clients of tasks over several memory nodes, and over one that is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncClient, AsyncConfig, AsyncTableClient, Client, CreateOptions, KeyKind, TableClient, Tables, U64Keys,
};
use tokio::task::JoinSet;

use crate::asynchronous::{answers_are_those_of_a_map, one_thread, threads};
use crate::common::{PATIENCE, TestKeys};
use crate::over_nodes::{Node, config, make, name};
use crate::proxies::{Towards, stand_before};

for_both_kinds_of_keys!(answers_over_three_memory_nodes_are_those_of_a_map);

fn answers_over_three_memory_nodes_are_those_of_a_map<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    make::<K>(&nodes, &[300 << 29, 2_000 << 29], Some(8));
    one_thread().block_on(async {
        let client = AsyncTableClient::<K>::connect_with(&nodes[2].url, config()).await.unwrap();
        answers_are_those_of_a_map(&client).await;
    });
}

#[test]
fn a_change_that_cannot_be_made_fails_alone_also_over_two_memory_nodes() {
    let nodes = [Node::shm(), Node::tcp()];
    make::<U64Keys>(&nodes, &[100], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    threads(2).block_on(async {
        let client = AsyncClient::of(client);
        let mut tasks = JoinSet::new();
        for key in 0..200u64 {
            let client = client.clone();
            tasks.spawn(async move {
                let value = vec![1; if key % 10 == 0 { 9 } else { 8 }];
                (key, client.insert(key, &value).await)
            });
        }
        for (key, inserted) in tasks.join_all().await {
            // `false` would say that it was made before, by a request that was told to have failed.
            assert_eq!(inserted.ok(), (key % 10 != 0).then_some(true));
            assert_eq!(client.contains(key).await.unwrap(), key % 10 != 0);
        }
    });
}

/// Changes that had been made at the other one were told to be of unknown outcome, or were not sent.
#[test]
fn a_memory_node_that_is_away_keeps_no_change_from_another() {
    for away in [0, 1] {
        let mut nodes = [Node::tcp(), Node::tcp()];
        make::<U64Keys>(&nodes, &[100], Some(8));
        let client = Client::connect_with(&nodes[0].url, config()).unwrap();
        for key in [1, 101] {
            client.put(key, &[0; 8]).unwrap();
        }
        nodes[away].end();
        threads(2).block_on(async {
            let client = AsyncClient::of(client);
            for round in 0..3u64 {
                let mut tasks = JoinSet::new();
                for key in 0..200 {
                    let client = client.clone();
                    tasks.spawn(async move { (key, client.put(key, &round.to_le_bytes()).await) });
                }
                for (key, put) in tasks.join_all().await {
                    match ((key >= 100) == (away == 1), put) {
                        (true, Err(error)) => assert!(round == 0 || error.is_retryable(), "{key}: {error}"),
                        (false, Ok(_)) => {
                            assert_eq!(client.get(key).await.unwrap().unwrap(), round.to_le_bytes())
                        }
                        (_, put) => panic!("{key}: {put:?}"),
                    }
                }
            }
        });
    }
}

/// As when a machine is started anew and knows nothing of its sockets: a call that may take long finds that in the time that the
/// memory node has, not in its own.
#[test]
fn sockets_that_fall_silent_are_left_however_long_a_call_may_take() {
    let node = Node::tcp();
    // Sockets that were made before this grows are silent from then on.
    let age = Arc::new(AtomicU64::new(0));
    let now = Arc::clone(&age);
    let address = stand_before(&node.url, move || {
        let (made, now) = (now.load(Ordering::SeqCst), Arc::clone(&now));
        move |towards, _: &[u8]| {
            while towards == Towards::Client && now.load(Ordering::SeqCst) > made {
                thread::sleep(Duration::from_millis(20));
            }
            true
        }
    });
    let tables = Tables::connect(&address).unwrap();
    tables.create(&name(), KeyKind::U64, CreateOptions::default()).unwrap();
    let patience = Duration::from_secs(1);
    let client = TableClient::connect_with(&address, config().with_deadline(patience)).unwrap();
    one_thread().block_on(async {
        let one = AsyncConfig::default().with_sockets(1);
        let client = AsyncClient::of_with(client, one).with_deadline(PATIENCE);
        client.put(1, &[1; 8]).await.unwrap();
        assert!(client.get(1).await.unwrap().is_some());
        age.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        assert_eq!(client.get(1).await.unwrap(), Some(vec![1; 8]));
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    });
}
