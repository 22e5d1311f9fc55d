//! Updates alone beside a published row: what rates of writes and atomics are fitted to, and what
//! they say of the others.

use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::chime::{self, Chime};
use fpcache_workbench::dmtree::{self, DmTree};
use fpcache_workbench::nic::{Hosts, NicSpec};
use fpcache_workbench::oracle::Oracle;
use fpcache_workbench::rolex::{self, Rolex};
use fpcache_workbench::sherman::{self, Sherman};
use fpcache_workbench::smart::Smart;
use fpcache_workbench::words::{Index, Memory, OverWords};

use super::keys;

/// The artifact's: keys of 24 bytes, values of 8, six compute nodes of 72 threads with 4
/// coroutines.
const SIZES: Sizes = Sizes { key: 24, value: 8 };
/// Everything is kept.
const BUDGET: u64 = 1 << 30;

fn hosts() -> Hosts {
    Hosts { threads: 72, coroutines: 4, ..Hosts::paper(NicSpec::CX6_100G) }
}

/// Updates alone over `count` keys; the last half is measured, all answers are right.
fn updates<I: Index>(
    (count, lookups): (u64, usize),
    theta: Option<f64>,
    build: impl FnOnce(&mut Memory, &[u64], Sizes, u16) -> I,
) -> Measured {
    let keys = keys(count);
    let distribution = theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta });
    let options = RequestOptions { lookups, distribution, negative: 0.0, seed: 1, shift_every: None };
    let of = |(i, key): (usize, &u64)| Operation::Update { key: *key, value: i as u64, reads: false };
    let operations: Vec<_> = generate(&keys, &options).keys.iter().enumerate().map(of).collect();
    let hosts = hosts();
    let mut memory = Memory::new(1);
    let index = build(&mut memory, &keys, SIZES, hosts.compute_nodes);
    let system = OverWords::new(index, memory, &hosts);
    let oracle = Oracle::new(std::sync::Arc::new(keys));
    let measured = Bench::new(system, &hosts, &operations, oracle).run(hosts, operations.len() as u64 / 2);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    measured
}

/// Every system's millions of updates a second.
fn row(count: (u64, usize), theta: Option<f64>) -> [(&'static str, Measured); 5] {
    let chime = chime::Options { hot_share: 0.3, ..chime::Options::published(BUDGET) };
    // Its page, which has room for fewer entries of these sizes.
    let sherman = sherman::Options {
        leaf_slots: sherman::Options::slots_of_page(SIZES),
        ..sherman::Options::published(BUDGET)
    };
    let rolex = rolex::Options::published(BUDGET);
    let dmtree = dmtree::Options::published(BUDGET);
    [
        ("smart", updates(count, theta, |m, k, s, n| Smart::new(m, k, s, n, BUDGET))),
        ("chime", updates(count, theta, |m, k, s, n| Chime::new(m, k, s, n, &chime))),
        ("sherman", updates(count, theta, |m, k, s, n| Sherman::new(m, k, s, n, &sherman))),
        ("rolex", updates(count, theta, |m, k, s, n| Rolex::new(m, k, s, n, &rolex).expect("models fit"))),
        ("dmtree", updates(count, theta, |m, k, s, n| DmTree::new(m, k, s, n, &dmtree))),
    ]
}

#[test]
#[ignore = "prints the rows of docs/nic-model.md: minutes"]
fn updates_beside_the_published_row() {
    for (name, theta, lookups) in [("uniform", None, 1_000_000), ("zipf 0.99", Some(0.99), 60_000)] {
        for (system, measured) in row((200_000, lookups), theta) {
            let tally = &measured.tally;
            println!(
                "{name} {system}: {:.1} M/s, {:.2} trips, {:.2} atomics, {:.0} bytes from nodes, {:?}, median and more {:?} us",
                measured.per_second / 1e6,
                tally.per_operation(tally.round_trips),
                tally.per_operation(tally.atomics),
                tally.per_operation(tally.bytes_from),
                measured.bound,
                measured.latency_us
            );
        }
    }
}

#[test]
fn under_skew_writes_of_a_key_are_combined_and_locks_are_handed_over() {
    let keys = keys(20_000);
    let operations = super::operations(&keys, 40_000, 1, Some(1.2));
    let nodes = super::hosts().compute_nodes;
    let smart = super::run(&keys, &operations, |m, k| Smart::new(m, k, SIZES, nodes, BUDGET)).tally;
    assert!(smart.per_operation(smart.writes) < 0.95, "one WRITE for several: {smart:?}");
    let sherman = sherman::Options::published(BUDGET);
    let sherman = super::run(&keys, &operations, |m, k| Sherman::new(m, k, SIZES, nodes, &sherman)).tally;
    // An entry, and the unlock where the lock is not handed over.
    assert!(sherman.per_operation(sherman.writes) < 1.9, "{sherman:?}");
}
