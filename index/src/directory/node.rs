//! Nodes of a directory, and changes of neighbouring ones: what leaves and groups have in common.

use std::alloc::Layout;

/// A leaf, or a counted reference to a group.
pub(super) trait TreeNode<K: ToOwned + ?Sized, T>: Clone {
    /// Most items of one node.
    const MOST: usize;

    /// Items of the node: leaves or entries.
    fn len(&self) -> usize;

    /// Entries below.
    fn count_entries(&self) -> usize;

    /// Replaces the entries in `[start, end)` below (`None`: no end) by `with` and adds their
    /// number to `removed`. The node may be left empty or small; nodes that no longer fit are
    /// returned, to stand right of it.
    fn splice(
        &mut self,
        start: Option<&K>,
        end: Option<&K>,
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

/// [`TreeNode::splice`] on neighbours, of which the first and the last that are concerned are
/// named. What it returns is to stand right of the first, and those between it and the last are to
/// go; see [`settle`].
pub(super) fn change<K: ToOwned + ?Sized, T, N: TreeNode<K, T>>(
    nodes: &mut [N],
    [first, last]: [usize; 2],
    (start, end): (Option<&K>, Option<&K>),
    with: &[(K::Owned, T)],
    removed: &mut usize,
) -> Vec<N> {
    if first == last {
        return nodes[first].splice(start, end, with, removed);
    }
    *removed += nodes[first + 1..last].iter().map(TreeNode::count_entries).sum::<usize>();
    // Nothing is added at the far end, so no node comes of it.
    nodes[last].splice(None, end, &[], removed);
    nodes[first].splice(start, None, with, removed)
}

/// Puts `new` in the place of what lies between `first` and `last`, drops what is empty and joins
/// what is small.
pub(super) fn settle<K: ToOwned + ?Sized, T, N: TreeNode<K, T>>(
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
pub(super) fn join_small<K: ToOwned + ?Sized, T, N: TreeNode<K, T>>(nodes: &mut Vec<N>) {
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
