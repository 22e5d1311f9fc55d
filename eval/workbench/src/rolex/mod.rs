//! ROLEX: models over leaves in key order, read as ranges. See this folder's `README.md`.

mod leaf;
mod models;
mod options;
mod scan;
mod task;
mod training;

use std::rc::Rc;

use crate::bench::{Answer, Operation};
use crate::kept::Kept;
use crate::local_locks::Claim;
use crate::nic::{Picos, Target, Verb};
use crate::oracle::first_value;
use crate::words::{Address, Index, Landed, Memory, Next, Turn};
use crate::{BuildError, Sizes};
use leaf::{CHUNK, HEAD, LOCK, TABLE_ENTRY, leaf_words, records, replaced};
use models::{Known, MODEL_BYTES, Model, Trained};
pub use options::{Options, POINTER_BYTES};
use task::Stage;
pub use task::Task;
use training::Training;

/// Bytes of a leaf on a compute node: its entry in the leaf table, and as much of the synonym
/// leaves' table; of leaves of 16 that are full, as they are loaded, the 1.0 byte per key that is
/// published.
const CACHED_ENTRY: u64 = 16;
/// Synonym leaves at which a model is to be trained anew: half of what its table has room for.
const TRAINED_FROM: u64 = 128;
/// Uses in a row of a lock by clients of a compute node: its paper does not say, Sherman's does.
const HANDOVERS: u32 = 8;
/// Models, leaves, and what compute nodes know of them.
#[derive(Debug)]
pub struct Rolex {
    sizes: Sizes,
    options: Options,
    trained: Trained,
    training: Training,
    /// Counts leaves.
    counter: Address,
    /// Models of each compute node.
    known: Vec<Known>,
    /// Parts of the leaf table of each compute node.
    kept: Vec<Kept<Box<[u64]>>>,
}

impl Rolex {
    /// Models and leaves over ascending keys with their first values, for all compute nodes.
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
        let options = Options { leaf_slots: options.leaf_slots.max(1), ..*options };
        let mut trained = Trained::default();
        let says = |memory: &mut Memory, leaf: Address, i: usize| match options.behind_pointers {
            true => new_value(memory, leaf, (first_value(keys[i]), sizes)),
            false => first_value(keys[i]),
        };
        trained.train(memory, (keys, says), (keys.first().copied().unwrap_or(0), None), (sizes, &options))?;
        let of_models = MODEL_BYTES * trained.models.len() as u64;
        let Some(left) = options.budget.checked_sub(of_models) else {
            let why =
                format!("ROLEX's models take {of_models} bytes, more than the budget of {}", options.budget);
            return Err(BuildError(why));
        };
        let kept = |seed| Kept::new(left, CACHED_ENTRY * CHUNK as u64, u64::from(seed));
        Ok(Self {
            sizes,
            options,
            training: Training::default(),
            counter: memory.allocate(1, 8),
            known: vec![Known::new(&trained.models); compute_nodes.into()],
            kept: (0..compute_nodes).map(kept).collect(),
            trained,
        })
    }

    /// Finds the leaves that an operation wants, and asks for them.
    fn begin(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let Some(model) = self.known[turn.compute].of(turn.operation.key()).map(Rc::clone) else {
            return Next::Done(match turn.operation {
                Operation::Scan { .. } => Answer::Records(Vec::new()),
                _ => Answer::Value(None),
            });
        };
        task.wanted.clear();
        task.records.clear();
        match turn.operation {
            Operation::Scan { key, count } => self.want_scan(task, model, (key, count), turn.compute),
            _ => {
                let (first, last) = model.leaves_of(turn.operation.key(), &self.options);
                task.wanted.extend(first..=last);
                task.model = Some(model);
            }
        }
        self.ask(task, turn)
    }

    /// Asks for the leaves, or for the part of the leaf table that says where they lie.
    fn ask(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        task.leaves.clear();
        self.ask_on(task, None, turn)
    }

    /// The same for leaves of unknown place, with a table part that has just landed, kept or not.
    fn ask_on(&mut self, task: &mut Task, landed: Option<(usize, &[u64])>, turn: &mut Turn<'_>) -> Next {
        while let Some(leaf) = task.wanted.get(task.leaves.len()).copied() {
            let chunk = leaf / CHUNK;
            let entry = match landed {
                Some((of, words)) if of == chunk => Some(words[leaf % CHUNK]),
                _ => self.kept[turn.compute].get(chunk as u64).map(|entries| entries[leaf % CHUNK]),
            };
            // One that was kept before the leaf was there does not know it.
            let Some(entry) = entry.filter(|entry| *entry != 0) else {
                let landed = turn.trip.read(self.trained.chunk(chunk), CHUNK, CHUNK * TABLE_ENTRY);
                task.stage = Stage::Table { chunk, landed };
                return Next::Trip;
            };
            task.leaves.push((leaf, entry & !LOCK));
        }
        self.ask_leaves(task, turn);
        Next::Trip
    }

    fn ask_leaves(&self, task: &mut Task, turn: &mut Turn<'_>) {
        task.landed.clear();
        task.landed.extend(task.leaves.iter().map(|(_, at)| self.read_leaf(*at, turn)));
        task.stage = Stage::Leaves;
    }

    /// Asks for a leaf's lock when it has its turn, and for the leaf as it is then.
    fn ask_lock(&self, task: &mut Task, place: usize, turn: &mut Turn<'_>) -> Next {
        let (leaf, at) = task.leaves[place];
        let entry = self.trained.entry(leaf);
        let lock = match turn.claim(entry) {
            Claim::Waits => {
                task.stage = Stage::Turn(place);
                return Next::Waits;
            }
            Claim::Held => None,
            Claim::Try => Some(turn.trip.compare_swap(entry, (0, LOCK), LOCK)),
        };
        let leaf = self.read_leaf(at, turn);
        task.stage = Stage::Lock { place, lock, leaf };
        Next::Trip
    }

    fn take_leaves(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let (operation, key, landed) = (turn.operation, turn.operation.key(), turn.landed);
        let leaves = || task.landed.iter().map(|leaf| landed.words(*leaf));
        if let Some(old) = leaves().find_map(replaced) {
            return self.ask_models(task, old, turn);
        }
        if operation.written().is_none() {
            let found = leaves().flat_map(records).find(|[found, _]| *found == key);
            if let Some([_, said]) = found {
                return self.end_read(task, *said, turn);
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

    /// A model was replaced: asks for its successors and their table parts, unless known by now.
    fn ask_models(&mut self, task: &mut Task, old: usize, turn: &mut Turn<'_>) -> Next {
        if !self.known[turn.compute].has(&self.trained.models[old]) {
            return self.begin(task, turn);
        }
        let new = &self.trained.models[self.training.became(old)];
        let bytes = new.len() * (MODEL_BYTES as usize + 8);
        task.landed.clear();
        // The models' own bytes are READ; what they say is taken from where they were trained.
        turn.trip.read(self.trained.models[old].synonyms, 1, bytes);
        for chunk in chunks(new) {
            task.landed.push(turn.trip.read(self.trained.chunk(chunk), CHUNK, CHUNK * TABLE_ENTRY));
        }
        task.stage = Stage::Models(old);
        Next::Trip
    }

    fn take_models(&mut self, task: &mut Task, old: usize, turn: &mut Turn<'_>) -> Next {
        let new = &self.trained.models[self.training.became(old)];
        for (chunk, landed) in chunks(new).zip(&task.landed) {
            self.kept[turn.compute].keep(chunk as u64, turn.landed.words(*landed).into());
        }
        self.known[turn.compute].replace(&self.trained.models[old], new);
        self.begin(task, turn)
    }

    fn read_leaf(&self, at: Address, turn: &mut Turn<'_>) -> Landed {
        turn.trip.read(at, leaf_words(self.options.leaf_slots), self.options.leaf_bytes(self.sizes))
    }

    /// Ends a lookup with what its key's entry says: the value, or its place, for one READ more.
    fn end_read(&self, task: &mut Task, said: u64, turn: &mut Turn<'_>) -> Next {
        if !self.options.behind_pointers {
            return Next::Done(Answer::Value(Some(said)));
        }
        task.stage = Stage::Value(turn.trip.read(said, 1, self.sizes.value));
        Next::Trip
    }

    /// WRITEs what an entry of a leaf, or beside it, is to say beside its key: the value stands in
    /// its place, or is the returned pointer's.
    fn write_value(&self, leaf: Address, value: u64, turn: &mut Turn<'_>) -> u64 {
        if !self.options.behind_pointers {
            return value;
        }
        let at = new_value(turn.memory, leaf, (0, self.sizes));
        turn.trip.write(at, &[value], self.sizes.value);
        at
    }

    /// Looks for the key in a leaf or synonym leaf whose lock is held, and writes it if it is to.
    fn take_leaf(
        &mut self,
        task: &mut Task,
        (at, place, leaf): (Address, usize, &[u64]),
        turn: &mut Turn<'_>,
    ) -> Next {
        let (operation, key) = (turn.operation, turn.operation.key());
        let found = records(leaf).iter().position(|[found, _]| *found == key);
        let (count, synonym) = (leaf[0] as usize, leaf[1]);
        let record_bytes = self.options.record_bytes(self.sizes);
        let entry_at = |entry: usize| at + (HEAD + 2 * entry) as u64;
        match (operation, found) {
            (Operation::Read { .. }, Some(entry)) => {
                return self.end_read(task, records(leaf)[entry][1], turn);
            }
            (Operation::Update { value, .. } | Operation::Insert { value, .. }, Some(entry))
                if self.options.behind_pointers =>
            {
                turn.trip.write(records(leaf)[entry][1], &[value], self.sizes.value);
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
                let says = self.write_value(at, value, turn);
                turn.trip.write(entry_at(count), &[key, says], record_bytes);
                turn.trip.and_write(at, &[leaf[0] + 1]);
            }
            (Operation::Insert { value, .. }, None) => {
                self.make_synonym(task, at, (key, value), turn);
            }
            (Operation::Update { .. } | Operation::Scan { .. }, _) => task.is_absent = true,
        }
        // The entry without the lock.
        let (number, leaf) = task.leaves[place];
        turn.unlock(self.trained.entry(number), leaf, TABLE_ENTRY);
        task.stage = Stage::Written;
        Next::Trip
    }

    /// Makes a synonym leaf for a record.
    fn make_synonym(&self, task: &mut Task, at: Address, (key, value): (u64, u64), turn: &mut Turn<'_>) {
        let (count, bytes) = (leaf_words(self.options.leaf_slots), self.options.leaf_bytes(self.sizes));
        // Memory comes from a counter; another counts the model's synonym leaves.
        let new = turn.memory.allocate_beside(at, count, bytes as u64);
        turn.trip.fetch_add(self.counter);
        if let Some(model) = &task.model {
            task.synonyms = Some((Rc::clone(model), turn.trip.fetch_add(model.synonyms)));
        }
        let says = self.write_value(at, value, turn);
        let mut words = vec![0; count];
        (words[0], words[HEAD], words[HEAD + 1]) = (1, key, says);
        turn.trip.write(new, &words, bytes);
        // The synonym's place in the leaf table, with the unlock.
        turn.trip.write(at + 1, &[new], TABLE_ENTRY);
    }

    /// Ends a write; after one synonym leaf too many a memory node is told, but not waited for.
    fn end_write(&self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        match task.synonyms.take() {
            Some((model, landed)) if turn.landed.word(landed) + 1 == TRAINED_FROM => {
                let to = Memory::node_of(model.synonyms);
                turn.trip.tell(to, Verb::Write, &[model.number as u64], 8);
                task.stage = Stage::Told;
                Next::Trip
            }
            _ => Next::written(!task.is_absent),
        }
    }
}

/// Room for a value behind a pointer, beside the leaf that has the pointer, with this in it.
fn new_value(memory: &mut Memory, leaf: Address, (value, sizes): (u64, Sizes)) -> Address {
    let at = memory.allocate_beside(leaf, 1, sizes.value as u64);
    memory.words_mut(at, 1)[0] = value;
    at
}

/// Parts of the leaf table that these models' leaves are in.
fn chunks(models: &[Rc<Model>]) -> std::ops::Range<usize> {
    match models {
        [first, .., last] => first.first_leaf / CHUNK..last.last_leaf() / CHUNK + 1,
        [one] => one.first_leaf / CHUNK..one.last_leaf() / CHUNK + 1,
        [] => 0..0,
    }
}

impl Index for Rolex {
    type Task = Task;

    fn clear(task: &mut Task) {
        (task.stage, task.is_absent, task.synonyms) = (Stage::Begin, false, None);
    }

    fn step(&mut self, task: &mut Task, turn: &mut Turn<'_>) -> Next {
        let landed = turn.landed;
        match task.stage {
            Stage::Begin => self.begin(task, turn),
            Stage::Table { chunk, landed: words } => {
                let words = landed.words(words);
                self.kept[turn.compute].keep(chunk as u64, words.into());
                self.ask_on(task, Some((chunk, words)), turn)
            }
            Stage::Leaves if matches!(turn.operation, Operation::Scan { .. }) => self.take_scan(task, turn),
            Stage::Leaves => self.take_leaves(task, turn),
            Stage::Synonyms => self.take_synonyms(task, turn),
            Stage::Turn(place) => self.ask_lock(task, place, turn),
            Stage::Lock { place, lock, leaf } => match replaced(landed.words(leaf)) {
                Some(old) => {
                    // A leaf that was replaced stays locked.
                    turn.give_up();
                    self.ask_models(task, old, turn)
                }
                // Another client has it.
                None if lock.is_some_and(|lock| landed.word(lock) & LOCK != 0) => {
                    self.ask_lock(task, place, turn)
                }
                None => self.take_leaf(task, (task.leaves[place].1, place, landed.words(leaf)), turn),
            },
            Stage::Synonym { at, place, landed: leaf } => match replaced(landed.words(leaf)) {
                Some(old) => self.ask_models(task, old, turn),
                None => self.take_leaf(task, (at, place, landed.words(leaf)), turn),
            },
            Stage::Value(value) => Next::Done(Answer::Value(Some(landed.word(value)))),
            Stage::Values => task.take_values(landed),
            Stage::Models(old) => self.take_models(task, old, turn),
            Stage::Written => self.end_write(task, turn),
            Stage::Told => Next::written(!task.is_absent),
        }
    }

    fn receive(&mut self, _: Target, words: &mut [u64], memory: &mut Memory) {
        self.training.wanted(words[0] as usize, &self.trained, memory);
    }

    fn next_background(&mut self) -> Option<(u16, Picos)> {
        self.training.begins()
    }

    fn end_background(&mut self, memory: &mut Memory) {
        self.training.go_on(&mut self.trained, memory, (self.sizes, &self.options));
    }

    fn compute_bytes(&self) -> (u64, u64) {
        let of = |(known, kept): (&Known, &Kept<_>)| {
            // Eight bytes of key that find a model, which the published accounting leaves out.
            let (models, beside) = known.most_bytes();
            (models + kept.most_bytes(), beside)
        };
        self.known.iter().zip(&self.kept).map(of).max().unwrap_or_default()
    }

    fn shares_work(&self) -> bool {
        self.options.shares_work
    }

    fn handovers(&self) -> u32 {
        HANDOVERS
    }
}
