//! One life of a memory node as a client knows it: connection, table, and each thread's own buffers.

use std::sync::{Arc, OnceLock};

use fpcache::key_space::KeySpace;
use fpcache::layout::TableRecord;
use fpcache::matching::Matcher;
use fpcache::read::{LookupScratch, ScanScratch};
use fpcache::snapshot::OpenError;
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::{Connection, Endpoint, REGION};

/// A connection and what was fetched through it.
#[derive(Debug)]
pub(crate) struct Session<K: KeySpace, C> {
    pub(crate) connection: Arc<C>,
    table: OnceLock<Table<K>>,
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
        Self { connection, table: OnceLock::new(), options }
    }

    /// The table, fetched by the first call that needs it.
    #[inline]
    pub(crate) fn table<E: Endpoint>(&self, endpoint: &mut E) -> Result<&Table<K>, OpenError> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(endpoint),
        }
    }

    /// The table, if it has been fetched.
    pub(crate) fn fetched(&self) -> Option<&Table<K>> {
        self.table.get()
    }

    #[cold]
    fn open<E: Endpoint>(&self, endpoint: &mut E) -> Result<&Table<K>, OpenError> {
        let table = Table::open(endpoint, &self.options)?;
        self.connection.will_read(REGION, 0, table.snapshot().record().used);
        // Another thread may have been faster; both fetched the same table.
        Ok(self.table.get_or_init(|| table))
    }
}

impl<K: KeySpace> From<&Table<K>> for TableStats {
    fn from(table: &Table<K>) -> Self {
        let snapshot = table.snapshot();
        Self { record: *snapshot.record(), model_bytes: snapshot.model_bytes() as u64 }
    }
}

/// One thread's endpoint and buffers, for one session.
#[derive(Debug)]
pub(crate) struct ThreadContext<K: KeySpace, C: Connection> {
    pub(crate) session: Arc<Session<K, C>>,
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

impl<K: KeySpace, C: Connection> ThreadContext<K, C> {
    /// Fetches the table if no thread has done so. `seed` is for the random choices of the thread.
    pub(crate) fn new(
        session: Arc<Session<K, C>>,
        number: u64,
        matcher: Matcher,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let mut endpoint = session.connection.endpoint();
        let mut lookup = LookupScratch::new(matcher);
        if let Some(cache) = session.table(&mut endpoint)?.cache() {
            lookup = lookup.with_visitor(cache.visitor(seed));
        }
        let buffers = Buffers { endpoint, lookup, scan: ScanScratch::default() };
        Ok(Self { session, number, buffers })
    }
}
