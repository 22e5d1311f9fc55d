//! Groups chosen by hash, with a seed such that none gets too many keys.

use super::hash::{choose, mixed};

/// Seeds that are tried for an even spread, of those with which no group has too many keys. What
/// each takes to build, a nanosecond or two for a key, and what it spares of the keys that inserts
/// put elsewhere: docs/design.md, "Groups".
const TRIED: u8 = 16;

/// Which of its block's `groups` groups a key of this hash belongs to, by the block's seed.
#[inline]
#[must_use]
pub fn group_by_seed(hash: u64, seed: u8, groups: u16) -> u16 {
    choose(mixed(hash, seed), groups)
}

/// The seed that spreads keys the most evenly, of the first few if there is one among them with
/// which no group has more than `reach`; else the first such one; else that with the fewest keys
/// beyond it.
pub(super) fn choose_seed(hashes: &[u64], groups: u16, reach: u16) -> u8 {
    // Keys beyond the slots of their groups, and unevenness.
    let cost = |seed: u8| {
        // At most 64 groups, and fewer keys than 2^16.
        let mut keys = [0u16; 64];
        hashes.iter().for_each(|hash| keys[usize::from(group_by_seed(*hash, seed, groups))] += 1);
        let keys = &keys[..usize::from(groups)];
        let beyond: u32 = keys.iter().map(|keys| u32::from(keys.saturating_sub(reach))).sum();
        (beyond, keys.iter().map(|keys| u64::from(*keys).pow(2)).sum::<u64>())
    };
    let mut best = ((u32::MAX, u64::MAX), 0);
    for seed in 0..=u8::MAX {
        best = best.min((cost(seed), seed));
        if seed >= TRIED - 1 && best.0.0 == 0 {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions hold what these lead to: another group for a hash makes tables that are there
    /// unreadable.
    #[test]
    fn golden_vectors() {
        let hashes = [1u64, 2, 3, 51].map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(hashes.map(|hash| group_by_seed(hash, 0, 6)), [2, 0, 5, 5]);
        assert_eq!(hashes.map(|hash| group_by_seed(hash, 255, 6)), [4, 0, 2, 5]);
    }
}
