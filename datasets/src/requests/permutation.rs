//! A seeded bijection of [0, n) that takes no memory: it scatters popularity ranks over the key
//! space.

/// Rounds of the network: enough that neighbouring inputs share no pattern that a cache could
/// profit from.
const ROUNDS: usize = 4;

/// A permutation of [0, n): a Feistel network over the next even number of bits, walked along its
/// cycle until the result lies below n (Black & Rogaway, CT-RSA 2002). At most four steps on
/// average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(super) fn new(n: u64, random: &mut crate::random::Random) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.bits()) }
    }

    /// The image of `x`, which must be below n.
    #[inline]
    pub(super) fn apply(&self, x: u64) -> u64 {
        debug_assert!(x < self.n);
        let mut y = self.encrypt(x);
        while y >= self.n {
            y = self.encrypt(y);
        }
        y
    }

    #[inline]
    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            let mixed = ((right ^ key).wrapping_mul(0x9FB2_1C65_1E98_DF25) >> 32) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_size_is_permuted() {
        for n in (1..70).chain([255, 256, 257, 10_000]) {
            let permutation = Permutation::new(n, &mut Random::new(1, n));
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let y = permutation.apply(x) as usize;
                assert!(!std::mem::replace(&mut seen[y], true), "{n}: {y} twice");
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let n = 1_000_000;
        let permutation = Permutation::new(n, &mut Random::new(1, 1));
        let mean: u64 =
            (0..1_000).map(|x| permutation.apply(x).abs_diff(permutation.apply(x + 1))).sum::<u64>() / 1_000;
        assert!(mean.abs_diff(n / 3) < n / 30, "{mean}");
    }

    #[test]
    fn the_widest_range_does_not_overflow() {
        let permutation = Permutation::new(u64::MAX, &mut Random::new(1, 1));
        assert_ne!(permutation.apply(0), permutation.apply(u64::MAX - 1));
    }
}
