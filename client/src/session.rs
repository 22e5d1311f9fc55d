//! One life of a memory node as a client knows it: connection, table, and each thread's own buffers.

use std::sync::{Arc, OnceLock};

use fpcache::key_space::KeySpace;
use fpcache::layout::TableRecord;
use fpcache::matching::Matcher;
use fpcache::read::{FabricCosts, LookupScratch, PlanChoice, Planner, ScanScratch};
use fpcache::snapshot::{OpenError, Snapshot};
use fpcache_fabric::{Connection, Endpoint, REGION};

/// A connection and what was fetched through it.
#[derive(Debug)]
pub(crate) struct Session<K: KeySpace, C> {
    pub(crate) connection: Arc<C>,
    table: OnceLock<Table<K>>,
    choice: PlanChoice,
}

/// A table as this compute node has it.
#[derive(Debug)]
pub(crate) struct Table<K: KeySpace> {
    pub(crate) snapshot: Snapshot<K>,
    pub(crate) planner: Planner,
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
    pub(crate) fn new(connection: Arc<C>, choice: PlanChoice) -> Self {
        Self { connection, table: OnceLock::new(), choice }
    }

    /// The table, fetched by the first call that needs it.
    #[inline]
    pub(crate) fn table<E: Endpoint>(&self, endpoint: &mut E) -> Result<&Table<K>, OpenError> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(endpoint),
        }
    }

    #[cold]
    fn open<E: Endpoint>(&self, endpoint: &mut E) -> Result<&Table<K>, OpenError> {
        let snapshot = Snapshot::open(endpoint)?;
        self.connection.will_read(REGION, 0, snapshot.record().used);
        let planner = Planner::new(self.choice, &FabricCosts::MAPPED_MEMORY, snapshot.geometry());
        // Another thread may have been faster; both fetched the same table.
        Ok(self.table.get_or_init(|| Table { snapshot, planner }))
    }
}

impl<K: KeySpace> Table<K> {
    pub(crate) fn stats(&self) -> TableStats {
        let model_bytes = self.snapshot.model_bytes() as u64;
        TableStats { record: *self.snapshot.record(), model_bytes }
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
    pub(crate) fn new(session: Arc<Session<K, C>>, number: u64, matcher: Matcher) -> Self {
        let endpoint = session.connection.endpoint();
        let buffers = Buffers { endpoint, lookup: LookupScratch::new(matcher), scan: ScanScratch::default() };
        Self { session, number, buffers }
    }
}
