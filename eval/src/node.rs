//! A memory node as a child process of this program.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use fpcache_client::{BuildKeys, KeyKind, TableParameters};
use fpcache_datasets::count::human_bytes;
use fpcache_datasets::time;
use fpcache_fabric::HugePages;
use fpcache_memserver::daemon::raise_descriptor_limit;
use fpcache_memserver::{Daemon, DaemonConfig, ListenAddress};

use crate::leftovers::{ChildKind, EndedChild, TemporaryFolder};
use crate::pages::MemoryPages;
use crate::run::store::StoreArgs;
use crate::run::transport::Transport;
use crate::systems::server::ReservedPort;

const READY: &str = "ready";

/// A memory node in a process of its own, which ends with this handle, and with this process
/// however that ends.
#[derive(Debug)]
pub struct Node {
    child: EndedChild,
    /// Where it listens, in the order that was asked for.
    urls: Vec<String>,
    /// Bytes its region can have, and the pages of that.
    capacity: u64,
    pages: MemoryPages,
    /// Where its data lie, if it keeps them: removed after its end.
    _folder: Option<TemporaryFolder>,
}

/// What a memory node is started with.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions<'a> {
    /// Bytes of its region.
    pub capacity: u64,
    /// Tells the memory nodes of this process apart.
    pub ordinal: u32,
    /// Where it keeps its data, if it does.
    pub store: &'a StoreArgs,
    /// How long its threads look at sockets before they sleep, if not as long as the daemon's.
    pub spin: Option<Duration>,
    /// The pages of its region.
    pub pages: MemoryPages,
}

impl Node {
    /// Starts a memory node for keys of this kind with a region of `capacity` bytes, over shared
    /// memory, and waits until it listens. `ordinal` tells the memory nodes of this process apart.
    /// With a store it keeps its data in a new folder within, which goes with this handle.
    ///
    /// To be called by the main thread: the operating system ends the memory node with the thread
    /// that started it.
    pub fn start<K: BuildKeys>(capacity: u64, ordinal: u32, store: &StoreArgs) -> anyhow::Result<Self> {
        Self::start_over::<K>(
            &[Transport::Shm],
            NodeOptions { capacity, ordinal, store, spin: None, pages: MemoryPages::Huge },
        )
    }

    /// As [`start`](Self::start), reached in each of these ways.
    pub fn start_over<K: BuildKeys>(ways: &[Transport], options: NodeOptions<'_>) -> anyhow::Result<Self> {
        let NodeOptions { capacity, ordinal, store, spin, pages } = options;
        let (program, pid) =
            (std::env::current_exe().context("finding this program's own file")?, std::process::id());
        // Its ports are reserved until it listens.
        let mut ports = Vec::new();
        let mut address_of = |way: &Transport| address(*way, ordinal, &mut ports);
        let urls = ways.iter().map(&mut address_of).collect::<anyhow::Result<Vec<_>>>()?;
        let store = store.of_node(ordinal);
        let folder = store.store_dir.clone().map(TemporaryFolder::new);
        let mut command = Command::new(program);
        command.args(["memory-node", "--capacity", &capacity.to_string()]);
        urls.iter().for_each(|url| _ = command.args(["--listen", url]));
        command.args(["--keys", K::NAME, "--pages", pages.as_str()]);
        if let Some(spin) = spin {
            command.arg("--spin").arg(format!("{}us", spin.as_micros()));
        }
        if let Some(folder) = &store.store_dir {
            command.arg("--store-dir").arg(folder).args(["--fsync", &store.fsync.to_string()]);
        }
        command
            .args(["--exit-with-parent", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Out of reach of Ctrl-C, which may come twice: a second signal would end it before it has
            // removed its address. It ends by this process's signal, or its end.
            .process_group(0);
        let child = EndedChild::spawn(&mut command, ChildKind::EndsWithParent)
            .context("starting the memory node as a second process")?;
        let mut node = Self { child, urls, capacity, pages, _folder: folder };
        let mut line = String::new();
        if let Some(output) = node.child.take_stdout() {
            BufReader::new(output).read_line(&mut line).context("waiting for the memory node")?;
        }
        drop(ports);
        if line.trim_end() != READY {
            let status = node.child.ends_within(Duration::MAX).context("waiting for the memory node")?;
            let status = status.map(|status| status.to_string()).unwrap_or_default();
            bail!("the memory node ended before it was ready ({status}); its own message stands above");
        }
        eprintln!(
            "memory node: process {} at {}, up to {}",
            node.child.id(),
            node.urls.join(", "),
            human_bytes(capacity)
        );
        Ok(node)
    }

    /// Where it is reached, the first way that was asked for.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }

    /// Where it is reached, each way.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until no more of its region's pages are merged: it does that in the background, and
    /// lookups are slower before. A second and a half at least, for regions where it matters.
    pub fn wait_for_pages(&self) {
        /// Regions that are smaller take less than that, and it hardly shows.
        const LEAST: u64 = 64 << 20;
        const STEADY: Duration = Duration::from_millis(1500);
        const LONGEST: Duration = Duration::from_secs(60);
        if self.pages == MemoryPages::Ordinary || self.capacity < LEAST {
            return;
        }
        let (begun, mut grown, mut huge) = (Instant::now(), Instant::now(), self.huge_bytes());
        while grown.elapsed() < STEADY && begun.elapsed() < LONGEST {
            thread::sleep(Duration::from_millis(100));
            let now = self.huge_bytes();
            if now > huge {
                (grown, huge) = (Instant::now(), now);
            }
        }
    }

    /// Bytes of shared memory that its process has mapped in huge pages, as far as the operating
    /// system tells.
    fn huge_bytes(&self) -> u64 {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()));
        let maps = maps.unwrap_or_default();
        let of_huge = maps.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let kib = value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
            matches!(name, "ShmemPmdMapped" | "FilePmdMapped").then_some(kib << 10)
        });
        of_huge.sum()
    }

    /// Adds to an error that the memory node has ended, if so.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.child.ends_within(Duration::from_millis(200)) {
            Ok(Some(status)) => error.context(format!(
                "the memory node (process {}) ended during the run ({status}): start again, and see that the machine \
                 has the memory (the kernel's log names processes it had to kill)",
                self.child.id()
            )),
            _ => error,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Asked before it is killed, so that it removes its address.
        self.child.terminate();
        let _ = self.child.ends_within(Duration::from_secs(3));
    }
}

/// An address of this machine that nobody else has.
fn address(way: Transport, ordinal: u32, ports: &mut Vec<ReservedPort>) -> anyhow::Result<String> {
    let name = format!("fpcache-eval-{}-{ordinal}", std::process::id());
    let mut free_port = || -> anyhow::Result<SocketAddr> {
        ports.push(ReservedPort::new()?);
        Ok(ports[ports.len() - 1].address)
    };
    Ok(match way {
        Transport::Tcp => format!("tcp://{}", free_port()?),
        Transport::Rdma => format!("rdma://{}", free_port()?),
        Transport::Unix => format!("tcp+unix://{}", std::env::temp_dir().join(name).display()),
        Transport::Shm | Transport::Local => format!("shm://{name}"),
        modelled => bail!("{}: a modelled card has no memory node of its own", modelled.as_str()),
    })
}

/// What the memory node's process takes.
#[derive(Args, Debug)]
pub struct MemoryNodeArgs {
    /// Addresses to listen at
    #[arg(long, required = true)]
    pub listen: Vec<ListenAddress>,
    /// Bytes of the region
    #[arg(long)]
    pub capacity: u64,
    /// Kind of its keys
    #[arg(long, value_enum, default_value = "u64")]
    pub keys: KeysArg,
    /// Exit when the process of this id, the parent, does
    #[arg(long, value_name = "PID")]
    pub exit_with_parent: u32,
    /// Where it keeps its data, if it is durable.
    #[command(flatten)]
    pub store: StoreArgs,
    /// With --store-dir: folder for the region [default: the same]
    #[arg(long, value_name = "FOLDER", requires = "store_dir")]
    pub region_dir: Option<PathBuf>,
    /// How long threads spin on sockets before they sleep
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub spin: Option<Duration>,
    /// Pages of the region
    #[arg(long, value_enum, default_value_t)]
    pub pages: MemoryPages,
}

/// A kind of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeysArg {
    /// Integers of 64 bits
    U64,
    /// Byte strings
    Bytes,
}

/// The memory node's side: serves until it is told to end or its parent is gone.
pub fn serve(arguments: &MemoryNodeArgs) -> anyhow::Result<()> {
    let mut config = DaemonConfig {
        capacity: arguments.capacity,
        exit_with_parent: Some(arguments.exit_with_parent),
        durable: arguments.store.durable(arguments.region_dir.clone()),
        ..DaemonConfig::at_all(arguments.listen.iter().cloned())?
    };
    config.first.keys = match arguments.keys {
        KeysArg::U64 => KeyKind::U64,
        KeysArg::Bytes => KeyKind::Bytes,
    };
    if arguments.pages == MemoryPages::Ordinary {
        config.huge_pages = HugePages::No;
    }
    config.serving.spin = arguments.spin.unwrap_or(config.serving.spin);
    raise_descriptor_limit();
    let daemon = Daemon::open(&config)?;
    // A parent that has just ended does not read this, and the signal follows.
    let _ = writeln!(std::io::stdout(), "{READY}");
    Ok(daemon.serve()?)
}

/// A region that holds `keys` records with room to spare: pages that are never written take no
/// memory.
pub fn capacity_for<K: BuildKeys>(parameters: &TableParameters, keys: u64) -> u64 {
    const PAGE: u64 = 2 << 20;
    const BASE: u64 = 16 << 20;
    // Rough keys give segments little longer than half a window, and more of the region goes to
    // their headers.
    let mut keys_per_segment = f64::from(parameters.epsilon).max(1.0);
    if K::FIXED_BYTES.is_none() {
        // Those of byte strings end where prefixes do, too.
        keys_per_segment = (keys_per_segment / 4.0).max(1.0);
    }
    let bytes = parameters.estimated_bytes(keys, keys_per_segment);
    (BASE + bytes + bytes / 4).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_client::{RecordShape, U64Keys};

    #[test]
    fn capacities_grow_with_keys_values_and_rough_models() {
        let base = TableParameters::default();
        let small = capacity_for::<U64Keys>(&base, 1_000_000);
        assert!(small > 1_000_000 * 24 && small.is_multiple_of(2 << 20));
        assert!(capacity_for::<U64Keys>(&base, 2_000_000) > small);
        assert!(
            capacity_for::<U64Keys>(&TableParameters { shape: RecordShape::fixed(8, 64), ..base }, 1_000_000)
                > small
        );
        assert!(capacity_for::<U64Keys>(&TableParameters { epsilon: 1, ..base }, 1_000_000) > small);
    }
}
