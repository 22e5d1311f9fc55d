//! The paged directory: from a key to the segment whose range holds it.

mod builder;
mod bytes;
mod child_positions;
mod group;
mod iter;
mod key;
mod leaf;
mod leaf_nodes;
mod node;
mod page;
mod plain;
mod root_tree;
mod separators;

pub use builder::Builder;
use iter::LeafPosition;
pub use iter::RangeIter;
pub use key::DirectoryKey;
use leaf_nodes::separator;
pub use page::PageRef;
use root_tree::Top;
pub use separators::{ScalarSteps, Steps};
use std::borrow::Borrow;
use std::fmt;
use thiserror::Error;

/// Entries by ascending separator: entry `i` owns the keys from its separator up to the next one,
/// exclusive.
///
/// Separators are `u64`s or byte strings ([`DirectoryKey`]).
///
/// Pages of up to 64 entries, immutable, lie in groups of up to 64 pages, and above the groups is a
/// static tree over their first separators: two levels of it tell 289 groups apart, about a million
/// segments. A search is the same instructions whatever the key: two steps of eight in the group
/// and two in the page, of which none is a jump. Clones share everything: a clone is O(1), and
/// replacing entries in one of two clones copies the pages it touches and what refers to them (path
/// copying; Driscoll, Sarnak, Sleator and Tarjan, "Making data structures persistent", JCSS 38(1),
/// 1989, §2). The static tree stays shared until a group comes or goes and is written anew then:
/// once in a thousand splits of segments or less, at the cost of a reference to every group. A
/// directory that shares no groups changes them in place.
///
/// # Cost
/// Random `u64` keys, entries of 32 bytes; the least of repeated runs on a crowded machine with 1
/// MiB of level-2 cache per core. In nanoseconds:
///
/// | segments | 1,000 | 20,000 | 100,000 | 1 M | 4 M |
/// |---|---|---|---|---|---|
/// | find, independent keys | 13 | 23 | 47 | 160 | 330 |
/// | locate, independent keys | 18 | 28 | 48 | 110 | 350 |
/// | find, each key after the last answer | 20 | 39 | 69 | 200 | 630 |
/// | locate, each key after the last answer | 23 | 43 | 77 | 170 | 620 |
/// | find in stages, 16 keys at a time | 22 | 27 | 34 | 59 | 140 |
/// | replace one segment by two | 260 | 340 | 620 | 1,220 | 1,620 |
/// | the same in a clone that is then published | 630 | 980 | 1,230 | 2,300 | 3,450 |
///
/// A lookup is 109 instructions in a directory of one group, and 31 more per level of the static
/// tree. The rest is cache misses, one of them in the entry, which every directory has;
/// [`Directory::page_for`] lets many keys wait for theirs at once. Bytes per segment beside
/// separator and entry: 1.9 when new, 2.6 after half of the segments were split.
///
/// Byte strings take 11 bytes beside the entry where seven bytes after what their neighbours share
/// tell them apart, and the rest of their tails where they do not: 16 for paths of 40 bytes. A
/// lookup takes 1.4 to 1.7 times as long as for a number when each key waits for the last answer
/// (random strings and `user...`, 20,000 and 200,000 segments) and 2.0 to 2.6 times when keys are
/// independent; words, many of which are shorter than eight bytes, 1.7 to 2.4 and 3.4 to 3.7 times;
/// deep paths, whose tails are read on every level, 3 to 4.4 and 6.5 to 7.7 times. A replacement
/// takes 2.5 µs, in a clone that is then published 4 to 6; for deep paths twice that.
///
/// Entries lie beside their separators because the cache lines of a block of eight then arrive
/// together. With separators apart the entry waits for its separator: a fifth longer with 4 M
/// segments. Pivots at the head of each page instead of in its group cost another wait. Trees of
/// pages all the way up, as B+-trees are, took as long for a key that waits for the last answer, up
/// to a fifth longer for independent keys, and a fifth to two fifths longer to replace a segment.
/// Steps of four instead of eight were slower when a key waits for the last answer, and no quicker
/// else. Steps in AVX-512 take a third of the instructions, but each waits longer: a vector
/// comparison, the way of its mask to a register and a count are 20 % slower than seven comparisons
/// when a key waits for the last answer, and in the static tree alone they changed nothing. Where a
/// lookup goes on to memory, how many instructions lie between two of its waits counts for more, so
/// that the caller says which [`Steps`] are taken.
pub struct Directory<K: DirectoryKey + ?Sized, T> {
    top: Top<K, T>,
    len: usize,
}

/// Where a key belongs: what [`Directory::locate`] finds.
#[derive(Debug)]
pub struct Located<'a, K: DirectoryKey + ?Sized, T> {
    /// Separator of the entry: the start of its range, which belongs to it.
    pub start: K::Owned,
    /// The next separator: the exclusive end of the range. `None` for the last entry, whose
    /// range has no end.
    pub end: Option<K::Owned>,
    /// The entry.
    pub entry: &'a T,
}

impl<K: DirectoryKey + ?Sized, T> Clone for Located<'_, K, T> {
    fn clone(&self) -> Self {
        Self { start: self.start.clone(), end: self.end.clone(), entry: self.entry }
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
        Ok(Self { len: entries.len(), top: Top::from_entries(entries) })
    }

    /// Replaces the entries whose separators lie in `[start, end)` (`None`: no end) by `with`,
    /// whose separators must ascend strictly and lie there too. Returns how many entries were
    /// removed.
    ///
    /// Keys of the range below `with`'s first separator fall to the entry before, so a caller that
    /// replaces segments starts `with` at `start`. O(page + |with| + removed) amortised, and the
    /// same number of references again where they are shared with a clone; one that makes a group
    /// come or go costs O(groups) besides.
    ///
    /// # Errors
    /// [`DirectoryError`]; nothing has changed then.
    pub fn replace(
        &mut self,
        start: &K,
        end: Option<&K>,
        with: &[(K::Owned, T)],
    ) -> Result<usize, DirectoryError> {
        if end.is_some_and(|end| end <= start) {
            return Err(DirectoryError::EmptyRange);
        }
        check_ascending::<K, T>(with)?;
        let outside = |(separator, _): &(K::Owned, T)| {
            let separator: &K = separator.borrow();
            separator < start || end.is_some_and(|end| separator >= end)
        };
        if let Some(position) = with.iter().position(outside) {
            return Err(DirectoryError::OutsideRange { position });
        }
        let removed = self.top.replace(start, end, with);
        self.len = self.len + with.len() - removed;
        Ok(removed)
    }
}

impl<K: DirectoryKey + ?Sized, T> Directory<K, T> {
    /// The entry whose range holds `key`: that with the greatest separator at or below it, or the
    /// first for a key below all separators. `None` only if the directory is empty.
    ///
    /// O(log n): two steps of comparisons in the group and two in the page, which wait for one
    /// cache line each; on random keys most of the time is their cache misses.
    #[inline]
    pub fn find(&self, key: &K) -> Option<&T> {
        self.find_shared(key).map(|(entry, _)| entry)
    }

    /// As [`Directory::find`], with how many bytes the key and the entry's separator have in common
    /// from their beginning on, which the search knows anyway. 0 for `u64` keys.
    #[inline]
    pub fn find_shared(&self, key: &K) -> Option<(&T, usize)> {
        self.find_shared_by(key, ScalarSteps)
    }

    /// The same, by these steps where keys are `u64`s; byte strings have their own.
    #[inline]
    pub fn find_shared_by(&self, key: &K, steps: impl Steps) -> Option<(&T, usize)> {
        self.top.find(key, steps).and_then(|(leaf, at, shared)| Some((leaf.entry(at)?, shared)))
    }

    /// The page whose entries' ranges hold `key`, of which nothing has been read yet: the first of
    /// the stages of a lookup, between which other keys can have theirs. `None` only if the
    /// directory is empty. By these steps, as [`Directory::find_shared_by`].
    #[inline]
    pub fn page_for(&self, key: &K, steps: impl Steps) -> Option<PageRef<'_, K, T>> {
        PageRef::find(&self.top, key, steps)
    }

    /// As [`Directory::find`], with the ends of the range. They cost little more if keys are
    /// `u64`s; byte strings are put together and copied to the heap, O(their length) and two
    /// allocations.
    #[inline]
    pub fn locate(&self, key: &K) -> Option<Located<'_, K, T>> {
        let (leaf, at, _) = self.top.find(key, ScalarSteps)?;
        let (start, entry) = (separator::<K, T>(leaf, at)?, leaf.entry(at)?);
        Some(Located { start, end: separator::<K, T>(leaf, at + 1).or_else(|| self.after_leaf(key)), entry })
    }

    /// The separator after the leaf whose range holds `key`. Few searches need it, so that they do
    /// better to come down again for it than to carry it along.
    #[cold]
    fn after_leaf(&self, key: &K) -> Option<K::Owned> {
        let [group, leaf, _] = self.top.position(key);
        separator::<K, T>(LeafPosition::new(&self.top, group, leaf)?.after()?.leaf()?, 0)
    }

    /// The entry before the one whose range holds `key`, with its separator; `None` if that is the
    /// first. As [`Directory::locate`].
    pub fn before(&self, key: &K) -> Option<(K::Owned, &T)> {
        let [group, leaf, at] = self.top.position(key);
        let place = LeafPosition::new(&self.top, group, leaf)?;
        let (leaf, at) = match at.checked_sub(1) {
            Some(before) => (place.leaf()?, before),
            None => {
                let leaf = place.before()?.leaf()?;
                (leaf, leaf.entries.len().checked_sub(1)?)
            }
        };
        Some((separator::<K, T>(leaf, at)?, leaf.entry(at)?))
    }

    /// The entry after the one whose range holds `key`, with its separator, which is the end of
    /// that range; `None` if that is the last. As [`Directory::locate`].
    pub fn after(&self, key: &K) -> Option<(K::Owned, &T)> {
        let [group, leaf, at] = self.top.position(key);
        let place = LeafPosition::new(&self.top, group, leaf)?;
        let (leaf, at) = match place.leaf()? {
            leaf if at + 1 < leaf.entries.len() => (leaf, at + 1),
            _ => (place.after()?.leaf()?, 0),
        };
        Some((separator::<K, T>(leaf, at)?, leaf.entry(at)?))
    }

    /// The entry whose range holds `key` and all after it, in order. O(log n), then O(1) amortised
    /// per entry.
    pub fn range_from(&self, key: &K) -> RangeIter<'_, K, T> {
        RangeIter::from_key(&self.top, key)
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
        RangeIter::all(&self.top)
    }

    /// Bytes of the directory: itself, its pages, separators and reference counts, whether shared
    /// with clones or not. Without what entries own on the heap, and without the allocator's own.
    /// O(number of pages).
    pub fn size_in_bytes(&self) -> usize {
        size_of::<Self>() + self.top.heap_bytes()
    }
}

impl<K: DirectoryKey + ?Sized, T> Clone for Directory<K, T> {
    fn clone(&self) -> Self {
        Self { top: self.top.clone(), len: self.len }
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
