//! Results for the waits under one load.

use fpcache_datasets::count::human;
use serde::Serialize;

use super::loads::{Done, LoadName};
use super::options::WaitsArgs;
use super::probe::Latencies;
use crate::latency::Latency;
use crate::machine::Calibration;
use crate::run::report::{duration, none};
use crate::run::store::StoreArgs;
use crate::table::new_table;

/// The waits under one load.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsRow {
    /// What the other table was busy with.
    pub load: String,
    /// Keys of that table, where it has many.
    pub keys: u64,
    /// How often it did that.
    pub rounds: u64,
    /// Seconds for which it did that, and the puts counted.
    pub seconds: f64,
    /// Microseconds between two puts.
    pub every_us: u64,
    /// When writes reached the disk; null if there was no log.
    pub fsync: Option<String>,
    /// Latencies of the puts; one that took longer than the time between two counts for those that
    /// were due meanwhile.
    pub latency: Latency,
    /// The same without the time for which the thread of the puts or the memory node's could run
    /// and had no processor; null where the operating system does not tell.
    pub own_latency: Option<Latency>,
    /// Its memory before the run.
    pub calibration: Calibration,
}

impl WaitsRow {
    pub fn new(
        arguments: &WaitsArgs,
        load: LoadName,
        store: &StoreArgs,
        latencies: &Latencies,
        done: Done,
        calibration: Calibration,
    ) -> Self {
        Self {
            load: load.to_string(),
            keys: arguments.keys,
            rounds: done.rounds,
            seconds: done.took.as_secs_f64(),
            every_us: arguments.every_us,
            fsync: store.reported(),
            latency: Latency::of(&latencies.seen),
            own_latency: latencies.own.as_ref().map(Latency::of),
            calibration,
        }
    }
}

/// The rows as a table, under a title that says what was measured.
pub fn table(rows: &[WaitsRow]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table =
        new_table("load | rounds | seconds | puts | p50 | p99 | p99.9 | worst | own p99 | own worst");
    for row in rows {
        let Latency { operations, p50_ns, p99_ns, p999_ns, max_ns, .. } = row.latency;
        table.add_row([
            row.load.clone(),
            human(row.rounds),
            format!("{:.2}", row.seconds),
            human(operations),
            duration(p50_ns),
            duration(p99_ns),
            duration(p999_ns),
            duration(max_ns),
            row.own_latency.map_or_else(none, |own| duration(own.p99_ns)),
            row.own_latency.map_or_else(none, |own| duration(own.max_ns)),
        ]);
    }
    format!(
        "waits of a put to another table, one every {} µs; tables of {} keys\n{table}",
        first.every_us,
        human(first.keys)
    )
}
