//! Entries one after the other.

use super::key::DirectoryKey;
use super::leaf::Leaf;
use super::page::{Children, Page};
use std::fmt;
use std::iter::FusedIterator;
use std::slice;
use std::sync::Arc;

/// Entries of a [`super::Directory`] in separator order.
///
/// As an iterator it yields separators of their own, for byte strings one allocation each; [`RangeIter::advance`] lends
/// them.
pub struct RangeIter<'a, K: DirectoryKey + ?Sized, T> {
    /// Pages right of the path to the current leaf, outermost first.
    pages: Vec<slice::Iter<'a, Arc<Page<K, T>>>>,
    /// Leaves right of the current one, under the same page.
    leaves: slice::Iter<'a, Leaf<K, T>>,
    leaf: Option<&'a Leaf<K, T>>,
    /// Index of the next entry in the leaf.
    next: usize,
    /// At the entry before the next one, unless that is the leaf's first.
    cursor: K::Cursor,
}

impl<K: DirectoryKey + ?Sized, T> Clone for RangeIter<'_, K, T> {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            leaves: self.leaves.clone(),
            leaf: self.leaf,
            next: self.next,
            cursor: self.cursor.clone(),
        }
    }
}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for RangeIter<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeIter").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> RangeIter<'a, K, T> {
    pub(super) fn all(root: &'a Page<K, T>) -> Self {
        let mut iter =
            Self { pages: Vec::new(), leaves: [].iter(), leaf: None, next: 0, cursor: K::Cursor::default() };
        iter.descend(root, |_| 0);
        iter
    }

    pub(super) fn from_key(root: &'a Page<K, T>, key: &K) -> Self {
        let Ok(mut trail) = K::enter(&root.separators, key) else { return Self::all(root) };
        let mut iter =
            Self { pages: Vec::new(), leaves: [].iter(), leaf: None, next: 0, cursor: K::Cursor::default() };
        iter.descend(root, |page| {
            K::search_inner(&page.separators, key, &mut trail).min(page.children.len().saturating_sub(1))
        });
        iter.leaf = iter.leaves.next();
        if let Some(leaf) = iter.leaf {
            iter.next = K::search_leaf(leaf, key, &mut trail);
            if iter.next > 0 {
                K::seek(leaf, iter.next - 1, &mut iter.cursor);
            }
        }
        iter
    }

    /// The next entry and its separator, which is overwritten by the next call. Allocates only where a separator is longer
    /// than all before it.
    pub fn advance(&mut self) -> Option<(&K, &'a T)> {
        loop {
            if let Some(leaf) = self.leaf
                && let Some((_, entry)) = leaf.entries.get(self.next)
            {
                K::step(leaf, self.next, &mut self.cursor);
                self.next += 1;
                return Some((K::current(&self.cursor), entry));
            }
            self.next = 0;
            self.leaf = self.leaves.next();
            if self.leaf.is_some() {
                continue;
            }
            match self.pages.last_mut()?.next() {
                Some(page) => self.descend(page, |_| 0),
                None => drop(self.pages.pop()),
            }
        }
    }

    /// Goes down from `page` to leaves, at every page to the child that `choose` names.
    fn descend(&mut self, mut page: &'a Page<K, T>, mut choose: impl FnMut(&Page<K, T>) -> usize) {
        loop {
            let child = choose(page);
            match &page.children {
                Children::Pages(pages) => {
                    let mut pages = pages[child..].iter();
                    let Some(next) = pages.next() else { return };
                    self.pages.push(pages);
                    page = next;
                }
                Children::Leaves(leaves) => {
                    self.leaves = leaves[child..].iter();
                    return;
                }
            }
        }
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> Iterator for RangeIter<'a, K, T> {
    type Item = (K::Owned, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(separator, entry)| (separator.to_owned(), entry))
    }
}

impl<K: DirectoryKey + ?Sized, T> FusedIterator for RangeIter<'_, K, T> {}

/// Entries of a [`super::Directory`] against separator order.
///
/// As [`RangeIter`], the other way. A step back costs a byte string as much as its block of eight begins with.
pub struct RangeBackIter<'a, K: DirectoryKey + ?Sized, T> {
    /// Pages left of the path to the current leaf, outermost first.
    pages: Vec<slice::Iter<'a, Arc<Page<K, T>>>>,
    /// Leaves left of the current one, under the same page.
    leaves: slice::Iter<'a, Leaf<K, T>>,
    leaf: Option<&'a Leaf<K, T>>,
    /// Entries of the leaf that are still to come.
    left: usize,
    cursor: K::Cursor,
}

impl<K: DirectoryKey + ?Sized, T> Clone for RangeBackIter<'_, K, T> {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            leaves: self.leaves.clone(),
            leaf: self.leaf,
            left: self.left,
            cursor: self.cursor.clone(),
        }
    }
}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for RangeBackIter<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeBackIter").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> RangeBackIter<'a, K, T> {
    fn new(root: &'a Page<K, T>, choose: impl FnMut(&Page<K, T>) -> usize) -> Self {
        let mut iter =
            Self { pages: Vec::new(), leaves: [].iter(), leaf: None, left: 0, cursor: K::Cursor::default() };
        iter.descend(root, choose);
        iter.leaf = iter.leaves.next_back();
        iter.left = iter.leaf.map_or(0, |leaf| leaf.entries.len());
        iter
    }

    pub(super) fn all(root: &'a Page<K, T>) -> Self {
        Self::new(root, |page| page.children.len().saturating_sub(1))
    }

    pub(super) fn from_key(root: &'a Page<K, T>, key: &K) -> Self {
        let Ok(mut trail) = K::enter(&root.separators, key) else {
            let mut iter = Self::new(root, |_| 0);
            iter.left = iter.left.min(1);
            return iter;
        };
        let mut iter = Self::new(root, |page| {
            K::search_inner(&page.separators, key, &mut trail).min(page.children.len().saturating_sub(1))
        });
        if let Some(leaf) = iter.leaf {
            iter.left = K::search_leaf(leaf, key, &mut trail) + 1;
        }
        iter
    }

    /// The next entry down and its separator, which is overwritten by the next call. Allocates only where a separator is
    /// longer than all before it.
    pub fn advance(&mut self) -> Option<(&K, &'a T)> {
        while self.left == 0 {
            self.leaf = self.leaves.next_back();
            match self.leaf {
                Some(leaf) => self.left = leaf.entries.len(),
                None => match self.pages.last_mut()?.next_back() {
                    Some(page) => self.descend(page, |page| page.children.len().saturating_sub(1)),
                    None => drop(self.pages.pop()),
                },
            }
        }
        let leaf = self.leaf?;
        self.left -= 1;
        K::seek(leaf, self.left, &mut self.cursor);
        Some((K::current(&self.cursor), leaf.entry(self.left)?))
    }

    /// Goes down from `page` to leaves, at every page to the child that `choose` names.
    fn descend(&mut self, mut page: &'a Page<K, T>, mut choose: impl FnMut(&Page<K, T>) -> usize) {
        loop {
            let child = choose(page);
            match &page.children {
                Children::Pages(pages) => {
                    let Some(next) = pages.get(child) else { return };
                    self.pages.push(pages[..child].iter());
                    page = next;
                }
                Children::Leaves(leaves) => {
                    self.leaves = leaves[..leaves.len().min(child + 1)].iter();
                    return;
                }
            }
        }
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> Iterator for RangeBackIter<'a, K, T> {
    type Item = (K::Owned, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|(separator, entry)| (separator.to_owned(), entry))
    }
}

impl<K: DirectoryKey + ?Sized, T> FusedIterator for RangeBackIter<'_, K, T> {}
