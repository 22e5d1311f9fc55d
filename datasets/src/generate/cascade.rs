//! The cascade that the stand-ins for `fb`, `osm` and `books` share: gaps that are uneven at every
//! scale.
//!
//! A conservative multiplicative cascade over the gaps between neighbouring keys: a node of 2m keys
//! splits its mean gap g between its halves as 2ug and 2(1−u)g with u ~ Beta(a, a), and a leaf is
//! one gap. The shapes a, one for each m, say how uneven the keys are at that scale: a constant
//! shape gives keys that look alike at every scale, a shape in proportion to m gives gaps that are
//! independent of each other.
//!
//! The number of gaps need not be a power of two: the cascade is built over the next one and cut
//! after the last gap, which leaves every subtree inside whole and so the statistics unchanged. The
//! tree is walked depth first, with a stack of one entry per level: nothing takes memory but the
//! gaps given out.

use crate::random::Random;

/// Most keys a stand-in gives: below it the bulk stays under the outliers.
pub const MAX_KEYS: u64 = 1 << 37;

/// Gaps of mean 1, as many as asked for.
#[derive(Clone, Debug)]
pub(super) struct Cascade {
    random: Random,
    /// By level: how a node splits whose halves have 2^level gaps.
    splits: Vec<Split>,
    /// Subtrees yet to be walked, the nearest last: log₂ of the number of gaps, and their mean.
    pending: Vec<(u32, f64)>,
    left: u64,
}

impl Cascade {
    /// `count` gaps, and the shape of the split by log₂ of the gaps in each half: above 1/2.
    pub(super) fn new(count: u64, shape: impl Fn(u32) -> f64, random: Random) -> Self {
        let levels = count.max(1).next_power_of_two().trailing_zeros();
        let splits = (0..levels).map(|level| Split::new(shape(level))).collect();
        Self { random, splits, pending: vec![(levels, 1.0)], left: count }
    }

    /// Gaps still to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl Iterator for Cascade {
    type Item = f64;

    #[inline]
    fn next(&mut self) -> Option<f64> {
        if self.left == 0 {
            return None;
        }
        let (level, mut gap) = self.pending.pop()?;
        for level in (0..level).rev() {
            let share = 2.0 * self.splits[level as usize].share(&mut self.random);
            self.pending.push((level, gap * (2.0 - share)));
            gap *= share;
        }
        self.left -= 1;
        Some(gap)
    }
}

/// Ascending distinct keys over about 2^63, whatever their number, a cascade's gaps apart.
#[derive(Clone, Debug)]
pub struct Spread {
    gaps: Cascade,
    scale: f64,
    key: u64,
}

/// Less than 2^63 by so much that even the cascade's cut-off part, at most as long again, and one
/// more for each of 2^37 gaps stay below 2^64.
const RANGE: f64 = ((1u64 << 63) - (1 << 39)) as f64;

impl Spread {
    /// `count` keys, at most [`MAX_KEYS`]; shapes as for [`Cascade::new`].
    pub(super) fn new(count: u64, shape: impl Fn(u32) -> f64, random: Random) -> Self {
        let count = count.min(MAX_KEYS);
        Self { gaps: Cascade::new(count, shape, random), scale: RANGE / count.max(1) as f64, key: 0 }
    }
}

impl Iterator for Spread {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.key += (self.scale * self.gaps.next()?) as u64 + 1;
        Some(self.key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.gaps.left()).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

/// The symmetric Beta distribution Beta(a, a), by the cheapest method for its shape.
#[derive(Clone, Copy, Debug)]
enum Split {
    /// a = 1.
    Uniform,
    /// a = 1.2.
    NearlyUniform,
    /// a > 1/2: holds 2/(2a − 1).
    Radial(f64),
}

/// The shape of [`Split::NearlyUniform`].
pub(super) const NEARLY_UNIFORM: f64 = 1.2;

impl Split {
    fn new(shape: f64) -> Self {
        if shape == 1.0 {
            Self::Uniform
        } else if shape == NEARLY_UNIFORM {
            Self::NearlyUniform
        } else {
            Self::Radial(2.0 / (2.0 * shape - 1.0))
        }
    }

    /// The left half's share.
    #[inline]
    fn share(self, random: &mut Random) -> f64 {
        match self {
            Self::Uniform => random.open_fraction(),
            // Rejection from the uniform: accept u with probability (4u(1−u))^(1/5), compared in
            // fifth powers so that no transcendental function is needed. Nine draws in ten are
            // accepted.
            Self::NearlyUniform => loop {
                let (u, v) = (random.open_fraction(), random.open_fraction());
                let square = v * v;
                if square * square * v < 4.0 * u * (1.0 - u) {
                    return u;
                }
            },
            // Ulrich's method (Devroye, Non-Uniform Random Variate Generation, IX.4.2).
            Self::Radial(exponent) => {
                let radius = libm::sqrt(1.0 - libm::pow(random.open_fraction(), exponent));
                0.5 + 0.5 * radius * libm::cos(core::f64::consts::TAU * random.open_fraction())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_mean_a_half_and_the_variance_of_the_beta_distribution() {
        let mut random = Random::new(3, 3);
        for shape in [0.8, 1.0, NEARLY_UNIFORM, 1.755, 2.0, 3.5, 28.1] {
            let split = Split::new(shape);
            let n = 100_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let u = split.share(&mut random) - 0.5;
                sum += u;
                squares += u * u;
            }
            let expected = 1.0 / (4.0 * (2.0 * shape + 1.0));
            let (mean, variance) = (sum / f64::from(n), squares / f64::from(n));
            assert!(
                mean.abs() < 0.005 && (variance / expected - 1.0).abs() < 0.03,
                "{shape}: {mean} {variance}"
            );
        }
    }

    #[test]
    fn the_widest_cascade_stays_below_the_end_of_the_range() {
        // One key more than a power of two: the cascade is cut in its middle. The worst split gives
        // it everything.
        for count in [1, 2, 3, 5, (1 << 36) + 1, MAX_KEYS] {
            let spread = Spread::new(count, |_| 1.0, Random::new(1, 1));
            let leaves = spread.gaps.left().next_power_of_two() as f64;
            assert!(spread.scale * leaves * (1.0 + 1e-12) + (count as f64) < u64::MAX as f64, "{count}");
        }
    }

    #[test]
    fn gaps_are_positive_as_many_as_asked_for_and_of_mean_one() {
        for count in [0, 1, 2, 3, 1_000, 1 << 16] {
            let gaps: Vec<f64> = Cascade::new(count, |_| 1.0, Random::new(1, 1)).collect();
            assert_eq!(gaps.len() as u64, count);
            assert!(gaps.iter().all(|&gap| gap > 0.0));
            if count.is_power_of_two() {
                assert!((gaps.iter().sum::<f64>() / count as f64 - 1.0).abs() < 1e-9, "{count}");
            }
        }
    }
}
