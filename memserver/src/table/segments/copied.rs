//! Records in a copy of a segment's slots.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    RecordParts, SLOT_WORD_BYTES, SegmentGeometry, SlotState, SlotWord, Stored, ValueExtent,
};
use fpcache_fabric::{AccessError, NodeMemory};

use super::super::error::DamagedRecord;
use super::slots::Slots;

/// A live record in a copy of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRecord<'b> {
    pub(crate) word: SlotWord,
    pub(crate) body: &'b [u8],
    pub(crate) parts: RecordParts<'b>,
}

/// A record in a copy of a slot, found whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeRecord<'b, K: KeySpace> {
    /// Which slot it is in.
    pub(crate) slot: u32,
    pub(crate) word: SlotWord,
    pub(crate) key: K::View<'b>,
    pub(crate) value: Stored<'b>,
}

/// The live records in a copy of a segment's slots, by slot.
pub(crate) fn live_records<'b, K: KeySpace>(
    geometry: &SegmentGeometry,
    slots: &'b [u8],
) -> impl Iterator<Item = LiveRecord<'b>> {
    let shape = geometry.shape;
    slots.chunks_exact(geometry.slot_bytes).filter_map(move |bytes| {
        let (word, body) = bytes.split_first_chunk::<SLOT_WORD_BYTES>()?;
        let word = SlotWord::from_bits(u64::from_le_bytes(*word));
        let parts = shape.parts::<K>(body).filter(|_| word.state() == SlotState::Live)?;
        Some(LiveRecord { word, body, parts })
    })
}

/// The external values that slots of a segment name, with the keys of their records. A slot that is
/// damaged names nothing: nobody can read its record either.
pub(crate) fn extents_in<'b, K: KeySpace>(
    geometry: &SegmentGeometry,
    generation: u32,
    slots: &'b [u8],
) -> impl Iterator<Item = (K::View<'b>, ValueExtent)> {
    live_records::<K>(geometry, slots).filter_map(move |LiveRecord { word, body, parts }| {
        let Stored::External(extent) = parts.value else { return None };
        let key = K::view(parts.key)?;
        word.vouches_for(generation, body).then_some((key, extent))
    })
}

impl<M: NodeMemory> Slots<'_, M> {
    /// The records in a copy of all slots, by slot: each is whole, or damaged. Whoever moves or
    /// copies records goes by this, so that what is damaged neither gets lost nor becomes valid.
    pub(crate) fn whole_records<'b, K: KeySpace>(
        &self,
        slots: &'b [u8],
    ) -> impl Iterator<Item = Result<WholeRecord<'b, K>, DamagedRecord>> {
        let all = (0..).zip(slots.chunks_exact(self.geometry.slot_bytes));
        all.filter_map(|(slot, bytes)| self.whole_record::<K>(slot, bytes).transpose())
    }

    /// Whether the word of a slot is that of its body.
    #[cold]
    pub(super) fn is_whole(&self, slot: u32, scratch: &mut Vec<u8>) -> Result<bool, AccessError> {
        scratch.resize(self.geometry.shape.body_bytes(), 0);
        self.read_body(slot, scratch)?;
        Ok(self.word(slot)?.vouches_for(self.generation, scratch))
    }

    fn whole_record<'b, K: KeySpace>(
        &self,
        slot: u32,
        bytes: &'b [u8],
    ) -> Result<Option<WholeRecord<'b, K>>, DamagedRecord> {
        let Some((word, body)) = bytes.split_first_chunk::<SLOT_WORD_BYTES>() else { return Ok(None) };
        let word = SlotWord::from_bits(u64::from_le_bytes(*word));
        if word.is_free() {
            return Ok(None);
        }
        if word.state() == SlotState::Live
            && let Some(RecordParts { key, value }) = self.geometry.shape.parts::<K>(body)
            && let Some(key) = K::view(key)
            && word.vouches_for(self.generation, body)
        {
            return Ok(Some(WholeRecord { slot, word, key, value }));
        }
        match self.is_freed(slot, word, body) {
            true => Ok(None),
            false => Err(self.damaged_slot::<K>(slot, word, body)),
        }
    }

    /// Whether a slot is free whose word is neither a free one nor that of its record: it has no
    /// fingerprint, and either no checksum, so that only its state is damaged, or a free one's state
    /// and a checksum that is not its body's. Where no fingerprints are stored the word tells alone.
    #[cold]
    pub(crate) fn is_freed(&self, slot: u32, word: SlotWord, body: &[u8]) -> bool {
        let is_empty = |stored| stored == FingerprintWidth::EMPTY;
        let is_free = word.state() == SlotState::Free && !word.vouches_for(self.generation, body);
        (word.checksum() == 0 || is_free)
            && (!self.geometry.stores_fingerprints || self.stored_fingerprint(slot).is_ok_and(is_empty))
    }

    /// The same, of one whose body is still to be looked at.
    #[cold]
    pub(crate) fn is_freed_slot(&self, slot: u32, word: SlotWord) -> Result<bool, AccessError> {
        let mut body = vec![0; self.geometry.shape.body_bytes()];
        self.read_body(slot, &mut body)?;
        let is_whole = word.state() == SlotState::Live && word.vouches_for(self.generation, &body);
        Ok(!is_whole && self.is_freed(slot, word, &body))
    }

    /// What is wrong with a slot that is neither free nor whole.
    #[cold]
    pub(crate) fn damaged_slot<K: KeySpace>(&self, slot: u32, word: SlotWord, body: &[u8]) -> DamagedRecord {
        let why = match word.state() {
            SlotState::Free => "its state is a free slot's, and its checksum a record's",
            // Writes end on the thread that asks here, and a start redoes those that were cut off.
            SlotState::Busy => "it is half written",
            SlotState::Frozen => "it is frozen in a segment that was not replaced",
            SlotState::Live => "its checksum does not match",
        };
        let key = self.geometry.shape.key::<K>(body).and_then(|key| K::view(key));
        self.damaged_record::<K>(slot, word, key, why.to_owned())
    }

    /// The record in a copy of a slot, whatever its word says of it.
    #[cfg(feature = "sabotage")]
    pub(crate) fn unproven_record<'b, K: KeySpace>(
        &self,
        slot: u32,
        slots: &'b [u8],
    ) -> Option<WholeRecord<'b, K>> {
        let bytes = slots.chunks_exact(self.geometry.slot_bytes).nth(slot as usize)?;
        let (word, body) = bytes.split_first_chunk::<SLOT_WORD_BYTES>()?;
        let RecordParts { key, value } = self.geometry.shape.parts::<K>(body)?;
        let word = SlotWord::from_bits(u64::from_le_bytes(*word));
        Some(WholeRecord { slot, word, key: K::view(key)?, value })
    }

    /// What is wrong with the record of a slot.
    #[cold]
    pub(crate) fn damaged_record<K: KeySpace>(
        &self,
        slot: u32,
        word: SlotWord,
        key: Option<K::View<'_>>,
        why: String,
    ) -> DamagedRecord {
        let key = key.map(|key| format!("key {}", K::show(key.borrow())));
        // The mark is no part of the record.
        let (offset, word) = (self.slot(slot), word.marked());
        DamagedRecord { key, slot, offset, identity: (offset, word.to_bits()), why }
    }
}
