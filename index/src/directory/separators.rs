//! The separators of a group of pages.

use std::fmt;

/// Heads of one step of a search: as many as a cache line holds.
pub const BLOCK: usize = 8;

/// Most items of a page: as many as two steps tell apart.
pub const PAGE: usize = BLOCK * BLOCK;

/// Heads that one step compares. The block before ruled out that the key lies below its first one.
pub const STEP: usize = BLOCK - 1;

/// The first separator of each leaf of a group.
///
/// A search compares with seven pivots, every eighth head, and then with seven heads of one block:
/// two cache lines, and the same instructions whatever the key and the number of children, so that
/// no jump depends on either. This is one page of a static B+-tree with blocks of a cache line (the
/// S+ tree of S. Slotin, "Algorithms for Modern Hardware", 2022, "Static B-Trees").
#[derive(Clone)]
#[repr(C)]
pub struct Separators<Text> {
    /// Heads by child. Room after the last is filled.
    pub(super) heads: [u64; PAGE],
    /// The stand-ins for heads 8, 16, … 56 in the first step, after one that no key lies below.
    pub(super) pivots: [u64; BLOCK],
    /// The rest of the separators beside the heads.
    pub(super) text: Text,
}

impl<Text: fmt::Debug> fmt::Debug for Separators<Text> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Separators").field("heads", &self.heads).field("text", &self.text).finish()
    }
}

/// How many of `items`, which ascend, have their head at or below `head`. Compares with all of
/// them.
#[inline(always)]
pub(super) fn count_not_above<I>(items: &[I; STEP], head_of: impl Fn(&I) -> u64, head: u64) -> usize {
    items.iter().map(|item| usize::from(head_of(item) <= head)).sum()
}

/// One step of a search of `u64`s, as a processor takes it in the fewest instructions.
pub trait Steps: Copy {
    /// How many of the last seven of `items` are at or below `head`. They ascend, and the first is.
    fn count_not_above(self, items: &[u64; 8], head: u64) -> usize;

    /// How many of `items`, which ascend, are at or below `head`.
    #[inline(always)]
    fn count_of_all(self, items: &[u64; 16], head: u64) -> usize {
        const QUARTER: usize = 4;
        let (quarters, _) = items.as_chunks::<QUARTER>();
        let [before @ .., _] = quarters else { return 0 };
        let quarter: usize = before.iter().map(|quarter| usize::from(quarter[QUARTER - 1] <= head)).sum();
        let rest: usize = quarters[quarter].iter().map(|item| usize::from(*item <= head)).sum();
        QUARTER * quarter + rest
    }
}

/// Steps that every processor takes.
#[derive(Clone, Copy, Debug)]
pub struct ScalarSteps;

impl Steps for ScalarSteps {
    #[inline(always)]
    fn count_not_above(self, items: &[u64; BLOCK], head: u64) -> usize {
        step(items, head)
    }
}

/// How many of `items`, which ascend, are at or below `head`, without the first, which is.
#[inline(always)]
pub(super) fn step(items: &[u64; BLOCK], head: u64) -> usize {
    let [_, items @ ..] = items;
    count_not_above(items, |item| *item, head)
}
