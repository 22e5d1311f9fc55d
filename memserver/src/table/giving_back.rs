//! Room that a table no longer needs: when its segments take too much, and when it is known to be full.

use std::ops::Range;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::compact::Sweep;
use super::evacuate::Evacuation;
use super::search::Search;
use super::{Table, TableError};
use crate::superblock_writer::SuperblockWriter;

/// Bytes of segments, as a share of what a load would make of the records, at which a sweep begins, and at which it ends;
/// and those at which it spares nothing, not even slots kept for runs.
const DUE: f64 = 1.30;
const ENOUGH: f64 = 1.25;
const TOO_MUCH: f64 = 1.40;
/// Bytes of segments beyond that, as a share of the region and between these.
const SLACK_SHARE: u64 = 32;
const SLACK: (u64, u64) = (4 << 10, 640 << 10);
/// Share of what can be had that only giving room back may use, and most bytes of it.
const KEPT_SHARE: u64 = 64;
const MOST_KEPT: u64 = 256 << 10;
/// A change by a smaller share than this one does not have anything tried again.
const WORTH_TRYING: u64 = 256;

/// What a sweep leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sparing {
    /// Slots kept for runs of inserts, and segments that would free few.
    Runs,
    Nothing,
}

/// What is under way, and what was found not to help.
#[derive(Debug)]
pub(super) struct GivingBack<K: BuildKeys> {
    pub(super) sweep: Option<Sweep<K>>,
    /// Bytes of segments and records when a sweep could do no more, and when one that spared nothing could not.
    pub(super) swept: Option<(u64, u64)>,
    pub(super) swept_all: Option<(u64, u64)>,
    pub(super) evacuation: Option<Evacuation<K>>,
    /// For an extent that is missed by a write.
    pub(super) search: Option<Search<K>>,
    /// Free bytes when an evacuation could move nothing.
    pub(super) stuck: Option<u64>,
    /// The same when those at the end were moved.
    pub(super) shrunk: Option<u64>,
    /// Bytes of the longest free extent that was missed, and of the longest value there has been.
    hole: u64,
    longest_value: u64,
    /// Bytes that are to be emptied whatever lies there.
    wanted: Option<Range<u64>>,
    /// Bytes of segments that are let be whatever they hold, if not a share of the region.
    slack: Option<u64>,
    /// Whether what is under way may use what is kept for it.
    pub(super) is_compacting: bool,
    /// How it was when a segment could not be replaced, and when nothing more helped.
    no_segment: Option<Level>,
    /// With the bytes that were wanted.
    no_help: Option<(u64, Level)>,
    /// The same for a value of so many bytes.
    no_value: Option<(u64, Level)>,
}

impl<K: BuildKeys> Default for GivingBack<K> {
    fn default() -> Self {
        Self {
            sweep: None,
            swept: None,
            swept_all: None,
            evacuation: None,
            search: None,
            stuck: None,
            shrunk: None,
            hole: 0,
            longest_value: 0,
            wanted: None,
            slack: None,
            is_compacting: false,
            no_segment: None,
            no_help: None,
            no_value: None,
        }
    }
}

impl<K: BuildKeys> GivingBack<K> {
    /// Notes that a free extent of so many bytes was missed although there were as many free ones.
    pub(super) fn want_hole(&mut self, bytes: u64) {
        self.hole = self.hole.max(bytes);
    }
}

/// How full a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    keys: u64,
    /// Bytes that are free or will be.
    free: u64,
}

impl Level {
    /// Whether records were deleted since, or bytes came free, by more than this share.
    fn has_fallen(self, now: Self, share: u64) -> bool {
        let part = |of: u64| of.checked_div(share).unwrap_or(0);
        now.keys + part(self.keys) < self.keys || now.free > self.free + part(self.free)
    }
}

impl<K: BuildKeys> Table<K> {
    fn level(&self) -> Level {
        Level { keys: self.keys, free: self.space.free_bytes() + self.space.quarantined_bytes() }
    }

    /// About how many bytes segments have that are freshly loaded with the records.
    fn loaded_bytes(&self) -> f64 {
        let parameters = &self.record.parameters;
        let segments = self.directory.len() as f64;
        let of_groups = segments * parameters.group_bytes_per_segment(self.keys as f64 / segments.max(1.0));
        self.keys as f64 * parameters.bytes_per_slot() / parameters.fill.max(0.01) + of_groups
    }

    /// Whether segments take more than so many times what a load would make of them, and some more.
    fn exceeds<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>, times: f64) -> bool {
        let share = (superblock.grant.reach() / SLACK_SHARE).clamp(SLACK.0, SLACK.1);
        let slack = self.giving_back.slack.unwrap_or(share);
        self.segment_bytes as f64 > self.loaded_bytes() * times + slack as f64
    }

    /// Which sweep is worth its while, if one is.
    pub(super) fn due_sweep<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>) -> Option<Sparing> {
        /// The share by which things are worse than after a sweep in vain.
        const WORSE: u64 = 16;
        let is_worse = |(bytes, keys): (u64, u64)| {
            self.segment_bytes > bytes + bytes / WORSE || self.keys < keys - keys / WORSE
        };
        if self.exceeds(superblock, DUE) && self.giving_back.swept.is_none_or(is_worse) {
            Some(Sparing::Runs)
        } else if self.exceeds(superblock, TOO_MUCH) && self.giving_back.swept_all.is_none_or(is_worse) {
            Some(Sparing::Nothing)
        } else {
            None
        }
    }

    /// Whether a sweep has done enough.
    pub(super) fn is_swept<M: NodeMemory>(&self, superblock: &SuperblockWriter<K, M>) -> bool {
        !self.exceeds(superblock, ENOUGH)
    }

    /// Bytes that records are not given, so that giving room back has some.
    pub(super) fn kept_for_compaction(&self) -> u64 {
        if self.giving_back.is_compacting { 0 } else { self.kept_for_records() }
    }

    /// Gives a little room back; `false` if there is nothing to do.
    pub(super) fn give_back<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
    ) -> Result<bool, TableError> {
        self.giving_back.is_compacting = true;
        let stepped = match self.step_sweep(superblock) {
            Ok(false) => self.step_evacuation(superblock),
            other => other,
        };
        self.giving_back.is_compacting = false;
        stepped
    }

    /// The bytes to empty next in the background: so that those at the end can be given back, or for an extent that was missed.
    pub(super) fn wants_emptied<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
    ) -> Option<Range<u64>> {
        if let Some(wanted) = self.giving_back.wanted.take() {
            return Some(wanted);
        }
        let free = self.space.granted_free_bytes();
        let is_more = |known: Option<u64>| known.is_none_or(|known| free > known + known / 8);
        if !is_more(self.giving_back.stuck) {
            return None;
        }
        if superblock.grant.is_shared() && is_more(self.giving_back.shrunk) {
            let used = superblock.grant.end().saturating_sub(free);
            let is_beyond =
                superblock.grant.is_overdrawn() || superblock.grant.end() > superblock.grant.limit();
            let most = if is_beyond { used / 8 } else { used / 2 };
            if free > most + (1 << 20) {
                return Some((used + used / 8 + (512 << 10)).next_multiple_of(8)..u64::MAX);
            }
        }
        let missed = std::mem::take(&mut self.giving_back.hole);
        let longest = self.space.longest();
        if missed > longest {
            return self.window_for(superblock, missed);
        }
        let value = self.giving_back.longest_value;
        if value > longest && value < free / 2 {
            // Shorter ones if that is in vain.
            self.giving_back.longest_value /= 2;
            return self.window_for(superblock, value);
        }
        None
    }

    /// Notes that a value of so many bytes is to find room, as others may that come.
    pub(super) fn note_value(&mut self, bytes: u64) {
        self.giving_back.longest_value = self.giving_back.longest_value.max(bytes);
    }

    /// Has segments brought together when they take so many bytes too much.
    pub(crate) fn give_back_from(&mut self, bytes: u64) {
        self.giving_back.slack = Some(bytes);
    }

    /// Has these bytes emptied as soon as there is nothing else to do.
    pub(crate) fn empty(&mut self, offsets: Range<u64>) {
        self.giving_back.wanted = Some(offsets);
    }

    /// Whether nothing has become better since a segment found no room.
    pub(crate) fn is_known_full(&self) -> bool {
        self.giving_back.no_segment.is_some_and(|level| !level.has_fallen(self.level(), 0))
    }

    /// Whether nothing has become better since a value of so many bytes, or a shorter one, found no room.
    pub(super) fn is_known_too_long(&self, bytes: u64) -> bool {
        let known = self.giving_back.no_value;
        known.is_some_and(|(least, level)| bytes >= least && !level.has_fallen(self.level(), 0))
    }

    /// Notes that a segment of so many bytes found no room. A disk that gives none is not the table's to know.
    pub(super) fn note_full(&mut self, bytes: u64) {
        if self.space.longest() >= bytes {
            return;
        }
        self.giving_back.no_segment = Some(self.level());
    }

    /// Notes that a value of so many bytes found no room.
    pub(super) fn note_too_long(&mut self, bytes: u64) {
        let least = match self.giving_back.no_value {
            Some((least, level)) if !level.has_fallen(self.level(), 0) => least.min(bytes),
            _ => bytes,
        };
        self.giving_back.no_value = Some((least, self.level()));
    }

    /// Whether what can make room did not help an extent of `len` bytes, or a shorter one, and hardly anything has changed since.
    pub(super) fn is_known_not_to_help(&self, len: u64) -> bool {
        let known = self.giving_back.no_help;
        known.is_some_and(|(least, level)| len >= least && !level.has_fallen(self.level(), WORTH_TRYING))
    }

    /// Notes whether what can make room did help an extent of `len` bytes.
    pub(super) fn note_help(&mut self, len: u64, made: bool) {
        self.giving_back.no_help = (!made).then(|| (len, self.level()));
    }

    /// Whether an extent of so many bytes is there for records.
    pub(super) fn has_hole(&self, len: u64) -> bool {
        self.space.longest() >= len && self.space.free_bytes() >= len + self.kept_for_records()
    }

    pub(super) fn kept_for_records(&self) -> u64 {
        (self.space.end_in_reach() / KEPT_SHARE).min(MOST_KEPT)
    }
}
