//! One thread's counters and random bits.

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

/// The counters of one visitor at a time, on a cache line of their own. Counts stay when the visitor leaves, and its
/// successor goes on from them.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Seat {
    taken: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    conflicts: AtomicU64,
}

/// Every visitor's counters. The first seat is shared by all who find no other free.
#[derive(Clone, Debug)]
pub(super) struct Seats(Arc<[Seat]>);

impl Seats {
    /// Most seats a cache has: threads beyond share one.
    const MOST: usize = 64;

    /// Seats for a cache of `bytes`: at most 1/128 of it, at least the shared one.
    pub(super) fn within(bytes: usize) -> Self {
        Self((0..Self::number(bytes)).map(|_| Seat::default()).collect())
    }

    fn number(bytes: usize) -> usize {
        (bytes / 128 / size_of::<Seat>()).clamp(1, Self::MOST)
    }

    /// Bytes [`within`](Self::within) allocates: the seats behind the two reference counts, padded to a seat's alignment.
    pub(super) fn size_within(bytes: usize) -> usize {
        (Self::number(bytes) + 1) * size_of::<Seat>()
    }

    pub(super) fn counts(&self) -> Counts {
        let one = |seat: &Seat| Counts {
            hits: seat.hits.load(Relaxed),
            misses: seat.misses.load(Relaxed),
            conflicts: seat.conflicts.load(Relaxed),
        };
        self.0.iter().map(one).fold(Counts::default(), Add::add)
    }

    /// Takes a free seat, or the shared one.
    fn take(&self) -> usize {
        // Acquire: whoever takes a seat goes on from all its last owner counted.
        let free = |seat: &Seat| seat.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        self.0.iter().skip(1).position(free).map_or(0, |behind_shared| behind_shared + 1)
    }
}

/// One thread's counters, which it alone writes, and its random bits.
///
/// From [`HotCache::visitor`](super::HotCache::visitor); the `Default` one counts nowhere. When a visitor is dropped its
/// counts stay in its cache's sum.
#[derive(Debug)]
pub struct Visitor {
    seats: Option<Seats>,
    seat: usize,
    random: u64,
    /// Samples of accesses since the last that was told to the clock of the cache.
    pub(super) samples: u32,
}

impl Default for Visitor {
    fn default() -> Self {
        Self { seats: None, seat: 0, random: scattered(0), samples: 0 }
    }
}

impl Visitor {
    pub(super) fn new(seats: &Seats, seed: u64) -> Self {
        Self { seats: Some(seats.clone()), seat: seats.take(), random: scattered(seed), samples: 0 }
    }

    /// 64 random bits: xorshift64* (Vigna, ACM TOMS 42(4), 2016); the high ones are the better ones.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[inline]
    pub(super) fn count_hit(&self) {
        self.count(|seat| &seat.hits);
    }

    #[inline]
    pub(super) fn count_miss(&self) {
        self.count(|seat| &seat.misses);
    }

    #[inline]
    pub(super) fn count_conflict(&self) {
        self.count(|seat| &seat.conflicts);
    }

    #[inline]
    fn count(&self, counter: impl Fn(&Seat) -> &AtomicU64) {
        let Some(seat) = self.seats.as_ref().and_then(|seats| seats.0.get(self.seat)) else { return };
        let counter = counter(seat);
        if self.seat == 0 {
            counter.fetch_add(1, Relaxed);
        } else {
            // The only writer: a plain load and store.
            counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if let Some(seat) = self.seats.as_ref().and_then(|seats| seats.0.get(self.seat)) {
            seat.taken.store(false, Release);
        }
    }
}

/// A seed with its bits scattered, never 0, which xorshift would not leave (Steele, Lea and Flood, OOPSLA 2014).
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
        let seats = Seats::within(64 * 128 * 3);
        assert_eq!(seats.0.len(), 3);
        for _ in 0..4 {
            let visitors: Vec<Visitor> = (0..5).map(|seed| Visitor::new(&seats, seed)).collect();
            assert_eq!(visitors.iter().map(|v| v.seat).collect::<Vec<_>>(), [1, 2, 0, 0, 0]);
            std::thread::scope(|scope| {
                for visitor in visitors {
                    scope.spawn(move || {
                        (0..1_000).for_each(|_| visitor.count_hit());
                        visitor.count_miss();
                        visitor.count_conflict();
                    });
                }
            });
        }
        assert_eq!(seats.counts(), Counts { hits: 20_000, misses: 20, conflicts: 20 });
    }

    #[test]
    fn an_unregistered_visitor_counts_nowhere_and_still_has_random_bits() {
        let mut visitor = Visitor::default();
        visitor.count_hit();
        assert_ne!(visitor.bits(), visitor.bits());
    }

    #[test]
    fn seeds_give_different_bits() {
        let seats = Seats::within(0);
        let mut firsts: Vec<u64> = (0..1_000).map(|seed| Visitor::new(&seats, seed).bits()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 1_000);
    }
}
