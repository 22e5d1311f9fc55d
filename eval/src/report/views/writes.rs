//! Figures of writes: `ycsb` and `growth`.

use super::lookups::{LOOKUPS, RANGE, single};
use super::{Measure, SETTINGS, differ, label_of, percentiles, percentiles_over, settings_but, side_by_side};
use crate::plot::figure::{Axis, Figure, Steps, Unit};
use crate::report::record::Record;

/// What tells a workload's row from the others.
pub fn workload_label(row: &Record, rows: &[Record]) -> String {
    label_of(row, rows, &["workload", "system"], &SETTINGS)
}

/// Figures of `ycsb`.
pub fn workloads(rows: &[Record]) -> Vec<Figure> {
    let label = |row: &Record| workload_label(row, rows);
    let throughput = Measure {
        range: RANGE,
        ..Measure::new("Throughput", "operations per second", Unit::Count, |row| row.number("ops_per_s"))
    };
    let mut measures = vec![throughput];
    measures.extend(&LOOKUPS[1..]);
    measures.push(Measure::new("Copies", "records copied by rebuilds per insert", Unit::Number, |row| {
        row.number("copies_per_insert")
    }));
    let mut figures = single(rows, &measures, "an operation", label);
    for kind in kinds_of_operations(rows) {
        let prefix = format!("latencies.{kind}.");
        let latencies: Vec<_> = rows.iter().map(|row| (label(row), prefix.as_str(), row)).collect();
        figures.extend(percentiles(
            &format!("Latency percentiles: {kind}"),
            &format!("an operation: {kind}"),
            &latencies,
        ));
    }
    figures
}

/// Of which there are latencies.
fn kinds_of_operations(rows: &[Record]) -> Vec<String> {
    let fields = rows.iter().flat_map(Record::fields);
    let mut kinds: Vec<String> = fields
        .filter_map(|(name, _)| Some(name.strip_prefix("latencies.")?.strip_suffix(".p50_ns")?.to_owned()))
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// What tells experiments of several files from each other, beside [`SETTINGS`].
const OF_PASSES: [(&str, &str); 11] = [
    ("mix", "mix"),
    ("arrivals", "arrivals"),
    ("insert_order", "order of inserts"),
    ("writes_in_flight", "writes in flight"),
    ("duration_s", "s a pass"),
    ("fsync", "log"),
    ("version", "version"),
    ("commit", "commit"),
    ("machine.cpu", "processor"),
    ("machine.cores", "cores"),
    ("dataset_source", "source"),
];

/// Latency over the rates at which operations were due, of rows of any number of files; none unless
/// rates differ.
pub fn over_load(rows: &[Record]) -> Vec<Figure> {
    let paced: Vec<Record> = rows.iter().filter(|row| row.number("rate").is_some()).cloned().collect();
    if !differ(&paced, "rate") {
        return Vec::new();
    }
    let mut settings = settings_but(&["rate"]);
    settings.extend(OF_PASSES);
    let label = |row: &Record| label_of(row, &paced, &["workload", "system"], &settings);
    let x =
        Axis::new("load: operations per second that were due", Unit::Count).ticks_at_values().by(Steps::Even);
    percentiles_over(&paced, (&x, |row: &Record| row.number("rate")), label)
}

/// What tells an order from the others.
pub fn order_label(row: &Record, rows: &[Record]) -> String {
    label_of(
        row,
        rows,
        &["order"],
        &[("dataset", ""), ("threads", "threads"), ("fsync", "log"), ("seed", "seed")],
    )
}

/// Figures of `growth`.
pub fn growth(rows: &[Record]) -> Vec<Figure> {
    let label = |row: &Record| order_label(row, rows);
    let times = |of: &'static str| {
        [("before", "before the inserts"), ("after", "after them"), ("fresh", "loaded with all keys")]
            .map(|(when, name)| (format!("{of}_{when}"), name))
    };
    let beside = |of: &'static str, what: (&str, &str, Unit)| {
        let fields = times(of);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(field, name)| (field.as_str(), *name)).collect();
        side_by_side(what, &fields, rows, label)
    };
    let inserts =
        Measure::new("Inserts", "inserts per second", Unit::Count, |row| row.number("inserts_per_s"));
    let copies = Measure::new("Copies", "records copied by rebuilds per insert", Unit::Number, |row| {
        row.number("copies_per_insert")
    });
    let latencies: Vec<_> = rows.iter().map(|row| (label(row), "insert_latency.", row)).collect();
    [
        beside("lookups_per_s", ("Lookups", "lookups per second", Unit::Count)),
        inserts.bars(rows, label),
        percentiles("Latency percentiles of inserts", "a call", &latencies),
        beside("bytes_per_key", ("Memory node's memory", "bytes per key", Unit::Bytes)),
        beside("keys_per_segment", ("Segments", "keys per segment", Unit::Count)),
        copies.bars(rows, label),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Figures of `growth --direct`.
pub fn direct(rows: &[Record]) -> Vec<Figure> {
    let label = |row: &Record| order_label(row, rows);
    let fields = [
        ("updates_per_s", "updates with hints"),
        ("updates_per_s_unhinted", "updates without"),
        ("inserts_per_s", "inserts"),
    ];
    let copies = Measure::new("Copies", "records copied by rebuilds per insert", Unit::Number, |row| {
        row.number("copies_per_insert")
    });
    let memory =
        Measure::new("Memory node's memory", "bytes per key", Unit::Bytes, |row| row.number("bytes_per_key"));
    [
        side_by_side(("Changes", "changes per second", Unit::Count), &fields, rows, label),
        copies.bars(rows, label),
        memory.bars(rows, label),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows at two rates of each of these experiments.
    fn rows(experiments: &[&str]) -> Vec<Record> {
        let of = |experiment: &&str| {
            [1_000, 2_000].map(|rate| {
                let json = format!(
                    r#"{{"workload": "B", "system": "fpcache", "rate": {rate}, "p50_ns": 5, {experiment}}}"#
                );
                Record::new(serde_json::from_str(&json).expect("a row"))
            })
        };
        experiments.iter().flat_map(of).collect()
    }

    #[test]
    fn experiments_that_differ_in_anything_have_lines_of_their_own_over_load() {
        for (one, other) in [
            (r#""arrivals": "poisson""#, r#""arrivals": "fixed""#),
            (r#""insert_order": "random""#, r#""insert_order": "append""#),
            (r#""writes_in_flight": 1"#, r#""writes_in_flight": 4"#),
            (r#""duration_s": null"#, r#""duration_s": 30.0"#),
            (r#""fsync": null"#, r#""fsync": "10ms""#),
            (r#""commit": "aaaa""#, r#""commit": "bbbb""#),
            (r#""machine": {"cpu": "one"}"#, r#""machine": {"cpu": "another"}"#),
        ] {
            assert_eq!(over_load(&rows(&[one, other])).len(), 2, "{one} and {other}");
            assert_eq!(over_load(&rows(&[one, one])).len(), 1, "{one}");
        }
    }
}
