//! The store under a stress run: a client, or anything else that keeps records.

use fpcache_client::{ClientError, Plan};

use super::operation::Outcome;

/// What a call came back with, and the plan that gave the answer, where known.
pub type Answer<T> = Result<(T, Option<Plan>), ClientError>;

/// How a history calls the end of a call that failed. One that may have taken effect, or may still,
/// is of unknown outcome; of others the client promises that nothing happened.
pub fn outcome_of(error: &ClientError) -> Outcome {
    if error.may_have_taken_effect() { Outcome::Unknown } else { Outcome::Refused }
}

/// A process's handle on the records. Values are numbers; how they become bytes is the
/// implementation's business, and a value whose bytes contradict each other must come back as a
/// number that was never written.
pub trait Store: Send {
    /// Names the write that made a record.
    type Token: Copy + Send;

    /// The value of a key.
    fn get(&mut self, key: u64) -> Answer<Option<u64>>;

    /// The values of several keys, in their order, together.
    fn multi_get(&mut self, keys: &[u64]) -> Answer<Vec<Option<u64>>>;

    /// Whether a key is there; where that is not asked for by itself, as its value.
    fn contains(&mut self, key: u64) -> Answer<bool> {
        self.get(key).map(|(value, plan)| (value.is_some(), plan))
    }

    /// The same of several keys, in their order, together.
    fn multi_contains(&mut self, keys: &[u64]) -> Answer<Vec<bool>> {
        self.multi_get(keys).map(|(values, plan)| (values.iter().map(Option::is_some).collect(), plan))
    }

    /// The value of a key and the token of its record.
    fn get_versioned(&mut self, key: u64) -> Answer<Option<(u64, Self::Token)>>;

    /// Up to `limit` records from `start` on.
    fn scan(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>>;

    /// Up to `limit` records from `start` down.
    fn scan_back(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>>;

    /// How many keys there are from `start` up to `end`, exclusive.
    fn count(&mut self, start: u64, end: u64) -> Answer<u64>;

    /// The record with the greatest key not above each of these, or the least not below it; of one
    /// key by itself, of several together. The floor of `u64::MAX` is asked for as the last record,
    /// the ceiling of 0 as the first.
    fn nearest(&mut self, keys: &[u64], below: bool) -> Answer<Vec<Option<(u64, u64)>>>;

    /// Makes a record; `false` if there is one.
    fn insert(&mut self, key: u64, value: u64) -> Answer<bool>;

    /// Makes a record or replaces its value.
    fn put(&mut self, key: u64, value: u64) -> Answer<()>;

    /// Replaces a record's value; `false` if there is no record.
    fn update(&mut self, key: u64, value: u64) -> Answer<bool>;

    /// Removes a record; `false` if there is none.
    fn delete(&mut self, key: u64) -> Answer<bool>;

    /// Replaces a record's value if it is still the one with this token: done, absent or differs.
    fn compare_and_set(&mut self, key: u64, token: Self::Token, value: u64) -> Answer<Outcome>;

    /// Segments rebuilt so far, where known.
    fn rebuilds(&mut self) -> Option<u64> {
        None
    }
}
