//! A stand-in for `fb_200M_uint64`: ids whose gaps are as uneven as Facebook's at every scale.
//!
//! A conservative multiplicative cascade over the gaps: a node of 2m keys splits its mean gap g between its halves
//! as 2ug and 2(1−u)g with u ~ Beta(a, a), and a leaf is one key, `floor(385.5·g) + 1` after the one before. The
//! shape a was fitted to the published numbers of optimal segments, per 200 M keys, at ε from 1 to 1024: uniform
//! for the last split, 1.2 up to 700 keys, and growing with m from there, so that large stretches are even.
//!
//! The number of keys need not be a power of two: the cascade is built over the next one and cut after the last
//! key, which leaves every subtree inside whole and so the statistics unchanged. The tree is walked depth first,
//! with a stack of one entry per level: nothing but the keys given out takes memory.
//!
//! The published file ends in 21 outliers far above the bulk; so does the stand-in (fewer below 21,000 keys).

use crate::random::Random;

/// Most keys the stand-in gives: below it the bulk stays under the outliers.
pub const MAX_KEYS: u64 = 1 << 37;

/// Outliers of the published file: how many in [2^b, 2^b'), and the greatest key of all.
const OUTLIERS: [(usize, u32, u32); 4] = [(2, 47, 48), (4, 48, 49), (6, 49, 50), (8, 58, 64)];
const OUTLIER_COUNT: usize = 21;
/// At most one key in so many is an outlier.
const KEYS_PER_OUTLIER: u64 = 1_000;

/// Mean gap of the bulk, less one.
const GAP_SCALE: f64 = 385.5;
/// The shape of the splits below [`EVEN_FROM`].
const ROUGH_SHAPE: f64 = 1.2;
/// Halves larger than this split ever more evenly.
const EVEN_FROM: f64 = 700.0;

/// The ids of the stand-in, ascending and distinct.
#[derive(Clone, Debug)]
pub struct FbIds {
    random: Random,
    /// Subtrees yet to be walked, the nearest last: log₂ of the number of keys, and their mean gap.
    pending: Vec<(u32, f64)>,
    bulk_left: u64,
    key: u64,
    outliers: std::vec::IntoIter<u64>,
}

impl FbIds {
    /// The stand-in of `count` keys; beyond [`MAX_KEYS`] it ends there.
    pub fn new(count: u64, seed: u64) -> Self {
        let count = count.min(MAX_KEYS);
        let outliers = outliers(count, seed);
        let bulk_left = count - outliers.len() as u64;
        let levels = bulk_left.max(1).next_power_of_two().trailing_zeros();
        let random = Random::new(seed, PURPOSE_BULK);
        Self { random, pending: vec![(levels, 1.0)], bulk_left, key: 0, outliers: outliers.into_iter() }
    }
}

const PURPOSE_BULK: u64 = 0xFB;
const PURPOSE_OUTLIERS: u64 = 0xFB0;

impl Iterator for FbIds {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.bulk_left == 0 {
            return self.outliers.next();
        }
        let (mut level, mut gap) = self.pending.pop()?;
        while level > 0 {
            level -= 1;
            let share = 2.0 * symmetric_beta(&mut self.random, level);
            self.pending.push((level, gap * (2.0 - share)));
            gap *= share;
        }
        self.bulk_left -= 1;
        self.key += (GAP_SCALE * gap) as u64 + 1;
        Some(self.key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.bulk_left).unwrap_or(usize::MAX).saturating_add(self.outliers.len());
        (left, Some(left))
    }
}

/// The left half's share where each half has 2^level keys.
#[inline]
fn symmetric_beta(random: &mut Random, level: u32) -> f64 {
    if level == 0 {
        return random.open_fraction();
    }
    let half = (1u64 << level) as f64;
    if half <= EVEN_FROM {
        // Rejection from the uniform: accept u with probability (4u(1−u))^(1/5), compared in fifth powers so that
        // no transcendental function is needed. Nine draws in ten are accepted.
        loop {
            let (u, v) = (random.open_fraction(), random.open_fraction());
            let square = v * v;
            if square * square * v < 4.0 * u * (1.0 - u) {
                return u;
            }
        }
    }
    // Ulrich's method (Devroye, Non-Uniform Random Variate Generation, IX.4.2), for shapes above 1/2.
    let shape = ROUGH_SHAPE * half / EVEN_FROM;
    let radius = libm::sqrt(1.0 - libm::pow(random.open_fraction(), 2.0 / (2.0 * shape - 1.0)));
    0.5 + 0.5 * radius * libm::cos(core::f64::consts::TAU * random.open_fraction())
}

fn outliers(count: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed, PURPOSE_OUTLIERS);
    let mut keys = Vec::with_capacity(OUTLIER_COUNT);
    for (number, from, to) in OUTLIERS {
        let low = 1u64 << from;
        let width = if to == 64 { u64::MAX - low } else { (1u64 << to) - low };
        for _ in 0..number {
            loop {
                let key = low + random.below(width);
                if !keys.contains(&key) {
                    break keys.push(key);
                }
            }
        }
    }
    keys.push(u64::MAX);
    keys.sort_unstable();
    let wanted = usize::try_from(count / KEYS_PER_OUTLIER).unwrap_or(OUTLIER_COUNT).min(OUTLIER_COUNT);
    keys.split_off(OUTLIER_COUNT - wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_as_many_ascending_keys_as_asked_for() {
        for count in [1, 2, 3, 999, 1_000, 1_025, 21_000, 40_000] {
            let keys: Vec<u64> = FbIds::new(count, 42).collect();
            assert_eq!(keys.len() as u64, count);
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{count}");
        }
    }

    #[test]
    fn outliers_lie_where_the_published_ones_do() {
        let keys: Vec<u64> = FbIds::new(30_000, 7).collect();
        let within = |from: u32, to: u32| keys.iter().filter(|k| (from..to).contains(&k.ilog2())).count();
        assert_eq!([within(47, 48), within(48, 49), within(49, 50), within(58, 64)], [2, 4, 6, 9]);
        assert_eq!(keys.last(), Some(&u64::MAX));
        let mean_gap = keys[30_000 - 22] as f64 / 29_979.0;
        assert!((300.0..480.0).contains(&mean_gap), "{mean_gap}");
    }

    #[test]
    fn shares_have_mean_a_half_and_the_variance_of_the_beta_distribution() {
        let mut random = Random::new(3, 3);
        for (level, shape) in [(0, 1.0), (5, 1.2), (10, 1.2 * 1024.0 / 700.0), (14, 1.2 * 16384.0 / 700.0)] {
            let n = 100_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let u = symmetric_beta(&mut random, level) - 0.5;
                sum += u;
                squares += u * u;
            }
            let expected = 1.0 / (4.0 * (2.0 * shape + 1.0));
            let (mean, variance) = (sum / f64::from(n), squares / f64::from(n));
            assert!(
                mean.abs() < 0.005 && (variance / expected - 1.0).abs() < 0.03,
                "{level}: {mean} {variance}"
            );
        }
    }
}
