//! The tables of a memory node, by name.
//!
//! Each has a region of its own and a [`MemoryNode`] that is the only one to write it; one thread serves them
//! all. Connecting without a name leads to the *lobby*: a region without a table, where the maps of tables over several memory
//! nodes are read. Requests about tables are answered on any connection.
//!
//! | module | holds |
//! |---|---|
//! | `hosted` | a table, whatever its keys are |
//! | `closed` | tables that cannot be gone on with |
//! | `open` | how a table begins: with nothing, or with what its folder holds |
//! | `folders`, `descriptor` | a folder for each table, made and removed at one instant |
//! | `requests`, `jobs` | create, list, drop; on a thread what takes long |
//! | `answering` | lookups by the threads that serve sockets |
//! | `letting_go` | whose replies go when tables keep too many together |
//! | `ranges` | ranges of tables over several memory nodes, and the lobby, where their maps are published |
//! | `service`, `work_queue`, `client_tables` | whose request it is, and whose turn |

pub mod answering;
mod client_tables;
mod closed;
mod descriptor;
pub mod error;
pub(crate) mod folders;
mod hosted;
mod jobs;
mod letting_go;
mod open;
mod ranges;
mod refusals;
mod requests;
mod service;
mod work_queue;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::message::tables::some_names;
use fpcache::message::{ErrorCode, NodeStats, Refusal, SocketStats, TableInfo};
use fpcache_fabric::descriptors::Taken;
use fpcache_fabric::tcp::{HangUp, SocketCounters};
use fpcache_fabric::{
    ClientId, Clock, Descriptors, FabricError, HugePages, MemoryError, Pages, SystemClock, Waker, random_bits,
};

use crate::budget::Budget;
use crate::capacity::MIN_CAPACITY;
use crate::dedup::KeptReplies;
use crate::durability::SyncPolicy;
use crate::merging::PageMerger;
use crate::node::MemoryNode;
use crate::recovery::Recovery;
use crate::store::Folders;
use crate::transit::Transit;
use answering::Follower;
use client_tables::{ClientTable, ClientTables};
use closed::ClosedTable;
use descriptor::Descriptor;
use error::TableOpenError;
use folders::TablesFolder;
use hosted::HostedTable;
use jobs::{Dropping, Jobs, Making};
use letting_go::LettingGo;
use open::{Opening, new_incarnation};
use ranges::Lobby;
use refusals::Refusals;
use work_queue::WorkQueue;

/// Descriptors of a table in files: two of its region, one each of recovery area, log and folder, and three for a snapshot and for
/// what is read of the log meanwhile.
pub(crate) const TABLE_DESCRIPTORS: usize = 8;
/// Of a table that ends with the process: its region's, and one while that is made.
const MEMORY_TABLE_DESCRIPTORS: usize = 2;
/// Descriptors that tables leave for clients, so that some can always connect and drop one.
pub(crate) const DESCRIPTORS_FOR_CLIENTS: usize = 16;

/// How a catalogue keeps its tables.
#[derive(Clone, Debug)]
pub struct CatalogueConfig {
    /// Bytes that all tables may use together.
    pub capacity: u64,
    /// Whether regions lie in huge pages. One in reserved huge pages takes all of its bytes when it is made.
    pub huge_pages: HugePages,
    /// Where tables lie that are to outlive the process, and when writes reach the disk; `None`: nowhere.
    pub durable: Option<(Folders, SyncPolicy)>,
}

/// The tables of a memory node.
#[derive(Debug)]
pub struct Catalogue {
    /// By number, which stays a table's as long as it is there.
    tables: Vec<Option<HostedTable>>,
    numbers: BTreeMap<TableName, usize>,
    /// Those that cannot be gone on with.
    closed: BTreeMap<TableName, ClosedTable>,
    client_tables: ClientTables,
    /// Clients that may change nothing.
    readers: HashSet<ClientId>,
    work_queue: WorkQueue,
    /// Clients of tables that are gone.
    farewells: VecDeque<ClientId>,
    jobs: Jobs,
    refusals: Refusals,
    lobby: Lobby,
    opening: Opening,
    letting_go: LettingGo,
    folder: Option<Arc<TablesFolder>>,
    waker: Waker,
    descriptors: Arc<Descriptors>,
    clock: Arc<dyn Clock>,
    incarnation: u64,
    started: Instant,
    /// Of the sockets that it is served over, if it is.
    sockets: Option<SocketCounters>,
    /// Requests that were not a table's.
    requests: u64,
}

/// Why a catalogue could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// One of its tables cannot be gone on with.
    #[error("the table `{name}`: {source}")]
    Table {
        /// Which one.
        name: TableName,
        /// Why not.
        source: Box<TableOpenError>,
    },
    /// Something that all tables need cannot be had.
    #[error(transparent)]
    Node(Box<TableOpenError>),
}

impl<E: Into<TableOpenError>> From<E> for CatalogueError {
    fn from(error: E) -> Self {
        Self::Node(Box::new(error.into()))
    }
}

impl Catalogue {
    /// The tables that are there. No other process may have their folders meanwhile.
    ///
    /// # Errors
    /// One of them cannot be gone on with, or memory and descriptors are wanting.
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
        let incarnation = new_incarnation();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut catalogue = Self {
            tables: Vec::new(),
            numbers: BTreeMap::new(),
            closed: BTreeMap::new(),
            client_tables: ClientTables::default(),
            readers: HashSet::new(),
            work_queue: WorkQueue::default(),
            farewells: VecDeque::new(),
            jobs: Jobs::default(),
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
                transit: Transit::default(),
                kept_replies: KeptReplies::default(),
                follower: Follower::default(),
            },
            letting_go: LettingGo::default(),
            folder,
            waker: Waker::new()?,
            descriptors,
            started: clock.now(),
            sockets: None,
            clock,
            incarnation,
            requests: 0,
        };
        let there = catalogue.folder.as_ref().map(|folder| folder.tables()).transpose()?;
        for name in there.unwrap_or_default() {
            let failed = |source| CatalogueError::Table { name, source: Box::new(source) };
            let descriptors = catalogue.take_descriptors().map_err(failed)?;
            let Some(folder) = &catalogue.folder else { break };
            let descriptor = folder.descriptor(&name);
            let kind = descriptor.as_ref().map_or(KeyKind::U64, |descriptor| descriptor.kind);
            let map = name.as_range().map(|_| folder.map(&name)).transpose();
            let opened = descriptor.and_then(|descriptor| {
                let mut making = catalogue.making(name, descriptor, descriptors);
                making.map = map?.map(Arc::new);
                making.open()
            });
            match opened {
                Ok(table) => catalogue.host(table),
                // Of another memory node: that is no fault of the table.
                Err(why @ TableOpenError::Memory(MemoryError::FileInUse { .. })) => return Err(failed(why)),
                Err(why) => drop(catalogue.closed.insert(name, ClosedTable { kind, why })),
            }
        }
        if catalogue.numbers.is_empty()
            && let Some((name, ClosedTable { why, .. })) = catalogue.closed.pop_first()
        {
            // There is nothing to serve.
            return Err(CatalogueError::Table { name, source: Box::new(why) });
        }
        Ok(catalogue)
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

    /// As [`can_make`](Self::can_make), of what is no range of a table over several memory nodes and has no such one's name.
    fn can_make_table(
        &self,
        name: TableName,
        kind: KeyKind,
        region_bytes: Option<u64>,
    ) -> Result<Making, Refusal> {
        if name.as_range().is_some() {
            let why = format!(
                "`{name}` can only be a range of a table over several memory nodes: those are made with `fpcache-cli create --nodes`"
            );
            return Err(Refusal::new(ErrorCode::BadName, why));
        }
        if let Some(range) = self.range_of(&name, |_| true) {
            let why = format!(
                "there is a table `{name}` over several memory nodes, of which this one has `{range}`: use it, drop it, or choose \
                 another name"
            );
            return Err(Refusal::new(ErrorCode::TableExists, why));
        }
        self.can_make(name, kind, region_bytes)
    }

    /// A table that can be made, as far as that is known before.
    fn can_make(&self, name: TableName, kind: KeyKind, region_bytes: Option<u64>) -> Result<Making, Refusal> {
        if let Some(table) = self.get(&name) {
            let why = format!(
                "there is a table `{name}` already, with keys of the kind {}: use it, drop it, or choose another name",
                table.kind
            );
            return Err(Refusal::new(ErrorCode::TableExists, why));
        }
        if let Some(refusal) = self.refusal_for_closed(&name) {
            return Err(refusal);
        }
        self.check_region(region_bytes)?;
        let unable = |why: TableOpenError| jobs::unable(&name, &why);
        let creation = new_creation().map_err(|error| unable(error.into()))?;
        // Before a folder is made that would have to be removed again.
        let descriptors = self.take_descriptors().map_err(unable)?;
        Ok(self.making(name, Descriptor { kind, region_bytes, creation }, descriptors))
    }

    fn making(&self, name: TableName, descriptor: Descriptor, descriptors: Taken) -> Making {
        let (folder, opening) = (self.folder.clone(), self.opening.clone());
        Making { name, descriptor, map: None, folder, opening, waker: self.waker.beside(), descriptors }
    }

    /// Whether there can be a region of this size.
    fn check_region(&self, region_bytes: Option<u64>) -> Result<(), Refusal> {
        let size = |bytes| bytesize::ByteSize(bytes).display().iec();
        let budget = &self.opening.budget;
        match region_bytes {
            Some(bytes) if bytes < MIN_CAPACITY => {
                let why =
                    format!("a region of {} is too small: use at least {}", size(bytes), size(MIN_CAPACITY));
                Err(Refusal::new(ErrorCode::Invalid, why))
            }
            Some(bytes) if bytes > budget.bytes() => {
                let (bytes, all) = (size(bytes), size(budget.bytes()));
                let why = format!(
                    "a region of {bytes} is more than this memory node has for all tables, {all}: ask for less, or \
                     restart it with a larger --capacity"
                );
                Err(Refusal::new(ErrorCode::NoMemory, why))
            }
            _ => Ok(()),
        }
    }

    /// Removes a table and all its records. Its clients are hung up on; its memory is given back.
    ///
    /// # Errors
    /// There is none of that name, or the disk refuses: then the table is closed until it is dropped again, or the memory node
    /// starts anew.
    pub fn drop_table(&mut self, name: &TableName) -> Result<(), Refusal> {
        if let Some(removing) = self.removing_closed(name) {
            removing.run()?;
            self.closed.remove(name);
            return Ok(());
        }
        let (dropping, clients) = self.detach(name)?;
        self.farewells.extend(clients);
        let kind = dropping.table.kind;
        dropping.run().inspect_err(|refusal| self.close(*name, kind, refusal))
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
        let clients = self.client_tables.clear(ClientTable::Table(number)).collect();
        Ok((Dropping { table, folder: self.folder.clone() }, clients))
    }

    /// The tables there are, in the order of their names.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        self.hosted().map(HostedTable::info)
    }

    /// A table's memory node, to load records into before it is served; `None` if there is no such table, or its keys are
    /// others.
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

    /// What each table went on from, in the order of their names.
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
    fn take_descriptors(&self) -> Result<Taken, TableOpenError> {
        let needed = self.table_descriptors();
        let taken = self.descriptors.take(needed, DESCRIPTORS_FOR_CLIENTS);
        let left = || self.descriptors.left().saturating_sub(DESCRIPTORS_FOR_CLIENTS);
        taken.ok_or_else(|| TableOpenError::Descriptors { needed, left: left() })
    }

    /// Serves a table from now on.
    fn host(&mut self, table: HostedTable) {
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
        let why = format!("there is no table `{}`; there are: {there}", name.escape_debug());
        Refusal::new(ErrorCode::NoSuchTable, why)
    }

    /// Has clients that [ask](fpcache::message::Request::Sockets) told what these sockets count.
    pub fn count_sockets(&mut self, counters: SocketCounters) {
        self.sockets = Some(counters);
    }

    /// What its sockets count.
    fn socket_stats(&self) -> SocketStats {
        let Some(counters) = &self.sockets else { return SocketStats::default() };
        let counted = counters.snapshot();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        SocketStats {
            io_threads: counted.io_threads,
            spin_ns: ns(counted.spin),
            waits_spun: counted.waits_spun,
            waits_slept: counted.waits_slept,
            spun_ns: ns(counted.spun),
            connections: counted.connections,
            bad_frame: counted.hang_ups(HangUp::BadFrame),
            no_greeting: counted.hang_ups(HangUp::NoGreeting),
            slow_frame: counted.hang_ups(HangUp::SlowFrame),
            unread_replies: counted.hang_ups(HangUp::UnreadReplies),
            idle: counted.hang_ups(HangUp::Idle),
            other_protocol: counted.hang_ups(HangUp::OtherProtocol),
            no_right: counted.hang_ups(HangUp::NoRight),
            too_many: counted.hang_ups(HangUp::TooMany),
            no_region: counted.hang_ups(HangUp::NoRegion),
            no_resources: counted.hang_ups(HangUp::NoResources),
        }
    }

    /// Counters of the memory node as a whole.
    fn stats(&self) -> NodeStats {
        let mut all = NodeStats {
            incarnation: self.incarnation,
            region_bytes: self.opening.budget.bytes(),
            used_bytes: self.opening.budget.granted(),
            clients: self.client_tables.len() as u64,
            requests: self.requests,
            uptime_ms: self.clock.now().saturating_duration_since(self.started).as_millis() as u64,
            ..NodeStats::default()
        };
        for stats in self.hosted().map(|table| table.node.stats()) {
            all.keys += stats.keys;
            all.segments += stats.segments;
            all.requests += stats.requests;
            all.writes += stats.writes;
            all.inserts += stats.inserts;
            all.rebuilds += stats.rebuilds;
            all.copies += stats.copies;
            all.quarantined_bytes += stats.quarantined_bytes;
        }
        all
    }
}

/// The creation number of the lobby, and of no table.
const NO_TABLE: u64 = 0;

/// A creation number for a new table: no other table has it, nor had it, wherever and whenever it was made. Clients go by it to
/// tell a table from another of its name.
fn new_creation() -> Result<u64, FabricError> {
    loop {
        match random_bits()? {
            NO_TABLE => {}
            creation => return Ok(creation),
        }
    }
}
