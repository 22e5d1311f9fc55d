//! Knowledge of how full a table is: what was found not to help, and when.

/// Share of the available memory that only compaction may use, and its maximum in bytes.
const KEPT_SHARE: u64 = 64;
const MOST_KEPT: u64 = 256 << 10;

/// What a sweep leaves alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sparing {
    /// Slots kept for runs of inserts, and segments that would free few.
    Runs,
    Nothing,
}

/// What was found not to help, and when.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    /// Bytes of segments and records when a sweep could do no more, and when one that spared
    /// nothing could not.
    pub(crate) swept: Option<(u64, u64)>,
    pub(crate) swept_all: Option<(u64, u64)>,
    /// Bytes that segments may always take too much, if not a share of the region.
    pub(super) slack: Option<u64>,
    /// When a segment could not be replaced.
    pub(super) no_segment: Option<Refused>,
    /// When a value found no room.
    pub(super) no_value: Option<Refused>,
    /// When a segment found none with new encoders.
    pub(super) no_conversion: Option<Refused>,
    /// When nothing more helped.
    pub(super) no_help: Option<Refused>,
}

/// An extent for which there was no room, and how full the table was: segments may need more than
/// one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) len: u64,
    pub(super) level: Level,
    /// Bytes of the longest extent that was free.
    pub(super) longest: u64,
}

/// How full a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Level {
    pub(super) keys: u64,
    /// Bytes that are free or will be.
    pub(super) free: u64,
}

impl Level {
    /// Whether records were deleted since, or bytes came free, by more than this share.
    pub(super) fn has_fallen(self, now: Self, share: u64) -> bool {
        let part = |of: u64| of.checked_div(share).unwrap_or(0);
        now.keys + part(self.keys) < self.keys || now.free > self.free + part(self.free)
    }
}

/// Bytes that only compaction may use, of a region that can have `capacity` bytes.
pub(crate) fn kept_for_compaction_of(capacity: u64) -> u64 {
    (capacity / KEPT_SHARE).min(MOST_KEPT)
}
