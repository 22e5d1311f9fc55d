//! The memory node: its region, its table, the requests it answers.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::layout::{SUPERBLOCK_BYTES, TableParameters, TableRecord};
use fpcache::message::{Chunk, ErrorCode, NodeStats, Refusal, Request, encode_reply};
use fpcache::models::Segment;
use fpcache_fabric::{
    AccessError, ClientId, Clock, Handled, NodeMemory, SHORT_BODY, Service, SharedMemory, SystemClock, Waker,
    Work,
};
use fpcache_index::Directory;

use crate::allocator::Allocator;
use crate::budget::Grant;
use crate::dedup::DedupSessions;
use crate::durability::Lsn;
use crate::loader::{Begin, ChunkPlace, FIRST_VERSION, Finished, LoadError, Loader};
use crate::parked::{Parked, Progress, QUANTUM, Queue, SHORT_ALLOWANCE, SHORT_REQUEST, Until, cost};
use crate::pending::Pending;
use crate::snapshotting::{PAUSE, Snapshotting};
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;
use crate::table::audit::Audit;
use crate::table::write::next_version;
use crate::table::{Parts, Table, TableError};
use crate::transit::{Held, Transit};
use crate::uploads::Uploads;
use crate::wal::Wal;

/// A memory node over one region, which nobody else writes.
#[derive(Debug)]
pub struct MemoryNode<K: BuildKeys, M = SharedMemory> {
    pub(crate) superblock: SuperblockWriter<K, M>,
    pub(crate) node: u16,
    /// The creation number that requests must name.
    creation: u64,
    pub(crate) table: Option<Table<K>>,
    pub(crate) sessions: DedupSessions,
    pub(crate) wal: Option<Wal<M>>,
    pub(crate) pending: Pending<K>,
    pub(crate) parked: Queue,
    /// Nanoseconds of work that the table may do before its next turn.
    pub(crate) allowance: i64,
    pub(crate) uploads: Uploads,
    pub(crate) snapshotting: Option<Snapshotting>,
    /// Whether the disk has a snapshot that the log follows. Without one nothing that is written is durable.
    pub(crate) has_snapshot: bool,
    /// The last entry that was done again when this life began.
    pub(crate) redone: Lsn,
    /// When to try again to write a snapshot that failed.
    pub(crate) retry_at: Option<Instant>,
    loading: Option<Loading<K>>,
    /// How it ended that the records of a load were brought to the disk, for the client that waits for it.
    pub(crate) durable: Option<Result<(), String>>,
    clients: u64,
    requests: u64,
    started: Instant,
    pub(crate) clock: Arc<dyn Clock>,
    /// What else wakes the serving loop.
    pub(crate) waker: Option<Waker>,
    pub(crate) transit: Transit,
    /// What the reply in hand has room for, if it goes out later.
    pub(crate) room: Option<Held>,
    /// The body of the reply in hand.
    body: Vec<u8>,
}

/// A load in progress.
#[derive(Debug)]
struct Loading<K: BuildKeys> {
    client: ClientId,
    loader: Loader<K>,
    /// When its client was last heard of.
    heard: Instant,
}

/// How long a load lasts whose client sends nothing, once another wants to load.
const LOAD_LEASE: Duration = Duration::from_secs(60);

/// How far the answer to a request is.
pub(crate) enum Answer {
    /// It is there.
    Now,
    /// It comes when the disk has got so far.
    Later,
    /// The request has got so far, and goes on after this.
    Waits(Progress, Until),
}

/// The generation of a region's first segment.
const FIRST_GENERATION: u32 = 1;

/// The client a load from this process counts as.
const SELF: ClientId = ClientId(u64::MAX);

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// A memory node with an empty region. `incarnation` must differ from that of any earlier memory node its clients
    /// may have known; `node` is its number in segments' addresses.
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
        Ok(Self::over(superblock, node, None, DedupSessions::default(), None, now))
    }

    /// A memory node over a region, whatever was found in it.
    pub(crate) fn over(
        superblock: SuperblockWriter<K, M>,
        node: u16,
        table: Option<Table<K>>,
        sessions: DedupSessions,
        wal: Option<Wal<M>>,
        now: Instant,
    ) -> Self {
        Self {
            superblock,
            node,
            creation: 0,
            table,
            sessions,
            wal,
            pending: Pending::default(),
            parked: Queue::default(),
            allowance: QUANTUM,
            uploads: Uploads::default(),
            snapshotting: None,
            has_snapshot: false,
            redone: 0,
            retry_at: None,
            loading: None,
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

    /// The same with another creation number of its table than 0. Its clients must get that with their connections: requests
    /// that name another are refused.
    #[must_use]
    pub fn with_creation(self, creation: u64) -> Self {
        Self { creation, ..self }
    }

    /// The same, keeping no more of requests and replies than these tables do together.
    #[must_use]
    pub(crate) fn beside(self, others: &Transit) -> Self {
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

    /// Has the table retrain on its keys as soon as it has so many, which it does by itself from 4,096 on: what makes numbers of
    /// byte strings is trained on them.
    pub fn retrain_at(&mut self, keys: u64) {
        if let Some(table) = &mut self.table {
            table.retrain_at(keys);
        }
    }

    /// Has the table's segments brought together as soon as they take so many bytes too much for the records they hold, which
    /// happens by itself when it is worth it.
    pub fn give_back_from(&mut self, bytes: u64) {
        if let Some(table) = &mut self.table {
            table.give_back_from(bytes);
        }
    }

    /// Has the table move what lies between these offsets of its region as soon as it has nothing else to do, so that they are
    /// free in one piece, which happens by itself to some when such a piece is missed.
    pub fn empty(&mut self, offsets: Range<u64>) {
        if let Some(table) = &mut self.table {
            table.empty(offsets);
        }
    }

    /// Breaks the protocol on purpose from here on.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: Option<fpcache::sabotage::Sabotage>) {
        self.superblock.sabotage = sabotage;
    }

    /// Goes on counting versions from here, as after as many writes as lie between: tests let them wrap around so.
    /// Modulo 2³⁰; nothing without a table.
    pub fn count_versions_from(&mut self, version: u32) {
        if let Some(table) = &mut self.table {
            table.count_versions_from(version);
        }
    }

    /// The version of the next write.
    pub fn next_version(&self) -> u32 {
        self.table.as_ref().map_or(FIRST_VERSION, Table::next_version)
    }

    /// The region.
    pub fn region(&self) -> &Arc<M> {
        &self.superblock.region
    }

    /// Loads records from this process: `keys` in ascending order, and `value(i, out)` to fill in the value of the
    /// `i`-th one, which has the size in `parameters`, or none if that varies.
    pub fn load<Q: Borrow<K::Key>>(
        &mut self,
        parameters: TableParameters,
        keys: impl ExactSizeIterator<Item = Q>,
        mut value: impl FnMut(usize, &mut [u8]),
    ) -> Result<TableRecord, Refusal> {
        let mut bytes = vec![0; parameters.shape.value_bytes.unwrap_or(0) as usize];
        let records = keys.enumerate();
        self.load_with(parameters, K::Encoders::default(), records, |(i, key), push| {
            value(i, &mut bytes);
            push(key.borrow(), &bytes)
        })
    }

    /// Loads records from this process, in ascending order of their keys, whose segments share `encoders`.
    pub fn load_records<Q: Borrow<K::Key>, V: AsRef<[u8]>>(
        &mut self,
        parameters: TableParameters,
        encoders: K::Encoders,
        records: impl ExactSizeIterator<Item = (Q, V)>,
    ) -> Result<TableRecord, Refusal> {
        self.load_with(parameters, encoders, records, |(key, value), push| push(key.borrow(), value.as_ref()))
    }

    fn load_with<R>(
        &mut self,
        parameters: TableParameters,
        encoders: K::Encoders,
        records: impl ExactSizeIterator<Item = R>,
        mut each: impl FnMut(R, &mut dyn FnMut(&K::Key, &[u8]) -> Result<(), LoadError>) -> Result<(), LoadError>,
    ) -> Result<TableRecord, Refusal> {
        self.begin(SELF, Begin { parameters, expected_keys: records.len() as u64, encoders })?;
        let region = Arc::clone(&self.superblock.region);
        let loader = self.loader(SELF)?;
        let mut push = |key: &K::Key, value: &[u8]| loader.push(&*region, key, value, FIRST_VERSION);
        let pushed = records.into_iter().try_for_each(|record| each(record, &mut push));
        let loaded = pushed.map_err(|e| e.refusal()).and_then(|()| self.commit(SELF));
        if loaded.is_err() {
            self.abort(SELF);
        }
        loaded
    }

    /// Counters for `stats`.
    pub fn stats(&self) -> NodeStats {
        let superblock = self.superblock.current();
        let mut stats = NodeStats {
            incarnation: superblock.incarnation,
            region_bytes: self.superblock.grant.limit(),
            used_bytes: SUPERBLOCK_BYTES as u64,
            clients: self.clients,
            requests: self.requests,
            uptime_ms: self.clock.now().saturating_duration_since(self.started).as_millis() as u64,
            log_head: superblock.log_head,
            ..NodeStats::default()
        };
        if let Some(wal) = &self.wal {
            stats.logged = wal.last();
            stats.synced = wal.synced();
        }
        if let Some(table) = &self.table {
            let (counters, space) = (&table.counters, table.space());
            stats.used_bytes = self.superblock.grant.reach().saturating_sub(space.free_bytes());
            stats.quarantined_bytes = space.quarantined_bytes();
            stats.keys = table.keys();
            stats.segments = table.segments();
            stats.writes = counters.writes;
            stats.inserts = counters.inserts;
            stats.rebuilds = counters.rebuilds;
            stats.window_full_waits = counters.window_full_waits;
            stats.copies = counters.copies;
            stats.rebuild_ns = counters.rebuild_ns;
            stats.rebuild_ns_max = counters.rebuild_ns_max;
            stats.rebuild_ns_p99 = counters.rebuild_ns_p99();
            stats.checkpoint = table.record().checkpoint;
            stats.external_values = table.external().values;
            stats.external_bytes = table.external().bytes;
        }
        stats
    }

    /// Checks every byte of the table for what must hold; `None` without a table.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn audit(&self) -> Result<Option<Audit>, TableError> {
        self.table.as_ref().map(|table| table.audit(&self.superblock)).transpose()
    }

    fn begin(&mut self, client: ClientId, begin: Begin<K>) -> Result<(), Refusal> {
        if let Some(table) = &self.table {
            let why = format!(
                "the table already holds {} keys: load into a table of another name, drop this one, or insert the \
                 records",
                table.keys()
            );
            return Err(Refusal::new(ErrorCode::NotEmpty, why));
        }
        let now = self.clock.now();
        if let Some(Loading { heard, .. }) = &self.loading {
            let silent = now.saturating_duration_since(*heard);
            if silent < LOAD_LEASE {
                let why = format!(
                    "another load into this table is in progress: wait until it is finished, or given up, which it is when \
                     its client has sent nothing for {} s, {} s from now at the earliest",
                    LOAD_LEASE.as_secs(),
                    (LOAD_LEASE - silent).as_secs() + 1
                );
                return Err(Refusal::new(ErrorCode::Busy, why));
            }
            self.loading = None;
            self.give_back_unused();
        }
        // The bytes of a load that never committed were never visible: they are simply used again.
        let loader = self.loader_for(begin).map_err(|e| e.refusal())?;
        self.loading = Some(Loading { client, loader, heard: now });
        Ok(())
    }

    /// A load into the empty region.
    pub(crate) fn loader_for(&self, begin: Begin<K>) -> Result<Loader<K>, LoadError> {
        let allocator = Allocator::new(SUPERBLOCK_BYTES as u64, Arc::clone(&self.superblock.grant));
        Loader::new(begin, allocator, self.node, FIRST_GENERATION)
    }

    pub(crate) fn loader(&mut self, client: ClientId) -> Result<&mut Loader<K>, Refusal> {
        match &mut self.loading {
            Some(loading) if loading.client == client => {
                loading.heard = self.clock.now();
                Ok(&mut loading.loader)
            }
            _ => Err(Refusal::new(
                ErrorCode::Invalid,
                "no load is in progress on this connection: begin one first; if one was, the memory node gave it up \
                 when the connection broke, or for another one after a minute without records",
            )),
        }
    }

    /// Ends `client`'s load, and waits until its records are on the disk.
    fn commit(&mut self, client: ClientId) -> Result<TableRecord, Refusal> {
        let record = self.publish_load(client)?;
        self.snapshot_now().map_err(not_durable)?;
        Ok(record)
    }

    fn publish_load(&mut self, client: ClientId) -> Result<TableRecord, Refusal> {
        self.loader(client)?;
        let Some(Loading { loader, .. }) = self.loading.take() else {
            return Err(Refusal::new(ErrorCode::Internal, "the load vanished"));
        };
        let loaded = self.take_load(loader);
        self.give_back_unused();
        loaded.map_err(|e| e.refusal())
    }

    /// Ends `client`'s load in steps.
    fn step_commit(
        &mut self,
        client: ClientId,
        progress: Progress,
        body: &mut Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let record = match progress {
            Progress::Commit(record) => {
                self.durable.take().unwrap_or(Ok(())).map_err(not_durable)?;
                record
            }
            _ => {
                let region = Arc::clone(&self.superblock.region);
                loop {
                    let step = self.loader(client)?.step_finish(&*region);
                    self.charge(cost::STEP);
                    match step {
                        Ok(true) => break,
                        Ok(false) if self.is_spent() => {
                            return Ok(Answer::Waits(Progress::Finish, Until::Turn));
                        }
                        Ok(false) => {}
                        Err(error) => {
                            self.abort(client);
                            return Err(error.refusal());
                        }
                    }
                }
                let record = self.publish_load(client)?;
                if self.wal.is_some() {
                    self.durable = None;
                    return Ok(Answer::Waits(Progress::Commit(record), Until::Durable));
                }
                record
            }
        };
        body.extend(record.keys.to_le_bytes());
        body.extend(record.segments.to_le_bytes());
        Ok(Answer::Now)
    }

    /// Takes some more of the records of a chunk.
    fn take_chunk(
        &mut self,
        client: ClientId,
        chunk: &Chunk<'_>,
        progress: Progress,
    ) -> Result<Answer, Refusal> {
        /// Records between two looks at the allowance.
        const RECORDS: u32 = 64;
        let region = Arc::clone(&self.superblock.region);
        let loader = self.loader(client)?;
        let mut place = match progress {
            Progress::Chunk(place) => Ok(place),
            _ => loader.begin_chunk(chunk),
        };
        loop {
            let (before, loader) = (place.as_ref().map_or(0, |place| place.at), self.loader(client)?);
            let pushed = place.and_then(|mut place| {
                loader.push_chunk(&*region, chunk, &mut place, RECORDS).map(|()| place)
            });
            match pushed {
                Ok(ChunkPlace { left: 0, .. }) => return Ok(Answer::Now),
                Ok(next) => {
                    self.charge(i64::from(RECORDS) * cost::LOADED + cost::bytes(next.at - before));
                    if self.is_spent() {
                        return Ok(Answer::Waits(Progress::Chunk(next), Until::Turn));
                    }
                    place = Ok(next);
                }
                Err(error) => {
                    self.abort(client);
                    return Err(error.refusal());
                }
            }
        }
    }

    /// Ends a load: its table is visible from here on.
    pub(crate) fn take_load(&mut self, loader: Loader<K>) -> Result<TableRecord, LoadError> {
        let finished = loader.finish(&*self.superblock.region)?;
        let record = finished.record;
        self.superblock.publish(record)?;
        self.table = Some(self.take_over(finished));
        if let (Some(wal), Some(table)) = (&self.wal, &self.table) {
            wal.recovery_area.set_applied(wal.last(), table.next_version())?;
        }
        Ok(record)
    }

    /// The table that a load has written.
    fn take_over(&self, finished: Finished<K>) -> Table<K> {
        let Finished { record, descriptors, encoders, published, used, next_generation, external } = finished;
        let entries = descriptors.iter().map(|d| (d.lo.clone(), Segment::from(d))).collect();
        // A load's keys ascend, and so do the first keys of its segments.
        let directory = Directory::from_sorted(entries).expect("segments in key order");
        let grant = &self.superblock.grant;
        let free = Extent { offset: used, len: (grant.end() & !7).saturating_sub(used) };
        let parts = Parts {
            record,
            encoders,
            directory,
            space: Space::new([free]).with_more(Arc::clone(grant)),
            published,
            next_generation,
            next_version: next_version(FIRST_VERSION),
            keys: record.keys,
            external,
        };
        Table::new(self.node, parts)
    }

    fn answer(
        &mut self,
        client: ClientId,
        request: &[u8],
        progress: Progress,
        body: &mut Vec<u8>,
    ) -> Result<Answer, Refusal> {
        match Request::decode::<K>(self.creation, request)? {
            Request::Stats => self.stats().encode(body),
            Request::LoadBegin { parameters, expected_keys, encoders } => {
                let encoders = match encoders {
                    [] => K::Encoders::default(),
                    bytes => K::decode_encoders(bytes).map_err(|why| LoadError::Encoders(why).refusal())?,
                };
                self.begin(client, Begin { parameters, expected_keys, encoders })?;
            }
            Request::LoadChunk(chunk) => return self.take_chunk(client, &chunk, progress),
            Request::LoadCommit => return self.step_commit(client, progress, body),
            Request::LoadAbort => self.abort(client),
            Request::Write(write) => {
                let going = if let Progress::Write(going) = progress { Some(going) } else { None };
                return self.write(client, &write, going, body);
            }
            Request::Value(piece) => return self.take_piece(client, &piece),
            Request::Get(keys) => return self.get(&keys, progress, body),
        }
        Ok(Answer::Now)
    }

    /// Goes on with a request; returns it if it is to go on later.
    pub(crate) fn resume(&mut self, parked: Parked) -> Option<Parked> {
        let Parked { client, request, progress, until, held } = parked;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let answer = self.answer(client, &request, progress, &mut body);
        if let (Until::Room, Some(table)) = (until, &mut self.table)
            && !matches!(answer, Ok(Answer::Waits(_, Until::Room)))
        {
            // It needs none any more.
            table.give_up_search();
        }
        let mut reply = Vec::new();
        let parked = match answer {
            Ok(Answer::Waits(progress, until)) => Some(Parked { client, request, progress, until, held }),
            Ok(Answer::Later) => None,
            Ok(Answer::Now) => {
                encode_reply(Ok(&body), &mut reply);
                None
            }
            Err(refusal) => {
                encode_reply(Err(&refusal), &mut reply);
                None
            }
        };
        if !reply.is_empty() {
            let room = self.room.take();
            self.parked.push_reply(client, reply, room);
        }
        self.keep_body(body);
        parked
    }

    /// Keeps the reply's buffer for the next, unless it is long: every table has one.
    fn keep_body(&mut self, mut body: Vec<u8>) {
        body.clear();
        body.shrink_to(SHORT_BODY);
        self.body = body;
    }

    pub(crate) fn no_table() -> Refusal {
        let why = "the table holds nothing yet: load a data set or make it an empty one first, for example by \
                   `fpcache-cli load ipv4` or `fpcache-cli create`";
        Refusal::new(ErrorCode::NoTable, why)
    }

    /// Does a little of what can be done between requests; the log has something to do at the instant `due`, if ever.
    fn work_between(&mut self, due: Option<Instant>) -> Work {
        if self.parked.awaits_durable() {
            return self.step_durable();
        }
        let Self { superblock, table: Some(table), pending, .. } = self else { return Work::Nothing };
        let is_busy = matches!(table.work(superblock, pending.is_empty()), Ok(true));
        // In its turn also while the table has work: under writes that never cease it always has.
        let snapshot = self.work_on_snapshot(due);
        self.charge(i64::from(is_busy) * cost::STEP + i64::from(snapshot == Work::More) * cost::STEP);
        if is_busy { Work::More } else { snapshot }
    }

    /// Gives up `client`'s load, if it has one.
    pub(crate) fn abort(&mut self, client: ClientId) {
        if self.loading.take_if(|loading| loading.client == client).is_some() {
            self.give_back_unused();
        }
    }

    /// Gives back what a load that never committed was granted.
    fn give_back_unused(&self) {
        if self.table.is_none() && self.loading.is_none() {
            self.superblock.grant.shrink_to(SUPERBLOCK_BYTES as u64);
        }
    }
}

/// The refusal of a load whose records did not reach the disk.
fn not_durable(why: String) -> Refusal {
    let why = format!("the records are loaded, but not on the disk; writes wait until they are: {why}");
    Refusal::new(ErrorCode::NotDurable, why)
}

/// The refusal for a region that cannot be accessed: a bug.
pub(crate) fn internal(error: AccessError) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("the region could not be accessed: {error}"))
}

impl<K: BuildKeys, M: NodeMemory> Service for MemoryNode<K, M> {
    fn has_room(&self, _: ClientId, request_bytes: usize) -> bool {
        self.transit.has_room_for_request(request_bytes)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.requests += 1;
        let held = self.transit.clone();
        let park = |progress, until| {
            let held = held.keep_request(request.len());
            Parked { client, request: request.to_vec(), progress, until, held }
        };
        // A short one is served at once, as one of each ring is in every round.
        let owed = if self.is_spent() { Some(self.allowance) } else { None };
        if owed.is_some() {
            if request.len() > SHORT_REQUEST {
                self.parked.park(park(Progress::New, Until::Turn), false);
                return Handled::Later;
            }
            self.allowance = SHORT_ALLOWANCE;
        }
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let handled = match self.answer(client, request, Progress::New, &mut body) {
            Ok(Answer::Later) => Handled::Later,
            Ok(Answer::Waits(progress, until)) => {
                self.parked.park(park(progress, until), false);
                Handled::Later
            }
            Ok(Answer::Now) => {
                encode_reply(Ok(&body), reply);
                Handled::Now
            }
            Err(refusal) => {
                encode_reply(Err(&refusal), reply);
                Handled::Now
            }
        };
        if let Some(owed) = owed {
            // But for what it took beyond what it may: a segment that was replaced. Short requests, however many, leave the
            // others something of the next turn.
            self.allowance = (owed + self.allowance.min(0)).max(owed.min(-QUANTUM / 2));
        }
        self.keep_body(body);
        handled
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.next_written(reply)
    }

    fn work(&mut self) -> Work {
        self.renew_allowance();
        let may_work = !self.is_spent();
        let due = self.wal.as_mut().and_then(Wal::work);
        // What fails here fails again when somebody needs it, who is told then.
        let _ = self.publish_synced();
        self.go_on();
        if let Some((last, wal)) = self.pending.last().zip(self.wal.as_mut()) {
            wal.want_synced(last);
        }
        // What is done between requests has its turn however many are parked.
        let work = if may_work { self.work_between(due) } else { Work::More };
        match work {
            _ if self.parked.is_empty() => work,
            Work::More => Work::More,
            _ if self.can_go_on() => Work::More,
            // The disk wakes the loop where it has a thread of its own.
            Work::Nothing => Work::At(self.clock.now() + PAUSE),
            Work::At(at) => Work::At(at.min(self.clock.now() + PAUSE)),
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.waker.clone()
    }

    fn connected(&mut self, _: ClientId, _: &[u8]) {
        self.clients += 1;
    }

    fn disconnected(&mut self, client: ClientId) {
        self.clients = self.clients.saturating_sub(1);
        self.abort(client);
        self.drop_parked_of(client);
        self.drop_uploads_of(client);
    }
}
