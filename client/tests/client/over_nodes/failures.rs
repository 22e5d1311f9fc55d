//! Memory nodes that are full, gone or silent, and what is told of a call that did not end well.

use super::*;

use super::one_slow::OneSlow;
use fpcache::map::{MapState, RangeMap};
use fpcache::message::{RangeRequest, decode_reply};
use fpcache_fabric::tcp::{ConnectOptions, connect};
use fpcache_fabric::{Connection, Deadline};

#[test]
fn memory_nodes_that_make_no_table_are_named_before_anything_is_made() {
    let node = Node::tcp();
    let twice = Nodes::at(&format!("{0},shm://x,{0}", node.url)).unwrap_err().to_string();
    assert!(twice.contains("named twice") && twice.contains(&node.url), "{twice}");
    let many: Vec<String> = (0..65).map(|i| format!("shm://n{i}")).collect();
    assert!(Nodes::at(&many.join(",")).unwrap_err().to_string().contains("at most 64"));
    assert!(Nodes::at("tcp://nowhere").is_err());
    // At one of them no process listens.
    let away = Nodes::at(&format!("{},tcp://127.0.0.1:1", node.url)).unwrap();
    let created = away.create::<U64Keys>(&name(), U64Keys::parameters(), &[9], CreateOptions::default());
    let error = created.unwrap_err();
    assert!(matches!(&error, ClientError::NodeAway { node, .. } if node == "tcp://127.0.0.1:1"), "{error}");
    assert!(error.is_retryable());
    for split_at in [&[][..], &[1, 2], &[0]] {
        let nodes = Nodes::at(&format!("{},shm://unused", node.url)).unwrap();
        let created =
            nodes.create::<U64Keys>(&name(), U64Keys::parameters(), split_at, CreateOptions::default());
        assert!(matches!(created, Err(ClientError::MapUnusable(_))), "{split_at:?}");
    }
    assert_eq!(Tables::connect(&node.url).unwrap().list().unwrap().tables, []);
}

#[test]
fn a_full_memory_node_among_three_is_named_and_the_others_take_writes() {
    let nodes = [Node::tcp(), Node::of(1 << 20, true), Node::shm()];
    make::<U64Keys>(&nodes, &[1 << 20, 2 << 20], Some(1000));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mut written = Vec::new();
    let full = loop {
        let key = (1 << 20) + written.len() as u64;
        match client.put(key, &[7; 1000]) {
            Ok(()) => written.push(key),
            Err(error) => break error,
        }
    };
    let is_named = matches!(&full, ClientError::NoRoom { node: Some(node), .. } if *node == nodes[1].url);
    assert!(is_named && full.to_string().contains(&nodes[1].url), "{full}");
    client.put(5, &[1; 1000]).unwrap();
    client.put(3 << 20, &[1; 1000]).unwrap();
    assert!(written.iter().all(|key| client.get(*key).unwrap() == Some(vec![7; 1000])));
}

#[test]
fn a_memory_node_that_is_gone_fails_its_own_range_only() {
    let mut nodes = [Node::tcp(), Node::tcp(), Node::shm()];
    make::<ByteKeys>(&nodes, &[1 << 56, 2 << 56], Some(8));
    let client = TableClient::<ByteKeys>::connect_with(&nodes[1].url, config()).unwrap();
    let keys: Vec<Vec<u8>> = [0u64, 1 << 56, 2 << 56].map(ByteKeys::key).into();
    for key in &keys {
        client.put(key, &[3; 8]).unwrap();
    }
    for gone in [1, 2] {
        nodes[gone].end();
        let url = nodes[gone].url.clone();
        let check = |error: ClientError| {
            let is_named = matches!(&error, ClientError::NodeAway { node, .. } if *node == url);
            assert!(is_named && error.is_retryable(), "{error}");
        };
        // Mapped memory is believed until its memory node's end is heard of.
        let begun = Instant::now();
        let error = loop {
            match client.get(&keys[gone]) {
                Err(error) => break error,
                Ok(_) => assert!(begun.elapsed() < PATIENCE),
            }
        };
        check(error);
        check(client.put(&keys[gone], &[4; 8]).unwrap_err());
        check(client.multi_get(&keys[gone..=gone]).unwrap_err());
        assert_eq!(client.get(&keys[0]).unwrap(), Some(vec![3; 8]));
        client.put(&keys[0], &[3; 8]).unwrap();
        // A client that comes now finds the table at those that are left.
        let newcomer = TableClient::<ByteKeys>::connect_with(&urls(&nodes), config()).unwrap();
        assert_eq!(newcomer.get(&keys[0]).unwrap(), Some(vec![3; 8]));
        check(newcomer.get(&keys[gone]).unwrap_err());
    }
}

#[test]
fn a_table_that_was_dropped_is_not_told_to_be_lost_and_a_lost_range_is() {
    let mut nodes = [Node::shm(), Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1000, 2000], Some(8));
    let client = Client::connect_with(&nodes[2].url, config()).unwrap();
    (0..3).for_each(|range| client.put(range * 1000, &[1; 8]).unwrap());
    // The second one is started anew at its address, and keeps nothing.
    let url = nodes[1].url.clone();
    nodes[1].end();
    let config = CatalogueConfig::of(16 << 20);
    let listener = Listener::bind(&[url.parse().unwrap()], ListenOptions::default()).unwrap();
    nodes[1].serving = Some(listener.spawn(Catalogue::open(&config).unwrap()).unwrap());
    let error = client.get(1000).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("{url} has lost its range")), "{error}");
    // The keys of the others are served, whatever is asked of them.
    assert_eq!(client.get(0).unwrap(), Some(vec![1; 8]));
    assert!(client.get_versioned(2000).unwrap().is_some());
    client.shape().unwrap();
    let created = Nodes::at(&urls(&nodes)).unwrap().create::<U64Keys>(
        &name(),
        U64Keys::parameters(),
        &[1000, 2000],
        CreateOptions::default(),
    );
    assert!(matches!(created, Err(ClientError::NoSuchTable { .. }) | Ok(())), "{created:?}");
    let all = Nodes::at(&urls(&nodes)).unwrap();
    all.drop_table(&name()).unwrap();
    let error = client.get(2000).unwrap_err().to_string();
    assert!(error.contains("it was dropped"), "{error}");
}

#[test]
fn a_change_of_a_group_that_was_made_after_one_that_was_not_is_not_told_to_be_repeatable() {
    let mut nodes = [Node::shm(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1000], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    (0..2).for_each(|range| client.put(range * 1000, &[1; 8]).unwrap());
    nodes[1].end();
    let group = |keys: &[u64]| {
        let mut changes = Changes::new();
        keys.iter().for_each(|key| _ = changes.put(*key, &[2; 8]));
        let mut replies = Vec::new();
        (client.with_deadline(PATIENCE / 10).apply(&changes, &mut replies), replies.len())
    };
    // The third one went with the first: a caller that repeats what has no reply would make it
    // twice.
    let (ended, told) = group(&[0, 1000, 1]);
    assert!(matches!(ended, Err(ClientError::OutcomeUnknown { .. })), "{ended:?}");
    assert_eq!((told, client.get(1).unwrap()), (1, Some(vec![2; 8])));
    let (ended, told) = group(&[2, 1000, 1001]);
    assert!(matches!(ended, Err(ClientError::NodeAway { .. })), "{ended:?}");
    assert_eq!((told, client.get(2).unwrap()), (1, Some(vec![2; 8])));
}

#[test]
fn nothing_of_a_group_is_sent_of_which_one_change_cannot_be_the_tables() {
    let nodes = [Node::shm(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1000], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let mut changes = Changes::new();
    changes.put(0, &[1; 8]);
    changes.put(1000, &[1; 9]);
    let ended = client.apply(&changes, &mut Vec::new());
    assert!(matches!(ended, Err(ClientError::ValueSize { .. })), "{ended:?}");
    assert_eq!(client.get(0).unwrap(), None);
}

#[test]
fn a_memory_node_that_is_silent_does_not_hold_up_a_client_that_connects() {
    let mut nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1000, 2000], Some(8));
    for silent in [2, 0] {
        let url = nodes[silent].url.clone();
        nodes[silent].end();
        // It accepts, and never says a word.
        let _silent = TcpListener::bind(url.strip_prefix("tcp://").unwrap()).unwrap();
        let begun = Instant::now();
        let config = config().with_deadline(PATIENCE * 2);
        let client = Client::connect_with(&nodes[1].url, config).unwrap();
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        assert_eq!(client.get(1000).unwrap(), None);
    }
}

#[test]
fn a_change_that_was_made_in_a_dropped_table_is_not_made_again_in_the_next_one() {
    for is_connected in [true, false] {
        let nodes = [Node::tcp(), Node::tcp()];
        let silent = Silent::before(&nodes[1].url);
        let all = Nodes::at(&format!("{},{}", nodes[0].url, silent.address)).unwrap();
        let make = || {
            all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
        };
        make();
        let client = Client::connect_with(&nodes[0].url, config()).unwrap();
        if is_connected {
            client.put(2000, &[1; 8]).unwrap();
        }
        let ended = thread::scope(|scope| {
            let putting = scope.spawn(|| client.put(2000, &MARK));
            silent.heard.recv_timeout(PATIENCE).unwrap();
            all.drop_table(&name()).unwrap();
            make();
            silent.hang_up.store(true, Ordering::SeqCst);
            putting.join().unwrap()
        });
        assert!(matches!(ended, Err(ClientError::OutcomeUnknown { .. })), "{ended:?}");
        let fresh = Client::connect_with(&nodes[0].url, config()).unwrap();
        assert_eq!(fresh.get(2000).unwrap(), None);
    }
}

/// Any client that may make tables writes the URLs of their maps, which lead no client to other
/// users' memory nodes.
#[test]
fn a_map_leads_no_client_to_other_users_memory_nodes() {
    let node = Node::tcp();
    let other = "shm://theirs@65534";
    let nodes = [node.url.clone(), other.to_owned()];
    let made = RangeMap::divide(name(), KeyKind::U64, 5, &nodes, &[vec![7; 8]]).unwrap();
    let prepared = made.next(MapState::Making).unwrap();
    let whole = prepared.next(MapState::Whole).unwrap();
    let connection = connect(&node.url.parse().unwrap(), ConnectOptions::default()).unwrap();
    let send = |request: RangeRequest| {
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.encode(&mut bytes);
        connection.call(&bytes, &mut reply, Deadline::after(PATIENCE)).unwrap();
        decode_reply(&reply).map(drop).unwrap();
    };
    send(RangeRequest::Create { map: made, number: 0, region_bytes: None });
    send(RangeRequest::Map { map: prepared, number: 0 });
    send(RangeRequest::Map { map: whole, number: 0 });
    let is_told = |error: ClientError| {
        assert!(matches!(&error, ClientError::NotFollowed { node, .. } if node == other), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("65534") && text.contains("give the client") && !error.is_retryable(),
            "{text}"
        );
    };
    is_told(Client::connect_with(&node.url, config()).map(drop).unwrap_err());
    let all = Nodes::at(&node.url).unwrap();
    is_told(all.drop_table(&name()).unwrap_err());
    // One that names it itself goes there, where no memory node is.
    let all = Nodes::at(&format!("{},{other}", node.url)).unwrap();
    let error = all.drop_table(&name()).unwrap_err();
    assert!(
        !matches!(error, ClientError::NotFollowed { .. }) && error.to_string().contains(other),
        "{error}"
    );
}

#[test]
fn the_shape_of_a_table_that_was_made_anew_is_told() {
    let nodes = [Node::tcp(), Node::shm()];
    make::<U64Keys>(&nodes, &[1000], Some(8));
    // Which have the map, and no connection to a range yet.
    let [client, late] = [(); 2].map(|()| Client::connect_with(&nodes[0].url, config()).unwrap());
    let all = Nodes::at(&urls(&nodes)).unwrap();
    all.drop_table(&name()).unwrap();
    make::<U64Keys>(&nodes, &[500], Some(24));
    assert_eq!(client.shape().unwrap().value_bytes, Some(24));
    all.drop_table(&name()).unwrap();
    let error = late.shape().unwrap_err();
    assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error}");
    assert!(error.to_string().contains("it was dropped"), "{error}");
}

#[test]
fn a_posted_change_that_may_have_been_made_in_a_dropped_table_is_told_to_be_unknown() {
    for polls in [false, true] {
        let nodes = [Node::tcp(), Node::tcp()];
        let silent = Silent::before(&nodes[1].url);
        let all = Nodes::at(&format!("{},{}", nodes[0].url, silent.address)).unwrap();
        all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
        let client = Client::connect_with(&nodes[0].url, config()).unwrap();
        let mut pipeline = client.pipeline(2).unwrap();
        pipeline.put(2000, &MARK).unwrap();
        silent.heard.recv_timeout(PATIENCE).unwrap();
        all.drop_table(&name()).unwrap();
        silent.hang_up.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = if polls { pipeline.poll() } else { pipeline.next() } {
                break ended.outcome;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
        };
        assert!(matches!(ended, Err(ClientError::OutcomeUnknown { .. })), "{ended:?}");
        // One that begins now was certainly not made.
        let ended =
            pipeline.put(2000, &MARK).map(drop).and_then(|()| pipeline.next().unwrap().outcome.map(drop));
        assert!(matches!(ended, Err(ClientError::NoSuchTable { .. })), "{ended:?}");
    }
}

/// A poll asked for the oldest write alone, and never ended it.
#[test]
fn a_silent_memory_node_withholds_no_ends_of_other_writes_and_its_own_end_with_their_deadline() {
    let withholds_none = |polls| {
        let nodes = [Node::tcp(), Node::tcp()];
        let silent = Silent::before(&nodes[1].url);
        let all = Nodes::at(&format!("{},{}", nodes[0].url, silent.address)).unwrap();
        all.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
        let client = Client::connect_with(&nodes[0].url, config()).unwrap();
        // Has the client connected.
        client.put(0, &[1; 8]).unwrap();
        client.put(1000, &[1; 8]).unwrap();
        let deadline = Duration::from_secs(6);
        let mut pipeline = client.with_deadline(deadline).pipeline(2).unwrap();
        let begun = Instant::now();
        pipeline.put(2000, &MARK).unwrap();
        // Also more than there are lanes for.
        let others = if polls { 1..2 } else { 1..4 };
        others.clone().for_each(|key| _ = pipeline.put(key, &[1; 8]).unwrap());
        let mut next = || loop {
            if let Some(ended) = if polls { pipeline.poll() } else { pipeline.next() } {
                break (ended.key, ended.outcome);
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
        };
        for key in others {
            let (of, ended) = next();
            assert_eq!((of, ended.unwrap().status), (key, WriteStatus::Done));
        }
        assert!(begun.elapsed() < deadline, "{:?}", begun.elapsed());
        let (of, ended) = next();
        assert!(of == 2000 && matches!(ended, Err(ClientError::OutcomeUnknown { .. })), "{ended:?}");
        assert!(begun.elapsed() < deadline + PATIENCE / 2, "{:?}", begun.elapsed());
    };
    thread::scope(|scope| {
        scope.spawn(|| withholds_none(false));
        scope.spawn(|| withholds_none(true));
    });
}

#[test]
fn no_client_goes_on_with_another_table_while_one_of_its_own_tables_memory_nodes_is_silent() {
    let mut nodes = [Node::tcp(), Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes[..2], &[1000], Some(8));
    let client = Client::connect_with(&urls(&nodes), config()).unwrap();
    client.put(0, &[1; 8]).unwrap();
    let url = nodes[1].url.clone();
    nodes[1].end();
    Nodes::at(&nodes[0].url).unwrap().drop_here(&name()).unwrap();
    // Over the first one and another: for all that the client knows, the one before its own.
    let others = Nodes::at(&format!("{},{}", nodes[0].url, nodes[2].url)).unwrap();
    others.create::<U64Keys>(&name(), U64Keys::parameters(), &[1000], CreateOptions::default()).unwrap();
    for _ in 0..2 {
        let error = client.get(0).unwrap_err();
        assert!(matches!(error, ClientError::NoSuchTable { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("{url}, which may know, does not answer")), "{error}");
    }
    // Once it says that it has nothing of it the other one is gone on with.
    let listener = Listener::bind(&[url.parse().unwrap()], ListenOptions::default()).unwrap();
    nodes[1].serving =
        Some(listener.spawn(Catalogue::open(&CatalogueConfig::of(16 << 20)).unwrap()).unwrap());
    assert_eq!(client.get(0).unwrap(), None);
    client.put(0, &[2; 8]).unwrap();
}

/// They were told what one with little time had found: that the other memory node was silent.
#[test]
fn calls_that_can_wait_are_not_told_of_a_memory_node_that_was_silent_for_hurried_ones() {
    let nodes = OneSlow::new();
    let client = Client::connect_with(&nodes.urls, config().with_deadline(PATIENCE)).unwrap();
    assert_eq!(client.multi_get(&[0, 100]).unwrap(), [None, None]);
    nodes.make_anew();
    let hurried = client.with_deadline(Duration::from_millis(120));
    thread::scope(|scope| {
        let look = || (0..2).for_each(|_| _ = hurried.get(0).unwrap_err());
        let looking = scope.spawn(look);
        // While the second look is put off, for which this one waits too.
        thread::sleep(Duration::from_millis(80));
        assert_eq!(client.get(0).unwrap(), None);
        looking.join().unwrap();
    });
}

/// What was told could be tried again, which the ranges that have records refuse.
#[test]
fn a_load_that_fails_after_its_first_range_is_visible_leaves_open_what_is_there() {
    let nodes = [Node::tcp(), Node::with(16 << 20, true, Some(Duration::from_secs(1)))];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let begun = all.begin::<U64Keys>(&name(), &[1000], CreateOptions::default()).unwrap();
    let mut load = begun.client().load(U64Keys::parameters(), 0).unwrap();
    (0..5).for_each(|key| load.push(key, &[1; 8]).unwrap());
    // The second one drops the load of a client of which it hears nothing.
    thread::sleep(Duration::from_secs(4));
    let error = load.finish().unwrap_err();
    assert!(error.may_have_taken_effect() && !error.is_retryable(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&nodes[1].url) && text.contains("5 records are loaded"), "{text}");
    assert_eq!(begun.client().get(3).unwrap(), Some(vec![1; 8]));
}

/// The first range was made visible before the records of the second one had all been sent.
#[test]
fn a_load_whose_last_records_cannot_be_sent_leaves_none() {
    let mut nodes = [Node::tcp(), Node::tcp()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let begun = all.begin::<U64Keys>(&name(), &[1000], CreateOptions::default()).unwrap();
    let mut load = begun.client().load(U64Keys::parameters(), 0).unwrap();
    [5, 1005].into_iter().for_each(|key| load.push(key, &[1; 8]).unwrap());
    nodes[1].end();
    let error = load.finish().unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains(&nodes[1].url), "{error}");
    assert_eq!(begun.client().get(5).unwrap(), None);
}

/// Megabytes had been inserted, and what was told could be tried again, which tables with records
/// refuse.
#[test]
fn a_load_that_fails_after_some_records_are_inserted_leaves_open_what_is_there() {
    let mut nodes = [Node::tcp(), Node::tcp()];
    make::<U64Keys>(&nodes, &[1 << 20], Some(1000));
    let client = Client::connect_with(&nodes[1].url, config().with_deadline(Duration::from_secs(1))).unwrap();
    let mut load = client.load(U64Keys::parameters_of(Some(1000)), 0).unwrap();
    (0..1500).for_each(|key| load.push(key, &[1; 1000]).unwrap());
    assert_eq!(client.get(3).unwrap(), Some(vec![1; 1000]), "some have been sent");
    nodes[0].end();
    let error = load.finish().unwrap_err();
    assert!(error.may_have_taken_effect() && !error.is_retryable(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&nodes[0].url) && text.contains(" records are loaded"), "{text}");
}

/// They were refused for good by the shape of the table that was dropped.
#[test]
fn changes_that_do_not_fit_a_dropped_table_are_made_in_the_one_that_has_its_name() {
    let nodes = [Node::tcp(), Node::shm()];
    let all = Nodes::at(&urls(&nodes)).unwrap();
    let mut outcomes = Vec::new();
    make::<U64Keys>(&nodes, &[1000], Some(8));
    let client = Client::connect_with(&nodes[0].url, config()).unwrap();
    let changes = |value: &[u8]| {
        let mut changes = Changes::new();
        changes.put(5, value).put(1005, value);
        changes
    };
    client.apply(&changes(&[1; 8]), &mut outcomes).unwrap();
    all.drop_table(&name()).unwrap();
    make::<U64Keys>(&nodes, &[1000], Some(16));
    client.apply(&changes(&[1; 16]), &mut outcomes).unwrap();
    assert_eq!(client.get(1005).unwrap(), Some(vec![1; 16]));
    let misfit = client.apply(&changes(&[1; 8]), &mut outcomes).unwrap_err();
    assert!(matches!(misfit, ClientError::ValueSize { got: 8, expected: 16, .. }), "{misfit}");
    #[cfg(feature = "tokio")]
    crate::asynchronous::one_thread().block_on(async {
        all.drop_table(&name()).unwrap();
        make::<U64Keys>(&nodes, &[1000], Some(24));
        let client = fpcache_client::AsyncClient::of(client.clone());
        client.apply(&changes(&[1; 24]), &mut outcomes).await.unwrap();
        assert_eq!(client.get(1005).await.unwrap(), Some(vec![1; 24]));
    });
    all.drop_table(&name()).unwrap();
    let gone = client.apply(&changes(&[1; 32]), &mut outcomes).unwrap_err();
    assert!(matches!(gone, ClientError::NoSuchTable { .. }), "{gone}");
}
