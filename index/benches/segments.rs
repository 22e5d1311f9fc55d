//! Training, placement and prediction, per key.

#[path = "../tests/common/mod.rs"]
mod common;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fpcache_index::{Piece, SegmentModel, SegmentOptions, Segmenter, count_segments};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::hint::black_box;

const LOG2_KEYS: u32 = 20;

fn uniform(len: usize) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(2);
    let mut keys: Vec<u64> = (0..len).map(|_| rng.random()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn cut(keys: &[u64], options: SegmentOptions) -> Vec<Piece> {
    let mut segmenter = Segmenter::new(options).expect("valid options");
    let mut pieces: Vec<_> = keys.iter().filter_map(|&key| segmenter.push(key).expect("ascending")).collect();
    pieces.extend(segmenter.finish());
    pieces
}

fn training(c: &mut Criterion) {
    let sets = [
        ("fb-like", common::fb_like(LOG2_KEYS, 1)),
        ("uniform", uniform(1 << LOG2_KEYS)),
        ("sequential", (0..1 << LOG2_KEYS).collect()),
    ];
    let mut group = c.benchmark_group("train");
    group.sample_size(20);
    for (name, keys) in &sets {
        group.throughput(Throughput::Elements(keys.len() as u64));
        for epsilon in [8, 64, 256] {
            let options = SegmentOptions { epsilon, ..SegmentOptions::default() };
            let segments = count_segments(keys.iter().copied(), epsilon).expect("ascending");
            println!(
                "{name} ε {epsilon}: {:.1} keys per uncapped segment",
                keys.len() as f64 / segments as f64
            );
            group.bench_function(format!("push/{name}/{epsilon}"), |b| b.iter(|| cut(keys, options)));
        }
    }
    group.finish();
}

fn placement(c: &mut Criterion) {
    let keys = common::fb_like(LOG2_KEYS, 1);
    let mut group = c.benchmark_group("place");
    group.sample_size(20).throughput(Throughput::Elements(keys.len() as u64));
    for epsilon in [8, 32, 64] {
        for fill in [0.7, 0.85, 1.0] {
            let options = SegmentOptions { epsilon, fill, ..SegmentOptions::default() };
            let pieces = cut(&keys, options);
            let place = || {
                let mut first = 0;
                let segments = pieces.iter().flat_map(|piece| {
                    first += piece.keys;
                    piece.place(&keys[first - piece.keys..first], &options)
                });
                segments.map(|segment| u64::from(segment.model.epsilon) * segment.keys as u64).sum::<u64>()
            };
            println!("ε {epsilon} fill {fill}: mean stored ε {:.1}", place() as f64 / keys.len() as f64);
            group.bench_function(format!("fb-like/{epsilon}/{fill}"), |b| b.iter(place));
        }
    }
    group.finish();
}

fn prediction(c: &mut Criterion) {
    let keys = common::fb_like(16, 1);
    let options = SegmentOptions { epsilon: 64, ..SegmentOptions::default() };
    let piece = cut(&keys, options)[0];
    let model = piece.place(&keys[..piece.keys], &options)[0].model;
    let probes = keys[..piece.keys].to_vec();
    let mut group = c.benchmark_group("predict");
    group.throughput(Throughput::Elements(probes.len() as u64));
    let windows =
        |model: SegmentModel| probes.iter().map(|&x| model.window(x).first).fold(0, u32::wrapping_add);
    group.bench_function("window", |b| {
        b.iter_batched(|| model, |m| windows(black_box(m)), BatchSize::SmallInput)
    });
    group.bench_function("dependent", |b| {
        b.iter(|| probes.iter().fold(0u32, |slot, &x| black_box(model).predict(x + u64::from(slot & 1))))
    });
    group.finish();
}

criterion_group!(benches, training, placement, prediction);
criterion_main!(benches);
