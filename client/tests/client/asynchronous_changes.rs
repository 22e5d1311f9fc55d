//! Tasks' changes that share requests, and what is told of those that were not sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::message::{ErrorCode, Refusal, Request, encode_reply};
use fpcache_client::{AsyncClient, Changes, Client, ClientConfig, ClientError, TableParameters, U64Keys};
use fpcache_fabric::{Handled, Service};
use tokio::task::JoinSet;

use crate::asynchronous::one_thread;
use crate::common::{Meddled, PATIENCE, TestKeys, ThreadNode, wait_until};
use crate::proxies::{Towards, stand_before};
use crate::remote::Node;

/// A client of a memory node that answers nothing while it is held, and how much has arrived there.
struct Held {
    client: Client,
    is_held: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
    _node: Node,
}

impl Held {
    fn new() -> Self {
        let node = Node::start();
        let (is_held, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (Arc::clone(&is_held), Arc::clone(&came));
        let address = stand_before(node.url(), move || {
            let (is_held, came) = (Arc::clone(&held), Arc::clone(&counted));
            move |towards, _: &[u8]| {
                match towards {
                    Towards::Node => _ = came.fetch_add(1, Ordering::SeqCst),
                    Towards::Client => {
                        while is_held.load(Ordering::SeqCst) {
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                }
                true
            }
        });
        node.make::<U64Keys>("held");
        let config = ClientConfig::default().with_table("held".parse().unwrap()).with_deadline(PATIENCE);
        let client = Client::connect_with(&address, config).unwrap();
        client.create(TableParameters::default()).unwrap();
        client.put(0, &[1; 8]).unwrap();
        Self { client, is_held, came, _node: node }
    }
}

/// Has others wait behind one change that is under way.
async fn behind_another(held: &Held, client: &AsyncClient, waiting: impl AsyncFnOnce()) {
    held.is_held.store(true, Ordering::SeqCst);
    let before = held.came.load(Ordering::SeqCst);
    let first = client.clone();
    let first = tokio::spawn(async move { first.put(0, &[2; 8]).await });
    while held.came.load(Ordering::SeqCst) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waiting().await;
    held.is_held.store(false, Ordering::SeqCst);
    first.await.unwrap().unwrap();
}

/// Each of the others had a request of its own, again and again.
#[test]
fn a_change_that_cannot_be_the_tables_costs_few_requests_of_those_that_waited_with_it() {
    const TASKS: u64 = 128;
    const BAD: u64 = 70;
    let held = Held::new();
    one_thread().block_on(async {
        let client = AsyncClient::of(held.client.clone());
        client.put(0, &[1; 8]).await.unwrap();
        let mut tasks = JoinSet::new();
        behind_another(&held, &client, async || {
            for key in 1..=TASKS {
                let client = client.clone();
                let bytes = if key == BAD { 9 } else { 8 };
                tasks.spawn(async move { (key, client.put(key, &vec![3; bytes]).await) });
            }
            // All of them are in the queue.
            tokio::time::sleep(Duration::from_millis(100)).await;
            held.came.store(0, Ordering::SeqCst);
        })
        .await;
        for (key, ended) in tasks.join_all().await {
            match key {
                BAD => assert!(matches!(ended, Err(ClientError::ValueSize { got: 9, .. })), "{ended:?}"),
                _ => ended.unwrap(),
            }
        }
        let came = held.came.load(Ordering::SeqCst);
        assert!(came < 40, "{came}");
        assert_eq!(client.count_from(0).await.unwrap(), TASKS);
    });
}

/// They were said to have an unknown outcome.
#[test]
fn a_change_whose_turn_does_not_come_in_time_was_not_made_and_says_so() {
    let held = Held::new();
    one_thread().block_on(async {
        let client = AsyncClient::of(held.client.clone());
        client.put(0, &[1; 8]).await.unwrap();
        behind_another(&held, &client, async || {
            let hurried = client.with_deadline(Duration::from_secs(2));
            let begun = Instant::now();
            let (mut changes, mut replies) = (Changes::new(), Vec::new());
            changes.put(4, &[4; 8]).delete(5);
            let calls = (hurried.put(3, &[3; 8]), hurried.apply(&changes, &mut replies));
            let (put, applied) = tokio::join!(calls.0, calls.1);
            let error = put.unwrap_err();
            assert!(error.is_retryable() && error.to_string().contains("turn"), "{error}");
            let error = applied.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            assert!(begun.elapsed() < PATIENCE);
        })
        .await;
        assert_eq!(client.multi_contains(&[0, 3, 4]).await.unwrap(), [true, false, false]);
        // One that was sent is another thing.
        held.is_held.store(true, Ordering::SeqCst);
        let error = client.with_deadline(Duration::from_secs(2)).put(6, &[6; 8]).await.unwrap_err();
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
        held.is_held.store(false, Ordering::SeqCst);
    });
}

/// All that waited with it were told that the memory node is busy.
#[test]
fn a_long_value_that_a_memory_node_refuses_fails_no_changes_of_others() {
    const TASKS: u64 = 64;
    const LONG: u64 = 20;
    let (is_held, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (Arc::clone(&is_held), Arc::clone(&came));
    let node = ThreadNode::<U64Keys>::serving(16 << 20, |node| {
        Meddled::new(node, move |node, client, request, reply| match Request::decode::<U64Keys>(0, request) {
            Ok(Request::Value(_)) => {
                encode_reply(Err(&Refusal::new(ErrorCode::Busy, "as the test has it")), reply);
                Handled::Now
            }
            Ok(Request::Write(_)) => {
                counted.fetch_add(1, Ordering::SeqCst);
                wait_until(|| !held.load(Ordering::SeqCst));
                node.handle(client, request, reply)
            }
            _ => node.handle(client, request, reply),
        })
    });
    let client = node.client_with(ClientConfig::default().with_deadline(PATIENCE));
    client.create(<U64Keys as TestKeys>::parameters_of(None)).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        client.put(0, &[1; 8]).await.unwrap();
        is_held.store(true, Ordering::SeqCst);
        let (first, before) = (client.clone(), came.load(Ordering::SeqCst));
        let first = tokio::spawn(async move { first.put(0, &[2; 8]).await });
        while came.load(Ordering::SeqCst) == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut tasks = JoinSet::new();
        for key in 1..=TASKS {
            let (client, bytes) = (client.clone(), if key == LONG { 2 << 20 } else { 8 });
            tasks.spawn(async move { (key, client.put(key, &vec![3; bytes]).await) });
        }
        // All of them are in the queue.
        tokio::time::sleep(Duration::from_millis(100)).await;
        is_held.store(false, Ordering::SeqCst);
        first.await.unwrap().unwrap();
        for (key, ended) in tasks.join_all().await {
            match key {
                LONG => assert!(matches!(ended, Err(ClientError::Refused(_))), "{ended:?}"),
                _ => ended.unwrap(),
            }
        }
        assert_eq!(client.count_from(0).await.unwrap(), TASKS);
    });
}

/// They were divided again and again, as if one of them were the reason: twice as many requests.
#[test]
fn changes_of_clients_that_may_only_read_cost_few_requests() {
    const TASKS: u64 = 64;
    let (is_held, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (Arc::clone(&is_held), Arc::clone(&came));
    let node = ThreadNode::<U64Keys>::serving(16 << 20, |node| {
        Meddled::new(node, move |node, client, request, reply| match Request::decode::<U64Keys>(0, request) {
            Ok(Request::Write(_)) => {
                counted.fetch_add(1, Ordering::SeqCst);
                wait_until(|| !held.load(Ordering::SeqCst));
                encode_reply(Err(&Refusal::new(ErrorCode::ReadOnly, "as the test has it")), reply);
                Handled::Now
            }
            _ => node.handle(client, request, reply),
        })
    });
    let client = node.client_with(ClientConfig::default().with_deadline(PATIENCE));
    client.create(<U64Keys as TestKeys>::parameters_of(None)).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        is_held.store(true, Ordering::SeqCst);
        let mut tasks = JoinSet::new();
        for key in 0..=TASKS {
            let client = client.clone();
            tasks.spawn(async move { client.put(key, &[3; 8]).await });
            while came.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        // All of them are in the queue.
        tokio::time::sleep(Duration::from_millis(100)).await;
        is_held.store(false, Ordering::SeqCst);
        for ended in tasks.join_all().await {
            let refused = |refusal: &Refusal| refusal.code == ErrorCode::ReadOnly;
            assert!(matches!(&ended, Err(ClientError::Refused(refusal)) if refused(refusal)), "{ended:?}");
        }
        let came = came.load(Ordering::SeqCst);
        assert!(came < 5, "{came}");
    });
}

/// All that waited were claimed at once, and sent one request after another: those of later ones
/// were said to have an unknown outcome, and were made long after their time.
#[test]
fn changes_that_do_not_fit_the_request_under_way_are_given_up_in_time_and_not_made() {
    const LONG: usize = 700 << 10;
    let (came, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let (counted, may_answer) = (Arc::clone(&came), Arc::clone(&answered));
    let node = ThreadNode::<U64Keys>::serving(16 << 20, |node| {
        Meddled::new(node, move |node, client, request, reply| {
            if let Ok(Request::Write(_)) = Request::decode::<U64Keys>(0, request) {
                let before = counted.fetch_add(1, Ordering::SeqCst);
                wait_until(|| before < may_answer.load(Ordering::SeqCst));
            }
            node.handle(client, request, reply)
        })
    });
    let client = node.client_with(ClientConfig::default().with_deadline(PATIENCE));
    client.create(<U64Keys as TestKeys>::parameters_of(None)).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let put = |key: u64, bytes, deadline| {
            let client = client.with_deadline(deadline);
            tokio::spawn(async move { client.put(key, &vec![3; bytes]).await })
        };
        let until_came = async |requests| {
            while came.load(Ordering::SeqCst) < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        answered.store(0, Ordering::SeqCst);
        let first = put(0, 8, PATIENCE);
        until_came(1).await;
        let patient = put(1, LONG, PATIENCE);
        let hurried = [2, 3].map(|key| put(key, LONG, Duration::from_secs(1)));
        // All of them are in the queue.
        tokio::time::sleep(Duration::from_millis(100)).await;
        answered.store(1, Ordering::SeqCst);
        until_came(2).await;
        for put in hurried {
            let error = put.await.unwrap().unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        answered.store(usize::MAX, Ordering::SeqCst);
        first.await.unwrap().unwrap();
        patient.await.unwrap().unwrap();
        put(4, 8, PATIENCE).await.unwrap().unwrap();
        assert_eq!(client.multi_contains(&[0, 1, 2, 3, 4]).await.unwrap(), [true, true, false, false, true]);
    });
}
