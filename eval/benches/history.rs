//! Costs of checking a history.
#![allow(missing_docs, reason = "criterion's macros make the entry points")]
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpcache_eval::history::check;
use fpcache_eval::history::random::{Shape, generate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

fn checks(criterion: &mut Criterion) {
    const OPERATIONS: usize = 1_000_000;
    let mut group = criterion.benchmark_group("history/check");
    group.sample_size(10).throughput(Throughput::Elements(OPERATIONS as u64));
    let base = Shape { processes: 8, operations: OPERATIONS, scans: 0.0, ..Shape::default() };
    let shapes = [
        ("4000 keys", Shape { keys: 4_000, ..base }),
        ("16 keys", Shape { keys: 16, ..base }),
        ("4000 keys, 1 % without answer", Shape { keys: 4_000, unknown: 0.01, ..base }),
        ("4000 keys, 2 % scans of up to 100", Shape { keys: 4_000, scans: 0.02, scan_limit: 100, ..base }),
    ];
    for (name, shape) in shapes {
        let history = generate(&shape, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let checked = check(&history).unwrap();
                assert!(checked.is_linearizable());
                checked
            });
        });
    }
    group.finish();
}

criterion_group!(benches, checks);
criterion_main!(benches);
