//! Segments of byte strings: encoders compared, training, coding.
//!
//! `FPCACHE_BENCH_LINES=words=/path,domains=/path` adds key sets from files, a key a line;
//! `FPCACHE_BENCH_SETS=paths,ycsb` picks sets. What does not depend on the clock is printed as a
//! table.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpcache_index::strings::{Cutter, KeyEncoder, StringSegment, Training, common_prefix, partition};
use fpcache_index::{SegmentOptions, Segmenter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Keys = Vec<Vec<u8>>;

/// One key in this many is in the sample.
const RATE: usize = 20;

fn sorted(mut keys: Keys) -> Keys {
    keys.sort_unstable();
    keys.dedup();
    // Copied, they lie in memory in their order: it is not the memory's latency that is measured.
    keys.to_vec()
}

/// A choice among `n` whose first ones are the most frequent.
fn skewed(rng: &mut SmallRng, n: usize) -> usize {
    (n as f64 * rng.random::<f64>().powi(3)) as usize
}

const SYLLABLES: [&str; 24] = [
    "ka", "mo", "ri", "ten", "sol", "ver", "ba", "lu", "ne", "dor", "qui", "ash", "el", "on", "ter", "mi",
    "gra", "pho", "xen", "is", "re", "un", "con", "st",
];

fn word(rng: &mut SmallRng, longest: usize) -> String {
    (0..rng.random_range(1..=longest)).map(|_| SYLLABLES[skewed(rng, SYLLABLES.len())]).collect()
}

fn words(count: usize) -> Keys {
    let mut rng = SmallRng::seed_from_u64(1);
    let endings = ["", "", "s", "'s", "ed", "ing", "er", "ly", "ness"];
    let make = |_| {
        let stem = word(&mut rng, 6);
        format!("{stem}{}", endings[skewed(&mut rng, endings.len())]).into_bytes()
    };
    sorted((0..count).map(make).collect())
}

fn domains(count: usize) -> Keys {
    let mut rng = SmallRng::seed_from_u64(2);
    let parents: Vec<String> = (0..200)
        .map(|_| format!("{}.{}", word(&mut rng, 4), ["com", "net", "org", "de", "io"][skewed(&mut rng, 5)]))
        .collect();
    let make = |_| {
        let host = word(&mut rng, 3);
        let number: String = if rng.random() { rng.random_range(0..300).to_string() } else { String::new() };
        format!("{host}{number}-{}.{}", word(&mut rng, 2), parents[skewed(&mut rng, parents.len())])
            .into_bytes()
    };
    sorted((0..count).map(make).collect())
}

/// Files of a tree whose directories lie 4 to 12 deep, all of them below long common beginnings.
fn paths(count: usize) -> Keys {
    let mut rng = SmallRng::seed_from_u64(3);
    let names: Vec<String> = (0..3000).map(|_| word(&mut rng, 4)).collect();
    let mut keys = Vec::with_capacity(count);
    for volume in 0.. {
        if keys.len() >= count {
            break;
        }
        let tenant = &names[skewed(&mut rng, names.len())];
        let root = format!("/srv/storage/volumes/production-cluster-{:02}/tenants/{tenant}/home", volume % 7);
        let (depth, files) = (rng.random_range(3..=8), rng.random_range(1_000..40_000));
        directory(&root, depth, files, &names, &mut rng, &mut keys);
    }
    sorted(keys)
}

fn directory(path: &str, depth: usize, files: usize, names: &[String], rng: &mut SmallRng, keys: &mut Keys) {
    let name = |rng: &mut SmallRng| names[skewed(rng, names.len())].as_str();
    if depth == 0 || files < 6 {
        let kind = rng.random_range(0..10);
        for i in 0..files {
            let file = match kind {
                0..3 => format!("IMG_{:08}.jpg", 20_170_000 + i * rng.random_range(1..4)),
                3..5 => format!("part-{i:05}-c0ffee{:06x}.parquet", rng.random_range(0..1 << 24)),
                _ => {
                    let ending = ["rs", "txt", "json", "png", "toml", "md", "class"][rng.random_range(0..7)];
                    format!("{}_{}.{ending}", name(rng), name(rng))
                }
            };
            keys.push(format!("{path}/{file}").into_bytes());
        }
        return;
    }
    let shares: Vec<f64> = (0..rng.random_range(1..=8)).map(|_| rng.random::<f64>().powi(2)).collect();
    let sum: f64 = shares.iter().sum();
    for share in shares {
        let below = format!("{path}/{}-{}", name(rng), name(rng));
        directory(&below, depth - 1, (files as f64 * share / sum) as usize, names, rng, keys);
    }
}

/// `user` and the hash of a number in decimal, padded to `bytes`.
fn ycsb(count: u64, bytes: usize) -> Keys {
    let hash = |i: u64| {
        i.to_le_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
    };
    let make = |i| {
        let mut key = format!("user{}", hash(i)).into_bytes();
        key.resize(bytes.max(key.len()), b'0');
        key
    };
    sorted((0..count).map(make).collect())
}

/// Random bytes, half of them zero.
fn binary(count: usize) -> Keys {
    let mut rng = SmallRng::seed_from_u64(4);
    let make = |_| {
        (0..rng.random_range(1..24)).map(|_| if rng.random() { 0 } else { rng.random() }).collect::<Vec<u8>>()
    };
    sorted((0..count).map(make).collect())
}

/// Keys that are prefixes of one another, all but the shortest.
fn prefixes(count: usize) -> Keys {
    let (mut rng, mut keys) = (SmallRng::seed_from_u64(5), Vec::with_capacity(count));
    while keys.len() < count {
        let mut key = Vec::new();
        for _ in 0..200 {
            key.push(rng.random_range(b'a'..=b'd'));
            keys.push(key.clone());
        }
    }
    sorted(keys)
}

fn sets() -> Vec<(String, Keys)> {
    let chosen = std::env::var("FPCACHE_BENCH_SETS").ok();
    let wanted = |name: &str| chosen.as_ref().is_none_or(|chosen| chosen.split(',').any(|c| c == name));
    type Generate = fn() -> Keys;
    let generated: [(&str, Generate); 7] = [
        ("words", || words(600_000)),
        ("domains", || domains(250_000)),
        ("paths", || paths(500_000)),
        ("ycsb", || ycsb(1_000_000, 0)),
        ("ycsb-128", || ycsb(1_000_000, 128)),
        ("binary", || binary(300_000)),
        ("prefixes", || prefixes(100_000)),
    ];
    let mut sets: Vec<_> = generated
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, generate)| ((*name).to_owned(), generate()))
        .collect();
    for set in std::env::var("FPCACHE_BENCH_LINES").unwrap_or_default().split(',') {
        if let Some((name, path)) = set.split_once('=') {
            let bytes = std::fs::read(path).expect("a readable file");
            let lines =
                bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line.len() <= 4096);
            sets.push((format!("{name} (file)"), sorted(lines.map(<[u8]>::to_vec).collect())));
        }
    }
    sets
}

fn encoders(keys: &Keys) -> Vec<(&'static str, KeyEncoder, f64)> {
    let sample = || keys.iter().step_by(RATE).map(|key| &key[..]);
    let trained = |order, max_bytes| {
        let training = Training { table_keys: keys.len() as u64, max_bytes, order };
        let start = Instant::now();
        let encoder = KeyEncoder::train(sample(), &training);
        (encoder, start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64)
    };
    let mut encoders = vec![("base 256", KeyEncoder::plain(), 0.0)];
    for (name, order, bytes) in [
        ("order 0", 0, 16 << 10),
        ("order 1, 16 KiB", 1, 16 << 10),
        ("order 2, 16 KiB", 2, 16 << 10),
        ("order 2, 64 KiB", 2, 64 << 10),
    ] {
        let (encoder, ns) = trained(order, bytes);
        encoders.push((name, encoder, ns));
    }
    encoders
}

/// Keys timed at a time: short enough that some run of several is not interrupted.
const TIMED: usize = 2_000;

/// Nanoseconds per key: for every piece of work the fastest of several runs, so that what else the
/// machine does counts little.
fn fastest(keys: &Keys, runs: usize, mut run: impl FnMut(&mut dyn FnMut(f64))) -> f64 {
    let mut least: Vec<f64> = Vec::new();
    for _ in 0..runs {
        let mut at = 0;
        run(&mut |seconds| {
            if at == least.len() {
                least.push(seconds);
            }
            least[at] = least[at].min(seconds);
            at += 1;
        });
    }
    least.iter().sum::<f64>() * 1e9 / keys.len() as f64
}

/// The segments of the keys, and nanoseconds per key to make them.
fn cut(keys: &Keys, encoder: &Arc<KeyEncoder>) -> (Vec<StringSegment>, f64) {
    let mut segments = Vec::new();
    let ns = fastest(keys, 5, |time| {
        segments.clear();
        let mut cutter = Cutter::new(SegmentOptions::default(), Arc::clone(encoder)).expect("valid options");
        for some in keys.chunks(TIMED) {
            let start = Instant::now();
            for key in some {
                cutter.push(key).expect("ascending");
            }
            time(start.elapsed().as_secs_f64());
            segments.extend(cutter.drain());
        }
        let start = Instant::now();
        cutter.finish();
        time(start.elapsed().as_secs_f64());
        segments.extend(cutter.drain());
    });
    (segments, ns)
}

/// Nanoseconds to code a key after what its segment skips.
fn code_ns(keys: &Keys, segments: &[StringSegment], encoder: &KeyEncoder) -> f64 {
    let skips: Vec<usize> =
        segments.iter().flat_map(|s| std::iter::repeat_n(usize::from(s.skip), s.placed.keys)).collect();
    fastest(keys, 5, |time| {
        for (keys, skips) in keys.chunks(TIMED).zip(skips.chunks(TIMED)) {
            let start = Instant::now();
            let codes = keys.iter().zip(skips).fold(0, |sum, (key, skip)| sum ^ encoder.code(key, *skip));
            time(start.elapsed().as_secs_f64());
            black_box(codes);
        }
    })
}

/// Bytes of the separators, and of what is left of them if each but every 64th is stored by what
/// differs from the one before, with two lengths of a byte.
fn separator_bytes(segments: &[StringSegment]) -> (f64, f64) {
    let n = segments.len() as f64;
    let whole: usize = segments.iter().map(|s| s.start.len()).sum();
    let front: usize = segments
        .chunks(64)
        .map(|block| {
            let rest =
                block.windows(2).map(|p| 2 + p[1].start.len() - common_prefix(&p[0].start, &p[1].start));
            block[0].start.len() + 2 + rest.sum::<usize>()
        })
        .sum();
    (whole as f64 / n, front as f64 / n)
}

fn table(_: &mut Criterion) {
    for (name, keys) in sets() {
        let bytes: usize = keys.iter().map(Vec::len).sum();
        println!("\n{name}: {} keys of {:.1} bytes", keys.len(), bytes as f64 / keys.len() as f64);
        println!(
            "{:<16} {:>9} {:>7} {:>9} {:>7} {:>9} {:>9} {:>8} {:>8} {:>9}",
            "encoder",
            "keys/seg",
            "encoder",
            "separator",
            "front",
            "B/key",
            "B/key f.",
            "train",
            "cut ns",
            "code ns"
        );
        for (encoder_name, encoder, train_ns) in encoders(&keys) {
            let encoder = Arc::new(encoder);
            let (segments, ns) = cut(&keys, &encoder);
            let (n, size) = (keys.len() as f64, encoder.size_in_bytes());
            let per_segment = n / segments.len() as f64;
            let (whole, front) = separator_bytes(&segments);
            let per_key = |separator: f64| (40.0 + separator) / per_segment + size as f64 / n;
            println!(
                "{encoder_name:<16} {per_segment:>9.1} {size:>7} {whole:>9.1} {front:>7.1} {:>9.3} {:>9.3} {train_ns:>8.1} {ns:>8.1} {:>9.1}",
                per_key(whole),
                per_key(front),
                code_ns(&keys, &segments, &encoder),
            );
        }
    }
}

/// What a rebuild does besides what one of `u64` keys does.
fn rebuild(c: &mut Criterion) {
    let mut group = c.benchmark_group("rebuild");
    for (name, keys) in [("words", words(100_000)), ("paths", paths(100_000))] {
        let encoder = KeyEncoder::train(keys.iter().step_by(2).map(|key| &key[..]), &Training::default());
        let some: Vec<&[u8]> = keys[keys.len() / 2..].iter().take(1000).map(|key| &key[..]).collect();
        group.throughput(Throughput::Elements(some.len() as u64));
        group.bench_function(format!("partition/{name}"), |b| {
            b.iter(|| partition(black_box(&some), some[0], &encoder, 20));
        });
    }
    group.finish();
}

/// Equal coordinates allowed against not, over the same coordinates.
fn equal_coordinates(c: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(6);
    let mut xs: Vec<u64> = (0..1 << 18).map(|_| rng.random_range(0..1 << 40)).collect();
    xs.sort_unstable();
    xs.dedup();
    let mut group = c.benchmark_group("push");
    group.throughput(Throughput::Elements(xs.len() as u64)).sample_size(20);
    let segmenter = || Segmenter::new(SegmentOptions::default()).expect("valid options");
    group.bench_function("ascending", |b| {
        b.iter(|| {
            let mut segmenter = segmenter();
            xs.iter().filter(|x| segmenter.push(**x).expect("ascending").is_some()).count()
        });
    });
    group.bench_function("or equal", |b| {
        b.iter(|| {
            let mut segmenter = segmenter();
            xs.iter().filter(|x| segmenter.push_or_equal(**x).expect("ascending").is_some()).count()
        });
    });
    group.finish();
}

criterion_group!(benches, table, rebuild, equal_coordinates);
criterion_main!(benches);
