//! The hot cache itself.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use super::bucket::{BUCKET_BYTES, Bucket, WORDS};
use super::exact_allocation::collected;
use super::handle::{CacheHandle, CounterLines, Counts};
use super::heat::SegmentHeat;
use super::packing::Packing;
use super::policy::{admits, after_hit, first_level, lowers};
use super::probe::CacheProbe;
use super::shape::{CacheShape, NoCache};
use super::variants::{D, Deltas, F, Fd, Full};
use super::{Policy, Variant};

/// An entry's answer for a key: a slot of its window, which may hold another key. Two words, so
/// that it travels in registers.
#[derive(Clone, Copy, Debug)]
pub struct CachedSlot {
    /// The slot.
    pub slot: u32,
    entry: u8,
    /// Never 0: an entry that is found has a tag or a live bit.
    entry_bits: NonZeroU64,
}

const _: () = assert!(size_of::<Option<CachedSlot>>() == 16);

/// An entry as it was last seen.
#[derive(Clone, Copy)]
pub(super) struct SeenEntry {
    entry: usize,
    entry_bits: u64,
    /// The content of its key word, if entries hold keys.
    key: u64,
}

impl SeenEntry {
    /// The entry that named a slot for this key came from.
    #[inline]
    pub(super) fn by(cached: CachedSlot, probe: &CacheProbe) -> Self {
        Self { entry: cached.entry.into(), entry_bits: cached.entry_bits.get(), key: probe.key }
    }
}

/// Which slots hot keys lie in, shared by all threads of a compute node. See the [module](super).
pub struct HotCache {
    buckets: Box<[Bucket]>,
    variant: Variant,
    policy: Policy,
    deltas: Deltas,
    lines: CounterLines,
    counter_bytes: usize,
    heat: SegmentHeat,
}

/// Runs code with the packing of the cache's variant.
macro_rules! with_packing {
    ($cache:expr, $packing:ident => $do:expr) => {
        match $cache.variant {
            Variant::Fd => {
                let $packing = Fd($cache.deltas);
                $do
            }
            Variant::F => {
                let $packing = F;
                $do
            }
            Variant::D => {
                let $packing = D($cache.deltas);
                $do
            }
            Variant::Full => {
                let $packing = Full;
                $do
            }
        }
    };
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
            buckets: collected(buckets, Bucket::default).map_err(no_memory)?,
            variant: shape.variant,
            policy: shape.policy,
            deltas: Deltas::new(shape.epsilon),
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
        match self.variant {
            Variant::Fd => self.find(Fd(self.deltas), probe),
            _ => self.probe_larger(probe),
        }
    }

    /// [`probe`](Self::probe) in the variants that are there to be compared with: out of the way of
    /// the one that is used.
    #[inline(never)]
    fn probe_larger(&self, probe: &CacheProbe) -> Option<CachedSlot> {
        with_packing!(self, packing => self.find(packing, probe))
    }

    #[inline(always)]
    fn find<P: Packing>(&self, packing: P, probe: &CacheProbe) -> Option<CachedSlot> {
        let words = self.bucket_of(probe)?.words();
        let (entry, entry_bits, slot) = packing.find(&words, probe)?;
        Some(CachedSlot { slot, entry: entry as u8, entry_bits: NonZeroU64::new(entry_bits)? })
    }

    /// The slot was right. Counts a hit; writes to shared memory only where the policy raises the
    /// entry's level or samples the segment's heat.
    #[inline]
    pub fn confirm(&self, probe: &CacheProbe, cached: CachedSlot, handle: &mut CacheHandle) {
        handle.count_hit();
        let chance = handle.bits();
        self.heat.touch(probe, handle, chance >> 60);
        with_packing!(self, packing => self.raise(packing, probe, cached, chance >> 32));
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
        if let Some(bucket) = self.bucket_of(probe) {
            let seen = SeenEntry::by(cached, probe);
            with_packing!(self, packing => replace(packing, bucket, &mut bucket.words(), seen, 0));
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
        if probe.window.contains(slot) {
            with_packing!(self, packing => self.insert(packing, probe, slot, warmth, chance));
        }
    }

    /// Drops all entries and all heat; counts stay. Entries that others learn meanwhile may stay
    /// too. O(bytes).
    pub fn clear(&self) {
        self.overwrite(|| 0);
    }

    /// Entries there is room for.
    pub fn capacity(&self) -> u64 {
        with_packing!(self, packing => per_bucket(packing)) * self.buckets.len() as u64
    }

    /// Entries held. O(bytes).
    pub fn entries(&self) -> u64 {
        with_packing!(self, packing => {
            self.buckets.iter().map(|bucket| live(packing, &bucket.words())).sum()
        })
    }

    /// Bytes this takes: exactly what was allocated, and the value itself. At most what
    /// [`new`](Self::new) was given, and less than one bucket short of it unless the table has too
    /// few keys.
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + self.counter_bytes + self.heat.bytes() + size_of_val(&*self.buckets)
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
        self.buckets.iter().for_each(|bucket| bucket.fill(&mut word));
        self.heat.fill(word);
    }

    /// The key's bucket. Every key has one.
    #[inline]
    fn bucket_of(&self, probe: &CacheProbe) -> Option<&Bucket> {
        // Multiply-high (Lemire, ACM TOMACS 29(1), 2019): below the number of buckets.
        let number = (u128::from(probe.hash) * self.buckets.len() as u128) >> 64;
        self.buckets.get(number as usize)
    }

    #[inline]
    fn raise<P: Packing>(&self, packing: P, probe: &CacheProbe, cached: CachedSlot, chance: u64) {
        let seen = SeenEntry::by(cached, probe);
        let level = P::level(seen.entry_bits);
        let raised = after_hit(self.policy, level, chance);
        if raised != level
            && let Some(bucket) = self.bucket_of(probe)
        {
            replace(packing, bucket, &mut bucket.words(), seen, P::at_level(seen.entry_bits, raised));
        }
    }

    fn insert<P: Packing>(&self, packing: P, probe: &CacheProbe, slot: u32, warmth: i64, chance: u64) {
        let Some(entry_bits) = packing.encode_slot(probe, slot) else { return };
        let Some(bucket) = self.bucket_of(probe) else { return };
        let mut words = bucket.words();
        let entry = match packing.find(&words, probe) {
            // Another thread was quicker.
            Some((_, _, there)) if there == slot => return,
            // What has this key's tag or even the key, and is wrong, would be found first.
            Some((entry, _, _)) => entry,
            None => match victim(packing, &words, chance >> 56) {
                Victim::Free(entry) => entry,
                Victim::Lowest { entry, level, at_0 } => {
                    if lowers(self.policy, P::ENTRIES, at_0, chance >> 48) {
                        lower(packing, bucket, &mut words);
                    }
                    if !admits(self.policy, level, warmth, chance) {
                        return;
                    }
                    entry
                }
            },
        };
        let entry_bits = P::at_level(entry_bits, first_level(self.policy));
        let old = P::get(&words, entry);
        let key = P::key_word(entry).map_or(0, |word| words[word]);
        let seen = SeenEntry { entry, entry_bits: old, key };
        let Some(key_word) = P::key_word(entry) else {
            replace(packing, bucket, &mut words, seen, entry_bits);
            return;
        };
        // The old bits go before the new key comes, so that two entries mix only where two
        // threads insert at once.
        if replace(packing, bucket, &mut words, seen, 0) {
            bucket.0[key_word].store(probe.key, Relaxed);
            words[key_word] = probe.key;
            replace(
                packing,
                bucket,
                &mut words,
                SeenEntry { entry, entry_bits: 0, key: probe.key },
                entry_bits,
            );
        }
    }
}

impl fmt::Debug for HotCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotCache")
            .field("variant", &self.variant)
            .field("policy", &self.policy)
            .field("capacity", &self.capacity())
            .field("bytes", &self.size_in_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
impl HotCache {
    pub(super) fn only_bucket(&self) -> &Bucket {
        &self.buckets[0]
    }
}

/// Puts `entry_bits` in place of an entry, unless another than the one that was seen is there by
/// now; its level may have changed. `words` is what was last seen of the bucket. True if the bits
/// are there.
pub(super) fn replace<P: Packing>(
    _: P,
    bucket: &Bucket,
    words: &mut [u64; WORDS],
    seen: SeenEntry,
    entry_bits: u64,
) -> bool {
    let entry = seen.entry;
    let word = P::word(entry);
    if P::key_word(entry).is_some_and(|at| words[at] != seen.key) {
        return false;
    }
    // Every turn but the last means that another thread has changed the word: one always makes
    // progress.
    while P::without_level(P::get(words, entry)) == P::without_level(seen.entry_bits) {
        let to = P::put(words[word], entry, entry_bits);
        match bucket.swap(word, words[word], to) {
            Ok(()) => {
                words[word] = to;
                return true;
            }
            Err(now) => words[word] = now,
        }
    }
    false
}

/// Lowers every level of a bucket by one. Words that others change meanwhile keep their levels.
fn lower<P: Packing>(_: P, bucket: &Bucket, words: &mut [u64; WORDS]) {
    for word in 0..WORDS {
        let lowered = P::lowered(words, word);
        if lowered != words[word] && bucket.swap(word, words[word], lowered).is_ok() {
            words[word] = lowered;
        }
    }
}

/// Where a newcomer goes.
enum Victim {
    /// Nothing is there.
    Free(usize),
    /// The bucket is full, and this is an entry of its lowest level; `at_0` entries are at level 0.
    Lowest { entry: usize, level: u32, at_0: usize },
}

/// The entry to give up, ties broken by the low four bits of `chance`.
#[inline]
fn victim<P: Packing>(packing: P, words: &[u64; WORDS], chance: u64) -> Victim {
    let first = (chance & 15) as usize * P::ENTRIES / 16;
    let (mut least, mut at_0) = (u32::MAX, 0);
    for entry in 0..P::ENTRIES {
        let entry_bits = P::get(words, entry);
        let live = entry_bits & packing.mask() != 0;
        let rank = if live { P::level(entry_bits) + 1 } else { 0 };
        at_0 += usize::from(rank <= 1);
        // Rank, then place in an order that begins anywhere, then the entry itself.
        let turn = (entry + P::ENTRIES - first) % P::ENTRIES;
        least = least.min(rank << 8 | (turn << 4 | entry) as u32);
    }
    let entry = (least & 15) as usize;
    match (least >> 8).checked_sub(1) {
        None => Victim::Free(entry),
        Some(level) => Victim::Lowest { entry, level, at_0 },
    }
}

fn per_bucket<P: Packing>(_: P) -> u64 {
    P::ENTRIES as u64
}

fn live<P: Packing>(packing: P, words: &[u64; WORDS]) -> u64 {
    (0..P::ENTRIES).filter(|entry| P::get(words, *entry) & packing.mask() != 0).count() as u64
}
