//! Batches of changes of which the memory node refuses some: the call fails, and replies tell
//! which.

use fpcache_client::{
    Changes, Client, ClientError, RecordToken, TableClient, U64Keys, WriteReply, WriteStatus,
};

use crate::common::{TestKeys, ThreadNode, value_of};
use crate::over_nodes::{Node, config, make};

for_both_kinds_of_keys!(a_batch_that_finds_no_room_fails_and_tells_all_outcomes);

/// Bytes of each value.
const LONG: u32 = 1000;

/// More than a memory node of 1 MiB has room for.
fn too_many<K: TestKeys>(first: u64) -> Changes<K> {
    let mut changes = Changes::new();
    (0..2_000).for_each(|number| {
        changes.put(K::key(first + number), &value_of(number, 0, LONG as usize));
    });
    changes
}

fn is_of_room(error: &ClientError) -> bool {
    matches!(error, ClientError::NoRoom { .. }) && error.is_of_refused_change()
}

/// What replies say is what is there; some changes were made and others not.
fn replies_are_true<K: TestKeys>(client: &TableClient<K>, first: u64, replies: &[WriteReply]) {
    let made = replies.iter().filter(|reply| reply.status == WriteStatus::Done).count();
    assert!(made > 100 && made < replies.len(), "{made}");
    for (number, reply) in (first..).zip(replies) {
        assert_eq!(reply.is_refused(), reply.status == WriteStatus::NoRoom, "{reply:?}");
        assert_eq!(client.contains(K::key(number)).unwrap(), !reply.is_refused(), "{number}");
    }
}

/// It was told by replies alone: who did not look at them lost data.
fn a_batch_that_finds_no_room_fails_and_tells_all_outcomes<K: TestKeys>() {
    let node = ThreadNode::<K>::start(1 << 20);
    let client = node.client();
    client.create(K::parameters_of(Some(LONG))).unwrap();
    let (changes, mut replies) = (too_many::<K>(0), Vec::new());
    let error = client.apply(&changes, &mut replies).unwrap_err();
    assert!(is_of_room(&error), "{error}");
    assert_eq!(replies.len(), changes.len());
    replies_are_true(&client, 0, &replies);
    let refusals: Vec<_> = changes.refusals(&replies).collect();
    assert_eq!(refusals.len(), replies.iter().filter(|reply| reply.is_refused()).count());
    assert!(refusals.iter().all(|(place, error)| replies[*place].is_refused() && is_of_room(error)));
    assert_eq!(refusals[0].1.to_string(), error.to_string());
}

/// What replies say of records is no error.
#[test]
fn outcomes_that_depend_on_records_are_replies_alone() {
    let node = ThreadNode::<U64Keys>::start(1 << 20);
    let client = node.client();
    client.put(1, &[1; 8]).unwrap();
    let (mut changes, mut replies) = (Changes::new(), Vec::new());
    changes.insert(1, &[2; 8]).update(2, &[2; 8]).delete(3).put(4, &[4; 8]);
    changes.compare_and_set(1, RecordToken::from_bits(5), &[5; 8]);
    client.apply(&changes, &mut replies).unwrap();
    use WriteStatus::{Absent, Differs, Done, Exists};
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [Exists, Absent, Absent, Done, Differs]);
    assert!(!replies.iter().any(WriteReply::is_refused));
    assert_eq!(changes.refusals(&replies).count(), 0);
}

#[test]
fn the_memory_node_that_refused_is_named() {
    let nodes = [Node::tcp(), Node::of(1 << 20, true)];
    make::<U64Keys>(&nodes, &[1 << 20], Some(LONG));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let (mut changes, mut replies) = (too_many::<U64Keys>(1 << 20), Vec::new());
    changes.put(5, &[5; LONG as usize]);
    let names_node = |error: &ClientError| matches!(error, ClientError::NoRoom { node: Some(node), .. } if *node == nodes[1].url);
    let error = client.apply(&changes, &mut replies).unwrap_err();
    assert!(names_node(&error), "{error}");
    assert_eq!(replies.len(), changes.len());
    replies_are_true(&client, 1 << 20, &replies[..2_000]);
    assert!(client.contains(5).unwrap(), "at the other memory node");
}

#[cfg(feature = "tokio")]
#[test]
fn a_batch_of_a_task_fails_like_one_of_a_thread() {
    let nodes = [Node::tcp(), Node::of(1 << 20, true)];
    make::<U64Keys>(&nodes, &[1 << 20], Some(LONG));
    let one = ThreadNode::<U64Keys>::start(1 << 20);
    one.client().create(U64Keys::parameters_of(Some(LONG))).unwrap();
    crate::asynchronous::one_thread().block_on(async {
        let over = Client::connect_with(&nodes[0].url, config()).unwrap();
        for client in [over, one.client()] {
            let client = fpcache_client::AsyncClient::of(client);
            let (changes, mut replies) = (too_many::<U64Keys>(1 << 20), Vec::new());
            let error = client.apply(&changes, &mut replies).await.unwrap_err();
            assert!(is_of_room(&error), "{error}");
            assert_eq!(replies.len(), changes.len());
            replies_are_true(client.client(), 1 << 20, &replies);
        }
    });
}
