//! Planning a rebuild: cutting, fitting and placing the gathered records.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fpcache_datasets::{OpenOptions, Spec};
use fpcache_memserver::rebuild::choose::choose_slot;
use fpcache_memserver::rebuild::plan::{Gathered, RebuildOptions, plan};

/// As many keys as a segment of that many slots holds when it is rebuilt, from the middle of a data
/// set.
fn gathered(spec: &str, slots: usize) -> Vec<u64> {
    let spec: Spec = spec.parse().expect("a spec");
    let keys = spec.open(&OpenOptions::default()).expect("generated keys").into_keys();
    keys[keys.len() / 2..][..slots * 9 / 10].to_vec()
}

fn plans(c: &mut Criterion) {
    let options = RebuildOptions::default();
    let mut group = c.benchmark_group("plan");
    for slots in [4096, 170] {
        for kind in ["uniform", "fb"] {
            let xs = gathered(&format!("{kind}:100K"), slots);
            let count = xs.len() as u32;
            let (first_x, last_x) = (xs[0], xs[xs.len() - 1].saturating_add(u64::MAX / 4));
            // Inserts at random: a permutation of as many ages. The last third of a run.
            let scattered: Vec<u32> = (0..count).map(|i| i * 7_919 % count).collect();
            let run = |i: u32| if i < count / 3 * 2 { u32::MAX } else { count - i };
            let appended: Vec<u32> = (0..count).map(run).collect();
            for (what, ages) in [("scattered", &scattered), ("appended", &appended)] {
                let gathered = Gathered { first_x, last_x, xs: &xs, ages };
                group.bench_function(format!("{kind}/{slots}/{what}"), |b| {
                    b.iter(|| plan(black_box(&gathered), &options))
                });
            }
        }
    }
    group.finish();
}

fn choosing(c: &mut Criterion) {
    let free: Vec<u32> = (100..165).step_by(5).collect();
    let window = fpcache_index::Window { first: 100, last: 164 };
    c.bench_function("choose_slot", |b| b.iter(|| choose_slot(black_box(&free), 133, window)));
}

criterion_group!(benches, plans, choosing);
criterion_main!(benches);
