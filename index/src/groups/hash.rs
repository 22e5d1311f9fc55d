//! Choices by hash.

/// Mixes a hash with a seed, so that seeds make hashes that have nothing to do with one another.
#[inline]
pub(super) fn mixed(hash: u64, seed: u8) -> u64 {
    // The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    let mut z = hash.wrapping_add((u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// One of `count`, by the high bits of a hash.
#[inline]
pub(super) fn choose(hash: u64, count: u16) -> u16 {
    // Below the count, which has 16 bits.
    ((u128::from(hash) * u128::from(count)) >> 64) as u16
}
