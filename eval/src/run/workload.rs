//! The lookups of a pass, and how they are made.

use crate::data::{DataKeys, Stream};
use crate::run::values::ValueBytes;

/// What is looked up, and how.
#[derive(Debug)]
pub struct Workload<'a, 'k, K: DataKeys> {
    /// The data.
    pub dataset: &'a K::Set,
    /// The lookups and what each must find.
    pub lookups: Lookups<'a, 'k, K>,
    /// Bytes of values.
    pub values: ValueBytes,
    /// Keys per call.
    pub batch: usize,
    /// Threads that look up at once, each its own part of the lookups.
    pub threads: usize,
    /// Lookups that the threads share out among themselves before they go on to as many more:
    /// `None` shares out all at once. Popular keys that move along the stream then move for all
    /// threads at about the same time.
    pub stretch: Option<usize>,
    /// Keys to warm up with: `None` is each thread's own first ones. A hot cache must not meet keys
    /// of the pass early.
    pub warm_up: Option<&'a [K::View<'k>]>,
    /// Whether every pass begins with an empty hot cache, and without a warm-up.
    pub cold: bool,
}

impl<K: DataKeys> Clone for Workload<'_, '_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

// Whether or not the data set itself can be copied.
impl<K: DataKeys> Copy for Workload<'_, '_, K> {}

/// Lookups of one pass, and the index into the data set's keys that each must find.
#[derive(Clone, Copy, Debug)]
pub struct Lookups<'a, 'k, K: DataKeys> {
    /// The keys.
    pub keys: &'a [K::View<'k>],
    /// As [`Requests::expected`](fpcache_datasets::requests::Requests::expected).
    pub expected: &'a [u64],
}

impl<'a, 'k, K: DataKeys> Lookups<'a, 'k, K> {
    /// The whole stream.
    pub fn all(stream: &'a Stream<'k, K>) -> Self {
        Self { keys: &stream.keys, expected: stream.expected }
    }

    /// The `index`-th of `parts` parts of equal length.
    pub fn part(stream: &'a Stream<'k, K>, index: usize, parts: usize) -> Self {
        let length = stream.keys.len() / parts.max(1);
        let range = index * length..(index + 1) * length;
        Self { keys: &stream.keys[range.clone()], expected: &stream.expected[range] }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}
