//! `ycsb`: workloads that read and change records.

pub mod bench;
pub mod check;
pub mod done;
pub mod ledger;
pub mod node_counts;
pub mod options;
pub mod pass;
pub mod report;
pub mod row;
pub mod schedule;
pub mod store;
#[cfg(test)]
mod tests;
mod thread;
pub mod value;

use fpcache_client::{ByteKeys, U64Keys};
use fpcache_datasets::requests::{Growth, Workload};
use fpcache_datasets::{Bar, KeyKind, KeySet};

use crate::data::{DataKeys, DataSet};
use crate::machine::Machine;
use crate::run::host::Host;
use crate::run::report::{check_json, deliver};
use crate::verdict::Verdict;
use bench::{Bench, with_room};
use node_counts::Reading;
use options::YcsbArgs;
use pass::{Course, Timing};
use row::{Around, Measured, YcsbRow};

/// Operations drawn first for a pass that ends by time, at least.
const LEAST_DRAWN: u64 = 1 << 20;

/// Runs the workloads and reports them.
///
/// # Errors
/// If the options make no sense, or the memory node fails.
pub fn ycsb(arguments: &YcsbArgs) -> anyhow::Result<Verdict> {
    #[cfg(feature = "workbench")]
    if let Some(card) = arguments.run.transport.card() {
        return crate::modelled::ycsb::ycsb(arguments, card);
    }
    match arguments.run.dataset.key_kind() {
        KeyKind::U64 => ycsb_over::<U64Keys>(arguments),
        KeyKind::Bytes => ycsb_over::<ByteKeys>(arguments),
    }
}

fn ycsb_over<K: DataKeys>(arguments: &YcsbArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    check_json(arguments.run.json.as_deref())?;
    let bar = Bar::default();
    let calibration = arguments.run.calibrate(&bar);
    let dataset = arguments.run.open::<K>(&bar)?;
    let workloads = arguments.workloads();
    let growth = held_back::<K>(arguments, &workloads, &dataset);
    let run = with_room::<K>(&arguments.run, &dataset, (growth.loaded.len() + growth.inserts.len()) as u64);
    let mut host = Host::<K>::start(&run, &dataset, 0)?;
    let setting = run.setting(&Machine::detect(), calibration);
    let around = Around { arguments, dataset: &dataset, setting: &setting, loaded: growth.loaded.len() };
    let rows = measure(&around, &workloads, &growth, &host, &bar).map_err(|error| host.explain(error))?;
    deliver(&report::table(&rows), &rows, arguments.run.json.as_deref())?;
    let in_the_end = rows.first().map_or(0, |row| row.final_mismatches);
    Ok(Verdict::of(in_the_end + rows.iter().map(|row| row.run.mismatches).sum::<u64>()))
}

/// Keys to load and keys to insert.
fn held_back<K: DataKeys>(arguments: &YcsbArgs, workloads: &[Workload], dataset: &K::Set) -> Growth {
    let wanted = arguments.inserts(workloads, dataset.len() as u64);
    let inserts = usize::try_from(wanted).unwrap_or(usize::MAX).min(dataset.len() / 2);
    if (inserts as u64) < wanted {
        eprintln!(
            "note: of {wanted} keys to insert half of the data set's, {inserts}, are there: passes may end early"
        );
    }
    Growth::split(&dataset.numbers(), inserts, arguments.insert_order, arguments.run.seed)
}

fn measure<K: DataKeys>(
    around: &Around<'_, K>,
    workloads: &[Workload],
    growth: &Growth,
    host: &Host<K>,
    bar: &Bar,
) -> anyhow::Result<Vec<YcsbRow>> {
    let arguments = around.arguments;
    let mut bench = Bench::load(host, around.dataset, &arguments.run, growth, bar)?;
    let course = Course {
        loaded: &growth.loaded,
        value_bytes: arguments.run.value_bytes.most() as usize,
        group: arguments.run.batch as usize,
        in_flight: arguments.in_flight(),
        end: arguments.end(),
        drawn: arguments.run.lookups.max(LEAST_DRAWN),
        seed: arguments.run.seed,
    };
    let mut measured = vec![Measured::default(); workloads.len()];
    let rounds = arguments.run.rounds as usize;
    bar.during("measuring throughput", 1, || -> anyhow::Result<()> {
        for round in 0..rounds {
            for turn in 0..workloads.len() {
                // Each round begins with another workload: none always follows the same one.
                let which = (round + turn) % workloads.len();
                let (done, counts) = bench.pass(&workloads[which], &course, arguments.timing())?;
                measured[which].add(&done, counts);
                measured[which].passes.push(done);
            }
        }
        Ok(())
    })?;
    for (workload, measured) in workloads.iter().zip(&mut measured) {
        if arguments.rate.is_some() {
            measured.latency = measured.passes.last().cloned().unwrap_or_default();
            continue;
        }
        let pass = bar.during("measuring latency", 1, || bench.pass(workload, &course, Timing::Each));
        let (done, counts) = pass?;
        measured.add(&done, counts);
        measured.latency = done;
    }
    let node = Reading::of(&bench.store.client)?.node;
    let checks = bench.verify(&growth.loaded, bar)?;
    let mut rows = Vec::with_capacity(workloads.len());
    for (workload, measured) in workloads.iter().zip(&measured) {
        rows.push(YcsbRow::new(around, workload, &bench, measured, &node, checks.wrong)?);
    }
    row::compare(&mut rows);
    Ok(rows)
}
