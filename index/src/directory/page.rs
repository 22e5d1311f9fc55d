//! The inner pages of a directory.

use super::key::{DirectoryKey, Kind};
use super::leaf::{self, Leaf};
use super::separators::{PAGE, Separators};
use std::alloc::Layout;
use std::mem;
use std::sync::Arc;

/// Up to [`PAGE`] children, found by the first separator below each.
///
/// The first change after a clone copies the page and counts a reference to every child. All leaves lie at one depth.
#[repr(C, align(64))]
pub(super) struct Page<K: Kind + ?Sized, T> {
    pub(super) separators: Separators<K>,
    pub(super) children: Children<K, T>,
}

impl<K: Kind + ?Sized, T> Clone for Page<K, T> {
    fn clone(&self) -> Self {
        Self { separators: self.separators.clone(), children: self.children.clone() }
    }
}

/// What lies below a page: something, but for the only page of an empty directory. No child is empty.
pub(super) enum Children<K: Kind + ?Sized, T> {
    Pages(Box<[Arc<Page<K, T>>]>),
    Leaves(Box<[Leaf<K, T>]>),
}

impl<K: Kind + ?Sized, T> Clone for Children<K, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Pages(pages) => Self::Pages(pages.clone()),
            Self::Leaves(leaves) => Self::Leaves(leaves.clone()),
        }
    }
}

/// A child of a page: a leaf, or a counted reference to a page.
pub(super) trait Node<K: DirectoryKey + ?Sized, T>: Clone {
    /// Most items of one node.
    const MOST: usize;

    /// First separator below.
    fn first(&self) -> Option<K::Owned>;

    /// Items of the node: children or entries.
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

impl<K: Kind + ?Sized, T> Children<K, T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.len(),
            Self::Leaves(leaves) => leaves.len(),
        }
    }
}

impl<K: DirectoryKey + ?Sized, T> Page<K, T> {
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
        counted_bytes(Layout::new::<Self>()) + K::text_bytes(&self.separators.text) + below
    }

    /// Index of the child whose range holds `key`.
    pub(super) fn position(&self, key: &K) -> usize {
        self.separators.position(key).min(self.children.len().saturating_sub(1))
    }

    /// The leaf whose range holds `key`, and its entry there; `None` if there is no leaf. `trail` knows how the key compares
    /// with the first separator, and then with the one found.
    #[inline(always)]
    pub(super) fn leaf(&self, key: &K, trail: &mut K::Trail) -> Option<(&Leaf<K, T>, usize)> {
        let mut page = self;
        loop {
            let child = K::search_inner(&page.separators, key, trail);
            match &page.children {
                Children::Pages(pages) => page = at_or_last(pages, child)?,
                Children::Leaves(leaves) => {
                    let leaf = at_or_last(leaves, child)?;
                    return Some((leaf, K::search_leaf(leaf, key, trail)));
                }
            }
        }
    }

    /// The first leaf.
    #[cold]
    pub(super) fn first_leaf(&self) -> Option<&Leaf<K, T>> {
        let mut page = self;
        loop {
            match &page.children {
                Children::Pages(pages) => page = pages.first()?,
                Children::Leaves(leaves) => return leaves.first(),
            }
        }
    }

    /// The leaf before the one whose range holds `key`, and its last entry.
    #[cold]
    pub(super) fn before_leaf(&self, key: &K) -> Option<(&Leaf<K, T>, usize)> {
        let (mut page, mut before) = (self, None);
        // Down to the leaf's parent, and then along the right edge of the last page passed by.
        while let Children::Pages(pages) = &page.children {
            let child = page.position(key);
            before = child.checked_sub(1).and_then(|child| pages.get(child)).or(before);
            page = pages.get(child)?;
        }
        let Children::Leaves(leaves) = &page.children else { return None };
        let leaf = match page.position(key).checked_sub(1) {
            Some(child) => leaves.get(child)?,
            None => before?.last_leaf()?,
        };
        Some((leaf, leaf.entries.len().checked_sub(1)?))
    }

    fn last_leaf(&self) -> Option<&Leaf<K, T>> {
        let mut page = self;
        loop {
            match &page.children {
                Children::Pages(pages) => page = pages.last()?,
                Children::Leaves(leaves) => return leaves.last(),
            }
        }
    }

    /// The first separator behind the leaf whose range holds `key`. Few searches need it, so that they do better to come
    /// down again for it than to carry it along.
    #[cold]
    pub(super) fn behind_leaf(&self, key: &K) -> Option<K::Owned> {
        let (mut page, mut behind) = (self, None);
        loop {
            let child = page.position(key);
            if child + 1 < page.children.len() {
                behind = Some((page, child + 1));
            }
            match &page.children {
                Children::Pages(pages) => page = pages.get(child)?,
                Children::Leaves(_) => {
                    return behind.map(|(page, child)| K::separator(&page.separators, child));
                }
            }
        }
    }
}

impl<K: DirectoryKey + ?Sized, T: Clone> Page<K, T> {
    /// The page at the top of a tree of `entries`, which ascend.
    pub(super) fn from_entries(entries: Vec<(K::Owned, T)>) -> Arc<Self> {
        let pages = chunks(leaf::cut_new(entries), PAGE);
        Self::above(pages.map(|leaves| Arc::new(Self::of_leaves(leaves))).collect())
    }

    fn of_leaves(leaves: Vec<Leaf<K, T>>) -> Self {
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

    /// [`super::Directory::replace`] on the tree below; returns the number removed.
    pub(super) fn replace(self: &mut Arc<Self>, lo: &K, hi: Option<&K>, with: &[(K::Owned, T)]) -> usize {
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

impl<K: DirectoryKey + ?Sized, T: Clone> Node<K, T> for Arc<Page<K, T>> {
    const MOST: usize = PAGE;

    fn first(&self) -> Option<K::Owned> {
        (self.children.len() > 0).then(|| K::separator(&self.separators, 0))
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

    fn splice(
        &mut self,
        lo: Option<&K>,
        hi: Option<&K>,
        with: &[(K::Owned, T)],
        removed: &mut usize,
    ) -> Vec<Self> {
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

fn separators<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(children: &[N]) -> Separators<K> {
    let firsts: Vec<K::Owned> = children.iter().filter_map(Node::first).collect();
    K::pack(&firsts)
}

/// [`Node::splice`] on the children of a page. Returns the children of pages to stand right of it.
fn splice<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(
    keys: &mut Separators<K>,
    children: &mut Box<[N]>,
    (lo, hi): (Option<&K>, Option<&K>),
    with: &[(K::Owned, T)],
    removed: &mut usize,
) -> impl Iterator<Item = Vec<N>> + use<K, T, N> {
    let end = children.len().saturating_sub(1);
    let first = lo.map_or(0, |lo| keys.position(lo)).min(end);
    let last = hi.map_or(end, |hi| keys.position_below(children.len(), hi)).clamp(first, end);
    let new = if first == last {
        children[first].splice(lo, hi, with, removed)
    } else {
        *removed += children[first + 1..last].iter().map(Node::count_entries).sum::<usize>();
        // Nothing is added at the far end, so no page comes of it.
        children[last].splice(None, hi, &[], removed);
        children[first].splice(lo, None, with, removed)
    };

    if first == last && new.is_empty() && !children[first].is_small() {
        if let Some(separator) = children[first].first()
            && K::separator(keys, first) != separator
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
fn join_lists<K: DirectoryKey + ?Sized, T, N: Node<K, T>>(
    left: Box<[N]>,
    right: Box<[N]>,
) -> impl Iterator<Item = Vec<N>> + use<K, T, N> {
    let mut all = left.into_vec();
    all.extend(right);
    // An only child had no neighbour to be joined with.
    join_small(&mut all);
    chunks(all, PAGE)
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
