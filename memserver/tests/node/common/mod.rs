//! Shared by the tests: a loaded region that can be damaged, and lookups over it.
#![allow(dead_code, reason = "each test uses its share")]

pub mod damage;
#[macro_use]
pub mod keys;
pub mod requests;
pub mod world;

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use fpcache::cache::{CacheConfig, HotCache};
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentGeometry, SlotWord, Stored, TableParameters,
};
use fpcache::matching::Matcher;
use fpcache::models::Segment;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Cost, Lookup, LookupScratch, Outcome, ReadError, Scan, ScanScratch, Wanted, contains, drive, look_up,
    look_up_all,
};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use fpcache_fabric::local::{Hub, LocalConnection, LocalOptions};
use fpcache_fabric::{Connection, MappedEndpoint, SharedMemory};
use fpcache_index::Window;
use fpcache_memserver::MemoryNode;
use keys::{Integers, Key, TestKeys};

/// How a key is looked up: by which plan, and as a call for one key or as a group that happens to
/// have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub plan: Plan,
    pub grouped: bool,
}

/// All ways there are in a table without groups.
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

/// Keys in order, each with its value.
pub type Records = Vec<(u64, Vec<u8>)>;

/// Those that read groups of slots, where the table has any.
pub const GROUPS: [Way; 2] =
    [Way { plan: Plan::Groups, grouped: false }, Way { plan: Plan::Groups, grouped: true }];

/// A region with a table, and a connection to it that never reaches the memory node's processor.
pub struct Fixture<T: TestKeys = Integers> {
    pub region: Arc<SharedMemory>,
    /// The numbers of its keys.
    pub keys: Vec<u64>,
    pub parameters: TableParameters,
    connection: LocalConnection,
    _hub: Hub,
    _kind: std::marker::PhantomData<T>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub slot: u64,
    pub fingerprint: u64,
    pub index: u32,
    pub generation: u32,
}

impl<T: TestKeys> Fixture<T> {
    /// A region that holds the keys of these numbers, each with the value of [`value_of`] for
    /// version 1.
    pub fn new(keys: impl IntoIterator<Item = u64>, parameters: TableParameters) -> Self {
        let keys: Vec<u64> = keys.into_iter().collect();
        let region = Arc::new(SharedMemory::anonymous(2 << 20).expect("memory"));
        let mut node =
            MemoryNode::<T::Space>::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
        let value = |key| value_of::<T>(key, 1, T::value_bytes(&parameters.shape));
        let records = keys.iter().map(|key| (T::key(*key), value(*key)));
        node.load_records(parameters, T::encoders(), records).expect("fits");
        Self::over(region, keys, parameters)
    }

    /// A view of a region whatever it holds.
    pub fn over(region: Arc<SharedMemory>, keys: Vec<u64>, parameters: TableParameters) -> Self {
        let hub = Hub::new(Arc::clone(&region), LocalOptions::default()).expect("a hub");
        let connection = hub.connect().expect("a connection");
        Self { region, keys, parameters, connection, _hub: hub, _kind: std::marker::PhantomData }
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.connection.endpoint()
    }

    pub fn open(&self) -> Result<TableView<T::Space>, OpenError> {
        TableView::open(&mut self.endpoint())
    }

    pub fn reader(&self, way: Way) -> Reader<T> {
        Reader::new(self.endpoint(), self.open().expect("an undamaged directory"), way)
    }

    /// A reader with a hot cache of its own.
    pub fn cached_reader(&self, way: Way, cache: CacheConfig) -> Reader<T> {
        Reader::cached(self.endpoint(), self.open().expect("an undamaged directory"), way, Some(cache))
    }

    pub fn geometry(&self) -> SegmentGeometry {
        self.parameters.geometry()
    }

    pub fn value(&self, key: u64, version: u32) -> Vec<u8> {
        value_of::<T>(key, version, T::value_bytes(&self.parameters.shape))
    }

    /// The segment of a key, and the key's window there.
    pub fn window_of(&self, key: u64) -> (Segment<T::Space>, Window) {
        let view = self.open().expect("an undamaged directory");
        let key = T::key(key);
        let found = view.models().resident().expect("opened whole").locate(key.borrow());
        let found = found.expect("a table has segments");
        let shared = T::Space::shared(key.borrow(), found.start.borrow());
        let x = found.entry.coordinate(key.borrow(), shared, view.encoders());
        (*found.entry, found.entry.model().window(x))
    }

    /// Finds `key`'s record by looking at every slot of its segment.
    pub fn place_of(&self, key: u64) -> Place {
        let (segment, _) = self.window_of(key);
        let (geometry, cap, start) = (self.geometry(), segment.model().cap, segment.address().offset());
        for index in 0..u32::from(cap) {
            let slot = start + geometry.slot_offset(cap, index) as u64;
            let image = self.bytes(slot, geometry.slot_bytes);
            if image[0] & 3 == 2 && self.key_in(&image) == Some(key) {
                let position = SEGMENT_HEADER_BYTES + geometry.fingerprint_bytes(index as usize);
                let fingerprint = start + position as u64;
                return Place { slot, fingerprint, index, generation: segment.generation() };
            }
        }
        panic!("key {key} is not in its segment")
    }

    /// The number of the key in a slot that holds a record.
    pub fn key_in(&self, slot: &[u8]) -> Option<u64> {
        let parts = self.parameters.shape.parts::<T::Space>(&slot[SLOT_WORD_BYTES..])?;
        T::Space::view(parts.key).map(|key| T::number(key.borrow()))
    }

    /// Where in a slot the key lies, and the lengths before it.
    pub fn key_bytes(&self, key: u64) -> std::ops::Range<u64> {
        let bytes = T::Space::encoded_len(T::key(key).borrow()) + self.parameters.shape.head_bytes();
        8..8 + bytes as u64
    }

    /// A slot with a live record of `key`.
    pub fn live_image(&self, generation: u32, key: u64, version: u32) -> Vec<u8> {
        let mut image = vec![0; self.geometry().slot_bytes];
        let body = &mut image[SLOT_WORD_BYTES..];
        let shape = self.parameters.shape;
        shape.fill::<T::Space>(body, T::key(key).borrow(), &Stored::Here(&self.value(key, version)));
        let word = SlotWord::live(generation, version, body);
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

/// What the key of this number is worth in this version: the version, then bytes that depend on
/// both; at most `most`.
pub fn value_of<T: TestKeys>(key: u64, version: u32, most: usize) -> Vec<u8> {
    let seed = key.rotate_left(17) ^ u64::from(version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let rest = (0..most as u64).map(|i| (seed.wrapping_mul(2 * i + 1) >> 37) as u8);
    let len = T::value_len(key, version.into(), most);
    version.to_le_bytes().into_iter().chain(rest).take(len).collect()
}

/// A number that looks drawn at random, another for each.
pub fn mix(i: u64) -> u64 {
    let i = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let i = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let i = (i ^ i >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    i ^ i >> 31
}

/// Distinct ascending keys without any pattern a line would follow: numbers mixed by a bijection
/// (the finaliser of SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
pub fn scattered(count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (1..=count).map(mix).collect();
    keys.sort_unstable();
    keys
}

/// An answer: version and value, or absent.
pub type Answer = Option<(u32, Vec<u8>)>;

/// What a compute node's thread holds. Keys go by their numbers.
pub struct Reader<T: TestKeys = Integers> {
    endpoint: MappedEndpoint,
    pub table: Table<T::Space>,
    grouped: bool,
    lookup: LookupScratch<T::Space>,
    scan: ScanScratch<T::Space>,
}

impl<T: TestKeys> Reader<T> {
    pub fn new(endpoint: MappedEndpoint, view: TableView<T::Space>, way: Way) -> Self {
        Self::cached(endpoint, view, way, None)
    }

    pub fn cached(
        endpoint: MappedEndpoint,
        view: TableView<T::Space>,
        way: Way,
        cache: Option<CacheConfig>,
    ) -> Self {
        let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(way.plan)) };
        let table = Table::over(view, &options).expect("a budget that is enough");
        let mut lookup = LookupScratch::new(Matcher::detect());
        if let Some(cache) = table.cache() {
            lookup = lookup.with_cache_handle(cache.handle(1));
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
        look_up(&mut self.endpoint, &self.table, &mut self.lookup, T::key(key).borrow(), take)
    }

    pub fn group(&mut self, keys: &[u64]) -> Result<Vec<Answer>, ReadError> {
        self.run(keys)?;
        assert_eq!(self.lookup.outcomes().len(), keys.len());
        Ok(self.lookup.outcomes().map(|(o, value)| o.version.zip(value.map(<[u8]>::to_vec))).collect())
    }

    /// Whether a key is there, where it lies.
    pub fn contains(&mut self, key: u64) -> Result<bool, ReadError> {
        let key = T::key(key);
        let Self { endpoint, table, lookup, .. } = self;
        contains(endpoint, table, lookup, key.borrow(), |outcome| outcome.version.is_some())
    }

    /// The same for a group of keys.
    pub fn contains_all(&mut self, keys: &[u64]) -> Result<Vec<bool>, ReadError> {
        let keys: Vec<Key<T>> = keys.iter().map(|key| T::key(*key)).collect();
        let keys = keys.iter().map(Borrow::borrow);
        look_up_all(&mut self.endpoint, &self.table, &mut self.lookup, keys, Wanted::Presence)?;
        Ok(self.lookup.outcomes().map(|(outcome, _)| outcome.version.is_some()).collect())
    }

    /// The same in batches, as over a network, into buffers that have not been used before.
    pub fn contains_in_batches(&mut self, keys: &[u64]) -> Result<Vec<bool>, ReadError> {
        let keys: Vec<Key<T>> = keys.iter().map(|key| T::key(*key)).collect();
        let mut scratch = LookupScratch::new(Matcher::detect());
        let lookup = Lookup::new(&self.table, &mut scratch, keys.iter().map(Borrow::borrow));
        drive(&mut self.endpoint, &mut lookup.of(Wanted::Presence))?;
        Ok(scratch.outcomes().map(|(outcome, _)| outcome.version.is_some()).collect())
    }

    fn run(&mut self, keys: &[u64]) -> Result<(), ReadError> {
        let keys: Vec<Key<T>> = keys.iter().map(|key| T::key(*key)).collect();
        let keys = keys.iter().map(Borrow::borrow);
        drive(&mut self.endpoint, &mut Lookup::new(&self.table, &mut self.lookup, keys))
    }

    pub fn scan(&mut self, start: u64, limit: usize) -> Result<Records, ReadError> {
        Ok(self.scan_until(start, None, limit)?.0)
    }

    /// The records from one key on, up to another one if there is one, and what they cost.
    pub fn scan_until(
        &mut self,
        start: u64,
        end: Option<u64>,
        limit: usize,
    ) -> Result<(Records, Cost), ReadError> {
        let start = T::key(start);
        let mut scan = Scan::new(self.table.view(), &mut self.scan, start.borrow(), limit)
            .with_groups(self.table.groups());
        if let Some(end) = end {
            scan = scan.until(T::key(end).borrow());
        }
        drive(&mut self.endpoint, &mut scan)?;
        let records = scan.records().map(|(key, value)| (T::number(key), value.to_vec())).collect();
        Ok((records, scan.cost()))
    }
}

/// A thread that reads a table of others, hot cache included.
pub struct Sharing<'a, T: TestKeys = Integers> {
    endpoint: MappedEndpoint,
    table: &'a Table<T::Space>,
    lookup: LookupScratch<T::Space>,
}

impl<'a, T: TestKeys> Sharing<'a, T> {
    pub fn new(endpoint: MappedEndpoint, table: &'a Table<T::Space>, seed: u64) -> Self {
        let handle = table.cache().map(|cache| cache.handle(seed)).unwrap_or_default();
        Self { endpoint, table, lookup: LookupScratch::new(Matcher::detect()).with_cache_handle(handle) }
    }

    pub fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        let take = |_: &Outcome, value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let key = T::key(key);
        look_up(&mut self.endpoint, self.table, &mut self.lookup, key.borrow(), take).expect("nobody writes")
    }
}
