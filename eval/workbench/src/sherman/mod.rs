//! Sherman: a B+ tree whose leaves are read whole. See this folder's `README.md`.

use crate::bench::{Answer, Operation};
use crate::inner_nodes::{Asked, InnerNodes, LeafAt, Seek, Shape};
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Trip};
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
}

impl Options {
    /// The published ones: 54 entries of 8/8 in a page of 1,024 bytes; nodes as full as a tree that grew has them.
    pub fn published(budget: u64) -> Self {
        Self { budget, leaf_slots: 54, fill: 0.69 }
    }
}

/// Children of an inner page.
const INNER_SLOTS: usize = 61;
/// Words before a leaf's entries: how many there are, the next leaf, and the keys it is for.
const HEAD: usize = 4;
/// Locks in the memory of a memory node's card.
const LOCKS: usize = 32_768;
const LOCKED: u64 = 1;

/// Bytes of an inner page.
const fn inner_bytes(sizes: Sizes) -> usize {
    48 + INNER_SLOTS * (sizes.key + 8)
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
    inner: InnerNodes,
    locks: Address,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    operation: Option<Operation>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    Inner(Asked),
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
}

impl Sherman {
    /// The tree over ascending keys with their first values, for so many compute nodes.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Self {
        let slots = options.leaf_slots.max(1);
        let per_leaf = ((slots as f64 * options.fill) as usize).clamp(1, slots);
        let leaf_bytes = 52 + slots * entry_bytes(sizes);
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
        let bytes = inner_bytes(sizes);
        let shape = Shape {
            span: INNER_SLOTS,
            bytes,
            cached_bytes: bytes as u64,
            all_levels: false,
            reads_root: false,
        };
        let inner = InnerNodes::build(memory, shape, leaves, options.fill, compute_nodes, options.budget);
        let locks = memory.allocate(LOCKS, 8 * LOCKS as u64);
        Self { sizes, slots, inner, locks }
    }

    fn lock_of(&self, leaf: Address) -> Address {
        self.locks + scatter(leaf) % LOCKS as u64
    }

    fn ask_leaf(&self, task: &mut Task, at: LeafAt, trip: &mut Trip) {
        let bytes = 52 + self.slots * entry_bytes(self.sizes);
        task.stage = Stage::Leaf { at, landed: trip.read(at.leaf, HEAD + 2 * self.slots, bytes) };
    }

    fn go_on(&self, task: &mut Task, operation: Operation, seek: Seek, trip: &mut Trip) -> Next {
        match (seek, operation) {
            (Seek::Asked(asked), _) => task.stage = Stage::Inner(asked),
            (Seek::Leaf(at), Operation::Read { .. }) => self.ask_leaf(task, at, trip),
            (Seek::Leaf(at), Operation::Update { .. }) => {
                let landed = trip.compare_swap(self.lock_of(at.leaf), (0, LOCKED), u64::MAX);
                task.stage = Stage::Lock { at, landed };
            }
        }
        Next::Trip
    }

    /// Looks for the key in a leaf.
    fn take_leaf(
        &mut self,
        compute: usize,
        task: &mut Task,
        (operation, at): (Operation, LeafAt),
        leaf: &[u64],
        (trip, memory): (&mut Trip, &Memory),
    ) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        let (low, high) = (leaf[2], leaf[3]);
        let is_its_leaf = key >= low && (key < high || high == u64::MAX);
        let entries = leaf[HEAD..].as_chunks::<2>().0;
        let found = entries[..leaf[0] as usize].iter().position(|[found, _]| *found == key);
        match operation {
            Operation::Read { .. } if is_its_leaf => {
                Next::Done(Answer::Value(found.map(|entry| entries[entry][1])))
            }
            Operation::Read { .. } => {
                self.inner.drop_copy(compute, key);
                let seek = self.inner.seek(compute, key, trip, memory);
                self.go_on(task, operation, seek, trip)
            }
            Operation::Update { value, .. } => {
                if let Some(entry) = found {
                    let place = at.leaf + (HEAD + 2 * entry + 1) as u64;
                    trip.write(place, &[value], entry_bytes(self.sizes));
                }
                trip.write(self.lock_of(at.leaf), &[0], 8);
                task.stage = Stage::Written { is_there: found.is_some() };
                Next::Trip
            }
        }
    }
}

impl Index for Sherman {
    type Task = Task;

    fn begin(&mut self, _: usize, task: &mut Task, operation: Operation) {
        *task = Task { operation: Some(operation), stage: Stage::Begin };
    }

    fn step(
        &mut self,
        compute: usize,
        task: &mut Task,
        landed: &Trip,
        trip: &mut Trip,
        memory: &mut Memory,
    ) -> Next {
        let Some(operation) = task.operation else {
            return Next::Done(Answer::Failed("there is nothing to do".into()));
        };
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        match task.stage {
            Stage::Begin => {
                let seek = self.inner.seek(compute, key, trip, memory);
                self.go_on(task, operation, seek, trip)
            }
            Stage::Inner(asked) => {
                let seek = self.inner.take(compute, key, asked, landed, trip);
                self.go_on(task, operation, seek, trip)
            }
            Stage::Lock { at, landed: old } if landed.word(old) == 0 => {
                self.ask_leaf(task, at, trip);
                Next::Trip
            }
            // Another has it.
            Stage::Lock { at, .. } => self.go_on(task, operation, Seek::Leaf(at), trip),
            Stage::Leaf { at, landed: words } => {
                self.take_leaf(compute, task, (operation, at), landed.words(words), (trip, memory))
            }
            Stage::Written { is_there: true } => Next::Done(Answer::Written),
            Stage::Written { is_there: false } => Next::Done(Answer::Failed("there is no such key".into())),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        (self.inner.most_bytes(), 0)
    }
}
