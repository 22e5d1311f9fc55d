//! What the tests share: a loaded region that can be damaged, and lookups over it.
#![allow(dead_code, reason = "each test uses its share")]

pub mod requests;
pub mod world;

use std::sync::Arc;
use std::time::Instant;

use fpcache::cache::{CacheConfig, HotCache};
use fpcache::key_space::U64Keys;
use fpcache::layout::{SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentGeometry, SlotWord, TableParameters};
use fpcache::matching::Matcher;
use fpcache::read::{
    Lookup, LookupScratch, Outcome, Plan, PlanChoice, ReadError, Scan, ScanScratch, drive, look_up,
};
use fpcache::snapshot::{OpenError, Snapshot};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::local::{Hub, LocalConnection, LocalOptions};
use fpcache_fabric::{Connection, MappedEndpoint, SharedMemory};
use fpcache_memserver::MemoryNode;

/// How a key is looked up: by which plan, and as a call for one key or as a group that happens to have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub plan: Plan,
    pub grouped: bool,
}

/// All ways there are.
pub const WAYS: [Way; 6] = [
    Way { plan: Plan::TwoStage, grouped: false },
    Way { plan: Plan::TwoStage, grouped: true },
    Way { plan: Plan::Range, grouped: false },
    Way { plan: Plan::Range, grouped: true },
    Way { plan: Plan::Speculative, grouped: false },
    Way { plan: Plan::Speculative, grouped: true },
];

/// Those of them that read fingerprints first.
pub const TWO_STAGE: [Way; 2] = [WAYS[0], WAYS[1]];

/// Those that read slots at once.
pub const RANGE: [Way; 2] = [WAYS[2], WAYS[3]];

/// A region with a table, and a connection to it that never reaches the memory node's processor.
pub struct Fixture {
    pub region: Arc<SharedMemory>,
    pub keys: Vec<u64>,
    pub parameters: TableParameters,
    connection: LocalConnection,
    _hub: Hub,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub slot: u64,
    pub fingerprint: u64,
    pub index: u32,
    pub generation: u32,
}

impl Fixture {
    /// A region that holds `keys`, each with the value of [`value_of`] for version 1.
    pub fn new(keys: impl IntoIterator<Item = u64>, parameters: TableParameters) -> Self {
        let keys: Vec<u64> = keys.into_iter().collect();
        let region = Arc::new(SharedMemory::anonymous(1 << 20).expect("memory"));
        let mut node =
            MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
        let value = |i: usize, out: &mut [u8]| out.copy_from_slice(&value_of(keys[i], 1, out.len()));
        node.load(parameters, keys.iter().copied(), value).expect("fits");
        Self::over(region, keys, parameters)
    }

    /// A view of a region whatever it holds.
    pub fn over(region: Arc<SharedMemory>, keys: Vec<u64>, parameters: TableParameters) -> Self {
        let hub = Hub::new(Arc::clone(&region), LocalOptions::default()).expect("a hub");
        let connection = hub.connect().expect("a connection");
        Self { region, keys, parameters, connection, _hub: hub }
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.connection.endpoint()
    }

    pub fn open(&self) -> Result<Snapshot<U64Keys>, OpenError> {
        Snapshot::open(&mut self.endpoint())
    }

    pub fn reader(&self, way: Way) -> Reader {
        Reader::new(self.endpoint(), self.open().expect("an undamaged directory"), way)
    }

    /// A reader with a hot cache of its own.
    pub fn cached_reader(&self, way: Way, cache: CacheConfig) -> Reader {
        Reader::cached(self.endpoint(), self.open().expect("an undamaged directory"), way, Some(cache))
    }

    pub fn geometry(&self) -> SegmentGeometry {
        self.parameters.geometry::<U64Keys>()
    }

    pub fn value(&self, key: u64, version: u32) -> Vec<u8> {
        value_of(key, version, self.parameters.value_bytes as usize)
    }

    /// Finds `key`'s record by looking at every slot of its segment.
    pub fn place_of(&self, key: u64) -> Place {
        let snapshot = self.open().expect("an undamaged directory");
        let segment = snapshot
            .models()
            .resident()
            .expect("opened whole")
            .locate(&key)
            .expect("a table has segments")
            .entry;
        let (geometry, cap, start) = (self.geometry(), segment.model().cap, segment.address().offset());
        for index in 0..u32::from(cap) {
            let slot = start + geometry.slot_offset(cap, index) as u64;
            let image = self.bytes(slot, 16);
            if image[0] & 3 == 2 && image[8..] == key.to_le_bytes() {
                let position = SEGMENT_HEADER_BYTES + index as usize * geometry.width.bytes();
                let fingerprint = start + position as u64;
                return Place { slot, fingerprint, index, generation: segment.generation() };
            }
        }
        panic!("key {key} is not in its segment")
    }

    /// A slot with a live record of `key`.
    pub fn live_image(&self, generation: u32, key: u64, version: u32) -> Vec<u8> {
        let value = self.value(key, version);
        let mut image = vec![0; self.geometry().slot_bytes];
        image[8..16].copy_from_slice(&key.to_le_bytes());
        image[16..16 + value.len()].copy_from_slice(&value);
        let word = SlotWord::live(generation, version, &image[SLOT_WORD_BYTES..]);
        image[..SLOT_WORD_BYTES].copy_from_slice(&word.to_bits().to_le_bytes());
        image
    }

    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.region.read_bytes(offset, &mut bytes).expect("inside the region");
        bytes
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.region.write_bytes(offset, bytes).expect("inside the region");
    }

    /// Runs `check` with `bytes` in the region in place of what is there.
    pub fn with<R>(&self, offset: u64, bytes: &[u8], check: impl FnOnce() -> R) -> R {
        let before = self.bytes(offset, bytes.len());
        self.put(offset, bytes);
        let result = check();
        self.put(offset, &before);
        result
    }
}

/// What `key` is worth in this version: the version, then bytes that depend on both.
pub fn value_of(key: u64, version: u32, len: usize) -> Vec<u8> {
    let seed = key.rotate_left(17) ^ u64::from(version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let rest = (0..len as u64).map(|i| (seed.wrapping_mul(2 * i + 1) >> 37) as u8);
    version.to_le_bytes().into_iter().chain(rest).take(len).collect()
}

/// Distinct ascending keys without any pattern a line would follow: numbers mixed by a bijection (the finaliser of
/// SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub fn scattered(count: u64) -> Vec<u64> {
    let mix = |i: u64| {
        let i = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let i = (i ^ i >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        i ^ i >> 31
    };
    let mut keys: Vec<u64> = (1..=count).map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    keys.sort_unstable();
    keys
}

/// An answer: version and value, or absent.
pub type Answer = Option<(u32, Vec<u8>)>;

/// What a compute node's thread holds.
pub struct Reader {
    endpoint: MappedEndpoint,
    pub table: Table<U64Keys>,
    grouped: bool,
    lookup: LookupScratch<U64Keys>,
    scan: ScanScratch<U64Keys>,
}

impl Reader {
    pub fn new(endpoint: MappedEndpoint, snapshot: Snapshot<U64Keys>, way: Way) -> Self {
        Self::cached(endpoint, snapshot, way, None)
    }

    pub fn cached(
        endpoint: MappedEndpoint,
        snapshot: Snapshot<U64Keys>,
        way: Way,
        cache: Option<CacheConfig>,
    ) -> Self {
        let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(way.plan)) };
        let table = Table::over(snapshot, &options).expect("a budget that is enough");
        let mut lookup = LookupScratch::new(Matcher::detect());
        if let Some(cache) = table.cache() {
            lookup = lookup.with_visitor(cache.visitor(1));
        }
        Self { endpoint, table, grouped: way.grouped, lookup, scan: ScanScratch::default() }
    }

    /// The hot cache; there is one if the reader was made with one.
    pub fn hot(&self) -> &HotCache {
        self.table.cache().expect("made with a hot cache")
    }

    pub fn get(&mut self, key: u64) -> Result<Answer, ReadError> {
        Ok(self.get_with_outcome(key)?.1)
    }

    pub fn get_with_outcome(&mut self, key: u64) -> Result<(Outcome, Answer), ReadError> {
        let take = |outcome: &Outcome, value: Option<&[u8]>| {
            assert_eq!(outcome.version.is_some(), value.is_some());
            (outcome.clone(), outcome.version.zip(value.map(<[u8]>::to_vec)))
        };
        if self.grouped {
            self.run(&[key])?;
            let (outcome, value) = self.lookup.outcomes().next().expect("one key, one outcome");
            return Ok(take(outcome, value));
        }
        look_up(&mut self.endpoint, &self.table, &mut self.lookup, key, take)
    }

    pub fn group(&mut self, keys: &[u64]) -> Result<Vec<Answer>, ReadError> {
        self.run(keys)?;
        assert_eq!(self.lookup.outcomes().len(), keys.len());
        Ok(self.lookup.outcomes().map(|(o, value)| o.version.zip(value.map(<[u8]>::to_vec))).collect())
    }

    fn run(&mut self, keys: &[u64]) -> Result<(), ReadError> {
        let keys = keys.iter().copied();
        drive(&mut self.endpoint, &mut Lookup::new(&self.table, &mut self.lookup, keys))
    }

    pub fn scan(&mut self, start: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, ReadError> {
        let mut scan = Scan::new(self.table.snapshot(), &mut self.scan, start, limit);
        drive(&mut self.endpoint, &mut scan)?;
        Ok(scan.records().map(|(key, value)| (key, value.to_vec())).collect())
    }
}

/// A thread that reads a table of others, hot cache included.
pub struct Sharing<'a> {
    endpoint: MappedEndpoint,
    table: &'a Table<U64Keys>,
    lookup: LookupScratch<U64Keys>,
}

impl<'a> Sharing<'a> {
    pub fn new(endpoint: MappedEndpoint, table: &'a Table<U64Keys>, seed: u64) -> Self {
        let visitor = table.cache().map(|cache| cache.visitor(seed)).unwrap_or_default();
        Self { endpoint, table, lookup: LookupScratch::new(Matcher::detect()).with_visitor(visitor) }
    }

    pub fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        let take = |_: &Outcome, value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        look_up(&mut self.endpoint, self.table, &mut self.lookup, key, take).expect("nobody writes")
    }
}
