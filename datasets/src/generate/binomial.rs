//! Binomial random numbers: how many of n keys fall into the left of two halves.

use crate::random::Random;

/// Up to here each trial is drawn.
const TRIALS: u64 = 32;
/// From this variance on the normal approximation, rounded, is used: its error is far below what a
/// fit can see.
const NORMAL_VARIANCE: f64 = 16.0;

/// A draw from Binomial(n, p); p outside [0, 1] counts as the nearer end, and no number as 0.
#[inline]
pub(super) fn binomial(random: &mut Random, n: u64, p: f64) -> u64 {
    if p.is_nan() || p <= 0.0 || n == 0 {
        0
    } else if p >= 1.0 {
        n
    } else if n <= TRIALS {
        by_trials(random, n, p)
    } else if n as f64 * p * (1.0 - p) >= NORMAL_VARIANCE {
        let mean = n as f64 * p;
        let draw = mean + libm::sqrt(mean * (1.0 - p)) * random.normal();
        // Saturating at both ends; n stays far below 2^53.
        (libm::floor(draw + 0.5) as u64).min(n)
    } else if p <= 0.5 {
        by_waiting(random, n, p)
    } else {
        n - by_waiting(random, n, 1.0 - p)
    }
}

/// Two trials of 32 bits from each random word.
#[inline]
fn by_trials(random: &mut Random, n: u64, p: f64) -> u64 {
    let threshold = (p * 4_294_967_296.0) as u64;
    let mut hits = 0;
    for _ in 0..n / 2 {
        let bits = random.bits();
        hits += u64::from((bits & 0xFFFF_FFFF) < threshold) + u64::from((bits >> 32) < threshold);
    }
    if n % 2 == 1 {
        hits += u64::from((random.bits() >> 32) < threshold);
    }
    hits
}

/// The first waiting time method (Devroye X.4.3): skips over the misses between hits, for small
/// n·p.
fn by_waiting(random: &mut Random, n: u64, p: f64) -> u64 {
    let scale = 1.0 / libm::log1p(-p);
    let (mut hits, mut position) = (0, 0.0);
    loop {
        position += libm::floor(libm::log(random.open_fraction()) * scale) + 1.0;
        if position > n as f64 {
            return hits;
        }
        hits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_the_binomial_mean_and_variance() {
        let mut random = Random::new(5, 5);
        for (n, p) in
            [(7, 0.3), (32, 0.52), (33, 0.5), (1_000, 0.002), (1_000, 0.998), (1_000_000, 0.4), (40, 0.1)]
        {
            let rounds = 50_000;
            let draws: Vec<f64> = (0..rounds).map(|_| binomial(&mut random, n, p) as f64).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(rounds);
            let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(rounds);
            let (expected_mean, expected_variance) = (n as f64 * p, n as f64 * p * (1.0 - p));
            let noise = (expected_variance / f64::from(rounds)).sqrt();
            assert!((mean - expected_mean).abs() < 5.0 * noise, "{n} {p}: {mean}");
            assert!((variance / expected_variance - 1.0).abs() < 0.05, "{n} {p}: {variance}");
        }
    }

    #[test]
    fn ends_are_certain() {
        let mut random = Random::new(5, 5);
        for n in [0, 1, 32, 33, 1_000_000] {
            assert_eq!(binomial(&mut random, n, 0.0), 0);
            assert_eq!(binomial(&mut random, n, 1.0), n);
            assert!(binomial(&mut random, n, 1e-300) <= n);
            assert!(binomial(&mut random, n, f64::NAN) <= n);
        }
    }
}
