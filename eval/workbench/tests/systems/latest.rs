//! Operations that ask for the newest keys: they ask for what is there.

use std::sync::Arc;

use fpcache::key_space::U64Keys;
use fpcache_datasets::requests::{Growth, InsertOrder, Operation as Drawn, Operations, Workload};
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Bench, Measured, Operation, System, Tally};
use fpcache_workbench::dmtree::{self, DmTree};
use fpcache_workbench::fpcache::{FpCache, Options};
use fpcache_workbench::nic::{Hosts, NicSpec};
use fpcache_workbench::oracle::Oracle;
use fpcache_workbench::smart::Smart;
use fpcache_workbench::words::{Index, Memory, OverWords};

use super::keys;

const SMALL: Sizes = Sizes { key: 8, value: 8 };
const BUDGET: u64 = 1 << 20;
const INSERTS: usize = 2_000;

/// What YCSB's D does to a system, with ranks or with keys that are named when the stream is drawn.
fn tally<S: System>(by_rank: bool, system: impl FnOnce(&Hosts, &[u64]) -> S) -> Tally {
    let hosts = Hosts { threads: 32, ..Hosts::paper(NicSpec::CX6_100G) };
    let growth = Growth::split(&keys(20_000), INSERTS, InsertOrder::Random, 1);
    let workload = Workload::named("D").expect("YCSB's D");
    let drawn = Operations::generate(&growth.loaded, &workload, 30_000, 1, 0);
    let play = drawn.play(&growth.loaded, &growth.inserts, 0);
    let play = if by_rank { play.by_rank() } else { play };
    let of = |(i, operation)| match operation {
        Drawn::Read(key) => Operation::Read { key },
        Drawn::Insert(key) => Operation::Insert { key, value: i as u64 },
        other => panic!("{other:?} in D"),
    };
    let operations: Vec<_> = play.take(30_000).enumerate().map(of).collect();
    let oracle = Oracle::new(Arc::new(growth.loaded.clone()));
    let bench = Bench::new(system(&hosts, &growth.loaded), &hosts, &operations, oracle);
    let bench = if by_rank { bench.by_recency() } else { bench };
    let Measured { tally, wrong, first_wrong, .. } = bench.run(hosts, 10_000);
    assert_eq!((wrong, first_wrong.as_deref()), (0, None));
    tally
}

fn over_words<I: Index>(hosts: &Hosts, build: impl FnOnce(&mut Memory) -> I) -> OverWords<I> {
    let mut memory = Memory::new(1);
    let index = build(&mut memory);
    OverWords::new(index, memory, hosts)
}

#[test]
fn the_newest_keys_are_those_whose_inserts_have_ended() {
    let options = Options { together: true, ..Options::published(BUDGET, SMALL) };
    let fpcache = |hosts: &Hosts, keys: &[u64]| {
        FpCache::<U64Keys>::new(keys, SMALL, &options, hosts, INSERTS).expect("a table")
    };
    let dmtree = |hosts: &Hosts, keys: &[u64]| {
        let options = dmtree::Options::published(BUDGET);
        over_words(hosts, |memory| DmTree::new(memory, keys, SMALL, hosts.compute_nodes, &options))
    };
    let smart = |hosts: &Hosts, keys: &[u64]| {
        over_words(hosts, |memory| Smart::new(memory, keys, SMALL, hosts.compute_nodes, BUDGET))
    };
    for (name, tally) in
        [("FPCache", tally(true, fpcache)), ("DMTree", tally(true, dmtree)), ("SMART", tally(true, smart))]
    {
        assert!(tally.lookups > 15_000 && tally.absent == 0, "{name}: {tally:?}");
    }
    // Clients that share a stream ask for keys that are being inserted if these are named before.
    let named = tally(false, fpcache);
    assert!(named.absent * 20 > named.lookups, "{named:?}");
}
