//! A compute node's copies of inner nodes, by the bytes that lead to them; the oldest goes first.

use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashMap;

use super::layout::{HEAD, Node, cached_bytes, prefix};
use crate::words::Address;

/// A node's copy.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Where the node lies.
    pub at: Address,
    /// What the node was.
    pub words: Rc<[u64]>,
}

impl Cached {
    /// The node.
    pub fn node(&self) -> Node<'_> {
        Node(&self.words)
    }

    fn bytes(&self) -> u64 {
        cached_bytes(self.words.len() - HEAD)
    }
}

/// Copies within a budget.
#[derive(Debug, Default)]
pub struct Cache {
    budget: u64,
    used: u64,
    most: u64,
    nodes: HashMap<u64, Cached>,
    order: VecDeque<u64>,
    /// Nodes of each depth.
    depths: [u32; 8],
    /// Memory of copies that are gone, for the next ones.
    spare: Vec<Rc<[u64]>>,
}

/// Copies whose memory is kept when they are gone: as many as there are sizes of nodes, and some.
const SPARE: usize = 12;

/// A node's place among the copies: fewer than 8 bytes lead to it, so that the last one is free.
fn place(prefix: u64, depth: u32) -> u64 {
    prefix | u64::from(depth)
}

impl Cache {
    /// Of `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// The copy that the most bytes of a key lead to.
    pub fn deepest(&self, key: u64) -> Option<&Cached> {
        let depths = (0..8u32).rev().filter(|depth| self.depths[*depth as usize] > 0);
        depths.map(|depth| place(prefix(key, depth), depth)).find_map(|place| self.nodes.get(&place))
    }

    /// The copy of a node, by the bytes that lead to it.
    pub fn of(&self, node: Node<'_>) -> Option<&Cached> {
        self.nodes.get(&place(node.prefix(), node.depth()))
    }

    /// Keeps a copy, and returns it.
    pub fn keep(&mut self, at: Address, words: &[u64]) -> Rc<[u64]> {
        let node = Node(words);
        let place = place(node.prefix(), node.depth());
        let copy = self.copy(words);
        let cached = Cached { at, words: Rc::clone(&copy) };
        self.used += cached.bytes();
        self.depths[node.depth() as usize] += 1;
        match self.nodes.insert(place, cached) {
            Some(old) => self.forget(place, &old),
            None => self.order.push_back(place),
        }
        while self.used > self.budget
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(old) = self.nodes.remove(&oldest) {
                self.forget(oldest, &old);
                if self.spare.len() == SPARE {
                    self.spare.remove(0);
                }
                self.spare.push(old.words);
            }
        }
        self.most = self.most.max(self.used);
        copy
    }

    /// A copy of words, in spare memory if some has their length and is not in use.
    fn copy(&mut self, words: &[u64]) -> Rc<[u64]> {
        if let Some(at) = self.spare.iter().position(|spare| spare.len() == words.len()) {
            let mut spare = self.spare.swap_remove(at);
            if let Some(room) = Rc::get_mut(&mut spare) {
                room.copy_from_slice(words);
                return spare;
            }
        }
        words.into()
    }

    /// Forgets the copy of a node.
    pub fn drop(&mut self, node: Node<'_>) {
        let place = place(node.prefix(), node.depth());
        if let Some(old) = self.nodes.remove(&place) {
            self.forget(place, &old);
            // Its turn in the order comes all the same, and finds nothing, or a newer copy a little
            // early.
        }
    }

    fn forget(&mut self, place: u64, old: &Cached) {
        self.used -= old.bytes();
        self.depths[(place & 7) as usize] -= 1;
    }

    /// The most bytes there were at the end of a change.
    pub fn most_bytes(&self) -> u64 {
        self.most
    }
}
