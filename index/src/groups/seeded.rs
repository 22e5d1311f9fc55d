//! Groups that hashes choose, by a seed with which none gets too many keys.

use super::{choose, mixed};

/// The group of a key among those of its block.
#[inline]
pub(super) fn group_of(hash: u64, seed: u8, groups: u16) -> u16 {
    choose(mixed(hash, seed), groups)
}

/// The first seed with which no group has more keys than `reach`, or else that with the fewest beyond it. With six groups of ten
/// slots, 51 keys take seven attempts on average.
pub(super) fn choose_seed(hashes: &[u64], groups: u16, reach: u16) -> u8 {
    let beyond = |seed: &u8| {
        // At most 64 groups, and fewer keys than 2^16.
        let mut keys = [0u16; 64];
        hashes.iter().for_each(|hash| keys[usize::from(group_of(*hash, *seed, groups))] += 1);
        keys.iter().map(|keys| u32::from(keys.saturating_sub(reach))).sum::<u32>()
    };
    let mut best = (u32::MAX, 0);
    for seed in 0..=u8::MAX {
        best = best.min((beyond(&seed), seed));
        if best.0 == 0 {
            break;
        }
    }
    best.1
}
