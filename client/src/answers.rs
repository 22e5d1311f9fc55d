//! The answers of a group lookup, in buffers that are kept between calls.

use std::ops::Range;

use fpcache::read::Outcome;

use crate::client::Found;

/// Answers of [`Client::multi_get_into`](crate::Client::multi_get_into), in the order of its keys.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    found: Vec<(Found, Range<usize>)>,
    values: Vec<u8>,
}

impl Answers {
    /// No answers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys were asked for.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether no key was asked for.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The value of the `index`-th key, `None` if the key is absent.
    #[inline]
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        let (found, value) = self.found.get(index)?;
        found.version.map(|_| &self.values[value.clone()])
    }

    /// Version, plan and cost of the `index`-th key's lookup.
    #[inline]
    pub fn found(&self, index: usize) -> Option<&Found> {
        self.found.get(index).map(|(found, _)| found)
    }

    /// All values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.found.len()).map(|i| self.value(i))
    }

    #[inline]
    pub(crate) fn fill<'o>(&mut self, outcomes: impl Iterator<Item = (&'o Outcome, Option<&'o [u8]>)>) {
        self.found.clear();
        self.values.clear();
        for (outcome, value) in outcomes {
            let start = self.values.len();
            self.values.extend_from_slice(value.unwrap_or_default());
            self.found.push((outcome.into(), start..self.values.len()));
        }
    }
}
