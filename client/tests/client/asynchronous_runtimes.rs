//! Clients of tasks whose runtime ends before they do, and what they leave it for other tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{AsyncClient, AsyncConfig, AsyncTableClient, Client, ClientConfig, U64Keys};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::asynchronous::{one_thread, over_sockets, threads};
use crate::common::{PATIENCE, TestKeys, ThreadNode, load, wait_until};
use crate::over_nodes::{Node as OneOf, config, make, urls};
use crate::proxies::slow_while;
use crate::remote::Node;

for_both_kinds_of_keys!(a_client_goes_on_in_another_runtime_once_its_own_has_ended);

/// Calls that take less have not waited in vain.
const SOON: Duration = Duration::from_secs(PATIENCE.as_secs() / 2);

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
        let client = Client::connect_with(&address, config).unwrap();
        AsyncTableClient::of_with(client, AsyncConfig::default().with_sockets(1))
    });
    load(client.client(), U64Keys::parameters(), 0..100, 0).unwrap();
    assert!(first.block_on(client.get(1)).unwrap().is_some());
    is_slow.store(true, Ordering::SeqCst);
    let (reading, asked) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let reader = thread::spawn(move || {
        one_thread().block_on(async {
            let mut calls = tokio::task::JoinSet::new();
            for key in 0..64 {
                let (client, count) = (reading.clone(), Arc::clone(&count));
                calls.spawn(async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    client.get(key).await
                });
                sleep(Duration::from_millis(1)).await;
            }
            calls.join_all().await
        })
    });
    wait_until(|| asked.load(Ordering::SeqCst) == 64);
    thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    first.shutdown_background();
    let ended = reader.join().unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    assert!(ended.iter().all(|read| read.as_ref().is_err_and(|error| error.is_retryable())), "{ended:?}");
    is_slow.store(false, Ordering::SeqCst);
}

/// How many turns another task of the same thread has beside a call.
async fn turns_beside(call: impl Future) -> usize {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::SeqCst);
            yield_now().await;
        }
    });
    call.await;
    other.abort();
    turns.load(Ordering::SeqCst)
}

/// Tens of thousands of keys were looked up, or records read, between two of them.
#[test]
fn other_tasks_have_turns_between_the_pieces_of_a_long_read_of_mapped_memory() {
    const KEYS: u64 = 100_000;
    let node = ThreadNode::<U64Keys>::start(32 << 20);
    let client = node.client();
    load(&client, <U64Keys as TestKeys>::parameters(), 0..KEYS, 1).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let keys: Vec<u64> = (0..KEYS).collect();
        // Pieces of 256 keys.
        let group = async { assert!(client.multi_get(&keys).await.unwrap().iter().all(Option::is_some)) };
        let turns = turns_beside(group).await;
        assert!(turns >= KEYS as usize / 256 - 10, "{turns}");
        // Parts of 1,024 records.
        let scan = async {
            let (mut records, mut count) = (client.range(0u64..), 0);
            while let Some(record) = records.next().await {
                record.unwrap();
                count += 1;
            }
            assert_eq!(count, KEYS);
        };
        let turns = turns_beside(scan).await;
        assert!(turns >= KEYS as usize / 1024 - 10, "{turns}");
    });
}

/// A map of two ranges divided the keys, and all of them were looked up at once.
#[test]
fn other_tasks_have_turns_between_the_pieces_of_a_long_read_of_several_mapped_nodes() {
    const KEYS: u64 = 50_000;
    let nodes = [OneOf::shm(), OneOf::shm()];
    make::<U64Keys>(&nodes, &[KEYS / 2], Some(8));
    let client = Client::connect_with(&urls(&nodes), config()).unwrap();
    load(&client, <U64Keys as TestKeys>::parameters(), 0..KEYS, 1).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let keys: Vec<u64> = (0..KEYS).collect();
        assert!(client.multi_get(&keys[..1]).await.unwrap()[0].is_some());
        assert!(client.multi_get(&keys[KEYS as usize - 1..]).await.unwrap()[0].is_some());
        let group = async { assert!(client.multi_get(&keys).await.unwrap().iter().all(Option::is_some)) };
        let turns = turns_beside(group).await;
        // Of each range one piece at a time.
        assert!(turns >= KEYS as usize / 2 / 256 - 10, "{turns}");
    });
}

/// They were copied between two turns of others, up to 4 GiB.
#[test]
fn other_tasks_have_turns_beside_a_group_of_long_values_of_mapped_memory() {
    const KEYS: u64 = 64;
    const LONG: usize = 1 << 20;
    let node = ThreadNode::<U64Keys>::start(96 << 20);
    let client = node.client();
    client.create(<U64Keys as TestKeys>::parameters_of(None)).unwrap();
    (0..KEYS).for_each(|key| client.put(key, &vec![key as u8; LONG]).unwrap());
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let keys: Vec<u64> = (0..KEYS).collect();
        // The table is there from here on.
        assert!(client.get(KEYS).await.unwrap().is_none());
        let group = async {
            let values = client.multi_get(&keys).await.unwrap();
            let is_right = |(key, value): (u64, Option<Vec<u8>>)| value == Some(vec![key as u8; LONG]);
            assert!((0..).zip(values).all(is_right));
        };
        let turns = turns_beside(group).await;
        assert!(turns >= 10, "{turns}");
    });
}
