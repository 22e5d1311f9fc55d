//! The hot cache, piece by piece, by variant; and two threads against one.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpcache::cache::{Hint, HotCache, Policy, Shape, Spot, Variant, Visitor};
use fpcache_index::Window;

/// Fits the second-level cache.
const SMALL: usize = 256 << 10;
/// Does not.
const LARGE: usize = 16 << 20;

fn scattered(x: u64) -> u64 {
    let mut bits = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^ bits >> 27
}

fn spot(key: u64) -> Spot {
    let slot = (key % 190) as u32;
    let window = Window { first: slot.saturating_sub(32), last: (slot + 32).min(189) };
    Spot {
        hash: scattered(key),
        key,
        predicted: slot,
        window,
        slots: 4096 + key / 190 * 6_112,
        slot_bytes: 24,
    }
}

fn cache(bytes: usize, variant: Variant, policy: Policy) -> HotCache {
    let shape = Shape { variant, policy, epsilon: 32, segments: 100_000, keys: u64::MAX };
    HotCache::new(bytes, &shape).expect("room for buckets")
}

/// A full cache, and keys that have entries, in random order.
fn filled(bytes: usize, variant: Variant, policy: Policy) -> (HotCache, Vec<Spot>) {
    let cache = cache(bytes, variant, policy);
    let mut visitor = cache.visitor(1);
    let keys = 0..2 * cache.capacity();
    keys.clone().for_each(|key| cache.learn(&spot(key), spot(key).predicted, 544, &mut visitor));
    let mut held: Vec<Spot> = keys.map(spot).filter(|spot| cache.probe(spot).is_some()).collect();
    held.sort_unstable_by_key(|spot| scattered(spot.hash));
    if bytes == SMALL {
        // The questions themselves should not push the cache out of the processor's.
        held.truncate(4096);
    }
    // A few hits on all, as in a cache that has been used.
    for _ in 0..8 {
        for spot in &held {
            black_box(hit(&cache, spot, &mut visitor));
        }
    }
    (cache, held)
}

#[inline]
fn hit(cache: &HotCache, spot: &Spot, visitor: &mut Visitor) -> Option<Hint> {
    let hint = cache.probe(spot)?;
    cache.confirm(spot, hint, visitor);
    Some(hint)
}

fn pieces(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot cache");
    group.sample_size(20).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    group.throughput(Throughput::Elements(1));
    for variant in Variant::ALL.iter().copied() {
        for (size, bytes) in [("256 KiB", SMALL), ("16 MiB", LARGE)] {
            let (cache, held) = filled(bytes, variant, Policy::Heat);
            let id = |piece: &str| BenchmarkId::new(format!("{piece} {size}"), variant);
            let mut visitor = cache.visitor(2);
            group.bench_function(id("probe hit"), |b| {
                let mut spots = held.iter().cycle();
                b.iter(|| spots.next().and_then(|spot| cache.probe(spot)));
            });
            group.bench_function(id("probe and confirm"), |b| {
                let mut spots = held.iter().cycle();
                b.iter(|| spots.next().and_then(|spot| hit(&cache, spot, &mut visitor)));
            });
            let strangers: Vec<Spot> = (1 << 40..(1 << 40) + (1 << 16)).map(spot).collect();
            group.bench_function(id("probe miss"), |b| {
                let mut spots = strangers.iter().cycle();
                b.iter(|| spots.next().and_then(|spot| cache.probe(spot)));
            });
            group.bench_function(id("learn, full"), |b| {
                let mut key = 1 << 41;
                b.iter(|| {
                    key += 1;
                    let spot = spot(key);
                    cache.learn(&spot, spot.predicted, 544, &mut visitor);
                });
            });
        }
    }
    for policy in Policy::ALL.iter().copied() {
        let (cache, held) = filled(SMALL, Variant::Fd, policy);
        let mut visitor = cache.visitor(2);
        group.bench_function(BenchmarkId::new("probe and confirm by policy", policy), |b| {
            let mut spots = held.iter().cycle();
            b.iter(|| spots.next().and_then(|spot| hit(&cache, spot, &mut visitor)));
        });
        group.bench_function(BenchmarkId::new("learn by policy", policy), |b| {
            let mut key = 1 << 41;
            b.iter(|| {
                key += 1;
                let spot = spot(key);
                cache.learn(&spot, spot.predicted, 544, &mut visitor);
            });
        });
    }
    group.finish();
}

/// How long `threads` threads take for `rounds` hits each, skewed to a few keys.
fn together(cache: &HotCache, asked: &[Spot], threads: usize, rounds: u64) -> Duration {
    let barrier = Barrier::new(threads);
    let times = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut visitor = cache.visitor(thread as u64);
                let mut spots = asked.iter().cycle().skip(thread * asked.len() / threads);
                barrier.wait();
                let start = Instant::now();
                for _ in 0..rounds {
                    black_box(spots.next().and_then(|spot| hit(cache, spot, &mut visitor)));
                }
                start.elapsed()
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).max()
    });
    times.unwrap_or_default()
}

fn scaling(c: &mut Criterion) {
    let mut group = c.benchmark_group("hot cache, hits of each thread");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(1));
    for policy in Policy::ALL.iter().copied() {
        let (cache, held) = filled(LARGE, Variant::Fd, policy);
        // A power of a fraction: near enough to a zipf, without its cost.
        let skewed = |i: u64| {
            let fraction = (scattered(i) >> 11) as f64 / (1u64 << 53) as f64;
            held[(fraction.powi(6) * held.len() as f64) as usize]
        };
        let asked: Vec<Spot> = (0..1 << 16).map(skewed).collect();
        // Until levels hardly rise any more, as in a cache at rest.
        together(&cache, &asked, 1, 40_000_000);
        for threads in [1, 2] {
            group.bench_function(BenchmarkId::new(policy.to_string(), threads), |b| {
                b.iter_custom(|rounds| together(&cache, &asked, threads, rounds));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pieces, scaling);
criterion_main!(benches);
