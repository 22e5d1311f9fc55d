//! The search for a key's record, and the decision which slot an operation changes.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{SegmentGeometry, ValuePlace};
use fpcache::matching::Fingerprints;
use fpcache::message::{WriteKind, WriteOperation, WriteReply, WriteStatus};
use fpcache::models::Segment;
use fpcache_fabric::{AccessError, NodeMemory};

use super::copied::CopiedSlot;
use super::slots::{MarkSlots, NO_MARKS, Slots};
use super::{KeyWindow, Segments, WindowSearch};
use crate::rebuild::choose::{choose_in_block, choose_in_group, choose_slot, is_nearly_full};
use crate::versions::next_version;

/// What an operation does to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutationKind {
    /// Puts a record into a free slot.
    Insert,
    /// Replaces the record by another of the same key.
    Update,
    /// Removes the record.
    Remove,
}

/// A change of one slot that is decided and not yet done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotMutation<K: KeySpace, Q> {
    pub(crate) kind: MutationKind,
    pub(crate) segment: Segment<K>,
    pub(crate) slot: u32,
    /// The slot that the key's prediction names.
    pub(crate) predicted: u32,
    pub(crate) key: Q,
    pub(crate) hash: u64,
    pub(crate) version: u32,
    /// The slots to mark before the record goes live, because it lies outside its group or block.
    pub(crate) marks: MarkSlots,
}

impl<K: KeySpace, Q: Borrow<K::Key>> SlotMutation<K, Q> {
    /// The same, with a key of its own.
    pub(crate) fn to_owned(&self) -> SlotMutation<K, K::Owned> {
        let Self { kind, segment, slot, predicted, ref key, hash, version, marks } = *self;
        SlotMutation { kind, segment, slot, predicted, key: key.borrow().to_owned(), hash, version, marks }
    }
}

/// What an operation will do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision<K: KeySpace, Q> {
    /// Nothing changes.
    Reply(WriteReply),
    /// A slot changes.
    Mutate(SlotMutation<K, Q>),
    /// The key's window is full: its segment must be replaced first.
    Full,
    /// Nothing changes: the key's record is damaged, or one in this slot that may be the key's.
    Damaged(Segment<K>, u32),
}

/// The place of a key as it was when the table's next segment was to have this generation.
#[derive(Clone, Copy)]
pub(crate) struct SlotHint<K: KeySpace> {
    place: KeyWindow<K>,
    next_generation: u32,
}

/// What a key's window has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowMatch {
    /// No record.
    Nothing,
    /// A live slot with the key, whose checksum was not looked at.
    Record(u32),
    /// A damaged slot with the key, in a state that is none of a record, or with a length that
    /// cannot be.
    DamagedRecord(u32),
    /// A damaged slot that may have been the key's.
    Damaged(u32),
}

impl<K: BuildKeys, M: NodeMemory> Segments<K, M> {
    /// Prefetches what an operation will need, and returns where its key can be.
    pub(crate) fn prefetch(&self, key: &K::Key, hint: Option<u16>) -> Option<SlotHint<K>> {
        let place = self.place(key)?;
        let slots = self.slots(&place.segment);
        let named = hint.map(u32::from).filter(|slot| place.window.contains(*slot));
        slots.prefetch(named, place.predicted, place.window);
        Some(SlotHint { place, next_generation: self.next_generation })
    }

    /// Decides what an operation does now. Changes nothing. If `ahead` was found before, it saves
    /// the search unless a segment was replaced since. `is_over_limit` says whether the table may
    /// take no more memory; it is called for new records only.
    pub(crate) fn decide<Q: Borrow<K::Key> + Copy>(
        &mut self,
        operation: &WriteOperation<'_, Q>,
        ahead: Option<&SlotHint<K>>,
        is_over_limit: impl Fn() -> bool,
    ) -> Result<Decision<K, Q>, AccessError> {
        let WriteOperation { kind, key, hint, expected, .. } = *operation;
        let place = match ahead {
            // Every replacement makes segments with new generations.
            Some(ahead) if ahead.next_generation == self.next_generation => ahead.place,
            _ => match self.place(key.borrow()) {
                Some(place) => place,
                // A directory is never empty.
                None => return Ok(Decision::Full),
            },
        };
        debug_assert_eq!(self.directory.find(key.borrow()), Some(&place.segment));
        let slots = Slots::of(&*self.region, self.geometry, &place.segment);
        let hash = K::hash(key.borrow());
        let found = self.search.find(&slots, &place, key.borrow(), hash, hint)?;
        let (segment, predicted, version) = (place.segment, place.predicted, self.next_version);
        let change = |kind, slot, marks| {
            Decision::Mutate(SlotMutation { kind, segment, slot, predicted, key, hash, version, marks })
        };
        let slot = match found {
            WindowMatch::Record(slot) => slot,
            // With its key and fingerprint it is the key's: what does not ask for its value takes
            // its place.
            WindowMatch::DamagedRecord(slot) => {
                return Ok(match kind {
                    WriteKind::Put | WriteKind::Update => change(MutationKind::Update, slot, NO_MARKS),
                    WriteKind::Delete => change(MutationKind::Remove, slot, NO_MARKS),
                    WriteKind::Insert | WriteKind::CompareAndSet => Decision::Damaged(segment, slot),
                });
            }
            // Beside it the key might be there twice, and instead of it another key's might be
            // gone.
            WindowMatch::Damaged(slot) => return Ok(Decision::Damaged(segment, slot)),
            WindowMatch::Nothing => {
                return Ok(match kind {
                    WriteKind::Insert | WriteKind::Put => {
                        match self.search.slot_for_new(&slots, &place, (operation, hash), is_over_limit)? {
                            Some((slot, marks)) => change(MutationKind::Insert, slot, marks),
                            None => Decision::Full,
                        }
                    }
                    WriteKind::Update | WriteKind::Delete | WriteKind::CompareAndSet => {
                        Decision::Reply(WriteReply { status: WriteStatus::Absent, token: None })
                    }
                });
            }
        };
        Ok(match kind {
            WriteKind::Put | WriteKind::Update => change(MutationKind::Update, slot, NO_MARKS),
            WriteKind::Delete => change(MutationKind::Remove, slot, NO_MARKS),
            WriteKind::Insert => match self.search.token::<K, M>(&slots, slot)? {
                None => Decision::Damaged(segment, slot),
                token => Decision::Reply(WriteReply { status: WriteStatus::Exists, token }),
            },
            WriteKind::CompareAndSet => match self.search.token::<K, M>(&slots, slot)? {
                None => Decision::Damaged(segment, slot),
                Some(token) if token == expected => change(MutationKind::Update, slot, NO_MARKS),
                token => Decision::Reply(WriteReply { status: WriteStatus::Differs, token }),
            },
        })
    }

    /// Accepts what was decided, so that the next decision has another version; `true` if an insert
    /// has nearly filled its window.
    pub(crate) fn accept(&mut self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) -> bool {
        self.next_version = next_version(mutation.version);
        // `free_slot` left the window's free slots, one of which the insert took.
        let free = self.search.slots.len().saturating_sub(1);
        let window = || mutation.segment.model().window_around(mutation.predicted);
        mutation.kind == MutationKind::Insert && is_nearly_full(free, window())
    }

    /// Whether a key's segment is to be replaced: few slots of the key's window are free, or its
    /// table of groups is damaged.
    pub(crate) fn is_due(&mut self, key: &K::Key) -> Result<bool, AccessError> {
        let Some(place) = self.place(key) else { return Ok(false) };
        let slots = Slots::of(&*self.region, self.geometry, &place.segment);
        let WindowSearch { fingerprints, body, .. } = &mut self.search;
        if !slots.has_whole_table(body)? {
            return Ok(true);
        }
        slots.read_fingerprints::<K>(place.window, body, fingerprints)?;
        self.search.free_slot(&slots, &place, K::hash(key))?;
        Ok(is_nearly_full(self.search.slots.len(), place.window))
    }

    /// Keeps the slot of a record to come free of others, until it is there. Readers see nothing of
    /// it.
    pub(crate) fn reserve<Q>(&mut self, mutation: &SlotMutation<K, Q>) {
        if mutation.kind == MutationKind::Insert {
            self.search.reserved.insert((mutation.segment.address().offset(), mutation.slot));
        }
    }

    /// Whether the segment a mutation was decided for is still its key's.
    pub(crate) fn still_owns(&self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) -> bool {
        self.directory.find(mutation.key.borrow()) == Some(&mutation.segment)
    }
}

impl WindowSearch {
    /// The slot that holds `key`: the one the client named, or one whose fingerprint matches.
    #[inline]
    pub(super) fn find<K: KeySpace, M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &KeyWindow<K>,
        key: &K::Key,
        hash: u64,
        hint: Option<u16>,
    ) -> Result<WindowMatch, AccessError> {
        if let Some(slot) = hint.map(u32::from).filter(|slot| place.window.contains(*slot))
            && slots.holds::<K>(slot, key, &mut self.body)?
            // A freed slot whose state is damaged still has its key; its fingerprint tells.
            && slots.word(slot)?.checksum() != 0
        {
            return Ok(WindowMatch::Record(slot));
        }
        let width = slots.geometry.width;
        let Self { matcher, fingerprints, slots: candidates, body, .. } = self;
        slots.read_fingerprints::<K>(place.window, body, fingerprints)?;
        candidates.clear();
        let wanted = width.of_hash(hash);
        let fingerprints = Fingerprints::new(width, place.window.len() as usize, fingerprints);
        matcher.find(fingerprints, wanted, place.window.first, candidates);
        let mut found = None;
        for slot in &*candidates {
            // Another key may have become this one by damage: of two the whole one is the key's.
            if slots.holds::<K>(*slot, key, body)?
                && (found.is_none() || matches!(slots.read_state::<K>(*slot, body)?, CopiedSlot::Whole(..)))
            {
                found = Some(*slot);
            }
        }
        if let Some(slot) = found {
            return Ok(WindowMatch::Record(slot));
        }
        if candidates.is_empty() && slots.geometry.stores_fingerprints {
            return Ok(WindowMatch::Nothing);
        }
        self.find_damaged(slots, place, key)
    }

    /// The slot for a new record, and the slots to mark for it; `None` if its segment has to be
    /// replaced first.
    fn slot_for_new<K: KeySpace, M: NodeMemory, Q: Borrow<K::Key>>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &KeyWindow<K>,
        (operation, hash): (&WriteOperation<'_, Q>, u64),
        is_over_limit: impl Fn() -> bool,
    ) -> Result<Option<(u32, MarkSlots)>, AccessError> {
        // Making room will be refused.
        if is_over_limit() && is_external::<K, Q>(&slots.geometry, operation) {
            return Ok(None);
        }
        // Readers may have the table as it was before it was damaged, and would look for the key
        // elsewhere.
        if !slots.has_whole_table(&mut self.body)? {
            return Ok(None);
        }
        let Some(slot) = self.free_slot(slots, place, hash)? else { return Ok(None) };
        let marks = slots.to_mark(&place.segment.model(), (place.x, hash), slot)?;
        Ok(Some((slot, marks)))
    }

    /// The slot for a new record of a key of this hash among those of the window whose fingerprints
    /// were read last; `None` if it is full.
    fn free_slot<K: KeySpace, M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &KeyWindow<K>,
        hash: u64,
    ) -> Result<Option<u32>, AccessError> {
        let Self { matcher, reserved, fingerprints, slots: free, body } = self;
        let fingerprints = Fingerprints::new(slots.geometry.width, place.window.len() as usize, fingerprints);
        free.clear();
        matcher.find(fingerprints, FingerprintWidth::EMPTY, place.window.first, free);
        let home = match slots.geometry.groups {
            Some(grouping) => {
                let home = slots.home_of(&place.segment.model(), (place.x, hash))?;
                home.map(|home| (home, grouping))
            }
            None => None,
        };
        loop {
            let at_home = home.and_then(|(home, grouping)| {
                let (first, count) = home.group;
                let in_group =
                    (count > 0).then(|| choose_in_group(free, place.predicted, first, grouping)).flatten();
                in_group.or_else(|| choose_in_block(free, place.predicted, home.block))
            });
            let chosen = at_home.or_else(|| choose_slot(free, place.predicted, place.window));
            match chosen {
                // One that a record which waits for the disk is to have, or that has a record whose
                // fingerprint is damaged.
                Some(slot)
                    if reserved.contains(&(slots.offset(), slot)) || !slots.is_free::<K>(slot, body)? =>
                {
                    free.retain(|other| *other != slot);
                }
                chosen => return Ok(chosen),
            }
        }
    }
}

/// Whether the value of an operation is to be external.
#[cold]
pub(crate) fn is_external<K: KeySpace, Q: Borrow<K::Key>>(
    geometry: &SegmentGeometry,
    operation: &WriteOperation<'_, Q>,
) -> bool {
    let (key, value) = (K::encoded_len(operation.key.borrow()), operation.value.len());
    geometry.shape.place(key, value) == Some(ValuePlace::External)
}
