//! Values of eight bytes that tasks read into arrays.

use fpcache_client::{AsyncClient, AsyncConfig, Client, ClientError, U64Keys};

use crate::asynchronous::{one_thread, over_sockets};
use crate::common::{TestKeys, ThreadNode, patient};
use crate::over_nodes::{Node, config, make};
use crate::remote;

/// Even keys below a thousand are there.
async fn words_are_read(client: &AsyncClient) {
    let keys: Vec<u64> = (0..1_100).rev().collect();
    let (mut values, mut found) = (vec![7; keys.len()], vec![true; keys.len()]);
    assert_eq!(client.multi_get_u64(&keys, &mut values, &mut found).await.unwrap(), 0);
    assert!(values.iter().all(|value| *value == 0) && !found.contains(&true));
    for key in (0..1_000u64).step_by(2) {
        client.client().put(key, &(key * key).to_le_bytes()).unwrap();
    }
    assert_eq!(client.multi_get_u64(&keys, &mut values, &mut found).await.unwrap(), 500);
    for ((key, value), found) in keys.iter().zip(&values).zip(&found) {
        let is_there = key % 2 == 0 && *key < 1_000;
        assert_eq!((*value, *found), (if is_there { key * key } else { 0 }, is_there), "{key}");
    }
    let error = client.multi_get_u64(&keys, &mut values[1..], &mut found).await.unwrap_err();
    assert!(matches!(error, ClientError::ArrayLengths { .. }), "{error}");
    assert_eq!(client.multi_get_u64(&[], &mut [], &mut []).await.unwrap(), 0);
}

#[test]
fn tasks_read_words_into_arrays() {
    let here = ThreadNode::<U64Keys>::start(1 << 20);
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[300], Some(8));
    let over_two = Client::connect_with(&nodes[0].url, config()).unwrap();
    one_thread().block_on(async {
        let (_node, over_sockets) = over_sockets::<U64Keys>([], AsyncConfig::default()).await;
        for client in [AsyncClient::of(here.client()), over_sockets, AsyncClient::of(over_two)] {
            words_are_read(&client).await;
        }
    });
}

#[test]
fn values_of_another_length_are_no_words_whoever_reads_beside() {
    let node = ThreadNode::<U64Keys>::start(1 << 20);
    node.client().create(U64Keys::parameters_of(Some(16))).unwrap();
    one_thread().block_on(async {
        let client = AsyncClient::of(node.client());
        for key in 0..2 {
            let (mut values, mut found) = ([0; 2], [false; 2]);
            let error = client.multi_get_u64(&[5, 6], &mut values, &mut found).await.unwrap_err();
            assert!(matches!(error, ClientError::NotWords { value_bytes: Some(16) }), "{error}");
            client.put(key + 5, &[1; 16]).await.unwrap();
            assert_eq!(client.multi_get(&[key + 5]).await.unwrap(), [Some(vec![1; 16])]);
        }
    });
}

/// A call that was refused left its answers to the next one of its group, which had those of other
/// keys.
#[test]
fn a_call_that_is_no_words_leaves_the_answers_of_others_in_their_places() {
    const KEYS: u64 = 100;
    let node = remote::Node::start();
    node.make::<U64Keys>("sixteen");
    let client: Client = node.client(0, "sixteen", patient());
    client.create(U64Keys::parameters_of(Some(16))).unwrap();
    let value = |key: u64| [key.to_le_bytes(), (!key).to_le_bytes()].concat();
    (0..KEYS).for_each(|key| client.put(key, &value(key)).unwrap());
    one_thread().block_on(async {
        let client = AsyncClient::of_with(client, AsyncConfig::default().with_sockets(1));
        let mut tasks = tokio::task::JoinSet::new();
        for key in 0..KEYS {
            let (words, values) = (client.clone(), client.clone());
            tasks.spawn(async move {
                let (mut values, mut found) = ([0; 2], [false; 2]);
                let error = words.multi_get_u64(&[5, 6], &mut values, &mut found).await.unwrap_err();
                assert!(matches!(error, ClientError::NotWords { value_bytes: Some(16) }), "{error}");
            });
            tasks.spawn(async move { assert_eq!(values.get(key).await.unwrap(), Some(value(key)), "{key}") });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}
