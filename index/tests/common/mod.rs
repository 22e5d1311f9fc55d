//! Key sets that the tests and benches share.
#![allow(dead_code, reason = "each test and bench uses some of these")]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Keys as hard to fit as the ids of the SOSD data set `fb`: a dyadic cascade over gaps. Every
/// block of `2m` keys shares its range among its halves as `u` and `1 - u`, `u` from a symmetric
/// beta distribution whose variance falls with `m`.
pub fn fb_like(log2_keys: u32, seed: u64) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut gaps = vec![1.0f64];
    for level in (0..log2_keys).rev() {
        let half = f64::from(level).exp2();
        let a = if half <= 700.0 { half.min(1.2) } else { 1.2 * half / 700.0 };
        gaps = gaps
            .into_iter()
            .flat_map(|gap| {
                let u = symmetric_beta(&mut rng, a);
                [gap * 2.0 * u, gap * 2.0 * (1.0 - u)]
            })
            .collect();
    }
    let mut key = 0;
    gaps.into_iter()
        .map(|gap| {
            key += (385.5 * gap) as u64 + 1;
            key
        })
        .collect()
}

/// Beta(a, a), by its variance 1 / (4 (2a + 1)) alone where it is nearly normal.
fn symmetric_beta(rng: &mut SmallRng, a: f64) -> f64 {
    if a > 50.0 {
        let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        return (0.5 + normal / (2.0 * (2.0 * a + 1.0).sqrt())).clamp(0.0, 1.0);
    }
    let (x, y) = (gamma(rng, a), gamma(rng, a));
    x / (x + y)
}

/// Gamma(a, 1) for a >= 1: Marsaglia and Tsang, "A simple method for generating gamma variables",
/// ACM TOMS 26(3), 2000.
fn gamma(rng: &mut SmallRng, a: f64) -> f64 {
    let d = a - 1.0 / 3.0;
    loop {
        let normal = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt()
            * (std::f64::consts::TAU * rng.random::<f64>()).cos();
        let v = (1.0 + normal / (9.0 * d).sqrt()).powi(3);
        if v > 0.0 && (1.0 - rng.random::<f64>()).ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Key sets that break careless arithmetic.
pub fn adversarial() -> Vec<(&'static str, Vec<u64>)> {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut random: Vec<u64> = (0..3_000).map(|_| rng.random()).collect();
    let mut sizes: Vec<u64> = (0..3_000).map(|_| rng.random::<u64>() >> rng.random_range(0..64)).collect();
    let runs = (0..60u64).flat_map(|run| (0..50).map(move |i| run * run * run * 1_000_003 + i));
    let mut ends: Vec<u64> = (0..500).chain((0..500).map(|i| u64::MAX - i)).collect();
    let mut all = vec![0, u64::MAX];
    all.extend((0..64).map(|bit| 1 << bit));
    for keys in [&mut random, &mut sizes, &mut ends, &mut all] {
        keys.sort_unstable();
        keys.dedup();
    }
    vec![
        ("empty", vec![]),
        ("zero", vec![0]),
        ("last", vec![u64::MAX]),
        ("both ends", vec![0, u64::MAX]),
        ("dense from 2^62", (1 << 62..(1 << 62) + 9_000).collect()),
        ("sequential", (0..9_000).collect()),
        ("runs", runs.collect()),
        ("powers of two", all),
        ("dense at both ends", ends),
        ("even over 2^64", (0..4_000).map(|i| i * (u64::MAX / 3_999)).collect()),
        ("dense, then the last key", (0..2_000).chain([u64::MAX]).collect()),
        ("squares near the end", (0..3_000).map(|i| u64::MAX - (3_000 - i) * (3_000 - i)).collect()),
        (
            "exponential gaps",
            (0..640).map(|i| (f64::from(i) / 10.0).exp2() as u64 + u64::from(i as u32)).collect(),
        ),
        ("uniform", random),
        ("random magnitudes", sizes),
        ("fb-like", fb_like(13, 1)),
    ]
}

/// A slot is free for every key of `windows`, which ascend: earliest deadline first, in other words
/// than the crate's.
pub fn has_placement(windows: impl IntoIterator<Item = (u32, u32)>) -> bool {
    let mut next = 0;
    windows.into_iter().all(|(first, last)| {
        let slot = first.max(next);
        next = slot + 1;
        slot <= last
    })
}
