//! Clients of tasks whose runtime ends before they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{AsyncClient, AsyncConfig, AsyncTableClient, ClientConfig, U64Keys};
use tokio::time::sleep;

use crate::asynchronous::{one_thread, over_sockets, threads};
use crate::common::{PATIENCE, TestKeys, load};
use crate::over_nodes::{Node as OneOf, config, make, urls};
use crate::proxies::slow_while;
use crate::remote::Node;

for_both_kinds_of_keys!(a_client_goes_on_in_another_runtime_once_its_own_has_ended);

/// Calls that take less have not waited in vain.
const SOON: Duration = Duration::from_secs(3);

/// Every read waited for its whole deadline, as there was no worker left to make it.
fn a_client_goes_on_in_another_runtime_once_its_own_has_ended<K: TestKeys>() {
    let first = threads(2);
    let (_node, client) = first.block_on(over_sockets::<K>(0..100, AsyncConfig::default()));
    assert!(first.block_on(client.get(K::key(1))).unwrap().is_some());
    drop(first);
    for _ in 0..3 {
        let begun = Instant::now();
        one_thread().block_on(async {
            let (client, clone) = (client.clone(), client.clone());
            let other = tokio::spawn(async move { clone.contains(K::key(2)).await });
            assert!(client.get(K::key(1)).await.unwrap().is_some());
            assert!(other.await.unwrap().unwrap());
            let keys: Vec<K::Owned> = (0..100).map(K::key).collect();
            assert!(client.multi_get(&keys).await.unwrap().iter().all(Option::is_some));
            assert!(client.last().await.unwrap().is_some());
            let (mut scan, mut records) = (client.scan(K::key(0), usize::MAX), 0);
            while let Some(record) = scan.next().await {
                records += usize::from(record.is_ok());
            }
            assert_eq!(records, 100);
            client.put(K::key(1), &[7; 8]).await.unwrap();
        });
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
}

#[test]
fn a_table_over_several_memory_nodes_is_read_in_another_runtime() {
    let nodes = [OneOf::tcp(), OneOf::tcp()];
    make::<U64Keys>(&nodes, &[50], Some(8));
    let first = threads(1);
    // One range is connected in the first runtime, the other one after that has ended.
    let client = first.block_on(async {
        let client: AsyncClient = AsyncTableClient::connect_with(&urls(&nodes), config()).await.unwrap();
        client.put(1, &[1; 8]).await.unwrap();
        assert!(client.get(1).await.unwrap().is_some());
        client
    });
    drop(first);
    let begun = Instant::now();
    one_thread().block_on(async {
        client.put(60, &[1; 8]).await.unwrap();
        for key in [1, 60, 1, 60] {
            assert_eq!(client.get(key).await.unwrap(), Some(vec![1; 8]));
        }
        assert_eq!(client.multi_get(&[1, 2, 60]).await.unwrap().iter().flatten().count(), 2);
    });
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// No worker was left to answer them, and none of them was told.
#[test]
fn reads_of_other_runtimes_end_at_once_with_the_runtime_that_serves_them() {
    let node = Node::start();
    node.make::<U64Keys>("tasks");
    let is_slow = Arc::new(AtomicBool::new(false));
    let address = slow_while(node.url(), PATIENCE, &is_slow);
    let config = ClientConfig::default().with_table("tasks".parse().unwrap()).with_deadline(PATIENCE);
    let first = threads(1);
    // One worker, which is connected, and for which all others wait.
    let client: AsyncClient = first.block_on(async {
        let client = fpcache_client::Client::connect_with(&address, config).unwrap();
        AsyncTableClient::of_with(client, AsyncConfig::default().with_sockets(1))
    });
    load(client.client(), U64Keys::parameters(), 0..100, 0).unwrap();
    assert!(first.block_on(client.get(1)).unwrap().is_some());
    is_slow.store(true, Ordering::SeqCst);
    let reading = client.clone();
    let begun = Instant::now();
    let reader = thread::spawn(move || {
        one_thread().block_on(async {
            let mut calls = tokio::task::JoinSet::new();
            for key in 0..64 {
                let client = reading.clone();
                calls.spawn(async move { client.get(key).await });
                sleep(Duration::from_millis(1)).await;
            }
            calls.join_all().await
        })
    });
    thread::sleep(Duration::from_millis(500));
    first.shutdown_background();
    let ended = reader.join().unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(ended.iter().all(|read| read.as_ref().is_err_and(|error| error.is_retryable())), "{ended:?}");
    is_slow.store(false, Ordering::SeqCst);
}
