//! Results for one workload: those of `run`, and those of writes.

use std::collections::BTreeMap;

use anyhow::Context;
use fpcache::message::NodeStats;
use fpcache_datasets::KeySet;
use fpcache_datasets::requests::{OperationKind, Workload};
use serde::Serialize;

use super::bench::Bench;
use super::done::{Done, hit_rate};
use super::node_counts::{NodeCounts, milliseconds};
use super::options::YcsbArgs;
use super::pass::End;
use crate::data::DataKeys;
use crate::latency::Latency;
use crate::run::measure::{Measured as RunMeasured, Pass, new_histogram};
use crate::run::row::Row;
use crate::run::setting::Setting;
use crate::run::timeline::median;
use crate::run::verify::Verified;
use crate::run::workload::{Lookups, Workload as RunWorkload};
use crate::systems::System;

/// What the passes of one workload found.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Passes that count for throughput.
    pub passes: Vec<Done>,
    /// The pass whose latencies count; the last of those that count for throughput if these have
    /// instants.
    pub latency: Done,
    /// What the memory node did in all of them.
    pub counts: NodeCounts,
    /// Operations of all of them.
    pub operations: u64,
}

impl Measured {
    /// Counts a pass in.
    pub(super) fn add(&mut self, done: &Done, counts: NodeCounts) {
        self.counts += counts;
        self.operations += done.operations;
    }
}

/// One workload's figures. What does not apply is null.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbRow {
    /// The workload.
    pub workload: String,
    /// Shares of its operations.
    pub mix: String,
    /// Operations of the median pass.
    pub operations: u64,
    /// Operations of it by kind.
    pub operations_by_kind: BTreeMap<&'static str, u64>,
    /// Seconds after which a pass ended; null where it ended after its operations.
    pub duration_s: Option<f64>,
    /// Operations per second that were due; null where one followed the other.
    pub rate: Option<u64>,
    /// Operations that were due in the pass of the latencies; null where one followed the other.
    pub due: Option<u64>,
    /// How many of these were begun before its end. Latencies count the others as if they had ended
    /// with the pass.
    pub begun: Option<u64>,
    /// How the instants were spread.
    pub arrivals: Option<&'static str>,
    /// Writes that a thread had under way while it went on; in the pass of the latencies it waited
    /// for each.
    pub writes_in_flight: usize,
    /// Which keys were inserted.
    pub insert_order: &'static str,
    /// Keys inserted by all workloads of the run.
    pub inserted: u64,
    /// Whether a pass ended early because there were no more keys to insert.
    pub ran_out_of_inserts: bool,
    /// Latencies by kind of operation, from its start, or from the instant it was due. Those of a
    /// group are the group's.
    pub latencies: BTreeMap<&'static str, Latency>,
    /// Operations per second over those of the reference: workload C if it is there, else the
    /// first.
    pub ops_ratio: Option<f64>,
    /// The same of reads per second alone.
    pub reads_ratio: Option<f64>,
    /// The reference's name.
    pub ratio_to: Option<String>,
    /// Segments replaced by segments during this workload's passes.
    pub rebuilds: u64,
    /// Milliseconds of one of these on average; null without any.
    pub rebuild_ms_mean: Option<f64>,
    /// Milliseconds of the longest rebuild since the memory node's start, by whichever workload: it
    /// is the same in all rows.
    pub node_rebuild_ms_max: f64,
    /// Milliseconds that 99 of 100 rebuilds since the memory node's start did not exceed.
    pub node_rebuild_ms_p99: f64,
    /// Times per operation that the client brought its models up to date; null where it does not
    /// count them.
    pub refreshes_per_op: Option<f64>,
    /// Inserts that waited for a rebuild because their window was full.
    pub window_full_waits: u64,
    /// Records copied by rebuilds per record inserted; null without inserts.
    pub copies_per_insert: Option<f64>,
    /// Records that in the end did not hold a last write of theirs; of all workloads of the run.
    pub final_mismatches: u64,
    /// The figures that `run` has as well.
    #[serde(flatten)]
    pub run: Row,
}

/// What is the same for all workloads of a run.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a, K: DataKeys> {
    /// The options.
    pub arguments: &'a YcsbArgs,
    /// The data set.
    pub dataset: &'a K::Set,
    /// Machine and settings, as `run` has them.
    pub setting: &'a Setting,
    /// Keys loaded.
    pub loaded: usize,
}

impl YcsbRow {
    /// Puts together what the passes found.
    pub fn new<K: DataKeys>(
        around: &Around<'_, K>,
        workload: &Workload,
        bench: &Bench<'_, K>,
        measured: &Measured,
        node: &NodeStats,
        final_mismatches: u64,
    ) -> anyhow::Result<Self> {
        let arguments = around.arguments;
        let middle = middle(&measured.passes).context("no pass was run")?;
        let counts = measured.counts;
        let by_kind = |kind: OperationKind| (kind.name(), middle.counts[kind.index()]);
        let mut run = run_row(around, workload, bench, measured, middle)?;
        run.memory_node_bytes_per_key = Some(node.used_bytes as f64 / node.keys.max(1) as f64);
        run.segments = Some(node.segments);
        Ok(Self {
            workload: workload.name.clone(),
            mix: workload.mix.to_string(),
            operations: middle.operations,
            operations_by_kind: kinds(workload).map(by_kind).collect(),
            duration_s: match arguments.end() {
                End::After(time) => Some(time.as_secs_f64()),
                End::Operations(_) => None,
            },
            rate: arguments.rate,
            due: arguments.rate.map(|_| measured.latency.operations + measured.latency.not_begun),
            begun: arguments.rate.map(|_| measured.latency.operations),
            arrivals: arguments.rate.map(|_| arguments.arrivals.unwrap_or_default().name()),
            writes_in_flight: arguments.in_flight(),
            insert_order: arguments.insert_order.name(),
            inserted: bench.inserted(),
            ran_out_of_inserts: measured.passes.iter().chain([&measured.latency]).any(|done| done.ran_out),
            latencies: kinds(workload)
                .filter_map(|kind| Some((kind.name(), measured.latency.latency_of(kind)?)))
                .collect(),
            ops_ratio: None,
            reads_ratio: None,
            ratio_to: None,
            rebuilds: counts.rebuilds,
            rebuild_ms_mean: counts.rebuild_ms_mean(),
            node_rebuild_ms_max: milliseconds(node.rebuild_ns_max),
            node_rebuild_ms_p99: milliseconds(node.rebuild_ns_p99),
            refreshes_per_op: counts
                .refreshes
                .map(|refreshes| refreshes as f64 / measured.operations.max(1) as f64),
            window_full_waits: counts.window_full_waits,
            copies_per_insert: counts.copies_per_insert(),
            final_mismatches,
            run,
        })
    }
}

/// The kinds that a workload has.
fn kinds(workload: &Workload) -> impl Iterator<Item = OperationKind> {
    OperationKind::ALL.into_iter().filter(|kind| workload.mix.share(*kind) > 0.0)
}

/// The median pass by throughput, the lower one of two.
fn middle(passes: &[Done]) -> Option<&Done> {
    let rate = median(passes.iter().map(|pass| pass.ops_per_s))?;
    passes.iter().find(|pass| pass.ops_per_s.total_cmp(&rate).is_eq())
}

/// The figures of `run`, of operations instead of lookups.
fn run_row<K: DataKeys>(
    around: &Around<'_, K>,
    workload: &Workload,
    bench: &Bench<'_, K>,
    measured: &Measured,
    middle: &Done,
) -> anyhow::Result<Row> {
    let arguments = &around.arguments.run;
    let mut latency = new_histogram()?;
    for histogram in &measured.latency.latencies {
        latency.add(histogram)?;
    }
    let mismatches =
        measured.passes.iter().chain(around.arguments.rate.is_none().then_some(&measured.latency));
    let verified =
        Verified { mismatches: mismatches.map(|done| done.checks.wrong).sum(), ..Verified::default() };
    let pass = |done: &Done| Pass { elapsed: done.elapsed, allocations: done.allocations, ..Pass::default() };
    let as_run = RunMeasured {
        verified,
        passes: measured.passes.iter().map(pass).collect(),
        cache: System::cache_stats(&bench.system)?,
        latency,
        timeline: None,
    };
    let of_run = RunWorkload::<'_, '_, K> {
        dataset: around.dataset,
        lookups: Lookups { keys: &[], expected: &[] },
        values: arguments.value_bytes,
        batch: arguments.batch as usize,
        threads: arguments.threads as usize,
        stretch: None,
        warm_up: None,
        cold: false,
    };
    let mut row = Row::new(around.setting, &of_run, System::name(&bench.system), &bench.facts(), &as_run);
    let rates = || measured.passes.iter().map(|pass| pass.ops_per_s);
    row.dist = workload.distribution.to_string();
    row.keys = around.loaded as u64;
    row.lookups = middle.operations;
    row.hit_rate = hit_rate(&measured.passes);
    row.ops_per_s = middle.ops_per_s;
    row.ops_per_s_min = rates().reduce(f64::min).unwrap_or_default();
    row.ops_per_s_max = rates().reduce(f64::max).unwrap_or_default();
    row.ops_per_s_passes = rates().collect();
    row.allocations_per_op = middle.allocations as f64 / middle.operations.max(1) as f64;
    let more = around.dataset.len() as f64 / around.loaded.max(1) as f64;
    row.process_bytes_per_key *= more;
    row.model_bytes_per_key = row.model_bytes_per_key.map(|bytes| bytes * more);
    row.latency_of = match arguments.batch {
        1 => "operation".to_owned(),
        group => format!("group of {group}"),
    };
    Ok(row)
}

/// Fills in the ratios to the reference. They are of the median passes, as in `run` and `peers`:
/// the quotients of the rates that stand beside them.
pub fn compare(rows: &mut [YcsbRow]) {
    if rows.len() < 2 {
        return;
    }
    let at = rows.iter().position(|row| row.workload == "C").unwrap_or(0);
    let reads = |row: &YcsbRow| {
        let reads = row.operations_by_kind.get(OperationKind::Read.name()).copied().unwrap_or_default();
        let share = reads as f64 / row.operations.max(1) as f64;
        Some(share * row.run.ops_per_s).filter(|rate| *rate > 0.0)
    };
    let (name, rate, of_reads) = (rows[at].workload.clone(), rows[at].run.ops_per_s, reads(&rows[at]));
    for row in rows {
        row.ops_ratio = Some(row.run.ops_per_s / rate);
        row.reads_ratio = reads(row).zip(of_reads).map(|(own, other)| own / other);
        row.ratio_to = Some(name.clone());
    }
}
