//! Figures as rows: for people a table, for programs JSON.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use fpcache_datasets::count::{human, human_bytes};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::{Calibration, Machine};
use crate::run::measure::{Pass, Verified, Workload, median};
use crate::systems::Facts;

/// What all systems of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The distribution of lookups.
    pub distribution: String,
    /// Share of lookups for absent keys that was asked for.
    pub negative: f64,
    /// Seed of data and lookups.
    pub seed: u64,
    /// The plan asked for.
    pub plan: &'static str,
    /// Where the memory node was.
    pub transport: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Its memory during the run.
    pub calibration: Calibration,
}

/// One system's figures. What does not apply to a system is null.
#[derive(Clone, Debug, Serialize)]
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
    /// Keys loaded: the distinct ones.
    pub keys: u64,
    /// Bytes of a key in the system; 8 also for data sets of 32-bit keys.
    pub key_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Lookups of every pass.
    pub lookups: u64,
    /// Keys per call.
    pub batch: u64,
    /// Threads.
    pub threads: u64,
    /// Where the memory node was.
    pub transport: Option<&'static str>,
    /// Seed of data and lookups.
    pub seed: u64,
    /// Half-width of windows, in slots.
    pub epsilon: Option<u32>,
    /// Bits of a fingerprint.
    pub fingerprint_bits: Option<u32>,
    /// Share of slots that hold a record.
    pub fill: Option<f64>,
    /// The plan asked for.
    pub plan: Option<&'static str>,
    /// Share of lookups answered by the two-stage plan.
    pub two_stage_share: Option<f64>,
    /// Bytes of models and directory in this process.
    pub model_bytes: Option<u64>,
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
    /// Wrong answers among the lookups.
    pub mismatches: u64,
    /// Lookups per second, all threads together: the median pass.
    pub ops_per_s: f64,
    /// The slowest pass.
    pub ops_per_s_min: f64,
    /// The fastest pass.
    pub ops_per_s_max: f64,
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
    /// Seconds until this process could look up: building a map, or fetching directory and models.
    pub build_s: f64,
    /// Seconds until the data were in the memory node; null also if they were there before.
    pub load_s: Option<f64>,
    /// The machine.
    pub machine: Machine,
    /// The commit this program was built from.
    pub commit: Option<&'static str>,
    /// The version of this program.
    pub version: &'static str,
    /// The machine's memory during the run.
    pub calibration: Calibration,
}

impl Row {
    /// Puts together what the passes found. `passes` must not be empty.
    pub fn new(
        setting: &Setting,
        workload: &Workload<'_>,
        name: &str,
        facts: &Facts,
        verified: &Verified,
        passes: &[Pass],
        latency: &Histogram<u64>,
    ) -> Self {
        let dataset = workload.dataset;
        let (keys, lookups) = (dataset.len() as u64, workload.requests.len());
        let per_key = |bytes: u64| bytes as f64 / keys as f64;
        let per_op = |count: u64| count as f64 / lookups as f64;
        let rates: Vec<f64> = passes.iter().map(|pass| pass.ops_per_s(lookups)).collect();
        let middle = median(passes);
        let table = facts.table;
        let costs = verified.costs;
        Self {
            system: name.to_owned(),
            dataset: dataset.name().to_owned(),
            dataset_source: dataset.source().to_owned(),
            dist: setting.distribution.clone(),
            negative: setting.negative,
            keys,
            key_bytes: 8,
            value_bytes: workload.value_bytes as u64,
            lookups: lookups as u64,
            batch: workload.batch as u64,
            threads: workload.threads as u64,
            transport: table.map(|_| setting.transport),
            seed: setting.seed,
            epsilon: table.map(|t| t.epsilon),
            fingerprint_bits: table.map(|t| t.width.bits()),
            fill: table.map(|t| t.fill),
            plan: table.map(|_| setting.plan),
            two_stage_share: costs.map(|c| per_op(c.two_stage)),
            model_bytes: facts.model_bytes,
            memory_node_bytes_per_key: facts.memory_node_bytes.map(per_key),
            process_bytes_per_key: per_key(facts.process_bytes),
            segments: facts.segments,
            rtts_per_op: costs.map(|c| per_op(c.round_trips)),
            reads_per_op: costs.map(|c| per_op(c.reads)),
            bytes_per_op: costs.map(|c| per_op(c.bytes)),
            false_candidates_per_op: costs.map(|c| per_op(c.false_candidates)),
            fallbacks_per_op: costs.map(|c| per_op(c.fallbacks)),
            mismatches: verified.mismatches,
            ops_per_s: middle.map_or(0.0, |pass| pass.ops_per_s(lookups)),
            ops_per_s_min: rates.iter().copied().reduce(f64::min).unwrap_or_default(),
            ops_per_s_max: rates.iter().copied().reduce(f64::max).unwrap_or_default(),
            allocations_per_op: middle.map_or(0.0, |pass| per_op(pass.allocations)),
            latency_of: match workload.batch {
                1 => "get".to_owned(),
                batch => format!("multi_get of {batch}"),
            },
            p50_ns: latency.value_at_quantile(0.5),
            p95_ns: latency.value_at_quantile(0.95),
            p99_ns: latency.value_at_quantile(0.99),
            p999_ns: latency.value_at_quantile(0.999),
            p9999_ns: latency.value_at_quantile(0.9999),
            max_ns: latency.max(),
            build_s: facts.build.as_secs_f64(),
            load_s: facts.load.map(|load| load.as_secs_f64()),
            machine: setting.machine.clone(),
            commit: crate::machine::COMMIT,
            version: env!("CARGO_PKG_VERSION"),
            calibration: setting.calibration,
        }
    }

    /// Nanoseconds a thread spends on a lookup.
    pub fn ns_per_op(&self) -> f64 {
        self.threads as f64 * 1e9 / self.ops_per_s
    }
}

/// Prints a line, or several, for people. A reader such as `head` that has seen enough is no failure.
pub fn say(text: &str) -> anyhow::Result<()> {
    unless_closed(writeln!(io::stdout(), "{text}")).context("writing to standard output")
}

fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Writes the rows as one JSON array to a file, or to standard output for `-`.
pub fn write_json(rows: &[Row], path: &Path) -> anyhow::Result<()> {
    let mut json = serde_json::to_vec_pretty(rows)?;
    json.push(b'\n');
    if path == Path::new("-") {
        return unless_closed(io::stdout().write_all(&json))
            .context("writing the figures to standard output");
    }
    fs::write(path, &json).with_context(|| format!("writing the figures to {}", path.display()))
}

/// The rows as a table, under a title that says what was measured on what.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = new_table(&[
        "system",
        "lookups/s",
        "ns/lookup",
        "time : hashmap",
        "p50",
        "p99",
        "p99.99",
        "round trips",
        "bytes read",
        "at memory node",
        "in this process",
    ]);
    let hashmap = rows.iter().find(|row| row.system == "hashmap").map(Row::ns_per_op);
    for row in rows {
        table.add_row([
            row.system.clone(),
            rate(row.ops_per_s),
            format!("{:.1}", row.ns_per_op()),
            hashmap.map_or_else(none, |ns| ratio(row.ns_per_op(), ns)),
            duration(row.p50_ns),
            duration(row.p99_ns),
            duration(row.p9999_ns),
            row.rtts_per_op.map_or_else(none, |rtts| format!("{rtts:.2}")),
            row.bytes_per_op.map_or_else(none, |bytes| format!("{bytes:.0} B")),
            row.memory_node_bytes_per_key.map_or_else(none, bytes_per_key),
            bytes_per_key(row.process_bytes_per_key),
        ]);
    }
    let mut text = format!(
        "{} ({}): {} keys, {}-byte values; {} lookups {}{}, {}, {} {}\n{table}\n",
        first.dataset,
        first.dataset_source,
        human(first.keys),
        first.value_bytes,
        human(first.lookups),
        first.dist,
        if first.negative > 0.0 {
            format!(", {:.0} % absent", 100.0 * first.negative)
        } else {
            String::new()
        },
        match first.batch {
            1 => "one by one".to_owned(),
            batch => format!("in groups of {batch}"),
        },
        first.threads,
        if first.threads == 1 { "thread" } else { "threads" },
    );
    for row in rows {
        text.push_str(&explanation(row));
    }
    let c = &first.calibration;
    text.push_str(&format!(
        "latencies are of a {}; this machine during the run: {:.0} ns per random read of {}, {:.1} GB/s copied, \
         {:.0} ns to read the clock\n",
        first.latency_of,
        c.random_read_ns,
        human_bytes(c.buffer_bytes),
        c.copy_gb_s,
        c.clock_read_ns,
    ));
    if rows.iter().all(|row| row.mismatches == 0) {
        text.push_str("every answer was right");
    }
    text
}

/// A sentence about a system that reads from a memory node.
fn explanation(row: &Row) -> String {
    let (Some(segments), Some(model_bytes), Some(epsilon), Some(bits), Some(fill), Some(plan), Some(costs)) = (
        row.segments,
        row.model_bytes,
        row.epsilon,
        row.fingerprint_bits,
        row.fill,
        row.plan,
        row.two_stage_share.zip(row.false_candidates_per_op),
    ) else {
        return String::new();
    };
    let loaded = row.load_s.map(|s| format!(", loaded in {s:.2} s")).unwrap_or_default();
    format!(
        "{}: {} segments of {:.0} keys on average, models {}; epsilon {epsilon}, {bits}-bit fingerprints, fill \
         {fill}{loaded}\n{}: plan {plan} ({:.0} % two-stage), {:.4} false candidates per lookup\n",
        row.system,
        human(segments),
        row.keys as f64 / segments as f64,
        human_bytes(model_bytes),
        row.system,
        100.0 * costs.0,
        costs.1,
    )
}

/// A table with right-aligned figures behind a first column of names.
pub fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Stands where a figure does not apply.
pub fn none() -> String {
    "–".to_owned()
}

/// How many times as long.
pub fn ratio(ns: f64, reference: f64) -> String {
    format!("{:.2}×", ns / reference)
}

/// Bytes per key.
pub fn bytes_per_key(bytes: f64) -> String {
    format!("{bytes:.1} B/key")
}

fn rate(per_second: f64) -> String {
    human(per_second as u64)
}

fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(12_345), "12.3 µs");
        assert_eq!(duration(12_345_678), "12.3 ms");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_json(&[], Path::new("/no/such/folder/x.json")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/folder/x.json"));
    }
}
