//! Growth of the levels above the leaves by a child, after a split below: the node is locked, READ
//! and WRITTEN whole with the unlock; a full one is halved, its right half WRITTEN first, and the
//! level above takes that.

use super::node::{HEAD, Node};
use super::{Asked, InnerNodes};
use crate::words::{Address, Landed, Memory, Next, Trip, Turn};

/// The word of a node that is its lock.
const LOCK_AT: u64 = HEAD as u64 - 1;
const LOCKED: u64 = 1;

/// A child that is on its way into the level above it.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The first key that the child is for.
    low: u64,
    child: Address,
    /// The level of the node that is to take it.
    level: u32,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The way down from the root.
    Down(Asked),
    Lock {
        at: Address,
        old: Landed,
    },
    Node {
        at: Address,
        landed: Landed,
    },
    /// The right half is there, and under a new root both: the left half is what remains to be
    /// WRITTEN.
    Halved {
        at: Address,
        left: Vec<u64>,
        sibling: (u64, Address),
        root: Option<Address>,
    },
    /// The pointer to the new root is.
    Rooted {
        at: Address,
        left: Vec<u64>,
    },
    /// The node is, and the level above is to take its right half, if there is one.
    Written {
        above: Option<(u64, Address)>,
    },
}

impl InnerNodes {
    /// Begins to take a leaf that is for keys from `low` on.
    pub fn grow(&self, sibling: (u64, Address), turn: &mut Turn<'_>) -> Growth {
        self.grow_at(turn.compute, sibling, 1, turn.trip)
    }

    fn grow_at(&self, compute: usize, (low, child): (u64, Address), level: u32, trip: &mut Trip) -> Growth {
        let stage = match self.copies[compute].place_of(level, low) {
            Some(at) => lock(at, trip),
            None => Stage::Down(Asked::Root(trip.read(self.root_at, 1, 8))),
        };
        Growth { low, child, level, stage }
    }

    /// Goes on, until the child is in its place and the write that made it has ended.
    pub fn grow_on(&mut self, growth: &mut Option<Growth>, turn: &mut Turn<'_>) -> Next {
        *growth = growth.take().and_then(|growth| self.grown(growth, turn));
        if growth.is_some() { Next::Trip } else { Next::written(true) }
    }

    fn grown(&mut self, growth: Growth, turn: &mut Turn<'_>) -> Option<Growth> {
        let Turn { compute, landed, trip, memory, .. } = turn;
        let (compute, landed) = (*compute, *landed);
        let Growth { low, child, level, stage } = growth;
        let stage = match stage {
            Stage::Down(Asked::Root(root)) => self.down(landed.word(root), trip),
            Stage::Down(Asked::Node { at, landed: words }) => {
                let node = Node(landed.words(words));
                match node.covers(low) {
                    false => self.down(node.0[3], trip),
                    true if node.level() == level => lock(at, trip),
                    true => self.down(node.find(low).0, trip),
                }
            }
            Stage::Lock { at, old } if landed.word(old) != 0 => lock(at, trip),
            Stage::Lock { at, .. } => Stage::Node { at, landed: self.read_node(at, trip) },
            Stage::Node { at, landed: words } => {
                let node = Node(landed.words(words));
                match node.covers(low) {
                    true => self.take_child(compute, (at, node), (low, child), trip, memory),
                    false => {
                        trip.write(at + LOCK_AT, &[0], 8);
                        lock(node.0[3], trip)
                    }
                }
            }
            Stage::Halved { at, left, root: Some(root), .. } => {
                trip.write(self.root_at, &[root], 8);
                Stage::Rooted { at, left }
            }
            Stage::Halved { at, left, sibling, root: None } => {
                trip.write(at, &left, self.shape.bytes);
                Stage::Written { above: Some(sibling) }
            }
            Stage::Rooted { at, left } => {
                trip.write(at, &left, self.shape.bytes);
                Stage::Written { above: None }
            }
            Stage::Written { above: None } => return None,
            Stage::Written { above: Some(sibling) } => {
                return Some(self.grow_at(compute, sibling, level + 1, trip));
            }
        };
        Some(Growth { low, child, level, stage })
    }

    fn down(&self, at: Address, trip: &mut Trip) -> Stage {
        Stage::Down(Asked::Node { at, landed: self.read_node(at, trip) })
    }

    fn read_node(&self, at: Address, trip: &mut Trip) -> Landed {
        trip.read(at, HEAD + 2 * self.shape.span, self.shape.bytes)
    }

    /// Puts the child into a node whose lock is held.
    fn take_child(
        &mut self,
        compute: usize,
        (at, node): (Address, Node<'_>),
        (low, child): (u64, Address),
        trip: &mut Trip,
        memory: &mut Memory,
    ) -> Stage {
        let mut children = node.0[HEAD..].as_chunks::<2>().0[..node.count()].to_vec();
        children.insert(children.partition_point(|[first, _]| *first <= low), [low, child]);
        let level = node.level();
        if children.len() <= self.shape.span {
            let words = self.node(&children, level, (node.low(), node.high()), node.0[3]);
            trip.write(at, &words, self.shape.bytes);
            self.keep(compute, at, &words);
            return Stage::Written { above: None };
        }
        let right = children.split_off(children.len() / 2);
        let middle = right[0][0];
        let sibling = self.allocate(memory);
        let words = self.node(&right, level, (middle, node.high()), node.0[3]);
        trip.write(sibling, &words, self.shape.bytes);
        self.keep(compute, sibling, &words);
        let left = self.node(&children, level, (node.low(), middle), sibling);
        self.keep(compute, at, &left);
        // The root's address is always right, and the lock is held: no other client can put a level
        // above it.
        let root = (memory.words(self.root_at, 1)[0] == at).then(|| {
            let root = self.allocate(memory);
            let halves = [[node.low(), at], [middle, sibling]];
            trip.write(root, &self.node(&halves, level + 1, (0, u64::MAX), 0), self.shape.bytes);
            root
        });
        Stage::Halved { at, left, sibling: (middle, sibling), root }
    }

    fn allocate(&self, memory: &mut Memory) -> Address {
        memory.allocate(HEAD + 2 * self.shape.span, self.shape.bytes as u64)
    }

    /// A node's words, not locked.
    fn node(&self, children: &[[u64; 2]], level: u32, (low, high): (u64, u64), next: Address) -> Vec<u64> {
        let mut words = vec![0; HEAD + 2 * self.shape.span];
        words[..HEAD].copy_from_slice(&[children.len() as u64 | u64::from(level) << 32, low, high, next, 0]);
        words[HEAD..].as_chunks_mut::<2>().0.iter_mut().zip(children).for_each(|(to, from)| *to = *from);
        words
    }

    fn keep(&mut self, compute: usize, at: Address, words: &[u64]) {
        let node = Node(words);
        if self.shape.all_levels || node.level() == 1 {
            self.copies[compute].keep(at, node);
        }
    }
}

fn lock(at: Address, trip: &mut Trip) -> Stage {
    Stage::Lock { at, old: trip.compare_swap(at + LOCK_AT, (0, LOCKED), u64::MAX) }
}
