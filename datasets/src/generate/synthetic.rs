//! Synthetic distributions, as distinct ascending keys.

use crate::random::Random;

/// σ of the lognormal's logarithm, as in SOSD; μ is 0.
const SIGMA: f64 = 2.0;
/// The lognormal's median, 1, becomes this key: the largest draw that 53 random bits can give stays
/// below 2^64, and the smallest gaps of 200 M keys are still in the hundreds.
const MEDIAN: f64 = (1u64 << 38) as f64;

/// The normal's mean and standard deviation: the farthest draw that 53 random bits can give, 8.7
/// deviations from the mean, stays within [0, 2^63), which is the range of SOSD's.
const MEAN: u64 = 1 << 62;
const DEVIATION: f64 = (1u64 << 58) as f64;

const PURPOSE_UNIFORM: u64 = 0x11;
const PURPOSE_LOGNORMAL: u64 = 0x12;
const PURPOSE_NORMAL: u64 = 0x13;

/// `count` distinct keys uniform over all of `u64`. `None` if they do not fit into memory.
///
/// Costs one sort of the keys.
pub fn uniform(count: usize, seed: u64) -> Option<Vec<u64>> {
    let mut random = Random::new(seed, PURPOSE_UNIFORM);
    distinct(count, || random.bits())
}

/// `count` distinct keys, lognormal with μ 0 and σ 2, scaled so that the median is 2^38. `None` if
/// they do not fit into memory.
///
/// Costs one sort of the keys.
pub fn lognormal(count: usize, seed: u64) -> Option<Vec<u64>> {
    let mut random = Random::new(seed, PURPOSE_LOGNORMAL);
    distinct(count, || (MEDIAN * libm::exp(SIGMA * random.normal())) as u64)
}

/// `count` distinct keys, normal with mean 2^62 and standard deviation 2^58. `None` if they do not
/// fit into memory.
///
/// SOSD's normal keys cover [0, 2^63) as well, but are quantiles of the distribution, equally far
/// apart in probability: smooth at every scale. These are draws from it, as irregular as keys that
/// occur by chance.
///
/// Costs one sort of the keys.
pub fn normal(count: usize, seed: u64) -> Option<Vec<u64>> {
    let mut random = Random::new(seed, PURPOSE_NORMAL);
    distinct(count, || MEAN.saturating_add_signed((DEVIATION * random.normal()) as i64))
}

/// Draws until `count` keys are distinct, replacing duplicates by further draws.
fn distinct(count: usize, mut draw: impl FnMut() -> u64) -> Option<Vec<u64>> {
    let mut keys = Vec::new();
    keys.try_reserve_exact(count).ok()?;
    while keys.len() < count {
        while keys.len() < count {
            keys.push(draw());
        }
        keys.sort_unstable();
        keys.dedup();
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_replaced_until_the_count_is_exact() {
        let mut random = Random::new(9, 9);
        let keys = distinct(900, || random.below(1_000)).unwrap();
        assert_eq!(keys.len(), 900);
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn lognormal_has_its_median_and_spread() {
        let keys = lognormal(100_000, 42).unwrap();
        let quantile = |q: f64| ((keys[(q * 100_000.0) as usize] as f64) / MEDIAN).ln();
        assert!(quantile(0.5).abs() < 0.05);
        // One standard deviation above the median.
        assert!((quantile(0.841_345) - SIGMA).abs() < 0.05);
    }

    #[test]
    fn normal_has_its_mean_and_spread() {
        let keys = normal(100_000, 42).unwrap();
        let quantile = |q: f64| (keys[(q * 100_000.0) as usize] as f64 - MEAN as f64) / DEVIATION;
        // The quantiles of the standard normal at −1, 0, 1 and 2 deviations.
        for (q, deviations) in [(0.158_655, -1.0), (0.5, 0.0), (0.841_345, 1.0), (0.977_25, 2.0)] {
            assert!((quantile(q) - deviations).abs() < 0.03, "{q}: {}", quantile(q));
        }
        assert!(keys[99_999] < 1 << 63);
    }

    #[test]
    fn more_than_fits_is_refused_not_aborted() {
        assert_eq!(uniform(usize::MAX / 8, 1), None);
    }
}
