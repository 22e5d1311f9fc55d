//! Results of one `growth` run.

use fpcache::layout::GroupChoice;
use fpcache::message::NodeStats;
use fpcache_datasets::KeySet;
use fpcache_datasets::count::human;
use fpcache_datasets::requests::{InsertOrder, OperationKind};
use serde::Serialize;

use super::options::GrowthArgs;
use crate::data::{DataKeys, DataSet};
use crate::latency::Latency;
use crate::machine::Calibration;
use crate::run::report::{bytes_per_key, duration, none, rate, ratio_of};
use crate::run::timeline::median;
use crate::table::new_table;
use crate::ycsb::done::{Done, hit_rate};
use crate::ycsb::node_counts::{NodeCounts, milliseconds};

/// What one growth was found to do.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Lookups before the inserts.
    pub before: Vec<Done>,
    /// The inserts.
    pub inserts: Done,
    /// What the memory node did meanwhile.
    pub counts: NodeCounts,
    /// Lookups afterwards, which took turns with those in the fresh store.
    pub after: Vec<Done>,
    /// Lookups in a store that was loaded with all keys.
    pub fresh: Vec<Done>,
    /// The memory node's counters before, after, and those of the fresh one.
    pub nodes: [NodeStats; 3],
    /// Seconds that loading the fresh store took.
    pub fresh_load_s: f64,
    /// Records that were wrong in the end.
    pub final_mismatches: u64,
}

/// One growth's figures. What does not apply is null.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthRow {
    /// The data set as asked for.
    pub dataset: String,
    /// published, stand-in, shipped, file or generated.
    pub dataset_source: String,
    /// The order of the inserts.
    pub order: &'static str,
    /// Keys loaded.
    pub loaded: u64,
    /// Keys inserted.
    pub inserted: u64,
    /// Inserts per call.
    pub insert_batch: u32,
    /// Threads.
    pub threads: u32,
    /// Kind of the keys: u64 or bytes.
    pub key_space: &'static str,
    /// Bytes of a key in the mean.
    pub key_bytes_mean: f64,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Distribution of the lookups.
    pub dist: String,
    /// Lookups of every pass.
    pub lookups: u64,
    /// Keys per lookup call.
    pub batch: u32,
    /// Passes of lookups each time.
    pub rounds: u32,
    /// Where the memory node is.
    pub transport: String,
    /// How many memory nodes have the table together.
    pub memory_nodes: u32,
    /// Microseconds for which clients and memory nodes look at sockets before they sleep; null
    /// where there are none.
    pub spin_us: Option<f64>,
    /// When writes reached the memory node's disk; null if it kept nothing.
    pub fsync: Option<String>,
    /// The form of groups that records are stored in; null without groups.
    pub groups: Option<String>,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
    /// The plan asked for.
    pub plan: &'static str,
    /// Budget of everything kept on the compute node; null without one.
    pub cache_bytes_budget: Option<u64>,
    /// What decides which entries stay; null without a budget.
    pub policy: Option<&'static str>,
    /// What an entry holds.
    pub variant: Option<&'static str>,
    /// Share of slots that hold a record after a load.
    pub fill: f64,
    /// Half-width of windows, in slots.
    pub epsilon: u32,
    /// Inserts per second, all threads together.
    pub inserts_per_s: f64,
    /// Latencies of an insert call.
    pub insert_latency: Option<Latency>,
    /// Records copied by rebuilds per record inserted.
    pub copies_per_insert: Option<f64>,
    /// Segments replaced by segments.
    pub rebuilds: u64,
    /// Milliseconds of the longest rebuild.
    pub rebuild_ms_max: f64,
    /// Milliseconds that 99 of 100 rebuilds did not exceed.
    pub rebuild_ms_p99: f64,
    /// Inserts that waited for a rebuild because their window was full.
    pub window_full_waits: u64,
    /// Lookups per second before the inserts: the median pass.
    pub lookups_per_s_before: f64,
    /// Lookups per second after the inserts.
    pub lookups_per_s_after: f64,
    /// Lookups per second in a store that was loaded with all keys.
    pub lookups_per_s_fresh: f64,
    /// Lookups per second after the inserts over those of the fresh store: the median of the
    /// rounds.
    pub after_to_fresh: Option<f64>,
    /// Share of the lookups before the inserts that the hot cache answered; null without one.
    pub hit_rate_before: Option<f64>,
    /// The same after the inserts.
    pub hit_rate_after: Option<f64>,
    /// The same in the fresh store.
    pub hit_rate_fresh: Option<f64>,
    /// Bytes at the memory node per key before the inserts.
    pub bytes_per_key_before: f64,
    /// Bytes at the memory node per key after the inserts, those that wait to be used again
    /// included.
    pub bytes_per_key_after: f64,
    /// Bytes at the memory node per key in the fresh store.
    pub bytes_per_key_fresh: f64,
    /// Keys per segment before the inserts.
    pub keys_per_segment_before: f64,
    /// Keys per segment after the inserts.
    pub keys_per_segment_after: f64,
    /// Keys per segment in the fresh store.
    pub keys_per_segment_fresh: f64,
    /// Seconds that loading all keys took.
    pub fresh_load_s: f64,
    /// Wrong answers, and records that were wrong in the end.
    pub mismatches: u64,
    /// Seed of data, inserts and lookups.
    pub seed: u64,
    /// Its memory during the run.
    pub calibration: Calibration,
}

impl GrowthRow {
    /// Puts together what was found.
    pub fn new<K: DataKeys>(
        arguments: &GrowthArgs,
        dataset: &K::Set,
        order: InsertOrder,
        measured: &Measured,
        calibration: Calibration,
    ) -> Self {
        let run = &arguments.run;
        let (table, cache) = (run.table(&dataset.lengths()), run.cache.config());
        let Measured { before, inserts, counts, after, fresh, nodes, .. } = measured;
        let [node, grown, loaded] = nodes;
        let per_key = |bytes: u64, keys: u64| bytes as f64 / keys.max(1) as f64;
        let passes = before.iter().chain([inserts]).chain(after).chain(fresh);
        let rounds = after.iter().zip(fresh);
        Self {
            dataset: dataset.name().to_owned(),
            dataset_source: dataset.source().to_owned(),
            order: order.name(),
            loaded: node.keys,
            inserted: inserts.operations,
            insert_batch: arguments.insert_batch,
            threads: run.threads,
            key_space: K::NAME,
            key_bytes_mean: dataset.lengths().mean,
            value_bytes: run.value_bytes.most(),
            dist: run.distribution.to_string(),
            lookups: run.lookups,
            batch: run.batch,
            rounds: run.rounds,
            transport: run.transport_in_words(),
            memory_nodes: run.nodes,
            spin_us: run.spins().map(|spin| spin.as_secs_f64() * 1e6),
            fsync: run.store.reported(),
            groups: table.groups.map(|grouping| GroupChoice::from(grouping).to_string()),
            fingerprint_bits: table.fingerprint_bits(),
            plan: run.plan.name(),
            cache_bytes_budget: cache.map(|cache| cache.budget),
            policy: cache.map(|cache| cache.policy.name()),
            variant: cache.map(|cache| cache.variant.name()),
            fill: run.fill(),
            epsilon: run.epsilon,
            inserts_per_s: inserts.ops_per_s,
            insert_latency: inserts.latency_of(OperationKind::Insert),
            copies_per_insert: counts.copies_per_insert(),
            rebuilds: counts.rebuilds,
            rebuild_ms_max: milliseconds(grown.rebuild_ns_max),
            rebuild_ms_p99: milliseconds(grown.rebuild_ns_p99),
            window_full_waits: counts.window_full_waits,
            lookups_per_s_before: middle(before),
            lookups_per_s_after: middle(after),
            lookups_per_s_fresh: middle(fresh),
            after_to_fresh: median(rounds.map(|(after, fresh)| after.ops_per_s / fresh.ops_per_s)),
            hit_rate_before: hit_rate(before),
            hit_rate_after: hit_rate(after),
            hit_rate_fresh: hit_rate(fresh),
            bytes_per_key_before: per_key(node.used_bytes, node.keys),
            bytes_per_key_after: per_key(grown.used_bytes, grown.keys),
            bytes_per_key_fresh: per_key(loaded.used_bytes, loaded.keys),
            keys_per_segment_before: per_key(node.keys, node.segments),
            keys_per_segment_after: per_key(grown.keys, grown.segments),
            keys_per_segment_fresh: per_key(loaded.keys, loaded.segments),
            fresh_load_s: measured.fresh_load_s,
            mismatches: measured.final_mismatches + passes.map(|pass| pass.checks.wrong).sum::<u64>(),
            seed: run.seed,
            calibration,
        }
    }
}

/// The median throughput of passes.
fn middle(passes: &[Done]) -> f64 {
    median(passes.iter().map(|pass| pass.ops_per_s)).unwrap_or_default()
}

/// The rows as a table, under a title that says what was measured on what.
pub fn table(rows: &[GrowthRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = new_table(
        "order | loaded | inserted | inserts/s | call p99 | copies/insert | rebuilds | p99 | \
         longest | waits | lookups/s before | after | fresh | after : fresh | bytes before | \
         after | fresh",
    );
    for row in rows {
        table.add_row([
            row.order.to_owned(),
            human(row.loaded),
            human(row.inserted),
            rate(row.inserts_per_s),
            row.insert_latency.map_or_else(none, |latency| duration(latency.p99_ns)),
            row.copies_per_insert.map_or_else(none, |copies| format!("{copies:.2}")),
            human(row.rebuilds),
            format!("{:.2} ms", row.rebuild_ms_p99),
            format!("{:.2} ms", row.rebuild_ms_max),
            human(row.window_full_waits),
            rate(row.lookups_per_s_before),
            rate(row.lookups_per_s_after),
            rate(row.lookups_per_s_fresh),
            row.after_to_fresh.map_or_else(none, ratio_of),
            bytes_per_key(row.bytes_per_key_before),
            bytes_per_key(row.bytes_per_key_after),
            bytes_per_key(row.bytes_per_key_fresh),
        ]);
    }
    let wrong: u64 = rows.iter().map(|row| row.mismatches).sum();
    let verdict = match wrong {
        0 => "every answer was right, and every record holds what was written".to_owned(),
        wrong => format!("{wrong} answers were WRONG"),
    };
    format!(
        "{} ({}), {}-byte values; inserts in calls of {}, lookups {}, {} {}\n{table}\n{verdict}",
        first.dataset,
        first.dataset_source,
        first.value_bytes,
        first.insert_batch,
        first.dist,
        first.threads,
        if first.threads == 1 { "thread" } else { "threads" },
    )
}
