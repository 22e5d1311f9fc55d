//! Pages of `u64` separators: the heads are the separators, and there is no text.

use super::key::Kind;
use super::leaf::{LEAF, Leaf};
use super::page::chunks;
use super::separators::{BLOCK, Separators, count_not_above};
use std::array;
use std::sync::Arc;

impl Kind for u64 {
    type Text = ();
    type Trail = ();
    type Cursor = u64;

    fn text_bytes((): &()) -> usize {
        0
    }

    /// Room behind the last separator repeats it.
    fn pack(all: &[u64]) -> Separators<u64> {
        let at = |index: usize| all.get(index).or(all.last()).copied().unwrap_or(0);
        Separators { heads: array::from_fn(at), pivots: array::from_fn(|i| at(BLOCK * (i + 1))), text: () }
    }

    fn separator(separators: &Separators<u64>, index: usize) -> u64 {
        separators.heads[index]
    }

    #[inline(always)]
    fn enter(_: &Separators<u64>, _: &u64) -> Result<(), usize> {
        Ok(())
    }

    #[inline(always)]
    fn search_inner(separators: &Separators<u64>, key: &u64, (): &mut ()) -> usize {
        let block = BLOCK * count_not_above(&separators.pivots, |head| *head, *key);
        let heads = separators.heads[block + 1..].first_chunk();
        block + heads.map_or(0, |heads| count_not_above(heads, |head| *head, *key))
    }

    #[inline(always)]
    fn search_leaf<T>(leaf: &Leaf<u64, T>, key: &u64, (): &mut ()) -> usize {
        let entries = &*leaf.entries;
        let block = BLOCK * count_not_above(&leaf.pivots, |head| *head, *key);
        // The last block begins earlier, so as to be whole. Pivots that repeat the last separator lead there too.
        let block = block.min(entries.len().saturating_sub(BLOCK));
        if let Some(rest) = entries.get(block + 1..).and_then(|rest| rest.first_chunk()) {
            return block + count_not_above(rest, |(head, _)| *head, *key);
        }
        // Shorter than a block.
        entries.partition_point(|(head, _)| head <= key).saturating_sub(1)
    }

    #[inline(always)]
    fn shared((): ()) -> usize {
        0
    }

    fn leaves<T: Clone>(entries: Vec<(u64, T)>, most: usize) -> Vec<Leaf<u64, T>> {
        chunks(entries, most).map(|entries| leaf(entries.into())).collect()
    }

    fn splice<T: Clone>(
        this: &mut Leaf<u64, T>,
        lo: Option<&u64>,
        hi: Option<&u64>,
        with: &[(u64, T)],
    ) -> (usize, Vec<Leaf<u64, T>>) {
        let old = &this.entries;
        let start = lo.map_or(0, |lo| old.partition_point(|(head, _)| head < lo));
        let end = hi.map_or(old.len(), |hi| old.partition_point(|(head, _)| head < hi)).max(start);
        let removed = end - start;
        let new = old[..start].iter().chain(with).chain(&old[end..]).cloned();
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

    fn join<T: Clone>(left: &Leaf<u64, T>, right: &Leaf<u64, T>) -> Vec<Leaf<u64, T>> {
        Self::leaves(left.entries.iter().chain(&*right.entries).cloned().collect(), LEAF)
    }

    #[inline(always)]
    fn seek<T>(leaf: &Leaf<u64, T>, at: usize, cursor: &mut u64) {
        *cursor = leaf.entries[at].0;
    }

    #[inline(always)]
    fn step<T>(leaf: &Leaf<u64, T>, at: usize, cursor: &mut u64) {
        *cursor = leaf.entries[at].0;
    }

    #[inline(always)]
    fn current(cursor: &u64) -> &u64 {
        cursor
    }
}

fn leaf<T>(entries: Arc<[(u64, T)]>) -> Leaf<u64, T> {
    let at = |index: usize| entries.get(index).or(entries.last()).map_or(0, |(head, _)| *head);
    Leaf { pivots: array::from_fn(|i| at(BLOCK * (i + 1))), entries, text: () }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_in_leaves_of_every_size() {
        for len in 1..=LEAF as u64 {
            let leaf = leaf((1..=len).map(|i| (10 * i, i)).collect());
            for key in 0..10 * len + 20 {
                let position = u64::search_leaf(&leaf, &key, &mut ()) as u64;
                assert_eq!(position, (key / 10).clamp(1, len) - 1, "{len} {key}");
            }
        }
    }
}
