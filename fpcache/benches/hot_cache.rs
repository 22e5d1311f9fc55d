//! The hot cache, piece by piece, by variant; and two threads against one.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpcache::cache::{CacheHandle, CacheProbe, CacheShape, CachedSlot, HotCache, Policy, Variant};
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

fn cache_probe(key: u64) -> CacheProbe {
    let slot = (key % 190) as u32;
    let window = Window { first: slot.saturating_sub(32), last: (slot + 32).min(189) };
    CacheProbe {
        hash: scattered(key),
        key,
        predicted: slot,
        window,
        slots: 4096 + key / 190 * 6_112,
        slot_bytes: 24,
    }
}

fn cache(bytes: usize, variant: Variant, policy: Policy) -> HotCache {
    let shape = CacheShape { variant, policy, epsilon: 32, segments: 100_000, keys: u64::MAX };
    HotCache::new(bytes, &shape).expect("room for buckets")
}

/// A full cache, and keys that have entries, in random order.
fn filled(bytes: usize, variant: Variant, policy: Policy) -> (HotCache, Vec<CacheProbe>) {
    let cache = cache(bytes, variant, policy);
    let mut handle = cache.handle(1);
    let keys = 0..2 * cache.capacity();
    keys.clone().for_each(|key| cache.learn(&cache_probe(key), cache_probe(key).predicted, 544, &mut handle));
    let mut held: Vec<CacheProbe> =
        keys.map(cache_probe).filter(|probe| cache.probe(probe).is_some()).collect();
    held.sort_unstable_by_key(|probe| scattered(probe.hash));
    if bytes == SMALL {
        // The questions themselves should not push the cache out of the processor's.
        held.truncate(4096);
    }
    // A few hits on all, as in a cache that has been used.
    for _ in 0..8 {
        for probe in &held {
            black_box(hit(&cache, probe, &mut handle));
        }
    }
    (cache, held)
}

#[inline]
fn hit(cache: &HotCache, probe: &CacheProbe, handle: &mut CacheHandle) -> Option<CachedSlot> {
    let hint = cache.probe(probe)?;
    cache.confirm(probe, hint, handle);
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
            let mut handle = cache.handle(2);
            group.bench_function(id("probe hit"), |b| {
                let mut probes = held.iter().cycle();
                b.iter(|| probes.next().and_then(|probe| cache.probe(probe)));
            });
            group.bench_function(id("probe and confirm"), |b| {
                let mut probes = held.iter().cycle();
                b.iter(|| probes.next().and_then(|probe| hit(&cache, probe, &mut handle)));
            });
            let strangers: Vec<CacheProbe> = (1 << 40..(1 << 40) + (1 << 16)).map(cache_probe).collect();
            group.bench_function(id("probe miss"), |b| {
                let mut probes = strangers.iter().cycle();
                b.iter(|| probes.next().and_then(|probe| cache.probe(probe)));
            });
            group.bench_function(id("learn, full"), |b| {
                let mut key = 1 << 41;
                b.iter(|| {
                    key += 1;
                    let probe = cache_probe(key);
                    cache.learn(&probe, probe.predicted, 544, &mut handle);
                });
            });
        }
    }
    for policy in Policy::ALL.iter().copied() {
        let (cache, held) = filled(SMALL, Variant::Fd, policy);
        let mut handle = cache.handle(2);
        group.bench_function(BenchmarkId::new("probe and confirm by policy", policy), |b| {
            let mut probes = held.iter().cycle();
            b.iter(|| probes.next().and_then(|probe| hit(&cache, probe, &mut handle)));
        });
        group.bench_function(BenchmarkId::new("learn by policy", policy), |b| {
            let mut key = 1 << 41;
            b.iter(|| {
                key += 1;
                let probe = cache_probe(key);
                cache.learn(&probe, probe.predicted, 544, &mut handle);
            });
        });
    }
    group.finish();
}

/// How long `threads` threads take for `rounds` hits each, skewed to a few keys.
fn together(cache: &HotCache, asked: &[CacheProbe], threads: usize, rounds: u64) -> Duration {
    let barrier = Barrier::new(threads);
    let times = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut handle = cache.handle(thread as u64);
                let mut probes = asked.iter().cycle().skip(thread * asked.len() / threads);
                barrier.wait();
                let start = Instant::now();
                for _ in 0..rounds {
                    black_box(probes.next().and_then(|probe| hit(cache, probe, &mut handle)));
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
        let asked: Vec<CacheProbe> = (0..1 << 16).map(skewed).collect();
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
