//! The handle a program holds.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache::cache::CacheStats;
use fpcache::key_space::{BuildKeys, ByteKeys, KeyKind, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::{ErrorCode, NodeStats, Refusal, Request, WriteOperation, WriteReply};
use fpcache::read::{Cost, Expected, FabricCosts, LookupScratch, Outcome, Plan, Wanted};

use fpcache_fabric::{Connection, FabricError};

use crate::access::token_for;
use crate::answers::Answers;
use crate::config::ClientConfig;
use crate::core::Core;
use crate::counters::Counters;
use crate::empty::first_parameters;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::lanes::{Lanes, OpenLanes};
use crate::load::Load;
use crate::mapped::MappedNode;
use crate::node::Node;
use crate::pool::{Pool, PoolLanes, RangeClient};
use crate::reader::{Place, Places, PoolPlace, Reader};
use crate::remote::RemoteNode;
use crate::session::TableStats;
use crate::url::{Url, parse_list};

/// How a lookup ended and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The record's version, `None` if the key is absent.
    pub version: Option<u32>,
    /// The plan that gave the answer.
    pub plan: Plan,
    /// What it cost.
    pub cost: Cost,
}

impl From<&Outcome> for Found {
    fn from(outcome: &Outcome) -> Self {
        Self { version: outcome.version, plan: outcome.plan, cost: outcome.cost }
    }
}

/// A handle on a memory node's table. Clones are cheap and share connection and models; any number of threads may use
/// one handle at once.
///
/// [`Client`] is for tables whose keys are `u64`s, [`ByteClient`] for those whose keys are byte strings.
pub struct TableClient<K: BuildKeys> {
    pub(crate) transport: Transport<K>,
    name: Arc<str>,
    deadline: Duration,
}

/// One [`Core`] per kind of connection, so that lookups are compiled for each.
pub(crate) enum Transport<K: BuildKeys> {
    Mapped(Arc<Core<K, MappedNode>>),
    Remote(Arc<Core<K, RemoteNode>>),
    Pool(Arc<Pool<K>>),
    #[cfg(feature = "sim")]
    Simulated(Arc<Core<K, crate::simulated::SimulatedNode>>),
}

/// A record as scans give it: its key and its value.
pub type Record<K> = (<K as KeySpace>::Owned, Vec<u8>);

/// A client of a table whose keys are `u64`s.
pub type Client = TableClient<U64Keys>;

/// A client of a table whose keys are byte strings.
pub type ByteClient = TableClient<ByteKeys>;

impl<K: BuildKeys> Clone for TableClient<K> {
    fn clone(&self) -> Self {
        let transport = match &self.transport {
            Transport::Mapped(core) => Transport::Mapped(Arc::clone(core)),
            Transport::Remote(core) => Transport::Remote(Arc::clone(core)),
            Transport::Pool(pool) => Transport::Pool(Arc::clone(pool)),
            #[cfg(feature = "sim")]
            Transport::Simulated(core) => Transport::Simulated(Arc::clone(core)),
        };
        Self { transport, name: Arc::clone(&self.name), deadline: self.deadline }
    }
}

/// Runs an expression with the core in use.
macro_rules! with_core {
    ($client:expr, $core:ident => $body:expr) => {
        match &$client.transport {
            $crate::client::Transport::Mapped($core) => $body,
            $crate::client::Transport::Remote($core) => $body,
            $crate::client::Transport::Pool($core) => $body,
            #[cfg(feature = "sim")]
            $crate::client::Transport::Simulated($core) => $body,
        }
    };
}
pub(crate) use with_core;

/// Runs an expression with the core in use, or another one where the table is over several memory nodes.
macro_rules! with_direct {
    ($client:expr, $core:ident => $body:expr, $pool:ident => $other:expr) => {
        match &$client.transport {
            $crate::client::Transport::Mapped($core) => $body,
            $crate::client::Transport::Remote($core) => $body,
            $crate::client::Transport::Pool($pool) => $other,
            #[cfg(feature = "sim")]
            $crate::client::Transport::Simulated($core) => $body,
        }
    };
}
pub(crate) use with_direct;

impl<K: BuildKeys> TableClient<K> {
    /// Connects to the memory node at `url`, for example `shm://fpcache`, for its table `default`.
    ///
    /// # Errors
    /// As for [`connect_with`](Self::connect_with).
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_with(url, ClientConfig::default())
    }

    /// Connects with settings, to the table that they name, whose keys are of the kind of this client.
    ///
    /// # Errors
    /// A bad URL, no memory node there, no table of the name, no right to it, one of another release, or
    /// [`OtherKeys`](ClientError::OtherKeys).
    pub fn connect_with(url: &str, config: ClientConfig) -> Result<Self, ClientError> {
        Self::connect_at(parse_list(url)?, &config)
    }

    /// Connects to the first of these memory nodes that has the table, or a range of it.
    fn connect_at(urls: Vec<Url>, config: &ClientConfig) -> Result<Self, ClientError> {
        let names: Vec<String> = urls.iter().map(Url::to_string).collect();
        let (begun, mut first_error) = (Instant::now(), None);
        for (at, url) in urls.iter().enumerate() {
            // One that is silent leaves the others their share of the time.
            let left = config.deadline.saturating_sub(begun.elapsed());
            match Self::open_one(url, config, left / (urls.len() - at) as u32) {
                Ok(transport) => return Ok(Self::of(transport, &names.join(","), config.deadline)),
                Err(error) => {
                    let has_none = matches!(error, ClientError::NoSuchTable { .. });
                    let left = config.deadline.saturating_sub(begun.elapsed());
                    if has_none && let Some(pool) = Pool::open(&urls, config, left)? {
                        return Ok(Self::of(Transport::Pool(pool), &names.join(","), config.deadline));
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        let no_url = || ClientError::from(FabricError::DeadlinePassed { waiting_for: "a URL" });
        Err(first_error.unwrap_or_else(no_url))
    }

    /// Connects to a table of one memory node.
    fn open_one(url: &Url, config: &ClientConfig, within: Duration) -> Result<Transport<K>, ClientError> {
        let config = &config.with_token(token_for(url, config.token)?);
        let now = &config.with_deadline(within);
        Ok(match url {
            Url::Shm(address) => {
                let node = MappedNode::at(address.clone(), config.table);
                Transport::Mapped(node.open(now, FabricCosts::MAPPED_MEMORY)?)
            }
            Url::Tcp(address) => {
                let node = RemoteNode::at(address.clone(), config);
                let costs = node.costs();
                Transport::Remote(node.open(now, costs)?)
            }
        })
    }

    /// A client that reaches its table so.
    pub(crate) fn of(transport: Transport<K>, name: &str, deadline: Duration) -> Self {
        Self { transport, name: name.into(), deadline }
    }

    /// A memory node of `capacity` bytes inside this process, and a client of its one table. It ends with its last handle.
    ///
    /// # Errors
    /// If the memory cannot be had.
    #[cfg(feature = "embedded")]
    pub fn embedded(capacity: usize) -> Result<Self, ClientError> {
        Self::embedded_with(capacity, ClientConfig::default())
    }

    /// As [`embedded`](Self::embedded), with settings.
    ///
    /// # Errors
    /// If the memory cannot be had.
    #[cfg(feature = "embedded")]
    pub fn embedded_with(capacity: usize, config: ClientConfig) -> Result<Self, ClientError> {
        let node = MappedNode::Here(crate::embedded::EmbeddedNode::start::<K>(capacity)?);
        Ok(Self {
            transport: Transport::Mapped(node.open(&config, FabricCosts::MAPPED_MEMORY)?),
            name: "embedded".into(),
            deadline: config.deadline,
        })
    }

    /// Another client of the same memory node, with settings and connections of its own: of the table that the settings name.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn beside(&self, config: ClientConfig) -> Result<Self, ClientError> {
        let transport = match &self.transport {
            Transport::Mapped(core) => {
                let node = core.connector().beside(&config);
                Transport::Mapped(node.open(&config, FabricCosts::MAPPED_MEMORY)?)
            }
            Transport::Remote(core) => {
                let node = core.connector().beside(&config);
                let costs = node.costs();
                Transport::Remote(node.open(&config, costs)?)
            }
            Transport::Pool(pool) => return Self::connect_at(pool.urls().to_vec(), &config),
            #[cfg(feature = "sim")]
            Transport::Simulated(core) => {
                let connector = core.connector().clone();
                Transport::Simulated(Core::connect(
                    connector,
                    config.table_options(FabricCosts::MAPPED_MEMORY),
                    config.deadline,
                )?)
            }
        };
        Ok(Self { transport, name: Arc::clone(&self.name), deadline: config.deadline })
    }

    /// A client of a memory node in a simulated world, for one process of that world: every process makes its own.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    #[cfg(feature = "sim")]
    pub fn simulated(
        sim: &fpcache_fabric::sim::Sim,
        node: fpcache_fabric::sim::NodeId,
        config: ClientConfig,
    ) -> Result<Self, ClientError> {
        let connector = crate::simulated::SimulatedNode::new(sim, node);
        let core =
            Core::connect(connector, config.table_options(FabricCosts::MAPPED_MEMORY), config.deadline)?;
        Ok(Self {
            transport: Transport::Simulated(core),
            name: "simulated".into(),
            deadline: config.deadline,
        })
    }

    /// A reader for one thread: the same lookups and scans without what finding a thread's own buffers costs, and some that only
    /// readers have. Cheap: what it needs is made by its first call.
    pub fn reader(&self) -> Reader<K> {
        let places = match &self.transport {
            Transport::Mapped(core) => Places::Mapped(Place::new(core)),
            Transport::Remote(core) => Places::Remote(Place::new(core)),
            Transport::Pool(pool) => Places::Pool(PoolPlace::new(pool)),
            #[cfg(feature = "sim")]
            Transport::Simulated(core) => Places::Simulated(Place::new(core)),
        };
        Reader::new(places, self.deadline)
    }

    /// The same client with another deadline: `client.with_deadline(limit).get(key)`.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The value of `key`, `None` if it is absent. One or two dependent round trips, as the [`Plan`] has it, and one more for a
    /// value that is external; see the [crate](crate#cost) for what costs more, and [`get_into`](Self::get_into) to spare the allocation.
    ///
    /// # Errors
    /// The memory node is gone and did not come back in time, holds no table, or the record was being written until
    /// the deadline.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.version.map(|_| value))
    }

    /// Puts the value of `key` into `value`, which it replaces, and says how the lookup went. Allocates nothing once
    /// `value` has the room. An absent key leaves `value` empty.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn get_into(&self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        let take = |outcome: &Outcome, found: Option<&[u8]>| {
            value.clear();
            value.extend_from_slice(found.unwrap_or_default());
            Found::from(outcome)
        };
        with_core!(self, core => core.here(|held| core.look_up(held, key.as_key(), self.deadline, take)))
    }

    /// Whether `key` is there, without its value, which is not read if it is external.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        with_core!(self, core => core.here(|held| core.contains(held, key.as_key(), self.deadline)))
    }

    /// The values of `keys`, in their order. All keys share their round trips: as many as the slowest of them needs, and one more
    /// for each 64 MiB of external values.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut answers = Answers::new();
        self.multi_get_into(keys, &mut answers)?;
        Ok(answers.values().map(|value| value.map(<[u8]>::to_vec)).collect())
    }

    /// As [`multi_get`](Self::multi_get), into buffers that are kept: allocates nothing once they have the room.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[inline]
    pub fn multi_get_into(&self, keys: &[impl AsKey<K>], answers: &mut Answers) -> Result<(), ClientError> {
        let take = |scratch: &mut LookupScratch<K>| scratch.swap_outcomes(&mut answers.outcomes);
        let keys = (keys.iter().map(AsKey::as_key), Wanted::Value);
        with_core!(self, core => core.here(|held| core.lookup(held, keys, self.deadline, take)))
    }

    /// Up to `limit` records in key order, from the least key not below `start`. One round trip for each 256 KiB of slots, and of
    /// values outside them; [`scan_with`](Self::scan_with) keeps no more of these than 32 MiB at a time.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.scan_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan`](Self::scan), handing each record to `take`, which must not use this client.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_with(
        &self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        with_core!(self, core => core.here(|held| core.scan(held, (start.as_key(), None), limit, self.deadline, take)))
    }

    /// Hands up to `limit` records with keys from `start` up to `end`, exclusive, to `take`, in key order.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn scan_range(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let range = (start.as_key(), Some(end.as_key()));
        with_core!(self, core => core.here(|held| core.scan(held, range, limit, self.deadline, take)))
    }

    /// The memory node's counters: one request to its processor.
    ///
    /// # Errors
    /// The memory node is gone.
    pub fn stats(&self) -> Result<NodeStats, ClientError> {
        if let Transport::Pool(pool) = &self.transport {
            return pool.stats(self.deadline);
        }
        self.request(&Request::Stats, None, |_, body| Ok(NodeStats::decode(body)?))
    }

    /// The table's parameters and the bytes its models take here.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn table(&self) -> Result<TableStats, ClientError> {
        with_core!(self, core => core.table_stats(self.deadline))
    }

    /// By which plan a call for so many keys is made, what it is expected to take, and why: what else it could be made by, and
    /// what a round trip takes, measured where the memory node is reached over sockets. Of keys that the hot cache
    /// does not know.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn expected(&self, keys: usize) -> Result<Expected, ClientError> {
        with_core!(self, core => core.expected(keys, self.deadline))
    }

    /// How the table's records lie in slots: how long keys and values are. Of an empty table without parameters, what the first
    /// write gives it.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn shape(&self) -> Result<RecordShape, ClientError> {
        match with_core!(self, core => core.shape(self.deadline)) {
            Err(error) if error.is_of_empty_table() => Ok(first_parameters::<K>([]).shape),
            shape => shape,
        }
    }

    /// Bytes of the table's region that this process has mapped in huge pages, which reads find faster; `None` if the operating
    /// system does not tell. It goes through all mappings of the process: milliseconds for each GiB.
    pub fn huge_bytes(&self) -> Option<u64> {
        match &self.transport {
            Transport::Mapped(core) => core.connection().region().huge_bytes(),
            Transport::Remote(_) => None,
            Transport::Pool(pool) => pool.huge_bytes(),
            #[cfg(feature = "sim")]
            Transport::Simulated(_) => None,
        }
    }

    /// What this compute node keeps within its budget and how far it helped, `None` without a budget.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn cache_stats(&self) -> Result<Option<CacheStats>, ClientError> {
        with_core!(self, core => core.cache_stats(self.deadline))
    }

    /// What this client, all of its handles together, did to keep up with the memory node.
    pub fn counters(&self) -> Counters {
        with_core!(self, core => core.counters())
    }

    /// Empties the hot cache; models stay.
    pub fn clear_cache(&self) {
        with_core!(self, core => core.clear_cache());
    }

    /// What the keys of the memory node's table are, whatever this client's are; `None` without a table. One round trip.
    ///
    /// # Errors
    /// The memory node is gone or of another release.
    pub fn key_kind(&self) -> Result<Option<KeyKind>, ClientError> {
        with_core!(self, core => core.key_kind(self.deadline))
    }

    /// Begins loading records into an empty table. `expected_keys` lets the memory node refuse early what cannot fit; 0 if
    /// unknown.
    ///
    /// A table that has its parameters already, by [`create`](Self::create) or from records that were removed since, takes the
    /// records as inserts: they are visible as they are sent, and take some more room.
    ///
    /// # Errors
    /// The table holds records, or is empty and has other parameters ([`OtherParameters`](ClientError::OtherParameters));
    /// another client is loading; the records cannot fit.
    pub fn load(&self, parameters: TableParameters, expected_keys: u64) -> Result<Load<'_, K>, ClientError> {
        Load::begin(self, parameters, expected_keys, &K::Encoders::default())
    }

    /// As [`load`](Self::load), for a table whose models suit keys of which these are a sample, in order: some ten thousand from
    /// all over the data do. Integer keys need none. Without it byte strings take more models.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_like<'k>(
        &self,
        parameters: TableParameters,
        expected_keys: u64,
        sample: impl IntoIterator<Item = &'k K::Key>,
    ) -> Result<Load<'_, K>, ClientError> {
        Load::begin(self, parameters, expected_keys, &K::train(sample, expected_keys))
    }

    /// The memory node's name: its URL, or `embedded`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The creation number of the table that this client is connected to.
    pub(crate) fn creation(&self) -> u64 {
        with_direct!(self, core => Connection::creation(&*core.connection()), pool => pool.creation())
    }

    pub(crate) fn request<R>(
        &self,
        request: &Request<'_>,
        meant: Option<u64>,
        take: impl FnOnce(u64, &[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let to_ranges = || {
            let why = "a table over several memory nodes takes no such request as a whole";
            Err(Refusal::new(ErrorCode::Invalid, why).into())
        };
        with_direct!(self, core => core.call(request, meant, self.deadline, take), _pool => to_ranges())
    }

    /// Makes changes and appends how each ended; to the table with the creation number that is `meant`, if one is.
    pub(crate) fn write<'v>(
        &self,
        operations: impl Iterator<Item = WriteOperation<'v, &'v K::Key>> + Clone,
        meant: Option<u64>,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        with_core!(self, core => core.write(operations, meant, self.deadline, replies))
    }

    /// Makes one change.
    pub(crate) fn write_one(
        &self,
        operation: WriteOperation<'_, &K::Key>,
    ) -> Result<WriteReply, ClientError> {
        with_core!(self, core => core.write_one(operation, self.deadline))
    }

    /// Lanes for so many writes in flight.
    pub(crate) fn lanes(&self, count: usize) -> Result<Box<dyn Lanes<K>>, ClientError> {
        with_direct!(
            self,
            core => Ok(Box::new(OpenLanes::open(core, count, self.deadline)?)),
            pool => Ok(Box::new(PoolLanes::open(pool, count)))
        )
    }

    /// The ranges, if the table is over several memory nodes: each a client of its own, with the key that it ends before.
    pub(crate) fn ranges(&self) -> Result<Vec<RangeClient<K>>, ClientError> {
        match &self.transport {
            Transport::Pool(pool) => pool.clients(self.deadline),
            _ => Ok(Vec::new()),
        }
    }

    /// An error of a change of a key, which says at which memory node, if there are several.
    pub(crate) fn naming_node(&self, key: &K::Key, error: ClientError) -> ClientError {
        match &self.transport {
            Transport::Pool(pool) => error.at(&pool.node_of(key)),
            _ => error,
        }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// A record's value and token.
    pub(crate) fn read_versioned(&self, key: &K::Key) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        let shape = with_direct!(
            self,
            core => core.shape(self.deadline),
            pool => pool.shape_at(key, self.deadline)
        );
        let shape = match shape {
            Err(error) if error.is_of_empty_table() => return Ok(None),
            shape => shape?,
        };
        let take = |outcome: &Outcome, value: Option<&[u8]>| {
            let (version, value) = outcome.version.zip(value)?;
            Some((value.to_vec(), RecordToken::of(version, &shape.identity::<K>(key, value))))
        };
        with_core!(self, core => core.here(|held| core.look_up(held, key, self.deadline, take)))
    }

    pub(crate) fn max_request(&self) -> usize {
        // What is sent to a table over several memory nodes is sent to one of them.
        with_direct!(self, core => core.max_request(), _pool => 0)
    }
}

impl ByteClient {
    /// Hands up to `limit` records whose keys begin with `prefix` to `take`, in key order.
    ///
    /// # Errors
    /// As for [`scan`](Client::scan).
    pub fn scan_prefix(
        &self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cost, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        let range = (prefix, end.as_deref());
        with_core!(self, core => core.here(|held| core.scan(held, range, limit, self.deadline, take)))
    }
}

/// The least string above all that begin with `prefix`; there is none above those that begin with 0xff and nothing else.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    Some([&prefix[..kept], &[prefix[kept] + 1]].concat())
}

impl<K: BuildKeys> fmt::Debug for TableClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).field("deadline", &self.deadline).finish()
    }
}
