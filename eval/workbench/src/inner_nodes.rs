//! Inner levels of B+ trees over words, and compute nodes' copies of them: what trees that differ
//! in their leaves share.

mod copies;
mod growth;
mod node;
mod scan;

use crate::words::{Address, Landed, Memory, Trip, Turn};
pub use copies::Copies;
pub use growth::Growth;
use node::HEAD;
pub use node::{Inner, Node, Shape};
pub use scan::{Leaf, Scanned, Scanning};

/// Where a key's leaf is said to lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafAt {
    /// The leaf.
    pub leaf: Address,
    /// The leaf after it, where the same node has it.
    pub next: Option<Address>,
    /// Whether a copy said so, which may be old.
    pub is_copied: bool,
}

/// What a traversal has asked for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// The pointer to the root.
    Root(Landed),
    /// A node.
    Node {
        /// Where it lies.
        at: Address,
        /// Where it has landed.
        landed: Landed,
    },
}

/// How far a traversal is.
#[derive(Clone, Copy, Debug)]
pub enum Seek {
    /// It waits for this.
    Asked(Asked),
    /// There.
    Leaf(LeafAt),
}

/// The levels above the leaves, and each compute node's copies.
#[derive(Debug)]
pub struct InnerNodes {
    shape: Shape,
    root_at: Address,
    copies: Vec<Copies>,
}

impl InnerNodes {
    /// Levels over leaves that begin with these keys, with nodes of which `fill` is used, and
    /// compute nodes that keep `budget` bytes of them.
    pub fn build(
        memory: &mut Memory,
        shape: Shape,
        leaves: Vec<(u64, Address)>,
        fill: f64,
        compute_nodes: u16,
        budget: u64,
    ) -> Self {
        let per_node = ((shape.span as f64 * fill) as usize).clamp(2, shape.span);
        let (mut below, mut level) = (leaves, 0u64);
        // One level there is in any case, so that leaves need not be roots.
        while below.len() > 1 || level == 0 {
            level += 1;
            let mut nodes: Vec<(u64, Address)> = Vec::with_capacity(below.len().div_ceil(per_node));
            let words = HEAD + 2 * shape.span;
            for (i, children) in below.chunks(per_node).enumerate() {
                let at = memory.allocate(words, shape.bytes as u64);
                let high = below.get((i + 1) * per_node).map_or(u64::MAX, |(low, _)| *low);
                let low = if i == 0 { 0 } else { children[0].0 };
                let node = memory.words_mut(at, words);
                node[..HEAD].copy_from_slice(&[children.len() as u64 | level << 32, low, high, 0, 0]);
                for (pair, (low, child)) in node[HEAD..].as_chunks_mut::<2>().0.iter_mut().zip(children) {
                    *pair = [*low, *child];
                }
                if let Some((_, before)) = nodes.last() {
                    memory.words_mut(*before, HEAD)[3] = at;
                }
                nodes.push((low, at));
            }
            below = nodes;
        }
        let root_at = memory.allocate(1, 8);
        memory.words_mut(root_at, 1)[0] = below.first().map_or(0, |(_, at)| *at);
        let copies = (0..compute_nodes).map(|i| Copies::new(budget, shape, u64::from(i))).collect();
        Self { shape, root_at, copies }
    }

    /// Begins a traversal at the lowest copy there is for the key, or at the root.
    pub fn seek(&mut self, key: u64, turn: &mut Turn<'_>) -> Seek {
        match self.copies[turn.compute].lowest(key).map(|node| (node.level(), node.find(key))) {
            Some((level, found)) => self.go_on(level, found, true, turn.trip),
            None if self.shape.reads_root => Seek::Asked(Asked::Root(turn.trip.read(self.root_at, 1, 8))),
            None => self.ask(turn.memory.words(self.root_at, 1)[0], turn.trip),
        }
    }

    /// Begins one from a copy, or a leaf, where the key is not any more: a copy that led there is
    /// old, and forgotten; else the leaf to the right has it.
    pub fn seek_again(&mut self, key: u64, (at, right): (LeafAt, Address), turn: &mut Turn<'_>) -> Seek {
        match at.is_copied {
            true => {
                self.copies[turn.compute].drop(key);
                self.seek(key, turn)
            }
            false => Seek::Leaf(LeafAt { leaf: right, next: None, is_copied: false }),
        }
    }

    /// Goes on with what has landed.
    pub fn take(&mut self, key: u64, asked: Asked, turn: &mut Turn<'_>) -> Seek {
        match asked {
            Asked::Root(root) => self.ask(turn.landed.word(root), turn.trip),
            Asked::Node { at, landed } => {
                let node = Node(turn.landed.words(landed));
                if !node.covers(key) {
                    return self.ask(node.0[3], turn.trip);
                }
                if self.shape.all_levels || node.level() == 1 {
                    self.copies[turn.compute].keep(at, node);
                }
                self.go_on(node.level(), node.find(key), false, turn.trip)
            }
        }
    }

    fn go_on(
        &self,
        level: u32,
        (child, next): (Address, Option<Address>),
        is_copied: bool,
        trip: &mut Trip,
    ) -> Seek {
        match level {
            0 | 1 => Seek::Leaf(LeafAt { leaf: child, next, is_copied }),
            _ => self.ask(child, trip),
        }
    }

    fn ask(&self, at: Address, trip: &mut Trip) -> Seek {
        Seek::Asked(Asked::Node { at, landed: trip.read(at, HEAD + 2 * self.shape.span, self.shape.bytes) })
    }

    /// The most bytes that copies have taken on a compute node.
    pub fn most_bytes(&self) -> u64 {
        self.copies.iter().map(Copies::most_bytes).max().unwrap_or(0)
    }
}
