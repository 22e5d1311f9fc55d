//! YCSB's scrambled zipfian, as YCSB computes it.

use crate::random::Random;

/// Ranks are 0 to 10 billion: YCSB passes its constant as the greatest rank.
const RANKS: u64 = 10_000_000_001;
/// YCSB's constant: Σ k^−0.99 for k up to 10 billion, as summed there.
const ZETA: f64 = 26.469_028_201_783_02;
const ZETA_THETA: f64 = 0.99;

/// Ranks by the method of Gray et al. (SIGMOD 1994, §3.2): exact for the two most popular, from
/// then on a power of a uniform number that approximates the law.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrayZipf {
    zeta: f64,
    /// u·ζ below this is rank 1, if not below 1, which is rank 0.
    second: f64,
    alpha: f64,
    eta: f64,
}

impl GrayZipf {
    /// θ above 0 and below 1. Costs some microseconds for θ other than 0.99.
    pub(super) fn new(theta: f64) -> Self {
        let zeta = if theta == ZETA_THETA { ZETA } else { zeta(RANKS, theta) };
        let second = 1.0 + libm::pow(0.5, theta);
        let eta = (1.0 - libm::pow(2.0 / RANKS as f64, 1.0 - theta)) / (1.0 - second / zeta);
        Self { zeta, second, alpha: 1.0 / (1.0 - theta), eta }
    }

    #[inline]
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        self.rank_of(random.open_fraction())
    }

    /// The rank that a uniform number in [0, 1) stands for.
    #[inline]
    fn rank_of(&self, u: f64) -> u64 {
        let uz = u * self.zeta;
        if uz < 1.0 {
            0
        } else if uz < self.second {
            1
        } else {
            // A power, at half the cost of `pow` and with errors that are as far below one rank.
            (RANKS as f64 * libm::exp(self.alpha * libm::log(self.eta * u - self.eta + 1.0))) as u64
        }
    }
}

/// Σ k^−θ for k from 1 to n: the first terms one by one, the others by the Euler–Maclaurin formula
/// to its second correction, whose error is below 10⁻¹⁵ from there on.
fn zeta(n: u64, theta: f64) -> f64 {
    const SINGLY: u64 = 1_000;
    let power = |x: f64, exponent: f64| libm::pow(x, exponent);
    let first: f64 = (1..n.min(SINGLY)).rev().map(|k| power(k as f64, -theta)).sum();
    if n <= SINGLY {
        return first + power(n as f64, -theta);
    }
    let (from, to) = (SINGLY as f64, n as f64);
    // The integral in a form without cancellation near θ = 1.
    let integral =
        power(from, 1.0 - theta) * libm::expm1((1.0 - theta) * libm::log(to / from)) / (1.0 - theta);
    let ends = (power(from, -theta) + power(to, -theta)) / 2.0;
    let slopes = theta / 12.0 * (power(from, -theta - 1.0) - power(to, -theta - 1.0));
    first + integral + ends + slopes
}

/// The FNV-1a hash of a number's eight bytes, the lowest first, without its sign: YCSB computes in
/// Java's `long`.
#[inline]
pub(crate) fn fnv64(value: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for byte in value.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_ycsbs_first_records() {
        // user6284781860667377211 is the first record that YCSB inserts.
        assert_eq!(
            [0, 1, 2].map(fnv64),
            [6_284_781_860_667_377_211, 8_517_097_267_634_966_620, 1_820_151_046_732_198_393]
        );
        assert_eq!(fnv64(9_999_999_999), 3_605_131_173_811_637_474);
    }

    /// Computed apart from this code, from the formulas of the paper in double precision.
    const RANKS_99: [(f64, u64); 11] = [
        (0.0, 0),
        (0.03, 0),
        (0.04, 1),
        (0.0568, 1),
        (0.057, 2),
        (0.1, 6),
        (0.25, 296),
        (0.5, 134_552),
        (0.75, 42_924_421),
        (0.9, 1_170_869_537),
        (0.999_999, 9_999_787_803),
    ];
    const RANKS_70: [(f64, u64); 6] = [
        (0.0, 0),
        (0.03, 90_836),
        (0.1, 4_746_344),
        (0.5, 994_596_317),
        (0.9, 7_040_363_613),
        (0.999_999, 9_999_966_692),
    ];

    #[test]
    fn ranks_are_those_of_the_paper() {
        for (theta, golden) in [(0.99, &RANKS_99[..]), (0.7, &RANKS_70)] {
            let zipf = GrayZipf::new(theta);
            for &(u, rank) in golden {
                assert_eq!(zipf.rank_of(u), rank, "{theta} {u}");
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_single_terms() {
        for (n, theta, sum) in [
            (1, 0.5, 1.0),
            (2, 1e-6, 2.0 - 6.931_469_4e-7),
            (5_000, 0.99, 9.467_022_709_118_76),
            (100_000, 0.7, 102.631_025_007_090_87),
            (RANKS, 0.5, 199_998.539_660_491_2),
            (RANKS, 0.999, 23.870_135_125_118_747),
            (RANKS - 1, ZETA_THETA, ZETA),
        ] {
            let ratio = zeta(n, theta) / sum;
            assert!((ratio - 1.0).abs() < 1e-11, "{n} {theta}: {ratio}");
        }
    }

    #[test]
    fn frequencies_follow_the_method() {
        let zipf = GrayZipf::new(ZETA_THETA);
        // The chance of a rank below r, from the inverse of the power.
        let below = |r: u64| match r {
            0 => 0.0,
            1 => 1.0 / zipf.zeta,
            2 => zipf.second / zipf.zeta,
            _ => 1.0 - (1.0 - (r as f64 / RANKS as f64).powf(1.0 - ZETA_THETA)) / zipf.eta,
        };
        let edges = [0, 1, 2, 3, 4, 5, 8, 16, 100, 1_000, 100_000, 10_000_000, 1_000_000_000, RANKS + 1];
        let mut random = Random::new(4, 4);
        let draws = 400_000;
        let mut seen = vec![0u32; edges.len() - 1];
        for _ in 0..draws {
            let rank = zipf.rank(&mut random);
            seen[edges.partition_point(|&edge| edge <= rank) - 1] += 1;
        }
        let chi_square: f64 = edges
            .windows(2)
            .zip(&seen)
            .map(|(edge, &observed)| {
                let expected = f64::from(draws) * (below(edge[1]).min(1.0) - below(edge[0]));
                (f64::from(observed) - expected).powi(2) / expected
            })
            .sum();
        // Twelve degrees of freedom: one such sum in a thousand exceeds 32.9.
        assert!(chi_square < 32.9, "{chi_square}: {seen:?}");
    }
}
