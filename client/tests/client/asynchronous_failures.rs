//! The errors of calls of tasks that are not completed: what was made, and what they waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncClient, AsyncConfig, Changes, Client, ClientConfig, ClientError, RecordShape, TableParameters,
    U64Keys, WriteStatus,
};

use crate::asynchronous::{one_thread, over_sockets};
use crate::asynchronous_over_nodes::WithSilent;
use crate::common::{PATIENCE, TestKeys, ThreadNode, load};
use crate::over_nodes::{Node as OneOf, config, make};
use crate::proxies::{ALL, Towards, so_many_answers, stand_before};
use crate::remote::Node;

/// Bytes of long values, of which a request of a call has five.
const LONG: usize = 100 << 10;
const OF_A_REQUEST: usize = 5;

/// A table of values of any length, at the address of a memory node.
fn of_long_values(node: &Node, address: &str, deadline: Duration) -> Client {
    node.make::<U64Keys>("long");
    let config = ClientConfig::default().with_table("long".parse().unwrap()).with_deadline(PATIENCE);
    let client = Client::connect_with(address, config).unwrap();
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
    client.create(TableParameters { shape, ..TableParameters::default() }).unwrap();
    client.put(1_000_000, &[1]).unwrap();
    client.with_deadline(deadline)
}

fn long_changes(count: u64) -> Changes {
    let mut changes = Changes::new();
    (0..count).for_each(|key| _ = changes.put(key, &[key as u8; LONG]));
    changes
}

/// The replies that had come were lost with the one that did not.
#[test]
fn what_was_made_before_a_request_without_a_reply_is_told() {
    let node = Node::start();
    let (address, left) = so_many_answers(node.url(), Duration::ZERO);
    let client = of_long_values(&node, &address, Duration::from_secs(4));
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        // As a client whose thread has connected.
        client.put(1_000_001, &[1]).await.unwrap();
        left.store(2, Ordering::SeqCst);
        let mut replies = Vec::new();
        let error = client.apply(&long_changes(30), &mut replies).await.unwrap_err();
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
        assert_eq!(replies.len(), 2 * OF_A_REQUEST);
        assert!(replies.iter().all(|reply| reply.status == WriteStatus::Done));
        left.store(ALL, Ordering::SeqCst);
        // What came after the request without a reply was not sent.
        let made = client.with_deadline(PATIENCE).count(0, 1_000_000).await.unwrap() as usize;
        assert!((2 * OF_A_REQUEST..=3 * OF_A_REQUEST).contains(&made), "{made}");
    });
}

/// Before the address of a memory node whose answers come so late while it is told to.
fn late_answers(url: &str, late: Duration) -> (String, Arc<AtomicBool>) {
    let is_late = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_late);
    let address = stand_before(url, move || {
        let is_late = Arc::clone(&told);
        move |towards, _: &[u8]| {
            if towards == Towards::Client && is_late.load(Ordering::SeqCst) {
                thread::sleep(late);
            }
            true
        }
    });
    (address, is_late)
}

/// All of them had one deadline.
#[test]
fn each_request_of_a_call_has_the_deadline_for_itself() {
    const LATE: Duration = Duration::from_millis(200);
    const DEADLINE: Duration = Duration::from_secs(4);
    const REQUESTS: usize = 25;
    let node = Node::start();
    let (address, is_late) = late_answers(node.url(), LATE);
    let client = of_long_values(&node, &address, DEADLINE);
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        client.put(1_000_001, &[1]).await.unwrap();
        is_late.store(true, Ordering::SeqCst);
        let (mut replies, begun) = (Vec::new(), Instant::now());
        client.apply(&long_changes((REQUESTS * OF_A_REQUEST) as u64), &mut replies).await.unwrap();
        assert_eq!(replies.len(), REQUESTS * OF_A_REQUEST);
        assert!(begun.elapsed() > DEADLINE, "{:?}", begun.elapsed());
        is_late.store(false, Ordering::SeqCst);
    });
}

/// A call that is given up had told nothing of what was made.
#[test]
fn a_call_of_several_requests_that_is_dropped_has_told_what_was_made_and_sends_no_more() {
    const LATE: Duration = Duration::from_secs(1);
    let node = Node::start();
    let (address, is_late) = late_answers(node.url(), LATE);
    let client = of_long_values(&node, &address, PATIENCE);
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        client.put(1_000_001, &[1]).await.unwrap();
        is_late.store(true, Ordering::SeqCst);
        let (changes, mut replies) = (long_changes(50), Vec::new());
        let given_up = tokio::time::timeout(LATE * 5 / 2, client.apply(&changes, &mut replies)).await;
        assert!(given_up.is_err());
        is_late.store(false, Ordering::SeqCst);
        let told = replies.len();
        assert!(told > 0 && told % OF_A_REQUEST == 0 && told < 50, "{told}");
        // After the one that was under way.
        client.put(1_000_002, &[1]).await.unwrap();
        let made = client.count(0, 1_000_000).await.unwrap() as usize;
        assert!((told..=told + OF_A_REQUEST).contains(&made), "{made} and {told}");
    });
}

/// More changes than one request has, the last one with a value of `last` bytes.
fn many_changes(last: usize) -> Changes {
    let mut changes = Changes::new();
    (0..30_000u64).for_each(|key| _ = changes.put(key, &key.to_le_bytes()));
    changes.put(30_000, &vec![1; last]);
    changes
}

#[test]
fn nothing_of_several_requests_is_sent_where_a_change_of_the_last_one_cannot_be_made() {
    let nodes = [OneOf::tcp(), OneOf::shm()];
    make::<U64Keys>(&nodes, &[29_000], Some(8));
    let over_two = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mapped = ThreadNode::<U64Keys>::start(8 << 20);
    mapped.client().create(U64Keys::parameters()).unwrap();
    one_thread().block_on(async {
        let (_node, over_sockets) = over_sockets::<U64Keys>([], AsyncConfig::default()).await;
        for client in [over_sockets, AsyncClient::of(mapped.client()), AsyncClient::of(over_two)] {
            let mut replies = Vec::new();
            let error = client.apply(&many_changes(9), &mut replies).await.unwrap_err();
            assert!(matches!(error, ClientError::ValueSize { got: 9, .. }) && replies.is_empty(), "{error}");
            assert_eq!(client.count_from(0).await.unwrap(), 0);
            client.apply(&many_changes(8), &mut replies).await.unwrap();
            assert!(replies.len() == 30_001 && client.count_from(0).await.unwrap() == 30_001);
        }
    });
}

#[test]
fn an_empty_table_gets_parameters_that_suit_all_requests_of_a_call() {
    let node = ThreadNode::<U64Keys>::start(16 << 20);
    one_thread().block_on(async {
        let client = AsyncClient::of(node.client());
        client.apply(&many_changes(9), &mut Vec::new()).await.unwrap();
        assert_eq!(client.get(30_000).await.unwrap(), Some(vec![1; 9]));
    });
}

/// The errors of all kinds of calls.
async fn errors(client: &AsyncClient, key: u64) -> Vec<ClientError> {
    let mut changes = Changes::new();
    changes.put(key, &[1; 8]).delete(key + 1);
    [
        client.get(key).await.err(),
        client.contains(key).await.err(),
        client.multi_get(&[key, key + 1]).await.err(),
        client.floor(key).await.err(),
        client.scan(key, 5).next().await.and_then(Result::err),
        client.scan_back(key, 5).next().await.and_then(Result::err),
        client.count(key, key + 100).await.err(),
        client.put(key, &[1; 8]).await.err(),
        client.apply(&changes, &mut Vec::new()).await.err(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// They were told that others were served first.
#[test]
fn calls_without_time_are_told_so() {
    let nodes = [OneOf::tcp(), OneOf::tcp()];
    make::<U64Keys>(&nodes, &[1_000], Some(8));
    let over_two = Client::connect_with(&nodes[0].url, config()).unwrap();
    one_thread().block_on(async {
        let (_node, client) = over_sockets::<U64Keys>(0..2_000, AsyncConfig::default()).await;
        for client in [client, AsyncClient::of(over_two)] {
            client.multi_contains(&[5, 1_500]).await.unwrap();
            let told = errors(&client.with_deadline(Duration::ZERO), 5).await;
            assert!(told.len() >= 8, "{told:?}");
            for error in told {
                assert!(error.is_retryable() && !error.to_string().contains("other calls"), "{error}");
                assert!(error.to_string().contains("zero") || !error.to_string().contains("turn"), "{error}");
            }
            assert_eq!(client.get(5).await.unwrap().is_some(), client.contains(5).await.unwrap());
        }
    });
}

/// They were told that others were served first: no other had been asked for.
#[test]
fn calls_that_waited_for_a_memory_node_are_told_so() {
    let node = Node::start();
    let (address, is_late) = late_answers(node.url(), PATIENCE);
    let alone = of_long_values(&node, &address, PATIENCE);
    let WithSilent { client: over_two, address: _, is_silent, _nodes } = WithSilent::new();
    one_thread().block_on(async {
        let are_told = async |client, is_silent: Arc<AtomicBool>| {
            let client = AsyncClient::of(client);
            client.multi_contains(&[5, 1_500]).await.unwrap();
            client.floor(1_500).await.unwrap();
            let hurried = client.with_deadline(Duration::from_secs(1));
            is_silent.store(true, Ordering::SeqCst);
            let is_told = |error: ClientError| {
                assert!(error.is_retryable(), "{error}");
                !error.to_string().contains("first")
            };
            let mut told = [0; 3];
            // A call that gets no processor as its time ends is not told: most do.
            for _ in 0..5 {
                told[0] += u32::from(is_told(hurried.get(1_500).await.unwrap_err()));
                told[1] += u32::from(is_told(hurried.floor(1_500).await.unwrap_err()));
                let mut scan = hurried.scan_back(1_500, 5);
                told[2] += u32::from(is_told(scan.next().await.unwrap().unwrap_err()));
                if told.iter().all(|told| *told >= 3) {
                    break;
                }
            }
            assert!(told.iter().all(|told| *told >= 3), "of five of each: {told:?}");
            is_silent.store(false, Ordering::SeqCst);
        };
        tokio::join!(are_told(alone, is_late), are_told(over_two, is_silent));
    });
}

/// All keys were looked up, however little time there was.
#[test]
fn a_long_group_ends_soon_after_its_deadline_where_memory_is_mapped() {
    const KEYS: u64 = 300_000;
    let node = ThreadNode::<U64Keys>::start(32 << 20);
    let client = node.client();
    load(&client, U64Keys::parameters(), 0..KEYS, 0).unwrap();
    let keys: Vec<u64> = (0..KEYS).collect();
    // The fastest of several: a thread may get no processor for a while.
    let looked_up = (0..3).map(|_| {
        let begun = Instant::now();
        assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_some));
        begun.elapsed()
    });
    let all = looked_up.min().unwrap();
    let hurried = client.with_deadline(all / 100);
    let ends_soon = (0..10).any(|_| {
        let begun = Instant::now();
        let error = hurried.multi_get(&keys).unwrap_err();
        assert!(matches!(error, ClientError::Deadline { .. }) && error.is_retryable(), "{error}");
        begun.elapsed() < all / 3
    });
    assert!(ends_soon, "all in {all:?}");
    // Few enough take no time.
    let none = client.with_deadline(Duration::ZERO);
    assert!(none.multi_get(&keys[..1_000]).unwrap().iter().all(Option::is_some));
    one_thread().block_on(async {
        let (hurried, mut ends_soon) = (AsyncClient::of(hurried), false);
        for _ in 0..10 {
            let begun = Instant::now();
            let error = hurried.multi_get(&keys).await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            ends_soon |= begun.elapsed() < all / 3;
        }
        assert!(ends_soon, "all in {all:?}");
        assert_eq!(AsyncClient::of(client).multi_get(&keys).await.unwrap().len(), keys.len());
    });
}
