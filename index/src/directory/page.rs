//! The inner pages of a directory.

use super::leaf::Leaf;
use super::separators::{PAGE, Separators};
use std::alloc::Layout;
use std::borrow::Borrow;
use std::mem;
use std::sync::Arc;

/// Up to [`PAGE`] children, found by the first separator below each.
///
/// The first change after a clone copies the page and counts a reference to every child. All leaves lie at one depth.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(super) struct Page<S, T> {
    separators: Separators<S>,
    pub(super) children: Children<S, T>,
}

/// What lies below a page: something, but for the only page of an empty directory. No child is empty.
#[derive(Clone, Debug)]
pub(super) enum Children<S, T> {
    Pages(Box<[Arc<Page<S, T>>]>),
    Leaves(Box<[Leaf<S, T>]>),
}

/// A child of a page: a leaf, or a counted reference to a page.
pub(super) trait Node<S, T>: Clone {
    /// Most items of one node.
    const MOST: usize;

    /// First separator below.
    fn first(&self) -> Option<&S>;

    /// Items of the node: children or entries.
    fn len(&self) -> usize;

    /// Entries below.
    fn count_entries(&self) -> usize;

    /// Replaces the entries in `[lo, hi)` below (`None`: no end) by `with` and adds their number to `removed`. The node may
    /// be left empty or small; nodes that no longer fit are returned, to stand right of it.
    fn splice(&mut self, lo: Option<&S>, hi: Option<&S>, with: &[(S, T)], removed: &mut usize) -> Vec<Self>;

    /// Makes of two neighbours of one height one node, or two of equal size.
    fn join(self, right: Self) -> Vec<Self>;

    /// Whether the node should be joined with a neighbour.
    fn is_small(&self) -> bool {
        self.len() < Self::MOST / 4
    }
}

/// Heap bytes of a counted reference to a value of the given layout: it, and the two counts before.
pub(super) fn counted_bytes(value: Layout) -> usize {
    // The value exists behind its counts, so that their sum is no overflow.
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

/// The item at `index`, or the last if there is none.
#[inline(always)]
fn at_or_last<I>(items: &[I], index: usize) -> Option<&I> {
    let last = items.len().checked_sub(1)?;
    Some(&items[index.min(last)])
}

impl<S, T> Children<S, T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.len(),
            Self::Leaves(leaves) => leaves.len(),
        }
    }
}

impl<S, T> Page<S, T> {
    /// Heap bytes of the page and those below it.
    pub(super) fn heap_bytes(&self) -> usize {
        let below: usize = match &self.children {
            Children::Pages(pages) => {
                size_of_val(&**pages) + pages.iter().map(|page| page.heap_bytes()).sum::<usize>()
            }
            Children::Leaves(leaves) => {
                size_of_val(&**leaves) + leaves.iter().map(Leaf::heap_bytes).sum::<usize>()
            }
        };
        counted_bytes(Layout::new::<Self>()) + self.separators.heap_bytes() + below
    }
}

impl<S: Ord + Clone, T: Clone> Page<S, T> {
    /// The page at the top of a tree of `entries`, which ascend.
    pub(super) fn from_entries(entries: Vec<(S, T)>) -> Arc<Self> {
        let pages = chunks(Leaf::cut_new(entries), PAGE);
        Self::above(pages.map(|leaves| Arc::new(Self::of_leaves(leaves))).collect())
    }

    fn of_leaves(leaves: Vec<Leaf<S, T>>) -> Self {
        Self { separators: separators(&leaves), children: Children::Leaves(leaves.into()) }
    }

    fn of_pages(pages: Vec<Arc<Self>>) -> Self {
        Self { separators: separators(&pages), children: Children::Pages(pages.into()) }
    }

    /// The page at the top of a tree over `pages`, which are of one height.
    fn above(mut pages: Vec<Arc<Self>>) -> Arc<Self> {
        while pages.len() > 1 {
            pages = chunks(pages, PAGE).map(|pages| Arc::new(Self::of_pages(pages))).collect();
        }
        pages.pop().unwrap_or_else(|| Arc::new(Self::of_leaves(Vec::new())))
    }

    /// Index of the child whose range holds `key`.
    #[inline]
    pub(super) fn position<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        S: Borrow<Q>,
    {
        self.separators.position(key).min(self.children.len().saturating_sub(1))
    }

    /// The leaf whose range holds `key`; `None` if there is no leaf.
    #[inline]
    pub(super) fn leaf<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Leaf<S, T>>
    where
        S: Borrow<Q>,
    {
        let mut page = self;
        loop {
            let child = page.separators.position(key);
            match &page.children {
                Children::Pages(pages) => page = at_or_last(pages, child)?,
                Children::Leaves(leaves) => return at_or_last(leaves, child),
            }
        }
    }

    /// The first separator behind the leaf whose range holds `key`. Few searches need it, so that they do better to come
    /// down again for it than to carry it along.
    #[cold]
    pub(super) fn behind_leaf<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&S>
    where
        S: Borrow<Q>,
    {
        let (mut page, mut behind) = (self, None);
        loop {
            let child = page.position(key);
            behind = page.separators.rest(page.children.len()).get(child).or(behind);
            match &page.children {
                Children::Pages(pages) => page = pages.get(child)?,
                Children::Leaves(_) => return behind,
            }
        }
    }

    /// [`super::Directory::replace`] on the tree below; returns the number removed.
    pub(super) fn replace(self: &mut Arc<Self>, lo: &S, hi: Option<&S>, with: &[(S, T)]) -> usize {
        if self.children.len() == 0 {
            *self = Self::from_entries(with.to_vec());
            return 0;
        }
        let mut removed = 0;
        let mut pages = self.splice(Some(lo), hi, with, &mut removed);
        if !pages.is_empty() {
            pages.insert(0, Arc::clone(self));
            *self = Self::above(pages);
        }
        while let Children::Pages(pages) = &self.children
            && pages.len() <= 1
        {
            let child = pages.first().cloned();
            *self = child.unwrap_or_else(|| Self::above(Vec::new()));
        }
        removed
    }
}

impl<S: Ord + Clone, T: Clone> Node<S, T> for Arc<Page<S, T>> {
    const MOST: usize = PAGE;

    fn first(&self) -> Option<&S> {
        self.separators.first()
    }

    fn len(&self) -> usize {
        self.children.len()
    }

    fn count_entries(&self) -> usize {
        match &self.children {
            Children::Pages(pages) => pages.iter().map(Node::count_entries).sum(),
            Children::Leaves(leaves) => leaves.iter().map(Node::count_entries).sum(),
        }
    }

    fn splice(&mut self, lo: Option<&S>, hi: Option<&S>, with: &[(S, T)], removed: &mut usize) -> Vec<Self> {
        let page = Self::make_mut(self);
        let separators = &mut page.separators;
        match &mut page.children {
            Children::Pages(pages) => splice(separators, pages, (lo, hi), with, removed)
                .map(|pages| Self::new(Page::of_pages(pages)))
                .collect(),
            Children::Leaves(leaves) => splice(separators, leaves, (lo, hi), with, removed)
                .map(|leaves| Self::new(Page::of_leaves(leaves)))
                .collect(),
        }
    }

    fn join(self, right: Self) -> Vec<Self> {
        let [left, right] = [self, right].map(|page| Self::unwrap_or_clone(page).children);
        match (left, right) {
            (Children::Pages(left), Children::Pages(right)) => {
                join_lists(left, right).map(|pages| Self::new(Page::of_pages(pages))).collect()
            }
            (Children::Leaves(left), Children::Leaves(right)) => {
                join_lists(left, right).map(|leaves| Self::new(Page::of_leaves(leaves))).collect()
            }
            // All leaves lie at one depth, so this does not occur; the pages as they are would be right too.
            (Children::Pages(pages), Children::Leaves(leaves)) => {
                vec![Self::new(Page::of_pages(pages.into())), Self::new(Page::of_leaves(leaves.into()))]
            }
            (Children::Leaves(leaves), Children::Pages(pages)) => {
                vec![Self::new(Page::of_leaves(leaves.into())), Self::new(Page::of_pages(pages.into()))]
            }
        }
    }
}

fn separators<S: Ord + Clone, T: Clone, N: Node<S, T>>(children: &[N]) -> Separators<S> {
    Separators::of(children.iter().filter_map(Node::first).cloned().collect())
}

/// [`Node::splice`] on the children of a page. Returns the children of pages to stand right of it.
fn splice<S: Ord + Clone, T: Clone, N: Node<S, T>>(
    keys: &mut Separators<S>,
    children: &mut Box<[N]>,
    (lo, hi): (Option<&S>, Option<&S>),
    with: &[(S, T)],
    removed: &mut usize,
) -> impl Iterator<Item = Vec<N>> + use<S, T, N> {
    let end = children.len().saturating_sub(1);
    let first = lo.map_or(0, |lo| keys.position(lo)).min(end);
    let below = |hi| keys.rest(children.len()).partition_point(|separator| separator < hi);
    let last = hi.map_or(end, below).clamp(first, end);
    let new = if first == last {
        children[first].splice(lo, hi, with, removed)
    } else {
        *removed += children[first + 1..last].iter().map(Node::count_entries).sum::<usize>();
        // Nothing is added at the far end, so no page comes of it.
        children[last].splice(None, hi, &[], removed);
        children[first].splice(lo, None, with, removed)
    };

    if first == last && new.is_empty() && !children[first].is_small() {
        let old = first.checked_sub(1).map_or(keys.first(), |before| keys.rest(children.len()).get(before));
        if let Some(separator) = children[first].first()
            && old != Some(separator)
        {
            keys.set(children.len(), first, separator);
        }
        return chunks(Vec::new(), PAGE);
    }

    let mut all = mem::take(children).into_vec();
    all.splice(first + 1..last.max(first + 1), new);
    all.retain(|child| child.len() > 0);
    join_small(&mut all);
    let mut pages = chunks(all, PAGE);
    *children = pages.next().unwrap_or_default().into();
    *keys = separators(children);
    pages
}

/// The children of two neighbours, for as few pages as hold them.
fn join_lists<S: Ord + Clone, T: Clone, N: Node<S, T>>(
    left: Box<[N]>,
    right: Box<[N]>,
) -> impl Iterator<Item = Vec<N>> + use<S, T, N> {
    let mut all = left.into_vec();
    all.extend(right);
    // An only child had no neighbour to be joined with.
    join_small(&mut all);
    chunks(all, PAGE)
}

/// Joins every small node with a neighbour.
fn join_small<S: Ord + Clone, T: Clone, N: Node<S, T>>(nodes: &mut Vec<N>) {
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
