//! The rebuilder, which plans and writes new segments for the records of old ones.

mod boundaries;
pub(crate) mod gather;
pub(crate) mod planned;
pub(crate) mod retraining;
pub(crate) mod writing;

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Descriptor, SegmentAddress, SegmentGeometry, SegmentReplacement, TableParameters};
use fpcache::models::Segment;
use fpcache_fabric::NodeMemory;

use super::error::TableError;
use super::room::Room;
use super::segments::Segments;
use crate::rebuild::plan::{Gathered, RebuildOptions, neighbours, plan};
use crate::segment_image::SegmentImage;
use crate::versions::age;
use boundaries::Parting;
use gather::{GatheredRecord, Gathering, INCOMING, ReplacedRun};
use planned::{FillGoal, PlannedSegment};
use retraining::Retraining;
use writing::{SegmentWriter, WrittenSegment};

/// Segments that are remembered to be replaced; those beyond are replaced when an insert has to
/// wait for it.
const MOST_DUE: usize = 1024;

/// What rebuilds a table's segments, and which of them are due.
#[derive(Debug)]
pub(crate) struct Rebuilder<K: BuildKeys> {
    pub(super) options: RebuildOptions,
    image: SegmentImage,
    pub(super) gathering: Gathering<K>,
    /// A key of each segment that inserts will soon have filled up, or whose table of groups is
    /// damaged.
    due: Vec<K::Owned>,
    pub(super) retraining: Retraining<K>,
}

/// Segments as they were planned, and as they were written.
type BuiltSegments<K> = (Vec<PlannedSegment<K>>, Vec<WrittenSegment<K>>);

/// How a table's segments are rebuilt.
fn rebuild_options(parameters: &TableParameters, geometry: &SegmentGeometry) -> RebuildOptions {
    const OF_LOADED: f64 = 0.78;
    let standard = RebuildOptions::default();
    RebuildOptions {
        epsilon: parameters.epsilon,
        // What writes leave is not far from what a load makes of the same records, whatever its
        // fill.
        fill: standard.fill.min(parameters.fill).max(OF_LOADED * parameters.fill),
        settled_fill: parameters.fill,
        max_slots: parameters.max_slots,
        slot_bytes: geometry.slot_bytes + geometry.fingerprint_bytes(1),
        ..standard
    }
}

impl<K: BuildKeys> Rebuilder<K> {
    pub(super) fn new<M: NodeMemory>(segments: &Segments<K, M>, keys: u64) -> Self {
        Self {
            options: rebuild_options(&segments.parameters, &segments.geometry),
            image: SegmentImage::new(segments.geometry),
            gathering: Gathering::default(),
            due: Vec::new(),
            retraining: Retraining::new(&segments.encoders, keys),
        }
    }

    /// Remembers a key whose segment is to be replaced before an insert has to wait for that.
    pub(super) fn note_due(&mut self, key: &K::Key) {
        if self.due.len() < MOST_DUE {
            self.due.push(key.to_owned());
        }
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The last of those.
    pub(super) fn next_due(&mut self) -> Option<K::Owned> {
        self.due.pop()
    }

    /// Reads the live records of the segment that owns `key`, and of neighbours that are worth
    /// merging with it; and what is damaged in neighbours, if they are left out for that.
    pub(crate) fn gather<M: NodeMemory>(
        &mut self,
        segments: &mut Segments<K, M>,
        room: &Room<K, M>,
        key: &K::Key,
    ) -> Result<(ReplacedRun<K>, Option<TableError>), TableError> {
        let Some(located) = segments.directory.locate(key) else {
            return Err(room.no_room());
        };
        let (start, end, centre) = (located.start, located.end, *located.entry);
        let left = segments.directory.before(start.borrow()).map(|(start, segment)| (start, *segment));
        let right = end.as_ref().and_then(|key| {
            let right = segments.directory.locate(key.borrow())?;
            Some((right.end, *right.entry))
        });
        let mut facts = |segment: &Segment<K>| segments.usage(segment);
        let (left_facts, right_facts) = (
            left.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
            right.as_ref().map(|(_, segment)| facts(segment)).transpose()?,
        );
        let merge = neighbours(facts(&centre)?, left_facts, right_facts, &self.options);
        let left = left.filter(|_| merge.left);
        let right = right.filter(|_| merge.right);
        let alone = left.is_none() && right.is_none();
        let centre = (start, end, centre);
        match self.gather_all(segments, left, centre.clone(), right) {
            // A neighbour's record may be what is damaged: the segment is replaced without it.
            Err(damaged @ TableError::Damaged(_)) if !alone => {
                let old = self.gather_all(segments, None, centre, None)?;
                Ok((old, Some(damaged)))
            }
            gathered => gathered.map(|old| (old, None)),
        }
    }

    /// Reads the live records of a segment, and of neighbours if there are any.
    fn gather_all<M: NodeMemory>(
        &mut self,
        segments: &Segments<K, M>,
        left: Option<(K::Owned, Segment<K>)>,
        (mut start, mut end, centre): (K::Owned, Option<K::Owned>, Segment<K>),
        right: Option<(Option<K::Owned>, Segment<K>)>,
    ) -> Result<ReplacedRun<K>, TableError> {
        self.gathering.clear();
        let mut old = Vec::with_capacity(3);
        if let Some((left_start, segment)) = left {
            self.gathering.add_segment(segments, left_start.borrow(), &segment)?;
            old.push(segment);
            self.gathering.add_segment(segments, start.borrow(), &centre)?;
            start = left_start;
        } else {
            self.gathering.add_segment(segments, start.borrow(), &centre)?;
        }
        old.push(centre);
        if let (Some((right_end, segment)), Some(right_start)) = (right, &end) {
            self.gathering.add_segment(segments, right_start.borrow(), &segment)?;
            old.push(segment);
            end = right_end;
        }
        Ok(ReplacedRun { start, end, segments: old })
    }

    fn writer(&mut self) -> SegmentWriter<'_, K> {
        SegmentWriter { image: &mut self.image, gathering: &self.gathering }
    }

    /// Plans new segments and writes them; shorter ones if no free extent has room for those that
    /// would be best.
    pub(crate) fn plan_and_write<M: NodeMemory>(
        &mut self,
        segments: &mut Segments<K, M>,
        room: &mut Room<K, M>,
        old: &ReplacedRun<K>,
        making: FillGoal,
    ) -> Result<BuiltSegments<K>, TableError> {
        let mut options = match making {
            FillGoal::ForWrites => self.options,
            FillGoal::Compact => self.options.compact(),
        };
        loop {
            let new = self.plan_for(segments, old, &options, making);
            if log_records(old, &new) as u64 > room.record.log_records
                && let Some(fewer) = options.fewer_segments()
            {
                // Many keys that share kibibytes: each segment's separator takes as much of the
                // log.
                options = fewer;
                continue;
            }
            room.room_in_log(segments, log_records(old, &new))?;
            match self.writer().write_all(segments, room, &new, old.end.as_ref()) {
                Err(TableError::NoRoom { .. }) if shorten(room, segments, &mut options, &new) => {}
                written => return Ok((new, written?)),
            }
        }
    }

    /// Plans new segments for what was gathered.
    fn plan_for<M: NodeMemory>(
        &mut self,
        segments: &Segments<K, M>,
        old: &ReplacedRun<K>,
        options: &RebuildOptions,
        making: FillGoal,
    ) -> Vec<PlannedSegment<K>> {
        let now = segments.next_version;
        let Gathering { records, keys: arena, xs, ages, .. } = &mut self.gathering;
        let age_of = |record: &GatheredRecord<K>| match record.body {
            INCOMING => 0,
            _ => age(record.version, now),
        };
        ages.clear();
        if making == FillGoal::ForWrites {
            ages.extend(records.iter().map(age_of));
        }
        let keys: Vec<&K::Key> = records.iter().map(|record| K::kept(&record.key, arena)).collect();
        let divisions = K::divide(&keys, old.start.borrow(), &segments.encoders, options.most_equal());
        let mut new: Vec<PlannedSegment<K>> = Vec::with_capacity(2);
        let mut divisions = divisions.into_iter().peekable();
        while let Some(division) = divisions.next() {
            let (tail, range) = (division.tail, division.keys);
            xs.clear();
            let coordinate = |key: &&K::Key| K::coordinate(key, usize::MAX, tail, &segments.encoders);
            xs.extend(keys[range.clone()].iter().map(coordinate));
            let end = divisions.peek().map(|next| &next.start).or(old.end.as_ref()).map(Borrow::borrow);
            let (first_x, last_x) = K::coordinates_of(division.start.borrow(), end, tail, &segments.encoders);
            // Without ages no run is met, and no slots are kept for one.
            let ages = if making == FillGoal::ForWrites { &ages[range.clone()] } else { &[] };
            let gathered = Gathered { first_x, last_x, xs, ages };
            let keys = &keys[range.clone()];
            let parting = Parting { keys, xs, end, tail, encoders: &segments.encoders };
            let mut begin = Some(division.start);
            for planned in plan(&gathered, options) {
                parting.add(begin.take(), planned, range.start, &mut new);
            }
        }
        if let Some(grouping) = segments.geometry.groups {
            for segment in &mut new {
                let coordinate =
                    |key: &&K::Key| K::coordinate(key, usize::MAX, segment.tail, &segments.encoders);
                let keys = &keys[segment.planned.keys.clone()];
                xs.clear();
                xs.extend(keys.iter().map(coordinate));
                let hashes: Vec<u64> = keys.iter().map(|key| K::hash(key)).collect();
                segment.group(grouping, segments.parameters.epsilon, xs, &hashes);
            }
        }
        new
    }
}

/// Has segments planned that free extents have room for; `false` if that cannot be, or would make
/// too short ones.
fn shorten<K: BuildKeys, M: NodeMemory>(
    room: &mut Room<K, M>,
    segments: &Segments<K, M>,
    options: &mut RebuildOptions,
    new: &[PlannedSegment<K>],
) -> bool {
    /// Slots of the shortest that are worth it.
    const LEAST: usize = 64;
    let bytes = |new: &PlannedSegment<K>| segments.geometry.segment_bytes(new.planned.model.cap) as u64;
    let (total, longest) = (new.iter().map(bytes).sum::<u64>(), new.iter().map(bytes).max().unwrap_or(0));
    if room.space.free_bytes() < total + room.kept_for_compaction() {
        return false;
    }
    room.emptying.note_missed_extent(longest);
    // Shorter with each time: keys that share their coordinates may keep a segment longer than it
    // was to be.
    let longest = longest.min(options.max_segment_bytes as u64);
    let half = usize::try_from(longest.min(room.space.longest() + longest / 2)).unwrap_or(0) / 2;
    options.max_segment_bytes = half;
    half >= LEAST * options.slot_bytes
}

/// Records of the change log that say so.
fn log_records<K: BuildKeys>(old: &ReplacedRun<K>, new: &[PlannedSegment<K>]) -> usize {
    let descriptor = |new: &PlannedSegment<K>| Descriptor::<K> {
        start: new.start.clone(),
        tail: new.tail,
        model: new.planned.model,
        address: SegmentAddress::from_bits(0),
        generation: 0,
    };
    SegmentReplacement { with: new.iter().map(descriptor).collect(), end: old.end.clone() }.records(0).len()
}
