//! Sherman: a B+ tree whose leaves are read whole. See this folder's `README.md`.

use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, Growth, Inner, InnerNodes, Leaf, LeafAt, Scanned, Scanning, Seek, Shape};
use crate::local_locks::Claim;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
use crate::{Sizes, scatter};

/// How Sherman is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep.
    pub budget: u64,
    /// Entries of a leaf.
    pub leaf_slots: usize,
    /// Share of a node that loading fills.
    pub fill: f64,
    /// The levels above the leaves.
    pub inner: Inner,
}

impl Options {
    /// The published ones: 54 entries of 8/8 and 61 children in pages of 1,024 bytes, whose numbers
    /// stay the same at other sizes; nodes as full as a tree that grew has them; of the levels
    /// above the leaves the lowest is kept, as the source does.
    pub fn published(budget: u64) -> Self {
        let inner = Inner { span: 61, all_levels: false };
        Self { budget, leaf_slots: 54, fill: 0.69, inner }
    }

    /// Entries that a leaf of the published page has at other sizes.
    pub fn slots_of_page(sizes: Sizes) -> usize {
        ((PAGE_BYTES - LEAF_HEAD_BYTES) / entry_bytes(sizes)).max(2)
    }
}

/// Bytes of a page, as published.
const PAGE_BYTES: usize = 1024;
/// Bytes of a leaf besides its entries.
const LEAF_HEAD_BYTES: usize = 52;
/// Words before a leaf's entries: how many there are, the next leaf, and the keys it is for.
const HEAD: usize = 4;
/// Locks in the memory of a memory node's card.
const LOCKS: usize = 32_768;
const LOCKED: u64 = 1;
/// How many times in a row clients of a compute node hand a lock over, without a word to the memory
/// node.
const HANDOVERS: u32 = 8;

/// Bytes of an inner page.
const fn inner_bytes(sizes: Sizes, span: usize) -> usize {
    48 + span * (sizes.key + 8)
}

/// Bytes of an entry with its versions.
const fn entry_bytes(sizes: Sizes) -> usize {
    sizes.key + sizes.value + 2
}

/// The tree, and what compute nodes keep.
#[derive(Debug)]
pub struct Sherman {
    sizes: Sizes,
    slots: usize,
    /// Records of a leaf when it was loaded.
    per_leaf: f64,
    inner: InnerNodes,
    /// Of every memory node, in its card's memory: a page's lock is on its own memory node, so that
    /// what is written to the page is there before the lock is free (one queue pair keeps their
    /// order).
    locks: Vec<Address>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    stage: Stage,
    /// Of a leaf that is being split, the left half; of its sibling, the first key and where it
    /// lies.
    left: Vec<u64>,
    sibling: (u64, Address),
    growth: Option<Growth>,
    scan: Scanning,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Inner(Asked),
    /// Its turn for the lock.
    Turn(LeafAt),
    Lock {
        at: LeafAt,
        landed: Landed,
    },
    Leaf {
        at: LeafAt,
        landed: Landed,
    },
    Written {
        is_there: bool,
    },
    /// The new sibling of this leaf is there, which is still locked and whole.
    Sibling(Address),
    /// Both halves are: the level above takes the sibling.
    Halved,
    Growing,
    /// Leaves of a scan.
    Leaves,
}

impl Sherman {
    /// The tree over ascending keys with their first values, for `compute_nodes` compute nodes.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Self {
        let slots = options.leaf_slots.max(1);
        let per_leaf = ((slots as f64 * options.fill) as usize).clamp(1, slots);
        let leaf_bytes = LEAF_HEAD_BYTES + slots * entry_bytes(sizes);
        let mut leaves: Vec<(u64, Address)> = Vec::with_capacity(keys.len().div_ceil(per_leaf));
        for (i, part) in keys.chunks(per_leaf).enumerate() {
            let words = HEAD + 2 * slots;
            let at = memory.allocate(words, leaf_bytes as u64);
            let high = keys.get((i + 1) * per_leaf).copied().unwrap_or(u64::MAX);
            let leaf = memory.words_mut(at, words);
            leaf[..HEAD].copy_from_slice(&[part.len() as u64, 0, if i == 0 { 0 } else { part[0] }, high]);
            for (entry, key) in leaf[HEAD..].as_chunks_mut::<2>().0.iter_mut().zip(part) {
                *entry = [*key, first_value(*key)];
            }
            if let Some((_, before)) = leaves.last() {
                memory.words_mut(*before, HEAD)[1] = at;
            }
            leaves.push((part[0], at));
        }
        let Inner { span, all_levels } = options.inner;
        let bytes = inner_bytes(sizes, span);
        let shape = Shape { span, bytes, cached_bytes: bytes as u64, all_levels, reads_root: false };
        let inner = InnerNodes::build(memory, shape, leaves, options.fill, compute_nodes, options.budget);
        let locks = memory.allocate_on_each(LOCKS, 8 * LOCKS as u64);
        Self { sizes, slots, per_leaf: per_leaf as f64, inner, locks }
    }

    fn lock_of(&self, leaf: Address) -> Address {
        Memory::beside(&self.locks, leaf) + scatter(leaf) % LOCKS as u64
    }

    fn ask_leaf(&self, task: &mut Task, at: LeafAt, turn: &mut Turn<'_>) {
        let landed = turn.trip.read(at.leaf, HEAD + 2 * self.slots, self.leaf_bytes());
        task.stage = Stage::Leaf { at, landed };
    }

    fn go_on(&mut self, task: &mut Task, seek: Seek, turn: &mut Turn<'_>) -> Next {
        match (seek, turn.operation) {
            (Seek::Asked(asked), _) => task.stage = Stage::Inner(asked),
            (Seek::Leaf(at), Operation::Scan { .. }) => {
                self.inner.name_leaves(&mut task.scan, at, self.per_leaf, turn.compute);
                self.ask_leaves(task, turn);
            }
            (Seek::Leaf(at), Operation::Read { .. }) => self.ask_leaf(task, at, turn),
            (Seek::Leaf(at), _) => return self.ask_lock(task, at, turn),
        }
        Next::Trip
    }

    /// Tries the leaf's lock when it has its turn, and asks for the leaf if it has it by then.
    fn ask_lock(&self, task: &mut Task, at: LeafAt, turn: &mut Turn<'_>) -> Next {
        let lock = self.lock_of(at.leaf);
        match turn.claim(lock) {
            Claim::Waits => {
                task.stage = Stage::Turn(at);
                return Next::Waits;
            }
            Claim::Held => self.ask_leaf(task, at, turn),
            Claim::Try => {
                let landed = turn.trip.compare_swap_on_chip(lock, (0, LOCKED), u64::MAX);
                task.stage = Stage::Lock { at, landed };
            }
        }
        Next::Trip
    }

    /// Asks for the leaves of a scan.
    fn ask_leaves(&self, task: &mut Task, turn: &mut Turn<'_>) {
        task.scan.ask(|leaf| turn.trip.read(leaf, HEAD + 2 * self.slots, self.leaf_bytes()));
        task.stage = Stage::Leaves;
    }

    fn take_leaves(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        match self.inner.take_leaves(&mut task.scan, (self.per_leaf, look), turn) {
            Scanned::Whole => return task.scan.answer(),
            Scanned::Named => self.ask_leaves(task, turn),
            Scanned::Seek(seek) => return self.go_on(task, seek, turn),
        }
        Next::Trip
    }

    /// Looks for the key in a leaf.
    fn take_leaf(&mut self, task: &mut Task, at: LeafAt, leaf: &[u64], turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        let (low, high) = (leaf[2], leaf[3]);
        let is_its_leaf = key >= low && (key < high || high == u64::MAX);
        let entries = leaf[HEAD..].as_chunks::<2>().0;
        let found = entries[..leaf[0] as usize].iter().position(|[found, _]| *found == key);
        let Some(value) = operation.written() else {
            return match is_its_leaf {
                true => Next::Done(Answer::Value(found.map(|entry| entries[entry][1]))),
                false => self.go_right(task, (at, leaf[1]), turn),
            };
        };
        let lock = self.lock_of(at.leaf);
        if !is_its_leaf {
            turn.unlock(lock, 0, 8);
            return self.go_right(task, (at, leaf[1]), turn);
        }
        let count = leaf[0] as usize;
        let is_insert = matches!(operation, Operation::Insert { .. });
        match found {
            Some(entry) => {
                let place = at.leaf + (HEAD + 2 * entry + 1) as u64;
                turn.trip.write(place, &[value], entry_bytes(self.sizes));
            }
            // Whether an entry is used shows by its value: nothing else is written.
            None if is_insert && count < self.slots => {
                let place = at.leaf + (HEAD + 2 * count) as u64;
                turn.trip.write(place, &[key, value], entry_bytes(self.sizes));
                turn.trip.and_write(at.leaf, &[leaf[0] + 1]);
            }
            None if is_insert => return self.halve(task, (key, value), (at.leaf, leaf), turn),
            None => {}
        }
        turn.unlock(lock, 0, 8);
        task.stage = Stage::Written { is_there: found.is_some() || is_insert };
        Next::Trip
    }

    fn go_right(&mut self, task: &mut Task, from: (LeafAt, Address), turn: &mut Turn<'_>) -> Next {
        let seek = self.inner.seek_again(turn.operation.key(), from, turn);
        self.go_on(task, seek, turn)
    }

    /// WRITEs the right half of a full leaf with one record more.
    fn halve(
        &self,
        task: &mut Task,
        (key, value): (u64, u64),
        (at, leaf): (Address, &[u64]),
        turn: &mut Turn<'_>,
    ) -> Next {
        let mut entries = leaf[HEAD..].as_chunks::<2>().0[..leaf[0] as usize].to_vec();
        entries.push([key, value]);
        entries.sort_unstable();
        let right = entries.split_off(entries.len() / 2);
        let middle = right[0][0];
        let sibling = turn.memory.allocate(HEAD + 2 * self.slots, self.leaf_bytes() as u64);
        let words = self.leaf(&right, leaf[1], (middle, leaf[3]));
        turn.trip.write(sibling, &words, self.leaf_bytes());
        task.left = self.leaf(&entries, sibling, (leaf[2], middle));
        task.sibling = (middle, sibling);
        task.stage = Stage::Sibling(at);
        Next::Trip
    }

    fn leaf(&self, entries: &[[u64; 2]], next: Address, (low, high): (u64, u64)) -> Vec<u64> {
        let mut words = vec![0; HEAD + 2 * self.slots];
        words[..HEAD].copy_from_slice(&[entries.len() as u64, next, low, high]);
        words[HEAD..].as_chunks_mut::<2>().0.iter_mut().zip(entries).for_each(|(to, from)| *to = *from);
        words
    }

    fn leaf_bytes(&self) -> usize {
        LEAF_HEAD_BYTES + self.slots * entry_bytes(self.sizes)
    }
}

/// A leaf as a scan sees it.
fn look(leaf: &[u64]) -> Leaf<impl Iterator<Item = (u64, u64)>> {
    let entries = &leaf[HEAD..].as_chunks::<2>().0[..leaf[0] as usize];
    Leaf { high: leaf[3], next: leaf[1], records: entries.iter().map(|[key, value]| (*key, *value)) }
}

impl Index for Sherman {
    type Task = Task;

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let key = task.scan.key_of(turn.operation);
        match task.stage {
            Stage::Begin => {
                task.scan.begin(turn.operation);
                let seek = self.inner.seek(key, turn);
                self.go_on(task, seek, turn)
            }
            Stage::Inner(asked) => {
                let seek = self.inner.take(key, asked, turn);
                self.go_on(task, seek, turn)
            }
            Stage::Turn(at) => self.ask_lock(task, at, turn),
            Stage::Lock { at, landed: old } if turn.landed.word(old) == 0 => {
                self.ask_leaf(task, at, turn);
                Next::Trip
            }
            // Another has it.
            Stage::Lock { at, .. } => self.ask_lock(task, at, turn),
            Stage::Leaf { at, landed: words } => self.take_leaf(task, at, turn.landed.words(words), turn),
            Stage::Sibling(leaf) => {
                turn.trip.write(leaf, &task.left, self.leaf_bytes());
                turn.unlock(self.lock_of(leaf), 0, 8);
                task.stage = Stage::Halved;
                Next::Trip
            }
            Stage::Halved => {
                task.growth = Some(self.inner.grow(task.sibling, turn));
                task.stage = Stage::Growing;
                Next::Trip
            }
            Stage::Leaves => self.take_leaves(task, turn),
            Stage::Growing => self.inner.grow_on(&mut task.growth, turn),
            Stage::Written { is_there } => Next::written(is_there),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        (self.inner.most_bytes(), 0)
    }

    fn handovers(&self) -> u32 {
        HANDOVERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_lock_on_its_own_memory_node() {
        let mut memory = Memory::new(3);
        let keys: Vec<u64> = (1..=10_000).collect();
        let sizes = Sizes { key: 8, value: 8 };
        let sherman = Sherman::new(&mut memory, &keys, sizes, 1, &Options::published(1 << 20));
        for node in 0..3 {
            let (page, locks) = (memory.allocate_beside(sherman.locks[node], 1, 8), sherman.locks[node]);
            let lock = sherman.lock_of(page);
            assert!((locks..locks + LOCKS as u64).contains(&lock), "{page:x} {lock:x}");
            assert_eq!(Memory::node_of(page), Memory::node_of(lock));
        }
    }
}
