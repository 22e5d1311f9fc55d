//! The search for a fingerprint in a window: every kernel this processor runs, by width and window
//! length.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::matching::{Fingerprints, Matcher};
use zerocopy::IntoBytes;

/// Slots of a window: epsilon 8, 32, 64 and 256.
const WINDOWS: [usize; 4] = [17, 65, 129, 513];

/// A window without reserved fingerprints, the wanted one in the middle.
fn window(width: FingerprintWidth, slots: usize) -> (Vec<u64>, u64) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut words = vec![0; (slots * width.bytes()).div_ceil(8)];
    let window = words.as_mut_bytes();
    for slot in 0..slots {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        width.put(window, slot, width.of_hash(state ^ state >> 32));
    }
    let wanted = width.of_hash(0x5555_5555_5555_5555);
    width.put(window, slots / 2, wanted);
    (words, wanted)
}

fn kernels(c: &mut Criterion) {
    for width in FingerprintWidth::ALL {
        let mut group = c.benchmark_group(format!("match {width}"));
        for slots in WINDOWS {
            let (window, wanted) = window(width, slots);
            group.throughput(Throughput::Elements(slots as u64));
            for matcher in Matcher::available() {
                group.bench_function(BenchmarkId::new(matcher.name(), slots), |b| {
                    let mut found = Vec::new();
                    b.iter(|| {
                        found.clear();
                        let window = Fingerprints::new(width, slots, black_box(&window));
                        let frozen = matcher.find(window, wanted, 0, &mut found);
                        assert!(!frozen && !black_box(&found).is_empty());
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
