//! Planning of new segments for the records that a rebuild gathered. Pure.
//!
//! Keys are cut into pieces with a smaller ε than the table's, and the segments get the full one,
//! so that every window spans more slots than its keys need. Within the windows keys are spread
//! evenly, so that the free slots are where the keys are. Ordered inserts get a reserve of slots
//! ahead of them.

use std::ops::Range;

use fpcache_index::{Line, Piece, SegmentModel, SegmentOptions, Segmenter};

use super::reserve::{Part, divide};
use super::runs::Youngest;

/// How segments are rebuilt.
///
/// The defaults are for ε 32. Slots copied per inserted key, while a store of 400,000 keys loaded
/// at fill 0.85 doubles, and what it has then; `tests/growth_copies.rs` has the simulation:
///
/// | keys | copies | rebuilds per 1,000 | keys of a segment | window, slots | slots per key |
/// |---|---|---|---|---|---|
/// | uniform, at random | 4.4 | 3.0 | 930 | 64 | 1.23 |
/// | fb, at random | 4.5 | 28.5 | 99 | 58 | 1.26 |
/// | uniform, appended or descending | 1.0 | 0.6 | 1,500 | 43 | 1.18 |
/// | fb, appended or descending | 1.3 | 12.7 | 117 | 55 | 1.18 |
/// | uniform, in order between those loaded | 4.0 | 17.8 | 173 | 60 | 1.28 |
/// | fb, in order between those loaded | 2.9 | 19.0 | 83 | 56 | 1.27 |
/// | uniform, at random from the next 100 | 5.2 | 20.2 | 189 | 61 | 1.28 |
///
/// Freshly loaded, windows have 21 slots for uniform keys, 3,053 to a segment, and 54 for fb, 191
/// to a segment. Runs between two loaded keys cost 0.9 to 1.2 copies, one or sixteen in turn, with
/// updates among them or not; two uniform inserts to one of a run cost 2.8 to 3.9.
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
    /// How ordered inserts are met.
    pub runs: RunOptions,
}

impl RebuildOptions {
    /// The same for records that are brought together because deletes left their segments half
    /// empty: fuller, because nobody inserts there.
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
}

impl Default for RebuildOptions {
    /// ε 32 cut at 0.625 of it, fill 0.70, 0.85 where settled, 16 to 2,048 slots of 25 bytes, at
    /// most 1 MiB.
    fn default() -> Self {
        Self {
            epsilon: 32,
            fit: 0.625,
            fill: 0.70,
            settled_fill: 0.85,
            max_slots: 2048,
            max_segment_bytes: 1 << 20,
            slot_bytes: 25,
            least_slots: 16,
            runs: RunOptions::default(),
        }
    }
}

/// How ordered inserts are met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// Least records of a run. A window fills up with about 15 of them first; fewer than 8 are
    /// often chance.
    pub least: usize,
    /// Slots kept ahead of a run, as a multiple of the run's records.
    pub growth: usize,
    /// The same for a run that passes through older keys, at most as many as it left between those
    /// behind it.
    pub growth_among_keys: usize,
    /// Keys of a segment in the way of a run, which are copied when it gets there, or about a hot
    /// spot.
    pub keys_ahead: usize,
}

impl Default for RunOptions {
    /// From 8 records on, a reserve of twice the run, of up to 16 times among older keys, and 96
    /// keys ahead.
    fn default() -> Self {
        Self { least: 8, growth: 2, growth_among_keys: 16, keys_ahead: 96 }
    }
}

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
/// A run that did not write to its reserve for this many writes has ended.
pub(crate) const RUN_ENDED: u32 = 1 << 16;

impl Facts {
    /// Whether fewer than a quarter of the slots hold keys, and not because a run is just about to
    /// fill them: deletes emptied the segment, or its run ended. Such a segment is worth a rebuild
    /// when there is nothing else to do.
    pub fn has_shrunk(&self) -> bool {
        self.keys * 4 < usize::from(self.cap) && self.idle > RUN_ENDED
    }

    /// Whether there are few keys in few slots: the rest of a cut, not a reserve.
    pub(crate) fn is_small(&self) -> bool {
        self.keys < SMALL && usize::from(self.cap) < 2 * SMALL
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
pub fn neighbours(centre: Facts, left: Option<Facts>, right: Option<Facts>) -> Gather {
    // All three fit one segment and a half, so that a merge adds no work without bound.
    let merges = |side: Option<Facts>| {
        side.is_some_and(|side| (side.is_small() || side.has_shrunk()) && centre.keys + side.keys < 1 << 14)
    };
    Gather { left: merges(left), right: merges(right) }
}

/// The records of a rebuild.
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    /// First coordinate of the range to cover.
    pub lo: u64,
    /// Last coordinate of the range to cover, itself included.
    pub hi: u64,
    /// Coordinates within the range, ascending, that of an incoming record included. Fewer than a
    /// window has slots are equal.
    pub xs: &'a [u64],
    /// For each how many writes ago the record was last written, counted over the memory node; 0
    /// for an incoming record, `u32::MAX` where unknown or loaded.
    pub ages: &'a [u32],
}

/// A segment to build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// First coordinate of its range.
    pub lo: u64,
    /// Last coordinate of its range, itself included.
    pub hi: u64,
    /// Its keys, by their place in [`Gathered::xs`].
    pub keys: Range<usize>,
    /// Its model.
    pub model: SegmentModel,
    /// The slot of each of its keys: distinct, below the cap, within the key's window.
    pub slots: Vec<u16>,
    /// Whether some of its slots are kept free for a run of inserts: they lie where that will come.
    pub has_reserve: bool,
}

/// Plans segments for the gathered records.
///
/// They cover the range in order, without gap or overlap, and hold every key; there is at least
/// one. Together they have at most `20 * keys + 20` slots and [`RebuildOptions::least_slots`] for
/// each segment, 1.5 a key unless a run is met.
///
/// Records whose youngest are the trace of ordered inserts are divided at the run's head: old keys,
/// keys the run left after, and the head with a reserve of slots ahead of it become segments of
/// their own, so that what is settled is not copied again when the reserve is used up. Records
/// written at random within a small part are cut into segments of [`RunOptions::keys_ahead`] for
/// the same reason. Options out of range are taken to the nearest in range.
///
/// 3,686 keys, 4,096 slots at fill 0.9, take 181 µs if uniform and 118 µs if as uneven as fb; 153
/// keys 6 and 5 µs; planning a reserve for a third of them, half as long again or twice. Minima on
/// a busy machine; `benches/plan.rs`.
pub fn plan(gathered: &Gathered<'_>, options: &RebuildOptions) -> Vec<Planned> {
    let limits = Limits::new(options);
    let mut planner = Planner { gathered, limits, planned: Vec::with_capacity(2), low: gathered.lo };
    let youngest = (gathered.ages.len() == gathered.xs.len()).then(|| Youngest::of(gathered.ages));
    match youngest.as_ref().and_then(|y| y.run(gathered.xs, gathered.ages, options.runs.least)) {
        Some(run) => {
            for part in divide(gathered, &run, &limits, &options.runs) {
                planner.add(&part);
            }
        }
        None => {
            let hot = youngest.is_some_and(|youngest| youngest.is_hot_spot());
            let room = if hot {
                limits.of_keys(options.runs.keys_ahead, limits.fill)
            } else {
                limits.whole(limits.fill)
            };
            planner.add(&Part { keys: 0..gathered.xs.len(), hi: gathered.hi, room, reserve: Vec::new() });
        }
    }
    planner.planned
}

/// How full and how long segments may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    fill: f64,
    max_slots: u16,
}

impl Room {
    /// Most keys of a segment: at least 1.
    pub(super) fn max_keys(self) -> usize {
        ((f64::from(self.max_slots) * self.fill) as usize).max(1)
    }
}

/// The options, every one in range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    epsilon: u16,
    /// ε of the cuts, at most the one above.
    cut: u32,
    fill: f64,
    pub(super) settled_fill: f64,
    max_slots: u16,
    least_slots: u16,
}

impl Limits {
    fn new(options: &RebuildOptions) -> Self {
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
    pub(super) fn whole(&self, fill: f64) -> Room {
        Room { fill, max_slots: self.max_slots }
    }

    /// Segments of at most about this many keys.
    pub(super) fn of_keys(&self, keys: usize, fill: f64) -> Room {
        let slots = (keys as f64 / fill) as u16;
        Room { fill, max_slots: slots.clamp(Self::LEAST_MAX, self.max_slots) }
    }

    fn options(&self, room: Room, epsilon: u32) -> SegmentOptions {
        SegmentOptions {
            epsilon,
            least_epsilon: u32::from(self.epsilon),
            fill: room.fill,
            max_slots: room.max_slots,
            spread: true,
        }
    }
}

struct Planner<'a> {
    gathered: &'a Gathered<'a>,
    limits: Limits,
    planned: Vec<Planned>,
    /// First coordinate of what is still to be covered.
    low: u64,
}

impl Planner<'_> {
    /// Adds the segments of a part.
    fn add(&mut self, part: &Part) {
        let xs = &self.gathered.xs[part.keys.clone()];
        if xs.is_empty() && part.reserve.is_empty() {
            self.push(part.hi, part.keys.clone(), empty(self.low, &self.limits), (Vec::new(), false));
        } else if part.reserve.is_empty() {
            self.place(xs, part);
        } else {
            let mut marks: Vec<u64> = xs.iter().chain(&part.reserve).copied().collect();
            marks.sort_unstable();
            self.place(&marks, part);
        }
    }

    /// Cuts and places `marks`, the part's keys and what its reserve is kept for.
    fn place(&mut self, marks: &[u64], part: &Part) {
        let options = self.limits.options(part.room, u32::from(self.limits.epsilon));
        let (mut first, mut key) = (0, part.keys.start);
        for piece in cut(marks, &self.limits.options(part.room, self.limits.cut)) {
            let fill = options.fill.min(piece.keys as f64 / f64::from(self.limits.least_slots));
            let placed = piece.place(&marks[first..first + piece.keys], &SegmentOptions { fill, ..options });
            for segment in placed {
                let end = first + segment.keys;
                let start = key;
                let mut slots = Vec::with_capacity(segment.keys);
                for (mark, slot) in marks[first..end].iter().zip(&segment.slots) {
                    // The other marks only stand for slots to be kept free.
                    if key < part.keys.end && self.gathered.xs[key] == *mark {
                        slots.push(*slot);
                        key += 1;
                    }
                }
                // Marks ascend, so one that has another before it is not 0.
                let hi = marks.get(end).map_or(part.hi, |next| next.saturating_sub(1));
                let has_reserve = key - start < segment.keys;
                self.push(hi, start..key, segment.model, (slots, has_reserve));
                first = end;
            }
        }
    }

    fn push(
        &mut self,
        hi: u64,
        keys: Range<usize>,
        model: SegmentModel,
        (slots, has_reserve): (Vec<u16>, bool),
    ) {
        self.planned.push(Planned { lo: self.low, hi, keys, model, slots, has_reserve });
        // After the last coordinate of all nothing is left to cover.
        self.low = hi.saturating_add(1);
    }
}

/// A segment without keys, whose windows all begin with its first slot.
fn empty(lo: u64, limits: &Limits) -> SegmentModel {
    SegmentModel { origin: lo, line: Line::from_bits(0), cap: limits.least_slots, epsilon: limits.epsilon }
}

/// Distances below 2 to this are fitted in half the time.
const NARROW_BITS: u32 = 32;

/// Cuts ascending marks into pieces that serve them but for a rank or so: where they lie far apart
/// their lowest bits are dropped first, unless that makes two marks one. What is cut with less than
/// the stored ε has a rank to spare, and placing replays the marks themselves.
fn cut(marks: &[u64], options: &SegmentOptions) -> Vec<Piece> {
    let (Some(&first), Some(&last)) = (marks.first(), marks.last()) else { return Vec::new() };
    let shift = (u64::BITS - (last - first).leading_zeros()).saturating_sub(NARROW_BITS);
    if shift == 0 || options.epsilon >= options.least_epsilon {
        return cut_exactly(marks, options);
    }
    let narrow: Vec<u64> = marks.iter().map(|mark| (mark - first) >> shift).collect();
    if !narrow.is_sorted_by(|a, b| a < b) {
        return cut_exactly(marks, options);
    }
    let mut pieces = cut_exactly(&narrow, options);
    let mut at = 0;
    for piece in &mut pieces {
        *piece = piece.stretched(marks[at], shift);
        at += piece.keys;
    }
    pieces
}

/// Cuts ascending marks into pieces. A last piece less than half as long as the one before shares
/// that one's keys evenly, if one line each still serves: it would be small, and the other's
/// windows tight at its end.
fn cut_exactly(marks: &[u64], options: &SegmentOptions) -> Vec<Piece> {
    let mut segmenter = Segmenter::new(*options).expect("limits are in range");
    let mut pieces: Vec<Piece> = Vec::with_capacity(2);
    let mut cut = 0;
    for (at, mark) in marks.iter().enumerate() {
        let Some(piece) = segmenter.push_or_equal(*mark).expect("marks ascend") else { continue };
        pieces.push(piece);
        // Should the rest be one short piece, it is not fitted twice.
        let rest = marks.len() - at;
        if rest < piece.keys / 2
            && let Some([low, high]) = halves(piece, &marks[cut..], options)
        {
            pieces.pop();
            pieces.extend([low, high]);
            return pieces;
        }
        cut = at;
    }
    pieces.extend(segmenter.finish());
    pieces
}

/// Two pieces of equal length for `marks`, with the first of which `piece` begins; `None` if the
/// second half is none.
fn halves(piece: Piece, marks: &[u64], options: &SegmentOptions) -> Option<[Piece; 2]> {
    let (low, high) = marks.split_at(marks.len() / 2);
    let mut segmenter = Segmenter::new(*options).expect("limits are in range");
    for mark in high {
        if segmenter.push_or_equal(*mark).expect("marks ascend").is_some() {
            return None;
        }
    }
    Some([piece.shortened(low.len()), segmenter.finish()?])
}
