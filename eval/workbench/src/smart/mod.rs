//! SMART: an adaptive radix tree whose inner nodes compute nodes keep. See this folder's
//! `README.md`.

mod cache;
mod layout;
mod scan;
mod scanning;

use crate::Sizes;
use crate::bench::{Answer, Operation};
use crate::local_locks::Claim;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
use cache::Cache;
use layout::{
    HEAD, LEAF, LOCK, LOCK_AT, Node, Slot, build, byte_at, leaf_bytes, node_bytes, node_of_two, read_node_of,
    read_words, slot_at,
};
use scanning::Scanning;

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
    stage: Stage,
    /// The slot that led to what is being read, and what it said; 0 where a copy said it directly.
    from: Address,
    said: u64,
    link: Link,
    scan: Scanning,
}

/// How a new leaf gets into the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The slot that is to change, from what, to what.
    slot: Address,
    old: u64,
    new: u64,
    /// What is WRITTEN after that: where, and the word.
    after: Option<(Address, u64)>,
    /// The slot that leads to a node which has grown, from what, to what.
    grown: Option<(Address, u64, u64)>,
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
    /// Its turn for a leaf's lock.
    Turn(Address),
    /// A leaf, and its first word's old state if it was to be locked.
    Leaf { at: Address, landed: Landed, lock: Option<Landed> },
    /// The end of a write.
    Written,
    /// The leaf that was locked is another key's, and free again.
    Absent,
    /// A new leaf is there: a slot is to lead to it.
    Made,
    /// The slot's old word.
    Linked(Landed),
    /// What a scan has asked for.
    Scan,
}

impl Smart {
    /// The tree over ascending keys with their first values, for `compute_nodes` compute nodes with
    /// a `budget` each.
    pub fn new(memory: &mut Memory, keys: &[u64], sizes: Sizes, compute_nodes: u16, budget: u64) -> Self {
        let root = memory.allocate(1, 8);
        let slot = build(memory, keys, root, 0, sizes, first_value);
        memory.words_mut(root, 1)[0] = slot.0;
        Self { sizes, root, caches: (0..compute_nodes).map(|_| Cache::new(budget)).collect() }
    }

    /// Asks for what a slot leads to.
    fn follow(&self, task: &mut Task, (slot_at, slot): (Address, Slot), turn: &mut Turn<'_>) -> Next {
        let at = slot.at();
        (task.from, task.said) = (slot_at, slot.0);
        task.stage = match (slot.is_leaf(), turn.operation) {
            (true, Operation::Update { .. }) => return self.ask_lock(task, at, turn),
            (true, _) => {
                let landed = turn.trip.read(at, LEAF, leaf_bytes(self.sizes));
                Stage::Leaf { at, landed, lock: None }
            }
            (false, _) => Stage::Node { at, landed: read_node_of(slot, turn) },
        };
        Next::Trip
    }

    /// Tries a leaf's lock, and asks for the leaf as it is then, when it has its turn.
    fn ask_lock(&self, task: &mut Task, at: Address, turn: &mut Turn<'_>) -> Next {
        if turn.claim(at) == Claim::Waits {
            task.stage = Stage::Turn(at);
            return Next::Waits;
        }
        let lock = Some(turn.trip.compare_swap(at + LOCK_AT, (0, LOCK), LOCK));
        task.stage = Stage::Leaf { at, landed: turn.trip.read(at, LEAF, leaf_bytes(self.sizes)), lock };
        Next::Trip
    }

    /// Asks for what the deepest copy says, or for the root.
    fn begin_at_cache(&self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> Next {
        let Some(cached) = self.caches[turn.compute].deepest(key) else {
            task.stage = Stage::Root(turn.trip.read(self.root, 1, 8));
            return Next::Trip;
        };
        match cached.node().find(key) {
            Some((i, slot)) => {
                let at = slot_at(turn.memory, (cached.at, cached.node()), i);
                self.follow(task, (at, slot), turn)
            }
            // The copy may be old.
            None => {
                let slots = cached.node().0.len() - HEAD;
                let landed = read_node(cached.at, slots, turn);
                (task.from, task.said) = (0, 0);
                task.stage = Stage::Node { at: cached.at, landed };
                Next::Trip
            }
        }
    }

    /// Goes on with a leaf that has landed.
    fn take_leaf(
        &mut self,
        task: &mut Task,
        (leaf, old_lock): (&[u64], Option<u64>),
        at: Address,
        turn: &mut Turn<'_>,
    ) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        let is_right = leaf[1] == key;
        let is_locked = old_lock.is_some_and(|word| word & LOCK != 0);
        if is_locked && is_right {
            // Another compute node has it: the same again.
            return self.ask_lock(task, at, turn);
        }
        match operation {
            Operation::Read { .. } if is_right => return Next::Done(Answer::Value(Some(leaf[2]))),
            Operation::Insert { .. } if is_right && old_lock.is_none() => {
                return self.ask_lock(task, at, turn);
            }
            Operation::Update { value, .. } | Operation::Insert { value, .. } if is_right => {
                // The value, its checksum, and the lock's byte.
                turn.trip.write(at + 2, &[value], self.sizes.value + 9);
                turn.trip.and_write(at + LOCK_AT, &[0]);
                turn.has_unlocked();
                task.stage = Stage::Written;
                return Next::Trip;
            }
            _ => {}
        }
        // It is another key's, and a client that wants that one waits for this lock.
        let is_held = old_lock.is_some_and(|word| word & LOCK == 0);
        if is_held {
            turn.unlock(at + LOCK_AT, 0, 1);
        }
        if is_locked {
            turn.give_up();
        }
        if leaf[0] != task.from {
            return self.begin_again(task, key, turn);
        }
        if let Operation::Insert { value, .. } = operation {
            return self.part(task, (key, value), (leaf[1], at), turn);
        }
        if is_held {
            task.stage = Stage::Absent;
            return Next::Trip;
        }
        Next::absent(operation)
    }

    /// The copy that led here is old.
    fn begin_again(&mut self, task: &mut Task, key: u64, turn: &mut Turn<'_>) -> Next {
        if let Some(cached) = self.caches[turn.compute].deepest(key).cloned() {
            self.caches[turn.compute].drop(cached.node());
        }
        self.begin_at_cache(task, key, turn)
    }

    fn make_leaf(&self, from: Address, (key, value): (u64, u64), at: Address, turn: &mut Turn<'_>) {
        turn.trip.write(at, &[from, key, value, 0], leaf_bytes(self.sizes));
    }

    /// Puts a node of two between a slot and what it leads to, which shares fewer bytes with the
    /// key than there lead to it.
    fn part(
        &self,
        task: &mut Task,
        (key, value): (u64, u64),
        (other, other_at): (u64, Address),
        turn: &mut Turn<'_>,
    ) -> Next {
        let depth = (key ^ other).leading_zeros() / 8;
        let node = turn.memory.allocate(HEAD + 4, node_bytes(4) as u64);
        let leaf = turn.memory.allocate(LEAF, leaf_bytes(self.sizes) as u64);
        let slots = [0, 1].map(|i| node + (HEAD + i) as u64);
        let said = Slot(task.said);
        let children = [said.with_byte(byte_at(other, depth)), Slot::leaf(byte_at(key, depth), leaf)];
        turn.trip.write(node, &node_of_two(task.from, (key, depth), children), node_bytes(4));
        self.make_leaf(slots[1], (key, value), leaf, turn);
        // Of a leaf the first word says what leads to it, of a node the second.
        let reverse = if said.is_leaf() { other_at } else { other_at + 1 };
        task.link = Link {
            slot: task.from,
            old: said.0,
            new: Slot::node(said.byte(), node, 4).0,
            after: Some((reverse, slots[0])),
            grown: None,
        };
        task.stage = Stage::Made;
        Next::Trip
    }

    /// Makes a leaf for a node's free slot, or for one that it is to grow by.
    fn add(
        &self,
        task: &mut Task,
        (key, value): (u64, u64),
        (at, node): (Address, Node<'_>),
        turn: &mut Turn<'_>,
    ) -> Next {
        let (number, slots) = (node.vacancy(key), node.slots());
        let slot = slot_at(turn.memory, (at, node), number);
        let leaf = turn.memory.allocate(LEAF, leaf_bytes(self.sizes) as u64);
        self.make_leaf(slot, (key, value), leaf, turn);
        let new = Slot::leaf(byte_at(key, node.depth()), leaf).0;
        task.link = Link { slot, old: 0, new, ..Link::default() };
        if number == slots {
            // The room has always been there; now the node's type says so.
            let head = turn.memory.words(at, 1)[0];
            let grown = head & 0xffff_ffff | (2 * slots as u64) << 32;
            let leads = turn.memory.words(node.from(), 1)[0];
            task.link.after = Some((at, grown));
            let retyped = Slot(leads).grown(2 * slots).0;
            task.link.grown = (Slot(leads).at() == at).then_some((node.from(), leads, retyped));
        }
        task.stage = Stage::Made;
        Next::Trip
    }

    /// A node that has landed.
    fn take_node(&mut self, task: &mut Task, (at, words): (Address, &[u64]), turn: &mut Turn<'_>) -> Next {
        let (operation, key, node) = (turn.operation, turn.operation.key(), Node(words));
        if !node.is_of(key) {
            return match operation {
                _ if node.from() != task.from => self.begin_again(task, key, turn),
                Operation::Insert { value, .. } => self.part(task, (key, value), (node.prefix(), at), turn),
                _ => Next::absent(operation),
            };
        }
        if node.slots() > words.len() - HEAD {
            task.stage = Stage::Node { at, landed: read_node(at, node.slots(), turn) };
            return Next::Trip;
        }
        self.caches[turn.compute].keep(at, words);
        match (node.find(key), operation) {
            (Some((i, slot)), _) => {
                let slot_at = slot_at(turn.memory, (at, node), i);
                self.follow(task, (slot_at, slot), turn)
            }
            (None, Operation::Insert { value, .. }) => self.add(task, (key, value), (at, node), turn),
            (None, _) => Next::absent(operation),
        }
    }
}

/// READs a node with its first `slots` slots.
fn read_node(at: Address, slots: usize, turn: &mut Turn<'_>) -> Landed {
    read_words(at, slots, node_bytes(slots), turn)
}

impl Index for Smart {
    type Task = Task;

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        match task.stage {
            Stage::Begin if matches!(operation, Operation::Scan { .. }) => {
                task.stage = Stage::Scan;
                self.begin_scan(task, turn)
            }
            Stage::Scan => self.scan_on(task, turn),
            Stage::Begin => self.begin_at_cache(task, key, turn),
            Stage::Root(slot) => match (Slot(turn.landed.word(slot)), operation) {
                (slot, _) if slot.is_used() => self.follow(task, (self.root, slot), turn),
                (_, Operation::Insert { value, .. }) => {
                    let leaf = turn.memory.allocate(LEAF, leaf_bytes(self.sizes) as u64);
                    self.make_leaf(self.root, (key, value), leaf, turn);
                    let new = Slot::leaf(0, leaf).0;
                    task.link = Link { slot: self.root, old: 0, new, ..Link::default() };
                    task.stage = Stage::Made;
                    Next::Trip
                }
                _ => Next::absent(operation),
            },
            Stage::Node { at, landed: words } => self.take_node(task, (at, turn.landed.words(words)), turn),
            Stage::Made => {
                let Link { slot, old, new, .. } = task.link;
                task.stage = Stage::Linked(turn.trip.compare_swap(slot, (old, new), u64::MAX));
                Next::Trip
            }
            // Another was first.
            Stage::Linked(was) if turn.landed.word(was) != task.link.old => self.begin_again(task, key, turn),
            Stage::Linked(_) => {
                let Link { after: Some((at, word)), grown, .. } = task.link else {
                    return Next::Done(Answer::Written);
                };
                turn.trip.write(at, &[word], 8);
                if let Some((slot, old, new)) = grown {
                    turn.trip.compare_swap(slot, (old, new), u64::MAX);
                }
                task.stage = Stage::Written;
                Next::Trip
            }
            Stage::Turn(leaf) => self.ask_lock(task, leaf, turn),
            Stage::Leaf { at, landed: words, lock } => {
                let found = (turn.landed.words(words), lock.map(|lock| turn.landed.word(lock)));
                self.take_leaf(task, found, at, turn)
            }
            Stage::Written => Next::Done(Answer::Written),
            Stage::Absent => Next::absent(operation),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        (self.caches.iter().map(Cache::most_bytes).max().unwrap_or(0), 0)
    }

    fn shares_work(&self) -> bool {
        true
    }
}
