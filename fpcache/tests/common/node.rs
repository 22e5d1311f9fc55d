//! A memory node made by hand: segments of a few records that can be changed, replaced and used
//! again step by step.
#![allow(dead_code, reason = "each test uses its share")]

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fpcache::layout::{
    CHANGE_RECORD_BYTES, ChangeRecord, Descriptor, DirectoryPage, LOG_HEAD_OFFSET, REUSE_OFFSET, RootEntry,
    SEGMENT_HEADER_BYTES, SegmentAddress, SegmentGeometry, SegmentReplacement, SlotState, SlotWord, Stored,
    Superblock, TableParameters, TableRecord, encode_root,
};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{
    AreaId, AreaInfo, Batch, Completion, Connection, Endpoint, FabricError, InPlace, MappedEndpoint,
    MappedInPlace, Meter, Rejected, RemoteAddr, SharedMemory, Ticket, Words,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::keys::Numbered;

/// Slots of every segment, and half of a window.
pub const CAP: u16 = 16;
pub const EPSILON: u16 = 2;

/// A region, its writer, and what it should hold. Keys go by their numbers.
pub struct Node<K: Numbered> {
    pub memory: Arc<SharedMemory>,
    hub: Hub,
    pub parameters: TableParameters,
    /// The segments in use, by first key, but for an empty one before them if there is one.
    pub segments: BTreeMap<u64, Descriptor<K>>,
    front: Option<Descriptor<K>>,
    /// Bytes that values of this table have, or a few more.
    value_bytes: u32,
    pub records: BTreeMap<u64, u64>,
    free: u64,
    generation: u32,
    pub head: u64,
    pub log: u64,
    pub log_records: u64,
    superblock: Superblock,
}

impl<K: Numbered> Node<K> {
    /// A table of these records, in segments that begin at these keys.
    pub fn new(firsts: &[u64], records: &[(u64, u64)], log_records: u64, value_bytes: u32) -> Self {
        // Pages of byte strings are longer.
        let bytes = (4 << 20) * (K::PAGE_BYTES >> 12);
        let memory = Arc::new(SharedMemory::anonymous(bytes).expect("memory"));
        let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).expect("a hub");
        let shape = K::shape(value_bytes);
        let parameters = TableParameters { shape, epsilon: EPSILON.into(), ..TableParameters::default() };
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
            front: None,
            value_bytes,
            records: records.iter().copied().collect(),
            free: 8192 + log_records * CHANGE_RECORD_BYTES as u64,
            generation: 0,
            head: 0,
            log: 8192,
            log_records,
            superblock,
        };
        if K::FRONT {
            let front = node.build(u64::MAX, None);
            node.front = Some(Descriptor { start: K::Owned::default(), tail: K::Tail::default(), ..front });
        }
        for (i, start) in firsts.iter().enumerate() {
            let segment = node.build(*start, firsts.get(i + 1).copied());
            node.segments.insert(*start, segment);
        }
        node.checkpoint();
        node
    }

    pub fn geometry(&self) -> SegmentGeometry {
        self.parameters.geometry()
    }

    pub fn region_bytes(&self) -> u64 {
        self.superblock.region_bytes
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
        value.to_le_bytes().into_iter().cycle().take(K::value_bytes(value, self.value_bytes)).collect()
    }

    /// The number of a value.
    pub fn number(value: &[u8]) -> u64 {
        u64::from_le_bytes(*value.first_chunk().expect("eight bytes or more"))
    }

    /// The bytes of a live slot.
    pub fn slot(&self, segment: &Descriptor<K>, version: u32, key: u64, value: u64) -> Vec<u8> {
        let mut slot = vec![0; self.geometry().slot_bytes];
        self.parameters.shape.fill::<K>(
            &mut slot[8..],
            K::key(key).borrow(),
            &Stored::Here(&self.value(value)),
        );
        let word = SlotWord::live(segment.generation, version, &slot[8..]).to_bits();
        slot[..8].copy_from_slice(&word.to_le_bytes());
        slot
    }

    pub fn slot_at(&self, segment: &Descriptor<K>, index: u32) -> u64 {
        segment.address.offset() + self.geometry().slot_offset(segment.model.cap, index) as u64
    }

    pub fn fingerprint_at(&self, segment: &Descriptor<K>, index: u32) -> u64 {
        segment.address.offset()
            + (SEGMENT_HEADER_BYTES + index as usize * self.parameters.width.bytes()) as u64
    }

    pub fn fingerprint(&self, key: u64) -> Vec<u8> {
        let width = self.parameters.width;
        width.of_hash(K::hash(K::key(key).borrow())).to_le_bytes()[..width.bytes()].to_vec()
    }

    /// Writes a segment with what the range from `start` up to `end` holds: one slot per key, from
    /// the first key on.
    pub fn build(&mut self, start: u64, end: Option<u64>) -> Descriptor<K> {
        self.generation += 1;
        let offset = self.take(self.geometry().segment_bytes(CAP));
        let segment = Descriptor {
            start: K::key(start),
            tail: K::tail(start),
            model: K::model(start, CAP, EPSILON),
            address: SegmentAddress::new(0, offset).expect("a small offset"),
            generation: self.generation,
        };
        let records: Vec<(u64, u64)> = self
            .records
            .range(start..)
            .take_while(|(key, _)| end.is_none_or(|end| **key < end))
            .map(|(key, value)| (*key, *value))
            .collect();
        let mut taken = [false; CAP as usize];
        for (key, value) in records {
            let window = segment.model.window(Self::coordinate(&segment, key));
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
        let all: Vec<Descriptor<K>> = self.front.iter().chain(self.segments.values()).cloned().collect();
        let mut root: Vec<RootEntry<K>> = Vec::new();
        // Of byte strings one a page: else there are so few that they take no more than their least
        // budget.
        for page in all.chunks(if K::FIXED_BYTES.is_some() { 2 } else { 1 }) {
            let at = self.take(K::PAGE_BYTES);
            self.put(at, &DirectoryPage::encode(page, self.head).0);
            root.push(RootEntry { start: page[0].start.clone(), page: at });
        }
        let bytes = encode_root(&root);
        let at = self.take(bytes.len());
        self.put(at, &bytes);
        let encoders = K::encode_encoders(&K::Encoders::default());
        let at_encoders = self.take(encoders.len());
        self.put(at_encoders, &encoders);
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
            root_bytes: bytes.len() as u64,
            encoders: at_encoders,
            encoders_bytes: encoders.len() as u64,
            encoders_checksum: xxh3_64(&encoders),
        });
        self.superblock.sequence += 2;
        self.superblock.log_head = self.head;
        self.put(0, &self.superblock.encode::<K>());
    }

    /// Has the table record claim `segments` segments.
    pub fn claim_segments(&mut self, segments: u64) {
        self.superblock.table.as_mut().expect("there is one").segments = segments;
        self.put(0, &self.superblock.encode::<K>());
    }

    /// Has the table record claim `bytes` used bytes.
    pub fn claim_used(&mut self, bytes: u64) {
        self.superblock.table.as_mut().expect("there is one").used = bytes;
        self.put(0, &self.superblock.encode::<K>());
    }

    /// Has the superblock claim a region of `bytes` bytes.
    pub fn claim_region(&mut self, bytes: u64) {
        self.superblock.region_bytes = bytes;
        self.put(0, &self.superblock.encode::<K>());
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

    /// Writes a change's records from the log head on, and returns how many there are.
    pub fn log_change(&self, change: &SegmentReplacement<K>) -> u64 {
        let records = change.records(self.head);
        records.iter().for_each(|record| self.log_record(record));
        records.len() as u64
    }

    /// Replaces the segments from the one that begins at `start` up to the one that ends before
    /// `end` by segments that begin at these keys, `start` the first of them. Returns the old ones,
    /// frozen.
    pub fn replace(&mut self, start: u64, end: Option<u64>, firsts: &[u64]) -> Vec<Descriptor<K>> {
        let new: Vec<(u64, Descriptor<K>)> = firsts
            .iter()
            .enumerate()
            .map(|(i, first)| (*first, self.build(*first, firsts.get(i + 1).copied().or(end))))
            .collect();
        let with = new.iter().map(|(_, segment)| segment.clone()).collect();
        let records = self.log_change(&SegmentReplacement { with, end: end.map(K::key) });
        self.set_head(self.head + records);
        let old: Vec<u64> = self.segments.range(start..).map(|(first, _)| *first).collect();
        let old = old.into_iter().filter(|first| end.is_none_or(|end| *first < end));
        let old: Vec<Descriptor<K>> = old.filter_map(|first| self.segments.remove(&first)).collect();
        self.segments.extend(new);
        old.iter().for_each(|segment| self.freeze(segment));
        old
    }

    pub fn freeze(&self, segment: &Descriptor<K>) {
        let frozen = SlotWord::new(SlotState::Frozen, 0, 0).to_bits().to_le_bytes();
        let width = self.parameters.width;
        for index in 0..u32::from(segment.model.cap) {
            self.put(self.slot_at(segment, index), &frozen);
            self.put(self.fingerprint_at(segment, index), &width.frozen().to_le_bytes()[..width.bytes()]);
        }
    }

    /// Where the range of the segment that begins at `start` ends; `None` for the last.
    pub fn end_after(&self, start: u64) -> Option<u64> {
        self.segments.range(start + 1..).next().map(|(next, _)| *next)
    }

    /// The coordinate of a key of a segment's range.
    pub fn coordinate(segment: &Descriptor<K>, key: u64) -> u64 {
        let key = K::key(key);
        let shared = K::shared(key.borrow(), segment.start.borrow());
        K::coordinate(key.borrow(), shared, segment.tail, &K::Encoders::default())
    }
}

/// An endpoint that lets something happen before each of its READs.
pub struct Interrupted<'n> {
    pub inner: MappedEndpoint,
    pub before: Box<dyn FnMut() + 'n>,
    /// Whether memory is looked at in place.
    pub in_place: bool,
}

/// Memory looked at in place, where something happens before each look.
pub struct InterruptedInPlace<'a> {
    inner: MappedInPlace<'a>,
    before: &'a mut dyn FnMut(),
}

impl InPlace for InterruptedInPlace<'_> {
    fn prefetch(&self, offset: u64, bytes: usize) {
        self.inner.prefetch(offset, bytes);
    }

    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError> {
        (self.before)();
        self.inner.words(offset, bytes)
    }

    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        (self.before)();
        self.inner.record(offset, out)
    }

    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        (self.before)();
        self.inner.copy(offset, out)
    }

    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        self.inner.load_after_reads(offset)
    }

    fn count(&mut self, round_trips: u32, reads: u32, bytes: u64) -> Result<(), FabricError> {
        self.inner.count(round_trips, reads, bytes)
    }

    fn check_alive(&mut self) -> Result<(), FabricError> {
        self.inner.check_alive()
    }
}

impl Endpoint for Interrupted<'_> {
    type InPlace<'a>
        = InterruptedInPlace<'a>
    where
        Self: 'a;

    fn in_place(&mut self, area: AreaId) -> Result<Option<InterruptedInPlace<'_>>, FabricError> {
        let Self { inner, before, in_place } = self;
        let inner = if *in_place { inner.in_place(area)? } else { None };
        Ok(inner.map(|inner| InterruptedInPlace { inner, before }))
    }

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        (self.before)();
        self.inner.run(batch)
    }

    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.inner.load_after_reads(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
        self.inner.post(batch)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.inner.poll()
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        self.inner.area(area)
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
}
