//! Memory nodes that fall silent, though their sockets stay.

use std::sync::atomic::AtomicUsize;

use super::*;
use fpcache_fabric::tcp::{Rights, Token, TokenSet};

/// What becomes of the connection of this number to a relay, from 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passed,
    /// It is passed on later, as over a distance.
    Late,
    /// Nothing of it is passed on.
    Held,
    /// It is closed at once.
    Closed,
}

/// Passes bytes on as long as they have this fate: the address before the memory node at `port`.
fn relay(port: u16, fate: impl Fn(usize) -> Fate + Send + Sync + 'static) -> TcpAddress {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = TcpAddress::internet(listener.local_addr().unwrap());
    let fate = Arc::new(fate);
    // Ends with its sockets, or with the process.
    std::thread::spawn(move || {
        for (number, socket) in listener.incoming().map_while(Result::ok).enumerate() {
            if fate(number) == Fate::Closed {
                continue;
            }
            let onwards = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let ends = [(socket.try_clone().unwrap(), onwards.try_clone().unwrap()), (onwards, socket)];
            for (mut from, mut to) in ends {
                let fate = Arc::clone(&fate);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(len @ 1..) = from.read(&mut bytes) {
                        match fate(number) {
                            Fate::Held => continue,
                            Fate::Late => std::thread::sleep(DISTANCE),
                            Fate::Passed | Fate::Closed => {}
                        }
                        if to.write_all(&bytes[..len]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

/// From one end of a relay to the other.
const DISTANCE: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(2);
/// Far more than it takes.
const LONG: Duration = Duration::from_secs(20);

/// A connection by way of a relay, of whose connections those below the number are held.
fn through_relay(node: &Node) -> (TcpConnection, Arc<AtomicUsize>) {
    let held = Arc::new(AtomicUsize::new(0));
    let below = Arc::clone(&held);
    let fate = move |number| if number < below.load(Ordering::Relaxed) { Fate::Held } else { Fate::Passed };
    let options = ConnectOptions { patience: PATIENCE, ..Default::default() };
    let connection = connect(&relay(node.port, fate), options).unwrap();
    connection.endpoint().read_words(RemoteAddr::region(0), &mut [0]).unwrap();
    connection.call(&[TestService::ECHO, 5], &mut Vec::new(), Deadline::after(LONG)).unwrap();
    (connection, held)
}

fn is_cut_by(connection: &TcpConnection, mut ask: impl FnMut() -> FabricError) {
    let begun = Instant::now();
    while connection.is_alive() {
        assert!(begun.elapsed() < LONG, "nobody has noticed");
        let error = ask();
        assert!(error.is_retryable(), "{error}");
    }
}

fn call_for(connection: &TcpConnection, patience: Duration) -> Result<(), FabricError> {
    connection.call(&[TestService::ECHO, 5], &mut Vec::new(), Deadline::after(patience))
}

/// Its time began anew with each call, which waited for less.
#[test]
fn a_memory_node_that_says_nothing_is_given_up_though_no_call_waits_so_long() {
    let node = Node::start(ListenOptions::default());
    let (connection, held) = through_relay(&node);
    held.store(usize::MAX, Ordering::Relaxed);
    is_cut_by(&connection, || call_for(&connection, PATIENCE / 8).unwrap_err());

    let (connection, held) = through_relay(&node);
    held.store(usize::MAX, Ordering::Relaxed);
    let mut endpoint = connection.endpoint();
    is_cut_by(&connection, || {
        endpoint.set_patience(PATIENCE / 8);
        endpoint.read_words(RemoteAddr::region(0), &mut [0]).unwrap_err()
    });
}

/// It had no patience but its own deadline.
#[test]
fn a_call_that_could_wait_for_long_is_told_that_the_memory_node_is_silent() {
    let node = Node::start(ListenOptions::default());
    let (connection, held) = through_relay(&node);
    held.store(usize::MAX, Ordering::Relaxed);
    let begun = Instant::now();
    let error = call_for(&connection, 2 * LONG).unwrap_err();
    assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
    assert!(begun.elapsed() < LONG && !connection.is_alive());
}

/// READs over other sockets went on, so that the connection was not given up, and no call was ever
/// answered again.
#[test]
fn a_socket_of_calls_that_is_silent_alone_is_given_up_too() {
    let node = Node::start(ListenOptions::default());
    let (connection, held) = through_relay(&node);
    held.store(1, Ordering::Relaxed);
    let mut endpoint = connection.endpoint();
    is_cut_by(&connection, || {
        if connection.is_alive() {
            endpoint.set_patience(LONG);
            let _ = endpoint.read_words(RemoteAddr::region(0), &mut [0]);
        }
        call_for(&connection, PATIENCE / 8).unwrap_err()
    });
}

/// A memory node hangs up on some of many newcomers, which had ended the whole client.
#[test]
fn a_socket_that_is_hung_up_on_while_it_joins_comes_again() {
    let node = Node::start(ListenOptions::default());
    let fate = |number| if (1..4).contains(&number) { Fate::Closed } else { Fate::Passed };
    let connection = connect(&relay(node.port, fate), ConnectOptions::default()).unwrap();
    let mut endpoint = connection.endpoint();
    endpoint.set_patience(LONG);
    endpoint.read_words(RemoteAddr::region(0), &mut [0]).unwrap();
    assert!(connection.is_alive());
}

/// A handshake takes longer there than a newcomer is left alone: they crowded each other out, again
/// and again.
#[test]
fn sockets_of_a_client_that_join_together_over_a_distance_all_come_in() {
    let token = Token::random().unwrap();
    let tokens = TokenSet::default().with(token, Rights::Write);
    let node = Node::start(ListenOptions { tokens, require_token: true, ..Default::default() });
    let options = ConnectOptions { token: Some(token), patience: LONG, ..Default::default() };
    let connection = connect(&relay(node.port, |_| Fate::Late), options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..120 {
            scope.spawn(|| {
                let mut endpoint = connection.endpoint();
                endpoint.set_patience(LONG);
                endpoint.read_words(RemoteAddr::region(0), &mut [0]).unwrap();
            });
        }
    });
    assert!(connection.is_alive());
}

/// READs on for longer than the memory node waits for a client that takes or sends nothing.
fn reads_on(connection: &TcpConnection, seen: &Mutex<Seen>) {
    let (mut endpoint, begun) = (connection.endpoint(), Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        if let Err(error) = endpoint.read_words(RemoteAddr::region(64), &mut [0]) {
            panic!("after {:?}: {error}; {:?}", begun.elapsed(), seen.lock().unwrap().rejected);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    call_for(connection, LONG).unwrap();
}

/// A request for a reply that no socket's buffer holds.
fn long_reply() -> Vec<u8> {
    [&[TestService::PRODUCE][..], &1_000_000u64.to_le_bytes()].concat()
}

/// Nobody took the reply before the next call, so the memory node hung up on the whole client.
#[test]
fn a_long_reply_to_a_call_that_was_given_up_costs_no_connection() {
    let node = Node::start(short());
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    let posted = connection.post(&long_reply(), Deadline::after(LONG)).unwrap();
    connection.give_up(posted);
    reads_on(&connection, &node.seen);
}

/// As above, by a call whose deadline passed while the memory node was busy.
#[test]
fn a_long_reply_that_comes_after_its_deadline_costs_no_connection() {
    let node = Node::start(short());
    let other = connect(&node.address, ConnectOptions::default()).unwrap();
    let connection = connect(&node.address, ConnectOptions::default()).unwrap();
    std::thread::scope(|scope| {
        let sleep = [TestService::SLEEP, 250];
        let slept = scope.spawn(move || other.call(&sleep, &mut Vec::new(), Deadline::after(LONG)));
        node.begins();
        let soon = Deadline::after(Duration::from_millis(20));
        let error = connection.call(&long_reply(), &mut Vec::new(), soon).unwrap_err();
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
        slept.join().unwrap().unwrap();
    });
    reads_on(&connection, &node.seen);
}

/// The half of a request that a unix socket's buffer had no room for was not sent before the next
/// call, so the memory node took the client for one that dribbles.
#[test]
fn the_rest_of_a_request_that_was_given_up_costs_no_connection() {
    let directory = tempfile::tempdir().unwrap();
    let address = TcpAddress::at_path(directory.path().join("node.sock")).unwrap();
    let (region, fd) = SharedMemory::create_memfd("region", REGION_BYTES, HugePages::No).unwrap();
    let export = Some(Export::new(&region, fd, 1).unwrap());
    let listener = Listener::bind(std::slice::from_ref(&address), short()).unwrap();
    let seen = Arc::<Mutex<Seen>>::default();
    let service =
        Watched { inner: TestService::default(), export, seen: Arc::clone(&seen), stalled: Vec::new() };
    let _serving = listener.spawn(service).unwrap();
    let connection = connect(&address, ConnectOptions::default()).unwrap();
    let request = [&[TestService::COUNT][..], &[7; 1_000_000]].concat();
    let posted = connection.post(&request, Deadline::after(LONG)).unwrap();
    connection.give_up(posted);
    reads_on(&connection, &seen);
}

/// The wait of the one socket counted as a silence of all.
#[test]
fn a_join_in_vain_costs_no_connection_whose_sockets_are_answered() {
    let node = Node::start(ListenOptions::default());
    let fate = |number| if number < 2 { Fate::Passed } else { Fate::Held };
    let options = ConnectOptions { patience: PATIENCE / 2, ..Default::default() };
    let connection = connect(&relay(node.port, fate), options).unwrap();
    let mut reader = connection.endpoint();
    reader.read_words(RemoteAddr::region(64), &mut [0]).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                reader.read_words(RemoteAddr::region(64), &mut [0])?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, FabricError>(())
        });
        let mut joining = connection.endpoint();
        joining.set_patience(LONG);
        let error = joining.read_words(RemoteAddr::region(64), &mut [0]).unwrap_err();
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
        reads.join().unwrap().unwrap();
    });
    assert!(connection.is_alive());
}

/// The time since its last answer, in which nothing was asked, counted as a silence.
#[test]
fn giving_nothing_up_costs_no_connection() {
    let node = Node::start(ListenOptions::default());
    let options = ConnectOptions { patience: Duration::from_secs(1), ..Default::default() };
    let connection = connect(&node.address, options).unwrap();
    let mut endpoint = connection.endpoint();
    endpoint.read_words(RemoteAddr::region(64), &mut [0]).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    endpoint.give_up();
    assert!(connection.is_alive());
    connection.endpoint().give_up();
    assert!(connection.is_alive());
}
