//! Segments in the memory of nodes whose processors alone change them.

use fpcache_index::{Directory, Line, SegmentModel, SegmentOptions, Segmenter};

use crate::BuildError;
use crate::oracle::first_value;
use crate::words::{Address, Memory};

/// Words of a slot: what it is, the key, the value.
pub(super) const SLOT_WORDS: usize = 3;
/// The first word of a free slot is 0, of one with a record this.
pub(super) const LIVE: u64 = 1;
/// The first word of every slot of a segment that was replaced: where its successors' descriptors
/// lie, and how many they are, is in the other two.
pub(super) const MOVED: u64 = 2;

/// Words of a segment's descriptor: where its range begins, where it lies, origin, line, slots and
/// error bound.
const DESCRIPTOR_WORDS: usize = 5;
/// Bytes of it.
pub(super) const DESCRIPTOR_BYTES: usize = 8 * DESCRIPTOR_WORDS;
/// Bytes before a segment's slots, as in FPCache's regions.
const HEADER_BYTES: u64 = 64;

/// Rebuilt segments are cut with this share of the error bound and get all of it, as FPCache's: so
/// their windows have room.
const CUT_SHARE: f64 = 0.625;
/// Share of a rebuilt segment's slots that are filled, as in FPCache.
const REBUILT_FILL: f64 = 0.70;

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub model: SegmentModel,
    pub at: Address,
    /// It has not been rebuilt since the load.
    pub is_loaded: bool,
}

impl Segment {
    /// Where a slot's words lie.
    pub fn slot(&self, slot: u32) -> Address {
        self.at + (SLOT_WORDS * slot as usize) as u64
    }
}

/// Where a replaced segment's successors are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Successors {
    pub at: Address,
    pub count: usize,
}

impl Successors {
    /// What these slots say about them, if they are of a replaced segment.
    pub fn in_slots(slots: &[u64]) -> Option<Self> {
        match *slots {
            [MOVED, at, count, ..] => Some(Self { at, count: count as usize }),
            _ => None,
        }
    }

    /// Words of their descriptors.
    pub fn words(self) -> usize {
        DESCRIPTOR_WORDS * self.count
    }
}

/// Segments from their descriptors, with where their ranges begin.
pub(super) fn from_descriptors(words: &[u64]) -> Vec<(u64, Segment)> {
    let segment = |&[start, at, origin, line, rest]: &[u64; DESCRIPTOR_WORDS]| {
        let (cap, epsilon) = (rest as u16, (rest >> 16) as u16);
        let model = SegmentModel { origin, line: Line::from_bits(line), cap, epsilon };
        (start, Segment { model, at, is_loaded: false })
    };
    words.as_chunks().0.iter().map(segment).collect()
}

/// The outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// There was nothing to update.
    Absent,
    /// The client's segment is no longer the key's.
    Moved(Successors),
}

/// All segments, as the memory nodes' processors know them.
#[derive(Debug)]
pub(super) struct Store {
    pub directory: Directory<u64, Segment>,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    rebuilt: SegmentOptions,
    cut: SegmentOptions,
}

impl Store {
    /// Segments of these ascending keys with their first values; `each` is told every key with its
    /// slot.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        options: &SegmentOptions,
        slot_bytes: usize,
        mut each: impl FnMut(u64, u32),
    ) -> Result<Self, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError(error.to_string());
        let mut segmenter = Segmenter::new(*options).map_err(|e| failed(&e))?;
        let (mut pieces, mut entries, mut next) = (Vec::new(), Vec::new(), 0);
        for key in keys {
            pieces.extend(segmenter.push(*key).map_err(|e| failed(&e))?);
        }
        pieces.extend(segmenter.finish());
        for piece in pieces {
            for placed in piece.place(&keys[next..next + piece.keys], options) {
                let part = &keys[next..next + placed.keys];
                next += placed.keys;
                let segment = allocate(memory, placed.model, slot_bytes, true);
                for (key, slot) in part.iter().zip(&placed.slots) {
                    let slot = u32::from(*slot);
                    memory.words_mut(segment.slot(slot), SLOT_WORDS).copy_from_slice(&[
                        LIVE,
                        *key,
                        first_value(*key),
                    ]);
                    each(*key, slot);
                }
                // The first range begins at the lowest key there is.
                entries.push((if entries.is_empty() { 0 } else { part[0] }, segment));
            }
        }
        if entries.is_empty() {
            let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap: 16, epsilon: 16 };
            entries.push((0, allocate(memory, model, slot_bytes, true)));
        }
        let directory = Directory::from_sorted(entries).map_err(|e| failed(&e))?;
        let rebuilt =
            SegmentOptions { least_epsilon: options.epsilon, fill: REBUILT_FILL, spread: true, ..*options };
        let cut = SegmentOptions { epsilon: (CUT_SHARE * f64::from(options.epsilon)) as u32, ..rebuilt };
        Ok(Self { directory, slot_bytes, rebuilt, cut })
    }

    /// Gives a key a value, as a memory node does for a client that takes the segment at `at` for
    /// the key's.
    pub fn put(&mut self, memory: &mut Memory, (key, value): (u64, u64), at: Address, inserts: bool) -> Put {
        let Some(segment) = self.directory.find(&key).copied() else { return Put::Absent };
        if segment.at != at {
            let successors = Successors::in_slots(memory.words(at, SLOT_WORDS));
            return successors.map_or(Put::Absent, Put::Moved);
        }
        let window = segment.model.window(key);
        let slots = memory.words_mut(segment.slot(window.first), SLOT_WORDS * window.len() as usize);
        let slots = slots.as_chunks_mut::<SLOT_WORDS>().0;
        if let Some(slot) = slots.iter_mut().find(|[what, found, _]| *what == LIVE && *found == key) {
            slot[2] = value;
            return Put::Done;
        }
        if !inserts {
            return Put::Absent;
        }
        let home = (segment.model.predict(key) - window.first) as usize;
        let free = slots.iter_mut().enumerate().filter(|(_, slot)| slot[0] == 0);
        match free.min_by_key(|(i, _)| i.abs_diff(home)) {
            Some((_, slot)) => *slot = [LIVE, key, value],
            None => self.rebuild(memory, segment, (key, value)),
        }
        Put::Done
    }

    /// Replaces a segment by new ones with one record more.
    fn rebuild(&mut self, memory: &mut Memory, old: Segment, (key, value): (u64, u64)) {
        let slots = usize::from(old.model.cap);
        let live = |slot: &&[u64; SLOT_WORDS]| slot[0] == LIVE;
        let all = memory.words(old.at, SLOT_WORDS * slots).as_chunks().0;
        let mut records: Vec<(u64, u64)> =
            all.iter().filter(live).map(|[_, key, value]| (*key, *value)).collect();
        records.push((key, value));
        records.sort_unstable();
        let (keys, values): (Vec<u64>, Vec<u64>) = records.into_iter().unzip();
        let Some(located) = self.directory.locate(&key) else { return };
        let (start, end) = (located.start, located.end);
        let (mut with, mut next) = (Vec::new(), 0);
        for piece in cut(&keys, self.cut) {
            for placed in piece.place(&keys[next..next + piece.keys], &self.rebuilt) {
                let segment = allocate(memory, placed.model, self.slot_bytes, false);
                with.push((if with.is_empty() { start } else { keys[next] }, segment));
                for slot in placed.slots {
                    let words = memory.words_mut(segment.slot(u32::from(slot)), SLOT_WORDS);
                    words.copy_from_slice(&[LIVE, keys[next], values[next]]);
                    next += 1;
                }
            }
        }
        let at = memory.allocate(DESCRIPTOR_WORDS * with.len(), (DESCRIPTOR_BYTES * with.len()) as u64);
        let descriptors = memory.words_mut(at, DESCRIPTOR_WORDS * with.len());
        for (words, (start, Segment { model, at, .. })) in descriptors.as_chunks_mut().0.iter_mut().zip(&with)
        {
            let rest = u64::from(model.cap) | u64::from(model.epsilon) << 16;
            *words = [*start, *at, model.origin, model.line.to_bits(), rest];
            let _: &[u64; DESCRIPTOR_WORDS] = words;
        }
        for slot in memory.words_mut(old.at, SLOT_WORDS * slots).as_chunks_mut().0 {
            *slot = [MOVED, at, with.len() as u64];
        }
        let replaced = self.directory.replace(&start, end.as_ref(), &with);
        debug_assert_eq!(replaced, Ok(1), "the new segments begin where the old one did, and ascend");
    }
}

/// A free segment of this model.
fn allocate(memory: &mut Memory, model: SegmentModel, slot_bytes: usize, is_loaded: bool) -> Segment {
    let slots = usize::from(model.cap);
    let bytes = HEADER_BYTES + (slots * slot_bytes + DESCRIPTOR_BYTES) as u64;
    Segment { model, at: memory.allocate(SLOT_WORDS * slots, bytes), is_loaded }
}

/// Cuts ascending keys into pieces.
fn cut(keys: &[u64], options: SegmentOptions) -> Vec<fpcache_index::Piece> {
    // The options were those of the load but for less error and fill, and the keys lay in one
    // range.
    let Ok(mut segmenter) = Segmenter::new(options) else { return Vec::new() };
    let mut pieces: Vec<_> = keys.iter().filter_map(|key| segmenter.push(*key).ok().flatten()).collect();
    pieces.extend(segmenter.finish());
    pieces
}
