//! Many regions at one address: which client gets which, who is turned away, and what happens to a
//! region's clients when it goes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use fpcache_fabric::shm::{
    ConnectOptions, ListenOptions, Listener, PROTOCOL_VERSION, ShmAddress, ShmConnection, connect,
};
use fpcache_fabric::{
    ClientId, Connection, Deadline, Endpoint, ErrorKind, Export, FabricError, Handled, HugePages, RegionName,
    RemoteAddr, Service, Serving, SharedMemory,
};

/// Replies with the name of its client's region; `drop` and a name gives that region up.
#[derive(Default)]
struct Regions {
    exports: BTreeMap<Vec<u8>, Export>,
    clients: BTreeMap<ClientId, Vec<u8>>,
    farewells: VecDeque<ClientId>,
}

impl Regions {
    /// With regions of these names, each as many pages long as its name, with the name's length in
    /// its first word.
    fn of(names: &[&[u8]]) -> Self {
        let mut regions = Self::default();
        for (i, name) in names.iter().enumerate() {
            let pages = name.len().max(1);
            let (region, fd) = SharedMemory::create_memfd("region", pages * 4096, HugePages::No).unwrap();
            region.store_relaxed(0, name.len() as u64).unwrap();
            regions.exports.insert(
                name.to_vec(),
                Export::new(&region, fd, 100 + i as u64).unwrap().with_creation(200 + i as u64),
            );
        }
        regions
    }
}

impl Service for Regions {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.exports.get(name).cloned()
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if let Some(name) = request.strip_prefix(b"drop ") {
            self.exports.remove(name);
            let theirs = self.clients.iter().filter(|(_, region)| *region == name);
            self.farewells.extend(theirs.map(|(client, _)| *client));
        }
        reply.extend_from_slice(self.clients.get(&client).map_or(b"nobody", Vec::as_slice));
        Handled::Now
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.farewells.pop_front()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.clients.insert(client, region.to_vec());
    }

    fn disconnected(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }
}

fn serve(directory: &Path, names: &[&[u8]]) -> (ShmAddress, Serving) {
    let address = ShmAddress::at_path(directory.join("node.sock")).unwrap();
    let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
    (address, listener.spawn(Regions::of(names)).unwrap())
}

fn to(address: &ShmAddress, name: &[u8]) -> Result<ShmConnection, FabricError> {
    let region = RegionName::new(name).unwrap();
    connect(address, ConnectOptions { region, ..Default::default() })
}

fn ask(connection: &ShmConnection, request: &[u8]) -> Result<Vec<u8>, FabricError> {
    let mut reply = Vec::new();
    connection.call(request, &mut reply, Deadline::after(Duration::from_secs(20)))?;
    Ok(reply)
}

#[test]
fn each_client_gets_the_region_it_names_and_an_unknown_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let names: [&[u8]; 4] = [b"", b"orders", &[0xff; RegionName::MAX], b"Orders"];
    let (address, _serving) = serve(directory.path(), &names);
    for (i, name) in names.into_iter().enumerate() {
        let connection = to(&address, name).unwrap();
        assert_eq!((connection.incarnation(), connection.creation()), (100 + i as u64, 200 + i as u64));
        assert_eq!(ask(&connection, b"").unwrap(), name);
        let mut word = [0];
        connection.endpoint().read_words(RemoteAddr::region(0), &mut word).unwrap();
        assert_eq!(word[0], name.len() as u64);
    }
    for unknown in [&b"order"[..], b"orders ", &[0xff; 63], b"\0"] {
        let error = to(&address, unknown).unwrap_err();
        let FabricError::NoSuchRegion { name, .. } = &error else { panic!("{error}") };
        assert_eq!(*name, unknown.escape_ascii().to_string());
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Invalid, false));
    }
}

#[test]
fn clients_of_a_region_that_goes_are_hung_up_on_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (address, _serving) = serve(directory.path(), &[b"", b"kept", b"gone"]);
    let lobby = to(&address, b"").unwrap();
    let (kept, gone) = (to(&address, b"kept").unwrap(), [to(&address, b"gone"), to(&address, b"gone")]);
    assert_eq!(ask(&lobby, b"drop gone").unwrap(), b"");
    let patience = Instant::now() + Duration::from_secs(20);
    for client in gone {
        let client = client.unwrap();
        while client.is_alive() {
            assert!(Instant::now() < patience, "it is not hung up on");
            std::thread::yield_now();
        }
        assert_eq!(ask(&client, b"").unwrap_err().kind(), ErrorKind::Reconnect);
    }
    assert_eq!(ask(&kept, b"").unwrap(), b"kept");
    assert!(matches!(to(&address, b"gone"), Err(FabricError::NoSuchRegion { .. })));
}

#[test]
fn greetings_of_other_versions_are_answered_whatever_follows_their_first_32_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (address, _serving) = serve(directory.path(), &[b""]);
    let greeting = |version: u32, name_bytes: u32| {
        let mut bytes = b"FPFABRIC".to_vec();
        bytes.extend([version.to_le_bytes(), name_bytes.to_le_bytes()].concat());
        bytes.extend([0; 16]);
        bytes
    };
    // Version 1 had zeros after the version; a later one may have anything there.
    for (version, rest) in [(1, 0), (PROTOCOL_VERSION + 1, u32::MAX)] {
        let mut socket = UnixStream::connect(address.socket_path().unwrap()).unwrap();
        socket.write_all(&greeting(version, rest)).unwrap();
        let mut welcome = [0; 80];
        socket.read_exact(&mut welcome).unwrap();
        let word = |at: usize| u32::from_le_bytes(welcome[at..at + 4].try_into().unwrap());
        assert_eq!((&welcome[..8], word(8), word(12)), (&b"FPFABRIC"[..], PROTOCOL_VERSION, 1));
    }
    // A name that no region can have.
    let mut socket = UnixStream::connect(address.socket_path().unwrap()).unwrap();
    socket.write_all(&greeting(PROTOCOL_VERSION, 65)).unwrap();
    assert_eq!(socket.read(&mut [0; 80]).unwrap(), 0, "it is hung up on");
    // A name that comes later than the rest.
    let mut socket = UnixStream::connect(address.socket_path().unwrap()).unwrap();
    let parts = greeting(PROTOCOL_VERSION, 3);
    for part in [&parts[..20], &parts[20..], b"a", b"bc"] {
        socket.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut welcome = [0; 80];
    socket.read_exact(&mut welcome).unwrap();
    assert_eq!(welcome[12], 4, "no such region");
}
