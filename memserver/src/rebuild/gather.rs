//! The records that a rebuild gathers: its segment's own, and those of neighbours that are small or
//! have shrunk. For the rebuilder of a table, and for plans.

use super::options::RebuildOptions;

/// What decides whether a segment is rebuilt together with its neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Live keys.
    pub keys: usize,
    /// Slots.
    pub cap: u16,
    /// Writes of the memory node since the last one to this segment, or since it was built.
    pub idle: u32,
}

/// Segments of fewer keys are merged into a neighbour that is rebuilt, and no fewer are cut off.
pub(crate) const SMALL: usize = 64;
/// Share of the longest segment's bytes that a small one's are below, unless it has the fewest
/// slots there are. Of long slots whole segments have few: were these small, every rebuild would
/// copy three. Slots of 64 KiB are so few to a segment that rebuilds of one alone copy twice as
/// many, in sweeps that bring together what they part.
const SMALL_SHARE: usize = 4;
/// A run that did not write to its reserve for this many writes has ended.
pub(crate) const RUN_ENDED: u32 = 1 << 16;

impl Facts {
    /// Whether fewer than a quarter of the slots hold keys, and not because a run is just about to
    /// fill them: deletes emptied the segment, or its run ended. Such a segment is worth a rebuild
    /// when there is nothing else to do.
    pub fn has_shrunk(&self) -> bool {
        self.keys * 4 < usize::from(self.cap) && self.idle > RUN_ENDED
    }

    /// Whether there are few keys in few slots, of few bytes: the rest of a cut, not a reserve.
    fn is_small(&self, options: &RebuildOptions) -> bool {
        let cap = usize::from(self.cap);
        let is_short = self.cap <= options.least_slots
            || cap.saturating_mul(options.slot_bytes) < options.max_segment_bytes / SMALL_SHARE;
        self.keys < SMALL && cap < 2 * SMALL && is_short
    }
}

/// Which neighbours' records a rebuild gathers besides the segment's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gather {
    /// Those of the segment before.
    pub left: bool,
    /// Those of the segment after.
    pub right: bool,
}

/// Which neighbours to merge into a segment that is rebuilt: small ones, and ones that shrank.
pub fn neighbours(
    centre: Facts,
    left: Option<Facts>,
    right: Option<Facts>,
    options: &RebuildOptions,
) -> Gather {
    // All three fit one segment and a half, so that a merge adds no work without bound.
    let merges = |side: Option<Facts>| {
        side.is_some_and(|side| {
            (side.is_small(options) || side.has_shrunk()) && centre.keys + side.keys < 1 << 14
        })
    };
    Gather { left: merges(left), right: merges(right) }
}

/// The records of a rebuild.
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    /// First coordinate of the range to cover.
    pub first_x: u64,
    /// Last coordinate of the range to cover, itself included.
    pub last_x: u64,
    /// Coordinates within the range, ascending, that of an incoming record included. Fewer than a
    /// window has slots are equal.
    pub xs: &'a [u64],
    /// For each how many writes ago the record was last written, counted over the memory node; 0
    /// for an incoming record, `u32::MAX` where unknown or loaded.
    pub ages: &'a [u32],
}
