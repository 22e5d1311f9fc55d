//! The memory node of one table: its region, its table, and the state that serving them needs.

mod loading;
mod long_work;
mod operator_log;
pub(crate) mod owned_range;
pub(crate) mod parked;
mod quiet_turns;
mod server_side;
pub(crate) mod serving;
mod snapshotting;
mod turns;
mod values;
mod writes;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::SUPERBLOCK_BYTES;
use fpcache::map::{MappedRange, RangeMap};
use fpcache::message::{NodeStats, Refusal};
use fpcache_fabric::{AccessError, Clock, NodeMemory, SharedMemory, SystemClock, Waker};

use crate::awaiting_sync::Pending;
use crate::budget::Grant;
use crate::damaged_records::LeftOut;
use crate::dedup::{DedupSessions, KeptReplies};
use crate::durability::Lsn;
use crate::lease::Lease;
use crate::loader::Loader;
use crate::node::long_work::{Loading, Snapshotting};
use crate::node::operator_log::OperatorLog;
use crate::node::owned_range::Owned;
use crate::node::parked::{ParkedRequests, QUANTUM};
use crate::node::quiet_turns::Quiet;
use crate::request_memory::{Transit, TransitGuard};
use crate::superblock_writer::SuperblockWriter;
use crate::table::Table;
use crate::table::audit::Audit;
use crate::table::error::TableError;
use crate::table::segments::slots::{RecordPlace, SegmentPlace};
use crate::uploads::Uploads;
use crate::versions::FIRST_VERSION;
use crate::wal::Wal;

/// This release, as counters have it.
const RELEASE: u64 = {
    const fn number(digits: &str) -> u16 {
        match u16::from_str_radix(digits, 10) {
            Ok(number) => number,
            Err(_) => 0,
        }
    }
    let (major, minor) = (number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")));
    NodeStats::encode_release(major as u32, minor, number(env!("CARGO_PKG_VERSION_PATCH")))
};

/// A memory node over one region, which nothing else writes.
#[derive(Debug)]
pub struct MemoryNode<K: BuildKeys, M = SharedMemory> {
    pub(crate) node: u16,
    /// The creation number that requests must name.
    pub(crate) creation: u64,
    /// Which keys it has, if it is a range of a table over several memory nodes; else all.
    pub(crate) owned: Option<Owned<K>>,
    pub(crate) state: NodeState<K, M>,
    /// Loads that have ended, whose memory is given back little by little.
    pub(crate) given_up: Vec<Loader<K>>,
    pub(crate) sessions: DedupSessions,
    pub(crate) wal: Option<Wal<M>>,
    pub(crate) pending: Pending<K>,
    pub(crate) parked: ParkedRequests,
    quiet: Quiet,
    /// Nanoseconds of work that the table may do before its next turn.
    pub(crate) allowance: i64,
    pub(crate) uploads: Uploads,
    pub(crate) snapshotting: Option<Snapshotting>,
    /// Whether the disk has a snapshot that the log follows. Without one nothing that is written is
    /// durable.
    pub(crate) has_snapshot: bool,
    /// What the newest snapshot is without.
    pub(crate) left_out: LeftOut,
    /// The last entry that was done again when this life began.
    pub(crate) redone: Lsn,
    /// When to try again to write a snapshot that failed.
    pub(crate) retry_at: Option<Instant>,
    pub(crate) operator_log: OperatorLog,
    /// How it ended that the records of a load were brought to the disk, for the client that waits
    /// for it.
    pub(crate) durable: Option<Result<(), String>>,
    pub(crate) clients: u64,
    pub(crate) requests: u64,
    started: Instant,
    pub(crate) clock: Arc<dyn Clock>,
    /// What else wakes the serving loop.
    pub(crate) waker: Option<Waker>,
    pub(crate) transit: Transit,
    /// What the reply in hand has room for, if it goes out later.
    pub(crate) room: Option<TransitGuard>,
    /// The body of the reply in hand.
    pub(crate) body: Vec<u8>,
}

/// What a memory node has.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a memory node has one, and lookups and writes no detour to it")]
pub(crate) enum NodeState<K: BuildKeys, M> {
    /// No table; perhaps one that no client sees before its load has ended.
    Empty(SuperblockWriter<K, M>, Option<Loading<K>>),
    /// A table.
    Serving(Table<K, M>),
}

impl<K: BuildKeys, M> NodeState<K, M> {
    #[inline]
    pub(crate) fn superblock(&self) -> &SuperblockWriter<K, M> {
        match self {
            Self::Empty(superblock, _) => superblock,
            Self::Serving(table) => &table.room.superblock,
        }
    }

    pub(crate) fn superblock_mut(&mut self) -> &mut SuperblockWriter<K, M> {
        match self {
            Self::Empty(superblock, _) => superblock,
            Self::Serving(table) => &mut table.room.superblock,
        }
    }

    /// The load under way, which is none any more.
    pub(crate) fn take_loading(&mut self) -> Option<Loading<K>> {
        if let Self::Empty(_, loading) = self { loading.take() } else { None }
    }

    /// The table that is served.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Table<K, M>> {
        if let Self::Serving(table) = self { Some(table) } else { None }
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn table_mut(&mut self) -> Option<&mut Table<K, M>> {
        if let Self::Serving(table) = self { Some(table) } else { None }
    }
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// A memory node with an empty region. `incarnation` must differ from that of any earlier
    /// memory node its clients may have known; `node` is its number in segments' addresses.
    pub fn new(region: Arc<M>, incarnation: u64, node: u16, now: Instant) -> Result<Self, AccessError> {
        let grant = Grant::whole(region.len());
        Self::within(region, grant, incarnation, node, now)
    }

    /// As [`new`](Self::new), with a region of which it may use what it is granted.
    pub fn within(
        region: Arc<M>,
        grant: Arc<Grant>,
        incarnation: u64,
        node: u16,
        now: Instant,
    ) -> Result<Self, AccessError> {
        let superblock = SuperblockWriter::create(region, grant, incarnation)?;
        Ok(Self::over(NodeState::Empty(superblock, None), node, DedupSessions::default(), None, now))
    }

    /// A memory node over a region, whatever was found in it.
    pub(crate) fn over(
        state: NodeState<K, M>,
        node: u16,
        sessions: DedupSessions,
        wal: Option<Wal<M>>,
        now: Instant,
    ) -> Self {
        Self {
            state,
            node,
            creation: 0,
            owned: None,
            given_up: Vec::new(),
            sessions,
            wal,
            pending: Pending::default(),
            parked: ParkedRequests::default(),
            quiet: Quiet::default(),
            allowance: QUANTUM,
            uploads: Uploads::default(),
            snapshotting: None,
            has_snapshot: false,
            left_out: LeftOut::default(),
            operator_log: OperatorLog::default(),
            redone: 0,
            retry_at: None,
            durable: None,
            clients: 0,
            requests: 0,
            started: now,
            clock: Arc::new(SystemClock),
            waker: None,
            transit: Transit::default(),
            room: None,
            body: Vec::new(),
        }
    }

    /// The same with another creation number of its table than 0. Its clients must get that with
    /// their connections: requests that name another are refused.
    #[must_use]
    pub fn with_creation(self, creation: u64) -> Self {
        Self { creation, ..self }
    }

    /// The same, keeping no more of requests and replies than these tables do together.
    #[must_use]
    pub(crate) fn beside(mut self, others: &Transit, kept: &KeptReplies) -> Self {
        self.sessions.keep_within(kept);
        Self { transit: others.beside(), ..self }
    }

    /// The same with another clock than the machine's: the one its loop goes by.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        if let Some(wal) = &mut self.wal {
            wal.clock = Arc::clone(&clock);
        }
        self.clock = clock;
        self
    }

    /// The same, whose readers may believe what they know of memory's reuse for as long as this
    /// lease says.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.state.superblock_mut().lease = lease;
        self
    }

    /// Has the table retrain its encoders once it has this many keys; by default it does so from
    /// 4,096 on.
    pub fn retrain_at(&mut self, keys: u64) {
        if let Some(table) = self.state.table_mut() {
            table.retrain_at(keys);
        }
    }

    /// Has segments compacted once they take this many bytes more than their records need; by
    /// default that happens when it is worthwhile.
    pub fn give_back_from(&mut self, bytes: u64) {
        if let Some(table) = self.state.table_mut() {
            table.room.give_back_from(bytes);
        }
    }

    /// Has the table evacuate these offsets of its region once it has nothing else to do. By
    /// default that happens when a free extent of some length is missed.
    pub fn empty(&mut self, offsets: Range<u64>) {
        if let Some(table) = self.state.table_mut() {
            table.empty(offsets);
        }
    }

    /// Breaks the protocol on purpose from here on.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: Option<fpcache::sabotage::Sabotage>) {
        self.state.superblock_mut().sabotage = sabotage;
        if let Some(table) = self.state.table_mut() {
            table.segments.sabotage = sabotage;
        }
        if let Some(wal) = &mut self.wal {
            wal.sabotage(sabotage);
        }
    }

    /// Goes on counting versions from here, as after as many writes as lie between: tests let them
    /// wrap around so. Modulo 2²⁹; nothing without a table.
    pub fn count_versions_from(&mut self, version: u32) {
        if let Some(table) = self.state.table_mut() {
            table.segments.count_versions_from(version);
        }
    }

    /// The version of the next write.
    pub fn next_version(&self) -> u32 {
        self.state.table().map_or(FIRST_VERSION, |table| table.segments.next_version)
    }

    /// Where the record of a key lies, for tests that damage it; `None` if there is none, or it is
    /// damaged already.
    pub fn place_of(&mut self, key: &K::Key) -> Option<RecordPlace> {
        let NodeState::Serving(table) = &mut self.state else { return None };
        table.segments.where_is(key).ok().flatten()
    }

    /// Where the segment of a key lies, for tests that damage it.
    pub fn segment_of(&self, key: &K::Key) -> Option<SegmentPlace> {
        let NodeState::Serving(table) = &self.state else { return None };
        table.segments.segment_of(key)
    }

    /// The region.
    pub fn region(&self) -> &Arc<M> {
        &self.state.superblock().region
    }

    /// Counters for `stats`.
    pub fn stats(&self) -> NodeStats {
        let grant = &self.state.superblock().grant;
        let superblock = self.state.superblock().current();
        let mut stats = NodeStats {
            incarnation: superblock.incarnation,
            region_bytes: grant.limit(),
            used_bytes: SUPERBLOCK_BYTES as u64,
            clients: self.clients,
            requests: self.requests,
            uptime_ms: self.clock.now().saturating_duration_since(self.started).as_millis() as u64,
            log_head: superblock.log_head,
            release: RELEASE,
            ..NodeStats::default()
        };
        if let Some(wal) = &self.wal {
            stats.logged = wal.staging.last_lsn();
            stats.synced = wal.synced();
            stats.log_errors = wal.staging.failures();
            // Without a snapshot that counts nothing is written down: one was tried and failed.
            let lacks_snapshot = !self.has_snapshot && self.retry_at.is_some();
            stats.log_fails = u64::from(wal.staging.failure().is_some() || wal.has_lost() || lacks_snapshot);
        }
        if let Some(table) = self.state.table() {
            let (counters, space) = (&table.counters, &table.room.space);
            stats.used_bytes = grant.reach().saturating_sub(space.free_bytes());
            stats.quarantined_bytes = space.quarantined_bytes();
            stats.keys = table.segments.keys;
            stats.segments = table.segments.directory.len() as u64;
            stats.writes = counters.writes;
            stats.inserts = counters.inserts;
            stats.rebuilds = counters.rebuilds;
            stats.window_full_waits = counters.window_full_waits;
            stats.copies = counters.copies;
            stats.rebuild_ns = counters.rebuild_ns;
            stats.rebuild_ns_max = counters.rebuild_ns_max;
            stats.rebuild_ns_p99 = counters.rebuild_ns_p99();
            stats.checkpoint = table.room.record.checkpoint;
            stats.external_values = table.values.counted.values;
            stats.external_bytes = table.values.counted.bytes;
            stats.damaged_writes = counters.damaged_writes;
            stats.damaged_copies = counters.damaged_copies;
            stats.damaged_passed_by = counters.damaged_passed_by;
            stats.damaged_lookups = counters.damaged_lookups;
        }
        stats
    }

    /// Checks every byte of the table for what must hold; `None` without a table.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn audit(&self) -> Result<Option<Audit>, TableError> {
        self.state.table().map(|table| table.audit()).transpose()
    }

    /// Has it serve the keys of a range only. Says whether these can be.
    pub(crate) fn own(&mut self, map: &RangeMap, range: &MappedRange) -> bool {
        self.owned = Owned::of(map, range);
        self.owned.is_some()
    }

    /// Whether a key is one that it serves.
    #[inline]
    pub(crate) fn check_owned(&self, key: &K::Key) -> Result<(), Refusal> {
        match &self.owned {
            Some(owned) if !owned.has(key) => Err(owned.refusal(key)),
            _ => Ok(()),
        }
    }
}
