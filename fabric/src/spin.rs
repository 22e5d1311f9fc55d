//! The decision how long to spin before sleeping.

use std::time::Duration;

/// The length of a spin while spinning does not pay off: a little more than a round trip between
/// two processors.
const BRIEF: Duration = Duration::from_micros(2);
/// How many long spins in a row must have been in vain before they are given up.
const PATIENCE: u32 = 8;
/// After this many waits a long spin is tried again.
const PROBE: u32 = 32;

/// Decides between spinning long and briefly by whether it has paid off lately.
///
/// Where both sides have a processor of their own, a spinning side gets the other's answer within a
/// microsecond. Where they share one, or the answer takes long anyway, a spin only keeps the other
/// from running; it is then given up until a probe shows that things have changed. See Karlin, Li,
/// Manasse and Owicki, "Empirical Studies of Competitive Spinning for a Shared-Memory
/// Multiprocessor" (SOSP 1991), section 3.
#[derive(Debug)]
pub struct Spin {
    longest: Duration,
    /// Waits in a row that ended in sleep.
    failures: u32,
}

impl Spin {
    /// Spins for no longer than this at a time.
    #[must_use]
    pub const fn new(longest: Duration) -> Self {
        Self { longest, failures: 0 }
    }

    /// How long to spin this time.
    #[inline]
    #[must_use]
    pub fn budget(&self) -> Duration {
        if self.failures < PATIENCE || self.failures.is_multiple_of(PROBE) {
            self.longest
        } else {
            BRIEF.min(self.longest)
        }
    }

    /// The awaited event came while spinning.
    #[inline]
    pub fn note_success(&mut self) {
        self.failures = 0;
    }

    /// It did not.
    pub fn note_failure(&mut self) {
        self.failures = self.failures.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_spins_are_given_up_when_in_vain_and_tried_again() {
        let long = Duration::from_micros(50);
        let mut spin = Spin::new(long);
        let mut budgets = Vec::new();
        for _ in 0..PROBE + 2 {
            budgets.push(spin.budget());
            spin.note_failure();
        }
        assert!(budgets[..PATIENCE as usize].iter().all(|&budget| budget == long));
        assert!(budgets[PATIENCE as usize..PROBE as usize].iter().all(|&budget| budget == BRIEF));
        assert_eq!(budgets[PROBE as usize..], [long, BRIEF]);
        spin.note_success();
        assert_eq!(spin.budget(), long);
    }

    #[test]
    fn whoever_is_not_to_spin_never_does() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..2 * PROBE {
            assert_eq!(spin.budget(), Duration::ZERO);
            spin.note_failure();
        }
    }
}
