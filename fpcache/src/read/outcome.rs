//! The outcomes of lookups.

use std::ops::Range;

use super::Cost;
use super::records::Records;
use crate::plan::Plan;

/// Answers for which there is room from one long group to the next.
const KEPT_ANSWERS: usize = 1 << 14;

/// The answer for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The record's version, if the key is there.
    pub version: Option<u32>,
    /// The plan that gave the answer.
    pub plan: Plan,
    /// Its cost. The round trips are those this key waited for; keys of one call share them.
    pub cost: Cost,
    /// Whether the value is external, and was not READ for that reason.
    pub(super) is_external: bool,
    /// Where among the records its value lies.
    pub(super) value: Range<usize>,
}

impl Outcome {
    /// Nothing found yet, at the cost of a first round trip.
    #[inline]
    pub(super) fn begun(plan: Plan) -> Self {
        let cost = Cost { round_trips: 1, ..Cost::default() };
        Self { version: None, plan, cost, is_external: false, value: 0..0 }
    }

    /// The answer of the memory node's processor, which took `bytes` bytes, and `reads` READs where
    /// it said that the value lies outside its slot.
    pub fn server_side(version: Option<u32>, bytes: u64, reads: u32) -> Self {
        let cost = Cost { round_trips: 1 + reads, reads, bytes, ..Cost::default() };
        Self { version, cost, ..Self::begun(Plan::ServerSide) }
    }
}

/// The answers of a group of keys, in their order, in buffers that are kept.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) records: Records,
}

impl Outcomes {
    /// How many keys were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether no key was asked for.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// How the `index`-th key's lookup ended, and its value if the key is there; `None` past the
    /// last key.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&Outcome, Option<&[u8]>)> {
        let outcome = self.outcomes.get(index)?;
        Some((outcome, outcome.version.map(|_| self.records.bytes(outcome.value.clone()))))
    }

    /// All of them, in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Outcome, Option<&[u8]>)> {
        let value = |o: &Outcome| o.version.map(|_| self.records.bytes(o.value.clone()));
        self.outcomes.iter().map(move |o| (o, value(o)))
    }

    /// Adds the answer of the memory node's processor for the next key, whose value took `reads`
    /// READs.
    pub fn push_server_side(&mut self, version: Option<u32>, value: &[u8], reads: u32) {
        let outcome = Outcome::server_side(version, value.len() as u64, reads);
        self.outcomes.push(Outcome { value: self.records.push(value), ..outcome });
    }

    /// Adds an answer that was found with others, and its value if the key is there.
    pub fn push(&mut self, outcome: &Outcome, value: Option<&[u8]>) {
        let value = self.records.push(value.unwrap_or_default());
        self.outcomes.push(Outcome { value, ..outcome.clone() });
    }

    /// Replaces the answer of the `index`-th key, which must be there, by one that was found
    /// otherwise.
    pub fn replace(&mut self, index: usize, outcome: &Outcome, value: Option<&[u8]>) {
        if let Some(place) = self.outcomes.get_mut(index) {
            let value = self.records.push(value.unwrap_or_default());
            *place = Outcome { value, ..outcome.clone() };
        }
    }

    /// Forgets all answers; the buffers stay.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.records.clear();
    }

    /// Gives back the room of a long group.
    #[inline]
    pub(super) fn trim_buffers(&mut self) {
        self.outcomes.shrink_to(KEPT_ANSWERS);
    }

    /// Bytes of memory that they keep.
    pub(super) fn kept_bytes(&self) -> usize {
        self.outcomes.capacity() * size_of::<Outcome>() + self.records.kept_bytes()
    }
}
