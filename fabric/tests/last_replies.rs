//! What a memory node has answered before it hung up reaches whoever asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::shm::{self, ShmAddress};
use fpcache_fabric::tcp::{self, TcpAddress};
use fpcache_fabric::{
    Connection, Deadline, Export, FabricError, HugePages, OneRegion, RegionName, Serving, SharedMemory,
};

use service::TestService;

const ROUNDS: u8 = 10;

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn service() -> OneRegion<TestService> {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    OneRegion::new(RegionName::default(), export, TestService::default())
}

/// A reply that nobody has taken yet when the end of the memory node is noticed; of any length that a socket holds until it is
/// read, for the end comes after it.
fn is_taken_after_the_end<C: Connection>(start: impl Fn() -> (Serving, C)) {
    for (round, len) in [0, 8, 64, 5_000, 20_000].into_iter().enumerate() {
        let (serving, connection) = start();
        let request: Vec<u8> = [TestService::ECHO].into_iter().chain((0..len).map(|i| i as u8)).collect();
        let posted = connection.post(&request, limit()).unwrap();
        thread::sleep(Duration::from_millis(50));
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

/// Whoever sleeps is woken by the reply and the end at once.
fn is_taken_with_the_end<C: Connection>(start: impl Fn() -> (Serving, C)) {
    for round in 0..ROUNDS {
        let (serving, connection) = start();
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut reply = Vec::new();
                let asked = connection.call(&[TestService::SLEEP, 60, round], &mut reply, limit());
                asked.map(|()| reply)
            });
            thread::sleep(Duration::from_millis(20));
            serving.stop().unwrap();
            assert_eq!(asking.join().unwrap().unwrap(), [60, round]);
        });
        // What was not answered is not.
        let error = connection.call(&[TestService::ECHO], &mut Vec::new(), limit()).unwrap_err();
        assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    }
}

fn through_a_ring() -> (Serving, impl Connection) {
    let directory = tempfile::tempdir().unwrap();
    let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
    let listener = shm::Listener::bind(&address, shm::ListenOptions::default()).unwrap();
    let serving = listener.spawn(service()).unwrap();
    (serving, shm::connect(&address, shm::ConnectOptions::default()).unwrap())
}

fn in_one_process() -> (Serving, impl Connection) {
    let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
    let hub = Hub::new(region, LocalOptions::default()).unwrap();
    let serving = hub.spawn(TestService::default()).unwrap();
    (serving, hub.connect().unwrap())
}

fn over_a_socket() -> (Serving, impl Connection) {
    let any: TcpAddress = "tcp://127.0.0.1:0".parse().unwrap();
    let listener = tcp::Listener::bind(&[any], tcp::ListenOptions::default()).unwrap();
    let address = listener.addresses()[0].clone();
    let serving = listener.spawn(service()).unwrap();
    (serving, tcp::connect(&address, tcp::ConnectOptions::default()).unwrap())
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
