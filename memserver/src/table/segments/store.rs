//! Decided changes, stored into slots: records inserted, updated and removed.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordToken, Stored, ValueExtent};
use fpcache::models::Segment;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{AccessError, NodeMemory};

use super::Segments;
use super::copied::CopiedSlot;
use super::decide::{MutationKind, SlotMutation};
use super::slots::{NO_MARKS, Slots};

/// What of a record lies outside its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExternalPart {
    Nothing,
    /// Its value.
    Value(ValueExtent),
    /// The slot is damaged, and does not tell.
    Unknown,
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Removes a record.
    #[inline(always)]
    pub(crate) fn remove<Q>(&mut self, mutation: &SlotMutation<K, Q>) -> Result<(), AccessError> {
        let slots = self.slots(&mutation.segment);
        if self.breaks(Sabotage::FingerprintBeforeWord) {
            slots.remove_fingerprint_first(mutation.slot, mutation.version)?;
        }
        slots.remove(mutation.slot, mutation.version)?;
        self.keys = self.keys.saturating_sub(1);
        self.at_home = self.at_home.saturating_sub(u64::from(mutation.slot == mutation.predicted));
        Ok(())
    }

    /// Inserts a record, or replaces one by another of the same key; returns its token.
    #[inline(always)]
    pub(crate) fn put<Q: Borrow<K::Key>>(
        &mut self,
        mutation: &SlotMutation<K, Q>,
        value: &Stored<'_>,
    ) -> Result<RecordToken, AccessError> {
        let used = self.fill_body(mutation.key.borrow(), value);
        let slots = Slots::of(&*self.region, self.geometry, &mutation.segment);
        let body = &self.search.body;
        let token = RecordToken::of(mutation.version, &body[..used]);
        if mutation.kind == MutationKind::Update {
            slots.update(mutation.slot, mutation.version, body)?;
            return Ok(token);
        }
        let marks = match mutation.marks {
            _ if self.breaks(Sabotage::LiveBeforeMark) => NO_MARKS,
            [group, ..] if self.breaks(Sabotage::BlockUnmarked) => [group, None, None],
            marks => marks,
        };
        marks.into_iter().flatten().try_for_each(|first| slots.mark(first))?;
        if self.breaks(Sabotage::WordBeforeFingerprint) {
            slots.insert_word_first(mutation.slot, mutation.hash, mutation.version, body)?;
        } else {
            slots.insert(mutation.slot, mutation.hash, mutation.version, body)?;
        }
        if self.breaks(Sabotage::LiveBeforeMark) {
            self.region.release();
            mutation.marks.into_iter().flatten().try_for_each(|first| slots.mark(first))?;
        }
        if !self.search.reserved.is_empty() {
            self.search.reserved.remove(&(slots.offset(), mutation.slot));
        }
        self.keys += 1;
        self.at_home += u64::from(mutation.slot == mutation.predicted);
        Ok(token)
    }

    /// The mutation, after moving the record it replaces inside its window: one of the ways to
    /// break the protocol on purpose.
    pub(crate) fn moved<Q: Borrow<K::Key> + Clone>(
        &mut self,
        mutation: &SlotMutation<K, Q>,
    ) -> Result<SlotMutation<K, Q>, AccessError> {
        if mutation.kind != MutationKind::Update {
            return Ok(mutation.clone());
        }
        let slots = Slots::of(&*self.region, self.geometry, &mutation.segment);
        let window = mutation.segment.model().window_around(mutation.predicted);
        for slot in window.first..=window.last {
            if slots.word(slot)?.state() == fpcache::layout::SlotState::Free {
                slots.relocate(mutation.slot, slot, mutation.hash, &mut self.search.body)?;
                return Ok(SlotMutation { slot, ..mutation.clone() });
            }
        }
        Ok(mutation.clone())
    }

    /// Writes record and padding into the scratch body; returns the bytes of the first.
    fn fill_body(&mut self, key: &K::Key, value: &Stored<'_>) -> usize {
        let (body, shape) = (&mut self.search.body, self.geometry.shape);
        body.clear();
        body.resize(shape.body_bytes(), 0);
        shape.fill::<K>(body, key, value)
    }

    /// The external value that a slot's record has.
    #[inline]
    pub(crate) fn value_of(&mut self, segment: &Segment<K>, slot: u32) -> Result<ExternalPart, AccessError> {
        if self.geometry.shape.value_bytes.is_some() || self.slots(segment).has_value_inside(slot)? {
            return Ok(ExternalPart::Nothing);
        }
        self.extent_in(segment, slot)
    }

    #[cold]
    fn extent_in(&mut self, segment: &Segment<K>, slot: u32) -> Result<ExternalPart, AccessError> {
        let slots = Slots::of(&*self.region, self.geometry, segment);
        // Memory is not freed on the word of a slot that is damaged, in its body or in its state
        // alone: a start has not claimed what that names.
        Ok(match slots.read_state::<K>(slot, &mut self.search.body)? {
            CopiedSlot::Whole(_, Stored::External(extent)) => ExternalPart::Value(extent),
            CopiedSlot::Whole(..) => ExternalPart::Nothing,
            CopiedSlot::Free | CopiedSlot::Damaged => ExternalPart::Unknown,
        })
    }
}
