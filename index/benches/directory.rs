//! The paged directory beside a flat sorted array and a `BTreeMap`, from a thousand to four million
//! segments.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fpcache_index::{Directory, ScalarSteps};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

/// A model, an address and a generation.
type Entry = [u64; 4];
type Entries = Vec<(u64, Entry)>;

const SEGMENTS: usize = 4_000_000;
const PROBES: usize = 1 << 20;
const OUTLIERS: usize = 21;

/// Entries below separators of the given kind, and as many keys as probes, most of them in segments
/// of ordinary width.
fn entries_and_probes(rng: &mut SmallRng, len: usize, clustered: bool) -> (Entries, Vec<u64>) {
    let separators = if clustered { clustered_separators(rng, len) } else { uniform_separators(rng, len) };
    let ordinary = *separators.iter().rev().nth(OUTLIERS).unwrap_or(&u64::MAX);
    let most = if clustered { ordinary } else { u64::MAX };
    let probes = (0..PROBES).map(|_| rng.random_range(0..=most)).collect();
    (separators.into_iter().map(|separator| (separator, [separator; 4])).collect(), probes)
}

/// As the user ids of the data set fb are: gaps of very different widths, and a few keys far above
/// all others.
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
        self.separators[at] ^ self.separators.get(at + 1).map_or(0, |end| *end) ^ self.entries[at][0]
    }
}

fn locate_tree(tree: &Directory<u64, Entry>, key: u64) -> u64 {
    let located = tree.locate(&key).expect("not empty");
    located.start ^ located.end.unwrap_or(0) ^ located.entry[0]
}

/// Finds keys one stage after the other.
fn find_in_stages(tree: &Directory<u64, Entry>, keys: &[u64]) -> u64 {
    let mut pages = [None; 16];
    for (page, key) in pages.iter_mut().zip(keys) {
        *page = tree.page_for(key, ScalarSteps);
    }
    let pages = || pages.iter().flatten().zip(keys);
    pages().for_each(|(page, key)| page.prefetch(key, ScalarSteps));
    pages()
        .map(|(page, key)| page.find_shared(key, ScalarSteps).expect("not empty").0[0])
        .fold(0, u64::wrapping_add)
}

fn locate_map(map: &BTreeMap<u64, Entry>, key: u64) -> u64 {
    map.range(..=key).next_back().map_or(0, |(start, entry)| start ^ entry[0])
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
        let mut at = 0;
        let mut group = c.benchmark_group("locate");
        group.bench_function(format!("paged, find in stages/{kind}{segments}/64 independent"), |b| {
            b.iter(|| {
                at = (at + 64) % (PROBES - 64);
                probes[at..at + 64]
                    .chunks(16)
                    .map(|keys| find_in_stages(&tree, keys))
                    .fold(0, u64::wrapping_add)
            });
        });
        group.finish();
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
    let (start, end) = (located.start, located.end);
    let middle = start + (end.unwrap_or(u64::MAX) - start) / 2;
    let with = [(start, [1; 4]), (middle, [2; 4])];
    let with = if middle > start { &with[..] } else { &with[..1] };
    tree.replace(&start, end.as_ref(), with).expect("a valid replacement");
}

fn replace_one(tree: &mut Directory<u64, Entry>, key: u64) {
    let located = tree.locate(&key).expect("not empty");
    let (start, end) = (located.start, located.end);
    tree.replace(&start, end.as_ref(), &[(start, [key; 4])]).expect("a valid replacement");
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
            let start = map.range(..=key).next_back().map_or(0, |(start, _)| *start);
            map.insert(start, [1; 4]);
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

/// Byte strings beside numbers, `find` and `locate`. Ratios of one run are printed with the sizes,
/// because figures of one group that were taken minutes apart tell little on a machine that others
/// use.
fn bytes(c: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(3);
    for segments in [20_000, 200_000] {
        let (entries, probes) = entries_and_probes(&mut rng, segments, false);
        let numbers = Directory::<u64, Entry>::from_sorted(entries).expect("sorted");
        for keys in [random_keys, ycsb_keys, word_keys, path_keys] {
            let (kind, mut keys) = keys(&mut rng, 8 * segments);
            keys.sort_unstable();
            keys.dedup();
            let separators = separators(&keys, keys.len() / segments);
            let bytes: usize = separators.iter().map(Vec::len).sum();
            let entries = separators.into_iter().zip(0..).map(|(separator, i)| (separator, [i; 4])).collect();
            let tree = Directory::<[u8], Entry>::from_sorted(entries).expect("sorted");
            let probe_keys = Probes::new(&mut rng, &keys);
            drop(keys);
            let find =
                || (0..PROBES).fold(0, |sum, i| sum ^ tree.find(probe_keys.get(i)).map_or(0, |e| e[0]));
            let find_number =
                || probes.iter().fold(0, |sum, key| sum ^ numbers.find(key).map_or(0, |e| e[0]));
            let one_by_one = || (0..PROBES).fold(0, |last, i| next(tree.find(probe_keys.get(i ^ last))));
            let numbers_one_by_one = || (0..PROBES).fold(0, |last, i| next(numbers.find(&probes[i ^ last])));
            println!(
                "bytes/{kind}/{segments}: separators of {:.1} bytes, {:.1} bytes per segment beside the entry; \
                 find {:.2} times as long as for numbers, {:.2} times one after the other",
                bytes as f64 / tree.len() as f64,
                tree.size_in_bytes() as f64 / tree.len() as f64 - size_of::<Entry>() as f64,
                ratio(find, find_number),
                ratio(one_by_one, numbers_one_by_one),
            );
            let mut group = c.benchmark_group("bytes");
            let mut at = 0;
            let mut key = || {
                at = (at + 1) % PROBES;
                probe_keys.get(at)
            };
            group.bench_function(format!("find/{kind}/{segments}"), |b| {
                b.iter(|| tree.find(key()).map(|entry| entry[0]));
            });
            group.bench_function(format!("locate/{kind}/{segments}"), |b| {
                b.iter(|| tree.locate(key()).map(|located| located.entry[0]));
            });
            let mut own = tree.clone();
            group.bench_function(format!("replace one by one/{kind}/{segments}"), |b| {
                b.iter(|| {
                    let located = own.locate(key()).expect("not empty");
                    let (start, end) = (located.start, located.end);
                    let with = [(start, [1; 4])];
                    own.replace(&with[0].0, end.as_deref(), &with).expect("a valid replacement");
                });
            });
            group.finish();
        }
    }
}

/// Lets the next key depend on what was found, without changing much of where it lies.
fn next(found: Option<&Entry>) -> usize {
    found.map_or(0, |entry| (entry[0] & 1) as usize)
}

/// Keys one after the other, so that reading them costs no cache misses.
struct Probes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Probes {
    fn new(rng: &mut SmallRng, keys: &[Vec<u8>]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for _ in 0..PROBES {
            bytes.extend_from_slice(&keys[rng.random_range(0..keys.len())]);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.ends[index]..self.ends[index + 1]]
    }
}

/// How much longer the first takes than the second: least times of runs that take turns.
fn ratio<A, B>(first: impl Fn() -> A, second: impl Fn() -> B) -> f64 {
    let mut least = [f64::MAX; 2];
    for _ in 0..10 {
        let start = Instant::now();
        black_box(first());
        least[0] = least[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        black_box(second());
        least[1] = least[1].min(start.elapsed().as_secs_f64());
    }
    least[0] / least[1]
}

/// As a table has them: a segment of `keys_per_segment` keys begins with what its first key does
/// not share with the key before it, or what all of its keys share, whichever is longer.
fn separators(keys: &[Vec<u8>], keys_per_segment: usize) -> Vec<Vec<u8>> {
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let mut separators = vec![Vec::new()];
    let mut before = &keys[keys_per_segment - 1];
    for segment in keys[keys_per_segment..].chunks(keys_per_segment) {
        let last = &segment[segment.len() - 1];
        let len = (shared(before, &segment[0]) + 1).max(shared(&segment[0], last));
        separators.push(segment[0][..len].to_vec());
        before = last;
    }
    separators
}

fn random_keys(rng: &mut SmallRng, count: usize) -> (&'static str, Vec<Vec<u8>>) {
    ("random, 16 bytes", (0..count).map(|_| rng.random::<[u8; 16]>().to_vec()).collect())
}

fn ycsb_keys(rng: &mut SmallRng, count: usize) -> (&'static str, Vec<Vec<u8>>) {
    ("user...", (0..count).map(|_| format!("user{}", rng.random::<u64>()).into_bytes()).collect())
}

fn word_keys(rng: &mut SmallRng, count: usize) -> (&'static str, Vec<Vec<u8>>) {
    const SYLLABLES: [&str; 16] = [
        "al", "ba", "con", "der", "est", "ing", "is", "lo", "ma", "ne", "o", "per", "ra", "sta", "tion", "un",
    ];
    let mut word = || {
        let syllables = rng.random_range(2..6);
        let word: String = (0..syllables).map(|_| SYLLABLES[rng.random_range(0..16)]).collect();
        format!("{word}{}", char::from(rng.random_range(b'a'..=b'z'))).into_bytes()
    };
    ("words", (0..count).map(|_| word()).collect())
}

fn path_keys(rng: &mut SmallRng, count: usize) -> (&'static str, Vec<Vec<u8>>) {
    const FOLDERS: [&str; 12] = [
        "archive",
        "backup",
        "config",
        "data",
        "documents",
        "images",
        "include",
        "lib",
        "projects",
        "resources",
        "src",
        "test",
    ];
    let mut path = || {
        let mut path = "/srv/storage/home".to_owned();
        for _ in 0..rng.random_range(3..9) {
            let folder = FOLDERS[(rng.random::<f64>().powi(2) * 12.0) as usize];
            path = format!("{path}/{folder}{}", rng.random_range(0..30));
        }
        format!("{path}/file{:05}.txt", rng.random_range(0..100_000)).into_bytes()
    };
    ("paths", (0..count).map(|_| path()).collect())
}

criterion_group!(benches, locate, replace, bytes);
criterion_main!(benches);
