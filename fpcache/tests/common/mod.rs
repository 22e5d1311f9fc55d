//! A region with a directory of any shape, over segments that hold nothing.

use std::sync::Arc;

use fpcache::key_space::U64Keys;
use fpcache::layout::{
    Descriptor, DirectoryPage, PAGE_BYTES, RootEntry, SegmentAddress, Superblock, TableParameters,
    TableRecord, encode_root,
};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, MappedEndpoint, SharedMemory};
use fpcache_index::{Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64;

/// The first key of the directory's `i`-th segment.
pub fn first_key(i: u64) -> u64 {
    i * 10 + 5
}

/// The generation of the directory's `i`-th segment, which tells it from the others.
pub fn generation(i: u64) -> u32 {
    i as u32 ^ 0x55
}

/// A region whose directory has pages of `counts` segments.
pub struct Region {
    memory: Arc<SharedMemory>,
    hub: Hub,
    pub pages: Vec<u64>,
}

impl Region {
    pub fn new(counts: &[usize]) -> Self {
        Self::with_values(counts, 8)
    }

    /// One for values of so many bytes.
    pub fn with_values(counts: &[usize], value_bytes: u32) -> Self {
        const PAGES: u64 = 8192;
        let bytes = PAGES as usize + counts.len() * (PAGE_BYTES + 16) + PAGE_BYTES;
        // Room for the one segment that all of them are.
        let bytes = (bytes + 20 * (value_bytes as usize + 64)).next_multiple_of(PAGE_BYTES);
        let memory = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
        let segment = |i: u64| Descriptor {
            lo: first_key(i),
            model: SegmentModel { origin: first_key(i), line: Line::from_bits(1), cap: 20, epsilon: 2 },
            address: SegmentAddress::new(0, 4096).expect("a small offset"),
            generation: generation(i),
        };
        let (mut next, mut root) = (0u64, Vec::new());
        for (i, count) in counts.iter().enumerate() {
            let page = PAGES + (i * PAGE_BYTES) as u64;
            let descriptors: Vec<_> = (next..next + *count as u64).map(segment).collect();
            memory.write_bytes(page, &DirectoryPage::encode(&descriptors, 0)).expect("inside");
            root.push(RootEntry { lo: first_key(next), page });
            next += *count as u64;
        }
        let root_bytes = encode_root(&root);
        let at = PAGES + (counts.len() * PAGE_BYTES) as u64;
        memory.write_bytes(at, &root_bytes).expect("inside");
        let record = TableRecord {
            parameters: TableParameters { value_bytes, ..TableParameters::default() },
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
        };
        let superblock = Superblock {
            incarnation: 1,
            region_bytes: bytes as u64,
            sequence: 2,
            reuse_sequence: 0,
            log_head: 0,
            table: Some(record),
        };
        memory.write_bytes(0, &superblock.encode::<U64Keys>()).expect("inside");
        let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).expect("a hub");
        Self { memory, hub, pages: root.iter().map(|entry| entry.page).collect() }
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.hub.connect().expect("a connection").endpoint()
    }

    pub fn page(&self, number: u32, bytes: &mut [u8; PAGE_BYTES]) {
        self.memory.read_bytes(self.pages[number as usize], bytes).expect("inside");
    }
}
