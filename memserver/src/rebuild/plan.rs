//! Planning of new segments for the records that a rebuild gathered. Pure.
//!
//! Keys are cut into pieces with a smaller ε than the table's, and the segments get the full one,
//! so that every window spans more slots than its keys need. Within the windows keys are spread
//! evenly, so that the free slots are where the keys are. Ordered inserts get a reserve of slots
//! ahead of them.

use std::ops::Range;

use fpcache_index::{Line, Piece, SegmentModel, SegmentOptions, Segmenter};

pub use super::gather::{Facts, Gather, Gathered, neighbours};
pub use super::options::RebuildOptions;
use super::options::{KEYS_AHEAD, Limits};
use super::reserve::{RunPart, divide};
use super::runs::Youngest;

/// A segment to build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// First coordinate of its range.
    pub first_x: u64,
    /// Last coordinate of its range, itself included.
    pub last_x: u64,
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
/// written at random within a small part are cut into short segments for the same reason. Options
/// out of range are taken to the nearest in range.
///
/// 3,686 keys, 4,096 slots at fill 0.9, take 181 µs if uniform and 118 µs if as uneven as fb; 153
/// keys 6 and 5 µs; planning a reserve for a third of them, half as long again or twice. Minima on
/// a busy machine; `benches/plan.rs`.
pub fn plan(gathered: &Gathered<'_>, options: &RebuildOptions) -> Vec<Planned> {
    let limits = Limits::new(options);
    let mut planner = Planner { gathered, limits, planned: Vec::with_capacity(2), low: gathered.first_x };
    let youngest = (gathered.ages.len() == gathered.xs.len()).then(|| Youngest::of(gathered.ages));
    match youngest.as_ref().and_then(|y| y.run(gathered.xs, gathered.ages)) {
        Some(run) => {
            for part in divide(gathered, &run, &limits) {
                planner.add(&part);
            }
        }
        None => {
            let hot = youngest.is_some_and(|youngest| youngest.is_hot_spot());
            let room = if hot { limits.of_keys(KEYS_AHEAD, limits.fill) } else { limits.whole(limits.fill) };
            planner.add(&RunPart {
                keys: 0..gathered.xs.len(),
                last_x: gathered.last_x,
                room,
                reserve: Vec::new(),
            });
        }
    }
    planner.planned
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
    fn add(&mut self, part: &RunPart) {
        let xs = &self.gathered.xs[part.keys.clone()];
        if xs.is_empty() && part.reserve.is_empty() {
            self.push(part.last_x, part.keys.clone(), empty(self.low, &self.limits), (Vec::new(), false));
        } else if part.reserve.is_empty() {
            self.place(xs, part);
        } else {
            let mut coordinates: Vec<u64> = xs.iter().chain(&part.reserve).copied().collect();
            coordinates.sort_unstable();
            self.place(&coordinates, part);
        }
    }

    /// Cuts and places `coordinates`, the part's keys and what its reserve is kept for.
    fn place(&mut self, coordinates: &[u64], part: &RunPart) {
        let options = self.limits.options(part.room, u32::from(self.limits.epsilon));
        let (mut first, mut key) = (0, part.keys.start);
        for piece in cut(coordinates, &self.limits.options(part.room, self.limits.cut)) {
            let fill = options.fill.min(piece.keys as f64 / f64::from(self.limits.least_slots));
            let placed =
                piece.place(&coordinates[first..first + piece.keys], &SegmentOptions { fill, ..options });
            for segment in placed {
                let end = first + segment.keys;
                let start = key;
                let mut slots = Vec::with_capacity(segment.keys);
                for (x, slot) in coordinates[first..end].iter().zip(&segment.slots) {
                    // The others only stand for slots to be kept free.
                    if key < part.keys.end && self.gathered.xs[key] == *x {
                        slots.push(*slot);
                        key += 1;
                    }
                }
                // Coordinates ascend, so one that has another before it is not 0.
                let last_x = coordinates.get(end).map_or(part.last_x, |next| next.saturating_sub(1));
                let has_reserve = key - start < segment.keys;
                self.push(last_x, start..key, segment.model, (slots, has_reserve));
                first = end;
            }
        }
    }

    fn push(
        &mut self,
        last_x: u64,
        keys: Range<usize>,
        model: SegmentModel,
        (slots, has_reserve): (Vec<u16>, bool),
    ) {
        self.planned.push(Planned { first_x: self.low, last_x, keys, model, slots, has_reserve });
        // After the last coordinate of all nothing is left to cover.
        self.low = last_x.saturating_add(1);
    }
}

/// A segment without keys, whose windows all begin with its first slot.
fn empty(first_x: u64, limits: &Limits) -> SegmentModel {
    SegmentModel {
        origin: first_x,
        line: Line::from_bits(0),
        cap: limits.least_slots,
        epsilon: limits.epsilon,
    }
}

/// Distances below 2 to this are fitted in half the time.
const NARROW_BITS: u32 = 32;

/// Cuts ascending coordinates into pieces that serve them but for a rank or so: where they lie far
/// apart their lowest bits are dropped first, unless that makes two coordinates one. What is cut
/// with less than the stored ε has a rank to spare, and placing replays the coordinates themselves.
fn cut(coordinates: &[u64], options: &SegmentOptions) -> Vec<Piece> {
    let (Some(&first), Some(&last)) = (coordinates.first(), coordinates.last()) else { return Vec::new() };
    let shift = (u64::BITS - (last - first).leading_zeros()).saturating_sub(NARROW_BITS);
    if shift == 0 || options.epsilon >= options.least_epsilon {
        return cut_exactly(coordinates, options);
    }
    let narrow: Vec<u64> = coordinates.iter().map(|x| (x - first) >> shift).collect();
    if !narrow.is_sorted_by(|a, b| a < b) {
        return cut_exactly(coordinates, options);
    }
    let mut pieces = cut_exactly(&narrow, options);
    let mut at = 0;
    for piece in &mut pieces {
        *piece = piece.stretched(coordinates[at], shift);
        at += piece.keys;
    }
    pieces
}

/// Cuts ascending coordinates into pieces. A last piece less than half as long as the one before
/// shares that one's keys evenly, if one line each still serves: it would be small, and the other's
/// windows tight at its end.
fn cut_exactly(coordinates: &[u64], options: &SegmentOptions) -> Vec<Piece> {
    let mut segmenter = Segmenter::new(*options).expect("limits are in range");
    let mut pieces: Vec<Piece> = Vec::with_capacity(2);
    let mut cut = 0;
    for (at, x) in coordinates.iter().enumerate() {
        let Some(piece) = segmenter.push_or_equal(*x).expect("coordinates ascend") else { continue };
        pieces.push(piece);
        // Should the rest be one short piece, it is not fitted twice.
        let rest = coordinates.len() - at;
        if rest < piece.keys / 2
            && let Some([low, high]) = halves(piece, &coordinates[cut..], options)
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

/// Two pieces of equal length for `coordinates`, with the first of which `piece` begins; `None` if
/// the second half is none.
fn halves(piece: Piece, coordinates: &[u64], options: &SegmentOptions) -> Option<[Piece; 2]> {
    let (low, high) = coordinates.split_at(coordinates.len() / 2);
    let mut segmenter = Segmenter::new(*options).expect("limits are in range");
    for x in high {
        if segmenter.push_or_equal(*x).expect("coordinates ascend").is_some() {
            return None;
        }
    }
    Some([piece.shortened(low.len()), segmenter.finish()?])
}
