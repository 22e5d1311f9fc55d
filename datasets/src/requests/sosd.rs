//! SOSD's lookup rule (its `generate.cc`): distinct keys drawn uniformly by a xorshift, crowded
//! ones rejected.

/// Keys that occur more often are rejected: summing up their values would dominate a lookup.
pub(super) const MOST_EQUAL: u64 = 100;
/// After this many rejections in a row SOSD gives up; here the next key that may be drawn is taken.
const MOST_REJECTIONS: usize = 100;
/// The seed of SOSD's generator where none is given, for a seed of 0: from there it would not move.
const SEED_FOR_ZERO: u64 = 2_305_843_008_139_952_128;

/// Draws key indices.
#[derive(Clone, Debug)]
pub(super) struct SosdRule {
    state: u64,
    n: u64,
    /// Indices of crowded keys, ascending; not all of them.
    crowded: Vec<u64>,
}

impl SosdRule {
    /// Over `n` keys; where all of them are crowded, none is rejected.
    pub(super) fn new(n: u64, mut crowded: Vec<u64>, seed: u64) -> Self {
        if crowded.len() as u64 >= n {
            crowded.clear();
        }
        Self { state: if seed == 0 { SEED_FOR_ZERO } else { seed }, n, crowded }
    }

    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        let mut index = self.any();
        if self.crowded.is_empty() {
            return index;
        }
        for _ in 0..MOST_REJECTIONS {
            if !self.is_crowded(index) {
                return index;
            }
            index = self.any();
        }
        while self.is_crowded(index) {
            index = (index + 1) % self.n;
        }
        index
    }

    fn is_crowded(&self, index: u64) -> bool {
        self.crowded.binary_search(&index).is_ok()
    }

    /// Uniform but for the modulo, which is SOSD's. It takes the lower 32 bits; more keys than
    /// that, which SOSD cannot draw from, take all 64.
    #[inline]
    fn any(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 15;
        self.state ^= self.state << 5;
        let bits = if self.n <= u64::from(u32::MAX) { self.state & 0xFFFF_FFFF } else { self.state };
        bits.checked_rem(self.n).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<const N: usize>(mut rule: SosdRule) -> [u64; N] {
        std::array::from_fn(|_| rule.draw())
    }

    #[test]
    fn draws_are_those_of_sosd() {
        // Computed apart from this code: the first 32-bit numbers of seed 42 are 11355168,
        // 2822806066, 513944543, …
        assert_eq!(take(SosdRule::new(1_000, vec![], 42)), [168, 66, 543, 852, 946, 515, 228, 392]);
        assert_eq!(
            take(SosdRule::new(385_602, vec![], 42)),
            [172_710, 199_426, 322_679, 288_526, 5_148, 293_437, 85_836, 8_970]
        );
    }

    #[test]
    fn crowded_keys_are_passed_over() {
        assert_eq!(take(SosdRule::new(1_000, vec![66, 946, 947], 42)), [168, 543, 852, 515, 228, 392]);
    }

    #[test]
    fn every_end_is_met() {
        assert_eq!(take(SosdRule::new(1, vec![], 42)), [0, 0]);
        assert_eq!(take(SosdRule::new(0, vec![], 42)), [0]);
        assert_eq!(take(SosdRule::new(2, vec![0, 1], 42)), [0, 0, 1]);
        assert!(take::<4>(SosdRule::new(1_000, (1..1_000).collect(), 42)).iter().all(|&index| index == 0));
        assert!(take::<100>(SosdRule::new(1 << 40, vec![], 0)).iter().any(|&index| index > 1 << 32));
    }
}
