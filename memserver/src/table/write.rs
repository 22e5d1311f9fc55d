//! Writes of single records: accepting a decision, storing it into its slot, and making room for it.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordToken, SlotState, Stored, ValueExtent};
use fpcache::message::{WriteOperation, WriteReply, WriteStatus};
use fpcache::models::Segment;
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{AccessError, NodeMemory};

use super::Table;
use super::error::TableError;
use super::segments::Segments;
use super::segments::copied::CopiedSlot;
use super::segments::decide::{Decision, MutationKind, SlotHint, SlotMutation};
use super::segments::slots::{NO_MARKS, Slots};
use super::values::ExternalPart;

impl<K: BuildKeys, M: NodeMemory> Table<K, M> {
    /// Decides what an operation does now: see `Segments::decide`.
    #[inline]
    pub(crate) fn decide<Q: Borrow<K::Key> + Copy>(
        &mut self,
        operation: &WriteOperation<'_, Q>,
        ahead: Option<&SlotHint<K>>,
    ) -> Result<Decision<K, Q>, AccessError> {
        let room = &self.room;
        self.segments.decide(operation, ahead, || room.is_over_limit())
    }

    /// Accepts what was decided: the next decision has another version.
    pub(crate) fn accept(&mut self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) {
        if self.segments.accept(mutation) {
            self.rebuilder.note_due(mutation.key.borrow());
        }
    }

    /// Performs a mutation that was decided and accepted. The segment must be the one it was
    /// decided for. Performing it again changes nothing.
    // Inlined: a reply that came back through memory would be read while the slot's stores, misses
    // of the cache, have yet to be made, and wait for them.
    #[inline(always)]
    pub(crate) fn perform<Q: Borrow<K::Key> + Clone>(
        &mut self,
        mutation: &SlotMutation<K, Q>,
        value: &Stored<'_>,
    ) -> Result<WriteReply, AccessError> {
        let moved;
        let mutation = if self.segments.breaks(Sabotage::MoveLiveKey) {
            moved = self.segments.moved(mutation)?;
            &moved
        } else {
            mutation
        };
        let before = match mutation.kind {
            MutationKind::Insert => ExternalPart::Nothing,
            MutationKind::Update | MutationKind::Remove => {
                self.segments.value_of(&mutation.segment, mutation.slot)?
            }
        };
        self.counters.writes += 1;
        let token = match mutation.kind {
            MutationKind::Remove => {
                self.segments.remove(mutation)?;
                self.exchange_value(mutation.key.borrow(), before, &Stored::Here(&[]));
                None
            }
            MutationKind::Insert | MutationKind::Update => {
                let token = self.segments.put(mutation, value)?;
                self.counters.inserts += u64::from(mutation.kind == MutationKind::Insert);
                self.exchange_value(mutation.key.borrow(), before, value);
                if let Some(taking) = &mut self.taking {
                    taking.note(&mutation.segment, mutation.slot, mutation.key.borrow());
                }
                Some(token)
            }
        };
        if self.segments.breaks(Sabotage::MarkLost) {
            self.segments.slots(&mutation.segment).lose_mark(mutation.slot)?;
        }
        Ok(WriteReply { status: WriteStatus::Done, token })
    }

    /// A slot of this key no longer has what was outside it before, and has this value.
    #[inline]
    fn exchange_value(&mut self, key: &K::Key, before: ExternalPart, now: &Stored<'_>) {
        if let Some(memory) = self.values.exchange(key, before, now) {
            self.room.space.put(memory);
        }
    }

    /// Bytes of the segment that owns `key`.
    fn segment_bytes(&self, key: &K::Key) -> u64 {
        let cap = self.segments.directory.find(key).map_or(0, |segment| segment.model().cap);
        self.segments.geometry.segment_bytes(cap) as u64
    }

    /// How many bytes are missed if it is known that the segment of `key` cannot be replaced for
    /// want of room.
    pub(crate) fn refused_for(&self, key: &K::Key) -> Option<u64> {
        let len = self.segment_bytes(key);
        let is_refused = self.room.is_over_limit() || self.room.is_known_full(&self.segments, len);
        is_refused.then(|| self.room.needed_for(len))
    }

    /// The same if it is known that a value of this many bytes finds no room.
    pub(crate) fn refused_for_value(&self, bytes: usize) -> Option<u64> {
        let len = ValueExtent::memory_bytes(bytes) as u64;
        self.room.is_known_too_long(&self.segments, len).then(|| self.room.needed_for(len))
    }

    /// Replaces the segment of `key`, whose window is full, or takes one step to make room for
    /// that; `false` if there is more to do.
    pub(crate) fn make_room(&mut self, key: &K::Key) -> Result<bool, TableError> {
        if !self.is_searching() {
            if self.refused_for(key).is_some() {
                return Err(self.room.no_room());
            }
            self.counters.window_full_waits += 1;
            match self.replace_segment(key, Some(key)) {
                Err(TableError::NoRoom { .. }) => {}
                other => return other.map(|()| true),
            }
        }
        let len = self.segment_bytes(key);
        // A search under way may be for another extent, which says nothing of this one.
        let is_for_it = self.search.as_ref().is_none_or(|search| search.len == len);
        let made = match self.step_search(len)? {
            None => return Ok(false),
            Some(false) if is_for_it => Err(self.room.no_room()),
            Some(_) => self.replace_segment(key, Some(key)),
        };
        if matches!(made, Err(TableError::NoRoom { .. })) {
            if !is_for_it {
                return Ok(false);
            }
            if !self.room.superblock.grant.is_disk_full() {
                self.room.note_full(&self.segments, len);
            }
        }
        made.map(|()| true)
    }

    /// Replaces a segment that was nearly full when its key was noted, or whose table of groups was
    /// damaged, if that is so still; `false` if it is not.
    pub(super) fn replace_if_due(&mut self, key: &K::Key) -> Result<bool, TableError> {
        if self.room.is_over_limit() || !self.segments.is_due(key)? {
            return Ok(false);
        }
        match self.replace_segment(key, None) {
            // The next write that needs the room will be told.
            Err(error) if error.is_local_failure() => self.note_damage(error),
            other => other?,
        }
        Ok(true)
    }

    /// Takes one step to make room for a value that found none; whether it helped, once that is
    /// known. No slot may be reserved.
    pub(crate) fn make_room_for_value(&mut self, bytes: usize) -> Result<Option<bool>, TableError> {
        let len = ValueExtent::memory_bytes(bytes) as u64;
        // A search under way may be for another extent, which says nothing of this one.
        let searched = self.search.as_ref().map_or(len, |search| search.len);
        let made = self.step_search(len)?;
        if made == Some(false) {
            self.room.note_too_long(&self.segments, searched);
        }
        Ok(made.filter(|made| *made || searched == len))
    }
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Removes a record.
    #[inline(always)]
    fn remove<Q>(&mut self, mutation: &SlotMutation<K, Q>) -> Result<(), AccessError> {
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
    fn put<Q: Borrow<K::Key>>(
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
    fn moved<Q: Borrow<K::Key> + Clone>(
        &mut self,
        mutation: &SlotMutation<K, Q>,
    ) -> Result<SlotMutation<K, Q>, AccessError> {
        if mutation.kind != MutationKind::Update {
            return Ok(mutation.clone());
        }
        let slots = Slots::of(&*self.region, self.geometry, &mutation.segment);
        let window = mutation.segment.model().window_around(mutation.predicted);
        for slot in window.first..=window.last {
            if slots.word(slot)?.state() == SlotState::Free {
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
    fn value_of(&mut self, segment: &Segment<K>, slot: u32) -> Result<ExternalPart, AccessError> {
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
