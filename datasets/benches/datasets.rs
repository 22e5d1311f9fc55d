//! Generating, reading and requesting: cost per key.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpcache_datasets::bytes::LinesWriter;
use fpcache_datasets::generate::{books::books, fb::FbIds, osm::osm, synthetic, wiki::WikiTimes};
use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
use fpcache_datasets::sosd::SosdWriter;
use fpcache_datasets::{OpenOptions, Spec, SpecKind};

const KEYS: u64 = 1_000_000;

fn generators(c: &mut Criterion) {
    let mut group = c.benchmark_group("generate");
    group.sample_size(10).throughput(Throughput::Elements(KEYS));
    group.bench_function("fb", |b| b.iter(|| FbIds::new(KEYS, 42).fold(0, |sum, key| sum ^ key)));
    group.bench_function("wiki", |b| b.iter(|| WikiTimes::new(KEYS, 42).fold(0, |sum, key| sum ^ key)));
    group.bench_function("osm", |b| b.iter(|| osm(KEYS, 42).fold(0, |sum, key| sum ^ key)));
    group.bench_function("books", |b| b.iter(|| books(KEYS, 42).fold(0, |sum, key| sum ^ key)));
    group.bench_function("uniform", |b| b.iter(|| synthetic::uniform(KEYS as usize, 42)));
    group.bench_function("lognormal", |b| b.iter(|| synthetic::lognormal(KEYS as usize, 42)));
    group.finish();
}

fn byte_strings(c: &mut Criterion) {
    let open = |spec: &Spec| spec.open_bytes(&OpenOptions::default()).expect("a good data set");
    let mut group = c.benchmark_group("bytes");
    group.sample_size(10).throughput(Throughput::Elements(KEYS));
    for name in ["domains:1M", "paths:1M", "ycsb:1M", "binary:1M", "prefixes:1M"] {
        let spec: Spec = name.parse().expect("a spec");
        group.bench_function(name, |b| b.iter(|| open(&spec).len()));
    }
    // Lines in an order that has nothing to do with theirs: reading sorts them.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let paths = open(&"paths:1M".parse().expect("a spec"));
    for (name, step) in [("sorted", 1), ("shuffled", 382_819)] {
        let path = folder.path().join(name);
        let mut writer = LinesWriter::create(&path, false).expect("a new file");
        let mut buffer = Vec::new();
        for i in 0..paths.len() {
            let key = paths.keys().get(i * step % paths.len(), &mut buffer);
            writer.push(key).expect("text without newlines");
        }
        writer.finish().expect("space on the disk");
        let spec = Spec::new(SpecKind::Lines(path), None);
        group.bench_function(format!("lines {name}"), |b| b.iter(|| open(&spec).len()));
    }
    group.finish();
}

fn reading(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("k_uint64");
    let mut writer = SosdWriter::create(&path, false).expect("a new file");
    writer.push(&FbIds::new(KEYS, 42).collect::<Vec<_>>()).expect("ascending keys");
    writer.finish().expect("space on the disk");
    let spec = Spec::new(SpecKind::Sosd(path), None);
    let mut group = c.benchmark_group("read");
    group.sample_size(10).throughput(Throughput::Bytes(KEYS * 8));
    group.bench_function("sosd", |b| {
        b.iter(|| spec.open(&OpenOptions::default()).expect("a good file").len())
    });
    group.finish();
}

fn requests(c: &mut Criterion) {
    let keys: Vec<u64> = FbIds::new(KEYS, 42).collect();
    let lookups = 100_000;
    let mut group = c.benchmark_group("requests");
    group.sample_size(10).throughput(Throughput::Elements(lookups as u64));
    let distributions =
        ["uniform", "sosd", "hotspot:0.01:0.9", "hotset:0.01:0.9", "zipf:0.99", "ycsb-zipf", "latest"];
    for distribution in distributions.map(|text| text.parse::<Distribution>().expect("a distribution")) {
        let options = RequestOptions { lookups, distribution, negative: 0.1, seed: 42, shift_every: None };
        group.bench_function(distribution.to_string(), |b| b.iter(|| generate(black_box(&keys), &options)));
    }
    group.finish();
}

criterion_group!(benches, generators, byte_strings, reading, requests);
criterion_main!(benches);
