//! The serving loop: whose reply it is, whose turn it is, and when it sleeps.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    ClientId, Connection, Deadline, Export, Handled, HugePages, RegionName, SHORT_BODY, Service,
    SharedMemory, StopHandle, Waker, Work, shm, tcp,
};

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn hub() -> Hub {
    Hub::new(Arc::new(SharedMemory::anonymous(4096).unwrap()), LocalOptions::default()).unwrap()
}

/// What the test sees and does of a [`Desk`] from outside.
#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<(ClientId, Vec<u8>)>>,
}

/// Puts every request off; the test answers.
struct Desk {
    requests: Sender<(ClientId, Vec<u8>)>,
    gone: Sender<ClientId>,
    shared: Arc<Shared>,
    waker: Waker,
}

impl Service for Desk {
    fn handle(&mut self, client: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
        self.requests.send((client, request.to_vec())).unwrap();
        Handled::Later
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        let (client, bytes) = self.shared.replies.lock().unwrap().pop_front()?;
        reply.extend_from_slice(&bytes);
        Some(client)
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.waker.clone())
    }

    fn disconnected(&mut self, client: ClientId) {
        let _ = self.gone.send(client);
    }
}

/// The test's side of a [`Desk`].
struct Clerk {
    requests: Receiver<(ClientId, Vec<u8>)>,
    gone: Receiver<ClientId>,
    shared: Arc<Shared>,
    waker: Waker,
}

impl Clerk {
    fn next(&self) -> (ClientId, Vec<u8>) {
        self.requests.recv_timeout(Duration::from_secs(20)).expect("a request")
    }

    fn answer(&self, replies: impl IntoIterator<Item = (ClientId, Vec<u8>)>) {
        self.shared.replies.lock().unwrap().extend(replies);
        self.waker.wake();
    }
}

fn desk() -> (Desk, Clerk) {
    let ((requests, asked), (gone, left)) = (channel(), channel());
    let (shared, waker) = (Arc::<Shared>::default(), Waker::new().unwrap());
    let clerk = Clerk { requests: asked, gone: left, shared: Arc::clone(&shared), waker: waker.clone() };
    (Desk { requests, gone, shared, waker }, clerk)
}

#[test]
fn later_replies_go_to_their_clients_in_any_order() {
    let (desk, clerk) = desk();
    let hub = hub();
    let _serving = hub.spawn(desk).unwrap();
    let connections: Vec<_> = (0..5).map(|_| hub.connect().unwrap()).collect();
    for round in 0..20u8 {
        std::thread::scope(|scope| {
            for (number, connection) in (0u8..).zip(&connections) {
                scope.spawn(move || {
                    let mut reply = Vec::new();
                    connection.call(&[number, round], &mut reply, limit()).unwrap();
                    assert_eq!(reply, [number, round, 1]);
                });
            }
            let mut asked: Vec<_> = connections.iter().map(|_| clerk.next()).collect();
            asked.sort_by_key(|(_, request)| (request[0] + round) % 5);
            clerk.answer(asked.into_iter().map(|(client, mut request)| {
                request.push(1);
                (client, request)
            }));
        });
    }
}

#[test]
fn replies_nobody_waits_for_are_dropped() {
    let (desk, clerk) = desk();
    let hub = hub();
    let _serving = hub.spawn(desk).unwrap();
    let (leaving, staying) = (hub.connect().unwrap(), hub.connect().unwrap());
    let soon = Deadline::after(Duration::from_millis(5));
    assert!(leaving.call(&[1], &mut Vec::new(), soon).is_err());
    let (gone, _) = clerk.next();
    drop(leaving);
    assert_eq!(clerk.gone.recv_timeout(Duration::from_secs(20)).unwrap(), gone);

    let mut reply = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| staying.call(&[2], &mut reply, limit()).unwrap());
        let (client, _) = clerk.next();
        // One that has gone, one that never was, the right one, and that one once more.
        clerk.answer([(gone, vec![1]), (ClientId(999), vec![2]), (client, vec![3]), (client, vec![4])]);
    });
    assert_eq!(reply, [3]);
    std::thread::scope(|scope| {
        scope.spawn(|| staying.call(&[5], &mut reply, limit()).unwrap());
        let (client, request) = clerk.next();
        clerk.answer([(client, request)]);
    });
    assert_eq!(reply, [5], "a reply too many is not kept for the next request");
}

#[test]
fn a_clients_next_request_waits_while_a_reply_is_owed() {
    let (desk, clerk) = desk();
    let hub = hub();
    let _serving = hub.spawn(desk).unwrap();
    let connection = hub.connect().unwrap();
    let soon = Deadline::after(Duration::from_millis(5));
    assert!(connection.call(&[1], &mut Vec::new(), soon).is_err());
    let (client, first) = clerk.next();
    assert_eq!(first, [1]);
    let mut reply = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| connection.call(&[2], &mut reply, limit()).unwrap());
        assert!(
            clerk.requests.recv_timeout(Duration::from_millis(50)).is_err(),
            "two requests of one client"
        );
        clerk.answer([(client, vec![10])]);
        assert_eq!(clerk.next(), (client, vec![2]));
        clerk.answer([(client, vec![20])]);
    });
    assert_eq!(reply, [20]);
}

/// What a service notes down for the test.
type Notes<T> = Arc<Mutex<Vec<T>>>;

/// Counts its turns, and says how it wants to be called.
struct Worker {
    turns: Notes<Instant>,
    used: Notes<Duration>,
    next: Work,
}

impl Worker {
    fn new(next: Work) -> (Self, Notes<Instant>, Notes<Duration>) {
        let (turns, used) = (Notes::default(), Notes::default());
        (Self { turns: Arc::clone(&turns), used: Arc::clone(&used), next }, turns, used)
    }
}

impl Service for Worker {
    /// The first byte says whether the reply is owed for ever.
    fn handle(&mut self, _: ClientId, request: &[u8], _: &mut Vec<u8>) -> Handled {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        self.used.lock().unwrap().push(Duration::new(now.tv_sec as u64, now.tv_nsec as u32));
        if request == [1] { Handled::Later } else { Handled::Now }
    }

    fn work(&mut self) -> Work {
        let now = Instant::now();
        self.turns.lock().unwrap().push(now);
        match self.next {
            Work::At(at) if now >= at => {
                self.next = Work::Nothing;
                Work::Nothing
            }
            other => other,
        }
    }
}

#[test]
fn work_comes_at_its_time_though_nobody_asks() {
    let at = Instant::now() + Duration::from_millis(120);
    let (worker, turns, _) = Worker::new(Work::At(at));
    let _serving = hub().spawn(worker).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let before = turns.lock().unwrap().len();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(turns.lock().unwrap().len(), before, "the loop does not sleep until then");
    let patience = Instant::now() + Duration::from_secs(10);
    while turns.lock().unwrap().last().is_none_or(|&turn| turn < at) {
        assert!(Instant::now() < patience, "the time was slept through");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn work_gets_its_turn_though_requests_never_cease() {
    let (worker, turns, used) = Worker::new(Work::Nothing);
    let hub = hub();
    let _serving = hub.spawn(worker).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let connection = hub.connect().unwrap();
            scope.spawn(move || {
                for _ in 0..500 {
                    connection.call(&[0], &mut Vec::new(), limit()).unwrap();
                }
            });
        }
    });
    // One turn per round, and a round takes one request of each client at most.
    let (turns, requests) = (turns.lock().unwrap().len(), used.lock().unwrap().len());
    assert_eq!(requests, 1000);
    assert!(2 * turns >= requests, "{turns} turns in {requests} requests");
}

#[test]
fn requests_are_served_though_work_never_ceases() {
    let (worker, turns, _) = Worker::new(Work::More);
    let hub = hub();
    let serving = hub.spawn(worker).unwrap();
    // Clients are let in, too.
    let connection = hub.connect().unwrap();
    for _ in 0..100 {
        connection.call(&[0], &mut Vec::new(), limit()).unwrap();
    }
    assert!(turns.lock().unwrap().len() >= 100);
    serving.stop().unwrap();
}

#[test]
fn a_loop_that_owes_a_reply_and_waits_for_a_time_uses_no_processor_time() {
    let (worker, _, used) = Worker::new(Work::At(Instant::now() + Duration::from_secs(3600)));
    let hub = hub();
    let _serving = hub.spawn(worker).unwrap();
    let (owed, connection) = (hub.connect().unwrap(), hub.connect().unwrap());
    let soon = Deadline::after(Duration::from_millis(5));
    assert!(owed.call(&[1], &mut Vec::new(), soon).is_err());
    // Its next request waits in the ring, and must not keep the loop awake.
    let soon = Deadline::after(Duration::from_millis(5));
    assert!(owed.call(&[1], &mut Vec::new(), soon).is_err());
    connection.call(&[0], &mut Vec::new(), limit()).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    connection.call(&[0], &mut Vec::new(), limit()).unwrap();
    let used = used.lock().unwrap();
    let idle = used[used.len() - 1] - used[used.len() - 2];
    assert!(idle < Duration::from_millis(10), "{idle:?} of 700 ms");
}

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
    // Over a socket, a ring and a socket again. Each has been seen when a short request after it was answered.
    let (first, second, third, fourth) =
        (over_socket("slow"), over_ring("slow"), over_socket("slow"), over_ring("slow"));
    let (ring, socket) = (over_ring("quick"), over_socket("quick"));
    let seen = |reply: &mut Vec<u8>| {
        std::thread::sleep(Duration::from_millis(20));
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
