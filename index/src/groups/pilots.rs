//! Slots chosen by hash, with a pilot for each bucket of keys such that their slots are all free.

use std::cmp::Reverse;
use std::ops::Range;

use super::hash::choose;

/// In the place of a pilot: with none had the keys of the bucket free slots, and they lie
/// elsewhere.
const UNKNOWN: u8 = u8::MAX;
/// Most slots of a block.
const MOST_SLOTS: usize = 256;
/// Most buckets of a block.
const MOST_BUCKETS: usize = 256;

/// The hash that a pilot makes of a hash; each pilot makes another.
///
/// A multiplication spreads what an exclusive or has changed over the high bits, by which slots are
/// chosen; keys' hashes are mixed well already, and building tries some twenty pilots for each key.
#[derive(Clone, Copy)]
struct PilotHash(u64);

impl PilotHash {
    #[inline]
    fn of(pilot: u8) -> Self {
        Self((u64::from(pilot) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline]
    fn slot(self, hash: u64, slots: u16) -> u16 {
        choose((hash ^ self.0).wrapping_mul(0xbf58_476d_1ce4_e5b9), slots)
    }
}

/// The bucket of a key of this hash among those of its block.
#[inline]
#[must_use]
pub fn bucket_of(hash: u64, buckets: u16) -> usize {
    // Of other bits than those that have most weight for slots.
    usize::from(choose(hash.rotate_left(32), buckets))
}

/// The slot of a key of this hash among those of its block, by its bucket's pilot; `None` if that
/// is none.
#[inline]
#[must_use]
pub fn slot_by_pilot(hash: u64, pilot: u8, slots: u16) -> Option<u16> {
    (pilot != UNKNOWN).then(|| PilotHash::of(pilot).slot(hash, slots))
}

/// Slots of a block that are taken.
#[derive(Clone, Copy, Default)]
struct TakenSlots([u64; MOST_SLOTS / 64]);

impl TakenSlots {
    #[inline]
    fn add(&mut self, slot: u16) {
        self.0[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    #[inline]
    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[inline]
    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }

    #[inline]
    fn and(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one |= other);
        self
    }
}

/// The keys of a block by their buckets, of which there are 256 at most.
struct Buckets {
    /// The place of each key among the block's, those of one bucket after those of another.
    keys: Vec<u32>,
    hashes: Vec<u64>,
    /// Where the keys of each bucket end.
    ends: [u32; MOST_BUCKETS],
}

impl Buckets {
    fn new(of_keys: &[u64], buckets: u16) -> Self {
        let mut ends = [0u32; MOST_BUCKETS];
        of_keys.iter().for_each(|hash| ends[bucket_of(*hash, buckets)] += 1);
        let mut before = 0;
        for end in &mut ends[..usize::from(buckets)] {
            (*end, before) = (before, before + *end);
        }
        let (mut keys, mut hashes) = (vec![0; of_keys.len()], vec![0; of_keys.len()]);
        for (key, hash) in (0..).zip(of_keys) {
            let end = &mut ends[bucket_of(*hash, buckets)];
            (keys[*end as usize], hashes[*end as usize]) = (key, *hash);
            *end += 1;
        }
        Self { keys, hashes, ends }
    }

    /// Where the keys of a bucket lie.
    fn of(&self, bucket: usize) -> Range<usize> {
        let first = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        first as usize..self.ends[bucket] as usize
    }
}

/// Chooses a pilot for each bucket, large ones first, and puts their keys, as `put(key, slot)`.
/// Buckets without one are left out.
pub(super) fn choose_pilots(hashes: &[u64], slots: u16, pilots: &mut [u8], mut put: impl FnMut(usize, u16)) {
    // At most 256 of them.
    let buckets = Buckets::new(hashes, pilots.len() as u16);
    let mut order: Vec<u8> = (0..pilots.len()).map(|bucket| bucket as u8).collect();
    order.sort_unstable_by_key(|bucket| (Reverse(buckets.of((*bucket).into()).len()), *bucket));
    let mut taken = TakenSlots::default();
    for bucket in order.into_iter().map(usize::from) {
        let own = buckets.of(bucket);
        let found = first_pilot(&buckets.hashes[own.clone()], slots, &taken);
        pilots[bucket] = found.map_or(UNKNOWN, |(pilot, _)| pilot);
        if let Some((pilot, with)) = found {
            taken = with;
            let steering = PilotHash::of(pilot);
            own.for_each(|at| put(buckets.keys[at] as usize, steering.slot(buckets.hashes[at], slots)));
        }
    }
}

/// The first pilot with which keys of these hashes have free slots, and what is taken then.
///
/// All slots by a pilot are looked at together: which of them is the first that is not free could
/// not be foretold.
#[inline]
fn first_pilot(hashes: &[u64], slots: u16, taken: &TakenSlots) -> Option<(u8, TakenSlots)> {
    (0..UNKNOWN).find_map(|pilot| {
        let steering = PilotHash::of(pilot);
        let mut own = TakenSlots::default();
        if slots <= 64 {
            own.0[0] = hashes.iter().fold(0, |own, hash| own | 1 << steering.slot(*hash, slots));
        } else {
            hashes.iter().for_each(|hash| own.add(steering.slot(*hash, slots)));
        }
        let is_free = own.count() == hashes.len() && !own.meets(taken);
        is_free.then(|| (pilot, own.and(taken)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that are always the same.
    fn hashes(count: u64) -> Vec<u64> {
        (1..=count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    /// Regions hold what these lead to: another slot for a hash makes tables that are there
    /// unreadable.
    #[test]
    fn golden_vectors() {
        let hashes = hashes(52);
        let slots = |pilot| [0, 1, 2, 50].map(|at| slot_by_pilot(hashes[at], pilot, 64));
        assert_eq!(slots(0), [0, 49, 34, 41].map(Some));
        assert_eq!(slots(254), [9, 49, 28, 1].map(Some));
        assert_eq!(slots(UNKNOWN), [None; 4]);
        assert_eq!([0, 1, 2, 50].map(|at| bucket_of(hashes[at], 13)), [6, 12, 6, 4]);
        let mut pilots = [0; 13];
        choose_pilots(&hashes, 64, &mut pilots, |_, _| ());
        assert_eq!(pilots, [0, 0, 0, 0, 114, 5, 44, 0, 0, 0, 0, 187, UNKNOWN]);
    }
}
