//! Every lookup answers as a `BTreeMap` of the same records would, whatever the keys and the table's parameters.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use common::value_of;
use fpcache_client::{
    Answers, CacheConfig, Client, ClientConfig, FingerprintWidth, OnConflict, Plan, PlanChoice, Policy,
    TableParameters, Variant,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Most keys of one shape.
const KEYS: usize = 500;

/// Key sets that are hard on a model, each for a reason of its own.
fn shape() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        // Every integer from 2^62 on: floats cannot tell neighbours apart.
        (1..KEYS as u64).prop_map(|n| (0..n).map(|i| (1 << 62) + i).collect()),
        // Runs of neighbours with anything between.
        vec((any::<u64>(), 1..80u64), 1..8).prop_map(|runs| runs
            .into_iter()
            .flat_map(|(at, n)| (0..n).map(move |i| at.wrapping_add(i)))
            .collect()),
        // No pattern: huge gaps.
        vec(any::<u64>(), 1..KEYS),
        // Both ends of the key range.
        vec(prop_oneof![Just(0), Just(u64::MAX), 0..50u64, u64::MAX - 50..=u64::MAX], 1..60),
        // One key.
        prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)].prop_map(|key| vec![key]),
        // Powers of two and their neighbours: gaps that double.
        Just((0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect()),
        // Clusters, each with its own spacing.
        vec((any::<u64>(), 0..40u32, 1..100u64), 1..6).prop_map(|clusters| {
            let cluster = |(at, gap, n): (u64, u32, u64)| (0..n).map(move |i| at.wrapping_add(i << gap));
            clusters.into_iter().flat_map(cluster).collect()
        }),
        // A line, and then a cliff.
        (1..1000u64, 2..KEYS as u64)
            .prop_map(|(gap, n)| (0..n).map(|i| i * gap).chain([u64::MAX - 1]).collect()),
    ]
}

/// One shape, or two on top of each other.
fn key_set() -> impl Strategy<Value = Vec<u64>> {
    vec(shape(), 1..=2).prop_map(|shapes| {
        let mut keys = shapes.concat();
        keys.sort_unstable();
        keys.dedup();
        keys
    })
}

fn parameters() -> impl Strategy<Value = TableParameters> {
    const VALUES: RangeInclusive<u32> = 0..=100;
    let epsilon = prop_oneof![Just(0), 1..8u32, 0..=300u32];
    let fill = prop_oneof![Just(1.0), 0.3..1.0];
    let max_slots = prop_oneof![16..64u16, Just(4096), any::<u16>().prop_map(|n| n.max(16)), Just(u16::MAX)];
    (select(&FingerprintWidth::ALL[..]), VALUES, epsilon, fill, max_slots).prop_map(
        |(width, value_bytes, epsilon, fill, max_slots)| TableParameters {
            width,
            value_bytes,
            epsilon,
            fill,
            max_slots,
        },
    )
}

fn plan() -> impl Strategy<Value = PlanChoice> {
    select(vec![
        PlanChoice::Auto,
        PlanChoice::Fixed(Plan::TwoStage),
        PlanChoice::Fixed(Plan::Range),
        PlanChoice::Fixed(Plan::Speculative),
    ])
}

/// None, or a budget from hardly any to plenty, in every variant and policy.
fn cache() -> impl Strategy<Value = Option<CacheConfig>> {
    let any = |budget| {
        let (variant, policy, on_conflict) =
            (select(Variant::ALL), select(Policy::ALL), select(OnConflict::ALL));
        (Just(budget), variant, policy, on_conflict).prop_map(|(budget, variant, policy, on_conflict)| {
            Some(CacheConfig { budget, policy, variant, on_conflict })
        })
    };
    prop_oneof![Just(None), (8_192..200_000u64).prop_flat_map(any), Just(1 << 20).prop_flat_map(any)]
}

struct Pair {
    client: Client,
    oracle: BTreeMap<u64, Vec<u8>>,
}

impl Pair {
    fn new(keys: &[u64], parameters: TableParameters, plan: PlanChoice, cache: Option<CacheConfig>) -> Self {
        let config = ClientConfig { plan, cache, ..ClientConfig::default() };
        let client = Client::embedded_with(4 << 20, config).unwrap();
        let loaded = common::load(&client, parameters, keys.iter().copied(), 0).unwrap();
        assert_eq!(loaded.keys, keys.len() as u64);
        let value = |key: u64| value_of(key, 0, parameters.value_bytes as usize);
        Self { client, oracle: keys.iter().map(|key| (*key, value(*key))).collect() }
    }

    /// The keys, their neighbours, and what lies outside.
    fn questions(&self) -> Vec<u64> {
        let near = |key: &u64| [*key, key.wrapping_add(1), key.wrapping_sub(1)];
        self.oracle.keys().flat_map(near).chain([0, 1, 1 << 62, 1 << 63, u64::MAX]).collect()
    }

    fn check_single_lookups(&self, questions: &[u64]) -> Result<(), TestCaseError> {
        let mut value = vec![0xaa; 7];
        for key in questions {
            let expected = self.oracle.get(key);
            let found = self.client.get_into(*key, &mut value).unwrap();
            let got = found.version.map(|_| &value);
            prop_assert_eq!(got, expected, "key {:#x}", key);
            prop_assert!(expected.is_some() || value.is_empty());
            prop_assert_eq!(self.client.contains(*key).unwrap(), expected.is_some(), "key {:#x}", key);
        }
        Ok(())
    }

    fn check_groups(&self, questions: &[u64], group: usize) -> Result<(), TestCaseError> {
        let mut answers = Answers::new();
        for keys in questions.chunks(group) {
            self.client.multi_get_into(keys, &mut answers).unwrap();
            prop_assert_eq!(answers.len(), keys.len());
            for (key, value) in keys.iter().zip(answers.values()) {
                prop_assert_eq!(value, self.oracle.get(key).map(Vec::as_slice), "key {:#x}", key);
            }
        }
        Ok(())
    }

    fn check_budget(&self) {
        if let Some(stats) = self.client.cache_stats().unwrap() {
            assert!(stats.used <= stats.budget, "{stats:?}");
            assert!(stats.entries <= stats.capacity, "{stats:?}");
        }
    }

    fn check_scan(&self, start: u64, limit: usize) -> Result<(), TestCaseError> {
        let records = self.client.scan(start, limit).unwrap();
        let expected: Vec<_> =
            self.oracle.range(start..).take(limit).map(|(key, value)| (*key, value.clone())).collect();
        prop_assert_eq!(records, expected, "from {:#x}, at most {}", start, limit);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_keys_and_parameters(
        keys in key_set(),
        parameters in parameters(),
        plan in plan(),
        cache in cache(),
        group in 1..70usize,
        starts in vec((any::<Index>(), 0..3usize), 3),
        limit in prop_oneof![0..4usize, 0..200usize],
    ) {
        let pair = Pair::new(&keys, parameters, plan, cache);
        let questions = pair.questions();
        // What the first round teaches the hot cache the second one finds there.
        for _ in 0..2 {
            pair.check_single_lookups(&questions)?;
            pair.check_groups(&questions, group)?;
        }
        pair.check_budget();
        pair.check_scan(0, usize::MAX)?;
        for (index, shift) in starts {
            let key = *index.get(&keys);
            pair.check_scan([key, key.wrapping_add(1), key.wrapping_sub(1)][shift], limit)?;
        }
    }
}

#[test]
fn a_scan_longer_than_one_round_of_reads() {
    let parameters = TableParameters { value_bytes: 600, ..TableParameters::default() };
    let keys = common::scattered(3000);
    let pair = Pair::new(&keys, parameters, PlanChoice::Auto, None);
    pair.check_scan(0, usize::MAX).unwrap();
    pair.check_scan(keys[1000] + 1, 1500).unwrap();
    pair.check_scan(keys[2999], 2).unwrap();
}
