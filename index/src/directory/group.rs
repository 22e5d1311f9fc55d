//! Leaves in groups.

use super::key::{DirectoryKey, Kind};
use super::leaf::Leaf;
use super::separators::{PAGE, Separators};
use std::alloc::Layout;
use std::mem;
use std::sync::Arc;

/// Up to [`PAGE`] leaves, found by their first separators: what a change of a clone copies of the leaves' parents. It then
/// counts a reference to every leaf.
#[repr(C, align(64))]
pub(super) struct Group<K: Kind + ?Sized, T> {
    pub(super) separators: Separators<K>,
    /// None is empty.
    pub(super) leaves: Box<[Leaf<K, T>]>,
}

impl<K: Kind + ?Sized, T> Clone for Group<K, T> {
    fn clone(&self) -> Self {
        Self { separators: self.separators.clone(), leaves: self.leaves.clone() }
    }
}

/// A leaf, or a counted reference to a group.
pub(super) trait Node<K: DirectoryKey + ?Sized, T>: Clone {
    /// Most items of one node.
    const MOST: usize;

    /// Items of the node: leaves or entries.
    fn len(&self) -> usize;

    /// Entries below.
    fn count_entries(&self) -> usize;

    /// Replaces the entries in `[lo, hi)` below (`None`: no end) by `with` and adds their number to `removed`. The node may
    /// be left empty or small; nodes that no longer fit are returned, to stand right of it.
    fn splice(
        &mut self,
        lo: Option<&K>,
        hi: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self>;

    /// Makes of two neighbours one node, or two of equal size.
    fn join(self, right: Self) -> Vec<Self>;

    /// Whether the node should be joined with a neighbour.
    fn is_small(&self) -> bool {
        self.len() < Self::MOST / 4
    }
}

/// Heap bytes of a counted reference to a value of the given layout: it, and the two counts before.
pub(super) fn counted_bytes(value: Layout) -> usize {
    // The value exists after its counts, so that their sum is no overflow.
    Layout::new::<[usize; 2]>().extend(value).map_or(0, |(both, _)| both.pad_to_align().size())
}

/// Cuts `items` into the fewest chunks of at most `most`, of nearly equal size.
pub(super) fn chunks<I>(items: Vec<I>, most: usize) -> impl Iterator<Item = Vec<I>> {
    let pages = items.len().div_ceil(most);
    let len = items.len();
    let mut items = items.into_iter();
    (0..pages).map(move |page| {
        let share = (page + 1) * len / pages - page * len / pages;
        items.by_ref().take(share).collect()
    })
}

impl<K: DirectoryKey + ?Sized, T> Group<K, T> {
    /// Heap bytes of a counted reference to it, with all below.
    pub(super) fn heap_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().map(Leaf::heap_bytes).sum();
        let text = K::text_bytes(&self.separators.text);
        counted_bytes(Layout::new::<Self>()) + text + size_of_val(&*self.leaves) + leaves
    }

    #[cold]
    pub(super) fn last_leaf(&self) -> Option<&Leaf<K, T>> {
        self.leaves.last()
    }

    /// Of at most [`PAGE`] leaves.
    pub(super) fn new(leaves: Vec<Leaf<K, T>>) -> Self {
        let firsts: Vec<K::Owned> = leaves.iter().filter_map(|leaf| leaf.separator(0)).collect();
        Self { separators: K::pack(&firsts), leaves: leaves.into() }
    }
}

impl<K: DirectoryKey + ?Sized, T: Clone> Node<K, T> for Arc<Group<K, T>> {
    const MOST: usize = PAGE;

    fn len(&self) -> usize {
        self.leaves.len()
    }

    fn count_entries(&self) -> usize {
        self.leaves.iter().map(Node::count_entries).sum()
    }

    fn splice(
        &mut self,
        lo: Option<&K>,
        hi: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self> {
        let Group { separators, leaves } = Self::make_mut(self);
        let end = leaves.len().saturating_sub(1);
        let first = lo.map_or(0, |lo| separators.position(lo)).min(end);
        let last = hi.map_or(end, |hi| separators.position_below(leaves.len(), hi)).clamp(first, end);
        let new = change(leaves, [first, last], (lo, hi), with, removed);
        if first == last && new.is_empty() && !leaves[first].is_small() {
            if let Some(separator) = leaves[first].separator(0)
                && K::separator(separators, first) != separator
            {
                separators.set(leaves.len(), first, separator);
            }
            return Vec::new();
        }
        let leaves = settle(mem::take(leaves).into_vec(), [first, last], new);
        let mut groups = chunks(leaves, PAGE).map(Group::new);
        *Self::make_mut(self) = groups.next().unwrap_or_else(|| Group::new(Vec::new()));
        groups.map(Self::new).collect()
    }

    fn join(self, right: Self) -> Vec<Self> {
        let [left, right] = [self, right].map(|group| Self::unwrap_or_clone(group).leaves.into_vec());
        let mut leaves = left;
        leaves.extend(right);
        // An only leaf had no neighbour to be joined with.
        join_small(&mut leaves);
        chunks(leaves, PAGE).map(|leaves| Self::new(Group::new(leaves))).collect()
    }
}

/// [`Node::splice`] on neighbours, of which the first and the last that are concerned are named. What it returns is to stand
/// right of the first, and those between it and the last are to go; see [`settle`].
pub(super) fn change<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(
    nodes: &mut [N],
    [first, last]: [usize; 2],
    (lo, hi): (Option<&K>, Option<&K>),
    with: &[(K::Owned, T)],
    removed: &mut usize,
) -> Vec<N> {
    if first == last {
        return nodes[first].splice(lo, hi, with, removed);
    }
    *removed += nodes[first + 1..last].iter().map(Node::count_entries).sum::<usize>();
    // Nothing is added at the far end, so no node comes of it.
    nodes[last].splice(None, hi, &[], removed);
    nodes[first].splice(lo, None, with, removed)
}

/// Puts `new` in the place of what lies between `first` and `last`, drops what is empty and joins what is small.
pub(super) fn settle<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(
    mut nodes: Vec<N>,
    [first, last]: [usize; 2],
    new: Vec<N>,
) -> Vec<N> {
    nodes.splice(first + 1..last.max(first + 1), new);
    nodes.retain(|node| node.len() > 0);
    join_small(&mut nodes);
    nodes
}

/// Joins every small node with a neighbour.
fn join_small<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(nodes: &mut Vec<N>) {
    let mut at = 0;
    while at < nodes.len() && nodes.len() > 1 {
        if nodes[at].is_small() {
            let left = at.saturating_sub(1);
            let pair: Vec<_> = nodes.drain(left..left + 2).collect();
            let mut pair = pair.into_iter();
            let joined = pair.next().zip(pair.next()).map_or_else(Vec::new, |(left, right)| left.join(right));
            at = left + joined.len();
            nodes.splice(left..left, joined);
        } else {
            at += 1;
        }
    }
}
