//! SMART: an adaptive radix tree whose inner nodes compute nodes keep. See this folder's `README.md`.

mod cache;
mod layout;

use crate::Sizes;
use crate::bench::{Answer, Operation};
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Trip};
use cache::Cache;
use layout::{HEAD, LEAF, LOCK, Node, Slot, build, leaf_bytes, node_bytes};

/// The tree, and every compute node's cache.
#[derive(Debug)]
pub struct Smart {
    sizes: Sizes,
    /// Where the slot lies that leads to the root.
    root: Address,
    caches: Vec<Cache>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    operation: Option<Operation>,
    stage: Stage,
    /// The slot that led to what is being read, if a copy had it.
    from: Address,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Nothing has been asked for.
    #[default]
    Begin,
    /// The root's slot.
    Root(Landed),
    /// A node.
    Node { at: Address, landed: Landed },
    /// A leaf, and its first word's old state if it was to be locked.
    Leaf { at: Address, landed: Landed, lock: Option<Landed> },
    /// The end of a write.
    Written,
}

impl Smart {
    /// The tree over ascending keys with their first values, for so many compute nodes with these budgets.
    pub fn new(memory: &mut Memory, keys: &[u64], sizes: Sizes, compute_nodes: u16, budget: u64) -> Self {
        let root = memory.allocate(1, 8);
        let slot = build(memory, keys, root, 0, sizes, first_value);
        memory.words_mut(root, 1)[0] = slot.0;
        Self { sizes, root, caches: (0..compute_nodes).map(|_| Cache::new(budget)).collect() }
    }

    /// Asks for what a slot leads to; `false` if it leads nowhere.
    fn follow(&self, task: &mut Task, (slot_at, slot): (Address, Slot), trip: &mut Trip) -> bool {
        let at = slot.at();
        if !slot.is_used() {
            return false;
        }
        task.from = slot_at;
        task.stage = match slot.is_leaf() {
            true => {
                let lock = matches!(task.operation, Some(Operation::Update { .. }))
                    .then(|| trip.compare_swap(at, (0, LOCK), LOCK));
                Stage::Leaf { at, landed: trip.read(at, LEAF, leaf_bytes(self.sizes)), lock }
            }
            false => {
                let words = HEAD + slot.slots();
                Stage::Node { at, landed: trip.read(at, words, node_bytes(slot.slots())) }
            }
        };
        true
    }

    /// Asks for what the deepest copy says, or for the root.
    fn begin_at_cache(&self, compute: usize, task: &mut Task, key: u64, trip: &mut Trip) -> Next {
        let Some(cached) = self.caches[compute].deepest(key) else {
            task.stage = Stage::Root(trip.read(self.root, 1, 8));
            return Next::Trip;
        };
        match cached.node().find(key) {
            Some((i, slot)) => {
                self.follow(task, (cached.at + (HEAD + i) as u64, slot), trip);
            }
            // The copy may be old.
            None => {
                let slots = cached.node().0.len() - HEAD;
                let landed = trip.read(cached.at, HEAD + slots, node_bytes(slots));
                task.stage = Stage::Node { at: cached.at, landed };
            }
        }
        Next::Trip
    }

    /// Goes on with a leaf that has landed.
    fn take_leaf(
        &mut self,
        compute: usize,
        task: &mut Task,
        (leaf, old_lock): (&[u64], Option<u64>),
        (operation, at): (Operation, Address),
        trip: &mut Trip,
    ) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        let is_locked = old_lock.is_some_and(|word| word & LOCK != 0);
        if is_locked {
            // Another has it: the same again.
            let lock = Some(trip.compare_swap(at, (0, LOCK), LOCK));
            task.stage = Stage::Leaf { at, landed: trip.read(at, LEAF, leaf_bytes(self.sizes)), lock };
            return Next::Trip;
        }
        let is_right = leaf[1] == key;
        match operation {
            Operation::Read { .. } if is_right => return Next::Done(Answer::Value(Some(leaf[2]))),
            Operation::Update { value, .. } if is_right => {
                // The value, its checksum, and the lock's byte.
                trip.write(at + 2, &[value], self.sizes.value + 9);
                trip.and_write(at, &[leaf[0] & !LOCK]);
                task.stage = Stage::Written;
                return Next::Trip;
            }
            _ => {}
        }
        if leaf[0] & !LOCK == task.from {
            return Next::Done(Answer::Value(None));
        }
        // The copy that led here is old.
        if let Some(cached) = self.caches[compute].deepest(key).cloned() {
            self.caches[compute].drop(cached.node());
        }
        self.begin_at_cache(compute, task, key, trip)
    }
}

impl Index for Smart {
    type Task = Task;

    const DELEGATES: bool = true;

    fn begin(&mut self, _: usize, task: &mut Task, operation: Operation) {
        *task = Task { operation: Some(operation), ..Task::default() };
    }

    fn step(
        &mut self,
        compute: usize,
        task: &mut Task,
        landed: &Trip,
        trip: &mut Trip,
        _: &mut Memory,
    ) -> Next {
        let Some(operation) = task.operation else {
            return Next::Done(Answer::Failed("there is nothing to do".into()));
        };
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        match task.stage {
            Stage::Begin => self.begin_at_cache(compute, task, key, trip),
            Stage::Root(slot) => match self.follow(task, (self.root, Slot(landed.word(slot))), trip) {
                true => Next::Trip,
                false => Next::Done(Answer::Value(None)),
            },
            Stage::Node { at, landed: words } => {
                let node = Node(landed.words(words));
                if !node.is_of(key) {
                    return Next::Done(Answer::Value(None));
                }
                self.caches[compute].keep(at, node.0);
                match node.find(key) {
                    Some((i, slot)) if self.follow(task, (at + (HEAD + i) as u64, slot), trip) => Next::Trip,
                    _ => Next::Done(Answer::Value(None)),
                }
            }
            Stage::Leaf { at, landed: words, lock } => {
                let found = (landed.words(words), lock.map(|lock| landed.word(lock)));
                self.take_leaf(compute, task, found, (operation, at), trip)
            }
            Stage::Written => Next::Done(Answer::Written),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        (self.caches.iter().map(Cache::most_bytes).max().unwrap_or(0), 0)
    }
}
