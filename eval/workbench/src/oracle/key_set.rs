//! The keys that were loaded, one line of memory away however they are spread.

use fpcache_fabric::memory::advise_huge_pages;
use fpcache_index::prefetch;

/// A set of keys in open addressing with linear probing, which can be asked for a key's line ahead
/// of time.
#[derive(Debug)]
pub(super) struct KeySet {
    /// Keys, and [`FREE`] where there is none.
    slots: Vec<u64>,
    has_free: bool,
}

/// Stands for no key: whether it is one is kept apart.
const FREE: u64 = 0;

/// Slots of a line.
const LINE: usize = 8;

impl KeySet {
    /// Of these keys.
    pub(super) fn new(keys: &[u64]) -> Self {
        let mut slots = vec![FREE; keys.len() + keys.len() / 2 + LINE];
        advise_huge_pages(&slots);
        let mut has_free = false;
        for key in keys {
            match *key {
                FREE => has_free = true,
                key => {
                    let free = Self::probe(&slots, key).find(|slot| slots[*slot] == FREE);
                    // There are more slots than keys.
                    slots[free.unwrap_or_default()] = key;
                }
            }
        }
        Self { slots, has_free }
    }

    /// The slots that may have a key, in their order.
    fn probe(slots: &[u64], key: u64) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (Self::first(key, slots.len()), slots.len());
        (first..count).chain(0..first)
    }

    /// The upper bits of a product spread keys of any pattern over all slots.
    #[inline]
    fn first(key: u64, slots: usize) -> usize {
        let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * slots as u128) >> u64::BITS) as usize
    }

    /// A key will be asked for soon.
    pub(super) fn prefetch(&self, key: u64) {
        let first = Self::first(key, self.slots.len());
        prefetch(&self.slots[first..=first]);
    }

    /// Whether a key is there.
    pub(super) fn has(&self, key: u64) -> bool {
        if key == FREE {
            return self.has_free;
        }
        let mut found = Self::probe(&self.slots, key).map(|slot| self.slots[slot]);
        found.find(|found| *found == key || *found == FREE) == Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_and_no_other() {
        let spread: Vec<u64> = (0..5_000).map(|i| i * i * 1_000_003).collect();
        let clustered: Vec<u64> = (0..3_000).chain((1..60).map(|bit| 1 << bit)).collect();
        for mut keys in [
            vec![],
            vec![7],
            vec![0, u64::MAX],
            (10..2_000).collect(),
            spread,
            clustered,
            vec![1, 2, u64::MAX],
        ] {
            keys.sort_unstable();
            keys.dedup();
            let set = KeySet::new(&keys);
            for key in
                keys.iter().flat_map(|key| [key.saturating_sub(1), *key, key.saturating_add(1)]).chain([0])
            {
                assert_eq!(set.has(key), keys.contains(&key), "{key}");
            }
        }
    }
}
