//! Results for one system.

use std::fmt;

use fpcache_client::{CacheConfig, CacheStats, GroupChoice};
use fpcache_datasets::KeySet;
use fpcache_datasets::count::{human, human_bytes};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::data::{DataKeys, DataSet};
use crate::machine::{COMMIT, Calibration, Machine};
use crate::run::measure::{Measured, Pass, median};
use crate::run::setting::{PointTag, Setting};
use crate::run::timeline::{Shift, TimelinePoint, shifts};
use crate::run::verify::Verified;
use crate::run::workload::Workload;
use crate::systems::Facts;

/// One system's figures. What does not apply to a system is null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// The data set as asked for.
    pub dataset: String,
    /// published, stand-in, shipped, file or generated.
    pub dataset_source: String,
    /// Distribution of lookups over keys.
    pub dist: String,
    /// Share of lookups for absent keys that was asked for.
    pub negative: f64,
    /// Lookups after which the popular keys move; null if they do not.
    pub shift_every: Option<u64>,
    /// Keys loaded: the distinct ones.
    pub keys: u64,
    /// Kind of the keys: u64 or bytes.
    #[serde(default)]
    pub key_space: String,
    /// Bytes of every key in the system, 8 also for data sets of 32-bit keys; null where they vary.
    pub key_bytes: Option<u64>,
    /// Bytes of the shortest key.
    #[serde(default)]
    pub key_bytes_min: u64,
    /// Bytes of the longest key.
    #[serde(default)]
    pub key_bytes_max: u64,
    /// Bytes of a key in the mean.
    #[serde(default)]
    pub key_bytes_mean: f64,
    /// Bytes of every value; null where they vary.
    pub value_bytes: Option<u64>,
    /// Bytes of the longest value there may be.
    #[serde(default)]
    pub value_bytes_max: u64,
    /// Bytes of the longest values that are stored in slots; null where all have one length.
    #[serde(default)]
    pub inline_bytes: Option<u32>,
    /// Bytes a slot takes, its word and padding included.
    #[serde(default)]
    pub slot_bytes: Option<u64>,
    /// Lookups of every pass.
    pub lookups: u64,
    /// Keys per call.
    pub batch: u64,
    /// Threads.
    pub threads: u64,
    /// Throughput passes.
    pub rounds: u64,
    /// Where the memory node was.
    pub transport: Option<String>,
    /// How many memory nodes had the table together; null with `--url`, which names one of them.
    #[serde(default)]
    pub memory_nodes: Option<u32>,
    /// Microseconds for which clients look at sockets before they sleep, and memory nodes that were
    /// started for the run; null where there are no sockets.
    #[serde(default)]
    pub spin_us: Option<f64>,
    /// The pages of the system's memory: huge or ordinary; null for one with a server of its own,
    /// whose pages are not merged.
    #[serde(default)]
    pub pages: Option<String>,
    /// When writes reached the memory node's disk; null if it kept nothing.
    #[serde(default)]
    pub fsync: Option<String>,
    /// Seed of data and lookups.
    pub seed: u64,
    /// Half-width of windows, in slots.
    pub epsilon: Option<u32>,
    /// Bits of a fingerprint.
    pub fingerprint_bits: Option<u32>,
    /// Share of slots that hold a record.
    pub fill: Option<f64>,
    /// The form of groups that records are stored in; null without groups.
    #[serde(default)]
    pub groups: Option<String>,
    /// The plan asked for.
    pub plan: Option<String>,
    /// Share of lookups that an entry of the hot cache answered, in the verified pass whose costs
    /// these are.
    pub cached_share: Option<f64>,
    /// Share of lookups answered by the two-stage plan.
    pub two_stage_share: Option<f64>,
    /// Share of lookups answered by a range read.
    pub range_share: Option<f64>,
    /// Share of lookups answered by the speculative plan.
    pub speculative_share: Option<f64>,
    /// Share of lookups answered by the slots of a group.
    pub groups_share: Option<f64>,
    /// Share of lookups answered by the memory node's threads that serve sockets.
    pub at_node_share: Option<f64>,
    /// Budget of everything kept on the compute node; null without one.
    pub cache_bytes_budget: Option<u64>,
    /// Bytes used of it after the throughput passes.
    pub cache_bytes_used: Option<u64>,
    /// Bytes of the hot cache per entry there is room for.
    pub cache_bytes_per_entry: Option<f64>,
    /// Entries held after the throughput passes.
    pub cache_entries: Option<u64>,
    /// Entries there is room for.
    pub cache_capacity: Option<u64>,
    /// Share of lookups that the hot cache answered in the throughput passes.
    pub hit_rate: Option<f64>,
    /// What decides which entries stay.
    pub policy: Option<String>,
    /// What an entry holds.
    pub variant: Option<String>,
    /// How a lookup goes on after an entry that was wrong.
    pub on_conflict: Option<String>,
    /// Whether every pass began with an empty hot cache.
    pub cold: Option<bool>,
    /// Bytes of models and directory in this process; with a budget below their size, of the pages
    /// kept after the passes.
    pub model_bytes: Option<u64>,
    /// The same per key.
    #[serde(default)]
    pub model_bytes_per_key: Option<f64>,
    /// Bytes at the memory node per key.
    pub memory_node_bytes_per_key: Option<f64>,
    /// Bytes of the system in this process per key.
    pub process_bytes_per_key: f64,
    /// Segments.
    pub segments: Option<u64>,
    /// Dependent round trips a lookup waited for; the keys of a group wait for the same ones.
    pub rtts_per_op: Option<f64>,
    /// READ requests per lookup.
    pub reads_per_op: Option<f64>,
    /// Bytes read per lookup.
    pub bytes_per_op: Option<f64>,
    /// Slots fetched per lookup for a fingerprint that was another key's.
    pub false_candidates_per_op: Option<f64>,
    /// Plans given up per lookup.
    pub fallbacks_per_op: Option<f64>,
    /// Wrong answers among the verified lookups.
    pub mismatches: u64,
    /// Lookups per second, all threads together: the median pass.
    pub ops_per_s: f64,
    /// The slowest pass.
    pub ops_per_s_min: f64,
    /// The fastest pass.
    pub ops_per_s_max: f64,
    /// Every pass, in order; empty in files of releases that did not say.
    #[serde(default)]
    pub ops_per_s_passes: Vec<f64>,
    /// Allocations per lookup in the median pass.
    pub allocations_per_op: f64,
    /// What the latencies are of: `get` or `multi_get of N`.
    pub latency_of: String,
    /// Median latency of a call.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Longest latency.
    pub max_ns: u64,
    /// Throughput along one pass; null unless asked for.
    pub timeline: Option<Vec<TimelinePoint>>,
    /// What each move of the popular keys did to it; null without a timeline or moves.
    pub shifts: Option<Vec<Shift>>,
    /// Seconds until this process could look up: building a map, or fetching directory and models.
    pub build_s: f64,
    /// Seconds until the data were in the memory node; null also if they were there before.
    pub load_s: Option<f64>,
    /// The machine.
    pub machine: Machine,
    /// The commit this program was built from.
    pub commit: Option<String>,
    /// The version of this program.
    pub version: String,
    /// The machine's memory during the run.
    pub calibration: Calibration,
    /// Where in a sweep this row belongs; null in a single run.
    pub sweep: Option<PointTag>,
}

impl Row {
    /// Puts together what the passes found. `measured.passes` must not be empty.
    pub fn new<K: DataKeys>(
        setting: &Setting,
        workload: &Workload<'_, '_, K>,
        name: &str,
        facts: &Facts,
        measured: &Measured,
    ) -> Self {
        let pages = facts.transport.is_none().then(|| setting.pages.as_str().to_owned());
        let mut row = Self { system: name.to_owned(), pages, ..Self::of_experiment(setting) };
        row.add_workload(workload);
        row.add_table(setting, facts);
        row.add_costs(&measured.verified);
        row.add_memory(facts, measured.cache);
        if let Some(config) = facts.cache {
            row.add_cache(&config, workload.cold);
        }
        row.add_throughput(&measured.passes);
        row.add_latency(&measured.latency);
        row.timeline.clone_from(&measured.timeline);
        row.shifts = row.timeline.as_ref().zip(row.shift_every).map(|(points, every)| shifts(points, every));
        row
    }

    /// A row with what all systems share, and nothing else.
    fn of_experiment(setting: &Setting) -> Self {
        Self {
            dist: setting.distribution.clone(),
            negative: setting.negative,
            shift_every: setting.shift_every,
            seed: setting.seed,
            machine: setting.machine.clone(),
            commit: COMMIT.map(str::to_owned),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            calibration: setting.calibration,
            sweep: setting.sweep.clone(),
            ..Self::default()
        }
    }

    /// The data, and how they are looked up.
    fn add_workload<K: DataKeys>(&mut self, workload: &Workload<'_, '_, K>) {
        let (dataset, lengths) = (workload.dataset, workload.dataset.lengths());
        self.dataset = dataset.name().to_owned();
        self.dataset_source = dataset.source().to_owned();
        self.keys = dataset.len() as u64;
        self.key_space = K::NAME.to_owned();
        self.key_bytes = lengths.fixed().map(|bytes| bytes as u64);
        self.key_bytes_min = lengths.least as u64;
        self.key_bytes_max = lengths.most as u64;
        self.key_bytes_mean = lengths.mean;
        self.value_bytes = workload.values.fixed().map(u64::from);
        self.value_bytes_max = workload.values.most().into();
        self.lookups = workload.lookups.len() as u64;
        self.batch = workload.batch as u64;
        self.threads = workload.threads as u64;
        self.latency_of = match workload.batch {
            1 => "get".to_owned(),
            batch => format!("multi_get of {batch}"),
        };
    }

    /// The memory node's table, if there is one, and how long it took to get ready.
    fn add_table(&mut self, setting: &Setting, facts: &Facts) {
        self.transport = facts.transport.map(str::to_owned);
        if let Some(table) = facts.table {
            self.slot_bytes = Some(table.geometry().slot_bytes as u64);
            self.transport = Some(setting.transport.clone());
            self.memory_nodes = setting.memory_nodes;
            self.spin_us = setting.spin.map(|spin| spin.as_secs_f64() * 1e6);
            self.inline_bytes = setting.inline_bytes;
            self.fsync.clone_from(&setting.fsync);
            self.epsilon = Some(table.epsilon);
            self.fingerprint_bits = Some(table.fingerprint_bits());
            self.fill = Some(table.fill);
            self.groups = table.groups.map(|grouping| GroupChoice::from(grouping).to_string());
        }
        self.plan = facts.plan.map(|plan| plan.name().to_owned());
        self.segments = facts.segments;
        self.build_s = facts.build.as_secs_f64();
        self.load_s = facts.load.map(|load| load.as_secs_f64());
    }

    /// Wrong answers, and what lookups cost.
    fn add_costs(&mut self, verified: &Verified) {
        self.mismatches = verified.mismatches;
        let Some(costs) = verified.costs else { return };
        let lookups = self.lookups as f64;
        let per_op = |count: u64| Some(count as f64 / lookups);
        self.cached_share = per_op(costs.cached);
        self.two_stage_share = per_op(costs.two_stage);
        self.range_share = per_op(costs.range);
        self.speculative_share = per_op(costs.speculative);
        self.groups_share = per_op(costs.groups);
        self.at_node_share = per_op(costs.at_node);
        self.rtts_per_op = per_op(costs.round_trips);
        self.reads_per_op = per_op(costs.reads);
        self.bytes_per_op = per_op(costs.bytes);
        self.false_candidates_per_op = per_op(costs.false_candidates);
        self.fallbacks_per_op = per_op(costs.fallbacks);
    }

    /// Bytes at the memory node and in this process; within a budget, what is `kept` of it.
    fn add_memory(&mut self, facts: &Facts, kept: Option<CacheStats>) {
        let keys = self.keys as f64;
        let per_key = |bytes: u64| bytes as f64 / keys;
        self.model_bytes = kept.map(|kept| kept.model_bytes).or(facts.model_bytes);
        self.model_bytes_per_key = self.model_bytes.map(per_key);
        self.memory_node_bytes_per_key = facts.memory_node_bytes.map(per_key);
        self.process_bytes_per_key = per_key(kept.map_or(facts.process_bytes, |kept| kept.used));
        if let Some(kept) = kept {
            self.cache_bytes_used = Some(kept.used);
            self.cache_bytes_per_entry =
                (kept.capacity > 0).then(|| kept.hot_bytes as f64 / kept.capacity as f64);
            self.cache_entries = Some(kept.entries);
            self.cache_capacity = Some(kept.capacity);
        }
    }

    /// The budget of this process, and how it was to be used.
    fn add_cache(&mut self, config: &CacheConfig, cold: bool) {
        self.cache_bytes_budget = Some(config.budget);
        self.policy = Some(config.policy.name().to_owned());
        self.variant = Some(config.variant.name().to_owned());
        self.on_conflict = Some(config.on_conflict.name().to_owned());
        self.cold = Some(cold);
    }

    /// The passes that were timed as a whole.
    fn add_throughput(&mut self, passes: &[Pass]) {
        let lookups = self.lookups as usize;
        let rates = || passes.iter().map(|pass| pass.ops_per_s(lookups));
        self.rounds = passes.len() as u64;
        if let Some(middle) = median(passes) {
            self.ops_per_s = middle.ops_per_s(lookups);
            self.allocations_per_op = middle.allocations as f64 / lookups as f64;
        }
        self.ops_per_s_min = rates().reduce(f64::min).unwrap_or_default();
        self.ops_per_s_max = rates().reduce(f64::max).unwrap_or_default();
        self.ops_per_s_passes = rates().collect();
        let hits: Option<u64> = passes.iter().map(|pass| pass.hits).sum();
        self.hit_rate = hits.map(|hits| hits as f64 / (lookups * passes.len()).max(1) as f64);
    }

    fn add_latency(&mut self, latency: &Histogram<u64>) {
        self.p50_ns = latency.value_at_quantile(0.5);
        self.p95_ns = latency.value_at_quantile(0.95);
        self.p99_ns = latency.value_at_quantile(0.99);
        self.p999_ns = latency.value_at_quantile(0.999);
        self.p9999_ns = latency.value_at_quantile(0.9999);
        self.max_ns = latency.max();
    }

    /// What was looked up in words, such as `200 K keys, 8-byte values; 100 K lookups uniform, one
    /// by one, 1 thread`. A sweep names the settings it varies otherwise.
    pub fn what_was_asked(
        &self,
        value_bytes: impl fmt::Display,
        dist: impl fmt::Display,
        threads: impl fmt::Display,
    ) -> String {
        let absent = match self.negative {
            share if share > 0.0 => format!(", {:.0} % absent", 100.0 * share),
            _ => String::new(),
        };
        let moving = self.shift_every.map(|every| format!(", popular keys move every {}", human(every)));
        let calls = match self.batch {
            1 => "one by one".to_owned(),
            batch => format!("in groups of {batch}"),
        };
        let threads = threads.to_string();
        let lengths = match (&*self.key_space, self.key_bytes) {
            ("bytes", Some(bytes)) => format!(" of {bytes} bytes"),
            ("bytes", None) => format!(
                " of {} to {} bytes, {:.1} in the mean",
                self.key_bytes_min, self.key_bytes_max, self.key_bytes_mean
            ),
            _ => String::new(),
        };
        format!(
            "{} keys{lengths}, {value_bytes}-byte values; {} lookups {dist}{absent}{}, {calls}, {threads} {}",
            human(self.keys),
            human(self.lookups),
            moving.unwrap_or_default(),
            if threads == "1" { "thread" } else { "threads" },
        )
    }

    /// Bytes of values in words, such as `8` or `1 to 64`.
    pub fn value_bytes_in_words(&self) -> String {
        match self.value_bytes {
            Some(bytes) => bytes.to_string(),
            None => format!("1 to {}", self.value_bytes_max),
        }
    }

    /// The machine and the release in words.
    pub fn place(&self) -> String {
        let machine = &self.machine;
        let mut parts = Vec::new();
        parts.extend(machine.cpu.clone());
        parts.extend(machine.cores.map(|cores| format!("{cores} cores")));
        parts.extend(machine.memory_bytes.map(human_bytes));
        let commit = self.commit.as_deref().and_then(|commit| commit.get(..8));
        let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
        parts.push(format!("fpcache {}{commit}", self.version));
        parts.join(", ")
    }

    /// Nanoseconds a thread spends on a lookup.
    pub fn ns_per_op(&self) -> f64 {
        self.threads as f64 * 1e9 / self.ops_per_s
    }
}
