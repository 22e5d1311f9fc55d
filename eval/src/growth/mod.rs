//! `growth`: how fast a store takes inserts, what they cost, and how fast lookups are afterwards,
//! compared with a store that was loaded with the same keys in bulk.

pub mod direct;
pub mod options;
pub mod row;

use anyhow::ensure;
use fpcache::message::NodeStats;
use fpcache_client::{ByteKeys, U64Keys};
use fpcache_datasets::count::human;
use fpcache_datasets::requests::{Growth, InsertOrder, Mix, OperationKind, Workload};
use fpcache_datasets::{Bar, KeyKind, KeySet};

use crate::data::{DataKeys, DataSet};
use crate::machine::Calibration;
use crate::run::collected::Collected;
use crate::run::host::Host;
use crate::run::options::RunArgs;
use crate::run::report::check_json;
use crate::verdict::Verdict;
use crate::ycsb::bench::{Bench, with_room};
use crate::ycsb::done::Done;
use crate::ycsb::node_counts::{NodeCounts, Reading};
use crate::ycsb::pass::{Course, End, Timing};
use options::GrowthArgs;
use row::{GrowthRow, Measured};

/// Runs the growths and reports them.
///
/// # Errors
/// If the options make no sense, or a memory node fails.
pub fn growth(arguments: &GrowthArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    check_json(arguments.run.json.as_deref())?;
    let bar = Bar::default();
    let calibration = arguments.run.calibrate(&bar);
    match arguments.run.dataset.key_kind() {
        KeyKind::U64 => {}
        KeyKind::Bytes if arguments.direct => {
            anyhow::bail!(
                "--direct makes requests of integer keys: omit it, or take a data set such as fb:1M"
            )
        }
        KeyKind::Bytes => return grow_all::<ByteKeys>(arguments, calibration, &bar),
    }
    if arguments.direct {
        let dataset = arguments.run.open::<U64Keys>(&bar)?;
        let mut rows = Collected::new(arguments.run.json.as_deref())?;
        let measured = arguments.orders.iter().try_for_each(|&order| {
            let growth = split::<U64Keys>(arguments, &dataset, order)?;
            rows.add([direct::measure(arguments, &dataset, order, &growth, calibration, &bar)?])
        });
        rows.deliver(direct::table, measured)?;
        return Ok(Verdict::AllRight);
    }
    grow_all::<U64Keys>(arguments, calibration, &bar)
}

fn grow_all<K: DataKeys>(
    arguments: &GrowthArgs,
    calibration: Calibration,
    bar: &Bar,
) -> anyhow::Result<Verdict> {
    let dataset = arguments.run.open::<K>(bar)?;
    let mut rows = Collected::new(arguments.run.json.as_deref())?;
    let measured = arguments.orders.iter().enumerate().try_for_each(|(at, &order)| {
        eprintln!("order {} of {}: {order}", at + 1, arguments.orders.len());
        rows.add([grow::<K>(arguments, &dataset, order, 2 * at as u32, calibration, bar)?])
    });
    rows.deliver(row::table, measured)?;
    Ok(Verdict::of(rows.rows().iter().map(|row| row.mismatches).sum()))
}

fn split<K: DataKeys>(
    arguments: &GrowthArgs,
    dataset: &K::Set,
    order: InsertOrder,
) -> anyhow::Result<Growth> {
    let inserts = arguments.inserts(dataset.len(), order);
    let growth = Growth::split(&dataset.numbers(), inserts, order, arguments.run.seed);
    ensure!(
        !growth.inserts.is_empty(),
        "{order}: there is no key to insert into {} keys: use more keys or another order",
        growth.loaded.len()
    );
    Ok(growth)
}

fn grow<K: DataKeys>(
    arguments: &GrowthArgs,
    dataset: &K::Set,
    order: InsertOrder,
    ordinal: u32,
    calibration: Calibration,
    bar: &Bar,
) -> anyhow::Result<GrowthRow> {
    let growth = split::<K>(arguments, dataset, order)?;
    let all = Growth { loaded: all_keys(&growth), inserts: Vec::new() };
    let run = with_room::<K>(&arguments.run, dataset, all.loaded.len() as u64);
    let mut grown = Host::<K>::start(&run, dataset, ordinal)?;
    let found = half(arguments, dataset, &growth, &grown, bar);
    let (mut bench, before, inserts, counts, nodes) = found.map_err(|error| grown.explain(error))?;
    let mut fresh = Host::<K>::start(&run, dataset, ordinal + 1)?;
    let compared = beside_fresh(&run, dataset, &all, &mut bench, &fresh, bar);
    let (after, of_fresh, fresh_node, fresh_load_s) =
        compared.map_err(|error| fresh.explain(grown.explain(error)))?;
    let final_mismatches = bench.verify(&growth.loaded, bar).map_err(|error| grown.explain(error))?.wrong;
    let nodes = [nodes[0], nodes[1], fresh_node];
    let measured =
        Measured { before, inserts, counts, after, fresh: of_fresh, nodes, fresh_load_s, final_mismatches };
    Ok(GrowthRow::new::<K>(arguments, dataset, order, &measured, calibration))
}

fn all_keys(growth: &Growth) -> Vec<u64> {
    let mut keys = [&growth.loaded[..], &growth.inserts[..]].concat();
    keys.sort_unstable();
    keys
}

fn course<'a>(run: &RunArgs, loaded: &'a [u64], group: u32, operations: u64) -> Course<'a> {
    Course {
        loaded,
        value_bytes: run.value_bytes.most() as usize,
        group: group as usize,
        in_flight: 1,
        end: End::Operations(operations),
        drawn: operations,
        seed: run.seed,
    }
}

fn lookups(run: &RunArgs) -> Workload {
    Workload { distribution: run.distribution, ..Workload::custom(Mix::new(&[(OperationKind::Read, 1.0)])) }
}

type Half<'s, K> = (Bench<'s, K>, Vec<Done>, Done, NodeCounts, [NodeStats; 2]);

/// Loads the first keys, measures lookups and inserts the others.
fn half<'s, K: DataKeys>(
    arguments: &GrowthArgs,
    dataset: &'s K::Set,
    growth: &Growth,
    host: &Host<K>,
    bar: &Bar,
) -> anyhow::Result<Half<'s, K>> {
    let run = &arguments.run;
    let mut bench = Bench::load(host, dataset, run, growth, bar)?;
    let reads = course(run, &growth.loaded, run.batch, run.lookups);
    let mut before = Vec::new();
    for _ in 0..run.rounds {
        before.push(bench.pass(&lookups(run), &reads, Timing::Whole)?.0);
    }
    let first = Reading::of(&bench.store.client)?.node;
    let workload = Workload::custom(Mix::new(&[(OperationKind::Insert, 1.0)]));
    let count = growth.inserts.len() as u64;
    let inserts = course(run, &growth.loaded, arguments.insert_batch, count);
    let phase = format!("inserting {} keys", human(count));
    let (done, counts) = bar.during(&phase, 1, || bench.pass(&workload, &inserts, Timing::Each))?;
    let second = Reading::of(&bench.store.client)?.node;
    Ok((bench, before, done, counts, [first, second]))
}

/// Lookups in the grown store and in a fresh one, in turns; the fresh one's counters and seconds of
/// loading.
fn beside_fresh<'s, K: DataKeys>(
    run: &RunArgs,
    dataset: &'s K::Set,
    all: &Growth,
    grown: &mut Bench<'s, K>,
    host: &Host<K>,
    bar: &Bar,
) -> anyhow::Result<(Vec<Done>, Vec<Done>, NodeStats, f64)> {
    let mut fresh = Bench::load(host, dataset, run, all, bar)?;
    let reads = course(run, &all.loaded, run.batch, run.lookups);
    let (mut after, mut of_fresh) = (Vec::new(), Vec::new());
    for round in 0..run.rounds {
        // Each round begins with the other one.
        for turn in 0..2 {
            let (bench, found) =
                if (round + turn) % 2 == 0 { (&mut *grown, &mut after) } else { (&mut fresh, &mut of_fresh) };
            found.push(bench.pass(&lookups(run), &reads, Timing::Whole)?.0);
        }
    }
    let node = Reading::of(&fresh.store.client)?.node;
    Ok((after, of_fresh, node, fresh.load_time().as_secs_f64()))
}
