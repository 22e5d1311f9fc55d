//! The oracle of what an answer may be.

mod key_set;

use std::collections::BTreeSet;

use hashbrown::HashMap;

use self::key_set::KeySet;
use crate::nic::Picos;

/// The value a key is loaded with.
#[inline]
pub fn first_value(key: u64) -> u64 {
    // Any bijection that moves every key.
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x5851_f42d_4c95_7f2d
}

/// A write of one key.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// `None` before the key was there.
    value: Option<u64>,
    begun: Picos,
    /// `MAX` while it is under way.
    ended: Picos,
}

/// Knows which keys were loaded, and what was written to them when.
///
/// A read may return any value whose write had begun when the read ended, unless another write came
/// wholly between that one's end and the read's beginning. That is necessary for linearizability
/// and exact where writes of one key do not overlap.
#[derive(Debug)]
pub struct Oracle {
    keys: std::sync::Arc<Vec<u64>>,
    loaded: KeySet,
    written: HashMap<u64, Vec<Written>>,
    /// Keys that were written and not loaded.
    new: BTreeSet<u64>,
}

/// Writes of a key that are kept before old ones are looked for.
const KEPT: usize = 16;

impl Oracle {
    /// Of these keys, ascending, each with its [`first_value`].
    pub fn new(keys: std::sync::Arc<Vec<u64>>) -> Self {
        let loaded = KeySet::new(&keys);
        Self { keys, loaded, written: HashMap::new(), new: BTreeSet::new() }
    }

    /// The keys that were loaded.
    pub fn loaded_keys(&self) -> std::sync::Arc<Vec<u64>> {
        std::sync::Arc::clone(&self.keys)
    }

    /// A key will be asked about soon.
    pub fn prefetch(&self, key: u64) {
        self.loaded.prefetch(key);
    }

    /// A write begins.
    pub fn begin_write(&mut self, key: u64, value: u64, now: Picos) {
        let first = Written { value: self.loaded(key), begun: 0, ended: 0 };
        if first.value.is_none() {
            self.new.insert(key);
        }
        let writes = self.written.entry(key).or_insert_with(|| vec![first]);
        writes.push(Written { value: Some(value), begun: now, ended: Picos::MAX });
    }

    /// It has ended; nothing that is under way began before `oldest`.
    pub fn end_write(&mut self, key: u64, value: u64, now: Picos, oldest: Picos) {
        let Some(writes) = self.written.get_mut(&key) else { return };
        if let Some(write) = writes.iter_mut().find(|write| write.value == Some(value)) {
            write.ended = now;
        }
        if writes.len() > KEPT {
            let all = writes.clone();
            writes.retain(|old| !is_overwritten(&all, old, oldest));
        }
    }

    /// A write that had begun has ended without having written.
    pub fn withdraw_write(&mut self, key: u64, value: u64) {
        if let Some(writes) = self.written.get_mut(&key) {
            writes.retain(|write| write.value != Some(value));
        }
    }

    /// Whether a read of `key` that lasted from `begun` to `ended` may have had this answer.
    pub fn is_right(&self, key: u64, answer: Option<u64>, (begun, ended): (Picos, Picos)) -> bool {
        let Some(writes) = self.written.get(&key) else {
            return answer == self.loaded(key);
        };
        let mut all = writes.iter().filter(|write| write.value == answer && write.begun <= ended);
        all.any(|write| !is_overwritten(writes, write, begun))
    }

    /// Whether a scan of this `span`, from a key on, of up to `count` records, may have had these:
    /// each could have been read by itself meanwhile, they ascend, and none between them is missing
    /// that was there throughout.
    pub fn is_right_scan(
        &self,
        (from, count): (u64, usize),
        records: &[(u64, u64)],
        span: (Picos, Picos),
    ) -> bool {
        let is_short = records.len() < count;
        let ascend = records.is_sorted_by(|(a, _), (b, _)| a < b);
        if records.len() > count || !ascend || records.first().is_some_and(|(key, _)| *key < from) {
            return false;
        }
        if !records.iter().all(|(key, value)| self.is_right(*key, Some(*value), span)) {
            return false;
        }
        let last = match records.last() {
            _ if is_short => u64::MAX,
            Some((last, _)) => *last,
            None => return true,
        };
        let loaded = self.keys[self.keys.partition_point(|key| *key < from)..].iter();
        // A loaded key is always there; one that was written may not yet have been.
        !is_missing(loaded.take_while(|key| **key <= last), records, |_| true)
            && !is_missing(self.new.range(from..=last), records, |key| !self.is_right(key, None, span))
    }

    fn loaded(&self, key: u64) -> Option<u64> {
        self.loaded.has(key).then(|| first_value(key))
    }
}

/// Whether one of these ascending keys is not among ascending records, although it has to be.
fn is_missing<'k>(
    keys: impl Iterator<Item = &'k u64>,
    records: &[(u64, u64)],
    has_to_be: impl Fn(u64) -> bool,
) -> bool {
    let mut records = records.iter().map(|(key, _)| *key).peekable();
    let mut missing = keys.filter(|key| {
        while records.next_if(|found| found < *key).is_some() {}
        records.peek() != Some(*key)
    });
    missing.any(|key| has_to_be(*key))
}

/// Whether a write came after this one and was over at that time.
fn is_overwritten(all: &[Written], write: &Written, at: Picos) -> bool {
    all.iter().any(|other| other.begun > write.ended && other.ended < at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_see_what_was_there_or_was_being_written() {
        let mut oracle = Oracle::new(std::sync::Arc::new(vec![3, 5]));
        assert!(oracle.is_right(3, Some(first_value(3)), (0, 1)));
        assert!(!oracle.is_right(3, None, (0, 1)));
        assert!(oracle.is_right(4, None, (0, 1)));
        oracle.begin_write(3, 77, 10);
        assert!(oracle.is_right(3, Some(77), (5, 12)) && oracle.is_right(3, Some(first_value(3)), (5, 12)));
        assert!(!oracle.is_right(3, Some(77), (5, 9)), "not begun yet");
        oracle.end_write(3, 77, 20, 20);
        assert!(oracle.is_right(3, Some(first_value(3)), (19, 30)));
        assert!(!oracle.is_right(3, Some(first_value(3)), (21, 30)), "overwritten before it began");
        assert!(!oracle.is_right(5, Some(77), (21, 30)));
        oracle.begin_write(4, 78, 40);
        assert!(oracle.is_right(4, None, (35, 45)) && oracle.is_right(4, Some(78), (35, 45)));
        oracle.end_write(4, 78, 50, 50);
        assert!(oracle.is_right(4, None, (49, 60)) && !oracle.is_right(4, None, (51, 60)));
    }

    #[test]
    fn an_update_finds_no_key_until_its_insert_has_ended_and_writes_nothing_then() {
        let mut oracle = Oracle::new(std::sync::Arc::new(vec![3]));
        oracle.begin_write(4, 77, 10);
        oracle.begin_write(4, 78, 12);
        oracle.withdraw_write(4, 78);
        assert!(oracle.is_right(4, None, (12, 14)), "its insert is under way");
        assert!(!oracle.is_right(4, Some(78), (12, 99)), "nobody wrote that");
        oracle.end_write(4, 77, 20, 20);
        assert!(oracle.is_right(4, None, (15, 30)) && !oracle.is_right(4, None, (21, 30)));
        oracle.begin_write(3, 79, 40);
        oracle.withdraw_write(3, 79);
        assert!(!oracle.is_right(3, None, (40, 50)), "it was loaded");
        assert!(oracle.is_right(3, Some(first_value(3)), (40, 50)));
    }

    #[test]
    fn scans_have_all_that_was_there_and_nothing_else() {
        let mut oracle = Oracle::new(std::sync::Arc::new(vec![3, 5, 9]));
        let loaded = |keys: &[u64]| keys.iter().map(|key| (*key, first_value(*key))).collect::<Vec<_>>();
        let is_right = |oracle: &Oracle, from, count, records: &[(u64, u64)], span| {
            oracle.is_right_scan((from, count), records, span)
        };
        let at = (30, 40);
        assert!(
            is_right(&oracle, 3, 2, &loaded(&[3, 5]), at) && is_right(&oracle, 4, 9, &loaded(&[5, 9]), at)
        );
        assert!(is_right(&oracle, 10, 4, &[], at) && is_right(&oracle, 3, 0, &[], at));
        for wrong in [&[3, 9][..], &[5, 9], &[3], &[5, 3], &[3, 3], &[3, 5, 9], &[3, 4]] {
            assert!(!is_right(&oracle, 3, 2, &loaded(wrong), at), "{wrong:?}");
        }
        assert!(!is_right(&oracle, 4, 2, &loaded(&[3, 5]), at), "below its beginning");
        assert!(!is_right(&oracle, 3, 2, &[(3, 1), (5, first_value(5))], at), "a value of nobody's");
        // One that is being inserted may be there or not; once it was, it has to be.
        oracle.begin_write(4, 77, 35);
        let with: Vec<_> = [(3, first_value(3)), (4, 77)].into();
        assert!(is_right(&oracle, 3, 2, &with, at) && is_right(&oracle, 3, 2, &loaded(&[3, 5]), at));
        assert!(!is_right(&oracle, 3, 2, &with, (30, 34)), "not begun yet");
        oracle.end_write(4, 77, 50, 50);
        assert!(
            is_right(&oracle, 3, 2, &with, (60, 70)) && !is_right(&oracle, 3, 2, &loaded(&[3, 5]), (60, 70))
        );
    }

    #[test]
    fn old_writes_are_forgotten_and_new_ones_are_not() {
        let mut oracle = Oracle::new(std::sync::Arc::new(vec![3]));
        for i in 0..1000 {
            oracle.begin_write(3, 100 + i, 10 * i + 10);
            oracle.end_write(3, 100 + i, 10 * i + 15, 10 * i + 15);
        }
        assert!(oracle.written[&3].len() <= KEPT + 1);
        assert!(
            oracle.is_right(3, Some(1099), (10_010, 10_020))
                && !oracle.is_right(3, Some(1098), (10_010, 10_020))
        );
    }
}
