//! Long requests that wait for room, in one order.

use super::*;

/// Echoes; has room for long requests when the test says so.
struct Roomy {
    has_room: Arc<AtomicBool>,
    served: Sender<(ClientId, usize)>,
}

impl Service for Roomy {
    fn has_room(&self, _: ClientId, request_bytes: usize) -> bool {
        assert!(request_bytes > SHORT_BODY);
        self.has_room.load(Ordering::Acquire)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        // Room for one at a time, and none any more when the test hears of it.
        self.has_room.store(false, Ordering::Release);
        self.served.send((client, request.len())).unwrap();
        reply.extend_from_slice(request);
        Handled::Now
    }
}

#[test]
fn long_requests_wait_for_room_in_the_order_in_which_they_came() {
    let (served, order) = channel();
    let has_room = Arc::<AtomicBool>::default();
    let hub = hub();
    let _serving = hub.spawn(Roomy { has_room: Arc::clone(&has_room), served }).unwrap();
    let mut connections: Vec<_> = (0..5).map(|_| hub.connect().unwrap()).collect();
    let (long, mut reply) = (vec![7; SHORT_BODY + 1], Vec::new());
    let next = || order.recv_timeout(Duration::from_secs(20)).unwrap();
    let posted: Vec<_> = [3, 0, 4, 1]
        .into_iter()
        .map(|number: usize| {
            let posted = connections[number].post(&long, limit()).unwrap();
            // Until it has been seen, and a short request passes it.
            for _ in 0..3 {
                connections[2].call(&[number as u8], &mut reply, limit()).unwrap();
                assert_eq!((next().1, &reply[..]), (1, &[number as u8][..]));
            }
            (number, posted)
        })
        .collect();
    let mut clients = Vec::new();
    for (number, posted) in posted {
        if number == 0 {
            // One that was given up does not keep those after it.
            connections[0].give_up(posted);
            connections[0].call(&[0], &mut reply, limit()).unwrap();
            assert_eq!(next().1, 1);
            continue;
        }
        has_room.store(true, Ordering::Release);
        connections[number].wait(posted, &mut reply, limit()).unwrap();
        assert_eq!(reply, long);
        let (client, bytes) = next();
        assert_eq!(bytes, long.len());
        clients.push(client);
    }
    assert_eq!(clients.len(), 3);
    // One that goes away while it waits does not keep the others either.
    let [leaving, passing, staying]: [_; 3] = connections.drain(2..).collect::<Vec<_>>().try_into().unwrap();
    let left = leaving.post(&long, limit()).unwrap();
    passing.call(&[1], &mut reply, limit()).unwrap();
    let stayed = staying.post(&long, limit()).unwrap();
    leaving.give_up(left);
    drop(leaving);
    // The room may still go to the request of the one that leaves, if that is noticed only then.
    let (begun, mut waiting) = (Instant::now(), Some(stayed));
    while let Some(stayed) = waiting.take() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it waits for one that is gone");
        has_room.store(true, Ordering::Release);
        waiting = staying.poll(stayed, &mut reply).unwrap();
        std::thread::yield_now();
    }
    assert_eq!(reply, long);
}

/// Echoes to clients of two regions, of which the one named `slow` has room when the test says so.
struct TwoRooms {
    export: Export,
    has_room: Arc<AtomicBool>,
    slow: HashSet<ClientId>,
    served: Sender<(ClientId, Vec<u8>)>,
}

impl Service for TwoRooms {
    fn export(&mut self, _: &[u8]) -> Option<Export> {
        Some(self.export.clone())
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        if region == b"slow" {
            self.slow.insert(client);
        }
    }

    fn has_room(&self, client: ClientId, _: usize) -> bool {
        !self.slow.contains(&client) || self.has_room.load(Ordering::Acquire)
    }

    fn room_of(&self, client: ClientId) -> u64 {
        u64::from(self.slow.contains(&client))
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if request.len() > SHORT_BODY && self.slow.contains(&client) {
            // Room for one at a time, and none any more when the test hears of it.
            self.has_room.store(false, Ordering::Release);
        }
        self.served.send((client, request.to_vec())).unwrap();
        reply.extend_from_slice(request);
        Handled::Now
    }
}

#[test]
fn rings_and_sockets_wait_for_room_in_one_order_and_keep_nobody_from_another_room() {
    let directory = tempfile::tempdir().unwrap();
    let ring_at = shm::ShmAddress::at_path(directory.path().join("rings.sock")).unwrap();
    let socket_at = tcp::TcpAddress::at_path(directory.path().join("sockets.sock")).unwrap();
    let mut rings = shm::Listener::bind(&ring_at, shm::ListenOptions::default()).unwrap();
    let mut sockets =
        tcp::Listener::bind(std::slice::from_ref(&socket_at), tcp::ListenOptions::default()).unwrap();
    let (region, fd) = SharedMemory::create_memfd("region", 4096, HugePages::No).unwrap();
    let export = Export::new(&Arc::new(region), fd, 1).unwrap();
    let (served, order) = channel();
    let has_room = Arc::<AtomicBool>::default();
    let mut service = TwoRooms { export, has_room: Arc::clone(&has_room), slow: HashSet::new(), served };
    let stop = StopHandle::new().unwrap();
    let stopped = stop.clone();
    let serving = std::thread::spawn(move || rings.serve_beside(&mut sockets, &mut service, &stopped));
    let region = |name| RegionName::new(name).unwrap();
    let over_ring = |name| {
        let options = shm::ConnectOptions { region: region(name), ..Default::default() };
        shm::connect(&ring_at, options).unwrap()
    };
    let over_socket = |name| {
        let options = tcp::ConnectOptions { region: region(name), ..Default::default() };
        tcp::connect(&socket_at, options).unwrap()
    };
    let mut reply = Vec::new();
    let next = || order.recv_timeout(Duration::from_secs(20)).unwrap().1[0];
    let long = |number: u8| vec![number; SHORT_BODY + 1];
    // Over a socket, a ring and a socket again. Each has been seen when short requests after it
    // were answered, and its I/O thread has had time to pass it on, of which nothing tells.
    let (first, second, third, fourth) =
        (over_socket("slow"), over_ring("slow"), over_socket("slow"), over_ring("slow"));
    let (ring, socket) = (over_ring("quick"), over_socket("quick"));
    let seen = |reply: &mut Vec<u8>| {
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..3 {
            ring.call(&[100], reply, limit()).unwrap();
            assert_eq!(next(), 100);
        }
    };
    let first_posted = first.post(&long(1), limit()).unwrap();
    seen(&mut reply);
    let second_posted = second.post(&long(2), limit()).unwrap();
    seen(&mut reply);
    let third_posted = third.post(&long(3), limit()).unwrap();
    seen(&mut reply);
    let fourth_posted = fourth.post(&long(4), limit()).unwrap();
    seen(&mut reply);
    // Those of the other room do not wait.
    ring.call(&long(10), &mut reply, limit()).unwrap();
    assert_eq!(next(), 10);
    socket.call(&long(11), &mut reply, limit()).unwrap();
    assert_eq!(next(), 11);
    has_room.store(true, Ordering::Release);
    first.wait(first_posted, &mut reply, limit()).unwrap();
    assert_eq!(next(), 1);
    has_room.store(true, Ordering::Release);
    second.wait(second_posted, &mut reply, limit()).unwrap();
    assert_eq!(next(), 2);
    // One over a socket that goes away while it waits does not keep those after it.
    drop((third_posted, third));
    has_room.store(true, Ordering::Release);
    let fourth_or_third = next();
    if fourth_or_third == 3 {
        // It was taken before its going was noticed.
        has_room.store(true, Ordering::Release);
        assert_eq!(next(), 4);
    }
    fourth.wait(fourth_posted, &mut reply, limit()).unwrap();
    stop.stop();
    serving.join().unwrap().unwrap();
}
