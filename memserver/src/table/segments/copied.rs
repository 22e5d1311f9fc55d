//! Records in copies of slots: which are whole, and a window's fingerprints, which some tables have
//! made of them.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    RecordParts, SLOT_WORD_BYTES, SegmentGeometry, SlotState, SlotWord, Stored, ValueExtent,
};
use fpcache_fabric::{AccessError, NodeMemory};
use fpcache_index::Window;
use zerocopy::IntoBytes;

use super::super::error::DamagedRecord;
use super::slots::Slots;

/// A live record in a copy of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRecord<'b> {
    pub(crate) word: SlotWord,
    pub(crate) body: &'b [u8],
    pub(crate) parts: RecordParts<'b>,
}

/// What a slot is to the memory node, which sees none half written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopiedSlot<'b, K: KeySpace> {
    Free,
    /// A record of this key and value.
    Whole(K::View<'b>, Stored<'b>),
    Damaged,
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

/// What is wrong with the word of a damaged slot.
pub(crate) fn why_damaged(word: SlotWord) -> &'static str {
    match word.state() {
        SlotState::Free => "its state is a free slot's, and its checksum a record's",
        // Writes end on the thread that asks here, and a start redoes those that were cut off.
        SlotState::Busy => "it is half written",
        SlotState::Frozen => "it is frozen in a segment that was not replaced",
        SlotState::Live => "its checksum does not match",
    }
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

/// The external values that slots of a segment name, with the keys of their records. A damaged slot
/// names nothing: its record cannot be read either.
pub(crate) fn extents_in<'b, K: KeySpace>(
    geometry: &SegmentGeometry,
    generation: u32,
    slots: &'b [u8],
) -> impl Iterator<Item = (K::View<'b>, ValueExtent)> {
    live_records::<K>(geometry, slots).filter_map(move |LiveRecord { word, body, parts }| {
        let Stored::External(extent) = parts.value else { return None };
        let key = K::view(parts.key)?;
        word.is_proof_of(generation, body).then_some((key, extent))
    })
}

impl<M: NodeMemory> Slots<'_, M> {
    /// The records in a copy of all slots, by slot: each is whole, or damaged. Code that moves or
    /// copies records goes by this, so that what is damaged neither gets lost nor becomes valid.
    pub(crate) fn whole_records<'b, K: KeySpace>(
        &self,
        slots: &'b [u8],
    ) -> impl Iterator<Item = Result<WholeRecord<'b, K>, DamagedRecord>> {
        let all = (0..).zip(slots.chunks_exact(self.geometry.slot_bytes));
        all.filter_map(|(slot, bytes)| self.whole_record::<K>(slot, bytes).transpose())
    }

    /// The record in a copy of a slot, if that is not free.
    pub(crate) fn whole_record<'b, K: KeySpace>(
        &self,
        slot: u32,
        bytes: &'b [u8],
    ) -> Result<Option<WholeRecord<'b, K>>, DamagedRecord> {
        let Some((word, body)) = bytes.split_first_chunk::<SLOT_WORD_BYTES>() else { return Ok(None) };
        let word = SlotWord::from_bits(u64::from_le_bytes(*word));
        match self.state_of::<K>(slot, word, body) {
            CopiedSlot::Free => Ok(None),
            CopiedSlot::Whole(key, value) => Ok(Some(WholeRecord { slot, word, key, value })),
            CopiedSlot::Damaged => Err(self.damaged_slot::<K>(slot, word, body)),
        }
    }

    /// What a slot with this word and body is. It is free if its state is a free slot's and it has
    /// no checksum. If it has no fingerprint either, or none are stored, one of the two is enough,
    /// unless the checksum is its body's.
    #[inline]
    pub(crate) fn state_of<'b, K: KeySpace>(
        &self,
        slot: u32,
        word: SlotWord,
        body: &'b [u8],
    ) -> CopiedSlot<'b, K> {
        if word.is_free() {
            return CopiedSlot::Free;
        }
        let is_proven = word.is_proof_of(self.generation, body);
        if is_proven
            && word.state() == SlotState::Live
            && let Some(RecordParts { key, value }) = self.geometry.shape.parts::<K>(body)
            && let Some(key) = K::view(key)
        {
            return CopiedSlot::Whole(key, value);
        }
        let may_be_free = word.checksum() == 0 || !is_proven && word.state() == SlotState::Free;
        match may_be_free && self.has_no_fingerprint(slot) {
            true => CopiedSlot::Free,
            false => CopiedSlot::Damaged,
        }
    }

    /// The same of a slot as it is, whose body is left in `body` unless its word is a free one.
    #[inline]
    pub(crate) fn read_state<'b, K: KeySpace>(
        &self,
        slot: u32,
        body: &'b mut Vec<u8>,
    ) -> Result<CopiedSlot<'b, K>, AccessError> {
        let word = self.word(slot)?;
        if word.is_free() {
            return Ok(CopiedSlot::Free);
        }
        body.resize(self.geometry.shape.body_bytes(), 0);
        self.read_body(slot, body)?;
        Ok(self.state_of(slot, word, body))
    }

    /// Whether a slot is free; its word alone tells that nearly always.
    #[inline]
    pub(crate) fn is_free<K: KeySpace>(&self, slot: u32, body: &mut Vec<u8>) -> Result<bool, AccessError> {
        let word = self.word(slot)?;
        let may_be_free = word.checksum() == 0 || word.state() == SlotState::Free;
        Ok(word.is_free() || may_be_free && matches!(self.read_state::<K>(slot, body)?, CopiedSlot::Free))
    }

    /// Copies the fingerprints of a window into `out`, which is emptied before; makes them of its
    /// records where the table stores none.
    #[inline]
    pub(crate) fn read_fingerprints<K: KeySpace>(
        &self,
        window: Window,
        body: &mut Vec<u8>,
        out: &mut Vec<u64>,
    ) -> Result<(), AccessError> {
        let bytes = self.geometry.width.bytes_of(window.len() as usize);
        out.clear();
        out.resize(bytes.div_ceil(8), 0);
        let out = &mut out.as_mut_bytes()[..bytes];
        if !self.geometry.stores_fingerprints {
            return self.make_fingerprints::<K>(window, body, out);
        }
        self.region.read_bytes(self.fingerprint(window.first), out)
    }

    /// Makes the fingerprints of a window. A slot that is neither free nor whole gets one that no
    /// key has: whose it was cannot be told.
    #[cold]
    fn make_fingerprints<K: KeySpace>(
        &self,
        window: Window,
        body: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let width = self.geometry.width;
        for (at, slot) in (window.first..=window.last).enumerate() {
            let fingerprint = match self.read_state::<K>(slot, body)? {
                CopiedSlot::Free => FingerprintWidth::EMPTY,
                CopiedSlot::Whole(key, _) => width.of_hash(K::hash(key.borrow())),
                CopiedSlot::Damaged => FingerprintWidth::SPARE,
            };
            width.put(out, at, fingerprint);
        }
        Ok(())
    }

    #[cold]
    fn has_no_fingerprint(&self, slot: u32) -> bool {
        !self.geometry.stores_fingerprints
            || self.stored_fingerprint(slot).is_ok_and(|stored| stored == FingerprintWidth::EMPTY)
    }

    /// What is wrong with a slot that is neither free nor whole.
    #[cold]
    pub(crate) fn damaged_slot<K: KeySpace>(&self, slot: u32, word: SlotWord, body: &[u8]) -> DamagedRecord {
        let key = self.geometry.shape.key::<K>(body).and_then(|key| K::view(key));
        self.damaged_record::<K>(slot, word, key, why_damaged(word).to_owned())
    }

    /// The record in a copy of a slot, whatever its word says of it.
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
