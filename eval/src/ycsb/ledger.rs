//! The values that each record may have after the passes, computed without recording anything
//! during them.
//!
//! A thread's stream can be replayed, so its last write of each key is known afterwards. The final
//! value of a key was written by the last pass that wrote the key, as the last write of some thread
//! in it. Any other value, or none, shows a write that was lost or undone.

use fpcache_datasets::requests::{Operation, Play};

use super::value::stored;

/// A key and the sequence number of a write of it.
pub type Written = (u64, u64);

/// The sequence number of the `index`-th operation of a thread, where `base` operations of each
/// thread came before; never 0, which is the load's.
pub fn sequence(base: u64, index: u64, thread: usize, threads: usize) -> u64 {
    1 + (base + index) * threads as u64 + thread as u64
}

/// The last write of each key that a thread wrote in a pass, in ascending order of keys. `play` is
/// what the thread did, of which the first `count` operations count, in groups of `group`; see
/// [`pass`](mod@super::pass) for the order in a group. `number` gives the sequence number of the
/// operation at an index.
pub fn last_writes(play: Play<'_>, count: u64, group: usize, number: impl Fn(u64) -> u64) -> Vec<Written> {
    let mut writes: Vec<(u64, (u64, bool, u64))> = Vec::new();
    for (at, operation) in (0u64..).zip(play.take(count as usize)) {
        let is_late = match operation {
            Operation::Read(_) | Operation::Scan(..) => continue,
            Operation::Insert(_) | Operation::Update(_) => false,
            Operation::ReadModifyWrite(_) => true,
        };
        writes.push((operation.key(), (at / group as u64, is_late, at)));
    }
    writes.sort_unstable();
    writes.reverse();
    // Of each key the first is now its last write.
    writes.dedup_by_key(|(key, _)| *key);
    writes.iter().rev().map(|&(key, (.., at))| (key, number(at))).collect()
}

/// The last writes of each key, of one pass or of several.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Ascending keys, several times where several threads wrote one in the last pass that did.
    writes: Vec<Written>,
}

impl Ledger {
    /// Of a pass, of which these are the threads' last writes.
    pub fn of_pass(threads: impl IntoIterator<Item = Vec<Written>>) -> Self {
        let mut writes: Vec<Written> = threads.into_iter().flatten().collect();
        writes.sort_unstable();
        Self { writes }
    }

    /// Adds later passes, whose writes of a key replace all earlier ones. Copies both.
    pub fn add(&mut self, later: Self) {
        if later.writes.is_empty() {
            return;
        }
        let mut merged = Vec::with_capacity(self.writes.len() + later.writes.len());
        let mut earlier = Along { rest: &self.writes };
        for of_key in later.writes.chunk_by(|(key, _), (next, _)| key == next) {
            let key = of_key[0].0;
            merged.extend_from_slice(earlier.below(key));
            earlier.of(key);
            merged.extend_from_slice(of_key);
        }
        merged.extend_from_slice(earlier.rest);
        merged.shrink_to_fit();
        self.writes = merged;
    }

    /// Goes along ascending keys.
    pub fn along(&self) -> Along<'_> {
        Along { rest: &self.writes }
    }
}

/// A ledger read in ascending order of keys.
#[derive(Clone, Debug)]
pub struct Along<'a> {
    /// What is left of it.
    rest: &'a [Written],
}

impl<'a> Along<'a> {
    /// Takes the writes of keys below this one.
    fn below(&mut self, key: u64) -> &'a [Written] {
        self.take_while(|other| other < key)
    }

    /// Takes the writes of this key, which is not above the next one.
    fn of(&mut self, key: u64) -> &'a [Written] {
        self.take_while(|other| other == key)
    }

    fn take_while(&mut self, is_taken: impl Fn(u64) -> bool) -> &'a [Written] {
        let count = self.rest.iter().take_while(|(key, _)| is_taken(*key)).count();
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    /// Whether `key`, which must not be below the one before, may hold what the write of this
    /// sequence number wrote, as far as a value of `value_bytes` bytes tells it.
    pub fn allows(&mut self, key: u64, sequence: u64, value_bytes: usize) -> bool {
        self.below(key);
        // They stay: the same key may be asked for again.
        let of_key = self.clone().of(key);
        if of_key.is_empty() {
            return sequence == 0;
        }
        of_key.iter().any(|(_, number)| stored(*number, value_bytes) == sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_datasets::requests::{Operations, Workload};

    #[test]
    fn sequences_are_all_different_and_none_is_the_loads() {
        let mut all: Vec<u64> = Vec::new();
        for base in [0, 10] {
            for index in 0..10 {
                all.extend((0..3).map(|thread| sequence(base, index, thread, 3)));
            }
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=60));
    }

    #[test]
    fn the_last_write_of_a_key_counts_and_read_modify_writes_come_last_in_their_group() {
        let keys = [10, 20];
        let workload = Workload::custom("update=0.5,rmw=0.5".parse().unwrap());
        let operations = Operations::generate(&keys, &workload, 200, 1, 0);
        for group in [1, 8] {
            let play = || operations.play(&keys, &[], 0);
            let mut expected = [0; 2];
            let all: Vec<_> = (0u64..).zip(play().take(200)).collect();
            for group in all.chunks(group) {
                for late in [false, true] {
                    for (at, operation) in group {
                        if matches!(operation, Operation::ReadModifyWrite(_)) == late {
                            expected[usize::from(operation.key() == 20)] = at + 1;
                        }
                    }
                }
            }
            let found = last_writes(play(), 200, group, |at| at + 1);
            assert_eq!(found, [(10, expected[0]), (20, expected[1])], "{group}");
        }
    }

    #[test]
    fn only_the_last_writes_of_the_last_pass_with_the_key_are_allowed() {
        let mut ledger = Ledger::default();
        ledger.add(Ledger::of_pass([vec![(5, 1), (7, 3)], vec![(5, 2)]]));
        ledger.add(Ledger::of_pass([vec![(7, 9)], vec![]]));
        ledger.add(Ledger::default());
        let mut along = ledger.along();
        assert!(along.allows(4, 0, 16) && !along.allows(4, 1, 16));
        assert!(along.allows(5, 1, 16) && along.allows(5, 2, 16));
        assert!(!along.allows(5, 0, 16) && !along.allows(5, 3, 16));
        assert!(along.allows(7, 9, 16) && !along.allows(7, 3, 16));
        assert!(along.allows(8, 0, 16));
        let mut small = ledger.along();
        assert!(small.allows(7, 9, 8) && !small.allows(7, 9 + (1 << 32), 8));
    }

    /// It kept the writes of every stretch of operations, and went through all for each key.
    #[test]
    fn a_ledger_of_many_passes_has_the_last_writes_of_each_key_alone() {
        let pass = |number| Ledger::of_pass([vec![(5, number), (6, number)], vec![(5, number + 1)]]);
        let mut ledger = Ledger::of_pass([vec![(4, 7)], vec![(9, 8)]]);
        (1..=100).map(|pass| 10 * pass).for_each(|number| ledger.add(pass(number)));
        assert_eq!(ledger.writes, [(4, 7), (5, 1_000), (5, 1_001), (6, 1_000), (9, 8)]);
    }
}
