//! The `metrics` command: the counters of a memory node and of all its tables, for Prometheus.

use fpcache_client::{
    BuildKeys, ByteKeys, ClientError, KeyKind, NodeStats, SocketStats, TableInfo, TableList, U64Keys,
};
use serde_json::{Value, json};

use crate::exposition::{Metric, MetricKind, Number};
use crate::output::{Outcome, Output};
use crate::place::TableArguments;
use crate::tables::none_failed;

/// The metrics of a table from its counters: the name, what it is, and the value.
type Counter = (&'static str, &'static str, MetricKind, fn(&NodeStats) -> Number);

const COUNTERS: &[Counter] = &[
    ("segments", "Segments of the table.", MetricKind::Gauge, |s| whole(s.segments)),
    ("uptime_seconds", "Time since the table was opened or created.", MetricKind::Gauge, |s| {
        Number::Seconds(s.uptime_ms as f64 / 1e3)
    }),
    ("requests_total", "Requests handled.", MetricKind::Counter, |s| whole(s.requests)),
    ("writes_total", "Operations that changed a record.", MetricKind::Counter, |s| whole(s.writes)),
    ("inserts_total", "Operations that made a record.", MetricKind::Counter, |s| whole(s.inserts)),
    (
        "rebuilds_total",
        "Changes of the directory: segments replaced by segments.",
        MetricKind::Counter,
        |s| whole(s.rebuilds),
    ),
    ("rebuild_waits_total", "Rebuilds that an insert had to wait for.", MetricKind::Counter, |s| {
        whole(s.window_full_waits)
    }),
    ("rebuild_seconds_total", "Time spent on rebuilds.", MetricKind::Counter, |s| seconds(s.rebuild_ns)),
    (
        "rebuild_p99_seconds",
        "Time that 99 of 100 rebuilds did not exceed, to an eighth.",
        MetricKind::Gauge,
        |s| seconds(s.rebuild_ns_p99),
    ),
    ("rebuild_max_seconds", "Time of the longest rebuild.", MetricKind::Gauge, |s| seconds(s.rebuild_ns_max)),
    ("copied_records_total", "Records copied by rebuilds.", MetricKind::Counter, |s| whole(s.copies)),
    ("quarantined_bytes", "Bytes that wait to be used again.", MetricKind::Gauge, |s| {
        whole(s.quarantined_bytes)
    }),
    ("directory_changes_total", "Records that the change log has had.", MetricKind::Counter, |s| {
        whole(s.log_head)
    }),
    (
        "logged_changes_total",
        "Changes written to the write-ahead log; 0 without one.",
        MetricKind::Counter,
        |s| whole(s.logged),
    ),
    (
        "synced_changes_total",
        "Logged changes that would survive a crash of the machine.",
        MetricKind::Counter,
        |s| whole(s.synced),
    ),
    (
        "log_errors_total",
        "Attempts to write or sync the write-ahead log that failed.",
        MetricKind::Counter,
        |s| whole(s.log_errors),
    ),
    (
        "log_writable",
        "Whether the write-ahead log takes writes: 0 while they are refused.",
        MetricKind::Gauge,
        |s| whole(1 - s.log_fails.min(1)),
    ),
    ("external_values", "Values that do not fit their slots.", MetricKind::Gauge, |s| {
        whole(s.external_values)
    }),
    ("external_value_bytes", "Bytes of values that do not fit their slots.", MetricKind::Gauge, |s| {
        whole(s.external_bytes)
    }),
    (
        "damaged_writes_total",
        "Writes refused because a record in their segment is damaged in memory.",
        MetricKind::Counter,
        |s| whole(s.damaged_writes),
    ),
    (
        "damaged_lookups_total",
        "Lookups by the memory node's processor refused because the record is damaged in memory.",
        MetricKind::Counter,
        |s| whole(s.damaged_lookups),
    ),
    ("damaged_copies_total", "Damaged records that snapshots met.", MetricKind::Counter, |s| {
        whole(s.damaged_copies)
    }),
    (
        "damaged_segments_passed_by_total",
        "Times that a segment with a damaged record was left as it is by work in the background.",
        MetricKind::Counter,
        |s| whole(s.damaged_passed_by),
    ),
];

/// The same of a table by the list of all.
type Listed = (&'static str, &'static str, fn(&TableInfo) -> u64);

const LISTED: &[Listed] = &[
    ("open", "Whether the table is served: 0 if the memory node could not open it.", |t| {
        u64::from(!t.is_closed())
    }),
    ("keys", "Live records.", |t| t.keys),
    ("region_bytes", "Bytes that the table may take.", |t| t.region_bytes),
    ("used_bytes", "Bytes that the table takes.", |t| t.used_bytes),
    ("clients", "Connected clients.", |t| t.clients),
];

fn whole(number: u64) -> Number {
    Number::Whole(number)
}

fn seconds(ns: u64) -> Number {
    Number::Seconds(ns as f64 / 1e9)
}

/// What a table's client was told.
struct TableScrape {
    table: usize,
    stats: NodeStats,
}

pub(crate) fn run(place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
    let places = place.each()?;
    let (mut metrics, mut failed): (Vec<Metric>, _) = (Vec::new(), Vec::new());
    for one in &places {
        match of_one(one) {
            Ok(told) if places.len() == 1 => metrics = told,
            Ok(told) => told.into_iter().for_each(|metric| add(&mut metrics, metric, &one.url)),
            Err(error) if places.len() == 1 => return Err(error.into()),
            Err(error) => failed.push(one.why(&error)),
        }
    }
    for metric in &metrics {
        match output.is_json() {
            true => output.element(&document(metric))?,
            false => output.bytes(metric.to_string().as_bytes())?,
        }
    }
    if output.is_json() {
        output.end_array()?;
    }
    none_failed(&failed, places.len())?;
    Ok(Outcome::Done)
}

/// Adds what one of several memory nodes has told to what others have: each metric comes once, with
/// all its samples.
fn add(metrics: &mut Vec<Metric>, mut metric: Metric, url: &str) {
    metric.samples.iter_mut().for_each(|(labels, _)| labels.insert(0, ("node", url.to_owned())));
    match metrics.iter_mut().find(|other| other.name == metric.name) {
        Some(other) => other.samples.append(&mut metric.samples),
        None => metrics.push(metric),
    }
}

/// What one memory node has to tell.
fn of_one(place: &TableArguments) -> Result<Vec<Metric>, ClientError> {
    let list = place.tables()?.list()?;
    let (mut told, mut sockets) = (Vec::new(), None);
    for (table, info) in list.tables.iter().enumerate().filter(|(_, info)| !info.is_closed()) {
        let place = TableArguments { table: info.name, ..place.clone() };
        let asked = match info.kind {
            KeyKind::U64 => ask::<U64Keys>(&place, sockets.is_none()),
            KeyKind::Bytes => ask::<ByteKeys>(&place, sockets.is_none()),
        };
        match asked {
            Ok((stats, of_sockets)) => {
                told.push(TableScrape { table, stats });
                sockets = sockets.or(of_sockets);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let mut metrics = of_node(&list);
    metrics.extend(told.first().map(|told| Metric {
        name: "fpcache_build_info".into(),
        help: "The release of the memory node.",
        kind: MetricKind::Gauge,
        samples: vec![(vec![("version", told.stats.release_text())], whole(1))],
    }));
    metrics.extend(of_tables(&list, &told));
    metrics.extend(sockets.iter().flat_map(of_sockets));
    Ok(metrics)
}

/// Whether a table is not there any more that was listed: it was dropped, or is being made anew,
/// perhaps over several memory nodes.
fn is_gone(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NoSuchTable { .. } | ClientError::OtherKeys { .. } | ClientError::TableNotWhole { .. }
    )
}

/// A table's counters; and those of the memory node's sockets, if they are wanted and there are
/// any.
fn ask<K: BuildKeys>(
    place: &TableArguments,
    wants_sockets: bool,
) -> Result<(NodeStats, Option<SocketStats>), ClientError> {
    let client = place.client::<K>()?;
    let stats = client.stats()?;
    // A memory node of an older release refuses to tell, which is no reason to tell nothing.
    let sockets = if wants_sockets { client.sockets().ok().flatten() } else { None };
    Ok((stats, sockets.filter(|sockets| sockets.io_threads > 0)))
}

fn of_node(list: &TableList) -> Vec<Metric> {
    let metric = |name: &str, help, number| Metric {
        name: format!("fpcache_{name}"),
        help,
        kind: MetricKind::Gauge,
        samples: vec![(Vec::new(), whole(number))],
    };
    vec![
        metric("tables", "Tables of the memory node.", list.tables.len() as u64),
        metric("capacity_bytes", "Bytes that all tables may take together.", list.capacity_bytes),
        metric("granted_bytes", "Bytes that tables have been granted.", list.granted_bytes),
    ]
}

/// What tells a table from others. A range of one over several memory nodes has the table's name,
/// and others may be there of that name while it is made anew.
fn labels(info: &TableInfo) -> Vec<(&'static str, String)> {
    let kind = ("key_kind", info.kind.name().to_owned());
    match info.name.as_range() {
        None => vec![("table", info.name.to_string()), kind],
        Some((table, creation, number)) => vec![
            ("table", table.to_string()),
            ("range", (number + 1).to_string()),
            ("creation", format!("{creation:016x}")),
            kind,
        ],
    }
}

fn of_tables(list: &TableList, told: &[TableScrape]) -> Vec<Metric> {
    let listed = LISTED.iter().map(|(name, help, value)| Metric {
        name: format!("fpcache_table_{name}"),
        help,
        kind: MetricKind::Gauge,
        samples: list.tables.iter().map(|info| (labels(info), whole(value(info)))).collect(),
    });
    let counted = COUNTERS.iter().map(|(name, help, kind, value)| Metric {
        name: format!("fpcache_table_{name}"),
        help,
        kind: *kind,
        samples: told.iter().map(|told| (labels(&list.tables[told.table]), value(&told.stats))).collect(),
    });
    listed.chain(counted).filter(|metric| !metric.samples.is_empty()).collect()
}

fn of_sockets(sockets: &SocketStats) -> Vec<Metric> {
    let metric = |name: &str, help, kind, samples| Metric {
        name: format!("fpcache_socket_{name}"),
        help,
        kind,
        samples,
    };
    let one = |number| vec![(Vec::new(), number)];
    let ended = |how: &str, count| (vec![("ended", how.to_owned())], whole(count));
    let hang_ups = sockets.hang_ups().map(|(why, count)| (vec![("reason", why.to_owned())], whole(count)));
    vec![
        metric(
            "io_threads",
            "Threads that serve sockets.",
            MetricKind::Gauge,
            one(whole(sockets.io_threads)),
        ),
        metric("connections", "Open connections.", MetricKind::Gauge, one(whole(sockets.connections))),
        metric(
            "spin_limit_seconds",
            "Time that a thread looks for more before it sleeps.",
            MetricKind::Gauge,
            one(seconds(sockets.spin_ns)),
        ),
        metric(
            "spun_seconds_total",
            "Time spent looking for more.",
            MetricKind::Counter,
            one(seconds(sockets.spun_ns)),
        ),
        metric(
            "waits_total",
            "Waits for more, by how they ended: while the thread looked, or in sleep.",
            MetricKind::Counter,
            vec![ended("spun", sockets.waits_spun), ended("slept", sockets.waits_slept)],
        ),
        metric(
            "hang_ups_total",
            "Connections that were closed or not let in, by the reason.",
            MetricKind::Counter,
            hang_ups.collect(),
        ),
    ]
}

fn document(metric: &Metric) -> Value {
    let samples = metric.samples.iter().map(|(labels, number)| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        let value: Value = match number {
            Number::Whole(number) => (*number).into(),
            Number::Seconds(number) => (*number).into(),
        };
        json!({ "labels": Value::Object(labels), "value": value })
    });
    json!({
        "name": metric.name,
        "help": metric.help,
        "type": metric.kind.name(),
        "samples": samples.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory node had no metrics at all then.
    #[test]
    fn a_listed_table_that_is_made_anew_over_several_memory_nodes_is_left_out() {
        let why = || "the table `t` over several memory nodes is not whole yet".to_owned();
        assert!(is_gone(&ClientError::TableNotWhole { why: why() }));
        assert!(is_gone(&ClientError::NoSuchTable { why: why() }));
        assert!(!is_gone(&ClientError::Emptied));
    }
}
