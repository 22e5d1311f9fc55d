//! Answers of lookups: for one key its outcome and cost, for a group all answers in reusable
//! buffers.

use fpcache::plan::Plan;
use fpcache::read::{Cost, Outcome, Outcomes};

/// The outcome of a lookup, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an absent key and an empty value leave the same buffer"]
pub struct Found {
    /// The record's version, `None` if the key is absent.
    pub version: Option<u32>,
    /// The plan that gave the answer.
    pub plan: Plan,
    /// What it cost.
    pub cost: Cost,
}

impl Found {
    /// Whether the key is there.
    #[must_use]
    pub const fn is_found(&self) -> bool {
        self.version.is_some()
    }
}

impl From<&Outcome> for Found {
    fn from(outcome: &Outcome) -> Self {
        Self { version: outcome.version, plan: outcome.plan, cost: outcome.cost }
    }
}

/// Replaces the content of a buffer by a value, and says what was found.
#[inline]
pub(crate) fn into_buffer(value: &mut Vec<u8>) -> impl FnMut(&Outcome, Option<&[u8]>) -> Found {
    |outcome, found| {
        value.clear();
        value.extend_from_slice(found.unwrap_or_default());
        Found::from(outcome)
    }
}

/// Answers of [`Client::multi_get_into`](crate::Client::multi_get_into), in the order of its keys.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub(crate) outcomes: Outcomes,
}

impl Answers {
    /// No answers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys were asked for.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether no key was asked for.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The value of the `index`-th key, `None` if the key is absent.
    #[inline]
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.outcomes.get(index)?.1
    }

    /// Version, plan and cost of the `index`-th key's lookup.
    #[inline]
    pub fn found(&self, index: usize) -> Option<Found> {
        self.outcomes.get(index).map(|(outcome, _)| outcome.into())
    }

    /// All values in order.
    #[inline]
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.outcomes.iter().map(|(_, value)| value)
    }
}
