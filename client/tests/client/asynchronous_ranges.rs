//! Tasks' reads of ranges that must be looked for on a thread, and those of other ranges meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncClient, Client, ClientError, CreateOptions, KeyKind, Nodes, Plan, PlanChoice, TableParameters,
    Tables, U64Keys,
};
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, JoinSet};

use crate::asynchronous::{one_thread, poll_and_drop};
use crate::asynchronous_over_nodes::{SILENT_PATIENCE, SOON, WithSilent};
use crate::common::{PATIENCE, TestKeys};
use crate::over_nodes::one_slow::OneSlow;
use crate::over_nodes::{Node, config, make, name, urls};
use crate::proxies::{ALL, Towards, slow, slow_while, so_many_answers, stand_before};

/// A client of tasks that has connected no range yet, with one memory node that has fallen silent.
fn not_connected(nodes: &[Node; 2]) -> AsyncClient {
    let config = config().with_deadline(SILENT_PATIENCE);
    AsyncClient::of(Client::connect_with(&nodes[0].url, config).unwrap())
}

/// It had the turn to connect the one that answers while it waited for that of the silent one.
#[test]
fn a_group_that_waits_for_a_silent_memory_node_keeps_nobody_from_connecting_another() {
    let WithSilent { client: _, address: _, is_silent, _nodes: nodes } = WithSilent::new();
    one_thread().block_on(async {
        is_silent.store(true, Ordering::SeqCst);
        let client = not_connected(&nodes);
        let (of_silent, of_both) = (client.clone(), client.clone());
        let of_silent = tokio::spawn(async move { of_silent.get(1_500).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let of_both = tokio::spawn(async move { of_both.multi_get(&[0, 1_500]).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        assert_eq!(client.get(0).await.unwrap(), Some(vec![0; 8]));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(of_silent.await.unwrap().unwrap_err().is_retryable());
        assert!(of_both.await.unwrap().unwrap_err().is_retryable());
        is_silent.store(false, Ordering::SeqCst);
        let found = client.multi_get(&[1_500, 0, 1_501, 20]).await.unwrap();
        let expected = [Some(75u64), Some(0), None, Some(1)];
        assert_eq!(found, expected.map(|value| value.map(|value| value.to_le_bytes().to_vec())));
    });
}

/// Each part of a count went on by its own deadline, and four of them had all threads.
#[test]
fn counts_that_are_given_up_keep_nobody_from_connecting_another_memory_node() {
    let WithSilent { client: _, address: _, is_silent, _nodes: nodes } = WithSilent::new();
    one_thread().block_on(async {
        is_silent.store(true, Ordering::SeqCst);
        let client = not_connected(&nodes);
        for _ in 0..6 {
            let given_up = tokio::time::timeout(Duration::from_millis(20), client.count(1_000, 2_000)).await;
            assert!(given_up.is_err());
        }
        let begun = Instant::now();
        assert_eq!(client.count(0, 1_000).await.unwrap(), 50);
        assert_eq!(client.get(0).await.unwrap(), Some(vec![0; 8]));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        is_silent.store(false, Ordering::SeqCst);
        assert_eq!(client.count(0, 2_000).await.unwrap(), 100);
    });
}

/// The looks for them had all threads; and most of those that waited for one of these were not told
/// which memory node it was for.
#[test]
fn memory_nodes_that_are_silent_are_named_and_keep_nobody_from_connecting_another() {
    const SILENT: u64 = 5;
    let nodes: Vec<Node> = (0..=SILENT).map(|_| Node::tcp()).collect();
    let is_silent = Arc::new(AtomicBool::new(false));
    let before = |node: &Node| slow_while(&node.url, SILENT_PATIENCE * 3, &is_silent);
    let silent: Vec<String> = nodes[1..].iter().map(before).collect();
    let split_at: Vec<u64> = (1..=SILENT).map(|range| range * 100).collect();
    let all = Nodes::at(&format!("{},{}", nodes[0].url, silent.join(","))).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &split_at, CreateOptions::default()).unwrap();
    one_thread().block_on(async {
        let mut named = 0;
        // A task that gets no processor as its time ends is not told: in most tries all do.
        for _ in 0..5 {
            is_silent.store(false, Ordering::SeqCst);
            let config = config().with_deadline(SILENT_PATIENCE);
            let client = AsyncClient::of(Client::connect_with(&nodes[0].url, config).unwrap());
            is_silent.store(true, Ordering::SeqCst);
            let mut waiting = JoinSet::new();
            for key in (100..(SILENT + 1) * 100).step_by(10) {
                let client = client.clone();
                waiting.spawn(async move { (key, client.get(key).await) });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let begun = Instant::now();
            assert_eq!(client.get(0).await.unwrap(), None);
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            let are_named = waiting.join_all().await.into_iter().all(|(key, answered)| {
                let (error, node) = (answered.unwrap_err(), &silent[key as usize / 100 - 1]);
                assert!(error.is_retryable(), "{key} at {node}: {error}");
                error.to_string().contains(node)
            });
            named += u32::from(are_named);
            if named == 3 {
                break;
            }
        }
        assert_eq!(named, 3, "of five tries, those in which all were told which memory node was silent");
    });
}

/// Where more keys are asked for than a task looks up in place, all were read on a thread, even if
/// the call was given up.
#[test]
fn large_groups_that_are_given_up_leave_threads_to_others() {
    let WithSilent { client: _, address: _, is_silent, _nodes: nodes } = WithSilent::beside(Node::shm());
    one_thread().block_on(async {
        is_silent.store(true, Ordering::SeqCst);
        let client = not_connected(&nodes);
        assert_eq!(client.get(20).await.unwrap(), Some(1u64.to_le_bytes().to_vec()));
        let keys: Vec<u64> = (0..300).chain([1_500]).collect();
        for _ in 0..10 {
            let given_up = tokio::time::timeout(Duration::from_millis(20), client.multi_get(&keys)).await;
            assert!(given_up.is_err());
        }
        let begun = Instant::now();
        assert_eq!(client.count(0, 1_000).await.unwrap(), 50);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        is_silent.store(false, Ordering::SeqCst);
        let found = client.multi_get(&keys).await.unwrap();
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found, (key % 20 == 0).then(|| (key / 20).to_le_bytes().to_vec()), "{key}");
        }
    });
}

/// Has as many tasks read keys from a hundred on, in several ways; their errors.
async fn errors_of_readers(client: &AsyncClient, from: u64) -> Vec<ClientError> {
    let mut tasks = JoinSet::new();
    for task in 0..200 {
        let (client, key) = (client.clone(), from + task % 100);
        tasks.spawn(async move {
            match task % 6 {
                0 => client.contains(key).await.err(),
                1 => client.ceiling(key).await.err(),
                2 => client.multi_get(&[key, key + 1]).await.err(),
                3 => client.scan(key, 10).next().await.and_then(Result::err),
                4 => client.scan_back(key, 10).next().await.and_then(Result::err),
                _ => client.get(key).await.err(),
            }
        });
    }
    tasks.join_all().await.into_iter().map(|error| error.expect("there is no table")).collect()
}

/// Each of them looked for a newer map by itself, a tenth of a second after the one before.
#[test]
fn tasks_that_read_a_range_of_a_dropped_table_are_all_told_so_soon() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let of_tasks = || {
        let config = config().with_deadline(PATIENCE);
        AsyncClient::of(Client::connect_with(&nodes[0].url, config).unwrap())
    };
    one_thread().block_on(async {
        for is_connected in [true, false] {
            for range in 0..3 {
                make::<U64Keys>(&nodes, &[100, 200], Some(8));
                let client = of_tasks();
                for key in 0..if is_connected { 300 } else { 0 } {
                    assert_eq!(client.get(key).await.unwrap(), None);
                }
                all.drop_table(&name()).unwrap();
                let begun = Instant::now();
                for error in errors_of_readers(&client, range * 100).await {
                    assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
                }
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(10), "{took:?} of range {range}");
            }
        }
    });
}

/// They were read by a thread each, one after the other.
#[test]
fn tasks_that_wait_for_a_newer_map_share_doorbells_by_it() {
    const TASKS: u64 = 200;
    const DELAY: Duration = Duration::from_millis(5);
    let nodes = [Node::tcp(), Node::tcp()];
    let slow: Vec<String> = nodes.iter().map(|node| slow(&node.url, DELAY)).collect();
    let all = Nodes::at(&slow.join(",")).unwrap();
    let make =
        || all.create::<U64Keys>(&name(), U64Keys::parameters(), &[100], CreateOptions::default()).unwrap();
    make();
    let config = config().with_deadline(PATIENCE);
    let writer = Client::connect_with(&slow[0], config.clone()).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(Client::connect_with(&slow[0], config).unwrap());
        assert_eq!(client.multi_get(&[0, 100]).await.unwrap(), [None, None]);
        all.drop_table(&name()).unwrap();
        make();
        writer.put(107, &[7; 8]).unwrap();
        let before = client.async_counters();
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let client = client.clone();
            tasks.spawn(async move { client.get(107).await });
        }
        for found in tasks.join_all().await {
            assert_eq!(found.unwrap(), Some(vec![7; 8]));
        }
        // By the map that they had all were asked, and by the newer one all but some.
        let counters = client.async_counters();
        let (asked, rung) = (counters.calls - before.calls, counters.doorbells - before.doorbells);
        assert!(asked > TASKS * 3 / 2, "{asked} calls of {TASKS} tasks");
        assert!(rung < TASKS / 2, "{rung} doorbells for {asked} calls");
    });
}

/// Takes one of the runtime's threads for blocking calls, until what is returned is dropped.
fn take_a_thread() -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (release, released) = mpsc::channel();
    (release, tokio::task::spawn_blocking(move || _ = released.recv()))
}

/// They were read all the same, once there was a thread.
#[test]
fn reads_that_are_given_up_before_there_is_a_thread_for_them_are_not_made() {
    let nodes = [Node::tcp(), Node::tcp()];
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let address = stand_before(&nodes[1].url, move || {
        let count = Arc::clone(&count);
        move |towards, _: &[u8]| {
            count.fetch_add(usize::from(towards == Towards::Node), Ordering::SeqCst);
            true
        }
    });
    let both = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
    both.create::<U64Keys>(&name(), U64Keys::parameters(), &[100], CreateOptions::default()).unwrap();
    let mapped = Node::shm();
    let alone = config().with_table("alone".parse().unwrap());
    for url in [&address, &mapped.url] {
        let tables = Tables::connect(url).unwrap();
        tables.create(&alone.table, KeyKind::U64, CreateOptions::default()).unwrap();
        Client::connect_with(url, alone.clone()).unwrap().create(TableParameters::default()).unwrap();
    }
    let over_socket = Client::connect_with(&address, alone.clone()).unwrap();
    let over_nodes = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mapped = Client::connect_with(&mapped.url, alone).unwrap();
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    for (client, is_mapped) in [(over_socket, false), (over_nodes, false), (mapped, true)] {
        runtime.block_on(async {
            let client = AsyncClient::of(client);
            let (release, other) = take_a_thread();
            let before = sent.load(Ordering::SeqCst);
            for _ in 0..3 {
                let given_up = tokio::time::timeout(Duration::from_millis(20), client.get(100)).await;
                assert!(given_up.is_err());
            }
            drop(release);
            other.await.unwrap();
            // After those that were given up.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert_eq!(sent.load(Ordering::SeqCst), before);
            // A table that a thread had fetched would be looked at in place, without one.
            let (release, other) = take_a_thread();
            let at_once = poll_and_drop(client.get(100), 1).await;
            assert!(!is_mapped || at_once.is_none());
            drop(release);
            other.await.unwrap();
            assert_eq!(client.get(100).await.unwrap(), None);
        });
    }
}

/// They were told what one with little time had found: that the other memory node was silent.
#[test]
fn tasks_that_can_wait_are_not_told_of_a_memory_node_that_was_silent_for_hurried_ones() {
    let nodes = OneSlow::new();
    let config = config().with_deadline(PATIENCE);
    let client = Client::connect_with(&nodes.urls, config).unwrap();
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let client = AsyncClient::of(client);
        assert_eq!(client.multi_get(&[0, 100]).await.unwrap(), [None, None]);
        nodes.make_anew();
        let (asked, first) = take_a_thread();
        let hurried = client.with_deadline(Duration::from_millis(100));
        let hurried = tokio::spawn(async move { hurried.get(0).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let patient = tokio::spawn(async move { client.get(0).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        // Both have been told that the range is gone, and wait, before one of them looks for it.
        let (told, second) = take_a_thread();
        drop(asked);
        first.await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(told);
        second.await.unwrap();
        hurried.await.unwrap().unwrap_err();
        assert_eq!(patient.await.unwrap().unwrap(), None);
    });
}

/// How the records lie was found out in all of the call's time, and then the record looked up in
/// all of it once more.
#[test]
fn a_read_with_its_version_holds_its_thread_no_longer_than_it_may_take() {
    const WITHIN: Duration = Duration::from_secs(4);
    let nodes = [Node::tcp(), Node::tcp()];
    let (address, left) = so_many_answers(&nodes[1].url, WITHIN * 5 / 8);
    let both = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
    both.create::<U64Keys>(&name(), U64Keys::parameters(), &[100], CreateOptions::default()).unwrap();
    // However far it seems: the lookup is one READ.
    let config = config().with_deadline(WITHIN).with_plan(PlanChoice::Fixed(Plan::Range));
    let of_tasks = || AsyncClient::of(Client::connect_with(&nodes[0].url, config.clone()).unwrap());
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let client = of_tasks();
        left.store(ALL, Ordering::SeqCst);
        assert_eq!(client.get_versioned(107).await.unwrap(), None);
        let answers = ALL - left.load(Ordering::SeqCst);
        let client = of_tasks();
        // All but that to the lookup.
        left.store(answers - 1, Ordering::SeqCst);
        let begun = Instant::now();
        client.get_versioned(107).await.unwrap_err();
        assert_eq!(left.load(Ordering::SeqCst), 0, "it did not come to the lookup");
        // There is one thread.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(begun.elapsed() < WITHIN * 3 / 2, "{:?}", begun.elapsed());
        left.store(ALL, Ordering::SeqCst);
    });
}
