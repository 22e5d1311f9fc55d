//! Iterators over entries.

use super::key::{DirectoryKey, LeafOf};
use super::root_tree::Top;
use std::fmt;
use std::iter::FusedIterator;

/// A leaf and the way to its neighbours.
pub(super) struct LeafPosition<'a, K: DirectoryKey + ?Sized, T> {
    top: &'a Top<K, T>,
    /// The group's index.
    group: usize,
    leaves: &'a [LeafOf<K, T>],
    /// The leaf's index in its group.
    leaf: usize,
}

impl<K: DirectoryKey + ?Sized, T> Clone for LeafPosition<'_, K, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> LeafPosition<'a, K, T> {
    /// `None` if the directory is empty.
    pub(super) fn new(top: &'a Top<K, T>, group: usize, leaf: usize) -> Option<Self> {
        Some(Self { top, group, leaves: &top.group(group)?.leaves, leaf })
    }

    pub(super) fn first(top: &'a Top<K, T>) -> Option<Self> {
        Self::new(top, 0, 0)
    }

    fn last_of(top: &'a Top<K, T>, group: usize) -> Option<Self> {
        let place = Self::new(top, group, 0)?;
        Some(Self { leaf: place.leaves.len().checked_sub(1)?, ..place })
    }

    pub(super) fn leaf(&self) -> Option<&'a LeafOf<K, T>> {
        self.leaves.get(self.leaf)
    }

    /// The next leaf.
    pub(super) fn after(&self) -> Option<Self> {
        match self.leaf + 1 {
            leaf if leaf < self.leaves.len() => Some(Self { leaf, ..*self }),
            _ => Self::new(self.top, self.group + 1, 0),
        }
    }

    /// The leaf before.
    pub(super) fn before(&self) -> Option<Self> {
        match self.leaf.checked_sub(1) {
            Some(leaf) => Some(Self { leaf, ..*self }),
            None => Self::last_of(self.top, self.group.checked_sub(1)?),
        }
    }
}

/// Entries of a [`super::Directory`] in separator order.
///
/// As an iterator it yields separators of their own, for byte strings one allocation each;
/// [`RangeIter::advance`] lends them.
pub struct RangeIter<'a, K: DirectoryKey + ?Sized, T> {
    place: Option<LeafPosition<'a, K, T>>,
    /// Index of the next entry in the leaf.
    next: usize,
    /// At the entry before the next one, unless that is the leaf's first.
    cursor: K::Cursor,
}

impl<'a, K: DirectoryKey + ?Sized, T> RangeIter<'a, K, T> {
    pub(super) fn all(top: &'a Top<K, T>) -> Self {
        Self { place: LeafPosition::first(top), next: 0, cursor: K::Cursor::default() }
    }

    pub(super) fn from_key(top: &'a Top<K, T>, key: &K) -> Self {
        let [group, leaf, next] = top.position(key);
        let mut iter =
            Self { place: LeafPosition::new(top, group, leaf), next, cursor: K::Cursor::default() };
        if next > 0
            && let Some(leaf) = iter.place.as_ref().and_then(LeafPosition::leaf)
        {
            K::seek(leaf, next - 1, &mut iter.cursor);
        }
        iter
    }

    /// The next entry and its separator, which is overwritten by the next call. Allocates only
    /// where a separator is longer than all before it.
    pub fn advance(&mut self) -> Option<(&K, &'a T)> {
        loop {
            let place = self.place.as_ref()?;
            let leaf = place.leaf()?;
            if let Some(entry) = leaf.entry(self.next) {
                K::step(leaf, self.next, &mut self.cursor);
                self.next += 1;
                return Some((K::current(&self.cursor), entry));
            }
            self.place = place.after();
            self.next = 0;
        }
    }
}

impl<K: DirectoryKey + ?Sized, T> Clone for RangeIter<'_, K, T> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), next: self.next, cursor: self.cursor.clone() }
    }
}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for RangeIter<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeIter").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> Iterator for RangeIter<'a, K, T> {
    type Item = (K::Owned, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(separator, entry)| (separator.to_owned(), entry))
    }
}

impl<K: DirectoryKey + ?Sized, T> FusedIterator for RangeIter<'_, K, T> {}
