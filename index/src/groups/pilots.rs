//! Slots that hashes choose, by a pilot for each bucket of keys with which they are all free.

use super::{choose, mixed};

/// The pilot of a bucket whose keys lie elsewhere.
const UNKNOWN: u8 = u8::MAX;
/// Most slots of a block.
const MOST_SLOTS: usize = 256;

/// The bucket of a key among those of its block.
#[inline]
pub(super) fn bucket_of(hash: u64, buckets: u16) -> usize {
    usize::from(choose(mixed(hash, UNKNOWN), buckets))
}

/// The slot of a key among those of its block.
#[inline]
pub(super) fn slot_of(hash: u64, pilot: u8, slots: u16) -> Option<u16> {
    (pilot != UNKNOWN).then(|| choose(mixed(hash, pilot), slots))
}

/// Chooses a pilot for each bucket, large ones first, and puts their keys, as `put(key, slot)`. Buckets for which there is none are
/// left out.
pub(super) fn choose_pilots(hashes: &[u64], slots: u16, pilots: &mut [u8], mut put: impl FnMut(usize, u16)) {
    // At most 256 buckets.
    let buckets = pilots.len() as u16;
    let mut keys: Vec<(usize, usize)> =
        hashes.iter().enumerate().map(|(key, hash)| (bucket_of(*hash, buckets), key)).collect();
    keys.sort_unstable();
    let mut of_buckets: Vec<&[(usize, usize)]> = keys.chunk_by(|a, b| a.0 == b.0).collect();
    of_buckets.sort_by_key(|keys| std::cmp::Reverse(keys.len()));
    let mut taken = [0u64; MOST_SLOTS / 64];
    for keys in of_buckets {
        let bucket = keys[0].0;
        pilots[bucket] = UNKNOWN;
        for pilot in 0..UNKNOWN {
            let slot = |key: usize| choose(mixed(hashes[key], pilot), slots);
            let mut with = taken;
            let is_free = keys.iter().all(|(_, key)| {
                let slot = slot(*key);
                let (word, bit) = (usize::from(slot / 64), 1 << (slot % 64));
                let is_free = with[word] & bit == 0;
                with[word] |= bit;
                is_free
            });
            if is_free {
                taken = with;
                keys.iter().for_each(|(_, key)| put(*key, slot(*key)));
                pilots[bucket] = pilot;
                break;
            }
        }
    }
}
