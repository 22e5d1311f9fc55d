//! Every lookup answers as a `BTreeMap` of the same records would, whatever the keys and the
//! table's parameters.
#![cfg(feature = "embedded")]

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::common::{TestKeys, patient, value_of};
use fpcache_client::{
    Answers, ByteKeys, CacheConfig, FingerprintWidth, OnConflict, Plan, PlanChoice, Policy, RecordShape,
    TableClient, TableParameters, U64Keys, Variant,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;

for_both_kinds_of_keys!(whatever_the_keys_and_parameters, a_scan_longer_than_one_round_of_reads);

/// Most keys of one shape.
const KEYS: usize = 500;

/// Numbers that are hard on a model, each set for a reason of its own.
fn numbers() -> impl Strategy<Value = Vec<u64>> {
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

/// Byte strings that are hard on a model.
fn strings() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let few_letters = || prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(255)];
    prop_oneof![
        // Short strings of few letters: prefixes of one another, zero bytes, runs of the greatest
        // byte.
        vec(vec(few_letters(), 1..7), 1..KEYS),
        // Anything.
        vec(vec(any::<u8>(), 1..30), 1..KEYS),
        // Each a prefix of the next.
        (1..200usize, any::<u8>()).prop_map(|(n, byte)| (1..=n).map(|len| vec![byte; len]).collect()),
        // Folders within folders, whose names share far more than eight bytes.
        vec((0..4usize, 0..4usize, any::<u16>()), 1..KEYS).prop_map(|files| files
            .into_iter()
            .map(|(a, b, c)| format!("/srv/{}/{}{c}", "archive/".repeat(a * 4), "deep/".repeat(b * 6))
                .into_bytes())
            .collect()),
        // Many strings that differ after what a number can tell, and one beside them.
        (any::<u8>(), 1..KEYS as u16).prop_map(|(byte, n)| (0..n)
            .map(|i| [&[byte; 40][..], &i.to_be_bytes()].concat())
            .chain([vec![byte.wrapping_add(1)]])
            .collect()),
        // As long as keys can be.
        vec(prop_oneof![1..4usize, Just(4095), Just(4096)], 1..8)
            .prop_map(|lengths| lengths.into_iter().map(|len| vec![b'x'; len]).collect()),
    ]
}

/// What each kind of keys brings to the test.
trait Hard: TestKeys {
    /// A budget that is hardly any: a few directory pages.
    const LEAST_BUDGET: u64;
    /// How many tables are tried.
    const CASES: u32;

    /// Keys, in any order.
    fn keys() -> BoxedStrategy<Vec<Self::Owned>>;

    /// Keys around a key.
    fn near(key: &Self::Owned) -> Vec<Self::Owned>;

    /// Keys wherever the others are.
    fn far() -> Vec<Self::Owned>;

    /// A shape in which these keys fit.
    fn shape_for(keys: &[Self::Owned], value_bytes: u32, vary: bool) -> RecordShape;
}

impl Hard for U64Keys {
    const LEAST_BUDGET: u64 = 8_192;
    const CASES: u32 = 256;

    fn keys() -> BoxedStrategy<Vec<u64>> {
        numbers().boxed()
    }

    fn near(key: &u64) -> Vec<u64> {
        vec![*key, key.wrapping_add(1), key.wrapping_sub(1)]
    }

    fn far() -> Vec<u64> {
        vec![0, 1, 1 << 62, 1 << 63, u64::MAX]
    }

    fn shape_for(_: &[u64], value_bytes: u32, vary: bool) -> RecordShape {
        let room = 8 + value_bytes;
        RecordShape { key_bytes: Some(8), value_bytes: (!vary).then_some(value_bytes), room }
    }
}

impl Hard for ByteKeys {
    const LEAST_BUDGET: u64 = 60_000;
    const CASES: u32 = 60;

    fn keys() -> BoxedStrategy<Vec<Vec<u8>>> {
        let of_numbers = numbers().prop_map(|numbers| numbers.into_iter().map(Self::key).collect());
        prop_oneof![1 => of_numbers, 2 => strings()].boxed()
    }

    fn near(key: &Vec<u8>) -> Vec<Vec<u8>> {
        let (last, front) = key.split_last().unwrap();
        let with = |byte: u8| [front, &[byte]].concat();
        vec![
            key.clone(),
            [&key[..], &[0]].concat(),
            front.to_vec(),
            with(last.wrapping_add(1)),
            with(last.wrapping_sub(1)),
        ]
    }

    fn far() -> Vec<Vec<u8>> {
        // No table can hold the empty string, nor one of more than 4 KiB.
        vec![
            vec![],
            vec![0],
            b"m".to_vec(),
            vec![255; 9],
            vec![255; 4096],
            vec![255; 5000],
            vec![b'x'; 70_000],
        ]
    }

    fn shape_for(keys: &[Vec<u8>], value_bytes: u32, vary: bool) -> RecordShape {
        let longest = keys.iter().map(Vec::len).max().unwrap_or(1);
        let fixed = keys.iter().all(|key| key.len() == longest);
        let room = longest as u32 + value_bytes;
        RecordShape {
            key_bytes: fixed.then_some(longest as u16),
            value_bytes: (!vary).then_some(value_bytes),
            room,
        }
    }
}

/// One set of keys, or two on top of each other.
fn key_set<K: Hard>() -> impl Strategy<Value = Vec<K::Owned>> {
    vec(K::keys(), 1..=2).prop_map(|sets| {
        let mut keys = sets.concat();
        keys.sort_unstable();
        keys.dedup();
        keys
    })
}

/// Parameters for any keys, the length of values, and whether that varies.
fn parameters() -> impl Strategy<Value = (TableParameters, u32, bool)> {
    let epsilon = prop_oneof![Just(0), 1..8u32, 0..=300u32];
    let fill = prop_oneof![Just(1.0), 0.3..1.0];
    let max_slots = prop_oneof![16..64u16, Just(4096), any::<u16>().prop_map(|n| n.max(16)), Just(u16::MAX)];
    (select(&FingerprintWidth::ALL[..]), 0..=100u32, any::<bool>(), epsilon, fill, max_slots).prop_map(
        |(width, value_bytes, vary, epsilon, fill, max_slots)| {
            let parameters =
                TableParameters { width, epsilon, fill, max_slots, ..TableParameters::default() };
            (parameters, value_bytes, vary)
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
fn cache<K: Hard>() -> impl Strategy<Value = Option<CacheConfig>> {
    let any = |budget| {
        let (variant, policy, on_conflict) =
            (select(Variant::ALL), select(Policy::ALL), select(OnConflict::ALL));
        (Just(budget), variant, policy, on_conflict).prop_map(|(budget, variant, policy, on_conflict)| {
            let cache = CacheConfig::of(budget).with_policy(policy).with_variant(variant);
            Some(cache.with_on_conflict(on_conflict))
        })
    };
    prop_oneof![Just(None), (K::LEAST_BUDGET..200_000).prop_flat_map(any), Just(1 << 20).prop_flat_map(any)]
}

struct Pair<K: Hard> {
    client: TableClient<K>,
    oracle: BTreeMap<K::Owned, Vec<u8>>,
}

impl<K: Hard> Pair<K> {
    fn new(
        keys: &[K::Owned],
        parameters: TableParameters,
        plan: PlanChoice,
        cache: Option<CacheConfig>,
        trained: bool,
    ) -> Self {
        let config = patient().with_plan(plan).with_cache(cache);
        let client = TableClient::<K>::embedded_with(16 << 20, config).unwrap();
        let shape = parameters.shape;
        // Where values vary, each record fills its slot, or has no value, or something between.
        let value = |(i, key): (usize, &K::Owned)| {
            let most = shape.room as usize - K::encoded_len(key.borrow());
            let len = shape.value_bytes.map_or(most * (i % 3) / 2, |bytes| bytes as usize);
            (key.clone(), value_of(i as u64, 0, len))
        };
        let oracle: BTreeMap<_, _> = keys.iter().enumerate().map(value).collect();
        let expected = keys.len() as u64;
        let mut load = match trained {
            true => {
                client.load_like(parameters, expected, keys.iter().step_by(3).map(Borrow::borrow)).unwrap()
            }
            false => client.load(parameters, expected).unwrap(),
        };
        oracle.iter().for_each(|(key, value)| load.push(key.clone(), value).unwrap());
        assert_eq!(load.finish().unwrap().keys, expected);
        Self { client, oracle }
    }

    /// The keys, their neighbours, and what lies outside.
    fn questions(&self) -> Vec<K::Owned> {
        self.oracle.keys().flat_map(K::near).chain(K::far()).collect()
    }

    fn check_single_lookups(&self, questions: &[K::Owned]) -> Result<(), TestCaseError> {
        let mut value = vec![0xaa; 7];
        for key in questions {
            let expected = self.oracle.get::<K::Owned>(key);
            let found = self.client.get_into(key.clone(), &mut value).unwrap();
            let got = found.version.map(|_| &value);
            prop_assert_eq!(got, expected, "key {:x?}", key);
            prop_assert!(expected.is_some() || value.is_empty());
            prop_assert_eq!(self.client.contains(key.clone()).unwrap(), expected.is_some(), "key {:x?}", key);
        }
        Ok(())
    }

    fn check_groups(&self, questions: &[K::Owned], group: usize) -> Result<(), TestCaseError> {
        let mut answers = Answers::new();
        for keys in questions.chunks(group) {
            self.client.multi_get_into(keys, &mut answers).unwrap();
            prop_assert_eq!(answers.len(), keys.len());
            for (key, value) in keys.iter().zip(answers.values()) {
                prop_assert_eq!(value, self.oracle.get::<K::Owned>(key).map(Vec::as_slice), "key {:x?}", key);
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

    fn check_scan(&self, start: &K::Owned, limit: usize) -> Result<(), TestCaseError> {
        let records = self.client.scan(start.clone(), limit).unwrap();
        let expected: Vec<_> = self
            .oracle
            .range::<K::Owned, _>(start..)
            .take(limit)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        prop_assert_eq!(records, expected, "from {:x?}, at most {}", start, limit);
        Ok(())
    }

    fn check_range(&self, (start, end): (&K::Owned, &K::Owned), limit: usize) -> Result<(), TestCaseError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.client.scan_range(start.clone(), end.clone(), limit, take).unwrap();
        let inside = self.oracle.iter().filter(|(key, _)| (start..end).contains(key));
        let expected: Vec<_> = inside.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect();
        prop_assert_eq!(records, expected, "from {:x?} to {:x?}, at most {}", start, end, limit);
        Ok(())
    }
}

fn whatever_the_keys_and_parameters<K: Hard>() {
    let config = ProptestConfig { cases: K::CASES, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (
        key_set::<K>(),
        parameters(),
        plan(),
        cache::<K>(),
        any::<bool>(),
        1..70usize,
        vec((any::<Index>(), any::<Index>(), any::<Index>()), 3),
        prop_oneof![0..4usize, 0..200usize],
    );
    let ran = TestRunner::new(config).run(&strategy, |drawn| {
        let (keys, (parameters, value_bytes, vary), plan, cache, trained, group, starts, limit) = drawn;
        let parameters = TableParameters { shape: K::shape_for(&keys, value_bytes, vary), ..parameters };
        let pair = Pair::<K>::new(&keys, parameters, plan, cache, trained);
        let questions = pair.questions();
        // What the first round teaches the hot cache the second one finds there.
        for _ in 0..2 {
            pair.check_single_lookups(&questions)?;
            pair.check_groups(&questions, group)?;
        }
        pair.check_budget();
        pair.check_scan(&K::lowest().to_owned(), usize::MAX)?;
        for (key, shift, other) in starts {
            let near = K::near(key.get(&keys));
            let (start, end) = (shift.get(&near), other.get(&questions));
            pair.check_scan(start, limit)?;
            pair.check_range((start, end), limit)?;
            pair.check_range((end, start), usize::MAX)?;
        }
        Ok(())
    });
    ran.unwrap();
}

fn a_scan_longer_than_one_round_of_reads<K: Hard>() {
    let keys: Vec<K::Owned> = crate::common::scattered(3000).into_iter().map(K::key).collect();
    let shape = K::shape_for(&keys, 600, false);
    let parameters = TableParameters { shape, ..TableParameters::default() };
    let pair = Pair::<K>::new(&keys, parameters, PlanChoice::Auto, None, true);
    pair.check_scan(&K::lowest().to_owned(), usize::MAX).unwrap();
    pair.check_scan(&K::near(&keys[1000])[1], 1500).unwrap();
    pair.check_scan(&keys[2999], 2).unwrap();
    pair.check_range((&keys[10], &keys[2500]), usize::MAX).unwrap();
}
