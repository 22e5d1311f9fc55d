//! The pages that hold entries.

use super::page::{Node, chunks, counted_bytes};
use super::separators::{BLOCK, PAGE, STEP, count_not_above};
use std::alloc::Layout;
use std::array;
use std::borrow::Borrow;
use std::mem::needs_drop;
use std::sync::Arc;

/// Most entries of a leaf. A change writes a new leaf, a plain copy.
const LEAF: usize = PAGE;

/// Entries of a leaf of a new directory. The room to grow before it splits takes no memory.
const NEW_LEAF: usize = LEAF - LEAF / 8;

/// Up to [`LEAF`] entries beside their separators, as its parent holds them.
///
/// The pivots lie in the parent, so that the search can begin before the entries have arrived. It then reads separators
/// and entry of one block of eight, which arrive together: one wait for the leaf's memory instead of three. There are
/// exactly as many entries as needed: a leaf is written anew when it changes, so that spare room would never be used.
#[derive(Clone, Debug)]
pub(super) struct Leaf<S, T> {
    /// Separators 8, 16, … 56, the last one where there are fewer. `None` if the leaf is searched by halves: if keys own
    /// memory, or if it is shorter than a block.
    pivots: Option<[S; STEP]>,
    entries: Arc<[(S, T)]>,
}

impl<S, T> Leaf<S, T> {
    /// The entries in order.
    #[inline]
    pub(super) fn entries(&self) -> &[(S, T)] {
        &self.entries
    }

    /// Bytes outside the parent.
    pub(super) fn heap_bytes(&self) -> usize {
        counted_bytes(Layout::for_value(&*self.entries))
    }

    /// Index of the entry with the greatest separator at or below `key`, 0 if there is none.
    #[inline(always)]
    pub(super) fn position<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        S: Borrow<Q>,
    {
        if let Some(pivots) = &self.pivots {
            let block = BLOCK * count_not_above(pivots, Borrow::borrow, key);
            // The last block begins earlier, so as to be whole. Pivots that repeat the last separator lead there too.
            let block = block.min(self.entries.len().saturating_sub(BLOCK));
            if let Some(rest) = self.entries.get(block + 1..).and_then(|rest| rest.first_chunk()) {
                return block + count_not_above(rest, |(separator, _)| separator.borrow(), key);
            }
        }
        self.entries.partition_point(|(separator, _)| separator.borrow() <= key).saturating_sub(1)
    }
}

impl<S: Clone, T: Clone> Leaf<S, T> {
    fn of(entries: Arc<[(S, T)]>) -> Self {
        let last = entries.last().filter(|_| !needs_drop::<S>() && entries.len() >= BLOCK);
        let pivots = last.map(|last| {
            array::from_fn(|i| {
                entries.get(BLOCK * (i + 1)).map_or(&last.0, |(separator, _)| separator).clone()
            })
        });
        Self { pivots, entries }
    }

    /// Leaves of a new directory.
    pub(super) fn cut_new(entries: Vec<(S, T)>) -> Vec<Self> {
        chunks(entries, NEW_LEAF).map(|entries| Self::of(entries.into())).collect()
    }

    fn cut(entries: Vec<(S, T)>) -> impl Iterator<Item = Self> {
        chunks(entries, LEAF).map(|entries| Self::of(entries.into()))
    }
}

impl<S: Ord + Clone, T: Clone> Node<S, T> for Leaf<S, T> {
    const MOST: usize = LEAF;

    fn first(&self) -> Option<&S> {
        self.entries.first().map(|(separator, _)| separator)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn count_entries(&self) -> usize {
        self.entries.len()
    }

    fn splice(&mut self, lo: Option<&S>, hi: Option<&S>, with: &[(S, T)], removed: &mut usize) -> Vec<Self> {
        let old = &self.entries;
        let start = lo.map_or(0, |lo| old.partition_point(|(separator, _)| separator < lo));
        let end = hi.map_or(old.len(), |hi| old.partition_point(|(separator, _)| separator < hi)).max(start);
        *removed += end - start;
        let new = old[..start].iter().chain(with).chain(&old[end..]).cloned();
        if old.len() - (end - start) + with.len() <= LEAF {
            *self = Self::of(new.collect());
            return Vec::new();
        }
        let mut leaves = Self::cut(new.collect());
        if let Some(first) = leaves.next() {
            *self = first;
        }
        leaves.collect()
    }

    fn join(self, right: Self) -> Vec<Self> {
        Self::cut(self.entries.iter().chain(&*right.entries).cloned().collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_in_leaves_of_every_size() {
        for len in 1..=LEAF as u64 {
            let leaf = Leaf::of((1..=len).map(|i| (10 * i, i)).collect());
            assert_eq!(leaf.pivots.is_some(), len >= BLOCK as u64);
            for key in 0..10 * len + 20 {
                assert_eq!(leaf.position(&key) as u64, (key / 10).clamp(1, len) - 1, "{len} {key}");
            }
        }
    }
}
