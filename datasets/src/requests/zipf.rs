//! Zipf-distributed ranks by rejection-inversion (Hörmann & Derflinger, ACM TOMACS 6(3), 1996, §3):
//! exact for every number of ranks and exponent, constant time, no tables.

use crate::random::Random;

/// Ranks 0, 1, …, n−1 with probability proportional to (rank + 1)^−θ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    n: f64,
    theta: f64,
    /// H at the ends of the area that is inverted.
    low: f64,
    high: f64,
    /// Draws this close above an integer's inverse need no comparison.
    sure: f64,
}

impl Zipf {
    /// `n` at least 1 and θ above 0.
    pub(super) fn new(n: u64, theta: f64) -> Self {
        let n = n.max(1) as f64;
        let mut zipf = Self { n, theta, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(n + 0.5);
        zipf.sure = 2.0 - zipf.inverse_area(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    #[inline]
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.high + random.open_fraction() * (self.low - self.high);
            let x = self.inverse_area(u);
            let k = libm::floor(x + 0.5).clamp(1.0, self.n);
            if k - x <= self.sure || u >= self.area(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    /// h(x) = x^−θ
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// H(x) = ∫₁ˣ h = (x^(1−θ) − 1)/(1−θ), which is ln x at θ = 1 and computed without cancellation
    /// near it.
    fn area(&self, x: f64) -> f64 {
        let log = libm::log(x);
        log * expm1_over((1.0 - self.theta) * log)
    }

    fn inverse_area(&self, u: f64) -> f64 {
        // Rounding may push the argument of the logarithm below zero at the far end.
        let t = (u * (1.0 - self.theta)).max(-1.0);
        libm::exp(u * log1p_over(t))
    }
}

/// (eᵗ − 1)/t
fn expm1_over(t: f64) -> f64 {
    if t.abs() > 1e-8 { libm::expm1(t) / t } else { 1.0 + t / 2.0 }
}

/// ln(1 + t)/t
fn log1p_over(t: f64) -> f64 {
    if t.abs() > 1e-8 { libm::log1p(t) / t } else { 1.0 - t / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_match_theory() {
        for (n, theta) in [(1, 0.99), (2, 1.0), (10, 0.5), (1_000, 0.99), (1_000, 1.0), (50, 2.5), (5, 16.0)]
        {
            let zipf = Zipf::new(n, theta);
            let mut random = Random::new(4, 4);
            let draws = 200_000;
            let mut seen = vec![0u32; n as usize];
            (0..draws).for_each(|_| seen[zipf.rank(&mut random) as usize] += 1);
            let zeta: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            let mut chi_square = 0.0;
            let mut cells = 0.0;
            for (k, &observed) in seen.iter().enumerate() {
                let expected = f64::from(draws) * ((k + 1) as f64).powf(-theta) / zeta;
                if expected >= 5.0 {
                    chi_square += (f64::from(observed) - expected).powi(2) / expected;
                    cells += 1.0;
                }
            }
            // Five standard deviations of the chi-square distribution above its mean.
            assert!(
                chi_square < cells + 5.0 * (2.0f64 * cells).sqrt() + 5.0,
                "{n} {theta}: {chi_square} of {cells}"
            );
        }
    }

    #[test]
    fn ranks_stay_in_range_at_every_size() {
        for n in [1, 3, 200_000_000, 1 << 40] {
            for theta in [1e-9, 0.1, 0.99, 1.0, 1.000_000_001, 3.0, 16.0] {
                let zipf = Zipf::new(n, theta);
                let mut random = Random::new(4, n);
                assert!((0..1_000).all(|_| zipf.rank(&mut random) < n), "{n} {theta}");
            }
        }
    }
}
