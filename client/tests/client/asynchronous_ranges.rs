//! Tasks' reads of ranges that must be looked for on a thread, and those of other ranges meanwhile.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fpcache_client::{AsyncClient, Client};

use crate::asynchronous::one_thread;
use crate::asynchronous_over_nodes::{SILENT_PATIENCE, WithSilent};
use crate::over_nodes::{Node, config};

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
        assert!(begun.elapsed() < SILENT_PATIENCE / 2, "{:?}", begun.elapsed());
        assert!(of_silent.await.unwrap().unwrap_err().is_retryable());
        assert!(of_both.await.unwrap().unwrap_err().is_retryable());
        is_silent.store(false, Ordering::SeqCst);
        let found = client.multi_get(&[1_500, 0, 1_501, 20]).await.unwrap();
        let expected = [Some(75u64), Some(0), None, Some(1)];
        assert_eq!(found, expected.map(|value| value.map(|value| value.to_le_bytes().to_vec())));
    });
}

/// Where more keys were asked for than a task looks up in place, each call had all of them read on a
/// thread, the silent one's too, and gave it back no sooner when it was given up.
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
        assert!(begun.elapsed() < SILENT_PATIENCE / 2, "{:?}", begun.elapsed());
        is_silent.store(false, Ordering::SeqCst);
        let found = client.multi_get(&keys).await.unwrap();
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found, (key % 20 == 0).then(|| (key / 20).to_le_bytes().to_vec()), "{key}");
        }
    });
}
