//! The slots of one segment, as the memory node reads and changes them.
//!
//! The order of the stores is the protocol: *if a slot is live with key k, its fingerprint is that
//! of k*, for every reader at every instant. Storing the slot's word is the only point at which a
//! record appears or disappears.

use std::borrow::Borrow;
use std::ops::Range;

use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::KeySpace;
use fpcache::layout::{
    Corrupt, SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentGeometry, SlotState, SlotWord, TableParameters,
    bits_of_groups, is_whole_table, name_at, separator_at,
};
use fpcache::models::Segment;
use fpcache_fabric::{AccessError, NodeMemory};
use fpcache_index::groups::{blocks_among, finest};
use fpcache_index::{SegmentModel, Window};

/// The slots in which readers look first for a key: the first, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// Those of a READ of its group: none if no pilot tells, and readers look everywhere.
    pub(crate) group: (u32, u32),
    /// Those of its block, by which scans go.
    pub(crate) block: (u32, u32),
    /// The slots that are marked if a record of the block lies outside of it.
    pub(crate) marks_of_block: [u32; 2],
}

/// The slots that say that a record lies outside its group, and two that say that it lies outside
/// its block.
pub(crate) type MarkSlots = [Option<u32>; 3];

/// Of a record that lies where all readers look for it.
pub(crate) const NO_MARKS: MarkSlots = [None; 3];

impl Home {
    /// What says that a record lies in this slot, if that is another one.
    fn marks(self, slot: u32) -> MarkSlots {
        let is_outside = |(first, count): (u32, u32)| count > 0 && !(first..first + count).contains(&slot);
        let of_group = is_outside(self.group).then_some(self.group.0);
        let [one, other] = self.marks_of_block.map(|mark| is_outside(self.block).then_some(mark));
        [of_group, one, other]
    }
}

/// Where a record lies in the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Its slot: the word, and what comes after it.
    pub slot: Range<u64>,
    /// Its fingerprint: no bytes if none are stored.
    pub fingerprint: Range<u64>,
}

/// Where a segment lies in the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPlace {
    /// Its slots.
    pub slots: Vec<RecordPlace>,
    /// Its table of groups: no bytes if it has none.
    pub table: Range<u64>,
}

/// One segment of the memory node's own region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots<'r, M> {
    pub(super) region: &'r M,
    pub(super) geometry: SegmentGeometry,
    /// Offset of the segment.
    at: u64,
    /// Offset of the first slot.
    first: u64,
    cap: u16,
    pub(super) generation: u32,
}

impl<'r, M: NodeMemory> Slots<'r, M> {
    #[inline]
    pub(crate) fn of<K: KeySpace>(region: &'r M, geometry: SegmentGeometry, segment: &Segment<K>) -> Self {
        Self::at(region, geometry, segment.address().offset(), segment.model().cap, segment.generation())
    }

    /// The segment at an offset.
    #[inline]
    pub(crate) fn at(region: &'r M, geometry: SegmentGeometry, at: u64, cap: u16, generation: u32) -> Self {
        let first = at + geometry.slots_offset(cap) as u64;
        Self { region, geometry, at, first, cap, generation }
    }

    /// Offset of the segment.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Bytes of the segment.
    pub(crate) fn bytes(&self) -> u64 {
        self.geometry.segment_bytes(self.cap) as u64
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> u64 {
        self.first + u64::from(slot) * self.geometry.slot_bytes as u64
    }

    #[inline]
    pub(super) fn fingerprint(&self, slot: u32) -> u64 {
        self.at + (SEGMENT_HEADER_BYTES + self.geometry.fingerprint_bytes(slot as usize)) as u64
    }

    /// Where a slot lies, and its fingerprint.
    pub(super) fn place_of(&self, slot: u32) -> RecordPlace {
        let (at, fingerprint) = (self.slot(slot), self.fingerprint(slot));
        let bytes = self.geometry.fingerprint_bytes(1) as u64;
        let slot = at..at + self.geometry.slot_bytes as u64;
        RecordPlace { slot, fingerprint: fingerprint..fingerprint + bytes }
    }

    /// Where all of the segment lies.
    pub(super) fn place(&self) -> SegmentPlace {
        let table = self.at + self.geometry.table_offset(self.cap) as u64;
        let table = table..table + self.geometry.table_bytes(self.cap) as u64;
        SegmentPlace { slots: (0..self.cap.into()).map(|slot| self.place_of(slot)).collect(), table }
    }

    /// The fingerprint that is stored for a slot, where any are.
    pub(crate) fn stored_fingerprint(&self, slot: u32) -> Result<u64, AccessError> {
        let mut bytes = [0; 8];
        let stored = self.geometry.fingerprint_bytes(1);
        self.region.read_bytes(self.fingerprint(slot), &mut bytes[..stored])?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// What is wrong with a slot, and where it is.
    #[cold]
    pub(crate) fn damaged(&self, slot: u32, why: &str) -> Corrupt {
        Corrupt::new("slot", self.slot(slot), why)
    }

    /// A slot's word.
    #[inline]
    pub(crate) fn word(&self, slot: u32) -> Result<SlotWord, AccessError> {
        self.region.load_relaxed(self.slot(slot)).map(SlotWord::from_bits)
    }

    /// Whether a slot is live with its value in it, by its word and the first of its body, in a
    /// table whose values vary.
    #[inline]
    pub(crate) fn has_value_inside(&self, slot: u32) -> Result<bool, AccessError> {
        let head = self.region.load_relaxed(self.slot(slot) + SLOT_WORD_BYTES as u64)?;
        Ok(self.word(slot)?.state() == SlotState::Live && self.geometry.shape.names_value_here(head))
    }

    /// Copies a slot's body: record and padding.
    #[inline]
    pub(crate) fn read_body(&self, slot: u32, body: &mut [u8]) -> Result<(), AccessError> {
        self.region.read_bytes(self.slot(slot) + SLOT_WORD_BYTES as u64, body)
    }

    /// Copies a slot into `out`, in place of what is there.
    pub(crate) fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Result<(), AccessError> {
        out.resize(self.geometry.slot_bytes, 0);
        self.region.read_bytes(self.slot(slot), out)
    }

    /// The key in a slot, whatever its word says of it; copies little more than that to `body`.
    pub(crate) fn key_in<'b, K: KeySpace>(
        &self,
        slot: u32,
        body: &'b mut Vec<u8>,
    ) -> Result<Option<K::View<'b>>, AccessError> {
        /// Most keys are shorter, and lengths come before them.
        const USUAL: usize = 64;
        const LONGEST: usize = TableParameters::MAX_KEY_BYTES as usize + 8;
        let shape = self.geometry.shape;
        for most in [USUAL, LONGEST] {
            body.resize(shape.body_bytes().min(most), 0);
            self.read_body(slot, body)?;
            if shape.key::<K>(body).is_some() {
                break;
            }
        }
        Ok(shape.key::<K>(body).and_then(|key| K::view(key)))
    }

    /// Whether a slot holds a live record of `key`.
    #[inline]
    pub(crate) fn holds<K: KeySpace>(
        &self,
        slot: u32,
        key: &K::Key,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, AccessError> {
        if self.word(slot)?.state() != SlotState::Live {
            return Ok(false);
        }
        let shape = self.geometry.shape;
        if let Some(word) = K::word(key).filter(|_| shape.is_fixed()) {
            return Ok(self.region.load_relaxed(self.slot(slot) + SLOT_WORD_BYTES as u64)? == word);
        }
        scratch.resize(shape.body_bytes(), 0);
        self.read_body(slot, scratch)?;
        let held = shape.parts::<K>(scratch).and_then(|parts| K::view(parts.key));
        Ok(held.is_some_and(|held| held.borrow() == key))
    }

    /// Copies all slots into `out`, which is emptied before.
    pub(crate) fn read_all(&self, out: &mut Vec<u8>) -> Result<(), AccessError> {
        out.clear();
        self.append_all(out)
    }

    /// Appends a copy of all slots to `out`.
    pub(crate) fn append_all(&self, out: &mut Vec<u8>) -> Result<(), AccessError> {
        let before = out.len();
        out.resize(before + usize::from(self.cap) * self.geometry.slot_bytes, 0);
        self.region.read_bytes(self.first, &mut out[before..])
    }

    /// Where readers look first for a key of this coordinate and hash; `None` if the segment's keys
    /// are in no groups.
    pub(crate) fn home_of(
        &self,
        model: &SegmentModel,
        (x, hash): (u64, u64),
    ) -> Result<Option<Home>, AccessError> {
        let Some(grouping) = self.geometry.groups else { return Ok(None) };
        let table = self.at + self.geometry.table_offset(self.cap) as u64;
        let Some(bits) = bits_of_groups(self.region.load_relaxed(table)?) else { return Ok(None) };
        let blocks = grouping.count(self.cap);
        // The table lies in the segment: its words are there to be read.
        let bits_at = |(word, shift): (u64, u32)| {
            self.region.load_relaxed(table + word).map_or(0, |word| word >> shift)
        };
        let form = (bits, grouping.block(), blocks);
        let run = blocks_among(finest(model, x), form, |block| bits_at(separator_at(block)) as i16);
        let name = |at| bits_at(name_at(at, blocks)) as u8;
        let number = run.of(hash);
        let block = grouping.slots_of_block(number, self.cap);
        let group = grouping.run(number, hash, self.cap, name);
        Ok(Some(Home { group, block, marks_of_block: grouping.marks_of_block(block) }))
    }

    /// Whether the table of groups is as it was written with the segment, if there is one.
    pub(crate) fn has_whole_table(&self, scratch: &mut Vec<u8>) -> Result<bool, AccessError> {
        if self.geometry.groups.is_none() {
            return Ok(true);
        }
        scratch.resize(self.geometry.table_bytes(self.cap), 0);
        self.region.read_bytes(self.at + self.geometry.table_offset(self.cap) as u64, scratch)?;
        Ok(is_whole_table(self.generation, scratch))
    }

    /// The slots to [mark](Self::mark) before a record of a key with this coordinate and hash goes
    /// live in this one: none if that lies where readers look for it first, or they look
    /// everywhere.
    pub(crate) fn to_mark(
        &self,
        model: &SegmentModel,
        key: (u64, u64),
        slot: u32,
    ) -> Result<MarkSlots, AccessError> {
        let home = if self.geometry.groups.is_some() { self.home_of(model, key)? } else { None };
        Ok(home.map_or(NO_MARKS, |home| home.marks(slot)))
    }

    /// Hints that a slot is needed soon, or, if it is not known, the fingerprints of a window and
    /// the predicted slot: the one needed is often that, and nearly always in its page of memory.
    #[inline]
    pub(crate) fn prefetch(&self, slot: Option<u32>, predicted: u32, window: Window) {
        if slot.is_none() {
            let bytes = self.geometry.searched_bytes(window.len() as usize);
            let is_stored = self.geometry.stores_fingerprints;
            let first = if is_stored { self.fingerprint(window.first) } else { self.slot(window.first) };
            self.region.prefetch(first, bytes);
        }
        self.region.prefetch(self.slot(slot.unwrap_or(predicted)), self.geometry.slot_bytes);
    }

    #[inline]
    fn set_word(&self, slot: u32, word: SlotWord) -> Result<(), AccessError> {
        self.region.store_relaxed(self.slot(slot), word.to_bits())
    }

    /// Stores a slot's next word, marked if it is.
    #[inline]
    fn set_next(&self, slot: u32, word: SlotWord) -> Result<(), AccessError> {
        match self.geometry.groups {
            None => self.set_word(slot, word),
            Some(_) => self.set_word(slot, word.in_place_of(self.word(slot)?)),
        }
    }

    /// Marks the slot of a group or block: from here on readers look for its records
    /// elsewhere, too.
    pub(crate) fn mark(&self, slot: u32) -> Result<(), AccessError> {
        let word = self.word(slot)?;
        if !word.is_marked() {
            self.set_word(slot, word.marked())?;
            self.region.release();
        }
        Ok(())
    }

    /// Marks all slots: readers look for all records elsewhere, too.
    pub(crate) fn mark_all(&self) -> Result<(), AccessError> {
        (0..u32::from(self.cap)).try_for_each(|slot| self.mark(slot))
    }

    /// Forgets that records of a group lie elsewhere.
    pub(crate) fn lose_mark(&self, slot: u32) -> Result<(), AccessError> {
        self.set_word(slot, self.word(slot)?.unmarked())
    }

    #[inline]
    fn set_body(&self, slot: u32, body: &[u8]) -> Result<(), AccessError> {
        self.region.write_bytes(self.slot(slot) + SLOT_WORD_BYTES as u64, body)
    }

    #[inline]
    fn set_fingerprint(&self, slot: u32, fingerprint: u64) -> Result<(), AccessError> {
        let bytes = fingerprint.to_le_bytes();
        // No other thread stores here. None are stored where they have no bytes.
        match self.geometry.fingerprint_bytes(1) {
            0 => Ok(()),
            stored => self.region.merge_bytes(self.fingerprint(slot), &bytes[..stored]),
        }
    }

    /// Makes a slot busy: its record, if it has one, cannot be told until a word is published.
    #[inline]
    fn make_busy(&self, slot: u32, version: u32) -> Result<(), AccessError> {
        self.set_next(slot, SlotWord::new(SlotState::Busy, version, 0))?;
        self.region.release();
        Ok(())
    }

    /// Puts a record into a slot that has none: busy word, fingerprint, body, live word.
    #[inline]
    pub(crate) fn insert(&self, slot: u32, hash: u64, version: u32, body: &[u8]) -> Result<(), AccessError> {
        self.make_busy(slot, version)?;
        self.set_fingerprint(slot, self.geometry.width.of_hash(hash))?;
        self.publish(slot, version, body)
    }

    /// Replaces a record by another of the same key: busy word, body, live word.
    #[inline]
    pub(crate) fn update(&self, slot: u32, version: u32, body: &[u8]) -> Result<(), AccessError> {
        self.make_busy(slot, version)?;
        self.publish(slot, version, body)
    }

    /// Body, then live word.
    #[inline]
    fn publish(&self, slot: u32, version: u32, body: &[u8]) -> Result<(), AccessError> {
        self.set_body(slot, body)?;
        self.region.release();
        self.set_next(slot, SlotWord::live(self.generation, version, body))
    }

    /// Removes a record: free word, then empty fingerprint.
    #[inline]
    pub(crate) fn remove(&self, slot: u32, version: u32) -> Result<(), AccessError> {
        self.set_next(slot, SlotWord::new(SlotState::Free, version, 0))?;
        self.region.release();
        self.set_fingerprint(slot, FingerprintWidth::EMPTY)
    }

    /// [`insert`](Self::insert) in the wrong order: busy word, body, live word, fingerprint.
    pub(crate) fn insert_word_first(
        &self,
        slot: u32,
        hash: u64,
        version: u32,
        body: &[u8],
    ) -> Result<(), AccessError> {
        self.make_busy(slot, version)?;
        self.publish(slot, version, body)?;
        self.region.release();
        self.set_fingerprint(slot, self.geometry.width.of_hash(hash))
    }

    /// [`remove`](Self::remove) in the wrong order: empty fingerprint, free word.
    pub(crate) fn remove_fingerprint_first(&self, slot: u32, version: u32) -> Result<(), AccessError> {
        self.set_fingerprint(slot, FingerprintWidth::EMPTY)?;
        self.region.release();
        self.set_next(slot, SlotWord::new(SlotState::Free, version, 0))
    }

    /// Copies a live record to a free slot, and removes it from its own.
    pub(crate) fn relocate(
        &self,
        from: u32,
        to: u32,
        hash: u64,
        body: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        let version = self.word(from)?.version();
        body.resize(self.geometry.slot_bytes - SLOT_WORD_BYTES, 0);
        self.read_body(from, body)?;
        self.insert(to, hash, version, body)?;
        self.region.release();
        self.remove(from, version)
    }

    /// Marks every slot and every fingerprint as replaced.
    pub(crate) fn freeze(&self) -> Result<(), AccessError> {
        let frozen = SlotWord::new(SlotState::Frozen, 0, 0);
        let bytes = self.first - self.at - SEGMENT_HEADER_BYTES as u64;
        // All ones is the frozen fingerprint of every width.
        self.region.fill_words(self.at + SEGMENT_HEADER_BYTES as u64, bytes as usize / 8, u64::MAX)?;
        (0..u32::from(self.cap)).try_for_each(|slot| self.set_word(slot, frozen))
    }
}

const _: () =
    assert!(FingerprintWidth::Bits8.frozen() == 0xff && FingerprintWidth::Bits64.frozen() == u64::MAX);
