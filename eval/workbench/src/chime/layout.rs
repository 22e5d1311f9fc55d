//! A hopscotch leaf, as words of simulated memory and as bytes of the published layout.

use crate::{Sizes, scatter};

/// Entries of a leaf, and of a neighbourhood.
pub const SPAN: usize = 64;
pub const HOP: usize = 8;

/// Words before a leaf's entries: lock, the leaf after it, and the first key that is not its own.
pub const HEAD: usize = 3;
/// Words of an entry: whether it is used, key, value.
pub const ENTRY: usize = 3;

/// Words of a leaf.
pub const LEAF: usize = HEAD + SPAN * ENTRY;

/// The lock in a leaf's first word.
pub const LOCK: u64 = 1 << 63;

/// Bytes of a cache line without its version.
const LINE: usize = 63;

/// Bytes that are replicated with every neighbourhood: the leaf's metadata.
const METADATA: usize = 9;

/// Bytes of an entry: version, hop bitmap, and the record.
pub const fn entry_bytes(sizes: Sizes) -> usize {
    3 + sizes.key + sizes.value
}

/// Bytes of entries that lie together, with the versions of the cache lines they touch.
pub const fn run_bytes(sizes: Sizes, first: usize, count: usize) -> usize {
    let (start, bytes) = (first * entry_bytes(sizes), count * entry_bytes(sizes));
    let lines = (start + bytes - 1) / LINE - start / LINE + 1;
    bytes + lines
}

/// The same with the leaf's metadata.
pub const fn neighbourhood_bytes(sizes: Sizes, first: usize, count: usize) -> usize {
    run_bytes(sizes, first, count) + METADATA
}

/// Bytes of a whole leaf: each neighbourhood's worth of entries has the metadata once, the lock is
/// a word.
pub const fn leaf_bytes(sizes: Sizes) -> usize {
    run_bytes(sizes, 0, SPAN) + SPAN / HOP * METADATA + 8
}

/// Where in its leaf a key is at home.
pub fn home(key: u64) -> usize {
    (scatter(key) >> 58) as usize
}

/// A key's fingerprint among hot entries.
pub fn fingerprint(key: u64) -> u16 {
    scatter(key) as u16
}

/// Puts keys into a leaf's entries, each within its neighbourhood; `None` if they do not fit.
pub fn place(keys: &[u64]) -> Option<[Option<u64>; SPAN]> {
    let mut entries = [None; SPAN];
    keys.iter().try_for_each(|key| insert(&mut entries, *key)).map(|()| entries)
}

/// Makes room for a key by moving others, and puts it there.
pub fn insert(entries: &mut [Option<u64>; SPAN], key: u64) -> Option<()> {
    let distance = |from: usize, to: usize| (to + SPAN - from) % SPAN;
    let home_of_key = home(key);
    let mut free = (0..SPAN).map(|i| (home_of_key + i) % SPAN).find(|i| entries[*i].is_none())?;
    while distance(home_of_key, free) >= HOP {
        // Of those before the free entry, the first one that may move there.
        let mover = (1..HOP)
            .rev()
            .map(|back| (free + SPAN - back) % SPAN)
            .find(|i| entries[*i].is_some_and(|other| distance(home(other), free) < HOP))?;
        entries[free] = entries[mover].take();
        free = mover;
    }
    entries[free] = Some(key);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_thirds_of_a_leaf_nearly_always_fit_and_every_key_lies_in_its_neighbourhood() {
        let mut placed = 0;
        for round in 0..200u64 {
            let keys: Vec<u64> = (0..42).map(|i| scatter(round << 8 | i)).collect();
            let Some(entries) = place(&keys) else { continue };
            placed += 1;
            for key in keys {
                assert!((0..HOP).any(|i| entries[(home(key) + i) % SPAN] == Some(key)));
            }
        }
        assert!(placed >= 195, "{placed}");
    }
}
