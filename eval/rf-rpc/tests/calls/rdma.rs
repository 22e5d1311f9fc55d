//! Calls of RF-RPC by network cards. `fabric/rdma/guest.sh` gives a machine a card.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fpcache_fabric::tcp::{ConnectOptions, ListenOptions, Listener, TcpConnection, connect};
use fpcache_fabric::{
    AreaId, ClientId, Deadline, Export, HugePages, OneRegion, RegionName, Serving, SharedMemory, SystemClock,
};
use fpcache_rf_rpc::{Client, ClientOptions, Mode, Results, RfService, ServerOptions, Shape};

use super::{BATCHES, ECHO, MANY, answer};

const SLOW: u16 = 3;
const SHAPE: Shape = Shape { slots: 4, parts: 2, capacity: 10_240 };
const PATIENCE: Duration = Duration::from_secs(20);

struct Node {
    listener: String,
    /// Nanoseconds that [`SLOW`] takes.
    slow_ns: Arc<AtomicU64>,
    _serving: Serving,
}

impl Node {
    fn start() -> Self {
        let (region, fd) = SharedMemory::create_memfd("region", 4096, HugePages::No).unwrap();
        let export = Export::new(&Arc::new(region), fd, 1).unwrap();
        let buffers = Arc::new(SharedMemory::anonymous(2 << 20).unwrap());
        let options =
            ServerOptions { area: AreaId(2), shape: SHAPE, clients: 8, seed: 1, ..ServerOptions::default() };
        let slow_ns = Arc::new(AtomicU64::new(20_000_000));
        let pause = Arc::clone(&slow_ns);
        let procedures = move |_: ClientId, rpc: u16, request: &[u8], result: &mut Vec<u8>| {
            if rpc == SLOW {
                std::thread::sleep(Duration::from_nanos(pause.load(Ordering::Relaxed)));
            }
            result.extend_from_slice(&answer(rpc, request));
        };
        let service = RfService::new(Arc::clone(&buffers), options, Arc::new(SystemClock), procedures);
        let options = ListenOptions { scratch: Some(buffers), ..ListenOptions::default() };
        let listener = Listener::bind(&["rdma://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let address = listener.addresses()[0].to_string();
        let service = OneRegion::new(RegionName::default(), export, service.unwrap());
        Self { listener: address, slow_ns, _serving: listener.spawn(service).unwrap() }
    }

    /// Makes [`SLOW`] take many times as long as a READ does here: an emulated machine's takes
    /// milliseconds.
    fn slow_down(&self) {
        let mut client = self.open(ClientOptions {
            fixed: Some(Mode::Fetch),
            retries: 1 << 20,
            ..ClientOptions::default()
        });
        let mut result = Vec::new();
        let longest = [(); 20].map(|()| {
            let began = Instant::now();
            client.call(ECHO, b"quick", &mut result, Deadline::after(PATIENCE)).unwrap();
            began.elapsed()
        });
        // A call is two batches at least, so that this is time for over forty READs.
        let pause = longest.into_iter().max().unwrap_or_default() * 20;
        self.slow_ns.fetch_max(pause.as_nanos().min(2_000_000_000) as u64, Ordering::Relaxed);
    }

    fn open(&self, options: ClientOptions) -> Client<TcpConnection> {
        let connection = connect(&self.listener.parse().unwrap(), ConnectOptions::default()).unwrap();
        Client::open(connection, options, Arc::new(SystemClock), Deadline::after(PATIENCE)).unwrap()
    }
}

/// Results in one READ, in two, in several batches, and too long for any.
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_calls_of_every_shape_come_back() {
    let node = Node::start();
    for fixed in [Some(Mode::Fetch), Some(Mode::Reply), None] {
        let mut client = node.open(ClientOptions { fixed, ..ClientOptions::default() });
        let before = client.connection().card_counts().unwrap();
        let mut results = Results::new();
        for lengths in BATCHES {
            let requests: Vec<_> = lengths.iter().map(|len| len.to_le_bytes()).collect();
            let sent = client.send(MANY, &requests, Deadline::after(PATIENCE)).unwrap();
            client.recv(sent, &mut results, Deadline::after(PATIENCE)).unwrap();
            let expected: Vec<_> = requests.iter().map(|request| answer(MANY, request)).collect();
            assert!(results.iter().eq(expected.iter().map(Vec::as_slice)), "{fixed:?} {lengths:?}");
        }
        let sent = client.send(ECHO, &[[7; 30_000]], Deadline::after(PATIENCE)).unwrap();
        client.recv(sent, &mut results, Deadline::after(PATIENCE)).unwrap();
        assert!(results.iter().eq([&[7; 30_000][..]]), "a long request");
        // Several batches under way, received in another order.
        let sent = [0u8; 3].map(|_| client.send(ECHO, &[b"abc"], Deadline::after(PATIENCE)).unwrap());
        for sent in sent.into_iter().rev() {
            client.recv(sent, &mut results, Deadline::after(PATIENCE)).unwrap();
            assert!(results.iter().eq([&b"cba"[..]]));
        }
        let after = client.connection().card_counts().unwrap();
        assert_eq!((after.by_socket, after.broken), (0, 0), "WRITEs and READs go by cards alone");
        assert!(fixed == Some(Mode::Reply) || after.doorbells > before.doorbells + 10);
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn rdma_slow_calls_are_sent_and_the_switch_settles_within_two() {
    let node = Node::start();
    node.slow_down();
    let mut client = node.open(ClientOptions::default());
    let mut result = Vec::new();
    let modes = [(); 5].map(|()| {
        client.call(SLOW, b"slow", &mut result, Deadline::after(PATIENCE)).unwrap();
        assert_eq!(result, b"wols");
        client.mode(SLOW)
    });
    assert_eq!(modes[1..], [Mode::Reply; 4], "{:?}", client.counts());
    assert_eq!(client.mode(ECHO), Mode::Fetch, "a flag for each RPC");
}
