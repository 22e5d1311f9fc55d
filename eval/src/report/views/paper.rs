//! The figures of `paper`: statements, and the runs they are made of.

use super::{Measure, push};
use crate::plot::figure::{Axis, Figure, Reading, Series, Steps, Unit};
use crate::report::record::Record;

/// What tells a statement from the others.
pub fn claim_label(row: &Record, _: &[Record]) -> String {
    let text = |field: &str| row.text(field).unwrap_or_default().to_owned();
    // Some statements are bounds.
    let bound = row.text("says").filter(|says| *says != "about");
    let bound = bound.map(|says| format!(" (the paper: {says})")).unwrap_or_default();
    format!("{}: {} over {}, {}{bound}", text("figure"), text("this"), text("that"), text("measure"))
}

/// What every run in the model has; `scale` is the number of keys.
pub(super) const MEASURES: [Measure; 7] = [
    Measure::new("Throughput in the model", "operations per second", Unit::Count, |run| {
        run.number("per_second")
    }),
    Measure::new("Round trips in the model", "round trips per operation", Unit::Number, |run| {
        per_operation(run, &["round_trips"])
    }),
    Measure::new("Requests in the model", "requests per operation", Unit::Number, |run| {
        per_operation(run, &["reads", "writes", "atomics", "calls"])
    }),
    Measure::new("Bytes in the model", "bytes per operation", Unit::Bytes, |run| {
        per_operation(run, &["bytes_from", "bytes_to"])
    }),
    Measure::new("Operations of one round trip", "share of operations", Unit::Share, |run| {
        run.number("one_trip")
    }),
    Measure::new("Cache in the model", "bytes per key on a compute node", Unit::Bytes, |run| {
        Some(cached(run)? / run.number("scale")?)
    }),
    Measure::new(
        "Kept beside the cache",
        "bytes on a compute node, whatever the number of keys",
        Unit::Bytes,
        |run| run.number("footprint.beside"),
    ),
];

fn per_operation(run: &Record, counts: &[&str]) -> Option<f64> {
    let of: Option<f64> = counts.iter().map(|count| run.number(&format!("tally.{count}"))).sum();
    Some(of? / run.number("tally.operations").filter(|operations| *operations > 0.0)?)
}

/// What a compute node keeps within its budget. What it keeps beside that, such as tables for
/// lookups that are shared, mostly has one size whatever the number of keys.
fn cached(run: &Record) -> Option<f64> {
    run.number("footprint.cached")
}

/// Figures of statements.
pub fn claims(rows: &[Record]) -> Vec<Figure> {
    let kinds =
        [("published", "the paper"), ("ours", "here, published parameters"), ("ours_best", "here, at best")];
    let names = kinds.map(|(_, name)| name);
    let readings = |row: &Record| kinds.iter().map(|(field, _)| row.number(field).map(Reading::of)).collect();
    let things = rows.iter().map(|row| (claim_label(row, rows), readings(row))).collect();
    let axis = Axis::new("this over that", Unit::Ratio).by(Steps::Factors);
    let mut figures: Vec<Figure> =
        Figure::bars("Statements of the paper", axis, &names, things).into_iter().collect();
    let runs = runs(rows);
    let label = |run: &Record| run.text("run").unwrap_or_default().to_owned();
    let x = Axis::new("bytes of the cache on a compute node", Unit::Bytes).by(Steps::Factors);
    let system = |run: &Record| run.text("system").unwrap_or_default().to_owned();
    figures.extend(MEASURES[0].over(&runs, (&x, cached), system));
    figures.extend(latencies(&runs));
    figures.extend(MEASURES.iter().filter_map(|measure| measure.bars(&runs, label)));
    figures
}

/// Percentiles over load, one line for each.
pub(super) fn latencies(runs: &[Record]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (at, percentile) in [(0, "Median"), (2, "99th percentile")] {
        let mut series: Vec<Series> = Vec::new();
        for run in runs {
            let (load, us) = (run.number("per_second"), run.number(&format!("latency_us.{at}")));
            if let (Some(load), Some(us)) = (load, us) {
                let system = run.text("system").unwrap_or_default().to_owned();
                push(&mut series, system, (load, Reading::of(us * 1e3)));
            }
        }
        let x = Axis::new("load: operations per second of virtual time", Unit::Count);
        let y = Axis::new("time of an operation", Unit::Nanoseconds).by(Steps::Factors);
        figures.extend(Figure::lines(
            format!("{percentile} of latency over load, in the model"),
            x,
            y,
            series,
        ));
    }
    figures
}

/// The runs with published parameters, each once.
fn runs(rows: &[Record]) -> Vec<Record> {
    let mut runs: Vec<Record> = Vec::new();
    for row in rows {
        for (run, name) in [("runs.0", "this"), ("runs.1", "that")] {
            let run = row.below(run).filter(|run| run.number("per_second").is_some());
            let (Some(run), Some(of)) = (run, row.text(name)) else { continue };
            let parameters = run.text("parameters").unwrap_or_default().to_owned();
            let system = of.split([' ', ',']).next().unwrap_or_default().to_owned();
            let run = run
                .with("run", format!("{of} ({parameters})"))
                .with("system", system)
                .with("scale", row.number("scale").unwrap_or_default());
            let is_known =
                |other: &Record| ["run", "per_second"].iter().all(|field| other.get(field) == run.get(field));
            if !runs.iter().any(is_known) {
                runs.push(run);
            }
        }
    }
    runs
}

/// What tells a size of keys from the others.
pub fn entries_label(row: &Record, _: &[Record]) -> String {
    format!("keys of {} B", Unit::Number.show(row.number("key_bytes").unwrap_or_default()))
}

/// Figures of table 2.
pub fn entries(rows: &[Record]) -> Vec<Figure> {
    let mut series = Vec::new();
    for row in rows {
        for (field, name) in [
            ("published", "the paper"),
            ("whole_keys", "100 MiB over whole keys with addresses"),
            ("ours", "fingerprint and offset here"),
        ] {
            if let (Some(bytes), Some(entries)) = (row.number("key_bytes"), row.number(field)) {
                push(&mut series, name.to_owned(), (bytes, Reading::of(entries)));
            }
        }
    }
    let x = Axis::new("bytes of a key", Unit::Bytes).by(Steps::Factors).ticks_at_values();
    Figure::lines("Entries", x, Axis::new("entries", Unit::Count), series).into_iter().collect()
}
