//! Every system: answers that are right, and what operations cost beside what the structure implies
//! on paper.

mod chime;
mod dmtree;
mod filters;
mod fpcache;
mod inserts;
mod latest;
mod paper;
mod range;
mod rolex;
mod scans;
mod sherman;
mod smart;
mod updates;

use std::sync::Arc;

use fpcache_datasets::requests::{Distribution, RequestOptions, generate};
use fpcache_workbench::bench::{Bench, Measured, Operation};
use fpcache_workbench::nic::{Hosts, NicSpec};
use fpcache_workbench::oracle::Oracle;
use fpcache_workbench::scatter;
use fpcache_workbench::words::{Index, Memory, OverWords};

/// Keys in no pattern, ascending.
fn keys(count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (1..=count).map(scatter).collect();
    keys.sort_unstable();
    keys
}

/// Reads of these keys, with one operation in `updates` an update.
fn operations(keys: &[u64], count: usize, updates: usize, theta: Option<f64>) -> Vec<Operation> {
    let distribution = theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta });
    let options = RequestOptions { lookups: count, distribution, negative: 0.0, seed: 1, shift_every: None };
    let of = |(i, key): (usize, &u64)| match updates > 0 && i % updates == 0 {
        true => Operation::Update { key: *key, value: i as u64, reads: false },
        false => Operation::Read { key: *key },
    };
    generate(keys, &options).keys.iter().enumerate().map(of).collect()
}

/// Reads of keys that are not among `count` of [`keys`].
fn absent(count: u64, reads: u64) -> Vec<Operation> {
    (1..=reads).map(|i| Operation::Read { key: scatter(count + i) }).collect()
}

fn hosts() -> Hosts {
    Hosts { threads: 8, ..Hosts::paper(NicSpec::CX6_100G) }
}

/// A system over words: the second half of the operations is measured. Nothing may be wrong.
fn run<I: Index>(
    keys: &[u64],
    operations: &[Operation],
    build: impl FnOnce(&mut Memory, &[u64]) -> I,
) -> Measured {
    run_over(1, keys, operations, build)
}

/// The same over `memory_nodes` memory nodes.
fn run_over<I: Index>(
    memory_nodes: u16,
    keys: &[u64],
    operations: &[Operation],
    build: impl FnOnce(&mut Memory, &[u64]) -> I,
) -> Measured {
    let hosts = Hosts { memory_nodes, ..hosts() };
    let mut memory = Memory::new(memory_nodes);
    let index = build(&mut memory, keys);
    let system = OverWords::new(index, memory, &hosts);
    let oracle = Oracle::new(Arc::new(keys.to_vec()));
    let measured = Bench::new(system, &hosts, operations, oracle).run(hosts, operations.len() as u64 / 2);
    assert_eq!((measured.wrong, measured.first_wrong.as_deref()), (0, None));
    measured
}

#[test]
fn a_read_modify_write_is_one_operation_of_one_client_that_reads_first() {
    let keys = keys(5_000);
    let operations = |theta: Option<f64>| {
        let mut operations = operations(&keys, 40_000, 2, theta);
        for operation in &mut operations {
            if let Operation::Update { reads, .. } = operation {
                *reads = true;
            }
        }
        operations
    };
    let sizes = fpcache_workbench::Sizes { key: 8, value: 8 };
    let (nodes, budget) = (hosts().compute_nodes, 64 << 20);
    let sherman = fpcache_workbench::sherman::Options::published(budget);
    let uniform = operations(None);
    let tally = run(&keys, &uniform, |memory, keys| {
        fpcache_workbench::sherman::Sherman::new(memory, keys, sizes, nodes, &sherman)
    })
    .tally;
    // Half of them READ a leaf, the others a leaf, and then its lock, the leaf again, and the entry
    // with the unlock.
    let measured = uniform.len() as u64 / 2 - hosts().clients() as u64;
    assert_eq!(tally.operations, measured);
    assert!((2.5..2.7).contains(&tally.per_operation(tally.round_trips)), "{tally:?}");
    assert!((1.5..1.7).contains(&tally.per_operation(tally.reads)), "{tally:?}");
    // Whose read another's lookup answers goes on to the update all the same.
    let tally = run(&keys, &operations(Some(0.9)), |memory, keys| {
        fpcache_workbench::smart::Smart::new(memory, keys, sizes, nodes, budget)
    })
    .tally;
    assert_eq!(tally.operations, measured);
    assert!(tally.delegated > 0 && is_near(tally.per_operation(tally.writes), 0.5), "{tally:?}");
}

#[test]
fn latencies_are_those_of_so_many_clients_at_that_rate() {
    let keys = keys(20_000);
    let operations = operations(&keys, 60_000, 0, None);
    let options = fpcache_workbench::segments::Options::published(64 << 20);
    let sizes = fpcache_workbench::Sizes { key: 8, value: 1024 };
    let measured = run(&keys, &operations, |memory, keys| {
        fpcache_workbench::range::Range::new(memory, keys, sizes, hosts().compute_nodes, &options)
            .expect("a directory")
    });
    // Little's law: each of the clients waits for one operation at a time.
    let mean = hosts().clients() as f64 / measured.per_second * 1e6;
    let [median, p95, p99, _] = measured.latency_us;
    assert!((median / mean - 1.0).abs() < 0.2, "{median} beside {mean}");
    assert!(p95 > median && p99 > p95 && p99 < 3.0 * mean, "{:?}", measured.latency_us);
}

/// Whether two figures are within three per cent of each other.
fn is_near(measured: f64, paper: f64) -> bool {
    (measured / paper - 1.0).abs() <= 0.03
}
