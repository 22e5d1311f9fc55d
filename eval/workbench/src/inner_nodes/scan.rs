//! Scans of trees: leaves from a key on, as copies of the level above name them, several with one
//! doorbell.
//!
//! A leaf that was split since it was copied says so: the leaf after it is another one than the
//! copy has next.

use super::{InnerNodes, LeafAt, Seek};
use crate::bench::{Answer, Operation};
use crate::words::{Address, Landed, Next, Turn};

/// A scan under way.
#[derive(Debug, Default)]
pub struct Scanning {
    /// The least key that is not covered yet.
    from: u64,
    wanted: usize,
    records: Vec<(u64, u64)>,
    /// Leaves that were named last, in order, and where they land.
    pub leaves: Vec<(Address, Landed)>,
    /// A copy named the first of them.
    is_copied: bool,
}

/// What a leaf says.
#[derive(Debug)]
pub struct Leaf<R> {
    /// The first key that is not its own; `MAX` if there is none.
    pub high: u64,
    /// The leaf after it.
    pub next: Address,
    /// Its records, in any order.
    pub records: R,
}

/// How a scan goes on.
#[derive(Debug)]
pub enum Scanned {
    /// It has all it wants, or all there are.
    Whole,
    /// More leaves are [named](Scanning::leaves).
    Named,
    /// The first leaf was another key's: a traversal, for the [least key that is not
    /// covered](Scanning::key_of).
    Seek(Seek),
}

impl Scanning {
    /// Begins, if the operation is a scan.
    pub fn begin(&mut self, operation: Operation) {
        if let Operation::Scan { key, count } = operation {
            (self.from, self.wanted) = (key, count as usize);
            self.records.clear();
        }
    }

    /// The key that an operation is about: of a scan that has begun, the least that is not covered
    /// yet.
    pub fn key_of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Scan { .. } if self.wanted > 0 => self.from,
            _ => operation.key(),
        }
    }

    /// Asks for the leaves that were named.
    pub fn ask(&mut self, mut read: impl FnMut(Address) -> Landed) {
        for (leaf, landed) in &mut self.leaves {
            *landed = read(*leaf);
        }
    }

    /// The answer.
    pub fn answer(&mut self) -> Next {
        Next::Done(Answer::Records(std::mem::take(&mut self.records)))
    }

    fn left(&self) -> usize {
        self.wanted - self.records.len()
    }

    /// Takes the records of a leaf that are wanted.
    fn take(&mut self, records: impl Iterator<Item = (u64, u64)>, high: u64) {
        let (before, from) = (self.records.len(), self.from);
        self.records.extend(records.filter(|(key, _)| *key >= from));
        self.records[before..].sort_unstable();
        self.records.truncate(self.wanted);
        self.from = high;
    }
}

impl InnerNodes {
    /// Names leaves from this one on: as many as hold what is left to find at `per_leaf` records
    /// each, or as copies know.
    pub fn name_leaves(&mut self, scan: &mut Scanning, at: LeafAt, per_leaf: f64, compute: usize) {
        let most = ((scan.left() as f64 / per_leaf).ceil() as usize).max(1);
        scan.is_copied = at.is_copied;
        scan.leaves.clear();
        self.copies[compute].leaves_from(scan.from, most, |leaf| scan.leaves.push((leaf, Landed::default())));
        match scan.leaves.first_mut() {
            Some((named, _)) if *named == at.leaf => {}
            // The copy is older than what named this leaf.
            Some(first) => {
                first.0 = at.leaf;
                self.copies[compute].drop(scan.from);
            }
            None => {
                let leaves = [Some(at.leaf), at.next.filter(|_| most > 1)].into_iter().flatten();
                scan.leaves.extend(leaves.map(|leaf| (leaf, Landed::default())));
            }
        }
    }

    /// Takes the leaves that have landed, up to one that does not follow the one before.
    pub fn take_leaves<'l, R: Iterator<Item = (u64, u64)>>(
        &mut self,
        scan: &mut Scanning,
        (per_leaf, look): (f64, impl Fn(&'l [u64]) -> Leaf<R>),
        turn: &mut Turn<'l>,
    ) -> Scanned {
        let (landed, leaves) = (turn.landed, std::mem::take(&mut scan.leaves));
        let mut right = leaves.first().map_or(0, |(first, _)| *first);
        for (leaf, words) in &leaves {
            if *leaf != right || scan.left() == 0 {
                break;
            }
            let Leaf { high, next, records } = look(landed.words(*words));
            if scan.from >= high && high != u64::MAX {
                let at = LeafAt { leaf: *leaf, next: None, is_copied: scan.is_copied };
                return Scanned::Seek(self.seek_again(scan.from, (at, next), turn));
            }
            scan.take(records, high);
            if high == u64::MAX {
                return Scanned::Whole;
            }
            right = next;
        }
        scan.leaves = leaves;
        if scan.left() == 0 {
            return Scanned::Whole;
        }
        let at = LeafAt { leaf: right, next: None, is_copied: false };
        self.name_leaves(scan, at, per_leaf, turn.compute);
        Scanned::Named
    }
}
