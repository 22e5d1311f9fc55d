//! A table as the memory node has it: where every record lies, and how records change.
//!
//! | module | holds |
//! |---|---|
//! | [`slots`] | one segment's slots: the stores by which a record begins, changes and ends |
//! | [`write`] | one operation: what it comes to, and doing that |
//! | [`replacement`] | segments replaced by segments: planning, writing, committing, freezing |
//! | [`gather`] | the records of the segments that are to be replaced |
//! | [`parting`] | where the ranges of planned segments begin |
//! | [`room`] | free memory, and what has to happen before there is some |
//! | [`giving_back`] | when segments take too much room, and when a table is known to be full |
//! | [`compact`] | segments that deletes left half empty, brought together |
//! | [`evacuate`] | bytes emptied of what lies in them, so that free memory is in one piece |
//! | [`search`] | all that can make room for what found none, in steps
//! | [`extents`] | external values |
//! | [`retrain`] | encoders that suit the keys a table has by now |
//! | [`audit`] | looking at every byte for what must hold |
//! | [`records`] | records as snapshots have them, and records put back by key |
//! | [`taking`] | the records of a snapshot, while writes go on |
//! | [`checkpoint`] | the directory in the region, written in steps while changes go on |

pub(crate) mod audit;
pub(crate) mod checkpoint;
mod compact;
mod evacuate;
pub(crate) mod extents;
mod gather;
mod giving_back;
mod parting;
pub(crate) mod records;
pub(crate) mod replacement;
mod retrain;
mod room;
mod search;
pub(crate) mod slots;
mod taking;
pub(crate) mod write;

use std::borrow::Borrow;
use std::collections::HashSet;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, RecordShape, SegmentGeometry, SlotWord, TableParameters, TableRecord};
use fpcache::matching::Matcher;
use fpcache::models::Segment;
use fpcache_fabric::{AccessError, NodeMemory};
use fpcache_index::Directory;

use crate::counters::Counters;
use crate::image::SegmentImage;
use crate::loader::FIRST_VERSION;
use crate::rebuild::plan::RebuildOptions;
use crate::space::{Extent, Space};
use crate::superblock_writer::SuperblockWriter;
pub(crate) use checkpoint::Separators;
use checkpoint::{Aside, Checkpoint};
use extents::ExternalValues;
use gather::Gathering;
use giving_back::GivingBack;
use retrain::Retraining;
use taking::Taking;

/// Why a table could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The region is full.
    #[error(
        "the region of {} has no room for more records: delete some, drop other tables, or restart the memory node with \
         a larger --capacity",
        bytesize::ByteSize(*.capacity).display().iec()
    )]
    NoRoom {
        /// Bytes that the region can have.
        capacity: u64,
    },
    /// The region could not be written: a bug.
    #[error("writing the region failed: {0}")]
    Region(#[from] AccessError),
    /// The region's own bytes contradict themselves.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A table, its directory whole and current.
#[derive(Debug)]
pub(crate) struct Table<K: BuildKeys> {
    node: u16,
    /// As published with the newest checkpoint.
    record: TableRecord,
    geometry: SegmentGeometry,
    /// What the segments share to compute coordinates.
    encoders: K::Encoders,
    matcher: Matcher,
    directory: Directory<K::Key, Segment<K>>,
    space: Space,
    /// Bytes of all segments.
    segment_bytes: u64,
    giving_back: GivingBack<K>,
    pub(crate) publication: Publication<K>,
    /// Slots of records that wait for the disk: the segment's offset, and the slot.
    reserved: HashSet<(u64, u32)>,
    rebuilder: Rebuilder<K>,
    /// How far the snapshot under way has come, until it has all records.
    taking: Option<Box<Taking<K>>>,
    next_generation: u32,
    next_version: u32,
    keys: u64,
    /// Records in the slot their prediction names.
    at_home: u64,
    external: ExternalValues,
    pub(crate) counters: Counters,
    scratch: Scratch,
}

/// What rebuilds a table's segments, and which of them are due.
#[derive(Debug)]
struct Rebuilder<K: BuildKeys> {
    options: RebuildOptions,
    image: SegmentImage,
    gathering: Gathering<K>,
    /// First keys of segments that inserts will soon have filled up.
    nearly_full: Vec<K::Owned>,
    retraining: Retraining<K>,
}

/// The directory in the region: the one that is published, and the next.
#[derive(Debug)]
pub(crate) struct Publication<K: BuildKeys> {
    /// Memory of the directory that is published.
    published: Vec<Extent>,
    checkpoint: Option<Checkpoint<K>>,
    /// Memory for the next directory.
    aside: Aside,
    separators: Separators,
    /// Whether a reader asked for a new directory.
    pub(crate) wanted: bool,
}

/// Buffers of one operation.
#[derive(Debug, Default)]
struct Scratch {
    fingerprints: Vec<u8>,
    slots: Vec<u32>,
    body: Vec<u8>,
}

/// What a table is made from, by a load or a recovery.
#[derive(Debug)]
pub(crate) struct Parts<K: BuildKeys> {
    pub(crate) record: TableRecord,
    pub(crate) encoders: K::Encoders,
    pub(crate) directory: Directory<K::Key, Segment<K>>,
    pub(crate) separators: Separators,
    /// Bytes of all segments.
    pub(crate) segment_bytes: u64,
    pub(crate) space: Space,
    pub(crate) published: Vec<Extent>,
    pub(crate) next_generation: u32,
    pub(crate) next_version: u32,
    pub(crate) keys: u64,
    pub(crate) external: ExternalValues,
}

/// How a table's segments are rebuilt.
fn rebuild_options(parameters: &TableParameters, geometry: &SegmentGeometry) -> RebuildOptions {
    const OF_LOADED: f64 = 0.78;
    let standard = RebuildOptions::default();
    RebuildOptions {
        epsilon: parameters.epsilon,
        // What writes leave is not far from what a load makes of the same records, whatever its fill.
        fill: standard.fill.min(parameters.fill).max(OF_LOADED * parameters.fill),
        settled_fill: parameters.fill,
        max_slots: parameters.max_slots,
        slot_bytes: geometry.slot_bytes + geometry.width.bytes(),
        ..standard
    }
}

impl<K: BuildKeys> Table<K> {
    pub(crate) fn new(node: u16, parts: Parts<K>) -> Self {
        let Parts {
            record,
            encoders,
            directory,
            separators,
            segment_bytes,
            space,
            published,
            next_generation,
            next_version,
            keys,
            external,
        } = parts;
        let geometry = record.parameters.geometry();
        Self {
            node,
            geometry,
            matcher: Matcher::detect(),
            directory,
            space,
            segment_bytes,
            giving_back: GivingBack::default(),
            publication: Publication {
                published,
                checkpoint: None,
                aside: Aside::default(),
                separators,
                wanted: false,
            },
            reserved: HashSet::new(),
            rebuilder: Rebuilder {
                options: rebuild_options(&record.parameters, &geometry),
                image: SegmentImage::new(geometry),
                gathering: Gathering::default(),
                nearly_full: Vec::new(),
                retraining: Retraining::new(&encoders, record.keys),
            },
            taking: None,
            next_generation,
            next_version,
            keys,
            at_home: record.at_home,
            external,
            counters: Counters::default(),
            scratch: Scratch::default(),
            record,
            encoders,
        }
    }

    /// Counts the records anew, and the external values; and checks the tables of groups, which nobody looks at later.
    pub(crate) fn recount<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
    ) -> Result<(), TableError> {
        let mut keys = 0;
        for (_, segment) in &self.directory {
            self.check_groups(superblock, segment)?;
            keys += self.count(superblock, segment)?;
        }
        self.keys = keys;
        let mut external = ExternalValues::default();
        self.each_extent(superblock, |extent| {
            external.add(&extent);
            Ok(())
        })?;
        self.external = external;
        Ok(())
    }

    /// Live records.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Segments.
    pub(crate) fn segments(&self) -> u64 {
        self.directory.len() as u64
    }

    pub(crate) fn record(&self) -> &TableRecord {
        &self.record
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Has the table retrain on its keys as soon as it has so many.
    pub(crate) fn retrain_at(&mut self, keys: u64) {
        self.rebuilder.retraining.retrain_at(keys);
    }

    /// Goes on with the versions that another memory node gave out up to this one.
    pub(crate) fn go_on_from(&mut self, next_version: u32) {
        self.next_version = next_version.max(self.next_version);
    }

    /// Goes on counting versions from here.
    pub(crate) fn count_versions_from(&mut self, version: u32) {
        self.next_version = (version % SlotWord::VERSIONS).max(FIRST_VERSION + 1);
    }

    /// The version of the next write.
    pub(crate) fn next_version(&self) -> u32 {
        self.next_version
    }

    /// How records lie in slots.
    pub(crate) fn shape(&self) -> RecordShape {
        self.geometry.shape
    }

    /// What the segments share to compute coordinates.
    pub(crate) fn encoders(&self) -> &K::Encoders {
        &self.encoders
    }

    /// Does a little of what can be done between operations; `true` if there is more. No segment is replaced while slots
    /// of it are spoken for: `may_replace`.
    pub(crate) fn work<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        may_replace: bool,
    ) -> Result<bool, TableError> {
        // What it replaces would be in the way of a search for room.
        let may_replace = may_replace && !self.is_searching();
        if may_replace && let Some(lo) = self.rebuilder.nearly_full.pop() {
            self.relieve(superblock, lo.borrow())?;
            return Ok(true);
        }
        // A search writes directories when it needs them, and has room for them then.
        if !self.is_searching() && self.wants_checkpoint(superblock) {
            match self.step_checkpoint(superblock) {
                // The bytes that are being emptied may be all that is free.
                Err(TableError::NoRoom { .. }) if self.give_up_evacuation() => {}
                stepped => stepped?,
            }
            return Ok(true);
        }
        if may_replace && self.step_retraining(superblock)? {
            return Ok(true);
        }
        if may_replace && self.give_back(superblock)? {
            return Ok(true);
        }
        if self.reclaim_early(superblock)? {
            // What waits after it may be due now.
            return Ok(true);
        }
        Ok(self.space.shrink())
    }
}
