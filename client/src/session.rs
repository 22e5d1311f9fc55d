//! A client's session with one life of a memory node: connection, table, and the readers' buffers.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fpcache::group_tables::GroupBytes;
use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, TableParameters, TableRecord};
use fpcache::matching::Matcher;
use fpcache::read::{LookupScratch, NearestScratch, ScanScratch};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, Opening, read_parameters, read_used};
use fpcache_fabric::{Clock, Connection, Deadline, Endpoint, FabricError, REGION};

use crate::timed_lock::{TimedLock, TimedLockGuard};

/// A connection and what was fetched through it.
///
/// A session that was replaced is dropped at once: readers keep its table, not the session, and
/// each lets go of it with its next call or its end. So do they with a table that was brought up to
/// date, whose newer version shares the hot cache and most of the models.
#[derive(Debug)]
pub(crate) struct Session<K: BuildKeys, C> {
    pub(crate) connection: Arc<C>,
    /// Tells the client's sessions apart.
    pub(crate) id: u64,
    table: Mutex<Option<Arc<Table<K>>>>,
    /// Held while the table is fetched or brought up to date: each table takes the whole budget, so
    /// that there must never be two.
    opening: TimedLock,
    /// What calls whose time was over have fetched of a table; of whose turn it is.
    so_far: Mutex<Opening<K>>,
    options: TableOptions,
    /// How records lie in slots, once it was read without the table, which does not fit the budget
    /// or takes its time to be fetched.
    shape: OnceLock<RecordShape>,
}

/// What a compute node keeps of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableStats {
    /// The table's record: parameters, keys, segments.
    pub record: TableRecord,
    /// Bytes of models and directory on this compute node.
    pub model_bytes: u64,
    /// Bytes of the room for tables of groups; 0 if lookups do not use them.
    pub group_bytes: u64,
    /// What these are spent on.
    pub group_parts: GroupBytes,
    /// Bytes of everything: those, the hot cache, and the structures around them.
    pub bytes: u64,
}

impl<K: BuildKeys, C: Connection> Session<K, C> {
    pub(crate) fn new(connection: Arc<C>, id: u64, options: TableOptions) -> Self {
        Self {
            connection,
            id,
            table: Mutex::new(None),
            opening: TimedLock::default(),
            so_far: Mutex::default(),
            options,
            shape: OnceLock::new(),
        }
    }

    /// The table, if it has been fetched.
    pub(crate) fn fetched(&self) -> Option<Arc<Table<K>>> {
        self.kept().clone()
    }

    /// How records lie in slots, if that was read and the table is not here.
    pub(crate) fn shape_alone(&self) -> Option<RecordShape> {
        self.shape.get().copied().filter(|_| self.kept().is_none())
    }

    /// Reads how records lie in slots, without the rest of the table, for a call that has so much
    /// time `left`.
    pub(crate) fn read_shape(&self, left: Duration) -> Result<RecordShape, OpenError> {
        if let Some(shape) = self.shape.get() {
            return Ok(*shape);
        }
        // A table keeps its shape for as long as it is served over this connection.
        let shape = self.read_parameters(left)?.shape;
        Ok(*self.shape.get_or_init(|| shape))
    }

    /// Reads the table's parameters, without the rest of the table, for a call that has `left`
    /// time.
    pub(crate) fn read_parameters(&self, left: Duration) -> Result<TableParameters, OpenError> {
        let mut endpoint = self.connection.endpoint();
        endpoint.set_patience(left);
        read_parameters::<K, _>(&mut endpoint)
    }

    /// Puts a newer version in the table's place.
    pub(crate) fn put(&self, table: Arc<Table<K>>) {
        let _old = self.kept().replace(table);
    }

    /// The turn to fetch the table or to bring it up to date, for a call that has so much time
    /// `left`; and what is left of that when its turn has come.
    pub(crate) fn opening(
        &self,
        left: Duration,
        clock: &dyn Clock,
    ) -> Result<(TimedLockGuard<'_>, Duration), OpenError> {
        let deadline = Deadline::after_on(clock, left);
        let waiting_for = "another thread, which fetches the table";
        let turn = self.opening.take(deadline, clock).ok_or(FabricError::DeadlinePassed { waiting_for })?;
        Ok((turn, deadline.remaining(clock.now()).unwrap_or(left)))
    }

    /// What earlier turns have fetched of the table, in the present one.
    pub(crate) fn so_far(&self) -> MutexGuard<'_, Opening<K>> {
        // A panic elsewhere leaves nothing that the next turn does not check, as peers' data.
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<Table<K>>>> {
        // Replaced in one assignment.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, fetched by the first thread that needs it while the others wait for it, none
    /// longer than it has time `left`. The next one goes on where that was too short.
    pub(crate) fn table<E: Endpoint>(
        &self,
        endpoint: &mut E,
        left: Duration,
        clock: &dyn Clock,
    ) -> Result<Arc<Table<K>>, OpenError> {
        if let Some(table) = self.fetched() {
            return Ok(table);
        }
        let (opening, left) = self.opening(left, clock)?;
        let deadline = Deadline::after_on(clock, left);
        endpoint.set_patience(left);
        if let Some(table) = self.fetched() {
            return Ok(table);
        }
        let table = Arc::new(Table::open_on(endpoint, &mut self.so_far(), &self.options)?);
        self.put(Arc::clone(&table));
        // No other call waits for what only makes the first reads faster.
        drop(opening);
        let left = deadline.remaining(clock.now()).unwrap_or(left);
        if matches!(endpoint.in_place(REGION), Ok(Some(_))) {
            map_pages(&*self.connection, || read_used::<K, E>(endpoint).unwrap_or(0), left, clock);
        }
        Ok(table)
    }

    /// A reader's context for this session, whose table has this `number`. Fetches the table if
    /// that was not done yet. `seed` is for its random choices, and `left` the time of the call
    /// that begins with it.
    pub(crate) fn context(
        &self,
        number: u64,
        matcher: Matcher,
        seed: u64,
        left: Duration,
        clock: &dyn Clock,
    ) -> Result<ReaderContext<K, C>, OpenError> {
        let mut endpoint = self.connection.endpoint();
        endpoint.set_patience(left);
        let table = self.table(&mut endpoint, left, clock)?;
        let mut lookup = LookupScratch::new(matcher);
        if let Some(cache) = table.cache() {
            lookup = lookup.with_cache_handle(cache.handle(seed));
        }
        Ok(ReaderContext {
            table,
            session: self.id,
            number,
            buffers: Buffers {
                endpoint,
                creation: self.connection.creation(),
                lookup,
                scan: ScanScratch::default(),
                nearest: NearestScratch::default(),
            },
        })
    }
}

/// Has the pages mapped of the region's used bytes, for a call that has `left` time, of which it
/// takes at most half: pages that are not mapped then are when they are first read. Their end is
/// asked for before each piece: where a table has shrunk or was dropped meanwhile, mapping pages
/// would take memory that its memory node has given back, and does not count.
pub(crate) fn map_pages(
    connection: &impl Connection,
    mut used: impl FnMut() -> u64,
    left: Duration,
    clock: &dyn Clock,
) {
    /// Takes a few milliseconds.
    const PIECE: u64 = 16 << 20;
    let deadline = Deadline::after_on(clock, left / 2);
    let mut at = 0u64;
    while !deadline.has_passed(clock.now()) {
        let rest = used().saturating_sub(at);
        if rest == 0 {
            return;
        }
        connection.will_read(REGION, at, PIECE.min(rest));
        at = at.saturating_add(PIECE);
    }
}

impl<K: BuildKeys> From<&Table<K>> for TableStats {
    fn from(table: &Table<K>) -> Self {
        let view = table.view();
        let (model_bytes, group_bytes) = (view.model_bytes() as u64, table.group_bytes());
        let (group_parts, bytes) = (table.group_parts(), table.size_in_bytes());
        Self { record: *view.record(), model_bytes, group_bytes, group_parts, bytes }
    }
}

/// One reader's share of a session: its own endpoint and buffers, and the table all readers share.
#[derive(Debug)]
pub(crate) struct ReaderContext<K: BuildKeys, C: Connection> {
    pub(crate) table: Arc<Table<K>>,
    /// The session's id.
    pub(crate) session: u64,
    /// The number of the table among the client's.
    pub(crate) number: u64,
    pub(crate) buffers: Buffers<K, C::Endpoint>,
}

/// What an operation runs with.
#[derive(Debug)]
pub(crate) struct Buffers<K: BuildKeys, E> {
    pub(crate) endpoint: E,
    /// The creation number of the table that the endpoint reads.
    pub(crate) creation: u64,
    pub(crate) lookup: LookupScratch<K>,
    pub(crate) scan: ScanScratch<K>,
    pub(crate) nearest: NearestScratch<K>,
}
