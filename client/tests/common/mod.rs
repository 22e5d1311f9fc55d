//! Shared by the tests: keys of both kinds, tables whose answers can be checked, and memory nodes
//! in other threads and processes.
#![allow(dead_code, reason = "each test uses its share")]

use std::fs;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpcache_client::{
    AsKey, BuildKeys, ByteKeys, ClientConfig, ClientError, KeyKind, KeySpace, Loaded, RecordShape,
    TableClient, TableName, TableParameters, U64Keys,
};
use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, ShmAddress};
use fpcache_fabric::tcp::TcpAddress;
use fpcache_fabric::{
    ClientId, Export, Handled, HugePages, OneRegion, RegionName, Service, Serving, SharedMemory, Work,
};
use fpcache_memserver::{Daemon, DaemonConfig, MemoryNode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// How long a test waits for something that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The configuration of clients whose deadline is not what a test is about.
pub fn patient() -> ClientConfig {
    ClientConfig::default().with_deadline(PATIENCE)
}

/// Waits for something that other threads do; not for ever, so that a test that fails ends.
pub fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a call whose first sending is answered only once `may_answer` is set: as soon as the
/// request was sent again, however long that takes.
pub fn set_once_sent_again<K: TestKeys, R>(
    client: &TableClient<K>,
    may_answer: &AtomicBool,
    call: impl FnOnce() -> R,
) -> R {
    let (before, is_over) = (client.counters().resent, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while client.counters().resent == before && !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            may_answer.store(true, Ordering::Relaxed);
        });
        let result = call();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// The value of `key` in the data set `edition`, `len` bytes long.
pub fn value_of(key: u64, edition: u64, len: usize) -> Vec<u8> {
    let mut state = key ^ edition.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        value.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    value.truncate(len);
    value
}

/// Keys of one kind that stand for numbers, so that one test does for every kind.
pub trait TestKeys: BuildKeys<Owned: AsKey<Self>> {
    /// The key of a number: greater numbers have greater keys.
    fn key(number: u64) -> Self::Owned;

    /// The number of a key.
    fn number(key: &Self::Key) -> u64;

    /// The shape of records with these keys and values of `value_bytes` bytes; `None` where they
    /// vary from 0 to 100.
    fn shape(value_bytes: Option<u32>) -> RecordShape;

    /// The parameters of a table with such keys and values of eight bytes.
    fn parameters() -> TableParameters {
        Self::parameters_of(Some(8))
    }

    /// As [`parameters`](Self::parameters), with values of `value_bytes` bytes.
    fn parameters_of(value_bytes: Option<u32>) -> TableParameters {
        TableParameters { shape: Self::shape(value_bytes), ..TableParameters::default() }
    }
}

/// Where values vary, they have no more bytes.
const MOST_VALUE_BYTES: u32 = 100;

impl TestKeys for U64Keys {
    fn key(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }

    fn shape(value_bytes: Option<u32>) -> RecordShape {
        let room = 8 + value_bytes.unwrap_or(MOST_VALUE_BYTES);
        RecordShape { key_bytes: Some(8), value_bytes, room }
    }
}

impl TestKeys for ByteKeys {
    /// Keys of 2 to 57 bytes: after a first byte of its own, each 256th of the numbers has up to 48
    /// bytes that say nothing; then the rest of the number without the zeros at its end. So there
    /// are long prefixes that keys share, keys that are prefixes of others, and zero bytes.
    fn key(number: u64) -> Vec<u8> {
        let [first, rest @ ..] = number.to_be_bytes();
        let filler = "/".repeat(usize::from(first % 4) * 16);
        let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        [b"k", &[first][..], filler.as_bytes(), &rest[..end]].concat()
    }

    fn number(key: &[u8]) -> u64 {
        let first = key[1];
        let rest = &key[2 + usize::from(first % 4) * 16..];
        let mut bytes = [0; 8];
        bytes[0] = first;
        bytes[1..][..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(bytes)
    }

    fn shape(value_bytes: Option<u32>) -> RecordShape {
        RecordShape { key_bytes: None, value_bytes, room: 57 + value_bytes.unwrap_or(MOST_VALUE_BYTES) }
    }
}

/// Makes tests of functions that have the kind of keys as their parameter, for both kinds.
#[macro_export]
macro_rules! for_both_kinds_of_keys {
    ($($test:ident),+ $(,)?) => {
        mod integer_keys {
            $(#[test] fn $test() { super::$test::<fpcache_client::U64Keys>(); })+
        }
        mod byte_keys {
            $(#[test] fn $test() { super::$test::<fpcache_client::ByteKeys>(); })+
        }
    };
}

/// The value of the key of `number` in a table of this shape, in the data set `edition`.
pub fn value_in(shape: &RecordShape, number: u64, edition: u64) -> Vec<u8> {
    let vary = (number ^ edition) % u64::from(MOST_VALUE_BYTES + 1);
    value_of(number, edition, shape.value_bytes.map_or(vary as usize, |bytes| bytes as usize))
}

/// Loads the keys of `numbers` with the values of `edition`.
pub fn load<K: TestKeys>(
    client: &TableClient<K>,
    parameters: TableParameters,
    numbers: impl IntoIterator<Item = u64>,
    edition: u64,
) -> Result<Loaded, ClientError> {
    let mut load = client.load(parameters, 0)?;
    for number in numbers {
        load.push(K::key(number), &value_in(&parameters.shape, number, edition))?;
    }
    load.finish()
}

/// Distinct ascending keys without any pattern a line would follow: numbers mixed by a bijection
/// (the finaliser of SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
pub fn scattered(count: u64) -> Vec<u64> {
    let mix = |i: u64| {
        let i = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let i = (i ^ i >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        i ^ i >> 31
    };
    let mut keys: Vec<u64> = (1..=count).map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    keys.sort_unstable();
    keys
}

/// A directory for sockets, removed with everything in it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fpcache-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("node.sock")
    }

    /// Where a memory node in another process listens for clients that read over sockets.
    pub fn other_socket(&self) -> PathBuf {
        self.0.join("tcp.sock")
    }

    pub fn address(&self) -> ShmAddress {
        ShmAddress::at_path(self.socket()).expect("an absolute path")
    }

    pub fn url(&self) -> String {
        self.address().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port at which nobody listens, and which nobody else is given as long as the socket is there:
/// only who asks for this very port gets it.
pub fn free_port() -> (OwnedFd, u16) {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let bound: SocketAddrV4 =
        rustix::net::getsockname(&socket).expect("bound").try_into().expect("of this family");
    (socket, bound.port())
}

/// The name of the region that clients ask for unless told.
pub fn region_name() -> RegionName {
    RegionName::new(TableName::default().as_str()).expect("short")
}

/// How to connect to that region without a client.
pub fn options() -> ConnectOptions {
    ConnectOptions { region: region_name(), ..Default::default() }
}

/// A memory node on a thread of this process, reached over shared memory as one in another process
/// would be.
pub struct ThreadNode<K: TestKeys = U64Keys> {
    pub directory: Directory,
    pub region: Arc<SharedMemory>,
    serving: Option<Serving>,
    keys: PhantomData<K>,
}

impl<K: TestKeys> ThreadNode<K> {
    pub fn start(capacity: usize) -> Self {
        Self::serving(capacity, |node| node)
    }

    /// With what `service` makes of the memory node.
    pub fn serving<S: Service + 'static>(capacity: usize, service: impl FnOnce(MemoryNode<K>) -> S) -> Self {
        let directory = Directory::new();
        let (region, fd) = SharedMemory::create_memfd("test", capacity, HugePages::No).expect("memory");
        let region = Arc::new(region);
        let node = MemoryNode::<K>::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
        let export = Export::new(&region, fd, 1).expect("a descriptor");
        let listener = Listener::bind(&directory.address(), ListenOptions::default());
        let service = OneRegion::new(region_name(), export, service(node));
        let serving = listener.expect("a free address").spawn(service).expect("a thread");
        Self { directory, region, serving: Some(serving), keys: PhantomData }
    }

    pub fn client(&self) -> TableClient<K> {
        self.client_with(patient())
    }

    pub fn client_with(&self, config: ClientConfig) -> TableClient<K> {
        TableClient::connect_with(&self.directory.url(), config).expect("the memory node listens")
    }

    /// Ends the memory node; its directory stays.
    pub fn stop(&mut self) {
        drop(self.serving.take());
    }
}

/// A memory node whose requests are handled by this.
pub struct Meddled<K: TestKeys, F>(MemoryNode<K>, F);

impl<K: TestKeys, F> Meddled<K, F>
where
    F: FnMut(&mut MemoryNode<K>, ClientId, &[u8], &mut Vec<u8>) -> Handled + Send,
{
    pub fn new(node: MemoryNode<K>, handle: F) -> Self {
        Self(node, handle)
    }
}

impl<K: TestKeys, F> Service for Meddled<K, F>
where
    F: FnMut(&mut MemoryNode<K>, ClientId, &[u8], &mut Vec<u8>) -> Handled + Send,
{
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        (self.1)(&mut self.0, client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.0.next_reply(reply)
    }

    fn work(&mut self) -> Work {
        self.0.work()
    }

    fn disconnected(&mut self, client: ClientId) {
        self.0.disconnected(client);
    }
}

const ADDRESS: &str = "FPCACHE_CLIENT_TEST_ADDRESS";
const SOCKET: &str = "FPCACHE_CLIENT_TEST_SOCKET";
const CAPACITY: &str = "FPCACHE_CLIENT_TEST_CAPACITY";
const KEYS: &str = "FPCACHE_CLIENT_TEST_KEYS";

/// The test that [`ProcessNode`] starts in a second process. Each test file that uses it has one of
/// this name, which calls [`be_a_memory_node`].
const PART: &str = "played_by_another_process";

/// Serves as a memory node until a signal comes, if this process was started for that.
pub fn be_a_memory_node() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let capacity = std::env::var(CAPACITY).expect("is set with the address");
    let mut config = DaemonConfig {
        capacity: capacity.parse().expect("a number"),
        exit_with_parent: Some(std::os::unix::process::parent_id()),
        sockets: std::env::var(SOCKET)
            .ok()
            .map(|path| TcpAddress::at_path(path).expect("a path"))
            .into_iter()
            .collect(),
        ..DaemonConfig::at(address.parse().expect("an address"))
    };
    config.first.keys = match std::env::var(KEYS).expect("is set with the address").as_str() {
        U64Keys::NAME => KeyKind::U64,
        _ => KeyKind::Bytes,
    };
    Daemon::open(&config).expect("starts").serve().expect("serves");
}

/// A memory node in a process of its own, killed when dropped.
#[derive(Debug)]
pub struct ProcessNode {
    pub child: Child,
}

impl ProcessNode {
    /// Starts one for keys of this kind and waits until it lets clients in.
    pub fn start<K: TestKeys>(directory: &Directory, capacity: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", PART, "--nocapture"])
            .env(ADDRESS, directory.url())
            .env(SOCKET, directory.other_socket())
            .env(CAPACITY, capacity.to_string())
            .env(KEYS, K::NAME)
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let begun = Instant::now();
        while let Err(error) = TableClient::<K>::connect_with(&directory.url(), ClientConfig::default()) {
            assert!(error.is_retryable(), "{error}");
            assert!(begun.elapsed() < PATIENCE, "{error}");
            assert!(child.try_wait().expect("a child").is_none(), "the memory node ended at once");
            thread::sleep(Duration::from_millis(2));
        }
        Self { child }
    }

    /// Sends a signal to it, and to no other process.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .expect("it has not been waited for");
    }

    /// Keeps it from running until it gets `Signal::CONT`.
    pub fn pause(&self) {
        use rustix::process::{Pid, Signal, WaitOptions, waitpid};
        self.signal(Signal::STOP);
        // The signal takes effect at its time: wait until the process says that it has stopped.
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        assert!(stopped.expect("a child").is_some_and(|(_, status)| status.stopped()));
    }

    /// Kills it as `kill -9` does, and waits until the operating system has cleaned up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ProcessNode {
    fn drop(&mut self) {
        self.kill();
    }
}
