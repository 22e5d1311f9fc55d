//! The serving loop: to whom replies go, whose turn it is, and when the loop sleeps.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "serving/room.rs"]
mod room;

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
    let at = Instant::now() + Duration::from_millis(600);
    let (worker, turns, _) = Worker::new(Work::At(at));
    let _serving = hub().spawn(worker).unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while turns.lock().unwrap().last().is_none_or(|&turn| turn < at) {
        assert!(Instant::now() < patience, "the time was slept through");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Once it has begun, which takes its thread a moment, and a moment more on a busy machine: a
    // loop that does not sleep comes round far more often.
    let asleep = at - Duration::from_millis(300)..at - Duration::from_millis(20);
    let is_early = |turn: &&Instant| asleep.contains(turn);
    let early = turns.lock().unwrap().iter().filter(is_early).count();
    assert!(early < 10_000, "the loop does not sleep until then: {early} turns");
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
    assert!(idle < Duration::from_millis(150), "{idle:?} of 700 ms");
}
