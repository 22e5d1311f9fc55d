//! A thread's handle: its counters and random bits.

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How often the hot cache helped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Lookups answered with one READ of the slot an entry named.
    pub hits: u64,
    /// Lookups of present keys that no entry answered.
    pub misses: u64,
    /// Entries that led to another key's slot.
    pub conflicts: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits.wrapping_add(other.hits),
            misses: self.misses.wrapping_add(other.misses),
            conflicts: self.conflicts.wrapping_add(other.conflicts),
        }
    }
}

/// The counters of one handle at a time, on a cache line of their own. Counts stay when the handle
/// leaves, and its successor goes on from them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CounterLine {
    taken: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    conflicts: AtomicU64,
}

/// Every handle's counters. The first line is shared by all who find no other free.
#[derive(Clone, Debug)]
pub(super) struct CounterLines(Arc<[CounterLine]>);

impl CounterLines {
    /// Most lines a cache has: threads beyond share one.
    const MOST: usize = 64;

    /// CounterLines for a cache of `bytes`: at most 1/128 of it, at least the shared one.
    pub(super) fn within(bytes: usize) -> Self {
        Self((0..Self::number(bytes)).map(|_| CounterLine::default()).collect())
    }

    fn number(bytes: usize) -> usize {
        (bytes / 128 / size_of::<CounterLine>()).clamp(1, Self::MOST)
    }

    /// Bytes [`within`](Self::within) allocates: the lines after the two reference counts, padded
    /// to a line's alignment.
    pub(super) fn size_within(bytes: usize) -> usize {
        (Self::number(bytes) + 1) * size_of::<CounterLine>()
    }

    pub(super) fn counts(&self) -> Counts {
        let one = |line: &CounterLine| Counts {
            hits: line.hits.load(Relaxed),
            misses: line.misses.load(Relaxed),
            conflicts: line.conflicts.load(Relaxed),
        };
        self.0.iter().map(one).fold(Counts::default(), Add::add)
    }

    /// Takes a free line, or the shared one.
    fn take(&self) -> usize {
        // Acquire: the new owner of a line goes on from all its last owner counted.
        let free = |line: &CounterLine| line.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        self.0.iter().skip(1).position(free).map_or(0, |after_shared| after_shared + 1)
    }
}

/// One thread's counters, which it alone writes, and its random bits.
///
/// From [`HotCache::handle`](super::HotCache::handle); the `Default` one counts nowhere. When a
/// handle is dropped its counts stay in its cache's sum.
#[derive(Debug)]
pub struct CacheHandle {
    lines: Option<CounterLines>,
    line: usize,
    random: u64,
    /// Samples of accesses since the last that was told to the clock of the cache.
    pub(super) samples: u32,
}

impl Default for CacheHandle {
    fn default() -> Self {
        Self { lines: None, line: 0, random: scattered(0), samples: 0 }
    }
}

impl CacheHandle {
    pub(super) fn new(lines: &CounterLines, seed: u64) -> Self {
        Self { lines: Some(lines.clone()), line: lines.take(), random: scattered(seed), samples: 0 }
    }

    /// 64 random bits: xorshift64* (Vigna, ACM TOMS 42(4), 2016); the high ones are the better
    /// ones.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[inline]
    pub(super) fn count_hit(&self) {
        self.count(|line| &line.hits);
    }

    #[inline]
    pub(super) fn count_miss(&self) {
        self.count(|line| &line.misses);
    }

    #[inline]
    pub(super) fn count_conflict(&self) {
        self.count(|line| &line.conflicts);
    }

    #[inline]
    fn count(&self, counter: impl Fn(&CounterLine) -> &AtomicU64) {
        let Some(line) = self.lines.as_ref().and_then(|lines| lines.0.get(self.line)) else { return };
        let counter = counter(line);
        if self.line == 0 {
            counter.fetch_add(1, Relaxed);
        } else {
            // The only writer: a plain load and store.
            counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

impl Drop for CacheHandle {
    fn drop(&mut self) {
        if let Some(line) = self.lines.as_ref().and_then(|lines| lines.0.get(self.line)) {
            line.taken.store(false, Release);
        }
    }
}

/// A seed with its bits scattered, never 0, which xorshift would not leave (Steele, Lea and Flood,
/// OOPSLA 2014).
fn scattered(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ bits >> 31).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_outlive_their_visitors_and_threads_beyond_the_seats_share_one() {
        let lines = CounterLines::within(64 * 128 * 3);
        assert_eq!(lines.0.len(), 3);
        for _ in 0..4 {
            let handles: Vec<CacheHandle> = (0..5).map(|seed| CacheHandle::new(&lines, seed)).collect();
            assert_eq!(handles.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 2, 0, 0, 0]);
            std::thread::scope(|scope| {
                for handle in handles {
                    scope.spawn(move || {
                        (0..1_000).for_each(|_| handle.count_hit());
                        handle.count_miss();
                        handle.count_conflict();
                    });
                }
            });
        }
        assert_eq!(lines.counts(), Counts { hits: 20_000, misses: 20, conflicts: 20 });
    }

    #[test]
    fn an_unregistered_visitor_counts_nowhere_and_still_has_random_bits() {
        let mut handle = CacheHandle::default();
        handle.count_hit();
        assert_ne!(handle.bits(), handle.bits());
    }

    #[test]
    fn seeds_give_different_bits() {
        let lines = CounterLines::within(0);
        let mut firsts: Vec<u64> = (0..1_000).map(|seed| CacheHandle::new(&lines, seed).bits()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 1_000);
    }
}
