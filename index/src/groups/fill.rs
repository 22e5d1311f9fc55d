//! Which keys have which slots.

use std::ops::Range;

/// A key without a slot.
const NONE: u16 = u16::MAX;

/// A segment's slots while keys are put into them.
#[derive(Debug)]
pub(super) struct Slots {
    taken: Vec<bool>,
    /// The slot of each key.
    slots: Vec<u16>,
}

impl Slots {
    /// As many free slots, and keys.
    pub(super) fn new(cap: u16, keys: usize) -> Self {
        Self { taken: vec![false; usize::from(cap)], slots: vec![NONE; keys] }
    }

    /// Gives a key a free slot.
    pub(super) fn put(&mut self, key: usize, slot: u16) {
        debug_assert!(self.slots[key] == NONE && !self.taken[usize::from(slot)]);
        self.slots[key] = slot;
        self.taken[usize::from(slot)] = true;
    }

    /// Gives keys, in their order, free slots from `first` on, as far as there are some among the next `len`.
    pub(super) fn fill(&mut self, keys: Range<usize>, first: u16, len: u16) {
        let free = (first..first + len).filter(|slot| !self.taken[usize::from(*slot)]);
        for (key, slot) in keys.zip(free.collect::<Vec<_>>()) {
            self.put(key, slot);
        }
    }

    /// Gives all keys that have none the free slots nearest to their blocks, of as many slots, and says which keys these are.
    pub(super) fn place_the_rest(&mut self, block_of: impl Fn(usize) -> usize, block: u16) -> Vec<u32> {
        let rest: Vec<usize> = (0..self.slots.len()).filter(|key| self.slots[*key] == NONE).collect();
        for key in &rest {
            let middle = block_of(*key) * usize::from(block) + usize::from(block) / 2;
            let after = (middle..self.taken.len()).find(|slot| !self.taken[*slot]);
            let before = (0..middle.min(self.taken.len())).rev().find(|slot| !self.taken[*slot]);
            let nearest = match (before, after) {
                (Some(before), Some(after)) if middle - before <= after - middle => Some(before),
                (before, after) => after.or(before),
            };
            // A segment has a slot for each key, and slots are numbered by 16 bits.
            if let Some(slot) = nearest {
                self.put(*key, slot as u16);
            }
        }
        // A segment has fewer keys than 2^16.
        rest.into_iter().map(|key| key as u32).collect()
    }

    /// The slot of each key.
    pub(super) fn into_slots(self) -> Vec<u16> {
        self.slots
    }
}
