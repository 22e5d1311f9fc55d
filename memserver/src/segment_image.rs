//! The image of a segment, assembled before it is written to the region in one piece.

use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::{
    SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentGeometry, SegmentHeader, SlotWord, encode_groups,
};
use fpcache_index::groups::GroupTable;

/// The bytes of one segment.
#[derive(Debug)]
pub(crate) struct SegmentImage {
    geometry: SegmentGeometry,
    generation: u32,
    slots_offset: usize,
    bytes: Vec<u8>,
}

// The free fingerprint is zero, which is what a fresh image holds.
const _: () = assert!(FingerprintWidth::EMPTY == 0);

impl SegmentImage {
    pub(crate) fn new(geometry: SegmentGeometry) -> Self {
        Self { geometry, generation: 0, slots_offset: 0, bytes: Vec::new() }
    }

    /// Begins a segment with this header and free slots, whose keys are in groups if there is a
    /// table of these.
    pub(crate) fn begin(&mut self, header: &SegmentHeader, groups: Option<&GroupTable>) {
        self.bytes.clear();
        self.bytes.resize(self.geometry.segment_bytes(header.cap), 0);
        self.bytes[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        self.generation = header.generation;
        self.slots_offset = self.geometry.slots_offset(header.cap);
        if self.geometry.groups.is_some() {
            let table = self.geometry.table_offset(header.cap);
            encode_groups(header.generation, groups, &mut self.bytes[table..]);
        }
    }

    /// Puts a live record into a slot below the segment's cap. `fill` writes key and value into the
    /// body, which comes zeroed.
    pub(crate) fn put(&mut self, slot: u16, hash: u64, version: u32, fill: impl FnOnce(&mut [u8])) {
        let SegmentGeometry { width, stores_fingerprints, slot_bytes, .. } = self.geometry;
        let (head, slots) = self.bytes.split_at_mut(self.slots_offset);
        if stores_fingerprints {
            width.put(&mut head[SEGMENT_HEADER_BYTES..], usize::from(slot), width.of_hash(hash));
        }
        let (word, body) =
            slots[usize::from(slot) * slot_bytes..][..slot_bytes].split_at_mut(SLOT_WORD_BYTES);
        fill(body);
        word.copy_from_slice(&SlotWord::live(self.generation, version, body).to_bits().to_le_bytes());
    }

    /// Marks the first slots of these groups, whose records lie elsewhere.
    pub(crate) fn mark(&mut self, slots: &[u16]) {
        for slot in slots {
            let at = self.slots_offset + usize::from(*slot) * self.geometry.slot_bytes;
            if let Some(word) = self.bytes[at..].first_chunk_mut::<SLOT_WORD_BYTES>() {
                *word = SlotWord::from_bits(u64::from_le_bytes(*word)).marked().to_bits().to_le_bytes();
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
