//! Clients of tasks over several memory nodes, and over one that is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncClient, AsyncTableClient, Client, ClientError, CreateOptions, KeyKind, TableClient, Tables, U64Keys,
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

/// Calls whose deadline is far away do not keep workers waiting for a memory node that says nothing: others find it lost in
/// their own time.
#[test]
fn a_memory_node_that_falls_silent_is_lost_however_long_a_call_may_take() {
    let node = Node::tcp();
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = Arc::clone(&is_silent);
    let address = stand_before(&node.url, move || {
        let silent = Arc::clone(&silent);
        move |towards, _: &[u8]| {
            while towards == Towards::Client && silent.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    let tables = Tables::connect(&address).unwrap();
    tables.create(&name(), KeyKind::U64, CreateOptions::default()).unwrap();
    let patience = Duration::from_millis(500);
    let client = TableClient::connect_with(&address, config().with_deadline(patience)).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        client.put(1, &[1; 8]).await.unwrap();
        // Each worker has fetched the table, and its socket.
        let mut tasks = JoinSet::new();
        (0..200).for_each(|_| {
            let client = client.clone();
            tasks.spawn(async move { client.get(1).await.unwrap() });
        });
        tasks.join_all().await;
        is_silent.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let patient = client.with_deadline(PATIENCE);
        let waiting = tokio::spawn(async move { patient.get(1).await });
        let error = client.get(1).await.unwrap_err();
        assert!(error.is_retryable() && begun.elapsed() < PATIENCE / 2, "{error}");
        tokio::time::sleep(patience * 2).await;
        is_silent.store(false, Ordering::SeqCst);
        // It was lost, and is found again.
        let found = waiting.await.unwrap();
        assert!(matches!(found, Ok(Some(_)) | Err(ClientError::Fabric(_))), "{found:?}");
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    });
}
