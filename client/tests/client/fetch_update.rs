//! Updates by what a record was: none is lost beside others.

use std::thread;
use std::time::Duration;

use fpcache_client::{ErrorKind, TableClient};

use crate::common::{TestKeys, ThreadNode};

for_both_kinds_of_keys!(
    an_update_that_another_client_overtakes_is_made_anew,
    counts_of_several_threads_add_up,
    an_update_that_is_overtaken_again_and_again_ends_by_its_deadline
);

const DEADLINE: Duration = Duration::from_secs(3);
/// The attempt during which the deadline passes.
const LAST: u64 = 3;

fn sleep_once(attempt: u64) {
    if attempt == LAST {
        thread::sleep(DEADLINE);
    }
}

/// One more than a count.
fn next(value: Option<&[u8]>) -> Option<Vec<u8>> {
    let count = value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().unwrap()));
    Some((count + 1).to_le_bytes().to_vec())
}

fn count(value: u64) -> Option<Vec<u8>> {
    Some(value.to_le_bytes().to_vec())
}

fn start<K: TestKeys>() -> (ThreadNode<K>, TableClient<K>) {
    let node = ThreadNode::<K>::start(16 << 20);
    let client = node.client();
    client.create(K::parameters()).unwrap();
    (node, client)
}

fn an_update_that_another_client_overtakes_is_made_anew<K: TestKeys>() {
    let (node, client) = start::<K>();
    let other = node.client();
    // Another makes the record, replaces its value, removes it.
    let mut seen = Vec::new();
    let before = client.fetch_update(K::key(1), |value| {
        match seen.len() {
            0 => assert!(other.insert(K::key(1), &[1; 8]).unwrap().is_new()),
            1 => other.put(K::key(1), &[2; 8]).unwrap(),
            2 => assert!(other.delete(K::key(1)).unwrap()),
            _ => {}
        }
        seen.push(value.map(<[u8]>::to_vec));
        Some(vec![9; 8])
    });
    assert_eq!(before.unwrap(), None);
    assert_eq!(seen, [None, Some(vec![1; 8]), Some(vec![2; 8]), None]);
    assert_eq!(client.get(K::key(1)).unwrap(), Some(vec![9; 8]));
    // Nothing is written where nothing is returned.
    assert_eq!(client.fetch_update(K::key(1), |_| None).unwrap(), Some(vec![9; 8]));
    assert_eq!(client.fetch_update(K::key(2), |_| None).unwrap(), None);
    assert!(!client.contains(K::key(2)).unwrap());
}

fn counts_of_several_threads_add_up<K: TestKeys>() {
    const EACH: u64 = 200;
    let (_node, client) = start::<K>();
    let add = || (0..EACH).for_each(|_| drop(client.fetch_update(K::key(7), next).unwrap()));
    thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(add))));
    assert_eq!(client.get(K::key(7)).unwrap(), count(3 * EACH));
}

fn an_update_that_is_overtaken_again_and_again_ends_by_its_deadline<K: TestKeys>() {
    let (node, client) = start::<K>();
    let (other, mut written) = (node.client(), 0u64);
    let update = client.with_deadline(DEADLINE).fetch_update(K::key(1), |_| {
        written += 1;
        other.put(K::key(1), &written.to_le_bytes()).unwrap();
        sleep_once(written);
        Some(vec![0xff; 8])
    });
    let error = update.unwrap_err();
    assert!(error.is_timeout() && error.kind() == ErrorKind::Retry, "{error}");
    assert!(!error.may_have_taken_effect() && written == LAST, "{error}");
    assert_eq!(client.get(K::key(1)).unwrap(), count(written));
}

#[cfg(feature = "tokio")]
mod tasks {
    use fpcache_client::{AsyncConfig, AsyncTableClient};
    use tokio::task::JoinSet;

    use super::*;
    use crate::asynchronous::{over_sockets, threads};

    for_both_kinds_of_keys!(
        counts_of_several_tasks_add_up,
        an_update_of_a_task_that_is_overtaken_again_and_again_ends_by_its_deadline
    );

    async fn add_up<K: TestKeys>(client: AsyncTableClient<K>) {
        const EACH: u64 = 50;
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let client = client.clone();
            tasks.spawn(async move {
                for _ in 0..EACH {
                    client.fetch_update(K::key(7), next).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(client.fetch_update(K::key(7), |_| None).await.unwrap(), count(4 * EACH));
        assert_eq!(client.get(K::key(7)).await.unwrap(), count(4 * EACH));
    }

    fn counts_of_several_tasks_add_up<K: TestKeys>() {
        let (_node, client) = start::<K>();
        threads(2).block_on(async {
            add_up(AsyncTableClient::of(client)).await;
            let (_node, client) = over_sockets::<K>([], AsyncConfig::default()).await;
            add_up(client).await;
        });
    }

    fn an_update_of_a_task_that_is_overtaken_again_and_again_ends_by_its_deadline<K: TestKeys>() {
        let (node, client) = start::<K>();
        let (other, mut written) = (node.client(), 0u64);
        threads(1).block_on(async {
            let client = AsyncTableClient::of(client);
            let update = client.with_deadline(DEADLINE);
            let update = update.fetch_update(K::key(1), |_| {
                written += 1;
                other.put(K::key(1), &written.to_le_bytes()).unwrap();
                sleep_once(written);
                Some(vec![0xff; 8])
            });
            let error = update.await.unwrap_err();
            assert!(error.is_timeout() && !error.may_have_taken_effect() && written == LAST, "{error}");
            assert_eq!(client.get(K::key(1)).await.unwrap(), count(written));
        });
    }
}
