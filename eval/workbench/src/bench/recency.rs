//! The order of keys by how new they are.

use std::sync::Arc;

use super::Operation;

/// Keys by age: those whose inserts have ended, and before them the loaded ones from their upper
/// end down.
///
/// As in YCSB, whose latest distribution draws among acknowledged inserts: a client cannot ask for
/// what no client has been told of.
#[derive(Debug)]
pub(super) struct Recency {
    loaded: Arc<Vec<u64>>,
    /// In the order in which their inserts ended.
    inserted: Vec<u64>,
}

impl Recency {
    /// Of ascending keys that are loaded.
    pub(super) fn new(loaded: Arc<Vec<u64>>) -> Self {
        Self { loaded, inserted: Vec::new() }
    }

    /// A key's insert has ended.
    pub(super) fn inserted(&mut self, key: u64) {
        self.inserted.push(key);
    }

    /// An operation with the key that its rank is now; of an insert the key is no rank.
    pub(super) fn resolve(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Read { key } => Operation::Read { key: self.key(key) },
            Operation::Update { key, value, reads } => Operation::Update { key: self.key(key), value, reads },
            Operation::Insert { .. } => operation,
            Operation::Scan { key, count } => Operation::Scan { key: self.key(key), count },
        }
    }

    /// The key with `newer` newer ones; the oldest if there are fewer.
    fn key(&self, newer: u64) -> u64 {
        let newer = newer as usize;
        let oldest_first = |keys: &[u64], newer: usize| keys.len().checked_sub(newer + 1).map(|at| keys[at]);
        let loaded = || {
            let newer = newer.saturating_sub(self.inserted.len());
            oldest_first(&self.loaded, newer).or_else(|| self.loaded.first().copied())
        };
        oldest_first(&self.inserted, newer).or_else(loaded).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_among_keys_whose_inserts_have_ended_and_then_among_loaded_ones() {
        let mut recency = Recency::new(Arc::new(vec![10, 20, 30]));
        let keys = |recency: &Recency| [0, 1, 2, 3, 9].map(|newer| recency.key(newer));
        assert_eq!(keys(&recency), [30, 20, 10, 10, 10]);
        recency.inserted(7);
        recency.inserted(25);
        assert_eq!(keys(&recency), [25, 7, 30, 20, 10]);
        let (insert, update) =
            (Operation::Insert { key: 1, value: 2 }, Operation::Update { key: 1, value: 2, reads: true });
        assert_eq!(recency.resolve(insert), insert);
        assert_eq!(recency.resolve(update), Operation::Update { key: 7, value: 2, reads: true });
        assert_eq!(
            recency.resolve(Operation::Scan { key: 2, count: 4 }),
            Operation::Scan { key: 30, count: 4 }
        );
    }
}
