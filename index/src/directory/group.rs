//! Groups of leaves.

use super::child_positions;
use super::key::{DirectoryKey, LeafOf, SeparatorKind};
use super::leaf_nodes;
use super::node::{TreeNode, change, chunks, counted_bytes, join_small, settle};
use super::separators::{PAGE, Separators};
use std::alloc::Layout;
use std::mem;
use std::sync::Arc;

/// Up to [`PAGE`] leaves, found by their first separators: what a change of a clone copies of the
/// leaves' parents. It then counts a reference to every leaf.
#[repr(C, align(64))]
pub(super) struct LeafGroup<K: SeparatorKind + ?Sized, T> {
    pub(super) separators: Separators<K::Text>,
    /// None is empty.
    pub(super) leaves: Box<[LeafOf<K, T>]>,
}

impl<K: SeparatorKind + ?Sized, T> Clone for LeafGroup<K, T> {
    fn clone(&self) -> Self {
        Self { separators: self.separators.clone(), leaves: self.leaves.clone() }
    }
}

impl<K: DirectoryKey + ?Sized, T> LeafGroup<K, T> {
    /// Heap bytes of a counted reference to it, with all below.
    pub(super) fn heap_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().map(leaf_nodes::heap_bytes::<K, T>).sum();
        let text = K::text_bytes(&self.separators.text);
        counted_bytes(Layout::new::<Self>()) + text + size_of_val(&*self.leaves) + leaves
    }

    #[cold]
    pub(super) fn last_leaf(&self) -> Option<&LeafOf<K, T>> {
        self.leaves.last()
    }

    /// A group of at most [`PAGE`] leaves.
    pub(super) fn new(leaves: Vec<LeafOf<K, T>>) -> Self {
        let firsts: Vec<K::Owned> =
            leaves.iter().filter_map(|leaf| leaf_nodes::separator::<K, T>(leaf, 0)).collect();
        Self { separators: K::pack(&firsts), leaves: leaves.into() }
    }
}

impl<K: DirectoryKey + ?Sized, T: Clone> TreeNode<K, T> for Arc<LeafGroup<K, T>> {
    const MOST: usize = PAGE;

    fn len(&self) -> usize {
        self.leaves.len()
    }

    fn count_entries(&self) -> usize {
        self.leaves.iter().map(TreeNode::<K, T>::count_entries).sum()
    }

    fn splice(
        &mut self,
        start: Option<&K>,
        end: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self> {
        let LeafGroup { separators, leaves } = Self::make_mut(self);
        let last_leaf = leaves.len().saturating_sub(1);
        let first = start.map_or(0, |start| child_positions::position(separators, start)).min(last_leaf);
        let last = end
            .map_or(last_leaf, |end| child_positions::position_below(separators, leaves.len(), end))
            .clamp(first, last_leaf);
        let new = change(leaves, [first, last], (start, end), with, removed);
        if first == last && new.is_empty() && !TreeNode::<K, T>::is_small(&leaves[first]) {
            if let Some(separator) = leaf_nodes::separator::<K, T>(&leaves[first], 0)
                && K::separator(separators, first) != separator
            {
                child_positions::set::<K>(separators, leaves.len(), first, separator);
            }
            return Vec::new();
        }
        let leaves = settle::<K, T, _>(mem::take(leaves).into_vec(), [first, last], new);
        let mut groups = chunks(leaves, PAGE).map(LeafGroup::new);
        *Self::make_mut(self) = groups.next().unwrap_or_else(|| LeafGroup::new(Vec::new()));
        groups.map(Self::new).collect()
    }

    fn join(self, right: Self) -> Vec<Self> {
        let [left, right] = [self, right].map(|group| Self::unwrap_or_clone(group).leaves.into_vec());
        let mut leaves = left;
        leaves.extend(right);
        // An only leaf had no neighbour to be joined with.
        join_small::<K, T, _>(&mut leaves);
        chunks(leaves, PAGE).map(|leaves| Self::new(LeafGroup::new(leaves))).collect()
    }
}
