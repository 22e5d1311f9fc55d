//! Replies that a memory node gave before it hung up reach the clients that asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::shm::{self, ShmAddress};
use fpcache_fabric::tcp::{self, TcpAddress};
use fpcache_fabric::{
    ClientId, Connection, Deadline, Export, FabricError, Handled, HugePages, OneRegion, RegionName, Service,
    Serving, SharedMemory,
};

use service::TestService;

const ROUNDS: u8 = 10;

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// As the test service, which counts what it has handled, and may hang up on a client after a few
/// requests.
#[derive(Default)]
struct Counting {
    inner: TestService,
    begun: Arc<AtomicU64>,
    handled: Arc<AtomicU64>,
    farewell_after: Option<u64>,
    /// The number of requests of each client.
    asked: HashMap<ClientId, u64>,
    leaving: Vec<ClientId>,
}

impl Service for Counting {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let handled = self.inner.handle(client, request, reply);
        self.handled.fetch_add(1, Ordering::Relaxed);
        let asked = self.asked.entry(client).or_default();
        *asked += 1;
        self.leaving.extend((self.farewell_after == Some(*asked)).then_some(client));
        handled
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.leaving.pop()
    }
}

/// Waits until a service has begun with a request: before that, a memory node that stops owes it no
/// reply.
fn wait_for_first(begun: &AtomicU64) {
    let patience = limit();
    while begun.load(Ordering::Relaxed) == 0 {
        assert!(!patience.has_passed(Instant::now()), "no request comes");
        thread::sleep(Duration::from_millis(1));
    }
}

fn one_region<S: Service>(service: S) -> OneRegion<S> {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    OneRegion::new(RegionName::default(), export, service)
}

/// A reply that is not taken yet when the end of the memory node is noticed; of any length that a
/// socket holds until it is read, for the end comes after it.
fn is_taken_after_the_end<C: Connection>(start: impl Fn(Counting) -> (Serving, C)) {
    for (round, len) in [0, 8, 64, 5_000, 20_000].into_iter().enumerate() {
        let service = Counting::default();
        let begun = Arc::clone(&service.begun);
        let (serving, connection) = start(service);
        let request: Vec<u8> = [TestService::ECHO].into_iter().chain((0..len).map(|i| i as u8)).collect();
        let posted = connection.post(&request, limit()).unwrap();
        wait_for_first(&begun);
        serving.stop().unwrap();
        let patience = limit();
        while connection.is_alive() {
            assert!(!patience.has_passed(Instant::now()), "it is taken for alive");
            thread::sleep(Duration::from_millis(1));
        }
        let mut reply = Vec::new();
        match round % 2 {
            0 => connection.wait(posted, &mut reply, limit()).unwrap(),
            _ => assert!(connection.poll(posted, &mut reply).unwrap().is_none(), "it is there"),
        }
        assert_eq!(reply, request[1..]);
        // It has answered nothing else.
        let error = connection.call(&request, &mut reply, limit()).unwrap_err();
        assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    }
}

/// A sleeping client is woken by the reply and the end at once.
fn is_taken_with_the_end<C: Connection>(start: impl Fn(Counting) -> (Serving, C)) {
    for round in 0..ROUNDS {
        let service = Counting::default();
        let begun = Arc::clone(&service.begun);
        let (serving, connection) = start(service);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut reply = Vec::new();
                let asked = connection.call(&[TestService::SLEEP, 60, round], &mut reply, limit());
                asked.map(|()| reply)
            });
            wait_for_first(&begun);
            serving.stop().unwrap();
            assert_eq!(asking.join().unwrap().unwrap(), [60, round]);
        });
        // What was not answered is not.
        let error = connection.call(&[TestService::ECHO], &mut Vec::new(), limit()).unwrap_err();
        assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    }
}

fn through_a_ring(service: Counting) -> (Serving, impl Connection) {
    let directory = tempfile::tempdir().unwrap();
    let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
    let listener = shm::Listener::bind(&address, shm::ListenOptions::default()).unwrap();
    let serving = listener.spawn(one_region(service)).unwrap();
    (serving, shm::connect(&address, shm::ConnectOptions::default()).unwrap())
}

fn in_one_process(service: Counting) -> (Serving, impl Connection) {
    let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
    let hub = Hub::new(region, LocalOptions::default()).unwrap();
    let serving = hub.spawn(service).unwrap();
    (serving, hub.connect().unwrap())
}

fn serve_over_sockets<S: Service + 'static>(service: S) -> (Serving, TcpAddress) {
    serve_for(service, Duration::from_secs(10))
}

/// At its end it waits as long for its clients.
fn serve_for<S: Service + 'static>(service: S, last_replies_time: Duration) -> (Serving, TcpAddress) {
    let any: TcpAddress = "tcp://127.0.0.1:0".parse().unwrap();
    let options = tcp::ListenOptions { io_threads: 2, last_replies_time, ..Default::default() };
    let listener = tcp::Listener::bind(&[any], options).unwrap();
    let address = listener.addresses()[0].clone();
    (listener.spawn(one_region(service)).unwrap(), address)
}

fn connect(address: &TcpAddress) -> tcp::TcpConnection {
    tcp::connect(address, tcp::ConnectOptions::default()).unwrap()
}

fn over_a_socket(service: Counting) -> (Serving, impl Connection) {
    let (serving, address) = serve_over_sockets(service);
    (serving, connect(&address))
}

/// Asks until it is hung up on; how often it was answered.
fn ask_on(connection: &tcp::TcpConnection) -> u64 {
    let (mut reply, mut answered) = (Vec::new(), 0);
    loop {
        match connection.call(&[TestService::ECHO, 5], &mut reply, limit()) {
            Ok(()) => answered += 1,
            Err(FabricError::Disconnected { .. }) => return answered,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_reply_through_a_ring_is_taken_after_the_end() {
    is_taken_after_the_end(through_a_ring);
}

#[test]
fn a_reply_in_one_process_is_taken_after_the_end() {
    is_taken_after_the_end(in_one_process);
}

#[test]
fn a_reply_over_a_socket_is_taken_after_the_end() {
    is_taken_after_the_end(over_a_socket);
}

#[test]
fn a_reply_through_a_ring_that_comes_with_the_end_is_taken() {
    is_taken_with_the_end(through_a_ring);
}

#[test]
fn a_reply_in_one_process_that_comes_with_the_end_is_taken() {
    is_taken_with_the_end(in_one_process);
}

#[test]
fn a_reply_over_a_socket_that_comes_with_the_end_is_taken() {
    is_taken_with_the_end(over_a_socket);
}

#[test]
fn all_that_was_executed_is_answered_when_a_memory_node_stops_that_many_ask() {
    for round in 0..60 {
        let counting = Counting::default();
        let handled = Arc::clone(&counting.handled);
        let (serving, address) = serve_over_sockets(counting);
        let connections: Vec<_> = (0..8).map(|_| connect(&address)).collect();
        let answered = thread::scope(|scope| {
            let asking: Vec<_> =
                connections.iter().map(|connection| scope.spawn(|| ask_on(connection))).collect();
            thread::sleep(Duration::from_micros(3000 + 37 * round));
            serving.stop().unwrap();
            asking.into_iter().map(|asking| asking.join().unwrap()).sum::<u64>()
        });
        assert_eq!(answered, handled.load(Ordering::Relaxed), "round {round}");
    }
}

#[test]
fn all_that_was_executed_is_answered_before_a_farewell() {
    let counting = Counting { farewell_after: Some(5), ..Default::default() };
    let handled = Arc::clone(&counting.handled);
    let (serving, address) = serve_over_sockets(counting);
    let (clients, each) = (4, 100);
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                for number in 0..each {
                    assert_eq!(ask_on(&connect(&address)), 5, "connection {number}");
                }
            });
        }
    });
    assert_eq!(handled.load(Ordering::Relaxed), clients * each * 5);
    serving.stop().unwrap();
}

/// As long as replies can be: more of it than sockets hold waits at the memory node.
const LONG: usize = 1 << 20;

fn long_one() -> Vec<u8> {
    [&[TestService::PRODUCE][..], &(LONG as u64).to_le_bytes()].concat()
}

#[test]
fn a_long_reply_is_taken_by_whoever_reads_while_its_memory_node_stops() {
    let service = Counting::default();
    let begun = Arc::clone(&service.begun);
    let (serving, address) = serve_over_sockets(service);
    let connection = connect(&address);
    let posted = connection.post(&long_one(), limit()).unwrap();
    wait_for_first(&begun);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| serving.stop());
        thread::sleep(Duration::from_millis(50));
        let mut reply = Vec::new();
        connection.wait(posted, &mut reply, limit()).unwrap();
        assert_eq!(reply.len(), LONG);
        stopping.join().unwrap().unwrap();
    });
}

#[test]
fn a_long_reply_is_taken_after_a_farewell() {
    let (serving, address) = serve_over_sockets(Counting { farewell_after: Some(1), ..Default::default() });
    let connection = connect(&address);
    let posted = connection.post(&long_one(), limit()).unwrap();
    thread::sleep(Duration::from_millis(100));
    let mut reply = Vec::new();
    connection.wait(posted, &mut reply, limit()).unwrap();
    assert_eq!(reply.len(), LONG);
    let error = connection.call(&long_one(), &mut reply, limit()).unwrap_err();
    assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    serving.stop().unwrap();
}

/// Its end was reckoned, and there is no such instant.
#[test]
fn a_memory_node_that_waits_for_ever_for_its_clients_stops_when_they_have_gone() {
    let (serving, address) = serve_for(TestService::default(), Duration::MAX);
    let connection = connect(&address);
    connection.call(&[TestService::ECHO, 5], &mut Vec::new(), limit()).unwrap();
    drop(connection);
    serving.stop().unwrap();
}

#[test]
fn whoever_does_not_read_keeps_no_memory_node_from_stopping() {
    let (serving, address) = serve_for(TestService::default(), Duration::from_secs(1));
    let connection = connect(&address);
    let _posted = connection.post(&long_one(), limit()).unwrap();
    thread::sleep(Duration::from_millis(50));
    let began = Instant::now();
    serving.stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
