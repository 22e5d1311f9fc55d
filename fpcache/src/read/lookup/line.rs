//! The cache line in which a predicted slot's fingerprint lies, looked at before the window.
//!
//! A window of 16-bit fingerprints and ε 32 has three lines. Nineteen of twenty even keys
//! show in the predicted slot's, so that the others need not come: from memory as large as tens of
//! millions of records a lookup then waits for one line less. What the slot says is verified as
//! ever, so it does not matter that other slots of the window were not asked, and a line that does
//! not name one slot says nothing: the window is searched then.

use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::layout::{SEGMENT_HEADER_BYTES, SegmentGeometry};
use crate::matching::LINE_BYTES;
use crate::models::Segment;
use crate::read::slot_window::SlotWindow;

/// Whether lines are looked at first, by what came of that lately: where keys are uneven, or absent,
/// it would be in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::read) struct LineFirst {
    debt: u8,
}

impl LineFirst {
    /// What a key adds to the debt that was not found by its line.
    const MISSED: usize = 16;
    /// What one takes off that was: the debt grows where more than a ninth of the keys are not.
    const FOUND: usize = 2;
    /// The debt from which on windows are searched instead; each takes one off, so that about every
    /// sixteenth key tries its line again.
    const BAR: u8 = 64;

    #[inline(always)]
    pub(super) fn is_worth_it(self) -> bool {
        self.debt < Self::BAR
    }

    /// Notes how many keys were found by their lines, and how many were not.
    #[inline(always)]
    pub(super) fn note(&mut self, found: usize, missed: usize) {
        let debt = usize::from(self.debt) + Self::MISSED * missed;
        self.debt = debt.saturating_sub(Self::FOUND * found).min(usize::from(u8::MAX)) as u8;
    }

    /// Notes how many keys were looked up by their windows.
    #[inline(always)]
    pub(super) fn pass(&mut self, keys: usize) {
        self.debt = usize::from(self.debt).saturating_sub(keys) as u8;
    }
}

/// The line of the fingerprint of a predicted slot, in a table whose fingerprints have 16 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictedLine {
    /// Where the segment begins.
    segment: u64,
    pub(super) predicted: u32,
    cap: u16,
}

impl PredictedLine {
    /// Of a key that is left to the engine.
    pub(super) const RARE: Self = Self { segment: 0, predicted: 0, cap: 0 };

    #[inline(always)]
    pub(super) fn of(target: &SlotWindow) -> Self {
        Self { segment: target.segment, predicted: target.predicted, cap: target.cap }
    }

    /// The line for a key of this segment, which has this coordinate there. The window is not computed.
    #[inline(always)]
    pub(super) fn in_segment<K: KeySpace>(segment: &Segment<K>, coordinate: u64) -> Self {
        let model = segment.model();
        let predicted = model.predict(coordinate);
        Self { segment: segment.address().offset(), predicted, cap: model.cap }
    }

    /// The address of a slot's fingerprint.
    #[inline(always)]
    fn fingerprint(self, slot: u32) -> u64 {
        self.segment + (SEGMENT_HEADER_BYTES + FingerprintWidth::Bits16.bytes_of(slot as usize)) as u64
    }

    /// The line's address.
    #[inline(always)]
    pub(super) fn address(self) -> u64 {
        self.fingerprint(self.predicted) & !(LINE_BYTES as u64 - 1)
    }

    /// The slot whose fingerprint is this one of the line's, unless it is not one of the segment's:
    /// the first line has the header, and the last one slots.
    #[inline(always)]
    pub(super) fn slot(self, at: u32) -> Option<u32> {
        let fingerprint = self.address() + FingerprintWidth::Bits16.bytes_of(at as usize) as u64;
        // A great number of what lies before the first.
        let slot = fingerprint.wrapping_sub(self.fingerprint(0)) / FingerprintWidth::Bits16.bytes() as u64;
        (slot < u64::from(self.cap)).then_some(slot as u32)
    }

    /// The address of a slot.
    #[inline(always)]
    pub(super) fn slot_address(self, geometry: &SegmentGeometry, slot: u32) -> u64 {
        self.segment + geometry.slot_offset(self.cap, slot) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `keys` tries by line there are, if this many of each sixteen are not found.
    fn tries(missing: usize) -> usize {
        let (mut line_first, mut tries) = (LineFirst::default(), 0);
        for key in 0..16_000 {
            if line_first.is_worth_it() {
                tries += 1;
                let missed = usize::from(key * 7 % 16 < missing);
                line_first.note(1 - missed, missed);
            } else {
                line_first.pass(1);
            }
        }
        tries
    }

    #[test]
    fn lines_are_left_alone_where_more_than_a_ninth_of_the_keys_do_not_show_there() {
        assert_eq!(tries(0), 16_000);
        assert_eq!(tries(1), 16_000);
        assert!(tries(6) < 5_000, "{}", tries(6));
        assert!((900..1_100).contains(&tries(16)), "{}", tries(16));
    }

    #[test]
    fn only_slots_of_the_segment_are_named() {
        let line = |predicted| PredictedLine { segment: 8 * 1_001, predicted, cap: 100 };
        for predicted in 0..100 {
            let line = line(predicted);
            let slots: Vec<_> = (0..32).map(|at| line.slot(at)).collect();
            assert!(slots.contains(&Some(predicted)));
            for (at, slot) in (0..).zip(slots) {
                let fingerprint = line.address() + 2 * at;
                let expected = fingerprint.checked_sub(line.fingerprint(0)).map(|bytes| bytes / 2);
                assert_eq!(slot.map(u64::from), expected.filter(|slot| *slot < 100));
            }
        }
    }
}
