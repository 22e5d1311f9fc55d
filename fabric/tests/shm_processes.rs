//! Two processes: death in the middle of a request, stale and live sockets, versions, rights, and
//! idleness.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache_fabric::shm::{
    ConnectOptions, ListenError, ListenOptions, Listener, PROTOCOL_VERSION, ShmAddress, connect,
};
use fpcache_fabric::{
    Batch, ClientId, Connection, Deadline, Endpoint, ErrorKind, Export, FabricError, Handled, HugePages,
    OneRegion, RINGS, RegionName, RemoteAddr, Service, Serving, SharedMemory, StopHandle,
};

use service::TestService;

/// Which part a re-executed test binary plays, and at which socket.
const PART: &str = "FPCACHE_FABRIC_TEST_PART";
const SOCKET: &str = "FPCACHE_FABRIC_TEST_SOCKET";

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn address(directory: &Path) -> ShmAddress {
    ShmAddress::at_path(directory.join("node.sock")).unwrap()
}

/// A service with one region, of the empty name, in this life.
fn with_region<S: Service>(incarnation: u64, service: S) -> OneRegion<S> {
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 16, HugePages::No).unwrap();
    OneRegion::new(RegionName::default(), Export::new(&region, fd, incarnation).unwrap(), service)
}

#[derive(Debug, PartialEq)]
enum Event {
    Connected(ClientId),
    Disconnected(ClientId),
    Handling(ClientId),
    Rejected(String),
}

/// The test service, telling what happens to it.
struct Observed {
    events: Sender<Event>,
    inner: TestService,
}

impl Service for Observed {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.events.send(Event::Handling(client)).unwrap();
        self.inner.handle(client, request, reply)
    }

    fn connected(&mut self, client: ClientId, _: &[u8]) {
        self.events.send(Event::Connected(client)).unwrap();
    }

    fn disconnected(&mut self, client: ClientId) {
        // At the end of a test there is no listener any more.
        let _ = self.events.send(Event::Disconnected(client));
    }

    fn rejected(&mut self, error: &FabricError) {
        self.events.send(Event::Rejected(error.to_string())).unwrap();
    }
}

fn observed(address: &ShmAddress, options: ListenOptions) -> (Serving, Receiver<Event>) {
    let (events, seen) = channel();
    let service = Observed { events, inner: TestService::default() };
    let listener = Listener::bind(address, options).unwrap();
    (listener.spawn(with_region(78, service)).unwrap(), seen)
}

fn next(events: &Receiver<Event>) -> Event {
    events.recv_timeout(Duration::from_secs(20)).expect("an event")
}

/// Starts this test binary again to play one part of `played_by_another_process`.
fn play(part: &str, address: &ShmAddress) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "played_by_another_process", "--nocapture"])
        .env(PART, part)
        .env(SOCKET, address.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test of its own: what the second process does when another test has started it.
#[test]
fn played_by_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let address: ShmAddress = std::env::var(SOCKET).unwrap().parse().unwrap();
    match part.as_str() {
        "client that is killed" => {
            let connection = connect(&address, ConnectOptions::default()).unwrap();
            // Sleeps until it is killed: the service takes 200 ms.
            let _ = connection.call(&[TestService::SLEEP, 200], &mut Vec::new(), Deadline::NONE);
            std::thread::sleep(Duration::from_secs(60));
        }
        "memory node" => {
            let mut listener = Listener::bind(&address, ListenOptions::default()).unwrap();
            let mut service = with_region(77, TestService::default());
            listener.serve(&mut service, &StopHandle::new().unwrap()).unwrap();
        }
        other => panic!("unknown part {other}"),
    }
}

#[test]
fn a_client_killed_in_a_request_is_dropped_and_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, events) = observed(&address, ListenOptions::default());
    let mut child = play("client that is killed", &address);
    let Event::Connected(victim) = next(&events) else { panic!("connects first") };
    assert_eq!(next(&events), Event::Handling(victim));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(next(&events), Event::Disconnected(victim));

    let connection = connect(&address, ConnectOptions::default()).unwrap();
    let Event::Connected(other) = next(&events) else { panic!("connects") };
    assert_ne!(other, victim);
    let mut reply = Vec::new();
    connection.call(&[TestService::ECHO, 1], &mut reply, limit()).unwrap();
    assert_eq!(reply, [1]);
}

#[test]
fn a_killed_memory_node_is_noticed_and_its_socket_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let mut child = play("memory node", &address);
    let patience = Instant::now() + Duration::from_secs(20);
    let connection = loop {
        match connect(&address, ConnectOptions::default()) {
            Ok(connection) => break connection,
            Err(error) => assert!(Instant::now() < patience, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(connection.node_process(), Some(child.id()));
    assert_eq!(connection.incarnation(), 77);
    match Listener::bind(&address, ListenOptions::default()) {
        Err(error @ ListenError::InUse { .. }) => {
            assert!(error.to_string().contains(&format!("process {}", child.id())), "{error}");
        }
        other => panic!("{other:?}"),
    }

    let mut endpoint = connection.endpoint();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    // Killed in the middle of a request: the waiting call returns.
    let error = loop {
        if let Err(error) = connection.call(&[TestService::SLEEP, 20], &mut Vec::new(), limit()) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Reconnect, "{error}");
    killer.join().unwrap();
    while connection.is_alive() {
        assert!(Instant::now() < patience, "is_alive stays true");
        std::thread::yield_now();
    }
    let mut batch = Batch::new();
    batch.read(RemoteAddr::region(0), 8);
    assert_eq!(endpoint.run(&mut batch).unwrap_err().kind(), ErrorKind::Reconnect);

    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
    let (_serving, _events) = observed(&address, ListenOptions::default());
    assert_eq!(connect(&address, ConnectOptions::default()).unwrap().incarnation(), 78);
}

#[test]
fn errors_of_addresses_name_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    assert!(error.to_string().contains("start one that listens there"), "{error}");
    assert!(error.is_retryable());

    std::fs::write(address.socket_path().unwrap(), "a file").unwrap();
    let error = Listener::bind(&address, ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("exists and is not a socket"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");

    // A listener without our lock is not displaced either.
    let foreign = ShmAddress::at_path(directory.path().join("foreign.sock")).unwrap();
    let _listener = UnixListener::bind(foreign.socket_path().unwrap()).unwrap();
    let error = Listener::bind(&foreign, ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    // It never welcomes a client.
    let deadline = Deadline::after(Duration::from_millis(30));
    let error = connect(&foreign, ConnectOptions { deadline, ..Default::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
}

#[test]
fn a_stopped_listener_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, _events) = observed(&address(directory.path()), ListenOptions::default());
    assert!(std::fs::read_dir(directory.path()).unwrap().count() > 0);
    serving.stop().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn another_version_is_refused_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, events) = observed(&address, ListenOptions::default());
    let announce_version = PROTOCOL_VERSION + 1;
    let options = ConnectOptions { announce_version, ..Default::default() };
    let error = connect(&address, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    let Event::Rejected(text) = next(&events) else { panic!("a rejection") };
    for text in [error.to_string(), text] {
        assert!(text.contains(&format!("version {PROTOCOL_VERSION}")), "{text}");
        assert!(text.contains(&format!("version {announce_version}")), "{text}");
        assert!(text.contains("install the same version"), "{text}");
    }
}

#[test]
fn more_clients_than_the_maximum_are_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, events) = observed(&address, ListenOptions { max_clients: 1, ..Default::default() });
    let first = connect(&address, ConnectOptions::default()).unwrap();
    let error = connect(&address, ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, FabricError::TooManyClients { max: 1, .. }), "{error}");
    let endpoint = first.endpoint();
    drop(first);
    assert!(endpoint.area(RINGS).is_some());
    drop(endpoint);
    let seen: Vec<_> = (0..3).map(|_| next(&events)).collect();
    assert!(matches!(seen[2], Event::Disconnected(_)), "{seen:?}");
    connect(&address, ConnectOptions::default()).unwrap();
}

#[test]
fn strangers_and_slow_greeters_do_not_hold_up_others() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, events) = observed(&address, ListenOptions::default());
    let path = address.socket_path().unwrap();
    let _silent = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut stranger = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.else\r\n\r\n").unwrap();
    let connection = connect(&address, ConnectOptions::default()).unwrap();
    connection.call(&[TestService::ECHO], &mut Vec::new(), limit()).unwrap();
    assert!(matches!(next(&events), Event::Rejected(text) if text.contains("does not speak")));
}

/// Nothing was told of them.
#[test]
fn clients_that_greet_too_slowly_or_crowd_each_other_out_are_told_of() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, events) = observed(&address, ListenOptions::default());
    let connect = || UnixStream::connect(address.socket_path().unwrap()).unwrap();
    let told = || match next(&events) {
        Event::Rejected(text) => text,
        other => panic!("{other:?}"),
    };
    // More than may be there at once beside the one that is being accepted.
    let crowd: Vec<UnixStream> = (1..Listener::GREETING_DESCRIPTORS).map(|_| connect()).collect();
    let text = told();
    assert!(text.contains("too many others had not greeted"), "{text}");
    drop(crowd);
    let mut slow = connect();
    slow.write_all(b"f").unwrap();
    // One that came before the crowd was seen to leave may be crowded out.
    let mut text = told();
    while text.contains("too many others") {
        slow = connect();
        slow.write_all(b"f").unwrap();
        text = told();
    }
    assert!(text.contains("did not greet in time"), "{text}");
}

#[test]
fn the_region_descriptor_of_a_client_cannot_be_written_through() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (region, fd) = SharedMemory::create_memfd("region", 1 << 16, HugePages::No).unwrap();
    let export = Export::new(&region, fd.as_fd(), 1).unwrap();
    assert_eq!(
        rustix::fs::fstat(&fd).unwrap().st_mode & 0o777,
        0o400,
        "nobody can open it for writing again"
    );
    let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
    let service = OneRegion::new(RegionName::default(), export, TestService::default());
    let _serving = listener.spawn(service).unwrap();
    let _connection = connect(&address, ConnectOptions::default()).unwrap();
    // Descriptors of this process that name the region: the owner's is writable, the one handed out
    // is not.
    let mut read_only = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(number) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("2").trim();
        if target.to_string_lossy().contains("memfd:region") && flags.ends_with('0') {
            read_only += 1;
            let again = std::fs::File::open(entry.path()).unwrap();
            assert!(rustix::io::write(&again, &[1]).is_err());
            assert!(SharedMemory::map(&again, 4096, fpcache_fabric::Access::ReadWrite).is_err());
            assert!(rustix::fs::ftruncate(&again, 0).is_err());
        }
    }
    assert!(read_only >= 1, "the listener holds a read-only descriptor");
}

#[test]
fn hostile_rings_get_an_error_and_harm_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let (_serving, _events) = observed(&address, ListenOptions::default());
    let hostile = connect(&address, ConnectOptions::default()).unwrap();
    let honest = connect(&address, ConnectOptions::default()).unwrap();
    let mut endpoint = hostile.endpoint();
    let ring = |offset| RemoteAddr { area: RINGS, offset };
    let mut batch = Batch::new();
    let mut state = 1u64;
    for round in 1..500u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        batch.clear();
        // Lengths beyond the ring, checksums that do not fit, sleep words, replies overwritten.
        for offset in [0x08, 0x40, 0x80, 0x88, 0x90, 0xc0, 0x1000] {
            batch.write(ring(offset), &state.rotate_left(offset as u32).to_le_bytes());
        }
        batch.write(ring(0), &(round | state << 32).to_le_bytes());
        endpoint.run(&mut batch).unwrap();
        let mut reply = Vec::new();
        honest.call(&[TestService::ECHO, round as u8], &mut reply, limit()).unwrap();
        assert_eq!(reply, [round as u8]);
    }
    // A length beyond the ring, and a fitting length with a checksum that does not match.
    for (sequence, len) in [(9998, u64::from(u32::MAX)), (9999, 16)] {
        batch.clear();
        batch.write(ring(0x08), &1u64.to_le_bytes());
        batch.write(ring(0), &(len << 32 | sequence).to_le_bytes());
        endpoint.run(&mut batch).unwrap();
        let status = loop {
            // A sleeping memory node is not woken by the bare WRITE, but by an honest request.
            honest.call(&[TestService::ECHO], &mut Vec::new(), limit()).unwrap();
            batch.clear();
            let (tag, status) = (batch.read(ring(0x80), 8), batch.read(ring(0x90), 8));
            endpoint.run(&mut batch).unwrap();
            if batch.u64(tag) & 0xffff_ffff == sequence {
                break batch.u64(status);
            }
        };
        assert_eq!(status, 1, "the documented status of a damaged request");
    }
}

/// What the serving thread has used of a processor, as it reports itself.
struct Clocked {
    used: Arc<Mutex<Vec<Duration>>>,
}

impl Service for Clocked {
    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        self.used.lock().unwrap().push(Duration::new(now.tv_sec as u64, now.tv_nsec as u32));
        Handled::Now
    }
}

#[test]
fn an_idle_memory_node_and_its_clients_use_no_processor_time() {
    let directory = tempfile::tempdir().unwrap();
    let address = address(directory.path());
    let used = Arc::new(Mutex::new(Vec::new()));
    let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
    let _serving = listener.spawn(with_region(1, Clocked { used: Arc::clone(&used) })).unwrap();
    let connection = connect(&address, ConnectOptions::default()).unwrap();
    connection.call(&[], &mut Vec::new(), limit()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    connection.call(&[], &mut Vec::new(), limit()).unwrap();
    let used = used.lock().unwrap();
    let idle = used[1] - used[0];
    assert!(idle < Duration::from_millis(10), "{idle:?} of one idle second");
}
