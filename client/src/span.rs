//! Spans of keys that are scanned by parts.

use std::ops::{Bound, RangeBounds};

use fpcache::key_space::{BuildKeys, ByteKeys};

use crate::key::AsKey;

/// Keys from one up to an end, exclusive; `None` if there is no end.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Span<K: BuildKeys> {
    pub(crate) start: K::Owned,
    pub(crate) end: Option<K::Owned>,
}

impl<K: BuildKeys> Span<K> {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self { start: K::lowest().to_owned(), end: None }
    }

    /// The keys not below `start`.
    pub(crate) fn not_below(start: impl AsKey<K>) -> Self {
        Self { start: start.as_key().to_owned(), end: None }
    }

    /// The keys not above `end`.
    pub(crate) fn not_above(end: impl AsKey<K>) -> Self {
        Self { start: K::lowest().to_owned(), end: K::successor(end.as_key()) }
    }

    /// The keys from `start` to `end`, exclusive.
    pub(crate) fn between(start: impl AsKey<K>, end: impl AsKey<K>) -> Self {
        Self { start: start.as_key().to_owned(), end: Some(end.as_key().to_owned()) }
    }

    /// The keys of a range; `None` if it begins after the greatest key there can be.
    pub(crate) fn of<Q: AsKey<K>>(keys: &impl RangeBounds<Q>) -> Option<Self> {
        let after = |key: &Q| K::successor(key.as_key());
        let start = match keys.start_bound() {
            Bound::Included(key) => key.as_key().to_owned(),
            Bound::Excluded(key) => after(key)?,
            Bound::Unbounded => K::lowest().to_owned(),
        };
        let end = match keys.end_bound() {
            // After the greatest key there is none that could be left out.
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => Some(key.as_key().to_owned()),
            Bound::Unbounded => None,
        };
        Some(Self { start, end })
    }

    /// Whether it has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// What is left of it above a key; `None` if nothing is.
    pub(crate) fn above(self, key: &K::Key) -> Option<Self> {
        Some(Self { start: K::successor(key)?, ..self })
    }
}

impl Span<ByteKeys> {
    /// The keys that begin with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8]) -> Self {
        Self { start: prefix.to_vec(), end: end_of_prefix(prefix) }
    }
}

/// The least string above all that begin with `prefix`; `None` if `prefix` is all 0xff.
fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    Some([&prefix[..kept], &[prefix[kept] + 1]].concat())
}
