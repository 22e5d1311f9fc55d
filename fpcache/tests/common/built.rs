//! A table built from real keys, cut and placed as a memory node does it.
#![allow(dead_code, reason = "each test uses its share")]

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fpcache::key_space::{ByteKeys, ByteTail, KeyEncoders, KeySpace, U64Keys};
use fpcache::layout::{
    Descriptor, DirectoryPage, RootEntry, SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SUPERBLOCK_BYTES,
    SegmentAddress, SlotWord, Stored, Superblock, TableParameters, TableRecord, ValueExtent, ValuePlace,
    encode_root,
};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, MappedEndpoint, SharedMemory};
use fpcache_index::strings::{Cutter, KeyEncoder, Training};
use fpcache_index::{PlacedSegment, SegmentOptions, Segmenter};
use xxhash_rust::xxh3::xxh3_64;

/// What a table should hold.
pub type Records<K> = BTreeMap<<K as KeySpace>::Owned, Vec<u8>>;

/// A segment, and the slots of its keys, which are the next ones.
pub struct Cut<K: KeySpace> {
    start: K::Owned,
    tail: K::Tail,
    placed: PlacedSegment,
}

/// A key space whose tables can be built here.
pub trait Cuts: KeySpace {
    /// What the segments share, and the segments.
    fn cut(keys: &[&Self::Key], options: SegmentOptions) -> (Self::Encoders, Vec<Cut<Self>>);

    /// Keys near this one.
    fn neighbours(key: &Self::Key) -> Vec<Self::Owned>;
}

impl Cuts for U64Keys {
    fn cut(keys: &[&u64], options: SegmentOptions) -> ((), Vec<Cut<Self>>) {
        let mut segmenter = Segmenter::new(options).expect("options in range");
        let mut pieces = Vec::new();
        keys.iter().for_each(|key| pieces.extend(segmenter.push(**key).expect("ascending keys")));
        pieces.extend(segmenter.finish());
        let (mut cuts, mut next) = (Vec::new(), 0);
        for piece in pieces {
            let xs: Vec<u64> = keys[next..next + piece.keys].iter().map(|key| **key).collect();
            for placed in piece.place(&xs, &options) {
                cuts.push(Cut { start: *keys[next], tail: (), placed });
                next += cuts.last().map_or(0, |cut| cut.placed.keys);
            }
        }
        ((), cuts)
    }

    fn neighbours(key: &u64) -> Vec<u64> {
        vec![key.wrapping_add(1), key.wrapping_sub(1), key ^ 1 << 40]
    }
}

impl Cuts for ByteKeys {
    fn cut(keys: &[&[u8]], options: SegmentOptions) -> (KeyEncoders, Vec<Cut<Self>>) {
        let encoder = KeyEncoder::train(keys.iter().copied(), &Training::default());
        let mut cutter = Cutter::new(options, Arc::new(encoder.clone())).expect("options in range");
        keys.iter().for_each(|key| cutter.push(key).expect("ascending keys"));
        cutter.finish();
        let cut = |s: fpcache_index::strings::StringSegment| Cut {
            start: s.start.into(),
            tail: ByteTail { skip: s.skip, encoder: 0 },
            placed: s.placed,
        };
        (KeyEncoders::of(encoder), cutter.drain().map(cut).collect())
    }

    /// Above and below, longer and shorter, and some that lack what the key begins with.
    fn neighbours(key: &[u8]) -> Vec<Vec<u8>> {
        let with = |at: usize, change: fn(u8) -> u8| {
            let mut other = key.to_vec();
            if let Some(byte) = other.get_mut(at) {
                *byte = change(*byte);
            }
            other
        };
        vec![
            [key, &[0]].concat(),
            [key, &[0xff; 9]].concat(),
            key[..key.len() - 1].to_vec(),
            key[..key.len() / 2].to_vec(),
            with(key.len() - 1, |byte| byte.wrapping_add(1)),
            with(key.len() / 2, |byte| byte.saturating_add(1)),
            with(key.len() / 2, |byte| byte.saturating_sub(1)),
            with(0, |byte| byte ^ 1),
        ]
    }
}

/// A table in a region of its own.
pub struct Built<K: KeySpace> {
    pub memory: Arc<SharedMemory>,
    hub: Hub,
    pub superblock: Superblock,
    pub records: Records<K>,
    pub descriptors: Vec<Descriptor<K>>,
    /// Segments whose keys share bytes that are not coded.
    pub skipping: usize,
    pub parameters: TableParameters,
    encoders: K::Encoders,
}

impl<K: Cuts> Built<K> {
    pub fn new(records: Records<K>, parameters: TableParameters) -> Self {
        parameters.validate::<K>().expect("parameters in range");
        let options = SegmentOptions {
            epsilon: parameters.epsilon,
            fill: parameters.fill,
            max_slots: parameters.max_slots,
            ..SegmentOptions::default()
        };
        let keys: Vec<&K::Key> = records.keys().map(Borrow::borrow).collect();
        let (encoders, cuts) = K::cut(&keys, options);
        let mut image = vec![0; SUPERBLOCK_BYTES];
        let (mut descriptors, mut left, mut at_home) = (Vec::new(), records.iter(), 0);
        for (generation, cut) in (1..).zip(&cuts) {
            let of: Vec<_> = left.by_ref().take(cut.placed.keys).collect();
            at_home += write_segment(&mut image, &of, cut, generation, &parameters, &encoders);
            let bytes = parameters.geometry().segment_bytes(cut.placed.model.cap) as u64;
            descriptors.push(Descriptor::<K> {
                start: cut.start.clone(),
                tail: cut.tail,
                model: cut.placed.model,
                address: SegmentAddress::new(0, image.len() as u64 - bytes).expect("a small region"),
                generation,
            });
        }
        assert!(left.next().is_none(), "every key is in a segment");
        let skipping = cuts.iter().filter(|cut| cut.tail != K::Tail::default()).count();
        let superblock =
            write_directory(&mut image, &descriptors, &encoders, parameters, (records.len() as u64, at_home));
        let memory = SharedMemory::anonymous(image.len()).expect("memory");
        memory.write_bytes(0, &image).expect("inside");
        let memory = Arc::new(memory);
        let hub = Hub::new(Arc::clone(&memory), LocalOptions::default()).expect("a hub");
        Self { memory, hub, superblock, records, descriptors, skipping, parameters, encoders }
    }

    /// Has `change` done to the bytes of a part of the region.
    pub fn forge(&self, offset: u64, bytes: u64, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut part = vec![0; bytes as usize];
        self.memory.read_bytes(offset, &mut part).expect("inside");
        change(&mut part);
        self.memory.write_bytes(offset, &part).expect("inside");
        part
    }

    /// Puts a record into a free slot of its window, if there is one. Says whether, and whether its
    /// coordinate is the greatest there is, as that of a key which lacks what its segment skips.
    pub fn insert(&mut self, key: K::Owned, value: Vec<u8>) -> Option<bool> {
        let after = self.descriptors.partition_point(|d| d.start <= key);
        let segment = &self.descriptors[after.saturating_sub(1)];
        let geometry = self.parameters.geometry();
        let x = K::coordinate(
            key.borrow(),
            K::shared(key.borrow(), segment.start.borrow()),
            segment.tail,
            &self.encoders,
        );
        let (window, start) = (segment.model.window(x), segment.address.offset());
        let at = |slot| start + geometry.slot_offset(segment.model.cap, slot) as u64;
        let is_free = |slot: &u32| {
            let mut word = [0; SLOT_WORD_BYTES];
            self.memory.read_bytes(at(*slot), &mut word).expect("inside");
            word == [0; SLOT_WORD_BYTES]
        };
        let slot = (window.first..=window.last).rev().find(is_free)?;
        let mut bytes = vec![0; geometry.slot_bytes];
        let (word, body) = bytes.split_at_mut(SLOT_WORD_BYTES);
        self.parameters.shape.fill::<K>(body, key.borrow(), &Stored::Here(&value));
        word.copy_from_slice(&SlotWord::live(segment.generation, 1, body).to_bits().to_le_bytes());
        self.memory.write_bytes(at(slot), &bytes).expect("inside");
        let width = geometry.width.bytes();
        let fingerprint = geometry.width.of_hash(K::hash(key.borrow())).to_le_bytes();
        let at = start + (SEGMENT_HEADER_BYTES + slot as usize * width) as u64;
        self.memory.write_bytes(at, &fingerprint[..width]).expect("inside");
        self.records.insert(key, value);
        Some(x == u64::MAX)
    }

    /// Where a key's slot lies, and the generation of its segment.
    pub fn slot_of(&self, key: &K::Key) -> (u64, u32) {
        let after = self.descriptors.partition_point(|d| d.start.borrow() <= key);
        let segment = &self.descriptors[after.saturating_sub(1)];
        let (geometry, start) = (self.parameters.geometry(), segment.address.offset());
        let holds = |at: &u64| {
            let mut slot = vec![0; geometry.slot_bytes];
            self.memory.read_bytes(*at, &mut slot).expect("inside");
            let parts = self.parameters.shape.parts::<K>(&slot[SLOT_WORD_BYTES..]);
            slot[0] != 0 && parts.is_some_and(|p| K::view(p.key).is_some_and(|view| view.borrow() == key))
        };
        let slots = (0..segment.model.cap.into())
            .map(|slot| start + geometry.slot_offset(segment.model.cap, slot) as u64);
        let mut holding = slots.filter(holds);
        (holding.next().expect("a key of the table"), segment.generation)
    }

    /// Has a key's slot say something else of its value, whether or not that is so.
    pub fn rewrite(&self, key: &K::Key, version: u32, value: &Stored<'_>) {
        self.write_slot(self.slot_of(key), key, version, value);
    }

    /// Writes a record into a slot, which is given as [`slot_of`](Self::slot_of) gives it.
    pub fn write_slot(&self, (at, generation): (u64, u32), key: &K::Key, version: u32, value: &Stored<'_>) {
        let mut slot = vec![0; self.parameters.geometry().slot_bytes];
        let (word, body) = slot.split_at_mut(SLOT_WORD_BYTES);
        self.parameters.shape.fill::<K>(body, key, value);
        word.copy_from_slice(&SlotWord::live(generation, version, body).to_bits().to_le_bytes());
        self.memory.write_bytes(at, &slot).expect("inside");
    }

    /// Where a key's value is external.
    pub fn extent_of(&self, key: &K::Key) -> ValueExtent {
        let mut slot = vec![0; self.parameters.geometry().slot_bytes];
        self.memory.read_bytes(self.slot_of(key).0, &mut slot).expect("inside");
        match self.parameters.shape.parts::<K>(&slot[SLOT_WORD_BYTES..]).expect("a record").value {
            Stored::External(extent) => extent,
            Stored::Here(value) => panic!("{} bytes in the slot", value.len()),
        }
    }

    pub fn endpoint(&self) -> MappedEndpoint {
        self.hub.connect().expect("a connection").endpoint()
    }
}

/// A value as its record's slot is to have it; appends an extent for one that does not fit.
fn store<'v, K: KeySpace>(
    image: &mut Vec<u8>,
    parameters: &TableParameters,
    key: &K::Key,
    value: &'v [u8],
) -> Stored<'v> {
    match parameters.shape.place(K::encoded_len(key), value.len()).expect("a record that fits") {
        ValuePlace::Here => Stored::Here(value),
        ValuePlace::External => {
            let address = SegmentAddress::new(0, image.len() as u64).expect("a small region");
            image.extend_from_slice(value);
            image.resize(image.len().next_multiple_of(8), 0);
            Stored::External(ValueExtent { address, bytes: value.len() as u32, checksum: xxh3_64(value) })
        }
    }
}

/// Writes a segment, whose header is not read, and says how many of its keys lie where they are
/// predicted.
fn write_segment<K: KeySpace>(
    image: &mut Vec<u8>,
    records: &[(&K::Owned, &Vec<u8>)],
    cut: &Cut<K>,
    generation: u32,
    parameters: &TableParameters,
    encoders: &K::Encoders,
) -> u64 {
    let (geometry, model) = (parameters.geometry(), cut.placed.model);
    let stored: Vec<_> =
        records.iter().map(|(key, value)| store::<K>(image, parameters, (*key).borrow(), value)).collect();
    let start = image.len();
    image.resize(start + geometry.segment_bytes(model.cap), 0);
    let (segment, mut at_home) = (&mut image[start..], 0);
    assert_eq!(records.len(), cut.placed.slots.len());
    for (((key, _), stored), slot) in records.iter().zip(&stored).zip(&cut.placed.slots) {
        let key: &K::Key = (*key).borrow();
        let x = K::coordinate(key, K::shared(key, cut.start.borrow()), cut.tail, encoders);
        assert!(model.window(x).contains((*slot).into()), "every key lies in its window");
        at_home += u64::from(model.predict(x) == u32::from(*slot));
        let fingerprint = geometry.width.of_hash(K::hash(key));
        geometry.width.put(&mut segment[SEGMENT_HEADER_BYTES..], (*slot).into(), fingerprint);
        let at = geometry.slot_offset(model.cap, (*slot).into());
        let (word, body) = segment[at..at + geometry.slot_bytes].split_at_mut(SLOT_WORD_BYTES);
        parameters.shape.fill::<K>(body, key, stored);
        word.copy_from_slice(&SlotWord::live(generation, 1, body).to_bits().to_le_bytes());
    }
    at_home
}

/// Appends what is there beside segments, and puts the superblock to the front.
fn write_directory<K: KeySpace>(
    image: &mut Vec<u8>,
    descriptors: &[Descriptor<K>],
    encoders: &K::Encoders,
    parameters: TableParameters,
    (keys, at_home): (u64, u64),
) -> Superblock {
    let (mut root, mut rest) = (Vec::new(), descriptors);
    let append = |image: &mut Vec<u8>, bytes: &[u8]| {
        let at = image.len() as u64;
        image.extend_from_slice(bytes);
        image.resize(image.len().next_multiple_of(8), 0);
        at
    };
    while let Some(first) = rest.first() {
        let (page, held) = DirectoryPage::encode(rest, 0);
        root.push(RootEntry::<K> { start: first.start.clone(), page: append(image, &page) });
        rest = &rest[held..];
    }
    let (root_bytes, encoders_bytes) = (encode_root(&root), K::encode_encoders(encoders));
    let record = TableRecord {
        parameters,
        keys,
        segments: descriptors.len() as u64,
        root: append(image, &root_bytes),
        pages: root.len() as u64,
        root_checksum: xxh3_64(&root_bytes),
        used: 0,
        at_home,
        checkpoint: 0,
        log: 0,
        log_records: 0,
        root_bytes: root_bytes.len() as u64,
        encoders: append(image, &encoders_bytes),
        encoders_bytes: encoders_bytes.len() as u64,
        encoders_checksum: xxh3_64(&encoders_bytes),
    };
    image.resize(image.len().next_multiple_of(4096), 0);
    let region_bytes = image.len() as u64;
    let table = Some(TableRecord { used: region_bytes, ..record });
    let superblock =
        Superblock { incarnation: 1, region_bytes, sequence: 2, reuse_sequence: 0, log_head: 0, table };
    image[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode::<K>());
    superblock
}
