//! The places of a memory node's data and region, and its process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fpcache_client::KeySpace;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_fabric::{Access, SharedMemory};
use fpcache_memserver::durability::{FileDisk, SyncPolicy};
use fpcache_memserver::files::Folders;
use fpcache_memserver::store::{self, Background, Memories, Startup};
use rustix::process::{Pid, Signal, kill_process};

use super::support;
use super::tables::CAPACITY;

/// Where a memory node listens and keeps its data.
pub(super) struct Place {
    pub(super) folder: tempfile::TempDir,
    /// Where the region lies, if not there.
    pub(super) region: Option<tempfile::TempDir>,
    pub(super) sync: SyncPolicy,
    /// Kind of the keys.
    pub(super) keys: &'static str,
    pub(super) reached: Reached,
}

/// How its clients reach a memory node.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reached {
    SharedMemory,
    Sockets,
    /// By network cards, at this port.
    #[cfg(feature = "rdma")]
    Cards(u16),
}

impl Place {
    pub(super) fn new<K: KeySpace>(sync: &str, region: Option<&str>) -> Self {
        let region = region.map(|within| tempfile::tempdir_in(within).unwrap());
        let (folder, sync) = (tempfile::tempdir().unwrap(), sync.parse().unwrap());
        Self { folder, region, sync, keys: K::NAME, reached: Reached::SharedMemory }
    }

    /// How many times as long a round takes: over cards in a guest a connection alone takes as long
    /// as a round elsewhere.
    pub(super) fn patience(&self) -> u64 {
        match self.reached {
            Reached::SharedMemory | Reached::Sockets => 1,
            #[cfg(feature = "rdma")]
            Reached::Cards(_) => 10,
        }
    }

    pub(super) fn over(self, reached: Reached) -> Self {
        Self { reached, ..self }
    }

    pub(super) fn url(&self) -> String {
        let socket = self.folder.path().join("node.sock");
        match self.reached {
            Reached::SharedMemory => format!("shm://{}", socket.display()),
            Reached::Sockets => format!("tcp+unix://{}", socket.display()),
            #[cfg(feature = "rdma")]
            Reached::Cards(port) => format!("rdma://127.0.0.1:{port}"),
        }
    }

    /// What the memory node is told.
    pub(super) fn folders(&self) -> Folders {
        let data = self.folder.path().join("data");
        Folders { region: self.region.as_ref().map_or_else(|| data.clone(), |r| r.path().to_owned()), data }
    }

    /// Where the files of its table lie.
    pub(super) fn table(&self) -> Folders {
        let Folders { data, region } = self.folders();
        Folders { data: data.join("tables/default"), region: region.join("tables/default") }
    }

    pub(super) fn command(&self) -> Command {
        let other = std::env::var_os("FPCACHE_MEMSERVER");
        let Folders { data, region } = self.folders();
        let mut command = match &other {
            Some(program) => Command::new(program),
            None => support::program(),
        };
        match &other {
            Some(_) => command.arg("--exit-with-parent").arg("--data-dir").arg(data),
            None => command
                .args(["memory-node", "--exit-with-parent", &std::process::id().to_string(), "--store-dir"])
                .arg(data),
        };
        command.args(["--listen", &self.url(), "--capacity", &CAPACITY.to_string()]);
        command
            .args(["--fsync", &self.sync.to_string(), "--keys", self.keys])
            .arg("--region-dir")
            .arg(region);
        command
    }

    /// Starts a memory node, which need not get far.
    pub(super) fn begin(&self) -> Node {
        Node(self.command().stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Starts a memory node and waits until it listens.
    pub(super) fn start(&self) -> Node {
        let mut node = self.begin();
        let output = node.0.stdout.take().unwrap();
        let last = |line: &String| line == "ready" || line.starts_with("  next ");
        let ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| last(&line));
        assert!(ready, "the memory node ended: {:?}", node.0.wait());
        node
    }

    /// What a restart of the machine leaves, as far as a test can have it: the files of log and
    /// snapshots.
    pub(super) fn lose_memory(&self) {
        fs::remove_file(self.table().region_file()).unwrap();
        fs::remove_file(self.table().notes_file()).unwrap();
    }

    /// Goes on with what a killed memory node has left, in this process, and checks every byte of
    /// it.
    pub(super) fn audit<K: NumberedKeys>(&self) {
        let folders = self.table();
        let open = |path: PathBuf| Arc::new(SharedMemory::open_file(&path, Access::ReadWrite).unwrap().0);
        let (region, recovery_area) = (open(folders.region_file()), open(folders.notes_file()));
        let memories = Memories::of_files(region, recovery_area).unwrap();
        let startup = Startup {
            sync: self.sync,
            ring_bytes: store::RING_BYTES,
            boot: store::boot_id(),
            incarnation: 77,
            lineage: 77,
            node: 0,
            now: Instant::now(),
        };
        let disk = FileDisk::open(&folders.data).unwrap();
        assert_eq!(store::why_unusable(&memories, &disk, &startup).unwrap(), None);
        let begun = store::resume::<K, _, _>(memories, disk, &startup, Background::Inline);
        let (node, recovery) = begun.unwrap();
        let audit = node.audit().unwrap();
        assert!(audit.is_some(), "a table is there: {recovery}");
    }
}

/// A memory node's process; killed if the test fails.
pub(super) struct Node(pub(super) Child);

impl Node {
    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub(super) fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
