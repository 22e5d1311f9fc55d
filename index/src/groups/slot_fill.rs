//! The slots of a segment while keys are put into them.

/// A key without a slot.
const NONE: u16 = u16::MAX;

/// Where to go on from places that are known to be taken: a forest of places whose roots were free
/// when they were last looked at (union-find with path halving), so that no stretch of taken places
/// is walked twice.
#[derive(Debug)]
struct Steps(Vec<u32>);

impl Steps {
    /// Nothing known of `places` places.
    fn new(places: usize) -> Self {
        // Fewer than 2^16, and the end.
        Self((0..=places as u32).collect())
    }

    /// The first place from this one on that is not taken, or the end.
    fn next(&mut self, from: usize, is_taken: impl Fn(usize) -> bool) -> usize {
        let (mut at, last) = (from, self.0.len() - 1);
        loop {
            let to = self.0[at] as usize;
            if to == at && (at == last || !is_taken(at)) {
                return at;
            }
            self.0[at] = if to == at { at as u32 + 1 } else { self.0[to] };
            at = self.0[at] as usize;
        }
    }
}

/// A segment's slots while keys are put into them.
#[derive(Debug)]
pub(super) struct SlotFill {
    taken: Vec<bool>,
    /// The slot of each key.
    slots: Vec<u16>,
}

impl SlotFill {
    /// `cap` free slots, and `keys` keys.
    pub(super) fn new(cap: u16, keys: usize) -> Self {
        Self { taken: vec![false; usize::from(cap)], slots: vec![NONE; keys] }
    }

    /// Gives a key a free slot.
    pub(super) fn put(&mut self, key: usize, slot: u16) {
        debug_assert!(self.slots[key] == NONE && !self.taken[usize::from(slot)]);
        self.slots[key] = slot;
        self.taken[usize::from(slot)] = true;
    }

    /// Gives keys, in their order, these slots, as far as they are free.
    pub(super) fn fill(&mut self, keys: &[usize], among: impl Iterator<Item = u16>) {
        let mut keys = keys.iter();
        for slot in among {
            if self.taken[usize::from(slot)] {
                continue;
            }
            let Some(key) = keys.next() else { return };
            self.put(*key, slot);
        }
    }

    /// Gives all keys that have none the free slots nearest to their blocks of `block` slots.
    pub(super) fn place_the_rest(&mut self, block_of: impl Fn(usize) -> usize, block: u16) {
        let rest: Vec<usize> = (0..self.slots.len()).filter(|key| self.slots[*key] == NONE).collect();
        if rest.is_empty() {
            return;
        }
        let (mut ahead, mut back) = (Steps::new(self.taken.len()), Steps::new(self.taken.len()));
        let last = self.taken.len();
        for key in rest {
            let middle = (block_of(key) * usize::from(block) + usize::from(block) / 2).min(last);
            let after = Some(ahead.next(middle, |slot| self.taken[slot])).filter(|slot| *slot < last);
            // Counted from the end, the slot before the middle comes next.
            let before = back.next(last - middle, |from_end| self.taken[last - 1 - from_end]);
            let before = (before < last).then(|| last - 1 - before);
            let nearest = match (before, after) {
                (Some(before), Some(after)) if middle - before <= after - middle => Some(before),
                (before, after) => after.or(before),
            };
            // A segment has a slot for each key, and slots are numbered by 16 bits.
            if let Some(slot) = nearest {
                self.put(key, slot as u16);
            }
        }
    }

    /// The slot of each key.
    pub(super) fn into_slots(self) -> Vec<u16> {
        self.slots
    }
}
