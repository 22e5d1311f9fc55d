//! The traits that a directory's separators implement.

use super::leaf::Leaf;
use super::separators::{Separators, Steps};
use std::fmt::Debug;

/// A kind of key that a [`super::Directory`] can have: `u64`, or `[u8]` in lexicographic order.
///
/// Sealed: pages are laid out for these two. Keys are looked up as `&K`; separators go in and come
/// out as `K::Owned`, which is `u64` or `Vec<u8>`.
pub trait DirectoryKey:
    SeparatorKind
    + Ord
    + Debug
    + Send
    + Sync
    + 'static
    + ToOwned<Owned: Ord + Clone + Debug + Default + Send + Sync + 'static>
{
}

/// How the pages of a directory hold separators of one kind, and how they are searched.
///
/// Both kinds have a number beside every item, its *head*, and every eighth head apart from the
/// others, so that pages of both are of one shape. What the heads do not say is in the page's text.
pub trait SeparatorKind: ToOwned {
    /// A page's separators, but for their heads.
    type Text: Clone + Debug + Send + Sync + 'static;

    /// Separators of up to [`SeparatorKind::WIDTH`] children in the tree above the groups.
    type Block: Clone + Debug + Send + Sync + 'static;

    /// A search's knowledge of a key on its way down: how it compares with the separator found
    /// last.
    type Trail: Copy;

    /// Reads the separators of a leaf one after the other.
    type Cursor: Clone + Debug + Default + Send + Sync + 'static;

    /// Most children of a block.
    const WIDTH: usize;

    /// Heap bytes of a separator.
    fn owned_bytes(separator: &Self::Owned) -> usize;

    /// Bytes of a text outside the page.
    fn text_bytes(text: &Self::Text) -> usize;

    /// Bytes of a block outside itself.
    fn block_bytes(block: &Self::Block) -> usize;

    /// Packs the separators of at most [`SeparatorKind::WIDTH`] children.
    fn block(all: &[Self::Owned]) -> Self::Block;

    /// Packs the separators of at most [`super::separators::PAGE`] leaves.
    fn pack(all: &[Self::Owned]) -> Separators<Self::Text>;

    /// The separator of the first leaf, if there is one.
    fn first(separators: &Separators<Self::Text>) -> &Self;

    /// The separator of leaf `index`, of which there must be one.
    fn separator(separators: &Separators<Self::Text>, index: usize) -> Self::Owned;

    /// Begins a search where `first` is the first separator. `Err` if the key lies below it: with
    /// how many bytes the two share.
    fn enter(first: &Self, key: &Self) -> Result<Self::Trail, usize>;

    /// Index of the greatest separator at or below `key`, which is not below the first. May lie
    /// after the last child and then means that one. `trail` knows how the key compares with the
    /// first separator, and then with the one found.
    fn search_block(block: &Self::Block, key: &Self, trail: &mut Self::Trail, steps: impl Steps) -> usize;

    /// As [`SeparatorKind::search_block`], in a group.
    fn search_group(
        separators: &Separators<Self::Text>,
        key: &Self,
        trail: &mut Self::Trail,
        steps: impl Steps,
    ) -> usize;

    /// As [`SeparatorKind::search_block`], in a leaf.
    fn search_leaf<T>(
        leaf: &Leaf<Self::Text, T>,
        key: &Self,
        trail: &mut Self::Trail,
        steps: impl Steps,
    ) -> usize;

    /// Where the block of entries of a leaf begins among which [`SeparatorKind::search_leaf`] is
    /// going to look, or a neighbour of it.
    fn block_of_leaf<T>(
        leaf: &Leaf<Self::Text, T>,
        key: &Self,
        trail: Self::Trail,
        steps: impl Steps,
    ) -> usize;

    /// How many bytes the key shares with the separator found last.
    fn shared(trail: Self::Trail) -> usize;

    /// The fewest leaves, of nearly equal size, that hold `entries` with at most `most` each.
    fn leaves<T: Clone>(entries: Vec<(Self::Owned, T)>, most: usize) -> Vec<Leaf<Self::Text, T>>;

    /// Replaces the entries in `[start, end)` by `with` and returns their number. The leaf may be
    /// left empty or small; leaves for what no longer fits are returned, to stand right of it.
    fn splice<T: Clone>(
        leaf: &mut Leaf<Self::Text, T>,
        start: Option<&Self>,
        end: Option<&Self>,
        with: &[(Self::Owned, T)],
    ) -> (usize, Vec<Leaf<Self::Text, T>>);

    /// The leaves that hold what two neighbours do.
    fn join<T: Clone>(left: &Leaf<Self::Text, T>, right: &Leaf<Self::Text, T>) -> Vec<Leaf<Self::Text, T>>;

    /// Sets the cursor to the separator of entry `at`, wherever it was.
    fn seek<T>(leaf: &Leaf<Self::Text, T>, at: usize, cursor: &mut Self::Cursor);

    /// Moves the cursor on to entry `at`, from the entry before it, or from anywhere if `at` is 0.
    fn step<T>(leaf: &Leaf<Self::Text, T>, at: usize, cursor: &mut Self::Cursor);

    /// The separator at the cursor.
    fn current(cursor: &Self::Cursor) -> &Self;
}

/// A leaf of separators of this kind.
pub type LeafOf<K, T> = Leaf<<K as SeparatorKind>::Text, T>;
