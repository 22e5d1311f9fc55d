//! Checks whether a table takes too much memory for its records, and whether it is known to have no
//! room for more.

use fpcache::key_space::BuildKeys;
use fpcache_fabric::NodeMemory;

use super::super::segments::Segments;
use super::Room;
use super::fullness::{Level, Refused, Sparing, kept_for_compaction_of};

/// Bytes of segments, as a share of what a load would make of the records, at which a sweep begins,
/// and at which it ends; and those at which it spares nothing, not even slots kept for runs.
const DUE: f64 = 1.30;
const ENOUGH: f64 = 1.25;
const TOO_MUCH: f64 = 1.40;
/// Bytes of segments beyond that, as a share of the region and between these.
const SLACK_SHARE: u64 = 32;
const SLACK: (u64, u64) = (4 << 10, 640 << 10);
/// A change by a smaller share than this one does not have anything tried again.
const WORTH_TRYING: u64 = 256;

impl<K: BuildKeys, M: NodeMemory> Room<K, M> {
    fn level(&self, segments: &Segments<K, M>) -> Level {
        Level { keys: segments.keys, free: self.space.free_bytes() + self.space.quarantined_bytes() }
    }

    /// Whether segments take more than `times` what a load would make of them, with some slack.
    fn exceeds(&self, segments: &Segments<K, M>, times: f64) -> bool {
        let share = (self.superblock.grant.reach() / SLACK_SHARE).clamp(SLACK.0, SLACK.1);
        let slack = self.fullness.slack.unwrap_or(share);
        segments.bytes as f64 > segments.loaded_bytes() * times + slack as f64
    }

    /// Which sweep is worthwhile, if any.
    pub(crate) fn due_sweep(&self, segments: &Segments<K, M>) -> Option<Sparing> {
        /// The share by which things are worse than after a sweep in vain.
        const WORSE: u64 = 16;
        let is_worse = |(bytes, keys): (u64, u64)| {
            segments.bytes > bytes + bytes / WORSE || segments.keys < keys - keys / WORSE
        };
        if self.exceeds(segments, DUE) && self.fullness.swept.is_none_or(is_worse) {
            Some(Sparing::Runs)
        } else if self.exceeds(segments, TOO_MUCH) && self.fullness.swept_all.is_none_or(is_worse) {
            Some(Sparing::Nothing)
        } else {
            None
        }
    }

    /// Whether a sweep has done enough.
    pub(crate) fn is_swept(&self, segments: &Segments<K, M>) -> bool {
        !self.exceeds(segments, ENOUGH)
    }

    /// Bytes withheld from records, so that compaction has some.
    pub(crate) fn kept_for_compaction(&self) -> u64 {
        if self.is_compacting { 0 } else { self.kept_for_records() }
    }

    pub(crate) fn kept_for_records(&self) -> u64 {
        kept_for_compaction_of(self.space.end_in_reach())
    }

    /// Has segments compacted when they take this many bytes too much.
    pub(crate) fn give_back_from(&mut self, bytes: u64) {
        self.fullness.slack = Some(bytes);
    }

    fn refused(&self, segments: &Segments<K, M>, len: u64) -> Refused {
        Refused { len, level: self.level(segments), longest: self.space.longest() }
    }

    /// Whether `len` bytes find no room because others found none, and nothing has improved since:
    /// the level is not lower by more than this share, and no extent is free that was not tried
    /// then.
    fn is_still_refused(
        &self,
        refused: Option<Refused>,
        segments: &Segments<K, M>,
        len: u64,
        share: u64,
    ) -> bool {
        refused.is_some_and(|refused| {
            let was_tried = len >= refused.len && self.space.longest() <= refused.longest;
            !refused.level.has_fallen(self.level(segments), share) && (was_tried || !self.has_hole(len))
        })
    }

    /// The same, but only for as many bytes as those or more: fewer may be made free together.
    fn is_longer_refused(
        &self,
        refused: Option<Refused>,
        segments: &Segments<K, M>,
        len: u64,
        share: u64,
    ) -> bool {
        self.is_still_refused(refused.filter(|refused| len >= refused.len), segments, len, share)
    }

    /// Whether it is known that no segment of this many bytes can be replaced. Segments are cut to
    /// the extents there are, so that the refusal of a longer one is its own, unless one is free
    /// that it fits.
    pub(crate) fn is_known_full(&self, segments: &Segments<K, M>, len: u64) -> bool {
        self.is_still_refused(self.fullness.no_segment, segments, len, 0)
    }

    /// Notes that one could not.
    pub(crate) fn note_full(&mut self, segments: &Segments<K, M>, len: u64) {
        self.fullness.no_segment = Some(self.refused(segments, len));
    }

    /// Whether it is known that a value of this many bytes finds no room.
    pub(crate) fn is_known_too_long(&self, segments: &Segments<K, M>, len: u64) -> bool {
        self.is_longer_refused(self.fullness.no_value, segments, len, 0)
    }

    /// Notes that one found none.
    pub(crate) fn note_too_long(&mut self, segments: &Segments<K, M>, len: u64) {
        self.fullness.no_value = Some(self.refused(segments, len));
    }

    /// Whether it is known that an outdated segment cannot be replaced.
    pub(crate) fn is_known_unconverted(&self, segments: &Segments<K, M>) -> bool {
        let refused = self.fullness.no_conversion;
        let len = refused.map_or(0, |refused| refused.len);
        self.is_still_refused(refused, segments, len, WORTH_TRYING)
    }

    /// Notes that one of this many bytes could not.
    pub(crate) fn note_unconverted(&mut self, segments: &Segments<K, M>, len: u64) {
        self.fullness.no_conversion = Some(self.refused(segments, len));
    }

    /// Whether it is known that what can make room does not help an extent of this many bytes.
    pub(crate) fn is_known_not_to_help(&self, segments: &Segments<K, M>, len: u64) -> bool {
        self.is_longer_refused(self.fullness.no_help, segments, len, WORTH_TRYING)
    }

    /// Notes whether it did.
    pub(crate) fn note_help(&mut self, segments: &Segments<K, M>, len: u64, made: bool) {
        self.fullness.no_help = (!made).then(|| self.refused(segments, len));
    }

    /// Whether an extent of this many bytes is there for records.
    pub(crate) fn has_hole(&self, len: u64) -> bool {
        self.space.longest() >= len && self.space.free_bytes() >= self.needed_for(len)
    }

    /// Free bytes that there must be for records to have an extent of this many.
    pub(crate) fn needed_for(&self, len: u64) -> u64 {
        len.saturating_add(self.kept_for_records())
    }
}
