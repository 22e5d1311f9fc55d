//! One life of a memory node as a client knows it: connection, table, and each thread's own buffers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fpcache::key_space::KeySpace;
use fpcache::layout::TableRecord;
use fpcache::matching::Matcher;
use fpcache::read::{LookupScratch, ScanScratch};
use fpcache::snapshot::OpenError;
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::{Connection, Endpoint, REGION};

/// A connection and what was fetched through it.
///
/// A session that was replaced is dropped at once: threads keep its table, not the session, and each lets go of it with
/// its next call or its end.
#[derive(Debug)]
pub(crate) struct Session<K: KeySpace, C> {
    pub(crate) connection: Arc<C>,
    table: OnceLock<Arc<Table<K>>>,
    /// Held while the table is fetched: each table takes the whole budget, so that there must never be two.
    opening: Mutex<()>,
    options: TableOptions,
}

/// What a compute node keeps of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableStats {
    /// The table's record: parameters, keys, segments.
    pub record: TableRecord,
    /// Bytes of models and directory on this compute node.
    pub model_bytes: u64,
}

impl<K: KeySpace, C: Connection> Session<K, C> {
    pub(crate) fn new(connection: Arc<C>, options: TableOptions) -> Self {
        Self { connection, table: OnceLock::new(), opening: Mutex::new(()), options }
    }

    /// The table, if it has been fetched.
    pub(crate) fn fetched(&self) -> Option<Arc<Table<K>>> {
        self.table.get().cloned()
    }

    /// The table, fetched by the first thread that needs it while the others wait for it.
    fn table<E: Endpoint>(&self, endpoint: &mut E) -> Result<Arc<Table<K>>, OpenError> {
        if let Some(table) = self.fetched() {
            return Ok(table);
        }
        // It guards no data: a thread that panicked has left nothing half done.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = self.fetched() {
            return Ok(table);
        }
        let table = Arc::new(Table::open(endpoint, &self.options)?);
        self.connection.will_read(REGION, 0, table.snapshot().record().used);
        Ok(Arc::clone(self.table.get_or_init(|| table)))
    }

    /// A thread's context for this session, which has this `number`. Fetches the table if no thread has done so. `seed`
    /// is for the random choices of the thread.
    pub(crate) fn context(
        &self,
        number: u64,
        matcher: Matcher,
        seed: u64,
    ) -> Result<ThreadContext<K, C>, OpenError> {
        let mut endpoint = self.connection.endpoint();
        let table = self.table(&mut endpoint)?;
        let mut lookup = LookupScratch::new(matcher);
        if let Some(cache) = table.cache() {
            lookup = lookup.with_visitor(cache.visitor(seed));
        }
        Ok(ThreadContext {
            table,
            number,
            buffers: Buffers { endpoint, lookup, scan: ScanScratch::default() },
        })
    }
}

impl<K: KeySpace> From<&Table<K>> for TableStats {
    fn from(table: &Table<K>) -> Self {
        let snapshot = table.snapshot();
        Self { record: *snapshot.record(), model_bytes: snapshot.model_bytes() as u64 }
    }
}

/// One thread's share of a session: its own endpoint and buffers, and the table all threads share.
#[derive(Debug)]
pub(crate) struct ThreadContext<K: KeySpace, C: Connection> {
    pub(crate) table: Arc<Table<K>>,
    /// The number of the session among the client's.
    pub(crate) number: u64,
    pub(crate) buffers: Buffers<K, C::Endpoint>,
}

/// What an operation runs with.
#[derive(Debug)]
pub(crate) struct Buffers<K: KeySpace, E> {
    pub(crate) endpoint: E,
    pub(crate) lookup: LookupScratch<K>,
    pub(crate) scan: ScanScratch<K>,
}
