//! A system's figures in the model, and tables of them.

use fpcache_datasets::count::{human, human_bytes};
use fpcache_workbench::BuildError;
use fpcache_workbench::bench::HotCache;
use fpcache_workbench::experiment::{self, Experiment};
use fpcache_workbench::nic::{Bound, NicSpec};
use serde::Serialize;

use crate::run::model::Chosen;
use crate::run::options::RunArgs;
use crate::run::report::{none, percent};
use crate::systems::SystemName;
use crate::table::new_table;

/// What is told of an experiment beside its options.
#[derive(Clone, Debug, Default)]
pub struct Tag {
    /// Where the keys come from: a published file, or a stand-in for it, or a generator.
    pub source: String,
    /// The setting that is swept, and its value as it was written.
    pub swept: Option<(&'static str, String)>,
    /// What is done, if that is not lookups alone.
    pub workload: Option<Mixed>,
}

impl Tag {
    /// What a run of a system is known by among those of a command.
    pub fn name(&self, seed: u64, system: SystemName) -> String {
        let value = self.swept.as_ref().map(|(_, value)| value.as_str());
        let workload = self.workload.as_ref().map(|workload| workload.name.as_str());
        format!("{} {value:?} {workload:?} seed {seed}, {} keys", system.as_str(), self.source)
    }
}

/// Several kinds of operations.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// What they are called.
    pub name: String,
    /// The share of each kind.
    pub mix: String,
    /// How their keys are distributed.
    pub distribution: String,
    /// Which keys are inserted.
    pub insert_order: String,
}

/// A system's figures, or why there are none.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The setting that is swept, and its value as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Of several kinds of operations, what they are called, the share of each, and which keys are
    /// inserted.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    insert_order: Option<String>,
    system: &'static str,
    transport: String,
    /// The card's constants.
    card: NicSpec,
    clients: u32,
    compute_nodes: u32,
    memory_nodes: u32,
    /// Cores of each for calls.
    memory_node_cores: u16,
    dataset: String,
    /// published, stand-in, shipped, file or generated.
    dataset_source: String,
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    distribution: String,
    shift_every: Option<u64>,
    negative: f64,
    /// Operations that filled caches.
    warm_up: u64,
    seed: u64,
    /// How many seeds the figures are the median run of, and of them the least and the greatest
    /// throughput.
    seeds: u32,
    per_second_min: Option<f64>,
    per_second_max: Option<f64>,
    /// Bytes a compute node may keep.
    budget: u64,
    /// options, published or best: whose choice the parameters are.
    parameters_are: &'static str,
    /// Share of FPCache's slots that hold a record when loaded, if the options say so; those of the
    /// others are in their parameters.
    fill: Option<f64>,
    round_trips_per_operation: Option<f64>,
    requests_per_operation: Option<f64>,
    /// From and to memory nodes, and to other compute nodes.
    bytes_per_operation: Option<f64>,
    /// Of lookups of keys that are there, the share that hot caches answered; null without any.
    hit_rate: Option<f64>,
    /// Of lookups, the share that found no key.
    absent_per_lookup: Option<f64>,
    /// Why there are no figures.
    error: Option<String>,
    #[serde(flatten)]
    run: Option<experiment::Run>,
}

impl Row {
    /// Answers that were wrong.
    pub fn wrong(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.measured.wrong)
    }

    fn first_wrong(&self) -> Option<&String> {
        self.run.as_ref()?.measured.first_wrong.as_ref()
    }

    /// The row of a run.
    pub fn new(
        arguments: &RunArgs,
        experiment: &Experiment<'_>,
        system: SystemName,
        tag: &Tag,
        run: Result<experiment::Run, BuildError>,
    ) -> Self {
        let (over, value) = tag.swept.clone().unzip();
        let parameters_are = match (arguments.model.parameters, system) {
            (Some(Chosen::Best), _) => "best",
            (None, SystemName::Fpcache) => "options",
            (Some(Chosen::Published) | None, _) => "published",
        };
        let (run, error) = match run {
            Ok(run) => (Some(run), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let tally = run.as_ref().map(|run| run.measured.tally);
        let rate = run.as_ref().map(|run| run.measured.per_second);
        let cache = run.as_ref().and_then(|run| run.measured.hot_cache);
        let distribution = tag.workload.as_ref().map(|workload| workload.distribution.clone());
        Self {
            over,
            value,
            workload: tag.workload.as_ref().map(|workload| workload.name.clone()),
            mix: tag.workload.as_ref().map(|workload| workload.mix.clone()),
            insert_order: tag.workload.as_ref().map(|workload| workload.insert_order.clone()),
            system: system.as_str(),
            transport: format!("nic:{}", experiment.hosts.nic.name),
            card: experiment.hosts.nic,
            clients: experiment.hosts.clients() as u32,
            compute_nodes: experiment.hosts.compute_nodes.into(),
            memory_nodes: experiment.hosts.memory_nodes.into(),
            memory_node_cores: experiment.hosts.cores,
            dataset: arguments.dataset.to_string(),
            dataset_source: tag.source.clone(),
            keys: experiment.keys.len() as u64,
            key_bytes: experiment.sizes.key,
            value_bytes: experiment.sizes.value,
            distribution: distribution.unwrap_or_else(|| arguments.distribution.to_string()),
            shift_every: arguments.shift_every,
            negative: arguments.negative,
            warm_up: experiment.warm,
            seed: arguments.seed,
            seeds: 1,
            per_second_min: rate,
            per_second_max: rate,
            budget: experiment.budget,
            parameters_are,
            fill: (parameters_are == "options").then(|| arguments.fill()),
            round_trips_per_operation: tally.map(|tally| tally.per_operation(tally.round_trips)),
            requests_per_operation: tally.map(|tally| tally.per_operation(tally.requests())),
            bytes_per_operation: tally.map(|tally| tally.per_operation(tally.bytes_from + tally.bytes_to)),
            hit_rate: cache.and_then(|cache| cache.hit_rate()),
            absent_per_lookup: tally.map(|tally| tally.absent as f64 / tally.lookups.max(1) as f64),
            error,
            run,
        }
    }

    /// Whether it is of the same system in the same setting, with another seed.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.value, &self.workload, self.system) == (&other.value, &other.workload, other.system)
    }

    /// The median of these by throughput, of an even number the lower one, with the spread; none
    /// has figures if one has none. It tells of the wrong answers of all.
    pub fn merged(rows: &[Self]) -> Option<Self> {
        let seeds = rows.len() as u32;
        if let Some(failed) = rows.iter().find(|row| row.error.is_some()) {
            return Some(Self { seeds, ..failed.clone() });
        }
        let mut sorted: Vec<&Self> = rows.iter().collect();
        let rate = |row: &Self| row.run.as_ref().map_or(0.0, |run| run.measured.per_second);
        sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let mut median = (*sorted.get(sorted.len().saturating_sub(1) / 2)?).clone();
        if let Some(run) = &mut median.run {
            run.measured.wrong = rows.iter().map(Self::wrong).sum();
            run.measured.first_wrong = rows.iter().find_map(Self::first_wrong).cloned();
        }
        let (least, greatest) = (sorted.first()?.per_second_min, sorted.last()?.per_second_max);
        Some(Self { seeds, per_second_min: least, per_second_max: greatest, ..median })
    }

    /// Why it has no figures, for people.
    pub fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("{}: {error}", [vec![self.system.to_owned()], self.of()].concat().join(" ")))
    }

    /// What tells it from rows of the same system.
    fn of(&self) -> Vec<String> {
        [self.value.clone(), self.workload.clone()].into_iter().flatten().collect()
    }

    /// Its hot caches, if it has any.
    fn hot_cache(&self) -> Option<HotCache> {
        self.run.as_ref()?.measured.hot_cache
    }

    /// Its cells in a table, among them those of hot caches if any row has some.
    fn cells(&self, have_caches: bool) -> Vec<String> {
        let (share, count) = (
            |share: f64| format!("{:.0} %", 100.0 * share),
            |count: Option<f64>, digits: usize| count.map_or_else(none, |count| format!("{count:.digits$}")),
        );
        let mut cells = self.of();
        cells.push(self.system.to_owned());
        let Some(run) = &self.run else {
            let columns = FIGURES.split(" | ").chain(OF_CACHES.split(" | ").filter(|_| have_caches));
            cells.extend(columns.map(|_| none()));
            return cells;
        };
        let measured = &run.measured;
        let (usage, footprint) = (measured.usage, measured.footprint);
        let [p50, _, p99, p999] = measured.latency_us.map(|us| format!("{us:.1} us"));
        let rate = |rate: f64| format!("{:.2}", rate / 1e6);
        let spread = match (self.per_second_min, self.per_second_max) {
            (Some(least), Some(greatest)) if self.seeds > 1 => {
                format!(" ({} to {})", rate(least), rate(greatest))
            }
            _ => String::new(),
        };
        cells.extend([
            rate(measured.per_second) + &spread,
            p50,
            p99,
            p999,
            count(self.round_trips_per_operation, 2),
            count(self.requests_per_operation, 2),
            count(self.bytes_per_operation, 0),
            share(measured.one_trip),
            share(usage.served.max(usage.issued)),
            share(usage.bytes_from.max(usage.bytes_to).max(usage.compute_bytes)),
            share(usage.cores),
            share(usage.threads),
            bound(measured.bound).to_owned(),
            human_bytes(footprint.cached),
            human_bytes(footprint.beside),
        ]);
        if have_caches {
            let cache = self.hot_cache();
            cells.push(self.hit_rate.map_or_else(none, percent));
            cells.push(cache.map_or_else(none, |cache| human(cache.entries)));
            cells.push(cache.map_or_else(none, |cache| human(cache.capacity)));
        }
        cells
    }
}

/// What a table has of every run.
const FIGURES: &str = "Mops/s | p50 | p99 | p99.9 | trips/op | requests/op | B/op | one trip | requests | bytes | \
     cores | threads | bound by | cache | beside";

/// What it has of hot caches.
const OF_CACHES: &str = "hit rate | entries | room for";

/// Rows under a title that says what they have in common.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut header: Vec<&str> = Vec::new();
    header.extend(first.over);
    header.extend(first.workload.as_ref().map(|_| "workload"));
    header.push("system");
    let names = header.len();
    header.push(FIGURES);
    let have_caches = rows.iter().any(|row| row.hot_cache().is_some());
    header.extend(Some(OF_CACHES).filter(|_| have_caches));
    let mut table = new_table(&header.join(" | ")).named_by(names);
    for row in rows {
        table.add_row(row.cells(have_caches));
    }
    let mut text = format!("{}\n{table}\n{}", what_is_common(first, rows), note_of_caches(rows));
    let mut told: Vec<String> = Vec::new();
    for row in rows {
        let line = match &row.run {
            Some(run) => format!("{}: {}\n", row.system, run.parameters),
            None => row.failure().map_or_else(String::new, |why| format!("no figures of {why}\n")),
        };
        if !told.contains(&line) {
            text += &line;
            told.push(line);
        }
        if let Some(share) = row.absent_per_lookup.filter(|share| *share > 0.0) {
            text += &format!(
                "{}: {:.1} % of lookups found no key\n",
                [row.of(), vec![row.system.to_owned()]].concat().join(" "),
                100.0 * share
            );
        }
        if let Some(first) = row.first_wrong() {
            text += &format!("{}: {} wrong answers, the first: {first}\n", row.system, row.wrong());
        }
    }
    text
}

/// Says which hot caches did not fill: the sizes of these, and what their entries hold, say nothing
/// of their hits; and which systems were still filling theirs.
fn note_of_caches(rows: &[Row]) -> String {
    // Scans do not ask it.
    let is_such =
        |row: &&Row| row.hit_rate.is_some() && row.hot_cache().is_some_and(|cache| cache.is_far_from_full());
    let named = |row: &Row| [vec![row.system.to_owned()], row.of()].concat().join(" ");
    let is_filling = |row: &&Row| row.run.as_ref().is_some_and(|run| run.measured.is_filling());
    let note = |these: Vec<String>, said: &str, remedy: &str| match these.is_empty() {
        true => String::new(),
        false => format!("note: {said}: {}; {remedy}\n", these.join(", ")),
    };
    note(
        rows.iter().filter(is_such).map(named).collect(),
        "the hot cache was never full, so that more room for it gives no more hits",
        "more --lookups and --warm-up, fewer keys or a smaller --cache fill it",
    ) + &note(
        rows.iter().filter(is_filling).map(named).collect(),
        "what compute nodes keep was still growing while it was measured, so that it was slower than with all of it",
        "a longer --warm-up or fewer keys fill caches before",
    )
}

/// What the rows of a table have in common, as its title.
fn what_is_common(first: &Row, rows: &[Row]) -> String {
    // What is swept is in a column of its own.
    let named =
        |is_swept: &str, text: String| if first.over == Some(is_swept) { "N".to_owned() } else { text };
    format!(
        "{}: {} keys of {}/{} B, {}, {} clients, {} memory node(s){}, {} for each compute node, {} operations to fill caches, {:.2} per key, {}{}; shares are those of the busiest card, \
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
        match first.memory_node_cores {
            1 => String::new(),
            cores => format!(" of {cores} cores for changes"),
        },
        named("cache", human_bytes(first.budget)),
        human(first.warm_up),
        first.warm_up as f64 / first.keys.max(1) as f64,
        whose_parameters(first, rows),
        if first.seeds > 1 {
            format!("; medians of {} seeds, and their spread", first.seeds)
        } else {
            String::new()
        },
    )
}

/// Whose choice the parameters are, for people: one system that is set up by hand beside others as
/// published is no comparison of systems.
fn whose_parameters(first: &Row, rows: &[Row]) -> String {
    match first.parameters_are {
        _ if rows.iter().any(|row| row.parameters_are != first.parameters_are) => {
            "fpcache as the options say, the others as published".to_owned()
        }
        "options" => "fpcache as the options say".to_owned(),
        all => format!("all with {all} parameters"),
    }
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

#[cfg(test)]
mod tests;
