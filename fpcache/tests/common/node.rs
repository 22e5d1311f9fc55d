//! A memory node made by hand: segments of a few records that can be changed, replaced and used again step by step.
#![allow(dead_code, reason = "each test uses its share")]

use std::collections::BTreeMap;
use std::sync::Arc;

use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::{
    CHANGE_RECORD_BYTES, ChangeRecord, Descriptor, DirectoryPage, LOG_HEAD_OFFSET, PAGE_BYTES, REUSE_OFFSET,
    RootEntry, SEGMENT_HEADER_BYTES, SegmentAddress, SegmentGeometry, SlotState, SlotWord, Superblock,
    TableParameters, TableRecord, encode_root,
};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    AreaId, AreaInfo, Batch, Completion, Connection, Deadline, Endpoint, FabricError, MappedEndpoint, Meter,
    Rejected, RemoteAddr, SharedMemory, Ticket,
};
use fpcache_index::{Line, SegmentModel};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Slots of every segment, and half of a window.
pub const CAP: u16 = 16;
pub const EPSILON: u16 = 2;

/// A region, who writes it, and what it should hold.
pub struct Node {
    pub memory: Arc<SharedMemory>,
    hub: Hub,
    pub parameters: TableParameters,
    /// The segments in use, by first key.
    pub segments: BTreeMap<u64, Descriptor>,
    pub records: BTreeMap<u64, u64>,
    free: u64,
    generation: u32,
    pub head: u64,
    pub log: u64,
    pub log_records: u64,
    superblock: Superblock,
}

impl Node {
    /// A table of these records, in segments that begin at these keys.
    pub fn new(firsts: &[u64], records: &[(u64, u64)], log_records: u64, value_bytes: u32) -> Self {
        let bytes = 4 << 20;
        let memory = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
        let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).expect("a hub");
        let parameters =
            TableParameters { value_bytes, epsilon: EPSILON.into(), ..TableParameters::default() };
        let superblock = Superblock {
            incarnation: 1,
            region_bytes: bytes as u64,
            sequence: 0,
            reuse_sequence: 0,
            log_head: 0,
            table: None,
        };
        let mut node = Self {
            memory,
            hub,
            parameters,
            segments: BTreeMap::new(),
            records: records.iter().copied().collect(),
            free: 8192 + log_records * CHANGE_RECORD_BYTES as u64,
            generation: 0,
            head: 0,
            log: 8192,
            log_records,
            superblock,
        };
        for (i, lo) in firsts.iter().enumerate() {
            let segment = node.build(*lo, firsts.get(i + 1).map_or(u64::MAX, |next| next - 1));
            node.segments.insert(*lo, segment);
        }
        node.checkpoint();
        node
    }

    pub fn geometry(&self) -> SegmentGeometry {
        self.parameters.geometry::<U64Keys>()
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.hub.connect().expect("a connection").endpoint()
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        self.memory.write_bytes(offset, bytes).expect("inside the region");
    }

    fn take(&mut self, bytes: usize) -> u64 {
        let offset = self.free;
        self.free = (offset + bytes as u64).next_multiple_of(8);
        offset
    }

    pub fn value(&self, value: u64) -> Vec<u8> {
        value.to_le_bytes().into_iter().cycle().take(self.parameters.value_bytes as usize).collect()
    }

    /// The bytes of a live slot.
    pub fn slot(&self, segment: &Descriptor, version: u32, key: u64, value: u64) -> Vec<u8> {
        let mut slot = vec![0; self.geometry().slot_bytes];
        slot[8..16].copy_from_slice(&key.to_le_bytes());
        slot[16..16 + self.parameters.value_bytes as usize].copy_from_slice(&self.value(value));
        let word = SlotWord::live(segment.generation, version, &slot[8..]).to_bits();
        slot[..8].copy_from_slice(&word.to_le_bytes());
        slot
    }

    pub fn slot_at(&self, segment: &Descriptor, index: u32) -> u64 {
        segment.address.offset() + self.geometry().slot_offset(segment.model.cap, index) as u64
    }

    pub fn fingerprint_at(&self, segment: &Descriptor, index: u32) -> u64 {
        segment.address.offset()
            + (SEGMENT_HEADER_BYTES + index as usize * self.parameters.width.bytes()) as u64
    }

    pub fn fingerprint(&self, key: u64) -> Vec<u8> {
        let width = self.parameters.width;
        width.of_hash(U64Keys::hash(&key)).to_le_bytes()[..width.bytes()].to_vec()
    }

    /// Writes a segment with what the range from `lo` to `hi` holds: one slot per key, from the first key on.
    pub fn build(&mut self, lo: u64, hi: u64) -> Descriptor {
        self.generation += 1;
        let offset = self.take(self.geometry().segment_bytes(CAP));
        let segment = Descriptor {
            lo,
            model: SegmentModel { origin: lo, line: Line::from_bits(1), cap: CAP, epsilon: EPSILON },
            address: SegmentAddress::new(0, offset).expect("a small offset"),
            generation: self.generation,
        };
        let records: Vec<(u64, u64)> =
            self.records.range(lo..=hi).map(|(key, value)| (*key, *value)).collect();
        let mut taken = [false; CAP as usize];
        for (key, value) in records {
            let window = segment.model.window(key);
            let index =
                (window.first..=window.last).find(|i| !taken[*i as usize]).expect("room in the window");
            taken[index as usize] = true;
            self.put(self.slot_at(&segment, index), &self.slot(&segment, 1, key, value));
            self.put(self.fingerprint_at(&segment, index), &self.fingerprint(key));
        }
        segment
    }

    /// Writes directory and table record anew.
    pub fn checkpoint(&mut self) {
        let all: Vec<Descriptor> = self.segments.values().copied().collect();
        let mut root = Vec::new();
        for page in all.chunks(2) {
            let at = self.take(PAGE_BYTES);
            self.put(at, &DirectoryPage::encode(page, self.head));
            root.push(RootEntry { lo: page[0].lo, page: at });
        }
        let bytes = encode_root(&root);
        let at = self.take(bytes.len());
        self.put(at, &bytes);
        self.superblock.table = Some(TableRecord {
            parameters: self.parameters,
            keys: self.records.len() as u64,
            segments: all.len() as u64,
            root: at,
            pages: root.len() as u64,
            root_checksum: xxh3_64_with_seed(&bytes, self.head),
            used: self.free,
            at_home: 0,
            checkpoint: self.head,
            log: self.log,
            log_records: self.log_records,
        });
        self.superblock.sequence += 2;
        self.superblock.log_head = self.head;
        self.put(0, &self.superblock.encode::<U64Keys>());
    }

    pub fn checkpoint_sequence(&self) -> u64 {
        self.superblock.table.expect("there is one").checkpoint
    }

    /// Says that memory replaced before this sequence is used again.
    pub fn reuse(&mut self, sequence: u64) {
        self.superblock.reuse_sequence = self.superblock.reuse_sequence.max(sequence);
        self.put(REUSE_OFFSET, &self.superblock.reuse_sequence.to_le_bytes());
    }

    pub fn log_record(&self, record: &ChangeRecord) {
        let at = ChangeRecord::offset(self.log, self.log_records, record.sequence);
        self.put(at, &record.encode());
    }

    pub fn set_head(&mut self, head: u64) {
        self.head = head;
        self.put(LOG_HEAD_OFFSET, &head.to_le_bytes());
    }

    /// Replaces the segments from the one that begins at `lo` up to the one that ends at `hi` by segments that begin at
    /// these keys, `lo` the first of them. Returns the old ones, frozen.
    pub fn replace(&mut self, lo: u64, hi: u64, firsts: &[u64]) -> Vec<Descriptor> {
        let new: Vec<Descriptor> = firsts
            .iter()
            .enumerate()
            .map(|(i, first)| self.build(*first, firsts.get(i + 1).map_or(hi, |next| next - 1)))
            .collect();
        for (part, descriptor) in (0..).zip(&new) {
            let (sequence, parts) = (self.head + u64::from(part), new.len() as u16);
            self.log_record(&ChangeRecord { sequence, part, parts, hi, descriptor: *descriptor });
        }
        self.set_head(self.head + new.len() as u64);
        let old: Vec<u64> = self.segments.range(lo..=hi).map(|(first, _)| *first).collect();
        let old: Vec<Descriptor> = old.into_iter().filter_map(|first| self.segments.remove(&first)).collect();
        self.segments.extend(new.into_iter().map(|d| (d.lo, d)));
        old.iter().for_each(|segment| self.freeze(segment));
        old
    }

    pub fn freeze(&self, segment: &Descriptor) {
        let frozen = SlotWord::new(SlotState::Frozen, 0, 0).to_bits().to_le_bytes();
        let width = self.parameters.width;
        for index in 0..u32::from(segment.model.cap) {
            self.put(self.slot_at(segment, index), &frozen);
            self.put(self.fingerprint_at(segment, index), &width.frozen().to_le_bytes()[..width.bytes()]);
        }
    }

    /// Where the range of the segment that begins at `lo` ends.
    pub fn end_of(&self, lo: u64) -> u64 {
        self.segments.range(lo + 1..).next().map_or(u64::MAX, |(next, _)| next - 1)
    }
}

/// An endpoint that lets something happen before each of its READs.
pub struct Interrupted<'n> {
    pub inner: MappedEndpoint,
    pub before: Box<dyn FnMut() + 'n>,
}

impl Endpoint for Interrupted<'_> {
    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        (self.before)();
        self.inner.run(batch)
    }

    fn load_behind(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.inner.load_behind(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
        self.inner.post(batch)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.inner.poll()
    }

    fn wait_changed(&mut self, at: RemoteAddr, seen: u64, deadline: Deadline) -> Result<u64, FabricError> {
        self.inner.wait_changed(at, seen, deadline)
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        self.inner.area(area)
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
}
