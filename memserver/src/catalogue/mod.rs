//! The tables of a memory node, by name.
//!
//! Each table has a region and a [`MemoryNode`], the only writer of that region; one thread serves
//! them all. A connection without a table name leads to the *lobby*: a region without a table, in
//! which the partition maps of tables over several memory nodes are published. Requests about
//! tables are answered on any connection.

pub mod answering;
mod closed;
mod closing;
mod creation_checks;
mod descriptor;
pub mod error;
pub(crate) mod folders;
mod hosted;
mod jobs;
mod lobby;
mod memories;
mod open;
mod ranges;
mod refusals;
mod reply_eviction;
mod requests;
mod service;
mod stats;
mod work_queue;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::message::tables::some_names;
use fpcache::message::{ErrorCode, Refusal, TableInfo};
use fpcache_fabric::descriptors::TakenDescriptors;
use fpcache_fabric::tcp::SocketCounters;
use fpcache_fabric::{
    ClientId, Clock, Descriptors, Export, HugePages, MemoryError, Pages, SystemClock, Waker,
};
use tracing::{error, warn};

use crate::boot::BOOT_ID_FILE;
use crate::budget::Budget;
use crate::dedup::KeptReplies;
use crate::durability::SyncPolicy;
use crate::files::Folders;
use crate::huge_page_merger::PageMerger;
use crate::node::MemoryNode;
use crate::recovery::Recovery;
use crate::request_memory::Transit;
use crate::store;
use answering::Follower;
use closed::ClosedTable;
use error::TableOpenError;
use folders::TablesFolder;
use hosted::HostedTable;
use jobs::{Dropping, Jobs};
use lobby::Lobby;
use open::{Opening, new_incarnation};
use refusals::Refusals;
use work_queue::WorkQueue;

/// Descriptors of a table in files: its region's own and those of what is handed out of it, one
/// each of recovery area, log and folder, and three for a snapshot and for what is read of the log
/// meanwhile.
pub(crate) const TABLE_DESCRIPTORS: usize = 7 + Export::DESCRIPTORS;
/// Of a table that ends with the process: its region's, and one while that is made.
const MEMORY_TABLE_DESCRIPTORS: usize = 1 + Export::DESCRIPTORS;
/// Descriptors that tables leave for clients, so that some can always connect and drop one.
pub(crate) const DESCRIPTORS_FOR_CLIENTS: usize = 16;

/// How a catalogue keeps its tables.
#[derive(Clone, Debug)]
pub struct CatalogueConfig {
    /// Bytes that all tables may use together.
    pub capacity: u64,
    /// Whether regions lie in huge pages. One in reserved huge pages takes all of its bytes when it
    /// is made.
    pub huge_pages: HugePages,
    /// Where tables lie that are to outlive the process, and when writes reach the disk; `None`:
    /// nowhere.
    pub durable: Option<(Folders, SyncPolicy)>,
    /// For how long clients that read by network cards may believe what they know of memory's
    /// reuse; zero where there are none.
    pub lease: Duration,
}

impl CatalogueConfig {
    /// Tables that share this many bytes of ordinary pages, end with the process, and are not read
    /// by network cards.
    pub fn of(capacity: u64) -> Self {
        Self { capacity, huge_pages: HugePages::No, durable: None, lease: Duration::ZERO }
    }
}

/// The table that a client is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTable {
    /// The region without a table.
    Lobby,
    /// The table with this number.
    Table(usize),
    /// A table that was dropped: the client is about to be hung up on.
    Gone,
}

/// The tables of a memory node.
#[derive(Debug)]
pub struct Catalogue {
    /// By number, which stays a table's as long as it is there.
    tables: Vec<Option<HostedTable>>,
    numbers: BTreeMap<TableName, usize>,
    /// Tables that could not be opened.
    closed: BTreeMap<TableName, ClosedTable>,
    client_tables: BTreeMap<ClientId, ClientTable>,
    /// Clients that may change nothing.
    readers: HashSet<ClientId>,
    work_queue: WorkQueue,
    /// Clients of tables that are gone.
    farewells: VecDeque<ClientId>,
    jobs: Jobs,
    refusals: Refusals,
    lobby: Lobby,
    opening: Opening,
    reply_eviction: ReplyEviction,
    folder: Option<Arc<TablesFolder>>,
    waker: Waker,
    descriptors: Arc<Descriptors>,
    clock: Arc<dyn Clock>,
    incarnation: u64,
    started: Instant,
    /// Of the sockets that it is served over, if it is.
    sockets: Option<SocketCounters>,
    /// What is broken on purpose.
    #[cfg(feature = "sabotage")]
    sabotage: Option<fpcache::sabotage::Sabotage>,
    /// Requests that were not a table's.
    requests: u64,
}

/// When to look for replies to evict.
#[derive(Debug, Default)]
struct ReplyEviction {
    /// Requests before the next look, after one that was in vain: all clients had requests in hand.
    pause: u32,
}

/// Why a catalogue could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// One of its tables is in another process's use, or there are no descriptors for it.
    #[error("the table `{name}`: {source}")]
    Table {
        /// Which one.
        name: TableName,
        /// Why not.
        source: Box<TableOpenError>,
    },
    /// At the end the disk did not take a table's log.
    #[error(
        "of the log of the table `{name}` {entries} entries are in its notes.fpn alone, where the next start finds them ({why}): \
         before you copy its files or start another release, see to it that the disk takes them (make room, if it is \
         full), start this memory node and stop it again"
    )]
    NotOnDisk {
        /// Which one.
        name: TableName,
        /// How many entries of it.
        entries: u64,
        /// Why they are not on the disk.
        why: String,
    },
    /// The disk lost entries of a table's log, and there was no snapshot since.
    #[error(
        "the disk lost entries of the log of the table `{name}` up to {last}, and there is no snapshot yet that makes up for \
         them, so that a copy of its files lacks them: start this memory node, and stop it again once it takes writes"
    )]
    Lost {
        /// Which one.
        name: TableName,
        /// The last entry that it lost.
        last: u64,
    },
    /// There is no snapshot yet that a table's log follows.
    #[error(
        "the table `{name}` has no snapshot that its log follows, so that a copy of its files lacks what its memory has: start \
         this memory node, and stop it again once it takes writes"
    )]
    NoSnapshot {
        /// Which one.
        name: TableName,
    },
    /// A resource that all tables need is missing.
    #[error(transparent)]
    Node(Box<TableOpenError>),
}

impl<E: Into<TableOpenError>> From<E> for CatalogueError {
    fn from(error: E) -> Self {
        Self::Node(Box::new(error.into()))
    }
}

impl Catalogue {
    /// The tables that are there. No other process may have their folders meanwhile. One that
    /// cannot be recovered is [closed](Self::closed), also if there is no other: its name stays
    /// taken, and clients are told why.
    ///
    /// # Errors
    /// A table's files are in another process's use, or memory and descriptors are wanting.
    pub fn open(config: &CatalogueConfig) -> Result<Self, CatalogueError> {
        Self::open_within(config, Descriptors::unlimited())
    }

    /// As [`open`](Self::open), where each table takes its descriptors from these.
    ///
    /// # Errors
    /// Also if there are too few for the tables that are there.
    pub fn open_within(
        config: &CatalogueConfig,
        descriptors: Arc<Descriptors>,
    ) -> Result<Self, CatalogueError> {
        let (folders, sync) = config.durable.clone().unzip();
        let folder = folders.as_ref().map(TablesFolder::open).transpose()?.map(Arc::new);
        if folder.is_some() && store::boot_id() == store::UNKNOWN_BOOT {
            warn!(
                "{} cannot be read: the next start will not go on with this memory, but read snapshots and log; let \
                 this process read it (in a unit of systemd: ProcSubset=all)",
                BOOT_ID_FILE
            );
        }
        let (incarnation, waker) = (new_incarnation(), Waker::new()?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut catalogue = Self {
            tables: Vec::new(),
            numbers: BTreeMap::new(),
            closed: BTreeMap::new(),
            client_tables: BTreeMap::new(),
            readers: HashSet::new(),
            work_queue: WorkQueue::default(),
            farewells: VecDeque::new(),
            jobs: Jobs::begin(waker.clone()).map_err(TableOpenError::Thread)?,
            refusals: Refusals::default(),
            lobby: Lobby::new(incarnation)?,
            opening: Opening {
                budget: Budget::new(config.capacity),
                huge_pages: config.huge_pages,
                merger: (config.huge_pages == HugePages::Merged)
                    .then(PageMerger::start)
                    .flatten()
                    .map(Arc::new),
                sync: sync.unwrap_or_default(),
                lease: config.lease,
                transit: Transit::default(),
                kept_replies: KeptReplies::default(),
                follower: Follower::default(),
            },
            reply_eviction: ReplyEviction::default(),
            folder,
            waker,
            descriptors,
            started: clock.now(),
            sockets: None,
            #[cfg(feature = "sabotage")]
            sabotage: None,
            clock,
            incarnation,
            requests: 0,
        };
        catalogue.open_tables()?;
        Ok(catalogue)
    }

    /// Opens the tables that are there already. One that cannot be opened is closed.
    fn open_tables(&mut self) -> Result<(), CatalogueError> {
        let there = self.folder.as_ref().map(|folder| folder.tables()).transpose()?;
        for name in there.unwrap_or_default() {
            let failed = |source| CatalogueError::Table { name, source: Box::new(source) };
            let descriptors = self.take_descriptors().map_err(failed)?;
            let Some(folder) = &self.folder else { break };
            let descriptor = folder.descriptor(&name);
            let kind = descriptor.as_ref().map_or(KeyKind::U64, |descriptor| descriptor.kind);
            let map = name.as_range().map(|_| folder.map(&name)).transpose();
            let opened = descriptor.and_then(|descriptor| {
                let mut making = self.making(name, descriptor, descriptors);
                making.map = map?.map(Arc::new);
                making.open()
            });
            match opened {
                Ok(table) => self.host(table),
                // Of another memory node: that is no fault of the table.
                Err(why @ TableOpenError::Memory(MemoryError::FileInUse { .. })) => return Err(failed(why)),
                Err(why) => {
                    error!("the table `{name}` is closed: {why}");
                    self.closed.insert(name, ClosedTable { kind, why, left: None });
                }
            }
        }
        Ok(())
    }

    /// Makes an empty table.
    ///
    /// # Errors
    /// There is one of that name, or no memory for it.
    pub fn create(
        &mut self,
        name: TableName,
        kind: KeyKind,
        region_bytes: Option<u64>,
    ) -> Result<(), Refusal> {
        let table = self.can_make_table(name, kind, region_bytes)?.run()?;
        self.host(table);
        Ok(())
    }

    /// Removes a table and all its records. Its clients are hung up on; its memory is given back.
    ///
    /// # Errors
    /// There is no table of that name, or the disk refuses: then the table is closed until it is
    /// dropped again, or the memory node starts anew.
    pub fn drop_table(&mut self, name: &TableName) -> Result<(), Refusal> {
        if let Some(removing) = self.removing_closed(name) {
            return self.end_removing(name, removing.run());
        }
        let (dropping, clients) = self.detach(name)?;
        self.farewells.extend(clients);
        let kind = dropping.table.kind;
        dropping.run().map_err(|refused| {
            let refusal = refused.refusal.clone();
            self.close(*name, kind, refused);
            refusal
        })
    }

    /// Serves a table no longer, which is to be dropped; its clients.
    fn detach(&mut self, name: &TableName) -> Result<(Dropping, Vec<ClientId>), Refusal> {
        let number = self.numbers.remove(name).ok_or_else(|| self.no_such_table(name.as_str()))?;
        let Some(table) = self.tables[number].take() else {
            return Err(Refusal::new(ErrorCode::Internal, "a table vanished"));
        };
        if table.map.is_some() {
            self.publish_maps();
        }
        self.work_queue.forget(number);
        let of_table = |(_, table): &(&ClientId, &mut ClientTable)| **table == ClientTable::Table(number);
        let clients = self.client_tables.iter_mut().filter(of_table).map(|(client, table)| {
            *table = ClientTable::Gone;
            *client
        });
        Ok((Dropping { table, folder: self.folder.clone() }, clients.collect()))
    }

    /// The tables there are, in the order of their names.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        self.hosted().map(HostedTable::info)
    }

    /// A table's memory node, to load records into before it is served; `None` if there is no such
    /// table, or its keys are others.
    pub fn node<K: BuildKeys>(&mut self, name: &TableName) -> Option<&mut MemoryNode<K>> {
        let number = *self.numbers.get(name)?;
        self.tables[number].as_mut()?.node_mut()
    }

    /// What a table's keys are; `None` if there is no such table.
    pub fn kind_of(&self, name: &TableName) -> Option<KeyKind> {
        self.get(name).map(|table| table.kind)
    }

    /// What all tables may use, and have of it.
    pub fn budget(&self) -> &Budget {
        &self.opening.budget
    }

    /// What each table was recovered from, in the order of their names.
    pub(crate) fn recoveries(&self) -> impl Iterator<Item = (TableName, Option<&Recovery>)> {
        self.hosted().map(|table| (table.name, table.recovery.as_ref()))
    }

    /// Which pages the tables' regions have.
    pub(crate) fn pages(&self) -> Pages {
        self.hosted().map(|table| table.node.region().pages()).next().unwrap_or(Pages::Ordinary)
    }

    fn hosted(&self) -> impl Iterator<Item = &HostedTable> {
        self.numbers.values().filter_map(|number| self.tables[*number].as_ref())
    }

    fn get(&self, name: &TableName) -> Option<&HostedTable> {
        self.tables[*self.numbers.get(name)?].as_ref()
    }

    /// Descriptors that a table has.
    pub(crate) fn table_descriptors(&self) -> usize {
        if self.folder.is_some() { TABLE_DESCRIPTORS } else { MEMORY_TABLE_DESCRIPTORS }
    }

    /// The descriptors of one table more.
    fn take_descriptors(&self) -> Result<TakenDescriptors, TableOpenError> {
        let needed = self.table_descriptors();
        let taken = self.descriptors.take(needed, DESCRIPTORS_FOR_CLIENTS);
        let left = || self.descriptors.left().saturating_sub(DESCRIPTORS_FOR_CLIENTS);
        taken.ok_or_else(|| TableOpenError::Descriptors { needed, left: left() })
    }

    /// Breaks the protocol of all tables on purpose from here on.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: Option<fpcache::sabotage::Sabotage>) {
        self.sabotage = sabotage;
        self.tables.iter_mut().flatten().for_each(|table| table.node.sabotage(sabotage));
    }

    /// Serves a table from now on.
    #[cfg_attr(not(feature = "sabotage"), expect(unused_mut, reason = "only a broken one is changed"))]
    fn host(&mut self, mut table: HostedTable) {
        #[cfg(feature = "sabotage")]
        table.node.sabotage(self.sabotage);
        let free = self.tables.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.tables.push(None);
            self.tables.len() - 1
        });
        let has_map = table.map.is_some();
        self.numbers.insert(table.name, number);
        self.tables[number] = Some(table);
        if has_map {
            self.publish_maps();
        }
        self.work_queue.touch(number);
    }

    /// The refusal for a table that is not there.
    fn no_such_table(&self, name: &str) -> Refusal {
        let there = some_names(self.numbers.keys());
        let why = format!("there is no table `{}`; the tables are: {there}", name.escape_debug());
        Refusal::new(ErrorCode::NoSuchTable, why)
    }
}
