//! Ranges of tables that span several memory nodes: their tables, their partition maps, and the
//! publication of these in the lobby.

use std::collections::BTreeMap;
use std::sync::Arc;

use fpcache::TableName;
use fpcache::map::{RangeMap, encode_published};
use fpcache::message::{ErrorCode, RangeRequest, Refusal};
use fpcache_fabric::{ClientId, Handled};
use tracing::error;

use super::Catalogue;
use super::hosted::HostedTable;
use super::jobs::{Job, Mapping};

/// Refuses a map whose URLs say which files of certificates their readers are to use: it has the
/// same URLs for all clients.
fn check_names_no_files(map: &RangeMap) -> Result<(), Refusal> {
    let names_some = |node: &str| node.starts_with("tcps://") && node.contains('?');
    match map.ranges.iter().find(|range| names_some(&range.node)) {
        None => Ok(()),
        Some(range) => {
            let why = format!(
                "the map names files of its readers' machines ({}): leave out what is after the `?`, which clients have \
                 of their own URLs, or of FPCACHE_TLS_CA, FPCACHE_TLS_CERT and FPCACHE_TLS_KEY",
                range.node
            );
            Err(Refusal::new(ErrorCode::Invalid, why))
        }
    }
}

impl Catalogue {
    /// Answers a request about a range, or has a thread do what it asks.
    pub(super) fn manage_range(&mut self, client: ClientId, request: &[u8]) -> Result<Handled, Refusal> {
        let decoded = RangeRequest::decode(request)?;
        if self.jobs.is_busy() {
            self.jobs.wait(client, request);
            return Ok(Handled::Later);
        }
        let invalid = |why: String| Refusal::new(ErrorCode::Invalid, why);
        let (map, range) = decoded.range().ok_or_else(|| invalid("the map has no such range".into()))?;
        let name = map.table(range).map_err(|error| invalid(error.to_string()))?;
        let known = self.get(&name).and_then(|table| table.map.clone());
        let job = match (&decoded, known) {
            (_, Some(known)) if *known == *map => return Ok(Handled::Now),
            (RangeRequest::Map { .. }, Some(known)) if known.version < map.version => {
                if !known.has_ranges_of(map) {
                    return Err(invalid(format!(
                        "the new map of `{name}` does not have the same ranges as the current one"
                    )));
                }
                self.check_room_for(map)?;
                Job::Map(Mapping { name, map: Arc::new(map.clone()), folder: self.folder.clone() })
            }
            (_, Some(known)) => {
                let version = known.version;
                let why = format!("the range `{name}` exists, with version {version} of its map");
                return Err(Refusal::new(ErrorCode::WrongRange { version }, why));
            }
            (RangeRequest::Map { .. }, None) => return Err(self.no_such_table(name.as_str())),
            (RangeRequest::Create { region_bytes, .. }, None) => {
                check_names_no_files(map)?;
                self.check_no_other(map)?;
                self.check_room_for(map)?;
                let mut making = self.can_make(name, map.kind, *region_bytes)?;
                making.map = Some(Arc::new(map.clone()));
                Job::Make(Box::new(making))
            }
        };
        self.jobs.start(client, job);
        Ok(Handled::Later)
    }

    /// Whether the name of a table over several memory nodes is free here but for ranges of the
    /// same table.
    fn check_no_other(&self, map: &RangeMap) -> Result<(), Refusal> {
        let exists = |why: String| Err(Refusal::new(ErrorCode::TableExists, why));
        let name = map.name;
        if self.numbers.contains_key(&name) || self.closed.contains_key(&name) {
            return exists(format!(
                "there is a table `{name}` on this memory node alone: use it, drop it, or choose another name"
            ));
        }
        match self.range_of(&name, |creation| creation != map.creation) {
            Some(other) => exists(format!(
                "`{other}` exists already, a range of another table `{name}` over several memory nodes: drop that table, or choose \
                 another name"
            )),
            None => Ok(()),
        }
    }

    /// A range of the table of this name, made by a map with such a creation number.
    pub(super) fn range_of(&self, name: &TableName, creation: impl Fn(u64) -> bool) -> Option<TableName> {
        let names = self.numbers.keys().chain(self.closed.keys());
        let is_one =
            |other: &&TableName| other.as_range().is_some_and(|(of, its, _)| of == *name && creation(its));
        names.copied().find(|other| is_one(&other))
    }

    fn check_room_for(&self, map: &RangeMap) -> Result<(), Refusal> {
        let maps = self.maps();
        let others = maps.values().filter(|other| other.name != map.name).map(|map| &**map);
        match encode_published(0, others.chain([map])) {
            Some(_) => Ok(()),
            None => {
                let why = "this memory node has no room for the map of another table over several memory nodes: drop some";
                Err(Refusal::new(ErrorCode::NoMemory, why))
            }
        }
    }

    /// The newest map of each table that has ranges here.
    fn maps(&self) -> BTreeMap<TableName, Arc<RangeMap>> {
        let mut maps = BTreeMap::new();
        for map in self.hosted().filter_map(|table| table.map.as_ref()) {
            let newest = maps.entry(map.name).or_insert_with(|| Arc::clone(map));
            if newest.version < map.version {
                *newest = Arc::clone(map);
            }
        }
        maps
    }

    /// Publishes the maps as they are now.
    pub(super) fn publish_maps(&mut self) {
        let maps = self.maps();
        if let Err(error) = self.lobby.publish(maps.values().map(|map| &**map)) {
            error!("the maps of tables over several memory nodes are not published: {error}");
        }
    }

    /// Has a range go by a later map that has been made to last.
    pub(super) fn adopt_map(&mut self, name: &TableName, map: Arc<RangeMap>) -> Result<(), Refusal> {
        let number = self.numbers.get(name).copied();
        let table: Option<&mut HostedTable> = number.and_then(|number| self.tables[number].as_mut());
        if !table.is_some_and(|table| table.adopt_map(map)) {
            return Err(self.no_such_table(name.as_str()));
        }
        self.publish_maps();
        Ok(())
    }
}
