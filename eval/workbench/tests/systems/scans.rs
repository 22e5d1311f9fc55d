//! Scans: what they cost beside what the structure implies on paper, and that nothing is missing
//! while records come.

use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::plan::{Plan, PlanChoice};
use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::chime::{self, Chime};
use fpcache_workbench::dmtree::{self, DmTree};
use fpcache_workbench::fpcache::{FpCache, Numbered, Options};
use fpcache_workbench::nic::Hosts;
use fpcache_workbench::oracle::Oracle;
use fpcache_workbench::range::Range;
use fpcache_workbench::rolex::{self, Rolex};
use fpcache_workbench::segments;
use fpcache_workbench::sherman::{self, Sherman};
use fpcache_workbench::smart::Smart;
use fpcache_workbench::{Sizes, scatter};

use super::{hosts, inserts, is_near, keys, run};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };

/// Records of the scans on average.
const LENGTH: f64 = 50.5;

/// Scans of 1 to 100 records, each as often, from any key but the last thousand.
fn scans(keys: &[u64], count: u64) -> Vec<Operation> {
    let starts = (keys.len() - 1000) as u64;
    let of = |i: u64| {
        let random = scatter(scatter(i) + 1);
        Operation::Scan { key: keys[(random % starts) as usize], count: 1 + (i % 100) as u32 }
    };
    (0..count).map(of).collect()
}

/// What [`inserts::mixed`] has, a scan instead of some reads, whose first key is there, about to
/// be, or never; and some up to the end, or from 0 on.
fn mixed(all: &[u64]) -> (Vec<u64>, Vec<Operation>) {
    let (loaded, mut operations) = inserts::mixed(all, 3);
    for (i, operation) in operations.iter_mut().enumerate() {
        let random = scatter(i as u64 + 7);
        if let Operation::Read { key } = *operation
            && random.is_multiple_of(3)
        {
            let key = match random % 50 {
                0 => loaded[loaded.len() - 20],
                1 => 0,
                _ => key,
            };
            *operation = Operation::Scan { key, count: (random >> 32) as u32 % 101 };
        }
    }
    (loaded, operations)
}

/// Keys in no pattern, and dense ones from 0 on.
fn both() -> [Vec<u64>; 2] {
    [keys(20_000), (0..20_000).map(|i| i * 3).collect()]
}

fn per_scan(measured: &Measured, count: u64) -> f64 {
    measured.tally.per_operation(count)
}

/// A scan of leaves that hold `per_leaf` records each.
fn leaves(per_leaf: f64) -> f64 {
    1.0 + (LENGTH - 1.0) / per_leaf
}

#[test]
fn sherman_reads_the_pages_that_the_records_lie_in() {
    let keys = keys(37 * 42 * 30);
    let options = sherman::Options::published(64 << 20);
    let measured =
        run(&keys, &scans(&keys, 40_000), |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    assert!(is_near(per_scan(&measured, measured.tally.reads), leaves(37.0)), "{:?}", measured.tally);
    assert!(
        is_near(per_scan(&measured, measured.tally.bytes_from), leaves(37.0) * 1024.0),
        "{:?}",
        measured.tally
    );
    assert!(per_scan(&measured, measured.tally.round_trips) < 1.5, "{:?}", measured.tally);
}

#[test]
fn sherman_misses_nothing_while_pages_split() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (budget, leaf_slots) in [(64 << 20, 54), (16 << 10, 8), (0, 3)] {
            let options = sherman::Options { leaf_slots, ..sherman::Options::published(budget) };
            run(&loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
        }
    }
}

#[test]
fn chime_reads_the_leaves_that_the_records_lie_in() {
    let keys = keys(60_000);
    let options = chime::Options::published(64 << 20);
    let measured =
        run(&keys, &scans(&keys, 40_000), |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    // 41 of 64 entries of 19 bytes, a version for each 63, the metadata of eight neighbourhoods, a
    // lock.
    let bytes = 64.0 * 19.0 + 20.0 + 8.0 * 9.0 + 8.0;
    assert!(is_near(per_scan(&measured, measured.tally.reads), leaves(41.0)), "{:?}", measured.tally);
    assert!(
        is_near(per_scan(&measured, measured.tally.bytes_from), leaves(41.0) * bytes),
        "{:?}",
        measured.tally
    );
}

#[test]
fn chime_misses_nothing_while_leaves_split() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (budget, fill) in [(64 << 20, 0.65), (64 << 10, 0.85), (0, 0.65)] {
            let options = chime::Options { fill, ..chime::Options::published(budget) };
            run(&loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
        }
    }
}

#[test]
fn dmtree_reads_the_leaves_that_the_records_lie_in() {
    let keys = keys(22 * 2_000);
    let options = dmtree::Options::published(64 << 20);
    let measured =
        run(&keys, &scans(&keys, 60_000), |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    // 32 records of 24 bytes, and what says which leaf is next.
    let bytes = 32.0 * 24.0 + 16.0;
    assert!(is_near(per_scan(&measured, measured.tally.reads), leaves(22.0)), "{:?}", measured.tally);
    assert!(
        is_near(per_scan(&measured, measured.tally.bytes_from), leaves(22.0) * bytes),
        "{:?}",
        measured.tally
    );
}

#[test]
fn dmtree_misses_nothing_while_leaves_split() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (budget, fill) in [(64 << 20, 0.69), (16 << 10, 1.0), (0, 0.69)] {
            let options = dmtree::Options { fill, ..dmtree::Options::published(budget) };
            run(&loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
        }
    }
}

#[test]
fn rolex_reads_the_leaves_within_the_error_bound_of_the_records() {
    let keys = keys(50_000);
    let options = rolex::Options::published(64 << 20);
    let measured = run(&keys, &scans(&keys, 40_000), |memory, keys| {
        Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit")
    });
    let leaves = 1.0 + (2.0 * 16.0 + LENGTH - 1.0) / 16.0;
    assert!(is_near(per_scan(&measured, measured.tally.reads), leaves), "{leaves} {:?}", measured.tally);
    assert!(is_near(per_scan(&measured, measured.tally.bytes_from), leaves * 256.0), "{:?}", measured.tally);
    assert!(is_near(per_scan(&measured, measured.tally.round_trips), 1.0), "{:?}", measured.tally);
}

#[test]
fn rolex_misses_nothing_while_leaves_get_synonyms() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (budget, epsilon, leaf_slots) in [(64 << 20, 16, 16), (3_000, 16, 16), (64 << 20, 4, 8)] {
            let options = rolex::Options { epsilon, leaf_slots, ..rolex::Options::published(budget) };
            run(&loaded, &operations, |memory, keys| {
                Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit")
            });
        }
    }
}

#[test]
fn smart_reads_every_record_and_the_headers_of_the_nodes_above_it() {
    // Nodes of 256 slots, all of them used.
    let keys: Vec<u64> = (0..65_536).collect();
    let measured =
        run(&keys, &scans(&keys, 60_000), |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 20));
    let nodes = 1.0 + (LENGTH - 1.0) / 256.0;
    assert!(is_near(per_scan(&measured, measured.tally.reads), LENGTH + nodes), "{:?}", measured.tally);
    assert!(
        is_near(per_scan(&measured, measured.tally.bytes_from), 34.0 * LENGTH + 16.0 * nodes),
        "{:?}",
        measured.tally
    );
    assert!(is_near(per_scan(&measured, measured.tally.round_trips), 1.0), "{:?}", measured.tally);
}

#[test]
fn smart_misses_nothing_while_nodes_grow() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for budget in [64 << 20, 16 << 10, 0] {
            run(&loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, budget));
        }
    }
    // From nothing.
    let (_, operations) = mixed(&keys(5_000));
    let operations: Vec<_> =
        operations.into_iter().filter(|o| !matches!(o, Operation::Update { .. })).collect();
    run(&[], &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 10));
}

/// Slots that a scan of segments reads: those of the records at a fill of 0.85, and four
/// half-widths of windows and two.
fn slots(epsilon: f64) -> f64 {
    LENGTH / 0.85 + 0.5 + 4.0 * epsilon + 2.0
}

#[test]
fn range_reads_are_the_slots_of_the_records_and_of_their_windows() {
    let keys = keys(50_000);
    let options = segments::Options { least_epsilon: 16, ..segments::Options::published(64 << 20) };
    let measured = run(&keys, &scans(&keys, 40_000), |memory, keys| {
        Range::new(memory, keys, SMALL, NODES, &options).expect("a directory")
    });
    assert!(
        is_near(per_scan(&measured, measured.tally.bytes_from), slots(16.0) * 24.0),
        "{:?}",
        measured.tally
    );
}

#[test]
fn range_reads_miss_nothing_while_segments_are_replaced() {
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (epsilon, fill) in [(16, 0.85), (4, 1.0), (64, 0.85)] {
            let options = segments::Options { epsilon, fill, ..segments::Options::published(64 << 20) };
            run(&loaded, &operations, |memory, keys| {
                Range::new(memory, keys, SMALL, NODES, &options).expect("a directory")
            });
        }
    }
}

fn fpcache<K: Numbered>(
    hosts: &Hosts,
    keys: &[u64],
    operations: &[Operation],
    (sizes, options): (Sizes, &Options),
) -> Measured {
    let inserts = operations.iter().filter(|o| matches!(o, Operation::Insert { .. })).count();
    let system = FpCache::<K>::new(keys, sizes, options, hosts, inserts).expect("a table");
    let oracle = Oracle::new(std::sync::Arc::new(keys.to_vec()));
    let measured = Bench::new(system, hosts, operations, oracle).run(*hosts, operations.len() as u64 / 2);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    measured
}

#[test]
fn fpcache_reads_the_slots_of_the_records_and_of_their_windows() {
    let keys = keys(50_000);
    let options = Options::published(64 << 20, SMALL);
    let measured = fpcache::<U64Keys>(&hosts(), &keys, &scans(&keys, 40_000), (SMALL, &options));
    let tally = measured.tally;
    // The windows of these keys are those of range reads over the same segments. What came may be
    // believed by the lease of the reuse sequence.
    let options = segments::Options::published(64 << 20);
    let range = run(&keys, &scans(&keys, 40_000), |memory, keys| {
        Range::new(memory, keys, SMALL, NODES, &options).expect("a directory")
    });
    let bytes = per_scan(&range, range.tally.bytes_from);
    assert!(is_near(tally.per_operation(tally.bytes_from), bytes), "{bytes} {tally:?}");
    assert!((slots(6.0) * 24.0..slots(9.0) * 24.0).contains(&bytes), "bounds of what the keys need: {bytes}");
    assert!(is_near(tally.per_operation(tally.round_trips), per_scan(&range, range.tally.round_trips)));
}

#[test]
fn fpcache_misses_nothing_while_segments_are_replaced() {
    let large = Sizes { key: 128, value: 128 };
    for all in both() {
        let (loaded, operations) = mixed(&all);
        for (budget, fill, epsilon) in [(256 << 10, 0.85, 16), (1 << 20, 1.0, 4), (256 << 10, 0.85, 64)] {
            let options = Options { fill, epsilon, ..Options::published(budget, SMALL) };
            fpcache::<U64Keys>(&hosts(), &loaded, &operations, (SMALL, &options));
        }
        let options =
            Options { plan: PlanChoice::Fixed(Plan::Range), ..Options::published(512 << 10, large) };
        fpcache::<ByteKeys>(&hosts(), &loaded, &operations, (large, &options));
    }
}

/// Lookups would tell the memory node that its directory is out of date, and many changes would
/// have it write another one.
#[test]
fn fpcache_scans_get_on_without_lookups_where_models_are_in_pages() {
    let (loaded, mut operations) = mixed(&keys(20_000));
    let mut number = 0;
    operations.retain(|operation| {
        number += 1;
        match operation {
            Operation::Read { .. } => false,
            Operation::Scan { .. } => true,
            Operation::Update { .. } | Operation::Insert { .. } => number % 8 == 0,
        }
    });
    let options = Options { epsilon: 4, ..Options::published(16 << 10, SMALL) };
    fpcache::<U64Keys>(&hosts(), &loaded, &operations, (SMALL, &options));
}

#[test]
fn scans_go_on_from_one_memory_node_to_the_next() {
    let hosts = Hosts { memory_nodes: 3, ..hosts() };
    let (loaded, operations) = mixed(&keys(20_000));
    fpcache::<U64Keys>(&hosts, &loaded, &operations, (SMALL, &Options::published(256 << 10, SMALL)));
}
