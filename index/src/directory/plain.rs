//! Pages of `u64` separators: the heads are the separators, and there is no text.

use super::key::{DirectoryKey, SeparatorKind};
use super::leaf::{LEAF, Leaf};
use super::node::chunks;
use super::separators::{BLOCK, Separators, Steps, count_not_above};
use std::array;
use std::sync::Arc;

/// Separators of all children but the first: two cache lines, of which a search reads both at once.
/// Room after the last is filled with what no key but one is at or above.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Block([u64; 16]);

impl DirectoryKey for u64 {}

impl SeparatorKind for u64 {
    type Text = ();
    type Block = Block;
    /// The key, or the first separator if that is higher.
    type Trail = u64;
    type Cursor = u64;

    const WIDTH: usize = 17;

    fn owned_bytes(_: &u64) -> usize {
        0
    }

    fn text_bytes((): &()) -> usize {
        0
    }

    fn block_bytes(_: &Block) -> usize {
        0
    }

    fn block(all: &[u64]) -> Block {
        Block(array::from_fn(|index| all.get(index + 1).copied().unwrap_or(u64::MAX)))
    }

    /// Room after the last separator is filled with what no key but one is at or above.
    fn pack(all: &[u64]) -> Separators<()> {
        let at = |index: usize| all.get(index).copied().unwrap_or(u64::MAX);
        Separators { heads: array::from_fn(at), pivots: array::from_fn(|i| at(BLOCK * i)), text: () }
    }

    fn first(separators: &Separators<()>) -> &u64 {
        &separators.heads[0]
    }

    fn separator(separators: &Separators<()>, index: usize) -> u64 {
        separators.heads[index]
    }

    #[inline(always)]
    fn enter(first: &u64, key: &u64) -> Result<u64, usize> {
        Ok(*first.max(key))
    }

    #[inline(always)]
    fn search_block(Block(items): &Block, _: &u64, key: &mut u64, steps: impl Steps) -> usize {
        steps.count_of_all(items, *key)
    }

    #[inline(always)]
    fn search_group(separators: &Separators<()>, _: &u64, key: &mut u64, steps: impl Steps) -> usize {
        let (blocks, _) = separators.heads.as_chunks();
        let block = steps.count_not_above(&separators.pivots, *key);
        BLOCK * block + steps.count_not_above(&blocks[block % BLOCK], *key)
    }

    #[inline(always)]
    fn search_leaf<T>(leaf: &Leaf<(), T>, wanted: &u64, key: &mut u64, steps: impl Steps) -> usize {
        if leaf.entries.len() < BLOCK {
            return search_short(&leaf.entries, *key);
        }
        let block = Self::block_of_leaf(leaf, wanted, *key, steps);
        let rest = leaf.entries[block..].first_chunk::<BLOCK>();
        block + rest.map_or(0, |[_, rest @ ..]| count_not_above(rest, |(head, _)| *head, *key))
    }

    #[inline(always)]
    fn block_of_leaf<T>(leaf: &Leaf<(), T>, _: &u64, key: u64, steps: impl Steps) -> usize {
        // The last block begins earlier, so as to be whole. Pivots that repeat the last separator
        // lead there too.
        (BLOCK * steps.count_not_above(&leaf.pivots, key)).min(leaf.entries.len().saturating_sub(BLOCK))
    }

    #[inline(always)]
    fn shared(_: u64) -> usize {
        0
    }

    fn leaves<T: Clone>(entries: Vec<(u64, T)>, most: usize) -> Vec<Leaf<(), T>> {
        chunks(entries, most).map(|entries| leaf(entries.into())).collect()
    }

    fn splice<T: Clone>(
        this: &mut Leaf<(), T>,
        start: Option<&u64>,
        end: Option<&u64>,
        with: &[(u64, T)],
    ) -> (usize, Vec<Leaf<(), T>>) {
        let old = &this.entries;
        let first = start.map_or(0, |start| old.partition_point(|(head, _)| head < start));
        let after = end.map_or(old.len(), |end| old.partition_point(|(head, _)| head < end)).max(first);
        let removed = after - first;
        let new = old[..first].iter().chain(with).chain(&old[after..]).cloned();
        if old.len() - removed + with.len() <= LEAF {
            *this = leaf(new.collect());
            return (removed, Vec::new());
        }
        let mut leaves = chunks(new.collect(), LEAF).map(|entries| leaf(entries.into()));
        if let Some(first) = leaves.next() {
            *this = first;
        }
        (removed, leaves.collect())
    }

    fn join<T: Clone>(left: &Leaf<(), T>, right: &Leaf<(), T>) -> Vec<Leaf<(), T>> {
        Self::leaves(left.entries.iter().chain(&*right.entries).cloned().collect(), LEAF)
    }

    #[inline(always)]
    fn seek<T>(leaf: &Leaf<(), T>, at: usize, cursor: &mut u64) {
        *cursor = leaf.entries[at].0;
    }

    #[inline(always)]
    fn step<T>(leaf: &Leaf<(), T>, at: usize, cursor: &mut u64) {
        *cursor = leaf.entries[at].0;
    }

    #[inline(always)]
    fn current(cursor: &u64) -> &u64 {
        cursor
    }
}

/// In a leaf of less than a block.
#[cold]
fn search_short<T>(entries: &[(u64, T)], key: u64) -> usize {
    entries.partition_point(|(head, _)| *head <= key).saturating_sub(1)
}

fn leaf<T>(entries: Arc<[(u64, T)]>) -> Leaf<(), T> {
    let at = |index: usize| entries.get(index).or(entries.last()).map_or(0, |(head, _)| *head);
    Leaf { pivots: array::from_fn(|i| at(BLOCK * i)), entries, text: () }
}

#[cfg(test)]
mod tests {
    use super::super::separators::ScalarSteps;
    use super::*;

    #[test]
    fn every_key_is_found_in_leaves_of_every_size() {
        for len in 1..=LEAF as u64 {
            let leaf = leaf((1..=len).map(|i| (10 * i, i)).collect());
            for key in 0..10 * len + 20 {
                let position = u64::search_leaf(&leaf, &key, &mut key.max(10), ScalarSteps) as u64;
                assert_eq!(position, (key / 10).clamp(1, len) - 1, "{len} {key}");
            }
        }
    }
}
