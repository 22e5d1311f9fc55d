//! Comparison of answers with the expected ones, and the sum of their costs.

use std::borrow::Borrow;
use std::ops::AddAssign;

use fpcache_client::{Found, Plan};
use fpcache_datasets::requests::ABSENT;
use fpcache_datasets::{Bar, KeySet, Progress};

use crate::data::DataKeys;
use crate::run::values::ValueBytes;
use crate::run::workload::Workload;
use crate::systems::{Reader, System};

/// What verification found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Answers that were compared.
    pub lookups: u64,
    /// Answers that were wrong.
    pub mismatches: u64,
    /// The first wrong one, in words.
    pub first_mismatch: Option<String>,
    /// Costs of one pass of lookups, for systems that read from a memory node.
    pub costs: Option<Costs>,
}

/// Costs added up over lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Lookups that an entry of the hot cache answered.
    pub cached: u64,
    /// Lookups by the two-stage plan.
    pub two_stage: u64,
    /// Lookups by a range read.
    pub range: u64,
    /// Lookups by the speculative plan.
    pub speculative: u64,
    /// Lookups by the slots of a group.
    pub groups: u64,
    /// Lookups by the memory node's threads that serve sockets.
    pub at_node: u64,
    /// Lookups by the memory node's processor.
    pub server_side: u64,
    /// Dependent round trips each lookup waited for; keys of one group wait for the same ones, each
    /// counts them.
    pub round_trips: u64,
    /// READ requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Slots fetched for a fingerprint that was another key's.
    pub false_candidates: u64,
    /// Times a plan was given up.
    pub fallbacks: u64,
}

impl AddAssign<Found> for Costs {
    fn add_assign(&mut self, found: Found) {
        let of_plan = match found.plan {
            Plan::Cached => &mut self.cached,
            Plan::TwoStage => &mut self.two_stage,
            Plan::Range => &mut self.range,
            Plan::Speculative => &mut self.speculative,
            Plan::Groups => &mut self.groups,
            Plan::AtNode => &mut self.at_node,
            _ => &mut self.server_side,
        };
        *of_plan += 1;
        self.round_trips += u64::from(found.cost.round_trips);
        self.reads += u64::from(found.cost.reads);
        self.bytes += found.cost.bytes;
        self.false_candidates += u64::from(found.cost.false_candidates);
        self.fallbacks += u64::from(found.cost.fallbacks);
    }
}

/// Looks everything up in one thread and compares every answer.
pub(super) fn verify<S: System>(
    system: &S,
    workload: &Workload<'_, '_, S::Keys>,
    bar: &Bar,
) -> anyhow::Result<Verified> {
    const STEP: u64 = 1 << 16;
    let Workload { dataset, lookups, batch, values, .. } = *workload;
    let mut reader = system.reader();
    let mut value = Vec::new();
    let mut verified = Verified::default();
    let (mut done, mut reported) = (0, 0);
    for (keys, indices) in lookups.keys.chunks(batch).zip(lookups.expected.chunks(batch)) {
        if batch == 1 {
            let (answer, found) = reader.get_with_cost(keys[0])?;
            let expected = expected::<S::Keys>(dataset, values, indices[0], &mut value);
            verified.check::<S::Keys>(keys[0].borrow(), expected, answer);
            verified.add(found);
        } else {
            reader.get_many(keys)?;
            for (i, (&key, &index)) in keys.iter().zip(indices).enumerate() {
                let expected = expected::<S::Keys>(dataset, values, index, &mut value);
                verified.check::<S::Keys>(key.borrow(), expected, reader.answer(i));
                verified.add(reader.cost(i));
            }
        }
        done += keys.len() as u64;
        if done >= reported + STEP {
            reported = done;
            bar.advance(done);
        }
    }
    Ok(verified)
}

/// What a lookup of the key at `index` of the data set must find, with `value` for its bytes.
fn expected<'v, K: DataKeys>(
    set: &K::Set,
    values: ValueBytes,
    index: u64,
    value: &'v mut Vec<u8>,
) -> Option<&'v [u8]> {
    if index == ABSENT {
        return None;
    }
    value.clear();
    values.append(set.value(index as usize), value);
    Some(value)
}

impl Verified {
    fn add(&mut self, found: Option<Found>) {
        if let Some(found) = found {
            *self.costs.get_or_insert_default() += found;
        }
    }

    /// This pass's costs, with the answers of an `earlier` one counted in.
    pub fn after(self, earlier: Self) -> Self {
        Self {
            lookups: earlier.lookups + self.lookups,
            mismatches: earlier.mismatches + self.mismatches,
            first_mismatch: earlier.first_mismatch.or(self.first_mismatch),
            costs: self.costs,
        }
    }

    /// Compares an answer with what was expected.
    fn check<K: DataKeys>(&mut self, key: &K::Key, expected: Option<&[u8]>, answer: Option<&[u8]>) {
        self.lookups += 1;
        if answer != expected {
            self.mismatches += 1;
            self.first_mismatch.get_or_insert_with(|| {
                format!("key {}: expected {}, got {}", K::show(key), describe(expected), describe(answer))
            });
        }
    }
}

fn describe(value: Option<&[u8]>) -> String {
    const SHOWN: usize = 16;
    match value {
        None => "no value".to_owned(),
        Some(value) => {
            let dots = if value.len() > SHOWN { ".." } else { "" };
            let hex: String = value.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots} ({} bytes)", value.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache_client::{Cost, U64Keys};
    use fpcache_datasets::OpenOptions;

    #[test]
    fn a_value_where_none_belongs_and_none_where_one_belongs_are_wrong() {
        let set = U64Keys::open(&"sequential:1K".parse().unwrap(), &OpenOptions::default()).unwrap();
        let mut verified = Verified::default();
        let mut value = Vec::new();
        let mut check = |key: u64, index: u64, answer: Option<&[u8]>| {
            let expected = expected::<U64Keys>(&set, ValueBytes::Fixed(8), index, &mut value);
            verified.check::<U64Keys>(&key, expected, answer);
            verified.mismatches
        };
        check(5_000, ABSENT, Some(&[0; 8]));
        check(1, 1, None);
        assert_eq!(check(1, 1, Some(&[1, 0, 0, 0, 0, 0, 0])), 3);
        assert_eq!(check(5_000, ABSENT, None), 3);
    }

    #[test]
    fn every_plan_is_counted_and_a_second_pass_keeps_the_firsts_mistakes() {
        let found = |plan| Found {
            version: None,
            plan,
            cost: Cost { round_trips: 1, reads: 2, bytes: 30, ..Cost::default() },
        };
        let mut first = Verified { lookups: 4, mismatches: 1, ..Verified::default() };
        first.first_mismatch = Some("key 7".to_owned());
        first.add(Some(found(Plan::Range)));
        let mut second = Verified { lookups: 4, ..Verified::default() };
        for plan in [Plan::Cached, Plan::Cached, Plan::TwoStage, Plan::Speculative] {
            second.add(Some(found(plan)));
        }
        let both = second.after(first);
        assert_eq!((both.lookups, both.mismatches, both.first_mismatch.as_deref()), (8, 1, Some("key 7")));
        let costs = both.costs.unwrap();
        assert_eq!((costs.cached, costs.two_stage, costs.range, costs.speculative), (2, 1, 0, 1));
        assert_eq!((costs.round_trips, costs.reads, costs.bytes), (4, 8, 120));
    }
}
