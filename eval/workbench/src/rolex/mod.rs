//! ROLEX: models over leaves in key order, read as ranges. See this folder's `README.md`.

use fpcache_index::{SegmentModel, SegmentOptions, Segmenter};

use crate::bench::{Answer, Operation};
use crate::kept::Kept;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Trip};
use crate::{BuildError, Sizes};

/// How ROLEX is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes a compute node may keep: models, and of leaf tables what is left.
    pub budget: u64,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Entries of a leaf.
    pub leaf_slots: usize,
}

impl Options {
    /// The published ones: an error bound of 16 and leaves of 16.
    pub fn published(budget: u64) -> Self {
        Self { budget, epsilon: 16, leaf_slots: 16 }
    }
}

/// Bytes of a model on a compute node.
const MODEL_BYTES: u64 = 16;
/// Bytes of a leaf's entry in the leaf table.
const TABLE_ENTRY: usize = 8;
/// Bytes of a leaf on a compute node: its entry in the leaf table, and as much of the synonym leaves' table; 1.0 byte per
/// key, as published, with leaves half full.
const CACHED_ENTRY: u64 = 16;
/// Leaves whose table entries are fetched and kept together.
const CHUNK: usize = 64;
/// The lock in a leaf's entry of the table.
const LOCK: u64 = 1 << 63;

/// A model, and the number of its first leaf.
#[derive(Clone, Copy, Debug)]
struct Model {
    model: SegmentModel,
    first_leaf: usize,
}

/// Models, leaves, and what compute nodes keep of the leaf table.
#[derive(Debug)]
pub struct Rolex {
    sizes: Sizes,
    options: Options,
    firsts: Vec<u64>,
    models: Vec<Model>,
    /// Where the leaf table lies.
    table: Address,
    leaves: usize,
    kept: Vec<Kept<Box<[u64]>>>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    operation: Option<Operation>,
    stage: Stage,
    /// Where the leaves lie that the key may be in, by their numbers.
    leaves: Vec<(usize, Address)>,
    landed: Vec<Landed>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Begin,
    /// Part of the leaf table, which begins at this chunk.
    Table {
        chunk: usize,
        landed: Landed,
    },
    Leaves,
    /// The lock of the leaf of this place among those read, and the leaf again.
    Lock {
        place: usize,
        lock: Landed,
        leaf: Landed,
    },
    Written,
}

impl Rolex {
    /// Models and leaves over ascending keys with their first values, for so many compute nodes.
    ///
    /// # Errors
    /// If the error bound is out of range, or the models do not fit the budget.
    pub fn new(
        memory: &mut Memory,
        keys: &[u64],
        sizes: Sizes,
        compute_nodes: u16,
        options: &Options,
    ) -> Result<Self, BuildError> {
        let of_index = SegmentOptions {
            epsilon: options.epsilon,
            fill: 1.0,
            max_slots: u16::MAX,
            ..SegmentOptions::default()
        };
        let (mut firsts, mut models, mut table) = (Vec::new(), Vec::new(), Vec::new());
        let slots = options.leaf_slots.max(1);
        let mut segmenter = Segmenter::new(of_index).map_err(|e| BuildError(e.to_string()))?;
        let (mut pieces, mut next) = (Vec::new(), 0);
        for key in keys {
            pieces.extend(segmenter.push(*key).map_err(|e| BuildError(e.to_string()))?);
        }
        pieces.extend(segmenter.finish());
        for piece in pieces {
            for placed in piece.place(&keys[next..next + piece.keys], &of_index) {
                let part = &keys[next..next + placed.keys];
                next += placed.keys;
                firsts.push(part[0]);
                models.push(Model { model: placed.model, first_leaf: table.len() });
                for records in part.chunks(slots) {
                    let at = memory.allocate(2 * slots, leaf_bytes(sizes, slots) as u64);
                    let leaf = memory.words_mut(at, 2 * slots).as_chunks_mut::<2>().0;
                    leaf.iter_mut().zip(records).for_each(|(entry, key)| *entry = [*key, first_value(*key)]);
                    // What is left free must not look like a key.
                    let free = [!records[0], 0];
                    leaf.iter_mut().skip(records.len()).for_each(|entry| *entry = free);
                    table.push(at);
                }
            }
        }
        let leaves = table.len();
        table.resize(leaves.next_multiple_of(CHUNK), 0);
        let at = memory.allocate(table.len(), (TABLE_ENTRY * leaves) as u64);
        memory.words_mut(at, table.len()).copy_from_slice(&table);
        let of_models = MODEL_BYTES * models.len() as u64;
        let Some(left) = options.budget.checked_sub(of_models) else {
            let why =
                format!("ROLEX's models take {of_models} bytes, more than the budget of {}", options.budget);
            return Err(BuildError(why));
        };
        let kept = |seed| Kept::new(left, CACHED_ENTRY * CHUNK as u64, u64::from(seed));
        let kept = (0..compute_nodes).map(kept).collect();
        Ok(Self { sizes, options: *options, firsts, models, table: at, leaves, kept })
    }

    /// The numbers of the leaves that a key may be in.
    fn leaves_of(&self, key: u64) -> (usize, usize) {
        let model = self.firsts.partition_point(|first| *first <= key).saturating_sub(1);
        let Some(Model { model, first_leaf }) = self.models.get(model) else { return (0, 0) };
        let (predicted, last) = (model.predict(key), u32::from(model.cap.saturating_sub(1)));
        let slots = self.options.leaf_slots;
        let first = predicted.saturating_sub(self.options.epsilon) as usize / slots;
        let last = (predicted + self.options.epsilon).min(last) as usize / slots;
        (first_leaf + first, first_leaf + last)
    }

    /// Asks for the leaves, or for the part of the leaf table that says where they lie.
    fn ask(&mut self, compute: usize, task: &mut Task, key: u64, trip: &mut Trip) -> Next {
        if self.leaves == 0 {
            return Next::Done(Answer::Value(None));
        }
        let (first, last) = self.leaves_of(key);
        task.leaves.clear();
        for leaf in first..=last {
            let chunk = leaf / CHUNK;
            match self.kept[compute].get(chunk as u64) {
                Some(entries) => task.leaves.push((leaf, entries[leaf % CHUNK] & !LOCK)),
                None => {
                    let at = self.table + (chunk * CHUNK) as u64;
                    task.stage = Stage::Table { chunk, landed: trip.read(at, CHUNK, CHUNK * TABLE_ENTRY) };
                    return Next::Trip;
                }
            }
        }
        self.ask_leaves(task, trip);
        Next::Trip
    }

    fn ask_leaves(&self, task: &mut Task, trip: &mut Trip) {
        let slots = self.options.leaf_slots;
        let read = |(_, at): &(usize, Address)| trip.read(*at, 2 * slots, leaf_bytes(self.sizes, slots));
        task.landed.clear();
        task.landed.extend(task.leaves.iter().map(read));
        task.stage = Stage::Leaves;
    }

    /// With the table's part at hand, whether or not there is room to keep it.
    fn take_table(
        &mut self,
        compute: usize,
        task: &mut Task,
        key: u64,
        (chunk, words): (usize, &[u64]),
        trip: &mut Trip,
    ) {
        self.kept[compute].keep(chunk as u64, words.into());
        let (first, last) = self.leaves_of(key);
        for leaf in first + task.leaves.len()..=last {
            let entry = match leaf / CHUNK == chunk {
                true => Some(words[leaf % CHUNK]),
                false => self.kept[compute].get((leaf / CHUNK) as u64).map(|entries| entries[leaf % CHUNK]),
            };
            let Some(entry) = entry else {
                let chunk = leaf / CHUNK;
                let at = self.table + (chunk * CHUNK) as u64;
                task.stage = Stage::Table { chunk, landed: trip.read(at, CHUNK, CHUNK * TABLE_ENTRY) };
                return;
            };
            task.leaves.push((leaf, entry & !LOCK));
        }
        self.ask_leaves(task, trip);
    }

    /// Asks for a leaf's lock, and for the leaf as it is then.
    fn ask_lock(&self, task: &mut Task, place: usize, trip: &mut Trip) -> Next {
        let (leaf, at) = task.leaves[place];
        let lock = trip.compare_swap(self.table + leaf as u64, (0, LOCK), LOCK);
        let slots = self.options.leaf_slots;
        let leaf = trip.read(at, 2 * slots, leaf_bytes(self.sizes, slots));
        task.stage = Stage::Lock { place, lock, leaf };
        Next::Trip
    }

    fn take_leaves(&self, task: &mut Task, operation: Operation, landed: &Trip, trip: &mut Trip) -> Next {
        let (Operation::Read { key } | Operation::Update { key, .. }) = operation;
        let found = task.landed.iter().enumerate().find_map(|(place, leaf)| {
            let entries = landed.words(*leaf).as_chunks::<2>().0;
            entries.iter().find(|[found, _]| *found == key).map(|[_, value]| (place, *value))
        });
        match (operation, found) {
            (Operation::Read { .. }, _) => Next::Done(Answer::Value(found.map(|(_, value)| value))),
            (Operation::Update { .. }, Some((place, _))) => self.ask_lock(task, place, trip),
            (Operation::Update { .. }, None) => Next::Done(Answer::Failed("there is no such key".into())),
        }
    }

    fn write(
        &self,
        task: &mut Task,
        (key, value): (u64, u64),
        place: usize,
        leaf: &[u64],
        trip: &mut Trip,
    ) -> Next {
        let (number, at) = task.leaves[place];
        let slot = leaf.as_chunks::<2>().0.iter().position(|[found, _]| *found == key).unwrap_or(0);
        trip.write(at + 2 * slot as u64 + 1, &[value], self.sizes.key + self.sizes.value);
        // The entry without the lock.
        trip.write(self.table + number as u64, &[at], TABLE_ENTRY);
        task.stage = Stage::Written;
        Next::Trip
    }
}

/// Bytes of a leaf: its records.
const fn leaf_bytes(sizes: Sizes, slots: usize) -> usize {
    slots * (sizes.key + sizes.value)
}

impl Index for Rolex {
    type Task = Task;

    fn begin(&mut self, _: usize, task: &mut Task, operation: Operation) {
        task.operation = Some(operation);
        task.stage = Stage::Begin;
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
            Stage::Begin => self.ask(compute, task, key, trip),
            Stage::Table { chunk, landed: words } => {
                self.take_table(compute, task, key, (chunk, landed.words(words)), trip);
                Next::Trip
            }
            Stage::Leaves => self.take_leaves(task, operation, landed, trip),
            // Another has it.
            Stage::Lock { place, lock, .. } if landed.word(lock) & LOCK != 0 => {
                self.ask_lock(task, place, trip)
            }
            Stage::Lock { place, leaf, .. } => {
                let Operation::Update { value, .. } = operation else {
                    return Next::Done(Answer::Failed("a read has locked a leaf".into()));
                };
                self.write(task, (key, value), place, landed.words(leaf), trip)
            }
            Stage::Written => Next::Done(Answer::Written),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let kept = self.kept.iter().map(Kept::most_bytes).max().unwrap_or(0);
        // Eight bytes of key that find the model, which the published accounting leaves out.
        (MODEL_BYTES * self.models.len() as u64 + kept, 8 * self.models.len() as u64)
    }
}
