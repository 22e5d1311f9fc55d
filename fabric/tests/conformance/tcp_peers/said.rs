//! Peers that say something else, nothing, half of it, or lies.

use super::*;

#[test]
fn whoever_speaks_something_else_is_told_apart() {
    let node = Node::start(short());
    let mut foreign = node.socket();
    foreign.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    closes(&mut foreign);
    node.tells(HangUp::OtherProtocol, "does not speak this protocol");

    let options = ConnectOptions { announce_version: 99, ..ConnectOptions::default() };
    let error = connect(&node.address, options).unwrap_err();
    assert!(
        matches!(error, FabricError::VersionMismatch { ours: 99, theirs: PROTOCOL_VERSION, .. }),
        "{error}"
    );
    node.tells(HangUp::OtherProtocol, "speaks fabric protocol version 99");

    let region = RegionName::new("orders").unwrap();
    let error = connect(&node.address, ConnectOptions { region, ..Default::default() }).unwrap_err();
    assert!(matches!(error, FabricError::NoSuchRegion { .. }), "{error}");
    node.tells(HangUp::NoRegion, "no region `orders`");

    let mut credentials = hello(0, 0);
    credentials[40] = 1;
    let mut socket = node.socket();
    socket.write_all(&credentials).unwrap();
    closes(&mut socket);
    node.tells(HangUp::NoRight, "credentials");
    node.serves();
}

#[test]
fn whoever_listens_and_says_nothing_is_named() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = TcpAddress::internet(silent.local_addr().unwrap());
    let deadline = Deadline::after(Duration::from_millis(50));
    let error = connect(&address, ConnectOptions { deadline, ..Default::default() }).unwrap_err();
    assert!(matches!(error, FabricError::NoWelcome { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn whoever_says_nothing_or_half_of_it_is_hung_up_on() {
    let node = Node::start(short());
    let began = Instant::now();
    let (mut silent, mut slow) = (node.socket(), node.socket());
    slow.write_all(&hello(0, 0)[..40]).unwrap();
    closes(&mut silent);
    closes(&mut slow);
    assert!(began.elapsed() >= Duration::from_millis(900));
    node.tells(HangUp::NoGreeting, "did not greet in time");

    for half in [&read(0, 8)[..7], &read(0, 8)[..20], &[head(8 + 100, 0, 3), vec![0; 50]].concat()] {
        let (mut socket, _) = node.admitted();
        // A whole frame before it is answered.
        socket.write_all(&[&read(0, 8), half].concat()).unwrap();
        let mut reply = [0; 24];
        socket.read_exact(&mut reply).unwrap();
        closes(&mut socket);
    }
    node.tells(HangUp::SlowFrame, "the rest of a frame");
    // Byte by byte is as good as all at once, if it comes in time.
    let (mut socket, _) = node.admitted();
    socket.set_nodelay(true).unwrap();
    for byte in read(64, 8) {
        socket.write_all(&[byte]).unwrap();
    }
    socket.read_exact(&mut [0; 24]).unwrap();
    node.serves();
    // The others have gone.
    let patience = Instant::now() + Duration::from_secs(60);
    while node.seen.lock().unwrap().clients.len() > 1 {
        assert!(Instant::now() < patience, "those who were hung up on are still clients");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn lies_about_lengths_and_places_are_found_out() {
    let node = Node::start(short());
    let mut wrong_area = read(0, 8);
    wrong_area[28] = 1;
    let bad: [(&str, Vec<u8>); 8] = [
        ("length", head(u32::MAX, u32::MAX / 16, 1)),
        ("length", head(16, 2, 1)),
        ("length", head(7, 0, 3)),
        ("length", head(u32::MAX, 0, 3)),
        ("unknown kind", head(0, 0, 9)),
        ("no right", read(REGION_BYTES as u64 - 7, 8)),
        ("no right", wrong_area),
        ("more in one frame", read(0, 512 << 10)),
    ];
    for (why, bytes) in bad {
        let (mut socket, _) = node.admitted();
        socket.write_all(&[read(0, 8), bytes].concat()).unwrap();
        // What came before is answered.
        socket.read_exact(&mut [0; 24]).unwrap();
        closes(&mut socket);
        node.tells(HangUp::BadFrame, why);
    }
    // A change of the region.
    let (mut socket, _) = node.admitted();
    let add = [
        head(32, 1, 2),
        vec![0; 8],
        8u32.to_le_bytes().to_vec(),
        vec![0; 4],
        3u64.to_le_bytes().to_vec(),
        vec![1; 8],
    ];
    socket.write_all(&add.concat()).unwrap();
    closes(&mut socket);
    assert_eq!(node.region.load_acquire(0), Ok(0));
    // A call whose bytes are damaged is answered, and the connection lives.
    let (mut socket, _) = node.admitted();
    socket.write_all(&[head(8 + 3, 0, 3), vec![1; 8], b"abc".to_vec(), read(64, 8)].concat()).unwrap();
    let mut replies = [0; 16 + 24];
    socket.read_exact(&mut replies).unwrap();
    assert_eq!(replies[6], 2);
    node.serves();
}

#[test]
fn whoever_does_not_read_holds_little_and_not_for_long() {
    let options = ListenOptions { read_time: Duration::from_millis(600), io_threads: 1, ..short() };
    let node = Node::start(options);
    let mut stuck: Vec<TcpStream> = (0..8).map(|_| node.admitted().0).collect();
    let greedy = read(0, 256 << 10).repeat(1000);
    let mut taken = 0;
    for socket in &mut stuck {
        socket.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        for _ in 0..200 {
            match socket.write(&greedy) {
                Ok(bytes) => taken += bytes,
                Err(_) => break,
            }
        }
        // Others are served meanwhile.
        node.serves();
    }
    // What the node has not taken in lies in the kernel's buffers, which are bounded.
    assert!(taken < 8 * (8 << 20), "{taken} bytes were taken");
    node.tells(HangUp::UnreadReplies, "did not read in time");
    let patience = Instant::now() + Duration::from_secs(60);
    while node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "somebody is stuck for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    stuck.iter_mut().for_each(closes);
    node.serves();
}

#[test]
fn whoever_was_bidden_farewell_and_does_not_read_goes_all_the_same() {
    let node = Node::start(short());
    let (mut socket, _) = node.admitted();
    let long = [&[TestService::PRODUCE][..], &(1u64 << 20).to_le_bytes()].concat();
    socket.write_all(&call(&long)).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    let client = node.seen.lock().unwrap().clients[0];
    node.seen.lock().unwrap().farewells.push(client);
    node.waker.wake();
    node.tells(HangUp::UnreadReplies, "did not read in time");
    let patience = Instant::now() + Duration::from_secs(60);
    while node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "it stays for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    closes(&mut socket);
    node.serves();
}
