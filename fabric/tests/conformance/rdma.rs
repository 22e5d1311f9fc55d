//! READs by network cards: the suite, and tests of what is special about them. `rdma/guest.sh`
//! gives a machine a card.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::suite::{self, Fixture, TestService};
use fpcache_fabric::rdma::{self, CardCounts};
use fpcache_fabric::tcp::{ConnectOptions, ListenOptions, Listener, TcpAddress, TcpConnection, connect};
use fpcache_fabric::{
    AreaId, Batch, Connection, Endpoint, Export, FabricError, HugePages, NodeMemory, OneRegion, RdmaError,
    RegionName, RemoteAddr, Serving, SharedMemory, TcpEndpoint,
};

const LEN: usize = 1 << 20;

struct Node {
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
    address: TcpAddress,
    connection: TcpConnection,
}

/// A memory node of this region.
fn serve(
    region: &Arc<SharedMemory>,
    fd: std::os::fd::OwnedFd,
    lease: Duration,
    options: ListenOptions,
) -> (Serving, TcpAddress) {
    let export = Export::new(region, fd, 1).unwrap().with_watched(0).with_lease(lease);
    let scratch = Some(Arc::new(SharedMemory::anonymous(64 << 10).unwrap()));
    let options = ListenOptions { scratch, io_threads: 2, ..options };
    let listener = Listener::bind(&["rdma://127.0.0.1:0".parse().unwrap()], options).unwrap();
    let address = listener.addresses()[0].clone();
    let service = OneRegion::new(RegionName::default(), export, TestService::default());
    (listener.spawn(service).unwrap(), address)
}

impl Node {
    /// A node of whose region `backed` bytes are granted.
    fn with_backed(backed: u64) -> Self {
        Self::with_lease(backed, Duration::ZERO)
    }

    /// The same, with a lease of the word at 0.
    fn with_lease(backed: u64, lease: Duration) -> Self {
        let (region, fd) = SharedMemory::create_memfd("region", LEN, HugePages::No).unwrap();
        let region = Arc::new(region);
        region.set_backed_end(backed);
        let (serving, address) = serve(&region, fd, lease, ListenOptions::default());
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        Self { region, serving: Some(serving), address, connection }
    }

    fn counts(&self) -> CardCounts {
        self.connection.card_counts().unwrap()
    }
}

impl Fixture for Node {
    const LOAD_AFTER_READS: u64 = 1;

    type Connection = TcpConnection;

    fn start() -> Self {
        Self::with_backed(u64::MAX)
    }

    fn connection(&self) -> &TcpConnection {
        &self.connection
    }

    fn region(&self) -> &SharedMemory {
        &self.region
    }

    fn scratch(&self) -> (AreaId, u64) {
        (AreaId(2), 0)
    }

    fn stop_memory_node(&mut self) {
        self.serving.take().unwrap().stop().unwrap();
    }
}

fn word(endpoint: &mut TcpEndpoint, at: u64) -> u64 {
    let mut word = [0];
    endpoint.read_words(RemoteAddr::region(at), &mut word).unwrap();
    word[0]
}

#[test]
#[ignore = "needs an RDMA device"]
fn reading_by_network_cards_conforms() {
    suite::run_all::<Node>();
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_batch_of_reads_rings_one_doorbell_and_uses_no_socket() {
    let node = Node::start();
    let mut endpoint = node.connection.endpoint();
    let before = node.counts();
    for round in 0..50u64 {
        let mut batch = Batch::new();
        let landings: Vec<_> =
            (0..32u64).map(|at| (at * 8192, batch.read(RemoteAddr::region(at * 8192), 64))).collect();
        for (at, _) in &landings {
            node.region.store_release(*at, at + round).unwrap();
        }
        endpoint.run(&mut batch).unwrap();
        assert!(landings.iter().all(|(at, landing)| batch.u64(*landing) == at + round));
    }
    let after = node.counts();
    assert_eq!((after.doorbells - before.doorbells, after.work_requests - before.work_requests), (50, 1600));
    assert_eq!((after.by_socket, after.broken), (0, 0));
}

#[test]
#[ignore = "needs an RDMA device"]
fn reads_of_any_length_pass_through_the_landing_memory() {
    let node = Node::start();
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7 % 251) as u8).collect();
    node.region.write_bytes(0, &bytes).unwrap();
    let mut endpoint = node.connection.endpoint();
    for (from, len) in [(0, LEN), (1, LEN - 1), (3, 262_147), (LEN - 1, 1), (13, 0), (8, 262_144)] {
        let mut batch = Batch::new();
        let landing = batch.read(RemoteAddr::region(from as u64), len);
        endpoint.run(&mut batch).unwrap();
        assert!(batch.bytes(landing) == &bytes[from..from + len], "{len} bytes from {from}");
    }
    let mut many = Batch::new();
    let landings: Vec<_> = (0..1000).map(|at| many.read(RemoteAddr::region(at * 1001), 333)).collect();
    endpoint.run(&mut many).unwrap();
    for (at, landing) in landings.into_iter().enumerate() {
        assert_eq!(many.bytes(landing), &bytes[at * 1001..at * 1001 + 333]);
    }
    assert_eq!((node.counts().by_socket, node.counts().broken), (0, 0));
}

/// Nothing of what cards READ passes by sockets.
#[test]
#[ignore = "needs an RDMA device"]
fn whoever_only_reads_by_card_is_not_idle() {
    let (region, fd) = SharedMemory::create_memfd("region", LEN, HugePages::No).unwrap();
    let idle_time = Some(Duration::from_secs(6));
    let options = ListenOptions { idle_time, ..ListenOptions::default() };
    let (_serving, address) = serve(&Arc::new(region), fd, Duration::ZERO, options);
    let reads = connect(&address, ConnectOptions::default()).unwrap();
    let mut endpoint = reads.endpoint();
    let by_socket: TcpAddress = address.to_string().replace("rdma", "tcp").parse().unwrap();
    let idle = connect(&by_socket, ConnectOptions::default()).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(14) {
        word(&mut endpoint, 8);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(reads.is_alive() && !idle.is_alive());
    let counts = reads.card_counts().unwrap();
    assert_eq!((counts.by_socket, counts.broken), (0, 0), "{counts:?}");
    // When its last queue pair is gone it is idle from then on.
    drop(endpoint);
    let gone = Instant::now();
    while reads.is_alive() {
        assert!(gone.elapsed() < Duration::from_secs(60), "nobody uses it");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(gone.elapsed() > Duration::from_millis(500), "{:?}", gone.elapsed());
}

/// Memory is reused all the time, each time a lease after the word that warns of it.
#[test]
#[ignore = "needs an RDMA device"]
fn a_leased_word_warns_of_what_was_read_and_costs_no_round_trip() {
    const LEASE: Duration = Duration::from_millis(20);
    const ROUNDS: u64 = 100;
    let node = Node::with_lease(u64::MAX, LEASE);
    let (mut looks, mut round_trips, mut seen) = (0u64, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                node.region.store_relaxed(0, round).unwrap();
                NodeMemory::flush(&*node.region);
                std::thread::sleep(LEASE);
                node.region.store_relaxed(4096, round).unwrap();
            }
        });
        let mut endpoint = node.connection.endpoint();
        while seen < ROUNDS {
            seen = word(&mut endpoint, 4096);
            let before = endpoint.meter().snapshot();
            let loaded = endpoint.load_after_reads(RemoteAddr::region(0)).unwrap();
            assert!(loaded >= seen, "{loaded} after a READ of {seen}");
            round_trips += (endpoint.meter().snapshot() - before).round_trips;
            looks += 1;
        }
    });
    // The guest's processor is elsewhere now and then.
    assert!(looks > 2 * ROUNDS && round_trips * 2 < looks, "{round_trips} round trips for {looks} looks");
    assert_eq!((node.counts().by_socket, node.counts().broken), (0, 0));
}

/// A card that went on reading pages that have gone back would show what was there before.
#[test]
#[ignore = "needs an RDMA device"]
fn memory_that_went_back_and_came_again_is_read_anew() {
    let node = Node::with_backed(64 << 10);
    let mut endpoint = node.connection.endpoint();
    node.region.store_release(8192, 1).unwrap();
    assert_eq!(word(&mut endpoint, 8192), 1);
    for round in 1..=20u64 {
        let end = (128 << 10) + round * 4096;
        node.region.set_backed_end(end);
        node.region.store_release(end - 8, round).unwrap();
        node.region.store_release(8192, round).unwrap();
        // By a card once it is registered, and over the socket until then.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(60) {
            assert_eq!(word(&mut endpoint, end - 8), round);
            assert_eq!(word(&mut endpoint, 8192), round);
        }
        node.region.set_backed_end(4096);
        assert!(node.region.discard_from(4096).unwrap());
        assert_eq!(word(&mut endpoint, end - 8), 0, "what went back is zeros");
        assert_eq!(word(&mut endpoint, 8192), 0);
    }
    let counts = node.counts();
    assert!(counts.doorbells > 100 && counts.broken > 0 && counts.by_socket > 0, "{counts:?}");
    // The last state is registered in the end.
    node.region.set_backed_end(LEN as u64);
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let before = node.counts();
        assert_eq!(word(&mut endpoint, LEN as u64 - 8), 0);
        if node.counts().by_socket == before.by_socket {
            break;
        }
        assert!(Instant::now() < limit, "still over the socket: {:?}", node.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether packets have them only another machine could tell: `Port::way_to` has tests.
#[test]
#[ignore = "needs an RDMA device"]
fn classes_levels_and_keys_are_taken_from_the_address() {
    let node = Node::start();
    let choosing = |choice: &str| {
        connect(&format!("{}?{choice}", node.address).parse().unwrap(), ConnectOptions::default())
    };
    let connection = choosing("tc=104&sl=3&pkey=0").unwrap();
    assert_eq!(word(&mut connection.endpoint(), 8), 0);
    assert_eq!(connection.card_counts().unwrap().by_socket, 0);
    let error = choosing("pkey=999").unwrap_err().to_string();
    assert!(error.contains("no partition key at index 999") && error.contains("/pkeys"), "{error}");
}

/// Needs to be root, of a machine whose card nothing else uses: the guest.
#[test]
#[ignore = "needs an RDMA device"]
fn addresses_that_move_in_their_table_are_found_again() {
    if std::env::var_os("FPCACHE_IN_GUEST").is_none() {
        return;
    }
    let used = || rdma::resolve(&rdma::CardChoice::default()).unwrap().gid;
    let address = |change: &str, address: &str| {
        let before = rdma::devices().unwrap();
        let status =
            std::process::Command::new("ip").args(["addr", change, address, "dev", "dummy0"]).status();
        assert!(status.unwrap().success());
        // The kernel's table follows a moment later.
        let limit = Instant::now() + Duration::from_secs(10);
        while rdma::devices().unwrap() == before {
            assert!(Instant::now() < limit, "{address} changes nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let node = Node::start();
    assert_eq!(word(&mut node.connection.endpoint(), 8), 0);
    let before = used();
    address("del", "10.77.0.1/24");
    address("add", "10.77.0.2/24");
    address("add", "10.77.0.1/24");
    address("del", "10.77.0.2/24");
    assert_ne!(used(), before);
    let newcomer = connect(&node.address, ConnectOptions::default()).unwrap();
    for connection in [&newcomer, &node.connection] {
        assert_eq!(word(&mut connection.endpoint(), 16), 0);
        let counts = connection.card_counts().unwrap();
        assert_eq!((counts.by_socket, counts.broken), (0, 0), "{counts:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device"]
fn cards_that_are_not_there_are_named() {
    let device = rdma::devices().unwrap().remove(0).name;
    let refused = |choice: &str| {
        let address: TcpAddress = format!("rdma://127.0.0.1:0?{choice}").parse().unwrap();
        Listener::bind(&[address], ListenOptions::default()).unwrap_err().to_string()
    };
    let message = refused("dev=no_card");
    assert!(message.contains("no_card") && message.contains(&device), "{message}");
    let message = refused("gid=200");
    assert!(message.contains("no GID at index 200") && message.contains("fpcache-cli devices"), "{message}");
    let message = refused("port=9");
    assert!(message.contains("port 9") && message.contains("is not there"), "{message}");
}

#[test]
#[ignore = "needs an RDMA device"]
fn a_listener_without_a_card_says_so() {
    let (region, fd) = SharedMemory::create_memfd("region", LEN, HugePages::No).unwrap();
    let export = Export::new(&region, fd, 1).unwrap();
    let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], ListenOptions::default()).unwrap();
    let address = listener.addresses()[0].to_string().replace("tcp", "rdma");
    let _serving =
        listener.spawn(OneRegion::new(RegionName::default(), export, TestService::default())).unwrap();
    let error = connect(&address.parse().unwrap(), ConnectOptions::default()).unwrap_err();
    assert!(
        matches!(&error, FabricError::Rdma(why) if matches!(**why, RdmaError::NotServed { .. })),
        "{error}"
    );
    // A client that was connected before goes on over sockets, whatever is the matter with the
    // cards.
    for address in [address.clone(), format!("{address}?dev=no_card")] {
        let options = ConnectOptions { needs_card: false, ..ConnectOptions::default() };
        let connection = connect(&address.parse().unwrap(), options).unwrap();
        assert!(matches!(connection.card_trouble(), Some(FabricError::Rdma(_))));
        assert_eq!(word(&mut connection.endpoint(), 8), 0);
        let counts = connection.card_counts().unwrap();
        assert_eq!((counts.unusable, counts.by_socket), (1, 1), "{counts:?}");
    }
}
