//! The entries of all buckets: how one is found, made, raised and dropped, whatever their packing.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use super::bucket::{Bucket, WORDS};
use super::deltas::Deltas;
use super::packing::Packing;
use super::probe::CacheProbe;
use super::replacement::Replacement;

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

/// Entries of one packing, which the callers name, in buckets that threads share.
pub(super) struct Entries {
    pub(super) buckets: Box<[Bucket]>,
    pub(super) deltas: Deltas,
}

impl Entries {
    /// The slot that an entry names for the key.
    #[inline(always)]
    pub(super) fn find<P: Packing>(&self, probe: &CacheProbe) -> Option<CachedSlot> {
        let words = self.bucket_of(probe)?.words();
        let (entry, entry_bits, slot) = P::from(self.deltas).find(&words, probe)?;
        Some(CachedSlot { slot, entry: entry as u8, entry_bits: NonZeroU64::new(entry_bits)? })
    }

    /// An entry's slot was right: its level may rise.
    #[inline]
    pub(super) fn raise<P: Packing, R: Replacement>(
        &self,
        probe: &CacheProbe,
        cached: CachedSlot,
        chance: u64,
    ) {
        let seen = SeenEntry::by(cached, probe);
        let level = P::level(seen.entry_bits);
        let raised = R::after_hit(level, chance);
        if raised != level
            && let Some(bucket) = self.bucket_of(probe)
        {
            replace::<P>(bucket, &mut bucket.words(), seen, P::at_level(seen.entry_bits, raised));
        }
    }

    /// Drops an entry, unless another has taken its place meanwhile.
    pub(super) fn remove<P: Packing>(&self, probe: &CacheProbe, cached: CachedSlot) {
        if let Some(bucket) = self.bucket_of(probe) {
            replace::<P>(bucket, &mut bucket.words(), SeenEntry::by(cached, probe), 0);
        }
    }

    /// A key was found in a slot of its window without an entry: it may get one.
    pub(super) fn insert<P: Packing, R: Replacement>(
        &self,
        (probe, slot): (&CacheProbe, u32),
        warmth: i64,
        chance: u64,
    ) {
        let packing = P::from(self.deltas);
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
                    if R::lowers(P::ENTRIES, at_0, chance >> 48) {
                        lower::<P>(bucket, &mut words);
                    }
                    if !R::admits(level, warmth, chance) {
                        return;
                    }
                    entry
                }
            },
        };
        let entry_bits = P::at_level(entry_bits, R::FIRST_LEVEL);
        let old = P::get(&words, entry);
        let key = P::key_word(entry).map_or(0, |word| words[word]);
        let seen = SeenEntry { entry, entry_bits: old, key };
        let Some(key_word) = P::key_word(entry) else {
            replace::<P>(bucket, &mut words, seen, entry_bits);
            return;
        };
        // The old bits go before the new key comes, so that two entries mix only where two
        // threads insert at once.
        if replace::<P>(bucket, &mut words, seen, 0) {
            bucket.0[key_word].store(probe.key, Relaxed);
            words[key_word] = probe.key;
            replace::<P>(bucket, &mut words, SeenEntry { entry, entry_bits: 0, key: probe.key }, entry_bits);
        }
    }

    /// How many there are. O(buckets).
    pub(super) fn live<P: Packing>(&self) -> u64 {
        let mask = P::from(self.deltas).mask();
        let live = |words: &[u64; WORDS]| (0..P::ENTRIES).filter(|at| P::get(words, *at) & mask != 0).count();
        self.buckets.iter().map(|bucket| live(&bucket.words()) as u64).sum()
    }

    /// The key's bucket. Every key has one.
    #[inline]
    fn bucket_of(&self, probe: &CacheProbe) -> Option<&Bucket> {
        // Multiply-high (Lemire, ACM TOMACS 29(1), 2019): below the number of buckets.
        let number = (u128::from(probe.hash) * self.buckets.len() as u128) >> 64;
        self.buckets.get(number as usize)
    }
}

/// Puts `entry_bits` in place of an entry, unless another than the one that was seen is there by
/// now; its level may have changed. `words` is what was last seen of the bucket. True if the bits
/// are there.
pub(super) fn replace<P: Packing>(
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
fn lower<P: Packing>(bucket: &Bucket, words: &mut [u64; WORDS]) {
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
