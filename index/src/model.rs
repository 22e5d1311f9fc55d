//! The model of one segment: a line, an origin and the bounds that make a window of a prediction.

use crate::{Line, Window};

/// Maps a coordinate to a slot of one segment, and to the window of slots in which its key may
/// live.
///
/// The coordinate is taken relative to `origin` in integers before any other arithmetic, so that
/// segments far from zero lose no precision. Predictions never decrease as the coordinate grows,
/// and are the same on every CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentModel {
    /// Coordinate at which the line starts: that of the first key the segment was built from.
    pub origin: u64,
    /// Slot as a function of the distance from `origin`.
    pub line: Line,
    /// Slots in the segment; predictions lie in `0..cap`.
    pub cap: u16,
    /// Half the width of a window in slots: the largest distance between a key's slot and its
    /// prediction.
    pub epsilon: u16,
}

impl SegmentModel {
    /// The predicted slot, clamped to `0..cap` (0 if `cap` is 0, which no placed segment has). A
    /// few nanoseconds.
    #[inline]
    pub fn predict(&self, x: u64) -> u32 {
        let last = i64::from(self.cap) - 1;
        // The clamped value lies in 0..65535, so the cast keeps it.
        self.line.value_below(x.saturating_sub(self.origin), last) as u32
    }

    /// The slots from `predict(x) - epsilon` to `predict(x) + epsilon`, cut at both ends of the
    /// segment.
    #[inline]
    pub fn window(&self, x: u64) -> Window {
        self.window_around(self.predict(x))
    }

    /// The window of a key whose predicted slot is known.
    #[inline]
    pub fn window_around(&self, predicted: u32) -> Window {
        let epsilon = u32::from(self.epsilon);
        let last = u32::from(self.cap.saturating_sub(1));
        Window { first: predicted.saturating_sub(epsilon), last: (predicted + epsilon).min(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(cap: u16, epsilon: u16) -> SegmentModel {
        // One slot per unit.
        SegmentModel { origin: 1_000, line: Line::from_bits(1), cap, epsilon }
    }

    #[test]
    fn predictions_stay_inside_the_segment() {
        let model = model(10, 2);
        assert_eq!([0, 1_000, 1_004, 1_009, 1_010, u64::MAX].map(|x| model.predict(x)), [0, 0, 4, 9, 9, 9]);
    }

    #[test]
    fn windows_are_cut_at_both_ends() {
        let model = model(10, 2);
        assert_eq!(model.window(0), Window { first: 0, last: 2 });
        assert_eq!(model.window(1_005), Window { first: 3, last: 7 });
        assert_eq!(model.window(u64::MAX), Window { first: 7, last: 9 });
    }

    #[test]
    fn a_model_without_slots_predicts_the_first() {
        assert_eq!(model(0, u16::MAX).window(u64::MAX), Window { first: 0, last: 0 });
    }
}
