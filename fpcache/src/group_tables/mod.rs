//! The tables of groups that a compute node keeps, which tell the few slots of its segment that a
//! key can lie in.
//!
//! A table belongs to one segment as long as that lives and never changes, so all versions of a
//! [`Table`](crate::table::Table) share what is kept. Tables lie one after the other in a circular
//! log of words, in which the newest overwrite the oldest, and an index of eight entries for each
//! bucket says where (as the lossy logs and indexes of MICA; Lim et al., NSDI 2014): whatever is
//! not found is READ again. Each segment may use two buckets. Readers take no lock.
//!
//! ```text
//! entry   bits 0–31 position of the table in the log, in words from its beginning of time, plus 1 · 32–63 generation
//! table   word 0, u32: bits 0–3 bits (all ones: none) · 4–31 of a hash of generation, address and cap
//!         then the seeds or pilots of its blocks, four to a word · then separators, packed
//! ```
//!
//! The log is given memory as words are needed (`lazy_words.rs`), up to what tables may take.
//!
//! A reader looks at the log's head after it has looked at a table: what was overwritten meanwhile
//! lies too far back from it. The head is stored before words are overwritten, with a release fence
//! between, and loaded after an acquire fence.

mod known;
mod lazy_words;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use fpcache_index::groups::{BlockRun, blocks_in_packed, pack, packed_words, separator_in_packed};
use known::BITS;
pub use known::{GroupBytes, Known, SegmentName};
use lazy_words::LazyWords;
use zerocopy::FromZeros;

use crate::layout::{Grouping, decode_groups};

/// Entries of a bucket: a cache line.
const BUCKET: usize = 8;
/// Bits of a position; the other bits are only in the log's head. After 2^32 words an older
/// position would be taken for a newer one, if that table's name were the same.
const POSITION_BITS: u32 = 32;
/// In the place of a table's bits: the keys of the segment are in no groups.
const NONE: u8 = BITS as u8;

/// Tables within a number of bytes.
#[derive(Debug)]
pub struct GroupTables {
    grouping: Grouping,
    index: Box<[AtomicU64]>,
    log: LazyWords,
    /// Words that were ever appended to the log, those that are being written included.
    head: AtomicU64,
    /// Held by who adds one.
    adding: Mutex<()>,
    /// One in this many missed tables is asked for once the log is full.
    one_in: u32,
    /// Those that were not here since then.
    missed: AtomicU32,
    /// Share of the slots of all segments that had a record, as far as that is known.
    fill: Option<f64>,
}

impl GroupTables {
    /// Bytes for the tables of `segments` segments with `slots` slots in all, and for a quarter
    /// more of them.
    #[must_use]
    pub fn bytes_for(grouping: Grouping, segments: u64, slots: u64) -> u64 {
        /// Bits of a separator at a stride of nine. Most tables have 10 to 12; those with more
        /// leave less room for what will come.
        const BITS: u64 = 13;
        let block = grouping.block().max(1);
        let blocks = slots / u64::from(block);
        // Each digit of the slots of a block is one of its separator.
        let bits = BITS + u64::from(block.ilog2().saturating_sub(3)) + 8 * u64::from(grouping.names);
        // A table's last word is half empty, on average, and it may have a block more.
        let words = (blocks.saturating_mul(bits) / 32).saturating_add(segments.saturating_mul(2));
        let words = words.saturating_add(words / 4).saturating_add(64);
        let others = 8 * Self::entries_for(segments) as u64 + size_of::<Self>() as u64;
        LazyWords::bytes_for(words).saturating_add(others)
    }

    fn entries_for(segments: u64) -> usize {
        // A quarter for those that come later, and so that two buckets have room for nearly all.
        let most = segments.saturating_add(segments / 4).saturating_add(BUCKET as u64);
        // No memory node has that many: whatever a region claims, the sum stays a number.
        usize::try_from(most).unwrap_or(usize::MAX).min(usize::MAX / 64).next_multiple_of(BUCKET)
    }

    /// No tables yet, and room for those of about `segments` segments in `bytes` bytes; `None` if
    /// these are too few, or their memory cannot be had.
    #[must_use]
    pub fn new(grouping: Grouping, segments: u64, bytes: u64) -> Option<Self> {
        let entries = Self::entries_for(segments);
        let rest = usize::try_from(bytes).ok()?.checked_sub(size_of::<Self>() + 8 * entries)?;
        Self::over(grouping, entries, LazyWords::within(rest)?)
    }

    /// No tables yet, with `entries` entries in the index, over a log without words.
    fn over(grouping: Grouping, entries: usize, log: LazyWords) -> Option<Self> {
        Some(Self {
            grouping,
            index: words(entries)?,
            log,
            head: AtomicU64::new(0),
            adding: Mutex::default(),
            one_in: 1,
            missed: AtomicU32::new(0),
            fill: None,
        })
    }

    /// No tables yet, and room in `bytes` bytes for a part of those of `segments` segments, which
    /// would take `all` bytes.
    ///
    /// Of the tables that are not here when they are looked for, few are asked for then: each would
    /// push another out. So those of segments come to be here, and come back, that are looked for
    /// more often, and READs of tables are few.
    #[must_use]
    pub fn some_of(grouping: Grouping, segments: u64, all: u64, bytes: u64) -> Option<Self> {
        let tables = Self::new(grouping, Self::part_of(segments, all, bytes), bytes)?;
        Some(Self { one_in: Self::ONE_OF_MISSED, ..tables })
    }

    /// The share of the tables of `segments` segments that [`some_of`](Self::some_of) keeps, where
    /// they take `tables` bytes, each with its name.
    pub(crate) fn share_within(segments: u64, all: u64, bytes: u64, tables: f64) -> f64 {
        let entries = Self::entries_for(Self::part_of(segments, all, bytes));
        let log = bytes.saturating_sub((size_of::<Self>() + 8 * entries) as u64);
        (entries as f64 / segments.max(1) as f64).min(log as f64 / tables.max(1.0)).min(1.0)
    }

    fn part_of(segments: u64, all: u64, bytes: u64) -> u64 {
        let part = (u128::from(segments) * u128::from(bytes)).div_ceil(u128::from(all.max(1)));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The same, where the share `fill` of all slots has a record.
    #[must_use]
    pub(crate) fn of_fill(self, fill: f64) -> Self {
        Self { fill: Some(fill).filter(|fill| *fill > 0.0), ..self }
    }

    /// The share of all slots that had a record when the table was opened, as far as that is known.
    pub(crate) fn fill(&self) -> Option<f64> {
        self.fill
    }

    /// Bytes of the word before a table that tells whose it is.
    pub(crate) const NAME_BYTES: usize = 4;

    /// One in this many missed tables is asked for where not all have room.
    const ONE_OF_MISSED: u32 = 16;

    /// Whether a table that is not here is to be asked for.
    #[inline]
    pub(crate) fn wants_table(&self) -> bool {
        self.one_in == 1
            || self.head.load(Ordering::Relaxed) < self.log.len() as u64
            || self.missed.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
    }

    /// No tables yet, and as much room as here; `None` if the memory cannot be had.
    #[must_use]
    pub fn emptied(&self) -> Option<Self> {
        let empty = Self::over(self.grouping, self.index.len(), self.log.emptied()?)?;
        Some(Self { one_in: self.one_in, fill: self.fill, ..empty })
    }

    /// Bytes of everything.
    #[must_use]
    pub fn size_in_bytes(&self) -> u64 {
        (size_of::<Self>() + 8 * self.index.len() + self.log.heap_bytes()) as u64
    }

    /// The bytes that they never exceed, whatever is kept.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        (size_of::<Self>() + 8 * self.index.len() + self.log.most_heap_bytes()) as u64
    }

    /// The bytes by use, with these segments. O(their separators).
    pub fn parts(&self, segments: impl Iterator<Item = SegmentName>) -> GroupBytes {
        let mut parts = GroupBytes { index: 8 * self.index.len() as u64, ..GroupBytes::default() };
        for segment in segments {
            let Some((position, head)) = self.position(&segment) else { continue };
            parts.names += 4;
            if let Some(shape) = self.shape(&segment, head) {
                let names = self.name_words(shape.2);
                let separators = packed_words(shape, self.words_from(position, names));
                parts.separators += 4 * (names + separators) as u64;
            }
        }
        let all = parts.separators + parts.names + parts.index;
        GroupBytes { room: self.size_in_bytes().saturating_sub(all), ..parts }
    }

    /// How many tables there are: a look at all entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        let head = self.head.load(Ordering::Relaxed);
        let is_here = |entry: &&AtomicU64| {
            let position = entry.load(Ordering::Relaxed) & mask(POSITION_BITS);
            position > 0 && head - whole_position(position - 1, head) <= self.log.len() as u64
        };
        self.index.iter().filter(is_here).count() as u64
    }

    /// Whether it holds no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slots that a key of this hash lies in, if it is not one of the few that its segment's
    /// table does not lead to: the first, and how many. The segment's line has the value `finest` at
    /// the key, in fractions of [`finest`](fpcache_index::groups::finest).
    #[inline]
    #[must_use]
    pub fn find(&self, segment: &SegmentName, finest: i64, hash: u64) -> Known<(u32, u32)> {
        let Some((position, head)) = self.position(segment) else { return Known::NotHere };
        // Whatever the words are by now, the group is one of the segment.
        let run = self.shape(segment, head).map(|shape| {
            let block = self.blocks_among(position, shape, finest).of(hash);
            let names = self.words_from(position, 0);
            self.grouping.run(block, hash, segment.cap, |at| names(at / 4).to_le_bytes()[at % 4])
        });
        // What follows is not looked at before what was looked at so far.
        fence(Ordering::Acquire);
        if !self.is_whole(position) {
            return Known::NotHere;
        }
        run.map_or(Known::Nothing, Known::Here)
    }

    /// Which blocks of its segment a key may belong to, whose line has this value there. Neither
    /// the first nor the last decreases as keys grow.
    #[must_use]
    pub fn blocks(&self, segment: &SegmentName, finest: i64) -> Known<BlockRun> {
        let Some((position, head)) = self.position(segment) else { return Known::NotHere };
        let blocks = self.shape(segment, head).map(|shape| self.blocks_among(position, shape, finest));
        fence(Ordering::Acquire);
        match blocks {
            _ if !self.is_whole(position) => Known::NotHere,
            Some(blocks) => Known::Here(blocks),
            None => Known::Nothing,
        }
    }

    /// The same by the separators of a table that begins there.
    #[inline]
    fn blocks_among(&self, position: u64, shape: (u8, u16, u16), finest: i64) -> BlockRun {
        blocks_in_packed(finest, shape, self.words_from(position, self.name_words(shape.2)))
    }

    /// The share of a block's keys that are below one whose line has this value, if they lie evenly
    /// in it; `None` if the table is not here.
    pub(crate) fn share_below(&self, segment: &SegmentName, block: u16, finest: i64) -> Option<f64> {
        let (position, head) = self.position(segment)?;
        let shape = self.shape(segment, head)?;
        let words = self.words_from(position, self.name_words(shape.2));
        let [begin, end] =
            [block, block.saturating_add(1)].map(|block| separator_in_packed(block, shape, &words) as f64);
        fence(Ordering::Acquire);
        let share = (finest as f64 - begin) / (end - begin);
        self.is_whole(position).then(|| if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) })
    }

    /// Bits, stride and number of the separators of a segment whose table begins with this word;
    /// `None` if it has none.
    #[inline]
    fn shape(&self, segment: &SegmentName, head: u32) -> Option<(u8, u16, u16)> {
        let bits = (head & BITS) as u8;
        (bits != NONE).then(|| (bits, self.grouping.block(), self.grouping.count(segment.cap)))
    }

    /// Words of the seeds or pilots of `blocks` blocks.
    #[inline]
    fn name_words(&self, blocks: u16) -> usize {
        (usize::from(blocks) * usize::from(self.grouping.names)).div_ceil(4)
    }

    /// The words of a table that begins there, after its first one and `beyond` more.
    #[inline]
    fn words_from(&self, position: u64, beyond: usize) -> impl Fn(usize) -> u32 {
        let at = self.place(position) + 1 + beyond;
        move |word| self.log.word(at + word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Keeps a table in the place of the oldest ones: its bytes, as they lie in the region, are
    /// checked here. One that is not whole is kept as none, or it would be READ for every key.
    pub fn keep(&self, segment: &SegmentName, bytes: &[u8]) {
        if self.position(segment).is_some() {
            return;
        }
        // Given back when it is kept: what stays counts against a budget.
        let (bits, packed) = self.pack(segment, bytes);
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.position(segment).is_some() {
            // Another thread had fetched it, too.
            return;
        }
        let len = 1 + packed.len();
        let before = self.head.load(Ordering::Relaxed);
        // A table is whole: what is left at the end of the log stays unused if it is too short.
        let at = self.place(before);
        let start = if at + len > self.log.len() { before + (self.log.len() - at) as u64 } else { before };
        if !self.log.need(self.place(start), len) {
            return;
        }
        self.head.store(start + len as u64, Ordering::Relaxed);
        // A reader that sees a word stored from here on sees the head.
        fence(Ordering::Release);
        let at = self.place(start);
        let store = |at: usize, word: u32| {
            if let Some(to) = self.log.word(at) {
                to.store(word, Ordering::Relaxed);
            }
        };
        store(at, segment.head() | u32::from(bits));
        (at + 1..).zip(&packed).for_each(|(at, word)| store(at, *word));
        self.enter(segment.generation, start);
    }

    /// Packs what a table says, seeds or pilots and then separators, and gives the bits of these;
    /// those of none, and no words, if it is not whole or would not fit.
    fn pack(&self, segment: &SegmentName, bytes: &[u8]) -> (u8, Vec<u32>) {
        let Some((bits, rest)) = decode_groups(segment.generation, bytes) else { return (NONE, Vec::new()) };
        // What fills a table up to words of the region means nothing.
        let count = usize::from(self.grouping.count(segment.cap));
        let distance = |of: &[u8]| i16::from_le_bytes([of[0], of[1]]);
        let (separators, names) = rest.split_at_checked(2 * count).unwrap_or_default();
        let distances: Vec<i16> = separators.chunks_exact(2).map(distance).collect();
        let names = names.get(..count * usize::from(self.grouping.names)).unwrap_or_default();
        let word =
            |some: &[u8]| (0..).zip(some).fold(0, |word, (at, name)| word | u32::from(*name) << (8 * at));
        let mut packed: Vec<u32> = names.chunks(4).map(word).collect();
        let is_whole =
            distances.len() == count && packed.len() == self.name_words(self.grouping.count(segment.cap));
        let is_packed = is_whole && pack(bits, self.grouping.block(), &distances, &mut packed);
        // One that does not fit counts as none, so that it is not asked for again and again.
        if is_packed && packed.len() < self.log.len() {
            return (bits, packed);
        }
        (NONE, Vec::new())
    }

    /// Where the table of a segment begins, and its first word.
    #[inline]
    fn position(&self, segment: &SegmentName) -> Option<(u64, u32)> {
        let in_first = self.position_in(self.bucket(segment.generation), segment);
        in_first.or_else(|| self.position_in_second(*segment))
    }

    #[cold]
    #[inline(never)]
    fn position_in_second(&self, segment: SegmentName) -> Option<(u64, u32)> {
        self.position_in(self.second_bucket(segment.generation), &segment)
    }

    #[inline(always)]
    fn position_in(&self, bucket: &[AtomicU64], segment: &SegmentName) -> Option<(u64, u32)> {
        let tag = u64::from(segment.generation);
        bucket.iter().find_map(|entry| {
            let entry = entry.load(Ordering::Acquire);
            let position = (entry & mask(POSITION_BITS)).checked_sub(1)?;
            let position = (entry >> POSITION_BITS == tag).then_some(position)?;
            // As it was when the entry was stored, or later.
            let position = whole_position(position, self.head.load(Ordering::Relaxed));
            let head = self.log.word(self.place(position))?.load(Ordering::Relaxed);
            (head & !BITS == segment.head() && self.is_whole(position)).then_some((position, head))
        })
    }

    /// Whether no word of the table that begins there has been overwritten.
    #[inline]
    fn is_whole(&self, position: u64) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        head.wrapping_sub(position) <= self.log.len() as u64
    }

    /// Notes where a table begins: in the place of its older entry, of none, or of the oldest in
    /// its two buckets; of several such places, in one that is looked at first.
    fn enter(&self, generation: u32, position: u64) {
        let tag = u64::from(generation);
        let head = self.head.load(Ordering::Relaxed);
        let age = |entry: &&AtomicU64| {
            let entry = entry.load(Ordering::Relaxed);
            match (entry & mask(POSITION_BITS)).checked_sub(1) {
                None => u64::MAX - 1,
                Some(_) if entry >> POSITION_BITS == tag => u64::MAX,
                Some(position) => head - whole_position(position, head),
            }
        };
        let (first, second) = (self.bucket(generation), self.second_bucket(generation));
        if let Some(entry) = second.iter().chain(first).max_by_key(age) {
            // Zero is no entry; the table whose position comes to that is not found. The table's
            // words come before.
            let position = (position + 1) & mask(POSITION_BITS);
            entry.store(tag << POSITION_BITS | position, Ordering::Release);
        }
    }

    /// The bucket that is looked at first. A load gives generations in order, so that they fill
    /// these evenly.
    #[inline]
    fn bucket(&self, generation: u32) -> &[AtomicU64] {
        let buckets = self.index.len() / BUCKET;
        let first = generation as usize / BUCKET % buckets.max(1) * BUCKET;
        self.index.get(first..first + BUCKET).unwrap_or_default()
    }

    /// The bucket of those whose first one is full: after rebuilds, some have more segments than
    /// places.
    fn second_bucket(&self, generation: u32) -> &[AtomicU64] {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let buckets = (self.index.len() / BUCKET) as u64;
        let mixed = u64::from(generation).wrapping_mul(MIX) >> 32;
        let first = ((u128::from(mixed) * u128::from(buckets)) >> 32) as usize * BUCKET;
        self.index.get(first..first + BUCKET).unwrap_or_default()
    }

    /// Where in the log a position is.
    #[inline]
    fn place(&self, position: u64) -> usize {
        (position % self.log.len() as u64) as usize
    }
}

/// The position of which these are the low bits, of the last that there were before the head of the
/// log.
const fn whole_position(low: u64, head: u64) -> u64 {
    head.saturating_sub(head.wrapping_sub(low) & mask(POSITION_BITS))
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// `len` words of zero, if there is memory for them. The system gives it as they are used: how many
/// there are is partly the word of a region.
fn words(len: usize) -> Option<Box<[AtomicU64]>> {
    <[AtomicU64]>::new_box_zeroed_with_elems(len).ok()
}

#[cfg(test)]
mod tests;
