//! A memory node as a process of its own, served over shared memory and sockets.

mod access;
mod greeting;
mod limits;
mod listen;
#[cfg(feature = "log")]
mod log;
mod signals;

use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::message::Refusal;
use fpcache_fabric::process::{Wait, is_ending, lock_holder};
use fpcache_fabric::shm::{ListenError, ListenOptions, Listener, ShmAddress};
use fpcache_fabric::tcp::{self, TcpAddress, TokenError, TokenSet};
use fpcache_fabric::{FabricError, HugePages};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tracing::{info, warn};

use crate::capacity::{self, default_capacity};
use crate::catalogue::folders::{foreign_contents, table_in};
use crate::catalogue::{Catalogue, CatalogueConfig, CatalogueError};
use crate::durability::SyncPolicy;
use crate::files::Folders;
use crate::folder::{Folder, FolderError};
use crate::node::MemoryNode;
use access::Rereading;
use limits::DescriptorLimit;
use signals::{HeldSignals, PARENT_ENDED};

pub use access::TokenSource;
pub use fpcache_fabric::StopHandle;
pub use greeting::Greeting;
pub use limits::raise_descriptor_limit;
pub use listen::ListenAddress;
#[cfg(feature = "log")]
pub use log::{LogFormat, StderrLog, log_to_stderr, log_to_stderr_as};

/// The lease of clients that read by network cards, unless another is asked for: a hundred times
/// what a READ takes.
const CARD_LEASE: Duration = Duration::from_millis(1);

/// How a memory node runs.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Where clients meet it that map its memory, if anywhere.
    pub listen: Option<ShmAddress>,
    /// Where clients meet it that read over sockets.
    pub sockets: Vec<TcpAddress>,
    /// How sockets are served, and what is borne of their clients. Tokens, users and descriptors
    /// are the daemon's to say: what is here of them is not used.
    pub serving: tcp::ListenOptions,
    /// Where the tokens are by which clients get in over TCP; `None`: there are none.
    pub tokens: Option<TokenSource>,
    /// Bytes that all its tables may use together.
    pub capacity: u64,
    /// Whether regions lie in huge pages.
    pub huge_pages: HugePages,
    /// Numeric ids of users that get in beside the daemon's own.
    pub allowed_users: Vec<u32>,
    /// End with this process, which must be the parent; precisely, with its thread that started this
    /// one. The operating system tells of that by `SIGUSR1`, which is then the daemon's.
    pub exit_with_parent: Option<u32>,
    /// Where the data lie that are to outlive the process; `None`: nowhere.
    pub durable: Option<DurableConfig>,
    /// For how long clients that read by network cards may believe what they know of memory's
    /// reuse: absent keys cost them no round trip then, and memory that is reused waits for as
    /// long. Zero for a machine whose clock may stand still while its card reads.
    pub card_lease: Duration,
    /// The table that is made if there is none at all.
    pub first: FirstTable,
}

/// How data outlive a memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableConfig {
    /// Where its files lie: those of its tables in folders within.
    pub folders: Folders,
    /// When writes reach the disk.
    pub sync: SyncPolicy,
}

/// A table that a memory node makes for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTable {
    /// What it is called.
    pub name: TableName,
    /// The kind of its keys.
    pub keys: KeyKind,
}

impl Default for FirstTable {
    /// `default`, with integer keys.
    fn default() -> Self {
        Self { name: TableName::default(), keys: KeyKind::U64 }
    }
}

impl DaemonConfig {
    /// A memory node at `listen` that takes a quarter of the memory.
    pub fn at(listen: ShmAddress) -> Self {
        Self::of(Some(listen), Vec::new())
    }

    fn of(listen: Option<ShmAddress>, sockets: Vec<TcpAddress>) -> Self {
        Self {
            listen,
            sockets,
            serving: tcp::ListenOptions::default(),
            tokens: None,
            capacity: default_capacity(),
            huge_pages: HugePages::Merged,
            allowed_users: Vec::new(),
            exit_with_parent: None,
            durable: None,
            card_lease: CARD_LEASE,
            first: FirstTable::default(),
        }
    }

    /// A memory node at all of these addresses, of which one at most is for clients that map its
    /// memory, that takes a quarter of the memory.
    ///
    /// # Errors
    /// [`SecondAddress`](DaemonError::SecondAddress).
    pub fn at_all(addresses: impl IntoIterator<Item = ListenAddress>) -> Result<Self, DaemonError> {
        let (mut listen, mut sockets) = (None, Vec::new());
        for address in addresses {
            match address {
                ListenAddress::Shm(second) if listen.is_some() => {
                    return Err(DaemonError::SecondAddress(second.to_string()));
                }
                ListenAddress::Shm(address) => listen = Some(address),
                ListenAddress::Sockets(address) => sockets.push(address),
            }
        }
        Ok(Self::of(listen, sockets))
    }

    /// The lease that readers have, if any of them read by network cards.
    fn lease(&self) -> Duration {
        let has_cards = self.sockets.iter().any(|address| address.card().is_some());
        if has_cards { self.card_lease } else { Duration::ZERO }
    }

    /// How sockets are served by a daemon with these descriptors.
    fn serving_with(&self, descriptors: &DescriptorLimit) -> Result<tcp::ListenOptions, TokenError> {
        Ok(tcp::ListenOptions {
            tokens: self.tokens.as_ref().map_or_else(|| Ok(TokenSet::default()), TokenSource::read)?,
            allowed_users: self.allowed_users.clone(),
            descriptors: Arc::clone(&descriptors.shared),
            ..self.serving.clone()
        })
    }
}

/// Why a memory node could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// More than one shm:// address was given.
    #[error("a memory node has at most one shm:// address: leave out {0}")]
    SecondAddress(String),
    /// The tokens cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its tables cannot be served.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A table cannot be created.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another memory node uses the folder.
    #[error(
        "another memory node uses the folder {folder}{}: stop it, or give this one a different --data-dir",
        .holder.map_or_else(String::new, |process| format!(" (process {process})")),
        folder = .folder.display()
    )]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
        /// The process, if known.
        holder: Option<u32>,
    },
    /// The folder is one table's, or the one that folders of tables lie in.
    #[error(
        "{folder} holds {held}: --data-dir names the folder that tables/ lies in",
        folder = .folder.display()
    )]
    WithinDataFolder {
        /// What of a table is in it.
        held: String,
        /// The folder.
        folder: PathBuf,
    },
    /// A folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The table has keys of another kind than was asked for.
    #[error(
        "the keys of the table `{name}` are {found}, not {asked}: leave out --keys to use the table, drop it, or give this \
         memory node a different --data-dir"
    )]
    OtherKeys {
        /// The table.
        name: TableName,
        /// The kind of its keys.
        found: KeyKind,
        /// The kind that was asked for.
        asked: KeyKind,
    },
    /// The process may not open enough files.
    #[error(
        "this process may open {limit} files, but a memory node needs at least {needed}: raise the limit (ulimit -n \
         {needed}, or LimitNOFILE= of its service)"
    )]
    TooFewDescriptors {
        /// The limit.
        limit: usize,
        /// The least limit that suffices.
        needed: usize,
    },
    /// The process to end with is not the parent.
    #[error(
        "process {parent}, which --exit-with-parent names, is not the parent of this one: it has ended, or another process \
         started this one"
    )]
    NotTheParent {
        /// Its id.
        parent: u32,
    },
    /// Serving failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Another system call failed.
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
pub struct Daemon {
    catalogue: Catalogue,
    listener: Option<Listener>,
    sockets: Option<tcp::Listener>,
    stop: StopHandle,
    descriptors: DescriptorLimit,
    durable: Option<DurableConfig>,
    /// The folder with the data. The last field: given up when the logs are closed.
    _folder: Option<Folder>,
}

impl Daemon {
    /// Takes the address and the tables that are there; makes the [first](DaemonConfig::first) if
    /// there is none. From here on `SIGTERM` and `SIGINT` end the daemon cleanly: at once while it
    /// serves, after the load while it loads, and at once also then if they come twice.
    ///
    /// # Errors
    /// [`DaemonError`]: the address or the folder is in use, or the memory cannot be allocated.
    pub fn open(config: &DaemonConfig) -> Result<Self, DaemonError> {
        if let Some(parent) = config.exit_with_parent {
            exit_with(parent)?;
        }
        // From here on SIGHUP does not end the process, also while tables are recovered.
        let signals = HeldSignals::hold().map_err(no_handlers)?;
        let for_sockets = match config.sockets.len() {
            0 => 0,
            count => count + tcp::Listener::own_descriptors(&config.serving),
        };
        let descriptors = DescriptorLimit::of_this_process(for_sockets)
            .map_err(|(limit, needed)| DaemonError::TooFewDescriptors { limit, needed })?;
        let mut announcement = Announcement::default();
        let data = config.durable.as_ref().map(|durable| &durable.folders.data);
        let folder = data.map(|data| take_folder(data, &mut announcement)).transpose()?;
        if let Some((folder, contents)) = folder.as_ref().and_then(|of| Some((of, foreign_contents(of)?))) {
            warn!(
                "{} has no tables, but it has {contents}: if there should be tables, name their folder with --data-dir",
                folder.path().display()
            );
        }
        let tables = CatalogueConfig {
            capacity: config.capacity,
            huge_pages: config.huge_pages,
            durable: config.durable.clone().map(|durable| (durable.folders, durable.sync)),
            lease: config.lease(),
        };
        let regions = config.durable.as_ref().map(|durable| &*durable.folders.region);
        if let Some(doubt) = capacity::too_small_warning(config.capacity, regions) {
            warn!("{doubt}");
        }
        let mut catalogue = Catalogue::open_within(&tables, Arc::clone(&descriptors.shared))?;
        let FirstTable { name, keys } = config.first;
        // Where all tables are closed there are some: one of them may have this very name.
        if catalogue.tables().next().is_none() && catalogue.closed().next().is_none() {
            catalogue.create(name, keys, None)?;
        }
        let options = ListenOptions {
            allowed_users: config.allowed_users.clone(),
            descriptors: Arc::clone(&descriptors.shared),
            ..ListenOptions::default()
        };
        let listener = match &config.listen {
            Some(address) => {
                announcement.make(Listener::listening_process(address), address);
                Some(Listener::bind(address, options)?)
            }
            None => None,
        };
        // A file of tokens that cannot be read is an error wherever the memory node listens.
        let serving = config.serving_with(&descriptors)?;
        let sockets = match &config.sockets[..] {
            [] => None,
            addresses => Some(tcp::Listener::bind(addresses, serving)?),
        };
        if let Some(sockets) = &sockets {
            catalogue.count_sockets(sockets.counters());
        }
        let stop = StopHandle::new()?;
        let rereading = sockets
            .as_ref()
            .and_then(|sockets| Rereading::of(config.tokens.as_ref(), config.serving.tls.as_ref(), sockets));
        if config.exit_with_parent.is_some() {
            signals.end_with_parent().map_err(no_handlers)?;
        }
        signals.handle(stop.clone(), rereading).map_err(no_handlers)?;
        let durable = config.durable.clone();
        Ok(Self { catalogue, listener, sockets, stop, descriptors, durable, _folder: folder })
    }

    /// The tables, to make some and load data into them before they are served.
    pub fn tables(&mut self) -> &mut Catalogue {
        &mut self.catalogue
    }

    /// The memory node of a table with keys of `K`, to load data into before it is served. The
    /// table is made if it is not there.
    ///
    /// # Errors
    /// It has other keys, or cannot be made.
    pub fn table<K: BuildKeys>(&mut self, name: &TableName) -> Result<&mut MemoryNode<K>, DaemonError> {
        // There is a kind for every key space.
        let asked = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap_or(KeyKind::U64);
        match self.catalogue.kind_of(name) {
            None => self.catalogue.create(*name, asked, None)?,
            Some(found) if found != asked => {
                return Err(DaemonError::OtherKeys { name: *name, found, asked });
            }
            Some(_) => {}
        }
        let internal = Refusal::new(fpcache::message::ErrorCode::Internal, "a table vanished");
        self.catalogue.node(name).ok_or(DaemonError::Refused(internal))
    }

    /// What ends [`serve`](Self::serve) as a signal does, for programs that run a memory node
    /// beside other work; used before, it ends it at once.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Serves until a signal or the [handle](Self::stop_handle) ends it; then closes its addresses,
    /// so that no client is accepted and not answered, and brings the logs to the disk.
    ///
    /// # Errors
    /// Serving failed, or the disk has not all of each table.
    pub fn serve(self) -> Result<(), DaemonError> {
        // What is left of it, the folder with the data, goes after the catalogue.
        let Self { mut catalogue, listener, sockets, stop, .. } = self;
        listen::serve(listener, sockets, &mut catalogue, &stop)?;
        Ok(catalogue.end_logs()?)
    }

    /// What to tell the person who started it.
    pub fn greeting(&self) -> Greeting {
        let durable = self.durable.clone().map(|durable| (durable.folders.data, durable.sync));
        let listeners = (self.listener.as_ref(), self.sockets.as_ref());
        Greeting::of(listeners, &self.catalogue, durable, &self.descriptors)
    }
}

/// Says once that a start waits for a process that is ending.
#[derive(Debug, Default)]
struct Announcement {
    is_made: bool,
}

impl Announcement {
    fn make(&mut self, holder: Option<u32>, what: &dyn std::fmt::Display) {
        if let Some(process) = holder.filter(|process| !self.is_made && is_ending(*process)) {
            self.is_made = true;
            info!("waiting for process {process}, which is exiting but still has {what}");
        }
    }
}

/// Has this process end with its parent, which has this id.
fn exit_with(parent: u32) -> Result<(), DaemonError> {
    rustix::process::set_parent_process_death_signal(Some(PARENT_ENDED)).map_err(|e| {
        DaemonError::System { doing: "asking for a signal at the parent's end", source: e.into() }
    })?;
    // One that ended before gave no signal.
    if parent_id() == parent { Ok(()) } else { Err(DaemonError::NotTheParent { parent }) }
}

/// Takes the folder with the data: until it is dropped, or the process ends, no other memory node
/// gets it. The lock of the files in memory would not do, for they may lie elsewhere, or have been
/// removed.
fn take_folder(path: &Path, announcement: &mut Announcement) -> Result<Folder, DaemonError> {
    let folder = Folder::named(path)?;
    if let Some(held) = table_in(&folder).map_err(FolderError::new(path, "listing it"))? {
        return Err(DaemonError::WithinDataFolder { held, folder: path.to_owned() });
    }
    let mut wait = Wait::begin();
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = lock_holder(&folder);
                announcement.make(holder, &path.display());
                if !wait.goes_on(holder) {
                    return Err(DaemonError::FolderInUse { folder: path.to_owned(), holder });
                }
            }
            Err(errno) => return Err(FolderError::new(path, "locking it")(errno.into()).into()),
        }
    }
}

fn no_handlers(source: std::io::Error) -> DaemonError {
    DaemonError::System { doing: "installing signal handlers", source }
}
