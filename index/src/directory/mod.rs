//! The paged directory: from a key to the segment whose range holds it.

mod leaf;
mod page;
mod separators;

use leaf::Leaf;
use page::{Children, Page};
use std::borrow::Borrow;
use std::slice;
use std::sync::Arc;
use thiserror::Error;

/// Entries by ascending separator: entry `i` owns the keys from its separator up to the next one, exclusive.
///
/// A B+-tree of immutable leaf pages under inner pages, of up to 64 items each, which a search tells apart in two steps of
/// eight without a jump that depends on the key. Clones share pages: a clone is O(1), and replacing entries in one of
/// two clones copies only the pages on the paths it touches (path copying; Driscoll, Sarnak, Sleator and Tarjan, "Making data
/// structures persistent", JCSS 38(1), 1989, §2). A directory that shares no inner pages changes them in place.
///
/// # Cost
/// Random keys, entries of 32 bytes; the least of repeated runs on a shared machine with 2 MiB of level-2 cache per core, on
/// which one dependent random read of memory takes 150 to 210 ns. In nanoseconds:
///
/// | segments | 1,000 | 20,000 | 100,000 | 1 M | 4 M |
/// |---|---|---|---|---|---|
/// | find, independent keys | 10 | 20 | 31 | 108 | 189 |
/// | locate, independent keys | 11 | 23 | 34 | 119 | 192 |
/// | find, each key after the last answer | 21 | 41 | 65 | 209 | 361 |
/// | locate, each key after the last answer | 23 | 44 | 77 | 233 | 395 |
/// | replace one segment by two | 330 | 330 | 620 | 1,450 | 2,250 |
/// | the same in a clone that is then published | 1,350 | 1,680 | 2,190 | 3,590 | 4,830 |
///
/// Two levels cost 10 ns, three 20; the rest is cache misses, one of them in the entry, which every directory has. Bytes per
/// segment beside separator and entry: 2.0 when new, 2.7 after half of the segments were split. A separator that is aligned
/// less strictly than its entry is padded.
///
/// Entries lie beside their separators because the cache lines of a block of eight then arrive together. With separators
/// apart the entry waits for its separator: a fifth longer with 4 M segments. Pivots at the head of each leaf instead of
/// in its parent cost another wait. A static tree over the separators of all leaves, beside the pages, saved a tenth at
/// most, nothing at 100,000 segments, and every replacement would have to patch it. Steps of four instead of eight were
/// slower when a key waits for the last answer, and no quicker else.
#[derive(Clone, Debug)]
pub struct Directory<S, T> {
    root: Arc<Page<S, T>>,
    len: usize,
}

/// Where a key belongs: what [`Directory::locate`] finds.
#[derive(Debug)]
pub struct Located<'a, S, T> {
    /// Separator of the entry: the low end of its range, which belongs to it.
    pub lo: &'a S,
    /// The next separator: the exclusive high end of the range. `None` for the last entry, whose range has no end.
    pub hi: Option<&'a S>,
    /// The entry.
    pub entry: &'a T,
}

impl<S, T> Clone for Located<'_, S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for Located<'_, S, T> {}

/// A directory cannot take the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Separators do not ascend strictly.
    #[error(
        "the separator of entry {position} is not above the one before it; sort the entries and drop duplicates"
    )]
    NotAscending {
        /// Position among the entries handed over, from 0.
        position: usize,
    },
    /// The range to replace holds no key.
    #[error("the range to replace ends at or below its start; its end is exclusive and must lie above")]
    EmptyRange,
    /// A separator is outside the range to replace.
    #[error(
        "the separator of entry {position} lies outside the range to replace; widen the range or drop the entry"
    )]
    OutsideRange {
        /// Position among the entries handed over, from 0.
        position: usize,
    },
}

impl<S: Ord + Clone, T: Clone> Directory<S, T> {
    /// A directory of `entries`, whose separators ascend strictly. O(n).
    ///
    /// # Errors
    /// [`DirectoryError::NotAscending`].
    pub fn from_sorted(entries: Vec<(S, T)>) -> Result<Self, DirectoryError> {
        check_ascending(&entries)?;
        Ok(Self { len: entries.len(), root: Page::from_entries(entries) })
    }

    /// The entry whose range holds `key`: that with the greatest separator at or below it, or the first for a key below all
    /// separators. `None` only if the directory is empty.
    ///
    /// O(log n): per page two steps of comparisons, which wait for one cache line each; on random keys most of the time is
    /// the cache misses in the lowest inner page and in the leaf.
    #[inline]
    pub fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        S: Borrow<Q>,
    {
        let leaf = self.root.leaf(key)?;
        leaf.entries().get(leaf.position(key)).map(|(_, entry)| entry)
    }

    /// As [`Directory::find`], with the ends of the range; they cost little more.
    #[inline]
    pub fn locate<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Located<'_, S, T>>
    where
        S: Borrow<Q>,
    {
        let leaf = self.root.leaf(key)?;
        let at = leaf.position(key);
        let (lo, entry) = leaf.entries().get(at)?;
        let next = leaf.entries().get(at + 1).map(|(separator, _)| separator);
        Some(Located { lo, hi: next.or_else(|| self.root.behind_leaf(key)), entry })
    }

    /// The entry whose range holds `key` and all after it, in order. O(log n), then O(1) amortised per entry.
    pub fn range_from<Q: Ord + ?Sized>(&self, key: &Q) -> RangeIter<'_, S, T>
    where
        S: Borrow<Q>,
    {
        let mut iter = RangeIter::default();
        iter.descend(&self.root, |page| page.position(key));
        if let Some(leaf) = iter.leaves.next() {
            iter.entries = leaf.entries()[leaf.position(key)..].iter();
        }
        iter
    }

    /// Replaces the entries whose separators lie in `[lo, hi)` (`None`: no end) by `with`, whose separators must ascend
    /// strictly and lie there too. Returns how many entries were removed.
    ///
    /// Keys of the range below `with`'s first separator fall to the entry before, so that one who replaces segments starts
    /// `with` at `lo`. O(log n + |with| + removed) amortised, times the page size where pages are shared with a clone.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing has changed then.
    pub fn replace(&mut self, lo: &S, hi: Option<&S>, with: &[(S, T)]) -> Result<usize, DirectoryError> {
        if hi.is_some_and(|hi| hi <= lo) {
            return Err(DirectoryError::EmptyRange);
        }
        check_ascending(with)?;
        let outside = |(separator, _): &(S, T)| separator < lo || hi.is_some_and(|hi| separator >= hi);
        if let Some(position) = with.iter().position(outside) {
            return Err(DirectoryError::OutsideRange { position });
        }
        let removed = self.root.replace(lo, hi, with);
        self.len = self.len + with.len() - removed;
        Ok(removed)
    }
}

impl<S, T> Directory<S, T> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in order.
    pub fn iter(&self) -> RangeIter<'_, S, T> {
        let mut iter = RangeIter::default();
        iter.descend(&self.root, |_| 0);
        iter
    }

    /// Bytes of the directory: itself, its pages and their reference counts, whether shared with clones or not. Without
    /// what separators and entries own on the heap, and without the allocator's own. O(number of pages).
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + self.root.heap_bytes()
    }
}

impl<'a, S, T> IntoIterator for &'a Directory<S, T> {
    type Item = (&'a S, &'a T);
    type IntoIter = RangeIter<'a, S, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn check_ascending<S: Ord, T>(entries: &[(S, T)]) -> Result<(), DirectoryError> {
    match entries.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
        Some(before) => Err(DirectoryError::NotAscending { position: before + 1 }),
        None => Ok(()),
    }
}

/// Entries of a [`Directory`] in separator order.
#[derive(Clone, Debug)]
pub struct RangeIter<'a, S, T> {
    /// Pages right of the path to the current leaf, outermost first.
    pages: Vec<slice::Iter<'a, Arc<Page<S, T>>>>,
    /// Leaves right of the current one, under the same page.
    leaves: slice::Iter<'a, Leaf<S, T>>,
    entries: slice::Iter<'a, (S, T)>,
}

impl<S, T> Default for RangeIter<'_, S, T> {
    fn default() -> Self {
        Self { pages: Vec::new(), leaves: [].iter(), entries: [].iter() }
    }
}

impl<'a, S, T> RangeIter<'a, S, T> {
    /// Goes down from `page` to leaves, at every page to the child that `choose` names.
    fn descend(&mut self, mut page: &'a Page<S, T>, choose: impl Fn(&Page<S, T>) -> usize) {
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

impl<'a, S, T> Iterator for RangeIter<'a, S, T> {
    type Item = (&'a S, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((separator, entry)) = self.entries.next() {
                return Some((separator, entry));
            }
            if let Some(leaf) = self.leaves.next() {
                self.entries = leaf.entries().iter();
                continue;
            }
            match self.pages.last_mut()?.next() {
                Some(page) => self.descend(page, |_| 0),
                None => drop(self.pages.pop()),
            }
        }
    }
}

impl<S, T> std::iter::FusedIterator for RangeIter<'_, S, T> {}
