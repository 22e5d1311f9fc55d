//! Misbehaving peers over sockets: each costs the others nothing and the node little, and is told.

mod connections;
mod node;
mod requests;
mod said;
mod silence;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::suite::TestService;
use fpcache_fabric::shm::PROTOCOL_VERSION;
use fpcache_fabric::tcp::{
    ConnectOptions, HangUp, ListenOptions, Listener, SocketCounters, TcpAddress, TcpConnection, connect,
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
    /// Requests that the service has begun with.
    begun: u64,
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
        self.seen.lock().unwrap().begun += 1;
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
    let soon = Duration::from_secs(1);
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
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
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

    /// Waits until the service has begun with its first request.
    fn begins(&self) {
        let patience = Instant::now() + Duration::from_secs(60);
        while self.seen.lock().unwrap().begun == 0 {
            assert!(Instant::now() < patience, "no request comes");
            std::thread::sleep(Duration::from_millis(1));
        }
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

    /// Waits until a peer was hung up on or not let in for this reason, told in these words.
    fn tells(&self, reason: HangUp, words: &str) {
        let patience = Instant::now() + Duration::from_secs(60);
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

/// A request as the one that the socket came with sends it.
fn call(body: &[u8]) -> Vec<u8> {
    let sum = xxhash_rust::xxh3::xxh3_64(body).to_le_bytes();
    [head(8 + body.len() as u32, 0, 3), sum.to_vec(), body.to_vec()].concat()
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
