//! The paged directory beside a flat sorted array and a `BTreeMap`, from a thousand to four million segments.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fpcache_index::Directory;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::hint::black_box;

/// A model, an address and a generation.
type Entry = [u64; 4];
type Entries = Vec<(u64, Entry)>;

const SEGMENTS: usize = 4_000_000;
const PROBES: usize = 1 << 20;
const OUTLIERS: usize = 21;

/// Entries below separators of the given kind, and as many keys as probes, most of them in segments of ordinary width.
fn entries_and_probes(rng: &mut SmallRng, len: usize, clustered: bool) -> (Entries, Vec<u64>) {
    let separators = if clustered { clustered_separators(rng, len) } else { uniform_separators(rng, len) };
    let ordinary = *separators.iter().rev().nth(OUTLIERS).unwrap_or(&u64::MAX);
    let most = if clustered { ordinary } else { u64::MAX };
    let probes = (0..PROBES).map(|_| rng.random_range(0..=most)).collect();
    (separators.into_iter().map(|separator| (separator, [separator; 4])).collect(), probes)
}

/// As the user ids of the data set fb are: gaps of very different widths, and a few keys far above all others.
fn clustered_separators(rng: &mut SmallRng, len: usize) -> Vec<u64> {
    let mut separator = 1 << 20;
    let ordinary = (OUTLIERS..len).map(|_| {
        let widest = 1_u64 << rng.random_range(4..24);
        separator += rng.random_range(1..widest);
        separator
    });
    let mut separators: Vec<u64> = ordinary.collect();
    separators.extend((0..OUTLIERS).map(|_| rng.random_range(1 << 62..=u64::MAX)));
    separators.sort_unstable();
    separators.dedup();
    separators
}

fn uniform_separators(rng: &mut SmallRng, len: usize) -> Vec<u64> {
    let mut separators: Vec<u64> = (0..len).map(|_| rng.random()).collect();
    separators.sort_unstable();
    separators.dedup();
    separators
}

/// Separators apart from entries, as in the directory's pages: the fair flat opponent.
struct Flat {
    separators: Vec<u64>,
    entries: Vec<Entry>,
}

impl Flat {
    fn new(entries: &Entries) -> Self {
        let (separators, entries) = entries.iter().copied().unzip();
        Self { separators, entries }
    }

    fn locate(&self, key: u64) -> u64 {
        let at = self.separators.partition_point(|&separator| separator <= key).saturating_sub(1);
        self.separators[at] ^ self.separators.get(at + 1).map_or(0, |hi| *hi) ^ self.entries[at][0]
    }
}

fn locate_tree(tree: &Directory<u64, Entry>, key: u64) -> u64 {
    let located = tree.locate(&key).expect("not empty");
    located.lo ^ located.hi.map_or(0, |hi| *hi) ^ located.entry[0]
}

fn locate_map(map: &BTreeMap<u64, Entry>, key: u64) -> u64 {
    map.range(..=key).next_back().map_or(0, |(lo, entry)| lo ^ entry[0])
}

/// One after the other (each key depends on the answer before) and as independent keys.
fn locate_both(c: &mut Criterion, name: &str, probes: &[u64], locate: impl Fn(u64) -> u64) {
    let mut group = c.benchmark_group("locate");
    let mut at = 0;
    let mut answer = 0;
    group.bench_function(format!("{name}/dependent"), |b| {
        b.iter(|| {
            at = (at + 1) % PROBES;
            // The answer's lowest bits alone are mixed in: the key stays as random as it was.
            answer = locate(probes[at] ^ (answer & 1));
            answer
        });
    });
    group.bench_function(format!("{name}/64 independent"), |b| {
        b.iter(|| {
            at = (at + 64) % (PROBES - 64);
            probes[at..at + 64].iter().map(|&key| locate(key)).fold(0, u64::wrapping_add)
        });
    });
    group.finish();
}

fn locate(c: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(1);
    let sizes = [1_000, 20_000, 100_000, 1_000_000, SEGMENTS].map(|segments| (segments, false));
    for (segments, clustered) in sizes.into_iter().chain([(100_000, true), (SEGMENTS, true)]) {
        let (entries, probes) = entries_and_probes(&mut rng, segments, clustered);
        let kind = if clustered { "clustered " } else { "" };
        let tree = Directory::from_sorted(entries.clone()).expect("sorted");
        println!("paged: {:.2} bytes per segment", tree.size_in_bytes() as f64 / tree.len() as f64);
        locate_both(c, &format!("paged/{kind}{segments}"), &probes, |key| locate_tree(&tree, key));
        locate_both(c, &format!("paged, find/{kind}{segments}"), &probes, |key| {
            tree.find(&key).expect("not empty")[0]
        });
        if clustered {
            continue;
        }
        let mut churned = tree.clone();
        for _ in 0..segments / 2 {
            split_one(&mut churned, rng.random());
        }
        let bytes = churned.size_in_bytes() as f64 / churned.len() as f64;
        println!("paged, half split: {bytes:.2} bytes per segment");
        locate_both(c, &format!("paged, half split/{segments}"), &probes, |key| locate_tree(&churned, key));
        let flat = Flat::new(&entries);
        locate_both(c, &format!("flat/{segments}"), &probes, |key| flat.locate(key));
        let map: BTreeMap<_, _> = entries.iter().copied().collect();
        locate_both(c, &format!("btreemap/{segments}"), &probes, |key| locate_map(&map, key));
    }
}

/// Replaces the segment of `key` by two.
fn split_one(tree: &mut Directory<u64, Entry>, key: u64) {
    let located = tree.locate(&key).expect("not empty");
    let (lo, hi) = (*located.lo, located.hi.copied());
    let middle = lo + (hi.unwrap_or(u64::MAX) - lo) / 2;
    let with = [(lo, [1; 4]), (middle, [2; 4])];
    let with = if middle > lo { &with[..] } else { &with[..1] };
    tree.replace(&lo, hi.as_ref(), with).expect("a valid replacement");
}

fn replace_one(tree: &mut Directory<u64, Entry>, key: u64) {
    let located = tree.locate(&key).expect("not empty");
    let (lo, hi) = (*located.lo, located.hi.copied());
    tree.replace(&lo, hi.as_ref(), &[(lo, [key; 4])]).expect("a valid replacement");
}

fn replace(c: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(2);
    let (entries, _) = entries_and_probes(&mut rng, SEGMENTS, false);
    let tree = Directory::from_sorted(entries.clone()).expect("sorted");
    let mut group = c.benchmark_group("replace");

    let mut own = Directory::from_sorted(entries.clone()).expect("sorted");
    group.bench_function("paged/one by one", |b| b.iter(|| replace_one(&mut own, rng.random())));
    group.bench_function("paged/one by two", |b| b.iter(|| split_one(&mut own, rng.random())));
    drop(own);
    let mut published = tree.clone();
    group.bench_function("paged/one by two, published each time", |b| {
        b.iter(|| {
            let mut next = published.clone();
            split_one(&mut next, rng.random());
            published = next;
        });
    });
    group.bench_function("paged/64 of one by two, published once", |b| {
        b.iter(|| {
            let mut next = published.clone();
            for _ in 0..64 {
                split_one(&mut next, rng.random());
            }
            published = next;
        });
    });
    drop(published);
    group.bench_function("paged/clone", |b| b.iter(|| black_box(&tree).clone()));
    drop(tree);

    let mut map: BTreeMap<_, _> = entries.iter().copied().collect();
    group.bench_function("btreemap/one by two", |b| {
        b.iter(|| {
            let key: u64 = rng.random();
            let lo = map.range(..=key).next_back().map_or(0, |(lo, _)| *lo);
            map.insert(lo, [1; 4]);
            map.insert(key, [2; 4]);
        });
    });
    drop(map);
    let mut flat = Flat::new(&entries);
    group.sample_size(10);
    group.bench_function("flat/one by two", |b| {
        b.iter_batched(
            || rng.random::<u64>(),
            |key| {
                let at = flat.separators.partition_point(|&separator| separator <= key);
                flat.separators.insert(at, key);
                flat.entries.insert(at, [1; 4]);
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, locate, replace);
criterion_main!(benches);
