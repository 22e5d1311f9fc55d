//! Random numbers that are the same on every platform and in every version: xoshiro256++ (Blackman
//! & Vigna, ACM TOMS 2021), integer range reduction, and fractions of exactly 53 bits.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of a seed; `purpose` separates streams that share a seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, bound), without bias (Lemire, ACM TOMACS 2019). `bound` of zero gives zero.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            let low = product as u64;
            // The exact rejection threshold needs a division; it is only looked at when `low` may
            // fall under it.
            if low >= bound || low >= bound.wrapping_neg().checked_rem(bound).unwrap_or(0) {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in (0, 1]: a multiple of 2⁻⁵³ plus 2⁻⁵⁴, rounded to a double. Never 0; 1 once in 2⁵³
    /// times.
    #[inline]
    pub(crate) fn open_fraction(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal (Box & Muller 1958, the cosine half).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.open_fraction()));
        radius * libm::cos(core::f64::consts::TAU * self.open_fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_by_purpose_and_repeat() {
        let take = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.bits(), random.bits()]
        };
        assert_eq!(take(42, 1), take(42, 1));
        assert_ne!(take(42, 1), take(42, 2));
        assert_ne!(take(42, 1), take(43, 1));
    }

    #[test]
    fn below_is_uniform_and_total() {
        let mut random = Random::new(1, 1);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        random.below(u64::MAX);
    }

    #[test]
    fn normal_has_its_moments() {
        let mut random = Random::new(2, 1);
        let n = 100_000;
        let normals: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(n);
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
