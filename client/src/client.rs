//! The client handle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fpcache::TableName;
use fpcache::cache::CacheStats;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::message::{ErrorCode, NodeStats, Refusal, Request, SocketStats, WriteOperation, WriteReply};
use fpcache::plan::Expected;
use fpcache_fabric::Connection;

#[cfg(feature = "tokio")]
use crate::changes::Changes;
use crate::core::MeantTable;
use crate::counters::Counters;
use crate::empty_tables::first_parameters;
use crate::error::ClientError;
use crate::one_node::{ByKind, Ownership, Shared, with_direct};
use crate::pool::range_lanes::PoolLane;
use crate::pool::{Pool, PoolHeld};
use crate::session::TableStats;
use crate::write_lanes::{OpenLane, WriteLane};

/// A handle to a table of a memory node. Clones are cheap and share connection and models; any
/// number of threads may use one handle concurrently.
///
/// [`Client`] is for tables whose keys are `u64`s, [`ByteClient`] for those whose keys are byte
/// strings.
///
/// Unless it says otherwise, a call that reads fails as [`get`](Self::get) does, and one that
/// writes as [`insert`](Self::insert).
#[derive(Clone)]
pub struct TableClient<K: BuildKeys> {
    pub(crate) transport: Transport<K, Shared>,
    pub(crate) name: Arc<str>,
    pub(crate) table: TableName,
    pub(crate) deadline: Duration,
}

/// What is kept of a table on one memory node, or over several.
#[allow(clippy::large_enum_variant, reason = "the large one is the common one")]
pub(crate) enum Transport<K: BuildKeys, W: Ownership> {
    One(ByKind<K, W>),
    Pool(W::Of<Pool<K>, PoolHeld<K>>),
}

impl<K: BuildKeys> Clone for Transport<K, Shared> {
    fn clone(&self) -> Self {
        match self {
            Self::One(direct) => Self::One(direct.clone()),
            Self::Pool(pool) => Self::Pool(Arc::clone(pool)),
        }
    }
}

/// A record as scans give it: its key and its value.
pub type Record<K> = (<K as KeySpace>::Owned, Vec<u8>);

/// A client of a table whose keys are `u64`s.
pub type Client = TableClient<U64Keys>;

/// A client of a table whose keys are byte strings.
pub type ByteClient = TableClient<ByteKeys>;

/// Runs an expression with what is kept for the core or the pool in use.
macro_rules! with_core {
    ($transport:expr, $what:pat => $body:expr) => {
        match $transport {
            $crate::client::Transport::One(direct) => $crate::one_node::with_direct!(direct, $what => $body),
            $crate::client::Transport::Pool($what) => $body,
        }
    };
}
pub(crate) use with_core;

impl<K: BuildKeys> TableClient<K> {
    /// The same client with another deadline: `client.with_deadline(limit).get(key)`.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The memory node's counters: one request to its processor. If the table was dropped and made
    /// anew, they are of the new one.
    ///
    /// # Errors
    /// The memory node or the table is gone.
    pub fn stats(&self) -> Result<NodeStats, ClientError> {
        with_core!(&self.transport, core => core.stats(self.deadline))
    }

    /// Asks the memory node's processor for an answer of a few hundred bytes, and returns the time
    /// until it came, of several memory nodes that of the slowest: for checks of health. Connects
    /// again first if the connection was lost.
    ///
    /// # Errors
    /// No answer within the deadline; the memory node, or one of several, or the table is gone.
    pub fn ping(&self) -> Result<Duration, ClientError> {
        with_core!(&self.transport, core => core.ping(self.deadline))
    }

    /// Statistics of the memory node's sockets, for all tables: one request to its processor.
    /// `None` for a table over several memory nodes.
    ///
    /// # Errors
    /// The memory node is down, or of a release without these statistics.
    pub fn sockets(&self) -> Result<Option<SocketStats>, ClientError> {
        match self.transport {
            Transport::Pool(_) => Ok(None),
            _ => self.request(self.deadline, &Request::Sockets, None, |_, body| {
                Ok(Some(SocketStats::decode(body)?))
            }),
        }
    }

    /// The table's parameters and the bytes it takes here. O(segments).
    pub fn table(&self) -> Result<TableStats, ClientError> {
        with_core!(&self.transport, core => core.table_stats(self.deadline))
    }

    /// The plan for a call with this many keys that are not in the hot cache, its expected cost,
    /// and the alternatives. Over sockets, the time of a round trip is measured.
    pub fn expected(&self, keys: usize) -> Result<Expected, ClientError> {
        with_core!(&self.transport, core => core.expected(keys, self.deadline))
    }

    /// The lengths of keys and values, and the size of slots. For an empty table without
    /// parameters, those that the first write will set.
    pub fn shape(&self) -> Result<RecordShape, ClientError> {
        match with_core!(&self.transport, core => core.shape(self.deadline)) {
            Err(error) if error.is_of_empty_table() => Ok(first_parameters::<K>([]).shape),
            shape => shape,
        }
    }

    /// Bytes of the table's region that this process has mapped in huge pages, which makes reads
    /// faster; `None` if the operating system does not report it. Reads all mappings of the
    /// process: milliseconds per GiB.
    pub fn huge_bytes(&self) -> Option<u64> {
        match &self.transport {
            Transport::One(direct) => direct.huge_bytes(),
            Transport::Pool(pool) => pool.huge_bytes(),
        }
    }

    /// Statistics of what this compute node keeps within its budget; `None` without a budget.
    pub fn cache_stats(&self) -> Result<Option<CacheStats>, ClientError> {
        with_core!(&self.transport, core => core.cache_stats(self.deadline))
    }

    /// Counters of what all handles of this client did to keep up with the memory node.
    pub fn counters(&self) -> Counters {
        with_core!(&self.transport, core => core.counters())
    }

    /// Empties the hot cache; models stay.
    pub fn clear_cache(&self) {
        with_core!(&self.transport, core => core.clear_cache());
    }

    /// Takes a table that was lost for the empty one it is now, so that calls no longer end in
    /// [`ClientError::Emptied`]: reads find nothing, and the first write sets its parameters. For
    /// all clones of this client, and until it has seen records again. No round trip.
    ///
    /// For tables that are filled as they are read, such as caches. Where a lost table is to be
    /// loaded again, there is nothing to call: the client goes on by itself once it has parameters.
    pub fn accept_loss(&self) {
        with_core!(&self.transport, core => core.accept_loss());
    }

    /// The kind of the table's keys, which may differ from this client's; `None` without a table.
    /// One round trip.
    ///
    /// # Errors
    /// The memory node is down, or of another release.
    pub fn key_kind(&self) -> Result<Option<KeyKind>, ClientError> {
        with_core!(&self.transport, core => core.key_kind(self.deadline))
    }

    /// The memory node's name: its URL, or `embedded`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table's name.
    pub fn table_name(&self) -> &TableName {
        &self.table
    }

    /// The creation number of the table that this client is connected to. A table that is made anew
    /// has another one, with which the client goes on once it notices.
    pub fn creation(&self) -> u64 {
        match &self.transport {
            Transport::One(direct) => with_direct!(direct, core => core.connection().creation()),
            Transport::Pool(pool) => pool.creation(),
        }
    }

    /// Begins a load into the table of one memory node, and returns its number and the creation
    /// number of the table.
    pub(crate) fn begin_load(
        &self,
        parameters: TableParameters,
        expected_keys: u64,
        encoders: &K::Encoders,
    ) -> Result<(u64, u64), ClientError> {
        match &self.transport {
            Transport::One(direct) => {
                let within = self.deadline;
                with_direct!(direct, core => core.begin_load(parameters, expected_keys, encoders, within))
            }
            Transport::Pool(_) => Err(of_several_nodes()),
        }
    }

    /// The counters of the one memory node of the table with this creation number.
    pub(crate) fn stats_in(&self, creation: u64) -> Result<NodeStats, ClientError> {
        self.request(self.deadline, &Request::Stats, Some(creation), |_, body| Ok(NodeStats::decode(body)?))
    }

    /// Sends a request to the table's one memory node; to the table with the creation number
    /// `expected_creation`, if given.
    pub(crate) fn request<R>(
        &self,
        within: Duration,
        request: &Request<'_>,
        expected_creation: Option<u64>,
        take: impl FnOnce(u64, &[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        match &self.transport {
            Transport::One(direct) => {
                with_direct!(direct, core => core.call(request, expected_creation, within, take))
            }
            Transport::Pool(_) => Err(of_several_nodes()),
        }
    }

    /// Makes changes to the table that is meant, and appends the outcome of each.
    pub(crate) fn write<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        meant: MeantTable,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        with_core!(&self.transport, core => core.write(operations, meant, self.deadline, replies))
    }

    /// Makes changes of several callers, and returns the outcome of each. The error of one may also
    /// be reported for later ones, unless these are for other memory nodes.
    #[cfg(feature = "tokio")]
    pub(crate) fn write_each<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
    ) -> Vec<Result<WriteReply, ClientError>> {
        match &self.transport {
            Transport::One(direct) => {
                let mut replies = Vec::new();
                let (all, deadline) = (operations.clone(), self.deadline);
                let ended =
                    with_direct!(direct, core => core.write(all, MeantTable::Any, deadline, &mut replies));
                let too_few = || ClientError::OutcomeUnknown {
                    why: "the memory node has sent too few replies".to_owned(),
                };
                let error = || ended.as_ref().err().cloned().unwrap_or_else(too_few);
                let mut replies = replies.into_iter();
                operations.map(|_| replies.next().ok_or_else(error)).collect()
            }
            Transport::Pool(pool) => pool.write_each(operations, self.deadline),
        }
    }

    /// What keeps changes of a call, some of which are a memory node's `own`, from being made,
    /// before any is sent: that one of the `whole` call cannot be the table's, for example. A table
    /// that is empty gets the parameters that suit all of them.
    #[cfg(feature = "tokio")]
    pub(crate) fn misfit_of(
        &self,
        own: &Changes<K>,
        whole: &Changes<K>,
        within: Duration,
    ) -> Option<ClientError> {
        match &self.transport {
            Transport::One(direct) => {
                with_direct!(direct, core => core.prepare(whole.operations(), within)).err()
            }
            Transport::Pool(pool) => pool.misfit_of(own, whole, within),
        }
    }

    /// A lane for a write in flight.
    pub(crate) fn lane(&self) -> Result<Box<dyn WriteLane<K>>, ClientError> {
        Ok(match &self.transport {
            Transport::One(direct) => {
                with_direct!(direct, core => Box::new(OpenLane::open(core, self.deadline)?))
            }
            Transport::Pool(pool) => Box::new(PoolLane::of(pool)),
        })
    }

    /// An error of changing a key, with the memory node if there are several.
    pub(crate) fn naming_node(&self, key: &K::Key, error: ClientError) -> ClientError {
        match &self.transport {
            Transport::Pool(pool) => error.at(&pool.node_of(key)),
            _ => error,
        }
    }

    /// The memory node that has a key, if there are several; else nothing.
    #[cfg(feature = "tokio")]
    pub(crate) fn node_of(&self, key: &K::Key) -> String {
        match &self.transport {
            Transport::Pool(pool) => pool.node_of(key),
            Transport::One(_) => String::new(),
        }
    }

    pub(crate) fn max_request(&self) -> usize {
        // What is sent to a table over several memory nodes is sent to one of them.
        match &self.transport {
            Transport::One(direct) => with_direct!(direct, core => core.max_request()),
            Transport::Pool(_) => 0,
        }
    }
}

/// The error of a request that is for one memory node.
fn of_several_nodes() -> ClientError {
    let why = "such a request cannot be sent to a table over several memory nodes";
    Refusal::new(ErrorCode::Invalid, why).into()
}

impl<K: BuildKeys> fmt::Debug for TableClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, table, deadline, .. } = self;
        let mut shown = f.debug_struct("Client");
        shown.field("name", name).field("table", &table.as_str()).field("deadline", deadline).finish()
    }
}
