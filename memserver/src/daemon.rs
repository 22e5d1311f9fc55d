//! A memory node as a process of its own, over shared memory.

use std::fmt;
use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use fpcache::key_space::{BuildKeys, KeyKind, KeySpace, U64Keys};
use fpcache_fabric::shm::{ListenError, ListenOptions, Listener, ShmAddress};
use fpcache_fabric::{
    Access, AccessError, FabricError, HugePages, MemoryError, Pages, SharedMemory, StopHandle, Waker,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::capacity::default_capacity;
use crate::durability::{DiskError, FileDisk, SyncPolicy};
use crate::kind::key_kind_in;
use crate::node::MemoryNode;
use crate::recovery::{Origin, RecoverError, Recovery};
use crate::store::{self, Background, Beginning, Folders, Memories};

/// How a memory node runs.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Where it listens.
    pub listen: ShmAddress,
    /// Bytes of its region. A region that is there already keeps its size.
    pub capacity: u64,
    /// Whether the region lies in huge pages.
    pub huge_pages: HugePages,
    /// Numeric ids of users that get in beside the daemon's own.
    pub allowed_users: Vec<u32>,
    /// End when the process that started this one does; precisely, when the thread that did so ends.
    pub exit_with_parent: bool,
    /// Where the data lie that are to outlive the process; `None`: nowhere.
    pub durable: Option<DurableConfig>,
}

/// How data outlive a memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableConfig {
    /// Where its files lie.
    pub folders: Folders,
    /// When writes reach the disk.
    pub sync: SyncPolicy,
}

impl DaemonConfig {
    /// A memory node at `listen` that takes a quarter of the memory.
    pub fn at(listen: ShmAddress) -> Self {
        Self {
            listen,
            capacity: default_capacity(),
            huge_pages: HugePages::No,
            allowed_users: Vec::new(),
            exit_with_parent: false,
            durable: None,
        }
    }
}

/// Why a memory node could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its region cannot be had.
    #[error("the region of {capacity} cannot be had: {source}", capacity = ByteSize(*.capacity).display().iec())]
    Region {
        /// Bytes asked for.
        capacity: u64,
        /// Why not.
        source: MemoryError,
    },
    /// The region or the notes of the process before cannot be used.
    #[error("the memory of the process before cannot be used: {0}")]
    Memory(MemoryError),
    /// Another memory node has the folder.
    #[error(
        "another memory node keeps its data in {folder}: stop that one, or give this one a folder of its own with \
         --data-dir",
        folder = .folder.display()
    )]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder cannot be used.
    #[error(
        "the folder {folder} cannot be used: {doing} failed ({source}); name one that this user may write, on a disk that \
         is mounted for writing",
        folder = .folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The region cannot be written.
    #[error("the region cannot be written: {0}")]
    Access(#[from] AccessError),
    /// The store there has other keys than this memory node.
    #[error(
        "the store in {folder} has keys of the kind {found}, not {asked}: leave --keys away to go on with it, or give this \
         memory node a folder of its own with --data-dir",
        folder = .folder.display()
    )]
    OtherKeys {
        /// Where it lies.
        folder: PathBuf,
        /// What its keys are.
        found: KeyKind,
        /// What they should be.
        asked: &'static str,
    },
    /// Its data cannot be gone on with.
    #[error("the store in {folder} cannot be gone on with: {source}", folder = .folder.display())]
    Recover {
        /// Where it lies.
        folder: PathBuf,
        /// Why not.
        source: Box<RecoverError>,
    },
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Serving failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The operating system refused something else.
    #[error("{doing} failed: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// A memory node that listens but does not serve yet.
#[derive(Debug)]
pub struct Daemon<K: BuildKeys = U64Keys> {
    node: MemoryNode<K>,
    listener: Listener,
    stop: StopHandle,
    recovery: Option<Recovery>,
    /// Bytes that were asked for, if the region has others.
    refused_capacity: Option<u64>,
    /// The folder with the data. The last field: given up when the log is closed.
    _folder: Option<File>,
}

impl Daemon {
    /// As [`open`](Self::open), for integer keys.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn start(config: &DaemonConfig) -> Result<Self, DaemonError> {
        Self::open(config)
    }
}

impl<K: BuildKeys> Daemon<K> {
    /// Takes the region and the address, for a table whose keys are those of `K`: [`key_kind_in`] says what those of a
    /// store are that is there already. From here on `SIGTERM` and `SIGINT` end the daemon cleanly: at once while it
    /// serves, after the load while it loads, and at once also then if they come twice.
    ///
    /// # Errors
    /// [`DaemonError`]: the address or the folder is another's, the memory cannot be had, or what is there cannot be gone on
    /// with.
    pub fn open(config: &DaemonConfig) -> Result<Self, DaemonError> {
        if config.exit_with_parent {
            let death = Some(rustix::process::Signal::TERM);
            rustix::process::set_parent_process_death_signal(death).map_err(|e| DaemonError::System {
                doing: "asking for a signal at the parent's end",
                source: e.into(),
            })?;
        }
        let incarnation = new_incarnation();
        let Begun { node, fd, recovery, folder } = match &config.durable {
            None => Begun::in_memory(config, incarnation)?,
            Some(durable) => Begun::durable(config, durable, incarnation)?,
        };
        let region = Arc::clone(node.region());
        let allowed_users = config.allowed_users.clone();
        let options = ListenOptions { allowed_users, incarnation, ..Default::default() };
        let listener = Listener::bind(&config.listen, region, fd, options)?;
        let stop = StopHandle::new()?;
        stop_at_signals(stop.clone())?;
        let kept = matches!(recovery.as_ref().map(|found| &found.origin), Some(Origin::Memory { .. }));
        let is_other = node.stats().region_bytes.abs_diff(config.capacity) >= LARGEST_PAGE;
        let refused_capacity = (kept && is_other).then_some(config.capacity);
        Ok(Self { node, listener, stop, recovery, refused_capacity, _folder: folder })
    }

    /// The memory node, to load data into before it serves.
    pub fn node(&mut self) -> &mut MemoryNode<K> {
        &mut self.node
    }

    /// Serves until a signal ends it; then removes its address, and brings the log to the disk.
    pub fn serve(mut self) -> Result<(), DaemonError> {
        Ok(self.listener.serve(&mut self.node, &self.stop)?)
    }

    /// What to tell the person who started it.
    pub fn greeting(&self) -> Greeting {
        let stats = self.node.stats();
        Greeting {
            address: self.listener.address().clone(),
            capacity: stats.region_bytes,
            refused_capacity: self.refused_capacity,
            keys: stats.keys,
            kind: K::NAME,
            pages: self.node.region().pages(),
            recovery: self.recovery.clone(),
        }
    }
}

/// A daemon's first words: address, transport, capacity, and the next command to type.
#[derive(Clone, Debug)]
pub struct Greeting {
    address: ShmAddress,
    capacity: u64,
    refused_capacity: Option<u64>,
    keys: u64,
    kind: &'static str,
    pages: Pages,
    recovery: Option<Recovery>,
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = match self.pages {
            Pages::Ordinary => "ordinary pages",
            Pages::Advised => "ordinary pages, huge ones where the kernel merges them",
            Pages::Huge => "huge pages",
        };
        writeln!(f, "FPCache memory node {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  address    {}", self.address)?;
        writeln!(f, "  transport  shared memory of this machine, {pages}")?;
        let iec = |bytes| ByteSize(bytes).display().iec();
        write!(f, "  capacity   {}", iec(self.capacity))?;
        match self.refused_capacity {
            Some(asked) => writeln!(
                f,
                ", not {}: a region keeps its size; for another one stop this memory node, move region.fpr away and start",
                iec(asked)
            )?,
            None => writeln!(f)?,
        }
        if let Some(recovery) = &self.recovery {
            writeln!(f, "  found      {recovery}")?;
        }
        if self.keys > 0 {
            writeln!(f, "  holds      {} keys, {}", self.keys, self.kind)?;
            write!(f, "  next       fpcache-cli --url {} scan --limit 5", self.address)
        } else {
            let data_set = if self.kind == U64Keys::NAME { "ipv4" } else { "words" };
            writeln!(f, "  keys       {}", self.kind)?;
            write!(f, "  next       fpcache-cli --url {} load {data_set}", self.address)
        }
    }
}

/// A memory node that does not listen yet, and its region's descriptor.
struct Begun<K: BuildKeys> {
    node: MemoryNode<K>,
    fd: OwnedFd,
    recovery: Option<Recovery>,
    folder: Option<File>,
}

impl<K: BuildKeys> Begun<K> {
    /// With a region that ends with the process.
    fn in_memory(config: &DaemonConfig, incarnation: u64) -> Result<Self, DaemonError> {
        let len = usize::try_from(config.capacity).unwrap_or(usize::MAX);
        let region = SharedMemory::create_memfd("fpcache-region", len, config.huge_pages);
        let (region, fd) =
            region.map_err(|source| DaemonError::Region { capacity: config.capacity, source })?;
        let node = MemoryNode::new(Arc::new(region), incarnation, 0, Instant::now())?;
        Ok(Self { node, fd, recovery: None, folder: None })
    }

    /// With what is in its folders: the memory of the process before if that can be gone on with, else what the disk has.
    fn durable(
        config: &DaemonConfig,
        durable: &DurableConfig,
        incarnation: u64,
    ) -> Result<Self, DaemonError> {
        let DurableConfig { folders, sync } = durable;
        for folder in [&folders.data, &folders.region] {
            std::fs::create_dir_all(folder).map_err(|source| DaemonError::Folder {
                folder: folder.clone(),
                doing: "making it",
                source,
            })?;
        }
        let folder = lock_folder(&folders.data)?;
        if let Some(found) = key_kind_in(folders).filter(|found| !found.is::<K>()) {
            return Err(DaemonError::OtherKeys { folder: folders.data.clone(), found, asked: K::NAME });
        }
        let disk = FileDisk::open(folders.disk_folder())?;
        let beginning = Beginning {
            sync: *sync,
            ring_bytes: store::RING_BYTES,
            boot: store::boot_id(),
            incarnation,
            lineage: new_incarnation() | 1,
            node: 0,
            now: Instant::now(),
        };
        let background = Background::Threads(Waker::new()?);
        let failed = |source: RecoverError| DaemonError::Recover {
            folder: folders.data.clone(),
            source: Box::new(source),
        };
        let why = match open_memories(folders)? {
            Before::Nothing => None,
            Before::Unusable(why) => Some(why),
            Before::Memories(memories, fd) => match store::can_resume(&memories, &beginning) {
                Ok(()) => {
                    let begun = store::resume(memories, disk, &beginning, background);
                    let (node, recovery) = begun.map_err(failed)?;
                    return Ok(Self { node, fd, recovery: Some(recovery), folder: Some(folder) });
                }
                Err(why) => Some(why),
            },
        };
        let (memories, fd) = create_memories(config, folders)?;
        let begun = store::restore(memories, disk, &beginning, background, why);
        let (node, recovery) = begun.map_err(failed)?;
        Ok(Self { node, fd, recovery: Some(recovery), folder: Some(folder) })
    }
}

/// What the process before has left in memory.
enum Before {
    Nothing,
    Unusable(String),
    Memories(Memories<SharedMemory>, OwnedFd),
}

/// Pages are no larger: a region may exceed what was asked for by less.
const LARGEST_PAGE: u64 = 2 << 20;

/// Takes the folder with the data: until it is dropped, or the process ends, no other memory node gets it. The lock of the
/// files in memory would not do, for they may lie elsewhere, or have been removed.
fn lock_folder(path: &Path) -> Result<File, DaemonError> {
    let failed = |doing, source| DaemonError::Folder { folder: path.to_owned(), doing, source };
    let folder = File::open(path).map_err(|e| failed("opening it", e))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(DaemonError::FolderInUse { folder: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("locking it", source)),
    }
}

/// Region and notes of the process before.
fn open_memories(folders: &Folders) -> Result<Before, DaemonError> {
    let (region, notes) = (folders.region_file(), folders.notes_file());
    match (region.exists(), notes.exists()) {
        (true, true) => {}
        (false, false) => return Ok(Before::Nothing),
        (false, true) => return Ok(Before::Unusable(format!("{} is gone", region.display()))),
        (true, false) => return Ok(Before::Unusable(format!("{} is gone", notes.display()))),
    }
    let open = |path: &Path| match SharedMemory::open_file(path, Access::ReadWrite) {
        Ok(opened) => Ok(Ok(opened)),
        // That process ended before the file had its size.
        Err(error @ MemoryError::NotMemory { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(DaemonError::Memory(error)),
    };
    let (notes, (region, fd)) = match (open(&notes)?, open(&region)?) {
        (Ok((notes, _)), Ok(region)) => (notes, region),
        (Err(why), _) | (_, Err(why)) => return Ok(Before::Unusable(why)),
    };
    Ok(Before::Memories(Memories { region: Arc::new(region), notes: Arc::new(notes) }, fd))
}

/// New files for region and notes. Readers of the old region, if there are any, keep it.
fn create_memories(
    config: &DaemonConfig,
    folders: &Folders,
) -> Result<(Memories<SharedMemory>, OwnedFd), DaemonError> {
    let create = |path: PathBuf, bytes: u64, huge_pages| {
        remove_memory(&path)?;
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let created = SharedMemory::create_file(path, len, huge_pages);
        created.map_err(|source| DaemonError::Region { capacity: bytes, source })
    };
    let (notes, _) = create(folders.notes_file(), store::notes_bytes(store::RING_BYTES), HugePages::No)?;
    let (region, fd) = create(folders.region_file(), config.capacity, config.huge_pages)?;
    Ok((Memories { region: Arc::new(region), notes: Arc::new(notes) }, fd))
}

/// Removes a file of the process before, unless that is another memory node's which runs: folders for regions may be shared
/// by mistake.
fn remove_memory(path: &Path) -> Result<(), DaemonError> {
    let locked = match SharedMemory::open_file(path, Access::ReadWrite) {
        Err(error @ MemoryError::FileInUse { .. }) => return Err(DaemonError::Memory(error)),
        // What is no memory is in nobody's use; a file that is not there need not be removed.
        opened => opened.ok(),
    };
    let removed = std::fs::remove_file(path);
    drop(locked);
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(DaemonError::System { doing: "removing the memory of the process before", source })
        }
        _ => Ok(()),
    }
}

/// A number that differs from that of any earlier memory node here: the time to the nanosecond, and who asks.
fn new_incarnation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let process = std::process::id();
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&now.to_le_bytes());
    bytes[16..].copy_from_slice(&process.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// Uses the handle when the process is told to end; told twice, the process ends at once.
fn stop_at_signals(stop: StopHandle) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::System { doing: "installing signal handlers", source };
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let watch = move || {
        for signal in signals.forever() {
            if stop.is_stopped() {
                // Nothing acknowledged is lost by that: the second signal wins over whatever still holds the first one up.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            stop.stop();
        }
    };
    thread::Builder::new().name("fpcache-signals".into()).spawn(watch).map_err(failed)?;
    Ok(())
}
