//! Clients of tasks: the answers of clients of threads, whatever other tasks ask and whichever stop
//! waiting.

mod own_time;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fpcache_client::{AsyncConfig, AsyncTableClient, Changes, CompareAndSet, U64Keys, WriteStatus};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

use self::own_time::longest_wait;
use crate::common::{TestKeys, ThreadNode, load, patient, value_of};
use crate::remote::{Node, random};

for_both_kinds_of_keys!(
    answers_over_sockets_are_those_of_a_map,
    answers_over_shared_memory_are_those_of_a_map,
    an_empty_table_has_as_many_answers_as_are_asked_for
);

/// A runtime with no thread but the one that waits for it.
pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime with `count` threads.
pub fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
}

/// A table over sockets with the keys of these numbers and values of eight bytes.
pub async fn over_sockets<K: TestKeys>(
    numbers: impl IntoIterator<Item = u64>,
    config: AsyncConfig,
) -> (Node, AsyncTableClient<K>) {
    let node = Node::start();
    node.make::<K>("tasks");
    let client = node.client::<K>(0, "tasks", patient());
    load(&client, K::parameters(), numbers, 0).unwrap();
    (node, AsyncTableClient::of_with(client, config))
}

fn answers_over_sockets_are_those_of_a_map<K: TestKeys>() {
    one_thread().block_on(async {
        let (_node, client) = over_sockets::<K>([], AsyncConfig::default()).await;
        answers_are_those_of_a_map(&client).await;
    });
}

fn answers_over_shared_memory_are_those_of_a_map<K: TestKeys>() {
    let node = ThreadNode::<K>::start(8 << 20);
    one_thread().block_on(async {
        let client = node.client();
        load(&client, K::parameters(), [], 0).unwrap();
        answers_are_those_of_a_map(&AsyncTableClient::of(client)).await;
    });
}

/// Every read of a table that has no parameters yet has an answer for each key.
async fn nothing_is_found<K: TestKeys>(client: &AsyncTableClient<K>) {
    let keys: Vec<K::Owned> = [1, 2, 3].map(K::key).into();
    assert_eq!(client.get(K::key(1)).await.unwrap(), None);
    assert!(!client.contains(K::key(1)).await.unwrap());
    assert_eq!(client.multi_get(&keys).await.unwrap(), [None, None, None]);
    assert_eq!(client.floor(K::key(5)).await.unwrap(), None);
    assert_eq!(client.first().await.unwrap(), None);
    assert_eq!(client.multi_floor(&keys).await.unwrap(), [None, None, None]);
    assert_eq!(client.multi_ceiling(&keys).await.unwrap(), [None, None, None]);
}

fn an_empty_table_has_as_many_answers_as_are_asked_for<K: TestKeys>() {
    let node = Node::start();
    node.make::<K>("tasks");
    let here = ThreadNode::<K>::start(1 << 20);
    one_thread().block_on(async {
        let config = AsyncConfig::default().with_waiting(usize::MAX);
        let client = AsyncTableClient::of_with(node.client::<K>(0, "tasks", patient()), config);
        nothing_is_found(&client).await;
        nothing_is_found(&AsyncTableClient::of(here.client())).await;
        client.put(K::key(1), &[7; 8]).await.unwrap();
        assert_eq!(client.get(K::key(1)).await.unwrap(), Some(vec![7; 8]));
    });
}

/// Does all kinds of calls one after another, and many at a time.
pub async fn answers_are_those_of_a_map<K: TestKeys>(client: &AsyncTableClient<K>) {
    let value = |number: u64, edition: u64| value_of(number, edition, 8);
    let mut map = BTreeMap::new();
    let mut changes = Changes::default();
    for number in (0..2_000u64).map(|n| n << 30) {
        changes.insert(K::key(number), &value(number, 0));
        map.insert(number, value(number, 0));
    }
    let mut replies = Vec::new();
    client.apply(&changes, &mut replies).await.unwrap();
    assert_eq!(replies.len(), map.len());
    assert!(replies.iter().all(|reply| reply.status == WriteStatus::Done));
    let record = |found: Option<(K::Owned, Vec<u8>)>| found.map(|(k, v)| (K::number(k.borrow()), v));
    let mut state = 99;
    for step in 0..400u64 {
        let number = (random(&mut state) % 4_000) << 29;
        let key = K::key(number);
        let expected = map.get(&number).cloned();
        match random(&mut state) % 9 {
            0 => {
                client.put(key, &value(number, step)).await.unwrap();
                map.insert(number, value(number, step));
            }
            1 => assert_eq!(client.delete(key).await.unwrap(), map.remove(&number).is_some()),
            2 => {
                assert_eq!(
                    client.insert(key, &value(number, step)).await.unwrap().is_new(),
                    expected.is_none()
                );
                map.entry(number).or_insert(value(number, step));
            }
            3 => {
                assert_eq!(client.update(key, &value(number, step)).await.unwrap(), expected.is_some());
                map.entry(number).and_modify(|held| *held = value(number, step));
            }
            4 => {
                let found = client.get_versioned(K::key(number)).await.unwrap();
                assert_eq!(found.as_ref().map(|(value, _)| value), expected.as_ref());
                let Some((_, token)) = found else { continue };
                let set = client.compare_and_set(K::key(number), token, &value(number, step)).await;
                assert!(matches!(set, Ok(CompareAndSet::Done(_))), "{set:?}");
                let set = client.compare_and_set(K::key(number), token, &value(number, step + 1)).await;
                assert!(matches!(set, Ok(CompareAndSet::Differs(_))), "{set:?}");
                map.insert(number, value(number, step));
            }
            5 => {
                let group: Vec<u64> = (0..300).map(|i| number + (i << 29)).collect();
                let keys: Vec<K::Owned> = group.iter().copied().map(K::key).collect();
                let expected: Vec<_> = group.iter().map(|number| map.get(number).cloned()).collect();
                assert_eq!(client.multi_get(&keys).await.unwrap(), expected);
                let there: Vec<bool> = expected.iter().map(Option::is_some).collect();
                assert_eq!(client.multi_contains(&keys).await.unwrap(), there);
                let floors = client.multi_floor(&keys).await.unwrap();
                let floors: Vec<_> = floors.into_iter().map(record).collect();
                let below = |n: &u64| map.range(..=*n).next_back().map(|(n, v)| (*n, v.clone()));
                assert_eq!(floors, group.iter().map(below).collect::<Vec<_>>());
            }
            6 => {
                let limit = (random(&mut state) % 400) as usize;
                let mut records = client.scan(key, limit);
                let mut expected = map.range(number..).take(limit);
                while let Some(found) = records.next().await {
                    let (found, value) = found.unwrap();
                    assert_eq!(Some((&K::number(found.borrow()), &value)), expected.next());
                }
                assert_eq!(expected.next(), None);
            }
            7 => {
                let above = map.range(number..).next().map(|(n, v)| (*n, v.clone()));
                assert_eq!(record(client.ceiling(key).await.unwrap()), above);
                let ends = [client.first().await.unwrap(), client.last().await.unwrap()].map(record);
                let own = |end: Option<(&u64, &Vec<u8>)>| end.map(|(n, v)| (*n, v.clone()));
                assert_eq!(ends, [own(map.first_key_value()), own(map.last_key_value())]);
            }
            _ => {
                assert_eq!(client.contains(K::key(number)).await.unwrap(), expected.is_some());
                assert_eq!(client.get(key).await.unwrap(), expected);
            }
        }
    }
    let end = client.scan_range(K::key(0), K::key(700 << 29), usize::MAX);
    let mut records = pin!(end);
    let mut count = 0;
    while let Some(found) = records.next().await {
        found.unwrap();
        count += 1;
    }
    assert_eq!(count, map.range(..700 << 29).count());
    assert_eq!(client.count(K::key(0), K::key(700 << 29)).await.unwrap(), count as u64);
}

#[test]
fn calls_of_many_tasks_share_doorbells() {
    const TASKS: u64 = 64;
    const CALLS: u64 = 100;
    one_thread().block_on(async {
        let (_node, client) =
            over_sockets::<U64Keys>((0..10_000).map(|n| n << 20), AsyncConfig::default()).await;
        client.get(0).await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let client = client.clone();
            tasks.spawn(async move {
                let mut state = task + 1;
                for _ in 0..CALLS {
                    let number = (random(&mut state) % 10_000) << 20;
                    assert_eq!(client.get(number).await.unwrap(), Some(value_of(number, 0, 8)));
                }
            });
        }
        tasks.join_all().await;
        let counters = client.async_counters();
        assert_eq!(counters.calls, TASKS * CALLS + 1);
        // Two round trips for each group, of a few keys at least however busy the machine is.
        assert!(counters.doorbells * 3 <= counters.calls, "{counters:?}");
        assert!(counters.groups * 6 <= counters.calls, "{counters:?}");
        assert!(counters.handed_over <= 4, "the first group of each socket: {counters:?}");
    });
}

/// A thousand tasks at a time, each with calls of all kinds on keys of its own.
async fn a_thousand_tasks(client: &AsyncTableClient<U64Keys>) {
    let mut tasks = JoinSet::new();
    for task in 0..1_000u64 {
        let client = client.clone();
        tasks.spawn(async move {
            let own = 1 << 50 | task << 20;
            for step in 0..4u64 {
                let key = own + step;
                assert!(client.insert(key, &value_of(key, 1, 8)).await.unwrap().is_new());
                assert_eq!(client.get(key).await.unwrap(), Some(value_of(key, 1, 8)));
                assert_eq!(client.floor(key + 1).await.unwrap(), Some((key, value_of(key, 1, 8))));
                assert!(client.update(key, &value_of(key, 2, 8)).await.unwrap());
                let asked = [key, key + 1];
                let expected = vec![Some(value_of(key, 2, 8)), None];
                assert_eq!(client.multi_get(&asked).await.unwrap(), expected);
            }
            let mut records = client.scan_range(own, own + 4, 10);
            let mut found = 0;
            while let Some(record) = records.next().await {
                let (key, value) = record.unwrap();
                assert_eq!(value, value_of(key, 2, 8));
                found += 1;
            }
            assert_eq!(found, 4);
            assert!(client.delete(own).await.unwrap());
            assert!(!client.contains(own).await.unwrap());
        });
    }
    tasks.join_all().await;
}

#[test]
fn a_thousand_tasks_over_sockets_on_one_thread_leave_others_their_turns() {
    one_thread().block_on(async {
        // Far less room than is asked for.
        let config = AsyncConfig::default().with_waiting(50).with_sockets(2);
        let (_node, client) = over_sockets::<U64Keys>(0..100, config).await;
        let longest = longest_wait(a_thousand_tasks(&client)).await;
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    });
}

#[test]
fn a_thousand_tasks_over_sockets_on_many_threads() {
    threads(3).block_on(async {
        let (_node, client) = over_sockets::<U64Keys>(0..100, AsyncConfig::default()).await;
        a_thousand_tasks(&client).await;
    });
}

#[test]
fn a_thousand_tasks_over_shared_memory() {
    let node = ThreadNode::<U64Keys>::start(8 << 20);
    let client = node.client();
    load(&client, U64Keys::parameters(), 0..100, 0).unwrap();
    for on_one_thread in [true, false] {
        let runtime = if on_one_thread { one_thread() } else { threads(3) };
        runtime.block_on(async {
            let client = AsyncTableClient::of(client.clone());
            if on_one_thread {
                let longest = longest_wait(a_thousand_tasks(&client)).await;
                assert!(longest < Duration::from_secs(1), "{longest:?}");
            } else {
                a_thousand_tasks(&client).await;
            }
        });
        for task in 0..1_000u64 {
            (1..4).for_each(|step| assert!(client.delete(1 << 50 | task << 20 | step).unwrap()));
        }
    }
}

#[test]
fn a_task_that_reads_where_memory_is_mapped_without_a_pause_leaves_others_their_turns() {
    let node = ThreadNode::<U64Keys>::start(8 << 20);
    let client = node.client();
    load(&client, U64Keys::parameters(), 0..1_000, 0).unwrap();
    one_thread().block_on(async {
        let client = AsyncTableClient::of(client);
        // Fetches the table, which is waited for.
        assert!(client.get(0).await.unwrap().is_some());
        let turns = Arc::new(AtomicU64::new(0));
        let other = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            }
        });
        for number in 0..20_000 {
            assert!(client.get(number % 1_000).await.unwrap().is_some());
        }
        assert!(turns.load(Ordering::Relaxed) >= 20, "{turns:?}");
        other.abort();
    });
}

/// Polls a future `polls` times, with turns for others between, and drops it. `true` if it ended
/// before.
pub async fn poll_and_drop<R>(future: impl Future<Output = R>, polls: usize) -> Option<R> {
    let mut future = pin!(future);
    for _ in 0..polls {
        // Nothing need wake it: it is polled anyway.
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(value);
        }
        yield_now().await;
    }
    None
}

/// Drops calls after any number of polls, and follows what a key may hold.
async fn calls_may_be_dropped_anywhere(client: &AsyncTableClient<U64Keys>) {
    const KEYS: u64 = 16;
    let mut state = 5;
    // What each key may hold: the last call that ended, and those that were dropped since.
    let mut held: Vec<BTreeSet<Option<u64>>> = (0..KEYS).map(|_| [None].into()).collect();
    for step in 1..3_000u64 {
        let key = random(&mut state) % KEYS;
        let polls = match random(&mut state) % 4 {
            0 => usize::MAX,
            1 => 1,
            _ => (random(&mut state) % 40) as usize,
        };
        let may_hold = &mut held[key as usize];
        let word = step.to_le_bytes();
        match random(&mut state) % 8 {
            0 | 1 => match poll_and_drop(client.put(key, &word), polls).await {
                Some(put) => {
                    put.unwrap();
                    *may_hold = [Some(step)].into();
                }
                None => drop(may_hold.insert(Some(step))),
            },
            2 => match poll_and_drop(client.delete(key), polls).await {
                Some(deleted) => {
                    deleted.unwrap();
                    *may_hold = [None].into();
                }
                None => drop(may_hold.insert(None)),
            },
            3 => {
                let mut records = client.scan(0, KEYS as usize);
                drop(poll_and_drop(records.next(), polls).await);
            }
            4 => drop(poll_and_drop(client.floor(key), polls).await),
            5 => drop(poll_and_drop(client.multi_get(&[key, key + 1]), polls).await),
            _ => {
                let Some(found) = poll_and_drop(client.get(key), polls).await else { continue };
                let found = found.unwrap().map(|word| u64::from_le_bytes(word.try_into().unwrap()));
                assert!(may_hold.contains(&found), "step {step}, key {key}: {found:?} of {may_hold:?}");
            }
        }
    }
    for (key, may_hold) in held.into_iter().enumerate() {
        let key = key as u64;
        // Later than all that was dropped.
        client.put(key, &7u64.to_le_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(client.get(key).await.unwrap(), Some(7u64.to_le_bytes().to_vec()), "{may_hold:?}");
    }
}

#[test]
fn calls_may_be_dropped_anywhere_over_sockets() {
    one_thread().block_on(async {
        let config = AsyncConfig::default().with_waiting(4);
        let (_node, client) = over_sockets::<U64Keys>([], config).await;
        calls_may_be_dropped_anywhere(&client).await;
    });
    threads(2).block_on(async {
        let (_node, client) = over_sockets::<U64Keys>([], AsyncConfig::default()).await;
        calls_may_be_dropped_anywhere(&client).await;
    });
}

#[test]
fn calls_may_be_dropped_anywhere_over_shared_memory() {
    let node = ThreadNode::<U64Keys>::start(8 << 20);
    one_thread().block_on(async {
        let client = node.client();
        client.create(U64Keys::parameters()).unwrap();
        calls_may_be_dropped_anywhere(&AsyncTableClient::of(client)).await;
    });
}

#[test]
fn a_change_that_cannot_be_made_fails_alone() {
    threads(2).block_on(async {
        let (_node, client) = over_sockets::<U64Keys>([], AsyncConfig::default()).await;
        let mut tasks = JoinSet::new();
        for key in 0..200u64 {
            let client = client.clone();
            tasks.spawn(async move {
                let value = vec![1; if key % 10 == 0 { 9 } else { 8 }];
                (key, client.put(key, &value).await)
            });
        }
        for (key, put) in tasks.join_all().await {
            assert_eq!(put.is_err(), key % 10 == 0, "{put:?}");
            assert_eq!(client.contains(key).await.unwrap(), key % 10 != 0);
        }
    });
}

/// Futures are copied as they are handed on, and a program may have a hundred thousand tasks that
/// each keep one.
#[test]
fn the_future_of_a_read_is_small() {
    let node = ThreadNode::<U64Keys>::start(1 << 20);
    one_thread().block_on(async {
        let client = AsyncTableClient::of(node.client());
        let of_one = [size_of_val(&client.get(20)), size_of_val(&client.contains(20))];
        let of_several = size_of_val(&client.multi_get(&[20, 30]));
        assert!(of_one.iter().all(|bytes| *bytes <= 512) && of_several <= 768, "{of_one:?}, {of_several}");
    });
}
