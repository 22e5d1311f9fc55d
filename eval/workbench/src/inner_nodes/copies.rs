//! A compute node's copies of inner nodes.

use std::collections::BTreeMap;

use super::node::{Node, Shape};
use crate::words::Address;

/// A copy.
#[derive(Debug)]
struct Copy {
    place: (u32, u64),
    uses: u32,
    /// Where the node lies.
    at: Address,
    words: Box<[u64]>,
}

/// Copies within a budget; of two drawn at random the less used one goes.
#[derive(Debug)]
pub struct Copies {
    budget: u64,
    each: u64,
    copies: Vec<Copy>,
    /// By level and first key, where among the copies.
    places: BTreeMap<(u32, u64), usize>,
    /// Highest level there is a copy of.
    levels: u32,
    most: u64,
    random: u64,
}

impl Copies {
    /// Of `budget` bytes.
    pub fn new(budget: u64, shape: Shape, seed: u64) -> Self {
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (copies, places) = (Vec::new(), BTreeMap::new());
        Self { budget, each: shape.cached_bytes, copies, places, levels: 0, most: 0, random }
    }

    /// Of the copies that cover a key, that of the lowest level.
    pub fn lowest(&mut self, key: u64) -> Option<Node<'_>> {
        let index = (1..=self.levels).find_map(|level| self.covering(level, key))?;
        let copy = &mut self.copies[index];
        copy.uses = copy.uses.saturating_add(1);
        Some(Node(&copy.words))
    }

    /// Hands over the leaves from a key's on, as far as copies without a gap between them know, up
    /// to `most`.
    pub fn leaves_from(&mut self, key: u64, most: usize, mut take: impl FnMut(Address)) {
        let (mut from, mut left) = (key, most);
        while left > 0
            && let Some(index) = self.covering(1, from)
        {
            let copy = &mut self.copies[index];
            copy.uses = copy.uses.saturating_add(u32::from(from != key));
            let node = Node(&copy.words);
            node.children_from(from).take(left).for_each(|leaf| {
                left -= 1;
                take(leaf);
            });
            from = node.high();
            if from == u64::MAX {
                return;
            }
        }
    }

    /// Where the node of a level lies that a copy says covers a key.
    pub fn place_of(&self, level: u32, key: u64) -> Option<Address> {
        self.covering(level, key).map(|index| self.copies[index].at)
    }

    fn covering(&self, level: u32, key: u64) -> Option<usize> {
        let (_, index) = self.places.range((level, 0)..=(level, key)).next_back()?;
        Node(&self.copies[*index].words).covers(key).then_some(*index)
    }

    /// Keeps a node.
    pub fn keep(&mut self, at: Address, node: Node<'_>) {
        if self.each > self.budget {
            return;
        }
        let place = (node.level(), node.low());
        self.levels = self.levels.max(node.level());
        match self.places.get(&place) {
            Some(index) => {
                let copy = &mut self.copies[*index];
                (copy.at, copy.words) = (at, node.0.into());
            }
            None => {
                while (self.copies.len() as u64 + 1) * self.each > self.budget {
                    self.evict();
                }
                self.places.insert(place, self.copies.len());
                self.copies.push(Copy { place, uses: 1, at, words: node.0.into() });
            }
        }
        self.most = self.most.max(self.copies.len() as u64 * self.each);
    }

    fn evict(&mut self) {
        let mut draw = || {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.random % self.copies.len() as u64) as usize
        };
        let (a, b) = (draw(), draw());
        self.remove(if self.copies[a].uses <= self.copies[b].uses { a } else { b });
    }

    fn remove(&mut self, index: usize) {
        let removed = self.copies.swap_remove(index);
        self.places.remove(&removed.place);
        if let Some(moved) = self.copies.get(index) {
            self.places.insert(moved.place, index);
        }
    }

    /// Forgets the lowest copy that covers a key.
    pub fn drop(&mut self, key: u64) {
        if let Some(index) = (1..=self.levels).find_map(|level| self.covering(level, key)) {
            self.remove(index);
        }
    }

    /// The most bytes there were.
    pub fn most_bytes(&self) -> u64 {
        self.most
    }
}
