//! What the tests share: tables whose answers can be checked, and memory nodes in other threads and processes.
#![allow(dead_code, reason = "each test uses its share")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fpcache::key_space::U64Keys;
use fpcache_client::{Client, ClientConfig, ClientError, Loaded, TableParameters};
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{HugePages, Serving, SharedMemory};
use fpcache_memserver::{Daemon, DaemonConfig, MemoryNode};

/// How long a test waits for something that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

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

/// Loads `keys` with the values of `edition`.
pub fn load(
    client: &Client,
    parameters: TableParameters,
    keys: impl IntoIterator<Item = u64>,
    edition: u64,
) -> Result<Loaded, ClientError> {
    let mut load = client.load(parameters, 0)?;
    for key in keys {
        load.push(key, &value_of(key, edition, parameters.value_bytes as usize))?;
    }
    load.finish()
}

/// Distinct ascending keys without any pattern a line would follow: numbers mixed by a bijection (the finaliser of
/// SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
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

/// A memory node on a thread of this process, reached over shared memory as one in another process would be.
pub struct ThreadNode {
    pub directory: Directory,
    pub region: Arc<SharedMemory>,
    serving: Option<Serving>,
}

impl ThreadNode {
    pub fn start(capacity: usize) -> Self {
        let directory = Directory::new();
        let (region, fd) = SharedMemory::create_memfd("test", capacity, HugePages::No).expect("memory");
        let region = Arc::new(region);
        let node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
        let listener =
            Listener::bind(&directory.address(), Arc::clone(&region), fd, ListenOptions::default());
        let serving = listener.expect("a free address").spawn(node).expect("a thread");
        Self { directory, region, serving: Some(serving) }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.directory.url()).expect("the memory node listens")
    }

    pub fn client_with(&self, config: ClientConfig) -> Client {
        Client::connect_with(&self.directory.url(), config).expect("the memory node listens")
    }

    /// Ends the memory node; its directory stays.
    pub fn stop(&mut self) {
        drop(self.serving.take());
    }
}

const ADDRESS: &str = "FPCACHE_CLIENT_TEST_ADDRESS";
const CAPACITY: &str = "FPCACHE_CLIENT_TEST_CAPACITY";

/// The test that [`ProcessNode`] starts in a second process. Each test file that uses it has one of this name, which
/// calls [`be_a_memory_node`].
const PART: &str = "played_by_another_process";

/// Serves as a memory node until a signal comes, if this process was started for that.
pub fn be_a_memory_node() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let capacity = std::env::var(CAPACITY).expect("is set with the address");
    let config = DaemonConfig {
        capacity: capacity.parse().expect("a number"),
        exit_with_parent: true,
        ..DaemonConfig::at(address.parse().expect("an address"))
    };
    Daemon::start(&config).expect("starts").serve().expect("serves");
}

/// A memory node in a process of its own, killed when dropped.
#[derive(Debug)]
pub struct ProcessNode {
    pub child: Child,
}

impl ProcessNode {
    /// Starts one and waits until it lets clients in.
    pub fn start(directory: &Directory, capacity: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", PART, "--nocapture"])
            .env(ADDRESS, directory.url())
            .env(CAPACITY, capacity.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let begun = Instant::now();
        while let Err(error) = Client::connect(&directory.url()) {
            assert!(error.is_retryable(), "{error}");
            assert!(begun.elapsed() < PATIENCE, "{error}");
            assert!(child.try_wait().expect("a child").is_none(), "the memory node ended at once");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { child }
    }

    /// Sends a signal to it, and to nobody else.
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
