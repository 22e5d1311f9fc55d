//! The batch size that a bound on latency allows.

use std::time::Duration;

/// Calls after which the size is looked at.
const WINDOW: u32 = 200;

/// Tunes a batch size by the paper's rule (RF-RPC, section 4.2, equation 3): where more than α of the calls took longer than the bound, one
/// less; where fewer than a tenth of α did, one more.
#[derive(Clone, Debug)]
pub struct Tuner {
    bound: Duration,
    /// α, calls in a million.
    tolerated: u32,
    most: u16,
    size: u16,
    calls: u32,
    late: u32,
}

impl Tuner {
    /// A batch size from 1 to `most` such that at most `tolerated` in a million calls take longer than `bound`. It begins with 1.
    #[must_use]
    pub fn new(bound: Duration, tolerated: u32, most: u16) -> Self {
        Self { bound, tolerated, most: most.max(1), size: 1, calls: 0, late: 0 }
    }

    /// The size now.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// A call took so long.
    pub fn took(&mut self, latency: Duration) {
        self.calls += 1;
        self.late += u32::from(latency > self.bound);
        if self.calls < WINDOW {
            return;
        }
        let share = u64::from(self.late) * 1_000_000 / u64::from(self.calls);
        if share > u64::from(self.tolerated) {
            self.size = (self.size - 1).max(1);
        } else if share * 10 < u64::from(self.tolerated) {
            self.size = (self.size + 1).min(self.most);
        }
        (self.calls, self.late) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of a batch of n take n µs, and one in a hundred twice that.
    fn settle(tuner: &mut Tuner) -> Vec<u16> {
        let mut sizes = Vec::new();
        for call in 0..40_000u32 {
            let size = u64::from(tuner.size());
            let factor = if call % 100 == 0 { 2 } else { 1 };
            tuner.took(Duration::from_micros(size * factor));
            sizes.push(tuner.size());
        }
        sizes.split_off(39_000)
    }

    #[test]
    fn the_size_settles_below_the_bound() {
        // Five in a hundred may be late: slow ones, one in a hundred, lie between a tenth of that and all of it.
        let mut tuner = Tuner::new(Duration::from_micros(20), 50_000, 128);
        let sizes = settle(&mut tuner);
        assert!(sizes.iter().all(|size| (10..=20).contains(size)), "{sizes:?}");
        assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "settled");
    }

    #[test]
    fn the_size_stays_between_its_bounds() {
        let mut tuner = Tuner::new(Duration::ZERO, 50_000, 8);
        assert!(settle(&mut tuner).iter().all(|&size| size == 1));
        let mut tuner = Tuner::new(Duration::from_secs(1), 50_000, 8);
        assert!(settle(&mut tuner).iter().all(|&size| size == 8));
    }
}
