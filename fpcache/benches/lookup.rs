//! Lookups in a region of this process by each plan, one by one and in groups of 32, against a hash
//! map.
//!
//! One million random keys, or as many as `FPCACHE_BENCH_KEYS` says for the lookups beside a map,
//! 8-byte values, keys asked for in random order. The map is the standard library's, which is
//! hashbrown's, with CityHash64. Figures are per key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fpcache::cache::CacheConfig;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{
    Descriptor, DirectoryPage, RootEntry, SLOT_WORD_BYTES, SUPERBLOCK_BYTES, SegmentAddress, SlotWord,
    Superblock, TableParameters, TableRecord, encode_root,
};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Lookup, LookupScratch, NearestScratch, Neighbour, Outcome, Scan, ScanScratch, Side, cache_probe, drive,
    find_nearest, find_nearest_to, look_up,
};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, Endpoint, MappedEndpoint, REGION, RemoteAddr, SharedMemory};
use fpcache_index::{Piece, PlacedSegment, SegmentOptions, Segmenter};
use xxhash_rust::xxh3::xxh3_64;

const KEYS: usize = 1_000_000;
/// Keys looked up together.
const GROUP: usize = 32;
const GENERATION: u32 = 1;

struct Random(u64);

impl Random {
    /// Xorshift (Marsaglia, "Xorshift RNGs", 2003).
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Writes a table of `keys` to a region; a key's value is its position.
struct Builder {
    region: SharedMemory,
    parameters: TableParameters,
    used: u64,
    /// Records in the slot their prediction names.
    at_home: u64,
    descriptors: Vec<Descriptor<U64Keys>>,
}

impl Builder {
    fn build(keys: &[u64], parameters: TableParameters) -> SharedMemory {
        let bytes = 2 * parameters.estimated_bytes(keys.len() as u64, 50.0) as usize;
        let region = SharedMemory::anonymous(bytes).expect("memory");
        let used = SUPERBLOCK_BYTES as u64;
        let mut builder = Self { region, parameters, used, at_home: 0, descriptors: Vec::new() };
        let options = SegmentOptions {
            epsilon: parameters.epsilon,
            fill: parameters.fill,
            max_slots: parameters.max_slots,
            ..SegmentOptions::default()
        };
        let mut segmenter = Segmenter::new(options).expect("options in range");
        let mut pieces: Vec<Piece> =
            keys.iter().filter_map(|key| segmenter.push(*key).expect("ascending keys")).collect();
        pieces.extend(segmenter.finish());
        let mut next = 0;
        for piece in pieces {
            for placed in piece.place(&keys[next..next + piece.keys], &options) {
                builder.write_segment(&keys[next..next + placed.keys], next as u64, &placed);
                next += placed.keys;
            }
        }
        builder.write_directory(keys.len() as u64);
        builder.region
    }

    fn append(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.used;
        self.region.write_bytes(offset, bytes).expect("room for all keys");
        self.used = (offset + bytes.len() as u64).next_multiple_of(8);
        offset
    }

    /// Header and padding stay zero: lookups do not read them.
    fn write_segment(&mut self, keys: &[u64], first: u64, placed: &PlacedSegment) {
        let (geometry, cap) = (self.parameters.geometry(), placed.model.cap);
        let mut image = vec![0; geometry.segment_bytes(cap)];
        for ((key, value), slot) in keys.iter().zip(first..).zip(&placed.slots) {
            self.at_home += u64::from(placed.model.predict(*key) == u32::from(*slot));
            let fingerprint = geometry.width.of_hash(U64Keys::hash(key));
            geometry.width.put(
                &mut image[fpcache::layout::SEGMENT_HEADER_BYTES..],
                usize::from(*slot),
                fingerprint,
            );
            let at = geometry.slot_offset(cap, u32::from(*slot));
            let (word, body) = image[at..at + geometry.slot_bytes].split_at_mut(SLOT_WORD_BYTES);
            body[..8].copy_from_slice(&key.to_le_bytes());
            body[8..16].copy_from_slice(&value.to_le_bytes());
            word.copy_from_slice(&SlotWord::live(GENERATION, 1, body).to_bits().to_le_bytes());
        }
        let offset = self.append(&image);
        let address = SegmentAddress::new(0, offset).expect("a small region");
        self.descriptors.push(Descriptor {
            start: keys[0],
            tail: (),
            model: placed.model,
            address,
            generation: GENERATION,
        });
    }

    fn write_directory(&mut self, keys: u64) {
        let descriptors = std::mem::take(&mut self.descriptors);
        let pages = descriptors.chunks(DirectoryPage::most_descriptors::<U64Keys>());
        let root: Vec<RootEntry<U64Keys>> = pages
            .map(|page| RootEntry {
                start: page[0].start,
                page: self.append(&DirectoryPage::encode(page, 0).0),
            })
            .collect();
        let bytes = encode_root(&root);
        let offset = self.append(&bytes);
        let record = TableRecord {
            parameters: self.parameters,
            keys,
            segments: descriptors.len() as u64,
            root: offset,
            pages: root.len() as u64,
            root_checksum: xxh3_64(&bytes),
            used: self.used,
            at_home: self.at_home,
            checkpoint: 0,
            log: 0,
            log_records: 0,
            root_bytes: bytes.len() as u64,
            encoders: 0,
            encoders_bytes: 0,
            encoders_checksum: 0,
        };
        let region_bytes = self.region.len() as u64;
        let superblock = Superblock {
            incarnation: 1,
            region_bytes,
            sequence: 2,
            reuse_sequence: 0,
            log_head: 0,
            table: Some(record),
        };
        self.region.write_bytes(0, &superblock.encode::<U64Keys>()).expect("room for the superblock");
    }
}

/// CityHash64 of a key.
#[derive(Default)]
struct City(u64);

impl Hasher for City {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = cityhasher::hash(bytes);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = U64Keys::hash(&key);
    }
}

struct Bench {
    endpoint: MappedEndpoint,
    scratch: LookupScratch<U64Keys>,
    /// The endpoint reads as long as its hub is there.
    _hub: Hub,
}

impl Bench {
    fn new(keys: &[u64], width: FingerprintWidth) -> Self {
        Self::with(keys, TableParameters { width, ..TableParameters::default() })
    }

    fn with(keys: &[u64], parameters: TableParameters) -> Self {
        let region = Arc::new(Builder::build(keys, parameters));
        let hub = Hub::new(region, LocalOptions::default()).expect("a hub");
        let endpoint = hub.connect().expect("a connection").endpoint();
        Self { endpoint, scratch: LookupScratch::new(Matcher::detect()), _hub: hub }
    }

    /// The table, read by one plan.
    fn by(&mut self, plan: Plan) -> Table<U64Keys> {
        let options = TableOptions::plan(PlanChoice::Fixed(plan));
        Table::open(&mut self.endpoint, &options).expect("the table just built")
    }

    /// Where the hot cache says that `key`'s record lies.
    fn cached(&mut self, table: &Table<U64Keys>, key: u64) -> RemoteAddr {
        let (view, cache) = (table.view(), table.cache().expect("a hot cache"));
        let probe = cache_probe(view, &key).expect("all models are here");
        let slot = cache.probe(&probe).expect("there is room for every key").slot;
        RemoteAddr { area: REGION, offset: probe.slots + u64::from(slot) * u64::from(probe.slot_bytes) }
    }

    /// The value of `key`.
    #[inline]
    fn get(&mut self, table: &Table<U64Keys>, key: u64) -> u64 {
        let value = |_: &Outcome, value: Option<&[u8]>| value?.first_chunk().copied();
        let found = look_up(&mut self.endpoint, table, &mut self.scratch, &key, value);
        found.expect("nobody writes").map_or(0, u64::from_le_bytes)
    }

    /// The sum of the values of `keys`, looked up as a group.
    #[inline]
    fn group(&mut self, table: &Table<U64Keys>, keys: &[u64]) -> u64 {
        let mut lookup = Lookup::new(table, &mut self.scratch, keys.iter());
        drive(&mut self.endpoint, &mut lookup).expect("nobody writes");
        let values = self.scratch.outcomes().filter_map(|(_, value)| value?.first_chunk().copied());
        values.map(u64::from_le_bytes).fold(0, u64::wrapping_add)
    }
}

fn lookups(c: &mut Criterion) {
    let count = std::env::var("FPCACHE_BENCH_KEYS").map_or(KEYS, |count| count.parse().expect("a number"));
    let mut random = Random(88_172_645_463_325_252);
    let mut keys: Vec<u64> = (0..count).map(|_| random.next()).collect();
    keys.sort_unstable();
    keys.dedup();
    let asked: Vec<(u64, u64)> =
        (0..1 << 20).map(|_| random.next() as usize % keys.len()).map(|i| (keys[i], i as u64)).collect();
    let questions: Vec<u64> = asked.iter().map(|(key, _)| *key).collect();

    let mut group = c.benchmark_group(format!("lookup of {count} keys"));
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits16, FingerprintWidth::Bits64] {
        let mut bench = Bench::new(&keys, width);
        for plan in [Plan::TwoStage, Plan::Range] {
            let table = bench.by(plan);
            for pairs in asked.chunks(GROUP).take(1000) {
                let keys: Vec<u64> = pairs.iter().map(|(key, _)| *key).collect();
                let sum = pairs.iter().fold(0u64, |sum, (_, value)| sum.wrapping_add(*value));
                assert_eq!(bench.group(&table, &keys), sum, "a group is answered right");
                assert_eq!(bench.get(&table, pairs[0].0), pairs[0].1, "a single key is answered right");
            }
            group.throughput(Throughput::Elements(1));
            group.bench_function(BenchmarkId::new(format!("{} get", plan.name()), width), |b| {
                let mut keys = questions.iter().cycle();
                b.iter(|| keys.next().map(|key| bench.get(&table, *key)));
            });
            group.bench_function(
                BenchmarkId::new(format!("{} get of an absent key", plan.name()), width),
                |b| {
                    let mut keys = questions.iter().cycle();
                    b.iter(|| keys.next().map(|key| bench.get(&table, *key ^ 1)));
                },
            );
            group.throughput(Throughput::Elements(GROUP as u64));
            group.bench_function(BenchmarkId::new(format!("{} by {GROUP}", plan.name()), width), |b| {
                let mut groups = questions.chunks(GROUP).cycle();
                b.iter(|| groups.next().map(|keys| bench.group(&table, keys)));
            });
        }
    }
    let map: HashMap<u64, u64, BuildHasherDefault<City>> = keys.iter().copied().zip(0..).collect();
    for size in [1, GROUP] {
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(BenchmarkId::new(format!("map by {size}"), "CityHash64"), |b| {
            let mut chunks = questions.chunks(size).cycle();
            b.iter(|| {
                let keys = chunks.next().unwrap_or_default();
                keys.iter()
                    .filter_map(|key| map.get(black_box(key)))
                    .fold(0, |sum: u64, v| sum.wrapping_add(*v))
            });
        });
    }
    group.finish();
}

/// What a hit of the hot cache costs beyond the READ of its record: both read the same records in
/// the same order. Segments are as short as they may be, so that there are as many models as tens
/// of millions of real keys have.
fn hits(c: &mut Criterion) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| random.next()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut bench = Bench::with(&keys, TableParameters { max_slots: 16, ..TableParameters::default() });
    // With a fixed plan the hot cache is asked for every window, narrow ones included.
    let plan = PlanChoice::Fixed(Plan::TwoStage);
    let options = TableOptions { cache: Some(CacheConfig::of(8 << 20)), ..TableOptions::plan(plan) };
    let table = Table::open(&mut bench.endpoint, &options).expect("the table just built");
    let cache = table.cache().expect("room beside the models");
    bench.scratch = LookupScratch::new(Matcher::detect()).with_cache_handle(cache.handle(1));
    let mut group = c.benchmark_group(format!("record of {} models", table.view().record().segments));
    group.sample_size(20).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_secs(1));
    for hot in [1_000, 10_000, 100_000] {
        let spread = keys.len() / hot;
        let asked: Vec<u64> = (0..1 << 17).map(|_| keys[random.next() as usize % hot * spread]).collect();
        asked.iter().for_each(|key| _ = bench.get(&table, *key));
        let records: Vec<(u64, RemoteAddr)> =
            asked.iter().map(|key| (*key, bench.cached(&table, *key))).collect();
        for dependent in [false, true] {
            let order = if dependent { "one after the other" } else { "independent" };
            let name = |what: &str| BenchmarkId::new(format!("{what} of {hot} hot keys"), order);
            // The next record is known only when the last one's value is, or at once.
            let next = |at: usize, last: u64| {
                (at + 1 + if dependent { (last & 1) as usize } else { 0 }) % records.len()
            };
            group.bench_function(name("hit"), |b| {
                let (mut at, mut last) = (0, 0);
                b.iter(|| {
                    at = next(at, last);
                    last = bench.get(&table, records[at].0);
                    last
                });
            });
            group.bench_function(name("READ"), |b| {
                let (mut at, mut last) = (0, 0);
                b.iter(|| {
                    at = next(at, last);
                    let mut slot = [0; 3];
                    bench.endpoint.read_words(records[at].1, &mut slot).expect("inside the region");
                    last = slot[2];
                    last
                });
            });
        }
    }
    group.finish();
}

/// The nearest record against the record itself, by the plan that a client takes: keys asked for in
/// random order, all of them there, and for floors their successors too, which are not.
fn floors(c: &mut Criterion) {
    let mut random = Random(88_172_645_463_325_252);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| random.next()).collect();
    keys.sort_unstable();
    keys.dedup();
    let asked: Vec<u64> = (0..1 << 20).map(|_| keys[random.next() as usize % keys.len()]).collect();
    let mut group = c.benchmark_group("floor of 1M keys");
    group.sample_size(20).measurement_time(Duration::from_secs(2)).throughput(Throughput::Elements(1));
    let mut bench = Bench::new(&keys, FingerprintWidth::Bits8);
    let table = Table::open(&mut bench.endpoint, &TableOptions::plan(PlanChoice::Auto)).expect("just built");
    group.bench_function("get", |b| {
        let mut keys = asked.iter().cycle();
        b.iter(|| keys.next().map(|key| bench.get(&table, *key)));
    });
    let mut scratch = NearestScratch::default();
    for (name, beside) in [("floor", 0), ("floor beside a key", 1)] {
        group.bench_function(name, |b| {
            let mut keys = asked.iter().cycle();
            b.iter(|| {
                let key = keys.next()?.wrapping_add(beside);
                let take = |found: Option<Neighbour<'_, U64Keys>>, _| {
                    let found = found?;
                    assert_eq!(*found.key + beside, key, "keys are far apart");
                    Some(found.value[0])
                };
                let (endpoint, asked) = (&mut bench.endpoint, (Side::Floor, &key));
                find_nearest_to(endpoint, table.view(), &mut scratch, asked, |_| true, take)
                    .expect("nobody writes")
            });
        });
    }
    group.throughput(Throughput::Elements(GROUP as u64));
    group.bench_function(format!("get by {GROUP}"), |b| {
        let mut groups = asked.chunks(GROUP).cycle();
        b.iter(|| groups.next().map(|keys| bench.group(&table, keys)));
    });
    group.bench_function(format!("floor by {GROUP}"), |b| {
        let mut groups = asked.chunks(GROUP).cycle();
        b.iter(|| {
            let keys = groups.next()?.iter();
            let (endpoint, asked) = (&mut bench.endpoint, (Side::Floor, keys));
            find_nearest(endpoint, table.view(), &mut scratch, asked, |_| true).expect("nobody writes");
            Some(scratch.answers().filter_map(|(found, _)| found).count())
        });
    });
    group.finish();
}

/// Records in order from random keys, up and down. Figures are per record.
fn scans(c: &mut Criterion) {
    let mut random = Random(88_172_645_463_325_252);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| random.next()).collect();
    keys.sort_unstable();
    let starts: Vec<u64> = (0..1 << 16).map(|_| random.next()).collect();
    let mut group = c.benchmark_group("scan of 1M keys");
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    let mut bench = Bench::new(&keys, FingerprintWidth::Bits8);
    let table: Table<U64Keys> =
        Table::open(&mut bench.endpoint, &TableOptions::plan(PlanChoice::Auto)).expect("just built");
    let (endpoint, mut scratch) = (&mut bench.endpoint, ScanScratch::default());
    for limit in [10, 100, 10_000] {
        group.throughput(Throughput::Elements(limit as u64));
        group.bench_function(BenchmarkId::new("up", limit), |b| {
            let mut starts = starts.iter().cycle();
            b.iter(|| {
                let mut scan = Scan::new(table.view(), &mut scratch, starts.next()?, limit);
                drive(endpoint, &mut scan).expect("nobody writes");
                Some(scan.records().len())
            });
        });
        group.bench_function(BenchmarkId::new("down", limit), |b| {
            let mut starts = starts.iter().cycle();
            b.iter(|| {
                let scan = Scan::new(table.view(), &mut scratch, &0, limit);
                let mut scan = scan.until(starts.next()?).descending();
                drive(endpoint, &mut scan).expect("nobody writes");
                Some(scan.records().len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lookups, hits, floors, scans);
criterion_main!(benches);
