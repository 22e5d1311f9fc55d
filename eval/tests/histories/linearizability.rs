//! Whatever clients read and write at once, by whatever plans and with segments replaced all the
//! time, some order of the operations explains what every one of them was told.

use std::time::{Duration, Instant};

use fpcache::layout::Grouping;
use fpcache_client::{
    ByteKeys, CacheConfig, ClientConfig, CreateOptions, KeyKind, Plan, PlanChoice, TableClient, TableName,
    TableParameters, Tables, U64Keys,
};
use fpcache_eval::history::client::{ClientStore, every_way};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::nanoseconds_since;
use fpcache_eval::history::store::Store;
use fpcache_eval::history::stress::{Mix, Queue, StressOptions, StressProcess, StressReport, stress};
use fpcache_fabric::Serving;
use fpcache_fabric::tcp::{ListenOptions, Listener};
use fpcache_memserver::{Catalogue, CatalogueConfig};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const CONFIG: fn() -> ClientConfig = || ClientConfig::default().with_deadline(Duration::from_secs(20));

/// Threads that read in different ways, over one memory node in this process whose segments inserts
/// replace all the time.
fn run<K: NumberedKeys>(ways: &[usize], options: &StressOptions, seed: u64) -> StressReport {
    run_within::<K>(8 << 20, ways, options, seed)
}

fn run_within<K: NumberedKeys>(
    capacity: usize,
    ways: &[usize],
    options: &StressOptions,
    seed: u64,
) -> StressReport {
    let all = every_way(CONFIG(), 64 << 10);
    let ways: Vec<_> = ways.iter().map(|way| all[way % all.len()].clone()).collect();
    run_in::<K>(capacity, K::small_segments(), &ways, options, seed)
}

/// The same in a table of these parameters, by these ways to read with their names.
fn run_in<K: NumberedKeys>(
    capacity: usize,
    parameters: TableParameters,
    ways: &[(String, ClientConfig)],
    options: &StressOptions,
    seed: u64,
) -> StressReport {
    let first = TableClient::<K>::embedded_with(capacity, CONFIG()).unwrap();
    // Models that suit the keys, or know nothing of them.
    let known = if seed.is_multiple_of(2) { &options.keys[..] } else { &[] };
    ClientStore::create_table_of(&first, known, parameters).unwrap();
    let processes = ways.iter().enumerate().map(|(i, (name, config))| {
        let client = first.beside(config.clone()).unwrap();
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (i as u64) << 32);
        let store = ClientStore::new(client);
        match i % 2 {
            0 => StressProcess { name: name.clone(), store, random },
            _ => StressProcess { name: format!("{name}, reader"), store: store.with_reader(), random },
        }
    });
    let report = stress(options, processes.collect(), nanoseconds_since(Instant::now())).unwrap();
    assert!(report.is_linearizable(), "{} keys, seed {seed}: {report:#?}", K::NAME);
    assert_eq!(report.unknown, 0, "{report:#?}");
    report
}

fn options(keys: Vec<u64>, batches: usize, calls: usize) -> StressOptions {
    StressOptions { keys, batches, calls, ..StressOptions::default() }
}

fn every_plan<K: NumberedKeys>() {
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let mut operations = 0;
    for (round, ways) in [[0, 1, 2, 3], [4, 5, 6, 7], [1, 2, 5, 6], [3, 7, 0, 4]].iter().enumerate() {
        let report = run::<K>(ways, &options(keys.clone(), 3, 4_000), round as u64);
        assert!(
            report.rebuilds.is_some_and(|rebuilds| rebuilds > 100),
            "segments were replaced: {report:#?}"
        );
        operations += report.operations;
    }
    assert!(operations > 150_000, "{operations} operations");
}

#[test]
fn readers_by_every_plan_and_writers_agree_on_an_order() {
    every_plan::<U64Keys>();
}

#[test]
fn so_they_do_where_keys_are_byte_strings() {
    every_plan::<ByteKeys>();
}

/// Readers by groups, and others, of a table whose records lie in groups, with and without
/// fingerprints; as many keys as outgrow these.
fn by_groups<K: NumberedKeys>() {
    let keys: Vec<u64> = (0..300).map(|i| i * 7).collect();
    let groups = CONFIG().with_plan(PlanChoice::Fixed(Plan::Groups));
    let ways = [
        ("groups", groups.clone()),
        ("two-stage", CONFIG().with_plan(PlanChoice::Fixed(Plan::TwoStage))),
        ("groups, hot cache", groups.clone().with_cache(Some(CacheConfig::of(64 << 10)))),
        ("groups, too", groups),
    ];
    let ways = ways.map(|(name, config)| (name.to_owned(), config));
    let plain = Grouping::plain(3, 4);
    let tables =
        [(plain, true), (plain, false), (Grouping::seeded(2, 3), true), (Grouping::pilots(4, 2), true)];
    for (seed, (grouping, stores_fingerprints)) in (0..).zip(tables) {
        let groups = Some(grouping);
        let parameters = TableParameters { groups, stores_fingerprints, ..K::small_segments() };
        let report = run_in::<K>(8 << 20, parameters, &ways, &options(keys.clone(), 3, 4_000), seed);
        assert!(report.rebuilds.is_some_and(|rebuilds| rebuilds > 25), "{grouping:?}: {report:#?}");
    }
}

#[test]
fn readers_by_groups_of_any_form_agree_on_an_order() {
    by_groups::<U64Keys>();
    by_groups::<ByteKeys>();
}

fn few_keys<K: NumberedKeys>() {
    let keys: Vec<u64> = (0..12).map(|i| i * 1_000).collect();
    let mix = Mix { compare_and_set: 3.0, nearest: 10.0, ..Mix::default() };
    for (ways, as_a_whole) in [([1, 2, 4], false), ([0, 3, 6], true)] {
        let options = StressOptions { mix, as_a_whole, ..options(keys.clone(), 3, 4_000) };
        let report = run::<K>(&ways, &options, 9);
        assert!(report.whole > 0 || !as_a_whole, "a batch is decided as a whole: {report:#?}");
    }
}

#[test]
fn few_keys_that_everybody_wants_are_in_order_too() {
    few_keys::<U64Keys>();
    few_keys::<ByteKeys>();
}

/// Keys inserted in ascending order while the oldest are deleted, beside others that come and go.
fn queues<K: NumberedKeys>(capacity: usize, queue: Queue) -> StressReport {
    let mix = Mix { queue: 60.0, ..Mix::default() };
    let keys = (0..100).map(|i| i * 7).collect();
    let options = StressOptions { mix, queue, ..options(keys, 3, 1_500) };
    let report = run_within::<K>(capacity, &[0, 2, 4, 6], &options, 12);
    assert!(report.oldest > 1_500, "oldest keys were deleted: {report:#?}");
    report
}

#[test]
fn queues_of_a_constant_length_are_in_order() {
    let queue = Queue { keys: (1_000..3_000).collect(), live: 50 };
    queues::<U64Keys>(512 << 10, queue.clone());
    queues::<ByteKeys>(2 << 20, queue);
}

#[test]
fn queues_that_grow_until_there_is_no_room_are_in_order() {
    let queue = Queue { keys: (1_000..5_000).collect(), live: usize::MAX };
    let report = queues::<U64Keys>(64 << 10, queue.clone());
    assert!(report.refused > 20, "the memory node was full: {report:#?}");
    let report = queues::<ByteKeys>(256 << 10, queue);
    assert!(report.refused > 20, "the memory node was full: {report:#?}");
}

/// A few million operations over each kind of keys; minutes in debug.
#[test]
#[ignore = "minutes"]
fn a_few_million_operations_have_an_order() {
    for run in [run::<U64Keys>, run::<ByteKeys>] {
        let mut operations = 0;
        let mut seed = 100;
        while operations < 3_000_000 {
            let keys: Vec<u64> = (0..200 + seed % 7 * 100).map(|i| i * (1 + seed % 3 * 1_000_003)).collect();
            let ways = [0, 1, 2, 3].map(|way| (way + seed as usize) % 8);
            operations += run(&ways, &options(keys, 10, 20_000), seed).operations;
            seed += 1;
        }
    }
}

/// How long the reuse sequence is leased for by a memory node that listens there: over cards, for
/// longer than a READ in a guest.
pub(super) fn lease_at(address: &str) -> Duration {
    if address.starts_with("rdma://") { Duration::from_millis(20) } else { Duration::ZERO }
}

/// A memory node in this process that listens there, with a table of these parameters for such
/// keys; and how its clients find it.
pub(super) fn listening<K: NumberedKeys>(
    address: &str,
    parameters: TableParameters,
    keys: &[u64],
) -> (Serving, String, ClientConfig) {
    // Over cards memory is reused often, and waits for leases.
    let lease = lease_at(address);
    let capacity = if lease.is_zero() { 32 << 20 } else { 1 << 20 };
    let config = CatalogueConfig { lease, ..CatalogueConfig::of(capacity) };
    let options_of_node = ListenOptions { io_threads: 2, ..ListenOptions::default() };
    let listener = Listener::bind(&[address.parse().unwrap()], options_of_node).unwrap();
    let url = listener.addresses()[0].to_string();
    let serving = listener.spawn(Catalogue::open(&config).unwrap()).unwrap();
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    let name: TableName = "histories".parse().unwrap();
    Tables::connect(&url).unwrap().create(&name, kind, CreateOptions::default()).unwrap();
    let config = CONFIG().with_table(name);
    let first = TableClient::<K>::connect_with(&url, config.clone()).unwrap();
    ClientStore::create_table_of(&first, keys, parameters).unwrap();
    (serving, url, config)
}

/// Threads that read in these ways, each over a connection of its own.
fn run_at<K: NumberedKeys>(url: &str, ways: &[(&str, ClientConfig)], options: &StressOptions) {
    let processes = ways.iter().zip(0u64..).map(|((name, config), number)| {
        let store = ClientStore::new(TableClient::<K>::connect_with(url, config.clone()).unwrap());
        let random = Xoshiro256PlusPlus::seed_from_u64(number);
        StressProcess { name: (*name).to_owned(), store, random }
    });
    let report = stress(options, processes.collect(), nanoseconds_since(Instant::now())).unwrap();
    assert!(report.is_linearizable(), "{} keys: {report:#?}", K::NAME);
    assert_eq!(report.unknown, 0, "{report:#?}");
    assert!(report.whole > 0 || !options.as_a_whole, "a batch is decided as a whole: {report:#?}");
    assert!(report.rebuilds.is_some_and(|rebuilds| rebuilds > 10), "segments were replaced: {report:#?}");
}

/// Threads that have the memory node look keys up, beside others that read by themselves, all at
/// this address.
fn by_the_memory_node<K: NumberedKeys>(address: &str) {
    let keys: Vec<u64> = (0..200).map(|i| i * 7).collect();
    let (_serving, url, config) = listening::<K>(address, K::small_segments(), &keys);
    let at_node = config.clone().with_plan(PlanChoice::Fixed(Plan::AtNode));
    let ways = [
        ("at-node", at_node.clone()),
        ("auto", config.clone()),
        ("at-node, hot cache", at_node.clone().with_cache(Some(CacheConfig::of(64 << 10)))),
        ("two-stage", config.with_plan(PlanChoice::Fixed(Plan::TwoStage))),
    ];
    run_at::<K>(&url, &ways, &StressOptions { as_a_whole: true, ..options(keys, 3, 500) });
    // Lookups that are not answered are other plans': how many are while inserts replace segments
    // is the machine's to say, and whether its processors have other work. When these have ended
    // the view is brought up to date.
    let mut store = ClientStore::new(TableClient::<K>::connect_with(&url, at_node).unwrap());
    for number in 10_000..11_000 {
        store.put(number, 1).unwrap();
        assert_eq!(store.get(number).unwrap().0, Some(1));
    }
    let (mut by_node, began) = (0, Instant::now());
    for number in (10_000..11_000).cycle() {
        let (value, plan) = store.get(number).unwrap();
        assert_eq!(value, Some(1));
        by_node += u32::from(plan == Some(Plan::AtNode));
        if by_node == 1_000 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the memory node answered {by_node} lookups");
    }
}

#[test]
fn lookups_by_the_memory_node_agree_with_those_by_clients() {
    by_the_memory_node::<U64Keys>("tcp://127.0.0.1:0");
    by_the_memory_node::<ByteKeys>("tcp://127.0.0.1:0");
}

#[cfg(feature = "rdma")]
pub(super) const CARDS: &str = "rdma://127.0.0.1:0";

/// READs by network cards, by every plan, of tables without groups and with those of each form.
#[cfg(feature = "rdma")]
fn by_cards<K: NumberedKeys>() {
    let keys: Vec<u64> = (0..200).map(|i| i * 7).collect();
    let groupings = [Grouping::plain(3, 4), Grouping::seeded(2, 3), Grouping::pilots(4, 2)];
    for groups in groupings.map(Some).into_iter().chain([None]) {
        let parameters = TableParameters { groups, ..K::small_segments() };
        let (_serving, url, config) = listening::<K>(CARDS, parameters, &keys);
        let by = |plan| config.clone().with_plan(PlanChoice::Fixed(plan));
        let other = groups.map_or(Plan::Range, |_| Plan::Groups);
        let ways = [
            (other.name(), by(other)),
            ("two-stage", by(Plan::TwoStage)),
            ("speculative", by(Plan::Speculative)),
            ("another, hot cache", by(other).with_cache(Some(CacheConfig::of(64 << 10)))),
        ];
        run_at::<K>(&url, &ways, &options(keys.clone(), 1, 500));
        // Segments that were replaced have tables of groups, which are asked for with the first
        // lookup.
        let mut store = ClientStore::new(TableClient::<K>::connect_with(&url, by(other)).unwrap());
        let asked = keys.iter().cycle().take(4 * keys.len());
        let by_plan = asked.filter(|key| store.get(**key).unwrap().1 == Some(other)).count();
        assert!(by_plan > keys.len(), "{groups:?}: {by_plan} lookups were answered by {}", other.name());
    }
}

#[cfg(feature = "rdma")]
#[test]
#[ignore = "needs an RDMA device"]
fn rdma_cards_agree_on_an_order() {
    by_cards::<U64Keys>();
    by_cards::<ByteKeys>();
    by_the_memory_node::<U64Keys>(CARDS);
}
