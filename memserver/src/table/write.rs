//! One operation: what it comes to, and doing that.

use std::borrow::Borrow;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{RecordToken, SlotWord, Stored, ValuePlace};
use fpcache::message::{WriteKind, WriteOperation, WriteReply, WriteStatus};
use fpcache::models::Segment;
#[cfg(feature = "sabotage")]
use fpcache::sabotage::Sabotage;
use fpcache_fabric::{AccessError, NodeMemory};
use fpcache_index::Window;

use super::slots::Slots;
use super::{Scratch, Table, TableError};
use crate::loader::FIRST_VERSION;
use crate::rebuild::choose::{choose_in_group, choose_slot, is_nearly_full};
use crate::superblock_writer::SuperblockWriter;

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
    /// The slot to mark before the record goes live, because it lies outside its group.
    pub(crate) mark: Option<u32>,
}

impl<K: KeySpace, Q: Borrow<K::Key>> SlotMutation<K, Q> {
    /// The same, with a key of its own.
    pub(crate) fn to_owned(&self) -> SlotMutation<K, K::Owned> {
        let Self { kind, segment, slot, predicted, ref key, hash, version, mark } = *self;
        SlotMutation { kind, segment, slot, predicted, key: key.borrow().to_owned(), hash, version, mark }
    }
}

/// What an operation comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision<K: KeySpace, Q> {
    /// Nothing changes.
    Reply(WriteReply),
    /// A slot changes.
    Mutate(SlotMutation<K, Q>),
    /// The key's window is full: its segment must be replaced first.
    Full,
}

/// The only place where a key can be.
#[derive(Clone, Copy)]
struct Place<K: KeySpace> {
    segment: Segment<K>,
    x: u64,
    predicted: u32,
    window: Window,
}

/// The place of a key as it was when the table's next segment was to have this generation.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<K: KeySpace> {
    place: Place<K>,
    next_generation: u32,
}

impl<K: BuildKeys> Table<K> {
    fn place(&self, key: &K::Key) -> Option<Place<K>> {
        let (segment, shared) = self.directory.find_shared(key)?;
        let (segment, model) = (*segment, segment.model());
        let x = segment.coordinate(key, shared, &self.encoders);
        let predicted = model.predict(x);
        Some(Place { segment, x, predicted, window: model.window_around(predicted) })
    }

    /// Hints to the processor what an operation will need, and says where its key can be.
    pub(crate) fn prefetch<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        key: &K::Key,
        hint: Option<u16>,
    ) -> Option<Ahead<K>> {
        let place = self.place(key)?;
        let slots = Slots::of(&*superblock.region, self.geometry, &place.segment);
        let named = hint.map(u32::from).filter(|slot| place.window.contains(*slot));
        slots.prefetch(named, place.predicted, place.window);
        Some(Ahead { place, next_generation: self.next_generation })
    }

    /// What an operation comes to now. Nothing has changed after. What was found out ahead about its key saves a search
    /// if no segment has been replaced since.
    pub(crate) fn decide<M: NodeMemory, Q: Borrow<K::Key> + Copy>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        operation: &WriteOperation<'_, Q>,
        ahead: Option<&Ahead<K>>,
    ) -> Result<Decision<K, Q>, AccessError> {
        let WriteOperation { kind, key, hint, expected, .. } = *operation;
        let place = match ahead {
            // Whatever replaces segments makes new ones, each with a generation of its own.
            Some(ahead) if ahead.next_generation == self.next_generation => ahead.place,
            _ => match self.place(key.borrow()) {
                Some(place) => place,
                // A directory is never empty.
                None => return Ok(Decision::Full),
            },
        };
        debug_assert_eq!(self.directory.find(key.borrow()), Some(&place.segment));
        let slots = Slots::of(&*superblock.region, self.geometry, &place.segment);
        let hash = K::hash(key.borrow());
        let found = self.find(&slots, &place, key.borrow(), hash, hint)?;
        let (segment, predicted, version) = (place.segment, place.predicted, self.next_version);
        let change = |kind, slot| {
            Decision::Mutate(SlotMutation { kind, segment, slot, predicted, key, hash, version, mark: None })
        };
        let Some(slot) = found else {
            return Ok(match kind {
                // Making room will be refused.
                WriteKind::Insert | WriteKind::Put
                    if self.is_over_limit(superblock) && self.is_external(operation) =>
                {
                    Decision::Full
                }
                WriteKind::Insert | WriteKind::Put => match self.free_slot(&slots, &place, hash)? {
                    Some(slot) => {
                        let mark = slots.to_mark(&segment.model(), (place.x, hash), slot)?;
                        let kind = MutationKind::Insert;
                        Decision::Mutate(SlotMutation {
                            kind,
                            segment,
                            slot,
                            predicted,
                            key,
                            hash,
                            version,
                            mark,
                        })
                    }
                    None => Decision::Full,
                },
                WriteKind::Update | WriteKind::Delete | WriteKind::CompareAndSet => {
                    Decision::Reply(WriteReply { status: WriteStatus::Absent, token: None })
                }
            });
        };
        Ok(match kind {
            WriteKind::Put | WriteKind::Update => change(MutationKind::Update, slot),
            WriteKind::Delete => change(MutationKind::Remove, slot),
            WriteKind::Insert => {
                let token = Some(self.token(&slots, slot)?);
                Decision::Reply(WriteReply { status: WriteStatus::Exists, token })
            }
            WriteKind::CompareAndSet => match self.token(&slots, slot)? {
                token if token == expected => change(MutationKind::Update, slot),
                token => Decision::Reply(WriteReply { status: WriteStatus::Differs, token: Some(token) }),
            },
        })
    }

    /// Whether the value of an operation is to be external.
    #[cold]
    fn is_external<Q: Borrow<K::Key>>(&self, operation: &WriteOperation<'_, Q>) -> bool {
        let (key, value) = (K::encoded_len(operation.key.borrow()), operation.value.len());
        self.geometry.shape.place(key, value) == Some(ValuePlace::External)
    }

    /// The slot that holds `key`: the one the client named, or one whose fingerprint matches.
    #[inline]
    fn find<M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &Place<K>,
        key: &K::Key,
        hash: u64,
        hint: Option<u16>,
    ) -> Result<Option<u32>, AccessError> {
        if let Some(slot) = hint.map(u32::from).filter(|slot| place.window.contains(*slot))
            && slots.holds::<K>(slot, key, &mut self.scratch.body)?
        {
            return Ok(Some(slot));
        }
        let (width, scratch) = (self.geometry.width, &mut self.scratch);
        slots.read_fingerprints(place.window, &mut scratch.fingerprints)?;
        scratch.slots.clear();
        let wanted = width.of_hash(hash);
        self.matcher.find(width, &scratch.fingerprints, wanted, place.window.first, &mut scratch.slots);
        let Scratch { slots: candidates, body, .. } = scratch;
        for slot in candidates {
            if slots.holds::<K>(*slot, key, body)? {
                return Ok(Some(*slot));
            }
        }
        Ok(None)
    }

    /// The slot for a new record of a key of this hash among those of the window whose fingerprints were read last; `None` if it is full.
    fn free_slot<M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        place: &Place<K>,
        hash: u64,
    ) -> Result<Option<u32>, AccessError> {
        let (width, scratch) = (self.geometry.width, &mut self.scratch);
        scratch.slots.clear();
        let empty = FingerprintWidth::EMPTY;
        self.matcher.find(width, &scratch.fingerprints, empty, place.window.first, &mut scratch.slots);
        let group = match self.geometry.groups {
            Some(grouping) => {
                let group = slots.group_of(&place.segment.model(), (place.x, hash))?;
                group.map(|(first, _)| (first, grouping))
            }
            None => None,
        };
        loop {
            let in_group = group.and_then(|(first, grouping)| {
                choose_in_group(&scratch.slots, place.predicted, first, grouping)
            });
            let chosen = in_group.or_else(|| choose_slot(&scratch.slots, place.predicted, place.window));
            match chosen {
                // One that a record which waits for the disk is to have.
                Some(slot) if self.reserved.contains(&(slots.offset(), slot)) => {
                    scratch.slots.retain(|other| *other != slot);
                }
                chosen => return Ok(chosen),
            }
        }
    }

    /// The token of the record in a live slot.
    fn token<M: NodeMemory>(&mut self, slots: &Slots<'_, M>, slot: u32) -> Result<RecordToken, AccessError> {
        let version = slots.word(slot)?.version();
        let (body, shape) = (&mut self.scratch.body, self.geometry.shape);
        body.resize(shape.body_bytes(), 0);
        slots.read_body(slot, body)?;
        // A live record has parts.
        let parts = shape.parts::<K>(body);
        let used = parts.map_or(0, |parts| shape.used(parts.key.len(), &parts.value));
        Ok(RecordToken::of(version, &body[..used]))
    }

    /// Accepts what was decided: the next decision has another version.
    pub(crate) fn accept(&mut self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) {
        self.next_version = next_version(mutation.version);
        if mutation.kind == MutationKind::Insert {
            self.note_crowding(mutation);
        }
    }

    /// Keeps the slot of a record to come free of others, until it is there. Readers see nothing of it.
    pub(crate) fn reserve<Q>(&mut self, mutation: &SlotMutation<K, Q>) {
        if mutation.kind == MutationKind::Insert {
            self.reserved.insert((mutation.segment.address().offset(), mutation.slot));
        }
    }

    /// Whether the segment a mutation was decided for is still its key's.
    pub(crate) fn still_owns(&self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) -> bool {
        self.directory.find(mutation.key.borrow()) == Some(&mutation.segment)
    }

    /// Does what was decided and accepted, and says so. The segment must be the one it was decided for. Doing it again
    /// changes nothing.
    // Inlined: a reply that came back through memory would be read while the slot's stores, misses of the cache, have yet
    // to be made, and wait for them.
    #[inline(always)]
    pub(crate) fn perform<M: NodeMemory, Q: Borrow<K::Key> + Clone>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        mutation: &SlotMutation<K, Q>,
        value: &Stored<'_>,
    ) -> Result<WriteReply, AccessError> {
        #[cfg(feature = "sabotage")]
        let mutation = &self.moved(superblock, mutation)?;
        let slots = Slots::of(&*superblock.region, self.geometry, &mutation.segment);
        let before = match mutation.kind {
            MutationKind::Insert => None,
            MutationKind::Update | MutationKind::Remove => self.value_of(&slots, mutation.slot)?,
        };
        let home = u64::from(mutation.slot == mutation.predicted);
        self.counters.writes += 1;
        let token = match mutation.kind {
            MutationKind::Remove => {
                #[cfg(feature = "sabotage")]
                if superblock.breaks(Sabotage::FingerprintBeforeWord) {
                    slots.remove_fingerprint_first(mutation.slot, mutation.version)?;
                }
                slots.remove(mutation.slot, mutation.version)?;
                self.keys -= 1;
                self.at_home = self.at_home.saturating_sub(home);
                self.exchange(before.as_ref(), &Stored::Here(&[]));
                None
            }
            MutationKind::Insert | MutationKind::Update => {
                let used = self.fill_body(mutation.key.borrow(), value);
                let body = &self.scratch.body;
                let token = RecordToken::of(mutation.version, &body[..used]);
                if mutation.kind == MutationKind::Update {
                    slots.update(mutation.slot, mutation.version, body)?;
                } else {
                    let mark = mutation.mark;
                    #[cfg(feature = "sabotage")]
                    let mark = mark.filter(|_| !superblock.breaks(Sabotage::LiveBeforeMark));
                    if let Some(first) = mark {
                        slots.mark(first)?;
                    }
                    #[cfg(feature = "sabotage")]
                    if superblock.breaks(Sabotage::WordBeforeFingerprint) {
                        slots.insert_word_first(mutation.slot, mutation.hash, mutation.version, body)?;
                    } else {
                        slots.insert(mutation.slot, mutation.hash, mutation.version, body)?;
                    }
                    #[cfg(not(feature = "sabotage"))]
                    slots.insert(mutation.slot, mutation.hash, mutation.version, body)?;
                    #[cfg(feature = "sabotage")]
                    if let Some(first) = mutation.mark {
                        superblock.region.release();
                        slots.mark(first)?;
                    }
                    if !self.reserved.is_empty() {
                        self.reserved.remove(&(slots.offset(), mutation.slot));
                    }
                    self.keys += 1;
                    self.at_home += home;
                    self.counters.inserts += 1;
                }
                self.exchange(before.as_ref(), value);
                if let Some(taking) = &mut self.taking {
                    taking.note(&mutation.segment, mutation.slot, mutation.key.borrow());
                }
                Some(token)
            }
        };
        #[cfg(feature = "sabotage")]
        if superblock.breaks(Sabotage::MarkLost) {
            slots.lose_mark(mutation.slot)?;
        }
        Ok(WriteReply { status: WriteStatus::Done, token })
    }

    /// The mutation, after moving the record it replaces inside its window if that is what is broken on purpose.
    #[cfg(feature = "sabotage")]
    fn moved<M: NodeMemory, Q: Borrow<K::Key> + Clone>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        mutation: &SlotMutation<K, Q>,
    ) -> Result<SlotMutation<K, Q>, AccessError> {
        if !superblock.breaks(Sabotage::MoveLiveKey) || mutation.kind != MutationKind::Update {
            return Ok(mutation.clone());
        }
        let slots = Slots::of(&*superblock.region, self.geometry, &mutation.segment);
        let window = mutation.segment.model().window_around(mutation.predicted);
        for slot in window.first..=window.last {
            if slots.word(slot)?.state() == fpcache::layout::SlotState::Free {
                slots.relocate(mutation.slot, slot, mutation.hash, &mut self.scratch.body)?;
                return Ok(SlotMutation { slot, ..mutation.clone() });
            }
        }
        Ok(mutation.clone())
    }

    /// Writes record and padding into the scratch body; returns the bytes of the first.
    fn fill_body(&mut self, key: &K::Key, value: &Stored<'_>) -> usize {
        let (body, shape) = (&mut self.scratch.body, self.geometry.shape);
        body.clear();
        body.resize(shape.body_bytes(), 0);
        shape.fill::<K>(body, key, value)
    }

    /// Remembers a segment whose window an insert has nearly filled: it is replaced before somebody has to wait for that.
    fn note_crowding(&mut self, mutation: &SlotMutation<K, impl Borrow<K::Key>>) {
        // `free_slot` left the window's free slots, one of which the insert took.
        let free = self.scratch.slots.len().saturating_sub(1);
        let window = mutation.segment.model().window_around(mutation.predicted);
        if is_nearly_full(free, window) && self.rebuilder.nearly_full.len() < MAX_NEARLY_FULL {
            self.rebuilder.nearly_full.push(mutation.key.borrow().to_owned());
        }
    }

    /// Reads a record the way a writer sees it, for clients that cannot read it one-sided.
    pub(crate) fn get<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
        key: &K::Key,
    ) -> Result<Option<(RecordToken, Stored<'_>)>, AccessError> {
        let Some(place) = self.place(key) else { return Ok(None) };
        let slots = Slots::of(&*superblock.region, self.geometry, &place.segment);
        let Some(slot) = self.find(&slots, &place, key, K::hash(key), None)? else { return Ok(None) };
        let token = self.token(&slots, slot)?;
        // A live record has parts.
        let parts = self.geometry.shape.parts::<K>(&self.scratch.body);
        Ok(parts.map(|parts| (token, parts.value)))
    }

    /// Replaces the segment of `key` whose window is full, or does some more of what can make room for that; `false` if there is
    /// more to do.
    pub(crate) fn make_room<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        key: &K::Key,
    ) -> Result<bool, TableError> {
        if !self.is_searching() {
            if self.is_over_limit(superblock) || self.is_known_full() {
                return Err(self.no_room(superblock));
            }
            self.counters.window_full_waits += 1;
            match self.replace_segment(superblock, key, Some(key)) {
                Err(TableError::NoRoom { .. }) => {}
                other => return other.map(|()| true),
            }
        }
        let cap = self.directory.find(key).map_or(0, |segment| segment.model().cap);
        let len = self.geometry.segment_bytes(cap) as u64;
        let made = match self.step_search(superblock, len)? {
            None => return Ok(false),
            Some(true) => self.replace_segment(superblock, key, Some(key)),
            Some(false) => Err(self.no_room(superblock)),
        };
        if let Err(TableError::NoRoom { .. }) = made {
            self.note_full(len);
        }
        made.map(|()| true)
    }

    /// Replaces a segment that was nearly full when its key was noted, if it still is.
    pub(crate) fn relieve<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        key: &K::Key,
    ) -> Result<(), TableError> {
        let Some(place) = self.place(key).filter(|_| !self.is_over_limit(superblock)) else { return Ok(()) };
        let slots = Slots::of(&*superblock.region, self.geometry, &place.segment);
        slots.read_fingerprints(place.window, &mut self.scratch.fingerprints)?;
        self.free_slot(&slots, &place, K::hash(key))?;
        if !is_nearly_full(self.scratch.slots.len(), place.window) {
            return Ok(());
        }
        match self.replace_segment(superblock, key, None) {
            // Whoever needs the room will be told.
            Err(TableError::NoRoom { .. }) => Ok(()),
            other => other,
        }
    }
}

/// Nearly full segments that are remembered; those beyond are replaced when they are full.
const MAX_NEARLY_FULL: usize = 1024;

/// The version after `version`.
pub(crate) fn next_version(version: u32) -> u32 {
    // What was never written to has version 0 or 1, and nothing else has: readers conclude from them that a slot never
    // changed. 0 would also make a token of zeros possible.
    ((version + 1) % SlotWord::VERSIONS).max(FIRST_VERSION + 1)
}
