//! Tasks go on when a memory node in another process is killed or stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fpcache_client::{AsyncClient, ClientConfig, ErrorKind, U64Keys};
use rustix::process::Signal;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::common::{Directory, PATIENCE, ProcessNode, TestKeys, load, value_of};

const CAPACITY: usize = 4 << 20;
const KEYS: u64 = 1_000;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How a memory node in another process is reached, both ways.
fn urls(directory: &Directory) -> [String; 2] {
    [format!("tcp+unix://{}", directory.other_socket().display()), directory.url()]
}

async fn client_of(url: &str, deadline: Duration) -> AsyncClient {
    AsyncClient::connect_with(url, ClientConfig::default().with_deadline(deadline)).await.unwrap()
}

#[test]
fn tasks_get_over_a_memory_node_that_is_killed_and_started_anew() {
    for which in 0..2 {
        let directory = Directory::new();
        let url = &urls(&directory)[which];
        let mut node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
        one_thread().block_on(async {
            let client = client_of(url, Duration::from_secs(10)).await;
            load(client.client(), U64Keys::parameters(), 0..KEYS, 1).unwrap();
            // The edition that calls must answer from if it was there before they began; 0 while
            // none may be there.
            let loaded = Arc::new(AtomicU64::new(1));
            let (answers, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let mut tasks = JoinSet::new();
            for task in 0..50u64 {
                let (client, loaded) = (client.clone(), Arc::clone(&loaded));
                let (answers, done) = (Arc::clone(&answers), Arc::clone(&done));
                tasks.spawn(async move {
                    let mut key = task * 17;
                    while !done.load(Ordering::Relaxed) {
                        key = (key + 7) % KEYS;
                        let before = loaded.load(Ordering::SeqCst);
                        match client.get(key).await {
                            Ok(Some(value)) => {
                                let right = (before..=2).any(|edition| value == value_of(key, edition, 8));
                                assert!(right, "key {key} of edition {before} or later");
                            }
                            Ok(None) => panic!("key {key} is absent in no edition"),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error}"),
                        }
                        answers.fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                });
            }
            let more = async |count| {
                let (begun, before) = (Instant::now(), answers.load(Ordering::Relaxed));
                while answers.load(Ordering::Relaxed) < before + count {
                    assert!(begun.elapsed() < PATIENCE, "tasks have stopped");
                    sleep(Duration::from_millis(1)).await;
                }
            };
            more(2_000).await;
            node.kill();
            sleep(Duration::from_millis(50)).await;
            // Lets no client in before it has its data: calls that come meanwhile find a table
            // without parameters.
            node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
            let fresh = client_of(url, Duration::from_secs(10)).await;
            let begun = Instant::now();
            while let Err(error) = load(fresh.client(), U64Keys::parameters(), 0..KEYS, 2) {
                assert!(begun.elapsed() < PATIENCE, "{error}");
                sleep(Duration::from_millis(1)).await;
            }
            loaded.store(2, Ordering::SeqCst);
            more(2_000).await;
            done.store(true, Ordering::Relaxed);
            tasks.join_all().await;
            assert_eq!(client.get(5).await.unwrap(), Some(value_of(5, 2, 8)));
            client.put(5, &value_of(5, 3, 8)).await.unwrap();
            assert_eq!(client.get(5).await.unwrap(), Some(value_of(5, 3, 8)));
        });
        node.kill();
    }
}

#[test]
fn a_silent_memory_node_costs_each_call_its_deadline_and_the_runtime_nothing() {
    for which in 0..2 {
        let directory = Directory::new();
        let url = &urls(&directory)[which];
        let node = ProcessNode::start::<U64Keys>(&directory, CAPACITY);
        one_thread().block_on(async {
            let client = client_of(url, Duration::from_secs(20)).await;
            load(client.client(), U64Keys::parameters(), 0..KEYS, 1).unwrap();
            assert!(client.get(1).await.unwrap().is_some());
            client.put(1, &value_of(1, 1, 8)).await.unwrap();
            node.pause();
            let (begun, ticks) = (Instant::now(), Arc::new(AtomicU64::new(0)));
            let ticker = tokio::spawn({
                let ticks = Arc::clone(&ticks);
                async move {
                    loop {
                        yield_now().await;
                        ticks.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let mut tasks = JoinSet::new();
            for task in 0..200u64 {
                let client = client.with_deadline(Duration::from_millis(100 + task % 5 * 50));
                tasks.spawn(async move {
                    let read = client.get(task).await;
                    let error = client.put(task, &value_of(task, 9, 8)).await.unwrap_err();
                    assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::Unknown), "{error}");
                    read
                });
            }
            for read in tasks.join_all().await {
                match which {
                    0 => assert_eq!(read.unwrap_err().kind(), ErrorKind::Retry),
                    // Mapped memory needs no memory node.
                    _ => assert!(read.unwrap().is_some()),
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
            assert!(ticks.load(Ordering::Relaxed) >= 20, "{ticks:?}");
            ticker.abort();
            node.signal(Signal::CONT);
            assert_eq!(client.get(KEYS - 1).await.unwrap(), Some(value_of(KEYS - 1, 1, 8)));
            client.put(KEYS - 1, &value_of(1, 3, 8)).await.unwrap();
            assert_eq!(client.get(KEYS - 1).await.unwrap(), Some(value_of(1, 3, 8)));
        });
    }
}
