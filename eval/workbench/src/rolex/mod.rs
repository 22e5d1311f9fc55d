//! ROLEX: models over leaves in key order, read as ranges. See this folder's `README.md`.

mod scan;

use fpcache_index::{SegmentModel, SegmentOptions, Segmenter};

use crate::bench::{Answer, Operation};
use crate::kept::Kept;
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
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
/// Words before a leaf's entries: how many are used, and its synonym leaf.
const HEAD: usize = 2;
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
    /// Counts synonym leaves.
    counter: Address,
    kept: Vec<Kept<Box<[u64]>>>,
}

/// An operation under way.
#[derive(Debug, Default)]
pub struct Task {
    stage: Stage,
    /// The first and the last of the leaves that are wanted.
    wanted: (usize, usize),
    /// Where they lie, by their numbers, as far as that is known.
    leaves: Vec<(usize, Address)>,
    landed: Vec<Landed>,
    /// There was no record to update.
    is_absent: bool,
    /// Records that a scan has found, not in order.
    records: Vec<(u64, u64)>,
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
    /// Synonym leaves of a scan's.
    Synonyms,
    /// The lock of the leaf of this place among those read, and the leaf again.
    Lock {
        place: usize,
        lock: Landed,
        leaf: Landed,
    },
    /// A synonym leaf of the leaf of this place.
    Synonym {
        at: Address,
        place: usize,
        landed: Landed,
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
                    let at = memory.allocate(leaf_words(slots), leaf_bytes(sizes, slots) as u64);
                    let leaf = memory.words_mut(at, leaf_words(slots));
                    leaf[0] = records.len() as u64;
                    let entries = leaf[HEAD..].as_chunks_mut::<2>().0.iter_mut();
                    entries.zip(records).for_each(|(entry, key)| *entry = [*key, first_value(*key)]);
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
        Ok(Self {
            sizes,
            options: *options,
            firsts,
            models,
            table: at,
            leaves,
            counter: memory.allocate(1, 8),
            kept,
        })
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
    fn ask(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (first, last) = task.wanted;
        task.leaves.clear();
        for leaf in first..=last {
            let chunk = leaf / CHUNK;
            match self.kept[turn.compute].get(chunk as u64) {
                Some(entries) => task.leaves.push((leaf, entries[leaf % CHUNK] & !LOCK)),
                None => {
                    let at = self.table + (chunk * CHUNK) as u64;
                    task.stage =
                        Stage::Table { chunk, landed: turn.trip.read(at, CHUNK, CHUNK * TABLE_ENTRY) };
                    return Next::Trip;
                }
            }
        }
        self.ask_leaves(task, turn);
        Next::Trip
    }

    fn ask_leaves(&self, task: &mut Task, turn: &mut Turn<'_>) {
        let slots = self.options.leaf_slots;
        let read = |(_, at): &(usize, Address)| {
            turn.trip.read(*at, leaf_words(slots), leaf_bytes(self.sizes, slots))
        };
        task.landed.clear();
        task.landed.extend(task.leaves.iter().map(read));
        task.stage = Stage::Leaves;
    }

    /// With the table's part at hand, whether or not there is room to keep it.
    fn take_table(&mut self, task: &mut Task, (chunk, words): (usize, &[u64]), turn: &mut Turn<'_>) {
        self.kept[turn.compute].keep(chunk as u64, words.into());
        let (first, last) = task.wanted;
        for leaf in first + task.leaves.len()..=last {
            let entry = match leaf / CHUNK == chunk {
                true => Some(words[leaf % CHUNK]),
                false => {
                    self.kept[turn.compute].get((leaf / CHUNK) as u64).map(|entries| entries[leaf % CHUNK])
                }
            };
            let Some(entry) = entry else {
                let chunk = leaf / CHUNK;
                let at = self.table + (chunk * CHUNK) as u64;
                task.stage = Stage::Table { chunk, landed: turn.trip.read(at, CHUNK, CHUNK * TABLE_ENTRY) };
                return;
            };
            task.leaves.push((leaf, entry & !LOCK));
        }
        self.ask_leaves(task, turn);
    }

    /// Asks for a leaf's lock, and for the leaf as it is then.
    fn ask_lock(&self, task: &mut Task, place: usize, turn: &mut Turn<'_>) -> Next {
        let (leaf, at) = task.leaves[place];
        let lock = turn.trip.compare_swap(self.table + leaf as u64, (0, LOCK), LOCK);
        let slots = self.options.leaf_slots;
        let leaf = turn.trip.read(at, leaf_words(slots), leaf_bytes(self.sizes, slots));
        task.stage = Stage::Lock { place, lock, leaf };
        Next::Trip
    }

    fn take_leaves(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (operation, key, landed) = (turn.operation, turn.operation.key(), turn.landed);
        let leaves = || task.landed.iter().map(|leaf| landed.words(*leaf));
        if operation.written().is_none() {
            let found = leaves().flat_map(records).find(|[found, _]| *found == key);
            if let Some([_, value]) = found {
                return Next::Done(Answer::Value(Some(*value)));
            }
        }
        // Leaves never lose their least record: the key's is the last one that begins before it.
        let begins = |leaf: &[u64]| records(leaf).first().is_some_and(|[first, _]| *first <= key);
        let place = leaves().rposition(begins).unwrap_or(0);
        if operation.written().is_some() {
            return self.ask_lock(task, place, turn);
        }
        match task.landed.get(place).map(|leaf| landed.words(*leaf)[1]) {
            None | Some(0) => Next::Done(Answer::Value(None)),
            Some(synonym) => {
                task.stage = Stage::Synonym { at: synonym, place, landed: self.read_leaf(synonym, turn) };
                Next::Trip
            }
        }
    }

    fn read_leaf(&self, at: Address, turn: &mut Turn<'_>) -> Landed {
        let slots = self.options.leaf_slots;
        turn.trip.read(at, leaf_words(slots), leaf_bytes(self.sizes, slots))
    }

    /// Looks for the key in a leaf, or a synonym leaf, and if it is to be written, writes it: the leaf's lock is held.
    fn take_leaf(
        &self,
        task: &mut Task,
        (at, place, leaf): (Address, usize, &[u64]),
        turn: &mut Turn<'_>,
    ) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        let found = records(leaf).iter().position(|[found, _]| *found == key);
        let (count, synonym) = (leaf[0] as usize, leaf[1]);
        let record_bytes = self.sizes.key + self.sizes.value;
        let entry_at = |entry: usize| at + (HEAD + 2 * entry) as u64;
        match (operation, found) {
            (Operation::Read { .. }, Some(entry)) => {
                return Next::Done(Answer::Value(Some(records(leaf)[entry][1])));
            }
            (Operation::Update { value, .. } | Operation::Insert { value, .. }, Some(entry)) => {
                turn.trip.write(entry_at(entry) + 1, &[value], record_bytes);
            }
            (_, None) if synonym != 0 => {
                task.stage = Stage::Synonym { at: synonym, place, landed: self.read_leaf(synonym, turn) };
                return Next::Trip;
            }
            (Operation::Read { .. }, None) => return Next::Done(Answer::Value(None)),
            (Operation::Insert { value, .. }, None) if count < self.options.leaf_slots => {
                turn.trip.write(entry_at(count), &[key, value], record_bytes);
                turn.trip.and_write(at, &[leaf[0] + 1]);
            }
            (Operation::Insert { value, .. }, None) => {
                let slots = self.options.leaf_slots;
                let bytes = leaf_bytes(self.sizes, slots);
                let new = turn.memory.allocate(leaf_words(slots), bytes as u64);
                let mut words = vec![0; leaf_words(slots)];
                (words[0], words[2], words[3]) = (1, key, value);
                turn.trip.write(new, &words, bytes);
                // The synonym's place in the leaf table, with the unlock; memory of its own comes from a counter.
                turn.trip.write(at + 1, &[new], TABLE_ENTRY);
                turn.trip.fetch_add(self.counter);
            }
            (Operation::Update { .. } | Operation::Scan { .. }, _) => task.is_absent = true,
        }
        // The entry without the lock.
        let (number, leaf) = task.leaves[place];
        turn.trip.write(self.table + number as u64, &[leaf], TABLE_ENTRY);
        task.stage = Stage::Written;
        Next::Trip
    }
}

const fn leaf_words(slots: usize) -> usize {
    HEAD + 2 * slots
}

/// A leaf's used entries.
fn records(leaf: &[u64]) -> &[[u64; 2]] {
    &leaf[HEAD..].as_chunks::<2>().0[..leaf[0] as usize]
}

/// Bytes of a leaf: its records.
const fn leaf_bytes(sizes: Sizes, slots: usize) -> usize {
    slots * (sizes.key + sizes.value)
}

impl Index for Rolex {
    type Task = Task;

    fn clear(task: &mut Task) {
        (task.stage, task.is_absent) = (Stage::Begin, false);
        task.records.clear();
    }

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let key = turn.operation.key();
        match task.stage {
            Stage::Begin => {
                task.wanted = match turn.operation {
                    _ if self.leaves == 0 => return Next::Done(self.nothing(turn.operation)),
                    Operation::Scan { key, count } => self.leaves_of_scan(key, count),
                    _ => self.leaves_of(key),
                };
                self.ask(task, turn)
            }
            Stage::Table { chunk, landed: words } => {
                self.take_table(task, (chunk, turn.landed.words(words)), turn);
                Next::Trip
            }
            Stage::Leaves if matches!(turn.operation, Operation::Scan { .. }) => self.take_scan(task, turn),
            Stage::Leaves => self.take_leaves(task, turn),
            Stage::Synonyms => self.take_synonyms(task, turn),
            // Another has it.
            Stage::Lock { place, lock, .. } if turn.landed.word(lock) & LOCK != 0 => {
                self.ask_lock(task, place, turn)
            }
            Stage::Lock { place, leaf, .. } => {
                let leaf = (task.leaves[place].1, place, turn.landed.words(leaf));
                self.take_leaf(task, leaf, turn)
            }
            Stage::Synonym { at, place, landed: leaf } => {
                self.take_leaf(task, (at, place, turn.landed.words(leaf)), turn)
            }
            Stage::Written => Next::written(!task.is_absent),
        }
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let kept = self.kept.iter().map(Kept::most_bytes).max().unwrap_or(0);
        // Eight bytes of key that find the model, which the published accounting leaves out.
        (MODEL_BYTES * self.models.len() as u64 + kept, 8 * self.models.len() as u64)
    }
}
