//! Lookups take what tuning promises of them, in a table with the parameters that it chose.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::{Integers, TestKeys};
use crate::common::{mix, value_of};
use fpcache::cache::CacheConfig;
use fpcache::key_space::U64Keys;
use fpcache::layout::{GroupChoice, GroupForm, TableParameters};
use fpcache::matching::Matcher;
use fpcache::plan::{FabricCosts, PlanChoice};
use fpcache::read::{LookupScratch, Outcome, look_up};
use fpcache::table::{Table, TableOptions};
use fpcache::tuning::{Considered, Forced, KeySample, Lookups, tune};
use fpcache_fabric::local::{Hub, LocalOptions};
use fpcache_fabric::{Connection, SharedMemory};
use fpcache_memserver::MemoryNode;

const KEYS: u64 = 40_000;
const LOOKUPS: u64 = 30_000;
/// Models are told with 5 KiB to spare, and an eighth more to grow into, which is much beside those
/// of so few keys.
const SPARE: u64 = (5 << 10) * 9 / 8;

/// In gaps of all sizes: no line is near many of them.
fn uneven() -> Vec<u64> {
    let gap = |n: u64| 1 + (1 << (mix(n / 50) % 24)) + mix(n) % (1 << (mix(n) % 24));
    let mut next = 0;
    (0..KEYS).map(|n| (next += gap(n), next).1).collect()
}

/// Ranks as often as the rank to the power of -theta says.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(theta: f64) -> Self {
        let mut sum = 0.0;
        Self((1..=KEYS).map(|rank| (sum += (rank as f64).powf(-theta), sum).1).collect())
    }

    fn rank(&self, n: u64) -> usize {
        let all = self.0.last().copied().unwrap_or_default();
        let at = (mix(n ^ 0x5eed) >> 11) as f64 / (1u64 << 53) as f64 * all;
        self.0.partition_point(|sum| *sum < at).min(KEYS as usize - 1)
    }
}

/// What lookups took: round trips and bytes of the mean one, and bytes that are kept for each key,
/// but for what a table has beside.
#[derive(Debug)]
struct Taken {
    round_trips: f64,
    bytes: f64,
    kept: f64,
}

fn taken(keys: &[u64], parameters: TableParameters, asked: &Lookups) -> Taken {
    let region = Arc::new(SharedMemory::anonymous(16 << 20).expect("memory"));
    let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).expect("a region");
    let value = |key| value_of::<Integers>(key, 1, 8);
    let records = keys.iter().map(|key| (Integers::key(*key), value(*key)));
    node.load_records(parameters, (), records).expect("fits");
    let hub = Hub::new(Arc::clone(&region), LocalOptions::default()).expect("a hub");
    let mut endpoint = hub.connect().expect("a connection").endpoint();
    let options = TableOptions {
        costs: asked.costs,
        cache: asked.budget.map(CacheConfig::of),
        ..TableOptions::plan(PlanChoice::Auto)
    };
    let table = Table::<U64Keys>::open(&mut endpoint, &options).expect("a budget that is enough");
    let mut scratch = LookupScratch::new(Matcher::detect());
    if let Some(cache) = table.cache() {
        scratch = scratch.with_cache_handle(cache.handle(1));
    }
    let zipf = Zipf::new(asked.theta);
    let mut ranked = keys.to_vec();
    ranked.sort_unstable_by_key(|key| mix(*key));
    let (mut round_trips, mut bytes) = (0u64, 0u64);
    // Lookups fetch tables and fill the hot cache before those that count, and so does each key
    // once.
    let before = |first: u64| (first..first + LOOKUPS).map(|n| ranked[zipf.rank(n)]);
    let warming: Vec<u64> = before(0).chain(ranked.iter().copied()).chain(before(LOOKUPS)).collect();
    let counted = (0..LOOKUPS).map(|n| ranked[zipf.rank(n + 2 * LOOKUPS)]);
    for (n, key) in warming.iter().copied().chain(counted).enumerate() {
        let take = |outcome: &Outcome, value: Option<&[u8]>| (outcome.cost, value.is_some());
        let (cost, is_there) =
            look_up(&mut endpoint, &table, &mut scratch, Integers::key(key).borrow(), take).expect("whole");
        assert!(is_there);
        if n >= warming.len() {
            round_trips += u64::from(cost.round_trips);
            bytes += cost.bytes;
        }
    }
    let stats = table.cache_stats();
    let kept = stats.map_or(table.view().model_bytes() as u64 + table.group_bytes(), |stats| {
        stats.model_bytes + stats.group_bytes + stats.hot_bytes
    });
    let mean = |sum: u64, count: u64| sum as f64 / count as f64;
    Taken { round_trips: mean(round_trips, LOOKUPS), bytes: mean(bytes, LOOKUPS), kept: mean(kept, KEYS) }
}

fn is_kept(keys: &[u64], asked: &Lookups, form: Option<GroupForm>, epsilon: u32) {
    let forced =
        Forced { groups: Some(form.map(GroupChoice::Fixed)), epsilon: Some(epsilon), ..Forced::default() };
    let sample = KeySample::<U64Keys>::of(keys.len(), |at| keys[at]);
    let shape = TableParameters::default().shape;
    let tuned = tune(&sample, shape, asked, 0.0, &forced).expect("a choice");
    let Considered { parameters, candidate, split } = tuned.chosen();
    let taken = taken(keys, *parameters, asked);
    let promised = [split.way.round_trips, split.way.bytes, split.bytes / candidate.keys];
    let what = format!("{form:?}, {asked:?}: {promised:?}, {taken:?}, {split:?}");
    for (told, is) in promised.into_iter().zip([taken.round_trips, taken.bytes]) {
        assert!((told / is - 1.0).abs() < 0.1, "{what}");
    }
    assert!((promised[2] - taken.kept).abs() < 0.1 * taken.kept + SPARE as f64 / KEYS as f64, "{what}");
}

#[test]
fn lookups_take_and_keep_what_tuning_promises() {
    let keys = uneven();
    // No budget, one for all tables and some entries, and one for all there is.
    for budget in [None, Some(60_000), Some(4 << 20)] {
        for theta in [0.0, 0.99] {
            let asked = Lookups::over(FabricCosts::TCP).with_budget(budget).with_theta(theta);
            for form in [None, Some(GroupForm::Plain), Some(GroupForm::Seeded), Some(GroupForm::Pilots)] {
                is_kept(&keys, &asked, form, 16);
            }
        }
    }
}
