//! Connections: how many there are, whose they are, and how they end.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;

/// A socket file may be removed while the memory node lives: a connection that cannot have more
/// sockets is lost.
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

/// Passes bytes on, until it is told to hold them back, or to pass on one at a time.
struct Relay {
    address: TcpAddress,
    holds: Arc<AtomicBool>,
    drips: Arc<AtomicBool>,
}

impl Relay {
    fn to(port: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = TcpAddress::internet(listener.local_addr().unwrap());
        let (holds, drips) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_held, is_dripping) = (Arc::clone(&holds), Arc::clone(&drips));
        // Ends with its sockets, or with the process.
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let onwards = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (mut from, mut to) in
                    [(socket.try_clone().unwrap(), onwards.try_clone().unwrap()), (onwards, socket)]
                {
                    let (is_held, is_dripping) = (Arc::clone(&is_held), Arc::clone(&is_dripping));
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(len @ 1..) = from.read(&mut bytes) {
                            while is_held.load(Ordering::Relaxed) {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            let mut rest = &bytes[..len];
                            while let [first, after @ ..] = rest
                                && is_dripping.load(Ordering::Relaxed)
                            {
                                std::thread::sleep(Duration::from_millis(10));
                                let _ = to.write_all(&[*first]);
                                rest = after;
                            }
                            let _ = to.write_all(rest);
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { address, holds, drips }
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
fn a_call_ends_with_its_time_however_much_of_its_answer_keeps_coming() {
    let node = Node::start(ListenOptions::default());
    let relay = Relay::to(node.port);
    let connection = connect(&relay.address, ConnectOptions::default()).unwrap();
    let (mut endpoint, mut words) = (connection.endpoint(), [0; 512]);
    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
    relay.drips.store(true, Ordering::Relaxed);
    endpoint.set_patience(Duration::from_millis(300));
    let began = Instant::now();
    let error = endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap_err();
    assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
    // All of it would take forty.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Nor do many short answers make a long call.
    relay.drips.store(false, Ordering::Relaxed);
    endpoint.set_patience(Duration::from_millis(100));
    let ended = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        endpoint.read_words(RemoteAddr::region(0), &mut words).err()
    });
    assert!(matches!(ended, Some(FabricError::DeadlinePassed { .. })), "{ended:?}");
    assert!(connection.is_alive());
}

#[test]
fn what_begins_too_late_is_not_sent_and_costs_no_socket() {
    let node = Node::start(ListenOptions::default());
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let (mut endpoint, mut words) = (connection.endpoint(), [0; 8]);
    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
    endpoint.set_patience(Duration::ZERO);
    let before = endpoint.meter().snapshot();
    let errors = [
        endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap_err(),
        endpoint.load_after_reads(RemoteAddr::region(64)).unwrap_err(),
        endpoint.post(Batch::new()).map(drop).unwrap_err().error,
    ];
    for error in errors {
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
    }
    assert_eq!(endpoint.meter().snapshot(), before, "nothing was sent");
    assert!(endpoint.socket().is_some(), "the socket was left");
    endpoint.set_patience(Duration::from_secs(5));
    endpoint.read_words(RemoteAddr::region(0), &mut words).unwrap();
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
    node.tells(HangUp::TooMany, "the client at 127.0.0.1:");
    drop(first);
    let patience = Instant::now() + Duration::from_secs(60);
    while node.counters.connections() > 0 {
        assert!(Instant::now() < patience, "connections that were closed still count");
        std::thread::sleep(Duration::from_millis(1));
    }
    node.serves();
}

/// The maximum of connections was told, which was far away.
#[test]
fn where_descriptors_are_short_the_connections_that_there_are_are_told() {
    let descriptors = Descriptors::new(2);
    let node = Node::start(ListenOptions { max_connections: 9, descriptors, ..short() });
    let _both = [node.admitted(), node.admitted()];
    let error = connect(&node.address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::TooManyClients { max: 2, .. }), "{error}");
}

/// Connections that say nothing are a few whatever the number of threads, and take neither
/// connections nor descriptors from clients and tables.
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
    let patience = Instant::now() + Duration::from_secs(60);
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
    let patience = Instant::now() + Duration::from_secs(60);
    while node.counters.connections() > 0 || !node.seen.lock().unwrap().clients.is_empty() {
        assert!(Instant::now() < patience, "the client has not gone");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A memory node may end while a connection to it is being made, at any step: that is one that is
/// not there, not a failure of this machine's.
#[test]
fn a_memory_node_that_ends_while_it_is_connected_to_is_not_there() {
    // Nobody else is given the port as long as this socket, which does not listen, has it too.
    let reserved =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .unwrap();
    set_socket_reuseaddr(&reserved, true).unwrap();
    rustix::net::bind(&reserved, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ends: SocketAddr = rustix::net::getsockname(&reserved).unwrap().try_into().unwrap();
    let address = TcpAddress::internet(ends);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let comes_and_goes = || {
            while !is_over.load(Ordering::Relaxed) {
                // Closing it resets those that were not accepted.
                drop(std::net::TcpListener::bind(ends));
            }
        };
        scope.spawn(comes_and_goes);
        let (begun, mut other) = (Instant::now(), None);
        while begun.elapsed() < Duration::from_secs(3) && other.is_none() {
            let error = connect(&address, ConnectOptions::default()).unwrap_err();
            let is_one = matches!(error, FabricError::NoMemoryNode { .. } | FabricError::Disconnected { .. });
            other = Some(error).filter(|_| !is_one);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(other.is_none(), "{other:?}");
    });
}
