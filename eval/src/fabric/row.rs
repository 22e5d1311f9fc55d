//! Results for one verb over one transport.

use fpcache_datasets::count::human;
use serde::Serialize;

use super::measure::{Measured, WARM_UP};
use super::options::{Task, Way};
use crate::latency::Latency;
use crate::run::report::{duration, rate};
use crate::table::new_table;

/// One verb over one transport.
#[derive(Clone, Debug, Serialize)]
pub struct FabricRow {
    /// How the memory node was reached.
    pub transport: &'static str,
    /// What was asked of it.
    pub verb: &'static str,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests to a doorbell or a message.
    pub batch: u32,
    /// Latencies of a doorbell or a message.
    pub latency: Latency,
    /// Requests per second.
    pub rate: f64,
    /// Bytes per second, of those asked for.
    pub bytes_per_s: f64,
    /// READs, WRITEs and atomics for a request.
    pub verbs_per_request: f64,
    /// Doorbells and waits for a request.
    pub round_trips_per_request: f64,
    /// Of calls: fetches that found nothing, for a message.
    pub failed_per_message: f64,
    /// Of calls: share of the messages whose results were sent.
    pub replied_share: f64,
    /// Requests per second of perftest's tool for the verb, where it is installed.
    pub perftest_rate: Option<f64>,
    /// Wrong answers.
    pub mismatches: u64,
}

impl FabricRow {
    pub fn new(way: Way, task: Task, measured: &Measured) -> Self {
        let messages = measured.doorbells.len().max(1) as f64;
        let requests = messages * f64::from(task.batch);
        let rate = requests / measured.seconds;
        // The counts are of those too that were not timed.
        let counted = messages + WARM_UP as f64;
        let counted_requests = counted * f64::from(task.batch);
        Self {
            transport: way.name(),
            verb: task.verb.name(),
            bytes: task.bytes,
            batch: task.batch,
            latency: Latency::of(&measured.doorbells),
            rate,
            bytes_per_s: rate * f64::from(task.bytes),
            verbs_per_request: measured.cost.requests() as f64 / counted_requests,
            round_trips_per_request: measured.cost.round_trips as f64 / counted_requests,
            failed_per_message: measured.failed as f64 / counted,
            replied_share: measured.replied as f64 / counted,
            perftest_rate: None,
            mismatches: measured.mismatches,
        }
    }
}

/// The rows as a table.
pub fn table(rows: &[FabricRow]) -> String {
    let is_compared = rows.iter().any(|row| row.perftest_rate.is_some());
    let columns = "transport | verb | bytes | batch | p50 | p99 | p99.9 | requests/s | GB/s | verbs | round trips | \
         failed | sent";
    let compared = if is_compared { " | perftest | of perftest" } else { "" };
    let mut table = new_table(&format!("{columns}{compared}")).named_by(4);
    for row in rows {
        let mut cells = vec![
            row.transport.to_owned(),
            row.verb.to_owned(),
            row.bytes.to_string(),
            row.batch.to_string(),
            duration(row.latency.p50_ns),
            duration(row.latency.p99_ns),
            duration(row.latency.p999_ns),
            rate(row.rate),
            format!("{:.3}", row.bytes_per_s / 1e9),
            format!("{:.2}", row.verbs_per_request),
            format!("{:.2}", row.round_trips_per_request),
            format!("{:.2}", row.failed_per_message),
            format!("{:.2}", row.replied_share),
        ];
        if is_compared {
            let times = row.perftest_rate.map(|perftest| format!("{:.2} ×", row.rate / perftest));
            cells.push(row.perftest_rate.map_or_else(String::new, rate));
            cells.push(times.unwrap_or_default());
        }
        table.add_row(cells);
    }
    let wrong: u64 = rows.iter().map(|row| row.mismatches).sum();
    let verdict = if wrong == 0 {
        "every answer was right".to_owned()
    } else {
        format!("{} answers were wrong", human(wrong))
    };
    format!("latencies of a doorbell or a message; verbs and round trips of a request\n{table}\n{verdict}")
}
