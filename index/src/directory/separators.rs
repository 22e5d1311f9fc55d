//! The separators of a group of pages.

use super::key::{DirectoryKey, Kind};
use std::borrow::Borrow;
use std::fmt;

/// Heads of one step of a search: as many as a cache line holds.
pub const BLOCK: usize = 8;

/// Most items of a page: as many as two steps tell apart.
pub const PAGE: usize = BLOCK * BLOCK;

/// Heads that one step compares. The block before ruled out that the key lies below its first one.
pub const STEP: usize = BLOCK - 1;

/// The first separator of each leaf of a group.
///
/// A search compares with seven pivots, every eighth head, and then with seven heads of one block: two cache lines, and the
/// same instructions whatever the key and the number of children, so that no jump depends on either. This is one page of a
/// static B+-tree with blocks of a cache line (the S+ tree of S. Slotin, "Algorithms for Modern Hardware", 2022, "Static
/// B-Trees").
#[repr(C)]
pub struct Separators<K: Kind + ?Sized> {
    /// Heads by child. Room after the last is filled.
    pub(super) heads: [u64; PAGE],
    /// What stands for heads 8, 16, … 56 in the first step, after one that no key lies below.
    pub(super) pivots: [u64; BLOCK],
    /// What the heads do not say.
    pub(super) text: K::Text,
}

impl<K: Kind + ?Sized> Clone for Separators<K> {
    fn clone(&self) -> Self {
        Self { heads: self.heads, pivots: self.pivots, text: self.text.clone() }
    }
}

impl<K: Kind + ?Sized> fmt::Debug for Separators<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Separators").field("heads", &self.heads).field("text", &self.text).finish()
    }
}

impl<K: DirectoryKey + ?Sized> Separators<K> {
    /// Changes one separator of a page of `children`.
    pub(super) fn set(&mut self, children: usize, index: usize, separator: K::Owned) {
        let mut all: Vec<K::Owned> = (0..children).map(|child| K::separator(self, child)).collect();
        if let Some(old) = all.get_mut(index) {
            *old = separator;
        }
        *self = K::pack(&all);
    }

    /// Index of the greatest separator at or below `key`, 0 if there is none. May lie after the last child and then means
    /// that one.
    pub(super) fn position(&self, key: &K) -> usize {
        K::enter(K::first(self), key).map_or(0, |mut trail| K::search_group(self, key, &mut trail))
    }

    /// Index of the greatest separator below `key`, 0 if there is none.
    pub(super) fn position_below(&self, children: usize, key: &K) -> usize {
        let at = self.position(key).min(children.saturating_sub(1));
        if at > 0 && K::separator(self, at).borrow() == key { at - 1 } else { at }
    }
}

/// How many of `items`, which ascend, have their head at or below `head`. Compares with all of them.
#[inline(always)]
pub(super) fn count_not_above<I>(items: &[I; STEP], head_of: impl Fn(&I) -> u64, head: u64) -> usize {
    items.iter().map(|item| usize::from(head_of(item) <= head)).sum()
}

/// How many of `items`, which ascend, are at or below `head`, without the first, which is.
#[inline(always)]
pub(super) fn step(items: &[u64; BLOCK], head: u64) -> usize {
    let [_, items @ ..] = items;
    count_not_above(items, |item| *item, head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of children, every key at, between and beyond the separators.
    fn assert_positions<K: DirectoryKey + ?Sized>(wrap: impl Fn(u64) -> K::Owned) {
        for children in 1..=PAGE {
            let all: Vec<K::Owned> = (1..=children as u64).map(|i| wrap(10 * i)).collect();
            let separators = K::pack(&all);
            assert!(all.iter().enumerate().all(|(i, separator)| K::separator(&separators, i) == *separator));
            for key in 0..10 * children as u64 + 20 {
                let expected = (key / 10).clamp(1, children as u64) - 1;
                let position = separators.position(wrap(key).borrow()).min(children - 1);
                assert_eq!(position as u64, expected, "{children} {key}");
                let expected = (key.saturating_sub(1) / 10).clamp(1, children as u64) - 1;
                let below = separators.position_below(children, wrap(key).borrow());
                assert_eq!(below as u64, expected, "{children} {key}");
            }
        }
    }

    #[test]
    fn numbers_are_found_in_pages_of_every_size() {
        assert_positions::<u64>(|key| key);
    }

    #[test]
    fn byte_strings_are_found_in_pages_of_every_size() {
        assert_positions::<[u8]>(|key| key.to_be_bytes().to_vec());
        assert_positions::<[u8]>(|key| format!("{key:06}").into_bytes());
        assert_positions::<[u8]>(|key| {
            format!("{:04} a long way to {}", key / 40, key % 40 + 10).into_bytes()
        });
        assert_positions::<[u8]>(|key| vec![0; key as usize]);
    }

    #[test]
    fn a_changed_separator_is_searched_for() {
        for children in [1, 2, 8, 9, 17, 63, 64] {
            for index in 0..children {
                let all: Vec<u64> = (1..=children as u64).map(|i| 10 * i).collect();
                let mut separators = <u64 as Kind>::pack(&all);
                separators.set(children, index, 10 * index as u64 + 7);
                let before = separators.position(&(10 * index as u64 + 6)).min(children - 1);
                let at = separators.position(&(10 * index as u64 + 7)).min(children - 1);
                assert_eq!((before, at), (index.saturating_sub(1), index), "{children}");
            }
        }
    }
}
