//! A region with a directory of any shape, over segments that hold nothing.
#![allow(dead_code, reason = "each test uses its share")]

use std::marker::PhantomData;
use std::sync::Arc;

use fpcache::key_space::{ByteKeys, ByteTail, KeySpace, U64Keys};
use fpcache::layout::{
    Descriptor, DirectoryPage, RecordShape, RootEntry, SegmentAddress, Superblock, TableParameters,
    TableRecord, encode_root,
};
use fpcache::table_view::{OpenError, TableView};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, MappedEndpoint, SharedMemory};
use fpcache_index::{Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64;

/// A key space with first keys for any number of segments.
pub trait Firsts: KeySpace {
    /// Where keys are put that a test looks up.
    fn key(number: u64) -> Self::Owned;
    /// What the `i`-th segment skips.
    fn tail(i: u64) -> Self::Tail;
    /// Records with values of `value_bytes` bytes.
    fn shape(value_bytes: u32) -> RecordShape;
    /// Segments that a page has room for.
    fn full() -> usize;
    /// Bytes that such a page takes at most when it is kept.
    fn kept_bytes() -> usize;
}

impl Firsts for U64Keys {
    fn key(number: u64) -> u64 {
        number
    }

    fn tail(_: u64) {}

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape::fixed(8, value_bytes)
    }

    fn full() -> usize {
        102
    }

    fn kept_bytes() -> usize {
        4096 + 150
    }
}

impl Firsts for ByteKeys {
    /// Paths in folders of a hundred, some of them deep: now short, now with much that the one
    /// before has, too.
    fn key(number: u64) -> Vec<u8> {
        let folder = number / 1000;
        let deep = "/deep".repeat((folder % 7 * (folder % 7) % 7) as usize);
        format!("/{folder:08}{deep}/{:03}", number % 1000).into_bytes()
    }

    fn tail(i: u64) -> ByteTail {
        ByteTail { skip: (i % 5) as u16, encoder: 0 }
    }

    fn shape(value_bytes: u32) -> RecordShape {
        RecordShape { key_bytes: None, value_bytes: Some(value_bytes), room: value_bytes + 100 }
    }

    fn full() -> usize {
        200
    }

    fn kept_bytes() -> usize {
        22_000
    }
}

/// The first key of the directory's `i`-th segment.
pub fn first_key<K: Firsts>(i: u64) -> K::Owned {
    K::key(i * 10 + 5)
}

/// The fewest bytes with which the region's models can be used, as the error for fewer tells.
pub fn least_bytes<K: Firsts>(region: &Region<K>) -> u64 {
    match TableView::<K>::open_within(&mut region.endpoint(), 1) {
        Err(OpenError::Budget { least, .. }) => least,
        other => panic!("{other:?}"),
    }
}

/// The generation of the directory's `i`-th segment, which tells it from the others.
pub fn generation(i: u64) -> u32 {
    i as u32 ^ 0x55
}

/// A region whose directory has pages of `counts` segments.
pub struct Region<K: Firsts> {
    memory: Arc<SharedMemory>,
    hub: Hub,
    pub pages: Vec<u64>,
    keys: PhantomData<K>,
}

impl<K: Firsts> Region<K> {
    pub fn new(counts: &[usize]) -> Self {
        Self::with_values(counts, 8)
    }

    /// One for values of `value_bytes` bytes.
    pub fn with_values(counts: &[usize], value_bytes: u32) -> Self {
        Self::with_firsts(counts, value_bytes, first_key::<K>)
    }

    /// One whose segments begin with these keys.
    pub fn with_firsts(counts: &[usize], value_bytes: u32, first: impl Fn(u64) -> K::Owned) -> Self {
        const PAGES: u64 = 8192;
        let bytes = PAGES as usize + counts.len() * (K::PAGE_BYTES + 1200) + 2 * K::PAGE_BYTES;
        // Room for the one segment that all of them are.
        let bytes = (bytes + 20 * (value_bytes as usize + 164)).next_multiple_of(4096);
        let memory = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
        let segment = |i: u64| Descriptor::<K> {
            start: first(i),
            tail: K::tail(i),
            model: SegmentModel { origin: i * 10 + 5, line: Line::from_bits(1), cap: 20, epsilon: 2 },
            address: SegmentAddress::new(0, 4096).expect("a small offset"),
            generation: generation(i),
        };
        let (mut next, mut root) = (0u64, Vec::new());
        for (i, count) in counts.iter().enumerate() {
            let page = PAGES + (i * K::PAGE_BYTES) as u64;
            let descriptors: Vec<_> = (next..next + *count as u64).map(segment).collect();
            let (encoded, held) = DirectoryPage::encode(&descriptors, 0);
            assert_eq!(held, *count, "they fit a page");
            memory.write_bytes(page, &encoded).expect("inside");
            root.push(RootEntry::<K> { start: first(next), page });
            next += *count as u64;
        }
        let root_bytes = encode_root(&root);
        let at = PAGES + (counts.len() * K::PAGE_BYTES) as u64;
        memory.write_bytes(at, &root_bytes).expect("inside");
        let encoders = K::encode_encoders(&K::Encoders::default());
        let at_encoders = (at + root_bytes.len() as u64).next_multiple_of(8);
        memory.write_bytes(at_encoders, &encoders).expect("inside");
        let record = TableRecord {
            parameters: TableParameters { shape: K::shape(value_bytes), ..TableParameters::default() },
            keys: next,
            segments: next,
            root: at,
            pages: counts.len() as u64,
            root_checksum: xxh3_64(&root_bytes),
            used: bytes as u64,
            at_home: 0,
            checkpoint: 0,
            log: 0,
            log_records: 0,
            root_bytes: root_bytes.len() as u64,
            encoders: at_encoders,
            encoders_bytes: encoders.len() as u64,
            encoders_checksum: xxh3_64(&encoders),
        };
        let superblock = Superblock {
            incarnation: 1,
            region_bytes: bytes as u64,
            sequence: 2,
            reuse_sequence: 0,
            log_head: 0,
            table: Some(record),
        };
        memory.write_bytes(0, &superblock.encode::<K>()).expect("inside");
        let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).expect("a hub");
        Self { memory, hub, pages: root.iter().map(|entry| entry.page).collect(), keys: PhantomData }
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.hub.connect().expect("a connection").endpoint()
    }

    pub fn page(&self, number: u32, bytes: &mut [u8]) {
        self.memory.read_bytes(self.pages[number as usize], bytes).expect("inside");
    }
}
