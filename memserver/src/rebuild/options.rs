//! Options of how segments are rebuilt, and the limits that follow from them. For plans and the
//! reserves in them.

use fpcache_index::SegmentOptions;

/// How segments are rebuilt.
///
/// The defaults are for ε 32. Slots copied per inserted key, while a table of 400,000 keys loaded
/// at fill 0.85 doubles, and what it has then; `tests/node/growth_copies.rs` prints them:
///
/// | keys | copies | rebuilds per 1,000 | keys of a segment | slots per key |
/// |---|---|---|---|---|
/// | uniform, at random | 4.4 | 3.8 | 820 | 1.23 |
/// | fb, at random | 4.7 | 30.4 | 98 | 1.27 |
/// | uniform, appended or descending | 1.0 | 0.9 | 1,100 | 1.18 |
/// | fb, appended or descending | 1.3 | 12.8 | 117 | 1.18 |
/// | uniform, in order between those loaded | 3.9 | 16.3 | 185 | 1.29 |
/// | fb, in order between those loaded | 3.0 | 19.9 | 86 | 1.26 |
/// | uniform, at random from the next 100 | 5.5 | 20.0 | 199 | 1.27 |
///
/// Freshly loaded, windows have 21 slots for uniform keys, 3,053 to a segment, and 54 for fb, 191
/// to a segment; later, 40 to 64. Runs between two loaded uniform keys cost 1.0 to 1.1 copies, one
/// or sixteen in turn, with updates among them or not; two uniform inserts to one of a run cost
/// 3.7.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RebuildOptions {
    /// The table's ε, in slots: the ε of every rebuilt segment. Loaded segments may keep their true
    /// one, often far narrower: their first rebuild comes soon and widens them (4.4 copies per key
    /// either way). A lower ε here costs copies: with 100,000 uniform keys 4.5 at 32, 5.2 at 24,
    /// 6.6 at 20 and 11 at 16; fb 4.5, 5.9, 10 and 23.
    pub epsilon: u32,
    /// Share of ε with which keys are cut into pieces. What is left is room in each window for keys
    /// that crowd later: at 1 uniform keys cost 6.3 copies and fb 10.3; at 0.75, 4.8 and 4.9; at
    /// 0.55, 4.2 and 4.5, but a fifth more segments.
    pub fit: f64,
    /// Most keys of one coordinate in a segment, as a multiple of ε, of the 2ε + 1 that a window
    /// holds: at [`Self::fit`] lines have room for other differences, and windows for keys to come.
    pub equal: f64,
    /// Share of a rebuilt segment's slots that hold keys. At 0.65 uniform keys cost 4.2 copies and
    /// 1.38 slots, at 0.75 they cost 5.9 and 1.19.
    pub fill: f64,
    /// The same for keys that a run of ordered inserts left behind, and for the room ahead of it.
    pub settled_fill: f64,
    /// Most slots of a segment.
    pub max_slots: u16,
    /// Most bytes of a segment's slots, where that is less.
    pub max_segment_bytes: usize,
    /// Bytes of a slot and its fingerprint.
    pub slot_bytes: usize,
    /// Least slots of a segment, where ε reaches that far: a few keys alone do not fill theirs at
    /// once.
    pub least_slots: u16,
}

impl RebuildOptions {
    /// The same for records that are brought together because deletes left their segments half
    /// empty: fuller, because there are no inserts there.
    #[must_use]
    pub fn compact(self) -> Self {
        Self { fill: self.compact_fill(), ..self }
    }

    /// Share of the slots that hold keys when segments were brought together.
    pub fn compact_fill(&self) -> f64 {
        const OF_SETTLED: f64 = 0.9;
        self.fill.max(self.settled_fill * OF_SETTLED)
    }

    /// ε of the cuts.
    pub fn cut_epsilon(&self) -> u32 {
        Limits::new(self).cut
    }

    /// The same for fewer segments, whose windows are fuller: first as a load makes them, then with
    /// as many equal keys as windows hold. `None` if there are no fewer.
    #[must_use]
    pub fn fewer_segments(self) -> Option<Self> {
        let equal = [1.0, Self::MOST_EQUAL].into_iter().find(|equal| self.equal < *equal)?;
        Some(Self { fit: self.fit.max(1.0), equal, ..self })
    }

    /// A window then has a slot beside those of equal keys.
    const MOST_EQUAL: f64 = 2.0;

    /// Most keys of one coordinate in a segment.
    pub fn most_equal(&self) -> u32 {
        let epsilon = self.epsilon.min(u32::from(u16::MAX));
        // Casts saturate and take NaN to 0.
        (f64::from(epsilon) * self.equal.min(Self::MOST_EQUAL)) as u32
    }
}

impl Default for RebuildOptions {
    /// ε 32 cut at 0.625 of it, fill 0.70, 0.85 where settled, 16 to 2,048 slots of 25 bytes, at
    /// most 1 MiB.
    fn default() -> Self {
        Self {
            epsilon: 32,
            fit: 0.625,
            equal: 0.625,
            fill: 0.70,
            settled_fill: 0.85,
            max_slots: 2048,
            max_segment_bytes: 1 << 20,
            slot_bytes: 25,
            least_slots: 16,
        }
    }
}

/// Keys of a segment in the way of a run of ordered inserts, which are copied when it gets there, or
/// about a hot spot.
pub(super) const KEYS_AHEAD: usize = 96;

/// How full and how long segments may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillLimits {
    fill: f64,
    max_slots: u16,
}

impl FillLimits {
    /// Most keys of a segment: at least 1.
    pub(super) fn max_keys(self) -> usize {
        ((f64::from(self.max_slots) * self.fill) as usize).max(1)
    }
}

/// The options, every one in range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) epsilon: u16,
    /// ε of the cuts, at most the one above.
    pub(super) cut: u32,
    pub(super) fill: f64,
    pub(super) settled_fill: f64,
    max_slots: u16,
    pub(super) least_slots: u16,
}

impl Limits {
    pub(super) fn new(options: &RebuildOptions) -> Self {
        let epsilon = options.epsilon.min(u32::from(u16::MAX)) as u16;
        // Casts saturate and take NaN to 0.
        let cut = ((f64::from(epsilon) * options.fit) as u32).min(u32::from(epsilon));
        let share = |share: f64| if share >= 0.2 { share.min(1.0) } else { 0.2 };
        let in_bytes = options.max_segment_bytes / options.slot_bytes.max(1);
        let max_slots = in_bytes.min(usize::from(options.max_slots)).max(usize::from(Self::LEAST_MAX)) as u16;
        let least_slots = options.least_slots.min(epsilon.saturating_add(1)).clamp(1, max_slots);
        let (fill, settled_fill) = (share(options.fill), share(options.settled_fill));
        Self { epsilon, cut, fill, settled_fill, max_slots, least_slots }
    }

    /// Segments of this many slots hold a key at every fill above.
    const LEAST_MAX: u16 = 8;

    /// Segments as long as there may be.
    pub(super) fn whole(&self, fill: f64) -> FillLimits {
        FillLimits { fill, max_slots: self.max_slots }
    }

    /// Segments of at most about this many keys.
    pub(super) fn of_keys(&self, keys: usize, fill: f64) -> FillLimits {
        let slots = (keys as f64 / fill) as u16;
        FillLimits { fill, max_slots: slots.clamp(Self::LEAST_MAX, self.max_slots) }
    }

    pub(super) fn options(&self, room: FillLimits, epsilon: u32) -> SegmentOptions {
        SegmentOptions {
            epsilon,
            least_epsilon: u32::from(self.epsilon),
            fill: room.fill,
            max_slots: room.max_slots,
            spread: true,
        }
    }
}
