//! Records in a copy of a segment's slots.

use std::borrow::Borrow;

use fpcache::key_space::KeySpace;
use fpcache::layout::{RecordParts, SLOT_WORD_BYTES, SegmentGeometry, SlotState, SlotWord, Stored};
use fpcache_fabric::{AccessError, NodeMemory};

use super::super::error::{DamagedRecord, TableError};
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
        self.vouches_for(slot, scratch)
    }

    /// Whether a slot holds no record, or a whole one.
    pub(crate) fn check_whole<K: KeySpace>(
        &self,
        slot: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        scratch.resize(self.geometry.slot_bytes, 0);
        let (word, body) = scratch.split_at_mut(SLOT_WORD_BYTES);
        word.copy_from_slice(&self.word(slot)?.to_bits().to_le_bytes());
        self.read_body(slot, body)?;
        self.whole_record::<K>(slot, scratch)?;
        Ok(())
    }

    fn whole_record<'b, K: KeySpace>(
        &self,
        slot: u32,
        bytes: &'b [u8],
    ) -> Result<Option<WholeRecord<'b, K>>, DamagedRecord> {
        let Some((word, body)) = bytes.split_first_chunk::<SLOT_WORD_BYTES>() else { return Ok(None) };
        let word = SlotWord::from_bits(u64::from_le_bytes(*word));
        let parts = self.geometry.shape.parts::<K>(body);
        let record = parts.and_then(|parts| Some((K::view(parts.key)?, parts.value)));
        let why = match word.state() {
            SlotState::Free => return Ok(None),
            // Writes end on the thread that asks here, and a start redoes those that were cut off.
            SlotState::Busy => "it is half written",
            SlotState::Frozen => "it is frozen in a segment that was not replaced",
            SlotState::Live => match record {
                Some((key, value)) if word.vouches_for(self.generation, body) => {
                    return Ok(Some(WholeRecord { slot, word, key, value }));
                }
                _ => "its checksum does not match",
            },
        };
        Err(self.damaged_record::<K>(slot, record.map(|(key, _)| key), why.to_owned()))
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
        key: Option<K::View<'_>>,
        why: String,
    ) -> DamagedRecord {
        let key = key.map(|key| format!("key {}", K::show(key.borrow())));
        DamagedRecord { key, slot, offset: self.slot(slot), why }
    }
}
