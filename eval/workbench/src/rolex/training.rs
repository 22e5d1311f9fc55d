//! Training in the background: a memory node's core makes new models, with leaves in order, of one
//! that has got many synonym leaves.
//!
//! Clients go on meanwhile with the model as it was. When the core is through it locks the model's
//! leaves as clients do, waits for those that a client has locked, and puts the new models in the
//! old one's place in one moment. Old leaves say so and stay locked: a client that finds one READs
//! the new models, and begins again.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use hashbrown::HashMap;

use super::leaf::{HEAD, LOCK, leaf_words, records};
use super::models::{Model, Trained};
use super::options::Options;
use crate::Sizes;
use crate::nic::{Picos, Target};
use crate::words::{Address, Memory};

/// A core's time for a leaf: 300 us for 128 (section 4.5 of the paper).
const LEAF: Picos = 300_000_000 / 128;
/// The time until it looks again whether a client has unlocked a leaf.
const AGAIN: Picos = 1_000_000;

/// Models that are to be trained, the one that is being trained, and what replaced others.
#[derive(Debug, Default)]
pub(super) struct Training {
    /// Numbers of models, as clients have put them into the ring.
    ring: VecDeque<usize>,
    under_way: Option<UnderWay>,
    /// What the core begins to do.
    begins: Option<(u16, Picos)>,
    /// The models that took the place of one.
    became: HashMap<usize, Range<usize>>,
}

#[derive(Debug)]
struct UnderWay {
    model: Rc<Model>,
    /// Numbers of leaves that are not locked yet.
    unlocked: Vec<usize>,
}

impl Training {
    /// A client has put a model's number into the ring.
    pub(super) fn wanted(&mut self, number: usize, trained: &Trained, memory: &Memory) {
        self.ring.push_back(number);
        self.begin(trained, memory);
    }

    /// Begins with the next one, unless one is under way.
    fn begin(&mut self, trained: &Trained, memory: &Memory) {
        if self.under_way.is_some() {
            return;
        }
        let Some(model) = self.ring.pop_front().and_then(|number| trained.models.get(number)) else { return };
        let synonyms = memory.words(model.synonyms, 1)[0];
        let unlocked = (model.first_leaf..=model.last_leaf()).collect();
        self.begins = Some((node(model), (model.leaves as u64 + synonyms) * LEAF));
        self.under_way = Some(UnderWay { model: Rc::clone(model), unlocked });
    }

    /// What the core begins to do.
    pub(super) fn begins(&mut self) -> Option<(u16, Picos)> {
        self.begins.take()
    }

    /// The core is through, or looks again: if all leaves are locked the new models take the old
    /// one's place.
    pub(super) fn go_on(
        &mut self,
        trained: &mut Trained,
        memory: &mut Memory,
        (sizes, options): (Sizes, &Options),
    ) {
        let Some(UnderWay { model, unlocked }) = &mut self.under_way else { return };
        unlocked.retain(|leaf| {
            let entry = &mut memory.words_mut(trained.entry(*leaf), 1)[0];
            let is_locked = *entry & LOCK != 0;
            *entry |= LOCK;
            is_locked
        });
        if !unlocked.is_empty() {
            self.begins = Some((node(model), AGAIN));
            return;
        }
        let model = Rc::clone(model);
        self.under_way = None;
        let all = leaves(trained, memory, &model, options.leaf_slots);
        let mut entries: Vec<[u64; 2]> = Vec::new();
        for leaf in &all {
            entries.extend(records(memory.words(*leaf, leaf_words(options.leaf_slots))));
        }
        entries.sort_unstable();
        let keys: Vec<u64> = entries.iter().map(|[key, _]| *key).collect();
        let (before, says) = (trained.models.len(), |_: &mut Memory, _: Address, i: usize| entries[i][1]);
        let range = (model.first, model.end);
        match trained.train(memory, (&keys, says), range, (sizes, options)) {
            Ok(count) => {
                self.became.insert(model.number, before..before + count);
                all.into_iter().for_each(|leaf| memory.words_mut(leaf, HEAD)[2] = model.number as u64 + 1);
            }
            // The options were good for the first models. Whatever it is, the old one is as good as
            // before.
            Err(_) => {
                for leaf in model.first_leaf..=model.last_leaf() {
                    memory.words_mut(trained.entry(leaf), 1)[0] &= !LOCK;
                }
            }
        }
        self.begin(trained, memory);
    }

    /// The models that took the place of one.
    pub(super) fn became(&self, number: usize) -> Range<usize> {
        self.became.get(&number).cloned().unwrap_or_default()
    }
}

/// The memory node that trains a model.
fn node(model: &Model) -> u16 {
    match Memory::node_of(model.synonyms) {
        Target::Memory(node) | Target::Compute(node) => node,
    }
}

/// A model's leaves and their synonym leaves.
fn leaves(trained: &Trained, memory: &Memory, model: &Model, slots: usize) -> Vec<Address> {
    let mut all = Vec::new();
    for leaf in model.first_leaf..=model.last_leaf() {
        let mut at = memory.words(trained.entry(leaf), 1)[0] & !LOCK;
        while at != 0 {
            all.push(at);
            at = memory.words(at, leaf_words(slots))[1];
        }
    }
    all
}
