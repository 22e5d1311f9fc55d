//! A system's figures in the model, and tables of them.

use fpcache_datasets::count::{human, human_bytes};
use fpcache_workbench::experiment::{self, Experiment};
use fpcache_workbench::nic::Bound;
use serde::Serialize;

use crate::run::options::RunArgs;
use crate::run::report::new_table;
use crate::systems::SystemName;

/// What is told of an experiment beside its options.
#[derive(Clone, Debug, Default)]
pub struct Tag {
    /// Where the keys come from: a published file, or a stand-in for it, or a generator.
    pub source: String,
    /// The setting that is swept, and its value as it was written.
    pub swept: Option<(&'static str, String)>,
    /// Of several kinds of operations, what they are called, and how their keys are distributed.
    pub workload: Option<(String, String)>,
}

/// A system's figures.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The setting that is swept, and its value as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Of several kinds of operations, what they are called.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    system: &'static str,
    transport: String,
    clients: u32,
    memory_nodes: u32,
    dataset: String,
    /// published, stand-in, shipped, file or generated.
    dataset_source: String,
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    distribution: String,
    shift_every: Option<u64>,
    negative: f64,
    seed: u64,
    /// Bytes a compute node may keep.
    budget: u64,
    /// Share of FPCache's slots that hold a record when loaded; the others' are in their parameters.
    fill: Option<f64>,
    round_trips_per_operation: f64,
    requests_per_operation: f64,
    /// From and to memory nodes, and to other compute nodes.
    bytes_per_operation: f64,
    #[serde(flatten)]
    run: experiment::Run,
}

impl Row {
    /// Answers that were wrong.
    pub fn wrong(&self) -> u64 {
        self.run.measured.wrong
    }

    /// A run's figures.
    pub fn new(
        arguments: &RunArgs,
        experiment: &Experiment<'_>,
        system: SystemName,
        tag: &Tag,
        run: experiment::Run,
    ) -> Self {
        let tally = run.measured.tally;
        let (over, value) = tag.swept.clone().unzip();
        let (workload, distribution) = tag.workload.clone().unzip();
        Self {
            over,
            value,
            workload,
            system: system.as_str(),
            transport: format!("nic:{}", experiment.hosts.nic.name),
            clients: experiment.hosts.clients() as u32,
            memory_nodes: experiment.hosts.memory_nodes.into(),
            dataset: arguments.dataset.to_string(),
            dataset_source: tag.source.clone(),
            keys: experiment.keys.len() as u64,
            key_bytes: experiment.sizes.key,
            value_bytes: experiment.sizes.value,
            distribution: distribution.unwrap_or_else(|| arguments.distribution.to_string()),
            shift_every: arguments.shift_every,
            negative: arguments.negative,
            seed: arguments.seed,
            budget: experiment.budget,
            fill: (system == SystemName::Fpcache).then(|| arguments.fill()),
            round_trips_per_operation: tally.per_operation(tally.round_trips),
            requests_per_operation: tally.per_operation(tally.requests()),
            bytes_per_operation: tally.per_operation(tally.bytes_from + tally.bytes_to),
            run,
        }
    }

    /// What tells it from rows of the same system.
    fn of(&self) -> Vec<String> {
        [self.value.clone(), self.workload.clone()].into_iter().flatten().collect()
    }

    /// Its cells in a table.
    fn cells(&self) -> Vec<String> {
        let (share, per_op) =
            (|share: f64| format!("{:.0} %", 100.0 * share), |count: f64| format!("{count:.2}"));
        let measured = &self.run.measured;
        let (usage, footprint) = (measured.usage, measured.footprint);
        let [p50, _, p99, p999] = measured.latency_us.map(|us| format!("{us:.1} us"));
        let mut cells = self.of();
        cells.extend([
            self.system.to_owned(),
            format!("{:.2}", measured.per_second / 1e6),
            p50,
            p99,
            p999,
            per_op(self.round_trips_per_operation),
            per_op(self.requests_per_operation),
            format!("{:.0}", self.bytes_per_operation),
            share(measured.one_trip),
            share(usage.served.max(usage.issued)),
            share(usage.bytes_from.max(usage.bytes_to).max(usage.compute_bytes)),
            share(usage.cores),
            share(usage.threads),
            bound(measured.bound).to_owned(),
            human_bytes(footprint.cached),
            human_bytes(footprint.beside),
        ]);
        cells
    }
}

/// Rows under a title that says what they have in common.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut header: Vec<&str> = Vec::new();
    header.extend(first.over);
    header.extend(first.workload.as_ref().map(|_| "workload"));
    header.extend([
        "system",
        "Mops/s",
        "p50",
        "p99",
        "p99.9",
        "trips/op",
        "requests/op",
        "B/op",
        "one trip",
        "requests",
        "bytes",
        "cores",
        "threads",
        "bound by",
        "cache",
        "beside",
    ]);
    let mut table = new_table(&header);
    for row in rows {
        table.add_row(row.cells());
    }
    let mut text = format!("{}\n{table}\n", what_is_common(first));
    let mut told: Vec<String> = Vec::new();
    for row in rows {
        let line = format!("{}: {}\n", row.system, row.run.parameters);
        if !told.contains(&line) {
            text += &line;
            told.push(line);
        }
        if let Some(wrong) = &row.run.measured.first_wrong {
            text +=
                &format!("{}: {} wrong answers, the first: {wrong}\n", row.system, row.run.measured.wrong);
        }
    }
    text
}

/// What the rows of a table have in common, as its title.
fn what_is_common(first: &Row) -> String {
    // What is swept is in a column of its own.
    let named =
        |is_swept: &str, text: String| if first.over == Some(is_swept) { "N".to_owned() } else { text };
    format!(
        "{}: {} keys of {}/{} B, {}, {} clients, {} memory node(s), {} for each compute node; shares are those of the busiest card, \
         core or of all threads",
        named("nic", first.transport.clone()),
        human(first.keys),
        named("key-bytes", first.key_bytes.to_string()),
        named("value-bytes", first.value_bytes.to_string()),
        match (&first.workload, first.over) {
            (Some(_), _) => "each workload's own distribution".to_owned(),
            (None, Some("theta")) => "zipf:N".to_owned(),
            (None, _) => first.distribution.clone(),
        },
        named("clients", first.clients.to_string()),
        named("memory-nodes", first.memory_nodes.to_string()),
        named("cache", human_bytes(first.budget)),
    )
}

/// What binds, for people.
const fn bound(bound: Bound) -> &'static str {
    match bound {
        Bound::Rate => "requests",
        Bound::Bandwidth => "bytes",
        Bound::Cpu => "processors",
        Bound::Latency => "latency",
    }
}
