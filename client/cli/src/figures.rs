//! The metrics of a memory node, its tables and its sockets, from what it tells.

use fpcache_client::{NodeStats, SocketStats, TableInfo, TableList};

use crate::exposition::{Metric, MetricKind, Number};

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
pub(crate) struct TableScrape {
    /// Its place in the list of all.
    pub(crate) table: usize,
    /// `None`: it was told nothing.
    pub(crate) stats: Option<NodeStats>,
}

/// Whether a memory node answers.
pub(crate) fn up(answers: bool) -> Metric {
    gauge("fpcache_up", "Whether the memory node answers: 0 if nothing else is told of it.", answers.into())
}

/// All of a memory node that answers.
pub(crate) fn of_all(list: &TableList, told: &[TableScrape], sockets: Option<&SocketStats>) -> Vec<Metric> {
    let mut metrics = vec![up(true)];
    metrics.extend(of_node(list));
    metrics.extend(told.iter().find_map(|told| told.stats.as_ref()).map(|stats| Metric {
        name: "fpcache_build_info".into(),
        help: "The release of the memory node.",
        kind: MetricKind::Gauge,
        samples: vec![(vec![("version", stats.release_text())], whole(1))],
    }));
    metrics.extend(of_tables(list, told));
    metrics.extend(sockets.into_iter().flat_map(of_sockets));
    metrics
}

fn gauge(name: &str, help: &'static str, number: u64) -> Metric {
    let samples = vec![(Vec::new(), whole(number))];
    Metric { name: name.into(), help, kind: MetricKind::Gauge, samples }
}

fn of_node(list: &TableList) -> Vec<Metric> {
    vec![
        gauge("fpcache_tables", "Tables of the memory node.", list.tables.len() as u64),
        gauge("fpcache_capacity_bytes", "Bytes that all tables may take together.", list.capacity_bytes),
        gauge("fpcache_granted_bytes", "Bytes that tables have been granted.", list.granted_bytes),
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
    let samples = |value: &dyn Fn(&TableScrape) -> Option<Number>| {
        let sample = |told: &TableScrape| Some((labels(&list.tables[told.table]), value(told)?));
        told.iter().filter_map(sample).collect()
    };
    let asked = Metric {
        name: "fpcache_table_scrape_ok".into(),
        help: "Whether the table's counters were told: 0 if they were refused or did not come in time.",
        kind: MetricKind::Gauge,
        samples: samples(&|told| Some(whole(told.stats.is_some().into()))),
    };
    let counted = COUNTERS.iter().map(|(name, help, kind, value)| Metric {
        name: format!("fpcache_table_{name}"),
        help,
        kind: *kind,
        samples: samples(&|told| told.stats.as_ref().map(value)),
    });
    listed.chain([asked]).chain(counted).filter(|metric| !metric.samples.is_empty()).collect()
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
