//! A stand-in for `fb_200M_uint64`: ids whose gaps are as uneven as Facebook's at every scale.
//!
//! A multiplicative cascade over the gaps: its shapes were fitted to the published numbers of
//! optimal segments, per 200 M keys, at ε from 1 to 1024: uniform for the last split, 1.2 up to 700
//! keys, and growing with the number of keys from there, so that large stretches are even. A gap g
//! becomes `floor(385.5·g) + 1`.
//!
//! The published file ends in 21 outliers far above the bulk; so does the stand-in (fewer below
//! 21,000 keys).

use super::cascade::{Cascade, NEARLY_UNIFORM};
use crate::random::Random;

pub use super::cascade::MAX_KEYS;

/// Outliers of the published file: how many in [2^b, 2^b'), and the greatest key of all.
const OUTLIERS: [(usize, u32, u32); 4] = [(2, 47, 48), (4, 48, 49), (6, 49, 50), (8, 58, 64)];
const OUTLIER_COUNT: usize = 21;
/// At most one key in this many is an outlier.
const KEYS_PER_OUTLIER: u64 = 1_000;

/// Mean gap of the bulk, less one.
const GAP_SCALE: f64 = 385.5;
/// Halves larger than this split ever more evenly.
const EVEN_FROM: f64 = 700.0;

/// The ids of the stand-in, ascending and distinct.
#[derive(Clone, Debug)]
pub struct FbIds {
    bulk: Cascade,
    key: u64,
    outliers: std::vec::IntoIter<u64>,
}

impl FbIds {
    /// The stand-in of `count` keys; beyond [`MAX_KEYS`] it ends there.
    pub fn new(count: u64, seed: u64) -> Self {
        let count = count.min(MAX_KEYS);
        let outliers = outliers(count, seed);
        let bulk = Cascade::new(count - outliers.len() as u64, shape, Random::new(seed, PURPOSE_BULK));
        Self { bulk, key: 0, outliers: outliers.into_iter() }
    }
}

const PURPOSE_BULK: u64 = 0xFB;
const PURPOSE_OUTLIERS: u64 = 0xFB0;

impl Iterator for FbIds {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        match self.bulk.next() {
            Some(gap) => {
                self.key += (GAP_SCALE * gap) as u64 + 1;
                Some(self.key)
            }
            None => self.outliers.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left =
            usize::try_from(self.bulk.left()).unwrap_or(usize::MAX).saturating_add(self.outliers.len());
        (left, Some(left))
    }
}

/// The shape of a split into halves of 2^level keys.
fn shape(level: u32) -> f64 {
    let half = (1u64 << level) as f64;
    match level {
        0 => 1.0,
        _ if half <= EVEN_FROM => NEARLY_UNIFORM,
        _ => NEARLY_UNIFORM * half / EVEN_FROM,
    }
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
}
