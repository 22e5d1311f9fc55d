//! Creating and dropping tables over several memory nodes.
//!
//! The protocol is in [`table_creation`].

use std::borrow::Borrow;
use std::fmt;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::TableParameters;
use fpcache::map::{MAX_NODES, MapState, RangeMap, ordered_bytes};
use fpcache::message::{ErrorCode, RangeRequest, Refusal, TableInfo};
use fpcache_fabric::{Deadline, SystemClock};

use crate::client::{TableClient, Transport};
use crate::config::{ClientConfig, CreateOptions};
use crate::error::{ClientError, ErrorKind};
use crate::pool::Pool;
use crate::pool::maps::{Chosen, choose};
use crate::pool::overtaken::retry_while_overtaken;
use crate::pool::table_creation::{self, Begun, NodeRequests};
use crate::pool::trusted_nodes::follow;
use crate::tables::Tables;
use crate::url::{Url, parse_list};

/// A set of memory nodes with tables partitioned over them, one range of keys on each.
///
/// ```no_run
/// use fpcache_client::{Nodes, TableParameters, U64Keys};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = Nodes::at("tcp://127.0.0.1:7400,tcp://127.0.0.1:7401")?;
/// nodes.create::<U64Keys>(&"orders".parse()?, TableParameters::default(), &[1 << 63], Default::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Nodes {
    urls: Vec<Url>,
    config: ClientConfig,
}

/// A table over several memory nodes that is being created. It is not visible before
/// [`finish`](Self::finish).
#[must_use = "the table is not there before `finish`"]
pub struct NewTable<K: BuildKeys> {
    nodes: Nodes,
    map: RangeMap,
    /// Whether it existed, complete.
    is_there: bool,
    client: TableClient<K>,
}

impl Nodes {
    /// The memory nodes at these comma-separated URLs. Does not connect.
    ///
    /// # Errors
    /// An invalid URL, a duplicate, or more than 64 URLs.
    pub fn at(urls: &str) -> Result<Self, ClientError> {
        Self::at_with(urls, ClientConfig::default())
    }

    /// As [`at`](Self::at), with settings for requests and for the clients of what is created;
    /// which table they name is of no account.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
    pub fn at_with(urls: &str, config: ClientConfig) -> Result<Self, ClientError> {
        let urls = parse_list(urls)?;
        let invalid = |why: String| Err(Refusal::new(ErrorCode::Invalid, why).into());
        if urls.len() > MAX_NODES {
            return invalid(format!(
                "{} memory nodes are named, a table is divided among at most {MAX_NODES}: name fewer",
                urls.len()
            ));
        }
        if let Some(twice) = (1..urls.len()).find(|at| urls[..*at].contains(&urls[*at])) {
            return invalid(format!("the memory node {} is named twice: name each once", urls[twice]));
        }
        Ok(Self { urls, config })
    }

    /// Their URLs as a map has them, for everybody.
    fn names(&self) -> Vec<String> {
        self.urls.iter().map(|url| url.for_others().to_string()).collect()
    }

    /// The URL of each, in the order of the ranges.
    pub fn urls(&self) -> impl ExactSizeIterator<Item = &Url> {
        self.urls.iter()
    }

    /// The number of memory nodes.
    pub fn len(&self) -> usize {
        self.urls.len()
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty()
    }

    /// Creates an empty table, one range on each memory node in their order, split at these keys:
    /// the first range has the keys below the first of them, and so on. Does nothing if that table
    /// exists, with these parameters and whatever records, so that it may be called at every
    /// start-up. An unfinished earlier call is completed. Any number of processes may call it at
    /// once: one that others overtake tries again after a pause, within the deadline of requests.
    ///
    /// A table that is being loaded is not whole before its load ends, and cannot be told from what
    /// a call that ended early has left: this removes its ranges, and makes an empty table in their
    /// place. The load fails then. So load a table before the services are started that call this.
    ///
    /// # Errors
    /// [`OtherParameters`](ClientError::OtherParameters), or a refusal if it has records, if the
    /// table exists with others. Names the memory node that is down or refuses. What was created is
    /// then undone if possible, and otherwise completed by the next call.
    /// [`MapUnusable`](ClientError::MapUnusable) if the split keys are invalid.
    pub fn create<K: BuildKeys>(
        &self,
        name: &TableName,
        parameters: TableParameters,
        split_at: &[K::Owned],
        options: CreateOptions,
    ) -> Result<(), ClientError> {
        let random = || fpcache_fabric::random_bits().unwrap_or(0);
        retry_while_overtaken((&SystemClock, self.config.deadline), random, || {
            let table = self.begin::<K>(name, split_at, options)?;
            if table.is_there && table.has(parameters)? {
                return Ok(());
            }
            match table.client.create(parameters) {
                Ok(()) => table.finish().map(drop),
                Err(error) => {
                    let error = table.or_overtaken(error);
                    table.undo();
                    Err(error)
                }
            }
        })
    }

    /// Creates the ranges of a table, to be loaded before it is visible. A
    /// [`create`](Self::create) of it meanwhile, as by a service that starts, removes them.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn begin<K: BuildKeys>(
        &self,
        name: &TableName,
        split_at: &[K::Owned],
        CreateOptions { region_bytes }: CreateOptions,
    ) -> Result<NewTable<K>, ClientError> {
        let kind = KeyKind::of::<K>();
        let urls = self.names();
        let split_at: Vec<Vec<u8>> = split_at.iter().map(|key| ordered_bytes::<K>(key.borrow())).collect();
        let with = |creation| RangeMap::divide(*name, kind, creation, &urls, &split_at);
        // Before any memory node is asked.
        with(1)?;
        self.check_places()?;
        let asking = NodesQuery { nodes: self, name: *name };
        let (map, is_there) =
            match table_creation::begin(&asking, &urls, with, draw_creation()?, region_bytes)? {
                Begun::Made(map) => (map, false),
                Begun::There(map) => (map, true),
            };
        let config = self.config.clone().with_table(*name);
        let pool = Pool::over(map.clone(), self.urls.clone(), &config)?;
        let client = TableClient::of(Transport::Pool(pool), &self.to_string(), &config);
        Ok(NewTable { nodes: self.clone(), map, is_there, client })
    }

    /// Completes the publication of a table whose creator ended before it had told all memory
    /// nodes.
    ///
    /// # Errors
    /// Names the memory node that is down, or has lost its range.
    pub fn complete(&self, name: &TableName) -> Result<(), ClientError> {
        let urls = self.names();
        let asking = NodesQuery { nodes: self, name: *name };
        let found = table_creation::collect_maps(&asking, &urls)?;
        match choose(&found, None)? {
            Chosen::Whole(map) => table_creation::complete(&asking, &map, &found),
            _ => Ok(()),
        }
    }

    /// Drops a table with all its records on all its memory nodes; one of them in this set
    /// suffices.
    ///
    /// # Errors
    /// [`NoSuchTable`](ClientError::NoSuchTable); or names the memory node that is down: repeat the
    /// call when it is back or, if it is gone for good, call [`drop_here`](Self::drop_here) on the
    /// others.
    pub fn drop_table(&self, name: &TableName) -> Result<(), ClientError> {
        let (mut nodes, mut away): (Vec<String>, _) = (Vec::new(), None);
        for url in &self.urls {
            match self.map_at(url, name) {
                Ok(map) => nodes.extend(map.into_iter().flat_map(|map| map.ranges).map(|range| range.node)),
                Err(error) => away = Some(error),
            }
        }
        if nodes.is_empty() {
            self.check_none_closed(name)?;
            return Err(
                away.unwrap_or_else(|| ClientError::no_such_table(&self.to_string(), name.as_str(), ""))
            );
        }
        // Nothing is changed while one of them is away: it would come back with a part of the
        // table.
        table_creation::drop_all(&NodesQuery { nodes: self, name: *name }, &nodes)
    }

    /// Refuses to take a table for gone of which one of these memory nodes has a range that is
    /// closed: it tells no others.
    fn check_none_closed(&self, name: &TableName) -> Result<(), ClientError> {
        for url in &self.urls {
            let Ok(list) = self.tables(url).and_then(|tables| tables.list()) else { continue };
            if let Some(closed) = list.tables.iter().find(|table| is_range_of(&table.name, name)) {
                let why = format!(
                    "the memory node {url} has `{}`, a range of the table `{name}`, which is closed and does not say who has the others: \
                     name another of the table's memory nodes, or mend it and restart that one, or drop what it has with `fpcache-cli drop \
                     {name} --nodes {url} --yes`",
                    closed.name
                );
                return Err(Refusal::new(ErrorCode::TableExists, why).into());
            }
        }
        Ok(())
    }

    /// Drops the ranges that these memory nodes have of tables of the name, without asking others:
    /// for the remains of a table whose other memory nodes are gone for good, or have another table
    /// of its name.
    ///
    /// # Errors
    /// [`NoSuchTable`](ClientError::NoSuchTable) if there are none; or names the memory node that
    /// is down.
    pub fn drop_here(&self, name: &TableName) -> Result<(), ClientError> {
        let mut dropped = 0;
        for url in &self.urls {
            let tables = self.tables(url)?.list().map_err(|error| error.at(&url.to_string()))?.tables;
            for table in tables {
                if is_range_of(&table.name, name) {
                    self.drop_range(url, &table.name)?;
                    dropped += 1;
                }
            }
        }
        match dropped {
            0 => Err(ClientError::no_such_table(&self.to_string(), name.as_str(), "")),
            _ => Ok(()),
        }
    }

    /// The kind of keys of the table of this name, complete or not; `None` if none of these memory
    /// nodes has a range of it.
    ///
    /// # Errors
    /// None of them answers.
    pub fn find(&self, name: &TableName) -> Result<Option<KeyKind>, ClientError> {
        let (mut failed, mut answers) = (None, 0);
        for url in &self.urls {
            match self.map_at(url, name) {
                Ok(Some(map)) => return Ok(Some(map.kind)),
                Ok(None) => answers += 1,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if answers == 0 => Err(error),
            _ => Ok(None),
        }
    }

    /// Refuses URLs that only this machine can reach if others are remote: the map has the same
    /// URLs for all clients.
    fn check_places(&self) -> Result<(), ClientError> {
        let own = self.urls.iter().find(|url| url.is_of_this_machine());
        let other = self.urls.iter().find(|url| !url.is_of_this_machine());
        match own.zip(other) {
            None => Ok(()),
            Some((own, other)) => {
                let why = format!(
                    "{own} means a memory node of whichever machine it is read on, {other} one of a certain machine: clients on other \
                     machines would miss a part of the table. Name all by addresses that are valid everywhere, or all of this machine"
                );
                Err(Refusal::new(ErrorCode::Invalid, why).into())
            }
        }
    }

    fn map_at(&self, url: &Url, name: &TableName) -> Result<Option<RangeMap>, ClientError> {
        let maps = self.tables(url)?.maps().map_err(|error| error.at(&url.to_string()))?;
        Ok(maps.into_iter().find(|map| map.name == *name))
    }

    fn tables(&self, url: &Url) -> Result<Tables, ClientError> {
        let deadline = self.config.deadline;
        Tables::at(url, self.config.token, deadline, Deadline::after(deadline))
            .map_err(|error| error.at(&url.to_string()))
    }

    /// Drops a range's table, if it is there.
    fn drop_range(&self, url: &Url, table: &TableName) -> Result<(), ClientError> {
        match self.tables(url)?.drop_range(table) {
            Ok(()) | Err(ClientError::NoSuchTable { .. }) => Ok(()),
            Err(error) => Err(error.at(&url.to_string())),
        }
    }
}

/// Their URLs, separated by commas, as [`Nodes::at`] takes them.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<String> = self.urls.iter().map(Url::to_string).collect();
        f.write_str(&urls.join(","))
    }
}

impl<K: BuildKeys> NewTable<K> {
    /// A client of the table, to load it.
    pub fn client(&self) -> &TableClient<K> {
        &self.client
    }

    /// Whether all of its ranges have these parameters.
    fn has(&self, parameters: TableParameters) -> Result<bool, ClientError> {
        match &self.client.transport {
            Transport::Pool(pool) => pool.has_everywhere(parameters, self.client.deadline),
            Transport::One(_) => Ok(false),
        }
    }

    /// The error of an attempt to create it: that another client was faster, if that is why.
    fn or_overtaken(&self, error: ClientError) -> ClientError {
        match self.is_there || error.kind() == ErrorKind::Invalid {
            true => error,
            false => table_creation::or_overtaken(
                &NodesQuery { nodes: &self.nodes, name: self.map.name },
                &self.map,
                error,
            ),
        }
    }

    /// Completes the table, which is visible from here on.
    ///
    /// # Errors
    /// Names the memory node that is down or refuses: repeat the creation.
    pub fn finish(self) -> Result<TableClient<K>, ClientError> {
        if self.is_there {
            return Ok(self.client);
        }
        let Self { nodes, map, client, .. } = self;
        let asking = NodesQuery { nodes: &nodes, name: map.name };
        table_creation::finish(&asking, &map)?;
        // Other handles may be over the map of the table that was being made.
        let whole = map.next(MapState::Making)?.next(MapState::Whole)?;
        let config = nodes.config.with_table(map.name);
        let pool = Pool::over(whole, nodes.urls.clone(), &config)?;
        Ok(TableClient::of(Transport::Pool(pool), client.name(), &config))
    }

    /// Removes what was created, as far as the memory nodes can be reached; nothing of a table that
    /// existed before.
    pub fn undo(&self) {
        if !self.is_there {
            table_creation::undo(&NodesQuery { nodes: &self.nodes, name: self.map.name }, &self.map);
        }
    }
}

/// Memory nodes that are asked about one table.
struct NodesQuery<'n> {
    nodes: &'n Nodes,
    name: TableName,
}

impl NodeRequests for NodesQuery<'_> {
    fn map(&self, node: &str) -> Result<Option<RangeMap>, ClientError> {
        self.nodes.map_at(&follow(node, &self.nodes.urls)?, &self.name)
    }

    fn range(&self, node: &str, request: &RangeRequest) -> Result<(), ClientError> {
        let url = follow(node, &self.nodes.urls)?;
        let tables = self.nodes.tables(&url)?;
        match tables.range(request).map_err(|error| error.at(node)) {
            Err(ClientError::NoSuchTable { why }) => {
                let name = request.range().map(|(map, range)| map.table(range)).transpose()?;
                let is_one = |info: &TableInfo| Some(info.name) == name && info.is_closed();
                // A closed one goes by no map.
                match tables.list()?.tables.iter().find(|info| is_one(info)) {
                    Some(info) => Err(ClientError::TableClosed {
                        address: node.to_owned(),
                        table: info.name.to_string(),
                    }),
                    None => Err(ClientError::NoSuchTable { why }),
                }
            }
            asked => asked,
        }
    }

    fn drop_range(&self, node: &str, table: &TableName) -> Result<(), ClientError> {
        self.nodes.drop_range(&follow(node, &self.nodes.urls)?, table)
    }
}

fn is_range_of(table: &TableName, name: &TableName) -> bool {
    table.as_range().is_some_and(|(of, ..)| of == *name)
}

/// A creation number that no map has.
fn draw_creation() -> Result<u64, ClientError> {
    loop {
        match fpcache_fabric::random_bits()? {
            0 => {}
            creation => return Ok(creation),
        }
    }
}

impl<K: BuildKeys> fmt::Debug for NewTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTable").field("map", &self.map).finish_non_exhaustive()
    }
}
