//! The builder of a directory from entries that come a few at a time.

use super::key::{DirectoryKey, LeafOf};
use super::leaf_nodes::{NEW_LEAF, cut_new, heap_bytes};
use super::root_tree::Top;
use super::{Directory, DirectoryError};
use std::fmt;

/// Puts a [`Directory`] together from entries in ascending order, without having all of them as
/// they come: separators that share kibibytes take a hundred times as much then as in the
/// directory.
pub struct Builder<K: DirectoryKey + ?Sized, T> {
    leaves: Vec<LeafOf<K, T>>,
    /// Entries that are in no leaf yet.
    rest: Vec<(K::Owned, T)>,
    len: usize,
    /// Those of the leaves.
    heap_bytes: usize,
}

/// Entries from which on leaves are made of most: what stays is enough for the last two to be of
/// one size.
const FEW: usize = 4 * NEW_LEAF;

impl<K: DirectoryKey + ?Sized, T: Clone> Builder<K, T> {
    /// No entries yet.
    #[must_use]
    pub fn new() -> Self {
        Self { leaves: Vec::new(), rest: Vec::new(), len: 0, heap_bytes: 0 }
    }

    /// Adds an entry, whose separator lies above all that were added before. O(1) amortised.
    ///
    /// # Errors
    /// [`DirectoryError::NotAscending`]; the entry has not been added then.
    pub fn push(&mut self, separator: K::Owned, entry: T) -> Result<(), DirectoryError> {
        // Some of those before always stay.
        if self.rest.last().is_some_and(|(last, _)| *last >= separator) {
            return Err(DirectoryError::NotAscending { position: self.len });
        }
        self.rest.push((separator, entry));
        self.len += 1;
        if self.rest.len() == FEW {
            let stay = self.rest.split_off(FEW - 2 * NEW_LEAF);
            let whole = std::mem::replace(&mut self.rest, stay);
            let before = self.leaves.len();
            self.leaves.extend(cut_new::<K, T>(whole));
            self.heap_bytes += self.leaves[before..].iter().map(heap_bytes::<K, T>).sum::<usize>();
        }
        Ok(())
    }

    /// Bytes that the directory's pages take so far, but for those of the last few entries: the
    /// directory will take more. O(1).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Entries so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The directory of all entries: in as many pages as [`Directory::from_sorted`] makes of them.
    #[must_use]
    pub fn finish(mut self) -> Directory<K, T> {
        self.leaves.extend(cut_new::<K, T>(self.rest));
        Directory { len: self.len, top: Top::from_leaves(self.leaves) }
    }
}

impl<K: DirectoryKey + ?Sized, T: Clone> Default for Builder<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: DirectoryKey + ?Sized, T> fmt::Debug for Builder<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built<K: DirectoryKey + ?Sized>(separators: &[K::Owned]) -> Directory<K, usize> {
        let mut builder = Builder::<K, usize>::new();
        for (at, separator) in separators.iter().enumerate() {
            builder.push(separator.clone(), at).expect("they ascend");
            assert!(builder.rest.len() <= FEW && builder.rest.capacity() <= 2 * FEW, "few are kept whole");
        }
        assert_eq!(builder.len(), separators.len());
        let (so_far, directory) = (builder.heap_bytes(), builder.finish());
        let all = directory.size_in_bytes();
        assert!(so_far <= all, "{so_far} bytes, more than {all}");
        let is_most = separators.len() < 50 * FEW || so_far >= all / 4 * 3;
        assert!(is_most, "{so_far} bytes, far fewer than {all}");
        directory
    }

    fn assert_the_same<K: DirectoryKey + ?Sized>(separator: impl Fn(u64) -> K::Owned) {
        let counts = [0, 1, 2, 55, 56, 57, 111, 112, 113, 223, 224, 225, 336, 337, 5000, 56 * 64 + 1, 20_000];
        for count in counts {
            let separators: Vec<K::Owned> = (0..count).map(&separator).collect();
            let entries = separators.iter().cloned().zip(0..).collect();
            let (at_once, built) =
                (Directory::<K, usize>::from_sorted(entries).unwrap(), built::<K>(&separators));
            assert!(built.iter().eq(at_once.iter()) && built.len() == at_once.len(), "{count} entries");
            let (bytes, least) = (built.size_in_bytes(), at_once.size_in_bytes());
            assert!(bytes <= least + least / 50, "{count} entries: {bytes} bytes, not {least}");
        }
    }

    #[test]
    fn a_directory_that_comes_a_few_entries_at_a_time_is_the_same() {
        assert_the_same::<u64>(|n| 10 * n);
        assert_the_same::<[u8]>(|n| [&[b'x'; 40][..], format!("{n:08}").as_bytes()].concat());
    }

    #[test]
    fn entries_that_do_not_ascend_are_refused() {
        let mut builder = Builder::<u64, ()>::new();
        for n in 0..=FEW as u64 {
            builder.push(n, ()).expect("they ascend");
            let position = builder.len();
            assert_eq!(builder.push(n, ()), Err(DirectoryError::NotAscending { position }));
        }
        assert_eq!(builder.finish().len(), FEW + 1);
    }
}
