//! Clients of tasks over several memory nodes, and over one that is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsyncClient, AsyncConfig, AsyncTableClient, Changes, Client, ClientError, CreateOptions, Inserted,
    KeyKind, Nodes, TableClient, Tables, U64Keys, WriteStatus,
};
use tokio::task::JoinSet;

use crate::asynchronous::{answers_are_those_of_a_map, one_thread, threads};
use crate::common::{PATIENCE, TestKeys, value_in};
use crate::over_nodes::{Node, config, make, name, urls};
use crate::proxies::{Towards, stand_before};

for_both_kinds_of_keys!(
    answers_over_three_memory_nodes_are_those_of_a_map,
    a_table_that_is_made_anew_with_other_ranges_gives_tasks_no_old_answer,
);

fn answers_over_three_memory_nodes_are_those_of_a_map<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    make::<K>(&nodes, &[300 << 29, 2_000 << 29], Some(8));
    one_thread().block_on(async {
        let client = AsyncTableClient::<K>::connect_with(&nodes[2].url, config()).await.unwrap();
        answers_are_those_of_a_map(&client).await;
    });
}

fn a_table_that_is_made_anew_with_other_ranges_gives_tasks_no_old_answer<K: TestKeys>() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    make::<K>(&nodes, &[100, 200], Some(8));
    let client = TableClient::<K>::connect_with(&nodes[0].url, config()).unwrap();
    let value = |number, edition| value_in(&K::shape(Some(8)), number, edition);
    let keys: Vec<K::Owned> = (0..300).map(K::key).collect();
    one_thread().block_on(async {
        let tasks = AsyncTableClient::of(client.clone());
        for edition in 0..4u64 {
            // Keys of which some go to another memory node each time.
            for number in 0..300 {
                client.put(K::key(number), &value(number, edition)).unwrap();
            }
            for number in 0..300 {
                assert_eq!(tasks.get(K::key(number)).await.unwrap(), Some(value(number, edition)));
            }
            all.drop_table(&name()).unwrap();
            let error = tasks.get(K::key(7)).await.unwrap_err();
            assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
            make::<K>(&nodes, &[20 + 30 * edition, 150 + 20 * edition], Some(8));
            assert_eq!(tasks.get(K::key(110)).await.unwrap(), None);
            assert!(tasks.multi_get(&keys).await.unwrap().iter().all(Option::is_none));
            assert_eq!(tasks.first().await.unwrap(), None);
            assert!(tasks.scan(K::key(0), 10).next().await.is_none());
        }
        // Those of memory nodes that had ranges of the table before count still.
        let counters = tasks.async_counters();
        assert!(counters.calls > 500, "{counters:?}");
    });
}

#[test]
fn tasks_keys_share_the_doorbells_of_each_of_three_memory_nodes() {
    const TASKS: u64 = 96;
    const CALLS: u64 = 100;
    let nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes, &[3_000, 6_000], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mut changes = Changes::new();
    (0..9_000u64).for_each(|key| _ = changes.put(key, &key.to_le_bytes()));
    client.apply(&changes, &mut Vec::new()).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let client = client.clone();
            tasks.spawn(async move {
                for call in 0..CALLS {
                    let key = (task * CALLS + call) * 7_919 % 9_000;
                    assert_eq!(client.get(key).await.unwrap(), Some(key.to_le_bytes().to_vec()));
                }
            });
        }
        tasks.join_all().await;
        let counters = client.async_counters();
        // The first ones connect to a memory node, by themselves.
        assert!(counters.calls + TASKS >= TASKS * CALLS, "{counters:?}");
        // However busy the machine is: of a third of the tasks each group has a few at least.
        assert!(counters.groups * 3 <= counters.calls, "{counters:?}");
        // The first group of each socket, and some that find a newer directory.
        assert!(counters.handed_over <= 2 * 3 * 4, "{counters:?}");
    });
}

/// As a count by a thread: its deadline is of each part.
#[test]
fn a_count_goes_on_for_as_long_as_it_gets_on() {
    const DELAY: Duration = Duration::from_millis(100);
    const NODES: u64 = 12;
    let nodes: Vec<Node> = (0..NODES).map(|_| Node::tcp()).collect();
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = |node: &Node| {
        let is_slow = Arc::clone(&is_slow);
        stand_before(&node.url, move || {
            let is_slow = Arc::clone(&is_slow);
            move |_, _: &[u8]| {
                thread::sleep(if is_slow.load(Ordering::SeqCst) { DELAY } else { Duration::ZERO });
                true
            }
        })
    };
    let slow: Vec<String> = nodes.iter().map(slow).collect();
    let split_at: Vec<u64> = (1..NODES).map(|range| range * 100).collect();
    let all = Nodes::at(&slow.join(",")).unwrap();
    all.create::<U64Keys>(&name(), U64Keys::parameters(), &split_at, CreateOptions::default()).unwrap();
    let client = Client::connect_with(&slow[0], config().with_deadline(PATIENCE)).unwrap();
    (0..NODES).for_each(|range| client.put(range * 100, &[1; 8]).unwrap());
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        // Connects the thread that counts.
        assert_eq!(client.count(0, u64::MAX).await.unwrap(), NODES);
        is_slow.store(true, Ordering::SeqCst);
        let hurried = client.with_deadline(DELAY * 23);
        let begun = Instant::now();
        assert_eq!(hurried.count(0, u64::MAX).await.unwrap(), NODES);
        // There and back, for each range at least once.
        assert!(begun.elapsed() >= DELAY * 24, "{:?}", begun.elapsed());
        is_slow.store(false, Ordering::SeqCst);
        assert_eq!(client.count(100, 300).await.unwrap(), 2);
        assert_eq!(client.count(300, 300).await.unwrap(), 0);
    });
}

/// Two memory nodes with keys below 1000 and from there, of which the second one can be made to say
/// nothing.
pub struct WithSilent {
    pub client: Client,
    pub address: String,
    pub is_silent: Arc<AtomicBool>,
    pub _nodes: [Node; 2],
}

/// The deadline of calls that may wait for the silent one.
pub const SILENT_PATIENCE: Duration = Duration::from_secs(4);

/// Calls that take less have not waited for it.
pub const SOON: Duration = Duration::from_secs(3);

impl WithSilent {
    /// With keys 0, 20, ... 1980.
    pub fn new() -> Self {
        Self::beside(Node::tcp())
    }

    /// The same beside this memory node, which answers.
    pub fn beside(first: Node) -> Self {
        let nodes = [first, Node::tcp()];
        let is_silent = Arc::new(AtomicBool::new(false));
        let silent = Arc::clone(&is_silent);
        let address = stand_before(&nodes[1].url, move || {
            let silent = Arc::clone(&silent);
            move |towards, _: &[u8]| {
                while towards == Towards::Client && silent.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                true
            }
        });
        let all = Nodes::at(&format!("{},{address}", nodes[0].url)).unwrap();
        all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
        let config = config().with_deadline(SILENT_PATIENCE);
        let client = Client::connect_with(&nodes[0].url, config).unwrap();
        for key in 0..100 {
            client.put(key * 20, &key.to_le_bytes()).unwrap();
        }
        Self { client, address, is_silent, _nodes: nodes }
    }
}

/// They waited for the few threads that reads of the silent one had taken.
#[test]
fn a_silent_memory_node_keeps_no_read_of_tasks_from_another() {
    let WithSilent { client, address, is_silent, _nodes } = WithSilent::new();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        for key in 0..100u64 {
            assert!(client.contains(key * 20).await.unwrap());
        }
        is_silent.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let mut waiting = JoinSet::new();
        for key in 50..100u64 {
            let client = client.clone();
            waiting.spawn(async move { client.get(key * 20).await });
        }
        for key in 0..50u64 {
            assert_eq!(client.get(key * 20).await.unwrap(), Some(key.to_le_bytes().to_vec()));
            assert_eq!(client.floor(key * 20 + 1).await.unwrap().unwrap().0, key * 20);
        }
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        // Both memory nodes have some of these.
        let error = client.multi_get(&[0, 1_500]).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(&address), "{error}");
        for answered in waiting.join_all().await {
            assert!(answered.unwrap_err().is_retryable());
        }
        is_silent.store(false, Ordering::SeqCst);
        assert!(client.get(1_500).await.unwrap().is_some());
    });
}

/// Reads of the silent one had all threads for blocking calls, one to connect it and the others to
/// wait for that.
#[test]
fn a_memory_node_that_is_silent_from_the_beginning_keeps_no_read_of_tasks_from_another() {
    let WithSilent { client: _, address: _, is_silent, _nodes: nodes } = WithSilent::new();
    one_thread().block_on(async {
        is_silent.store(true, Ordering::SeqCst);
        let config = config().with_deadline(SILENT_PATIENCE);
        let client = AsyncClient::of(Client::connect_with(&nodes[0].url, config).unwrap());
        let mut waiting = JoinSet::new();
        for key in 50..100u64 {
            let client = client.clone();
            waiting.spawn(async move { client.get(key * 20).await });
        }
        // They have begun by then.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        for key in 0..50u64 {
            assert_eq!(client.get(key * 20).await.unwrap(), Some(key.to_le_bytes().to_vec()));
            assert_eq!(client.floor(key * 20 + 1).await.unwrap().unwrap().0, key * 20);
        }
        let own = client.multi_get(&[0, 20, 40]).await.unwrap();
        assert!(own.iter().all(Option::is_some));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        for answered in waiting.join_all().await {
            assert!(answered.unwrap_err().is_retryable());
        }
        is_silent.store(false, Ordering::SeqCst);
        assert!(client.get(1_500).await.unwrap().is_some());
    });
}

/// What one had begun on a thread went on there, and the next one began on another.
#[test]
fn reads_that_are_given_up_take_no_thread_each_from_those_of_another_memory_node() {
    let WithSilent { client: _, address: _, is_silent, _nodes: nodes } = WithSilent::new();
    one_thread().block_on(async {
        is_silent.store(true, Ordering::SeqCst);
        let config = config().with_deadline(SILENT_PATIENCE);
        let client = AsyncClient::of(Client::connect_with(&nodes[0].url, config).unwrap());
        for key in 50..60u64 {
            let given_up = tokio::time::timeout(Duration::from_millis(20), client.get(key * 20)).await;
            assert!(given_up.is_err());
        }
        let begun = Instant::now();
        for key in 0..50u64 {
            assert_eq!(client.get(key * 20).await.unwrap(), Some(key.to_le_bytes().to_vec()));
        }
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        is_silent.store(false, Ordering::SeqCst);
        assert!(client.get(1_500).await.unwrap().is_some());
    });
}

/// One thread sent those of all, and waited for the silent one first.
#[test]
fn a_silent_memory_node_keeps_no_change_of_tasks_from_another() {
    let WithSilent { client, address: _, is_silent, _nodes } = WithSilent::new();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        is_silent.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let mut waiting = JoinSet::new();
        for key in 50..100u64 {
            let client = client.clone();
            waiting.spawn(async move { client.put(key * 20, &[9; 8]).await });
        }
        for key in 0..50u64 {
            client.put(key * 20, &[7; 8]).await.unwrap();
        }
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let mut changes = Changes::new();
        changes.put(1_500, &[5; 8]).put(0, &[5; 8]);
        let mut replies = Vec::new();
        let error = client.apply(&changes, &mut replies).await.unwrap_err();
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }) && replies.is_empty(), "{error}");
        assert!(error.to_string().contains("1 of the changes after the one that failed"), "{error}");
        for put in waiting.join_all().await {
            let error = put.unwrap_err();
            assert!(matches!(error, ClientError::OutcomeUnknown { .. }) || error.is_retryable(), "{error}");
        }
        assert_eq!(client.get(0).await.unwrap(), Some(vec![5; 8]));
    });
}

#[test]
fn changes_of_one_call_at_three_memory_nodes_are_told_in_its_order_and_none_is_made_if_one_cannot_be() {
    let nodes = [Node::tcp(), Node::shm(), Node::tcp()];
    make::<U64Keys>(&nodes, &[100, 200], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(client);
        assert!(client.insert(150, &[1; 8]).await.unwrap().is_new());
        let mut changes = Changes::new();
        for key in [250, 50, 150, 251, 51, 50] {
            changes.insert(key, &[2; 8]);
        }
        changes.delete(250);
        let mut replies = Vec::new();
        client.apply(&changes, &mut replies).await.unwrap();
        let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
        let (done, there) = (WriteStatus::Done, WriteStatus::Exists);
        assert_eq!(statuses, [done, done, there, done, done, there, done]);
        assert_eq!(client.get(250).await.unwrap(), None);
        assert_eq!(client.get(51).await.unwrap(), Some(vec![2; 8]));
        // Those of the other memory nodes could be made.
        let mut changes = Changes::new();
        changes.put(60, &[3; 8]).put(160, &[3; 8]).put(260, &[3; 9]);
        let error = client.apply(&changes, &mut replies).await.unwrap_err();
        assert!(matches!(error, ClientError::ValueSize { key: _, got: 9, expected: 8 }), "{error:?}");
        assert_eq!(client.multi_contains(&[60, 160, 260]).await.unwrap(), [false; 3]);
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
            // `Exists` would say that it was made before, by a request that was told to have
            // failed.
            assert_eq!(inserted.ok(), (key % 10 != 0).then_some(Inserted::New));
            assert_eq!(client.contains(key).await.unwrap(), key % 10 != 0);
        }
    });
}

/// Changes that had been made at the other one were told to be of unknown outcome, or were not
/// sent.
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

/// As when a machine is started anew and knows nothing of its sockets: a call that may take long
/// finds that in the time that the memory node has, not in its own.
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
