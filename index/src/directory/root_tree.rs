//! The tree above the groups of a directory.

use super::group::LeafGroup;
use super::key::{DirectoryKey, LeafOf};
use super::leaf_nodes;
use super::node::{TreeNode, change, chunks, counted_bytes, settle};
use super::separators::{PAGE, ScalarSteps, Steps};
use std::alloc::Layout;
use std::array;
use std::borrow::Borrow;
use std::slice;
use std::sync::Arc;

/// Groups of one chunk. A change of a clone counts a reference to every group of a chunk, and to
/// every chunk.
const CHUNK: usize = 32;

/// All groups, and a static tree by which they are found.
///
/// Clones share the tree as long as no group comes or goes, which happens once in many hundred
/// replacements; then it is written anew, and the groups are cut into chunks anew.
pub(super) struct Top<K: DirectoryKey + ?Sized, T> {
    index: Arc<Index<K>>,
    /// By [`CHUNK`] groups, none of which is empty.
    chunks: Arc<[GroupChunk<K, T>]>,
}

/// Full, unless it is the last.
type GroupChunk<K, T> = Arc<[Option<Arc<LeafGroup<K, T>>>; CHUNK]>;

impl<K: DirectoryKey + ?Sized, T> Clone for Top<K, T> {
    fn clone(&self) -> Self {
        Self { index: Arc::clone(&self.index), chunks: Arc::clone(&self.chunks) }
    }
}

/// The first separators of all groups, as a static tree without pointers, complete but for its last
/// level: child `i` of block `b` is block `WIDTH · b + i + 1` (an S+ tree, as in S. Slotin,
/// "Algorithms for Modern Hardware", 2022, "Static B-Trees", with its blocks in the order of a
/// heap). Nothing in its search depends on the key but addresses.
struct Index<K: DirectoryKey + ?Sized> {
    /// The first separator of all, if there is any.
    first: K::Owned,
    /// Levels of blocks: none for a single group.
    levels: usize,
    /// How many blocks there would be if all levels were complete: where groups begin as children.
    complete: usize,
    groups: usize,
    blocks: Box<[K::Block]>,
}

impl<K: DirectoryKey + ?Sized> Index<K> {
    fn new(firsts: &[K::Owned]) -> Self {
        let (mut levels, mut complete, mut leaves) = (0, 0, 1);
        while leaves < firsts.len() {
            (levels, complete, leaves) = (levels + 1, complete + leaves, leaves * K::WIDTH);
        }
        let mut blocks = Vec::new();
        let mut below = leaves;
        for _ in 0..levels {
            // Each block tells apart runs of equally many groups. Above the last level none is left
            // out.
            let (all, each) = (leaves / below, below / K::WIDTH);
            let ends: Vec<K::Owned> = firsts.iter().step_by(each).cloned().collect();
            let used = ends.chunks(K::WIDTH).map(K::block);
            let unused = if each == 1 { 0 } else { all - used.len() };
            blocks.extend(used.chain((0..unused).map(|_| K::block(&[]))));
            below = each;
        }
        let first = firsts.first().cloned().unwrap_or_default();
        Self { first, levels, complete, groups: firsts.len(), blocks: blocks.into() }
    }

    fn heap_bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| size_of_val(block) + K::block_bytes(block)).sum();
        K::owned_bytes(&self.first) + blocks
    }

    /// The group whose range holds `key`, which is not below the first separator; one that does not
    /// exist means the last.
    #[inline(always)]
    fn search(&self, key: &K, trail: &mut K::Trail, steps: impl Steps) -> usize {
        let mut at = 0;
        for _ in 0..self.levels {
            // The highest of keys is at or above what fills the last block, and finds a group after
            // the last.
            let Some(block) = self.blocks.get(at) else { return self.groups };
            at = K::WIDTH * at + K::search_block(block, key, trail, steps) + 1;
        }
        at - self.complete
    }
}

impl<K: DirectoryKey + ?Sized, T> Top<K, T> {
    fn new(groups: Vec<Arc<LeafGroup<K, T>>>) -> Self {
        let firsts: Vec<K::Owned> =
            groups.iter().map(|group| K::first(&group.separators).to_owned()).collect();
        let index = Index::new(&firsts);
        let mut groups = groups.into_iter();
        let chunks = (0..index.groups.div_ceil(CHUNK)).map(|_| Arc::new(array::from_fn(|_| groups.next())));
        Self { index: Arc::new(index), chunks: chunks.collect() }
    }

    pub(super) fn from_entries(entries: Vec<(K::Owned, T)>) -> Self
    where
        T: Clone,
    {
        Self::from_leaves(leaf_nodes::cut_new::<K, T>(entries))
    }

    pub(super) fn from_leaves(leaves: Vec<LeafOf<K, T>>) -> Self
    where
        T: Clone,
    {
        Self::new(chunks(leaves, PAGE).map(|leaves| Arc::new(LeafGroup::new(leaves))).collect())
    }

    /// Heap bytes of all.
    pub(super) fn heap_bytes(&self) -> usize {
        let index = counted_bytes(Layout::new::<Index<K>>()) + self.index.heap_bytes();
        let chunk = |chunk: &GroupChunk<K, T>| {
            let groups: usize = chunk.iter().flatten().map(|group| group.heap_bytes()).sum();
            counted_bytes(Layout::for_value(&**chunk)) + groups
        };
        let chunks: usize = self.chunks.iter().map(chunk).sum();
        index + counted_bytes(Layout::for_value(&*self.chunks)) + chunks
    }

    /// The group at `index`.
    #[inline(always)]
    pub(super) fn group(&self, index: usize) -> Option<&LeafGroup<K, T>> {
        self.chunks.get(index / CHUNK)?[index % CHUNK].as_deref()
    }

    /// The group at `index`, or the last group if `index` is beyond it.
    #[inline(always)]
    fn group_or_last(&self, index: usize) -> Option<&LeafGroup<K, T>> {
        match self.group(index) {
            None => self.last_group(),
            group => group,
        }
    }

    #[cold]
    fn last_group(&self) -> Option<&LeafGroup<K, T>> {
        self.group(self.groups().checked_sub(1)?)
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.index.groups
    }

    /// The trail of a key that is not below all separators. `Err` if it is: with how many bytes it
    /// shares with the first.
    #[inline(always)]
    pub(super) fn enter(&self, key: &K) -> Result<K::Trail, usize> {
        K::enter(self.index.first.borrow(), key)
    }

    /// The leaf whose range holds `key`; `None` if no range does. `trail` knows how the key
    /// compares with the first separator, and then with the leaf's first.
    #[inline(always)]
    pub(super) fn leaf(&self, key: &K, trail: &mut K::Trail, steps: impl Steps) -> Option<&LeafOf<K, T>> {
        let group = self.group_or_last(self.index.search(key, trail, steps))?;
        match group.leaves.get(K::search_group(&group.separators, key, trail, steps)) {
            None => group.last_leaf(),
            leaf => leaf,
        }
    }

    /// Leaf, and entry there, whose range holds `key`, and how many bytes that shares with the
    /// entry's separator; `None` if no range does.
    #[inline(always)]
    pub(super) fn find(&self, key: &K, steps: impl Steps) -> Option<(&LeafOf<K, T>, usize, usize)> {
        match self.enter(key) {
            Ok(mut trail) => {
                let leaf = self.leaf(key, &mut trail, steps)?;
                let at = K::search_leaf(leaf, key, &mut trail, steps);
                Some((leaf, at, K::shared(trail)))
            }
            Err(shared) => Some((self.first_leaf()?, 0, shared)),
        }
    }

    /// The first leaf.
    #[cold]
    pub(super) fn first_leaf(&self) -> Option<&LeafOf<K, T>> {
        self.group(0)?.leaves.first()
    }

    /// Group, leaf in it and entry in that whose range holds `key`; the first for a key below all
    /// separators.
    pub(super) fn position(&self, key: &K) -> [usize; 3] {
        let Ok(mut trail) = self.enter(key) else { return [0; 3] };
        let at = self.index.search(key, &mut trail, ScalarSteps).min(self.groups().saturating_sub(1));
        let Some(group) = self.group(at) else { return [0; 3] };
        let leaf = K::search_group(&group.separators, key, &mut trail, ScalarSteps);
        let leaf = leaf.min(group.leaves.len().saturating_sub(1));
        [at, leaf, K::search_leaf(&group.leaves[leaf], key, &mut trail, ScalarSteps)]
    }

    /// The last group with a separator below `key`, or the first.
    fn position_below(&self, key: &K) -> usize {
        let [at, ..] = self.position(key);
        let begins = self.group(at).is_some_and(|group| K::first(&group.separators) == key);
        if begins { at.saturating_sub(1) } else { at }
    }
}

impl<K: DirectoryKey + ?Sized, T: Clone> Top<K, T> {
    /// [`super::Directory::replace`]; returns the number removed.
    pub(super) fn replace(&mut self, start: &K, end: Option<&K>, with: &[(K::Owned, T)]) -> usize {
        let Some(last_group) = self.groups().checked_sub(1) else {
            *self = Self::from_entries(with.to_vec());
            return 0;
        };
        let mut removed = 0;
        let [first, ..] = self.position(start);
        let last = end.map_or(last_group, |end| self.position_below(end)).max(first);
        if first == last {
            let Some(group) = self.group_mut(first) else { return 0 };
            let began = K::first(&group.separators).to_owned();
            let new = change(slice::from_mut(group), [0, 0], (Some(start), end), with, &mut removed);
            let stays =
                new.is_empty() && !group.leaves.is_empty() && K::first(&group.separators) == began.borrow();
            if !stays || last_group > 0 && group.is_small() {
                let groups = settle(self.take_groups(), [first, first], new);
                *self = Self::new(groups);
            }
        } else {
            let mut groups = self.take_groups();
            let new = change(&mut groups, [first, last], (Some(start), end), with, &mut removed);
            *self = Self::new(settle(groups, [first, last], new));
        }
        removed
    }

    fn group_mut(&mut self, index: usize) -> Option<&mut Arc<LeafGroup<K, T>>> {
        let chunk = Arc::make_mut(&mut self.chunks).get_mut(index / CHUNK)?;
        Arc::make_mut(chunk)[index % CHUNK].as_mut()
    }

    /// Takes all groups out.
    fn take_groups(&mut self) -> Vec<Arc<LeafGroup<K, T>>> {
        let chunks = std::mem::replace(&mut self.chunks, Arc::new([]));
        chunks.iter().flat_map(|chunk| chunk.iter().flatten().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys at and above every separator, in trees of the given numbers of groups.
    fn assert_found<K: DirectoryKey + ?Sized>(wrap: impl Fn(u64) -> K::Owned, counts: &[u64]) {
        for &groups in counts {
            let firsts: Vec<K::Owned> = (1..=groups).map(|i| wrap(10 * i)).collect();
            let index = Index::<K>::new(&firsts);
            for group in 0..groups {
                for key in [10, 15, 19].map(|more| wrap(10 * group + more)) {
                    let key = key.borrow();
                    let mut trail = K::enter(index.first.borrow(), key).expect("not below the first");
                    assert_eq!(
                        index.search(key, &mut trail, ScalarSteps) as u64,
                        group,
                        "of {groups}, {key:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn groups_are_found_by_numbers_in_trees_of_every_height() {
        let counts: Vec<u64> =
            (1..=40).chain([288, 289, 290, 306, 307, 4_912, 4_913, 4_914, 6_000]).collect();
        assert_found::<u64>(|key| key, &counts);
        for groups in counts {
            let firsts: Vec<u64> = (0..groups).map(|group| group << 40).collect();
            let index = Index::<u64>::new(&firsts);
            let found = index.search(&u64::MAX, &mut { u64::MAX }, ScalarSteps);
            assert!(found as u64 >= groups - 1, "the highest key, of {groups}: {found}");
        }
    }

    #[test]
    fn groups_are_found_by_byte_strings_in_trees_of_every_height() {
        let counts = [1, 2, 63, 64, 65, 128, 129, 4_095, 4_096, 4_097, 4_161];
        assert_found::<[u8]>(|key| format!("{key:06}").into_bytes(), &counts);
    }
}
