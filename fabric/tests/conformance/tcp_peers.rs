//! Peers over sockets that do what they may not: each costs the others nothing and the node little, and is told.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_fabric::conformance::TestService;
use fpcache_fabric::shm::PROTOCOL_VERSION;
use fpcache_fabric::tcp::{
    ConnectOptions, HangUp, ListenOptions, Listener, SocketCounters, TcpAddress, connect,
};
use fpcache_fabric::{
    Batch, ClientId, Connection, Deadline, Descriptors, Endpoint, Export, FabricError, Handled, HugePages,
    RegionName, RemoteAddr, Service, Serving, SharedMemory, Waker, Work,
};

const REGION_BYTES: usize = 1 << 20;

/// A request that is not answered.
const NEVER: u8 = 200;

/// Notes who is hung up on, and hangs up when it is told to.
struct Watched {
    inner: TestService,
    export: Option<Export>,
    seen: Arc<Mutex<Seen>>,
    /// Clients of the region that never has room for long requests.
    stalled: Vec<ClientId>,
}

/// The region that never has room for long requests.
const STALLED: &str = "stalled";

#[derive(Default)]
struct Seen {
    rejected: Vec<String>,
    clients: Vec<ClientId>,
    farewells: Vec<ClientId>,
}

impl Service for Watched {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.export.clone().filter(|_| name.is_empty() || name == STALLED.as_bytes())
    }

    fn has_room(&self, client: ClientId, _: usize) -> bool {
        !self.stalled.contains(&client)
    }

    fn room_of(&self, client: ClientId) -> u64 {
        u64::from(self.stalled.contains(&client))
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if request == [NEVER] {
            return Handled::Later;
        }
        self.inner.handle(client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.inner.next_reply(reply)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.seen.lock().unwrap().farewells.pop()
    }

    fn work(&mut self) -> Work {
        self.inner.work()
    }

    fn waker(&self) -> Option<Waker> {
        self.inner.waker()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.stalled.extend((region == STALLED.as_bytes()).then_some(client));
        self.seen.lock().unwrap().clients.push(client);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.seen.lock().unwrap().clients.retain(|other| *other != client);
    }

    fn rejected(&mut self, error: &FabricError) {
        self.seen.lock().unwrap().rejected.push(error.to_string());
    }
}

struct Node {
    address: TcpAddress,
    port: u16,
    waker: Waker,
    seen: Arc<Mutex<Seen>>,
    counters: SocketCounters,
    serving: Serving,
    region: SharedMemory,
    file: std::fs::File,
}

fn short() -> ListenOptions {
    let soon = Duration::from_millis(150);
    ListenOptions {
        greeting_time: soon,
        frame_time: soon,
        read_time: soon,
        io_threads: 2,
        ..Default::default()
    }
}

impl Node {
    fn start(options: ListenOptions) -> Self {
        let (region, fd) = SharedMemory::create_memfd("region", REGION_BYTES, HugePages::No).unwrap();
        let file = std::fs::File::from(fd.try_clone().unwrap());
        let export = Some(Export::new(&region, fd, 1).unwrap().with_watched(0));
        let (inner, seen) = (TestService::default(), Arc::<Mutex<Seen>>::default());
        let waker = inner.waker().unwrap();
        let listener = Listener::bind(&["tcp://127.0.0.1:0".parse().unwrap()], options).unwrap();
        let address = listener.addresses()[0].clone();
        let port = address.to_string().rsplit(':').next().unwrap().parse().unwrap();
        let counters = listener.counters();
        let serving =
            listener.spawn(Watched { inner, export, seen: Arc::clone(&seen), stalled: Vec::new() }).unwrap();
        Self { address, port, waker, seen, counters, serving, region, file }
    }

    /// What the region's file takes.
    fn resident_bytes(&self) -> u64 {
        self.file.metadata().unwrap().blocks() * 512
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    /// A socket that was let in, and the welcome.
    fn admitted(&self) -> (TcpStream, [u8; 128]) {
        let mut socket = self.socket();
        socket.write_all(&hello(0, 0)).unwrap();
        let mut welcome = [0; 128];
        socket.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome[12..16], [0; 4], "admitted");
        (socket, welcome)
    }

    /// A good client goes on as ever.
    fn serves(&self) {
        let connection = connect(&self.address, ConnectOptions::default()).unwrap();
        let (mut endpoint, mut word) = (connection.endpoint(), [0; 1]);
        self.region.store_release(64, 77).unwrap();
        endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
        assert_eq!(word, [77]);
        let mut reply = Vec::new();
        let soon = Deadline::after(Duration::from_secs(5));
        connection.call(&[TestService::ECHO, 5], &mut reply, soon).unwrap();
        assert_eq!(reply, [5]);
    }

    /// Waits until somebody was hung up on or not let in for this reason, told in these words.
    fn tells(&self, reason: HangUp, words: &str) {
        let patience = Instant::now() + Duration::from_secs(5);
        while !self.seen.lock().unwrap().rejected.iter().any(|why| why.contains(words)) {
            assert!(
                Instant::now() < patience,
                "nobody was told {words}: {:?}",
                self.seen.lock().unwrap().rejected
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.counters.snapshot().hang_ups(reason) > 0, "{:?}", self.counters);
    }
}

/// HELLO of a client that joins another one, or none.
fn hello(join: u64, secret: u64) -> Vec<u8> {
    let mut hello = b"FPFABTCP".to_vec();
    hello.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    hello.extend_from_slice(&[0; 4]);
    hello.extend_from_slice(&join.to_le_bytes());
    hello.extend_from_slice(&secret.to_le_bytes());
    hello.resize(64, 0);
    hello
}

fn head(bytes: u32, entries: u32, kind: u8) -> Vec<u8> {
    let mut head = [bytes.to_le_bytes(), entries.to_le_bytes(), [0; 4], [0; 4]].concat();
    head[10] = kind;
    head
}

/// A batch of one READ.
fn read(offset: u64, len: u32) -> Vec<u8> {
    [head(16, 1, 1), offset.to_le_bytes().to_vec(), len.to_le_bytes().to_vec(), vec![0; 4]].concat()
}

/// Waits until the peer has closed its end, whatever it said before.
fn closes(socket: &mut TcpStream) {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        }
    }
}

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
fn whoever_says_nothing_or_half_of_it_is_hung_up_on() {
    let node = Node::start(short());
    let (mut silent, mut slow) = (node.socket(), node.socket());
    slow.write_all(&hello(0, 0)[..40]).unwrap();
    let began = Instant::now();
    closes(&mut silent);
    closes(&mut slow);
    assert!(began.elapsed() >= Duration::from_millis(100));
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
    let patience = Instant::now() + Duration::from_secs(5);
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
    let patience = Instant::now() + Duration::from_secs(5);
    while node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "somebody is stuck for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    stuck.iter_mut().for_each(closes);
    node.serves();
}

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

/// A request as the one that the socket came with sends it.
fn call(body: &[u8]) -> Vec<u8> {
    let sum = xxhash_rust::xxh3::xxh3_64(body).to_le_bytes();
    [head(8 + body.len() as u32, 0, 3), sum.to_vec(), body.to_vec()].concat()
}

/// Requests that together need more memory than there is for them, none of which is whole when it is used up.
#[test]
fn requests_that_arrive_together_are_all_answered() {
    let options = ListenOptions { request_memory: 256 << 10, frame_time: Duration::from_secs(1), ..short() };
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

/// Requests that the service has no room for hold memory; those of one region leave enough for another's.
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
            connection.call(&request, &mut reply, soon()).unwrap();
            assert_eq!(reply.len(), BYTES);
        }
    });
}

#[test]
fn a_client_that_goes_while_its_request_is_under_way_is_noticed() {
    let node = Node::start(ListenOptions::default());
    let (mut socket, _) = node.admitted();
    socket.write_all(&call(&[NEVER])).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(node.seen.lock().unwrap().clients.len(), 1);
    drop(socket);
    let patience = Instant::now() + Duration::from_secs(5);
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
    std::thread::sleep(Duration::from_millis(30));
    node.serving.stop().unwrap();
    let mut reply = [0; 16 + 8];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[16..], [100, 5, 0, 0, 0, 0, 0, 0]);
    closes(&mut socket);
}

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

/// A socket file may be removed while the memory node lives: a connection that cannot have more sockets is lost.
#[test]
fn a_connection_whose_address_is_gone_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.sock");
    let address = TcpAddress::at_path(&path).unwrap();
    let (region, fd) = SharedMemory::create_memfd("region", REGION_BYTES, HugePages::No).unwrap();
    let export = Some(Export::new(&region, fd, 1).unwrap());
    let listener = Listener::bind(std::slice::from_ref(&address), short()).unwrap();
    let service =
        Watched { inner: TestService::default(), export, seen: Arc::default(), stalled: Vec::new() };
    let _serving = listener.spawn(service).unwrap();
    let connection = connect(&address, ConnectOptions::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = connection.endpoint().read_words(RemoteAddr::region(0), &mut [0]).unwrap_err();
    assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
    assert!(!connection.is_alive());
}

/// Passes bytes on, until it is told to hold them back.
struct Relay {
    address: TcpAddress,
    holds: Arc<AtomicBool>,
}

impl Relay {
    fn to(port: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = TcpAddress::internet(listener.local_addr().unwrap());
        let holds = Arc::new(AtomicBool::new(false));
        let is_held = Arc::clone(&holds);
        // Ends with its sockets, or with the process.
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let onwards = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (mut from, mut to) in
                    [(socket.try_clone().unwrap(), onwards.try_clone().unwrap()), (onwards, socket)]
                {
                    let is_held = Arc::clone(&is_held);
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(len @ 1..) = from.read(&mut bytes) {
                            while is_held.load(Ordering::Relaxed) {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            let _ = to.write_all(&bytes[..len]);
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { address, holds }
    }
}

#[test]
fn whoever_has_little_time_does_not_wait_longer_and_loses_no_connection() {
    let node = Node::start(ListenOptions::default());
    let relay = Relay::to(node.port);
    let connection = connect(&relay.address, ConnectOptions::default()).unwrap();
    let (mut endpoint, mut word) = (connection.endpoint(), [0]);
    let mut unused = connection.endpoint();
    node.region.store_release(64, 77).unwrap();
    endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
    relay.holds.store(true, Ordering::Relaxed);
    // Of one that has its socket, and of one that has none.
    for endpoint in [&mut endpoint, &mut unused] {
        endpoint.set_patience(Duration::from_millis(50));
        let began = Instant::now();
        let error = endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap_err();
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert!(connection.is_alive());
    }
    relay.holds.store(false, Ordering::Relaxed);
    node.region.store_release(64, 78).unwrap();
    for endpoint in [&mut endpoint, &mut unused] {
        endpoint.set_patience(Duration::from_secs(5));
        endpoint.read_words(RemoteAddr::region(64), &mut word).unwrap();
        assert_eq!(word, [78]);
    }
}

#[test]
fn there_are_so_many_connections_and_no_more() {
    let node =
        Node::start(ListenOptions { max_connections: 3, greeting_time: Duration::from_secs(9), ..short() });
    let first: Vec<TcpStream> = (0..3).map(|_| node.admitted().0).collect();
    let error = connect(&node.address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::TooManyClients { max: 3, .. }), "{error}");
    assert!(error.is_retryable());
    node.tells(HangUp::TooMany, "maximum of 3");
    drop(first);
    let patience = Instant::now() + Duration::from_secs(5);
    while node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "connections that were closed still count");
        std::thread::sleep(Duration::from_millis(1));
    }
    node.serves();
}

/// Connections that say nothing are a few whatever the number of threads, and take neither connections nor descriptors from
/// clients and tables.
#[test]
fn a_flood_of_silent_connections_keeps_nobody_out() {
    let descriptors = Descriptors::new(4);
    let node = Node::start(ListenOptions {
        max_connections: 4,
        io_threads: 16,
        greeting_time: Duration::from_secs(30),
        descriptors: Arc::clone(&descriptors),
        ..short()
    });
    let mut flood: Vec<TcpStream> = (0..100).map(|_| node.socket()).collect();
    node.serves();
    assert!(descriptors.left() >= 2);
    node.tells(HangUp::TooMany, "too many others had not greeted");
    let patience = Instant::now() + Duration::from_secs(20);
    let still_there = |flood: &mut Vec<TcpStream>| {
        flood.retain(|socket| {
            socket.set_nonblocking(true).unwrap();
            let mut socket = socket;
            matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        flood.len()
    };
    while still_there(&mut flood) > 80 {
        assert!(Instant::now() < patience, "{} connections that said nothing are still there", flood.len());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(flood);
    node.serves();
}

#[test]
fn nobody_joins_a_client_without_its_secret() {
    let node = Node::start(short());
    let (_socket, welcome) = node.admitted();
    let client = u64::from_le_bytes(welcome[40..48].try_into().unwrap());
    for (client, secret) in [(client, 0), (client + 1, 0), (1, 1)] {
        let mut socket = node.socket();
        socket.write_all(&hello(client, secret)).unwrap();
        let mut refusal = [0; 128];
        socket.read_exact(&mut refusal).unwrap();
        assert_eq!(refusal[12], 5);
        closes(&mut socket);
    }
    node.tells(HangUp::NoRegion, "wanted to join");
    let mut join = hello(client, 0);
    join[24..40].copy_from_slice(&welcome[48..64]);
    let mut socket = node.socket();
    socket.write_all(&join).unwrap();
    socket.read_exact(&mut [0; 128]).unwrap();
    socket.write_all(&read(0, 8)).unwrap();
    socket.read_exact(&mut [0; 24]).unwrap();
    assert_eq!(node.seen.lock().unwrap().clients.len(), 1, "one client with two sockets");
    // Requests go over the first.
    socket.write_all(&call(&[TestService::ECHO, 5])).unwrap();
    closes(&mut socket);
    node.tells(HangUp::BadFrame, "for batches");
    node.serves();
}

#[test]
fn clients_of_a_region_that_is_gone_are_hung_up_on_over_all_their_sockets() {
    let node = Node::start(short());
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let mut endpoints: Vec<_> = (0..3).map(|_| connection.endpoint()).collect();
    let mut word = [0];
    endpoints.iter_mut().for_each(|endpoint| endpoint.read_words(RemoteAddr::region(0), &mut word).unwrap());
    assert_eq!(node.counters.connections(), 4);
    {
        let mut seen = node.seen.lock().unwrap();
        let all = seen.clients.clone();
        seen.farewells.extend(all);
    }
    node.waker.wake();
    let patience = Instant::now() + Duration::from_secs(5);
    while connection.is_alive() || node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "the client lives on");
        std::thread::sleep(Duration::from_millis(1));
    }
    for endpoint in &mut endpoints {
        let error = endpoint.read_words(RemoteAddr::region(0), &mut word).unwrap_err();
        assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    }
    node.serves();
}

#[test]
fn endpoints_leave_their_sockets_to_one_another() {
    let node = Node::start(short());
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    for round in 0..50u64 {
        let mut endpoint = connection.endpoint();
        node.region.store_release(0, round).unwrap();
        let mut word = [0];
        // A word that was watched for another endpoint is not this one's.
        assert_eq!(endpoint.load_after_reads(RemoteAddr::region(0)).unwrap(), round);
        endpoint.read_words(RemoteAddr::region(8), &mut word).unwrap();
    }
    assert_eq!(node.counters.connections(), 2);
    let mut busy = connection.endpoint();
    let mut batch = Batch::new();
    batch.read(RemoteAddr::region(0), 8);
    busy.post(batch).unwrap();
    drop(busy);
    // One that something was under way over is closed.
    let mut endpoint = connection.endpoint();
    endpoint.read_words(RemoteAddr::region(8), &mut [0]).unwrap();
    assert!(node.counters.connections() <= 3);
    drop((endpoint, connection));
    let patience = Instant::now() + Duration::from_secs(5);
    while node.counters.connections() > 0 || !node.seen.lock().unwrap().clients.is_empty() {
        assert!(Instant::now() < patience, "the client has not gone");
        std::thread::sleep(Duration::from_millis(1));
    }
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

    // More in flight than all buffers hold, and nobody looks.
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

/// A memory node that is being killed has accepted connections and answers none: its clients come again.
#[test]
fn a_memory_node_that_hangs_up_without_a_word_is_worth_another_attempt() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = TcpAddress::internet(listener.local_addr().unwrap());
    let ends = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    ends.join().unwrap();
    assert!(error.is_retryable(), "{error}");
}

/// Threads that look for more before they sleep tell how often that was worth it; of a client that comes rarely it is not.
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
