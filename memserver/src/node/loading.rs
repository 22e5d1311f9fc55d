//! Loads into an empty table: over a connection, in chunks and steps, or from this process.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{SUPERBLOCK_BYTES, TableParameters, TableRecord};
use fpcache::message::keys::take_record;
use fpcache::message::{ErrorCode, RecordChunk, Refusal};
use fpcache_fabric::{ClientId, NodeMemory};

use crate::allocator::Allocator;
use crate::loader::{Begin, Finished, LoadError, Loader};
use crate::node::long_work::{LoadId, Loading};
use crate::node::parked::{RequestState, WaitFor, cost};
use crate::node::serving::Dispatched;
use crate::node::{MemoryNode, NodeState};
use crate::space::{Extent, Space};
use crate::table::segments::Counts;
use crate::table::{Table, TableParts};
use crate::versions::{FIRST_VERSION, next_version};

/// How long a load lasts whose client sends nothing, once another wants to load.
const LOAD_LEASE: Duration = Duration::from_secs(60);

/// The generation of a region's first segment.
const FIRST_GENERATION: u32 = 1;

/// What a load from this process counts as.
const SELF: LoadId = LoadId { client: ClientId(u64::MAX), number: 0 };

/// The refusal of a load whose records did not reach the disk.
fn not_durable(why: String) -> Refusal {
    let why = format!("the records are loaded but not on the disk yet; writes wait until they are: {why}");
    Refusal::new(ErrorCode::NotDurable, why)
}

impl<K: BuildKeys, M: NodeMemory> MemoryNode<K, M> {
    /// Loads records from this process: `keys` in ascending order, and `value(i, out)` to fill in
    /// the value of the `i`-th one, which has the size in `parameters`, or none if that varies.
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

    /// Loads records from this process, in ascending order of their keys, whose segments share
    /// `encoders`.
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
        let region = Arc::clone(self.region());
        let loader = self.loader(SELF)?;
        let mut push = |key: &K::Key, value: &[u8]| loader.push(&*region, key, value, FIRST_VERSION);
        let pushed = records.into_iter().try_for_each(|record| each(record, &mut push));
        let loaded = pushed.map_err(|e| e.refusal()).and_then(|()| self.commit(SELF));
        if loaded.is_err() {
            self.abort(SELF);
        }
        loaded
    }

    /// Whether a load can begin: the table is empty, and no other load goes on.
    pub(crate) fn may_begin(&self) -> Result<(), Refusal> {
        if let Some(table) = self.state.table() {
            let why = format!(
                "the table already holds {} keys: load into a table of another name, drop this one, or insert the \
                 records",
                table.segments.keys
            );
            return Err(Refusal::new(ErrorCode::NotEmpty, why));
        }
        if let NodeState::Empty(_, Some(Loading { heard, .. })) = &self.state {
            let silent = self.clock.now().saturating_duration_since(*heard);
            if silent < LOAD_LEASE {
                let why = format!(
                    "another load into this table is in progress: wait until it ends; it is aborted when its client \
                     has sent nothing for {} s, {} s from now at the earliest",
                    LOAD_LEASE.as_secs(),
                    (LOAD_LEASE - silent).as_secs() + 1
                );
                return Err(Refusal::new(ErrorCode::Busy, why));
            }
        }
        Ok(())
    }

    pub(crate) fn begin(&mut self, id: LoadId, begin: Begin<K>) -> Result<(), Refusal> {
        self.may_begin()?;
        self.give_up_load();
        // The bytes of a load that never committed were never visible: they are simply used again.
        self.state.superblock().grant.end_returning();
        let loader = self.loader_for(begin).map_err(|e| {
            self.state.superblock().grant.begin_returning();
            e.refusal()
        })?;
        if let NodeState::Empty(_, loading) = &mut self.state {
            *loading = Some(Loading { id, loader, heard: self.clock.now() });
        }
        Ok(())
    }

    /// A load into the empty region.
    pub(crate) fn loader_for(&self, begin: Begin<K>) -> Result<Loader<K>, LoadError> {
        let allocator = Allocator::new(SUPERBLOCK_BYTES as u64, Arc::clone(&self.state.superblock().grant));
        Loader::new(begin, allocator, self.node, FIRST_GENERATION)
    }

    pub(crate) fn loader(&mut self, id: LoadId) -> Result<&mut Loader<K>, Refusal> {
        match &mut self.state {
            NodeState::Empty(_, Some(loading)) if loading.id == id => {
                loading.heard = self.clock.now();
                Ok(&mut loading.loader)
            }
            _ => Err(Refusal::new(
                ErrorCode::NoSuchLoad,
                "this load is not in progress on this connection: begin one anew; a load is aborted by its first error, \
                 when its connection breaks, or in favour of another one after a minute without records",
            )),
        }
    }

    /// Ends a load, and waits until its records are on the disk.
    pub(crate) fn commit(&mut self, id: LoadId) -> Result<TableRecord, Refusal> {
        let record = self.publish_load(id)?;
        self.snapshot_now().map_err(not_durable)?;
        Ok(record)
    }

    fn publish_load(&mut self, id: LoadId) -> Result<TableRecord, Refusal> {
        self.loader(id)?;
        let Some(Loading { mut loader, .. }) = self.state.take_loading() else {
            return Err(Refusal::new(ErrorCode::Internal, "the load vanished"));
        };
        let loaded = self.take_load(&mut loader);
        self.given_up.push(loader);
        if let NodeState::Empty(superblock, _) = &self.state {
            superblock.grant.begin_returning();
        }
        loaded.map_err(|e| e.refusal())
    }

    /// Ends a load in steps.
    pub(crate) fn step_commit(
        &mut self,
        id: LoadId,
        progress: RequestState,
        body: &mut Vec<u8>,
    ) -> Result<Dispatched, Refusal> {
        let record = match progress {
            RequestState::Commit(record) => {
                self.durable.take().unwrap_or(Ok(())).map_err(not_durable)?;
                *record
            }
            _ => {
                let region = Arc::clone(self.region());
                loop {
                    let step = self.loader(id)?.step_finish(&*region);
                    self.charge(cost::STEP);
                    match step {
                        Ok(true) => break,
                        Ok(false) if self.is_spent() => {
                            return Ok(Dispatched::Waits(RequestState::Finish, WaitFor::Turn));
                        }
                        Ok(false) => {}
                        Err(error) => {
                            self.abort(id);
                            return Err(error.refusal());
                        }
                    }
                }
                let record = self.publish_load(id)?;
                if self.wal.is_some() {
                    self.durable = None;
                    return Ok(Dispatched::Waits(RequestState::Commit(Box::new(record)), WaitFor::Durable));
                }
                record
            }
        };
        body.extend(record.keys.to_le_bytes());
        body.extend(record.segments.to_le_bytes());
        Ok(Dispatched::Now)
    }

    /// Takes some more of the records of a chunk.
    pub(crate) fn take_chunk(
        &mut self,
        id: LoadId,
        chunk: &RecordChunk<'_>,
        progress: RequestState,
    ) -> Result<Dispatched, Refusal> {
        /// Records between two looks at the allowance.
        const RECORDS: u32 = 64;
        let region = Arc::clone(self.region());
        if self.owned.is_some() && matches!(progress, RequestState::New) {
            self.check_chunk_owned(id, chunk)?;
        }
        let loader = self.loader(id)?;
        let mut place = match progress {
            RequestState::Chunk(place) => Ok(place),
            _ => loader.begin_chunk(chunk),
        };
        loop {
            let (before, left) = place.as_ref().map_or((0, 0), |place| (place.at, place.left));
            self.charge(i64::from(RECORDS.min(left)) * cost::LOADED);
            let loader = self.loader(id)?;
            let pushed = place.and_then(|mut place| {
                loader.push_chunk(&*region, chunk, &mut place, RECORDS).map(|()| place)
            });
            match pushed {
                Ok(next) => {
                    self.charge(cost::bytes(next.at - before));
                    if next.left == 0 {
                        return Ok(Dispatched::Now);
                    }
                    if self.is_spent() {
                        return Ok(Dispatched::Waits(RequestState::Chunk(next), WaitFor::Turn));
                    }
                    place = Ok(next);
                }
                Err(error) => {
                    self.abort(id);
                    return Err(error.refusal());
                }
            }
        }
    }

    /// Whether all keys of a chunk are those of the range that the table is; the load is given up
    /// if not.
    fn check_chunk_owned(&mut self, id: LoadId, chunk: &RecordChunk<'_>) -> Result<(), Refusal> {
        let shape = self.loader(id)?.shape();
        let mut rest = chunk.records;
        // What is no record is refused where it is taken.
        while let Some(((key, _), after)) = take_record::<K>(&shape, rest) {
            if let Err(refusal) = self.check_owned(key.borrow()) {
                self.abort(id);
                return Err(refusal);
            }
            rest = after;
        }
        self.charge(cost::bytes(chunk.records.len()));
        Ok(())
    }

    /// Ends a load: its table is visible from here on.
    pub(crate) fn take_load(&mut self, loader: &mut Loader<K>) -> Result<TableRecord, LoadError> {
        let superblock = self.state.superblock_mut();
        let finished = loader.finish(&*superblock.region)?;
        let record = finished.record;
        superblock.publish(record)?;
        self.state = NodeState::Serving(self.take_over(finished));
        if let (Some(wal), Some(table)) = (&self.wal, self.state.table()) {
            wal.recovery_area.set_applied(wal.staging.last_lsn(), table.segments.next_version)?;
        }
        Ok(record)
    }

    /// The table that a load has written.
    fn take_over(&self, finished: Finished<K>) -> Table<K, M> {
        let Finished { record, encoders, published, used, unused, next_generation, external, .. } = finished;
        let superblock = self.state.superblock().clone();
        let grant = &superblock.grant;
        let free = Extent { offset: used, len: (grant.end() & !7).saturating_sub(used) };
        let counts = Counts {
            bytes: finished.segment_bytes,
            next_generation,
            next_version: next_version(FIRST_VERSION),
            keys: record.keys,
        };
        let parts = TableParts {
            record,
            counts,
            encoders,
            directory: finished.directory,
            separators: finished.separators,
            space: Space::new(unused.into_iter().chain([free])).with_more(Arc::clone(grant)),
            published,
            external,
        };
        Table::new(superblock, self.node, parts)
    }

    /// Gives up a load, if it is in progress.
    pub(crate) fn abort(&mut self, id: LoadId) {
        if matches!(&self.state, NodeState::Empty(_, Some(loading)) if loading.id == id) {
            self.give_up_load();
        }
    }

    /// Gives up `client`'s load, if it has one.
    pub(crate) fn abort_of(&mut self, client: ClientId) {
        if matches!(&self.state, NodeState::Empty(_, Some(loading)) if loading.id.client == client) {
            self.give_up_load();
        }
    }

    /// Gives up the load there is. What it leaves is dropped and given back in steps.
    fn give_up_load(&mut self) {
        if let Some(Loading { loader, .. }) = self.state.take_loading() {
            self.given_up.push(loader);
            self.state.superblock().grant.begin_returning();
        }
    }

    /// Drops a little of what loads have left, and gives a little of their memory back if it is not
    /// used otherwise; `false` if there is nothing to do.
    pub(crate) fn step_giving_up(&mut self) -> bool {
        if let Some(loader) = self.given_up.last_mut() {
            if !loader.step_drop() {
                self.given_up.pop();
            }
            return true;
        }
        // A load that has begun meanwhile uses what is granted.
        matches!(&self.state, NodeState::Empty(superblock, None) if superblock.grant.step_returning())
    }
}
