//! Searches by the lines of predicted slots' fingerprints.

use fpcache_fabric::InPlace;

use super::{Attempt, Attempts, Slot};
use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::matching::{Kernels, LINE_BYTES, Shown};
use crate::read::ReadError;
use crate::read::lookup::line::PredictedLine;

/// Lines on either side of the predicted slot's that are fetched for its record: eight slots, among
/// which four of five even keys lie.
const NEAR_LINES: usize = 1;

impl<K: KeySpace, L: InPlace, M: Kernels, const WIDTH: usize> Attempts<'_, K, L, M, WIDTH> {
    /// Whether lines can be looked at first: fingerprints are 16 bits wide, in a table of words.
    pub(in crate::read::lookup) const HAS_LINES: bool = WIDTH == FingerprintWidth::Bits16.bytes();

    /// Whether windows have lines enough for a group of keys, whose lines come together, to look at
    /// one first: three.
    #[inline(always)]
    pub(super) fn has_long_windows(&self) -> bool {
        let epsilon = self.table.view().record().parameters.epsilon as usize;
        Self::HAS_LINES && FingerprintWidth::Bits16.bytes_of(2 * epsilon + 1) > 2 * LINE_BYTES
    }

    /// Has the line fetched.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_line(&self, line: PredictedLine) {
        self.look.prefetch_around(line.address(), 0);
    }

    /// Has the lines fetched that lie around the predicted slot.
    #[inline(always)]
    pub(in crate::read::lookup) fn prefetch_predicted_slot(&self, line: PredictedLine) {
        self.look.prefetch_around(line.slot_address(&self.geometry(), line.predicted), NEAR_LINES);
    }

    /// The slot of the only fingerprint in the line that is the key's.
    #[inline(always)]
    pub(in crate::read::lookup) fn slot_in_line(&mut self, key: &K::Key, line: PredictedLine) -> Option<u32> {
        let words = self.look.words(line.address(), LINE_BYTES).ok()?;
        let wanted = FingerprintWidth::Bits16.of_hash(K::hash(key));
        match self.kernels.line_hits_in(words, wanted, self.copy).shown() {
            Shown::One(at) => line.slot(at),
            _ => None,
        }
    }

    /// Finds the slots of keys that have been located, whose lines have been asked for, and asks
    /// for these: by their lines first, and by their windows where these say nothing. All are
    /// two-stage lookups.
    #[inline(always)]
    pub(super) fn search_lines(
        &mut self,
        keys: &[&K::Key],
        attempts: &mut [Attempt],
    ) -> Result<usize, ReadError> {
        let mut missed = 0;
        for (key, attempt) in keys.iter().zip(attempts.iter_mut()) {
            if attempt.slot == Slot::Rare {
                continue;
            }
            if let Some(slot) = self.slot_in_line(key, attempt.line) {
                (attempt.word_bytes, attempt.slot) = (LINE_BYTES as u32, Slot::At(slot));
                self.prefetch_slot(attempt, slot);
            } else {
                missed += 1;
                self.prefetch_window(attempt);
            }
        }
        if missed > 0 {
            self.search_rest(keys, attempts)?;
        }
        Ok(missed)
    }

    /// Finds those slots that lines did not name.
    #[inline(never)]
    fn search_rest(&mut self, keys: &[&K::Key], attempts: &mut [Attempt]) -> Result<(), ReadError> {
        for (key, attempt) in keys.iter().zip(attempts.iter_mut()) {
            if attempt.slot == Slot::Absent {
                attempt.slot = self.match_window((key, attempt))?;
                if let Slot::At(slot) = attempt.slot {
                    self.prefetch_slot(attempt, slot);
                }
            }
        }
        Ok(())
    }
}
