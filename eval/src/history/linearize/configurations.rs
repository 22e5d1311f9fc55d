//! Sets of configurations.

use hashbrown::HashMap;

/// What a key holds, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// No record.
    Absent,
    /// A record whose value is not known.
    Unnamed,
    /// A record with this value.
    Value(u64),
}

/// How many of each sort of interchangeable writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Used([u16; 4]);

impl Used {
    /// One more. Counts beyond 65,535 stay there: no check needs that many for one key.
    pub fn add(&mut self, sort: usize) {
        self.0[sort] = self.0[sort].saturating_add(1);
    }

    /// Whether some of the sort are left when `used` have been used.
    pub fn has_more(self, used: Self, sort: usize) -> bool {
        used.0[sort] < self.0[sort]
    }

    fn is_within(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(mine, theirs)| *mine <= theirs)
    }

    fn total(self) -> u32 {
        self.0.iter().map(|count| u32::from(*count)).sum()
    }
}

/// One way in which the history so far may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub state: State,
    /// The pending steps that have happened, one bit each.
    pub done: u64,
    /// The same for steps that need never happen: those that remain only help.
    pub spent: u64,
    pub used: Used,
}

impl Configuration {
    /// Whether all that can follow the other one can follow this.
    fn covers(&self, other: &Self) -> bool {
        self.state == other.state
            && self.done == other.done
            && self.spent & !other.spent == 0
            && self.used.is_within(other.used)
    }
}

/// As many are compared one by one; more are found by hash.
const FEW: usize = 24;
const NONE: u32 = u32::MAX;

/// Configurations of which no later one is covered by an earlier one, in the order in which they
/// came.
#[derive(Debug, Default)]
pub(super) struct Configurations {
    list: Vec<Configuration>,
    /// The last one with this state and these steps done; only when there are more than a few.
    last: HashMap<(State, u64), u32>,
    /// The one before with the same state and steps.
    previous: Vec<u32>,
}

impl Configurations {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn get(&self, at: usize) -> Configuration {
        self.list[at]
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.last.clear();
        self.previous.clear();
    }

    pub fn all(&self, holds: impl FnMut(&Configuration) -> bool) -> bool {
        self.list.iter().all(holds)
    }

    /// Changes each. Two may become equal only if a step's bit is what they differ in.
    pub fn for_each(&mut self, mut change: impl FnMut(&mut Configuration)) {
        self.list.iter_mut().for_each(&mut change);
        // Found by what they were: no longer true. A set is never added to after this.
        self.last.clear();
        self.previous.clear();
    }

    /// Adds one unless it is covered.
    pub fn insert(&mut self, configuration: Configuration) {
        if self.list.len() < FEW {
            if !self.list.iter().any(|known| known.covers(&configuration)) {
                self.list.push(configuration);
            }
            return;
        }
        for i in self.previous.len()..self.list.len() {
            self.index(i);
        }
        let mut at = self.last.get(&(configuration.state, configuration.done)).copied().unwrap_or(NONE);
        while let Some(known) = self.list.get(at as usize) {
            if known.covers(&configuration) {
                return;
            }
            at = self.previous[at as usize];
        }
        self.list.push(configuration);
        self.index(self.list.len() - 1);
    }

    fn index(&mut self, at: usize) {
        let Configuration { state, done, .. } = self.list[at];
        // Far fewer than 2^32 are ever kept.
        let before = self.last.insert((state, done), at as u32);
        self.previous.push(before.unwrap_or(NONE));
    }

    /// Takes a step's bit from all, and keeps those that are covered by no other. `spare` is for
    /// its memory.
    pub fn forget(&mut self, bit: u64, spare: &mut Self) {
        if let [only] = &mut self.list[..] {
            only.done &= !bit;
            only.spent &= !bit;
            return;
        }
        spare.clear();
        // Those that used least cover most.
        self.list.sort_by_key(|configuration| configuration.used.total() + configuration.spent.count_ones());
        for configuration in &self.list {
            let (done, spent) = (configuration.done & !bit, configuration.spent & !bit);
            spare.insert(Configuration { done, spent, ..*configuration });
        }
        std::mem::swap(self, spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_used_less_covers_what_used_more_however_many_there_are() {
        for others in [0, 5, 100] {
            let mut set = Configurations::default();
            for done in 0..others {
                set.insert(Configuration { state: State::Absent, done, spent: 0, used: Used::default() });
            }
            let (mut one, mut two) = (Used::default(), Used::default());
            one.add(1);
            two.add(1);
            two.add(2);
            let with = |used| Configuration { state: State::Value(7), done: 1 << 40, spent: 0, used };
            for configuration in [with(two), with(one), with(two), with(one)] {
                set.insert(configuration);
            }
            assert_eq!(set.len() as u64, others + 2, "the first came before what covers it");
            let mut spare = Configurations::default();
            set.forget(1 << 40, &mut spare);
            assert_eq!(set.len() as u64, others + 1);
        }
    }
}
