//! The pages of a directory.

use super::Located;
use arrayvec::ArrayVec;
use std::borrow::Borrow;
use std::mem::needs_drop;
use std::sync::Arc;

/// Most entries of a leaf. A change writes a new leaf, a plain copy.
const LEAF: usize = 64;

/// Most children of an inner page. The first change after a clone copies the page and counts a reference to every child.
const INNER: usize = 32;

/// A page, or rather the counted reference to it that its parent holds.
#[derive(Clone, Debug)]
pub(super) enum Node<S, T> {
    Leaf(Leaf<S, T>),
    Inner(Arc<Inner<S, T>>),
}

/// Entries, apart from their separators, so that the search touches few cache lines. Both exactly as long as needed: a
/// leaf is written anew when it changes, so that spare room would never be used.
#[derive(Clone, Debug)]
pub(super) struct Leaf<S, T> {
    pub(super) separators: Arc<[S]>,
    pub(super) entries: Arc<[T]>,
}

/// Children with the first separator below each, inside the page, so that a step down follows one pointer.
#[derive(Clone, Debug)]
pub(super) struct Inner<S, T> {
    separators: ArrayVec<S, INNER>,
    pub(super) children: ArrayVec<Node<S, T>, INNER>,
}

/// Index of the greatest separator at or below `key`, 0 if there is none.
#[inline]
pub(super) fn position<S: Borrow<Q>, Q: Ord + ?Sized>(separators: &[S], key: &Q) -> usize {
    count_while(separators, |separator| separator.borrow() <= key).saturating_sub(1)
}

/// Length of the prefix for which `below` holds.
///
/// A binary search would wait for one cache line after the other. Comparing with every eighth item and then with the
/// eight of one block has two steps, the loads of each of which overlap.
#[inline(always)]
fn count_while<I>(items: &[I], below: impl Fn(&I) -> bool) -> usize {
    const BLOCK: usize = 8;
    if needs_drop::<I>() {
        // Such items own memory: comparing is dear and follows a pointer of its own.
        return items.partition_point(below);
    }
    let blocks: usize = items.chunks_exact(BLOCK).map(|block| usize::from(below(&block[BLOCK - 1]))).sum();
    let rest = &items[blocks * BLOCK..];
    let block = rest.first_chunk::<BLOCK>().map_or(rest, |block| block);
    blocks * BLOCK + block.iter().map(|item| usize::from(below(item))).sum::<usize>()
}

/// Cuts `items` into the fewest chunks of at most `most`, of nearly equal size.
fn chunks<I>(items: Vec<I>, most: usize) -> impl Iterator<Item = Vec<I>> {
    let pages = items.len().div_ceil(most);
    let len = items.len();
    let mut items = items.into_iter();
    (0..pages).map(move |page| {
        let share = (page + 1) * len / pages - page * len / pages;
        items.by_ref().take(share).collect()
    })
}

impl<S, T> Node<S, T> {
    pub(super) fn separators(&self) -> &[S] {
        match self {
            Self::Leaf(leaf) => &leaf.separators,
            Self::Inner(inner) => &inner.separators,
        }
    }

    /// Heap bytes of the page and those below it, with the two counts before each.
    pub(super) fn heap_bytes(&self) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        match self {
            Self::Leaf(leaf) => 2 * COUNTS + size_of_val(&*leaf.separators) + size_of_val(&*leaf.entries),
            Self::Inner(inner) => {
                let below: usize = inner.children.iter().map(Self::heap_bytes).sum();
                COUNTS + size_of::<Inner<S, T>>() + below
            }
        }
    }

    fn count_entries(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.separators.len(),
            Self::Inner(inner) => inner.children.iter().map(Self::count_entries).sum(),
        }
    }

    /// Whether the page should be joined with a neighbour.
    fn is_small(&self) -> bool {
        self.separators().len() < if matches!(self, Self::Leaf(_)) { LEAF / 4 } else { INNER / 4 }
    }
}

impl<S: Ord + Clone, T: Clone> Node<S, T> {
    pub(super) fn from_entries(entries: Vec<(S, T)>) -> Self {
        // New leaves are left room to grow before they split; it takes no memory.
        Self::above(Leaf::cut(entries, LEAF - LEAF / 8).collect())
    }

    /// The page at the top of a tree over `nodes`, which are of one height.
    fn above(mut nodes: Vec<Self>) -> Self {
        while nodes.len() > 1 {
            nodes = Inner::cut(nodes).collect();
        }
        nodes.pop().unwrap_or_else(|| Self::Leaf(Leaf { separators: [].into(), entries: [].into() }))
    }

    #[inline]
    pub(super) fn locate<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Located<'_, S, T>>
    where
        S: Borrow<Q>,
    {
        let (mut node, mut hi) = (self, None);
        loop {
            match node {
                Self::Inner(inner) => {
                    let child = position(&inner.separators, key);
                    hi = inner.separators.get(child + 1).or(hi);
                    node = &inner.children[child];
                }
                Self::Leaf(leaf) => {
                    let at = position(&leaf.separators, key);
                    let lo = leaf.separators.get(at)?;
                    return Some(Located {
                        lo,
                        hi: leaf.separators.get(at + 1).or(hi),
                        entry: &leaf.entries[at],
                    });
                }
            }
        }
    }

    /// [`super::Directory::replace`] on the tree below, which keeps its top page's place; returns the number removed.
    pub(super) fn replace(&mut self, lo: &S, hi: Option<&S>, with: &[(S, T)]) -> usize {
        let mut removed = 0;
        let mut nodes = self.splice(Some(lo), hi, with, &mut removed);
        if !nodes.is_empty() {
            nodes.insert(0, self.clone());
            *self = Self::above(nodes);
        }
        while let Self::Inner(inner) = self
            && inner.children.len() <= 1
        {
            let child = inner.children.first().cloned();
            *self = child.unwrap_or_else(|| Self::above(Vec::new()));
        }
        removed
    }

    /// Replaces the entries in `[lo, hi)` below this page (`None`: no end) by `with`. The page may be left empty or small;
    /// pages that no longer fit are returned, to stand right of it.
    fn splice(&mut self, lo: Option<&S>, hi: Option<&S>, with: &[(S, T)], removed: &mut usize) -> Vec<Self> {
        match self {
            Self::Leaf(leaf) => leaf.splice(lo, hi, with, removed),
            Self::Inner(inner) => Arc::make_mut(inner).splice(lo, hi, with, removed),
        }
    }

    /// Joins two neighbours of one height into one page, or two of equal size.
    fn join(self, right: Self) -> Vec<Self> {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) => {
                Leaf::cut(left.pairs().chain(right.pairs()).collect(), LEAF).collect()
            }
            (Self::Inner(left), Self::Inner(right)) => {
                let children =
                    [left, right].into_iter().flat_map(|inner| Arc::unwrap_or_clone(inner).children);
                Inner::cut(children.collect()).collect()
            }
            // All leaves lie at one depth, so this does not occur; the pages as they are would be right too.
            (left, right) => vec![left, right],
        }
    }
}

impl<S: Ord + Clone, T: Clone> Leaf<S, T> {
    fn cut(entries: Vec<(S, T)>, most: usize) -> impl Iterator<Item = Node<S, T>> {
        chunks(entries, most).map(|page| {
            let (separators, entries): (Vec<_>, Vec<_>) = page.into_iter().unzip();
            Node::Leaf(Self { separators: separators.into(), entries: entries.into() })
        })
    }

    fn pairs(&self) -> impl Iterator<Item = (S, T)> {
        self.separators.iter().cloned().zip(self.entries.iter().cloned())
    }

    fn splice(
        &mut self,
        lo: Option<&S>,
        hi: Option<&S>,
        with: &[(S, T)],
        removed: &mut usize,
    ) -> Vec<Node<S, T>> {
        let (separators, entries) = (&self.separators, &self.entries);
        let start = lo.map_or(0, |lo| separators.partition_point(|separator| separator < lo));
        let end = hi.map_or(separators.len(), |hi| separators.partition_point(|separator| separator < hi));
        let end = end.max(start);
        *removed += end - start;
        if separators.len() - (end - start) + with.len() <= LEAF {
            let new = with.iter().map(|(separator, _)| separator);
            let new = separators[..start].iter().chain(new).chain(&separators[end..]).cloned().collect();
            self.entries = {
                let new = with.iter().map(|(_, entry)| entry);
                entries[..start].iter().chain(new).chain(&entries[end..]).cloned().collect()
            };
            self.separators = new;
            return Vec::new();
        }
        let mut all: Vec<(S, T)> = self.pairs().collect();
        all.splice(start..end, with.iter().cloned());
        let mut leaves = Self::cut(all, LEAF);
        if let Some(Node::Leaf(first)) = leaves.next() {
            *self = first;
        }
        leaves.collect()
    }
}

impl<S: Ord + Clone, T: Clone> Inner<S, T> {
    fn cut(children: Vec<Node<S, T>>) -> impl Iterator<Item = Node<S, T>> {
        chunks(children, INNER).map(|children| Node::Inner(Arc::new(Self::of(children))))
    }

    /// A page of at most [`INNER`] children, none of them empty.
    fn of(children: Vec<Node<S, T>>) -> Self {
        let separators = children.iter().filter_map(|child| child.separators().first()).cloned().collect();
        Self { separators, children: children.into_iter().collect() }
    }

    fn splice(
        &mut self,
        lo: Option<&S>,
        hi: Option<&S>,
        with: &[(S, T)],
        removed: &mut usize,
    ) -> Vec<Node<S, T>> {
        let first = lo.map_or(0, |lo| position(&self.separators, lo));
        let below_hi = |hi| self.separators.partition_point(|separator| separator < hi).saturating_sub(1);
        let last = hi.map_or(self.children.len() - 1, below_hi).max(first);

        let new = if first == last {
            self.children[first].splice(lo, hi, with, removed)
        } else {
            *removed += self.children[first + 1..last].iter().map(Node::count_entries).sum::<usize>();
            // Nothing is added at the far end, so no page comes of it.
            self.children[last].splice(None, hi, &[], removed);
            self.children[first].splice(lo, None, with, removed)
        };
        if first == last && new.is_empty() && !self.children[first].is_small() {
            if let Some(separator) = self.children[first].separators().first() {
                self.separators[first].clone_from(separator);
            }
            return new;
        }

        let mut children: Vec<_> = self.children.drain(..).collect();
        children.splice(first + 1..last.max(first + 1), new);
        children.retain(|child| !child.separators().is_empty());
        join_small(&mut children);
        let mut pages = chunks(children, INNER);
        *self = Self::of(pages.next().unwrap_or_default());
        pages.map(|children| Node::Inner(Arc::new(Self::of(children)))).collect()
    }
}

/// Joins every small page with a neighbour.
fn join_small<S: Ord + Clone, T: Clone>(nodes: &mut Vec<Node<S, T>>) {
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
