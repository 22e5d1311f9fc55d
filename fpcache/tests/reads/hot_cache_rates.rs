//! The share of lookups that the hot cache answers, by policy and kind of requests.
//!
//! The tests that run by default are small. Another prints tables:
//! `cargo test -p fpcache --release --test reads hot_cache_rates -- --ignored --nocapture`.

use fpcache::cache::{CacheHandle, CacheProbe, CacheShape, HotCache, Policy, Variant};
use fpcache_index::Window;

const EPSILON: u32 = 32;
const KEYS_PER_SEGMENT: u64 = 190;
const SLOT_BYTES: u32 = 24;
/// Bytes a miss costs: a window of fingerprints and a slot.
const MISS_BYTES: u32 = 65 * 8 + SLOT_BYTES;

fn scattered(x: u64) -> u64 {
    let mut bits = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        scattered(self.0.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Ranks with probability near (rank + 1)^-theta, exact for the first two (Gray et al., SIGMOD
/// 1994, §3.2).
struct Zipf {
    n: f64,
    theta: f64,
    zeta: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Self {
        let area = |x: f64| (x.powf(1.0 - theta) - 1.0) / (1.0 - theta);
        // Head summed, tail as an area.
        let head: f64 = (1..=100).map(|k| f64::from(k).powf(-theta)).sum();
        Self { n: n as f64, theta, zeta: head + area(n as f64 + 0.5) - area(100.5) }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let uz = u * self.zeta;
        let half = 0.5f64.powf(self.theta);
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + half {
            return 1;
        }
        let alpha = 1.0 / (1.0 - self.theta);
        let eta = (1.0 - (2.0 / self.n).powf(1.0 - self.theta)) / (1.0 - (1.0 + half) / self.zeta);
        ((self.n * (eta * u - eta + 1.0).powf(alpha)) as u64).min(self.n as u64 - 1)
    }
}

/// A bijection of [0, n) by walking cycles of one over the next power of two.
fn permuted(x: u64, n: u64, seed: u64) -> u64 {
    let bits = 64 - (n - 1).leading_zeros();
    let mask = (1u64 << bits) - 1;
    let mut y = x;
    loop {
        for round in 0..3 {
            let odd = scattered(seed ^ round) | 1;
            y = y.wrapping_mul(odd).wrapping_add(odd >> 7) & mask;
            y ^= y >> (bits / 2);
        }
        if y < n {
            return y;
        }
    }
}

fn cache_probe(key: u64) -> CacheProbe {
    let (segment, slot) = (key / KEYS_PER_SEGMENT, (key % KEYS_PER_SEGMENT) as u32);
    let error = (scattered(key ^ 0xabc) % (2 * u64::from(EPSILON) + 1)) as u32;
    let predicted = (slot + error).saturating_sub(EPSILON).min(KEYS_PER_SEGMENT as u32 - 1);
    let window = Window {
        first: predicted.saturating_sub(EPSILON),
        last: (predicted + EPSILON).min(KEYS_PER_SEGMENT as u32 - 1),
    };
    let segment_bytes = 32 + KEYS_PER_SEGMENT * (8 + u64::from(SLOT_BYTES));
    let slots = 4096 + segment * segment_bytes + 32 + KEYS_PER_SEGMENT * 8;
    CacheProbe { hash: scattered(key), key, predicted, window, slots, slot_bytes: SLOT_BYTES }
}

/// The cache under test, as a read path would drive it.
struct Subject {
    cache: HotCache,
    handle: CacheHandle,
}

impl Subject {
    /// In the bytes of `entries` entries: what is kept beside them takes their place.
    fn new(entries: u64, policy: Policy, variant: Variant, keys: u64) -> Self {
        let shape =
            CacheShape { variant, policy, epsilon: EPSILON, segments: keys / KEYS_PER_SEGMENT + 1, keys };
        let per_bucket = match variant {
            Variant::Fd => 16,
            Variant::F => 8,
            Variant::D => 6,
            _ => 4,
        };
        let bytes = (entries * 64 / per_bucket) as usize;
        let cache = HotCache::new(bytes, &shape).expect("room");
        let handle = cache.handle(1);
        Self { cache, handle }
    }

    fn access(&mut self, key: u64) -> bool {
        let probe = cache_probe(key);
        let slot = (key % KEYS_PER_SEGMENT) as u32;
        if let Some(hint) = self.cache.probe(&probe) {
            if hint.slot == slot {
                self.cache.confirm(&probe, hint, &mut self.handle);
                return true;
            }
            self.cache.forget(&probe, hint, &mut self.handle);
        }
        self.cache.learn(&probe, slot, MISS_BYTES, &mut self.handle);
        false
    }
}

/// Least recently used, exactly.
struct Lru {
    /// Towards older and newer, by key; the list's ends are at the last index.
    links: Vec<[u32; 2]>,
    held: u64,
    room: u64,
}

const ABSENT: u32 = u32::MAX;

impl Lru {
    fn new(keys: u64, room: u64) -> Self {
        let mut links = vec![[ABSENT; 2]; keys as usize + 1];
        links[keys as usize] = [keys as u32; 2];
        Self { links, held: 0, room }
    }

    fn unlink(&mut self, key: u32) {
        let [older, newer] = self.links[key as usize];
        self.links[older as usize][1] = newer;
        self.links[newer as usize][0] = older;
        self.links[key as usize] = [ABSENT; 2];
    }

    fn access(&mut self, key: u64) -> bool {
        let (key, end) = (key as u32, self.links.len() as u32 - 1);
        let hit = self.links[key as usize][0] != ABSENT;
        if hit {
            self.unlink(key);
        } else if self.held == self.room {
            let oldest = self.links[end as usize][1];
            self.unlink(oldest);
        } else {
            self.held += 1;
        }
        let newest = self.links[end as usize][0];
        self.links[key as usize] = [newest, end];
        self.links[newest as usize][1] = key;
        self.links[end as usize][0] = key;
        hit
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Popularity scattered over the keys.
    Zipf(f64),
    /// Neighbours are about equally popular.
    Clustered,
    Uniform,
    /// One key in a hundred, all neighbours, gets nine requests in ten.
    Hotspot,
    /// Zipf 0.99, scattered anew every 20 requests per entry.
    Shift,
    /// Keys in turn, half as many again as fit.
    Loop,
}

struct Requests {
    load: Load,
    keys: u64,
    room: u64,
    random: Random,
    zipf: Zipf,
    made: u64,
}

impl Requests {
    fn new(load: Load, keys: u64, room: u64) -> Self {
        let theta = if let Load::Zipf(theta) = load { theta } else { 0.99 };
        Self { load, keys, room, random: Random(7), zipf: Zipf::new(keys, theta), made: 0 }
    }

    /// A key, and whether the best fixed set of entries has it.
    fn next(&mut self) -> (u64, bool) {
        let Self { load, keys, room, random, zipf, made } = self;
        *made += 1;
        let mut ranked = || zipf.rank(random);
        match load {
            Load::Zipf(_) => {
                let rank = ranked();
                (permuted(rank, *keys, 99), rank < *room)
            }
            Load::Shift => {
                let rank = ranked();
                (permuted(rank, *keys, 99 + *made / (20 * *room)), rank < *room)
            }
            Load::Clustered => {
                let rank = ranked();
                (rank, rank < *room)
            }
            Load::Uniform => {
                let key = random.below(*keys);
                (key, key < *room)
            }
            Load::Hotspot if random.below(10) < 9 => {
                let hot = random.below(*keys / 100);
                (*keys / 3 + hot, hot < *room)
            }
            Load::Hotspot => (random.below(*keys), false),
            Load::Loop => {
                let key = *made % (*room * 3 / 2);
                (key, key < *room)
            }
        }
    }
}

/// Per cent of requests answered in each part of a run, by the best fixed set, true LRU and the
/// three policies.
fn rates(load: Load, keys: u64, room: u64, parts: u64, part: u64) -> [Vec<f64>; 5] {
    let mut requests = Requests::new(load, keys, room);
    let mut lru = Lru::new(keys, room);
    let mut subjects =
        Policy::ALL.iter().map(|p| Subject::new(room, *p, Variant::Fd, keys)).collect::<Vec<_>>();
    let mut rates = [const { Vec::new() }; 5];
    for _ in 0..parts {
        let mut hits = [0u64; 5];
        for _ in 0..part {
            let (key, best) = requests.next();
            hits[0] += u64::from(best);
            hits[1] += u64::from(lru.access(key));
            for (hits, subject) in hits[2..].iter_mut().zip(&mut subjects) {
                *hits += u64::from(subject.access(key));
            }
        }
        for (rates, hits) in rates.iter_mut().zip(hits) {
            rates.push(hits as f64 * 100.0 / part as f64);
        }
    }
    rates
}

const COLUMNS: [&str; 5] = ["best set", "true lru", "heat", "frequency", "lru"];

fn last(rates: &[Vec<f64>; 5]) -> [f64; 5] {
    std::array::from_fn(|column| rates[column].last().copied().unwrap_or_default())
}

#[test]
fn heat_and_frequency_come_near_the_best_fixed_set_and_lru_near_itself() {
    // 30 requests per entry: the policies have just seen enough.
    let [best, true_lru, heat, frequency, lru] = last(&rates(Load::Zipf(0.99), 100_000, 10_000, 3, 100_000));
    assert!(best - frequency < 5.0 && best - heat < 5.5, "best {best}, heat {heat}, frequency {frequency}");
    assert!(true_lru - lru < 1.5, "true {true_lru}, ours {lru}");
    assert!(frequency > true_lru + 2.0);
}

#[test]
fn heat_keeps_keys_of_cold_segments_out() {
    let [best, true_lru, heat, frequency, _] = last(&rates(Load::Hotspot, 400_000, 2_000, 4, 40_000));
    assert!(
        heat > frequency + 1.0 && frequency > true_lru,
        "best {best}, heat {heat}, frequency {frequency}"
    );
}

#[test]
fn a_moved_hotspot_is_followed() {
    let room = 5_000;
    let all = rates(Load::Shift, 50_000, room, 40, room);
    for (rates, column) in all.iter().zip(COLUMNS) {
        let (before, after) = (rates[19], rates[29]);
        assert!(after > before * 0.92, "{column}: {before} before, {after} ten requests per entry after");
    }
}

#[test]
fn a_loop_does_not_wash_the_cache_out() {
    let [_, true_lru, heat, frequency, _] = last(&rates(Load::Loop, 50_000, 5_000, 10, 15_000));
    assert!(true_lru < 0.1 && heat > 40.0 && frequency > 40.0, "heat {heat}, frequency {frequency}");
}

#[test]
#[ignore = "minutes: the table in the documentation of `Policy`"]
fn rates_of_20_million_keys() {
    const KEYS: u64 = 20_000_000;
    let zipf = [100_000, 1_000_000, 4_000_000].map(|room| (Load::Zipf(0.99), room));
    let others = [Load::Zipf(0.8), Load::Clustered, Load::Uniform, Load::Loop].map(|load| (load, 1_000_000));
    for (load, room) in
        zipf.into_iter().chain(others).chain([(Load::Hotspot, 100_000), (Load::Shift, 1_000_000)])
    {
        let (parts, part) = if load == Load::Shift { (8, 5_000_000) } else { (4, room.min(1_000_000) * 15) };
        let rates = rates(load, KEYS, room, parts, part);
        println!("{load:?}, {room} entries, parts of {part} requests");
        for (rates, column) in rates.iter().zip(COLUMNS) {
            println!("  {column:10} {}", rates.iter().map(|r| format!("{r:5.1}")).collect::<String>());
        }
        let [_, true_lru, heat, frequency, _] = last(&rates);
        assert!(heat > true_lru - 1.0 && frequency > true_lru - 1.0, "{load:?}, {room} entries");
    }
}
