//! Models over leaves, and the leaf table: what memory nodes train, and what a compute node knows
//! of it.

use std::rc::Rc;

use fpcache_index::{SegmentModel, SegmentOptions, Segmenter};

use super::leaf::{CHUNK, HEAD, TABLE_ENTRY, leaf_words};
use super::options::Options;
use crate::words::{Address, Memory};
use crate::{BuildError, Sizes};

/// Bytes of a model on a compute node.
pub(super) const MODEL_BYTES: u64 = 16;

/// A model, which stays what it is: training makes others of it.
#[derive(Debug)]
pub(super) struct Model {
    /// Among all there ever were.
    pub(super) number: usize,
    /// The least key that it is for; the first model is for those below as well.
    pub(super) first: u64,
    /// The least key that is the next model's.
    pub(super) end: Option<u64>,
    line: SegmentModel,
    /// The number of its first leaf.
    pub(super) first_leaf: usize,
    pub(super) leaves: usize,
    /// Where the count of its synonym leaves lies.
    pub(super) synonyms: Address,
}

impl Model {
    /// The numbers of the leaves that a key may be in, the first and the last.
    pub(super) fn leaves_of(&self, key: u64, options: &Options) -> (usize, usize) {
        let (predicted, last) = (self.line.predict(key), u32::from(self.line.cap.saturating_sub(1)));
        let first = predicted.saturating_sub(options.epsilon) as usize / options.leaf_slots;
        let last = (predicted + options.epsilon).min(last) as usize / options.leaf_slots;
        (self.first_leaf + first, self.first_leaf + last)
    }

    /// The greatest place in its leaves, and in those of the models after it, of `count` records
    /// from a key on.
    pub(super) fn last_place(&self, key: u64, count: u32, options: &Options) -> usize {
        self.line.predict(key) as usize + (options.epsilon + count.max(1) - 1) as usize
    }

    /// Places in its leaves.
    pub(super) fn places(&self) -> usize {
        self.line.cap.into()
    }

    /// The number of its last leaf.
    pub(super) fn last_leaf(&self) -> usize {
        self.first_leaf + self.leaves - 1
    }
}

/// What memory nodes have: every model there ever was, and the leaf table in parts of [`CHUNK`]
/// entries.
#[derive(Debug, Default)]
pub(super) struct Trained {
    pub(super) models: Vec<Rc<Model>>,
    /// Where each part of the leaf table lies.
    chunks: Vec<Address>,
    leaves: usize,
}

impl Trained {
    /// Trains models over ascending keys, each with what its entry says beside the key, given the
    /// leaf, and lays the records out in leaves, which get the next numbers. Returns how many
    /// models; they are for the keys of a range: from its beginning on, and below its end, if there
    /// is one.
    pub(super) fn train(
        &mut self,
        memory: &mut Memory,
        (keys, says): (&[u64], impl Fn(&mut Memory, Address, usize) -> u64),
        (beginning, end): (u64, Option<u64>),
        (sizes, options): (Sizes, &Options),
    ) -> Result<usize, BuildError> {
        let of_index = SegmentOptions {
            epsilon: options.epsilon,
            fill: 1.0,
            max_slots: u16::MAX,
            ..SegmentOptions::default()
        };
        let mut segmenter = Segmenter::new(of_index).map_err(|e| BuildError(e.to_string()))?;
        let mut pieces = Vec::new();
        for key in keys {
            pieces.extend(segmenter.push(*key).map_err(|e| BuildError(e.to_string()))?);
        }
        pieces.extend(segmenter.finish());
        let (before, mut next) = (self.models.len(), 0);
        for piece in pieces {
            for placed in piece.place(&keys[next..next + piece.keys], &of_index) {
                let first_leaf = self.leaves;
                let of_model = next..next + placed.keys;
                for from in of_model.clone().step_by(options.leaf_slots) {
                    let records = from..(from + options.leaf_slots).min(of_model.end);
                    let at = self.allocate_leaf(memory, (sizes, options));
                    memory.words_mut(at, 1)[0] = records.len() as u64;
                    for (entry, i) in records.enumerate() {
                        let said = says(memory, at, i);
                        let place = at + (HEAD + 2 * entry) as u64;
                        memory.words_mut(place, 2).copy_from_slice(&[keys[i], said]);
                    }
                }
                self.models.push(Rc::new(Model {
                    number: self.models.len(),
                    first: if next == 0 { beginning } else { keys[next] },
                    end: keys.get(of_model.end).copied().or(end),
                    line: placed.model,
                    first_leaf,
                    leaves: self.leaves - first_leaf,
                    synonyms: memory.allocate_beside(self.chunks[first_leaf / CHUNK], 1, 8),
                }));
                next = of_model.end;
            }
        }
        Ok(self.models.len() - before)
    }

    /// Makes room for the next leaf, on the node that has its entry of the leaf table.
    fn allocate_leaf(&mut self, memory: &mut Memory, (sizes, options): (Sizes, &Options)) -> Address {
        if self.leaves.is_multiple_of(CHUNK) {
            self.chunks.push(memory.allocate(CHUNK, (TABLE_ENTRY * CHUNK) as u64));
        }
        let entry = self.entry(self.leaves);
        let words = leaf_words(options.leaf_slots);
        let at = memory.allocate_beside(entry, words, options.leaf_bytes(sizes) as u64);
        memory.words_mut(entry, 1)[0] = at;
        self.leaves += 1;
        at
    }

    /// Where a leaf's entry of the leaf table lies.
    pub(super) fn entry(&self, leaf: usize) -> Address {
        self.chunks[leaf / CHUNK] + (leaf % CHUNK) as u64
    }

    /// Where a part of the leaf table lies.
    pub(super) fn chunk(&self, chunk: usize) -> Address {
        self.chunks[chunk]
    }
}

/// The models that a compute node knows, by the least key that each is for.
#[derive(Clone, Debug)]
pub(super) struct Known {
    firsts: Vec<u64>,
    models: Vec<Rc<Model>>,
    most: usize,
}

impl Known {
    /// These.
    pub(super) fn new(models: &[Rc<Model>]) -> Self {
        let firsts = models.iter().map(|model| model.first).collect();
        Self { firsts, models: models.to_vec(), most: models.len() }
    }

    fn place_of(&self, key: u64) -> usize {
        self.firsts.partition_point(|first| *first <= key).saturating_sub(1)
    }

    /// The model that a key belongs to; none if there are none.
    pub(super) fn of(&self, key: u64) -> Option<&Rc<Model>> {
        self.models.get(self.place_of(key))
    }

    /// Whether a model is one of these.
    pub(super) fn has(&self, model: &Model) -> bool {
        self.of(model.first).is_some_and(|of| of.number == model.number)
    }

    /// Puts others, which are for the same keys, in the place of one of these.
    pub(super) fn replace(&mut self, old: &Model, new: &[Rc<Model>]) {
        if !self.has(old) {
            return;
        }
        let place = self.place_of(old.first);
        self.firsts.splice(place..=place, new.iter().map(|model| model.first));
        self.models.splice(place..=place, new.iter().map(Rc::clone));
        self.most = self.most.max(self.models.len());
    }

    /// The most bytes that these took: as their authors count, and of the keys that find them,
    /// which they leave out.
    pub(super) fn most_bytes(&self) -> (u64, u64) {
        (MODEL_BYTES * self.most as u64, 8 * self.most as u64)
    }
}
