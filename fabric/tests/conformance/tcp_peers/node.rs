//! The memory node's side: memory that is not backed, long batches, its addresses, its waits.

use super::*;

#[test]
fn memory_that_is_not_backed_is_zeros_and_not_touched() {
    let node = Node::start(short());
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let mut endpoint = connection.endpoint();
    node.region.set_backed_end(64 << 10);
    let mut words = vec![1; REGION_BYTES / 8];
    let before = node.resident_bytes();
    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
    assert!(words.iter().all(|word| *word == 0));
    // Of a file without a name pages are taken by reading.
    assert!(node.resident_bytes() - before <= 64 << 10, "holes have got memory");
    node.region.set_backed_end(REGION_BYTES as u64);
    node.region.store_release(512 << 10, 7).unwrap();
    endpoint.read_words(RemoteAddr::region(512 << 10), &mut words[..1]).unwrap();
    assert_eq!(words[0], 7);
}

/// What lies in the region, as long as that is 1 MiB.
fn fill(region: &SharedMemory) -> Vec<u8> {
    let bytes: Vec<u8> = (0..REGION_BYTES).map(|i| (i * 7 + i / 251) as u8).collect();
    region.write_bytes(0, &bytes).unwrap();
    bytes
}

#[test]
fn batches_longer_than_a_frame_or_a_socket_come_back_whole() {
    let node = Node::start(ListenOptions { io_threads: 1, ..ListenOptions::default() });
    let bytes = fill(&node.region);
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let mut endpoint = connection.endpoint();
    let mut batch = Batch::new();
    let all = batch.read(RemoteAddr::region(0), REGION_BYTES);
    let odd = batch.read(RemoteAddr::region(3), 300_001);
    let records = batch.read_records(RemoteAddr::region(0), REGION_BYTES / 72 * 72, 72);
    let many: Vec<_> =
        (0..9000).map(|i| batch.read(RemoteAddr::region(i * 100), (i % 60) as usize)).collect();
    endpoint.run(&mut batch).unwrap();
    assert!(batch.bytes(all) == bytes && batch.bytes(odd) == &bytes[3..300_004]);
    assert!(batch.bytes(records) == &bytes[..records.len()]);
    for (i, landing) in many.iter().enumerate() {
        assert_eq!(batch.bytes(*landing), &bytes[i * 100..i * 100 + i % 60]);
    }
    assert_eq!(endpoint.meter().snapshot().round_trips, 1);
    batch.clear();
    batch.read_records(RemoteAddr::region(0), REGION_BYTES, REGION_BYTES);
    let error = endpoint.run(&mut batch).unwrap_err();
    assert!(matches!(error, FabricError::TooLong { .. }), "{error}");

    // More in flight than all buffers hold, and none is looked at.
    let mut posted = Vec::new();
    for i in 0..64u64 {
        let mut batch = Batch::new();
        let landing = batch.read(RemoteAddr::region(i * 8), 900_000);
        posted.push((endpoint.post(batch).unwrap(), landing, i as usize * 8));
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut small = Batch::new();
    let landing = small.read(RemoteAddr::region(5), 7);
    endpoint.run(&mut small).unwrap();
    assert_eq!(small.bytes(landing), &bytes[5..12]);
    for (ticket, landing, start) in posted {
        // What was posted before is back before.
        let completion = endpoint.poll().expect("it was executed first");
        assert_eq!(completion.ticket, ticket);
        completion.result.unwrap();
        assert!(completion.batch.bytes(landing) == &bytes[start..start + 900_000]);
    }
}

#[test]
fn addresses_that_other_machines_reach_are_refused() {
    for address in ["tcp://0.0.0.0:0", "tcp://[::]:0"] {
        let error =
            Listener::bind(&[address.parse().unwrap()], ListenOptions::default()).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains("127.0.0.1"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.sock");
    let address = TcpAddress::at_path(&path).unwrap();
    let first = Listener::bind(std::slice::from_ref(&address), ListenOptions::default()).unwrap();
    let error =
        Listener::bind(std::slice::from_ref(&address), ListenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("tcp+unix://") && error.contains("stop it"), "{error}");
    drop(first);
    assert!(!path.exists());
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
}

/// A memory node that is being killed has accepted connections and answers none: its clients come
/// again.
#[test]
fn a_memory_node_that_hangs_up_without_a_word_is_worth_another_attempt() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = TcpAddress::internet(listener.local_addr().unwrap());
    let ends = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    ends.join().unwrap();
    assert!(error.is_retryable(), "{error}");
}

/// Threads that look for more before they sleep tell how often that was worth it; of a client that
/// comes rarely it is not.
#[test]
fn waits_that_end_in_sleep_are_counted() {
    let node = Node::start(ListenOptions { io_threads: 1, ..ListenOptions::default() });
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let (mut endpoint, mut word) = (connection.endpoint(), [0; 1]);
    for _ in 0..64 {
        endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let stats = node.counters.snapshot();
    assert!(stats.waits_slept >= 32, "{stats:?}");
    assert!(stats.spun > Duration::ZERO && stats.spin == ListenOptions::default().spin, "{stats:?}");
    assert_eq!((stats.io_threads, stats.connections), (1, 2));
}
