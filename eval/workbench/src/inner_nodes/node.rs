//! Nodes, as their words are.

use crate::words::Address;

/// What is to be chosen of the levels above the leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// Children of a node.
    pub span: usize,
    /// Whether compute nodes keep all levels, or the lowest alone.
    pub all_levels: bool,
}

/// What a level above the leaves is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Children of a node.
    pub span: usize,
    /// Bytes that a READ of a node moves.
    pub bytes: usize,
    /// Bytes that a node's copy takes on a compute node.
    pub cached_bytes: u64,
    /// Whether compute nodes keep all levels, or the lowest alone.
    pub all_levels: bool,
    /// Whether a traversal from the root READs the pointer to it first.
    pub reads_root: bool,
}

/// Words before a node's children: how many there are and its level, the keys it is for, its right
/// neighbour, and its lock.
pub(super) const HEAD: usize = 5;

/// A node's words.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a>(pub &'a [u64]);

impl<'a> Node<'a> {
    pub(super) fn count(self) -> usize {
        (self.0[0] & 0xffff_ffff) as usize
    }

    /// 1 above leaves.
    pub fn level(self) -> u32 {
        (self.0[0] >> 32) as u32
    }

    pub(super) fn low(self) -> u64 {
        self.0[1]
    }

    pub(super) fn high(self) -> u64 {
        self.0[2]
    }

    /// Whether the key is one of those that the node is for.
    pub fn covers(self, key: u64) -> bool {
        key >= self.low() && (key < self.high() || self.high() == u64::MAX)
    }

    /// The children from a key's on.
    pub(super) fn children_from(self, key: u64) -> impl Iterator<Item = Address> + 'a {
        let children = &self.0[HEAD..].as_chunks::<2>().0[..self.count()];
        let first = children.partition_point(|[low, _]| *low <= key).saturating_sub(1);
        children[first..].iter().map(|[_, child]| *child)
    }

    /// The child for a key, and the one after it.
    pub(super) fn find(self, key: u64) -> (Address, Option<Address>) {
        let children = self.0[HEAD..].as_chunks::<2>().0;
        let children = &children[..self.count()];
        let after = children.partition_point(|[low, _]| *low <= key).max(1);
        (children[after - 1][1], children.get(after).map(|[_, child]| *child))
    }
}
