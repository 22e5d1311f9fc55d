//! Requests that are half sent, too many, or under way when a peer goes.

use super::*;

#[test]
fn half_sent_requests_do_not_keep_others_from_calling_for_long() {
    let node = Node::start(ListenOptions { request_memory: 1 << 20, ..short() });
    let mut greedy: Vec<TcpStream> = (0..4).map(|_| node.admitted().0).collect();
    for socket in &mut greedy {
        socket.write_all(&[head(8 + (1 << 20), 0, 3), vec![0; 700 << 10]].concat()).unwrap();
    }
    node.serves();
    greedy.iter_mut().for_each(closes);
    node.serves();
}

/// It waits for nothing but its client, whatever memory others have.
#[test]
fn a_request_of_which_nothing_comes_is_late_also_while_memory_is_short() {
    let node =
        Node::start(ListenOptions { request_memory: 1 << 20, frame_time: Duration::from_secs(1), ..short() });
    let (mut greedy, mut waits, mut says_nothing) = (node.admitted().0, node.admitted().0, node.admitted().0);
    let announced = [head(8 + (1 << 20), 0, 3), vec![0; 8]].concat();
    // All that one has of its region's share, and another that waits for more.
    greedy.write_all(&[&announced[..], &vec![0; 760 << 10]].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    waits.write_all(&[&announced[..], &vec![0; 300 << 10]].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    says_nothing.write_all(&announced).unwrap();
    let began = Instant::now();
    closes(&mut says_nothing);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    node.tells(HangUp::SlowFrame, "the rest of a frame");
    drop((greedy, waits));
    node.serves();
}

/// Requests that together need more memory than there is for them, none of which is whole when it
/// is used up.
#[test]
fn requests_that_arrive_together_are_all_answered() {
    let options = ListenOptions { request_memory: 256 << 10, frame_time: Duration::from_secs(10), ..short() };
    let node = Node::start(options);
    let request = call(&[&[TestService::ECHO][..], &[7; 200_000]].concat());
    let half = request.len() / 2;
    let mut sockets: Vec<TcpStream> = (0..8).map(|_| node.admitted().0).collect();
    sockets.iter_mut().for_each(|socket| socket.write_all(&request[..half]).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    // Those that need no more than every connection may have go on.
    node.serves();
    std::thread::scope(|scope| {
        for socket in &mut sockets {
            scope.spawn(|| {
                socket.write_all(&request[half..]).unwrap();
                let mut reply = vec![0; 16 + 200_000];
                socket.read_exact(&mut reply).unwrap();
                assert!(reply[16..].iter().all(|byte| *byte == 7));
            });
        }
    });
    assert_eq!(node.counters.hang_ups(), 0);
}

/// Requests that the service has no room for hold memory; those of one region leave enough for
/// another's.
#[test]
fn requests_to_a_region_that_stands_still_leave_memory_for_those_to_others() {
    const BYTES: usize = 200_000;
    let node = Node::start(ListenOptions { request_memory: 2 << 20, ..ListenOptions::default() });
    let to = |region: &str| {
        let region = RegionName::new(region).unwrap();
        connect(&node.address, ConnectOptions { region, ..Default::default() }).unwrap()
    };
    let request = [&[TestService::ECHO][..], &[7; BYTES]].concat();
    let soon = || Deadline::after(Duration::from_millis(400));
    std::thread::scope(|scope| {
        // They give their calls up, but not their connections.
        let stalled = (0..20).map(|_| (to(STALLED), &request)).map(|(connection, request)| {
            scope.spawn(move || {
                connection.call(request, &mut Vec::new(), soon()).unwrap_err();
                connection
            })
        });
        let _stalled: Vec<_> = stalled.collect();
        std::thread::sleep(Duration::from_millis(100));
        let connection = to("");
        for _ in 0..5 {
            let mut reply = Vec::new();
            connection.call(&request, &mut reply, Deadline::after(Duration::from_secs(5))).unwrap();
            assert_eq!(reply.len(), BYTES);
        }
    });
}

#[test]
fn a_client_that_goes_while_its_request_is_under_way_is_noticed() {
    let node = Node::start(ListenOptions::default());
    let (mut socket, _) = node.admitted();
    socket.write_all(&call(&[NEVER])).unwrap();
    node.begins();
    assert_eq!(node.seen.lock().unwrap().clients.len(), 1);
    drop(socket);
    let patience = Instant::now() + Duration::from_secs(60);
    while node.counters.connections() > 0 || !node.seen.lock().unwrap().clients.is_empty() {
        assert!(Instant::now() < patience, "nobody has noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_executed_is_answered_though_the_memory_node_stops() {
    let node = Node::start(ListenOptions::default());
    let (mut socket, _) = node.admitted();
    socket.write_all(&call(&[TestService::SLEEP, 100, 5])).unwrap();
    node.begins();
    node.serving.stop().unwrap();
    let mut reply = [0; 16 + 8];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[16..], [100, 5, 0, 0, 0, 0, 0, 0]);
    closes(&mut socket);
}
