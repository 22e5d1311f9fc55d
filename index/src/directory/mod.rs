//! The paged directory: from a key to the segment whose range holds it.

mod bytes;
mod iter;
mod key;
mod leaf;
mod page;
mod plain;
mod separators;

pub use iter::{RangeBackIter, RangeIter};
pub use key::DirectoryKey;
use page::Page;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Entries by ascending separator: entry `i` owns the keys from its separator up to the next one, exclusive.
///
/// Separators are `u64`s or byte strings ([`DirectoryKey`]).
///
/// A B+-tree of immutable leaf pages under inner pages, of up to 64 items each, which a search tells apart in two steps of
/// eight without a jump that depends on the key. Clones share pages: a clone is O(1), and replacing entries in one of
/// two clones copies only the pages on the paths it touches (path copying; Driscoll, Sarnak, Sleator and Tarjan, "Making data
/// structures persistent", JCSS 38(1), 1989, §2). A directory that shares no inner pages changes them in place.
///
/// # Cost
/// Random `u64` keys, entries of 32 bytes; the least of repeated runs on a shared machine with 2 MiB of level-2 cache per
/// core, on which one dependent random read of memory takes 150 to 210 ns. In nanoseconds:
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
/// segment beside separator and entry: 1.8 when new, 2.4 after half of the segments were split.
///
/// Byte strings take 11 bytes beside the entry where seven bytes behind what their neighbours share tell them apart, and
/// the rest of their tails where they do not: 16 for paths of 40 bytes. A lookup takes 1.4 to 1.7 times as long as for a
/// number when each key waits for the last answer (random strings and `user...`, 20,000 and 200,000 segments) and 2.0 to 2.6
/// times when keys are independent; words, many of which are shorter than eight bytes, 1.7 to 2.4 and 3.4 to 3.7 times; deep
/// paths, whose tails are read on every level, 3 to 4.4 and 6.5 to 7.7 times. A replacement takes 4 µs, for deep paths up to
/// 20. Ratios of one run on a crowded machine.
///
/// Entries lie beside their separators because the cache lines of a block of eight then arrive together. With separators
/// apart the entry waits for its separator: a fifth longer with 4 M segments. Pivots at the head of each leaf instead of
/// in its parent cost another wait. A static tree over the separators of all leaves, beside the pages, saved a tenth at
/// most, nothing at 100,000 segments, and every replacement would have to patch it. Steps of four instead of eight were
/// slower when a key waits for the last answer, and no quicker else.
pub struct Directory<K: DirectoryKey + ?Sized, T> {
    root: Arc<Page<K, T>>,
    len: usize,
}

/// Where a key belongs: what [`Directory::locate`] finds.
#[derive(Debug)]
pub struct Located<'a, K: DirectoryKey + ?Sized, T> {
    /// Separator of the entry: the low end of its range, which belongs to it.
    pub lo: K::Owned,
    /// The next separator: the exclusive high end of the range. `None` for the last entry, whose range has no end.
    pub hi: Option<K::Owned>,
    /// The entry.
    pub entry: &'a T,
}

impl<K: DirectoryKey + ?Sized, T> Clone for Located<'_, K, T> {
    fn clone(&self) -> Self {
        Self { lo: self.lo.clone(), hi: self.hi.clone(), entry: self.entry }
    }
}

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

impl<K: DirectoryKey + ?Sized, T: Clone> Directory<K, T> {
    /// A directory of `entries`, whose separators ascend strictly. O(n).
    ///
    /// # Errors
    /// [`DirectoryError::NotAscending`].
    pub fn from_sorted(entries: Vec<(K::Owned, T)>) -> Result<Self, DirectoryError> {
        check_ascending::<K, T>(&entries)?;
        Ok(Self { len: entries.len(), root: Page::from_entries(entries) })
    }

    /// Replaces the entries whose separators lie in `[lo, hi)` (`None`: no end) by `with`, whose separators must ascend
    /// strictly and lie there too. Returns how many entries were removed.
    ///
    /// Keys of the range below `with`'s first separator fall to the entry before, so that one who replaces segments starts
    /// `with` at `lo`. O(log n + |with| + removed) amortised, times the page size where pages are shared with a clone.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing has changed then.
    pub fn replace(
        &mut self,
        lo: &K,
        hi: Option<&K>,
        with: &[(K::Owned, T)],
    ) -> Result<usize, DirectoryError> {
        if hi.is_some_and(|hi| hi <= lo) {
            return Err(DirectoryError::EmptyRange);
        }
        check_ascending::<K, T>(with)?;
        let outside = |(separator, _): &(K::Owned, T)| {
            let separator: &K = separator.borrow();
            separator < lo || hi.is_some_and(|hi| separator >= hi)
        };
        if let Some(position) = with.iter().position(outside) {
            return Err(DirectoryError::OutsideRange { position });
        }
        let removed = self.root.replace(lo, hi, with);
        self.len = self.len + with.len() - removed;
        Ok(removed)
    }
}

impl<K: DirectoryKey + ?Sized, T> Directory<K, T> {
    /// The entry whose range holds `key`: that with the greatest separator at or below it, or the first for a key below all
    /// separators. `None` only if the directory is empty.
    ///
    /// O(log n): per page two steps of comparisons, which wait for one cache line each; on random keys most of the time is
    /// the cache misses in the lowest inner page and in the leaf.
    #[inline]
    pub fn find(&self, key: &K) -> Option<&T> {
        self.find_shared(key).map(|(entry, _)| entry)
    }

    /// As [`Directory::find`], with how many bytes the key and the entry's separator have in common from their beginning
    /// on, which the search knows anyway. 0 for `u64` keys.
    #[inline]
    pub fn find_shared(&self, key: &K) -> Option<(&T, usize)> {
        match K::enter(&self.root.separators, key) {
            Ok(mut trail) => {
                let (leaf, at) = self.root.leaf(key, &mut trail)?;
                leaf.entry(at).map(|entry| (entry, K::shared(trail)))
            }
            Err(shared) => self.root.first_leaf()?.entry(0).map(|entry| (entry, shared)),
        }
    }

    /// As [`Directory::find`], with the ends of the range. They cost little more if keys are `u64`s; byte strings are put
    /// together and copied to the heap, O(their length) and two allocations.
    #[inline]
    pub fn locate(&self, key: &K) -> Option<Located<'_, K, T>> {
        let (leaf, at) = match K::enter(&self.root.separators, key) {
            Ok(mut trail) => self.root.leaf(key, &mut trail)?,
            Err(_) => (self.root.first_leaf()?, 0),
        };
        let entry = leaf.entry(at)?;
        let lo = leaf.separator(at)?;
        Some(Located { lo, hi: leaf.separator(at + 1).or_else(|| self.root.behind_leaf(key)), entry })
    }

    /// The entry before the one whose range holds `key`, with its separator; `None` if that is the first. As
    /// [`Directory::locate`].
    pub fn before(&self, key: &K) -> Option<(K::Owned, &T)> {
        let (leaf, at) = match K::enter(&self.root.separators, key) {
            Ok(mut trail) => self.root.leaf(key, &mut trail)?,
            Err(_) => return None,
        };
        let (leaf, at) = match at.checked_sub(1) {
            Some(before) => (leaf, before),
            None => self.root.before_leaf(key)?,
        };
        Some((leaf.separator(at)?, leaf.entry(at)?))
    }

    /// The entry whose range holds `key` and all after it, in order. O(log n), then O(1) amortised per entry.
    pub fn range_from(&self, key: &K) -> RangeIter<'_, K, T> {
        RangeIter::from_key(&self.root, key)
    }

    /// The entry whose range holds `key` and all before it, the greatest separator first; for a key below all separators
    /// the first entry alone. As [`Directory::range_from`].
    pub fn range_back_from(&self, key: &K) -> RangeBackIter<'_, K, T> {
        RangeBackIter::from_key(&self.root, key)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in order.
    pub fn iter(&self) -> RangeIter<'_, K, T> {
        RangeIter::all(&self.root)
    }

    /// All entries, the last first.
    pub fn iter_back(&self) -> RangeBackIter<'_, K, T> {
        RangeBackIter::all(&self.root)
    }

    /// Bytes of the directory: itself, its pages, separators and reference counts, whether shared with clones or not.
    /// Without what entries own on the heap, and without the allocator's own. O(number of pages).
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + self.root.heap_bytes()
    }
}

impl<K: DirectoryKey + ?Sized, T> Clone for Directory<K, T> {
    fn clone(&self) -> Self {
        Self { root: Arc::clone(&self.root), len: self.len }
    }
}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for Directory<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<'a, K: DirectoryKey + ?Sized, T> IntoIterator for &'a Directory<K, T> {
    type Item = (K::Owned, &'a T);
    type IntoIter = RangeIter<'a, K, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn check_ascending<K: DirectoryKey + ?Sized, T>(entries: &[(K::Owned, T)]) -> Result<(), DirectoryError> {
    match entries.windows(2).position(|pair| pair[0].0 >= pair[1].0) {
        Some(before) => Err(DirectoryError::NotAscending { position: before + 1 }),
        None => Ok(()),
    }
}
