//! The words of memory nodes, and where each lies.

use fpcache_fabric::memory::advise_huge_pages;
use fpcache_index::prefetch;

use crate::nic::Target;

/// Words of all memory nodes, and of those compute nodes that are READ by others, given out from
/// the front.
#[derive(Debug)]
pub struct Memory {
    nodes: Vec<Vec<u64>>,
    memory_nodes: usize,
    /// Bytes that the layout takes, of all memory nodes together.
    bytes: u64,
}

/// Where a word lies: the node in the upper 8 of 48 bits, and its number there. 0 is nowhere.
pub type Address = u64;

const NODE_SHIFT: u32 = 40;

/// Of what a request reads, at most this many words are prefetched before it is served.
const PREFETCHED: usize = 128;

/// Nodes from this one on are compute nodes.
const FIRST_COMPUTE: usize = 64;

impl Memory {
    /// Of `nodes` empty nodes.
    pub fn new(nodes: u16) -> Self {
        // The first word belongs to no structure.
        Self { nodes: vec![vec![0]; nodes.max(1).into()], memory_nodes: nodes.max(1).into(), bytes: 0 }
    }

    /// `words` zeroed words of a compute node, which count for no memory node.
    pub fn allocate_on_compute(&mut self, compute: usize, words: usize) -> Address {
        let number = FIRST_COMPUTE + compute;
        if self.nodes.len() <= number {
            self.nodes.resize_with(number + 1, Vec::new);
        }
        let node = &mut self.nodes[number];
        let at = node.len();
        node.resize(at + words, 0);
        (number as u64) << NODE_SHIFT | at as u64
    }

    /// `words` zeroed words of the node that has the fewest, which stand for `bytes` of the layout.
    pub fn allocate(&mut self, words: usize, bytes: u64) -> Address {
        let least = (0..self.memory_nodes).min_by_key(|node| self.nodes[*node].len()).unwrap_or(0);
        self.allocate_on(least, words, bytes)
    }

    /// The same of the memory node that an address is of: requests of a doorbell to both take
    /// effect in one instant.
    pub fn allocate_beside(&mut self, at: Address, words: usize, bytes: u64) -> Address {
        self.allocate_on(Self::place(at).0, words, bytes)
    }

    /// The same of every memory node, in their order: what stands beside all that lies there.
    pub fn allocate_on_each(&mut self, words: usize, bytes: u64) -> Vec<Address> {
        (0..self.memory_nodes).map(|node| self.allocate_on(node, words, bytes)).collect()
    }

    fn allocate_on(&mut self, number: usize, words: usize, bytes: u64) -> Address {
        self.bytes += bytes;
        let node = &mut self.nodes[number];
        let (at, room) = (node.len(), node.capacity());
        node.resize(at + words, 0);
        if node.capacity() != room {
            advise_huge_pages(node);
            advise_huge_pages(node.spare_capacity_mut());
        }
        (number as u64) << NODE_SHIFT | at as u64
    }

    /// What [`allocate_on_each`](Self::allocate_on_each) gave of the memory node that an address is
    /// of.
    pub fn beside(each: &[Address], at: Address) -> Address {
        each[Self::place(at).0]
    }

    /// The node an address is of.
    pub fn node_of(at: Address) -> Target {
        let number = (at >> NODE_SHIFT) as usize;
        match number.checked_sub(FIRST_COMPUTE) {
            Some(compute) => Target::Compute(compute as u16),
            None => Target::Memory(number as u16),
        }
    }

    fn place(at: Address) -> (usize, usize) {
        ((at >> NODE_SHIFT) as usize, (at & ((1 << NODE_SHIFT) - 1)) as usize)
    }

    /// Words as they are now.
    pub fn words(&self, at: Address, count: usize) -> &[u64] {
        let (node, first) = Self::place(at);
        &self.nodes[node][first..first + count]
    }

    /// The same, to be written.
    pub fn words_mut(&mut self, at: Address, count: usize) -> &mut [u64] {
        let (node, first) = Self::place(at);
        &mut self.nodes[node][first..first + count]
    }

    /// Asks for words before they are needed, without waiting for them.
    pub(super) fn prefetch(&self, at: Address, count: usize) {
        let (node, first) = Self::place(at);
        let words = self.nodes.get(node).and_then(|node| node.get(first..first + count.min(PREFETCHED)));
        prefetch(words.unwrap_or_default());
    }

    /// Bytes that the layout takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
