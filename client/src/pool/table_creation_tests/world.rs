//! Memory nodes that hold ranges, and those that make and drop tables over them, a step each in
//! turn.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex};

use fpcache_fabric::FabricError;

use super::super::*;

/// The state of the memory nodes, and what has happened.
#[derive(Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<String, BTreeMap<TableName, RangeMap>>,
    /// Creations that were whole, and those that an actor meant to drop.
    pub(super) whole: BTreeSet<u64>,
    pub(super) meant: BTreeSet<u64>,
    /// Ranges with a change that was acknowledged.
    pub(super) written: BTreeSet<(String, TableName, u64)>,
    /// Requests whose senders are gone, and which have not arrived yet.
    pub(super) late: Vec<(String, RangeRequest)>,
    pub(super) faults: Vec<String>,
    /// Memory nodes that have a table of the name that is none of this kind.
    pub(super) closed: BTreeSet<String>,
    pub(super) random: u64,
    /// Whose turn it is, and who has not ended.
    pub(super) turn: usize,
    pub(super) going: Vec<usize>,
}

/// One that makes requests in turn with others.
pub(super) struct Actor<'w> {
    pub(super) number: usize,
    pub(super) drops: bool,
    /// After how many requests it is killed.
    pub(super) lives: Cell<u32>,
    pub(super) world: &'w (Mutex<World>, Condvar),
}

pub(super) fn refused(version: u32) -> ClientError {
    Refusal::new(ErrorCode::WrongRange { version }, "later").into()
}

pub(super) fn absent() -> ClientError {
    ClientError::NoSuchTable { why: "absent".to_owned() }
}

pub(super) fn killed() -> ClientError {
    FabricError::DeadlinePassed { waiting_for: "the dead" }.into()
}

impl World {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % end.max(1)
    }

    /// As `manage_range` of a memory node's catalogue has it.
    pub(super) fn range(&mut self, node: &str, request: &RangeRequest) -> Result<(), ClientError> {
        let (map, range) = request.range().expect("it has one");
        let name = map.table(range).expect("a name");
        let is_first = map.ranges[0] == *range;
        let tables = self.nodes.entry(node.to_owned()).or_default();
        match (request, tables.get(&name).cloned()) {
            (_, Some(known)) if known == *map => return Ok(()),
            (RangeRequest::Map { .. }, Some(known)) if known.version < map.version => {}
            (_, Some(known)) => return Err(refused(known.version)),
            (RangeRequest::Map { .. }, None) => return Err(absent()),
            (RangeRequest::Create { .. }, None) => {
                if self.closed.contains(node) {
                    return Err(Refusal::new(ErrorCode::TableExists, "a table of one memory node").into());
                }
                if tables.values().any(|other| other.creation != map.creation) {
                    return Err(Refusal::new(ErrorCode::TableExists, "another").into());
                }
            }
        }
        tables.insert(name, map.clone());
        if is_first && map.state == MapState::Whole {
            self.whole.insert(map.creation);
        }
        Ok(())
    }

    pub(super) fn drop_range(&mut self, node: &str, table: &TableName) {
        let gone = self.nodes.entry(node.to_owned()).or_default().remove(table);
        if let Some(map) = gone
            && self.whole.contains(&map.creation)
            && !self.meant.contains(&map.creation)
        {
            self.faults.push(format!("a range of the whole table {} was dropped", map.creation));
        }
    }

    /// Has another actor go on, and what is late arrive now and then.
    pub(super) fn pass(&mut self) {
        if !self.late.is_empty() && self.below(4) == 0 {
            let which = self.below(self.late.len());
            let (node, request) = self.late.swap_remove(which);
            let _ = self.range(&node, &request);
        }
        if !self.going.is_empty() {
            let which = self.below(self.going.len());
            self.turn = self.going[which];
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.values().all(BTreeMap::is_empty)
    }
}

impl Actor<'_> {
    /// Makes a request when it is this one's turn; `last` says what happens to one whose reply is
    /// not waited for.
    pub(super) fn step<R>(
        &self,
        work: impl FnOnce(&mut World) -> Result<R, ClientError>,
        last: impl FnOnce(&mut World),
    ) -> Result<R, ClientError> {
        let (world, changed) = self.world;
        let mut world = world.lock().expect("nobody panics");
        while world.turn != self.number && !world.going.is_empty() {
            world = changed.wait(world).expect("nobody panics");
        }
        let ended = match self.lives.get() {
            0 => Err(killed()),
            1 => {
                last(&mut world);
                self.lives.set(0);
                Err(killed())
            }
            lives => {
                self.lives.set(lives - 1);
                work(&mut world)
            }
        };
        world.pass();
        changed.notify_all();
        ended
    }

    pub(super) fn end(&self) {
        let (world, changed) = self.world;
        let mut world = world.lock().expect("nobody panics");
        world.going.retain(|other| *other != self.number);
        world.pass();
        changed.notify_all();
    }
}

impl NodeRequests for Actor<'_> {
    fn map(&self, node: &str) -> Result<Option<RangeMap>, ClientError> {
        let newest = |world: &mut World| {
            let tables = world.nodes.get(node).into_iter().flat_map(BTreeMap::values);
            Ok(tables.max_by_key(|map| map.version).cloned())
        };
        self.step(newest, |_| {})
    }

    fn range(&self, node: &str, request: &RangeRequest) -> Result<(), ClientError> {
        let mean = |world: &mut World| {
            if let (RangeRequest::Map { map, .. }, true) = (request, self.drops)
                && map.state == MapState::Dropping
            {
                world.meant.insert(map.creation);
            }
        };
        let work = |world: &mut World| {
            mean(world);
            world.range(node, request)
        };
        self.step(work, |world| {
            mean(world);
            world.late.push((node.to_owned(), request.clone()));
        })
    }

    fn drop_range(&self, node: &str, table: &TableName) -> Result<(), ClientError> {
        let work = |world: &mut World| {
            if self.drops {
                world.meant.extend(table.as_range().map(|(_, creation, _)| creation));
            }
            world.drop_range(node, table);
            Ok(())
        };
        self.step(work, |_| {})
    }
}
