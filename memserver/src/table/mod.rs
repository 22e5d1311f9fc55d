//! The table of a memory node: where its records are, and how they change.

pub(crate) mod audit;
mod background;
mod compact;
pub(crate) mod error;
mod evacuate;
mod rebuilder;
mod record_collector;
pub(crate) mod records;
mod replacement;
mod retrain;
pub(crate) mod room;
mod room_search;
pub(crate) mod segments;
mod task_rotation;
mod task_state;
pub(crate) mod values;
mod write;

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, TableRecord};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;
use fpcache_index::Directory;

use crate::counters::Counters;
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;
use error::{DamagedRecord, TableError};
use rebuilder::Rebuilder;
use record_collector::RecordCollector;
use room::directory_reserve::SeparatorBytes;
use room::{Publication, Room};
use segments::{Counts, Segments};
use task_rotation::Turns;
use task_state::{RoomSearch, Sweep};
use values::{ExternalValues, Values, memory_of};

/// A table.
#[derive(Debug)]
pub(crate) struct Table<K: BuildKeys, M> {
    pub(crate) segments: Segments<K, M>,
    pub(crate) room: Room<K, M>,
    pub(crate) values: Values<K>,
    rebuilder: Rebuilder<K>,
    /// Segments being brought together.
    sweep: Option<Sweep<K>>,
    /// For an extent that is missed by a write.
    search: Option<RoomSearch>,
    /// How far the snapshot under way has come, until it has all records.
    taking: Option<Box<RecordCollector<K>>>,
    /// What kept segments from being replaced between requests: for those who tell it.
    pub(crate) skipped_damage: Vec<DamagedRecord>,
    pub(crate) counters: Counters,
    turns: Turns,
}

/// What a load or a recovery creates a table from.
#[derive(Debug)]
pub(crate) struct TableParts<K: BuildKeys> {
    pub(crate) record: TableRecord,
    pub(crate) encoders: K::Encoders,
    pub(crate) directory: Directory<K::Key, Segment<K>>,
    pub(crate) separators: SeparatorBytes,
    pub(crate) counts: Counts,
    pub(crate) space: Space,
    pub(crate) published: Vec<Extent>,
    pub(crate) external: ExternalValues,
}

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    pub(crate) fn new(superblock: SuperblockWriter<K, M>, node: u16, parts: TableParts<K>) -> Self {
        let TableParts { record, encoders, directory, separators, counts, space, published, external } =
            parts;
        let segments = Segments::new(&superblock, &record, encoders, directory, counts);
        Self {
            rebuilder: Rebuilder::new(&segments, record.keys),
            segments,
            room: Room::new(superblock, node, record, space, Publication::new(published, separators)),
            values: Values::new(external),
            sweep: None,
            search: None,
            taking: None,
            skipped_damage: Vec::new(),
            counters: Counters::default(),
            turns: Turns::default(),
        }
    }

    /// Counts records and external values again, and has segments replaced whose tables of groups
    /// are damaged: until then their keys cost READs.
    pub(crate) fn recount(&mut self) -> Result<(), TableError> {
        let (mut keys, mut table) = (0, Vec::new());
        for (start, segment) in &self.segments.directory {
            let slots = self.segments.slots(segment);
            if !slots.has_whole_table(&mut table)? {
                self.rebuilder.note_due(start.borrow());
            }
            keys += self.segments.count(segment)?;
        }
        self.segments.keys = keys;
        let mut external = ExternalValues::default();
        self.segments.each_extent(|extent| {
            external.add(&extent);
            Ok(())
        })?;
        self.values = Values::new(external);
        Ok(())
    }

    /// Takes the memory of all external values from what counts as free: everything but the
    /// segments, so far.
    pub(crate) fn claim_extents(&mut self) -> Result<(), TableError> {
        let mut found = Vec::new();
        self.segments.each_extent(|extent| {
            found.push(memory_of(&extent));
            Ok(())
        })?;
        for extent in found {
            if !self.room.space.claim(extent) {
                let why = "a slot names memory beyond the region, or in use for something else";
                return Err(Corrupt::new("value", extent.offset, why).into());
            }
        }
        Ok(())
    }

    /// Has the table retrain once it has this many keys.
    pub(crate) fn retrain_at(&mut self, keys: u64) {
        self.rebuilder.retraining.retrain_at(keys);
    }

    /// Has this range evacuated once there is nothing else to do.
    pub(crate) fn empty(&mut self, offsets: Range<u64>) {
        self.room.emptying.empty(offsets);
    }

    /// Has a new directory published as soon as there is a change that the published one lacks.
    pub(crate) fn want_checkpoint(&mut self) {
        self.room.publication.wanted.get_or_insert(0);
    }

    /// Counts what is damaged in segments that stay as they are, and keeps it for those who tell
    /// it.
    pub(super) fn note_damage(&mut self, error: TableError) {
        /// As many as one step may meet.
        const MOST: usize = 64;
        let TableError::Damaged(damaged) = error else { return };
        self.counters.damaged_passed_by += 1;
        if self.skipped_damage.len() < MOST {
            self.skipped_damage.push(damaged);
        }
    }
}
