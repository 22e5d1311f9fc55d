//! The placement of keys: from a piece in rank space to a segment in slot space.
//!
//! # Why a fit in ranks has a placement in slots
//!
//! Let `n` keys have a line `v` with `|v(x_i) - i| <= ε`, `cap >= n` slots, and let the line in
//! slot space be `s = v * cap / n`, prediction `p_i = clamp(floor(s_i), 0, cap - 1)` and window
//! `[p_i - ε, p_i + ε]` cut to the segment. The windows' ends never decrease in key order, so by
//! Hall's theorem distinct slots exist if and only if for all `i <= j` the windows of keys `i..=j`
//! span enough slots:
//!
//! `min(p_j + ε, cap - 1) - max(p_i - ε, 0) >= j - i`.
//!
//! A minimum less a maximum is the least of four differences, so there are four conditions:
//!
//! 1. *inside*: `(j - p_j) - (i - p_i) <= 2ε`. In ranks, `(j - v_j) - (i - v_i) <= 2ε`; as `v` does
//!    not fall and `cap / n >= 1`, `s_j - s_i >= v_j - v_i >= (j - i) - 2ε`, an integer, and floors
//!    of two numbers that differ by at least an integer do so too.
//! 2. *low end*: `j - p_j <= ε`. `p_j = 0` where `v_j < 0`, and then `j <= ε`; else
//!    `s_j >= v_j >= j - ε`, an integer.
//! 3. *high end*: `p_i - i <= cap - n + ε`. For `i >= n - ε` it holds because `p_i < cap`; else
//!    `s_i <= (i + ε) cap / n = cap - (n - i - ε) cap / n <= cap - n + i + ε`.
//! 4. *both ends*: `cap >= n`.
//!
//! So every fit with error ε ranks has a placement with error ε slots, at every fill: segments in
//! slots are as long as in ranks. Where clamping changes a prediction, condition 1 follows from 2
//! and 3.
//!
//! # Why quantisation costs nothing
//!
//! Let the quantised line be `w = s + δ` with `0 <= δ < 1` and δ not decreasing: a slope rounded
//! *up* and any constant. Then `w_j - w_i >= s_j - s_i` keeps 1, `w >= s` keeps 2, and in 3
//! `floor(w_i)` exceeds an integer that `s_i` does not exceed by no more than 0. A mantissa of 32
//! bits makes δ less than 2^-14 slots over the at most 2^17 that a line rises, and 1/256 slot is
//! the intercept's step.
//!
//! Only the slope is taken from the fit, half-way between its extremes. The intercept is chosen by
//! replaying the keys, so that 2 and 3 are met with equal room; that a right one exists is what the
//! argument above says.

use crate::assign::{assign_slots, spread_slots};
use crate::line::Line;
use crate::plr::Slope;
use crate::segmenter::Segmenter;
use crate::{Piece, SegmentModel, SegmentOptions};

/// A segment ready to be built: its model and a slot for each of its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedSegment {
    /// The model; `model.epsilon` is the true error, the smallest with which its line has a
    /// placement, or [`SegmentOptions::least_epsilon`] where that is more.
    pub model: SegmentModel,
    /// Number of keys, from where the segment before ended.
    pub keys: usize,
    /// `slots[i]` is the slot of key `i`: distinct, within `model.window` of the key, and where
    /// possible the predicted one.
    pub slots: Vec<u16>,
}

impl Piece {
    /// Places the piece's keys `xs` into slots: a model, and a slot for each key.
    ///
    /// A segment of `n` keys has `ceil(n / fill)` slots. Its ε is the true one, the least
    /// half-width of windows for which the line has a placement, never above the option's and never
    /// below the option's least. As many keys as the windows allow get the very slot their
    /// prediction names, others one near it; see `assign`.
    ///
    /// Nearly always one segment. Where the quantised line leaves no placement the keys are halved
    /// and fitted again, and a single key has one always, so that this never fails. If `xs` are not
    /// the piece's keys the segments are valid for `xs` all the same, but may be more than needed.
    /// Four passes over the keys.
    pub fn place(&self, xs: &[u64], options: &SegmentOptions) -> Vec<PlacedSegment> {
        let mut placed = Vec::with_capacity(1);
        place_piece((self.flattest, self.steepest), xs, options, &mut placed);
        placed
    }
}

fn place_piece(
    slopes: (Slope, Slope),
    xs: &[u64],
    options: &SegmentOptions,
    placed: &mut Vec<PlacedSegment>,
) {
    if xs.is_empty() {
        return;
    }
    if (xs.len() == 1 || xs.len() <= options.max_keys())
        && let Some(segment) = place_segment(slopes, xs, options)
    {
        placed.push(segment);
        return;
    }
    let (low, high) = xs.split_at(xs.len() / 2);
    for mut half in [low, high] {
        let mut segmenter =
            Segmenter::with_limit(options.epsilon.min(u16::MAX.into()), options.max_keys().max(1) as u64);
        let mut pieces: Vec<Piece> = (0..half.len())
            .filter_map(|i| segmenter.add_or_equal(half[i], i > 0 && half[i] == half[i - 1]))
            .collect();
        pieces.extend(segmenter.finish());
        for piece in pieces {
            let (keys, rest) = half.split_at(piece.keys);
            place_piece((piece.flattest, piece.steepest), keys, options, placed);
            half = rest;
        }
    }
}

/// One segment for all of `xs`, or `None` if the line has no placement within the options' ε.
fn place_segment(slopes: (Slope, Slope), xs: &[u64], options: &SegmentOptions) -> Option<PlacedSegment> {
    let keys = u16::try_from(xs.len()).ok()?;
    let cap = slots_for(keys, options);
    let epsilon = options.epsilon.min(u32::from(u16::MAX));
    let origin = xs[0];
    let slope = if keys == 1 { Line::new(0, 0, 0) } else { middle_slope(slopes, cap, keys) };
    let intercept = choose_intercept(slope, xs, cap, epsilon)?;
    let line = slope.with_intercept(intercept);

    let mut model = SegmentModel { origin, line, cap, epsilon: 0 };
    // A prediction is below `cap`, hence fits.
    let predictions: Vec<u16> = xs.iter().map(|&x| model.predict(x) as u16).collect();
    model.epsilon = u16::try_from(true_error(&predictions, cap)).ok()?;
    if u32::from(model.epsilon) > epsilon {
        return None;
    }
    // No wider than the option's ε, which fits.
    model.epsilon = model.epsilon.max(options.least_epsilon.min(epsilon) as u16);
    let assign = if options.spread { spread_slots } else { assign_slots };
    let slots = assign(&predictions, &model)?;
    Some(PlacedSegment { model, keys: xs.len(), slots })
}

/// `ceil(keys / fill)`, within the options' cap, and a slot for each key whatever they say.
fn slots_for(keys: u16, options: &SegmentOptions) -> u16 {
    // The cast saturates and takes NaN to 0.
    let slots = (f64::from(keys) / options.fill).ceil() as u16;
    slots.min(options.max_slots).max(keys)
}

/// Places of the binary point in [`slots_per_unit`]: with distances of 64 bits a unit is 2^-28
/// slots at most.
const SLOPE_BITS: u32 = 92;

/// The slope `(flattest + steepest) / 2 * cap / keys`, rounded up, as a line through the origin.
fn middle_slope((flattest, steepest): (Slope, Slope), cap: u16, keys: u16) -> Line {
    // Each is below 2^126 in magnitude. Below 0 lies no slope that a piece needs; see `plr`.
    let twice = slots_per_unit(flattest, cap, keys) + slots_per_unit(steepest, cap, keys);
    let twice = u128::try_from(twice).unwrap_or(0);
    let mut dropped = (u128::BITS - twice.leading_zeros()).saturating_sub(u32::BITS);
    let mut mantissa = twice.div_ceil(1 << dropped);
    if mantissa > u128::from(u32::MAX) {
        mantissa = mantissa.div_ceil(2);
        dropped += 1;
    }
    match (SLOPE_BITS + 1).checked_sub(dropped) {
        // Just cut to 32 bits, and at most 93 fit a byte.
        Some(shift) => Line::new(mantissa as u32, shift as u8, 0),
        // More than 2^32 slots per unit: the steepest line there is. The replay decides whether it
        // serves.
        None => Line::new(u32::MAX, 0, 0),
    }
}

/// `ceil(slope * cap / keys * 2^SLOPE_BITS)`.
fn slots_per_unit(slope: Slope, cap: u16, keys: u16) -> i128 {
    // A rise is at most keys + 2ε < 2^18 in magnitude and the cap below 2^16: 34 + 92 bits.
    let rise = (i128::from(slope.rise) * i128::from(cap)) << SLOPE_BITS;
    let run = i128::from(slope.run) * i128::from(keys);
    let down = rise.div_euclid(run);
    down + i128::from(down * run != rise)
}

/// The intercept, in 1/256 slot, with equal room at both ends of the segment, among those that meet
/// conditions 2 and 3 with ε; `None` if none does.
fn choose_intercept(slope: Line, xs: &[u64], cap: u16, epsilon: u32) -> Option<i64> {
    const ONE: i64 = 1 << crate::line::FRACTION_BITS;
    let (keys, epsilon) = (xs.len() as i64, i64::from(epsilon));
    let spare = i64::from(cap) - keys;
    let (mut behind, mut ahead) = (i64::MIN, i64::MAX);
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    for (rank, &x) in (0..).zip(xs) {
        let height = i64::try_from(slope.scaled(x.saturating_sub(xs[0]))).unwrap_or(i64::MAX);
        let lag = (rank * ONE).saturating_sub(height);
        behind = behind.max(lag);
        ahead = ahead.min(lag);
        // Condition 2 holds by itself for the first ε keys, and 3 for the last.
        if rank > epsilon {
            least = least.max(lag - epsilon * ONE);
        }
        if rank < keys - 1 - epsilon {
            most = most.min(lag.saturating_add((spare + epsilon + 1) * ONE - 1));
        }
    }
    let middle = behind.saturating_add(ahead).saturating_add(spare * ONE) / 2;
    (least <= most).then(|| middle.clamp(least, most).clamp(Line::MIN_INTERCEPT, Line::MAX_INTERCEPT))
}

/// The least ε with which the predictions have a placement: conditions 1 to 3 for the clamped
/// predictions.
fn true_error(predictions: &[u16], cap: u16) -> i64 {
    let spare = i64::from(cap) - predictions.len() as i64;
    let (mut rise, mut behind, mut ahead) = (0, 0, i64::MAX);
    for (rank, &prediction) in (0i64..).zip(predictions) {
        let lag = rank - i64::from(prediction);
        ahead = ahead.min(lag);
        behind = behind.max(lag);
        rise = rise.max(lag - ahead);
    }
    let high_end = (-ahead).saturating_sub(spare);
    ((rise + 1) / 2).max(behind).max(high_end)
}
