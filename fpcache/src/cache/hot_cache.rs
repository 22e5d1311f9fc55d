//! The hot cache itself.

use std::fmt;

use super::bucket::{BUCKET_BYTES, Bucket};
use super::deltas::Deltas;
use super::entries::{CachedSlot, Entries};
use super::exact_allocation::collected;
use super::fd::Fd;
use super::handle::{CacheHandle, CounterLines, Counts};
use super::heat::SegmentHeat;
use super::packing::Packing;
use super::probe::CacheProbe;
use super::replacement::ByHeat;
use super::shape::{CacheShape, NoCache};
use super::variants::{Comparison, comparison};

/// Which slots hot keys lie in, shared by all threads of a compute node. See the [module](super).
pub struct HotCache {
    entries: Entries,
    heat: SegmentHeat,
    /// Of a cache that is made to be compared with: what does the work of `Fd` and `ByHeat`.
    comparison: Option<&'static dyn Comparison>,
    lines: CounterLines,
    counter_bytes: usize,
}

impl HotCache {
    /// An empty cache that takes at most `bytes`: itself, buckets, counters of heat and of handles;
    /// and fewer where the table's keys need fewer. Touches every byte once; nothing is allocated
    /// later.
    ///
    /// # Errors
    /// [`NoCache`] if not one bucket fits, or the memory cannot be had.
    pub fn new(bytes: usize, shape: &CacheShape) -> Result<Self, NoCache> {
        let counters = shape.counters(bytes);
        let counter_bytes = CounterLines::size_within(bytes);
        let others = size_of::<Self>() + counter_bytes + SegmentHeat::size(counters);
        let fit = bytes.checked_sub(others).ok_or(NoCache::TooSmall(bytes))? / BUCKET_BYTES;
        if fit == 0 {
            return Err(NoCache::TooSmall(bytes));
        }
        let buckets = fit.min(shape.buckets());
        let no_memory = |_| NoCache::Memory((others + buckets * BUCKET_BYTES) as u64);
        Ok(Self {
            heat: SegmentHeat::new(counters, shape.segments).map_err(no_memory)?,
            entries: Entries {
                buckets: collected(buckets, Bucket::default).map_err(no_memory)?,
                deltas: Deltas::new(shape.epsilon),
            },
            comparison: comparison(shape.variant, shape.policy),
            lines: CounterLines::within(bytes),
            counter_bytes,
        })
    }

    /// The bytes that a cache of this shape takes at most, however many it is allowed.
    pub(crate) fn most_bytes(shape: &CacheShape) -> usize {
        let heat = SegmentHeat::size(shape.counters(usize::MAX));
        let others = size_of::<Self>() + CounterLines::size_within(usize::MAX) + heat;
        shape.buckets().saturating_mul(BUCKET_BYTES).saturating_add(others)
    }

    /// Where the key may lie, if an entry says so: always a slot of the key's window. The caller
    /// reads the slot, compares the full key, and then calls [`confirm`](Self::confirm) or
    /// [`forget`](Self::forget). One cache line is read, nothing written.
    #[inline(always)]
    pub fn probe(&self, probe: &CacheProbe) -> Option<CachedSlot> {
        match self.comparison.is_some() {
            false => self.entries.find::<Fd>(probe),
            true => self.find_compared(probe),
        }
    }

    /// [`probe`](Self::probe) of a cache to compare with: out of the way of those that are used.
    #[cold]
    #[inline(never)]
    fn find_compared(&self, probe: &CacheProbe) -> Option<CachedSlot> {
        self.comparison?.find(&self.entries, probe)
    }

    /// The slot was right. Counts a hit; writes to shared memory only where the policy raises the
    /// entry's level or samples the segment's heat.
    #[inline]
    pub fn confirm(&self, probe: &CacheProbe, cached: CachedSlot, handle: &mut CacheHandle) {
        handle.count_hit();
        let chance = handle.bits();
        self.heat.touch(probe, handle, chance >> 60);
        match self.comparison.is_some() {
            false => self.entries.raise::<Fd, ByHeat>(probe, cached, chance >> 32),
            true => self.raise_compared(probe, cached, chance >> 32),
        }
    }

    /// The same of a cache to compare with.
    #[cold]
    #[inline(never)]
    fn raise_compared(&self, probe: &CacheProbe, cached: CachedSlot, chance: u64) {
        if let Some(comparison) = self.comparison {
            comparison.raise(&self.entries, probe, cached, chance);
        }
    }

    /// The slot was wrong: its slot holds another key, or none. Counts a conflict and drops the
    /// entry, unless another has taken its place meanwhile. `probe` is the one that was asked
    /// about.
    pub fn forget(&self, probe: &CacheProbe, cached: CachedSlot, handle: &mut CacheHandle) {
        handle.count_conflict();
        self.remove(probe, cached);
    }

    /// The key's record is no longer where the entry says. Drops the entry as
    /// [`forget`](Self::forget) does, but counts nothing, because the caller has removed the
    /// record itself.
    pub fn remove(&self, probe: &CacheProbe, cached: CachedSlot) {
        match self.comparison {
            None => self.entries.remove::<Fd>(probe, cached),
            Some(comparison) => comparison.remove(&self.entries, probe, cached),
        }
    }

    /// The key was found in `slot` without the cache's help, and an entry would have saved
    /// `miss_bytes` bytes. Counts a miss; the policy decides whether the key gets an entry and
    /// whose place it takes. Slots outside the window are not learned.
    pub fn learn(&self, probe: &CacheProbe, slot: u32, miss_bytes: u32, handle: &mut CacheHandle) {
        handle.count_miss();
        let chance = handle.bits();
        let warmth = self.heat.warmth(probe, miss_bytes, chance >> 52);
        self.heat.touch(probe, handle, chance >> 60);
        if !probe.window.contains(slot) {
            return;
        }
        match self.comparison {
            None => self.entries.insert::<Fd, ByHeat>((probe, slot), warmth, chance),
            Some(comparison) => comparison.insert(&self.entries, (probe, slot), warmth, chance),
        }
    }

    /// Drops all entries and all heat; counts stay. Entries that others learn meanwhile may stay
    /// too. O(bytes).
    pub fn clear(&self) {
        self.overwrite(|| 0);
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> u64 {
        let per_bucket = self.comparison.map_or(Fd::ENTRIES, Comparison::per_bucket);
        per_bucket as u64 * self.entries.buckets.len() as u64
    }

    /// Entries held. O(bytes).
    pub fn entries(&self) -> u64 {
        match self.comparison {
            None => self.entries.live::<Fd>(),
            Some(comparison) => comparison.live(&self.entries),
        }
    }

    /// Bytes this takes: exactly what was allocated, and the value itself. At most what
    /// [`new`](Self::new) was given, and less than one bucket short of it unless the table has too
    /// few keys.
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + self.counter_bytes + self.heat.bytes() + size_of_val(&*self.entries.buckets)
    }

    /// Counters and random bits for one thread. Allocates nothing; threads beyond the 63rd share
    /// counters, and with fewer than 512 KiB, those beyond one per 8 KiB.
    pub fn handle(&self, seed: u64) -> CacheHandle {
        CacheHandle::new(&self.lines, seed)
    }

    /// The sum of all handles' counts. Each count is exact, though they may be of slightly
    /// different instants.
    pub fn counts(&self) -> Counts {
        self.lines.counts()
    }

    /// Puts what `word` gives in place of every bucket's contents and of all heat. For tests.
    #[doc(hidden)]
    pub fn overwrite(&self, mut word: impl FnMut() -> u64) {
        self.entries.buckets.iter().for_each(|bucket| bucket.fill(&mut word));
        self.heat.fill(word);
    }
}

impl fmt::Debug for HotCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotCache")
            .field("comparison", &self.comparison)
            .field("capacity", &self.capacity())
            .field("bytes", &self.size_in_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
impl HotCache {
    pub(super) fn only_bucket(&self) -> &Bucket {
        &self.entries.buckets[0]
    }
}
