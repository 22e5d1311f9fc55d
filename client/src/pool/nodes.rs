//! Making and dropping tables over several memory nodes.
//!
//! A table is made in two rounds: its ranges one after another, by a map that says that they are being made; then each gets the
//! next version of the map, which says that the table is whole. Clients use no table that is not. It is dropped in two rounds, too:
//! every range first gets a version that says so, and only then they go. So whatever a failure leaves between two requests can be
//! told, and repeating the call goes on from there.

use std::borrow::Borrow;
use std::time::Duration;

use fpcache::TableName;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::TableParameters;
use fpcache::map::{MAX_NODES, MapState, RangeMap, ordered_bytes};
use fpcache::message::{ErrorCode, RangeRequest, Refusal};
use fpcache_fabric::tcp::Token;

use super::Pool;
use super::maps::{Chosen, choose, not_whole};
use crate::access::token_for;
use crate::client::{TableClient, Transport};
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::tables::{CreateOptions, Tables, no_such_table};
use crate::url::{Url, parse_list};

/// Memory nodes that have tables together, each of which has one range of keys of each such table.
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
    deadline: Duration,
    token: Option<Token>,
}

/// A table over several memory nodes that is being made. Nobody else sees it before [`finish`](Self::finish).
#[must_use = "the table is not there before `finish`"]
pub struct NewTable<K: BuildKeys> {
    nodes: Nodes,
    map: RangeMap,
    client: TableClient<K>,
}

impl Nodes {
    /// The memory nodes at these URLs, one after another with commas between. Connects to none.
    ///
    /// # Errors
    /// A bad URL, one that is named twice, or more than 64.
    pub fn at(urls: &str) -> Result<Self, ClientError> {
        Self::at_with(urls, Duration::from_secs(5))
    }

    /// As [`at`](Self::at), with another deadline of requests.
    ///
    /// # Errors
    /// As for [`at`](Self::at).
    pub fn at_with(urls: &str, deadline: Duration) -> Result<Self, ClientError> {
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
        Ok(Self { urls, deadline, token: None })
    }

    /// The same, which get in by this token over TCP; without one by that of the environment.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// Their URLs, with commas between.
    pub fn urls(&self) -> String {
        let urls: Vec<String> = self.urls.iter().map(Url::to_string).collect();
        urls.join(",")
    }

    /// How many memory nodes these are.
    pub fn len(&self) -> usize {
        self.urls.len()
    }

    /// Whether there is none: never.
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty()
    }

    /// Makes an empty table, one range for each memory node in their order, divided at these keys: the first range has those below
    /// the first of them, and so on. Does nothing if that table is there and empty. What an earlier call left unfinished is gone on with.
    ///
    /// # Errors
    /// Which memory node is away or refuses, and why; what was made is undone then where that is possible, and otherwise gone on with
    /// by the next call. [`MapUnusable`](ClientError::MapUnusable) if the keys divide nothing.
    pub fn create<K: BuildKeys>(
        &self,
        name: &TableName,
        parameters: TableParameters,
        split_at: &[K::Owned],
        options: CreateOptions,
    ) -> Result<(), ClientError> {
        let table = self.begin::<K>(name, split_at, options)?;
        let created = table.client.create(parameters);
        match created {
            Ok(()) => table.finish().map(drop),
            Err(error) => {
                table.undo();
                Err(error)
            }
        }
    }

    /// Makes the ranges of a table, to be loaded into before anybody else sees it.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn begin<K: BuildKeys>(
        &self,
        name: &TableName,
        split_at: &[K::Owned],
        CreateOptions { region_bytes }: CreateOptions,
    ) -> Result<NewTable<K>, ClientError> {
        let kind = if KeyKind::U64.is::<K>() { KeyKind::U64 } else { KeyKind::Bytes };
        let urls: Vec<String> = self.urls.iter().map(Url::to_string).collect();
        let split_at: Vec<Vec<u8>> = split_at.iter().map(|key| ordered_bytes::<K>(key.borrow())).collect();
        let with = |creation| RangeMap::divide(*name, kind, creation, &urls, &split_at);
        // Before anybody is asked.
        with(1)?;
        let found = self.maps_of(&self.urls, name)?;
        let map = match choose(&found, None)? {
            Chosen::Nothing => with(draw_creation()?)?,
            Chosen::NotWhole(there) if there.state == MapState::Dropping => return Err(not_whole(&there)),
            Chosen::NotWhole(left) => {
                // Nobody has seen it as a table, so that nobody misses what is in it.
                for range in &left.ranges {
                    self.drop_range(&range.node.parse()?, &left.table(range)?)?;
                }
                with(draw_creation()?)?
            }
            Chosen::Whole(there) => {
                if !with(there.creation)?.has_ranges_of(&there) {
                    let why = format!(
                        "there is a table `{name}` over other memory nodes or divided at other keys already: use it, drop it, or choose another name"
                    );
                    return Err(Refusal::new(ErrorCode::TableExists, why).into());
                }
                there
            }
        };
        let away = urls.iter().find(|url| !found.iter().any(|(at, _)| at == *url));
        if let (MapState::Whole, Some(url)) = (map.state, away) {
            let why = format!(
                "the memory node {url} has lost its range of the table `{name}`: drop the table with `fpcache-cli drop {name} --yes` and \
                 make it anew"
            );
            return Err(ClientError::NoSuchTable { why });
        }
        let config =
            ClientConfig::default().with_table(*name).with_deadline(self.deadline).with_token(self.token);
        let pool = Pool::over(map.clone(), self.urls.clone(), &config)?;
        let client = TableClient::of(Transport::Pool(pool), &urls.join(","), self.deadline);
        let table = NewTable { nodes: self.clone(), map, client };
        if table.map.state == MapState::Making {
            for (url, range) in self.urls.iter().zip(&table.map.ranges) {
                let request =
                    RangeRequest::Create { map: table.map.clone(), number: range.number, region_bytes };
                if let Err(error) = self.ask(url, &request) {
                    table.undo();
                    return Err(error);
                }
            }
        }
        Ok(table)
    }

    /// Removes a table and all its records from all its memory nodes, of which these need be but one.
    ///
    /// # Errors
    /// [`NoSuchTable`](ClientError::NoSuchTable); or which of its memory nodes is away: repeat the call when it is back, or, if it never
    /// will be, [`drop_here`](Self::drop_here) at the others.
    pub fn drop_table(&self, name: &TableName) -> Result<(), ClientError> {
        let mut found = Vec::new();
        let mut away = None;
        for url in &self.urls {
            match self.map_at(url, name) {
                Ok(map) => found.extend(map.map(|map| (url.to_string(), map))),
                Err(error) => away = Some(error),
            }
        }
        let (Chosen::Whole(map) | Chosen::NotWhole(map)) = choose(&found, None)? else {
            return Err(away.unwrap_or_else(|| no_such_table(&self.urls(), name.as_str(), "")));
        };
        let urls: Result<Vec<Url>, _> = map.ranges.iter().map(|range| range.node.parse()).collect();
        let urls = urls?;
        // Nothing is changed while one of them is away: it would come back with a part of the table.
        let found = self.maps_of(&urls, name)?;
        let map = match choose(&found, None)? {
            Chosen::Whole(map) | Chosen::NotWhole(map) => map,
            Chosen::Nothing => return Ok(()),
        };
        let dropping = match map.state {
            MapState::Dropping => map,
            _ => map.next(MapState::Dropping),
        };
        let those_with = |url: &Url| found.iter().any(|(at, _)| *at == url.to_string());
        let ranges = || urls.iter().zip(&dropping.ranges).filter(|(url, _)| those_with(url));
        for (url, range) in ranges() {
            let request = RangeRequest::Map { map: dropping.clone(), number: range.number };
            self.ask(url, &request)?;
        }
        for (url, range) in ranges() {
            self.drop_range(url, &dropping.table(range)?)?;
        }
        Ok(())
    }

    /// Removes what these memory nodes have of tables of the name, and asks no other: for what is left of a table whose other memory
    /// nodes are gone for ever, or have another of its name.
    ///
    /// # Errors
    /// [`NoSuchTable`](ClientError::NoSuchTable) if none has any; or which of them is away.
    pub fn drop_here(&self, name: &TableName) -> Result<(), ClientError> {
        let mut dropped = 0;
        for url in &self.urls {
            let tables = self.tables(url)?.list().map_err(|error| error.at(&url.to_string()))?.tables;
            for table in tables {
                if table.name.as_range().is_some_and(|(of, ..)| of == *name) {
                    self.drop_range(url, &table.name)?;
                    dropped += 1;
                }
            }
        }
        match dropped {
            0 => Err(no_such_table(&self.urls(), name.as_str(), "")),
            _ => Ok(()),
        }
    }

    /// Whether one of these memory nodes has a range of a table of this name, whole or not, and what its keys are then.
    ///
    /// # Errors
    /// If none of them answers.
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

    /// The maps of a table that these memory nodes publish, all of which must answer.
    fn maps_of(&self, urls: &[Url], name: &TableName) -> Result<Vec<(String, RangeMap)>, ClientError> {
        let mut found = Vec::new();
        for url in urls {
            found.extend(self.map_at(url, name)?.map(|map| (url.to_string(), map)));
        }
        Ok(found)
    }

    fn map_at(&self, url: &Url, name: &TableName) -> Result<Option<RangeMap>, ClientError> {
        let maps = self.tables(url)?.maps().map_err(|error| error.at(&url.to_string()))?;
        Ok(maps.into_iter().find(|map| map.name == *name))
    }

    fn tables(&self, url: &Url) -> Result<Tables, ClientError> {
        let tables =
            Tables::at(url.clone(), token_for(url, self.token)?, self.deadline).map_err(ClientError::from);
        tables.map_err(|error| error.at(&url.to_string()))
    }

    fn ask(&self, url: &Url, request: &RangeRequest) -> Result<(), ClientError> {
        self.tables(url)?.range(request).map_err(|error| error.at(&url.to_string()))
    }

    /// Drops a range's table, if it is there.
    fn drop_range(&self, url: &Url, table: &TableName) -> Result<(), ClientError> {
        match self.tables(url)?.drop_table(table) {
            Ok(()) | Err(ClientError::NoSuchTable { .. }) => Ok(()),
            Err(error) => Err(error.at(&url.to_string())),
        }
    }
}

impl<K: BuildKeys> NewTable<K> {
    /// A client of the table, to load into it.
    pub fn client(&self) -> &TableClient<K> {
        &self.client
    }

    /// Says that the table is whole: from here on everybody sees it.
    ///
    /// # Errors
    /// Which memory node is away or refuses: repeat what made the table.
    pub fn finish(self) -> Result<TableClient<K>, ClientError> {
        let whole = match self.map.state {
            MapState::Whole => self.map,
            _ => self.map.next(MapState::Whole),
        };
        for (url, range) in self.nodes.urls.iter().zip(&whole.ranges) {
            self.nodes.ask(url, &RangeRequest::Map { map: whole.clone(), number: range.number })?;
        }
        Ok(self.client)
    }

    /// Removes what was made, as far as its memory nodes can be reached; of a table that was there before, nothing.
    pub fn undo(&self) {
        if self.map.state != MapState::Making {
            return;
        }
        for (url, range) in self.nodes.urls.iter().zip(&self.map.ranges) {
            if let Ok(table) = self.map.table(range) {
                // The error that this is undone for says more than one of this.
                let _ = self.nodes.drop_range(url, &table);
            }
        }
    }
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

impl<K: BuildKeys> std::fmt::Debug for NewTable<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTable").field("map", &self.map).finish_non_exhaustive()
    }
}
